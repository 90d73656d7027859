"""What the pipelines share: tables of a cluster with their options, rows that are computed once, what an error says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.config import keys_of
from bookkeeper.spark.cluster.catalogue import WHERE, table_called
from bookkeeper.spark.cluster.source import ClusterSource
from bookkeeper.spark.cluster.table import ManyOptions

_OURS = re.compile(r"bookkeeper\.(errors|spark)\.|journalmgr\.|hedwig\.|option |--[a-z]|-D ")
"""How a line begins that tells an error of ours: the class's module, or a fault of usage as `said_as.Words` says it."""

_STACK = ("at ", "JVM stacktrace", "Driver stacktrace", "Caused by: ", "Traceback (most recent call last)")
"""How a line begins from which on there are only stacks."""

_ERRORS = re.compile(r"^(bookkeeper|journalmgr|hedwig)(\.\w+)*?\.errors\.")


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


def day_of(time: Column) -> Column:
    """The date in UTC of a timestamp, whatever the time zone of the session."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86400).cast("int"))


SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What calls of Spark raise: its own errors, and those of its JVM that it has no class for."""


def told_by_spark(error: Exception) -> str:
    """Our error out of Spark's: the lines that name one, each once; else Spark's, without the stack of its JVM.

    Of a directory that is there already what to do: Spark tells how to overwrite it, which nothing here does.
    """
    if isinstance(error, PySparkException) and error.getCondition() == "PATH_ALREADY_EXISTS":
        there = (error.getMessageParameters() or {}).get("outputPath", "the directory")
        return f"{there.removeprefix('file:')} already exists: name a directory that does not, or remove it"
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    ours = [line for line in lines if _OURS.match(line)]
    if not ours:
        cut = next((at for at, line in enumerate(lines) if line.startswith(_STACK)), len(lines))
        ours = [line for line in lines[:cut] if line]
    return "; ".join(dict.fromkeys(_ERRORS.sub("", line) for line in ours)) or type(error).__name__
