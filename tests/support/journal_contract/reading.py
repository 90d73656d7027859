"""Selecting streams, gaps, segments in progress, and tailing over a roll (I-81, I-85)."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from journalmgr.errors import GapInTransactions, JournalClosed
from journalmgr.model import OPAQUE, TxId
from tests.support.journal_contract.world import (
    JournalWorld,
    bounds,
    fact,
    finalised_segment,
    flushed,
    formatted,
    opaque,
    raises,
    read_all,
    some_time,
    span,
    tailed,
    until,
    written,
)


@fact
async def reading_begins_exactly_where_it_is_asked_to(world: JournalWorld) -> None:
    journal = await formatted(world)
    await finalised_segment(journal, 1, 25)
    await finalised_segment(journal, 26, 50)
    for start in (1, 2, 13, 25, 26, 40, 50):
        assert await read_all(journal, start) == span(start, 50)
    assert await read_all(journal, 51) == []
    assert await journal.select_input_streams(TxId(51)) == []


@fact
async def each_segment_has_a_stream_of_its_own(world: JournalWorld) -> None:
    journal = await formatted(world)
    for first in (1, 11, 21):
        await finalised_segment(journal, first, first + 9)
    streams = await journal.select_input_streams(TxId(15))
    assert [(stream.segment.first_txid, stream.segment.last_txid) for stream in streams] == [(11, 20), (21, 30)]
    for stream in streams:
        await stream.close()
        await stream.close()


@fact
async def a_gap_ends_the_list_of_streams(world: JournalWorld) -> None:
    """I-81."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 10)
    await finalised_segment(journal, 21, 30)
    assert await bounds(journal) == [(1, 10), (21, 30)]
    assert await read_all(journal, 1) == span(1, 10)
    assert await read_all(journal, 11) == []
    assert await read_all(journal, 15) == []
    assert await read_all(journal, 21) == span(21, 30)


@fact
async def a_txid_below_the_first_segment_has_no_stream(world: JournalWorld) -> None:
    journal = await formatted(world)
    await finalised_segment(journal, 11, 20)
    assert await read_all(journal, 1) == []


@fact
async def a_segment_in_progress_is_read_only_when_asked_for(world: JournalWorld) -> None:
    """What was confirmed: at the least all flushes but the last; never what was not flushed."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 10)
    writer = await written(journal, 11, 30, step=5)
    writer.write(opaque(31, 33))
    reader = await world.open()
    for journal_of_either in (journal, reader):
        assert await read_all(journal_of_either, 1) == span(1, 10)
        found = await read_all(journal_of_either, 1, in_progress_ok=True)
        assert found == span(1, found[-1])
        assert 25 <= found[-1] <= 30
        found = await read_all(journal_of_either, 17, in_progress_ok=True)
        assert found == span(17, found[-1])
    await flushed(writer, 34, 34)


@fact
async def an_empty_segment_in_progress_ends_the_list(world: JournalWorld) -> None:
    journal = await formatted(world)
    await finalised_segment(journal, 1, 10)
    await journal.start_segment(TxId(11), OPAQUE)
    reader = await world.open()
    assert await read_all(reader, 1, in_progress_ok=True) == span(1, 10)
    assert await read_all(reader, 1) == span(1, 10)
    assert await read_all(reader, 11, in_progress_ok=True) == []


@fact
async def a_reader_does_not_disturb_the_writer(world: JournalWorld) -> None:
    """Reading never fences."""
    journal = await formatted(world)
    writer = await written(journal, 1, 10)
    reader = await world.open()
    await read_all(reader, 1, in_progress_ok=True)
    await reader.segments()
    await flushed(writer, 11, 20)
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(20))
    assert await read_all(reader, 1) == span(1, 20)


@fact
async def a_tail_delivers_what_is_there_already(world: JournalWorld) -> None:
    journal = await formatted(world)
    for first in (1, 11, 21):
        await finalised_segment(journal, first, first + 9)
    reader = await world.open()
    for start in (1, 5, 11, 30):
        tail = reader.tail(TxId(start))
        assert tail.next_txid == start
        assert await tailed(tail, 30) == span(start, 30)
        await tail.stop()


@fact
async def a_tail_goes_on_over_a_roll(world: JournalWorld) -> None:
    """I-85: every txid once, in order, while the segments come into being."""
    journal, reader = await formatted(world), await world.open()
    tail = reader.tail(TxId(1))
    found: list[int] = []
    next_txid = 1
    for turn in range(4):
        writer = await journal.start_segment(TxId(next_txid), OPAQUE)
        first = next_txid
        for group in range(3):
            await flushed(writer, next_txid, next_txid + group)
            next_txid += group + 1
            if turn % 2:
                await some_time(world, 0.2)
        await writer.close()
        if turn > 1:
            await some_time(world, 0.5)
        await journal.finalize_segment(TxId(first), TxId(next_txid - 1))
        found += await tailed(tail, next_txid - 1)
        assert found == span(1, next_txid - 1)
    await tail.stop()


@fact
async def a_tail_waits_for_the_first_transaction(world: JournalWorld) -> None:
    journal, reader = await formatted(world), await world.open()
    tail = reader.tail(TxId(1))
    waiting = tail.next()
    await some_time(world, 3.0)
    assert not waiting.called
    await finalised_segment(journal, 1, 3)
    batch = await waiting
    assert [record.txid for record in batch.records] == span(1, len(batch.records))
    await tail.stop()


@fact
async def a_tail_never_shows_what_is_not_flushed(world: JournalWorld) -> None:
    """I-85."""
    journal, reader = await formatted(world), await world.open()
    writer = await written(journal, 1, 10)
    tail = reader.tail(TxId(1))
    found: list[int] = []

    async def follow() -> None:
        while True:
            found.extend(record.txid for record in (await tail.next()).records)

    following = Deferred.fromCoroutine(follow())
    await some_time(world, 2.0)
    writer.write(opaque(11, 15))
    await some_time(world, 2.0)
    assert found == span(1, len(found))
    assert len(found) <= 10
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(15))
    await until(world, lambda: len(found) >= 15, "the tail to deliver all")
    await some_time(world, 1.0)
    assert found == span(1, 15)
    await tail.stop()
    await raises(JournalClosed, following)


@fact
async def a_tail_goes_on_where_a_dead_writer_was_recovered(world: JournalWorld) -> None:
    """I-85."""
    old, reader = await formatted(world), await world.open()
    tail = reader.tail(TxId(1))
    writer = await written(old, 1, 10, step=2)
    found = await tailed(tail, 8)
    writer.write(opaque(11, 12))
    writer.set_ready_to_flush()
    writer.flush().addErrback(lambda _: None)
    world.crash(old)
    new = await world.open()
    await new.recover_unfinalized()
    kept = len(await read_all(new, 1))
    await finalised_segment(new, kept + 1, kept + 5)
    found += await tailed(tail, kept + 5)
    assert found == span(1, kept + 5)
    await tail.stop()


@fact
async def a_tail_fails_at_a_gap(world: JournalWorld) -> None:
    """I-81: it neither skips what is missing nor waits for it for ever."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 5)
    await finalised_segment(journal, 11, 15)
    tail = journal.tail(TxId(1))
    assert await tailed(tail, 5) == span(1, 5)
    error = await raises(GapInTransactions, tail.next())
    assert (error.expected, error.found) == (6, 11)
    await tail.stop()


@fact
async def a_stopped_tail_is_closed(world: JournalWorld) -> None:
    journal = await formatted(world)
    tail = journal.tail(TxId(1))
    waiting = tail.next()
    await some_time(world, 1.0)
    stopping = tail.stop()
    await raises(JournalClosed, waiting)
    await stopping
    await raises(JournalClosed, tail.next())
    await tail.stop()
