"""Many fragments under a situation: who has what before and after, and what cannot be done."""

from __future__ import annotations

from bookkeeper.client.bookies.placement import DEFAULT_RACK
from bookkeeper.model import BookieId
from bookkeeper.spark.whatif.effects import Effects, FragmentRow
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.situation import KnownBookie, Situation, situation_of


def situation(question: Question, letters: str = "abcd", racks: dict[str, str] | None = None, **how: int) -> Situation:
    where = racks or {}
    bookies = [KnownBookie(BookieId(each), where.get(each, DEFAULT_RACK), True, True) for each in letters]
    return situation_of(question, bookies, **how)


def fragment(
    ensemble: str, last: int = 99, *, ledger_id: int = 7, first: int = 0, end: int | None = None, quorum: int = 2
) -> FragmentRow:
    """Of a ledger whose entries have 10 bytes each."""
    end = last if end is None else end
    members = tuple(BookieId(each) for each in ensemble)
    return FragmentRow(ledger_id, first, last, members, len(ensemble), quorum, quorum, end, 10 * (end + 1))


def test_the_copies_of_a_lost_bookie_go_to_the_only_one_that_is_no_member_and_the_sums_are_kept() -> None:
    effects = Effects(situation(Question(lose=("a",))))
    found = effects.of(fragment("abc", 299))
    assert found is not None
    assert (found.affected, found.lost_copies, found.written_copies, found.unplaced_copies) == (200, 200, 200, 0)
    assert (found.read_bytes, found.written_bytes, found.impossible) == (2000, 2000, "")
    assert (found.one_copy, found.below_ack_quorum, found.no_copy) == (200, 200, 0)
    loads = effects.loads
    assert {name: load.before_bytes for name, load in loads.items()} == {"a": 2000, "b": 2000, "c": 2000, "d": 0}
    assert (loads[BookieId("a")].gone_bytes, loads[BookieId("d")].received_bytes) == (2000, 2000)
    assert sum(load.given_bytes for load in loads.values()) == 2000
    assert loads[BookieId("a")].given_bytes == 0


def test_an_ensemble_without_the_lost_bookie_counts_only_in_what_its_bookies_have() -> None:
    effects = Effects(situation(Question(lose=("d",))))
    assert effects.of(fragment("abc")) is None
    assert sum(load.before_copies for load in effects.loads.values()) == 200


def test_a_lost_bookie_that_stores_no_entry_of_a_short_fragment_costs_nothing() -> None:
    effects = Effects(situation(Question(lose=("c",))))
    assert effects.of(fragment("abc", 0)) is None  # entry 0 lies on a and b


def test_where_too_few_bookies_are_left_that_is_said_and_nothing_is_moved() -> None:
    effects = Effects(situation(Question(lose=("a",)), "abc"))
    found = effects.of(fragment("abc", 299))
    assert found is not None
    assert (found.unplaced_copies, found.written_copies, found.read_bytes) == (200, 0, 0)
    assert found.impossible.startswith("too few bookies: 2 are writable then, and an ensemble of 3")


def test_a_bookie_that_is_added_takes_what_is_lost() -> None:
    effects = Effects(situation(Question(lose=("a",), add=1), "abc"))
    found = effects.of(fragment("abc", 299))
    assert found is not None
    assert (found.unplaced_copies, found.impossible) == (0, "")
    assert effects.loads[BookieId("new-1")].received_copies == 200


def test_copies_go_to_another_rack_as_the_client_would_place_them() -> None:
    racks = {"a": "/r1", "b": "/r2", "c": "/r2", "d": "/r1"}
    for ledger_id in range(20):
        effects = Effects(situation(Question(lose=("a",)), racks=racks))
        assert effects.of(fragment("ab", ledger_id=ledger_id)) is not None
        assert effects.loads[BookieId("d")].received_copies == 100
        assert BookieId("c") not in effects.loads


def test_where_racks_are_insisted_on_a_loss_that_leaves_one_is_impossible_to_mend() -> None:
    racks = {"a": "/r1", "b": "/r2", "c": "/r2", "d": "/r2"}
    found = Effects(situation(Question(lose=("a",)), racks=racks, racks_min=2)).of(fragment("ab"))
    assert found is not None
    assert (found.written_copies, found.unplaced_copies) == (0, 100)
    assert "over 2 racks" in found.impossible


def test_the_dice_fall_alike_for_the_same_fragment_and_differ_between_ledgers() -> None:
    def takers(count: int) -> list[list[BookieId]]:
        found = []
        for ledger_id in range(count):
            effects = Effects(situation(Question(lose=("a",)), "abcdefgh"))
            effects.of(fragment("ab", ledger_id=ledger_id))
            found.append([each for each, load in effects.loads.items() if load.received_copies])
        return found

    first = takers(30)
    assert first == takers(30)
    assert len({each for [each] in first}) == 6


def test_a_later_fragment_counts_with_its_share_of_the_ledgers_bytes() -> None:
    effects = Effects(situation(Question(lose=("a",))))
    found = effects.of(fragment("ab", 99, first=90, end=199))
    assert found is not None
    assert (found.affected, found.written_bytes) == (10, 100)


def test_other_quorums_write_the_ledger_anew_and_leave_nothing_where_it_was() -> None:
    effects = Effects(situation(Question(quorums=Quorums(3, 3, 2))))
    found = effects.of(fragment("ab"))
    assert found is not None
    assert (found.affected, found.written_copies, found.read_bytes, found.written_bytes) == (100, 300, 1000, 3000)
    assert (found.no_copy, found.lost_copies) == (0, 0)
    assert sum(load.received_bytes for load in effects.loads.values()) == 3000
    assert all(load.gone_bytes == load.before_bytes for load in effects.loads.values())


def test_all_fragments_of_a_ledger_go_to_one_new_ensemble() -> None:
    effects = Effects(situation(Question(quorums=Quorums(3, 3, 2)), "abcdefgh"))
    effects.of(fragment("ab", 49, end=99))
    effects.of(fragment("ac", 99, first=50, end=99))
    assert sorted(load.received_copies for load in effects.loads.values())[-3:] == [100, 100, 100]


def test_a_ledger_that_has_these_quorums_stays_where_it_is() -> None:
    for quorums in (Quorums(2, 2, 2), Quorums(ensemble=2), Quorums(write_quorum=2), Quorums(ack_quorum=2)):
        effects = Effects(situation(Question(quorums=quorums)))
        assert effects.of(fragment("ab")) is None
        assert sum(load.received_bytes for load in effects.loads.values()) == 0


def test_a_ledger_of_another_ack_quorum_is_written_anew_as_it_lies() -> None:
    """That of a ledger never changes, no more than where its copies are."""
    effects = Effects(situation(Question(quorums=Quorums(ack_quorum=1))))
    found = effects.of(fragment("ab"))
    assert found is not None
    assert (found.affected, found.written_copies, found.read_bytes, found.written_bytes) == (100, 200, 1000, 2000)
    assert sum(load.gone_bytes for load in effects.loads.values()) == 2000


def test_quorums_that_cannot_be_had_say_why() -> None:
    wide = Effects(situation(Question(quorums=Quorums(ensemble=5)))).of(fragment("ab"))
    assert wide is not None
    assert "needs 5 bookies and 4 are writable" in wide.impossible
    crooked = Effects(situation(Question(quorums=Quorums(write_quorum=3)))).of(fragment("ab"))
    assert crooked is not None
    assert "ensemble size 2, write quorum 3, ack quorum 2" in crooked.impossible
    assert crooked.written_bytes == 0
