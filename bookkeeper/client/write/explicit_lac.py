"""Explicit LACs: a writer that pauses sends the bookies its LAC, which no further entry carries.

The LAC inside the last entry is behind by the adds in flight. While a handle writes, the next entry brings it up to
date; when it pauses, the LAC is sent by a WRITE_LAC (v3 only) to the write set of the entry it names, so that
readers of the open ledger see everything acknowledged. It is a hint: a failure is not a failure of the handle. A
bookie without WRITE_LAC (4.2 to 4.4) is skipped, which is logged once.

One timer serves all handles of a client (`LacClock`). Handles with an unsent LAC are in one list, which is swept
SWEEPS_PER_INTERVAL times per interval. Without such handles a client has no timer:

    an entry or a WRITE_LAC carried the LAC      leaves the list
    last entry is younger than QUIET intervals   the handle writes: it stays in the list
    last entry is older                          paused: its LAC is sent

So readers see the last entry at most QUIET + 1 / SWEEPS_PER_INTERVAL = 0.8 intervals after it was sent, or once it is
acknowledged if that is later. A stream without such pauses sends nothing.

While the client sends entries, N handles that pause within RECENT_S first wait for N / PATIENT_PER_S = N / 1600 s:
where many ledgers are written in turn, the next entries carry their LACs. Without this wait, explicit LACs took a
quarter to a third of the throughput of a hub with 10 000 topics: a LAC costs its bookies about as much as an entry.
After the wait at most BUSY_WRITES_MAX / BUSY_PAUSE_S = 2400 LACs are sent per second. So the last of N is sent at the
latest N/800 s, or 0.8 intervals + N/2400 s, after the pause: on average 800 per second. A client that sends no entries
sends LACs as fast as WRITES_MAX / PAUSE_S allows.

Source: bookkeeper/wire/FORMATS.md 3.4, 3.8. Differs from Apache: each of its writers has a timer of its own; and where
fewer than Qa bookies could be asked, the LAC is sent again a few times, or the last entries of a paused writer would
stay hidden until it continues.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.client.bookies.unsupported import BookiesWithout
from bookkeeper.model import BookieId, LedgerId, Status
from bookkeeper.protocol.schedule import write_set
from bookkeeper.wire.messages import WriteLacReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.client.bookies.connection import BookieChannel
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.write.pipeline import AddPipeline
    from bookkeeper.client.write.turn_flush import TurnFlush
    from bookkeeper.ports import Clock, Timer
    from bookkeeper.wire.digest import Digest

DOUBLINGS_MAX = 6
"""A LAC that too few bookies took is sent again after 2, 4, 8 ... 2**DOUBLINGS_MAX intervals, then at this last pace
until the handle is closed or an entry carries it: a paused writer may never send another entry."""

SWEEPS_PER_INTERVAL = 5

QUIET = 0.6
"""A handle has paused when it sent no entry for this many intervals."""

LOOKS_MAX = 1000
"""Handles checked in one turn, about 0.3 ms of work; the sweep continues after LOOKS_PAUSE_S."""

LOOKS_PAUSE_S = 0.02

WRITES_MAX = 128
"""LACs sent in one turn, a few milliseconds of work; more follow after PAUSE_S."""

PAUSE_S = 0.004

BUSY_WRITES_MAX = 24
"""LACs sent in one turn while the client sends entries; more follow after BUSY_PAUSE_S."""

BUSY_PAUSE_S = 0.01

BUSY_S = 0.1
"""How long a client counts as busy after it sent an entry: a client that waits for its bookies is not idle."""

PATIENT_PER_S = 1600

RECENT_S = 5.0
"""How long, on average, a handle counts as paused after its LAC was sent. Otherwise few handles would count where LACs
are sent as fast as entries; the wait would be short, and all these LACs would be sent in vain."""

_NOT_UNDERSTOOD = frozenset({Status.BAD_REQUEST, Status.BAD_VERSION})

log = Logger()


class LacClock:
    """The schedule of the explicit LACs of all handles of a client.

    without: bookies that refused WRITE_LAC as unknown.
    """

    def __init__(
        self, clock: Clock, interval_s: float, turn: TurnFlush, epoch: Callable[[BookieId], int | None]
    ) -> None:
        self.interval_s = interval_s
        self.without = BookiesWithout(epoch)
        self._logged = BookiesWithout(epoch)
        self._clock, self._turn = clock, turn
        self._sweep_s = interval_s / SWEEPS_PER_INTERVAL
        self._quiet_s = interval_s * QUIET
        # _swept[_position:] and _next hold the handles that are watched, _count of them, and some that were stopped
        self._swept: list[ExplicitLac] = []
        self._position = 0
        self._next: list[ExplicitLac] = []  # of the next sweep
        self._count = 0
        self._quiet = 0.0  # paused handles in this sweep, without their shares of _recent
        self._found: list[ExplicitLac] = []  # paused handles of this sweep with a LAC that is due
        self._paused: deque[ExplicitLac] = deque()  # of the sweep before: LAC due, not sent yet
        self._recent = 0.0  # handles whose LAC was sent; those of RECENT_S ago count 1/e each
        self._patience_s = 0.0
        self._sweep_began_s = self._sweep_ended_s = 0.0
        self._adds_seen = 0
        self._busy_until_s = 0.0
        self._timer: Timer | None = None

    def add(self, lac: ExplicitLac) -> None:
        """Watch a handle until the bookies have its LAC or it is stopped."""
        self._next.append(lac)
        self._count += 1
        if self._timer is None:
            self._timer = self._clock.callLater(self._sweep_s, self._on_time)

    def add_again(self, lac: ExplicitLac, delay_s: float) -> None:
        """Send a handle's LAC again after `delay_s` at the earliest, unless an entry carries it first."""
        lac.not_before_s = self._clock.seconds() + delay_s
        if not lac.waiting:
            lac.waiting = True
            self.add(lac)

    def may_ask(self, channel: BookieChannel) -> bool:
        """Return whether the bookie may support WRITE_LAC."""
        bookie_id = channel.bookie_id
        if channel.refused:
            self._log_without(bookie_id)
        return not channel.refused and bookie_id not in self.without

    def on_not_understood(self, bookie_id: BookieId) -> None:
        """Note that the bookie refused WRITE_LAC as unknown."""
        self._log_without(bookie_id)
        self.without.add(bookie_id)

    def _log_without(self, bookie_id: BookieId) -> None:
        if bookie_id not in self._logged:
            self._logged.add(bookie_id)
            log.info(
                "Bookie {bookie_id} does not support explicit LACs (since 4.5, protocol v3): readers of open ledgers "
                "see the newest entries on it only once further entries follow",
                bookie_id=bookie_id,
            )

    def forget(self) -> None:
        """Stop watching one handle, which is stopped; cancel the timer after the last one."""
        self._count -= 1
        if not self._count:
            self._swept, self._next, self._position = [], [], 0
            self._found, self._quiet = [], 0.0
            self._paused.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        if self._position >= len(self._swept) and now >= self._sweep_began_s + self._sweep_s * 0.99:
            self._swept, self._next, self._position = self._next, [], 0
            self._sweep_began_s = now
        busy = self._is_busy(now)
        due_since_s = now - (max(self._quiet_s, self._patience_s) if busy else self._quiet_s)
        self._sweep(now, due_since_s)
        self._send(now, due_since_s, BUSY_WRITES_MAX if busy else WRITES_MAX)
        if self._count and self._timer is None:
            if self._paused:
                pause_s = BUSY_PAUSE_S if busy else PAUSE_S
            elif self._position < len(self._swept):
                pause_s = LOOKS_PAUSE_S
            else:
                pause_s = max(PAUSE_S, self._sweep_began_s + self._sweep_s - now)
            self._timer = self._clock.callLater(pause_s, self._on_time)

    def _is_busy(self, now: float) -> bool:
        count = self._turn.add_count
        if count != self._adds_seen:
            self._adds_seen = count
            self._busy_until_s = now + BUSY_S
        return now < self._busy_until_s

    def _sweep(self, now: float, due_since_s: float) -> None:
        """Check the next LOOKS_MAX handles; at the end of a sweep, put those with a due LAC into `_paused`."""
        if self._position >= len(self._swept):
            return
        kept, found, quiet_since_s = self._next, self._found, now - self._quiet_s
        for lac in self._swept[self._position : self._position + LOOKS_MAX]:
            if not lac.waiting:
                continue
            pipeline = lac.pipeline
            confirmed = pipeline.lac
            if confirmed <= pipeline.stamped_lac or confirmed <= lac.sent:
                lac.waiting = False
                self._count -= 1
            else:
                kept.append(lac)
                if pipeline.stamped_s <= quiet_since_s and (lac.not_before_s <= now or confirmed != lac.attempted):
                    self._quiet += 1.0 - math.exp((lac.sent_s - now) / RECENT_S)
                    if pipeline.stamped_s <= due_since_s:
                        found.append(lac)
        self._position += LOOKS_MAX
        if self._position >= len(self._swept):
            self._paused, self._found = deque(found), []
            self._recent *= math.exp(-(now - self._sweep_ended_s) / RECENT_S)
            self._sweep_ended_s = now
            self._patience_s = (self._quiet + self._recent) / PATIENT_PER_S
            self._quiet = 0.0

    def _send(self, now: float, due_since_s: float, left: int) -> None:
        """Send LACs of paused handles, at most `left`."""
        paused = self._paused
        for _ in range(min(LOOKS_MAX, len(paused))):
            if not left:
                break
            lac = paused.popleft()
            confirmed = lac.pipeline.lac
            # Since the sweep, the handle may have been stopped, or sent an entry or its LAC.
            if (
                lac.waiting
                and confirmed > max(lac.pipeline.stamped_lac, lac.sent)
                and lac.pipeline.stamped_s <= due_since_s
            ):
                lac.send(confirmed)
                self._recent += 1.0 - math.exp((lac.sent_s - now) / RECENT_S)
                lac.sent_s = now
                left -= 1


class ExplicitLac:
    """The explicit LACs of one handle.

    waiting: watched by the LacClock. sent: the last LAC sent, less 1 if too few bookies took it. attempted: the last
    LAC sent in any case, which is not sent again before not_before_s. sent_s: when the LacClock sent one.
    """

    __slots__ = (
        "_attempts",
        "_clock",
        "_context",
        "_digest",
        "_ledger_id",
        "_master_key",
        "attempted",
        "not_before_s",
        "pipeline",
        "sent",
        "sent_s",
        "stopped",
        "waiting",
    )

    def __init__(
        self, context: ClientContext, ledger_id: LedgerId, digest: Digest, master_key: bytes, pipeline: AddPipeline
    ) -> None:
        self._context, self._ledger_id, self._digest, self._master_key = context, ledger_id, digest, master_key
        self._clock = context.lac_clock
        self.pipeline = pipeline
        self.sent = -1
        self.sent_s = -math.inf
        self.not_before_s = 0.0
        self.attempted = -1
        self._attempts = 0  # how often too few bookies took it
        self.waiting = False
        self.stopped = self._clock.interval_s <= 0

    def on_acknowledged(self) -> None:
        """Have the new LAC sent, unless an entry carries it."""
        if not self.waiting and not self.stopped:
            self.waiting = True
            self._clock.add(self)

    def stop(self) -> None:
        """Send nothing from now on."""
        self.stopped = True
        if self.waiting:
            self.waiting = False
            self._clock.forget()

    def send(self, lac: int) -> None:
        """Send the LAC to those bookies of its entry's write set that may support WRITE_LAC."""
        self.sent = lac
        if self.attempted != lac:
            self.attempted, self._attempts = lac, 0
        metadata = self.pipeline.metadata.value
        ensemble = self.pipeline.window.ensemble
        channels = [
            self._context.v3_channel(ensemble[index])
            for index in write_set(lac, metadata.ensemble_size, metadata.write_quorum)
        ]
        asked = [channel for channel in channels if self._clock.may_ask(channel)]
        if not asked:
            if any(channel.refused for channel in channels):  # only for a time: `reachability`
                self.on_too_few(lac)
            return
        packet = self._digest.package_lac(self._ledger_id, lac)
        request = self._context.v3_encoder.encode_write_lac(self._ledger_id, lac, self._master_key, packet)
        attempt = _Attempt(self, lac, asked=len(asked), needed=min(len(asked), metadata.ack_quorum))
        for channel in asked:
            channel.call(
                request,
                self._context.settings.add_timeout_s,
                partial(attempt.on_reply, channel.bookie_id),
                attempt.on_unknown,
            )

    def on_reply(self, bookie_id: BookieId, reply: object) -> bool:
        """Return False if the bookie may take the LAC later; True if it took it, or does not support WRITE_LAC."""
        if not isinstance(reply, WriteLacReply) or reply.status in _NOT_UNDERSTOOD:
            self._clock.on_not_understood(bookie_id)
            return True
        return reply.status is Status.OK

    def on_too_few(self, lac: int) -> None:
        """Send the LAC again after a doubled delay: fewer bookies than needed answered."""
        self._attempts = min(self._attempts + 1, DOUBLINGS_MAX)
        if self.stopped or lac != self.sent:
            return
        self.sent = lac - 1
        self._clock.add_again(self, self._clock.interval_s * 2**self._attempts)


class _Attempt:
    """One LAC on its way to its bookies."""

    __slots__ = ("_lac", "_left", "_missing", "_owner")

    def __init__(self, owner: ExplicitLac, lac: int, *, asked: int, needed: int) -> None:
        self._owner, self._lac, self._left, self._missing = owner, lac, asked, needed

    def on_reply(self, bookie_id: BookieId, reply: object) -> None:
        """Count an answer."""
        if self._owner.on_reply(bookie_id, reply):
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
