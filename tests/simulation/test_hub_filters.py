"""Filters at a hub: what its subscribers are spared, and what a wrong one may not do."""

from __future__ import annotations

from hedwig.filters import BUILT_IN, MakeFilter, with_expression
from hedwig.hub.log_settings import TopicLogSettings
from hedwig.model import NO_OPTIONS, Status, SubscriberId, Topic
from hedwig.protocol.options import EXPRESSION
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import PublishEncoder
from tests.simulation.test_hub_connection import SUB, TOPIC, Client, Hub, bodies
from tests.simulation.test_scenarios import run, started_world


def _breaking(message: object) -> bool:
    raise RuntimeError("a filter of somebody else")


FILTERS: dict[str, MakeFilter] = {**BUILT_IN, "breaking": lambda preferences: _breaking}


class FilteringHub(Hub):
    filters = FILTERS


async def publish(client: Client, *messages: Message, topic: Topic = TOPIC) -> None:
    first = client.next_txn_id()
    for _ in messages[1:]:
        client.next_txn_id()
    encoded = [encode_message(message) for message in messages]
    client.connection.dataReceived(b"".join(PublishEncoder(topic).frames(first, encoded, should_claim=True)))
    for index in range(len(messages)):
        assert (await client.answer(first + index)).status is Status.SUCCESS


def test_a_subscriber_gets_what_its_expression_matches_by_either_name() -> None:
    world = started_world(3)
    messages = [
        Message(b"%d" % number, {"color": color} if color else NO_OPTIONS)
        for number, color in enumerate([b"red", b"blue", None, b"red", b"green"], 1)
    ]

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        wanted = with_expression("color = 'red' OR $id = 5")
        for name in BUILT_IN:
            answer = await client.subscribe(
                SubscriberId(name.encode()), message_filter=name, options=dict(wanted.options)
            )
            assert answer.status is Status.SUCCESS
        await publish(client, *messages)
        for name in BUILT_IN:
            assert await client.until(3, SubscriberId(name.encode())) == [(1, b"1"), (4, b"4"), (5, b"5")]

    run(world, story())


def test_a_filter_that_cannot_be_made_is_refused_before_anything_is_stored() -> None:
    """Apache's hubs store it, and every later subscribe fails by it."""
    world = started_world(3)

    async def story() -> None:
        hub = await FilteringHub(world).started()
        client = Client(hub)
        texts = []
        for asked in (
            {"message_filter": "no.such.Filter"},
            {"message_filter": "header-expression"},
            {"message_filter": "header-expression", "options": {EXPRESSION: b"color = "}},
        ):
            refused = await client.subscribe(**asked)
            texts.append(refused.text)
            assert refused.status is Status.INVALID_MESSAGE_FILTER
            assert not await hub.metadata.subscriptions(TOPIC)
        assert "at character 8 (the end)" in texts[-1]
        assert (await client.subscribe()).status is Status.SUCCESS
        before = await hub.metadata.subscriptions(TOPIC)
        assert (await client.subscribe(message_filter="no.such.Filter")).status is Status.INVALID_MESSAGE_FILTER
        assert await hub.metadata.subscriptions(TOPIC) == before
        assert (await client.subscribe()).status is Status.SUCCESS

    run(world, story())


def test_a_filter_that_wants_nothing_keeps_no_ledgers() -> None:
    """Method: nobody consumes anything, as nobody is given anything; then it is looked which ledgers may go."""
    world = started_world(3)

    async def story() -> None:
        hub = await FilteringHub(world, log=TopicLogSettings(entries_max=30)).started()
        client = Client(hub)
        asked = with_expression("color = 'red'")
        await client.subscribe(message_filter=asked.message_filter, options=dict(asked.options))
        for number in range(1, 101, 10):
            await client.publish(*bodies(number, number + 9))
        service = hub.ownership.owned[TOPIC]
        assert await service.trim() == 0
        service.store_due()
        while (await hub.metadata.subscriptions(TOPIC))[SUB].value.consumed.local < 100:
            await world.pause(0.01)
        assert await service.trim() == 3

    run(world, story())


def test_a_filter_that_breaks_does_not_stop_anybody() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        broken = SubscriberId(b"broken")
        await client.subscribe(broken, message_filter="breaking")
        await client.subscribe()
        await client.publish(*bodies(1, 3))
        assert len(await client.until(3, SUB)) == 3
        assert client.delivered(broken) == []
        asked = with_expression("$id > 4")
        again = await client.subscribe(broken, message_filter=asked.message_filter, options=dict(asked.options))
        assert again.status is Status.SUCCESS
        await client.publish(*bodies(4, 5))
        assert await client.until(1, broken) == [(5, b"5")]

    run(world, story())
