"""The cursors of a stream's own subscription, at hubs that a test plays."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from hedwig.errors import AlreadySubscribed, NotSubscribed
from hedwig.model import Preferences, SubscribeMode, SubscriberId
from hedwig.spark import topic_cursors
from hedwig.spark.topic_cursors import TopicCursors

END = 101
"""One past the newest message of every topic."""


class Hubs:
    """Subscriptions: topic -> the next message that is delivered."""

    def __init__(self, next_ids: Mapping[str, int] | None = None) -> None:
        self.next_ids = dict(next_ids or {})

    def subscribe(self, topic: bytes, who: SubscriberId, mode: SubscribeMode, **given: Any) -> Held:
        name = topic.decode()
        if mode is SubscribeMode.CREATE and name in self.next_ids:
            raise AlreadySubscribed(name)
        if mode is SubscribeMode.ATTACH and name not in self.next_ids:
            raise NotSubscribed(name)
        self.next_ids.setdefault(name, END)
        if given["start"] is not None:
            self.next_ids[name] = given["start"]
        return Held(self, name)


class Held:
    """One subscription, attached."""

    preferences = Preferences()
    subscriber = topic = b"x"

    def __init__(self, hubs: Hubs, name: str) -> None:
        self._hubs, self._name = hubs, name

    def receive(self, count: int, timeout_s: float) -> list[SimpleNamespace]:
        following = self._hubs.next_ids[self._name]
        return [SimpleNamespace(local_id=following)] if following < END else []

    def seek(self, position: int) -> None:
        self._hubs.next_ids[self._name] = position

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def cursors(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> TopicCursors:
    monkeypatch.setattr(topic_cursors, "hub_client_of", lambda _: hubs)
    options: Any = SimpleNamespace(own=SimpleNamespace(subscriber=SubscriberId(b"query")))
    return TopicCursors(options)


def test_a_cursor_follows_what_is_committed_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-93."""
    hubs = Hubs()
    found = cursors(hubs, monkeypatch)
    found.begin({"news": 5})
    assert hubs.next_ids == {"news": 5}
    found.move({"news": 9})
    found.move({"news": 7})
    assert hubs.next_ids == {"news": 9}
    cursors(hubs, monkeypatch).begin({"news": 5})  # the query begins once more
    cursors(hubs, monkeypatch).move({"news": 8})
    assert hubs.next_ids == {"news": 9}


def test_a_subscription_that_is_not_there_is_made_where_the_query_is_and_not_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a topic added to the query, or whose subscription was removed: the rest is still to be read (I-94)."""
    hubs = Hubs({"news": 40})
    found = cursors(hubs, monkeypatch)
    found.move({"news": 50, "sport": 7})
    assert hubs.next_ids == {"news": 50, "sport": 7}
    del hubs.next_ids["news"]
    found.move({"news": 60})
    assert hubs.next_ids["news"] == 60
