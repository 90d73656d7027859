"""Bugs planted on purpose in hubs: each takes one guard out of the real code, and the campaign must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from bookkeeper.model import DigestType
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.subscriptions.attachment import Attachment
from hedwig.hub.subscriptions.records import SubscriptionRecords
from hedwig.hub.topics import service as topic_service
from hedwig.hub.topics.chain import LedgerChain
from hedwig.hub.topics.log import LogState, TopicLog
from hedwig.hub.topics.service import TopicService
from hedwig.model import Event, LocalId, MessageId
from hedwig.protocol.publish_time import PublishClock
from hedwig.protocol.subscription import Position, trim_point
from hedwig.wire.messages import stored_id
from hedwig.wire.requests import Publishes
from hedwig.wire.responses import DeliveryEncoder
from tests.simulation.mutants import TIMERS, timers_follow_the_wall_clock


def _original(owner: type, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = vars(owner)[name]
    return found


@contextmanager
def no_fencing() -> Iterator[None]:
    """I-90: the last ledger's end is read, and whoever writes it goes on."""

    async def unfenced(self: LedgerChain, ledger_id: int, first: int) -> MessageId | None:
        handle = await self._client.open_without_recovery(ledger_id, self._password, DigestType.CRC32)
        try:
            if handle.last_add_confirmed < 0:
                return None
            entries = await handle.read_unconfirmed(handle.last_add_confirmed, handle.last_add_confirmed)
            return stored_id(entries[0].payload)
        finally:
            handle.close()

    with mock.patch.object(LedgerChain, "recovered_end", unfenced):
        yield


@contextmanager
def times_follow_the_clock() -> Iterator[None]:
    """Messages are stamped with the hub's clock even if it was set back."""

    def stamp(self: PublishClock, now_ms: int) -> int:
        self.last_ms = now_ms
        return now_ms

    with mock.patch.object(PublishClock, "stamp", stamp):
        yield


@contextmanager
def list_not_by_version() -> Iterator[None]:
    """I-90: the list is written over whatever another hub has made of it."""
    write = HubMetadata.write_ranges

    async def over(self: HubMetadata, topic: Any, ranges: Any, version: int | None) -> int:
        found = await self.ranges(topic)
        return await write(self, topic, ranges, found.version)

    with mock.patch.object(HubMetadata, "write_ranges", over):
        yield


@contextmanager
def answer_before_it_is_durable() -> Iterator[None]:
    """I-88: a publish is answered when its entry is sent."""
    take = _original(TopicLog, "_take")

    def hasty(self: TopicLog, publish: Any) -> bool:
        taken: bool = take(self, publish)
        if publish.taken == len(publish.messages) and self.state is LogState.READY:
            on_done, publish.on_done = publish.on_done, lambda first, error: None
            self._clock.callLater(0.0, on_done, publish.first, None)
        return taken

    with mock.patch.object(TopicLog, "_take", hasty):
        yield


@contextmanager
def deliver_before_it_is_durable() -> Iterator[None]:
    """I-88: subscribers get what is sent to the ledger, whether it is stored or not."""
    take = _original(TopicLog, "_take")

    def hasty(self: TopicLog, publish: Any) -> bool:
        before = len(self._sent)
        taken: bool = take(self, publish)
        if len(self._sent) > before:
            stored = list(self._sent[-1])
            self._durable = self._last.local
            self._on_durable(stored)
        return taken

    def acknowledged(self: TopicLog, entry_ids: range) -> None:
        under_way = self._under_way
        assert self._open is None or self._open.first is not None
        durable = 0 if self._open is None else (self._open.first or 1) + entry_ids.stop - 1
        while under_way and under_way[0].last <= durable:
            publish = under_way.popleft()
            self._pending_bytes -= publish.size
            publish.on_done(publish.first, None)
        self._pump()

    with mock.patch.object(TopicLog, "_take", hasty), mock.patch.object(TopicLog, "_on_acknowledged", acknowledged):
        yield


@contextmanager
def an_id_is_used_again() -> Iterator[None]:
    """I-89: a new owner begins one id too early."""
    acquire = TopicLog.acquire

    async def forgetful(self: TopicLog) -> None:
        await acquire(self)
        if self._last.local > 1:
            self._last = MessageId(LocalId(self._last.local - 1))
            if self._ranges:
                self._ranges[-1] = replace(self._ranges[-1], last=self._last)

    with mock.patch.object(TopicLog, "acquire", forgetful):
        yield


@contextmanager
def published_again_after_an_error() -> Iterator[None]:
    """I-89: what was not answered is said not to be there."""

    def certain(self: TopicLog, error: Any, cause: Any, *, tell: bool = True) -> None:
        for publish in self._under_way:
            publish.taken = 0
        lose(self, error, cause, tell=tell)

    lose = _original(TopicLog, "_lose")
    with mock.patch.object(TopicLog, "_lose", certain):
        yield


@contextmanager
def consumed_what_was_not_delivered() -> Iterator[None]:
    """I-93: a consume of the future is believed."""

    def credulous(self: Position, up_to: MessageId) -> bool:
        if up_to.local <= self.consumed:
            return False
        self._id, self.consumed = up_to, up_to.local
        self.sent = max(self.sent, self.consumed)
        return True

    with mock.patch.object(Position, "on_consumed", credulous):
        yield


@contextmanager
def position_is_what_was_delivered() -> Iterator[None]:
    """I-93: what was sent counts as consumed."""
    sent = Position.on_sent

    def generous(self: Position, last: LocalId) -> None:
        sent(self, last)
        self._id, self.consumed = MessageId(last), last

    with mock.patch.object(Position, "on_sent", generous):
        yield


@contextmanager
def position_not_by_version() -> Iterator[None]:
    """I-93: a hub that lost the topic writes its old position over the new one."""
    write = HubMetadata.write_subscription

    async def over(self: HubMetadata, topic: Any, subscriber: Any, record: Any, version: int) -> int:
        found = (await self.subscriptions(topic)).get(subscriber)
        return await write(self, topic, subscriber, record, version if found is None else found.version or 0)

    with mock.patch.object(HubMetadata, "write_subscription", over):
        yield


@contextmanager
def deliver_past_a_gap() -> Iterator[None]:
    """I-92: where a message cannot be read from its ledger the next one is delivered."""

    def onwards(self: Attachment, failure: object, first: LocalId) -> None:
        if self._filter is not None:
            self._service.turns.end_reading()
        self._reading = False
        self._position.on_sent(self._position.next_id)
        self.resume()

    with mock.patch.object(Attachment, "_not_read", onwards):
        yield


@contextmanager
def old_messages_are_passed_over() -> Iterator[None]:
    """I-92: an attachment begins with what is in memory."""
    resume = Attachment.resume

    def hurried(self: Attachment) -> None:
        recent = self._service.recent
        if self.started and self._position.next_id < recent.first and len(recent):
            self._position.on_sent(LocalId(recent.first - 1))
        resume(self)

    with mock.patch.object(Attachment, "resume", hurried):
        yield


@contextmanager
def trim_one_too_much() -> Iterator[None]:
    """I-94: a message that the last subscriber has not consumed may go."""

    def greedy(stored: Iterable[LocalId], bound: int, last: LocalId) -> LocalId:
        return LocalId(min(trim_point(stored, bound, last) + 1, last))

    with mock.patch.object(topic_service, "trim_point", greedy):
        yield


@contextmanager
def trim_by_what_is_in_memory() -> Iterator[None]:
    """I-94: a ledger is deleted when all say that they consumed it, stored or not."""

    async def trim(self: TopicService) -> int:
        consumed = [LocalId(each.position.consumed) for each in self._records.by_name.values()]
        point = trim_point(consumed, 0, self.log.durable_id)
        return len(await self.log.trim(point)) if point >= self.log.first_id and not self.ended else 0

    with mock.patch.object(TopicService, "trim", trim):
        yield


@contextmanager
def subscribed_before_it_is_stored() -> Iterator[None]:
    """I-92: a subscribe is answered at once, and the record is written some time."""
    create = HubMetadata.create_subscription

    async def hasty(self: HubMetadata, topic: Any, subscriber: Any, record: Any, list_version: int) -> int:
        from twisted.internet.defer import Deferred

        writing = Deferred.fromCoroutine(create(self, topic, subscriber, record, list_version))
        writing.addErrback(lambda failure: None)
        return 0

    with mock.patch.object(HubMetadata, "create_subscription", hasty):
        yield


@contextmanager
def subscription_behind_what_is_not_durable() -> Iterator[None]:
    """I-92: it begins behind the last id that was given out."""
    with mock.patch.object(SubscriptionRecords, "start_id", property(lambda self: self._topic.log.last_id)):
        yield


@contextmanager
def who_lost_the_subscription_goes_on() -> Iterator[None]:
    """I-96: a forced attach leaves the other connection attached."""
    detach, durable = _original(TopicService, "_detach"), _original(TopicService, "_durable")
    left: dict[int, list[Attachment]] = {}

    def gentle(self: TopicService, attachment: Attachment, event: Any) -> None:
        detach(self, attachment, event)
        if event is Event.SUBSCRIPTION_FORCED_CLOSED:
            left.setdefault(id(self), []).append(attachment)

    def to_all(self: TopicService, stored: list[bytes]) -> None:
        durable(self, stored)
        for attachment in left.get(id(self), []):
            encoder = DeliveryEncoder(self.topic, attachment.subscriber)
            attachment.channel.write(encoder.parts(stored))

    with mock.patch.object(TopicService, "_detach", gentle), mock.patch.object(TopicService, "_durable", to_all):
        yield


@contextmanager
def no_window() -> Iterator[None]:
    """I-95: everything is sent at once."""
    with mock.patch.object(Position, "room", return_value=None):
        yield


@contextmanager
def answers_out_of_order() -> Iterator[None]:
    """I-89: messages of one connection go to the topic in another order."""
    some = _original(HubConnection, "_publish_some")

    def reversed_ones(self: HubConnection, service: Any, request: Publishes) -> None:
        for txn_id, message in reversed(list(zip(request.txn_ids, request.messages, strict=True))):
            some(self, service, Publishes(request.topic, False, request.plain, [txn_id], [message]))

    with mock.patch.object(HubConnection, "_publish_some", reversed_ones):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no fencing": no_fencing,
    "list not by version": list_not_by_version,
    "answer before it is durable": answer_before_it_is_durable,
    "deliver before it is durable": deliver_before_it_is_durable,
    "an id is used again": an_id_is_used_again,
    "published again after an error": published_again_after_an_error,
    "consumed what was not delivered": consumed_what_was_not_delivered,
    "position is what was delivered": position_is_what_was_delivered,
    "position not by version": position_not_by_version,
    "deliver past a gap": deliver_past_a_gap,
    "old messages are passed over": old_messages_are_passed_over,
    "trim one too much": trim_one_too_much,
    "trim by what is in memory": trim_by_what_is_in_memory,
    "subscribed before it is stored": subscribed_before_it_is_stored,
    "subscription behind what is not durable": subscription_behind_what_is_not_durable,
    "who lost the subscription goes on": who_lost_the_subscription_goes_on,
    "no window": no_window,
    "answers out of order": answers_out_of_order,
    "times follow the clock": times_follow_the_clock,
    TIMERS: timers_follow_the_wall_clock,
}
