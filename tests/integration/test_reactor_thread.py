"""The blocking face's reactor thread, called by several threads, signals, and too late."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed

from bookkeeper.client.reactor_thread import ReactorThread
from bookkeeper.errors import ClientClosed

pytestmark = pytest.mark.timeout(60)


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
    caller.join(10.0)
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
        caller.join(10.0)
    assert outcomes == [ClientClosed] * 8


def test_a_signal_handler_that_raises_cancels_what_is_waited_for() -> None:
    thread = ReactorThread()
    cancelled = threading.Event()

    def start() -> Deferred[None]:
        return Deferred(lambda _: cancelled.set())

    class Enough(Exception):
        """Raised by the handler."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Enough

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Enough):
            thread.run(start)
        assert cancelled.wait(10.0)
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
