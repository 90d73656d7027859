"""Findings about ledgers as a whole, of the rows of an audit and of its plan.

length    every entry has a good copy, and they do not add up to the length that the metadata say
no_data   no entry has a good copy anywhere, and none is unknown: metadata without data
unknown   nobody could say how far the ledger reaches, so it was not audited
orphan    a bookie has a ledger that the cluster does not have: left to be collected (`orphans`)
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bookkeeper.config import ClientSettings
from bookkeeper.spark.audit.judgement import DETAIL_MAX, FindingKind
from bookkeeper.spark.audit.metadata_now import metadata_now
from bookkeeper.spark.audit.orphans import WAITS
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA, CHUNK

LENGTH, NO_DATA, ORPHAN = "length", "no_data", "orphan"

_OF_THE_AUDIT = frozenset({"ledgers", "bytespersecond", "minpartitions", "maxpartitionbytes"})


def of_the_client(given: Mapping[str, str]) -> dict[str, str]:
    """Without the words of the audit."""
    return {name: value for name, value in given.items() if name.lower() not in _OF_THE_AUDIT}


def whole_ledgers(rows: DataFrame, plan: DataFrame, settings: ClientSettings) -> DataFrame:
    """Findings `length` and `no_data`. rows: of the audit; plan: the pieces of its `work_directory`.

    What is found is compared with what the metadata say now: a ledger that was deleted meanwhile has neither.
    """
    closed = plan.where("length IS NOT NULL").groupBy("ledger_id").agg(F.max("length").alias("planned"))
    is_chunk = f"kind = '{CHUNK}'"
    sums = rows.groupBy("ledger_id").agg(
        F.expr(f"sum(if({is_chunk}, bytes, 0L))").alias("sum"),
        F.expr(f"sum(if({is_chunk}, entries, 0L))").alias("count"),
        F.expr(f"count_if({is_chunk} AND bytes IS NULL)").alias("unknown"),
        F.expr("sum(if(kind = 'lost', last_entry_id - first_entry_id + 1, 0L))").alias("lost"),
    )
    wrong = sums.join(closed, "ledger_id", "left").where("lost = count OR (unknown = 0 AND sum <> planned)")
    found = wrong.join(metadata_now(wrong, settings), "ledger_id").where(
        "lost = count OR (count = last_entry_id + 1 AND sum <> length)"
    )
    has_none, count = F.expr("lost = count"), F.col("count")
    return _findings(
        found,
        F.when(has_none, NO_DATA).otherwise(LENGTH),
        last_entry_id=count - 1,
        good_copies=F.when(has_none, 0),
        detail=F.when(has_none, F.format_string("no bookie has a good copy of any of its %d entries", count)).otherwise(
            F.format_string("the metadata say %d bytes, its entries have %d", F.col("length"), F.col("sum"))
        ),
        entries=count,
    )


def unknown_rows(unknown: DataFrame) -> DataFrame:
    """Findings about ledgers that were not audited. unknown: ledger_id, detail."""
    detail = F.substring("detail", 1, DETAIL_MAX)
    return _findings(unknown, F.lit(FindingKind.UNKNOWN.value), last_entry_id=F.lit(-1), detail=detail)


def orphan_rows(found: DataFrame, sizes: DataFrame | None) -> DataFrame:
    """Findings `orphan`. found: bookie, ledger_id. sizes: these, entries and bytes, where they are known."""
    columns: dict[str, Column] = {"last_entry_id": F.lit(-1), "bookie": F.col("bookie"), "detail": F.lit(WAITS)}
    if sizes is not None:
        found = found.join(sizes, ["bookie", "ledger_id"], "left")
        columns |= {"entries": F.col("entries"), "bytes": F.col("bytes")}
    return _findings(found, F.lit(ORPHAN), **columns)


def _findings(found: DataFrame, kind: Column, **columns: Column) -> DataFrame:
    """Rows of an audit; what is not given is null."""
    columns |= {"ledger_id": F.col("ledger_id"), "kind": kind, "first_entry_id": F.lit(0)}
    return found.select(
        *(columns.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in AUDIT_SCHEMA.fields)
    )
