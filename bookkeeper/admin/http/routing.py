"""Requests, answers, refusals, and which handler a request is for. Pure: nothing here knows HTTP's bytes.

    HttpRequest -> Router.answer -> handler -> Answer          Refused, or an error of ours -> {"error": sentence}

A refusal names what was asked, the value and the remedy. What nobody expected is raised to the caller, who logs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from bookkeeper.admin.access.curl import curl_line
from bookkeeper.errors import (
    AccessDenied,
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    ClusterExists,
    ConfigurationError,
    EntryMissing,
    InvalidArgument,
    LedgerExists,
    MetadataUnavailable,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchLedgerOnBookie,
    PortableError,
    UnauthorizedAccess,
    VersionConflict,
)
from bookkeeper.printable import printable
from bookkeeper.texts import parse_json

BODY_SIZE_MAX = 64 * 1024
"""Bytes of one request's body: a list of a thousand bookies fits well."""

WHOLE_MAX = 2**63 - 1
"""Largest number in a parameter: ids of ledgers and entries are signed 64-bit numbers."""

SHOWN_MAX = 64
"""Characters of a refused value that a message shows."""

_WHOLE = re.compile("-?[0-9]{1,19}", re.ASCII)

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"

TRUE_WORDS = ("true", "1", "yes")
FALSE_WORDS = ("false", "0", "no")

_STATUS_OF: tuple[tuple[type[BookKeeperError], int], ...] = (
    (InvalidArgument, 400),
    (UnauthorizedAccess, 403),
    (AccessDenied, 403),
    (NoSuchLedger, 404),
    (NoSuchLedgerOnBookie, 404),
    (NoSuchEntry, 404),
    (EntryMissing, 404),
    (VersionConflict, 409),
    (LedgerExists, 409),
    (ClusterExists, 409),
    (MetadataUnavailable, 503),
    (BookieUnavailable, 503),
    (ClientClosed, 503),
    (ConfigurationError, 503),
)
"""The first that fits counts; another error is 503 where trying again may help, else 500."""


class Refused(PortableError):
    """Ends a request: the status, and the sentence that goes into {"error": ...}."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> Refused:
    """400: a value that cannot be read or cannot work."""
    return Refused(400, message)


def not_here(message: str) -> Refused:
    """404: there is no such thing, or this process has not got it."""
    return Refused(404, message)


def conflict(message: str) -> Refused:
    """409: not in the state that things are in."""
    return Refused(409, message)


def unavailable(message: str) -> Refused:
    """503: not now."""
    return Refused(503, message)


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """method: upper case. path: decoded, without the query. query: by name, decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: bytes = b""
    content_type: str = ""

    def whole_number(self, name: str, default: int | None = None, *, minimum: int = 0) -> int:
        """Return a parameter from `minimum` to WHOLE_MAX. Raises Refused, also if it is absent and has no default."""
        text = self.query.get(name, "")
        if not text:
            if default is None:
                raise bad_request(f"{self.path} needs {name}=NUMBER, as in {self.path}?{name}=7")
            return default
        if _WHOLE.fullmatch(text) is None or not minimum <= int(text) <= WHOLE_MAX:
            raise bad_request(f"{name}={text[:SHOWN_MAX]!r}: it must be a whole number from {minimum} to {WHOLE_MAX}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """A parameter that is true or false. Raises Refused."""
        return default if name not in self.query else flag_of(name, self.query[name])

    def object(self, example: str = "") -> dict[str, Any]:
        """The body, which must be one JSON object. example: such a body, for who sent none. Raises Refused."""
        if not self.body.strip():
            # The line shows no token: this request was already allowed, so the client has one if it needs one.
            such = f", as in {curl_line(self.method, f'http://HOST:PORT{self.path}', example)}" if example else ""
            raise bad_request(f"{self.method} {self.path} needs a JSON object as its body{such}")
        try:
            value = parse_json(self.body)
        except ValueError as error:
            raise bad_request(f"the body of {self.method} {self.path} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise bad_request(f"the body of {self.method} {self.path} must be a JSON object, as {{...}}")
        return value


def flag_of(name: str, value: object) -> bool:
    """True or false, as JSON has them or as words. Raises Refused."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise bad_request(f"{name}: {value!r} is neither true nor false")


def only_known(body: Mapping[str, object], known: Iterable[str], path: str) -> None:
    """Raise Refused for a name that nobody would heed."""
    names = list(known)
    unknown = [name for name in body if name not in names]
    if unknown:
        near = get_close_matches(unknown[0], names, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(names)}"
        raise bad_request(f"{path} has no {unknown[0]!r}{meant}")


# --- what is answered -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """body: whole, or in pieces that are made as the other side takes them."""

    body: bytes | AsyncGenerator[bytes]
    status: int = 200
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


def _json_text(value: object) -> bytes:
    """Return one line of JSON in which only unprintable characters are escaped."""
    return printable(json.dumps(value, ensure_ascii=False)).encode()


def json_answer(value: object, status: int = 200) -> Answer:
    """One JSON value, laid out as Apache does."""
    return Answer(printable(json.dumps(value, indent=2, ensure_ascii=False), "\n").encode() + b"\n", status)


def text_answer(text: str, status: int = 200) -> Answer:
    """Plain text, in which unprintable characters except line ends and tabs are escaped."""
    return Answer(printable(text, "\n\t").encode(), status, TEXT_TYPE)


def error_answer(status: int, message: str) -> Answer:
    """{"error": message}"""
    return Answer(_json_text({"error": message}) + b"\n", status)


async def json_object_in_pieces(items: AsyncIterator[list[tuple[str, object]]]) -> AsyncGenerator[bytes]:
    """One JSON object of any size, a piece for each batch of its members."""
    text, separator = bytearray(b"{"), b"\n  "
    async for batch in items:
        for name, value in batch:
            text += separator
            text += f"{json.dumps(name)} : ".encode() + _json_text(value)
            separator = b",\n  "
        yield bytes(text)
        text.clear()
    yield bytes(text) + b"\n}\n"


async def json_array_in_pieces(items: AsyncIterator[Sequence[object]]) -> AsyncGenerator[bytes]:
    """One JSON array of any size, likewise."""
    text, separator = bytearray(b"["), b" "
    async for batch in items:
        for value in batch:
            text += separator + _json_text(value)
            separator = b", "
        yield bytes(text)
        text.clear()
    yield bytes(text) + b" ]\n"


async def _begun(pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same pieces, the first of which is made already: what is wrong from the start is an error, no broken body."""
    first = await anext(pieces)

    async def all_of_them() -> AsyncGenerator[bytes]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return all_of_them()


def answer_of(error: BookKeeperError) -> Answer:
    """What an error of ours is over HTTP."""
    for kind, status in _STATUS_OF:
        if isinstance(error, kind):
            return error_answer(status, str(error))
    return error_answer(503 if error.retriable else 500, str(error))


# --- which handler ----------------------------------------------------------------------------------------------------

Handler = Callable[[HttpRequest], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler


class Router:
    """The paths of one server. Immutable.

    absent: beginnings of paths that Apache has and this server does not -> why, as a sentence.
    """

    def __init__(self, routes: Iterable[Route], absent: Mapping[str, str] | None = None) -> None:
        self._handlers: dict[str, dict[str, Handler]] = {}
        for route in routes:
            methods = self._handlers.setdefault(route.path, {})
            assert route.method not in methods, f"{route.method} {route.path} twice"
            methods[route.method] = route.handler
        self._absent = sorted((absent or {}).items(), key=lambda item: -len(item[0]))

    @property
    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """Path -> its methods."""
        return {path: tuple(sorted(methods)) for path, methods in sorted(self._handlers.items())}

    async def answer(self, request: HttpRequest) -> Answer:
        """The handler's answer, or its refusal. Raises what nobody expected."""
        path = request.path.rstrip("/") or "/"
        methods = self._handlers.get(path)
        if methods is None:
            return error_answer(404, self._unknown(path))
        handler = methods.get(request.method)
        if handler is None:
            allowed = ", ".join(sorted(methods))
            refusal = error_answer(405, f"{path} does not take {request.method}; it takes {allowed}")
            return Answer(refusal.body, 405, headers=(("allow", allowed),))
        try:
            answer = await handler(request)
            return answer if isinstance(answer.body, bytes) else replace(answer, body=await _begun(answer.body))
        except Refused as refused:
            return error_answer(refused.status, str(refused))
        except BookKeeperError as error:
            return answer_of(error)

    def _unknown(self, path: str) -> str:
        for beginning, why in self._absent:
            if path == beginning or path.startswith(f"{beginning}/"):
                return f"{path} is not served here: {why}"
        near = get_close_matches(path, self._handlers, n=1)
        return f"there is no {path} here" + (f"; did you mean {near[0]}?" if near else "")
