"""The format hedwig read by Spark, as batches and as a stream, from a real cluster with a hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from twisted.logger import capturedLogs

import bookkeeper.blocking
import hedwig.blocking
import hedwig.spark
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from hedwig.admin.asking import HttpPlaces, release_topic
from hedwig.client.faces.blocking import BlockingClient
from hedwig.embedded import LocalHub
from hedwig.errors import TopicBusy
from hedwig.model import HubAddress, SubscribeMode, Topic
from hedwig.spark.exports.export import export_topics
from hedwig.spark.exports.manifest import parse_topic
from hedwig.spark.region_options import read_topic_options
from hedwig.spark.topic_extents import spans_of
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.spark.topic_source import TopicReader
from hedwig.spark.topic_stream import TopicStreamReader
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.logged import logged
from tests.support.patience import until
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

Load = Callable[..., Any]


@pytest.fixture
def spark() -> Any:
    """Return the session with pushed filters. A pipeline over topics registers the format without them."""
    session = spark_session()
    hedwig.spark.register(session, push_filters=True)  # each query has a DataFrame of its own
    return session


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-topics-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("topics")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def hub(cluster: LocalCluster) -> LocalHub:
    settings = {
        "zk_timeout": "6000",  # how long topics wait after a kill; longer than a pause
        "zk_prefix": f"{cluster.root}-hubs",
        "max_entries_per_ledger": "100",
        "explicitLacInterval": "20",
        "messages_consumed_thread_run_interval": "100",
        "httpServerEnabled": "true",
    }
    hub = LocalHub.beside(cluster, 1, settings)
    cluster.start_others([hub])
    return hub


@pytest.fixture(scope="module")
def client(hub: LocalHub) -> Iterator[BlockingClient]:
    with hedwig.blocking.connect(hub.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def ledgers(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri) as connected:
        yield connected


@pytest.fixture
def words(cluster: LocalCluster, hub: LocalHub) -> dict[str, str]:
    return {"uri": cluster.uri, "zk_prefix": f"{cluster.root}-hubs"}


@pytest.fixture
def load(spark: Any, words: dict[str, str]) -> Load:
    return lambda **options: spark.read.format("hedwig").options(**words, **options).load()


def bodies(first: int, last: int) -> list[bytes]:
    """Of messages first..last of a topic that has nothing else."""
    return [b"message %d" % number for number in range(first, last + 1)]


def filled(client: BlockingClient, topic: str, count: int, load: Load) -> None:
    """A topic, all of whose messages are confirmed; a subscription keeps them."""
    client.subscribe(topic, "keeper", SubscribeMode.CREATE).close()
    client.publish_many(topic, bodies(1, count))
    # The hub sends its LAC to the bookies within its explicitLacInterval.
    until(lambda: load(subscribe=topic).count() == count, f"the last of {count} messages is confirmed")


def offsets(frame: Any) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_a_topic_in_many_ledgers_is_read_whole_with_kafkas_columns(load: Load, client: BlockingClient) -> None:
    filled(client, "whole", 950, load)
    frame = load(subscribe="whole", minPartitions=5, includeHeaders="true")
    assert frame.rdd.getNumPartitions() >= 5
    found = sorted(frame.collect(), key=lambda row: row.offset)
    assert [bytes(row.value) for row in found] == bodies(1, 950)
    assert [row.offset for row in found] == list(range(1, 951))
    assert {(row.topic, row.partition, row.key) for row in found} == {("whole", 0, None)}
    assert len({row.ledger_id for row in found}) >= 9
    assert found[0].entry_id == 0
    assert found[0].timestamp is not None
    assert [header.key for header in found[0].headers] == ["hw.time"]


def test_keys_and_headers_are_columns(load: Load, client: BlockingClient) -> None:
    client.publish("keyed", b"body", {"key": b"k", "color": "red"})
    client.publish("keyed", b"next")  # tells of the one before
    row = load(subscribe="keyed", endingOffsets='{"keyed": 2}', includeHeaders="true").first()
    assert (bytes(row.key), bytes(row.value)) == (b"k", b"body")
    assert {header.key: bytes(header.value) for header in row.headers}["color"] == b"red"


def test_ranges_filters_and_times_choose_messages(load: Load, client: BlockingClient) -> None:
    filled(client, "chosen", 350, load)
    assert offsets(load(subscribe="chosen", startingOffsets='{"chosen": 120}', endingOffsets='{"chosen": 130}')) == (
        list(range(120, 130))
    )
    assert offsets(load(subscribe="chosen", startingOffsets="latest")) == []
    assert offsets(load(subscribe="chosen").where("offset > 340 or offset = 7")) == [7, *range(341, 351)]
    assert offsets(load(subscribe="chosen").where("offset in (3, 99, 101, 5000)")) == [3, 99, 101]
    assert offsets(load(subscribe="chosen").where("offset >= 100 and offset < 103")) == [100, 101, 102]
    client.publish_many("chosen", bodies(351, 400))
    client.publish("chosen", b"message 401")
    times = {row.offset: round(row.timestamp.timestamp() * 1000) for row in load(subscribe="chosen").collect()}
    middle = times[351]
    later = sorted(offset for offset, time_ms in times.items() if time_ms >= middle)
    found = offsets(load(subscribe="chosen", startingTimestamp=middle))
    assert found[: len(later)] == later
    assert offsets(load(subscribe="chosen", endingTimestamp=middle)) == list(range(1, min(later)))


def test_several_topics_are_one_frame(load: Load, client: BlockingClient) -> None:
    for topic in ("one", "two/with slash"):
        client.publish_many(topic, bodies(1, 3))
        client.publish(topic, b"last")
    frame = load(subscribe="one, two/with slash", endingOffsets='{"one": 4, "two/with slash": {"0": 4}}')
    assert sorted((row.topic, row.offset) for row in frame.collect()) == [
        (topic, offset) for topic in ("one", "two/with slash") for offset in (1, 2, 3)
    ]


def test_what_is_wrong_is_said_with_the_word(load: Load, client: BlockingClient) -> None:
    client.publish("short", b"body")
    for options, text in (
        ({"subscribe": "none of them"}, "there is no topic 'none of them'"),
        ({"subscribe": "short", "region": "elsewhere"}, "there is no region 'elsewhere'"),
        ({"subscribe": "short", "startingOffsets": '{"short": 99}'}, "99 is beyond"),
        ({"subscribe": "short", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "short", "max_outstanding_mesages": "1"}, "did you mean max_outstanding_messages"),
        ({"subscribe": "short", "startingOffsets": '{"other": 1}'}, "which is none of the topics that are read"),
        ({"subscribe": "short", "subscription": "me"}, "subscription belongs to a stream"),
        ({}, "option subscribe of format hedwig: is missing"),
    ):
        with pytest.raises(Exception, match=text):
            load(**options).collect()


def test_messages_that_are_not_kept_any_more_are_data_loss(
    load: Load, client: BlockingClient, ledgers: BlockingBookKeeper
) -> None:
    filled(client, "trimmed", 450, load)
    frame = load(subscribe="trimmed", minPartitions=4, endingOffsets='{"trimmed": 451}')
    borne = load(subscribe="trimmed", failOnDataLoss="false", endingOffsets='{"trimmed": 451}')
    lost = {row.offset: row.ledger_id for row in frame.collect()}
    ledgers.delete(lost[150])  # as a hub that was stopped before it wrote the list
    rest = [offset for offset, ledger_id in lost.items() if ledger_id != lost[150]]
    with pytest.raises(
        Exception, match=r"(?s)of topic 'trimmed' were to be read and are not kept any more.*failOnData"
    ):
        frame.collect()
    assert offsets(borne) == sorted(rest)
    client.subscribe("trimmed", "reader", SubscribeMode.CREATE, start=320).close()
    client.unsubscribe("trimmed", "keeper")
    kept = 301

    def is_trimmed() -> bool:
        return bool(load(subscribe="trimmed", failOnDataLoss="false").agg({"offset": "min"}).first()[0] == kept)

    until(is_trimmed, "the hub has deleted unneeded messages")
    with pytest.raises(Exception, match=rf"messages 5 to {kept - 1} of topic 'trimmed' were to be read and are not"):
        load(subscribe="trimmed", startingOffsets='{"trimmed": 5}').collect()
    again = load(subscribe="trimmed", startingOffsets='{"trimmed": 5}', failOnDataLoss="false")
    assert min(offsets(again)) == kept
    assert min(offsets(load(subscribe="trimmed"))) == kept  # the earliest is not lost
    assert offsets(load(subscribe="trimmed", startingOffsets='{"trimmed": 5}').where(f"offset >= {kept + 20}"))


def test_an_end_in_time_is_found_beside_a_ledger_that_is_gone(
    load: Load, client: BlockingClient, ledgers: BlockingBookKeeper
) -> None:
    filled(client, "holed", 350, load)
    client.publish_many("holed", bodies(351, 400))
    client.publish("holed", b"message 401")
    rows = {row.offset: row for row in load(subscribe="holed").collect()}
    end_ms = round(rows[351].timestamp.timestamp() * 1000)
    end = min(offset for offset, row in rows.items() if round(row.timestamp.timestamp() * 1000) >= end_ms)
    ledgers.delete(rows[250].ledger_id)
    borne = load(subscribe="holed", endingTimestamp=end_ms, failOnDataLoss="false")
    assert offsets(borne) == [offset for offset in range(1, end) if not 201 <= offset <= 300]
    with pytest.raises(Exception, match=f"messages 201 to {min(end - 1, 300)} of topic 'holed' were to be read"):
        load(subscribe="holed", endingTimestamp=end_ms).collect()


# --- streams ---------------------------------------------------------------------------------------------------------


class Query:
    """A stream into Parquet files, with a checkpoint beside them."""

    def __init__(self, spark: Any, words: dict[str, str], directory: Path, **options: object) -> None:
        self._spark, self._words, self._directory, self._options = spark, words, directory, options

    def start(self, **trigger: Any) -> Any:
        frame = self._spark.readStream.format("hedwig").options(**self._words, **self._options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self._directory}/checkpoint")
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(f"{self._directory}/rows")

    def run_to_the_end(self) -> list[int]:
        """Run with availableNow; rows of each micro-batch that had some."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[tuple[str, int, bytes]]:
        found = self._spark.read.parquet(f"{self._directory}/rows").collect()
        return sorted((row.topic, row.offset, bytes(row.value)) for row in found)


def expected(topic: str, first: int, last: int) -> list[tuple[str, int, bytes]]:
    return list(zip([topic] * (last - first + 1), range(first, last + 1), bodies(first, last), strict=True))


def test_available_now_obeys_its_limits_and_goes_on_from_its_checkpoint(
    spark: Any, words: dict[str, str], load: Load, client: BlockingClient, tmp_path: Path
) -> None:
    filled(client, "limited", 250, load)
    query = Query(spark, words, tmp_path, subscribe="limited", startingOffsets="earliest", maxEntriesPerTrigger=100)
    assert query.run_to_the_end() == [100, 100, 50]
    assert query.rows() == expected("limited", 1, 250)
    client.publish_many("limited", bodies(251, 301))
    query.run_to_the_end()
    assert query.rows()[:300] == expected("limited", 1, 300)
    options = {"subscribe": "limited", "startingOffsets": "earliest", "maxBytesPerTrigger": 10_000}
    small = Query(spark, words, tmp_path / "small", **options)
    assert len(small.run_to_the_end()) >= 2


def test_a_running_stream_follows_a_topic_over_its_ledgers_the_loss_of_its_hub_and_a_release(
    spark: Any, words: dict[str, str], load: Load, client: BlockingClient, hub: LocalHub, tmp_path: Path
) -> None:
    filled(client, "followed", 20, load)
    query = Query(spark, words, tmp_path, subscribe="followed", startingOffsets="latest")
    running = query.start()
    try:
        running.processAllAvailable()
        client.publish_many("followed", bodies(21, 330))
        hub.kill()
        hub.start()
        client.publish_many("followed", bodies(331, 340))  # by an owner that recovered the ledger of the one before
        places = HttpPlaces(int(hub.settings["httpServerPort"]), {})
        assert release_topic(places, HubAddress("127.0.0.1", hub.port), Topic(b"followed")) == 1
        client.publish_many("followed", bodies(341, 350))  # in another ledger, as of another hub
        client.publish("followed", b"last")
        running.processAllAvailable()
        assert [row for row in query.rows() if row[2] != b"last"] == expected("followed", 21, 350)
    finally:
        running.stop()


def stored_cursor(words: dict[str, str], topic: str, subscriber: str) -> int:
    """How far a subscription is, by its record."""
    from hedwig.admin.blocking import connect
    from hedwig.config.load import load_hub
    from hedwig.model import SubscriberId

    config = load_hub(None, {"metadataServiceUri": words["uri"], "zk_prefix": words["zk_prefix"]}).settings
    with connect(config) as access:
        found = access.run(lambda region: region.subscriptions_of(Topic(topic.encode()), backlog=False))
    return next(each.record.consumed.local for each in found if each.subscriber == SubscriberId(subscriber.encode()))


def test_a_subscription_follows_what_is_committed_one_batch_late_and_never_goes_back(
    spark: Any, words: dict[str, str], load: Load, client: BlockingClient, tmp_path: Path
) -> None:
    filled(client, "cursor", 250, load)
    options = {"subscribe": "cursor", "startingOffsets": "earliest", "subscription": "query"}
    query = Query(spark, words, tmp_path, maxOffsetsPerTrigger=100, **options)
    assert query.run_to_the_end() == [100, 100, 50]
    assert stored_cursor(words, "cursor", "query") == 200  # the last batch is told of with the next one
    client.publish_many("cursor", bodies(251, 252))
    query.run_to_the_end()
    assert stored_cursor(words, "cursor", "query") == 250
    # Somebody moved it on meanwhile; and a second query, which begins anew by the same name, commits what is before.
    client.subscribe("cursor", "query", start=252).close()
    assert stored_cursor(words, "cursor", "query") == 251
    other = Query(spark, words, tmp_path / "other", maxOffsetsPerTrigger=100, **options)
    other.run_to_the_end()
    assert stored_cursor(words, "cursor", "query") == 251


def stream_of(words: dict[str, str], **options: str) -> TopicStreamReader:
    """What Spark asks, in this process."""
    return TopicStreamReader(read_topic_options(TopicReadOptions, {**words, **options}))


ALL = ReadAllAvailable()


def test_a_topic_that_was_deleted_and_made_anew_is_noticed_by_who_reads_it_and_by_who_was_beyond_its_end(
    cluster: LocalCluster, words: dict[str, str], load: Load, client: BlockingClient, hub: LocalHub, zookeeper: Any
) -> None:
    filled(client, "anew", 60, load)
    stream = stream_of(words, subscribe="anew", startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    hub.kill()
    znodes = KazooClient(zookeeper.address)
    znodes.start()
    try:
        znodes.delete(f"{words['zk_prefix']}/standalone/topics/anew", recursive=True)
    finally:
        znodes.stop()
        znodes.close()
    hub.start()
    filled(client, "anew", 20, load)
    with pytest.raises(InvalidArgument, match=r"message 60 was seen in ledger \d+, and would now be in .*made anew"):
        stream.latestOffset(end, ALL)
    with pytest.raises(InvalidArgument, match=r"ends with message 20, and the query is at 61: .*made anew"):
        stream_of(words, subscribe="anew").latestOffset(end, ALL)


def test_a_stream_whose_newest_ledger_is_gone_waits_and_replays_what_is_kept_where_loss_is_borne(
    words: dict[str, str], load: Load, client: BlockingClient, ledgers: BlockingBookKeeper
) -> None:
    filled(client, "newest", 150, load)
    [lost] = {row.ledger_id for row in load(subscribe="newest").where("offset = 150").collect()}
    borne = {"subscribe": "newest", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = stream_of(words, **borne)
    begin = stream.initialOffset()
    middle = stream.latestOffset(begin, ReadMaxRows(140))
    end = stream.latestOffset(middle, ALL)
    ledgers.delete(lost)
    for each in (stream, stream_of(words, **borne)):
        assert each.latestOffset(end, ALL) == end
    restarted = stream_of(words, **borne)
    for start, stop, kept in ((begin, middle, 100), (middle, end, 0)):
        rows = [batch.num_rows for piece in restarted.partitions(start, stop) for batch in restarted.read(piece)]
        assert sum(rows) == kept
    with pytest.raises(NoSuchLedger, match="with the newest messages of topic 'newest' from 101 on, is gone"):
        stream_of(words, **{**borne, "failOnDataLoss": "true"}).latestOffset(end, ALL)


def test_a_subscription_that_somebody_else_reads_is_not_moved_by_a_commit_and_one_that_is_gone_is_made(
    words: dict[str, str], load: Load, client: BlockingClient
) -> None:
    filled(client, "shared", 30, load)
    stream = stream_of(words, subscribe="shared", startingOffsets="earliest", subscription="query")
    start = stream.initialOffset()
    middle = stream.latestOffset(start, ReadMaxRows(10))
    end = stream.latestOffset(middle, ALL)
    with client.subscribe("shared", "query", SubscribeMode.ATTACH), pytest.raises(TopicBusy):
        stream.commit(end)
    assert stored_cursor(words, "shared", "query") == 0
    stream.commit(end)
    assert stored_cursor(words, "shared", "query") == 30
    client.unsubscribe("shared", "query")
    stream_of(words, subscribe="shared", subscription="query").commit(middle)  # of an older checkpoint
    assert stored_cursor(words, "shared", "query") == 10
    for position in (end, middle):
        stream_of(words, subscribe="shared", subscription="query").commit(position)
        assert stored_cursor(words, "shared", "query") == 30


def test_trimmed_messages_and_the_checkpoint_of_another_query_fail_a_stream(
    spark: Any, words: dict[str, str], load: Load, client: BlockingClient, ledgers: BlockingBookKeeper, tmp_path: Path
) -> None:
    filled(client, "lossy", 250, load)
    [ledger_id] = {row.ledger_id for row in load(subscribe="lossy").where("offset = 50").collect()}
    ledgers.delete(ledger_id)
    failed = Query(spark, words, tmp_path, subscribe="lossy", startingOffsets="earliest").start(availableNow=True)
    with pytest.raises(Exception, match="of topic 'lossy' were to be read and are not kept any more"):
        failed.awaitTermination(120)
    borne = Query(
        spark, words, tmp_path / "borne", subscribe="lossy", startingOffsets="earliest", failOnDataLoss="false"
    )
    borne.run_to_the_end()
    assert {row[1] for row in borne.rows()} >= set(range(110, 250))

    rates = spark.readStream.format("rate").load().writeStream.format("noop")
    rated = rates.option("checkpointLocation", f"{tmp_path}/rates/checkpoint").trigger(once=True).start()
    assert rated.awaitTermination(60)
    foreign = Query(spark, words, tmp_path / "rates", subscribe="lossy").start(availableNow=True)
    with pytest.raises(Exception, match="belongs to another query: use another checkpointLocation"):
        foreign.awaitTermination(60)
    client.publish("another", b"body")
    other = Query(spark, words, tmp_path / "borne", subscribe="another").start(availableNow=True)
    with pytest.raises(Exception, match="names none of the topics another"):
        other.awaitTermination(60)


def own_hub(cluster: LocalCluster, number: int, **settings: str) -> tuple[LocalHub, dict[str, str]]:
    """Start a hub in a region of its own; return it and the options that read its topics. settings: else defaults."""
    prefix = f"{cluster.root}-hubs-{number}"
    hub = LocalHub.beside(cluster, number, {**STEADY_HUB, "zk_prefix": prefix, **settings})
    cluster.start_others([hub])
    with hedwig.blocking.connect(hub.address) as client:
        client.publish_many("events", bodies(1, 1))  # separate: a later message confirms it
        client.publish_many("events", bodies(2, 100))
    return hub, {"uri": cluster.uri, "zk_prefix": prefix, "subscribe": "events"}


@pytest.fixture(scope="module")
def forgetful(cluster: LocalCluster) -> tuple[LocalHub, dict[str, str]]:
    """A hub that keeps nothing for topics without a subscription but their newest ledger; the words for `events`."""
    return own_hub(
        cluster,
        9,
        keep_unsubscribed_ms="0",
        max_entries_per_ledger="30",
        messages_consumed_thread_run_interval="100",
    )


def until_trimmed(ledgers: BlockingBookKeeper, words: dict[str, str]) -> None:
    """Wait until the hub has deleted all but the last ten of a hundred messages."""
    options = read_topic_options(TopicReadOptions, words)

    def is_trimmed() -> bool:
        [span] = spans_of(ledgers, options).values()
        return span.first == 91

    until(is_trimmed, "the hub has deleted what it does not keep")


def test_a_read_whose_start_is_deleted_names_the_range_that_is_gone(
    spark: Any, ledgers: BlockingBookKeeper, forgetful: tuple[LocalHub, dict[str, str]], tmp_path: Path
) -> None:
    _, words = forgetful
    until_trimmed(ledgers, words)
    for start in ({}, {"startingTimestamp": "1"}):
        frame = spark.read.format("hedwig").options(**words, **start).load()
        assert [bytes(row.value) for row in sorted(frame.collect(), key=lambda row: row.offset)] == bodies(91, 100)
    query = Query(spark, words, tmp_path, startingOffsets="earliest")
    query.run_to_the_end()
    assert query.rows() == expected("events", 91, 100)
    # Spark keeps the standard error of the planner's process, so plan in this process.
    batch = TopicReader(read_topic_options(TopicReadOptions, words))
    later = TopicReader(read_topic_options(TopicReadOptions, {**words, "startingTimestamp": "1"}))
    stream = stream_of(words, startingOffsets="earliest")
    for plan in (batch.partitions, later.partitions, stream.initialOffset):
        with logged() as lines:
            plan()
        [line] = [line for line in lines if "are deleted" in line]
        assert line.startswith("Messages 1 to 90 of topic 'events' are deleted")
    # A stored position is not moved silently.
    stored = spark.read.format("hedwig").options(**words, startingOffsets='{"events": 5}')
    with pytest.raises(Exception, match="messages 5 to 90 of topic 'events' were to be read and are not kept any more"):
        stored.load().collect()


def test_rows_written_with_keep_ms_are_kept_without_a_subscription(
    spark: Any, ledgers: BlockingBookKeeper, forgetful: tuple[LocalHub, dict[str, str]]
) -> None:
    hub, words = forgetful
    rows = spark.range(0, 100, 1, 1).selectExpr("CAST(concat('message ', id + 1) AS binary) AS value")
    for topic, retention in (("named", {"keepMs": "86400000"}), ("not named", {})):
        sink = rows.write.format("hedwig").options(hubs=hub.address, topic=topic, **retention)
        sink.mode("append").save()
    until_trimmed(ledgers, {**words, "subscribe": "not named"})  # it looks at both in each period
    frame = spark.read.format("hedwig").options(**{**words, "subscribe": "named"}).load()
    assert [bytes(row.value) for row in sorted(frame.collect(), key=lambda row: row.offset)] == bodies(1, 100)


def test_all_messages_that_a_hub_acknowledged_are_read_by_default(
    spark: Any, cluster: LocalCluster, ledgers: BlockingBookKeeper, tmp_path: Path
) -> None:
    _, words = own_hub(cluster, 7)
    frame = spark.read.format("hedwig").options(**words).load()
    assert [bytes(row.value) for row in sorted(frame.collect(), key=lambda row: row.offset)] == bodies(1, 100)
    query = Query(spark, words, tmp_path, startingOffsets="earliest")
    assert query.run_to_the_end() == [100]
    assert query.rows() == expected("events", 1, 100)
    ledger_id = frame.first().ledger_id
    with ledgers.open_as_administrator(ledger_id, recover=False) as handle:  # the bookies know it by now
        assert handle.last_add_confirmed == 99


def test_messages_that_no_hub_confirms_are_left_out_and_named(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    hub, words = own_hub(cluster, 8, explicitLacInterval="0")
    hub.kill()
    count = spark.read.format("hedwig").options(**words).load().count()
    assert 1 <= count < 100
    query = Query(spark, words, tmp_path, startingOffsets="earliest")
    query.run_to_the_end()
    assert query.rows() == expected("events", 1, count)
    # Spark keeps the standard error of the planner's process, so plan in this process.
    options = read_topic_options(TopicReadOptions, words)
    for plan in (TopicReader(options).partitions, TopicStreamReader(options).prepareForTriggerAvailableNow):
        with capturedLogs() as logs:
            plan()
        [reports] = [event["reports"] for event in logs if "may be acknowledged" in event["log_format"]]
        assert f"topic 'events': message {count} is the last one known to be acknowledged" in reports
        assert f"messages {count + 1} to 100 are stored and may be acknowledged too" in reports
    with capturedLogs() as logs:
        done = export_topics(
            spark,
            words["uri"],
            output=str(tmp_path / "export"),
            topics=["events"],
            options={"zk_prefix": words["zk_prefix"]},
        )
    [event] = [event for event in logs if "may be acknowledged" in event["log_format"]]
    [row] = done.topics.collect()
    line = parse_topic(row.line)
    assert (event["reader"], event["reports"]) == ("export", line.why)
    assert (line.messages, f"messages {count + 1} to 100 are stored" in line.why) == (count, True)
