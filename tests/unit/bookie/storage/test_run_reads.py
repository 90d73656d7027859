"""Consecutive entries of one size, cut out of the entry log together: always what reading one by one gives."""

import random

import pytest

from bookkeeper.bookie.storage.entry_log_format import RECORD_HEAD
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFile
from tests.support.stored_ledgers import StoredLedgers, entry_body

LOG = "/a/current/1.log"
CHECKSUMS = "/a/current/1.crc"  # without it, as in a log of Apache's, only the ids tell


def one_by_one(stored: StoredLedgers, ledger_id: int, entry_ids: range) -> list[bytes | Status]:
    return [stored.read(ledger_id, [entry_id])[0] for entry_id in entry_ids]


@pytest.mark.parametrize("nowait", [True, False])
def test_ranges_of_any_ledger_read_as_their_entries_do(nowait: bool) -> None:
    """Runs broken by gaps, other sizes, other ledgers, later flushes, page ends and log ends."""
    rng = random.Random(5)
    stored = StoredLedgers(settings=StorageSettings(entry_log_bytes_max=60_000, block_bytes=4096))
    stored.fs.nowait = nowait
    nexts = {3: 0, 4: 1000, 5: 0}
    for _ in range(40):
        ledger_id = rng.choice([3, 4, 5])
        count = rng.randrange(1, 60)
        stored.add(ledger_id, nexts[ledger_id], count, payload=b"x" * rng.choice([0, 100, 100, 900]))
        nexts[ledger_id] += count + rng.choice([0, 0, 0, 2])
        if rng.random() < 0.4:
            stored.checkpoint()
    for _ in range(150):
        ledger_id = rng.choice([3, 4, 5])
        first = rng.randrange(max(0, nexts[ledger_id] - 300), nexts[ledger_id])
        entry_ids = range(first, first + rng.randrange(1, 90))
        assert stored.read(ledger_id, entry_ids) == one_by_one(stored, ledger_id, entry_ids)


@pytest.mark.parametrize("field", ["size", "ledger", "entry"])
def test_a_damaged_record_spoils_no_other_of_its_run(field: str) -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 20, payload=b"x" * 50)
    stored.checkpoint()
    step = len(entry_body(3, 0, b"x" * 50)) + 4
    at = 1024 + 7 * step
    size, ledger_id, entry_id = RECORD_HEAD.unpack(stored.fs.contents(LOG)[at : at + RECORD_HEAD.size])
    assert (ledger_id, entry_id) == (3, 7)
    damaged = {"size": (1 << 20, 3, 7), "ledger": (size, 4, 7), "entry": (size, 3, 8)}[field]
    stored.fs.poke(LOG, at, RECORD_HEAD.pack(*damaged))
    stored.fs.unlink(CHECKSUMS)
    stored.start()
    expected: list[bytes | Status] = [entry_body(3, entry_id, b"x" * 50) for entry_id in range(20)]
    expected[7] = Status.IO_ERROR
    assert stored.read(3, range(20)) == expected


def test_a_run_that_the_log_cuts_short_is_an_error_only_where_it_is_cut() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 10, payload=b"x" * 50)
    stored.checkpoint()
    step = len(entry_body(3, 0, b"x" * 50)) + 4
    file = stored.fs.open(LOG, OpenMode.UPDATE)
    file.truncate(1024 + 9 * step + 10)
    file.close()
    stored.fs.unlink(CHECKSUMS)
    stored.start()
    results = stored.read(3, range(10))
    assert results[:9] == [entry_body(3, entry_id, b"x" * 50) for entry_id in range(9)]
    assert results[9] is Status.IO_ERROR


@pytest.mark.parametrize("payload", [20, 700, 2000, 9000])
def test_damaged_pages_spoil_no_entry_beside_them_and_are_read_once(
    payload: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-31; a window with a damaged page in it was read anew for every entry."""
    stored = StoredLedgers(settings=StorageSettings())
    count = 1_000_000 // (payload + 40)
    stored.add(3, 0, count, payload=b"x" * payload)
    stored.checkpoint()
    step = len(entry_body(3, 0, b"x" * payload)) + 4
    pages = {at // 4096 for at in (5000, 400_000, 404_096, 990_000)}
    for page in pages:
        stored.fs.poke(LOG, page * 4096 + 7, b"?")
    stored.start()
    stored.storage.replay_finished()
    sizes: list[int] = []
    pread = FaultyFile.pread

    def counted(self: FaultyFile, size: int, offset: int) -> bytes:
        data = pread(self, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(FaultyFile, "pread", counted)
    touched = {
        entry_id
        for entry_id in range(count)
        if pages & set(range((1024 + entry_id * step) // 4096, (1024 + (entry_id + 1) * step - 1) // 4096 + 1))
    }
    for entry_id, result in enumerate(stored.read(3, range(count))):
        assert result == (Status.IO_ERROR if entry_id in touched else stored.entries[3, entry_id]), entry_id
    assert sum(sizes) < 3_000_000
