"""Requests to the HTTP server of another process. Thread: any; blocks. Bounds: `size_max`, `timeout_s` between
bytes, and a deadline for the whole answer (ANSWER_RATE_MIN).

Requests carry a token if BOOKKEEPER_HTTP_TOKEN_FILE names a token file.
"""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any

from bookkeeper.admin.access.tokens import authorization, remedy
from bookkeeper.texts import parse_json

Address = tuple[str, int]

TIMEOUT_S = 2.0
"""Of one request."""

ANSWER_MAX = 1024 * 1024
"""Bytes of one answer."""

ANSWER_RATE_MIN = 64 * 1024
"""Bytes per second. An answer must be complete within `timeout_s` + `size_max` / ANSWER_RATE_MIN seconds."""

ERRORS = (OSError, http.client.HTTPException, ValueError)
"""What `get_json` raises."""


class _DeadlineSocket(socket.socket):
    """A connected socket that raises TimeoutError for reads after `deadline_s` (monotonic)."""

    deadline_s = 0.0

    def recv_into(self, *arguments: Any) -> int:
        if time.monotonic() >= self.deadline_s:
            raise TimeoutError("timed out")
        return super().recv_into(*arguments)


def _connect(address: Address, timeout_s: float, deadline_s: float) -> _DeadlineSocket:
    host, port = address
    plain = socket.create_connection((host.removeprefix("[").removesuffix("]"), port), timeout_s)
    connected = _DeadlineSocket(plain.family, plain.type, plain.proto, plain.detach())
    connected.settimeout(timeout_s)
    connected.deadline_s = deadline_s
    return connected


def get_json(address: Address, path: str, *, size_max: int = ANSWER_MAX, timeout_s: float = TIMEOUT_S) -> Any:
    """Return the JSON of the answer; None if the process has no such path.

    Raises ERRORS, also if the answer has more than `size_max` bytes or is not complete in time.
    """
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.sock = _connect(address, timeout_s, time.monotonic() + timeout_s + size_max / ANSWER_RATE_MIN)
        connection.request("GET", path, headers=authorization("GET"))
        answer = connection.getresponse()
        body = answer.read(size_max + 1)
        if len(body) > size_max:
            raise http.client.HTTPException(f"more than {size_max} bytes for {path}")
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return None
        if answer.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"HTTP status {answer.status} for {path}{remedy(answer.status)}")
        return parse_json(body)
    finally:
        connection.close()
