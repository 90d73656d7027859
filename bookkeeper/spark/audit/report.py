"""An audit from beginning to end: run, kept as a table, counted.

The rows of `bookkeeper.audit` are written as Parquet where a directory is given, else cached; then ledgers as a whole
are looked at: of a closed one whose entries all have good copies the payloads must add up to the length that its
metadata say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.audit.source import CHUNK
from bookkeeper.spark.pipeline import cluster_table, kept, told_by_spark

LENGTH = "length"
"""The kind of a finding about a whole ledger: its entries do not add up to the length that the metadata say."""


class AuditFailed(BookKeeperError):
    """The audit did not come to its end; why is in the text."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was audited and found. rows: those of `bookkeeper.audit`, and one of kind `length` for each such ledger."""

    rows: DataFrame
    ledgers: int
    entries: int
    copies: int
    found: Mapping[str, int]
    """Findings by kind."""

    @property
    def findings(self) -> DataFrame:
        """The rows that are findings."""
        return self.rows.where(F.col("kind") != CHUNK)

    @property
    def is_clean(self) -> bool:
        """Every copy is good."""
        return not self.found

    @property
    def only_unknown(self) -> bool:
        """Nothing is wrong as far as could be asked, but some could not."""
        return set(self.found) == {"unknown"}


def audit(
    spark: SparkSession, uri: str, *, output: str | None = None, options: Mapping[str, object] | None = None
) -> Audit:
    """Audit the cluster at `uri`; every task of it runs before this returns.

    output: a directory that must not exist, for the rows as Parquet, any path that Spark can write to. options: of the
    format, such as ledgers and bytesPerSecond, and keys of the client.
    Raises AuditFailed.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    try:
        return _run(spark, output, given)
    except PySparkException as error:
        raise AuditFailed(told_by_spark(error)) from error


def _run(spark: SparkSession, output: str | None, given: Mapping[str, str]) -> Audit:
    rows = spark.read.format("bookkeeper.audit").options(**given).load()
    rows = kept(spark, rows, output)
    rows = rows.unionByName(_lengths(spark, rows, given))
    found = {row.kind: row["count"] for row in rows.where(F.col("kind") != CHUNK).groupBy("kind").count().collect()}
    chunks = rows.where(F.col("kind") == CHUNK)
    total = chunks.agg(F.countDistinct("ledger_id"), F.sum("entries"), F.sum("copies")).first()
    assert total is not None
    return Audit(rows, int(total[0]), int(total[1] or 0), int(total[2] or 0), found)


def _lengths(spark: SparkSession, rows: DataFrame, given: Mapping[str, str]) -> DataFrame:
    """Findings about whole ledgers, in the columns of the others."""
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
    columns: dict[str, Any] = {
        "ledger_id": F.col("ledger_id"),
        "kind": F.lit(LENGTH),
        "first_entry_id": F.lit(0).cast("long"),
        "last_entry_id": F.col("last_entry_id"),
        "detail": detail,
    }
    null = {each.name: F.lit(None).cast(each.dataType) for each in rows.schema.fields}
    return wrong.select(*[(columns.get(name, null[name])).alias(name) for name in null])


_OF_THE_AUDIT = frozenset({"ledgers", "bytespersecond", "minpartitions", "maxpartitionbytes"})
