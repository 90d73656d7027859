"""A request of the HTTP interface taken apart, and an answer put together. Knows no socket and no operation.

    HttpRequest     method, target, headers, body, as they came
    Parameters      the query, each value read as its declaration says
    Answer          status, body, headers

What is wrong with a request is said as BadRequest, which names the parameter, its value and what would do.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from journalmgr.edits.fields import CLIENT_ID_SIZE, NO_RPC, RpcIds
from journalmgr.errors import JournalError

JSON_TYPE = "application/json"
BYTES_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain; charset=utf-8"

PARAMETERS_MAX = 100
CALL_NUMBER_MAX = 2**31 - 1

_REQUEST_ID = re.compile(rf"([0-9a-fA-F]{{{2 * CLIENT_ID_SIZE}}}):([0-9]{{1,10}})")


class BadRequest(JournalError):
    """The request itself makes no sense, whatever the state is. status: of HTTP."""

    hadoop_name = "java.lang.IllegalArgumentException"

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Overloaded(JournalError):
    """More requests are being carried out than may be; nothing was done."""

    retriable = True


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. target: as it stands in the first line, escaped. headers: names in lower case.

    body: None where there is none at all, which is not the same as an empty one.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def path(self) -> str:
        """What stands before the query, unescaped. Raises BadRequest for bytes that are no text."""
        return text_of(unquote_to_bytes(self.target.partition("?")[0]), "the path")

    @property
    def query(self) -> str:
        """What stands behind the question mark, escaped."""
        return self.target.partition("?")[2]

    @property
    def rpc(self) -> RpcIds:
        """Which call of which client it is, by `X-Request-Id: 32 hexadecimal digits : call number`."""
        text = self.headers.get("x-request-id")
        if text is None:
            return NO_RPC
        found = _REQUEST_ID.fullmatch(text.strip())
        if found is None or int(found[2]) > CALL_NUMBER_MAX:
            raise BadRequest(
                f"header X-Request-Id: {text!r}; it is {2 * CLIENT_ID_SIZE} hexadecimal digits that name the client, "
                f"a colon, and the number of the call, 0 to {CALL_NUMBER_MAX}"
            )
        return RpcIds(bytes.fromhex(found[1]), int(found[2]))


@dataclass(slots=True)
class Answer:
    """What is sent back. pieces: what follows the body, made only as fast as it is taken."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)
    pieces: AsyncIterator[bytes] | None = None


def json_answer(value: object, status: int = 200) -> Answer:
    """A JSON document."""
    return Answer(status, json.dumps(value, separators=(",", ":")).encode())


def text_of(data: bytes, what: str) -> str:
    """Bytes as UTF-8. Raises BadRequest."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{what} is not UTF-8: {error}") from error


# --- parameters

REQUIRED: Final = object()
"""The default of a parameter that must be there."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter. read: the value of its text; raises ValueError. words: what its text may be.

    repeated: it may be there several times, and its value is a list.
    """

    name: str
    read: Callable[[str], Any]
    words: str
    default: Any = REQUIRED
    repeated: bool = False


def boolean(name: str, default: bool) -> Parameter:
    """true or false."""
    return choice(name, {"true": True, "false": False}, default)


def choice(name: str, values: Mapping[str, Any], default: Any = REQUIRED) -> Parameter:
    """One of some words, in any case."""

    def read(text: str) -> Any:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return Parameter(name, read, ", ".join(values), default)


def flags(name: str, *names: str) -> Parameter:
    """Return a parameter for a set of names, separated by commas, in any case: a frozenset, by default empty."""

    def read(text: str) -> frozenset[str]:
        found = frozenset(text.lower().split(",")) if text else frozenset()
        if not found <= set(names):
            raise ValueError(text)
        return found

    return Parameter(name, read, f"some of {', '.join(names)}", frozenset())


def octal(name: str, default: Any = REQUIRED) -> Parameter:
    """A mode."""

    def read(text: str) -> int:
        if not re.fullmatch(r"0{0,9}1?[0-7]{1,3}", text):
            raise ValueError(text)
        return int(text, 8)

    return Parameter(name, read, "an octal number from 0 to 1777", default)


def whole(name: str, minimum: int, maximum: int, default: Any = REQUIRED) -> Parameter:
    """A whole number from minimum to maximum."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not minimum <= int(text) <= maximum:
            raise ValueError(text)
        return int(text)

    return Parameter(name, read, f"a whole number from {minimum} to {maximum}", default)


def words(name: str, default: Any = REQUIRED, *, repeated: bool = False) -> Parameter:
    """Any text that is not empty."""

    def read(text: str) -> str:
        if not text:
            raise ValueError(text)
        return text

    return Parameter(name, read, "a text that is not empty", default, repeated)


def maybe_empty(name: str, default: Any = REQUIRED) -> Parameter:
    """Any text."""
    return Parameter(name, str, "a text", default)


class Parameters:
    """The query of a request, read as Hadoop does: the first value of a repeated parameter counts, and undeclared
    parameters are ignored. HdfsCLI repeats `user.name` on redirects, and other clients add parameters of their own.
    """

    def __init__(self, query: str) -> None:
        """Raises BadRequest. Names count in lower case, as in Hadoop."""
        self._texts: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
        except (ValueError, UnicodeDecodeError) as error:
            raise BadRequest(f"the query cannot be read: {error}") from error
        for name, text in pairs:
            self._texts.setdefault(name.lower(), []).append(text)

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a parameter."""
        return self._texts.get(name, [default])[0]

    def refuse_all(self, purpose: str) -> None:
        """Raise BadRequest if there is any parameter. purpose: name of the operation, for the message."""
        for name in self._texts:
            raise BadRequest(f"{purpose} has no parameter {name}; there are none")

    def read(self, declared: Sequence[Parameter], purpose: str) -> dict[str, Any]:
        """Return the values of all declared parameters. Raises BadRequest for an invalid value.

        purpose: name of the operation, for the message.
        """
        values = {}
        for parameter in declared:
            name = parameter.name
            if name not in self._texts:
                if parameter.default is REQUIRED:
                    raise BadRequest(f"{purpose} needs the parameter {name}: {parameter.words}")
                values[name] = parameter.default
            elif parameter.repeated:
                values[name] = [_value(parameter, text) for text in self._texts[name]]
            else:
                values[name] = _value(parameter, self.text(name))
        return values


def _value(parameter: Parameter, text: str) -> Any:
    try:
        return parameter.read(text)
    except ValueError as error:
        raise BadRequest(f"parameter {parameter.name}={text!r}: it is {parameter.words}") from error


def target_of(path: str, query: str = "") -> str:
    """A path, and a query that is escaped already, as they stand in the first line of a request."""
    return quote(path) + (f"?{query}" if query else "")
