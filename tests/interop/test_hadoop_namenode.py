"""A genuine NameNode on a name directory whose edits are ours, its own, and ours again.

It is formatted by Hadoop; files of ours are put into its directory while it does not run, as FileJournal would leave
them. What it serves tells what it made of them. No DataNode runs: blocks are known by their transactions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from journalmgr.edits.fields import (
    Acl,
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    Permission,
    RpcIds,
    TokenIdentifier,
    XAttr,
    XAttrs,
)
from journalmgr.edits.file import EditsFileName, padding
from journalmgr.edits.ops import (
    Add,
    AddBlock,
    AddCacheDirective,
    AddCachePool,
    AllocateBlockId,
    AllowSnapshot,
    AnyOp,
    Append,
    Close,
    ConcatDelete,
    CreateSnapshot,
    Delete,
    EndLogSegment,
    GetDelegationToken,
    Mkdir,
    ModifyCachePool,
    ReassignLease,
    RemoveXAttr,
    Rename,
    RenameOld,
    RenameSnapshot,
    SetAcl,
    SetGenstampV2,
    SetOwner,
    SetPermissions,
    SetQuota,
    SetReplication,
    SetStoragePolicy,
    SetXAttr,
    StartLogSegment,
    Symlink,
    Times,
    Truncate,
    UpdateBlocks,
    UpdateMasterKey,
)
from journalmgr.model import TxId
from journalmgr.namenode import namespace as inodes
from journalmgr.namenode.apply import apply_all
from tests.support.hadoop import HadoopTool
from tests.support.hadoop.edits import assert_read_alike, our_reading, write_edits

T = 1_700_000_000_000
FIRST_INODE_ID = 16386  # the root has the one before
FIRST_BLOCK_ID = 1 << 30
FIRST_STAMP = 1001
BLOCK_SIZE = 1 << 20
DIRECTORY_MODE, FILE_MODE = 0o755, 0o644
ALICE = Permission("alice", "staff", DIRECTORY_MODE)
ALICES_FILE = ALICE._replace(mode=FILE_MODE)
RPC = RpcIds(bytes(range(16)), 7)
ODD = "träger-日本-\U0001d11e"
"""A name with characters of one, two, three and four bytes."""


class Script:
    """Transactions of a NameNode, with inode ids, block ids and generation stamps counted as it does."""

    def __init__(self) -> None:
        self.ops: list[AnyOp] = [StartLogSegment()]
        self._inode_id, self._block_id, self._stamp = FIRST_INODE_ID, FIRST_BLOCK_ID, FIRST_STAMP

    def do(self, *ops: AnyOp) -> None:
        self.ops += ops

    def inode_id(self) -> int:
        self._inode_id += 1
        return self._inode_id - 1

    def mkdir(self, path: str) -> None:
        self.do(Mkdir(self.inode_id(), path, T, T, ALICE))

    def create(self, path: str, *sizes: int) -> None:
        """A closed file of blocks of these sizes."""
        add = Add(self.inode_id(), path, 3, T, T, BLOCK_SIZE, (), ALICES_FILE, client_name="c", client_machine="m")
        self.do(add)
        blocks: list[Block] = []
        for size in sizes:
            self.do(AllocateBlockId(self._block_id), SetGenstampV2(self._stamp))
            blocks.append(Block(self._block_id, 0, self._stamp))
            self.do(AddBlock(path, tuple(blocks[-2:])))
            blocks[-1] = blocks[-1]._replace(size=size)
            self._block_id, self._stamp = self._block_id + 1, self._stamp + 1
        self.do(Close(0, path, 3, T, T, BLOCK_SIZE, tuple(blocks), ALICES_FILE))

    def ended(self) -> Sequence[AnyOp]:
        return [*self.ops, EndLogSegment()]


def put(directory: Path, ops: Sequence[AnyOp], first_txid: int, *, in_progress: bool = False) -> int:
    """A segment of ours in a name directory; its last txid."""
    last_txid = first_txid + len(ops) - 1
    name = EditsFileName(TxId(first_txid), None if in_progress else TxId(last_txid))
    path = write_edits(directory / "current" / str(name), ops, first_txid)
    if in_progress:
        path.write_bytes(path.read_bytes() + padding())
    return last_txid


def names_of(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "current").glob("edits_*"))


def busy_script() -> Script:
    """Files, directories and links; what is done to them. No snapshots."""
    script = Script()
    script.mkdir("/d")
    script.mkdir(f"/d/{ODD}")
    script.create("/d/one", BLOCK_SIZE, 17)
    script.create("/d/gone")
    script.create("/d/part-1", BLOCK_SIZE)
    script.create("/d/part-2", BLOCK_SIZE)
    script.create("/d/cut", BLOCK_SIZE, BLOCK_SIZE)
    script.create("/d/old")
    script.create("/d/new")
    script.create("/d/open")
    acl = (
        AclEntry(0, 0, 7, None),
        AclEntry(0, 0, 6, "bob"),
        AclEntry(1, 0, 5, None),
        AclEntry(2, 0, 7, None),
        AclEntry(3, 0, 0, None),
        AclEntry(0, 1, 7, None),
        AclEntry(0, 1, 4, "bob"),
        AclEntry(1, 1, 5, None),
        AclEntry(2, 1, 5, None),
        AclEntry(3, 1, 0, None),
    )
    script.do(
        RenameOld("/d/one", f"/d/{ODD}/two", T + 1, RPC),
        Rename("/d/new", "/d/old", T + 2, (1,), RPC),
        Delete("/d/gone", T + 3, RPC),
        ConcatDelete("/d/part-1", ("/d/part-2",), T + 4, RPC),
        Truncate("/d/cut", "c", "m", BLOCK_SIZE, T + 5),
        Append("/d/open", "c", "m"),
        ReassignLease("c", "/d/open", "other"),
        UpdateBlocks("/d/open", ()),
        SetPermissions(f"/d/{ODD}/two", 0o640),
        SetOwner(f"/d/{ODD}/two", "bob", ""),
        SetReplication(f"/d/{ODD}/two", 2),
        Times(f"/d/{ODD}/two", T + 100, T + 200),
        Symlink(script.inode_id(), "/link", "/d/cut", T, T, ALICE),
        SetQuota("/d", 1000, 1 << 40),
        SetStoragePolicy("/d", 7),
        SetAcl(Acl(f"/d/{ODD}", acl)),
        SetXAttr(XAttrs("/d/cut", (XAttr(0, "kind", b"\x00\xff"), XAttr(0, "other", None)))),
        RemoveXAttr(XAttrs("/d/cut", (XAttr(0, "other", None),))),
        UpdateMasterKey(DelegationKey(1, 1 << 42, b"key")),
        GetDelegationToken(TokenIdentifier(0, "alice", "renewer", "", T, 1 << 42, 1, 1), 1 << 42),
        AddCachePool(CachePool("pool", "alice", "staff", 0o755, 1 << 30, 1 << 40)),
        ModifyCachePool(CachePool("pool", limit=1 << 31)),
        AddCacheDirective(CacheDirective(1, "/d", 1, "pool", 1 << 42)),
    )
    return script


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


def acl_text(entry: AclEntry) -> str:
    """As Hadoop prints it."""
    bits = "".join(letter if entry.permission & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
    kind = ("user", "group", "mask", "other")[entry.type]
    return f"{'default:' if entry.scope else ''}{kind}:{entry.name or ''}:{bits}"


SHOWN = {
    *("kind", "owner", "group", "mode", "mtime", "atime", "length"),
    *("blocks", "replication", "block_size", "target", "xattrs", "acl"),
}


def shown(inode: inodes.Inode) -> dict[str, Any]:
    """As HadoopTool's `tree` tells it."""
    told: dict[str, Any] = {"owner": inode.permission.user, "group": inode.permission.group}
    told["mode"] = inode.permission.mode
    if isinstance(inode, inodes.Symlink):
        return told | {"kind": "link", "target": inode.target}
    told["mtime"] = inode.mtime
    told["acl"] = [acl_text(entry) for entry in inode.acl]
    told["xattrs"] = {f"user.{item.name}": (item.value or b"").hex() for item in inode.xattrs}
    if isinstance(inode, inodes.Directory):
        return told | {"kind": "directory"}
    assert isinstance(inode, inodes.File)
    return told | {
        "kind": "file",
        "length": inode.length,
        "blocks": len(inode.blocks),
        "replication": inode.replication,
        "block_size": inode.block_size,
        "atime": inode.atime,
    }
