"""A Twisted reactor on an asyncio loop that is running already and belongs to the program.

    ClientLoop    held by a client, its handles and its iterators; checks that calls come from the client's loop. When
                  it is collected, the connections end
    _Ending       the end of the connections; must not refer to the ClientLoop
    LoopReactor   the reactor

The reactor is never installed as the global one, never run or stopped: the loop serves its timers and sockets.
`release` removes what it registered there.

A client that was not closed ends with its loop: `asyncio.run` closes the asynchronous generators of a loop before the
loop, and `_Ending` owns one. Where that does not happen, the collection of the client ends what it can without a loop.
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
    """The event loop of one client, with its reactor. Must be made in the running loop."""

    # With a __dict__, Python 3.11 does not find where the object was allocated (for the ResourceWarning).
    __slots__ = ("__weakref__", "_ending", "_what", "loop", "reactor")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reactor = LoopReactor(self.loop)
        self._what = "a client"
        self._ending = _Ending(self.loop, self.reactor)

    async def owned_by(self, what: str, close: Callable[[], Deferred[Any]]) -> None:
        """Set the client's name for messages, and the call that ends its connections if it is not closed.

        close: must not refer to this object.
        """
        self._what = what
        await self._ending.begin(close)

    def run(self, start: Callable[P, Deferred[T]], *arguments: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        """Call `start`; return its Deferred as a future. Raises WrongLoop instead if another loop runs, or none."""
        if asyncio._get_running_loop() is not self.loop:  # noqa: SLF001 - returns None without a loop
            self._refuse()
        return start(*arguments, **named).asFuture(self.loop)

    def check(self) -> None:
        """Raise WrongLoop if another loop runs, or none."""
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
        """Run `call` in the loop, at once if it runs here. Thread: any; does nothing once the loop is closed."""
        if asyncio._get_running_loop() is self.loop:  # noqa: SLF001
            call()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(call)

    async def release(self) -> None:
        """Remove all registrations from the loop after the client was closed."""
        await self._ending.over()

    def abandon(self) -> None:
        """Remove all registrations from the loop after connecting failed."""
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
    """The end of one client's connections: by `over`, with the loop, or when the client is collected; once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reactor: LoopReactor) -> None:
        self.closed = False
        """Whether the program closed the client."""
        self._loop, self._reactor = loop, reactor
        self._close: Callable[[], Deferred[Any]] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._released = False
        self._with_loop = self._until_loop_ends()
        reactor.ending = self  # the loop keeps the reactor alive, and so this

    @property
    def begun(self) -> bool:
        """Whether a client was connected."""
        return self._close is not None

    async def begin(self, close: Callable[[], Deferred[Any]]) -> None:
        """Have the connections end with the loop from now on."""
        self._close = close
        await anext(self._with_loop)  # registers the generator with the loop

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self._released:
                self._start()
                assert self._ended is not None
                await self._ended

    async def over(self) -> None:
        """Release the reactor after the client was closed."""
        self.closed = True
        self.release()
        await self._with_loop.aclose()

    def post(self) -> None:
        """Begin to close after the client was collected, without waiting. Thread: any."""
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # the loop is closed, so no other thread uses the connections
            self._close_without_loop()

    def _start(self) -> None:
        """Begin to close, unless that has begun. Thread: the loop's."""
        if self._ended is None and not self._released:
            self._ended = self._loop.create_future()  # not a task: `asyncio.run` cancels tasks first
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
        """Remove all registrations from the loop, once."""
        if not self._released:
            self._released = True
            self._reactor.release()

    def __del__(self) -> None:
        if not self._released and self._loop.is_closed():
            self.release()


def _ignore(failure: Failure) -> None:
    log.info("Closing a client that was not closed failed: {error}", error=failure.value)


class LoopReactor(AsyncioSelectorReactor):
    """One client's reactor on the caller's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        make_monotonic(self)
        self.ending: _Ending | None = None
        """Ends the connections with the loop; None after `release`."""

    def _reschedule(self) -> None:
        if not self._asyncioEventloop.is_closed():  # a closed loop runs no timers
            untyped: Any = super()
            untyped._reschedule()  # noqa: SLF001

    def callFromThread(self, callable: Callable[..., Any], *arguments: object, **named: object) -> None:  # type: ignore[override]
        """Run `callable` in the loop; do nothing once the loop is closed, since threads may end later."""
        untyped: Any = super()
        try:
            untyped.callFromThread(callable, *arguments, **named)
        except RuntimeError:
            if not self._asyncioEventloop.is_closed():
                raise
            if self.ending is not None:
                self.ending.release()  # no other thread uses the connections now

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
