"""Findings about ledgers as a whole, of the rows of an audit and the cluster's tables.

length    every entry has a good copy, and they do not add up to the length that the metadata say
no_data   no entry has a good copy anywhere, and none is unknown: metadata without data
orphan    a bookie that was read in place holds a ledger that the cluster does not have: left to be collected
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA, CHUNK
from bookkeeper.spark.audit.stored_evidence import HELD, OTHER
from bookkeeper.spark.id_ranges import IdRanges
from bookkeeper.spark.ledger_extents import chosen_ledgers
from bookkeeper.spark.ledger_options import LedgerChoice, LedgerReadOptions
from bookkeeper.spark.pipeline import cluster_table

LENGTH, NO_DATA, ORPHAN = "length", "no_data", "orphan"

_OF_THE_AUDIT = frozenset({"ledgers", "bytespersecond", "minpartitions", "maxpartitionbytes"})


def whole_ledgers(rows: DataFrame, spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """Findings `length` and `no_data`. given: options of the audit."""
    return _lengths(rows, spark, given).unionByName(_no_data(rows))


def _lengths(rows: DataFrame, spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    shared = {name: value for name, value in given.items() if name.lower() not in _OF_THE_AUDIT}
    ledgers = cluster_table(spark, "ledgers", shared)
    closed = ledgers.where("state = 'CLOSED'").select("ledger_id", "length", "last_entry_id")
    sums = (
        rows.where(F.col("kind") == CHUNK)
        .groupBy("ledger_id")
        .agg(F.sum("bytes").alias("sum"), F.sum("entries").alias("count"), F.count("*").alias("chunks"),
             F.count("bytes").alias("known"))
    )  # fmt: skip
    wrong = sums.join(closed, "ledger_id").where("chunks = known AND count = last_entry_id + 1 AND sum <> length")
    detail = F.format_string("the metadata say %d bytes, its entries have %d", F.col("length"), F.col("sum"))
    last = F.col("last_entry_id")
    return _findings(wrong, LENGTH, last_entry_id=last, detail=detail, entries=last + 1)


def _no_data(rows: DataFrame) -> DataFrame:
    audited = rows.where(F.col("kind") == CHUNK).groupBy("ledger_id").agg(F.sum("entries").alias("all"))
    lost = (
        rows.where("kind = 'lost'")
        .groupBy("ledger_id")
        .agg(F.sum(F.col("last_entry_id") - F.col("first_entry_id") + 1).alias("lost"))
    )
    empty = audited.join(lost, "ledger_id").where("lost = all")
    detail = F.format_string("no bookie has a good copy of any of its %d entries", F.col("all"))
    count = F.col("all")
    return _findings(empty, NO_DATA, last_entry_id=count - 1, good_copies=F.lit(0), detail=detail, entries=count)


def orphans(in_place: DataFrame, spark: SparkSession, client: BlockingBookKeeper) -> DataFrame:
    """Findings `orphan`. The cluster is asked for its ledgers now: after its bookies were, and after a sync (I-19)."""
    client.run(lambda ledgers: ledgers.store.sync())
    there = IdRanges.of(chosen_ledgers(client, LedgerReadOptions(ledgers=LedgerChoice(None)))).ranges
    ids = spark.createDataFrame(list(there), "low LONG, high LONG")
    known = ids.select(F.explode(F.sequence("low", "high")).alias("ledger_id"))
    held = in_place.where(F.col("kind") == HELD).select("ledger_id", "bookie").distinct()
    sizes = (
        in_place.where(F.col("kind") == OTHER)
        .groupBy("ledger_id", "bookie")
        .agg(F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes"))
    )
    found = held.join(known, "ledger_id", "left_anti").join(sizes, ["ledger_id", "bookie"], "left")
    return _findings(
        found, ORPHAN, last_entry_id=F.lit(-1), bookie=F.col("bookie"), entries=F.col("entries"), bytes=F.col("bytes"),
        detail=F.lit("the cluster has no such ledger; the bookie's garbage collection deletes it when it runs"),
    )  # fmt: skip


def _findings(found: DataFrame, kind: str, **columns: Any) -> DataFrame:
    """Rows of an audit; what is not given is null."""
    columns |= {"ledger_id": F.col("ledger_id"), "kind": F.lit(kind), "first_entry_id": F.lit(0)}
    return found.select(
        *(columns.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in AUDIT_SCHEMA.fields)
    )
