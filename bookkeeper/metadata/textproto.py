"""Protobuf text format as protobuf-java prints it; parsed as leniently as the protobuf runtime does. Pure.

One field per line in the order of field numbers, two blanks per level, strings and bytes with C escapes, LF at the end
of every line. Python's own printer differs (it leaves UTF-8 as it is and has no \\a \\b \\f \\v).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bookkeeper.errors import MetadataCorrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

M = TypeVar("M", bound=Message)

_NAMED_ESCAPES = {
    0x07: "\\a",
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0B: "\\v",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x27: "\\'",
    0x5C: "\\\\",
}
_ESCAPED = [_NAMED_ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in range(256)]


def print_text(message: Message) -> bytes:
    """The message as protobuf-java prints it."""
    return "".join(_lines(message, "")).encode("ascii")


def parse_text(data: bytes, message: M, path: str) -> M:
    """Fill `message` from text. Raises MetadataCorrupt naming `path` for anything that is not the whole message."""
    try:
        with warnings.catch_warnings():
            # Python only warns of an escape beyond \377, and reads it as something else.
            warnings.filterwarnings("error", message=".*invalid (octal )?escape sequence")
            text_format.Parse(data, message)
    except (text_format.ParseError, UnicodeError, DeprecationWarning, SyntaxWarning) as error:
        raise MetadataCorrupt(f"{path}: not the protobuf text of a {message.DESCRIPTOR.name}: {error}") from error
    require_complete(message, path)
    return message


def require_complete(message: Message, path: str) -> None:
    """Raise MetadataCorrupt when a required field is missing, or a string is not UTF-8 (it comes as bytes then)."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise MetadataCorrupt(f"{path}: the {message.DESCRIPTOR.name} lacks {missing}")
    for field, value in message.ListFields():
        try:
            items: Sequence[object] = _items(field, value)
        except UnicodeDecodeError as error:  # from a key in a map
            what = f"{field.name} of the {message.DESCRIPTOR.name}"
            raise MetadataCorrupt(f"{path}: {what} is not text: {error}") from error
        for item in items:
            if isinstance(item, Message):
                require_complete(item, path)
            elif isinstance(item, bytes) and field.type != FieldDescriptor.TYPE_BYTES:
                raise MetadataCorrupt(f"{path}: {field.name} of the {message.DESCRIPTOR.name} is not text: {item!r}")


def _items(field: FieldDescriptor, value: Any) -> Sequence[object]:
    """Return the values of a field; for a map, its keys and values."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [*value.keys(), *value.values()]
    return value if field.is_repeated else (value,)


def _lines(message: Message, indent: str) -> Iterator[str]:
    for field, value in message.ListFields():
        values: Sequence[object] = value if field.is_repeated else (value,)
        for item in values:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                assert isinstance(item, Message)
                yield f"{indent}{field.name} {{\n"
                yield from _lines(item, indent + "  ")
                yield indent + "}\n"
            else:
                yield f"{indent}{field.name}: {_scalar(field, item)}\n"


def _scalar(field: FieldDescriptor, value: object) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8")
    if isinstance(value, bytes):
        return '"' + "".join([_ESCAPED[byte] for byte in value]) + '"'
    if field.enum_type is not None and isinstance(value, int):
        return str(field.enum_type.values_by_number[value].name)
    return str(value)
