"""The ceiling: a Python data source with the rows of the format bookkeeper, out of memory.

What it yields costs nothing to make, so that its rate is what Spark takes from any Python source. As a stream it has
its rows at once; its position is how many were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bookkeeper.spark.columns import LEDGER_SCHEMA, ledger_batch

BATCH_ROWS = 1000
"""As many as the ledger client hands over at a time."""


@dataclass
class MemoryPartition(InputPartition):
    """Rows first..stop-1."""

    first: int
    stop: int


class MemorySource(DataSource):
    """Options: rows, size (bytes of a value), partitions."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return "memory-ceiling"

    def schema(self) -> StructType:
        """As the format bookkeeper's."""
        return LEDGER_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return _Reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream."""
        return _StreamReader(self.options)


class _Rows:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._rows, self._size, self._parts = (int(options[word]) for word in ("rows", "size", "partitions"))

    def _divided(self, first: int, stop: int) -> Sequence[InputPartition]:
        borders = [first + (stop - first) * part // self._parts for part in range(self._parts + 1)]
        return [MemoryPartition(low, high) for low, high in pairwise(borders) if low < high]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The same batch again and again, as long as there are rows."""
        assert isinstance(partition, MemoryPartition)
        rows = partition.stop - partition.first
        whole = ledger_batch(0, 0, [bytes(self._size)] * BATCH_ROWS)
        for at in range(0, rows, BATCH_ROWS):
            yield whole if rows - at >= BATCH_ROWS else whole.slice(0, rows - at)


class _Reader(_Rows, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self._divided(0, self._rows)


class _StreamReader(_Rows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": self._rows}

    def prepareForTriggerAvailableNow(self) -> None:
        """It never grows."""

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return self._divided(start["rows"], end["rows"])
