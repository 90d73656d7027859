"""Our operations as the values that Hadoop holds of them, by the names of its fields: what HadoopTool's `read` tells.

A table of its own, apart from any form of edits that we write: it is compared with what Hadoop says by reflection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from journalmgr.edits.fields import Acl, AclEntry, Block, RpcIds, XAttr, XAttrs
from journalmgr.edits.ops import Op

_SAME = "path src dst target mtime atime timestamp blocks replication token key directive time overwrite"

_NAMES: Mapping[str, str] = {
    **{name: name for name in _SAME.split()},
    "inode_id": "inodeId",
    "block_size": "blockSize",
    "permission": "permissions",
    "acl": "aclEntries",
    "xattrs": "xAttrs",
    "client_name": "clientName",
    "client_machine": "clientMachine",
    "storage_policy_id": "storagePolicyId",
    "policy_id": "policyId",
    "mode": "permissions",
    "user": "username",
    "group": "groupname",
    "namespace_quota": "nsQuota",
    "space_quota": "dsQuota",
    "storage_type": "type",
    "block_id": "blockId",
    "new_block": "newBlock",
    "new_length": "newLength",
    "holder": "leaseHolder",
    "new_holder": "newHolder",
    "expiry": "expiryTime",
    "root": "snapshotRoot",
    "options": "options",
    "id": "id",
    "pool": "info",
}
"""Hadoop's name of each field."""

_NAMES_OF: Mapping[tuple[str, str], str] = {
    ("SYMLINK", "target"): "value",
    ("SYMLINK", "permission"): "permissionStatus",
    ("CONCAT_DELETE", "target"): "trg",
    ("CONCAT_DELETE", "sources"): "srcs",
    ("SET_GENSTAMP_V1", "generation_stamp"): "genStampV1",
    ("SET_GENSTAMP_V2", "generation_stamp"): "genStampV2",
    ("MKDIR", "mtime"): "timestamp",
    ("REMOVE_CACHE_POOL", "name"): "poolName",
    ("CREATE_SNAPSHOT", "name"): "snapshotName",
    ("DELETE_SNAPSHOT", "name"): "snapshotName",
    ("RENAME_SNAPSHOT", "old_name"): "snapshotOldName",
    ("RENAME_SNAPSHOT", "new_name"): "snapshotNewName",
}
"""Where one operation differs from the others."""

_NOT_HELD = {("MKDIR", "atime")}
"""Written, and not kept by Hadoop's reader."""

_SIGNED_BYTES = {"storage_policy_id", "policy_id"}
"""We hold 0 to 255, Hadoop -128 to 127."""

_EMPTY_AS_NONE = {"user", "group"}


def _list(value: Any) -> Any:
    """Tuples as JSON has them, bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_list(item) for item in value]
    return value


def _entries(acl: tuple[AclEntry, ...]) -> list[Any]:
    return [[entry.type, entry.scope, entry.permission, entry.name or None] for entry in acl]


def _attributes(xattrs: tuple[XAttr, ...]) -> list[Any]:
    return [[item.namespace, item.name, _list(item.value)] for item in xattrs]


def _blocks(name: str, blocks: tuple[Block, ...]) -> dict[str, Any]:
    """Blocks; two operations name them one by one."""
    if name == "ADD_BLOCK":
        return {"penultimateBlock": _list(blocks[0]) if len(blocks) == 2 else None, "lastBlock": _list(blocks[-1])}
    if name == "TRUNCATE":
        return {"truncateBlock": _list(blocks[0]) if blocks else None}
    return {"blocks": _list(blocks)}


def _rpc(_name: str, rpc: RpcIds) -> dict[str, Any]:
    return {"rpcClientId": rpc.client_id.hex(), "rpcCallId": rpc.call_id}


def _acl(_name: str, acl: Acl | tuple[AclEntry, ...]) -> dict[str, Any]:
    if isinstance(acl, Acl):
        return {"src": acl.src, "aclEntries": _entries(acl.entries)}
    return {"aclEntries": _entries(acl) or None}


def _xattrs(name: str, xattrs: XAttrs) -> dict[str, Any]:
    held = {"xAttrs": _attributes(xattrs.attributes)}
    return held if name in ("ADD", "MKDIR") else held | {"src": xattrs.src or ""}


_SPECIAL: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "blocks": _blocks,
    "rpc": _rpc,
    "acl": _acl,
    "xattrs": _xattrs,
}


def hadoop_fields(op: Op) -> dict[str, Any]:
    """The fields of an operation that is written, as Hadoop holds them."""
    held: dict[str, Any] = {}
    name = op.opcode.name
    for spec in op.layout:
        value = getattr(op, spec.name)
        if (name, spec.name) in _NOT_HELD or spec.since < -63:
            continue
        if spec.name in _SPECIAL:
            held |= _SPECIAL[spec.name](name, value)
            continue
        if spec.name in _SIGNED_BYTES:
            value = (value + 128) % 256 - 128
        if spec.name in _EMPTY_AS_NONE:
            value = value or None
        if spec.name == "mode":
            value = (value,)
        if spec.name == "token":
            value = value[1:]
        held[_NAMES_OF.get((name, spec.name)) or _NAMES[spec.name]] = _list(value)
    return held
