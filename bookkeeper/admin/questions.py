"""Requests to the HTTP server of another process. Thread: any; blocks.

The server is not trusted. Bounds: `size_max` bytes of an answer, `timeout_s` between bytes, and a deadline for the
whole answer (ANSWER_RATE_MIN). Redirects are not followed, so a token goes to no other server.

Requests of `ask` carry a token if BOOKKEEPER_HTTP_TOKEN_FILE names a token file.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bookkeeper.admin.access.tokens import authorization, remedy
from bookkeeper.texts import parse_json

Address = tuple[str, int]

TIMEOUT_S = 2.0
"""Of one request."""

ANSWER_MAX = 1024 * 1024
"""Bytes of one answer."""

HEAD_MAX = 64 * 1024
"""Bytes of an answer in addition to its body: status line, header, sizes of chunks, trailer."""

ANSWER_RATE_MIN = 64 * 1024
"""Bytes per second. After t seconds, at least (t - `timeout_s`) * ANSWER_RATE_MIN bytes must have arrived, so an answer
takes at most `timeout_s` + (`size_max` + HEAD_MAX) / ANSWER_RATE_MIN seconds."""

ERRORS = (OSError, http.client.HTTPException, ValueError)
"""Errors that `ask` and `get_json` raise."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete answer. headers: names in lower case."""

    status: int
    body: bytes
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class BoundedSocket(socket.socket):
    """A connected socket with bounds for the answer that it reads. http.client reads with `recv_into` only."""

    def expect(self, bytes_max: int, timeout_s: float) -> None:
        """Set the bounds of the next answer."""
        self._left_bytes, self._timeout_s = bytes_max, timeout_s
        self._deadline_s = time.monotonic() + timeout_s

    def recv_into(self, *arguments: Any) -> int:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self.settimeout(min(left_s, self._timeout_s))
        size = super().recv_into(*arguments)
        self._deadline_s += size / ANSWER_RATE_MIN
        self._left_bytes -= size
        if self._left_bytes < 0:  # http.client has no bound for a chunk of size -1
            raise http.client.HTTPException("too many bytes")
        return size


class BoundedConnection(http.client.HTTPConnection):
    """A connection to a server that is not trusted."""

    sock: Any

    def connect(self) -> None:
        super().connect()
        self.sock = BoundedSocket(fileno=self.sock.detach())
        self.sock.settimeout(self.timeout)

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        size_max: int = ANSWER_MAX,
        timeout_s: float = TIMEOUT_S,
        on_sent: Callable[[], object] = lambda: None,
    ) -> HttpAnswer:
        """Send a request, call `on_sent`, and return the complete answer.

        Raises OSError: TimeoutError if the answer is not complete in time. Raises HTTPException, also if the answer has
        more than `size_max` bytes. Close the connection after an error.
        """
        self.timeout = timeout_s
        if self.sock is not None:
            self.sock.settimeout(timeout_s)
        try:
            self.request(method, target, body, headers)
            self.sock.expect(size_max + HEAD_MAX, timeout_s)
            on_sent()
            with self.getresponse() as response:
                found = response.read(size_max + 1)
        except (ValueError, OverflowError) as error:  # an invalid host name or chunk size
            raise http.client.HTTPException(f"{target}: {error}") from error
        if len(found) > size_max:
            raise http.client.HTTPException(f"more than {size_max} bytes for {target}")
        if response.length:  # `read` with a size does not check this
            raise http.client.IncompleteRead(found, response.length)
        names = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, found, response.reason, names)


def ask(
    address: Address,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = _NO_HEADERS,
    *,
    size_max: int = ANSWER_MAX,
    timeout_s: float = TIMEOUT_S,
) -> HttpAnswer:
    """Send one request over a connection of its own. Raises ERRORS; ValueError if the token file is unusable."""
    host, port = address
    headers = {**headers, **authorization(method)}
    with closing(BoundedConnection(host.strip("[]"), port, timeout=timeout_s)) as connection:
        return connection.ask(method, path, body, headers, size_max=size_max, timeout_s=timeout_s)


def get_json(address: Address, path: str, *, size_max: int = ANSWER_MAX, timeout_s: float = TIMEOUT_S) -> Any:
    """Return the JSON of the answer; None if the process has no such path.

    Raises ERRORS, also if the answer has more than `size_max` bytes or is not complete in time.
    """
    answer = ask(address, "GET", path, size_max=size_max, timeout_s=timeout_s)
    if answer.status == http.HTTPStatus.NOT_FOUND:
        return None
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"HTTP status {answer.status} for {path}{remedy(answer.status)}")
    return parse_json(answer.body)
