"""The pipeline `namespace`: the edit log of a name node as its namespace, and who uses how much of it.

    format editlog, decode=raw: whole records, read in parallel --> sorted by txid, one task: the fold --> rows
    a snapshot made earlier (base) ------------------------------'                                          |
                                   inodes, owners, directories, extensions, storage, growth <-- SQL, parallel

The journal is looked at first: what it has, whose it is. Then exactly the transactions chosen are read, and a gap or a
damaged record among them fails the run: an edit that is left out makes another namespace. Nobody who writes is fenced;
of the segment in progress what is confirmed is read.

The task of the fold needs memory for the tree, about 1 KB for each inode. Incremental runs fold less: a snapshot at
txid T (output), later base=that and the transactions behind T; the result is the same as folding all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.faces.blocking import connect
from bookkeeper.config.table import nearest
from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.pipeline import told_by_spark
from bookkeeper.spark.said_as import LOSS_BORNE, SAID_AS, Words
from journalmgr.spark.edit_options import WHERE, EditReadOptions, read_edit_options
from journalmgr.spark.edit_plan import look, namespace_id
from journalmgr.spark.edit_source import EditLogSource
from journalmgr.spark.namespaces import stored, tables
from journalmgr.spark.namespaces.fold import PASSED_OVER, UNKNOWN
from journalmgr.spark.namespaces.fold_task import (
    BEGIN,
    HEAD,
    INODE,
    INODE_TYPE,
    OUT_SCHEMA,
    RECORD,
    FoldPlan,
    folding,
)
from journalmgr.spark.namespaces.options import given_options
from journalmgr.spark.namespaces.txids import Head, NamespaceFailed, Seen, check_base, txids_to_fold

if TYPE_CHECKING:
    from bookkeeper.spark.options.tables import SourceOptions

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NamespaceReport:
    """What was found. Sizes in bytes; DataFrames may be read again and again.

    journal, namespace_id   whose it is; 0 for a journal that is so old that it does not say
    txid, transactions      of the last transaction that is in it; how many were folded in this run
    file_count, directory_count, symlink_count, size    of the whole namespace; the root is a directory
    passed_over  operations of this run that leave the namespace as it is
    unknown      those whose meaning is not known and that were passed over, in this run and for its base: with any,
                 this is not the namespace for certain
    inodes       a row for each inode: inode_id, parent_id, path, depth, directory (of its parent), name, kind (file,
                 directory, symlink), owner, group, permission (octal), replication, block_size, length, stored_bytes,
                 block_count, blocks, mtime, atime, names_quota, space_quota, storage_policy_id,
                 erasure_coding_policy_id, target, under_construction, client_name, made_txid (null: the root),
                 changed_txid (the last transaction about it, or that put something into it or took it out), rest
    owners, extensions, storage   files, bytes, stored_bytes, ... of each; the greatest first
    directories  what is below each directory down to the depth asked for, itself not counted
    growth       time (day or hour, UTC; null: no operation says when), what was made and removed then, and files,
                 directories, bytes that there were at its end
    operations   op, opcode, outcome (folded, passed over, unknown), count; of this run
    """

    journal: str
    namespace_id: int
    txid: int
    transactions: int
    file_count: int
    directory_count: int
    symlink_count: int
    size: int
    passed_over: int
    unknown: int
    inodes: DataFrame
    owners: DataFrame
    directories: DataFrame
    extensions: DataFrame
    storage: DataFrame
    growth: DataFrame
    operations: DataFrame


def namespace(
    spark: SparkSession,
    uri: str,
    *,
    base: str | None = None,
    at_txid: int | None = None,
    depth: int = 2,
    by: str = "day",
    skip_unknown: bool = False,
    output: str | None = None,
    options: Mapping[str, object] | None = None,
    state: OutputState | None = None,
    say: Say = lambda text: None,
) -> NamespaceReport:
    """The namespace that the journal at `uri` makes; folded before this returns.

    base: the directory of a snapshot that an earlier run wrote: its transactions are not read again, and need not be
    there any more. at_txid: the last transaction, by default the last that is confirmed. depth: of `directories`. by:
    of `growth`, one of tables.UNITS. skip_unknown: pass over operations whose meaning is not known; they are counted.
    output: a directory that must not be there or be empty, for all tables as Parquet; any path that Spark can write
    to. options: of the format editlog (zkLedgersRootPath, password, minPartitions, ...) and keys of the client. state:
    moved on as `output` is written; for who interrupts this. say: told what goes on.
    Raises ConfigurationError, InvalidArgument, NotFormatted, NamespaceFailed (NoBeginning, BaseMisfit among them).
    """
    if by not in tables.UNITS:
        raise InvalidArgument(f"by={by!r}{nearest(by, tables.UNITS)}; there are {', '.join(tables.UNITS)}")
    if depth < 0:
        raise InvalidArgument(f"depth={depth}: 0 is the root alone")
    given = given_options(uri, options or {})
    given[SAID_AS] = Words.among(given).without(LOSS_BORNE).text  # a namespace needs all of them
    read = read_edit_options(given)
    read.own.check_use(stream=False)
    try:
        this = _Run(spark, given, read, base, output, state or OutputState(), say)
        return this.report(at_txid, depth, by, skip_unknown=skip_unknown)
    except PySparkException as error:
        raise NamespaceFailed(told_by_spark(error)) from error


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        given: Mapping[str, str],
        read: SourceOptions[EditReadOptions],
        base: str | None,
        output: str | None,
        state: OutputState,
        say: Say,
    ) -> None:
        self._state = state
        self._spark, self._given, self._read, self._say = spark, given, read, say
        self._base = None if base is None else base.rstrip("/")
        self._output = None if output is None else output.rstrip("/")

    def report(self, at_txid: int | None, depth: int, by: str, *, skip_unknown: bool) -> NamespaceReport:
        spark, output = self._spark, self._output
        if output is not None:
            check_new(spark, output)
        base = None if self._base is None else stored.read_head(spark, self._base)
        seen = self._look(1 if base is None else base.txid + 1)
        if base is not None:
            check_base(base, self._base or "", seen)
        txids = txids_to_fold(seen, base, self._base or "", at_txid, self._read.words)
        self._say(
            f"folding {len(txids):,} transactions"
            + (f", {txids[0]:,} to {txids[-1]:,}" if txids else "")
            + (f", onto the snapshot of txid {base.txid:,} with {base.inodes:,} inodes" if base is not None else "")
        )
        folded = self._folded(txids, base, skip_unknown=skip_unknown)
        [head] = folded.where("head IS NOT NULL").select("head.*").collect()
        numbers = {name: int(head[name]) for name in HEAD}
        self._say(f"folded: {numbers['inodes']:,} inodes at txid {numbers['txid']:,}; adding up")
        files = max(1, -(-numbers["inodes"] // stored.ROWS_PER_FILE))
        inodes = tables.inode_table(folded)  # of what is in Spark's cache already
        if output is not None:
            self._state.stage = Stage.BEGUN
            inodes = stored.write_table(inodes, output, stored.INODES, files)
        hours = tables.growth_rows(folded)
        if self._base is not None:
            before = stored.read_table(spark, self._base, stored.GROWTH, stored.NEEDED_OF_GROWTH)
            hours = tables.added_up(hours.unionByName(before.select(hours.columns)), "hour")
        hours = self._kept(hours, stored.GROWTH)
        operations = self._kept(tables.operation_table(spark, folded), "operations")
        sums = operations.groupBy("outcome").agg(F.sum("count").alias("n")).collect()
        outcomes = {row.outcome: int(row.n) for row in sums}
        unknown = outcomes.get(UNKNOWN, 0) + (0 if base is None else base.unknown)
        report = NamespaceReport(
            seen.journal,
            seen.namespace_id,
            numbers["txid"],
            len(txids),
            numbers["files"],
            numbers["directories"],
            numbers["symlinks"],
            numbers["bytes"],
            outcomes.get(PASSED_OVER, 0),
            unknown,
            inodes,
            self._kept(tables.owner_table(inodes), "owners"),
            self._kept(tables.directory_table(inodes, depth), "directories"),
            self._kept(tables.extension_table(inodes), "extensions"),
            self._kept(tables.storage_table(inodes), "storage"),
            tables.growth_table(hours, by),
            operations,
        )
        if output is not None:
            folded.unpersist()
            self._state.stage = Stage.ENDING
            stored.write_head(
                spark,
                output,
                Head(
                    seen.namespace_id,
                    seen.journal,
                    numbers["txid"],
                    numbers["inodes"],
                    numbers["last_inode_id"],
                    unknown,
                ),
            )
            self._state.stage = Stage.COMPLETE
            self._say(f"written: {output}")
        return report

    def _look(self, from_txid: int) -> Seen:
        settings, own = self._read.client, self._read.own
        with connect(settings.metadata_service_uri, settings) as client:
            found = look(client, own, from_txid, self._read.words)
            begins = min((each.first_txid for each in found.spans if each.last_txid >= from_txid), default=None)
            return Seen(own.journal, namespace_id(client, own), begins, found.last_txid)

    def _folded(self, txids: range, base: Head | None, *, skip_unknown: bool) -> DataFrame:
        """The rows of the fold, computed once, spread over tasks."""
        plan = FoldPlan(
            txids.start - 1,
            txids.stop - 1,
            None if base is None else base.inodes,
            0 if base is None else base.last_inode_id,
            skip_unknown,
        )
        rows = self._spark.range(1).selectExpr(*_columns(BEGIN))
        if base is not None:
            assert self._base is not None
            inodes = stored.read_table(self._spark, self._base, stored.INODES, stored.NEEDED_OF_INODES)
            packed = tables.base_rows(inodes).select(F.struct("*").alias("inode"))
            rows = rows.union(packed.selectExpr(*_columns(INODE, key="inode.inode_id", inode="inode")))
        if txids:
            rows = rows.union(
                self._records(txids).selectExpr(
                    *_columns(RECORD, key="txid", layout_version="layout_version", record="record")
                )
            )
        ordered = rows.repartition(1).sortWithinPartitions("rank", "key")
        folded = map_in_arrow(ordered, folding(plan), OUT_SCHEMA)
        return folded.repartition(self._spark.sparkContext.defaultParallelism).persist(StorageLevel.MEMORY_AND_DISK)

    def _records(self, txids: range) -> DataFrame:
        self._spark.dataSource.register(EditLogSource)
        options: dict[str, Any] = {
            **self._given,
            "decode": "raw",
            "startingTxid": txids[0],
            "endingTxid": txids[-1],
            "failOnDataLoss": True,
        }
        return self._spark.read.format(WHERE).options(**options).load()

    def _kept(self, rows: DataFrame, table: str, files: int = 1) -> DataFrame:
        """The rows of a table, computed once."""
        return rows.cache() if self._output is None else stored.write_table(rows, self._output, table, files)


def _columns(rank: int, **given: str) -> list[str]:
    """A row for the fold."""
    empty = {
        "key": ("0", "BIGINT"),
        "layout_version": ("NULL", "INT"),
        "record": ("NULL", "BINARY"),
        "inode": ("NULL", INODE_TYPE.simpleString()),
    }
    return [
        f"{rank} AS rank",
        *(f"CAST({given.get(name, value)} AS {kind}) AS {name}" for name, (value, kind) in empty.items()),
    ]
