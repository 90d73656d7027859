"""Access control lists of inodes: what is kept beside the mode, and how it is put together again. Pure.

    logical list   user::, user:NAME:, group::, group:NAME:, mask::, other::   and the same with default:
    kept           named users and groups and group:: of the access list, if it has a mask; the default list whole
    in the mode    user:: other:: and mask:: (or group::, where there is no mask)

As HDFS does it, so that a change of the mode changes the list as well. An operation carries the logical list.
Source: journal-manager.md 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable

from journalmgr.edits.fields import AclEntry

USER, GROUP, MASK, OTHER = range(4)
ACCESS, DEFAULT = range(2)

MINIMAL = 3
"""user::, group:: and other:: and nothing else: that is the mode."""

_ALL = 0o777


def store(mode: int, entries: Iterable[AclEntry]) -> tuple[int, tuple[AclEntry, ...]]:
    """The mode, and what is kept of a logical list. No entry: the mode stays, nothing is kept."""
    access = [entry for entry in entries if entry.scope == ACCESS]
    default = [entry for entry in entries if entry.scope == DEFAULT]
    plain = {entry.type: entry.permission for entry in access if not entry.name}
    user = plain.get(USER, mode >> 6 & 7)
    group = plain.get(MASK, plain.get(GROUP, mode >> 3 & 7))
    other = plain.get(OTHER, mode & 7)
    kept = []
    if len(access) > MINIMAL:
        kept = [entry for entry in access if entry.name or entry.type == GROUP]
    return mode & ~_ALL | user << 6 | group << 3 | other, tuple(sorted(kept + default, key=_order))


def logical(mode: int, kept: tuple[AclEntry, ...]) -> tuple[AclEntry, ...]:
    """The whole list of an inode; empty where it has none but its mode."""
    if not kept:
        return ()
    access = [entry for entry in kept if entry.scope == ACCESS]
    entries = [
        AclEntry(USER, ACCESS, mode >> 6 & 7, None),
        *access,
        AclEntry(MASK if access else GROUP, ACCESS, mode >> 3 & 7, None),
        AclEntry(OTHER, ACCESS, mode & 7, None),
        *(entry for entry in kept if entry.scope == DEFAULT),
    ]
    return tuple(sorted(entries, key=_order))


def without(mode: int, kept: tuple[AclEntry, ...]) -> int:
    """The mode once the list is removed: the bits of the mask become those of the group again."""
    for entry in kept:
        if entry.scope == ACCESS and entry.type == GROUP and not entry.name:
            return mode & ~0o070 | entry.permission << 3
    return mode


def inherit(mode: int, parent: tuple[AclEntry, ...], *, is_directory: bool) -> tuple[int, tuple[AclEntry, ...]]:
    """Mode and logical list of something new, from the default list that its directory keeps."""
    defaults = [entry for entry in parent if entry.scope == DEFAULT]
    if not defaults:
        return mode, ()
    entries = []
    for entry in defaults:
        permission = entry.permission
        if not entry.name:
            if entry.type == USER:
                permission &= mode >> 6
            elif entry.type == MASK or (entry.type == GROUP and len(defaults) == MINIMAL):
                permission &= mode >> 3
            elif entry.type == OTHER:
                permission &= mode
        entries.append(AclEntry(entry.type, ACCESS, permission, entry.name))
    mode, kept = store(mode, entries + (defaults if is_directory else []))
    return mode, logical(mode, kept)


def _order(entry: AclEntry) -> tuple[int, int, bool, str]:
    # USER, GROUP, MASK, OTHER; the unnamed one before the named.
    return entry.scope, entry.type, bool(entry.name), entry.name or ""
