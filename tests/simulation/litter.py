"""Ledgers that come and go beside those of a campaign: the bookies collect them, while everything fails.

What it makes of the campaign: entry logs with dead bytes between entries that are checked, so that logs are removed and
rewritten under every fault; and writers that were fenced, slept until their ledger was deleted and collected, and go
on writing then (I-04, T16).

Half of the seeds also have stray znodes among the ledgers, which must not stop a collector.

Checked: no such writer is ever acknowledged (I-04, I-08), and when the faults are over every bookie is rid of the
ledgers (L-5) and of what they took.
"""

from __future__ import annotations

import random

from twisted.internet.defer import CancelledError

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.errors import BookKeeperError
from tests.simulation.history import Violation
from tests.simulation.world import SimulatedBookie, World

LEDGERS_MAX = 12
QUORUMS = ((3, 3, 2), (3, 2, 2), (2, 2, 1), (1, 1, 1))
GONE_WITHIN_S = 30.0
STRAYS = ("/x", "/00/00zz", "/00/L9999999", "/00/0000/notaledger", "/000/0000/L9999999", "/L9000000000")
"""Ids in these paths are ids that no ledger of a campaign has."""

SHARE = 0.35
"""Of the seeds: the collectors' rounds cost as much time as all the rest."""


class Litter:
    """deleted: ledgers whose deletion was confirmed."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"litter/{seed}")
        self.deleted: set[int] = set()
        self.stale_adds = 0
        self.over = self._rng.random() > SHARE
        self._busy = 0
        self._awake_s = 0.0

    def start(self) -> None:
        """Begin; ends when `over` is set."""
        if self._rng.random() < 0.5:
            for stray in STRAYS:
                self._world.metadata.plant(self._world.metadata.root + stray)
        for _ in range(2):
            self._busy += 1
            self._world.spawn(self._drop())

    @property
    def ended(self) -> bool:
        """True when nothing is written or deleted any more, and nobody sleeps."""
        return not self._busy and self._world.clock.seconds() > self._awake_s + 1.0

    async def _drop(self) -> None:
        for _ in range(LEDGERS_MAX // 2):
            await self._world.pause(self._rng.random() * 0.6)
            if self.over:
                break
            try:
                await self._one()
            except BookKeeperError as error:
                self._world.note(f"litter: {type(error).__name__}")
        self._busy -= 1

    async def _one(self) -> None:
        rng, client = self._rng, self._world.add_client()
        ensemble, write_quorum, ack_quorum = rng.choice(QUORUMS)
        handle: WriteHandle = await client.ledgers.create(
            ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, password=b"secret"
        )
        stale = rng.random() < 0.4
        try:
            for _ in range(rng.randint(1, 6)):
                await handle.append_many([rng.randbytes(rng.choice((10, 200, 900))) for _ in range(rng.randint(1, 8))])
            if not stale:
                await handle.close()
        except CancelledError:
            return
        other = self._world.add_client()
        if stale:
            client.process.sleep(rng.random() * 8.0)
            self._awake_s = max(self._awake_s, client.process.asleep_until)
            await other.ledgers.open(handle.ledger_id, password=b"secret")
            handle.on_acknowledged = self._acknowledged_too_late
            if self.over:
                return
            self._busy += 1
            self._world.spawn(self._go_on(handle))
        await self._world.pause(rng.random() * 2.0)
        await other.ledgers.delete(handle.ledger_id)
        self.deleted.add(handle.ledger_id)
        self._world.note(f"deleted {handle.ledger_id}")

    async def _go_on(self, handle: WriteHandle) -> None:
        """The old writer wakes up: what it adds now must never be acknowledged."""
        try:
            await self._world.pause(self._rng.random() * 8.0)
            self.stale_adds += 1
            await handle.append_many([b"from the grave"])
            self._acknowledged_too_late(range(0))
        except (BookKeeperError, CancelledError) as error:
            self._world.note(f"old writer of {handle.ledger_id}: {type(error).__name__}")
        finally:
            self._busy -= 1

    def _acknowledged_too_late(self, _: range) -> None:
        self._world.errors.append(Violation("I-04: a writer that was fenced was acknowledged"))

    def check_collected(self) -> None:
        """All bookies serve and nothing fails any more: the ledgers leave them."""
        world = self._world
        gone = world.run_until(
            lambda: bool(world.errors) or all(map(self._is_rid, world.bookies)), seconds=GONE_WITHIN_S
        )
        if not gone:
            kept = {bookie.name: sorted(self._kept(bookie)) for bookie in world.bookies}
            raise Violation(f"L-5: {GONE_WITHIN_S:g} simulated seconds after the faults bookies still hold {kept}")

    def _is_rid(self, bookie: SimulatedBookie) -> bool:
        return not self._kept(bookie)

    def _kept(self, bookie: SimulatedBookie) -> set[int]:
        return self.deleted.intersection(bookie.ledger_ids())
