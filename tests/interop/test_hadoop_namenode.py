"""A genuine NameNode on a name directory whose edits are ours, its own, and ours again.

It is formatted by Hadoop; files of ours are put into its directory while it does not run, as FileJournal would leave
them. What it serves tells what it made of them. No DataNode runs: blocks are known by their transactions alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from journalmgr.edits.file import EditsFileName, padding
from journalmgr.edits.ops import (
    Add,
    AllowSnapshot,
    Close,
    CreateSnapshot,
    Delete,
    EndLogSegment,
    Mkdir,
    RenameOld,
    RenameSnapshot,
    SetXAttr,
    StartLogSegment,
)
from journalmgr.model import TxId
from journalmgr.namenode.errors import NotPossible
from journalmgr.namenode.namespace import tree as inodes
from journalmgr.namenode.namespace.apply import apply_all
from journalmgr.namenode.namespace.operations import Caller, Requests
from tests.support.hadoop import HadoopTool
from tests.support.hadoop.edits import assert_read_alike, our_reading
from tests.support.hadoop.script import BLOCK_SIZE, DIRECTORY_MODE, ODD, RPC, Script, T, busy_script, names_of, put
from tests.support.hadoop.served import SHOWN, shown
from tests.support.java_programs import CommandFailed


def test_a_namenode_serves_what_our_segment_says(hadoop: HadoopTool, name_directory: Path) -> None:
    script = busy_script()
    script.do(
        AllowSnapshot("/d"),
        CreateSnapshot("/d", "s1", rpc=RPC),
        RenameSnapshot("/d", "s1", ODD, rpc=RPC),
        Delete("/d/cut", T + 6, RPC),
    )
    last_txid = put(name_directory, script.ended(), 1)

    assert hadoop.start(name_directory) == last_txid
    tree = hadoop.tree()

    assert sorted(tree) == sorted(["/", "/d", "/d/old", "/d/open", "/d/part-1", f"/d/{ODD}", f"/d/{ODD}/two", "/link"])
    assert (tree["/d"]["quota"], tree["/d"]["space_quota"]) == (1000, 1 << 40)
    assert tree[f"/d/{ODD}"]["mtime"] == T + 1
    assert tree[f"/d/{ODD}"]["acl"][:2] == ["user:bob:rw-", "group::r-x"]
    assert tree[f"/d/{ODD}/two"] == {
        "kind": "file",
        "owner": "bob",
        "group": "staff",
        "mode": 0o640,
        "mtime": T + 100,
        "xattrs": {},
        "acl": [],
        "length": BLOCK_SIZE + 17,
        "blocks": 2,
        "replication": 2,
        "block_size": BLOCK_SIZE,
        "atime": T + 200,
    }
    assert tree["/link"] == {
        "kind": "link",
        "owner": "alice",
        "group": "staff",
        "mode": DIRECTORY_MODE,
        "target": "/d/cut",
    }
    assert (tree["/d/part-1"]["length"], tree["/d/part-1"]["blocks"]) == (2 * BLOCK_SIZE, 2)

    # What was deleted is in the snapshot, as it was cut.
    cut = hadoop.tree(f"/d/.snapshot/{ODD}/cut")
    assert [(file["length"], file["xattrs"]) for file in cut.values()] == [(BLOCK_SIZE, {"user.kind": "00ff"})]


def test_ours_theirs_and_ours_again_are_one_log(hadoop: HadoopTool, name_directory: Path) -> None:
    """The NameNode goes on behind our segment, then ours goes on behind its own; each reads all of both."""
    ours = Script()
    ours.mkdir("/ours")
    last_txid = put(name_directory, ours.ended(), 1)
    assert hadoop.start(name_directory) == last_txid
    hadoop.fs("mkdir", "/ours/theirs")
    hadoop.fs("create", f"/ours/theirs/{ODD}")
    hadoop.fs("rename", f"/ours/theirs/{ODD}", "/ours/theirs/file")
    hadoop.fs("xattr", "/ours/theirs/file", "user.a", "b")
    (second_txid,) = map(int, hadoop.fs("roll"))
    hadoop.fs("mkdir", "/ours/rolled")

    # It runs: one segment of its own is finalised, the other has the padding of a file in progress.
    finalised = EditsFileName(TxId(last_txid + 1), TxId(second_txid - 1))
    in_progress = EditsFileName(TxId(second_txid), None)
    assert str(finalised) in names_of(name_directory)
    ops = assert_read_alike(hadoop, name_directory / "current" / str(finalised))
    assert [type(op) for op in ops] == [StartLogSegment, Mkdir, Add, Close, RenameOld, SetXAttr, EndLogSegment]
    assert (name_directory / "current" / str(in_progress)).stat().st_size >= len(padding())
    ops = assert_read_alike(hadoop, name_directory / "current" / str(in_progress))
    assert [type(op) for op in ops] == [StartLogSegment, Mkdir]

    hadoop.stop()  # which ends its segment
    ops = assert_read_alike(
        hadoop, name_directory / "current" / str(EditsFileName(TxId(second_txid), TxId(second_txid + 2)))
    )
    again = [StartLogSegment(), RenameOld("/ours/theirs", "/ours/ours", T, RPC), EndLogSegment()]
    last_txid = put(name_directory, again, ops[-1].txid + 1)

    assert hadoop.start(name_directory) == last_txid
    tree = hadoop.tree()
    assert sorted(tree) == ["/", "/ours", "/ours/ours", "/ours/ours/file", "/ours/rolled"]
    assert tree["/ours/ours/file"]["xattrs"] == {"user.a": b"b".hex()}


def test_a_namenode_recovers_a_segment_that_our_writer_left_in_progress(
    hadoop: HadoopTool, name_directory: Path
) -> None:
    script = Script()
    script.mkdir("/left")
    script.create("/left/file")
    last_txid = put(name_directory, script.ops, 1, in_progress=True)

    assert hadoop.start(name_directory) == last_txid
    assert sorted(hadoop.tree()) == ["/", "/left", "/left/file"]
    recovered = name_directory / "current" / str(EditsFileName(TxId(1), TxId(last_txid)))
    assert our_reading(recovered.read_bytes()).ops == script.ops


def test_our_namespace_is_what_a_namenode_serves_after_the_same_transactions(
    hadoop: HadoopTool, name_directory: Path
) -> None:
    """Those of ours, and those that it logs for a client; it loads all of them again."""
    put(name_directory, busy_script().ended(), 1)
    hadoop.start(name_directory)
    hadoop.fs("mkdir", f"/c/{ODD}/deep")
    hadoop.fs("mkdir", f"/d/{ODD}/inherits")
    hadoop.fs("create", "/c/file")
    hadoop.fs("create", "/c/file-2")
    hadoop.fs("rename", "/c/file", f"/c/{ODD}")
    hadoop.fs("replace", "/c/file-2", f"/c/{ODD}/file")
    hadoop.fs("chmod", f"/c/{ODD}", "1751")
    hadoop.fs("chown", f"/c/{ODD}", "carol", "some")
    hadoop.fs("xattr", f"/c/{ODD}", "user.kind", "value")
    hadoop.fs("delete", f"/d/{ODD}/two")
    hadoop.stop()
    namespace = inodes.Namespace()
    for name in names_of(name_directory):
        apply_all(our_reading((name_directory / "current" / name).read_bytes()).ops, namespace)

    assert hadoop.start(name_directory) == namespace.last_txid
    theirs = hadoop.tree()
    assert len(theirs) > 12
    assert {inodes.path_of(inode): shown(inode) for inode in inodes.subtree(namespace.root)} == {
        path: {name: value for name, value in told.items() if name in SHOWN} for path, told in theirs.items()
    }


def test_a_namenode_refuses_the_names_that_ours_refuses(hadoop: HadoopTool, name_directory: Path) -> None:
    put(name_directory, busy_script().ended(), 1)
    hadoop.start(name_directory)
    hadoop.fs("create", "/c/file")
    requests = inodes.Namespace()
    for words in (("mkdir", "/c/.snapshot/x"), ("mkdir", "/.reserved"), ("rename", "/c/file", "/c/.snapshot")):
        with pytest.raises(CommandFailed, match=r"HadoopIllegalArgumentException.* reserved"):
            hadoop.fs(*words)
        with pytest.raises(NotPossible, match="reserved name") as ours:
            Requests(requests).mkdirs(words[-1], Caller("alice"), 1)
        assert ours.value.hadoop_name.endswith(".HadoopIllegalArgumentException")
    hadoop.stop()
