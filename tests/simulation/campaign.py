"""One run: writers, readers and recoverers at work while everything breaks, then peace, then the reckoning.

0 .. FAULT_SECONDS  faults at random moments: power cuts and kills of bookies (also in the middle of a file
                    operation), disk errors, full disks, bookies that turn read-only, connections cut, hosts
                    partitioned, slow links, metadata calls failed or their replies lost, sessions expired, clients
                    killed, wall clocks set forward and back; some aimed at the moments that are critical to a
                    promise
then                faults stop, everything restarts; every ledger is recovered by two clients at once and read
                    by both; all promises are checked
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import CancelledError

from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
from bookkeeper.client.write.write_handle_base import LedgerWriting
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import LedgerMetadata
from bookkeeper.protocol.schedule import write_set
from tests.simulation.checks import MetadataWatch, left_behind
from tests.simulation.history import LedgerHistory, Violation
from tests.simulation.litter import Litter
from tests.simulation.world import OFTEN, SimulatedBookie, SimulatedClient, World
from tests.support.faulty_filesystem import Op

BOOKIES = 5
FAULT_SECONDS = 6.0
PEACE_SECONDS = 120.0
LEDGERS = 2
ENTRIES_MAX = 60
QUORUMS = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (3, 3, 3), (5, 3, 2), (2, 2, 1), (3, 2, 1))


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    seed: int
    steps: int = 0
    trace: str = ""
    acknowledged: int = 0
    recovered: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None


class Campaign:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"campaign/{seed}")
        self.world = World(seed, use_v2=self.rng.random() < 0.7, garbage=OFTEN)
        self.histories: dict[int, LedgerHistory] = {}
        self.outcome = Outcome(seed)
        self._writers: list[SimulatedClient] = []
        self._handles: dict[int, LedgerWriting] = {}
        self._more = random.Random(f"more/{seed}")
        self._metadata = MetadataWatch(self.world)
        self._litter = Litter(self.world, seed)
        self._tails = 0
        self._blackouts = 1 if self.rng.random() < 0.3 else 0
        self._peace = False

    def run(self) -> Outcome:
        """Run it all; a violation ends it and is in the outcome."""
        try:
            self._run()
        except Violation as violation:
            self.outcome.violation = violation
        world, outcome = self.world, self.outcome
        outcome.steps = world.clock.steps
        outcome.trace = world.trace_digest
        outcome.faults = world.all_faults()
        outcome.acknowledged = sum(history.acknowledged + 1 for history in self.histories.values())
        return outcome

    def _run(self) -> None:
        world = self.world
        for _ in range(BOOKIES):
            world.add_bookie()
        self._until(lambda: all(bookie.bookie is not None for bookie in world.bookies), 20.0, "the bookies to start")
        world.run_until(lambda: False, seconds=0.2)
        for _ in range(LEDGERS):
            client = world.add_client()
            self._writers.append(client)
            world.spawn(self._write(client))
        world.spawn(self._recover_at_some_time())
        self._litter.start()
        self._schedule_faults()
        world.run_until(lambda: bool(world.errors), seconds=FAULT_SECONDS)
        self._check_errors()
        self._litter.over = True
        self._make_peace()
        done: list[int] = []
        for history in list(self.histories.values()):
            world.spawn(self._reckon(history, done))
        self._until(lambda: len(done) == len(self.histories), PEACE_SECONDS, "recovery after the faults stopped")
        self._until(lambda: not self._tails, PEACE_SECONDS, "tailing readers to see the end")
        self._until(lambda: self._litter.ended, PEACE_SECONDS, "ledgers to be deleted")
        self._litter.check_collected()
        self._check_errors()
        self._close_clients()

    def _close_clients(self) -> None:
        """L-8: whatever a client went through, closing it leaves nothing behind."""
        clients = [client for client in self.world.clients if client.process.alive]
        closed: list[None] = []

        async def close(client: SimulatedClient) -> None:
            await client.ledgers.close()
            await client.store.close()
            closed.append(None)

        for client in clients:
            self.world.spawn(close(client))
        self._until(lambda: len(closed) == len(clients), 10.0, "clients to close")
        self.world.run_until(lambda: False, seconds=3.0)  # what travels on a slow link takes up to two
        self._check_errors()
        for client in clients:
            left = left_behind(self.world, client)
            if left:
                raise Violation(f"L-8: {client.name} was closed and holds {', '.join(left)}")

    def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        finished = self.world.run_until(lambda: done() or bool(self.world.errors), seconds=seconds)
        self._check_errors()
        if not finished:
            raise Violation(f"L-1: waited {seconds:g} simulated seconds for {what}")

    def _check_errors(self) -> None:
        for error in self.world.errors:
            if isinstance(error, Violation):
                raise error
            raise Violation(f"an error that no fault explains: {type(error).__name__}: {error}") from error

    # --- the clients' work

    async def _write(self, client: SimulatedClient) -> None:
        ensemble, write_quorum, ack_quorum = self.rng.choice(QUORUMS)
        create: Any = client.ledgers.create if self._more.random() < 0.75 else client.ledgers.create_advanced
        try:
            handle: LedgerWriting = await create(
                ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, password=b"secret"
            )
        except BookKeeperError as error:
            self.world.note(f"{client.name} could not create: {type(error).__name__}")
            return
        history = self.histories[handle.ledger_id] = LedgerHistory(handle.ledger_id)
        self.world.note(f"{client.name} created {handle.ledger_id}")
        self._handles[handle.ledger_id] = handle
        self._metadata.add(handle.ledger_id)
        if self._more.random() < 0.6:
            self._tails += 1
            self.world.spawn(self._tail(self.world.add_client(), history))

        def on_acknowledged(entry_ids: range) -> None:
            history.on_acknowledged(entry_ids)
            self._cut_power_after_acknowledgement()

        handle.on_acknowledged = self._guarded(on_acknowledged)
        await self._append_until_the_end(client, handle, history)

    def _guarded(self, check: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            try:
                check(*arguments)
            except Violation as violation:
                self.world.errors.append(violation)

        return call

    async def _append_until_the_end(
        self, client: SimulatedClient, handle: LedgerWriting, history: LedgerHistory
    ) -> None:
        number = 0
        try:
            while number < ENTRIES_MAX and not self._peace:
                count = self.rng.randint(1, 5)
                payloads = [self._payload(handle.ledger_id, number + each) for each in range(count)]
                await handle.ready()
                history.on_appended(payloads)
                if isinstance(handle, AdvancedWriteHandle):
                    self._append_shuffled(handle, number, payloads)
                else:
                    handle.append_batch_nowait(payloads)
                number += count
                await self.world.pause(self.rng.random() * self.rng.choice((0.1, 0.25, 0.8)))
            if self.rng.random() < 0.5:
                metadata = await handle.close()
                assert metadata.last_entry_id is not None
                history.on_closed(metadata.last_entry_id)
                self.world.note(f"{client.name} closed {handle.ledger_id} at {metadata.last_entry_id}")
        except (BookKeeperError, CancelledError) as error:
            self.world.note(f"{client.name} stopped writing {handle.ledger_id}: {type(error).__name__}")

    def _append_shuffled(self, handle: AdvancedWriteHandle, first_entry_id: int, payloads: list[bytes]) -> None:
        """In any order, and now and then one is never given: what lies behind it is never acknowledged."""
        entry_ids = list(range(first_entry_id, first_entry_id + len(payloads)))
        self._more.shuffle(entry_ids)
        for entry_id in entry_ids:
            if self._more.random() > 0.01:
                # Whether it is acknowledged is heard through `on_acknowledged`.
                handle.append(entry_id, payloads[entry_id - first_entry_id]).addErrback(
                    lambda failure: failure.trap(BookKeeperError)
                )

    async def _tail(self, client: SimulatedClient, history: LedgerHistory) -> None:
        """Follow the ledger without disturbing anybody, through all faults, until it is closed."""
        while True:
            try:
                handle = await client.ledgers.open_without_recovery(history.ledger_id, password=b"secret")
                await self._follow(handle, history)
                break
            except BookKeeperError as error:
                self.world.note(f"{client.name} lost the tail of {history.ledger_id}: {type(error).__name__}")
                await self.world.pause(0.2)
        self.world.note(f"{client.name} saw the end of {history.ledger_id}")
        self._tails -= 1

    async def _follow(self, handle: ReadHandle, history: LedgerHistory) -> None:
        following, confirmed = 0, -1
        try:
            async for batch in handle.tail():
                for entry in batch:
                    if entry.entry_id != following:
                        raise Violation(
                            f"I-46: ledger {handle.ledger_id}: entry {entry.entry_id} after {following - 1}"
                        )
                    history.on_read(entry.entry_id, entry.payload)
                    following += 1
                if handle.last_add_confirmed < confirmed:
                    raise Violation(f"I-07: the LAC went from {confirmed} to {handle.last_add_confirmed}")
                confirmed = handle.last_add_confirmed
                history.on_confirmed(confirmed)
            history.on_closed(handle.last_add_confirmed)
            if following != handle.last_add_confirmed + 1:
                raise Violation(f"I-42: a tail ended at {following - 1}, the ledger at {handle.last_add_confirmed}")
        finally:
            await handle.close()

    def _payload(self, ledger_id: int, number: int) -> bytes:
        return b"%d/%d/" % (ledger_id, number) + self.rng.randbytes(self.rng.choice((0, 10, 100, 700)))

    async def _recover_at_some_time(self) -> None:
        """A backup takes ledgers over while their writers may still live."""
        for _ in range(2):
            await self.world.pause(self.rng.random() * FAULT_SECONDS)
            if self._peace or not self.histories:
                return
            history = self.rng.choice(list(self.histories.values()))
            if self.rng.random() < 0.6:
                self._cut_power_around_fencing(history.ledger_id)
            for _ in range(self._more.choice((1, 1, 2, 3)) - 1):
                self.world.spawn(self._recover(self.world.add_client(), history))
            await self._recover(self.world.add_client(), history)

    async def _recover(self, client: SimulatedClient, history: LedgerHistory) -> None:
        await self.world.pause(self._more.random() * 0.1)
        try:
            handle = await client.ledgers.open(history.ledger_id, password=b"secret")
            history.on_closed(handle.last_add_confirmed)
            self.outcome.recovered += 1
            self.world.note(f"{client.name} recovered {history.ledger_id} to {handle.last_add_confirmed}")
            if self._more.random() < 0.3:
                self._cut_power_of_members(history.ledger_id)
            await self._read_all(handle, history)
        except BookKeeperError as error:
            self.world.note(f"{client.name} could not recover {history.ledger_id}: {type(error).__name__}")

    async def _read_all(self, handle: ReadHandle, history: LedgerHistory) -> list[bytes]:
        payloads: list[bytes] = []
        async for batch in handle.batches():
            for entry in batch:
                history.on_read(entry.entry_id, entry.payload)
                payloads.append(entry.payload)
        return payloads

    # --- faults

    def _schedule_faults(self) -> None:
        faults = (
            self._cut_power, self._cut_power_in_operation, self._cut_connection, self._partition, self._slow_link,
            self._trouble_metadata, self._expire_session, self._kill_client, self._cut_connection,
            self._kill_bookie, self._kill_bookie_in_operation, self._fail_disk, self._turn_read_only, self._fill_disk,
        )  # fmt: skip
        for _ in range(self.rng.randint(3, 14)):
            self.world.clock.callLater(self.rng.random() * FAULT_SECONDS, self.rng.choice(faults))
        self.world.step_walls_until(
            self.world.clock.seconds() + FAULT_SECONDS,
            lambda: [each.process for each in (*self.world.bookies, *self.world.clients) if each.process is not None],
        )

    def _cut_power(self) -> None:
        if self._peace:
            return
        victims = [bookie for bookie in self.world.bookies if bookie.running]
        count = 1 if self.rng.random() < 0.7 else len(victims)
        for bookie in self.rng.sample(victims, min(count, len(victims))):
            bookie.cut_power()
            self.world.clock.callLater(self.rng.random() * 2.0, bookie.ensure_running)

    def _cut_power_around_fencing(self, ledger_id: int) -> None:
        """Aim at members of the ensemble that have answered a fencing request and may forget it (I-23, T21)."""
        ensemble = self._handles[ledger_id].metadata.last_fragment.ensemble
        members = [bookie for bookie in self.world.bookies if bookie.running and bookie.bookie_id in ensemble]
        for bookie in self.rng.sample(members, min(len(members), self.rng.randint(1, 2))):
            moment = self.rng.random() * 0.3
            self.world.clock.callLater(moment, bookie.cut_power)
            self.world.clock.callLater(moment + self.rng.random() * 0.05, bookie.ensure_running)

    def _cut_power_of_members(self, ledger_id: int) -> None:
        """Aim at all fences of a ledger at once, while its writer may not have heard of them (I-23)."""
        ensemble = self._handles[ledger_id].metadata.last_fragment.ensemble
        for bookie in self.world.bookies:
            if not self._peace and bookie.running and bookie.bookie_id in ensemble:
                bookie.cut_power()
                self.world.clock.callLater(0.01 + self._more.random() * 0.03, bookie.ensure_running)

    def _cut_power_after_acknowledgement(self) -> None:
        """Aim at the moment in which an acknowledged entry may not be on any disk yet (I-47)."""
        if self._blackouts and not self._peace and self.rng.random() < 0.05:
            self._blackouts -= 1
            for bookie in self.world.bookies:
                bookie.cut_power()
                self.world.clock.callLater(0.01 + self.rng.random() * 0.5, bookie.ensure_running)

    def _cut_power_in_operation(self) -> None:
        victims = [bookie for bookie in self.world.bookies if bookie.running]
        if self._peace or not victims:
            return
        bookie = self.rng.choice(victims)
        bookie.cut_power_at_operation(self.rng.randint(1, 12))
        self.world.clock.callLater(1.0 + self.rng.random(), bookie.ensure_running)

    def _kill_bookie(self) -> None:
        victims = [bookie for bookie in self.world.bookies if bookie.running]
        if self._peace or not victims:
            return
        bookie = self.rng.choice(victims)
        bookie.kill()
        self.world.clock.callLater(self.rng.random(), bookie.ensure_running)
        if self.rng.random() < 0.5:  # what the killed process left in the page cache must not be taken for durable
            self.world.clock.callLater(1.0 + self.rng.random(), self._cut_power_of, bookie)

    def _kill_bookie_in_operation(self) -> None:
        victims = [bookie for bookie in self.world.bookies if bookie.running]
        if self._peace or not victims:
            return
        bookie = self.rng.choice(victims)
        bookie.kill_at_operation(self.rng.randint(1, 30))
        self.world.clock.callLater(1.0 + self.rng.random(), bookie.ensure_running)
        self.world.clock.callLater(2.0 + self.rng.random(), self._cut_power_of, bookie)

    def _cut_power_of(self, bookie: SimulatedBookie) -> None:
        if not self._peace:
            bookie.cut_power()
            self.world.clock.callLater(self.rng.random(), bookie.ensure_running)

    def _fail_disk(self) -> None:
        if not self._peace:
            op = self.rng.choice((Op.WRITE, Op.SYNC, Op.SYNC, Op.RENAME, Op.SYNC_DIR, Op.TRUNCATE, Op.READ, Op.UNLINK))
            self.rng.choice(self.world.bookies).fail_disk(op, self.rng.randint(1, 20))

    def _fill_disk(self) -> None:
        if not self._peace:
            bookie = self.rng.choice(self.world.bookies)
            bookie.fill_disk()
            self.world.clock.callLater(self.rng.random() * 3.0, bookie.free_disk)

    def _turn_read_only(self) -> None:
        if not self._peace:
            bookie = self.rng.choice(self.world.bookies)
            bookie.set_read_only(True)
            self.world.clock.callLater(self.rng.random() * 2.0, bookie.set_read_only, False)

    def _cut_connection(self) -> None:
        if not self._peace:
            self.world.network.cut_some_connection()

    def _hosts(self) -> list[str]:
        clients = [client.name for client in self.world.clients if client.process.alive]
        return [self.rng.choice(clients or ["nobody"]), self.rng.choice(self.world.bookies).name]

    def _partition(self) -> None:
        if not self._peace:
            self.world.network.partition(*self._hosts())
            self.world.clock.callLater(self.rng.random() * 3.0, self.world.network.heal)

    def _slow_link(self) -> None:
        if not self._peace:
            self.world.network.make_slow(*self._hosts(), self.rng.random() * 2.0)

    def _trouble_metadata(self) -> None:
        if self._peace:
            return
        faults = self.world.metadata_faults
        faults.failed_before_probability = self.rng.random() * 0.2
        faults.reply_lost_probability = self.rng.random() * 0.3
        self.world.clock.callLater(self.rng.random() * 2.0, self._calm_metadata)

    def _calm_metadata(self) -> None:
        self.world.metadata_faults.failed_before_probability = 0.0
        self.world.metadata_faults.reply_lost_probability = 0.0

    def _expire_session(self) -> None:
        alive = [client for client in self.world.clients if client.process.alive]
        if not self._peace and alive:
            self.rng.choice(alive).store.expire_session(self.rng.random())
            self.world.faults["session expired"] += 1

    def _kill_client(self) -> None:
        alive = [client for client in self._writers if client.process.alive]
        if not self._peace and alive:
            self.rng.choice(alive).crash()
            self.world.faults["client killed"] += 1

    # --- the end

    def _make_peace(self) -> None:
        self._peace = True
        self.world.note("peace")
        self._calm_metadata()
        self.world.network.heal()
        whole_site = self.rng.random() < 0.5
        for bookie in self.world.bookies:
            bookie.forget_faults()
            if whole_site:  # whatever was acknowledged is on disks, and not only in page caches
                bookie.cut_power()
            bookie.ensure_running()

    async def _reckon(self, history: LedgerHistory, done: list[int]) -> None:
        """Two clients recover and read the ledger at once, as often as it takes; all must agree."""
        readers = [self.world.add_client(), self.world.add_client()]
        results: list[list[bytes]] = []
        metadata: list[LedgerMetadata] = []
        waiting = [self.world.spawn(self._recover_and_read(client, history, results, metadata)) for client in readers]
        for each in waiting:
            await each
        if len(results) == len(readers):
            if results[0] != results[1]:
                raise Violation(f"I-45: two readers of ledger {history.ledger_id} differ")
            if len(results[0]) < history.acknowledged + 1:
                raise Violation(f"I-40: ledger {history.ledger_id}: acknowledged entries are missing")
            while not all(bookie.serves and bookie.running for bookie in self.world.bookies):
                await self.world.pause(0.1)
            self._count_copies(history.ledger_id, len(results[0]), metadata[0])
        done.append(history.ledger_id)

    def _count_copies(self, ledger_id: int, entry_count: int, metadata: LedgerMetadata) -> None:
        """Every entry has its Qa copies among the members that the metadata names (I-05, I-37)."""
        bookies = {bookie.bookie_id: bookie for bookie in self.world.bookies}
        for entry_id in range(entry_count):
            ensemble = metadata.fragment_of(entry_id).ensemble
            members = [ensemble[at] for at in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum)]
            copies = [bookies[member].holds(ledger_id, entry_id) for member in members]
            if sum(copies) < metadata.ack_quorum:
                raise Violation(
                    f"I-05: ledger {ledger_id} entry {entry_id} has {sum(copies)} copies on {members}, "
                    f"of {metadata.ack_quorum} that were acknowledged"
                )

    async def _recover_and_read(
        self,
        client: SimulatedClient,
        history: LedgerHistory,
        results: list[list[bytes]],
        metadata: list[LedgerMetadata],
    ) -> None:
        while True:
            try:
                handle = await client.ledgers.open(history.ledger_id, password=b"secret")
                history.on_closed(handle.last_add_confirmed)
                results.append(await self._read_all(handle, history))
                metadata.append(handle.metadata)
                return
            except BookKeeperError as error:
                self.world.note(f"{client.name}: {type(error).__name__}, again")
                await self.world.pause(0.5)


def run_seed(seed: int) -> Outcome:
    """The campaign of one seed."""
    return Campaign(seed).run()
