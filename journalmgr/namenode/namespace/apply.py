"""Transactions onto a namespace, as a standby replays them; the active applies its own the same way. Pure.

    apply(op, namespace)            one transaction: wholly, or ReplayError and nothing changed

Whoever logged an operation had checked it, so permissions, quotas and limits are not looked at: what the journal says
is what happened. But nothing is passed over: a parent that is missing, a file that is not open, a txid that is not the
next means that this namespace is not the one the journal is about, or that the journal is damaged.

Differs from Apache, which goes on silently (or with a log line) where a DELETE, RENAME or SET_REPLICATION finds
nothing, and where a MKDIR finds a directory.
Source: journalmgr/FORMATS.md 5.5 to 5.8; the loader of Hadoop 2.7 for what each operation changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from journalmgr.edits import ops as o
from journalmgr.edits.fields import Block, Permission, XAttr
from journalmgr.namenode.errors import ReplayError, SnapshotsRefused
from journalmgr.namenode.namespace import acl, apply_records
from journalmgr.namenode.namespace.tree import Directory, File, Inode, Lease, Namespace, Quota, Symlink

UNCHANGED_QUOTA = (1 << 63) - 1
NO_QUOTA = -1
UNCHANGED_TIME = -1
RENAME_OVERWRITE = 1


def apply(op: o.AnyOp, namespace: Namespace) -> None:
    """Apply one transaction, which must be the next. Raises ReplayError, SnapshotsRefused; nothing changed then."""
    if op.txid != namespace.last_txid + 1:
        raise ReplayError(
            op,
            f"expected txid {namespace.last_txid + 1}: "
            + ("transactions are missing" if op.txid > namespace.last_txid else "it was applied before")
            + "; replay from the one after the image's",
        )
    found = _APPLY.get(type(op))
    if found is None:
        raise ReplayError(op, "no operation on a namespace; it was written by another server, or by Hadoop 3")
    change, has_rpc = found
    change(namespace, op)
    namespace.last_txid = op.txid
    if has_rpc:
        rpc = op.rpc  # type: ignore[union-attr]  # `has_rpc` says so
        if rpc.client_id:
            namespace.remember(rpc.client_id, rpc.call_id, op.txid)


def apply_all(operations: Iterable[o.AnyOp], namespace: Namespace) -> None:
    """Apply them in order; stops at the first that does not fit, what was before it stays."""
    for op in operations:
        apply(op, namespace)


# --- finding, or saying why not ---------------------------------------------------------------------------------------


def _inode(namespace: Namespace, op: o.Op, path: str) -> Inode:
    inode = namespace.find(path)
    if inode is None:
        raise ReplayError(op, "there is nothing at this path", path=path)
    return inode


def _file(namespace: Namespace, op: o.Op, path: str) -> File:
    inode = namespace.find(path)
    if not isinstance(inode, File):
        raise ReplayError(op, "there is no file at this path" + _but(inode), path=path)
    return inode


def _open_file(namespace: Namespace, op: o.Op, path: str) -> File:
    file = _file(namespace, op, path)
    if file.lease is None:
        raise ReplayError(op, "the file is not under construction", path=path)
    return file


def _directory(namespace: Namespace, op: o.Op, path: str) -> Directory:
    inode = namespace.find(path)
    if not isinstance(inode, Directory):
        raise ReplayError(op, "there is no directory at this path" + _but(inode), path=path)
    return inode


def _parent(namespace: Namespace, op: o.Op, path: str) -> tuple[Directory, str]:
    parent, name = namespace.parent_of(path)
    if parent is None:
        raise ReplayError(op, "its parent directory does not exist, or the path is none", path=path)
    return parent, name


def _vacant(namespace: Namespace, op: o.Op, path: str) -> tuple[Directory, str]:
    parent, name = _parent(namespace, op, path)
    if name in parent.children:
        raise ReplayError(op, "there is something at this path already" + _but(parent.children[name]), path=path)
    return parent, name


def _but(inode: Inode | None) -> str:
    return "" if inode is None else f", but a {type(inode).__name__.lower()}"


def _new_id(namespace: Namespace, op: o.Add | o.Mkdir | o.Symlink) -> int:
    inode_id = op.inode_id or namespace.last_inode_id + 1  # 0: of a layout that had no inode ids
    if inode_id in namespace.inodes:
        raise ReplayError(op, f"inode id {inode_id} is taken already", path=op.path)
    return inode_id


def _touch(directory: Directory, mtime: int) -> None:
    # A change below never sets the time back.
    if mtime > directory.mtime:
        directory.mtime = mtime


# --- files ------------------------------------------------------------------------------------------------------------


def _add(namespace: Namespace, op: o.Add) -> None:
    parent, name = _parent(namespace, op, op.path)
    old = parent.children.get(name)
    if old is not None:
        if not isinstance(old, File):
            raise ReplayError(op, "there is something at this path already" + _but(old), path=op.path)
        if not op.overwrite:
            _open_again(namespace, op, old)
            return
    inode_id = _new_id(namespace, op)
    if old is not None:
        namespace.detach(old)
    permission, kept = _permission(op.permission, op.acl) if op.acl else (op.permission, ())
    namespace.attach(
        parent,
        File(
            inode_id,
            name,
            permission,
            op.mtime,
            op.atime,
            None,
            op.xattrs.attributes,
            kept,
            op.replication,
            op.block_size,
            op.blocks,
            Lease(op.client_name, op.client_machine),
            op.storage_policy_id,
        ),
    )
    if op.mtime > parent.mtime:
        parent.mtime = op.mtime


def _open_again(namespace: Namespace, op: o.Add, file: File) -> None:
    # Before there was an APPEND, an append was logged as an ADD of what exists, and so was each further block.
    blocks = _next_blocks(op, op.path, file.blocks, op.blocks)
    namespace.rewrite(file, blocks, file.lease or Lease(op.client_name, op.client_machine), file.replication)
    file.mtime, file.atime = op.mtime, op.atime


def _close(namespace: Namespace, op: o.Close) -> None:
    file = namespace.find(op.path)
    if not isinstance(file, File) or file.lease is None:
        file = _open_file(namespace, op, op.path)
    blocks = op.blocks
    if blocks or file.blocks:
        blocks = _next_blocks(op, op.path, file.blocks, blocks)
    namespace.rewrite(file, blocks, None, file.replication)
    file.mtime, file.atime = op.mtime, op.atime


def _append(namespace: Namespace, op: o.Append) -> None:
    file = _file(namespace, op, op.path)
    if file.lease is not None and file.lease.client_name != op.client_name:
        raise ReplayError(op, f"{file.lease.client_name!r} writes it, not {op.client_name!r}", path=op.path)
    namespace.rewrite(file, file.blocks, Lease(op.client_name, op.client_machine), file.replication)


def _next_blocks(op: o.Op, path: str, old: Sequence[Block], new: tuple[Block, ...]) -> tuple[Block, ...]:
    """Blocks that replace others: sizes may change, some be added, the last be given up or get a new stamp."""
    if len(new) < len(old) - 1:
        raise ReplayError(op, f"{len(old) - len(new)} blocks would go at once; at most the last may", path=path)
    for position, (was, now) in enumerate(zip(old, new, strict=False)):
        restamped = len(old) == len(new) == position + 1
        if was.block_id != now.block_id or (was.generation_stamp != now.generation_stamp and not restamped):
            raise ReplayError(op, f"block {position} is {was}, and {now} cannot replace it", path=path)
    return new


def _add_block(namespace: Namespace, op: o.AddBlock) -> None:
    file = _open_file(namespace, op, op.path)
    before, last = op.blocks[:-1], op.blocks[-1:]
    if not last or len(before) > 1:
        raise ReplayError(op, f"{len(op.blocks)} blocks; it has the new one, and the one before it", path=op.path)
    old = file.blocks[-1:]
    if [(block.block_id, block.generation_stamp) for block in before] != [
        (block.block_id, block.generation_stamp) for block in old
    ]:
        raise ReplayError(op, f"the last block is {old or 'none'}, not {before or 'none'}", path=op.path)
    namespace.rewrite(file, file.blocks[:-1] + before + last, file.lease, file.replication)


def _update_blocks(namespace: Namespace, op: o.UpdateBlocks) -> None:
    file = _open_file(namespace, op, op.path)
    namespace.rewrite(file, _next_blocks(op, op.path, file.blocks, op.blocks), file.lease, file.replication)


def _truncate(namespace: Namespace, op: o.Truncate) -> None:
    file = _file(namespace, op, op.src)
    length = sum(block.size for block in file.blocks)
    if not 0 <= op.new_length <= length:
        raise ReplayError(op, f"it has {length} bytes and cannot be cut to {op.new_length}", path=op.src)
    if op.new_length == length:
        return
    kept, rest = [], op.new_length
    for block in file.blocks:
        if not rest:
            break
        kept.append(block if block.size <= rest else block._replace(size=rest))
        rest -= kept[-1].size
    lease = file.lease
    if kept and kept[-1].size < file.blocks[len(kept) - 1].size:
        # The last block is cut itself: somebody has to recover it, and CLOSE comes once that is done.
        lease = Lease(op.client_name, op.client_machine)
        if op.blocks and op.blocks[0].block_id != kept[-1].block_id:
            kept[-1] = op.blocks[0]._replace(size=kept[-1].size)  # cut as a copy, under another id
    namespace.rewrite(file, tuple(kept), lease, file.replication)
    file.mtime = op.timestamp


def _concat(namespace: Namespace, op: o.ConcatDelete) -> None:
    target = _file(namespace, op, op.target)
    sources = [_file(namespace, op, path) for path in op.sources]
    if len({target.id, *(source.id for source in sources)}) != len(sources) + 1:
        raise ReplayError(op, f"a file is named twice among {op.sources}", path=op.target)
    blocks = target.blocks + tuple(block for source in sources for block in source.blocks)
    for source in sources:
        assert source.parent is not None
        _touch(source.parent, op.timestamp)
        namespace.detach(source)
    namespace.rewrite(target, blocks, target.lease, target.replication)
    target.mtime = op.timestamp
    assert target.parent is not None
    _touch(target.parent, op.timestamp)


def _set_replication(namespace: Namespace, op: o.SetReplication) -> None:
    file = _file(namespace, op, op.path)
    namespace.rewrite(file, file.blocks, file.lease, op.replication)


def _reassign_lease(namespace: Namespace, op: o.ReassignLease) -> None:
    file = _open_file(namespace, op, op.path)
    assert file.lease is not None
    if file.lease.client_name != op.holder:
        raise ReplayError(op, f"{file.lease.client_name!r} writes it, not {op.holder!r}", path=op.path)
    file.lease = file.lease._replace(client_name=op.new_holder)


# --- names ------------------------------------------------------------------------------------------------------------


def _mkdir(namespace: Namespace, op: o.Mkdir) -> None:
    parent, name = _vacant(namespace, op, op.path)
    inode_id = _new_id(namespace, op)
    permission, kept = _permission(op.permission, op.acl) if op.acl else (op.permission, ())
    namespace.attach(parent, Directory(inode_id, name, permission, op.mtime, 0, None, op.xattrs.attributes, kept))
    if op.mtime > parent.mtime:
        parent.mtime = op.mtime


def _symlink(namespace: Namespace, op: o.Symlink) -> None:
    parent, name = _vacant(namespace, op, op.path)
    link = Symlink(_new_id(namespace, op), name, op.permission, op.mtime, op.atime, target=op.target)
    namespace.attach(parent, link)
    _touch(parent, op.mtime)


def _delete(namespace: Namespace, op: o.Delete) -> None:
    inode = _inode(namespace, op, op.path)
    parent = inode.parent
    if parent is None:
        raise ReplayError(op, "the root cannot be removed", path=op.path)
    namespace.detach(inode)
    _touch(parent, op.timestamp)


def _rename_old(namespace: Namespace, op: o.RenameOld) -> None:
    destination = op.dst
    if isinstance(namespace.find(destination), Directory):
        destination = f"{destination.rstrip('/')}/{op.src.rpartition('/')[2]}"
    source = _inode(namespace, op, op.src)
    if source is namespace.find(destination) and isinstance(source, File):
        return  # onto itself
    _move(namespace, op, source, destination, op.timestamp, overwrite=False)


def _rename(namespace: Namespace, op: o.Rename) -> None:
    source = _inode(namespace, op, op.src)
    _move(namespace, op, source, op.dst, op.timestamp, overwrite=RENAME_OVERWRITE in op.options)


def _move(
    namespace: Namespace, op: o.RenameOld | o.Rename, source: Inode, path: str, timestamp: int, *, overwrite: bool
) -> None:
    if source.parent is None:
        raise ReplayError(op, "the root cannot be renamed", path=op.src)
    parent, name = _parent(namespace, op, path)
    above: Directory | None = parent
    while above is not None:
        if above is source:
            raise ReplayError(op, f"{path} is below it", path=op.src)
        above = above.parent
    replaced = parent.children.get(name)
    if replaced is not None:
        if replaced is source or not overwrite:
            raise ReplayError(op, f"there is something at {path} already{_but(replaced)}", path=op.src)
        if isinstance(replaced, Directory) != isinstance(source, Directory):
            raise ReplayError(
                op, f"a {type(replaced).__name__.lower()} at {path} cannot be replaced by it", path=op.src
            )
        if isinstance(replaced, Directory) and replaced.children:
            raise ReplayError(op, f"{path} is not empty", path=op.src)
        namespace.detach(replaced)
    _touch(source.parent, timestamp)
    namespace.move(source, parent, name)
    _touch(parent, timestamp)


# --- attributes -------------------------------------------------------------------------------------------------------


def _set_permissions(namespace: Namespace, op: o.SetPermissions) -> None:
    inode = _inode(namespace, op, op.src)
    inode.permission = inode.permission._replace(mode=op.mode)


def _set_owner(namespace: Namespace, op: o.SetOwner) -> None:
    inode = _inode(namespace, op, op.src)
    was = inode.permission
    inode.permission = Permission(op.user or was.user, op.group or was.group, was.mode)


def _times(namespace: Namespace, op: o.Times) -> None:
    inode = _inode(namespace, op, op.path)
    if op.mtime != UNCHANGED_TIME:
        inode.mtime = op.mtime
    if op.atime != UNCHANGED_TIME:
        inode.atime = op.atime


def _set_quota(namespace: Namespace, op: o.SetQuota) -> None:
    _change_quota(namespace, op, op.src, names=op.namespace_quota, space=op.space_quota)


def _set_quota_by_type(namespace: Namespace, op: o.SetQuotaByStorageType) -> None:
    directory = _directory(namespace, op, op.src)
    was = directory.quota or Quota()
    by_type = {kind: space for kind, space in was.by_type.items() if kind != op.storage_type}
    if _limit(op, op.src, op.space_quota, None) is not None:
        by_type[op.storage_type] = op.space_quota
    namespace.set_quota(directory, Quota(was.names, was.space, by_type))


def _set_ns_quota(namespace: Namespace, op: o.SetNsQuota) -> None:
    _change_quota(namespace, op, op.src, names=op.namespace_quota, space=UNCHANGED_QUOTA)


def _clear_ns_quota(namespace: Namespace, op: o.ClearNsQuota) -> None:
    _change_quota(namespace, op, op.src, names=NO_QUOTA, space=UNCHANGED_QUOTA)


def _change_quota(namespace: Namespace, op: o.Op, path: str, *, names: int, space: int) -> None:
    directory = _directory(namespace, op, path)
    was = directory.quota or Quota()
    quota = Quota(_limit(op, path, names, was.names), _limit(op, path, space, was.space), was.by_type)
    namespace.set_quota(directory, quota)


def _limit(op: o.Op, path: str, value: int, was: int | None) -> int | None:
    if value < NO_QUOTA:
        raise ReplayError(op, f"{value} is no quota", path=path)
    if value == UNCHANGED_QUOTA:
        return was
    return None if value == NO_QUOTA else value


def _set_storage_policy(namespace: Namespace, op: o.SetStoragePolicy) -> None:
    inode = _inode(namespace, op, op.path)
    if not isinstance(inode, File | Directory):
        raise ReplayError(op, "a symlink has no storage policy", path=op.path)
    inode.storage_policy_id = op.policy_id


def _permission(permission: Permission, entries: Sequence[Any]) -> tuple[Permission, tuple[Any, ...]]:
    mode, kept = acl.store(permission.mode, entries)
    return permission._replace(mode=mode), kept


def _set_acl(namespace: Namespace, op: o.SetAcl) -> None:
    path = op.acl.src
    inode = _inode(namespace, op, path)
    if isinstance(inode, Symlink):
        raise ReplayError(op, "a symlink has no access control list", path=path)
    if op.acl.entries:
        inode.permission, inode.acl = _permission(inode.permission, op.acl.entries)
    else:
        mode = acl.without(inode.permission.mode, inode.acl)
        inode.permission, inode.acl = inode.permission._replace(mode=mode), ()


def _set_xattr(namespace: Namespace, op: o.SetXAttr) -> None:
    inode = _inode(namespace, op, op.xattrs.src or "")
    inode.xattrs = (*_without(inode.xattrs, op.xattrs.attributes), *op.xattrs.attributes)


def _remove_xattr(namespace: Namespace, op: o.RemoveXAttr) -> None:
    path = op.xattrs.src or ""
    inode = _inode(namespace, op, path)
    kept = _without(inode.xattrs, op.xattrs.attributes)
    if len(kept) != len(inode.xattrs) - len(op.xattrs.attributes):
        raise ReplayError(op, f"not all of {[item.name for item in op.xattrs.attributes]} are there", path=path)
    inode.xattrs = kept


def _without(attributes: Iterable[XAttr], gone: Iterable[XAttr]) -> tuple[XAttr, ...]:
    keys = {(attribute.namespace, attribute.name) for attribute in gone}
    return tuple(attribute for attribute in attributes if (attribute.namespace, attribute.name) not in keys)


# --- refused ----------------------------------------------------------------------------------------------------------

_SnapshotOp = o.CreateSnapshot | o.DeleteSnapshot | o.RenameSnapshot | o.AllowSnapshot | o.DisallowSnapshot


def _snapshot(namespace: Namespace, op: _SnapshotOp) -> None:
    raise SnapshotsRefused(
        op,
        "this name node keeps no snapshots and cannot replay the journal beyond it; keep the server that wrote the "
        "journal, or copy its files to a name node with a journal of its own (journalmgr format, journalmgr fs put)",
        path=op.root,
    )


_CHANGES: dict[type[o.Op], Callable[[Namespace, Any], None]] = {
    **apply_records.CHANGES,
    o.Add: _add,
    o.Close: _close,
    o.Mkdir: _mkdir,
    o.Delete: _delete,
    o.RenameOld: _rename_old,
    o.Rename: _rename,
    o.Symlink: _symlink,
    o.Append: _append,
    o.AddBlock: _add_block,
    o.UpdateBlocks: _update_blocks,
    o.Truncate: _truncate,
    o.ConcatDelete: _concat,
    o.SetReplication: _set_replication,
    o.ReassignLease: _reassign_lease,
    o.SetPermissions: _set_permissions,
    o.SetOwner: _set_owner,
    o.Times: _times,
    o.SetQuota: _set_quota,
    o.SetQuotaByStorageType: _set_quota_by_type,
    o.SetNsQuota: _set_ns_quota,
    o.ClearNsQuota: _clear_ns_quota,
    o.SetStoragePolicy: _set_storage_policy,
    o.SetAcl: _set_acl,
    o.SetXAttr: _set_xattr,
    o.RemoveXAttr: _remove_xattr,
    o.CreateSnapshot: _snapshot,
    o.DeleteSnapshot: _snapshot,
    o.RenameSnapshot: _snapshot,
    o.AllowSnapshot: _snapshot,
    o.DisallowSnapshot: _snapshot,
}

_APPLY: dict[type[Any], tuple[Callable[[Namespace, Any], None], bool]] = {
    kind: (change, any(spec.name == "rpc" for spec in kind.layout)) for kind, change in _CHANGES.items()
}
