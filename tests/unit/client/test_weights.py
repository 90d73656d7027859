"""Free disk space as a weight: exact values, exact shares, and its place behind quarantine and racks."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.bookies.placement import choose_ensemble, choose_replacement, one_rack
from bookkeeper.client.bookies.weights import DiskWeights
from bookkeeper.model import BookieId


def bookies(count: int) -> list[BookieId]:
    return [BookieId(f"b{number}:3181") for number in range(count)]


def weights(*free: int | None, multiple_max: int = 3) -> DiskWeights:
    """Free bytes of b0, b1, ...; None: not known."""
    known = zip(bookies(len(free)), free, strict=True)
    return DiskWeights({bookie: told for bookie, told in known if told is not None}, multiple_max)


@pytest.mark.parametrize(
    ("free", "multiple_max", "expected"),
    [
        pytest.param([10, 20, 30], 3, [10, 20, 30], id="as told"),
        pytest.param([None, None], 3, [1, 1], id="nothing known"),
        pytest.param([0, 0, 0], 3, [1, 1, 1], id="nothing free"),
        pytest.param([40, None, 30, 0], 3, [40, 30, 30, 30], id="unknown and full count as the least known"),
        pytest.param([10, 10, 10, 1000], 3, [10, 10, 10, 30], id="limited to a multiple of the median"),
        pytest.param([10, 20, 1000, 1000], 1, [10, 20, 510, 510], id="median of an even number"),
        pytest.param([10, 11], 1, [10, 10], id="its whole part"),
        pytest.param([10, 10, 10, 1000], -1, [10, 10, 10, 1000], id="without limit"),
        pytest.param([10, 10, 10, 1000], 0, [10, 10, 10, 1000], id="nor with zero"),
        pytest.param([None, None, None, 10, 1000], 3, [10, 10, 10, 10, 30], id="limited while most are unknown"),
        pytest.param([-5, 20, 2**63 - 1], 3, [20, 20, 60], id="nonsense is harmless"),
    ],
)
def test_weights_are_free_bytes_within_limits(free: list[int | None], multiple_max: int, expected: list[int]) -> None:
    assert weights(*free, multiple_max=multiple_max).of(bookies(len(free))) == expected


def test_of_those_to_choose_from_only() -> None:
    """Neither limit nor least weight comes from bookies that are members, shunned or in another rack."""
    assert weights(1, 50, 40, 1000).of([BookieId("b1:3181"), BookieId("b2:3181"), BookieId("elsewhere")]) == [
        50,
        40,
        40,
    ]


class Tickets(random.Random):
    """Draws the given number."""

    def __init__(self, ticket: int) -> None:
        super().__init__()
        self.ticket = ticket

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert 0 <= self.ticket < start
        return self.ticket


def test_each_bookie_has_as_many_chances_as_its_weight() -> None:
    """All numbers that can be drawn, once each."""
    some = weights(3, None, 7, 100, 0)
    shares = Counter(some.pick(bookies(5), Tickets(ticket)) for ticket in range(3 + 3 + 7 + 9 + 3))
    assert [shares[bookie] for bookie in bookies(5)] == [3, 3, 7, 9, 3]


@given(
    st.dictionaries(st.integers(0, 9), st.integers(-(2**63), 2**63 - 1)),
    st.integers(-1, 5),
    st.integers(1, 10),
    st.integers(0, 2**32 - 1),
)
def test_whatever_bookies_tell_everyone_has_a_chance(
    told: Mapping[int, int], multiple_max: int, count: int, seed: int
) -> None:
    free = {bookies(10)[number]: value for number, value in told.items()}
    some, candidates = DiskWeights(free, multiple_max), bookies(10)[:count]
    result = some.of(candidates)
    assert all(weight >= 1 for weight in result)
    if multiple_max > 0:
        ordered = sorted(result)
        assert ordered[-1] <= multiple_max * ordered[len(ordered) // 2]
    for bookie, weight in zip(candidates, result, strict=True):
        for other, another in zip(candidates, result, strict=True):
            if 0 < free.get(bookie, 0) <= free.get(other, 0):
                assert weight <= another, "more room, never less likely"
    assert some.pick(candidates, random.Random(seed)) in candidates


def racks_of_three(bookie_id: BookieId) -> str:
    return f"/rack-{int(bookie_id[1:].split(':')[0]) % 3}"


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 2**50)), min_size=6, max_size=9),
    st.sets(st.integers(0, 8), max_size=4),
    st.integers(0, 2**32 - 1),
)
def test_quarantine_and_racks_come_before_weight(free: list[int | None], bad: set[int], seed: int) -> None:
    """I-10: nobody twice; the quarantined only for want of others; each write set spans two racks."""
    candidates = bookies(len(free))
    quarantined = {bookie for number, bookie in enumerate(candidates) if number in bad}
    chosen = choose_ensemble(
        ensemble_size=3,
        write_quorum=2,
        candidates=candidates,
        quarantined=quarantined,
        rack_of=racks_of_three,
        rng=random.Random(seed),
        weights=weights(*free),
    )
    assert len(set(chosen)) == 3
    assert len(set(chosen) & quarantined) == max(0, 3 - (len(candidates) - len(quarantined)))
    if not quarantined:
        assert len({racks_of_three(bookie) for bookie in chosen}) == 3


@given(st.sets(st.integers(0, 7)), st.integers(0, 2**32 - 1))
def test_a_replacement_is_neither_a_member_nor_excluded_whatever_its_weight(excluded: set[int], seed: int) -> None:
    """I-10."""
    everyone = bookies(8)
    shut_out = {bookie for number, bookie in enumerate(everyone) if number in excluded}
    chosen = choose_replacement(
        index=1,
        ensemble=everyone[:3],
        write_quorum=2,
        candidates=everyone,
        excluded=shut_out,
        quarantined=(),
        rack_of=one_rack,
        rng=random.Random(seed),
        weights=weights(*[2**40] * 3, *[1] * 5),
    )
    possible = set(everyone[3:]) - shut_out
    assert chosen in possible if possible else chosen is None


def test_one_seed_gives_one_share() -> None:
    """A thousand replacements from one seed; the expected shares are 100, 200, 300 and 400."""
    rng = random.Random(20)
    counts = Counter(
        choose_replacement(
            index=0,
            ensemble=[BookieId("old")],
            write_quorum=1,
            candidates=bookies(4),
            excluded=(),
            quarantined=(),
            rack_of=one_rack,
            rng=rng,
            weights=weights(100, 200, 300, 400),
        )
        for _ in range(1000)
    )
    assert [counts[bookie] for bookie in bookies(4)] == [107, 181, 301, 411]
