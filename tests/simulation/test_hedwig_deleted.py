"""Readers that begin or continue with deleted messages get the ids of these messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from bookkeeper.client.reader import ReadHandle
from bookkeeper.errors import NoSuchEntry
from hedwig.client.queueing import one_by_one
from hedwig.filters import DEFAULT_FILTERS, with_expression
from hedwig.hub.log_settings import TopicLogSettings
from hedwig.hub.topic_service import TopicService
from hedwig.hub.trimming import Trimmer
from hedwig.model import Gone, LocalId, Preferences, SubscriberId, Topic
from hedwig.protocol.options import answered
from hedwig.protocol.retention import Retention
from hedwig.wire.requests import Request, Subscribe
from hedwig.wire.responses import subscribed_frame
from tests.simulation.test_hedwig_client import ListeningHub, Scripted, a_client, serve, taken
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC, SUB, OTHER = Topic(b"orders"), SubscriberId(b"billing"), SubscriberId(b"slow")


class Story:
    """A topic with ledgers of five messages."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gone: list[Gone] = []

    async def begun(self, last: int = 23) -> Story:
        settings = TopicLogSettings(entries_max=5)
        self.hub = await ListeningHub(self.world, log=settings, consume_interval=1, cache_size=1).started()
        self.hub.filters = DEFAULT_FILTERS
        self.client = a_client(self.world, self.hub.address, consume_every=1, consume_delay_s=0.01)
        await self.published(1, last)
        return self

    async def published(self, first: int, last: int) -> None:
        await self.client.publisher(TOPIC).publish_many([b"%d" % each for each in range(first, last + 1)])

    @property
    def service(self) -> TopicService:
        return self.hub.ownership.owned[TOPIC]

    async def deleted(self, up_to: int) -> None:
        """Delete all messages up to this id by a limit of size."""
        facts = await self.service.reader.facts()
        kept = sum(each.size or 0 for each in facts if (each.range.first or 1) > up_to)
        retention = Retention(limit_bytes=kept + self.service.log.ledger_bytes)
        while self.service.log.first_id <= up_to:
            assert await Trimmer(retention).trim(self.service)
        assert self.service.log.first_id == up_to + 1

    async def subscribe(self, subscriber: SubscriberId = SUB, **named: Any) -> Any:
        return await self.client.subscribe(TOPIC, subscriber, on_gone=self.gone.append, **named)


def gone(*ranges: tuple[int, int]) -> tuple[Gone, ...]:
    return tuple(Gone(LocalId(first), LocalId(last)) for first, last in ranges)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    lines: list[str] = []

    def take(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(take)
    yield lines
    globalLogPublisher.removeObserver(take)


@pytest.mark.parametrize(
    ("start", "first", "missing"),
    [
        (1, 21, gone((1, 20))),
        (7, 21, gone((7, 20))),
        (20, 21, gone((20, 20))),
        (21, 21, ()),
        (22, 22, ()),
        (EPOCH, 21, (Gone(LocalId(1), LocalId(20), maybe=True),)),
        (datetime(1980, 1, 1, tzinfo=UTC), 21, ()),  # what is kept was made before
    ],
)
def test_a_subscription_that_begins_with_deleted_messages_gets_their_ids(
    start: int | datetime, first: int, missing: tuple[Gone, ...]
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.deleted(20)
        subscription = await found.subscribe(start=start)
        assert (await taken(subscription, 24 - first))[0][0] == first
        assert subscription.gone == tuple(found.gone) == missing
        await subscription.seek(1)
        await taken(subscription, 3)
        assert gone((1, 20))[0] in subscription.gone, "also after a seek"
        found.client.abandon()

    run(world, story())


def test_a_returning_subscriber_gets_the_ids_that_a_limit_deleted_once(warnings: list[str]) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(3)
        first = await found.subscribe(start=2)
        assert [local_id for local_id, _ in await taken(first, 2)] == [2, 3]
        first.consume(LocalId(3))
        await first.close()
        await found.published(4, 23)
        await found.deleted(10)
        again = await found.client.subscribe(TOPIC, SUB)
        assert again.gone == gone((4, 10))
        assert (await taken(again, 13))[0][0] == 11
        again.consume(LocalId(13))
        await again.close()
        assert (await found.client.subscribe(TOPIC, SUB)).gone == ()
        found.client.abandon()

    run(world, story())
    lines = [line for line in warnings if line.startswith("Messages")]
    assert lines == ["Messages 4 to 10 of topic b'orders' were deleted before subscriber b'billing' received them"]


@pytest.mark.parametrize("hub_dies", [False, True])
@pytest.mark.parametrize("preferences", [None, one_by_one()], ids=["in order", "one by one"])
def test_deleted_messages_are_named_until_something_behind_them_is_consumed(
    preferences: Preferences | None, hub_dies: bool
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(3)
        subscription = await found.subscribe(start=2, preferences=preferences, auto_consume=False)
        for local_id, _ in await taken(subscription, 2):
            subscription.consume(LocalId(local_id))
        await subscription.close()
        await found.published(4, 23)
        await found.deleted(10)
        lost = a_client(world, found.hub.address)
        again = await lost.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False)
        assert (await taken(again, 13))[0][0] == 11
        lost.abandon()
        await world.pause(5)
        port = 4080
        if hub_dies:
            found.hub.client.crash()
            await world.pause(60)
            port = 4081
            found.hub = await ListeningHub(world, port, consume_interval=1).started()
        for missing in ((4, 10),), ():
            client = a_client(world, found.hub.address, consume_every=1, consume_delay_s=0.01)
            subscription = await client.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False)
            assert subscription.gone == gone(*missing)
            first = (await taken(subscription, 1))[0][0]
            assert first == 11 if missing else first > 11
            subscription.consume(LocalId(first))
            await subscription.close()
            client.abandon()
        found.client.abandon()

    run(world, story(), seconds=200)


@pytest.mark.parametrize(("start", "first", "maybe"), [(1, 1, False), (7, 7, False), (EPOCH, 1, True)])
def test_a_subscription_that_began_with_deleted_messages_names_them_until_it_consumes(
    start: int | datetime, first: int, maybe: bool
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.deleted(20)
        expected = (Gone(LocalId(first), LocalId(20), maybe),)
        for named in {"start": start}, {}:
            client = a_client(world, found.hub.address)
            subscription = await client.subscribe(TOPIC, SUB, auto_consume=False, **named)
            assert subscription.gone == expected
            assert (await taken(subscription, 1))[0][0] == 21
            client.abandon()
            await world.pause(5)
        subscription = await found.subscribe(auto_consume=False)
        assert (await taken(subscription, 1))[0][0] == 21
        subscription.consume(LocalId(21))
        await subscription.close()
        assert (await found.subscribe()).gone == ()
        found.client.abandon()

    run(world, story())


def test_a_range_that_grew_between_two_attachments_is_reported_once() -> None:
    world = started_world(0)

    async def story() -> None:
        last = 10

        def answer(connection: Any, request: Request) -> None:
            if isinstance(request, Subscribe):
                said = answered(Preferences(), Gone(LocalId(4), LocalId(last)))
                connection.write(subscribed_frame(request.txn_id, said))

        hub = Scripted(world, 4080, answer)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        last = 15
        hub.connections[0].transport.abortConnection()
        while len(subscription.gone) < 2:
            await world.pause(0.1)
        assert subscription.gone == gone((4, 10), (11, 15))
        client.abandon()

    run(world, story())


@pytest.mark.parametrize(
    ("preferences", "missing"),
    [
        (Preferences(window_size=2), gone((3, 20))),
        (with_expression("a IS NULL", Preferences(window_size=2)), ()),  # gaps are normal
        (Preferences(window_size=2, message_bound=10), ()),  # it does not need them all
    ],
    ids=["all", "filtered", "bounded"],
)
def test_deletions_by_a_limit_are_detected_by_an_attached_reader(
    preferences: Preferences, missing: tuple[Gone, ...]
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(0)
        subscription = await found.subscribe(preferences=preferences, auto_consume=False)
        await found.published(1, 23)
        assert [local_id for local_id, _ in await taken(subscription, 2)] == [1, 2]
        await found.deleted(20)
        subscription.consume(LocalId(2))
        assert (await taken(subscription, 1))[0][0] == 21
        assert subscription.gone == tuple(found.gone) == missing
        found.client.abandon()

    run(world, story())


def test_ids_before_the_first_message_of_an_attachment_are_not_reported() -> None:
    """Another client may have consumed them under the same name; the hub says what was deleted."""
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        hub.connections[0].deliver(1, 2, topic=TOPIC)
        assert [local_id for local_id, _ in await taken(subscription, 2)] == [1, 2]
        hub.connections[0].transport.abortConnection()
        while len(hub.of(Subscribe)) < 2:
            await world.pause(0.1)
        for local_id in (10, 13):
            hub.connections[1].deliver(local_id, topic=TOPIC)
            assert [local_id for local_id, _ in await taken(subscription, 1)] == [local_id]
        assert subscription.gone == gone((11, 12))
        client.abandon()

    run(world, story())


def test_what_is_gone_within_one_read_is_reported() -> None:
    world = started_world(0)
    reported: list[Gone] = []

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB, on_gone=reported.append)
        for local_ids in ((3, 4, 21, 22), (23,), (24, 26, 27, 30), (32,)):
            hub.connections[0].deliver(*local_ids, topic=TOPIC)
            await taken(subscription, len(local_ids))
        assert subscription.gone == tuple(reported) == gone((5, 20), (25, 25), (28, 29), (31, 31))
        client.abandon()

    run(world, story())


def test_a_reader_continues_behind_a_lost_ledger_once_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries are lost, its metadata is there; then an operator deletes it."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        lost = found.service.log.ranges[0].ledger_id
        whole = ReadHandle.start_read

        def start_read(handle: ReadHandle, first: int, last: int) -> Any:
            if handle.ledger_id == lost:
                handle.check_open()
                raise NoSuchEntry(f"entry {first} of ledger {lost}: no bookie has it")
            return whole(handle, first, last)

        monkeypatch.setattr(ReadHandle, "start_read", start_read)
        subscription = await found.subscribe(start=1, auto_consume=False)
        await world.pause(10)
        assert not found.gone
        await found.hub.client.ledgers.delete(lost)
        assert (await taken(subscription, 1))[0][0] == 6
        await subscription.close()
        assert (await found.subscribe(auto_consume=False)).gone == tuple(found.gone) == gone((1, 5))
        found.client.abandon()

    run(world, story(), seconds=200)
