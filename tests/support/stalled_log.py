"""An edit log for tests of measurements. Each call of `acknowledge` acknowledges one append, with one flush."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed

from journalmgr.model import TxId


class StalledLog:
    """A substitute for EditLog."""

    def __init__(self) -> None:
        self.flushes = 0
        self.pending: list[Deferred[TxId]] = []

    def append(self, payload: bytes) -> Deferred[TxId]:
        """See EditLog."""
        self.pending.append(Deferred())
        return self.pending[-1]

    def acknowledge(self) -> None:
        """Acknowledge the oldest append."""
        self.flushes += 1
        self.pending.pop(0).callback(TxId(self.flushes))

    def close(self) -> Deferred[None]:
        """See EditLog."""
        return succeed(None)
