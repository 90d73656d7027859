"""The bytes at a journal's end that are no whole group, kept beside it before a replay clears them (I-51).

    <journal id>-<offset>.torn      those bytes as they were; both numbers hexadecimal

Torn by a crash they were never answered; damaged they may have been. The two look alike, so that the journal goes on
either way, and nobody's answers change; but what may be the last copy of an acknowledged entry is not destroyed. The
name is no journal's, ours or Apache's. KEPT_MAX stay, each of KEPT_SIZE_MAX bytes at most: the oldest half and the
newest half, so that a bookie that crashes again and again does not push out what was damaged first. None is written
that would leave less than ROOM_LEFT free: a bookie that cannot start for want of room keeps nothing. An operator
removes them when they are not needed.

A start that dies while it clears leaves less to tell; the next one finds the name taken, by the same bytes as far as
they were not cleared, and keeps what is there. Other bytes under the name refuse to start.

What the records in them say: torn_records.py. Thread: any one, at start; blocking.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.bookie.journal import format as fmt
from bookkeeper.bookie.journal.records import RecordSink, ReplayVisitor
from bookkeeper.bookie.journal.torn_records import intact_groups, torn_records
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode, is_no_space, replace_durable

log = Logger()

KEPT_MAX = 8
KEPT_SIZE_MAX = fmt.GROUP_SIZE_MAX
"""Files in one journal directory, and bytes of each."""

ROOM_LEFT = 64 * 1024 * 1024
"""Bytes that stay free: a start needs some, for a new journal file above all."""

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

    Raises CorruptRecord when the name is taken by other bytes, OSError.
    """
    path = os.path.join(directory, set_aside_name(journal_id, offset))
    if fs.exists(path):
        if not _covers(_content(fs, path)[0], data):
            raise CorruptRecord(
                path, 0, "it should hold what stands at the journal's end, and holds other bytes; move it away"
            )
        fs.sync_dir(directory)  # who wrote it may have died before its name was durable
    elif not _write(fs, directory, path, data):
        return None
    _drop_surplus(fs, directory, path)
    return path


def _write(fs: FileSystem, directory: str, path: str, data: bytes) -> bool:
    """False without room."""
    free = fs.usage(directory).free
    if free < len(data) + ROOM_LEFT:
        log.warn("No room for {path}: it would leave {left} bytes", path=path, left=free - len(data))
        return False
    try:
        replace_durable(fs, path, data)
    except OSError as error:
        if not is_no_space(error):
            raise
        for name in (path + ".tmp", path):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(name)
        log.warn("No room for {path}: {error}", path=path, error=error)
        return False
    return True


def _covers(kept: bytes, data: bytes) -> bool:
    """True when `data` is what is kept, but for bytes that were cleared meanwhile."""
    if len(kept) < len(data):
        return False
    step = fmt.ALIGNMENT
    for at in range(0, len(data), step):
        block = data[at : at + step]
        if not kept.startswith(block, at) and any(
            now not in (0, was) for was, now in zip(kept[at : at + step], block, strict=False)
        ):
            return False
    return True


def _drop_surplus(fs: FileSystem, directory: str, path: str) -> None:
    """Keep the oldest and the newest. One that cannot be removed stays: the bookie starts all the same."""
    kept = sorted((place, name) for name in fs.listdir(directory) if (place := place_of(name)) is not None)
    surplus = len(kept) - KEPT_MAX
    if surplus <= 0:
        return
    others = [os.path.join(directory, name) for _, name in kept if os.path.join(directory, name) != path]
    for other in others[KEPT_MAX // 2 :][:surplus]:
        try:
            fs.unlink(other)
        except PermissionError as error:
            log.warn("{path} is kept, there are more than {most}: {error}", path=other, most=KEPT_MAX, error=error)
    fs.sync_dir(directory)


def drop_left_overs(fs: FileSystem, directory: str) -> None:
    """Remove what a crash left unfinished."""
    for name in fs.listdir(directory):
        if _LEFT_OVER.fullmatch(name):
            fs.unlink(os.path.join(directory, name))


def tail_of(file: File, start: int, end: int) -> bytes:
    """The bytes of a journal from `start` to before `end`, or so many of them as are kept."""
    return file.pread(min(end - start, KEPT_SIZE_MAX), start)


# --- what they hold ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TornBytes:
    """What was read of a file. size: its bytes. read_size: bytes looked at. intact: groups with right checksums."""

    journal_id: int
    offset: int
    size: int
    read_size: int
    intact: int


def read_set_aside(fs: FileSystem, path: str, visitor: ReplayVisitor) -> TornBytes:
    """Pass on the records that can be made out. Raises CorruptRecord for a name that is none, OSError."""
    place = place_of(os.path.basename(path))
    if place is None:
        raise CorruptRecord(path, 0, "its name is not one of <journal id>-<offset>.torn")
    data, size = _content(fs, path)
    sink = RecordSink(visitor)
    for record in torn_records(data, place[0]):
        with contextlib.suppress(StorageError):  # a key that is none, say: the next record may be one
            sink.take_all(data, record.start, record.stop, path=path, base=0, version=fmt.VERSION)
    sink.flush()
    return TornBytes(*place, size, len(data), intact_groups(data, *place))


def _content(fs: FileSystem, path: str) -> tuple[bytes, int]:
    """Its bytes as far as they are kept of any, and its size."""
    file = fs.open(path, OpenMode.READ)
    try:
        return tail_of(file, 0, file.size()), file.size()
    finally:
        file.close()
