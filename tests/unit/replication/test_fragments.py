"""Fragments, who stores what of them, and what to verify, against the definitions by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.copies.fragments import (
    CopyPlan,
    FragmentRange,
    agreed_lac,
    entries_to_verify,
    fragments_of,
)


def names(text: str) -> tuple[BookieId, ...]:
    return tuple(map(BookieId, text))


def stored(fragment: FragmentRange, index: int) -> list[int]:
    """The definition: entries whose write set contains the index."""
    return [
        entry_id
        for entry_id in range(fragment.first_entry_id, fragment.last_entry_id + 1)
        if index in write_set(entry_id, len(fragment.ensemble), fragment.write_quorum)
    ]


def every_fragment() -> Iterator[FragmentRange]:
    """All sizes up to E = 5 and all lengths around them, at every phase of the striping."""
    for size in range(1, 6):
        for write_quorum in range(1, size + 1):
            for first, length in itertools.product(range(size + 1), range(2 * size + 2)):
                ensemble = names("abcde"[:size])
                yield FragmentRange(first, first + length - 1, ensemble, write_quorum, agreed=True)


def metadata(last: int | None, *fragments: tuple[int, str]) -> LedgerMetadata:
    members = tuple(Fragment(EntryId(first), names(ensemble)) for first, ensemble in fragments)
    ledger = LedgerMetadata(3, 2, 2, members)
    return ledger if last is None else ledger.closed(EntryId(last), 1000)


def test_what_an_index_stores_is_what_its_write_sets_say() -> None:
    for fragment in every_fragment():
        for index in range(len(fragment.ensemble)):
            expected = stored(fragment, index)
            assert list(fragment.stored_by(index)) == expected
            assert fragment.stored_count(index) == len(expected)
            assert fragment.first_stored_by(index) == (expected[0] if expected else None)
            assert fragment.last_stored_by(index) == (expected[-1] if expected else None)


def test_a_part_of_a_fragment_never_reaches_beyond_it() -> None:
    for fragment in every_fragment():
        for index in range(len(fragment.ensemble)):
            part = fragment.stored_within(index, fragment.first_entry_id + 1, fragment.last_entry_id + 5)
            assert list(part) == [
                entry_id for entry_id in stored(fragment, index) if entry_id > fragment.first_entry_id
            ]


@pytest.mark.parametrize("percentage", [0, 1, 30, 77, 100, 250])
def test_verified_are_the_first_and_last_stored_and_at_least_the_share_asked_for(percentage: float) -> None:
    rng = random.Random(5)
    for fragment in every_fragment():
        for index in range(len(fragment.ensemble)):
            held = stored(fragment, index)
            chosen = entries_to_verify(fragment, index, percentage, rng)
            assert chosen == sorted(set(chosen))
            assert set(chosen) <= set(held)
            assert {*held[:1], *held[-1:]} <= set(chosen)
            if percentage >= 100:
                assert chosen == held
            if percentage == 0:
                assert len(chosen) <= 2


def test_a_share_of_a_long_fragment_is_spread_over_all_of_it() -> None:
    fragment = FragmentRange(7, 10_006, names("abc"), 2, agreed=True)
    chosen = entries_to_verify(fragment, 1, 10, random.Random(1))
    assert 600 <= len(chosen) <= 670  # 10 % of two thirds of 10 000, minus those that fell on the same entry
    for low in range(7, 10_000, 1000):
        assert sum(low <= entry_id < low + 1000 for entry_id in chosen) > 50


def test_each_fragment_ends_where_the_next_begins_and_only_the_last_of_an_open_ledger_is_undecided() -> None:
    """I-74."""
    ledger = metadata(None, (0, "abc"), (10, "adc"), (18, "ade"))
    ranges = [(f.first_entry_id, f.last_entry_id, f.agreed) for f in fragments_of(ledger, 20)]
    assert ranges == [(0, 9, True), (10, 17, True), (18, 20, False)]
    assert fragments_of(ledger)[-1].empty
    assert not fragments_of(ledger.in_recovery(), 20)[-1].agreed


def test_the_last_fragment_of_a_closed_ledger_ends_at_its_last_entry() -> None:
    closed = metadata(29, (0, "abc"), (10, "adc"))
    assert [(f.last_entry_id, f.agreed) for f in fragments_of(closed)] == [(9, True), (29, True)]
    below = metadata(9, (0, "abc"), (10, "adc"))
    assert [f.empty for f in fragments_of(below)] == [False, True]
    # However little is in it, nothing beyond the last entry was ever agreed (I-40).
    assert [f.last_entry_id for f in fragments_of(metadata(4, (0, "abc"), (10, "adc")))] == [4, 9]
    assert [f.empty for f in fragments_of(metadata(-1, (0, "abc")))] == [True]


def test_copies_carry_a_lac_that_every_reader_may_know() -> None:
    """I-07, I-74."""
    assert agreed_lac(metadata(29, (0, "abc"), (10, "adc"))) == 29
    assert agreed_lac(metadata(None, (0, "abc"), (10, "adc"))) == 9
    assert agreed_lac(metadata(None, (0, "abc"))) == -1


@pytest.mark.parametrize("entries_max", [1, 3, 100])
def test_the_batches_of_a_plan_give_each_target_exactly_what_its_place_stores(entries_max: int) -> None:
    for fragment in every_fragment():
        size = len(fragment.ensemble)
        for count in range(1, size + 1):
            targets = {index: BookieId("VWXYZ"[index]) for index in range(count)}
            got: dict[BookieId, list[int]] = {bookie: [] for bookie in targets.values()}
            seen: list[int] = []
            for batch in CopyPlan(fragment, targets).batches(entries_max):
                assert 0 < len(batch.entry_ids) <= entries_max
                assert sorted({e for part in batch.wanted.values() for e in part}) == list(batch.entry_ids)
                seen += batch.entry_ids
                for bookie, entry_ids in batch.wanted.items():
                    got[bookie] += entry_ids
            assert got == {bookie: stored(fragment, index) for index, bookie in targets.items()}
            assert seen == sorted(set(seen))


def test_a_plan_for_some_ranges_touches_nothing_else() -> None:
    fragment = FragmentRange(10, 29, names("abc"), 2, agreed=True)
    plan = CopyPlan(fragment, {1: BookieId("b")}, ((0, 11), (15, 15), (28, 99)))
    entry_ids = [entry_id for batch in plan.batches(2) for entry_id in batch.entry_ids]
    assert entry_ids == [entry_id for entry_id in stored(fragment, 1) if entry_id in {10, 11, 15, 28, 29}]


def test_the_places_of_lost_bookies_are_found() -> None:
    fragment = FragmentRange(0, 9, names("abc"), 2, agreed=True)
    assert fragment.indexes_of(frozenset(names("cax"))) == {0: "a", 2: "c"}
