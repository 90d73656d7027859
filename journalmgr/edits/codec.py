"""Operations as bytes: one decoder and one encoder per operation and layout, put together from its fields. Pure.

    decode(record, layout_version) -> Op            encode(op, layout_version) -> the whole record
    values_of(record, layout_version) -> its class and fields, where no object is wanted
    present(kind, layout_version)  -> which fields a layout has
    measure(layout_version)        -> where a body ends, for layouts whose records do not say it

Neighbouring fields of fixed size are one struct; what a layout lacks keeps its default.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import InvalidArgument
from journalmgr.edits.frame import check_readable, check_writable, encode_record, has_length
from journalmgr.edits.opcodes import HADOOP_3_ONLY, UNDECODABLE, OpCode
from journalmgr.edits.ops import ALWAYS, OPS, AnyOp, FieldSpec, Op, RawOp
from journalmgr.errors import EditsCorrupt, EditsError, UnknownOp
from journalmgr.model import OPAQUE

if TYPE_CHECKING:
    from journalmgr.contract import Record


_Step = tuple[struct.Struct | None, Callable[[bytes, int], tuple[Any, int]] | None, Any]
"""Neighbouring fixed-size fields in one struct; or the reader of a field; or the default of an absent one."""


def decode(record: Record, layout_version: int, source: str = "") -> AnyOp:
    """The operation of a record. Raises UnknownOp, EditsCorrupt; both name where."""
    found = values_of(record, layout_version, source)
    if found is None:
        return RawOp(record.opcode, record.body, record.txid)
    kind, values = found
    op = kind(*values)
    op.txid = record.txid
    return op


def values_of(record: Record, layout_version: int, source: str = "") -> tuple[type[Op], list[Any]] | None:
    """The class of a record's operation and its fields in the order of the wire; None for one that stays raw.

    Raises as `decode`, which makes an operation of it; for whoever wants columns rather than objects.
    """
    if layout_version == OPAQUE and record.opcode == OpCode.OPAQUE:
        return None
    found = _decoders(layout_version).get(record.opcode)
    if found is None:
        if record.opcode in HADOOP_3_ONLY and has_length(layout_version):
            return None
        raise UnknownOp(
            _no_such_op(record.opcode, layout_version), source=source, offset=record.offset, txid=record.txid
        )
    kind, steps = found
    body = record.body
    try:
        values, position = _take(body, 0, steps)
    except (IndexError, struct.error) as error:
        raise EditsCorrupt(
            f"the body of {kind.opcode.hadoop_name} is cut short: {len(body)} bytes",
            source=source,
            offset=record.offset,
            txid=record.txid,
        ) from error
    except EditsError as error:
        why = f"{kind.opcode.hadoop_name}: {error.why}"
        raise type(error)(why, source=source, offset=record.offset, txid=record.txid) from error
    if position != len(body):
        raise EditsCorrupt(
            f"{len(body) - position} bytes behind the fields of {kind.opcode.hadoop_name}",
            source=source,
            offset=record.offset,
            txid=record.txid,
        )
    return kind, values


def encode_body(op: AnyOp, layout_version: int) -> bytes:
    """The bytes between txid and checksum. Raises InvalidArgument for a value that does not fit."""
    if isinstance(op, RawOp):
        if (op.opcode == OpCode.OPAQUE) != (layout_version == OPAQUE):
            raise InvalidArgument(f"a transaction of opcode {op.opcode} has no place in layout {layout_version}")
        return op.body
    encoder = _encoders(layout_version).get(op.opcode)
    if encoder is None:
        raise InvalidArgument(f"{op.opcode.hadoop_name} has no place in layout {layout_version} (opaque)")
    parts = []
    for layout, names, single in encoder:
        values = [getattr(op, name) for name in names]
        try:
            parts.append(single(values[0]) if single is not None else layout.pack(*values))
        except struct.error as error:
            raise InvalidArgument(
                f"{op.opcode.hadoop_name}: {dict(zip(names, values, strict=True))}: {error}"
            ) from error
        except InvalidArgument as error:
            raise InvalidArgument(f"{op.opcode.hadoop_name}: {names[0]}: {error}") from error
    return b"".join(parts)


def encode(op: AnyOp, layout_version: int) -> bytes:
    """The whole record. Raises UnsupportedLayout, InvalidArgument."""
    check_writable(layout_version)
    if op.opcode in (OpCode.SET_NS_QUOTA, OpCode.CLEAR_NS_QUOTA):
        raise InvalidArgument(f"{OpCode(op.opcode).hadoop_name} is obsolete: write SET_QUOTA")
    body = encode_body(op, layout_version)
    try:
        return encode_record(op.opcode, op.txid, body)
    except struct.error as error:
        raise InvalidArgument(f"{OpCode(op.opcode).hadoop_name}: txid {op.txid} does not fit into 64 bits") from error


@cache
def measure(layout_version: int) -> Callable[[int, bytes, int], int]:
    """For RecordDecoder: where the body of a record without a length ends."""
    decoders = _decoders(layout_version)

    def end_of(opcode: int, data: bytes, position: int) -> int:
        found = decoders.get(opcode)
        if found is None:
            raise UnknownOp(_no_such_op(opcode, layout_version))
        return _take(data, position, found[1])[1]

    return end_of


def _take(data: bytes, position: int, steps: Sequence[_Step]) -> tuple[list[Any], int]:
    values: list[Any] = []
    for layout, read, default in steps:
        if layout is not None:
            values += layout.unpack_from(data, position)
            position += layout.size
        elif read is not None:
            value, position = read(data, position)
            values.append(value)
        else:
            values.append(default)
    return values, position


@cache
def _decoders(layout_version: int) -> dict[int, tuple[type[Op], tuple[_Step, ...]]]:
    check_readable(layout_version)
    return {int(opcode): (kind, tuple(_steps(kind, layout_version))) for opcode, kind in _ops(layout_version)}


def _steps(kind: type[Op], layout_version: int) -> list[_Step]:
    defaults = {field.name: field.default for field in fields(kind)}
    steps: list[_Step] = []
    codes = ""
    for spec in kind.layout:
        present = _present(spec, layout_version)
        if present and spec.codec.struct_code:
            codes += spec.codec.struct_code
            continue
        if codes:
            steps.append((struct.Struct(f">{codes}"), None, None))
            codes = ""
        steps.append((None, spec.codec.read, None) if present else (None, None, defaults[spec.name]))
    if codes:
        steps.append((struct.Struct(f">{codes}"), None, None))
    return steps


_Writing = tuple[struct.Struct, tuple[str, ...], Callable[[Any], bytes] | None]
"""Neighbouring fixed-size fields in one struct; or one field and its writer."""


@cache
def _encoders(layout_version: int) -> dict[OpCode, tuple[_Writing, ...]]:
    return {opcode: tuple(_writings(kind, layout_version)) for opcode, kind in _ops(layout_version)}


def _writings(kind: type[Op], layout_version: int) -> list[_Writing]:
    steps: list[_Writing] = []
    codes = ""
    names: list[str] = []
    for spec in [*(spec for spec in kind.layout if _present(spec, layout_version)), None]:
        if spec is not None and spec.codec.struct_code:
            codes += spec.codec.struct_code
            names.append(spec.name)
            continue
        if codes:
            steps.append((struct.Struct(f">{codes}"), tuple(names), None))
            codes, names = "", []
        if spec is not None:
            steps.append((struct.Struct(""), (spec.name,), spec.codec.write))
    return steps


def _ops(layout_version: int) -> Iterable[tuple[OpCode, type[Op]]]:
    # Of our opaque layout only the two marks of a segment are operations.
    marks = (OpCode.START_LOG_SEGMENT, OpCode.END_LOG_SEGMENT)
    return [(opcode, kind) for opcode, kind in OPS.items() if layout_version != OPAQUE or opcode in marks]


def _present(spec: FieldSpec, layout_version: int) -> bool:
    return spec.since == ALWAYS or layout_version <= spec.since


def present(kind: type[Op], layout_version: int) -> tuple[bool, ...]:
    """Of each field of an operation whether this layout has it."""
    return tuple(_present(spec, layout_version) for spec in kind.layout)


def _no_such_op(opcode: int, layout_version: int) -> str:
    if layout_version == OPAQUE and opcode in OPS:
        return f"opcode {opcode} ({OpCode(opcode).hadoop_name}) has no place in layout {layout_version} (opaque)"
    if opcode in UNDECODABLE:
        return f"opcode {opcode} ({OpCode(opcode).hadoop_name}) is obsolete and has no decoder"
    return f"opcode {opcode} is no operation"
