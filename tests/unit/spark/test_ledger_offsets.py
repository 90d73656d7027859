"""How far a stream over ledgers has come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.ledgers.offsets import SHARED_MAX, Between, Position, Seen, advance, beginning, between
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.spark.options.limits import Limits

_ids = st.integers(0, 12)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_ranges_are_the_set_of_their_ids(left: set[int], right: set[int]) -> None:
    found = IdRanges.of(left) | IdRanges.of(right)
    assert {each for each in range(42) if each in found} == left | right
    assert IdRanges.parse(str(found)) == found
    assert found == IdRanges.of(left | right)


@given(
    st.lists(st.dictionaries(_ids, st.tuples(st.integers(0, 9), st.booleans()), max_size=6), min_size=1, max_size=6),
    st.integers(1, 30) | st.none(),
    st.integers(1, 3000) | st.none(),
)
def test_every_entry_is_between_exactly_two_positions_however_ledgers_grow(
    growth: list[dict[int, tuple[int, bool]]], entries: int | None, size: int | None
) -> None:
    """Ledgers appear, grow and are closed; each micro-batch is planned, and all are compared with what there was."""
    limits = Limits(entries, size)
    counts: dict[int, int] = {}
    closed: set[int] = set()
    position, read = Position(), []
    for step in [*growth, *[{}] * 120]:
        for ledger_id, (more, closes) in step.items():
            if ledger_id not in closed:
                counts[ledger_id] = counts.get(ledger_id, 0) + more
                if closes:
                    closed.add(ledger_id)
        seen = {
            each: Seen(count - 1, each in closed, 100.0) for each, count in counts.items() if each not in position.done
        }
        after = advance(position, seen, limits)
        batch = [
            (part.ledger_id, entry_id)
            for part in between(position, after)
            for entry_id in range(
                part.first_entry_id,
                (counts[part.ledger_id] if part.last_entry_id is None else part.last_entry_id + 1),
            )
        ]
        assert entries is None or len(batch) <= entries
        assert size is None or len(batch) <= max(1, size // 100)
        read += batch
        assert Position.of(after.offset()) == after
        position = after
    assert sorted(read) == sorted((each, entry_id) for each, count in counts.items() for entry_id in range(count))
    assert position.done == IdRanges.of(closed)
    assert advance(position, {}, limits).offset() == position.offset()


def test_ledgers_share_a_limit_in_proportion() -> None:
    seen = {1: Seen(299, False, 10.0), 2: Seen(99, False, 10.0)}
    assert advance(Position(), seen, Limits(entries=40)).next == {1: 30, 2: 10}
    assert advance(Position(), seen, Limits(size=40)).next == {1: 3, 2: 1}


def test_one_entry_passes_a_limit_that_is_too_small_for_it() -> None:
    assert advance(Position(), {1: Seen(5, False, 1e6), 2: Seen(5, False, 1e6)}, Limits(size=10)).next == {1: 1}


def test_a_limited_micro_batch_begins_few_of_many_closed_ledgers_and_all_are_read() -> None:
    """A position names each that is begun: shared among all, it would be too large, and the stream could not begin."""
    count = 3 * SHARED_MAX
    seen = {each: Seen(99, True, 100.0) for each in range(0, 2 * count, 2)}
    position, steps = Position(), 0
    while seen:
        position = advance(position, seen, Limits(entries=20 * SHARED_MAX))
        assert len(position.next) <= SHARED_MAX
        seen = {each: now for each, now in seen.items() if each not in position.done}
        steps += 1
    assert len(position.done.ranges) == count
    assert steps <= 20


def test_small_closed_ledgers_fill_a_limit_however_many_they_are() -> None:
    seen = {each: Seen(0, True, 100.0) for each in range(5 * SHARED_MAX)}
    after = advance(Position(), seen, Limits(entries=3 * SHARED_MAX))
    assert (after.done, after.next) == (IdRanges.of(range(3 * SHARED_MAX)), {})
    after = advance(Position(), seen, Limits(size=200 * SHARED_MAX))
    assert (after.done, after.next) == (IdRanges.of(range(2 * SHARED_MAX)), {})


def test_a_stream_begins_where_it_is_told() -> None:
    seen = {1: Seen(9, True, 1.0), 2: Seen(9, True, 1.0), 3: Seen(9, False, 1.0), 4: Seen(-1, False, 0.0)}
    assert beginning({1: 10, 2: 4, 3: 10, 4: 0}, seen) == Position(IdRanges.of([1]), {2: 4, 3: 10})


def test_a_ledger_closed_empty_is_done_and_reads_nothing() -> None:
    after = advance(Position(), {7: Seen(-1, True, 0.0)}, Limits())
    assert (after.done, after.next) == (IdRanges.of([7]), {})
    assert between(Position(), after) == [Between(7, 0, None)]


@pytest.mark.parametrize("offset", [0, {}, {"3": 5}, {"done": "x"}, {"done": "", "a": 1}, {"done": "5-1"}])
def test_what_is_no_position_is_told_from_one(offset: object) -> None:
    with pytest.raises(InvalidArgument, match="checkpoint") as caught:
        Position.of(offset)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__  # what it stumbled over is no news


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Position(next={1: 5}), Position(next={1: 4})),
        (Position(IdRanges.of([1])), Position(next={1: 4})),
    ],
)
def test_positions_that_go_back_are_refused(start: Position, end: Position) -> None:
    with pytest.raises(InvalidArgument, match="checkpoint"):
        between(start, end)


def test_a_position_has_a_bound() -> None:
    with pytest.raises(InvalidArgument, match="option ledgers"):
        Position(IdRanges.of(range(0, 50_000, 2))).offset()
