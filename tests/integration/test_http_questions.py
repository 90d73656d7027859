"""Questions to the HTTP server of another process: the deadline of an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from bookkeeper.admin import questions
from bookkeeper.admin.questions import ANSWER_MAX, ANSWER_RATE_MIN, TIMEOUT_S, Address, get_json

LONG = ["x" * 100] * 5000
"""A value that needs several reads of the socket."""


@pytest.fixture
def server() -> Iterator[Address]:
    """A server that sends LONG."""
    body = json.dumps(LONG).encode()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(4096)
                with suppress(OSError):  # the client may close before it has read all
                    connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()
        thread.join(60)


def test_an_answer_in_time_is_read(server: Address) -> None:
    assert get_json(server, "/") == LONG


def test_an_answer_incomplete_at_its_deadline_is_an_error(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte arrives in time, but a hostile server can send bytes for days."""
    late_s = TIMEOUT_S + ANSWER_MAX / ANSWER_RATE_MIN + 1
    now_s = iter([0.0, 1.0])
    monkeypatch.setattr(questions, "time", SimpleNamespace(monotonic=lambda: next(now_s, late_s)))
    with pytest.raises(TimeoutError, match="timed out"):
        get_json(server, "/")
