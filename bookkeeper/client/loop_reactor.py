"""A Twisted reactor on an asyncio loop that is running already and belongs to somebody else.

Never installed as the global reactor, never run or stopped: timers and sockets go through the loop by themselves.
`release` gives back what it registered there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.python.failure import Failure

from bookkeeper.clock import make_monotonic


class LoopReactor(AsyncioSelectorReactor):
    """One client's reactor on the caller's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        make_monotonic(self)

    def release(self) -> None:
        """Drop all sockets, timers and the waker; the loop runs on without this reactor."""
        wakers = list(self._internalReaders)
        self._internalReaders.clear()
        untyped: Any = self
        for selectable in [*untyped.removeAll(), *wakers]:
            untyped.removeReader(selectable)
            failure: Any = Failure(TransportLost("the client was closed"))  # type: ignore[no-untyped-call]
            selectable.connectionLost(failure)
        for call in self.getDelayedCalls():
            call.cancel()
        timer: Any = self._timerHandle
        if timer is not None:
            timer.cancel()
