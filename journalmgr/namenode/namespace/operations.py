"""Requests of clients: checked against the namespace, and turned into the operations to log. Pure.

    check (here) -> log -> apply, in one turn of the reactor -> answer once the log says that it is durable

Nothing is changed here: `apply` changes the active's namespace as it does a standby's. The checks hold only until the
next operation is applied, so whoever logs must apply what was logged before it asks for the next. No operation comes
back where there is nothing to do: the request is answered at once.

Ids of inodes are given here, those of transactions by the log. Times are the caller's, in milliseconds.

Permissions are not checked: modes, owners and lists are kept and shown, and nobody is refused anything for them.
Without data nodes a file has no blocks: what it holds is the attribute `user.content`, of at most 16 377 bytes, which
is what a NameNode accepts of an attribute by default (16 KiB with its name). More is refused, not split.
Source: the checks and their order are Hadoop 2.7's.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from journalmgr.edits import ops as o
from journalmgr.edits.fields import NO_RPC, Acl, AclEntry, Permission, RpcIds, XAttrs
from journalmgr.namenode.errors import (
    FileAlreadyExists,
    LeaseAbsent,
    LeaseHeld,
    NotPossible,
    PathIsNotEmptyDirectory,
    RenameRefused,
    XAttrRefused,
)
from journalmgr.namenode.namespace import acl as lists
from journalmgr.namenode.namespace import checks, xattrs
from journalmgr.namenode.namespace.apply import NO_QUOTA, RENAME_OVERWRITE, UNCHANGED_QUOTA, UNCHANGED_TIME
from journalmgr.namenode.namespace.tree import (
    Directory,
    File,
    Inode,
    Namespace,
    Symlink,
    Usage,
    space_of,
    usage_of,
)

Operations = tuple[o.Op, ...]

REPLICATION_MAX = 512
SYSTEM_HOLDER = "HDFS_NameNode"
"""Who holds the lease of a file that the name node itself closes."""

STORAGE_POLICIES = {2: "COLD", 5: "WARM", 7: "HOT", 10: "ONE_SSD", 12: "ALL_SSD", 15: "LAZY_PERSIST"}
STORAGE_TYPES = ("RAM_DISK", "SSD", "DISK", "ARCHIVE")

_MODE_MAX = 0o1777
_U_WX = 0o300
_I64_BEYOND = 1 << 63


class XAttrMode(enum.Enum):
    """What an attribute may meet: its like, or not."""

    SET = "set"
    CREATE = "create"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. client_name: what leases are held by. rpc: which call it was, so that a retry is known.

    What somebody makes is his; its group is that of the directory it is in.
    """

    user: str
    client_name: str = ""
    client_machine: str = ""
    rpc: RpcIds = NO_RPC

    def __post_init__(self) -> None:
        """Raise NotPossible for names that cannot be logged."""
        checks.check_text("the user", self.user)
        checks.check_text("the client", self.client_name)
        checks.check_text("the client's host", self.client_machine)


class Requests:
    """One method per request. Each raises a RequestRefused, or returns the operations that make it so."""

    def __init__(self, namespace: Namespace, *, block_size: int = 128 * 1024 * 1024, replication: int = 3) -> None:
        """block_size, replication: of files whose creator says nothing."""
        self._namespace = namespace
        self._block_size = block_size
        self._replication = replication

    # --- names

    def mkdir(self, path: str, caller: Caller, now: int, mode: int = 0o755) -> Operations:
        """One directory, in one that exists; nothing may be there."""
        _check_mode(mode)
        parent = self._vacant(path)
        checks.check_quota(parent, 1, 0)
        return (self._mkdir(path, parent.acl, Permission(caller.user, parent.permission.group, mode), now, 1)[0],)

    def mkdirs(self, path: str, caller: Caller, now: int, mode: int = 0o755) -> Operations:
        """The directory and all above it that are missing; nothing where it exists."""
        _check_mode(mode)
        checks.check_new(path)
        inode, missing = checks.walk(self._namespace, path)
        if isinstance(inode, Symlink):
            raise checks.unresolved(inode, missing)
        if not isinstance(inode, Directory):
            raise FileAlreadyExists(f"{path} exists, and is a file")
        permission = Permission(caller.user, inode.permission.group, mode)
        return self._mkdirs(path, inode, missing, permission, now)

    def symlink(self, path: str, target: str, caller: Caller, now: int) -> Operations:
        """A link. A NameNode of 2.7 loads such an operation only where links are enabled, which they are not there."""
        parent = self._vacant(path)
        checks.check_text("the target", target)
        if not target:
            raise NotPossible(f"{path}: a link needs a target")
        checks.check_quota(parent, 1, 0)
        return (
            o.Symlink(
                inode_id=self._next_id(1),
                path=path,
                target=target,
                mtime=now,
                atime=now,
                permission=Permission(caller.user, parent.permission.group, 0o777),
                rpc=caller.rpc,
            ),
        )

    def delete(self, path: str, caller: Caller, now: int, *, recursive: bool = False) -> Operations:
        """What is there, a link itself; nothing where nothing is. Open files go too: their writers find out."""
        inode, missing = checks.walk(self._namespace, path)
        if missing:
            return ()
        if inode.parent is None:
            raise NotPossible("the root cannot be deleted")
        if isinstance(inode, Directory) and inode.children and not recursive:
            raise PathIsNotEmptyDirectory(f"{path} is not empty: {len(inode.children)} items; delete it recursively")
        return (o.Delete(path=path, timestamp=now, rpc=caller.rpc),)

    def rename_into(self, src: str, dst: str, caller: Caller, now: int) -> Operations:
        """To another name, or into the directory that has it (RENAME_OLD, what `mv` does)."""
        source = checks.existing(self._namespace, src)
        found, missing = checks.walk(self._namespace, dst)
        if not missing and isinstance(found, Directory):
            final = f"{dst.rstrip('/')}/{source.name}"
        else:
            final = dst
        if not missing and found is source and isinstance(source, File):
            return ()
        self._check_rename(source, src, final, overwrite=False)
        return (o.RenameOld(src=src, dst=dst, timestamp=now, rpc=caller.rpc),)

    def rename(self, src: str, dst: str, caller: Caller, now: int, *, overwrite: bool = False) -> Operations:
        """To exactly that name; overwrite: a file, or an empty directory, of that name goes."""
        source = checks.existing(self._namespace, src)
        self._check_rename(source, src, dst, overwrite=overwrite)
        options = (RENAME_OVERWRITE,) if overwrite else ()
        return (o.Rename(src=src, dst=dst, timestamp=now, options=options, rpc=caller.rpc),)

    # --- files

    def create(
        self,
        path: str,
        caller: Caller,
        now: int,
        *,
        mode: int = 0o644,
        overwrite: bool = False,
        create_parents: bool = True,
        replication: int | None = None,
        block_size: int | None = None,
        content: bytes | None = None,
    ) -> Operations:
        """A file that the caller writes until it completes it."""
        _check_mode(mode)
        replication = self._replication if replication is None else replication
        _check_replication(replication)
        block_size = self._block_size if block_size is None else block_size
        if not 1 <= block_size < _I64_BEYOND:
            raise NotPossible(f"a block size of {block_size} bytes")
        checks.check_new(path)
        inode, missing = checks.walk(self._namespace, path)
        before: Operations = ()
        if missing:
            parent = _directory_above(inode, path, missing)
            if len(missing) > 1:
                if not create_parents:
                    checks.existing(self._namespace, path.rpartition("/")[0])
                upper = path.rpartition("/")[0]
                inherited = Permission(caller.user, parent.permission.group, parent.permission.mode)
                # One more name than the directories: the file.
                before = self._mkdirs(upper, parent, missing[:-1], inherited, now, more_names=1)
            else:
                checks.check_room(parent)
                checks.check_quota(parent, 1, 0)
        else:
            self._check_overwrite(inode, path, overwrite=overwrite)
            assert inode.parent is not None
            parent = inode.parent
        last = before[-1] if before else None
        defaults = lists.store(0, last.acl)[1] if isinstance(last, o.Mkdir) else parent.acl
        mode, entries = lists.inherit(mode, defaults, is_directory=False)
        return (
            *before,
            o.Add(
                inode_id=self._next_id(1 + len(before)),
                path=path,
                replication=replication,
                mtime=now,
                atime=now,
                block_size=block_size,
                permission=Permission(caller.user, parent.permission.group, mode),
                acl=entries,
                xattrs=XAttrs(None, () if content is None else (xattrs.content(path, content),)),
                client_name=_writer(caller),
                client_machine=caller.client_machine,
                overwrite=overwrite and not missing,
                rpc=caller.rpc,
            ),
        )

    def put(
        self,
        path: str,
        content: bytes,
        caller: Caller,
        now: int,
        *,
        mode: int = 0o644,
        overwrite: bool = False,
        create_parents: bool = True,
        replication: int | None = None,
        block_size: int | None = None,
    ) -> Operations:
        """A file with its content, complete at once.

        A crash may leave the first operation without the last: the file is open then, and `release` closes it.
        """
        created = self.create(
            path,
            caller,
            now,
            mode=mode,
            overwrite=overwrite,
            create_parents=create_parents,
            replication=replication,
            block_size=block_size,
            content=content,
        )
        add = created[-1]
        assert isinstance(add, o.Add)
        return (
            *created,
            o.Close(
                path=path,
                replication=add.replication,
                mtime=now,
                atime=now,
                block_size=add.block_size,
                permission=add.permission,
            ),
        )

    def append(self, path: str, caller: Caller) -> Operations:
        """Open a file again; the caller writes it until it completes it."""
        file = checks.file(self._namespace, path)
        self._check_closed(file, path)
        return (o.Append(path=path, client_name=_writer(caller), client_machine=caller.client_machine, rpc=caller.rpc),)

    def write(self, path: str, content: bytes, caller: Caller) -> Operations:
        """Other content for a file that the caller has open."""
        attribute = xattrs.content(path, content)
        xattrs.check_count(self._leased(path, caller), path, attribute)
        return (o.SetXAttr(xattrs=XAttrs(path, (attribute,)), rpc=caller.rpc),)

    def complete(self, path: str, caller: Caller, now: int) -> Operations:
        """A file that the caller has open is complete."""
        return (_close(self._leased(path, caller), path, now),)

    def release(self, path: str, now: int) -> Operations:
        """Close a file whose writer is gone, whoever that was; nothing where it is closed."""
        file = checks.file(self._namespace, path)
        if file.lease is None:
            return ()
        close = _close(file, path, now)
        return o.ReassignLease(holder=file.lease.client_name, path=path, new_holder=SYSTEM_HOLDER), close

    def concat(self, target: str, sources: Sequence[str], caller: Caller, now: int) -> Operations:
        """Append the blocks of files of the same directory to another of it; they are gone then."""
        checks.check_new(target)
        file = checks.file(self._namespace, target)
        files = [checks.file(self._namespace, path) for path in sources]
        if not files or len({file.id, *(source.id for source in files)}) != len(files) + 1:
            raise NotPossible(f"{target}: no sources, or a file is named twice: {list(sources)}")
        for path, source in zip((target, *sources), (file, *files), strict=True):
            self._check_closed(source, path)
            if source.parent is not file.parent:
                raise NotPossible(f"{path} is not in the directory of {target}")
            if source.content is not None:
                raise NotPossible(f"{path} has its content in an attribute; only blocks can be put together")
        assert file.parent is not None
        more = sum(source.length * (file.replication - source.replication) for source in files)
        checks.check_quota(file.parent, 0, more)
        return (o.ConcatDelete(target=target, sources=tuple(sources), timestamp=now, rpc=caller.rpc),)

    # --- attributes

    def set_permission(self, path: str, mode: int) -> Operations:
        """Another mode."""
        checks.followed(self._namespace, path)
        _check_mode(mode)
        return (o.SetPermissions(src=path, mode=mode),)

    def set_owner(self, path: str, user: str = "", group: str = "") -> Operations:
        """Another owner, another group, or both; empty: unchanged."""
        checks.followed(self._namespace, path)
        checks.check_text("the owner", user)
        checks.check_text("the group", group)
        if not user and not group:
            raise NotPossible(f"{path}: neither an owner nor a group is given")
        return (o.SetOwner(src=path, user=user, group=group),)

    def set_times(self, path: str, mtime: int = UNCHANGED_TIME, atime: int = UNCHANGED_TIME) -> Operations:
        """Other times, in milliseconds; -1: unchanged."""
        checks.followed(self._namespace, path)
        possible = all(UNCHANGED_TIME <= time < _I64_BEYOND for time in (mtime, atime))
        if not possible or mtime == atime == UNCHANGED_TIME:
            raise NotPossible(f"{path}: times {mtime} and {atime}; at least one must be 0 or later, of 63 bits")
        return (o.Times(path=path, mtime=mtime, atime=atime),)

    def set_replication(self, path: str, replication: int) -> Operations:
        """Another number of copies; nothing where it is that already."""
        file = checks.file(self._namespace, path)
        _check_replication(replication)
        if replication == file.replication:
            return ()
        assert file.parent is not None
        each = space_of(file) // file.replication if file.replication else 0
        checks.check_quota(file.parent, 0, each * (replication - file.replication))
        return (o.SetReplication(path=path, replication=replication),)

    def set_storage_policy(self, path: str, policy_id: int) -> Operations:
        """Where blocks should be."""
        checks.followed(self._namespace, path)
        if policy_id not in STORAGE_POLICIES:
            raise NotPossible(f"{policy_id} is no storage policy; there are {STORAGE_POLICIES}")
        return (o.SetStoragePolicy(path=path, policy_id=policy_id),)

    def set_quota(self, path: str, *, names: int | None = None, space: int | None = None) -> Operations:
        """Limits of a directory tree: -1 takes one away, None leaves it."""
        directory = checks.directory(self._namespace, path)
        for limit in (names, space):
            if limit is not None and not NO_QUOTA <= limit < UNCHANGED_QUOTA:
                raise NotPossible(f"{path}: {limit} is no quota")
        if names is None and space is None:
            raise NotPossible(f"{path}: no quota is given")
        if directory is self._namespace.root and names == NO_QUOTA:
            raise NotPossible("the root's quota of names cannot be taken away: a NameNode would not load that")
        return (
            o.SetQuota(
                src=path,
                namespace_quota=UNCHANGED_QUOTA if names is None else names,
                space_quota=UNCHANGED_QUOTA if space is None else space,
            ),
        )

    def set_quota_by_storage_type(self, path: str, storage_type: int, space: int) -> Operations:
        """A limit of one storage type; -1 takes it away. Kept, not enforced."""
        checks.directory(self._namespace, path)
        if not 0 <= storage_type < len(STORAGE_TYPES) or not NO_QUOTA <= space < UNCHANGED_QUOTA:
            raise NotPossible(f"{path}: a quota of {space} bytes of storage type {storage_type}")
        return (o.SetQuotaByStorageType(src=path, storage_type=storage_type, space_quota=space),)

    def set_xattr(
        self, path: str, name: str, value: bytes | None, caller: Caller, mode: XAttrMode = XAttrMode.SET
    ) -> Operations:
        """One attribute; name: with its namespace, as user.origin."""
        inode = checks.followed(self._namespace, path)
        attribute = xattrs.named(path, name, value)
        exists = xattrs.has(inode, attribute)
        if exists and mode is XAttrMode.CREATE:
            raise XAttrRefused(f"{path} has the attribute {name} already")
        if not exists and mode is XAttrMode.REPLACE:
            raise XAttrRefused(f"{path} has no attribute {name} to replace")
        xattrs.check_count(inode, path, attribute)
        return (o.SetXAttr(xattrs=XAttrs(path, (attribute,)), rpc=caller.rpc),)

    def remove_xattr(self, path: str, name: str, caller: Caller) -> Operations:
        """One attribute less."""
        inode = checks.followed(self._namespace, path)
        attribute = xattrs.named(path, name, None)
        if not xattrs.has(inode, attribute):
            raise XAttrRefused(f"{path} has no attribute {name}")
        return (o.RemoveXAttr(xattrs=XAttrs(path, (attribute,)), rpc=caller.rpc),)

    def set_acl(self, path: str, entries: Sequence[AclEntry]) -> Operations:
        """The whole access control list; a mask that is missing is what all named ones and the group have."""
        inode = checks.followed(self._namespace, path)
        return (o.SetAcl(acl=Acl(path, lists.complete(path, entries, is_directory=isinstance(inode, Directory)))),)

    def remove_acl(self, path: str) -> Operations:
        """Only the mode is left; nothing where there is no more."""
        inode = checks.followed(self._namespace, path)
        return (o.SetAcl(acl=Acl(path, ())),) if inode.acl else ()

    # --- parts

    def _next_id(self, count: int) -> int:
        return self._namespace.last_inode_id + count

    def _vacant(self, path: str) -> Directory:
        checks.check_new(path)
        inode, missing = checks.walk(self._namespace, path)
        if not missing:
            raise FileAlreadyExists(f"{path} exists already")
        parent = _directory_above(inode, path, missing)
        if len(missing) > 1:
            checks.existing(self._namespace, path.rpartition("/")[0])
        checks.check_room(parent)
        return parent

    def _mkdirs(
        self,
        path: str,
        above: Directory,
        missing: list[str],
        permission: Permission,
        now: int,
        *,
        more_names: int = 0,
    ) -> Operations:
        if not missing:
            return ()
        checks.check_room(above)
        checks.check_quota(above, len(missing) + more_names, 0)
        kept = above.acl
        made: list[o.Op] = []
        names = path.split("/")
        for count in range(1, len(missing) + 1):
            last = count == len(missing) and not more_names
            # Whoever makes a tree must be able to go on below it.
            wanted = permission if last else permission._replace(mode=permission.mode | _U_WX)
            part = "/".join(names[: len(names) - len(missing) + count])
            op, kept = self._mkdir(part, kept, wanted, now, count)
            made.append(op)
        return tuple(made)

    def _mkdir(
        self, path: str, parent: tuple[AclEntry, ...], permission: Permission, now: int, count: int
    ) -> tuple[o.Mkdir, tuple[AclEntry, ...]]:
        mode, entries = lists.inherit(permission.mode, parent, is_directory=True)
        made = o.Mkdir(
            inode_id=self._next_id(count),
            path=path,
            mtime=now,
            atime=now,
            permission=permission._replace(mode=mode),
            acl=entries,
        )
        return made, lists.store(mode, entries)[1]

    def _check_overwrite(self, inode: Inode, path: str, *, overwrite: bool) -> None:
        if isinstance(inode, Symlink):
            raise checks.unresolved(inode, [])
        if not isinstance(inode, File):
            raise FileAlreadyExists(f"{path} exists, and is a directory")
        if not overwrite:
            self._check_closed(inode, path)
            raise FileAlreadyExists(f"{path} exists; overwrite it, or delete it first")

    def _check_rename(self, source: Inode, src: str, dst: str, *, overwrite: bool) -> None:
        if source.parent is None:
            raise RenameRefused("the root cannot be renamed")
        checks.check_new(dst)
        found, missing = checks.walk(self._namespace, dst)
        replaced: Inode | None = None
        if missing:
            parent = _directory_above(found, dst, missing)
            if len(missing) > 1:
                checks.existing(self._namespace, dst.rpartition("/")[0])
        else:
            if found.parent is None:
                raise RenameRefused("nothing can be renamed to the root")
            parent, replaced = found.parent, found
        above: Directory | None = parent
        while above is not None:
            if above is source:
                raise RenameRefused(f"{dst} is below {src}")
            above = above.parent
        gone = Usage(0, 0)
        if replaced is not None:
            _check_replaceable(source, replaced, src, dst, overwrite=overwrite)
            gone = usage_of(replaced) if self._namespace.quota_count else gone
        elif parent is not source.parent:
            checks.check_room(parent)
        if self._namespace.quota_count and parent is not source.parent:
            usage = usage_of(source)
            common = checks.common_directory(source.parent, parent)
            checks.check_quota(parent, usage.names - gone.names, usage.space - gone.space, below=common)

    def _check_closed(self, file: File, path: str) -> None:
        if file.lease is not None:
            raise LeaseHeld(
                f"{path} is being written by {file.lease.client_name!r} on {file.lease.client_machine or 'no host'}; "
                "wait until it completes it, or release it",
                holder=file.lease.client_name,
            )

    def _leased(self, path: str, caller: Caller) -> File:
        file = checks.file(self._namespace, path)
        if file.lease is None:
            raise LeaseAbsent(f"{path} is not open; append to it first")
        if file.lease.client_name != caller.client_name:
            raise LeaseAbsent(f"{path} is written by {file.lease.client_name!r}, not by {caller.client_name!r}")
        return file


def _directory_above(inode: Inode, path: str, missing: list[str]) -> Directory:
    assert isinstance(inode, Directory), f"walk ends above {missing} of {path} only in a directory"
    return inode


def _close(file: File, path: str, now: int) -> o.Close:
    return o.Close(
        path=path,
        replication=file.replication,
        mtime=now,
        atime=file.atime,
        block_size=file.block_size,
        blocks=file.blocks,
        permission=file.permission,
    )


def _writer(caller: Caller) -> str:
    if not caller.client_name:
        raise NotPossible("a client that writes needs a name: its lease is held by it")
    return caller.client_name


def _check_mode(mode: int) -> None:
    if not 0 <= mode <= _MODE_MAX:
        raise NotPossible(f"{mode:o} is no mode; 0 to {_MODE_MAX:o} are")


def _check_replication(replication: int) -> None:
    if not 1 <= replication <= REPLICATION_MAX:
        raise NotPossible(f"{replication} copies; 1 to {REPLICATION_MAX} are possible")


def _check_replaceable(source: Inode, replaced: Inode, src: str, dst: str, *, overwrite: bool) -> None:
    if replaced is source or not overwrite:
        raise FileAlreadyExists(f"{dst} exists already" + ("" if replaced is source else "; overwrite it"))
    if isinstance(replaced, Directory) != isinstance(source, Directory):
        raise RenameRefused(f"{src} and {dst}: a directory and something else cannot replace each other")
    if isinstance(replaced, Directory) and replaced.children:
        raise PathIsNotEmptyDirectory(f"{dst} is not empty: {len(replaced.children)} items")
