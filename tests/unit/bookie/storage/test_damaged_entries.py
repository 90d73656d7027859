"""Once a read met damaged bytes of an entry log, all entries in them are found, without a round of the scrub (I-67)."""

import errno
import itertools
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.integrity.damage import record as damage_module
from bookkeeper.bookie.integrity.damage.entries import LEDGERS_STEP, STEP_BYTES
from bookkeeper.bookie.integrity.damage.record import Damage, DamageKind
from bookkeeper.bookie.integrity.damage.suspect_bytes import GONE, PAUSE_S, BadBytes
from bookkeeper.bookie.integrity.scrub.driver import LOOK_INTERVAL_S, Phase, Scrubber, ScrubSettings
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS, slot_offset
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFile, Op
from tests.support.manual_worker import ManualWorker
from tests.support.stored_ledgers import StoredLedgers

SETTINGS = StorageSettings(
    memtable_bytes_max=1 << 20, open_files_max=16, entry_log_bytes_max=50 << 10, block_bytes=16 << 10
)
WIDE = StorageSettings(memtable_bytes_max=1 << 30, open_files_max=16, entry_log_bytes_max=1 << 30, block_bytes=1 << 20)
LOG = "/a/current/1.log"


def stored_ledgers() -> StoredLedgers:
    """Two ledgers, of each of which two of three entries are here, share log 1, which is closed."""
    stored = StoredLedgers(settings=SETTINGS)
    for round_ in range(3):
        for ledger_id in (2, 3):
            for third in (0, 1):
                stored.add(ledger_id, round_ * 60 + third, 20, step=3, payload=b"x" * 300)
        stored.flush()
    stored.checkpoint()
    stored.start()
    stored.storage.replay_finished()
    return stored


def unreadable(stored: StoredLedgers) -> set[tuple[int, int]]:
    """All entries that cannot be read, one by one."""
    return {key for key in stored.entries if stored.read(key[0], [key[1]])[0] is Status.IO_ERROR}


def found(stored: StoredLedgers) -> set[tuple[int, int]]:
    """What the record names."""
    return {key for key in stored.entries if stored.storage.damage.among(key[0], [key[1]])}


def look(stored: StoredLedgers) -> int:
    """What the scrub does when a read met something; the steps."""
    scrub = stored.storage.scrub()
    assert scrub.looks_due
    sizes = list(scrub.looking_steps())
    assert max(sizes, default=0) <= STEP_BYTES
    return len(sizes)


def restarted(stored: StoredLedgers) -> StoredLedgers:
    stored.start()
    stored.storage.replay_finished()
    return stored


def lines_of(events: list[dict[str, object]]) -> list[str]:
    return [formatEvent(event) or "" for event in events]


@contextmanager
def counting_reads() -> Iterator[list[int]]:
    """The sizes of all reads of entry logs and index files."""
    sizes: list[int] = []
    pread = FaultyFile.pread

    def counted(self: FaultyFile, size: int, offset: int) -> bytes:
        data = pread(self, size, offset)
        if self.path.endswith((".log", ".idx")):
            sizes.append(len(data))
        return data

    with mock.patch.object(FaultyFile, "pread", counted):
        yield sizes


def flip(stored: StoredLedgers) -> None:
    stored.fs.poke(LOG, 20_000, b"?")


def cut(stored: StoredLedgers, size: int = 21_000) -> None:
    file = stored.fs.open(LOG, OpenMode.UPDATE)
    file.truncate(size)
    file.close()


def delete(stored: StoredLedgers) -> None:
    stored.fs.unlink(LOG)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_one_read_is_enough_to_find_every_entry_in_the_bytes_it_met(
    damage: Callable[[StoredLedgers], None], *, restarts: bool
) -> None:
    probe = stored_ledgers()
    damage(probe)
    probe.start()
    probe.storage.replay_finished()
    expected = unreadable(probe)
    assert len(expected) > 5
    assert {ledger_id for ledger_id, _ in expected} == {2, 3} or damage is flip

    stored = stored_ledgers()
    damage(stored)
    if restarts:
        stored.start()
        stored.storage.replay_finished()
    ledger_id, entry_id = max(expected)
    with capturedLogs() as events:
        assert stored.read(ledger_id, [entry_id]) == [Status.IO_ERROR]
        assert len(found(stored)) <= 1
        look(stored)
    lines = [formatEvent(event) or "" for event in events]
    assert len([line for line in lines if line.startswith(LOG) and "why ledger" in line]) == 1, lines
    assert len([line for line in lines if f"Of {LOG}" in line]) == 1, lines
    assert found(stored) == expected
    assert {each.kind for each in stored.storage.damage.all()} >= {
        DamageKind.CHANGED if damage is flip else DamageKind.GONE
    }
    assert unreadable(stored) == expected
    assert not stored.storage.scrub().looks_due, "one look per page"


@pytest.mark.parametrize("damage", [flip, cut, delete])
def test_the_record_is_empty_when_everything_was_written_anew(damage: Callable[[StoredLedgers], None]) -> None:
    """Though between the entries that are here there are some that never were."""
    stored = stored_ledgers()
    damage(stored)
    stored.start()
    stored.storage.replay_finished()
    list(stored.storage.scrub().steps(everything=True))
    before = found(stored)
    assert before == unreadable(stored)
    assert len(stored.storage.damage) > 0
    for ledger_id, entry_id in sorted(before):
        stored.add(ledger_id, entry_id, 1, payload=b"x" * 300)
    assert [each for each in stored.storage.damage.all() if each.ledger_id >= 0] == []
    list(stored.storage.scrub().steps(everything=True))  # the index names the old places until the next flush
    assert found(stored) == set()
    stored.checkpoint()
    list(stored.storage.scrub().steps(everything=True))
    assert found(stored) == set()
    assert stored.storage.damage.gone_count == 0


def test_the_record_is_empty_when_the_ledgers_were_deleted() -> None:
    stored = stored_ledgers()
    delete(stored)
    stored.start()
    stored.storage.replay_finished()
    list(stored.storage.scrub().steps(everything=True))
    assert stored.storage.damage.gone_count == len(stored.storage.damage) > 0
    assert stored.delete(2, 3) == [2, 3]
    assert (len(stored.storage.damage), stored.storage.damage.gone_count) == (0, 0)


def test_what_was_noted_while_it_was_written_anew_is_forgotten_by_the_look() -> None:
    stored = stored_ledgers()
    flip(stored)
    stored.start()
    stored.storage.replay_finished()
    (key,) = sorted(unreadable(stored))[:1]
    noted = stored.storage.damage.all()
    for ledger_id, entry_id in unreadable(stored):
        stored.add(ledger_id, entry_id, 1, payload=b"x" * 300)
    for damage in noted:
        stored.storage.damage.add(damage)  # as a read does that began before
    assert key in found(stored)
    look(stored)
    assert found(stored) == set()


def test_a_log_that_is_gone_is_one_line_whatever_is_read() -> None:
    stored = stored_ledgers()
    delete(stored)
    stored.start()
    stored.storage.replay_finished()
    with capturedLogs() as events:
        assert len(unreadable(stored)) > 50
    lines = [line for event in events if LOG in (line := formatEvent(event) or "")]
    assert len(lines) == 1
    assert f"{LOG} is missing; the index has entry " in lines[0]
    assert "bring it back" in lines[0]


def test_a_log_that_was_cut_short_is_one_line_whatever_is_read() -> None:
    stored = stored_ledgers()
    cut(stored, 4096 * 4)
    stored.start()
    stored.storage.replay_finished()
    with capturedLogs() as events:
        assert len(unreadable(stored)) > 50
    lines = [line for event in events if LOG in (line := formatEvent(event) or "")]
    assert len(lines) == 1, lines
    assert f"{LOG} at 16384: the entry log was cut short" in lines[0]


# --- what could not be told ------------------------------------------------------------------------------------------


def test_rounds_find_the_entries_of_a_gone_log_that_found_no_room_in_the_record_before() -> None:
    with mock.patch.object(damage_module, "DAMAGES_MAX", 1):
        stored = stored_ledgers()
        delete(stored)
        restarted(stored)
        scrub = stored.storage.scrub()
        with capturedLogs() as events:
            list(scrub.steps(everything=True))
        assert any("no room for all" in line for line in lines_of(events))
        first = found(stored)
        assert 0 < len(first) < len(unreadable(stored))
        for ledger_id, entry_id in sorted(first):
            stored.add(ledger_id, entry_id, 1, payload=b"x" * 300)
        stored.checkpoint()
        list(scrub.steps(everything=True))
        left = unreadable(stored)
        assert len(left) > 0
        assert found(stored) == left


@pytest.mark.parametrize(
    ("damage", "where"), [(flip, "index"), (cut, "index"), (delete, "index"), (flip, "log"), (cut, "log")]
)
def test_a_look_that_met_an_error_says_so_and_is_made_again_when_somebody_reads_there(
    damage: Callable[[StoredLedgers], None], where: str
) -> None:
    probe = stored_ledgers()
    damage(probe)
    expected = unreadable(restarted(probe))
    assert len(expected) > 8
    path = index_path("/a", 2) if where == "index" else LOG
    for after in itertools.count():
        stored = stored_ledgers()
        damage(stored)
        restarted(stored)
        now_s, reads = [1000.0], [0]
        stored.storage.damage.bad_bytes = BadBytes(lambda now_s=now_s: now_s[0])  # type: ignore[misc] # bound at once
        stored.read(*those(max(expected)))

        def fail(op: Op, of: str, *, reads: list[int] = reads, after: int = after) -> None:
            if op is Op.READ and of == path:
                reads[0] += 1
                if reads[0] > after:
                    raise OSError(errno.EIO, "Input/output error", of)

        with capturedLogs() as events:
            stored.fs.on_operation = fail
            look(stored)
            stored.fs.on_operation = None
        lines = lines_of(events)
        if reads[0] <= after:
            break  # it did not get to the error
        assert not [line for line in lines if "No entry that is still needed" in line or line.startswith("Of ")], lines
        assert len([line for line in lines if "Cannot tell now of all entries" in line]) == 1
        assert not stored.storage.scrub().looks_due
        for number in {ledger_id for ledger_id, _ in expected}:
            mine = [key for key in expected if key[0] == number]
            stored.read(*those(min(mine)))
            stored.read(*those(max(mine)))
        assert not stored.storage.scrub().looks_due, "an error that stays makes no look after the other"
        now_s[0] += PAUSE_S
        look(stored)
        assert found(stored) == expected, after
    assert after > 0
    assert found(stored) == expected


def those(key: tuple[int, int]) -> tuple[int, list[int]]:
    return key[0], [key[1]]


def test_a_look_that_is_broken_off_may_be_made_again() -> None:
    stored = stored_ledgers()
    delete(stored)
    restarted(stored)
    now_s = [1000.0]
    stored.storage.damage.bad_bytes = BadBytes(lambda: now_s[0])
    expected = unreadable(stored)
    scrub = stored.storage.scrub()
    steps = scrub.looking_steps()
    next(steps)
    assert not scrub.looks_due, "one at a time"
    del steps
    now_s[0] += PAUSE_S
    assert not scrub.looks_due
    stored.read(*those(min(expected)))
    assert look(stored) > 0
    assert found(stored) == expected


def test_a_round_says_nothing_of_needed_entries_where_it_could_not_tell() -> None:
    stored = stored_ledgers()
    flip(stored)
    expected = unreadable(restarted(stored))
    restarted(stored)
    scrub = stored.storage.scrub()

    def fail(op: Op, path: str) -> None:
        if op is Op.READ and path.endswith(".idx"):
            raise OSError(errno.EIO, "Input/output error", path)

    stored.fs.on_operation = fail
    with capturedLogs() as events:
        list(scrub.steps(everything=True))
    stored.fs.on_operation = None
    assert not [line for line in lines_of(events) if "no entry that is still needed" in line]
    assert not stored.storage.damage.in_file(LOG)
    list(scrub.steps(everything=True))
    assert found(stored) == expected


def test_a_round_says_nothing_of_needed_entries_where_the_record_has_no_room_for_them() -> None:
    stored = stored_ledgers()
    flip(stored)
    stored.fs.poke(LOG, 4096 * 8, b"??")
    restarted(stored)
    with mock.patch.object(damage_module, "DAMAGES_MAX", 1), capturedLogs() as events:
        list(stored.storage.scrub().steps(everything=True))
    assert stored.storage.damage.omitted_count > 0
    assert not [line for line in lines_of(events) if "no entry that is still needed" in line]


def test_a_gone_log_is_not_told_of_where_its_index_page_found_no_room_in_the_record() -> None:
    stored = StoredLedgers(settings=WIDE)
    stored.replay()
    stored.add(2, 0, 1100)
    stored.checkpoint()
    stored.storage.end_log()
    restarted(stored)
    stored.fs.poke(index_path("/a", 2), slot_offset(3) + 6, b"\x77\x77")
    stored.fs.unlink(LOG)
    restarted(stored)
    record = stored.storage.damage
    with mock.patch.object(damage_module, "DAMAGES_MAX", 1):
        record.add(Damage(9, 0, 0, "/a/current/9.log", 0, "another"))
        stored.read(2, [3])
        assert record.has_pages
        record.bad_bytes.met(1, GONE)
        with capturedLogs() as events:
            look(stored)
    assert found(stored) == set()
    assert any("Cannot tell now of all entries" in line for line in lines_of(events))


# --- how much it reads, and how often --------------------------------------------------------------------------------


def test_an_index_page_full_of_garbage_makes_no_looks_and_no_lines_of_logs_that_never_were() -> None:
    stored = StoredLedgers(settings=WIDE)
    stored.replay()
    stored.add(1000, 0, 1100)
    stored.checkpoint()
    stored.storage.end_log()
    restarted(stored)
    garbage = random.Random(1).randbytes(8 * PAGE_SLOTS)
    stored.fs.poke(index_path("/a", 1000), slot_offset(0), garbage)
    restarted(stored)
    with capturedLogs() as events:
        results = stored.read(1000, list(range(1100)))
    assert results[:PAGE_SLOTS] == [Status.IO_ERROR] * PAGE_SLOTS
    assert not [line for line in lines_of(events) if "is missing" in line]
    assert not stored.storage.scrub().looks_due


def test_one_pass_over_the_index_serves_all_logs_that_are_gone() -> None:
    settings = StorageSettings(
        memtable_bytes_max=1 << 20, open_files_max=16, entry_log_bytes_max=3000, block_bytes=1000
    )
    stored = StoredLedgers(settings=settings)
    for ledger_id in range(40):
        stored.add(ledger_id, 0, 6, payload=b"x" * 300)
    stored.checkpoint()
    restarted(stored)
    gone = stored.storage.entry_logs.log_ids[:12]
    for log_id in gone:
        stored.fs.unlink(f"/a/current/{log_id:x}.log")
    restarted(stored)
    expected = unreadable(stored)
    opened: list[str] = []
    stored.fs.on_operation = lambda op, path: opened.append(path) if op is Op.OPEN and ".idx" in path else None
    with capturedLogs() as events:
        look(stored)
    stored.fs.on_operation = None
    assert found(stored) == expected
    assert max(opened.count(path) for path in opened) <= 2, "the pass, and the cache"
    assert len(lines_of(events)) < len(gone), "bounded"


@pytest.mark.parametrize("damage", [flip, delete])
def test_what_a_look_reads_is_told_to_the_rate(damage: Callable[[StoredLedgers], None]) -> None:
    stored = StoredLedgers(settings=WIDE)
    for ledger_id in (2, 3):
        stored.add(ledger_id, 0, 80_000, payload=b"")
    for ledger_id in range(4, 4 + LEDGERS_STEP):
        stored.add(ledger_id, 0, 1, payload=b"")
    stored.checkpoint()
    stored.storage.end_log()
    stored.entries.clear()
    restarted(stored)
    for ledger_id in stored.keys:
        stored.read(ledger_id, list(range(80_000 if ledger_id < 4 else 1)))  # the look reads nothing into the cache
    damage(stored)
    stored.storage.damage.bad_bytes.met(1, GONE if damage is delete else 20_000 // 4096)
    with counting_reads() as reads:
        sizes = list(stored.storage.scrub().looking_steps())
    assert sum(reads) > 2 * 80_000 * 8
    assert sum(sizes) == sum(reads)
    assert max(sizes) <= STEP_BYTES


def test_a_look_keeps_to_the_rate_while_a_round_waits() -> None:
    stored = StoredLedgers(settings=WIDE)
    for ledger_id in (2, 3):
        stored.add(ledger_id, 0, 200_000, payload=b"")
    stored.entries.clear()
    stored.checkpoint()
    stored.storage.end_log()
    delete(stored)
    restarted(stored)
    list(stored.storage.scrub().steps(everything=False))
    clock, worker, scrub = Clock(), ManualWorker(), stored.storage.scrub()
    rate = 100_000
    scrubber = Scrubber(scrub, stored.storage.damage, clock, worker, ScrubSettings(0, rate), lambda: 0)
    scrubber.start()
    stored.storage.damage.bad_bytes.begin_round(())
    stored.storage.read_cold(2, [7])
    with counting_reads() as reads:
        seconds = 0
        while seconds < 100 and (seconds < LOOK_INTERVAL_S * 2 or scrubber.status().doing != Phase.IDLE.value):
            worker.run_all()
            clock.advance(1.0)
            seconds += 1
            cache_loads = 400 * 8 * PAGE_SLOTS
            assert sum(reads) <= seconds * rate + 2 * STEP_BYTES + cache_loads
    assert seconds > 2 * 200_000 * 8 // rate
    assert len(stored.storage.damage.among(3, range(200_000))) == 200_000


@pytest.mark.parametrize("gone", [True, False])
def test_a_look_at_a_big_ledger_holds_one_index_page_in_memory(*, gone: bool) -> None:
    stored = StoredLedgers(settings=replace(WIDE, index_cache_bytes_max=100_000))
    stored.add(2, 0, 60_000, payload=b"")
    stored.entries.clear()
    stored.journal.clear()
    stored.checkpoint()
    stored.storage.end_log()
    restarted(stored)
    if gone:
        delete(stored)
        restarted(stored)
    else:
        stored.fs.poke(LOG, 500_000, b"?")
    stored.storage.damage.bad_bytes.met(1, GONE if gone else 500_000 // 4096)
    steps = stored.storage.scrub().looking_steps()
    tracemalloc.start()
    for _ in steps:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(stored.storage.damage.among(2, range(60_000))) == 60_000 if gone else 100
    assert peak < 1_000_000


# --- what changes meanwhile -------------------------------------------------------------------------------------------


def test_a_checkpoint_between_any_two_steps_of_a_look_hides_no_entry_from_it() -> None:
    for at in itertools.count():
        stored = StoredLedgers(settings=WIDE)
        stored.add(2, 0, 1100, payload=b"")
        stored.flush()
        stored.checkpoint()
        stored.entries.clear()
        restarted(stored)
        stored.add(2, 3000, 20, payload=b"y" * 300)
        stored.flush()  # in the log; no index file has them yet
        log_id = max(stored.storage.entry_logs.log_ids)
        path = stored.storage.entry_logs.path_of(log_id)
        assert path is not None
        stored.storage.entry_logs.roll()
        stored.fs.poke(path, 2000, b"?")
        stored.storage.damage.bad_bytes.met(log_id, 2000 // 4096)
        at_read = [0]

        def checkpoint(
            op: Op, path: str, *, stored: StoredLedgers = stored, at_read: list[int] = at_read, at: int = at
        ) -> None:
            if op in (Op.READ, Op.CLOSE) and path.endswith(".idx"):
                at_read[0] += 1
                if at_read[0] == at + 1:
                    stored.fs.on_operation = None
                    stored.checkpoint()

        stored.fs.on_operation = checkpoint
        look(stored)
        came = stored.fs.on_operation is None
        stored.fs.on_operation = None
        seen = found(stored)
        assert len(seen) > 5
        assert seen == unreadable(stored), at
        if not came:
            break
    assert at > 2


def test_a_read_that_ends_after_its_entry_was_written_anew_leaves_no_damage_though_its_page_was_looked_at() -> None:
    stored = stored_ledgers()
    flip(stored)
    restarted(stored)
    bad = unreadable(stored)
    look(stored)
    ledger_id, entry_id = min(bad)
    restarted(stored)
    stored.storage.damage.bad_bytes.looked_at(1, [20_000 // 4096])

    def write_anew(op: Op, path: str) -> None:
        if op is Op.READ and path == LOG:
            stored.fs.on_operation = None
            for each in bad:
                stored.add(*each, 1, payload=b"x" * 300)

    stored.storage.load_cold(ledger_id)
    stored.fs.on_operation = write_anew
    assert stored.storage.read_cold(ledger_id, [entry_id]) == [Status.IO_ERROR]
    assert found(stored) == {(ledger_id, entry_id)}
    look(stored)
    assert found(stored) == set()
    assert not stored.storage.scrub().looks_due


def test_what_was_noted_of_a_log_that_compaction_removed_meanwhile_is_forgotten_with_several_directories() -> None:
    stored = StoredLedgers(ledger_dirs=("/a", "/b"), index_dirs=("/a",), settings=SETTINGS)
    for round_ in range(3):
        stored.add(2, round_ * 60, 20, step=3, payload=b"x" * 300)
        stored.flush()
    stored.checkpoint()
    stored.storage.end_log()
    restarted(stored)
    log_id = stored.storage.entry_logs.log_ids[0]
    path = stored.storage.entry_logs.path_of(log_id)
    assert path is not None
    stored.compact(log_id)
    stored.storage.damage.add(Damage(2, 0, 0, path, 4096, "a read that looked the entry up before"))
    stored.storage.damage.bad_bytes.met(log_id, 1)
    look(stored)
    assert stored.storage.damage.all() == []


def test_the_last_page_of_a_log_being_written_may_be_looked_at_again_when_more_was_written() -> None:
    stored = StoredLedgers(settings=WIDE)
    now_s = [1000.0]
    stored.storage.damage.bad_bytes = BadBytes(lambda: now_s[0])
    stored.add(2, 0, 5, payload=b"x" * 300)
    stored.checkpoint()
    stored.fs.poke(LOG, 1024 + 4 + 8, b"\x77" * 8)
    stored.read(2, [0])
    look(stored)
    stored.add(3, 0, 60, payload=b"x" * 300)
    stored.checkpoint()
    stored.storage.end_log()
    now_s[0] += PAUSE_S
    assert stored.read(3, [0]) == [Status.IO_ERROR]
    look(stored)
    expected = unreadable(stored)
    assert len(expected) > 5
    stored.storage.damage.bad_bytes = BadBytes()
    assert found(stored) == expected


def test_a_log_that_is_cut_again_is_looked_at_again() -> None:
    stored = stored_ledgers()
    cut(stored, 40_000)
    restarted(stored)
    first = unreadable(stored)
    look(stored)
    assert found(stored) == first
    cut(stored, 20_000)
    left = sorted(set(stored.entries) - first)
    next(key for key in left if stored.read(key[0], [key[1]]) == [Status.IO_ERROR])
    look(stored)
    seen = found(stored)
    assert seen == unreadable(restarted(stored))


def test_entries_beside_one_whose_size_is_damaged_are_found_in_a_log_without_checksums() -> None:
    """It looks as if the log were cut short."""
    stored = stored_ledgers()
    stored.fs.unlink("/a/current/1.crc")
    restarted(stored)
    data = stored.fs.contents(LOG)
    ledger_id, entry_id = 3, 60
    body = stored.entries[ledger_id, entry_id]
    at = data.index(body)
    stored.fs.poke(LOG, at - 4, b"\x3f")
    stored.fs.poke(LOG, at + len(body) + 4, b"\x77" * 16)  # the ids of the next one
    expected = unreadable(restarted(stored))
    assert len(expected) == 2
    restarted(stored)
    assert stored.read(ledger_id, [entry_id]) == [Status.IO_ERROR]
    look(stored)
    assert found(stored) == expected
