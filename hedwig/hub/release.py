"""POST /release: an operator asks this hub to give topics up, in order, for other hubs to take.

    {"topic": "news"}    that topic       {"count": 10}    any so many, chosen by chance
    -> 200 {"released": n}    400 {"error": ...} for what is neither    503 {"error": ...} while the hub starts or stops

Subscribers of the topic receive TOPIC_MOVED and find its next hub. `bookkeeper.admin.access` decides on requests.
Thread: reactor. The other side: `hedwig.admin.asking`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.admin.http.routing import Answer, HttpRequest, Route, json_answer
from bookkeeper.texts import parse_json
from hedwig.errors import MalformedRequest
from hedwig.model import Topic
from hedwig.names import shown, topic_part

if TYPE_CHECKING:
    from hedwig.hub.ownership import Ownership

log = Logger()

COUNT_MAX = 1_000
"""Topics of one request: a hub that was asked for more could not be stopped."""


class GivingUp:
    """What requests become. ownership: None while there is none."""

    def __init__(self, ownership: Callable[[], Ownership[Any] | None]) -> None:
        self._ownership = ownership

    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        """Return the status and the body of the answer."""
        ownership = self._ownership()
        if ownership is None:
            return 503, {"error": "the hub is starting, or stopping"}
        try:
            wanted = parse_json(body)
        except ValueError as error:
            return 400, {"error": f"no JSON: {error}"}
        match wanted:
            case {"topic": str(name), **rest} if not rest:
                topic = Topic(name.encode("utf-8", "surrogatepass"))
                try:
                    topic_part(topic)
                except MalformedRequest as error:
                    return 400, {"error": str(error)}
                is_owned = topic in ownership.owned
                await ownership.release(topic)
                log.info(
                    "Topic {topic!r} was released, as requested over HTTP"
                    if is_owned
                    else "A request to release topic {topic!r} changed nothing: this hub does not serve it",
                    topic=shown(topic),
                )
                return 200, {"released": int(is_owned)}
            case {"count": int(count), **rest} if not rest and 1 <= count <= COUNT_MAX and count is not True:
                released = await ownership.release_some(count)
                log.info("{released} topics were released, as requested over HTTP", released=released)
                return 200, {"released": released}
        return 400, {"error": f'want {{"topic": NAME}}, or {{"count": N}} with N from 1 to {COUNT_MAX}'}

    def route(self) -> Route:
        """For an HTTP server."""

        async def answer(request: HttpRequest) -> Answer:
            status, said = await self.answer(request.body)
            return json_answer(said, status)

        return Route("POST", "/release", answer)
