"""Subscriptions: create or attach, how far each has consumed, and what of a topic nobody needs any more.

    exists   CREATE              ATTACH           CREATE_OR_ATTACH
    yes      AlreadySubscribed   attach           attach
    no       create              NotSubscribed    create

A new subscription begins behind the last message that was given an id, and is durable before it is answered (I-92).
Source: hedwig/PROTOCOL.md 2.3-2.5, 2.10, 2.11, 8.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hedwig.errors import AlreadySubscribed, MalformedRequest, NotSubscribed
from hedwig.model import (
    FIRST_ID,
    Gone,
    LocalId,
    MessageId,
    Preferences,
    SubscribeMode,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import shown

CONSUME_INTERVAL = 50
"""Ids between two writes of a subscriber's position."""

PASSED_OVER_MAX = 10_000
"""Runs of ids of one subscription that were passed over behind one that is not consumed, and are remembered."""

REMOTE_SIZE_MAX = 16 * 1024
"""Bytes of what a consumed id may say of other regions: all of a subscription has to fit into a znode."""


def subscribed(
    topic: Topic,
    subscriber: SubscriberId,
    found: Subscription | None,
    mode: SubscribeMode,
    preferences: Preferences | None,
    bound: int | None,
    last: MessageId,
    window_if_none: int | None = None,
) -> Subscription:
    """What is stored from now on; the same object as `found` where nothing changes. Raises AlreadySubscribed,
    NotSubscribed.

    bound: the field of clients of 4.1, which counts for a new subscription only. last: the topic's last id.
    window_if_none: also for a new subscription only.
    """
    if found is None:
        if mode is SubscribeMode.ATTACH:
            raise NotSubscribed(f"there is no subscriber {shown(subscriber)!r} of topic {shown(topic)!r} to attach to")
        of_new = Preferences(message_bound=bound, window_size=window_if_none)
        return Subscription(last, (preferences or Preferences()).merged(of_new))
    if mode is SubscribeMode.CREATE:
        raise AlreadySubscribed(f"there is a subscriber {shown(subscriber)!r} of topic {shown(topic)!r} already")
    if preferences is None:
        return found
    merged = found.preferences.merged(preferences)
    return found if merged == found.preferences else replace(found, preferences=merged)


def check_consumed(up_to: MessageId) -> None:
    """Raises MalformedRequest for an id that cannot be stored, as one that no hub gave."""
    size = sum(len(region) + 12 for region, _ in up_to.remote)
    if size > REMOTE_SIZE_MAX:
        raise MalformedRequest(
            f"the id of a consume says {size} bytes of other regions, and at most {REMOTE_SIZE_MAX} can be stored: "
            "send the id of the message as it came"
        )


class Position:
    """How far one subscriber is, in one hub's time with the topic.

    Everything up to `consumed` is consumed; up to `stored` that is durable. Never back unless the subscriber asks for
    that (`move`), never beyond what was delivered to it since this hub has the topic (I-93): what it says of earlier
    deliveries is heard again after the redelivery.

    What is passed over, by filter, bound or retention, nobody ever consumes: it counts as consumed once all before it
    is, and takes nothing of the window. Otherwise who consumed all that it was given would be given nothing any more.

    Deleted messages are passed over too, and `gone` are those that were not consumed: from the first of the oldest to
    the last of the newest. It is stored with the position, and kept until a later message is consumed by an attachment
    whose answer named it, since an answer may be lost. What is stored is never before a deleted message: Apache's hubs
    would lose the topic at the attempt to read there.
    """

    __slots__ = (
        "_deleted",
        "_gone_delivered",
        "_gone_stored",
        "_id",
        "_passed",
        "_passed_count",
        "_unnamed",
        "consumed",
        "delivered",
        "gone",
        "sent",
        "stored",
        "window_size",
    )

    # stored <= max(consumed, deleted) <= delivered;  consumed <= sent of the present attachment;  deleted <= sent
    # passed: first and last of runs of ids in consumed + 2 .. sent, in order and apart; passed_count: how many ids
    # deleted: all up to it are deleted, consumed or not; 0 if unknown
    # gone_delivered: the last id of `gone` that was delivered before it was deleted
    # unnamed: the first id of `gone` that the present attachment passed over and its answer did not name

    def __init__(self, stored: MessageId, window_size: int = 0, gone: Gone | None = None) -> None:
        self.window_size = window_size
        self._passed: list[tuple[LocalId, LocalId]] | None
        self._unnamed: LocalId | None
        self.move(stored, gone)

    @property
    def consumed_id(self) -> MessageId:
        """What is to be stored: all up to it is consumed or deleted; with what is known of other regions."""
        return self._id if self.consumed >= self._deleted else MessageId(self._deleted, self._id.remote)

    @property
    def next_id(self) -> LocalId:
        """To be delivered next."""
        return LocalId(self.sent + 1)

    def attach(self, window_size: int) -> None:
        """A connection takes the subscription: delivery begins behind what is consumed."""
        self._id = self.consumed_id
        self.sent = self.consumed = self._id.local
        self.window_size = window_size
        self._passed, self._passed_count, self._unnamed = None, 0, None

    def move(self, stored: MessageId, gone: Gone | None = None) -> None:
        """It begins anew behind this, back or forth, and that is durable. No connection has it.

        Nothing counts as delivered, so what is still said of deliveries before is not heard.
        """
        self._id = stored
        self.stored = self.consumed = self.delivered = self.sent = stored.local
        self.gone = self._gone_stored = gone
        self._deleted = self._gone_delivered = LocalId(0)
        self._passed, self._passed_count, self._unnamed = None, 0, None

    def room(self) -> int | None:
        """How many messages may be sent now; None: any number."""
        if not self.window_size:
            return None
        return max(0, self.window_size - (self.sent - self.consumed - self._passed_count))

    def on_sent(self, last: LocalId) -> None:
        """All up to this id were sent, or passed over."""
        self.sent = max(self.sent, last)
        self.delivered = max(self.delivered, last)

    def on_passed_over(self, first: LocalId, last: LocalId) -> None:
        """These ids are not for it, by its filter or bound."""
        if self.consumed == first - 1:
            self._id = MessageId(last, self._id.remote)
            self.consumed = last
        else:
            self._remember(first, last)
        self.on_sent(last)

    def on_deleted(self, last: LocalId, wanted: LocalId = FIRST_ID) -> None:
        """Note that all messages up to this id are deleted. wanted: the first that the subscription's bound keeps."""
        if last <= max(self.consumed, self._deleted):
            return
        first = LocalId(max(self.consumed + 1, self._deleted + 1, wanted))
        self._deleted = last
        if first <= last:
            self.gone = Gone(first if self.gone is None else self.gone.first, last)
            self._gone_delivered = LocalId(min(self.delivered, last))
        if self.sent < last:
            if self._unnamed is None and first <= last:
                self._unnamed = LocalId(max(first, self.next_id))
            self.on_passed_over(self.next_id, last)

    def follow(self, floor: LocalId, gone: Gone | None) -> None:
        """Note how far a subscription with individual acknowledgement is: see Acknowledgements."""
        self.gone = gone
        if self.consumed < floor:
            self.on_passed_over(LocalId(self.consumed + 1), floor)

    @property
    def is_unnamed(self) -> bool:
        """The present attachment passed over deleted messages that its answer did not name."""
        return self._unnamed is not None

    def _remember(self, first: LocalId, last: LocalId) -> None:
        passed = self._passed
        if passed is None:
            passed = self._passed = []
        if passed and passed[-1][1] == first - 1:
            passed[-1] = (passed[-1][0], last)
        else:
            if len(passed) >= PASSED_OVER_MAX:  # of a subscriber that consumes nothing: these wait for it then
                forgotten_first, forgotten_last = passed.pop(0)
                self._passed_count -= forgotten_last - forgotten_first + 1
            passed.append((first, last))
        self._passed_count += last - first + 1

    def on_consumed(self, up_to: MessageId) -> bool:
        """It has consumed all up to this; whether that is news."""
        if up_to.local > self.delivered:
            return False
        if up_to.local <= self.consumed:
            return up_to.local <= self._gone_delivered and self._shorten(up_to.local)
        self._shorten(up_to.local)
        self._id, self.consumed = up_to, up_to.local
        self.sent = max(self.sent, self.consumed)
        if self._passed:
            self._consume_passed(self._passed)
        return True

    def _shorten(self, consumed: LocalId) -> bool:
        """Deleted messages up to this id are consumed, or reported; whether that is news."""
        gone = self.gone
        if gone is None:
            return False
        first = LocalId(consumed + 1 if self._unnamed is None else min(consumed + 1, self._unnamed))
        if first <= gone.first:
            return False
        self.gone = Gone(first, gone.last) if first <= gone.last else None
        return True

    def _consume_passed(self, passed: list[tuple[LocalId, LocalId]]) -> None:
        """Nothing before these is unconsumed any more."""
        count = 0
        for first, last in passed:
            if first > self.consumed + 1:
                break
            count += 1
            self._passed_count -= last - first + 1
            if last > self.consumed:
                self._id = MessageId(last, self._id.remote)
                self.consumed = last
        del passed[:count]

    def is_due(self, interval: int = CONSUME_INTERVAL) -> bool:
        """So much was consumed that it is to be stored, or what is stored is before a deleted message."""
        return self.is_dirty and (self.consumed_id.local - self.stored >= interval or self.stored < self._deleted)

    @property
    def is_dirty(self) -> bool:
        """Something was consumed or deleted that is not stored."""
        return self.consumed_id.local > self.stored or self.gone != self._gone_stored

    def on_stored(self, record: Subscription) -> None:
        """This much is durable."""
        self.stored = max(self.stored, record.consumed.local)
        self._gone_stored = record.gone


# --- of a whole topic


def topic_bound(subscribers: Iterable[Preferences]) -> int:
    """How many of the newest messages are kept for those that have not consumed them; 0: all.

    The greatest of the bounds, if each subscriber has one; nobody is deprived of what it has not given up.
    """
    greatest = 0
    for preferences in subscribers:
        if not preferences.message_bound:
            return 0  # without a look at all the others: it is asked at every subscribe
        greatest = max(greatest, preferences.message_bound)
    return greatest


def first_kept(bound: int, last: LocalId) -> LocalId:
    """The first message that a topic's bound keeps."""
    return LocalId(max(1, last - bound + 1)) if bound else LocalId(1)


def trim_point(stored: Iterable[LocalId], bound: int, last: LocalId) -> LocalId:
    """All up to here may be deleted: every subscriber's stored position is past it, or the bound gives it up (I-94).

    Without a subscriber that is everything.
    """
    positions = list(stored)
    if not positions:
        return last
    return LocalId(max(min(positions), first_kept(bound, last) - 1))
