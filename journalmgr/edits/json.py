"""Operations as JSON, one object each, and back. Pure.

    {"op": "OP_DELETE", "txid": 8, "path": "/x", "timestamp": 1421135800377, "rpc": {"client_id": "", "call_id": -2}}

Every field of the operation under the name it has in `ops`, bytes in hexadecimal digits, null where a value is absent.
Unlike the XML it holds all there is: what is read back equals what was written. An operation that is not taken apart
has its "body". Which layout it came from is not in it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from bookkeeper.errors import InvalidArgument, PortableError
from bookkeeper.texts import parse_json
from journalmgr.edits.opcodes import HADOOP_3_ONLY, OpCode
from journalmgr.edits.ops import OPS, AnyOp, RawOp
from journalmgr.errors import EditsCorrupt

_RAW = frozenset({OpCode.OPAQUE, *HADOOP_3_ONLY})


class _Wrong(PortableError):
    """A value that is not what the field takes; where: the names on the way to it."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.where = where

    def within(self, name: str) -> _Wrong:
        inner = f".{self.where}" if self.where and not self.where.startswith("[") else self.where
        return _Wrong(self.why, name + inner)


def to_object(op: AnyOp) -> dict[str, Any]:
    """What `json.dumps` takes."""
    if isinstance(op, RawOp):
        if op.opcode not in _RAW:
            raise InvalidArgument(f"an operation of opcode {op.opcode} has no name to be written by")
        return {"op": OpCode(op.opcode).hadoop_name, "txid": op.txid, "body": op.body.hex()}
    found: dict[str, Any] = {"op": op.opcode.hadoop_name, "txid": op.txid}
    for spec in op.layout:
        found[spec.name] = plain(getattr(op, spec.name))
    return found


def dumps(op: AnyOp) -> str:
    """One line, without its end; ASCII only."""
    return json.dumps(to_object(op))


def from_object(found: Any, source: str = "") -> AnyOp:
    """The operation. Raises EditsCorrupt, which names the field."""
    try:
        return _operation(found)
    except _Wrong as error:
        why = f"{error.where}: {error.why}" if error.where else error.why
        raise EditsCorrupt(why, source=source) from error


def loads(line: str | bytes, source: str = "") -> AnyOp:
    """The operation on one line. source: for messages, best with the number of the line. Raises EditsCorrupt."""
    try:
        found = parse_json(line)
    except ValueError as error:
        raise EditsCorrupt(f"no JSON: {error}", source=source) from error
    return from_object(found, source)


def plain(value: Any) -> Any:
    """A field's value as `json.dumps` takes it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return [plain(one) for one in value]
        return {name: plain(one) for name, one in zip(names, value, strict=True)}
    return value


def _operation(found: Any) -> AnyOp:
    if not isinstance(found, dict):
        raise _Wrong("an operation is an object")
    name = found.get("op")
    opcode = OpCode.__members__.get(name.removeprefix("OP_")) if isinstance(name, str) else None
    if opcode is None or name != opcode.hadoop_name:
        raise _Wrong(f"{name!r} is no operation", "op")
    fields = {key: value for key, value in found.items() if key != "op"}
    if opcode in _RAW:
        raw = _members(fields, {"txid": _integer, "body": _bytes}, name)
        return RawOp(opcode, raw["body"], raw["txid"])
    if opcode not in OPS:
        raise _Wrong(f"{name} is obsolete and not read", "op")
    return OPS[opcode](**_members(fields, _readers(opcode), name))


_Reader = Callable[[Any], Any]


def _members(found: dict[str, Any], readers: dict[str, _Reader], where: str) -> dict[str, Any]:
    before = f"{where}." if where else ""
    for name in found:
        if name not in readers:
            raise _Wrong("no such field", before + name)
    values = {}
    for name, read in readers.items():
        if name not in found:
            raise _Wrong("is missing", before + name)
        try:
            values[name] = read(found[name])
        except _Wrong as error:
            raise error.within(before + name) from error
    return values


@cache
def _readers(opcode: OpCode) -> dict[str, _Reader]:
    hints = get_type_hints(OPS[opcode])
    return {"txid": _integer} | {spec.name: _reader(hints[spec.name]) for spec in OPS[opcode].layout}


def _reader(hint: Any) -> _Reader:
    """What reads a value of that type."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is types.UnionType:  # X | None
        (inner,) = (_reader(one) for one in get_args(hint) if one is not types.NoneType)
        return lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:  # tuple[X, ...]
        return _list_reader(_reader(get_args(hint)[0]))
    readers = {name: _reader(inner) for name, inner in get_type_hints(hint).items()}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"{_short(value)} where an object should be")
        return hint(**_members(value, readers, ""))

    return read


def _list_reader(inner: _Reader) -> _Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Wrong(f"{_short(value)} where a list should be")
        values = []
        for at, one in enumerate(value):
            try:
                values.append(inner(one))
            except _Wrong as error:
                raise error.within(f"[{at}]") from error
        return tuple(values)

    return read


def _integer(value: Any) -> int:
    if type(value) is not int:  # a bool is none
        raise _Wrong(f"{_short(value)} where a whole number should be")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"{_short(value)} where true or false should be")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{_short(value)} where a string should be")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    raise _Wrong(f"{_short(value)} where hexadecimal digits should be")


def _short(value: Any) -> str:
    return repr(value)[:60]


_SCALARS: dict[Any, _Reader] = {int: _integer, bool: _boolean, str: _string, bytes: _bytes}
