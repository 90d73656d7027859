r"""Messages as lines: the body and a line end, a format string, JSON lines, or length-prefixed.

Format string (as kcat's): %t topic, %o message id, %s body, %S its size in bytes, %x body in hex, %k key, %h header
properties as k=v,k=v without the publish time, %{NAME} one of them, %T publish time in ms since 1970 (-1: unknown), %y
message type, %r region where it was published, %% percent, and the escapes \n \t \r \0 \xHH.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Protocol

from bookkeeper.console.output import EXIT_USAGE, CommandFailed, json_line
from hedwig.model import KEY_PROPERTY
from hedwig.protocol.options import TIME
from hedwig.protocol.publish_time import time_of

LENGTH = struct.Struct(">I")

TOKENS = "%t %o %s %S %x %k %h %{NAME} %T %y %r %%"

_TOKEN = re.compile(r"%(\{[^}]*\}|.?)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+|\\)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class Shown(Protocol):
    """What is known of a message."""

    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> Mapping[str, bytes]: ...
    @property
    def message_type(self) -> str | None: ...
    @property
    def region(self) -> bytes | None: ...


Formatter = Callable[[bytes, int, Shown], bytes]
"""(topic, message id, message) -> bytes to print."""


def escaped(text: str) -> bytes:
    r"""Text with the escapes \n \t \r \0 \\ \xHH, as of a delimiter."""
    return b"".join([_constant(*match.groups()) for match in re.finditer(r"\\(x[0-9a-fA-F]{2}|.)|([^\\]+|\\)", text)])


def _constant(escape: str | None, text: str | None) -> bytes:
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert escape is not None
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    return _ESCAPES.get(escape, b"\\" + escape.encode("utf-8", "surrogateescape"))


def formatter_of(*, text_format: str | None, json_lines: bool, length_prefixed: bool) -> Formatter:
    """The output form that the options ask for. Raises CommandFailed for a format string with an unknown token."""
    if sum((text_format is not None, json_lines, length_prefixed)) > 1:
        raise CommandFailed("of --format, --json and --length-prefixed only one can be", EXIT_USAGE)
    if json_lines:
        return _json_line
    if length_prefixed:
        return lambda _topic, _id, message: LENGTH.pack(len(message.body)) + message.body
    if text_format is None:
        return lambda _topic, _id, message: message.body + b"\n"
    pieces = [_piece(match, text_format) for match in _TOKEN.finditer(text_format)]
    return lambda topic, message_id, message: b"".join([piece(topic, message_id, message) for piece in pieces])


def _time(message: Shown) -> int | None:
    return time_of(message.properties)


def _headers(message: Shown) -> bytes:
    return b",".join([b"%b=%b" % (key.encode(), value) for key, value in message.properties.items() if key != TIME])


_PIECES: dict[str, Formatter] = {
    "t": lambda topic, _id, _message: topic,
    "o": lambda _topic, message_id, _message: b"%d" % message_id,
    "s": lambda _topic, _id, message: message.body,
    "S": lambda _topic, _id, message: b"%d" % len(message.body),
    "x": lambda _topic, _id, message: message.body.hex().encode(),
    "k": lambda _topic, _id, message: message.properties.get(KEY_PROPERTY, b""),
    "h": lambda _topic, _id, message: _headers(message),
    "T": lambda _topic, _id, message: b"%d" % (-1 if (time_ms := _time(message)) is None else time_ms),
    "y": lambda _topic, _id, message: (message.message_type or "").encode(),
    "r": lambda _topic, _id, message: message.region or b"",
    "%": lambda _topic, _id, _message: b"%",
}


def _piece(match: re.Match[str], whole: str) -> Formatter:
    token, escape, text = match.groups()
    if text is not None or escape is not None:
        constant = _constant(escape, text)
        return lambda _topic, _id, _message: constant
    if len(token) > 1:
        name = token[1:-1]
        return lambda _topic, _id, message: message.properties.get(name, b"")
    if token not in _PIECES:
        raise CommandFailed(f"format {whole!r}: %{token} is unknown; use {TOKENS}", EXIT_USAGE)
    return _PIECES[token]


def _json_line(topic: bytes, message_id: int, message: Shown) -> bytes:
    value: dict[str, object] = {"topic": topic.decode(errors="backslashreplace"), "id": message_id}
    time_ms = _time(message)
    if time_ms is not None:
        value["time_ms"] = time_ms
    if message.region:
        value["region"] = message.region.decode(errors="backslashreplace")
    if message.message_type is not None:
        value["type"] = message.message_type
    properties = {key: each for key, each in message.properties.items() if key != TIME or time_ms is None}
    if properties:
        value["properties"] = {key: each.decode(errors="backslashreplace") for key, each in properties.items()}
    value["size"] = len(message.body)
    try:
        value["body"] = message.body.decode()
    except UnicodeDecodeError:
        value["body_hex"] = message.body.hex()
    return json_line(value).encode() + b"\n"
