"""A subscription on a connection, where topic and connection are stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bookkeeper.metrics import Counter
from hedwig.filters import Filter
from hedwig.hub.attachment import (
    DELIVERED_BYTES_AT_ONCE,
    DELIVERED_IN_A_TURN,
    Attachment,
    Held,
    fitting,
    read_next,
)
from hedwig.hub.recent import RecentBudget, RecentMessages
from hedwig.hub.shared_attachment import SharedAttachment
from hedwig.model import LocalId, MessageId, SubscriberId, Topic
from hedwig.protocol.options import AckOptions
from hedwig.protocol.subscription import Position
from tests.support.simulated_clock import SimulatedClock


class Channel:
    def __init__(self) -> None:
        self.writable = self.may_read = True
        self.pieces = self.readings = 0
        self.waiting: list[Held] = []

    def write(self, parts: Sequence[bytes]) -> None:
        self.pieces += len(parts)

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
        self.log = SimpleNamespace(durable_id=LocalId(durable), first_id=LocalId(1))
        self.first_kept = LocalId(1)
        self.recent = RecentMessages(RecentBudget(1 << 30), LocalId(1))
        self.recent.add(kept)
        self.settings = SimpleNamespace(read_ahead=100, read_size=1 << 20, retry_delay_s=1.0)
        self.delivered = Counter()
        self.reads: list[tuple[int, int]] = []
        self.there = True
        self.reader = self
        self.retry = self
        self.failures: list[int] = []

    def delay_s(self, failures: int, *_: object, first_s: float, now_s: float) -> float:
        self.failures.append(failures)
        return first_s * failures

    async def read(self, first: LocalId, count: int) -> list[bytes]:
        self.reads.append((first, count))
        return [b"read"] * min(count, self.log.durable_id - first + 1) if self.there else []


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
