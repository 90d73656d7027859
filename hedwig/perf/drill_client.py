"""A client process of the failover drill: it publishes to all topics, or subscribes to them, and notes what happens.

    stdin   {"role": ..., "file": ..., ...}   first line: what to do, and where to note it
    stdout  {"ready": true}
    stdin   {"do": "progress"}                -> {"oldest_s": ..., "who": ...}        who waits longest, since when
    stdin   {"do": "stop"}                    -> publisher: {"last": [...]}           each topic's last acknowledged id
    stdin   {"do": "stop", "last": [...]}     -> subscribers: {"sessions": ..., ...}  once they have all of that

Nothing is given up because of a server that dies: what fails is noted, and the drill judges it. Thread: reactor.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults

from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.outcome import within
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.request import pause
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.errors import TopicBusy, UncertainState
from hedwig.model import MessageId, SubscribeMode, SubscriberId, Topic
from hedwig.perf.drill_records import (
    ACKNOWLEDGED,
    REFUSED,
    UNKNOWN,
    Delivery,
    Publish,
    Session,
    body,
    encode_delivery,
    encode_publish,
    number_of,
)
from hedwig.perf.process import Line, heard, say, serve
from hedwig.wire.receiving import Received
from hedwig.wire.records import parse_address

TICK_S = 0.02
TAKEN_AT_ONCE = 100
TAKE_TIMEOUT_S = 0.5
UNCONSUMED_MAX = 5
"""Messages that a subscriber may leave for later when it says what is consumed."""

ATTACHED_S = (3.0, 15.0)
"""How long a subscriber that comes and goes stays."""

BUSY_PAUSE_S, BUSY_MAX_S = 0.2, 60.0
FINISH_S = 60.0
"""From the end of publishing until every subscriber must have everything."""


def topic_name(prefix: str, number: int) -> Topic:
    """One of the drill's topics."""
    return Topic(f"{prefix}-{number}".encode())


def subscriber_name(number: int) -> SubscriberId:
    """One of a topic's subscribers."""
    return SubscriberId(b"subscriber-%d" % number)


class _TopicPublisher:
    """Publishes numbers to one topic at a pace, with a bound of those that are not answered."""

    def __init__(
        self, publisher: Publisher, number: int, size: int, outstanding_max: int, note: Callable[[Publish], object]
    ) -> None:
        self._publisher, self._number, self._size, self._note = publisher, number, size, note
        self._outstanding_max = outstanding_max
        self._next = self.in_flight = 0
        self._allowed = 0.0
        self.trouble: list[str] = []
        self.last_id = 0
        self.last_s = time.monotonic()

    def tick(self, allowed: float) -> None:
        """So many more may be published; those that found no room are not made up for."""
        self._allowed = min(self._allowed + allowed, float(self._outstanding_max))
        while self._allowed >= 1 and self.in_flight < self._outstanding_max:
            self._allowed -= 1
            self._next += 1
            self._publish(self._next, self.last_id, time.monotonic())

    def _publish(self, number: int, floor: int, begun_s: float) -> None:
        def ended(outcome: int, message_id: int) -> None:
            self.in_flight -= 1
            self._note(Publish(self._number, number, outcome, message_id, floor, begun_s, time.monotonic()))

        def published(message_id: MessageId) -> None:
            self.last_id, self.last_s = max(self.last_id, message_id.local), time.monotonic()
            ended(ACKNOWLEDGED, message_id.local)

        def failed(error: BookKeeperError) -> None:
            self.trouble.append(f"topic {self._number}, message {number}: {error!r}")
            ended(UNKNOWN if isinstance(error, UncertainState) else REFUSED, 0)

        self.in_flight += 1
        self._publisher.submit(body(self._number, number, self._size), published, failed)


class _Publishing:
    """The publisher's process."""

    def __init__(self, reactor: Any, client: PubSubClient, task: Line) -> None:
        self._reactor, self._client = reactor, client
        self._per_tick = task["per_s"] * TICK_S / task["topics"]
        self._file = Path(task["file"]).open("wb")  # noqa: SIM115 - closed when everything is noted
        self._over = False
        self._topics = [
            _TopicPublisher(
                client.publisher(topic_name(task["prefix"], number), producer=b"" if task["once"] else None),
                number,
                task["size"],
                # Every fourth topic has one publish at a time: there the order of calls is the order of ids, always.
                1 if number % 4 == 3 else task["outstanding"],
                lambda publish: self._file.write(encode_publish(publish)),
            )
            for number in range(task["topics"])
        ]
        self._loop: Deferred[None] = Deferred()

    async def start(self) -> None:
        """Begin."""
        self._loop = Deferred.fromCoroutine(self._publish())

    async def _publish(self) -> None:
        last_s = time.monotonic()
        while not self._over:
            await pause(self._reactor, TICK_S)
            now = time.monotonic()
            for each in self._topics:
                each.tick(self._per_tick * (now - last_s) / TICK_S)
            last_s = now

    def progress(self) -> Line:
        """Since when the topic that waits longest has had no acknowledgement."""
        slowest = min(range(len(self._topics)), key=lambda number: self._topics[number].last_s)
        return {"oldest_s": self._topics[slowest].last_s, "who": f"topic {slowest}"}

    async def stop(self, told: Line) -> Line:
        """Publish no more, and wait for all answers."""
        self._over = True
        await self._loop
        while any(each.in_flight for each in self._topics):
            await pause(self._reactor, TICK_S)
        self._file.close()
        trouble = [why for each in self._topics for why in each.trouble]
        return {"last": [each.last_id for each in self._topics], "trouble": trouble}


class _Subscriber:
    """One subscriber, through its subscription objects. comes_and_goes: it closes and attaches again now and then."""

    def __init__(
        self,
        reactor: Any,
        client: PubSubClient,
        topic: Topic,
        who: tuple[int, int],
        note: Callable[[bytes], object],
        rng: random.Random,
        *,
        comes_and_goes: bool,
    ) -> None:
        self._reactor, self._client, self._topic, self.who, self._note = reactor, client, topic, who, note
        self._rng, self._comes_and_goes = rng, comes_and_goes
        self._subscription: Subscription | None = None
        self._begun_s = 0.0
        self._until: int | None = None
        self.sessions: list[Session] = []
        self.last_id, self.last_s = 0, time.monotonic()
        self.busy = 0

    async def begin(self) -> None:
        """Make the subscription."""
        self._begun_s = time.monotonic()
        self._subscription = await self._attach(SubscribeMode.CREATE)

    async def _attach(self, mode: SubscribeMode) -> Subscription:
        deadline = time.monotonic() + BUSY_MAX_S
        while True:
            try:
                return await self._client.subscribe(self._topic, subscriber_name(self.who[1]), mode, auto_consume=False)
            except TopicBusy:
                # Its hub died, or was stopped, before it heard that this client had let go.
                self.busy += 1
                if time.monotonic() > deadline:
                    raise
                await pause(self._reactor, BUSY_PAUSE_S)

    def finish(self, last_id: int) -> None:
        """Go on until this one is delivered."""
        self._until = last_id

    @property
    def _done(self) -> bool:
        return self._until is not None and self.last_id >= self._until

    async def follow(self) -> None:
        """Take messages until all are here."""
        while not self._done:
            if self._subscription is None:
                self._begun_s = time.monotonic()
                self._subscription = await self._attach(SubscribeMode.ATTACH)
            await self._one_session(self._subscription)
            self._subscription = None

    async def _one_session(self, subscription: Subscription) -> None:
        number = len(self.sessions) + 1
        leave_s = time.monotonic() + self._rng.uniform(*ATTACHED_S) if self._comes_and_goes else float("inf")
        newest: deque[Received] = deque(maxlen=1 + UNCONSUMED_MAX)
        consumed = 0
        while not self._done and (self._until is not None or time.monotonic() < leave_s):
            messages = await subscription.receive(TAKEN_AT_ONCE, TAKE_TIMEOUT_S)
            now = time.monotonic()
            for each in messages:
                topic, subscriber = self.who
                found = number_of(each.body, topic)
                self._note(encode_delivery(Delivery(topic, subscriber, number, each.local_id, found, now)))
            if messages:
                self.last_id, self.last_s = max(self.last_id, messages[-1].local_id), now
                newest.extend(messages)
                done = newest[self._rng.randrange(len(newest))]
                if done.local_id > consumed:
                    subscription.consume(done)
                    consumed = done.local_id
        await subscription.close()
        self.sessions.append(Session(*self.who, number, self._begun_s, time.monotonic(), consumed))


class _Subscribing:
    """The subscribers' process."""

    def __init__(self, reactor: Any, client: PubSubClient, task: Line) -> None:
        self._reactor, self._client = reactor, client
        self._file = Path(task["file"]).open("wb")  # noqa: SIM115 - closed when everything is noted
        rng = random.Random(task["seed"])
        self._subscribers = [
            _Subscriber(
                reactor,
                client,
                topic_name(task["prefix"], topic),
                (topic, number),
                self._file.write,
                rng,
                comes_and_goes=number % 2 == 1,
            )
            for topic in range(task["topics"])
            for number in range(task["subscribers"])
        ]
        self._following: list[Deferred[None]] = []
        self._trouble: list[str] = []

    async def start(self) -> None:
        """Make all subscriptions, and begin."""
        await gatherResults([Deferred.fromCoroutine(each.begin()) for each in self._subscribers])
        self._following = [Deferred.fromCoroutine(self._follow(each)) for each in self._subscribers]

    async def _follow(self, each: _Subscriber) -> None:
        try:
            await each.follow()
        except BookKeeperError as error:
            self._trouble.append(f"topic {each.who[0]}, subscriber {each.who[1]}: {error!r}")

    def progress(self) -> Line:
        """Since when the subscriber that waits longest has got nothing."""
        slowest = min(self._subscribers, key=lambda each: each.last_s)
        return {"oldest_s": slowest.last_s, "who": f"topic {slowest.who[0]}, subscriber {slowest.who[1]}"}

    async def stop(self, told: Line) -> Line:
        """Wait until everything is delivered, or long enough."""
        for each in self._subscribers:
            each.finish(told["last"][each.who[0]])
        with contextlib.suppress(CancelledError, FirstError):  # what is missing shows
            await within(self._reactor, FINISH_S, gatherResults(self._following))
        self._file.close()
        return {
            "sessions": [astuple(session) for each in self._subscribers for session in each.sessions],
            "busy": sum(each.busy for each in self._subscribers),
            "trouble": self._trouble,
        }


_ROLES: dict[str, Callable[[Any, PubSubClient, Line], _Publishing | _Subscribing]] = {
    "publish": _Publishing,
    "subscribe": _Subscribing,
}


async def _work(reactor: Any, task: Line) -> Line:
    hubs = [parse_address(each) for each in task["hubs"]]
    client = PubSubClient(reactor, TwistedNetwork(reactor), hubs, PubSubSettings())
    try:
        role = _ROLES[task["role"]](reactor, client, task)
        await role.start()
        say({"ready": True})
        while (told := await heard(reactor))["do"] == "progress":
            say(role.progress())
        return await role.stop(told)
    finally:
        client.abandon()


if __name__ == "__main__":
    serve(_work)
