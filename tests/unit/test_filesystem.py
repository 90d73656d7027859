"""One suite for both file systems, the real one and the one in memory; then what each has of its own."""

import errno
import os
import random
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptRecord, DirectoryInUse
from bookkeeper.filesystem import (
    SYNC_EACH_MAX,
    DiskUsage,
    OpenMode,
    RealFile,
    RealFileSystem,
    create_durable,
    mount_of,
    read_whole,
    remove_durable,
    replace_durable,
    wider_directories,
)
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut


@pytest.fixture(params=["real", "memory"])
def disk(request, tmp_path):
    """A file system and an empty directory on it."""
    if request.param == "real":
        return RealFileSystem(), str(tmp_path)
    fs = FaultyFileSystem()
    fs.make_dirs("/d")
    return fs, "/d"


# --- the contract


def test_a_directory_that_is_there_already_is_made_durable_all_the_same(tmp_path, monkeypatch):
    """I-49: whoever made it may have been killed before it synced the name."""
    fs = RealFileSystem()
    synced: list[str] = []
    monkeypatch.setattr(fs, "sync_dir", synced.append)
    (tmp_path / "x").mkdir()
    fs.make_dirs(str(tmp_path / "x"))
    assert synced == [str(tmp_path)]
    fs.make_dirs(str(tmp_path / "x" / "y"))
    assert synced == [str(tmp_path)] * 2 + [str(tmp_path / "x")]


def test_bytes_are_read_back_from_any_offset(disk):
    fs, directory = disk
    path = f"{directory}/f"
    file = fs.open(path, OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(b"hello world", 0)
    file.pwrite(bytearray(b"W"), 6)
    file.pwrite(memoryview(b"!"), 20)
    file.sync()
    assert file.pread(11, 0) == b"hello World"
    assert file.pread(100, 6) == b"World" + bytes(9) + b"!"
    assert file.pread(5, 21) == b""
    assert file.size() == 21
    assert file.path == path
    file.close()
    file.close()
    assert file.closed
    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)
    assert fs.open(path, OpenMode.READ).pread(5, 0) == b"hello"


def test_modes_say_whether_the_file_must_exist(disk):
    fs, directory = disk
    for mode in (OpenMode.READ, OpenMode.UPDATE):
        with pytest.raises(FileNotFoundError):
            fs.open(f"{directory}/f", mode)
    fs.open(f"{directory}/f", OpenMode.CREATE_EXCLUSIVE).close()
    with pytest.raises(FileExistsError):
        fs.open(f"{directory}/f", OpenMode.CREATE_EXCLUSIVE)
    file = fs.open(f"{directory}/f", OpenMode.READ)
    with pytest.raises(OSError, match=r"."):
        file.pwrite(b"x", 0)
    fs.open(f"{directory}/f", OpenMode.UPDATE).pwrite(b"x", 0)


def test_truncate_cuts_and_extends_with_zeros(disk):
    fs, directory = disk
    file = fs.open(f"{directory}/f", OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(b"abcdef", 0)
    file.truncate(3)
    assert file.size() == 3
    file.truncate(5)
    file.sync()
    assert file.pread(10, 0) == b"abc\0\0"


def test_preallocate_writes_zeros_over_whatever_is_there(disk):
    fs, directory = disk
    file = fs.open(f"{directory}/f", OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(b"x" * 100, 0)
    file.preallocate(50, 3_000_000)
    assert file.size() == 3_000_050
    assert file.pread(51, 0) == b"x" * 50 + b"\0"
    assert not file.pread(3_000_000, 50).strip(b"\0")


def test_names_are_listed_linked_renamed_and_removed(disk):
    fs, directory = disk
    create_durable(fs, f"{directory}/b", b"1")
    create_durable(fs, f"{directory}/a", b"2")
    assert fs.listdir(directory) == ["a", "b"]
    fs.link(f"{directory}/a", f"{directory}/c")
    with pytest.raises(FileExistsError):
        fs.link(f"{directory}/a", f"{directory}/b")
    fs.rename(f"{directory}/a", f"{directory}/b")
    assert fs.listdir(directory) == ["b", "c"]
    assert read_whole(fs, f"{directory}/b", size_max=1) == b"2"
    fs.unlink(f"{directory}/b")
    assert not fs.exists(f"{directory}/b")
    assert read_whole(fs, f"{directory}/c", size_max=1) == b"2"
    with pytest.raises(FileNotFoundError):
        fs.unlink(f"{directory}/b")


def test_an_open_file_outlives_its_name(disk):
    fs, directory = disk
    create_durable(fs, f"{directory}/f", b"still here")
    file = fs.open(f"{directory}/f", OpenMode.READ)
    fs.unlink(f"{directory}/f")
    assert file.pread(10, 0) == b"still here"


def test_directories_are_made_with_their_parents(disk):
    fs, directory = disk
    fs.make_dirs(f"{directory}/x/y/z")
    fs.make_dirs(f"{directory}/x/y/z")
    assert fs.is_dir(f"{directory}/x/y")
    assert fs.exists(f"{directory}/x/y/z")
    create_durable(fs, f"{directory}/x/f", b"")
    assert not fs.is_dir(f"{directory}/x/f")
    assert not fs.exists(f"{directory}/x/f/g")
    with pytest.raises(OSError, match=r"."):
        fs.make_dirs(f"{directory}/x/f/g")


def test_durable_steps(disk):
    fs, directory = disk
    path = f"{directory}/f"
    create_durable(fs, path, b"one")
    with pytest.raises(FileExistsError):
        create_durable(fs, path, b"two")
    replace_durable(fs, path, b"two")
    create_durable(fs, path + ".tmp", b"left by a crash")
    replace_durable(fs, path, b"three")
    assert read_whole(fs, path, size_max=5) == b"three"
    with pytest.raises(CorruptRecord, match="longer than the 4 bytes"):
        read_whole(fs, path, size_max=4)
    remove_durable(fs, path)
    assert fs.listdir(directory) == []
    with pytest.raises(FileNotFoundError):
        read_whole(fs, path, size_max=5)


def test_a_lock_is_held_by_one(disk):
    fs, directory = disk
    lock = fs.lock(f"{directory}/lock")
    with pytest.raises(DirectoryInUse, match="lock"):
        fs.lock(f"{directory}/lock")
    lock.release()
    lock.release()
    fs.lock(f"{directory}/lock").release()


def test_a_shared_lock_is_held_by_several_and_keeps_the_exclusive_one_away(disk):
    fs, directory = disk
    fs.lock(f"{directory}/lock").release()
    one, two = fs.lock_shared(f"{directory}/lock"), fs.lock_shared(f"{directory}/lock")
    one.release()
    with pytest.raises(DirectoryInUse, match="lock"):
        fs.lock(f"{directory}/lock")
    two.release()
    lock = fs.lock(f"{directory}/lock")
    with pytest.raises(DirectoryInUse, match="lock"):
        fs.lock_shared(f"{directory}/lock")
    lock.release()


def test_a_shared_lock_makes_no_lock_file(tmp_path):
    assert RealFileSystem().lock_shared(f"{tmp_path}/lock") is None
    assert not list(tmp_path.iterdir())


def test_usage_is_between_empty_and_full(disk):
    fs, directory = disk
    usage = fs.usage(directory)
    assert 0 <= usage.free <= usage.total
    assert 0.0 <= usage.used_fraction <= 1.0


def test_used_fraction():
    assert DiskUsage(total=100, free=25).used_fraction == 0.75
    assert DiskUsage(total=0, free=0).used_fraction == 1.0


@pytest.mark.parametrize("count", [0, 1, SYNC_EACH_MAX, SYNC_EACH_MAX + 1])
def test_many_files_are_synced_at_once(disk, count):
    fs, directory = disk
    files = [fs.open(f"{directory}/{number}", OpenMode.CREATE_EXCLUSIVE) for number in range(count)]
    for file in files:
        file.pwrite(b"data", 0)
    fs.sync_many(files)
    assert all(file.pread(4, 0) == b"data" for file in files)
    for file in files:
        file.close()


def test_reads_without_waiting_give_the_bytes_or_nothing(disk):
    fs, directory = disk
    create_durable(fs, f"{directory}/f", b"0123456789")
    file = fs.open(f"{directory}/f", OpenMode.READ)
    assert file.pread_nowait(4, 2) in (b"2345", None)
    assert file.pread_nowait(4, 8) is None, "not all of it is there: the slow path finds out why"
    file.close()


# --- the real one


def test_real_files_are_not_inherited_by_children(tmp_path):
    file = RealFileSystem().open(str(tmp_path / "f"), OpenMode.CREATE_EXCLUSIVE)
    assert not os.get_inheritable(file.fileno())
    file.close()


def test_a_short_write_goes_on_until_the_disk_says_why(tmp_path, monkeypatch):
    """I-68: a nearly full disk takes a part first."""
    file = RealFileSystem().open(str(tmp_path / "f"), OpenMode.CREATE_EXCLUSIVE)
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real_pwrite(fd, bytes(data)[:3], offset))
    file.pwrite(b"0123456789", 5)
    assert file.pread(10, 5) == b"0123456789"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0 if offset > 3 else 2)
    with pytest.raises(OSError, match="wrote no bytes"):
        file.pwrite(b"0123456789", 0)
    file.close()


def test_a_new_size_is_synced_with_the_metadata(tmp_path, monkeypatch):
    file = RealFileSystem().open(str(tmp_path / "f"), OpenMode.CREATE_EXCLUSIVE)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file.pwrite(b"abc", 0)
    file.sync()
    assert synced == []
    file.truncate(1)
    file.sync()
    file.sync()
    assert synced == [file.fileno()]
    file.close()


def test_exists_does_not_take_may_not_look_for_no(monkeypatch):
    def denied(path: str) -> None:
        raise PermissionError(errno.EACCES, "denied", path)

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(PermissionError):
        RealFileSystem().exists("/secret/file")


# --- the one in memory


def synced_file(fs: FaultyFileSystem, path: str, data: bytes) -> None:
    fs.make_dirs(os.path.dirname(path))
    create_durable(fs, path, data)


def test_a_crash_keeps_synced_bytes_and_synced_names_only():
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"synced")
    file = fs.open("/d/f", OpenMode.UPDATE)
    file.pwrite(b"UNSYNC plus more", 0)
    fs.open("/d/new", OpenMode.CREATE_EXCLUSIVE).sync()
    fs.crash()
    assert fs.listdir("/d") == ["f"]
    assert fs.contents("/d/f") == b"synced"
    with pytest.raises(OSError, match="before the crash"):
        file.pread(1, 0)


def test_a_crash_brings_back_names_that_were_removed_without_a_sync():
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"data")
    fs.unlink("/d/f")
    fs.crash()
    assert fs.contents("/d/f") == b"data"
    assert fs.used_bytes == 4


def test_a_rename_is_old_or_new_after_any_crash(rng: random.Random):
    seen = set()
    for _ in range(40):
        fs = FaultyFileSystem()
        synced_file(fs, "/d/f", b"old")
        synced_file(fs, "/d/t", b"new")
        fs.rename("/d/t", "/d/f")
        fs.crash(rng)
        seen.add((tuple(fs.listdir("/d")), fs.contents("/d/f")))
    assert seen == {(("f", "t"), b"old"), (("f",), b"new")}


def test_unsynced_sectors_survive_in_any_subset(rng: random.Random):
    seen = set()
    for _ in range(200):
        fs = FaultyFileSystem()
        synced_file(fs, "/d/f", bytes(2048))
        fs.open("/d/f", OpenMode.UPDATE).pwrite(b"x" * 1536, 256)
        fs.crash(rng)
        data = fs.contents("/d/f")
        sectors = [data[start : start + 512] for start in range(0, 2048, 512)]
        assert sectors[0] in (bytes(512), bytes(256) + b"x" * 256)
        assert sectors[1] in (bytes(512), b"x" * 512)
        seen.add(tuple(b"x" in sector for sector in sectors))
    assert len(seen) == 16


def test_the_same_seed_gives_the_same_crash():
    def run() -> list[bytes]:
        fs = FaultyFileSystem()
        rng = random.Random(5)
        synced_file(fs, "/d/f", bytes(5000))
        for offset in range(0, 5000, 700):
            fs.open("/d/f", OpenMode.UPDATE).pwrite(b"y" * 600, offset)
        fs.crash(rng)
        return [fs.contents(f"/d/{name}") for name in fs.listdir("/d")]

    assert run() == run()


def test_a_failed_sync_may_forget_the_bytes_and_then_succeed():
    """fsyncgate (I-48)."""
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"old")
    file = fs.open("/d/f", OpenMode.UPDATE)
    file.pwrite(b"new", 0)
    fs.fail_nth(Op.SYNC, 1, errno.EIO, drop_dirty=True)
    with pytest.raises(OSError, match="f"):
        file.sync()
    file.sync()
    assert file.pread(3, 0) == b"new"
    fs.crash()
    assert fs.contents("/d/f") == b"old"


def test_the_nth_operation_on_a_path_fails():
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"")
    synced_file(fs, "/d/g", b"")
    fs.fail_nth(Op.WRITE, 2, errno.EIO, path="/g")
    f, g = (fs.open(f"/d/{name}", OpenMode.UPDATE) for name in "fg")
    f.pwrite(b"1", 0)
    g.pwrite(b"1", 0)
    f.pwrite(b"2", 1)
    with pytest.raises(OSError, match="/d/g"):
        g.pwrite(b"2345", 1)
    g.pwrite(b"6", 3)
    assert fs.contents("/d/g") == b"1236", "a failed write leaves a part"


def test_a_full_disk_takes_what_fits_and_has_room_again_after_a_removal():
    fs = FaultyFileSystem(quota_bytes=10)
    synced_file(fs, "/d/f", b"12345678")
    synced_file(fs, "/d/g", b"")
    file = fs.open("/d/g", OpenMode.UPDATE)
    with pytest.raises(OSError, match="space") as caught:
        file.pwrite(b"abcdef", 0)
    assert caught.value.errno == errno.ENOSPC
    assert fs.contents("/d/g") == b"ab"
    assert fs.usage("/d") == DiskUsage(total=10, free=0)
    file.pwrite(b"AB", 0)
    fs.unlink("/d/f")
    file.pwrite(b"abcdef", 2)
    assert fs.used_bytes == 8


def test_after_a_power_cut_nothing_works_until_the_restart():
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"")
    file = fs.open("/d/f", OpenMode.UPDATE)
    fs.cut_power_at(2)
    file.pwrite(b"1", 0)
    with pytest.raises(PowerCut):
        file.sync()
    with pytest.raises(PowerCut):
        fs.listdir("/d")
    fs.crash()
    assert fs.contents("/d/f") == b""


def test_a_clone_is_independent():
    fs = FaultyFileSystem()
    synced_file(fs, "/d/f", b"data")
    fs.open("/d/f", OpenMode.UPDATE).pwrite(b"DATA", 0)
    twin = fs.clone()
    twin.poke("/d/f", 0, b"twin")
    assert fs.contents("/d/f") == b"DATA"
    fs.crash()
    assert fs.contents("/d/f") == b"data"
    assert twin.contents("/d/f") == b"twin"


# --- modes


def modes(directory) -> dict[str, int]:
    """Return the permission bits of everything below a directory, by relative path."""
    return {str(path.relative_to(directory)): path.stat().st_mode & 0o777 for path in directory.rglob("*")}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def write_everything(fs, directory) -> None:
    fs.make_dirs(f"{directory}/a/b")
    fs.make_dirs_many([f"{directory}/c/d"])
    create_durable(fs, f"{directory}/a/created", b"x")
    replace_durable(fs, f"{directory}/a/replaced", b"x")
    fs.lock(f"{directory}/a/locked").release()
    fs.open(f"{directory}/a/opened", OpenMode.CREATE_EXCLUSIVE).close()


def test_new_files_and_directories_are_for_the_user_of_the_process_alone(tmp_path, umask):
    write_everything(RealFileSystem(), tmp_path)
    found = modes(tmp_path)
    assert len(found) == 8
    assert {
        name: mode for name, mode in found.items() if mode != (0o700 if (tmp_path / name).is_dir() else 0o600)
    } == {}


def test_modes_are_left_to_the_umask_where_that_is_asked_for(tmp_path, umask):
    write_everything(RealFileSystem(private=False), tmp_path)
    for name, mode in modes(tmp_path).items():
        assert mode == (0o777 if (tmp_path / name).is_dir() else 0o666) & ~umask, name


def test_directories_whose_files_others_can_reach_are_found(tmp_path):
    reachable = {"outer": 0o700, "inner": 0o755, "both": 0o755, "group": 0o710, "new": 0o755}
    for name, mode in reachable.items():
        (tmp_path / name).mkdir(mode)
        if name != "new":
            (tmp_path / name / "current").mkdir(0o700 if name == "inner" else 0o755)
    paths = [str(tmp_path / name) for name in reachable]
    assert wider_directories(RealFileSystem(), paths) == [str(tmp_path / name) for name in ("both", "group")]
    assert wider_directories(RealFileSystem(private=False), paths) == []


def test_an_error_for_want_of_descriptors_names_the_limits_and_the_remedy(tmp_path):
    fs = RealFileSystem()
    (tmp_path / "f").write_bytes(b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            fs.open(str(tmp_path / "f"), OpenMode.READ)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    assert caught.value.filename == str(tmp_path / "f")
    assert "(ulimit -n is 0); raise ulimit -n, or lower openFileLimit" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("pread", lambda file: file.pread(1, 0)),
        ("pwrite", lambda file: file.pwrite(b"x", 0)),
        ("preadv", lambda file: file.pread_nowait(1, 0)),
        ("ftruncate", lambda file: file.truncate(1)),
        ("fstat", lambda file: file.size()),
    ],
)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_an_error_of_an_open_file_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: Callable[[RealFile], object], number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    path = str(tmp_path / "0.log")
    file = RealFileSystem().open(path, OpenMode.CREATE_EXCLUSIVE)
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match=re.escape(path)) as caught:
        call(file)
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (number, path)
    file.close()


def test_an_error_of_a_sync_names_file_or_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    fs = RealFileSystem()
    file = fs.open(str(tmp_path / "0.log"), OpenMode.CREATE_EXCLUSIVE)
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr("bookkeeper.filesystem._fdatasync", fail)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "0.log"))):
        file.sync()
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        fs.sync_dir(str(tmp_path))
    file.close()


def test_the_mount_of_a_path_is_the_nearest_one() -> None:
    assert (mount_of("/proc/self") or "").endswith(" at /proc")
    assert mount_of("/procession") == mount_of("/")
