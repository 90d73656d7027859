"""What the code under test logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.logger import LogEvent, formatEvent, globalLogPublisher


@contextmanager
def logged() -> Iterator[list[str]]:
    """A list that grows by a line for each event, of any level, until the end of the `with`."""
    lines: list[str] = []

    def take(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(take)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(take)
