"""Hubs are asked over HTTP to give topics up: POST /release on their HTTP server (httpServerEnabled).

    {"topic": "news"}    that topic, in order    -> {"released": 1}, 0 where the hub does not serve it
    {"count": 10}        any so many             -> {"released": 10}

Blocking. The hub's side: `hedwig.hub.release`.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.admin.access.tokens import remedy
from bookkeeper.admin.questions import ask
from bookkeeper.errors import BookKeeperError
from bookkeeper.texts import parse_json
from hedwig.model import HubAddress, Topic

TIMEOUT_S = 60.0
"""For one request: a release waits for what its topic is publishing."""

ANSWER_MAX = 64 * 1024
"""Bytes of one answer."""


class HubNotAsked(BookKeeperError):
    """The hub's HTTP server could not be asked, or refused."""


@dataclass(frozen=True, slots=True)
class HttpPlaces:
    """Where the HTTP servers of hubs are. port: of those that `named` does not name, on the host that they tell."""

    port: int
    named: Mapping[str, tuple[str, int]]

    def of(self, hub: HubAddress) -> tuple[str, int]:
        """Host and port."""
        return self.named.get(str(hub)) or self.named.get(f"{hub.host}:{hub.port}") or (hub.host, self.port)


def release_topic(places: HttpPlaces, hub: HubAddress, topic: Topic) -> int:
    """1; 0 where the hub does not serve it any more. Raises HubNotAsked."""
    return _ask(places, hub, {"topic": topic.decode()})


def release_some(places: HttpPlaces, hub: HubAddress, count: int) -> int:
    """How many the hub gave up. Raises HubNotAsked."""
    return _ask(places, hub, {"count": count})


def _ask(places: HttpPlaces, hub: HubAddress, wanted: Mapping[str, object]) -> int:
    host, port = places.of(hub)
    headers = {"Content-Type": "application/json"}
    try:
        answer = ask(
            *((host, port), "POST", "/release", json.dumps(wanted).encode(), headers),
            size_max=ANSWER_MAX,
            timeout_s=TIMEOUT_S,
        )
    except ValueError as error:
        raise HubNotAsked(str(error)) from error
    except OSError as error:
        raise HubNotAsked(
            f"the HTTP server of hub {hub} cannot be asked at {host}:{port}: {error.strerror or error}. It is off "
            "unless the hub has httpServerEnabled=true, and listens on httpServerHost (127.0.0.1 unless set), "
            f"httpServerPort; --http {hub.host}:{hub.port}=HOST:PORT says where it is"
        ) from error
    except http.client.HTTPException as error:
        raise HubNotAsked(f"{host}:{port} is no HTTP server of a hub: {error!r}") from error
    try:
        found = parse_json(answer.body)
        if answer.status == http.HTTPStatus.OK:
            return int(found["released"])
        why = str(found["error"]) + remedy(answer.status)
    except (ValueError, KeyError, TypeError):
        why = f"{answer.status} {answer.reason}; an older hub, or another program"
    raise HubNotAsked(f"hub {hub} at {host}:{port} released nothing: {why}")
