"""Rows of a DataFrame as messages: which columns say what, and Arrow batches taken apart, whole columns at a time.

    value      string or binary, needed, never null: the body
    topic      string: where to; not looked at where option topic says it for all
    key        string or binary: the header property `key`; null: none
    headers    array of (key string, value binary or string), as the format's own column: more header properties

Other columns are left out, as Kafka's sink does. Header properties by which hubs know a message again (hw.pid, hw.seq,
hw.prev) are of the topic that it was read from, and are left out too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from bookkeeper.errors import ConfigurationError, InvalidArgument
from hedwig.model import KEY_PROPERTY, NO_OPTIONS, Topic
from hedwig.protocol.options import PREVIOUS, PRODUCER, SEQUENCE
from hedwig.spark.region_options import WHERE
from hedwig.spark.topic_options import topic_of

_NOT_COPIED = frozenset({PRODUCER, SEQUENCE, PREVIOUS})

TOPICS_MAX = 1_000
"""Topics of the rows of one task: each has state in the client, and a producer in its hub."""


ROW_COST = 320
PROPERTY_COST = 300
"""Bytes that a row takes besides its text while rows are sorted by content, and each of its properties, at most.

Of CPython 3.11: the tuple and its place 80, the head of the body 33, an empty dict 64, while sorting another tuple, a
list and a place 136. Properties: a dict 120 more, heads of name and value 49 and 33, while sorting their tuples 72.
"""


class Row(NamedTuple):
    """One message to publish."""

    topic: Topic
    body: bytes
    properties: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.properties.items())

    @property
    def cost(self) -> int:
        """Bytes of memory, about, while rows are sorted by content."""
        return self.size + ROW_COST + PROPERTY_COST * len(self.properties)

    @property
    def order(self) -> tuple[Topic, bytes, list[tuple[str, bytes]]]:
        """By content."""
        return self.topic, self.body, sorted(self.properties.items())


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ConfigurationError where rows of this schema are no messages."""
    kinds = {field.name: field.dataType for field in schema.fields}
    faults = []
    if "value" not in kinds:
        faults.append(f"there is no column value, only {', '.join(kinds) or 'none'}: name the body so")
    faults += [
        f"column {name} is {kinds[name].simpleString()}, and must be string or binary: cast it"
        for name in ("value", "key")
        if name in kinds and not _is_text(kinds[name])
    ]
    if topic is None and "topic" not in kinds:
        faults.append("there is neither option topic nor a column topic: where are the rows to go?")
    elif topic is None and not isinstance(kinds["topic"], StringType):
        faults.append(f"column topic is {kinds['topic'].simpleString()}, and must be string")
    if "headers" in kinds and not _is_headers(kinds["headers"]):
        faults.append(
            f"column headers is {kinds['headers'].simpleString()}, and must be array<struct<key:string,value:binary>>"
        )
    if faults:
        raise ConfigurationError(f"format {WHERE}: {'; '.join(faults)}")


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return fields.keys() == {"key", "value"} and isinstance(fields["key"], StringType) and _is_text(fields["value"])


class RowsOf:
    """The messages of Arrow batches. topic: of all; None: the column says it."""

    def __init__(self, topic: str | None) -> None:
        self._topic = None if topic is None else topic_of(topic)
        self._topics: dict[str, Topic] = {}

    def __call__(self, batch: Any) -> Iterator[Row]:
        """Of one batch, in its order. Raises InvalidArgument for a null, or a topic that cannot be."""
        names = batch.schema.names
        count = batch.num_rows
        bodies = _column(batch, "value")
        keys = _column(batch, "key") if "key" in names else [None] * count
        headers = batch.column("headers").to_pylist() if "headers" in names else [None] * count
        topics = [None] * count if self._topic is not None else batch.column("topic").to_pylist()
        for body, key, header, topic in zip(bodies, keys, headers, topics, strict=True):
            if body is None:
                raise InvalidArgument("column value is null in a row, and a message must have a body: filter such rows")
            yield Row(self._topic or self._named(topic), body, _properties(key, header))

    def _named(self, name: str | None) -> Topic:
        found = self._topics.get(name or "")
        if found is not None:
            return found
        if name is None:
            raise InvalidArgument("column topic is null in a row, and option topic does not say where it is to go")
        if len(self._topics) >= TOPICS_MAX:
            raise InvalidArgument(
                f"the rows of one task go to more than {TOPICS_MAX} topics: repartition them by topic, into more tasks"
            )
        try:
            found = self._topics[name] = topic_of(name)
        except ValueError as error:
            raise InvalidArgument(f"column topic: {error}") from error
        return found


def _column(batch: Any, name: str) -> list[bytes | None]:
    found: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return found


def _properties(key: bytes | None, headers: list[dict[str, Any] | None] | None) -> Mapping[str, bytes]:
    if key is None and not headers:
        return NO_OPTIONS
    found: dict[str, bytes] = {}
    for header in headers or ():
        if header is None or header["key"] is None:
            raise InvalidArgument("column headers has a null, or one without a key, in a row: leave it out")
        value = header["value"]
        if header["key"] not in _NOT_COPIED:
            found[header["key"]] = b"" if value is None else value.encode() if isinstance(value, str) else value
    if key is not None:
        found[KEY_PROPERTY] = key
    return found
