"""The pipeline `space`: where the disk space of a cluster is, and what compaction would give back.

    table extents: metadata, and what is confirmed of open ledgers --> by owner: payload, and payload x copies
    table entry_logs, as bookies tell over HTTP  ------------------->  by bookie: what is live and what is garbage
                                                 '------------------>  by threshold: bytes given back, bytes copied

A ledger takes its payload times its write quorum, whatever its fragments: each entry has so many copies. Garbage are
records of ledgers that the bookie has not any more; what it has not noticed yet counts as live. What a threshold gives
follows the bookie's own rule: of closed logs which it does not leave alone, those with a live share below the threshold
are rewritten; a log without any ledger is removed without that.

Unknown is null, and left out of sums; how many were left out is beside each sum. Nothing here is of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.pipeline import cluster_table, kept, told_by_spark
from bookkeeper.spark.space.grouping import THRESHOLDS, GroupSums, grouping_called


class SpaceFailed(BookKeeperError):
    """The tables could not be read to their end; why is in the text."""


@dataclass(frozen=True, slots=True)
class Space:
    """What was found. Sums leave out what is unknown; they are null where nothing is known.

    ledgers     a row for each ledger: the table `extents`; entries, stored_bytes (payload of all copies), group_name
    groups      group_name (null: the metadata name none), is_readable (whether the metadata could be read), ledgers,
                open_ledgers, unknown_ledgers, entries, payload_bytes, stored_bytes; the greatest first
    logs        the table `entry_logs`, and garbage_bytes
    bookies     bookie, state, total_bytes, free_bytes, logs, log_bytes, record_bytes, live_bytes, garbage_bytes,
                dead_bytes (garbage in logs that need no rewriting), unknown_logs, problem
    thresholds  bookie, threshold, logs, reclaimed_bytes, copied_bytes: what rewriting its logs below this live share
                gives back, beyond dead_bytes, and what it copies; of bookies that told what is in their logs
    unknown_ledgers, unknown_bookies, unknown_logs: how many have no size; bookies: did not tell of their logs
    """

    by: str
    ledgers: DataFrame
    groups: DataFrame
    logs: DataFrame
    bookies: DataFrame
    thresholds: DataFrame
    unknown_ledgers: int
    unknown_bookies: int
    unknown_logs: int

    @property
    def is_complete(self) -> bool:
        """Everything could be asked."""
        return not (self.unknown_ledgers or self.unknown_bookies or self.unknown_logs)

    def group_sums(self) -> GroupSums:
        """All groups together, added up by Spark: there may be any number of them."""
        row = self.groups.agg(
            F.count("*"), F.count("stored_bytes"), F.sum("ledgers"), F.sum("payload_bytes"), F.sum("stored_bytes")
        ).first()
        assert row is not None
        return GroupSums(*(int(value or 0) for value in row))


def space(
    spark: SparkSession,
    uri: str,
    *,
    by: str = "owner",
    output: str | None = None,
    options: Mapping[str, object] | None = None,
    state: OutputState | None = None,
) -> Space:
    """Where the space of the cluster at `uri` is; everything is asked before this returns.

    by: one of grouping.GROUPINGS. output: a directory that must not be there or be empty, for ledgers, entry_logs and
    bookies as Parquet; any path that Spark can write to. options: keys of the client, minPartitions,
    maxLedgersPerPartition. state: moved on as `output` is written; for who interrupts this.
    Raises ConfigurationError, InvalidArgument for an `output` in which there is anything, SpaceFailed.
    """
    group = grouping_called(by)
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    try:
        if output is not None:
            check_new(spark, output.rstrip("/"))
        return _run(spark, by, group, output, given, state or OutputState())
    except PySparkException as error:
        raise SpaceFailed(told_by_spark(error)) from error


def _run(
    spark: SparkSession, by: str, group: str, output: str | None, given: Mapping[str, str], state: OutputState
) -> Space:
    below = (lambda name: None) if output is None else (lambda name: f"{output.rstrip('/')}/{name}")
    state.stage = Stage.BEGUN
    ledgers = kept(spark, _sized(cluster_table(spark, "extents", given), group), below("ledgers"))
    logs = cluster_table(spark, "entry_logs", given)
    logs = kept(spark, logs.withColumn("garbage_bytes", F.expr("record_bytes - live_bytes")), below("entry_logs"))
    room = kept(spark, cluster_table(spark, "bookies", given), below("bookies"))
    state.stage = Stage.COMPLETE
    bookies = _bookies(room, logs)
    unknown = ledgers.agg(F.expr("count_if(stored_bytes IS NULL)")).first()
    silent = bookies.agg(F.expr("count_if(logs IS NULL)"), F.sum("unknown_logs")).first()
    assert unknown is not None
    assert silent is not None
    return Space(
        by,
        ledgers,
        _groups(ledgers),
        logs,
        bookies.orderBy("bookie"),
        _thresholds(spark, logs),
        unknown_ledgers=int(unknown[0]),
        unknown_bookies=int(silent[0]),
        unknown_logs=int(silent[1] or 0),
    )


def _sized(ledgers: DataFrame, group: str) -> DataFrame:
    return ledgers.select(
        "*",
        F.expr("last_entry_id + 1").alias("entries"),
        F.expr("length * write_quorum").alias("stored_bytes"),
        F.expr(group).cast("string").alias("group_name"),
    )


def _groups(ledgers: DataFrame) -> DataFrame:
    return (
        ledgers.groupBy("group_name", F.expr("state IS NOT NULL").alias("is_readable"))
        .agg(
            F.count("*").alias("ledgers"),
            F.expr("count_if(state <> 'CLOSED')").alias("open_ledgers"),
            F.expr("count_if(stored_bytes IS NULL)").alias("unknown_ledgers"),
            F.sum("entries").alias("entries"),
            F.sum("length").alias("payload_bytes"),
            F.sum("stored_bytes").alias("stored_bytes"),
        )
        .orderBy(F.desc_nulls_last("stored_bytes"), F.asc_nulls_last("group_name"))
    )


_IS_THERE = "log_id IS NOT NULL"
_IS_DEAD = "NOT is_written AND problem IS NULL AND live_ledgers = 0"
_IS_WORTH = "NOT is_written AND problem IS NULL AND live_ledgers > 0 AND live_ratio < threshold"
"""As `bookkeeper.bookie.gc.candidates.worth_compacting` has it."""


def _bookies(room: DataFrame, logs: DataFrame) -> DataFrame:
    """A bookie without any log told so; one that did not tell has a row without a log in `entry_logs`."""
    sums = logs.groupBy(F.col("bookie").alias("of")).agg(
        F.expr(f"count_if({_IS_THERE})").alias("told"),
        F.sum("size_bytes").alias("log_bytes"),
        F.sum("record_bytes").alias("record_bytes"),
        F.sum("live_bytes").alias("live_bytes"),
        F.sum("garbage_bytes").alias("garbage_bytes"),
        F.expr(f"sum(if({_IS_DEAD}, garbage_bytes, 0L))").alias("dead_bytes"),
        F.expr(f"count_if({_IS_THERE} AND garbage_bytes IS NULL)").alias("unknown_logs"),
        F.expr("first(problem, true) FILTER (WHERE log_id IS NULL)").alias("silence"),
    )
    joined = room.withColumnRenamed("problem", "room_problem").join(sums, F.col("bookie") == F.col("of"), "full_outer")
    nothing = "of IS NULL"  # it was asked and has no log
    silent = "silence IS NOT NULL"

    def told(name: str) -> str:
        return f"CASE WHEN {silent} THEN NULL WHEN {nothing} THEN 0L ELSE {name} END AS {name}"

    return joined.selectExpr(
        "coalesce(bookie, of) AS bookie",
        *("state", "total_bytes", "free_bytes"),
        f"CASE WHEN {silent} THEN NULL WHEN {nothing} THEN 0L ELSE told END AS logs",
        *map(told, ("log_bytes", "record_bytes", "live_bytes", "garbage_bytes", "dead_bytes")),
        "coalesce(unknown_logs, 0L) AS unknown_logs",
        "nullif(concat_ws('; ', silence, if(silence = room_problem, NULL, room_problem)), '') AS problem",
    )


def _thresholds(spark: SparkSession, logs: DataFrame) -> DataFrame:
    wanted = spark.range(1, len(THRESHOLDS) + 1, 1, 1).select((F.col("id") / 10).alias("threshold"))
    known = logs.where(f"{_IS_THERE} AND garbage_bytes IS NOT NULL")
    return (
        known.crossJoin(F.broadcast(wanted))
        .groupBy("bookie", "threshold")
        .agg(
            F.expr(f"count_if({_IS_WORTH})").alias("logs"),
            F.expr(f"sum(if({_IS_WORTH}, garbage_bytes, 0L))").alias("reclaimed_bytes"),
            F.expr(f"sum(if({_IS_WORTH}, live_bytes, 0L))").alias("copied_bytes"),
        )
        .orderBy("bookie", "threshold")
    )
