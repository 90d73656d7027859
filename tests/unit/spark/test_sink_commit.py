"""What the driver of a write does with the ledgers of its tasks, over a simulated metadata store."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from bookkeeper.client.client import LedgerClient
from bookkeeper.spark.sink import sink as ledger_sink
from bookkeeper.spark.sink.commit_format import CommitRefused, Owner, WrittenLedger
from bookkeeper.spark.sink.options import read_sink_options
from bookkeeper.spark.sink.sink import LedgerBatchWriter, LedgerStreamWriter, LedgerWritten
from tests.support.commit_bench import JOB, QUERY, Bench


class Driver:
    """The committer of one cluster's writes, whose connection is the bench's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = Bench()
        monkeypatch.setattr(ledger_sink, "client_of", lambda _: self)

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        """As of the blocking client."""

        async def ran() -> Any:
            return await start(self.bench.client)

        return self.bench.run(ran())

    def written(self, batch: int, write: str, entries: int, *, owner: Owner = QUERY, query: str = "") -> LedgerWritten:
        """What a task says that wrote so many entries."""
        ledger_id = self.bench.written(batch, write=write, owner=owner)
        head_id = self.bench.run(self.bench.commits.begin(owner))
        ledger = WrittenLedger(ledger_id, entries, 10 * entries, 0, 0, 0)
        return LedgerWritten(owner, write, batch, 0, head_id, ledger, query)

    def stream(self, message: LedgerWritten, **options: str) -> None:
        """Commit a batch of a query; gives it up as Spark does where that fails."""
        writer = LedgerStreamWriter(read_sink_options(_given(options), stream=True))
        try:
            pickle.loads(pickle.dumps(writer)).commit([message], message.batch)
        except Exception:
            writer.abort([message], message.batch)
            raise

    def job(self, message: LedgerWritten, **options: str) -> None:
        """The same of a job that a query runs."""
        writer = LedgerBatchWriter(read_sink_options(_given(options)))
        try:
            writer.commit([message])
        except Exception:
            writer.abort([message])
            raise


def _given(options: Mapping[str, str]) -> dict[str, str]:
    return {"uri": "zk://zk1:2181/ledgers", "commitPath": "/spark", **options}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def id_of(message: LedgerWritten) -> int:
    assert message.ledger is not None
    return message.ledger.ledger_id


def warnings(events: list[Any]) -> list[str]:
    return [str(event["log_format"]).format(**event) for event in events if event["log_level"].name == "warn"]


def test_a_batch_that_comes_again_from_an_old_checkpoint_with_more_rows_fails_the_query(driver: Driver) -> None:
    """Spark plans a batch of that number anew, with all that has come since: its rows are in no other batch."""
    first = driver.written(31, "w", 20)
    driver.stream(first)
    for _ in range(2):
        with pytest.raises(CommitRefused, match=r"with 20 entries of 200 bytes, and this write of it has 500 entries"):
            driver.stream(driver.written(31, "restored", 500))
    assert driver.bench.there() == {id_of(first)}
    head = driver.bench.run(driver.bench.commits.head(QUERY))
    assert head is not None
    assert head.last_batch == 31
    following = driver.written(32, "v", 1)
    driver.stream(following)
    assert driver.bench.there() == {id_of(first), id_of(following)}


def test_a_batch_that_is_replayed_with_the_same_rows_is_kept_once_and_nothing_is_said_of_it(driver: Driver) -> None:
    first = driver.written(0, "w", 20)
    driver.stream(first)
    with capturedLogs() as events:
        driver.stream(driver.written(0, "again", 20))
    assert (driver.bench.there(), warnings(events)) == ({id_of(first)}, [])


def test_a_replay_whose_ledgers_the_sweep_took_is_known_as_one_all_the_same(driver: Driver) -> None:
    """They were another write's of a batch that is committed, so the sweep had them for orphans while it went on."""
    first = driver.written(0, "w", 20)
    driver.stream(first)
    again, other = driver.written(0, "again", 20), driver.written(0, "other rows", 21)
    assert {each.ledger_id for each in driver.bench.sweep().orphans} == {id_of(again), id_of(other)}
    driver.stream(again)
    with pytest.raises(CommitRefused, match="this write of it has 21 entries"):
        driver.stream(other)
    assert driver.bench.there() == {id_of(first)}


def test_a_batch_whose_ledgers_are_gone_before_it_was_committed_is_refused(driver: Driver) -> None:
    lost = driver.written(0, "w", 20)
    driver.run(lambda client: client.delete(id_of(lost)))
    with pytest.raises(CommitRefused, match=f"ledger {id_of(lost)} was deleted before it was committed"):
        driver.stream(lost)
    assert driver.bench.run(driver.bench.commits.record(QUERY, 0)) is None


def test_other_rows_of_a_batch_are_left_out_with_a_warning_where_the_option_says_so(driver: Driver) -> None:
    of_query = driver.written(0, "w", 20)
    driver.stream(of_query)
    of_job = driver.written(0, "r1.w", 20, owner=JOB, query="q")
    driver.job(of_job)
    again = driver.written(0, "r2.w", 5, owner=JOB, query="q")
    with pytest.raises(CommitRefused, match=r"batch 0 of job j was committed before with 20 .*this write of it has 5"):
        driver.job(again)
    with capturedLogs() as events:
        driver.stream(driver.written(0, "again", 21), acceptRepeat="true")
        driver.job(driver.written(0, "r3.w", 5, owner=JOB, query="q"), acceptRepeat="true")
    assert driver.bench.there() == {id_of(of_query), id_of(of_job)}
    assert warnings(events) == [
        f"batch 0 of {owner} was committed before with 20 entries of 200 bytes, which stay; this write of it has "
        f"{entries} of {10 * entries} bytes, which are left out (acceptRepeat=true)"
        for owner, entries in (("query q", 21), ("job j", 5))
    ]
