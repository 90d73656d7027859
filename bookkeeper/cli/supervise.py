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
from collections.abc import Mapping
from types import FrameType
from typing import Any

from bookkeeper.cli.output import EXIT_OK, CommandFailed

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


def wait_for_signal(processes: Mapping[str, int]) -> None:
    """Return on SIGTERM or SIGINT; both are ignored afterwards.

    processes: name -> process id of children. Raises CommandFailed naming the first one that ends by itself.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    watched = {os.pidfd_open(pid): name for name, pid in processes.items()}
    try:
        readable, _, _ = select.select([reader, *watched], [], [])
        ended = [name for descriptor, name in watched.items() if descriptor in readable]
        if ended and reader not in readable:
            raise CommandFailed(f"{' and '.join(ended)} ended by itself; its log says why.")
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(previous_fd)
        for descriptor in (reader, writer, *watched):
            os.close(descriptor)
