"""The fold as a task runs it, on Arrow batches made here: what comes in is one sorted partition, in any pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.spark.columns import arrow_schema
from journalmgr.edits import ops as o
from journalmgr.edits.codec import encode
from journalmgr.edits.fields import Block, Permission
from journalmgr.errors import EditsCorrupt, GapInTransactions
from journalmgr.model import HADOOP_2_7
from journalmgr.spark.namespaces import growth
from journalmgr.spark.namespaces.fold_task import BEGIN, INODE, INODE_TYPE, OUT_SCHEMA, RECORD, FoldPlan, folding

T = 1_700_000_000_000
OWNED = Permission("alice", "staff", 0o755)
INODE_ARROW = pa.struct(list(arrow_schema(INODE_TYPE)))
IN_SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        ("key", pa.int64()),
        ("layout_version", pa.int32()),
        ("record", pa.binary()),
        ("inode", INODE_ARROW),
    ]
)
BEGINNING = {"rank": BEGIN, "key": 0}


def story() -> list[o.Op]:
    return [
        o.StartLogSegment(),
        o.Mkdir(path="/d", mtime=T, permission=OWNED),
        o.Add(path="/d/f", mtime=T, replication=2, block_size=100, permission=OWNED, client_name="c"),
        o.Close(path="/d/f", mtime=T, block_size=100, blocks=(Block(1, 70, 1001),), permission=OWNED),
        o.Add(path="/d/open", mtime=T, replication=2, block_size=100, permission=OWNED, client_name="ö\ud800"),
        o.Rename("/d", "/e", T + growth.HOUR_MS),
    ]


def records(first: int = 1, last: int = 6) -> list[dict[str, Any]]:
    found = []
    for txid, op in enumerate(story(), 1):
        op.txid = txid
        if first <= txid <= last:
            found.append({"rank": RECORD, "key": txid, "layout_version": HADOOP_2_7, "record": encode(op, HADOOP_2_7)})
    return found


def run(plan: FoldPlan, rows: list[dict[str, Any]], size: int = 1000) -> dict[str, list[dict[str, Any]]]:
    """What the task gives, by column."""

    def batches() -> Iterator[Any]:
        for first in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[first : first + size], schema=IN_SCHEMA)

    found: dict[str, list[dict[str, Any]]] = {field.name: [] for field in OUT_SCHEMA}
    for batch in folding(plan)(batches()):
        assert batch.schema == arrow_schema(OUT_SCHEMA)
        for row in batch.to_pylist():
            [column] = [name for name, value in row.items() if value is not None]
            found[column].append(row[column])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_records_in_any_pieces_become_inodes_growth_and_counts(size: int) -> None:
    found = run(FoldPlan(0, 6), [BEGINNING, *records()], size)
    assert [(row["directory"], row["name"], row["kind"], row["length"]) for row in found["inode"]] == [
        (None, "", "directory", None),
        ("/", "e", "directory", None),
        ("/e", "open", "file", 0),
        ("/e", "f", "file", 70),
    ]
    assert found["inode"][3]["blocks"] == [{"id": 1, "num_bytes": 70, "generation_stamp": 1001}]
    assert [(row["hour_ms"], row["operations"], row["bytes_added"]) for row in found["growth"]] == [
        (T - T % growth.HOUR_MS, 4, 70),
        (T - T % growth.HOUR_MS + growth.HOUR_MS, 1, 0),
    ]
    assert {(row["opcode"], row["outcome"]): row["count"] for row in found["counted"]} == {
        (0, "folded"): 2, (3, "folded"): 1, (9, "folded"): 1, (15, "folded"): 1, (24, "passed over"): 1,
    }  # fmt: skip
    assert found["head"] == [
        {"txid": 6, "inodes": 4, "last_inode_id": 16388, "files": 2, "directories": 2, "symlinks": 0, "bytes": 70}
    ]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("cut", range(7))
def test_a_base_and_what_came_behind_it_give_the_same(cut: int, size: int) -> None:
    whole = run(FoldPlan(0, 6), [BEGINNING, *records()])
    base = run(FoldPlan(0, cut), [BEGINNING, *records(last=cut)])
    inodes = [{"rank": INODE, "key": row["inode_id"], "inode": row} for row in base["inode"]]
    inodes.sort(key=lambda row: row["key"])
    [head] = base["head"]
    plan = FoldPlan(cut, 6, head["inodes"], head["last_inode_id"])
    found = run(plan, [BEGINNING, *inodes, *records(first=cut + 1)], size)
    assert sorted(found["inode"], key=str) == sorted(whole["inode"], key=str)
    assert found["head"] == whole["head"]
    with pytest.raises(EditsCorrupt, match=f"it has {len(inodes) - 1} inodes, and says that it has {len(inodes)}"):
        run(plan, [BEGINNING, *inodes[:-1], *records(first=cut + 1)], size)


def test_nothing_to_fold_is_an_empty_namespace() -> None:
    found = run(FoldPlan(0, 0), [BEGINNING])
    assert [row["name"] for row in found["inode"]] == [""]
    assert not found["growth"]


def test_transactions_that_do_not_come_are_a_gap() -> None:
    with pytest.raises(GapInTransactions, match="expected txid 6, and no more came; transactions up to 6"):
        run(FoldPlan(0, 6), [BEGINNING, *records(last=5)])
    with pytest.raises(GapInTransactions, match="expected txid 3, but got txid 4"):
        run(FoldPlan(0, 6), [BEGINNING, *records(last=2), *records(first=4)])


def test_hours_beyond_the_bound_are_handed_out_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "HOURS_MAX", 0)
    pieces = run(FoldPlan(0, 6), [BEGINNING, *records()], 1)["growth"]
    assert [row["operations"] for row in pieces] == [1] * 5
    assert len(run(FoldPlan(0, 6), [BEGINNING, *records()], 100)["growth"]) == 2
