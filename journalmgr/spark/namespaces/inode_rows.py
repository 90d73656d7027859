"""An inode as a row of the snapshot table, and back. Pure.

Nothing that a later transaction may need is lost: what has no column of its own, or what its column cannot show as it
is, stands in `rest`, a JSON object that most rows do not have:

    acl             [[type, scope, permission, name], ...]        quota_by_type   {storage type: bytes}
    xattrs          [[namespace, name, value in hexadecimal digits or null], ...]
    client_machine  of who writes the file
    waiting_bytes   of a file, that no operation with a time has followed yet (see `growth`)
    mtime, atime    milliseconds, of a time that no calendar has; the column is null
    name, target, client_name   with a lone surrogate, which UTF-8 does not have; the column shows U+FFFD
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from bookkeeper.errors import InvalidArgument
from bookkeeper.texts import parse_json
from journalmgr.edits.fields import AclEntry, Block, Permission, XAttr
from journalmgr.namenode.namespace.tree import Directory, File, Inode, Lease, Quota, Symlink

FILE, DIRECTORY, SYMLINK = "file", "directory", "symlink"
LONG, INT, STRING, BOOLEAN, BLOCKS = "long", "int", "string", "boolean", "blocks"

_MS = 1000
_MS_MIN, _MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999."""


class Column(NamedTuple):
    """One column of what the fold gives. Times in it are microseconds since 1970."""

    name: str
    type: str


COLUMNS = (
    Column("inode_id", LONG),
    Column("parent_id", LONG),
    Column("directory", STRING),
    Column("name", STRING),
    Column("kind", STRING),
    Column("owner", STRING),
    Column("group", STRING),
    Column("permission", STRING),
    Column("replication", INT),
    Column("block_size", LONG),
    Column("length", LONG),
    Column("blocks", BLOCKS),
    Column("mtime", LONG),
    Column("atime", LONG),
    Column("names_quota", LONG),
    Column("space_quota", LONG),
    Column("storage_policy_id", INT),
    Column("erasure_coding_policy_id", INT),
    Column("target", STRING),
    Column("under_construction", BOOLEAN),
    Column("client_name", STRING),
    Column("made_txid", LONG),
    Column("changed_txid", LONG),
    Column("rest", STRING),
)
"""In the order of the values that `row_of` gives."""


class Notes(NamedTuple):
    """What is known of an inode besides. made_txid: None for the root; erasure_coding_policy_id: None for copies.

    waiting_bytes: of a file, not yet counted for any hour.
    """

    made_txid: int | None = None
    changed_txid: int | None = None
    erasure_coding_policy_id: int | None = None
    waiting_bytes: int = 0


class Loaded(NamedTuple):
    """An inode of a row, linked with nothing yet."""

    inode: Inode
    parent_id: int | None
    notes: Notes


def shown(text: str) -> str:
    """The text with U+FFFD for each surrogate that stands alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def row_of(inode: Inode, directory: str | None, notes: Notes) -> tuple[Any, ...]:
    """The values of COLUMNS. directory: the path of the inode's parent, as it is shown; None for the root."""
    rest: dict[str, Any] = {}
    user, group, mode = inode.permission
    file = inode if isinstance(inode, File) else None
    quota = inode.quota if isinstance(inode, Directory) else None
    lease = None if file is None else file.lease
    if inode.acl:
        rest["acl"] = [list(entry) for entry in inode.acl]
    if inode.xattrs:
        rest["xattrs"] = [
            [each.namespace, each.name, None if each.value is None else each.value.hex()] for each in inode.xattrs
        ]
    if quota is not None and quota.by_type:
        rest["quota_by_type"] = quota.by_type
    if lease is not None:
        rest["client_machine"] = lease.client_machine
    if notes.waiting_bytes:
        rest["waiting_bytes"] = notes.waiting_bytes
    values = (
        inode.id,
        None if inode.parent is None else inode.parent.id,
        directory,
        _text(rest, "name", inode.name),
        FILE if file is not None else SYMLINK if isinstance(inode, Symlink) else DIRECTORY,
        user or None,
        group or None,
        f"{mode & 0o7777:o}",
        None if file is None else file.replication,
        None if file is None else file.block_size,
        None if file is None else file.length,
        () if file is None else file.blocks,
        _time(rest, "mtime", inode.mtime),
        _time(rest, "atime", inode.atime),
        None if quota is None else quota.names,
        None if quota is None else quota.space,
        (inode.storage_policy_id or None) if isinstance(inode, File | Directory) else None,
        notes.erasure_coding_policy_id,
        _text(rest, "target", inode.target) if isinstance(inode, Symlink) else None,
        lease is not None,
        None if lease is None else _text(rest, "client_name", lease.client_name),
        notes.made_txid,
        notes.changed_txid,
    )
    return (*values, json.dumps(rest) if rest else None)


def _text(rest: dict[str, Any], name: str, text: str) -> str:
    found = shown(text)
    if found != text:
        rest[name] = text
    return found


def _time(rest: dict[str, Any], name: str, ms: int) -> int | None:
    if _MS_MIN <= ms <= _MS_MAX and ms != -1:
        return ms * _MS
    rest[name] = ms
    return None


def inode_of(row: Mapping[str, Any]) -> Loaded:
    """The inode of a row; its blocks are mappings id, num_bytes, generation_stamp. Raises InvalidArgument."""
    try:
        return _inode_of(row, parse_json(row["rest"] or "{}"))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the row of inode {row.get('inode_id')} is none that a snapshot has: {error!r}; make the snapshot anew"
        ) from error


def _inode_of(row: Mapping[str, Any], rest: Mapping[str, Any]) -> Loaded:
    common: dict[str, Any] = {
        "id": row["inode_id"],
        "name": rest.get("name", row["name"]),
        "permission": Permission(row["owner"] or "", row["group"] or "", int(row["permission"], 8)),
        "mtime": rest["mtime"] if row["mtime"] is None else row["mtime"] // _MS,
        "atime": rest["atime"] if row["atime"] is None else row["atime"] // _MS,
        "xattrs": tuple(
            XAttr(namespace, name, None if value is None else bytes.fromhex(value))
            for namespace, name, value in rest.get("xattrs", ())
        ),
        "acl": tuple(AclEntry(*entry) for entry in rest.get("acl", ())),
    }
    policy = row["storage_policy_id"] or 0
    inode: Inode
    if row["kind"] == FILE:
        writes = None
        if row["under_construction"]:
            writes = Lease(rest.get("client_name", row["client_name"]), rest["client_machine"])
        blocks = tuple(Block(each["id"], each["num_bytes"], each["generation_stamp"]) for each in row["blocks"] or ())
        inode = File(
            **common,
            replication=row["replication"],
            block_size=row["block_size"],
            blocks=blocks,
            lease=writes,
            storage_policy_id=policy,
        )
    elif row["kind"] == DIRECTORY:
        by_type = {int(kind): space for kind, space in rest.get("quota_by_type", {}).items()}
        quota = Quota(row["names_quota"], row["space_quota"], by_type)
        inode = Directory(**common, quota=quota if quota.is_set else None, storage_policy_id=policy)
    elif row["kind"] == SYMLINK:
        inode = Symlink(**common, target=rest.get("target", row["target"]))
    else:
        raise ValueError(f"kind {row['kind']!r}")
    notes = Notes(row["made_txid"], row["changed_txid"], row["erasure_coding_policy_id"], rest.get("waiting_bytes", 0))
    return Loaded(inode, row["parent_id"], notes)
