"""Which copy is read: bookies that are near a task are asked first where an option says so."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.bookies.own_machine import is_this_machine
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.prometheus_text import parse
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

ENTRIES = 3000


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Any) -> Iterator[LocalCluster]:
    root = f"/near-{os.getpid()}-{os.urandom(3).hex()}"
    http = {"httpServerEnabled": "true", "httpServerPort": "0"}
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path, settings={**STEADY, **http}) as running:
        yield running


def entries_read(cluster: LocalCluster) -> list[int]:
    """Entries that each bookie has delivered so far."""
    found = []
    for bookie in cluster.bookies:
        assert bookie.metrics_url is not None
        with urllib.request.urlopen(bookie.metrics_url, timeout=60) as answer:
            family = parse(answer.read().decode())["bookie_BOOKIE_READ_ENTRY"]
        found.append(sum(int(value) for (name, _), value in family.samples.items() if name.endswith("_count")))
    return found


def test_the_machine_of_this_process_is_known_by_its_names_and_addresses() -> None:
    for own in ("127.0.0.1", "127.8.9.1", "::1", "localhost", socket.gethostname(), socket.gethostname().upper()):
        assert is_this_machine(own), own
    for other in ("192.0.2.7", "2001:db8::7", "0.0.0.0", "224.0.0.1", "no-such-host.example.com"):
        assert not is_this_machine(other), other


def test_tasks_read_the_copy_of_the_near_bookie_where_an_entry_has_one(cluster: LocalCluster) -> None:
    spark = spark_session()
    bookies = [bookie.bookie_id for bookie in cluster.bookies]
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as client:
        written = []
        for write_quorum in (3, 2):
            with client.create(bookies=bookies, write_quorum=write_quorum) as ledger:
                ledger.append_many([b"entry %d" % number for number in range(ENTRIES)])
                written.append(ledger.id)
    everywhere, striped = written
    # All of them are on this machine; what the topology says of two of them puts them elsewhere.
    near, far, farther = bookies
    topology = f"127.0.0.1 /eu/r1, {far} /eu/r2, {farther} /us/r1"

    def delivered(ledger_id: int, **options: str) -> list[int]:
        before = entries_read(cluster)
        # The reader waits for a bookie that pauses for seconds, and reads no entry from another bookie instead.
        waits = {"speculativeReadTimeout": "0", "readTimeout": "60"}
        words = {"uri": cluster.uri, "ledgers": ledger_id, "minPartitions": 4, **waits, **options}
        assert spark.read.format("bookkeeper").options(**words).load().count() == ENTRIES
        return [after - earlier for earlier, after in zip(before, entries_read(cluster), strict=True)]

    wanted = {"reorderReadSequenceEnabled": "true", "networkTopology": topology}
    assert delivered(everywhere, **wanted) == [ENTRIES, 0, 0]
    # A third of the entries is not there: those are read in the same region.
    assert delivered(striped, **wanted) == [ENTRIES * 2 // 3, ENTRIES // 3, 0]
    assert min(delivered(striped, networkTopology=topology)) == ENTRIES // 3, "all share the work"
    cluster.bookies[0].kill()
    with bookkeeper.blocking.connect(cluster.uri) as client:
        assert near in {bookie for fragment in client.metadata(everywhere).fragments for bookie in fragment.ensemble}
    words = {"uri": cluster.uri, "ledgers": everywhere, **wanted}
    assert spark.read.format("bookkeeper").options(**words).load().count() == ENTRIES, "falls over to the others"
