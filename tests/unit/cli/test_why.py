"""`bookkeeper why` without a cluster: counting copies, words for times and sizes, and what follows from facts."""

from __future__ import annotations

import dataclasses
import random
import socket
import threading

import pytest

from bookkeeper.bookie.integrity.damage.index_texts import file_gone
from bookkeeper.bookie.process.status_format import (
    BadLog,
    BookieStatus,
    CheckpointStatus,
    CollectionStatus,
    DamagedRange,
    DirectoryStatus,
    DiskStatus,
    ModeStatus,
    Reason,
    RegistrationStatus,
    ScrubStatus,
)
from bookkeeper.bookie.storage.disks import DiskSettings
from bookkeeper.cli.main import main
from bookkeeper.cli.why.damaged import without_good_copy
from bookkeeper.cli.why.explanation import Explanation, clock_time, duration, percent, runs_text, size
from bookkeeper.cli.why.host import explain_disk, explain_readonly
from bookkeeper.cli.why.host_facts import DirectoryFacts, HostFacts, StoreFacts
from bookkeeper.cli.why.ledger import explain_ledger, missing_of
from bookkeeper.cli.why.ledger_facts import ENTRIES_READ, LedgerFacts, Progress, RepairFacts, some_entries
from bookkeeper.cli.why.processes import ProcessAnswer, whom_to_ask
from bookkeeper.cli.why.space import explain_space
from bookkeeper.cli.worker_words import TOLD_MAX, WorkerAnswer, WorkerWords, known_troubles
from bookkeeper.config import ServerSettings
from bookkeeper.console import http_questions
from bookkeeper.console.http_questions import why_out_of_reach
from bookkeeper.errors import BookieIOError, ConnectFailed, MetadataCorrupt, MetadataUnavailable
from bookkeeper.filesystem import DiskUsage
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies, BadRange
from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState
from bookkeeper.protocol.schedule import holds
from bookkeeper.replication.copies.fragments import FragmentRange
from bookkeeper.replication.copies.verdicts import CopyVerdict
from bookkeeper.replication.copies.verdicts import Standing as CopyStanding

NOW = 1_700_000_000_000
B = [BookieId(f"b{number}:1") for number in range(4)]


# --- words


def test_times_sizes_and_shares_in_words() -> None:
    assert clock_time(NOW - 240_000, NOW) == "2023-11-14 22:09:20 UTC (4 min ago)"
    assert clock_time(NOW + 3000, NOW) == "2023-11-14 22:13:23 UTC (in 3 s)"
    assert [duration(each) for each in (0, 0.25, 119, 120, 7199, 12_000, 48 * 3600, 49 * 3600 + 1)] == [
        *("0 s", "250 ms", "119 s", "2 min", "119 min", "3 h 20 min", "2 d", "2 d 1 h")
    ]
    assert [percent(each) for each in (0.95, 0.961, 1.0, 0)] == ["95 %", "96.1 %", "100 %", "0 %"]
    assert [size(each) for each in (0, 999, 1000, 1536, 1 << 30)] == ["0 B", "999 B", "0.977 KiB", "1.5 KiB", "1 GiB"]
    assert runs_text([(0, 9), (12, 12)]) == "0..9, 12"
    assert runs_text([(n, n) for n in range(0, 14, 2)]) == "0, 2, 4, 6, 8, and 2 more"


def test_the_first_trouble_is_the_headline_and_nothing_is_said_twice() -> None:
    found = Explanation("x", headline="fine")
    found.trouble("one")
    found.trouble("two")
    found.do += ["a", "a"]
    assert not found.healthy
    assert list(found.lines()) == ["x: one", "  holds    two", "           fine", "  do       a"]
    assert found.json()["do"] == ["a"]


# --- counting copies


def test_missing_entries_are_counted_as_one_by_one_counting_does(rng: random.Random) -> None:
    for _ in range(300):
        ensemble_size = rng.randint(1, 5)
        write_quorum = rng.randint(1, ensemble_size)
        first = rng.randint(0, 20)
        fragment = FragmentRange(
            first, first + rng.randint(-1, 40), tuple(BookieId(f"b{n}") for n in range(ensemble_size)), write_quorum,
            agreed=True,
        )  # fmt: skip
        held = {entry for entry in range(80) if rng.random() < rng.choice((0.1, 0.5, 0.95))}
        runs = [range(entry, entry + 1) for entry in sorted(held)]
        if rng.random() < 0.5:
            runs = _joined(sorted(held))
        for index in range(ensemble_size):
            missing = [
                entry
                for entry in range(fragment.first_entry_id, fragment.last_entry_id + 1)
                if holds(index, entry, ensemble_size, write_quorum) and entry not in held
            ]
            assert missing_of(fragment, index, runs) == (len(missing), missing[0] if missing else None)


def _joined(entries: list[int]) -> list[range]:
    runs: list[range] = []
    for entry in entries:
        if runs and runs[-1].stop == entry:
            runs[-1] = range(runs[-1].start, entry + 1)
        else:
            runs.append(range(entry, entry + 1))
    return runs


# --- ledgers


def ledger(**changes: object) -> LedgerFacts:
    metadata = LedgerMetadata(
        2, 2, 2, (Fragment(EntryId(0), (B[0], B[1])),), LedgerState.CLOSED, EntryId(9), 100, ctime_ms=NOW - 5000
    )
    facts = LedgerFacts(
        now_ms=NOW,
        ledger_id=LedgerId(7),
        store="zk://z/ledgers",
        metadata=metadata,
        registered=dict.fromkeys(B, "writable"),
        cookies=frozenset(B),
        repair=RepairFacts(True, B[3], 60, None, None, None, None),
        held={B[0]: [range(10)], B[1]: [range(10)]},
    )
    return dataclasses.replace(facts, **changes)


def test_a_bookie_that_does_not_tell_is_unknown_and_not_called_good() -> None:
    said = explain_ledger(ledger(held={B[0]: [range(10)], B[1]: ConnectFailed("nobody there")}))
    assert said.healthy is None
    assert said.json()["healthy"] is None
    assert said.headline == f"CLOSED at entry 9, 100 bytes; whether every copy is there is unknown: {B[1]} did not tell"
    assert said.next
    assert any(B[1] in line for line in said.do)
    assert f"entries 0..9: {B[1]} should hold 10; what it holds is unknown: nobody there" in said.holds
    assert "whether every copy is there is unknown until those bookies answer" in said.holds


def test_a_bookie_that_cannot_read_its_index_is_unknown_with_a_remedy() -> None:
    said = explain_ledger(ledger(held={B[0]: [range(10)], B[1]: BookieIOError("I/O error", bookie_id=B[1])}))
    assert said.healthy is None
    assert "Damaged pages of an index it makes anew out of its entry logs within seconds" in said.do[0]
    assert "not a file that is missing" in said.do[0]
    assert not any("localScrubInterval" in line or "nothing is copied" in line for line in [*said.do, *said.next])
    assert any(f"{B[1]} reports what it cannot read within seconds" in line for line in said.next)
    assert f"stop {B[1]}, run on its host: bookkeeper shell --conf FILE " in said.do[1]
    assert "regenerate-interleaved-storage-index-file -ledgerIds 7; start it again" in said.do[1]


def cannot_list(look: CopyVerdict | None = None, **changes: object) -> Explanation:
    held = {B[0]: [range(10)], B[1]: BookieIOError("I/O error", bookie_id=B[1])}
    return explain_ledger(ledger(held=held, looks={} if look is None else {(0, 1): look}, **changes))


def test_an_index_that_stays_damaged_after_its_entries_were_written_anew_needs_an_operator() -> None:
    """No report is pending, and entries can be read: no worker is promised any more."""
    said = cannot_list(CopyVerdict(1, B[1], CopyStanding.PRESENT))
    assert said.healthy is None
    assert f"{B[1]} delivered all of 8 entries that were asked of it as a sample" in said.holds
    (line,) = said.next
    assert "what it had reported was written anew" in line
    assert line.endswith("then nothing more happens by itself")
    assert "regenerate-interleaved-storage-index-file -ledgerIds 7; start it again" in said.do[1]
    for look in (None, CopyVerdict(1, B[1], CopyStanding.UNREADABLE, 4, "I/O error")):
        assert "within seconds, and a worker makes those copies anew" in cannot_list(look).next[0]


def test_why_an_index_page_stays_damaged_is_told_in_the_words_of_the_bookie() -> None:
    said = cannot_list(CopyVerdict(1, B[1], CopyStanding.PRESENT), unmended={B[1]: [f"page {n}" for n in range(5)]})
    assert said.errors == [
        *(f"{B[1]} says: page {n}" for n in range(3)),
        f"{B[1]} says so of 2 more pages of the index",
    ]


def test_of_what_has_one_copy_nothing_is_made_anew_from_others() -> None:
    metadata = LedgerMetadata(
        2, 1, 1, (Fragment(EntryId(0), (B[0], B[1])),), LedgerState.CLOSED, EntryId(9), 100, ctime_ms=NOW - 5000
    )
    said = cannot_list(metadata=metadata)
    assert any(line.startswith("nothing by itself, but for index pages: each entry ") for line in said.next)
    assert not any("out of the others" in line for line in said.next)


def test_what_a_bookie_lists_and_cannot_read_is_no_copy() -> None:
    """Its index names places in an entry log that is gone."""
    look = CopyVerdict(1, B[1], CopyStanding.UNREADABLE, 4, "I/O error")
    said = explain_ledger(ledger(looks={(0, 0): CopyVerdict(0, B[0], CopyStanding.PRESENT), (0, 1): look}))
    assert said.healthy is False
    assert said.headline == f"CLOSED at entry 9, 100 bytes, and {B[1]} cannot read entries that its index lists"
    assert f"entries 0..9: {B[1]} lists all 10 it should hold, and cannot read all: entry 4: I/O error" in said.holds
    assert f"entries 0..9: {B[0]} holds all 10 it should" in said.holds
    assert any(f"{B[1]} reports what it cannot read within seconds" in line for line in said.next)
    silent = dataclasses.replace(look, standing=CopyStanding.SILENT, reason="gone")
    assert explain_ledger(ledger(looks={(0, 1): silent})).healthy is None


def test_the_entries_read_as_a_sample_are_stored_there_and_few(rng: random.Random) -> None:
    for _ in range(200):
        size = rng.randint(1, 5)
        first = rng.randint(0, 9)
        fragment = FragmentRange(
            first, first + rng.randint(-1, 60), tuple(B[:1] * size), rng.randint(1, size), agreed=True
        )
        for index in range(size):
            stored = list(fragment.stored_by(index))
            sample = some_entries(fragment, index)
            assert set(sample) <= set(stored)
            assert len(sample) <= ENTRIES_READ
            assert (sample[:1], sample[-1:]) == (stored[:1], stored[-1:])


def test_an_open_ledger_without_entries_that_lost_a_bookie_will_be_recovered() -> None:
    """As the auditor marks it and the worker decides: an empty end is lost like any other."""
    metadata = LedgerMetadata(2, 2, 2, (Fragment(EntryId(0), (B[0], B[1])),), LedgerState.OPEN, ctime_ms=NOW - 5000)
    there = dict.fromkeys((B[0], B[2], B[3]), "writable")
    said = explain_ledger(ledger(metadata=metadata, registered=there, held={B[0]: []}, progress=Progress(-1, -1, 1.0)))
    assert any("waits openLedgerRereplicationGracePeriod" in line for line in said.next), said.next
    assert not any("leaves an open ledger alone" in line for line in said.next)
    assert f"from entry 0 on: {B[0]} has none of them to hold" in said.holds


def test_an_open_ledger_with_a_key_but_no_entry_may_be_claimed() -> None:
    metadata = LedgerMetadata(2, 2, 2, (Fragment(EntryId(0), (B[0], B[1])),), LedgerState.IN_RECOVERY)
    empty = ledger(metadata=metadata, held={B[0]: [], B[1]: []}, progress=Progress(-1, -1, 1.0))
    said = explain_ledger(dataclasses.replace(empty, claimed=frozenset(B[:2])))
    assert any(line.startswith(f"a key or a fence but no entry is on {B[0]}, {B[1]}:") for line in said.holds)
    assert any("bookkeeper ledger close-empty 7" in line for line in said.do)
    assert not any("close-empty" in line for line in explain_ledger(empty).do)


def test_known_trouble_outweighs_what_is_unknown() -> None:
    lost = {B[0]: "writable", B[2]: "writable"}
    said = explain_ledger(ledger(registered=lost, held={B[0]: ConnectFailed("nobody there")}))
    assert said.healthy is False


@pytest.mark.parametrize("unknown", ["mark", "bad_copies"])
def test_what_auto_recovery_does_not_tell_is_no_health(unknown: str) -> None:
    repair = dataclasses.replace(ledger().repair, **{unknown: MetadataUnavailable("away")})
    assert explain_ledger(ledger(repair=repair)).healthy is None


def being_written(progress: object) -> LedgerFacts:
    metadata = LedgerMetadata(2, 2, 2, (Fragment(EntryId(0), (B[0], B[1])),), LedgerState.OPEN, ctime_ms=NOW - 5000)
    held = {B[0]: [range(130)], B[1]: [range(125)]}
    return ledger(metadata=metadata, held=held, progress=progress)


def test_an_open_ledger_is_compared_up_to_what_was_acknowledged_before_the_bookies_were_asked() -> None:
    """Of entries 125..129 one copy is on its way. Mutant: compare with `lac_later`."""
    said = explain_ledger(being_written(Progress(99, 127, 1.0)))
    assert said.healthy is True
    assert said.headline == (
        "OPEN, every copy up to entry 99 is there; its writer is alive: its last confirmed entry rose by 28 in 1 s"
    )
    assert {place["missing"] for place in said.facts["places"]} == {0}  # type: ignore[attr-defined]
    assert explain_ledger(being_written(Progress(127, 127, 1.0))).healthy is False


def test_an_open_ledger_whose_acknowledged_entries_nobody_tells_is_unknown() -> None:
    assert explain_ledger(being_written(ConnectFailed("nobody there"))).healthy is None


def test_a_lost_bookie_is_marked_after_the_delay_where_an_auditor_is() -> None:
    said = explain_ledger(ledger(registered={B[0]: "writable", B[2]: "writable", B[3]: "writable"}))
    assert said.headline == f"CLOSED at entry 9, 100 bytes, and lacks copies: {B[1]} is not registered"
    assert f"the auditor is {B[3]}, lostBookieRecoveryDelay 60 s" in said.working
    assert said.next == ["the auditor marks the ledger 60 s after the bookie was lost, unless it returns"]
    assert said.errors == []


def test_entries_whose_bookies_are_all_lost_are_named() -> None:
    said = explain_ledger(ledger(registered={B[2]: "writable"}, held={}))
    nobody = "5 entries (0, 2, 4, ...) can be read from nobody now: all bookies that should hold them are lost"
    assert nobody in said.errors
    assert said.do[0].startswith("bring one of the lost bookies back before anything else")


def test_a_bookie_that_gives_no_answer_may_be_dead_and_its_session_ends() -> None:
    said = explain_ledger(ledger(held={B[0]: [range(10)], B[1]: ConnectFailed("nobody there")}))
    assert said.next == [
        f"where the process of {B[1]} is gone, its registration ends with its ZooKeeper session (zkTimeout, 10 s "
        "unless set); then the auditor marks its ledgers 60 s later (lostBookieRecoveryDelay)",
        "as long as it is registered, no verdict is no loss: none is marked for that alone; of one that is marked, "
        "a worker gives such copies to others after 2 tries",
    ]


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ({"enabled": False}, "nothing follows while auto-recovery is disabled"),
        ({"auditor": None}, "nothing follows, since no auditor is elected: run auto-recovery"),
        ({"delay_s": 0}, "the auditor marks its ledgers"),
    ],
)
def test_of_a_dead_bookie_no_repair_is_promised_where_none_follows(changes: dict[str, object], then: str) -> None:
    held = {B[0]: [range(10)], B[1]: ConnectFailed("nobody there")}
    said = explain_ledger(ledger(held=held, repair=dataclasses.replace(ledger().repair, **changes)))
    assert said.next[0].endswith(f"; then {then}")


# --- reports of damaged copies


def reports(*ranges: tuple[BookieId, int, int], reason: str = "crc") -> BadCopies:
    noted = tuple(BadRange(each, EntryId(first), EntryId(last), reason, NOW - 1000) for each, first, last in ranges)
    return BadCopies(LedgerId(7), noted, 0, 0)


def damaged(bad: BadCopies, *processes: ProcessAnswer, **changes: object) -> Explanation:
    repair = dataclasses.replace(ledger().repair, bad_copies=bad, **{"announced": 1, **changes})
    return explain_ledger(ledger(repair=repair, processes=processes))


def test_damaged_copies_that_a_bookie_reported_are_named() -> None:
    said = damaged(reports((B[0], 2, 3)))
    assert said.headline == f"{B[0]} reported damaged copies of its own"
    assert said.errors == [f"{B[0]} reported 2023-11-14 22:13:19 UTC (1 s ago) that its copies of 2..3 are bad: crc"]
    assert said.next == [
        "a worker copies them from bookies that reported no damage, verified by digest; workers look at least once a "
        "minute"
    ]
    assert said.facts["damaged"]["without_good_copy"] == []  # type: ignore[index]


def test_where_all_copies_are_reported_bad_no_good_one_is_promised() -> None:
    """The headline before it was: every copy is where it should be."""
    trouble = {"reason": "entry 3 has no good copy", "failures": 2, "secondsToNextTry": 9}
    answer = ProcessAnswer("process 1 of vm", works=True, trouble=trouble, process=recovery(1, 11))
    said = damaged(reports((B[0], 2, 3), (B[1], 3, 5)), answer)
    assert said.healthy is False
    assert said.headline == ("no good copy is known of 1 entry (3): every bookie that should hold one reported damage")
    assert said.holds[0].endswith("by what its bookies list, which says nothing of damage")
    assert "the worker of process 1 of vm failed 2 times: entry 3 has no good copy" in said.errors
    assert said.next == [
        "a worker tries again ever more seldom; it succeeds only when one bookie has a good copy",
        "the worker of process 1 of vm tries in 9 s",
    ]
    assert any(line.startswith(f"bring a good copy back: stop {B[0]} or {B[1]}, restore the files") for line in said.do)
    assert said.facts["damaged"]["without_good_copy"] == [[3, 3, 1]]  # type: ignore[index]


def test_where_the_index_is_damaged_the_copies_are_not_called_bad() -> None:
    """The remedy is to make the index anew: it brought back all entries of ledgers with one copy each."""
    bad = reports((B[0], 0, 9), (B[1], 0, 9))
    bad = dataclasses.replace(bad, ranges=tuple(dataclasses.replace(each, reason=file_gone(7)) for each in bad.ranges))
    said = damaged(bad)
    assert said.headline.startswith("no copy can be read of 10 entries (0..9): ")
    assert said.headline.endswith(f"; of {B[0]}, {B[1]} it is the index, and the entries may be whole")
    for bookie, line in zip(B, said.do[:2], strict=False):
        assert line.startswith(f"first, on the host of {bookie}, ")
        assert "regenerate-interleaved-storage-index-file -ledgerIds 7; start it again" in line


@pytest.mark.parametrize(
    ("changes", "why", "remedy"),
    [
        ({"enabled": False}, "auto-recovery is disabled", "bookkeeper shell autorecovery -enable"),
        (
            {"announced": 0, "auditor": None},
            "no process with auto-recovery runs that mends reported copies",
            "run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies",
        ),
        (
            {"announced": 0},
            "no process with auto-recovery runs that mends reported copies: the auditor is none of ours, and Apache's "
            "know no such reports",
            "run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies",
        ),
    ],
)
def test_no_worker_is_promised_where_none_works(changes: dict[str, object], why: str, remedy: str) -> None:
    said = damaged(reports((B[0], 2, 3)), **changes)
    assert said.next == [f"nothing by itself: {why}"]
    assert remedy in said.do


def test_who_could_not_be_counted_may_work_and_a_worker_that_answers_does() -> None:
    assert damaged(reports((B[0], 2, 3)), announced=MetadataUnavailable("away")).next[0].startswith("a worker copies")
    answer = ProcessAnswer("h:1", works=True)
    assert damaged(reports((B[0], 2, 3)), answer, announced=0).next[0].startswith("a worker copies")


def test_many_ranges_of_a_report_are_one_line() -> None:
    said = damaged(reports(*((B[0], 20 * each, 20 * each + 1) for each in range(46))))
    (line,) = said.errors
    assert "its copies of 0..1, 20..21, 40..41, 60..61, 80..81, and 41 more are bad: crc" in line


@pytest.mark.parametrize(
    ("ranges", "words"),
    [(((0, 2**36 - 1),), "all entries"), (((2, 3), (6, 2**36 - 1)), "2..3, and all entries from 6 on")],
)
def test_a_range_without_an_end_is_said_in_words(ranges: tuple[tuple[int, int], ...], words: str) -> None:
    (line,) = damaged(reports(*((B[0], *each) for each in ranges))).errors
    assert f"its copies of {words} are bad" in line


def striped(bad: BadCopies) -> Explanation:
    """E=3, Qw=2: entry e is on bookies e % 3 and (e + 1) % 3."""
    metadata = LedgerMetadata(
        3, 2, 2, (Fragment(EntryId(0), (B[0], B[1], B[2])),), LedgerState.CLOSED, EntryId(29), 300
    )
    repair = dataclasses.replace(ledger().repair, bad_copies=bad, announced=1)
    return explain_ledger(ledger(metadata=metadata, repair=repair, held={each: [range(30)] for each in B}))


def test_ranges_are_joined_over_entries_that_the_bookie_does_not_store() -> None:
    """b0 holds 0, 2, 3, 5, 6, ..."""
    said = striped(reports((B[0], 0, 0), (B[0], 2, 3), (B[0], 5, 6), (B[0], 9, 9)))
    assert "its copies of 0..6, 9 are bad" in said.errors[0]


def test_entries_without_a_good_copy_are_counted_as_one_by_one_counting_does(rng: random.Random) -> None:
    for _ in range(200):
        size = rng.randint(1, 4)
        quorum = rng.randint(1, size)
        fragment = FragmentRange(5, rng.randint(4, 40), tuple(B[:size]), quorum, agreed=True)
        registered = set(B) - ({rng.choice(B)} if rng.random() < 0.3 else set())
        bad = sorted(
            BadRange(rng.choice(B[:size]), EntryId(first), EntryId(first + rng.randint(0, 20)))
            for first in (rng.randint(0, 45) for _ in range(rng.randint(1, 6)))
        )
        hopeless = set()
        for entry in range(5, fragment.last_entry_id + 1):
            members = [B[index] for index in range(size) if holds(index, entry, size, quorum)]
            said = [each for each in members if any(
                bad_range.bookie_id == each and bad_range.first_entry_id <= entry <= bad_range.last_entry_id
                for bad_range in bad
            )]  # fmt: skip
            if said and all(each in said or each not in registered for each in members):
                hopeless.add(entry)
        runs = without_good_copy([fragment], bad, registered)
        assert sum(run.count for run in runs) == len(hopeless)
        assert all(any(run.first <= entry <= run.last for run in runs) for entry in hopeless)


def test_what_cannot_be_read_is_unknown_and_no_absence() -> None:
    said = explain_ledger(ledger(metadata=MetadataCorrupt("z: no header")))
    assert said.headline == "its metadata cannot be read: z: no header"
    unknown = dataclasses.replace(ledger().repair, mark=MetadataUnavailable("away"))
    assert "whether it is marked for repair is unknown: away" in explain_ledger(ledger(repair=unknown)).working


def test_what_a_worker_says_of_its_failures_is_told() -> None:
    trouble = {"failures": 3, "reason": "entry 4 cannot be read"}
    said = explain_ledger(ledger(processes=(ProcessAnswer(f"bookie {B[3]}", works=True, trouble=trouble),)))
    assert said.errors == [f"the worker of bookie {B[3]} failed 3 times: entry 4 cannot be read"]


MARKED = UnderreplicatedLedger(LedgerId(7), (B[1],), NOW - 60_000, 0, 1)


def working(*processes: ProcessAnswer, auditor: BookieId = B[3], **changes: object) -> str:
    repair = RepairFacts(True, auditor, 60, MARKED, "host7", None, None, NOW - 30_000)
    return " | ".join(explain_ledger(ledger(repair=repair, processes=processes, **changes)).working)


def recovery(pid: int, session_id: int, http: tuple[str, int] | None = ("h", 8001)) -> RecoveryProcess:
    return RecoveryProcess("vm", pid, NOW - 90_000, BookieId("vm:3181"), http, session_id)


def locked_by(session_id: int | None, *answers: ProcessAnswer, **changes: object) -> Explanation:
    repair = dataclasses.replace(
        ledger().repair, mark=MARKED, lock="vm", locked_ms=NOW - 30_000, lock_session=session_id, auditor_session=11
    )
    return explain_ledger(ledger(repair=repair, processes=answers, **changes))


WAITS = {"reason": "no bookie is left", "failures": 3, "secondsToNextTry": 9}


def test_the_worker_whose_session_owns_the_lock_says_why_it_waits() -> None:
    """Two daemons on one host, which lock and vote under one name."""
    first = ProcessAnswer("process 1 of vm", works=True, process=recovery(1, 11))
    second = ProcessAnswer("process 2 of vm", works=True, trouble=WAITS, process=recovery(2, 12))
    said = locked_by(12, first, second)
    when = "since 2023-11-14 22:12:50 UTC (30 s ago)"
    assert (
        f"locked by process 2 of vm {when}: it waits: no bookie is left (3 failures); next try in 9 s" in said.working
    )
    assert "the worker tries again in 9 s" in said.next
    assert f"the auditor is {B[3]} (process 1 of vm), lostBookieRecoveryDelay 60 s" in said.working
    said = locked_by(11, first, second)
    assert any(line.startswith(f"locked by process 1 of vm {when}: it is at work on it") for line in said.working)


def test_a_lock_of_no_session_is_held_by_no_worker() -> None:
    stray = MetadataCorrupt("/locks/urL7: belongs to no session")
    for session_id, said in (
        (None, "not locked: no worker has it in hand"),
        (12, "whether a worker has it in hand is"),
    ):
        repair = dataclasses.replace(ledger().repair, mark=MARKED, lock=stray, lock_session=session_id)
        [line] = [line for line in explain_ledger(ledger(repair=repair)).working if "in hand" in line]
        assert line.startswith(said)
        assert line.endswith(str(stray))


@pytest.mark.parametrize(
    ("session_id", "answer", "why"),
    [
        (12, ProcessAnswer("x", error=why_out_of_reach(recovery(2, 12, None)), process=recovery(2, 12, None)),
         "it serves no HTTP: httpServerEnabled=true there would show it"),
        (12, ProcessAnswer("x", error="h:8001: refused", process=recovery(2, 12)), "h:8001: refused"),
        (13, ProcessAnswer("x", works=True, trouble=WAITS, process=recovery(2, 12)),
         "no process announced itself in the metadata store for that lock"),
        (None, ProcessAnswer("x", works=True), "no process announced itself in the metadata store for that lock"),
    ],
)  # fmt: skip
def test_whether_it_works_or_waits_is_unknown_where_its_worker_does_not_tell(
    session_id: int | None, answer: ProcessAnswer, why: str
) -> None:
    (said,) = [line for line in locked_by(session_id, answer).working if line.startswith("locked by")]
    assert f": whether it works or waits is unknown: {why}" in said


def test_that_nobody_is_left_is_told_by_counting_too() -> None:
    lost = locked_by(12, registered={B[0]: "writable", B[2]: "read-only", B[3]: "read-only"})
    nobody = (
        "no bookie is left to take 1 copy of the fragment at entry 0: 1 bookie writable, all of them hold it already"
    )
    assert nobody in lost.errors
    assert "nothing, until more bookies are writable: the worker that locked it can only wait" in lost.next
    assert any(line.startswith("start more bookies") for line in lost.do)
    assert lost.facts["nobody_left"] is True
    spare = locked_by(12, registered={B[0]: "writable", B[2]: "writable"})
    assert spare.facts["nobody_left"] is False
    lacking = locked_by(12, registered={B[0]: "writable", B[1]: "writable"}, held={B[0]: [range(10)], B[1]: []})
    assert lacking.facts["nobody_left"] is False, "it takes anew what it lacks itself"


def test_each_process_is_asked_once() -> None:
    http = recovery(1, 11, ("h", 1))
    beside, silent = recovery(2, 12, ("b", 2)), recovery(3, 13, None)
    asked = whom_to_ask([("h", 1)], [http, beside, silent], [("b2:1", ("b", 2)), ("b4:1", ("b", 4))])
    assert [(each.where, each.process) for each in asked] == [
        ("h:1", http),
        ("bookie b2:1", beside),
        ("process 3 of vm", silent),
        ("bookie b4:1", None),
    ]
    loopback = dataclasses.replace(recovery(1, 11, ("127.0.0.1", 8080)), bookie_id=BookieId("b4:1"))
    assert [each.process for each in whom_to_ask([], [loopback], [("b4:1", ("b4", 8080))])] == [loopback]


def test_http_of_another_host_that_listens_on_loopback_is_out_of_reach() -> None:
    there = dataclasses.replace(recovery(1, 1, ("127.0.0.1", 1)), host="another-host")
    assert "on its own host another-host only" in why_out_of_reach(there)
    assert why_out_of_reach(recovery(1, 1, ("10.0.0.1", 1))) == ""
    here = dataclasses.replace(recovery(1, 1, ("127.0.0.1", 1)), host=socket.gethostname())
    assert why_out_of_reach(here) == ""


def test_questions_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until all have been asked: one after the other would never end but by its bound."""
    monkeypatch.setattr(http_questions, "ALL_TIMEOUT_S", 90.0)  # both bounds only detect hangs
    all_there = threading.Barrier(5, timeout=60)
    assert sorted(each or 0 for each in http_questions.all_at_once([all_there.wait] * 5)) == [0, 1, 2, 3, 4]


def test_who_does_not_answer_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(http_questions, "ALL_TIMEOUT_S", 0)
    assert http_questions.all_at_once([let_go.wait]) == [None]
    let_go.set()


def test_words_of_a_lock_are_those_of_its_session() -> None:
    told = {7: WAITS}
    words = WorkerWords(
        {
            11: WorkerAnswer(recovery(1, 11)),
            12: WorkerAnswer(recovery(2, 12), told),
            13: WorkerAnswer(recovery(3, 13), error="h:1: refused"),
            14: WorkerAnswer(recovery(4, 14), dict.fromkeys(range(100, 100 + TOLD_MAX), WAITS)),
        }
    )
    assert words.of(7, None, None) == "nobody is at work on it"
    assert words.of(7, "vm", 11) == "process 1 of vm is at work on it"
    assert words.of(7, "vm", 12) == "process 2 of vm waits: no bookie is left (3 failures); next try in 9 s"
    assert words.of(7, "vm", 13) == "locked by process 3 of vm; whether it works or waits is unknown: h:1: refused"
    assert words.of(7, "vm", 14) == "locked by process 4 of vm, which waits with more ledgers than it tells"
    assert words.of(7, "vm", 15).startswith("locked by vm; whether it works or waits is unknown: no process announced")


def test_troubles_of_all_workers_are_one_list_and_silence_is_counted() -> None:
    worse = {"ledger": 7, "reason": "no copy", "failures": 5, "secondsToNextTry": 60, "state": "unrepairable"}
    words = WorkerWords(
        {
            11: WorkerAnswer(recovery(1, 11), {7: {**WAITS, "state": "waiting"}, 8: {**WAITS, "state": "waiting"}}),
            12: WorkerAnswer(recovery(2, 12), {7: worse}),
            13: WorkerAnswer(recovery(3, 13), error="h:1: refused"),
        }
    )
    troubles = known_troubles(words)
    assert (sorted(troubles.by_ledger), troubles.unrepairable, troubles.unasked) == ([7, 8], 1, 1)
    assert troubles.of(7) == "not repaired: no copy (5 failures); next try in 60 s"
    assert troubles.of(9) == "no worker failed on it, as far as known: 1 did not tell"
    assert known_troubles(WorkerWords({})).of(9) == "no worker failed on it"


def test_what_only_the_store_knows_is_told_and_the_rest_is_unknown() -> None:
    said = working(bookies_unasked=4)
    assert "marked for repair" in said
    assert "(60 s ago)" in said
    assert "locked by host7 since" in said
    assert "(30 s ago)" in said
    assert f"the auditor is {B[3]}, lostBookieRecoveryDelay 60 s" in said
    assert f"what the auditor does is unknown: bookie {B[3]} publishes no HTTP server" in said
    assert "why it is not repaired yet is unknown: no worker could be asked (4 bookies could not be asked" in said


def test_where_all_that_announced_themselves_told_nobody_else_is_to_be_asked() -> None:
    """It was two long lines about processes that there are none of."""
    answer = ProcessAnswer("process 1 of vm", works=True, process=recovery(1, 11))
    repair = dataclasses.replace(ledger().repair, mark=MARKED, announced=1)
    said = " | ".join(explain_ledger(ledger(repair=repair, processes=(answer,))).working)
    assert "process 1 of vm: no worker has failed on it, of all that announced themselves" in said
    assert "--ask" not in said.partition("no worker has failed")[2].partition(" | ")[0]
    silent = ProcessAnswer("process 2 of vm", error="refused", process=recovery(2, 12))
    for announced, answers in ((2, (answer,)), (2, (answer, silent)), (MetadataUnavailable("away"), (answer,))):
        repair = dataclasses.replace(repair, announced=announced)
        assert "whether others have is unknown" in " | ".join(
            explain_ledger(ledger(repair=repair, processes=answers)).working
        )


def test_an_auditor_beside_no_bookie_that_announced_nothing_is_unknown() -> None:
    said = working(auditor=BookieId("host9:3181"))
    assert "beside no registered bookie, and no process announced itself in the metadata store for its vote" in said


def test_a_process_that_does_not_answer_or_does_not_audit_is_not_taken_for_the_auditor() -> None:
    own = f"bookie {B[3]}"
    assert f"is unknown: {own} did not tell: h:1: refused" in working(ProcessAnswer(own, error="h:1: refused"))
    said = working(ProcessAnswer(own, works=True, auditor={"elected": False, "jobs": [{"job": "x", "running": True}]}))
    assert f"says that it does not audit: the election moved on, or another one stands for {B[3]}" in said
    assert "the auditor says" not in said
    assert f"{own}: no worker there has failed on it; whether others have is unknown" in said


def test_what_the_auditor_says_is_told() -> None:
    jobs = [
        {"job": "look", "said": "7 ledgers looked at", "running": True, "lastEndedSecondsAgo": None, "lastError": ""},
        {
            "job": "check",
            "said": "not done yet",
            "running": False,
            "lastEndedSecondsAgo": None,
            "lastError": "no store",
        },
    ]
    auditor = {"elected": True, "bookiesGone": [B[1]], "secondsToAudit": 12, "jobs": jobs, "lastError": ""}
    facts = ledger(
        repair=RepairFacts(True, BookieId("host9:3181"), 60, MARKED, None, None, None),
        processes=(ProcessAnswer("host9:8001", works=True, auditor=auditor),),
    )
    said = explain_ledger(facts)
    assert f"the auditor says: the audit for {B[1]} is due in 12 s" in said.working
    assert "the auditor says: look: 7 ledgers looked at" in said.working
    assert said.errors == ["the auditor's last run (check) failed: no store"]
    assert said.facts["auditor_said"] == auditor


@pytest.mark.parametrize("text", ["host", ":80", "host:", "host:0", "host:65536", "host:x"])
def test_whom_to_ask_is_a_host_and_a_port(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "ledger", "7", "--ask", text]) == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_the_host_to_ask_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "ledger", "7", "--ask", "2001:8000"]) == 2
    assert "'2001' is a number" in capsys.readouterr().err


# --- a host


def host(*, free: int, phase: str = "serving", full: bool = False, **changes: object) -> HostFacts:
    directory = DirectoryStatus("/l", ("ledgerDirectories",), 10_000, free, full, full, NOW - 60_000)
    reasons = (Reason("DISK_FULL", "ledger directories are full", NOW - 60_000),) if full else ()
    status = BookieStatus(
        written_ms=NOW - 60_000,
        bookie_id=B[0],
        process="1:1",
        started_ms=NOW - 90_000,
        phase=phase,
        phase_since_ms=NOW - 80_000,
        metadata_service_uri="zk://z/ledgers",
        instance_id="i",
        mode=ModeStatus(full, True, reasons),
        registration=RegistrationStatus("registered", "read-only" if full else "writable", NOW - 60_000),
        disks=DiskStatus(NOW, 0.95, 0.9, 0.95, True, 1, (directory,)),
        checkpoint=CheckpointStatus(NOW - 5000, 0.5, short_of_room=False),
    )
    facts = HostFacts(
        now_ms=NOW,
        bookie_id=B[0],
        settings=ServerSettings(),
        disk_settings=DiskSettings(reserve_bytes=10),
        places={"diskUsageThreshold": "bk.conf:3"},
        directories=(DirectoryFacts("/l", ("ledgerDirectories",), DiskUsage(total=10_000, free=free)),),
        store=StoreFacts("", "i", "read-only" if full else "writable", b""),
        status=status,
        status_path="/j/current/bookie.status",
        running=phase == "serving",
    )
    return dataclasses.replace(facts, **changes)


def test_a_full_disk_is_named_with_its_share_its_threshold_and_the_time() -> None:
    said = explain_readonly(host(free=390, full=True))
    assert said.headline == (
        "read-only since 2023-11-14 22:12:20 UTC (60 s ago): /l is 96.1 % full, 390 B of 9.77 KiB are free "
        "(threshold 95 %: diskUsageThreshold, bk.conf:3)"
    )
    assert "free 211 B on the disk of /l, or raise diskUsageThreshold" in said.do


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (550, "it takes files again at 94 % (threshold 95 %"),
        (700, "its ledger directories were full"),
    ],
)
def test_a_disk_that_was_full_stays_so_in_the_gap(free: int, said: str) -> None:
    assert said in explain_readonly(host(free=free, full=True)).headline
    assert explain_readonly(host(free=free)).headline == "is writable"


def test_a_nearly_full_disk_is_told_with_what_is_left() -> None:
    said = explain_disk(host(free=700))
    assert said.healthy
    assert "/l (ledgerDirectories) is nearly full: 93 % (diskUsageWarnThreshold 90 %); 200 B more and it is full" in (
        said.holds
    )


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("stopped", "does not run: it was stopped 2023-11-14 22:12:00 UTC (80 s ago)"),
        ("failed", "does not run: it failed 2023-11-14 22:12:00 UTC (80 s ago)"),
        (
            "stopping",
            "does not run, and did not say that it ended; last known state of 2023-11-14 22:12:20 UTC (60 s ago): "
            "stopping",
        ),
    ],
)
def test_what_does_not_run_has_a_last_known_state(phase: str, said: str) -> None:
    assert explain_readonly(host(free=5000, phase=phase)).headline == said


def test_the_registration_is_compared_with_what_the_bookie_says() -> None:
    said = explain_readonly(host(free=5000, store=StoreFacts("", "i", None, b"")))
    assert said.headline == (
        "it is writable, but the metadata store has it not registered (the bookie says: registered since 2023-11-14 "
        "22:12:20 UTC (60 s ago))"
    )
    away = explain_readonly(host(free=5000, store=StoreFacts("no server answers")))
    assert away.headline == "the metadata store cannot be asked: no server answers"
    assert "is writable" in away.holds


def test_without_a_status_file_nothing_is_made_up() -> None:
    said = explain_readonly(host(free=5000, status=None, status_error="there is no file", running=None))
    assert said.headline == "nothing is known of its state: there is no file"


DECOMMISSIONED = StoreFacts("", "i", None, None)


def test_a_bookie_without_a_cookie_was_decommissioned_or_has_it_restored() -> None:
    said = explain_readonly(host(free=5000, phase="stopped", store=DECOMMISSIONED, refusal="has no cookie"))
    assert said.headline == "would be refused at its start: has no cookie"
    (advice,) = said.do
    assert f"listledgers -bookieid {B[0]}` lists the ledgers that name it: where there are none" in advice
    assert not [line for line in said.next if "lostBookieRecoveryDelay" in line]


def test_a_clean_stop_is_no_crash() -> None:
    said = explain_readonly(host(free=5000, phase="stopped"))
    assert "it was stopped cleanly: the next start has nothing to make up for" in said.next
    assert [line for line in explain_readonly(host(free=5000, phase="failed")).next if "lost by a crash" in line]


def test_damage_is_named_with_ledger_entries_and_file_and_what_becomes_of_it() -> None:
    facts = host(free=5000)
    assert facts.status is not None
    damaged = (
        DamagedRange(7, 10, 19, "/l/current/0.log", 1024, "page 3 fails its checksum"),
        DamagedRange(9, 0, None, "/l/current/0/0/9.idx", 0, "its header is damaged"),
    )
    scrub = ScrubStatus("idle", None, None, 0, 3, None, damaged, NOW - 5000)
    said = explain_disk(dataclasses.replace(facts, status=dataclasses.replace(facts.status, scrub=scrub)))
    assert said.headline.startswith("3 ranges of entries on these disks failed their checksums")
    assert "damaged: ledger 7, entries 10..19: /l/current/0.log at byte 1024: page 3 fails its checksum" in said.holds
    assert "damaged: ledger 9, all entries: /l/current/0/0/9.idx at byte 0: its header is damaged" in said.holds
    assert "and 1 damaged range more" in said.holds
    assert [line.partition("` ")[0] for line in said.do] == ["`bookkeeper why ledger 7", "`bookkeeper why ledger 9"]
    (line,) = [line for line in said.working if line.startswith("the scrub")]
    assert ", said 60 s ago: idle; last round: never yet; damaged index pages were made anew, or that was tried" in line


def test_what_is_gone_with_its_file_did_not_fail_a_checksum() -> None:
    facts = host(free=5000)
    assert facts.status is not None
    gone = DamagedRange(7, 10, 19, "/l/current/0.log", 0, "the entry log is missing")
    for all_of_them, missing, expected in (
        (4, 4, "4 ranges of entries were in files that are missing or cut short; they are answered as unknown"),
        (4, 1, "3 ranges of entries on these disks failed their checksums; 1 range of entries were in files"),
    ):
        scrub = ScrubStatus("idle", None, None, 0, all_of_them, None, (gone,), gone_ranges=missing)
        said = explain_disk(dataclasses.replace(facts, status=dataclasses.replace(facts.status, scrub=scrub)))
        assert said.headline.startswith(expected)


# --- the reserve, and what df shows


SMALL = DiskSettings(reserve_bytes=1000)


def test_a_disk_short_of_the_reserve_is_told_what_helps_and_what_does_not() -> None:
    """A third used, and full: no other threshold would change that."""
    facts = host(free=900, full=True, disk_settings=SMALL)
    said = explain_readonly(facts)
    assert "/l has 900 B of 9.77 KiB free, less than the 0.977 KiB that are kept on every disk" in said.headline
    assert any("it turns writable when 1.22 KiB are free on the disk of /l" in line for line in said.next), said.next
    (advice,) = [line for line in said.do if line.startswith("free ")]
    assert advice == (
        "free 350 B on the disk of /l; raising diskUsageThreshold does not help: 0.977 KiB are kept free on every disk"
    )
    assert [line for line in explain_disk(facts).do if "raising diskUsageThreshold does not help" in line]


def test_a_disk_between_reserve_and_release_is_not_called_roomy() -> None:
    said = explain_readonly(host(free=1100, full=True, disk_settings=SMALL))
    assert "/l was full and has 1.07 KiB of 9.77 KiB free; it takes files again with 1.22 KiB" in said.headline


def test_a_small_disk_is_nearly_full_long_before_its_warning_mark() -> None:
    said = explain_disk(host(free=1700, disk_settings=SMALL))
    assert said.healthy
    assert (
        "/l (ledgerDirectories) is nearly full: 83 % (0.977 KiB are kept free on every disk); 700 B more and it is full"
        in said.holds
    )
    (line,) = [line for line in said.next if "turns read-only" in line]
    assert "or has less than 0.977 KiB free" in line


def test_what_only_root_may_write_is_said_to_be_why_df_shows_less() -> None:
    usage = DiskUsage(total=10_000, free=5000, reserved=1000)
    facts = host(free=5000)
    facts = dataclasses.replace(facts, directories=(dataclasses.replace(facts.directories[0], usage=usage),))
    said = explain_disk(facts)
    assert "/l (ledgerDirectories) is 50 % full, 4.88 KiB are free" in said.holds
    (line,) = [line for line in said.holds if "`df`" in line]
    assert line.startswith("/l: 0.977 KiB of its disk only root may write; they count as used here")
    assert line.endswith("shows 45 %")  # 4000 of 9000, rounded up as df does
    assert not [line for line in explain_disk(host(free=5000)).holds if "`df`" in line]


def test_who_may_still_write_is_said_as_the_bookie_does_it() -> None:
    facts = host(free=390, full=True)
    assert "recovery and high-priority adds still pass" in "\n".join(explain_readonly(facts).holds)
    assert facts.status is not None
    mode = dataclasses.replace(facts.status.mode, priority_writes=False)
    refused = dataclasses.replace(facts, status=dataclasses.replace(facts.status, mode=mode))
    (line,) = [line for line in explain_readonly(refused).holds if "high-priority" in line]
    assert line.endswith("no ledger directory has 1.2 GiB free (minUsableSizeForHighPriorityWrites, default)")


# --- space


COLLECTION = CollectionStatus(
    doing="waits for the next round",
    rounds=1,
    last_round_ms=NOW - 5000,
    last_round_s=1.0,
    next_round_ms=NOW + 60_000,
    ledgers_here=1,
    waiting_ledgers=0,
    deleted_ledgers=1,
    removed_logs=0,
    compacted_logs=0,
    reclaimed_bytes=0,
    live_bytes=100,
    total_bytes=1000,
    compacting="",
    last_minor_ms=None,
    last_major_ms=None,
    minor_suspended=False,
    major_suspended=False,
    alarms=0,
    quarantined_count=0,
    worth_bytes=900,
)


def space(**changes: object) -> Explanation:
    facts = host(free=5000)
    assert facts.status is not None
    collection = dataclasses.replace(COLLECTION, **changes)
    return explain_space(dataclasses.replace(facts, status=dataclasses.replace(facts.status, collection=collection)))


def test_what_waits_for_a_compaction_is_in_the_headline_with_when_it_is_due() -> None:
    said = space()
    assert said.healthy
    assert said.headline == "garbage is collected as it should be; 900 B of deleted ledgers wait for a compaction"
    assert space(worth_bytes=0).headline == "garbage is collected as it should be"
    (major,) = [line for line in said.working if line.startswith("major")]
    assert major.endswith("last: never since the start; due 2023-11-15 22:11:50 UTC (in 23 h 58 min)"), major
    (minor,) = [line for line in space(last_minor_ms=NOW - 3_600_000).working if line.startswith("minor")]
    assert minor.endswith("; due in the next round"), minor
    assert [line for line in said.do if "/api/v1/bookie/gc" in line]


def test_no_round_is_advised_while_one_is_under_way() -> None:
    said = space(doing="rewrites entry logs", compacting="/l/current/7.log", forced=True)
    assert "now: rewrites entry logs (/l/current/7.log), in a round that was ordered" in said.working
    assert not [line for line in said.do if "/api/v1/bookie/gc" in line]


def test_a_compaction_that_was_suspended_on_the_way_is_told() -> None:
    said = space(major_suspended=True, interrupted="major", worth_bytes=0)
    assert said.headline == "major compaction is suspended by an operator, one of them on the way"
    assert "the major compaction that was under way begins anew once it is resumed" in said.next


def test_a_log_that_waits_for_an_index_file_names_what_makes_it_anew() -> None:
    gone = [BadLog(f"/l/current/{ledger_id}.log", file_gone(ledger_id)) for ledger_id in (5, 9)]
    said = space(quarantined_count=2, quarantined=tuple(gone))
    assert said.headline.startswith("2 entry logs are left alone, so their space does not come back")
    (remedy,) = [line for line in said.do if "--conf FILE" in line]
    assert "shell --conf FILE regenerate-interleaved-storage-index-file -ledgerIds 5,9, and start it again" in remedy
    both = space(quarantined_count=2, quarantined=(gone[0], BadLog("/l/current/1.log", "damaged at 5")))
    assert len([line for line in both.do if "--conf FILE" in line]) == 2


def test_an_advised_order_reads_its_token_from_the_file_of_the_bookie() -> None:
    with_tokens = ServerSettings(http_server_enabled=True, http_server_token_file="/etc/tokens")
    ordered = host(free=5000, settings=with_tokens)
    assert ordered.status is not None
    mode = ModeStatus(True, True, (Reason("OPERATOR", "by order", NOW - 60_000),))
    status = dataclasses.replace(ordered.status, mode=mode, collection=COLLECTION)
    ordered = dataclasses.replace(ordered, status=status)
    token = """-H "Authorization: Bearer $(awk '/^ *operate/{print $2; exit}' /etc/tokens)" """
    (back,) = [line for line in explain_readonly(ordered).do if line.startswith("curl")]
    assert token in back
    (round_,) = [line for line in explain_space(ordered).do if line.startswith("a round at once")]
    assert token in round_
