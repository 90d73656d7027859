"""Is a second add of an entry the same entry (I-69)? Pure.

Resends carry the same bytes. Recovery and re-replication package the payload anew: another LAC, another digest, the
same ids, length field and payload. Anything else is a second body for one id: split brain, to be refused and reported.

Where the copy held is certainly damaged there is nothing to compare with: a recovery add may take its place (I-67).

A bookie does not know the ledger's digest type, so the place of the payload has to be found:

    body = ledger id i64 | entry id i64 | LAC i64 | length i64 | digest (4, 8, 20 or 0 bytes) | payload
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Sequence
from dataclasses import dataclass

import crc32c

from bookkeeper.model import ENTRY_HEADER_SIZE, Status

_CRC32C_SIZE = 4
_CRC32_SIZE = 8
_MAC_SIZE = 20
_LAC = slice(16, 24)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A batch sorted out. new_ids and new_bodies: not held, or damaged, to be added. differing: held with another body.
    unknown: whether they are held could not be told, answer I/O error. Entries that are held already are in none."""

    new_ids: list[int]
    new_bodies: list[bytes]
    differing: list[int]
    unknown: list[int]


def sort_out(
    entry_ids: Sequence[int],
    bodies: Sequence[bytes],
    stored: Sequence[bytes | Status | None],
    replaceable: Container[int] = (),
) -> Verdict:
    """Compare a batch with what the storage answered for its ids (None: still to be read, counts as unknown).

    replaceable: ids whose copies are certainly damaged, and may be replaced; they count only where nothing could be
    read. An id that occurs twice in the batch is new once; its second body is compared with the first.
    """
    verdict = Verdict([], [], [], [])
    fresh: dict[int, bytes] = {}
    for entry_id, body, held in zip(entry_ids, bodies, stored, strict=True):
        if held is Status.NO_ENTRY or held is Status.NO_LEDGER or (held is Status.IO_ERROR and entry_id in replaceable):
            held = fresh.setdefault(entry_id, body)
            if held is body:
                verdict.new_ids.append(entry_id)
                verdict.new_bodies.append(body)
                continue
        if not isinstance(held, bytes):
            verdict.unknown.append(entry_id)
        elif not same_entry(held, body):
            verdict.differing.append(entry_id)
    return verdict


def same_entry(stored: bytes, offered: bytes) -> bool:
    """True when both bodies say the same: equal, or the same payload packaged with another LAC.

    A CRC tells its digest type by itself, and then the payloads decide. Otherwise the ledger uses MAC (whose key a
    bookie does not have) or no digest: the payloads are the same if all after the longest digest is, or all after none.
    """
    if stored == offered:
        return True
    if len(stored) != len(offered) or len(stored) < ENTRY_HEADER_SIZE:
        return False
    if stored[:16] != offered[:16] or stored[24:ENTRY_HEADER_SIZE] != offered[24:ENTRY_HEADER_SIZE]:
        return False
    for is_packaged, digest_size in ((_is_crc32c, _CRC32C_SIZE), (_is_crc32, _CRC32_SIZE)):
        if is_packaged(stored):
            return is_packaged(offered) and stored[32 + digest_size :] == offered[32 + digest_size :]
    if stored[_LAC] == offered[_LAC]:
        return False
    if stored[ENTRY_HEADER_SIZE:] == offered[ENTRY_HEADER_SIZE:]:
        return True
    payload_offset = ENTRY_HEADER_SIZE + _MAC_SIZE
    return len(stored) >= payload_offset and stored[payload_offset:] == offered[payload_offset:]


def _is_crc32c(body: bytes) -> bool:
    if len(body) < ENTRY_HEADER_SIZE + _CRC32C_SIZE:
        return False
    digest = crc32c.crc32c(body[36:], crc32c.crc32c(body[:ENTRY_HEADER_SIZE]))
    return body[ENTRY_HEADER_SIZE:36] == digest.to_bytes(4, "big")


def _is_crc32(body: bytes) -> bool:
    if len(body) < ENTRY_HEADER_SIZE + _CRC32_SIZE:
        return False
    digest = zlib.crc32(body[40:], zlib.crc32(body[:ENTRY_HEADER_SIZE]))
    return body[ENTRY_HEADER_SIZE:40] == digest.to_bytes(8, "big")
