"""A subscription whose messages are acknowledged one by one, and that several clients may share. Pure.

    preferences = one_by_one(shared=True, attempts_max=5, dead_letter="graves")
    subscription = await client.subscribe(topic, subscriber, preferences=preferences)
    async for message in subscription:
        ...                                 subscription.ack(message), or nack(message)

A message comes until it is acknowledged: once more for each timeout, for each connection that is lost with it, and for
a hub that died before it stored the acknowledgement; then perhaps to another client. So it may come twice, and later
than younger ones. What this object acknowledged it does not hand out again. Messages that were not handed out when the
connection ended are let go of: they come again to whoever is there.

Its time and its attempts count from the delivery to this client, also while it waits here behind others: where one
takes long, have no more of them fetched ahead than are done in that time (`in_flight_max`).

Acknowledgements are told soon, several at once, and before `close` is done. They are durable a second later (hub).
Apache's hubs would take an acknowledgement for one of all messages before: there the subscription fails instead.

Nothing is acknowledged by itself: `auto_consume` is of no use here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from bookkeeper.errors import InvalidArgument
from hedwig.client.faces.values import Text, number_of, seconds_of, shown, topic_of
from hedwig.model import LocalId, MessageId, Preferences
from hedwig.names import topic_part
from hedwig.protocol.options import (
    ACK,
    ACK_ATTEMPTS,
    ACK_OUTSTANDING,
    ACK_TIMEOUT,
    ATTEMPT,
    ATTEMPTS_MAX,
    DEAD_LETTER,
    OUTSTANDING_ASKED_MAX,
    SHARED,
    SHARED_IN_FLIGHT,
    TIMEOUT_MS_MAX,
    Acknowledge,
    GiveBack,
    consumed,
)
from hedwig.wire.receiving import Received

DONE_MAX = 10_000
"""Acknowledged messages that are remembered, not to be handed out again."""


def one_by_one(
    *,
    shared: bool = False,
    timeout_s: float | None = None,
    attempts_max: int | None = None,
    dead_letter: Text | None = None,
    in_flight_max: int | None = None,
    outstanding_max: int | None = None,
) -> Preferences:
    """Preferences that ask for it; None: as it was, at first the hub's default.

    shared: several connections have it at a time. timeout_s: to acknowledge a message, or it comes again; 60.
    attempts_max: deliveries of one message, then it goes to the topic `dead_letter`, or is dropped; 0: no end, the
    default. in_flight_max: messages that one connection has and has not acknowledged; 1000, and not more than the
    window. outstanding_max: messages that all connections together have and have not acknowledged; 10 000, which is
    also the maximum. Raises InvalidArgument, MalformedRequest.
    """
    options = {ACK: b"individual", SHARED: b"true" if shared else b"false"}
    if timeout_s is not None:
        if seconds_of(timeout_s, "timeout_s", TIMEOUT_MS_MAX / 1000) == 0:
            raise InvalidArgument(f"timeout_s is {shown(timeout_s)}: every message would come again at once")
        options[ACK_TIMEOUT] = b"%d" % max(1, round(timeout_s * 1000))
    for name, what, number, low, high in (
        (ACK_ATTEMPTS, "attempts_max", attempts_max, 0, ATTEMPTS_MAX),
        (SHARED_IN_FLIGHT, "in_flight_max", in_flight_max, 1, OUTSTANDING_ASKED_MAX),
        (ACK_OUTSTANDING, "outstanding_max", outstanding_max, 1, OUTSTANDING_ASKED_MAX),
    ):
        if number is not None:
            options[name] = b"%d" % number_of(number, what, low, high)
    if dead_letter is not None:
        topic_part(topic_of(dead_letter, "dead_letter"))
        options[DEAD_LETTER] = topic_of(dead_letter, "dead_letter")
    return Preferences(options=options)


def attempt(message: Received) -> int:
    """Which delivery of the message this is, from 1, as its hub counts them."""
    value = message.properties.get(ATTEMPT, b"1")
    return int(value) if value.isdigit() else 1


class OneByOne:
    """The individual acknowledgements of one subscription object, with the methods of `cursor`."""

    heard = LocalId(0)
    """Constant: messages come in any order, so a received id implies nothing about lower ones."""

    keeps_waiting = False
    """When the connection ends, what waits for the reader is for whoever gets it next."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing was heard or acknowledged yet."""
        self._done: OrderedDict[LocalId, None] = OrderedDict()
        self._pending: set[LocalId] = set()
        self._highest = LocalId(0)

    def on_attached(self) -> None:
        """A hub (again); it is told what the one before was not told."""

    # --- what comes

    def on_delivered(self, messages: list[Received], waiting: Collection[Received]) -> list[Received]:
        """Those to be handed out: not what is done, nor what waits for the reader already."""
        known: set[LocalId] = set()
        if min(each.local_id for each in messages) <= self._highest:
            known = {each.local_id for each in waiting}
        found = []
        for each in messages:
            if each.local_id in self._done:
                self._pending.add(each.local_id)
            elif each.local_id not in known:
                found.append(each)
        self._highest = max(self._highest, *(each.local_id for each in messages))
        return found

    def on_filtered(self, wanted: list[Received], others: list[Received]) -> None:
        """A filter of this client looked at them."""
        for each in others:
            self.ack(each.local_id)

    # --- what is done

    def ack(self, local_id: LocalId) -> None:
        """This message is done, and does not come again."""
        self._done[local_id] = None
        self._done.move_to_end(local_id)
        if len(self._done) > DONE_MAX:
            self._done.popitem(last=False)
        self._pending.add(local_id)

    def consume(self, message_id: MessageId) -> None:
        """The same: no other message is meant."""
        self.ack(message_id.local)

    def nack(self, local_id: LocalId, delay_s: float) -> MessageId:
        """It is not done: what the CONSUME says that gives it back."""
        self._done.pop(local_id, None)
        self._pending.discard(local_id)
        return consumed(GiveBack(local_id, max(0, round(delay_s * 1000))))

    # --- what is told

    @property
    def untold(self) -> int:
        """Messages that the hub is to be told of."""
        return len(self._pending)

    def to_tell(self) -> list[MessageId]:
        """What the CONSUMEs say that leave now."""
        pending, self._pending = self._pending, set()
        return [consumed(each) for each in _runs(sorted(pending))] if pending else []


def _runs(local_ids: list[LocalId]) -> Iterator[Acknowledge]:
    """Ids in order, as ranges without a gap."""
    first = last = local_ids[0]
    for each in local_ids[1:]:
        if each != last + 1:
            yield Acknowledge(first, last)
            first = each
        last = each
    yield Acknowledge(first, last)
