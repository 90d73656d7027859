"""The order in which things become visible, durable and answered (I-21 to I-28, I-47 to I-57)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.process.mode import ReadOnlyReason
from bookkeeper.errors import CorruptRecord, InvalidArgument
from bookkeeper.model import Status
from tests.support.bookie_fakes import KEY, OTHER_KEY, BookieBench, FakeJournal, body_of, ids_of

MASTER_KEY_ENTRY, FENCE_ENTRY, EXPLICIT_LAC_ENTRY = -0x1000, -0x2000, -0x8000


# --- adds ---------------------------------------------------------------------------------------------------------


def test_an_add_is_answered_only_after_its_sync_and_is_readable_before() -> None:
    bench = BookieBench()
    answers = bench.add([0, 1, 2])
    assert answers == []  # I-47
    assert bench.read(2) == [([body_of(7, 2)], None)]
    bench.journal.sync()
    assert answers == [Status.OK]


def test_a_batch_is_answered_once() -> None:
    bench = BookieBench()
    answers = bench.add(range(100))
    bench.settle()
    assert answers == [Status.OK]
    assert bench.metrics.value("bookie_BOOKIE_ADD_ENTRY") == 100
    assert bench.bookie.in_flight == 0


def test_the_key_record_precedes_the_first_entry_in_the_same_group() -> None:
    bench = BookieBench()
    bench.add([5])
    assert ids_of(bench.journal.queued) == [(7, MASTER_KEY_ENTRY), (7, 5)]  # I-53
    bench.add([6])
    assert ids_of(bench.journal.queued)[2:] == [(7, 6)]


def test_the_key_is_journaled_again_when_the_first_record_did_not_fit() -> None:
    bench = BookieBench()
    bench.journal.full = True
    assert bench.add([0]) == [Status.TOO_MANY_REQUESTS]
    bench.journal.full = False
    answers = bench.add([0])
    assert ids_of(bench.journal.queued) == [(7, MASTER_KEY_ENTRY), (7, 0)]
    bench.journal.sync()
    assert answers == [Status.OK]


@pytest.mark.parametrize("sizes", [(10, 10, 10), (1, 2, 3), (5000, 5000), (0,)])
def test_journal_records_hold_the_bodies_as_they_came(sizes: tuple[int, ...]) -> None:
    bench = BookieBench()
    bodies = [body_of(7, entry_id, b"z" * size) for entry_id, size in enumerate(sizes)]
    for entry_id, size in enumerate(sizes):
        bench.add(entry_id, payload=b"z" * size)
    assert bench.journal.queued[1:] == bodies
    batch = BookieBench()
    batch.add(range(50), payload=b"z" * sizes[0])
    assert batch.journal.queued[1:] == [body_of(7, entry_id, b"z" * sizes[0]) for entry_id in range(50)]


def test_ledgers_are_spread_over_the_journals_by_their_id() -> None:
    bench = BookieBench(journal_count=3)
    for ledger_id in range(6):
        bench.add([0], ledger_id=ledger_id)
    for number, journal in enumerate(bench.journals):
        assert {ledger_id for ledger_id, _ in ids_of(journal.queued)} == {number, number + 3}


@pytest.mark.parametrize("recovery", [False, True])
def test_a_wrong_key_is_refused_and_changes_nothing(recovery: bool) -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    assert bench.add([1], key=OTHER_KEY, recovery=recovery) == [Status.UNAUTHORIZED]  # I-26, I-73
    assert bench.fence(key=OTHER_KEY) == [Status.UNAUTHORIZED]
    assert bench.fence(key=None) == [Status.UNAUTHORIZED]
    assert bench.write_lac(0, key=OTHER_KEY) == [Status.UNAUTHORIZED]
    assert 7 not in bench.storage.fenced
    assert bench.storage.last_entry_id(7) == 0
    assert bench.storage.lacs == {}


def test_the_key_in_the_index_file_counts_after_a_restart() -> None:
    bench = BookieBench()
    bench.storage.keys[7] = KEY
    bench.storage.cold_ledgers.add(7)
    intruder = bench.add([0], key=OTHER_KEY)
    owner = bench.add([0])
    bench.settle()
    assert (intruder, owner) == ([Status.UNAUTHORIZED], [Status.OK])


@pytest.mark.parametrize("key", [b"", b"short", b"k" * 21])
def test_a_first_key_of_another_size_is_refused(key: bytes) -> None:
    bench = BookieBench()
    assert bench.add([0], key=key) == [Status.UNAUTHORIZED]
    assert not bench.storage.exists(7)


def test_ids_out_of_range_are_a_bad_request_and_others_go_on() -> None:
    bench = BookieBench()
    bench.storage.error = InvalidArgument("entry id 2**40 is out of range")
    assert bench.add([2**40]) == [Status.BAD_REQUEST]
    bench.storage.error = None
    answers = bench.add([0])
    bench.settle()
    assert answers == [Status.OK]


def test_full_write_buffers_push_back() -> None:
    bench = BookieBench()
    bench.storage.is_full = True
    assert bench.add([0]) == [Status.TOO_MANY_REQUESTS]
    assert bench.bookie.congested
    assert bench.storage.entries == {}


def test_a_read_only_bookie_with_full_buffers_does_not_hold_readers_back() -> None:
    bench = BookieBench()
    bench.storage.is_full = True
    bench.mode.forbid(ReadOnlyReason.DISK_FULL)
    assert not bench.bookie.congested
    assert bench.add([0]) == [Status.READ_ONLY]


def test_congestion_ends_below_half_of_the_bound() -> None:
    bench = BookieBench(bounds=BookieBounds(journal_bytes_max=1000))
    for pending, congested in ((1000, False), (1001, True), (600, True), (501, True), (500, False), (900, False)):
        bench.journal.pending_bytes = pending
        assert bench.bookie.congested is congested


def test_an_add_that_the_storage_refuses_creates_no_ledger() -> None:
    bench = BookieBench()
    bench.storage.error = InvalidArgument("entry ids end at 2**36")
    assert bench.add([1 << 40]) == [Status.BAD_REQUEST]
    assert bench.storage.keys == {}
    assert bench.journal.queued == []


def test_no_fence_or_lac_creates_a_ledger_while_too_many_wait_for_the_disk() -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    bench.storage.takes_ledgers = False
    assert bench.fence(ledger_id=8) == [Status.TOO_MANY_REQUESTS]
    assert bench.write_lac(0, ledger_id=8) == [Status.TOO_MANY_REQUESTS]
    assert not bench.storage.exists(8)
    known = bench.fence()
    bench.settle()
    assert known == [body_of(7, 0)]


# --- duplicates ---------------------------------------------------------------------------------------------------


def test_a_resend_succeeds_only_after_a_sync_of_its_own() -> None:
    bench = BookieBench()
    first, again = bench.add([0]), bench.add([0])  # I-69
    assert (first, again) == ([], [])
    bench.journal.sync()
    assert (first, again) == ([Status.OK], [Status.OK])


def test_an_entry_that_missed_the_journal_is_journaled_by_its_resend() -> None:
    bench = BookieBench()
    bench.journal.full = True
    assert bench.add([0]) == [Status.TOO_MANY_REQUESTS]
    bench.journal.full = False
    again = bench.add([0])
    bench.journal.sync()
    assert again == [Status.OK]
    assert (7, 0) in ids_of(bench.journal.durable)


def test_another_body_for_a_held_id_is_refused_and_the_first_is_kept() -> None:
    bench = BookieBench()
    bench.add([0], payload=b"first")
    bench.settle()
    assert bench.add([0, 1], payload=b"other") == [Status.BAD_REQUEST]  # I-69
    assert bench.storage.entries[7] == {0: body_of(7, 0, b"first")}


def test_two_bodies_for_one_id_within_a_batch_are_refused() -> None:
    bench = BookieBench()
    bench.add([0, 0])  # the same body twice is fine
    bench.settle()
    assert bench.journal.durable[1:] == [body_of(7, 0), body_of(7, 0)]


def test_a_recovery_add_may_differ_in_its_lac() -> None:
    bench = BookieBench()
    bench.add([0], lac=-1)
    bench.settle()
    answers = bench.add([0], lac=5, recovery=True)
    bench.settle()
    assert answers == [Status.OK]


def test_a_cold_duplicate_is_compared_after_reading_and_later_adds_queue_behind_it() -> None:
    bench = BookieBench()
    bench.add([0, 1])
    bench.settle()
    bench.storage.cold_entries.add((7, 0))
    resend, later = bench.add([0]), bench.add([2])
    assert (resend, later) == ([], [])
    assert bench.storage.last_entry_id(7) == 1  # the later add waits its turn
    bench.settle()
    assert (resend, later) == ([Status.OK], [Status.OK])


def test_a_cold_duplicate_that_cannot_be_read_is_unknown() -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    bench.storage.cold_entries.add((7, 0))
    bench.storage.cold_error = CorruptRecord("x.log", 0, "flipped")
    answers = bench.add([0])
    behind = bench.add([1])
    bench.settle()
    assert (answers, behind) == ([Status.IO_ERROR], [Status.IO_ERROR])
    bench.storage.cold_error = None
    bench.storage.cold_entries.clear()
    answers = bench.add([1])
    bench.settle()
    assert answers == [Status.OK]


@pytest.mark.parametrize("cold", [False, True])
def test_only_a_recovery_add_replaces_a_damaged_copy(cold: bool) -> None:
    """I-67, and I-69 for all that may be good."""
    bench = BookieBench()
    bench.add([0, 1])
    bench.settle()
    bench.storage.damaged_entries.add((7, 0))
    if cold:
        bench.storage.cold_entries.add((7, 0))
    answers = bench.add([0, 1])
    bench.settle()
    assert answers == [Status.IO_ERROR]
    answers = bench.add([0, 1], payload=b"another", recovery=True)
    bench.settle()
    assert answers == [Status.BAD_REQUEST]  # entry 1 can be read, and says something else
    repaired = bench.add([0, 1], recovery=True)
    bench.settle()
    assert repaired == [Status.OK]
    assert bench.storage.entries[7] == {0: body_of(7, 0), 1: body_of(7, 1)}
    assert bench.journal.durable[-2:] == [body_of(7, 0), body_of(7, 1)]


def test_a_copy_that_cannot_be_read_for_another_reason_is_not_replaced() -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    bench.storage.cold_entries.add((7, 0))
    bench.storage.cold_error = OSError(5, "the disk does not answer")
    answers = bench.add([0], recovery=True)
    bench.settle()
    assert answers == [Status.IO_ERROR]


# --- fences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry_id", [-1, 0, 99])
def test_every_answer_to_a_fencing_read_waits_for_the_sync_of_the_fence(entry_id: int) -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    answers = bench.fence(entry_id)
    assert answers == []  # I-23, positive and negative alike
    bench.journal.sync()
    assert answers == [body_of(7, 0) if entry_id <= 0 else Status.NO_ENTRY]
    assert (7, FENCE_ENTRY) in ids_of(bench.journal.durable)


def test_a_fence_works_on_a_ledger_never_seen() -> None:
    bench = BookieBench()
    answers = bench.fence()
    bench.journal.sync()
    assert answers == [Status.NO_ENTRY]  # I-22
    assert ids_of(bench.journal.durable) == [(7, MASTER_KEY_ENTRY), (7, FENCE_ENTRY)]
    assert bench.add([0]) == [Status.FENCED]


def test_fences_of_unknown_ledgers_do_not_fill_the_log() -> None:
    bench = BookieBench()
    bench.add([0], ledger_id=5000)
    bench.settle()
    with capturedLogs() as events:
        for ledger_id in range(3000):
            bench.fence(ledger_id=ledger_id)
        bench.fence(ledger_id=5000)
        bench.clock.advance(11.0)
    logged = [formatEvent(event) for event in events]
    assert logged[:2] == ["Fenced ledger 0", "Fenced ledger 5000"]  # a ledger with entries is always logged
    assert len(logged) == 3
    assert "2999 x fence of a ledger without an entry here" in logged[2]


def test_a_fence_works_on_a_read_only_bookie() -> None:
    bench = BookieBench()
    bench.mode.forbid(ReadOnlyReason.DISK_FULL)
    answers = bench.fence()
    bench.journal.sync()
    assert answers == [Status.NO_ENTRY]  # I-22


def test_a_second_fencing_read_shares_the_first_ones_sync_and_a_third_needs_none() -> None:
    bench = BookieBench()
    first, second = bench.fence(), bench.fence(3)
    assert (first, second) == ([], [])
    assert ids_of(bench.journal.queued).count((7, FENCE_ENTRY)) == 1
    bench.journal.sync()
    assert (first, second) == ([Status.NO_ENTRY], [Status.NO_ENTRY])
    assert bench.fence() == [Status.NO_ENTRY]


def test_a_fence_that_did_not_fit_the_journal_is_not_set() -> None:
    bench = BookieBench()
    bench.journal.full = True
    assert bench.fence() == [Status.TOO_MANY_REQUESTS]
    assert 7 not in bench.storage.fenced  # otherwise the next answer would not wait for a sync (I-23)
    bench.journal.full = False
    answers = bench.fence()
    assert answers == []
    bench.journal.sync()
    assert answers == [Status.NO_ENTRY]


def test_recovery_adds_pass_a_fence_and_normal_adds_do_not() -> None:
    bench = BookieBench()
    bench.fence()
    assert bench.add([0]) == [Status.FENCED]  # I-27: refused from the very turn of the fence
    recovered = bench.add([0], recovery=True)
    bench.settle()
    assert recovered == [Status.OK]


def test_the_last_entry_answered_is_the_one_visible_in_the_turn_of_the_fence() -> None:
    bench = BookieBench()
    bench.add([0, 1, 2])  # visible, not synced
    bench.storage.cold_entries.add((7, 2))
    answers = bench.fence()
    bench.add([3], recovery=True)
    bench.settle()
    assert answers == [body_of(7, 2)]


def test_a_power_cut_right_after_the_answer_to_a_fence_finds_it_journaled() -> None:
    """T21: the fencing read of a missing entry; whatever was answered, the fence record is durable by then."""
    bench = BookieBench()
    answers = bench.fence(42)
    while not answers:
        bench.journal.sync()
    assert (7, FENCE_ENTRY) in ids_of(bench.journal.durable)


Step = Callable[[BookieBench, dict[str, list[object]]], None]


def _steps() -> dict[str, Step]:
    def add(bench: BookieBench, answers: dict[str, list[object]]) -> None:
        answers["add"] = bench.add([5])

    def fence(bench: BookieBench, answers: dict[str, list[object]]) -> None:
        answers["fence"] = bench.fence(5)

    def sync(bench: BookieBench, answers: dict[str, list[object]]) -> None:
        bench.journal.sync()

    def work(bench: BookieBench, answers: dict[str, list[object]]) -> None:
        if bench.worker.queue:
            bench.worker.run_next()

    return {"add": add, "fence": fence, "sync": sync, "sync again": sync, "work": work, "work again": work}


@pytest.mark.parametrize("cold", ["nothing", "ledger", "entry"])
def test_no_add_is_acknowledged_after_a_fence_denied_having_it(cold: str) -> None:
    """T20: an add in flight across a fence, at every yield point and in every order (I-25)."""
    steps = _steps()
    outcomes = set()
    for order in itertools.permutations(steps):
        bench = BookieBench()
        bench.add([0])
        bench.settle()
        if cold == "ledger":
            bench.storage.cold_ledgers.add(7)
        elif cold == "entry":
            bench.add([6])
            bench.settle()
            bench.storage.cold_entries.add((7, 5))
        answers: dict[str, list[object]] = {}
        for name in order:
            steps[name](bench, answers)
        bench.storage.cold_entries.clear()
        bench.settle()
        assert len(answers["add"]) == len(answers["fence"]) == 1
        denied = answers["fence"][0] is Status.NO_ENTRY
        acknowledged = answers["add"][0] is Status.OK
        assert not (denied and acknowledged), order
        outcomes.add((denied, acknowledged))
    assert outcomes == {(True, False), (False, True)}  # both sides of the race were seen


# --- failures -----------------------------------------------------------------------------------------------------


def test_after_a_failed_sync_nothing_is_answered_and_the_process_ends() -> None:
    """T14: also negative answers stop (I-48)."""
    bench = BookieBench()
    add, fence, lac = bench.add([0]), bench.fence(ledger_id=8), bench.write_lac(0, ledger_id=9)
    bench.storage.cold_entries.add((7, 0))
    cold = bench.read(0)
    error = OSError(5, "Input/output error")
    bench.journal.fail(error)
    bench.worker.run_all()
    later = [bench.add([1]), bench.read(5), bench.read(0, ledger_id=99), bench.fence(), bench.read_lac()]
    bench.settle()
    assert bench.exits == [error]
    assert bench.bookie.failure is error
    assert [add, fence, lac, cold, *later] == [[]] * 9


def test_a_failure_is_told_once() -> None:
    bench = BookieBench(journal_count=2)
    bench.add([0], ledger_id=0)
    bench.add([0], ledger_id=1)
    for journal in bench.journals:
        journal.fail(OSError(28, "No space left on device"))
    assert len(bench.exits) == 1


def test_a_stopped_bookie_answers_what_is_in_flight_and_then_is_idle() -> None:
    bench = BookieBench()
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    before = bench.add([0])
    bench.bookie.stop()
    after = bench.add([1])
    assert idle == []
    bench.settle()
    assert (before, after, idle) == ([Status.OK], [], [True])


def test_an_idle_bookie_stops_at_once() -> None:
    bench = BookieBench()
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    bench.bookie.stop()
    assert idle == [True]


# --- read-only ----------------------------------------------------------------------------------------------------


def test_a_read_only_bookie_refuses_adds_but_takes_recovery_while_there_is_room() -> None:
    bench = BookieBench()
    bench.mode.forbid(ReadOnlyReason.DISK_FULL)
    assert bench.add([0]) == [Status.READ_ONLY]
    assert bench.write_lac(0) == [Status.READ_ONLY]
    taken = [bench.add([0], recovery=True), bench.add([1], high_priority=True)]
    bench.settle()
    assert taken == [[Status.OK], [Status.OK]]
    bench.mode.priority_writes_allowed = False
    assert bench.add([2], recovery=True) == [Status.READ_ONLY]


# --- reads --------------------------------------------------------------------------------------------------------


def test_reads_of_what_was_never_held() -> None:
    bench = BookieBench()
    bench.add([3])
    assert bench.read(2) == [([Status.NO_ENTRY], None)]
    assert bench.read(-1, ledger_id=8) == [([Status.NO_LEDGER], None)]
    assert bench.read(0, ledger_id=8) == [([Status.NO_LEDGER], None)]


def test_the_last_entry_is_the_highest_not_the_newest() -> None:
    bench = BookieBench()
    bench.add([9])
    bench.add([3])
    assert bench.read(-1) == [([body_of(7, 9)], None)]


def test_cold_reads_go_through_the_worker_and_are_bounded() -> None:
    bench = BookieBench(bounds=BookieBounds(cold_reads_max=3))
    bench.add([0, 1, 2, 3])
    bench.settle()
    bench.storage.cold_entries |= {(7, 0), (7, 1), (7, 2), (7, 3)}
    first, second = bench.read(0, 1), bench.read(2, 3)
    assert second == [([Status.TOO_MANY_REQUESTS] * 2, None)]
    bench.settle()
    assert first == [([body_of(7, 0), body_of(7, 1)], None)]
    third = bench.read(3)
    bench.settle()
    assert third == [([body_of(7, 3)], None)]


def test_a_cold_read_that_fails_is_an_io_error_and_never_a_negative() -> None:
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    bench.storage.cold_entries.add((7, 0))
    bench.storage.cold_error = OSError(5, "Input/output error")
    answers = bench.read(0)
    bench.settle()
    assert answers == [([Status.IO_ERROR], None)]  # I-31


# --- waiting for the disk -----------------------------------------------------------------------------------------


def test_requests_of_a_cold_ledger_keep_their_order_and_others_are_not_held_up() -> None:
    bench = BookieBench()
    bench.storage.cold_ledgers.add(7)
    waiting = [bench.add([0]), bench.fence(), bench.add([1]), bench.write_lac(0)]
    other = bench.add([0], ledger_id=8)
    bench.journal.sync()
    assert other == [Status.OK]
    assert waiting == [[], [], [], []]
    bench.settle()
    assert waiting == [[Status.OK], [body_of(7, 0)], [Status.FENCED], [Status.OK]]


def test_waiting_requests_are_bounded_by_number_and_size() -> None:
    bench = BookieBench(bounds=BookieBounds(waiting_requests_max=2, waiting_bytes_max=1000))
    bench.storage.cold_ledgers |= {7, 8, 9}
    small = bench.add([0], ledger_id=7)
    assert bench.add([0], ledger_id=8, payload=b"z" * 1000) == [Status.TOO_MANY_REQUESTS]
    second = bench.add([0], ledger_id=8)
    assert bench.add([0], ledger_id=9) == [Status.TOO_MANY_REQUESTS]
    bench.settle()
    assert (small, second) == ([Status.OK], [Status.OK])
    answers = bench.add([0], ledger_id=9)
    bench.settle()
    assert answers == [Status.OK]


def test_a_ledger_whose_state_cannot_be_read_gets_io_errors_until_it_can() -> None:
    bench = BookieBench()
    bench.storage.cold_ledgers.add(7)
    bench.storage.cold_error = CorruptRecord("7.idx", 0, "bad checksum")
    answers = [bench.add([0]), bench.fence()]
    bench.settle()
    assert answers == [[Status.IO_ERROR], [Status.IO_ERROR]]
    bench.storage.cold_error = None
    answers = [bench.add([0])]
    bench.settle()
    assert answers == [[Status.OK]]


def test_the_fake_journal_splits_what_it_is_given() -> None:
    journal = FakeJournal()
    journal.append([struct.pack(">i", 3), b"abc", struct.pack(">i", 0)], 11, lambda error: None)
    assert journal.queued == [b"abc", b""]
