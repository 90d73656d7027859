"""A byte that changed on one bookie's disk: never served, reported, written anew from another copy (I-31, I-67)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.damaged_disks import change_a_byte, stored

pytestmark = pytest.mark.timeout(180)

PASSWORD = b"secret"
REPAIRED_WITHIN_S = 40.0
"""A damage is reported and repaired within seconds; a worker that does not hear of it looks once a minute."""


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three bookies that repair."""
    root = f"/damaged-{os.urandom(3).hex()}"
    settings = {**STEADY, "autoRecoveryDaemonEnabled": "true", "flushInterval": "200"}
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path, settings=settings) as cluster:
        yield cluster


def test_a_changed_byte_is_not_served_and_comes_back_from_another_copy(cluster: LocalCluster) -> None:
    victim, other, _ = cluster.bookies
    payloads = [b"%d/" % number + b"p" * 500 for number in range(200)]
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=3, write_quorum=3, ack_quorum=3, password=PASSWORD) as ledger:
            ledger.append_many(payloads)
        before = [stored(bookie, ledger.id, 77) for bookie in (victim, other)]
        assert before[0] == before[1]
        assert before[0] is not None
        change_a_byte(victim, b"77/ppp")
        assert stored(victim, ledger.id, 77) is None
        with client.open(ledger.id, password=PASSWORD) as reader:
            assert [entry.payload for batch in reader.batches() for entry in batch] == payloads
        deadline = time.monotonic() + REPAIRED_WITHIN_S
        while (repaired := stored(victim, ledger.id, 77)) is None and time.monotonic() < deadline:
            client.list_entries(ledger.id, other.bookie_id)  # paces the looks
        assert repaired is not None, "not repaired"
        assert repaired[-len(payloads[77]) :] == payloads[77]
        assert "Reported damaged entries" in victim.log_path.read_text()
        assert client.metadata(ledger.id).fragments[0].ensemble.count(victim.bookie_id) == 1, "repaired in place"
