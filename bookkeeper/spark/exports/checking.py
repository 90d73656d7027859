"""Whether a directory is an export, and still the one that was exported: all of it, before anything is made of it.

manifest    there, of a version and kinds that are known
ledgers/    its lines are those that the manifest has the digest of; files/ likewise
entries/    the files that were exported, each as large as then, and no other
            entries, payload bytes and digest of each ledger as its line says
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.spark.exports.entry_digests import ledger_digests, lines_digest
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import LEDGERS, Files, Manifest
from bookkeeper.spark.exports.stored import (
    ENTRIES,
    ENTRY_PATH,
    FILES,
    entries_of,
    file_lines,
    files_of,
    ledgers_of,
    lines_of,
    read_manifest,
)
from bookkeeper.spark.pipeline import told_by_spark

TOLD_MAX = 10
"""Files or ledgers named in an error."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An export. ledgers: rows of `ledgers_of`; entries: rows of ENTRY_SCHEMA."""

    directory: str
    manifest: Manifest
    ledgers: DataFrame
    entries: DataFrame


def checked(spark: SparkSession, directory: str) -> Checked:
    """The export in a directory; reads all of it. Raises NotAnExport, which names what is missing or another."""
    try:
        manifest = read_manifest(spark, directory)
        lines = lines_as_exported(spark, directory, LEDGERS, manifest.ledgers.count, manifest.ledgers.digest)
        check_files(spark, directory, manifest.files)
        entries = entries_of(spark, directory, any_files=manifest.files.count > 0)
        ledgers = ledgers_of(lines)
        _check_entries(directory, manifest, ledgers, entries)
    except PySparkException as error:
        raise NotAnExport(f"{directory} cannot be read as what was exported: {told_by_spark(error)}") from error
    return Checked(directory, manifest, ledgers, entries)


def lines_as_exported(spark: SparkSession, directory: str, table: str, count: int, digest: str) -> DataFrame:
    """The lines of a table. Raises NotAnExport where they are others than the manifest says."""
    lines = lines_of(spark, directory, table)
    found = lines.count()
    if found != count or lines_digest(lines) != digest:
        raise NotAnExport(
            f"{directory}/{table} has changed since the export: {found:,} lines (exported: {count:,}) that do not have "
            "the digest that the manifest says"
        )
    return lines


def check_files(
    spark: SparkSession, directory: str, files: Files, table: str = ENTRIES, pattern: str = ENTRY_PATH
) -> None:
    """Raise NotAnExport where the files of a table are others, or of another size. As `file_lines`."""
    exported = files_of(lines_as_exported(spark, directory, FILES, files.count, files.digest))
    if not files.count:
        return
    there = files_of(file_lines(spark, directory, table, pattern)).withColumnRenamed("bytes", "there")
    wrong = exported.join(there, "path", "full").where("there IS NULL OR bytes IS NULL OR there <> bytes")
    refuse_changed(
        directory,
        wrong.select(
            F.col("path").alias("name"),
            F.expr(
                "CASE WHEN there IS NULL THEN 'is missing' WHEN bytes IS NULL THEN 'is not of the export' "
                "ELSE format_string('has %d bytes, exported were %d', there, bytes) END"
            ).alias("why"),
        ),
    )


def _check_entries(directory: str, manifest: Manifest, ledgers: DataFrame, entries: DataFrame) -> None:
    found = ledger_digests(entries, manifest.range_entries).select(
        "ledger_id", F.struct("entries", "bytes", "digest").alias("found")
    )
    said = ledgers.where("entries > 0").select("ledger_id", F.struct("entries", "bytes", "digest").alias("said"))
    wrong = said.join(found, "ledger_id", "full").where("found IS NULL OR said IS NULL OR found <> said")
    refuse_changed(
        directory,
        wrong.select(
            F.format_string("ledger %d", "ledger_id").alias("name"),
            F.expr(
                "format_string('%d entries, %d bytes, exported were %d and %d%s', "
                "coalesce(found.entries, 0), coalesce(found.bytes, 0), coalesce(said.entries, 0), "
                "coalesce(said.bytes, 0), if(found.digest = said.digest, '', '; the digest is another'))"
            ).alias("why"),
        ),
    )


def refuse_changed(directory: str, wrong: DataFrame) -> None:
    """Raise NotAnExport where there are rows (name, why), naming some."""
    some = wrong.orderBy("name").limit(TOLD_MAX + 1).collect()
    if some:
        named = "; ".join(f"{row.name} {row.why}" for row in some[:TOLD_MAX])
        raise NotAnExport(
            f"{directory} has changed since the export: {named}{'; and more' if len(some) > TOLD_MAX else ''}. "
            "Take another copy of the export"
        )
