"""Subscribers that begin again elsewhere: at a message, at a time, at the first that is kept."""

from __future__ import annotations

import pytest

from hedwig.hub.subscriptions.replay import where_of
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.model import LocalId, MessageId, Status, SubscriberId
from hedwig.protocol.options import Replay
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import publish_frame
from tests.simulation.test_hub_connection import SUB, TOPIC, Client, Hub, bodies, span
from tests.simulation.test_scenarios import run, started_world


def replay(value: bytes) -> dict[str, bytes]:
    return {"hw.replay": value}


def test_a_subscriber_begins_where_it_asks_back_and_forth() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.subscribe()
        await client.publish(*bodies(1, 20))
        await client.until(20)
        client.consume(20)
        assert (await client.subscribe(options=replay(b"id:5;a"))).status is Status.SUCCESS
        assert await client.until(36) == span(1, 20) + span(5, 20)
        client.consume(7)
        assert (await client.subscribe(options=replay(b"id:3"))).status is Status.SUCCESS
        assert (await client.until(36 + 18))[36:] == span(3, 20)
        assert (await client.subscribe(options=replay(b"id:19"))).status is Status.SUCCESS
        assert (await client.until(36 + 18 + 2))[54:] == span(19, 20)
        assert (await client.subscribe(options=replay(b"id:999"))).status is Status.SUCCESS
        await client.publish(b"21")
        assert (await client.until(57))[56:] == span(21, 21), "the future is what comes next"

    run(world, story())


def test_the_same_wish_is_granted_once() -> None:
    """Clients say it again whenever they attach anew, and go on where they were."""
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        client = Client(a)
        await client.publish(*bodies(1, 10))
        assert (await client.subscribe(options=replay(b"first"))).status is Status.SUCCESS
        assert await client.until(10) == span(1, 10)
        client.consume(6)
        again = Client(a)
        client.abortConnection()
        await again.subscribe(options=replay(b"first"))
        assert await again.until(4) == span(7, 10)
        again.consume(8)
        await a.ownership.release(TOPIC)
        moved = Client(b)
        await moved.subscribe(options=replay(b"first"))
        assert await moved.until(2) == span(9, 10)

    run(world, story())


def test_a_wish_is_durable_when_it_is_answered() -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        client = Client(a)
        await client.subscribe()
        await client.publish(*bodies(1, 10))
        await client.until(10)
        client.consume(10)
        assert (await client.subscribe(options=replay(b"id:4"))).status is Status.SUCCESS
        a.client.crash()
        await world.pause(60)
        moved = Client(b)
        await moved.subscribe(options=replay(b"id:4"))
        assert await moved.until(7) == span(4, 10)

    run(world, story(), seconds=300)


def test_what_is_not_kept_any_more_is_passed_over_and_what_is_kept_stays_for_who_went_back() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, log=TopicLogSettings(entries_max=5), cache_size=1).started()
        client = Client(hub)
        await client.subscribe()
        await client.publish(*bodies(1, 23))
        await client.until(23)
        client.consume(12)
        service = hub.ownership.owned[TOPIC]
        await service.release()
        hub.ownership.owned.clear()
        client = Client(hub)
        await client.subscribe()
        assert await client.until(11) == span(13, 23)
        assert await hub.ownership.owned[TOPIC].trim() == 2
        client.consume(23)
        assert (await client.subscribe(options=replay(b"id:2"))).status is Status.SUCCESS
        assert (await client.until(11 + 13))[11:] == span(11, 23), "the first id says what is missing"
        assert await hub.ownership.owned[TOPIC].trim() == 0

    run(world, story())


def test_a_replay_of_somebody_elses_subscription_moves_nothing() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        holder, other = Client(hub), Client(hub)
        await holder.subscribe()
        await holder.publish(*bodies(1, 3))
        await holder.until(3)
        assert (await other.subscribe(options=replay(b"first"))).status is Status.TOPIC_BUSY
        holder.consume(3)
        assert (await other.subscribe(force=True)).status is Status.SUCCESS
        await holder.publish(b"4")
        assert await other.until(1) == span(4, 4)
        refused = await other.subscribe(SubscriberId(b"new"), options=replay(b"tomorrow"))
        assert refused.status is Status.MALFORMED_REQUEST
        assert "write id:NUMBER, time:MILLISECONDS or first" in refused.text

    run(world, story())


def test_what_was_known_of_other_regions_is_known_again() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        for number in range(1, 5):
            message = encode_message(Message(b"%d" % number, id=MessageId(LocalId(9), ((b"r1", 10 * number),))))
            await client.ask(publish_frame, TOPIC, message, should_claim=True)
        await client.subscribe(options=replay(b"id:3"))
        records = await hub.metadata.subscriptions(TOPIC)
        assert records[SUB].value.consumed == MessageId(LocalId(2), ((b"r1", 20),))

    run(world, story())


@pytest.mark.parametrize("wish", [b"first", b"time:1", b"id:2"])
def test_who_goes_back_to_a_ledger_that_somebody_deleted_begins_behind_it(wish: bytes) -> None:
    """A hub died between deleting it and saying so in the list."""
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080, log=TopicLogSettings(entries_max=5)).started()
        client = Client(first)
        await client.publish(*bodies(1, 12))
        await first.client.ledgers.delete(first.ownership.owned[TOPIC].log.ranges[0].ledger_id)
        await first.ownership.stop()
        hub = await Hub(world, 4081, retry_delay_s=0.1).started()
        other = Client(hub)
        assert (await other.subscribe(options=replay(wish))).status is Status.SUCCESS
        assert await other.until(7) == span(6, 12)

    run(world, story())


def test_where_messages_do_not_say_their_time_that_of_their_ledger_counts() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, log=TopicLogSettings(entries_max=5)).started()
        client = Client(hub)
        made_ms = []
        for first in (1, 6, 11):
            made_ms.append(int(world.clock.seconds() * 1000))
            await client.publish(*bodies(first, first + 4))
            await world.pause(10)
        service = hub.ownership.owned[TOPIC]
        # All of a ledger may be later than it was made.
        for time_ms, first in ((0, 1), (made_ms[1] - 5000, 1), (made_ms[1] + 5000, 6), (made_ms[2] + 5000, 11)):
            assert await where_of(Replay(time_ms=time_ms), service.log, service.reader) == first

    run(world, story(), seconds=120)


def test_a_time_is_found_by_what_messages_say() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, log=TopicLogSettings(entries_max=5)).started()
        service = await hub.acquire(TOPIC)
        done: list[object] = []
        for number in range(1, 24):
            timed = encode_message(Message(b"x", {"hw.time": b"%d" % (1000 * number)}))
            service.publish([timed], lambda *outcome: done.append(outcome), plain=False)
        while len(done) < 23:
            await world.pause(0.01)
        for time_ms, first in ((0, 1), (1000, 1), (1001, 2), (5000, 5), (5500, 6), (22_999, 23), (23_001, 24)):
            assert await where_of(Replay(time_ms=time_ms), service.log, service.reader) == first
        assert await where_of(Replay(), service.log, service.reader) == 1

    run(world, story())
