"""Once per reactor turn: first the writers turn entries into frames, then each connection writes what it collected.

Thread: reactor. One scheduled call per turn for the whole client, however many handles and connections have something
to send; frames of all handles for one bookie leave in one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twisted.logger import Logger

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

FLUSH_ENTRIES = 256
"""A handle or connection with this many entries waiting does not wait for the end of the turn (performance rule 8)."""

FLUSH_BYTES = 64 * 1024
"""Nor does one with this many bytes."""


class Flushing(Protocol):
    """Who has something to send at the end of a turn."""

    def end_turn(self) -> None:
        """The turn ends: send it."""


class TurnFlush:
    """Whom to call at the end of this turn. A caller marks itself once and is forgotten when called."""

    __slots__ = ("_clock", "_connections", "_scheduled", "_writers", "add_count", "number")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writers: list[Flushing] = []
        self._connections: list[Flushing] = []
        self._scheduled = False
        self.add_count = 0  # batches of adds handed to connections so far
        self.number = 0  # another one after each turn in which somebody was marked

    def mark_writer(self, writer: Flushing) -> None:
        """Call `end_turn` of the writer before any connection's."""
        self._writers.append(writer)
        if not self._scheduled:
            self._schedule()

    def mark_connection(self, connection: Flushing) -> None:
        """Call `end_turn` of the connection after all writers'."""
        self._connections.append(connection)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self.number += 1
        writers, self._writers = self._writers, []
        _end_turn(writers)
        connections, self._connections = self._connections, []
        _end_turn(connections)
        self._scheduled = False
        if self._writers or self._connections:
            self._schedule()


def _end_turn(marked: list[Flushing]) -> None:
    """A mistake in one handle must not keep the others' entries back: they are marked, and would never go."""
    for one in marked:
        try:
            one.end_turn()
        except Exception:  # noqa: BLE001 - whatever it is, it is told here
            log.failure("sending at the end of a turn failed")
