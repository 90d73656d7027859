"""Copies of real bookies, read in place once they are killed or stopped, beside what a client was answered.

Aim: every copy that a client's ledger has is found good, with its fingerprint, also where it is in a journal alone; and
reading changes nothing. Method: ledgers of each digest on three bookies; an orderly stop, more ledgers, SIGKILL; every
entry must have exactly two good copies; then bytes are changed on purpose, and at last the bookies serve again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.errors import CookieMismatch, DirectoryInUse
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import DigestType
from bookkeeper.spark.stored_copies import JournalUnit, named_directories, open_bookie
from tests.support.cluster import STEADY, local_cluster
from tests.support.stored_copies import Verdict, run_all
from tests.support.written_ledgers import WrittenLedgers

pytestmark = pytest.mark.timeout(600)

COUNT = 1500
FS = RealFileSystem()


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    root = f"/copies-{os.getpid()}-{os.urandom(3).hex()}"
    # No automatic checkpoint: the last entries stay in the journal.
    settings = {**STEADY, "flushInterval": "600000"}
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path, settings=settings) as running:
        yield running


def files_of(bookie: LocalBookie) -> dict[str, bytes]:
    """Every file below its directories."""
    return {str(path): path.read_bytes() for path in bookie.directory.rglob("current/**/*") if path.is_file()}


def in_place(bookie: LocalBookie, written: WrittenLedgers) -> dict[tuple[int, int], Verdict]:
    return written.in_place(str(bookie.ledger_directory), bookie.bookie_id)


def test_every_copy_of_killed_bookies_is_found_in_place(cluster: LocalCluster) -> None:
    written = WrittenLedgers(cluster.uri)
    written.write(COUNT)
    for bookie in cluster.bookies:
        assert bookie.stop() == 0
        bookie.start()
    stored = set(written.asked)
    written.write(COUNT)
    written.check()
    for bookie in cluster.bookies:
        with pytest.raises(DirectoryInUse, match="Stop it"):
            in_place(bookie, written)
        bookie.kill()

    expected, copies = written.expected, Counter[tuple[int, int]]()
    for bookie in cluster.bookies:
        before = files_of(bookie)
        found = in_place(bookie, written)
        assert found == {key: expected[key] for key in found}
        copies.update(list(found))
        assert files_of(bookie) == before
    assert copies == dict.fromkeys(expected, 2)

    # What was written last is in the journals, what was written first in the entry logs.
    first = cluster.bookies[0]
    with open_bookie(FS, named_directories(FS, str(first.journal_directory))) as opened:
        plan = opened.plan()
        journaled = [unit for unit in plan.units if isinstance(unit, JournalUnit)]
        (result,) = [opened.verify(unit, written.asked) for unit in journaled]
    assert set(result.good) == set(written.asked) - stored
    assert list(plan.ledger_ids) == sorted(written.asked)

    # Another bookie's directory among its own.
    mixed = named_directories(FS, str(first.ledger_directory))
    with pytest.raises(CookieMismatch, match="not directories of one bookie"):
        open_bookie(FS, type(mixed)(mixed.journal_dirs, (str(cluster.bookies[1].ledger_directory),), mixed.index_dirs))

    for bookie in cluster.bookies:
        bookie.start()
    written.check()


def test_changed_bytes_of_stopped_bookies_are_found_and_orphans_counted(cluster: LocalCluster) -> None:
    written = WrittenLedgers(cluster.uri)
    written.write(COUNT)
    for bookie in cluster.bookies:
        assert bookie.stop() == 0
    broken = cluster.bookies[1]
    good = in_place(broken, written)
    protected = {one.ledger_id for one in written.asked.values() if one.digest_type is not DigestType.DUMMY}
    *_, (ledger_id, entry_id) = [
        key for key in good if key[0] in protected and len(written.payloads[key[0]][key[1]]) > 100
    ]
    payload = written.payloads[ledger_id][entry_id]
    (path,) = [path for path in broken.directory.rglob("*.log") if payload in path.read_bytes()]
    at = path.read_bytes().index(payload)
    with path.open("r+b") as file:
        file.seek(at + 50)
        file.write(bytes([payload[50] ^ 1]))
    assert in_place(broken, written) == {**good, (ledger_id, entry_id): "DIGEST"}

    asked = {ledger_id: written.asked[ledger_id]}
    with open_bookie(FS, named_directories(FS, str(broken.ledger_directory))) as opened:
        _, results = run_all(opened, asked)
    orphans = Counter[int]()
    for result in results:
        orphans.update({other: counted.entry_count for other, counted in result.others.items()})
    assert orphans == Counter(key[0] for key in good if key[0] != ledger_id)
