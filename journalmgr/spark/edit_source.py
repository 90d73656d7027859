"""Data source `editlog`: the transactions of a journal on ledgers as rows, read from the bookies in parallel.

    planner (one process)     segments of the range, how far they are confirmed, its entries -> partitions
    tasks (one each)          open the ledgers of their slices without fencing, check every record: Arrow batches

What a query reads is fixed when it is planned: of a segment in progress the transactions that are confirmed then. A
task reads exactly its slices, and may do so again, also of a segment that was finalised or recovered meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from bookkeeper.spark.columns import check_schema
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.filters import push
from bookkeeper.spark.options.tables import SourceOptions
from bookkeeper.spark.process_client import client_of
from journalmgr.spark.edit_batches import EDITS_SCHEMA, RAW_SCHEMA
from journalmgr.spark.edit_options import WHERE, EditReadOptions, read_edit_options
from journalmgr.spark.edit_plan import EVERY_BOUND, EditSlice, plan_query
from journalmgr.spark.edit_slices import read_slices

Options = SourceOptions[EditReadOptions]


@dataclass
class EditPartition(InputPartition):
    """What one task reads."""

    slices: Sequence[EditSlice]
    txids: Bounds = field(default_factory=Bounds)


class EditLogSource(DataSource):
    """The format, without pushed filters: a DataFrame of it may be used again and again."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def schema(self) -> StructType:
        """By the option decode."""
        return _schema(read_edit_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ConfigurationError."""
        return EditLogReader(self._options(schema, stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream read. Raises ConfigurationError."""
        from journalmgr.spark.edit_stream import EditLogStreamReader

        return EditLogStreamReader(self._options(schema, stream=True))

    def _options(self, schema: StructType, *, stream: bool) -> Options:
        options = read_edit_options(self.options)
        options.own.check_use(stream=stream)
        check_schema(schema, _schema(options), WHERE)
        return options


class PushdownEditLogSource(EditLogSource):
    """The format with pushed filters, for DataFrames that are used once; see `register`."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read that obeys filters on its ids. Raises ConfigurationError."""
        return PushdownEditLogReader(self._options(schema, stream=False))


def _schema(options: Options) -> StructType:
    return RAW_SCHEMA if options.own.raw else EDITS_SCHEMA


class EditLogReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._bounds: Mapping[str, Bounds] = EVERY_BOUND

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read; see `plan_query`."""
        options = self._options
        found = plan_query(client_of(options.client), options.own, self._bounds, options.words)
        return [EditPartition(slices, self._bounds["txid"]) for slices in found] or [EditPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        return read_partition(self._options, partition)


def read_partition(options: Options, partition: InputPartition) -> Iterator[Any]:
    """The rows of a partition, of a query or of a stream."""
    assert isinstance(partition, EditPartition)
    if not partition.slices:
        return iter(())
    return read_slices(client_of(options.client), options.own, partition.slices, partition.txids, options.words)


class PushdownEditLogReader(EditLogReader):
    """The same with filters on txid, ledger_id and entry_id."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Obey what is asked of the ids; of the entries only a range. The rest stays Spark's."""
        pushed = push(filters, tuple(EVERY_BOUND))
        if pushed.bounds["entry_id"].is_range:
            self._bounds = pushed.bounds
            return pushed.left
        pushed = push(filters, ("txid", "ledger_id"))
        self._bounds = {**EVERY_BOUND, **pushed.bounds}
        return pushed.left
