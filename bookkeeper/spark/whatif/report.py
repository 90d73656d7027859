"""The pipeline `whatif`: what happens when bookies or racks are lost, bookies are added, or quorums are changed.

    each task: the metadata of its ledgers,        --> by ledger: entries at risk, bytes to move
    and what is confirmed of those that are open   --> by bookie: before and after

From the metadata alone, and from what bookies confirm of open ledgers: nothing is changed, and no copy is looked at. An
estimate: entries have the mean size of their ledger, bytes are payload. Who takes copies is chosen by the rules of the
client, with dice; see `effects`.

    loss        each lost copy is made anew on another bookie, as auto-recovery does: read once, written for each
    addition    moves nothing by itself: BookKeeper never moves what is complete. New bookies take their share of what
                is made anew; `levelling_bytes` would have to move for all to hold the same: a proportional model
    quorums     those of a ledger never change: the bytes to write every ledger anew that has others (another ensemble
                size, write quorum or ack quorum)

Copies on bookies that are not registered are not lost: they are unknown, and only a bookie that is named is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from twisted.internet.defer import succeed

from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId
from bookkeeper.spark.cluster.bookies import LOST, WRITABLE
from bookkeeper.spark.cluster.table import ManyOptions
from bookkeeper.spark.options.tables import read_options
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.pipeline import cluster_table, kept, told_by_spark
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.whatif.effects import COUNTS, LOADS
from bookkeeper.spark.whatif.question import Question
from bookkeeper.spark.whatif.situation import (
    KnownBookie,
    Situation,
    levelling_bytes,
    situation_of,
    situation_text,
)
from bookkeeper.spark.whatif.source import BOOKIE, LEDGER, SEEN, UNKNOWN, WHERE, WhatIfSource


class WhatIfFailed(BookKeeperError):
    """The tables could not be read to their end; why is in the text."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all ledgers. Entries and copies; *_ledgers: how many have such entries; bytes of payload.

    unplaced_copies: whoever should take them is not there. below_ack_quorum: with no_copy among them.
    """

    affected: int
    no_copy: int
    one_copy: int
    below_ack_quorum: int
    no_readable_copy: int
    lost_copies: int
    unplaced_copies: int
    written_copies: int
    read_bytes: int
    written_bytes: int
    affected_ledgers: int
    no_copy_ledgers: int
    one_copy_ledgers: int
    below_ack_quorum_ledgers: int
    no_readable_copy_ledgers: int
    impossible_ledgers: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer.

    ledgers     a row for each ledger that is affected: ledger_id, the counts of `effects.LedgerEffect`, impossible
                (why what should be done with it cannot be; null: it can)
    unknown     ledger_id, problem: ledgers of which nothing can be said; in no sum
    bookies     bookie, state (writable, read-only, lost, added; null: named by ledgers alone), rack, then of
                `effects.BookieLoad` the copies and bytes before, gone, received, given; after_copies, after_bytes;
                free_bytes (before), is_lost, fits (received within free_bytes; null: not known)
    takers      how many bookies are writable afterwards
    too_wide    ensemble size -> ledgers with such: none like them can be created, nor change its ensemble, any more
    levelling_bytes   what would have to move afterwards for all that are in service to hold the same; see the module
    """

    question: Question
    ledgers: DataFrame
    unknown: DataFrame
    bookies: DataFrame
    totals: Totals
    all_ledgers: int
    unknown_ledgers: int
    takers: int
    too_wide: Mapping[int, int]
    levelling_bytes: int

    def hours(self, bytes_per_s: int) -> float:
        """How long writing takes at this rate of the whole cluster."""
        return self.totals.written_bytes / bytes_per_s / 3600


def whatif(
    spark: SparkSession,
    uri: str,
    question: Question,
    *,
    output: str | None = None,
    options: Mapping[str, object] | None = None,
    state: OutputState | None = None,
) -> WhatIf:
    """Answer the question for the cluster at `uri`; everything is asked before this returns.

    output: a directory that must not be there or be empty, for the rows of ledgers and bookies as Parquet (`effects`);
    any path that Spark can write to. options: keys of the client, minPartitions, maxLedgersPerPartition;
    networkTopology or networkTopologyFile are looked at here, by the driver alone. state: moved on as `output` is
    written; for who interrupts this.
    Raises ConfigurationError, InvalidArgument for an `output` in which there is anything, WhatIfFailed.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    settings = read_options(ManyOptions, given, where=WHERE).client
    of_racks = {"networktopology", "networktopologyfile"}
    for_tasks = {name: value for name, value in given.items() if name.lower() not in of_racks}
    try:
        if output is not None:
            check_new(spark, output.rstrip("/"))
        return _run(spark, question, settings, output, for_tasks, state or OutputState())
    except PySparkException as error:
        raise WhatIfFailed(told_by_spark(error)) from error


def _run(
    spark: SparkSession,
    question: Question,
    settings: ClientSettings,
    output: str | None,
    given: Mapping[str, str],
    state: OutputState,
) -> WhatIf:
    room = cluster_table(spark, "bookies", given).select("bookie", "state", "free_bytes").cache()
    situation = _situation(question, settings, room)
    spark.dataSource.register(WhatIfSource)
    effects = spark.read.format(WHERE).options(**given, situation=situation_text(situation)).load()
    state.stage = Stage.BEGUN
    rows = kept(spark, effects, None if output is None else f"{output.rstrip('/')}/effects")
    state.stage = Stage.COMPLETE
    by_ledger = _by_ledger(rows)
    unknown = rows.where(F.col("kind") == UNKNOWN).groupBy("ledger_id").agg(F.first("problem").alias("problem"))
    bookies = _by_bookie(spark, rows, room, situation)
    seen = rows.where(F.col("kind") == SEEN).groupBy("ensemble_size").agg(F.sum("ledgers").alias("ledgers")).collect()
    sizes = {row.ensemble_size: int(row.ledgers) for row in seen}
    loads = bookies.where("NOT is_lost AND state IN ('writable', 'read-only', 'added')").select("after_bytes").collect()
    return WhatIf(
        question,
        ledgers=by_ledger,
        unknown=unknown,
        bookies=bookies,
        totals=_totals(by_ledger),
        all_ledgers=sum(sizes.values()),
        unknown_ledgers=unknown.count(),
        takers=len(situation.takers),
        too_wide={size: count for size, count in sizes.items() if size is not None and size > len(situation.takers)},
        levelling_bytes=levelling_bytes([int(row.after_bytes) for row in loads]),
    )


def _situation(question: Question, settings: ClientSettings, room: DataFrame) -> Situation:
    """What is asked, with the bookies and racks of the cluster. On the driver: a row for each bookie."""
    found = room.collect()

    def racks(ledgers: LedgerClient) -> Mapping[str, str]:
        return {row.bookie: ledgers.context.rack_of(BookieId(row.bookie)) for row in found}

    rack_of = client_of(settings).run(lambda ledgers: succeed(racks(ledgers)))
    known = [
        KnownBookie(BookieId(row.bookie), rack_of[row.bookie], row.state != LOST, row.state == WRITABLE, row.free_bytes)
        for row in found
    ]
    return situation_of(
        question,
        known,
        racks_min=settings.racks_per_write_quorum_min if settings.enforce_racks_per_write_quorum else 0,
        weight_multiple_max=settings.disk_weight_multiple_max if settings.disk_weights else None,
    )


# --- sums


def _by_ledger(rows: DataFrame) -> DataFrame:
    return (
        rows.where(F.col("kind") == LEDGER)
        .groupBy("ledger_id")
        .agg(*(F.sum(name).alias(name) for name in COUNTS), F.first("problem", ignorenulls=True).alias("impossible"))
    )


def _totals(ledgers: DataFrame) -> Totals:
    at_risk = ("affected", "no_copy", "one_copy", "below_ack_quorum", "no_readable_copy")
    row = ledgers.agg(
        *(F.sum(name).alias(name) for name in COUNTS),
        *(F.expr(f"count_if({name} > 0)").alias(f"{name}_ledgers") for name in at_risk),
        F.expr("count_if(impossible IS NOT NULL)").alias("impossible_ledgers"),
    ).first()
    assert row is not None
    return Totals(**{name: int(value or 0) for name, value in row.asDict().items()})


def _by_bookie(spark: SparkSession, rows: DataFrame, room: DataFrame, situation: Situation) -> DataFrame:
    """Bookies of the cluster, those that are added, and those that ledgers alone name."""
    loads = (
        rows.where(F.col("kind") == BOOKIE)
        .groupBy("bookie")
        .agg(*(F.sum(name).alias(name) for name in LOADS))
        .withColumnRenamed("bookie", "of")
    )
    there = room
    if situation.added:
        new = [(bookie_id, "added", None) for bookie_id in situation.added]
        there = room.unionByName(spark.createDataFrame(new, room.schema))
    racks = spark.createDataFrame(
        [(bookie_id, rack, bookie_id in situation.lost) for bookie_id, rack in situation.racks.items()],
        "named string, rack string, lost boolean",
    )
    return (
        there.join(loads, F.col("bookie") == F.col("of"), "full_outer")
        .withColumn("bookie", F.coalesce("bookie", "of"))
        .join(F.broadcast(racks), F.col("bookie") == F.col("named"), "left")
        .select(
            *("bookie", "state", "rack"),
            *(F.coalesce(name, F.lit(0)).alias(name) for name in LOADS),
            "free_bytes",
            F.coalesce("lost", F.lit(False)).alias("is_lost"),
        )
        .withColumn("after_copies", F.expr("before_copies - gone_copies + received_copies"))
        .withColumn("after_bytes", F.expr("before_bytes - gone_bytes + received_bytes"))
        .withColumn("fits", F.expr("received_bytes <= free_bytes"))
        .orderBy("bookie")
    )
