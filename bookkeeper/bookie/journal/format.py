"""The bytes of a journal file. Pure; used by the writer, the replay and the offline readers.

A file is `<id in lower-case hex>.txn`. All integers are big-endian and signed.

    header, 512 bytes     "BKLG" | version i32 | zeros          V5 and V6; 8 bytes without zeros in V2 to V4; none in V1
    record                length i32 | payload of that many bytes
    padding record        -0x100 i32 | n i32 | n zero bytes      V5+; ends every group at a multiple of the alignment
    end                   length 0 (files are zero-filled ahead), or the end of the file

The payload is an entry (ledger id i64, entry id i64 >= 0, ...) or, with a negative entry id, something else:

    master key            ledger i64 | -0x1000 i64 | key length i32 | key            V3+
    fence                 ledger i64 | -0x2000 i64                                   V4+
    explicit LAC          ledger i64 | -0x8000 i64 | packet length i32 | packet      V6
    group                 below; ours

Records carry no checksum in Apache's format. Differs from Apache: each group commit (what one write and one sync made
durable) opens with a group record. A genuine bookie ignores entry ids it does not know, so it replays our files:

    2**63-1 i64 | -0x10000 i64 | "PBG1" | file id i64 | start i64 | synced file id i64 | synced offset i64
      | records i32 | total i32 | CRC32C u32

    start                 offset of the group record itself, a multiple of 512
    synced file, offset   everything before this position was durable when the group was written: the end of the group
                          before; in a file's first group the end of the file before; 0, 0 when there was nothing
    records               bytes of the records that follow the group record, without padding
    total                 bytes from `start` to the next group: group record, records, padding
    CRC32C                of the payload up to here, then of the records

File id and start bind the group to its place, so that stale bytes of a reused file are never taken for new ones. The
first group of a file is empty and directly behind the header: a file is ours exactly if it has one.

Source: Apache 4.18 bookie/Journal.java, JournalChannel.java.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

MAGIC = b"BKLG"
HEADER = struct.Struct(">4si")
HEADER_SIZE = 512
VERSION_MIN = 1
VERSION = 6

LENGTH = struct.Struct(">i")
RECORD_HEAD = struct.Struct(">iqq")  # length, ledger id, entry id
IDS_SIZE = 16

ALIGNMENT = 512
"""Groups start at multiples of this; a configured alignment is a multiple of it."""

PADDING_LENGTH = -0x100
PADDING_HEAD = struct.Struct(">ii")

MASTER_KEY_ENTRY = -0x1000
FENCE_ENTRY = -0x2000
EXPLICIT_LAC_ENTRY = -0x8000
GROUP_ENTRY = -0x10000
GROUP_LEDGER = 2**63 - 1
"""A ledger that does not exist: bookies before 4.8 skip unknown records of missing ledgers only."""

KEY_RECORDS_SINCE = 3
FENCE_RECORDS_SINCE = 4
PADDING_SINCE = 5
EXPLICIT_LAC_SINCE = 6

RECORD_SIZE_MAX = 64 * 1024 * 1024
"""Longest payload that is believed, in bytes; far above any frame. A greater length is damage."""

GROUP_SIZE_MAX = 128 * 1024 * 1024
"""Longest group that is written or believed, in bytes."""

_GROUP_FIELDS = struct.Struct(">iqq4sqqqqii")
_GROUP_CRC = struct.Struct(">I")
_GROUP_MAGIC = b"PBG1"
GROUP_RECORD_SIZE = _GROUP_FIELDS.size + _GROUP_CRC.size  # 68, its length field included
_GROUP_PAYLOAD_SIZE = GROUP_RECORD_SIZE - LENGTH.size
_GROUP_PREFIX = RECORD_HEAD.pack(_GROUP_PAYLOAD_SIZE, GROUP_LEDGER, GROUP_ENTRY) + _GROUP_MAGIC

_IDS_OF_META = struct.Struct(">iqq")
_META_WITH_BYTES = struct.Struct(">iqqi")
_FILE_NAME = re.compile(r"([0-9a-f]{1,16})\.txn")


# --- names and header -------------------------------------------------------------------------------------------------


def file_name(journal_id: int) -> str:
    """Name of a journal file."""
    return f"{journal_id:x}.txn"


def journal_id_of(name: str) -> int | None:
    """The id in a file name; None when it is not a journal file's."""
    found = _FILE_NAME.fullmatch(name)
    if found is None:
        return None
    journal_id = int(found[1], 16)
    return journal_id if journal_id < 1 << 63 and file_name(journal_id) == name else None


def encode_header(version: int = VERSION) -> bytes:
    """The header of a new file, version 5 or 6."""
    return HEADER.pack(MAGIC, version).ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes) -> tuple[int, int]:
    """Version of a file and offset of its first record, from its first 8 bytes. No magic word means version 1."""
    if len(data) < HEADER.size:
        return 1, 0
    magic, version = HEADER.unpack_from(data)
    if magic != MAGIC:
        return 1, 0
    return version, HEADER_SIZE if version >= PADDING_SINCE else HEADER.size


# --- records ----------------------------------------------------------------------------------------------------------


def entry_record(body: bytes) -> bytes:
    """A framed entry. Hot paths build length and body as two parts instead."""
    return LENGTH.pack(len(body)) + body


def master_key_record(ledger_id: int, key: bytes) -> bytes:
    """A framed master key."""
    return _META_WITH_BYTES.pack(IDS_SIZE + 4 + len(key), ledger_id, MASTER_KEY_ENTRY, len(key)) + key


def fence_record(ledger_id: int) -> bytes:
    """A framed fence."""
    return _IDS_OF_META.pack(IDS_SIZE, ledger_id, FENCE_ENTRY)


def explicit_lac_record(ledger_id: int, packet: bytes) -> bytes:
    """A framed explicit LAC; `packet` as the client sent it."""
    return _META_WITH_BYTES.pack(IDS_SIZE + 4 + len(packet), ledger_id, EXPLICIT_LAC_ENTRY, len(packet)) + packet


def embedded_bytes(payload: bytes) -> bytes | None:
    """Key or packet inside a master key's or explicit LAC's payload; None when its length field does not fit."""
    if len(payload) < IDS_SIZE + LENGTH.size:
        return None
    (size,) = LENGTH.unpack_from(payload, IDS_SIZE)
    found = payload[IDS_SIZE + LENGTH.size :]
    return found if len(found) == size else None


def padding(position: int, alignment: int = ALIGNMENT) -> bytes:
    """The padding record that brings `position` to a multiple of `alignment`; empty when it is one."""
    rest = position % alignment
    if rest == 0:
        return b""
    gap = alignment - rest
    # The record's own head takes 8 bytes: with less room than that it runs on to the multiple after.
    size = gap - PADDING_HEAD.size if gap >= PADDING_HEAD.size else alignment - (PADDING_HEAD.size - gap)
    return PADDING_HEAD.pack(PADDING_LENGTH, size) + bytes(size)


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """A group record. Offsets in bytes; see the module for the fields."""

    file_id: int
    start: int
    synced_file_id: int
    synced_offset: int
    records_size: int
    total_size: int
    crc: int

    @property
    def records_start(self) -> int:
        """Offset of the first record."""
        return self.start + GROUP_RECORD_SIZE

    @property
    def records_end(self) -> int:
        """Offset behind the last record, where the padding begins."""
        return self.start + GROUP_RECORD_SIZE + self.records_size

    @property
    def end(self) -> int:
        """Offset of the next group."""
        return self.start + self.total_size


_JOINED_SIZE_MAX = 256 * 1024
"""Up to this size one more copy costs less than a CRC call per piece."""


def encode_group(
    records: Sequence[bytes], *, file_id: int, start: int, synced: tuple[int, int], alignment: int = ALIGNMENT
) -> bytes:
    """A whole group, padding included: what one write puts at offset `start`.

    records: framed records, cut into pieces anywhere. synced: file id and offset up to which everything is durable.
    """
    size = sum(map(len, records))
    if size <= _JOINED_SIZE_MAX:
        records = (b"".join(records),)
    fill = padding(start + GROUP_RECORD_SIZE + size, alignment)
    total = GROUP_RECORD_SIZE + size + len(fill)
    fields = _GROUP_FIELDS.pack(
        _GROUP_PAYLOAD_SIZE, GROUP_LEDGER, GROUP_ENTRY, _GROUP_MAGIC, file_id, start, *synced, size, total
    )
    checksum = crc32c(fields[LENGTH.size :])
    for part in records:
        checksum = crc32c(part, checksum)
    return b"".join((fields, _GROUP_CRC.pack(checksum), *records, fill))


def decode_group(data: bytes, at: int, *, file_id: int, start: int) -> Group | None:
    """The group record at index `at` of `data`, which is offset `start` of file `file_id`; None when there is none.

    What it says of itself is checked; its CRC is `group_is_intact`'s.
    """
    if len(data) - at < GROUP_RECORD_SIZE or not data.startswith(_GROUP_PREFIX, at):
        return None
    _, _, _, _, found_file, found_start, synced_file, synced_offset, records, total = _GROUP_FIELDS.unpack_from(
        data, at
    )
    if found_file != file_id or found_start != start or start % ALIGNMENT:
        return None
    if not 0 <= records <= total - GROUP_RECORD_SIZE or total > GROUP_SIZE_MAX or total % ALIGNMENT:
        return None
    (crc,) = _GROUP_CRC.unpack_from(data, at + _GROUP_FIELDS.size)
    return Group(found_file, found_start, synced_file, synced_offset, records, total, crc)


def group_is_intact(group: Group, data: bytes, at: int) -> bool:
    """True when the CRC matches; `data` holds the group from index `at` at least to the end of its records."""
    first = at + LENGTH.size
    view = memoryview(data)
    checksum = crc32c(view[first : at + _GROUP_FIELDS.size])
    records_at = at + GROUP_RECORD_SIZE
    return len(data) - records_at >= group.records_size and group.crc == crc32c(
        view[records_at : records_at + group.records_size], checksum
    )


def group_needle(file_id: int) -> bytes:
    """The bytes every group record of a file begins with; for searching."""
    return _GROUP_PREFIX + struct.pack(">q", file_id)


ANY_GROUP_NEEDLE = _GROUP_PREFIX
"""The bytes every group record of any file begins with."""
