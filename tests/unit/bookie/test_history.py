"""A bookie's memory of the metadata store: the file, and the rules for collecting absent ledgers."""

from __future__ import annotations

import contextlib
import errno
import random
from array import array
from dataclasses import replace

import pytest

from bookkeeper.bookie.gc.history import rules
from bookkeeper.bookie.gc.history.file import HistoryFile
from bookkeeper.bookie.gc.history.format import FILE_NAME, Finding, History, decode, encode
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.errors import CorruptRecord, NoWritableDisk, UnknownFormatVersion
from bookkeeper.filesystem import replace_durable
from bookkeeper.metadata.cluster.history_format import (
    RAISES_MAX,
    GeneratedIds,
    Raise,
    format_raises,
    joined_ranges,
    parse_raises,
    shown_since,
    with_raise,
)
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut

CLUSTER = "cluster-1"
OLD = History(CLUSTER, counter=5, ids=GeneratedIds(70, 0), held=array("q", [1, 2, 3]))
NEW = History(
    CLUSTER,
    bookies=("bk1:3181", "bk2:3181"),
    counter=6,
    ids=GeneratedIds(80, 1 << 33),
    raised=3,
    finding=Finding(1234, 4, GeneratedIds(60, 0), ((61, 65),), "why"),
    held=array("q", [0, 2, 2**63 - 1]),
    kept=((7, 9), (11, 11)),
    discarded=((8, 8),),
)


def _disk(*directories: str) -> tuple[FaultyFileSystem, HistoryFile]:
    fs = FaultyFileSystem()
    for directory in directories:
        fs.make_dirs(f"{directory}/current")
    return fs, HistoryFile(fs, LedgerDirectories(directories))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_saved_history_is_read_back() -> None:
    fs, file = _disk("/a", "/b")
    assert file.read(CLUSTER) == History(CLUSTER)
    saved = file.save(NEW)
    assert saved.saved == 1
    fs.crash()
    assert file.read(CLUSTER) == saved


def test_the_file_of_another_cluster_is_not_used() -> None:
    _, file = _disk("/a")
    file.save(NEW)
    assert file.read("cluster-2") == History("cluster-2")


def test_flipped_bits_and_cut_files_are_found() -> None:
    data = encode(NEW)
    for bit in range(0, 8 * len(data), 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord, match="/d"):
            decode(bytes(flipped), "/d")
    for size in range(len(data)):
        with pytest.raises(CorruptRecord, match="/d"):
            decode(data[:size], "/d")


def test_a_newer_format_is_refused() -> None:
    fs, file = _disk("/a")
    newer = encode(NEW).replace(b'"version":1', b'"version":2')[:-4]
    import crc32c

    replace_durable(fs, f"/a/current/{FILE_NAME}", newer + crc32c.crc32c(newer).to_bytes(4, "big"))
    with pytest.raises(UnknownFormatVersion, match="start the release that wrote it"):
        file.read(CLUSTER)


def test_a_damaged_file_beside_an_intact_one_is_an_error() -> None:
    """It may have been the newer file, with ledgers to be kept."""
    fs, file = _disk("/a", "/b")
    file.save(NEW)
    fs.poke(f"/b/current/{FILE_NAME}", 20, b"\x00\x01\x02")
    with pytest.raises(CorruptRecord, match="/b/current"):
        file.read(CLUSTER)


def test_one_directory_with_room_is_enough_and_none_is_an_error() -> None:
    fs, file = _disk("/a", "/b")
    saved = file.save(OLD)
    fs.fail_nth(Op.WRITE, 1, errno.ENOSPC)
    saved = file.save(saved)
    assert file.read(CLUSTER) == saved
    fs.fail_nth(Op.WRITE, 1, errno.ENOSPC, path="/a/")
    fs.fail_nth(Op.WRITE, 1, errno.ENOSPC, path="/b/")
    with pytest.raises(NoWritableDisk, match="free some space"):
        file.save(saved)
    assert file.read(CLUSTER) == saved


@pytest.mark.parametrize("op", [Op.CREATE, Op.WRITE, Op.SYNC, Op.RENAME, Op.SYNC_DIR])
@pytest.mark.parametrize("n", [1, 2])
def test_any_other_error_is_fatal_and_leaves_the_old_or_the_new_history(op: Op, n: int) -> None:
    fs, file = _disk("/a", "/b")
    old = file.save(OLD)
    fs.fail_nth(op, n, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.save(NEW)
    fs.crash()
    found = file.read(CLUSTER)
    assert found in (old, History(**{**_fields(NEW), "saved": 1}))


def _fields(history: History) -> dict[str, object]:
    return {name: getattr(history, name) for name in History.__dataclass_fields__}


def test_a_power_cut_at_every_operation_leaves_the_old_or_the_new_history(rng: random.Random) -> None:
    for n in range(1, 16):
        fs, file = _disk("/a", "/b")
        old = file.save(OLD)
        fs.cut_power_at(n)
        new = None
        with contextlib.suppress(PowerCut):
            new = file.save(History(**{**_fields(NEW), "saved": old.saved}))  # type: ignore[arg-type]
        fs.crash(rng)
        found = HistoryFile(fs, LedgerDirectories(("/a", "/b"))).read(CLUSTER)
        assert found == new if new is not None else found in (old, History(**{**_fields(NEW), "saved": 2}))  # type: ignore[arg-type]


# --- the rules --------------------------------------------------------------------------------------------------------

SEEN = History(CLUSTER, counter=5, ids=GeneratedIds(100, 5 << 32), held=array("q", [10, 20]))


@pytest.mark.parametrize(
    ("counter", "short", "long", "back"),
    [
        (5, 100, 5 << 32, False),
        (6, 100, 5 << 32, False),  # a crash between the store and the disk
        (5, 5000, 6 << 32, False),
        (4, 100, 5 << 32, True),
        (0, 100, 5 << 32, True),  # no counter at all
        (5, 99, 5 << 32, True),
        (5, 100, 0, True),
        (4, 5000, 9 << 32, True),  # the generators gave out ids again
    ],
)
def test_a_store_that_shows_less_than_was_seen_went_back(counter: int, short: int, long: int, back: bool) -> None:
    assert rules.went_back(SEEN, counter, GeneratedIds(short, long)) is back


def test_a_bookie_without_a_history_finds_nothing() -> None:
    assert not rules.went_back(History(CLUSTER), 0, GeneratedIds())
    assert not rules.went_back(History(CLUSTER), 7, GeneratedIds(3, 0))


def test_a_bookie_with_a_new_id_has_no_counter_yet_and_keeps_the_rest() -> None:
    first = rules.belonging_to(OLD, "a:1")
    assert first == replace(OLD, bookies=("a:1",))
    assert rules.belonging_to(first, "a:1") is first
    second = rules.belonging_to(replace(NEW, bookies=("a:1",)), "b:1")
    assert second == replace(NEW, bookies=("a:1", "b:1"), counter=0)
    assert rules.belonging_to(replace(second, counter=3), "a:1") == replace(second, bookies=("b:1", "a:1"))


def test_only_the_counter_shows_that_the_store_came_back() -> None:
    """Generators are raised after a finding."""
    by_counter, by_ids = Finding(1, 3, GeneratedIds(50, 0)), Finding(1, 5, GeneratedIds(50, 0))
    assert not rules.came_back(SEEN, by_counter, 3)
    assert not rules.came_back(SEEN, by_counter, 4)
    assert rules.came_back(SEEN, by_counter, 5)
    assert not rules.came_back(SEEN, by_ids, 5)
    assert not rules.came_back(SEEN, by_ids, 50)


def test_newer_ledgers_have_ids_beyond_those_that_the_store_shows() -> None:
    shown = GeneratedIds(60, 0)
    history = History(CLUSTER, counter=5, ids=GeneratedIds(100, 0), held=array("q", [10, 70, 5000]))
    # 5000 was chosen by its writer and was here before; 6000 came since the counter was written.
    assert rules.newer(history, shown, [10, 59, 60, 70, 99, 5000, 6000]) == [60, 70, 99, 6000]


def test_ids_are_given_out_below_the_generators() -> None:
    ids = GeneratedIds(10, (2 << 32) + 5)
    inside = (0, 9, 2**31 - 1, 1 << 32, (2 << 32) + 4)
    outside = (10, 2**31 - 2, (2 << 32) + 5, 2**63 - 1)
    assert all(ledger_id in ids for ledger_id in inside)
    assert not any(ledger_id in ids for ledger_id in outside)
    assert all(ledger_id not in GeneratedIds(10, 0) for ledger_id in (2**31 - 1, 1 << 32))


def test_generators_are_raised_past_near_ids_alone() -> None:
    """Ids that strangers or callers chose may lie anywhere."""
    shown = GeneratedIds(50, 1 << 32)
    forgotten = [50, 60, 50 + rules.NEAR_IDS, 2**31 - 2, 2**31, (1 << 32) + 9, 2**62]
    assert rules.past(shown, forgotten) == GeneratedIds(61, (1 << 32) + 10)
    assert rules.past(shown, []) == shown


def test_the_values_before_raises_that_a_bookie_has_not_seen_count() -> None:
    raises: tuple[Raise, ...] = ()
    for shown in (57, 90, 70):
        raises = with_raise(raises, GeneratedIds(shown, 0))
    now = GeneratedIds(200, 0)
    assert [shown_since(raises, number, now).short for number in range(4)] == [57, 70, 70, 200]
    for shown in range(1000, 1000 + RAISES_MAX):
        raises = with_raise(raises, GeneratedIds(shown, 0))
    assert len(raises) == RAISES_MAX
    assert shown_since(raises, 0, now).short == 57
    assert parse_raises(format_raises(raises), "/p") == raises


def test_operations_on_ranges_agree_with_those_on_sets(rng: random.Random) -> None:
    for _ in range(500):
        kept = {rng.randrange(40) for _ in range(rng.randrange(30))}
        gone = {rng.randrange(40) for _ in range(rng.randrange(20))}
        local = sorted({rng.randrange(40) for _ in range(rng.randrange(30))})
        ranges, gone_ranges = rules.ranges_of(sorted(kept)), rules.ranges_of(sorted(gone))
        assert _ids(ranges) == kept
        assert set(rules.within(local, ranges)) == kept.intersection(local)
        assert list(rules.without(local, ranges)) == [each for each in local if each not in kept]
        assert _ids(rules.taken_out(ranges, gone_ranges)) == kept - gone
        assert _ids(rules.kept_with(ranges, gone)) == kept | gone
        assert joined_ranges((*ranges, *gone_ranges)) == rules.ranges_of(sorted(kept | gone))


def test_too_many_ranges_keep_too_much_and_never_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "KEPT_RANGES_MAX", 3)
    kept = rules.kept_with((), range(0, 20, 2))
    assert kept == ((0, 0), (2, 2), (4, 18))


def _ids(ranges: tuple[tuple[int, int], ...]) -> set[int]:
    return {ledger_id for first, last in ranges for ledger_id in range(first, last + 1)}
