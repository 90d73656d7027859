"""The bytes at a journal's end that are no whole group, kept beside it before a replay clears them (I-51).

    <journal id>-<offset>.torn      those bytes as they were; both numbers hexadecimal

Torn by a crash they were never answered; damaged they may have been. The two look alike, so that the journal goes on
either way, and nobody's answers change; but what may be the last copy of an acknowledged entry is not destroyed. The
name is no journal's, ours or Apache's. The newest KEPT_MAX stay, each of KEPT_SIZE_MAX bytes at most. A file that is
there is not written again: a crash while the journal was cleared left it less to tell.

Records are read as far as they make sense, and may be damaged: their group has no valid checksum.
Thread: any one, at start; blocking.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.bookie.journal import format as fmt
from bookkeeper.bookie.journal.records import RecordSink, ReplayVisitor
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode, is_no_space, replace_durable

log = Logger()

KEPT_MAX = 8
KEPT_SIZE_MAX = fmt.GROUP_SIZE_MAX
"""Files in one journal directory, and bytes of each."""

LEDGERS_TOLD_MAX = 8
RANGES_TOLD_MAX = 8
"""Ledgers, and ranges of each, that are named in one line."""

_LEDGERS_MAX = 1000
_RANGES_MAX = 1000
_NAME = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})\.torn")
_LEFT_OVER = re.compile(_NAME.pattern + r"\.tmp")


def set_aside_name(journal_id: int, offset: int) -> str:
    """The file for what stands at this offset of a journal."""
    return f"{journal_id:x}-{offset:x}.torn"


def place_of(name: str) -> tuple[int, int] | None:
    """Journal id and offset in a file name; None when it is not such a file's."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1], 16), int(found[2], 16))


def set_aside(fs: FileSystem, directory: str, journal_id: int, data: bytes, offset: int) -> str | None:
    """Keep these bytes, which stand at `offset` of a journal; durable on return. The path, None without room for them.

    Raises OSError.
    """
    path = os.path.join(directory, set_aside_name(journal_id, offset))
    if not fs.exists(path):
        try:
            replace_durable(fs, path, data)
        except OSError as error:
            if not is_no_space(error):
                raise
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(path + ".tmp")
            log.warn("No room for {path}: {error}", path=path, error=error)
            return None
    kept = sorted((place, name) for name in fs.listdir(directory) if (place := place_of(name)) is not None)
    surplus = kept[: max(0, len(kept) - KEPT_MAX)]
    for _, name in surplus:
        fs.unlink(os.path.join(directory, name))
    if surplus:
        fs.sync_dir(directory)
    return path


def drop_left_overs(fs: FileSystem, directory: str) -> None:
    """Remove what a crash left unfinished."""
    for name in fs.listdir(directory):
        if _LEFT_OVER.fullmatch(name):
            fs.unlink(os.path.join(directory, name))


# --- what they hold ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TornBytes:
    """What was read of a file. size: its bytes. read_size: up to behind the last record that makes sense."""

    journal_id: int
    offset: int
    size: int
    read_size: int


def read_set_aside(fs: FileSystem, path: str, visitor: ReplayVisitor) -> TornBytes:
    """Pass on the records that can be made out. Raises CorruptRecord for a name that is none, OSError."""
    place = place_of(os.path.basename(path))
    if place is None:
        raise CorruptRecord(path, 0, "its name is not one of <journal id>-<offset>.torn")
    file = fs.open(path, OpenMode.READ)
    try:
        data = _read(file, 0, file.size())
    finally:
        file.close()
    sink, end = RecordSink(visitor), _records_start(data)
    for start, stop, _, _ in _records(data):
        try:
            sink.take_all(data, start, stop, path=path, base=0, version=fmt.VERSION)
        except StorageError:
            break  # it makes no sense: nobody knows where the next one begins
        end = stop
    sink.flush()
    return TornBytes(*place, len(data), min(end, len(data)))


def tail_of(file: File, start: int, end: int) -> bytes:
    """The bytes of a journal from `start` to before `end`, or so many of them as are kept."""
    return _read(file, start, end - start)


def _read(file: File, start: int, size: int) -> bytes:
    return file.pread(min(size, KEPT_SIZE_MAX), start)


def _records_start(data: bytes) -> int:
    return min(fmt.GROUP_RECORD_SIZE, len(data))


def _records(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, ledger and entry (or kind) of the records behind the group's head, up to the first that is none."""
    at = _records_start(data)
    while at + fmt.RECORD_HEAD.size <= len(data):
        size, ledger_id, entry_id = fmt.RECORD_HEAD.unpack_from(data, at)
        stop = at + fmt.LENGTH.size + size
        if not fmt.IDS_SIZE <= size <= fmt.RECORD_SIZE_MAX or stop > len(data) or ledger_id < 0:
            return
        if entry_id < 0 and entry_id not in (fmt.MASTER_KEY_ENTRY, fmt.FENCE_ENTRY, fmt.EXPLICIT_LAC_ENTRY):
            return
        yield at, stop, ledger_id, entry_id
        at = stop


def records_told(data: bytes) -> tuple[str, int | None]:
    """Which ledgers and entries the records name, for people; and one of the ledgers, None where there is none."""
    ranges: dict[int, list[list[int]]] = {}
    more = False
    for _, _, ledger_id, entry_id in _records(data):
        known = ranges.get(ledger_id)
        if known is None:
            if len(ranges) >= _LEDGERS_MAX:
                more = True
                continue
            known = ranges[ledger_id] = []
        if entry_id < 0:
            continue
        if known and known[-1][1] == entry_id - 1:
            known[-1][1] = entry_id
        elif len(known) < _RANGES_MAX:
            known.append([entry_id, entry_id])
    if not ranges:
        return "no record can be made out there", None
    some = list(ranges.items())[:LEDGERS_TOLD_MAX]
    told = ", ".join(f"{_ranges_told(known)} of ledger {ledger_id}" for ledger_id, known in some)
    if more or len(ranges) > len(some):
        told += f", and of {'at least ' if more else ''}{len(ranges) - len(some)} more ledgers"
    return f"the records that can be made out there are {told}", some[0][0]


def _ranges_told(known: list[list[int]]) -> str:
    if not known:
        return "key or fence"
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in known[:RANGES_TOLD_MAX]]
    more = f" and {len(known) - len(shown)} more ranges" if len(known) > len(shown) else ""
    return f"{'entry' if shown[0].isdigit() and len(known) == 1 else 'entries'} {', '.join(shown)}{more}"
