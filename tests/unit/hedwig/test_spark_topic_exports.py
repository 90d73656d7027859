"""Exports of topics: the digest of a message, lines and manifest, and pieces of topics out of Arrow batches."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from bookkeeper.spark.exports.digests import digest_of_payload
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import Files
from hedwig.protocol.producers import NAME_SIZE_MAX
from hedwig.spark.exports.contents import digest_of_message, import_producer
from hedwig.spark.exports.manifest import (
    ExportedTopic,
    TopicManifest,
    format_manifest,
    format_topic,
    parse_manifest,
    parse_topic,
)

TOPIC = ExportedTopic("news", 501, 600, 100, 1000, "ab")

MANIFEST = TopicManifest("cd" * 16, 5, "/hedwig/standalone", 10_000, 1, "ef", 100, 1000, Files(2, 4242, "01"))


# --- what of a message counts


def test_body_and_own_properties_make_the_digest() -> None:
    plain = digest_of_message(b"body", {})
    given = {"hw.time": b"1", "hw.pid": b"p", "hw.seq": b"2", "hw.prev": b"1"}
    assert digest_of_message(b"body", given) == plain == digest_of_payload(f"{digest_of_payload(b'body')}\n".encode())
    several = [
        plain,
        digest_of_message(b"bodz", {}),
        digest_of_message(b"body", {"key": b"k"}),
        digest_of_message(b"body", {"key": b"l"}),
        digest_of_message(b"body", {"kex": b"k"}),
        digest_of_message(b"body", {"key": b"k", "b": b""}),
        digest_of_message(b"body", {"hw.dead.topic": b"1"}),
    ]
    assert len(set(several)) == len(several)


def test_the_order_of_properties_does_not_count() -> None:
    assert digest_of_message(b"", {"a": b"1", "b": b"2"}) == digest_of_message(b"", {"b": b"2", "a": b"1"})
    assert digest_of_message(b"", {"a": b"1", "b": b"2"}) != digest_of_message(b"", {"a": b"2", "b": b"1"})


def test_the_producer_of_an_import_is_of_its_export_and_name() -> None:
    found = [import_producer("e", ""), import_producer("e", "j"), import_producer("f", "")]
    assert len(set(found)) == 3
    assert all(len(b"import-" + each) <= NAME_SIZE_MAX for each in found)


# --- lines


def test_lines_are_read_back() -> None:
    assert parse_topic(format_topic(TOPIC)) == TOPIC
    assert parse_manifest(format_manifest(MANIFEST)) == MANIFEST
    empty = ExportedTopic("empty", 7, 6, 0, 0, "ab")
    assert parse_topic(format_topic(empty)) == empty


def test_a_line_is_json_with_ascending_keys() -> None:
    assert format_topic(TOPIC) == (
        '{"bytes":1000,"digest":"ab","first_seq":501,"last_seq":600,"messages":100,"topic":"news","why":""}'
    )
    left_out = dataclasses.replace(TOPIC, why="messages 601 to 700 are stored")
    assert parse_topic(format_topic(left_out)) == left_out
    assert parse_topic(format_topic(TOPIC).replace(',"why":""', "")) == TOPIC, "of an older release"


@pytest.mark.parametrize("change", [{"messages": 99}, {"last_seq": 601}, {"first_seq": 0, "last_seq": 99}])
def test_a_topic_whose_numbers_do_not_fit_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(NotAnExport, match="the line of topic 'news'"):
        parse_topic(format_topic(dataclasses.replace(TOPIC, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "format 2; this release knows 1"),
        ({"contents": [{"kind": "ledgers"}]}, "of the kinds ledgers; this release knows topics here"),
        ({"contents": []}, "of the kinds none"),
        ({"range_messages": 0}, "range_messages is 0"),
        ({"region": None}, "region is None"),
    ],
)
def test_a_manifest_that_is_not_of_topics_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAnExport, match=why):
        parse_manifest(json.dumps(json.loads(format_manifest(MANIFEST)) | change))


# --- pieces of topics


def batch(*rows: tuple[str, int]) -> Any:
    pa = pytest.importorskip("pyarrow")
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic for topic, _ in rows], pa.string()),
            pa.array([seq for _, seq in rows], pa.int64()),
            pa.array([b"%d" % seq for _, seq in rows], pa.binary()),
            pa.array([[{"key": "n", "value": b"%d" % seq}] for _, seq in rows], headers),
        ],
        names=["topic", "seq", "value", "headers"],
    )


def test_batches_are_cut_where_a_topic_ends() -> None:
    pytest.importorskip("pyspark")
    from hedwig.spark.exports.publishing import topic_pieces

    batches = [batch(("a", 1), ("a", 2), ("b", 9)), batch(), batch(("b", 10)), batch(("c", 1))]
    found = [(topic, piece.column("seq").to_pylist()) for topic, piece in topic_pieces(batches)]
    assert found == [("a", [1, 2]), ("b", [9]), ("b", [10]), ("c", [1])]


def test_messages_of_a_topic_follow_each_other() -> None:
    pytest.importorskip("pyspark")
    from hedwig.spark.exports.publishing import MessagesOf

    messages = MessagesOf("a", iter([batch(("a", 7), ("a", 8)), batch(("a", 9))]))
    assert messages.first == 7
    rows = [row for piece in messages for row in piece]
    assert [row.body for row in rows] == [b"7", b"8", b"9"]
    assert [dict(row.properties) for row in rows] == [{"n": b"7"}, {"n": b"8"}, {"n": b"9"}]
    assert {row.topic for row in rows} == {b"a"}


@pytest.mark.parametrize("second", [7, 8, 10])
def test_a_message_that_is_missing_or_there_twice_is_refused(second: int) -> None:
    pytest.importorskip("pyspark")
    from hedwig.spark.exports.publishing import MessagesOf

    messages = MessagesOf("a", iter([batch(("a", 7), ("a", 8)), batch(("a", second))]))
    with pytest.raises(NotAnExport, match=f"topic 'a': message {second} does not follow"):
        list(messages)
