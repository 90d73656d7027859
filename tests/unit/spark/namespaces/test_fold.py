"""The fold: what each operation makes of the tree, of its rows and of growth; what is refused.

Method: operations get consecutive txids and are encoded, so that the fold decodes what a ledger would hold; its rows
are looked at by path. A fold that goes on from the rows of another must give the same rows as one over all.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from journalmgr.edits import ops as o
from journalmgr.edits.codec import encode
from journalmgr.edits.fields import (
    Acl,
    AclEntry,
    Block,
    CachePool,
    DelegationKey,
    Permission,
    RpcIds,
    XAttr,
    XAttrs,
)
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import HADOOP_3_ONLY, OpCode
from journalmgr.edits.ops import OPS
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions, UnknownOp
from journalmgr.model import HADOOP_2_7, OPAQUE
from journalmgr.namenode.errors import ReplayError
from journalmgr.spark.namespaces.fold import (
    CHANGING,
    FOLDED,
    NOT_CHANGING,
    PASSED_OVER,
    UNKNOWN,
    Fold,
    FoldedTree,
    TreeLoading,
)
from journalmgr.spark.namespaces.growth import HOUR_MS, NUMBERS, Growth, hour_of
from journalmgr.spark.namespaces.inode_rows import COLUMNS, inode_of
from tests.support.edit_ops import record_without_length
from tests.support.recorded_edits import ENTRIES, OPCODES

T = 1_700_000_000_000 // HOUR_MS * HOUR_MS
ALICE = Permission("alice", "staff", 0o644)
DIRECTORY = Permission("alice", "staff", 0o755)
HADOOP_3 = -64


def mkdir(path: str, inode_id: int = 0, mtime: int = T) -> o.Mkdir:
    return o.Mkdir(inode_id=inode_id, path=path, mtime=mtime, atime=mtime, permission=DIRECTORY)


def add(path: str, inode_id: int = 0, mtime: int = T, **fields: Any) -> o.Add:
    values = {"replication": 3, "atime": mtime, "block_size": 100, "permission": ALICE, "client_name": "c"}
    return o.Add(path=path, inode_id=inode_id, mtime=mtime, client_machine="m", **(values | fields))


def close(path: str, *blocks: Block, mtime: int = T) -> o.Close:
    return o.Close(path=path, replication=3, mtime=mtime, atime=mtime, block_size=100, blocks=blocks, permission=ALICE)


def block(block_id: int, size: int) -> Block:
    return Block(block_id, size, 1000 + block_id)


def made(path: str, *sizes: int, first_block: int = 1) -> list[o.Op]:
    """A closed file of one block of each size."""
    blocks = [block(first_block + at, size) for at, size in enumerate(sizes)]
    return [add(path), close(path, *blocks)]


def fold(ops: Iterable[o.AnyOp], into: Fold | None = None, layout: int = HADOOP_2_7) -> Fold:
    folding = Fold() if into is None else into
    for op in ops:
        op.txid = folding.last_txid + 1
        folding.take(encode(op, layout), layout)
    return folding


def dicts(folding: Fold) -> list[dict[str, Any]]:
    names = [each.name for each in COLUMNS]
    return [dict(zip(names, row, strict=True)) for row in folding.rows()]


def by_path(folding: Fold) -> dict[str, dict[str, Any]]:
    found = {}
    for row in dicts(folding):
        directory = row["directory"]
        found["/" if directory is None else f"{directory.rstrip('/')}/{row['name']}"] = row
    return found


def hours(growth: Growth) -> dict[int | None, dict[str, int]]:
    return {hour: dict(zip(NUMBERS, numbers, strict=True)) for hour, *numbers in growth.take()}  # type: ignore[misc]


def reloaded(folding: Fold) -> Fold:
    """A fold that goes on from the rows of another, as Spark hands them over."""
    loading = TreeLoading(folding.last_txid, folding.tree.last_inode_id)
    for row in reversed(dicts(folding)):
        blocks = [{"id": each.block_id, "num_bytes": each.size, "generation_stamp": each.generation_stamp}
                  for each in row["blocks"]]  # fmt: skip
        loading.add(inode_of({**row, "blocks": blocks}))
    return Fold(loading.finish())


# --- every operation is in one class --------------------------------------------------------------------------------


def test_every_operation_either_changes_the_tree_or_is_known_not_to() -> None:
    assert not CHANGING & NOT_CHANGING
    assert set(OPS.values()) == CHANGING | NOT_CHANGING


def test_operations_that_leave_the_tree_as_it_is_are_counted_and_passed_over() -> None:
    ops: list[o.AnyOp] = [kind() for kind in OPS.values() if kind in NOT_CHANGING]
    folding = fold(ops)
    assert folding.last_txid == len(ops)
    assert folding.counts == {(int(op.opcode), PASSED_OVER): 1 for op in ops}
    assert list(by_path(folding)) == ["/"]
    assert not hours(folding.growth)


def test_policies_of_hadoop_3_are_passed_over() -> None:
    folding = Fold()
    for txid, opcode in enumerate(sorted(HADOOP_3_ONLY), 1):
        folding.take(encode_record(opcode, txid, b"\0\0"), HADOOP_3)
    assert folding.counts == {(int(opcode), PASSED_OVER): 1 for opcode in HADOOP_3_ONLY}


def test_snapshots_leave_what_is_there_now_and_what_comes_behind_them_counts() -> None:
    folding = fold(
        [
            mkdir("/d"),
            o.AllowSnapshot("/d"),
            o.CreateSnapshot("/d", "s"),
            *made("/d/f", 10),
            o.Delete("/d/f", T),
            o.DeleteSnapshot("/d", "s"),
        ]
    )
    assert list(by_path(folding)) == ["/", "/d"]


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_open_until_its_close_and_has_the_bytes_of_its_blocks() -> None:
    folding = fold([mkdir("/d", 20001), add("/d/f", 20002), o.AddBlock("/d/f", (block(1, 0),))])
    row = by_path(folding)["/d/f"]
    assert (row["kind"], row["under_construction"], row["client_name"], row["length"]) == ("file", True, "c", 0)
    assert (row["inode_id"], row["parent_id"], row["made_txid"], row["changed_txid"]) == (20002, 20001, 2, 3)
    fold([o.AddBlock("/d/f", (block(1, 100), block(2, 0))), close("/d/f", block(1, 100), block(2, 7))], folding)
    row = by_path(folding)["/d/f"]
    assert (row["under_construction"], row["client_name"], row["length"], len(row["blocks"])) == (False, None, 107, 2)
    assert (row["replication"], row["block_size"], row["permission"], row["owner"]) == (3, 100, "644", "alice")
    assert (row["mtime"], row["changed_txid"]) == (T * 1000, 5)


def test_append_truncate_concat_and_update_blocks_change_the_length() -> None:
    folding = fold([*made("/a", 100, 50), *made("/b", 100, first_block=5), *made("/c", 30, first_block=9)])
    fold([o.Append("/a", "d", "m"), o.UpdateBlocks("/a", (block(1, 100), block(2, 90)))], folding)
    row = by_path(folding)["/a"]
    assert (row["length"], row["client_name"]) == (190, "d")
    fold([close("/a", block(1, 100), block(2, 95)), o.Truncate("/a", "c", "m", 100, T + 1)], folding)
    assert by_path(folding)["/a"]["length"] == 100
    fold([o.ConcatDelete("/b", ("/c", "/a"), T + 2)], folding)
    found = by_path(folding)
    assert list(found) == ["/", "/b"]
    assert [each.block_id for each in found["/b"]["blocks"]] == [5, 9, 1]
    assert (found["/b"]["length"], found["/b"]["changed_txid"], found["/"]["changed_txid"]) == (230, 11, 11)


def test_an_add_that_overwrites_makes_another_inode() -> None:
    folding = fold([*made("/f", 10), add("/f", overwrite=True)])
    row = by_path(folding)["/f"]
    assert (row["length"], row["made_txid"]) == (0, 3)
    assert len(folding.tree.inodes) == 2


def test_a_lease_passes_over_and_replication_changes() -> None:
    folding = fold([add("/f"), o.ReassignLease("c", "/f", "recovery"), o.SetReplication("/f", 2)])
    row = by_path(folding)["/f"]
    assert (row["client_name"], row["replication"], row["changed_txid"]) == ("recovery", 2, 3)


def test_an_erasure_coded_file_says_so() -> None:
    folding = fold([add("/f", erasure_coding_policy_id=2), add("/g")], layout=HADOOP_3)
    found = by_path(folding)
    assert [found[path]["erasure_coding_policy_id"] for path in ("/f", "/g")] == [2, None]
    assert by_path(reloaded(folding))["/f"]["erasure_coding_policy_id"] == 2
    fold([o.Delete("/f", T), add("/f")], folding, HADOOP_3)
    assert by_path(folding)["/f"]["erasure_coding_policy_id"] is None


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_rename_moves_a_directory_with_all_below_it_and_touches_nothing_below() -> None:
    folding = fold([mkdir("/a"), mkdir("/a/b"), *made("/a/b/f", 5), mkdir("/z"), o.Rename("/a", "/z/y", T + 5)])
    found = by_path(folding)
    assert set(found) == {"/", "/z", "/z/y", "/z/y/b", "/z/y/b/f"}
    assert [found[path]["changed_txid"] for path in ("/", "/z", "/z/y", "/z/y/b", "/z/y/b/f")] == [6, 6, 6, 3, 4]
    assert found["/z"]["mtime"] == (T + 5) * 1000


class NoListing(dict[str, Any]):
    """Children that nobody may walk through."""

    def values(self) -> Any:
        raise AssertionError("a rename walked the tree")

    __iter__ = items = keys = values


def test_a_rename_below_a_quota_walks_no_tree() -> None:
    folding = fold([mkdir("/q"), o.SetQuota("/q", 100, 1 << 30), mkdir("/q/a"), mkdir("/q/a/b")])
    moved = folding.tree.find("/q/a")
    assert moved is not None
    moved.children = NoListing(moved.children)  # type: ignore[attr-defined]
    fold([o.Rename("/q/a", "/q/c", T), o.RenameOld("/q/c", "/d", T)], folding)
    assert folding.tree.find("/d/b") is not None


def test_a_rename_of_the_old_kind_goes_into_a_directory_that_is_there() -> None:
    assert "/b/a" in by_path(fold([mkdir("/a"), mkdir("/b"), o.RenameOld("/a", "/b", T)]))


def test_a_rename_that_overwrites_takes_away_what_was_there() -> None:
    folding = fold([*made("/a", 10), *made("/b", 70, first_block=3), o.Rename("/a", "/b", T + 1, (1,))])
    found = by_path(folding)
    assert set(found) == {"/", "/b"}
    assert found["/b"]["length"] == 10
    numbers = hours(folding.growth)[T]
    assert (numbers["files_made"], numbers["files_deleted"]) == (2, 1)
    assert (numbers["bytes_added"], numbers["bytes_removed"]) == (80, 70)


def test_a_delete_takes_a_directory_with_all_below_it() -> None:
    folding = fold([mkdir("/a"), mkdir("/a/b"), *made("/a/b/f", 5), o.Symlink(path="/a/l", target="/x", mtime=T),
                    o.Delete("/a", T + HOUR_MS)])  # fmt: skip
    assert list(by_path(folding)) == ["/"]
    assert set(folding.tree.inodes) == {16385}
    assert not folding.tree.made
    later = hours(folding.growth)[T + HOUR_MS]
    assert (later["files_deleted"], later["directories_deleted"], later["symlinks_deleted"]) == (1, 2, 1)
    assert (later["bytes_removed"], later["operations"]) == (5, 1)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (o.Rename("/a", "/a/b/c", T), "is below it"),
        (o.RenameOld("/a", "/a/b", T), "is below it"),
        (o.Rename("/a", "/f", T, (1,)), "cannot be replaced"),
        (o.Rename("/f", "/g", T), "already"),
        (o.Delete("/nothing", T), "nothing at this path"),
        (o.Delete("/", T), "root"),
        (mkdir("/a"), "already"),
        (mkdir("/x/y"), "parent directory does not exist"),
        (mkdir("/new", inode_id=16386), "taken"),
        (close("/f"), "not under construction"),
        (o.ConcatDelete("/f", ("/f",), T), "twice"),
        (o.Truncate("/f", "c", "m", 1000, T), "cannot be cut"),
        (o.SetQuota("/f", 1, 1), "no directory"),
        (o.SetOwner("/nothing", "a", "b"), "nothing at this path"),
        (o.AddBlock("/f", (block(1, 1),)), "not under construction"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, o.Op) else "",
)
def test_what_does_not_fit_is_refused_with_the_transaction(op: o.Op, why: str) -> None:
    folding = fold([mkdir("/a"), mkdir("/a/b"), *made("/f", 5), *made("/g")])
    before = list(folding.rows())
    with pytest.raises(ReplayError, match=why) as refused:
        fold([op], folding)
    assert f"txid {op.txid}, {op.opcode.hadoop_name}" in str(refused.value)
    assert list(folding.rows()) == before


# --- attributes -------------------------------------------------------------------------------------------------------


def test_attributes_are_columns_or_in_the_rest() -> None:
    entries = (AclEntry(0, 0, 7, None), AclEntry(0, 0, 6, "bob"), AclEntry(1, 0, 5, None), AclEntry(2, 0, 7, None),
               AclEntry(3, 0, 0, None))  # fmt: skip
    folding = fold(
        [
            mkdir("/d"),
            *made("/f"),
            o.SetOwner("/d", "bob", ""),
            o.SetPermissions("/d", 0o1777),
            o.SetQuota("/d", 10, 1 << 40),
            o.SetQuotaByStorageType("/d", 1, 99),
            o.SetStoragePolicy("/d", 7),
            o.Times("/f", T + 1, T + 2),
            o.SetAcl(Acl("/f", entries)),
            o.SetXAttr(XAttrs("/f", (XAttr(0, "k", b"\x00\xff"), XAttr(1, "n", None)))),
            o.RemoveXAttr(XAttrs("/f", (XAttr(1, "n", None),))),
            o.Symlink(path="/l", target="/f", mtime=T, permission=ALICE),
        ]
    )
    found = by_path(folding)
    assert (found["/d"]["owner"], found["/d"]["group"], found["/d"]["permission"]) == ("bob", "staff", "1777")
    assert (found["/d"]["names_quota"], found["/d"]["space_quota"]) == (10, 1 << 40)
    assert found["/d"]["storage_policy_id"] == 7
    assert found["/d"]["rest"] == '{"quota_by_type": {"1": 99}}'
    assert (found["/f"]["mtime"], found["/f"]["atime"]) == ((T + 1) * 1000, (T + 2) * 1000)
    assert found["/f"]["permission"] == "770"
    assert '"xattrs": [[0, "k", "00ff"]]' in found["/f"]["rest"]
    assert (found["/l"]["kind"], found["/l"]["target"], found["/l"]["length"]) == ("symlink", "/f", None)
    assert [found[path]["changed_txid"] for path in ("/d", "/f", "/l", "/")] == [8, 12, 13, 13]
    fold([o.SetQuota("/d", -1, -1), o.SetQuotaByStorageType("/d", 1, -1)], folding)
    assert (by_path(folding)["/d"]["names_quota"], by_path(folding)["/d"]["rest"]) == (None, None)


def test_obsolete_quotas_are_folded_as_well() -> None:
    folding = fold([mkdir("/d")])
    for op in (o.SetNsQuota("/d", 5, txid=2), o.ClearNsQuota("/d", txid=3)):
        folding.apply(op)
        assert by_path(folding)["/d"]["names_quota"] == (5 if op.txid == 2 else None)
        assert by_path(folding)["/d"]["changed_txid"] == op.txid


def test_whose_the_root_is_nobody_knows_until_it_is_said() -> None:
    folding = Fold()
    root = by_path(folding)["/"]
    assert (root["owner"], root["group"], root["permission"], root["made_txid"]) == (None, None, "755", None)
    fold([o.SetOwner("/", "hdfs", "")], folding)
    assert (by_path(folding)["/"]["owner"], by_path(folding)["/"]["group"]) == ("hdfs", None)


def test_a_name_that_is_no_utf_8_is_shown_and_kept() -> None:
    folding = fold([mkdir("/x\ud800"), mkdir("/x\ud800/y")])
    assert set(by_path(folding)) == {"/", "/x\ufffd", "/x\ufffd/y"}
    again = fold([o.Delete("/x\ud800/y", T)], reloaded(folding))
    assert set(by_path(again)) == {"/", "/x\ufffd"}


def test_a_time_that_no_calendar_has_is_null_and_kept() -> None:
    folding = fold([mkdir("/d"), o.Times("/d", 1 << 62, 3)])
    assert by_path(folding)["/d"]["mtime"] is None
    assert by_path(reloaded(folding))["/d"] == by_path(folding)["/d"]


# --- growth -----------------------------------------------------------------------------------------------------------


def test_growth_is_by_the_hour_and_bytes_count_when_a_file_is_closed() -> None:
    later = T + 2 * HOUR_MS
    folding = fold(
        [
            mkdir("/d"),
            add("/d/f"),
            o.AddBlock("/d/f", (block(1, 0),)),
            o.AddBlock("/d/f", (block(1, 100), block(2, 0))),
            close("/d/f", block(1, 100), block(2, 9), mtime=later + 5),
            o.Delete("/d", later + HOUR_MS),
        ]
    )
    folding.finish()
    found = hours(folding.growth)
    assert set(found) == {T, later, later + HOUR_MS}
    assert (found[T]["files_made"], found[T]["directories_made"], found[T]["bytes_added"]) == (1, 1, 0)
    assert (found[later]["bytes_added"], found[later]["operations"]) == (109, 1)
    assert (found[later + HOUR_MS]["bytes_removed"], found[later + HOUR_MS]["files_deleted"]) == (109, 1)


def test_all_bytes_are_in_growth_also_those_of_files_that_are_still_written() -> None:
    folding = fold([add("/open"), o.AddBlock("/open", (block(1, 0),)), o.UpdateBlocks("/open", (block(1, 60),)),
                    *made("/f", 5, first_block=7), o.ConcatDelete("/f", (), T)])  # fmt: skip
    folding.finish()
    found = hours(folding.growth)
    assert found[None]["bytes_added"] == 60
    assert sum(each["bytes_added"] - each["bytes_removed"] for each in found.values()) == folding.count()[3] == 65


def test_a_concatenation_adds_no_bytes() -> None:
    folding = fold([*made("/a", 10), *made("/b", 20, first_block=4), o.ConcatDelete("/a", ("/b",), T + HOUR_MS)])
    numbers = hours(folding.growth)[T + HOUR_MS]
    assert (numbers["bytes_added"], numbers["bytes_removed"], numbers["files_deleted"]) == (0, 0, 1)


def test_an_hour_begins_with_the_hour_and_impossible_times_have_none() -> None:
    assert hour_of(T + 1) == T
    assert hour_of(-1) is None
    assert hour_of(1 << 62) is None
    assert hour_of(-HOUR_MS - 5) == -2 * HOUR_MS
    assert hour_of(None) is None
    assert datetime.datetime.fromtimestamp(T / 1000, datetime.UTC).minute == 0


# --- order, gaps, what is unknown -------------------------------------------------------------------------------------


def test_a_gap_and_a_repetition_are_refused() -> None:
    folding = fold([mkdir("/a")])
    for txid, what in ((3, "missing"), (1, "folded before")):
        op = mkdir("/b")
        op.txid = txid
        with pytest.raises(GapInTransactions, match=f"expected txid 2, but got txid {txid}.*{what}"):
            folding.take(encode(op, HADOOP_2_7), HADOOP_2_7)


@pytest.mark.parametrize(
    ("opcode", "layout", "told"),
    [
        (77, HADOOP_2_7, "opcode 77 is no operation"),
        (5, HADOOP_2_7, "opcode 5 (OP_DATANODE_ADD) is obsolete"),
        (int(OpCode.OPAQUE), OPAQUE, "opcode 112 (OP_OPAQUE) is another server's own"),
        (int(OpCode.MKDIR), OPAQUE, "opcode 3 (OP_MKDIR) has no place in layout 1"),
    ],
)
def test_an_operation_that_is_not_known_is_no_empty_change(opcode: int, layout: int, told: str) -> None:
    record = encode_record(opcode, 1, b"x")
    with pytest.raises(UnknownOp) as refused:
        Fold().take(record, layout)
    assert "txid 1" in str(refused.value)
    assert told in str(refused.value)
    assert "skip_unknown" in str(refused.value)
    passing = Fold(skip_unknown=True)
    passing.take(record, layout)
    assert passing.counts == {(opcode, UNKNOWN): 1}
    assert passing.last_txid == 1


def test_a_body_that_is_cut_short_is_no_unknown_operation() -> None:
    with pytest.raises(EditsCorrupt, match=r"txid 1: the body of OP_MKDIR is cut short"):
        Fold(skip_unknown=True).take(encode_record(OpCode.MKDIR, 1, b"x"), HADOOP_2_7)


def test_records_of_layouts_without_length_and_inode_ids_are_folded() -> None:
    folding = Fold()
    ops: list[o.Op] = [mkdir("/d"), add("/d/f"), close("/d/f", block(1, 5)), o.Rename("/d", "/e", T)]
    for txid, op in enumerate(ops, 1):
        op.txid = txid
        folding.take(record_without_length(op, -40), -40)
    assert {path: row["inode_id"] for path, row in by_path(folding).items()} == {"/": 16385, "/e": 16386, "/e/f": 16387}
    fold([mkdir("/next")], again := reloaded(fold([o.Delete("/e", T)], folding, HADOOP_2_7)))
    assert by_path(again)["/next"]["inode_id"] == 16388  # ids of what is gone are not given again


def test_a_segment_of_a_genuine_name_node() -> None:
    """Records of journalmgr/FORMATS.md 11.1, cut where their lengths say."""
    data, folding, at = b"".join(ENTRIES), Fold(), 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big") + 5
        folding.take(data[at : at + size], HADOOP_2_7)
        at += size
    found = by_path(folding)
    assert set(found) == {"/", "/a", "/a/b", "/c", "/c/g"}
    assert (found["/c"]["permission"], found["/c/g"]["inode_id"], found["/c/g"]["length"]) == ("700", 16389, 0)
    assert (found["/c/g"]["made_txid"], found["/c/g"]["changed_txid"]) == (5, 8)
    assert sum(folding.counts.values()) == len(OPCODES)
    assert folding.counts[int(OpCode.MKDIR), FOLDED] == 3


# --- going on from a snapshot -----------------------------------------------------------------------------------------


def story() -> list[o.AnyOp]:
    """Everything that a later run may find something of."""
    rpc = RpcIds(bytes(16), 3)
    return [
        o.StartLogSegment(),
        mkdir("/a"),
        mkdir("/a/b"),
        add("/a/open", client_name="w"),
        o.AddBlock("/a/open", (block(1, 0),)),
        *made("/a/b/f", 100, 20, first_block=3),
        o.SetQuota("/a", 50, 1 << 30),
        o.SetQuotaByStorageType("/a", 2, 77),
        o.SetXAttr(XAttrs("/a/b/f", (XAttr(0, "k", b"v"),)), rpc),
        o.Symlink(path="/a/l", target="../x", mtime=T, permission=ALICE),
        o.UpdateMasterKey(DelegationKey(1, 1, b"")),
        o.AddCachePool(CachePool("pool")),
        o.RenameOld("/a/b", "/c", T + 1),
        o.AddBlock("/a/open", (block(1, 100), block(2, 0))),
        close("/a/open", block(1, 100), block(2, 1)),
        o.Append("/c/f", "x", "y"),
        o.RemoveXAttr(XAttrs("/c/f", (XAttr(0, "k", b"v"),))),
        close("/c/f", Block(3, 100, 1003), Block(4, 30, 1009)),
        o.RemoveCachePool("pool"),
        o.Truncate("/c/f", "x", "y", 100, T + 3),
        o.Delete("/a/l", T + 4),
        mkdir("/a/new"),
        add("/a/left", client_name="w"),
        o.AddBlock("/a/left", (block(30, 0),)),
        o.UpdateBlocks("/a/left", (block(30, 44),)),
        o.EndLogSegment(),
    ]


def test_a_fold_in_two_runs_gives_the_rows_and_growth_of_one_wherever_it_is_cut() -> None:
    whole = fold(story())
    whole.finish()
    expected, grown = sorted(whole.rows()), added_up(whole.growth)
    for cut in range(len(story()) + 1):
        ops = story()
        first = fold(ops[:cut])
        first.finish()
        second = fold(ops[cut:], reloaded(first))
        second.finish()
        assert sorted(second.rows(), key=lambda row: row[0]) == expected, f"cut behind txid {cut}"
        assert (second.last_txid, second.count()) == (whole.last_txid, whole.count())
        assert added_up(first.growth, second.growth) == grown, f"cut behind txid {cut}"


def added_up(*found: Growth) -> dict[int | None, Counter[str]]:
    """The sums of several runs, as SQL makes them: no row where nothing is left."""
    sums: dict[int | None, Counter[str]] = {}
    for each in found:
        for hour, numbers in hours(each).items():
            sums.setdefault(hour, Counter()).update(numbers)
    return {hour: numbers for hour, numbers in sums.items() if any(numbers.values())}


def loaded(rows: Sequence[dict[str, Any]]) -> FoldedTree:
    loading = TreeLoading(9, 20000)
    for row in rows:
        loading.add(inode_of({**row, "blocks": []}))
    return loading.finish()


def test_rows_that_are_no_tree_are_refused() -> None:
    rows = dicts(fold([mkdir("/a", 20001), mkdir("/a/b", 20002), mkdir("/c", 20003)]))
    by_name = {row["name"]: row for row in rows}
    for wrong, why in (
        (rows[1:], "no root"),
        ([*rows, by_name["c"]], "twice"),
        ([row for row in rows if row["name"] != "a"], "parent of inode 20002, 20001"),
        ([*rows, {**by_name["c"], "inode_id": 7}], "are called 'c'"),
        ([row if row["name"] != "a" else {**row, "parent_id": 20002} for row in rows], "2 of its inodes are not below"),
    ):
        with pytest.raises(EditsError, match=why):
            loaded(wrong)
