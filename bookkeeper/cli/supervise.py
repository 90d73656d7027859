"""Waiting for the end of supervised processes: a signal to us, or one of them ending by itself.

    stop_on_sigterm()    while they start: SIGTERM unwinds, so that `with` blocks stop what runs already
    wait_for_signal()    while they run
    afterwards           both signals are ignored: what is being stopped is stopped to its end

Thread: main.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping
from types import FrameType

from bookkeeper.cli.output import EXIT_OK, CommandFailed

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_sigterm() -> None:
    """From now on SIGTERM raises SystemExit(0), as Ctrl-C raises KeyboardInterrupt."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(EXIT_OK)

    signal.signal(signal.SIGTERM, stop)


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
