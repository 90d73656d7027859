"""The format guard; start, write, flush, finalise; what is refused, and what sticks."""

from __future__ import annotations

from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    GapInTransactions,
    HasData,
    JournalClosed,
    JournalError,
    NamespaceMismatch,
    NotFormatted,
    SegmentAbsent,
    SegmentConflict,
    SegmentExists,
    TransactionTooLarge,
    TxIdSeen,
    UnsupportedLayout,
)
from journalmgr.model import HADOOP_2_7, OPAQUE, TxId
from tests.support.journal_contract.world import (
    FOREIGN,
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
async def a_journal_that_was_never_formatted_is_refused(world: JournalWorld) -> None:
    journal = await world.open()
    assert not await journal.has_data()
    await raises(NotFormatted, journal.namespace())
    await raises(NotFormatted, journal.recover_unfinalized())
    await raises(NotFormatted, journal.start_segment(TxId(1), OPAQUE))
    assert not await journal.has_data()


@fact
async def format_binds_the_journal_to_its_namespace(world: JournalWorld) -> None:
    journal = await world.open()
    await journal.format(NAMESPACE)
    found = await (await world.open()).namespace()
    assert found.is_same(NAMESPACE)
    assert (found.ctime, found.layout_version) == (NAMESPACE.ctime, NAMESPACE.layout_version)
    assert await bounds(journal) == []


@fact
async def a_journal_of_another_namespace_is_refused(world: JournalWorld) -> None:
    """I-87."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 5)
    await journal.close()
    foreign = await world.open(FOREIGN)
    await raises(NamespaceMismatch, foreign.recover_unfinalized())
    await raises(NamespaceMismatch, foreign.start_segment(TxId(6), OPAQUE))
    await raises(NamespaceMismatch, foreign.purge_older_than(TxId(6)))
    assert await read_all(await world.open(), 1) == span(1, 5)


@fact
async def format_destroys_nothing_unless_it_is_forced(world: JournalWorld) -> None:
    """I-87."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 5)
    assert await journal.has_data()
    await raises(HasData, journal.format(NAMESPACE))
    assert await read_all(journal, 1) == span(1, 5)
    await journal.format(NAMESPACE, force=True)
    assert await bounds(journal) == []
    await finalised_segment(journal, 1, 3)
    assert await read_all(journal, 1) == span(1, 3)


@fact
async def what_was_written_comes_back_in_order(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    assert (writer.first_txid, writer.last_txid, writer.durable_txid) == (1, 0, 0)
    writer.write(opaque(1, 3))
    writer.write(opaque(4, 4))
    assert (writer.last_txid, writer.durable_txid) == (4, 0)
    writer.set_ready_to_flush()
    assert await writer.flush() == 4
    assert writer.durable_txid == 4
    await flushed(writer, 5, 200)
    await writer.close()
    segment = await journal.finalize_segment(TxId(1), TxId(200))
    assert (segment.first_txid, segment.last_txid, segment.layout_version) == (1, 200, OPAQUE)
    assert await journal.segments() == [segment]
    assert await read_all(journal, 1) == span(1, 200)
    assert await read_all(await world.open(), 1) == span(1, 200)


@fact
async def transactions_of_hdfs_keep_their_layout_and_opcode(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), HADOOP_2_7)
    records = [
        encode_record(OpCode.START_LOG_SEGMENT, 1, b""),
        encode_record(OpCode.DELETE, 2, b"\x00\x02/a" + bytes(8)),
        encode_record(OpCode.END_LOG_SEGMENT, 3, b""),
    ]
    writer.write(records)
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(3))
    (segment,) = await journal.segments()
    assert segment.layout_version == HADOOP_2_7
    (reader,) = await journal.select_input_streams(TxId(1))
    found = []
    while (batch := await reader.next()) is not None:
        assert batch.segment == segment
        found += [encode_record(record.opcode, record.txid, record.body) for record in batch.records]
    assert found == records


@fact
async def a_layout_that_cannot_be_written_is_refused(world: JournalWorld) -> None:
    journal = await formatted(world)
    for layout in (-40, -54, -99, 2):
        await raises(UnsupportedLayout, journal.start_segment(TxId(1), layout))
    await finalised_segment(journal, 1, 2)


@fact
async def a_large_record_among_small_ones_comes_back(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    bodies = [b"small", bytes(range(256)) * 2000, b"", b"x" * 300_000, b"end"]
    writer.write([encode_record(OpCode.OPAQUE, txid, body) for txid, body in enumerate(bodies, 1)])
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(5))
    (reader,) = await journal.select_input_streams(TxId(1))
    found = []
    while (batch := await reader.next()) is not None:
        found += [record.body for record in batch.records]
    assert found == bodies


@fact
async def write_takes_nothing_of_what_is_not_next(world: JournalWorld) -> None:
    """I-81."""
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    writer.write(opaque(1, 2))
    gapped = [opaque(4, 5), opaque(2, 3), opaque(1, 1), [*opaque(3, 3), *opaque(5, 5)]]
    for records in gapped:
        refused(GapInTransactions, lambda records=records: writer.write(records))  # type: ignore[misc]
        assert writer.last_txid == 2
    await flushed(writer, 3, 6)
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(6))
    assert await read_all(journal, 1) == span(1, 6)


@fact
async def write_takes_nothing_when_one_record_is_too_large(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    size = writer.record_size_max
    large = encode_record(OpCode.OPAQUE, 2, bytes(size))
    assert len(large) > size
    refused(TransactionTooLarge, lambda: writer.write([*opaque(1, 1), large]))
    assert writer.last_txid == 0
    await flushed(writer, 1, 2)
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(2))


@fact
async def flush_acknowledges_exactly_what_was_made_ready(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    writer.write(opaque(1, 3))
    writer.set_ready_to_flush()
    writer.write(opaque(4, 6))
    flushing = writer.flush()
    writer.write(opaque(7, 7))
    assert await flushing == 3
    assert writer.durable_txid == 3
    writer.set_ready_to_flush()
    assert await writer.flush() == 7
    writer.set_ready_to_flush()
    assert await writer.flush() == 7, "nothing new is fine"
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(7))
    assert await read_all(journal, 1) == span(1, 7)


@fact
async def close_flushes_and_leaves_the_segment_in_progress(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await journal.start_segment(TxId(1), OPAQUE)
    writer.write(opaque(1, 9))
    await writer.close()
    assert await bounds(journal) == [(1, None)]
    refused(JournalClosed, lambda: writer.write(opaque(10, 10)))
    await writer.close()
    await journal.finalize_segment(TxId(1), TxId(9))
    assert await bounds(journal) == [(1, 9)]


@fact
async def an_aborted_writer_leaves_what_was_durable(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await written(journal, 1, 9)
    writer.write(opaque(10, 12))
    await writer.abort()
    await writer.abort()
    await journal.recover_unfinalized()
    assert await bounds(journal) == [(1, 9)]
    assert await read_all(journal, 1) == span(1, 9)


@fact
async def an_aborted_writer_refuses_everything(world: JournalWorld) -> None:
    """I-82."""
    journal = await formatted(world)
    writer = await written(journal, 1, 2)
    await writer.abort()
    refused(JournalError, lambda: writer.write(opaque(3, 3)))
    await raises(JournalError, writer.flush())


@fact
async def one_segment_is_in_progress_at_a_time(world: JournalWorld) -> None:
    journal = await formatted(world)
    await written(journal, 1, 5)
    await raises(SegmentExists, journal.start_segment(TxId(6), OPAQUE))
    assert await bounds(journal) == [(1, None)]


@fact
async def a_txid_is_used_once(world: JournalWorld) -> None:
    """I-81."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 1000)
    for seen in (1, 500, 1000):
        await raises(TxIdSeen, journal.start_segment(TxId(seen), OPAQUE))
    await finalised_segment(journal, 1001, 1002)
    await finalised_segment(journal, 4000, 4001)
    assert await bounds(journal) == [(1, 1000), (1001, 1002), (4000, 4001)]


@fact
async def a_txid_stays_used_when_its_segment_was_purged(world: JournalWorld) -> None:
    """I-81."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 5)
    await finalised_segment(journal, 6, 10)
    await journal.purge_older_than(TxId(11))
    await journal.close()
    again = await world.open()
    await again.recover_unfinalized()
    await raises(TxIdSeen, again.start_segment(TxId(6), OPAQUE))
    await finalised_segment(again, 11, 12)


@fact
async def finalising_again_with_the_same_end_is_fine(world: JournalWorld) -> None:
    """I-83."""
    journal = await formatted(world)
    await finalised_segment(journal, 1, 5)
    first = await journal.segments()
    assert [await journal.finalize_segment(TxId(1), TxId(5))] == first
    assert await journal.segments() == first


@fact
async def finalising_with_another_end_is_refused(world: JournalWorld) -> None:
    """I-83."""
    journal = await formatted(world)
    writer = await written(journal, 1, 5)
    await writer.close()
    for wrong in (4, 6):
        await raises(SegmentConflict, journal.finalize_segment(TxId(1), TxId(wrong)))
    assert await bounds(journal) == [(1, None)]
    await journal.finalize_segment(TxId(1), TxId(5))
    another = await world.open()
    for wrong in (4, 6):
        await raises(SegmentConflict, journal.finalize_segment(TxId(1), TxId(wrong)))
    assert await bounds(journal) == [(1, 5)]
    await journal.close()
    for wrong in (4, 6):
        await raises(SegmentConflict, another.finalize_segment(TxId(1), TxId(wrong)))
    assert await bounds(another) == [(1, 5)]


@fact
async def finalising_closes_the_writer(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await written(journal, 1, 5)
    await journal.finalize_segment(TxId(1), TxId(5))
    refused(JournalError, lambda: writer.write(opaque(6, 6)))
    assert await bounds(journal) == [(1, 5)]


@fact
async def finalising_what_is_not_there_is_refused(world: JournalWorld) -> None:
    journal = await formatted(world)
    await raises(SegmentAbsent, journal.finalize_segment(TxId(1), TxId(5)))
    await finalised_segment(journal, 1, 5)
    await raises(SegmentAbsent, journal.finalize_segment(TxId(6), TxId(7)))


@fact
async def a_closed_journal_refuses_and_keeps_what_it_has(world: JournalWorld) -> None:
    journal = await formatted(world)
    writer = await written(journal, 1, 5)
    await journal.close()
    await journal.close()
    await raises(JournalClosed, journal.segments())
    await raises(JournalClosed, journal.start_segment(TxId(6), OPAQUE))
    refused(JournalError, lambda: writer.write(opaque(6, 6)))
    again = await world.open()
    assert await bounds(again) == [(1, None)]
    await again.recover_unfinalized()
    assert await read_all(again, 1) == span(1, 5)
