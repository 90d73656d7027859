"""Rows of a DataFrame taken apart as messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.errors import InvalidArgument
from hedwig.spark import topic_rows
from hedwig.spark.topic_rows import Row, RowsOf

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(**columns: Any) -> Any:
    types = {"headers": HEADERS, "topic": pa.string()}
    arrays = {name: pa.array(values, types.get(name, pa.binary())) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def rows(to: str | None = "news", /, **columns: Any) -> list[Row]:
    return list(RowsOf(to)(batch(**columns)))


def headers(*pairs: tuple[str | None, bytes | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def test_what_a_hub_gave_the_message_where_it_was_read_is_left_behind() -> None:
    given = headers(("hw.pid", b"p"), ("hw.seq", b"7"), ("hw.prev", b"6"), ("color", b"red"), ("empty", None))
    [row] = rows(value=[b"body"], key=[b"k"], headers=[given])
    assert row == Row(row.topic, b"body", {"color": b"red", "empty": b"", "key": b"k"})
    assert row.size == len(b"body" + b"color" + b"red" + b"empty" + b"key" + b"k")


def test_the_column_key_is_the_key_also_where_a_header_says_another() -> None:
    [row] = rows(value=[b"body"], key=[b"mine"], headers=[headers(("key", b"other"))])
    assert row.properties == {"key": b"mine"}
    [row] = rows(value=[b"body"], key=[None], headers=[headers(("key", b"other"))])
    assert row.properties == {"key": b"other"}


@pytest.mark.parametrize(
    ("topic", "columns", "text"),
    [
        ("news", {"value": [None]}, "column value is null"),
        (None, {"value": [b"x"], "topic": [None]}, "column topic is null in a row"),
        (None, {"value": [b"x"], "topic": [""]}, "column topic: "),
        ("news", {"value": [b"x"], "headers": [[None]]}, "column headers has a null"),
        ("news", {"value": [b"x"], "headers": [headers((None, b"v"))]}, "one without a key"),
    ],
)
def test_a_row_that_is_no_message_is_refused(topic: str | None, columns: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        rows(topic, **columns)


def test_a_task_has_so_many_topics_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_rows, "TOPICS_MAX", 3)
    rows_of = RowsOf(None)
    names = ["a", "b", "a", "c"]
    assert [row.topic for row in rows_of(batch(value=[b"x"] * 4, topic=names))] == [each.encode() for each in names]
    assert [row.topic for row in rows_of(batch(value=[b"x"], topic=["b"]))] == [b"b"]
    with pytest.raises(InvalidArgument, match="more than 3 topics: repartition them by topic"):
        list(rows_of(batch(value=[b"x"], topic=["d"])))
