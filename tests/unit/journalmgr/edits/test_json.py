"""Operations as JSON lines."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from journalmgr.edits.fields import CacheDirective, Permission, RpcIds, XAttr, XAttrs
from journalmgr.edits.json import dumps, from_object, loads, to_object
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import Delete, ModifyCacheDirective, Op, RawOp, SetXAttr, Symlink
from journalmgr.errors import EditsCorrupt
from tests.support.edit_ops import operations, samples

DELETE = Delete(txid=8, path="/x\n\ud800ä", timestamp=5, rpc=RpcIds(bytes(range(16)), 13))


def test_an_operation_is_one_ascii_line_with_the_names_of_its_fields() -> None:
    assert dumps(DELETE) == (
        r'{"op": "OP_DELETE", "txid": 8, "path": "/x\n\ud800\u00e4", "timestamp": 5, '
        '"rpc": {"client_id": "000102030405060708090a0b0c0d0e0f", "call_id": 13}}'
    )
    assert to_object(ModifyCacheDirective(txid=1, directive=CacheDirective(3, pool="p")))["directive"] == {
        "id": 3,
        "path": None,
        "replication": None,
        "pool": "p",
        "expiry_ms": None,
    }
    attributes = to_object(SetXAttr(txid=1, xattrs=XAttrs("/x", (XAttr(0, "n", b"\xff"), XAttr(1, "m", None)))))
    assert attributes["xattrs"]["attributes"] == [
        {"namespace": 0, "name": "n", "value": "ff"},
        {"namespace": 1, "name": "m", "value": None},
    ]


def test_every_operation_there_and_back() -> None:
    for op in samples(-67):
        assert loads(dumps(op)) == op
        assert set(to_object(op)) == {"op", "txid", *(spec.name for spec in op.layout)}


@given(operations(-67))
def test_any_operation_there_and_back(op: Op) -> None:
    line = dumps(op)
    assert "\n" not in line
    assert loads(line.encode("ascii")) == op


def test_what_is_not_taken_apart_has_a_body() -> None:
    raw = RawOp(OpCode.OPAQUE, b"\0\xff", 4)
    assert dumps(raw) == '{"op": "OP_OPAQUE", "txid": 4, "body": "00ff"}'
    assert loads(dumps(raw)) == raw
    with pytest.raises(InvalidArgument, match="opcode 99 has no name"):
        dumps(RawOp(99, b"", 1))


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """The object of a Symlink with one value replaced, or left out for Ellipsis."""
    op = Symlink(txid=1, path="/s", permission=Permission("u", "g", 7))
    found: Any = json.loads(dumps(op))
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (["mtime"], "5", "OP_SYMLINK.mtime: '5' where a whole number should be"),
        (["mtime"], True, "OP_SYMLINK.mtime: True where a whole number should be"),
        (["mtime"], 5.0, "OP_SYMLINK.mtime: 5.0 where a whole number should be"),
        (["path"], None, "OP_SYMLINK.path: None where a string should be"),
        (["path"], ..., "OP_SYMLINK.path: is missing"),
        (["txid"], ..., "OP_SYMLINK.txid: is missing"),
        (["colour"], 1, "OP_SYMLINK.colour: no such field"),
        (["permission"], [], r"OP_SYMLINK.permission: \[\] where an object should be"),
        (["permission", "mode"], ..., "OP_SYMLINK.permission.mode: is missing"),
        (["permission", "x"], 1, "OP_SYMLINK.permission.x: no such field"),
        (["permission", "user"], 1, "OP_SYMLINK.permission.user: 1 where a string"),
        (["rpc", "client_id"], "0", "OP_SYMLINK.rpc.client_id: '0' where hexadecimal digits"),
        (["op"], "OP_X", "op: 'OP_X' is no operation"),
        (["op"], "SYMLINK", "op: 'SYMLINK' is no operation"),
        (["op"], 5, "op: 5 is no operation"),
        (["op"], ..., "op: None is no operation"),
        (["op"], "OP_DATANODE_ADD", "op: OP_DATANODE_ADD is obsolete"),
    ],
)
def test_what_is_wrong_is_named(path: list[Any], value: Any, why: str) -> None:
    with pytest.raises(EditsCorrupt, match=f"^dump line 3: {why}"):
        from_object(changed(path, value), "dump line 3")


def test_lists_and_flags_are_checked_inside() -> None:
    add = next(op for op in samples(-67) if op.opcode == OpCode.ADD)
    found = to_object(add)
    found["blocks"][1]["size"] = None
    with pytest.raises(EditsCorrupt, match=r"OP_ADD.blocks\[1\].size: None where a whole number"):
        from_object(found)
    with pytest.raises(EditsCorrupt, match=r"OP_ADD.blocks: 3 where a list"):
        from_object(to_object(add) | {"blocks": 3})
    with pytest.raises(EditsCorrupt, match=r"OP_ADD.overwrite: 1 where true or false"):
        from_object(to_object(add) | {"overwrite": 1})


@pytest.mark.parametrize("line", ["", "{", "[]", "3", b"\xff", "[" * 100_000])
def test_what_is_no_operation_is_corrupt(line: str | bytes) -> None:
    with pytest.raises(EditsCorrupt, match=r"^here: (no JSON|an operation is an object)"):
        loads(line, "here")


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)))
def test_any_other_body_is_corrupt(value: Any) -> None:
    if isinstance(value, str):
        return
    with pytest.raises(EditsCorrupt):
        from_object({"op": "OP_OPAQUE", "txid": 1, "body": value})
