"""Rows of a task handed to hubs: what is waited for, what ends it, and that nothing is left out unsaid."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, ConfigurationError, InvalidArgument, MetadataUnavailable
from hedwig.errors import ServiceDown
from hedwig.model import LocalId, MessageId, Topic
from hedwig.spark import topic_publishing, topic_sink
from hedwig.spark.topic_numbers import ROWS_MAX, named_producer, stream_producer
from hedwig.spark.topic_publishing import Noted, TaskPublishing, publish_noted
from hedwig.spark.topic_rows import PROPERTY_COST, ROW_COST, Row
from hedwig.spark.topic_sink import Published, TopicStreamWriter, TopicWriter
from tests.support.logged import logged

NEWS, SPORT = Topic(b"news"), Topic(b"sport")


class Sent:
    """A message that is on its way."""

    def __init__(self, topic: Topic, body: bytes, on_published: Any, on_failed: Any) -> None:
        self.topic, self.body = topic, body
        self.stored: Callable[[int], object] = lambda local: on_published(MessageId(LocalId(local)))
        self.failed: Callable[[BookKeeperError], object] = on_failed


class Hubs:
    """Takes messages; the test answers. room: how many more each topic takes."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.publishers: list[tuple[Topic, dict[str, Any]]] = []
        self.room = 10_000
        self.waiting: list[Deferred[None]] = []

    def publisher(self, topic: Topic, **how: Any) -> Publisher:
        self.publishers.append((topic, how))
        return Publisher(self, topic)

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.sent]

    def make_room(self, count: int) -> None:
        self.room = count
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class Publisher:
    def __init__(self, hubs: Hubs, topic: Topic) -> None:
        self._hubs, self._topic = hubs, topic

    @property
    def has_room(self) -> bool:
        return self._hubs.room > 0

    def room(self) -> Deferred[None]:
        self._hubs.waiting.append(Deferred())
        return self._hubs.waiting[-1]

    def submit(self, body: bytes, on_published: Any, on_failed: Any, properties: Any) -> None:
        self._hubs.room -= 1
        self._hubs.sent.append(Sent(self._topic, body, on_published, on_failed))


class AnsweringAtOnce(Hubs):
    """Stores everything, but for one body."""

    def __init__(self, refused: bytes | None = None) -> None:
        super().__init__()
        self._refused = refused

    def publisher(self, topic: Topic, **how: Any) -> Publisher:
        hubs = self

        class Answering(Publisher):
            def submit(self, body: bytes, on_published: Any, on_failed: Any, properties: Any) -> None:
                super().submit(body, on_published, on_failed, properties)
                sent = hubs.sent[-1]
                if body == hubs._refused:
                    sent.failed(ServiceDown("refused"))
                else:
                    sent.stored(len(hubs.sent))

        super().publisher(topic, **how)
        return Answering(self, topic)


class Blocking:
    """The face that a task has; the loop is the test's."""

    def __init__(self, hubs: Hubs) -> None:
        self._hubs: Any = hubs

    def run(self, ask: Callable[[Any], Deferred[Any]]) -> Any:
        found: list[Any] = []
        ask(self._hubs).addBoth(found.append)
        assert found, "it waits for ever"
        if hasattr(found[0], "raiseException"):
            found[0].raiseException()
        return found[0]


def rows(*bodies: bytes, topic: Topic = NEWS) -> list[Row]:
    return [Row(topic, body, {}) for body in bodies]


def task(hubs: Any) -> TaskPublishing:
    return TaskPublishing(hubs, b"producer", 7)


def causes(raised: list[Any]) -> list[BaseException | None]:
    """Return the stored errors from which these were raised."""
    return [each.__cause__ for each in raised]


def begun(work: Coroutine[Any, Any, None]) -> list[object]:
    """What it ended with, once it has."""
    ended: list[object] = []
    Deferred.fromCoroutine(work).addBoth(lambda result: ended.append(getattr(result, "value", result)))
    return ended


def test_each_topic_has_one_publisher_of_the_tasks_producer_which_may_have_been_there_before() -> None:
    """Without `replayed` a hub that has forgotten the producer would store what is stored, or refuse what is new."""
    hubs = Hubs()
    publishing = task(hubs)
    for some in (rows(b"1", b"2"), rows(b"3", topic=SPORT), rows(b"4")):
        assert begun(publishing.add(some)) == [None]
    how = {"producer": b"producer", "first": 7, "replayed": True, "keep_s": None}
    assert hubs.publishers == [(NEWS, how), (SPORT, how)]
    assert [(each.topic, each.body) for each in hubs.sent] == [
        (NEWS, b"1"), (NEWS, b"2"), (SPORT, b"3"), (NEWS, b"4")
    ]  # fmt: skip


def test_the_end_waits_for_every_answer() -> None:
    hubs = Hubs()
    publishing = task(hubs)
    begun(publishing.add(rows(b"1", b"2", b"3")))
    ended = begun(publishing.finish())
    for at in (2, 0):
        hubs.sent[at].stored(at + 1)
        assert ended == []
    hubs.sent[1].stored(2)
    assert ended == [None]
    assert publishing.ids == (1, 3)


def test_a_row_that_fails_fails_the_task_also_where_it_was_the_last() -> None:
    """Else Spark takes it for published."""
    hubs = Hubs()
    publishing = task(hubs)
    begun(publishing.add(rows(b"1", b"2")))
    ended = begun(publishing.finish())
    hubs.sent[0].stored(1)
    error = ServiceDown("nobody took it")
    hubs.sent[1].failed(error)
    assert causes(ended) == [error]


def test_behind_the_first_failure_no_row_is_handed_over_and_the_first_is_told() -> None:
    hubs = Hubs()
    publishing = task(hubs)
    begun(publishing.add(rows(b"1", b"2")))
    first = ServiceDown("first")
    hubs.sent[0].failed(first)
    hubs.sent[1].failed(ServiceDown("second"))
    assert causes(begun(publishing.add(rows(b"3")))) == [first]
    assert causes(begun(publishing.finish())) == [first]
    assert hubs.bodies() == [b"1", b"2"]


def test_rows_wait_for_room_in_their_topic_and_a_failure_meanwhile_ends_the_waiting() -> None:
    hubs = Hubs()
    hubs.room = 2
    publishing = task(hubs)
    ended = begun(publishing.add(rows(b"1", b"2", b"3", b"4")))
    assert (hubs.bodies(), ended) == ([b"1", b"2"], [])
    hubs.make_room(0)  # taken by another task of this client
    assert hubs.bodies() == [b"1", b"2"]
    hubs.make_room(1)
    assert (hubs.bodies(), ended) == ([b"1", b"2", b"3"], [])
    error = ServiceDown("down")
    hubs.sent[0].failed(error)
    hubs.make_room(0)
    assert (hubs.bodies(), causes(ended)) == ([b"1", b"2", b"3"], [error])


@pytest.mark.parametrize(("count", "size"), [(4, 10**9), (10**9, 40)], ids=["messages", "bytes"])
def test_no_more_than_so_much_is_unanswered(monkeypatch: pytest.MonkeyPatch, count: int, size: int) -> None:
    monkeypatch.setattr(topic_publishing, "UNANSWERED_MAX", count)
    monkeypatch.setattr(topic_publishing, "UNANSWERED_BYTES_MAX", size)
    hubs = Hubs()
    publishing = task(hubs)
    ended = begun(publishing.add(rows(*(b"%010d" % number for number in range(7)))))
    assert (len(hubs.sent), ended) == (4, [])
    hubs.sent[0].stored(1)
    assert len(hubs.sent) == 4, "it goes on when half of it is answered, not row by row"
    hubs.sent[1].stored(2)
    assert len(hubs.sent) == 6
    hubs.sent[2].stored(3)
    assert ended == []
    hubs.sent[3].stored(4)
    assert (len(hubs.sent), ended) == (7, [None])
    for sent in hubs.sent[4:]:
        sent.stored(5)
    assert begun(publishing.finish()) == [None]


def test_a_failure_ends_the_waiting_for_answers() -> None:
    hubs = Hubs()
    publishing = task(hubs)
    begun(publishing.add(rows(b"1", b"2")))
    ended = begun(publishing.finish())
    error = ServiceDown("down")
    hubs.sent[0].failed(error)
    assert causes(ended) == [error]


def test_batches_are_counted_and_the_ids_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_publishing, "ROWS_AT_ONCE", 2)
    hubs: Any = AnsweringAtOnce()
    blocking: Any = Blocking(hubs)
    batches = [rows(b"1", b"2", b"3"), rows(b"4", topic=SPORT)]
    assert publish_noted(blocking, b"p", 1, batches) == Noted(4, 1, 4)
    assert hubs.bodies() == [b"1", b"2", b"3", b"4"]
    assert publish_noted(blocking, b"p", 1, []) == Noted(0, None, None)


def test_an_id_that_no_hub_knows_any_more_makes_the_lowest_unknown() -> None:
    hubs = Hubs()
    publishing = task(hubs)
    begun(publishing.add(rows(b"1", b"2")))
    hubs.sent[0].stored(0)
    assert publishing.ids == (None, None)
    hubs.sent[1].stored(9)
    assert publishing.ids == (None, 9)


def test_ids_that_the_topic_had_before_are_of_repeats_and_unknown_ones_of_nothing() -> None:
    hubs = Hubs()
    publishing = TaskPublishing(hubs, b"producer", 1, newest_id=7)  # type: ignore[arg-type]
    begun(publishing.add(rows(b"1", b"2", b"3", b"4")))
    for sent, local in zip(hubs.sent, (0, 6, 7, 8), strict=True):
        sent.stored(local)
    assert publishing.repeated == 2


def test_a_job_whose_last_row_fails_is_told() -> None:
    blocking: Any = Blocking(AnsweringAtOnce(refused=b"3"))
    with pytest.raises(ServiceDown, match="refused"):
        publish_noted(blocking, b"p", 1, [rows(b"1", b"2", b"3")])


# --- what a task makes of its partition


SCHEMA = StructType([StructField("value", BinaryType())])
QUERY = "01234567-89ab-cdef-0123-456789abcdef"


class Task:
    """The task that runs now."""

    def __init__(self, partition: int, **properties: str) -> None:
        self._partition, self._properties = partition, properties

    def partitionId(self) -> int:
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


def stream_task(partition: int, batch_id: int) -> Task:
    return Task(partition, **{topic_sink.QUERY_ID: QUERY, topic_sink.BATCH_ID: str(batch_id)})


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> Hubs:
    found = AnsweringAtOnce()
    monkeypatch.setattr(topic_sink, "hub_client_of", lambda _: Blocking(found))
    return found


@pytest.fixture
def run_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Task], None]:
    return lambda task: monkeypatch.setattr(topic_sink, "TaskContext", SimpleNamespace(get=lambda: task))


RunIn = Callable[[Task], None]


@pytest.fixture
def caught() -> Iterator[list[str]]:
    """What is logged."""
    with logged() as lines:
        yield lines


def writer(**options: str) -> TopicWriter:
    return TopicWriter({"hubs": "h1", "topic": "news", **options}, SCHEMA, overwrite=False)


def stream_writer(**options: str) -> TopicStreamWriter:
    return TopicStreamWriter({"hubs": "h1", "topic": "news", **options}, SCHEMA)


def arrow(*bodies: bytes) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(bodies, pa.binary())})


def producers(hubs: Hubs) -> list[tuple[bytes, int]]:
    return [(how["producer"], how["first"]) for _, how in hubs.publishers]


def test_rows_are_published_as_they_come_or_by_their_content(hubs: Hubs, run_in: RunIn) -> None:
    run_in(Task(0))
    batches = [arrow(b"c", b"a"), arrow(), arrow(b"d", b"b")]
    assert writer().write(iter(batches)) == Published(4)
    assert hubs.bodies() == [b"c", b"a", b"d", b"b"]
    hubs.sent.clear()
    assert writer(rowOrder="content").write(iter(batches)) == Published(4)
    assert hubs.bodies() == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("options", "keep_s"), [({}, None), ({"keepMs": "604800000"}, 604800.0), ({"keepMs": "0"}, 0.0)]
)
def test_a_sink_sets_the_retention_of_its_topics(
    hubs: Hubs, run_in: RunIn, options: dict[str, str], keep_s: float | None
) -> None:
    run_in(Task(0))
    writer(**options).write(iter([arrow(b"a")]))
    assert [how["keep_s"] for _, how in hubs.publishers] == [keep_s]


@pytest.mark.parametrize("order", ["arrival", "content"])
def test_a_partition_without_rows_asks_no_hub(monkeypatch: pytest.MonkeyPatch, run_in: RunIn, order: str) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(topic_sink, "hub_client_of", refuse)
    run_in(Task(0))
    assert writer(rowOrder=order).write(iter([arrow(), arrow()])) == Published(0)


def test_rows_that_are_to_be_sorted_are_bounded_and_none_is_published_then(hubs: Hubs, run_in: RunIn) -> None:
    run_in(Task(0))
    sorting = writer(rowOrder="content", maxSortBytes=str(1 << 20))
    half = arrow(b"x" * ((1 << 19) - ROW_COST))
    with pytest.raises(InvalidArgument, match=r"maxSortBytes=1048576 bytes; let more tasks share them"):
        sorting.write(iter([half, half, arrow(b"x")]))
    assert hubs.sent == []
    assert sorting.write(iter([half, half])) == Published(2)


def test_rows_that_are_to_be_sorted_are_bounded_by_what_they_take_in_memory(hubs: Hubs, run_in: RunIn) -> None:
    """Also where there is nothing in them."""
    run_in(Task(0))
    sorting = writer(rowOrder="content", maxSortBytes=str(1 << 20))
    fitting = (1 << 20) // ROW_COST
    assert sorting.write(iter([arrow(*[b""] * fitting)])) == Published(fitting)
    hubs.sent.clear()
    with pytest.raises(InvalidArgument, match="maxSortBytes=1048576 bytes"):
        sorting.write(iter([arrow(*[b""] * fitting), arrow(b"")]))
    assert hubs.sent == []


@pytest.mark.parametrize("names", [(), ("key",), ("key", "a", "b"), tuple("abcdefgh")])
def test_rows_take_no_more_memory_than_is_counted(names: tuple[str, ...]) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        some = [
            Row(NEWS, b"%d" % number, {name + str(number): b"%d" % number for name in names})
            for number in range(2000, 0, -1)
        ]
        some.sort(key=lambda row: row.order)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(row.cost for row in some) / 3 < most - before <= sum(row.cost for row in some)
    assert Row(NEWS, b"ab", {"c": b"d"}).cost == 4 + ROW_COST + PROPERTY_COST


def test_a_task_publishes_no_row_whose_number_is_of_the_next_batch(
    hubs: Hubs, run_in: RunIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sink, "ROWS_MAX", 3)
    run_in(stream_task(0, 0))
    with pytest.raises(InvalidArgument, match="more than 3 rows: let more tasks share them"):
        stream_writer().write(iter([arrow(b"1", b"2"), arrow(b"3", b"4")]))
    assert hubs.bodies() == [b"1", b"2"]


def test_a_task_of_a_stream_is_the_same_producer_in_each_batch_and_numbers_go_on(hubs: Hubs, run_in: RunIn) -> None:
    for partition, batch_id in ((0, 0), (3, 0), (3, 1), (3, 1)):
        run_in(stream_task(partition, batch_id))
        stream_writer().write(iter([arrow(b"x")]))
    mine = stream_producer(QUERY, 3)
    assert producers(hubs) == [
        (stream_producer(QUERY, 0), 1), (mine, 1), (mine, ROWS_MAX + 1), (mine, ROWS_MAX + 1)
    ]  # fmt: skip


@pytest.mark.parametrize("known", [(), (topic_sink.QUERY_ID,), (topic_sink.BATCH_ID,)])
def test_a_task_that_does_not_say_which_batch_it_is_of_publishes_nothing(
    hubs: Hubs, run_in: RunIn, known: tuple[str, ...]
) -> None:
    """A number that is guessed would be another row's."""
    run_in(Task(0, **dict.fromkeys(known, "1")))
    with pytest.raises(InvalidArgument, match="does not say which query and batch"):
        stream_writer().write(iter([arrow(b"x")]))
    assert hubs.sent == []


def test_each_run_of_a_batch_is_another_producer_unless_it_has_a_name(hubs: Hubs, run_in: RunIn) -> None:
    one = writer()
    for partition in (0, 0, 1):
        run_in(Task(partition))
        one.write(iter([arrow(b"x")]))
    writer().write(iter([arrow(b"x")]))
    first, again, other, another_run = producers(hubs)
    assert first == again
    assert len({first, other, another_run}) == 3
    hubs.publishers.clear()
    for _ in range(2):
        writer(job="nightly").write(iter([arrow(b"x")]))
    assert producers(hubs) == [(named_producer("nightly", 1), 1)] * 2


def test_what_has_no_meaning_for_a_stream_or_a_topic_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="job belongs to a batch write"):
        stream_writer(job="nightly")
    with pytest.raises(ConfigurationError, match="cannot be overwritten"):
        TopicWriter({"hubs": "h1", "topic": "news"}, SCHEMA, overwrite=True)
    with pytest.raises(ConfigurationError, match="there is no column value"):
        TopicStreamWriter({"hubs": "h1", "topic": "news"}, StructType([]))


def test_a_job_that_fails_says_how_much_stays(caught: list[str]) -> None:
    writer().abort([Published(3), None, Published(4)])
    assert caught == ["The job failed; 7 rows of tasks that had ended are published, and stay"]


class Ledgers:
    """A region whose topics end with message `last`; None: it cannot be asked."""

    def __init__(self, last: int | None) -> None:
        self._last = last

    def run(self, ask: Callable[[Any], Deferred[int]]) -> int:
        found: list[Any] = []
        ask(None).addBoth(found.append)
        if hasattr(found[0], "raiseException"):
            found[0].raiseException()
        return int(found[0])

    async def last_id(self, topic: Topic) -> int:
        assert topic == NEWS
        if self._last is None:
            raise MetadataUnavailable("no answer")
        return self._last


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    def ends_with(last: int | None) -> None:
        ledgers = Ledgers(last)
        monkeypatch.setattr(topic_sink, "client_of", lambda _: ledgers)
        monkeypatch.setattr(topic_sink, "region_of", lambda *_: ledgers)

    return ends_with


def region_writer(**options: str) -> TopicWriter:
    return TopicWriter({"uri": "zk://zk1:2181/ledgers", "topic": "news", **options}, SCHEMA, overwrite=False)


def test_a_job_whose_rows_were_there_before_says_so_with_both_causes(
    hubs: Hubs, run_in: RunIn, caught: list[str], region: Callable[[int | None], None]
) -> None:
    """The hub answers rows with ids from 1."""
    region(3)
    run_in(Task(0))
    job = region_writer(job="copy")
    ended = [job.write(iter([arrow(b"1", b"2")])), job.write(iter([arrow(b"3", b"4")])), None]
    assert ended == [Published(2, 2), Published(2, 1), None]
    job.commit(ended)
    [told] = caught
    assert told.startswith("3 of 4 rows count as rows that topic 'news' had before, and are not stored again: ")
    assert "job 'copy' has run before. If it has not, but is written in foreachBatch on a thread of your own" in told
    assert told.endswith("wrap the function there with pyspark.inheritable_thread_target(session)")


@pytest.mark.parametrize(
    ("last", "of", "options"),
    [
        pytest.param(0, Task(0), {"job": "copy"}, id="new rows"),
        pytest.param(3, stream_task(0, 0), {"job": "copy"}, id="a micro-batch that is replayed"),
        pytest.param(3, Task(0), {}, id="without a name"),
        pytest.param(3, Task(0), {"job": "copy", "hubs": "h1"}, id="hubs of who knows which region"),
        pytest.param(None, Task(0), {"job": "copy"}, id="a region that does not answer"),
    ],
)
def test_nothing_is_said_of_rows_that_may_be_new_or_are_known_to_come_again(
    hubs: Hubs,
    run_in: RunIn,
    caught: list[str],
    region: Callable[[int | None], None],
    last: int | None,
    of: Task,
    options: dict[str, str],
) -> None:
    region(last)
    run_in(of)
    job = region_writer(**options)
    job.commit([job.write(iter([arrow(b"1", b"2")]))])
    assert [line for line in caught if "not stored again" in line] == []
