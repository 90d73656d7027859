"""Access control lists of inodes: what is kept beside the mode, and how it is put together again. Pure.

    logical list   user::, user:NAME:, group::, group:NAME:, mask::, other::   and the same with default:
    kept           named users and groups and group:: of the access list, if it has a mask; the default list whole
    in the mode    user:: other:: and mask:: (or group::, where there is no mask)

As HDFS does it, so that a change of the mode changes the list as well. An operation carries the logical list.
Source: journalmgr/FORMATS.md 5.4 (numbers), 8.3 (what is kept).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from journalmgr.edits.fields import AclEntry
from journalmgr.namenode.errors import AclRefused
from journalmgr.namenode.namespace import checks

USER, GROUP, MASK, OTHER = range(4)
ACCESS, DEFAULT = range(2)

MINIMAL = 3
"""user::, group:: and other:: and nothing else: that is the mode."""

ENTRIES_MAX = 32
"""Of both scopes, as a client gives them."""

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


def complete(path: str, entries: Sequence[AclEntry], *, is_directory: bool) -> tuple[AclEntry, ...]:
    """The list that a client gives, with the mask that it left out. Raises AclRefused; path: for its message."""
    if len(entries) > ENTRIES_MAX:
        raise AclRefused(f"{path}: {len(entries)} entries; at most {ENTRIES_MAX} are possible")
    for entry in entries:
        checks.check_text("the name of an entry", entry.name or "")
    whole: list[AclEntry] = []
    for scope in (ACCESS, DEFAULT):
        own = [entry for entry in entries if entry.scope == scope]
        keys = [(entry.type, entry.name or "") for entry in own]
        if len(set(keys)) != len(keys):
            raise AclRefused(f"{path}: an entry is there twice: {entries}")
        if any(entry.type in (MASK, OTHER) and entry.name for entry in own):
            raise AclRefused(f"{path}: mask and other have no name: {entries}")
        if any(not (0 <= entry.type <= OTHER and 0 <= entry.permission <= 7) for entry in own):
            raise AclRefused(f"{path}: {entries} has an entry that is none")
        if own and not {kind for kind, name in keys if not name} >= {USER, GROUP, OTHER}:
            raise AclRefused(f"{path}: entries for the user, the group and others are needed: {entries}")
        if len(own) > MINIMAL and (MASK, "") not in keys:
            mask = 0
            for entry in own:
                if entry.name or entry.type == GROUP:
                    mask |= entry.permission
            own.append(AclEntry(MASK, scope, mask, None))
        whole += own
    if any(entry.scope == DEFAULT for entry in whole) and not is_directory:
        raise AclRefused(f"{path} is a file, and only directories have a default list")
    if not any(entry.scope == ACCESS for entry in whole):
        raise AclRefused(f"{path}: entries for the user, the group and others are needed: {entries}")
    return tuple(sorted(whole, key=_order))


def _order(entry: AclEntry) -> tuple[int, int, bool, str]:
    # USER, GROUP, MASK, OTHER; the unnamed one before the named.
    return entry.scope, entry.type, bool(entry.name), entry.name or ""
