"""The last mark: up to where the journal is needed no more. One small file in every ledger directory.

    lastMark            one journal          journal id i64 | offset i64 | "pyBK" | CRC32C of these 20 bytes u32
    lastMark.<index>    several journals

Differs from Apache: its file ends after 16 bytes, and says nothing of itself; such a mark is believed as it stands. A
reader of Apache takes the first 16 bytes and no more.

A reader takes the greatest mark of all directories, as Apache does; a checkpoint writes all of them or fails. Replaced
as a whole, and never by a smaller one (I-55). Differs from Apache: there the file is overwritten in place, and an error
is only logged.

Thread: storage (checkpoint) or the starting one; blocking. Source: Apache 4.18 bookie/Journal.java, LogMark.java.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from crc32c import crc32c
from twisted.logger import Logger

from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import FileSystem, read_whole, replace_durable
from bookkeeper.model import LogMark

MARK = struct.Struct(">qq")
_MAGIC = b"pyBK"
_SUMMED_SIZE = MARK.size + len(_MAGIC)
MARK_FILE_SIZE = _SUMMED_SIZE + 4
NO_MARK = LogMark(0, 0)

log = Logger()


def mark_name(index: int, journal_count: int) -> str:
    """Name of the mark file of the `index`-th of so many journals."""
    return "lastMark" if journal_count == 1 else f"lastMark.{index}"


def encode_mark(mark: LogMark) -> bytes:
    """The bytes of a mark's file."""
    summed = MARK.pack(mark.journal_id, mark.offset) + _MAGIC
    return summed + crc32c(summed).to_bytes(4, "big")


def decode_mark(data: bytes, path: str) -> LogMark:
    """The mark in a file's bytes. Raises CorruptRecord, naming `path`, when they are none."""
    if len(data) not in (MARK.size, MARK_FILE_SIZE):
        raise CorruptRecord(path, len(data), f"a mark has {MARK.size} or {MARK_FILE_SIZE} bytes, this file {len(data)}")
    if len(data) == MARK_FILE_SIZE and data[_SUMMED_SIZE:] != crc32c(data[:_SUMMED_SIZE]).to_bytes(4, "big"):
        raise CorruptRecord(path, 0, "the mark fails its checksum")
    mark = LogMark(*MARK.unpack_from(data))
    if mark.journal_id < 0 or mark.offset < 0:
        raise CorruptRecord(path, 0, f"journal id {mark.journal_id} and offset {mark.offset} cannot be a mark")
    return mark


def read_marks(fs: FileSystem, directories: Sequence[str], name: str) -> LogMark:
    """The greatest mark in these `current` directories; LogMark(0, 0) when none of them has one.

    A damaged file beside a good one is reported and passed over. Raises StorageError when all that exist are damaged:
    starting from nothing would replay files that are gone, or take lost data for none.
    """
    marks: list[LogMark] = []
    damaged: list[CorruptRecord] = []
    for directory in directories:
        try:
            mark = _read(fs, os.path.join(directory, name))
        except CorruptRecord as error:
            damaged.append(error)
            continue
        if mark is not None:
            marks.append(mark)
    if damaged and not marks:
        reasons = "; ".join(str(found) for found in damaged)
        raise StorageError(
            f"no readable mark: {reasons}. Restore the file from another ledger directory or a copy; with an intact "
            "journal, 16 zero bytes replay it from its first file"
        ) from damaged[0]
    best = max(marks, default=NO_MARK)
    for fault in damaged:
        log.warn(
            "{error}; going on with mark {journal_id:x}, {offset} of another directory",
            error=fault,
            journal_id=best.journal_id,
            offset=best.offset,
        )
    return best


def write_marks(fs: FileSystem, directories: Sequence[str], name: str, mark: LogMark) -> LogMark:
    """Make a mark durable in all of these `current` directories, where it is not behind the one there (I-55).

    Everything below `mark` must be durable in all ledger and index directories already (I-54). Returns the smallest
    mark now durable in any directory, read back from the files: what `Journal.collect` may rely on (I-56).
    Raises OSError at the first directory that fails; the others may have the new mark or the old one.
    """
    lowest = mark
    for directory in directories:
        path = os.path.join(directory, name)
        try:
            current = _read(fs, path)
        except CorruptRecord as error:
            log.warn("{error}; it is replaced by the new mark", error=error)
            current = None
        if current is None or current < mark:
            replace_durable(fs, path, encode_mark(mark))
            current = _read(fs, path)
        else:
            fs.sync_dir(directory)  # a process that was killed just after it wrote this mark left its name unsynced
        if current is None or current < mark:
            raise StorageError(f"{path} does not hold the mark that was just written to it: {current}")
        lowest = min(lowest, current)
    return lowest


def _read(fs: FileSystem, path: str) -> LogMark | None:
    try:
        data = read_whole(fs, path, size_max=MARK_FILE_SIZE)
    except FileNotFoundError:
        return None
    return decode_mark(data, path)
