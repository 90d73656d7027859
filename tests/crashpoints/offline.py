"""What is done to the files of a bookie that does not run: accidents, and the making anew of index files.

An accident to bytes that nobody has a checksum of cannot be seen, and raises FileNotFoundError instead.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bookkeeper.bookie.integrity.checksums.entry_log_files import checksums_path
from bookkeeper.bookie.integrity.checksums.index import HEADER_ROW
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.offline.checksum_check import highest_log_id
from bookkeeper.bookie.offline.index_rebuild import IndexRebuild, Rebuilt
from bookkeeper.bookie.offline.inspection import iter_records, list_entry_logs
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.cli.shell.regenerate import read_journals
from tests.crashpoints.history import Damaged, key_of
from tests.crashpoints.machine import Machine


def rebuild_index_files(machine: Machine, ledger_ids: Sequence[int]) -> list[Rebuilt]:
    """As the shell's command does. Raises StorageError, OSError."""
    cookie = machine.layout.cookie
    index_dirs = cookie.index_dirs or cookie.ledger_dirs
    journaled = read_journals(machine.fs, cookie, list(ledger_ids))
    rebuild = IndexRebuild(machine.fs, cookie.ledger_dirs, index_dirs, ledger_ids, journaled, key_of)
    rebuild.scan(lambda _: None)
    done = [rebuild.write(ledger_id) for ledger_id in ledger_ids]
    rebuild.close()
    return done


def damage_log(machine: Machine, log_id: int) -> list[Damaged]:
    """Change a byte of the last record of an entry log; the entries that lie in this page of it."""
    path = dict(list_entry_logs(machine.fs, machine.layout.ledger_dirs)).get(log_id, f"{log_id:x}.log")
    if not machine.fs.exists(checksums_path(path, log_id)):
        raise FileNotFoundError(errno.ENOENT, "no side file beside it", path)
    records = list(iter_records(machine.fs, path, log_id=log_id))
    if not records:
        raise FileNotFoundError(errno.ENOENT, "no entry in it", path)
    last = records[-1]
    assert last.body is not None
    machine.fs.poke(path, (last.location & 0xFFFFFFFF) + 40, bytes([last.body[40] ^ 0x10]))
    entries: dict[int, set[int]] = {}
    for record in records:  # the log is smaller than a page
        entries.setdefault(record.ledger_id, set()).add(record.entry_id)
    return [Damaged(path, ledger_id, tuple(sorted(entry_ids))) for ledger_id, entry_ids in entries.items()]


def damage_index(machine: Machine, ledger_id: int, entry_id: int) -> Damaged:
    """An entry's location in an index file turns into zeros."""
    path = index_file(machine, ledger_id, settled=True)
    machine.fs.poke(path, index_fmt.slot_offset(entry_id), bytes(index_fmt.SLOT_SIZE))
    return Damaged(path, ledger_id, None)


def tear_header(machine: Machine, ledger_id: int) -> None:
    """The second copy of an index file's header; the first one is enough."""
    machine.fs.poke(index_file(machine, ledger_id), index_fmt.COPY_SIZE, b"torn")


def lose_index(machine: Machine, ledger_id: int) -> Damaged:
    """An index file is deleted by mistake, durably."""
    path, fs = index_file(machine, ledger_id, settled=True), machine.fs
    fs.unlink(path)
    fs.sync_dir(path.rpartition("/")[0])
    return Damaged(path, ledger_id, None)


def index_file(machine: Machine, ledger_id: int, *, settled: bool = False) -> str:
    """The path of a ledger's index file. settled: its pages have checksums. Raises FileNotFoundError."""
    layout, fs = machine.layout, machine.fs
    index_dirs = layout.index_dirs or layout.ledger_dirs
    checksums = IndexChecksums(fs, index_dirs)
    if settled:
        checksums.inspect(highest_log_id(fs, layout.ledger_dirs))
    for directory in index_dirs:
        path = index_path(directory, ledger_id)
        if fs.exists(path) and (not settled or checksums.pages_of(directory, ledger_id).keys() - {HEADER_ROW}):
            return path
    raise FileNotFoundError(errno.ENOENT, "no such index file", index_path(index_dirs[0], ledger_id))
