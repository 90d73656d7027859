"""What an operator's request to release topics becomes, without HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from hedwig.hub.release import COUNT_MAX, GivingUp
from hedwig.model import Topic


class Owner:
    """Stands for an Ownership."""

    def __init__(self) -> None:
        self.owned: dict[Topic, object] = {Topic(b"news"): object(), Topic(b"sport"): object()}

    def release(self, topic: Topic) -> Deferred[None]:
        self.owned.pop(topic, None)
        return succeed(None)

    async def release_some(self, count: int) -> int:
        released = min(count, len(self.owned))
        for topic in list(self.owned)[:released]:
            del self.owned[topic]
        return released


def asked(owner: Any, body: object) -> tuple[int, dict[str, Any]]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    found: list[Any] = []
    Deferred.fromCoroutine(GivingUp(lambda: owner).answer(text)).addCallback(found.append)
    return found[0][0], dict(found[0][1])


def test_one_topic_is_released_once() -> None:
    owner = Owner()
    assert asked(owner, {"topic": "news"}) == (200, {"released": 1})
    assert asked(owner, {"topic": "news"}) == (200, {"released": 0})
    assert list(owner.owned) == [b"sport"]


def test_so_many_are_released() -> None:
    owner = Owner()
    assert asked(owner, {"count": 1}) == (200, {"released": 1})
    assert asked(owner, {"count": COUNT_MAX}) == (200, {"released": 1})


@pytest.mark.parametrize(
    "body",
    [
        *(b"[" * 60_000, b'{"topic":' * 6_000),
        *(b"", b"{", b"\xff", [], "news", {}, {"topic": 1}, {"topic": ""}, {"topic": "a//b"}, {"count": 0}),
        *({"count": -1}, {"count": True}, {"count": "1"}, {"count": COUNT_MAX + 1}, {"count": 1, "topic": "news"}),
    ],
    ids=lambda body: str(body)[:20],
)
def test_what_is_neither_is_refused_and_releases_nothing(body: object) -> None:
    owner = Owner()
    status, said = asked(owner, body)
    assert (status, list(said), len(owner.owned)) == (400, ["error"], 2)


def test_without_ownership_there_is_nothing_to_release() -> None:
    assert asked(None, {"count": 1})[0] == 503
