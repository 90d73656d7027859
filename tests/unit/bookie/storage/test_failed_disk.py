"""One of several disks fails: what was on it is unknown, never absent, and the others' entries are still served."""

from __future__ import annotations

import errno

import pytest

from bookkeeper.errors import StorageError
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.stored_ledgers import StoredLedgers, entry_body

COUNT = 300


class Disks(FaultyFileSystem):
    """A file system in which every operation below `failed` ends in EIO."""

    failed: str | None = None

    def enter(self, op: Op, path: str) -> None:
        if self.failed is not None and path.startswith(self.failed) and op is not Op.CLOSE:
            raise OSError(errno.EIO, "Input/output error", path)
        super().enter(op, path)


@pytest.fixture
def stored() -> StoredLedgers:
    """Two ledgers whose entries are in logs on both disks, found by a new process; index files on a third."""
    stored = StoredLedgers(ledger_dirs=("/a", "/b"), index_dirs=("/i",), fs=Disks())
    for first in range(0, COUNT, 20):
        stored.add(7, first, 20)
        stored.add(8, first, 20)
        stored.checkpoint()
    stored.storage.close()
    stored.start()
    stored.replay()
    return stored


def fail(stored: StoredLedgers, directory: str) -> None:
    assert isinstance(stored.fs, Disks)
    stored.fs.failed = directory


def test_entries_of_a_failed_disk_are_unknown_and_those_of_the_others_served(stored: StoredLedgers) -> None:
    """I-31."""
    fail(stored, "/a/")
    for ledger_id in (7, 8):
        results = stored.storage.read_cold(ledger_id, list(range(COUNT)))
        kinds = {result if isinstance(result, Status) else "body" for result in results}
        assert kinds == {Status.IO_ERROR, "body"}
        for entry_id, result in enumerate(results):
            if not isinstance(result, Status):
                assert result == stored.entries[ledger_id, entry_id]


def test_a_failed_index_disk_denies_no_ledger_and_no_fence(stored: StoredLedgers) -> None:
    """I-31, I-24."""
    fail(stored, "/i/")
    for ledger_id in (7, 8, 99):
        assert stored.storage.read_cold(ledger_id, [0, COUNT + 5]) == [Status.IO_ERROR] * 2
        with pytest.raises(StorageError):
            stored.storage.is_fenced(ledger_id)


@pytest.mark.parametrize("directory", ["/a/", "/b/", "/i/"])
def test_a_write_to_a_failed_disk_ends_everything(stored: StoredLedgers, directory: str) -> None:
    """I-48: afterwards nothing is denied, and nothing taken; the journal has what was acknowledged."""

    def write() -> None:
        for first in range(20, 2 * COUNT, 20):  # an entry log goes to one of the disks, the next to the other
            stored.add(9, first, 20)
            stored.checkpoint()

    stored.add(9, 0, 20)
    fail(stored, directory)
    with pytest.raises(OSError, match="Input/output error"):
        write()
    assert stored.storage.failure is not None
    with pytest.raises(StorageError):
        stored.storage.add(9, [2 * COUNT], [entry_body(9, 2 * COUNT)])
    answers = stored.storage.read_cold(9, [3 * COUNT]) + stored.storage.read_cold(1234, [0])
    assert answers == [Status.IO_ERROR] * 2
