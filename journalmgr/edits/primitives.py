"""How numbers and strings are written: what the fields of operations are made of. Pure.

    fixed   u8, bool, i16, i32, i64: big-endian; neighbours are packed and unpacked in one call
    str16   u16 length, then UTF-16 code units, each in 1 to 3 bytes of UTF-8 (surrogates apart; NUL is one zero byte)
    text    vint length, then plain UTF-8
    vint    Hadoop's: one byte from -112 on is the value; below, it says sign and number of the bytes that follow

A reader takes (data, position) and returns (value, new position); it raises EditsCorrupt for bytes that cannot be,
IndexError or struct.error where the data ends too soon. A writer returns bytes; it raises InvalidArgument for a value
that does not fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import InvalidArgument
from journalmgr.errors import EditsCorrupt

TEXT_BYTES_MAX = 1024 * 1024
STR16_BYTES_MAX = 0xFFFF

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Codec:
    """One kind of field. struct_code: of a fixed-size one; it has no reader and writer of its own then."""

    name: str
    struct_code: str = ""
    read: Read | None = None
    write: Write | None = None


# --- numbers ----------------------------------------------------------------------------------------------------------

U8 = Codec("u8", "B")
BOOL = Codec("bool", "?")
I16 = Codec("i16", "h")
I32 = Codec("i32", "i")
I64 = Codec("i64", "q")

_U16 = struct.Struct(">H")

_VINT_ONE_BYTE_MIN = -112
_VINT_NEGATIVE_BELOW = -120


def read_vlong(data: bytes, position: int) -> tuple[int, int]:
    """Hadoop's variable-length integer."""
    first = data[position]
    if first >= 0x80:
        first -= 0x100
    position += 1
    if first >= _VINT_ONE_BYTE_MIN:
        return first, position
    negative = first < _VINT_NEGATIVE_BELOW
    count = (_VINT_NEGATIVE_BELOW if negative else _VINT_ONE_BYTE_MIN) - first
    end = position + count
    if end > len(data):
        raise IndexError("the data ends within a vlong")
    value = int.from_bytes(data[position:end], "big")
    return (~value if negative else value), end


def write_vlong(value: int) -> bytes:
    """Hadoop's variable-length integer, in as few bytes as it takes."""
    if not -(1 << 63) <= value < 1 << 63:
        raise InvalidArgument(f"{value} does not fit 64 bits")
    if _VINT_ONE_BYTE_MIN <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    base, magnitude = (_VINT_ONE_BYTE_MIN, value) if value >= 0 else (_VINT_NEGATIVE_BELOW, ~value)
    count = max(1, (magnitude.bit_length() + 7) // 8)
    return ((base - count) & 0xFF).to_bytes(1, "big") + magnitude.to_bytes(count, "big")


VLONG = Codec("vlong", read=read_vlong, write=write_vlong)


def read_vint(data: bytes, position: int) -> tuple[int, int]:
    """The same, of 32 bits."""
    value, position = read_vlong(data, position)
    if not -(1 << 31) <= value < 1 << 31:
        raise EditsCorrupt(f"{value} where a number of 32 bits should be")
    return value, position


def write_vint(value: int) -> bytes:
    """The same, of 32 bits."""
    if not -(1 << 31) <= value < 1 << 31:
        raise InvalidArgument(f"{value} does not fit 32 bits")
    return write_vlong(value)


def pack_fixed(layout: struct.Struct, value: Any, what: str) -> bytes:
    """A number, or a tuple of them. Raises InvalidArgument, naming what it is, where it does not fit."""
    try:
        return layout.pack(*value) if isinstance(value, tuple) else layout.pack(value)
    except struct.error as error:
        raise InvalidArgument(f"{what} {value!r} does not fit its field: {error}") from error


# --- strings ----------------------------------------------------------------------------------------------------------


def take(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    """So many bytes. Raises IndexError where the data ends before."""
    end = position + size
    if end > len(data):
        raise IndexError(f"{size} bytes from {position} on are more than the data has")
    return data[position:end], end


def read_str16(data: bytes, position: int) -> tuple[str, int]:
    """A string of code units; 4-byte UTF-8 is taken too."""
    begin = position + 2
    position = begin + (data[position] << 8 | data[position + 1])
    raw = data[begin:position]
    if len(raw) != position - begin:
        raise IndexError(f"a string of {position - begin} bytes goes on behind the data")
    if raw.isascii():
        return raw.decode("ascii"), position
    try:
        units = raw.decode("utf-8", "surrogatepass")
        # Two surrogates that were written apart are one character.
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass"), position
    except UnicodeError as error:
        raise EditsCorrupt(f"a string that is not UTF-8: {raw[:80]!r}: {error}") from error


def write_str16(value: str) -> bytes:
    """Raises InvalidArgument beyond 65535 bytes. Differs from Apache, which cuts such a string and goes on."""
    if value.isascii():
        raw = value.encode("ascii")
    else:
        # Each character beyond 16 bits becomes its two surrogates, each of them three bytes.
        units = value.encode("utf-16-be", "surrogatepass")
        raw = "".join([chr(unit) for (unit,) in _U16.iter_unpack(units)]).encode("utf-8", "surrogatepass")
    if len(raw) > STR16_BYTES_MAX:
        raise InvalidArgument(f"a string of {len(raw)} bytes ({value[:40]!r}...); at most {STR16_BYTES_MAX} fit")
    return _U16.pack(len(raw)) + raw


STR16 = Codec("str16", read=read_str16, write=write_str16)


def read_text(data: bytes, position: int) -> tuple[str, int]:
    """A string of plain UTF-8."""
    size = data[position]
    if size < 0x80:  # as nearly all are: one byte
        position += 1
    else:
        size, position = read_vlong(data, position)
        if not 0 <= size <= TEXT_BYTES_MAX:
            raise EditsCorrupt(f"a text of {size} bytes; 0 to {TEXT_BYTES_MAX} are possible")
    raw, position = take(data, position, size)
    try:
        return raw.decode("utf-8"), position
    except UnicodeError as error:
        raise EditsCorrupt(f"a text that is not UTF-8: {raw[:80]!r}: {error}") from error


def write_text(value: str) -> bytes:
    """Raises InvalidArgument beyond 1 MiB, or for a lone surrogate."""
    try:
        raw = value.encode("utf-8")
    except UnicodeError as error:
        raise InvalidArgument(f"{value[:40]!r} is not text: {error}") from error
    if len(raw) > TEXT_BYTES_MAX:
        raise InvalidArgument(f"a text of {len(raw)} bytes; at most {TEXT_BYTES_MAX} fit")
    return write_vlong(len(raw)) + raw


TEXT = Codec("text", read=read_text, write=write_text)
