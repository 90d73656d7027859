"""Bounded HTTP connections in memory: slow requests, untaken answers, places, memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
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
    CHUNKED_SIZE_MAX,
    DISCARDED_BYTES_MAX,
    HTTP_BOUNDS,
    LENGTH_DIGITS_MAX,
    BoundedChannel,
    BoundedRequest,
    BoundedSite,
    length_refusal,
)

GET = b"GET /heartbeat HTTP/1.1\r\nHost: x\r\n\r\n"


class _Request(BoundedRequest, Request):
    """Answers with as many bytes as its path names; /later: no answer yet. /fault: fails."""

    body_bytes_max = 10_000

    def process(self) -> None:
        if self.path == b"/fault":
            raise ValueError("bad bytes")
        if self.path == b"/body":
            self.answer(b"too large" if self.body_is_too_large else b"%d bytes" % len(self.content.read()))
            return
        if self.path != b"/later":
            self.answer(b"x" * int(self.path.strip(b"/") or b"0") if self.path != b"/heartbeat" else b"OK")

    def answer(self, body: bytes) -> None:
        self.setHeader(b"content-length", b"%d" % len(body))  # type: ignore[no-untyped-call] # twisted has few types
        self.write(body)  # type: ignore[no-untyped-call] # as above
        self.finish()  # type: ignore[no-untyped-call] # as above


class _Channel(BoundedChannel):
    requestFactory = _Request

    def error_answer(self, status: int, message: str) -> tuple[str, bytes]:
        return "text/plain", f"{status}: {message}".encode()


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

    def read_all(self, peer: Peer) -> None:
        """Run turns until the channel has read all parts of a chunked body that arrived."""
        while peer.channel.paused:
            self.turn()


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


# --- large requests


@pytest.mark.parametrize(
    "line", [b"Content-Length: 12", b"content-length:" + b"9" * LENGTH_DIGITS_MAX, b"X: " + b"9" * 99]
)
def test_a_length_with_few_digits_is_accepted(line: bytes) -> None:
    assert length_refusal(line) == ""


@pytest.mark.parametrize("line", [b"Content-Length: " + b"9" * 20, b"CONTENT-LENGTH:" + b"0" * 5000])
def test_a_length_with_many_digits_is_refused(line: bytes) -> None:
    assert "Content-Length has" in length_refusal(line)
    peer = Peer(Scene())
    peer.send(b"PUT /body HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
    assert peer.value().startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert peer.ended == "closed"


LARGEST = _Request.body_bytes_max
CHUNKED = b"PUT /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def _body(size: int, *, is_chunked: bool = False) -> bytes:
    if is_chunked:
        return CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size)
    return b"PUT /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (size, b"x" * size)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_is_kept_up_to_its_maximum_and_a_larger_one_is_dropped(is_chunked: bool) -> None:
    peer = Peer(Scene())
    for size, answer in ((LARGEST, b"10000 bytes"), (LARGEST + 1, b"too large"), (3, b"3 bytes")):
        peer.clear()
        peer.send(_body(size, is_chunked=is_chunked))
        assert peer.value().endswith(b"\r\n\r\n" + answer)
    assert peer.ended == ""


@pytest.mark.parametrize("length", [DISCARDED_BYTES_MAX + 1, 10**18])
def test_a_body_that_is_far_too_large_is_refused_before_it_is_read(length: int) -> None:
    peer = Peer(Scene())
    peer.send(b"PUT /body HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % length)
    assert peer.value().startswith(b"HTTP/1.1 413 ")
    assert peer.value().endswith(b"413: the body of a request has at most 10000 bytes")
    assert b"100 Continue" not in peer.value()
    assert peer.ended == "closed"


def test_a_body_without_end_closes_its_own_connection_and_no_other() -> None:
    scene = Scene()
    others = [Peer(scene) for _ in range(3)]
    for other in others:
        other.send(GET[:10])
    peer = Peer(scene)
    peer.send(CHUNKED)
    pieces = 0
    while not peer.ended:
        peer.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        scene.read_all(peer)
        pieces += 1
        assert pieces * 65536 <= 2 * DISCARDED_BYTES_MAX
    assert peer.value().startswith(b"HTTP/1.1 413 ")
    assert [other.ended for other in others] == [""] * 3
    assert scene.site.admission.partial_bytes <= pieces * 65536 + 1000


def test_a_body_without_end_in_chunks_that_are_mostly_overhead_closes_only_its_connection() -> None:
    scene = Scene()
    other, peer = Peer(scene), Peer(scene)
    other.send(GET[:10])
    peer.send(CHUNKED)
    chunk, sent = b"1;" + b"a" * 1000 + b"\r\nx\r\n", 0
    while not peer.ended:
        peer.send(chunk * 60)
        scene.read_all(peer)
        sent += 60 * len(chunk)
        assert sent <= 3 * DISCARDED_BYTES_MAX
    assert peer.value().startswith(b"HTTP/1.1 413 ")
    assert other.ended == ""


def test_a_request_that_is_refused_and_then_complete_is_answered_once() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(CHUNKED)
    size = DISCARDED_BYTES_MAX + 1
    peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size) + GET)
    scene.read_all(peer)
    assert peer.value().count(b"HTTP/1.1 ") == 1


def test_a_line_that_is_too_long_is_refused() -> None:
    peer = Peer(Scene())
    peer.send(b"GET /" + b"a" * 70_000)
    assert peer.value().startswith(b"HTTP/1.1 414 ")
    assert peer.ended == "closed"


SMALL_CHUNKS = b"1\r\nx\r\n" * 9_000


def test_a_turn_reads_a_bounded_number_of_small_chunks() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(CHUNKED)
    peer.send(SMALL_CHUNKS + b"0\r\n\r\n" + GET)
    [request] = peer.channel.requests
    sizes, turns = [request.body_size], 0
    while not peer.value():
        assert peer.producerState == "paused"
        scene.turn()
        sizes.append(request.body_size)
        turns += 1
    assert max(after - before for before, after in itertools.pairwise([0, *sizes])) <= CHUNKED_SIZE_MAX // 6 + 1
    assert turns == len(SMALL_CHUNKS) // CHUNKED_SIZE_MAX
    scene.turn()
    assert [line for line in peer.value().splitlines() if line.endswith((b" bytes", b"OK"))] == [
        *(b"HTTP/1.1 200 OK", b"9000 bytesHTTP/1.1 200 OK", b"OK")
    ]
    assert peer.producerState == "producing"


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_a_connection_that_ends_in_a_chunked_body_reads_no_more_of_it(end: str) -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(CHUNKED)
    peer.send(SMALL_CHUNKS)
    [request] = peer.channel.requests
    size = request.body_size
    if end == "lost":
        peer.channel.connectionLost()
    else:
        peer.channel.refuse(413, "")
    scene.turn()
    assert request.body_size == size < 9_000
    assert peer.producerState == "paused"


def test_bytes_that_arrive_between_two_parts_of_a_chunked_body_follow_them() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(CHUNKED)
    peer.send(SMALL_CHUNKS)
    peer.send(b"5\r\nhello\r\n0\r\n\r\n")
    scene.read_all(peer)
    assert peer.value().endswith(b"9005 bytes")


def test_a_refused_chunked_body_is_read_no_further() -> None:
    scene = Scene()
    peer = Peer(scene)
    peer.send(CHUNKED)
    [request] = peer.channel.requests
    size = 2 * DISCARDED_BYTES_MAX - 1000
    peer.send(b"%x\r\n%s" % (size, b"x" * size))
    scene.read_all(peer)
    assert peer.ended == "closed"
    assert request.body_size <= DISCARDED_BYTES_MAX + CHUNKED_SIZE_MAX
