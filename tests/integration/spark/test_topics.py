"""The pipeline over topics, on a real cluster with a hub: every message in one window, whatever fails on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol

import pytest

import bookkeeper.blocking
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import ConfigurationError, InvalidArgument
from hedwig.client.faces.blocking import BlockingClient
from hedwig.embedded import LocalHub
from hedwig.model import SubscribeMode
from hedwig.protocol.options import PRODUCER
from hedwig.spark.region_options import read_topic_options
from hedwig.spark.topic_extents import spans_of
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.spark.topics.following import FollowFailed, Following, follow_topics
from hedwig.spark.topics.question import Clock, Emit, Windows
from hedwig.spark.topics.sinks import FileSink, FunctionSink, Sink, TopicSink
from tests.support.cluster import STEADY, local_cluster
from tests.support.patience import until
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

SECONDS = Windows(length_s=1, delay_s=5, emit=Emit.CHANGED)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/topics-{os.getpid()}-{os.urandom(3).hex()}"
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
    }
    hub = LocalHub.beside(cluster, 1, settings)
    cluster.start_others([hub])
    return hub


@pytest.fixture(scope="module")
def client(hub: LocalHub) -> Iterator[BlockingClient]:
    with hedwig.blocking.connect(hub.address) as connected:
        yield connected


@pytest.fixture
def words(cluster: LocalCluster, hub: LocalHub) -> dict[str, str]:
    return {"zk_prefix": f"{cluster.root}-hubs"}


Start = Callable[..., Following]


@pytest.fixture
def start(spark: Any, cluster: LocalCluster, words: dict[str, str]) -> Start:
    def begin(sinks: list[Sink], *topics: str, **how: Any) -> Following:
        options = {**words, **how.pop("options", {})}
        return follow_topics(spark, cluster.uri, sinks, topics=topics or None, options=options, once=True, **how)

    return begin


class Publish(Protocol):
    def __call__(self, topic: str, count: int, before: int = 0) -> None: ...


@pytest.fixture
def publish(cluster: LocalCluster, client: BlockingClient, words: dict[str, str]) -> Publish:
    """So many messages of ten bytes, kept by a subscription, in a topic that has so many `before`; all are confirmed
    then.
    """

    def messages(topic: str, count: int, before: int = 0) -> None:
        client.subscribe(topic, "keeper", SubscribeMode.CREATE_OR_ATTACH).close()
        client.publish_many(topic, [b"%010d" % number for number in range(count)])
        options = read_topic_options(TopicReadOptions, {"uri": cluster.uri, **words, "subscribe": topic})
        with bookkeeper.blocking.connect(cluster.uri) as ledgers:
            # The hub sends its LAC to the bookies within its explicitLacInterval.
            until(
                lambda: spans_of(ledgers, options)[topic][:2] == (1, before + count + 1),
                f"the last of {count} messages of {topic} is confirmed",
            )

    return messages


class Kept:
    """What a FunctionSink saw: the newest row of each window, and the newest lags and sizes."""

    def __init__(self) -> None:
        self.windows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.lags: dict[tuple[str, str], dict[str, Any]] = {}
        self.sizes: dict[str, dict[str, Any]] = {}
        self.batches: list[int] = []

    def take(self, kind: str, batch_id: int, rows: Any, count: int) -> None:
        assert count == len(rows)
        if kind == "windows":
            self.batches.append(batch_id)
            self.windows |= {(row["topic"], row["clock"], row["window_start"]): row for row in rows}
        elif kind == "lags":
            self.lags = {(row["topic"], row["subscriber"]): row for row in rows}
        else:
            self.sizes = {row["topic"]: row for row in rows}

    def of(self, topic: str) -> list[dict[str, Any]]:
        found = [row for key, row in self.windows.items() if key[0] == topic]
        return sorted(found, key=lambda row: row["window_start"])


def test_rates_lags_and_sizes_of_a_topic_add_up(start: Start, publish: Publish, client: BlockingClient) -> None:
    publish("sums", 350)
    client.subscribe("sums", "reader", SubscribeMode.CREATE, start=51).close()
    kept = Kept()
    assert start([FunctionSink(kept.take)], "sums", windows=SECONDS).wait(240)
    rows = kept.of("sums")
    assert {row["clock"] for row in rows} == {"published"}
    assert sum(row["bytes"] for row in rows) == 3500
    assert (rows[0]["first_seq"], rows[-1]["last_seq"]) == (1, 350)
    assert [row["first_seq"] for row in rows[1:]] == [row["last_seq"] + 1 for row in rows[:-1]]
    assert all(row["last_seq"] - row["first_seq"] + 1 == row["messages"] == row["messages_per_s"] for row in rows)
    assert {key: row["messages_behind"] for key, row in kept.lags.items()} == {
        ("sums", "keeper"): 350, ("sums", "reader"): 300
    }  # fmt: skip
    size = kept.sizes["sums"]
    assert (size["messages"], size["ledgers"], size["subscriptions"], size["problem"]) == (350, 4, 2, None)
    assert 3500 <= size["bytes"] < 350 * 200  # as stored, with their headers
    half = Kept()
    assert start([FunctionSink(half.take)], "sums", windows=Windows(1, 5, Clock.READ, Emit.CHANGED)).wait(240)
    assert {(row["clock"], row["messages"]) for row in half.of("sums")} == {("read", 350)}


def test_windows_in_files_are_each_there_once_when_batches_fail_and_queries_are_stopped(
    spark: Any, start: Start, client: BlockingClient, tmp_path: Path
) -> None:
    # Six batches over several windows; the fault comes after the files of one are written, and the stop while another
    # is written.
    client.subscribe("files", "keeper", SubscribeMode.CREATE).close()
    seconds, count = set[int](), 0
    while len(seconds) < 4:
        began = int(time.time())
        client.publish_many("files", [b"%010d" % number for number in range(20)])
        count += 20
        if began == int(time.time()):  # otherwise the messages may be of a later second
            seconds.add(began)
    output, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    how: dict[str, Any] = {
        "windows": Windows(1, 0), "checkpoint": checkpoint, "options": {"maxOffsetsPerTrigger": count // 6}
    }  # fmt: skip
    failed = FaultySink(FileSink(output), 2)
    with pytest.raises(FollowFailed, match=r"(?s)the query over files ended: .*injected"):
        start([failed], "files", **how).wait(240)
    under_way = threading.Event()

    def tell(kind: str, batch_id: int, rows: Any, count: int) -> None:
        if batch_id >= 3:
            under_way.set()

    stopped = start([FileSink(output), FunctionSink(tell)], "files", **how)
    assert under_way.wait(240)
    stopped.stop()
    assert start([FileSink(output)], "files", **how).wait(240)
    for _ in range(20):  # a window is over when a later message is there
        client.publish("files", b"later")
        last = start([FileSink(output)], "files", **how)
        assert last.wait(240)
        assert last.totals.late == 0
        rows = spark.read.parquet(f"{output}/windows").orderBy("window_start").collect()
        if sum(row.messages for row in rows) >= count:
            break
    assert len({row.window_start for row in rows}) == len(rows) >= 3
    assert [row.first_seq for row in rows] == [1, *(row.last_seq + 1 for row in rows[:-1])]
    assert all(row.messages == row.last_seq - row.first_seq + 1 for row in rows)
    assert all(row.date == row.window_start.astimezone(UTC).date() for row in rows)
    batches = list((tmp_path / "out" / "windows").glob("date=*/batch=*"))
    assert all(len(list(batch.glob("*.parquet"))) == 1 for batch in batches)
    lags = spark.read.parquet(f"{output}/lags").groupBy("batch").count().collect()
    assert {row["count"] for row in lags} == {1}
    assert spark.read.parquet(f"{output}/sizes").where(f"messages < {count}").count() == 0

    with pytest.raises(ConfigurationError, match=r"belongs to another query: length_s 1 \(now 2\)"):
        start([FileSink(output)], "files", **{**how, "windows": Windows(2, 0)})
    rates = spark.readStream.format("rate").load().writeStream.format("noop").trigger(once=True)
    assert rates.option("checkpointLocation", str(tmp_path / "rates")).start().awaitTermination(60)
    with pytest.raises(ConfigurationError, match="rates belongs to another query: use another checkpoint"):
        start([FileSink(output)], "files", **{**how, "checkpoint": str(tmp_path / "rates")})


def test_files_of_another_query_are_not_replaced(spark: Any, tmp_path: Path) -> None:
    """Its batches have the same numbers."""
    output = str(tmp_path / "out")

    def rows(first: int) -> Any:
        place = ("DATE '2026-01-01' AS date", "0L AS batch", "'news' AS topic")
        return spark.range(first, first + 2).selectExpr("id", *place)

    def ids() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(f"{output}/windows").collect())

    for _ in range(2):  # of the second life of a query, too
        FileSink(output).take("windows", "one", 0, rows(0))
        assert ids() == [0, 1]
    with pytest.raises(ConfigurationError, match=r"has the files of another query \(one; this is two\).*another dir"):
        FileSink(output).take("windows", "two", 0, rows(5))
    assert ids() == [0, 1]


def test_windows_go_on_over_the_loss_of_a_hub(
    start: Start, publish: Publish, client: BlockingClient, hub: LocalHub
) -> None:
    client.subscribe("restarted", "keeper", SubscribeMode.CREATE).close()
    client.publish_many("restarted", [b"%010d" % number for number in range(150)])
    hub.kill()
    hub.start()
    publish("restarted", 150, before=150)
    kept = Kept()
    assert start([FunctionSink(kept.take)], "restarted", windows=SECONDS).wait(240)
    rows = kept.of("restarted")
    assert {row["clock"] for row in rows} == {"published"}
    assert sum(row["messages"] for row in rows) == 300
    assert (rows[0]["first_seq"], rows[-1]["last_seq"]) == (1, 300)
    assert [row["first_seq"] for row in rows[1:]] == [row["last_seq"] + 1 for row in rows[:-1]]


def test_messages_whose_windows_were_told_before_they_came_are_counted_and_in_none(
    start: Start, publish: Publish, tmp_path: Path
) -> None:
    publish("late/old", 10)
    seconds, count = set[int](), 0
    while len(seconds) < 4:
        seconds.add(int(time.time()))
        publish("late/new", 10, before=count)
        count += 10
    kept = Kept()
    how: dict[str, Any] = {"windows": Windows(1, 0), "checkpoint": str(tmp_path / "checkpoint")}
    first = start([FunctionSink(kept.take)], "late/new", **how)
    assert first.wait(240)
    assert (first.totals.messages, first.totals.late) == (count, 0)
    again = start([FunctionSink(kept.take)], "late/new", "late/old", **how)  # another topic, with the same windows
    assert again.wait(240)
    assert again.totals.messages == 10
    assert again.totals.late >= 1
    assert kept.of("late/new")
    assert kept.of("late/old") == []


class FaultySink:
    """Fails once, when all of a batch was written."""

    def __init__(self, sink: Sink, batch_id: int) -> None:
        self._sink, self._batch_id, self._done = sink, batch_id, 0

    def take(self, kind: str, query_id: str, batch_id: int, rows: Any) -> None:
        self._sink.take(kind, query_id, batch_id, rows)
        self._done += batch_id == self._batch_id
        if self._done == 3:
            raise RuntimeError("injected")


def test_rows_that_are_published_come_once_when_the_batch_is_made_again(
    start: Start,
    publish: Publish,
    cluster: LocalCluster,
    client: BlockingClient,
    words: dict[str, str],
    tmp_path: Path,
) -> None:
    publish("in", 40)
    client.subscribe("rates", "reader", SubscribeMode.CREATE).close()
    sink = TopicSink("rates", {"uri": cluster.uri, **words})
    how: dict[str, Any] = {"windows": SECONDS, "checkpoint": str(tmp_path / "checkpoint")}
    with pytest.raises(FollowFailed, match="injected"):
        start([FaultySink(sink, 0)], "in", **how).wait(240)
    assert start([sink], "in", **how).wait(240)
    publish("in", 10, before=40)
    assert start([sink], "in", **how).wait(240)
    client.publish("rates", b"{}")
    found: list[dict[str, Any]] = []
    producers: set[tuple[str, bytes]] = set()
    with client.subscribe("rates", "reader", SubscribeMode.ATTACH) as messages:
        while not found or found[-1]:
            for each in messages.receive():
                found.append(json.loads(each.body))
                if found[-1]:
                    producers.add((found[-1]["kind"], each.properties[PRODUCER]))
    assert sorted(kind for kind, _ in producers) == ["lags", "sizes", "windows"]  # in all batches: a hub keeps 1,000
    windows = [each for each in found if each.get("kind") == "windows"]
    assert sum(each["messages"] for each in windows) == 50
    assert len({each["window_start"] for each in windows}) == len(windows)
    assert {each["topic"] for each in windows} == {"in"}


def test_what_cannot_be_followed_is_said(start: Start, client: BlockingClient) -> None:
    client.publish("known", b"body")
    sink = FunctionSink(lambda *_: None)
    for topics, options, text in (
        (("unheard of",), {}, "there is no topic 'unheard of'"),
        (("known",), {"region": "elsewhere"}, "there is no region 'elsewhere'"),
        (("known",), {"startingOffset": "latest"}, "did you mean startingOffsets"),
        (("known",), {"endingOffsets": "latest"}, "belongs to a batch read"),
    ):
        with pytest.raises((ConfigurationError, InvalidArgument), match=text):
            start([sink], *topics, options=options)
    with pytest.raises(ConfigurationError, match="has no topic whose name begins with 'nobody'"):
        start([sink], prefix="nobody")
    with pytest.raises(ConfigurationError, match="needs a sink"):
        start([], "known")


def command(*words: str) -> tuple[int, str, str]:
    """Exit code, output and notes of `bookkeeper spark topics`."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", "topics", *words, "--master", "local[2]"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_prints_and_draws(
    publish: Publish, cluster: LocalCluster, words: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    for topic in ("app/one", "app/two"):
        publish(topic, 30)
    plot = tmp_path / "rates.png"
    where = ("--uri", cluster.uri, "--zk-prefix", words["zk_prefix"])
    code, out, notes = command("--prefix", "app/", "--once", "--json", "--plot", str(plot), *where)
    assert code == 0, notes
    rows = [json.loads(line) for line in out.splitlines()]
    assert sum(row["messages"] for row in rows if row["kind"] == "windows") == 60
    assert {(row["topic"], row["messages_behind"]) for row in rows if row["kind"] == "lags"} == {
        ("app/one", 30), ("app/two", 30)
    }  # fmt: skip
    assert "read 60 messages of 2 topics" in notes
    assert plot.read_bytes().startswith(b"\x89PNG")
    code, out, notes = command("--topics", "app/one", "--once", "--windows", "5", *where)
    assert (code, "did you mean --window?" in notes) == (2, True)
