"""Drives the scrub: when a round begins, how fast it reads (I-67).

    start ----> catch-up ----> idle ----(interval, or asked for)----> round ------> idle
                                    ----(an index page is damaged)--> mending ----> idle
                                    ----(a read met damaged bytes of a log)--> looking ----> idle

The catch-up makes checksums of what has none and ends at once where there is nothing; rounds may be off. Mending begins
within seconds of the damage being met, is tried again when what it failed for may have changed, with pauses that double
up to an hour, and once a day in any case; where there are more pages than one try takes, it goes on with the others.
Looking for the other entries in bytes that a read met as damaged begins within seconds, too: in the middle of anything
else, before its next step. A step is read on the scrub's own thread, and the next one begins when the rate allows it.
What is found is in the damage record; an error of the scrub itself ends the round, one in a look that look alone; it is
told and never ends the bookie.

Thread: reactor.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageRecord
from bookkeeper.bookie.integrity.scrub.steps import StorageScrub
from bookkeeper.bookie.process.status_format import DamagedRange, ErrorStatus, ScrubStatus, shortened
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.metrics import Metrics
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()

FIRST_ROUND_WITHIN_S = 3600.0
"""The first round of a process begins so long after its start at the latest: one that is often restarted has some."""

LOOK_INTERVAL_S = 5.0
"""How often it is asked whether index pages are to be made anew."""

MENDING_PAUSE_S = 10.0
MENDING_PAUSE_MAX_S = 3600.0
MENDING_INTERVAL_MAX_S = 86400.0
"""Between two tries to make damaged pages anew: where something has changed, and where nothing has."""

DAMAGED_SHOWN = 5
"""Damaged ranges that the status names."""


@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """interval_s: from the end of one round to the next; 0: no rounds. bytes_per_s: read at most; 0: no bound."""

    interval_s: float = 7 * 86400.0
    bytes_per_s: float = 16 * 1024 * 1024


class Phase(enum.Enum):
    """What the scrub is doing."""

    IDLE = "idle"
    CATCH_UP = "checksums for what has none"
    ROUND = "reading through everything"
    MENDING = "making damaged index pages anew"
    LOOKING = "finding the entries in damaged bytes"
    STOPPED = "stopped"


class Scrubber:
    """The background scrub of one storage.

    now_ms: wall clock, for the status. log_bytes: of all entry logs, for how far a round is; called on the worker.
    on_change: called within LOOK_INTERVAL_S of a change of what the status says.
    """

    def __init__(
        self,
        scrub: StorageScrub,
        damage: DamageRecord,
        clock: Clock,
        worker: Worker,
        settings: ScrubSettings,
        now_ms: Callable[[], int],
        *,
        log_bytes: Callable[[], int] = lambda: 0,
        on_change: Callable[[], object] = lambda: None,
        metrics: Metrics | None = None,
    ) -> None:
        self._scrub = scrub
        self._log_bytes = log_bytes
        self._round_bytes = 0  # of entry logs; of the round under way, else of the last one
        self._round_read = 0  # of these
        self._bytes_before = 0  # that the scrub had read when it began
        self._damage = damage
        self._clock = clock
        self._worker = worker
        self._settings = settings
        self._now_ms = now_ms
        self._phase = Phase.IDLE
        self._steps: Iterator[int] | None = None
        self._looking: Iterator[int] | None = None  # goes before the next of the steps
        self._stepping = False
        self._timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._began_s = 0.0
        self._round_at_s = 0.0
        self._mending_basis: object = None  # of the last try; None before one, and where nothing is damaged
        self._mending_tries = 0
        self._on_change = on_change
        self._told: object = None
        self._last_round_ms: int | None = None
        self._last_mending_ms: int | None = None
        self._next_round_ms: int | None = None
        self._last_error: ErrorStatus | None = None
        self._asked: list[Deferred[None]] = []
        self._joined: list[Deferred[None]] = []
        self._stopping: Deferred[None] | None = None
        metrics = Metrics() if metrics is None else metrics
        self._round_time = metrics.summary("scrubber_runTime")
        metrics.counter("scrubber_detectedScrubErrors", lambda: damage.found_count)
        metrics.counter("bookie_SCRUBBED_BYTES", lambda: scrub.counters.bytes)
        metrics.counter("bookie_DAMAGE_REPAIRED", lambda: damage.repaired_count)
        metrics.gauge("bookie_DAMAGED_RANGES", lambda: len(damage))
        metrics.gauge("bookie_SCRUB_ROUND_BYTES_DONE", lambda: self._round_read)
        metrics.gauge("bookie_SCRUB_ROUND_BYTES_LEFT", self._left)

    def start(self) -> None:
        """Begin with the catch-up."""
        self._begin(Phase.CATCH_UP)
        self._look_timer = self._clock.callLater(LOOK_INTERVAL_S, self._look)

    def stop(self) -> Deferred[None]:
        """Begin no more steps; fires when the one under way has ended."""
        self._phase = Phase.STOPPED
        self._cancel_timer()
        if self._look_timer is not None and self._look_timer.active():
            self._look_timer.cancel()
        for done in (*self._asked, *self._joined):
            done.cancel()
        if not self._stepping:
            return succeed(None)
        self._stopping = Deferred()
        return self._stopping

    def run_now(self) -> Deferred[None]:
        """Fires at the end of a whole round that begins now, or behind the one under way."""
        done: Deferred[None] = Deferred()
        self._asked.append(done)
        if self._phase is Phase.IDLE:
            self._begin(Phase.ROUND)
        return done

    def status(self) -> ScrubStatus:
        """Where it is; of the damages those of ledgers first."""
        damages = sorted(self._damage.all(), key=lambda damage: damage.ledger_id == NO_LEDGER)
        return ScrubStatus(
            doing=self._phase.value,
            last_round_ms=self._last_round_ms,
            next_round_ms=self._next_round_ms,
            checked_bytes=self._scrub.counters.bytes,
            damaged_ranges=len(self._damage),
            last_error=self._last_error,
            damaged=tuple(map(_shown, damages[:DAMAGED_SHOWN])),
            last_mending_ms=self._last_mending_ms,
            gone_ranges=self._damage.gone_count,
        )

    def _look(self) -> None:
        """Make damaged pages anew, when that is due; have what has changed be told."""
        telling = (self._phase, self._last_round_ms, self._last_mending_ms, len(self._damage), self._damage.found_count)
        if telling != self._told:
            self._told = telling
            self._on_change()
        self._look_timer = self._clock.callLater(LOOK_INTERVAL_S, self._look)
        if self._phase is Phase.IDLE and self._scrub.looks_due:
            self._begin(Phase.LOOKING)
        if self._phase is Phase.IDLE and self._mending_is_due():
            self._begin(Phase.MENDING)

    def _mending_is_due(self) -> bool:
        scrub = self._scrub
        if not scrub.pages_damaged:
            self._mending_basis, self._mending_tries = None, 0
            return False
        if scrub.waits_for_checkpoint:
            return False
        waited_s = self._clock.seconds() - self._began_s
        if self._mending_basis is None or waited_s >= MENDING_INTERVAL_MAX_S:
            return True
        if scrub.pages_untried:
            return waited_s >= MENDING_PAUSE_S
        pause_s = min(MENDING_PAUSE_MAX_S, MENDING_PAUSE_S * 2 ** min(self._mending_tries, 16))
        return waited_s >= pause_s and self._mending_basis != scrub.mending_basis

    def _begin(self, phase: Phase) -> None:
        self._cancel_timer()
        self._phase = phase
        self._began_s = self._clock.seconds()
        self._next_round_ms = None
        if phase is Phase.ROUND:
            self._joined, self._asked = self._asked, []
        if phase in (Phase.ROUND, Phase.MENDING):
            self._mending_basis = self._scrub.mending_basis
            self._mending_tries += 1
        if phase is Phase.MENDING:
            self._steps = self._scrub.mending_steps()
        elif phase is Phase.LOOKING:
            self._steps = self._looks()
        else:
            self._steps = self._scrub.steps(everything=phase is Phase.ROUND)
        if phase is Phase.ROUND:
            self._steps = chain(self._measure(), self._steps)
        self._step()

    def _measure(self) -> Iterator[int]:
        """The first step of a round: how much there is to read. Thread: the worker."""
        self._bytes_before, self._round_bytes, self._round_read = self._scrub.counters.bytes, self._log_bytes(), 0
        yield 0

    def _left(self) -> int:
        return self._round_bytes - self._round_read if self._phase is Phase.ROUND else 0

    def _step(self) -> None:
        self._timer = None
        if self._stepping or self._phase is Phase.STOPPED:
            return
        assert self._steps is not None
        if self._scrub.looks_due and self._phase is not Phase.LOOKING and self._looking is None:
            self._looking = self._looks()
        self._stepping = True
        self._worker.submit(
            partial(self._next, self._steps), partial(self._stepped, self._clock.seconds()), self._failed
        )

    def _next(self, steps: Iterator[int]) -> int | None:
        """Bytes that one step has read, None behind the last one. Thread: the worker."""
        if self._looking is not None:
            size = next(self._looking, None)
            if size is not None:
                return size
            self._looking = None
        return next(steps, None)

    def _looks(self) -> Iterator[int]:
        """What goes wrong in a look ends that look, and nothing that it came in the middle of. Thread: the worker."""
        try:
            yield from self._scrub.looking_steps()
        except Exception as error:  # noqa: BLE001 - it is told, and the bookie goes on
            self._scrub.counters.unreadable += 1
            log.failure("Looking for the entries in damaged bytes ended early: {error}", error=error)
            self._last_error = ErrorStatus(self._now_ms(), "scrub", shortened(str(error)))

    def _stepped(self, began_s: float, size: int | None) -> None:
        self._stepping = False
        self._scrub.trim()
        if self._phase is Phase.STOPPED:
            self._stopped()
        elif size is None:
            self._ended()
        else:
            if self._phase is Phase.ROUND:
                self._round_read = min(self._round_bytes, self._scrub.counters.bytes - self._bytes_before)
            rate = self._settings.bytes_per_s
            took_s = self._clock.seconds() - began_s
            wait_s = max(0.0, size / rate - took_s) if rate > 0 else 0.0
            self._timer = self._clock.callLater(wait_s, self._step)

    def _failed(self, error: BaseException) -> None:
        self._stepping = False
        if self._phase is Phase.STOPPED:
            self._stopped()
            return
        log.error("The scrub ended early: {error}", error=error)
        self._last_error = ErrorStatus(self._now_ms(), "scrub", shortened(str(error)))
        self._ended()

    def _stopped(self) -> None:
        stopping, self._stopping = self._stopping, None
        if stopping is not None:
            stopping.callback(None)

    def _ended(self) -> None:
        took_s = self._clock.seconds() - self._began_s
        phase = self._phase
        if phase is Phase.ROUND:
            self._round_time.observe(took_s * 1000)
            self._last_round_ms = self._now_ms()
        if phase is Phase.MENDING:
            self._last_mending_ms = self._now_ms()
        counters = self._scrub.counters
        log.info(
            "Scrub, {phase}: {bytes} bytes, {logs} entry logs, {files} index files since the start; "
            "{logs_adopted} logs and {pages_adopted} index pages got checksums; {pages_left} damaged index pages could "
            "not be made anew; {damaged} damaged ranges are known",
            phase=self._phase.value, bytes=counters.bytes, logs=counters.logs, files=counters.index_files,
            logs_adopted=counters.logs_adopted, pages_adopted=counters.pages_adopted,
            pages_left=counters.pages_left, damaged=len(self._damage),
        )  # fmt: skip
        self._phase, self._steps = Phase.IDLE, None
        joined, self._joined = self._joined, []
        for done in joined:
            done.callback(None)
        interval_s = self._settings.interval_s
        if self._asked:
            self._begin(Phase.ROUND)
        elif interval_s > 0:
            now_s = self._clock.seconds()
            if phase in (Phase.CATCH_UP, Phase.ROUND):
                first = phase is Phase.CATCH_UP
                self._round_at_s = now_s + (min(interval_s, FIRST_ROUND_WITHIN_S) if first else interval_s)
            wait_s = max(0.0, self._round_at_s - now_s)
            self._next_round_ms = self._now_ms() + int(wait_s * 1000)
            self._timer = self._clock.callLater(wait_s, self._begin, Phase.ROUND)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


def _shown(damage: Damage) -> DamagedRange:
    last = None if damage.last_entry_id == ENTRY_ID_MAX else damage.last_entry_id
    return DamagedRange(
        damage.ledger_id, damage.first_entry_id, last, damage.path, damage.offset, shortened(damage.reason)
    )
