"""Once per reactor turn: first the writers turn entries into frames, then each connection writes what it collected.

Thread: reactor. One scheduled call per turn for the whole client, however many handles and connections have something
to send; frames of all handles for one bookie leave in one write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

FLUSH_ENTRIES = 256
"""A handle or connection with this many entries waiting does not wait for the end of the turn (performance rule 8)."""

FLUSH_BYTES = 64 * 1024
"""Nor does one with this many bytes."""


class TurnFlush:
    """The calls to make at the end of this turn. A caller marks itself once and is forgotten when called."""

    __slots__ = ("_clock", "_connections", "_scheduled", "_writers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writers: list[Callable[[], None]] = []
        self._connections: list[Callable[[], None]] = []
        self._scheduled = False

    def mark_writer(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of the turn, before any connection's."""
        self._writers.append(flush)
        self._schedule()

    def mark_connection(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of the turn, after all writers'."""
        self._connections.append(flush)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        writers, self._writers = self._writers, []
        for flush in writers:
            _guarded(flush)
        connections, self._connections = self._connections, []
        for flush in connections:
            _guarded(flush)
        self._scheduled = False
        if self._writers or self._connections:
            self._schedule()


def _guarded(flush: Callable[[], None]) -> None:
    """A mistake in one handle must not keep the others' entries back: they are marked, and would never go."""
    try:
        flush()
    except Exception:  # noqa: BLE001 - whatever it is, it is told here
        log.failure("sending at the end of a turn failed")
