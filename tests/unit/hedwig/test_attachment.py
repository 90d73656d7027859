"""A subscription on a connection, where topic and connection are stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.metrics import Counter
from hedwig.errors import FilterTooCostly
from hedwig.filters import Filter
from hedwig.hub.subscriptions.attachment import (
    DELIVERED_AT_ONCE,
    DELIVERED_BYTES_AT_ONCE,
    DELIVERED_IN_A_TURN,
    Attachment,
    Held,
    fitting,
    read_next,
)
from hedwig.hub.subscriptions.delivery_budget import OUTSTANDING_ALWAYS, OUTSTANDING_USUAL, OutstandingBudget
from hedwig.hub.subscriptions.shared_attachment import SharedAttachment
from hedwig.hub.topics.recent import RecentBudget, RecentMessages
from hedwig.hub.turns import FILTERED_READS_MAX, SLICE_S, DeliveryTurns
from hedwig.model import Event, LocalId, MessageId, Preferences, SubscriberId, Topic
from hedwig.protocol.conditions import FilterableMessage
from hedwig.protocol.options import ATTEMPT, Acknowledge, AckOptions, consumed
from hedwig.protocol.subscription import Position
from hedwig.protocol.work_queue import WorkQueue
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.responses import event_frame
from tests.support.simulated_clock import SimulatedClock


class Channel:
    def __init__(self) -> None:
        self.writable = self.may_read = True
        self.pieces = self.readings = 0
        self.waiting: list[Held] = []
        self.written: list[bytes] = []

    def write(self, parts: Sequence[bytes]) -> None:
        self.pieces += len(parts)
        self.written += parts

    def when_writable(self, held: Held) -> None:
        self.waiting.append(held)

    def begin_reading(self, held: Held) -> bool:
        self.readings += self.may_read
        return self.may_read

    def end_reading(self) -> None:
        self.readings -= 1

    def on_detached(self, topic: Topic, subscriber: SubscriberId, held: Held) -> None:
        """It does not remember what it has."""


class Service:
    """What an attachment uses of a topic."""

    def __init__(self, durable: int, kept: Sequence[bytes]) -> None:
        self.topic, self.clock = Topic(b"orders"), SimulatedClock()
        self.turns = DeliveryTurns(self.clock)
        self.suspended: list[int] = []
        self.suspends: Callable[[], object] = lambda: None
        self.log = SimpleNamespace(durable_id=LocalId(durable), first_id=LocalId(1))
        self.first_kept = LocalId(1)
        self.recent = RecentMessages(RecentBudget(1 << 30), LocalId(1))
        self.recent.add(kept)
        self.settings = SimpleNamespace(
            read_ahead=100, read_size=1 << 20, retry_delay_s=1.0, outstanding=OutstandingBudget()
        )
        self.delivered = Counter()
        self.reads: list[tuple[int, int]] = []
        self.there = True
        self.old = b"read"
        self.reader = self
        self.retry = self
        self.failures: list[int] = []

    def suspend(self, subscriber: SubscriberId, local_id: LocalId, error: FilterTooCostly) -> None:
        self.suspended.append(local_id)
        self.suspends()

    def end_attachment(self, shared: SharedAttachment) -> None:
        shared.end(None)

    def first_wanted(self, subscriber: SubscriberId) -> LocalId:
        return LocalId(1)

    def delay_s(self, failures: int, *_: object, first_s: float, now_s: float) -> float:
        self.failures.append(failures)
        return first_s * failures

    async def read(self, first: LocalId, count: int) -> list[bytes]:
        self.reads.append((first, count))
        return [self.old] * min(count, self.log.durable_id - first + 1) if self.there else []


def attached(service: Any, wanted: Filter | None = None) -> tuple[Attachment, Channel]:
    channel, position = Channel(), Position(MessageId(LocalId(0)))
    position.attach(0)
    attachment = Attachment(service, SubscriberId(b"billing"), position, channel, wanted)
    attachment.start()
    return attachment, channel


def test_what_is_durable_and_not_kept_in_memory_is_read() -> None:
    service = Service(durable=5, kept=[b"one", b"two"])
    _, channel = attached(service)
    assert channel.pieces == 5 * 3
    assert service.reads == [(3, 100)]
    assert channel.readings == 0


def test_reads_are_as_large_as_they_fit() -> None:
    service = Service(durable=1_000, kept=[])
    service.recent = RecentMessages(RecentBudget(1), LocalId(1001))
    service.settings.read_size = 200  # of messages of 4 bytes
    attached(service)
    assert [count for _, count in service.reads][:4] == [100, 50, 50, 50]
    assert read_next(10, [b"read"] * 10, count_max=100, size_max=200) == 20
    assert read_next(100, [bytes(50_000)] * 100, count_max=100, size_max=1 << 20) == 20
    assert read_next(1, [bytes(1 << 21)], count_max=100, size_max=1 << 20) == 1
    assert read_next(20, [bytes(50_000)] * 20, count_max=100, size_max=1 << 20) == 20


def test_nothing_is_read_for_a_connection_that_reads_much_already() -> None:
    service = Service(durable=5, kept=[])
    attachment, channel = attached(service)
    channel.may_read = False
    service.log.durable_id = LocalId(9)
    attachment.resume()
    assert len(service.reads) == 1
    channel.may_read = True
    attachment.resume()
    assert (channel.pieces, channel.readings) == (9 * 3, 0)


def test_a_read_that_brings_nothing_is_tried_again_later() -> None:
    service = Service(durable=5, kept=[])
    service.there = False
    attachment, channel = attached(service)
    assert len(service.reads) == 1
    service.clock.run_until(lambda: len(service.reads) == 3, seconds=3.5)
    service.there = True
    service.clock.run_until(lambda: channel.pieces == 5 * 3, seconds=4)
    assert service.failures == [1, 2, 3]
    service.there = False
    service.log.durable_id = LocalId(9)
    attachment.resume()
    assert service.failures[-1] == 1, "a read that brings something ends the growth"


def test_large_messages_are_not_all_delivered_at_once() -> None:
    large = [bytes(DELIVERED_BYTES_AT_ONCE // 3)] * 5
    assert len(fitting(large)) == 3
    assert len(fitting([bytes(2 * DELIVERED_BYTES_AT_ONCE)] * 2)) == 1
    service = Service(5, large)
    channel, position = Slow(), Position(MessageId(LocalId(0)))
    attachment = Attachment(service, SubscriberId(b"billing"), position, channel, None)  # type: ignore[arg-type]
    attachment.start()
    assert (channel.pieces, channel.waiting) == (3 * 3, [attachment]), "it is asked in between whether it takes more"


class Slow(Channel):
    """Takes one write."""

    def write(self, parts: Sequence[bytes]) -> None:
        super().write(parts)
        self.writable = False


def test_a_shared_subscription_that_wants_nothing_leaves_others_their_turn() -> None:
    looked = 0

    def nothing(message: object) -> bool:
        nonlocal looked
        looked += 1
        return False

    count = 3 * DELIVERED_IN_A_TURN
    service = Service(count, [b"\x0a\x00"] * count)
    shared_attachment(service, nothing)
    assert DELIVERED_IN_A_TURN <= looked < 2 * DELIVERED_IN_A_TURN
    service.clock.run_until(lambda: looked == count, seconds=1)


def shared_attachment(service: Any, wanted: Filter | None) -> SharedAttachment:
    position, options = Position(MessageId(LocalId(0))), AckOptions()
    shared = SharedAttachment(service, SubscriberId(b"billing"), position, options, 0, wanted, b"", lambda: None)
    shared.add(Channel(), reads_gone=False).start()
    return shared


def test_a_long_backlog_is_delivered_in_turns() -> None:
    count = 3 * DELIVERED_IN_A_TURN
    service = Service(count, [b"x"] * count)
    _, channel = attached(service)
    assert channel.pieces == DELIVERED_IN_A_TURN * 3, "then others have their turn"
    service.clock.run_until(lambda: channel.pieces == count * 3, seconds=1)


def test_a_filter_that_wants_nothing_leaves_others_their_turn() -> None:
    looked = 0

    def nothing(message: object) -> bool:
        nonlocal looked
        looked += 1
        return False

    count = 3 * DELIVERED_IN_A_TURN
    service = Service(count, [b"\x0a\x00"] * count)
    attachment, channel = attached(service, nothing)
    assert looked == DELIVERED_IN_A_TURN
    attachment.ended = True
    assert service.clock.step()
    assert (looked, channel.pieces) == (DELIVERED_IN_A_TURN, 0), "nothing more once it has ended"


MESSAGE_S = 0.002


class SlowFilter:
    """Takes MESSAGE_S for each message and wants none. looked: number of messages in each reactor turn."""

    def __init__(self, service: Service, wanted: bool = False) -> None:
        self.clock, self.wanted = service.clock, wanted
        self.looked: dict[int, int] = {}

    def __call__(self, message: object) -> bool:
        turn = self.clock.steps
        self.looked[turn] = self.looked.get(turn, 0) + 1
        self.clock.spend(MESSAGE_S)
        return self.wanted


@pytest.mark.parametrize("attach", [attached, shared_attachment])
def test_a_slow_filter_takes_a_slice_of_each_turn_and_others_alternate(attach: Callable[..., object]) -> None:
    service = Service(60, [b"\x0a\x00"] * 60)
    filters = [SlowFilter(service) for _ in range(4)]
    service.clock.callLater(0, lambda: [attach(service, each) for each in filters])
    service.clock.step()
    assert filters[0].looked == {0: 3}, "the first one begins at once, for 5 ms and the message that it began"
    assert all(not each.looked for each in filters[1:]), "the others wait for their turns"
    service.clock.run_until(lambda: all(sum(each.looked.values()) == 60 for each in filters), seconds=10)
    turns = [[each.looked.get(turn, 0) for each in filters] for turn in range(service.clock.steps)]
    assert all(sum(each) * MESSAGE_S <= SLICE_S + MESSAGE_S for each in turns)
    assert [each.index(3) for each in turns if 3 in each][1:13] == [0, 1, 2, 3] * 3, "one after the other"


def test_old_messages_wait_in_memory_for_the_turns_of_a_slow_filter() -> None:
    service = Service(60, [])
    service.recent = RecentMessages(RecentBudget(1), LocalId(61))
    service.old = b"\x0a\x00"
    slow = SlowFilter(service, wanted=True)
    _, channel = attached(service, slow)
    service.clock.run_until(lambda: channel.pieces == 60 * 3, seconds=10)
    assert sum(slow.looked.values()) == 60, "each message once"
    assert max(slow.looked.values()) * MESSAGE_S <= SLICE_S + MESSAGE_S
    assert service.reads == [(1, 100)], "what is read waits for its turns"


def test_only_some_subscriptions_with_a_filter_read_old_messages_at_the_same_time() -> None:
    service = Service(5, [])
    service.recent = RecentMessages(RecentBudget(1), LocalId(6))
    reading: list[Deferred[list[bytes]]] = []

    async def read(first: LocalId, count: int) -> list[bytes]:
        reading.append(Deferred())
        return await reading[-1]

    service.read = read  # type: ignore[method-assign]
    held = [attached(service, lambda message: True) for _ in range(FILTERED_READS_MAX + 3)]
    assert len(reading) == FILTERED_READS_MAX
    held[FILTERED_READS_MAX][0].ended = True
    reading[0].callback([b"\x0a\x00"] * 5)
    service.clock.run_until(lambda: len(reading) > FILTERED_READS_MAX, seconds=1)
    assert len(reading) == FILTERED_READS_MAX + 1, "the next one that has not ended"
    for each in reading[1:]:
        each.callback([b"\x0a\x00"] * 5)
    service.clock.run_until(lambda: len(reading) == FILTERED_READS_MAX + 2, seconds=1)
    reading[-1].callback([b"\x0a\x00"] * 5)
    service.clock.run_until(lambda: held[-1][1].pieces == 15, seconds=1)
    assert [channel.pieces for _, channel in held] == [15] * FILTERED_READS_MAX + [0, 15, 15]


def test_a_message_that_a_filter_takes_too_long_for_ends_the_delivery_before_it() -> None:
    def too_costly(message: FilterableMessage) -> bool:
        if message.body == b"3":
            raise FilterTooCostly("it takes too long")
        return message.body != b"2"

    messages = [encode_message(Message(b"%d" % number)) for number in range(1, 6)]
    service = Service(5, messages)
    channel, position = Channel(), Position(MessageId(LocalId(0)))
    position.attach(0)
    attachment = Attachment(service, SubscriberId(b"billing"), position, channel, too_costly)  # type: ignore[arg-type]
    service.suspends = lambda: setattr(attachment, "ended", True)
    attachment.start()
    assert (service.suspended, channel.pieces, position.next_id) == ([3], 3, 3)
    position.on_consumed(MessageId(LocalId(1)))
    assert position.consumed == 2, "what was passed over before it is consumed, and the message is not"

    service = Service(5, messages)
    shared = SharedAttachment(
        service,  # type: ignore[arg-type]
        SubscriberId(b"billing"),
        Position(MessageId(LocalId(0))),
        AckOptions(),
        0,
        too_costly,
        b"",
        lambda: None,
    )
    service.suspends = lambda: shared.remove_all(Event.TOPIC_MOVED)
    channel = Channel()
    shared.add(channel, reads_gone=False).start()
    assert (service.suspended, channel.pieces, shared.is_attached) == ([3], 3 + 1, False)
    assert channel.written[-1] == event_frame(service.topic, SubscriberId(b"billing"), Event.TOPIC_MOVED)
    shared.configure(AckOptions(), 0, None)
    shared.add(channel, reads_gone=False).start()
    assert channel.pieces == 4 + 4 * 3, "all but the one that was passed over, as none was acknowledged"
    assert (ATTEMPT.encode() in channel.written[-1]) is False, "no attempt was made for what comes behind it"


def test_timers_of_shared_subscriptions_share_the_turns() -> None:
    """Many timers may be due in one turn, and a snapshot takes 4 ms."""
    service = Service(1, [b"x"])
    stored: list[str] = []
    shared = SharedAttachment(
        service,  # type: ignore[arg-type]
        SubscriberId(b"billing"),
        Position(MessageId(LocalId(0))),
        AckOptions(timeout_ms=10_000),
        0,
        None,
        b"",
        lambda: stored.append("stored"),
    )
    channel = Channel()
    shared.add(channel, reads_gone=False).start()
    waiting: list[Callable[[], object]] = []
    service.turns = SimpleNamespace(has_time=lambda: False, later=waiting.append)  # type: ignore[assignment]
    service.clock.run_until(lambda: len(waiting) == 1, seconds=2)
    assert not stored
    waiting.pop()()
    assert stored == ["stored"]
    service.clock.run_until(lambda: len(waiting) == 1, seconds=20)
    assert channel.pieces == 3
    service.turns = DeliveryTurns(service.clock)
    waiting.pop()()
    assert channel.pieces == 6, "it came again"


def test_what_consumers_have_is_not_put_back_when_their_subscription_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """To put back the messages of all subscriptions of a topic would take one long turn, for nothing."""
    service = Service(1, [b"x"])
    shared = shared_attachment(service, None)
    monkeypatch.setattr(WorkQueue, "detach", lambda *_: pytest.fail("it is put back"))
    shared.end(Event.TOPIC_MOVED)
    assert (shared.ended, shared.is_attached) == (True, False)


def ack(shared: SharedAttachment, first: int, last: int, channel: Channel | None = None) -> None:
    shared.consume(consumed(Acknowledge(LocalId(first), LocalId(last))), channel)


def out_of(shared: SharedAttachment) -> int:
    return shared._queue.acknowledgements.outstanding  # noqa: SLF001


def test_outstanding_messages_of_all_subscriptions_are_bounded_and_none_waits_for_others() -> None:
    count = 1000
    service = Service(count, [b"x"] * count)
    budget = service.settings.outstanding = OutstandingBudget(count_max=500)
    several = [shared_attachment(service, None) for _ in range(4)]
    assert out_of(several[0]) >= 500
    assert [out_of(each) for each in several[1:]] == [OUTSTANDING_ALWAYS] * 3
    assert budget.count == sum(map(out_of, several)) <= 500 + DELIVERED_AT_ONCE + 3 * OUTSTANDING_ALWAYS
    ack(several[1], 1, 60)
    assert out_of(several[1]) == OUTSTANDING_ALWAYS, "it continues with what it may have"
    several[0].end(None)
    ack(several[3], 1, 1)
    assert out_of(several[3]) > OUTSTANDING_ALWAYS, "there is room again"
    for shared in several:
        shared.end(None)
    assert budget.count == 0


def test_a_subscription_gets_as_many_as_a_connection_may_have_below_the_bound() -> None:
    count = 2 * OUTSTANDING_USUAL
    service = Service(count, [b"x"] * count)
    service.settings.outstanding = OutstandingBudget(count_max=3 * OUTSTANDING_USUAL)
    several = [shared_attachment(service, None) for _ in range(4)]
    assert [out_of(each) for each in several] == [OUTSTANDING_USUAL] * 3 + [OUTSTANDING_ALWAYS]


def test_a_lost_connection_does_not_hold_a_shared_attachment() -> None:
    service = Service(10, [b"x"] * 10)
    shared = shared_attachment(service, None)
    former, other = next(iter(shared._consumers.values())), Channel()  # noqa: SLF001
    assert shared.is_others(other)
    former.ended = True  # the connection is lost, and the subscription is closed in a later turn
    assert not shared.is_others(other)


def test_subscriptions_without_a_connection_let_go_of_outstanding_messages_first() -> None:
    count = 1000
    service = Service(count, [b"x"] * count)
    budget = service.settings.outstanding = OutstandingBudget(count_max=500)
    first = shared_attachment(service, None)
    first.remove_all(Event.TOPIC_MOVED)
    assert budget.count == out_of(first) >= 500, "the state stays while nothing else needs the room"
    second = shared_attachment(service, None)
    assert (first.ended, out_of(second)) == (False, OUTSTANDING_ALWAYS), "what changed is not stored yet"
    first.record(Preferences())
    ack(second, 1, 1)
    assert not first.ended, "it is being stored"
    first.on_stored()
    ack(second, 2, 2)
    assert first.ended
    assert out_of(second) > OUTSTANDING_ALWAYS
    again = shared_attachment(service, None)
    assert not again.ended
