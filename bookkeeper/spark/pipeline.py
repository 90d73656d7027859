"""What the pipelines share: tables of a cluster with their options, rows that are computed once, what an error says."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.config import keys_of
from bookkeeper.spark.cluster.catalogue import WHERE, table_called
from bookkeeper.spark.cluster.source import ClusterSource
from bookkeeper.spark.cluster.table import ManyOptions


def cluster_table(spark: SparkSession, name: str, given: Mapping[str, str]) -> DataFrame:
    """A table of the format bookkeeper.cluster. given: options for all tables of a pipeline.

    Left out of them is how ledgers are shared out to tasks, for a table that has none of it.
    """
    spark.dataSource.register(ClusterSource)
    foreign = {word.lower() for word in set(keys_of(ManyOptions)) - set(keys_of(table_called(name).options))}
    mine = {word: text for word, text in given.items() if word.lower() not in foreign}
    return spark.read.format(WHERE).options(**{**mine, "table": name}).load()


def kept(spark: SparkSession, rows: DataFrame, directory: str | None) -> DataFrame:
    """The rows, computed once: as Parquet in a directory that must not exist, or in Spark's cache (None)."""
    if directory is None:
        return rows.cache()
    rows.write.mode("error").parquet(directory)
    return spark.read.schema(rows.schema).parquet(directory)


def told_by_spark(error: PySparkException) -> str:
    """Our error out of Spark's: the lines that name one, each once; else all of it."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith(("bookkeeper.errors.", "bookkeeper.spark.", "option "))]
    return "; ".join(dict.fromkeys(line.removeprefix("bookkeeper.errors.") for line in ours)) or str(error)
