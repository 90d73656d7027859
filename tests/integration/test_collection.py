"""Space comes back from real bookies, under kill -9, and nothing else goes with it."""

from __future__ import annotations

import http.client
import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.cli.main import main
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import BookKeeperError, NoSuchLedger
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.patience import until

pytestmark = pytest.mark.timeout(300)

SETTINGS = {
    **STEADY,
    "logSizeLimit": "1048576",
    "skipListSizeLimit": "300000",
    "nettyMaxFrameSizeBytes": "200000",
    "gcWaitTime": "3600000",
    "minorCompactionInterval": "3600",
    "compactionRateByEntries": "-1",
    "flushInterval": "200",
    "httpServerEnabled": "true",
}
PASSWORD = b"secret"


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    """Two bookies that collect when they are told to, with small entry logs."""
    root = f"/collection-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 2, directory=tmp_path, settings=SETTINGS) as cluster:
        for bookie in cluster.bookies:
            assert bookie.stop() == 0
            bookie.settings |= {"httpServerPort": str(free_port())}
            bookie.start()
        yield cluster


def order(bookie: LocalBookie, method: str, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=30)
    try:
        connection.request(method, f"/api/v1/bookie/{path}")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def collect(bookie: LocalBookie) -> None:
    """A forced round with a major compaction, to its end."""
    order(bookie, "PUT", "gc")
    while order(bookie, "GET", "gc") != {"is_in_force_gc": "false"}:
        pass


def collect_until_gone(bookie: LocalBookie, ledger_id: int) -> None:
    """A round leaves a ledger alone that is being written or loaded just then; a later one takes it."""
    collect_until(bookie, lambda: ledger_id not in index_files(bookie), f"ledger {ledger_id} is gone")


def collect_until(bookie: LocalBookie, fact: Callable[[], bool], what: str) -> None:
    """Run collections until `fact` holds. The log that is active at first is collected in a later round."""

    def holds() -> bool:
        collect(bookie)
        return fact()

    until(holds, what)


def log_bytes(bookie: LocalBookie) -> int:
    return sum(path.stat().st_size for path in bookie.directory.rglob("*.log"))


def index_files(bookie: LocalBookie) -> set[int]:
    return {int(path.stem, 16) for path in bookie.directory.rglob("*.idx")}


class Library:
    """Ledgers and what must be in them."""

    def __init__(self, client: BlockingBookKeeper, seed: int) -> None:
        self.client = client
        self.rng = random.Random(seed)
        self.payloads: dict[int, list[bytes]] = {}

    def write(self, count: int) -> None:
        """Ledgers of both bookies, their entries mixed in the logs: all are written a piece at a time."""
        handles = [
            self.client.create(ensemble=2, write_quorum=2, ack_quorum=2, password=PASSWORD) for _ in range(count)
        ]
        for _ in range(5):
            for handle in handles:
                some = [self.rng.randbytes(self.rng.randrange(500, 4000)) for _ in range(20)]
                handle.append_many(some)
                self.payloads.setdefault(handle.id, []).extend(some)
        for handle in handles:
            handle.close()

    def delete(self, share: float) -> None:
        for ledger_id in self.rng.sample(sorted(self.payloads), int(len(self.payloads) * share)):
            self.client.delete(ledger_id)
            del self.payloads[ledger_id]

    def check(self) -> None:
        for ledger_id, expected in self.payloads.items():
            with self.client.open(ledger_id, password=PASSWORD) as reader:
                assert [entry.payload for batch in reader.batches() for entry in batch] == expected


def _is_collected(bookie: LocalBookie, ledger_ids: set[int], size: float) -> bool:
    return index_files(bookie) == ledger_ids and log_bytes(bookie) < size


def test_space_returns_and_everything_else_is_read_as_before(cluster: LocalCluster) -> None:
    with connect(cluster.uri, with_long_timeouts()) as client:
        library = Library(client, 1)
        library.write(20)
        before = [log_bytes(bookie) for bookie in cluster.bookies]
        library.delete(0.7)
        live = sum(len(payload) + 100 for payloads in library.payloads.values() for payload in payloads)
        small = live * 1.25 + 2 * 1_048_576  # the active log and the one before it
        assert small < min(before)
        for bookie in cluster.bookies:
            collect_until(bookie, partial(_is_collected, bookie, set(library.payloads), small), "the rest is gone")
        library.check()
        for bookie in cluster.bookies:
            assert _is_collected(bookie, set(library.payloads), small)
        for bookie in cluster.bookies:
            bookie.kill()
            bookie.start()
        library.check()
        library.write(3)
        library.check()


def test_a_compaction_that_is_suspended_on_the_way_goes_on_when_it_is_resumed(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    bookie = cluster.bookies[0]
    assert bookie.stop() == 0
    bookie.settings |= {"compactionRateByEntries": "5"}  # so that compaction outlasts the test
    bookie.start()
    with connect(cluster.uri, with_long_timeouts()) as client:
        library = Library(client, 2)
        library.write(20)
        library.delete(0.7)
    while "now: rewrites entry logs (" not in (said := why_space(bookie, capsys)):
        if order(bookie, "GET", "gc") == {"is_in_force_gc": "false"}:  # a round may run before there is work
            order(bookie, "PUT", "gc")
    (details,) = order(bookie, "GET", "gc_details")
    assert details["majorCompacting"] is True
    before = details["majorCompactionCounter"], details["lastMajorCompactionTime"]
    assert "in a round that was ordered" in said
    assert "-X PUT" not in said, "no other round is advised"
    order(bookie, "PUT", "gc/suspend_compaction")
    while order(bookie, "GET", "gc") != {"is_in_force_gc": "false"}:
        pass
    (details,) = order(bookie, "GET", "gc_details")
    assert (details["majorCompactionCounter"], details["lastMajorCompactionTime"]) == before
    assert "The major compaction was suspended on the way" in bookie.log_path.read_text()
    while "major compaction is suspended by an operator, one of them on the way" not in why_space(bookie, capsys):
        pass
    order(bookie, "PUT", "gc/resume_compaction")
    assert order(bookie, "GET", "gc") == {"is_in_force_gc": "true"}
    assert bookie.stop() == 0


def why_space(bookie: LocalBookie, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["why", "space", "--conf", str(bookie.conf_path)]) == 0
    return capsys.readouterr().out


def test_a_bookie_killed_anywhere_in_collection_and_compaction_loses_nothing(cluster: LocalCluster) -> None:
    """I-62, I-63. Method: one bookie is killed after a random number of questions to it, seven times, while it
    collects; the other one is stopped while everything is read, so each entry comes from the one that was killed.
    """
    victim, other = cluster.bookies
    rng = random.Random(5)
    library = Library(None, 2)  # type: ignore[arg-type] # each round has a client of its own
    for _ in range(7):
        with connect(cluster.uri, with_long_timeouts()) as library.client:
            library.write(6)
            library.delete(0.5)
        order(victim, "PUT", "gc")
        for _ in range(rng.randrange(0, 60)):
            order(victim, "GET", "gc")
        victim.kill()
        victim.start()
    with connect(cluster.uri, with_long_timeouts()) as library.client:
        collect_until(victim, lambda: index_files(victim) == set(library.payloads), "the deleted ones are gone")
        unfinished = (".compacting", ".switching")
        collect_until(
            victim,
            lambda: not [path.name for path in victim.directory.rglob("*") if path.name.endswith(unfinished)],
            "no file of a compaction that was broken off is left",
        )
        assert other.stop() == 0
        library.check()


def test_a_writer_that_was_fenced_is_refused_after_its_ledger_was_deleted_and_the_bookies_restarted(
    cluster: LocalCluster,
) -> None:
    """I-04, T16."""
    with connect(cluster.uri, with_long_timeouts()) as old, connect(cluster.uri, with_long_timeouts()) as new:
        writer = old.create(ensemble=2, write_quorum=2, ack_quorum=2, password=PASSWORD)
        writer.append(b"before")
        new.open(writer.id, password=PASSWORD).close()
        new.delete(writer.id)
        with pytest.raises(NoSuchLedger):
            new.open(writer.id, password=PASSWORD)
        for bookie in cluster.bookies:
            collect_until_gone(bookie, writer.id)
            assert bookie.stop() == 0
            bookie.start()
        with pytest.raises(BookKeeperError):
            writer.append(b"after")
        for bookie in cluster.bookies:
            collect_until_gone(bookie, writer.id)
