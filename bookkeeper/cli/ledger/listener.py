"""Whoever reads our standard output, watched while there is nothing to write.

A pipe tells a writer that its reader is gone only when it writes (EPIPE). A command that may wait for ever before it
has something to write would never learn of it; poll(2) knows at once: POLLERR on the writing end of a pipe, POLLHUP on
a socket or a terminal. A file, and a pipe that is read, never report anything.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator


class Listener:
    """`gone`: nobody reads any more. Set once, by the watching thread."""

    def __init__(self) -> None:
        self.gone = False


@contextlib.contextmanager
def watching_listener(descriptor: int, on_gone: Callable[[], None]) -> Iterator[Listener]:
    """Within, `on_gone` is called once, in a thread of its own, when nobody reads `descriptor` any more.

    On leaving, the thread has ended and `on_gone`, if it was called, has returned.
    """
    listener = Listener()
    stop_reader, stop_writer = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # no events: POLLERR and POLLHUP are always told
        poll.register(stop_reader, select.POLLIN)
        told = [number for number, _ in poll.poll()]
        if descriptor in told and stop_reader not in told:
            listener.gone = True
            on_gone()

    thread = threading.Thread(target=watch, name="stdout-listener", daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        os.close(stop_writer)  # POLLHUP at the other end
        thread.join()
        os.close(stop_reader)
