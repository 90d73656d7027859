"""Purge and discard (I-86)."""

from __future__ import annotations

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import JournalManager
from journalmgr.errors import TxIdSeen
from journalmgr.model import OPAQUE, TxId
from tests.support.journal_contract.world import (
    JournalWorld,
    bounds,
    fact,
    finalised_segment,
    flushed,
    formatted,
    raises,
    read_all,
    span,
    written,
)


async def _three(world: JournalWorld) -> JournalManager:
    journal = await formatted(world)
    for first in (1, 11, 21):
        await finalised_segment(journal, first, first + 9)
    return journal


@fact
async def purge_keeps_the_segment_that_holds_the_kept_txid(world: JournalWorld) -> None:
    journal = await _three(world)
    assert await journal.purge_older_than(TxId(1)) == []
    assert await journal.purge_older_than(TxId(10)) == []
    gone = await journal.purge_older_than(TxId(15))
    assert [(segment.first_txid, segment.last_txid) for segment in gone] == [(1, 10)]
    assert await bounds(journal) == [(11, 20), (21, 30)]
    assert await read_all(journal, 15) == span(15, 30)
    gone = await journal.purge_older_than(TxId(21))
    assert [(segment.first_txid, segment.last_txid) for segment in gone] == [(11, 20)]
    assert await journal.purge_older_than(TxId(21)) == []


@fact
async def purge_leaves_what_is_in_progress(world: JournalWorld) -> None:
    journal = await _three(world)
    writer = await written(journal, 31, 35)
    await journal.purge_older_than(TxId(1000))
    assert await bounds(journal) == [(31, None)]
    await flushed(writer, 36, 36)
    await writer.close()
    await journal.finalize_segment(TxId(31), TxId(36))
    assert await read_all(journal, 31) == span(31, 36)


@fact
async def what_was_purged_is_never_used_again(world: JournalWorld) -> None:
    """I-81: also where nothing is left that says so."""
    journal = await formatted(world)
    assert await journal.last_txid_seen() == 0
    writer = await written(journal, 1, 7)
    assert await journal.last_txid_seen() == 0, "what is in progress does not count"
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(7))
    assert await journal.last_txid_seen() == 7
    await finalised_segment(journal, 8, 10)
    await written(journal, 11, 12)
    assert await journal.last_txid_seen() == 10
    world.crash(journal)

    journal = await world.open()
    await journal.recover_unfinalized()
    assert await journal.last_txid_seen() == 12
    await journal.purge_older_than(TxId(13))
    assert await bounds(journal) == []
    await journal.close()
    journal = await world.open()
    await journal.recover_unfinalized()
    assert await journal.last_txid_seen() == 12
    for used in (1, 11, 12):
        await raises(TxIdSeen, journal.start_segment(TxId(used), OPAQUE))
    await finalised_segment(journal, 13, 14)
    assert await journal.last_txid_seen() == 14
    assert await read_all(journal, 13) == [13, 14]


@fact
async def an_empty_segment_gives_its_txid_back(world: JournalWorld) -> None:
    journal = await formatted(world)
    await finalised_segment(journal, 1, 4)
    await journal.start_segment(TxId(5), OPAQUE)
    assert await journal.last_txid_seen() == 4
    world.crash(journal)
    journal = await world.open()
    await journal.recover_unfinalized()
    assert await journal.last_txid_seen() == 4
    await finalised_segment(journal, 5, 6)


@fact
async def discard_deletes_from_a_boundary_on(world: JournalWorld) -> None:
    journal = await _three(world)
    gone = await journal.discard_from(TxId(11))
    assert sorted((segment.first_txid, segment.last_txid) for segment in gone) == [(11, 20), (21, 30)]
    assert await bounds(journal) == [(1, 10)]
    assert await journal.discard_from(TxId(11)) == [], "behind the last segment nothing is left to discard"
    await finalised_segment(journal, 11, 12)
    assert await read_all(journal, 1) == span(1, 12)


@fact
async def discard_within_a_segment_is_refused(world: JournalWorld) -> None:
    journal = await _three(world)
    for inside in (2, 10, 15, 30):
        await raises(BookKeeperError, journal.discard_from(TxId(inside)))
    assert await read_all(journal, 1) == span(1, 30)


@fact
async def discard_takes_a_dead_writers_segment_along(world: JournalWorld) -> None:
    old = await _three(world)
    await written(old, 31, 35)
    world.crash(old)
    journal = await world.open()
    await journal.recover_unfinalized()
    await journal.discard_from(TxId(21))
    assert await bounds(journal) == [(1, 10), (11, 20)]
    writer = await journal.start_segment(TxId(21), OPAQUE)
    await flushed(writer, 21, 22)
