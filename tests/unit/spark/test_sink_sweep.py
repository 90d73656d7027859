"""The sweep over a simulated metadata store."""

from __future__ import annotations

import pytest

from bookkeeper.cli.spark.sweep import TOLD_MAX, unknown_lines
from bookkeeper.spark.sink.commit_format import Commit, CommitRefused, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.commits import commits_at, oldest_of
from bookkeeper.spark.sink.purpose import Fate, Purpose
from bookkeeper.spark.sink.sweep import Unknown
from tests.support.commit_bench import JOB, QUERY, Bench


@pytest.mark.parametrize("dry_run", [True, False])
def test_orphans_go_and_everything_else_stays(dry_run: bool) -> None:
    bench = Bench()
    strangers = {
        bench.ledger({"application": b"else"}),
        bench.ledger({"application": b"bookkeeper-spark"}),
        bench.ledger(Purpose(QUERY, "w", 0, 0, 0, 0, "/other").custom()),
    }
    committed = bench.written(0)
    bench.commit(0, committed)
    too_old, old_job = bench.written(1), bench.written(0, owner=JOB)
    bench.grow_old()
    again, given_up = bench.written(0, write="v"), bench.written(1, write="given up")
    bench.run(bench.commits.give_up(QUERY, 1, "given up"))
    in_flight, new_job = bench.written(1), bench.written(0, owner=JOB)
    before = bench.there()
    swept = bench.sweep(dry_run=dry_run)
    assert {orphan.ledger_id: orphan.fate for orphan in swept.orphans} == {
        again: Fate.SUPERSEDED,
        given_up: Fate.ABORTED,
        too_old: Fate.TOO_OLD,
        old_job: Fate.TOO_OLD,
    }
    assert swept.left == {Fate.COMMITTED: 1, Fate.IN_FLIGHT: 2, Fate.UNREADABLE: 1}
    assert bench.there() == (before if dry_run else {*strangers, committed, in_flight, new_job})
    if dry_run:
        bench.commit(1, too_old)  # it was not forbidden
    else:
        with pytest.raises(CommitRefused, match=f"ledger {too_old} was deleted before it was committed"):
            bench.run(oldest_of(bench.client, [in_flight, too_old]))
        bench.commit(1, in_flight)


def test_a_job_whose_only_write_died_is_cleaned_up_and_can_never_be_committed_then() -> None:
    bench = Bench()
    orphan = bench.written(0, owner=JOB)
    oldest_ms = bench.run(oldest_of(bench.client, [orphan]))
    head_id = bench.run(bench.commits.begin(JOB))
    bench.grow_old()
    assert [(each.ledger_id, each.fate) for each in bench.sweep().orphans] == [(orphan, Fate.TOO_OLD)]
    late = Commit(0, "w", (WrittenLedger(orphan, 1, 1, 0, 0, 0),))
    with pytest.raises(CommitRefused, match="made before the sweep"):
        bench.run(bench.commits.commit(JOB, late, oldest_ms, head_id))


def test_a_task_s_clock_that_is_wrong_makes_no_live_write_an_orphan_and_keeps_no_orphan() -> None:
    bench = Bench()
    far_future_ms = 2**50
    orphan = bench.written(0, noted_ms=far_future_ms)
    bench.grow_old()
    live = bench.written(0, noted_ms=1)
    assert [(each.ledger_id, each.fate) for each in bench.sweep().orphans] == [(orphan, Fate.TOO_OLD)]
    bench.commit(0, live)
    assert bench.there() == {live}


@pytest.mark.parametrize("gone", ["/spark", "/spark/jobs", "/spark/jobs/j"])
@pytest.mark.parametrize("begun_anew", [True, False])
def test_what_was_committed_stays_where_what_says_so_is_gone(gone: str, begun_anew: bool) -> None:
    """Absence proves nothing: neither does a job of the same name that was begun, or committed, after the removal."""
    bench = Bench()
    committed = bench.written(0, owner=JOB)
    bench.commit(0, committed, owner=JOB)
    bench.remove(gone)
    bench.grow_old()
    newer = set()
    if begun_anew:
        newer.add(bench.written(0, owner=JOB, write="v"))
        bench.commit(0, *newer, owner=JOB)
    swept = bench.sweep()
    fate = Fate.OTHER_HEAD if begun_anew else Fate.NO_HEAD
    assert (swept.orphans, [(each.ledger_id, each.fate) for each in swept.unknown]) == ((), [(committed, fate)])
    assert bench.there() == {committed, *newer}
    if gone == "/spark" and not begun_anew:
        assert not bench.metadata.exists("/spark"), "a sweep by a wrong path makes nothing"


@pytest.mark.parametrize("batches", [1, 2])
def test_what_was_committed_stays_where_its_record_is_gone(batches: int) -> None:
    """Also where a later batch was committed: old records may have been removed by hand."""
    bench = Bench()
    ledgers = [bench.written(batch) for batch in range(batches)]
    for batch, ledger_id in enumerate(ledgers):
        bench.commit(batch, ledger_id)
    bench.remove("/spark/queries/q/0000000000/0000000000000")
    bench.grow_old()
    swept = bench.sweep()
    assert [(each.ledger_id, each.fate, each.where) for each in swept.unknown] == [
        (ledgers[0], Fate.NO_RECORD, "/spark/queries/q")
    ]
    assert bench.there() == set(ledgers)


def test_nothing_is_committed_into_a_head_that_was_removed_since() -> None:
    bench = Bench()
    ledger_id = bench.written(0)
    head_id = bench.run(bench.commits.begin(QUERY))
    bench.remove("/spark/queries")
    with pytest.raises(CommitRefused, match="/spark/queries/q was removed since"):
        bench.commit(0, ledger_id)
    bench.run(bench.commits.begin(QUERY))
    with pytest.raises(CommitRefused, match="/spark/queries/q was removed since"):
        bench.commit(0, ledger_id)
    with pytest.raises(CommitRefused, match="was removed since"):
        bench.run(bench.commits.give_up(QUERY, 0, "w", head_id))
    assert bench.sweep().orphans == ()


def test_ledgers_of_an_earlier_release_go_only_where_a_commit_or_the_end_of_their_write_is_noted() -> None:
    bench = Bench()
    lost = bench.written_earlier(0, owner=JOB)
    superseded, committed = bench.written_earlier(0), bench.written_earlier(0)
    bench.commit(0, committed)
    unproven = bench.written_earlier(1)
    bench.grow_old()
    young = bench.written_earlier(1)
    swept = bench.sweep()
    assert [(each.ledger_id, each.fate) for each in swept.orphans] == [(superseded, Fate.SUPERSEDED)]
    assert {each.ledger_id: each.fate for each in swept.unknown} == {lost: Fate.NO_HEAD, unproven: Fate.EARLIER}
    assert bench.there() == {lost, committed, unproven, young}


@pytest.mark.parametrize("damaged", ["/spark/queries/q", "/spark/queries/q/0000000000/0000000000000"])
def test_a_ledger_whose_commit_cannot_be_read_is_left_alone(damaged: str) -> None:
    """Unknown is not "no"."""
    bench = Bench()
    bench.commit(0, bench.written(0))
    orphan, other = bench.written(0, write="v"), bench.written(0, owner=JOB)
    bench.metadata.damage(damaged, b"garbage")
    bench.grow_old()
    swept = bench.sweep()
    assert ([each.ledger_id for each in swept.orphans], swept.left) == ([other], {Fate.UNREADABLE: 2})
    assert orphan in bench.there()


def test_ledgers_of_many_jobs_and_batches_are_judged_each_by_its_own() -> None:
    bench = Bench()
    owners = [QUERY, *(Owner(Kind.JOB, f"j{number}") for number in range(5))]
    orphans = {}
    for owner in owners:
        for batch in range(3 if owner is QUERY else 1):
            orphans[bench.written(batch, owner=owner, write="lost")] = (owner, batch)
            bench.commit(batch, bench.written(batch, owner=owner), owner=owner)
    swept = bench.sweep()
    assert {each.ledger_id: (each.purpose.owner, each.purpose.batch) for each in swept.orphans} == orphans
    assert [(str(each.purpose.owner), each.purpose.batch) for each in swept.orphans] == sorted(
        (str(owner), batch) for owner, batch in orphans.values()
    )
    assert swept.left == {Fate.COMMITTED: 8}


def test_ledgers_of_a_cluster_that_was_formatted_since_are_left_alone() -> None:
    bench = Bench()
    bench.commit(0, bench.written(0))
    bench.metadata.damage("/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000001")
    orphan = bench.written_earlier(0, write="v")
    bench.grow_old()
    swept = bench.sweep()
    assert (swept.orphans, swept.left) == ((), {Fate.OTHER_CLUSTER: 2})
    assert orphan in bench.there()
    with pytest.raises(CommitRefused, match="written to the cluster with instance id"):
        bench.run(bench.run(commits_at(bench.client, "/spark")).begin(QUERY))


def test_what_is_unknown_is_told_by_owner_with_the_place_and_a_remedy() -> None:
    lost = [Unknown(number, JOB, Fate.NO_HEAD, "/spark/jobs/j") for number in range(TOLD_MAX + 2)]
    [line] = unknown_lines(lost)
    assert line.startswith(
        "/spark/jobs/j: 12 ledgers of job j (0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more): unknown: nothing"
    )
    assert "bring them back from a backup" in line
    assert "bookkeeper ledger delete" in line
    many = [Unknown(number, None, Fate.UNREADABLE, f"/{number}") for number in range(TOLD_MAX + 3)]
    assert len(lines := list(unknown_lines(many))) == TOLD_MAX + 1
    assert lines[-1] == "and 3 more such; --json tells all"
