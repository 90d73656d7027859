"""Waiting for the end of supervised processes: a signal to us, or one of them ending by itself."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping

from bookkeeper.cli.output import CommandFailed


def wait_for_signal(processes: Mapping[str, int]) -> None:
    """Return on SIGTERM or SIGINT.

    processes: name -> process id of children. Raises CommandFailed naming the first one that ends by itself.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer)
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    watched = {os.pidfd_open(pid): name for name, pid in processes.items()}
    try:
        readable, _, _ = select.select([reader, *watched], [], [])
        for descriptor, name in watched.items():
            if descriptor in readable and reader not in readable:
                raise CommandFailed(f"{name} ended by itself; its log says why.")
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, action in previous.items():
            signal.signal(number, action)
        for descriptor in (reader, writer, *watched):
            os.close(descriptor)
