"""How far subscriptions are behind, and how large topics are: asked anew for each micro-batch, of records and bookies.

No hub is asked. What is null could not be found out; `problem` says why. A subscription is behind by at most as much as
its hub has not stored yet of what was consumed (`consume_interval`).

The rows are those of the tables `subscriptions` and `topics` (hedwig.spark.region_tables). They are asked for by tasks
directly: a data source would be planned anew for each micro-batch, in processes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.spark.arrow_map import ArrowMap, map_in_arrow
from bookkeeper.spark.cluster.batches import batch_of, schema_of
from bookkeeper.spark.cluster.catalogue import WHERE
from bookkeeper.spark.cluster.table import ClusterTable
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.process_client import client_of
from hedwig.spark.region_tables import SUBSCRIPTIONS, TOPICS, TopicOptions
from hedwig.spark.topic_options import topic_of
from hedwig.spark.topics.naming import words_of


def lags(spark: SparkSession, given: Mapping[str, str], topics: Sequence[str], at_ms: int) -> DataFrame:
    """A row for each subscription of the topics."""
    return _asked(spark, SUBSCRIPTIONS, given, topics).select(
        "topic",
        "subscriber",
        F.timestamp_millis(F.lit(at_ms)).alias("at"),
        F.col("consumed_id").alias("consumed_seq"),
        F.col("last_id").alias("last_seq"),
        F.col("backlog").alias("messages_behind"),
        "owner",
        "problem",
    )


def sizes(spark: SparkSession, given: Mapping[str, str], topics: Sequence[str], at_ms: int) -> DataFrame:
    """A row for each topic."""
    return _asked(spark, TOPICS, given, topics).select(
        "topic",
        F.timestamp_millis(F.lit(at_ms)).alias("at"),
        "messages",
        (F.col("ended_bytes") + F.col("open_bytes")).alias("bytes"),
        "ledgers",
        F.col("first_id").alias("first_seq"),
        F.col("last_id").alias("last_seq"),
        "subscriptions",
        "owner",
        "problem",
    )


def _asked(spark: SparkSession, table: ClusterTable, given: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """The rows of a table about these topics, so many of them a task as the table's own planner gives it."""
    options = read_options(TopicOptions, words_of(given, TopicOptions), where=WHERE)
    tasks = -(-len(topics) // options.own.topics_max)
    names = spark.createDataFrame([(name,) for name in topics], "topic STRING").repartition(tasks)
    return map_in_arrow(names, _asking(table, options), schema_of(table))


def _asking(table: ClusterTable, options: SourceOptions[TopicOptions]) -> ArrowMap:
    """For `map_in_arrow` on names of topics: rows of the table."""

    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            share = [topic_of(name) for name in batch.column("topic").to_pylist()]
            for rows in table.rows(client_of(options.client), options.own, share):
                if rows:
                    yield batch_of(table, rows)

    return ask
