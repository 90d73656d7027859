"""What transactions made and removed, by the hour in which they say that it was done. Pure.

An operation that has no time of its own (a block is added, a lease passes over) makes no difference by itself: the
bytes that it brings to a file count with the file's next operation that has one, as a rule its CLOSE. What no such
operation has followed yet, and what has a time that no calendar has, is in a row without an hour; a later run that goes
on from there takes it out of that row when its time has come. So the sums over all rows are what the namespace has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

HOUR_MS = 3_600_000
HOURS_MAX = 100_000
"""Rows that are kept; whoever fills them takes them out when there are more: rows of one hour are added up later."""

_MS_MIN, _MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999."""


@dataclass(slots=True)
class Change:
    """What some operations made of the namespace. bytes_added, bytes_removed: lengths of files, one copy of each."""

    operations: int = 0
    files_made: int = 0
    files_deleted: int = 0
    directories_made: int = 0
    directories_deleted: int = 0
    symlinks_made: int = 0
    symlinks_deleted: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0

    def add_bytes(self, net: int) -> None:
        """Count what an operation adds to the files in all, or takes away."""
        if net > 0:
            self.bytes_added += net
        else:
            self.bytes_removed -= net

    def take_back(self, net: int) -> None:
        """Undo `add_bytes` of a run before this one."""
        if net > 0:
            self.bytes_added -= net
        else:
            self.bytes_removed += net


NUMBERS = ("operations", "files_made", "files_deleted", "directories_made", "directories_deleted", "symlinks_made",
           "symlinks_deleted", "bytes_added", "bytes_removed")  # fmt: skip
"""The fields of a change, in their order."""


def hour_of(ms: int | None) -> int | None:
    """Milliseconds since 1970 -> those of the hour's beginning; None for a time that is none."""
    return None if ms is None or ms == -1 or not _MS_MIN <= ms <= _MS_MAX else ms - ms % HOUR_MS


class Growth:
    """Changes by hour (milliseconds since 1970; None: unknown)."""

    def __init__(self) -> None:
        self._hours: dict[int | None, Change] = {}

    def at(self, ms: int | None) -> Change:
        """What is counted for that time."""
        hour = hour_of(ms)
        found = self._hours.get(hour)
        if found is None:
            found = self._hours[hour] = Change()
        return found

    @property
    def is_full(self) -> bool:
        """More hours than are to be kept: take them out."""
        return len(self._hours) > HOURS_MAX

    def take(self) -> Iterator[tuple[int | None, ...]]:
        """Every hour with its NUMBERS; nothing is kept of them."""
        hours, self._hours = self._hours, {}
        for hour, change in hours.items():
            yield (hour, *astuple(change))
