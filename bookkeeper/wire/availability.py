"""Which entries of a ledger a bookie holds, as bytes in the answer to "list entries". Pure.

    header, 64 bytes: version i32 = 0 | groups i32 | zeros
    group, 24 bytes:  first run's start i64 | last run's start i64 | run length i32 | period i32

A group with a period stands for runs of equal length at that distance; period 0 is a single run. Ours, like Apache's,
writes single runs alone; any period is read. Source: Apache 4.18 AvailabilityOfEntriesOfLedger.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookkeeper.errors import RemoteProtocolError

HEADER_SIZE = 64
GROUP_SIZE = 24

RUNS_MAX = 1 << 20
"""Runs that a decoded answer may stand for. A group of 24 bytes with a period could name 2**63 of them."""

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


def decode_availability(data: bytes) -> list[range]:
    """The runs of entries that are held: ascending, disjoint, step 1, none next to another.

    Raises RemoteProtocolError for anything but a whole, ordered answer of version 0, and for more than RUNS_MAX runs.
    """
    if len(data) < HEADER_SIZE:
        raise RemoteProtocolError(f"availability of entries: {len(data)} bytes are less than its header")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise RemoteProtocolError(f"availability of entries: version {version} is unknown")
    if count < 0 or len(data) != HEADER_SIZE + count * GROUP_SIZE:
        raise RemoteProtocolError(f"availability of entries: {count} groups in {len(data)} bytes")
    runs: list[range] = []
    left = RUNS_MAX
    for first, last, length, period in _GROUP.iter_unpack(memoryview(data)[HEADER_SIZE:]):
        starts = _starts(first, last, length, period)
        left -= len(starts)
        if left < 0:
            raise RemoteProtocolError(f"availability of entries: more than {RUNS_MAX} runs")
        for start in starts:
            if not runs or start > runs[-1].stop:
                runs.append(range(start, start + length))
            elif start == runs[-1].stop:
                runs[-1] = range(runs[-1].start, start + length)
            else:
                raise RemoteProtocolError(f"availability of entries: a run at {start} overlaps the one before")
    return runs


def _starts(first: int, last: int, length: int, period: int) -> range:
    """Where the runs of one group start; at least one."""
    single = period == 0 and first == last
    repeated = period >= length and first <= last and (last - first) % max(period, 1) == 0
    if first < 0 or length < 1 or last + length - 1 > _ENTRY_ID_MAX or not (single or repeated):
        raise RemoteProtocolError(
            f"availability of entries: a group from {first} to {last}, length {length}, period {period}"
        )
    return range(first, last + 1, max(period, 1))
