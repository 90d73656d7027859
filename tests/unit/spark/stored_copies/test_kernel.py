"""Blocks of copies of one size that follow each other are verified as they lie, and get the verdicts of any others."""

from __future__ import annotations

import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import DigestType
from bookkeeper.spark.stored_copies.kernel import LedgerCheck
from bookkeeper.wire.digest import digest_of

LEDGER, BASE, FIRST = 7, 5000, 300


@given(
    st.sampled_from(list(DigestType)),
    st.integers(1, 9),
    st.integers(0, 40),
    st.sampled_from(["good", "changed", "size", "gap", "order", "sizes", "cut", "another ledger"]),
    st.data(),
)
def test_a_run_gets_the_verdicts_of_its_copies_one_by_one(
    digest_type: DigestType, count: int, size: int, kind: str, data: st.DataObject
) -> None:
    digest = digest_of(digest_type, b"secret")
    ledger_id = 8 if kind == "another ledger" else LEDGER
    payloads = [bytes([number]) * (size + (number % 2 if kind == "sizes" else 0)) for number in range(count)]
    bodies, _ = digest.package(ledger_id, FIRST, -1, 1000, payloads)
    window, offsets = bytearray(), array("q")
    for body in bodies:
        window += b"??" if kind == "gap" and len(offsets) == count // 2 else b""
        offsets.append(BASE + len(window) + 4)
        window += struct.pack(">i", len(body)) + body
    entry_ids = array("q", range(FIRST, FIRST + count))
    if kind == "changed":
        window[data.draw(st.integers(0, len(window) - 1))] ^= 1
    elif kind == "size":
        window[offsets[data.draw(st.integers(0, count - 1))] - BASE - 1] ^= 1
    elif kind == "order":
        entry_ids.reverse()
    elif kind == "cut":
        del window[data.draw(st.integers(0, len(window))) :]

    together, one_by_one = (LedgerCheck(LEDGER, digest) for _ in range(2))
    left = together.take_window(bytes(window), BASE, entry_ids, offsets)
    expected = []
    for at, (entry_id, offset) in enumerate(zip(entry_ids, offsets, strict=True)):
        start = offset - BASE
        (found,) = struct.unpack_from(">i", window, start - 4) if start <= len(window) else (-1,)
        body = bytes(window[start : start + found]) if found >= 0 else b""
        if len(body) != found or one_by_one.take_bodies((entry_id,), (body,)):
            expected.append(at)
    if kind == "good":
        assert left == expected == []
        assert list(together.good.payload_sizes) == [size] * count
    assert set(expected) <= set(left), "what is left is looked at again"
    kept = [at for at in range(count) if at not in left]
    for column in ("entry_ids", "payload_crcs", "payload_sizes", "lengths"):
        values = dict(zip(one_by_one.good.entry_ids, getattr(one_by_one.good, column), strict=True))
        assert list(getattr(together.good, column)) == [values[entry_ids[at]] for at in kept]
