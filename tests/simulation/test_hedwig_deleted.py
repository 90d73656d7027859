"""Readers that begin or continue with deleted messages get the ids of these messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.errors import NoSuchEntry
from bookkeeper.metrics import Counter
from hedwig.client.subscriptions.work_queue import one_by_one
from hedwig.errors import ServiceDown
from hedwig.filters import DEFAULT_FILTERS, with_expression
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.read_retry import ReadRetry
from hedwig.hub.topics.reads import TopicReader
from hedwig.hub.topics.service import TopicService
from hedwig.hub.topics.trimming import Trimmer
from hedwig.model import Gone, LedgerRange, LocalId, Preferences, SubscriberId, Topic
from hedwig.protocol.options import answered
from hedwig.protocol.retention import Retention
from hedwig.wire.requests import Request, Subscribe
from hedwig.wire.responses import subscribed_frame
from tests.simulation.test_hedwig_client import ListeningHub, Scripted, a_client, serve, taken
from tests.simulation.test_hub_connection import Client
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC, SUB, OTHER = Topic(b"orders"), SubscriberId(b"billing"), SubscriberId(b"slow")


class Story:
    """A topic with ledgers of five messages."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.gone: list[Gone] = []

    async def begun(self, last: int = 23, **settings: Any) -> Story:
        log = TopicLogSettings(entries_max=5)
        self.hub = await ListeningHub(self.world, log=log, consume_interval=1, cache_size=1, **settings).started()
        self.hub.filters = DEFAULT_FILTERS
        self.client = a_client(self.world, self.hub.address, consume_every=1, consume_delay_s=0.01)
        await self.published(1, last)
        return self

    async def published(self, first: int, last: int) -> None:
        await self.client.publisher(TOPIC).publish_many([b"%d" % each for each in range(first, last + 1)])

    @property
    def service(self) -> TopicService:
        return self.hub.ownership.owned[TOPIC]

    async def limit(self, up_to: int) -> Retention:
        """Return a limit of size that deletes all messages up to this id."""
        facts = await self.service.reader.facts()
        kept = sum(each.size or 0 for each in facts if (each.range.first or 1) > up_to)
        return Retention(limit_bytes=kept + self.service.log.ledger_bytes)

    async def deleted(self, up_to: int) -> None:
        """Delete all messages up to this id by a limit of size."""
        retention = await self.limit(up_to)
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
    assert lines == ["Messages 4 to 10 of topic 'orders' were deleted before subscriber 'billing' received them"]


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


EVERY_KIND = {
    "all": Preferences(window_size=2),
    "filtered": with_expression("a IS NULL", Preferences(window_size=2)),
    "bounded": Preferences(window_size=2, message_bound=10),
    "one by one": one_by_one(in_flight_max=2),
}
every_kind = pytest.mark.parametrize("preferences", EVERY_KIND.values(), ids=EVERY_KIND.keys())


@every_kind
def test_a_reader_that_waits_gets_the_ids_that_a_limit_deletes(preferences: Preferences) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(0)
        subscription = await found.subscribe(preferences=preferences, auto_consume=False)
        await found.published(1, 23)
        assert [local_id for local_id, _ in await taken(subscription, 2)] == [1, 2]
        await found.deleted(20)
        subscription.consume(LocalId(1))
        subscription.consume(LocalId(2))
        assert (await taken(subscription, 1))[0][0] == 21
        [missing] = subscription.gone
        assert subscription.gone == tuple(found.gone)
        assert missing.last == 20
        if preferences.message_bound:
            assert missing.first == 14, "those before it has given up"
        elif not subscription.individual:
            assert missing.first == 3
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize("hub_dies", [False, True], ids=["attached meanwhile", "hub dies before the list is written"])
@every_kind
def test_ledgers_that_are_deleted_and_still_listed_are_named(preferences: Preferences, hub_dies: bool) -> None:
    world = started_world(3)
    preferences = replace(preferences, message_bound=preferences.message_bound and 100)

    async def story() -> None:
        found = await Story(world).begun(5)
        subscription = await found.subscribe(start=1, preferences=preferences, auto_consume=False)
        for _ in range(5):
            for local_id, _ in await taken(subscription, 1):
                subscription.consume(LocalId(local_id))
        await world.pause(3)
        await subscription.close()
        await found.published(6, 23)
        log = found.service.log
        chain = log._chain  # noqa: SLF001 - it is slowed down
        delete = chain.deleted

        async def slowly(each: LedgerRange) -> bool:
            gone = await delete(each)
            await world.pause(0.3)
            return gone

        if hub_dies:
            for each in log.ranges[:4]:
                await delete(each)
            found.hub.client.crash()
            await world.pause(60)
            found.hub = await ListeningHub(world, 4081, consume_interval=1).started()
            found.hub.filters = DEFAULT_FILTERS
            deleting = None
        else:
            with mock.patch.object(type(chain), "deleted", lambda _, each: slowly(each)):
                deleting = Deferred.fromCoroutine(found.deleted(20))
                await world.pause(0.7)
        client = a_client(world, found.hub.address, consume_every=1, consume_delay_s=0.01)
        subscription = await client.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False)
        assert (await taken(subscription, 1))[0][0] == 21
        assert ids_of(subscription.gone) == set(range(6, 21))
        if deleting is not None:
            await deleting
            assert subscription.gone == gone((6, 20)), "at once, and not ledger by ledger"
        client.abandon()
        await world.pause(5)
        client = a_client(world, found.hub.address, consume_every=1, consume_delay_s=0.01)
        subscription = await client.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False)
        assert subscription.gone == gone((6, 20)), "nothing behind is consumed"
        client.abandon()
        found.client.abandon()

    run(world, story(), seconds=300)


def ids_of(ranges: tuple[Gone, ...]) -> set[int]:
    return {each for found in ranges for each in range(found.first, found.last + 1)}


@every_kind
def test_deleted_messages_are_named_again_to_each_kind_of_subscription(preferences: Preferences) -> None:
    """The first answer may be lost."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.deleted(20)
        for named in {"start": 1}, {}, {}:
            client = a_client(world, found.hub.address)
            subscription = await client.subscribe(TOPIC, SUB, auto_consume=False, preferences=preferences, **named)
            assert subscription.gone == gone((1, 20))
            await taken(subscription, 1)
            client.abandon()
            await world.pause(5)
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize(
    ("early", "late", "missing"),
    [
        (range(0), range(1, 21), ()),
        (range(2, 21), range(0), gone((1, 1))),
        (range(1, 5), range(8, 21), gone((5, 7))),
        (range(0), range(0), gone((1, 20))),
        (range(0), range(20, 0, -1), ()),
    ],
)
def test_acknowledged_messages_are_not_named_as_deleted(early: range, late: range, missing: tuple[Gone, ...]) -> None:
    """early: acknowledged before the deletion; late: by the consumer that got them, after it."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        subscription = await found.subscribe(start=1, preferences=one_by_one(), auto_consume=False)
        assert len(await taken(subscription, 23)) == 23
        for local_id in early:
            subscription.ack(LocalId(local_id))
        await world.pause(3)
        await found.deleted(20)
        for local_id in late:
            subscription.ack(LocalId(local_id))
            await world.pause(0.02)
        await world.pause(3)
        assert subscription.gone == ()
        await subscription.close()
        for hub_moves in (False, True):
            if hub_moves:
                await found.hub.ownership.release(TOPIC)
            client = a_client(world, found.hub.address)
            again = await client.subscribe(TOPIC, SUB, preferences=one_by_one(), auto_consume=False)
            assert again.gone == missing
            await again.close()
            client.abandon()
        found.client.abandon()

    run(world, story(), seconds=200)


@pytest.mark.parametrize("start", [1, 7, EPOCH, None], ids=["first", "id", "time", "attached before"])
@every_kind
def test_no_position_is_stored_before_the_first_listed_message(
    start: int | datetime | None, preferences: Preferences
) -> None:
    """One that is makes Apache's hubs lose the topic, with all its subscribers and publishers."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(3)
        if start is None:
            subscription = await found.subscribe(start=1, preferences=preferences, auto_consume=False)
            await taken(subscription, 2)
        idle = await found.client.subscribe(TOPIC, OTHER, start=2, preferences=preferences, auto_consume=False)
        await taken(idle, 1)
        await idle.close()
        await found.published(4, 23)
        await found.deleted(20)
        if start is not None:
            await found.subscribe(start=start, preferences=preferences, auto_consume=False)
        for stops in (False, True):
            if stops:
                await found.hub.ownership.stop()
            else:
                await world.pause(3)
            listed = (await found.hub.metadata.ranges(TOPIC)).value[0].first
            for subscriber, record in (await found.hub.metadata.subscriptions(TOPIC)).items():
                assert record.value.consumed.local + 1 >= (listed or 0), subscriber
                assert record.value.gone is not None
                assert record.value.gone.last == 20
        found.client.abandon()

    run(world, story(), seconds=200)


def test_a_client_that_does_not_read_deleted_ranges_stays_attached() -> None:
    """As Apache's clients; the next client that reads them gets them."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(0)
        plain = Client(found.hub)
        await plain.subscribe(SUB, window_size=2)
        await found.published(1, 23)
        await plain.until(2)
        await found.deleted(20)
        plain.consume(2)
        assert [local_id for local_id, _ in await plain.until(4)] == [1, 2, 21, 22]
        plain.consume(22)
        await world.pause(3)
        assert plain.events() == []
        plain.abortConnection()
        await world.pause(3)
        subscription = await found.subscribe(auto_consume=False)
        assert subscription.gone == gone((3, 20))
        assert (await taken(subscription, 1))[0][0] == 23
        subscription.consume(LocalId(23))
        await subscription.close()
        assert (await found.client.subscribe(TOPIC, SUB)).gone == ()
        found.client.abandon()

    run(world, story())


def test_gaps_that_no_hub_names_are_not_reported() -> None:
    """A filter that another client set makes gaps, and not every hub says so in its answer."""
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        for local_ids in ((3, 4, 21, 22), (24, 26)):
            hub.connections[0].deliver(*local_ids, topic=TOPIC)
            await taken(subscription, len(local_ids))
        assert subscription.gone == ()
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
        assert subscription.gone == tuple(found.gone) == gone((1, 5))
        await subscription.close()
        assert (await found.subscribe(auto_consume=False)).gone == gone((1, 5))
        found.client.abandon()

    run(world, story(), seconds=200)


@pytest.mark.parametrize("preferences", [Preferences(window_size=2), one_by_one(in_flight_max=2)])
@pytest.mark.parametrize("resumes", [False, True])
def test_lost_messages_are_counted_although_the_reader_has_passed_over_them(
    preferences: Preferences, resumes: bool
) -> None:
    world = started_world(3)
    lost = Counter()

    async def story() -> None:
        found = await Story(world).begun(0)
        subscription = await found.subscribe(preferences=preferences, auto_consume=False)
        await found.published(1, 23)
        await taken(subscription, 2)
        chain = found.service.log._chain  # noqa: SLF001 - deletions are slow
        delete = chain.deleted

        async def slowly(_: object, each: LedgerRange) -> bool:
            await world.pause(0.3)
            return await delete(each)

        with mock.patch.object(type(chain), "deleted", slowly):
            trimming = Deferred.fromCoroutine(Trimmer(await found.limit(20), lost=lost).trim(found.service))
            await world.pause(0.5)
            if resumes:
                subscription.consume(LocalId(1))
            await trimming
        found.client.abandon()

    run(world, story())
    assert lost.value in (19, 20)


@pytest.mark.parametrize("preferences", [None, one_by_one(in_flight_max=2)])
def test_a_trim_that_fails_half_way_deletes_the_same_messages_for_all(preferences: Preferences | None) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun(5)
        early = await found.subscribe(start=1, preferences=preferences, auto_consume=False)
        early.consume((await taken(early, 1))[0][0])
        await world.pause(2)
        await early.close()
        await found.published(6, 23)
        chain = found.service.log._chain  # noqa: SLF001 - the second deletion fails
        delete, asked = chain.deleted, list[LedgerRange]()

        async def once(_: object, each: LedgerRange) -> bool:
            asked.append(each)
            await world.pause(0.3)
            return len(asked) == 1 and await delete(each)

        with mock.patch.object(type(chain), "deleted", once):
            trimming = Deferred.fromCoroutine(Trimmer(await found.limit(20)).trim(found.service))
            await world.pause(0.2)
            during = await found.subscribe(preferences=preferences, auto_consume=False)
            assert await trimming == 1
        assert during.gone == gone((2, 20))
        later = await found.subscribe(OTHER, start=1, auto_consume=False)
        assert later.gone == gone((1, 20))
        assert [(await taken(each, 1))[0][0] for each in (during, later)] == [21, 21]
        assert await Trimmer(await found.limit(20)).trim(found.service) == 3
        found.client.abandon()

    run(world, story())


def test_messages_of_a_consumer_that_ends_during_a_read_are_named() -> None:
    """Another consumer knows of no deleted messages; what it acknowledges must not hide these."""
    world = started_world(3)
    preferences = one_by_one(in_flight_max=4, shared=True)

    async def story() -> None:
        found = await Story(world).begun(0, read_ahead=1)
        clients = [a_client(world, found.hub.address, consume_every=1, consume_delay_s=0.01) for _ in range(2)]
        both = [await client.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False) for client in clients]
        await found.published(1, 23)
        have = [[local_id for local_id, _ in await taken(each, 4)] for each in both]
        assert sorted(have[0] + have[1]) == list(range(1, 9))
        await found.deleted(5)
        stays = 0 if sum(each > 5 for each in have[0]) > 1 else 1
        late = [each for each in have[stays] if each > 5]

        async def fails(*_: object) -> list[bytes]:
            await world.pause(1)
            raise ServiceDown("the bookies are away")

        with mock.patch.object(TopicReader, "read", fails):
            both[stays].ack(late[0])
            await world.pause(0.5)
            clients[1 - stays].abandon()
            await world.pause(0.5)
            both[stays].ack(late[1])
            await world.pause(2)
        await world.pause(10)
        third = await found.client.subscribe(TOPIC, SUB, preferences=preferences, auto_consume=False)
        named = (*third.gone, *both[stays].gone)
        lost = {each for each in have[1 - stays] if each <= 5}
        assert lost
        assert all(any(each.first <= local_id <= each.last for each in named) for local_id in lost)
        clients[stays].abandon()
        found.client.abandon()

    run(world, story(), seconds=200)


def test_dead_letters_that_were_deleted_do_not_delay_others() -> None:
    world = started_world(3)
    buried: list[bytes] = []
    away = [True]

    async def letters(_: Topic, message: bytes) -> None:
        if away:
            raise ServiceDown("the hub of the dead letters is away")
        buried.append(message)

    async def story() -> None:
        found = await Story(world).begun(0, dead_letters=letters)
        preferences = one_by_one(timeout_s=1.0, attempts_max=1, dead_letter="graves")
        subscription = await found.subscribe(preferences=preferences, auto_consume=False)
        await found.published(1, 23)
        await taken(subscription, 23)
        await world.pause(3)
        await found.deleted(20)
        away.clear()
        await world.pause(100)
        assert len(buried) == 3
        found.client.abandon()

    run(world, story(), seconds=300)


@pytest.mark.parametrize("preferences", [Preferences(), one_by_one()])
def test_failed_reads_in_a_row_are_counted(preferences: Preferences) -> None:
    world = started_world(3)
    counts: list[int] = []

    async def story() -> None:
        found = await Story(world).begun()
        read = TopicReader.read

        async def fails(reader: TopicReader, first: LocalId, count: int) -> list[bytes]:
            if len(counts) in (3, 6):
                return await read(reader, first, count)
            raise ServiceDown("the bookies are away")

        def delay_s(_: object, failures: int, *__: object, **___: object) -> float:
            counts.append(failures)
            return 0.1

        with mock.patch.object(TopicReader, "read", fails), mock.patch.object(ReadRetry, "delay_s", delay_s):
            subscription = await found.subscribe(start=1, preferences=preferences)
            assert (await taken(subscription, 1))[0][0] == 1
            counts.append(0)
            await taken(subscription, 22)
        found.client.abandon()

    run(world, story())
    assert counts[:3] == [1, 2, 3]
    assert counts[4] == 1
