"""HTTP in, HTTP out: a `Router` behind twisted.web. Thread: reactor.

Bounds: those of `serving.http_channel`, REQUESTS_MAX requests in progress, bodies of BODY_SIZE_MAX bytes. PROBES are
answered at once and do not count, so slow requests do not block them. An answer in pieces is produced only as fast as
the peer reads it, and ends with its connection.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from bookkeeper.admin.access.audit import Audit
from bookkeeper.admin.access.gate import Gate
from bookkeeper.admin.access.rules import HEADERS, Head, Verdict
from bookkeeper.admin.http.routing import BODY_SIZE_MAX, Answer, HttpRequest, Refused, Router, bad_request, error_answer
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.serving.http_channel import (
    HTTP_BOUNDS,
    LISTEN_BACKLOG,
    BoundedChannel,
    BoundedRequest,
    BoundedSite,
    fitting,
)

log = Logger()

REQUESTS_MAX = 64
PROBES = frozenset({"/heartbeat", "/metrics"})
"""Paths with answers that wait for nothing."""


class _Request(BoundedRequest, Request):
    """One request."""

    body_bytes_max = BODY_SIZE_MAX
    verdict = Verdict()


class _Channel(BoundedChannel):
    """One connection."""

    def error_answer(self, status: int, message: str) -> tuple[str, bytes]:
        answer = error_answer(status, message)
        assert isinstance(answer.body, bytes)
        return answer.content_type, answer.body


class _Flow:
    """Pieces wait while the transport is full. gone: the other side is."""

    def __init__(self) -> None:
        self.gone = False
        self._waiting: Deferred[None] | None = None
        self._paused = False

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._go_on()

    def stopProducing(self) -> None:
        self.gone = True
        self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def room(self) -> None:
        """Return once there is room, or nobody to write to."""
        if self._paused and not self.gone:
            self._waiting = Deferred()
            await self._waiting


class _Entrance(Resource):
    """Every path: from twisted's request to ours, and back."""

    isLeaf = True

    def __init__(self, router: Router, gate: Gate) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # twisted.web has few types
        self._router, self._gate = router, gate
        self._in_progress = 0

    def render(self, request: Request) -> int:
        flow = _Flow()
        request.notifyFinish().addErrback(lambda _: flow.stopProducing())
        weight = 0 if _path_of(request).rstrip("/") in PROBES else 1
        self._in_progress += weight
        is_too_much = weight > 0 and self._in_progress > REQUESTS_MAX
        answering = Deferred.fromCoroutine(self._answer(request, flow, is_too_much=is_too_much))
        answering.addErrback(self._broke, request)
        answering.addBoth(self._done, weight)
        return NOT_DONE_YET

    def _done(self, _: object, weight: int) -> None:
        self._in_progress -= weight

    def _broke(self, failure: Failure, request: Request) -> None:
        """After the answer began: the other side must not take it for whole."""
        log.failure("The answer to {method} {uri} broke off", failure=failure, method=request.method, uri=request.uri)
        if not request.finished:
            request.transport.abortConnection()  # type: ignore[union-attr] # TCP has it, and is up

    async def _answer(self, request: Request, flow: _Flow, *, is_too_much: bool) -> None:
        try:
            answer = await self._answer_to(request, is_too_much=is_too_much)
        except Exception:  # noqa: BLE001 - the edge of a request: whatever it is ends this request alone
            log.failure("{method} {uri} failed", method=request.method, uri=request.uri)
            answer = error_answer(500, "this should not have happened; the server's log says more")
        if flow.gone:
            return
        request.setResponseCode(answer.status)
        request.setHeader(b"content-type", answer.content_type.encode())  # type: ignore[no-untyped-call] # as above
        for name, value in answer.headers:
            request.setHeader(name.encode(), value.encode())  # type: ignore[no-untyped-call] # as above
        if isinstance(answer.body, bytes):
            request.setHeader(b"content-length", b"%d" % len(answer.body))  # type: ignore[no-untyped-call] # as above
            request.write(answer.body)  # type: ignore[no-untyped-call] # as above
        else:
            await self._in_pieces(request, flow, answer)
        if not flow.gone:
            request.finish()  # type: ignore[no-untyped-call] # as above

    async def _in_pieces(self, request: Request, flow: _Flow, answer: Answer) -> None:
        assert not isinstance(answer.body, bytes)
        request.registerProducer(flow, True)  # type: ignore[no-untyped-call] # as above
        async with aclosing(answer.body) as pieces:
            async for piece in pieces:
                await flow.room()
                if flow.gone:
                    return
                request.write(piece)  # type: ignore[no-untyped-call] # as above
        request.unregisterProducer()  # type: ignore[no-untyped-call] # as above

    async def _answer_to(self, request: Request, *, is_too_much: bool) -> Answer:
        if is_too_much:
            return error_answer(503, f"{REQUESTS_MAX} requests are being answered already; try again")
        assert isinstance(request, _Request)
        verdict = request.verdict = self._gate.check(_head_of(request))
        if verdict.status:
            return replace(error_answer(verdict.status, verdict.message), headers=verdict.headers)
        if request.body_is_too_large:
            return error_answer(413, request.body_refusal)
        try:
            wanted = _request_of(request)
        except Refused as refused:
            return error_answer(refused.status, str(refused))
        return await self._router.answer(wanted)


def _path_of(request: Request) -> str:
    return unquote(request.path.decode("latin-1"))


def _head_of(request: Request) -> Head:
    return Head(
        request.method.decode("latin-1"),
        _path_of(request),
        getattr(request.getClientAddress(), "host", ""),  # type: ignore[no-untyped-call] # twisted.web has few types
        {
            name: [value.decode("latin-1") for value in request.requestHeaders.getRawHeaders(name.encode(), [])]
            for name in HEADERS
        },
    )


def _request_of(request: Request) -> HttpRequest:
    try:
        method = request.method.decode("ascii")
        path = unquote(request.path.decode("ascii"), errors="strict")
        query = {name.decode(): [each.decode() for each in values] for name, values in (request.args or {}).items()}
    except UnicodeDecodeError as error:
        raise bad_request(f"the request's path or query is not UTF-8: {error}") from None
    for name, values in query.items():
        if len(values) > 1:
            raise bad_request(f"{name} is given {len(values)} times")
    content_type = request.getHeader(b"content-type") or b""
    body = b"" if request.content is None else request.content.read()
    return HttpRequest(
        "GET" if method == "HEAD" else method,  # twisted.web leaves the body out
        path,
        {name: values[0] for name, values in query.items()},
        body,
        content_type.decode("latin-1"),
    )


class _Site(BoundedSite, Site):
    """The connections of one server."""

    protocol: Any = _Channel
    audit: Audit

    def log(self, request: Any) -> None:
        """Log an answered request."""
        peer = getattr(request.getClientAddress(), "host", "-")
        self.audit.on_answer(request.method, request.uri, peer, request.verdict, request.code)


def site_of(reactor: Any, router: Router, gate: Gate, bounds: ConnectionBounds = HTTP_BOUNDS) -> Site:
    """What answers each connection."""
    site = _Site(  # type: ignore[no-untyped-call] # twisted.web has few types
        _Entrance(router, gate), requestFactory=_Request, reactor=reactor
    )
    site.bound(reactor, bounds)
    site.audit = Audit(reactor)
    site.noisy = False
    return site


def listen_http(reactor: Any, host: str, port: int, router: Router, gate: Gate) -> Any:
    """Serve on host:port and return the listening port (`.stopListening()`). Raises OSError-like CannotListenError."""
    site = site_of(reactor, router, gate, fitting(HTTP_BOUNDS))
    listening = reactor.listenTCP(port, site, backlog=LISTEN_BACKLOG, interface=host)
    address = listening.getHost()
    # Where the port is 0, no setting says it.
    log.info("HTTP server on {host}:{port}", host=address.host, port=address.port)
    return listening
