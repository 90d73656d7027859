"""Tables of a folded namespace, in SQL: paths, and usage by owner, directory, extension, storage and time.

What the fold gives is in one column for each kind of row; here it becomes tables, in parallel. A directory's usage is
added up in two steps: by the directory that a thing is in, then over the directories above that, down to a depth.

bytes: lengths of files. stored_bytes: times their copies; null, and left out of sums, for files that are erasure coded,
whose policy says what they take: `coded_files` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from journalmgr.edits.opcodes import OpCode
from journalmgr.spark.namespaces.growth import NUMBERS
from journalmgr.spark.namespaces.inode_rows import COLUMNS

UNITS = {"hour": 3_600_000, "day": 86_400_000}
"""Steps of time by which growth can be told, in milliseconds."""

_PATH = (
    "CASE WHEN parent_id IS NULL THEN '/' WHEN directory = '/' THEN concat('/', name) "
    "ELSE concat(directory, '/', name) END"
)
_DEPTH = "CASE WHEN {0} = '/' THEN 0 ELSE length({0}) - length(replace({0}, '/', '')) END"
_STORED = "CASE WHEN kind <> 'file' OR erasure_coding_policy_id IS NOT NULL THEN NULL ELSE length * replication END"
_USAGE = {
    "files": "count_if(kind = 'file')",
    "directories": "count_if(kind = 'directory')",
    "symlinks": "count_if(kind = 'symlink')",
    "open_files": "count_if(under_construction)",
    "coded_files": "count_if(erasure_coding_policy_id IS NOT NULL)",
    "bytes": "coalesce(sum(length), 0L)",
    "stored_bytes": "coalesce(sum(stored_bytes), 0L)",
}
_OF_FILES = tuple(name for name in _USAGE if name not in ("directories", "symlinks"))

EXTENSION = r"^.+\\.([A-Za-z0-9_]{1,16})$"


def _usage(names: Iterable[str] = tuple(_USAGE)) -> list[Column]:
    return [F.expr(_USAGE[name]).alias(name) for name in names]


def inode_table(folded: DataFrame) -> DataFrame:
    """The snapshot: a row for each inode, with its path. folded: rows of `fold_task.OUT_SCHEMA`."""
    inodes = folded.where("inode IS NOT NULL").select("inode.*")
    return inodes.selectExpr("*", f"{_PATH} AS path", f"{_STORED} AS stored_bytes").selectExpr(
        "inode_id",
        "parent_id",
        "path",
        f"{_DEPTH.format('path')} AS depth",
        "directory",
        "name",
        "kind",
        "owner",
        "`group`",
        "permission",
        "replication",
        "block_size",
        "length",
        "stored_bytes",
        "CASE WHEN kind = 'file' THEN size(blocks) END AS block_count",
        "blocks",
        "timestamp_micros(mtime) AS mtime",
        "timestamp_micros(atime) AS atime",
        "names_quota",
        "space_quota",
        "storage_policy_id",
        "erasure_coding_policy_id",
        "target",
        "under_construction",
        "client_name",
        "made_txid",
        "changed_txid",
        "rest",
    )


def base_rows(inodes: DataFrame) -> DataFrame:
    """The snapshot's rows as the fold takes them back: columns of `inode_rows.COLUMNS`, in their order."""
    micros = {name: f"unix_micros({name}) AS {name}" for name in ("mtime", "atime")}
    return inodes.selectExpr(*(micros.get(each.name, f"`{each.name}`") for each in COLUMNS))


def owner_table(inodes: DataFrame) -> DataFrame:
    """Who has how much; owner: null for a root of which nobody said whose it is."""
    return inodes.groupBy("owner").agg(*_usage()).orderBy(F.desc("stored_bytes"), F.desc("bytes"), "owner")


def directory_table(inodes: DataFrame, depth: int) -> DataFrame:
    """What is below each directory of at most that depth, itself not counted; the root has depth 0."""
    inside = inodes.where("parent_id IS NOT NULL").groupBy("directory").agg(*_usage(), F.max("mtime").alias("newest"))
    above = inside.selectExpr(
        f"explode(sequence(0, least({depth}, {_DEPTH.format('directory')}))) AS level", "directory", *_USAGE, "newest"
    )
    below = (
        above.groupBy(F.expr("if(level = 0, '/', substring_index(directory, '/', level + 1))").alias("of"))
        .agg(*(F.sum(name).alias(name) for name in _USAGE), F.max("newest").alias("newest"))
    )  # fmt: skip
    places = inodes.where(f"kind = 'directory' AND depth <= {depth}").select(
        "path", "depth", "owner", "names_quota", "space_quota"
    )
    return (
        places.join(below, F.col("path") == F.col("of"), "left")
        .selectExpr(
            "path",
            "depth",
            "owner",
            *(f"coalesce({name}, 0L) AS {name}" for name in _USAGE),
            "newest AS newest_mtime",
            "names_quota",
            "space_quota",
        )
        .orderBy("depth", F.desc("stored_bytes"), F.desc("bytes"), "path")
    )


def extension_table(inodes: DataFrame) -> DataFrame:
    """Files by what their names end with, in small letters; null for none."""
    named = inodes.where("kind = 'file'").withColumn(
        "extension", F.expr(f"nullif(lower(regexp_extract(name, '{EXTENSION}', 1)), '')")
    )
    return (
        named.groupBy("extension").agg(*_usage(_OF_FILES)).orderBy(F.desc("stored_bytes"), F.desc("bytes"), "extension")
    )


def storage_table(inodes: DataFrame) -> DataFrame:
    """Files by how they are stored: policy (null: none of their own), policy of erasure coding, copies."""
    return (
        inodes.where("kind = 'file'")
        .groupBy("storage_policy_id", "erasure_coding_policy_id", "replication")
        .agg(*_usage(_OF_FILES))
        .orderBy(F.desc("stored_bytes"), F.desc("bytes"), "replication")
    )


def growth_rows(folded: DataFrame) -> DataFrame:
    """What was made and removed in each hour; hour: null where no operation says when."""
    rows = folded.where("growth IS NOT NULL").select("growth.*")
    return added_up(rows.selectExpr("timestamp_millis(hour_ms) AS hour", *NUMBERS), "hour")


def added_up(rows: DataFrame, by: str) -> DataFrame:
    """Rows of one time together; none where nothing is left of it."""
    sums = rows.groupBy(by).agg(*(F.sum(name).alias(name) for name in NUMBERS))
    return sums.where(" OR ".join(f"{name} <> 0" for name in NUMBERS))


def growth_table(hours: DataFrame, unit: str) -> DataFrame:
    """Growth by hour or day of UTC, and what there was at the end of each; the row without a time is the last.

    hours: of all transactions from the first on. The root is no directory that was made.
    """
    timed = hours.withColumn("time", F.expr(_begin_of(unit))).drop("hour")
    running = "OVER (ORDER BY time ASC NULLS LAST ROWS UNBOUNDED PRECEDING)"
    return (
        added_up(timed, "time")
        .selectExpr(
            "time",
            *NUMBERS,
            f"sum(files_made - files_deleted) {running} AS files",
            f"sum(directories_made - directories_deleted) {running} AS directories",
            f"sum(bytes_added - bytes_removed) {running} AS bytes",
        )
        .orderBy(F.asc_nulls_last("time"))
    )


def _begin_of(unit: str) -> str:
    """Of UTC, whatever the session's time zone is."""
    ms = UNITS[unit]
    return f"timestamp_millis(unix_millis(hour) - pmod(unix_millis(hour), {ms}L))"


def operation_table(spark: SparkSession, folded: DataFrame) -> DataFrame:
    """How many operations of each kind there were, and what became of them."""
    names = spark.createDataFrame([(int(opcode), opcode.hadoop_name) for opcode in OpCode], "number INT, op STRING")
    counted = folded.where("counted IS NOT NULL").select("counted.*")
    return (
        counted.join(F.broadcast(names), F.col("opcode") == F.col("number"), "left")
        .selectExpr("coalesce(op, concat('opcode ', opcode)) AS op", "opcode", "outcome", "count")
        .orderBy(F.desc("count"), "opcode")
    )
