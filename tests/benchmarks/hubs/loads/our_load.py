"""Our Python client under one measurement: `PubSubClient` on its own reactor.

python -m tests.benchmarks.hubs.loads.our_load HOST:PORT KIND ...      see load.py

Publishes are `submit` with a callback each, refilled from the callback; readers are one process, which subscribes and
takes with `receive`, and consumes by itself. Everything has its defaults but for the bounds on what is outstanding.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import LoopingCall, deferLater
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscription import Subscription
from hedwig.model import NO_OPTIONS, HubAddress, MessageId, SubscriberId, Topic
from tests.benchmarks.hubs.loads.load import (
    DRAIN_TIMEOUT_S,
    WARMING_SHARE,
    Load,
    LoadFailed,
    Meter,
    Reading,
    body,
    main,
    mark,
    meter_of,
    reading_beside,
    told,
)

OUTSTANDING_MAX = 10_000
AT_ONCE = 100
"""Topics that are made, or filled, at a time."""

FILL_BATCH = 500
PACE_S = 0.001

T = TypeVar("T")
Item = TypeVar("Item")
Work = Callable[[Any, PubSubClient], Awaitable[T]]


def with_client(target: str, work: Work[T]) -> T:
    """Run the reactor until it is done; once in a process, and in none that forks later. Raises LoadFailed."""
    from twisted.internet import reactor as _reactor

    reactor: Any = _reactor
    host, _, port = target.partition(":")
    outcome: list[T | Failure] = []

    async def working() -> T:
        settings = PubSubSettings(outstanding_max=OUTSTANDING_MAX)
        client = PubSubClient(reactor, TwistedNetwork(reactor), [HubAddress(host, int(port))], settings)
        try:
            return await work(reactor, client)
        finally:
            client.abandon()

    def ended(result: T | Failure) -> None:
        outcome.append(result)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(working()).addBoth(ended))
    reactor.run()
    [result] = outcome
    if isinstance(result, Failure):
        if isinstance(result.value, BookKeeperError):
            raise LoadFailed(f"{type(result.value).__name__}: {result.value}") from result.value
        result.raiseException()
    assert not isinstance(result, Failure)
    return result


async def for_all(items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> None:
    """Some at a time."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    await gatherResults([Deferred.fromCoroutine(worker()) for _ in range(AT_ONCE)], consumeErrors=True)


def topics_of(names: Iterable[str]) -> list[Topic]:
    """As the client takes them."""
    return [Topic(name.encode()) for name in names]


def subscriber(number: int) -> SubscriberId:
    """One of a topic's."""
    return SubscriberId(b"sub%d" % number)


# --- publishing


class Window:
    """A fixed number of publishes without an answer, until the time is up."""

    def __init__(self, client: PubSubClient, topics: Sequence[Topic], meter: Meter) -> None:
        self._client, self._topics, self._meter = client, topics, meter
        self._position = self._unanswered = 0
        self._done: Deferred[None] = Deferred()

    def run(self, outstanding: int) -> Deferred[None]:
        """Fires when all are answered. Fails with LoadFailed."""
        for _ in range(outstanding):
            self._send(time.monotonic())
        return self._done

    def _send(self, now: float) -> None:
        topic = self._topics[self._position % len(self._topics)]
        self._position += 1
        self._unanswered += 1
        self.submit(topic, now)

    def submit(self, topic: Topic, at: float) -> None:
        """One publish."""
        message = self._client.message(topic, body(at), NO_OPTIONS, None)
        self._client.submit(topic, message, partial(self._published, at), self._failed)

    def _published(self, began: float, message_id: MessageId) -> None:
        now = time.monotonic()
        self._meter.done(began, now)
        self._unanswered -= 1
        if self._meter.tick(now):
            self._send(now)
        elif not self._unanswered and not self._done.called:
            self._done.callback(None)

    def _failed(self, error: BookKeeperError) -> None:
        if not self._done.called:
            self._done.errback(LoadFailed(f"a publish failed: {type(error).__name__}: {error}"))


async def publish(client: PubSubClient, load: Load, clock: Callable[[], Meter]) -> Meter:
    """Every topic has its ledger before anything counts. clock: begins the warming up."""
    topics = topics_of(load.names)
    if len(topics) > 1:
        await for_all(topics, lambda topic: client.publish(topic, body(0.0)))
    meter = clock()
    await Window(client, topics, meter).run(load.outstanding)
    return meter


async def paced(reactor: Any, client: PubSubClient, load: Load, meter: Meter) -> None:
    """Publish what is due, until the time is up."""
    [topic] = topics_of(load.names)
    publisher = client.publisher(topic)
    began, sent = time.monotonic(), 0

    def send() -> None:
        nonlocal sent
        now = time.monotonic()
        if not meter.tick(now):
            pacing.stop()
            return
        while sent < (now - began) * load.per_s and publisher.has_room:
            message = client.message(topic, body(began + sent / load.per_s), NO_OPTIONS, None)
            client.submit(topic, message, lambda message_id: None, failed)
            sent += 1

    def failed(error: BookKeeperError) -> None:
        failures.append(error)

    failures: list[BookKeeperError] = []
    pacing = LoopingCall(send)
    pacing.clock = reactor
    await pacing.start(PACE_S)
    await client.flush()
    if failures:
        raise failures[0]


# --- subscribing


def deliver(target: str, load: Load) -> dict[str, object]:
    """Publisher and readers."""
    with reading_beside(lambda reading: with_client(target, partial(follow, load, reading))) as readers:

        async def publishing(reactor: Any, client: PubSubClient) -> None:
            if load.kind == "paced":
                await paced(reactor, client, load, readers.begin(load))
            else:
                await publish(client, load, lambda: readers.begin(load))

        with_client(target, publishing)
        return readers.figures()


async def follow(load: Load, reading: Reading, reactor: Any, client: PubSubClient) -> None:
    """All readers."""
    subscriptions = [
        await client.subscribe(topic, subscriber(number))
        for number in range(load.readers)
        for topic in topics_of(load.names)
    ]

    async def take(subscription: Subscription) -> None:
        while True:
            reading.done([message.body for message in await subscription.receive()])

    failed: list[Failure] = []
    taking = [Deferred.fromCoroutine(take(each)).addErrback(failed.append) for each in subscriptions]
    reading.ready()

    await deferLater(reactor, reading.left_s(), lambda: None)
    if failed:
        failed[0].raiseException()
    for each in taking:
        each.cancel()


async def drain(client: PubSubClient, load: Load) -> dict[str, object]:
    """Subscribe, fill, attach and read some to warm up, then all."""
    seconds = 0.0
    for share in (WARMING_SHARE, 1.0):
        topics = topics_of(f"{name}-{share:g}" for name in load.names)
        each_of = int(load.messages * share) // len(topics)

        async def subscribed(topic: Topic) -> None:
            await (await client.subscribe(topic, subscriber(0))).close()

        async def fill(topic: Topic, count: int = each_of) -> None:
            publisher = client.publisher(topic)
            for first in range(0, count, FILL_BATCH):
                await publisher.publish_many([body(0.0)] * min(FILL_BATCH, count - first))

        async def read(topic: Topic, count: int = each_of) -> None:
            subscription = await client.subscribe(topic, subscriber(0))
            while count > 0:
                count -= len(await subscription.receive())

        await for_all(topics, subscribed)
        await for_all(topics, fill)
        if share == 1.0:
            mark("start")
        began = time.monotonic()
        await for_all(topics, read)
        seconds = time.monotonic() - began
        if share == 1.0:
            mark("end")
        if seconds > DRAIN_TIMEOUT_S:
            raise LoadFailed(f"{load.messages} messages were not read within {DRAIN_TIMEOUT_S:g} s")
    return told(load.messages, seconds)


async def acquire(client: PubSubClient, load: Load) -> dict[str, object]:
    """New topics with a subscription each."""
    meter, made = meter_of(load), 0

    async def make() -> None:
        nonlocal made
        while meter.tick(began := time.monotonic()):
            made += 1
            await client.subscribe(Topic(f"{load.tag}-{made}".encode()), subscriber(0))
            meter.done(began, time.monotonic())

    await gatherResults([Deferred.fromCoroutine(make()) for _ in range(load.outstanding)], consumeErrors=True)
    return meter.figures()


def measure(target: str, load: Load) -> dict[str, object]:
    """One measurement."""
    if load.kind in ("deliver", "paced"):
        return deliver(target, load)

    async def work(reactor: Any, client: PubSubClient) -> dict[str, object]:
        if load.kind == "drain":
            return await drain(client, load)
        if load.kind == "acquire":
            return await acquire(client, load)
        return (await publish(client, load, lambda: meter_of(load))).figures()

    return with_client(target, work)


if __name__ == "__main__":
    main(measure, sys.argv[1:])
