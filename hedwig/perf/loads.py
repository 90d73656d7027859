"""Loads on a cluster of hubs, one measurement each.

    publish     messages to the topics in turn, so many without an answer
    paced       messages at a rate, whatever is answered
    read        so many subscribers of every topic, until told to stop
    drain       all that waits for subscribers that were there before, from their attaching
    acquire     new topics with a subscription, so many at a time

A publish begins when it is handed to the client and is done when it is durable; a delivery is done when the program
has it. Thread: reactor; one client for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.errors import BookKeeperError, ClientClosed
from hedwig.client.client import PubSubClient
from hedwig.client.request import pause
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.model import MessageId, SubscribeMode, SubscriberId, Topic
from hedwig.wire.receiving import Received

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

PACE_PERIOD_S = 0.001
FILL_OUTSTANDING = 2_000

MakeBody = Callable[[float], bytes]
"""Of the moment when it is handed over."""


class Meter(Protocol):
    """Counts what is done between two moments of `time.monotonic`."""

    def tick(self, now: float, /) -> bool:
        """Whether the measurement goes on."""

    def done(self, began: float, now: float, /, count: int = 1) -> None:
        """So many were done just now."""


class Publishing:
    """Keeps so many publishes without an answer, over the topics in turn, until the meter says that it is over."""

    def __init__(
        self, client: PubSubClient, topics: Sequence[Topic], outstanding: int, body: MakeBody, meter: Meter
    ) -> None:
        self._publishers = [client.publisher(topic, keep_s=0) for topic in topics]
        self._outstanding, self._body, self._meter = outstanding, body, meter
        self._next = self._in_flight = 0
        self._over = False
        self.finished: Deferred[None] = Deferred()

    def run(self) -> Deferred[None]:
        """Begin; fires when the last publish is answered. Fails as a publish does."""
        for _ in range(self._outstanding):
            self._publish(time.monotonic())
        return self.finished

    def _publish(self, now: float) -> None:
        publisher = self._publishers[self._next]
        self._next += 1
        if self._next == len(self._publishers):
            self._next = 0
        self._in_flight += 1
        publisher.submit(self._body(now), _Answer(self, now).done, self._failed)

    def answered(self, began: float) -> None:
        """One publish is durable: the next one takes its place."""
        self._in_flight -= 1
        now = time.monotonic()
        meter = self._meter
        meter.done(began, now)
        if not self._over and meter.tick(now):
            self._publish(now)
            return
        self._over = True
        if not self._in_flight and not self.finished.called:
            self.finished.callback(None)

    def _failed(self, error: BookKeeperError) -> None:
        self._over = True
        if not self.finished.called:
            self.finished.errback(error)


class _Answer:
    """When one publish was handed over."""

    __slots__ = ("_began", "_publishing")

    def __init__(self, publishing: Publishing, began: float) -> None:
        self._publishing, self._began = publishing, began

    def done(self, message_id: MessageId) -> None:
        """It is durable."""
        self._publishing.answered(self._began)


async def paced(client: PubSubClient, clock: Clock, topic: Topic, per_s: float, body: MakeBody, meter: Meter) -> None:
    """Publish what is due until the meter says that it is over; then wait for the answers. Raises as a publish does."""
    publisher = client.publisher(topic, keep_s=0)
    failed: list[BookKeeperError] = []
    began, sent = time.monotonic(), 0
    while meter.tick(now := time.monotonic()) and not failed:
        due = int((now - began) * per_s)
        while sent < due:
            publisher.submit(body(began + sent / per_s), _ignored, failed.append)
            sent += 1
        await pause(clock, PACE_PERIOD_S)
    await client.flush()
    if failed:
        raise failed[0]


def _ignored(message_id: MessageId) -> None:
    """Only that it failed would matter."""


async def subscribed(
    client: PubSubClient, topics: Sequence[Topic], readers: int, *, at_once: int = 100
) -> list[Subscription]:
    """So many subscribers of every topic."""
    found: list[Subscription] = []
    wanted = [(topic, SubscriberId(b"reader-%d" % number)) for topic in topics for number in range(readers)]
    for first in range(0, len(wanted), at_once):
        found += await gatherResults([client.subscribe(*each) for each in wanted[first : first + at_once]])
    return found


async def read(subscription: Subscription, on_messages: Callable[[list[Received]], object]) -> None:
    """Hand over whatever comes, until the subscription is closed."""
    while True:
        try:
            messages = await subscription.receive()
        except ClientClosed:
            return
        on_messages(messages)


async def fill(client: PubSubClient, topics: Sequence[Topic], messages: int, body: bytes) -> None:
    """Publish so many messages over the topics in turn. Raises as a publish does."""
    publishers = [client.publisher(topic, keep_s=0) for topic in topics]
    for first in range(0, messages, FILL_OUTSTANDING):
        numbers = range(first, min(first + FILL_OUTSTANDING, messages))
        await gatherResults([publishers[number % len(publishers)].publish(body) for number in numbers])


async def leave_backlog(client: PubSubClient, topics: Sequence[Topic], messages: int, body: bytes) -> None:
    """Make a subscription of every topic, and publish so many messages that wait for it."""
    for subscription in await subscribed(client, topics, 1):
        await subscription.close()
    await fill(client, topics, messages, body)


async def drained(client: PubSubClient, topics: Sequence[Topic], messages: int) -> float:
    """Attach the subscriptions of a backlog and read all; the seconds that took."""
    began = time.monotonic()
    left = messages
    done: Deferred[None] = Deferred()

    def on_messages(some: list[Received]) -> None:
        nonlocal left
        left -= len(some)
        if left <= 0 and not done.called:
            done.callback(None)

    async def one(topic: Topic) -> Subscription:
        subscription = await client.subscribe(topic, SubscriberId(b"reader-0"), SubscribeMode.ATTACH)
        Deferred.fromCoroutine(read(subscription, on_messages)).addErrback(done.errback)
        return subscription

    subscriptions = await gatherResults([Deferred.fromCoroutine(one(topic)) for topic in topics])
    await done
    seconds = time.monotonic() - began
    await gatherResults([subscription.close() for subscription in subscriptions])
    return seconds


async def acquire(client: PubSubClient, prefix: str, at_once: int, meter: Meter) -> int:
    """Subscribe to new topics until the meter says that it is over; how many were made."""
    made = 0

    async def one_after_the_other() -> None:
        nonlocal made
        while meter.tick(began := time.monotonic()):
            topic = Topic(b"%b-%d" % (prefix.encode(), made))
            made += 1
            await client.subscribe(topic, SubscriberId(b"reader-0"), SubscribeMode.CREATE)
            meter.done(began, time.monotonic())

    await gatherResults([Deferred.fromCoroutine(one_after_the_other()) for _ in range(at_once)])
    return made
