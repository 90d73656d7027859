"""The status file: what a bookie last said of itself, for people, while it runs and after it died."""

from __future__ import annotations

import dataclasses
import json

import pytest
from twisted.internet.task import Clock

from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.process.status import RETRY_INTERVAL_S, BookieChronicle, read_status
from bookkeeper.bookie.process.status_format import (
    STATUS_SIZE_MAX,
    TEXT_MAX,
    BadLog,
    BookieStatus,
    CheckpointStatus,
    CollectionStatus,
    DirectoryStatus,
    DiskStatus,
    ErrorStatus,
    JournalStatus,
    ModeStatus,
    PreviousRun,
    Reason,
    RegistrationStatus,
    ScrubStatus,
    format_status,
    parse_status,
)
from bookkeeper.bookie.storage.disks import DiskSettings, DiskVerdict
from bookkeeper.errors import CorruptRecord, UnknownFormatVersion
from bookkeeper.filesystem import DiskUsage
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.manual_worker import ManualWorker

PATH = "/journal/current/bookie.status"

ERROR = ErrorStatus(5, "flush", "no space", fatal=True)
WHOLE = BookieStatus(
    written_ms=10,
    bookie_id="b:1",
    process="7:99",
    started_ms=1,
    phase="serving",
    phase_since_ms=2,
    metadata_service_uri="zk://a/ledgers",
    instance_id="i",
    mode=ModeStatus(True, False, (Reason("DISK_FULL", "full", 4),)),
    registration=RegistrationStatus("registered", "read-only", 3, "é"),
    disks=DiskStatus(9, 0.95, 0.9, 0.95, True, 1, (DirectoryStatus("/l", ("x",), 100, 3, True, True, 4),)),
    checkpoint=CheckpointStatus(8, 0.25, False),
    journals=(JournalStatus("/j", 0),),
    collection=CollectionStatus(
        *("", 1, 2, 0.5, None, 3, 4, 5, 6, 7, 8, 9, 10, "", None, 11, False, True, 0, 1),
        (BadLog("a.log", "cut"),),
        ERROR,
    ),
    scrub=ScrubStatus("", None, 5, 6, 0),
    last_error=ERROR,
    errors_count=2,
    previous=PreviousRun(0, "failed", ERROR),
)


# --- the format


def test_every_field_comes_back() -> None:
    assert parse_status(format_status(WHOLE), PATH) == WHOLE
    least = dataclasses.replace(
        WHOLE, disks=None, checkpoint=None, journals=(), collection=None, scrub=None, last_error=None, previous=None
    )
    assert parse_status(format_status(least), PATH) == least


def test_a_newer_writers_fields_are_passed_over_and_another_version_is_refused() -> None:
    value = json.loads(format_status(WHOLE))
    assert parse_status(json.dumps({**value, "weather": "fine"}).encode(), PATH) == WHOLE
    with pytest.raises(UnknownFormatVersion, match="version 2; this release reads 1"):
        parse_status(json.dumps({**value, "version": 2}).encode(), PATH)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"{}", b"\xff", format_status(WHOLE)[:-20]),
        json.dumps({**json.loads(format_status(WHOLE)), "mode": 1}).encode(),
        json.dumps({**json.loads(format_status(WHOLE)), "written_ms": "1"}).encode(),
        json.dumps({**json.loads(format_status(WHOLE)), "journals": {}}).encode(),
        json.dumps({name: each for name, each in json.loads(format_status(WHOLE)).items() if name != "mode"}).encode(),
    ],
)
def test_what_is_no_status_is_said_to_be_damaged(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match=PATH):
        parse_status(data, PATH)


# --- keeping it


class Disks:
    """Stands for a DiskMonitor."""

    def __init__(self) -> None:
        self.verdict = DiskVerdict()
        self.usages = {"/l": DiskUsage(total=100, free=50)}
        self.checked_s: float | None = None


class Kept:
    """A chronicle on a disk in memory; its wall clock is 1 000 s ahead of the reactor's."""

    def __init__(self, fs: FaultyFileSystem | None = None) -> None:
        self.clock, self.worker, self.mode = Clock(), ManualWorker(), ModeSwitch()
        self.fs = fs or FaultyFileSystem()
        self.fs.make_dirs("/journal/current")
        self.chronicle = self.started()

    def started(self) -> BookieChronicle:
        chronicle = BookieChronicle(
            self.fs,
            "/journal",
            self.worker,
            self.clock,
            self.now_ms,
            bookie_id="b:1",
            metadata_service_uri="zk://a/ledgers",
            instance_id="i",
            mode=self.mode,
        )
        self.mode.on_reasons = chronicle.on_reasons
        return chronicle

    def now_ms(self) -> int:
        return round((1000 + self.clock.seconds()) * 1000)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.worker.run_all()

    def read(self) -> BookieStatus:
        self.worker.run_all()
        return read_status(self.fs, PATH)


def test_a_change_is_written_at_once_and_the_next_ones_at_most_once_a_second() -> None:
    kept = Kept()
    kept.chronicle.on_phase("serving")
    assert kept.read().phase == "serving"
    for number in range(100):
        kept.chronicle.on_error("test", number)
        kept.advance(0.005)
    assert kept.read().errors_count == 0
    kept.advance(0.5)
    assert kept.read().errors_count == 100
    last_error = kept.read().last_error
    assert last_error is not None
    assert (last_error.text, last_error.subject) == ("99", "test")


def test_a_reason_keeps_the_time_when_it_came_whatever_else_changes() -> None:
    kept = Kept()
    kept.mode.forbid(ReadOnlyReason.DISK_FULL)
    kept.advance(5)
    kept.mode.forbid(ReadOnlyReason.OPERATOR)
    kept.mode.forbid(ReadOnlyReason.DISK_FULL)
    kept.advance(5)
    since = {reason.name: reason.since_ms for reason in kept.read().mode.reasons}
    assert since == {"DISK_FULL": 1_000_000, "OPERATOR": 1_005_000}
    kept.mode.allow(ReadOnlyReason.DISK_FULL)
    kept.advance(5)
    assert [reason.name for reason in kept.read().mode.reasons] == ["OPERATOR"]
    kept.mode.forbid(ReadOnlyReason.DISK_FULL)
    kept.advance(5)
    assert kept.read().mode.reasons[0].since_ms == 1_015_000


def test_a_directory_keeps_the_time_of_its_verdict_and_the_full_ones_are_listed_first() -> None:
    kept, disks = Kept(), Disks()
    disks.usages = {f"/l{number:02}": DiskUsage(total=100, free=50) for number in range(40)}
    kept.chronicle.watch_disks(disks, DiskSettings(), {"/l39": ("ledgerDirectories",)})
    kept.chronicle.changed()
    assert kept.read().disks is None  # nobody looked yet
    disks.checked_s = 0.0
    kept.advance(2)
    kept.chronicle.changed()
    kept.advance(8)
    disks.verdict = DiskVerdict(full=frozenset({"/l39"}))
    kept.chronicle.changed()
    kept.advance(2)
    disks.usages["/l39"] = DiskUsage(total=100, free=1)
    kept.chronicle.changed()
    found = kept.read().disks
    assert found is not None
    assert (found.checked_ms, found.directory_count, len(found.directories)) == (1_000_000, 40, 16)
    first, second = found.directories[:2]
    assert first == DirectoryStatus("/l39", ("ledgerDirectories",), 100, 1, True, False, 1_010_000)
    assert (second.path, second.since_ms) == ("/l00", 1_002_000)


def test_the_last_words_are_written_whenever_the_last_write_was_and_waited_for() -> None:
    kept = Kept()
    kept.chronicle.changed()
    kept.chronicle.on_phase("stopped")  # the first write is still under way
    done: list[object] = []
    kept.chronicle.write_last().addCallback(done.append)
    kept.worker.run_one()
    assert done == []
    kept.worker.run_all()
    assert done == [None]
    assert kept.read().phase == "stopped"


def test_a_write_that_fails_leaves_the_last_status_and_the_next_change_tries_again() -> None:
    kept = Kept()
    kept.chronicle.on_phase("serving")
    kept.advance(2)
    kept.chronicle.collection = lambda: dataclasses.replace(
        WHOLE.collection,  # type: ignore[type-var] # it has one
        quarantined=tuple(BadLog("x" * 1000, "y" * 1000) for _ in range(STATUS_SIZE_MAX // 2000 + 1)),
    )
    kept.chronicle.on_phase("stopping")
    assert kept.read().phase == "serving"  # what is too large is not written
    done: list[object] = []
    kept.chronicle.write_last().addCallback(done.append)
    kept.worker.run_all()
    assert done == [None]
    kept.chronicle.collection = None
    kept.advance(2)
    kept.chronicle.changed()
    assert kept.read().phase == "stopping"


def test_a_failed_write_of_the_status_is_repeated_by_a_timer() -> None:
    """No further change need come, and the file is outdated: it may lack the reason for read-only."""
    kept = Kept()
    kept.chronicle.on_phase("serving")
    kept.advance(2)
    kept.fs.quota_bytes = 0
    kept.chronicle.on_phase("read-only")
    kept.advance(30)
    assert kept.read().phase == "serving"
    kept.fs.quota_bytes = None
    kept.advance(RETRY_INTERVAL_S)
    assert kept.read().phase == "read-only"
    kept.advance(100)
    assert not kept.clock.getDelayedCalls()


def test_the_next_process_remembers_how_the_last_one_ended() -> None:
    kept = Kept()
    kept.chronicle.on_error("storage", "disk\n" * 1000, fatal=True)
    kept.chronicle.on_phase("failed")
    kept.chronicle.write_last()
    ended = kept.read()
    assert ended.last_error is not None
    assert len(ended.last_error.text) == TEXT_MAX
    kept.started().changed()
    assert kept.read().previous == PreviousRun(1_000_000, "failed", ended.last_error)


def test_a_damaged_file_of_the_last_process_is_passed_over() -> None:
    kept = Kept()
    kept.chronicle.changed()
    kept.worker.run_all()
    kept.fs.poke(PATH, 0, b"?")
    chronicle = kept.started()
    chronicle.changed()
    assert kept.read().previous is None


def test_nothing_is_synced_for_it() -> None:
    kept = Kept()
    before = kept.fs.counts[Op.SYNC], kept.fs.counts[Op.SYNC_DIR]
    kept.chronicle.on_phase("serving")
    kept.read()
    assert (kept.fs.counts[Op.SYNC], kept.fs.counts[Op.SYNC_DIR]) == before
