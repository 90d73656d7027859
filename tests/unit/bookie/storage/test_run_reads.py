"""Consecutive entries of one size, cut out of the entry log together: always what reading one by one gives."""

import random
import struct

import pytest

from bookkeeper.bookie.storage.entry_log.format import RECORD_HEAD
from bookkeeper.bookie.storage.index.format import slot_offset
from bookkeeper.bookie.storage.reads import RUN_BYTES_MAX
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFile
from tests.support.stored_ledgers import StoredLedgers, entry_body

INDEX = "/a/current/0/3/3.idx"
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
    runs = 0
    for _ in range(150):
        ledger_id = rng.choice([3, 4, 5])
        first = rng.randrange(max(0, nexts[ledger_id] - 300), nexts[ledger_id])
        entry_ids = range(first, first + rng.randrange(1, 90))
        expected = one_by_one(stored, ledger_id, entry_ids)
        assert stored.read(ledger_id, entry_ids) == expected
        size_max = rng.choice([100, 1000, 100_000])
        run = stored.storage.read_run(ledger_id, first, len(entry_ids), size_max)
        if run is not None:
            runs += 1
            assert list(run) == expected[: len(run)]
            assert len(run) > 1
            assert len(run.framed) == sum(4 + len(body) for body in run) <= size_max
    assert (runs > 20) is nowait


def test_a_run_is_as_long_as_the_bounds_allow() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 12_000, payload=b"x" * 60)  # 100 bytes of the log each
    for _ in range(2):
        stored.checkpoint()
    stored.add(4, 0, 1)
    stored.checkpoint()

    def found(first: int, count_max: int, size_max: int) -> int:
        run = stored.storage.read_run(3, first, count_max, size_max)
        assert run is None or list(run) == [stored.entries[3, first + at] for at in range(len(run))]
        return 0 if run is None else len(run)

    assert [found(5, 2000, 1 << 30), found(5, 20_000, 1 << 30), found(11_990, 20_000, 1 << 30)] == [
        2000,
        RUN_BYTES_MAX // 100,
        10,
    ]
    assert [found(0, 100, 1000), found(0, 100, 1099), found(0, 100, 200), found(0, 100, 199)] == [10, 10, 2, 0]
    assert [found(11_999, 2, 1000), found(12_000, 2, 1000)] == [0, 0]
    assert stored.storage.read_run(9, 0, 10, 1000) is None


def test_no_run_is_read_past_what_is_not_yet_in_the_log() -> None:
    """What the buffers hold may be newer than the log: a recovery adds entries again."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 10, payload=b"x" * 50)
    assert stored.storage.read_run(3, 0, 10, 10_000) is None
    stored.checkpoint()
    assert stored.storage.read_run(3, 0, 10, 10_000) is not None
    stored.add(3, 4, 1, payload=b"y" * 50)
    assert stored.storage.read_run(3, 0, 10, 10_000) is None
    stored.checkpoint()
    assert stored.storage.read_run(3, 0, 10, 10_000) is None
    run = stored.storage.read_run(3, 0, 4, 10_000)
    assert run is not None
    assert list(run) == [stored.entries[3, entry_id] for entry_id in range(4)]


def test_a_run_ends_where_entries_of_another_size_begin() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 100, payload=b"x" * 50)
    stored.add(3, 100, 100, payload=b"x" * 51)
    stored.checkpoint()
    first = 0
    while first < 180:
        run = stored.storage.read_run(3, first, 200, 1 << 20)
        expected = [stored.entries[3, first + at] for at in range(16)]
        if run is None:
            assert len({len(body) for body in expected}) == 2
            first += 16
        else:
            assert list(run)[:16] == expected
            assert len({len(body) for body in run}) == 1
            first += len(run)


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
    assert stored.storage.read_run(3, 0, 20, 1 << 20) is None
    run = stored.storage.read_run(3, 0, 7, 1 << 20)
    assert run is not None
    assert list(run) == expected[:7]


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


@pytest.mark.parametrize(
    "wrong", [[-1, -1, -1], [2**63 - 100, 2**63 - 50, 5], [5, 5, 5], [2**62, 1, 2**62], [-(2**63), 2**63 - 1, 5]]
)
def test_places_that_cannot_be_are_no_run_and_no_denial(wrong: list[int]) -> None:
    """I-31; of an index without checksums, as Apache's."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(3, 0, 20, payload=b"x" * 50)
    stored.checkpoint()
    stored.fs.unlink("/a/current/indexChecksums")
    stored.fs.poke(INDEX, slot_offset(4), struct.pack(">3q", *wrong))
    stored.start()
    expected: list[bytes | Status] = [entry_body(3, entry_id, b"x" * 50) for entry_id in range(20)]
    expected[4:7] = [Status.IO_ERROR] * 3
    assert stored.read(3, range(4, 7)) == expected[4:7]
    for first in range(20):
        assert stored.read(3, range(20)) == expected
        run = stored.storage.read_run(3, first, 20, 1 << 20)
        assert run is None or list(run) == expected[first : first + len(run)]
