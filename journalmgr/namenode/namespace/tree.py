"""The tree of directories, files and links, and the counters beside it, as an HDFS name node keeps them. Pure.

    Namespace ── root ── Directory ── children: name -> Directory | File | Symlink
              ├─ inodes: id -> inode               every inode of the tree, and nothing else
              ├─ open_files: id -> File            exactly the files that have a lease
              └─ counters, tokens, cache pools     kept for whoever reads the journal; nothing here acts on them

`apply` alone changes it, through the methods below; they keep the indices and the usage of quotas right, and leave
times to their caller. `operations` only looks. The state is a function of the transactions 1..last_txid.

Ids: the root is 16385, and each new inode takes the next. Times in milliseconds since 1970, sizes in bytes.
Source: journalmgr/FORMATS.md 5.5, 8.1; defaults and limits are those of Hadoop 2.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from journalmgr.edits.fields import (
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    Permission,
    TokenIdentifier,
    XAttr,
)

ROOT_INODE_ID = 16385
"""Those below are reserved."""

FIRST_GENERATION_STAMP = 1000
FIRST_BLOCK_ID = 1 << 30
"""Nothing up to them is given away."""

COMPONENT_BYTES_MAX = 255
PATH_CHARACTERS_MAX = 8000
PATH_DEPTH_MAX = 1000
DIRECTORY_ITEMS_MAX = 1024 * 1024
XATTRS_MAX = 32
XATTR_BYTES_MAX = 16384
"""Name (without its namespace) and value of one attribute (dfs.namenode.fs-limits.max-xattr-size)."""

RETRIES_MAX = 65536
"""Calls of clients that are remembered. Differs from Apache, which forgets by time: equal journals must leave equal
state."""

USER_XATTR = 0
CONTENT_XATTR = "content"
"""`user.content`: what a file holds, for there are no data nodes. HDFS sees an attribute of an empty file."""

CONTENT_BYTES_MAX = XATTR_BYTES_MAX - len(CONTENT_XATTR)
"""An attribute is never larger in HDFS, as a rule; so a NameNode takes over what was written here."""


class Lease(NamedTuple):
    """Who writes a file."""

    client_name: str
    client_machine: str


@dataclass(slots=True, eq=False, repr=False)
class Inode:
    """What all have. name: within its parent, empty for the root. acl: what `acl.store` keeps."""

    id: int
    name: str
    permission: Permission
    mtime: int
    atime: int = 0
    parent: Directory | None = None
    xattrs: tuple[XAttr, ...] = ()
    acl: tuple[AclEntry, ...] = ()


@dataclass(slots=True, eq=False)
class Quota:
    """Limits of a directory tree, None where there is none, and what it uses, itself included.

    by_type: storage type -> bytes; kept, not enforced: without data nodes nothing says where a block is.
    """

    names: int | None = None
    space: int | None = None
    by_type: dict[int, int] = field(default_factory=dict)
    used_names: int = 0
    used_space: int = 0

    @property
    def is_set(self) -> bool:
        """Whether it limits anything."""
        return self.names is not None or self.space is not None or bool(self.by_type)


@dataclass(slots=True, eq=False, repr=False)
class Directory(Inode):
    """children: in order of arrival. order: what `sorted_names` remembers; None once a child came or went."""

    children: dict[str, Inode] = field(default_factory=dict)
    quota: Quota | None = None
    storage_policy_id: int = 0
    order: list[str] | None = None

    def sorted_names(self) -> list[str]:
        """Names by their bytes of UTF-8, as HDFS lists them; not to be changed by the caller."""
        if self.order is None:
            self.order = sorted(self.children)  # the order of code points is that of UTF-8
        return self.order


@dataclass(slots=True, eq=False, repr=False)
class File(Inode):
    """lease: while it is under construction."""

    replication: int = 0
    block_size: int = 0
    blocks: tuple[Block, ...] = ()
    lease: Lease | None = None
    storage_policy_id: int = 0

    @property
    def content(self) -> bytes | None:
        """What `user.content` holds; None where the file has none."""
        for attribute in self.xattrs:
            if attribute.name == CONTENT_XATTR and attribute.namespace == USER_XATTR:
                return attribute.value or b""
        return None

    @property
    def length(self) -> int:
        """Bytes of the blocks; of a file without blocks, of its content."""
        if self.blocks:
            return sum([block.size for block in self.blocks])
        return len(self.content or b"") if self.xattrs else 0


@dataclass(slots=True, eq=False, repr=False)
class Symlink(Inode):
    """A link; target: as it was given."""

    target: str = ""


class Usage(NamedTuple):
    """What a tree counts against quotas: inodes, and bytes of all copies."""

    names: int
    space: int


def space_of(inode: Inode) -> int:
    """Bytes of all copies; the last block of a file that is being written counts as a full one."""
    if not isinstance(inode, File) or not inode.blocks:
        return 0
    size = sum([block.size for block in inode.blocks])
    if inode.lease is not None:
        size += max(0, inode.block_size - inode.blocks[-1].size)
    return size * inode.replication


def subtree(inode: Inode) -> Iterator[Inode]:
    """The inode and all below it: parents first, children by name. Without recursion: paths may be deep."""
    waiting = [inode]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Directory):
            children = node.children
            waiting += [children[name] for name in reversed(node.sorted_names())]


def usage_of(inode: Inode) -> Usage:
    """Counted afresh."""
    names = space = 0
    for node in subtree(inode):
        names += 1
        space += space_of(node)
    return Usage(names, space)


def path_of(inode: Inode) -> str:
    """The absolute path."""
    names = []
    node: Inode | None = inode
    while node is not None and node.parent is not None:
        names.append(node.name)
        node = node.parent
    return "/" + "/".join(reversed(names))


class Namespace:
    """The whole state. last_txid: of the last transaction applied, 0 before the first."""

    def __init__(
        self, owner: str = "root", group: str = "supergroup", mode: int = 0o755, *, counts_usage: bool = True
    ) -> None:
        """An empty tree; whose root it is decides where the journal begins, so all servers must say the same.

        counts_usage: keep up what directories with a quota use. Without it a rename below one costs no walk of its
        tree; for whoever asks nobody's quota.
        """
        self._counts_usage = counts_usage
        self.root = Directory(ROOT_INODE_ID, "", Permission(owner, group, mode), 0)
        self.last_txid = 0
        self.last_inode_id = ROOT_INODE_ID
        self.generation_stamp_v1 = FIRST_GENERATION_STAMP
        self.generation_stamp_v2 = FIRST_GENERATION_STAMP
        self.last_block_id = FIRST_BLOCK_ID
        self.inodes: dict[int, Inode] = {ROOT_INODE_ID: self.root}
        self.open_files: dict[int, File] = {}
        self.quota_count = 0  # directories that have a quota whose usage is counted; without any, it is not looked at
        self.delegation_keys: dict[int, DelegationKey] = {}
        self.tokens: dict[TokenIdentifier, int] = {}  # -> expiry
        self.token_sequence_number = 0
        self.cache_pools: dict[str, CachePool] = {}
        self.cache_directives: dict[int, CacheDirective] = {}
        self.last_cache_directive_id = 0
        self.rolling_upgrade_start: int | None = None
        self.retries: dict[tuple[bytes, int], int] = {}  # (client id, call id) -> txid, the oldest first

    # --- looking

    def find(self, path: str) -> Inode | None:
        """What is at a path; None where there is nothing, or the path is none."""
        names = path.split("/")
        if names[0] or len(names) < 2:
            return None
        if path == "/":
            return self.root
        node: Inode | None = self.root
        for name in names[1:]:
            if not isinstance(node, Directory):
                return None
            node = node.children.get(name)
        return node

    def parent_of(self, path: str) -> tuple[Directory | None, str]:
        """The directory that a path's last component is or would be in, and that component.

        None where there is no such directory, or the path is none; so for the root.
        """
        names = path.split("/")
        name = names.pop()
        if not name or not names or names[0]:
            return None, name
        node: Inode | None = self.root
        for step in names[1:]:
            if not isinstance(node, Directory):
                return None, name
            node = node.children.get(step)
        return (node if isinstance(node, Directory) else None), name

    def done(self, client_id: bytes, call_id: int) -> int | None:
        """The txid that a call of a client led to, if it did and is still remembered: it must not be done again."""
        return self.retries.get((client_id, call_id))

    # --- changing; only `apply` and the decoder of images do

    def attach(self, parent: Directory, inode: Inode) -> None:
        """Put a new inode, without children, where nothing has its name or id."""
        parent.children[inode.name] = inode
        parent.order = None
        inode.parent = parent
        self.inodes[inode.id] = inode
        if inode.id > self.last_inode_id:
            self.last_inode_id = inode.id
        if isinstance(inode, File) and inode.lease is not None:
            self.open_files[inode.id] = inode
        if self.quota_count:
            self._charge(parent, 1, space_of(inode))

    def detach(self, inode: Inode) -> None:
        """Take an inode away, with all below it and their leases."""
        parent = inode.parent
        assert parent is not None, "the root stays"
        names = space = 0
        for node in subtree(inode):
            names += 1
            space += space_of(node)
            del self.inodes[node.id]
            if isinstance(node, File) and node.lease is not None:
                del self.open_files[node.id]
            elif isinstance(node, Directory) and node.quota is not None and self._counts_usage:
                self.quota_count -= 1
        del parent.children[inode.name]
        parent.order = None
        inode.parent = None
        if self.quota_count:
            self._charge(parent, -names, -space)

    def move(self, inode: Inode, parent: Directory, name: str) -> None:
        """Give an inode, with all below it, another place, where nothing is."""
        old = inode.parent
        assert old is not None, "the root stays"
        usage = usage_of(inode) if self.quota_count else Usage(0, 0)
        del old.children[inode.name]
        old.order = None
        if self.quota_count:
            self._charge(old, -usage.names, -usage.space)
            self._charge(parent, usage.names, usage.space)
        inode.name, inode.parent = name, parent
        parent.children[name] = inode
        parent.order = None

    def rewrite(self, file: File, blocks: tuple[Block, ...], lease: Lease | None, replication: int) -> None:
        """Give a file of the tree other blocks, another writer or none, another number of copies."""
        before = space_of(file) if self.quota_count else 0
        if lease is not None:
            self.open_files[file.id] = file
        elif file.lease is not None:
            del self.open_files[file.id]
        file.blocks, file.lease, file.replication = blocks, lease, replication
        if self.quota_count:
            self._charge(file.parent, 0, space_of(file) - before)

    def set_quota(self, directory: Directory, quota: Quota) -> None:
        """Replace the limits of a directory; its usage is counted afresh."""
        if not self._counts_usage:
            directory.quota = quota if quota.is_set else None
            return
        self.quota_count -= directory.quota is not None
        directory.quota = None
        if quota.is_set:
            quota.used_names, quota.used_space = usage_of(directory)
            directory.quota = quota
            self.quota_count += 1

    def remember(self, client_id: bytes, call_id: int, txid: int) -> None:
        """Note that a call of a client is done."""
        retries = self.retries
        retries[client_id, call_id] = txid
        if len(retries) > RETRIES_MAX:
            del retries[next(iter(retries))]

    def _charge(self, directory: Directory | None, names: int, space: int) -> None:
        while directory is not None:
            quota = directory.quota
            if quota is not None:
                quota.used_names += names
                quota.used_space += space
            directory = directory.parent
