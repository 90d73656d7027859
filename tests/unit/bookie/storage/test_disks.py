"""When directories are full and the bookie read-only (I-68)."""

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.storage.disks import (
    DiskMonitor,
    DiskSettings,
    DiskVerdict,
    LedgerDirectories,
    decide,
    free_to_release,
    refuse_rocksdb,
    why_full,
)
from bookkeeper.errors import UnknownFormatVersion
from bookkeeper.filesystem import DiskUsage
from tests.support.bookie_fakes import ManualWorker
from tests.support.faulty_filesystem import FaultyFileSystem

DISKS = ("/a", "/b")
ALL_FULL_ONLY = DiskSettings(read_only_on_any_full=False, low_water_mark=0.9, reserve_bytes=0)


def used(**parts: float) -> dict[str, DiskUsage]:
    return {
        "/" + name: DiskUsage(total=1_000_000_000_000, free=round((1 - part) * 1e12)) for name, part in parts.items()
    }


def test_above_the_threshold_a_directory_is_full_and_near_it_a_warning() -> None:
    verdict = decide(DiskVerdict(), used(a=0.96, b=0.92), DISKS, ALL_FULL_ONLY)
    assert (verdict.full, verdict.warn, verdict.read_only) == ({"/a"}, {"/a", "/b"}, False)


def test_any_full_disk_makes_read_only_where_so_configured() -> None:
    assert decide(DiskVerdict(), used(a=0.96, b=0.1), DISKS, DiskSettings()).read_only


def test_less_than_the_reserve_is_full_whatever_the_percentage() -> None:
    usage = {"/a": DiskUsage(total=10**13, free=10**12), "/b": DiskUsage(total=10**13, free=10**12)}
    assert decide(DiskVerdict(), usage, DISKS, DiskSettings(reserve_bytes=2 * 10**12)).read_only


def test_after_all_were_full_the_low_water_mark_must_be_reached() -> None:
    full = decide(DiskVerdict(), used(a=0.96, b=0.97), DISKS, ALL_FULL_ONLY)
    assert full.read_only
    still = decide(full, used(a=0.92, b=0.93), DISKS, ALL_FULL_ONLY)
    assert still.read_only
    assert not still.full
    assert not decide(still, used(a=0.80, b=0.90), DISKS, ALL_FULL_ONLY).read_only


def test_around_a_threshold_the_bookie_does_not_flap() -> None:
    """Each turn to read-only makes every writer change its ensembles."""
    verdict, changes = DiskVerdict(), 0
    for part in [0.949, 0.951] * 50 + [0.941, 0.951] * 50:
        decided = decide(verdict, used(a=part, b=0.5), DISKS, DiskSettings())
        changes += decided != verdict
        verdict = decided
    assert verdict.read_only
    assert changes == 2  # the warning, then full, and that is all
    assert not decide(verdict, used(a=0.939, b=0.5), DISKS, DiskSettings()).read_only


def test_around_the_warning_mark_nothing_is_told_twice() -> None:
    verdict = decide(DiskVerdict(), used(a=0.91, b=0.5), DISKS, DiskSettings())
    assert decide(verdict, used(a=0.895, b=0.5), DISKS, DiskSettings()) == verdict
    assert decide(verdict, used(a=0.885, b=0.5), DISKS, DiskSettings()).warn == frozenset()


def test_a_reserve_that_was_touched_must_be_restored_with_a_quarter_more() -> None:
    def free(number: int) -> dict[str, DiskUsage]:
        return {path: DiskUsage(total=10**13, free=number) for path in DISKS}

    settings = DiskSettings(reserve_bytes=8 * 10**11)
    verdict = decide(DiskVerdict(), free(7 * 10**11), DISKS, settings)
    assert verdict.read_only
    assert decide(verdict, free(9 * 10**11), DISKS, settings).read_only
    assert not decide(verdict, free(10 * 10**11), DISKS, settings).read_only


def test_a_lower_low_water_mark_widens_the_gap_when_all_were_full() -> None:
    settings = DiskSettings(low_water_mark=0.8)
    verdict = decide(DiskVerdict(), used(a=0.96, b=0.96), DISKS, settings)
    for part, read_only in ((0.93, True), (0.81, True), (0.79, False)):
        verdict = decide(verdict, used(a=part, b=part), DISKS, settings)
        assert verdict.read_only == read_only


def test_a_full_index_directory_stops_new_index_files_only() -> None:
    directories = LedgerDirectories(DISKS, ("/i", "/j"))
    verdict = decide(DiskVerdict(), used(a=0.1, b=0.1, i=0.99, j=0.1), DISKS, DiskSettings())
    directories.set_full(verdict.full)
    assert not verdict.read_only
    assert directories.writable_index_dirs() == ["/j"]
    assert directories.writable_ledger_dirs() == ["/a", "/b"]


def test_fences_find_an_index_directory_when_all_are_full() -> None:
    """I-22."""
    directories = LedgerDirectories(DISKS)
    directories.set_full(DISKS)
    assert directories.writable_ledger_dirs() == []
    assert directories.writable_index_dirs() == ["/a", "/b"]


def test_when_all_are_full_a_directory_with_room_for_a_log_takes_what_the_journal_has_and_recovery_adds() -> None:
    """I-68: recovery adds come last; taken into the journal, they must find their way out of it."""
    directories = LedgerDirectories(DISKS)
    settings = DiskSettings(entry_log_free_bytes_min=30 * 10**9)
    verdict = decide(DiskVerdict(), used(a=0.96, b=0.98), DISKS, settings)
    directories.set_full(verdict.full, verdict.roomy)
    assert verdict.read_only
    assert directories.writable_ledger_dirs() == ["/a"]
    directories.mark_full("/a")
    assert directories.writable_ledger_dirs() == []
    verdict = decide(verdict, used(a=0.96, b=0.1), DISKS, settings)
    directories.set_full(verdict.full, verdict.roomy)
    assert directories.writable_ledger_dirs() == ["/b"]


def test_a_bookie_has_a_ledger_directory() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LedgerDirectories(())


def test_the_monitor_reports_changes_only_and_goes_on_asking() -> None:
    fs, clock, worker = FaultyFileSystem(quota_bytes=1000), Clock(), ManualWorker()
    fs.make_dirs("/a")
    directories = LedgerDirectories(("/a",))
    verdicts: list[DiskVerdict] = []
    monitor = DiskMonitor(fs, directories, DiskSettings(reserve_bytes=100), clock, worker, verdicts.append, pytest.fail)
    monitor.start()
    worker.run_all()
    assert verdicts == []
    fs.used_bytes = 990
    clock.advance(10)
    worker.run_all()
    assert [verdict.read_only for verdict in verdicts] == [True]
    assert directories.writable_ledger_dirs() == []
    clock.advance(10)
    worker.run_all()
    assert len(verdicts) == 1
    fs.used_bytes = 10
    monitor.check_now()
    worker.run_all()
    assert [verdict.read_only for verdict in verdicts] == [True, False]
    assert directories.writable_ledger_dirs() == ["/a"]
    monitor.stop()
    assert not clock.getDelayedCalls()


def test_a_disk_that_cannot_be_asked_is_a_failure() -> None:
    clock, worker = Clock(), ManualWorker()
    failures: list[BaseException] = []
    monitor = DiskMonitor(
        FaultyFileSystem(), LedgerDirectories(("/gone",)), DiskSettings(), clock, worker, pytest.fail, failures.append
    )
    monitor.start()
    worker.run_all()
    assert [type(error) for error in failures] == [FileNotFoundError]
    assert not clock.getDelayedCalls()


def test_recovery_adds_pass_while_the_disks_allow_writing_or_have_their_room() -> None:
    """Also on a disk that never had that much: nobody forbids there what an ordinary add may do."""
    settings = DiskSettings(priority_free_bytes_min=20 * 10**9)
    small = {path: DiskUsage(total=10**10, free=9 * 10**9) for path in DISKS}
    assert decide(DiskVerdict(), small, DISKS, settings).priority_writes
    full = decide(DiskVerdict(), used(a=0.96, b=0.96), DISKS, settings)
    assert (full.read_only, full.priority_writes) == (True, True)
    fuller = decide(full, used(a=0.99, b=0.99), DISKS, settings)
    assert (fuller.read_only, fuller.priority_writes) == (True, False)
    assert fuller != full


def test_what_a_full_directory_needs_is_for_the_reserve_or_for_the_threshold() -> None:
    settings = DiskSettings()
    small, large = DiskUsage(total=190 << 20, free=60 << 20), DiskUsage(total=10**12, free=10**10)
    assert free_to_release(small, settings) == (80 << 20, True)
    needed, for_reserve = free_to_release(large, settings)
    assert (round(needed / 10**9), for_reserve) == (60, False)
    assert (
        why_full(small, settings) == "62914560 bytes are free on its disk, fewer than the 67108864 that are always kept"
    )
    assert why_full(large, settings) == "99.0% of its disk are used, more than diskUsageThreshold 0.95"
    for usage in (small, large):
        enough = DiskUsage(total=usage.total, free=free_to_release(usage, settings)[0])
        was = decide(DiskVerdict(), dict.fromkeys(DISKS, usage), DISKS, settings)
        assert was.read_only
        assert not decide(was, dict.fromkeys(DISKS, enough), DISKS, settings).read_only


def test_turning_read_only_is_logged_with_the_reason() -> None:
    clock, worker, fs = Clock(), ManualWorker(), FaultyFileSystem()
    monitor = DiskMonitor(fs, LedgerDirectories(["/a"]), DiskSettings(), clock, worker, lambda _: None, lambda _: None)
    fs.usage = lambda _: DiskUsage(total=190 << 20, free=60 << 20)  # type: ignore[method-assign]
    with capturedLogs() as events:
        monitor.start()
        worker.run_all()
    caught_logs = [formatEvent(event) for event in events]
    assert any(
        "/a takes no new files: 62914560 bytes are free on its disk, fewer than the 67108864" in line
        and "once 83886080 bytes are free" in line
        for line in caught_logs
    ), caught_logs
    assert any("The disks allow no new entries; full directories: ['/a']" in line for line in caught_logs)


@pytest.mark.parametrize("name", ["locations", "ledgers"])
def test_directories_with_an_index_in_rocksdb_are_refused(name: str) -> None:
    fs = FaultyFileSystem()
    fs.make_dirs("/a/current/0/1")
    refuse_rocksdb(fs, ["/a", "/never-used"])
    fs.make_dirs(f"/a/current/{name}")
    with pytest.raises(UnknownFormatVersion, match=f"/a/current/{name} is a RocksDB index .*convert-to-interleaved"):
        refuse_rocksdb(fs, ["/b", "/a"])
