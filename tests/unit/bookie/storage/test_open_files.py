"""Open files that outlive their names."""

from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.filesystem import File, OpenMode, create_durable
from tests.support.faulty_filesystem import FaultyFileSystem

PATH = "/d/file"


def _fs(data: bytes = b"old") -> FaultyFileSystem:
    fs = FaultyFileSystem()
    fs.make_dirs("/d")
    create_durable(fs, PATH, data)
    return fs


def _replace(fs: FaultyFileSystem) -> None:
    fs.unlink(PATH)
    create_durable(fs, PATH, b"new")


def test_a_dropped_file_is_closed_by_its_last_user_and_opened_anew_by_the_next() -> None:
    fs = _fs()
    files = OpenFiles(fs, 10)
    old = files.acquire(PATH, OpenMode.READ)
    assert files.acquire(PATH, OpenMode.READ) is old
    files.drop(PATH)
    _replace(fs)
    new = files.acquire(PATH, OpenMode.READ)
    assert (old.pread(9, 0), new.pread(9, 0)) == (b"old", b"new")
    files.release(old)
    assert not old.closed
    files.release(old)
    assert old.closed
    assert not new.closed
    files.release(new)
    assert files.acquire(PATH, OpenMode.READ) is new


def test_an_idle_file_that_is_dropped_is_closed_at_once() -> None:
    files = OpenFiles(_fs(), 10)
    file = files.acquire(PATH, OpenMode.READ)
    files.release(file)
    files.drop(PATH)
    assert file.closed
    assert len(files) == 0


class _DroppedWhileOpening(FaultyFileSystem):
    """Another thread removes the name, and somebody makes it anew, right after a file was opened."""

    files: OpenFiles | None = None

    def open(self, path: str, mode: OpenMode) -> File:
        file = super().open(path, mode)
        if self.files is not None and mode is OpenMode.READ:
            files, self.files = self.files, None
            files.drop(path)
            _replace(self)
        return file


def test_a_file_whose_name_is_dropped_while_it_is_opened_is_not_kept() -> None:
    """I-63: whoever wrote to it would write to a file that nobody finds again."""
    fs = _DroppedWhileOpening()
    fs.make_dirs("/d")
    create_durable(fs, PATH, b"old")
    files = fs.files = OpenFiles(fs, 10)
    assert files.acquire(PATH, OpenMode.READ).pread(9, 0) == b"new"
