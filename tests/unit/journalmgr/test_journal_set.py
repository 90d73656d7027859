"""Several journals as one: the journal contract, and what becomes of members that fail. Members are files."""

import errno
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr import journal_set
from journalmgr.contract import JournalManager, Record, RecordBatch, SegmentReader, SegmentWriter
from journalmgr.edit_log import EditLog
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    EditsCorrupt,
    GapInTransactions,
    HasData,
    JournalClosed,
    JournalUnavailable,
    NamespaceMismatch,
    SegmentUnreadable,
    StreamFailed,
    TxIdSeen,
    WriterReplaced,
)
from journalmgr.files.journal import FileJournal
from journalmgr.journal_set import JournalSet, Member
from journalmgr.merged_reading import Copy, MergedLog, MergedTail, merged_readers
from journalmgr.model import OPAQUE, NamespaceInfo, Segment, TxId
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.file_journals import CURRENT, FileJournals
from tests.support.journal_contract import NAMESPACE, Fact, facts, opaque, raises, read_all, written
from tests.support.journal_contract.world import FOREIGN, bounds, finalised_segment, flushed, refused, span, tailed
from tests.support.simulated_clock import SimulatedClock

TIME_LIMIT_S = 3600.0


class SetWorld:
    """Sets of journals of files, each member on a disk of its own; also a JournalWorld."""

    fences = False

    def __init__(self, rng: random.Random, kinds: str = "so", minimum: int = 1) -> None:
        """kinds: one letter for each member: shared, required, optional."""
        self.clock = SimulatedClock()
        self.disks = [FaultyFileSystem() for _ in kinds]
        self.members = [FileJournals(disk, self.clock, rng) for disk in self.disks]
        self.told: list[tuple[str, BookKeeperError]] = []
        self._kinds, self._minimum = kinds, minimum
        self._journals: dict[int, list[tuple[FileJournals, FileJournal]]] = {}

    def set(
        self, namespace: NamespaceInfo = NAMESPACE, seats: Sequence[int] | None = None, reactor: Any = None
    ) -> JournalSet:
        """seats: the members of a server that lacks some. reactor: instead of the world's clock."""
        taken = [(self._kinds[index], self.members[index]) for index in seats or range(len(self.members))]
        journals = [(member, member.open(namespace)) for _, member in taken]
        opened = JournalSet(
            [
                Member(journal, required=kind == "r", shared=kind == "s")
                for (kind, _), (_, journal) in zip(taken, journals, strict=True)
            ],
            reactor or self.clock,
            minimum=self._minimum,
            on_disabled=lambda journal, error: self.told.append((journal.description, error)),
        )
        self._journals[id(opened)] = journals
        return opened

    def alone(self, index: int) -> FileJournal:
        """One member by itself, as another process opens it."""
        return self.members[index].open(NAMESPACE)

    async def open(self, namespace: NamespaceInfo = NAMESPACE) -> JournalManager:
        return self.set(namespace)

    def crash(self, journal: JournalManager) -> None:
        for member, opened in self._journals[id(journal)]:
            member.crash(opened)

    def fail(self, index: int, op: Op, path: str, n: int = 1) -> None:
        """The n-th such operation on a member's disk fails."""
        self.disks[index].fail_nth(op, n, errno.EIO, path=path)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the clock until it is over."""
        outcome: list[object] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=TIME_LIMIT_S), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]


@pytest.mark.parametrize(("kinds", "minimum"), [("s", 1), ("so", 1), ("rroo", 2), ("ooo", 2)])
@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
def test_a_set_is_a_journal(fact: Fact, kinds: str, minimum: int, rng: random.Random) -> None:
    world = SetWorld(rng, kinds, minimum)
    world.run(fact(world))  # type: ignore[arg-type]


async def ready(world: SetWorld) -> JournalSet:
    journal = world.set()
    await journal.format(NAMESPACE)
    await journal.recover_unfinalized()
    return journal


def test_members_that_cannot_work_are_refused(rng: random.Random) -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        JournalSet([], SimulatedClock())
    for minimum in (0, 3):
        with pytest.raises(InvalidArgument, match="minimum"):
            SetWorld(rng, "soo", minimum).set()


@pytest.mark.parametrize("operation", [Op.WRITE, Op.SYNC])
def test_a_failed_optional_member_is_told_and_comes_back_with_the_next_segment(
    rng: random.Random, operation: Op
) -> None:
    world = SetWorld(rng, "soo")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(1, operation, "edits_inprogress")
        await flushed(writer, 11, 20)
        assert [type(error) for _, error in world.told] == [StreamFailed]
        await flushed(writer, 21, 25)
        await journal.finalize_segment(TxId(1), TxId(25))
        await flushed(await journal.start_segment(TxId(26), OPAQUE), 26, 30)
        await journal.finalize_segment(TxId(26), TxId(30))
        assert len(world.told) == 1
        assert await bounds(world.alone(0)) == [(1, 25), (26, 30)]
        left = await bounds(world.alone(1))
        assert left[1] == (26, 30)
        assert left[0][1] is not None
        assert 10 <= left[0][1] <= 20, "what it had when it failed, finalised"
        assert await bounds(journal) == [(1, 25), (26, 30)]
        assert await read_all(journal, 1) == span(1, 30)

    world.run(story())


def test_a_failed_required_member_fails_the_set_for_good(rng: random.Random) -> None:
    """I-82."""
    world = SetWorld(rng, "rro")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(1, Op.SYNC, "edits_inprogress")
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        error = await raises(StreamFailed, writer.flush())
        assert world.told == []
        assert (await raises(StreamFailed, writer.flush())).__cause__ is error.__cause__
        refused(StreamFailed, lambda: writer.write(opaque(13, 13)))
        assert writer.durable_txid == 10

    world.run(story())


def test_optional_members_get_only_what_the_required_ones_have_durably(rng: random.Random) -> None:
    """Otherwise a takeover by the required ones would leave the optional ones a history of their own."""
    world = SetWorld(rng, "os")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(1, Op.WRITE, "edits_inprogress")
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        world.crash(journal)
        optional = world.alone(0)
        await optional.recover_unfinalized()
        assert await bounds(optional) == [(1, 10)]

    world.run(story())


@pytest.mark.parametrize("kinds", ["rs", "ros"])
def test_required_members_get_only_what_the_shared_ones_have_durably(rng: random.Random, kinds: str) -> None:
    """Otherwise a server that comes back would read from its own journal what the one in charge went on without."""
    world = SetWorld(rng, kinds)
    shared = kinds.index("s")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(shared, Op.WRITE, "edits_inprogress")
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        world.crash(journal)
        for index in range(shared):
            own = world.alone(index)
            await own.recover_unfinalized()
            assert await bounds(own) == [(1, 10)]

    world.run(story())


def test_a_required_member_that_is_not_shared_fails_the_set_too(rng: random.Random) -> None:
    world = SetWorld(rng, "sr")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(1, Op.SYNC, "edits_inprogress")
        writer.write(opaque(11, 12))
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        assert writer.durable_txid == 10

    world.run(story())


def test_what_is_no_error_of_a_journal_fails_the_set_for_good(rng: random.Random) -> None:
    """I-82: the optional member may have missed what the failed flush took with it."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        stream = writer._second[0]  # type: ignore[attr-defined]  # noqa: SLF001 - no file fails like this
        stream.writer.flush = lambda: fail(ZeroDivisionError("a fault of ours"))
        writer.write(opaque(11, 11))
        writer.set_ready_to_flush()
        await raises(StreamFailed, writer.flush())
        refused(StreamFailed, lambda: writer.write(opaque(12, 12)))
        await raises(StreamFailed, writer.flush())
        assert writer.durable_txid == 10

    world.run(story())


def test_too_few_optional_members_fail_the_set(rng: random.Random) -> None:
    world = SetWorld(rng, "sooo", 2)

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        world.fail(1, Op.SYNC, "edits_inprogress")
        await flushed(writer, 11, 12)
        world.fail(3, Op.SYNC, "edits_inprogress")
        writer.write(opaque(13, 13))
        writer.set_ready_to_flush()
        error = await raises(StreamFailed, writer.flush())
        assert "too many journals" in str(error)
        assert len(world.told) == 2

    world.run(story())


def test_a_start_that_fails_leaves_no_stream_behind(rng: random.Random) -> None:
    world = SetWorld(rng, "sr")

    async def story() -> None:
        journal = await ready(world)
        world.fail(1, Op.CREATE, "edits_inprogress")
        await raises(JournalUnavailable, journal.start_segment(TxId(1), OPAQUE))
        await journal.recover_unfinalized()
        await flushed(await journal.start_segment(TxId(1), OPAQUE), 1, 3)
        await journal.finalize_segment(TxId(1), TxId(3))
        assert await read_all(journal, 1) == span(1, 3)

    world.run(story())


def test_a_recovery_that_is_asked_for_during_a_start_ends_the_segment_that_it_begins(rng: random.Random) -> None:
    """I-80: otherwise its writer would acknowledge into a file that recovery has removed as empty."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        starting, recovering = journal.start_segment(TxId(1), OPAQUE), journal.recover_unfinalized()
        writer = await starting
        assert await recovering == []
        refused(JournalClosed, lambda: writer.write(opaque(1, 3)))
        assert await bounds(journal) == []
        await finalised_segment(journal, 1, 3)
        assert await read_all(journal, 1) == span(1, 3)

    world.run(story())


def test_a_member_that_another_writer_has_taken_fails_the_set(rng: random.Random) -> None:
    """I-80: even where the member is not required, somebody else writes now."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        writer = await written(journal, 1, 10)
        replaced = WriterReplaced("somebody else writes")
        stream = writer._second[0]  # type: ignore[attr-defined]  # noqa: SLF001 - files cannot be taken from the living
        stream.writer.error = replaced
        writer.write(opaque(11, 11))
        writer.set_ready_to_flush()
        assert (await raises(WriterReplaced, writer.flush())).__cause__ is replaced
        refused(WriterReplaced, lambda: writer.write(opaque(12, 12)))

    world.run(story())


def test_without_a_required_member_a_takeover_needs_an_overlap_with_the_old_writers(rng: random.Random) -> None:
    """I-80: two of three are enough to write, so two must be recovered: one alone may lack an acknowledged edit."""
    world = SetWorld(rng, "ooo", 2)

    async def story() -> None:
        journal = await ready(world)
        await written(journal, 1, 10)
        world.crash(journal)
        for index in (0, 1):
            world.fail(index, Op.OPEN, "VERSION")
        successor = world.set()
        await raises(JournalUnavailable, successor.recover_unfinalized())
        world.fail(2, Op.OPEN, "VERSION")
        await successor.recover_unfinalized()
        assert await read_all(successor, 1) == span(1, 10)

    world.run(story())


def test_where_one_is_enough_to_write_a_takeover_needs_all(rng: random.Random) -> None:
    """I-80."""
    world = SetWorld(rng, "ooo", 1)

    async def story() -> None:
        journal = await ready(world)
        await written(journal, 1, 10)
        world.crash(journal)
        successor = world.set()
        world.fail(1, Op.OPEN, "VERSION")
        await raises(JournalUnavailable, successor.recover_unfinalized())
        await successor.recover_unfinalized()
        assert await read_all(successor, 1) == span(1, 10)

    world.run(story())


def test_what_recovery_found_is_not_written_again_because_its_member_has_died_since(rng: random.Random) -> None:
    """I-81: one of three is enough to write, and the only one that has 11..20 cannot be read any more."""
    world = SetWorld(rng, "ooo", 1)

    async def story() -> None:
        journal = await ready(world)
        await finalised_segment(journal, 1, 10)
        for index in (1, 2):
            world.fail(index, Op.CREATE, "edits_inprogress")
        await written(journal, 11, 20)
        world.crash(journal)
        successor = world.set()
        await successor.recover_unfinalized()
        world.fail(0, Op.LIST, CURRENT)
        assert await read_all(successor, 1) == span(1, 10)
        await raises(TxIdSeen, successor.start_segment(TxId(11), OPAQUE))
        assert await read_all(successor, 1) == span(1, 20)
        await successor.start_segment(TxId(21), OPAQUE)
        assert world.told[2:] == []

    world.run(story())


def test_a_takeover_goes_on_where_an_optional_member_still_lists_its_segment_in_progress(rng: random.Random) -> None:
    world = SetWorld(rng, "soo")

    async def story() -> None:
        journal = await ready(world)
        await written(journal, 1, 10)
        world.crash(journal)
        successor = world.set()
        edit_log = EditLog(successor)
        world.fail(1, Op.RENAME, "edits_inprogress")
        await edit_log.recover()
        assert len(world.told) == 1
        assert (await world.alone(1).segments())[0].in_progress
        assert await bounds(successor) == [(1, 10)]
        assert await edit_log.open(11) == 12
        await edit_log.close()

    world.run(story())


def test_a_member_of_another_namespace_is_refused_with_its_set(rng: random.Random) -> None:
    """I-87: its transactions would be read with the others'."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        await world.members[1].open(None).format(FOREIGN, force=True)
        await raises(NamespaceMismatch, world.set().recover_unfinalized())
        assert world.told == []

    world.run(story())


def test_reading_goes_over_to_another_copy_in_the_middle(rng: random.Random) -> None:
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        writer = await journal.start_segment(TxId(1), OPAQUE)
        await flushed(writer, 1, 50_000)
        await journal.finalize_segment(TxId(1), TxId(50_000))
        await flushed(await journal.start_segment(TxId(50_001), OPAQUE), 50_001, 50_010)
        await journal.finalize_segment(TxId(50_001), TxId(50_010))
        name = f"{CURRENT}/{(await journal.segments())[0].name}"
        middle = len(world.disks[0].contents(name)) - 5000
        world.disks[0].poke(name, middle, b"\xff\xfe\xfd")
        assert await read_all(journal, 1) == span(1, 50_010)
        alone = world.alone(0)
        await raises(EditsCorrupt, read_all(alone, 1))
        world.disks[1].poke(name, middle, b"\xff\xfe\xfd")
        await raises(EditsCorrupt, read_all(journal, 1))

    world.run(story())


def test_each_stretch_is_read_from_whoever_has_it(rng: random.Random) -> None:
    """Holes at different places, a shorter copy, an unreadable list."""
    world = SetWorld(rng, "soo")

    async def story() -> None:
        journal = await ready(world)
        for first in (1, 11, 21, 31):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 9)
            await journal.finalize_segment(TxId(first), TxId(first + 9))
        names = [f"{CURRENT}/{segment.name}" for segment in await journal.segments()]
        for disk, gone in ((0, 1), (1, 0), (1, 2)):
            world.disks[disk].unlink(names[gone])
        world.disks[2].unlink(names[0])
        world.disks[2].unlink(names[3])
        assert await bounds(journal) == [(1, 10), (11, 20), (21, 30), (31, 40)]
        for start in (1, 5, 15, 25, 40):
            assert await read_all(journal, start) == span(start, 40)
        tail = journal.tail(TxId(1))
        assert await tailed(tail, 40) == span(1, 40)
        await tail.stop()
        world.disks[2].poke(names[1], 0, b"\xff" * 8)
        await raises(SegmentUnreadable, read_all(world.alone(2), 11))
        for each in (journal, world.set()):  # the second one knows before it reads
            assert await read_all(each, 1) == span(1, 40)
            assert {segment.layout_version for segment in await each.segments()} == {OPAQUE}
        world.disks[1].unlink(names[1])
        for each in (journal, world.set()):
            await raises(SegmentUnreadable, read_all(each, 1))
            assert await bounds(each) == [(1, 10), (11, 20), (21, 30), (31, 40)]

    world.run(story())


def test_what_only_a_member_left_behind_has_is_not_read(rng: random.Random) -> None:
    """It has 1..12, of which 11 and 12 were never acknowledged; the others went on at 11 with another writer."""
    world = SetWorld(rng, "oo", 1)

    async def story() -> None:
        journal = await ready(world)
        behind, ahead = world.alone(0), world.alone(1)
        await journal.close()
        for member, last in ((behind, 12), (ahead, 10)):
            await written(member, 1, last)
            await member.finalize_segment(TxId(1), TxId(last))
        await written(ahead, 11, 20)
        await ahead.finalize_segment(TxId(11), TxId(20))
        merged = world.set()
        assert await bounds(merged) == [(1, 10), (11, 20)]
        (first, second) = await merged.select_input_streams(TxId(1))
        batches = [await first.next(), await second.next()]
        assert [batch and batch.records[-1].txid for batch in batches] == [10, 20]

    world.run(story())


def test_the_tail_of_a_member_left_behind_does_not_come_back_behind_a_later_segment(rng: random.Random) -> None:
    """It has 1..15; two others went on at 11 and ended at 12, and at 13. Nor is it read where those copies fail."""
    world = SetWorld(rng, "ooo", 2)

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        for index, ends in ((0, [15]), (1, [10, 12]), (2, [10, 12])):
            member, first = world.alone(index), 1
            for last in ends:
                await finalised_segment(member, first, last)
                first = last + 1
        merged = world.set()
        assert await bounds(merged) == [(1, 10), (11, 12)]
        assert await read_all(merged, 1) == span(1, 12)
        assert await read_all(merged, 13) == []
        for index in (1, 2):
            world.disks[index].poke(f"{CURRENT}/{(await merged.segments())[1].name}", 5, b"\xff\xfe\xfd")
        readers = await merged.select_input_streams(TxId(11))
        assert len(readers) == 1
        await raises(SegmentUnreadable, readers[0].next())
        await readers[0].close()

    world.run(story())


def test_the_tail_of_a_member_left_behind_is_not_read_while_the_others_write_on(rng: random.Random) -> None:
    world = SetWorld(rng, "oo", 1)

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        behind, ahead = world.alone(0), world.alone(1)
        await finalised_segment(behind, 1, 12)
        await finalised_segment(ahead, 1, 10)
        await written(ahead, 11, 20)
        standby = world.set()
        assert await read_all(standby, 1) == span(1, 10)
        (first, second) = await standby.select_input_streams(TxId(1), in_progress_ok=True)
        batches = [await first.next(), await second.next()]
        assert [batch and batch.records[-1].txid for batch in batches] == [10, 20]

    world.run(story())


def random_copies(rng: random.Random) -> tuple[list[tuple[int, int]], list[tuple[Copy, bool]]]:
    """A log's segments; and what members have of it, with whether that is the log's.

    Of each segment one member at least has all. Others miss it, have given up within it, or had another writer, whose
    transactions beyond where the log went on, or all of whose transactions, are not the log's.
    """
    members = [MagicMock(spec=FileJournal) for _ in range(rng.randint(1, 4))]
    firsts = [1, *sorted(rng.sample(range(2, 40), rng.randint(0, 6)))]
    log = list(zip(firsts, [*(first - 1 for first in firsts[1:]), firsts[-1] + rng.randint(0, 5)], strict=True))
    copies: list[tuple[Copy, bool]] = []
    for first, last in log:
        whole = rng.randrange(len(members))
        for index, member in enumerate(members):
            case = "whole" if index == whole else rng.choice(["whole", "none", "short", "long"])
            end = {"whole": last, "short": rng.randint(first, last), "long": last + rng.randint(1, 9)}.get(case)
            if case == "long" and last == log[-1][1]:
                continue  # nobody went on: nothing tells which of them is the log
            if end is not None:
                copies.append((Copy(member, Segment(TxId(first), TxId(end), OPAQUE)), case == "whole" or end == last))
    rng.shuffle(copies)
    return log, copies


def test_of_random_histories_only_what_was_acknowledged_is_read(rng: random.Random) -> None:
    for _ in range(300):
        log, copies = random_copies(rng)
        merged = MergedLog([copy for copy, _ in copies])
        assert [(segment.first_txid, segment.last_txid) for segment in merged.segments()] == log
        ours = {(id(copy.journal), copy.segment.first_txid) for copy, is_ours in copies if is_ours}
        for txid in range(1, log[-1][1] + 1):
            stretch = merged.stretch_at(txid, in_progress_ok=False)
            first, last = next(bounds for bounds in log if bounds[0] <= txid <= bounds[1])
            assert stretch is not None
            assert (stretch.first, stretch.last) == (txid, last)
            assert {(id(copy.journal), copy.segment.first_txid) for copy in stretch.copies} == {
                held for held in ours if held[1] == first
            }
        assert merged.stretch_at(log[-1][1] + 1, in_progress_ok=True) is None


async def contents(journal: JournalManager) -> list[tuple[int, bytes]]:
    """All finalised transactions, as a server reads them."""
    found: list[tuple[int, bytes]] = []
    for reader in await journal.select_input_streams(TxId(1)):
        try:
            while (batch := await reader.next()) is not None:
                found += [(record.txid, record.body) for record in batch.records]
        finally:
            await reader.close()
    return found


class Turns:
    """Servers that take over from one another while operations of their members' disks fail; each says who wrote.

    servers: the members of each.
    """

    def __init__(self, world: SetWorld, rng: random.Random, servers: Sequence[Sequence[int]]) -> None:
        self.world, self.rng, self.servers = world, rng, servers
        self.acknowledged: dict[int, bytes] = {}
        self.served: list[tuple[int, bytes]] = []  # what the last server had read when it began to write
        self.begun = 0

    def trouble(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            index = self.rng.randrange(len(self.world.disks))
            operation = self.rng.choice([Op.OPEN, Op.CREATE, Op.READ, Op.WRITE, Op.SYNC, Op.RENAME, Op.LIST])
            self.world.fail(index, operation, CURRENT, self.rng.randint(1, 12))

    async def turn(self, number: int) -> None:
        journal = self.world.set(seats=self.rng.choice(self.servers))
        self.trouble()
        try:
            writer = await self._take_over(journal)
            while self.rng.random() < 0.85:
                await self._write(writer, number)
                if self.rng.random() < 0.3:
                    last = writer.last_txid
                    await writer.close()
                    await journal.finalize_segment(writer.first_txid, last)
                    writer = await journal.start_segment(TxId(last + 1), OPAQUE)
        except BookKeeperError:
            pass
        finally:
            self.world.crash(journal)

    async def _take_over(self, journal: JournalSet) -> SegmentWriter:
        await journal.recover_unfinalized()
        found = await contents(journal)
        writer = await journal.start_segment(TxId(len(found) + 1), OPAQUE)
        self.check(found)
        self.served = found
        self.begun += 1
        return writer

    def check(self, found: list[tuple[int, bytes]]) -> None:
        """No gap; all that was acknowledged; and what a server once had before it began to write."""
        assert [txid for txid, _ in found] == span(1, len(found))
        assert found[: len(self.served)] == self.served
        assert self.acknowledged.items() <= dict(found).items()

    async def _write(self, writer: SegmentWriter, number: int) -> None:
        first = writer.last_txid + 1
        bodies = {txid: b"%d by %d" % (txid, number) for txid in range(first, first + self.rng.randint(1, 5))}
        writer.write([encode_record(OpCode.OPAQUE, txid, body) for txid, body in bodies.items()])
        writer.set_ready_to_flush()
        await writer.flush()
        self.acknowledged |= bodies


@pytest.mark.parametrize(
    ("kinds", "servers"),
    [
        ("roo", [[0, 1, 2]]),
        ("rroo", [[0, 1, 2, 3]]),
        ("ss", [[0, 1]]),
        ("soo", [[0, 1], [0, 2]]),
        ("srr", [[0, 1], [0, 2]]),
        ("soooo", [[0, 1, 2], [0, 3, 4]]),
        ("sroro", [[0, 1, 2], [0, 3, 4]]),
    ],
)
def test_through_random_failures_nothing_acknowledged_is_lost_or_changed(
    rng: random.Random, kinds: str, servers: list[list[int]]
) -> None:
    """Servers with shared members have the others for themselves."""
    begun = 0
    for _ in range(15):
        world = SetWorld(rng, kinds)
        turns = Turns(world, rng, servers)

        async def story(world: SetWorld = world, turns: Turns = turns) -> None:
            journal = await ready(world)
            world.crash(journal)
            for number in range(12):
                await turns.turn(number)
            for disk in world.disks:
                disk.forget_faults()
            for seats in servers:
                last = world.set(seats=seats)
                await last.recover_unfinalized()
                turns.check(await contents(last))
                world.crash(last)

        world.run(story())
        begun += turns.begun
    assert begun > 15, "hardly any server has begun to write"


def outcome(deferred: Deferred[Any]) -> Any:
    """What it fired with, the error where it failed; that it has fired."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    return found[0].value if isinstance(found[0], Failure) else found[0]


class HeldJournal:
    """One finalised segment of transactions 1..4, two to a batch, whose streams are selected when the test says so."""

    description = "held"
    segment = Segment(TxId(1), TxId(4), OPAQUE, name="held")

    def __init__(self) -> None:
        self.selecting: list[tuple[int, Deferred[list[SegmentReader]]]] = []
        self.streams: list[HeldStream] = []

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        selecting: Deferred[list[SegmentReader]] = Deferred()
        self.selecting.append((from_txid, selecting))
        return selecting

    def answer(self) -> None:
        from_txid, selecting = self.selecting.pop(0)
        self.streams.append(HeldStream(self.segment, from_txid))
        selecting.callback([self.streams[-1]])


class HeldStream:
    """Fails when it is closed, and after its first batch when it is told to."""

    def __init__(self, segment: Segment, next_txid: int) -> None:
        self.segment = segment
        self.next_txid = next_txid
        self.fails = False
        self.closed = 0

    def next(self) -> Deferred[RecordBatch | None]:
        if self.fails:
            return fail(JournalUnavailable("the disk is gone"))
        first, self.next_txid = self.next_txid, self.next_txid + 2
        records = [Record(TxId(txid), 0, b"", 0, 0) for txid in range(first, min(first + 2, 5))]
        return succeed(RecordBatch(self.segment, records))

    def close(self) -> Deferred[None]:
        self.closed += 1
        return fail(JournalUnavailable("the disk is gone, and the file cannot be closed"))


def held_readers(*journals: HeldJournal) -> list[SegmentReader]:
    copies = [Copy(cast("JournalManager", journal), journal.segment) for journal in journals]
    return merged_readers(copies, TxId(1), in_progress_ok=False)


def txids(batch: RecordBatch | None) -> list[int]:
    return [record.txid for record in batch.records] if batch is not None else []


def test_a_stream_that_cannot_be_closed_either_is_left_for_another_copy() -> None:
    failing, good = HeldJournal(), HeldJournal()
    (reader,) = held_readers(failing, good)
    first = reader.next()
    failing.answer()
    assert txids(outcome(first)) == [1, 2]
    failing.streams[0].fails = True
    second = reader.next()
    assert [txid for txid, _ in good.selecting] == [3], "exactly where the other one stopped"
    good.answer()
    assert txids(outcome(second)) == [3, 4]
    assert outcome(reader.next()) is None
    assert outcome(reader.close()) is None
    assert (failing.streams[0].closed, good.streams[0].closed) == (1, 1)


def test_a_reader_that_is_closed_while_its_stream_is_opened_leaves_none_open() -> None:
    journal = HeldJournal()
    (reader,) = held_readers(journal)
    reading = reader.next()
    assert outcome(reader.close()) is None
    journal.answer()
    assert isinstance(outcome(reading), JournalClosed)
    assert [stream.closed for stream in journal.streams] == [1]


def test_of_two_copies_the_longer_one_is_read(rng: random.Random) -> None:
    world = SetWorld(rng, "oo", 1)

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        for index, last in ((0, 7), (1, 10)):
            member = world.alone(index)
            await written(member, 1, last)
            await member.finalize_segment(TxId(1), TxId(last))
        merged = world.set()
        assert await bounds(merged) == [(1, 10)]
        assert await read_all(merged, 1) == span(1, 10)
        assert await read_all(merged, 8) == span(8, 10)

    world.run(story())


def test_a_copy_in_progress_that_goes_further_is_read_to_its_end(rng: random.Random) -> None:
    world = SetWorld(rng, "oo", 1)

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        for index, last in ((0, 7), (1, 10)):
            await written(world.alone(index), 1, last)
        merged = world.set()
        assert await read_all(merged, 1, in_progress_ok=True) == span(1, 10)
        assert await read_all(merged, 1) == []

    world.run(story())


def test_the_tail_goes_over_to_another_member(rng: random.Random) -> None:
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal, reader = await ready(world), world.set()
        writer = await written(journal, 1, 10)
        tail = reader.tail(TxId(1))
        found = await tailed(tail, 10)
        world.fail(0, Op.LIST, CURRENT)
        await flushed(writer, 11, 20)
        found += await tailed(tail, 20)
        assert found == span(1, 20)
        for index in (0, 1):
            world.fail(index, Op.LIST, CURRENT)
        await raises(JournalUnavailable, tail.next())
        await flushed(writer, 21, 22)
        assert await tailed(tail, 22) == [21, 22]
        await tail.stop()

    world.run(story())


def test_the_tail_leaves_an_optional_member_that_has_gone_quiet(rng: random.Random) -> None:
    world = SetWorld(rng, "ooo")

    async def story() -> None:
        journal, reader = await ready(world), world.set()
        writer = await written(journal, 1, 10)
        tail = reader.tail(TxId(1))
        found = await tailed(tail, 10)
        world.fail(0, Op.WRITE, "edits_inprogress")
        await flushed(writer, 11, 20)
        assert len(world.told) == 1
        found += await tailed(tail, 20)
        await flushed(writer, 21, 30)
        found += await tailed(tail, 30)
        assert found == span(1, 30)
        await tail.stop()

    world.run(story())


def test_a_set_on_a_reactor_by_the_wall_clock_waits_by_another_clock(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers of such a reactor stop when its clock is set back, so a silent member would not be given up."""
    world, reactor = SetWorld(rng, "ooo"), MagicMock(seconds=time.time)
    monkeypatch.setattr(journal_set, "clock_of", lambda given: world.clock if given is reactor else given)

    async def story() -> None:
        journal, reader = await ready(world), world.set(reactor=reactor)
        writer = await written(journal, 1, 10)
        tail = reader.tail(TxId(1))
        found = await tailed(tail, 10)
        world.fail(0, Op.WRITE, "edits_inprogress")
        await flushed(writer, 11, 20)
        found += await tailed(tail, 20)
        assert found == span(1, 20)
        await tail.stop()

    world.run(story())
    reactor.callLater.assert_not_called()


def test_the_tail_tells_of_a_gap_though_an_optional_member_is_only_quiet(rng: random.Random) -> None:
    """As a standby's own journal is: nobody writes to it. Whoever follows must load a checkpoint instead."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        await journal.close()
        shared = world.alone(0)
        await finalised_segment(shared, 1, 10)
        await finalised_segment(shared, 11, 20)
        await shared.purge_older_than(TxId(11))
        tail = world.set().tail(TxId(5))
        await raises(GapInTransactions, tail.next())
        await tail.stop()

    world.run(story())


class DeadTail:
    """Fails, and never says that it has stopped."""

    next_txid = TxId(1)

    def next(self) -> Deferred[RecordBatch]:
        return fail(JournalUnavailable("dead"))

    def stop(self) -> Deferred[None]:
        return Deferred()


def test_a_tail_that_does_not_stop_is_left_all_the_same(rng: random.Random) -> None:
    world = SetWorld(rng, "s")

    async def story() -> None:
        journal = await ready(world)
        await written(journal, 1, 10)
        dead = MagicMock(spec=FileJournal, description="dead", tail=lambda txid: DeadTail())
        tail = MergedTail([dead, world.alone(0)], TxId(1), "both", world.clock, leading=0, patience_s=1.0)
        assert await tailed(tail, 10) == span(1, 10)
        await tail.stop()

    world.run(story())


def test_format_destroys_no_member_when_one_holds_data(rng: random.Random) -> None:
    """I-87."""
    world = SetWorld(rng, "so")

    async def story() -> None:
        member = world.alone(1)
        await member.format(NAMESPACE)
        await written(member, 1, 2)
        await member.close()
        journal = world.set()
        await raises(HasData, journal.format(NAMESPACE))
        assert not await world.alone(0).has_data()
        await journal.format(NAMESPACE, force=True)
        assert await bounds(journal) == []

    world.run(story())


def test_purge_of_an_optional_member_may_fail_and_of_a_required_one_not(rng: random.Random) -> None:
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        for first in (1, 11, 21):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 9)
            await journal.finalize_segment(TxId(first), TxId(first + 9))
        world.fail(1, Op.UNLINK, "edits_")
        assert len(await journal.purge_older_than(TxId(11))) == 1
        assert await bounds(world.alone(0)) == [(11, 20), (21, 30)]
        world.fail(0, Op.UNLINK, "edits_")
        await raises(JournalUnavailable, journal.purge_older_than(TxId(21)))
        await journal.purge_older_than(TxId(21))
        assert await bounds(journal) == [(21, 30)]

    world.run(story())


def test_a_gap_in_all_copies_is_a_gap(rng: random.Random) -> None:
    world = SetWorld(rng, "so")

    async def story() -> None:
        journal = await ready(world)
        for first in (1, 11, 21):
            await flushed(await journal.start_segment(TxId(first), OPAQUE), first, first + 9)
            await journal.finalize_segment(TxId(first), TxId(first + 9))
        name = f"{CURRENT}/{(await journal.segments())[1].name}"
        for disk in world.disks:
            disk.unlink(name)
        tail = journal.tail(TxId(5))
        assert await tailed(tail, 10) == span(5, 10)
        await raises(GapInTransactions, tail.next())
        await tail.stop()

    world.run(story())
