"""What becomes of things that come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from bookkeeper.client.faces.loop_reactor import ClientLoop
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.faces.aio import AsyncClient, AsyncPublisher
from hedwig.client.faces.blocking import BlockingSubscription
from hedwig.client.settings import PubSubSettings
from hedwig.model import HubAddress, LocalId, Preferences, Topic
from hedwig.wire.receiving import Received


class Subscription:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Client:
    def __init__(self) -> None:
        self.subscribing: Deferred[Subscription] = Deferred()

    def subscribe(self, *_: object, **__: object) -> Deferred[Subscription]:
        return self.subscribing


@pytest.mark.parametrize("first", ["answer", "cancel"])
def test_a_subscription_that_comes_when_its_waiting_is_cancelled_is_let_go(first: str) -> None:
    """Nobody would have it, and nobody could subscribe by that name."""

    async def story() -> None:
        core: Any = Client()
        waiting = asyncio.ensure_future(AsyncClient(core, ClientLoop()).subscribe("topic", "me"))
        await asyncio.sleep(0)
        made = Subscription()
        steps = [lambda: core.subscribing.callback(made), waiting.cancel]
        for step in steps if first == "answer" else reversed(steps):
            step()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made.closed == 1

    asyncio.run(story())


def test_a_publish_that_is_given_up_while_it_waits_for_room_leaves_no_error_behind() -> None:
    async def story() -> None:
        network: Any = None
        settings = PubSubSettings(outstanding_max=1)
        client = PubSubClient(Clock(), network, [HubAddress("hub", 4080)], settings)
        made: list[tuple[Deferred[Any], Deferred[Any]]] = []

        class Noted(Publisher):
            def publish_soon(self, *arguments: Any) -> Any:
                made.append(super().publish_soon(*arguments))
                return made[-1]

        core = Noted(client, Topic(b"topic"))
        core.submit(b"x", lambda _: None, lambda _: None)
        waiting = asyncio.ensure_future(AsyncPublisher(core, ClientLoop()).publish_soon(b"y"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        [(_, done)] = made
        assert done.called
        assert done.result is None, "its error was seen to"
        client.abandon()

    asyncio.run(story())


class Work:
    """Messages without end."""

    def __init__(self, *, individual: bool) -> None:
        self.individual, self.preferences, self.asked = individual, Preferences(window_size=100), list[int]()
        self.finished: object = None

    def receive(self, count_max: int, timeout_s: float | None, *, counts: bool) -> Deferred[list[Received]]:
        self.asked.append(count_max)
        return succeed([Received(b"x", LocalId(len(self.asked) * 100 + number)) for number in range(count_max)])


class Crossing:
    is_current = False

    def run(self, start: Callable[[], Deferred[Any]]) -> Any:
        return start().result


@pytest.mark.parametrize(("individual", "asked"), [(False, [25]), (True, [1, 1, 1])])
def test_a_blocking_iteration_takes_no_more_of_a_work_queue_than_it_looks_at(
    *, individual: bool, asked: list[int]
) -> None:
    work: Any = Work(individual=individual)
    crossing: Any = Crossing()
    messages = BlockingSubscription(work, crossing)
    for _ in range(3):
        next(messages)
    assert work.asked == asked
