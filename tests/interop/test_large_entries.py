"""Entries at the frame limit with genuine programs: their bookies close a connection at a longer frame.

Apache's v2 client writes entries that fit into no answer and into no add of protocol v3. Its bookies send such answers
above the limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.model import ENTRY_HEADER_SIZE
from bookkeeper.wire.entry_size import V2_ADD_AROUND, entry_body_size_max
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie, ApacheClient
from tests.support.apache.bookie import running_bookies
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks, mark
from tests.support.zookeeper_sessions import end_dead_session

LIMIT = 64 * 1024
SETTINGS = {"nettyMaxFrameSizeBytes": str(LIMIT)}
PASSWORD = "pass-word"
AROUND = ENTRY_HEADER_SIZE + 4
LARGEST = b"n" * (entry_body_size_max(LIMIT) - AROUND)
LARGEST_OF_APACHE = b"a" * (LIMIT - V2_ADD_AROUND - AROUND)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with its only bookie of ours stopped."""
    directory = tmp_path_factory.mktemp("large")
    with LocalCluster(1, directory=directory, settings={**SESSION_TIMEOUT, **SETTINGS}) as cluster:
        cluster.bookies[0].stop()
        yield cluster


@pytest.fixture
def genuine(apache: Apache, cluster: LocalCluster, tmp_path: Path) -> Iterator[Sequence[ApacheBookie]]:
    with running_bookies(apache, tmp_path, cluster.uri, 3, SETTINGS) as bookies:
        yield bookies


def settings_of(*, use_v2: bool) -> ClientSettings:
    return ClientSettings(
        use_v2=use_v2,
        frame_size_max=LIMIT,
        password=PASSWORD.encode(),
        explicit_lac_interval_s=0.05,
        read_timeout_base_s=REQUEST_TIMEOUT_S,
    )


def test_large_entries_of_either_client_are_read_recovered_and_copied(
    apache_client: ApacheClient, cluster: LocalCluster, genuine: Sequence[ApacheBookie], tmp_path: Path
) -> None:
    first, second, spare = genuine
    for version in (2, 3):
        apache_client.run("configure", cluster.uri, version, f"nettyMaxFrameSizeBytes={LIMIT}")

    # Our ledger: the genuine client reads it in both versions, with this limit.
    members = [first.bookie_id, second.bookie_id]
    with connect(cluster.uri, settings_of(use_v2=True)) as client:
        ours = client.create(ensemble=2, write_quorum=2, ack_quorum=2, bookies=members)
        for entry in (b"before", LARGEST):  # One after the other: the second carries the LAC of the first.
            ours.append(entry)
        tailed = client.open_without_recovery(ours.id)
        assert tailed.read_last_confirmed() >= 0
        ours.close()
    hashes = [f"{len(entry)} {hashlib.sha256(entry).hexdigest()}" for entry in (b"before", LARGEST)]
    for version in (2, 3):
        assert apache_client.run("hashes", cluster.uri, version, "CRC32C", PASSWORD, ours.id) == hashes

    # The genuine client's ledger, on the first two bookies, with larger entries than our client writes.
    spare.kill()
    end_dead_session(cluster.uri, spare.bookie_id)
    (theirs_id,) = apache_client.run("begin", cluster.uri, 2, "CRC32C", PASSWORD, 2, 2, 2, 0)
    apache_client.run("putbytes", theirs_id, b"before".hex(), LARGEST_OF_APACHE.hex(), LARGEST_OF_APACHE.hex())
    apache_client.run("abandon", theirs_id)
    theirs = [b"before", LARGEST_OF_APACHE, LARGEST_OF_APACHE]
    for use_v2 in (True, False):
        with connect(cluster.uri, settings_of(use_v2=use_v2)) as client:
            with client.open_without_recovery(int(theirs_id)) as handle:
                assert [entry.payload for entry in handle.read(0, handle.read_last_confirmed())] == theirs[:2]
    # The recovery writes the last entry back, although it fits into no v3 add to a genuine bookie.
    with connect(cluster.uri, settings_of(use_v2=False)) as client:
        with client.open(int(theirs_id)) as handle:
            assert [entry.payload for entry in handle.entries()] == theirs

    # Copied by a v3 worker from one genuine bookie to another.
    spare.start()
    first.kill()
    end_dead_session(cluster.uri, first.bookie_id)
    mark(cluster.uri, [int(ours.id), int(theirs_id)], [first.bookie_id])
    recovery = {**SESSION_TIMEOUT, **SETTINGS, "useV2WireProtocol": "false"}
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, recovery):
        await_no_marks(cluster.uri)
    second.kill()
    for use_v2 in (True, False):
        with connect(cluster.uri, settings_of(use_v2=use_v2)) as client:
            for ledger_id, payloads in ((int(ours.id), [b"before", LARGEST]), (int(theirs_id), theirs)):
                with client.open(ledger_id) as handle:
                    assert [entry.payload for entry in handle.entries()] == payloads
