"""Copies hold the same transactions, are continued wherever they were cut, and never mix two journals."""

import pytest

from journalmgr.copying import Copied, copy, unfinished
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    GapInTransactions,
    JournalError,
    JournalUnavailable,
    NotFormatted,
    SegmentConflict,
    TransactionTooLarge,
    UnsupportedLayout,
)
from journalmgr.files.journal import FileJournal
from journalmgr.model import HADOOP_2_7, OPAQUE, Segment, TxId
from tests.support.file_story import FileStory
from tests.support.journal_contract import finalised_segment, opaque, read_all, written
from tests.support.journal_contract.world import bounds, flushed, span

SOURCE, TARGET = "/source", "/target"


@pytest.fixture
def story() -> FileStory:
    return FileStory()


async def source_of(story: FileStory, *segments: tuple[int, int]) -> FileJournal:
    journal = await story.formatted(SOURCE)
    for first, last in segments:
        await finalised_segment(journal, first, last)
    return journal


def test_a_copy_has_the_same_segments_and_transactions(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 500), (501, 501))
        target = await story.formatted(TARGET)
        seen: list[int] = []
        copied = await copy(source, target, on_progress=seen.append)
        assert await bounds(target) == [(1, 10), (11, 500), (501, 501)]
        assert await read_all(target, 1) == span(1, 501)
        assert (copied.transactions, copied.first_txid, copied.last_txid) == (501, 1, 501)
        assert copied.size == sum(map(len, opaque(1, 501)))
        assert seen[-1] == 501
        again = await copy(source, target)
        assert (again.transactions, again.segments) == (0, [])

    story.run(run())


def test_opcode_body_and_layout_stay(story: FileStory) -> None:
    async def run() -> None:
        source = await story.formatted(SOURCE)
        writer = await source.start_segment(TxId(1), HADOOP_2_7)
        records = [encode_record(OpCode.START_LOG_SEGMENT, 1, b""), encode_record(OpCode.END_LOG_SEGMENT, 2, b"")]
        writer.write(records)
        await writer.close()
        await source.finalize_segment(TxId(1), TxId(2))
        target = await story.formatted(TARGET)
        await copy(source, target)
        name = "current/edits_0000000000000000001-0000000000000000002"
        assert story.fs.contents(f"{TARGET}/{name}") == story.fs.contents(f"{SOURCE}/{name}")

    story.run(run())


def test_a_copy_is_brought_up_to_date(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10))
        target = await story.formatted(TARGET)
        await copy(source, target)
        await finalised_segment(source, 11, 20)
        assert (await copy(source, target)).first_txid == 11
        assert await read_all(target, 1) == span(1, 20)

    story.run(run())


@pytest.mark.parametrize("got_to", [11, 15, 20])
def test_a_copy_that_was_cut_goes_on_behind_its_last_transaction(story: FileStory, got_to: int) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 20), (21, 30))
        first = await story.formatted(TARGET)
        await finalised_segment(first, 1, 10)
        await written(first, 11, got_to)
        story.crash(TARGET, first)
        target = story.open(TARGET)
        assert [segment.first_txid for segment in await unfinished(target)] == [11]
        copied = await copy(source, target)
        assert copied.transactions == 30 - got_to
        assert await read_all(target, 1) == span(1, 30)

    story.run(run())


def test_what_the_source_still_writes_is_left(story: FileStory) -> None:
    async def run() -> Copied:
        source = await source_of(story, (1, 10))
        writer = await written(source, 11, 15)
        target = await story.formatted(TARGET)
        copied = await copy(source, target)
        assert await bounds(target) == [(1, 10)]
        await flushed(writer, 16, 20)
        await writer.close()
        await source.finalize_segment(TxId(11), TxId(20))
        assert (await copy(source, target)).first_txid == 11
        return copied

    copied: Copied = story.run(run())
    assert [segment.first_txid for segment in copied.left] == [11]


def test_a_source_without_anything_finalised_copies_nothing(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story)
        target = await story.formatted(TARGET)
        assert (await copy(source, target)).segments == []

    story.run(run())


def test_a_source_that_was_purged_is_copied_from_where_it_begins(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 20))
        await source.purge_older_than(TxId(11))
        target = await story.formatted(TARGET)
        await copy(source, target)
        assert await bounds(target) == [(11, 20)]

    story.run(run())


# --- refused, with nothing written


def refused(story: FileStory, expected: type[Exception], source_segments: list[tuple[int, int]], target: object) -> str:
    async def run() -> str:
        source = await source_of(story, *source_segments)
        copy_to = await story.formatted(TARGET)
        await target(copy_to)  # type: ignore[operator]
        before = await bounds(copy_to)
        with pytest.raises(expected) as caught:
            await copy(source, copy_to)
        assert await bounds(copy_to) == before
        return str(caught.value)

    message: str = story.run(run())
    return message


def test_a_target_that_is_ahead_is_no_copy(story: FileStory) -> None:
    async def ahead(target: FileJournal) -> None:
        await finalised_segment(target, 1, 11)

    assert "is ahead" in refused(story, SegmentConflict, [(1, 10)], ahead)


def test_a_target_with_other_transactions_is_no_copy(story: FileStory) -> None:
    async def others(target: FileJournal) -> None:
        writer = await target.start_segment(TxId(1), OPAQUE)
        writer.write([encode_record(OpCode.OPAQUE, txid, b"another's") for txid in range(1, 6)])
        await writer.close()
        await target.finalize_segment(TxId(1), TxId(5))

    assert "txids 1..5 are other transactions" in refused(story, SegmentConflict, [(1, 10)], others)


def test_a_target_with_another_layout_is_no_copy(story: FileStory) -> None:
    async def other_layout(target: FileJournal) -> None:
        writer = await written(target, 1, 5, layout=HADOOP_2_7)
        await writer.close()
        await target.finalize_segment(TxId(1), TxId(5))

    assert "other transactions" in refused(story, SegmentConflict, [(1, 10)], other_layout)


def test_what_the_source_no_longer_has_is_a_gap(story: FileStory) -> None:
    async def old(target: FileJournal) -> None:
        await finalised_segment(target, 1, 5)

    message = refused(story, GapInTransactions, [(11, 20)], old)
    assert "has no txid 6, which the copy needs next; what is there goes on at 11" in message


def test_a_gap_in_the_source_ends_the_copy_with_what_is_before_it(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (21, 30))
        target = await story.formatted(TARGET)
        with pytest.raises(GapInTransactions, match="has no txid 11"):
            await copy(source, target)
        assert await bounds(target) == [(1, 10)]

    story.run(run())


def test_a_layout_that_is_only_read_cannot_be_copied(story: FileStory) -> None:
    class Old:
        description = "old"

        def __init__(self, journal: FileJournal) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> object:
            return getattr(self._journal, name)

        async def select_input_streams(self, from_txid: TxId) -> list[object]:
            return [Stream(reader) for reader in await self._journal.select_input_streams(from_txid)]

    class Stream:
        def __init__(self, reader: object) -> None:
            self._reader = reader
            self.segment = Segment(TxId(1), TxId(10), -40)

        def __getattr__(self, name: str) -> object:
            return getattr(self._reader, name)

    async def run() -> None:
        source = await source_of(story, (1, 10))
        target = await story.formatted(TARGET)
        with pytest.raises(UnsupportedLayout, match="-40 is only read"):
            await copy(Old(source), target)  # type: ignore[arg-type]
        assert await bounds(target) == []

    story.run(run())


class Narrow:
    """A target whose writers take records of so many bytes."""

    def __init__(self, journal: FileJournal, record_size_max: int) -> None:
        self._journal, self._record_size_max = journal, record_size_max

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def start_segment(self, first_txid: TxId, layout_version: int) -> object:
        writer = await self._journal.start_segment(first_txid, layout_version)
        writer.record_size_max = self._record_size_max  # type: ignore[misc]
        return writer


def test_a_transaction_too_large_for_the_target_is_found_before_anything_is_copied(story: FileStory) -> None:
    async def run() -> str:
        source = await source_of(story, (1, 10))
        for first, sizes in ((11, (5, 40)), (13, (100, 7)), (15, (99, 1))):
            writer = await source.start_segment(TxId(first), OPAQUE)
            writer.write([encode_record(OpCode.OPAQUE, first + index, b"x" * size) for index, size in enumerate(sizes)])
            await writer.close()
            await source.finalize_segment(TxId(first), TxId(first + 1))
        target = await story.formatted(TARGET)
        checked: list[int] = []
        with pytest.raises(TransactionTooLarge) as caught:
            await copy(source, Narrow(target, 116), on_checked=checked.append)  # type: ignore[arg-type]
        assert await target.segments() == []
        assert checked[-1] == 16
        await copy(source, Narrow(target, 117))  # type: ignore[arg-type]
        assert await bounds(target) == [(1, 10), (11, 12), (13, 14), (15, 16)]
        return str(caught.value)

    message: str = story.run(run())
    assert "txid 13 has 117 bytes, and " in message
    assert "takes at most 116" in message


@pytest.mark.parametrize("batches", range(6))
def test_a_copy_that_is_stopped_leaves_nothing_in_progress_and_is_continued(story: FileStory, batches: int) -> None:
    """Stopped when it is asked for the n-th time: while it checks, between segments, and within one."""

    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 20), (21, 30))
        target = await story.formatted(TARGET)
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > 2 * batches

        stopped = await copy(source, target, stop=stop)
        assert stopped.stopped
        assert await unfinished(target) == []
        rest = await copy(source, target)
        assert not rest.stopped
        assert stopped.transactions + rest.transactions == 30
        assert await read_all(target, 1) == span(1, 30)

    story.run(run())


def test_a_source_that_does_not_answer_while_it_is_checked_ends_the_copy(story: FileStory) -> None:
    class Silent:
        description = "silent"

        def __init__(self, journal: FileJournal) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> object:
            return getattr(self._journal, name)

        async def select_input_streams(self, from_txid: TxId) -> list[object]:
            raise JournalUnavailable("no answer")

    async def run() -> None:
        source = await source_of(story, (1, 10))
        target = await story.formatted(TARGET)
        with pytest.raises(JournalUnavailable):
            await copy(Silent(source), target)  # type: ignore[arg-type]
        assert await target.segments() == []

    story.run(run())


# --- what goes wrong on the way


def test_a_target_is_formatted_once_the_source_was_read(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 20))
        path = f"{SOURCE}/current/edits_0000000000000000011-0000000000000000020"
        story.damage(path, 200)
        target = story.open(TARGET)
        namespace = await source.namespace()
        for _ in range(2):
            with pytest.raises(JournalError, match="is corrupt"):
                await copy(source, target, namespace=namespace)
            assert not await target.has_data()
        story.damage(path, 200)  # back again
        with pytest.raises(NotFormatted):
            await copy(source, target)
        assert (await copy(source, target, namespace=namespace)).formatted
        assert await read_all(target, 1) == span(1, 20)
        assert not (await copy(source, target, namespace=namespace)).formatted

    story.run(run())


def test_damage_in_the_source_ends_the_copy_and_all_follows_once_it_is_repaired(story: FileStory) -> None:
    async def run() -> None:
        source = await source_of(story, (1, 10), (11, 20))
        path = f"{SOURCE}/current/edits_0000000000000000011-0000000000000000020"
        story.damage(path, 200)
        target = await story.formatted(TARGET)
        with pytest.raises(JournalError, match="is corrupt"):
            await copy(source, target)
        assert await bounds(target) == []
        story.damage(path, 200)  # back again
        await copy(source, target)
        assert await read_all(target, 1) == span(1, 20)

    story.run(run())


def test_what_is_read_back_is_compared_with_what_was_written(story: FileStory) -> None:
    class Forgetful:
        """A target that finalises, and then holds something else."""

        def __init__(self, journal: FileJournal) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> object:
            return getattr(self._journal, name)

        async def finalize_segment(self, first: TxId, last: TxId) -> Segment:
            segment = await self._journal.finalize_segment(first, last)
            record = encode_record(OpCode.OPAQUE, 3, b"transaction X")
            path = f"{TARGET}/current/{segment.name}"
            story.fs.poke(path, 8 + sum(map(len, opaque(1, 2))), record)
            return segment

    async def run() -> None:
        source = await source_of(story, (1, 10))
        target = await story.formatted(TARGET)
        with pytest.raises(SegmentConflict, match="was read back, and differs"):
            await copy(source, Forgetful(target))  # type: ignore[arg-type]

    story.run(run())
