from __future__ import annotations

import pytest

from bookkeeper.client.bookies.weights import DiskWeights
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import BookieId
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.situation import (
    KnownBookie,
    levelling_bytes,
    situation_from,
    situation_of,
    situation_text,
)


def known(name: str, rack: str = "/r1", *, registered: bool = True, writable: bool = True) -> KnownBookie:
    return KnownBookie(BookieId(name), rack, registered, registered and writable, 100)


BOOKIES = [
    known("a:1"),
    known("b:1", "/r2"),
    known("c:1", "/r2", writable=False),
    known("d:1", "/r2", registered=False),
]


def test_who_is_lost_takes_no_copies_and_gives_none() -> None:
    found = situation_of(Question(lose=("a:1",)), BOOKIES)
    assert found.lost == {"a:1"}
    assert found.registered == {"b:1", "c:1"}
    assert found.takers == ("b:1",)


def test_a_rack_is_lost_with_all_that_stand_in_it_registered_or_not() -> None:
    found = situation_of(Question(lose_racks=("/r2",)), BOOKIES)
    assert found.lost == {"b:1", "c:1", "d:1"}
    assert (found.registered, found.takers) == ({"a:1"}, ("a:1",))


def test_who_is_not_registered_is_neither_lost_nor_can_be_read() -> None:
    found = situation_of(Question(add=1), BOOKIES)
    assert not found.lost
    assert "d:1" not in found.registered


def test_who_joins_takes_copies_and_joins_the_racks_with_the_fewest_that_are_not_lost() -> None:
    found = situation_of(Question(lose=("a:1",), add=3), BOOKIES)
    assert found.takers == ("b:1", "new-1", "new-2", "new-3")
    assert [found.rack_of(each) for each in found.added] == ["/r1", "/r1", "/r2"]
    replaced = situation_of(Question(lose_racks=("/r1",), add=2), BOOKIES)
    assert [replaced.rack_of(each) for each in replaced.added] == ["/r2", "/r2"]


def test_free_space_counts_where_the_settings_say_so() -> None:
    found = situation_of(Question(add=1), BOOKIES[:1], weight_multiple_max=3)
    assert found.weights == DiskWeights({BookieId("a:1"): 100}, 3)
    assert situation_of(Question(add=1), BOOKIES).weights is None


def test_a_bookie_or_rack_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"bookie a:2: nobody .*; did you mean a:1\?; there are a:1, b:1"):
        situation_of(Question(lose=("a:2",)), BOOKIES)
    with pytest.raises(ConfigurationError, match=r"rack /r3: .*racks and their bookies: /r1 \(1\), /r2 \(3\)"):
        situation_of(Question(lose_racks=("/r3",)), BOOKIES)


@pytest.mark.parametrize("question", [Question(lose=("a:1",), add=2), Question(quorums=Quorums(ensemble=5))])
@pytest.mark.parametrize("multiple", [None, 3])
def test_a_situation_that_was_an_option_is_the_same(question: Question, multiple: int | None) -> None:
    found = situation_of(question, BOOKIES, racks_min=2, weight_multiple_max=multiple)
    assert situation_from(situation_text(found)) == found


def test_levelling_moves_what_is_above_the_mean() -> None:
    assert levelling_bytes([90, 30, 0]) == 50
    assert levelling_bytes([40, 40]) == 0
    assert levelling_bytes([]) == 0
