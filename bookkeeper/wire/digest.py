"""The envelope of an entry: ids, LAC, length, digest; and the keys.

    entry body:   ledger id i64 | entry id i64 | LAC i64 | length i64 | digest | payload
    LAC packet:   ledger id i64 | LAC i64 | digest

length: payload bytes of the ledger up to and including this entry. The digest covers everything but itself:

    DUMMY    0 bytes
    CRC32    8 bytes: the IEEE CRC-32 as an i64
    CRC32C   4 bytes: Castagnoli
    MAC     20 bytes: HMAC-SHA-1 under SHA-1("mac" + password)

Each type has loops of its own over a whole batch: one call per entry to a checksum method would cost as much as the
checksum. A wrong digest and a wrong id are the same to a reader: this copy is no use, ask another replica.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import ClassVar, NamedTuple
from zlib import crc32

from crc32c import crc32c

from bookkeeper.model import ENTRY_HEADER_SIZE, DigestType
from bookkeeper.wire.packed_bodies import PackedBodies

_HEAD = struct.Struct(">qqqq")
_IDS = struct.Struct(">qq")
_CRC32 = struct.Struct(">Q")
_CRC32C = struct.Struct(">I")
_IDS_AND_CRC32 = struct.Struct(">qq16xQ")
_IDS_AND_CRC32C = struct.Struct(">qq16xI")
_LONG = struct.Struct(">q")

IDS_SIZE = _IDS.size
"""Bytes of ledger id and entry id at the start of a body."""

LAC_HEADER_SIZE = 16
"""Bytes of ledger id and LAC at the start of an explicit-LAC packet."""

_SHA1_BLOCK_SIZE = 64

_LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1


def master_key(password: bytes) -> bytes:
    """The 20 bytes a writer or fencer shows to a bookie; the same for every digest type."""
    return hashlib.sha1(b"ledger" + password).digest()


def mac_key(password: bytes) -> bytes:
    """The 20-byte HMAC key of the MAC digest."""
    return hashlib.sha1(b"mac" + password).digest()


def ids_of(body: bytes) -> tuple[int, int]:
    """Ledger id and entry id inside an entry body (at least 32 bytes)."""
    ledger_id, entry_id = _IDS.unpack_from(body)
    return ledger_id, entry_id


def lac_of(body: bytes) -> int:
    """The LAC inside an entry body (at least 32 bytes)."""
    lac: int = _LONG.unpack_from(body, 16)[0]
    return lac


def length_of(body: bytes) -> int:
    """The ledger's length up to and including this entry, from an entry body (at least 32 bytes)."""
    length: int = _LONG.unpack_from(body, 24)[0]
    return length


class VerifiedRun(NamedTuple):
    """Good entries in columns. lengths: the length field of each header."""

    payloads: list[bytes]
    lengths: array[int]


class Digest(ABC):
    """Packs and checks the entries of one ledger. Stateless after construction; any thread.

    type, size: digest type and bytes of the digest. overhead: bytes an entry body has beyond its payload.
    """

    type: ClassVar[DigestType]
    size: ClassVar[int]

    @property
    def overhead(self) -> int:
        """Bytes of header and digest together."""
        return ENTRY_HEADER_SIZE + self.size

    def package(
        self, ledger_id: int, first_entry_id: int, lac: int, length_before: int, payloads: Sequence[bytes]
    ) -> tuple[list[bytes], int]:
        """Bodies of consecutive new entries, and the ledger's length after them.

        length_before: payload bytes of all entries before `first_entry_id`.
        """
        lengths = list(accumulate(map(len, payloads), initial=length_before))
        entry_ids = range(first_entry_id, first_entry_id + len(payloads))
        return self.package_entries(ledger_id, entry_ids, lac, lengths[1:], payloads), lengths[-1]

    @abstractmethod
    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        """Bodies of entries whose ids and length fields are given: recovery, re-replication, chosen ids.

        The three sequences are equally long (ValueError otherwise).
        """

    def package_entry(self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        """The body of one entry; length: as of its length field."""
        return self.package_entries(ledger_id, (entry_id,), lac, (length,), (payload,))[0]

    @abstractmethod
    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        """The payload of each body; None where it is too short, its digest is wrong or it is another entry's.

        The two sequences are equally long (ValueError otherwise).
        """

    def verify_run(self, ledger_id: int, first_entry_id: int, bodies: Sequence[bytes]) -> Sequence[bytes] | None:
        """The payloads of consecutive entries, one body each; None where one is no use, and `verify` says which.

        The quick way for what nearly every batch is; quicker still for `PackedBodies`.
        """
        entry_ids = range(first_entry_id, first_entry_id + len(bodies))
        if isinstance(bodies, PackedBodies):
            run = self.verify_packed(ledger_id, entry_ids, bodies)
            return None if run is None else run.payloads
        payloads = self.verify(ledger_id, entry_ids, bodies)
        good = [payload for payload in payloads if payload is not None]
        return good if len(good) == len(payloads) else None

    def verify_packed(self, ledger_id: int, entry_ids: Sequence[int], bodies: PackedBodies) -> VerifiedRun | None:
        """The same with what the headers say besides; the entries need not be consecutive.

        entry_ids: one of each body (ValueError otherwise); an array of int64 is quickest.
        """
        if len(entry_ids) != len(bodies):
            raise ValueError(f"{len(entry_ids)} entry ids of {len(bodies)} bodies")
        if not len(bodies):
            return VerifiedRun([], array("q"))
        columns = self._cut(ledger_id, entry_ids, bodies) if bodies.body_size >= self.overhead else None
        if columns is None:
            return None
        heads, payloads = columns
        fields = _fields(heads)
        each = ENTRY_HEADER_SIZE // _LONG.size
        return VerifiedRun(payloads, fields[3::each]) if _names(fields, each, ledger_id, entry_ids) else None

    def _cut(
        self, ledger_id: int, entry_ids: Sequence[int], bodies: PackedBodies
    ) -> tuple[list[bytes], list[bytes]] | None:
        """Headers and payloads of bodies that are large enough; None where a digest is wrong."""
        payloads = self.verify(ledger_id, entry_ids, bodies)
        good = [payload for payload in payloads if payload is not None]
        if len(good) < len(payloads):
            return None
        (heads,) = bodies.columns(f"{ENTRY_HEADER_SIZE}s{bodies.body_size - ENTRY_HEADER_SIZE}x")
        return heads, good

    def verify_last(self, ledger_id: int, body: bytes) -> tuple[int, bytes] | None:
        """Entry id and payload of a body whose entry id could not be known before (a read of the last entry)."""
        if len(body) < self.overhead:
            return None
        entry_id = ids_of(body)[1]
        (payload,) = self.verify(ledger_id, (entry_id,), (body,))
        return None if payload is None else (entry_id, payload)

    def package_lac(self, ledger_id: int, lac: int) -> bytes:
        """The explicit-LAC packet."""
        head = _IDS.pack(ledger_id, lac)
        return head + self._digest(head)

    def verify_lac(self, ledger_id: int, packet: bytes) -> int | None:
        """The LAC of an explicit-LAC packet; None when it is too short, damaged or another ledger's."""
        end = LAC_HEADER_SIZE + self.size
        if len(packet) < end:
            return None
        head = packet[:LAC_HEADER_SIZE]
        if not hmac.compare_digest(self._digest(head), packet[LAC_HEADER_SIZE:end]):
            return None
        found, lac = _IDS.unpack(head)
        return lac if found == ledger_id else None

    @abstractmethod
    def _digest(self, data: bytes) -> bytes:
        """The digest of `data`, `size` bytes."""


class DummyDigest(Digest):
    """No digest; only the ids are checked."""

    type = DigestType.DUMMY
    size = 0

    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        pack = _HEAD.pack
        return [
            pack(ledger_id, entry_id, lac, length) + payload
            for entry_id, length, payload in zip(entry_ids, lengths, payloads, strict=True)
        ]

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        pack = _IDS.pack
        return [
            body[ENTRY_HEADER_SIZE:]
            if len(body) >= ENTRY_HEADER_SIZE and body.startswith(pack(ledger_id, entry_id))
            else None
            for entry_id, body in zip(entry_ids, bodies, strict=True)
        ]

    def _cut(
        self, ledger_id: int, entry_ids: Sequence[int], bodies: PackedBodies
    ) -> tuple[list[bytes], list[bytes]] | None:
        heads, payloads = bodies.columns(f"32s{bodies.body_size - self.overhead}s")
        return heads, payloads

    def _digest(self, data: bytes) -> bytes:
        return b""


class Crc32Digest(Digest):
    """IEEE CRC-32, widened to eight bytes."""

    type = DigestType.CRC32
    size = 8

    def package_entry(self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        """As of `Crc32cDigest`."""
        head = _HEAD.pack(ledger_id, entry_id, lac, length)
        return head + _CRC32.pack(crc32(payload, crc32(head))) + payload

    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        pack_head, pack_crc, crc = _HEAD.pack, _CRC32.pack, crc32
        bodies = []
        for entry_id, length, payload in zip(entry_ids, lengths, payloads, strict=True):
            head = pack_head(ledger_id, entry_id, lac, length)
            bodies.append(head + pack_crc(crc(payload, crc(head))) + payload)
        return bodies

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        unpack, crc = _IDS_AND_CRC32.unpack_from, crc32
        payloads: list[bytes | None] = []
        for entry_id, body in zip(entry_ids, bodies, strict=True):
            if len(body) >= 40:
                expected = (ledger_id, entry_id, crc(payload := body[40:], crc(body[:32])))
                payloads.append(payload if unpack(body) == expected else None)
            else:
                payloads.append(None)
        return payloads

    def _cut(
        self, ledger_id: int, entry_ids: Sequence[int], bodies: PackedBodies
    ) -> tuple[list[bytes], list[bytes]] | None:
        heads, digests, payloads = bodies.columns(f"32sQ{bodies.body_size - self.overhead}s")
        return (heads, payloads) if list(map(crc32, payloads, map(crc32, heads))) == digests else None

    def _digest(self, data: bytes) -> bytes:
        return _CRC32.pack(crc32(data))


class Crc32cDigest(Digest):
    """Castagnoli CRC-32C."""

    type = DigestType.CRC32C
    size = 4

    def package_entry(self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        """The same with less around it: many ledgers send their entries one by one."""
        head = _HEAD.pack(ledger_id, entry_id, lac, length)
        return head + _CRC32C.pack(crc32c(head + payload)) + payload

    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        pack_head, pack_crc, crc = _HEAD.pack, _CRC32C.pack, crc32c
        bodies = []
        for entry_id, length, payload in zip(entry_ids, lengths, payloads, strict=True):
            head = pack_head(ledger_id, entry_id, lac, length)
            bodies.append(head + pack_crc(crc(payload, crc(head))) + payload)
        return bodies

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        if len(bodies) > 1 and len(entry_ids) == len(bodies) and min(map(len, bodies)) >= 36:
            # All at once, which is how nearly all batches are; two thirds of the time of one after the other.
            whole = [body[36:] for body in bodies]
            crcs = map(crc32c, whole, map(crc32c, [body[:32] for body in bodies]))
            expected_all = zip(repeat(ledger_id), entry_ids, crcs, strict=False)
            if list(map(_IDS_AND_CRC32C.unpack_from, bodies)) == list(expected_all):
                return list[bytes | None](whole)
        unpack, crc = _IDS_AND_CRC32C.unpack_from, crc32c
        payloads: list[bytes | None] = []
        for entry_id, body in zip(entry_ids, bodies, strict=True):
            if len(body) >= 36:
                expected = (ledger_id, entry_id, crc(payload := body[36:], crc(body[:32])))
                payloads.append(payload if unpack(body) == expected else None)
            else:
                payloads.append(None)
        return payloads

    def _cut(
        self, ledger_id: int, entry_ids: Sequence[int], bodies: PackedBodies
    ) -> tuple[list[bytes], list[bytes]] | None:
        heads, digests, payloads = bodies.columns(f"32sI{bodies.body_size - self.overhead}s")
        return (heads, payloads) if list(map(crc32c, payloads, map(crc32c, heads))) == digests else None

    def _digest(self, data: bytes) -> bytes:
        return _CRC32C.pack(crc32c(data))


class MacDigest(Digest):
    """HMAC-SHA-1 keyed by the password.

    HMAC is sha1(outer key + sha1(inner key + data)); both keyed states are prepared once and copied per entry, which
    takes 0.6 of the time of copying a `hmac.HMAC`.
    """

    type = DigestType.MAC
    size = 20

    def __init__(self, password: bytes) -> None:
        key = mac_key(password).ljust(_SHA1_BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key))

    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        pack_head, copy_inner, copy_outer = _HEAD.pack, self._inner.copy, self._outer.copy
        bodies = []
        for entry_id, length, payload in zip(entry_ids, lengths, payloads, strict=True):
            head = pack_head(ledger_id, entry_id, lac, length)
            inner = copy_inner()
            inner.update(head)
            inner.update(payload)
            outer = copy_outer()
            outer.update(inner.digest())
            bodies.append(head + outer.digest() + payload)
        return bodies

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        unpack, copy_inner, copy_outer = _IDS.unpack_from, self._inner.copy, self._outer.copy
        payloads: list[bytes | None] = []
        for entry_id, body in zip(entry_ids, bodies, strict=True):
            payload = None
            if len(body) >= 52 and unpack(body) == (ledger_id, entry_id):
                inner = copy_inner()
                inner.update(body[:32])
                inner.update(body[52:])
                outer = copy_outer()
                outer.update(inner.digest())
                if hmac.compare_digest(outer.digest(), body[32:52]):
                    payload = body[52:]
            payloads.append(payload)
        return payloads

    def _digest(self, data: bytes) -> bytes:
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


def name_run(heads: Sequence[bytes], ledger_id: int, first_entry_id: int) -> bool:
    """True when bodies name consecutive entries of the ledger from the first one on.

    heads: their first bytes, of all the same number: at least IDS_SIZE, and whole fields.
    """
    entry_ids = range(first_entry_id, first_entry_id + len(heads))
    return _names(_fields(heads), len(heads[0]) // _LONG.size, ledger_id, entry_ids)


def _fields(heads: Sequence[bytes]) -> array[int]:
    """The numbers in the first bytes of bodies, those of one body behind those of another."""
    fields = array("q", b"".join(heads))
    if _LITTLE_ENDIAN:
        fields.byteswap()
    return fields


def _names(fields: array[int], each: int, ledger_id: int, entry_ids: Sequence[int]) -> bool:
    """True when they name these entries of the ledger. each: fields of one body."""
    expected = entry_ids if isinstance(entry_ids, array) else array("q", entry_ids)
    return fields[1::each] == expected and fields[::each] == array("q", [ledger_id]) * len(expected)


_CRC32C_DIGEST = Crc32cDigest()
"""One for all ledgers: it knows nothing of them, and a client may hold very many."""


def digest_of(digest_type: DigestType, password: bytes) -> Digest:
    """The digest of a ledger."""
    match digest_type:
        case DigestType.CRC32C:
            return _CRC32C_DIGEST
        case DigestType.CRC32:
            return Crc32Digest()
        case DigestType.MAC:
            return MacDigest(password)
        case DigestType.DUMMY:
            return DummyDigest()
