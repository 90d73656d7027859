"""Bounded HTTP connections in memory: slow requests, untaken answers, places, memory."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs, formatEvent
from twisted.web.http import HTTPFactory, Request

from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.serving.http_channel import (
    ANSWER_RATE_MIN,
    BUFFER_SIZE,
    HTTP_BOUNDS,
    BoundedChannel,
    BoundedSite,
    FormlessRequest,
)

GET = b"GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n"


class _Request(FormlessRequest, Request):
    """Answers with as many bytes as its path names; /later: no answer yet. /fault: fails."""

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()  # no temporary file

    def process(self) -> None:
        if self.path == b"/fault":
            raise ValueError("bad bytes")
        if self.path != b"/later":
            self.answer(b"x" * int(self.path.strip(b"/") or b"0") if self.path != b"/heartbeat" else b"OK")

    def answer(self, body: bytes) -> None:
        self.setHeader(b"content-length", b"%d" % len(body))  # type: ignore[no-untyped-call] # twisted has few types
        self.write(body)  # type: ignore[no-untyped-call] # as above
        self.finish()  # type: ignore[no-untyped-call] # as above


class _Channel(BoundedChannel):
    requestFactory = _Request


class _Site(BoundedSite, HTTPFactory):
    protocol: Any = _Channel


class Scene:
    def __init__(self, bounds: ConnectionBounds = HTTP_BOUNDS) -> None:
        self.clock = Clock()
        self.site = _Site(reactor=self.clock)  # type: ignore[no-untyped-call] # twisted has few types
        self.site.bound(self.clock, bounds)

    def turn(self) -> None:
        """One turn of a reactor: the calls that are due, not those that they make."""
        for call in [each for each in self.clock.getDelayedCalls() if each.getTime() <= self.clock.seconds()]:
            work, args, named = call.func, call.args, call.kw
            call.cancel()
            work(*args, **named)


class Peer(StringTransport):
    """The transport of one connection. taking: whether the peer reads what is written."""

    def __init__(self, scene: Scene, *, taking: bool = True) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "10.0.0.7", 40000))
        self.taking = taking
        self.ended = ""
        self.channel = scene.site.buildProtocol(None)
        self.channel.makeConnection(self)

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self.taking and len(self.value()) > BUFFER_SIZE:
            self.channel.pauseProducing()

    def writeSequence(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def send(self, data: bytes) -> None:
        if not self.ended:
            self.channel.dataReceived(data)

    def loseConnection(self) -> None:
        self.ended = self.ended or "closed"

    def abortConnection(self) -> None:
        self.ended = "aborted"
        self.channel.connectionLost()


def test_slow_connections_do_not_keep_others_out() -> None:
    scene = Scene(replace(HTTP_BOUNDS, connections_max=8))
    slow = [Peer(scene) for _ in range(100)]
    for each in slow:
        each.send(GET[:10])
    probe = Peer(scene)
    probe.send(GET)
    assert probe.value().startswith(b"HTTP/1.1 200 ")
    assert len([each for each in slow if not each.ended]) == 3
    assert len(scene.site.admission) == 4


LATER = b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"


def test_connections_that_keep_alive_or_take_no_answer_do_not_keep_others_out() -> None:
    scene = Scene(replace(HTTP_BOUNDS, connections_max=4))
    stalled = [Peer(scene, taking=False) for _ in range(2)]
    for each in stalled:
        each.send(b"GET /100000 HTTP/1.1\r\nHost: x\r\n\r\n")
    kept, working = Peer(scene), Peer(scene)
    working.send(LATER)
    kept.send(GET)
    ended = []
    for _ in range(4):
        newcomer = Peer(scene)
        newcomer.send(LATER)
        ended.append([each.ended for each in (kept, *stalled, working, newcomer)])
    assert ended == [
        ["aborted", "", "", "", ""],
        ["aborted", "aborted", "", "", ""],
        ["aborted", "aborted", "aborted", "", ""],
        ["aborted", "aborted", "aborted", "", "aborted"],  # all others wait for their answers
    ]


def test_a_long_answer_is_not_cut_off_while_it_is_taken() -> None:
    scene = Scene()
    peer = Peer(scene, taking=False)
    peer.send(b"GET /200000 HTTP/1.1\r\nHost: x\r\n\r\n")
    later = Peer(scene, taking=False)
    later.send(LATER)
    [request] = later.channel.requests
    for _ in range(60):
        request.write(b"x" * 100_000)
        scene.clock.advance(20.0)
        later.clear()
        later.channel.resumeProducing()
    assert later.ended == ""
    assert peer.ended == "aborted"


def test_a_request_is_whole_after_its_time_or_its_connection_ends() -> None:
    scene = Scene()
    slow, kept = Peer(scene), Peer(scene)
    kept.send(GET)
    scene.clock.advance(20.0)
    kept.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    for _ in range(4):
        slow.send(b"GET"[:1])
        kept.send(b"x")
        scene.clock.advance(5.0)
    assert (slow.ended, kept.ended) == ("closed", "")
    scene.clock.advance(11.0)
    assert kept.ended == "closed"
    scene.clock.advance(60.0)
    assert (slow.ended, kept.ended) == ("aborted", "aborted")
    assert len(scene.site.admission) == 0


def test_an_answer_may_take_long_to_make_and_not_to_take() -> None:
    scene = Scene()
    working, stalled, slow = Peer(scene), Peer(scene, taking=False), Peer(scene, taking=False)
    working.send(LATER)
    for each in (stalled, slow):
        each.send(b"GET /200000 HTTP/1.1\r\nHost: x\r\n\r\n")
    allowed_s = HTTP_BOUNDS.stall_timeout_s + (BUFFER_SIZE + 200_000) / ANSWER_RATE_MIN
    scene.clock.advance(allowed_s - 1.0)
    assert [each.ended for each in (working, stalled, slow)] == ["", "", ""]
    slow.channel.resumeProducing()
    scene.clock.advance(2.0)
    assert [each.ended for each in (working, stalled, slow)] == ["", "aborted", ""]
    scene.clock.advance(600.0)
    assert working.ended == ""
    working.channel.requests[0].answer(b"done")
    assert working.value().endswith(b"done")


def test_more_of_an_answer_does_not_move_its_deadline() -> None:
    scene = Scene()
    peer = Peer(scene, taking=False)
    peer.send(LATER)
    [request] = peer.channel.requests
    for _ in range(80):
        request.write(b"x" * 10_000)
        scene.clock.advance(1.0)
    assert peer.ended == ""
    scene.clock.advance(HTTP_BOUNDS.stall_timeout_s + (BUFFER_SIZE + 900_000) / ANSWER_RATE_MIN - 70.0)
    assert peer.ended == "aborted"


def test_incomplete_requests_and_untaken_answers_are_bounded_over_all_connections() -> None:
    scene = Scene(replace(HTTP_BOUNDS, received_bytes_max=100_000, untaken_bytes_max=600_000))
    senders = [Peer(scene) for _ in range(5)]
    for each in senders:
        each.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 30_000)
    assert [each.ended for each in senders] == ["aborted", "aborted", "", "", ""]
    takers = [Peer(scene, taking=False) for _ in range(5)]
    for each in takers:
        each.send(b"GET /200000 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert scene.site.admission.untaken_bytes <= 600_000
    assert len([each for each in takers if each.ended]) == 3


def test_a_silent_connection_is_kept_for_a_while_between_requests() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(GET)
    scene.clock.advance(59.0)
    peer.send(GET)
    assert peer.value().count(b"HTTP/1.1 200 ") == 2
    scene.clock.advance(59.0)
    assert peer.ended == ""
    scene.clock.advance(62.0)
    assert peer.ended == "closed"
    peer.channel.connectionLost()
    assert scene.clock.getDelayedCalls() == []


FAULT = b"GET /fault HTTP/1.1\r\nHost: x\r\n\r\n"


def test_an_exception_while_a_request_is_read_ends_its_connection_alone_and_is_logged_once() -> None:
    scene = Scene()
    kept, first, pipelined = Peer(scene), Peer(scene), Peer(scene)
    kept.send(GET)
    with capturedLogs() as events:
        first.send(FAULT)
        pipelined.send(LATER + FAULT)
        pipelined.channel.requests[0].answer(b"done")
        scene.clock.advance(0.0)
    assert [each.ended for each in (kept, first, pipelined)] == ["", "aborted", "aborted"]
    assert not pipelined.channel.busy
    assert len(scene.site.admission) == 1
    assert [formatEvent(event) for event in events] == [
        "Closing the connection from 10.0.0.7:40000: its request cannot be read: ValueError('bad bytes')"
    ]


def test_a_connection_that_is_being_closed_is_not_busy_and_ends_after_its_time() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(LATER)
    peer.channel.loseConnection()
    assert not peer.channel.busy
    peer.send(GET)
    for _ in range(3):
        scene.clock.advance(HTTP_BOUNDS.idle_s + 1.0)
    assert (peer.ended, peer.value()) == ("aborted", b"")


@pytest.mark.parametrize(
    "kind", [b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=a", b"a/b\x0bc"]
)
def test_a_body_is_not_parsed_as_a_form(kind: bytes) -> None:
    peer = Peer(Scene())
    seen: list[tuple[object, bytes]] = []
    body = b"--a\r\nContent-Disposition: form-data; name=y\r\n\r\nz\r\n--a--\r\n&b=c"

    class Watched(_Request):
        def process(self) -> None:
            seen.append((self.args, self.content.read()))
            super().process()

    peer.channel.requestFactory = Watched
    peer.send(b"POST /7?x=1&y= HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 61\r\n\r\n" % kind + body)
    assert seen == [({b"x": [b"1"], b"y": [b""]}, body)]
    assert peer.value().endswith(b"x" * 7)


def answers(peer: Peer) -> int:
    """Answers that were written since the last `clear`."""
    return int(peer.value().count(b"HTTP/1.1 200 "))


def test_pipelined_requests_are_served_one_a_turn_and_in_order() -> None:
    scene = Scene()
    peer, other = Peer(scene), Peer(scene)
    peer.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % size for size in range(2000)))
    for served in range(1, 1000):
        assert answers(peer) == served
        assert peer.channel.busy
        scene.turn()
    peer.send(GET)
    other.send(GET)
    assert answers(other) == 1
    scene.clock.advance(0.0)
    sizes = [int(each.split()[0]) for each in peer.value().split(b"Content-Length: ")[1:]]
    assert sizes == [*range(2000), 2]
    assert not peer.channel.busy


def test_a_request_with_nothing_behind_it_leaves_no_call_for_another_turn() -> None:
    scene = Scene()
    peer = Peer(scene)
    calls = len(scene.clock.getDelayedCalls())
    peer.send(b"PUT /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    assert (answers(peer), len(scene.clock.getDelayedCalls()), peer.channel.busy) == (1, calls, False)


def test_pipelined_requests_wait_until_the_answer_before_them_is_taken() -> None:
    scene = Scene()
    peer = Peer(scene, taking=False)
    peer.send(b"GET /200000 HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    for _ in range(3):
        scene.clock.advance(0.0)
        assert (answers(peer), peer.producerState, peer.ended) == (1, "paused", "")
        peer.clear()
        peer.channel.resumeProducing()


def test_nothing_more_is_read_while_a_request_has_an_answer_that_is_not_taken() -> None:
    peer = Peer(Scene(), taking=False)
    peer.send(LATER)
    [request] = peer.channel.requests
    for _ in range(2):
        request.write(b"x" * 100_000)
        assert peer.producerState == "paused"
        peer.clear()
        peer.channel.resumeProducing()
        assert peer.producerState == "producing"
    peer.send(b"x" * 100_000)
    request.write(b"x" * 100_000)
    peer.channel.resumeProducing()
    assert peer.producerState == "paused"


def test_no_pipelined_request_is_served_once_the_connection_is_aborted() -> None:
    scene = Scene(replace(HTTP_BOUNDS, untaken_bytes_max=300_000))
    peer = Peer(scene, taking=False)
    peer.abortConnection = lambda: setattr(peer, "ended", "aborted")  # type: ignore[method-assign] # lost a turn later
    peer.send(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" + b"GET /400000 HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    scene.clock.advance(0.0)
    assert (answers(peer), peer.ended) == (2, "aborted")
    peer.channel.connectionLost()
    assert scene.clock.getDelayedCalls() == []


def test_a_connection_that_is_lost_leaves_no_call() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(GET * 3)
    peer.channel.connectionLost()
    scene.clock.advance(0.0)
    assert (answers(peer), scene.clock.getDelayedCalls()) == (1, [])
