"""Power cuts, full disks and damage: what is stored stays readable, and is never denied.

Method: a workload of adds, fences, LACs and checkpoints over two ledger directories runs again and again; each time the
power goes at the next operation that changes the disk, or the disk is full at the next byte count. After the restart,
with and without the replay, everything is compared with the twin.
"""

import random

import pytest

from bookkeeper.bookie.storage.entry_log.format import log_name, split_location
from bookkeeper.bookie.storage.index.format import HEADER_SIZE, decode_slots, index_name
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import NoWritableDisk, StorageError
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import Op, PowerCut
from tests.support.stored_ledgers import SMALL, StoredLedgers

NEGATIVE = {Status.NO_ENTRY, Status.NO_LEDGER}


def workload(stored: StoredLedgers) -> None:
    """Three checkpoints; logs roll between the directories, ledgers grow beyond a page, headers change."""
    for ledger_id in (1, 2, 300):
        stored.add(ledger_id, 0, 12)
    stored.fence(9)
    stored.checkpoint()
    stored.add(1, 12, 30)
    stored.add(2, 1020, 8)
    stored.fence(2)
    stored.lac(300, 5)
    stored.flush()
    stored.add(301, 0, 4)
    stored.checkpoint()
    stored.fence(1)
    stored.lac(300, 9)
    stored.add(300, 40, 3)
    stored.checkpoint()


def two_directories() -> StoredLedgers:
    return StoredLedgers(ledger_dirs=("/a", "/b"))


def operations_of_the_workload() -> int:
    stored = two_directories()
    changing = (Op.CREATE, Op.WRITE, Op.SYNC, Op.SYNC_DIR, Op.TRUNCATE, Op.RENAME, Op.UNLINK, Op.MAKE_DIR)
    before = sum(stored.fs.counts[op] for op in changing)
    workload(stored)
    return sum(stored.fs.counts[op] for op in changing) - before


@pytest.mark.parametrize("survivors", [None, 1, 2, 3])
def test_a_power_cut_at_any_operation_loses_nothing(survivors: int | None) -> None:
    """I-53, I-54, I-58, T11: what a checkpoint covered is readable at once, the rest after the replay."""
    cuts = operations_of_the_workload()
    assert cuts > 100
    for cut in range(1, cuts + 1):
        stored = two_directories()
        rng = None if survivors is None else random.Random(f"{survivors}/{cut}")
        stored.fs.cut_power_at(cut)
        with pytest.raises(PowerCut):
            workload(stored)
        check_after_power_cut(stored, rng)


def check_after_power_cut(stored: StoredLedgers, rng: random.Random | None) -> None:
    covered = StoredLedgers(ledger_dirs=("/a", "/b"))
    for record in stored.journal[: stored.mark]:
        record(covered.storage)
    stored.crash(rng)
    for ledger_id, entry_id in stored.entries:
        if covered.storage.last_entry_id(ledger_id) is not None:
            expected = covered.storage.read(ledger_id, [entry_id])
            if isinstance(expected[0], bytes):
                assert stored.read(ledger_id, [entry_id]) == expected, f"{ledger_id}/{entry_id} was below the mark"
    for ledger_id in stored.fenced:
        if covered.storage.is_loaded(ledger_id) and covered.storage.is_fenced(ledger_id):
            assert stored.storage.is_fenced(ledger_id)
    # The journal's last record may not have been synced before the cut: then nobody was told.
    stored.start()
    stored.replay()
    stored.check()
    stored.start()
    stored.storage.replay_finished()
    stored.check()


def test_a_power_cut_during_the_replay_is_survived_too() -> None:
    """I-53: replay is idempotent."""
    for cut in range(1, 400, 7):
        stored = two_directories()
        workload(stored)
        stored.add(5, 0, 20)
        stored.fence(5)
        stored.mark = 3  # most of it is replayed once more
        rng = random.Random(cut)
        stored.crash(rng)
        stored.fs.cut_power_at(cut)
        try:
            stored.replay()
        except PowerCut:
            stored.crash(rng)
            stored.replay()
        stored.check()


def test_buffers_that_fill_during_a_checkpoint_are_flushed_in_it_and_survive_a_power_cut() -> None:
    """I-58: the index of the batches that follow names them, so their log is synced first."""
    cut = 0
    while True:
        cut += 4
        stored = two_directories()
        for ledger_id in range(40):
            stored.add(ledger_id, 0, 2)

        def fill(op: Op, path: str, stored: StoredLedgers = stored) -> None:
            if op is Op.RENAME and path.endswith(("9.idx.new", "3.idx.new")) and stored.storage.can_rotate:
                for ledger_id in range(0, 40, 3):
                    stored.add(ledger_id, len(stored.journal), 1)
                stored.storage.rotate()

        stored.fs.on_operation = fill
        stored.fs.cut_power_at(cut)
        try:
            stored.checkpoint()
        except PowerCut:
            stored.fs.on_operation = None
            stored.crash(random.Random(cut))
            stored.replay()
            stored.check()
            continue
        assert stored.storage.counters.flushes > 1
        stored.fs.on_operation = None
        assert_the_durable_index_points_to_durable_bytes(stored, range(40))
        stored.crash()
        stored.replay()
        stored.check()
        return


def assert_the_durable_index_points_to_durable_bytes(stored: StoredLedgers, ledger_ids: range) -> None:
    found = 0
    for ledger_id in ledger_ids:
        directory = next(d for d in ("/a", "/b") if stored.fs.exists(f"{d}/current/{index_name(ledger_id)}"))
        index = stored.fs.durable_contents(f"{directory}/current/{index_name(ledger_id)}")
        for entry_id, location in enumerate(decode_slots(index[HEADER_SIZE:])):
            if location:
                log_id, offset = split_location(location)
                directory = next(d for d in ("/a", "/b") if stored.fs.exists(f"{d}/current/{log_name(log_id)}"))
                log = stored.fs.durable_contents(f"{directory}/current/{log_name(log_id)}")
                assert log[offset : offset + 16] == _ids(ledger_id, entry_id)
                found += 1
    assert found > len(ledger_ids)


def test_a_torn_header_is_read_from_its_other_copy() -> None:
    """The journal has only the change; key and fence of before must not be lost with the torn sector."""
    stored = StoredLedgers()
    stored.add(2, 0, 3)
    stored.fence(2)
    stored.checkpoint()
    path = "/a/current/0/2/2.idx"
    whole = stored.fs.contents(path)[:1024]
    for damaged in (0, 512):
        for offset in range(0, 512, 5):
            stored.fs.poke(path, damaged + offset, bytes([whole[damaged + offset] ^ 0x41]))
            stored.start()
            stored.check()
            stored.fs.poke(path, 0, whole)
    # a found tear is mended by the next checkpoint
    stored.fs.poke(path, 100, b"torn")
    stored.start()
    stored.check()
    stored.checkpoint()
    assert stored.fs.durable_contents(path)[:1024] == whole


def test_never_are_both_copies_of_a_header_unsynced() -> None:
    """Whatever a power cut tears, one copy is whole."""
    stored = StoredLedgers()
    stored.add(2, 0, 3)
    stored.checkpoint()
    path = "/a/current/0/2/2.idx"
    seen: list[tuple[bool, bool]] = []

    def look(_: Op, __: str) -> None:
        cached, durable = stored.fs.contents(path), stored.fs.durable_contents(path)
        seen.append((cached[:512] != durable[:512], cached[512:1024] != durable[512:1024]))

    stored.fs.on_operation = look
    stored.fence(2)
    stored.add(2, 3, 3)
    stored.checkpoint()
    assert set(seen) == {(False, False), (False, True), (True, False)}


def test_no_damaged_byte_of_an_entry_log_turns_into_a_negative_answer() -> None:
    """I-31, T9."""
    stored = StoredLedgers()
    stored.add(2, 0, 5)
    stored.checkpoint()
    path = "/a/current/1.log"
    for offset in range(len(stored.fs.contents(path))):
        assert_damage_is_never_denied(stored, path, offset)


def test_no_damaged_byte_of_an_index_file_turns_into_a_negative_answer() -> None:
    """I-31. Only single bytes: a location is never one byte away from 0, since log 0 is never written."""
    stored = StoredLedgers()
    stored.add(2, 0, 5)
    stored.checkpoint()
    path = "/a/current/0/2/2.idx"
    for offset in range(1024 + 5 * 8):
        assert_damage_is_never_denied(stored, path, offset)


def assert_damage_is_never_denied(stored: StoredLedgers, path: str, offset: int) -> None:
    """What a damaged body says is for the client's digest to judge; that the entry is there must not be denied."""
    original = stored.fs.contents(path)[offset]
    for value in {0, 0xFF, original ^ 1, original ^ 0x80} - {original}:
        stored.fs.poke(path, offset, bytes([value]))
        stored.start()
        stored.storage.replay_finished()
        for entry_id, result in enumerate(stored.read(2, range(5))):
            assert result is Status.IO_ERROR or (isinstance(result, bytes) and result[:16] == _ids(2, entry_id))
    stored.fs.poke(path, offset, bytes([original]))


@pytest.mark.parametrize("name", ["1.log", "0/2/2.idx"])
def test_no_cut_of_a_file_turns_into_a_negative_answer(name: str) -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 1100)
    stored.checkpoint()
    path = "/a/current/" + name
    size = len(stored.fs.contents(path))
    for kept in (*range(0, 1100, 50), 1024 + 8192, size - 8192, size // 2, size - 1):
        twin = StoredLedgers(settings=StorageSettings(), fs=stored.fs.clone())
        file = twin.fs.open(path, OpenMode.UPDATE)
        file.truncate(kept)
        file.sync()
        twin.start()
        twin.storage.replay_finished()
        results = twin.read(2, range(1100))
        assert not NEGATIVE & {result for result in results if isinstance(result, Status)}, f"cut at {kept}"


def test_a_missing_entry_log_is_an_error() -> None:
    stored = StoredLedgers()
    stored.add(2, 0, 5)
    stored.checkpoint()
    stored.fs.unlink("/a/current/1.log")
    stored.start()
    assert stored.read(2, range(6)) == [Status.IO_ERROR] * 5 + [Status.NO_ENTRY]


def test_a_full_disk_at_any_byte_count_loses_nothing() -> None:
    """I-68: refused or not, what was there stays, and once there is room everything goes on."""
    probe = StoredLedgers(settings=SMALL)
    workload(probe)
    for quota in range(0, probe.fs.used_bytes + 200, 977):
        stored = StoredLedgers(settings=SMALL)
        stored.fs.quota_bytes = quota
        run_until_full(stored)
        for entry_key, body in stored.entries.items():
            assert stored.read(entry_key[0], [entry_key[1]]) == [body]
        assert stored.storage.failure is None
        stored.fs.quota_bytes = None
        stored.directories.set_full(())
        workload(stored)
        stored.check()
        stored.crash(random.Random(quota))
        stored.replay()
        stored.check()


def test_new_index_files_that_a_full_disk_left_behind_have_durable_names_before_the_mark() -> None:
    """I-49, I-54: the checkpoint after it has other ledgers to write, and must not forget those of the one before."""
    probe = StoredLedgers()
    many_ledgers(probe)
    cut_short = 0
    for quota in range(probe.fs.used_bytes // 2, probe.fs.used_bytes, 2000):
        stored = StoredLedgers()
        stored.fs.quota_bytes = quota
        try:
            many_ledgers(stored)
        except NoWritableDisk:
            cut_short += 1
        stored.fs.quota_bytes = None
        stored.directories.set_full(())
        stored.checkpoint()
        stored.crash()
        stored.replay()
        stored.check()
    assert cut_short > 10


def many_ledgers(stored: StoredLedgers) -> None:
    """More new ledgers than are written at once."""
    for ledger_id in range(0, 30 * 256, 256):
        stored.add(ledger_id, 0, 2)
    stored.checkpoint()


def run_until_full(stored: StoredLedgers) -> None:
    try:
        workload(stored)
    except NoWritableDisk:
        with pytest.raises(NoWritableDisk):
            stored.checkpoint()


def test_one_full_directory_leaves_the_other_one_working() -> None:
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    stored.directories.mark_full("/a")
    for ledger_id in range(8):
        stored.add(ledger_id, 0, 20)
    stored.checkpoint()
    assert not any(name.endswith(".log") for name in stored.fs.listdir("/a/current"))
    stored.check()


@pytest.mark.parametrize("op", [Op.WRITE, Op.SYNC, Op.RENAME, Op.TRUNCATE, Op.SYNC_DIR, Op.CREATE])
def test_an_io_error_anywhere_stops_the_storage_and_a_restart_recovers(op: Op) -> None:
    """I-48."""
    for nth in range(1, 60, 3):
        stored = StoredLedgers(ledger_dirs=("/a", "/b"))
        stored.fs.fail_nth(op, nth, 5, drop_dirty=op is Op.SYNC)
        try:
            workload(stored)
        except (OSError, StorageError):
            assert stored.storage.failure is not None
            with pytest.raises(StorageError):
                stored.checkpoint()
            for ledger_id, entry_id in stored.entries:
                assert not NEGATIVE & set(map(_status, stored.read(ledger_id, [entry_id])))
        stored.crash(random.Random(nth))
        stored.replay()
        stored.check()


def _status(result: bytes | Status) -> Status | None:
    return result if isinstance(result, Status) else None


def _ids(ledger_id: int, entry_id: int) -> bytes:
    return ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
