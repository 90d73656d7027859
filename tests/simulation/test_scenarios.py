"""Single stories told on the simulated cluster: what campaigns once found, and what deserves a name."""

from __future__ import annotations

from typing import Any

from bookkeeper.errors import BookKeeperError
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
