"""Striping and coverage against their definitions, for every small shape.

Mutants: coverage by a plain count of answers (I-02); `<= Qa` for `< Qa`; 32-bit sums in the write set.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidMetadata
from bookkeeper.protocol.schedule import Coverage, entries_by_turn, held_entries, holds, spread, write_set

SHAPES = [(e, qw, qa) for e in range(1, 8) for qw in range(1, e + 1) for qa in range(1, qw + 1)]


def test_a_write_set_starts_at_the_entry_id_and_wraps() -> None:
    assert write_set(0, 5, 3) == (0, 1, 2)
    assert write_set(9, 5, 3) == (4, 0, 1)


@pytest.mark.parametrize("entry_id", [2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1])
def test_large_entry_ids_are_striped_in_64_bits(entry_id: int) -> None:
    assert write_set(entry_id, 7, 2) == (entry_id % 7, (entry_id % 7 + 1) % 7)


@given(st.sampled_from(SHAPES), st.integers(0, 2**40), st.integers(-1, 40), st.integers(0, 6))
def test_held_entries_are_those_whose_write_set_names_the_index(
    shape: tuple[int, int, int], first: int, count: int, index: int
) -> None:
    ensemble_size, write_quorum, _ = shape
    index %= ensemble_size
    expected = [e for e in range(first, first + count + 1) if index in write_set(e, ensemble_size, write_quorum)]
    assert list(held_entries(index, first, first + count, ensemble_size, write_quorum)) == expected
    assert [e for e in range(first, first + count + 1) if holds(index, e, ensemble_size, write_quorum)] == expected
    assert list(spread(first, first + count, ensemble_size, write_quorum)[index]) == expected


@given(st.integers(1, 9), st.integers(0, 2**40), st.integers(-3, 40))
def test_entries_are_counted_by_remainder_as_one_by_one(ensemble_size: int, first: int, count: int) -> None:
    counts = [0] * ensemble_size
    for entry_id in range(first, first + count + 1):
        counts[entry_id % ensemble_size] += 1
    assert entries_by_turn(first, first + count, ensemble_size) == counts


def ack_quorum_within(doubtful: set[int], shape: tuple[int, int, int]) -> bool:
    """The definition: Qa members of some write set that are all in doubt."""
    ensemble_size, write_quorum, ack_quorum = shape
    return any(
        set(quorum) <= doubtful
        for start in range(ensemble_size)
        for quorum in itertools.combinations(write_set(start, ensemble_size, write_quorum), ack_quorum)
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_holds_exactly_when_no_ack_quorum_lies_in_doubt(shape: tuple[int, int, int]) -> None:
    """I-02 and I-28, all sets of answers for E up to 7: covered by what answered, impossible by what failed."""
    everyone = set(range(shape[0]))
    for size in range(shape[0] + 1):
        for chosen in map(set, itertools.combinations(everyone, size)):
            by_answers, by_failures = Coverage(*shape), Coverage(*shape)
            for index in chosen:
                by_answers.answered(index)
                by_failures.failed(index)
            assert by_answers.covered == (not ack_quorum_within(everyone - chosen, shape))
            assert not by_answers.impossible
            assert by_failures.impossible == ack_quorum_within(chosen, shape)
            assert not by_failures.covered


def test_the_published_example_needs_four_answers_of_six_not_five() -> None:
    """I-02: E=6, Qw=3, Qa=2: answers from 1, 2, 4, 5 suffice; 0, 1, 2, 3 do not, though they are as many."""
    for indexes, covered in (((1, 2, 4, 5), True), ((0, 1, 2, 3), False)):
        coverage = Coverage(6, 3, 2)
        for index in indexes:
            coverage.answered(index)
        assert coverage.covered is covered


def test_a_late_answer_outweighs_an_earlier_failure_and_not_the_other_way_round() -> None:
    coverage = Coverage(2, 2, 2)
    coverage.failed(0)
    assert not coverage.impossible
    coverage.answered(0)
    coverage.failed(0)
    coverage.failed(1)
    assert coverage.covered
    assert not coverage.impossible
    assert coverage.everyone_spoke


def test_everyone_spoke_only_when_nobody_is_waited_for() -> None:
    coverage = Coverage(3, 2, 2)
    coverage.answered(0)
    coverage.failed(1)
    assert not coverage.everyone_spoke
    coverage.failed(2)
    assert coverage.everyone_spoke


def test_impossible_quorums_are_refused() -> None:
    """I-01."""
    with pytest.raises(InvalidMetadata):
        Coverage(3, 2, 3)
