"""The HTTP server's bounds, on a connection in memory: bodies, requests at once, long answers, peers that leave."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from bookkeeper.admin.access.gate import Gate
from bookkeeper.admin.access.rules import Rules
from bookkeeper.admin.http.routing import BODY_SIZE_MAX, Answer, HttpRequest, Route, Router, json_answer
from bookkeeper.admin.http.routing import json_object_in_pieces as in_pieces
from bookkeeper.admin.http.server import REQUESTS_MAX, site_of


class Transport(StringTransport):
    """Also one that can be aborted."""

    aborted = False

    def writeSequence(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def abortConnection(self) -> None:
        self.aborted = True


class Connection:
    """One client of a server with these routes."""

    def __init__(self, *routes: Route, site: Any = None, peer: str = "127.0.0.1") -> None:
        self.site = site or site_of(Clock(), Router(routes), Gate(Rules(frozenset({"x"}))))
        self.transport = Transport(peerAddress=IPv4Address("TCP", peer, 40000))
        self.protocol = self.site.buildProtocol(None)
        self.protocol.makeConnection(self.transport)

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.protocol.dataReceived(head + body)

    @property
    def answer(self) -> tuple[int, bytes]:
        """Status and body of the one answer so far."""
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), body


class Waiting:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Deferred[None]] = []

    async def __call__(self, _: HttpRequest) -> Answer:
        waiting: Deferred[None] = Deferred()
        self.asked.append(waiting)
        await waiting
        return json_answer("done")


async def _echo(request: HttpRequest) -> Answer:
    return json_answer([request.method, request.path, dict(request.query), request.body.decode(), request.content_type])


def test_a_request_reaches_its_handler_whole() -> None:
    connection = Connection(Route("PUT", "/a b", _echo))
    connection.send("PUT", "/a%20b/?x=1&y=", b"{}")
    status, body = connection.answer
    assert (status, json.loads(body)) == (200, ["PUT", "/a b/", {"x": "1", "y": ""}, "{}", ""])


def test_an_order_is_logged_with_its_query_and_a_question_at_debug_level() -> None:
    connection = Connection(Route("GET", "/a", _echo), Route("DELETE", "/a", _echo))
    with capturedLogs() as events:
        connection.send("GET", "/a?x=1")
        connection.send("DELETE", "/a?ledger_id=7")
    assert [(event["log_level"].name, formatEvent(event)) for event in events] == [
        ("debug", "HTTP GET /a?x=1 of 127.0.0.1, role none: 200"),
        ("info", "HTTP DELETE /a?ledger_id=7 of 127.0.0.1, role none: 200"),
    ]


def test_a_refused_request_does_not_reach_its_handler_and_is_logged() -> None:
    waiting = Waiting()
    connection = Connection(Route("PUT", "/a", waiting), peer="10.0.0.1")
    with capturedLogs() as events:
        connection.send("PUT", "/a?x=1")
    assert (connection.answer[0], waiting.asked) == (403, [])
    assert b"httpServerTokenFile" in connection.answer[1]
    assert [formatEvent(event) for event in events] == ["HTTP PUT /a?x=1 of 10.0.0.1, role none: 403"]


def test_a_body_is_kept_up_to_its_bound_and_not_beyond() -> None:
    connection = Connection(Route("PUT", "/", _echo))
    connection.send("PUT", "/", b"x" * BODY_SIZE_MAX)
    assert connection.answer[0] == 200
    connection = Connection(Route("PUT", "/", _echo))
    connection.send("PUT", "/", b"x" * (BODY_SIZE_MAX + 1))
    assert connection.answer[0] == 413


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "multipart/form-data", "a/b\x0bc"]
)
def test_the_rules_come_before_a_form_and_its_body_is_left_as_it_is(kind: str) -> None:
    body = b"--a\r\nContent-Disposition: form-data; name=y\r\n\r\nz\r\n--a--\r\n&b=c"
    for method, status in (("POST", 405), ("GET", 200)):
        connection = Connection(Route("GET", "/", _echo))
        with capturedLogs() as events:
            connection.protocol.dataReceived(
                f"{method} /?x=1 HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nX-BookKeeper-Request: 1\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
        assert connection.answer[0] == status
        assert not [event for event in events if "log_failure" in event]
    _, path, query, seen, _ = json.loads(connection.answer[1])
    assert (path, query, seen.encode()) == ("/", {"x": "1"}, body)


@pytest.mark.parametrize("digits", [20, 5000, 16_000])
def test_a_length_that_no_integer_has_is_refused_without_a_failure_in_the_log(digits: int) -> None:
    connection = Connection(Route("PUT", "/", _echo))
    with capturedLogs() as events:
        connection.protocol.dataReceived(b"PUT / HTTP/1.1\r\nContent-Length: %s\r\nHost: x\r\n\r\n" % (b"9" * digits))
    assert connection.answer[0] == 400
    assert f"{digits} digits" in connection.answer[1].decode()
    assert connection.transport.disconnecting
    assert not [event for event in events if "log_failure" in event]


def test_a_head_is_answered_as_a_get_without_its_body() -> None:
    connection = Connection(Route("GET", "/", _echo))
    connection.send("HEAD", "/")
    assert connection.answer == (200, b"")


def test_so_many_requests_are_answered_at_once_and_no_more() -> None:
    waiting = Waiting()
    first = Connection(Route("GET", "/", waiting))
    first.send("GET", "/")
    others = [Connection(site=first.site) for _ in range(REQUESTS_MAX)]
    for other in others:
        other.send("GET", "/")
    assert len(waiting.asked) == REQUESTS_MAX
    assert others[-1].answer[0] == 503
    for asked in waiting.asked:
        asked.callback(None)
    assert {connection.answer[0] for connection in (first, *others[:-1])} == {200}
    later = Connection(site=first.site)
    later.send("GET", "/")
    waiting.asked[-1].callback(None)
    assert later.answer[0] == 200


def test_probes_are_answered_while_slow_requests_take_all_places() -> None:
    waiting = Waiting()
    first = Connection(Route("GET", "/", waiting), Route("GET", "/heartbeat", _echo), Route("GET", "/metrics", _echo))
    for _ in range(REQUESTS_MAX):
        Connection(site=first.site).send("GET", "/")
    for path, status in (("/heartbeat", 200), ("/metrics", 200), ("/metrics/", 200), ("/", 503), ("/metrics/x", 503)):
        connection = Connection(site=first.site)
        connection.send("GET", path)
        assert connection.answer[0] == status, path
    waiting.asked[0].callback(None)
    Connection(site=first.site).send("GET", "/")
    assert len(waiting.asked) == REQUESTS_MAX + 1


def test_what_nobody_expected_is_an_answer_that_tells_nothing_of_the_inside() -> None:
    async def broken(_: HttpRequest) -> Answer:
        raise ZeroDivisionError("secret")

    connection = Connection(Route("GET", "/", broken))
    connection.send("GET", "/")
    status, body = connection.answer
    assert (status, b"secret" in body) == (500, False)


class Pieces:
    """An answer of many pieces; counts those that were made."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.made, self.ended = 0, False
        self._count, self._error = count, error

    async def _members(self) -> AsyncIterator[list[tuple[str, object]]]:
        try:
            for number in range(self._count):
                self.made += 1
                yield [(str(number), number)]
            if self._error is not None:
                raise self._error
        finally:
            self.ended = True

    async def __call__(self, _: HttpRequest) -> Answer:
        pieces: AsyncGenerator[bytes] = in_pieces(self._members())
        return Answer(pieces)


def test_pieces_are_made_no_faster_than_they_leave() -> None:
    pieces = Pieces(1000)
    connection = Connection(Route("GET", "/", pieces))
    write, written = connection.transport.write, []

    def full_after_ten(data: bytes) -> None:
        write(data)
        written.append(data)
        if len(written) == 10:
            connection.transport.producer.pauseProducing()

    connection.transport.write = full_after_ten
    connection.send("GET", "/")
    made = pieces.made
    assert 0 < made < 20
    connection.transport.write = write
    connection.transport.producer.resumeProducing()
    assert (pieces.made, pieces.ended) == (1000, True)
    assert connection.transport.value().endswith(b"0\r\n\r\n")


def test_a_peer_that_leaves_ends_what_was_being_made_for_it() -> None:
    pieces = Pieces(1000)
    connection = Connection(Route("GET", "/", pieces))
    write = connection.transport.write

    def pause(data: bytes) -> None:
        write(data)
        connection.transport.producer.pauseProducing()

    connection.transport.write = pause
    connection.send("GET", "/")
    connection.transport.write = write
    assert not pieces.ended
    connection.protocol.connectionLost(Failure(ConnectionError()))
    assert pieces.ended
    assert pieces.made < 1000


def test_an_answer_that_breaks_off_is_not_taken_for_whole() -> None:
    connection = Connection(Route("GET", "/", Pieces(3, ZeroDivisionError())))
    connection.send("GET", "/")
    assert connection.transport.aborted
    assert not connection.transport.value().endswith(b"0\r\n\r\n")
