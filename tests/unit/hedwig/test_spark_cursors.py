"""The cursors of a stream's own subscription, at hubs that a test plays."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.said_as import OF_OPTIONS
from hedwig.errors import AlreadySubscribed, NotSubscribed, TopicBusy
from hedwig.model import Preferences, SubscribeMode, SubscriberId
from hedwig.protocol.options import ACK
from hedwig.spark import topic_cursors
from hedwig.spark.topic_cursors import TopicCursors

END = 101
"""One past the newest message of every topic."""


class Hubs:
    """Subscriptions: topic -> the next message that is delivered.

    preferences: of all of them. asked: topics of the calls. held: how many are attached now. by_others: topics whose
    subscription somebody else has.
    """

    def __init__(self, next_ids: Mapping[str, int] | None = None, preferences: Preferences | None = None) -> None:
        self.next_ids = dict(next_ids or {})
        self.preferences = preferences or Preferences()
        self.asked: list[str] = []
        self.held = 0
        self.by_others: set[str] = set()

    def subscribe(self, topic: bytes, who: SubscriberId, mode: SubscribeMode, **given: Any) -> Held:
        name = topic.decode()
        assert (given["auto_consume"], given["preferences"].window_size) == (False, 1), "else looking at it moves it"
        self.asked.append(name)
        if name in self.by_others:
            raise TopicBusy(f"somebody else reads {name}")
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

    subscriber = topic = b"x"

    def __init__(self, hubs: Hubs, name: str) -> None:
        self._hubs, self._name = hubs, name
        self.preferences = hubs.preferences
        hubs.held += 1

    def receive(self, count: int, timeout_s: float) -> list[SimpleNamespace]:
        following = self._hubs.next_ids[self._name]
        return [SimpleNamespace(local_id=following)] if following < END else []

    def seek(self, position: int) -> None:
        self._hubs.next_ids[self._name] = position

    def close(self) -> None:
        self._hubs.held -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cursors(hubs: Hubs, monkeypatch: pytest.MonkeyPatch) -> TopicCursors:
    monkeypatch.setattr(topic_cursors, "hub_client_of", lambda _: hubs)
    options: Any = SimpleNamespace(own=SimpleNamespace(subscriber=SubscriberId(b"query")), words=OF_OPTIONS)
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
    asked = len(hubs.asked)
    found.move({"news": 60})
    assert len(hubs.asked) == asked


def test_what_was_moved_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells of a commit again when a query is idle."""
    hubs = Hubs({"news": 5, "sport": 5})
    found = cursors(hubs, monkeypatch)
    found.move({"news": 9, "sport": 9})
    found.move({"news": 9, "sport": 12})
    found.move({"news": 8, "sport": 12})
    assert hubs.asked == ["news", "sport", "sport"]
    assert hubs.next_ids == {"news": 9, "sport": 12}
    assert hubs.held == 0


def test_a_cursor_that_is_shown_no_message_stays_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it stands is not known then: moved blindly it could go back (I-93)."""
    hubs = Hubs({"news": END})
    found = cursors(hubs, monkeypatch)
    found.move({"news": 50})
    assert hubs.next_ids == {"news": END}
    hubs.next_ids["news"] = 20  # it was there all the time, and the hub too slow to say so
    found.move({"news": 50})
    assert hubs.next_ids == {"news": 50}
    assert hubs.held == 0


def test_a_subscription_that_somebody_else_reads_is_left_alone_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hubs = Hubs({"news": 5})
    hubs.by_others = {"news"}
    found = cursors(hubs, monkeypatch)
    with pytest.raises(TopicBusy):
        found.move({"news": 9})
    assert hubs.next_ids == {"news": 5}
    hubs.by_others.clear()
    found.move({"news": 9})
    assert hubs.next_ids == {"news": 9}


def test_a_subscription_without_a_cursor_is_refused_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    hubs = Hubs({"news": 5}, Preferences(options={ACK: b"individual"}))
    found = cursors(hubs, monkeypatch)
    with pytest.raises(InvalidArgument, match=r"'query' of topic 'news' acknowledges messages one by one"):
        found.move({"news": 9})
    assert hubs.next_ids == {"news": 5}
    assert hubs.held == 0
