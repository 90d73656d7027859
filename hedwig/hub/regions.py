"""Messages of other regions: a hub subscribes to its topics there, and stores here what was published there.

    first ordinary subscriber, or acquired with some ---> a Feed for each other region: SUBSCRIBE as __<this region>
        messages, in their order --> those that are not stored yet --> the topic's log --durable--> consumed there
    last ordinary subscriber ends ---> UNSUBSCRIBE there

A stored message keeps its region, gets a number of this one, and its remote components say for each other region the
number of the last message of it that is stored here: the greater of what the message before said and its own number.
So after any acquisition the id of the last message tells what would be stored twice, and is passed over.

Differs from Apache, whose hubs compute these components and throw them away; and which, when a topic is released in
order, unsubscribe everywhere and so lose what is published elsewhere until somebody acquires it. Here the subscription
stays, and who acquires the topic goes on where it was consumed. What the other region knows of third ones is not taken
over: it would say that messages are here which may still come. Nor are components that publishers send.

A region that cannot be reached is tried again, ever more seldom; nothing here waits for it but a synchronous SUBSCRIBE
that makes a topic's first ordinary subscription (hedwig-protocol.md 2.3). A region must have a name of its own, and
tell nothing but what was published there: what says otherwise is not stored, and not consumed.

Thread: reactor. Source: hedwig-protocol.md 2.3, 2.12, 3.7.
"""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredList, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError
from bookkeeper.metrics import Counter
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscription import Subscription
from hedwig.errors import (
    CompositeFailure,
    NotResponsible,
    NotSubscribed,
    PubSubError,
    ServiceDown,
    UnexpectedCondition,
)
from hedwig.model import HUB_SUBSCRIBER_PREFIX, HubAddress, MessageId, SubscriberId, Topic
from hedwig.wire.receiving import Received

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Network, Timer
    from hedwig.hub.topic_log import OnDone

log = Logger()

T = TypeVar("T")

ATTEMPT_S = 5.0
"""One attempt to subscribe looks so long for a hub that serves the topic."""

JOIN_TIMEOUT_S = 15.0
"""A subscribe waits so long for another region, at most: an attempt may be under way, and the next one counts."""

JOINS_AT_ONCE = 200
"""Requests to one region that are under way; those of other topics wait."""

REATTACH_MAX_S = 30.0
"""Between two attempts to attach a subscription again whose hub went: a region that is down is asked for all topics."""

STORED_AT_ONCE = 256
STORED_BYTES_AT_ONCE = 1 << 20
"""Messages, and bytes of them, that wait to be durable: publishers here are not to wait for other regions."""

LOOK_S = 5.0
"""How often it is looked whether every topic is subscribed to everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """addresses: of a hub of each other region, or of what stands before its hubs. retry_min_s, retry_max_s: between
    attempts at one topic, growing.
    """

    addresses: tuple[HubAddress, ...]
    retry_min_s: float = 1.0
    retry_max_s: float = 120.0


class Sink(Protocol):
    """A topic that is served here."""

    @property
    def topic(self) -> Topic:
        """Its name."""

    @property
    def last_id(self) -> MessageId:
        """Of its last message, durable or not."""

    @property
    def has_ordinary(self) -> bool:
        """Somebody other than hubs subscribed."""

    def store_foreign(self, messages: Sequence[bytes], on_done: OnDone) -> None:
        """Store messages of another region. Raises NotResponsible, ServiceDown where there is no room now."""


class RegionMeters(Protocol):
    """What is counted."""

    region_messages: Counter
    region_repeats: Counter
    region_failures: Counter


class _Goal(enum.Enum):
    """What a feed is to come to."""

    RECEIVE = "messages are wanted"
    LEAVE = "they are not wanted any more"
    END = "another hub may have the topic: leave everything as it is"


class OtherRegion:
    """One of them, by its address. name: as its first message said. missing: topics that are not subscribed to."""

    def __init__(self, clock: Clock, address: HubAddress, settings: RegionSettings, client: PubSubClient) -> None:
        self.address, self.client = address, client
        self.name: bytes | None = None
        self.attached = self.missing = 0
        self.turns = DeferredSemaphore(JOINS_AT_ONCE)
        self._clock, self._settings = clock, settings
        self._pausing: dict[Deferred[None], Timer] = {}
        self._told: type[BaseException] | None = None
        self._is_down = False
        self._looks = 0

    def __str__(self) -> str:
        name = "" if self.name is None else f" {self.name.decode('utf-8', 'replace')}"
        return f"region{name} at {self.address}"

    def pause(self, failures: int) -> Deferred[None]:
        """Before the next attempt at a topic; may be cancelled."""
        settings = self._settings
        waiting: Deferred[None] = Deferred(self._forget)
        delay_s = min(settings.retry_max_s, settings.retry_min_s * 2.0 ** min(failures - 1, 20))
        self._pausing[waiting] = self._clock.callLater(delay_s, self.resume, waiting)
        return waiting

    def _forget(self, waiting: Deferred[None]) -> None:
        timer = self._pausing.pop(waiting, None)
        if timer is not None and timer.active():
            timer.cancel()

    def resume(self, waiting: Deferred[None]) -> None:
        """Do not pause longer."""
        if waiting in self._pausing:
            self._forget(waiting)
            waiting.callback(None)

    def on_failure(self, topic: Topic, error: BookKeeperError) -> None:
        """An attempt failed. Of many topics' failures one is told."""
        self._is_down = self._is_down or error.retriable
        if self._told is not type(error):
            self._told = type(error)
            log.warn(
                "Topic {topic!r} gets nothing from {region}, and perhaps others neither; it is tried again: {error}",
                topic=topic,
                region=str(self),
                error=error,
            )

    def on_joined(self) -> None:
        """An attempt succeeded: if the region was down, the other topics are tried at once."""
        if self._is_down:
            self._is_down, self._told = False, None
            log.info("The hubs of {region} can be reached again", region=str(self))
            for waiting in list(self._pausing):
                self.resume(waiting)

    def on_look(self, attached: int, missing: int) -> None:
        """How many topics are subscribed to there, and are not though they should be."""
        self._looks = 0 if not missing else self._looks + 1
        if self.missing and not missing:
            log.info("All {count} topics are subscribed to in {region}", count=attached, region=str(self))
        elif self._looks == 2:  # not at a topic that is just being subscribed to
            log.warn(
                "{missing} topics get nothing from {region} now: it cannot be reached, or refuses",
                missing=missing,
                region=str(self),
            )
        self.attached, self.missing = attached, missing


class Feed:
    """One topic's messages from one other region. It runs until it is left, or the topic is not this hub's."""

    __slots__ = (
        "_attempt",
        "_doing",
        "_failures",
        "_force",
        "_goal",
        "_now",
        "_pausing",
        "_regions",
        "_sink",
        "_started",
        "_subscription",
        "_waiting",
        "region",
    )

    def __init__(self, regions: Regions, region: OtherRegion, sink: Sink) -> None:
        self.region = region
        self._regions, self._sink = regions, sink
        self._goal = self._doing = _Goal.RECEIVE
        self._failures = 0  # in a row
        self._attempt = 0  # odd while one is under way
        self._force = True  # who acquired the topic last is right; once forced off, wait
        self._started = False
        self._now: Deferred[Any] | None = None
        self._pausing: Deferred[None] | None = None
        self._subscription: Subscription | None = None
        self._waiting: dict[Deferred[None], int] = {}  # since which attempt

    @property
    def is_attached(self) -> bool:
        """A hub there delivers."""
        return self._subscription is not None and self._subscription.attached

    @property
    def is_wanted(self) -> bool:
        """It should."""
        return self._goal is _Goal.RECEIVE

    # --- what is wanted

    def start(self) -> None:
        """Harmless when repeated."""
        if not self._started:
            self._started = True
            Deferred.fromCoroutine(self._run()).addErrback(self._broken)

    def receive(self) -> None:
        """Messages are wanted."""
        if self._goal is _Goal.LEAVE:
            self._goal = _Goal.RECEIVE
            self._no_pause()

    def leave(self) -> None:
        """They are not."""
        if self._goal is _Goal.RECEIVE:
            self._goal = _Goal.LEAVE
            self._interrupt()

    def end(self) -> None:
        """The topic is not this hub's any more."""
        if self._goal is not _Goal.END:
            self._goal = _Goal.END
            self._interrupt()
            self._tell(NotResponsible(""))

    def joined(self) -> Deferred[None]:
        """Fires once it is subscribed; fails with PubSubError when the next attempt does, or after JOIN_TIMEOUT_S."""
        waiting: Deferred[None] = Deferred()
        if self._subscription is not None:
            waiting.callback(None)
        else:
            self._waiting[waiting] = self._attempt
            self._no_pause()
        return waiting

    def give_up(self, waiting: Deferred[None]) -> None:
        """It takes too long."""
        if waiting in self._waiting:
            del self._waiting[waiting]
            waiting.errback(ServiceDown(f"{self.region} has not answered within {JOIN_TIMEOUT_S:g} s"))

    def _tell(self, error: PubSubError | None, before: float = math.inf) -> None:
        """Those who wait since an attempt before this one."""
        for each in [each for each, since in self._waiting.items() if since < before]:
            del self._waiting[each]
            if error is None:
                each.callback(None)
            else:
                each.errback(error)

    def _no_pause(self) -> None:
        if self._pausing is not None:
            self.region.resume(self._pausing)

    def _interrupt(self) -> None:
        """Something else is wanted. What leaves is waited for: it must not come after the next subscribe."""
        if self._now is not None and self._goal not in (self._doing, _Goal.RECEIVE):
            self._now.cancel()

    async def _until(self, work: Deferred[T]) -> T:
        """Wait, unless something else is wanted meanwhile, or already: then raises CancelledError."""
        self._now = work
        self._interrupt()
        try:
            return await work
        finally:
            self._now = None

    # --- what is done

    async def _run(self) -> None:
        while self._goal is not _Goal.END:
            self._doing = self._goal
            self._attempt += 1
            try:
                if self._doing is _Goal.LEAVE:
                    await self._leave()
                    if self._goal is _Goal.LEAVE:
                        break
                else:
                    await self._receive()
            except CancelledError:
                continue
            except BookKeeperError as error:
                self._on_failure(error)
                if self._goal is self._doing and not self._waiting:
                    await self._pause()
            finally:
                self._attempt += self._attempt % 2
        self._regions.on_ended(self._sink, self)

    def _broken(self, failure: Failure) -> None:
        log.failure(
            "Receiving topic {topic!r} from {region} broke", failure, topic=self._sink.topic, region=self.region
        )
        self._goal = _Goal.END
        self._tell(UnexpectedCondition(f"a fault of this hub: {failure.value!r}"))
        self._regions.on_ended(self._sink, self)

    def _on_failure(self, error: BookKeeperError) -> None:
        self._failures += 1
        self._regions.meters.region_failures.add()
        self.region.on_failure(self._sink.topic, error)
        text = f"{self.region}: {error}"
        self._tell(ServiceDown(text) if error.retriable else UnexpectedCondition(text), self._attempt)
        self._attempt += 1

    async def _pause(self) -> None:
        pausing = self._pausing = self.region.pause(self._failures)
        try:
            with contextlib.suppress(CancelledError):
                await self._until(pausing)
        finally:
            self._pausing = None

    async def _leave(self) -> None:
        region, sink, name = self.region, self._sink, self._regions.subscriber
        with contextlib.suppress(NotSubscribed):
            await self._until(region.turns.run(region.client.unsubscribe, sink.topic, name))
        region.on_joined()

    async def _receive(self) -> None:
        """Subscribe, and store what comes. Ends with a failure, or when it is interrupted."""
        region, sink, name = self.region, self._sink, self._regions.subscriber
        force = self._force

        def subscribe() -> Deferred[Subscription]:
            return region.client.subscribe(sink.topic, name, force=force, auto_consume=False)

        subscription = await self._until(region.turns.run(subscribe))
        try:
            self._subscription, self._force = subscription, False
            region.on_joined()
            self._tell(None)
            while True:
                messages = await self._until(subscription.receive(STORED_AT_ONCE))
                for some in _in_parts(messages):
                    await self._store(some)
                    subscription.consume(some[-1])
                    self._failures = 0
        except Exception:  # not where it is only forgotten with its hub: nobody is there to be told anything
            self._subscription = None
            subscription.close()
            raise

    async def _store(self, messages: list[Received]) -> None:
        failures = 0
        while True:
            new = self._new_ones(messages)
            if not new:
                return
            done: Deferred[None] = Deferred()

            def told(first: MessageId | None, error: PubSubError | None, done: Deferred[None] = done) -> None:
                if error is None:
                    done.callback(None)
                else:
                    done.errback(error)

            try:
                self._sink.store_foreign([each.stored_form() for each in new], told)
                await self._until(done)
            except PubSubError:  # there is no room; or the topic is lost, and this is interrupted
                failures += 1
                await self._until(self.region.pause(failures))
            else:
                self._regions.meters.region_messages.add(len(new))
                return

    def _new_ones(self, messages: list[Received]) -> list[Received]:
        """Those that are not stored. Raises UnexpectedCondition for a region that is not what it should be."""
        name = self._regions.name_of(self.region, messages[0].region)
        for each in messages:
            if each.region != name:
                self._regions.name_of(self.region, each.region)
        stored = dict(self._sink.last_id.remote).get(name, 0)
        if messages[0].local_id > stored:
            return messages
        new = [each for each in messages if each.local_id > stored]
        self._regions.meters.region_repeats.add(len(messages) - len(new))
        return new


def _in_parts(messages: list[Received]) -> list[list[Received]]:
    parts: list[list[Received]] = []
    size = STORED_BYTES_AT_ONCE
    for each in messages:
        if size + len(each.body) > STORED_BYTES_AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each.body)
    return parts


class _TopicFeeds:
    """Of one topic. held: subscribes that wait for it: until they are done nothing is left."""

    __slots__ = ("feeds", "held", "sink")

    def __init__(self, sink: Sink) -> None:
        self.sink, self.held = sink, 0
        self.feeds: list[Feed] = []


class Regions:
    """All other regions, for all topics of one hub. make_client: of a region's hubs."""

    def __init__(
        self,
        clock: Clock,
        own: bytes,
        settings: RegionSettings,
        make_client: Callable[[HubAddress], PubSubClient],
        meters: RegionMeters,
    ) -> None:
        self.subscriber = SubscriberId(HUB_SUBSCRIBER_PREFIX + own)
        self.meters = meters
        self._clock, self._own = clock, own
        self.others = [OtherRegion(clock, each, settings, make_client(each)) for each in settings.addresses]
        self._topics: dict[Topic, _TopicFeeds] = {}
        self._looking: Timer = clock.callLater(LOOK_S, self._look)
        self._closed = False

    # --- topics

    def want(self, sink: Sink) -> None:
        """The topic has ordinary subscribers: its messages are wanted. Harmless when repeated."""
        for feed in self._wanted(sink).feeds:
            feed.start()

    def _wanted(self, sink: Sink) -> _TopicFeeds:
        topic = self._topics.get(sink.topic)
        if topic is None or topic.sink is not sink:
            topic = self._topics[sink.topic] = _TopicFeeds(sink)
        running = {feed.region for feed in topic.feeds}
        for feed in topic.feeds:
            feed.receive()
        for region in self.others:
            if region not in running and not self._closed:
                topic.feeds.append(Feed(self, region, sink))
        return topic

    def unwant(self, sink: Sink) -> None:
        """It has none any more."""
        topic = self._topics.get(sink.topic)
        if topic is not None and topic.sink is sink and not topic.held:
            for feed in list(topic.feeds):
                feed.leave()

    def join(self, sink: Sink) -> Deferred[None]:
        """It is about to have one, who waits for the other regions. `joined` must follow, however this ends.

        Fails with CompositeFailure where one of them does not take the subscription, or not in time.
        """
        topic = self._wanted(sink)
        topic.held += 1
        waiting = []
        for feed in topic.feeds:
            joined = feed.joined()
            timer = self._clock.callLater(JOIN_TIMEOUT_S, feed.give_up, joined)
            waiting.append(joined.addBoth(_stop, timer))
        for feed in topic.feeds:
            feed.start()
        return DeferredList(waiting, consumeErrors=True).addCallback(_all)

    def joined(self, sink: Sink) -> None:
        """See join."""
        topic = self._topics.get(sink.topic)
        if topic is not None and topic.sink is sink:
            topic.held -= 1
            if not topic.held and not topic.feeds:
                del self._topics[sink.topic]
            elif not sink.has_ordinary:
                self.unwant(sink)

    def drop(self, sink: Sink) -> None:
        """The topic is not this hub's any more: the subscriptions stay, for whoever has it next."""
        topic = self._topics.get(sink.topic)
        if topic is not None and topic.sink is sink:
            del self._topics[sink.topic]
            for feed in list(topic.feeds):
                feed.end()

    def feeds(self, topic: Topic) -> list[Feed]:
        """Those that run."""
        found = self._topics.get(topic)
        return [] if found is None else list(found.feeds)

    def on_ended(self, sink: Sink, feed: Feed) -> None:
        """A feed came to its end."""
        topic = self._topics.get(sink.topic)
        if topic is not None and feed in topic.feeds:
            topic.feeds.remove(feed)
            if not topic.feeds and not topic.held:
                del self._topics[sink.topic]

    # --- regions

    def name_of(self, region: OtherRegion, said: bytes) -> bytes:
        """What a message says of where it was published. Raises UnexpectedCondition where that cannot be."""
        if said == region.name:
            return said
        if not said:
            raise UnexpectedCondition(f"a message from {region.address} does not say in which region it was published")
        if said == self._own:
            raise UnexpectedCondition(
                f"{region.address} is a hub of this region, {_text(said)}, or of another one of the same name: take it "
                "out of `regions`, or give one of them another `region`"
            )
        if region.name is not None:
            raise UnexpectedCondition(
                f"a message from {region} says that it was published in region {_text(said)}; hubs tell other regions "
                "what was published in their own alone. If that region was renamed, restart this hub"
            )
        other = next((each for each in self.others if each.name == said), None)
        if other is not None:
            raise UnexpectedCondition(
                f"{region.address} and {other.address} are both of region {_text(said)}: leave one of them in `regions`"
            )
        region.name = said
        return said

    def _look(self) -> None:
        self._looking = self._clock.callLater(LOOK_S, self._look)
        counts = {region: [0, 0] for region in self.others}
        for topic in self._topics.values():
            for feed in topic.feeds:
                if feed.is_wanted:
                    counts[feed.region][feed.is_attached] += 1
        for region, (missing, attached) in counts.items():
            region.on_look(attached, missing)

    @property
    def attached_count(self) -> int:
        """Subscriptions in other regions, when it was last looked."""
        return sum(each.attached for each in self.others)

    @property
    def missing_count(self) -> int:
        """Those that should be, and are not."""
        return sum(each.missing for each in self.others)

    def close(self) -> None:
        """Let go of everything; the subscriptions stay."""
        if self._closed:
            return
        self._closed = True
        self._looking.cancel()
        for topic in list(self._topics.values()):
            self.drop(topic.sink)
        for region in self.others:
            region.client.abandon()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _stop(result: T, timer: Timer) -> T:
    if timer.active():
        timer.cancel()
    return result


def _all(results: list[tuple[bool, Any]]) -> None:
    causes = [result.value for is_done, result in results if not is_done]
    wrong = next((each for each in causes if not isinstance(each, PubSubError)), None)
    if wrong is not None:
        raise wrong
    if any(isinstance(each, NotResponsible) for each in causes):
        raise NotResponsible("")
    if causes:
        raise CompositeFailure(causes)


def client_of(clock: Clock, network: Network, address: HubAddress, *, tls: bool) -> PubSubClient:
    """What talks to the hubs of a region."""
    settings = PubSubSettings(retry_timeout_s=ATTEMPT_S, retry_max_s=REATTACH_MAX_S, tls=tls)
    return PubSubClient(clock, network, [address], settings, for_hub=True)
