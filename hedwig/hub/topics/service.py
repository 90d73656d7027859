"""One topic while this hub serves it: who is attached to it, and what clients ask of it.

    publish ---> TopicLog ---acknowledged---> answers, then RecentMessages ---> every attached subscriber
                                                                 ^
    old messages: TopicReader ---> the subscriber that asked ----+ (not kept: the next one reads its own)

A subscription exists in the metadata; it is *attached* while a connection holds it, and one connection at a time does
(I-96). What is stored of it, and when, is for subscription_records: what it consumed every `consume_interval` ids, when
the topic is released, and when the hub stops; where it begins before the subscribe is answered.

Whoever is slow is asked nothing and costs nothing: nothing is prepared for a connection that takes nothing (I-95).

Where the log or the records find that another hub has the topic, everything is given up. Thread: reactor. Source:
hedwig/PROTOCOL.md 2.3-2.7, 2.10, 2.11, 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.metrics import Counter
from hedwig.errors import (
    FilterTooCostly,
    MalformedRequest,
    NotResponsible,
    NotSubscribed,
    PubSubError,
    TopicBusy,
    UnexpectedCondition,
)
from hedwig.filters import Filter, LogBound, MakeFilter, chosen_filter, log_suspended
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.named_retention import NamedRetention
from hedwig.hub.subscriptions.attachment import Attachment, Channel, Held
from hedwig.hub.subscriptions.delivery_budget import OutstandingBudget
from hedwig.hub.subscriptions.records import StoredSubscription, SubscriptionRecords, Suspended
from hedwig.hub.subscriptions.shared_attachment import SharedAttachment
from hedwig.hub.topics.log import LogState, OnDone, TopicLog
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.reads import TopicReader
from hedwig.hub.topics.recent import RecentBudget, RecentMessages
from hedwig.hub.turns import DeliveryTurns
from hedwig.model import (
    HUB_SUBSCRIBER_PREFIX,
    Event,
    LocalId,
    MessageId,
    Preferences,
    SubscribeMode,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import shown, subscriber_part
from hedwig.protocol.options import AckOptions, ack_options, answered, check_size, check_wanted, replay_wanted
from hedwig.protocol.subscription import (
    CONSUME_INTERVAL,
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
    from hedwig.hub.regions.sources import Regions

R = TypeVar("R")

RESUMED_AT_ONCE = 64
"""Subscriptions that deliver newly published messages between two checks of the clock: about 0.5 ms. The clock is also
checked after each subscription with individual acknowledgement, which may take several ms."""

_FORCED = Event.SUBSCRIPTION_FORCED_CLOSED

OnAttached = Callable[[Preferences, Held], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """window_size: where a subscription does not say; 0 none. consume_interval: ids between two writes of a position.
    read_ahead, read_size: messages of one read from a ledger, and bytes, about. retry_delay_s: after a read that
    failed. dead_letters: publishes to a topic of any hub, and fires once that is durable; None: options that need it
    are refused. regions: the others, if there are some. dropped_logged: bounds the log lines about messages that are
    dropped because no topic for dead letters is named. outstanding: shared by all topics of the hub.
    """

    log: TopicLogSettings = field(default_factory=TopicLogSettings)
    window_size: int = 0
    consume_interval: int = CONSUME_INTERVAL
    read_ahead: int = 100
    read_size: int = 4 * 1024 * 1024
    retry_delay_s: float = 1.0
    dead_letters: Callable[[Topic, bytes], Awaitable[None]] | None = None
    regions: Regions | None = None
    dropped_logged: LogBound = field(default_factory=LogBound, compare=False)
    outstanding: OutstandingBudget = field(default_factory=OutstandingBudget, compare=False)


class TopicService:
    """See the module. on_lost: the topic has to be given up, or acquired anew. delivered: counts messages sent.

    turns: shared by all topics of a hub.

    ended: nothing is served, delivered or stored any more. look_again_s: until then, by the clock, the Trimmer skips
    the topic if it has no subscription.
    """

    __slots__ = (
        "_attached",
        "_bound",
        "_budget",
        "_filters",
        "_metadata",
        "_named",
        "_on_lost",
        "_records",
        "_region",
        "_round",
        "_round_again",
        "clock",
        "delivered",
        "ended",
        "first_kept",
        "log",
        "look_again_s",
        "reader",
        "recent",
        "settings",
        "topic",
        "turns",
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
        turns: DeliveryTurns | None = None,
    ) -> None:
        self.delivered, self.turns = delivered or Counter(), turns or DeliveryTurns(clock)
        self.topic, self.settings, self.clock = topic, settings, clock
        self._region, self._filters, self._on_lost = region, filters, on_lost
        self.log = TopicLog(metadata, client, clock, topic, stamp, settings.log, self._lost, self._durable)
        self.reader = TopicReader(client, self.log, settings.read_size)
        self.recent = RecentMessages(budget, LocalId(1))
        self.first_kept = LocalId(1)
        self._budget = budget
        self._bound = 0
        self._records = SubscriptionRecords(metadata, self)
        self._metadata = metadata
        self._named: NamedRetention | None = None
        self._attached: dict[SubscriberId, Attachment | SharedAttachment] = {}
        self._round: list[Attachment | SharedAttachment] = []  # still to be resumed
        self._round_again = False  # more was stored since that round began
        self.ended = False
        self.look_again_s = 0.0

    # --- the topic

    async def acquire(self) -> None:
        """Take it over. Raises PubSubError, BookKeeperError."""
        await self.log.acquire()
        self.recent = RecentMessages(self._budget, LocalId(self.log.last_id.local + 1))
        await self._records.load()
        self._set_bound()
        if self.settings.regions is not None and self.has_ordinary:
            self.settings.regions.want(self)

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
        if self._round:
            self._round_again = True
        else:
            self._resume(list(self._attached.values()))

    def _resume(self, attachments: list[Attachment | SharedAttachment]) -> None:
        """Resume these attachments. If this turn has no time left, later turns resume the remaining ones."""
        for count, attachment in enumerate(attachments, 1):
            attachment.resume()
            is_time_checked = count % RESUMED_AT_ONCE == 0 or isinstance(attachment, SharedAttachment)
            if is_time_checked and count < len(attachments) and not self.turns.has_time():
                self._round = attachments[count:]
                self.turns.later(self._resume_others)
                return

    def _resume_others(self) -> None:
        attachments, self._round = self._round, []
        self._resume(attachments)
        if self._round_again and not self._round:
            self._round_again = False
            self._resume(list(self._attached.values()))

    def _set_bound(self) -> None:
        records = self._records
        # An unreadable subscription may have no bound.
        self._bound = (
            0 if records.unreadable else topic_bound(each.record.value.preferences for each in records.by_name.values())
        )
        self.first_kept = first_kept(self._bound, self.log.durable_id)

    def _lost(self, error: PubSubError) -> None:
        self._end(Event.TOPIC_MOVED)
        self._on_lost(self)

    @property
    def is_served(self) -> bool:
        """It is this hub's, and is not being released."""
        return not self.ended and self.log.state is LogState.READY

    def _check_served(self) -> None:
        if not self.is_served:
            raise NotResponsible(f"this hub does not serve topic {self.topic!r} any more")

    @property
    def acknowledged_id(self) -> LocalId:
        """The last acknowledged message. Raises NotResponsible if another hub may have acknowledged later ones."""
        self._check_served()
        return self.log.durable_id

    def on_created(self, subscriber: SubscriberId) -> None:
        """Its first record is durable."""
        if self.settings.regions is not None and not subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
            self.settings.regions.want(self)

    # --- subscribing

    @property
    def has_ordinary(self) -> bool:
        """Somebody other than hubs of other regions subscribed."""
        names = chain(self._records.by_name, self._records.unreadable)
        return any(not subscriber.startswith(HUB_SUBSCRIBER_PREFIX) for subscriber in names)

    def subscribe(self, request: Subscribe, channel: Channel, on_attached: OnAttached) -> Deferred[None]:
        """Make or attach a subscription, for this connection.

        on_attached: told the preferences that hold, and what delivers once it is started, before anybody else can take
        the subscription or end it: so a subscriber never hears of an end first and of its success then (I-96).

        Fails with AlreadySubscribed, NotSubscribed, TopicBusy, InvalidFilter, MalformedRequest, NotResponsible, and
        with CompositeFailure where it is the first one, is to wait for the other regions, and one of those cannot.
        """

        def subscribe() -> Deferred[None]:
            return self._records.one_by_one(
                lambda: Deferred.fromCoroutine(self._subscribe(request, channel, on_attached))
            )

        regions = self.settings.regions
        if regions is None or not request.synchronous or request.mode is SubscribeMode.ATTACH or self.has_ordinary:
            return subscribe()
        if self.ended or request.subscriber.startswith(HUB_SUBSCRIBER_PREFIX):
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
        if request.subscriber in self._records.unreadable:
            try:
                await self._records.read_again(request.subscriber)
            finally:
                self._set_bound()
            self._check_served()
        known = self._records.by_name.get(request.subscriber)
        found = None if known is None else known.record.value
        wanted = subscribed(
            self.topic,
            request.subscriber,
            found,
            request.mode,
            request.preferences,
            request.message_bound,
            self._records.start_id,
            request.window_if_none,
        )
        # Before anything is stored: a name that no hub knows would make every later subscribe fail
        # (hedwig/PROTOCOL.md 6.1).
        wanted_ones = chosen_filter(
            self._filters, wanted.preferences, self.topic, request.subscriber, self._region, self.clock.seconds
        )
        individual = check_wanted(request.preferences, wanted.preferences, self.topic)
        if individual is not None and individual.dead_letter is not None and self.settings.dead_letters is None:
            raise MalformedRequest("this hub cannot publish dead letters")
        if wanted is not found:
            check_size(wanted.preferences)
        replay = replay_wanted(None if found is None else found.preferences, request.preferences)
        if known is not None:
            if replay is None:
                self._check_suspended(request.subscriber, known, wanted.preferences)
            self._check_free(known, request, channel, shared=individual is not None and individual.shared)
        if replay is not None:
            known = await self._records.move(request.subscriber, known, wanted.preferences, replay)
            self._set_bound()
        elif wanted is not found:
            record = Subscription(wanted.consumed, wanted.preferences)
            if known is not None:
                record = self._records.present(known, wanted.preferences, keep=individual is not None)
            known = await self._records.store(request.subscriber, known, record)
            self._set_bound()
        assert known is not None
        self._check_served()
        known.suspended = None
        self.note_deleted(request.subscriber)
        applied = wanted.preferences
        if applied.window_size is None:
            applied = replace(applied, window_size=request.window_if_none)
        window_size = self.settings.window_size if applied.window_size is None else applied.window_size
        held: Held
        if individual is None:
            self._take_from(known, channel, _FORCED)
            known.position.attach(window_size)
            held = attachment = Attachment(
                self, request.subscriber, known.position, channel, wanted_ones, reads_gone=request.reads_gone
            )
            known.attachment = self._attached[request.subscriber] = attachment
            gone = known.position.gone
        else:
            shared = self._shared(
                request.subscriber, known, individual, window_size, wanted_ones, channel, anew=replay is not None
            )
            if request.force or not individual.shared:
                shared.remove_others(channel, _FORCED)
            held = shared.add(channel, reads_gone=request.reads_gone)
            gone = shared.lost
            self._attached[request.subscriber] = shared
        on_attached(answered(applied, gone), held)

    def _shared(
        self,
        subscriber: SubscriberId,
        known: StoredSubscription,
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
        shared = SharedAttachment(
            self,
            subscriber,
            known.position,
            options,
            window_size,
            wanted,
            known.acknowledged,
            lambda: self._records.store_acknowledged(subscriber, known),
        )
        known.attachment = shared
        return shared

    def _take_from(self, known: StoredSubscription, channel: Channel | None, event: Event) -> None:
        """Whoever else has it is told that it has not."""
        before = known.attachment
        if isinstance(before, SharedAttachment):
            before.end(event, without=channel)
            self._detach(before, None)
        elif before is not None:
            self._detach(before, None if before.ended or before.channel is channel else event)

    def _check_free(self, known: StoredSubscription, request: Subscribe, channel: Channel, *, shared: bool) -> None:
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

    def suspend(self, subscriber: SubscriberId, local_id: LocalId, error: FilterTooCostly) -> None:
        """End the attachment at a message for which its filter takes too long. See attachment.py."""
        known = self._records.by_name[subscriber]
        preferences = known.record.value.preferences
        known.suspended = Suspended(local_id, preferences, str(error))
        log_suspended(self.topic, subscriber, preferences, local_id, error, self.clock.seconds())
        attachment = self._attached.get(subscriber)
        if isinstance(attachment, SharedAttachment):
            attachment.remove_all(Event.TOPIC_MOVED)
            del self._attached[subscriber]
        elif attachment is not None:
            self._detach(attachment, Event.TOPIC_MOVED)

    def _check_suspended(self, subscriber: SubscriberId, known: StoredSubscription, preferences: Preferences) -> None:
        """Raise FilterTooCostly if a filter that took too long would be applied to the same message again."""
        found = known.suspended
        if found is None or not found.is_of(preferences) or found.local_id < max(self.log.first_id, self.first_kept):
            return
        raise FilterTooCostly(
            f"the filter of subscriber {shown(subscriber)!r} of topic {shown(self.topic)!r} takes too long for message "
            f"{found.local_id}: {found.why}. No message was lost. Subscribe with another expression (`--filter`, "
            "`with_expression`): fewer LIKE, = or IN instead; `$size >= 0` takes all messages. Or begin behind the "
            f"message (`--from {found.local_id + 1}`, `start={found.local_id + 1}`)"
        )

    def unsubscribe(self, subscriber: SubscriberId, channel: Channel | None = None) -> Deferred[None]:
        """End a subscription for good. Who has it hears that, on another connection than this one: it is to look where
        its subscription is, and finds that it is gone, or makes it anew.

        Fails with NotSubscribed, NotResponsible. Differs from Apache, whose hubs leave it waiting without a sign; so a
        hub whose region subscribed again before another one's late UNSUBSCRIBE never heard of that.
        """
        return self._records.one_by_one(lambda: Deferred.fromCoroutine(self._unsubscribe(subscriber, channel)))

    async def _unsubscribe(self, subscriber: SubscriberId, channel: Channel | None) -> None:
        self._check_served()
        if subscriber in self._records.unreadable:
            with suppress(UnexpectedCondition):
                await self._records.read_again(subscriber)  # for its present version
        if subscriber in self._records.unreadable:
            await self._records.delete_unreadable(subscriber)
        else:
            known = self._records.by_name.get(subscriber)
            if known is None:
                raise NotSubscribed("")
            await self._records.delete(subscriber, known)
            self._take_from(known, channel, Event.TOPIC_MOVED)
            self._records.forget(subscriber)
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
        known = self._records.by_name.get(attachment.subscriber)
        if known is not None and known.attachment is attachment:
            known.attachment = None
        if event is not None and isinstance(attachment, Attachment):
            attachment.channel.write([event_frame(self.topic, attachment.subscriber, event)])

    def end_attachment(self, attachment: Attachment | SharedAttachment) -> None:
        """End an attachment that passed over messages; the client attaches again, and the answer names them.

        Or drop a shared attachment without a connection, to release its memory.
        """
        self._detach(attachment, Event.TOPIC_MOVED)

    # --- consuming

    def consume(self, subscriber: SubscriberId, up_to: MessageId, channel: Channel | None = None) -> bool:
        """Note that all messages up to this id are consumed; return whether the call may have taken several ms.

        Ignores an id that was consumed before or was not delivered. With individual acknowledgement: see
        SharedAttachment.consume. Raises MalformedRequest.
        """
        known = self._records.by_name.get(subscriber)
        if known is None:
            return False
        if isinstance(known.attachment, SharedAttachment):
            known.attachment.consume(up_to, channel)
            return True
        if known.attachment is None and ack_options(known.record.value.preferences) is not None:
            return False  # its attachment released its memory: the message comes again
        check_consumed(up_to)
        if not known.position.on_consumed(up_to):
            return False
        if known.position.is_due(self.settings.consume_interval):
            self._records.store_position(subscriber, known)
        if known.attachment is not None:
            known.attachment.resume()
        return False

    def store_due(self) -> None:
        """See SubscriptionRecords."""
        self._records.store_due()

    # --- trimming

    def name_retention(self, keep_ms: int, set_by: LocalId | None = None) -> Deferred[None]:
        """Set the retention of the topic; see NamedRetention."""
        self.look_again_s = 0.0
        return self._named_retention.name(keep_ms, set_by)

    async def named_keep_ms(self) -> int | None:
        """Return the retention that publishers set; None: none. Raises BookKeeperError."""
        return await self._named_retention.keep_ms()

    @property
    def may_be_named_ms(self) -> set[int | None]:
        """The value of `named_keep_ms` and those that are being set: one of them applies. Empty: unknown."""
        return self._named_retention.may_count

    @property
    def _named_retention(self) -> NamedRetention:
        if self._named is None:
            self._named = NamedRetention(self._metadata, self.log, self.clock, self.give_up)
        return self._named

    async def trim(self) -> int:
        """Delete the ledgers that nobody needs any more; how many went. See Trimmer for retention."""
        if self.ended:
            return 0
        point = LocalId(self.needed_from - 1)
        return len(await self.log.trim(point)) if point >= self.log.first_id else 0

    def note_deleted(self, subscriber: SubscriberId) -> None:
        """See SubscriptionRecords."""
        self._records.note_deleted_of(self._records.by_name[subscriber])

    def first_wanted(self, subscriber: SubscriberId) -> LocalId:
        """See SubscriptionRecords."""
        return self._records.first_wanted(self._records.by_name[subscriber])

    @property
    def is_subscribed(self) -> bool:
        """The topic has a subscription, readable or not."""
        return bool(self._records.by_name or self._records.unreadable)

    @property
    def unreadable_count(self) -> int:
        """Number of subscriptions with an unreadable record."""
        return len(self._records.unreadable)

    @property
    def needed_from(self) -> LocalId:
        """Nobody needs what is below: all have consumed it, and that is stored, or have given it up."""
        stored = [LocalId(each.position.stored) for each in self._records.by_name.values()]
        if self._records.unreadable:
            stored.append(LocalId(0))  # their positions are unknown
        return LocalId(trim_point(stored, self._bound, self.log.durable_id) + 1)

    @property
    def consumed(self) -> dict[SubscriberId, LocalId]:
        """How far each subscription is."""
        return {name: each.position.consumed for name, each in self._records.by_name.items()}

    def on_trimmed(self, through: LocalId, consumed: Mapping[SubscriberId, LocalId]) -> list[SubscriberId]:
        """Return the subscriptions that had not consumed all messages up to this id. They continue behind it.

        These messages are deleted. consumed: positions before the deletion, since an attached subscription may have
        passed over the messages by now.
        """
        behind = [name for name, local in consumed.items() if local < through and name in self._records.by_name]
        self._records.note_deleted()
        for name in behind:
            attachment = self._attached.get(name)
            if attachment is not None:
                attachment.resume()
        return [*behind, *self._records.unreadable]

    # --- the end

    def give_up(self, error: PubSubError) -> None:
        """Another hub has the topic."""
        if not self.ended:
            self.log.abandon(error)
            self._end(Event.TOPIC_MOVED)
            self._on_lost(self)

    def abandon(self) -> None:
        """Drop it at once. `on_lost` is not called."""
        if not self.ended:
            self.log.abandon(NotResponsible(f"topic {self.topic!r} is not this hub's any more"))
            self._end(Event.TOPIC_MOVED)

    def _end(self, event: Event) -> None:
        self.ended = True
        if self.settings.regions is not None:
            self.settings.regions.drop(self)
        for known in list(self._records.by_name.values()):
            if known.attachment is not None:  # shared ones are there without a connection too
                self._detach(known.attachment, event)
        self.recent.clear()
        self.reader.close()

    async def release(self) -> None:
        """Store all positions, finish what was published, and let go. Never fails; what could not be done is told."""
        if self.ended:
            return
        if self.settings.regions is not None:
            self.settings.regions.drop(self)
        await self.log.release()
        await self._records.store_all()
        if not self.ended:
            self._end(Event.TOPIC_MOVED)


def _afterwards(result: R, then: Callable[[], object]) -> R:
    then()
    return result
