"""Transactions of a NameNode as a script, and name directories whose edits are ours.

No DataNode is needed: blocks are known by their transactions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    AnyOp,
    Append,
    Close,
    ConcatDelete,
    Delete,
    EndLogSegment,
    GetDelegationToken,
    Mkdir,
    ModifyCachePool,
    ReassignLease,
    RemoveXAttr,
    Rename,
    RenameOld,
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
from tests.support.hadoop.edits import write_edits

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
