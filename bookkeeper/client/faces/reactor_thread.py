"""A private Twisted reactor in a daemon thread, and the way to it and back for threads that wait.

    ReactorThread   held by a client, its handles and its iterators; when it is collected, the reactor ends
    _Engine         the reactor and its thread; must not refer to the ReactorThread
    Begun           one call, for the thread that began it

Thread: `run`, `begin` and `call` from any thread but the reactor's, where they raise WrongThread at once. `post` and
`stop` from any thread. `resolve` and `aside` on the reactor's thread. After a fork the child has no such thread, and
daemon threads do not run once the interpreter ends: calls raise ClientClosed then.

The garbage collector runs finalizers, and the `finally` of dropped generators, on any thread (the reactor's included)
and between any two steps of that thread, also while the thread holds a lock that the reactor waits for. So clean-up
calls only `post`, `leave` or `abandon`, none of which waits after GeneratorExit. No lock here is one that a finalizer
might wait for: shared state changes by single operations of dicts and deques, and a waiting thread holds nothing but
its own `Begun`.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from typing import Any, Generic, NoReturn, TypeVar

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.clock import make_monotonic
from bookkeeper.errors import ClientClosed, WrongThread, again

log = Logger()

T = TypeVar("T")

JOIN_TIMEOUT_S = 10.0
"""How long `stop` waits for the reactor's thread."""

ABANDON_TIMEOUT_S = 10.0
"""How long the connections of a client that was dropped without `close` may take to end in order."""

LEAVE_TIMEOUT_S = 10.0
"""How long the end of a client waits for clean-up that `leave` did not wait for."""


class ReactorThread:
    """The access of other threads to a private reactor in a daemon thread.

    If collected without `stop`, it gives a ResourceWarning and ends the reactor.
    """

    # With a __dict__, Python 3.11 does not find where the object was allocated (for the ResourceWarning).
    __slots__ = ("__weakref__", "_engine", "_ident", "_what", "aside", "reactor", "resolve")

    def __init__(self) -> None:
        self._engine = _Engine()
        self._ident = self._engine.ident
        self._what = "a reactor thread"
        self.reactor = self._engine.reactor
        self.resolve = self._engine.resolve
        self.aside = self._engine.aside

    def owned_by(self, what: str, close: Callable[[], object]) -> None:
        """Set the client's name for messages, and the call that ends its connections if it is dropped unclosed.

        close: called on the reactor's thread; must not refer to this object. May return a Deferred.
        """
        self._what, self._engine.close = what, close

    def call(self, what: Callable[[], T]) -> T:
        """Run `what` on the reactor's thread; return what it returns."""
        return self.run(lambda: maybeDeferred(what))

    def run(self, start: Callable[[], Deferred[T]]) -> T:
        """Run `start` on the reactor's thread; wait for its Deferred."""
        return self.begin(start).wait()

    def begin(self, start: Callable[[], Deferred[T]]) -> Begun[T]:
        """Run `start` on the reactor's thread, and do something else before waiting for its Deferred."""
        self.check()
        return self._engine.begin(start)

    def pieces(self, start: Callable[[], AsyncIterator[T]]) -> Generator[T, None, None]:
        """Yield what the asynchronous iterator `start()` yields, one crossing each."""
        found = self.call(start)

        async def next_one() -> tuple[T] | None:
            try:
                return (await anext(found),)
            except StopAsyncIteration:
                return None

        try:
            while (each := self.run(lambda: Deferred.fromCoroutine(next_one()))) is not None:
                yield each[0]
        finally:
            if isinstance(found, AsyncGenerator):
                closing = found
                self.post(lambda: Deferred.fromCoroutine(closing.aclose()).addErrback(_not_ended))

    def leave(self, kind: type[BaseException] | None, work: Callable[[], Deferred[Any]]) -> None:
        """Run `work` at the end of a `with` block, and wait for it, but not after GeneratorExit.

        kind: of the exception that ends the block. GeneratorExit comes from the garbage collector, or from `close` of a
        generator, which cannot be distinguished. `close_in_order` and `abandon` wait for `work` then.
        """
        if kind is GeneratorExit:
            self._engine.leave(work)
        else:
            self.run(work)

    def close_in_order(self, close: Callable[[], Deferred[Any]]) -> None:
        """Wait for what `leave` did not wait for, at most LEAVE_TIMEOUT_S, then run `close` and wait for it."""
        self.run(lambda: self._engine.after_leaving(close))

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the reactor's."""
        # Once that has ended, another thread may have its ident.
        return threading.get_ident() == self._ident and not self._engine.ended

    @property
    def may_wait(self) -> bool:
        """Whether the calling thread is not the reactor's and the interpreter is not ending."""
        return not (self.is_current or sys.is_finalizing())

    def check(self) -> None:
        """Raise WrongThread on the reactor's thread, ClientClosed in a forked child and once the interpreter ends."""
        if self.is_current:
            self._refuse()
        self._engine.check_process()

    def check_process(self) -> None:
        """Raise ClientClosed in a forked child, and once the interpreter ends."""
        self._engine.check_process()

    def _refuse(self) -> NoReturn:
        raise WrongThread(
            f"{self._what}: a blocking call on the client's own thread would wait for itself; make it on another "
            "thread, for example by concurrent.futures.ThreadPoolExecutor.submit"
        )

    def post(self, call: Callable[[], object]) -> None:
        """Run `call` on the reactor's thread, after all calls begun before; do not wait.

        Thread: any, also during a garbage collection. Does nothing once the reactor has ended, nor after a fork.
        """
        self._engine.post(call)

    def stop(self) -> None:
        """End the reactor and its thread; wait at most JOIN_TIMEOUT_S for the end, except on that thread."""
        self._engine.stop()
        if self._engine.belongs_here() and self.may_wait:
            self._engine.thread.join(JOIN_TIMEOUT_S)

    def abandon(self, then: Callable[[], object] | None = None) -> None:
        """End the connections in order, then the reactor, without waiting. Thread: any.

        then: runs on the reactor's thread after the reactor has ended.
        """
        if not self._engine.stopped and self._engine.belongs_here() and not sys.is_finalizing():
            self._engine.abandon(then)

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is None or engine.stopped or not engine.belongs_here():
            return
        self.abandon()
        warnings.warn(f"{self._what} was not closed", ResourceWarning, stacklevel=2, source=self)


class _Engine:
    """A reactor and its thread."""

    def __init__(self) -> None:
        self.reactor = _new_reactor()
        self._wake = self.reactor.wakeUp
        self._wake_turn = threading.Lock()  # only tried, never waited for
        self._wake_wanted = False
        self._wakers: list[Any] | None = None  # to be closed; None while the reactor runs
        self.reactor.wakeUp = self._wake_up
        self.close: Callable[[], object] | None = None
        self.stopped = False
        self._pid = os.getpid()
        self.ended = False
        self._waiting: dict[Begun[Any], None] = {}
        self._leaving: dict[Deferred[None], None] = {}  # of the reactor's thread
        self._then: Callable[[], object] | None = None
        self._aside: queue.SimpleQueue[Callable[[], object] | None] | None = None
        self.thread = threading.Thread(target=self._run, name="bookkeeper-client", daemon=True)
        self.thread.start()
        ident = self.thread.ident
        assert ident is not None, "the thread was started"
        self.ident = ident

    def _run(self) -> None:
        self.reactor.run(installSignalHandlers=False)
        wakers = list(self.reactor._internalReaders)  # noqa: SLF001 - nothing public gives them back
        self.reactor._internalReaders.clear()  # noqa: SLF001
        left = [each for each in self.reactor.removeAll() if each not in wakers]
        self._wakers = wakers
        self._wake_up()
        _release(self.reactor, left)
        self.stopped = self.ended = True
        while self._waiting:  # also calls that never started
            self._waiting.popitem()[0].end(ClientClosed("the client was closed"))
        if self._then is not None:
            self._then()
        if self._aside is not None:
            self._aside.put(None)

    def _wake_up(self) -> None:
        """Wake the reactor; once it has ended, close its wakers instead. Replaces the reactor's `wakeUp`.

        After the end the descriptor number of a waker may belong to another file. The thread that holds `_wake_turn`
        also does what other threads want, so none waits for the lock: a finalizer may interrupt anything.
        """
        self._wake_wanted = True
        while self._wake_wanted and self._wake_turn.acquire(blocking=False):
            try:
                self._wake_wanted = False
                if self._wakers is None:
                    self._wake()
                else:
                    for waker in self._wakers:
                        waker.connectionLost(None)
                    self._wakers.clear()
            finally:
                self._wake_turn.release()

    # --- the way in

    def belongs_here(self) -> bool:
        """Return whether this process made the engine."""
        return self._pid == os.getpid()

    def check_process(self) -> None:
        if not self.belongs_here():
            raise ClientClosed("this client was connected before a fork; connect again in the child process")
        if sys.is_finalizing():
            raise ClientClosed("the interpreter is ending; close the client, its handles and iterators before")

    def begin(self, start: Callable[[], Deferred[T]]) -> Begun[T]:
        """See ReactorThread."""
        if self.stopped:
            raise ClientClosed("the client is closed; connect again")
        pending: list[Deferred[T]] = []

        def begin() -> None:
            result = maybeDeferred(start)
            pending.append(result)
            result.addBoth(finish)

        def finish(result: T | Failure) -> None:
            if self._waiting.pop(begun, self) is None:
                begun.end(result.value if isinstance(result, Failure) else None, result)

        def cancel() -> None:
            pending[0].cancel()  # `begin` ran before: calls from threads keep their order

        begun: Begun[T] = Begun(lambda: self.reactor.callFromThread(cancel))
        self._waiting[begun] = None
        self.reactor.callFromThread(begin)
        if self.ended and self._waiting.pop(begun, self) is None:
            begun.end(ClientClosed("the client was closed"))
        return begun

    def post(self, call: Callable[[], object]) -> None:
        """See ReactorThread."""
        if self.belongs_here() and not self.ended:
            self.reactor.callFromThread(call)

    def leave(self, work: Callable[[], Deferred[Any]]) -> None:
        """Run `work` as `post` does; `after_leaving` waits for it."""

        def begin() -> None:
            leaving: Deferred[None] = maybeDeferred(work).addCallbacks(lambda _: None, _not_ended)
            self._leaving[leaving] = None
            leaving.addCallback(lambda _: self._leaving.pop(leaving))

        self.post(begin)

    def after_leaving(self, close: Callable[[], object]) -> Deferred[Any]:
        """Run `close` once all work of `leave` has ended, or after LEAVE_TIMEOUT_S. Thread: reactor."""
        if not self._leaving:
            return maybeDeferred(close)
        over: Deferred[None] = Deferred()

        def end(_: object = None) -> None:
            if timer.active():
                timer.cancel()
            if not over.called:
                over.callback(None)

        timer = self.reactor.callLater(LEAVE_TIMEOUT_S, end)
        DeferredList(list(self._leaving)).addBoth(end)
        return over.addCallback(lambda _: close())

    def aside(self, call: Callable[[], object]) -> None:
        """Run `call`, in order, on a thread where blocking calls of the client are allowed. Thread: reactor."""
        if self._aside is None:
            self._aside = queue.SimpleQueue()
            callbacks = threading.Thread(
                target=_run_callbacks, args=(self._aside,), name="bookkeeper-client-callbacks", daemon=True
            )
            callbacks.start()
        self._aside.put(call)

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

    # --- the end

    def stop(self) -> None:
        """End the reactor, without waiting for it."""
        if not self.stopped and self.belongs_here():
            self.stopped = True
            self.reactor.callFromThread(self.reactor.stop)

    def abandon(self, then: Callable[[], object] | None) -> None:
        """See ReactorThread. Thread: any, also in a finalizer."""
        self.stopped = True
        self._then = then
        self.reactor.callFromThread(self._close_and_stop)

    def _close_and_stop(self) -> None:
        self.after_leaving(self._close_now).addBoth(lambda _: self.reactor.stop())

    def _close_now(self) -> Deferred[None]:
        closing: Deferred[Any] = maybeDeferred(self.close or (lambda: None))
        timer = self.reactor.callLater(ABANDON_TIMEOUT_S, closing.cancel)

        def closed(result: object) -> None:
            if timer.active():
                timer.cancel()
            if isinstance(result, Failure):
                log.info("Closing a client that was dropped failed: {error}", error=result.value)

        return closing.addBoth(closed)


class Begun(Generic[T]):
    """A call on the reactor's thread, for the thread that began it."""

    __slots__ = ("_error", "_result", "_running", "cancel")

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel
        """Cancels the call, without waiting."""
        self._running = threading.Lock()  # held until the call has ended
        self._running.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def end(self, error: BaseException | None, result: T | Failure | None = None) -> None:
        """Set the outcome, once."""
        self._error = error
        if error is None:
            self._result = result
        self._running.release()

    def wait(self) -> T:
        """Wait for the outcome; return or raise it. An interrupt of the waiting cancels the call."""
        try:
            with self._running:
                pass
        except BaseException:  # raised by a signal handler during the waiting
            self.cancel()
            raise
        error = self._error
        if error is not None:
            self._error = again(error)  # for another `wait`
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        result: T = self._result
        return result


def _not_ended(failure: Failure) -> None:
    log.info("Ending what was dropped: {error}", error=failure.value)


def _run_callbacks(calls: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        try:
            call()
        except BaseException:  # noqa: BLE001 - a callback that fails, or raises SystemExit, must not stop the others
            log.failure("A callback of a client failed")
        del call  # keep nothing alive while waiting for the next one


def _release(reactor: Any, left: list[Any]) -> None:
    """Close what an ended reactor still holds open: `left`, which are connections, and its poll object.

    Twisted keeps them for a reactor that lives as long as the process; a program may make many clients.
    """
    for selectable in left:
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
