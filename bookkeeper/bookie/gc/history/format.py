"""A bookie's memory of the metadata store, and its list of ledgers kept although the store lacks them. Pure.

File `current/metadata.history` in every ledger directory with room for it; the newest one counts.

    "pyBKhist" | size of the text u32 | size of the ids u32 | text | ids | CRC32C of all before u32
    text   JSON: {"version": 1, "saved": n, "cluster": instance id, "bookies": [id, ...], "counter": n,
                  "used": n, "short_ids": n, "long_ids": n, "raised": n, "finding": null or {...},
                  "kept": [[first, last], ...], "discarded": [[first, last], ...]}
    ids    the ledgers that were held when the counter was written, ascending, i64 big-endian, compressed (zlib)

All numbers are big-endian. `saved` rises with every write. Apache's bookie ignores the file.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from dataclasses import dataclass, field
from typing import Any

import crc32c

from bookkeeper.errors import CorruptRecord, UnknownFormatVersion
from bookkeeper.metadata.cluster.history_format import GeneratedIds, Ranges
from bookkeeper.texts import parse_json

FILE_NAME = "metadata.history"
VERSION = 1

HELD_MAX = 8_000_000
"""Ledgers that the file lists as held; the highest ids beyond it count as new."""

FILE_SIZE_MAX = 256 * 1024 * 1024

_MAGIC = b"pyBKhist"
_HEAD = struct.Struct(">8sII")
_CRC_SIZE = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """The store showed less than this bookie has seen of it. counter, ids: what it showed at `found_ms`.

    newer: ledgers that were here, with ids beyond those that the store showed. reason: a further reason, that the
    bookie's own memory was lost; "" if there is none.
    """

    found_ms: int
    counter: int
    ids: GeneratedIds
    newer: Ranges = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The content of the file.

    bookies: the ids of this bookie, the present one last. counter: the highest value that this bookie wrote into the
    store; 0: none. used: the highest counter that copies of the store may have which an operator gave up. ids: the
    highest generators seen. raised: number of the newest raise of the generators that was seen. held: ledgers that were
    here before `counter` was written, ascending. finding: None while the store shows all that was seen of it. kept:
    ledgers that are kept although the store lacks them. discarded: ledgers that an operator gave up during the finding.
    """

    cluster: str
    bookies: tuple[str, ...] = ()
    saved: int = 0
    counter: int = 0
    used: int = 0
    ids: GeneratedIds = field(default_factory=GeneratedIds)
    raised: int = 0
    finding: Finding | None = None
    held: array[int] = field(default_factory=lambda: array("q"))
    kept: Ranges = ()
    discarded: Ranges = ()


def encode(history: History) -> bytes:
    finding = history.finding
    text = json.dumps(
        {
            "version": VERSION,
            "saved": history.saved,
            "cluster": history.cluster,
            "bookies": history.bookies,
            "counter": history.counter,
            "used": history.used,
            "short_ids": history.ids.short,
            "long_ids": history.ids.long,
            "raised": history.raised,
            "finding": None
            if finding is None
            else {
                "found_ms": finding.found_ms,
                "counter": finding.counter,
                "short_ids": finding.ids.short,
                "long_ids": finding.ids.long,
                "newer": finding.newer,
                "reason": finding.reason,
            },
            "kept": history.kept,
            "discarded": history.discarded,
        },
        separators=(",", ":"),
    ).encode()
    ids = zlib.compress(_big_endian(history.held[:HELD_MAX]).tobytes(), 1)
    data = _HEAD.pack(_MAGIC, len(text), len(ids)) + text + ids
    return data + crc32c.crc32c(data).to_bytes(_CRC_SIZE, "big")


def decode(data: bytes, path: str) -> History:
    """Return the content of the file at `path`. Raises CorruptRecord, UnknownFormatVersion."""
    if len(data) < _HEAD.size + _CRC_SIZE:
        raise CorruptRecord(path, len(data), "the file ends within its header")
    magic, text_size, ids_size = _HEAD.unpack_from(data)
    end = _HEAD.size + text_size + ids_size
    if magic != _MAGIC or len(data) != end + _CRC_SIZE:
        raise CorruptRecord(path, 0, f"{len(data)} bytes that begin with {data[: _HEAD.size]!r}")
    if crc32c.crc32c(data[:end]) != int.from_bytes(data[end:], "big"):
        raise CorruptRecord(path, end, "the checksum differs")
    try:
        fields: Any = parse_json(data[_HEAD.size : _HEAD.size + text_size])
        if fields["version"] > VERSION:
            raise UnknownFormatVersion(
                f"{path}: format version is {fields['version']}, this release reads up to {VERSION}; "
                "start the release that wrote it"
            )
        found = fields["finding"]
        return History(
            cluster=str(fields["cluster"]),
            bookies=tuple(str(each) for each in fields["bookies"]),
            saved=int(fields["saved"]),
            counter=int(fields["counter"]),
            used=int(fields.get("used", 0)),
            ids=GeneratedIds(int(fields["short_ids"]), int(fields["long_ids"])),
            raised=int(fields["raised"]),
            finding=None
            if found is None
            else Finding(
                int(found["found_ms"]),
                int(found["counter"]),
                GeneratedIds(int(found["short_ids"]), int(found["long_ids"])),
                _ranges(found["newer"]),
                str(found["reason"]),
            ),
            held=_ids(data[_HEAD.size + text_size : end]),
            kept=_ranges(fields["kept"]),
            discarded=_ranges(fields["discarded"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, zlib.error) as error:
        raise CorruptRecord(path, _HEAD.size, f"{type(error).__name__}: {error}") from error


def _ranges(value: Any) -> Ranges:
    return tuple((int(first), int(last)) for first, last in value)


def _ids(data: bytes) -> array[int]:
    unpacker = zlib.decompressobj()
    found = array("q")
    found.frombytes(unpacker.decompress(data, HELD_MAX * found.itemsize))
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError(f"more than {HELD_MAX} ledgers, or cut off")
    return _big_endian(found)


def _big_endian(ids: array[int]) -> array[int]:
    """Convert to or from the file's byte order; may return the argument itself."""
    if sys.byteorder == "little":
        ids = ids[:]
        ids.byteswap()
    return ids
