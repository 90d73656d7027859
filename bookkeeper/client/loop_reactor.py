"""A Twisted reactor on an asyncio loop that is running already and belongs to the program.

    ClientLoop    what a client, its handles and its iterators hold: the one place where a call is checked to come from
                  the client's loop. When the last of them is collected, the connections end
    _Ending       the end of the connections; must not refer to the ClientLoop
    LoopReactor   the reactor

The reactor is never installed as the global one, never run or stopped: timers and sockets go through the loop by
themselves. `release` gives back what it registered there.

A client that was not closed ends with its loop: `asyncio.run` closes the asynchronous generators of a loop before the
loop, and `_Ending` is one. Where that does not happen, the collection of the client ends what it can without a loop.
Finalizers only post: the garbage collector runs them on any thread.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, NoReturn, ParamSpec, TypeVar

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.clock import make_monotonic
from bookkeeper.errors import WrongLoop

log = Logger()

P = ParamSpec("P")
T = TypeVar("T")

END_TIMEOUT_S = 10.0
"""How long the connections of a client that was not closed may take to end in order."""


class ClientLoop:
    """The event loop of one client, and its reactor there. Made in the running loop."""

    # With a __dict__, Python 3.11 does not find where the object was allocated (for the ResourceWarning).
    __slots__ = ("__weakref__", "_ending", "_what", "loop", "reactor")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reactor = LoopReactor(self.loop)
        self._what = "a client"
        self._ending = _Ending(self.loop, self.reactor)

    async def owned_by(self, what: str, close: Callable[[], Deferred[Any]]) -> None:
        """Name the client for messages, and say how its connections end where it is not closed.

        close: must not refer to this object.
        """
        self._what = what
        await self._ending.begin(close)

    def run(self, start: Callable[P, Deferred[T]], *arguments: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Call `start`; its Deferred as a future of the loop. Raises WrongLoop before where another one runs."""
        if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001 - unlike `get_running_loop` None without one
            self._refuse()
        return start(*arguments, **named).asFuture(self.loop)

    def check(self) -> None:
        """Raise WrongLoop where another loop runs, or none."""
        if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001
            self._refuse()

    def _refuse(self) -> NoReturn:
        running = asyncio._get_running_loop()  # noqa: SLF001
        here = "where no event loop runs" if running is None else f"in {_name_of(running)}"
        over = " (closed, and the client with it)" if self.loop.is_closed() else ""
        raise WrongLoop(
            f"{self._what}: it was connected in {_name_of(self.loop)}{over} and called {here}; connect another client "
            "in the loop that is to use it"
        )

    def post(self, call: Callable[[], object]) -> None:
        """Call it in the loop, at once where that is the running one. Thread: any; nothing once the loop is closed."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001
            call()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(call)

    async def release(self) -> None:
        """The client was closed: give back what is registered with the loop."""
        await self._ending.over()

    def abandon(self) -> None:
        """No client was made: give back what is registered with the loop."""
        self._ending.release()

    def __del__(self) -> None:
        ending = getattr(self, "_ending", None)
        if ending is None or ending.closed or not ending.begun:
            return
        if not sys.is_finalizing():
            ending.post()
        warnings.warn(f"{self._what} was not closed", ResourceWarning, stacklevel=2, source=self)


def _name_of(loop: asyncio.AbstractEventLoop) -> str:
    return f"event loop {type(loop).__name__} at {id(loop):#x}"


def resolve(host: str) -> Deferred[str]:
    """Look a host name up by the running loop."""

    async def look_up() -> str:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return str(found[0][4][0])

    return Deferred.fromFuture(asyncio.ensure_future(look_up()))


class _Ending:
    """Ends the connections of one client, once: by `over`, with the loop, or when the client is collected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reactor: LoopReactor) -> None:
        self.closed = False
        """The program closed the client."""
        self._loop, self._reactor = loop, reactor
        self._close: Callable[[], Deferred[Any]] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._released = False
        self._with_loop = self._until_loop_ends()
        reactor.ending = self  # which the loop keeps alive

    @property
    def begun(self) -> bool:
        """A client was connected."""
        return self._close is not None

    async def begin(self, close: Callable[[], Deferred[Any]]) -> None:
        """The client is connected: end it with the loop."""
        self._close = close
        await anext(self._with_loop)  # which registers it with the loop

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self._released:
                self._start()
                assert self._ended is not None
                await self._ended

    async def over(self) -> None:
        """The client was closed."""
        self.closed = True
        self.release()
        await self._with_loop.aclose()

    def post(self) -> None:
        """The client was collected. Waits for nothing. Thread: any."""
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # the loop is closed: nobody else uses what is left
            self._close_without_loop()

    def _start(self) -> None:
        """Thread: the loop's."""
        if self._ended is None and not self._released:
            self._ended = self._loop.create_future()  # no task: `asyncio.run` cancels those first
            assert self._close is not None
            closing = maybeDeferred(self._close)
            untyped: Any = self._reactor
            timer = untyped.callLater(END_TIMEOUT_S, closing.cancel)
            closing.addBoth(self._on_closed, self._ended, timer)

    def _on_closed(self, result: object, ended: asyncio.Future[None], timer: Any) -> None:
        if timer.active():
            timer.cancel()
        if isinstance(result, Failure):
            _ignore(result)
        self.release()
        if not ended.done():
            ended.set_result(None)

    def _close_without_loop(self) -> None:
        if not self._released:
            if self._close is not None:
                maybeDeferred(self._close).addErrback(_ignore)
            self.release()

    def release(self) -> None:
        """Give back what is registered with the loop."""
        if not self._released:
            self._released = True
            self._reactor.release()

    def __del__(self) -> None:
        if not self._released and self._loop.is_closed():
            self.release()


def _ignore(failure: Failure) -> None:
    log.info("Closing a client that was not closed: {error}", error=failure.value)


class LoopReactor(AsyncioSelectorReactor):
    """One client's reactor on the caller's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        make_monotonic(self)
        self.ending: _Ending | None = None
        """What ends with the loop."""

    def _reschedule(self) -> None:
        if not self._asyncioEventloop.is_closed():  # nothing is due any more
            untyped: Any = super()
            untyped._reschedule()  # noqa: SLF001

    def callFromThread(self, callable: Callable[..., Any], *arguments: object, **named: object) -> None:  # type: ignore[override]
        """Nothing once the loop is closed: threads that end later have nobody to tell."""
        untyped: Any = super()
        try:
            untyped.callFromThread(callable, *arguments, **named)
        except RuntimeError:
            if not self._asyncioEventloop.is_closed():
                raise
            if self.ending is not None:
                self.ending.release()  # nobody else uses what is left

    def release(self) -> None:
        """Drop all sockets, timers and the waker; the loop runs on without this reactor."""
        wakers = list(self._internalReaders)
        self._internalReaders.clear()
        untyped: Any = self
        for selectable in [*untyped.removeAll(), *wakers]:
            untyped.removeReader(selectable)
            failure: Any = Failure(TransportLost("the client was closed"))  # type: ignore[no-untyped-call]
            try:
                selectable.connectionLost(failure)
            except Exception:  # noqa: BLE001 - one connection must not keep the others from being closed
                log.failure("Closing a connection failed")
        self.ending = None
        for call in self.getDelayedCalls():
            call.cancel()
        timer: Any = self._timerHandle
        if timer is not None:
            timer.cancel()
