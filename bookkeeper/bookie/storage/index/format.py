"""The bytes of a ledger's index file. Pure.

    0     "BKLE" | version i32 (0, 1) | key length k i32 | key | state bits i32 (1 = fenced)
          | version 1: explicit-LAC packet length m i32 (0, or >= 16) | packet | zeros
    1024  location of entry 0 i64, of entry 1, ...; 0 = no entry; padded to whole pages of 1024 locations

Differs from Apache: the zeros hold a trailer and a second copy of the header, because an update in place may be torn by
a power cut and the journal then has the change but not the rest. Apache ignores these bytes, and zeroes them when it
rewrites a header; a header without them is believed as it stands.

    496   "pyBK" | locations the file durably has i64 | CRC32C of bytes 0..507 u32
    512   the same 512 bytes once more; written and synced first

Source: Apache 4.18 FileInfo, IndexPersistenceMgr.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from dataclasses import dataclass
from itertools import accumulate

import crc32c

from bookkeeper.errors import CorruptRecord, InvalidArgument, StorageError, UnknownFormatVersion

HEADER_SIZE = 1024
COPY_SIZE = 512
MAGIC = b"BKLE"
VERSION = 1
FENCED_BIT = 1

SLOT_SIZE = 8
PAGE_SLOTS = 1024
PAGE_SIZE = PAGE_SLOTS * SLOT_SIZE
"""Apache's default page; a file is padded to a multiple, so that its pages can be read whole."""

KEY_SIZE_MAX = 128
EXPLICIT_LAC_SIZE_MIN = 16
"""Ledger id and LAC; the digest follows."""
EXPLICIT_LAC_SIZE_MAX = 256
"""Far above any digest, and what fits. A longer packet must not reach the journal: no replay could store it."""

_HEAD = struct.Struct(">4sii")
_INT = struct.Struct(">i")
_TRAILER = struct.Struct(">4sqI")
_TRAILER_OFFSET = COPY_SIZE - _TRAILER.size
_TRAILER_MAGIC = b"pyBK"
_CRC_OFFSET = COPY_SIZE - 4

INDEX_SUFFIX = ".idx"
_INDEX_NAME = re.compile(r"([0-9a-f]{1,16})\.idx")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What the first 1024 bytes say.

    master_key: empty when the ledger has none recorded. explicit_lac: the whole packet.
    slot_count: locations the file had when it was last synced; 0 = not known (written by Apache).
    """

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None
    slot_count: int = 0
    version: int = VERSION
    whole: bool = True
    """False when one of the two copies is torn and should be rewritten."""


def index_name(ledger_id: int) -> str:
    """Path below `current`: two hex directories from the low 16 bits, then the id in hex."""
    return f"{ledger_id >> 8 & 0xFF:x}/{ledger_id & 0xFF:x}/{ledger_id:x}{INDEX_SUFFIX}"


def parse_index_name(name: str) -> int | None:
    """Ledger id of a file name (its last part), None when it is not an index file's."""
    match = _INDEX_NAME.fullmatch(name)
    if match is None:
        return None
    ledger_id = int(match[1], 16)
    return ledger_id if ledger_id < 1 << 63 else None


def encode_copy(header: IndexHeader) -> bytes:
    """The 512 bytes that are written at 0 and at 512. Raises InvalidArgument for a key or LAC that cannot be stored."""
    key, packet = header.master_key, header.explicit_lac or b""
    if len(key) > KEY_SIZE_MAX:
        raise InvalidArgument(f"a master key of {len(key)} bytes; at most {KEY_SIZE_MAX} are stored")
    if packet and not EXPLICIT_LAC_SIZE_MIN <= len(packet) <= EXPLICIT_LAC_SIZE_MAX:
        raise InvalidArgument(
            f"an explicit LAC packet of {len(packet)} bytes; it has {EXPLICIT_LAC_SIZE_MIN} to {EXPLICIT_LAC_SIZE_MAX}"
        )
    fields = b"".join(
        (
            _HEAD.pack(MAGIC, VERSION, len(key)),
            key,
            _INT.pack(FENCED_BIT if header.fenced else 0),
            _INT.pack(len(packet)),
            packet,
        )
    )
    body = fields.ljust(_TRAILER_OFFSET, b"\0") + _TRAILER.pack(_TRAILER_MAGIC, header.slot_count, 0)[:-4]
    return body + crc32c.crc32c(body).to_bytes(4, "big")


def encode_header(header: IndexHeader) -> bytes:
    """All 1024 bytes of a new file."""
    return encode_copy(header) * 2


def decode_header(data: bytes, path: str) -> IndexHeader:
    """The newest intact header. Raises CorruptRecord when neither copy is, UnknownFormatVersion.

    Which copy: the first when its CRC is right (an update torn in the second copy is in the journal), else the second
    when its CRC is right (the first was torn; the second was synced before). Without any of our marks it is Apache's.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptRecord(path, 0, f"an index header has {HEADER_SIZE} bytes, the file {len(data)}")
    first, second = data[:COPY_SIZE], data[COPY_SIZE:HEADER_SIZE]
    if _intact(first):
        return _decode_fields(first, path, slot_count=_slot_count(first), whole=first == second)
    if _intact(second):
        return _decode_fields(second, path, slot_count=_slot_count(second), whole=False)
    return _decode_fields(data[:HEADER_SIZE], path, slot_count=0, whole=True)


def damaged_copy(data: bytes) -> tuple[int, str] | None:
    """Offset and field where one copy of a header is not what it was, the other being whole; None where that is not so.

    data: the first bytes of the file. A copy with impossible fields is not whole, even if its CRC is right. Two whole
    copies that differ are no damage: the process was killed between writing them.
    """
    first, second = data[:COPY_SIZE], data[COPY_SIZE:HEADER_SIZE]
    if len(data) < HEADER_SIZE or _intact(first) == _intact(second):
        return None
    good, bad, start = (first, second, COPY_SIZE) if _intact(first) else (second, first, 0)
    try:
        _decode_fields(good, "", slot_count=0, whole=False)
    except StorageError:
        return None
    at = next(at for at in range(COPY_SIZE) if good[at] != bad[at])
    return start + at, _field_at(good, at)


def _field_at(copy: bytes, at: int) -> str:
    """The name of the field that a byte of a whole copy belongs to."""
    sizes = {"magic": 4, "version": 4, "length of the master key": 4}
    sizes["master key"] = _HEAD.unpack_from(copy)[2]
    sizes["state bits"] = sizes["length of the explicit LAC"] = _INT.size
    sizes["explicit LAC"] = _INT.unpack_from(copy, sum(sizes.values()) - _INT.size)[0]
    sizes["zeros behind the fields"] = _TRAILER_OFFSET - sum(sizes.values())
    sizes |= {"mark of the copy": 4, "number of locations": 8, "checksum of the copy": 4}
    return next(name for name, end in zip(sizes, accumulate(sizes.values()), strict=True) if at < end)


def _intact(copy: bytes) -> bool:
    return copy[_TRAILER_OFFSET : _TRAILER_OFFSET + 4] == _TRAILER_MAGIC and copy[_CRC_OFFSET:] == crc32c.crc32c(
        copy[:_CRC_OFFSET]
    ).to_bytes(4, "big")


def _slot_count(copy: bytes) -> int:
    count: int = _TRAILER.unpack_from(copy, _TRAILER_OFFSET)[1]
    return count


def _decode_fields(block: bytes, path: str, *, slot_count: int, whole: bool) -> IndexHeader:
    """Fields of a copy (CRC checked by the caller), or of a whole Apache header (then the rest must be zeros)."""
    magic, version, key_size = _HEAD.unpack_from(block)
    if magic != MAGIC:
        raise CorruptRecord(path, 0, f"an index file starts with {MAGIC!r}, this file with {magic!r}")
    if not 0 <= version <= VERSION:
        raise UnknownFormatVersion(f"{path} is an index file of version {version}; this release reads up to {VERSION}")
    offset = _HEAD.size
    if not 0 <= key_size <= len(block) - offset - 2 * _INT.size:
        raise CorruptRecord(path, offset - 4, f"a master key of {key_size} bytes")
    key = block[offset : offset + key_size]
    offset += key_size
    (state_bits,) = _INT.unpack_from(block, offset)
    if state_bits not in (0, FENCED_BIT):
        raise CorruptRecord(path, offset, f"state bits {state_bits:#x}")
    offset += _INT.size
    packet = b""
    if version >= 1:
        (packet_size,) = _INT.unpack_from(block, offset)
        offset += _INT.size
        if packet_size and not EXPLICIT_LAC_SIZE_MIN <= packet_size <= len(block) - offset:
            raise CorruptRecord(path, offset - 4, f"an explicit LAC of {packet_size} bytes")
        packet = block[offset : offset + packet_size]
        offset += packet_size
    if len(block) == HEADER_SIZE and block.count(0, offset) != HEADER_SIZE - offset:
        raise CorruptRecord(path, offset, "bytes after the header that are neither zeros nor an intact copy of it")
    return IndexHeader(key, bool(state_bits), packet or None, slot_count, version, whole)


# --- locations ------------------------------------------------------------------------------------------------------


def slot_offset(entry_id: int) -> int:
    """Where the location of an entry is in the file."""
    return HEADER_SIZE + entry_id * SLOT_SIZE


def padded_size(slot_count: int) -> int:
    """Length of a file whose highest entry id is `slot_count` - 1."""
    return HEADER_SIZE + -(-slot_count // PAGE_SLOTS) * PAGE_SIZE


def encode_slots(slots: array[int]) -> bytes:
    """Big-endian bytes of locations."""
    if sys.byteorder == "little":
        slots = slots[:]
        slots.byteswap()
    return slots.tobytes()


def decode_slots(data: bytes) -> array[int]:
    """Locations of a page, without the zeros at its end. `data` is a multiple of 8 bytes."""
    used = -(-len(data.rstrip(b"\0")) // SLOT_SIZE) * SLOT_SIZE
    slots = array("q", data[:used])
    if sys.byteorder == "little":
        slots.byteswap()
    return slots
