"""A private Twisted reactor in a daemon thread, and the way to it and back for threads that wait.

Thread: `run`, `begin`, `call` and `stop` from any thread but the reactor's; `resolve` on the reactor's. After a fork
the child has no such thread, and is told so.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.python.failure import Failure

from bookkeeper.clock import make_monotonic
from bookkeeper.errors import ClientClosed

T = TypeVar("T")

JOIN_TIMEOUT_S = 10.0
"""How long `stop` waits for the reactor's thread."""


class ReactorThread:
    """A private reactor in a daemon thread, and the way to it and back."""

    def __init__(self) -> None:
        self.reactor = _new_reactor()
        self._gate = threading.Lock()  # of the way to the reactor, which is closed with it
        self._released = False
        self._hand_over: Callable[..., object] = self.reactor.callFromThread
        self.reactor.callFromThread = self._call_from_thread
        self._pid = os.getpid()
        self._stopped = False
        self._lock = threading.Lock()  # of the two below
        self._waiting: set[Future[Any]] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="bookkeeper-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.reactor.run(installSignalHandlers=False)
        with self._gate:
            self._released = True
            _release(self.reactor)
        with self._lock:
            self._ended = True
            waiting = list(self._waiting)
        for outcome in waiting:  # those whose turn never came too
            outcome.set_exception(ClientClosed("the client was closed"))

    def _call_from_thread(self, *arguments: Any, **named: Any) -> None:
        """The reactor's callFromThread; nothing once that has ended, whose waker may be another's descriptor by now."""
        with self._gate:
            if not self._released:
                self._hand_over(*arguments, **named)

    def call(self, what: Callable[[], T]) -> T:
        """Run `what` on the reactor thread; return what it returns."""
        return self.run(lambda: maybeDeferred(what))

    def run(self, start: Callable[[], Deferred[T]]) -> T:
        """Run `start` on the reactor thread; wait for its Deferred."""
        return self.begin(start).wait()

    def begin(self, start: Callable[[], Deferred[T]]) -> Begun[T]:
        """Run `start` on the reactor thread, and do something else before waiting for its Deferred."""
        if self._pid != os.getpid():
            raise ClientClosed("this client was connected before a fork; connect again in the child process")
        outcome: Future[T] = Future()
        pending: list[Deferred[T]] = []
        with self._lock:
            if self._stopped or self._ended:
                raise ClientClosed("the client is closed; connect again")
            self._waiting.add(outcome)

        def begin() -> None:
            result = maybeDeferred(start)
            pending.append(result)
            result.addBoth(finish)

        def finish(result: T | Failure) -> None:
            with self._lock:
                self._waiting.discard(outcome)
            if isinstance(result, Failure):
                outcome.set_exception(result.value)
            else:
                outcome.set_result(result)

        def cancel() -> None:
            if not outcome.done():
                pending[0].cancel()  # `begin` ran before: calls from threads keep their order

        self.reactor.callFromThread(begin)
        return Begun(outcome, lambda: self.reactor.callFromThread(cancel))

    def resolve(self, host: str) -> Deferred[str]:
        """Look a host name up in a thread of its own: reactor thread pools would keep the process from ending."""
        found: Deferred[str] = Deferred(lambda _: None)

        def tell(result: str | BaseException) -> None:
            if not found.called:
                found.callback(result) if isinstance(result, str) else found.errback(result)

        def look_up() -> None:
            result: str | BaseException
            try:
                result = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
            except OSError as error:
                result = error
            self.reactor.callFromThread(tell, result)

        threading.Thread(target=look_up, name=f"resolve-{host}", daemon=True).start()
        return found

    def stop(self) -> None:
        """End the reactor and its thread."""
        if self._stopped or self._pid != os.getpid():
            return
        self._stopped = True
        self.reactor.callFromThread(self.reactor.stop)
        self._thread.join(JOIN_TIMEOUT_S)


class Begun(Generic[T]):
    """What runs on the reactor's thread, for the thread that began it."""

    __slots__ = ("_outcome", "cancel")

    def __init__(self, outcome: Future[T], cancel: Callable[[], object]) -> None:
        self._outcome = outcome
        self.cancel = cancel
        """Nobody waits for it any more."""

    def wait(self) -> T:
        """Its outcome, once it is there. Cancelled when the waiting is interrupted."""
        try:
            return self._outcome.result()
        except BaseException:  # the outcome's own error, or what a signal's handler raised into the waiting
            self.cancel()
            raise


def _release(reactor: Any) -> None:
    """Close what a reactor that has ended still holds open: its waker, connections that were left, its poll object.

    Twisted keeps them for a reactor that lives as long as the process; a program may make many clients.
    """
    wakers = list(reactor._internalReaders)  # noqa: SLF001 - nothing public gives them back
    reactor._internalReaders.clear()  # noqa: SLF001
    for selectable in [*reactor.removeAll(), *wakers]:
        failure: Any = Failure(TransportLost("the client was closed"))  # type: ignore[no-untyped-call]
        selectable.connectionLost(failure)
    poller = getattr(reactor, "_poller", None)
    if poller is not None:
        poller.close()


def _new_reactor() -> Any:
    """A reactor of our own; the global one is not touched."""
    try:
        from twisted.internet import epollreactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return make_monotonic(SelectReactor())
    return make_monotonic(epollreactor.EPollReactor())  # type: ignore[no-untyped-call]  # untyped upstream
