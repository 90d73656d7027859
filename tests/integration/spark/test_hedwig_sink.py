"""The format hedwig written by Spark: each row once, with tasks, workers, hubs and commits that fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import inheritable_thread_target

import hedwig.admin.blocking
import hedwig.blocking
import hedwig.spark
from bookkeeper.embedded.cluster import LocalCluster
from hedwig.admin.asking import HttpPlaces, release_topic
from hedwig.client.faces.blocking import BlockingClient
from hedwig.config.load import load_hub
from hedwig.embedded import LocalHub
from hedwig.model import HubAddress, Topic
from hedwig.wire.receiving import Received
from tests.support.cluster import STEADY, local_cluster
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Any:
    session = spark_session()
    hedwig.spark.register(session)
    return session


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-sink-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("sink")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def hubs(cluster: LocalCluster) -> list[LocalHub]:
    settings = {"zk_prefix": f"{cluster.root}-hubs", "zk_timeout": "2000", "explicitLacInterval": "20"}
    hubs = [LocalHub.beside(cluster, number, {**settings, "httpServerEnabled": "true"}) for number in (1, 2)]
    cluster.start_others(hubs)
    return hubs


@pytest.fixture(scope="module")
def client(hubs: list[LocalHub]) -> Iterator[BlockingClient]:
    with hedwig.blocking.connect([hub.address for hub in hubs]) as connected:
        yield connected


@pytest.fixture
def words(hubs: list[LocalHub]) -> dict[str, str]:
    return {"hubs": ",".join(hub.address for hub in hubs)}


def stored(client: BlockingClient, topic: str) -> list[Received]:
    """All messages of a topic."""
    end = client.publish(topic, b"end").local
    found: list[Received] = []
    with client.subscribe(topic, "check", start=1) as messages:
        while len(found) < end:
            found += messages.receive()
    client.unsubscribe(topic, "check")
    return [each for each in found if each.body != b"end"]


def bodies(messages: list[Received]) -> list[bytes]:
    return sorted(each.body for each in messages)


def failing_once(marker: Path, last: bytes, how: Callable[[], None]) -> Any:
    """A column function that lets values pass; at one of them, the first time, something happens."""
    from pyspark.sql.functions import udf

    @udf(returnType="binary", useArrow=False)
    def through(value: bytes) -> bytes:
        if bytes(value) == last and not marker.exists():
            marker.touch()
            how()
        return bytes(value)

    return through


def raise_error() -> None:
    raise RuntimeError("injected")


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def small_batches(spark: Any) -> None:
    """So that a task has published something when it fails."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")


def numbers(spark: Any, count: int, partitions: int) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr("concat('row ', id) AS value")


def test_rows_go_to_the_topics_that_they_name_with_keys_and_headers_in_their_order(
    spark: Any, client: BlockingClient, words: dict[str, str]
) -> None:
    frame = spark.range(0, 400, 1, 1).selectExpr(
        "concat('out ', id % 2) AS topic",
        "CAST(concat('row ', id) AS binary) AS value",
        "concat('k', id) AS key",
        "array(named_struct('key', 'color', 'value', CAST('red' AS binary)), "
        "named_struct('key', 'hw.seq', 'value', CAST('7' AS binary))) AS headers",
        "id AS other",
    )
    frame.write.format("hedwig").options(**words).mode("append").save()
    for topic, first in (("out 0", 0), ("out 1", 1)):
        found = stored(client, topic)
        assert [each.body for each in found] == [b"row %d" % number for number in range(first, 400, 2)]
        properties = dict(found[3].properties)
        assert (properties["key"], properties["color"]) == (b"k%d" % (first + 6), b"red")
        assert properties["hw.seq"] == b"4"  # the sink's own, in this topic


def padded(number: int) -> bytes:
    """So large that rows do not wait in Spark's buffers."""
    return (b"row %d" % number).ljust(500, b".")


def when_stored(address: str, topic: str, how: Callable[[], None]) -> Callable[[], None]:
    """Do it once the topic has a message of the attempt that is under way."""

    def then() -> None:
        with hedwig.blocking.connect(address) as client, client.subscribe(topic, "watch", start=1) as messages:
            assert messages.receive(1, 90.0)
        how()

    return then


def numbered(spark: Any, count: int, partitions: int, through: Any) -> Any:
    frame = numbers(spark, count, partitions).selectExpr("CAST(rpad(value, 500, '.') AS binary) AS value")
    return frame.select(through("value").alias("value"))


@pytest.mark.parametrize("how", [raise_error, kill_worker], ids=["task fails", "worker killed"])
def test_a_batch_task_that_is_tried_again_repeats_nothing(
    spark: Any, client: BlockingClient, words: dict[str, str], tmp_path: Path, how: Callable[[], None]
) -> None:
    small_batches(spark)
    topic = f"batch {how.__name__}"
    frame = numbered(
        spark, 3000, 2, failing_once(tmp_path / "failed", padded(1200), when_stored(words["hubs"], topic, how))
    )
    frame.write.format("hedwig").options(**words).option("topic", topic).mode("append").save()
    assert (tmp_path / "failed").exists()
    assert bodies(stored(client, topic)) == sorted(map(padded, range(3000)))


@pytest.mark.parametrize("is_killed", [True, False], ids=["hub killed", "topic released"])
def test_a_topic_that_goes_to_another_hub_in_the_middle_costs_no_row_and_repeats_none(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingClient,
    words: dict[str, str],
    hubs: list[LocalHub],
    tmp_path: Path,
    *,
    is_killed: bool,
) -> None:
    small_batches(spark)
    topic = f"moved {is_killed}"
    client.publish(topic, b"end")
    owner = owner_of(cluster, hubs, topic)
    pid, address = owner.pid, HubAddress("127.0.0.1", owner.port)
    places = HttpPlaces(int(owner.settings["httpServerPort"]), {})

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)

    def release() -> None:
        assert release_topic(places, address, Topic(topic.encode())) == 1

    frame = numbered(spark, 4000, 1, failing_once(tmp_path / "gone", padded(2500), kill if is_killed else release))
    frame.write.format("hedwig").options(**words).option("topic", topic).mode("append").save()
    assert (tmp_path / "gone").exists()
    found = stored(client, topic)
    assert [each.body for each in found] == [padded(number) for number in range(4000)]
    if is_killed:
        owner.kill()
        owner.start()


def owner_of(cluster: LocalCluster, hubs: list[LocalHub], topic: str) -> LocalHub:
    config = load_hub(None, {"metadataServiceUri": cluster.uri, "zk_prefix": f"{cluster.root}-hubs"}).settings
    with hedwig.admin.blocking.connect(config) as access:
        address = access.run(lambda region: region.owner(Topic(topic.encode())))
    assert address is not None
    return next(hub for hub in hubs if hub.port == address.port)


class Query:
    """A stream from one topic into another, with a checkpoint."""

    def __init__(self, spark: Any, cluster: LocalCluster, words: dict[str, str], directory: Path, topic: str) -> None:
        self._spark, self._words, self._directory, self._topic = spark, words, directory, topic
        self._region = {"uri": cluster.uri, "zk_prefix": f"{cluster.root}-hubs"}

    def run(self, through: Any = None, *, distinct: bool = False, partitions: int = 2) -> None:
        options = {
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 700,
            "minPartitions": partitions,
        }
        frame = self._spark.readStream.format("hedwig").options(**self._region, **options).load().select("value")
        if through is not None:
            frame = frame.select(through("value").alias("value"))
        order = "content" if distinct else "arrival"
        if distinct:
            frame = frame.dropDuplicates(["value"])  # a shuffle
        writer = frame.writeStream.format("hedwig").options(**self._region, topic=self._topic, rowOrder=order)
        query = (
            writer.option("checkpointLocation", str(self._directory / "checkpoint")).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(150)
        assert query.exception() is None

    def run_each(self, job: str, by: Callable[[Callable[[], None]], None] = lambda write: write()) -> None:
        """The same by foreachBatch, which has each batch written as a job of this name."""

        def take(rows: Any, _: int) -> None:
            words = {**(self._words or self._region), "topic": self._topic, "job": job}
            by(lambda: rows.select("value").write.format("hedwig").options(**words).mode("append").save())

        options = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 700, "minPartitions": 2}
        frame = self._spark.readStream.format("hedwig").options(**self._region, **options).load()
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self._directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(150)
        assert query.exception() is None

    def forget_commits(self, count: int) -> None:
        """As a driver that died before it noted that its last batches are done."""
        commits = self._directory / "checkpoint" / "commits"
        for number in sorted(int(each.name) for each in commits.iterdir() if each.name.isdigit())[-count:]:
            for name in (str(number), f".{number}.crc"):
                (commits / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def sent(client: BlockingClient) -> list[bytes]:
    """What is in the topic `in`."""
    rows = [b"row %d" % number for number in range(1200)]
    client.publish_many("in", rows)
    client.publish("in", b"end")  # tells the bookies of the one before
    return sorted(rows)


def test_a_stream_is_stored_once_with_tasks_that_fail_and_batches_that_are_replayed(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingClient,
    words: dict[str, str],
    sent: list[bytes],
    tmp_path: Path,
) -> None:
    small_batches(spark)
    query = Query(spark, cluster, words, tmp_path, "once")
    query.run(failing_once(tmp_path / "failed", b"row 300", raise_error))  # the hubs are found by the region
    assert (tmp_path / "failed").exists()
    assert bodies(stored(client, "once")) == sent
    query.forget_commits(1)
    query.run(failing_once(tmp_path / "killed", b"row 1100", kill_worker))
    assert (tmp_path / "killed").exists()
    assert bodies(stored(client, "once")) == sent


def test_a_stream_is_stored_once_though_its_options_divide_it_otherwise_when_a_batch_is_replayed(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingClient,
    sent: list[bytes],
    tmp_path: Path,
) -> None:
    query = Query(spark, cluster, {}, tmp_path, "divided")
    query.run(partitions=2)
    query.forget_commits(1)
    query.run(partitions=5)
    assert bodies(stored(client, "divided")) == sent


def test_a_stream_behind_a_shuffle_is_known_again_by_its_content(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingClient,
    words: dict[str, str],
    sent: list[bytes],
    tmp_path: Path,
) -> None:
    query = Query(spark, cluster, words, tmp_path, "distinct")
    query.run(distinct=True)
    assert bodies(stored(client, "distinct")) == sent
    query.forget_commits(1)
    query.run(distinct=True)
    assert bodies(stored(client, "distinct")) == sent


def test_a_job_with_one_name_in_each_batch_of_a_stream_publishes_all_of_them_and_a_replayed_one_once(
    spark: Any,
    cluster: LocalCluster,
    client: BlockingClient,
    words: dict[str, str],
    sent: list[bytes],
    tmp_path: Path,
) -> None:
    query = Query(spark, cluster, words, tmp_path, "each")
    query.run_each("copy")
    assert bodies(stored(client, "each")) == sent
    query.forget_commits(1)
    query.run_each("copy")
    assert bodies(stored(client, "each")) == sent


def test_a_job_that_a_thread_writes_which_knows_its_batch_publishes_all_of_them(
    spark: Any, cluster: LocalCluster, client: BlockingClient, sent: list[bytes], tmp_path: Path
) -> None:
    def on_a_thread(write: Callable[[], None]) -> None:
        def with_session() -> None:
            spark.createDataFrame([(1,)], "n INT")  # makes it active: Spark 4.3 finds formats of Python by that
            write()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(inheritable_thread_target(spark)(with_session)).result()

    query = Query(spark, cluster, {}, tmp_path, "threads")
    query.run_each("copy", on_a_thread)
    assert bodies(stored(client, "threads")) == sent


class FileQuery:
    """A stream of lines of files into a topic; `reshape` is what lies between."""

    def __init__(self, spark: Any, words: dict[str, str], directory: Path, topic: str, **options: str) -> None:
        self._spark, self._directory = spark, directory
        self._options = {**words, "topic": topic, "checkpointLocation": f"{directory}/checkpoint", **options}
        self.lines: list[bytes] = []
        (directory / "in").mkdir()
        for number in range(6):
            lines = [f"line {number} {at}" for at in range(100 * (number + 1))]
            (directory / "in" / f"{number}.txt").write_text("\n".join(lines))
            self.lines += map(str.encode, lines)

    def run(self, reshape: Callable[[Any], Any] = lambda frame: frame, *, cores: int) -> None:
        """On so many cores, as far as Spark asks for their number when it divides a batch."""
        self._spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(cores))
        self._spark.conf.set("spark.sql.files.openCostInBytes", "1")
        try:
            rows = reshape(self._spark.readStream.format("text").load(f"{self._directory}/in"))
            query = rows.writeStream.format("hedwig").options(**self._options).trigger(availableNow=True).start()
            assert query.awaitTermination(150)
            assert query.exception() is None
        finally:
            self._spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
            self._spark.conf.unset("spark.sql.files.openCostInBytes")

    def forget_commit(self) -> None:
        """As a driver that died before it noted that its batch is done."""
        for name in ("0", ".0.crc"):
            (self._directory / "checkpoint" / "commits" / name).unlink(missing_ok=True)


def test_files_become_messages_once_when_their_batch_is_divided_alike(
    spark: Any, client: BlockingClient, words: dict[str, str], tmp_path: Path
) -> None:
    query = FileQuery(spark, words, tmp_path, "of files")
    for _ in range(2):
        query.run(cores=3)
        query.forget_commit()
    assert bodies(stored(client, "of files")) == sorted(query.lines)


def test_rows_that_are_divided_by_their_content_become_messages_once_on_any_number_of_cores(
    spark: Any, client: BlockingClient, words: dict[str, str], tmp_path: Path
) -> None:
    query = FileQuery(spark, words, tmp_path, "by content", rowOrder="content")
    for cores in (2, 5):
        query.run(lambda lines: lines.repartition(3, "value"), cores=cores)
        query.forget_commit()
    assert bodies(stored(client, "by content")) == sorted(query.lines)


def test_rows_that_are_no_messages_are_refused_with_the_column(spark: Any, words: dict[str, str]) -> None:
    good = numbers(spark, 3, 1)
    for frame, options, text in (
        (good, {}, "neither option topic nor a column topic"),
        (good.selectExpr("value AS body"), {"topic": "bad"}, "there is no column value, only body"),
        (good.selectExpr("1 AS value"), {"topic": "bad"}, "column value is int, and must be string or binary"),
        (good.selectExpr("value", "5 AS topic"), {}, "column topic is int"),
        (good.selectExpr("value", "value AS headers"), {"topic": "bad"}, "column headers is string"),
        (good.selectExpr("CAST(NULL AS string) AS value"), {"topic": "bad"}, "column value is null in a row"),
        (good.selectExpr("value", "'a//b' AS topic"), {}, "between slashes"),
        (good, {"topik": "bad"}, r"did you mean topic\?"),
        (good.selectExpr("rpad(value, 2000000, '.') AS value"), {"topic": "bad"}, "of 2000000 bytes .* at most"),
    ):
        with pytest.raises(Exception, match=text):
            frame.write.format("hedwig").options(**words, **options).mode("append").save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        good.write.format("hedwig").options(**words, topic="bad").mode("overwrite").save()
