"""Hostile HTTP servers in memory for the reader of `bookkeeper.admin.questions`."""

from __future__ import annotations

import socket

import pytest

from bookkeeper.admin import questions


class FakeTime:
    """A clock for the module `questions`. step_s: seconds by which each call advances the clock."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s, self._step_s = 0.0, step_s

    def monotonic(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def serve_packets(monkeypatch: pytest.MonkeyPatch, clock: FakeTime, *packets: bytes, end: bool = False) -> list[float]:
    """Answer the next connection with packets; return a list to which each read appends its timeout.

    Each of several packets takes one read; the first has at most 8 KiB. end: the server closes after the packets.
    Without `end`, a read after the last packet raises TimeoutError at once.
    """
    kind = socket.SOCK_STREAM if len(packets) == 1 else socket.SOCK_SEQPACKET
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        for each in (here, there):
            each.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    for packet in packets:
        assert there.send(packet, socket.MSG_DONTWAIT) == len(packet), "the socket holds less than the answer"
    if end:
        there.shutdown(socket.SHUT_WR)
    timeouts_s: list[float] = []

    class Served(questions.BoundedSocket):
        def settimeout(self, value: float | None) -> None:
            assert value is not None
            timeouts_s.append(value)
            super().settimeout(0.001)  # with 0.0, the read would raise another error

        def close(self) -> None:
            super().close()
            there.close()

    def connect(connection: questions.BoundedConnection) -> None:
        connection.sock = Served(fileno=here.detach())

    monkeypatch.setattr(questions, "time", clock)
    monkeypatch.setattr(questions.BoundedConnection, "connect", connect)
    return timeouts_s


def negative_chunk(size: int) -> bytes:
    """Return an answer with a chunk of size -1: http.client reads it until the server closes."""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * size
