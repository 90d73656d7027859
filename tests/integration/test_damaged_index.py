"""A byte that changed in an index file of a bookie's disk: the page heals while clients read (I-31, I-59, I-67)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.bookie.integrity.checksums.index import FILE_NAME, HEAD_SIZE, Kind, decode_record, record_size
from bookkeeper.bookie.storage.index.format import index_name, slot_offset
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.damaged_disks import stored

pytestmark = pytest.mark.timeout(400)

PASSWORD = b"secret"
HEALED_WITHIN_S = 90.0
COUNT = 3000
"""Entries of a ledger: three pages of its index."""


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three bookies that repair, and checkpoint after each 200 ms."""
    root = f"/damaged-index-{os.urandom(3).hex()}"
    settings = {**STEADY, "autoRecoveryDaemonEnabled": "true", "flushInterval": "200"}
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path, settings=settings) as cluster:
        yield cluster


def flip_a_page(bookie: LocalBookie, ledger_id: int, page: int) -> None:
    """Change bytes of a page of the ledger's index file: some entries lose their places, others get wrong ones."""
    path = bookie.ledger_directory / "current" / index_name(ledger_id)
    with path.open("r+b") as file:
        file.seek(slot_offset(page * 1024) + 800)
        held = file.read(80)
        file.seek(-80, os.SEEK_CUR)
        file.write(bytes(40) + bytes([held[40] ^ 1]) + held[41:])


def is_settled(bookie: LocalBookie, ledger_ids: list[int]) -> bool:
    """True when a checkpoint has written all of these ledgers' pages, and their checksums."""
    current = bookie.ledger_directory / "current"
    paths = [current / index_name(ledger_id) for ledger_id in ledger_ids]
    if not all(path.exists() and path.stat().st_size >= slot_offset(COUNT) for path in paths):
        return False
    data, offset, settled = (current / FILE_NAME).read_bytes(), 0, False
    while (size := record_size(data[offset : offset + HEAD_SIZE], offset)) is not None:
        record = decode_record(data[offset : offset + size], offset)
        if record is None:
            return False
        settled = record.kind is Kind.SETTLED or (settled and record.kind is not Kind.WRITING)
        offset += size
    return settled


def mended(bookie: LocalBookie, ledger_id: int, page: int) -> int:
    """How often the bookie says that it made this page anew."""
    told = f"page {page} of {bookie.ledger_directory / 'current' / index_name(ledger_id)} was made anew"
    return bookie.log_path.read_text().count(told)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_damaged_index_page_heals_while_clients_read_without_a_restart_or_an_operator(
    cluster: LocalCluster, ending: str
) -> None:
    """Of a ledger that is closed and of one whose writer goes on; nothing is denied meanwhile."""
    victim = cluster.bookies[0]
    payloads = [b"%d/" % number + b"p" * 50 for number in range(COUNT)]
    with connect(cluster.uri, with_long_timeouts()) as client:
        with client.create(ensemble=3, write_quorum=3, ack_quorum=2, password=PASSWORD) as closed:
            closed.append_many(payloads)
        with client.create(ensemble=3, write_quorum=3, ack_quorum=2, password=PASSWORD) as written:
            written.append_many(payloads)
            until = time.monotonic() + HEALED_WITHIN_S
            while not is_settled(victim, [closed.id, written.id]) and time.monotonic() < until:
                client.list_entries(closed.id, victim.bookie_id)  # paces the looks
            assert is_settled(victim, [closed.id, written.id])
            if ending == "stop":
                assert victim.stop() == 0
            else:
                victim.kill()
            for ledger in (closed, written):
                flip_a_page(victim, ledger.id, 1)
            victim.start()
            deadline = time.monotonic() + HEALED_WITHIN_S
            waiting = {closed.id, written.id}
            count = COUNT
            while waiting and time.monotonic() < deadline:
                with client.open(closed.id, password=PASSWORD) as reader:
                    assert [entry.payload for batch in reader.batches() for entry in batch] == payloads
                written.append(b"more")
                count += 1
                for ledger_id in (closed.id, written.id):
                    for entry_id in (1024 + 100, 1024 + 104, 1024 + 105, 1024 + 500):
                        found = stored(victim, ledger_id, entry_id)
                        assert found is None or found.endswith(payloads[entry_id])
                waiting = {each for each in waiting if not mended(victim, each, 1)}
            assert not waiting, victim.log_path.read_text()[-8000:]
        for ledger_id in (closed.id, written.id):
            for entry_id in range(1024, 2048):
                found = stored(victim, ledger_id, entry_id)
                assert found is not None, entry_id
                assert found.endswith(payloads[entry_id])
        assert victim.stop() == 0
        victim.start()
        assert stored(victim, closed.id, 1024 + 100) is not None
        assert stored(victim, written.id, count - 1) is not None
