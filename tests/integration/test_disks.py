"""Disks that fill up and empty, and one of several that goes away, under a real bookie."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.model import BookieId
from tests.support.cluster import STEADY, local_cluster, wait_for_exit, with_long_timeouts
from tests.support.patience import until
from tests.support.small_disk import fill, mounted, take_away

pytestmark = pytest.mark.timeout(400)

SIZE = 512 << 20
LOOKS_OFTEN = {**STEADY, "diskCheckInterval": "50", "flushInterval": "200", "logSizeLimit": str(8 << 20)}
COUNT = 50


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    with mounted(tmp_path / "one", SIZE) as one, mounted(tmp_path / "other", SIZE) as other:
        yield one, other


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path, disks: tuple[Path, Path]) -> Iterator[LocalCluster]:
    """Three bookies; the last has its ledgers on two disks."""
    with local_cluster(
        zookeeper.address, ledgers_root, 2, directory=tmp_path / "cluster", settings=LOOKS_OFTEN
    ) as cluster:
        bookie = cluster.add_bookie(start=False)
        bookie.settings |= {
            "ledgerDirectories": ",".join(str(disk / "ledgers") for disk in disks),
            "diskUsageThreshold": "0.7",
            "diskUsageWarnThreshold": "0.5",
        }
        bookie.start()
        yield cluster


def is_writable(client: BlockingBookKeeper, bookie: LocalBookie) -> bool:
    return BookieId(bookie.bookie_id) in client.available_bookies().writable


def until_registered(client: BlockingBookKeeper, bookie: LocalBookie, *, writable: bool) -> None:
    """Ask the metadata store, a request at a time, until the bookie is registered in that mode."""
    what = f"{bookie.bookie_id} is {'writable' if writable else 'read-only'}"
    until(lambda: is_writable(client, bookie) == writable, what)


def looks(bookie: LocalBookie) -> int:
    """How often its log says that something about its disks changed."""
    return bookie.log_path.read_text().count("Full directories: ")


def test_warned_full_and_back_only_well_below_the_mark(cluster: LocalCluster, disks: tuple[Path, Path]) -> None:
    """Nearly full is told, full is read-only, just below the threshold stays so, and well below it is writable."""
    bookie, disk = cluster.bookies[-1], disks[0]
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[bookie.bookie_id]) as ledger:
            ledger.append_many([b"%d" % number for number in range(COUNT)])
        ballast = fill(disk, SIZE * 4 // 10)
        until(lambda: client.available_bookies() and "are nearly full" in bookie.log_path.read_text(), "it warns")
        assert is_writable(client, bookie)
        ballast.unlink()
        ballast = fill(disk, SIZE * 29 // 100)
        until_registered(client, bookie, writable=False)
        with client.open(ledger.id) as opened:
            assert [entry.payload for entry in opened.entries()] == [b"%d" % number for number in range(COUNT)]
        changes = looks(bookie)
        size = ballast.stat().st_size
        for _ in range(20):  # to 0.695 and back to 0.71; it looks every 50 ms
            os.truncate(ballast, size - SIZE * 15 // 1000)
            for _ in range(10):
                assert not is_writable(client, bookie)
            with ballast.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            for _ in range(10):
                assert not is_writable(client, bookie)
        assert looks(bookie) == changes
        ballast.unlink()
        until_registered(client, bookie, writable=True)
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1, bookies=[bookie.bookie_id]) as later:
            later.append(b"again")


def test_a_disk_that_goes_away_ends_the_bookie_and_keeps_it_from_starting_without(
    cluster: LocalCluster, disks: tuple[Path, Path]
) -> None:
    """I-48, I-71: what was on it is unknown; readers go on with the other copies."""
    bookie = cluster.bookies[-1]
    members = [bookie.bookie_id, cluster.bookies[0].bookie_id]
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=members) as ledger:
            ledger.append_many([b"%d" % number * 1000 for number in range(COUNT)])
        take_away(disks[1])
        until(lambda: client.available_bookies() and not bookie.running, "it ends without one of its disks")
        with client.open(ledger.id) as opened:
            assert [entry.payload for entry in opened.entries()] == [b"%d" % number * 1000 for number in range(COUNT)]
    assert bookie.stop() == ExitCode.BOOKIE_ERROR
    assert wait_for_exit(bookie) == ExitCode.BOOKIE_ERROR
    said = bookie.log_path.read_text()
    assert f"ledgerDirectories {disks[1] / 'ledgers'} is empty: what it acknowledged may be missing" in said
    assert f"bookie {bookie.bookie_id} of cluster " in said
