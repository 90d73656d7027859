"""The journal on a simulated cluster: the life of a segment, as a name node lives it (journalmgr/FORMATS.md 3)."""

from __future__ import annotations

from journalmgr.model import OPAQUE, TxId
from tests.simulation.journals import (
    NAMESPACE,
    data_of,
    listed,
    new_journal,
    read_from,
    version_of,
    write,
    write_segment,
)
from tests.simulation.test_scenarios import run, started_world


def test_a_finalised_segment_is_listed_and_read() -> None:
    world = started_world(3)
    journal = new_journal(world)

    async def story() -> list[int]:
        await journal.format(NAMESPACE)
        await write_segment(journal, 1, 100)
        return await read_from(journal, 1)

    assert run(world, story()) == list(range(1, 101))
    assert listed(world) == ["edits_000000000000000001_000000000000000100"]
    assert data_of(world, "/maxtxid") == b"txId: 100\n"
    assert data_of(world, "/CurrentInprogress") is None
    assert version_of(world, "/CurrentInprogress") == 2
    assert data_of(world, "") == b"0"
    assert data_of(world, "/ledgers") == b"0"


def test_recovery_keeps_what_was_flushed() -> None:
    world = started_world(3)
    first, second = new_journal(world), new_journal(world)

    async def story() -> list[int]:
        await first.format(NAMESPACE)
        writer = await first.start_segment(TxId(1), OPAQUE)
        await write(writer, 1, 100)
        world.clients[0].crash()
        [segment] = await second.recover_unfinalized()
        assert (segment.first_txid, segment.last_txid) == (1, 100)
        await write_segment(second, 101, 110)
        return await read_from(second, 50)

    assert run(world, story()) == list(range(50, 111))
    assert listed(world) == [
        "edits_000000000000000001_000000000000000100",
        "edits_000000000000000101_000000000000000110",
    ]
