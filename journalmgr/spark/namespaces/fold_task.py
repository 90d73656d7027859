"""The fold as Spark runs it: one task takes the rows of a base and the records in their order, and gives rows.

    rows in     rank, key, layout_version, record, inode      sorted by rank and key, in one partition
                  0   begin: one row, so that the task runs also where there is nothing to fold
                  1   an inode of the base, by its id
                  2   a transaction, by its txid
    rows out    one of the columns inode, growth, counted, head; the others are null

Records come as a stream that Spark has sorted on disk where they are many; besides the tree a task holds two batches.
Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.columns import arrow_schema
from journalmgr.errors import EditsCorrupt, GapInTransactions
from journalmgr.spark.edit_batches import BLOCK, blocks_column
from journalmgr.spark.namespaces import growth
from journalmgr.spark.namespaces.fold import Fold, FoldedTree, TreeLoading
from journalmgr.spark.namespaces.inode_rows import BLOCKS, BOOLEAN, COLUMNS, INT, LONG, STRING, inode_of

BEGIN, INODE, RECORD = 0, 1, 2
"""Ranks of rows."""

ROWS = 10_000
"""Of an Arrow batch."""

_TYPES: dict[str, DataType] = {
    LONG: LongType(),
    INT: IntegerType(),
    STRING: StringType(),
    BOOLEAN: BooleanType(),
    BLOCKS: ArrayType(BLOCK, containsNull=False),
}

INODE_TYPE = StructType([StructField(each.name, _TYPES[each.type]) for each in COLUMNS])
"""What the fold gives of an inode, and takes of a base."""

GROWTH_TYPE = StructType([StructField(name, LongType()) for name in ("hour_ms", *growth.NUMBERS)])
COUNTED_TYPE = StructType(
    [StructField("opcode", IntegerType()), StructField("outcome", StringType()), StructField("count", LongType())]
)
HEAD = ("txid", "inodes", "last_inode_id", "files", "directories", "symlinks", "bytes")
HEAD_TYPE = StructType([StructField(name, LongType()) for name in HEAD])

OUT_SCHEMA = StructType(
    [
        StructField("inode", INODE_TYPE),
        StructField("growth", GROWTH_TYPE),
        StructField("counted", COUNTED_TYPE),
        StructField("head", HEAD_TYPE),
    ]
)
"""Rows that the task gives."""


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """What one run folds: transactions behind `base_txid`, up to last_txid.

    base_inodes: how many rows the base has; None without a base. last_inode_id: of the base.
    """

    base_txid: int
    last_txid: int
    base_inodes: int | None = None
    last_inode_id: int = 0
    skip_unknown: bool = False


def folding(plan: FoldPlan) -> ArrowMap:
    """For `map_in_arrow` on one sorted partition: rows of OUT_SCHEMA.

    Raises GapInTransactions, UnknownOp, EditsCorrupt, ReplayError; each names the transaction.
    """

    def fold(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _Folding(plan).rows(batches)

    return fold


class _Folding:
    def __init__(self, plan: FoldPlan) -> None:
        self._plan = plan
        self._loading = None if plan.base_inodes is None else TreeLoading(plan.base_txid, plan.last_inode_id)
        self._fold: Fold | None = None

    def rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            ranks = batch.column(batch.schema.get_field_index("rank")).to_pylist()
            first_record = ranks.index(RECORD) if RECORD in ranks else len(ranks)
            first_inode = ranks.index(INODE) if INODE in ranks else first_record
            self._load(batch.slice(first_inode, first_record - first_inode))
            if first_record < len(ranks):
                yield from self._take(batch.slice(first_record))
        yield from self._end()

    def _load(self, batch: Any) -> None:
        if not batch.num_rows:
            return
        if self._loading is None:
            raise EditsCorrupt("an inode of a base where there is none", source="the fold")
        for row in batch.column(batch.schema.get_field_index("inode")).to_pylist():
            self._loading.add(inode_of(row))

    def _take(self, batch: Any) -> Iterator[Any]:
        fold = self._folds()
        layouts = batch.column(batch.schema.get_field_index("layout_version")).to_pylist()
        records = batch.column(batch.schema.get_field_index("record")).to_pylist()
        take = fold.take
        for record, layout_version in zip(records, layouts, strict=True):
            take(record, layout_version)
        if fold.growth.is_full:
            yield from _growth_batches(fold.growth)

    def _folds(self) -> Fold:
        """The fold; with the first transaction the base has come to its end."""
        if self._fold is None:
            self._fold = Fold(self._loaded(), skip_unknown=self._plan.skip_unknown)
        return self._fold

    def _loaded(self) -> FoldedTree | None:
        loading, self._loading = self._loading, None
        if loading is None:
            return None
        if loading.count != self._plan.base_inodes:
            raise EditsCorrupt(
                f"it has {loading.count} inodes, and says that it has {self._plan.base_inodes}: files of it are "
                "missing, or were added; take another, or fold from the first transaction",
                source="the snapshot",
            )
        return loading.finish()

    def _end(self) -> Iterator[Any]:
        fold = self._folds()
        if fold.last_txid != self._plan.last_txid:
            raise GapInTransactions(
                f"the edit log: expected txid {fold.last_txid + 1}, and no more came; transactions up to "
                f"{self._plan.last_txid} were to be folded",
                expected=fold.last_txid + 1,
                found=None,
            )
        fold.finish()
        yield from _growth_batches(fold.growth)
        counted = [(opcode, outcome, count) for (opcode, outcome), count in sorted(fold.counts.items())]
        yield from _batches("counted", counted)
        tree = fold.tree
        yield from _batches("head", [(fold.last_txid, len(tree.inodes), tree.last_inode_id, *fold.count())])
        yield from _batches("inode", fold.rows())


def _growth_batches(found: growth.Growth) -> Iterator[Any]:
    return _batches("growth", found.take())


def _batches(column: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    waiting = iter(rows)
    while piece := list(islice(waiting, ROWS)):
        yield _batch(column, piece)


@cache
def _out_schema() -> Any:
    return arrow_schema(OUT_SCHEMA)


def _batch(column: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    schema = _out_schema()
    kind = schema.field(column).type
    values = zip(*rows, strict=True)
    children = [
        blocks_column(each, field.type) if field.name == "blocks" else pa.array(each, field.type)
        for field, each in zip(kind, values, strict=True)
    ]
    made = pa.StructArray.from_arrays(children, fields=list(kind))
    return pa.RecordBatch.from_arrays(
        [made if field.name == column else pa.nulls(len(rows), field.type) for field in schema], schema=schema
    )
