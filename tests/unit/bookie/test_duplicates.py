"""Which second adds are the same entry (I-69)."""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable

import crc32c
import pytest

from bookkeeper.bookie.requests.duplicates import same_entry, sort_out
from bookkeeper.model import Status

DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    "CRC32C": lambda data: crc32c.crc32c(data).to_bytes(4, "big"),
    "CRC32": lambda data: zlib.crc32(data).to_bytes(8, "big"),
    "MAC": lambda data: hmac.new(b"key", data, hashlib.sha1).digest(),
    "DUMMY": lambda data: b"",
}


def body(digest: str, payload: bytes = b"p" * 30, *, entry_id: int = 3, lac: int = 2, length: int = 99) -> bytes:
    head = struct.pack(">qqqq", 7, entry_id, lac, length)
    return head + DIGESTS[digest](head + payload) + payload


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("payload", [b"", b"x", b"p" * 30, bytes(1000)])
def test_the_same_bytes_and_a_new_package_are_the_same_entry(digest: str, payload: bytes) -> None:
    assert same_entry(body(digest, payload), body(digest, payload))
    assert same_entry(body(digest, payload, lac=-1), body(digest, payload, lac=17))


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("lac", [2, 3])
def test_another_payload_length_or_id_is_another_entry(digest: str, lac: int) -> None:
    first = body(digest)
    assert not same_entry(first, body(digest, b"p" * 29 + b"q", lac=lac))
    assert not same_entry(first, body(digest, b"p" * 31, lac=lac))
    assert not same_entry(first, body(digest, length=100, lac=lac))
    assert not same_entry(first, body(digest, entry_id=4, lac=lac))


@pytest.mark.parametrize("digest", ["CRC32", "CRC32C"])
def test_a_change_near_the_digest_is_seen_where_a_crc_tells_the_digest_type(digest: str) -> None:
    assert not same_entry(body(digest, b"abc" + bytes(30)), body(digest, b"abd" + bytes(30), lac=5))


@pytest.mark.parametrize("digest", ["CRC32", "CRC32C"])
def test_a_forged_digest_is_another_entry(digest: str) -> None:
    forged = bytearray(body(digest, lac=9))
    forged[33] ^= 1
    assert not same_entry(body(digest), bytes(forged))


def test_a_mac_that_differs_alone_is_another_entry() -> None:
    forged = bytearray(body("MAC"))
    forged[40] ^= 1
    assert not same_entry(body("MAC"), bytes(forged))


@pytest.mark.parametrize("size", range(0, 60, 7))
def test_bodies_of_any_size_are_compared(size: int) -> None:
    assert same_entry(bytes(size), bytes(size))
    assert not same_entry(bytes(size), bytes(size) + b"x")


def test_a_batch_is_sorted_out() -> None:
    ids = [1, 2, 3, 4, 5]
    bodies = [body("CRC32C", entry_id=entry_id) for entry_id in ids]
    stored: list[bytes | Status | None] = [
        Status.NO_ENTRY,
        body("CRC32C", entry_id=2, lac=0),
        body("CRC32C", b"other", entry_id=3),
        Status.IO_ERROR,
        None,
    ]
    verdict = sort_out(ids, bodies, stored)
    assert (verdict.new_ids, verdict.new_bodies) == ([1], bodies[:1])
    assert verdict.differing == [3]
    assert verdict.unknown == [4, 5]


def test_an_id_twice_in_a_batch_is_new_once_and_its_second_body_is_compared() -> None:
    one, other = body("CRC32C", entry_id=1), body("CRC32C", b"other", entry_id=1)
    verdict = sort_out([1, 1, 1], [one, body("CRC32C", entry_id=1), other], [Status.NO_LEDGER] * 3)
    assert (verdict.new_ids, verdict.new_bodies, verdict.differing) == ([1], [one], [1])
