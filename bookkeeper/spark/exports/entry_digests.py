"""Digests of entries by SQL, spread over the cluster; `exports.digests` says what they are, and is the plain twin.

A payload is digested where it is read; between tasks go ids and digests only.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bookkeeper.spark.exports.digests import RANGE_ENTRIES, digest_of_lines


def ledger_digests(entries: DataFrame, range_entries: int = RANGE_ENTRIES) -> DataFrame:
    """Of rows ledger_id, entry_id, value: a row for each ledger that has any.

    ledger_id; entries: how many; bytes: of payload; first_entry_id, last_entry_id; digest.
    """
    each = entries.select(
        "ledger_id",
        F.col("entry_id").alias("number"),
        F.expr(f"entry_id div {range_entries}").alias("range"),
        F.octet_length("value").cast("long").alias("size"),
        F.sha2("value", 256).alias("digest"),
    )
    ranges = each.groupBy("ledger_id", "range").agg(
        F.count("*").alias("entries"),
        F.sum("size").alias("bytes"),
        F.min("number").alias("first_entry_id"),
        F.max("number").alias("last_entry_id"),
        _digest_of_numbered().alias("digest"),
    )
    return (
        ranges.withColumnRenamed("range", "number")
        .groupBy("ledger_id")
        .agg(
            F.sum("entries").alias("entries"),
            F.sum("bytes").alias("bytes"),
            F.min("first_entry_id").alias("first_entry_id"),
            F.max("last_entry_id").alias("last_entry_id"),
            _digest_of_numbered().alias("digest"),
        )
    )


def _digest_of_numbered() -> Column:
    """Of columns number and digest of a group."""
    found = F.array_sort(F.collect_list(F.struct("number", "digest")))
    lines = F.transform(
        found, lambda each: F.concat(each["number"].cast("string"), F.lit(" "), each["digest"], F.lit("\n"))
    )
    return F.sha2(F.array_join(lines, "").cast("binary"), 256)


def lines_digest(lines: DataFrame) -> str:
    """Of the set of texts in the only column. The driver keeps none of them."""
    [name] = lines.columns
    digests = lines.select(F.sha2(F.col(name).cast("binary"), 256).alias("digest")).orderBy("digest")
    return digest_of_lines(row.digest for row in digests.toLocalIterator())
