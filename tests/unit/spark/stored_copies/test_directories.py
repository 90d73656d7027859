"""Directories that are read in place are those of one bookie, all of them, and nobody uses them (I-52, I-70, I-71)."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from bookkeeper.errors import CookieMismatch, DirectoryInUse, MetadataCorrupt, StorageError, UnknownFormatVersion
from bookkeeper.model import BookieId
from bookkeeper.spark.stored_copies import BookieDirectories, named_directories, open_bookie
from tests.support.faulty_filesystem import CHANGING, Op
from tests.support.stored_copies import BOOKIE_ID, INSTANCE_ID, StoredCopies, verdicts

LEDGER = 7


@pytest.fixture
def disk() -> StoredCopies:
    """One ledger, in entry log and journal."""
    disk = StoredCopies()
    disk.create(LEDGER)
    disk.add(LEDGER, range(100))
    disk.checkpoint()
    disk.journal(LEDGER, range(100, 110))
    return disk


def stamp(disk: StoredCopies, directory: str, **changes: object) -> None:
    cookie = replace(disk.cookie, **changes)  # type: ignore[arg-type]
    disk.replace_file(f"{directory}/current/VERSION", cookie.format())


def test_one_directory_names_the_others(disk: StoredCopies) -> None:
    for path in disk.directories.kinds:
        assert named_directories(disk.fs, path) == disk.directories
    with disk.open() as bookie:
        assert (bookie.bookie_id, bookie.cookie.instance_id) == (BOOKIE_ID, INSTANCE_ID)


def test_directories_at_other_paths_are_read_where_they_are() -> None:
    disk = StoredCopies()
    for path in disk.directories.kinds:
        stamp(disk, path, journal_dirs=("/old/j0", "/old/j1"), ledger_dirs=("/old/l0", "/old/l1"))
    with disk.open() as bookie:
        assert bookie.plan().units == ()


def test_nothing_is_written_or_locked_for_good(disk: StoredCopies) -> None:
    changes = {op: disk.fs.counts[op] for op in CHANGING}
    with disk.open() as bookie:
        for unit in bookie.plan().units:
            bookie.verify(unit, disk.asked)
    assert {op: disk.fs.counts[op] for op in CHANGING} == changes
    for path in disk.directories.kinds:
        disk.fs.lock(f"{path}/current/bookie.lock").release()


def test_a_running_bookie_is_refused_and_one_does_not_start_meanwhile(disk: StoredCopies) -> None:
    lock = disk.fs.lock("/l1/current/bookie.lock")
    with pytest.raises(DirectoryInUse, match=r"ledgerDirectories /l1 is in use .* Stop it"):
        disk.open()
    lock.release()
    with disk.open(), disk.open():
        for path in disk.directories.kinds:
            with pytest.raises(DirectoryInUse):
                disk.fs.lock(f"{path}/current/bookie.lock")
    disk.fs.lock("/j0/current/bookie.lock").release()


@pytest.mark.parametrize("expected", [{"bookie_id": "other:3181"}, {"instance_id": "another"}])
def test_another_bookies_directories_are_refused(disk: StoredCopies, expected: dict[str, str]) -> None:
    with pytest.raises(CookieMismatch, match=rf"/j0 .*{BOOKIE_ID} of cluster {INSTANCE_ID}; expected was bookie"):
        open_bookie(disk.fs, disk.directories, **expected)  # type: ignore[arg-type]
    open_bookie(disk.fs, disk.directories, bookie_id=BOOKIE_ID, instance_id=INSTANCE_ID).close()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda disk: stamp(disk, "/i1", bookie_id=BookieId("b:1")), CookieMismatch, "/i1 and /j0 .* 'b:1'"),
        (lambda disk: stamp(disk, "/l0", instance_id="x"), CookieMismatch, "/l0 and /j0 .*instance id.*'x'"),
        (lambda disk: stamp(disk, "/l0", ledger_dirs=("/l0",)), CookieMismatch, "/l0 and /j0 .*ledgerDirectories"),
        (lambda disk: disk.fs.unlink("/l1/current/VERSION"), CookieMismatch, "/l1/current holds files .*no cookie"),
        (lambda disk: disk.replace_file("/l1/current/VERSION", b"?"), MetadataCorrupt, "/l1/current/VERSION"),
        (lambda disk: disk.fs.make_dirs("/l1/current/locations"), UnknownFormatVersion, "DbLedgerStorage"),
    ],
)
def test_directories_that_do_not_belong_together_are_refused(
    disk: StoredCopies, damage: Callable[[StoredCopies], None], error: type[Exception], message: str
) -> None:
    damage(disk)
    with pytest.raises(error, match=message):
        disk.open()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (BookieDirectories(("/j0", "/j1"), ("/l0",), ("/i0", "/i1")), "names 2 ledgerDirectories .* and 1 were given"),
        (BookieDirectories(("/j0", "/j1"), ("/l0", "/l1"), ("/i0",)), "names 2 indexDirectories .* and 1 were given"),
        (BookieDirectories(("/j0", "/j1"), ("/i0", "/i1"), ("/l0", "/l1")), "has files of .* not given as one of them"),
        (BookieDirectories(("/j0",), ("/l0", "/l1"), ("/i0", "/i1")), "taken for missing"),
        (BookieDirectories(("/j1", "/j0"), ("/l0", "/l1"), ("/i0", "/i1")), "in that order"),
        (BookieDirectories(("/j0", "/j1"), ("/l0", "/nowhere"), ("/i0", "/i1")), "/nowhere is not there"),
        (BookieDirectories(("/j0", "/j1"), ("/l0", "/j0/current"), ("/i0", "/i1")), "no bookie ever used it"),
        (BookieDirectories(("/j0", "/j1"), ("/l0", "/l1")), "names /i0, /i1 .* apart from"),
        (BookieDirectories((), ()), "no directory"),
    ],
)
def test_fewer_or_other_directories_than_the_cookie_names_are_refused(
    disk: StoredCopies, given: BookieDirectories, message: str
) -> None:
    with pytest.raises(CookieMismatch, match=message):
        open_bookie(disk.fs, given)


def test_a_cookie_that_does_not_name_index_directories_does_not_hide_them(disk: StoredCopies) -> None:
    for path in disk.directories.kinds:
        stamp(disk, path, index_dirs=None, layout_version=4)
    with pytest.raises(CookieMismatch, match=r"entry logs and no index files.*does not name the index directories"):
        open_bookie(disk.fs, named_directories(disk.fs, "/l0"))
    assert verdicts(disk) == disk.expected


def test_a_directory_without_anything_in_it_is_refused(disk: StoredCopies) -> None:
    disk.fs.make_dirs("/new/current")
    with pytest.raises(CookieMismatch, match="/new/current is empty and has no cookie"):
        named_directories(disk.fs, "/new")


@pytest.mark.parametrize(
    "use",
    [
        lambda disk: disk.replace_file("/l0/current/lastMark.0", struct.pack(">qq", 0, 0)),
        lambda disk: disk.journal(LEDGER, [200]),
        lambda disk: (disk.add(LEDGER, [300]), disk.checkpoint()),
    ],
)
def test_work_that_was_planned_before_a_bookie_ran_is_refused(
    disk: StoredCopies, use: Callable[[StoredCopies], object]
) -> None:
    with disk.open() as bookie:
        plan = bookie.plan()
    use(disk)
    with disk.open() as bookie:
        with pytest.raises(DirectoryInUse, match="plan anew"):
            bookie.verify(plan.units[0], disk.asked)
        for unit in bookie.plan().units:
            bookie.verify(unit, disk.asked)


def test_a_bookie_that_runs_without_locks_is_noticed_while_a_unit_is_read(disk: StoredCopies) -> None:
    with disk.open() as bookie:
        unit = bookie.plan().units[-1]

        def runs(size: int) -> None:
            disk.journal(LEDGER, [200])

        with pytest.raises(DirectoryInUse, match="plan anew"):
            bookie.verify(unit, disk.asked, on_progress=runs)


def test_an_entry_log_that_is_there_twice_is_refused(disk: StoredCopies) -> None:
    path, _ = disk.place_of(LEDGER, 0)
    other = path.replace("/l0/", "/l1/") if path.startswith("/l0/") else path.replace("/l1/", "/l0/")
    disk.replace_file(other, disk.fs.contents(path))
    with disk.open() as bookie, pytest.raises(StorageError, match="Keep the one"):
        bookie.plan()


def test_a_directory_of_logs_that_cannot_be_listed_is_an_error(disk: StoredCopies) -> None:
    disk.fs.fail_nth(Op.LIST, 3, errno.EIO, path="/l0/current")
    with pytest.raises(OSError, match="/l0/current"), disk.open() as bookie:
        bookie.plan()


def test_a_mark_that_cannot_be_read_makes_unknown_what_no_index_names(disk: StoredCopies) -> None:
    for directory in ("/l0", "/l1"):
        disk.replace_file(f"{directory}/current/lastMark.0", b"damaged")
    with disk.open() as bookie:
        (unknown,) = bookie.plan().unknown
    assert (unknown.ledger_id, unknown.path) == (None, "/j0/current")


def test_importing_it_loads_neither_spark_nor_a_reactor() -> None:
    names = ("pyspark", "pyarrow", "twisted.internet.reactor", "kazoo")
    program = f"import sys, bookkeeper.spark.stored_copies; sys.exit(any(name in sys.modules for name in {names}))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
