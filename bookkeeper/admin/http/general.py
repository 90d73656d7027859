"""/heartbeat, /metrics, config/server_config, and / with the list of what there is: what every server has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookkeeper.admin.http.routing import Answer, HttpRequest, Refused, Route, Router, json_answer, text_answer
from bookkeeper.metrics import CONTENT_TYPE

CONFIG = "/api/v1/config/server_config"


class General:
    """metrics_text: the body of /metrics. config: key -> effective value, secrets hidden already."""

    def __init__(self, metrics_text: Callable[[], bytes], config: Callable[[], Mapping[str, str]] | None) -> None:
        self._metrics_text, self._config = metrics_text, config

    def routes(self) -> list[Route]:
        """What a server of any kind answers."""
        routes = [Route("GET", "/heartbeat", self._heartbeat), Route("GET", "/metrics", self._metrics)]
        if self._config is not None:
            routes += [Route("GET", CONFIG, self._show_config), Route("PUT", CONFIG, self._change_config)]
        return routes

    async def _heartbeat(self, _: HttpRequest) -> Answer:
        return text_answer("OK\n")

    async def _metrics(self, _: HttpRequest) -> Answer:
        return Answer(self._metrics_text(), content_type=CONTENT_TYPE)

    async def _show_config(self, _: HttpRequest) -> Answer:
        """Differs from Apache: every effective value, defaults included; there only those that were set, and secrets
        too."""
        assert self._config is not None
        return json_answer(dict(self._config()))

    async def _change_config(self, _: HttpRequest) -> Answer:
        """Differs from Apache, which takes any name and value, mostly without effect: what runs has read its own."""
        raise Refused(
            405, "settings are read at start: change the conf file and restart (`bookkeeper config check` validates it)"
        )


def with_list(routes: list[Route], absent: Mapping[str, str]) -> Router:
    """A router of `routes`, and of / , which lists them."""

    async def listed(_: HttpRequest) -> Answer:
        return json_answer({"paths": router.paths, "not_here": dict(absent)})

    router = Router([*routes, Route("GET", "/", listed)], absent)
    return router
