"""The publish-subscribe client on Twisted: what the asyncio and the blocking face stand on.

    publisher(topic) -> Publisher --lane of the topic--> its hub
    subscribe(topic, subscriber) -> Subscription <-- its hub

A client needs the address of one hub; it learns the others. Publishes to one topic leave in the order of calls, as many
at a time as there are. Thread: reactor.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults, succeed
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.errors import BookKeeperError, ClientClosed, ConnectFailed, InvalidArgument, again
from hedwig.client.faces.values import (
    Text,
    as_bytes,
    bodies_of,
    int_of,
    preferences_of,
    properties_of,
    seconds_of,
    shown,
    subscriber_of,
    topic_of,
)
from hedwig.client.hubs import Hubs
from hedwig.client.lanes import Lane
from hedwig.client.link import HubLink
from hedwig.client.publish_once import Producer
from hedwig.client.request import Asker
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.start import Start, replay_option
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.errors import MalformedRequest, NoHubReached, NotSubscribed
from hedwig.model import (
    HUB_SUBSCRIBER_PREFIX,
    NO_OPTIONS,
    Gone,
    HubAddress,
    MessageId,
    Preferences,
    SubscribeMode,
    SubscriberId,
    Topic,
)
from hedwig.names import shown as name_text
from hedwig.names import subscriber_part, topic_part
from hedwig.protocol.options import KEEP, REPLAY, ack_options
from hedwig.wire.framing import varint
from hedwig.wire.messages import Message, encode_message, header_at, properties_part, with_properties
from hedwig.wire.receiving import Received
from hedwig.wire.requests import unsubscribe_frame

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Network

T = TypeVar("T")

LOOK_S = 1.0
"""How often calls that wait are looked at."""

WAITING_TOLD_S = 3.0
WAITING_TOLD_AGAIN_S = 10.0
"""How long a call waits before that is told, and between two times that it is."""

LANES_MAX = 10_000
"""Topics that are not published to now, and whose state is kept."""

KEEP_S_MAX = 1000 * 365 * 24 * 3600.0
"""Largest retention, in seconds, that a publisher may set."""

OVERHEAD = 64
"""Bytes of a publish beyond its topic and message, at most."""


class Publisher(OfOneProcess):
    """Publishes to one topic. Several of one client share the topic's lane, and its order.

    client: what it publishes through; a Producer, where each message is to be stored once. keep_s: retention of the
    topic, see PubSubClient.publisher.
    """

    instead = Subscription.instead

    def __init__(
        self,
        client: PubSubClient | Producer,
        topic: Text,
        *,
        message_type: str | None = None,
        keep_s: float | None = None,
    ) -> None:
        self.topic = topic_of(topic)
        self._keep = b""  # header property to add until a message with it is published
        if keep_s is not None:
            keep_ms = round(1000 * seconds_of(keep_s, "keep_s", KEEP_S_MAX))
            self._keep = properties_part({KEEP: b"%d" % keep_ms})
        if not isinstance(message_type, str | None):
            raise InvalidArgument(f"message_type is {shown(message_type)}, and must be a str")
        self._client, self._message_type = client, message_type

    def _message(self, body: Text, properties: Mapping[str, Text]) -> bytes:
        if type(body) is not bytes:
            body = as_bytes(body, "the body")
        header = properties_of(properties)
        return self._client.message(self.topic, body, header, self._message_type, extra_size=len(self._keep))

    def _submit(
        self,
        message: bytes,
        on_published: Callable[[MessageId], object],
        on_failed: Callable[[BookKeeperError], object],
    ) -> None:
        """Publish a message, with the retention if that is not set yet. Raises ClientClosed, MalformedRequest."""
        keep, self._keep = self._keep, b""
        if not keep:
            self._client.submit(self.topic, message, on_published, on_failed)
            return
        at = header_at(message)
        assert at is not None, "it was made here"

        def failed(error: BookKeeperError) -> None:
            self._keep = keep  # the next message carries it
            on_failed(error)

        try:
            self._client.submit(self.topic, with_properties(message, at, keep), on_published, failed)
        except BaseException:
            self._keep = keep
            raise

    @property
    def has_room(self) -> bool:
        """Another publish is within `outstanding_max`. Whoever publishes without looking is not held up."""
        return self._client.lane(self.topic).has_room

    def room(self) -> Deferred[None]:
        """Fires once there is room; publish no faster than that."""
        return self._client.lane(self.topic).room()

    def publish_soon(
        self, body: Text, properties: Mapping[str, Text] = NO_OPTIONS
    ) -> tuple[Deferred[None], Deferred[MessageId]]:
        """Publish one message once there is room; when it is taken, and its id, as of `publish`.

        Cancelling the first gives it up where it has not been taken; then the second is cancelled too.
        """
        done: Deferred[MessageId] = Deferred()
        try:
            message = self._message(body, properties)
            room = self._client.lane(self.topic).room()
        except BookKeeperError as error:
            return succeed(None), fail(error)

        def publish(_: object) -> None:
            try:
                self._submit(message, done.callback, done.errback)
            except BookKeeperError as error:
                done.errback(error)

        def given_up(failure: Failure) -> None:
            if isinstance(failure.value, CancelledError):
                done.cancel()
            else:
                done.errback(failure)

        room.addCallbacks(publish, given_up)
        return room, done

    def publish(self, body: Text, properties: Mapping[str, Text] = NO_OPTIONS) -> Deferred[MessageId]:
        """Publish one message; its id, once it is durable.

        Fails with InvalidArgument for what is no text, MalformedRequest for what no hub takes, ServiceDown where none
        took it in time, UncertainState where it may have been stored or not, ClientClosed.
        """
        done: Deferred[MessageId] = Deferred()
        try:
            message = self._message(body, properties)
            if self._keep:
                self._submit(message, done.callback, done.errback)
            else:
                self._client.submit(self.topic, message, done.callback, done.errback)
        except BookKeeperError as error:
            return fail(error)
        return done

    def submit(
        self,
        body: Text,
        on_published: Callable[[MessageId], object],
        on_failed: Callable[[BookKeeperError], object],
        properties: Mapping[str, Text] = NO_OPTIONS,
    ) -> None:
        """As `publish`, where a call of a function costs less than a Deferred; exactly one of them is called.

        Raises InvalidArgument, MalformedRequest, ClientClosed.
        """
        message = self._message(body, properties)
        if self._keep:
            self._submit(message, on_published, on_failed)
        else:
            self._client.submit(self.topic, message, on_published, on_failed)

    def publish_many(
        self, bodies: Sequence[Text], properties: Mapping[str, Text] = NO_OPTIONS
    ) -> Deferred[list[MessageId]]:
        """Publish several, in their order; their ids once all are durable.

        Fails as `publish` with the error of the first that failed; others may have been stored.
        """
        client, topic, extra_size = self._client, self.topic, len(self._keep)
        try:
            header = properties_of(properties)
            messages = [
                client.message(topic, body, header, self._message_type, extra_size=extra_size)
                for body in bodies_of(bodies)
            ]
        except BookKeeperError as error:
            return fail(error)
        if not messages:
            return succeed([])
        return _Many(self._submit, messages).done


class _Many:
    """Several publishes with one outcome."""

    def __init__(
        self,
        submit: Callable[[bytes, Callable[[MessageId], object], Callable[[BookKeeperError], object]], None],
        messages: list[bytes],
    ) -> None:
        self.done: Deferred[list[MessageId]] = Deferred()
        self._ids: list[MessageId | None] = [None] * len(messages)
        self._waiting = len(messages)
        self._error: BookKeeperError | None = None
        for index, message in enumerate(messages):
            submit(message, self._on_published(index), self._on_failed)

    def _on_published(self, index: int) -> Callable[[MessageId], None]:
        def published(message_id: MessageId) -> None:
            self._ids[index] = message_id
            self._one_less()

        return published

    def _on_failed(self, error: BookKeeperError) -> None:
        self._error = self._error or error
        self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if self._waiting or self.done.called:
            return
        if self._error is not None:
            self.done.errback(again(self._error))
        else:
            self.done.callback([each for each in self._ids if each is not None])


class PubSubClient(OfOneProcess):
    """One client of one region's hubs. hubs: at least one of them. for_hub: it subscribes for a hub of another region,
    by a name that others must not take.
    """

    instead = Subscription.instead

    def __init__(
        self,
        clock: Clock,
        network: Network,
        hubs: Sequence[HubAddress],
        settings: PubSubSettings | None = None,
        rng: random.Random | None = None,
        *,
        for_hub: bool = False,
    ) -> None:
        self.settings = settings or PubSubSettings()
        self._for_hub = for_hub
        self.preferences = Preferences()
        """Of subscriptions that do not say."""
        self.auto_consume = True
        self.on_waiting: Callable[[str], object] | None = None
        """Told for what, where a call waits for longer than `WAITING_TOLD_S`; again when that is another thing."""
        self._waiting_told: tuple[float, str] | None = None
        self._stuck: dict[Lane, tuple[int, float]] = {}
        self._clock = clock
        self._hubs = Hubs(clock, network, rng or random.Random(), hubs, self.settings)
        self._asker = Asker(clock, self._hubs)
        self._lanes: dict[Topic, Lane] = {}
        self._subscriptions: dict[tuple[Topic, SubscriberId], Subscription] = {}
        self._looking: Any = clock.callLater(LOOK_S, self._look)
        self._body_max = min(self.settings.frame_size_max, self.settings.hub_frame_size_max)
        self._checked: set[Topic] = set()
        self._producers: WeakSet[Producer] = WeakSet()
        self._asking: set[Deferred[Any]] = set()
        self._closing: Deferred[None] | None = None
        self.closed = False

    def reach(self) -> Deferred[None]:
        """Fires once one of the hubs that were given is connected to. Fails with NoHubReached, which says why not."""
        return self._ask(self._reach())

    async def _reach(self) -> None:
        failures: list[str] = []
        for address in self._hubs.given:
            try:
                found = self._hubs.link(address, "publish")
                if not isinstance(found, HubLink):
                    await found
            except ConnectFailed as error:
                failures.append(str(error))
            else:
                return
        raise NoHubReached.of("; ".join(failures))

    # --- publishing

    def publisher(
        self,
        topic: Text,
        *,
        message_type: str | None = None,
        producer: Text | None = None,
        first: int = 1,
        replayed: bool = False,
        keep_s: float | None = None,
    ) -> Publisher:
        """Publishes to a topic. Raises InvalidArgument for what is no text, MalformedRequest for a name that no topic,
        or no producer, can have.

        producer: a name, under which each message is stored once, in call order (hedwig.client.publish_once); b""
        for one that no other client has. first: the number of its first message. replayed: others publish, or have
        published, the same messages under the same numbers.

        keep_s: seconds for which hubs keep all messages of the topic, consumed or not; 0: only while subscriptions need
        them. Durable with the first message that is published here, and valid for the topic until another value is
        set. None: unchanged, at first as the hubs are configured. Limits of the hubs may be shorter; Apache's hubs
        ignore it silently.
        """
        topic = topic_of(topic)
        self._check_topic(topic)
        if producer is None:
            return Publisher(self, topic, message_type=message_type, keep_s=keep_s)
        self.check_open()
        int_of(first, "first")
        found = Producer(self, topic, as_bytes(producer, "the producer's name") or None, first, replayed=replayed)
        self._producers.add(found)
        return Publisher(found, topic, message_type=message_type, keep_s=keep_s)

    def publish(self, topic: Text, body: Text, properties: Mapping[str, Text] = NO_OPTIONS) -> Deferred[MessageId]:
        """See Publisher.publish."""
        try:
            publisher = Publisher(self, topic)
        except InvalidArgument as error:
            return fail(error)
        return publisher.publish(body, properties)

    def _check_topic(self, topic: Topic) -> None:
        if topic not in self._checked:
            topic_part(topic)
            if len(self._checked) >= LANES_MAX:
                self._checked.clear()
            self._checked.add(topic)

    def message(
        self,
        topic: Topic,
        body: bytes,
        properties: Mapping[str, bytes],
        message_type: str | None,
        *,
        extra_size: int = 0,
    ) -> bytes:
        """The bytes of a message that is published. Raises MalformedRequest where no hub takes it.

        extra_size: bytes that are added to it later.
        """
        if properties or message_type is not None:
            message = encode_message(Message(body, properties, message_type))
        else:
            message = b"\x0a%b%b" % (varint(len(body)), body)
        if len(message) + len(topic) + OVERHEAD + extra_size > self._body_max:
            most = self._body_max - len(topic) - OVERHEAD - extra_size
            raise MalformedRequest(
                f"a message of {len(body)} bytes and properties; hubs take {most} at most (max_message_size there, "
                "hub_max_message_size and max_message_size here): publish less, or in parts"
            )
        return message

    def lane(self, topic: Topic) -> Lane:
        """Where publishes to a topic go through. Raises ClientClosed."""
        found = self._lanes.get(topic)
        if found is None:
            self.check_open()
            found = self._new_lane(topic)
        return found

    def _new_lane(self, topic: Topic) -> Lane:
        self._check_topic(topic)
        lane = self._lanes[topic] = Lane(self._clock, self._hubs, topic, self.settings, self._lane_idle)
        return lane

    def check_open(self) -> None:
        """Raises ClientClosed, from `close` on."""
        if self.closed or self._closing is not None:
            raise ClientClosed("the client is closed; connect again")

    def _lane_idle(self, lane: Lane) -> None:
        if len(self._lanes) > LANES_MAX and self._lanes.get(lane.topic) is lane:
            del self._lanes[lane.topic]

    def submit(
        self,
        topic: Topic,
        message: bytes,
        on_published: Callable[[MessageId], object],
        on_failed: Callable[[BookKeeperError], object],
    ) -> None:
        """Publish a message's bytes; exactly one of the calls follows. Raises ClientClosed, MalformedRequest."""
        if self._closing is not None or self.closed:
            self.check_open()
        self.pass_on(topic, message, on_published, on_failed)

    def pass_on(
        self,
        topic: Topic,
        message: bytes,
        on_published: Callable[[MessageId], object],
        on_failed: Callable[[BookKeeperError], object],
    ) -> None:
        """As `submit`, of what a Producer has taken: also while `close` waits for it."""
        if self.closed:
            raise ClientClosed("the client was closed before the message was published")
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._new_lane(topic)
        lane.publish(message, self._clock.seconds() + self.settings.retry_timeout_s, on_published, on_failed)

    def flush(self) -> Deferred[None]:
        """Fires once everything published before is answered or has failed; what comes later may still be open."""
        waiting = [lane.settled() for lane in self._lanes.values() if lane.unanswered]
        waiting += [producer.settled() for producer in self._producers if producer.unanswered]
        return gatherResults(waiting).addCallback(lambda _: None)

    # --- subscribing

    def subscribe(
        self,
        topic: Text,
        subscriber: Text,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        *,
        preferences: Preferences | None = None,
        force: bool = False,
        auto_consume: bool | None = None,
        wanted: Callable[[Received], bool] | None = None,
        start: Start | None = None,
        on_gone: Callable[[Gone], object] | None = None,
    ) -> Deferred[Subscription]:
        """Make or attach a subscription; it delivers from what it has not consumed on, a new one what is published
        from now on.

        preferences: a preference that is None keeps its stored value. If no window is stored, `settings.window` applies
        and is stored with a new subscription. Apache's hubs also store it with an existing one, except in mode ATTACH.

        force: take it from a client that has it. auto_consume: messages count as consumed at the next call that takes
        messages; None: as the client is configured.
        wanted: messages for which it is false are passed over, and consumed, here. start: begin there instead, each
        time that this is called (hedwig.client.subscriptions.start). on_gone: called with each range of messages that
        were deleted before this subscription received them (Subscription.gone); None: log a warning.
        Preferences of hedwig.client.subscriptions.work_queue make a subscription with individual acknowledgement.
        Fails with AlreadySubscribed, NotSubscribed, TopicBusy, InvalidFilter, InvalidArgument, MalformedRequest,
        ServiceDown. Where an answer was lost, CREATE may fail with AlreadySubscribed although it was this call that
        made it.
        """
        return self._ask(
            self._subscribe(
                topic,
                subscriber,
                mode,
                preferences,
                force,
                auto_consume,
                wanted,
                start,
                on_gone,
            )
        )

    def _ask(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Runs until it is done, or the client is closed."""
        asking: Deferred[T] = Deferred.fromCoroutine(work)
        self._asking.add(asking)

        def done(result: T | Failure) -> T | Failure:
            self._asking.discard(asking)
            if isinstance(result, Failure) and isinstance(result.value, CancelledError) and self.closed:
                raise ClientClosed("the client was closed before a hub answered")
            return result

        asking.addBoth(done)
        return asking

    async def _subscribe(
        self,
        topic_said: Text,
        subscriber_said: Text,
        mode: SubscribeMode,
        said: Preferences | None,
        force: bool,
        auto_consume: bool | None,
        wanted: Callable[[Received], bool] | None,
        start: Start | None,
        on_gone: Callable[[Gone], object] | None,
    ) -> Subscription:
        topic, subscriber = topic_of(topic_said), subscriber_of(subscriber_said)
        preferences = self.preferences if said is None else self.preferences.merged(preferences_of(said))
        if not isinstance(mode, SubscribeMode):
            raise InvalidArgument(f"mode is {shown(mode)}, and must be a hedwig.model.SubscribeMode")
        self._check(topic, subscriber)
        if (topic, subscriber) in self._subscriptions:
            raise MalformedRequest(
                f"this client holds subscriber {subscriber!r} of topic {topic!r} already: close that subscription first"
            )
        if start is not None:
            preferences = preferences.merged(Preferences(options={REPLAY: replay_option(start)}))
        individual = ack_options(preferences) is not None
        if individual and auto_consume:
            raise InvalidArgument("auto_consume: messages that are acknowledged one by one are so by `ack` alone")
        subscription = Subscription(
            self._clock,
            self._hubs,
            topic,
            subscriber,
            mode,
            preferences,
            force=force,
            auto_consume=not individual and (self.auto_consume if auto_consume is None else auto_consume),
            wanted=wanted,
            on_closed=self._subscription_closed,
            on_gone=on_gone,
        )
        self._subscriptions[topic, subscriber] = subscription
        try:
            await subscription.attach(timeout_s=self.settings.retry_timeout_s)
        except BaseException:
            self._subscription_closed(subscription)
            raise
        return subscription

    def _check(self, topic: Topic, subscriber: SubscriberId) -> None:
        self.check_open()
        self._check_topic(topic)
        subscriber_part(subscriber)
        if subscriber.startswith(HUB_SUBSCRIBER_PREFIX) and not self._for_hub:
            raise MalformedRequest(f"subscriber {subscriber!r}: names that begin with '__' are for hubs; take another")

    def _subscription_closed(self, subscription: Subscription) -> None:
        key = (subscription.topic, subscription.subscriber)
        if self._subscriptions.get(key) is subscription:
            del self._subscriptions[key]

    def unsubscribe(self, topic: Text, subscriber: Text) -> Deferred[None]:
        """End a subscription for good, and close it where this client holds it.

        Fails with NotSubscribed, ServiceDown. Where an answer was lost, it may fail with NotSubscribed although it was
        this call that ended it.
        """
        return self._ask(self._unsubscribe(topic, subscriber))

    async def _unsubscribe(self, topic_said: Text, subscriber_said: Text) -> None:
        topic, subscriber = topic_of(topic_said), subscriber_of(subscriber_said)
        self._check(topic, subscriber)
        held = self._subscriptions.get((topic, subscriber))
        if held is not None:
            await held.close()

        async def connect(address: HubAddress) -> HubLink:
            found = self._hubs.link(address, "publish")
            return found if isinstance(found, HubLink) else await found

        try:
            await self._asker.ask(
                topic,
                lambda txn_id, claim: unsubscribe_frame(txn_id, topic, subscriber, should_claim=claim),
                connect,
                timeout_s=self.settings.retry_timeout_s,
            )
        except NotSubscribed as error:  # hubs send the status alone
            raise NotSubscribed(
                f"there is no subscriber {name_text(subscriber)!r} of topic {name_text(topic)!r}"
            ) from error

    # --- life

    def _look(self) -> None:
        self._looking = self._clock.callLater(LOOK_S, self._look)
        self._hubs.expire()
        for lane in [lane for lane in self._lanes.values() if lane.unanswered]:
            lane.expire()
        if self.on_waiting is not None:
            self._tell_waiting(self.on_waiting)

    def _tell_waiting(self, tell: Callable[[str], object]) -> None:
        now = self._clock.seconds()
        since, text = self._longest_wait(now)
        if now - since < WAITING_TOLD_S:
            self._waiting_told = None
            return
        told = self._waiting_told
        if told is None or (text != told[1] and now - told[0] >= WAITING_TOLD_AGAIN_S):
            self._waiting_told = (now, text)
            tell(text)

    def _longest_wait(self, now: float) -> tuple[float, str]:
        """Since when what is waited for. A topic does not wait while publishes to it are answered."""
        before, self._stuck = self._stuck, {}
        since, text = now, ""
        for lane in self._lanes.values():
            if not lane.unanswered:
                continue
            answered, began = before.get(lane, (-1, now))
            found = self._stuck[lane] = (lane.answered, began if answered == lane.answered else now)
            if found[1] < since:
                since, text = found[1], lane.waits_for
        first = next(iter(self._hubs.waits), None)  # it has waited for the longest time
        return (since, text) if first is None or first.since >= since else (first.since, first.text)

    def close(self) -> Deferred[None]:
        """Wait for what is published (not longer than it may take), tell what is consumed, let go of all.

        Nothing new is taken from now on. Cancelling the waiting lets go at once, as `abandon`.
        """
        if self.closed:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda _: self.abandon())
        if self._closing is None:
            self._closing = Deferred.fromCoroutine(self._close())
        self._closing.addBoth(_tell, waiting)
        return waiting

    async def _close(self) -> None:
        await self.flush()
        await gatherResults([each.close() for each in list(self._subscriptions.values())])
        self.abandon()

    def abandon(self) -> None:
        """Let go at once: what is not answered fails, and what is consumed and not told comes again."""
        if self.closed:
            return
        self.closed = True
        if self._looking.active():
            self._looking.cancel()
        for asking in list(self._asking):
            asking.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription.close()
        self._hubs.close()
        for lane in list(self._lanes.values()):
            lane.close()


def _tell(result: Any, waiting: Deferred[None]) -> Any:
    if not waiting.called:
        waiting.callback(None)
    return result
