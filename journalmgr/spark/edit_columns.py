"""Operations of the edit log as columns: which field of which operation stands where. Pure.

    records -> values of their fields -> one bucket per operation -> columns of that bucket

One flat table for all operations: a column is null where an operation, or the layout that it was written in, has no
such field. `path` is what an operation is about, whatever its field is called (path, src, root, target), so that one
condition finds all that happened to a path. What has no column of its own stands in `fields`, a JSON object with the
names and forms of `journalmgr.edits.json`, where it differs from what the operation has by itself (0, empty). Nothing
is lost: from a row the operation can be made again.

    null besides     owner, group of SET_OWNER: unchanged; rpc_client_id, rpc_call_id: no client's call
    times            milliseconds there, microseconds here; one that no calendar has (-1: unchanged) is null, and its
                     milliseconds are in `fields`
    texts            a lone surrogate, which UTF-8 does not have, is shown as U+FFFD, and the text is in `fields`

Work is done for a whole bucket at a time: per record only its values are taken apart and put away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from journalmgr.edits.codec import present, values_of
from journalmgr.edits.json import plain
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import OPS, Op

if TYPE_CHECKING:
    from journalmgr.contract import Record

LONG, INT, STRING, BOOLEAN, BINARY = "long", "int", "string", "boolean", "binary"
TIME, STRINGS, BLOCKS = "time", "strings", "blocks"
"""Types of columns. TIME: microseconds since 1970, UTC. BLOCKS: lists of `fields.Block`."""


class Column(NamedTuple):
    """One column. always: it is never null."""

    name: str
    type: str
    meaning: str
    always: bool = False


COLUMNS = (
    Column("txid", LONG, "the transaction's id", always=True),
    Column("op", STRING, "as Hadoop prints it: OP_ADD, OP_MKDIR, ...", always=True),
    Column("opcode", INT, "its number", always=True),
    Column("path", STRING, "what it is about: the file, directory, source of a rename, target of a concatenation"),
    Column("src", STRING, "of a rename; equal to path"),
    Column("dst", STRING, "of a rename"),
    Column("target", STRING, "of a symbolic link"),
    Column("sources", STRINGS, "of a concatenation"),
    Column("inode_id", LONG, "of what is made"),
    Column("replication", INT, "copies of each block"),
    Column("mtime", TIME, "modification time"),
    Column("atime", TIME, "access time"),
    Column("timestamp", TIME, "when it was done, where the operation says so"),
    Column("block_size", LONG, "bytes"),
    Column("blocks", BLOCKS, "blocks of the file, as far as the operation names them"),
    Column("new_length", LONG, "bytes of a file that is cut"),
    Column("owner", STRING, "user"),
    Column("group", STRING, "group"),
    Column("mode", INT, "permission bits"),
    Column("client_name", STRING, "who writes the file"),
    Column("client_machine", STRING, "where from"),
    Column("overwrite", BOOLEAN, "whether an existing file may be replaced"),
    Column("storage_policy_id", INT, "where blocks should be"),
    Column("namespace_quota", LONG, "names; -1: none"),
    Column("space_quota", LONG, "bytes of all copies; -1: none"),
    Column("rpc_client_id", STRING, "which client's call it was, hexadecimal"),
    Column("rpc_call_id", INT, "which call of that client"),
    Column("fields", STRING, "JSON: what has no column of its own"),
    Column("body", BINARY, "of a transaction that is not taken apart: Hadoop 3's own, and opaque ones"),
)
PLACE_COLUMNS = (
    Column("ledger_id", LONG, "where it lies", always=True),
    Column("entry_id", LONG, "where it lies", always=True),
    Column("segment_first_txid", LONG, "the first txid of its segment", always=True),
    Column("layout_version", INT, "how it was written", always=True),
)
"""Behind the others in every form."""
RAW_COLUMNS = (
    Column("txid", LONG, "the transaction's id", always=True),
    Column("opcode", INT, "the number of its operation", always=True),
    Column("record", BINARY, "the whole record with frame and checksum, as it lies in its entry", always=True),
)

_MS = 1000
_MS_MIN, _MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999."""

Convert = Callable[[Sequence[Any]], Sequence[Any]]
"""All values of a field to a column; a value that the column cannot show as it is becomes one that `_lost` finds."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one column takes of a field. convert: None for as it is."""

    column: str
    convert: Convert | None = None


@dataclass(frozen=True, slots=True)
class _Placed:
    """A field: its position, its parts, and whether `fields` has it always besides (if it differs from `default`)."""

    position: int
    name: str
    parts: tuple[_Part, ...]
    whole: bool
    default: Any


def _times(values: Sequence[int]) -> list[int | None]:
    return [value * _MS if _MS_MIN <= value <= _MS_MAX and value != -1 else None for value in values]


def _hex_or_none(values: Sequence[Any]) -> list[str | None]:
    return [value.client_id.hex() or None for value in values]


def _call_or_none(values: Sequence[Any]) -> list[int | None]:
    return [None if value.call_id == -2 and not value.client_id else value.call_id for value in values]


def _text_or_none(values: Sequence[str]) -> list[str | None]:
    return [value or None for value in values]


def _attribute(name: str) -> Convert:
    return lambda values: [getattr(value, name) for value in values]


_PATH = (_Part("path"),)
_TIME_OF: Mapping[str, tuple[_Part, ...]] = {
    "mtime": (_Part("mtime", _times),),
    "atime": (_Part("atime", _times),),
    "timestamp": (_Part("timestamp", _times),),
    "time": (_Part("timestamp", _times),),
}
_BY_NAME: Mapping[str, tuple[_Part, ...]] = {
    **_TIME_OF,
    "path": _PATH,
    "src": _PATH,
    "root": _PATH,
    "user": (_Part("owner", _text_or_none),),
    "policy_id": (_Part("storage_policy_id"),),
    "permission": tuple(
        _Part(column, _attribute(name)) for column, name in (("owner", "user"), ("group", "group"), ("mode", "mode"))
    ),
    "rpc": (_Part("rpc_client_id", _hex_or_none), _Part("rpc_call_id", _call_or_none)),
}
"""Fields that are not a column under their own name; those of several kinds of operations."""
_BY_OPERATION: Mapping[tuple[OpCode, str], tuple[_Part, ...]] = {
    **{(opcode, "src"): (_Part("path"), _Part("src")) for opcode in (OpCode.RENAME, OpCode.RENAME_OLD)},
    (OpCode.CONCAT_DELETE, "target"): _PATH,
    (OpCode.SET_OWNER, "group"): (_Part("group", _text_or_none),),
}
_SHOWN: Mapping[tuple[OpCode, str], tuple[_Part, ...]] = {
    (OpCode.SET_ACL, "acl"): (_Part("path", _attribute("src")),),
    (OpCode.SET_XATTR, "xattrs"): (_Part("path", _attribute("src")),),
    (OpCode.REMOVE_XATTR, "xattrs"): (_Part("path", _attribute("src")),),
    (OpCode.ADD_CACHE_DIRECTIVE, "directive"): (_Part("path", _attribute("path")),),
    (OpCode.MODIFY_CACHE_DIRECTIVE, "directive"): (_Part("path", _attribute("path")),),
}
"""Fields that are in `fields` as a whole, and of which a column shows a part."""
_TYPES = {column.name: column.type for column in (*COLUMNS, *PLACE_COLUMNS)}
_TAKEN = frozenset({"txid", "op", "opcode", "fields", "body", *(column.name for column in PLACE_COLUMNS)})
"""Columns that no field has by its name."""


@cache
def _placed(opcode: OpCode, layout_version: int) -> tuple[_Placed, ...]:
    kind = OPS[opcode]
    defaults = {field.name: field.default for field in fields(kind)}
    placed = []
    for position, (spec, there) in enumerate(zip(kind.layout, present(kind, layout_version), strict=True)):
        if not there:
            continue
        name = spec.name
        shown = _SHOWN.get((opcode, name))
        parts = _BY_OPERATION.get((opcode, name)) or _BY_NAME.get(name)
        if parts is None and name in _TYPES and name not in _TAKEN:
            parts = (_Part(name),)
        placed.append(_Placed(position, name, shown or parts or (), shown is not None or parts is None, defaults[name]))
    return tuple(placed)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The records of one operation. rows: which of the batch. columns: by name, those that are not all null."""

    op: str
    opcode: int
    rows: Sequence[int]
    columns: Mapping[str, Sequence[Any]]


class Buckets:
    """Takes the records of one batch apart. layout_version: of all of them."""

    def __init__(self, layout_version: int) -> None:
        self._layout_version = layout_version
        self._taken: dict[int, tuple[type[Op] | None, list[int], list[Any]]] = {}
        self.count = 0

    def add(self, record: Record) -> None:
        """The next row. Raises UnknownOp, EditsCorrupt; nothing was added then."""
        found = values_of(record, self._layout_version)
        kind, values = found if found is not None else (None, record.body)
        taken = self._taken.get(record.opcode)
        if taken is None:
            taken = self._taken[record.opcode] = (kind, [], [])
        taken[1].append(self.count)
        taken[2].append(values)
        self.count += 1

    def buckets(self) -> Iterable[Bucket]:
        """What was added."""
        for opcode, (kind, rows, values) in self._taken.items():
            columns = {"body": values} if kind is None else _columns(kind, self._layout_version, values)
            yield Bucket(OpCode(opcode).hadoop_name, opcode, rows, columns)


def _columns(kind: type[Op], layout_version: int, values: list[list[Any]]) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    rest: list[tuple[str, Sequence[Any], Any]] = []
    by_field = list(zip(*values, strict=True)) if kind.layout else []
    for field in _placed(kind.opcode, layout_version):
        column = by_field[field.position]
        for part in field.parts:
            found = column if part.convert is None else part.convert(column)
            shown = _shown(found, _TYPES[part.column])
            columns[part.column] = shown
            if not field.whole and (part.convert is _times or shown is not found):
                kept = [_kept(value, show, part) for value, show in zip(column, shown, strict=True)]
                if any(value is not None for value in kept):
                    rest.append((field.name, kept, None))
        if field.whole:
            rest.append((field.name, column, field.default))
    if rest and (objects := _objects(rest)) is not None:
        columns["fields"] = objects
    return columns


def _kept(value: Any, shown: Any, part: _Part) -> Any:
    """A value that its column cannot show, for `fields`; None where it can."""
    if part.convert is _times:
        return value if shown is None else None
    return value if value and shown != value else None


def _shown(values: Sequence[Any], type_of_column: str) -> Sequence[Any]:
    """The same sequence where all texts are UTF-8; otherwise one with U+FFFD for what is not."""
    if type_of_column == STRING:
        if not _is_encodable(values):
            return [value and _replaced(value) for value in values]
    elif type_of_column == STRINGS and not all(map(_is_encodable, values)):
        return [tuple(map(_replaced, value)) for value in values]
    return values


def _is_encodable(values: Iterable[str | None]) -> bool:
    try:
        "".join([value for value in values if value]).encode()
    except UnicodeEncodeError:
        return False
    return True


def _replaced(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _objects(rest: Sequence[tuple[str, Sequence[Any], Any]]) -> list[str | None] | None:
    """For each row the fields that are not what they are by default; None where no row has one."""
    names = [name for name, _, _ in rest]
    defaults = tuple(default for _, _, default in rest)
    objects: list[str | None] = []
    found = False
    for values in zip(*[column for _, column, _ in rest], strict=True):
        if values == defaults:
            objects.append(None)
            continue
        found = True
        differing = {
            name: plain(value) for name, value, default in zip(names, values, defaults, strict=True) if value != default
        }
        objects.append(json.dumps(differing))
    return objects if found else None
