"""The bytes of an entry log. Pure.

    0       "BKLO" | version u32 | ledgers-map offset i64 (0 = none) | ledgers in the map i32 | zeros to 1024
    1024    records: size i32, then `size` bytes, the entry body (ledger id i64, entry id i64, ...)
    map     at the end, records of at most 10 000 ledgers:
            size i32 = 20 + 16 n | -1 i64 | -2 i64 | n i32 | n x (ledger id i64, bytes i64: each body + 4)

A location names a body: log id << 32 | offset of the body, which is 4 past its record. Location 0 = no entry.

Differs from Apache: when a log is closed the zeros of its header get a seal, so that a map can be believed without
reading the whole log again before it is deleted (I-60). Apache ignores these bytes; a log without an intact seal is
scanned.

    492   "pyBK" | bytes of the map i64 | CRC32C of the map u32 | CRC32C of bytes 0..507 u32

Source: Apache 4.18 DefaultEntryLogger, EntryLogManagerBase.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import crc32c

from bookkeeper.errors import CorruptRecord, UnknownFormatVersion

HEADER = struct.Struct(">4sIqi")
HEADER_SIZE = 1024
MAGIC = b"BKLO"
VERSION = 1
"""Version 0 (Apache up to 4.3) has no ledgers map; it is read, never written."""

SIZE = struct.Struct(">i")
RECORD_HEAD = struct.Struct(">iqq")
"""Size of the body, ledger id, entry id: what is compared before a body is believed."""

RECORD_SIZE_MIN = 16
LOG_ID_MAX = (1 << 31) - 1
LOG_BYTES_MAX = 1 << 30
OFFSET_MASK = 0xFFFFFFFF

MAP_LEDGER_ID = -1
MAP_ENTRY_ID = -2
MAP_BATCH_MAX = 10_000
_MAP_HEAD = struct.Struct(">iqqi")
_MAP_ITEM = struct.Struct(">qq")

SEALED_SIZE = 512
"""What a seal covers, itself included: one sector, so that a power cut leaves all of it or nothing."""
_SEAL = struct.Struct(">4sqII")
_SEAL_OFFSET = SEALED_SIZE - _SEAL.size
_SEAL_MAGIC = b"pyBK"

_LOG_NAME = re.compile(r"([0-9a-f]{1,8})\.log")


@dataclass(frozen=True, slots=True)
class LogHeader:
    """What the first 1024 bytes say. map_offset 0: the log was not closed in order, scan it. seal: None without one."""

    version: int = VERSION
    map_offset: int = 0
    ledger_count: int = 0
    seal: Seal | None = None


@dataclass(frozen=True, slots=True)
class Seal:
    """What the map's bytes must be. map_size: their number, all up to the end of the file."""

    map_size: int
    map_crc: int

    @classmethod
    def of(cls, ledgers_map: bytes) -> Seal:
        """The seal of these bytes."""
        return cls(len(ledgers_map), crc32c.crc32c(ledgers_map))

    def fits(self, ledgers_map: bytes) -> bool:
        """True when they are the bytes that were sealed."""
        return self == Seal.of(ledgers_map)


def log_name(log_id: int) -> str:
    """File name of an entry log: lower-case hex."""
    return f"{log_id:x}.log"


def parse_log_name(name: str) -> int | None:
    """Log id of a file name, None when it is not an entry log's."""
    match = _LOG_NAME.fullmatch(name)
    if match is None:
        return None
    log_id = int(match[1], 16)
    return log_id if log_id <= LOG_ID_MAX else None


_COMPACTING_NAME = re.compile(r"[0-9a-f]{1,8}\.log\.compacting")
_COMPACTED_NAME = re.compile(r"([0-9a-f]{1,8})\.log\.([0-9a-f]{1,8})\.(?:switching|compacted)")


def compacting_name(log_id: int) -> str:
    """Of a log that compaction is still writing."""
    return f"{log_id:x}.log.compacting"


def is_compacting_name(name: str) -> bool:
    """True for what a compaction that was cut short leaves; nothing points into it."""
    return _COMPACTING_NAME.fullmatch(name) is not None


def switching_name(log_id: int, old_log_id: int) -> str:
    """Second name of a whole log with the live entries of another one, until the index says so.

    Differs from Apache: its name ends with "compacted", and a bookie of 4.17 or 4.18 that finds one finishes with the
    log's id in decimal: from id 10 on it makes a log of another id, and loses what a later compaction puts under that
    id. A name that it does not know leaves it with two good logs.
    """
    return f"{log_id:x}.log.{old_log_id:x}.switching"


def second_names(log_id: int, old_log_id: int) -> tuple[str, str]:
    """Ours and Apache's."""
    return switching_name(log_id, old_log_id), f"{log_id:x}.log.{old_log_id:x}.compacted"


def parse_compacted_name(name: str) -> tuple[int, int] | None:
    """Log id and old log id of a second name, ours or Apache's."""
    match = _COMPACTED_NAME.fullmatch(name)
    return None if match is None else (int(match[1], 16), int(match[2], 16))


def encode_header(header: LogHeader) -> bytes:
    """All 1024 bytes."""
    block = HEADER.pack(MAGIC, header.version, header.map_offset, header.ledger_count)
    if header.seal is not None:
        seal = _SEAL.pack(_SEAL_MAGIC, header.seal.map_size, header.seal.map_crc, 0)[:-4]
        block = block.ljust(_SEAL_OFFSET, b"\0") + seal
        block += crc32c.crc32c(block).to_bytes(4, "big")
    return block.ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes, path: str) -> LogHeader:
    """Raises CorruptRecord (short, or not an entry log) or UnknownFormatVersion."""
    if len(data) < HEADER.size:
        raise CorruptRecord(path, 0, f"an entry log header has {HEADER_SIZE} bytes, the file {len(data)}")
    magic, version, map_offset, ledger_count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptRecord(path, 0, f"an entry log starts with {MAGIC!r}, this file with {magic!r}")
    if version > VERSION:
        raise UnknownFormatVersion(f"{path} is an entry log of version {version}; this release reads up to {VERSION}")
    if (map_offset and map_offset < HEADER_SIZE) or map_offset < 0 or ledger_count < 0:
        raise CorruptRecord(path, 8, f"ledgers map of {ledger_count} ledgers at offset {map_offset}")
    return LogHeader(version, map_offset, ledger_count, _decode_seal(data))


def _decode_seal(data: bytes) -> Seal | None:
    """None without an intact one: then nothing in the header is known to be as it was written."""
    if len(data) < SEALED_SIZE:
        return None
    magic, map_size, map_crc, header_crc = _SEAL.unpack_from(data, _SEAL_OFFSET)
    if magic != _SEAL_MAGIC or header_crc != crc32c.crc32c(data[: SEALED_SIZE - 4]):
        return None
    return Seal(map_size, map_crc)


def location(log_id: int, body_offset: int) -> int:
    """The index value of a body."""
    return log_id << 32 | body_offset


def split_location(value: int) -> tuple[int, int]:
    """Log id and offset of the body."""
    return value >> 32, value & OFFSET_MASK


def encode_ledgers_map(ledger_bytes: Mapping[int, int]) -> bytes:
    """The records of the map, in order of ledger id."""
    parts: list[bytes] = []
    ledger_ids = sorted(ledger_bytes)
    for start in range(0, len(ledger_ids), MAP_BATCH_MAX):
        batch = ledger_ids[start : start + MAP_BATCH_MAX]
        size = _MAP_HEAD.size - SIZE.size + _MAP_ITEM.size * len(batch)
        parts.append(_MAP_HEAD.pack(size, MAP_LEDGER_ID, MAP_ENTRY_ID, len(batch)))
        parts.extend(_MAP_ITEM.pack(ledger_id, ledger_bytes[ledger_id]) for ledger_id in batch)
    return b"".join(parts)


def decode_ledgers_map(data: bytes, *, ledger_count: int, offset: int, path: str) -> dict[int, int]:
    """Ledger id -> bytes from the end of a log. Raises CorruptRecord unless it holds exactly `ledger_count` (I-60).

    offset: where `data` starts in the file, for messages.
    """
    found: dict[int, int] = {}
    position = 0
    while position < len(data) and len(found) < ledger_count:
        if len(data) - position < _MAP_HEAD.size:
            raise CorruptRecord(path, offset + position, "the ledgers map ends inside a batch head")
        size, ledger_id, entry_id, count = _MAP_HEAD.unpack_from(data, position)
        if (ledger_id, entry_id) != (MAP_LEDGER_ID, MAP_ENTRY_ID):
            raise CorruptRecord(path, offset + position, f"ledger {ledger_id} entry {entry_id} inside the ledgers map")
        body_end = position + SIZE.size + size
        if count < 0 or size != _MAP_HEAD.size - SIZE.size + _MAP_ITEM.size * count or body_end > len(data):
            raise CorruptRecord(path, offset + position, f"a map batch of {size} bytes for {count} ledgers")
        found.update(_MAP_ITEM.iter_unpack(data[position + _MAP_HEAD.size : body_end]))
        position = body_end
    if len(found) != ledger_count:
        raise CorruptRecord(path, offset, f"the ledgers map names {len(found)} ledgers, the header {ledger_count}")
    return found
