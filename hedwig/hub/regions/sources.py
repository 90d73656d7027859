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
that makes a topic's first ordinary subscription (hedwig/PROTOCOL.md 2.3). A region must have a name of its own, and
tell nothing but what was published there: what says otherwise is not stored, and not consumed.

Thread: reactor. Source: hedwig/PROTOCOL.md 2.3, 2.12, 3.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredList

from bookkeeper.metrics import Counter
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.errors import CompositeFailure, NotResponsible, PubSubError, UnexpectedCondition
from hedwig.hub.regions.feed import JOIN_TIMEOUT_S, Feed, OtherRegion, RegionSettings, Sink
from hedwig.model import HUB_SUBSCRIBER_PREFIX, HubAddress, SubscriberId, Topic
from hedwig.wire.framing import FRAME_ALLOWANCE, FRAME_SIZE_MAX_CLIENT, FRAME_SIZE_MAX_HUB

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Network, Timer

T = TypeVar("T")

ATTEMPT_S = 5.0
"""One attempt to subscribe looks so long for a hub that serves the topic."""

REATTACH_MAX_S = 30.0
"""Between two attempts to attach a subscription again whose hub went: a region that is down is asked for all topics."""

LOOK_S = 5.0
"""How often it is looked whether every topic is subscribed to everywhere."""


LOOKED_AT_ONCE = 2_000
"""Feeds of which that is asked in one turn of the reactor."""


class RegionMeters(Protocol):
    """What is counted."""

    region_messages: Counter
    region_repeats: Counter
    region_failures: Counter


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
        feeds = [feed for topic in self._topics.values() for feed in topic.feeds]
        self._look_on(feeds, {region: [0, 0] for region in self.others})

    def _look_on(self, feeds: list[Feed], counts: dict[OtherRegion, list[int]]) -> None:
        """At some of them; others have their turn in between, as there may be very many."""
        for feed in feeds[-LOOKED_AT_ONCE:]:
            if feed.is_wanted:
                counts[feed.region][feed.is_attached] += 1
        del feeds[-LOOKED_AT_ONCE:]
        if feeds:
            self._looking = self._clock.callLater(0, self._look_on, feeds, counts)
            return
        for region, (missing, attached) in counts.items():
            region.on_look(attached, missing)
        self._looking = self._clock.callLater(LOOK_S, self._look)

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


def client_of(
    clock: Clock,
    network: Network,
    address: HubAddress,
    *,
    tls: bool,
    frame_size_max: int = FRAME_SIZE_MAX_HUB,
    stored_size_max: int | None = None,
) -> PubSubClient:
    """Return a client of another region's hubs. frame_size_max: of the hubs of both regions.

    stored_size_max: bytes of the largest message that this region's ledgers can store; None: no limit. A larger one
    ends the subscription, which is reported, as it could never be stored here.
    """
    received_size_max = max(FRAME_SIZE_MAX_CLIENT, frame_size_max)
    if stored_size_max is not None:
        received_size_max = min(received_size_max, stored_size_max - 2 * FRAME_ALLOWANCE)
    settings = PubSubSettings(
        retry_timeout_s=ATTEMPT_S,
        retry_max_s=REATTACH_MAX_S,
        frame_size_max=received_size_max,
        hub_frame_size_max=frame_size_max,
        tls=tls,
    )
    return PubSubClient(clock, network, [address], settings, for_hub=True)
