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
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

from crc32c import crc32c

from bookkeeper.model import ENTRY_HEADER_SIZE, DigestType
from bookkeeper.wire.packed_bodies import PackedBodies

_HEAD = struct.Struct(">qqqq")
_IDS = struct.Struct(">qq")
_CRC32 = struct.Struct(">Q")
_CRC32C = struct.Struct(">I")
_HEAD_AND_CRC32 = struct.Struct(">qq8xqQ")
_HEAD_AND_CRC32C = struct.Struct(">qq8xqI")
_LONG = struct.Struct(">q")

IDS_SIZE = _IDS.size
"""Bytes of ledger id and entry id at the start of a body."""

LAC_HEADER_SIZE = 16
"""Bytes of ledger id and LAC at the start of an explicit-LAC packet."""

RUN_MIN = 32
"""Number of bodies from which `verify_run` is faster than `verify_entry` for each body."""

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

    type, size: digest type and bytes of the digest. _digest_code, _digest_in: the format of the digest for `struct`,
    alone and within a body. overhead: bytes of an entry body beyond its payload.
    """

    type: ClassVar[DigestType]
    size: ClassVar[int]
    _digest_code: ClassVar[str]
    _digest_in: ClassVar[struct.Struct]

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
    def verify_entry(self, ledger_id: int, entry_id: int, body: bytes) -> tuple[bytes, int] | None:
        """Return payload and length of a body, or None: too short, another entry, or a wrong digest."""

    def verify(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[bytes | None]:
        """Return the payload of each body, or None where `verify_entry` returns None.

        The two sequences are equally long (ValueError otherwise).
        """
        run = self.verify_run(ledger_id, entry_ids, bodies) if len(bodies) >= RUN_MIN else None
        if run is not None:
            return list[bytes | None](run.payloads)
        one = self.verify_entry
        found = [one(ledger_id, entry_id, body) for entry_id, body in zip(entry_ids, bodies, strict=True)]
        return [None if each is None else each[0] for each in found]

    def verify_run(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> VerifiedRun | None:
        """Return payloads and lengths of these entries. Return None if one is bad; `verify_entry` then finds which.

        Faster for RUN_MIN entries or more, and for all `PackedBodies`. The two sequences have the same length
        (ValueError otherwise). Entry ids in an array of int64 take the least time.
        """
        if len(entry_ids) != len(bodies):
            raise ValueError(f"{len(entry_ids)} entry ids of {len(bodies)} bodies")
        if not len(bodies):
            return VerifiedRun([], array("q"))
        columns = self._cut(bodies)
        if columns is None:
            return None
        heads, payloads = columns
        fields = _fields(heads)
        each = ENTRY_HEADER_SIZE // _LONG.size
        return VerifiedRun(payloads, fields[3::each]) if _names(fields, each, ledger_id, entry_ids) else None

    def _cut(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[bytes]] | None:
        """Return headers and payloads, or None if a body is too short or has a wrong digest."""
        overhead = self.overhead
        if isinstance(bodies, PackedBodies):
            if bodies.body_size < overhead:
                return None
            heads, digests, payloads = bodies.columns(
                f"{ENTRY_HEADER_SIZE}s{self._digest_code}{bodies.body_size - overhead}s"
            )
        else:
            try:
                digests = [digest for (digest,) in map(self._digest_in.unpack_from, bodies)]
            except struct.error:  # too short
                return None
            heads = [body[:ENTRY_HEADER_SIZE] for body in bodies]
            payloads = [body[overhead:] for body in bodies]
        return (heads, payloads) if self._are_good(heads, digests, payloads) else None

    @abstractmethod
    def _are_good(self, heads: Sequence[bytes], digests: list[Any], payloads: Sequence[bytes]) -> bool:
        """Return whether the digests match bodies with these headers and payloads."""

    def verify_last(self, ledger_id: int, body: bytes) -> tuple[int, bytes] | None:
        """Entry id and payload of a body whose entry id could not be known before (a read of the last entry)."""
        if len(body) < self.overhead:
            return None
        entry_id = ids_of(body)[1]
        found = self.verify_entry(ledger_id, entry_id, body)
        return None if found is None else (entry_id, found[0])

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
    _digest_code = "0s"
    _digest_in = struct.Struct(">32x0s")

    def package_entries(
        self, ledger_id: int, entry_ids: Sequence[int], lac: int, lengths: Sequence[int], payloads: Sequence[bytes]
    ) -> list[bytes]:
        pack = _HEAD.pack
        return [
            pack(ledger_id, entry_id, lac, length) + payload
            for entry_id, length, payload in zip(entry_ids, lengths, payloads, strict=True)
        ]

    def verify_entry(self, ledger_id: int, entry_id: int, body: bytes) -> tuple[bytes, int] | None:
        if len(body) < 32:
            return None
        found_ledger, found_entry, _, length = _HEAD.unpack_from(body)
        return (body[32:], length) if found_ledger == ledger_id and found_entry == entry_id else None

    def _are_good(self, heads: Sequence[bytes], digests: list[Any], payloads: Sequence[bytes]) -> bool:
        return True

    def _digest(self, data: bytes) -> bytes:
        return b""


class Crc32Digest(Digest):
    """IEEE CRC-32, widened to eight bytes."""

    type = DigestType.CRC32
    size = 8
    _digest_code = "Q"
    _digest_in = struct.Struct(">32xQ")

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

    def verify_entry(self, ledger_id: int, entry_id: int, body: bytes) -> tuple[bytes, int] | None:
        if len(body) < 40:
            return None
        found_ledger, found_entry, length, digest = _HEAD_AND_CRC32.unpack_from(body)
        if found_entry != entry_id or found_ledger != ledger_id:
            return None
        payload = body[40:]
        return (payload, length) if crc32(payload, crc32(body[:32])) == digest else None

    def _are_good(self, heads: Sequence[bytes], digests: list[Any], payloads: Sequence[bytes]) -> bool:
        return list(map(crc32, payloads, map(crc32, heads))) == digests

    def _digest(self, data: bytes) -> bytes:
        return _CRC32.pack(crc32(data))


class Crc32cDigest(Digest):
    """Castagnoli CRC-32C."""

    type = DigestType.CRC32C
    size = 4
    _digest_code = "I"
    _digest_in = struct.Struct(">32xI")

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

    def verify_entry(self, ledger_id: int, entry_id: int, body: bytes) -> tuple[bytes, int] | None:
        if len(body) < 36:
            return None
        found_ledger, found_entry, length, digest = _HEAD_AND_CRC32C.unpack_from(body)
        if found_entry != entry_id or found_ledger != ledger_id:
            return None
        payload = body[36:]
        return (payload, length) if crc32c(payload, crc32c(body[:32])) == digest else None

    def _are_good(self, heads: Sequence[bytes], digests: list[Any], payloads: Sequence[bytes]) -> bool:
        return list(map(crc32c, payloads, map(crc32c, heads))) == digests

    def _digest(self, data: bytes) -> bytes:
        return _CRC32C.pack(crc32c(data))


class MacDigest(Digest):
    """HMAC-SHA-1 keyed by the password.

    HMAC is sha1(outer key + sha1(inner key + data)); both keyed states are prepared once and copied per entry, which
    takes 0.6 of the time of copying a `hmac.HMAC`.
    """

    type = DigestType.MAC
    size = 20
    _digest_code = "20s"
    _digest_in = struct.Struct(">32x20s")

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

    def verify_entry(self, ledger_id: int, entry_id: int, body: bytes) -> tuple[bytes, int] | None:
        if len(body) < 52:
            return None
        found_ledger, found_entry, _, length = _HEAD.unpack_from(body)
        if found_entry != entry_id or found_ledger != ledger_id:
            return None
        payload = body[52:]
        inner = self._inner.copy()
        inner.update(body[:32])
        inner.update(payload)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return (payload, length) if hmac.compare_digest(outer.digest(), body[32:52]) else None

    def _are_good(self, heads: Sequence[bytes], digests: list[Any], payloads: Sequence[bytes]) -> bool:
        copy_inner, copy_outer = self._inner.copy, self._outer.copy
        expected = []
        for head, payload in zip(heads, payloads, strict=True):
            inner = copy_inner()
            inner.update(head)
            inner.update(payload)
            outer = copy_outer()
            outer.update(inner.digest())
            expected.append(outer.digest())
        return hmac.compare_digest(b"".join(expected), b"".join(digests))

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
    """Return whether the fields name these entries of the ledger. each: number of fields of one body."""
    expected = entry_ids if isinstance(entry_ids, array) else array("q", list(entry_ids))  # a list halves the time
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
