"""The tables of an export's directory, read and written by Spark: any path that it can use. `manifest` draws them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from bookkeeper.spark.exports.lines import NotAnExport
from bookkeeper.spark.exports.manifest import Manifest, format_manifest, parse_manifest

ENTRIES, FILES, MANIFEST, PLAN = "entries", "files", "manifest", "_plan"

ENTRY_SCHEMA = StructType(
    [
        StructField("ledger_id", LongType(), nullable=False),
        StructField("entry_id", LongType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
        StructField("date", StringType(), nullable=False),
    ]
)

LEDGER_COLUMNS = (
    "ledger_id LONG, status STRING, entries LONG, bytes LONG, digest STRING, why STRING, "
    "ensemble_size INT, write_quorum INT, ack_quorum INT"
)
"""What SQL takes of the line of a ledger."""

TEXTS_AT_ONCE = 1000
"""Rows of an Arrow batch of lines."""

ENTRY_PATH = "date=[^/]+/[^/]+$"

FILE_COLUMNS = "bytes LONG, path STRING"


def entries_of(spark: SparkSession, directory: str, *, any_files: bool) -> DataFrame:
    """The entries of an export, with the column date; any_files: whether it has files at all."""
    if not any_files:
        return spark.createDataFrame([], ENTRY_SCHEMA)
    return spark.read.schema(ENTRY_SCHEMA).parquet(f"{directory}/{ENTRIES}")


def file_lines(spark: SparkSession, directory: str, table: str = ENTRIES, pattern: str = ENTRY_PATH) -> DataFrame:
    """The line of each file of a table that there is. Opens none of them. pattern: of what is told of its path."""
    found = spark.read.format("binaryFile").load(f"{directory}/{table}")
    path = F.regexp_extract("path", pattern, 0)
    return found.select(F.to_json(F.struct(F.col("length").alias("bytes"), path.alias("path"))).alias("line"))


def files_of(lines: DataFrame) -> DataFrame:
    """Lines of files as rows bytes, path."""
    return lines.select(F.from_json("line", FILE_COLUMNS).alias("file")).select("file.*")


def ledgers_of(lines: DataFrame) -> DataFrame:
    """Lines of ledgers as rows of what SQL needs of them, and the line."""
    return lines.select(F.from_json("line", LEDGER_COLUMNS).alias("ledger"), "line").select("ledger.*", "line")


def lines_of(spark: SparkSession, directory: str, table: str) -> DataFrame:
    """The lines of a table. Raises NotAnExport where there is none."""
    try:
        return spark.read.text(f"{directory}/{table}").withColumnRenamed("value", "line")
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise NotAnExport(f"{directory} has no {table}") from error


def write_lines(lines: DataFrame, directory: str, table: str) -> None:
    """Write the only column as a table. Raises what Spark does, also where it is there."""
    lines.write.mode("error").text(f"{directory}/{table}")


def read_manifest(spark: SparkSession, directory: str) -> Manifest:
    """The manifest of an export. Raises NotAnExport."""
    return parse_manifest(manifest_line(spark, directory))


def manifest_line(spark: SparkSession, directory: str) -> str:
    """Its text. Raises NotAnExport where there is none."""
    try:
        rows = lines_of(spark, directory, MANIFEST).limit(2).collect()
    except NotAnExport as error:
        raise NotAnExport(
            f"{directory} has no manifest, which is written last: it is no export, or one that did not come to its end"
        ) from error
    if len(rows) != 1:
        raise NotAnExport(f"{directory}: its manifest has {len(rows)} lines or more, and not one")
    line: str = rows[0].line
    return line


def write_manifest(spark: SparkSession, directory: str, manifest: Manifest) -> None:
    """Write the manifest: from then on the directory is an export."""
    write_manifest_line(spark, directory, format_manifest(manifest))


def write_manifest_line(spark: SparkSession, directory: str, text: str) -> None:
    """The same with its text."""
    line = spark.createDataFrame([(text,)], "line STRING")
    write_lines(line.coalesce(1), directory, MANIFEST)


def rows_of(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """The rows of Arrow batches, for tables of one row for each ledger."""
    for batch in batches:
        yield from batch.to_pylist()


def text_batches(lines: Iterator[str]) -> Iterator[Any]:
    """Arrow batches of one column, line."""
    piece: list[str] = []
    for line in lines:
        piece.append(line)
        if len(piece) >= TEXTS_AT_ONCE:
            yield pa.RecordBatch.from_pydict({"line": piece})
            piece = []
    if piece:
        yield pa.RecordBatch.from_pydict({"line": piece})
