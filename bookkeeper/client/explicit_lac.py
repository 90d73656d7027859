"""Telling the bookies the LAC when no further entry carries it.

The LAC inside the last entry is behind by the adds in flight. While a handle writes, the next entry brings it up to
date; when it pauses, the LAC is written by a WRITE_LAC (v3 only) to the write set of the entry it names, so that
readers of the open ledger see everything acknowledged. It is a hint: failures are no failures of the handle, and a
bookie without v3 simply does not get it.

Source: bookkeeper-protocol.md 6.8. Differs from Apache: where fewer than Qa bookies could be asked it is written again
a few times, or the last entries of a paused writer would stay hidden until it goes on.

One timer serves all handles of a client. A handle is looked at once per interval while there is news, most often to
find that an entry has carried it; looks that fall close together are one turn's work, and no turn writes more than
WRITES_MAX LACs: 20 000 ledgers that go quiet together are told of in two thirds of a second, and slowly meanwhile
where others are being written.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.model import LedgerId
from bookkeeper.protocol.schedule import write_set

if TYPE_CHECKING:
    from bookkeeper.client.add_pipeline import AddPipeline
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.flushing import TurnFlush
    from bookkeeper.ports import Clock, Timer
    from bookkeeper.wire.digest import Digest

ATTEMPTS_MAX = 6
"""Times that one LAC is written to bookies that do not answer, each twice as long after the one before (L-9)."""

LOOKS_PER_INTERVAL = 50
"""Turns per interval in which handles are looked at, at most; a look is late by no more than that."""

LOOKS_MAX = 2000
"""Handles looked at in one turn."""

WRITES_MAX = 128
"""LACs written in one turn, some milliseconds of work; what is left goes on after PAUSE_S."""

PAUSE_S = 0.004

BUSY_WRITES_MAX = 8
"""The same while entries are being sent. They carry LACs themselves, and LACs that slowed them down would only make
more ledgers look quiet."""

BUSY_PAUSE_S = 0.01

log = Logger()


class LacClock:
    """When to look at which handle: one for all handles of a client."""

    def __init__(self, clock: Clock, interval_s: float, turn: TurnFlush) -> None:
        self._clock, self.interval_s, self._turn = clock, interval_s, turn
        self._writers_seen = 0
        self._spacing_s = interval_s / LOOKS_PER_INTERVAL
        self._due: deque[ExplicitLac] = deque()  # by `due_s`: all wait for the same interval
        self._again: list[tuple[float, int, ExplicitLac]] = []  # attempts after a failure, a heap
        self._sequence = 0
        self._stopped = 0  # handles stopped since the queue was cleared of such
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def look_after_interval(self, lac: ExplicitLac) -> None:
        """Look at it once an interval has passed."""
        lac.due_s = self._clock.seconds() + self.interval_s
        self._due.append(lac)
        if self._timer is None:
            self._set_timer(lac.due_s)

    def look_again(self, lac: ExplicitLac, delay_s: float) -> None:
        """Look at it after a delay of its own, unless it is looked at before."""
        due_s = lac.due_s = self._clock.seconds() + delay_s
        self._sequence += 1
        heapq.heappush(self._again, (due_s, self._sequence, lac))
        if self._timer is None or due_s < self._timer_due:
            self._set_timer(due_s)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        busy = self._turn.writer_count != self._writers_seen
        self._writers_seen = self._turn.writer_count
        writes_max, pause_s = (BUSY_WRITES_MAX, BUSY_PAUSE_S) if busy else (WRITES_MAX, PAUSE_S)
        writes = looks = 0
        while writes < writes_max and looks < LOOKS_MAX:
            lac = self._next(now)
            if lac is None:
                break
            looks += 1
            writes += lac.look()
        self._stop_timer()  # set by a look, and perhaps too soon
        next_due = self._next_due()
        if next_due is not None:
            full = writes >= writes_max or looks >= LOOKS_MAX
            self._set_timer(max(next_due, now + (pause_s if full else self._spacing_s)))

    def _next(self, now: float) -> ExplicitLac | None:
        """Whoever is due now and has not been stopped or put off."""
        while self._due and self._due[0].due_s <= now:
            lac = self._due.popleft()
            if lac.waiting:
                return lac
        while self._again and self._again[0][0] <= now:
            due_s, _, lac = heapq.heappop(self._again)
            if lac.retrying and lac.due_s == due_s:
                return lac
        return None

    def _next_due(self) -> float | None:
        while self._due and not self._due[0].waiting:
            self._due.popleft()
        while self._again and not (self._again[0][2].retrying and self._again[0][2].due_s == self._again[0][0]):
            heapq.heappop(self._again)
        times = [self._due[0].due_s] if self._due else []
        if self._again:
            times.append(self._again[0][0])
        return min(times, default=None)

    def on_stopped(self) -> None:
        """A handle is finished: nothing of it is kept for long, and the timer goes when it was the last one."""
        self._stopped += 1
        if self._stopped > len(self._due) // 2:
            self._stopped = 0
            self._due = deque(lac for lac in self._due if lac.waiting)
        if self._next_due() is None:
            self._stop_timer()

    def _set_timer(self, due: float) -> None:
        self._stop_timer()
        self._timer_due = due
        self._timer = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._on_time)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ExplicitLac:
    """Writes the LAC of one handle once it has been quiet for an interval.

    waiting: to be looked at after an interval; retrying: after a failure. Never both. due_s: when.
    """

    __slots__ = (
        "_attempts",
        "_clock",
        "_context",
        "_digest",
        "_ledger_id",
        "_master_key",
        "_pipeline",
        "_told",
        "_written",
        "due_s",
        "retrying",
        "stopped",
        "waiting",
    )

    def __init__(
        self, context: ClientContext, ledger_id: LedgerId, digest: Digest, master_key: bytes, pipeline: AddPipeline
    ) -> None:
        self._context, self._ledger_id, self._digest, self._master_key = context, ledger_id, digest, master_key
        self._pipeline = pipeline
        self._clock = context.lac_clock
        self._told = -1  # the LAC known to be with the bookies, piggy-backed or explicit
        self._written = -1  # the last one written, and how often that was in vain
        self._attempts = 0
        self.due_s = 0.0
        self.retrying = self.waiting = False
        self.stopped = self._clock.interval_s <= 0

    def on_acknowledged(self) -> None:
        """The LAC moved on."""
        if not self.waiting and not self.stopped:
            self.retrying = False
            self.waiting = True
            self._clock.look_after_interval(self)

    def stop(self) -> None:
        """Nothing is written from now on."""
        if not self.stopped:
            self.stopped = True
            self.waiting = self.retrying = False
            self._clock.on_stopped()

    def look(self) -> bool:
        """The time has come: write the LAC unless entries have carried it; True when it was written."""
        self.waiting = self.retrying = False
        pipeline = self._pipeline
        stamped, lac = pipeline.stamped_lac, pipeline.lac
        wrote = False
        if self._told < stamped:
            self._told = stamped  # entries were sent meanwhile and carried it
        elif self._told < lac:
            self._told = lac
            if self._written != lac:
                self._written, self._attempts = lac, 0
            self._write(lac)
            wrote = True
        if self._told < lac and not self.stopped:
            self.waiting = True
            self._clock.look_after_interval(self)
        return wrote

    def _write(self, lac: int) -> None:
        metadata = self._pipeline.metadata.value
        ensemble = self._pipeline.window.ensemble
        packet = self._digest.package_lac(self._ledger_id, lac)
        request = self._context.v3_encoder.encode_write_lac(self._ledger_id, lac, self._master_key, packet)
        channels = [
            self._context.v3_channel(ensemble[index])
            for index in write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        ]
        asked = [channel for channel in channels if not channel.refused]
        attempt = _Attempt(self, lac, asked=len(asked), needed=min(len(asked), metadata.ack_quorum))
        for channel in asked:
            channel.call(request, self._context.settings.add_timeout_s, attempt.on_reply, attempt.on_unknown)

    def on_too_few(self, lac: int) -> None:
        """Fewer bookies than needed answered: again, later and later, unless an entry brings it anyway."""
        self._attempts += 1
        if self.stopped or lac != self._told or self._attempts >= ATTEMPTS_MAX:
            return
        self._told = lac - 1
        if not self.waiting and not self.retrying:
            self.retrying = True
            self._clock.look_again(self, self._clock.interval_s * 2**self._attempts)


class _Attempt:
    """One LAC on its way to its bookies."""

    __slots__ = ("_lac", "_left", "_missing", "_owner")

    def __init__(self, owner: ExplicitLac, lac: int, *, asked: int, needed: int) -> None:
        self._owner, self._lac, self._left, self._missing = owner, lac, asked, needed

    def on_reply(self, reply: object) -> None:
        """Good, or a refusal for ever: asking again would change nothing."""
        self._missing -= 1
        self._count()

    def on_unknown(self, error: Exception) -> None:
        """The bookie could not be asked."""
        log.debug("explicit LAC {lac}: {error}", lac=self._lac, error=error)
        self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left and self._missing > 0:
            self._owner.on_too_few(self._lac)
