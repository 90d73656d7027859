"""Forgetting what a query committed long ago, over a simulated metadata store."""

from __future__ import annotations

import json

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.spark import forget as command
from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import InvalidArgument, MetadataUnavailable
from bookkeeper.spark.sink import retention, sweep
from bookkeeper.spark.sink.commit_format import Commit, CommitRefused, Owner, WrittenLedger
from bookkeeper.spark.sink.commits import SinkCommits
from bookkeeper.spark.sink.purpose import Fate
from bookkeeper.spark.sink.retention import Forgotten, forget, forget_with
from tests.support.commit_bench import AGE_S, JOB, QUERY, Bench


def forgotten(bench: Bench, owner: Owner = QUERY, *, dry_run: bool = False) -> Forgotten:
    return bench.run(forget_with(bench.client, "/spark", owner, AGE_S, dry_run=dry_run))


async def listed(commits: SinkCommits) -> list[Commit]:
    return [commit async for commit in commits.commits(QUERY)]


def batches(bench: Bench) -> list[int]:
    """What is read by the name of the query."""
    return [commit.batch for commit in bench.run(listed(bench.commits))]


def committed(bench: Bench, *numbers: int) -> list[int]:
    """Ledgers of batches that are committed now, one of each."""
    ledgers = [bench.written(number) for number in numbers]
    for number, ledger_id in zip(numbers, ledgers, strict=True):
        bench.commit(number, ledger_id)
    return ledgers


def test_old_batches_go_with_their_ledgers_and_younger_ones_stay() -> None:
    bench = Bench()
    old = committed(bench, 0, 1, 998, 999, 1000, 1001)
    bench.grow_old()
    young = committed(bench, 1002, 2000)
    strangers = {bench.ledger({"application": b"else"}), bench.written(0, owner=JOB)}
    told = Forgotten(QUERY, 6, 6, 1002, dry_run=True)
    assert forgotten(bench, dry_run=True) == told
    assert bench.there() == {*old, *young, *strangers}
    assert forgotten(bench) == Forgotten(QUERY, 6, 6, 1002, dry_run=False)
    assert bench.there() == {*young, *strangers}
    assert batches(bench) == [1002, 2000]
    assert not bench.metadata.exists("/spark/queries/q/0000000000")
    assert not bench.metadata.exists("/spark/queries/q/0000000001/0000000001001")
    assert forgotten(bench) == Forgotten(QUERY, 0, 0, 1002, dry_run=False)
    committed(bench, 2001)
    assert batches(bench) == [1002, 2000, 2001]


def test_a_store_clock_set_forward_forgets_and_sweeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    kept = {*committed(bench, 0, 1), bench.written(2)}
    bench.grow_old()
    for module in (retention, sweep):
        monkeypatch.setattr(module, "wall_ms", lambda: 0)
    assert forgotten(bench).batches == 0
    assert not bench.sweep().orphans
    assert bench.there() == kept


def test_the_last_batch_stays_however_old_so_that_a_replay_of_it_is_known() -> None:
    bench = Bench()
    [_, last] = committed(bench, 0, 1)
    bench.grow_old()
    assert forgotten(bench).first_kept == 1
    assert (bench.there(), batches(bench)) == ({last}, [1])
    replayed = Commit(1, "replayed", (WrittenLedger(last + 1, 1, 1, 0, 0, 0),))
    again = bench.run(bench.commits.commit(QUERY, replayed, None))
    assert again.ledgers[0].ledger_id == last
    with pytest.raises(CommitRefused, match="batch 0 of query q was not committed, and 1 was"):
        bench.run(bench.commits.commit(QUERY, Commit(0, "replayed", ()), None))


def test_what_is_interrupted_is_not_read_any_more_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    old = committed(bench, *range(100))
    bench.grow_old()
    [young] = committed(bench, 100)
    delete, calls = LedgerClient.delete, 0

    def failing(client: LedgerClient, ledger_id: int) -> object:
        nonlocal calls
        calls += 1
        if calls == 80:
            raise MetadataUnavailable("injected")
        return delete(client, ledger_id)

    with monkeypatch.context() as patched:
        patched.setattr(LedgerClient, "delete", failing)
        with pytest.raises(MetadataUnavailable):
            forgotten(bench)
    left = bench.there() - {young}
    assert 0 < len(left) < len(old)
    assert batches(bench) == [100]
    assert bench.sweep().orphans == (), "their records are there still"
    assert forgotten(bench).first_kept == 100
    assert bench.there() == {young}


def test_who_reads_by_the_query_while_old_batches_are_forgotten_goes_on_behind_them() -> None:
    bench = Bench()
    committed(bench, 0, 1000, 1001)
    bench.grow_old()
    committed(bench, 2000)

    async def read() -> list[int]:
        found = []
        async for each in bench.commits.stored(QUERY):
            if not found:  # its list has the directory of 1000 and 1001
                await forget_with(bench.client, "/spark", QUERY, AGE_S, dry_run=False)
                assert not bench.metadata.exists("/spark/queries/q/0000000001")
            found.append(each.commit.batch)
        return found

    assert bench.run(read()) == [0, 2000]


def test_batches_that_are_removed_otherwise_while_they_are_read_are_told() -> None:
    bench = Bench()
    committed(bench, 0, 1000, 2000)

    async def read() -> None:
        async for each in bench.commits.commits(QUERY):
            if not each.batch:
                bench.remove("/spark/queries/q/0000000001")

    with pytest.raises(CommitRefused, match=r"^query q: /spark/queries/q/0000000001 was removed .* not forgotten"):
        bench.run(read())


def test_what_an_attempt_left_behind_of_a_batch_that_is_forgotten_is_swept() -> None:
    bench = Bench()
    committed(bench, 0)
    [orphan, earlier] = [bench.written(0, write="v"), bench.written_earlier(0, write="u")]
    bench.grow_old()
    [young] = committed(bench, 1)
    forgotten(bench)
    swept = bench.sweep()
    assert [(each.ledger_id, each.fate) for each in swept.orphans] == [(orphan, Fate.FORGOTTEN)]
    assert swept.left == {Fate.COMMITTED: 1, Fate.NO_RECORD: 1}
    assert bench.there() == {young, earlier}


def test_a_record_that_was_removed_otherwise_is_not_taken_for_forgotten() -> None:
    bench = Bench()
    [ledger_id, *_] = committed(bench, 0, 1)
    bench.remove("/spark/queries/q/0000000000/0000000000000")
    assert [(each.ledger_id, each.fate) for each in bench.sweep().unknown] == [(ledger_id, Fate.NO_RECORD)]


def test_of_what_has_committed_nothing_nothing_is_forgotten() -> None:
    bench = Bench()
    for _ in range(2):
        with pytest.raises(CommitRefused, match="query q has committed nothing below /spark"):
            forgotten(bench)
        bench.written(0)
    committed(bench, 0)
    bench.metadata.damage("/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000001")
    with pytest.raises(CommitRefused, match="written to the cluster with instance id"):
        forgotten(bench)


def test_whose_batches_and_how_old_is_to_be_said() -> None:
    for words in ({}, {"query": "q", "job": "j"}):
        with pytest.raises(InvalidArgument, match="give a query or a job"):
            forget("zk://zk1/ledgers", older_than_s=1, **words)
    with pytest.raises(InvalidArgument, match="want 0 or more seconds"):
        forget("zk://zk1/ledgers", older_than_s=-1, query="q")


def test_the_command_says_what_was_deleted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {}

    def noting(*_: object, **words: object) -> Forgotten:
        asked.update(words)
        return Forgotten(JOB, 2, 1000, 7, dry_run=bool(words["dry_run"]))

    monkeypatch.setattr(command, "forget", noting)
    words = ["spark", "forget", "--job", "j", "--older-than", "60", "--commit-path", "/spark"]
    assert main(words) == 0
    assert capsys.readouterr().out == "job j: 2 batches with 1,000 ledgers deleted; batch 7 is the oldest now\n"
    assert asked == {"older_than_s": 60, "query": "", "job": "j", "commit_path": "/spark", "dry_run": False}
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "owner": "job j",
        "batches": 2,
        "ledgers": 1000,
        "first_kept": 7,
        "dry_run": True,
    }
