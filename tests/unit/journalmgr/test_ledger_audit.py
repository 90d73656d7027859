"""Ledgers looked at from outside: entries that cannot be read, ledgers that come and go, which ones are edit logs."""

import struct
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.client.read.entries import Entry
from bookkeeper.errors import BookKeeperError, EntryMissing, NoSuchLedger, NotEnoughBookies
from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState
from journalmgr.cli.session import Session
from journalmgr.config import JournalSettings
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import SegmentUnreadable
from journalmgr.ledger_audit import ENTRIES_AT_ONCE, Census, LedgerAudit, Orphan, judged
from journalmgr.model import OPAQUE, UNKNOWN_LAYOUT, Segment, TxId
from journalmgr.reading import Batch, salvage_ledgers
from journalmgr.salvage import Skipped
from journalmgr.verify import Problem

START = encode_record(OpCode.START_LOG_SEGMENT, 1, b"")
OPEN = LedgerMetadata(
    1, 1, 1, (Fragment(EntryId(0), (BookieId("b1:3181"),)),), digest_type=DigestType.MAC, password=b"pw"
)


@dataclass
class FakeLedger:
    """Entries, and what reading them fails with."""

    entries: list[bytes | BookKeeperError]
    metadata: LedgerMetadata = OPEN
    opened: int = 0


@dataclass
class FakeHandle:
    ledger: FakeLedger
    closed: bool = False

    @property
    def last_add_confirmed(self) -> int:
        return len(self.ledger.entries) - 1

    def read(self, first: int, last: int) -> Deferred[list[Entry]]:
        found = []
        for entry_id in range(first, last + 1):
            payload = self.ledger.entries[entry_id]
            if isinstance(payload, BookKeeperError):
                return fail(payload)
            found.append(Entry(entry_id, payload, 0))
        return succeed(found)

    def close(self) -> Deferred[None]:
        self.ledger.opened -= 1
        return succeed(None)


@dataclass
class FakeClient:
    """Ledgers by id. unknown: those whose metadata cannot be had."""

    ledgers: dict[int, FakeLedger]
    unknown: dict[int, BookKeeperError] = field(default_factory=dict)

    def metadata(self, ledger_id: int) -> Deferred[LedgerMetadata]:
        if ledger_id in self.unknown:
            return fail(self.unknown[ledger_id])
        if ledger_id not in self.ledgers:
            return fail(NoSuchLedger(f"ledger {ledger_id} does not exist"))
        return succeed(self.ledgers[ledger_id].metadata)

    def open_without_recovery(self, ledger_id: int, password: bytes) -> Deferred[FakeHandle]:
        assert password == b"pw"
        if ledger_id not in self.ledgers:
            return fail(NoSuchLedger(f"ledger {ledger_id} does not exist"))
        self.ledgers[ledger_id].opened += 1
        return succeed(FakeHandle(self.ledgers[ledger_id]))

    async def ids(self, bad_records: object = None) -> AsyncIterator[list[LedgerId]]:
        yield [LedgerId(each) for each in sorted({*self.ledgers, *self.unknown})]


def run(story: Coroutine[Any, Any, Any]) -> Any:
    outcome: list[Any] = []
    Deferred.fromCoroutine(story).addBoth(outcome.append)
    assert outcome, "it waits for something that never comes"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    return outcome[0]


def audit_of(client: FakeClient) -> LedgerAudit:
    return LedgerAudit(client, b"pw")  # type: ignore[arg-type]


def segment(ledger_id: int, last: int | None = None) -> Segment:
    return Segment(TxId(1), None if last is None else TxId(last), OPAQUE, ledger_id)


def opaque(txid: int) -> bytes:
    return encode_record(OpCode.OPAQUE, txid, b"x")


async def all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


# --- entries


def test_an_entry_that_cannot_be_read_does_not_hide_the_others() -> None:
    count = 2 * ENTRIES_AT_ONCE + 3
    entries: list[bytes | BookKeeperError] = [opaque(number + 1) for number in range(count)]
    entries[70] = EntryMissing("entry 70 is on no bookie")
    ledger = FakeLedger(entries)
    blocks = [block for group in run(all_of(audit_of(FakeClient({7: ledger})).blocks(segment(7)))) for block in group]
    assert [block.entry_id for block in blocks] == list(range(count))
    assert [block.entry_id for block in blocks if block.error is not None] == [70]
    assert blocks[70].payload == b""
    assert blocks[71].payload == opaque(72)
    assert ledger.opened == 0


def test_salvage_goes_on_behind_entries_and_ledgers_that_cannot_be_read() -> None:
    damaged = bytearray(opaque(3))
    damaged[14] ^= 1
    client = FakeClient(
        {
            7: FakeLedger([opaque(1), EntryMissing("gone"), bytes(damaged) + opaque(4)]),
            9: FakeLedger([opaque(9)]),
        }
    )
    found = run(all_of(salvage_ledgers(audit_of(client), [segment(7), segment(8), segment(9)])))
    assert [record.txid for each in found if isinstance(each, Batch) for record in each.records] == [1, 4, 9]
    missing, corrupt, gone = (str(each) for each in found if isinstance(each, Skipped))
    assert "entry 1: skipped all of it: cannot be read: gone" in missing
    assert f"entry 2: skipped bytes 0..{len(damaged) - 1}" in corrupt
    assert "ledger 8" in gone
    assert "does not exist" in gone


# --- segments


def test_a_finalised_segment_needs_a_closed_ledger_and_one_in_progress_does_not() -> None:
    closed = replace(OPEN, state=LedgerState.CLOSED, last_entry_id=EntryId(0), length=17)
    client = FakeClient({1: FakeLedger([START], closed), 2: FakeLedger([START])})
    audit = audit_of(client)
    assert run(audit.check(segment(1, last=1))) == []
    assert run(audit.check(segment(2))) == []
    (finding,) = run(audit.check(segment(2, last=1)))
    assert (finding.problem, finding.ledger_id) == (Problem.LEDGER_OPEN, 2)


# --- ledgers that no segment names


def census(client: FakeClient, *named: set[int], seen: list[int] | None = None) -> Census:
    answers = list(named)

    async def named_now() -> set[int]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    found: Census = run(audit_of(client).census(named_now, on_progress=None if seen is None else seen.append))
    return found


def test_only_what_begins_as_a_segment_does_is_an_orphan() -> None:
    without_length = struct.pack(">Bq", OpCode.START_LOG_SEGMENT, 33)
    without_length += struct.pack(">I", crc32(without_length))
    seen: list[int] = []
    client = FakeClient(
        {
            1: FakeLedger([START]),
            2: FakeLedger([encode_record(OpCode.START_LOG_SEGMENT, 21, b"") + opaque(22)]),
            3: FakeLedger([without_length + b"more"]),
            4: FakeLedger([]),
            5: FakeLedger([b""]),
            6: FakeLedger([opaque(1)]),
            7: FakeLedger([START[:-1]]),
            8: FakeLedger([bytes([OpCode.START_LOG_SEGMENT]) * 40]),
            9: FakeLedger([START], replace(OPEN, digest_type=DigestType.CRC32C)),
            10: FakeLedger([START], replace(OPEN, password=b"other")),
        }
    )
    found = census(client, {1}, seen=seen)
    assert [(orphan.ledger_id, orphan.first_txid) for orphan in found.orphans] == [(2, 21), (3, 33)]
    assert (found.ledgers, found.unread, seen) == (10, {}, [10])
    assert all(ledger.opened == 0 for ledger in client.ledgers.values())


def test_what_is_named_or_deleted_meanwhile_is_no_orphan() -> None:
    """Ledger 1 gets into a list, and ledger 3 is deleted, after they were looked at."""
    client = FakeClient({number: FakeLedger([START]) for number in (1, 2, 3)})
    lists: list[set[int]] = [set(), {1}]

    async def named() -> set[int]:
        if len(lists) == 1:
            del client.ledgers[3]
        return lists.pop(0)

    found: Census = run(audit_of(client).census(named))
    assert [orphan.ledger_id for orphan in found.orphans] == [2]
    assert lists == []


def test_a_ledger_of_which_nothing_can_be_told_is_told_as_that() -> None:
    client = FakeClient(
        {1: FakeLedger([NotEnoughBookies("b1 does not answer")]), 2: FakeLedger([START])},
        unknown={5: NotEnoughBookies("metadata not readable")},
    )
    found = census(client, set())
    assert found.unread == {1: "b1 does not answer", 5: "metadata not readable"}
    assert [orphan.ledger_id for orphan in found.orphans] == [2]


def orphan(ledger_id: int, first_txid: int) -> Orphan:
    return Orphan(ledger_id, TxId(first_txid), closed=True, ctime_ms=None)


def test_only_a_note_of_the_journal_itself_makes_an_orphan_of_what_no_list_names() -> None:
    findings, possible = judged([orphan(2, 1), orphan(3, 9)], {3, 4}, [], all_named=False)
    assert [(finding.problem, finding.ledger_id) for finding in findings] == [(Problem.ORPHAN, 3)]
    assert "this journal began to delete it" in findings[0].text
    assert [each.orphan.ledger_id for each in possible] == [2]


def test_where_all_journals_are_named_what_none_names_is_an_orphan() -> None:
    findings, possible = judged([orphan(2, 77)], set(), [], all_named=True)
    assert [(finding.problem, finding.ledger_id) for finding in findings] == [(Problem.ORPHAN, 2)]
    assert "ledger 2 holds an edit log from txid 77 on, and no segment names it" in findings[0].text
    assert possible == []


def test_what_begins_where_the_journal_has_a_gap_is_told_as_that() -> None:
    segments = [Segment(TxId(1), TxId(10), OPAQUE, 1), Segment(TxId(21), TxId(30), OPAQUE, 2)]
    _, possible = judged([orphan(3, 11), orphan(4, 31), orphan(5, 21)], set(), segments, all_named=False)
    assert [each.orphan.ledger_id for each in possible if "where this journal has a gap" in each.text] == [3]


def test_a_segment_with_an_unreadable_record_is_reported() -> None:
    audit = audit_of(FakeClient({}))
    unreadable = Segment(TxId(11), None, UNKNOWN_LAYOUT, None, "inprogress_b")
    for ask in (audit.check, audit.open, audit.end_in_progress):
        with pytest.raises(SegmentUnreadable, match=r"^segment 11\.\.in progress .*: its record cannot be read"):
            run(ask(unreadable))

    async def salvaged() -> list[Any]:
        return [found async for found in salvage_ledgers(audit, [unreadable])]

    [lost] = run(salvaged())
    assert isinstance(lost, Skipped)
    assert "its record cannot be read" in str(lost.error)


def test_a_read_that_ends_before_a_segment_with_an_unreadable_record_warns(capsys: pytest.CaptureFixture[str]) -> None:
    unreadable = Segment(TxId(11), None, UNKNOWN_LAYOUT, None, "inprogress_b")
    commands: Any = Session(JournalSettings())
    try:
        commands.open_audit = lambda uri: audit_of(FakeClient({}))
        journal: Any = SimpleNamespace(segments=lambda: succeed([segment(1, last=10), unreadable]))
        commands.note_left_out("bookkeeper://a/b", journal, 5)
    finally:
        commands.close()
    assert "warning: segment 11..in progress (inprogress_b): its record cannot be read" in capsys.readouterr().err
