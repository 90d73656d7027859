"""Data source `bookkeeper`: the entries of ledgers as rows, read from the bookies in parallel.

    planner (one process)     which ledgers there are, how far they are confirmed -> partitions
    tasks (one each)          open the ledgers of their slices without fencing, read ahead, hand over Arrow batches

Writing is `sink.sink`; its options are a table of its own.

What a query reads is fixed when it is planned: of an open ledger up to the last add confirmed then, whatever is
written meanwhile. A task reads exactly its slices, and may do so again. Its client reads each entry from another copy
where one is missing, damaged or late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from bookkeeper.spark.columns import LEDGER_SCHEMA, check_schema
from bookkeeper.spark.ledgers.extents import leave_out, plan_extents
from bookkeeper.spark.ledgers.options import WHERE, LedgerReadOptions
from bookkeeper.spark.ledgers.partition import LedgerPartition
from bookkeeper.spark.ledgers.plan import partitions_of
from bookkeeper.spark.ledgers.slices import read_slices
from bookkeeper.spark.ledgers.stream import LedgerStreamReader
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.filters import push
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.sink.options import read_sink_options
from bookkeeper.spark.sink.sink import LedgerBatchWriter, LedgerStreamWriter, check_rows

Options = SourceOptions[LedgerReadOptions]


class LedgerSource(DataSource):
    """The format for a session that does not push filters to Python data sources."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def schema(self) -> StructType:
        """Of every read. Raises ConfigurationError for its options: as early as `load()`."""
        read_options(LedgerReadOptions, self.options, where=WHERE)
        return LEDGER_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ConfigurationError."""
        return LedgerReader(self._options(schema, stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream. Raises ConfigurationError."""
        return LedgerStreamReader(self._options(schema, stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write. Raises ConfigurationError, InvalidArgument for rows that are no entries."""
        check_rows(schema, overwrite=overwrite)
        return LedgerBatchWriter(read_sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """One batch of a stream. Raises as `writer`."""
        check_rows(schema, overwrite=overwrite)
        return LedgerStreamWriter(read_sink_options(self.options, stream=True))

    def _options(self, schema: StructType, *, stream: bool) -> Options:
        check_schema(schema, LEDGER_SCHEMA, WHERE)
        found = read_options(LedgerReadOptions, self.options, where=WHERE)
        found.own.check_use(stream=stream)
        return found


class PushdownLedgerSource(LedgerSource):
    """The format for a session that pushes filters (spark.sql.python.filterPushdown.enabled)."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read that obeys filters on its ids. Raises ConfigurationError."""
        return PushdownLedgerReader(self._options(schema, stream=False))


class LedgerReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._bounds: Mapping[str, Bounds] = {"ledger_id": Bounds(), "entry_id": Bounds()}

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: ask the metadata store, and the bookies of open ledgers how far they are confirmed.

        Raises NoSuchLedger for one that was named and is not there (failOnDataLoss=false: a warning), MetadataError.
        """
        options, entry_ids = self._options.own, self._bounds["entry_id"]
        client = client_of(self._options.client)
        extents = plan_extents(
            client, options, self._bounds["ledger_id"], entry_ids, remedy=leave_out(self._options.words)
        )
        found = partitions_of(
            extents, partition_bytes_max=options.partition_bytes_max, partitions_min=options.partitions_min
        )
        inside = Bounds() if entry_ids.is_range else entry_ids
        return [LedgerPartition(slices, inside) for slices in found] or [LedgerPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, LedgerPartition)
        if not partition.slices:
            return iter(())
        options = self._options
        return read_slices(client_of(options.client), options.own, partition.slices, partition.entry_ids, options.words)


class PushdownLedgerReader(LedgerReader):
    """The same with filters on ledger_id and entry_id."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Obey what is asked of the ids; the rest stays Spark's."""
        pushed = push(filters, ("ledger_id", "entry_id"))
        self._bounds = pushed.bounds
        return pushed.left
