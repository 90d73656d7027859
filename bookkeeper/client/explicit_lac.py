"""Telling the bookies the LAC when no further entry carries it.

The LAC inside the last entry is behind by the adds in flight. While a handle writes, the next entry brings it up to
date; when it pauses, the LAC is written by a WRITE_LAC (v3 only) to the write set of the entry it names, so that
readers of the open ledger see everything acknowledged. It is a hint: failures are ignored, and a bookie without v3
simply does not get it.

Source: bookkeeper-protocol.md 6.8.
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
        self._timer: Timer | None = None
        self._stopped = self._interval_s <= 0

    def on_acknowledged(self) -> None:
        """The LAC moved on."""
        if self._timer is None and not self._stopped:
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
            self._write(lac)
        if self._told < lac and not self._stopped:
            self._timer = self._context.clock.callLater(self._interval_s, self._on_time)

    def _write(self, lac: int) -> None:
        metadata = self._pipeline.metadata.value
        ensemble = self._pipeline.window.ensemble
        packet = self._digest.package_lac(self._ledger_id, lac)
        request = self._context.v3_encoder.encode_write_lac(self._ledger_id, lac, self._master_key, packet)
        for index in write_set(lac, metadata.ensemble_size, metadata.write_quorum):
            channel = self._context.v3_channel(ensemble[index])
            if not channel.refused:
                channel.call(request, self._context.settings.add_timeout_s, self._ignore, self._ignore)

    def _ignore(self, outcome: object) -> None:
        log.debug("explicit LAC of ledger {ledger_id}: {outcome}", ledger_id=self._ledger_id, outcome=outcome)
