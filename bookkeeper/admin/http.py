"""The HTTP side door of a server: /heartbeat and /metrics, with Apache's paths, and what else the server offers.

Off by default (httpServerEnabled). A bookie's answers GET only, holds no state and reads nothing but the metrics
registry, so it can be bound where operators are. Imported only when it is on: twisted.web costs memory that an idle
bookie saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

log = Logger()

METRICS_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class _Text(Resource):
    """One path whose body is made anew for each request."""

    isLeaf = True

    def __init__(self, content_type: bytes, body: Callable[[], bytes]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # twisted.web has few types
        self._content_type, self._body = content_type, body

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"content-type", self._content_type)  # type: ignore[no-untyped-call] # as above
        return self._body()


def listen_http(
    reactor: Any,
    host: str,
    port: int,
    metrics_text: Callable[[], bytes],
    others: Mapping[bytes, Resource] | None = None,
) -> Any:
    """Serve on host:port and return the listening port (`.stopListening()`). Raises OSError-like CannotListenError.

    others: more of the first level, by name.
    """
    root = Resource()  # type: ignore[no-untyped-call] # as above
    root.putChild(b"heartbeat", _Text(b"text/plain", lambda: b"OK\n"))
    root.putChild(b"metrics", _Text(METRICS_CONTENT_TYPE, metrics_text))
    for name, resource in (others or {}).items():
        root.putChild(name, resource)
    site = Site(root)  # type: ignore[no-untyped-call] # as above
    site.noisy = False
    listening = reactor.listenTCP(port, site, interface=host)
    address = listening.getHost()
    # Where the port is 0, no setting says it.
    log.info("HTTP server on {host}:{port}", host=address.host, port=address.port)
    return listening
