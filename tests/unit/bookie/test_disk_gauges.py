"""Gauges of each directory's disk, under Apache's names."""

from __future__ import annotations

from twisted.internet.task import Clock

from bookkeeper.bookie.process.disk_gauges import show_disks
from bookkeeper.bookie.storage.disks import DiskMonitor, DiskSettings, LedgerDirectories
from bookkeeper.filesystem import DiskUsage
from bookkeeper.metrics import Metrics
from tests.support.bookie_fakes import ManualWorker
from tests.support.faulty_filesystem import FaultyFileSystem

USAGES = {
    "/data/l-1": DiskUsage(total=1000, free=250),
    "/data/l_1": DiskUsage(total=1000, free=500),
    "/i": DiskUsage(total=1000, free=1000),
}


def shown(metrics: Metrics) -> dict[str, str]:
    lines = metrics.text().decode().splitlines()
    return dict(line.split(" ") for line in lines if "_dir_" in line and not line.startswith("#"))


def test_every_directory_has_its_usage_and_free_bytes_from_the_first_look_on() -> None:
    """A directory that cannot be asked shows nothing: of a journal's the monitor makes no decision."""
    fs, clock, worker, metrics = FaultyFileSystem(), Clock(), ManualWorker(), Metrics()

    def usage(path: str) -> DiskUsage:
        if path not in USAGES:
            raise FileNotFoundError(path)
        return USAGES[path]

    fs.usage = usage  # type: ignore[method-assign]
    directories = LedgerDirectories(["/data/l-1", "/data/l_1"], ["/i"])
    failed: list[BaseException] = []
    monitor = DiskMonitor(
        fs, directories, DiskSettings(), clock, worker, lambda _: None, failed.append, watched=("/i", "/j")
    )
    show_disks(metrics, monitor, directories, ("/i", "/j"))
    assert shown(metrics) == {}
    monitor.start()
    worker.run_all()
    assert not failed
    assert shown(metrics) == {
        "bookie_ledger_dir__data_l_1_usage": "75",
        "bookie_ledger_dir__data_l_1_free_bytes": "250",
        "bookie_ledger_dir__data_l_1_2_usage": "50",
        "bookie_ledger_dir__data_l_1_2_free_bytes": "500",
        "bookie_index_dir__i_usage": "0",
        "bookie_index_dir__i_free_bytes": "1000",
        "bookie_journal_dir__i_usage": "0",
        "bookie_journal_dir__i_free_bytes": "1000",
    }
    monitor.stop()


def test_index_directories_that_are_the_ledger_directories_are_shown_once() -> None:
    """As Apache's bookie, which has one set of gauges then."""
    metrics = Metrics()
    directories = LedgerDirectories(["/l"])
    monitor = DiskMonitor(
        FaultyFileSystem(), directories, DiskSettings(), Clock(), ManualWorker(), lambda _: None, lambda _: None
    )
    show_disks(metrics, monitor, directories, ())
    monitor.usages = {"/l": DiskUsage(total=4, free=1)}
    assert set(shown(metrics)) == {"bookie_ledger_dir__l_usage", "bookie_ledger_dir__l_free_bytes"}
