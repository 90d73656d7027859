"""Regions that subscribe to each other, on the simulated network: each with hubs and records of its own, the bookies
and the metadata servers shared. Hubs die, regions are cut off from each other, or are what they should not be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.metrics import Counter
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.errors import MalformedRequest, Refused
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.ownership import Ownership
from hedwig.hub.regions.feed import JOIN_TIMEOUT_S, Feed, RegionSettings
from hedwig.hub.regions.sources import LOOKED_AT_ONCE, Regions, client_of
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.recent import RecentBudget
from hedwig.hub.topics.service import TopicService, TopicSettings
from hedwig.model import HubAddress, LocalId, MessageId, Status, SubscribeMode, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.protocol.producers import Origin, origin_properties
from hedwig.wire.messages import Message, Stamp, encode_message
from hedwig.wire.receiving import Received
from hedwig.wire.requests import Consume, PublishEncoder, Subscribe
from hedwig.wire.responses import DeliveryEncoder
from tests.simulation.test_hedwig_client import Scripted, ScriptedConnection, serve
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import METADATA_SETTINGS, World
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess

TOPIC, SUB = Topic(b"orders"), SubscriberId(b"billing")
QUICK = PubSubSettings(answer_timeout_s=3.0, heartbeat_s=1.0, retry_timeout_s=40.0, connect_timeout_s=1.0)
PORT = 4080


class Meters:
    """What a hub counts of other regions."""

    def __init__(self) -> None:
        self.region_messages, self.region_repeats, self.region_failures = Counter(), Counter(), Counter()


class RegionalHub:
    """One hub process. others: addresses of hubs of other regions."""

    def __init__(self, world: World, region: str, port: int, others: tuple[HubAddress, ...], **settings: Any) -> None:
        self.world, self.client, self.region = world, world.add_client(), region
        self.address, self.meters = HubAddress(region, port), Meters()
        self.network = world.network.host(self.client.process, region)
        self.clock = self.client.process.clock
        self.metadata = HubMetadata(self.client.store.tree, self.clock, METADATA_SETTINGS, Paths("/hedwig", region))
        self.budget = RecentBudget(1 << 20)
        self.regions: Regions | None = None
        if others:
            self.regions = Regions(
                self.clock,
                region.encode(),
                RegionSettings(addresses=others, retry_min_s=0.2, retry_max_s=2.0),
                lambda address: client_of(self.clock, self.network, address, tls=False),
                self.meters,
            )
        log = TopicLogSettings(remote_of_publishers=not others, **settings)
        self.settings = TopicSettings(log=log, regions=self.regions)
        self.ownership: Ownership[TopicService] = Ownership(
            self.metadata,
            self.clock,
            random.Random(port),
            self.address,
            acquire=self.acquire,
            release=lambda service: service.release(),
            abandon=lambda service: service.abandon(),
        )

    async def acquire(self, topic: Topic) -> TopicService:
        name = self.region.encode()
        service = TopicService(
            self.metadata,
            self.client.ledgers,
            self.clock,
            topic,
            name,
            Stamp(name),
            self.settings,
            self.budget,
            {},
            lambda lost: self.ownership.lost(topic, lost),
        )
        await service.acquire()
        return service

    async def started(self) -> RegionalHub:
        await self.metadata.open()
        await self.ownership.start()
        await self.network.listen(self.region, self.address.port, lambda: HubConnection(self.ownership))
        return self

    async def subscribers(self) -> set[bytes]:
        return set(await self.metadata.subscriptions(TOPIC))

    def feeds(self) -> list[Feed]:
        assert self.regions is not None
        return self.regions.feeds(TOPIC)

    def missing(self) -> int:
        """Topics that get nothing from other regions, as it is told."""
        assert self.regions is not None
        return self.regions.missing_count


def addresses(*regions: str) -> tuple[HubAddress, ...]:
    return tuple(HubAddress(each, PORT) for each in regions)


async def hubs_of(world: World, *regions: str) -> list[RegionalHub]:
    """One hub of each region, which lists all others."""
    return [
        await RegionalHub(world, each, PORT, addresses(*(other for other in regions if other != each))).started()
        for each in regions
    ]


def a_client(world: World, *hubs: RegionalHub) -> PubSubClient:
    process = SimulatedProcess(f"client-{hubs[0].region}", world.clock)
    network = world.network.host(process, f"client-{hubs[0].region}")
    return PubSubClient(process.clock, network, [each.address for each in hubs], QUICK, random.Random(7))


@dataclass
class Reader:
    """A subscription, and what it got."""

    subscription: Subscription

    def __post_init__(self) -> None:
        self.got: list[Received] = []

    async def until(self, *wanted: bytes) -> list[bytes]:
        """Read until all of these came."""
        missing = set(wanted) - {each.body for each in self.got}
        while missing:
            some = await self.subscription.receive()
            self.got += some
            missing -= {each.body for each in some}
        return [each.body for each in self.got]

    def of(self, region: str) -> list[bytes]:
        return [each.body for each in self.got if each.region == region.encode()]


async def reader(client: PubSubClient, name: bytes = b"billing") -> Reader:
    return Reader(await client.subscribe(TOPIC, SubscriberId(name)))


def bodies(region: str, first: int, last: int) -> list[bytes]:
    return [b"%b-%d" % (region.encode(), number) for number in range(first, last + 1)]


async def until(world: World, condition: Any) -> None:
    while not condition():
        await world.pause(0.05)


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_published_in_each_region_arrives_once_in_all_in_its_order(count: int) -> None:
    world = started_world(3)
    names = ["east", "north", "west"][:count]

    async def story() -> None:
        hubs = await hubs_of(world, *names)
        clients = [a_client(world, hub) for hub in hubs]
        readers = [await reader(client) for client in clients]
        everything: list[bytes] = []
        published: list[Deferred[list[MessageId]]] = []
        for client, name in zip(clients, names, strict=True):
            everything += bodies(name, 1, 300)
            published += [client.publisher(TOPIC).publish_many([each]) for each in bodies(name, 1, 300)]
        for each in published:
            await each
        for mine in readers:
            assert sorted(await mine.until(*everything)) == sorted(everything), "each of them once"
        for here, mine in zip(names, readers, strict=True):
            assert [each.local_id for each in mine.got] == list(range(1, len(everything) + 1))
            assert all(mine.of(name) == bodies(name, 1, 300) for name in names), "in the order of its region"
            check_vectors(here, mine.got)
            there = next(each for each in readers if each is not mine)
            numbers = {each.body: each.local_id for each in there.got}
            region = names[readers.index(there)]
            for message in mine.got:
                if message.region == region.encode():
                    assert dict(message.remote)[message.region] == numbers[message.body], "its number there"
        for hub in hubs:
            assert await hub.subscribers() == {
                b"billing",
                *(b"__" + each.encode() for each in names if each != hub.region),
            }
            assert hub.meters.region_messages.value == 300 * (count - 1)
            assert hub.meters.region_repeats.value == 0

    run(world, story(), seconds=120)


@pytest.mark.parametrize("record", [None, b"keep_ms: long"])
def test_a_retention_that_is_named_in_one_region_counts_in_all(record: bytes | None) -> None:
    """What cannot be stored of it holds no message back."""
    world = started_world(3)

    async def story() -> None:
        here, there = await hubs_of(world, "east", "west")
        mine = await reader(a_client(world, here))
        client = a_client(world, there)
        while b"__east" not in await there.subscribers():
            await world.pause(0.05)
        path = here.metadata.paths.retention(TOPIC)
        if record is not None:
            await here.metadata.tree.create(path, record)
        await client.publisher(TOPIC, keep_s=60).publish_many([b"1", b"hw.keep"])
        await mine.until(b"1", b"hw.keep")
        assert (await here.metadata.tree.read(path))[0] == (record or b"keep_ms: 60000\n")

    with capturedLogs() as logged:
        run(world, story(), seconds=120)
    lines = [formatEvent(each) for each in logged]
    told = [each for each in lines if each and "sets a retention that was not applied here" in each]
    assert len(told) == (record is not None)


def test_a_malformed_retention_from_another_region_hides_no_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hubs of Apache pass it on, and so does a hub of this project here."""
    monkeypatch.setattr("hedwig.hub.topics.publish_once._keep_ms", lambda *_: None)
    world = started_world(3)

    async def story() -> None:
        here, there = await hubs_of(world, "east", "west")
        mine = await reader(a_client(world, here))
        client = a_client(world, there)
        while b"__east" not in await there.subscribers():
            await world.pause(0.05)
        values = (b"50000", b"60000", b"a week")
        sent = [client.publish(TOPIC, value, {"hw.keep": value}) for value in values]
        for each in sent:
            await each
        await mine.until(*values)
        assert (await here.metadata.tree.read(here.metadata.paths.retention(TOPIC)))[0] == b"keep_ms: 60000\n"

    run(world, story(), seconds=120)


def check_vectors(here: str, messages: list[Received]) -> None:
    """Never less than before, and nothing of the region itself."""
    known: dict[bytes, int] = {}
    for each in messages:
        remote = dict(each.remote)
        assert here.encode() not in remote
        assert all(remote.get(region, 0) >= number for region, number in known.items())
        if each.region == here.encode():
            assert remote == known, "what is published here says what was here before it"
        else:
            changed = {region: number for region, number in remote.items() if known.get(region) != number}
            assert list(changed) == [each.region]
        known = remote


def test_a_topic_without_ordinary_subscribers_is_not_subscribed_to_elsewhere() -> None:
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        await here.publish(TOPIC, b"early")
        await there.publish(TOPIC, b"early")
        assert await west.subscribers() == set()
        first, second = await reader(here, b"first"), await reader(here, b"second")
        assert await west.subscribers() == {b"__east"}
        assert await east.subscribers() == {b"first", b"second"}, "hubs of other regions are nobody's first subscriber"
        await there.publish(TOPIC, b"1")
        await first.until(b"1")
        await here.unsubscribe(TOPIC, SubscriberId(b"first"))
        await world.pause(1)
        assert await west.subscribers() == {b"__east"}
        await there.publish(TOPIC, b"2")
        await second.until(b"2")
        await here.unsubscribe(TOPIC, SubscriberId(b"second"))
        while await west.subscribers():
            await world.pause(0.1)
        await until(world, lambda: not east.feeds())
        await there.publish(TOPIC, b"not wanted")
        again = await reader(here)
        await there.publish(TOPIC, b"3")
        assert await again.until(b"3") == [b"3"]

    run(world, story())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("victim", ["east", "west"])
def test_nothing_is_lost_and_the_order_is_kept_when_hubs_die_in_either_region(victim: str, seed: int) -> None:
    """Method: two hubs of each region; who serves the topic is killed, several times, and another one takes over."""
    world = started_world(4)
    rng = random.Random(f"{victim}{seed}")

    async def story() -> None:
        hubs = {
            name: [
                await RegionalHub(world, name, port, addresses(other), entries_max=40).started()
                for port in (4080, 4081)
            ]
            for name, other in (("east", "west"), ("west", "east"))
        }
        # Whoever asks for another region finds it by its first hub, or by what that one knows.
        clients = {name: a_client(world, *both) for name, both in hubs.items()}
        readers = {name: await reader(client) for name, client in clients.items()}
        for round_ in range(3):
            first = 1 + 100 * round_
            waiting = [
                client.publish(TOPIC, each)
                for name, client in clients.items()
                for each in bodies(name, first, first + 99)
            ]
            await world.pause(rng.random() * 0.06)
            serving = next((each for each in hubs[victim] if TOPIC in each.ownership.owned), None)
            if serving is not None:
                port = serving.address.port
                serving.client.crash()
                hubs[victim].remove(serving)
                other = "west" if victim == "east" else "east"
                await world.pause(rng.random())
                hubs[victim].append(await RegionalHub(world, victim, port, addresses(other), entries_max=40).started())
            for each in waiting:
                await each
        everything = [each for name in hubs for each in bodies(name, 1, 300)]
        for mine in readers.values():
            await mine.until(*everything)
        for here, mine in readers.items():
            assert [each.local_id for each in mine.got] == sorted({each.local_id for each in mine.got})
            for name in hubs:
                of = mine.of(name)
                numbers = [
                    dict(each.remote)[each.region] for each in mine.got if each.region == name.encode() != here.encode()
                ]
                assert numbers == sorted(set(numbers)), "one of another region was stored twice, or out of order"
                if name != here:
                    assert of == readers[name].of(name)[: len(of)], "exactly what that region stored of its own"
            check_vectors(here, mine.got)

    run(world, story(), seconds=400)


@pytest.mark.parametrize("seed", range(6))
def test_three_regions_agree_in_the_end_whatever_happened(seed: int) -> None:
    """Method: two hubs each; hubs die, lose their sessions, release the topic; connections and regions are cut."""
    world = started_world(4)
    rng = random.Random(f"regions{seed}")
    names = ["east", "north", "west"]

    async def story() -> None:
        def listed(name: str) -> tuple[HubAddress, ...]:
            return addresses(*(each for each in names if each != name))

        hubs = {
            name: [
                await RegionalHub(world, name, port, listed(name), entries_max=40).started() for port in (4080, 4081)
            ]
            for name in names
        }
        clients = {name: a_client(world, *both) for name, both in hubs.items()}
        readers = {name: await reader(client) for name, client in clients.items()}
        waiting: list[Deferred[MessageId]] = []
        for round_ in range(12):
            for name, client in clients.items():
                waiting += [client.publish(TOPIC, each) for each in bodies(name, 1 + 25 * round_, 25 + 25 * round_)]
            await world.pause(rng.random() * 0.3)
            name = rng.choice(names)
            hub = next((each for each in hubs[name] if TOPIC in each.ownership.owned), None)
            event = rng.choice(["kill", "expire", "release", "cut", "cut", "part", "heal"])
            if event == "kill" and hub is not None:
                hub.client.crash()
                hubs[name].remove(hub)
                port = hub.address.port
                hubs[name].append(await RegionalHub(world, name, port, listed(name), entries_max=40).started())
            elif event == "expire" and hub is not None:
                hub.client.store.expire_session()
            elif event == "release" and hub is not None:
                await hub.ownership.release(TOPIC)
            elif event == "cut":
                world.network.cut_some_connection()
            elif event == "part":
                world.network.partition(*rng.sample(names, 2))
            elif event == "heal":
                world.network.heal()
        world.network.heal()
        for each in waiting:
            await each
        everything = [each for name in names for each in bodies(name, 1, 300)]
        for mine in readers.values():
            await mine.until(*everything)
        for here, mine in readers.items():
            assert [each.local_id for each in mine.got] == list(range(1, len(mine.got) + 1)), "from the first one on"
            for name in names:
                of = mine.of(name)
                assert of == readers[name].of(name)[: len(of)], (
                    "what that region stored of its own, each once, in order"
                )
            check_vectors(here, mine.got)

    run(world, story(), seconds=900)


def test_what_was_stored_and_not_consumed_there_is_passed_over_after_a_takeover() -> None:
    """Method: the hub dies before it could say in the other region that it stored the messages."""
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        other = await RegionalHub(world, "east", 4081, addresses("west")).started()
        here, there = a_client(world, east, other), a_client(world, west)
        mine = await reader(here)
        serving, next_one = (east, other) if TOPIC in east.ownership.owned else (other, east)
        for each in bodies("west", 1, 30):
            await there.publish(TOPIC, each)
        await mine.until(*bodies("west", 1, 30))
        consumed = (await west.metadata.subscriptions(TOPIC))[SubscriberId(b"__east")].value.consumed
        assert consumed.local == 0, "nothing of it is stored there yet"
        serving.client.crash()
        await there.publish(TOPIC, b"last")
        await here.publish(TOPIC, b"whose hub?")
        await mine.until(b"last", b"whose hub?")
        assert mine.of("west") == [*bodies("west", 1, 30), b"last"]
        assert next_one.meters.region_repeats.value > 0
        assert next_one.meters.region_messages.value == 1

    run(world, story())


def test_a_topic_that_is_released_in_order_misses_nothing_of_other_regions() -> None:
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        mine = await reader(here)
        await there.publish(TOPIC, b"1")
        await mine.until(b"1")
        await mine.subscription.close()
        await east.ownership.release(TOPIC)
        assert await west.subscribers() == {b"__east"}
        await there.publish(TOPIC, b"2")
        mine = await reader(here)
        assert await mine.until(b"2") == [b"2"]

    run(world, story())


def test_a_late_unsubscribe_of_who_had_the_topic_before_does_not_end_the_feed() -> None:
    """Method: another hub of the region, which thinks that nobody wants the topic any more, ends the subscription."""
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        mine = await reader(here)
        await there.publish(TOPIC, b"1")
        await mine.until(b"1")
        late = client_of(east.clock, east.network, west.address, tls=False)
        await late.unsubscribe(TOPIC, SubscriberId(b"__east"))
        begun = world.clock.seconds()
        while await west.subscribers() != {b"__east"}:
            await world.pause(0.01)
        assert world.clock.seconds() - begun < 0.2, "without a pause"
        for each in bodies("west", 1, 20):
            await there.publish(TOPIC, each)
        again = late.unsubscribe(TOPIC, SubscriberId(b"__east"))
        for each in bodies("west", 21, 60):
            await there.publish(TOPIC, each)
        await again
        await mine.until(*bodies("west", 1, 60))
        assert [each.body for each in mine.got] == [b"1", *bodies("west", 1, 60)], "what was published meanwhile too"
        late.abandon()

    run(world, story())


def test_a_region_that_is_cut_off_costs_nobody_else_anything_and_catches_up() -> None:
    world = started_world(3)

    async def story() -> None:
        east, north, west = await hubs_of(world, "east", "north", "west")
        clients = {name: a_client(world, hub) for name, hub in (("east", east), ("north", north), ("west", west))}
        readers = {name: await reader(client) for name, client in clients.items()}
        world.network.partition("east", "west")
        for name, client in clients.items():
            for each in bodies(name, 1, 50):
                await client.publish(TOPIC, each)
        await readers["north"].until(*(each for name in clients for each in bodies(name, 1, 50)))
        await readers["east"].until(*bodies("east", 1, 50), *bodies("north", 1, 50))
        assert readers["east"].of("west") == []
        await until(world, lambda: east.missing() == 1)
        world.network.heal()
        for name in ("east", "west"):
            await readers[name].until(*(each for other in clients for each in bodies(other, 1, 50)))
            for other in clients:
                assert readers[name].of(other) == bodies(other, 1, 50)
            check_vectors(name, readers[name].got)
        await until(world, lambda: east.missing() == 0)

    run(world, story(), seconds=200)


def test_the_first_subscriber_waits_for_other_regions_and_hears_which_one_is_missing() -> None:
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        await here.publish(TOPIC, b"1")
        await there.publish(TOPIC, b"1")
        world.network.partition("east", "west")
        begun = world.clock.seconds()
        with pytest.raises(Refused, match=r"region at west:4080:-1: .*cannot be reached") as caught:
            await here.subscribe(TOPIC, SUB)
        assert caught.value.told is Status.COMPOSITE
        assert world.clock.seconds() - begun <= JOIN_TIMEOUT_S + 0.1
        assert await east.subscribers() == set(), "it was not made"
        await here.publish(TOPIC, b"2")
        world.network.heal()
        mine = await reader(here)
        await there.publish(TOPIC, b"3")
        assert await mine.until(b"3") == [b"3"]
        world.network.partition("east", "west")
        await mine.subscription.close()
        mine = await reader(here)
        await reader(here, b"second")  # only the first one waits

    run(world, story(), seconds=200)


def test_a_subscriber_that_does_not_wait_is_served_while_a_region_is_away() -> None:
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        await here.publish(TOPIC, b"0")
        world.network.partition("east", "west")
        service = east.ownership.owned[TOPIC]
        told: list[object] = []
        subscribe = Subscribe(1, TOPIC, True, SUB, SubscribeMode.CREATE_OR_ATTACH, False, None, None, False)
        await service.subscribe(subscribe, _NoChannel(), lambda *attached: told.append(attached))
        assert told
        mine = await reader(here, b"another")
        await here.publish(TOPIC, b"1")
        await mine.until(b"1")
        world.network.heal()
        while await west.subscribers() != {b"__east"}:
            await world.pause(0.1)
        await there.publish(TOPIC, b"2")
        assert await mine.until(b"2") == [b"1", b"2"]
        assert east.meters.region_failures.value > 0

    run(world, story(), seconds=200)


class _NoChannel:
    """A connection that takes nothing."""

    writable = False

    def write(self, parts: object) -> None:
        raise AssertionError("nothing is to be written")

    def when_writable(self, held: object) -> None:
        """It never takes anything."""


def test_a_producers_numbers_in_another_region_say_nothing_of_those_here() -> None:
    """Method: messages with numbers arrive from elsewhere; then the topic's next owner here reads them."""
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        mine = await reader(here)
        numbers = [origin_properties(Origin(b"producer", number, number - 1 or None)) for number in (1, 2, 3)]
        for each in numbers:
            await there.publish(TOPIC, b"there", each)
        while len(mine.got) < 3:
            mine.got += await mine.subscription.receive()
        await east.ownership.release(TOPIC)
        ids = [(await here.publish(TOPIC, b"here", each)).local for each in numbers]
        assert ids == [4, 5, 6], "they are no repeats"
        assert [(await here.publish(TOPIC, b"here", each)).local for each in numbers] == ids

    run(world, story())


# --- what should not be


def test_a_client_forges_neither_a_region_nor_what_is_stored_of_one() -> None:
    """Were it believed, the next message of that region would count as stored, and be lost."""
    world = started_world(3)

    async def story() -> None:
        east, west = await hubs_of(world, "east", "west")
        here, there = a_client(world, east), a_client(world, west)
        mine = await reader(here)
        forged = encode_message(Message(b"forged", id=MessageId(LocalId(5), ((b"west", 1000),)), region=b"west"))
        connection, transport = HubConnection(east.ownership), _Transport()
        connection.makeConnection(transport)  # type: ignore[arg-type]
        connection.dataReceived(b"".join(PublishEncoder(TOPIC).frames(1, [forged])))
        await mine.until(b"forged")
        await there.publish(TOPIC, b"true")
        await mine.until(b"true")
        assert [(each.body, each.region, each.remote) for each in mine.got] == [
            (b"forged", b"east", ()),
            (b"true", b"west", ((b"west", 1),)),
        ]

    run(world, story())


class _Transport:
    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Nothing is ever held back."""

    def getPeer(self) -> str:
        return "10.0.0.7:50000"

    def writeSequence(self, parts: object) -> None:
        """Nobody reads it."""


def test_a_hub_of_the_same_region_in_the_list_is_told() -> None:
    world = started_world(3)

    async def story() -> None:
        east = await RegionalHub(world, "east", PORT, addresses("east")).started()
        here = a_client(world, east)
        with pytest.raises(Refused, match=r"is this region itself: a hub has one of its own region in its `regions`"):
            await here.subscribe(TOPIC, SUB)
        assert await east.subscribers() == set()

    run(world, story())


@pytest.mark.parametrize(
    ("region", "said"),
    [
        (b"", "a message from 127.0.0.1:4090:-1 does not say in which region it was published"),
        (b"east", "127.0.0.1:4090:-1 is a hub of this region, east, or of another one of the same name"),
        (b"west", "127.0.0.1:4090:-1 and west:4080:-1 are both of region west"),
    ],
)
def test_messages_of_a_region_that_cannot_be_are_not_stored_and_not_consumed(region: bytes, said: str) -> None:
    world = started_world(3)

    async def story() -> None:
        odd = Scripted(world, 4090, lambda connection, request: deliver(connection, request, region))
        west = await RegionalHub(world, "west", PORT, ()).started()
        east = await RegionalHub(world, "east", PORT, (*addresses("west"), odd.address)).started()
        here, there = a_client(world, east), a_client(world, west)
        await there.publish(TOPIC, b"0")
        mine = await reader(here)
        for number in range(1, 6):
            await there.publish(TOPIC, b"%d" % number)
        assert await mine.until(b"5") == [b"1", b"2", b"3", b"4", b"5"], "the others are received all the same"
        with capturedLogs() as logs:
            await until(world, lambda: len(odd.of(Subscribe)) > 3)
        told = [text for text in map(formatEvent, logs) if "gets nothing" in text]
        assert [said in text for text in told] == [True], "once, however often it is tried"
        assert not odd.of(Consume)
        assert east.meters.region_failures.value >= 2
        assert mine.of("west") == [b"1", b"2", b"3", b"4", b"5"]

    run(world, story(), seconds=100)


def deliver(connection: ScriptedConnection, request: Any, region: bytes) -> None:
    serve(connection, request)
    if isinstance(request, Subscribe):
        stored = encode_message(Message(b"odd", id=MessageId(LocalId(1)), region=region))
        parts = DeliveryEncoder(TOPIC, request.subscriber).parts([stored])
        connection.hub.process.clock.callLater(2.0, connection.write, b"".join(parts))


def test_it_is_looked_at_very_many_feeds_in_turns() -> None:
    clock, meters = SimulatedClock(), Meters()
    settings = RegionSettings(addresses=addresses("west"))
    regions = Regions(clock, b"east", settings, lambda address: SimpleNamespace(abandon=lambda: None), meters)  # type: ignore[arg-type,return-value]
    [west] = regions.others
    for number in range(3 * LOOKED_AT_ONCE):
        topic = Topic(b"topic-%d" % number)
        sink: Any = SimpleNamespace(topic=topic, has_ordinary=True)
        regions._wanted(sink)  # noqa: SLF001 - nothing is to be subscribed to
    assert clock.step()
    assert regions.missing_count == 0, "others have their turn"
    clock.run_until(lambda: west.missing == 3 * LOOKED_AT_ONCE, seconds=1)
    regions.close()
    assert not any(timer.active() for _, _, timer in clock._heap)  # noqa: SLF001


def test_the_names_of_hubs_are_refused_to_ordinary_clients() -> None:
    world = started_world(3)

    async def story() -> None:
        [east] = await hubs_of(world, "east")
        with pytest.raises(MalformedRequest, match="are for hubs"):
            await a_client(world, east).subscribe(TOPIC, SubscriberId(b"__west"))

    run(world, story())


def test_an_address_at_which_something_else_answers_is_told() -> None:
    world = started_world(3)

    async def story() -> None:
        network = world.network.host(SimulatedProcess("web", world.clock), "web")
        await network.listen("web", PORT, _Babbler)
        east = await RegionalHub(world, "east", PORT, addresses("web")).started()
        with pytest.raises(Refused, match="region at web:4080:-1: ") as caught:
            await a_client(world, east).subscribe(TOPIC, SUB)
        assert caught.value.told is Status.COMPOSITE

    run(world, story())


class _Babbler:
    """No hub."""

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    def connectionLost(self, reason: object) -> None:
        """It says nothing more."""
