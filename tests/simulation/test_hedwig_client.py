"""The client of hubs on the simulated network: real hubs, which are killed, stopped and moved from, and scripted ones.

Real hubs show that nothing acknowledged is lost and that order is what the client promises; scripted ones (`Scripted`)
say what a real one says only at the wrong moment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bookkeeper.errors import BookKeeperError, ClientClosed, ConnectFailed, InvalidArgument
from hedwig.client import hubs as hubs_module
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions import inbox as taking_module
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.errors import (
    AlreadySubscribed,
    InvalidFilter,
    MalformedRequest,
    MessageTooLarge,
    NoHub,
    NotSubscribed,
    ServiceDown,
    TopicBusy,
    UncertainState,
)
from hedwig.filters import BUILT_IN, with_expression
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.regions.sources import client_of
from hedwig.hub.topics.service import TopicService
from hedwig.model import Event, HubAddress, LocalId, MessageId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.conditions import STEPS_MAX
from hedwig.wire.framing import FrameDecoder, framed
from hedwig.wire.messages import Message as WireMessage
from hedwig.wire.messages import Stamp, encode_message
from hedwig.wire.receiving import Received
from hedwig.wire.requests import (
    CloseSubscription,
    Consume,
    Malformed,
    Publishes,
    Request,
    Subscribe,
    Unsubscribe,
    decode_requests,
)
from hedwig.wire.responses import (
    DeliveryEncoder,
    error_frame,
    event_frame,
    published_frames,
    subscribed_frame,
    success_frame,
)
from tests.simulation.test_hub_connection import Hub
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World
from tests.support.simulated_clock import SimulatedProcess

TOPIC, SUB = Topic(b"orders"), SubscriberId(b"billing")
QUICK = PubSubSettings(answer_timeout_s=3.0, heartbeat_s=1.0, retry_timeout_s=20.0, connect_timeout_s=1.0)


class ListeningHub(Hub):
    """A real hub behind the simulated network."""

    async def started(self) -> ListeningHub:
        await super().started()
        network = self.world.network.host(self.client.process, "127.0.0.1")
        self.connections: list[HubConnection] = []

        def accept() -> HubConnection:
            self.connections.append(HubConnection(self.ownership))
            return self.connections[-1]

        await network.listen("127.0.0.1", self.address.port, accept)
        return self

    @property
    def address(self) -> HubAddress:
        return self.ownership.address


class Scripted:
    """A hub that does what its test says: `on_request` gets each connection and request."""

    def __init__(self, world: World, port: int, on_request: Callable[[ScriptedConnection, Request], object]) -> None:
        self.address = HubAddress("127.0.0.1", port)
        self.on_request = on_request
        self.requests: list[Request] = []
        self.connections: list[ScriptedConnection] = []
        self.process = SimulatedProcess(f"scripted{port}", world.clock)
        network = world.network.host(self.process, "127.0.0.1")

        def accept() -> ScriptedConnection:
            self.connections.append(ScriptedConnection(self))
            return self.connections[-1]

        network.listen("127.0.0.1", port, accept)

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.requests if isinstance(each, kind)]


class ScriptedConnection:
    def __init__(self, hub: Scripted) -> None:
        self.hub = hub
        self.lost = False
        self._decoder = FrameDecoder(1 << 24)
        self.transport: Any = None

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def connectionLost(self, reason: Any) -> None:
        self.lost = True

    def dataReceived(self, data: bytes) -> None:
        for request in decode_requests(self._decoder.receive(data)):
            self.hub.requests.append(request)
            if isinstance(request, Malformed):  # a heartbeat
                self.transport.write(error_frame(request.txn_id, Status.MALFORMED_REQUEST, "unknown"))
            else:
                self.hub.on_request(self, request)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def deliver(self, *local_ids: int, topic: Topic = TOPIC) -> None:
        self.write(deliveries(*local_ids, topic=topic))


def deliveries(*local_ids: int, topic: Topic = TOPIC) -> bytes:
    message = encode_message(WireMessage(b"x"))
    stored = [Stamp(b"here").plain([message], LocalId(local_id))[0] for local_id in local_ids]
    return b"".join(DeliveryEncoder(topic, SUB).parts(stored))


def serve(connection: ScriptedConnection, request: Request) -> None:
    """Everything succeeds."""
    match request:
        case Subscribe():
            connection.write(subscribed_frame(request.txn_id, request.preferences or Preferences()))
        case Unsubscribe() | CloseSubscription():
            connection.write(success_frame(request.txn_id))
        case Publishes():
            connection.write(published_frames(request.txn_ids, LocalId(1)))


def a_client(world: World, *hubs: HubAddress, settings: PubSubSettings = QUICK, **changes: Any) -> PubSubClient:
    process = SimulatedProcess("publisher", world.clock)
    network = world.network.host(process, "publisher")
    return PubSubClient(process.clock, network, hubs, replace(settings, **changes), random.Random(7))


def outcomes(publishes: list[Deferred[MessageId]]) -> tuple[list[MessageId | BookKeeperError], Deferred[None]]:
    """What becomes of each, and when all is known."""
    found: list[Any] = [None] * len(publishes)
    left, done = [len(publishes)], Deferred[None]()

    def note(result: Any, index: int) -> None:
        assert found[index] is None, "told twice"
        found[index] = getattr(result, "value", result)
        left[0] -= 1
        if not left[0]:
            done.callback(None)

    for index, publish in enumerate(publishes):
        publish.addBoth(note, index)
    return found, done


async def taken(subscription: Subscription, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        found += [(each.local_id, each.body) for each in await subscription.receive()]
    return found


async def failure_of(deferred: Deferred[Any], kind: type[BaseException]) -> str:
    with pytest.raises(kind) as raised:
        await deferred
    return str(raised.value)


def body(number: int) -> bytes:
    return b"%d" % number


# --- publishing ------------------------------------------------------------------------------------------------------


def test_publishes_keep_their_order_and_get_consecutive_ids() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        found, done = outcomes([client.publish(TOPIC, body(number)) for number in range(1, 3001)])
        assert client.lane(TOPIC).unanswered == 3000
        await done
        assert found == [MessageId(LocalId(number)) for number in range(1, 3001)]
        assert await taken(subscription, 3000) == [(number, body(number)) for number in range(1, 3001)]
        ids = await client.publisher(TOPIC).publish_many([b"a", b"b"], {"kind": b"letter"})
        assert [each.local for each in ids] == [3001, 3002]
        [first] = await subscription.receive(1)
        assert dict(first.properties) == {"kind": b"letter"}
        await client.close()
        assert all(connection.closed for connection in hub.connections) or await world.pause(1) is None

    run(world, story(), seconds=120)


def test_a_redirect_costs_one_publish_and_is_remembered() -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        await a_client(world, b.address).publish(TOPIC, b"claims it")
        client = a_client(world, a.address)
        found, done = outcomes([client.publish(TOPIC, body(number)) for number in range(500)])
        await done
        assert found == [MessageId(LocalId(number)) for number in range(2, 502)]
        served = len(a.connections)
        a.ownership.stop = None  # type: ignore[assignment,method-assign]  # it is not asked again
        await client.publish(TOPIC, b"more")
        await client.subscribe(TOPIC, SUB)
        assert len(a.connections) == served == 1

    run(world, story(), seconds=120)


def test_one_unknown_topic_asks_with_one_publish_only() -> None:
    world = started_world(0)

    async def story() -> None:
        refusing = Scripted(
            world,
            4080,
            lambda connection, request: [
                connection.write(error_frame(each, Status.NOT_RESPONSIBLE_FOR_TOPIC, "127.0.0.1:4081"))
                for each in request.txn_ids  # type: ignore[union-attr]
            ],
        )
        serving = Scripted(world, 4081, serve)
        client = a_client(world, refusing.address)
        _, done = outcomes([client.publish(TOPIC, body(number)) for number in range(100)])
        await done
        assert sum(len(each.txn_ids) for each in refusing.of(Publishes)) == 1
        claiming, *rest = serving.of(Publishes)
        assert (len(claiming.txn_ids), claiming.should_claim) == (1, True)
        assert sum(len(each.txn_ids) for each in rest) == 99

    run(world, story())


@pytest.mark.parametrize("seed", range(3))
def test_publishes_under_way_when_a_hub_is_killed_are_all_answered_and_none_is_lost(seed: int) -> None:
    """Method: 3000 outstanding on three topics, the hub killed in the middle; another takes over after its session."""
    world = started_world(4)
    rng = random.Random(seed)
    topics = [Topic(b"t%d" % number) for number in range(3)]

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address, retry_timeout_s=60.0)
        readers = {topic: await client.subscribe(topic, SUB) for topic in topics}
        sent = [(topic, body(number)) for number in range(1000) for topic in topics]
        found, done = outcomes([client.publish(topic, each) for topic, each in sent])
        await world.pause(rng.random() * 0.05)
        owners = [hub for hub in (a, b) if hub.ownership.owned]
        rng.choice(owners).client.crash()
        await done
        assert all(isinstance(each, MessageId) for each in found), Counter(map(repr, found)).most_common(3)
        for topic in topics:
            last = await client.publish(topic, b"last")
            stored = dict(await taken(readers[topic], last.local))
            assert sorted(stored) == list(range(1, last.local + 1)), "a gap, or one twice"
            mine = [(each, message_id) for (of, each), message_id in zip(sent, found, strict=True) if of == topic]
            for each, message_id in mine:
                assert isinstance(message_id, MessageId)
                assert stored[message_id.local] == each
            # What was sent again came in its order, too: first the old ones, then what was never sent.
            firsts = [int(each) for _, each in sorted(stored.items()) if each != b"last"]
            again = [index for index in range(1, len(firsts)) if firsts[index] < firsts[index - 1]]
            assert len(again) <= 1, "order broken more than once by one lost hub"
        await client.close()

    run(world, story(), seconds=300)


def test_publishes_go_on_when_a_hub_loses_its_session() -> None:
    world = started_world(4)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address)
        await client.publish(TOPIC, b"0")
        owner = a if a.ownership.owned else b
        subscription = await client.subscribe(TOPIC, SUB)
        found, done = outcomes([client.publish(TOPIC, body(number)) for number in range(300)])
        owner.client.store.expire_session()
        await done
        assert all(isinstance(each, MessageId) for each in found), Counter(map(repr, found)).most_common(3)
        last = await client.publish(TOPIC, b"last")
        stored = dict(await taken(subscription, last.local - 1))
        assert [stored[each.local] for each in found if isinstance(each, MessageId)] == [body(n) for n in range(300)]

    run(world, story(), seconds=200)


def test_a_hub_that_says_uncertain_is_as_one_that_went() -> None:
    """What a hub answers whose topic was taken over is tried again elsewhere, not told to the program."""
    world = started_world(0)
    told: list[Request] = []

    async def story() -> None:
        def uncertain_once(connection: ScriptedConnection, request: Request) -> None:
            if not told and isinstance(request, Publishes):
                told.append(request)
                connection.write(error_frame(request.txn_ids[0], Status.UNCERTAIN_STATE, "taken over"))
            else:
                serve(connection, request)

        hub = Scripted(world, 4080, uncertain_once)
        client = a_client(world, hub.address)
        assert (await client.publish(TOPIC, b"x")).local == 1
        assert len(hub.of(Publishes)) == 2

    run(world, story())


def test_a_hub_that_is_silent_is_left_and_what_it_may_have_done_is_said() -> None:
    world = started_world(0)

    async def story() -> None:
        client = a_client(world, HubAddress("127.0.0.1", 4080))
        silent = Scripted(world, 4080, lambda connection, request: None)
        silent.process.sleep(1000.0)
        publish = client.publish(TOPIC, b"x")
        text = await failure_of(publish, UncertainState)
        assert "may have" in text
        assert 20.0 <= world.clock.seconds() <= 30.0
        never = a_client(world, HubAddress("127.0.0.1", 4090))
        text = await failure_of(never.publish(TOPIC, b"x"), ServiceDown)
        assert "no hub took the message in time" in text
        assert "connection refused" in text
        assert "hub 127.0.0.1:4090 cannot be reached" in text, "as it was given"
        text = await failure_of(never.reach(), ConnectFailed)
        assert "hub 127.0.0.1:4090 cannot be reached" in text
        assert "Start one there (`hedwig hub`), or give the address of one that runs" in text

    run(world, story())


def test_a_hub_that_lives_and_is_stuck_with_one_topic_is_not_left() -> None:
    """Leaving it would send everything again, and store it twice."""
    world = started_world(0)

    async def story() -> None:
        waiting: list[tuple[ScriptedConnection, Publishes]] = []

        def stuck(connection: ScriptedConnection, request: Request) -> None:
            if isinstance(request, Publishes):
                waiting.append((connection, request))

        hub = Scripted(world, 4080, stuck)
        client = a_client(world, hub.address)
        publish = client.publish(TOPIC, b"x")
        await world.pause(15.0)
        [(connection, request)] = waiting
        serve(connection, request)
        assert (await publish).local == 1
        assert len(hub.connections) == 1

    run(world, story())


class Foreign:
    """A server of something else: it ends each connection when something comes, as ZooKeeper and bookies do. says: what
    it answers before.
    """

    def __init__(self, world: World, says: bytes = b"") -> None:
        self.accepted, self.address = 0, HubAddress("127.0.0.1", 4080)
        foreign = self

        class Connection:
            def makeConnection(self, transport: Any) -> None:
                self.transport = transport
                foreign.accepted += 1

            def connectionLost(self, reason: Any) -> None:
                pass

            def dataReceived(self, data: bytes) -> None:
                if says:
                    self.transport.write(says)
                self.transport.loseConnection()

        self.process = SimulatedProcess("foreign", world.clock)
        world.network.host(self.process, "127.0.0.1").listen("127.0.0.1", 4080, Connection)


def test_who_ends_every_connection_without_a_word_is_no_hub() -> None:
    """It took a minute, and the message told of a hub that may have stored something."""
    world = started_world(0)

    async def story() -> None:
        foreign = Foreign(world)
        client = a_client(world, foreign.address)
        began = world.clock.seconds()
        text = await failure_of(client.publish(TOPIC, b"x"), UncertainState)
        assert "127.0.0.1:4080 is no hub: it ended" in text
        assert "answered on none of them. Give a hub's address" in text
        assert world.clock.seconds() - began < 5.0
        text = await failure_of(client.subscribe(TOPIC, SUB), NoHub)
        assert "127.0.0.1:4080 is no hub" in text
        foreign.process.crash()
        Scripted(world, 4080, serve)
        assert (await client.publish(TOPIC, b"y")).local == 1, "now there is one"

    run(world, story())


@pytest.mark.parametrize(
    "says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x0a", framed(b"hello")]
)
def test_who_answers_what_no_hub_says_is_none(says: bytes) -> None:
    world = started_world(0)

    async def story() -> None:
        foreign = Foreign(world, says)
        text = await failure_of(a_client(world, foreign.address).publish(TOPIC, b"x"), NoHub)
        assert "127.0.0.1:4080 is no hub: it answers what no hub says" in text
        client = a_client(world, foreign.address)
        assert "is no hub" in await failure_of(client.subscribe(TOPIC, SUB), NoHub)
        assert foreign.accepted <= 4

    run(world, story())


def test_a_hub_that_ends_connections_because_of_what_is_sent_is_still_a_hub() -> None:
    """A message above its max_message_size, for instance; it answers when it is asked for a sign of life."""
    world = started_world(0)

    def ends(connection: ScriptedConnection, request: Request) -> None:
        connection.transport.loseConnection()

    async def story() -> None:
        hub = Scripted(world, 4080, ends)
        client = a_client(world, hub.address)
        began = world.clock.seconds()
        assert "is no hub" not in await failure_of(client.publish(TOPIC, b"x"), UncertainState)
        assert world.clock.seconds() - began >= QUICK.retry_timeout_s

    run(world, story())


def test_what_a_call_waits_for_is_told_after_seconds_and_again_when_that_is_another_thing() -> None:
    world = started_world(0)

    async def story() -> None:
        answers = [""]

        def slow(connection: ScriptedConnection, request: Request) -> None:
            if answers[0] == "yes":
                serve(connection, request)
            elif answers[0] and isinstance(request, Publishes):
                connection.write(error_frame(request.txn_ids[0], Status.SERVICE_DOWN, answers[0]))

        hub = Scripted(world, 4080, slow)
        client = a_client(world, hub.address, retry_timeout_s=60.0)
        told: list[str] = []
        client.on_waiting = told.append
        first = client.publish(TOPIC, b"x")
        await world.pause(2.5)
        assert told == []
        await world.pause(3.0)
        assert told == ["waiting for hub 127.0.0.1:4080: connected, no answer yet"]
        await world.pause(20.0)
        assert len(told) == 1, "nothing has changed"
        answers[0] = "not enough bookies"
        hub.connections[0].transport.loseConnection()
        await world.pause(15.0)
        assert told[1:] == ["topic orders is tried again: hub 127.0.0.1:4080: not enough bookies"]
        answers[0] = "yes"
        await first
        for number in range(80):  # always something is unanswered, and always something is answered
            await world.pause(0.1)
            await client.publish(TOPIC, b"%d" % number)
        assert len(told) == 2
        answers[0] = ""
        subscribing = client.subscribe(TOPIC, SUB)
        await world.pause(5.0)
        assert told[2:] == ["waiting for hub 127.0.0.1:4080: connected, no answer yet"]
        answers[0] = "yes"
        hub.connections[-1].transport.loseConnection()
        await subscribing
        await world.pause(20.0)
        assert len(told) == 3, "a subscription that is attached waits for nothing"

    run(world, story(), seconds=200.0)


def test_publishes_that_a_living_hub_never_answers_fail_and_later_ones_go_on() -> None:
    world = started_world(0)

    async def story() -> None:
        answers = [False]

        def sometimes(connection: ScriptedConnection, request: Request) -> None:
            if answers[0]:
                serve(connection, request)

        hub = Scripted(world, 4080, sometimes)
        client = a_client(world, hub.address, retry_timeout_s=5.0)
        first = client.publish(TOPIC, b"x")
        await world.pause(3.0)
        second = client.publish(TOPIC, b"y")
        answers[0] = True
        text = await failure_of(first, UncertainState)
        assert "has not answered in time" in text
        assert (await second).local == 1, "it waited behind the one that asked for the hub"
        await world.pause(10.0)
        assert not hub.connections[0].lost, "nothing is waited for"

    run(world, story())


def test_room_is_given_in_order_and_never_beyond_the_bound() -> None:
    world = started_world(0)

    async def story() -> None:
        waiting: list[tuple[ScriptedConnection, Publishes]] = []
        hub = Scripted(
            world,
            4080,
            lambda connection, request: waiting.append((connection, request)),  # type: ignore[arg-type]
        )
        client = a_client(world, hub.address, outstanding_max=10)
        publisher = client.publisher(TOPIC)
        both = [publisher.publish_soon(body(number)) for number in range(30)]
        admitted = [index for index, (room, _) in enumerate(both) if room.called]
        assert admitted == list(range(10))
        both[12][0].cancel()
        await failure_of(both[12][1], CancelledError)
        most = 0
        done = 0
        while done < 29:
            await world.pause(0.05)
            for connection, request in waiting:
                serve(connection, request)
            waiting.clear()
            most = max(most, client.lane(TOPIC).unanswered)
            done = sum(each.called for _, each in both) - 1
        assert most <= 10
        sent = [decoded for request in hub.of(Publishes) for decoded in request.messages]
        assert sent == [encode_message(WireMessage(body(number))) for number in range(30) if number != 12]

    run(world, story())


def test_a_publish_that_nobody_waits_for_any_more_disturbs_nobody() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address)
        publishes = [client.publish(TOPIC, body(number)) for number in range(10)]
        publishes[3].cancel()
        many = client.publisher(TOPIC).publish_many([b"a", b"b"])
        many.cancel()
        found, done = outcomes(publishes)
        await done
        assert isinstance(found[3], CancelledError)
        assert (await client.publish(TOPIC, b"x")).local == 13

        def broken(_: object) -> None:
            raise ZeroDivisionError

        failing = client.publish(TOPIC, b"y")
        failing.addCallback(broken)
        after = client.publish(TOPIC, b"z")
        await failure_of(failing, ZeroDivisionError)
        assert (await after).local == 15

    run(world, story())


def test_what_no_hub_takes_is_refused_at_once() -> None:
    world = started_world(0)

    async def story() -> None:
        client = a_client(world, HubAddress("127.0.0.1", 4080))
        for topic in (Topic(b""), Topic(b"a//b"), Topic(b"\xff"), Topic(b"a/hub")):
            await failure_of(client.publish(topic, b"x"), MalformedRequest)
            await failure_of(client.subscribe(topic, SUB), MalformedRequest)
        await failure_of(client.subscribe(TOPIC, SubscriberId(b"__west")), MalformedRequest)
        assert "at most" in await failure_of(client.publish(TOPIC, b"x" * 2_000_000), MalformedRequest)
        assert client.lane(TOPIC).unanswered == 0
        small = a_client(world, HubAddress("127.0.0.1", 4080), hub_frame_size_max=4096)
        assert "hub_max_message_size" in await failure_of(small.publish(TOPIC, b"x" * 4096), MalformedRequest)

    run(world, story())


def test_hubs_that_take_more_get_more() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address, hub_frame_size_max=4_000_000, frame_size_max=4_000_000)
        assert (await client.publish(TOPIC, b"x" * 3_000_000)).local == 1

    run(world, story())


def test_flush_waits_for_what_came_before_it_and_not_for_what_comes_after() -> None:
    world = started_world(0)

    async def story() -> None:
        waiting: list[tuple[ScriptedConnection, Publishes]] = []
        hub = Scripted(
            world,
            4080,
            lambda connection, request: waiting.append((connection, request)),  # type: ignore[arg-type]
        )
        client = a_client(world, hub.address)
        first = client.publish(TOPIC, b"1")
        flushing = client.flush()
        later = client.publish(TOPIC, b"2")
        await world.pause(0.1)
        assert not flushing.called
        serve(*waiting[0])
        await flushing
        assert first.called
        assert not later.called
        later.addErrback(lambda failure: None)

    run(world, story())


def test_a_flush_that_begins_when_there_is_room_waits_for_what_is_open() -> None:
    world = started_world(0)

    async def story() -> None:
        waiting: list[tuple[ScriptedConnection, Publishes]] = []
        hub = Scripted(
            world,
            4080,
            lambda connection, request: waiting.append((connection, request)),  # type: ignore[arg-type]
        )
        client = a_client(world, hub.address, outstanding_max=2)
        publishes = [client.publish(TOPIC, body(number)) for number in range(2)]
        flushes: list[Deferred[None]] = []
        client.publisher(TOPIC).room().addCallback(lambda _: flushes.append(client.flush()))
        while len(waiting) < 2:
            await world.pause(0.1)
            if len(waiting) == 1 and not flushes:
                serve(*waiting[0])
        assert not flushes[0].called
        serve(*waiting[1])
        await flushes[0]
        assert all(each.called for each in publishes)

    run(world, story())


def test_a_hub_that_tells_no_id_has_stored_what_it_answers() -> None:
    """One before 4.2."""
    world = started_world(0)

    async def story() -> None:
        def old(connection: ScriptedConnection, request: Request) -> None:
            assert isinstance(request, Publishes)
            for txn_id in request.txn_ids:
                connection.write(success_frame(txn_id))

        hub = Scripted(world, 4080, old)
        client = a_client(world, hub.address)
        found, done = outcomes([client.publish(TOPIC, body(number)) for number in range(5)])
        await done
        assert found == [MessageId(LocalId(0))] * 5
        assert sum(len(each.txn_ids) for each in hub.of(Publishes)) == 5

    run(world, story())


def test_a_hub_that_could_not_acquire_the_topic_is_asked_again() -> None:
    """Which a genuine one calls composite."""
    world = started_world(0)
    told: list[Request] = []

    async def story() -> None:
        def composite_once(connection: ScriptedConnection, request: Request) -> None:
            if not told and isinstance(request, Publishes):
                told.append(request)
                connection.write(error_frame(request.txn_ids[0], Status.COMPOSITE, "[NodeExists]"))
            else:
                serve(connection, request)

        hub = Scripted(world, 4080, composite_once)
        client = a_client(world, hub.address)
        assert (await client.publish(TOPIC, b"x")).local == 1

    run(world, story())


def test_closing_fails_at_once_what_was_never_sent_and_says_what_may_have_been() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, lambda connection, request: None)
        client = a_client(world, hub.address)
        sent = client.publish(TOPIC, b"1")
        queued = client.publish(TOPIC, b"2")
        await world.pause(0.1)
        subscribing = client.subscribe(TOPIC, SUB)
        _, soon = client.publisher(TOPIC).publish_soon(b"3")
        client.abandon()
        assert sent.called
        assert queued.called
        await failure_of(sent, UncertainState)
        await failure_of(queued, ClientClosed)
        await failure_of(soon, ClientClosed)
        await failure_of(subscribing, ClientClosed)
        await failure_of(client.publish(TOPIC, b"x"), ClientClosed)
        await failure_of(client.subscribe(TOPIC, SUB), ClientClosed)
        await failure_of(client.unsubscribe(TOPIC, SUB), ClientClosed)
        await client.close()
        await world.pause(1.0)
        assert all(each.lost for each in hub.connections)

    run(world, story())


def test_closing_ends_within_the_time_that_publishes_have_though_the_hub_is_dead() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, lambda connection, request: None)
        client = a_client(world, hub.address, retry_timeout_s=5.0)
        publish = client.publish(TOPIC, b"x")
        await world.pause(0.1)
        hub.process.crash()
        began = world.clock.seconds()
        closing, other = client.close(), client.close()
        await failure_of(client.publish(TOPIC, b"y"), ClientClosed)
        await closing
        await other
        assert world.clock.seconds() - began < 10
        await failure_of(publish, UncertainState)

    run(world, story())


def test_a_client_that_is_closed_while_it_connects_leaves_nothing_behind() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        publish, subscribing = client.publish(TOPIC, b"x"), client.subscribe(TOPIC, SUB)
        await world.pause(0.0001)
        client.abandon()
        await failure_of(publish, ClientClosed)
        await failure_of(subscribing, ClientClosed)
        await world.pause(5.0)
        assert not world.network.connections

    run(world, story())


# --- subscribing -----------------------------------------------------------------------------------------------------


def test_a_subscription_moves_with_its_topic_and_hands_out_each_message_once() -> None:
    world = started_world(4)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address)
        subscription = await client.subscribe(TOPIC, SUB, auto_consume=False)
        got: list[tuple[int, bytes]] = []
        for moves in range(4):
            publishes = [client.publish(TOPIC, body(moves * 50 + number)) for number in range(50)]
            got += await taken(subscription, 50)
            subscription.consume(MessageId(LocalId(got[-1][0] - 10)))
            await outcomes(publishes)[1]
            owner = a if a.ownership.owned else b
            await owner.ownership.release(TOPIC)
        await client.publish(TOPIC, body(200))
        got += await taken(subscription, 1)
        assert got == [(number + 1, body(number)) for number in range(201)]
        subscription.consume(MessageId(LocalId(195)))
        subscription.consume(MessageId(LocalId(150)))
        await subscription.close()
        again = await client.subscribe(TOPIC, SUB, SubscribeMode.ATTACH)
        assert await taken(again, 6) == [(number + 1, body(number)) for number in range(195, 201)]

    run(world, story(), seconds=200)


def test_a_subscription_survives_its_hub_and_says_again_what_is_consumed() -> None:
    world = started_world(4)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address)
        # A window smaller than what comes again, for the new hub knows of nothing that is consumed.
        subscription = await client.subscribe(TOPIC, SUB, preferences=Preferences(window_size=5))
        await outcomes([client.publish(TOPIC, body(number)) for number in range(20)])[1]
        assert len(await taken(subscription, 20)) == 20
        waiting = subscription.receive()
        await world.pause(1.0)
        owner, other = (a, b) if a.ownership.owned else (b, a)
        owner.client.crash()
        while not other.ownership.owned:
            await world.pause(0.1)
        published = client.publish(TOPIC, b"after")
        assert [each.body for each in await waiting] == [b"after"]
        await published
        await world.pause(1.0)
        await subscription.close()
        again = await client.subscribe(TOPIC, SUB)
        await client.publish(TOPIC, b"later")
        assert [each.body for each in await again.receive()] == [b"later"]

    run(world, story(), seconds=200)


@pytest.mark.parametrize("shared_connections", [True, False])
def test_an_attach_that_names_no_window_keeps_the_stored_one(*, shared_connections: bool) -> None:
    world = started_world(3)
    wide = SubscriberId(b"wide")

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address, window=50, shared_connections=shared_connections)
        made = [
            await client.subscribe(TOPIC, SUB),
            await client.subscribe(TOPIC, wide, preferences=Preferences(window_size=100)),
        ]
        assert [each.preferences.window_size for each in made] == [50, 100]
        for each in made:
            await each.close()
        later = a_client(world, hub.address, window=7, shared_connections=shared_connections)
        for subscriber, window in ((SUB, 50), (wide, 100)):
            for mode in (SubscribeMode.ATTACH, SubscribeMode.CREATE_OR_ATTACH):
                subscription = await later.subscribe(TOPIC, subscriber, mode)
                assert subscription.preferences.window_size == window
                await client.publish(TOPIC, b"x")
                assert await taken(subscription, 1)
                await subscription.close()

    run(world, story())


@pytest.mark.parametrize(("named", "window_if_none"), [(Preferences(9), 50), (Preferences(9, window_size=0), None)])
def test_an_attach_after_a_move_names_what_the_caller_named_and_nothing_else(
    named: Preferences, window_if_none: int | None
) -> None:
    """Other clients may have stored other preferences in the meantime."""
    world = started_world(0)
    stored = Preferences(5, "a.Filter", 70, {"a": b"1"})

    def answer(connection: ScriptedConnection, request: Request) -> None:
        if isinstance(request, Subscribe) and request.preferences is not None:
            connection.write(subscribed_frame(request.txn_id, stored.merged(request.preferences)))
        else:
            serve(connection, request)

    hub = Scripted(world, 4080, answer)

    async def story() -> None:
        client = a_client(world, hub.address, window=50)
        await client.subscribe(TOPIC, SUB, preferences=named)
        hub.connections[-1].write(event_frame(TOPIC, SUB, Event.TOPIC_MOVED))
        await world.pause(1.0)
        asked = hub.of(Subscribe)
        assert [each.mode for each in asked] == [SubscribeMode.CREATE_OR_ATTACH, SubscribeMode.ATTACH]
        assert [(each.preferences, each.window_if_none) for each in asked] == [(named, window_if_none)] * 2
        await client.close()

    run(world, story())


def test_a_hub_that_is_cut_off_is_noticed_by_its_silence() -> None:
    world = started_world(4)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address)
        subscription = await client.subscribe(TOPIC, SUB)
        owner, other = (a, b) if a.ownership.owned else (b, a)
        owner.client.process.sleep(60.0)
        world.metadata.znodes.end_session(owner.client.store.tree.session_id)
        publisher = a_client(world, other.address)
        waiting = subscription.receive()
        await publisher.publish(TOPIC, b"x")
        assert [each.body for each in await waiting] == [b"x"]
        assert world.clock.seconds() < 40

    run(world, story(), seconds=200)


def test_who_is_forced_off_is_told_and_what_was_delivered_is_still_there() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        old, new = a_client(world, hub.address), a_client(world, hub.address)
        subscription = await old.subscribe(TOPIC, SUB)
        await old.publish(TOPIC, b"1")
        await world.pause(0.5)
        text = await failure_of(new.subscribe(TOPIC, SUB), TopicBusy)
        assert "attached on another connection; force=True (`hedwig sub --force`) takes it from there" in text
        taker = await new.subscribe(TOPIC, SUB, force=True)
        await world.pause(0.5)
        assert await taken(subscription, 1) == [(1, b"1")]
        assert "another client" in await failure_of(subscription.receive(), TopicBusy)
        await subscription.close()
        assert await taken(taker, 1) == [(1, b"1")]
        await new.unsubscribe(TOPIC, SUB)
        await failure_of(taker.receive(), ClientClosed)
        text = await failure_of(new.unsubscribe(TOPIC, SUB), NotSubscribed)
        assert text == f"there is no subscriber {SUB.decode()!r} of topic {TOPIC.decode()!r}"
        await failure_of(old.subscribe(TOPIC, SUB, SubscribeMode.ATTACH), NotSubscribed)
        await old.subscribe(TOPIC, SUB, SubscribeMode.CREATE)
        await failure_of(new.subscribe(TOPIC, SUB, SubscribeMode.CREATE), AlreadySubscribed)
        await failure_of(old.subscribe(TOPIC, SUB), MalformedRequest)

    run(world, story())


def test_a_subscription_that_was_ended_elsewhere_fails_when_it_is_attached_again() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client, other = a_client(world, hub.address), a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        await other.unsubscribe(TOPIC, SUB)
        waiting = subscription.receive()
        await hub.ownership.release(TOPIC)
        world.network.cut_some_connection()
        for connection in list(world.network.connections):
            if connection.ends[0].host == "publisher":
                connection.cut()
        await failure_of(waiting, NotSubscribed)
        await failure_of(subscription.receive(), NotSubscribed)

    run(world, story())


def test_iterating_consumes_what_its_body_has_finished_and_no_more() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        await outcomes([client.publish(TOPIC, body(number)) for number in range(1, 21)])[1]
        async for message in subscription:
            if message.local_id == 7:
                break
        async for message in subscription:
            assert message.local_id == 8, "what was not given stays"
            break
        await subscription.close()
        again = await client.subscribe(TOPIC, SUB)
        assert (await again.receive(1))[0].local_id == 8
        [given] = await again.receive(1)
        again.give_back([given])
        assert (await again.receive(2))[0].local_id == 9
        again.forget_taken()
        await again.close()
        last = await client.subscribe(TOPIC, SUB)
        assert (await last.receive(100))[0].local_id == 9, "closing did not count what was forgotten"
        await last.close()
        end = [message async for message in last]
        assert end == []

    run(world, story())


def test_what_an_iteration_has_finished_is_told_without_another_message() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        hub.connections[0].deliver(1, 2, 3)
        await world.pause(0.5)
        messages = await subscription.receive(counts=False)
        assert [each.local_id for each in messages] == [1, 2, 3]
        await world.pause(1.0)
        assert hub.of(Consume) == []
        subscription.finished = messages[1]  # as another thread does
        await world.pause(1.0)
        assert [each.up_to.local for each in hub.of(Consume)] == [2]
        subscription.finished = messages[2]
        await world.pause(1.0)
        assert [each.up_to.local for each in hub.of(Consume)] == [2, 3]

    run(world, story())


def test_receive_takes_what_is_there_waits_as_long_as_told_and_can_be_given_up() -> None:
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB)
        assert await subscription.receive(timeout_s=0.5) == []
        waiting = subscription.receive()
        await failure_of(subscription.receive(), InvalidArgument)
        await failure_of(subscription.receive(0), InvalidArgument)
        waiting.cancel()
        await failure_of(waiting, CancelledError)
        hub.connections[0].deliver(1, 2, 3)
        await world.pause(0.1)
        assert [each.local_id for each in await subscription.receive(2)] == [1, 2]
        assert [each.local_id for each in await subscription.receive(2)] == [3]
        waiting = subscription.receive(timeout_s=0.5)
        hub.connections[0].deliver(4)
        assert [each.local_id for each in await waiting] == [4]

    run(world, story())


def test_a_filter_of_the_client_never_stalls_its_window() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address)
        few = await client.subscribe(
            TOPIC, SUB, preferences=Preferences(window_size=5), wanted=lambda each: int(each.body) % 50 == 0
        )
        none = await client.subscribe(
            TOPIC, SubscriberId(b"none"), preferences=Preferences(window_size=5), wanted=lambda each: False
        )
        await outcomes([client.publish(TOPIC, body(number)) for number in range(1, 201)])[1]
        got = []
        async for message in few:
            got.append(int(message.body))
            if len(got) == 4:
                break
        assert got == [50, 100, 150, 200]
        await world.pause(2.0)
        await none.close()
        await client.publish(TOPIC, b"end")
        again = await client.subscribe(TOPIC, SubscriberId(b"none"))
        assert [each.body for each in await again.receive()] == [b"end"]

    run(world, story(), seconds=120)


def test_a_filter_that_takes_the_hub_too_long_ends_the_subscription_with_the_reason() -> None:
    """The client attaches once more, reports the reason, and stops. With another filter it receives all messages."""
    world = started_world(3)

    class FilteringHub(ListeningHub):
        filters = BUILT_IN

    async def story() -> None:
        hub = await FilteringHub(world).started()
        client = a_client(world, hub.address)
        with mock.patch.object(TopicService, "subscribe", autospec=True, side_effect=TopicService.subscribe) as asked:
            subscription = await client.subscribe(
                TOPIC, SUB, preferences=with_expression("a LIKE '%ab%' OR color = 'red'")
            )
            before, red = asked.call_count, {"color": b"red"}
            for properties in (red, {**red, "a": b"a" * STEPS_MAX}, red):
                await client.publish(TOPIC, b"x", properties=properties)
            assert [each.local_id for each in await subscription.receive()] == [1]
            why = await failure_of(subscription.receive(), InvalidFilter)
            assert "takes too long for message 2" in why
            await world.pause(30)
            assert asked.call_count == before + 1
        again = await client.subscribe(TOPIC, SUB, preferences=with_expression("color = 'red'"))
        found: list[int] = []
        while 3 not in found:
            found += [each.local_id for each in await again.receive()]
        assert found[-2:] == [2, 3]

    run(world, story(), seconds=120)


def test_a_filter_that_breaks_ends_the_subscription_and_loses_nothing() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB, wanted=lambda each: int(each.body) > 1)
        for each in (b"1", b"2", b"no number", b"4"):
            await client.publish(TOPIC, each)
        await world.pause(0.5)
        assert [each.body for each in await subscription.receive()] == [b"2"]
        assert "broke at message 3" in await failure_of(subscription.receive(), InvalidFilter)
        await client.publish(TOPIC, b"5")
        again = await client.subscribe(TOPIC, SUB)
        found = await taken(again, 3)
        assert [each for _, each in found][-3:] == [b"no number", b"4", b"5"]

    run(world, story())


def test_a_reader_that_does_not_read_stops_its_connection_once_and_starts_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking_module, "BUFFERED_MAX", 50)
    world = started_world(0)

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB, preferences=Preferences(window_size=0))
        other = await client.subscribe(Topic(b"other"), SUB)
        [connection] = hub.connections
        link = subscription._attaching.link  # noqa: SLF001 - in one read: two runs of the slow one, the other's between them
        assert link is not None
        other_one = deliveries(1, topic=Topic(b"other"))
        link.dataReceived(deliveries(*range(1, 61)) + other_one + deliveries(*range(61, 121)))
        assert len(await other.receive()) == 1
        connection.deliver(2, topic=Topic(b"other"))
        assert await other.receive(timeout_s=10.0) == [], "the connection is not read, and is not left for its silence"
        assert len(await taken(subscription, 120)) == 120
        assert [each.local_id for each in await other.receive()] == [2]
        connection.deliver(*range(121, 200))
        await world.pause(0.5)
        connection.deliver(3, topic=Topic(b"other"))
        connection.write(event_frame(TOPIC, SUB, Event.SUBSCRIPTION_FORCED_CLOSED))
        closing = client.unsubscribe(TOPIC, SUB)
        await closing
        assert [each.local_id for each in await other.receive()] == [3], "whoever closes lets it be read again"

    run(world, story())


@pytest.mark.parametrize("event", [Event.SUBSCRIPTION_FORCED_CLOSED, Event.TOPIC_MOVED])
def test_a_subscription_that_goes_away_lets_its_connection_be_read(
    monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    monkeypatch.setattr(taking_module, "BUFFERED_MAX", 50)
    world = started_world(0)
    world.network.latency_max_s = 0.0

    async def story() -> None:
        hub = Scripted(world, 4080, serve)
        client = a_client(world, hub.address)
        subscription = await client.subscribe(TOPIC, SUB, preferences=Preferences(window_size=0))
        other = await client.subscribe(Topic(b"other"), SUB)
        [connection] = hub.connections
        connection.deliver(*range(1, 61))
        await world.pause(0.1)
        link = subscription._attaching.link  # noqa: SLF001 - what comes in the same read as the message too many
        assert link is not None
        link.dataReceived(event_frame(TOPIC, SUB, event))
        await world.pause(0.1)
        connection.deliver(2, topic=Topic(b"other"))
        assert [each.local_id for each in await other.receive()] == [2]

    run(world, story())


def test_the_answer_to_a_subscribe_that_was_given_up_lets_go_of_it() -> None:
    world = started_world(0)

    async def story() -> None:
        late: list[tuple[ScriptedConnection, Request]] = []

        def slow(connection: ScriptedConnection, request: Request) -> None:
            if isinstance(request, Subscribe):
                late.append((connection, request))
            else:
                serve(connection, request)

        hub = Scripted(world, 4080, slow)
        client = a_client(world, hub.address, retry_timeout_s=5.0)
        text = await failure_of(client.subscribe(TOPIC, SUB), UncertainState)
        assert "has not answered in time" in text
        given_up = client.subscribe(TOPIC, SUB)
        await world.pause(0.1)
        given_up.cancel()
        await failure_of(given_up, CancelledError)
        serve(*late[0])
        await world.pause(0.5)
        assert len(hub.of(CloseSubscription)) == 1

    run(world, story())


def test_subscriptions_that_a_living_hub_does_not_attach_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs_module, "ASKED_AT_ONCE", 3)
    world = started_world(0)

    async def story() -> None:
        stuck = [False]

        def partly(connection: ScriptedConnection, request: Request) -> None:
            if not (stuck[0] and isinstance(request, Subscribe) and request.topic.startswith(b"stuck")):
                serve(connection, request)

        hub = Scripted(world, 4080, partly)
        client = a_client(world, hub.address, retry_timeout_s=5.0)
        for number in range(3):
            await client.subscribe(Topic(b"stuck%d" % number), SUB)
        stuck[0] = True
        hub.connections[0].transport.loseConnection()
        await world.pause(1.0)
        fine = None
        while fine is None:
            try:
                fine = await client.subscribe(TOPIC, SUB)
            except UncertainState:
                continue
        stuck[0] = False
        await world.pause(10.0)
        topics = Counter(each.topic for each in hub.of(Subscribe))
        assert all(topics[Topic(b"stuck%d" % number)] > 2 for number in range(3))
        await client.close()

    run(world, story(), seconds=200)


def test_connections_of_their_own_end_with_their_subscriptions() -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address, shared_connections=False)
        topics = [Topic(b"t%d" % number) for number in range(20)]

        def open_ones() -> int:
            return sum(end.ends[0].host == "publisher" for end in world.network.connections)

        held = [await client.subscribe(topic, SUB) for topic in topics]
        assert open_ones() == 20
        for topic in topics:
            await (a if topic in a.ownership.owned else b).ownership.release(topic)
        await world.pause(5.0)
        assert open_ones() == 20
        for subscription in held:
            await subscription.close()
        await world.pause(1.0)
        assert open_ones() == 0
        for topic in topics:  # at once: the hub has heard of the end
            subscription = await client.subscribe(topic, SUB)
            await subscription.close()
            subscription = await client.subscribe(topic, SUB)
            await subscription.close()
        await failure_of(client.subscribe(TOPIC, SUB, SubscribeMode.ATTACH), NotSubscribed)
        await world.pause(1.0)
        assert open_ones() == 0

    run(world, story(), seconds=200)


def test_a_hub_that_ends_every_connection_is_asked_again_with_pauses() -> None:
    world = started_world(0)

    async def story() -> None:
        def poisoned(connection: ScriptedConnection, request: Request) -> None:
            serve(connection, request)
            if isinstance(request, Subscribe):
                connection.write(framed(b"\xff\xff"))

        hub = Scripted(world, 4080, poisoned)
        client = a_client(world, hub.address)
        await client.subscribe(TOPIC, SUB)
        await world.pause(10.0)
        assert 5 <= len(hub.of(Subscribe)) <= 30
        await client.close()

    run(world, story())


def test_a_message_that_is_too_large_for_its_reader_ends_that_subscription_and_no_other() -> None:
    """It came again and again before, and ended the connection of all each time."""
    world = started_world(3)

    async def story() -> None:
        hub = await ListeningHub(world).started()
        writer = a_client(world, hub.address)
        reader = a_client(world, hub.address, frame_size_max=4096)
        large = await reader.subscribe(TOPIC, SUB)
        other = await reader.subscribe(Topic(b"others"), SUB)
        for body in (b"1", bytes(300_000), b"3"):
            await writer.publish(TOPIC, body)
        await writer.publish(Topic(b"others"), b"one")
        assert [body for _, body in await taken(large, 1)] == [b"1"]
        told = await failure_of(large.receive(), MessageTooLarge)
        assert "message 2 of topic orders is too large for this client" in told
        assert "max_message_size is 4,096" in told
        await writer.publish(Topic(b"others"), b"two")
        assert [body for _, body in await taken(other, 2)] == [b"one", b"two"]
        assert not any(each.closed for each in hub.connections)
        await large.close()
        behind = await reader.subscribe(TOPIC, SUB, start=3)
        assert [body for _, body in await taken(behind, 1)] == [b"3"]

    run(world, story())


def test_a_hub_takes_from_other_regions_what_its_own_bound_allows() -> None:
    """It had a client's usual bound, whatever its own: a larger message was delivered to it again and again."""
    world, name = started_world(3), SubscriberId(b"__east")
    large = bytes(3 << 20)

    def deliver(connection: ScriptedConnection, request: Request) -> None:
        serve(connection, request)
        if isinstance(request, Subscribe):
            stored = Stamp(b"west").plain([encode_message(WireMessage(large))], LocalId(1))
            connection.write(b"".join(DeliveryEncoder(TOPIC, name).parts(stored)))

    async def story() -> None:
        hub = Scripted(world, 4080, deliver)
        process = SimulatedProcess("east", world.clock)
        network = world.network.host(process, "east")
        client = client_of(process.clock, network, hub.address, tls=False, frame_size_max=4 << 20)
        subscription = await client.subscribe(TOPIC, name)
        assert await taken(subscription, 1) == [(1, large)]
        client.abandon()

    run(world, story())


@pytest.mark.parametrize("shared_connections", [True, False])
@pytest.mark.parametrize("before", [True, False], ids=["first", "anew"])
def test_a_subscription_that_fails_while_it_is_attached_is_let_go_of(before: bool, shared_connections: bool) -> None:
    """The hub that answers after that would have it for a client that does not know of it."""
    world = started_world(0)
    settings = replace(QUICK, shared_connections=shared_connections)

    def deliver_first(connection: ScriptedConnection, request: Request) -> None:
        if not isinstance(request, Subscribe) or (len(hub.of(Subscribe)) == 1 and not before):
            serve(connection, request)
            return
        connection.deliver(1)
        world.clock.callLater(0.5, serve, connection, request)

    def broken(message: Received) -> bool:
        raise ValueError("broken")

    hub = Scripted(world, 4080, deliver_first)

    async def story() -> None:
        client = a_client(world, hub.address, settings=settings)
        subscribing = client.subscribe(TOPIC, SUB, wanted=broken)
        if before:
            await failure_of(subscribing, InvalidFilter)
        else:
            subscription = await subscribing
            hub.connections[-1].write(event_frame(TOPIC, SUB, Event.TOPIC_MOVED))
            await failure_of(subscription.receive(), InvalidFilter)
        await world.pause(2.0)
        await client.close()

    run(world, story())
    assert len(hub.of(Subscribe)) == (1 if before else 2)
    # One that is asked no more on a connection of its own loses that.
    assert hub.of(CloseSubscription) or (hub.connections[-1].lost and not shared_connections)


def test_text_that_is_not_utf8_ends_the_connection_and_nothing_else() -> None:
    world = started_world(0)
    answers = [framed(b"\x08\x01\x10\x91\x03\x18\x01\x22\x01\xff")]

    async def story() -> None:
        def bad_once(connection: ScriptedConnection, request: Request) -> None:
            if answers:
                connection.write(answers.pop())
            else:
                serve(connection, request)

        hub = Scripted(world, 4080, bad_once)
        client = a_client(world, hub.address)
        assert (await client.publish(TOPIC, b"x")).local == 1
        assert [each.lost for each in hub.connections] == [True, False]

    run(world, story())


def test_hundreds_of_topics_and_subscriptions_move_from_a_dead_hub() -> None:
    world = started_world(3)
    topics = [Topic(b"device/%d" % number) for number in range(300)]
    ended: list[bool] = []

    async def story() -> None:
        a, b = await ListeningHub(world, 4080).started(), await ListeningHub(world, 4081).started()
        client = a_client(world, a.address, b.address, retry_timeout_s=120.0)
        held = [client.subscribe(topic, SUB) for topic in topics]
        subscriptions = [await each for each in held]
        await outcomes([client.publish(topic, b"1") for topic in topics])[1]
        a.client.crash()
        found, done = outcomes([client.publish(topic, b"2") for topic in topics])
        await done
        assert all(isinstance(each, MessageId) for each in found)
        for subscription in subscriptions:
            got = await taken(subscription, 2)
            while got[-1][1] != b"2":
                got += await taken(subscription, 1)
            assert [each for each, _ in got] == list(range(1, len(got) + 1))
            assert sorted({each for _, each in got}) == [b"1", b"2"], "what was uncertain may be there twice"
        await client.close()

    world.spawn(story()).addCallback(lambda _: ended.append(True))
    assert world.run_until(lambda: bool(ended or world.errors), seconds=600.0)
    assert not world.errors


def test_messages_carry_what_was_said_of_other_regions() -> None:
    received = Received(b"x", LocalId(3), b"west", b"", ((b"east", 7),))
    assert received.id == MessageId(LocalId(3), ((b"east", 7),))
    assert str(received.id) == "local:3;east:7"
