"""Topics as DataFrames: the pure parts."""

from __future__ import annotations

import pickle
import random
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import ConfigurationError, EntryMissing, EntryUnreadable, InvalidArgument, NoSuchLedger
from bookkeeper.spark.ledgers import slices
from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.options.limits import Limits
from hedwig.errors import UnexpectedCondition
from hedwig.model import HubAddress, LedgerRange, LocalId, MessageId, Topic
from hedwig.protocol.options import NUMBER_MAX
from hedwig.protocol.producers import NAME_SIZE_MAX
from hedwig.spark import topic_slices
from hedwig.spark.region_options import read_topic_options
from hedwig.spark.topic_extents import begin_of, kept_parts
from hedwig.spark.topic_numbers import (
    BATCHES_MAX,
    ROWS_MAX,
    batch_producer,
    first_number,
    named_producer,
    named_stream_producer,
    stream_producer,
)
from hedwig.spark.topic_offsets import Seen, advance, between, offset_of, read_offset
from hedwig.spark.topic_options import Positions, RowOrder, TopicReadOptions, TopicWriteOptions, parse_positions
from hedwig.spark.topic_partition import TopicPartition
from hedwig.spark.topic_parts import Kept, Search, check_chain, check_same, lost_of, parts_of
from hedwig.spark.topic_sight import TopicSight
from hedwig.spark.topic_sink import TopicStreamWriter
from hedwig.spark.topic_slices import read_topic_slices
from hedwig.spark.topic_source import TopicSource
from tests.support.logged import logged

URI = "zk://zk1:2181/ledgers"


def ranges(*ends: int | None, first: int = 1) -> tuple[LedgerRange, ...]:
    """Ledgers 10, 11, ... of a topic, each behind the one before; None: still written."""
    found = []
    for at, end in enumerate(ends):
        found.append(LedgerRange(10 + at, LocalId(first), None if end is None else MessageId(LocalId(end))))
        first = (end or 0) + 1
    return tuple(found)


def kept(*ends: int | None, first: int = 1, end: int | None = None) -> Kept:
    last = ends[-1]
    assert end is not None or last is not None
    return Kept("news", ranges(*ends, first=first), (last or 0) + 1 if end is None else end, final=last is not None)


# --- words


def test_words_of_the_format_of_ledgers_and_of_hubs_are_options() -> None:
    given = {
        "URI": URI,
        "Subscribe": "news, a/b,news",
        "readTimeout": "9",
        "hub": "h1:4081",
        "publish_linger_ms": "5",
        "zk_prefix": "/other",
        "region": "west",
        "includeheaders": "true",
    }
    found = read_topic_options(TopicReadOptions, given)
    assert (found.own.topics, found.own.headers) == (("news", "a/b"), True)
    assert (found.own.zk_prefix, found.own.region, found.own.password) == ("/other", "west", b"sillysecret")
    assert (found.client.metadata_service_uri, found.client.read_timeout_s) == (URI, 9.0)
    assert (found.hubs.servers, found.hubs.linger_s, found.names_hubs) == ((HubAddress("h1", 4081, None),), 0.005, True)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_reader_needs_the_cluster_and_a_sink_that_or_hubs() -> None:
    with pytest.raises(ConfigurationError, match="metadataServiceUri"):
        read_topic_options(TopicReadOptions, {"subscribe": "news", "hubs": "h1"})
    assert read_topic_options(TopicWriteOptions, {"hubs": "h1"}, needs_uri=False).names_hubs
    assert not read_topic_options(TopicWriteOptions, {"uri": URI}, needs_uri=False).names_hubs
    with pytest.raises(ConfigurationError, match="metadataServiceUri"):
        read_topic_options(TopicWriteOptions, {"topic": "news"}, needs_uri=False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "a//b"}, "between slashes"),
        ({}, "option subscribe of format hedwig: is missing: which topics"),
        ({"subscribe": "a", "startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "retry_timeout": "1"}, "did you mean retry_timeout_ms?"),
        ({"subscribe": "a", "endingOffsets": '{"b": 3}'}, "names b, which is none of the topics that are read"),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "5"}, "in two ways"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "4", "maxEntriesPerTrigger": "5"}, "in two ways"),
        ({"subscribe": "a", "subscription": "x/y"}, "must not have a slash"),
    ],
)
def test_faults_name_the_word_and_the_nearest_one(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("?", r"\?")):
        read_topic_options(TopicReadOptions, {"uri": URI, **given})


def test_the_word_of_reading_is_told_from_that_of_writing() -> None:
    said = r"option topic of format hedwig: is unknown; it is of writing: topics to read are named by option subscribe"
    with pytest.raises(ConfigurationError, match=said):
        TopicSource({"uri": URI, "topic": "news"}).schema()
    schema = StructType([StructField("value", BinaryType())])
    said = r"option subscribe of format hedwig: is unknown; it is of reading: .* is named by option topic"
    with pytest.raises(ConfigurationError, match=said):
        TopicStreamWriter({"uri": URI, "subscribe": "news"}, schema)


def test_words_of_streams_are_refused_in_batches_and_the_other_way_round() -> None:
    stream = read_topic_options(TopicReadOptions, {"uri": URI, "subscribe": "a", "subscription": "me"}).own
    batch = read_topic_options(TopicReadOptions, {"uri": URI, "subscribe": "a", "endingTimestamp": "5"}).own
    stream.check_use(stream=True)
    batch.check_use(stream=False)
    with pytest.raises(ConfigurationError, match="subscription belongs to a stream"):
        stream.check_use(stream=False)
    with pytest.raises(ConfigurationError, match="endingTimestamp belongs to a batch read"):
        batch.check_use(stream=True)
    told = read_topic_options(TopicReadOptions, {"uri": URI, "subscribe": "a", "acknowledgedOffsets": '{"a": 5}'}).own
    told.check_use(stream=False)
    with pytest.raises(ConfigurationError, match="acknowledgedOffsets belongs to a batch read"):
        told.check_use(stream=True)


def test_positions_are_words_or_json_as_kafkas_with_or_without_the_partition() -> None:
    found = parse_positions('{"a": 5, "b": {"0": -1}}')
    assert found == Positions(-2, {"a": 5, "b": -1})
    assert parse_positions('{"a": 5, "b": -1, "/stream": {"cluster": "c", "minPartitions": 2}}') == found
    assert [found.of(topic) for topic in "abc"] == [5, -1, -2]
    for text in ("first", "[1]", '{"a": "5"}', '{"a": {"1": 5}}', '{"a": -3}', '{"a": true}'):
        with pytest.raises(ValueError, match=r"earliest|positions"):
            parse_positions(text)


def test_the_order_of_rows_is_one_of_two() -> None:
    given = {"hubs": "h1", "rowOrder": "Content"}
    assert read_topic_options(TopicWriteOptions, given, needs_uri=False).own.row_order is RowOrder.CONTENT
    with pytest.raises(ConfigurationError, match="want arrival or content"):
        read_topic_options(TopicWriteOptions, {**given, "rowOrder": "random"}, needs_uri=False)


# --- who holds which messages


def test_messages_are_found_in_their_ledgers_by_their_entries() -> None:
    found = parts_of(kept(1000, 2300, None, end=2351), 700, 2350)
    assert [(each.ledger_id, each.first, each.last) for each in found] == [
        (10, 700, 1000),
        (11, 1001, 2300),
        (12, 2301, 2349),
    ]
    assert [(each.first_entry_id, each.last_entry_id) for each in found] == [(699, 999), (0, 1299), (0, 48)]


def test_parts_are_what_was_asked_for_message_by_message() -> None:
    rng = random.Random(8)
    for _ in range(300):
        ends = sorted(rng.sample(range(1, 60), rng.randint(1, 5)))
        there = kept(*ends, first=rng.randint(1, ends[0]))
        stop = rng.randint(there.first, there.end)
        start = rng.randint(1, stop)
        found = [
            (each.ledger_id, each.base + entry)
            for each in parts_of(there, start, stop)
            for entry in range(each.first_entry_id, each.last_entry_id + 1)
        ]
        assert [message for _, message in found] == list(range(max(start, there.first), stop))
        for ledger_id, message in found:
            holder = there.ranges[ledger_id - 10]
            assert holder.first is not None
            assert holder.last is not None
            assert holder.first <= message <= holder.last.local


def test_a_position_behind_an_ended_topic_is_of_another_one() -> None:
    with pytest.raises(InvalidArgument, match="was to be read up to message 60 and ends with 50"):
        parts_of(kept(50), 1, 61)
    assert parts_of(kept(None, end=51), 1, 61)[0].last == 60  # an older look at an open ledger


def test_only_what_was_asked_for_can_be_lost() -> None:
    there = kept(100, first=40)
    assert lost_of(there, 1, 101) == [(1, 39)]
    assert lost_of(there, 5, 20) == [(5, 19)]
    assert lost_of(there, 40, 101) == []
    assert lost_of(kept(100), 0, 101) == []
    assert lost_of(Kept("news", (), 8, final=False), 3, 20) == [(3, 7)]


def test_messages_that_no_ledger_of_the_list_has_are_lost_and_not_passed_over() -> None:
    """I-91."""
    there = Kept("news", (*ranges(10, 20), *ranges(40, None, first=31)), 50, final=False)
    assert lost_of(there, 1, 50) == [(21, 30)]
    assert lost_of(there, 25, 28) == [(25, 27)]
    for start in range(1, 50):
        for stop in range(start + 1, 51):
            read = [each for part in parts_of(there, start, stop) for each in range(part.first, part.last + 1)]
            lost = [each for first, last in lost_of(there, start, stop) for each in range(first, last + 1)]
            assert sorted(read + lost) == list(range(start, stop))


@pytest.mark.parametrize("before", [ranges(10), ranges(None)])
def test_a_list_that_has_messages_twice_is_refused(before: tuple[LedgerRange, ...]) -> None:
    """I-91."""
    with pytest.raises(UnexpectedCondition, match=r"begins at message 6, .* messages would be there twice; restore"):
        check_chain("news", [*before, LedgerRange(20, LocalId(6), MessageId(LocalId(15)))])
    check_chain("news", ranges(10, 20, None))
    check_chain("news", ())


def test_a_query_that_is_behind_the_end_of_its_topic_is_of_another_one_unless_the_look_may_be_old() -> None:
    kept(50).check_reached(51)
    with pytest.raises(InvalidArgument, match=r"ends with message 50, and the query is at 52: .* new checkpoint"):
        kept(50).check_reached(52)
    with pytest.raises(InvalidArgument, match="made anew"):
        Kept("news", (), 1, final=False).check_reached(500)
    Kept("news", (), 1, final=False).check_reached(1)
    kept(None, end=51).check_reached(60)


def test_a_message_that_is_in_another_ledger_than_before_is_of_another_topic() -> None:
    check_same("news", ranges(100, 200, None), 150, 11)
    check_same("news", ranges(200, None, first=151), 150, 11)  # deleted since
    for now in (ranges(100, 200, None), ()):
        with pytest.raises(InvalidArgument, match=r"message 150 was seen in ledger 7, and .*deleted and made anew"):
            check_same("news", now, 150, 7)


class OneLedger:
    """A region whose one ledger, which is written, has messages 1..last."""

    def __init__(self, last: int, error: type[Exception] = EntryMissing) -> None:
        self._last, self._error = last, error

    async def open(self, ledger_id: int) -> OneLedger:
        return self

    def read_unconfirmed(self, first: int, last: int) -> Deferred[list[Any]]:
        return succeed([SimpleNamespace(payload=b"")]) if last < self._last else fail(self._error("no answer"))

    async def close(self) -> None:
        """Nothing to do."""


def test_an_older_look_is_told_from_another_topic_by_the_message_before_the_position() -> None:
    look = kept(None, end=21)
    for last, position in ((60, 61), (60, 40), (5, 21)):
        region: Any = OneLedger(last)
        assert found(TopicSight(region, fail_on_data_loss=True).check_reached(look, position)) is None
    region = OneLedger(20)
    with pytest.raises(InvalidArgument, match=r"ends with message 20, and the query is at 61: .*made anew"):
        found(TopicSight(region, fail_on_data_loss=True).check_reached(look, 61))
    region = OneLedger(20, EntryUnreadable)  # whether it is there is not known
    with pytest.raises(EntryUnreadable):
        found(TopicSight(region, fail_on_data_loss=True).check_reached(look, 61))


class NewestGone:
    """A region whose topic news has ended ledgers, as many as `ends`, and a newest one that was deleted."""

    def __init__(self, *ends: int) -> None:
        self.listed = ranges(*ends, None)

    async def check(self) -> None:
        """It is there."""

    async def ranges(self, topic: Topic) -> tuple[LedgerRange, ...]:
        return self.listed

    async def open(self, ledger_id: int) -> None:
        assert ledger_id == self.listed[-1].ledger_id
        raise NoSuchLedger(f"ledger {ledger_id} is not there")


@pytest.mark.parametrize("ends", [(100,), ()])
def test_a_query_that_has_read_a_newest_ledger_that_is_gone_waits_where_loss_is_borne(
    ends: tuple[int, ...], caught: list[str]
) -> None:
    region: Any = NewestGone(*ends)
    sight = TopicSight(region, fail_on_data_loss=False)
    for _ in range(2):
        seen: Any = found(sight.see(["news"]))
        assert found(sight.check_reached(seen["news"], 150)) is None
    kept = seen["news"]
    assert (kept.end, kept.final) == (ends[-1] + 1 if ends else 1, False)
    assert advance({"news": 150}, {"news": Seen(kept.first, kept.end, 0.0)}, Limits()) == {"news": 150}
    [told] = caught  # once, however often it is looked at
    assert "with the newest messages of topic 'news' from" in told
    with pytest.raises(NoSuchLedger, match="With option failOnDataLoss=false they are left out"):
        found(TopicSight(region, fail_on_data_loss=True).see(["news"]))


def test_messages_of_a_newest_ledger_that_is_gone_are_lost_and_no_other_topics(caught: list[str]) -> None:
    there = Kept("news", ranges(100), 101, final=False, lost_from=101)
    assert lost_of(there, 140, 160) == [(140, 159)]
    assert lost_of(there, 1, 101) == []
    assert lost_of(Kept("news", (), 1, final=False, lost_from=1), 1, 50) == [(1, 49)]
    given = {"uri": URI, "subscribe": "news"}
    borne = read_topic_options(TopicReadOptions, {**given, "failOnDataLoss": "false"})
    assert kept_parts(borne, there, 140, 160) == []
    [part] = kept_parts(borne, there, 90, 160)
    assert (part.first, part.last) == (90, 100)
    assert [line[:61] for line in caught] == [
        "messages 140 to 159 of topic 'news' were to be read and are n",
        "messages 101 to 159 of topic 'news' were to be read and are n",
    ]
    with pytest.raises(UnexpectedCondition, match=r"messages 101 to 159 of topic 'news' .*failOnDataLoss=false"):
        kept_parts(read_topic_options(TopicReadOptions, given), there, 90, 160)


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_task_that_is_tried_again_and_leaves_out_lost_messages_says_that_its_rows_are_others(
    attempt: int, caught: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(ledger_id: int, *_: object) -> None:
        raise NoSuchLedger(f"ledger {ledger_id} is not there")

    monkeypatch.setattr(topic_slices, "client_of", lambda _: SimpleNamespace(open_without_recovery=gone))
    task = SimpleNamespace(attemptNumber=lambda: attempt, partitionId=lambda: 5)
    monkeypatch.setattr(slices, "TaskContext", SimpleNamespace(get=lambda: task))
    borne = read_topic_options(TopicReadOptions, {"uri": URI, "subscribe": "news", "failOnDataLoss": "false"})
    partition = TopicPartition([Slice(10, 0, 3, 4)], {10: ("news", 1)})
    assert list(read_topic_slices(borne, partition)) == []
    assert caught.pop(0).startswith("messages 1 to 4 of topic 'news' were to be read")
    assert [line[:54] for line in caught] == ["attempt 1 of the task of partition 5 has other rows th"] * attempt


class ShortHandle:
    """A ledger that ends with entry 2, though it was to be read further."""

    def __enter__(self) -> ShortHandle:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note_confirmed(self, entry_id: int) -> None:
        pass

    def batches(self, first: int, last: int) -> Iterator[list[SimpleNamespace]]:
        yield [SimpleNamespace(entry_id=each, payload=b"") for each in range(first, min(last, 2) + 1)]


@pytest.mark.parametrize("last", [2, 4])
def test_a_task_reports_messages_that_are_not_in_their_ledger(
    last: int, caught: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimpleNamespace(open_without_recovery=lambda *_: ShortHandle())
    monkeypatch.setattr(topic_slices, "client_of", lambda _: client)
    monkeypatch.setattr(topic_slices, "topic_batch", lambda *given, headers: given[4])
    partition = TopicPartition([Slice(10, 0, last, last + 1)], {10: ("news", 1)})
    options = {"uri": URI, "subscribe": "news"}
    borne = read_topic_options(TopicReadOptions, {**options, "failOnDataLoss": "false"})
    assert [len(rows) for rows in read_topic_slices(borne, partition)] == [3]
    if last == 2:
        assert caught == []
        return
    assert caught[0].startswith("messages 4 to 5 of topic 'news' were to be read")
    assert "ledger 10 ends before them" in caught[0]
    with pytest.raises(UnexpectedCondition, match=r"messages 4 to 5 .* ledger 10 ends before them"):
        list(read_topic_slices(read_topic_options(TopicReadOptions, options), partition))


def test_a_topic_made_anew_is_told_also_where_loss_is_borne() -> None:
    region: Any = NewestGone(100)
    sight = TopicSight(region, fail_on_data_loss=False)
    found(sight.see(["news"]))
    region.listed = (LedgerRange(77, LocalId(1), None),)
    with pytest.raises(InvalidArgument, match=r"message 100 was seen in ledger 10, .*deleted and made anew"):
        found(sight.see(["news"]))
    with pytest.raises(InvalidArgument, match="made anew"):
        found(sight.check_reached(kept(100), 150))


@pytest.fixture
def caught() -> Iterator[list[str]]:
    """What is logged."""
    with logged() as lines:
        yield lines


def found(work: Coroutine[Any, Any, object]) -> object:
    """What it says at once."""
    ended: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(ended.append)
    [result] = ended
    if isinstance(result, Failure):
        result.raiseException()
    return result


def test_a_time_is_found_by_halving() -> None:
    times = [3, 3, 4, 9, 9, 12]
    for wanted in range(14):
        search = Search(1, len(times) + 1)
        while (asked := search.ask) is not None:
            search.tell(is_older=times[asked - 1] < wanted)
        assert search.low == 1 + sum(time < wanted for time in times)


# --- how far a stream has come


def test_positions_are_the_same_text_for_the_same_place() -> None:
    assert list(offset_of({"b": 2, "a": 1})) == ["a", "b"]
    assert read_offset({"b": 2, "a": 1}, ["a"]) == {"a": 1, "b": 2}


@pytest.mark.parametrize("offset", [None, 7, {"done": "1-5", "7": 3}, {"a": 0}, {"a": True}, {"a": "3"}, {"b": 5}])
def test_the_checkpoint_of_another_query_is_refused(offset: object) -> None:
    with pytest.raises(InvalidArgument, match="belongs to another query"):
        read_offset(offset, ["a"])


def test_a_micro_batch_goes_to_what_is_seen_within_its_limits_and_never_back() -> None:
    seen = {"a": Seen(1, 101, 10.0), "b": Seen(1, 301, 10.0)}
    assert advance({"a": 1, "b": 1}, seen, Limits()) == {"a": 101, "b": 301}
    assert advance({"a": 1, "b": 1}, seen, Limits(entries=40)) == {"a": 11, "b": 31}
    assert advance({"a": 1, "b": 301}, seen, Limits(size=200)) == {"a": 21, "b": 301}
    assert advance({"a": 1, "b": 301}, seen, Limits(size=1)) == {"a": 2, "b": 301}
    assert advance({"a": 150, "b": 301}, seen, Limits()) == {"a": 150, "b": 301}  # an older look


def test_a_topic_that_is_new_gets_its_place_before_anything_of_it_is_read() -> None:
    seen = {"a": Seen(1, 11, 0.0), "new": Seen(5, 9, 0.0)}
    first = advance({"a": 3}, seen, Limits())
    assert first == {"a": 11, "new": 5}
    assert between({"a": 3}, first) == {"a": (3, 11)}
    assert between(first, advance(first, seen, Limits())) == {"new": (5, 9)}


def test_what_is_not_kept_any_more_lies_between_two_positions_too() -> None:
    """So that who plans it says that it is lost."""
    end = advance({"a": 3}, {"a": Seen(50, 61, 0.0)}, Limits(entries=5))
    assert end == {"a": 55}
    assert between({"a": 3}, end) == {"a": (3, 55)}


def test_a_position_that_went_back_is_no_position_of_this_query() -> None:
    with pytest.raises(InvalidArgument, match="the next position is 3"):
        between({"a": 4}, {"a": 3})


# --- numbers


def test_names_and_numbers_of_rows_fit_into_what_hubs_take() -> None:
    query = "01234567-89ab-cdef-0123-456789abcdef"
    assert stream_producer(query, 3) == b"s0123456789abcdef0123456789abcdef.3"
    assert len(batch_producer(query, 2**31 - 1)) <= NAME_SIZE_MAX
    assert len(named_producer("n" * 1000, 2**31 - 1)) <= NAME_SIZE_MAX
    assert named_producer("a", 1) == named_producer("a", 1)
    assert len({named_producer("a", 1), named_producer("b", 1), named_producer("a", 2)}) == 3
    assert len(named_stream_producer("n" * 1000, query, 2**31 - 1)) <= NAME_SIZE_MAX
    assert len({named_stream_producer(name, each, 1) for name in "ab" for each in (query, query[::-1])}) == 4
    assert first_number(0) == 1
    assert first_number(7) + ROWS_MAX - 1 < first_number(8)
    assert first_number(BATCHES_MAX) + ROWS_MAX - 1 <= NUMBER_MAX
    with pytest.raises(InvalidArgument, match="begin a new query"):
        first_number(BATCHES_MAX + 1)


@pytest.mark.parametrize(
    ("given", "first", "begin", "warning"),
    [
        ({}, 124, 124, "Messages 1 to 123 of topic 'news' are deleted: the read begins with 124"),
        ({"startingOffsets": "earliest"}, 2, 2, "Messages 1 to 1 of topic"),
        ({"startingOffsets": '{"news": -2}'}, 9, 9, "Messages 1 to 8 of topic"),
        ({"startingTimestamp": "5"}, 9, 9, "are deleted, and some or all may be older than the requested time: the"),
        ({"startingTimestamp": "69"}, 9, 9, "may be older than the requested time"),
        ({"startingTimestamp": "70"}, 9, 9, None),  # the first kept ledger was created then
        ({"startingTimestamp": "500"}, 9, 150, None),
        ({}, 1, 1, None),
        ({"startingOffsets": "latest"}, 9, 201, None),
        ({"startingOffsets": '{"news": 3}'}, 9, 3, None),  # the plan reports what is lost
    ],
)
def test_a_read_from_the_earliest_message_names_deleted_ones(
    given: dict[str, str], first: int, begin: int, warning: str | None
) -> None:
    options = read_topic_options(TopicReadOptions, {"uri": URI, "subscribe": "news", **given})

    async def time_of_message(kept: Kept, message_id: int) -> int:
        return 100 if message_id < 150 else 1000

    async def facts(ledger_id: int) -> SimpleNamespace:
        return SimpleNamespace(length=1, metadata=SimpleNamespace(created_ms=60, stored_ms=70))

    sight: Any = SimpleNamespace(words=options.words, time_of_message=time_of_message, facts=facts)
    look, otherwise = kept(200, first=first), Positions(-2, {})
    with logged() as lines:
        assert found(begin_of(sight, options.own, look, otherwise)) == begin
        assert found(begin_of(sight, options.own, look, otherwise, warn=False)) == begin
    assert len(lines) == (0 if warning is None else 1)
    assert warning is None or warning in lines[0]
