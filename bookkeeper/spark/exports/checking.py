"""Whether a directory is an export, and still the one that was exported: all of it, before anything is made of it.

manifest    there, of a version and kinds that are known
ledgers/    its lines are those that the manifest has the digest of, and add up to what it says; files/ likewise
entries/    the files that were exported, each as large as then, and no other
            entries, payload bytes and digest of each ledger as its line says
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.spark.exports.entry_digests import ledger_digests, lines_digest
from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import LEDGERS, Files, Manifest, Part, Status
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
        ledgers = ledgers_of(lines)
        check_sums(directory, LEDGERS, _sums_of(manifest.ledgers), _sums_of(part_of(ledgers, manifest.ledgers.digest)))
        check_files(spark, directory, manifest.files)
        entries = entries_of(spark, directory, any_files=manifest.files.count > 0)
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


def part_of(ledgers: DataFrame, digest: str) -> Part:
    """What a manifest says of ledgers: rows of `ledgers_of`, whose lines have this digest. Raises NotAnExport."""
    sums = ledgers.groupBy("status").agg(
        F.count("*").alias("ledgers"), F.sum("entries").alias("entries"), F.sum("bytes").alias("bytes")
    )
    rows = sums.collect()
    try:
        status = {Status(row.status): row.ledgers for row in rows}
    except ValueError as error:
        raise NotAnExport(f"a line of ledgers/ has a status that this release does not know: {error}") from error
    return Part(
        count=sum(row.ledgers for row in rows),
        digest=digest,
        entries=sum(row.entries or 0 for row in rows),
        size=sum(row["bytes"] or 0 for row in rows),
        status=status,
    )


def _sums_of(part: Part) -> Mapping[str, int]:
    status = {each.value: part.status.get(each, 0) for each in Status}
    return {**status, "entries": part.entries, "bytes": part.size}


def check_sums(directory: str, table: str, said: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raise NotAnExport where a manifest says other sums than its lines have: by these an import is judged.

    said, found: a number by its name, of the same names.
    """
    wrong = [f"{name} {said[name]:,} (the lines: {found[name]:,})" for name in said if said[name] != found[name]]
    if wrong:
        raise NotAnExport(
            f"{directory}/manifest has changed since the export: it says of {table} {', '.join(wrong)}. Take another "
            "copy of the export"
        )


def check_files(
    spark: SparkSession, directory: str, files: Files, table: str = ENTRIES, pattern: str = ENTRY_PATH
) -> None:
    """Raise NotAnExport where the files of a table are others, or of another size. As `file_lines`."""
    exported = files_of(lines_as_exported(spark, directory, FILES, files.count, files.digest))
    size = exported.agg(F.sum("bytes").alias("bytes")).collect()[0]["bytes"] or 0
    check_sums(directory, FILES, {"bytes": files.size}, {"bytes": size})
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
