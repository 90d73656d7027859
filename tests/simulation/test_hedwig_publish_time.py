"""Publish times over the lives of a topic: every message has one, and they never go back, whoever owned it before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.model import DigestType
from hedwig.hub.topics.log import LogState, TopicLog
from hedwig.hub.topics.log_settings import PASSWORD, TopicLogSettings
from hedwig.protocol.publish_time import time_of
from hedwig.wire.messages import Message, Stamp, decode_message, encode_message
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.test_topic_log import TOPIC, Hub
from tests.simulation.world import World


class TimedHub(Hub):
    """clock_ms: what its clock says."""

    def __init__(self, world: World, clock_ms: int, **settings: Any) -> None:
        super().__init__(world, **settings)
        self.clock_ms = clock_ms
        self.log = TopicLog(
            self.metadata,
            self.client.ledgers,
            self.client.process.clock,
            TOPIC,
            Stamp(b"standalone", lambda: self.clock_ms),
            TopicLogSettings(**settings),
            self.lost.append,
        )

    async def acquired(self) -> TimedHub:
        await super().acquired()
        return self

    async def times(self) -> list[int | None]:
        """Of all that is stored, in its order."""
        found: list[int | None] = []
        for each in self.log.ranges:
            handle = await self.client.ledgers.open_without_recovery(each.ledger_id, PASSWORD, DigestType.CRC32)
            last = handle.last_add_confirmed if each.last is not None else self.log.durable_id - (each.first or 1)
            entries = await handle.read_unconfirmed(0, last)
            found += [time_of(decode_message(entry.payload).properties) for entry in entries]
            await handle.close()
        return found


async def one(hub: Hub, *bodies: bytes) -> None:
    hub.publish(*bodies)
    await hub.settled()
    assert not hub.failed


def test_times_go_on_behind_those_of_the_hub_before_however_it_ended() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await TimedHub(world, 5_000).acquired()
        await one(first, b"a", b"b")
        first.clock_ms = 4_000
        await one(first, b"c")
        await first.log.release()
        behind = await TimedHub(world, 1_000).acquired()
        await one(behind, b"d")
        behind.clock_ms = 6_000
        await one(behind, b"e")
        behind.client.crash()
        later = await TimedHub(world, 5_500, entries_max=1).acquired()
        await one(later, b"f", b"g")
        assert await later.times() == [5_000, 5_000, 5_000, 5_000, 6_000, 6_000, 6_000]

    run(world, story())


def test_a_message_without_a_time_does_not_hold_the_next_ones_back() -> None:
    world = started_world(3)

    async def story() -> None:
        old = await Hub(world).acquired()  # as one that knows nothing of times
        await one(old, b"a")
        await old.log.release()
        new = await TimedHub(world, 7_000).acquired()
        await one(new, b"b")
        assert await new.times() == [None, 7_000]

    run(world, story())


def test_behind_a_message_without_a_time_the_next_one_is_not_before_its_ledger() -> None:
    world = started_world(3)

    async def story() -> None:
        await world.pause(30)
        before_ms = int(world.clock.seconds() * 1000)
        old = await Hub(world).acquired()
        await one(old, b"a")
        await old.log.release()
        behind = await TimedHub(world, 7_000).acquired()
        await one(behind, b"b")
        [nothing, time_ms] = await behind.times()
        assert nothing is None
        assert time_ms is not None
        assert time_ms >= before_ms

    run(world, story())


@pytest.mark.parametrize(("behind_ms", "warned"), [(30_000, False), (90_000, True)])
def test_a_topic_far_in_the_future_is_told_of(behind_ms: int, *, warned: bool) -> None:
    world = started_world(3)

    async def story() -> None:
        ahead = await TimedHub(world, 1_000_000).acquired()
        await one(ahead, b"a")
        await ahead.log.release()
        with capturedLogs() as events:
            hub = await TimedHub(world, 1_000_000 - behind_ms).acquired()
            await one(hub, b"b")
        told = [formatEvent(event) for event in events if "ahead of this hub's clock" in (event["log_format"] or "")]
        assert bool(told) is warned
        assert all(f"is {behind_ms // 1000} s ahead" in each for each in told)
        assert await hub.times() == [1_000_000, 1_000_000]

    run(world, story())


def test_topics_may_be_without_times() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await TimedHub(world, 7_000, untimed=(b"x", b"ord")).acquired()
        hub.log.publish([encode_message(Message(b"a", {"k": b"v"}))], lambda first, error: None, plain=False)
        await one(hub, b"b")
        assert await hub.times() == [None, None]

    run(world, story())


def test_publishing_goes_on_where_the_newest_message_cannot_be_read() -> None:
    world = started_world(4)

    async def story() -> None:
        first = await TimedHub(world, 5_000, ensemble=2).acquired()
        await one(first, b"a")
        await first.log.release()
        second = await TimedHub(world, 6_000, ensemble=2).acquired()
        assert second.log.state is LogState.READY
        holders = {bookie for each in second.log.ranges for bookie in await ensemble(second, each.ledger_id)}
        for bookie in world.bookies:
            if bookie.bookie_id in holders:
                bookie.kill()
        await one(second, b"b")
        assert second.log.durable_id == 2

    run(world, story(), seconds=200)


async def ensemble(hub: Hub, ledger_id: int) -> tuple[Any, ...]:
    handle = await hub.client.ledgers.open_without_recovery(ledger_id, PASSWORD, DigestType.CRC32)
    await handle.close()
    return handle.metadata.fragments[0].ensemble
