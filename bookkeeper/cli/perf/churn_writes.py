"""The writing side of a churning load: ledgers side by side, filled in turn, at a rate or as fast as a window allows.

    stock   created, waits for a lane       lane   is being written       full   handed to `on_full`, to be closed

Latency runs from the append to the acknowledgement; with a rate, and once the load is behind by more than two ticks, it
runs from when the entry was due: a bookie that does not answer for a second delays all that should have been written in
it, not only what was in flight.

Thread: reactor.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.cli.perf.churn_ledgers import ChurnLedger, LedgerBook, Payloads, draw_entries_max
from bookkeeper.cli.perf.churn_plan import ChurnPlan, Counts
from bookkeeper.errors import BookKeeperError, WindowFull
from bookkeeper.metadata.outcome import pause
from bookkeeper.model import DigestType

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.write.write_handle import WriteHandle

TICK_S = 0.005
"""How often a load with a rate appends what is due."""

BURST_MAX = 256
"""Entries appended to one ledger before the next has its turn."""

CREATE_PAUSE_S = 0.5
"""After a ledger could not be created."""


class OpenLedger:
    """A ledger and its writer. `bursts`: how many entries were due when, in order; the oldest may be partly done."""

    __slots__ = ("bursts", "handle", "ledger")

    def __init__(self, ledger: ChurnLedger, handle: WriteHandle) -> None:
        self.ledger, self.handle = ledger, handle
        self.bursts: deque[tuple[int, float]] = deque()


class ChurnWriter:
    """Writes until it is stopped. on_full: of a ledger that takes no more, or failed; everything may be in flight."""

    def __init__(
        self,
        client: LedgerClient,
        reactor: Any,
        plan: ChurnPlan,
        payloads: Payloads,
        book: LedgerBook,
        counts: Counts,
        rng: random.Random,
        on_full: Callable[[OpenLedger], None],
    ) -> None:
        self._client, self._reactor, self._plan = client, reactor, plan
        self._payloads, self._book, self._counts, self._rng = payloads, book, counts, rng
        self._on_full = on_full
        self._lanes: list[OpenLedger | None] = [None] * plan.lanes
        self._stock: deque[OpenLedger] = deque()
        self._creating = self._begun = 0
        self._turn = 0
        self._in_flight = self._appended = 0
        self._started_s: float | None = None
        self._tick: Any = None
        self._running = False
        self._finished: Deferred[None] = Deferred()

    async def start(self) -> None:
        """Create the first ledgers, and begin."""
        self._running = True
        await Deferred.fromCoroutine(self._create())
        self._restock()
        self._started_s = time.perf_counter()
        self._pump()
        if self._plan.rate:
            self._tick = self._reactor.callLater(TICK_S, self._on_tick)

    def stop(self) -> Deferred[None]:
        """Append nothing more; fires when nothing is in flight. What is open then: see `open_ledgers`."""
        self._running = False
        if self._tick is not None and self._tick.active():
            self._tick.cancel()
        self._look_finished()
        return self._finished

    def open_ledgers(self) -> list[OpenLedger]:
        """Those that are written, and those in stock."""
        return [*(lane for lane in self._lanes if lane is not None), *self._stock]

    # --- ledgers ------------------------------------------------------------------------------------------------------

    def _restock(self) -> None:
        """Create what lanes will soon need: never more than they are."""
        wanted = len(self._lanes) - len(self._stock) - self._creating
        if self._plan.ledgers_max:
            wanted = min(wanted, self._plan.ledgers_max - self._begun)
        for _ in range(wanted if self._running else 0):
            Deferred.fromCoroutine(self._create())

    async def _create(self) -> None:
        """One more ledger in stock. What happens here is told by counting: nobody waits for it."""
        replication, plan = self._plan.replication, self._plan
        self._creating += 1
        self._begun += 1
        try:
            handle = await self._client.create(
                ensemble=replication.ensemble,
                write_quorum=replication.write_quorum,
                ack_quorum=replication.ack_quorum,
                digest=DigestType[replication.digest],
                bookies=plan.bookies or None,
            )
        except BookKeeperError as error:
            self._counts.error("a ledger could not be created", error)
            self._begun -= 1
            await pause(self._reactor, CREATE_PAUSE_S)
        else:
            entries_max = draw_entries_max(self._rng, plan.entries_smallest, plan.entries_largest)
            opened = OpenLedger(ChurnLedger(int(handle.ledger_id), entries_max), handle)
            handle.on_acknowledged = lambda ids: self._acknowledged(opened, len(ids))
            handle.on_failed = lambda error: self._failed(opened, error)
            self._book.add(opened.ledger)
            self._stock.append(opened)
            self._counts.created += 1
        finally:
            self._creating -= 1
        self._restock()
        self._pump()
        self._look_finished()

    # --- adds ---------------------------------------------------------------------------------------------------------

    def _on_tick(self) -> None:
        self._tick = self._reactor.callLater(TICK_S, self._on_tick)
        self._pump()

    def _pump(self) -> None:
        """Append what is due and has room."""
        if not self._running or self._started_s is None:
            return
        now, count, rate = time.perf_counter(), self._plan.outstanding - self._in_flight, self._plan.rate
        due = now
        if rate:
            count = min(count, int((now - self._started_s) * rate) - self._appended)
            first_due = self._started_s + self._appended / rate
            if now - first_due > 2 * TICK_S:
                due = first_due
        without = 0
        while count > 0 and without < len(self._lanes):
            appended = self._append_to_next(count, due)
            without = 0 if appended else without + 1
            count -= appended

    def _append_to_next(self, count: int, due: float) -> int:
        """Give entries to the lane whose turn it is; how many, 0 where it has no ledger."""
        index = self._turn
        self._turn = (index + 1) % len(self._lanes)
        opened = self._lanes[index]
        if opened is None:
            if not self._stock:
                return 0
            opened = self._lanes[index] = self._stock.popleft()
            self._restock()
        ledger = opened.ledger
        count = min(count, BURST_MAX, ledger.entries_max - ledger.appended)
        ledger_id, first = ledger.ledger_id, ledger.appended
        try:
            opened.handle.append_batch_nowait([self._payloads.of(ledger_id, first + each) for each in range(count)])
        except WindowFull:  # acknowledged entries that a slow bookie has not answered take room, too
            self._reactor.callLater(TICK_S, self._pump)
            return 0
        ledger.appended += count
        self._in_flight += count
        self._appended += count
        opened.bursts.append((count, due))
        if ledger.appended == ledger.entries_max:
            self._lanes[index] = None
        if ledger.appended == ledger.entries_max and not ledger.failed:
            self._on_full(opened)
        return count

    def _acknowledged(self, opened: OpenLedger, count: int) -> None:
        now = time.perf_counter()
        opened.ledger.acknowledged += count
        self._in_flight -= count
        while count:
            burst, due = opened.bursts.popleft()
            if burst > count:
                opened.bursts.appendleft((burst - count, due))
                burst = count
            count -= burst
            self._counts.acknowledged(burst, due, now)
        self._pump()
        self._look_finished()

    def _failed(self, opened: OpenLedger, error: Exception) -> None:
        ledger = opened.ledger
        self._counts.error(f"adds to ledger {ledger.ledger_id} failed after entry {ledger.acknowledged - 1}", error)
        full = ledger.appended == ledger.entries_max and opened not in self._lanes and opened not in self._stock
        self._lanes = [None if lane is opened else lane for lane in self._lanes]
        if opened in self._stock:
            self._stock.remove(opened)
        ledger.failed = True
        self._in_flight -= ledger.appended - ledger.acknowledged
        opened.bursts.clear()
        if not full:
            self._on_full(opened)
        self._reactor.callLater(0, self._pump)
        self._look_finished()

    def _look_finished(self) -> None:
        if not self._running and not self._in_flight and not self._creating and not self._finished.called:
            self._finished.callback(None)
