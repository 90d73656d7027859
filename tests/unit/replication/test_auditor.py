"""The auditor over simulated metadata: what it marks, when, and what it does not."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.errors import BookieUnavailable, MetadataUnavailable, NoSuchLedgerOnBookie
from bookkeeper.metadata.ledgers import store as ledgers
from bookkeeper.metadata.memory.store import Fault, MemoryFaults
from bookkeeper.metadata.underreplication import tree as underreplication
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.metadata.underreplication.format import CheckKind, mark_path
from bookkeeper.model import BookieId, BookieMode, EntryId, Fragment, LedgerId
from bookkeeper.replication.audit.auditor import Auditor
from bookkeeper.replication.audit.jobs import SECOND_LOOK_S
from bookkeeper.replication.audit.progress import Job, JobStatus
from bookkeeper.replication.audit.term import COUNT_INTERVAL_S, RETRY_MAX_S
from bookkeeper.replication.copies.verdicts import Standing
from tests.simulation.world import WALL_STEPS_S
from tests.support.audited_cluster import WALL_MS, AuditedCluster, bookie

A, B, C, D = map(bookie, "abcd")

OVERDUE = "replication_auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"


def started(cluster: AuditedCluster, faults: MemoryFaults | None = None, **settings: object) -> Auditor:
    """An auditor that has found its feet."""
    auditor = cluster.auditor(cluster.store("x", faults), **settings)
    auditor.start()
    cluster.until(lambda: auditor.status().recovery_delay_s is not None)
    return auditor


def job(auditor: Auditor, which: Job) -> JobStatus:
    (found,) = [status for status in auditor.status().jobs if status.job is which]
    return found


# --- losses --------------------------------------------------------------------------------------------------------


def test_ledgers_on_a_lost_bookie_are_marked_at_once_and_no_others() -> None:
    cluster = AuditedCluster()
    first, second, other = cluster.ledger("abc"), cluster.ledger("bcd", "bca"), cluster.ledger("bcd")
    auditor = started(cluster)
    cluster.wait(10)
    assert cluster.marks() == {}
    cluster.stop("a")
    assert cluster.marks() == {first: {A}, second: {A}}
    assert other not in cluster.marks()
    path = f"/ledgers/underreplication/ledgers/0000/0000/0000/{first:04x}/urL{first:010d}"
    assert cluster.shared.stored(path) == f'replica: "{A}"\nctime: {WALL_MS + 10_000}\n'.encode()
    assert job(auditor, Job.BOOKIES).looked_at == 3
    assert cluster.metrics.value("replication_auditor_NUM_UNDER_REPLICATED_LEDGERS") == 1


def test_who_is_lost_is_in_the_log_once_also_without_a_delay() -> None:
    cluster = AuditedCluster()
    cluster.ledger("abc")
    with capturedLogs() as events:
        started(cluster, auditor_bookie_check_interval_s=50.0)
        cluster.wait(10)
        cluster.stop("a")
        cluster.wait(200)
    said = [formatEvent(event) for event in events if event["log_level"].name == "info"]
    gone = f"{A} is gone; ledgers that lack copies for that are looked for now"
    assert [line for line in said if "gone" in line] == [gone]


@pytest.mark.parametrize("delay_s", [0, 30])
def test_a_bookie_that_never_registered_yet_is_not_said_to_be_gone(delay_s: int) -> None:
    """It stamps its cookie first: an auditor that is elected before its registration knows no more of it than that."""
    cluster = AuditedCluster()
    cluster.stop("a")  # its cookie stays
    with capturedLogs() as events:
        started(cluster, lost_bookie_recovery_delay_s=delay_s)
        cluster.wait(1)
        cluster.start("a")
        cluster.wait(40)
        said = [formatEvent(event) for event in events if event["log_level"].name == "info"]
        assert not any("gone" in line for line in said), said
        (line,) = [line for line in said if str(A) in line]
        assert line.startswith(f"{A} has a cookie, and has not registered since this auditor began; ")
        cluster.stop("a")
        cluster.wait(1)
    assert any(formatEvent(event).startswith(f"{A} is gone; ") for event in events)


def test_marks_note_no_time_where_they_are_not_to() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    started(cluster, store_mark_time=False)
    cluster.stop("a")
    mark = cluster.run(cluster.truth.underreplication.read(ledger_id))
    assert mark.marked_ms is None


def test_a_read_only_bookie_is_there() -> None:
    cluster = AuditedCluster()
    cluster.ledger("abc")
    started(cluster)
    cluster.start("e", BookieMode.READ_ONLY)
    cluster.ledger("ebc")
    cluster.stop("d")
    assert cluster.marks() == {}


def test_a_single_lost_bookie_has_the_delay_to_come_back() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster, lost_bookie_recovery_delay_s=30, auditor_bookie_check_interval_s=7.0)
    cluster.stop("a")
    cluster.wait(29)
    assert cluster.marks() == {}
    assert auditor.status().gone == (A,)
    cluster.start("a")
    cluster.wait(60)
    assert cluster.marks() == {}
    assert cluster.metrics.value("replication_auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED") == 1
    assert cluster.metrics.value("replication_auditor_NUM_SKIPPING_CHECK_TASK_TIMES") >= 3, (
        "not before its time is over"
    )
    cluster.stop("a")
    cluster.wait(29)
    assert cluster.marks() == {}
    cluster.wait(2)
    assert cluster.marks() == {ledger_id: {A}}


@pytest.mark.parametrize("step_s", WALL_STEPS_S)
def test_a_step_of_the_wall_clock_does_not_change_the_delay(step_s: float) -> None:
    cluster = AuditedCluster()
    ledger = cluster.ledger("abc")
    started(cluster, lost_bookie_recovery_delay_s=30, auditor_bookie_check_interval_s=7.0)
    cluster.stop("a")
    cluster.wait(10)
    cluster.wall_ahead_s += step_s
    cluster.wait(19)
    assert cluster.marks() == {}
    cluster.wait(2)
    assert cluster.marks() == {ledger: {A}}


@pytest.mark.parametrize("step_s", WALL_STEPS_S)
def test_a_check_comes_no_later_than_its_interval_when_the_wall_clock_steps(step_s: float) -> None:
    """The next auditor has only the date of the last check; a forward step makes its check come sooner."""
    cluster = AuditedCluster()
    cluster.ledger("abc")
    auditor = started(cluster, auditor_ledger_check_interval_s=100.0)
    cluster.wait(50)
    cluster.wall_ahead_s += step_s
    cluster.wait(60)
    assert len(cluster.copies.asked) == 2
    cluster.run(auditor.stop())
    cluster.wall_ahead_s += step_s
    started(cluster, auditor_ledger_check_interval_s=100.0)
    cluster.wait(101)
    assert len(cluster.copies.asked) in (3, 4)


def test_two_lost_bookies_have_no_delay() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    started(cluster, lost_bookie_recovery_delay_s=1000)
    cluster.stop("a")
    cluster.wait(5)
    cluster.stop("b")
    assert cluster.marks() == {ledger_id: {A, B}}


def test_the_clusters_delay_is_heeded_and_setting_it_again_asks_for_an_audit() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    cluster.run(cluster.truth.underreplication.set_recovery_delay(500))
    auditor = started(cluster, lost_bookie_recovery_delay_s=0)
    assert auditor.status().recovery_delay_s == 500
    cluster.stop("a")
    cluster.wait(400)
    cluster.run(cluster.truth.underreplication.set_recovery_delay(200))
    cluster.wait(190)
    assert cluster.marks() == {}
    cluster.run(cluster.truth.underreplication.set_recovery_delay(200))
    assert cluster.marks() == {ledger_id: {A}}


def test_an_operator_may_ask_for_an_audit() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster, lost_bookie_recovery_delay_s=500)
    cluster.stop("a")
    assert auditor.audit_now()
    cluster.wait(1)
    assert cluster.marks() == {ledger_id: {A}}
    cluster.run(auditor.stop())
    assert not auditor.audit_now()


def test_bookies_lost_before_the_auditor_began_count() -> None:
    """I-77: by their cookie, and by the metadata of ledgers where the cookie is gone too."""
    for interval_s in (0.0, 1000.0):
        cluster = AuditedCluster()
        ledger_id, forgotten = cluster.ledger("abc"), cluster.ledger("zbc")
        cluster.stop("a")
        started(cluster, auditor_bookie_check_interval_s=interval_s)
        cluster.wait(1)
        assert cluster.marks()[ledger_id] == {A}
        assert cluster.marks()[forgotten] == {bookie("z")}
    cluster = AuditedCluster()
    forgotten = cluster.ledger("zbc")
    started(cluster, auditor_bookie_check_interval_s=1000.0)
    cluster.wait(1)
    assert cluster.marks() == {forgotten: {bookie("z")}}


def test_a_new_auditor_gives_the_delay_to_the_bookie_that_the_old_one_ran_beside() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    cluster.stop("a")
    started(cluster, lost_bookie_recovery_delay_s=30, auditor_bookie_check_interval_s=1000.0)
    cluster.wait(29)
    assert cluster.marks() == {}
    cluster.wait(2)
    assert cluster.marks() == {ledger_id: {A}}


def test_while_auto_recovery_is_off_nothing_is_marked() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    cluster.run(cluster.truth.underreplication.disable())
    auditor = started(cluster)
    cluster.stop("a")
    cluster.wait(1000)
    assert cluster.marks() == {}
    assert job(auditor, Job.BOOKIES).waits_for == "auto-recovery to be turned on"
    cluster.run(cluster.truth.underreplication.enable())
    assert cluster.marks() == {ledger_id: {A}}


def test_with_nobody_registered_nothing_is_marked() -> None:
    """More likely the registrations are gone than every bookie; and nobody could copy anything."""
    cluster = AuditedCluster("ab")
    ledger_id = cluster.ledger("ab")
    auditor = started(cluster, lost_bookie_recovery_delay_s=1000)
    cluster.stop("a")
    cluster.stop("b")
    cluster.wait(100)
    assert cluster.marks() == {}
    assert "no bookie at all is registered" in job(auditor, Job.BOOKIES).last_error
    cluster.start("b")
    cluster.wait(RETRY_MAX_S)
    assert cluster.marks() == {ledger_id: {A}}


# --- what is unknown -----------------------------------------------------------------------------------------------


def fail_listings(monkeypatch: pytest.MonkeyPatch, module: ModuleType, walk: str) -> None:
    """Make every walk raise an error after its last batch."""
    listed = getattr(module, walk)

    async def failing(*args: Any) -> AsyncIterator[list[LedgerId]]:
        async for batch in listed(*args):
            yield batch
        raise MetadataUnavailable("/ledgers/00: cut off")

    monkeypatch.setattr(module, walk, failing)


def test_a_listing_that_fails_marks_nothing_wrong_and_is_tried_again_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I-18."""
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster)
    fail_listings(monkeypatch, ledgers, "walk_ledgers")
    steps = cluster.metrics.value("replication_auditor_AUDIT_BOOKIES_TIME")
    cluster.stop("a")
    cluster.wait(600)
    assert "cut off" in job(auditor, Job.BOOKIES).last_error
    assert cluster.marks() == {ledger_id: {A}}
    assert 5 <= cluster.metrics.value("replication_auditor_AUDIT_BOOKIES_TIME") - steps <= 20
    monkeypatch.undo()
    cluster.wait(RETRY_MAX_S)
    assert cluster.marks() == {ledger_id: {A}}
    assert job(auditor, Job.BOOKIES).last_error == ""


STRAYS = (
    *("/ledgers/x", "/ledgers/L0000000001", "/ledgers/00/00zz", "/ledgers/00/L0001", "/ledgers/000"),
    *("/ledgers/00/0000/notaledger", "/ledgers/00/0000/0000", "/ledgers/00/0000/L00001"),
)


@pytest.mark.parametrize("stray", [*STRAYS, "/ledgers/underreplication/ledgers/stranger"])
def test_a_stray_among_ledgers_or_marks_is_named_once_and_stops_no_audit(stray: str) -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster, underreplicated_grace_s=1000)
    cluster.stop("a")
    cluster.run(cluster.store("y").tree.create(stray, b""))
    with capturedLogs() as events:
        cluster.stop("b")
        for _ in range(3):
            assert auditor.audit_now()
            cluster.wait(1)
    assert cluster.marks() == {ledger_id: {A, B}}
    status = job(auditor, Job.BOOKIES)
    assert status.last_error == ""
    named = 0 if stray == "/ledgers/000" else 1  # an empty directory of another layout is not a stray
    assert [each.path for each in status.passed_over] == [stray] * named
    assert cluster.metrics.value("replication_auditor_BAD_RECORDS") == named
    assert sum(f"{stray}: " in formatEvent(event) for event in events if event["log_level"].name == "error") == named


def test_a_mark_that_cannot_be_read_does_not_end_the_count_of_overdue_marks() -> None:
    cluster = AuditedCluster()
    bad, good = cluster.ledger("abc"), cluster.ledger("abc")
    auditor = started(cluster, underreplicated_grace_s=10)
    cluster.stop("a")
    assert set(cluster.marks()) == {bad, good}
    cluster.shared.damage("/ledgers/underreplication/ledgers" + mark_path(bad), b"garbage")
    cluster.wait(20)
    assert auditor.audit_now()
    cluster.wait(1)
    assert cluster.metrics.value(OVERDUE) == 1
    assert [each.path for each in job(auditor, Job.BOOKIES).passed_over] == [
        "/ledgers/underreplication/ledgers" + mark_path(bad)
    ]


def test_an_unreadable_ledger_is_a_doubt_and_stops_nothing() -> None:
    cluster = AuditedCluster()
    bad, good = cluster.ledger("abc"), cluster.ledger("abc")
    cluster.shared.damage(f"/ledgers/00/0000/L{bad:04d}", b"garbage")
    auditor = started(cluster)
    cluster.stop("a")
    assert cluster.marks() == {good: {A}}
    status = job(auditor, Job.BOOKIES)
    assert status.undecided == 1
    assert f"ledger {bad}" in status.doubts[0]


def test_a_bookie_that_comes_back_during_the_audit_is_not_lost() -> None:
    cluster = AuditedCluster()
    for _ in range(40):
        cluster.ledger("abc")
    faults = MemoryFaults(delay_max_s=0.1)
    auditor = started(cluster, faults, auditor_ledgers_in_flight_max=1)
    cluster.stop("a")
    cluster.until(lambda: job(auditor, Job.BOOKIES).looked_at > 5)
    cluster.start("a")
    cluster.wait(1)
    marked = len(cluster.marks())
    cluster.wait(100)
    assert len(cluster.marks()) == marked < 40


def test_a_lagging_server_does_not_make_a_bookie_lost() -> None:
    """I-19: the auditor's server does not know the newest registration yet."""
    cluster = AuditedCluster("abcd")
    ledger_id = cluster.ledger("ebc")
    store = cluster.store("x", MemoryFaults(delay_max_s=0.001, lag_max_s=500.0))
    auditor = cluster.auditor(store)
    auditor.start()
    cluster.until(lambda: auditor.status().recovery_delay_s is not None)
    cluster.start("e")
    assert bookie("e") not in cluster.run(store.bookies.current()).writable
    assert auditor.audit_now()
    cluster.until(lambda: job(auditor, Job.BOOKIES).last_ended_s is not None, 1.0)
    assert cluster.marks() == {}
    cluster.stop("e")
    cluster.wait(600)
    assert cluster.marks() == {ledger_id: {bookie("e")}}


def test_an_audit_that_is_tried_again_does_not_shorten_the_delay_of_a_later_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster, lost_bookie_recovery_delay_s=500)
    fail_listings(monkeypatch, ledgers, "walk_ledgers")
    assert auditor.audit_now()
    assert "cut off" in job(auditor, Job.BOOKIES).last_error
    cluster.stop("a")
    monkeypatch.undo()
    cluster.wait(RETRY_MAX_S)
    assert job(auditor, Job.BOOKIES).last_ended_s is not None
    assert cluster.marks() == {}
    cluster.wait(500)
    assert cluster.marks() == {ledger_id: {A}}


def test_a_bookie_that_was_replaced_during_the_check_lacks_nothing_any_more() -> None:
    cluster = AuditedCluster()
    moved, lacking = cluster.ledger("abc"), cluster.ledger("abc")
    cluster.copies.bad.update({(moved, A): Standing.ABSENT, (lacking, A): Standing.ABSENT})

    def move(ledger_id: int) -> None:
        if ledger_id == moved:
            found = cluster.run(cluster.truth.ledgers.read(moved))
            fragments = (Fragment(EntryId(0), (D, B, C)),)
            cluster.run(cluster.truth.ledgers.write(moved, replace(found.value, fragments=fragments), found.version))

    cluster.copies.before.append(move)
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.until(lambda: job(auditor, Job.LEDGERS).last_ended_s is not None)
    assert cluster.marks() == {lacking: {A}}


def test_a_ledger_deleted_meanwhile_ends_quietly() -> None:
    """I-78."""
    cluster = AuditedCluster()
    ids = [cluster.ledger("abc") for _ in range(3)]
    cluster.copies.before.append(
        lambda ledger_id: (
            cluster.run(cluster.truth.ledgers.delete(LedgerId(ledger_id), 0)) if ledger_id == ids[1] else None
        )
    )
    for ledger_id in ids:
        cluster.copies.bad[ledger_id, A] = Standing.ABSENT
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.until(lambda: job(auditor, Job.LEDGERS).last_ended_s is not None)
    assert cluster.marks() == {ids[0]: {A}, ids[2]: {A}}
    status = job(auditor, Job.LEDGERS)
    assert (status.undecided, status.last_error) == (0, "")


# --- the check of all ledgers --------------------------------------------------------------------------------------


def test_the_check_marks_what_bookies_deny_or_damaged_and_nothing_where_they_are_silent() -> None:
    cluster = AuditedCluster()
    denied, damaged, silent, failed, fine = (cluster.ledger("abc") for _ in range(5))
    cluster.copies.bad.update(
        {(denied, A): Standing.ABSENT, (damaged, B): Standing.UNREADABLE, (silent, C): Standing.SILENT}
    )
    cluster.copies.fail[failed] = BookieUnavailable("no answer")
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.until(lambda: job(auditor, Job.LEDGERS).last_ended_s is not None)
    assert cluster.marks() == {denied: {A}, damaged: {B}}
    assert fine in cluster.copies.asked
    assert job(auditor, Job.LEDGERS).doubts == (f"ledger {silent}: no answer from {C}", f"ledger {failed}: no answer")
    assert cluster.metrics.value("replication_auditor_NUM_LEDGERS_CHECKED") == 5
    ended_ms = cluster.run(cluster.truth.underreplication.check_time_ms(CheckKind.ALL_LEDGERS))
    assert ended_ms is not None


def test_a_bookie_behind_for_a_moment_in_an_open_fragment_is_not_reported() -> None:
    """I-74: a mark would let a worker recover the ledger under its writer."""
    cluster = AuditedCluster()
    behind, lacking = cluster.ledger("abc", closed=False), cluster.ledger("abc", closed=False)
    cluster.copies.bad.update({(behind, A): Standing.ABSENT, (lacking, A): Standing.ABSENT})
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.wait(SECOND_LOOK_S / 2)
    del cluster.copies.bad[behind, A]
    cluster.until(lambda: job(auditor, Job.LEDGERS).last_ended_s is not None)
    assert cluster.marks() == {lacking: {A}}
    assert sorted(cluster.copies.asked) == [behind, behind, lacking, lacking]


def test_a_bookie_that_has_time_to_come_back_is_not_reported_by_the_check_either() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    auditor = started(cluster, lost_bookie_recovery_delay_s=500, auditor_ledger_check_interval_s=20.0)
    cluster.wait(1)
    cluster.stop("a")
    cluster.wait(100)
    assert len(cluster.copies.asked) >= 4
    assert cluster.marks() == {}
    assert auditor.status().gone == (A,)
    cluster.wait(500)
    assert cluster.marks() == {ledger_id: {A}}


def test_the_rhythm_of_the_check_outlives_the_auditor() -> None:
    cluster = AuditedCluster()
    cluster.ledger("abc")
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.wait(300)
    assert len(cluster.copies.asked) == 1
    cluster.run(auditor.stop())
    started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.wait(650)
    assert len(cluster.copies.asked) == 1
    cluster.wait(100)
    assert len(cluster.copies.asked) == 2


def test_a_check_that_fails_is_not_noted_as_done() -> None:
    cluster = AuditedCluster()
    ledger_id = cluster.ledger("abc")
    cluster.copies.fail[ledger_id] = MetadataUnavailable("away")
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0)
    cluster.wait(100)
    assert cluster.run(cluster.truth.underreplication.check_time_ms(CheckKind.ALL_LEDGERS)) is None
    assert job(auditor, Job.LEDGERS).last_error == "away"
    cluster.copies.fail.clear()
    cluster.wait(RETRY_MAX_S)
    assert cluster.run(cluster.truth.underreplication.check_time_ms(CheckKind.ALL_LEDGERS)) is not None


def test_only_so_many_ledgers_are_under_way_at_once() -> None:
    cluster = AuditedCluster()
    for _ in range(60):
        cluster.ledger("abc")
    cluster.copies.takes_s = 1.0
    auditor = started(cluster, auditor_ledger_check_interval_s=1000.0, auditor_ledgers_in_flight_max=7)
    cluster.until(lambda: job(auditor, Job.LEDGERS).last_ended_s is not None)
    assert cluster.copies.busiest == 7
    assert len(cluster.copies.asked) == 60


def test_a_lost_bookie_is_found_while_a_long_check_goes_on() -> None:
    cluster = AuditedCluster()
    ids = {cluster.ledger("abc") for _ in range(20)}
    cluster.copies.takes_s = 1000.0
    auditor = started(cluster, auditor_ledger_check_interval_s=10_000.0)
    cluster.wait(5)
    cluster.stop("a")
    assert cluster.marks().keys() == ids
    assert job(auditor, Job.LEDGERS).running_since_s is not None


# --- racks and lists -----------------------------------------------------------------------------------------------


def test_ledgers_in_too_few_racks_are_counted() -> None:
    cluster = AuditedCluster()
    cluster.ledger("abc")
    cluster.ledger("a")
    auditor = started(cluster, auditor_placement_check_interval_s=100.0)
    cluster.until(lambda: job(auditor, Job.PLACEMENT).last_ended_s is not None)
    assert cluster.metrics.value("replication_auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY") == 0
    assert cluster.run(cluster.truth.underreplication.check_time_ms(CheckKind.PLACEMENT)) is not None
    assert cluster.marks() == {}


def test_what_bookies_do_not_list_is_counted_and_marked_but_not_what_they_do_not_tell() -> None:
    cluster = AuditedCluster()
    one, none_left, untold, fine = (cluster.ledger("abc") for _ in range(4))
    still_open = cluster.ledger("abc", closed=False)
    cluster.copies.held.update(
        {
            (one, A): [range(3), range(4, 100)],
            (none_left, A): NoSuchLedgerOnBookie("no"),
            (none_left, B): [],
            (none_left, C): [range(9)],
            (untold, A): BookieUnavailable("no answer"),
            (still_open, A): [],
        }
    )
    auditor = started(cluster, auditor_replicas_check_interval_s=100.0)
    cluster.until(lambda: job(auditor, Job.REPLICAS).last_ended_s is not None)
    assert cluster.marks() == {one: {A}, none_left: {A, B, C}}
    assert job(auditor, Job.REPLICAS).doubts == (f"ledger {untold}: no answer",)
    assert fine not in cluster.marks()
    assert cluster.metrics.value("replication_auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY") == 1
    assert cluster.metrics.value("replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY") == 1
    assert cluster.metrics.value("replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY") == 0


def test_marks_that_wait_for_too_long_are_counted() -> None:
    cluster = AuditedCluster()
    cluster.run(cluster.truth.underreplication.mark(LedgerId(7), [A], now_ms=WALL_MS))
    cluster.run(cluster.truth.underreplication.mark(LedgerId(8), [A], now_ms=None))
    started(cluster, auditor_bookie_check_interval_s=100.0, underreplicated_grace_s=150.0)
    name = OVERDUE
    cluster.wait(110)
    assert cluster.metrics.value(name) == 0
    cluster.wait(100)
    assert cluster.metrics.value(name) == 1


# --- life and death ------------------------------------------------------------------------------------------------


class FaultAt(MemoryFaults):
    """A fault at the n-th operation of the session, whatever it is."""

    def __init__(self, fault: Fault, at: int) -> None:
        super().__init__(delay_max_s=0.005, reconnect_max_s=0.5)
        self.fault, self.left = fault, at

    def decide(self, random: random.Random, operation: str, path: str) -> Fault | None:
        self.left -= 1
        return self.fault if self.left == 0 else None


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_fault_at_any_operation_delays_the_marks_and_makes_none_wrong(fault: Fault) -> None:
    """I-77, I-16: the fault meets the n-th operation from the election on, for every n until none is left to meet."""
    at, done = 1, False
    while not done:
        cluster = AuditedCluster()
        lost, denied = cluster.ledger("abc"), cluster.ledger("bcd")
        cluster.ledger("dcb")
        cluster.copies.bad[denied, C] = Standing.ABSENT
        faults = FaultAt(fault, at)
        auditor = cluster.auditor(
            cluster.store("x", faults), auditor_bookie_check_interval_s=50.0, auditor_ledger_check_interval_s=1000.0
        )
        cluster.stop("a")
        auditor.start()
        cluster.wait(45)
        assert cluster.marks() == {lost: {A}, denied: {C}}, f"operation {at}"
        assert auditor.elected, f"operation {at}"
        assert len(cluster.shared.znodes.leader.nodes["/ledgers/underreplication/auditorelection"].children) == 1
        done = faults.left > 0
        at += 1
    assert at > 40


def test_what_an_auditor_began_ends_with_its_session() -> None:
    """I-77: a term of an old epoch does nothing more, whatever it was waiting for."""
    for after_s in (0.0, 0.5, 1.5, 2.5):
        cluster = AuditedCluster()
        for _ in range(30):
            cluster.ledger("abc")
        cluster.copies.takes_s = 1.0
        store = cluster.store("x")
        auditor = cluster.auditor(store, auditor_ledger_check_interval_s=1000.0)
        auditor.start()
        cluster.wait(after_s)
        store.expire_session(reconnect_s=1000.0)
        assert not auditor.elected
        asked = len(cluster.copies.asked)
        cluster.wait(900)
        assert len(cluster.copies.asked) == asked
        assert cluster.copies.busy == 0
        cluster.wait(200)
        assert auditor.elected
        assert len(cluster.copies.asked) > asked


def test_a_disconnection_that_passes_costs_nothing_but_time() -> None:
    cluster = AuditedCluster()
    ids = {cluster.ledger("abc") for _ in range(30)}
    store = cluster.store("x", MemoryFaults(delay_max_s=0.05))
    auditor = cluster.auditor(store, auditor_ledgers_in_flight_max=2)
    auditor.start()
    cluster.until(lambda: auditor.status().recovery_delay_s is not None)
    cluster.stop("a")
    cluster.until(lambda: job(auditor, Job.BOOKIES).looked_at > 3)
    elected_since_s = auditor.status().elected_since_s
    store.cut_connection(3.0)
    cluster.wait(60)
    assert cluster.marks().keys() == ids
    assert auditor.status().elected_since_s == elected_since_s


def test_when_the_auditor_dies_the_next_one_goes_on() -> None:
    cluster = AuditedCluster()
    ids = {cluster.ledger("abc") for _ in range(30)}
    slow = MemoryFaults(delay_max_s=0.2)
    stores = [cluster.store(name, slow) for name in "xy"]
    first, second = (cluster.auditor(store, auditor_ledgers_in_flight_max=1) for store in stores)
    first.start()
    cluster.until(lambda: first.status().recovery_delay_s is not None)
    second.start()
    cluster.wait(5)
    cluster.stop("a")
    cluster.until(lambda: job(first, Job.BOOKIES).marked > 3)
    stores[0].crash()
    assert 3 < len(cluster.marks()) < 30
    cluster.until(lambda: second.elected)
    cluster.wait(60)
    assert cluster.marks().keys() == ids


def test_two_auditors_at_once_mark_what_one_would() -> None:
    """I-20: leadership excludes nobody for certain."""
    cluster = AuditedCluster()
    ids = [cluster.ledger("abc") for _ in range(10)]
    jobs = [cluster.auditor(cluster.store(name, MemoryFaults(delay_max_s=0.05)), name) for name in "xy"]
    cluster.stop("a")
    for each in jobs:
        each._on_elected()  # noqa: SLF001 - no election would let both
    cluster.wait(60)
    assert cluster.marks() == {ledger_id: {A} for ledger_id in ids}


def test_a_stopped_auditor_leaves_nothing_behind() -> None:
    cluster = AuditedCluster()
    for _ in range(10):
        cluster.ledger("abc")
    cluster.copies.takes_s = 5.0
    auditor = started(
        cluster,
        auditor_ledger_check_interval_s=100.0,
        auditor_bookie_check_interval_s=30.0,
        lost_bookie_recovery_delay_s=50,
    )
    cluster.stop("b")
    cluster.wait(2)
    cluster.run(auditor.stop())
    cluster.wait(20)
    assert not cluster.shared.znodes.leader.nodes["/ledgers/underreplication/auditorelection"].children
    steps = cluster.clock.steps
    asked = len(cluster.copies.asked)
    cluster.stop("a")
    cluster.wait(1000)
    assert cluster.marks() == {}
    assert len(cluster.copies.asked) == asked
    assert cluster.clock.steps == steps


def test_who_may_not_stand_tries_again_later() -> None:
    cluster = AuditedCluster()
    auditor = cluster.auditor(cluster.store("x"))
    path = "/ledgers/underreplication/LAYOUT"
    cluster.run(cluster.truth.underreplication.prepare())
    good = cluster.shared.stored(path)
    assert good is not None
    cluster.shared.damage(path, b'type: "OTHER"\nversion: 1\n')
    auditor.start()
    cluster.wait(1)
    assert not auditor.elected
    assert "'OTHER'" in auditor.status().last_error
    cluster.shared.damage(path, good)
    cluster.wait(100)
    assert auditor.elected
    assert auditor.status().last_error == ""
    assert cluster.metrics.value("replication_auditor_election_attempts") == 2


def test_whatever_the_store_does_the_marks_are_right_in_the_end(rng: random.Random) -> None:
    """Random faults, bookies that come and go for good; then quiet, and what is marked is what is lost."""
    for _ in range(8):
        cluster = AuditedCluster("abcdef")
        ledgers = {cluster.ledger(ensemble): ensemble for ensemble in ("abc", "bcd", "cde", "def", "efa", "fab") * 3}
        faults = MemoryFaults(
            delay_max_s=0.02,
            lag_max_s=0.3,
            failed_before_probability=0.01,
            reply_lost_probability=0.01,
            session_lost_probability=0.005,
        )
        auditors = [cluster.auditor(cluster.store(name, faults), name) for name in "xy"]
        for each in auditors:
            each.start()
        cluster.wait(rng.uniform(0, 20))
        gone = rng.sample("abcdef", rng.randint(1, 3))
        for letter in gone:
            cluster.stop(letter)
            cluster.wait(rng.choice([0.0, 0.1, 5.0]))
        cluster.wait(rng.uniform(0, 20))
        faults.failed_before_probability = faults.reply_lost_probability = faults.session_lost_probability = 0.0
        cluster.wait(150)
        assert cluster.marks() == {
            ledger_id: {bookie(letter) for letter in ensemble if letter in gone}
            for ledger_id, ensemble in ledgers.items()
            if set(ensemble) & set(gone)
        }
        assert [each.elected for each in auditors].count(True) == 1


# --- how many there are --------------------------------------------------------------------------------------------


def test_the_auditor_alone_shows_how_many_ledgers_are_marked_and_locked_and_when_it_counted() -> None:
    cluster = AuditedCluster()
    ledgers = [cluster.ledger("abc") for _ in range(3)]
    name = "replication_auditor_UNDERREPLICATED_LEDGERS_"

    def shown() -> list[str]:
        lines = cluster.metrics.text().decode().splitlines()
        return [line.removeprefix(name) for line in lines if line.startswith(name)]

    assert shown() == []
    auditor = started(cluster)
    cluster.wait(1)
    assert shown()[:2] == ["MARKED 0", "LOCKED 0"]
    cluster.stop("a")
    lock = cluster.run(cluster.truth.underreplication.lock(ledgers[0], "w", lambda: None))
    assert lock is not None
    cluster.wait(COUNT_INTERVAL_S)
    assert shown()[:2] == ["MARKED 3", "LOCKED 1"]
    cluster.wait(COUNT_INTERVAL_S / 2)
    age_s = cluster.metrics.value(f"{name}AGE_SECONDS")
    assert 0 < age_s <= COUNT_INTERVAL_S
    cluster.run(auditor.stop())
    assert shown() == []


def test_the_auditor_counts_ledgers_with_reported_damage_whether_they_are_marked_or_not() -> None:
    cluster = AuditedCluster()
    ledgers = [cluster.ledger("abc") for _ in range(3)]
    name = "replication_auditor_LEDGERS_WITH_REPORTED_DAMAGE"
    started(cluster)
    cluster.wait(1)
    assert cluster.metrics.value(name) == 0
    bad = BadRange(BookieId("a"), EntryId(0), EntryId(1))
    for ledger_id in ledgers[:2]:
        cluster.run(cluster.truth.underreplication.report_bad_copies(ledger_id, [bad]))
    cluster.wait(COUNT_INTERVAL_S)
    assert cluster.metrics.value(name) == 2
    assert cluster.metrics.value("replication_auditor_UNDERREPLICATED_LEDGERS_MARKED") == 0


def test_a_count_that_fails_leaves_the_last_one_with_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = AuditedCluster()
    cluster.ledger("abc")
    name = "replication_auditor_UNDERREPLICATED_LEDGERS_"
    started(cluster)
    cluster.stop("a")
    cluster.wait(COUNT_INTERVAL_S + 1)
    assert cluster.metrics.value(f"{name}MARKED") == 1
    fail_listings(monkeypatch, underreplication, "walk_marks")
    cluster.wait(3 * COUNT_INTERVAL_S)
    assert cluster.metrics.value(f"{name}MARKED") == 1
    assert cluster.metrics.value(f"{name}AGE_SECONDS") > 2 * COUNT_INTERVAL_S
