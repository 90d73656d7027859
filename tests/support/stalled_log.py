"""An edit log for tests of measurements: it acknowledges an append, with a flush of its own, when it is told to."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed

from journalmgr.model import TxId


class StalledLog:
    """In the place of an EditLog."""

    def __init__(self) -> None:
        self.flushes = 0
        self.pending: list[Deferred[TxId]] = []

    def append(self, payload: bytes) -> Deferred[TxId]:
        """See EditLog."""
        self.pending.append(Deferred())
        return self.pending[-1]

    def acknowledge(self) -> None:
        """Answer the oldest."""
        self.flushes += 1
        self.pending.pop(0).callback(TxId(self.flushes))

    def close(self) -> Deferred[None]:
        """See EditLog."""
        return succeed(None)
