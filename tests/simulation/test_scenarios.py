"""Single stories told on the simulated cluster: what campaigns once found, and what deserves a name."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.errors import BookKeeperError, ClientClosed
from tests.simulation.world import World

STEPS_MAX = 20_000


def run(world: World, work: Any, *, seconds: float = 60.0) -> Any:
    """Drive the world until the coroutine is done; return its result or raise its error."""
    outcome: list[Any] = []

    async def story() -> None:
        outcome.append(await work)

    world.spawn(story())
    finished = world.run_until(lambda: bool(outcome or world.errors) or world.clock.steps > STEPS_MAX, seconds=seconds)
    assert world.clock.steps <= STEPS_MAX, "the cluster is busy without end (L-9)"
    if world.errors:
        raise world.errors[0]
    assert finished, f"not done within {seconds} simulated seconds"
    return outcome[0]


def started_world(bookies: int) -> World:
    """A cluster whose bookies serve and are known to clients."""
    world = World(1)
    for _ in range(bookies):
        world.add_bookie()
    world.run_until(lambda: False, seconds=1.0)
    return world


async def _write(world: World, entries: int, **quorums: int) -> int:
    client = world.add_client()
    handle = await client.ledgers.create(password=b"", **quorums)
    await handle.append_many([b"entry %d" % number for number in range(entries)])
    client.crash()
    ledger_id: int = handle.ledger_id
    return ledger_id


def test_recovery_gives_up_when_every_bookie_is_dead() -> None:
    """L-9: dead bookies that are still registered took turns as each other's replacement, for ever and in no time."""
    world = started_world(5)
    ledger_id = run(world, _write(world, 5, ensemble=3, write_quorum=3, ack_quorum=2))
    client = world.add_client()

    async def recover() -> str:
        opening = client.ledgers.open(ledger_id, password=b"")
        await world.pause(0.012)
        for bookie in world.bookies:
            bookie.cut_power()
        try:
            await opening
        except BookKeeperError as error:
            return type(error).__name__
        return "recovered"

    assert run(world, recover()) != "recovered"


def test_everything_acknowledged_survives_the_loss_of_power_of_all_bookies() -> None:
    world = started_world(3)
    ledger_id = run(world, _write(world, 40, ensemble=3, write_quorum=2, ack_quorum=2))
    for bookie in world.bookies:
        bookie.cut_power()
        bookie.ensure_running()
    client = world.add_client()

    async def read_back() -> list[bytes]:
        while True:
            try:
                handle = await client.ledgers.open(ledger_id, password=b"")
            except BookKeeperError:
                await world.pause(0.5)
                continue
            return [entry.payload async for entry in handle.entries()]

    assert run(world, read_back()) == [b"entry %d" % number for number in range(40)]


@pytest.mark.parametrize("moment", range(0, 60, 3))
def test_a_session_that_ends_at_any_moment_costs_time_and_nothing_else(moment: int) -> None:
    """I-16: create, write over a lost member, close, open; sessions end on the way."""
    world = started_world(4)
    writer, reader = world.add_client(), world.add_client()
    acknowledged: list[int] = []

    async def live() -> int:
        ledger = await writer.ledgers.create(ensemble=3, write_quorum=2, ack_quorum=2, password=b"")
        for number in range(10):
            acknowledged.append(await ledger.append(b"%d" % number))
            if number == 4:
                member = ledger.metadata.last_fragment.ensemble[0]
                next(bookie for bookie in world.bookies if bookie.bookie_id == member).cut_power()
        await ledger.close()
        ledger_id: int = ledger.ledger_id
        return ledger_id

    async def read(ledger_id: int) -> list[bytes]:
        handle = await reader.ledgers.open(ledger_id, password=b"")
        return [entry.payload async for entry in handle.entries()]

    for client in (writer, reader):
        world.clock.callLater(0.002 * moment, client.store.expire_session, 0.05)
    ledger_id = run(world, live())
    world.clock.callLater(0.0005 * moment, reader.store.expire_session, 0.05)
    assert run(world, read(ledger_id)) == [b"%d" % number for number in range(10)]
    assert acknowledged == list(range(10))


def test_a_tail_sees_everything_while_every_member_is_replaced() -> None:
    """I-46."""
    world = started_world(5)
    writer, reader = world.add_client(), world.add_client()
    seen: list[bytes] = []

    async def live() -> None:
        ledger = await writer.ledgers.create(ensemble=3, write_quorum=2, ack_quorum=2, password=b"")
        tail = await reader.ledgers.open_without_recovery(ledger.ledger_id, password=b"")
        following = world.spawn(follow(tail))
        for number in range(12):
            await ledger.append(b"%d" % number)
            if number % 4 == 1:
                member = ledger.metadata.last_fragment.ensemble[number % 3]
                bookie = next(bookie for bookie in world.bookies if bookie.bookie_id == member)
                bookie.cut_power()
                world.clock.callLater(0.5, bookie.ensure_running)
            await world.pause(0.7)
        await ledger.close()
        await following

    async def follow(tail: Any) -> None:
        async for batch in tail.tail():
            seen.extend(entry.payload for entry in batch)

    run(world, live())
    assert seen == [b"%d" % number for number in range(12)]


def test_a_writer_gives_up_when_every_bookie_is_dead() -> None:
    """L-9, L-2: dead bookies that are still registered do not take turns; every append hears of it once."""
    world = started_world(5)
    client = world.add_client()

    async def live() -> str:
        ledger = await client.ledgers.create(ensemble=3, write_quorum=3, ack_quorum=2, password=b"")
        await ledger.append(b"0")
        for bookie in world.bookies:
            bookie.cut_power()
        try:
            await ledger.append(b"1")
        except BookKeeperError as error:
            return type(error).__name__
        return "acknowledged"

    assert run(world, live()) == "NotEnoughBookies"


def test_a_ledger_whose_client_was_closed_first_is_not_reported_closed() -> None:
    """`close` returned the metadata of an OPEN ledger as if it had closed it."""
    world = started_world(3)
    client = world.add_client()

    async def close_in_the_wrong_order() -> str:
        handle = await client.ledgers.create(password=b"")
        await handle.append(b"one")
        await client.ledgers.close()
        try:
            await handle.close()
        except ClientClosed as error:
            return str(error)
        return "closed"

    assert "the client was closed" in run(world, close_in_the_wrong_order())
