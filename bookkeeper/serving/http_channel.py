"""HTTP connections within the bounds of `admission`: deadlines for requests and answers, places, memory.

    request    complete within `first_request_s` of its first byte; the first request: of the connection
    answer     read by the peer at ANSWER_RATE_MIN, plus `stall_timeout_s`
    silence    `idle_s` between requests
    places     half of them for connections with a request to send or to complete: beyond it a new connection replaces
               the oldest one; if all places are taken, it replaces a connection without a request in progress, or one
               with untaken answers

Connections that send or read slowly therefore do not block requests for /heartbeat or /metrics.

A body is not parsed as a form: the access rules come first, and only our own code reads the body. A body that is too
large is read and dropped up to DISCARDED_BYTES_MAX. A larger body or a line that is too long is refused at once; then
the connection ends. An exception while a connection's bytes are read ends only that connection. A connection that is
being closed does not count as busy, so a deadline ends it.

At most CHUNKED_SIZE_MAX bytes of a chunked body are read per reactor turn. Pipelined requests of a connection are
served one per turn, each after the kernel has accepted the previous answer. While the transport is full, nothing more
is read. Thread: reactor.
"""
# mypy: allow-untyped-calls
# (twisted.web has few types)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from io import BytesIO
from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, parse_qs

from bookkeeper.serving.admission import Admission, BoundNames, Closing, ConnectionBounds, Place
from bookkeeper.serving.descriptors import HTTP_CONNECTIONS_MAX, fitting_connections
from bookkeeper.serving.peers import PeerLog, name_of

log = Logger()

MIB = 1024 * 1024

HTTP_BOUNDS = ConnectionBounds(
    connections_max=HTTP_CONNECTIONS_MAX,
    first_request_s=30.0,
    idle_s=60.0,
    evictable_s=0.0,
    evicts_untaken=True,
    received_bytes_max=64 * MIB,
    untaken_bytes_max=64 * MIB,
    stall_timeout_s=30.0,
    names=BoundNames(connections="", memory="", first_request="", idle=""),
)

ANSWER_RATE_MIN = 16 * 1024
"""Bytes of an answer per second that a peer must read."""

LISTEN_BACKLOG = 512
"""Connections that may wait to be accepted. In a flood, further clients try again after a second or more."""

BUFFER_SIZE = 64 * 1024
"""Bytes that wait in a transport before the transport pauses its producer."""


def fitting(bounds: ConnectionBounds) -> ConnectionBounds:
    """Return the bounds with `connections_max` reduced to what the limit on open files allows."""
    return replace(bounds, connections_max=fitting_connections(bounds.connections_max, 0))


CHUNKED_SIZE_MAX = 16 * 1024
"""Bytes of a chunked body to read in one reactor turn: at most 2,730 chunks of one byte, about 8 ms. A read of 64 KiB
would take 50 ms."""


class BoundedSite:
    """State shared by the channels of one port. Put it before HTTPFactory; call `bound` before the first connection."""

    admission: Admission
    peers: PeerLog

    def bound(self, reactor: Any, bounds: ConnectionBounds) -> None:
        """Set the bounds of all connections."""
        self.admission = Admission(bounds, reactor)
        self.peers = PeerLog(log, reactor)

    def buildProtocol(self, addr: Any) -> Any:
        channel: Any = super().buildProtocol(addr)  # type: ignore[misc] # of HTTPFactory
        channel.timeOut = None  # the admission keeps the deadlines
        channel.share(self.admission, self.peers)
        return channel


DISCARDED_BYTES_MAX = MIB
"""Bytes to read and drop of a body that is too large, since most clients read no answer before they have sent the
body. Beyond this number, the answer is sent at once and the connection ends."""

LENGTH_DIGITS_MAX = 19
"""Maximum digits of Content-Length, including leading zeros: the number of digits of 2**63. CPython's `int` raises
ValueError beyond 4300 digits, and twisted.web does not catch it."""


class BoundedRequest:
    """A request that keeps at most `body_bytes_max` bytes of its body, unparsed. As a base class, it precedes Request.

    body_size: received bytes of the body. A larger body is not kept, and `process` must refuse the request. args:
    parameters of the query.
    """

    body_bytes_max: int
    body_size = 0
    has_body = False
    channel: Any
    content: Any
    args: dict[bytes, list[bytes]]
    process: Any

    @property
    def body_is_too_large(self) -> bool:
        """Whether the body exceeds `body_bytes_max`; `content` is incomplete then."""
        return self.body_size > self.body_bytes_max

    @property
    def body_refusal(self) -> str:
        """The error text for a body that is too large."""
        return f"the body of a request has at most {self.body_bytes_max} bytes"

    def gotLength(self, length: int | None) -> None:
        self.has_body = length is None or length > 0
        self.content = BytesIO()
        if length is not None and length > DISCARDED_BYTES_MAX:
            self.channel.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.body_refusal)

    def handleContentChunk(self, data: bytes) -> None:
        self.body_size += len(data)
        if not self.body_is_too_large:
            self.content.write(data)
        elif self.body_size > DISCARDED_BYTES_MAX:
            self.channel.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.body_refusal)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.method, self.uri, self.clientproto = command, path, version
        self.path, _, query = path.partition(b"?")
        self.args = parse_qs(query, 1)
        self.content.seek(0)
        self.process()


class BoundedChannel(HTTPChannel):
    """One HTTP/1.1 connection."""

    transport: Any
    _admission: Admission
    _peers: PeerLog

    def share(self, admission: Admission, peers: PeerLog) -> None:
        """Set the state that all connections of the port share."""
        self._admission, self._peers = admission, peers
        self._place: Place | None = None
        self._peer = "?"
        self._answering = False
        self._ended = False  # nothing that arrives is read any more
        self._request_bytes = 0
        self._writing_bytes = 0
        self._untaken_bytes = 0  # 0: the transport is not blocked
        self._blocked_since_s = 0.0
        self._stall_timer: Any = None
        self._answered: Any = None  # the request before pipelined ones that wait
        self._next_turn: Any = None

    def connectionMade(self) -> None:
        self._peer = name_of(self.transport.getPeer())
        super().connectionMade()
        self._place = self._admission.admit(self)
        if self._place is None:
            self._peers.on_refused(self._peer, self._admission.refusal)
            self._abort()

    # --- requests

    def error_answer(self, status: int, message: str) -> tuple[str, bytes]:
        """Return the content type and body of the answer to a request that is refused before it is complete."""
        raise NotImplementedError

    def refuse(self, status: int, message: str) -> None:
        """Answer an incomplete request and close the connection. Do nothing if the connection already ends."""
        if self._ended:
            return
        content_type, body = self.error_answer(status, message)
        self.transport.write(
            b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (status, HTTPStatus(status).phrase.encode(), content_type.encode(), len(body), body)
        )
        self.loseConnection()

    def headerReceived(self, line: bytes) -> bool:
        refusal = length_refusal(line)
        if refusal:
            self.refuse(HTTPStatus.BAD_REQUEST, refusal)
            return False
        return bool(super().headerReceived(line))

    def lineLengthExceeded(self, line: bytes) -> None:
        self.refuse(HTTPStatus.REQUEST_URI_TOO_LONG, f"a line of the request has more than {self.MAX_LENGTH} bytes")

    def _send100Continue(self) -> None:
        if not self._ended:
            super()._send100Continue()

    def dataReceived(self, data: bytes) -> None:
        place = self._place
        if self._ended or place is None:
            return
        place.heard = True
        if not self._answering:
            self._admission.awaits(place)
            self._request_bytes += len(data)
            if self._request_bytes > self.totalHeadersSize + 2 * DISCARDED_BYTES_MAX:  # chunks may be mostly overhead
                self.refuse(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {self._request_bytes} bytes"
                )
                return
            self._admission.partial(place, self._request_bytes)
        if place.is_closing:
            return
        try:
            super().dataReceived(data)
        except Exception as error:  # noqa: BLE001 - the edge of a connection: the others stay
            text = "Closing the connection from {peer}: its request cannot be read: {error}"
            self._peers.warn(self._peer, "unreadable", text, error=repr(error), log_failure=Failure())
            self._abort()

    def rawDataReceived(self, data: bytes) -> None:
        if self.length is None:  # a chunked body
            self._buffer = data[CHUNKED_SIZE_MAX:]  # before the rest of `data` is read: see requestDone
            data = data[:CHUNKED_SIZE_MAX]
        super().rawDataReceived(data)
        if self._ended:
            self._buffer = b""
        elif self._buffer and self.length is None:
            self.paused = True
            self._networkProducer.pauseProducing()
            self._next_turn = self.callLater(0, self._read_on)

    def _read_on(self) -> None:
        self._next_turn, self.paused = None, False
        if not (self._ended or self._waitingForTransport):
            self._networkProducer.resumeProducing()
        self.dataReceived(b"")

    def allContentReceived(self) -> None:
        if self._ended:  # the request was refused before it was complete
            return
        self._request_bytes = 0
        self._answering = True
        if self._place is not None:
            self._admission.partial(self._place, 0)
            self._admission.served(self._place)
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        if self._ended:
            return
        if self._buffer or any(self._dataBuffer):
            self._answered = request
            self._serve_next_soon()
        else:
            self._answering = False
            super().requestDone(request)

    def _serve_next_soon(self) -> None:
        if self._answered is not None and self._next_turn is None and not self._untaken_bytes:
            self._next_turn = self.callLater(0, self._serve_next)

    def _serve_next(self) -> None:
        self._next_turn = None
        if self._ended or self._untaken_bytes:  # resumeProducing comes
            return
        request, self._answered = self._answered, None
        self._answering = False
        super().requestDone(request)

    # --- answers

    def write(self, data: bytes) -> None:
        self._count_written(len(data))
        super().write(data)

    def writeSequence(self, iovec: Sequence[bytes]) -> None:
        self._count_written(sum(map(len, iovec)))
        super().writeSequence(iovec)

    def _count_written(self, size: int) -> None:
        self._writing_bytes = size
        if self._untaken_bytes:
            self._leave_untaken(self._untaken_bytes + size)

    def _leave_untaken(self, size: int) -> None:
        self._untaken_bytes = size
        if self._place is not None:
            self._admission.untaken(self._place, size)

    def pauseProducing(self) -> None:
        super().pauseProducing()
        if not self._ended:
            self._networkProducer.pauseProducing()  # in a request, too: what comes then has no bound
        if not self._untaken_bytes:  # the transport calls this for every write while its buffer is full
            self._blocked_since_s = self._admission.now_s
            self._watch_stall(self._admission.bounds.stall_timeout_s)
            self._leave_untaken(BUFFER_SIZE + self._writing_bytes)

    def resumeProducing(self) -> None:
        self._cancel_stall()
        self._leave_untaken(0)
        super().resumeProducing()
        if self._handlingRequest and sum(map(len, self._dataBuffer)) <= self._optimisticEagerReadSize:
            self._networkProducer.resumeProducing()
        self._serve_next_soon()

    def _watch_stall(self, delay_s: float) -> None:
        self._cancel_stall()
        self._stall_timer = self.callLater(delay_s, self._look_at_stall)

    def _cancel_stall(self) -> None:
        timer, self._stall_timer = self._stall_timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _look_at_stall(self) -> None:
        self._stall_timer = None
        allowed_s = self._admission.bounds.stall_timeout_s + self._untaken_bytes / ANSWER_RATE_MIN
        left_s = self._blocked_since_s + allowed_s - self._admission.now_s
        if left_s > 0:
            self._watch_stall(left_s)
            return
        text = "Closing the connection from {peer}: it did not read {size} bytes of an answer within {seconds:.0f} s"
        self._peers.warn(self._peer, "stalled", text, size=self._untaken_bytes, seconds=allowed_s)
        self._abort()

    # --- bounds

    @property
    def busy(self) -> bool:
        """See admission.Bounded."""
        return self._answering or self._untaken_bytes > 0

    @property
    def untaken_bytes(self) -> int:
        """See admission.Bounded."""
        return self._untaken_bytes

    def give_up(self, closing: Closing) -> None:
        """See admission.Bounded."""
        if self._peers.on_closing(self._peer, closing):
            self.timeoutConnection()  # in order; aborted later if the peer does not read the last answer
        else:
            self._abort()

    def loseConnection(self) -> None:
        if not self._ended:
            self._ended, self._answering = True, False
            super().loseConnection()

    def _abort(self) -> None:
        self._ended, self._answering = True, False
        self.transport.abortConnection()

    def timeoutConnection(self) -> None:
        self._abortingCall = self.callLater(self.abortTimeout, self.forceAbortClient)
        self.loseConnection()

    def forceAbortClient(self) -> None:
        self._abortingCall = None
        self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._cancel_stall()
        turn, self._next_turn = self._next_turn, None
        if turn is not None:
            turn.cancel()
        self._ended, self._answering = True, False
        place, self._place = self._place, None
        if place is not None:
            self._admission.forget(place)
        super().connectionLost(reason)


def length_refusal(header_line: bytes) -> str:
    """Return why a header line is refused (a Content-Length with too many digits), or ""."""
    name, _, value = header_line.partition(b":")
    digits = len(value.strip())
    if name.strip().lower() != b"content-length" or digits <= LENGTH_DIGITS_MAX:
        return ""
    return f"Content-Length has {digits} digits; at most {LENGTH_DIGITS_MAX} are allowed"
