"""The blocking face's reactor thread, called by several threads, signals, and too late."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed

from bookkeeper.client.faces import reactor_thread
from bookkeeper.client.faces.reactor_thread import Begun, ReactorThread
from bookkeeper.errors import BookKeeperError, ClientClosed, WrongThread
from hedwig.client.faces.blocking import _Handover

pytestmark = pytest.mark.timeout(300)

LIMIT_S = 60.0
"""Limit for each wait for a thread; it only detects hangs."""


def test_a_call_that_comes_as_the_client_closes_ends() -> None:
    """L-2. It has passed the check, and the reactor stops before it gets there."""
    thread = ReactorThread()
    hand_over = thread.reactor.callFromThread

    def too_late(call: Any) -> None:
        thread.reactor.callFromThread = hand_over
        thread.stop()
        hand_over(call)

    thread.reactor.callFromThread = too_late
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append(thread.run(lambda: succeed(1)))
        except ClientClosed as error:
            outcome.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(LIMIT_S)
    assert isinstance(outcome[0], ClientClosed)


def test_what_was_begun_goes_on_while_its_thread_does_something_else() -> None:
    thread = ReactorThread()
    try:
        waiting: Deferred[int] = Deferred()
        begun = thread.begin(lambda: waiting)
        other = thread.begin(lambda: succeed(2))
        thread.call(lambda: waiting.callback(1))
        assert (other.wait(), begun.wait(), begun.wait()) == (2, 1, 1)
        dropped: Deferred[None] = Deferred()
        begun_too = thread.begin(lambda: dropped)
        begun_too.cancel()
        with pytest.raises(CancelledError):
            begun_too.wait()
    finally:
        thread.stop()
    with pytest.raises(ClientClosed):
        thread.begin(lambda: succeed(3))


def test_calls_that_wait_when_the_client_closes_end() -> None:
    """L-2, L-8."""
    thread = ReactorThread()
    outcomes: list[type] = []
    waiting = threading.Barrier(9)

    def call() -> None:
        def start() -> Deferred[None]:
            return Deferred()

        waiting.wait()
        try:
            thread.run(start)
        except ClientClosed as error:
            outcomes.append(type(error))

    callers = [threading.Thread(target=call, daemon=True) for _ in range(8)]
    for caller in callers:
        caller.start()
    waiting.wait()
    thread.stop()
    for caller in callers:
        caller.join(LIMIT_S)
    assert outcomes == [ClientClosed] * 8


def test_a_signal_handler_that_raises_cancels_what_is_waited_for() -> None:
    thread = ReactorThread()
    cancelled = threading.Event()

    def start() -> Deferred[None]:
        return Deferred(lambda _: cancelled.set())

    class Enough(Exception):
        """Raised by the handler."""

    def handler(number: int, frame: FrameType | None) -> None:
        code = Begun.wait.__code__
        if frame is None or frame.f_code is not code or frame.f_lineno == code.co_firstlineno:
            signal.setitimer(signal.ITIMER_REAL, 0.2)  # this thread is not waiting yet
        else:
            raise Enough

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Enough):
            thread.run(start)
        assert cancelled.wait(LIMIT_S)
    finally:
        signal.signal(signal.SIGALRM, before)
        thread.stop()


def test_a_reactor_that_has_ended_leaves_no_descriptor_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        crossing = ReactorThread()
        assert crossing.call(lambda: 7) == 7
        crossing.stop()
    assert len(os.listdir("/proc/self/fd")) <= before


def dropped_while_it_waits(call: Callable[[ReactorThread], object]) -> list[warnings.WarningMessage]:
    """Make a reactor thread, use it, drop it; return the warnings after its thread has ended.

    There may be more warnings: garbage of earlier tests may be collected at any time.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        crossing = ReactorThread()
        running = crossing.call(threading.current_thread)
        call(crossing)
        del crossing
        running.join(LIMIT_S)
    assert not running.is_alive()
    return caught


def test_a_dropped_reactor_thread_warns_and_ends() -> None:
    closed = threading.Event()
    tracemalloc.start(5)
    try:
        caught = dropped_while_it_waits(lambda crossing: crossing.owned_by("the client of x", closed.set))
        [warning] = [each for each in caught if "the client of x" in str(each.message)]
        made = tracemalloc.get_object_traceback(warning.source)
    finally:
        tracemalloc.stop()
    assert warning.category is ResourceWarning
    assert str(warning.message) == "the client of x was not closed"
    assert closed.is_set()
    assert made is not None
    assert any(frame.filename == __file__ for frame in made)


def test_a_dropped_client_that_does_not_close_is_ended_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactor_thread, "ABANDON_TIMEOUT_S", 0.1)
    given_up = threading.Event()

    def never(crossing: ReactorThread) -> None:
        crossing.owned_by("a client", lambda: Deferred(lambda _: given_up.set()))

    dropped_while_it_waits(never)
    assert given_up.is_set()


def test_a_call_on_the_reactors_thread_is_refused_and_stop_returns() -> None:
    thread = ReactorThread()

    def refused() -> str:
        with pytest.raises(WrongThread) as info:
            thread.run(lambda: succeed(1))
        thread.post(lambda: None)
        thread.stop()
        return str(info.value)

    assert "another thread" in thread.call(refused)
    thread.stop()


def with_the_ident_of(crossing: ReactorThread, call: Callable[[], None]) -> bool:
    """Run `call` on a new thread that has the ident of a reactor's thread that has ended; return whether one had."""
    ident = crossing.call(threading.get_ident)
    crossing.stop()
    found: list[bool] = []
    over = threading.Event()

    def run() -> None:
        if threading.get_ident() == ident:
            found.append(True)
            call()
        over.wait()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    over.set()
    for thread in threads:
        thread.join(LIMIT_S)
    return bool(found)


def test_a_thread_with_a_reused_ident_is_not_the_reactors_thread() -> None:
    raised: list[type] = []
    called: list[str] = []
    for _ in range(20):
        crossing = ReactorThread()
        settings = SimpleNamespace(outstanding_max=10, outstanding_bytes_max=10)
        handover: Any = _Handover(cast("Any", SimpleNamespace(settings=settings)), crossing)
        future = handover.submit(SimpleNamespace(publish=lambda body, properties: succeed(body)), b"x", {})
        future.add_done_callback(lambda future: None)
        future.result()

        def call(crossing: ReactorThread = crossing, future: Any = future) -> None:
            with pytest.raises(BookKeeperError) as info:
                crossing.run(lambda: succeed(1))
            raised.append(info.type)
            future.add_done_callback(lambda future: called.append(threading.current_thread().name))

        if with_the_ident_of(crossing, call):
            break
    else:
        pytest.skip("this system gives each thread an ident of its own")
    assert raised == [ClientClosed]
    assert len(called) == 1


def test_callbacks_run_after_a_callback_that_exits() -> None:
    crossing = ReactorThread()
    called: queue.SimpleQueue[bool] = queue.SimpleQueue()
    try:
        crossing.call(lambda: crossing.aside(sys.exit))
        crossing.call(lambda: crossing.aside(lambda: called.put(True)))
        assert called.get(timeout=LIMIT_S)
    finally:
        crossing.stop()


def test_a_callback_publishes_before_publishers_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    crossing = ReactorThread()
    settings = SimpleNamespace(outstanding_max=1, outstanding_bytes_max=10**9)
    handover: Any = _Handover(cast("Any", SimpleNamespace(settings=settings)), crossing)
    callback_waits, other_waits = threading.Event(), threading.Event()
    answers: queue.SimpleQueue[Deferred[bytes]] = queue.SimpleQueue()

    class Noted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            (callback_waits if threading.get_ident() == handover._callbacks_ident else other_waits).set()  # noqa: SLF001
            return super().wait(timeout)

    monkeypatch.setattr(handover, "_changed", Noted())

    class Topic:
        def publish(self, body: bytes, properties: object) -> Deferred[bytes]:
            answer: Deferred[bytes] = Deferred()
            answers.put(answer)
            return answer

    def answer_next() -> None:
        answer = answers.get(timeout=LIMIT_S)
        crossing.post(lambda: answer.callback(b"id"))

    others: list[threading.Thread] = []
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def publish_more(future: object) -> None:
        others.append(threading.Thread(target=lambda: done.put(handover.submit(Topic(), b"other's", {})), daemon=True))
        others[0].start()
        assert other_waits.wait(timeout=LIMIT_S)
        handover.submit(Topic(), b"1", {})
        handover.submit(Topic(), b"2", {})
        done.put("callback")

    try:
        handover.submit(Topic(), b"first", {}).add_done_callback(publish_more)
        answer_next()
        assert callback_waits.wait(timeout=LIMIT_S)
        answer_next()
        assert done.get(timeout=LIMIT_S) == "callback"
        answer_next()
        assert isinstance(done.get(timeout=LIMIT_S), Future)
    finally:
        crossing.stop()
        handover.end()


def test_calls_posted_while_the_reactor_is_woken_are_run() -> None:
    """A finalizer may run while its thread wakes the reactor up."""
    thread = ReactorThread()
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    try:
        waker = thread.reactor.waker
        wake = waker.wakeUp

        def interrupted() -> None:
            waker.wakeUp = wake
            wake()
            thread.post(lambda: done.put("by the finalizer"))

        waker.wakeUp = interrupted
        thread.post(lambda: done.put("by the caller"))
        assert {done.get(timeout=LIMIT_S), done.get(timeout=LIMIT_S)} == {"by the finalizer", "by the caller"}
    finally:
        thread.stop()


def test_calls_from_many_threads_that_collect_all_the_time_all_end() -> None:
    """Finalizers of collected cycles post on each thread, also while the client ends."""
    thread = ReactorThread()

    class Dropped:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            thread.post(lambda: None)

    ended: list[int] = []

    def call() -> None:
        with contextlib.suppress(ClientClosed):
            for number in range(2000):
                Dropped()
                assert thread.run(lambda number=number: succeed(number)) == number
        ended.append(1)

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        for _ in range(200):
            assert thread.run(lambda: succeed(None)) is None
        thread.stop()
        for caller in callers:
            caller.join(LIMIT_S)
    finally:
        gc.set_threshold(*before)
    assert len(ended) == 4
