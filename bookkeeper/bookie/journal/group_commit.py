"""Which records wait, which are in flight, and what the next group is. Pure.

Whatever arrives while one group is being synced forms the next one: no timer, no deliberate wait. At most one group is
in flight, so a crash can tear only the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.bookie.journal.format import GROUP_SIZE_MAX
from bookkeeper.errors import InvalidArgument, JournalFull

APPEND_SIZE_MAX = GROUP_SIZE_MAX // 2
"""Largest single append, in bytes: it must fit in a group that replay still believes."""

APPEND_OVERHEAD_BYTES = 512
"""What an append takes in memory beside its records: itself, its callback, the request behind it."""

OnDurable = Callable[[BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Append:
    """Records that become durable together. parts: framed records, in pieces of any shape; size: their bytes.

    deferred: to be reported when they are written, before the sync.
    """

    parts: Sequence[bytes]
    size: int
    record_count: int
    on_durable: OnDurable
    queued_s: float
    deferred: bool = False


class CommitQueue:
    """Appends in order of arrival: waiting, then in flight, then gone.

    0 <= bytes in flight <= pending_bytes; pending_bytes <= pending_bytes_max, except that an append to an empty queue
    is always taken (it could otherwise never be).
    append_overhead: bytes that each append counts beside its records, since very small ones cost far more memory.
    """

    def __init__(self, *, group_bytes_max: int, pending_bytes_max: int, append_overhead: int = 0) -> None:
        self._append_overhead = append_overhead
        self._group_bytes_max = group_bytes_max
        self._pending_bytes_max = pending_bytes_max
        self._waiting: list[Append] = []
        self._waiting_bytes = 0
        self._in_flight: list[Append] = []
        self._in_flight_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes waiting and in flight, and the overhead of each append."""
        count = len(self._waiting) + len(self._in_flight)
        return self._waiting_bytes + self._in_flight_bytes + count * self._append_overhead

    @property
    def waiting_count(self) -> int:
        """Records that wait for the group in flight."""
        return sum(append.record_count for append in self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        return not self._waiting and not self._in_flight

    @property
    def is_congested(self) -> bool:
        """More than half of the bound is pending: time to slow the senders down."""
        return self.pending_bytes * 2 > self._pending_bytes_max

    @property
    def has_deferred(self) -> bool:
        """Something deferred waits."""
        return any(append.deferred for append in self._waiting)

    def add(self, append: Append) -> None:
        """Queue an append. Raises JournalFull when it would pass the bound, InvalidArgument when it can never fit."""
        self._check_room(append)
        self._waiting.append(append)
        self._waiting_bytes += append.size

    def _check_room(self, append: Append) -> None:
        pending = self.pending_bytes
        if pending and pending + append.size + self._append_overhead > self._pending_bytes_max:
            raise JournalFull(
                f"{pending} bytes wait for the journal's disk and {append.size} more pass the bound of "
                f"{self._pending_bytes_max} (journalMaxMemorySizeMb): slow down, or use a faster disk"
            )
        if append.size > APPEND_SIZE_MAX:
            raise InvalidArgument(f"an append of {append.size} bytes; at most {APPEND_SIZE_MAX} fit in one group")

    def add_barrier(self, append: Append) -> bool:
        """Let `append`, which has no records, land with all that was added before; False when all of that has landed.

        Raises JournalFull as `add`.
        """
        if self.is_idle:
            return False
        if self._waiting:
            self.add(append)
        else:
            self._check_room(append)
            # A new list: whoever took the group holds the old one.
            self._in_flight = [*self._in_flight, append]
        return True

    def written(self) -> list[Append]:
        """The group in flight is in the file, not durable: hand out its deferred appends, for good.

        Their bytes stay pending until the sync.
        """
        deferred = [append for append in self._in_flight if append.deferred]
        self._in_flight = [
            Append((), append.size, append.record_count, _told_already, append.queued_s) if append.deferred else append
            for append in self._in_flight
        ]
        return deferred

    def take(self) -> list[Append]:
        """Put the next group in flight and return it; empty when one is in flight already or nothing waits."""
        if self._in_flight or not self._waiting:
            return []
        if self._waiting_bytes <= self._group_bytes_max:
            self._in_flight, self._waiting = self._waiting, []
        else:
            count = self._fitting()
            self._in_flight, self._waiting = self._waiting[:count], self._waiting[count:]
        self._in_flight_bytes = sum([append.size for append in self._in_flight])
        self._waiting_bytes -= self._in_flight_bytes
        return self._in_flight

    def _fitting(self) -> int:
        total = 0
        for index, append in enumerate(self._waiting):
            total += append.size
            if total > self._group_bytes_max:
                return max(1, index)
        return len(self._waiting)

    def landed(self) -> list[Append]:
        """The group in flight is durable: return it and make room for the next."""
        done, self._in_flight = self._in_flight, []
        self._in_flight_bytes = 0
        return done

    def abandon(self) -> list[Append]:
        """Give up on everything pending; returned in order, and never again."""
        lost = self._in_flight + self._waiting
        self._in_flight, self._waiting = [], []
        self._in_flight_bytes = self._waiting_bytes = 0
        return lost


def _told_already(error: BaseException | None) -> None:
    """Stands for a deferred append whose caller was told when it was written."""
