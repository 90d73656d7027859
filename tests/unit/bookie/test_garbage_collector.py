"""The collector over a real storage on a faulty disk, and the real metadata store in memory (I-60, I-64, L-5)."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Container, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.bookie.gc import compactor
from bookkeeper.bookie.gc import logs as entry_log_collection
from bookkeeper.bookie.gc.candidates import CompactionKind, CompactionSettings, LedgerBytes, LogUsage
from bookkeeper.bookie.gc.collector import GarbageCollector
from bookkeeper.bookie.gc.compaction import LogCompaction, switch
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.gc.status import GarbageStage, KnownLog
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.gc.view import collection_status
from bookkeeper.bookie.integrity.checksums.entry_log_files import checksums_path
from bookkeeper.bookie.offline.inspection import iter_records
from bookkeeper.bookie.process.status_format import CollectionStatus
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import OpenMode
from bookkeeper.metadata import bad_records
from bookkeeper.metadata.memory.store import INSTANCE_ID, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.model import BookieId, Fragment, LedgerId, LedgerMetadata, Status
from tests.support.logged import logged
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess, SimulatedWorker
from tests.support.stored_ledgers import StoredLedgers

OURS = BookieId("b1:3181")
WAIT_S = 10.0
OFF = CompactionSettings(minor_interval_s=0.0, major_interval_s=0.0)


class Bench:
    """Ledgers 1 to 3 in several closed logs and in the metadata store, and a collector of their bookie."""

    def __init__(self, compaction: CompactionSettings = OFF) -> None:
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.store = MemoryMetadataStore(self.shared, self.clock, random.Random(1), None)
        self.stored = StoredLedgers()
        self.stored.replay()
        for first in range(0, 60, 20):
            for ledger_id in (1, 2, 3):
                self.stored.add(ledger_id, first, 20)
            self.stored.checkpoint()
        self.stored.storage.entry_logs.roll()
        for _ in range(4):  # ledger 0 is on another bookie
            self.store.ledgers.create(_metadata())
        self.disk_full = False
        self.errors: list[BaseException] = []
        self.shown: list[CollectionStatus] = []
        self._compaction = compaction
        self._start()

    def restart(self) -> None:
        """A new process on what the killed one left."""
        self.collector.stop()
        self.stored.fs.end_processes()
        self.stored.start()
        self.stored.replay()
        self._start()

    def _start(self) -> None:
        process = SimulatedProcess("bookie", self.clock)

        def worker(name: str) -> SimulatedWorker:
            return SimulatedWorker(name, process, random.Random(name))

        self.collector = GarbageCollector(
            self.stored.fs,
            self.stored.directories,
            self.stored.storage,
            SimpleNamespace(remove=self._remove),  # type: ignore[arg-type]
            SimpleNamespace(checkpoint_now=self._checkpoint),  # type: ignore[arg-type]
            self.store,
            process.clock,
            worker=worker("garbage"),
            storage_worker=worker("storage"),
            settings=GarbageSettings(wait_s=WAIT_S, overreplicated_wait_s=0.0, compaction=self._compaction),
            instance_id=INSTANCE_ID,
            bookie_id=OURS,
            wall_s=self.clock.seconds,
            on_failure=self.errors.append,
            on_change=lambda: self.shown.append(collection_status(self.collector.status)),
        )
        self.collector.start()

    def _checkpoint(self) -> Deferred[None]:
        if self.disk_full:
            return fail(NoWritableDisk("the disk is full"))
        self.stored.checkpoint()
        return succeed(None)

    def _remove(self, ledger_ids: Sequence[int], *, moved: bool) -> Deferred[list[int]]:
        return succeed(self.stored.delete(*ledger_ids, moved=moved))

    def delete(self, *ledger_ids: int) -> None:
        """In the metadata store."""
        for ledger_id in ledger_ids:
            self.store.ledgers.delete(LedgerId(ledger_id), 0)

    def rounds(self, count: int) -> None:
        status = self.collector.status
        wanted = status.rounds + count
        assert self.clock.run_until(lambda: status.rounds >= wanted, seconds=10 * WAIT_S * count)
        assert not self.errors

    def force(self, kind: CompactionKind | None = None) -> None:
        done: list[object] = []
        self.collector.force(kind).addBoth(done.append)
        assert self.clock.run_until(lambda: bool(done), seconds=10 * WAIT_S)
        assert not self.errors

    def unseal(self, log_id: int) -> None:
        """As a crash leaves a log."""
        path = self.stored.storage.entry_logs.path_of(log_id)
        assert path is not None
        self.stored.fs.poke(path, 0, fmt.encode_header(fmt.LogHeader()))

    @property
    def closed(self) -> list[int]:
        return [log_id for log_id, _ in self.stored.storage.entry_logs.closed()]


def _metadata() -> LedgerMetadata:
    return LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (OURS,)),))


def test_what_was_deleted_goes_and_its_logs_with_it() -> None:
    bench = Bench()
    before = bench.closed
    bench.delete(1, 2, 3)
    bench.force()
    assert before
    assert not bench.closed
    assert list(bench.stored.storage.ledger_ids()) == []


def test_strays_among_the_ledgers_keep_only_the_ledgers_with_ids_in_their_paths() -> None:
    """A ledger that a stray may stand for is kept, others are deleted. Each stray is logged once."""
    bench = Bench()
    strays = ("/x", "/00/00zz", "/00/0000/notaledger", "/00/L0002")
    for stray in strays:
        bench.shared.znodes.create(f"/ledgers{stray}", b"", NodeKind.PERSISTENT, session_id=0)
    bench.delete(1, 2)
    with logged() as lines:
        bench.rounds(4)
        assert list(bench.stored.storage.ledger_ids()) == [2, 3]
        assert all(sum(f"/ledgers{stray}: " in line for line in lines) == 1 for stray in strays)
    shown = collection_status(bench.collector.status)
    assert (shown.bad_records_count, len(shown.bad_records)) == (4, 4)
    assert shown.last_error is None
    for stray in strays:
        bench.shared.znodes.delete(f"/ledgers{stray}", 0)
    bench.rounds(2)
    assert list(bench.stored.storage.ledger_ids()) == [3]
    assert bench.collector.status.bad_records.count == 0


def test_nothing_is_collected_while_strays_name_too_many_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bad_records, "LEDGER_IDS_MAX", 1)
    bench = Bench()
    for stray in ("/00/L0007", "/00/L0008"):
        bench.shared.znodes.create(f"/ledgers{stray}", b"", NodeKind.PERSISTENT, session_id=0)
    bench.delete(1, 2)
    bench.rounds(4)
    assert list(bench.stored.storage.ledger_ids()) == [1, 2, 3]
    assert "znodes have ledger ids in paths where no ledger can be" in bench.collector.status.last_error


def test_a_listing_ends_with_the_connection() -> None:
    """The look after a break waits for it; until then forgotten ids may be given out again."""
    bench = Bench()
    listed: list[int] = []

    async def ids(_: object) -> AsyncIterator[list[LedgerId]]:
        for number in range(1000):
            if number == 3:
                bench.store.cut_connection(1.0)
            listed.append(number)
            await pause(bench.clock, WAIT_S)
            yield [LedgerId(number)]

    with mock.patch.object(bench.store.ledgers, "ids", ids):
        assert bench.clock.run_until(lambda: len(listed) > 3, seconds=20 * WAIT_S)
        assert not bench.collector.history.is_current
        assert bench.clock.run_until(lambda: bench.collector.history.is_current, seconds=2 * WAIT_S)
    assert len(listed) == 4
    assert not bench.errors


def test_a_log_that_needs_a_checkpoint_on_a_full_disk_keeps_no_other_from_being_removed() -> None:
    """L-5: removing logs is what ends a full disk; a log without a seal waits until the index can be asked."""
    bench = Bench()
    first, *others = bench.closed
    bench.unseal(first)
    bench.delete(1, 2, 3)
    bench.rounds(1)
    bench.disk_full = True
    bench.rounds(1)
    assert others
    assert bench.closed == [first]
    assert "full" in bench.collector.status.last_error
    bench.disk_full = False
    bench.rounds(1)
    assert bench.closed == []


def test_a_compaction_that_is_ordered_during_a_round_is_made_by_the_round_after_it() -> None:
    """What the ordered round deletes is what the operator wants the space of."""
    bench = Bench(CompactionSettings(minor_interval_s=1e9, major_interval_s=1e9))
    status = bench.collector.status
    assert bench.clock.run_until(lambda: status.stage is GarbageStage.CHECKING, seconds=2 * WAIT_S)
    bench.delete(2)
    bench.force(CompactionKind.MAJOR)
    assert status.rounds == 2
    assert status.major_compactions == 1
    assert status.logs_compacted > 0
    bench.stored.check()


def test_a_log_that_is_left_alone_is_read_again_once_a_day_or_when_forced() -> None:
    """L-9: a damaged log of 1 GB is not read in every round; mended, it is compacted without a restart (L-5)."""
    bench = Bench()
    log_id = bench.closed[0]
    bench.unseal(log_id)
    path = bench.stored.storage.entry_logs.path_of(log_id)
    assert path is not None
    intact = bench.stored.fs.contents(path)[1024:1028]
    bench.stored.fs.poke(path, 1024, b"\0\0\0\1")
    scans: list[float] = []
    scan = LogLedgers.scan

    def counted(self: LogLedgers, log_id: int, path: str) -> Any:
        scans.append(bench.clock.seconds())
        return scan(self, log_id, path)

    quarantine_s = 30 * WAIT_S
    with (
        mock.patch.object(LogLedgers, "scan", counted),
        mock.patch.object(entry_log_collection, "QUARANTINE_S", quarantine_s),
    ):
        bench.rounds(5)
        assert len(scans) == 1
        assert path in bench.collector.status.quarantined
        bench.force()
        assert len(scans) == 2
        since = bench.clock.seconds()
        assert bench.clock.run_until(lambda: len(scans) == 3, seconds=2 * quarantine_s)
        assert scans[2] - since >= quarantine_s - 2 * WAIT_S
        bench.stored.fs.poke(path, 1024, intact)
        bench.force()
    assert path not in bench.collector.status.quarantined
    assert not bench.errors


def test_what_logs_hold_is_counted_off_the_reactor() -> None:
    """A sweep over millions of ledgers in thousands of logs is one turn of nobody's reactor."""
    bench = Bench()
    at_work: list[bool] = []
    usage = LedgerBytes.usage
    submit = SimulatedWorker.submit
    inside = threading.local()

    def on_worker(self: SimulatedWorker, work: Any, *callbacks: Any) -> None:
        def noted() -> Any:
            inside.here = True
            try:
                return work()
            finally:
                inside.here = False

        submit(self, noted, *callbacks)

    def counted(self: LedgerBytes, log_id: int, ledgers: Container[int]) -> LogUsage:
        at_work.append(getattr(inside, "here", False))
        return usage(self, log_id, ledgers)

    with mock.patch.object(SimulatedWorker, "submit", on_worker), mock.patch.object(LedgerBytes, "usage", counted):
        bench.rounds(2)
    assert len(at_work) > 2
    assert all(at_work)


def test_a_ledger_that_lost_its_index_file_keeps_its_entries_in_the_logs_until_it_is_deleted() -> None:
    """I-59, I-60: without an index the logs are all that is left of it, and a rebuild reads them."""
    bench = Bench(CompactionSettings(minor_interval_s=1.0, major_interval_s=1.0, major_threshold=0.99))
    before = bench.closed
    bench.delete(1, 3)
    bench.stored.fs.unlink(index_path("/a", 2))
    bench.restart()
    assert bench.stored.read(2, [0]) == [Status.IO_ERROR]
    for _ in range(3):
        bench.force(CompactionKind.MAJOR)
    assert before
    assert bench.collector.status.ledgers_deleted == 2
    assert _entries_in_logs(bench, 2) == set(range(60))
    bench.delete(2)
    bench.force()
    assert not bench.closed
    assert bench.stored.read(2, [0]) == [Status.NO_LEDGER]
    assert bench.stored.storage.tombstone(2) is TombstoneKind.DELETED, "it may have been fenced"


def _entries_in_logs(bench: Bench, ledger_id: int) -> set[int]:
    fs = bench.stored.fs
    return {
        record.entry_id
        for log_id, path in bench.stored.storage.entry_logs.closed()
        for record in iter_records(fs, path, log_id=log_id, bodies=False)
        if record.ledger_id == ledger_id
    }


@pytest.mark.parametrize("content", [b"", fmt.encode_header(fmt.LogHeader())])
def test_a_log_that_a_genuine_bookie_made_ahead_is_removed_and_nothing_else(content: bytes) -> None:
    """It leaves the next log without a byte: that is no damage, and no index points into it (I-60)."""
    bench = Bench()
    before = bench.closed
    file = bench.stored.fs.open("/a/current/77.log", OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(content, 0)
    file.sync()
    bench.restart()
    assert 0x77 in bench.closed
    bench.rounds(1)
    assert set(before) <= set(bench.closed)
    assert 0x77 not in bench.closed
    assert not bench.collector.status.quarantined
    bench.stored.check()


def test_a_log_that_was_cut_to_nothing_stays_while_the_index_points_into_it() -> None:
    """I-60: an empty file is no proof that it was empty."""
    bench = Bench()
    log_id = bench.closed[0]
    path = bench.stored.storage.entry_logs.path_of(log_id)
    assert path is not None
    file = bench.stored.fs.open(path, OpenMode.UPDATE)
    file.truncate(0)
    file.sync()
    bench.rounds(2)
    assert log_id in bench.closed
    assert path in bench.collector.status.quarantined


def _damaged_bench(*, sealed: bool) -> tuple[Bench, int, str]:
    """And the first log, which has a page that fails its checksum, and three records that cannot be told."""
    bench = Bench(CompactionSettings(minor_interval_s=1e9, major_interval_s=1e9, major_threshold=0.99))
    stored = bench.stored
    for _ in stored.storage.scrub().steps(everything=True):  # it makes index pages certain
        pass
    log_id = bench.closed[0]
    path = stored.storage.entry_logs.path_of(log_id)
    assert path is not None
    records = list(iter_records(stored.fs, path, log_id=log_id))
    if not sealed:
        bench.unseal(log_id)
    stored.fs.poke(path, records[0].offset - 4, b"\xff" * (records[2].offset - records[0].offset + 20))
    return bench, log_id, path


@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_log_is_rewritten_once_what_the_index_needs_of_the_damage_was_stored_elsewhere(sealed: bool) -> None:
    """I-67, L-5: recovery adds replace what is damaged; then the damaged bytes are nobody's, and no reason to keep the
    log for ever. Until then it stays, whole.
    """
    bench, log_id, path = _damaged_bench(sealed=sealed)
    stored = bench.stored
    bench.delete(2)
    bench.force(CompactionKind.MAJOR)
    assert log_id in bench.closed
    assert path in bench.collector.status.quarantined
    assert not [name for name in stored.fs.listdir("/a/current") if name.endswith(".compacting")]
    assert _repair(stored)
    bench.force(CompactionKind.MAJOR)
    assert log_id not in bench.closed
    assert not stored.fs.exists(path)
    assert not bench.collector.status.quarantined
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_log_without_a_live_entry_is_removed(sealed: bool) -> None:
    bench, log_id, path = _damaged_bench(sealed=sealed)
    bench.delete(1, 2, 3)
    bench.force()
    assert log_id not in bench.closed
    assert not bench.stored.fs.exists(path)


@pytest.mark.parametrize("scan", ["ends early", "fails", "finds its way"])
def test_a_map_that_a_genuine_bookie_wrote_between_the_size_of_an_entry_and_its_body_costs_that_entry_alone(
    scan: str,
) -> None:
    """I-60: its log was rolled by one thread while another one added to it (apache/bookkeeper #3604), so the header
    points at a map in the middle, and whoever reads the log through is led astray by the size before the map.
    """
    bench = Bench(CompactionSettings(minor_interval_s=1e9, major_interval_s=1e9, major_threshold=0.99))
    stored = bench.stored
    log_id, path = stored.storage.entry_logs.closed()[0]
    records = list(iter_records(stored.fs, path, log_id=log_id))
    first = next(place for place, record in enumerate(records) if record.ledger_id == 2)
    before, torn, after = records[first - 2], records[first], records[first + 1]
    # Its last four bytes are the size of the body after it. Were it one that fits, the client's digest would tell.
    ledgers_map = fmt.encode_ledgers_map({1: 1000, 7: 900_000_000})
    # The map takes the place of records of ledger 1, which nobody needs: the bodies after it are where they were.
    map_offset = torn.offset - len(ledgers_map)
    astray = map_offset + torn.size
    next_size = {"ends early": 0x7FFF_FFFF, "fails": 9, "finds its way": after.offset - 4 - (astray + 4)}[scan]
    size = stored.fs.contents(path)[torn.offset - 4 : torn.offset]
    for offset, data in (
        (before.offset - 4, (map_offset - 4 - before.offset).to_bytes(4, "big")),
        (map_offset - 4, size),
        (map_offset, ledgers_map),
        (astray, next_size.to_bytes(4, "big")),
        (0, fmt.encode_header(fmt.LogHeader(map_offset=map_offset, ledger_count=2))),
    ):
        stored.fs.poke(path, offset, data)
    stored.fs.unlink(checksums_path(path, log_id))
    bench.delete(1)
    bench.restart()

    for _ in range(2):
        bench.force(CompactionKind.MAJOR)
        assert log_id in bench.closed
        assert stored.fs.exists(path)
        for ledger_id in (2, 3):
            found = stored.read(ledger_id, range(60))
            lost = [entry_id for entry_id in range(60) if found[entry_id] != stored.entries[ledger_id, entry_id]]
            assert lost == ([torn.entry_id] if ledger_id == 2 else [])
    assert stored.read(2, [torn.entry_id]) == [Status.IO_ERROR], "unknown, not never held"
    assert _repair(stored) == [(2, torn.entry_id)]
    bench.force(CompactionKind.MAJOR)
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


def test_a_damaged_log_stays_while_a_damaged_index_page_may_need_it() -> None:
    """I-60: what the index needs is told by the index; one that has a damaged page tells nothing."""
    bench, log_id, path = _damaged_bench(sealed=False)
    stored = bench.stored
    bench.delete(2)
    _repair(stored)
    stored.fs.poke(index_path("/a", 3), 1024 + 8 * 30, bytes(8))
    bench.restart()
    for _ in range(2):
        bench.force(CompactionKind.MAJOR)
        assert log_id in bench.closed
        assert stored.fs.exists(path)


def _repair(stored: StoredLedgers) -> list[tuple[int, int]]:
    """As replication does: every entry that cannot be read is added again."""
    damaged: list[tuple[int, int]] = []
    for ledger_id, entry_id in stored.entries:
        if stored.storage.read_cold(ledger_id, [entry_id]) == [Status.IO_ERROR]:
            assert stored.storage.damaged(ledger_id, [entry_id])
            damaged.append((ledger_id, entry_id))
    for ledger_id, entry_id in damaged:
        stored.add(ledger_id, entry_id, 1)
    stored.checkpoint()
    return damaged


def test_a_compaction_that_stays_doubtful_costs_nothing_until_what_it_depends_on_changes() -> None:
    """Else every round reads the new log, makes a checkpoint, and reads all index files."""
    bench = Bench()
    stored = bench.stored
    logs = stored.storage.entry_logs
    old_id, old_path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=old_path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    compaction.settle()
    new_path = logs.path_of(compaction.new_id)
    assert new_path is not None
    record = next(iter_records(stored.fs, new_path, log_id=compaction.new_id))
    # The new log does not have an entry that the index has in the old one.
    stored.fs.poke(new_path, record.offset, (99).to_bytes(8, "big"))
    stored.fs.unlink(checksums_path(new_path, compaction.new_id))
    bench.restart()
    switched: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        switched.append(1)
        return switch(*args, **kwargs)

    with mock.patch.object(compactor, "switch", counted):
        bench.rounds(4)
        assert len(switched) == 1
        assert old_id in bench.closed
        bench.force()
        assert len(switched) == 2
        bench.rounds(2)
        assert len(switched) == 2
        stored.add(record.ledger_id, record.entry_id, 1)  # as a repair does
        bench.stored.checkpoint()
        bench.rounds(1)
        assert len(switched) == 3
    assert stored.storage.entry_logs.unfinished == []
    assert old_id not in bench.closed
    bench.stored.check()


def test_what_was_damaged_in_a_new_log_before_the_index_was_switched_is_kept_in_the_old_one() -> None:
    """I-62, I-67: of a compaction that a crash cut short; the old copy is the good one."""
    bench = Bench()
    stored = bench.stored
    logs = stored.storage.entry_logs
    old_id, old_path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=old_path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    compaction.settle()
    new_path = logs.path_of(compaction.new_id)
    assert new_path is not None
    record = next(iter_records(stored.fs, new_path, log_id=compaction.new_id))
    stored.fs.poke(new_path, record.offset + 40, b"?")
    bench.restart()
    bench.rounds(2)
    assert old_id in bench.closed
    assert old_path in bench.collector.status.quarantined
    stored.check()


NEVER_DUE = CompactionSettings(minor_interval_s=1e9, major_interval_s=1e9)


def test_what_is_shown_of_a_round_is_how_it_left_things() -> None:
    """Neither its last step as if it were under way, nor what it has given back as if it were still dead."""
    bench = Bench(NEVER_DUE)
    bench.rounds(1)
    before = bench.shown[-1]
    assert before.live_bytes == before.total_bytes > 0
    bench.delete(2)
    bench.force(CompactionKind.MAJOR)
    after = bench.shown[-1]
    assert bench.collector.status.logs_compacted > 0
    assert (after.doing, after.compacting) == (GarbageStage.IDLE.value, "")
    assert after.next_round_ms is not None
    assert after.live_bytes == after.total_bytes == before.total_bytes * 2 // 3
    assert after.worth_bytes == 0
    sizes = after.live_bytes, after.total_bytes
    bench.rounds(1)
    assert (bench.shown[-1].live_bytes, bench.shown[-1].total_bytes) == sizes  # as a fresh look finds them


def test_an_ordered_round_gives_back_what_the_log_being_written_holds_of_deleted_ledgers() -> None:
    bench = Bench(NEVER_DUE)
    logs = bench.stored.storage.entry_logs
    bench.stored.add(1, 60, 20)
    bench.stored.add(2, 60, 40)
    bench.stored.checkpoint()
    written = logs.active_log_id
    assert written is not None
    bench.delete(2)
    bench.rounds(3)
    left = bench.shown[-1]
    assert logs.active_log_id == written
    assert left.active_total_bytes is not None
    assert left.active_live_bytes == left.active_total_bytes // 3
    assert left.worth_bytes is not None
    assert left.worth_bytes > left.active_total_bytes - left.active_live_bytes  # and what is dead in closed logs
    bench.force(CompactionKind.MAJOR)
    assert logs.path_of(written) is None
    after = bench.shown[-1]
    assert after.active_total_bytes == after.worth_bytes == 0
    bench.stored.check()


def test_the_ledgers_that_are_told_are_those_that_the_next_round_compares_with_the_store() -> None:
    """Deleted ones that wait for it are among them, until it was there."""
    bench = Bench()
    bench.delete(2)
    assert _known_ledgers(bench) == [(1, 3)]
    assert _known_ledgers(bench, after=1) == [(2, 3)]
    bench.force()
    assert _known_ledgers(bench) == [(1, 1), (3, 3)]
    assert _known_ledgers(bench, ranges_max=1) == [(1, 1)]


def _known_ledgers(bench: Bench, after: int = -1, ranges_max: int = 10) -> list[tuple[int, int]]:
    found: list[list[tuple[int, int]]] = []
    Deferred.fromCoroutine(bench.collector.known_ledgers(after, ranges_max)).addCallback(found.append)
    assert bench.clock.run_until(lambda: bool(found), seconds=WAIT_S)
    return found[0]


def _known_logs(bench: Bench) -> dict[int, KnownLog]:
    found: list[list[KnownLog]] = []
    Deferred.fromCoroutine(bench.collector.known_logs()).addCallback(found.append)
    assert bench.clock.run_until(lambda: bool(found), seconds=10)
    return {each.log_id: each for each in found[0]}


def test_each_log_is_told_with_what_the_last_sweep_found_and_nothing_is_made_up_before() -> None:
    bench = Bench(NEVER_DUE)
    logs = bench.stored.storage.entry_logs
    bench.stored.add(1, 60, 20)
    bench.stored.add(2, 60, 40)
    bench.stored.checkpoint()
    before = _known_logs(bench)
    assert sorted(before) == logs.log_ids
    assert {each.usage for each in before.values()} == {None}
    assert [log_id for log_id, each in before.items() if each.is_written] == [logs.active_log_id]
    bench.delete(2)
    bench.rounds(3)
    after = _known_logs(bench)
    for log_id, each in after.items():
        assert each.size == logs.size_of(log_id)
        assert each.usage is not None
        assert each.usage.live_bytes < each.usage.total_bytes < each.size  # ledger 2 is in every log
    assert sum(each.usage.live_bytes for each in after.values() if each.usage is not None) == (
        bench.collector.status.live_bytes + bench.collector.status.active_live_bytes
    )
    assert bench.collector.status.swept_s > 0
    written = logs.active_log_id
    bench.stored.storage.entry_logs.roll()
    assert written is not None
    assert _known_logs(bench)[written].usage is None  # it may have grown since the sweep


def test_an_ordered_round_leaves_the_log_being_written_alone_where_nothing_comes_back_by_closing_it() -> None:
    bench = Bench(NEVER_DUE)
    logs = bench.stored.storage.entry_logs
    bench.stored.add(1, 60, 27)
    bench.stored.add(2, 60, 3)
    bench.stored.checkpoint()
    written = logs.active_log_id
    bench.delete(2)
    bench.force(CompactionKind.MAJOR)
    assert logs.active_log_id == written is not None
    after = bench.shown[-1]
    assert after.active_total_bytes is not None
    assert after.active_live_bytes == after.active_total_bytes * 9 // 10
    assert after.worth_bytes == 0


def test_a_log_being_written_without_a_ledger_left_is_removed_though_compaction_is_suspended() -> None:
    bench = Bench(OFF)
    logs = bench.stored.storage.entry_logs
    bench.stored.add(3, 60, 20)
    bench.stored.checkpoint()
    written = logs.active_log_id
    assert written is not None
    bench.delete(3)
    bench.force()
    assert logs.path_of(written) is None
    bench.stored.check()


def test_a_suspended_compaction_is_not_done_and_begins_anew_when_it_is_resumed() -> None:
    bench = Bench(NEVER_DUE)
    status = bench.collector.status
    bench.delete(2)
    done: list[object] = []
    bench.collector.force(CompactionKind.MAJOR).addBoth(done.append)
    assert bench.clock.run_until(lambda: bool(status.compacting), seconds=2 * WAIT_S)
    assert (bench.shown[-1].doing, bench.shown[-1].forced) == (GarbageStage.COMPACTING.value, True)
    bench.collector.suspend(major=True)
    assert bench.clock.run_until(lambda: bool(done), seconds=2 * WAIT_S)
    assert (status.major_compactions, status.last_major_s, status.logs_compacted) == (0, 0.0, 0)
    assert (bench.shown[-1].interrupted, bench.shown[-1].doing) == ("major", GarbageStage.IDLE.value)
    bench.rounds(2)
    bench.collector.resume(minor=True)
    assert status.stage is GarbageStage.IDLE
    bench.collector.resume(major=True)
    assert status.stage is not GarbageStage.IDLE
    bench.rounds(1)
    assert (status.major_compactions, status.interrupted) == (1, "")
    assert status.logs_compacted > 0
    bench.stored.check()


def test_a_compaction_that_was_suspended_and_resumed_while_it_gave_up_its_log_begins_anew() -> None:
    bench = Bench(NEVER_DUE)
    status = bench.collector.status
    bench.delete(2)
    bench.collector.force(CompactionKind.MAJOR)
    assert bench.clock.run_until(lambda: bool(status.compacting), seconds=2 * WAIT_S)
    give_up = LogCompaction.give_up

    def given_up(self: LogCompaction) -> None:
        give_up(self)
        bench.collector.resume(major=True)

    with mock.patch.object(LogCompaction, "give_up", given_up):
        bench.collector.suspend(major=True)
        bench.rounds(1)
    assert status.major_compactions == 0
    bench.rounds(1)
    assert status.major_compactions == 1
    assert status.logs_compacted > 0


def test_an_ordered_compaction_that_was_suspended_before_its_turn_waits_for_that() -> None:
    bench = Bench(NEVER_DUE)
    status = bench.collector.status
    bench.delete(2)
    bench.collector.suspend(minor=True, major=True)
    bench.force(CompactionKind.MAJOR)
    assert status.interrupted == "major"
    assert bench.shown[-1].worth_bytes == 0
    bench.collector.resume(minor=True, major=True)
    bench.rounds(1)
    assert (status.interrupted, status.major_compactions) == ("", 1)


def test_each_step_of_a_round_is_shown() -> None:
    bench = Bench(NEVER_DUE)
    bench.delete(2)
    bench.force(CompactionKind.MAJOR)
    stages = list(dict.fromkeys(each.doing for each in bench.shown))
    wanted = [GarbageStage.CHECKING, GarbageStage.DELETING, GarbageStage.SWEEPING, GarbageStage.COMPACTING]
    assert [stage for stage in stages if stage != GarbageStage.IDLE.value] == [stage.value for stage in wanted]
