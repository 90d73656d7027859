"""Our client: beginning again elsewhere, and acknowledging one by one, at real hubs that are killed and moved from."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bookkeeper.errors import ClientClosed, InvalidArgument
from hedwig.client.client import PubSubClient
from hedwig.client.subscriptions.start import replay_option
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.client.subscriptions.work_queue import attempt, one_by_one
from hedwig.errors import MalformedRequest, TopicBusy, UnexpectedCondition
from hedwig.hub.subscriptions.records import SubscriptionRecords
from hedwig.model import Event, LocalId, MessageId, Preferences
from hedwig.protocol.options import REPLAY, answered
from hedwig.wire.receiving import Received
from hedwig.wire.requests import CloseSubscription, Consume, Request, Subscribe
from hedwig.wire.responses import event_frame, subscribed_frame, success_frame
from tests.simulation.test_hedwig_client import QUICK, SUB, TOPIC, ListeningHub, Scripted, ScriptedConnection
from tests.simulation.test_hedwig_client import serve as serve_all
from tests.simulation.test_scenarios import run, started_world
from tests.support.simulated_clock import SimulatedProcess


class Story:
    """Two hubs and clients of them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.clients: list[PubSubClient] = []

    async def begin(self) -> Story:
        self.a = await ListeningHub(self.world, 4080).started()
        self.b = await ListeningHub(self.world, 4081).started()
        return self

    def client(self, **settings: Any) -> PubSubClient:
        process = SimulatedProcess(f"client{len(self.clients)}", self.world.clock)
        network = self.world.network.host(process, "127.0.0.1")
        found = PubSubClient(
            process.clock,
            network,
            [self.a.address, self.b.address],
            replace(QUICK, **settings),
            random.Random(len(self.clients)),
        )
        self.clients.append(found)
        return found

    @property
    def owner(self) -> ListeningHub:
        return self.a if TOPIC in self.a.ownership.owned else self.b

    async def published(self, first: int, last: int) -> None:
        await self.clients[0].publisher(TOPIC).publish_many([b"%d" % each for each in range(first, last + 1)])


async def taken(subscription: Subscription, count: int) -> list[int]:
    """The next so many, by their ids."""
    return [each.local_id for each in await messages(subscription, count)]


async def messages(subscription: Subscription, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        found += await subscription.receive(count - len(found))
    return found


def told(tell: Any, seconds: float = 300) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begin()
        await tell(found)
        for client in found.clients:
            client.abandon()

    run(world, story(), seconds=seconds)


@pytest.mark.parametrize("shared_connections", [True, False])
def test_a_subscription_seeks_back_and_forth(*, shared_connections: bool) -> None:
    async def story(story: Story) -> None:
        client = story.client(shared_connections=shared_connections)
        subscription = await client.subscribe(TOPIC, SUB)
        await story.published(1, 20)
        assert await taken(subscription, 8) == list(range(1, 9))
        await subscription.seek(3)
        assert await taken(subscription, 18) == list(range(3, 21))
        waiting = subscription.receive(5)
        await subscription.seek(MessageId(LocalId(19)))
        rest = [each.local_id for each in await waiting]
        assert rest[:1] == [19], "a receive that waits goes on waiting"
        assert rest + await taken(subscription, 2 - len(rest)) == [19, 20]
        await subscription.seek(99)
        await story.published(21, 21)
        [last] = await messages(subscription, 1)
        assert last.local_id == 21
        await subscription.seek(last)
        assert await taken(subscription, 1) == [21]
        subscription.consume(last)
        await subscription.close()
        again = await client.subscribe(TOPIC, SUB)
        await story.published(22, 22)
        assert await taken(again, 1) == [22]
        with pytest.raises(ClientClosed):
            await subscription.seek(1)

    told(story)


def test_what_was_taken_before_a_seek_is_not_consumed_after_it() -> None:
    async def story(story: Story) -> None:
        client = story.client(consume_every=1, consume_delay_s=0.01)
        subscription = await client.subscribe(TOPIC, SUB)
        await story.published(1, 10)
        iterated = []
        async for message in subscription:
            iterated.append(message.local_id)
            if iterated == [1, 2, 3, 4, 5]:
                await subscription.seek(2)
            if len(iterated) == 8:
                break
        assert iterated == [1, 2, 3, 4, 5, 2, 3, 4]
        await subscription.close()
        again = await client.subscribe(TOPIC, SUB)
        assert await taken(again, 7) == list(range(4, 11)), "4 was not over"

    told(story)


def test_a_seek_survives_the_hub_that_was_asked() -> None:
    async def story(story: Story) -> None:
        subscription = await story.client().subscribe(TOPIC, SUB)
        await story.published(1, 10)
        assert await taken(subscription, 10) == list(range(1, 11))
        owner = story.owner
        seeking = subscription.seek(4)
        owner.client.crash()
        await seeking
        assert await taken(subscription, 7) == list(range(4, 11))
        moved = story.owner
        await moved.ownership.release(TOPIC)
        await story.published(11, 11)
        assert await taken(subscription, 1) == [11], "it is granted once"

    told(story)


def test_a_subscription_begins_where_subscribe_says() -> None:
    async def story(story: Story) -> None:
        client = story.client()
        await story.published(1, 10)
        subscription = await client.subscribe(TOPIC, SUB, start=1)
        assert await taken(subscription, 10) == list(range(1, 11))
        await subscription.close()
        subscription = await client.subscribe(TOPIC, SUB, start=8)
        assert await taken(subscription, 3) == [8, 9, 10]
        with pytest.raises(InvalidArgument, match="has no time zone"):
            await subscription.seek(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point

    told(story)


def test_wishes_are_written_as_hubs_read_them() -> None:
    assert replay_option(0).startswith(b"id:1;")
    assert replay_option(MessageId(LocalId(7))).startswith(b"id:7;")
    assert replay_option(datetime(1970, 1, 1, 0, 0, 1, 500_900, tzinfo=UTC)).startswith(b"time:1500;")
    assert replay_option(7) != replay_option(7), "the same wish again is another one"


def test_clients_share_a_subscription_and_each_message_is_done_once() -> None:
    async def story(story: Story) -> None:
        preferences = one_by_one(shared=True, in_flight_max=4, timeout_s=5)
        workers = [await story.client().subscribe(TOPIC, SUB, preferences=preferences) for _ in range(3)]
        await story.published(1, 60)
        done: list[int] = []
        released = False
        while len(set(done)) < 60:
            for worker in workers:
                for message in await worker.receive(2, timeout_s=0.05):
                    worker.ack(message)
                    done.append(message.local_id)
            if len(done) >= 30 and not released:
                released = True
                await story.owner.ownership.release(TOPIC)
        assert sorted(set(done)) == list(range(1, 61))
        await story.world.pause(2)
        assert story.owner.ownership.owned[TOPIC].needed_from == 61

    told(story)


def test_what_a_client_has_when_it_goes_is_for_another() -> None:
    async def story(story: Story) -> None:
        preferences = one_by_one(shared=True)
        one = await story.client().subscribe(TOPIC, SUB, preferences=preferences)
        await story.published(1, 5)
        first, second = (await messages(one, 5))[:2]
        one.ack(first)
        one.nack(second)
        [again] = await messages(one, 1)
        assert (again.local_id, attempt(again), attempt(first)) == (2, 2, 1)
        other = await story.client().subscribe(TOPIC, SUB, preferences=preferences)
        await one.close()
        assert sorted(await taken(other, 4)) == [2, 3, 4, 5]

    told(story)


def test_what_a_client_acknowledged_it_does_not_hand_out_again() -> None:
    async def story(story: Story) -> None:
        client = story.client()
        subscription = await client.subscribe(TOPIC, SUB, preferences=one_by_one(timeout_s=600))
        await story.published(1, 10)
        for message in await messages(subscription, 10):
            if message.local_id != 4:
                subscription.ack(message)
        story.owner.client.crash()  # it had no time to store them
        await story.world.pause(30)
        assert await taken(subscription, 1) == [4]
        assert await subscription.receive(1, timeout_s=20) == []
        assert story.owner.ownership.owned[TOPIC].needed_from == 4
        subscription.consume(MessageId(LocalId(4)))
        await story.world.pause(3)
        assert story.owner.ownership.owned[TOPIC].needed_from == 11

    told(story)


def test_a_client_that_would_consume_in_order_is_told_that_the_subscription_is_not_so() -> None:
    async def story(story: Story) -> None:
        client = story.client()
        subscription = await client.subscribe(TOPIC, SUB, preferences=one_by_one())
        await subscription.close()
        with pytest.raises(MalformedRequest, match="acknowledged one by one"):
            await client.subscribe(TOPIC, SUB)
        with pytest.raises(InvalidArgument, match="auto_consume"):
            await client.subscribe(TOPIC, SUB, preferences=one_by_one(), auto_consume=True)
        subscription = await client.subscribe(TOPIC, SUB, preferences=one_by_one())
        with pytest.raises(TopicBusy):
            await story.client(retry_timeout_s=2.0).subscribe(TOPIC, SUB, preferences=one_by_one())
        ordinary = await story.clients[0].subscribe(TOPIC, type(SUB)(b"other"))
        with pytest.raises(InvalidArgument, match="one_by_one"):
            ordinary.ack(MessageId(LocalId(1)))

    told(story)


def test_messages_that_a_client_does_not_want_are_acknowledged_by_it() -> None:
    async def story(story: Story) -> None:
        subscription = await story.client().subscribe(
            TOPIC, SUB, preferences=one_by_one(), wanted=lambda message: int(message.body) % 3 == 0
        )
        await story.published(1, 9)
        for message in await messages(subscription, 3):
            subscription.ack(message)
        await story.world.pause(3)
        assert story.owner.ownership.owned[TOPIC].needed_from == 10

    told(story)


@pytest.mark.parametrize("named", [{"preferences": one_by_one()}, {"start": 5}])
def test_a_hub_that_knows_nothing_of_it_is_noticed_before_anything_is_consumed(named: dict[str, Any]) -> None:
    """It stores the options and says so; what it takes a CONSUME for would lose messages."""
    world = started_world(3)

    def serve(connection: ScriptedConnection, request: Request) -> None:
        if isinstance(request, Subscribe):
            connection.write(subscribed_frame(request.txn_id, request.preferences or Preferences()))
            connection.deliver(1, 2, 3)
        elif isinstance(request, CloseSubscription):
            connection.write(success_frame(request.txn_id))

    async def story() -> None:
        hub = Scripted(world, 4099, serve)
        process = SimulatedProcess("client", world.clock)
        network = world.network.host(process, "127.0.0.1")
        client = PubSubClient(process.clock, network, [hub.address], QUICK, random.Random(1))
        with pytest.raises(UnexpectedCondition, match="knows nothing of acknowledging one by one"):
            await client.subscribe(TOPIC, SUB, **named)
        ordinary = await client.subscribe(TOPIC, SUB)
        with pytest.raises(UnexpectedCondition, match="and of beginning again elsewhere"):
            await ordinary.seek(1)
        while len(hub.of(CloseSubscription)) < 2:
            await world.pause(0.01)
        assert not hub.of(Consume)
        client.abandon()

    run(world, story())


def test_who_shares_a_subscription_does_not_have_it_begin_where_another_had_it_begin_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each hears where the other had it begin; said again when it is attached anew, that would be another wish."""
    begun: list[object] = []
    move = SubscriptionRecords.move  # what a hub does for a wish

    def noted(records: SubscriptionRecords, *arguments: Any) -> Any:
        begun.append(arguments)
        return move(records, *arguments)

    monkeypatch.setattr(SubscriptionRecords, "move", noted)

    async def story(story: Story) -> None:
        preferences = one_by_one(shared=True)
        one, other = [await story.client().subscribe(TOPIC, SUB, preferences=preferences) for _ in range(2)]
        await story.published(1, 9)
        for begin in (2, 7):
            await one.seek(begin)
            await story.world.pause(10)
        assert len(begun) == 2
        rest = [await each.receive(99, timeout_s=1) for each in (one, other)]
        assert sorted(each.local_id for part in rest for each in part) == [7, 8, 9]

    told(story)


def test_a_seek_while_the_subscription_is_attached_anew_is_said_to_the_hub_once() -> None:
    """The answer that comes first is to a request that said nothing of it: it says nothing of the hub either."""
    world = started_world(3)
    held: list[tuple[ScriptedConnection, Subscribe]] = []
    stored = [Preferences()]

    def attach(connection: ScriptedConnection, request: Subscribe) -> None:
        stored[0] = stored[0].merged(request.preferences or Preferences())
        connection.write(subscribed_frame(request.txn_id, answered(stored[0])))

    def holding(connection: ScriptedConnection, request: Request) -> None:
        if not isinstance(request, Subscribe):
            serve_all(connection, request)
        elif len(hub.of(Subscribe)) == 2:
            held.append((connection, request))
        else:
            attach(connection, request)

    hub = Scripted(world, 4099, holding)

    async def story() -> None:
        process = SimulatedProcess("client", world.clock)
        network = world.network.host(process, "127.0.0.1")
        client = PubSubClient(process.clock, network, [hub.address], QUICK, random.Random(1))
        subscription = await client.subscribe(TOPIC, SUB)
        moved = event_frame(TOPIC, SUB, Event.TOPIC_MOVED)
        hub.connections[0].write(moved)
        while not held:
            await world.pause(0.01)
        seeking = subscription.seek(5)
        attach(*held[0])
        await seeking
        hub.connections[0].write(moved)
        while len(hub.of(Subscribe)) < 4:
            await world.pause(0.01)
        said = [each.preferences.options.get(REPLAY, b"").partition(b";")[0] for each in hub.of(Subscribe)]
        assert said == [b"", b"", b"id:5", b""]
        client.abandon()

    run(world, story())
