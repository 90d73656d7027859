"""A snapshot's directory, written and read by Spark: any path that it can use.

    DIR/inodes  growth  operations  owners  directories  extensions  storage     Parquet, few files
    DIR/snapshot                                                                 one row, written last: `txids.Head`

A directory without `snapshot` is one whose run did not come to its end, and no base. A base needs `inodes` and
`growth` (by the hour, from the first transaction on) besides; the others are for whoever reads them.
"""

from __future__ import annotations

from dataclasses import fields

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from journalmgr.spark.namespaces.fold_task import INODE_TYPE
from journalmgr.spark.namespaces.growth import NUMBERS
from journalmgr.spark.namespaces.txids import BaseMisfit, Head

INODES, GROWTH, SNAPSHOT = "inodes", "growth", "snapshot"

ROWS_PER_FILE = 1_000_000
"""Inodes of one file of a snapshot, about."""

_KINDS = {"int": LongType(), "str": StringType()}
HEAD_SCHEMA = StructType([StructField(each.name, _KINDS[str(each.type)]) for each in fields(Head)])

_TIMES = {"mtime": TimestampType(), "atime": TimestampType()}
NEEDED_OF_INODES = StructType(
    [StructField(each.name, _TIMES.get(each.name, each.dataType)) for each in INODE_TYPE.fields]
)
"""Columns that a base must have."""

NEEDED_OF_GROWTH = StructType(
    [StructField("hour", TimestampType()), *(StructField(name, LongType()) for name in NUMBERS)]
)

_NOT_THERE = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


def write_table(rows: DataFrame, directory: str, table: str, files: int = 1) -> DataFrame:
    """Write a table, and read it back."""
    path = f"{directory}/{table}"
    rows.coalesce(files).write.mode("error").parquet(path)
    return rows.sparkSession.read.schema(rows.schema).parquet(path)


def write_head(spark: SparkSession, directory: str, head: Head) -> None:
    """Say of what the snapshot is: from then on it is one."""
    values = tuple(getattr(head, each.name) for each in fields(Head))
    write_table(spark.createDataFrame([values], HEAD_SCHEMA), directory, SNAPSHOT)


def read_head(spark: SparkSession, directory: str) -> Head:
    """Of what a snapshot is. Raises BaseMisfit."""
    rows = read_table(spark, directory, SNAPSHOT, HEAD_SCHEMA).limit(2).collect()
    if len(rows) != 1:
        raise BaseMisfit(f"base {directory}: its table {SNAPSHOT} has {len(rows)} rows, and not one; take another")
    return Head(**{each.name: rows[0][each.name] for each in fields(Head)})


def read_table(spark: SparkSession, directory: str, table: str, needed: StructType) -> DataFrame:
    """A table of a snapshot; at least the columns `needed`. Raises BaseMisfit."""
    try:
        found = spark.read.parquet(f"{directory}/{table}")
    except AnalysisException as error:
        if error.getCondition() not in _NOT_THERE:
            raise
        raise BaseMisfit(
            f"base {directory} has no table {table}: it is no snapshot that this pipeline wrote, or one whose run "
            "did not come to its end"
        ) from error
    there = {each.name: _plain(each) for each in found.schema.fields}
    wrong = [
        f"{each.name} is {there.get(each.name, 'missing')}, not {_plain(each)}"
        for each in needed.fields
        if there.get(each.name) != _plain(each)
    ]
    if wrong:
        raise BaseMisfit(
            f"base {directory}: its table {table} has other columns ({'; '.join(wrong)}); it was written by other "
            "software or changed since: make it anew"
        )
    return found


def _plain(field: StructField) -> str:
    """The type without what may be null, which files do not keep."""
    return "int" if isinstance(field.dataType, IntegerType) else str(field.dataType.simpleString())
