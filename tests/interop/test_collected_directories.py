"""A bookie's directories after collection and compaction, handed to a genuine bookie and back.

Aim: what deleting and rewriting leaves (logs with new ids, tombstones, checksums beside Apache's files) is no obstacle
to a genuine bookie, and what its own collection and transactional compaction leave is none to ours. Method: one bookie
in two persons, in turn; ledgers of many sizes are deleted in each turn, and the owner collects until only what lives is
left; everything that lives is read through every owner, also after a SIGKILL.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie
from tests.support.cluster import RawClient
from tests.support.zookeeper_sessions import end_dead_session

SETTINGS = ClientSettings(password=b"pass-word", read_timeout_base_s=REQUEST_TIMEOUT_S)
SMALL = {
    "nettyMaxFrameSizeBytes": "200000",
    "logSizeLimit": str(1 << 20),
    "skipListSizeLimit": str(1 << 20),
    "flushInterval": "200",
    "gcWaitTime": "600",
    "minorCompactionInterval": "1",
    "majorCompactionInterval": "2",
    "useTransactionalCompaction": "true",
    "compactionRateByEntries": "1000000",
}
SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
LOOKS_MAX = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """No bookies: the test has one of its own, in two persons."""
    with LocalCluster(0, directory=tmp_path_factory.mktemp("collected"), settings=SESSION_TIMEOUT) as cluster:
        yield cluster


class Shelf:
    """Ledgers on the one bookie, and what must be in them."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._rng = random.Random(11)
        self.payloads: dict[int, list[bytes]] = {}

    def turn_over(self) -> None:
        """New ledgers, mixed in the logs; half of all go."""
        with connect(self._uri, SETTINGS) as client:
            handles = [client.create(ensemble=1, write_quorum=1, ack_quorum=1) for _ in range(12)]
            for _ in range(5):
                for handle in handles:
                    some = [self._rng.randbytes(self._rng.randrange(300, 3000)) for _ in range(20)]
                    handle.append_many(some)
                    self.payloads.setdefault(handle.id, []).extend(some)
            for handle in handles:
                handle.close()
            for ledger_id in self._rng.sample(sorted(self.payloads), len(self.payloads) // 2):
                client.delete(ledger_id)
                del self.payloads[ledger_id]

    def check(self) -> None:
        with connect(self._uri, SETTINGS) as client:
            for ledger_id, expected in self.payloads.items():
                with client.open(ledger_id) as reader:
                    assert [entry.payload for entry in reader.entries()] == expected


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # collected since it was listed
        return 0


def _empty_logs(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*.log") if path.exists() and not _size(path)]


def _unfinished(directory: Path) -> list[Path]:
    return [*directory.rglob("*.compact*"), *directory.rglob("*.switching")]


def _collected(directory: Path, port: int, shelf: Shelf) -> None:
    """Wait until the index files are those of what lives, and the logs are not much larger."""
    live = sum(len(payload) + 60 for payloads in shelf.payloads.values() for payload in payloads)
    for _ in range(LOOKS_MAX):
        with RawClient(port):  # paces the looks
            pass
        index_files = {int(path.stem, 16) for path in directory.rglob("*.idx")}
        logs = sum(map(_size, directory.rglob("*.log")))
        # One log is being written, and one may have been when its ledgers went.
        if index_files == set(shelf.payloads) and logs < 1.7 * live + 3 * (1 << 20):
            return
    raise AssertionError(f"{sorted(index_files)} are kept, {sorted(shelf.payloads)} live; {logs} bytes for {live}")


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_collected_and_compacted_directories_pass_from_bookie_to_bookie(
    apache: Apache, cluster: LocalCluster, tmp_path: Path, end: str
) -> None:
    port = free_port()
    ours = LocalBookie(1, tmp_path, cluster.uri, port, {**SESSION_TIMEOUT, **SMALL})
    genuine = ApacheBookie(apache, tmp_path, cluster.uri, port, {**SMALL, **SORTED})
    shelf = Shelf(cluster.uri)
    try:
        for owner in (ours, genuine, ours, genuine, ours):
            owner.start()
            shelf.check()
            shelf.turn_over()
            _collected(tmp_path, port, shelf)
            shelf.check()
            if end == "SIGKILL":
                owner.kill()
            else:
                owner.stop()
            end_dead_session(cluster.uri, ours.bookie_id)
        ours.start()
        shelf.check()
        for _ in range(LOOKS_MAX):  # what the kill left of a compaction is finished by the first round
            with RawClient(port):  # paces the looks
                pass
            if not _unfinished(tmp_path):
                break
        assert not _unfinished(tmp_path)
        shelf.check()
    finally:
        ours.kill()
        genuine.kill()


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_log_that_a_genuine_bookie_made_ahead_is_no_damage_and_goes(
    apache: Apache, cluster: LocalCluster, tmp_path: Path, end: str
) -> None:
    """It preallocates the next entry log: a file without a byte, which no bookie ever writes to afterwards."""
    port = free_port()
    settings = {**SMALL, "localScrubInterval": "1"}
    ours = LocalBookie(1, tmp_path, cluster.uri, port, {**SESSION_TIMEOUT, **settings})
    genuine = ApacheBookie(apache, tmp_path, cluster.uri, port, {**SMALL, **SORTED})
    shelf = Shelf(cluster.uri)
    try:
        genuine.start()
        shelf.turn_over()
        for _ in range(LOOKS_MAX):  # the bookie makes the log in the background
            with RawClient(port):  # paces the looks
                pass
            if _empty_logs(tmp_path):
                break
        if end == "SIGKILL":
            genuine.kill()
        else:
            genuine.stop()
        end_dead_session(cluster.uri, ours.bookie_id)
        ahead = _empty_logs(tmp_path)
        assert ahead
        ours.start()
        for _ in range(LOOKS_MAX):
            with RawClient(port):  # paces the looks
                pass
            if not any(path.exists() for path in ahead):
                break
        assert not any(path.exists() for path in ahead)
        shelf.check()
        ours.stop()
    finally:
        ours.kill()
        genuine.kill()
    said = ours.log_path.read_text()
    assert "Removed entry log" in said
    assert "is left alone" not in said
    assert "an entry log header has" not in said
