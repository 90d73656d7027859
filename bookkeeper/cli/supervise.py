"""Waiting for the end: a signal to us, or a supervised process ending by itself.

    stop_on_sigterm()    while processes start: SIGTERM unwinds, so that `with` blocks stop what runs already
    wait_for_signal()    while they run
    afterwards           both signals are ignored: what is being stopped is stopped to its end

    stop_reactor_on_signals()    for a server that runs in this process

Thread: main.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bookkeeper.cli.output import EXIT_OK, CommandFailed
from bookkeeper.embedded.process import ending, report

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit(0), as Ctrl-C raises KeyboardInterrupt."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(EXIT_OK)

    signal.signal(signal.SIGTERM, stop)


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


@dataclass(frozen=True, slots=True)
class Child:
    """A child process that should run until a signal comes."""

    name: str
    pid: int
    log_path: Path

    def how_it_ended(self) -> str:
        """Tell of the end of this process, which has ended. It stays a zombie for whoever started it to reap."""
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return report(self.name, self.pid, ending(code), self.log_path)


def wait_for_signal(children: Iterable[Child]) -> None:
    """Return on SIGTERM or SIGINT; both are ignored afterwards.

    Raises CommandFailed about those that end by themselves before.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    watched = {os.pidfd_open(child.pid): child for child in children}
    try:
        readable, _, _ = select.select([reader, *watched], [], [])
        if reader not in readable:
            raise CommandFailed("\n".join(watched[descriptor].how_it_ended() for descriptor in readable))
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(previous_fd)
        for descriptor in (reader, writer, *watched):
            os.close(descriptor)
