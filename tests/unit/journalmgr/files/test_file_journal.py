"""The journal of files: its bytes as Hadoop has them, the lock, torn tails and corruption, failed syncs, tails."""

import errno
import random
from collections.abc import Coroutine
from typing import Any
from zlib import crc32

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from journalmgr.edits.file import EditsFileDecoder, encode_header
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    EditsCorrupt,
    GapInTransactions,
    HasData,
    JournalError,
    JournalUnavailable,
    SegmentConflict,
    SegmentExists,
    SegmentUnreadable,
    StreamFailed,
    UnsupportedLayout,
)
from journalmgr.files.journal import FileJournal, FileJournalSettings
from journalmgr.files.names import finalised_name, in_progress_name, mark_name
from journalmgr.files.segment_file import UNSYNCED_SIZE_MAX
from journalmgr.files.version import decode_version, encode_version
from journalmgr.model import HADOOP_2_7, OPAQUE, UNKNOWN_LAYOUT, NamespaceInfo, TxId
from tests.support.faulty_filesystem import FaultyFileSystem, Op, OpenMode
from tests.support.file_journals import CURRENT, PATH, FileJournals
from tests.support.journal_contract import NAMESPACE, opaque, raises, read_all, written
from tests.support.journal_contract.world import bounds, flushed, refused, some_time, span, tailed
from tests.support.simulated_clock import SimulatedClock


class World:
    """One disk, and processes that have journals on it."""

    def __init__(self, preallocation_size: int = 4096) -> None:
        self.clock = SimulatedClock()
        self.fs = FaultyFileSystem()
        settings = FileJournalSettings(preallocation_size=preallocation_size)
        self.journals = FileJournals(self.fs, self.clock, random.Random(3), settings)

    def open(self, namespace: NamespaceInfo | None = NAMESPACE) -> FileJournal:
        return self.journals.open(namespace)

    async def ready(self) -> FileJournal:
        journal = self.open()
        await journal.format(NAMESPACE)
        await journal.recover_unfinalized()
        return journal

    def names(self) -> list[str]:
        return [name for name in self.fs.listdir(CURRENT) if name not in ("VERSION", "seen_txid")]

    def content(self, name: str) -> bytes:
        return self.fs.contents(f"{CURRENT}/{name}")

    def put(self, name: str, data: bytes) -> None:
        """A file behind everybody's back, durable."""
        path = f"{CURRENT}/{name}"
        if self.fs.exists(path):
            self.fs.unlink(path)
        file = self.fs.open(path, OpenMode.CREATE_EXCLUSIVE)
        file.pwrite(data, 0)
        file.sync()
        file.close()
        self.fs.sync_dir(CURRENT)

    def remove(self, name: str) -> None:
        self.fs.unlink(f"{CURRENT}/{name}")

    def run(self, story: Coroutine[Any, Any, Any]) -> None:
        outcome: list[object] = []
        Deferred.fromCoroutine(story).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=3600.0), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()


@pytest.fixture
def world() -> World:
    return World()


# --- bytes


def test_the_directory_is_as_hadoop_has_it(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        writer = await journal.start_segment(TxId(1), HADOOP_2_7)
        records = [encode_record(OpCode.START_LOG_SEGMENT, 1, b""), encode_record(OpCode.END_LOG_SEGMENT, 2, b"")]
        writer.write(records)
        writer.set_ready_to_flush()
        await writer.flush()
        whole = b"\xff\xff\xff\xc1" + bytes(4) + b"".join(records)
        assert world.content("edits_inprogress_0000000000000000001") == whole + b"\xff" * 4096
        assert world.content("seen_txid") == b"1\n"
        await journal.finalize_segment(TxId(1), TxId(2))
        assert world.names() == ["edits_0000000000000000001-0000000000000000002"]
        assert world.content("edits_0000000000000000001-0000000000000000002") == whole
        decoder = EditsFileDecoder(source="edits_0000000000000000001-0000000000000000002")
        assert len(decoder.feed(whole)) == 2
        decoder.finish()
        assert world.content("VERSION") == (
            b"namespaceID=1234567\nclusterID=CID-contract\nblockpoolID=BP-contract\ncTime=0\n"
            b"storageType=NAME_NODE\nlayoutVersion=-63\n"
        )

    world.run(story())


def test_a_version_file_of_java_is_read() -> None:
    data = (
        b"#Sun Nov 22 07:51:06 UTC 2015\r\nnamespaceID=-1234567\nclusterID=CID-\\u00e4\\:\\ud83d\\ude00\n"
        b"cTime=5\nstorageType=NAME_NODE\nblockpoolID=BP-1-10.0.0.1-2\nlayoutVersion=-60\n"
    )
    found = decode_version(data, "VERSION")
    assert (found.namespace_id, found.ctime, found.layout_version) == (-1234567, 5, -60)
    assert (found.cluster_id, found.block_pool_id) == ("CID-ä:😀", "BP-1-10.0.0.1-2")
    again = decode_version(encode_version(found), "VERSION")
    assert again.is_same(found)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no namespaceID"),
        (b"namespaceID=x\ncTime=0\nlayoutVersion=-63\n", "is no number"),
        (b"namespaceID=1\nstorageType=DATA_NODE\n", "no directory of a metadata server"),
        (b"junk\n", "line 1"),
    ],
)
def test_a_version_file_that_cannot_be_read_is_not_taken_for_absent(world: World, data: bytes, told: str) -> None:
    async def story() -> None:
        journal = await world.ready()
        world.put("VERSION", data)
        error = await raises(JournalError, journal.recover_unfinalized())
        assert type(error) is JournalError
        assert told in str(error)
        await raises(HasData, journal.format(NAMESPACE))

    world.run(story())


def test_names_that_are_no_edits_are_left_alone(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        for name in ("fsimage_0000000000000000000", "edits", "edits_1-", "notes.txt"):
            world.put(name, b"mine")
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 5)
        await journal.finalize_segment(TxId(1), TxId(5))
        await journal.purge_older_than(TxId(6))
        assert len(world.names()) == 4
        assert await bounds(journal) == []

    world.run(story())


def test_format_refuses_a_directory_within(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        world.fs.make_dirs(f"{CURRENT}/precious")
        error = await raises(HasData, journal.format(NAMESPACE, force=True))
        assert "precious" in str(error)
        assert (await journal.namespace()).is_same(NAMESPACE)

    world.run(story())


def test_format_refuses_while_a_segment_is_written(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        writer = await written(journal, 1, 5)
        await raises(SegmentExists, journal.format(NAMESPACE, force=True))
        await flushed(writer, 6, 7)
        await writer.close()
        await journal.format(NAMESPACE, force=True)
        assert await bounds(journal) == []

    world.run(story())


def test_a_close_that_fails_is_told_and_lets_go_of_the_lock(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        await written(journal, 1, 5)
        world.fs.fail_nth(Op.CLOSE, 1, errno.EIO, path="edits_inprogress")
        await raises(JournalUnavailable, journal.close())
        again = world.open()
        await again.recover_unfinalized()
        assert await read_all(again, 1) == span(1, 5)

    world.run(story())


DAMAGED_HEADERS = [
    (b"", SegmentUnreadable),
    (b"\xff" * 100, SegmentUnreadable),
    (b"\x00\x00", SegmentUnreadable),
    (b"\x00\x00\x00\x01\x00\x00\x00\x09" + bytes(20), SegmentUnreadable),
    (b"\xff\xff\xff\x9d" + bytes(20), UnsupportedLayout),
]


@pytest.mark.parametrize(("data", "error"), DAMAGED_HEADERS)
def test_a_damaged_header_hides_no_segment_and_fails_whoever_needs_its_own(
    world: World, data: bytes, error: type[JournalError]
) -> None:
    async def story() -> None:
        journal = await world.ready()
        for first in (1, 6, 11):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 4)
            await journal.finalize_segment(TxId(first), TxId(first + 4))
        await journal.close()
        world.put(finalised_name(6, 10), data)
        journal = world.open()
        assert await bounds(journal) == [(1, 5), (6, 10), (11, 15)]
        assert [each.layout_version for each in await journal.segments()] == [OPAQUE, UNKNOWN_LAYOUT, OPAQUE]
        assert await journal.last_txid_seen() == 15
        assert await read_all(journal, 11) == span(11, 15)
        for first in (1, 6, 8):
            failure = await raises(error, read_all(journal, first))
            assert error is UnsupportedLayout or "from another copy of the journal" in str(failure)
        readers = await journal.select_input_streams(TxId(1))
        assert [each.segment.first_txid for each in readers] == [1, 6, 11]
        for each in readers:
            await each.close()
        tail = journal.tail(TxId(1))
        assert await tailed(tail, 5) == span(1, 5)
        await raises(error, tail.next())
        await tail.stop()

    world.run(story())


@pytest.mark.parametrize(("data", "error"), DAMAGED_HEADERS)
def test_nothing_is_written_or_deleted_beside_a_damaged_header(
    world: World, data: bytes, error: type[JournalError]
) -> None:
    async def story() -> None:
        journal = await world.ready()
        world.put(finalised_name(1, 5), data)
        before = world.names()
        await raises(error, journal.recover_unfinalized())
        await raises(error, journal.start_segment(TxId(6), OPAQUE))
        await raises(error, journal.purge_older_than(TxId(6)))
        await raises(error, journal.discard_from(TxId(1)))
        assert world.names() == before

    world.run(story())


def test_a_header_that_was_repaired_meanwhile_is_read_as_what_it_is(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        whole = encode_header(OPAQUE) + b"".join(opaque(1, 5))
        world.put(finalised_name(1, 5), bytes(len(whole)))
        [reader] = await journal.select_input_streams(TxId(1))
        assert reader.segment.layout_version == UNKNOWN_LAYOUT
        world.put(finalised_name(1, 5), whole)
        batch = await reader.next()
        assert batch is not None
        assert batch.segment.layout_version == OPAQUE
        await reader.close()

    world.run(story())


def test_damage_in_what_is_in_progress_fails_whoever_gets_there(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 5)
        await journal.finalize_segment(TxId(1), TxId(5))
        writer = await journal.start_segment(TxId(6), OPAQUE)
        await flushed(writer, 6, 9)
        for data, error in (
            (b"\xff\xff\xff\x9d" + bytes(20), UnsupportedLayout),
            (b"\0\0\0\1\0\0\0\x09", EditsCorrupt),
        ):
            world.fs.poke(f"{CURRENT}/{in_progress_name(6)}", 0, data)
            assert await bounds(world.open()) == [(1, 5), (6, None)]
            readers = await world.open().select_input_streams(TxId(1), in_progress_ok=True)
            assert [each.segment.first_txid for each in readers] == [1, 6]
            batch = await readers[0].next()
            assert batch is not None
            assert len(batch.records) == 5
            await raises(error, readers[1].next())
            await raises(error, world.open().select_input_streams(TxId(6), in_progress_ok=True))
            for each in readers:
                await each.close()

    world.run(story())


def test_a_finalised_file_must_hold_what_its_name_says(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        whole = encode_header(OPAQUE) + b"".join(opaque(1, 5))
        world.put(finalised_name(1, 6), whole)
        await raises(GapInTransactions, read_all(journal, 1))
        await raises(GapInTransactions, tailed(journal.tail(TxId(1)), 6))
        world.remove(finalised_name(1, 6))
        world.put(finalised_name(1, 4), whole)
        await raises(EditsCorrupt, read_all(journal, 1))
        world.remove(finalised_name(1, 4))
        world.put(finalised_name(2, 6), whole)
        await raises(GapInTransactions, read_all(journal, 2))

    world.run(story())


def test_an_old_layout_without_lengths_is_read(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        body = bytes([OpCode.START_LOG_SEGMENT]) + (1).to_bytes(8, "big")
        record = body + crc32(body).to_bytes(4, "big")
        world.put(in_progress_name(1), b"\xff\xff\xff\xd1" + record + b"\xff" * 50)
        await journal.recover_unfinalized()
        assert await bounds(journal) == [(1, 1)]
        (reader,) = await journal.select_input_streams(TxId(1))
        batch = await reader.next()
        assert batch is not None
        assert batch.segment.layout_version == -47
        assert [record.opcode for record in batch.records] == [OpCode.START_LOG_SEGMENT]

    world.run(story())


# --- the lock


def test_the_holder_of_the_lock_is_named(world: World) -> None:
    async def story() -> None:
        old = await world.ready()
        await written(old, 1, 5)
        new = world.open()
        for refusal in (new.recover_unfinalized(), new.start_segment(TxId(6), OPAQUE), new.purge_older_than(TxId(5))):
            error = await raises(JournalUnavailable, refusal)
            assert f"{PATH} is in use by process 1@here" in str(error)
        world.journals.crash(old)
        await new.recover_unfinalized()
        assert world.fs.contents(f"{PATH}/in_use.lock") == b"2@here"

    world.run(story())


def test_a_purge_lets_go_of_the_lock_at_once(world: World) -> None:
    async def story() -> None:
        journal = world.open()
        await journal.format(NAMESPACE)
        await journal.purge_older_than(TxId(1))
        await world.open().recover_unfinalized()

    world.run(story())


def test_close_lets_go_of_the_lock(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        await written(journal, 1, 5)
        await journal.close()
        await world.open().recover_unfinalized()

    world.run(story())


# --- torn tails and corruption


async def dead(world: World, last: int = 100) -> str:
    """The file of a writer that died with transactions 1..last durable."""
    journal = await world.ready()
    await written(journal, 1, last)
    world.journals.crash(journal)
    return in_progress_name(1)


@pytest.mark.parametrize("with_mark", [True, False], ids=["mark", "no-mark"])
@pytest.mark.parametrize("cut", [1, 5, 16, 30])
def test_a_torn_tail_is_cut_off_and_kept_aside(world: World, cut: int, with_mark: bool) -> None:
    async def story() -> None:
        name = await dead(world, 10)
        more = b"".join(opaque(11, 13))
        data = world.content(name).rstrip(b"\xff") + more[:-cut] + b"\xff" * 99
        world.put(name, data)
        if not with_mark:
            world.remove(mark_name(1))
        journal = world.open()
        (segment,) = await journal.recover_unfinalized()
        found = await read_all(journal, 1)
        assert found == span(1, segment.last_txid or 0)
        assert len(found) == (12 if cut < len(opaque(13, 13)[0]) else 11)
        whole = encode_header(OPAQUE) + b"".join(opaque(1, len(found)))
        assert world.content(segment.name) == whole
        assert world.names() == [segment.name, name + ".torn"]
        assert world.content(name + ".torn") == data.rstrip(b"\xff")[len(whole) :]

    world.run(story())


def test_a_second_torn_tail_does_not_replace_the_first(world: World) -> None:
    async def story() -> None:
        for turn in range(3):
            journal = world.open()
            if turn == 0:
                await journal.format(NAMESPACE)
            await journal.recover_unfinalized()
            await journal.start_segment(TxId(1), OPAQUE)
            world.journals.crash(journal)
            world.put(in_progress_name(1), encode_header(OPAQUE) + b"torn %d" % turn)
        await world.open().recover_unfinalized()
        name = in_progress_name(1) + ".torn"
        assert [world.content(found) for found in world.names()] == [b"torn 0", b"torn 1", b"torn 2"]
        assert world.names() == [name, name + ".1", name + ".2"]

    world.run(story())


def test_damage_below_the_mark_is_corruption(world: World) -> None:
    """Even in the last record: it was durable, so no crash has done that."""

    async def story() -> None:
        name = await dead(world)
        data = world.content(name)
        end = len(data.rstrip(b"\xff"))
        for offset in (10, 500, end - 3):
            world.put(name, data)
            world.fs.poke(f"{CURRENT}/{name}", offset, bytes([data[offset] ^ 1]))
            journal = world.open()
            error = await raises(EditsCorrupt, journal.recover_unfinalized())
            assert "was durable" in str(error)
            world.journals.crash(journal)
            assert world.content(name)[:offset] == data[:offset], "nothing was cut off"
            assert name in world.names()
            reader = world.open()
            await raises(EditsCorrupt, read_all(reader, 1, in_progress_ok=True))
            await raises(EditsCorrupt, tailed(reader.tail(TxId(1)), 100))
        world.put(name, data[: end - 3])
        await raises(EditsCorrupt, world.open().recover_unfinalized())

    world.run(story())


def test_a_mark_left_by_a_removed_segment_does_not_count_for_the_next(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        world.put(mark_name(1), bytes(12))
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 2)
        world.journals.crash(journal)
        again = world.open()
        await again.recover_unfinalized()
        assert await read_all(again, 1) == [1, 2]

    world.run(story())


def test_a_mark_outlives_a_power_cut_but_for_the_last_mebibyte(world: World) -> None:
    """So damage far from the end is found out also when the power went."""

    async def story() -> None:
        journal = await world.ready()
        writer = await journal.start_segment(TxId(1), OPAQUE)
        for txid in range(1, 40):
            writer.write([encode_record(OpCode.OPAQUE, txid, bytes(100_000))])
            writer.set_ready_to_flush()
            await writer.flush()
        world.fs.crash()
        world.fs.poke(f"{CURRENT}/{in_progress_name(1)}", 2_800_000, b"\x01")
        await raises(EditsCorrupt, world.open().recover_unfinalized())

    world.run(story())


def test_a_whole_record_far_behind_the_damage_is_corruption_without_a_mark(world: World) -> None:
    """One sync covers UNSYNCED_SIZE_MAX bytes at most, so what is further behind came after the damaged was durable."""

    async def story() -> None:
        await world.ready()
        large = [encode_record(OpCode.OPAQUE, txid, bytes(1 << 20)) for txid in range(1, 8)]
        data = bytearray(encode_header(OPAQUE) + b"".join(large))
        assert len(data) > UNSYNCED_SIZE_MAX + (2 << 20)
        data[100] ^= 1
        world.put(in_progress_name(1), bytes(data))
        world.fs.crash()
        error = await raises(EditsCorrupt, world.open().recover_unfinalized())
        assert "whole transaction again" in str(error)
        assert world.names() == [in_progress_name(1)]

    world.run(story())


def test_a_damaged_header_with_records_behind_is_corruption(world: World) -> None:
    async def story() -> None:
        await world.ready()
        world.put(in_progress_name(1), encode_header(OPAQUE)[:4] + b"\x00\x00\x00\x09" + b"".join(opaque(1, 3)))
        world.fs.crash()
        await raises(EditsCorrupt, world.open().recover_unfinalized())

    world.run(story())


def test_a_file_in_progress_beside_its_finalised_twin(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 5)
        await journal.finalize_segment(TxId(1), TxId(5))
        world.put(in_progress_name(1), encode_header(OPAQUE) + b"".join(opaque(1, 4)))
        assert await bounds(journal) == [(1, 5)]
        await journal.recover_unfinalized()
        assert world.names() == [finalised_name(1, 5), in_progress_name(1) + ".stale"]
        world.put(in_progress_name(1), encode_header(OPAQUE) + b"".join(opaque(1, 6)))
        await raises(SegmentConflict, journal.recover_unfinalized())

    world.run(story())


# --- a disk that fails


@pytest.mark.parametrize("op", [Op.WRITE, Op.SYNC])
def test_a_failed_write_ends_the_stream(world: World, op: Op) -> None:
    """I-82."""

    async def story() -> None:
        journal = await world.ready()
        writer = await written(journal, 1, 10)
        world.fs.fail_nth(op, 1, errno.EIO, path="edits_inprogress")
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        first = writer.flush()
        writer.write(opaque(13, 13))
        writer.set_ready_to_flush()
        second = writer.flush()
        error = await raises(StreamFailed, first)
        await raises(StreamFailed, second)
        refused(StreamFailed, lambda: writer.write(opaque(14, 14)))
        assert writer.durable_txid == 10
        assert "txid 11" in str(error)
        await raises(StreamFailed, writer.close())
        await journal.recover_unfinalized()
        found = await read_all(journal, 1)
        assert found == span(1, len(found)), "what was queued behind the failure is not in the file"
        assert len(found) in (10, 11, 12)

    world.run(story())


def test_recovery_after_a_failed_sync_makes_durable_what_it_counts(world: World) -> None:
    """I-48: the system holds the bytes of a failed sync for written, and forgets them with the power."""

    async def story() -> None:
        journal = await world.ready()
        writer = await written(journal, 1, 10)
        world.fs.fail_nth(Op.SYNC, 1, errno.EIO, path="edits_inprogress", drop_dirty=True)
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        (segment,) = await journal.recover_unfinalized()
        found = await read_all(journal, 1)
        assert segment.last_txid == found[-1]
        world.fs.crash()
        assert await read_all(world.open(), 1) == found

    world.run(story())


def test_a_full_disk_fails_the_stream_and_leaves_what_was_durable(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        writer = await written(journal, 1, 10)
        world.fs.quota_bytes = world.fs.used_bytes + 100
        writer.write([encode_record(OpCode.OPAQUE, 11, bytes(10_000))])
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        world.fs.quota_bytes = None
        await journal.recover_unfinalized()
        assert await read_all(journal, 1) == span(1, 10)

    world.run(story())


def test_a_purge_goes_on_behind_a_file_that_it_cannot_delete(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        for first in (1, 6, 11):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 4)
            await journal.finalize_segment(TxId(first), TxId(first + 4))
        world.fs.fail_nth(Op.UNLINK, 1, errno.EACCES, path=finalised_name(1, 5))
        error = await raises(JournalUnavailable, journal.purge_older_than(TxId(11)))
        assert finalised_name(1, 5) in str(error)
        assert await bounds(journal) == [(1, 5), (11, 15)]

    world.run(story())


# --- tails of another writer's files


def test_a_tail_of_a_file_without_a_mark_waits_for_whole_records(world: World) -> None:
    """As of Hadoop's name node: padding that is written over, a record that is there in part, a wrong checksum."""

    async def story() -> None:
        await world.ready()
        reader = world.open()
        tail = reader.tail(TxId(1))
        found: list[int] = []

        async def follow() -> None:
            while True:
                found.extend(record.txid for record in (await tail.next()).records)

        following = Deferred.fromCoroutine(follow())
        name = in_progress_name(1)
        stages = [
            (b"", 0),
            (b"\xff" * 64, 0),
            (encode_header(OPAQUE) + b"\xff" * 64, 0),
            (encode_header(OPAQUE) + b"".join(opaque(1, 3)) + b"\xff" * 64, 3),
            (encode_header(OPAQUE) + b"".join(opaque(1, 5))[:-9] + b"\xff" * 64, 4),
            (encode_header(OPAQUE) + b"".join(opaque(1, 6)), 6),
        ]
        for data, last in stages:
            world.put(name, data)
            await some_time(world, 5.0)  # type: ignore[arg-type]
            assert found == span(1, last)
        world.remove(name)
        world.put(finalised_name(1, 6), stages[-1][0])
        world.put(in_progress_name(7), encode_header(OPAQUE) + b"".join(opaque(7, 8)))
        await some_time(world, 5.0)  # type: ignore[arg-type]
        assert found == span(1, 8)
        world.remove(in_progress_name(7))
        world.put(finalised_name(7, 7), encode_header(OPAQUE) + b"".join(opaque(7, 7)))
        error = await raises(GapInTransactions, following)
        assert "took them back" in str(error)
        await tail.stop()

    world.run(story())


def test_a_tail_of_a_file_without_a_mark_reads_on_where_padding_was(world: World) -> None:
    """Hadoop's name node writes over its padding, cuts it off and renames the file between two looks of the tail."""

    async def story() -> None:
        await world.ready()
        tail = world.open().tail(TxId(1))
        name = f"{CURRENT}/{in_progress_name(1)}"
        world.put(in_progress_name(1), encode_header(OPAQUE) + b"".join(opaque(1, 3)) + b"\xff" * 4096)
        assert await tailed(tail, 3) == span(1, 3)
        file = world.fs.open(name, OpenMode.UPDATE)
        whole = encode_header(OPAQUE) + b"".join(opaque(1, 5))
        file.pwrite(whole, 0)
        file.truncate(len(whole))
        file.close()
        world.fs.rename(name, f"{CURRENT}/{finalised_name(1, 5)}")
        assert await tailed(tail, 5) == span(4, 5)
        await tail.stop()

    world.run(story())


def test_a_tail_reads_a_finalised_segment_on_where_it_was(world: World) -> None:
    """Its bytes are not read twice."""

    async def story() -> None:
        journal = await world.ready()
        writer = await written(journal, 1, 1000, step=1000)
        tail = world.open().tail(TxId(1))
        assert await tailed(tail, 1000) == span(1, 1000)
        await flushed(writer, 1001, 1001)
        await journal.finalize_segment(TxId(1), TxId(1001))
        before = world.fs.counts[Op.READ]
        assert await tailed(tail, 1001) == [1001]
        assert world.fs.counts[Op.READ] - before <= 4
        await tail.stop()

    world.run(story())


def test_a_listing_that_catches_a_rename_is_no_gap(world: World) -> None:
    """Once seen, a gap is looked at again."""

    async def story() -> None:
        journal = await world.ready()
        for first in (1, 6):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 4)
            await journal.finalize_segment(TxId(first), TxId(first + 4))
        data = world.content(finalised_name(1, 5))
        world.remove(finalised_name(1, 5))
        tail = world.open().tail(TxId(1))
        waiting = tail.next()
        await some_time(world, 0.5)  # type: ignore[arg-type]
        world.put(finalised_name(1, 5), data)
        batch = await waiting
        assert batch.records[0].txid == 1
        await tail.stop()

    world.run(story())


def test_a_reader_follows_the_file_to_its_final_name(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        await written(journal, 1, 10)
        (reader,) = await world.open().select_input_streams(TxId(4), in_progress_ok=True)
        await journal.finalize_segment(TxId(1), TxId(10))
        batch = await reader.next()
        assert batch is not None
        assert [record.txid for record in batch.records] == span(4, 10)
        assert await reader.next() is None

    world.run(story())


def test_a_segment_larger_than_one_sync_is_written_in_pieces(world: World) -> None:
    async def story() -> None:
        journal = await world.ready()
        writer = await journal.start_segment(TxId(1), OPAQUE)
        count = 3 * UNSYNCED_SIZE_MAX // (1 << 20) + 1
        writer.write([encode_record(OpCode.OPAQUE, txid, bytes(1 << 20)) for txid in range(1, count + 1)])
        writer.set_ready_to_flush()
        before = world.fs.counts[Op.SYNC]
        assert await writer.flush() == count
        assert world.fs.counts[Op.SYNC] - before >= 4
        await journal.finalize_segment(TxId(1), TxId(count))
        (reader,) = await journal.select_input_streams(TxId(count - 1))
        batch = await reader.next()
        assert batch is not None
        assert batch.records[0].txid == count - 1

    world.run(story())


def test_a_recovery_that_is_called_while_a_segment_is_started_ends_that_segment(world: World) -> None:
    """I-80: nobody holds a stream into a file that recovery removed as empty."""

    async def story() -> None:
        journal = await world.ready()
        starting = journal.start_segment(TxId(1), OPAQUE)
        recovering = journal.recover_unfinalized()
        writer = await starting
        assert await recovering == []
        assert world.names() == []
        refused(JournalError, lambda: writer.write(opaque(1, 2)))
        await raises(JournalError, writer.flush())
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 3)
        assert await read_all(journal, 1, in_progress_ok=True) == span(1, 3)

    world.run(story())
