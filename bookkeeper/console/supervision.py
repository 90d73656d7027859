"""Waiting for the end: a signal to us, or a supervised process ending by itself.

    stopping_on_signals()   around all of it: a signal unwinds, so that `with` blocks stop what runs already
    wait_for_signal()       within it, while the processes run

What is being stopped is stopped to its end: the signals after the first are ignored.

    stop_reactor_on_signals()    for a server that runs in this process
    run_coroutine()              for a process that runs the reactor for one coroutine

Thread: main.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from bookkeeper.console.output import CommandFailed, note
from bookkeeper.embedded.process import ending, report

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stopping_on_signals(exit_code: int) -> Iterator[None]:
    """Within, the first SIGTERM or SIGINT raises SystemExit(exit_code), and later ones do nothing.

    exit_code: 0 for a service, whose way to end this is; 130 for a command that had more to do.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in previous:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(exit_code)

    # What is ignored from the start stays so: a shell starts its background jobs like that, for Ctrl-C.
    previous = {each: signal.getsignal(each) for each in STOP_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop_reactor_on_signals(reactor: Any) -> None:
    """From now on SIGTERM and SIGINT stop the running reactor; the later ones are noted and change nothing.

    Twisted's own handlers would log a fatal error for every signal after the first.
    """
    from twisted.internet.error import ReactorNotRunning
    from twisted.logger import Logger

    log = Logger()

    def stop(name: str) -> None:
        try:
            reactor.stop()
        except ReactorNotRunning:
            log.info("Received {name}, stopping already", name=name)
        else:
            log.info("Received {name}, stopping", name=name)

    def received(number: int, frame: FrameType | None) -> None:
        reactor.callFromThread(stop, signal.Signals(number).name)

    for number in STOP_SIGNALS:
        signal.signal(number, received)


def run_coroutine(main: Callable[[Any], Coroutine[Any, Any, None]]) -> NoReturn:
    """Run the reactor until `main(reactor)` ends or a signal stops it, then end the process.

    The exit code is 1 if `main` raised, else 0. A child that dies with its parent may receive its signal several times.
    Linux sends the signal for the parent thread, and again for each other thread that adopts the child and ends.
    """
    from twisted.internet import task
    from twisted.internet.defer import Deferred

    from bookkeeper.console.reactor import reactor_without_pyopenssl

    reactor = reactor_without_pyopenssl()
    reactor.callWhenRunning(stop_reactor_on_signals, reactor)
    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor)), (), reactor)


@dataclass(frozen=True, slots=True)
class Child:
    """A child process that should run until a signal comes. vital: the others are of no use without it; dependent: it
    is of none without those that are neither.
    """

    name: str
    pid: int
    log_path: Path
    vital: bool = False
    dependent: bool = False

    def ending(self) -> str:
        """How this process ended, which it has. It stays a zombie for whoever started it to reap."""
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        return ending(status.si_status if status.si_code == os.CLD_EXITED else -status.si_status)


def wait_for_signal(children: Iterable[Child]) -> None:
    """Return on SIGTERM or SIGINT; both are ignored afterwards.

    Of a child that ends by itself the operator is told, and the others go on. Raises CommandFailed when nothing useful
    is left: a vital one ended, or all that are neither vital nor dependent.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    watched = {os.pidfd_open(child.pid): child for child in children}
    try:
        while True:
            readable, _, _ = select.select([reader, *watched], [], [])
            if reader in readable:
                return
            ended = []
            for descriptor in readable:
                ended.append(watched.pop(descriptor))
                os.close(descriptor)
            tell_or_give_up(ended, left=watched.values())
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(previous_fd)
        for descriptor in (reader, writer, *watched):
            os.close(descriptor)


def tell_or_give_up(ended: list[Child], left: Iterable[Child]) -> None:
    """Tell of those that ended. Raises CommandFailed when nothing useful is left: see `wait_for_signal`."""
    if any(child.vital for child in ended) or all(child.vital or child.dependent for child in left):
        raise CommandFailed(
            "\n".join(report(child.name, child.pid, child.ending(), child.log_path) for child in ended)
            + "\nNothing useful is left to run; stopped everything."
        )
    for child in ended:
        note(
            f"warning: {child.name}, process {child.pid}, {child.ending()}; its log: {child.log_path}; the others go on"
        )
