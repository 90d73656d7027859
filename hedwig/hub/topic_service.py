"""One topic while this hub serves it: its log, its subscriptions, and what is delivered to whom.

    publish ---> TopicLog ---acknowledged---> answers, then RecentMessages ---> every attached subscriber
                                                                 ^
    old messages: TopicReader ---> the subscriber that asked ----+ (not kept: the next one reads its own)

A subscription exists in the metadata; it is *attached* while a connection holds it, and one connection at a time does
(I-96). What it consumed is stored every `consume_interval` ids, when the topic is released, and when the hub stops. It
begins elsewhere when a subscribe asks for that, and the position is stored before that is answered.

Whoever is slow is asked nothing and costs nothing: nothing is prepared for a connection that takes nothing (I-95).

Changes of subscriptions are made one after the other, each by its version (I-93); a version that is not ours any more
means that another hub has the topic: everything is given up. Thread: reactor. Source: hedwig-protocol.md 2.3-2.11,
3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from bookkeeper.metrics import Counter
from hedwig.errors import (
    InvalidFilter,
    MalformedRequest,
    NotResponsible,
    NotSubscribed,
    PubSubError,
    StaleVersion,
    TopicBusy,
)
from hedwig.filters import Filter, MakeFilter, guarded
from hedwig.hub.attachment import Attachment, Channel, Held
from hedwig.hub.log_settings import TopicLogSettings
from hedwig.hub.metadata import HubMetadata, Versioned
from hedwig.hub.ownership import in_turns
from hedwig.hub.recent import RecentBudget, RecentMessages
from hedwig.hub.replaying import id_before, where_of
from hedwig.hub.shared_attachment import SharedAttachment
from hedwig.hub.topic_log import LogState, OnDone, TopicLog
from hedwig.hub.topic_reading import TopicReader
from hedwig.model import (
    HUB_SUBSCRIBER_PREFIX,
    Event,
    LocalId,
    MessageId,
    Preferences,
    SharedSubscription,
    SubscribeMode,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import shown, subscriber_part
from hedwig.protocol.conditions import FilterableMessage
from hedwig.protocol.options import AckOptions, Replay, answered, check_size, check_wanted, replay_wanted
from hedwig.protocol.replay import at_id
from hedwig.protocol.subscription import (
    CONSUME_INTERVAL,
    Position,
    check_consumed,
    first_kept,
    subscribed,
    topic_bound,
    trim_point,
)
from hedwig.wire.messages import Stamp
from hedwig.wire.requests import Subscribe
from hedwig.wire.responses import event_frame

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.ports import Clock
    from hedwig.hub.regions import Regions

log = Logger()

R = TypeVar("R")

_FORCED = Event.SUBSCRIPTION_FORCED_CLOSED

STORED_AT_ONCE = 50
"""Positions of a topic that are written at the same time when it is released."""

OnAttached = Callable[[Preferences, Held], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """window_size: where a subscription does not say; 0 none. consume_interval: ids between two writes of a position.
    read_ahead, read_size: messages of one read from a ledger, and bytes, about. retry_delay_s: after a read that
    failed. dead_letters: publishes to a topic of any hub, and fires once that is durable; None: options that need it
    are refused. regions: the others, if there are some.
    """

    log: TopicLogSettings = field(default_factory=TopicLogSettings)
    window_size: int = 0
    consume_interval: int = CONSUME_INTERVAL
    read_ahead: int = 100
    read_size: int = 4 * 1024 * 1024
    retry_delay_s: float = 1.0
    dead_letters: Callable[[Topic, bytes], Awaitable[None]] | None = None
    regions: Regions | None = None


class _Subscriber:
    """A subscription, and the connection that holds it, if any."""

    __slots__ = ("attachment", "position", "record", "storing")

    def __init__(self, record: Versioned[Subscription]) -> None:
        self.record = record
        self.position = Position(record.value.consumed)
        self.attachment: Attachment | SharedAttachment | None = None
        self.storing = False

    @property
    def version(self) -> int:
        """What the next change of the record names."""
        assert self.record.version is not None
        return self.record.version


class TopicService:
    """See the module. on_lost: the topic has to be given up, or acquired anew. delivered: counts messages sent."""

    __slots__ = (
        "_attached",
        "_bound",
        "_budget",
        "_changing",
        "_ended",
        "_filters",
        "_metadata",
        "_on_lost",
        "_region",
        "_subscribers",
        "clock",
        "delivered",
        "first_kept",
        "log",
        "reader",
        "recent",
        "settings",
        "topic",
    )

    def __init__(
        self,
        metadata: HubMetadata,
        client: LedgerClient,
        clock: Clock,
        topic: Topic,
        region: bytes,
        stamp: Stamp,
        settings: TopicSettings,
        budget: RecentBudget,
        filters: Mapping[str, MakeFilter],
        on_lost: Callable[[TopicService], object],
        delivered: Counter | None = None,
    ) -> None:
        self.delivered = delivered or Counter()
        self.topic, self.settings, self.clock = topic, settings, clock
        self._metadata, self._region, self._filters, self._on_lost = metadata, region, filters, on_lost
        self.log = TopicLog(metadata, client, clock, topic, stamp, settings.log, self._lost, self._durable)
        self.reader = TopicReader(client, self.log, settings.read_size)
        self.recent = RecentMessages(budget, LocalId(1))
        self.first_kept = LocalId(1)
        self._budget = budget
        self._bound = 0
        self._subscribers: dict[SubscriberId, _Subscriber] = {}
        self._attached: dict[SubscriberId, Attachment | SharedAttachment] = {}
        self._changing: DeferredLock | None = None
        self._ended = False

    # --- the topic

    async def acquire(self) -> None:
        """Take it over. Raises PubSubError, BookKeeperError."""
        await self.log.acquire()
        self.recent = RecentMessages(self._budget, LocalId(self.log.last_id.local + 1))
        found = await self._metadata.subscriptions(self.topic, synced=True)  # the list was written just now
        for subscriber, record in found.items():
            if record.value.consumed.local > self.log.last_id.local:
                found[subscriber] = await self._brought_back(subscriber, record)
        self._subscribers = {subscriber: _Subscriber(record) for subscriber, record in found.items()}
        self._set_bound()
        if self.settings.regions is not None and self.has_ordinary:
            self.settings.regions.want(self)

    async def _brought_back(self, subscriber: SubscriberId, record: Versioned[Subscription]) -> Versioned[Subscription]:
        """A position beyond the last message, as hubs of Apache store it when a client says so: what is published until
        then would be passed over.
        """
        assert record.version is not None
        log.warn(
            "Subscriber {subscriber!r} of topic {topic!r} is said to have consumed {consumed}, and the last message is "
            "{last}: it goes on behind that",
            subscriber=subscriber,
            topic=self.topic,
            consumed=record.value.consumed.local,
            last=self.log.last_id.local,
        )
        version, value = record.version, Subscription(self.log.last_id, record.value.preferences)

        def move(listed: int) -> Awaitable[int]:
            return self._metadata.move_subscription(self.topic, subscriber, value, version, listed)

        return Versioned(value, await self.log.while_listed(move))

    def publish(self, messages: Sequence[bytes], on_done: OnDone, *, plain: bool) -> None:
        """See TopicLog."""
        self.log.publish(messages, on_done, plain=plain)

    def store_foreign(self, messages: Sequence[bytes], on_done: OnDone) -> None:
        """See TopicLog."""
        self.log.store_foreign(messages, on_done)

    @property
    def last_id(self) -> MessageId:
        """Of the last message, durable or not."""
        return self.log.last_id

    def _durable(self, stored: list[bytes]) -> None:
        self.recent.add(stored)
        if self._bound:
            self.first_kept = first_kept(self._bound, self.log.durable_id)
        for attachment in list(self._attached.values()):
            attachment.resume()

    def _one_by_one(self, change: Callable[[], Deferred[R]]) -> Deferred[R]:
        """Changes of subscriptions wait for each other."""
        if self._changing is None:
            self._changing = DeferredLock()
        return self._changing.run(change).addBoth(self._unlocked)

    def _unlocked(self, result: R) -> R:
        # An idle topic needs no lock: it is made again.
        if self._changing is not None and not self._changing.locked:
            self._changing = None
        return result

    def _set_bound(self) -> None:
        self._bound = topic_bound(each.record.value.preferences for each in self._subscribers.values())
        self.first_kept = first_kept(self._bound, self.log.durable_id)

    def _lost(self, error: PubSubError) -> None:
        self._end(Event.TOPIC_MOVED)
        self._on_lost(self)

    @property
    def is_served(self) -> bool:
        """It is this hub's, and is not being released."""
        return not self._ended and self.log.state is LogState.READY

    def _check_served(self) -> None:
        if not self.is_served:
            raise NotResponsible(f"this hub does not serve topic {self.topic!r} any more")

    # --- subscribing

    @property
    def has_ordinary(self) -> bool:
        """Somebody other than hubs of other regions subscribed."""
        return any(not subscriber.startswith(HUB_SUBSCRIBER_PREFIX) for subscriber in self._subscribers)

    def subscribe(self, request: Subscribe, channel: Channel, on_attached: OnAttached) -> Deferred[None]:
        """Make or attach a subscription, for this connection.

        on_attached: told the preferences that hold, and what delivers once it is started, before anybody else can take
        the subscription or end it: so a subscriber never hears of an end first and of its success then (I-96).

        Fails with AlreadySubscribed, NotSubscribed, TopicBusy, InvalidFilter, MalformedRequest, NotResponsible, and
        with CompositeFailure where it is the first one, is to wait for the other regions, and one of those cannot.
        """

        def subscribe() -> Deferred[None]:
            return self._one_by_one(lambda: Deferred.fromCoroutine(self._subscribe(request, channel, on_attached)))

        regions = self.settings.regions
        if regions is None or not request.synchronous or request.mode is SubscribeMode.ATTACH or self.has_ordinary:
            return subscribe()
        if self._ended or request.subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
            return subscribe()
        # Other changes do not wait for other regions.
        joining = regions.join(self).addCallback(lambda _: subscribe())
        return joining.addBoth(_afterwards, lambda: regions.joined(self))

    async def _subscribe(self, request: Subscribe, channel: Channel, on_attached: OnAttached) -> None:
        self._check_served()
        subscriber_part(request.subscriber)
        if request.subscriber == HUB_SUBSCRIBER_PREFIX + self._region:
            raise MalformedRequest(
                f"subscriber {shown(request.subscriber)!r} is this region itself: a hub has one of its own region in "
                "its `regions`, or two regions have the same name"
            )
        known = self._subscribers.get(request.subscriber)
        found = None if known is None else known.record.value
        wanted = subscribed(
            self.topic,
            request.subscriber,
            found,
            request.mode,
            request.preferences,
            request.message_bound,
            self._last_durable,
        )
        # Before anything is stored: a name that no hub knows would make every later subscribe fail (6).
        wanted_ones = self._filter_of(request.subscriber, wanted.preferences)
        individual = check_wanted(request.preferences, wanted.preferences, self.topic)
        if individual is not None and individual.dead_letter is not None and self.settings.dead_letters is None:
            raise MalformedRequest("this hub cannot publish dead letters")
        if wanted is not found:
            check_size(wanted.preferences)
        if known is not None:
            self._check_free(known, request, channel, shared=individual is not None and individual.shared)
        replay = replay_wanted(None if found is None else found.preferences, request.preferences)
        if replay is not None:
            known = await self._store_moved(request.subscriber, known, wanted.preferences, replay)
            self._set_bound()
        elif wanted is not found:
            record = Subscription(wanted.consumed, wanted.preferences)
            if known is not None:
                record = self._record(known, wanted.preferences, keep=individual is not None)
            known = await self._store(request.subscriber, known, record)
            self._set_bound()
        assert known is not None
        self._check_served()
        window_size = wanted.preferences.window_size
        window_size = self.settings.window_size if window_size is None else window_size
        held: Held
        if individual is None:
            self._take_from(known, channel, _FORCED)
            known.position.attach(window_size)
            held = attachment = Attachment(self, request.subscriber, known.position, channel, wanted_ones)
            known.attachment = self._attached[request.subscriber] = attachment
        else:
            shared = self._shared(
                request.subscriber, known, individual, window_size, wanted_ones, channel, anew=replay is not None
            )
            if request.force or not individual.shared:
                shared.remove_others(channel, _FORCED)
            held = shared.add(channel)
            self._attached[request.subscriber] = shared
        on_attached(answered(wanted.preferences), held)

    def _shared(
        self,
        subscriber: SubscriberId,
        known: _Subscriber,
        options: AckOptions,
        window_size: int,
        wanted: Filter | None,
        channel: Channel,
        *,
        anew: bool,
    ) -> SharedAttachment:
        """That of the subscription; a new one if it has none, or begins anew. Who had the old one is told."""
        before = known.attachment
        if isinstance(before, SharedAttachment) and not anew:
            before.configure(options, window_size, wanted)
            return before
        # Who shares a subscription that begins anew attaches anew.
        self._take_from(known, channel, Event.TOPIC_MOVED if anew and options.shared else _FORCED)
        value = known.record.value
        snapshot = value.acknowledged if isinstance(value, SharedSubscription) else b""
        shared = SharedAttachment(
            self,
            subscriber,
            known.position,
            options,
            window_size,
            wanted,
            snapshot,
            lambda: self._store_shared(subscriber, known),
        )
        known.attachment = shared
        return shared

    def _take_from(self, known: _Subscriber, channel: Channel | None, event: Event) -> None:
        """Whoever else has it is told that it has not."""
        before = known.attachment
        if isinstance(before, SharedAttachment):
            before.end(event, without=channel)
            self._detach(before, None)
        elif before is not None:
            self._detach(before, None if before.ended or before.channel is channel else event)

    def _check_free(self, known: _Subscriber, request: Subscribe, channel: Channel, *, shared: bool) -> None:
        """Who may not have it changes nothing of it."""
        before = known.attachment
        if isinstance(before, SharedAttachment):
            busy = not shared and before.is_others(channel)
        else:
            busy = before is not None and not before.ended and before.channel is not channel
        if busy and not request.force:
            raise TopicBusy(
                f"subscriber {shown(request.subscriber)!r} of topic {shown(self.topic)!r} is attached on another "
                "connection"
            )

    @property
    def _last_durable(self) -> MessageId:
        """Where a new subscription begins. Ids that are not acknowledged may yet be given to other messages (I-92)."""
        last, durable = self.log.last_id, self.log.durable_id
        return last if last.local == durable else MessageId(durable)

    async def _store(self, subscriber: SubscriberId, known: _Subscriber | None, record: Subscription) -> _Subscriber:
        if known is None:
            return await self._fenced(
                self.log.while_listed(lambda listed: self._create(subscriber, record, listed)),
            )
        try:
            stored = await self._fenced(
                self._metadata.write_subscription(self.topic, subscriber, record, known.version)
            )
        except BookKeeperError:
            if isinstance(known.attachment, SharedAttachment):
                known.attachment.on_not_stored()
            raise
        known.record = Versioned(record, stored)
        known.position.on_stored(record.consumed)
        return known

    async def _create(self, subscriber: SubscriberId, record: Subscription, listed: int) -> _Subscriber:
        stored = await self._metadata.create_subscription(self.topic, subscriber, record, listed)
        known = self._subscribers[subscriber] = _Subscriber(Versioned(record, stored))
        if self.settings.regions is not None and not subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
            self.settings.regions.want(self)
        return known

    async def _store_moved(
        self, subscriber: SubscriberId, known: _Subscriber | None, preferences: Preferences, replay: Replay
    ) -> _Subscriber:
        """It begins where it asks for, as far as that is kept."""
        wanted = await where_of(replay, self.log, self.reader)

        async def move(listed: int) -> _Subscriber:
            # Nothing is trimmed meanwhile: what it begins with is there when its position says so.
            begin = at_id(wanted, max(self.first_kept, self.log.first_id), self.log.durable_id)
            record = Subscription(await id_before(begin.next_id, self.log, self.reader), preferences)
            log.info(
                "Subscriber {subscriber!r} of topic {topic!r} begins at {next_id}, as it asked ({lost} are not kept)",
                subscriber=subscriber,
                topic=self.topic,
                next_id=begin.next_id,
                lost=begin.lost,
            )
            if known is None:
                return await self._create(subscriber, record, listed)
            stored = await self._metadata.move_subscription(self.topic, subscriber, record, known.version, listed)
            known.record = Versioned(record, stored)
            known.position.move(record.consumed)
            return known

        return await self._fenced(self.log.while_listed(move))

    async def _fenced(self, change: Awaitable[R]) -> R:
        """A change of a subscription; where another hub made one, the topic is not ours any more."""
        try:
            return await change
        except StaleVersion as error:
            self._give_up(error)
            raise NotResponsible(f"another hub has topic {self.topic!r}: {error}") from error

    def _record(self, known: _Subscriber, preferences: Preferences, *, keep: bool = True) -> Subscription:
        """What is to be stored of it now. keep: also of what is acknowledged one by one."""
        if isinstance(known.attachment, SharedAttachment) and keep:
            return known.attachment.record(preferences)
        value = known.record.value
        if isinstance(value, SharedSubscription) and keep:
            return SharedSubscription(known.position.consumed_id, preferences, value.acknowledged)
        return Subscription(known.position.consumed_id, preferences)

    def _filter_of(self, subscriber: SubscriberId, preferences: Preferences) -> Filter | None:
        """None where everything is wanted."""
        name = preferences.message_filter
        chosen: Filter | None = None
        if name:
            make = self._filters.get(name)
            if make is None:
                known = ", ".join(sorted(self._filters)) or "none"
                raise InvalidFilter(f"this hub has no message filter {name!r}; it has: {known}")
            chosen = make(preferences)
        if not subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
            return chosen and guarded(chosen, self.topic, subscriber, self.clock.seconds)
        region, inner = self._region, chosen

        def of_this_region(message: FilterableMessage) -> bool:
            """Other regions get what was published here, or every message would go round for ever (3.7)."""
            return message.region == region and (inner is None or inner(message))

        return guarded(of_this_region, self.topic, subscriber, self.clock.seconds)

    def unsubscribe(self, subscriber: SubscriberId, channel: Channel | None = None) -> Deferred[None]:
        """End a subscription for good. Who has it hears that, on another connection than this one: it is to look where
        its subscription is, and finds that it is gone, or makes it anew.

        Fails with NotSubscribed, NotResponsible. Differs from Apache, whose hubs leave it waiting without a sign; so a
        hub whose region subscribed again before another one's late UNSUBSCRIBE never heard of that.
        """
        return self._one_by_one(lambda: Deferred.fromCoroutine(self._unsubscribe(subscriber, channel)))

    async def _unsubscribe(self, subscriber: SubscriberId, channel: Channel | None) -> None:
        self._check_served()
        known = self._subscribers.get(subscriber)
        if known is None:
            raise NotSubscribed("")
        version = known.version
        await self._fenced(
            self.log.while_listed(
                lambda listed: self._metadata.delete_subscription(self.topic, subscriber, version, listed)
            )
        )
        self._take_from(known, channel, Event.TOPIC_MOVED)
        self._subscribers.pop(subscriber, None)
        if self.settings.regions is not None and not self.has_ordinary:
            self.settings.regions.unwant(self)
        self._set_bound()

    def close_subscription(self, subscriber: SubscriberId, channel: Channel) -> None:
        """A connection lets go of a subscription, which stays. Harmless for one that it does not hold."""
        attachment = self._attached.get(subscriber)
        if isinstance(attachment, SharedAttachment):
            attachment.remove(channel)
            if not attachment.is_attached:
                del self._attached[subscriber]
        elif attachment is not None and attachment.channel is channel:
            self._detach(attachment, None)

    def _detach(self, attachment: Attachment | SharedAttachment, event: Event | None) -> None:
        if isinstance(attachment, SharedAttachment):
            attachment.end(event)
        else:
            attachment.ended = True
            attachment.channel.on_detached(self.topic, attachment.subscriber, attachment)
        if self._attached.get(attachment.subscriber) is attachment:
            del self._attached[attachment.subscriber]
        known = self._subscribers.get(attachment.subscriber)
        if known is not None and known.attachment is attachment:
            known.attachment = None
        if event is not None and isinstance(attachment, Attachment):
            attachment.channel.write([event_frame(self.topic, attachment.subscriber, event)])

    # --- consuming

    def consume(self, subscriber: SubscriberId, up_to: MessageId, channel: Channel | None = None) -> None:
        """All up to this id is consumed. What says nothing new, or of messages it was not given, is passed over.

        With individual acknowledgement: what SharedAttachment says. Raises MalformedRequest.
        """
        known = self._subscribers.get(subscriber)
        if known is None:
            return
        if isinstance(known.attachment, SharedAttachment):
            known.attachment.consume(up_to, channel)
            return
        check_consumed(up_to)
        if not known.position.on_consumed(up_to):
            return
        if known.position.is_due(self.settings.consume_interval):
            self._store_position(subscriber, known)
        if known.attachment is not None:
            known.attachment.resume()

    def _store_position(self, subscriber: SubscriberId, known: _Subscriber) -> None:
        if known.storing:
            return
        known.storing = True

        async def store() -> None:
            try:
                while not self._ended and known.position.is_due(self.settings.consume_interval):
                    record = Subscription(known.position.consumed_id, known.record.value.preferences)
                    await self._store(subscriber, known, record)
            finally:
                known.storing = False

        storing = self._one_by_one(lambda: Deferred.fromCoroutine(store()))
        storing.addErrback(
            lambda failure: log.warn(
                "The position of {subscriber!r} on {topic!r} is stored later: {error}",
                subscriber=subscriber,
                topic=self.topic,
                error=failure.value,
            )
        )

    def store_due(self) -> None:
        """Store positions that were moved on by what is passed over: nobody says that it is consumed, and for a filter
        that wants nothing all ledgers would be kept. To be called now and then.
        """
        for subscriber, known in self._subscribers.items():
            if not isinstance(known.attachment, SharedAttachment) and known.position.is_due(
                self.settings.consume_interval
            ):
                self._store_position(subscriber, known)

    def _store_shared(self, subscriber: SubscriberId, known: _Subscriber) -> None:
        async def store() -> None:
            shared = known.attachment
            if self._ended or not isinstance(shared, SharedAttachment) or not shared.is_dirty:
                return
            try:
                await self._store(subscriber, known, self._record(known, known.record.value.preferences))
            except BookKeeperError as error:
                log.warn(
                    "What {subscriber!r} acknowledged on {topic!r} is stored later: {error}",
                    subscriber=subscriber,
                    topic=self.topic,
                    error=error,
                )

        storing = self._one_by_one(lambda: Deferred.fromCoroutine(store()))
        storing.addErrback(lambda failure: log.failure("Storing acknowledgements broke", failure=failure))

    # --- trimming

    async def trim(self) -> int:
        """Delete the ledgers that nobody needs any more; how many went. See Trimmer for retention."""
        if self._ended:
            return 0
        point = LocalId(self.needed_from - 1)
        return len(await self.log.trim(point)) if point >= self.log.first_id else 0

    @property
    def needed_from(self) -> LocalId:
        """Nobody needs what is below: all have consumed it, and that is stored, or have given it up."""
        stored = [LocalId(each.position.stored) for each in self._subscribers.values()]
        return LocalId(trim_point(stored, self._bound, self.log.durable_id) + 1)

    def on_trimmed(self, through: LocalId) -> list[SubscriberId]:
        """All up to this id is gone; who had not consumed it. Those go on behind it."""
        behind = [name for name, each in self._subscribers.items() if each.position.consumed < through]
        for name in behind:
            attachment = self._attached.get(name)
            if attachment is not None:
                attachment.resume()
        return behind

    # --- the end

    def _give_up(self, error: PubSubError) -> None:
        """Another hub has the topic."""
        if not self._ended:
            self.log.abandon(error)
            self._end(Event.TOPIC_MOVED)
            self._on_lost(self)

    def abandon(self) -> None:
        """Drop it at once. `on_lost` is not called."""
        if not self._ended:
            self.log.abandon(NotResponsible(f"topic {self.topic!r} is not this hub's any more"))
            self._end(Event.TOPIC_MOVED)

    def _end(self, event: Event) -> None:
        self._ended = True
        if self.settings.regions is not None:
            self.settings.regions.drop(self)
        for known in list(self._subscribers.values()):
            if known.attachment is not None:  # shared ones are there without a connection too
                self._detach(known.attachment, event)
        self.recent.clear()
        self.reader.close()

    async def release(self) -> None:
        """Store all positions, finish what was published, and let go. Never fails; what could not be done is told."""
        if self._ended:
            return
        if self.settings.regions is not None:
            self.settings.regions.drop(self)
        await self.log.release()
        await self._one_by_one(lambda: Deferred.fromCoroutine(self._store_all()))
        if not self._ended:
            self._end(Event.TOPIC_MOVED)

    async def _store_all(self) -> None:
        def is_dirty(known: _Subscriber) -> bool:
            shared = known.attachment
            return shared.is_dirty if isinstance(shared, SharedAttachment) else known.position.is_dirty

        dirty = [name for name, known in self._subscribers.items() if is_dirty(known)]
        if len(dirty) == 1:  # most topics have one subscriber
            await self._store_last(dirty[0])
        elif dirty:
            await in_turns(dirty, self._store_last, min(len(dirty), STORED_AT_ONCE))

    async def _store_last(self, subscriber: SubscriberId) -> None:
        known = self._subscribers.get(subscriber)
        if self._ended or known is None:
            return
        record = self._record(known, known.record.value.preferences)
        try:
            await self._metadata.write_subscription(self.topic, subscriber, record, known.version)
        except BookKeeperError as error:
            log.warn(
                "The position of {subscriber!r} on {topic!r} is not stored, and some messages come again: {error}",
                subscriber=subscriber,
                topic=self.topic,
                error=error,
            )


def _afterwards(result: R, then: Callable[[], object]) -> R:
    then()
    return result
