"""Telling the bookies the LAC when no further entry carries it.

The LAC inside the last entry is behind by the adds in flight. While a handle writes, the next entry brings it up to
date; when it pauses, the LAC is written by a WRITE_LAC (v3 only) to the write set of the entry it names, so that
readers of the open ledger see everything acknowledged. It is a hint: failures are no failures of the handle, and a
bookie without v3 simply does not get it.

Source: bookkeeper-protocol.md 6.8. Differs from Apache: where fewer than Qa bookies could be asked it is written again
a few times, or the last entries of a paused writer would stay hidden until it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.model import LedgerId
from bookkeeper.protocol.schedule import write_set

if TYPE_CHECKING:
    from bookkeeper.client.add_pipeline import AddPipeline
    from bookkeeper.client.context import ClientContext
    from bookkeeper.ports import Timer
    from bookkeeper.wire.digest import Digest

ATTEMPTS_MAX = 6
"""Times that one LAC is written to bookies that do not answer, each twice as long after the one before (L-9)."""

log = Logger()


class ExplicitLac:
    """Writes the LAC once a handle has been quiet for an interval. One timer, armed only while there is news."""

    def __init__(
        self, context: ClientContext, ledger_id: LedgerId, digest: Digest, master_key: bytes, pipeline: AddPipeline
    ) -> None:
        self._context, self._ledger_id, self._digest, self._master_key = context, ledger_id, digest, master_key
        self._pipeline = pipeline
        self._interval_s = context.settings.explicit_lac_interval_s
        self._told = -1  # the LAC known to be with the bookies, piggy-backed or explicit
        self._written = -1  # the last one written, and how often that was in vain
        self._attempts = 0
        self._retrying = False  # the timer is that of another attempt
        self._timer: Timer | None = None
        self._stopped = self._interval_s <= 0

    def on_acknowledged(self) -> None:
        """The LAC moved on."""
        if self._timer is not None and self._retrying:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and not self._stopped:
            self._retrying = False
            self._timer = self._context.clock.callLater(self._interval_s, self._on_time)

    def stop(self) -> None:
        """Nothing is written from now on."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        lac = self._pipeline.window.last_acknowledged
        if self._told < self._pipeline.stamped_lac:
            self._told = self._pipeline.stamped_lac  # entries were sent meanwhile and carried it
        elif self._told < lac:
            self._told = lac
            if self._written != lac:
                self._written, self._attempts = lac, 0
            self._write(lac)
        if self._told < lac and not self._stopped:
            self._timer = self._context.clock.callLater(self._interval_s, self._on_time)

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
        if self._stopped or lac != self._told or self._attempts >= ATTEMPTS_MAX:
            return
        self._told = lac - 1
        if self._timer is None:
            self._retrying = True
            self._timer = self._context.clock.callLater(self._interval_s * 2**self._attempts, self._on_time)


class _Attempt:
    """One LAC on its way to its bookies."""

    def __init__(self, owner: ExplicitLac, lac: int, *, asked: int, needed: int) -> None:
        self._owner, self._lac, self._left, self._missing = owner, lac, asked, needed

    def on_reply(self, reply: object) -> None:
        """Good, or a refusal for ever: asking again would change nothing."""
        self._missing -= 1
        self._note(reply)

    def on_unknown(self, error: Exception) -> None:
        """The bookie could not be asked."""
        self._note(error)

    def _note(self, outcome: object) -> None:
        log.debug("explicit LAC {lac}: {outcome}", lac=self._lac, outcome=outcome)
        self._left -= 1
        if not self._left and self._missing > 0:
            self._owner.on_too_few(self._lac)
