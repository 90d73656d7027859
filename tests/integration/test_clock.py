"""The clock on a caller's reactor, with real reactors and the real thread that wakes them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor

from bookkeeper.clock import MonotonicClock, clock_of

LATE_S = 60.0


def wakers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bookkeeper-clock"]


def ended(thread: threading.Thread) -> bool:
    thread.join(LATE_S)
    return not thread.is_alive()


def story(reactor: Any) -> tuple[list[str], int]:
    """Make calls of three kinds and run the reactor; return what ran, and the number of wake-ups from other threads."""
    clock = clock_of(reactor)
    assert isinstance(clock, MonotonicClock)
    entered, ran = 0, []
    enter = reactor.callFromThread

    def counted(*arguments: Any) -> None:
        nonlocal entered
        entered += 1
        enter(*arguments)

    if not hasattr(reactor, "_asyncioEventloop"):
        reactor.callFromThread = counted
        clock = MonotonicClock(reactor)

    def begin() -> None:
        clock.callLater(0, ran.append, "now")
        threading.Thread(target=clock.callFromThread, args=(go_on,)).start()

    def go_on() -> None:
        ran.append("from a thread")
        clock.callLater(0.2, ran.append, "later")
        clock.callLater(0.1, ran.append, "sooner")
        clock.callLater(30, ran.append, "never").cancel()
        clock.callLater(0.4, reactor.stop)

    reactor.callWhenRunning(begin)
    reactor.run(installSignalHandlers=False)
    return ran, entered


def test_calls_run_in_time_and_the_thread_ends_with_them() -> None:
    ran, entered = story(EPollReactor())
    assert sorted(ran[:2]) == ["from a thread", "now"]
    assert ran[2:] == ["sooner", "later"]
    # Three wake-ups by the clock, and one call from a thread. A pause leads to fewer, or to one more for "now".
    assert 2 <= entered <= 5
    assert all(ended(thread) for thread in wakers())


def test_the_asyncio_reactor_is_entered_by_its_loop() -> None:
    loop = asyncio.new_event_loop()
    try:
        ran, _ = story(AsyncioSelectorReactor(loop))
        assert sorted(ran[:2]) == ["from a thread", "now"]
        assert ran[2:] == ["sooner", "later"]
    finally:
        loop.close()


def test_other_reactors_are_woken_after_a_loop_was_closed() -> None:
    loop = asyncio.new_event_loop()
    gone = MonotonicClock(AsyncioSelectorReactor(loop))
    gone.callLater(0.05, int)
    loop.close()
    ran, _ = story(EPollReactor())
    assert ran[2:] == ["sooner", "later"]


def in_child(run: Callable[[], bool]) -> bool:
    """Return what `run` returns in a child process after a fork."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if run() else 2
        finally:
            os._exit(code)
    deadline_s = time.monotonic() + LATE_S
    found, status = os.waitpid(child, os.WNOHANG)
    while not found and time.monotonic() < deadline_s:
        found, status = os.waitpid(child, os.WNOHANG)
    if not found:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return bool(found) and os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_a_fork_has_a_thread_of_its_own() -> None:
    parents = MonotonicClock(EPollReactor())
    parents.callLater(LATE_S, int)
    assert in_child(lambda: story(EPollReactor())[0][2:] == ["sooner", "later"])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_reactor_that_runs_in_a_child_after_a_fork_keeps_its_calls() -> None:
    """A program that becomes a daemon does this."""
    reactor = SelectReactor()
    clock = clock_of(reactor)
    ran: list[str] = []
    clock.callLater(0.2, ran.append, "before the fork")
    clock.callLater(0, ran.append, "at once")

    def run() -> bool:
        clock.callLater(0.3, reactor.stop)
        reactor.run(installSignalHandlers=False)
        return ran == ["at once", "before the fork"]

    assert in_child(run)
