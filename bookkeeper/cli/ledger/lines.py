"""Entries in and out of byte streams.

Input: lines (the line end is dropped), or `length-prefixed`: a big-endian u32 and that many bytes, repeated.
Output: the payload and a line end, a format string, JSON lines, or length-prefixed.

Format string (as kcat's): %o entry id, %s payload, %S payload size in bytes, %l ledger id, %x payload in hex,
%% percent, and the escapes \\n \\t \\0.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator

from bookkeeper.console.output import EXIT_USAGE, CommandFailed, json_line

CHUNK_SIZE = 256 * 1024
_LENGTH = struct.Struct(">I")
_TOKEN = re.compile(r"%(.?)|\\(.)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Formatter = Callable[[int, int, bytes], bytes]
"""(ledger id, entry id, payload) -> bytes to print."""


def chunks_of(descriptor: int) -> Iterator[bytes]:
    """What arrives at a descriptor, as it arrives, to its end."""
    while chunk := os.read(descriptor, CHUNK_SIZE):
        yield chunk


def read_lines(chunks: Iterable[bytes], entry_size_max: int) -> Iterator[list[bytes]]:
    """Batches of lines as they arrive: whatever one chunk brought. The last line needs no line end.

    Raises CommandFailed naming the line that is longer than `entry_size_max` bytes.
    """
    rest, done = b"", 0
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        _check_sizes(lines, entry_size_max, done, "line")
        _check_sizes([rest], entry_size_max, done + len(lines), "line")
        done += len(lines)
        if lines:
            yield lines
    if rest:
        yield [rest]


def read_length_prefixed(chunks: Iterable[bytes], entry_size_max: int) -> Iterator[list[bytes]]:
    """Batches of length-prefixed entries. Raises CommandFailed for a length above the bound or a cut-off last entry."""
    buffer, done = bytearray(), 0
    for chunk in chunks:
        buffer += chunk
        position = 0
        entries: list[bytes] = []
        while len(buffer) - position >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, position)
            if size > entry_size_max:
                raise CommandFailed(
                    f"entry {done + len(entries)} has {size} bytes, more than {entry_size_max}, the limit of an entry"
                )
            if len(buffer) - position - _LENGTH.size < size:
                break
            start = position + _LENGTH.size
            entries.append(bytes(buffer[start : start + size]))
            position = start + size
        del buffer[:position]
        done += len(entries)
        if entries:
            yield entries
    if buffer:
        raise CommandFailed(f"the input ends inside entry {done}: {len(buffer)} bytes are left over")


def _check_sizes(entries: list[bytes], entry_size_max: int, first: int, what: str) -> None:
    if max(map(len, entries), default=0) > entry_size_max:
        for number, entry in enumerate(entries, first + 1):
            if len(entry) > entry_size_max:
                # Of a line that still goes on only its beginning is here, so its size is not known.
                raise CommandFailed(f"{what} {number} has more than {entry_size_max} bytes, the limit of an entry")


def formatter_of(*, text_format: str | None, json_lines: bool, length_prefixed: bool) -> Formatter:
    """The output form that the options ask for. Raises CommandFailed for a format string with an unknown token."""
    if json_lines:
        return _json_line
    if length_prefixed:
        return lambda _ledger, _entry, payload: _LENGTH.pack(len(payload)) + payload
    if text_format is None:
        return lambda _ledger, _entry, payload: payload + b"\n"
    pieces = [_piece(match, text_format) for match in _TOKEN.finditer(text_format)]
    return lambda ledger, entry, payload: b"".join([piece(ledger, entry, payload) for piece in pieces])


def _json_line(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    value: dict[str, object] = {"ledger_id": ledger_id, "entry_id": entry_id, "size": len(payload)}
    try:
        value["payload"] = payload.decode()
    except UnicodeDecodeError:
        value["payload_hex"] = payload.hex()
    return json_line(value).encode() + b"\n"


def _piece(match: re.Match[str], whole: str) -> Formatter:
    token, escape, text = match.groups()
    if text is not None or escape is not None:
        constant = text.encode() if text is not None else _ESCAPES.get(escape, escape.encode())
        return lambda _ledger, _entry, _payload: constant
    pieces: dict[str, Formatter] = {
        "o": lambda _ledger, entry, _payload: b"%d" % entry,
        "s": lambda _ledger, _entry, payload: payload,
        "S": lambda _ledger, _entry, payload: b"%d" % len(payload),
        "l": lambda ledger, _entry, _payload: b"%d" % ledger,
        "x": lambda _ledger, _entry, payload: payload.hex().encode(),
        "%": lambda _ledger, _entry, _payload: b"%",
    }
    if token not in pieces:
        raise CommandFailed(f"format {whole!r}: %{token} is unknown; use %o %s %S %l %x %%", EXIT_USAGE)
    return pieces[token]
