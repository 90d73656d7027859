"""Which entries of a ledger a bookie holds, as bytes in the answer to "list entries". Pure.

    header, 64 bytes: version i32 = 0 | groups i32 | zeros
    group, 24 bytes:  first run's start i64 | last run's start i64 | run length i32 | period i32

A group with a period stands for runs of equal length at that distance; period 0 is a single run. Ours, like Apache's,
writes single runs alone; any period is read. Source: Apache 4.18 AvailabilityOfEntriesOfLedger.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from bookkeeper.errors import RemoteProtocolError

HEADER_SIZE = 64
GROUP_SIZE = 24

RUNS_MAX = 1 << 20
"""Runs in a decoded answer. A group of 24 bytes with a period could represent 2**63 runs, and a caller may iterate over
them."""

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_VERSION = 0
_RUN_LENGTH_MAX = 2**31 - 1
_ENTRY_ID_MAX = 2**63 - 1


def groups_needed(run: range) -> int:
    """Groups that a run takes: one, unless it is longer than the length field can say."""
    return -(-len(run) // _RUN_LENGTH_MAX)


def encode_availability(runs: Sequence[range]) -> bytes:
    """The bytes for `runs`: none empty, step 1, ascending, disjoint."""
    groups: list[bytes] = []
    previous_stop = 0
    for run in runs:
        assert run.step == 1
        assert previous_stop <= run.start < run.stop, f"{run} behind {previous_stop}"
        previous_stop = run.stop
        starts = range(run.start, run.stop, _RUN_LENGTH_MAX)
        groups += [_GROUP.pack(start, start, min(run.stop - start, _RUN_LENGTH_MAX), 0) for start in starts]
    return _HEADER.pack(_VERSION, len(groups)) + b"".join(groups)


def decode_availability(data: bytes) -> Sequence[range]:
    """Return the runs of entries that are held: ascending, disjoint, step 1, none next to another.

    The runs of a group with a period are created on demand, since 24 bytes may represent RUNS_MAX runs.
    Raises RemoteProtocolError for anything but a whole, ordered answer of version 0, and for more than RUNS_MAX runs.
    """
    if len(data) < HEADER_SIZE:
        raise RemoteProtocolError(f"availability of entries: {len(data)} bytes are less than its header")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise RemoteProtocolError(f"availability of entries: version {version} is unknown")
    if count < 0 or len(data) != HEADER_SIZE + count * GROUP_SIZE:
        raise RemoteProtocolError(f"availability of entries: {count} groups in {len(data)} bytes")
    groups: list[_Group] = []
    stop, runs_count = -1, 0
    for first, last, length, period in _GROUP.iter_unpack(memoryview(data)[HEADER_SIZE:]):
        starts, size = _group(first, last, length, period)
        if first < stop:
            raise RemoteProtocolError(f"availability of entries: a run at {first} overlaps the one before")
        runs_count += len(starts)
        if runs_count > RUNS_MAX:
            raise RemoteProtocolError(f"availability of entries: more than {RUNS_MAX} runs")
        if first == stop:
            starts, size = _join(groups, starts, size)
            runs_count -= 1
        if starts:
            groups.append((starts, size))
        stop = last + length
    if runs_count == len(groups):
        return [range(starts.start, starts.start + size) for starts, size in groups]
    return _Runs(groups)


_Group = tuple[range, int]
"""Starts of runs, and the length of each run."""


def _group(first: int, last: int, length: int, period: int) -> _Group:
    single = period == 0 and first == last
    repeated = period >= length and first <= last and (last - first) % max(period, 1) == 0
    if first < 0 or length < 1 or last + length - 1 > _ENTRY_ID_MAX or not (single or repeated):
        raise RemoteProtocolError(
            f"availability of entries: a group from {first} to {last}, length {length}, period {period}"
        )
    if period <= length:  # one run, or runs next to each other
        return range(first, first + 1), last + length - first
    return range(first, last + 1, period), length


def _join(groups: list[_Group], starts: range, size: int) -> _Group:
    """Join the first run of a group with the last run of the previous groups. Return the remaining runs."""
    before, before_size = groups.pop()
    if len(before) > 1:
        groups.append((before[:-1], before_size))
    groups.append((before[-1:], before_size + size))
    return starts[1:], size


class _Runs(Sequence[range]):
    """The runs of all groups, created on demand."""

    __slots__ = ("_counts", "_groups")

    # _counts[n]: number of runs in groups 0..n

    def __init__(self, groups: list[_Group]) -> None:
        self._groups = groups
        self._counts = list(accumulate(len(starts) for starts, _ in groups))

    def __len__(self) -> int:
        return self._counts[-1]

    @overload
    def __getitem__(self, index: int) -> range: ...
    @overload
    def __getitem__(self, index: slice) -> list[range]: ...
    def __getitem__(self, index: int | slice) -> range | list[range]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        position = range(len(self))[index]
        number = bisect_right(self._counts, position)
        starts, size = self._groups[number]
        start = starts[position - self._counts[number]]  # counted from the end of the group
        return range(start, start + size)

    def __iter__(self) -> Iterator[range]:
        for starts, size in self._groups:
            for start in starts:
                yield range(start, start + size)
