"""All of a journal from the mark on: what a bookie does at its start, before it serves.

What an end of a file means (I-51); the first row that fits counts:

    a valid group follows the bad place                      damage: acknowledged records are lost, refuse to start
    our file, and a later file says it was synced further    damage
    our file, not the last, no later file vouches for it,
        and something other than zeros follows               damage
    our file, the last one                                   torn tail, as far as can be told: cleaned durably
    Apache's file                                            Apache's rule (see scan.py)

A missing file that the mark or a later file names is damage too (I-56). Unknown is never treated as "no": what cannot
be judged refuses to start, with path, offset and reason.

A torn tail was never answered; a last group that was damaged looks the same. So its bytes are kept beside the journal
before they are cleared (torn_tails.py), and the log says what is known. They are read once more for that: a group that
is whole then is not cleared, as one wrong reading is no damage.

Crash-safe at each step: reading changes nothing; cleaning turns a torn tail into a shorter torn tail, then into zeros.
The last group is written once more, as it is, and synced before its end is believed: what a killed process left in the
page cache alone could vanish after it was replayed, and after the next file said it was there. Only synced it could
vanish all the same: after a failed sync the kernel takes the pages for clean (I-48). So may the file's name (I-49).

Thread: any one, at start; blocking.
"""

from __future__ import annotations

import os
import shlex

from twisted.logger import Logger

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import (
    ALIGNMENT,
    GROUP_RECORD_SIZE,
    decode_group,
    file_name,
    group_is_intact,
)
from bookkeeper.bookie.journal.records import ReplayVisitor
from bookkeeper.bookie.journal.scan import FileScan, JournalScan, scan_file
from bookkeeper.bookie.journal.torn_records import records_told
from bookkeeper.bookie.journal.torn_tails import drop_left_overs, set_aside, tail_of
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode
from bookkeeper.model import LogMark

__all__ = ["FileScan", "ReplayVisitor", "examine", "list_journals", "replay", "scan_file"]

log = Logger()


def replay(fs: FileSystem, directory: str, mark: LogMark, visitor: ReplayVisitor) -> LogMark:
    """Pass everything from `mark` on to the visitor and return the true end (I-57): where `Journal.start` begins.

    directory: the `current` directory of the journal. Idempotent: a second replay passes the same records on (I-53).
    Raises CorruptRecord, UnknownFormatVersion or StorageError when acknowledged records may be missing: the bookie must
    not start then, and not serve what the visitor got so far. OSError from the disk.
    """
    scan = examine(fs, directory, mark, visitor)
    if scan is None:
        return mark
    _settle(fs, directory, scan)
    return LogMark(scan.journal_id, scan.end)


def examine(fs: FileSystem, directory: str, mark: LogMark, visitor: ReplayVisitor) -> FileScan | None:
    """Everything a replay reads and judges, and nothing it writes: the last file's scan; None without a file.

    Raises as `replay`.
    """
    journal_ids = [journal_id for journal_id in list_journals(fs, directory) if journal_id >= mark.journal_id]
    if mark.journal_id > 0 and journal_ids[:1] != [mark.journal_id]:
        raise _missing(directory, mark.journal_id, "the last mark names it")
    if not journal_ids:
        return None
    claims = _claims(fs, directory, journal_ids, mark)
    scan = None
    for journal_id in journal_ids:
        offset = mark.offset if journal_id == mark.journal_id else 0
        scan = scan_file(fs, directory, journal_id, offset, visitor)
        path = os.path.join(directory, file_name(journal_id))
        _judge(scan, path, claims.get(journal_id), is_last=journal_id == journal_ids[-1])
        log.info(
            "Replayed {count} journal records of {path} up to offset {end}",
            count=scan.record_count,
            path=path,
            end=scan.end,
        )
        if scan.ignored_count:
            log.warn("{path} has {count} records of unknown kind", path=path, count=scan.ignored_count)
    return scan


def _missing(directory: str, journal_id: int, because: str) -> StorageError:
    path = os.path.join(directory, file_name(journal_id))
    return StorageError(
        f"journal file {path} is missing, but {because}: acknowledged entries may be lost. Bring the file back, or "
        "treat this bookie as failed and let its ledgers be replicated from the others; never start it empty"
    )


def _claims(fs: FileSystem, directory: str, journal_ids: list[int], mark: LogMark) -> dict[int, int]:
    """File id -> offset up to which a later file says that it was durable."""
    claims: dict[int, int] = {}
    for journal_id in journal_ids:
        file = fs.open(os.path.join(directory, file_name(journal_id)), OpenMode.READ)
        try:
            synced = JournalScan(file, journal_id).synced
        finally:
            file.close()
        if synced is None:
            continue
        earlier, offset = synced
        if earlier in journal_ids:
            claims[earlier] = offset
        elif earlier > 0 and earlier >= mark.journal_id:
            raise _missing(
                directory, earlier, f"{file_name(journal_id)} was begun behind it, and the last mark is before"
            )
    return claims


def _judge(scan: FileScan, path: str, claimed: int | None, *, is_last: bool) -> None:
    """Raise CorruptRecord unless the end of one of our files is one that a crash explains."""
    if not scan.ours:
        if scan.torn is not None:
            log.warn("{path} ends at offset {end} with {torn}", path=path, end=scan.end, torn=scan.torn)
        return
    if claimed is not None:
        if scan.end != claimed:
            raise CorruptRecord(
                path, scan.end, f"its groups end here, but the next file shows that it was synced up to {claimed}"
            )
    elif scan.torn is not None and not is_last:
        raise CorruptRecord(path, scan.end, f"{scan.torn}, and it is not the last file: this is no torn tail")


def _settle(fs: FileSystem, directory: str, scan: FileScan) -> None:
    """Make the last file's end durable: write its last group anew and sync; overwrite a torn tail with zeros.

    Its name, too: a process that was killed while it began the file may not have synced it, and a mark will name it.
    """
    path = os.path.join(directory, file_name(scan.journal_id))
    drop_left_overs(fs, directory)
    file = fs.open(path, OpenMode.UPDATE)
    try:
        if scan.ours and file.size() < scan.end:
            file.preallocate(file.size(), scan.end - file.size())  # padding that was cut off: marks may point behind it
        file.pwrite(file.pread(scan.end - scan.last_start, scan.last_start), scan.last_start)
        file.sync()
        if scan.ours and scan.torn is not None:
            tail_end = _tail_end(file, scan)
            _keep_tail(fs, directory, file, scan, tail_end)
            file.preallocate(scan.end, tail_end - scan.end)
            file.sync()
    finally:
        file.close()
    fs.sync_dir(directory)


def _tail_end(file: File, scan: FileScan) -> int:
    """Where what is behind the last whole group ends: zeros may belong to its last records."""
    end = JournalScan(file, scan.journal_id).nonzero_end(scan.end)
    end += -end % ALIGNMENT
    head = decode_group(file.pread(GROUP_RECORD_SIZE, scan.end), 0, file_id=scan.journal_id, start=scan.end)
    return min(file.size(), end if head is None else max(end, head.end))


def _keep_tail(fs: FileSystem, directory: str, file: File, scan: FileScan, tail_end: int) -> None:
    """Set aside what is about to be cleared, and tell what is known of it.

    Raises CorruptRecord when it is a whole group after all: the first reading of it was wrong, not the disk.
    """
    tail = tail_of(file, scan.end, tail_end)
    group = decode_group(tail, 0, file_id=scan.journal_id, start=scan.end)
    if group is not None and group_is_intact(group, tail, 0):
        raise CorruptRecord(
            file.path, scan.end, "a group failed its checksum, and did not when it was read again; start once more"
        )
    kept = set_aside(fs, directory, scan.journal_id, tail, scan.end)
    told, ledger_id = records_told(tail, scan.journal_id)
    where = "there is no room to keep them"
    if kept is not None:
        some = f"the first {len(tail)} of them" if len(tail) < tail_end - scan.end else "they"
        where = (
            f"{some} are kept in {kept}: `bookkeeper shell readjournal {shlex.quote(kept)}` prints what can be made out"
        )
    others = "" if ledger_id is None else f"; `bookkeeper why ledger {ledger_id}` tells who has copies"
    log.warn(
        "{path} ends at offset {end} with {size} bytes that are no whole group, and are cleared now. If a crash tore "
        "this write, nobody was told that it is durable, and nothing that was promised is lost. If the bytes were "
        "damaged later, acknowledged entries may be among them, and this bookie has lost its copies: the two cannot be "
        "told apart. What it says: {told}; {where}. Other bookies may have their own copies{others}",
        path=file.path, end=scan.end, size=tail_end - scan.end, told=told, where=where, others=others,
    )  # fmt: skip
