"""Availability of entries: Apache's bytes, round trips, periods, and answers that must not be believed."""

from __future__ import annotations

import struct
import tracemalloc
from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire.availability import RUNS_MAX, decode_availability, encode_availability, groups_needed

# Entries 0, 1, 3, 4, 6, 7, 9, 10 and 20, written by Apache's encoder.
APACHE = bytes.fromhex(
    "000000000000000500000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000002000000000000000000000003"
    "000000000000000300000002000000000000000000000006000000000000000600000002000000000000000000000009"
    "00000000000000090000000200000000000000000000001400000000000000140000000100000000"
)
APACHE_RUNS = [range(2), range(3, 5), range(6, 8), range(9, 11), range(20, 21)]


def answer(*groups: tuple[int, int, int, int], version: int = 0, count: int | None = None) -> bytes:
    """Bytes as a peer may send them."""
    head = struct.pack(">ii56x", version, len(groups) if count is None else count)
    return head + b"".join(struct.pack(">qqii", *group) for group in groups)


@st.composite
def runs_of_entries(draw: st.DrawFn) -> list[range]:
    """Ascending runs with gaps between them."""
    position, runs = 0, []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**33)), max_size=20)):
        start = position + gap
        position = start + length
        runs.append(range(start, position))
    return runs


def test_apaches_bytes_are_written_and_read() -> None:
    assert encode_availability(APACHE_RUNS) == APACHE
    assert decode_availability(APACHE) == APACHE_RUNS


def test_a_ledger_without_entries_is_a_header() -> None:
    assert decode_availability(encode_availability([])) == []
    assert len(encode_availability([])) == 64


@given(runs_of_entries())
def test_what_is_written_is_read_again(runs: list[range]) -> None:
    assert decode_availability(encode_availability(runs)) == runs


def test_a_run_longer_than_the_field_takes_two_groups() -> None:
    run = range(5, 5 + 2**31)
    data = encode_availability([run])
    assert len(data) == 64 + 24 * groups_needed(run) == 64 + 24 * 2
    assert decode_availability(data) == [run]


def test_runs_that_touch_become_one() -> None:
    assert decode_availability(encode_availability([range(3), range(3, 5)])) == [range(5)]


def test_periods_are_expanded() -> None:
    """Three runs of two entries at a distance of five; with period = length they are one."""
    assert list(decode_availability(answer((10, 20, 2, 5)))) == [range(10, 12), range(15, 17), range(20, 22)]
    assert decode_availability(answer((0, 6, 3, 3))) == [range(9)]


def test_as_many_runs_as_allowed_are_expanded_and_not_one_more() -> None:
    whole = answer((0, 2 * (RUNS_MAX - 1), 1, 2))
    assert len(decode_availability(whole)) == RUNS_MAX
    with pytest.raises(RemoteProtocolError, match="more than"):
        decode_availability(answer((0, 2 * RUNS_MAX, 1, 2)))
    with pytest.raises(RemoteProtocolError, match="more than"):
        decode_availability(answer((0, 2**63 - 2, 1, 2)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        APACHE[:63],
        APACHE[:-1],
        APACHE + b"\0",
        answer(version=1),
        answer(count=-1),
        answer(count=2**31 - 1),
        answer((-1, -1, 1, 0)),
        answer((0, 0, 0, 0)),
        answer((0, 0, -5, 0)),
        answer((0, 7, 1, 0)),  # a single run has one start
        answer((7, 0, 1, 7)),
        answer((0, 7, 1, 2)),  # no run starts at 7
        answer((0, 4, 3, 2)),  # its runs overlap
        answer((0, 4, 1, -2)),
        answer((2**63 - 1, 2**63 - 1, 2, 0)),  # its last entry has no id
        answer((5, 5, 2, 0), (6, 6, 1, 0)),
        answer((5, 5, 1, 0), (3, 3, 1, 0)),
    ],
)
def test_answers_that_are_not_whole_and_ordered_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="availability"):
        decode_availability(data)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read_as_disjoint_runs(data: bytes) -> None:
    try:
        runs = decode_availability(data)
    except RemoteProtocolError:
        return
    assert all(run.start < run.stop for run in runs)
    assert all(before.stop < after.start for before, after in pairwise(runs))


GROUPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12
)


@given(GROUPS)
def test_groups_are_read_as_their_runs_however_they_are_looked_at(shape: list[tuple[int, int, int, int]]) -> None:
    """Each group: distance from the previous group, number of runs, their length, distance between them."""
    groups: list[tuple[int, int, int, int]] = []
    held: set[int] = set()
    stop = 0
    for gap, count, length, distance in shape:
        first, period = stop + gap, length + distance
        last = first + (count - 1) * period
        groups.append((first, last, length, 0 if count == 1 else period))
        held.update(start + entry for start in range(first, last + 1, period) for entry in range(length))
        stop = last + length
    found = decode_availability(answer(*groups))
    runs = list(found)
    assert {entry for run in runs for entry in run} == held
    assert all(before.stop < after.start for before, after in pairwise(runs))
    assert len(found) == len(runs)
    assert [found[index] for index in range(len(runs))] == runs
    assert [found[index] for index in range(-len(runs), 0)] == runs
    assert list(found[1:]) == runs[1:]
    with pytest.raises(IndexError):
        found[len(runs)]


def test_a_group_of_very_many_runs_takes_no_memory() -> None:
    data = answer((0, 0, 1, 0), (1, 1 + 2 * (RUNS_MAX - 3), 1, 2), (2**40, 2**40, 7, 0))
    tracemalloc.start()
    try:
        found = decode_availability(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert len(found) == RUNS_MAX - 1
    assert (found[0], found[1], found[-1]) == (range(2), range(3, 4), range(2**40, 2**40 + 7))
    assert bisect_right(found, 2**40 - 1, key=lambda run: run.stop) == RUNS_MAX - 2
