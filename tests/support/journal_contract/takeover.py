"""A writer that died or is replaced; recovery (I-80, I-82, I-84)."""

from __future__ import annotations

from journalmgr.contract import JournalManager
from journalmgr.errors import JournalError, JournalUnavailable, SegmentAbsent, SegmentExists
from journalmgr.model import OPAQUE, TxId
from tests.support.journal_contract.world import (
    NAMESPACE,
    JournalWorld,
    bounds,
    fact,
    finalised_segment,
    flushed,
    formatted,
    opaque,
    raises,
    read_all,
    refused,
    span,
    written,
)


@fact
async def recovery_finalises_what_a_dead_writer_flushed(world: JournalWorld) -> None:
    old = await formatted(world)
    await finalised_segment(old, 1, 10)
    await written(old, 11, 30)
    world.crash(old)
    new = await world.open()
    recovered = await new.recover_unfinalized()
    assert [(segment.first_txid, segment.last_txid) for segment in recovered] == [(11, 30)]
    assert await bounds(new) == [(1, 10), (11, 30)]
    assert await read_all(new, 1) == span(1, 30)
    await finalised_segment(new, 31, 40)
    assert await read_all(new, 1) == span(1, 40)


@fact
async def recovery_may_be_repeated(world: JournalWorld) -> None:
    old = await formatted(world)
    await written(old, 1, 7)
    world.crash(old)
    new = await world.open()
    assert len(await new.recover_unfinalized()) == 1
    assert await new.recover_unfinalized() == []
    assert await bounds(new) == [(1, 7)]
    await new.close()
    third = await world.open()
    assert await third.recover_unfinalized() == []
    assert await read_all(third, 1) == span(1, 7)


@fact
async def a_flush_that_was_under_way_is_kept_whole_from_its_beginning(world: JournalWorld) -> None:
    """What was not acknowledged may be there or not; if it is, then without a hole."""
    old = await formatted(world)
    writer = await written(old, 1, 5)
    writer.write(opaque(6, 9))
    writer.set_ready_to_flush()
    heard: list[object] = []
    writer.flush().addBoth(heard.append)
    world.crash(old)
    new = await world.open()
    await new.recover_unfinalized()
    found = await read_all(new, 1)
    assert found == span(1, len(found))
    assert 5 <= len(found) <= 9
    assert heard == []
    assert await read_all(await world.open(), 1) == found, "every later reader sees the same"
    await finalised_segment(new, len(found) + 1, 20)
    assert await read_all(new, 1) == span(1, 20)


@fact
async def an_empty_segment_is_removed_and_its_txid_used_again(world: JournalWorld) -> None:
    """I-84."""
    old = await formatted(world)
    await finalised_segment(old, 1, 5)
    await old.start_segment(TxId(6), OPAQUE)
    world.crash(old)
    new = await world.open()
    assert await new.recover_unfinalized() == []
    assert await bounds(new) == [(1, 5)]
    await finalised_segment(new, 6, 8)
    assert await read_all(new, 1) == span(1, 8)


@fact
async def an_empty_segment_of_the_own_process_is_removed_too(world: JournalWorld) -> None:
    """I-84."""
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    await writer.close()
    assert await journal.recover_unfinalized() == []
    assert await bounds(journal) == []
    await finalised_segment(journal, 1, 3)
    assert await read_all(journal, 1) == span(1, 3)


@fact
async def a_segment_of_a_dead_writer_is_in_the_way_until_recovery(world: JournalWorld) -> None:
    old = await formatted(world)
    await written(old, 1, 5)
    world.crash(old)
    new = await world.open()
    await raises(SegmentExists, new.start_segment(TxId(6), OPAQUE))
    await new.recover_unfinalized()
    await finalised_segment(new, 6, 7)


@fact
async def a_living_writer_is_replaced_for_good_or_not_at_all(world: JournalWorld) -> None:
    """I-80: never do two have their transactions acknowledged."""
    old = await formatted(world)
    writer = await written(old, 1, 5)
    new = await world.open()
    if not world.fences:
        await raises(JournalUnavailable, new.recover_unfinalized())
        await raises(JournalError, new.start_segment(TxId(6), OPAQUE))
        await flushed(writer, 6, 8)
        assert await bounds(new) == [(1, None)]
        world.crash(old)
        await new.recover_unfinalized()
        assert await read_all(new, 1) == span(1, 8)
        return
    await new.recover_unfinalized()
    await finalised_segment(new, 6, 10)
    await _can_do_nothing(old, writer_next=6, first=1)
    assert await read_all(new, 1) == span(1, 10)


@fact
async def a_replaced_writer_cannot_finalise_its_segment(world: JournalWorld) -> None:
    """I-80, I-83: it must not record an end beyond what the successor found."""
    old = await formatted(world)
    writer = await written(old, 1, 5)
    writer.write(opaque(6, 7))
    new = await world.open()
    if not world.fences:
        await raises(JournalUnavailable, new.recover_unfinalized())
        return
    await new.recover_unfinalized()
    await raises(JournalError, writer.close())
    await raises(JournalError, old.finalize_segment(TxId(1), TxId(7)))
    assert await bounds(new) == [(1, 5)]
    assert await read_all(new, 1) == span(1, 5)


async def _can_do_nothing(old: JournalManager, *, writer_next: int, first: int) -> None:
    await raises(JournalError, old.start_segment(TxId(writer_next), OPAQUE))
    await raises(JournalError, old.finalize_segment(TxId(first), TxId(writer_next)))


@fact
async def the_flush_of_a_replaced_writer_fails_and_keeps_failing(world: JournalWorld) -> None:
    """I-80, I-82."""
    old = await formatted(world)
    writer = await written(old, 1, 5)
    new = await world.open()
    if not world.fences:
        await raises(JournalUnavailable, new.recover_unfinalized())
        await flushed(writer, 6, 6)
        return
    await new.recover_unfinalized()
    writer.write(opaque(6, 8))
    writer.set_ready_to_flush()
    await raises(JournalError, writer.flush())
    refused(JournalError, lambda: writer.write(opaque(9, 9)))
    await raises(JournalError, writer.flush())
    assert writer.durable_txid == 5
    assert await read_all(new, 1) == span(1, 5)


@fact
async def recovery_ends_the_own_writer_too(world: JournalWorld) -> None:
    """A server that starts over in the same process."""
    journal = await formatted(world)
    writer = await written(journal, 1, 5)
    writer.write(opaque(6, 6))
    await journal.recover_unfinalized()
    refused(JournalError, lambda: writer.write(opaque(7, 7)))
    await raises(JournalError, writer.flush())
    found = await read_all(journal, 1)
    assert found == span(1, len(found))
    assert len(found) >= 5
    await finalised_segment(journal, len(found) + 1, 20)
    assert await read_all(journal, 1) == span(1, 20)


@fact
async def another_process_finalises_only_what_the_content_says(world: JournalWorld) -> None:
    """I-83."""
    old = await formatted(world)
    await written(old, 1, 5)
    world.crash(old)
    new = await world.open()
    await raises(JournalError, new.finalize_segment(TxId(1), TxId(6)))
    await raises(SegmentAbsent, new.finalize_segment(TxId(2), TxId(5)))
    await new.recover_unfinalized()
    await new.finalize_segment(TxId(1), TxId(5))
    assert await bounds(new) == [(1, 5)]


@fact
async def one_dies_after_the_other(world: JournalWorld) -> None:
    """Ten processes, each killed with a flush under way: whatever was acknowledged is there, once, in order."""
    first = await world.open()
    await first.format(NAMESPACE)
    next_txid = 1
    for turn in range(10):
        journal = await world.open()
        if turn == 0:
            await first.close()
        await journal.recover_unfinalized()
        found = await read_all(journal, 1)
        assert found == span(1, len(found))
        assert len(found) + 1 >= next_txid, "an acknowledged transaction is lost"
        next_txid = len(found) + 1
        writer = await journal.start_segment(TxId(next_txid), OPAQUE)
        if turn % 3:
            await flushed(writer, next_txid, next_txid + turn)
            next_txid += turn + 1
        writer.write(opaque(next_txid, next_txid + 3))
        writer.set_ready_to_flush()
        writer.flush().addErrback(lambda _: None)
        world.crash(journal)
