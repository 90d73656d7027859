"""Long polls: reads that wait until the LAC of their ledger has passed what the reader knows.

    asked --LAC is higher already, or no timeout--> read, answer
          --else--> watch --add, explicit LAC, fence--> woken, some per turn --> read, answer
                          --timeout, stop-----------------------------------> answer
                          --connection ended--------------------------------> dropped

A watch costs adds nothing while nobody watches (one truth test per batch), and what is woken is answered in turns of
its own, not inside the add. Timers run on the clock port. Source: Apache 4.18 LongPollReadEntryProcessorV3.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeAlias

from bookkeeper.bookie.requests.entry_reads import EntryReads, Results
from bookkeeper.bookie.requests.intake import Intake
from bookkeeper.clock import wall_ms
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.ports import Clock, Timer
from bookkeeper.wire.messages import AddBatch, LongPollRead

TIMEOUT_S_MAX = 60.0
"""Longest wait; who asks for more is answered then as if the time were over, and asks again."""

WOKEN_PER_TURN_MAX = 256
"""Watches answered in one turn of the reactor, so that thousands woken by one add hold nobody up."""


class WatchEnd(enum.Enum):
    """Why a watch is over."""

    LAC = "the LAC passed what the reader knew"
    FENCED = "the ledger was fenced"
    TIMEOUT = "its time is over"
    STOPPED = "the bookie stops"


OnEnd: TypeAlias = Callable[[WatchEnd, "int | None"], None]


class Watch:
    """One reader that waits. timer: None once it is woken."""

    __slots__ = ("ledger_id", "on_end", "previous_lac", "timer")

    def __init__(self, ledger_id: int, previous_lac: int, on_end: OnEnd) -> None:
        self.ledger_id = ledger_id
        self.previous_lac = previous_lac
        self.on_end: OnEnd | None = on_end
        self.timer: Timer | None = None


class _Watched:
    """The watches of one ledger. lowest: no watch knows a lower LAC than this."""

    __slots__ = ("lowest", "watches")

    def __init__(self, lowest: int) -> None:
        self.lowest = lowest
        self.watches: dict[Watch, None] = {}


class LacWatches:
    """Watches by ledger. Thread: reactor. Bound: `watches_max`, those included that are woken and not told yet.

    ledgers: empty while nobody watches; the same object for ever, so that a hot path may look at it.
    now_ms: the date, for answers to readers on other machines.
    """

    def __init__(self, clock: Clock, *, watches_max: int, now_ms: Callable[[], int] = wall_ms) -> None:
        self.ledgers: dict[int, _Watched] = {}
        self._clock, self._now_ms = clock, now_ms
        self._watches_max = watches_max
        self._count = 0
        self._woken: deque[tuple[Watch, WatchEnd, int | None]] = deque()
        self._turn: Timer | None = None

    @property
    def count(self) -> int:
        """Watches whose end was not told yet."""
        return self._count

    def watch(self, ledger_id: int, previous_lac: int, timeout_s: float, on_end: OnEnd) -> Watch | None:
        """Have `on_end` called, once and in a later turn, with the reason and the time of a LAC's arrival.

        The time is in milliseconds since the epoch, None for other reasons. None when there are too many watches.
        """
        if self._count >= self._watches_max:
            return None
        watch = Watch(ledger_id, previous_lac, on_end)
        watched = self.ledgers.get(ledger_id)
        if watched is None:
            watched = self.ledgers[ledger_id] = _Watched(previous_lac)
        watched.watches[watch] = None
        watched.lowest = min(watched.lowest, previous_lac)
        self._count += 1
        watch.timer = self._clock.callLater(min(timeout_s, TIMEOUT_S_MAX), self._time_over, watch)
        return watch

    def cancel(self, watch: Watch) -> bool:
        """Forget a watch; False when its end was told already."""
        if watch.on_end is None:
            return False
        self._remove(watch)
        watch.on_end = None
        self._count -= 1
        return True

    def on_adds(self, batches: Iterable[AddBatch]) -> None:
        """Entries with LACs in them arrived."""
        for batch in batches:
            if batch.ledger_id in self.ledgers:
                self.on_lac(batch.ledger_id, batch.last_confirmed)

    def on_lac(self, ledger_id: int, lac: int) -> None:
        """The ledger's LAC is at least `lac`."""
        watched = self.ledgers.get(ledger_id)
        if watched is None or lac <= watched.lowest:
            return
        lac_update_ms = self._now_ms()
        for watch in [one for one in watched.watches if one.previous_lac < lac]:
            self._wake(watch, WatchEnd.LAC, lac_update_ms)
        watched.lowest = min([one.previous_lac for one in watched.watches], default=lac)

    def on_fence(self, ledger_id: int) -> None:
        """The ledger was fenced: whoever tails it should look whether it is being closed."""
        watched = self.ledgers.get(ledger_id)
        for watch in list(watched.watches) if watched is not None else ():
            self._wake(watch, WatchEnd.FENCED, None)

    def end_all(self, end: WatchEnd) -> None:
        """End all watches now, inside this call, also those that are woken."""
        for watched in list(self.ledgers.values()):
            for watch in list(watched.watches):
                self._tell(watch, end, None)
        self._tell_woken(len(self._woken), end)

    def clear(self) -> None:
        """Forget all watches; none is told anything."""
        for watched in list(self.ledgers.values()):
            for watch in list(watched.watches):
                self.cancel(watch)
        for watch, _, _ in self._woken:
            self.cancel(watch)
        self._woken.clear()

    def _wake(self, watch: Watch, end: WatchEnd, lac_update_ms: int | None) -> None:
        self._remove(watch)
        self._woken.append((watch, end, lac_update_ms))
        if self._turn is None:
            self._turn = self._clock.callLater(0, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._tell_woken(WOKEN_PER_TURN_MAX, None)
        if self._woken and self._turn is None:
            self._turn = self._clock.callLater(0, self._take_turn)

    def _tell_woken(self, count_max: int, instead: WatchEnd | None) -> None:
        for _ in range(min(count_max, len(self._woken))):
            watch, end, lac_update_ms = self._woken.popleft()
            self._tell(watch, instead or end, None if instead else lac_update_ms)

    def _time_over(self, watch: Watch) -> None:
        watch.timer = None
        self._tell(watch, WatchEnd.TIMEOUT, None)

    def _tell(self, watch: Watch, end: WatchEnd, lac_update_ms: int | None) -> None:
        on_end = watch.on_end
        if on_end is not None and self.cancel(watch):
            on_end(end, lac_update_ms)

    def _remove(self, watch: Watch) -> None:
        """Take a watch off its ledger; nothing happens to one that is woken."""
        if watch.timer is not None:
            watch.timer.cancel()
            watch.timer = None
        watched = self.ledgers.get(watch.ledger_id)
        if watched is not None:
            watched.watches.pop(watch, None)
            if not watched.watches:
                del self.ledgers[watch.ledger_id]


class PollSeat(Protocol):
    """What a long poll is to the connection it came on: nothing, while it waits."""

    def may_wait(self) -> bool:
        """False when too many of the connection wait."""

    def on_wait(self, cancel: Callable[[], None]) -> None:
        """The poll waits from now on and holds nobody up. `cancel` ends it without an answer."""

    def on_resume(self) -> bool:
        """The wait is over and the answer follows; False when there is no room for an entry in it."""


PollReply: TypeAlias = Callable[[Status, "bytes | None", "int | None", "int | None"], None]
"""Status, body, known LAC, time of its arrival in ms."""


class LongPolls:
    """Thread: reactor."""

    def __init__(self, intake: Intake, reads: EntryReads, watches: LacWatches) -> None:
        self._intake = intake
        self._reads = reads
        self._watches = watches

    def long_poll(self, request: LongPollRead, reply: PollReply, seat: PollSeat) -> None:
        """Answer once the LAC is above `previous_lac`, the ledger is fenced, the time is over or the bookie stops.

        OK with the known LAC, and with the entry behind `previous_lac` where that is confirmed and held here
        (piggyback), or with the entry asked for. NO_LEDGER at once. TOO_MANY_REQUESTS when too many wait already: to
        answer "nothing new" at once would make an overloaded bookie be asked all the faster.
        """
        if not self._intake.begin():
            return
        refuse = partial(self._refuse, reply)
        if request.piggyback and request.entry_id != LAST_ENTRY:
            refuse(Status.BAD_REQUEST)
            return
        found = partial(self._begin, request, reply, seat)
        self._with_lac(request, found, refuse)

    def _refuse(self, reply: PollReply, status: Status) -> None:
        self._intake.answer(reply, status, None, None, None)

    def _with_lac(self, request: LongPollRead, found: Callable[[int], None], refuse: Callable[[Status], None]) -> None:
        """Call `found` with the known LAC; what goes wrong in it, or before it, is answered."""

        def on_lac(lac: int | Status) -> None:
            if isinstance(lac, Status):
                refuse(lac)
            else:
                self._intake.decide(partial(found, lac), refuse)

        run = partial(self._reads.known_lac, request.ledger_id, on_lac)
        self._intake.decide_loaded(request.ledger_id, 0, run, refuse)

    def _begin(self, request: LongPollRead, reply: PollReply, seat: PollSeat, lac: int) -> None:
        timeout_ms = request.timeout_ms or 0
        if lac > request.previous_lac or timeout_ms <= 0:
            self._answer_entry(request, reply, None, lac)
            return
        if not self._intake.accepting:
            self._intake.answer(reply, Status.OK, None, lac, None)
            return
        on_end = partial(self._on_end, request, reply, seat)
        watch = None
        if seat.may_wait():
            watch = self._watches.watch(request.ledger_id, request.previous_lac, timeout_ms / 1000, on_end)
        if watch is None:
            self._intake.meters.polls_rejected.add()
            self._refuse(reply, Status.TOO_MANY_REQUESTS)
        else:
            seat.on_wait(partial(self._cancel, watch))

    def _cancel(self, watch: Watch) -> None:
        if self._watches.cancel(watch):
            self._intake.drop()

    def _on_end(
        self, request: LongPollRead, reply: PollReply, seat: PollSeat, end: WatchEnd, lac_update_ms: int | None
    ) -> None:
        if self._intake.failure is not None:
            return
        room = seat.on_resume()
        if end is WatchEnd.STOPPED or (request.piggyback and not room):
            # The entry is an extra: the reader asks for it once it knows the LAC.
            self._intake.answer(reply, Status.OK, None, self._intake.lacs.get(request.ledger_id), None)
        elif not room:
            self._refuse(reply, Status.TOO_MANY_REQUESTS)
        else:
            answer = partial(self._answer_entry, request, reply, lac_update_ms)
            self._with_lac(request, answer, partial(self._refuse, reply))

    def _answer_entry(self, request: LongPollRead, reply: PollReply, lac_update_ms: int | None, lac: int) -> None:
        ledger_id, wanted_id = request.ledger_id, request.previous_lac + 1
        if not request.piggyback:
            self._reads.read_with_lac(ledger_id, [request.entry_id], partial(self._entry_read, reply))
        elif lac <= request.previous_lac or wanted_id < 0:
            self._intake.answer(reply, Status.OK, None, lac, None)
        else:
            self._reads.read(ledger_id, [wanted_id], partial(self._next_read, reply, lac, lac_update_ms))

    def _entry_read(self, reply: PollReply, results: Results, lac: int | None) -> None:
        if isinstance(results[0], Status):
            self._refuse(reply, results[0])
        else:
            self._intake.answer(reply, Status.OK, results[0], lac, None)

    def _next_read(self, reply: PollReply, lac: int, lac_update_ms: int | None, results: Results) -> None:
        result = results[0]
        if isinstance(result, bytes):
            self._intake.answer(reply, Status.OK, result, lac, lac_update_ms)
        elif result is Status.NO_ENTRY:  # striped: another bookie has it
            self._intake.answer(reply, Status.OK, None, lac, lac_update_ms)
        else:
            self._refuse(reply, result)
