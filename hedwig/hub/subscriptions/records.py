"""The stored records of one topic's subscriptions, and how far each of them is durable.

    load ---> by_name ---> store, move, delete       one change at a time, by version
                 |
                 +-------> store_position, store_due, store_acknowledged, store_all      positions, now and then

Who holds a subscription, and what that connection gets, is the topic's own matter (topic_service).

Cursor (I-93). What is stored never goes back, unless the subscriber asks to begin elsewhere (`move`), or it was beyond
the last message (`load`). What is consumed is never behind what is stored (`Position`), and a position that cannot be
stored now is stored later: a crash makes messages come again, and passes none over. A record is changed by the version
that this hub read or wrote last, and changes wait for each other (`one_by_one`), so that is the present one.

Unreadable. A record that cannot be read affects only its subscriber. Its position is unknown, so the subscription
counts as having consumed nothing and having no bound: nothing that it may need is deleted. A subscribe reads the record
again, and is refused with the reason if it is still unreadable. An unsubscribe ends the subscription.

Deleted messages. What a subscription has not consumed when a limit deletes it is stored as `Subscription.gone`, and the
position behind it: Apache's hubs lose a topic with a position before its first listed message. The records are written
just after the list. If the hub dies between both, the next hub of this project writes them.

Start (I-92). A new subscription begins behind the last message that is durable: an id that is not may yet be given to
another message. Its record is durable before `store` or `move` fires, and so before the subscribe is answered.

Ownership (I-90). What another hub could have made, moved or deleted meanwhile (`load` of a position that is brought
back, a new record, `move`, `delete`) is one transaction with a look at the version of the topic's list of ledgers,
which this hub leaves alone meanwhile (`TopicLog.while_listed`). A version that is not ours any more means that another
hub has the topic: `load` fails, and what a change finds gives the topic up.

Thread: reactor. Source: hedwig/PROTOCOL.md 2.3-2.5, 3.5, 4.5, 8.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError
from hedwig.errors import NotResponsible, StaleVersion, UnexpectedCondition
from hedwig.hub.metadata import HubMetadata, Versioned
from hedwig.hub.subscriptions.replay import id_before, where_of
from hedwig.hub.subscriptions.shared_attachment import SharedAttachment
from hedwig.model import FIRST_ID, Gone, LocalId, MessageId, Preferences, SharedSubscription, SubscriberId, Subscription
from hedwig.names import shown
from hedwig.protocol.options import Replay
from hedwig.protocol.replay import at_id
from hedwig.protocol.retention import is_made_by
from hedwig.protocol.subscription import Position, first_kept

if TYPE_CHECKING:
    from hedwig.hub.subscriptions.attachment import Attachment
    from hedwig.hub.topics.log import TopicLog
    from hedwig.hub.topics.reads import TopicReader
    from hedwig.hub.topics.service import TopicSettings

log = Logger()

R = TypeVar("R")

_ALL_READABLE: Mapping[SubscriberId, Versioned[UnexpectedCondition]] = MappingProxyType({})

STORED_AT_ONCE = 50
"""Positions of a topic that are written at the same time when it is released."""


class RecordedTopic(Protocol):
    """What the records need of their topic. ended: this hub has it no more. first_kept: of what its bound keeps."""

    log: TopicLog
    reader: TopicReader
    settings: TopicSettings
    first_kept: LocalId
    ended: bool

    def on_created(self, subscriber: SubscriberId) -> None:
        """A subscription was made, and is durable."""

    def give_up(self, error: StaleVersion) -> None:
        """Another hub has the topic."""


class Suspended(NamedTuple):
    """A message for which the filter of a subscription takes too long. preferences: contain the filter."""

    local_id: LocalId
    preferences: Preferences
    why: str

    def is_of(self, preferences: Preferences) -> bool:
        """Return whether `preferences` have the same filter with the same options."""
        asked, before = preferences, self.preferences
        return (asked.message_filter, asked.options) == (before.message_filter, before.options)


class StoredSubscription:
    """A subscription with its record, and the connection that holds it, if any. The topic sets the connection.

    suspended: the message at which the subscription was suspended, or None. It is not kept when the hub gives up the
    topic, since the filter meets the message again.
    """

    __slots__ = ("attachment", "position", "record", "storing", "suspended")

    def __init__(self, record: Versioned[Subscription]) -> None:
        self.record = record
        self.position = Position(record.value.consumed, gone=record.value.gone)
        self.attachment: Attachment | SharedAttachment | None = None
        self.storing = False
        self.suspended: Suspended | None = None

    @property
    def version(self) -> int:
        """What the next change of the record names."""
        assert self.record.version is not None
        return self.record.version

    @property
    def acknowledged(self) -> bytes:
        """What is acknowledged one by one, as it is stored."""
        value = self.record.value
        return value.acknowledged if isinstance(value, SharedSubscription) else b""


class _Changes:
    """Changes that run one after the other, in order. After a change that ends at once, a loop starts the next one.

    With Twisted's DeferredLock each such change runs inside the previous one. A client that sent some hundred
    subscribes at once exceeded the recursion limit, and the topic's lock was never released.
    """

    __slots__ = ("_is_looping", "_is_working", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Deferred[Any]], Deferred[Any]]] = deque()
        self._is_looping = self._is_working = False

    @property
    def is_idle(self) -> bool:
        """Whether no change runs or waits."""
        return not (self._waiting or self._is_working or self._is_looping)

    def add(self, change: Callable[[], Deferred[R]]) -> Deferred[R]:
        """Run the change after all earlier ones. Fires with its result."""
        done: Deferred[R] = Deferred()
        self._waiting.append((change, done))
        self._work()
        return done

    def _work(self) -> None:
        if self._is_looping:
            return
        self._is_looping = True
        while self._waiting and not self._is_working:
            change, done = self._waiting.popleft()
            self._is_working = True
            maybeDeferred(change).addBoth(self._ended, done)
        self._is_looping = False

    def _ended(self, result: Any, done: Deferred[Any]) -> None:
        self._is_working = False
        if isinstance(result, Failure):
            done.errback(result)
        else:
            done.callback(result)
        self._work()


class SubscriptionRecords:
    """See the module. by_name: all subscriptions of the topic; others read it, and change it by what is here.

    unreadable: subscriptions with an unreadable record, each with the reason; they are not in `by_name`.
    """

    # Hubs have 100,000 topics at rest, so state that the topic has is read from it and not copied here.
    __slots__ = ("_changes", "_metadata", "_topic", "by_name", "unreadable")

    def __init__(self, metadata: HubMetadata, topic: RecordedTopic) -> None:
        self._metadata, self._topic = metadata, topic
        self.by_name: dict[SubscriberId, StoredSubscription] = {}
        self.unreadable: Mapping[SubscriberId, Versioned[UnexpectedCondition]] = _ALL_READABLE
        self._changes: _Changes | None = None

    def one_by_one(self, change: Callable[[], Deferred[R]]) -> Deferred[R]:
        """Run a change of subscriptions after all earlier ones. `store`, `move` and `delete` are called within one."""
        if self._changes is None:
            self._changes = _Changes()
        done = self._changes.add(change)
        if self._changes.is_idle:
            self._changes = None  # not needed while the topic is idle
        else:
            done.addBoth(self._changed)
        return done

    def _changed(self, result: R) -> R:
        if self._changes is not None and self._changes.is_idle:
            self._changes = None
        return result

    # --- when the topic is acquired

    async def load(self) -> None:
        """All records, once the log is acquired. Raises PubSubError, BookKeeperError."""
        topic_log = self._topic.log
        unreadable: dict[SubscriberId, Versioned[UnexpectedCondition]] = {}
        found = await self._metadata.subscriptions(
            topic_log.topic,
            synced=True,  # the list was written just now
            unreadable=unreadable,
        )
        for subscriber, record in unreadable.items():
            log.error(
                "Subscriber {subscriber!r} of topic {topic!r} is refused, and messages that it may need are kept: "
                "{error}",
                subscriber=shown(subscriber),
                topic=shown(topic_log.topic),
                error=record.value,
            )
        self.unreadable = unreadable or _ALL_READABLE
        self.by_name = {
            subscriber: StoredSubscription(await self._within_log(subscriber, record))
            for subscriber, record in found.items()
        }
        self.note_deleted()

    async def read_again(self, subscriber: SubscriberId) -> None:
        """Read an unreadable record again: an operator may have restored or removed it. Within `one_by_one`.

        Raises UnexpectedCondition if it still cannot be read, BookKeeperError.
        """
        topic = self._topic.log.topic
        found = await self._metadata.subscription(topic, subscriber)
        rest = {name: each for name, each in self.unreadable.items() if name != subscriber}
        if found is None:
            self.unreadable = rest or _ALL_READABLE
            return
        value, version = found
        if isinstance(value, UnexpectedCondition):
            self.unreadable = {**rest, subscriber: Versioned(value, version)}
            raise UnexpectedCondition(
                f"subscriber {shown(subscriber)!r} of topic {shown(topic)!r}: {value}; "
                f"restore it, or end the subscription by `hedwig unsubscribe {shown(topic)} {shown(subscriber)}`"
            ) from value
        record = await self._within_log(subscriber, Versioned(value, version))
        self.by_name[subscriber] = StoredSubscription(record)
        self.unreadable = rest or _ALL_READABLE

    async def delete_unreadable(self, subscriber: SubscriberId) -> None:
        """End a subscription whose record `read_again` could not read; durable on return. Within `one_by_one`."""
        version = self.unreadable[subscriber].version
        assert version is not None
        await self._delete(subscriber, version)
        self.unreadable = {name: each for name, each in self.unreadable.items() if name != subscriber} or _ALL_READABLE

    async def _within_log(self, subscriber: SubscriberId, record: Versioned[Subscription]) -> Versioned[Subscription]:
        beyond = record.value.consumed.local > self._topic.log.last_id.local
        return await self._brought_back(subscriber, record) if beyond else record

    async def _brought_back(self, subscriber: SubscriberId, record: Versioned[Subscription]) -> Versioned[Subscription]:
        """A position beyond the last message, as hubs of Apache store it when a client says so: what is published until
        then would be passed over.
        """
        assert record.version is not None
        topic_log = self._topic.log
        log.warn(
            "Subscriber {subscriber!r} of topic {topic!r} is said to have consumed {consumed}, and the last message is "
            "{last}: it goes on behind that",
            subscriber=shown(subscriber),
            topic=shown(topic_log.topic),
            consumed=record.value.consumed.local,
            last=topic_log.last_id.local,
        )
        value = Subscription(topic_log.last_id, record.value.preferences, gone=record.value.gone)
        version = record.version

        def move(listed: int) -> Awaitable[int]:
            return self._metadata.move_subscription(topic_log.topic, subscriber, value, version, listed)

        return Versioned(value, await topic_log.while_listed(move))

    # --- changes that a client asked for

    @property
    def start_id(self) -> MessageId:
        """Where a new subscription begins. Ids that are not acknowledged may yet be given to other messages (I-92)."""
        last, durable = self._topic.log.last_id, self._topic.log.durable_id
        return last if last.local == durable else MessageId(durable)

    async def store(
        self, subscriber: SubscriberId, known: StoredSubscription | None, record: Subscription
    ) -> StoredSubscription:
        """Write what is new of a subscription, or a new one; durable on return. Raises BookKeeperError."""
        if known is None:
            return await self._fenced(
                self._topic.log.while_listed(lambda listed: self._create(subscriber, record, listed)),
            )
        try:
            stored = await self._fenced(
                self._metadata.write_subscription(self._topic.log.topic, subscriber, record, known.version)
            )
        except BookKeeperError:
            if isinstance(known.attachment, SharedAttachment):
                known.attachment.on_not_stored()
            raise
        known.record = Versioned(record, stored)
        known.position.on_stored(record)
        if isinstance(known.attachment, SharedAttachment):
            known.attachment.on_stored()
        return known

    async def _create(self, subscriber: SubscriberId, record: Subscription, listed: int) -> StoredSubscription:
        stored = await self._metadata.create_subscription(self._topic.log.topic, subscriber, record, listed)
        known = self.by_name[subscriber] = StoredSubscription(Versioned(record, stored))
        self._topic.on_created(subscriber)
        return known

    async def move(
        self, subscriber: SubscriberId, known: StoredSubscription | None, preferences: Preferences, replay: Replay
    ) -> StoredSubscription:
        """Begin where `replay` says, or at the first kept message behind that; durable on return.

        The deleted messages that `replay` includes are stored with it: see Position. Raises BookKeeperError.
        """
        topic_log, reader = self._topic.log, self._topic.reader
        wanted = await where_of(replay, topic_log, reader)

        async def move(listed: int) -> StoredSubscription:
            # Nothing is trimmed meanwhile: what it begins with is there when its position says so.
            begin = at_id(wanted, max(self._topic.first_kept, topic_log.first_id), topic_log.durable_id)
            asked, first_id = wanted, topic_log.first_id
            if replay.time_ms is not None and FIRST_ID < begin.next_id <= first_id:
                asked = await self._asked_from(replay.time_ms, begin.next_id)
            gone = Gone(asked, LocalId(first_id - 1)) if asked < first_id else None
            record = Subscription(await id_before(begin.next_id, topic_log, reader), preferences, gone=gone)
            log.info(
                "Subscriber {subscriber!r} of topic {topic!r} continues at message {next_id}, as requested{lost}",
                subscriber=shown(subscriber),
                topic=shown(topic_log.topic),
                next_id=begin.next_id,
                lost=f"; {begin.lost} messages before it were deleted" if begin.lost else "",
            )
            if known is None:
                return await self._create(subscriber, record, listed)
            stored = await self._metadata.move_subscription(topic_log.topic, subscriber, record, known.version, listed)
            known.record = Versioned(record, stored)
            known.position.move(record.consumed, gone)
            return known

        return await self._fenced(topic_log.while_listed(move))

    async def _asked_from(self, time_ms: int, first: LocalId) -> LocalId:
        """Return the first message that a start at a time may include. first: the first kept message.

        A time is searched in the kept messages only: deleted ones may be of that time too, unless known to be older.
        """
        ranges = self._topic.log.ranges
        made = ranges and is_made_by(await self._topic.reader.facts_of(ranges[0]), time_ms)
        return first if made else FIRST_ID

    async def delete(self, subscriber: SubscriberId, known: StoredSubscription) -> None:
        """The record goes, durable on return; who holds it has yet to hear of it, then `forget`. Raises
        BookKeeperError.
        """
        await self._delete(subscriber, known.version)

    async def _delete(self, subscriber: SubscriberId, version: int) -> None:
        topic_log = self._topic.log
        await self._fenced(
            topic_log.while_listed(
                lambda listed: self._metadata.delete_subscription(topic_log.topic, subscriber, version, listed)
            )
        )

    def forget(self, subscriber: SubscriberId) -> None:
        """It is deleted."""
        self.by_name.pop(subscriber, None)

    async def _fenced(self, change: Awaitable[R]) -> R:
        """A change of a subscription; where another hub made one, the topic is not ours any more."""
        try:
            return await change
        except StaleVersion as error:
            self._topic.give_up(error)
            raise NotResponsible(f"another hub has topic {self._topic.log.topic!r}: {error}") from error

    def present(self, known: StoredSubscription, preferences: Preferences, *, keep: bool = True) -> Subscription:
        """What is to be stored of it now. keep: also of what is acknowledged one by one."""
        if isinstance(known.attachment, SharedAttachment) and keep:
            return known.attachment.record(preferences)
        value = known.record.value
        if isinstance(value, SharedSubscription) and keep:
            acknowledged = value.acknowledged
            return SharedSubscription(known.position.consumed_id, preferences, acknowledged, gone=known.position.gone)
        return Subscription(known.position.consumed_id, preferences, gone=known.position.gone)

    # --- positions, which nobody waits for

    def first_wanted(self, known: StoredSubscription) -> LocalId:
        """The first message that the subscription's own bound keeps."""
        return first_kept(known.record.value.preferences.message_bound or 0, self._topic.log.durable_id)

    def note_deleted(self) -> None:
        """Note which messages are deleted, and store positions that would be before one of these."""
        for known in self.by_name.values():
            self.note_deleted_of(known)
        self.store_due()

    def note_deleted_of(self, known: StoredSubscription) -> None:
        """Note which messages of a subscription are deleted."""
        if isinstance(known.attachment, SharedAttachment):
            known.attachment.look_for_deleted()
        else:
            known.position.on_deleted(LocalId(self._topic.log.first_id - 1), self.first_wanted(known))

    def store_position(self, subscriber: SubscriberId, known: StoredSubscription) -> None:
        """Store its position, and once more while it moves on so fast that it is due again."""
        if known.storing:
            return
        known.storing = True

        async def store() -> None:
            try:
                while not self._topic.ended and known.position.is_due(self._topic.settings.consume_interval):
                    await self.store(subscriber, known, self.present(known, known.record.value.preferences))
            finally:
                known.storing = False

        storing = self.one_by_one(lambda: Deferred.fromCoroutine(store()))
        storing.addErrback(
            lambda failure: log.warn(
                "The position of {subscriber!r} on {topic!r} is stored later: {error}",
                subscriber=shown(subscriber),
                topic=shown(self._topic.log.topic),
                error=failure.value,
            )
        )

    def store_due(self) -> None:
        """Store positions that were moved on by what is passed over: nobody says that it is consumed, and for a filter
        that wants nothing all ledgers would be kept. To be called now and then.
        """
        interval = self._topic.settings.consume_interval
        for subscriber, known in self.by_name.items():
            if not isinstance(known.attachment, SharedAttachment) and known.position.is_due(interval):
                self.store_position(subscriber, known)

    def store_acknowledged(self, subscriber: SubscriberId, known: StoredSubscription) -> None:
        """Store what is acknowledged one by one, unless nothing is new."""

        async def store() -> None:
            shared = known.attachment
            if self._topic.ended or not isinstance(shared, SharedAttachment) or not shared.is_dirty:
                return
            try:
                await self.store(subscriber, known, self.present(known, known.record.value.preferences))
            except BookKeeperError as error:
                log.warn(
                    "What {subscriber!r} acknowledged on {topic!r} is stored later: {error}",
                    subscriber=shown(subscriber),
                    topic=shown(self._topic.log.topic),
                    error=error,
                )

        storing = self.one_by_one(lambda: Deferred.fromCoroutine(store()))
        storing.addErrback(lambda failure: log.failure("Storing acknowledgements failed", failure=failure))

    def store_all(self) -> Deferred[None]:
        """Store all that is new, once the log is released. Never fails; what could not be stored is told."""
        return self.one_by_one(lambda: Deferred.fromCoroutine(self._store_all()))

    async def _store_all(self) -> None:
        def is_dirty(known: StoredSubscription) -> bool:
            shared = known.attachment
            return shared.is_dirty if isinstance(shared, SharedAttachment) else known.position.is_dirty

        dirty = [name for name, known in self.by_name.items() if is_dirty(known)]
        if len(dirty) == 1:  # most topics have one subscriber
            await self._store_last(dirty[0])
        elif dirty:
            await in_parallel((self._store_last(name) for name in dirty), STORED_AT_ONCE)

    async def _store_last(self, subscriber: SubscriberId) -> None:
        known = self.by_name.get(subscriber)
        if self._topic.ended or known is None:
            return
        record = self.present(known, known.record.value.preferences)
        try:
            await self._metadata.write_subscription(self._topic.log.topic, subscriber, record, known.version)
        except BookKeeperError as error:
            log.warn(
                "The position of {subscriber!r} on {topic!r} is not stored, and some messages come again: {error}",
                subscriber=shown(subscriber),
                topic=shown(self._topic.log.topic),
                error=error,
            )
