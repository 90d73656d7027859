"""Checksums of an entry log: the bytes of its side file, and how they grow with the log. Pure.

Apache's entry log has no room for checksums of its own, so they lie beside it: `<hex>.crc` beside `<hex>.log`. Apache
ignores such names (I-67). A log is cut into pages of 4096 bytes at multiples of 4096; the header (its first 1024 bytes)
is left out, as it is rewritten when the log is closed and has a seal of its own then. The side file is a row of blocks
of 4096 bytes, block b for the pages from 1015 b on, so that any page's checksum is found by one small read:

    0     "pyLC" | version u32 | log id i32 | block number u32 | pages here u32 | flags u32 (1 = the log ends here,
          2 = and its header is sealed, 4 = and some checksums are of bytes as they were found) | end i64: where the
          bytes of the log end that this block's pages cover
    32    CRC32C of each page u32
    4092  CRC32C of the 4092 bytes before u32

          page 0     bytes 1024..4095 of the log              page p     bytes 4096 p .. 4096 p + 4095
          last page  up to `end`: the size of a closed log, else what was synced when the block was written

A log's writer makes the side file with the log, and extends it after each sync of the log and before any index names
what was synced. So of a log that a crash cut short the `end` of the last block bounds what an index may name: bytes
behind it are in the journal, and the log ends there from then on, for whoever closes it later. Where the last block is
torn, or nobody wrote one, the whole log is taken as it was found, which is noted: what was changed before is not known.

The side file is derived from the log: a block that is torn, damaged or missing says nothing, and the pages it is for
are read unchecked until the scrub has made it anew. Therefore a failed write or sync of it is not fatal (I-48 is about
bytes that somebody was promised). A block never speaks of bytes that were not synced before it was written: what a
power cut leaves of them must not look like damage. It is synced with each checkpoint all the same, so that what a
checkpoint covers is checked after a power cut, too.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c

from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, LOG_ID_MAX

PAGE_SIZE = 4096
BLOCK_SIZE = 4096
MAGIC = b"pyLC"
VERSION = 1
_HEAD = struct.Struct(">4sIiIIIq")
_CRC_OFFSET = BLOCK_SIZE - 4
BLOCK_PAGES = (_CRC_OFFSET - _HEAD.size) // 4
_LOG_ENDS = 1
_LOG_SEALED = 2
_AS_FOUND = 4

_NAME = re.compile(r"([0-9a-f]{1,8})\.crc")


def checksums_name(log_id: int) -> str:
    """File name of a log's side file."""
    return f"{log_id:x}.crc"


def parse_checksums_name(name: str) -> int | None:
    """Log id of a side file's name, None for any other."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    log_id = int(match[1], 16)
    return log_id if log_id <= LOG_ID_MAX else None


def page_of(offset: int) -> int:
    """The page that has this byte of the log."""
    return offset // PAGE_SIZE


def page_start(page: int) -> int:
    """Where the bytes of a page begin in the log."""
    return page * PAGE_SIZE or HEADER_SIZE


def page_end(page: int) -> int:
    """Where a whole page ends."""
    return (page + 1) * PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Block:
    """What one block says. first_page: of the log. end: of the bytes covered. log_ends: the log was closed there.

    log_sealed: and its header has a seal. as_found: not all checksums of the log are its writer's.
    """

    crcs: array[int]
    first_page: int
    end: int
    log_ends: bool
    log_sealed: bool = False
    as_found: bool = False


def encode_block(
    log_id: int,
    number: int,
    crcs: array[int],
    *,
    end: int,
    log_ends: bool,
    log_sealed: bool = False,
    as_found: bool = False,
) -> bytes:
    """The 4096 bytes of a block. crcs: of its pages, at most BLOCK_PAGES."""
    flags = (_LOG_ENDS if log_ends else 0) | (_LOG_SEALED if log_sealed else 0) | (_AS_FOUND if as_found else 0)
    head = _HEAD.pack(MAGIC, VERSION, log_id, number, len(crcs), flags, end)
    body = (head + _big_endian(crcs)).ljust(_CRC_OFFSET, b"\0")
    return body + crc32c.crc32c(body).to_bytes(4, "big")


def decode_block(data: bytes, *, log_id: int, number: int) -> Block | None:
    """The block; None unless it is intact and that of this place of this log."""
    if len(data) < BLOCK_SIZE or crc32c.crc32c(data[:_CRC_OFFSET]) != int.from_bytes(data[_CRC_OFFSET:BLOCK_SIZE]):
        return None
    magic, version, found_id, found_number, count, flags, end = _HEAD.unpack_from(data)
    if (magic, version, found_id, found_number) != (MAGIC, VERSION, log_id, number) or count > BLOCK_PAGES:
        return None
    crcs = array("I", data[_HEAD.size : _HEAD.size + 4 * count])
    if sys.byteorder == "little":
        crcs.byteswap()
    return Block(
        crcs,
        number * BLOCK_PAGES,
        end,
        log_ends=bool(flags & _LOG_ENDS),
        log_sealed=bool(flags & _LOG_SEALED),
        as_found=bool(flags & _AS_FOUND),
    )


def whole_blocks(blocks: Sequence[Block | None]) -> list[Block | None]:
    """None also for a block that others follow and that lacks pages: a power cut kept an older one of it."""
    return [
        None if block is None or (number < len(blocks) - 1 and len(block.crcs) < BLOCK_PAGES) else block
        for number, block in enumerate(blocks)
    ]


def _big_endian(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values.tobytes()


class PageChecksums:
    """Checksums of the whole pages of a log that is being appended to; 4 bytes of memory for a page.

    The writer's thread appends; others may look up a page at the same time.

    size: bytes of the log so far, header included.
    """

    __slots__ = ("_tail", "crcs", "size")

    def __init__(self) -> None:
        self.size = HEADER_SIZE
        self.crcs = array("I")
        """Of the whole pages: page_end(len(crcs) - 1) <= size."""
        self._tail = 0

    def append(self, data: bytes) -> None:
        """Take the bytes that follow."""
        crc, view, crcs = crc32c.crc32c, memoryview(data), self.crcs
        at = min(-self.size % PAGE_SIZE, len(data))
        if at:
            self._tail = crc(view[:at], self._tail)
            if (self.size + at) % PAGE_SIZE == 0:
                crcs.append(self._tail)
                self._tail = 0
        whole = at + (len(data) - at) // PAGE_SIZE * PAGE_SIZE
        crcs.extend([crc(view[start : start + PAGE_SIZE]) for start in range(at, whole, PAGE_SIZE)])
        if whole < len(data):
            self._tail = crc(view[whole:], self._tail)
        self.size += len(data)

    @property
    def tail(self) -> int | None:
        """Checksum of the last page where it is not whole, None where it is."""
        return self._tail if self.size % PAGE_SIZE else None


def blocks_of(
    log_id: int,
    crcs: array[int],
    *,
    size: int,
    first_page: int,
    closed: bool,
    sealed: bool = False,
    as_found: bool = False,
) -> Iterator[tuple[int, bytes]]:
    """(offset in the side file, bytes) of the blocks for the pages from `first_page` on.

    crcs: of all pages from 0 on, the last one up to `size`, the bytes of the log that they cover.
    """
    count = len(crcs)
    # There is a last block even where the log has no page at all: it says where it ends.
    last = max(0, count - 1) // BLOCK_PAGES
    for number in range(min(first_page // BLOCK_PAGES, last), last + 1):
        low = number * BLOCK_PAGES
        some = crcs[low : low + BLOCK_PAGES]
        end = size if number == last else page_end(low + len(some) - 1)
        ends = closed and number == last
        block = encode_block(
            log_id, number, some, end=end, log_ends=ends, log_sealed=ends and sealed, as_found=ends and as_found
        )
        yield number * BLOCK_SIZE, block
