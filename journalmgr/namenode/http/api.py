"""The HTTP interface of a name node: which path means what, and what goes wrong in which words. Knows no socket.

    /webhdfs/v1/PATH?op=...     WebHDFS, see `operations`
    GET  /api/v1/status         how this server is, whatever its role
    GET  /api/v1/fingerprint    txid and fingerprint of its state: equal on servers that have applied as much.
                                503 if a large state changes all the time
    POST /api/v1/roll           end the segment and begin the next; the active alone
    POST /api/v1/checkpoint     save an image now; not the active
    GET  /metrics  /heartbeat   Prometheus' text; OK

Errors are WebHDFS's RemoteException. A server that is not active answers a request of WebHDFS with 403 and
StandbyException, as Hadoop does, and says in X-Active-Server who is. 503 and RetriableException: the log is in trouble,
or there is too much to do; repeat the request, a change with its X-Request-Id.

`bookkeeper.admin.access` decides first which requests are answered. WebHDFS's `user.name` is not verified.
Thread: reactor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from bookkeeper.metrics import CONTENT_TYPE as METRICS_TYPE
from journalmgr.namenode.http import operations
from journalmgr.namenode.http.answers import error_answer, remote_exception
from journalmgr.namenode.http.messages import (
    TEXT_TYPE,
    Answer,
    BadRequest,
    HttpRequest,
    Overloaded,
    Parameters,
    json_answer,
)
from journalmgr.namenode.service import NameService, NotActive

log = Logger()

REQUESTS_MAX = 1000
"""Operations that are carried out at a time; those of one flush wait for it together."""


class Saved(Protocol):
    """What a checkpoint is, as far as it is told."""

    @property
    def name(self) -> str:
        """Of the image."""

    @property
    def txid(self) -> int:
        """The last that it covers."""


class RequestCounts(Protocol):
    """Whoever counts requests: `journalmgr.metrics.NameNodeMetrics`."""

    def on_request(self, status: int, seconds: float) -> None:
        """One was answered."""


class HttpApi:
    """Answers requests. now_ms: milliseconds since 1970, for the times that inodes get. seconds: for measuring.

    checkpoint: saves an image; None where that cannot be asked for. metrics_text: body of /metrics. counts: told of
    every answer.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
        *,
        checkpoint: Callable[[], Deferred[Saved]] | None = None,
        metrics_text: Callable[[], bytes] | None = None,
        counts: RequestCounts | None = None,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._now_ms, self._seconds = now_ms, seconds
        self._checkpoint, self._metrics_text, self._counts = checkpoint, metrics_text, counts
        self._requests_max = requests_max
        self._service: NameService | None = None
        self.running = 0

    def serve(self, service: NameService) -> None:
        """Whose requests these are; until then the server is starting, and says so. The port is known before it."""
        self._service = service

    def answer(self, request: HttpRequest) -> Deferred[Answer]:
        """Carry a request out. Never fails."""
        return Deferred.fromCoroutine(self._answer(request))

    async def _answer(self, request: HttpRequest) -> Answer:
        begun_s = self._seconds()
        try:
            answer = await self._route(request)
        except BookKeeperError as error:
            answer = error_answer(error)
        except Exception:  # noqa: BLE001 - the edge of a request: others go on
            log.failure("{method} {target} failed", method=request.method, target=request.target)
            answer = remote_exception("java.lang.RuntimeException", "a fault of the server: see its log", 500)
        if self._counts is not None:
            self._counts.on_request(answer.status, self._seconds() - begun_s)
        return answer

    async def _route(self, request: HttpRequest) -> Answer:
        path = request.path
        if path == operations.PREFIX or path.startswith(f"{operations.PREFIX}/"):
            return await self._operation(request)
        routes = self._routes()
        methods = sorted(method for method, known in routes if known == path)
        if not methods:
            known = sorted({known for _, known in routes})
            raise BadRequest(
                f"there is nothing at {path!r}; there are {operations.PREFIX}/..., {', '.join(known)}", 404
            )
        if request.method not in methods:
            raise BadRequest(f"{path} goes with {', '.join(methods)}, not with {request.method}", 405)
        Parameters(request.query).refuse_all(path)
        return await routes[request.method, path]()

    async def _operation(self, request: HttpRequest) -> Answer:
        if self.running >= self._requests_max:
            raise Overloaded(f"{self.running} requests are being carried out; nothing was done: repeat it later")
        self.running += 1
        try:
            return await operations.answer(self._serving, request, self._now_ms())
        finally:
            self.running -= 1

    def _routes(self) -> dict[tuple[str, str], Callable[[], Awaitable[Answer]]]:
        routes: dict[tuple[str, str], Callable[[], Awaitable[Answer]]] = {
            ("GET", "/api/v1/status"): self._status,
            ("GET", "/api/v1/fingerprint"): self._fingerprint,
            ("POST", "/api/v1/roll"): self._roll,
            ("GET", "/heartbeat"): self._heartbeat,
        }
        if self._checkpoint is not None:
            routes["POST", "/api/v1/checkpoint"] = self._save
        if self._metrics_text is not None:
            routes["GET", "/metrics"] = self._metrics
        return routes

    @property
    def _serving(self) -> NameService:
        if self._service is None:
            raise NotActive("this server is starting")
        return self._service

    async def _status(self) -> Answer:
        return json_answer(dataclasses.asdict(await self._serving.status()))

    async def _fingerprint(self) -> Answer:
        found = await self._serving.fingerprint()
        if found is None:
            raise Overloaded(
                "the state changes faster than its fingerprint is computed; repeat it when it changes less"
            )
        txid, fingerprint = found
        return json_answer({"txid": txid, "fingerprint": fingerprint})

    async def _roll(self) -> Answer:
        return json_answer({"txid": await self._serving.roll()})

    async def _save(self) -> Answer:
        assert self._checkpoint is not None
        checkpoint = await self._checkpoint()
        return json_answer({"name": checkpoint.name, "txid": checkpoint.txid})

    async def _heartbeat(self) -> Answer:
        return Answer(body=b"OK\n", content_type=TEXT_TYPE)

    async def _metrics(self) -> Answer:
        assert self._metrics_text is not None
        return Answer(body=self._metrics_text(), content_type=METRICS_TYPE)
