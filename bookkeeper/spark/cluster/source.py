"""Data source `bookkeeper.cluster`: the cluster itself as tables.

    planner (one process)     which table, which share for which task: see `table`
    tasks (one each)          ask the metadata store (bookies, HTTP servers) and hand over Arrow batches

Each read is what the cluster says while it runs: a table is no snapshot, nor are two tables of one moment. What is
listed is another matter: Spark 4.3 keeps the partitions that it planned first for as long as a DataFrame or view lives.
It keeps those of a query with pushed filters as well, and reads the next query from them, or the other half of a union:
rows are missing then, and nobody is told. So no filter is taken here; Spark applies them to the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bookkeeper.spark.cluster.batches import batch_of, schema_of
from bookkeeper.spark.cluster.catalogue import WHERE, table_called
from bookkeeper.spark.cluster.table import ClusterOptions, ClusterTable
from bookkeeper.spark.columns import check_schema
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.process_client import client_of

BATCH_ROWS_MAX = 10_000
"""Rows of one Arrow batch."""


@dataclass
class ClusterPartition(InputPartition):
    """What one task reads."""

    share: object
    is_empty: bool = False
    """There is nothing to read: Spark wants one partition at least."""


class ClusterSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def schema(self) -> StructType:
        """Of the table that the option `table` names. Raises ConfigurationError."""
        return schema_of(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ConfigurationError."""
        return ClusterReader(*self._chosen(schema))

    def _table(self) -> ClusterTable:
        return table_called(self.options.get("table"))

    def _chosen(self, schema: StructType) -> tuple[ClusterTable, SourceOptions[ClusterOptions]]:
        table = self._table()
        check_schema(schema, schema_of(table), f"{self.name()}, table {table.name}")
        return table, read_options(table.options, self.options, where=self.name())


class ClusterReader(DataSourceReader):
    """One batch read."""

    def __init__(self, table: ClusterTable, options: SourceOptions[ClusterOptions]) -> None:
        self._table, self._options = table, options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read. Raises BookKeeperError."""
        client = client_of(self._options.client)
        shares = self._table.shares(client, self._options.own, Bounds())
        return [ClusterPartition(share) for share in shares] or [ClusterPartition(None, is_empty=True)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, ClusterPartition)
        if partition.is_empty:
            return
        for rows in self._table.rows(client_of(self._options.client), self._options.own, partition.share):
            for start in range(0, len(rows), BATCH_ROWS_MAX):
                yield batch_of(self._table, rows[start : start + BATCH_ROWS_MAX])
