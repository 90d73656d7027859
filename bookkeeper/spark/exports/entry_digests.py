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
        F.octet_length("value").cast("long").alias("size"),
        F.sha2("value", 256).alias("digest"),
    )
    found = numbered_digests(each, "ledger_id", range_entries).withColumnRenamed("count", "entries")
    return found.withColumnsRenamed({"first": "first_entry_id", "last": "last_entry_id"})


def numbered_digests(each: DataFrame, key: str, range_count: int = RANGE_ENTRIES) -> DataFrame:
    """Of rows key, number, size, digest: a row for each key. key; count; bytes; first, last: numbers; digest."""
    ranged = each.withColumn("range", F.expr(f"number div {range_count}"))
    ranges = ranged.groupBy(key, "range").agg(
        F.count("*").alias("count"),
        F.sum("size").alias("bytes"),
        F.min("number").alias("first"),
        F.max("number").alias("last"),
        _digest_of_numbered().alias("digest"),
    )
    return (
        ranges.withColumnRenamed("range", "number")
        .groupBy(key)
        .agg(
            F.sum("count").alias("count"),
            F.sum("bytes").alias("bytes"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
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
