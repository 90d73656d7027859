"""Who stores a ledger."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.bookies.placement import (
    DEFAULT_RACK,
    choose_ensemble,
    choose_replacement,
    choose_replacements,
    mapped_racks,
    one_rack,
    parse_topology,
)
from bookkeeper.errors import ConfigurationError, NotEnoughBookies
from bookkeeper.model import BookieId


def bookies(count: int) -> list[BookieId]:
    return [BookieId(f"b{number}:3181") for number in range(count)]


def racks_of_three(bookie_id: BookieId) -> str:
    return f"/rack-{int(bookie_id[1:].split(':')[0]) % 3}"


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.sets(st.integers(0, 8)), st.integers(0, 2**32 - 1))
def test_members_are_distinct_and_quarantined_ones_are_a_last_resort(
    ensemble_size: int, write_quorum: int, spare: int, bad: set[int], seed: int
) -> None:
    """I-10."""
    write_quorum = min(write_quorum, ensemble_size)
    candidates = bookies(ensemble_size + spare)
    quarantined = {bookie for number, bookie in enumerate(candidates) if number in bad}
    chosen = choose_ensemble(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        candidates=candidates,
        quarantined=quarantined,
        rack_of=racks_of_three,
        rng=random.Random(seed),
    )
    assert len(set(chosen)) == ensemble_size
    assert set(chosen) <= set(candidates)
    healthy = len(candidates) - len(quarantined)
    assert len(set(chosen) & quarantined) == max(0, ensemble_size - healthy)


@given(st.integers(0, 2**32 - 1))
def test_every_write_set_spans_racks_where_there_are_enough(seed: int) -> None:
    chosen = choose_ensemble(
        ensemble_size=3,
        write_quorum=2,
        candidates=bookies(9),
        quarantined=(),
        rack_of=racks_of_three,
        rng=random.Random(seed),
    )
    for index in range(3):
        assert racks_of_three(chosen[index]) != racks_of_three(chosen[(index + 1) % 3])


def test_one_seed_gives_one_ensemble() -> None:
    def choose(candidates: list[BookieId]) -> tuple[BookieId, ...]:
        return choose_ensemble(
            ensemble_size=3,
            write_quorum=2,
            candidates=candidates,
            quarantined=(),
            rack_of=one_rack,
            rng=random.Random(5),
        )

    assert choose(bookies(9)) == choose(list(reversed(bookies(9))))


def test_too_few_bookies_are_named() -> None:
    with pytest.raises(NotEnoughBookies, match=r"needs 3 bookies and 1 are writable \(b0:3181\)"):
        choose_ensemble(
            ensemble_size=3,
            write_quorum=2,
            candidates=bookies(1),
            quarantined=(),
            rack_of=one_rack,
            rng=random.Random(1),
        )


@given(st.integers(0, 5), st.sets(st.integers(0, 7)), st.integers(0, 2**32 - 1))
def test_a_replacement_is_neither_a_member_nor_excluded(index: int, excluded: set[int], seed: int) -> None:
    """I-10."""
    everyone = bookies(8)
    ensemble = everyone[:6]
    shut_out = {bookie for number, bookie in enumerate(everyone) if number in excluded}
    chosen = choose_replacement(
        index=index,
        ensemble=ensemble,
        write_quorum=3,
        candidates=everyone,
        excluded=shut_out,
        quarantined=(),
        rack_of=racks_of_three,
        rng=random.Random(seed),
    )
    possible = set(everyone[6:]) - shut_out
    assert chosen in possible if possible else chosen is None


@given(st.sets(st.integers(0, 5), min_size=1), st.integers(6, 9), st.integers(0, 2**32 - 1))
def test_several_replacements_are_different_bookies_as_far_as_there_are_any(
    indexes: set[int], bookie_count: int, seed: int
) -> None:
    """I-10."""
    everyone = bookies(bookie_count)
    ensemble, others = everyone[:6], set(everyone[6:])
    chosen = choose_replacements(
        indexes=indexes,
        ensemble=ensemble,
        write_quorum=3,
        candidates=everyone,
        excluded={ensemble[index] for index in indexes},
        quarantined=(),
        rack_of=racks_of_three,
        rng=random.Random(seed),
    )
    assert len(set(chosen.values())) == len(chosen) == min(len(indexes), len(others))
    assert set(chosen.values()) <= others
    assert set(chosen) <= indexes


def test_a_replacement_knows_of_those_chosen_before_it() -> None:
    """Two places of one write set: the second goes to the rack that the first left free."""
    racks = {"a:1": "/r1", "b:1": "/r1", "c:1": "/r1", "d:1": "/r2"}
    chosen = choose_replacements(
        indexes=(0, 1),
        ensemble=[BookieId("x:1"), BookieId("y:1")],
        write_quorum=2,
        candidates=[BookieId(each) for each in racks],
        excluded=(),
        quarantined=(),
        rack_of=mapped_racks(racks),
        rng=random.Random(1),
    )
    assert sorted(mapped_racks(racks)(each) for each in chosen.values()) == ["/r1", "/r2"]


def test_racks_come_from_a_file_by_id_or_host() -> None:
    rack_of = mapped_racks(parse_topology("# dc 1\nhost1  /r1\nhost2:3182 /r2  # the second\n\n", "racks.txt"))
    assert rack_of(BookieId("host1:3181")) == "/r1"
    assert rack_of(BookieId("host2:3182")) == "/r2"
    assert rack_of(BookieId("host2:3181")) == DEFAULT_RACK


@pytest.mark.parametrize("line", ["host1", "host1 rack1", "host1 /r1 more"])
def test_a_bad_line_of_the_file_is_named(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"racks.txt line 2"):
        parse_topology("host0 /r0\n" + line, "racks.txt")
