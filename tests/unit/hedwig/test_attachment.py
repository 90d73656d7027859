"""A subscription on a connection, where topic and connection are stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bookkeeper.metrics import Counter
from hedwig.hub.attachment import DELIVERED_IN_A_TURN, Attachment
from hedwig.hub.recent import RecentBudget, RecentMessages
from hedwig.model import LocalId, MessageId, SubscriberId, Topic
from hedwig.protocol.subscription import Position
from tests.support.simulated_clock import SimulatedClock


class Channel:
    def __init__(self) -> None:
        self.writable = True
        self.pieces = 0

    def write(self, parts: Sequence[bytes]) -> None:
        self.pieces += len(parts)


class Service:
    """What an attachment uses of a topic."""

    def __init__(self, durable: int, kept: Sequence[bytes]) -> None:
        self.topic, self.clock = Topic(b"orders"), SimulatedClock()
        self.log = SimpleNamespace(durable_id=LocalId(durable), first_id=LocalId(1))
        self.first_kept = LocalId(1)
        self.recent = RecentMessages(RecentBudget(1 << 30), LocalId(1))
        self.recent.add(kept)
        self.settings = SimpleNamespace(read_ahead=100, retry_delay_s=1.0)
        self.delivered = Counter()
        self.reads: list[tuple[int, int]] = []
        self.reader = self

    async def read(self, first: LocalId, count: int) -> list[bytes]:
        self.reads.append((first, count))
        return [b"read"] * min(count, self.log.durable_id - first + 1)


def attached(service: Any, wanted: Any = None) -> tuple[Attachment, Channel]:
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
