"""Copies read in place: each gets the verdict that it deserves, and what cannot be told is unknown (I-31, I-59)."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Sequence

import pytest

from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.journal.format import entry_record
from bookkeeper.bookie.storage.index.format import HEADER_SIZE, PAGE_SIZE, slot_offset
from bookkeeper.model import DigestType
from bookkeeper.rate_limit import Pace
from bookkeeper.spark.stored_copies import LedgerToVerify, Plan, UnitResult, open_bookie
from bookkeeper.spark.stored_copies.journaled import JournaledEntries, TooManyJournaled
from bookkeeper.spark.stored_copies.kernel import LedgerCheck
from bookkeeper.spark.stored_copies.model import LogUnit
from bookkeeper.spark.stored_copies.planning import Planning
from bookkeeper.spark.stored_copies.verification import LogVerification, Pacing, Reading
from bookkeeper.wire.digest import Crc32cDigest, digest_of, master_key
from tests.support.faulty_filesystem import Op
from tests.support.stored_copies import PASSWORD, StoredCopies, flattened, run_all, slow_verdicts, verdicts

LEDGER, OTHER = 7, 0x1234
COUNT = 1500


@pytest.fixture
def disk() -> StoredCopies:
    """Two ledgers, mixed, over several entry logs in two directories."""
    disk = StoredCopies()
    disk.create(LEDGER)
    disk.create(OTHER)
    for first in range(0, COUNT, 100):
        disk.add(LEDGER, range(first, first + 100))
        disk.add(OTHER, range(first, first + 100))
        disk.checkpoint()
    return disk


def results(disk: StoredCopies) -> tuple[Plan, list[UnitResult]]:
    with disk.open() as bookie:
        return run_all(bookie, disk.asked)


def changed(disk: StoredCopies) -> dict[tuple[int, int], object]:
    """The copies that are not good."""
    found, expected = verdicts(disk), disk.expected
    assert set(found) <= set(expected)
    return {key: found.get(key, "missing") for key in expected if found.get(key) != expected[key]}


# --- good -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digest_type", DigestType)
def test_what_was_written_is_good_whatever_the_digest(digest_type: DigestType) -> None:
    disk = StoredCopies()
    disk.create(LEDGER, digest_type)
    disk.add(LEDGER, range(300))
    disk.checkpoint()
    disk.journal(LEDGER, range(300, 320))
    assert verdicts(disk) == disk.expected
    journaled, *stored = [result.good[LEDGER] for result in results(disk)[1]]
    assert journaled.ranges() == [(300, 319)]
    assert stored[0].ranges()[0][0] == 0


def test_entries_of_many_logs_are_good_and_the_plan_names_what_is_held(disk: StoredCopies) -> None:
    plan, found = results(disk)
    assert flattened(plan, found, disk.bodies) == disk.expected
    assert list(plan.ledger_ids) == [LEDGER, OTHER]
    assert len({unit.path for unit in plan.units if isinstance(unit, LogUnit)}) > 3
    assert sum(result.bytes_verified for result in found) == sum(len(body) - 36 for body in disk.bodies.values())
    assert all(set(unit.ledger_ids) <= {LEDGER, OTHER} for unit in plan.units)


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.DUMMY])
def test_an_entry_longer_than_what_is_read_at_once_is_good_as_a_whole(digest_type: DigestType) -> None:
    disk = StoredCopies()
    disk.create(LEDGER, digest_type)
    disk.add(LEDGER, range(20), size_max=200_000)
    disk.checkpoint()
    assert verdicts(disk) == disk.expected


def test_copies_that_lie_in_another_order_than_their_entries_are_good_and_read_together() -> None:
    disk = StoredCopies()
    disk.create(LEDGER)
    for entry_id in range(30, 0, -1):
        disk.add(LEDGER, [entry_id], size_max=60)
        disk.checkpoint()
    assert verdicts(disk) == disk.expected
    assert small_run(disk, random.Random(1)) == disk.expected
    with disk.open() as bookie:
        (unit,) = bookie.plan().units
        before = disk.fs.counts[Op.READ]
        bookie.verify(unit, disk.asked)
    assert disk.fs.counts[Op.READ] - before < 20


def test_a_sector_that_cannot_be_read_costs_only_the_copies_on_it(disk: StoredCopies) -> None:
    path, _ = disk.place_of(LEDGER, 250)
    disk.fs.fail_nth(Op.READ, 3, errno.EIO, path=path)  # after the header and the window: one copy
    disk.fs.fail_nth(Op.READ, 2, errno.EIO, path=path)
    bad = changed(disk)
    assert list(bad.values()) == ["UNREADABLE"]


def test_a_stale_copy_in_an_entry_log_is_no_copy(disk: StoredCopies) -> None:
    path, offset = disk.place_of(LEDGER, 3)
    disk.add(LEDGER, [3])
    disk.checkpoint()
    disk.flip(path, offset + 40)
    assert disk.place_of(LEDGER, 3) != (path, offset)
    assert changed(disk) == {}


# --- bad ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [16, 24, 32, 36])
def test_a_byte_that_changed_is_found_by_the_digest(disk: StoredCopies, at: int) -> None:
    disk.add(LEDGER, [COUNT], size_max=100)
    disk.checkpoint()
    key = max((key for key in disk.bodies if len(disk.bodies[key]) > 40), key=lambda key: key[1])
    path, offset = disk.place_of(*key)
    disk.flip(path, offset + at)
    assert changed(disk) == {key: "DIGEST"}
    (bad,) = [bad for result in results(disk)[1] for bad in result.bad]
    assert (bad.ledger_id, bad.first_entry_id, bad.last_entry_id) == (*key, key[1])
    assert (bad.path, bad.offset) == (path, offset)
    assert "CRC32C" in bad.detail


@pytest.mark.parametrize("at", [0, 8, 15])
def test_ids_that_changed_are_another_entry(disk: StoredCopies, at: int) -> None:
    path, offset = disk.place_of(OTHER, 40)
    disk.flip(path, offset + at)
    assert changed(disk) == {(OTHER, 40): "OTHER_ENTRY"}


@pytest.mark.parametrize("size", [-5, 0, 15, 1 << 30, 30_000])
def test_a_length_that_cannot_be_is_said(disk: StoredCopies, size: int) -> None:
    path, offset = disk.place_of(OTHER, 40)
    disk.write(path, offset - 4, struct.pack(">i", size))
    assert changed(disk) == {(OTHER, 40): "LENGTH"}


def test_lengths_that_changed_together_take_no_more_memory_than_the_log(disk: StoredCopies) -> None:
    for entry_id in range(100):
        path, offset = disk.place_of(OTHER, entry_id)
        disk.write(path, offset - 4, struct.pack(">i", (1 << 31) - 1))
    assert changed(disk) == {(OTHER, entry_id): "LENGTH" for entry_id in range(100)}


class _Sizes(Crc32cDigest):
    """Notes how many bytes it was given."""

    given = 0

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        self.given = max(self.given, sum(map(len, bodies)))
        return super().verify(ledger_id, entry_ids, bodies)


def test_lengths_that_overlap_are_not_cut_out_one_by_one() -> None:
    digest = _Sizes()
    window = struct.pack(">i", 80_000) * 25_000
    check = LedgerCheck(LEDGER, digest)
    offsets = range(4, 4 + 4 * 1000, 4)
    assert check.take_window(window, 0, range(1000), offsets) == list(range(1000))
    assert digest.given <= 2 * len(window)


def test_a_body_shorter_than_its_digest_is_bad() -> None:
    disk = StoredCopies()
    disk.create(LEDGER, DigestType.MAC)
    body = disk.package(LEDGER, [0])[0][:40]
    disk.storage.add(LEDGER, [0], [body])
    disk.checkpoint()
    disk.bodies[LEDGER, 0] = body.ljust(52)
    assert set(changed(disk).values()) == {"LENGTH"}


def test_a_log_that_is_gone_takes_its_copies_with_it(disk: StoredCopies) -> None:
    path, _ = disk.place_of(LEDGER, 333)
    disk.fs.unlink(path)
    bad = changed(disk)
    assert (LEDGER, 333) in bad
    assert set(bad.values()) == {"NO_PLACE"}
    plan, found = results(disk)
    assert not [bad for result in found for bad in result.bad]
    assert len(plan.bad) < len(bad), "neighbours are said together"


def test_of_a_log_that_is_gone_what_the_journal_has_is_good(disk: StoredCopies) -> None:
    path, _ = disk.place_of(LEDGER, 333)
    disk.journal(LEDGER, [333])
    disk.fs.unlink(path)
    bad = changed(disk)
    assert bad
    assert (LEDGER, 333) not in bad


def test_a_log_that_was_cut_loses_what_was_behind(disk: StoredCopies) -> None:
    path, offset = disk.place_of(LEDGER, 333)
    disk.replace_file(path, disk.fs.contents(path)[: offset + 30])
    bad = changed(disk)
    assert bad.pop((LEDGER, 333)) == "LENGTH"
    assert set(bad.values()) == {"NO_PLACE"}


@pytest.mark.parametrize(
    ("location", "verdict"),
    [
        ((5000 << 32) + 2000, "NO_PLACE"),
        ((2 << 32) - 1, "NO_PLACE"),
        (-7, "NO_PLACE"),
        ((1 << 32) + 1028, "OTHER_ENTRY"),
        ((1 << 32) + 2, "NO_PLACE"),
    ],
)
def test_a_location_that_is_wrong_is_said(disk: StoredCopies, location: int, verdict: str) -> None:
    disk.without_side_files()
    disk.write(disk.index_of(LEDGER), slot_offset(500), struct.pack(">q", location))
    assert changed(disk) == {(LEDGER, 500): verdict}


# --- entry log 0, as Apache's bookies have ---------------------------------------------------------------------------


@pytest.fixture
def striped() -> StoredCopies:
    """Two ledgers of which the bookie has two entries of three, of which many are in entry log 0."""
    disk = StoredCopies()
    for ledger_id in (LEDGER, OTHER):
        disk.create(ledger_id)
        disk.add(ledger_id, [entry_id for entry_id in range(60) if entry_id % 3 != 1], size_max=30)
        disk.checkpoint()
    disk.number_logs_from_zero()
    assert disk.place_of(LEDGER, 0)[0].endswith("/0.log")
    return disk


def test_what_a_bookie_does_not_have_is_missing_also_beside_what_is_in_entry_log_0(striped: StoredCopies) -> None:
    assert verdicts(striped) == striped.expected
    assert small_run(striped, random.Random(1)) == striped.expected
    assert not [bad for result in results(striped)[1] for bad in result.bad]
    striped.write(striped.index_of(LEDGER), slot_offset(3), bytes(8))
    assert changed(striped) == {(LEDGER, 3): "missing"}


def test_beside_entry_log_0_what_a_damaged_journal_may_have_had_is_unknown(striped: StoredCopies) -> None:
    missing = [entry_id for entry_id in range(60) if entry_id % 3 == 1]
    striped.journal(LEDGER, missing[:10])
    striped.journal(LEDGER, missing[10:])
    striped.flip("/j0/current/1.txn", 1024 + 200)
    assert changed(striped) == {(LEDGER, entry_id): "unknown" for entry_id in missing}


def test_a_location_in_the_header_of_entry_log_0_is_said(striped: StoredCopies) -> None:
    striped.write(striped.index_of(LEDGER), slot_offset(3), struct.pack(">q", 1))
    striped.write(striped.index_of(LEDGER), slot_offset(5), struct.pack(">q", 500))
    assert changed(striped) == {(LEDGER, 3): "NO_PLACE", (LEDGER, 5): "OTHER_ENTRY"}


def test_of_a_ledger_that_nobody_asked_for_only_copies_are_counted_in_entry_log_0(striped: StoredCopies) -> None:
    del striped.asked[OTHER]
    sizes = [len(body) for key, body in striped.bodies.items() if key[0] == OTHER]
    others = [result.others[OTHER] for result in results(striped)[1] if OTHER in result.others]
    assert sum(other.entry_count for other in others) == len(sizes)
    assert sum(other.byte_count for other in others) == sum(sizes)


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("log_id", [0, 1])
def test_a_location_where_no_body_can_be_of_a_ledger_that_nobody_asked_for_has_no_bytes(
    striped: StoredCopies, log_id: int, offset: int
) -> None:
    del striped.asked[OTHER]
    assert striped.place_of(OTHER, 0)[0].endswith("/0.log")
    striped.write(striped.index_of(OTHER), slot_offset(0), struct.pack(">q", log_id << 32 | offset))
    sizes = [len(body) for key, body in striped.bodies.items() if key[0] == OTHER and key[1]]
    others = [result.others[OTHER] for result in results(striped)[1] if OTHER in result.others]
    assert sum(other.byte_count for other in others) == sum(sizes)


# --- unknown --------------------------------------------------------------------------------------------------------


def test_a_page_that_fails_its_checksum_denies_nothing_and_what_it_names_counts_where_it_proves_good(
    disk: StoredCopies,
) -> None:
    disk.write(disk.index_of(LEDGER), slot_offset(100), bytes(8 * 50))
    for entry_id, location in ((300, (1 << 32) + 1028), (301, 5000 << 32), (302, (1 << 32) - 1)):
        disk.write(disk.index_of(LEDGER), slot_offset(entry_id), struct.pack(">q", location))
    assert changed(disk) == {(LEDGER, entry_id): "unknown" for entry_id in (*range(100, 150), 300, 301, 302)}


def test_without_checksums_zeros_are_no_entry(disk: StoredCopies) -> None:
    disk.without_side_files()
    disk.write(disk.index_of(LEDGER), slot_offset(100), bytes(8))
    assert changed(disk) == {(LEDGER, 100): "missing"}


def test_an_index_without_a_good_header_makes_its_ledger_unknown(disk: StoredCopies) -> None:
    disk.write(disk.index_of(LEDGER), 0, bytes(HEADER_SIZE))
    assert changed(disk) == {key: "unknown" for key in disk.bodies if key[0] == LEDGER}


def test_an_index_that_is_gone_makes_its_ledger_unknown(disk: StoredCopies) -> None:
    disk.fs.unlink(disk.index_of(LEDGER))
    assert changed(disk) == {key: "unknown" for key in disk.bodies if key[0] == LEDGER}
    assert LEDGER in results(disk)[0].ledger_ids


def test_an_index_in_two_directories_makes_its_ledger_unknown(disk: StoredCopies) -> None:
    path = disk.index_of(LEDGER)
    other = path.replace("/i0/", "/i1/") if path.startswith("/i0/") else path.replace("/i1/", "/i0/")
    disk.fs.make_dirs(other.rpartition("/")[0])
    disk.replace_file(other, disk.fs.contents(path))
    assert changed(disk) == {key: "unknown" for key in disk.bodies if key[0] == LEDGER}


@pytest.mark.parametrize("checksums", [True, False])
def test_what_an_index_that_was_cut_had_is_unknown(disk: StoredCopies, checksums: bool) -> None:
    if not checksums:
        disk.without_side_files()
    path = disk.index_of(LEDGER)
    disk.replace_file(path, disk.fs.contents(path)[: HEADER_SIZE + PAGE_SIZE])
    assert changed(disk) == {(LEDGER, entry_id): "unknown" for entry_id in range(1024, COUNT)}


def test_what_an_index_that_was_cut_had_is_unknown_where_only_its_checksums_tell(disk: StoredCopies) -> None:
    path = disk.index_of(LEDGER)
    fields = struct.pack(">4sii", b"BKLE", 1, 20) + master_key(PASSWORD)
    disk.replace_file(path, fields.ljust(HEADER_SIZE, b"\0") + disk.fs.contents(path)[HEADER_SIZE:][:PAGE_SIZE])
    assert changed(disk) == {(LEDGER, entry_id): "unknown" for entry_id in range(1024, COUNT)}


def test_a_location_that_was_cut_is_unknown(disk: StoredCopies) -> None:
    disk.without_side_files()
    path = disk.index_of(LEDGER)
    fields = struct.pack(">4sii", b"BKLE", 1, 0)
    data = fields.ljust(HEADER_SIZE, b"\0") + disk.fs.contents(path)[HEADER_SIZE : slot_offset(COUNT - 1) + 3]
    disk.replace_file(path, data)
    assert changed(disk) == {(LEDGER, COUNT - 1): "unknown"}


def test_an_index_that_cannot_be_read_or_listed_is_unknown(disk: StoredCopies) -> None:
    path = disk.index_of(LEDGER)

    def refuse(op: Op, where: str) -> None:
        if op is Op.OPEN and where == path:
            raise OSError(errno.EACCES, "not allowed", where)

    disk.fs.on_operation = refuse
    assert changed(disk) == {key: "unknown" for key in disk.bodies if key[0] == LEDGER}
    disk.fs.on_operation = None
    disk.fs.fail_nth(Op.LIST, 1, errno.EIO, path=path.rpartition("/")[0])
    plan, _ = results(disk)
    assert [(one.ledger_id, one.path) for one in plan.unknown] == [(None, path.rpartition("/")[0])]


def test_an_index_page_that_cannot_be_read_is_unknown(disk: StoredCopies) -> None:
    with disk.open() as bookie:
        disk.fs.fail_nth(Op.READ, 2, errno.EIO, path=disk.index_of(LEDGER))
        plan = bookie.plan()
    assert [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in plan.unknown] == [(LEDGER, 0, 2047)]


def test_an_index_that_cannot_be_read_any_more_makes_the_copies_of_the_unit_unknown(disk: StoredCopies) -> None:
    with disk.open() as bookie:
        plan = bookie.plan()
        disk.fs.fail_nth(Op.OPEN, 1, errno.EIO, path=disk.index_of(LEDGER))
        unit = next(unit for unit in plan.units if len(unit.ledger_ids) == 2)
        result = bookie.verify(unit, disk.asked)
    assert [(one.ledger_id, one.last_entry_id) for one in result.unknown] == [(LEDGER, None)]
    assert LEDGER not in result.good
    assert OTHER in result.good


@pytest.mark.parametrize("op", [Op.OPEN, Op.READ])
def test_a_log_that_cannot_be_read_at_all_makes_its_copies_unknown(disk: StoredCopies, op: Op) -> None:
    path, _ = disk.place_of(LEDGER, 333)

    def refuse(at: Op, where: str) -> None:
        if at is op and where == path:
            raise OSError(errno.EIO, "broken", where)

    disk.fs.on_operation = refuse
    found = changed(disk)
    assert (LEDGER, 333) in found
    assert set(found.values()) == {"unknown"}


def test_a_log_of_a_later_version_is_unknown_and_one_with_a_damaged_header_is_read(disk: StoredCopies) -> None:
    path, _ = disk.place_of(LEDGER, 333)
    disk.write(path, 0, b"XXXX")
    assert changed(disk) == {}
    disk.write(path, 0, b"BKLO" + struct.pack(">i", 9))
    found = changed(disk)
    assert (LEDGER, 333) in found
    assert set(found.values()) == {"unknown"}


def test_a_password_that_is_not_the_ledgers_makes_no_copy_bad() -> None:
    disk = StoredCopies()
    disk.create(LEDGER, DigestType.MAC)
    disk.add(LEDGER, range(10))
    disk.checkpoint()
    disk.journal(LEDGER, range(10, 20))
    disk.asked[LEDGER] = LedgerToVerify(LEDGER, DigestType.MAC, b"another")
    assert set(verdicts(disk).values()) == {"unknown"}
    assert "secret" not in repr(LedgerToVerify(LEDGER, DigestType.MAC, PASSWORD))


# --- journals -------------------------------------------------------------------------------------------------------


def test_what_is_only_in_the_journal_is_a_copy(disk: StoredCopies) -> None:
    disk.journal(LEDGER, range(COUNT, COUNT + 50))
    disk.create(99)
    disk.journal(99, range(1, 2000, 2), index=1)
    assert changed(disk) == {}
    assert list(results(disk)[0].ledger_ids) == [LEDGER, 99, OTHER]


def test_the_journals_copy_counts_where_the_index_names_another(disk: StoredCopies) -> None:
    bodies = disk.journal(LEDGER, [10, 1100])
    path, offset = disk.place_of(LEDGER, 10)
    disk.flip(path, offset + 20)
    assert changed(disk) == {}
    broken = bytearray(bodies[1])
    broken[-1] ^= 1
    disk.write_journal([entry_record(bytes(broken))])
    assert changed(disk) == {(LEDGER, 1100): "DIGEST"}


def test_of_an_entry_that_comes_again_in_a_journal_the_last_counts(disk: StoredCopies) -> None:
    disk.journal(LEDGER, [COUNT, COUNT + 1, COUNT])
    disk.journal(LEDGER, [COUNT, 2])
    disk.journal(LEDGER, [COUNT + 1], index=1)
    assert changed(disk) == {}


def test_a_damaged_journal_makes_everything_else_unknown_and_no_good_copy_less_good(disk: StoredCopies) -> None:
    disk.journal(LEDGER, range(COUNT, COUNT + 50))
    disk.journal(LEDGER, range(COUNT + 50, COUNT + 100))
    disk.flip("/j0/current/1.txn", 1024 + 200)
    found = changed(disk)
    assert set(found.values()) == {"unknown"}
    assert set(found) == {(LEDGER, entry_id) for entry_id in range(COUNT, COUNT + 100)}


def test_a_journal_that_is_gone_makes_everything_else_unknown(disk: StoredCopies) -> None:
    disk.journal(LEDGER, range(COUNT, COUNT + 50))
    for directory in ("/l0", "/l1"):
        disk.replace_file(f"{directory}/current/lastMark.0", struct.pack(">qq", 1, 1024))
    disk.fs.unlink("/j0/current/1.txn")
    assert set(changed(disk).values()) == {"unknown"}


def test_a_journal_is_read_in_parts(disk: StoredCopies) -> None:
    for ledger_id in range(100, 130):
        disk.create(ledger_id)
        disk.journal(ledger_id, [0, 1, 70_000, 1])
    with disk.open() as bookie:
        plan = Planning(disk.fs, disk.directories, disk.cookie, only=None, journal_unit_entries_max=40).run()
        found = [bookie.verify(unit, disk.asked) for unit in plan.units]
    assert flattened(plan, found, disk.bodies) == disk.expected
    sizes = [sum(map(len, result.good.values())) for result in found[:3]]
    assert len(plan.units) > 3
    assert sum(sizes) == 90
    assert min(sizes) > 10


def test_more_journaled_entries_than_are_kept_in_mind_are_refused() -> None:
    entries = JournaledEntries(count_max=10)
    entries.entries(LEDGER, list(range(10)), [b""] * 10)
    with pytest.raises(TooManyJournaled, match="Start the bookie"):
        entries.entries(LEDGER, [10], [b""])


# --- ledgers --------------------------------------------------------------------------------------------------------


def test_ledgers_that_nobody_asked_for_are_counted(disk: StoredCopies) -> None:
    disk.journal(OTHER, range(COUNT, COUNT + 5))
    asked = disk.asked.pop(OTHER)
    sizes = [len(body) for key, body in disk.bodies.items() if key[0] == OTHER]
    _, found = results(disk)
    others = [result.others[OTHER] for result in found if OTHER in result.others]
    assert sum(other.entry_count for other in others) == len(sizes)
    assert sum(other.byte_count for other in others) == sum(sizes)
    assert not any(OTHER in result.good for result in found)
    disk.asked[OTHER] = asked


def test_a_plan_of_some_ledgers_reads_no_others(disk: StoredCopies) -> None:
    disk.journal(OTHER, range(COUNT, COUNT + 5))
    disk.journal(LEDGER, range(COUNT, COUNT + 5))
    with disk.open() as bookie:
        plan = bookie.plan(only={LEDGER})
        found = [bookie.verify(unit, disk.asked) for unit in plan.units]
    expected = {key: verdict for key, verdict in disk.expected.items() if key[0] == LEDGER}
    assert flattened(plan, found, expected) == expected
    assert list(plan.ledger_ids) == [LEDGER, OTHER]
    assert not any(result.others for result in found[1:])


def test_a_deleted_ledger_is_not_held_and_one_that_came_back_is_told_apart(disk: StoredCopies) -> None:
    disk.storage.delete(Deletion(tuple(disk.storage.doom([OTHER])), moved=True))
    disk.storage.revive([OTHER])
    plan, _ = results(disk)
    assert list(plan.ledger_ids) == [LEDGER]
    assert plan.tombstones == {}
    disk.journal(OTHER, [5])
    plan, found = results(disk)
    assert plan.tombstones == {OTHER: TombstoneKind.MOVED}
    assert flattened(plan, found, [])[OTHER, 5] == disk.expected[OTHER, 5]


# --- windows, pace, the twin ----------------------------------------------------------------------------------------


def small_run(disk: StoredCopies, rng: random.Random) -> dict[tuple[int, int], object]:
    """With units and windows so small that entries cross them."""
    plan = Planning(
        disk.fs, disk.directories, disk.cookie, only=None, unit_bytes_max=rng.choice([700, 2000, 1 << 20])
    ).run()
    found = []
    with disk.open() as bookie:
        for unit in plan.units:
            if isinstance(unit, LogUnit):
                reading = Reading(Pacing(Pace(0), lambda: 0.0, lambda _: None), lambda _: None)
                found.append(
                    LogVerification(
                        disk.fs, disk.directories, unit, disk.asked, reading, window_size=rng.choice([64, 300, 5000])
                    ).run()
                )
            else:
                found.append(bookie.verify(unit, disk.asked))
    return dict(flattened(plan, found, disk.bodies))


@pytest.mark.parametrize("seed", range(25))
def test_the_slow_twin_says_the_same(seed: int) -> None:
    rng = random.Random(seed)
    disk = StoredCopies(rng=rng)
    ledger_ids = rng.sample(range(1 << 40), 4)
    for ledger_id in ledger_ids:
        disk.create(ledger_id, rng.choice(list(DigestType)))
    for _ in range(rng.randrange(12)):
        ledger_id = rng.choice(ledger_ids)
        first = rng.randrange(3000)
        disk.add(
            ledger_id,
            range(first, first + rng.randrange(1, 200), rng.choice([1, 1, 3])),
            size_max=rng.choice([0, 300, 3000]),
        )
        if rng.random() < 0.5:
            disk.checkpoint()
    disk.checkpoint()
    disk.without_side_files()
    if seed % 2:
        disk.number_logs_from_zero()
    for _ in range(rng.randrange(4)):
        first = rng.randrange(3000)
        disk.journal(rng.choice(ledger_ids), range(first, first + 30), index=rng.randrange(2))
    logs = [path for path in disk.fs.paths() if path.endswith(".log")]
    for path in logs:
        size = len(disk.fs.contents(path))
        for _ in range(rng.choice([0, 0, 1, 5])):
            if size > 1024:
                disk.flip(path, rng.randrange(1024, size))
    for path in [path for path in disk.fs.paths() if path.endswith(".idx")]:
        size = len(disk.fs.contents(path))
        if size > HEADER_SIZE and rng.random() < 0.5:
            at = HEADER_SIZE + 8 * rng.randrange((size - HEADER_SIZE) // 8)
            disk.write(path, at, struct.pack(">q", rng.choice([0, 1028, 1 << 32 | 5000, 1 << 40, -1])))
    expected = slow_verdicts(disk.fs, disk.directories, disk.asked)
    assert verdicts(disk) == expected
    assert small_run(disk, rng) == expected


def test_a_bound_of_bytes_holds_over_all_units_and_progress_is_told(disk: StoredCopies) -> None:
    now, told = [0.0], list[int]()

    def wait(delay_s: float) -> None:
        now[0] += delay_s

    disk.journal(LEDGER, range(COUNT, COUNT + 50))
    with open_bookie(disk.fs, disk.directories, bytes_per_s=1000, seconds=lambda: now[0], wait=wait) as bookie:
        plan = bookie.plan()
        found = [bookie.verify(unit, disk.asked, on_progress=told.append) for unit in plan.units]
    assert len(found) > 10
    assert sum(told) == sum(result.bytes_read for result in found)
    assert sum(told) / 1000 - 0.6 <= now[0] <= sum(told) / 1000


def test_two_good_copies_that_differ_have_different_fingerprints_and_repackaged_ones_the_same() -> None:
    fingerprints = []
    for payload, lac in ((b"one", -1), (b"two", -1), (b"one", 5)):
        disk = StoredCopies()
        disk.create(LEDGER)
        digest = digest_of(DigestType.CRC32C, b"")
        disk.storage.add(LEDGER, [0], [digest.package_entry(LEDGER, 0, lac, 3, payload)])
        disk.checkpoint()
        fingerprints.append(verdicts(disk)[LEDGER, 0])
    assert fingerprints[0] != fingerprints[1]
    assert fingerprints[0] == fingerprints[2]
