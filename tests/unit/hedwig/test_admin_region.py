"""What is told of a region from its records, over a simulated ZooKeeper; where a ledger that is written ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.clock import wall_ms
from bookkeeper.errors import EntryUnreadable, InvalidArgument, NoSuchLedger
from bookkeeper.metadata.outcome import Errand
from hedwig.admin.region import PIECE, Found, LedgerPart, Region, Subscribed, in_order
from hedwig.admin.topic_retention import TopicRetention, topic_retention_of
from hedwig.model import (
    HubAddress,
    HubInfo,
    LedgerRange,
    LocalId,
    MessageId,
    Preferences,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import Paths
from hedwig.protocol.kept_ledgers import KeptLedger, Reason
from hedwig.protocol.retention import Retention
from tests.support.hub_region import SETTINGS
from tests.support.hub_region import Region as Simulated

HUB = HubInfo(HubAddress("10.0.0.1", 4080), 1)


class Ledgers:
    """A ledger client that nobody should ask."""


def region_of(simulated: Simulated, name: str = "standalone") -> Region:
    session: Any = simulated.sessions[0]
    ledgers: Any = Ledgers()
    return Region(session, ledgers, simulated.clock, SETTINGS, Paths("/hedwig", name), b"secret")


def pieces_of(simulated: Simulated, found: AsyncGenerator[Any, None]) -> list[Any]:
    async def all_of() -> list[Any]:
        return [piece async for piece in found]

    pieces: list[Any] = simulated.now(all_of())
    return pieces


def names_of(simulated: Simulated, prefix: bytes = b"") -> list[bytes]:
    return [each.topic for piece in pieces_of(simulated, region_of(simulated).topics(prefix)) for each in piece]


@pytest.fixture
def simulated() -> Simulated:
    """A region with topics, some with slashes in their names."""
    region = Simulated()
    metadata = region.hub()
    for name in (b"a", b"a/b", b"a/b/c", b"ab", b"lone/child", b"z"):
        region.now(metadata.claim(Topic(name), HUB, exists=False))
        metadata.forget_claim(Topic(name))
    region.now(metadata.release(Topic(b"z"), HUB))
    return region


def test_topics_with_slashes_are_topics_and_what_is_only_above_one_is_none(simulated: Simulated) -> None:
    assert names_of(simulated) == [b"a", b"a/b", b"a/b/c", b"ab", b"lone/child", b"z"]
    [piece] = pieces_of(simulated, region_of(simulated).topics())
    assert piece[0] == Found(Topic(b"a"), True)
    assert piece[-1] == Found(Topic(b"z"), False)


def test_what_is_remembered_of_producers_is_no_topic(simulated: Simulated) -> None:
    metadata = simulated.hub()
    for name in (b"a", b"z"):
        simulated.now(metadata.write_producers(Topic(name), b"x", None))
    assert names_of(simulated) == [b"a", b"a/b", b"a/b/c", b"ab", b"lone/child", b"z"]


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (b"a", [b"a", b"a/b", b"a/b/c", b"ab"]),
        (b"a/", [b"a/b", b"a/b/c"]),
        (b"a/b", [b"a/b", b"a/b/c"]),
        (b"lone", [b"lone/child"]),
        (b"lone/child/x", []),
        (b"q", []),
    ],
)
def test_only_topics_of_a_prefix(simulated: Simulated, prefix: bytes, names: list[bytes]) -> None:
    assert names_of(simulated, prefix) == names


def test_many_topics_come_in_pieces_in_order(simulated: Simulated) -> None:
    metadata = simulated.hub()
    names = [b"many-%05d" % number for number in range(2 * PIECE + 1)]
    for name in names:
        simulated.now(metadata.claim(Topic(name), HUB, exists=False))
    pieces = pieces_of(simulated, region_of(simulated).topics(b"many-"))
    assert [len(piece) for piece in pieces] == [PIECE, PIECE, 1]
    assert [each.topic for piece in pieces for each in piece] == names


def test_a_listing_that_is_left_asks_for_no_more(simulated: Simulated) -> None:
    asked: list[int] = []

    async def work(item: int) -> int:
        asked.append(item)
        return item

    async def first_of() -> int:
        found = in_order(range(1000), work, 10)
        async for _, value in found:
            await found.aclose()
            return value
        return -1

    assert simulated.now(first_of()) == 0
    assert len(asked) <= 11


def test_one_failure_ends_a_listing_and_the_others_are_dropped(simulated: Simulated) -> None:
    async def work(item: int) -> int:
        if item:
            raise EntryUnreadable(f"item {item}")
        return item

    async def all_of() -> list[int]:
        return [value async for _, value in in_order(range(20), work, 5)]

    with pytest.raises(EntryUnreadable, match="item 1"):
        simulated.now(all_of())


def test_a_region_that_is_not_there_is_refused_with_those_that_are(simulated: Simulated) -> None:
    with pytest.raises(InvalidArgument, match=r"no region 'west' in /hedwig .*those there are: standalone"):
        simulated.now(region_of(simulated, "west").check())
    simulated.now(region_of(simulated).check())
    with pytest.raises(InvalidArgument, match="there is no topic 'q'"):
        simulated.now(region_of(simulated).owner(Topic(b"q")))


def test_subscriptions_and_what_waits_for_them(simulated: Simulated) -> None:
    metadata = simulated.hub()
    topic, mine, yours = Topic(b"a/b"), SubscriberId(b"mine"), SubscriberId(b"yours")
    ranges = [LedgerRange(3, LocalId(1), MessageId(LocalId(6))), LedgerRange(5, None, MessageId(LocalId(9)))]
    version = simulated.now(metadata.write_ranges(topic, ranges, 0))
    for name, consumed in ((mine, 4), (yours, 20)):
        record = Subscription(MessageId(LocalId(consumed)), Preferences(window_size=7))
        simulated.now(metadata.create_subscription(topic, name, record, version))
    region = region_of(simulated)
    found: list[Subscribed] = simulated.now(region.subscriptions_of(topic))
    assert [(each.subscriber, each.last, each.backlog) for each in found] == [(mine, 9, 5), (yours, 9, 0)]
    assert simulated.now(region.subscribers(topic)) == [mine, yours]
    [piece] = pieces_of(simulated, region.subscriptions(b"", mine))
    assert [(each.topic, each.backlog) for each in piece] == [(topic, 5)]
    [piece] = pieces_of(simulated, region.subscriptions(b"a", backlog=False))
    assert [(each.subscriber, each.backlog) for each in piece] == [(mine, None), (yours, None)]
    assert [each.first for each in simulated.now(region.ranges(topic))] == [1, 7]


def subscriptions(simulated: Simulated, topic: Topic, ranges: list[LedgerRange], **records: Subscription) -> Region:
    metadata = simulated.hub()
    version = simulated.now(metadata.write_ranges(topic, ranges, 0))
    for name, record in records.items():
        simulated.now(metadata.create_subscription(topic, SubscriberId(name.encode()), record, version))
    return region_of(simulated)


def subscription(consumed: int, bound: int | None = None) -> Subscription:
    return Subscription(MessageId(LocalId(consumed)), Preferences(message_bound=bound))


def test_what_a_limit_has_deleted_does_not_wait_for_anybody(simulated: Simulated) -> None:
    topic, left = Topic(b"a"), [LedgerRange(7, LocalId(501), MessageId(LocalId(600)))]
    region = subscriptions(simulated, topic, left, late=subscription(0), there=subscription(550), up=subscription(600))
    found: list[Subscribed] = simulated.now(region.subscriptions_of(topic))
    assert {each.subscriber: each.backlog for each in found} == {b"late": 100, b"there": 50, b"up": 0}
    [piece] = pieces_of(simulated, region.subscriptions(b"a", SubscriberId(b"late")))
    assert [each.backlog for each in piece if each.topic == topic] == [100]


def test_what_all_bounds_of_a_topic_give_up_does_not_wait_for_anybody(simulated: Simulated) -> None:
    """The greatest of them counts; where somebody has none, everything is kept for everybody."""
    held = [LedgerRange(7, LocalId(1), MessageId(LocalId(600)))]
    bounded, free = Topic(b"a"), Topic(b"ab")
    region = subscriptions(simulated, bounded, held, ten=subscription(0, 10), thirty=subscription(580, 30))
    found: list[Subscribed] = simulated.now(region.subscriptions_of(bounded))
    assert {each.subscriber: each.backlog for each in found} == {b"ten": 30, b"thirty": 20}
    subscriptions(simulated, free, held, ten=subscription(0, 10), all=subscription(0))
    pieces = pieces_of(simulated, region.subscriptions(b"a", SubscriberId(b"ten")))
    assert {each.topic: each.backlog for piece in pieces for each in piece} == {bounded: 30, free: 600}


def test_a_record_that_cannot_be_read_is_told_in_its_place_and_the_others_are_listed(simulated: Simulated) -> None:
    metadata = simulated.hub()
    topic, names = Topic(b"a"), [SubscriberId(b"bad"), SubscriberId(b"good")]
    version = simulated.now(metadata.write_ranges(topic, [LedgerRange(3, LocalId(1), MessageId(LocalId(6)))], 0))
    for name in names:
        simulated.now(metadata.create_subscription(topic, name, Subscription(MessageId(LocalId(4))), version))
    region = region_of(simulated)
    path = region.paths.subscription(topic, names[0])
    simulated.now(Errand(simulated.sessions[0], simulated.clock, SETTINGS, "break it").write(path, b"\xff\xff", 0))
    found: list[Subscribed] = simulated.now(region.subscriptions_of(topic))
    assert [(each.subscriber, each.is_readable, each.backlog) for each in found] == [
        (names[0], False, None),
        (names[1], True, 2),
    ]
    assert found[0].problem is not None
    assert path in found[0].problem


class TrimmedLedgers:
    """A ledger client with ended ledgers, some of which were deleted."""

    def __init__(self, deleted: set[int]) -> None:
        self.deleted = deleted
        self.asked: list[int] = []

    async def metadata(self, ledger_id: int) -> SimpleNamespace:
        self.asked.append(ledger_id)
        if ledger_id in self.deleted:
            raise NoSuchLedger(f"there is no ledger {ledger_id}")
        return SimpleNamespace(length=10, is_closed=True, created_ms=1, stored_ms=1, last_entry_id=9)


LISTED = [LedgerRange(number, LocalId(10 * number - 9), MessageId(LocalId(10 * number))) for number in (1, 2, 3)]


def test_a_ledger_that_a_hub_is_taking_off_the_list_is_no_problem(simulated: Simulated) -> None:
    """A hub deletes the ledger, then writes the list: a reader in between once said that the ledger is missing."""
    metadata, topic = simulated.hub(), Topic(b"a")
    version = simulated.now(metadata.write_ranges(topic, LISTED, 0))
    region, ledgers = region_of(simulated), TrimmedLedgers({1})
    region.client = ledgers  # type: ignore[assignment]
    simulated.clock.callLater(1.0, lambda: Deferred.fromCoroutine(metadata.write_ranges(topic, LISTED[1:], version)))
    found: list[LedgerPart] = simulated.now(region.parts(topic))
    assert [(each.ledger_id, each.problem) for each in found] == [(2, None), (3, None)]
    assert ledgers.asked == [1, 2, 3, 2, 3], "asked again once the list has changed, not before"


def test_a_ledger_that_stays_on_the_list_and_does_not_exist_is_a_problem(simulated: Simulated) -> None:
    topic = Topic(b"a")
    simulated.now(simulated.hub().write_ranges(topic, LISTED, 0))
    region = region_of(simulated)
    region.client = TrimmedLedgers({2})  # type: ignore[assignment]
    found: list[LedgerPart] = simulated.now(region.parts(topic))
    assert [(each.ledger_id, each.problem, each.is_missing) for each in found] == [
        (1, None, False),
        (2, "there is no ledger 2", True),
        (3, None, False),
    ]


class MadeLedgers:
    """A ledger client with creation times of ledgers that cannot be read. made_ms: by hub and by store."""

    def __init__(self, **made_ms: tuple[int, int]) -> None:
        self.made_ms = made_ms
        self.opened: list[int] = []

    async def metadata(self, ledger_id: int) -> SimpleNamespace:
        created_ms, stored_ms = self.made_ms[f"l{ledger_id}"]
        return SimpleNamespace(length=10, is_closed=True, created_ms=created_ms, stored_ms=stored_ms)

    async def open_without_recovery(self, ledger_id: int, *_: object) -> None:
        self.opened.append(ledger_id)
        raise EntryUnreadable(f"ledger {ledger_id}")


def test_the_date_until_which_messages_are_kept_is_by_the_clock_of_the_store(simulated: Simulated) -> None:
    """Hubs use the store's time: the hub that made these ledgers had a clock ten days behind."""
    day_ms = 24 * 3_600_000
    now_ms, topic = wall_ms(), Topic(b"a")
    ranges = [LedgerRange(3, LocalId(1), MessageId(LocalId(6))), LedgerRange(4, LocalId(7), MessageId(LocalId(9)))]
    simulated.now(simulated.hub().write_ranges(topic, ranges, 0))
    region = region_of(simulated)
    ledgers = MadeLedgers(l3=(now_ms - 12 * day_ms, now_ms - 2 * day_ms), l4=(now_ms - 11 * day_ms, now_ms - day_ms))
    region.client = ledgers  # type: ignore[assignment]
    parts, rules = simulated.now(region.parts(topic)), Retention(keep_unsubscribed_ms=7 * day_ms)
    for timed in False, True:
        found: TopicRetention = simulated.now(topic_retention_of(region, topic, parts, [], rules, timed=timed))
        assert found.ledgers[0] == KeptLedger(Reason.UNSUBSCRIBED, now_ms + 6 * day_ms)
        assert ledgers.opened == ([3] if timed else []), "times that publishers wrote do not count"
