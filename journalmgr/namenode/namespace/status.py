"""What clients are shown of an inode: the fields of HDFS's FileStatus, and listings by page. Pure.

Source: the HTTP interface of HDFS (WebHDFS), Hadoop 2.7.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from journalmgr.namenode.namespace.tree import Directory, File, Inode, Symlink

PAGE_MAX = 1000
"""Entries of one page (dfs.ls.limit)."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One inode. Times in milliseconds, sizes in bytes; permission: octal. path_suffix: empty for what was asked for.

    length: for a file without blocks, of its content. storage_policy: its own or the nearest ancestor's; 0: none.
    """

    access_time: int
    block_size: int
    children_num: int
    file_id: int
    group: str
    length: int
    modification_time: int
    owner: str
    path_suffix: str
    permission: str
    replication: int
    storage_policy: int
    type: str
    symlink: str | None = None
    acl_bit: bool = False

    def to_json(self) -> dict[str, object]:
        """The object of the HTTP interface; what a link or list adds is there only with one."""
        shown: dict[str, object] = {
            "accessTime": self.access_time,
            "blockSize": self.block_size,
            "childrenNum": self.children_num,
            "fileId": self.file_id,
            "group": self.group,
            "length": self.length,
            "modificationTime": self.modification_time,
            "owner": self.owner,
            "pathSuffix": self.path_suffix,
            "permission": self.permission,
            "replication": self.replication,
            "storagePolicy": self.storage_policy,
            "type": self.type,
        }
        if self.symlink is not None:
            shown["symlink"] = self.symlink
        if self.acl_bit:
            shown["aclBit"] = True
        return shown


class Page(NamedTuple):
    """Some entries of a directory, by name; remaining: how many come after them."""

    entries: list[FileStatus]
    remaining: int


def _policy_of(inode: Inode | None) -> int:
    """Return the policy that applies to an inode: its own or the nearest ancestor's; 0 for none and for links."""
    while isinstance(inode, File | Directory):
        if inode.storage_policy_id:
            return inode.storage_policy_id
        inode = inode.parent
    return 0


def status_of(inode: Inode, path_suffix: str = "", inherited: int | None = None) -> FileStatus:
    """Return the status of an inode. inherited: the storage policy of its directory, if the caller knows it."""
    user, group, mode = inode.permission
    is_file = isinstance(inode, File)
    policy = 0
    if isinstance(inode, File | Directory):
        policy = inode.storage_policy_id or (_policy_of(inode.parent) if inherited is None else inherited)
    return FileStatus(
        access_time=inode.atime,
        block_size=inode.block_size if isinstance(inode, File) else 0,
        children_num=len(inode.children) if isinstance(inode, Directory) else 0,
        file_id=inode.id,
        group=group,
        length=inode.length if isinstance(inode, File) else 0,
        modification_time=inode.mtime,
        owner=user,
        path_suffix=path_suffix,
        permission=f"{mode & 0o1777:o}",
        replication=inode.replication if isinstance(inode, File) else 0,
        storage_policy=policy,
        type="FILE" if is_file else "SYMLINK" if isinstance(inode, Symlink) else "DIRECTORY",
        symlink=inode.target if isinstance(inode, Symlink) else None,
        acl_bit=bool(inode.acl),
    )


def list_page(inode: Inode, start_after: str = "", limit: int = PAGE_MAX) -> Page:
    """Entries of a directory whose names come after `start_after`; of anything else, itself with an empty suffix."""
    if not isinstance(inode, Directory):
        return Page([status_of(inode)], 0)
    names = inode.sorted_names()
    first = bisect_right(names, start_after) if start_after else 0
    page = names[first : first + limit]
    inherited = _policy_of(inode)
    entries = [status_of(inode.children[name], name, inherited) for name in page]
    return Page(entries, len(names) - first - len(page))
