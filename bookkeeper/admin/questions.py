"""Requests to the HTTP server of another process. Thread: any; blocks. Bounds: `timeout_s` between bytes, `size_max`.

Requests carry a token if BOOKKEEPER_HTTP_TOKEN_FILE names a token file.
"""

from __future__ import annotations

import http.client
from typing import Any

from bookkeeper.admin.access.tokens import authorization, remedy
from bookkeeper.texts import parse_json

Address = tuple[str, int]

TIMEOUT_S = 2.0
"""Of one request."""

ANSWER_MAX = 1024 * 1024
"""Bytes of one answer."""

ERRORS = (OSError, http.client.HTTPException, ValueError)
"""What `get_json` raises."""


def get_json(address: Address, path: str, *, size_max: int = ANSWER_MAX, timeout_s: float = TIMEOUT_S) -> Any:
    """The answer's JSON; None where the process has no such thing. Raises ERRORS, for an answer above size_max too."""
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
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
