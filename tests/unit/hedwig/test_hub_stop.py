"""The time that a hub takes to stop while the metadata store does not answer."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bookkeeper.metadata.store import StoreState
from hedwig.hub.ownership import Ownership
from hedwig.hub.server import Hub, HubSettings
from hedwig.model import HubAddress, Topic
from tests.support.logged import logged

STOP_S = 10.0

SESSION_CLOSE_S = 2.0
"""Longest time to close the session while the store is away."""


class Deaf:
    """A connection to a subscriber that does not read."""

    def close(self) -> None:
        """Do nothing: unsent bytes remain."""

    def abort(self) -> None:
        pass


class Stopping:
    """A hub with topics that cannot be released without the store, and a subscriber that does not read.

    It is the hub's ledger client, too.
    """

    def __init__(self, topic_count: int) -> None:
        self.clock = clock = Clock()
        self.begun_count = 0
        metadata: Any = SimpleNamespace(tree=SimpleNamespace(state=StoreState.CONNECTED, sync=Deferred))
        self.ownership: Ownership[int] = Ownership(
            metadata,
            clock,
            random.Random(1),
            HubAddress("h", 1, None),
            acquire=self.release,
            release=self.release,
            abandon=lambda _: None,
        )
        self.ownership.owned = {Topic(b"%d" % number): number for number in range(topic_count)}
        self.tree = metadata.tree
        self.hub = Hub(clock, HubSettings(metadata_uri="zk://store/ledgers", host="127.0.0.1"))
        vars(self.hub).update(ownership=self.ownership, _metadata=metadata, _connections={Deaf()}, _client=self)
        self.closed = False

    async def release(self, _: object) -> Any:
        self.begun_count += 1
        await Deferred[None]()

    def close(self) -> Deferred[None]:
        self.closed = True
        closed: Deferred[None] = Deferred()
        self.clock.callLater(SESSION_CLOSE_S, closed.callback, None)
        return closed

    def stop(self) -> float:
        """Stop the hub; return how long that took."""
        stopped: list[object] = []
        self.hub.stop().addBoth(stopped.append)
        began_s = self.clock.seconds()
        while not stopped:
            self.clock.advance(0.1)
            assert self.clock.seconds() - began_s < 60
        assert stopped == [None]
        return self.clock.seconds() - began_s


@pytest.mark.parametrize("topic_count", [1, 201, 5000])
def test_a_hub_ends_in_time_while_the_store_is_silent(topic_count: int) -> None:
    stopping = Stopping(topic_count)
    with logged() as lines:
        assert stopping.stop() <= STOP_S
    assert stopping.hub.overdue
    assert stopping.begun_count <= 200, "no release begins after it gave up"
    assert len(lines) == 1


def test_a_topic_that_is_being_released_does_not_delay_the_end_of_a_hub() -> None:
    stopping = Stopping(2)
    stopping.ownership.release(Topic(b"0"))
    assert stopping.stop() <= STOP_S
    assert stopping.hub.overdue
    assert stopping.closed


@pytest.mark.parametrize("failing", ["release", "dead letters", "regions", "connections", "http"])
def test_a_failure_of_one_step_does_not_prevent_the_rest_of_the_close_of_a_hub(failing: str) -> None:
    stopping = Stopping(0)
    ended: list[str] = []

    def step(name: str) -> Any:
        def end() -> None:
            ended.append(name)
            if name == failing:
                raise ValueError(f"{name} failed")

        return end

    async def release() -> None:
        step("release")()

    hub: Any = stopping.hub
    ownership: Any = stopping.ownership
    ownership.stop = release
    connections: list[object] = []
    connections.append(SimpleNamespace(close=step("connections"), abort=connections.clear))
    vars(hub).update(
        _dead_letters=SimpleNamespace(close=step("dead letters")),
        _regions=SimpleNamespace(close=step("regions")),
        _http=SimpleNamespace(stopListening=step("http")),
        _connections=connections,
    )
    with logged() as lines:
        stopping.stop()
    assert ended == ["release", "dead letters", "regions", "connections", "http"]
    assert stopping.closed
    assert stopping.hub.overdue
    assert [line for line in lines if "did not end in order" in line]


def test_a_hub_continues_a_slow_release_while_the_store_answers() -> None:
    stopping = Stopping(1)

    def sync() -> Deferred[None]:
        answer: Deferred[None] = Deferred()
        stopping.clock.callLater(0.2, answer.callback, None)
        return answer

    stopping.tree.sync = sync
    assert 30.0 <= stopping.stop() <= 30.0 + STOP_S
