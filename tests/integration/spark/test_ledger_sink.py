"""The format bookkeeper, written by Spark to a real cluster: each row once, whatever fails on the way."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from pyspark import inheritable_thread_target

import bookkeeper.blocking
from bookkeeper.cli.main import main
from bookkeeper.cli.spark.words import EXIT_UNKNOWN
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.sink import sink as ledger_sink
from bookkeeper.spark.sink.commit_format import CommitRefused
from bookkeeper.spark.sink.history import commit_of_job, commits_of_job, commits_of_query, committed_writes
from bookkeeper.spark.sink.options import read_sink_options
from bookkeeper.spark.sink.purpose import Fate
from bookkeeper.spark.sink.sink import LedgerBatchWriter
from bookkeeper.spark.sink.sweep import sweep
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.faulty_ledger_sink import register_faulty_sink
from tests.support.sink_ledgers import check_nothing_is_left, ledgers_of, named_by
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 300
_paths = itertools.count(1)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = spark_session()
    register_faulty_sink(session)
    # Several batches a task, so that a task can fail in the middle of a few rows.
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    yield session
    session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-sink-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("spark-sink")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


@pytest.fixture
def commits(cluster: LocalCluster) -> str:
    """A commitPath of the test's own."""
    return f"{cluster.root}-commits-{next(_paths)}"


def rows_of(spark: Any, count: int, partitions: int = 2) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr("concat('row ', id) AS value")


def expected(count: int) -> list[bytes]:
    return sorted(b"row %d" % number for number in range(count))


def read_back(spark: Any, cluster: LocalCluster, commits: str, **whose: str) -> list[bytes]:
    frame = spark.read.format("bookkeeper").options(uri=cluster.uri, commitPath=commits, **whose).load()
    return [bytes(row.value) for row in frame.collect()]


def test_a_batch_is_written_by_two_tasks_and_read_by_the_name_of_its_job(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str
) -> None:
    rows_of(spark, 1000).write.format("bookkeeper").mode("append").options(
        uri=cluster.uri, commitPath=commits, job="first", ensembleSize=2, writeQuorumSize=2, ackQuorumSize=1
    ).save()
    assert read_back(spark, cluster, commits, job="first") == [b"row %d" % number for number in range(1000)]
    commit = commit_of_job(cluster.uri, "first", commit_path=commits)
    assert (commit.entries, commit.size, [each.partition for each in commit.ledgers]) == (1000, 6890, [0, 1])
    assert [str(each.owner) for each in committed_writes(cluster.uri, commit_path=commits)] == ["job first"]
    metadata = client.metadata(commit.ledgers[0].ledger_id)
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum, metadata.is_closed) == (2, 2, 1, True)
    assert metadata.custom["application"] == b"bookkeeper-spark"
    assert metadata.custom["spark.job"] == b"first"
    check_nothing_is_left(cluster, client, commits, {each.ledger_id for each in commit.ledgers})


def test_no_rows_are_committed_as_such_and_empty_values_and_tiny_windows_do_no_harm(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str
) -> None:
    def write(frame: Any, job: str, **options: object) -> None:
        frame.write.format("bookkeeper").mode("append").options(
            uri=cluster.uri, commitPath=commits, job=job, **options
        ).save()

    write(rows_of(spark, 0), "nothing")
    assert read_back(spark, cluster, commits, job="nothing") == []
    assert ledgers_of(client, commits) == set()
    # Four partitions, two of them without rows; bytes, not text.
    write(spark.range(0, 4, 1, 4).where("id >= 2").selectExpr("CAST('' AS BINARY) AS value"), "empty-values")
    assert read_back(spark, cluster, commits, job="empty-values") == [b"", b""]
    write(rows_of(spark, 500), "tiny-window", windowEntriesMax=3)
    assert sorted(read_back(spark, cluster, commits, job="tiny-window")) == expected(500)
    check_nothing_is_left(cluster, client, commits, ledgers_of(client, commits))


@pytest.mark.parametrize(
    ("columns", "mode", "why"),
    [
        (["id", "'x' AS value"], "append", "an entry is one column, value .*, and not id"),
        (["'x' AS text"], "append", "an entry is one column, value .*, and not text"),
        (["id AS value"], "append", "column value is bigint; an entry is binary or string. Cast it"),
        (["IF(id = 203, null, 'x') AS value"], "append", "row 203 .from 0. of partition 0 has a null as value"),
        (["'x' AS value"], "overwrite", "a ledger cannot be overwritten; use .mode..append"),
    ],
)
def test_rows_that_are_no_entries_are_told_with_the_remedy(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingBookKeeper,
    commits: str,
    columns: list[str],
    mode: str,
    why: str,
) -> None:
    frame = spark.range(0, 300, 1, 1).selectExpr(*columns)
    with pytest.raises(Exception, match=why):
        frame.write.format("bookkeeper").mode(mode).options(uri=cluster.uri, commitPath=commits).save()
    assert ledgers_of(client, commits) == set()


class Attempt:
    """What Spark tells one attempt of a task; stands in the place of its context."""

    def __init__(self, number: int) -> None:
        self._number = number

    def partitionId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return self._number

    def getLocalProperty(self, _: str) -> None:
        return None


def test_of_two_attempts_of_a_task_that_live_at_once_the_one_that_spark_chose_is_committed(
    cluster: LocalCluster, client: BlockingBookKeeper, commits: str, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """As with speculation, or an executor that was taken for dead: the other one goes on writing behind the commit."""
    rows = [
        pa.record_batch({"value": [b"row %d" % number for number in range(250 * at, 250 * at + 250)]}) for at in (0, 1)
    ]
    options = read_sink_options({"uri": cluster.uri, "commitPath": commits, "job": "speculated"})
    writer = pickle.loads(pickle.dumps(LedgerBatchWriter(options)))

    def attempt(number: int, batches: Any) -> Any:
        monkeypatch.setattr(ledger_sink, "_task", lambda: Attempt(number))
        return writer.write(iter(batches))

    def slow() -> Iterator[Any]:
        yield rows[0]
        chosen = attempt(1, rows)
        writer.commit([chosen])
        writer.commit([chosen])  # its answer was lost
        writer.abort([chosen])  # and Spark gives it up
        yield rows[1]

    late = attempt(0, slow())
    assert late.ledger.entries == 500
    assert sorted(read_back(spark, cluster, commits, job="speculated")) == expected(500)
    with pytest.raises(CommitRefused, match="job speculated was committed before"):
        LedgerBatchWriter(options).commit([dataclasses.replace(late, write="of a restarted driver")])
    [swept] = sweep(cluster.uri, commit_path=commits).orphans
    assert (swept.ledger_id, swept.fate, swept.purpose.attempt) == (late.ledger.ledger_id, Fate.SUPERSEDED, 0)
    [kept] = commit_of_job(cluster.uri, "speculated", commit_path=commits).ledgers
    check_nothing_is_left(cluster, client, commits, {kept.ledger_id})


@pytest.mark.parametrize(
    "fault",
    [
        *("task raises", "task killed", "commit raises", "commit killed", "committed killed", "abort raises"),
    ],
)
def test_a_batch_that_fails_at_any_step_is_written_as_a_whole_or_not_at_all(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, tmp_path: Path, fault: str
) -> None:
    def write() -> None:
        rows_of(spark, 500).write.format("faulty-bookkeeper").mode("append").options(
            uri=cluster.uri, commitPath=commits, job="j", fault=fault, marks=str(tmp_path)
        ).save()

    if fault.startswith("task"):
        write()
    else:
        with pytest.raises(Exception, match=r"Injected|crashed|unexpectedly"):
            write()
    assert (tmp_path / fault).exists()
    if fault.startswith("commit "):
        assert ledgers_of(client, commits) == set(), "the abort deletes what was written"
    if fault.startswith(("commit ", "abort")):
        with pytest.raises(Exception, match="job j has committed nothing"):
            read_back(spark, cluster, commits, job="j")
        write()
    assert sorted(read_back(spark, cluster, commits, job="j")) == expected(500)
    if fault == "committed killed":
        with pytest.raises(Exception, match="job j was committed before, by another write, and stays as it is"):
            write()
        assert sorted(read_back(spark, cluster, commits, job="j")) == expected(500)
    commit = commit_of_job(cluster.uri, "j", commit_path=commits)
    check_nothing_is_left(cluster, client, commits, {each.ledger_id for each in commit.ledgers})


def test_a_write_that_died_is_swept_and_what_was_committed_stays_where_its_commit_was_removed(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, tmp_path: Path, zookeeper: Any
) -> None:
    """The write that died is a job's first: what proves its ledgers dead is that it was begun, and not committed."""
    with pytest.raises(Exception, match=r"Injected|crashed|unexpectedly"):
        rows_of(spark, 100).write.format("faulty-bookkeeper").mode("append").options(
            uri=cluster.uri, commitPath=commits, job="died", fault="abort raises", marks=str(tmp_path)
        ).save()
    died = ledgers_of(client, commits)
    assert len(died) == 2
    rows_of(spark, 100).write.format("bookkeeper").mode("append").options(
        uri=cluster.uri, commitPath=commits, job="removed"
    ).save()
    committed = ledgers_of(client, commits) - died
    assert sweep(cluster.uri, commit_path=commits, dry_run=True).orphans == ()
    session = KazooClient(zookeeper.address)
    session.start()
    try:
        session.delete(f"{commits}/jobs/removed", recursive=True)
    finally:
        session.stop()
        session.close()
    swept = sweep(cluster.uri, commit_path=commits, older_than_s=0)
    assert {each.ledger_id: each.fate for each in swept.orphans} == dict.fromkeys(died, Fate.TOO_OLD)
    assert {each.ledger_id: each.fate for each in swept.unknown} == dict.fromkeys(committed, Fate.NO_HEAD)
    assert ledgers_of(client, commits) == committed
    words = ["spark", "sweep", "--uri", cluster.uri, "--commit-path", commits]
    assert main(words) == EXIT_UNKNOWN


def test_a_stream_that_would_overwrite_is_told_what_to_do(
    spark: Any, cluster: LocalCluster, commits: str, tmp_path: Path
) -> None:
    counts = (
        spark.readStream.format("rate").load().groupBy("value").count().selectExpr("CAST(count AS STRING) AS value")
    )
    writer = counts.writeStream.format("bookkeeper").outputMode("complete").options(uri=cluster.uri, commitPath=commits)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"a ledger cannot be overwritten.* by foreachBatch"):
        query.awaitTermination(PATIENCE_S)


class Pages:
    """A stream of text files: a batch for each, replayed from the checkpoint as they were."""

    def __init__(self, spark: Any, directory: Path, cluster: LocalCluster, commits: str) -> None:
        self._spark, self._directory = spark, directory
        self._uri, self._commits = cluster.uri, commits
        self._rows = 0
        (directory / "pages").mkdir()
        self.marks_directory = directory / "marks"
        self.marks_directory.mkdir()

    def add(self, count: int) -> None:
        """One file of so many rows."""
        lines = "".join(f"row {number}\n" for number in range(self._rows, self._rows + count))
        partial = self._directory / "partial"
        partial.write_text(lines)
        os.utime(partial, (self._rows + 1, self._rows + 1))  # by which Spark orders them
        partial.rename(self._directory / "pages" / f"page-{self._rows:06}.txt")
        self._rows += count

    def start(self, fault: str = "", checkpoint: str = "checkpoint", **options: str) -> Any:
        """The query, from its checkpoint; it ends once it has written all pages."""
        pages = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._directory / "pages"))
        writer = pages.repartition(2).writeStream.options(
            uri=self._uri, commitPath=self._commits, checkpointLocation=str(self._directory / checkpoint), **options
        )
        if fault:
            writer = writer.format("faulty-bookkeeper").options(fault=fault, marks=str(self.marks_directory))
        else:
            writer = writer.format("bookkeeper")
        return writer.trigger(availableNow=True).start()

    def start_each(self, take: Callable[[Any, int], None], checkpoint: str = "checkpoint") -> Any:
        """A query that does something with each page; it ends once it has done it with all."""
        pages = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._directory / "pages"))
        writer = pages.writeStream.foreachBatch(take).option("checkpointLocation", str(self._directory / checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, fault: str = "", checkpoint: str = "checkpoint", **options: str) -> tuple[str, Exception | None]:
        """Run the query to its end; its id, and why it failed."""
        query = self.start(fault, checkpoint, **options)
        try:
            assert query.awaitTermination(PATIENCE_S), "the query does not end"
        except Exception as error:  # noqa: BLE001 - what Spark raises for a query that failed
            return query.id, error
        return query.id, None

    def remove(self, first_row: int) -> None:
        """The file that begins with a row."""
        (self._directory / "pages" / f"page-{first_row:06}.txt").unlink()

    def copy(self, checkpoint: str, *, to: str) -> None:
        """Have a checkpoint as it is now in another place, and nothing else there."""
        shutil.rmtree(self._directory / to, ignore_errors=True)
        shutil.copytree(self._directory / checkpoint, self._directory / to)

    @property
    def marks(self) -> set[str]:
        """Faults that happened."""
        return {each.name for each in self.marks_directory.iterdir()}


@pytest.fixture
def pages(spark: Any, tmp_path: Path, cluster: LocalCluster, commits: str) -> Pages:
    return Pages(spark, tmp_path, cluster, commits)


def test_each_batch_of_a_stream_is_committed_once_over_restarts(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages
) -> None:
    for _ in range(2):
        pages.add(250)
    query, error = pages.run()
    assert error is None
    pages.add(500)
    assert pages.run() == (query, None)
    assert [commit.batch for commit in commits_of_query(cluster.uri, query, commit_path=commits)] == [0, 1, 2]
    found = read_back(spark, cluster, commits, query=query)
    assert sorted(found) == expected(1000)
    assert sorted(found[:250]) == expected(250), "in the order of the commits"
    check_nothing_is_left(cluster, client, commits, named_by(cluster, commits, query))


@pytest.mark.parametrize(
    "fault",
    [
        *("task raises", "task killed", "commit raises", "commit killed", "committed raises", "committed killed"),
        "abort raises",
    ],
)
def test_a_stream_that_fails_at_any_step_and_is_restarted_has_each_row_once(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages, fault: str
) -> None:
    for _ in range(2):
        pages.add(500)
    query, error = pages.run(fault)
    assert (error is None) == fault.startswith("task"), error
    assert pages.run(fault)[1] is None
    pages.add(500)
    assert pages.run() == (query, None)
    assert fault in pages.marks
    orphans = sweep(cluster.uri, commit_path=commits, dry_run=True).orphans
    # Who can clean up does; a process that was killed cannot, nor can anybody once the abort failed too.
    assert [each.fate for each in orphans] == [Fate.SUPERSEDED] * {"task killed": 1, "abort raises": 2}.get(fault, 0)
    assert sorted(read_back(spark, cluster, commits, query=query)) == expected(1500)
    assert [commit.batch for commit in commits_of_query(cluster.uri, query, commit_path=commits)] == [0, 1, 2]
    check_nothing_is_left(cluster, client, commits, named_by(cluster, commits, query))


def test_a_query_that_is_restarted_from_an_old_checkpoint_fails_unless_it_may_leave_out_what_it_has_now(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages
) -> None:
    """Its batches are planned anew, and have other rows than those of these numbers that were committed."""
    pages.add(100)
    query, error = pages.run()
    assert error is None
    pages.copy("checkpoint", to="backup")
    pages.add(200)
    assert pages.run() == (query, None)
    pages.copy("backup", to="checkpoint")
    pages.remove(100)
    pages.add(300)
    for _ in range(2):
        _, error = pages.run()
        assert "with 200 entries" in str(error), error
    found = commits_of_query(cluster.uri, query, commit_path=commits)
    assert [(each.batch, each.entries) for each in found] == [(0, 100), (1, 200)]
    assert pages.run(acceptRepeat="true") == (query, None)
    pages.add(10)
    assert pages.run() == (query, None)
    found = commits_of_query(cluster.uri, query, commit_path=commits)
    assert [(each.batch, each.entries) for each in found] == [(0, 100), (1, 200), (2, 10)]
    check_nothing_is_left(cluster, client, commits, named_by(cluster, commits, query))


def test_a_query_that_is_stopped_while_a_task_writes_goes_on_where_it_was_and_leaves_other_queries_alone(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages
) -> None:
    pages.add(500)
    for pipe in ("begun", "never"):
        os.mkfifo(pages.marks_directory / pipe)
    query = pages.start("task hangs")
    (pages.marks_directory / "begun").read_text()  # returns once the task has written a part of its ledger
    query.stop()
    assert ledgers_of(client, commits), "what the task had written"
    with pytest.raises(Exception, match="has committed nothing"):
        read_back(spark, cluster, commits, query=query.id)
    other, error = pages.run(checkpoint="another")
    assert error is None
    pages.add(500)
    assert pages.run() == (query.id, None)
    assert other != query.id
    assert sorted(read_back(spark, cluster, commits, query=query.id)) == expected(1000)
    assert sorted(read_back(spark, cluster, commits, query=other)) == expected(500)
    named = named_by(cluster, commits, query.id) | named_by(cluster, commits, other)
    left = ledgers_of(client, commits) - named
    # Batches that are past need no age.
    assert {orphan.ledger_id for orphan in sweep(cluster.uri, commit_path=commits).orphans} == left
    check_nothing_is_left(cluster, client, commits, named)


def test_a_job_with_one_name_in_each_batch_of_a_stream_is_committed_once_for_each_and_used_twice_it_is_refused(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages
) -> None:
    def write(rows: Any, job: str) -> None:
        rows.write.format("bookkeeper").mode("append").options(uri=cluster.uri, commitPath=commits, job=job).save()

    fails = True

    def take(rows: Any, batch: int) -> None:
        write(rows, "copy")
        if batch == 1 and fails:
            raise RuntimeError("injected")

    for _ in range(2):
        pages.add(250)
    with pytest.raises(Exception, match="injected"):
        pages.start_each(take).awaitTermination(PATIENCE_S)
    fails = False
    pages.add(500)
    assert pages.start_each(take).awaitTermination(PATIENCE_S)
    found = commits_of_job(cluster.uri, "copy", commit_path=commits)
    assert [(commit.batch, commit.entries) for commit in found] == [(0, 250), (1, 250), (2, 500)]
    assert sorted(read_back(spark, cluster, commits, job="copy")) == expected(1000)
    with pytest.raises(InvalidArgument, match="committed in 3 batches of a query"):
        commit_of_job(cluster.uri, "copy", commit_path=commits)

    def take_twice(rows: Any, _: int) -> None:
        write(rows.where("value LIKE '%1'"), "twice")
        write(rows.where("value LIKE '%2'"), "twice")

    for _ in range(2):  # nor is it taken for a replay when the query is restarted
        with pytest.raises(Exception, match="job twice was written before in this run of batch 0 of query"):
            pages.start_each(take_twice, "twice").awaitTermination(PATIENCE_S)
    with pytest.raises(Exception, match=r"job copy was committed before, by query .* in foreachBatch"):
        write(rows_of(spark, 10), "copy")
    named = {each.ledger_id for commit in found for each in commit.ledgers}
    named |= {each.ledger_id for each in commit_of_job(cluster.uri, "twice", commit_path=commits).ledgers}
    check_nothing_is_left(cluster, client, commits, named)


def test_a_job_that_foreach_batch_hands_to_other_threads_knows_its_batch_where_they_inherit_it(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, commits: str, pages: Pages
) -> None:
    def write(rows: Any, job: str) -> None:
        rows.sparkSession.createDataFrame([], "x INT")  # makes the session this thread's: it finds the format
        rows.write.format("bookkeeper").mode("append").options(uri=cluster.uri, commitPath=commits, job=job).save()

    def take(rows: Any, _: int) -> None:
        inheriting = inheritable_thread_target(rows.sparkSession)(write)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(inheriting, rows, job) for job in ("left", "right")]:
                done.result()

    def take_apart(rows: Any, _: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write, rows, "apart").result()

    for _ in range(2):
        pages.add(100)
    assert pages.start_each(take).awaitTermination(PATIENCE_S)
    named = set()
    for job in ("left", "right"):
        found = commits_of_job(cluster.uri, job, commit_path=commits)
        assert [(commit.batch, commit.entries) for commit in found] == [(0, 100), (1, 100)]
        named |= {each.ledger_id for commit in found for each in commit.ledgers}
    with pytest.raises(Exception, match=r"job apart was committed before, by another write.*inheritable_thread_target"):
        pages.start_each(take_apart, "apart").awaitTermination(PATIENCE_S)
    named |= {each.ledger_id for each in commit_of_job(cluster.uri, "apart", commit_path=commits).ledgers}
    check_nothing_is_left(cluster, client, commits, named)
