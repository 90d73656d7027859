"""Sockets of the HTTP interface: requests in, answers out, and their limits.

    line and headers   HEADER_BYTES_MAX, so a target is at most about that long
    body               at most the content of a file
    time, connections  those of `bookkeeper.serving.http_channel`, with BOUNDS

A pipelined request waits for the one before it. By default it listens on loopback, since clients need no credentials.
Thread: reactor.
"""
# mypy: allow-untyped-calls
# (twisted.web has few types)

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPFactory, Request

from bookkeeper.admin.access.audit import Audit
from bookkeeper.admin.access.gate import Gate
from bookkeeper.admin.access.rules import HEADERS, Head, Verdict
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.serving.http_channel import (
    HTTP_BOUNDS,
    LISTEN_BACKLOG,
    BoundedChannel,
    BoundedRequest,
    BoundedSite,
    fitting,
)
from journalmgr.namenode.errors import ContentTooLarge
from journalmgr.namenode.http.answers import error_answer, remote_exception
from journalmgr.namenode.http.api import HttpApi
from journalmgr.namenode.http.messages import Answer, BadRequest, HttpRequest
from journalmgr.namenode.http.operations import PREFIX
from journalmgr.namenode.namespace.tree import CONTENT_BYTES_MAX

log = Logger()

BODY_BYTES_MAX: Final = CONTENT_BYTES_MAX
HEADER_BYTES_MAX: Final = 64 * 1024
BOUNDS: Final = replace(HTTP_BOUNDS, connections_max=2000, received_bytes_max=256 * 1024 * 1024)


class _Request(BoundedRequest, Request):
    """One request, and the answer to it."""

    body_bytes_max = BODY_BYTES_MAX
    channel: _Channel
    verdict = Verdict()

    def process(self) -> None:
        if self.body_is_too_large:
            self.answered(_early_refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.body_refusal))
            return
        headers = {
            name.decode("latin-1").lower(): values[-1].decode("latin-1")
            for name, values in self.requestHeaders.getAllRawHeaders()
        }
        verdict = self.verdict = self.channel.site.gate.check(self._head())
        if verdict.status:
            self.answered(_refusal(verdict))
            return
        assert self.content is not None
        body = self.content.read() if self.has_body else None
        request = HttpRequest(self.method.decode("latin-1"), self.uri.decode("latin-1"), headers, body)
        self.api.answer(request).addCallback(self.answered)

    def _head(self) -> Head:
        return Head(
            self.method.decode("latin-1"),
            unquote(self.uri.partition(b"?")[0].decode("latin-1")),
            getattr(self.getClientAddress(), "host", ""),
            {
                name: [value.decode("latin-1") for value in self.requestHeaders.getRawHeaders(name.encode(), [])]
                for name in HEADERS
            },
        )

    @property
    def api(self) -> HttpApi:
        """Who answers."""
        return self.channel.site.api

    def answered(self, answer: Answer) -> None:
        """Send an answer."""
        if self._disconnected:
            return  # whoever asked has gone; what was changed is changed
        self.setResponseCode(answer.status)
        self.setHeader("content-type", answer.content_type)
        for name, value in answer.headers.items():
            self.setHeader(name, value)
        if answer.pieces is None:
            self.setHeader("content-length", str(len(answer.body)))
            self.write(answer.body)
            self.finish()
        else:
            self.write(answer.body)
            _Pieces(self, answer.pieces).start()


class _Pieces:
    """Sends the pieces of an answer, each once there is room for it: a push producer. Others get their turn between."""

    def __init__(self, request: _Request, pieces: AsyncIterator[bytes]) -> None:
        self._request, self._pieces = request, pieces
        self._channel = request.channel  # the request forgets it once the connection is lost
        self._making = self._paused = self._ended = False
        self._next: Any = None

    def start(self) -> None:
        """Send the first one soon."""
        self._request.notifyFinish().addErrback(lambda _: self.stopProducing())
        self._request.registerProducer(self, True)
        self._go_on()

    def resumeProducing(self) -> None:
        """There is room again."""
        self._paused = False
        self._go_on()

    def pauseProducing(self) -> None:
        """Pause the answer until the client reads."""
        self._paused = True

    def stopProducing(self) -> None:
        """Nobody takes it any more."""
        self._ended = True
        _cancel(self._next)

    def _go_on(self) -> None:
        if not (self._making or self._paused or self._ended):
            self._making = True
            self._next = self._channel.callLater(0, self._make)

    def _make(self) -> None:
        Deferred.fromCoroutine(self._send()).addErrback(self._broken)

    async def _send(self) -> None:
        try:
            piece: bytes | None = await anext(self._pieces)
        except StopAsyncIteration:
            piece = None
        if self._ended:
            return
        if piece is None:
            self.stopProducing()
            self._request.unregisterProducer()
            self._request.finish()
            return
        self._request.write(piece)
        self._making = False
        self._go_on()

    def _broken(self, failure: Failure) -> None:
        # It is too late for another status; an end that is missing tells the client that this is not all.
        log.warn("An answer was cut short: {error}", error=failure.value)
        if not self._ended:
            self.stopProducing()
            self._channel.transport.abortConnection()


class _Channel(BoundedChannel):
    """One connection."""

    requestFactory = _Request
    site: HttpSite
    transport: Any
    totalHeadersSize = HEADER_BYTES_MAX
    MAX_LENGTH = HEADER_BYTES_MAX

    def error_answer(self, status: int, message: str) -> tuple[str, bytes]:
        answer = _early_refusal(status, message)
        return answer.content_type, answer.body


class HttpSite(BoundedSite, HTTPFactory):
    """The connections of one port."""

    protocol: Any = _Channel

    def __init__(self, reactor: Any, api: HttpApi, gate: Gate, bounds: ConnectionBounds = BOUNDS) -> None:
        super().__init__(reactor=reactor)
        self.bound(reactor, bounds)
        self.api, self.gate, self.audit = api, gate, Audit(reactor)

    noisy = False

    def buildProtocol(self, addr: Any) -> Any:
        channel: Any = super().buildProtocol(addr)
        channel.site = self
        return channel

    def log(self, request: Any) -> None:
        """Log an answered request. WebHDFS changes except DELETE are routine: they are many, and in the edit log."""
        self.audit.on_answer(
            request.method,
            request.uri,
            getattr(request.getClientAddress(), "host", "-"),
            request.verdict,
            request.code,
            is_routine=request.method != b"DELETE" and request.uri.startswith(PREFIX.encode()),
        )


def listen_http(reactor: Any, host: str, port: int, api: HttpApi, gate: Gate) -> Any:
    """Serve on host:port and return the listening port (`.stopListening()`). Raises CannotListenError.

    gate: decides which requests are answered.
    """
    site = HttpSite(reactor, api, gate, fitting(BOUNDS))
    return reactor.listenTCP(port, site, backlog=LISTEN_BACKLOG, interface=host)


def _refusal(verdict: Verdict) -> Answer:
    answer = remote_exception("org.apache.hadoop.security.AccessControlException", verdict.message, verdict.status)
    answer.headers.update(verdict.headers)
    return answer


def _early_refusal(status: int, message: str) -> Answer:
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return error_answer(ContentTooLarge(message, limit=BODY_BYTES_MAX))
    return error_answer(BadRequest(message, status))


def _cancel(timer: Any) -> None:
    if timer is not None and timer.active():
        timer.cancel()
