"""Rows of the format editlog: read in this process, and from one to its operation again, as nothing is lost.

The latter is written from the meaning of the columns, not from the table that fills them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

from journalmgr.edits import json as edits_json
from journalmgr.edits.fields import Block, Permission, RpcIds
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import OPS, AnyOp, RawOp

PATHS = ("path", "src", "root")


def read_out(reader: Any, partitions: Iterable[Any]) -> list[dict[str, Any]]:
    """All rows of some partitions."""
    return [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def operation_of(row: dict[str, Any]) -> AnyOp:
    """The operation; times in microseconds since 1970."""
    opcode = OpCode(row["opcode"])
    assert row["op"] == opcode.hadoop_name
    if row["body"] is not None:
        return RawOp(row["opcode"], row["body"], row["txid"])
    kind = OPS[opcode]
    op = kind()
    rest = json.loads(row["fields"] or "{}")
    for field in fields(kind):
        assert field.default is not MISSING
        value = _from_columns(opcode, field.name, row)
        if value is not None:
            setattr(op, field.name, value)
    if rest:
        known = edits_json.to_object(op)
        assert rest.keys() <= known.keys()
        # What `fields` has is what counts, whatever a column shows of it.
        return edits_json.from_object({**known, **rest})
    return op


def _from_columns(opcode: OpCode, name: str, row: dict[str, Any]) -> Any:
    if name == "permission":
        return None if row["mode"] is None else Permission(row["owner"], row["group"], row["mode"])
    if name == "rpc":
        client_id, call_id = row["rpc_client_id"], row["rpc_call_id"]
        if client_id is None and call_id is None:
            return None
        return RpcIds(bytes.fromhex(client_id or ""), -2 if call_id is None else call_id)
    if name in PATHS or (name == "target" and opcode is OpCode.CONCAT_DELETE):
        return row["path"]
    if name in ("mtime", "atime", "timestamp", "time"):
        micros = row["timestamp" if name == "time" else name]
        return None if micros is None else micros // 1000
    if name == "blocks":
        blocks = row["blocks"]
        return None if blocks is None else tuple(Block(*each.values()) for each in blocks)
    if name == "sources":
        return None if row["sources"] is None else tuple(row["sources"])
    column = {"user": "owner", "policy_id": "storage_policy_id"}.get(name, name)
    return None if name in ("acl", "xattrs", "body") else row.get(column)
