"""Directories of genuine bookies, read in place: every copy that a client was acknowledged is found, with its
fingerprint, and nothing else is.

Method: ledgers of each digest, mixed, through small logs and journals that roll; the bookie ends, by SIGKILL (copies
are in its journal alone) or by SIGTERM; its files are read and compared with what the client wrote, and they are byte
for byte the same after it. A second test has ledgers deleted, logs collected and compacted before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.spark.stored_copies import JournalUnit, named_directories, open_bookie
from tests.interop.conftest import SESSION_TIMEOUT
from tests.support.apache import MIDDLE, Apache, ApacheBookie, find_apache
from tests.support.apache.releases import MEMTABLE_BYTES_MAX
from tests.support.cluster import RawClient
from tests.support.stored_copies import slow_verdicts
from tests.support.written_ledgers import WrittenLedgers

SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
INTERLEAVED = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "sortedLedgerStorageEnabled": "false",
}
SMALL_LIMITS = {
    "nettyMaxFrameSizeBytes": str(2 << 20),
    "logSizeLimit": str(3 << 20),
    "skipListSizeLimit": str(MEMTABLE_BYTES_MAX),
    "journalMaxSizeMB": "3",
    "journalMaxBackups": "50",
    "journalPreAllocSizeMB": "1",
}
COLLECTING = {
    "skipListSizeLimit": str(1 << 20),
    "flushInterval": "200",
    "gcWaitTime": "600",
    "minorCompactionInterval": "1",
    "majorCompactionInterval": "2",
    "useTransactionalCompaction": "true",
    "compactionRateByEntries": "1000000",
}
ONE = (1, 1)
LOOKS_MAX = 20_000
KILLS_MAX = 5
FS = RealFileSystem()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """No bookies: each test has one of its own."""
    with LocalCluster(0, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        yield cluster


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("current/**/*") if path.is_file()}


def needs_journal(directory: Path) -> bool:
    """Whether a bookie that ended has copies in its journal alone."""
    with open_bookie(FS, named_directories(FS, str(directory / "ledgers"))) as stored:
        return any(isinstance(unit, JournalUnit) for unit in stored.plan().units)


def killed_before_a_checkpoint(bookie: ApacheBookie, written: WrittenLedgers, directory: Path) -> None:
    """Kill it behind more entries, which no log has yet.

    A log that was rolled before them begins a checkpoint that may come behind them all. Then it is done, and one that
    is started again has rolled none.
    """
    for _ in range(KILLS_MAX):
        written.write(200, quorum=ONE)
        bookie.kill()
        if needs_journal(directory):
            return
        bookie.start()
    pytest.fail(f"{KILLS_MAX} times nothing was in the journal alone when the bookie was killed")


def written_and_read_in_place(
    apache: Apache, cluster: LocalCluster, directory: Path, settings: Mapping[str, str], end: str
) -> None:
    bookie = ApacheBookie(apache, directory, cluster.uri, free_port(), {**SMALL_LIMITS, **settings})
    written = WrittenLedgers(cluster.uri)
    try:
        bookie.start()
        written.write(2000, quorum=ONE)
        written.write(100, size_max=300_000, quorum=ONE)
        if end == "SIGKILL":
            killed_before_a_checkpoint(bookie, written, directory)
        else:
            written.write(200, quorum=ONE)
            bookie.stop()
        before = files_of(directory)
        assert len([path for path in before if path.suffix == ".log"]) > 3
        expected = written.expected
        for name in ("journal", "ledgers"):
            assert written.in_place(str(directory / name), bookie.bookie_id) == expected
        assert slow_verdicts(FS, named_directories(FS, str(directory / "ledgers")), written.asked) == expected
        assert needs_journal(directory) == (end == "SIGKILL")
        assert files_of(directory) == before
    finally:
        bookie.kill()


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("storage", [SORTED, INTERLEAVED], ids=["sorted", "interleaved"])
def test_every_copy_of_a_genuine_bookie_is_found_in_place(
    apache: Apache, cluster: LocalCluster, storage: Mapping[str, str], end: str, tmp_path: Path
) -> None:
    directories = {
        "ledgerDirectories": f"{tmp_path / 'ledgers'},{tmp_path / 'more-ledgers'}",
        "indexDirectories": str(tmp_path / "index"),
    }
    written_and_read_in_place(apache, cluster, tmp_path, {**storage, **directories}, end)


def test_every_copy_of_an_older_genuine_bookie_is_found_in_place(
    apache_home: Path | None, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Its cookie does not name index directories."""
    written_and_read_in_place(find_apache(apache_home, MIDDLE.version), cluster, tmp_path, SORTED, "SIGKILL")


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_what_a_genuine_bookie_collected_and_compacted_is_found_and_nothing_that_was_deleted(
    apache: Apache, cluster: LocalCluster, end: str, tmp_path: Path
) -> None:
    port = free_port()
    settings = {**SMALL_LIMITS, **COLLECTING, **SORTED, "logSizeLimit": str(1 << 20)}
    bookie = ApacheBookie(apache, tmp_path, cluster.uri, port, settings)
    written = WrittenLedgers(cluster.uri)
    try:
        bookie.start()
        for _ in range(3):
            written.write(300, quorum=ONE)
            written.delete(sorted(written.asked)[::2])
        for _ in range(LOOKS_MAX):
            with RawClient(port):  # paces the looks
                pass
            if {int(path.stem, 16) for path in tmp_path.rglob("*.idx")} == set(written.asked):
                break
        if end == "SIGKILL":
            bookie.kill()
        else:
            bookie.stop()
        assert written.in_place(str(tmp_path / "ledgers"), bookie.bookie_id) == written.expected
    finally:
        bookie.kill()
