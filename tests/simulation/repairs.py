"""A bookie is lost for ever; its ledgers are repaired by workers that may die, be cut off, or work at the same time.

RepairRun       writes ledgers of several shapes, loses a bookie, marks what it had; then workers come and go
HolderWatch     after every change of the metadata: whoever became a member of an agreed fragment holds, durably, all
                that its place stores (I-75); ids and payloads of copies are those that were written (I-67)
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError

from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.codec import parse_ledger
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.model import BookieId, DigestType, LedgerId, LedgerMetadata
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.repair.settings import WorkerSettings
from bookkeeper.replication.repair.worker import ReplicationWorker
from tests.simulation.history import Violation
from tests.simulation.world import SimulatedBookie, SimulatedClient, World

PASSWORD = b"secret"
SETTINGS = WorkerSettings(
    ledgers_at_once=3,
    batch_entries_max=4,
    entries_in_flight_max=12,
    open_ledger_grace_s=2.0,
    failed_ledger_grace_s=8.0,
    error_backoff_s=0.5,
)
REPAIR_SECONDS = 240.0
STEPPED_SECONDS = 10.0
"""For this long after the loss, wall clocks are set forward and back."""
SHAPES = (
    # ensemble, write quorum, ack quorum, entries, closed
    (3, 3, 2, 11, True),
    (3, 2, 2, 14, True),
    (4, 2, 1, 9, True),
    (3, 1, 1, 3, True),  # what the lost bookie had nobody can bring back
    (3, 3, 3, 0, True),
    (3, 3, 3, 7, False),
)


STRAYS = {
    "x": b"",
    "00/0000/notaledger": b"",
    "available/nothing": b"\xff",
    "cookies/nothing": b"\xff",
    "underreplication/ledgers/x": b"",
    "underreplication/ledgers/0000/0000/0000/zzzz": b"",
    "underreplication/badcopies/x": b"\xff",
    "underreplication/locks/x": b"\xff",
    "underreplication/auditorelection/V_0000000000": b"\xff",
    "underreplication/workers/x": b"\xff",
}
"""Stray znodes that must not stop a worker or an auditor: path below the root, and data."""


class HolderWatch:
    """Looks at the ledgers given to it after every change of the metadata."""

    def __init__(self, world: World, ledgers: dict[LedgerId, list[bytes]]) -> None:
        self._world, self._ledgers = world, ledgers
        self._seen: dict[LedgerId, LedgerMetadata] = {}
        self.moves = 0
        for ledger_id in ledgers:
            found = self.stored(ledger_id)
            assert found is not None
            self._seen[ledger_id] = found
        world.metadata.znodes.on_change.append(self._look)

    def stored(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The ledger's metadata as the servers have it."""
        metadata = self._world.metadata
        path = metadata.root + ledger_path(LayoutKind.HIERARCHICAL, ledger_id)
        data = metadata.stored(path)
        return None if data is None else parse_ledger(data, path)

    def _look(self) -> None:
        for ledger_id, old in list(self._seen.items()):
            new = self.stored(ledger_id)
            if new is None or new == old:
                continue
            self._seen[ledger_id] = new
            try:
                self._check(ledger_id, old, new)
            except Violation as violation:
                self._world.errors.append(violation)

    def _check(self, ledger_id: LedgerId, old: LedgerMetadata, new: LedgerMetadata) -> None:
        before = {fragment.first_entry_id: fragment for fragment in fragments_of(old) if fragment.agreed}
        for fragment in fragments_of(new):
            earlier = before.get(fragment.first_entry_id)
            if earlier is None:
                continue
            if earlier.last_entry_id != fragment.last_entry_id:
                raise Violation(f"I-13: ledger {ledger_id}: {earlier} became {fragment}")
            for index, (was, now) in enumerate(zip(earlier.ensemble, fragment.ensemble, strict=True)):
                if was != now:
                    self.moves += 1
                    self._check_member(ledger_id, fragment, index, now)

    def _check_member(self, ledger_id: LedgerId, fragment: FragmentRange, index: int, member: BookieId) -> None:
        bookie = self.by_id(member)
        if not (bookie.running and bookie.serves):
            return  # what it has is on its disk; looked at when it is back
        for entry_id in fragment.stored_by(index):
            if not bookie.holds(ledger_id, entry_id):
                raise Violation(
                    f"I-75: ledger {ledger_id}: {member} became a member of {fragment} without entry {entry_id}"
                )

    def by_id(self, bookie_id: BookieId) -> SimulatedBookie:
        """The bookie with this id."""
        return next(bookie for bookie in self._world.bookies if bookie.bookie_id == bookie_id)


class RepairRun:
    """One seed. `prepare`, then workers, then `finish`."""

    def __init__(self, seed: int, *, bookie_count: int = 6, use_v2: bool = True) -> None:
        self.world = World(seed, use_v2=use_v2)
        self.rng = self.world.derive("repairs")
        for _ in range(bookie_count):
            self.world.add_bookie()
        self.writer = self.world.add_client()
        self.test = self.world.add_client()
        self.ledgers: dict[LedgerId, list[bytes]] = {}
        self.lost = self.world.bookies[0]
        self.watch: HolderWatch
        self.workers: list[tuple[SimulatedClient, ReplicationWorker]] = []

    def prepare(self) -> None:
        """Write the ledgers, all of them on the bookie that is then lost, and mark them."""
        self.do(self._until_registered(len(self.world.bookies)), "bookies to register")
        self.do(self._write(), "ledgers to be written")
        self.watch = HolderWatch(self.world, self.ledgers)
        self.lost.kill()
        self.do(self._until_registered(len(self.world.bookies) - 1), "the lost bookie's session to end")
        self.do(self._mark(), "the marks")
        self.world.step_walls_until(
            self.world.clock.seconds() + STEPPED_SECONDS,
            lambda: [
                *(client.process for client, _ in self.workers),
                *(bookie.process for bookie in self.world.bookies if bookie.process is not None),
            ],
        )
        for stray, data in STRAYS.items():
            self.world.metadata.plant(f"{self.world.metadata.root}/{stray}", data)

    async def _until_registered(self, count: int) -> None:
        while len((await self.test.store.bookies.current()).writable) != count:
            await self.world.pause(0.2)

    async def _write(self) -> None:
        others = self.world.bookies[1:]
        for ensemble, write_quorum, ack_quorum, count, closed in SHAPES:
            members = [self.lost, *self.rng.sample(others, ensemble - 1)]
            self.rng.shuffle(members)
            handle = await self.writer.ledgers.create(
                ensemble=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                password=PASSWORD,
                digest=self.rng.choice(list(DigestType)),
                bookies=[member.bookie_id for member in members],
            )
            payloads = [b"%d/%d/" % (handle.ledger_id, each) + self.rng.randbytes(60) for each in range(count)]
            for payload in payloads:
                await handle.append(payload)
            # Every copy has arrived, not only those that make an acknowledgement: what is lost is the bookie's alone.
            await self.world.pause(1.0)
            if closed:
                await handle.close()
            self.ledgers[handle.ledger_id] = payloads

    async def _mark(self) -> None:
        for ledger_id in self.ledgers:
            await self.test.store.underreplication.mark(ledger_id, [self.lost.bookie_id], now_ms=1)

    # --- workers

    def add_worker(self) -> tuple[SimulatedClient, ReplicationWorker]:
        """One more worker in a process of its own."""
        client = self.world.add_client()
        worker = ReplicationWorker(client.ledgers, SETTINGS, client.name)
        worker.start()
        self.workers.append((client, worker))
        return client, worker

    def crash_worker(self, client: SimulatedClient) -> None:
        """kill -9."""
        client.crash()
        self.workers = [(each, worker) for each, worker in self.workers if each is not client]

    # --- the end

    @property
    def repairable(self) -> dict[LedgerId, list[bytes]]:
        """Ledgers that have another copy of everything."""
        return {
            ledger_id: payloads
            for ledger_id, payloads in self.ledgers.items()
            if (metadata := self.watch.stored(ledger_id)) is not None and metadata.write_quorum > 1
        }

    async def marked(self) -> set[LedgerId]:
        """Ledgers that are marked."""
        walk = self.test.store.underreplication.ids(BadRecords())
        return {ledger_id async for batch in walk for ledger_id in batch}

    async def _until_repaired(self) -> None:
        repairable = set(self.repairable)
        while True:
            try:
                if not await self.marked() & repairable:
                    return
            except BookKeeperError:
                pass
            await self.world.pause(0.5)

    def finish(self) -> None:
        """Wait for the repair, then read everything back, and look at who holds what."""
        repairable = self.repairable
        self.do(self._until_repaired(), "all that can be repaired to be repaired")
        for ledger_id in repairable:
            metadata = self.watch.stored(ledger_id)
            assert metadata is not None
            for fragment in fragments_of(metadata):
                if self.lost.bookie_id in fragment.ensemble:
                    raise Violation(f"L-4: ledger {ledger_id} names {self.lost.bookie_id} still, and has no mark")
                for index, member in enumerate(fragment.ensemble):
                    for entry_id in fragment.stored_by(index) if fragment.agreed else ():
                        if not self.watch.by_id(member).holds(ledger_id, entry_id):
                            raise Violation(f"I-75: ledger {ledger_id}: {member} is listed without entry {entry_id}")
        self.do(self._read_all(repairable), "everything to be read")
        self._check_errors()

    async def _read_all(self, ledgers: dict[LedgerId, list[bytes]]) -> None:
        reader = self.world.add_client()
        for ledger_id, payloads in ledgers.items():
            async with await reader.ledgers.open(ledger_id, PASSWORD) as handle:
                found = [entry.payload async for entry in handle.entries()]
            if found != payloads:
                raise Violation(
                    f"ledger {ledger_id} reads {len(found)} entries, {len(payloads)} were written, or others"
                )

    # --- running

    def do(self, work: Any, what: str) -> None:
        """Run the test's own work to its end."""
        done: list[object] = []

        async def whole() -> None:
            try:
                await work
            except (BookKeeperError, CancelledError) as error:
                raise Violation(f"{what}: {type(error).__name__}: {error}") from error
            done.append(None)

        self.world.spawn(whole())
        finished = self.world.run_until(lambda: bool(done) or bool(self.world.errors), seconds=REPAIR_SECONDS)
        self._check_errors()
        if not finished:
            told = [str(trouble) for _, worker in self.workers for trouble in worker.troubles]
            raise Violation(f"L-4: waited {REPAIR_SECONDS:g} simulated seconds for {what}; {told}")

    def run(self, seconds: float) -> None:
        """Let simulated time pass."""
        self.world.run_until(lambda: bool(self.world.errors), seconds=seconds)
        self._check_errors()

    def _check_errors(self) -> None:
        for error in self.world.errors:
            if isinstance(error, Violation):
                raise error
            raise Violation(f"an error that no fault explains: {type(error).__name__}: {error}") from error
