"""Reading a topic from its ledgers, on the simulated cluster."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from hedwig.errors import NotResponsible, UnexpectedCondition
from hedwig.hub.topics.reads import TopicReader
from hedwig.model import LocalId
from hedwig.wire.messages import decode_message
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.test_topic_log import Hub


def test_messages_are_read_over_ledgers_and_from_the_one_being_written() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=3).acquired()
        hub.publish(*[b"%d" % number for number in range(1, 12)])
        await hub.settled()
        reader = TopicReader(hub.client.ledgers, hub.log)
        found: list[bytes] = []
        while messages := await reader.read(LocalId(len(found) + 1), 2):
            assert len(messages) <= 2
            found += [decode_message(message).body for message in messages]
        assert found == [b"%d" % number for number in range(1, 12)]
        hub.publish(b"12")
        await hub.settled()
        assert [decode_message(each).body for each in await reader.read(LocalId(12), 10)] == [b"12"]
        assert await reader.read(LocalId(13), 10) == []
        reader.close()

    run(world, story())


def test_what_is_not_kept_any_more_is_told() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=2).acquired()
        hub.publish(b"1", b"2", b"3")
        await hub.settled()
        reader = TopicReader(hub.client.ledgers, hub.log)
        first = hub.log.ranges[0]
        await hub.client.ledgers.delete(first.ledger_id)
        with pytest.raises(UnexpectedCondition, match="is gone"):
            await reader.read(LocalId(1), 1)
        with pytest.raises(UnexpectedCondition, match="they begin at 3"):
            await reader.read(LocalId(1), 1)
        assert await hub.log.trim(LocalId(2)) == [first]
        with pytest.raises(UnexpectedCondition, match="they begin at 3"):
            await reader.read(LocalId(1), 1)

    run(world, story())


def test_ledgers_that_were_deleted_and_are_still_listed_count_as_deleted_if_they_are_the_oldest() -> None:
    """Whoever deleted them died before it got to the list. In the middle, something else is wrong."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, entries_max=1).acquired()
        hub.publish(*[b"%d" % number for number in range(1, 8)])
        await hub.settled()
        reader, ledgers = TopicReader(hub.client.ledgers, hub.log), [each.ledger_id for each in hub.log.ranges]
        await hub.client.ledgers.delete(ledgers[3])
        with pytest.raises(UnexpectedCondition, match="with messages from 4 on, is gone"):
            await reader.read(LocalId(4), 1)
        assert hub.log.first_id == 1
        for ledger_id in ledgers[:2]:
            await hub.client.ledgers.delete(ledger_id)
        with pytest.raises(UnexpectedCondition, match="with messages from 2 on, is gone"):
            await reader.read(LocalId(2), 1)
        assert hub.log.first_id == 3
        assert [decode_message(each).body for each in await reader.read(LocalId(3), 5)] == [b"3"]
        await hub.client.ledgers.delete(ledgers[2])
        reader.close()
        reader = TopicReader(hub.client.ledgers, hub.log)
        with pytest.raises(UnexpectedCondition, match="with messages from 4 on, is gone"):
            await reader.read(LocalId(4), 1)
        assert hub.log.first_id == 5

    run(world, story())


@pytest.mark.parametrize("ended", [True, False])
def test_so_many_bytes_are_read_at_once_and_one_message_in_any_case(*, ended: bool) -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        hub.publish(*[bytes(1000)] * 12)
        await hub.settled()
        if ended:
            await hub.log.release()
            hub = await Hub(world).acquired()
        for size, count in ((3500, 3), (100, 1), (1 << 20, 12)):
            reader = TopicReader(hub.client.ledgers, hub.log, size)
            assert len(await reader.read(LocalId(1), 100)) == count

    run(world, story())


def test_what_was_read_last_says_how_much_comes_next() -> None:
    """Large messages among very many small ones."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        hub.publish(*[b""] * 200, *[bytes(1000)] * 40)
        await hub.settled()
        reader = TopicReader(hub.client.ledgers, hub.log, 4000)
        assert len(await reader.read(LocalId(201), 100)) > 4
        assert len(await reader.read(LocalId(201), 100)) == 3
        assert len(await reader.read(LocalId(1), 100)) == 3
        assert len(await reader.read(LocalId(1), 100)) > 4

    run(world, story())


def test_a_ledger_that_was_being_opened_when_its_reader_was_closed_is_let_go_of() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).acquired()
        hub.publish(b"1")
        await hub.settled()
        reader = TopicReader(hub.client.ledgers, hub.log)
        reading = Deferred.fromCoroutine(reader.read(LocalId(1), 1))
        reader.close()
        with pytest.raises(NotResponsible):
            await reading

    run(world, story())
