"""`bookkeeper metadata`: the comparison, its text, and the arguments of a decision."""

from __future__ import annotations

import argparse
import json
import random
from array import array
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.cli.metadata import command, facts, records
from bookkeeper.cli.metadata.comparison import BookieFacts, Facts, compare, held_by_none
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.cluster.history_format import GeneratedIds, Report
from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo, LedgerId
from tests.support.metadata_contract.world import ledger
from tests.support.metadata_scene import MetadataScene
from tests.support.simulated_clock import SimulatedClock

A, B = BookieId("a:3181"), BookieId("b:3181")


def _facts(*bookies: BookieFacts, ledgers: tuple[int, ...] = (1, 2, 3), **more: object) -> Facts:
    return Facts("zk/ledgers", GeneratedIds(10, 0), ledgers, bookies, **more)  # type: ignore[arg-type]


def test_a_sound_cluster_has_nothing_to_decide() -> None:
    found = compare(_facts(BookieFacts(A, array("q", [1, 2, 9])), BookieFacts(B, array("q", [3]))))
    assert not found.has_findings
    assert not found.is_partial
    assert "nothing to decide" in found.lines()
    assert found.json()["bookies"][0]["absent_ledgers"] == ((9, 9),)  # type: ignore[index] # waits for collection


def test_ids_that_were_never_given_out_are_shown_and_are_no_finding() -> None:
    """A client may have chosen the ids and deleted the ledgers, which wait for collection."""
    found = compare(_facts(BookieFacts(A, array("q", [1, 9, 12, 13, 2**40]))))
    assert not found.has_findings
    assert found.is_partial, "perhaps the store went back, and the bookie has not looked yet"
    assert list(found.bookies[0].beyond) == [12, 13, 2**40]
    text = "\n".join(found.lines())
    assert "a:3181: 5 ledgers, the newest is 1099511627776" in text
    assert "  with ids that the store has not given out: 12-13, 1099511627776 (3 ledgers)" in text


@pytest.mark.parametrize(
    "bookie",
    [
        BookieFacts(A, array("q", [1]), finding="counter 4, which was 5"),
        BookieFacts(A, array("q", [1]), kept_count=2, kept=((7, 8),)),
        BookieFacts(A, None, problem="no HTTP", finding="counter 4, which was 5", absent=((7, 8),)),
    ],
)
def test_a_finding_of_a_bookie_is_shown_with_advice(bookie: BookieFacts) -> None:
    found = compare(_facts(bookie))
    assert found.has_findings
    text = "\n".join(found.lines())
    assert "bookkeeper metadata discard IDS --all" in text
    assert ("bookkeeper metadata keep --all" in text) == bool(bookie.finding)  # "keep" was chosen where there is none
    assert (bookie.finding or "7-8 (2 ledgers)") in text


def test_kept_ledgers_that_the_store_has_again_are_named() -> None:
    found = compare(_facts(BookieFacts(A, array("q", [1, 2, 7]), kept_count=3, kept=((2, 3), (7, 7)))))
    assert "    of these, the store has: 2-3 (2 ledgers); discard deletes none of them" in found.lines()
    assert found.json()["bookies"][0]["kept_and_in_store"] == ((2, 3),)  # type: ignore[index]


def test_a_bookie_that_cannot_be_asked_makes_the_answer_partial() -> None:
    found = compare(_facts(BookieFacts(A, None, problem="it is not registered"), unheld_unknown="no list from a:3181"))
    assert found.is_partial
    assert not found.has_findings
    text = "\n".join(found.lines())
    assert "a:3181: could not be asked: it is not registered" in text
    assert "no bookie has: not known: no list from a:3181" in text
    assert "nothing to decide, as far as is known now" in text
    assert found.json()["bookies"][0]["absent"] is None  # type: ignore[index]
    json.dumps(found.json())


def test_ledgers_that_no_bookie_has_are_a_finding() -> None:
    bookies = [BookieFacts(A, array("q", [1, 4])), BookieFacts(B, array("q", [2]))]
    assert list(held_by_none((1, 2, 3, 5), bookies)) == [3, 5]
    assert compare(_facts(*bookies, unheld=(3,))).has_findings


def test_ledgers_that_no_bookie_has_come_with_advice() -> None:
    text = "\n".join(compare(_facts(BookieFacts(A, array("q", [1, 2])), unheld=(3,))).lines())
    assert "start the bookies that have these ledgers" in text
    assert "bookkeeper ledger delete ID" in text
    assert "metadata keep" not in text
    assert "metadata discard" not in text


def test_absent_ledgers_without_a_finding_come_with_the_time_of_the_next_comparison() -> None:
    """Shortly after a restart of an older ZooKeeper no bookie has compared the store yet."""
    waits = "bookies compare the store with what they have seen about once a minute: check again after that"
    assert waits in compare(_facts(BookieFacts(A, array("q", [1, 9])))).lines()
    assert waits not in compare(_facts(BookieFacts(A, array("q", [1, 2])))).lines()
    assert waits not in compare(_facts(BookieFacts(A, array("q", [1, 9]), finding="counter 4, which was 5"))).lines()


def test_a_registration_that_cannot_be_read_is_named_as_the_problem() -> None:
    scene = MetadataScene()
    scene.now(scene.maker.registration.register(A, BookieServiceInfo(()), BookieMode.WRITABLE))
    scene.shared.damage(f"/ledgers/available/{A}", b"\x00\xff")
    stored = scene.now(facts.read_store(scene.store(), BadRecords()))
    assert facts.ask(stored, A).problem.startswith("its registration cannot be read: ")


def test_a_ledger_record_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = MetadataScene()
    ids = [scene.now(scene.maker.ledgers.create(ledger()))[0] for _ in range(3)]
    path = f"/ledgers{hierarchical_path(ids[1])}"
    scene.shared.damage(path, b"\x00\xff")
    bad_records = BadRecords()
    assert scene.now(records.read_records(scene.store(), [*ids, LedgerId(77)], bad_records)) == 0
    assert [each.path for each in bad_records.named] == [path]
    monkeypatch.setattr(records, "RECORDS_MAX", 2)
    assert scene.now(records.read_records(scene.store(), ids, bad_records)) == 1


@pytest.mark.parametrize(
    ("kept", "silent", "garbage", "code"),
    [(1, True, True, 1), (0, True, False, 3), (0, False, True, 3), (0, False, False, 0)],
)
def test_something_to_decide_wins_over_what_was_not_read(
    monkeypatch: pytest.MonkeyPatch, kept: int, silent: bool, garbage: bool, code: int
) -> None:
    bookies = [BookieFacts(A, array("q"), kept_count=kept, kept=((1, 1),) * kept)]
    bookies += [BookieFacts(B, None, problem="it is not registered")] * silent
    monkeypatch.setattr(facts, "find_out", lambda *_: _facts(*bookies))

    def read(_: object, bad_records: BadRecords, __: object) -> int:
        if garbage:
            bad_records.add("/ledgers/00/0000/L0001", "not ledger metadata")
        return 0

    monkeypatch.setattr(records, "read_all", read)
    assert command.run(_parse("check", "--json")) == code


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def test_ledgers_to_discard_are_ids_and_ranges() -> None:
    assert _parse("discard", "25,17,20-24", "--all").ledgers == ((17, 17), (20, 25))
    for bad in ("", "x", "5-", "7-6", "-3", "9223372036854775808", "1,,2"):
        with pytest.raises(SystemExit):
            _parse("discard", bad, "--all")


def test_a_decision_names_its_bookies() -> None:
    for arguments in (["keep"], ["discard", "1"], ["keep", "--all", "--bookie", A]):
        with pytest.raises(SystemExit):
            _parse(*arguments)


def test_changes_during_a_comparison_are_no_difference() -> None:
    """A ledger is created before the bookies are asked, and one after it."""
    store = [1, 2]
    asked: list[str] = []

    def ask(_: facts.Stored, bookie_id: BookieId) -> BookieFacts:
        store.append(3)
        found = BookieFacts(bookie_id, array("q", store))
        store.append(4)
        asked.append(bookie_id)
        return found

    found = facts.find_out_with(
        lambda: facts.Stored("zk", array("q", store), {}, {A: None}),
        lambda: (array("q", store), GeneratedIds(1 + len(store), 0)),
        list,
        ask,
    )
    assert asked == [A]
    compared = compare(found)
    assert not compared.has_findings
    assert not compared.bookies[0].absent
    assert not compared.bookies[0].beyond


def test_a_ledger_that_is_deleted_during_a_comparison_is_not_absent() -> None:
    """Bookies collect it some time after the deletion."""
    found = facts.find_out_with(
        lambda: facts.Stored("zk", array("q", [1, 2, 3]), {}, {A: None}),
        lambda: (array("q", [1, 3, 4]), GeneratedIds(5, 0)),
        list,
        lambda _, bookie_id: BookieFacts(bookie_id, array("q", [0, 1, 2, 3])),
    )
    compared = compare(found)
    assert list(compared.bookies[0].absent) == [0]
    assert "zk: 3 ledgers, the newest is 4" in next(compared.lines())


def test_ledgers_without_a_bookie_beyond_the_bound_may_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "UNHELD_MAX", 3)
    ledgers = array("q", range(5))
    found = facts.find_out_with(
        lambda: facts.Stored("zk", ledgers, {}, {A: None}),
        lambda: (ledgers, GeneratedIds(5, 0)),
        lambda ledger_ids: [each for each in ledger_ids if each == 1],
        lambda _, bookie_id: BookieFacts(bookie_id, array("q")),
    )
    assert found.unheld == [1]
    assert "for 2 more ledgers" in found.unheld_unknown


def test_decisions_go_to_the_bookies_of_the_cluster_that_have_a_note() -> None:
    """The note of a decommissioned bookie stays, and no bookie would read a decision."""
    store = MemoryMetadataStore(MemoryMetadata(), SimulatedClock(), random.Random(0))
    with_cookie, registered, gone = (BookieId(f"{name}:3181") for name in "crg")
    for bookie_id in (with_cookie, registered, gone):
        _now(store.history.write(bookie_id, 1, Report(), None))
    _now(store.cookies.write(with_cookie, b"4", None))
    _now(store.cookies.write(B, b"4", None))
    _now(store.registration.register(registered, BookieServiceInfo(()), BookieMode.READ_ONLY))
    assert _now(Deferred.fromCoroutine(facts.bookies_with_notes(store))) == [with_cookie, registered]


def _now(done: Deferred[Any]) -> Any:
    found: list[Any] = []
    done.addBoth(found.append)
    return found[0]


@pytest.mark.parametrize(("action", "words"), [("check", []), ("keep", ["--all"]), ("discard", ["1", "--all"])])
def test_the_help_of_an_action_has_its_exit_codes(
    action: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _parse(action, *words, "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "Exit codes: 0 " in text
    assert ("replaces an earlier one that the bookie has not applied yet" in text) == (action != "check")
    assert ("api/v1/bookie/gc" in text) == (action != "check")
