"""`free_port` holds the ports that it returns: no other process gets a port before its server listens."""

from __future__ import annotations

import socket

import pytest

from bookkeeper.embedded import process


def is_given(port: int) -> bool:
    """Return whether `free_port` of another process would skip the port."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def test_a_port_that_was_given_can_be_listened_on_and_is_given_by_no_other_process() -> None:
    port = process.free_port()
    assert is_given(port)
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port


def test_the_newest_ports_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HELD_MAX", 2)
    ports = [process.free_port() for _ in range(5)]
    assert [is_given(port) for port in ports] == [False, False, False, True, True]
