"""The under-replication tree when answers are lost, servers lag, sessions end and locks do not exclude."""

import dataclasses
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable, VersionConflict
from bookkeeper.metadata.memory.store import Fault, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import Underreplication
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.underreplication import mark_walk, repair_locks
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.format import CheckKind, UnderreplicatedLedger, mark_path
from bookkeeper.metadata.underreplication.mark_directories import OLD_MS
from bookkeeper.metadata.underreplication.mark_walk import WORK_PAUSE_S
from bookkeeper.metadata.underreplication.repair_locks import HeldLock
from bookkeeper.model import BookieId, EntryId, LedgerId
from tests.support.metadata_contract import ledger
from tests.support.metadata_contract.underreplication import marked
from tests.support.simulated_clock import SimulatedClock
from tests.unit.metadata.test_metadata_outcomes import FAULTS, Bench

A, B = BookieId("a:3181"), BookieId("b:3181")
LEDGER = LedgerId(12345)
MARK = f"/ledgers/underreplication/ledgers{mark_path(LEDGER)}"
LOCK = "/ledgers/underreplication/locks/urL0000012345"


def seen_by(bench: Bench) -> UnderreplicatedLedger:
    found = bench.run(bench.truth.underreplication.read(LEDGER))
    assert isinstance(found, UnderreplicatedLedger)
    return found


def nothing() -> None:
    """A callback for what need not be heard."""


@FAULTS
def test_a_mark_is_made_whatever_becomes_of_the_first_attempt(fault: Fault) -> None:
    """I-16."""
    for operation, part in (
        ("transact", "/0000/0000/0000/3039"),
        ("create", "/ledgers/0000"),
        ("create", "underreplication/LAYOUT"),
        ("create", "underreplication"),
    ):
        bench = Bench()
        bench.faults.force(fault, operation, part)
        bench.run(bench.store.underreplication.mark(LEDGER, [A], now_ms=7))
        assert bench.shared.stored(MARK) == b'replica: "a:3181"\nctime: 7\n'
        assert bench.faults.counts[fault.value] == 1


@FAULTS
def test_a_bookie_is_added_once_whatever_becomes_of_the_first_attempt(fault: Fault) -> None:
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    bench.faults.force(fault, "write", "urL")
    bench.run(bench.store.underreplication.mark(LEDGER, [B], now_ms=8))
    assert bench.shared.stored(MARK) == b'replica: "a:3181"\nreplica: "b:3181"\nctime: 8\n'


def test_a_mark_whose_writing_was_overwritten_before_it_could_be_looked_up_holds_both() -> None:
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    bench.faults.force(Fault.REPLY_LOST, "write", "urL")
    marking = bench.store.underreplication.mark(LEDGER, [B], now_ms=8)
    bench.until(Fault.REPLY_LOST)
    bench.run(bench.truth.underreplication.mark(LEDGER, [BookieId("c:3181")], now_ms=9))
    bench.run(marking)
    assert set(seen_by(bench).missing) == {A, B, "c:3181"}


@FAULTS
def test_a_mark_is_removed_once_and_a_newer_one_stays(fault: Fault) -> None:
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    seen = seen_by(bench)
    bench.faults.force(fault, "delete", "urL")
    bench.run(bench.store.underreplication.remove(seen))
    assert not bench.shared.exists(MARK)
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    with pytest.raises(VersionConflict):
        bench.run(bench.store.underreplication.remove(seen))
    assert bench.shared.exists(MARK)


@FAULTS
def test_a_repair_is_ended_once_whatever_becomes_of_the_answer(fault: Fault) -> None:
    """I-16: mark and lock go together, or neither does."""
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    seen = seen_by(bench)
    lock: Any = bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing))
    bench.faults.force(fault, "transact", "urL")
    if fault is Fault.SESSION_LOST:  # the lock went with it, and under it nothing is done any more (I-77)
        with pytest.raises(MetadataUnavailable):
            bench.run(bench.store.underreplication.finish(seen, lock))
        assert not lock.held
        return
    bench.run(bench.store.underreplication.finish(seen, lock))
    assert not bench.shared.exists(MARK)
    assert bench.run(bench.truth.underreplication.lock_holder(LEDGER)) is None
    assert bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing)) is not None


def test_a_mark_made_anew_before_a_lost_removal_could_be_looked_up_stays() -> None:
    """I-16 with I-76: version 0 again, but another node."""
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    seen = seen_by(bench)
    bench.faults.force(Fault.REPLY_LOST, "delete", "urL")
    removing = bench.store.underreplication.remove(seen)
    bench.until(Fault.REPLY_LOST)
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    with pytest.raises(VersionConflict):
        bench.run(removing)
    assert bench.shared.exists(MARK)


def test_a_new_loss_is_not_believed_marked_because_a_lagging_server_still_shows_the_old_mark() -> None:
    """I-19: the repair is over and its mark gone, but the marker's server does not know."""
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    stale = MemoryMetadataStore(shared, clock, random.Random(3), MemoryFaults(delay_max_s=0.001, lag_max_s=500.0))
    truth = MemoryMetadataStore(shared, clock, random.Random(4))
    bench = Bench()
    bench.clock = clock
    bench.run(truth.underreplication.mark(LEDGER, [A], now_ms=7))
    bench.run(stale.sync())
    seen = bench.run(truth.underreplication.read(LEDGER))
    assert isinstance(seen, UnderreplicatedLedger)
    bench.run(truth.underreplication.remove(seen))
    bench.run(stale.underreplication.mark(LEDGER, [A], now_ms=8))
    assert shared.stored(MARK) == b'replica: "a:3181"\nctime: 8\n'


def test_a_lagging_server_does_not_say_that_there_is_no_mark() -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    stale = MemoryMetadataStore(shared, clock, random.Random(3), MemoryFaults(delay_max_s=0.001, lag_max_s=500.0))
    truth = MemoryMetadataStore(shared, clock, random.Random(4))
    bench = Bench()
    bench.clock = clock
    bench.run(truth.underreplication.mark(LEDGER, [A], now_ms=7))
    assert bench.run(stale.underreplication.read(LEDGER)) is not None
    bench.run(truth.underreplication.disable())
    assert not bench.run(stale.underreplication.is_enabled())


def test_when_everybody_holds_the_lock_no_mark_is_lost() -> None:
    """I-20: two workers on one ledger; the slower one removes nothing of what came after the faster one."""
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    slow = seen_by(bench)
    fast = seen_by(bench)
    bench.run(bench.store.underreplication.remove(fast))
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=8))
    with pytest.raises(VersionConflict):
        bench.run(bench.store.underreplication.remove(slow))


SETTINGS: list[tuple[str, Callable[[Underreplication], Deferred[object]], str, bytes]] = [
    ("delay", lambda seam: seam.set_recovery_delay(5), "lostBookieRecoveryDelay", b"5"),
    ("first delay", lambda seam: seam.initialise_recovery_delay(5), "lostBookieRecoveryDelay", b"5"),
    ("check", lambda seam: seam.set_check_time(CheckKind.REPLICAS, 5), "replicascheckctime", b"\x08\x05"),
    ("disable", lambda seam: seam.disable(), "disable", b""),
]


@FAULTS
@pytest.mark.parametrize(("change", "name", "stored"), [case[1:] for case in SETTINGS], ids=[c[0] for c in SETTINGS])
def test_single_values_are_stored_whatever_becomes_of_the_first_attempt(
    change: Callable[[Underreplication], Deferred[object]], name: str, stored: bytes, fault: Fault
) -> None:
    for operation in ("create", "write"):
        bench = Bench()
        bench.faults.force(fault, operation, name)
        bench.run(change(bench.store.underreplication))
        bench.run(change(bench.store.underreplication))
        assert bench.shared.stored(f"/ledgers/underreplication/{name}") == stored


@FAULTS
def test_auto_recovery_is_turned_on_whatever_becomes_of_the_first_attempt(fault: Fault) -> None:
    bench = Bench()
    bench.run(bench.truth.underreplication.disable())
    bench.faults.force(fault, "delete", "disable")
    assert bench.run(bench.store.underreplication.enable())
    assert bench.run(bench.truth.underreplication.is_enabled())


# --- locks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.FAILED_BEFORE, Fault.REPLY_LOST], ids=lambda fault: fault.value)
def test_a_lock_is_taken_and_given_up_once_whatever_becomes_of_the_first_attempt(fault: Fault) -> None:
    bench = Bench()
    bench.faults.force(fault, "create", "locks/urL")
    lock = bench.run(bench.store.underreplication.lock(LEDGER, "h", nothing))
    assert lock is not None
    assert bench.shared.stored(LOCK) == b'bookieId: "h"\n'
    bench.faults.force(fault, "delete", "locks/urL")
    bench.run(lock.release())  # type: ignore[attr-defined]
    assert not bench.shared.exists(LOCK)


@pytest.mark.parametrize("operation", ["transact", "delete"])
def test_a_session_that_ends_around_a_lock_leaves_none(operation: str) -> None:
    """I-77: a lock is of the session it was asked in, or is not."""
    bench = Bench()
    bench.run(bench.store.underreplication.prepare())
    bench.faults.force(Fault.SESSION_LOST, operation, "locks/urL")
    taking = bench.store.underreplication.lock(LEDGER, "h", nothing)
    if operation == "transact":
        with pytest.raises(MetadataUnavailable):
            bench.run(taking)
    else:
        bench.run(bench.run(taking).release())  # type: ignore[attr-defined]
    assert not bench.shared.exists(LOCK)
    assert bench.run(bench.store.underreplication.lock(LEDGER, "h", nothing)) is not None


def test_a_lock_that_could_not_be_given_up_is_taken_again_by_the_same_store() -> None:
    bench = Bench(outage_s=0.2)
    lock = bench.run(bench.store.underreplication.lock(LEDGER, "h", nothing))
    releasing = bench.store.underreplication.lock(LEDGER, "h", nothing)
    assert bench.run(releasing) is None
    node = bench.shared.znodes.leader.nodes[LOCK]
    bench.shared.znodes.delete(LOCK, 0)
    bench.run(lock.release())  # type: ignore[attr-defined]
    bench.shared.znodes.create(LOCK, b"", NodeKind.EPHEMERAL, node.owner)  # as if the removal had not gone through
    again = bench.run(bench.store.underreplication.lock(LEDGER, "h", nothing))
    assert again is not None
    bench.run(again.release())  # type: ignore[attr-defined]
    assert not bench.shared.exists(LOCK)


@pytest.mark.parametrize("operation", ["stat", "delete"])
def test_a_mark_is_not_removed_in_another_session_than_the_locks(operation: str) -> None:
    """I-77: by then somebody else may hold the lock, and have begun with the very same mark."""
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    lock = bench.run(bench.store.underreplication.lock(LEDGER, "h", nothing))
    assert isinstance(lock, HeldLock)
    bench.faults.force(Fault.SESSION_LOST, operation, "ledgers/0000")
    with pytest.raises(MetadataUnavailable):
        bench.run(bench.store.underreplication.remove(seen_by(bench), lock))
    assert bench.shared.exists(MARK)


@FAULTS
@pytest.mark.parametrize("ends", [True, False], ids=["last", "not last"])
def test_metadata_changes_once_under_a_lock_whatever_becomes_of_the_answer(fault: Fault, *, ends: bool) -> None:
    """I-16, I-77: with the session the lock is gone, and nothing is changed in the next one."""
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger(), LEDGER))  # type: ignore[misc]
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    lock: Any = bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing))
    seen: Any = bench.run(bench.store.underreplication.read(LEDGER, lock))
    changed = dataclasses.replace(created.value, ctime_ms=17)
    bench.faults.force(fault, "transact", "L2345")
    writing = bench.store.ledgers.write(ledger_id, changed, 0, lock=lock, ends=seen if ends else None)
    if fault is Fault.SESSION_LOST:
        with pytest.raises(MetadataUnavailable):
            bench.run(writing)
        assert bench.run(bench.truth.ledgers.read(ledger_id)) == created
        assert bench.shared.exists(MARK)
        return
    written = bench.run(writing)
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == written
    # A watch on the mark went with the connection: a first attempt that failed is not repeated without a look (I-76).
    assert lock.mark_removed == (ends and fault is not Fault.FAILED_BEFORE)
    bench.run(bench.store.underreplication.finish(seen, lock))
    assert not bench.shared.exists(MARK)
    assert not bench.shared.exists(LOCK)


def test_metadata_is_not_changed_under_the_next_ones_lock() -> None:
    """I-77: it has the same path and version. Mutant: try again in the next session."""
    bench = Bench(outage_s=1.0)
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger(), LEDGER))  # type: ignore[misc]
    lock: Any = bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing))
    bench.faults.force(Fault.SESSION_LOST, "transact", "L2345")
    writing = bench.store.ledgers.write(ledger_id, created.value, 0, lock=lock)
    bench.until(Fault.SESSION_LOST)
    assert bench.run(bench.truth.underreplication.lock(LEDGER, "another", nothing)) is not None
    with pytest.raises(MetadataUnavailable):
        bench.run(writing)
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == created


@pytest.mark.parametrize("watched", [True, False])
def test_an_ending_whose_answer_was_lost_takes_nobody_elses_mark_and_lock(*, watched: bool) -> None:
    """I-20, I-76: versions begin anew. Mutant: send the same steps again where the mark was looked at, not watched."""
    bench = Bench(outage_s=1.0)
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    lock: Any = bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing))
    seen: Any = bench.run(bench.store.underreplication.read(LEDGER, lock))
    if not watched:
        bench.store.cut_connection(0.05)
        bench.clock.run_until(lambda: False, seconds=1.0)
        assert lock.held
        assert not lock.sight.intact
    bench.faults.force(Fault.REPLY_LOST, "transact", "urL")
    finishing = bench.store.underreplication.finish(seen, lock)
    bench.until(Fault.REPLY_LOST)
    assert not bench.shared.exists(MARK)
    bench.run(bench.truth.underreplication.mark(LEDGER, [B], now_ms=9))
    assert bench.run(bench.truth.underreplication.lock(LEDGER, "another", nothing)) is not None
    with pytest.raises(VersionConflict):
        bench.run(finishing)
    assert bench.shared.exists(MARK)
    assert bench.shared.exists(LOCK)


def test_a_lock_that_was_removed_by_hand_keeps_metadata_as_it_is() -> None:
    """Its session goes on. Mutant: check the session only."""
    bench = Bench()
    ledger_id, created = bench.run(bench.truth.ledgers.create(ledger(), LEDGER))  # type: ignore[misc]
    lock: Any = bench.run(bench.store.underreplication.lock(LEDGER, "worker", nothing))
    bench.shared.znodes.delete(LOCK, 0)
    with pytest.raises(MetadataUnavailable, match="was lost"):
        bench.run(bench.store.ledgers.write(ledger_id, created.value, 0, lock=lock))
    assert bench.run(bench.truth.ledgers.read(ledger_id)) == created


def test_beyond_the_watches_on_marks_a_mark_made_anew_is_told_apart_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I-76. The bound is kept, and a repair ends by looking."""
    monkeypatch.setattr(repair_locks, "MARKS_WATCHED_MAX", 1)
    bench = Bench()
    for ledger_id in (LedgerId(1), LEDGER):
        bench.run(bench.truth.underreplication.mark(ledger_id, [A], now_ms=7))
    tree = bench.store.underreplication
    locks: list[Any] = [bench.run(tree.lock(ledger_id, "worker", nothing)) for ledger_id in (LedgerId(1), LEDGER)]
    watched, seen = [bench.run(tree.read(lock.ledger_id, lock)) for lock in locks]
    bench.run(bench.truth.underreplication.remove(seen_by(bench)))
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    with pytest.raises(VersionConflict):
        bench.run(tree.finish(seen, locks[1]))  # type: ignore[arg-type]
    assert bench.shared.exists(MARK)
    bench.run(tree.finish(watched, locks[0]))  # type: ignore[arg-type]
    assert locks[0].mark_removed


def test_a_directory_without_a_mark_goes_once_nobody_can_be_about_to_fill_it() -> None:
    bench = Bench()
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=7))
    bench.shared.znodes.delete(MARK, 0)
    tree, directory = bench.store.underreplication, MARK.rpartition("/")[0]
    for after_s, there in ((OLD_MS / 1000 - 5, True), (10.0, False)):
        bench.run(pause(bench.clock, after_s))
        lock: Any = bench.run(tree.lock(LEDGER, "worker", nothing))
        assert bench.run(tree.read(LEDGER, lock)) is None
        bench.run(lock.release())
        assert bench.shared.exists(directory) == there


def test_a_shared_directory_goes_when_all_its_marks_are_gone_whoever_removed_them() -> None:
    """One worker counts those that it removes itself; of those that another one removed it learns by walking."""
    bench = Bench()
    ids = [LedgerId(number) for number in range(6)]
    for ledger_id in ids:
        bench.run(bench.truth.underreplication.mark(ledger_id, [A], now_ms=7))
    shared = MARK.rpartition("/")[0].rpartition("/")[0]

    async def walk(tree: Underreplication) -> None:
        async for _ in tree.candidates(random.Random(1)):
            pass

    async def repair(tree: Underreplication, ledger_id: LedgerId) -> None:
        lock = await tree.lock(ledger_id, "worker", nothing)
        assert lock is not None
        seen = await tree.read(ledger_id, lock)
        assert seen is not None
        await tree.finish(seen, lock)

    trees = [bench.store.underreplication, bench.truth.underreplication]
    for tree in trees:
        bench.run(walk(tree))
    for number, ledger_id in enumerate(ids):
        bench.run(repair(trees[number % 2], ledger_id))
    assert bench.shared.exists(shared)
    for _ in range(2):
        bench.run(walk(trees[0]))
    assert not bench.shared.exists(shared)


def test_two_workers_of_one_process_do_not_share_a_lock() -> None:
    bench = Bench()
    taking = [bench.store.underreplication.lock(LEDGER, "h", nothing) for _ in range(2)]
    locks = [bench.run(each) for each in taking]
    assert [lock is None for lock in locks] == [False, True]


# --- the election --------------------------------------------------------------------------------------------------


@FAULTS
def test_a_candidate_has_one_vote_whatever_becomes_of_the_first_attempt(fault: Fault) -> None:
    """I-16: a vote that it does not know of would stand before its own for as long as the session lives."""
    bench = Bench()
    told: list[object] = []
    candidate = bench.store.underreplication.candidate(
        A, on_elected=lambda: told.append("elected"), on_lost=lambda: told.append("lost"), on_failed=told.append
    )
    bench.faults.force(fault, "create", "V_")
    candidate.join()
    assert bench.clock.run_until(lambda: candidate.elected, seconds=60.0)
    votes = bench.shared.znodes.leader.nodes["/ledgers/underreplication/auditorelection"].children
    assert len(votes) == 1
    assert told == ["elected"]
    bench.faults.force(fault, "delete", "V_")
    bench.run(candidate.leave())
    assert not votes
    assert told == ["elected", "lost"]
    candidate.join()
    assert bench.clock.run_until(lambda: candidate.elected, seconds=60.0)


def test_an_auditor_whose_connection_is_cut_for_a_moment_stays_the_auditor() -> None:
    """I-77: a passing disconnect is not a death."""
    bench = Bench()
    told: list[object] = []
    candidate = bench.store.underreplication.candidate(
        A, on_elected=lambda: told.append("elected"), on_lost=lambda: told.append("lost"), on_failed=told.append
    )
    candidate.join()
    assert bench.clock.run_until(lambda: candidate.elected, seconds=60.0)
    bench.store.cut_connection(3.0)
    bench.clock.run_until(lambda: False, seconds=30.0)
    assert told == ["elected"]
    bench.store.cut_connection(30.0)
    bench.clock.run_until(lambda: False, seconds=60.0)
    assert told == ["elected", "lost", "elected"]


def test_an_auditor_whose_vote_is_removed_stands_again() -> None:
    bench = Bench()
    told: list[object] = []
    candidate = bench.store.underreplication.candidate(
        A, on_elected=lambda: told.append("elected"), on_lost=lambda: told.append("lost"), on_failed=told.append
    )
    candidate.join()
    assert bench.clock.run_until(lambda: candidate.elected, seconds=60.0)
    directory = "/ledgers/underreplication/auditorelection"
    (vote,) = bench.shared.znodes.leader.nodes[directory].children
    bench.shared.znodes.delete(f"{directory}/{vote}", 0)
    assert bench.clock.run_until(lambda: len(told) == 3, seconds=60.0)
    assert told == ["elected", "lost", "elected"]


def test_candidates_join_and_leave_in_any_order_and_one_is_elected_in_the_end(rng: random.Random) -> None:
    """Sessions end, answers are lost, candidates come and go; then the faults stop, and exactly one audits (L-9)."""
    for _ in range(15):
        clock = SimulatedClock()
        shared = MemoryMetadata(clock=clock)
        faults = MemoryFaults(
            lag_max_s=0.2, failed_before_probability=0.05, reply_lost_probability=0.05, session_lost_probability=0.02
        )
        stores = [MemoryMetadataStore(shared, clock, rng, faults) for _ in range(3)]
        told: list[list[str]] = [[] for _ in stores]
        failed: list[BaseException] = []
        candidates = [
            store.underreplication.candidate(
                BookieId(f"bookie-{number}:3181"),
                on_elected=partial(told[number].append, "elected"),
                on_lost=partial(told[number].append, "lost"),
                on_failed=failed.append,
            )
            for number, store in enumerate(stores)
        ]
        for _ in range(60):
            candidate = rng.choice(candidates)
            if rng.random() < 0.6:
                candidate.join()
            else:
                candidate.leave().addErrback(lambda failure: failure.trap(MetadataUnavailable))
            clock.run_until(lambda: False, seconds=rng.choice([0.0, 0.005, 0.1, 2.0]))
        faults.failed_before_probability = faults.reply_lost_probability = faults.session_lost_probability = 0.0
        for candidate in candidates:
            candidate.join()
        clock.run_until(lambda: False, seconds=120.0)
        assert not failed
        assert [candidate.elected for candidate in candidates].count(True) == 1
        votes = shared.znodes.leader.nodes["/ledgers/underreplication/auditorelection"].children
        assert len(votes) == 3
        for calls in told:
            assert all(call == ("elected", "lost")[place % 2] for place, call in enumerate(calls))


# --- news of work --------------------------------------------------------------------------------------------------


def test_an_auditor_that_publishes_much_does_not_make_every_worker_list_it_each_time() -> None:
    bench = Bench()
    heard: list[float] = []
    watch = bench.store.underreplication.watch_work(lambda: heard.append(bench.clock.seconds()))
    bench.clock.run_until(lambda: bool(heard), seconds=10.0)
    start = bench.clock.seconds()
    for ledger_id in range(200):
        bench.run(bench.truth.underreplication.mark(LedgerId(ledger_id), [A], now_ms=None))
        bench.clock.run_until(lambda: False, seconds=0.1)
    elapsed_s = bench.clock.seconds() - start
    bench.clock.run_until(lambda: False, seconds=2 * WORK_PAUSE_S)
    assert 5 <= len(heard) - 1 <= elapsed_s / WORK_PAUSE_S + 3
    watch.cancel()
    told = len(heard)
    bench.run(bench.truth.underreplication.mark(LEDGER, [A], now_ms=None))
    bench.clock.run_until(lambda: False, seconds=60.0)
    assert len(heard) == told


def test_many_marks_do_not_use_up_the_watches_on_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mark has a directory of its own; what is watched are those of 65536 ids."""
    monkeypatch.setattr(mark_walk, "DIRECTORIES_WATCHED_MAX", 24)
    bench = Bench()
    starts = [65_536 * number for number in range(20)]
    for start in starts:
        for ledger_id in range(start, start + 10):
            bench.run(bench.truth.underreplication.mark(LedgerId(ledger_id), [A], now_ms=None))
    heard: list[None] = []
    bench.store.underreplication.watch_work(lambda: heard.append(None))
    bench.clock.run_until(lambda: False, seconds=30.0)
    for start in starts:
        before = len(heard)
        bench.run(bench.truth.underreplication.mark(LedgerId(start + 10), [A], now_ms=None))
        assert bench.clock.run_until(lambda before=before: len(heard) > before, seconds=30.0)  # type: ignore[misc]
        bench.clock.run_until(lambda: False, seconds=30.0)


def test_news_of_work_survive_any_fault(rng: random.Random) -> None:
    clock = SimulatedClock()
    shared = MemoryMetadata(clock=clock)
    faults = MemoryFaults(
        lag_max_s=0.2, failed_before_probability=0.1, reply_lost_probability=0.1, session_lost_probability=0.05
    )
    store = MemoryMetadataStore(shared, clock, rng, faults)
    truth = MemoryMetadataStore(shared, clock, rng)
    heard: list[None] = []
    store.underreplication.watch_work(lambda: heard.append(None))
    bench = Bench()
    bench.clock = clock
    for ledger_id in (1, 2, 2**20, 2**40, 2**40 + 1):
        clock.run_until(lambda: False, seconds=60.0)
        before = len(heard)
        bench.run(truth.underreplication.mark(LedgerId(ledger_id), [A], now_ms=None))
        assert clock.run_until(lambda before=before: len(heard) > before, seconds=120.0)  # type: ignore[misc]


# --- bad copies ----------------------------------------------------------------------------------------------------


@FAULTS
@pytest.mark.parametrize("operation", ["create", "write"])
def test_bad_copies_are_noted_whatever_becomes_of_the_first_attempt(operation: str, fault: Fault) -> None:
    bench = Bench()
    bench.faults.force(fault, operation, "badcopies/urL")
    for first in (0, 10):
        bench.run(bench.store.underreplication.report_bad_copies(LEDGER, [BadRange(A, EntryId(first), EntryId(first))]))
    found = bench.run(bench.truth.underreplication.bad_copies(LEDGER))
    assert [bad.first_entry_id for bad in found.ranges] == [0, 10]  # type: ignore[attr-defined]
    assert bench.run(marked(bench.truth)) == []
