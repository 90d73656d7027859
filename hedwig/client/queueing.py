"""A subscription whose messages are acknowledged one by one, and that several clients may share.

    preferences = one_by_one(shared=True, attempts_max=5, dead_letter=b"graves")
    subscription = await client.subscribe(topic, subscriber, preferences=preferences)
    async for message in subscription:
        ...                                 subscription.ack(message), or nack(message)

A message comes until it is acknowledged: once more for each timeout, for each connection that is lost with it, and for
a hub that died before it stored the acknowledgement; then perhaps to another client. So it may come twice, and later
than younger ones. What this object acknowledged it does not hand out again. Messages that were not handed out when the
connection ended are let go of: they come again to whoever is there.

Acknowledgements are told soon, several at once, and before `close` is done. They are durable a second later (hub).
Apache's hubs would take an acknowledgement for one of all messages before: there the subscription fails instead.

Nothing is acknowledged by itself: `auto_consume` is of no use here. Thread: reactor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from hedwig.client.link import HubLink
from hedwig.client.subscription import Subscription
from hedwig.errors import InvalidFilter
from hedwig.model import LocalId, MessageId, Preferences
from hedwig.protocol.options import (
    ACK,
    ACK_ATTEMPTS,
    ACK_OUTSTANDING,
    ACK_TIMEOUT,
    ATTEMPT,
    DEAD_LETTER,
    SHARED,
    SHARED_IN_FLIGHT,
    Acknowledge,
    AckOptions,
    GiveBack,
    ack_options,
    consumed,
)
from hedwig.wire.receiving import Received
from hedwig.wire.requests import consume_frame

DONE_MAX = 10_000
"""Acknowledged messages that are remembered, not to be handed out again."""


def one_by_one(
    *,
    shared: bool = False,
    timeout_s: float | None = None,
    attempts_max: int | None = None,
    dead_letter: bytes | None = None,
    in_flight_max: int | None = None,
    outstanding_max: int | None = None,
) -> Preferences:
    """Preferences that ask for it; None: as it was, at first the hub's default.

    shared: several connections have it at a time. timeout_s: to acknowledge a message, or it comes again; 60.
    attempts_max: deliveries of one message, then it goes to the topic `dead_letter`, or is dropped; 0: no end, the
    default. in_flight_max: messages that one connection has and has not acknowledged; 1000, and not more than the
    window. outstanding_max: of all connections together; 10 000.
    """
    options = {ACK: b"individual", SHARED: b"true" if shared else b"false"}
    if timeout_s is not None:
        options[ACK_TIMEOUT] = b"%d" % max(1, round(timeout_s * 1000))
    for name, number in ((ACK_ATTEMPTS, attempts_max), (SHARED_IN_FLIGHT, in_flight_max)):
        if number is not None:
            options[name] = b"%d" % number
    if outstanding_max is not None:
        options[ACK_OUTSTANDING] = b"%d" % outstanding_max
    if dead_letter is not None:
        options[DEAD_LETTER] = dead_letter
    return Preferences(options=options)


def attempt(message: Received) -> int:
    """Which delivery of the message this is, from 1, as its hub counts them."""
    value = message.properties.get(ATTEMPT, b"1")
    return int(value) if value.isdigit() else 1


class WorkSubscription(Subscription):
    """See the module."""

    individual = True
    _done: OrderedDict[LocalId, None]
    _pending: set[LocalId]
    _highest = LocalId(0)
    _every: tuple[Preferences | None, int] = (None, 1)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._done, self._pending = OrderedDict(), set()

    # --- what the hub says

    def _unheard(self, link: HubLink, messages: list[Received]) -> list[Received]:
        """Those to be handed out: not what is done, nor what waits here already."""
        known: set[LocalId] = set()
        if min(each.local_id for each in messages) <= self._highest:
            known = {each.local_id for each in self._ready}
        found = []
        for each in messages:
            if each.local_id in self._done:
                self._plan_ack(each.local_id)
            elif each.local_id not in known:
                found.append(each)
        self._highest = max(self._highest, *(each.local_id for each in messages))
        return found

    def _filtered(self, wanted: Callable[[Received], bool], messages: list[Received]) -> list[Received]:
        found: list[Received] = []
        for each in messages:
            try:
                if wanted(each):
                    found.append(each)
                else:
                    self.ack(each)
            except Exception as error:  # noqa: BLE001 - the application's; it may raise anything
                broken = InvalidFilter(
                    f"the filter of subscriber {self.subscriber!r} broke at message {each.local_id}: {error!r}"
                )
                broken.__cause__ = error
                self._broken = broken
                break
        return found

    def _moved(self, link: HubLink) -> None:
        self._let_go_of_ready()
        super()._moved(link)

    # --- acknowledging

    @property
    def _consume_every(self) -> int:
        """Not so many that the hub waits for them."""
        preferences, every = self._every
        if preferences is not self.preferences:
            options = ack_options(self.preferences) or AckOptions()
            every = max(1, min(super()._consume_every, options.in_flight_max // 4))
            self._every = (self.preferences, every)
        return every

    def ack(self, message: Received | MessageId) -> None:
        """This message is done, and does not come again."""
        local_id = message.local_id if isinstance(message, Received) else message.local
        self._done[local_id] = None
        self._done.move_to_end(local_id)
        if len(self._done) > DONE_MAX:
            self._done.popitem(last=False)
        self._plan_ack(local_id)

    def consume(self, message: Received | MessageId) -> None:
        """The same: no other message is meant."""
        self.ack(message)

    def _plan_ack(self, local_id: LocalId) -> None:
        self._pending.add(local_id)
        if len(self._pending) >= self._consume_every:
            self._tell()
        else:
            self._plan_telling()

    def nack(self, message: Received | MessageId, delay_s: float = 0.0) -> None:
        """This message is not done: it comes again, to this client or another, after a while."""
        local_id = message.local_id if isinstance(message, Received) else message.local
        self._done.pop(local_id, None)
        self._pending.discard(local_id)
        link = self._link
        if link is not None:  # else it comes again anyway
            said = consumed(GiveBack(local_id, max(0, round(delay_s * 1000))))
            link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, said))

    def _tell(self) -> None:
        link = self._link
        if link is None or not self._pending:
            return
        for each in _runs(sorted(self._pending)):
            said = consumed(each)
            link.tell(lambda txn_id, said=said: consume_frame(txn_id, self.topic, self.subscriber, said))  # type: ignore[misc]
        self._pending.clear()


def _runs(local_ids: list[LocalId]) -> Iterator[Acknowledge]:
    """Ids in order, as ranges without a gap."""
    first = last = local_ids[0]
    for each in local_ids[1:]:
        if each != last + 1:
            yield Acknowledge(first, last)
            first = each
        last = each
    yield Acknowledge(first, last)
