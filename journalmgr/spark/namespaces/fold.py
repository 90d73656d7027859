"""The fold: transactions, one after the other, onto a tree of inodes. Pure.

    whole records, by txid --decode--> operations --`namenode.apply`--> tree --> rows of inodes
                                          |                              '-----> growth by the hour
                                          '--> counted: folded, passed over, unknown

It is sequential by nature: what an operation's path means depends on every rename before it. The rules are those by
which a standby follows its active (`namenode.apply`): nothing is guessed, and what does not fit is an error, for then
the journal is damaged or is not about this tree. A rename moves an inode with all below it in one step, as no inode
knows its path; usage of quotas is not kept up for the same reason.

Every operation is in one of three classes:

    folded        changes the tree
    passed over   known to leave the tree as it is: marks of segments, block ids and stamps, tokens, caches, upgrades,
                  policies for erasure coding; snapshots of HDFS, which keep what was and not what is (the time that
                  they give their directory is not in the log before layout -66, and is not followed)
    unknown       everything else: an error, unless whoever folds chose to pass it over

Invariants: txids are consecutive; equal transactions give equal rows, also where they were folded in several runs, each
from the rows of the one before.

Bounds: the tree, with two numbers more for each inode; growth.HOURS_MAX hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from journalmgr.edits import ops as o
from journalmgr.edits.codec import decode
from journalmgr.edits.fields import Block, Permission
from journalmgr.edits.frame import split_record
from journalmgr.edits.opcodes import HADOOP_3_ONLY, OpCode
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions, UnknownOp
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.tree import ROOT_INODE_ID, Directory, File, Inode, Lease, Namespace, Symlink, subtree
from journalmgr.spark.namespaces.growth import Change, Growth
from journalmgr.spark.namespaces.inode_rows import Loaded, Notes, row_of, shown

FOLDED, PASSED_OVER, UNKNOWN = "folded", "passed over", "unknown"
"""What became of an operation."""

ROOT_MODE = 0o755
"""Of a namespace that was just formatted. Whose it is the journal does not say: null until a SET_OWNER does."""

SOURCE = "the edit log"

_TIME_OF: Mapping[type[o.Op], str] = {
    **dict.fromkeys((o.Add, o.Close, o.Mkdir, o.Symlink), "mtime"),
    **dict.fromkeys((o.Delete, o.RenameOld, o.Rename, o.ConcatDelete, o.Truncate), "timestamp"),
}
"""The field that says when an operation was done."""

_CHANGED: Mapping[type[o.Op], Callable[[Any], str]] = {
    **dict.fromkeys((o.SetPermissions, o.SetOwner, o.SetQuota, o.SetQuotaByStorageType), lambda op: op.src),
    **dict.fromkeys((o.SetNsQuota, o.ClearNsQuota), lambda op: op.src),
    **dict.fromkeys((o.Times, o.SetStoragePolicy, o.ReassignLease), lambda op: op.path),
    **dict.fromkeys((o.SetXAttr, o.RemoveXAttr), lambda op: op.xattrs.src or ""),
    o.SetAcl: lambda op: op.acl.src,
}
"""The path of what an operation changes, where the tree does not notice by itself."""

CHANGING = frozenset(
    {
        *_TIME_OF,
        *_CHANGED,
        *(o.Append, o.AddBlock, o.UpdateBlocks, o.SetReplication),
    }
)
"""Operations that change the tree."""

NOT_CHANGING = frozenset(
    {
        *(o.StartLogSegment, o.EndLogSegment, o.AllocateBlockId, o.SetGenstampV1, o.SetGenstampV2),
        *(o.RollingUpgradeStart, o.RollingUpgradeFinalize),
        *(o.GetDelegationToken, o.RenewDelegationToken, o.CancelDelegationToken, o.UpdateMasterKey),
        *(o.AddCacheDirective, o.ModifyCacheDirective, o.RemoveCacheDirective),
        *(o.AddCachePool, o.ModifyCachePool, o.RemoveCachePool),
        *(o.AllowSnapshot, o.DisallowSnapshot, o.CreateSnapshot, o.DeleteSnapshot, o.RenameSnapshot),
    }
)
"""Operations that leave it as it is; besides them those of HADOOP_3_ONLY, which are about a table of policies."""

_NAMES = {int(opcode): opcode.hadoop_name for opcode in OpCode}


class FoldedTree(Namespace):
    """A namespace that notes which transaction made and which one changed each inode, and what comes and goes.

    made: an inode's id -> txid. changed: the last transaction about it, or that put something into it or took it out,
    where that is not the one that made it. coded: the policy of files that are erasure coded, not copied.
    waiting: bytes of files that no operation with a time has followed yet, by the file's id.
    change: what the transaction that is being applied makes of the numbers; is_timed: it says when that is.
    """

    def __init__(self) -> None:
        super().__init__("", "", ROOT_MODE, counts_usage=False)
        self.made: dict[int, int] = {}
        self.changed: dict[int, int] = {}
        self.coded: dict[int, int] = {}
        self.change = Change()
        self.net_bytes = 0
        self.is_timed = True
        self.waiting: dict[int, int] = {}
        self._permissions: dict[Permission, Permission] = {}

    @property
    def waiting_bytes(self) -> int:
        """Bytes that no operation with a time has followed yet."""
        return sum(self.waiting.values())

    def notes_of(self, inode: Inode) -> Notes:
        """What is known of an inode besides."""
        made = self.made.get(inode.id)
        return Notes(made, self.changed.get(inode.id, made), self.coded.get(inode.id), self.waiting.get(inode.id, 0))

    def share(self, inode: Inode) -> None:
        """Have inodes of one owner, group and mode have them in one object: there are few, and many inodes."""
        inode.permission = self._permissions.setdefault(inode.permission, inode.permission)

    def touch(self, inode: Inode) -> None:
        """Note that the transaction that is being applied changes it."""
        self.changed[inode.id] = self.last_txid + 1

    def grow(self, inode: Inode, size: int) -> None:
        """Note that a file has so many bytes more, or less."""
        size += self.waiting.pop(inode.id, 0)
        if self.is_timed:
            self.net_bytes += size
        elif size:
            self.waiting[inode.id] = size

    def attach(self, parent: Directory, inode: Inode) -> None:
        """As `Namespace` does."""
        super().attach(parent, inode)
        self.share(inode)
        self.made[inode.id] = self.last_txid + 1
        self.touch(parent)
        if isinstance(inode, File):
            self.change.files_made += 1
            self.grow(inode, inode.length)
        elif isinstance(inode, Directory):
            self.change.directories_made += 1
        else:
            self.change.symlinks_made += 1

    def detach(self, inode: Inode) -> None:
        """As `Namespace` does."""
        parent = inode.parent
        for node in subtree(inode):
            self.made.pop(node.id, None)
            self.changed.pop(node.id, None)
            if isinstance(node, File):
                self.change.files_deleted += 1
                self.coded.pop(node.id, None)
                self.grow(node, -node.length)
            elif isinstance(node, Directory):
                self.change.directories_deleted += 1
            else:
                self.change.symlinks_deleted += 1
        super().detach(inode)
        if parent is not None:
            self.touch(parent)

    def move(self, inode: Inode, parent: Directory, name: str) -> None:
        """As `Namespace` does."""
        if inode.parent is not None:
            self.touch(inode.parent)
        super().move(inode, parent, name)
        self.touch(inode)
        self.touch(parent)

    def rewrite(self, file: File, blocks: tuple[Block, ...], lease: Lease | None, replication: int) -> None:
        """As `Namespace` does."""
        before = file.length
        super().rewrite(file, blocks, lease, replication)
        self.touch(file)
        self.grow(file, file.length - before)


class TreeLoading:
    """A tree out of the rows of a snapshot, which come in any order. txid: the last that is in them.

    last_inode_id: the greatest that was ever given, for layouts whose operations name none.
    """

    def __init__(self, txid: int, last_inode_id: int) -> None:
        self._tree = FoldedTree()
        self._tree.last_txid, self._tree.last_inode_id = txid, last_inode_id
        self._parents: dict[int, int | None] = {}
        self.count = 0

    def add(self, loaded: Loaded) -> None:
        """One row. Raises EditsCorrupt for an inode that was there already."""
        inode, notes = loaded.inode, loaded.notes
        if inode.id in self._parents:
            raise _no_tree(f"inode {inode.id} is in it twice")
        self._parents[inode.id] = loaded.parent_id
        tree = self._tree
        tree.share(inode)
        tree.inodes[inode.id] = inode
        if inode.id == ROOT_INODE_ID:
            if not isinstance(inode, Directory):
                raise _no_tree("its root is no directory")
            tree.root = inode
        if notes.made_txid is not None:
            tree.made[inode.id] = notes.made_txid
        if notes.changed_txid is not None and notes.changed_txid != notes.made_txid:
            tree.changed[inode.id] = notes.changed_txid
        if notes.erasure_coding_policy_id is not None:
            tree.coded[inode.id] = notes.erasure_coding_policy_id
        if notes.waiting_bytes:
            tree.waiting[inode.id] = notes.waiting_bytes
        if isinstance(inode, File) and inode.lease is not None:
            tree.open_files[inode.id] = inode
        self.count += 1

    def finish(self) -> FoldedTree:
        """The tree. Raises EditsCorrupt where the rows are none."""
        tree = self._tree
        if ROOT_INODE_ID not in self._parents:
            raise _no_tree(f"it has no root, inode {ROOT_INODE_ID}")
        for inode_id, parent_id in self._parents.items():
            if inode_id == ROOT_INODE_ID:
                continue
            inode = tree.inodes[inode_id]
            parent = tree.inodes.get(parent_id or 0)
            if not isinstance(parent, Directory):
                raise _no_tree(f"the parent of inode {inode_id}, {parent_id}, is no directory in it")
            if inode.name in parent.children:
                raise _no_tree(f"two inodes of directory {parent_id} are called {inode.name!r}")
            parent.children[inode.name] = inode
            inode.parent = parent
        reached = sum(1 for _ in _below(tree.root))
        if reached != len(tree.inodes):
            raise _no_tree(f"{len(tree.inodes) - reached} of its inodes are not below the root")
        self._parents = {}
        return tree


def _below(root: Directory) -> Iterator[Inode]:
    waiting: list[Inode] = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Directory):
            waiting += node.children.values()


def _no_tree(why: str) -> EditsCorrupt:
    return EditsCorrupt(f"{why}: take another, or fold from the first transaction", source="the snapshot")


class Fold:
    """Takes whole records in the order of their txids.

    tree: what the first of them finds, and its last txid; by default that of a namespace that was just formatted.
    skip_unknown: pass over operations whose meaning is not known, and count them.
    """

    def __init__(self, tree: FoldedTree | None = None, *, skip_unknown: bool = False) -> None:
        self.tree = FoldedTree() if tree is None else tree
        self.growth = Growth()
        self.counts: Counter[tuple[int, str]] = Counter()
        """(opcode, FOLDED, PASSED_OVER or UNKNOWN) -> how many."""
        self._skip_unknown = skip_unknown
        if waiting := self.tree.waiting_bytes:
            self.growth.at(None).take_back(waiting)  # the run that it comes from counted it without a time

    @property
    def last_txid(self) -> int:
        """Of the last transaction that was folded."""
        return self.tree.last_txid

    def take(self, data: bytes, layout_version: int) -> None:
        """The next record, whose checksum was verified before.

        Raises GapInTransactions, UnknownOp, EditsCorrupt, ReplayError; nothing was changed then.
        """
        record = split_record(data, layout_version)
        expected = self.tree.last_txid + 1
        if record.txid != expected:
            raise GapInTransactions(
                f"{SOURCE}: expected txid {expected}, but got txid {record.txid}: "
                + ("transactions between them are missing" if record.txid > expected else "it was folded before"),
                expected=expected,
                found=record.txid,
            )
        try:
            op = decode(record, layout_version)
        except UnknownOp as error:
            self._unknown(record.opcode, record.txid, error.why)
            return
        except EditsError as error:
            raise type(error)(error.why, source=SOURCE, txid=record.txid) from error
        self.apply(op)

    def apply(self, op: o.AnyOp) -> None:
        """The next operation, whose txid must be the next. Raises as `take`."""
        opcode = int(op.opcode)
        if type(op) in NOT_CHANGING or opcode in HADOOP_3_ONLY:
            self.tree.last_txid = op.txid
            self.counts[opcode, PASSED_OVER] += 1
            return
        if isinstance(op, o.RawOp) or type(op) not in CHANGING:
            name = f"opcode {opcode}" + (f" ({_NAMES[opcode]})" if opcode in _NAMES else "")
            self._unknown(opcode, op.txid, f"{name} is another server's own: what it changes is not known")
            return
        self._change(op)
        self.counts[opcode, FOLDED] += 1

    def _change(self, op: o.Op) -> None:
        tree, kind = self.tree, type(op)
        time_of = _TIME_OF.get(kind)
        ms = None if time_of is None else getattr(op, time_of)
        change = tree.change = Change() if ms is None else self.growth.at(ms)
        tree.net_bytes, tree.is_timed = 0, ms is not None
        path_of = _CHANGED.get(kind)
        if path_of is None:
            apply(op, tree)
            if isinstance(op, o.Add) and op.erasure_coding_policy_id:
                self._note_coded(op)
        else:
            self._apply_to(op, path_of(op))
        if ms is not None:
            change.operations += 1
            change.add_bytes(tree.net_bytes)

    def _apply_to(self, op: o.Op, path: str) -> None:
        inode = self.tree.find(path)
        before = inode.length if isinstance(inode, File) else 0
        apply(op, self.tree)
        assert inode is not None, "otherwise it was refused"
        self.tree.changed[inode.id] = op.txid
        if isinstance(inode, File):
            self.tree.grow(inode, inode.length - before)

    def _note_coded(self, op: o.Add) -> None:
        inode = self.tree.find(op.path)
        if isinstance(inode, File) and self.tree.made.get(inode.id) == op.txid:
            self.tree.coded[inode.id] = op.erasure_coding_policy_id

    def _unknown(self, opcode: int, txid: int, why: str) -> None:
        if not self._skip_unknown:
            raise UnknownOp(
                f"{why}; the namespace behind it cannot be told. To pass over such operations, and count them, choose "
                "skip_unknown (--skip-unknown)",
                source=SOURCE,
                txid=txid,
            )
        self.tree.last_txid = txid
        self.counts[opcode, UNKNOWN] += 1

    def finish(self) -> None:
        """No more will come: what waits for an operation with a time counts without one."""
        if waiting := self.tree.waiting_bytes:
            self.growth.at(None).add_bytes(waiting)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every inode as `inode_rows.COLUMNS`, directories before what is in them."""
        tree = self.tree
        waiting: list[tuple[Inode, str | None]] = [(tree.root, None)]
        while waiting:
            node, directory = waiting.pop()
            yield row_of(node, directory, tree.notes_of(node))
            if isinstance(node, Directory):
                path = "/" if directory is None else f"{directory.rstrip('/')}/{shown(node.name)}"
                waiting += [(child, path) for child in node.children.values()]

    def count(self) -> tuple[int, int, int, int]:
        """Files, directories (the root is one), symlinks, bytes of the files."""
        files = links = size = 0
        for inode in self.tree.inodes.values():
            if isinstance(inode, File):
                files += 1
                size += inode.length
            elif isinstance(inode, Symlink):
                links += 1
        return files, len(self.tree.inodes) - files - links, links, size
