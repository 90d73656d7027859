"""`bookkeeper why ledger` of entries without a copy, and of a ledger that the store lacks."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.cli.why.explanation import Explanation
from bookkeeper.cli.why.ledger import explain_ledger
from bookkeeper.cli.why.ledger_facts import ASKED_MAX, notes_of
from bookkeeper.cli.why.lost import EntrySpan, lost_entries
from bookkeeper.errors import BookKeeperError, ConnectFailed, MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.cluster.history_format import Note, Report
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.copies.fragments import fragments_of
from tests.unit.cli.test_why import NOW, B, ledger

NO_ANSWER = ConnectFailed("no answer")
DELETE = "bookkeeper ledger delete 7 --force"


def test_entries_without_any_copy_are_called_lost_and_no_repair_is_promised() -> None:
    said = explain_ledger(ledger(held={B[0]: [], B[1]: []}, elsewhere={B[2]: [], B[3]: []}))
    assert said.healthy is False
    assert said.headline == (
        "CLOSED at entry 9, 100 bytes, and no copy is left of 10 entries (0..9): the bookies that should hold them "
        "lack them"
    )
    assert said.next == ["nothing for 10 entries: auto-recovery can only copy an existing good copy"]
    assert said.do[0] == "bring back a bookie or a disk that has these entries"
    assert said.do[1].startswith(f"if there is none, give the ledger up: {DELETE}; all its entries are lost")
    assert len(said.do) == 2
    assert said.facts["entries_without_copy"] == 10


def test_a_bookie_without_an_answer_may_have_the_entries() -> None:
    said = explain_ledger(ledger(held={B[0]: [], B[1]: NO_ANSWER}))
    assert "no copy is left" not in "\n".join(said.lines())
    assert not any(DELETE in line for line in said.do)
    said = explain_ledger(ledger(held={B[0]: [], B[1]: []}, elsewhere={B[2]: NO_ANSWER, B[3]: []}))
    assert f"whether {B[2]} may have them is unknown: no answer" in said.holds
    assert said.do[0] == f"bring back a bookie or a disk that has these entries, such as {B[2]}"


def test_a_ledger_that_another_bookie_has_is_not_given_up() -> None:
    said = explain_ledger(ledger(held={B[0]: [], B[1]: []}, elsewhere={B[2]: [range(10)], B[3]: []}))
    assert f"{B[2]}, which is not in its ensembles, holds entries 0..9" in said.holds
    assert said.do[0].startswith(f"keep the ledger: {B[2]} may have these entries")
    assert not any(DELETE in line for line in said.do)


def test_an_unregistered_bookie_may_have_the_last_copies() -> None:
    registered = dict.fromkeys((B[0], B[2], B[3]), "writable")
    said = explain_ledger(ledger(held={B[0]: []}, registered=registered))
    (line,) = said.errors
    assert line.startswith("10 entries (0..9) cannot be read now: ")
    assert line.endswith(f", and {B[1]} is not registered")
    assert f"bring {B[1]} back before anything else: its copies are the last" in said.do
    assert not any(DELETE in line for line in said.do)


def test_what_has_another_copy_is_still_repaired() -> None:
    said = explain_ledger(ledger(held={B[0]: [range(9)], B[1]: [range(8)]}))
    assert "no copy is left of 1 entry (9)" in said.headline
    assert any(line.startswith("the auditor finds it") for line in said.next)


def absent(**changes: object) -> Explanation:
    held = {B[0]: [range(10)], B[1]: [range(10)], B[2]: []}
    return explain_ledger(ledger(**{"metadata": NoSuchLedger("ledger 7 does not exist"), "held": held, **changes}))


def test_a_ledger_that_bookies_keep_from_an_older_store_is_not_called_deleted() -> None:
    notes = {
        B[0]: Report(reported_ms=NOW - 1000, finding="the store went back", absent=((5, 9),)),
        B[1]: Report(reported_ms=NOW - 1000, kept=((7, 7),)),
        B[2]: Report(finding="the store went back"),
    }
    said = absent(notes=notes)
    assert said.healthy is False
    assert said.headline.startswith("is not in zk://z/ledgers, and 2 bookies kept its entries: ")
    assert (
        f"{B[0]} reported 2023-11-14 22:13:19 UTC (1 s ago) why it deletes nothing: the store went back" in said.holds
    )
    assert any(line.startswith(f"{B[1]} reported") and "until an operator decides" in line for line in said.holds)
    assert not any("deletes its entries" in line for line in said.next)
    assert [line.split(" shows")[0] for line in said.do] == ["bookkeeper metadata check"]
    assert said.facts["kept_by"] == [B[0], B[1]]


def test_a_bookie_that_did_not_see_an_older_store_deletes_its_entries() -> None:
    said = absent(notes={B[0]: Report(absent=((7, 7),)), B[1]: Report(kept=((7, 7),))})
    assert said.next[0].startswith(f"{B[0]} deletes its entries once two rounds of garbage collection")
    said = absent(notes={B[0]: Report(), B[1]: Report(kept=((8, 9),))})
    assert said.headline.endswith("it was deleted, or never made")
    assert said.healthy


def test_without_a_bookies_note_it_is_unknown_whether_it_deletes() -> None:
    said = absent(notes={B[0]: MetadataCorrupt("no note"), B[1]: Report()})
    assert said.healthy is None
    assert f"whether {B[0]} keeps the ledger is unknown: its note in the store was not read: no note" in said.holds
    assert said.next[0].startswith(f"{B[1]} deletes")


def test_notes_are_read_from_the_store_registered_bookies_first() -> None:
    async def bookies() -> list[BookieId]:
        return [BookieId(f"a{number:03}:1") for number in range(ASKED_MAX)] + B

    async def look(bookie_id: BookieId) -> SimpleNamespace:
        if bookie_id == B[1]:
            raise MetadataCorrupt("no note")
        return SimpleNamespace(note=None if bookie_id == B[2] else Note(1, Report(finding=bookie_id)))

    history: Any = SimpleNamespace(bookies=bookies, look=look)
    found = Deferred.fromCoroutine(notes_of(history, dict.fromkeys(B, "writable"))).result
    assert list(found)[:2] == B[:2]
    assert len(found) == ASKED_MAX - 1
    assert found[B[0]] == Report(finding=B[0])
    assert str(found[B[1]]) == "no note"


def test_lost_entries_are_those_that_one_by_one_counting_finds(rng: random.Random) -> None:
    for _ in range(200):
        size = rng.randint(1, 4)
        write_quorum = rng.randint(1, size)
        bookies = [BookieId(f"b{number}:1") for number in range(6)]
        firsts = sorted({0, *rng.sample(range(30), 2)})
        metadata = LedgerMetadata(
            size,
            write_quorum,
            write_quorum,
            tuple(Fragment(EntryId(first), tuple(rng.sample(bookies, size))) for first in firsts),
            LedgerState.CLOSED,
            EntryId(rng.randint(-1, 40)),
            100,
        )
        registered = {each: "writable" for each in bookies if rng.random() < 0.8}
        has = {each: {entry for entry in range(45) if rng.random() < 0.4} for each in registered}
        held: dict[BookieId, list[range] | BookKeeperError] = {
            each: [range(entry, entry + 1) for entry in sorted(has[each])] if rng.random() < 0.9 else NO_ANSWER
            for each in registered
        }
        gone, away = EntrySpan(), EntrySpan()
        for fragment in fragments_of(metadata):
            for entry in range(fragment.first_entry_id, fragment.last_entry_id + 1):
                members = [fragment.ensemble[index] for index in write_set(entry, size, write_quorum)]
                asked = [each for each in members if each in registered]
                if asked and all(held[each] is not NO_ANSWER and entry not in has[each] for each in asked):
                    (gone if len(asked) == len(members) else away).add(range(entry, entry + 1))
        found = lost_entries(metadata, fragments_of(metadata), registered, held)
        assert (found.gone, found.away) == (gone, away)
