"""Envelopes of entries: packing, checking, and every kind of damage."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import DigestType
from bookkeeper.wire import v2
from bookkeeper.wire.digest import digest_of, ids_of, lac_of, length_of, mac_key

TYPES = list(DigestType)
DAMAGED_SEEN = [t for t in TYPES if t is not DigestType.DUMMY]
ids = st.integers(0, 2**63 - 1)


@given(st.sampled_from(TYPES), ids, st.integers(0, 2**40), st.integers(-1, 2**40), st.lists(st.binary(max_size=80)))
def test_what_is_packed_verifies(
    digest_type: DigestType, ledger_id: int, first: int, lac: int, payloads: list[bytes]
) -> None:
    digest = digest_of(digest_type, b"secret")
    bodies, length = digest.package(ledger_id, first, lac, 10, payloads)
    entry_ids = range(first, first + len(payloads))
    assert digest.verify(ledger_id, entry_ids, bodies) == payloads
    assert length == 10 + sum(map(len, payloads))
    assert [ids_of(body) for body in bodies] == [(ledger_id, entry_id) for entry_id in entry_ids]
    assert [length_of(body) for body in bodies] == [10 + sum(map(len, payloads[: i + 1])) for i in range(len(bodies))]
    assert all(
        lac_of(body) == lac and len(body) == digest.overhead + len(p) for body, p in zip(bodies, payloads, strict=True)
    )


def packed(bodies: list[bytes]) -> Sequence[bytes]:
    """As they come in an answer to a batch read."""
    data = b"".join([struct.pack(">i", len(body)) + body for body in bodies])
    return v2.cut_bodies(data, 0, len(data))


@given(st.sampled_from(TYPES), st.integers(0, 2**40), st.integers(0, 60), st.integers(1, 20), st.booleans(), st.data())
def test_a_run_is_verified_as_its_entries_are(
    digest_type: DigestType, first: int, size: int, count: int, one_size: bool, data: st.DataObject
) -> None:
    """Whole, with one byte changed, with an entry of another place or ledger, of one size or of several, cut short."""
    digest = digest_of(digest_type, b"secret")
    payloads = [bytes([number]) * (size if one_size else size + number) for number in range(count)]
    bodies, _ = digest.package(7, first, -1, 0, payloads)
    entry_ids = range(first, first + count)
    for given_as in (bodies, packed(bodies)):
        run = digest.verify_run(7, entry_ids, given_as)
        assert run is not None
        assert list(run.payloads) == payloads
        assert list(run.lengths) == list(accumulate(map(len, payloads)))
        assert digest.verify_run(8, entry_ids, given_as) is None
        assert digest.verify_run(7, [*entry_ids[1:], first], given_as) is None or count == 1
    place = data.draw(st.integers(0, count - 1))
    kind = data.draw(st.sampled_from(["changed", "cut", "swapped"]))
    if kind == "changed":
        at = data.draw(st.integers(0, len(bodies[place]) - 1))
        bodies[place] = bodies[place][:at] + bytes([bodies[place][at] ^ 1]) + bodies[place][at + 1 :]
    elif kind == "cut":
        bodies = [body[: data.draw(st.integers(1, 40))] for body in bodies]
    else:
        bodies.insert(0, bodies.pop(place))
    one_by_one = [digest.verify(7, [entry_id], [body])[0] for entry_id, body in zip(entry_ids, bodies, strict=True)]
    for given_as in (bodies, packed(bodies)):
        found = digest.verify_run(7, entry_ids, given_as)
        assert (None if found is None else list(found.payloads)) == (None if None in one_by_one else one_by_one)
        assert found is None or list(found.lengths) == list(map(length_of, bodies))


@given(st.sampled_from(TYPES), ids, ids, st.integers(-1, 2**40), ids, st.binary(max_size=40))
def test_one_entry_is_packed_as_in_a_batch(
    digest_type: DigestType, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
) -> None:
    digest = digest_of(digest_type, b"secret")
    [body] = digest.package_entries(ledger_id, [entry_id], lac, [length], [payload])
    for given_as in (payload, bytearray(payload), memoryview(payload)):
        assert digest.package_entry(ledger_id, entry_id, lac, length, given_as) == body


@given(st.sampled_from(TYPES), ids, ids, st.integers(-1, 2**40), ids, st.binary(max_size=40))
def test_the_last_entry_verifies_whatever_its_id(
    digest_type: DigestType, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
) -> None:
    digest = digest_of(digest_type, b"")
    (body,) = digest.package_entries(ledger_id, [entry_id], lac, [length], [payload])
    assert digest.verify_last(ledger_id, body) == (entry_id, payload)
    assert digest.verify_last(ledger_id ^ 1, body) is None
    assert digest.verify_last(ledger_id, body[: digest.overhead - 1]) is None


@pytest.mark.parametrize("digest_type", DAMAGED_SEEN)
def test_any_flipped_bit_is_seen(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"pw")
    (body,), _ = digest.package(3, 4, 3, 0, [b"payload"])
    for bit in range(len(body) * 8):
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        assert digest.verify(3, [4], [bytes(damaged)]) == [None]


@pytest.mark.parametrize("digest_type", TYPES)
def test_another_entry_or_ledger_is_not_accepted_under_a_valid_digest(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"pw")
    bodies, _ = digest.package(3, 4, 3, 0, [b"a", b"b"])
    assert digest.verify(3, [5, 4], bodies) == [None, None]
    assert digest.verify(2, [4, 5], bodies) == [None, None]


@pytest.mark.parametrize("digest_type", TYPES)
def test_a_bad_copy_does_not_spoil_its_neighbours(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"pw")
    bodies, _ = digest.package(3, 0, -1, 0, [b"a", b"b", b"c"])
    assert digest.verify(3, [0, 1, 2], [bodies[0], b"", bodies[2]]) == [b"a", None, b"c"]


@pytest.mark.parametrize("digest_type", TYPES)
def test_every_short_body_is_refused(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"pw")
    (body,), _ = digest.package(3, 4, 3, 0, [b""])
    for size in range(len(body)):
        assert digest.verify(3, [4], [body[:size]]) == [None]


def test_mac_is_the_standard_hmac_sha1() -> None:
    digest = digest_of(DigestType.MAC, b"pw")
    for payload in (b"", b"x" * 19, b"y" * 1000):
        (body,), _ = digest.package(3, 4, 3, 0, [payload])
        assert body[32:52] == hmac.new(mac_key(b"pw"), body[:32] + payload, hashlib.sha1).digest()


def test_mac_of_another_password_fails() -> None:
    (body,), _ = digest_of(DigestType.MAC, b"pw").package(3, 4, 3, 0, [b"x"])
    assert digest_of(DigestType.MAC, b"other").verify(3, [4], [body]) == [None]


def test_crc32c_check_value() -> None:
    """The check value of the polynomial: CRC of "123456789"; the digest type uses the same function."""
    from crc32c import crc32c

    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("digest_type", TYPES)
def test_lac_packets(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"pw")
    packet = digest.package_lac(3, 9)
    assert len(packet) == 16 + digest.size
    assert digest.verify_lac(3, packet) == 9
    assert digest.verify_lac(4, packet) is None
    assert all(digest.verify_lac(3, packet[:size]) is None for size in range(len(packet)))
    if digest.size:
        for position in range(len(packet)):
            damaged = bytearray(packet)
            damaged[position] ^= 0x10
            assert digest.verify_lac(3, bytes(damaged)) is None


@pytest.mark.parametrize("digest_type", TYPES)
def test_sequences_of_different_length_are_a_bug(digest_type: DigestType) -> None:
    digest = digest_of(digest_type, b"")
    with pytest.raises(ValueError, match="zip"):
        digest.package_entries(1, [1, 2], 0, [1], [b"x"])
    with pytest.raises(ValueError, match="zip"):
        digest.verify(1, [1, 2], [b"x" * 60])
    with pytest.raises(ValueError, match="2 entry ids of 1 bodies"):
        digest.verify_run(1, [1, 2], [b"x" * 60])
