"""The end of a topic, read from its bookies, and if they do not know it, from its hub."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.client.read.read_handle import ReadHandle
from hedwig.admin.region import Region
from hedwig.admin.topic_ends import TIMEOUT_S, End, TopicEnds, end_of_topic
from hedwig.client_config import HedwigClientSettings
from hedwig.errors import UncertainState
from hedwig.hub.topics.log_settings import PASSWORD
from hedwig.model import HubAddress, LocalId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.protocol.options import END_SUBSCRIBER, asks_end, end_answer, end_of, end_question
from hedwig.wire.requests import Request, Subscribe, subscribe_frame
from hedwig.wire.responses import error_frame, subscribed_frame
from tests.simulation.test_hedwig_client import ListeningHub, Scripted, ScriptedConnection
from tests.simulation.test_hub_connection import TOPIC, Client, Hub, bodies
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World


def quiet_world() -> World:
    """Return a world in which hubs send no explicit LACs, like Apache's by default."""
    world = started_world(3)
    world.settings = replace(world.settings, explicit_lac_interval_s=0.0)
    return world


class Reader:
    """A process that reads topics and is no hub."""

    def __init__(self, world: World) -> None:
        self.client: SimulatedClient = world.add_client()
        self.region = Region(
            self.client.store.tree,
            self.client.ledgers,
            self.client.process.clock,
            METADATA_SETTINGS,
            Paths("/hedwig", "standalone"),
            PASSWORD,
        )

    async def end(self, *, at_least: int = 0) -> End:
        context = self.client.ledgers.context
        ends = TopicEnds(context.clock, context.network, HedwigClientSettings())
        newest = (await self.region.ranges(TOPIC))[-1]
        handle = await self.region.open(newest.ledger_id)
        try:
            return await end_of_topic(self.region, TOPIC, newest, handle, ends, at_least=at_least)
        finally:
            await handle.close()
            ends.close()


def test_a_hub_answers_with_its_last_acknowledged_message() -> None:
    world = quiet_world()

    async def story() -> None:
        hub, reader = await ListeningHub(world).started(), Reader(world)
        publisher = Client(hub)
        await publisher.publish(*bodies(1, 100))
        newest = (await reader.region.ranges(TOPIC))[-1]
        handle = await reader.region.open(newest.ledger_id)
        assert handle.last_add_confirmed < 99, "otherwise no hub would be asked"
        assert await reader.end() == End(LocalId(100))
        assert await reader.region.subscribers(TOPIC) == [], "a question is no subscription"

    run(world, story(), seconds=60)


def test_messages_that_no_hub_confirms_are_reported_and_left_out() -> None:
    world = quiet_world()

    async def story() -> None:
        hub, reader = await ListeningHub(world).started(), Reader(world)
        await Client(hub).publish(*bodies(1, 100))
        hub.client.crash()
        began = world.clock.seconds()
        while_registered = await reader.end()
        assert world.clock.seconds() - began < 2 * TIMEOUT_S
        await world.pause(30.0)  # its session ended
        for found in (while_registered, await reader.end()):
            assert found.last < 100
            assert found.unconfirmed is not None
            assert f"message {found.last} is the last one known to be acknowledged" in found.unconfirmed
            assert f"messages {found.last + 1} to 100 are stored" in found.unconfirmed
        assert "no hub serves the topic" in str(found.unconfirmed)
        assert await reader.end(at_least=100) == End(LocalId(100)), "needs no hub"

    run(world, story(), seconds=120)


def refuse(connection: ScriptedConnection, request: Request, status: Status) -> None:
    assert isinstance(request, Subscribe)
    assert not request.should_claim, "a question moves no topic"
    connection.write(error_frame(request.txn_id, status, "no"))


@pytest.mark.parametrize(
    "on_request",
    [
        partial(refuse, status=Status.CLIENT_NOT_SUBSCRIBED),  # Apache's hubs
        partial(refuse, status=Status.MALFORMED_REQUEST),  # older hubs of ours
        partial(refuse, status=Status.NOT_RESPONSIBLE_FOR_TOPIC),
        lambda connection, request: connection.write(subscribed_frame(request.txn_id, Preferences())),
        lambda connection, request: connection.transport.abortConnection(),
        lambda connection, request: None,
    ],
    ids=["not subscribed", "malformed", "not responsible", "success", "breaks off", "silent"],
)
def test_a_hub_that_does_not_answer_the_question_leaves_the_end_unknown(on_request: Any) -> None:
    world = quiet_world()

    async def story() -> None:
        hub, reader = await Hub(world).started(), Reader(world)
        await Client(hub).publish(*bodies(1, 5))
        scripted = Scripted(world, hub.ownership.address.port, on_request)
        began = world.clock.seconds()
        found = await reader.end()
        assert found.unconfirmed is not None
        assert "to 5 are stored and may be acknowledged" in found.unconfirmed
        assert len(scripted.of(Subscribe)) == 1
        assert world.clock.seconds() - began < TIMEOUT_S + 1.0

    run(world, story(), seconds=60)


def test_a_hub_that_is_silent_is_not_asked_for_each_of_its_topics() -> None:
    world = quiet_world()

    async def story() -> None:
        stuck = Topic(b"stuck")

        def on_request(connection: ScriptedConnection, request: Request) -> None:
            if isinstance(request, Subscribe) and request.topic == TOPIC:
                connection.write(subscribed_frame(request.txn_id, end_answer(LocalId(7))))

        hub = Scripted(world, 4080, on_request)
        context = Reader(world).client.ledgers.context
        ends = TopicEnds(context.clock, context.network, HedwigClientSettings())
        asking = Deferred.fromCoroutine(ends.ask(stuck, hub.address))
        await world.pause(1)
        assert await ends.ask(TOPIC, hub.address) == 7
        with pytest.raises(UncertainState, match=r"did not answer within 3 s"):
            await asking
        assert await ends.ask(TOPIC, hub.address) == 7, "it is stuck with one topic alone"
        hub.process.sleep(1000)
        began_s = world.clock.seconds()
        for _ in range(5):
            with pytest.raises(UncertainState, match=r"did not answer within 3 s"):
                await ends.ask(TOPIC, hub.address)
        assert world.clock.seconds() - began_s < TIMEOUT_S + 1.0
        ends.close()

    run(world, story(), seconds=60)


def test_the_end_is_within_the_ledger_that_was_opened() -> None:
    """The hub may already write to the next ledger."""
    world = quiet_world()

    async def story() -> None:
        hub, reader = await ListeningHub(world).started(), Reader(world)
        publisher = Client(hub)
        await publisher.publish(*bodies(1, 10))
        newest = (await reader.region.ranges(TOPIC))[-1]
        handle = await reader.region.open(newest.ledger_id)

        class Ahead(TopicEnds):
            async def ask(self, topic: Any, hub: Any) -> LocalId:
                return LocalId(5000)

        context = reader.client.ledgers.context
        ends = Ahead(context.clock, context.network, HedwigClientSettings())
        assert await end_of_topic(reader.region, TOPIC, newest, handle, ends) == End(LocalId(10))

    run(world, story(), seconds=60)


def test_a_hub_that_took_the_topic_over_meanwhile_does_not_speak_of_the_ledger_that_was_opened() -> None:
    """What bookies hold behind its end has the id of another message, which is in the next ledger."""
    world = quiet_world()

    async def story() -> None:
        hub, reader = await ListeningHub(world).started(), Reader(world)
        await Client(hub).publish(*bodies(1, 10))
        newest = (await reader.region.ranges(TOPIC))[-1]
        held = SimpleNamespace(closed=False, last_add_confirmed=8, last_stored=lambda: succeed(10))  # 11 messages

        class TakenOver(TopicEnds):
            async def ask(self, topic: Topic, hub: HubAddress) -> LocalId:
                first.client.crash()
                await world.pause(60)
                later = await ListeningHub(world, 4081).started()
                await Client(later).publish(b"another message 11")
                return later.ownership.owned[TOPIC].acknowledged_id

        first, context = hub, reader.client.ledgers.context
        ends = TakenOver(context.clock, context.network, HedwigClientSettings())
        found = await end_of_topic(reader.region, TOPIC, newest, cast(ReadHandle, held), ends)
        assert found == End(LocalId(10))
        assert [each.first for each in await reader.region.ranges(TOPIC)] == [1, 11]

    run(world, story(), seconds=300)


def test_the_question_changes_nothing_and_only_the_serving_hub_answers() -> None:
    world = quiet_world()

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        asked: Any = (subscribe_frame, TOPIC, END_SUBSCRIBER, SubscribeMode.ATTACH, end_question())
        await client.publish(b"1")
        answer = await client.ask(*asked)
        assert answer.status is Status.SUCCESS
        assert answer.preferences is not None
        assert end_of(answer.preferences) == 1
        assert hub.ownership.owned[TOPIC].is_served
        created = await client.ask(
            subscribe_frame, TOPIC, END_SUBSCRIBER, SubscribeMode.CREATE_OR_ATTACH, end_question(), should_claim=True
        )
        assert created.status is Status.MALFORMED_REQUEST, "only an attaching subscribe may ask"
        usual = await client.ask(subscribe_frame, TOPIC, SubscriberId(b"x"), SubscribeMode.ATTACH, Preferences())
        assert usual.status is Status.CLIENT_NOT_SUBSCRIBED
        service = hub.ownership.owned[TOPIC]
        await service.release()
        assert (await client.ask(*asked)).status is Status.NOT_RESPONSIBLE_FOR_TOPIC

    run(world, story(), seconds=60)


@pytest.mark.parametrize("value", [b"", b"?", b"-1", b"1.5", b"99999999999999999999"])
def test_a_malformed_answer_is_no_end(value: bytes) -> None:
    assert end_of(Preferences(options={"hw.end": value})) is None
    assert end_of(Preferences()) is None
    assert end_of(end_answer(LocalId(7))) == 7
    assert asks_end(end_question())
    assert not asks_end(None)
