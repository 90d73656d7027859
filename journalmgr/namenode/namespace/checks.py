"""What a name node looks at before it logs an operation: paths, what is there, limits and quotas. Pure.

Every function raises a RequestRefused of the reason, or returns what was asked for; none changes anything.
Source: limits and their order are Hadoop 2.7's.
"""

from __future__ import annotations

from journalmgr.namenode.errors import (
    FileNotFound,
    InvalidPath,
    LimitExceeded,
    NotADirectory,
    NotAFile,
    NotPossible,
    ParentNotDirectory,
    QuotaExceeded,
    UnresolvedLink,
)
from journalmgr.namenode.namespace.tree import (
    COMPONENT_BYTES_MAX,
    DIRECTORY_ITEMS_MAX,
    PATH_CHARACTERS_MAX,
    PATH_DEPTH_MAX,
    Directory,
    File,
    Inode,
    Namespace,
    Symlink,
    path_of,
)

TEXT_BYTES_MAX = 4096
"""Of names of users, groups, clients and hosts, and of targets of links."""

SNAPSHOT_NAME = ".snapshot"
"""Hadoop's name for the snapshots of a directory. A NameNode loads no journal that makes an inode with this name."""

RESERVED_NAME = ".reserved"
"""Hadoop's name, in the root, for other ways to address inodes."""


def components(path: str) -> list[str]:
    """The names of a path, none for the root. Raises InvalidPath, LimitExceeded."""
    if len(path) > PATH_CHARACTERS_MAX:
        raise LimitExceeded(f"a path of {len(path)} characters; at most {PATH_CHARACTERS_MAX} are possible")
    if path == "/":
        return []
    first, *names = path.split("/")
    if first or not names:
        raise InvalidPath(f"{path!r} is not absolute: a path begins with /")
    if len(names) > PATH_DEPTH_MAX:
        raise LimitExceeded(f"a path of {len(names)} components; at most {PATH_DEPTH_MAX} are possible")
    for name in names:
        if name in ("", ".", "..") or ":" in name or "\0" in name:
            raise InvalidPath(f"{path!r} has the component {name!r}: empty ones, '.', '..', ':' and NUL cannot be")
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise InvalidPath(f"{path!r} is no text: {error}") from error
        if size > COMPONENT_BYTES_MAX:
            raise LimitExceeded(f"{name[:40]!r}... has {size} bytes; a component has at most {COMPONENT_BYTES_MAX}")
    return names


def check_new(path: str) -> None:
    """Raise NotPossible for a path that must not be made.

    Operations can read, rename and delete such a path of an older journal.
    Source: FSDirectory.verifyINodeName and addLastINode of Hadoop 2.7.
    """
    names = path.split("/")
    reserved = RESERVED_NAME if names[1:2] == [RESERVED_NAME] else SNAPSHOT_NAME
    if reserved in names:
        raise NotPossible(
            f'{path!r}: "{reserved}" is a reserved name, and a NameNode would not load the journal; choose another name'
        )


def walk(namespace: Namespace, path: str) -> tuple[Inode, list[str]]:
    """The deepest inode of a path that exists, and the names below it that do not.

    Raises UnresolvedLink, ParentNotDirectory where something before the last component is no directory; what the last
    one is, nobody minds.
    """
    names = components(path)
    node: Inode = namespace.root
    for position, name in enumerate(names):
        if isinstance(node, Symlink):
            raise unresolved(node, names[position:])
        if not isinstance(node, Directory):
            raise ParentNotDirectory(f"{path_of(node)} is a file, so there is nothing below it: {path}")
        child = node.children.get(name)
        if child is None:
            return node, names[position:]
        node = child
    return node, []


def existing(namespace: Namespace, path: str) -> Inode:
    """What is there; a link itself, if the last component is one. Raises FileNotFound and what `walk` does."""
    inode, missing = walk(namespace, path)
    if missing:
        raise FileNotFound(f"{path} does not exist")
    return inode


def followed(namespace: Namespace, path: str) -> Inode:
    """What is there and no link. Raises UnresolvedLink for one: clients follow links themselves."""
    inode = existing(namespace, path)
    if isinstance(inode, Symlink):
        raise unresolved(inode, [])
    return inode


def directory(namespace: Namespace, path: str) -> Directory:
    """A directory. Raises NotADirectory."""
    inode = followed(namespace, path)
    if not isinstance(inode, Directory):
        raise NotADirectory(f"{path} is a file; this is possible with directories alone")
    return inode


def file(namespace: Namespace, path: str) -> File:
    """A file. Raises NotAFile."""
    inode = followed(namespace, path)
    if not isinstance(inode, File):
        raise NotAFile(f"{path} is a directory; this is possible with files alone")
    return inode


def check_text(what: str, value: str) -> None:
    """Raise NotPossible for a string that an operation cannot carry; found here, nothing of the request is logged."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise NotPossible(f"{what} {value!r} is no text: {error}") from error
    if size > TEXT_BYTES_MAX or "\0" in value:
        raise NotPossible(f"{what} {value[:40]!r}: {size} bytes, of at most {TEXT_BYTES_MAX}, and none of them NUL")


def unresolved(link: Symlink, rest: list[str]) -> UnresolvedLink:
    """The refusal that says where a link leads, `.` and `..` resolved, with the components behind it."""
    target = link.target
    path = path_of(link)
    if "://" not in target:
        whole = target if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"
        names: list[str] = []
        for name in whole.split("/"):
            if name == "..":
                names[-1:] = []
            elif name not in ("", "."):
                names.append(name)
        target = "/" + "/".join(names)
    resolved = "/".join([target.rstrip("/"), *rest]) or "/"
    return UnresolvedLink(f"{path} is a symbolic link: ask for {resolved}", target=resolved)


def check_room(parent: Directory, count: int = 1) -> None:
    """Raise LimitExceeded if a directory cannot take so many more."""
    if len(parent.children) + count > DIRECTORY_ITEMS_MAX:
        raise LimitExceeded(f"{path_of(parent)} has {len(parent.children)} items, and at most {DIRECTORY_ITEMS_MAX}")


def check_quota(parent: Directory, names: int, space: int, *, below: Directory | None = None) -> None:
    """Raise QuotaExceeded if that much more in a directory is beyond its quota, or that of one above it.

    below: look no further up than here: what moves within it changes nothing for it and those above.
    """
    if names <= 0 and space <= 0:
        return
    node: Directory | None = parent
    while node is not None and node is not below:
        quota = node.quota
        if quota is not None:
            if names > 0 and quota.names is not None and quota.used_names + names > quota.names:
                raise _exceeded(node, "names", quota.names, quota.used_names, names)
            if space > 0 and quota.space is not None and quota.used_space + space > quota.space:
                raise _exceeded(node, "bytes", quota.space, quota.used_space, space)
        node = node.parent


def common_directory(one: Directory, other: Directory) -> Directory:
    """The deepest directory that both are, or are in."""
    above = set()
    node: Directory | None = one
    while node is not None:
        above.add(node.id)
        node = node.parent
    node = other
    while node.id not in above:
        assert node.parent is not None, "all are below the root"
        node = node.parent
    return node


def _exceeded(node: Directory, what: str, limit: int, used: int, more: int) -> QuotaExceeded:
    path = path_of(node)
    return QuotaExceeded(
        f"the quota of {path} is {limit} {what}, {used} are used, and this takes {more} more: delete something below "
        "it, or raise the quota",
        path=path,
    )
