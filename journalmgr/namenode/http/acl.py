"""Access control lists as WebHDFS writes them, and the changes that it knows of them. Pure.

user::rwx,user:carla:rw-,group::r-x,mask::rwx,other::---,default:group::r-x
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from journalmgr.edits.fields import AclEntry
from journalmgr.namenode.errors import AclRefused
from journalmgr.namenode.namespace import acl
from journalmgr.namenode.namespace.tree import Inode

ENTRIES_MAX = 64
"""Of one list and scope, twice 32 as in HDFS."""

_TYPES = ("user", "group", "mask", "other")
_BITS = "xwr"
_ENTRY = re.compile(r"(default:)?(user|group|mask|other):([^:,]*)(?::([r-][w-][x-])?)?")

Key = tuple[int, int, str]


def parse(text: str, *, permissions: bool = True) -> tuple[AclEntry, ...]:
    """Entries of a list. permissions: each must say its own; without, what is said is not looked at.

    Raises ValueError for what is none.
    """
    entries = []
    for part in text.split(","):
        found = _ENTRY.fullmatch(part.strip())
        if found is None or (permissions and found[4] is None):
            raise ValueError(part)
        bits = sum(1 << _BITS.index(bit) for bit in found[4] or "" if bit != "-")
        scope = acl.DEFAULT if found[1] else acl.ACCESS
        entries.append(AclEntry(_TYPES.index(found[2]), scope, bits, found[3] or None))
    if len(entries) > ENTRIES_MAX:
        raise ValueError(text)
    return tuple(entries)


def written(entry: AclEntry) -> str:
    """One entry as text."""
    scope = "default:" if entry.scope == acl.DEFAULT else ""
    bits = "".join(bit if entry.permission & 1 << _BITS.index(bit) else "-" for bit in reversed(_BITS))
    return f"{scope}{_TYPES[entry.type]}:{entry.name or ''}:{bits}"


def status(inode: Inode) -> dict[str, object]:
    """WebHDFS's AclStatus. entries: those that the mode does not say."""
    user, group, mode = inode.permission
    return {
        "entries": [written(entry) for entry in inode.acl],
        "group": group,
        "owner": user,
        "permission": f"{mode & 0o1777:o}",
        "stickyBit": bool(mode & 0o1000),
    }


def whole(inode: Inode) -> tuple[AclEntry, ...]:
    """The list of an inode, that of its mode where it has no other."""
    mode = inode.permission.mode
    return acl.logical(mode, inode.acl) or tuple(
        AclEntry(kind, acl.ACCESS, mode >> shift & 7, None)
        for kind, shift in ((acl.USER, 6), (acl.GROUP, 3), (acl.OTHER, 0))
    )


def modified(inode: Inode, changes: Iterable[AclEntry]) -> tuple[AclEntry, ...]:
    """The list with entries replaced or added. Masks that nobody gives are computed anew; a default list that has no
    entries of its own for the user, the group and others takes those of the access list.
    """
    entries = _by_key(whole(inode))
    given = _by_key(changes)
    entries.update(given)
    return _completed(entries, given)


def reduced(inode: Inode, removed: Iterable[AclEntry]) -> tuple[AclEntry, ...]:
    """The list without some entries. Raises AclRefused for one that cannot go."""
    entries = _by_key(whole(inode))
    gone = _by_key(removed)
    for key, entry in gone.items():
        if entry.scope == acl.ACCESS and not entry.name and entry.type != acl.MASK:
            raise AclRefused(f"{_TYPES[entry.type]}:: cannot be removed from a list")
        entries.pop(key, None)
    return _completed(entries, gone)


def without_default(inode: Inode) -> tuple[AclEntry, ...]:
    """The list without its default entries."""
    return tuple(entry for entry in whole(inode) if entry.scope == acl.ACCESS)


def _by_key(entries: Iterable[AclEntry]) -> dict[Key, AclEntry]:
    return {(entry.scope, entry.type, entry.name or ""): entry for entry in entries}


def _completed(entries: dict[Key, AclEntry], given: dict[Key, AclEntry]) -> tuple[AclEntry, ...]:
    if any(scope == acl.DEFAULT for scope, _, _ in entries):
        for kind in (acl.USER, acl.GROUP, acl.OTHER):
            own = entries[acl.ACCESS, kind, ""]
            entries.setdefault((acl.DEFAULT, kind, ""), own._replace(scope=acl.DEFAULT))
    touched = {scope for scope, _, _ in given}
    for scope in touched:
        mask = (scope, acl.MASK, "")
        if mask in entries and mask not in given:
            del entries[mask]  # `set_acl` puts in one that lets all of them be what they are
    return tuple(entries.values())
