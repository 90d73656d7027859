"""A topic's chain of ledgers on the simulated cluster: takeovers, rolls, lost answers; one order, nothing lost."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.logger import LogLevel, capturedLogs

from bookkeeper.errors import BookKeeperError, MetadataUnavailable, NoSuchLedger
from bookkeeper.model import DigestType
from hedwig.admin.region import Region
from hedwig.errors import (
    MalformedRequest,
    NotResponsible,
    PubSubError,
    ServiceDown,
    StaleVersion,
    UncertainState,
    UnexpectedCondition,
)
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.topics import log as topic_log
from hedwig.hub.topics.log import REGION_NAME_MAX, REGIONS_MAX, LogState, TopicLog
from hedwig.hub.topics.log_settings import PASSWORD, TopicLogSettings
from hedwig.model import LedgerRange, LocalId, MessageId, Topic
from hedwig.names import Paths
from hedwig.wire.messages import Message, Stamp, decode_message, encode_message
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World

TOPIC = Topic(b"orders")


class Hub:
    """A process that owns the topic, or thinks so."""

    def __init__(
        self,
        world: World,
        client: SimulatedClient | None = None,
        topic: Topic = TOPIC,
        *,
        request_size_max: int = METADATA_SETTINGS.request_size_max,
        **settings: Any,
    ) -> None:
        self.world = world
        self.client = client or world.add_client()
        self.metadata = HubMetadata(
            self.client.store.tree,
            self.client.process.clock,
            replace(METADATA_SETTINGS, request_size_max=request_size_max),
            Paths("/hedwig", "standalone"),
        )
        self.lost: list[PubSubError] = []
        self.acknowledged: list[tuple[int, bytes]] = []
        self.failed: list[tuple[bytes, PubSubError]] = []
        self.log = TopicLog(
            self.metadata,
            self.client.ledgers,
            self.client.process.clock,
            topic,
            Stamp(b"standalone"),
            TopicLogSettings(**settings),
            self.lost.append,
        )

    async def acquired(self) -> Hub:
        await self.metadata.open()
        await self.log.acquire()
        return self

    def publish(self, *bodies: bytes) -> None:
        def done(first: MessageId | None, error: PubSubError | None) -> None:
            if error is not None:
                self.failed += [(body, error) for body in bodies]
            else:
                assert first is not None
                self.acknowledged += [(first.local + index, body) for index, body in enumerate(bodies)]

        self.log.publish([encode_message(Message(body)) for body in bodies], done, plain=True)

    async def settled(self, *, look_s: float = 0.01) -> None:
        """Wait until everything published is answered, checking every `look_s`."""
        while self.log.pending_bytes and self.log.state is LogState.READY:
            await self.world.pause(look_s)


async def stored(world: World) -> list[tuple[int, bytes]]:
    """All of the topic, through a new owner: (id, body), each ledger's own ids checked."""
    hub = await Hub(world).acquired()
    found = []
    for each in hub.log.ranges:
        assert each.last is not None
        assert each.first is not None
        handle = await hub.client.ledgers.open(each.ledger_id, PASSWORD, DigestType.CRC32)
        assert handle.last_add_confirmed == each.last.local - each.first
        expected: int = each.first
        async for batch in handle.batches():
            for entry in batch:
                message = decode_message(entry.payload)
                assert message.id is not None
                assert message.id.local == expected
                expected += 1
                found.append((int(message.id.local), message.body))
        await handle.close()
    assert [number for number, _ in found] == list(range(1, len(found) + 1)), "no gap, nothing twice (I-89)"
    return found


def test_publishers_cannot_make_ids_grow_without_end() -> None:
    """Each message, and each record of a ledger, has all the regions that its topic's ids ever told of."""
    world = started_world(3)

    def of_regions(first: int, count: int) -> bytes:
        numbers = tuple((b"region-%d" % number, 1) for number in range(first, first + count))
        return encode_message(Message(b"x", id=MessageId(LocalId(0), numbers)))

    async def story() -> None:
        hub = await Hub(world).acquired()
        told: list[PubSubError | None] = []
        publish = partial(hub.log.publish, on_done=lambda first, error: told.append(error), plain=False)
        publish([of_regions(0, 60), of_regions(30, 60)])
        publish([of_regions(0, 100)])
        with pytest.raises(MalformedRequest, match="101 other regions"):
            publish([of_regions(0, 1), of_regions(100, 1)])
        await hub.settled()
        assert told == [None, None]
        assert len(hub.log.last_id.remote) == REGIONS_MAX
        hub.publish(b"goes on")
        await hub.settled()
        assert hub.acknowledged == [(4, b"goes on")]

    run(world, story())


def test_a_topic_with_very_many_ledgers_gets_no_more_because_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber who is gone keeps them, and their list is one record of ZooKeeper's, 1 MB at most."""
    monkeypatch.setattr(topic_log, "IDLE_ENDS_MAX", 3)
    monkeypatch.setattr(topic_log, "IDLE_STEP", 100)
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, idle_max_s=10.0).acquired()
        ended = []
        for number in range(5):
            hub.publish(b"%d" % number)
            await hub.settled()
            await world.pause(20)
            ended.append(hub.log.end_if_idle())
            await world.pause(1)
        assert ended == [True, True, True, False, False]
        assert len(hub.log.ranges) == 4

    run(world, story(), seconds=300.0)


def test_the_more_ledgers_a_topic_keeps_the_longer_the_last_one_may_be_idle() -> None:
    """Otherwise a topic with rare publishes and a retention of a week would have a ledger for each message."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, idle_max_s=10.0).acquired()
        for number in range(30):  # one each 25 s
            hub.publish(b"%d" % number)
            await hub.settled()
            await world.pause(25)
            hub.log.end_if_idle()
        assert len(hub.log.ranges) == 9, "two steps of four, and the open ledger"

    run(world, story(), seconds=3000.0)


def test_a_list_of_ledgers_never_outgrows_the_largest_request() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=1, request_size_max=2 * 2 * 40).acquired()
        for number in range(3):
            hub.publish(b"%d" % number)
            await hub.settled()
        hub.publish(b"3", b"4")
        hub.publish(b"5")
        await hub.settled()
        assert len(hub.log.ranges) == 4, "the last ledger takes all messages, beyond entries_max"
        await hub.log.release()
        hub = await Hub(world, request_size_max=4 * 40).acquired()
        hub.publish(b"6")
        await hub.settled()
        [(_, error)] = hub.failed
        assert str(error).startswith("topic b'orders' has 4 ledgers; a longer list does not fit")
        assert "zkMaxRequestSizeBytes" in str(error)
        hub = await Hub(world, request_size_max=4 * 40).acquired()
        assert len(await hub.log.trim(LocalId(2))) == 2
        hub.publish(b"7")
        await hub.settled()
        assert hub.acknowledged == [(7, b"7")], "a trimmed list takes ledgers again"

    run(world, story())


def test_a_region_in_the_newest_id_does_not_count_in_ledgers_that_ended_before() -> None:
    """A topic with some ledgers and one long region once refused all publishes, although its list was short."""
    world = started_world(3)

    def of_region(name: bytes) -> bytes:
        return encode_message(Message(b"x", id=MessageId(LocalId(0), ((name, 1),))))

    async def story() -> None:
        most = b"r" * REGION_NAME_MAX
        hub = await Hub(world, entries_max=1, request_size_max=2000).acquired()
        for number in range(6):
            hub.publish(b"%d" % number)
            await hub.settled()
        told: list[PubSubError | None] = []
        publish = partial(hub.log.publish, on_done=lambda first, error: told.append(error), plain=False)
        with pytest.raises(MalformedRequest, match="a region with 256 bytes; at most 255"):
            publish([of_region(b"r" + most)])
        for _ in range(5):
            publish([of_region(most)])
            await hub.settled()
        assert told == [None] * 5
        assert len(hub.log.ranges) == 6 + 4, "ledgers end until three of these use half of the request"
        await hub.log.release()
        hub = await Hub(world, request_size_max=2000).acquired()
        hub.publish(b"goes on")
        await hub.settled()
        assert hub.acknowledged == [(12, b"goes on")]

    run(world, story())


def test_messages_get_consecutive_ids_and_survive_the_hub() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        assert (hub.log.last_id.local, hub.log.ranges) == (0, [])
        hub.publish(b"a", b"b")
        hub.publish(b"c")
        assert hub.acknowledged == [], "never within the call"
        await hub.settled()
        assert hub.acknowledged == [(1, b"a"), (2, b"b"), (3, b"c")]
        assert hub.log.durable_id == 3
        hub.client.crash()
        assert await stored(world) == [(1, b"a"), (2, b"b"), (3, b"c")]

    run(world, story())


def test_acquiring_an_idle_topic_makes_no_ledger_and_writes_its_list_once() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world).acquired()
        first.publish(b"a")
        await first.settled()
        await first.log.release()
        assert first.log.state is LogState.RELEASED
        before = (await first.metadata.ranges(TOPIC)).version
        assert before is not None
        ledgers = [ids async for ids in first.client.ledgers.ids()]
        second = await Hub(world).acquired()
        found = await second.metadata.ranges(TOPIC)
        assert found.version == before + 1
        assert found.value == second.log.ranges
        assert found.value[0].last == MessageId(LocalId(1))
        assert [ids async for ids in second.client.ledgers.ids()] == ledgers
        second.publish(b"b")
        await second.settled()
        assert await stored(world) == [(1, b"a"), (2, b"b")]

    run(world, story())


def test_a_hub_that_lost_the_topic_gets_nothing_acknowledged_any_more() -> None:
    """I-90: whether it has a ledger or not; the publishers are still connected to it."""
    world = started_world(3)

    async def story() -> None:
        writing, idle = await Hub(world).acquired(), Hub(world)
        writing.publish(b"a")
        await writing.settled()
        await idle.acquired()
        writing.publish(b"late")
        await writing.settled()
        assert [type(error) for _, error in writing.failed] == [UncertainState]
        assert len(writing.lost) == 1
        with pytest.raises(NotResponsible):
            writing.publish(b"later")
        owner = await Hub(world).acquired()
        idle.publish(b"never had a ledger")
        await idle.settled()
        assert [type(error) for _, error in idle.failed] == [NotResponsible], "the client asks on, and does not give up"
        assert [type(error) for error in idle.lost] == [StaleVersion]
        owner.publish(b"b")
        await owner.settled()
        assert await stored(world) == [(1, b"a"), (2, b"b")]

    run(world, story())


def test_a_topic_that_is_given_up_while_its_ledger_is_ended_is_left_at_that() -> None:
    """As when the session ends: the ledger was full, all of it acknowledged, and its end on the way."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=2).acquired()
        with capturedLogs() as events:
            hub.publish(b"a", b"b")
            await hub.settled(look_s=0.0001)
            assert [each.last for each in hub.log.ranges] == [None], "not ended yet"
            hub.log.abandon(ServiceDown("the session ended"))
            await world.pause(10.0)
        assert [event for event in events if event["log_level"] >= LogLevel.warn] == []
        assert hub.log.state is LogState.LOST
        assert await stored(world) == [(1, b"a"), (2, b"b")]

    run(world, story())


def test_a_topic_that_is_lost_while_it_is_released_is_listed_as_it_was() -> None:
    """Its ledger was being ended; the list without it would lose what is in it."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=2).acquired()
        hub.publish(b"a", b"b", b"c")
        await hub.settled()
        listed = await hub.metadata.ranges(TOPIC)
        releasing = Deferred.fromCoroutine(hub.log.release())
        hub.log.abandon(ServiceDown("the session ended"))
        await releasing
        assert await hub.metadata.ranges(TOPIC) == listed
        assert await stored(world) == [(1, b"a"), (2, b"b"), (3, b"c")]

    run(world, story())


def test_ledgers_are_ended_by_number_of_entries_without_a_gap() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=3).acquired()
        hub.publish(*[b"%d" % number for number in range(1, 9)])
        await hub.settled()
        await hub.log.release()
        found = (await hub.metadata.ranges(TOPIC)).value
        assert [(each.first, each.last and each.last.local) for each in found] == [(1, 3), (4, 6), (7, 8)]
        assert await stored(world) == [(number, b"%d" % number) for number in range(1, 9)]

    run(world, story())


def test_ledgers_are_ended_by_size_and_by_age() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, bytes_max=1000, age_max_s=10.0).acquired()
        for count in (2, 1):
            hub.publish(*[bytes(600)] * count)
            await hub.settled()
        await world.pause(11)
        for _ in range(2):
            hub.publish(b"x")
            await hub.settled()
        await hub.log.release()
        found = (await hub.metadata.ranges(TOPIC)).value
        assert [(each.first, each.last and each.last.local) for each in found] == [(1, 2), (3, 4), (5, 5)]

    run(world, story())


def test_a_ledger_to_which_nothing_is_published_any_more_is_ended() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, idle_max_s=10.0).acquired()
        assert not hub.log.end_if_idle(), "it has none"
        hub.publish(b"1")
        await hub.settled()
        await world.pause(9)
        assert not hub.log.end_if_idle()
        hub.publish(b"2")
        await hub.settled()
        await world.pause(9)
        assert not hub.log.end_if_idle(), "the second message is not so old"
        await world.pause(2)
        assert hub.log.end_if_idle()
        hub.publish(b"3")  # while the ledger is being ended
        await hub.settled()
        found = (await hub.metadata.ranges(TOPIC)).value
        assert [(each.first, each.last and each.last.local) for each in found] == [(1, 2), (3, None)]
        assert await stored(world) == [(number, b"%d" % number) for number in (1, 2, 3)]

    run(world, story())


def test_whoever_describes_a_topic_sees_when_its_ledgers_were_made() -> None:
    world = started_world(3)

    async def story() -> None:
        await world.pause(5)
        before_ms = int(world.clock.seconds() * 1000)
        hub = await Hub(world, entries_max=1).acquired()
        hub.publish(b"a", b"b")
        await hub.settled()
        client = world.add_client()
        region = Region(
            client.store.tree, client.ledgers, client.process.clock, METADATA_SETTINGS, hub.metadata.paths, PASSWORD
        )
        parts = await region.parts(TOPIC)
        assert [each.problem for each in parts] == [None, None]
        made_ms = [each.created_ms or 0 for each in parts]
        assert before_ms <= made_ms[0] < made_ms[1] <= world.clock.seconds() * 1000

    run(world, story())


def test_very_many_topics_make_their_ledgers_in_turns() -> None:
    world = started_world(3)

    async def story() -> None:
        openings = DeferredSemaphore(2)
        hubs = [Hub(world, topic=Topic(b"topic-%d" % number), openings=openings) for number in range(7)]
        for hub in hubs:
            await hub.acquired()
            hub.publish(b"x")
        assert openings.tokens == 0
        for hub in hubs:
            await hub.settled()
        assert openings.tokens == 2

    run(world, story())


def test_a_topic_goes_on_once_others_no_longer_fill_the_connections_to_the_bookies() -> None:
    """It has nothing under way itself, so no acknowledgement of its own ever tells it that there is room."""
    world = started_world(3)
    world.settings = replace(world.settings, connection_entries_max=8)

    async def story() -> None:
        busy = await Hub(world, ensemble=2).acquired()
        quiet = await Hub(world, busy.client, Topic(b"quiet"), ensemble=3).acquired()
        for hub in (busy, quiet):
            hub.publish(b"first")
            await hub.settled()
        for count in (1, 3):
            busy.publish(*[bytes(10)] * 16)
            await world.pause(0)  # its messages have left
            quiet.publish(*[b"x"] * count)
            assert quiet.log.last_id.local > quiet.log.durable_id
            await quiet.settled()
            await busy.settled()
        assert [number for number, _ in quiet.acknowledged] == [1, 2, 3, 4, 5]

    run(world, story())


def test_a_subscriber_whose_delivery_breaks_does_not_keep_publishers_waiting() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()

        def breaks(stored: list[bytes]) -> None:
            raise RuntimeError("a fault")

        hub.log._on_durable = breaks  # noqa: SLF001 - given when it is made, by TopicService
        hub.publish(*[b"x"] * 40)  # more than the ledger's window
        await hub.settled()
        assert len(hub.acknowledged) == 40

    run(world, story())


def test_a_call_with_more_than_the_ledgers_window_holds_is_stored() -> None:
    world = started_world(3)
    world.settings = replace(world.settings, window_entries_max=1000, window_bytes_max=64 * 1024)

    async def story() -> None:
        hub = await Hub(world).acquired()
        hub.publish(*[bytes(1000)] * 100)
        hub.publish(b"and those behind it")
        await hub.settled()
        assert [number for number, _ in hub.acknowledged] == list(range(1, 102))
        assert len(await stored(world)) == 101

    run(world, story())


@pytest.mark.parametrize("ended", ["publish", "release"])
def test_what_comes_while_it_is_looked_whether_ledgers_may_go_is_done_though_none_may(ended: str) -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=2).acquired()
        hub.publish(b"1", b"2", b"3")
        await hub.settled()
        looked: Deferred[bool] = Deferred()

        async def may_go(up_to: LocalId) -> bool:
            return await looked

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TopicLog, "_may_go", lambda log, up_to: may_go(up_to))
            trimming = Deferred.fromCoroutine(hub.log.trim(LocalId(2)))
            if ended == "publish":
                hub.publish(b"4")
            else:
                releasing = Deferred.fromCoroutine(hub.log.release())
            looked.callback(False)
            assert await trimming == []
        if ended == "publish":
            await hub.settled()
            assert hub.acknowledged[-1] == (4, b"4")
        else:
            await releasing
            assert hub.log.state is LogState.RELEASED

    run(world, story())


def test_a_topic_that_is_lost_while_its_ledgers_are_deleted_keeps_the_others() -> None:
    """Whoever has it next may have promised them to a subscriber that went back."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=1).acquired()
        hub.publish(b"1", b"2", b"3", b"4")
        await hub.settled()
        await world.pause(1)  # the last one is ended
        delete, deleted = hub.client.ledgers.delete, []

        def deleting(ledger_id: int) -> Deferred[None]:
            deleted.append(ledger_id)
            return delete(ledger_id).addCallback(lambda _: hub.log.abandon(ServiceDown("the session ended")))

        hub.client.ledgers.delete = deleting  # type: ignore[method-assign]
        ledgers = [each.ledger_id for each in hub.log.ranges]
        await hub.log.trim(LocalId(3))
        assert deleted == ledgers[:1]
        other = await Hub(world).acquired()
        for ledger_id in ledgers[1:]:
            await other.client.ledgers.metadata(ledger_id)

    run(world, story())


def test_ledgers_stay_while_it_cannot_be_read_who_published_what_and_the_topic_too() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world).acquired()
        first.publish(b"1")
        await first.settled()
        await first.log.release()
        hub = await Hub(world).acquired()
        hub.publish(b"2")
        await hub.settled()
        find = hub.metadata.producers

        async def fails(topic: Topic) -> Any:
            raise MetadataUnavailable("not now")

        hub.metadata.producers = fails  # type: ignore[method-assign]
        assert await hub.log.trim(LocalId(1)) == []
        assert (hub.lost, hub.log.state) == ([], LogState.READY)
        hub.metadata.producers = find  # type: ignore[method-assign]
        assert [each.first for each in await hub.log.trim(LocalId(1))] == [1]

    run(world, story())


def test_an_empty_ledger_that_said_which_ids_were_used_goes_with_the_next_one() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, entries_max=1).acquired()
        first.publish(b"1")
        await first.settled()
        await world.pause(1)
        empty = await first.client.ledgers.create(password=PASSWORD, digest=DigestType.CRC32, metadata_version=2)
        listed = await first.metadata.ranges(TOPIC)
        await first.metadata.write_ranges(TOPIC, [LedgerRange(empty.ledger_id, LocalId(2))], listed.version)
        second = await Hub(world).acquired()
        assert second.log.last_id.local == 1
        assert (await second.metadata.ranges(TOPIC)).value == [LedgerRange(empty.ledger_id, LocalId(2))]
        second.publish(b"2")
        await second.settled()
        assert second.acknowledged == [(2, b"2")]
        await world.pause(1)
        with pytest.raises(NoSuchLedger):
            await second.client.ledgers.metadata(empty.ledger_id)

    run(world, story())


def test_a_topic_that_was_lost_while_it_waited_for_its_turn_makes_no_ledger() -> None:
    world = started_world(3)

    async def story() -> None:
        openings = DeferredSemaphore(1)
        hub = await Hub(world, openings=openings).acquired()
        await openings.acquire()
        hub.publish(b"1")
        hub.log.abandon(ServiceDown("the session ended"))
        create, made = hub.client.ledgers.create, []

        def creating(**named: Any) -> Any:
            made.append(named)
            return create(**named)

        hub.client.ledgers.create = creating  # type: ignore[method-assign]
        openings.release()
        await world.pause(1)
        assert made == []
        assert openings.tokens == 1

    run(world, story())


def test_an_empty_ledger_is_dropped_and_its_ids_are_not_used_again() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = Hub(world)
        await hub.metadata.open()
        handle = await hub.client.ledgers.create(password=PASSWORD, digest=DigestType.CRC32, metadata_version=2)
        ranges = [LedgerRange(handle.ledger_id, LocalId(7))]
        version = await hub.metadata.write_ranges(TOPIC, ranges, None)
        assert version == 0
        await hub.log.acquire()
        assert (hub.log.last_id.local, hub.log.ranges) == (6, [])
        again = await Hub(world).acquired()
        assert again.log.last_id.local == 6
        again.publish(b"seven")
        await again.settled()
        assert again.acknowledged == [(7, b"seven")]
        assert (await again.metadata.ranges(TOPIC)).value[0].first == 7

    run(world, story())


def test_a_hub_that_is_overtaken_while_it_acquires_does_not_say_that_the_list_is_damaged() -> None:
    """The other one has deleted the empty ledger that the list named."""
    world = started_world(3)

    async def story() -> None:
        slow = Hub(world)
        await slow.metadata.open()
        handle = await slow.client.ledgers.create(password=PASSWORD, digest=DigestType.CRC32, metadata_version=2)
        await slow.metadata.write_ranges(TOPIC, [LedgerRange(handle.ledger_id, LocalId(1))], None)
        read, others = slow.metadata.ranges, []

        async def read_and_wait(topic: Topic, *, synced: bool = False) -> Any:
            found = await read(topic, synced=synced)
            if not others:
                others.append(await Hub(world).acquired())
            return found

        slow.metadata.ranges = read_and_wait  # type: ignore[method-assign]
        with pytest.raises(StaleVersion):
            await slow.log.acquire()

    run(world, story())


@pytest.mark.parametrize(
    "ranges",
    [
        [LedgerRange(1, LocalId(1), MessageId(LocalId(3))), LedgerRange(2, LocalId(5), MessageId(LocalId(6)))],
        [LedgerRange(1, LocalId(1), MessageId(LocalId(3))), LedgerRange(2, LocalId(3), MessageId(LocalId(6)))],
        [LedgerRange(1, LocalId(1)), LedgerRange(2, LocalId(4), MessageId(LocalId(6)))],
        [LedgerRange(1, LocalId(5), MessageId(LocalId(3)))],
        [LedgerRange(77, LocalId(1))],
    ],
    ids=["gap", "overlap", "open in the middle", "backwards", "the open one is gone"],
)
def test_a_list_that_contradicts_itself_is_not_served_and_not_changed(ranges: list[LedgerRange]) -> None:
    """I-91."""
    world = started_world(3)

    async def story() -> None:
        hub = Hub(world)
        await hub.metadata.open()
        await hub.metadata.write_ranges(TOPIC, ranges, None)
        with pytest.raises(UnexpectedCondition, match="/topics/orders/ledgers"):
            await hub.log.acquire()
        found = await hub.metadata.ranges(TOPIC)
        assert (found.value, found.version) == (ranges, 0)

    run(world, story())


def test_remote_regions_are_carried_on_from_message_to_message() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        ids: list[MessageId | None] = []
        with_remote = Message(b"a", id=MessageId(LocalId(99), ((b"r1", 7),)))
        for message, plain in ((with_remote, False), (Message(b"b"), True)):
            hub.log.publish([encode_message(message)], lambda first, _: ids.append(first), plain=plain)
            await hub.settled()
        assert ids == [MessageId(LocalId(1), ((b"r1", 7),)), MessageId(LocalId(2), ((b"r1", 7),))]
        hub.client.crash()
        assert (await Hub(world).acquired()).log.last_id == MessageId(LocalId(2), ((b"r1", 7),))

    run(world, story())


def test_what_nobody_needs_is_deleted_but_for_the_last_record() -> None:
    """I-94: and the ids go on."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=2).acquired()
        hub.publish(*[b"%d" % number for number in range(1, 8)])
        await hub.settled()
        before = hub.log.ranges
        assert await hub.log.trim(LocalId(3)) == before[:1]
        assert await hub.log.trim(LocalId(3)) == []
        assert (hub.log.first_id, (await hub.metadata.ranges(TOPIC)).value) == (3, before[1:])
        assert await hub.log.trim(LocalId(100)) == before[1:3], "what is being written stays"
        await hub.log.release()
        owner = await Hub(world).acquired()
        assert await owner.log.trim(LocalId(100)) == []
        owner.publish(b"8")
        await owner.settled()
        assert owner.acknowledged == [(8, b"8")]
        assert [each.first for each in (await owner.metadata.ranges(TOPIC)).value] == [7, 8]
        left = {number async for ids in owner.client.ledgers.ids() for number in ids}
        assert left == {each.ledger_id for each in owner.log.ranges}

    run(world, story())


@pytest.mark.parametrize("seed", range(12))
def test_whatever_hubs_do_to_each_other_what_was_acknowledged_is_there_once_under_its_id(seed: int) -> None:
    """I-88, I-89, I-90: hubs take the topic from each other, die, and lose answers, under load."""
    world = started_world(4)
    rng = random.Random(seed)

    async def story() -> None:
        hubs: list[Hub] = []
        published = 0
        for _ in range(12):
            hub = Hub(world, entries_max=rng.choice((0, 2, 5)))
            hubs.append(hub)
            try:
                await hub.acquired()
            except (PubSubError, BookKeeperError):
                continue
            for _ in range(rng.randrange(1, 8)):
                writer = rng.choice(hubs[-3:])
                bodies = [b"%d" % (published + index) for index in range(rng.randrange(1, 5))]
                published += len(bodies)
                try:
                    writer.publish(*bodies)
                except PubSubError:
                    continue
                if rng.random() < 0.5:
                    await world.pause(rng.random() * 0.05)
            action = rng.random()
            if action < 0.3:
                await hub.log.release()
            elif action < 0.5:
                hub.client.crash()
        await world.pause(5)
        found = dict(await stored(world))
        acknowledged = [each for hub in hubs for each in hub.acknowledged]
        assert len({number for number, _ in acknowledged}) == len(acknowledged), "an id was given twice"
        for number, body in acknowledged:
            assert found[number] == body
        assert len(set(found.values())) == len(found), "a message is there twice"

    run(world, story(), seconds=600)


@pytest.mark.parametrize("seed", range(8))
def test_readers_see_acknowledged_messages_within_a_second_of_a_pause(seed: int) -> None:
    """Also if the ledger was ended, or another hub took the topic over."""
    world = started_world(4)
    rng = random.Random(seed)

    async def end_seen(reader: SimulatedClient, ledger_id: int) -> int:
        handle = await reader.ledgers.open_without_recovery(ledger_id, PASSWORD, DigestType.CRC32)
        try:
            return int(await handle.read_last_confirmed())
        finally:
            await handle.close()

    async def story() -> None:
        hub = await Hub(world, entries_max=rng.choice((0, 150))).acquired()
        reader = world.add_client()
        for burst in range(4):
            hub.publish(*[b"%d" % burst] * 100)
            await hub.settled()
            await world.pause(1.0)
            last = hub.log.ranges[-1]
            first = last.first or 1
            assert first + await end_seen(reader, last.ledger_id) == hub.log.durable_id == 100 * (burst + 1)
            await world.pause(rng.random())
        other = await Hub(world).acquired()
        assert other.log.durable_id == 400
        hub.publish(b"too late")
        await world.pause(2.0)
        for each in other.log.ranges:
            assert each.last is not None
            assert (each.first or 1) + await end_seen(reader, each.ledger_id) == each.last.local

    run(world, story(), seconds=600)
