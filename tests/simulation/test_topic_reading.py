"""Reading a topic from its ledgers, on the simulated cluster."""

from __future__ import annotations

import pytest

from hedwig.errors import UnexpectedCondition
from hedwig.hub.topic_reading import TopicReader
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
        assert await hub.log.trim(LocalId(2)) == [first]
        with pytest.raises(UnexpectedCondition, match="they begin at 3"):
            await reader.read(LocalId(1), 1)

    run(world, story())
