"""`bookkeeper why ledger` of entries of which no bookie has a copy."""

from __future__ import annotations

import random

from bookkeeper.cli.why.ledger import explain_ledger
from bookkeeper.cli.why.lost import EntrySpan, lost_entries
from bookkeeper.errors import BookKeeperError, ConnectFailed
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.fragments import fragments_of
from tests.unit.cli.test_why import B, ledger

NO_ANSWER = ConnectFailed("no answer")
DELETE = "bookkeeper ledger delete 7 --force"


def test_entries_without_any_copy_are_called_lost_and_no_repair_is_promised() -> None:
    said = explain_ledger(ledger(held={B[0]: [], B[1]: []}, elsewhere={B[2]: [], B[3]: []}))
    assert said.healthy is False
    assert said.headline == (
        "CLOSED at entry 9, 100 bytes, and no copy is left of 10 entries (0..9): the bookies that should hold them "
        "lack them"
    )
    assert said.next == ["nothing for 10 entries: auto-recovery makes a copy only out of another one"]
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
