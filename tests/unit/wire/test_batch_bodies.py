"""Entries cut out of a batch answer: the way for entries of one size gives what the way for any sizes gives."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire import v2
from bookkeeper.wire.packed_bodies import PackedBodies

SIZES = st.one_of(
    st.builds(lambda size, count: [size] * count, st.integers(0, 5), st.integers(0, 6)),
    st.lists(st.integers(0, 5), max_size=6),
)


def packed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(SIZES, st.binary(max_size=3))
def test_any_sizes_come_out_as_they_went_in(sizes: list[int], before: bytes) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = before + packed(bodies)
    assert tuple(v2.cut_bodies(data + b"rest", len(before), len(data))) == tuple(bodies)


@given(st.binary(max_size=40))
def test_both_ways_agree_on_any_bytes(data: bytes) -> None:
    try:
        expected = v2.cut_bodies_of_any_size(data, 0, len(data))
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            v2.cut_bodies(data, 0, len(data))
    else:
        assert tuple(v2.cut_bodies(data, 0, len(data))) == expected


@given(st.integers(1, 40), st.integers(1, 6), st.binary(max_size=3), st.data())
def test_packed_bodies_are_a_sequence_like_any_other(size: int, count: int, before: bytes, data: st.DataObject) -> None:
    bodies = [bytes([number]) * size for number in range(count)]
    whole = before + packed(bodies)
    found = v2.cut_bodies(whole + b"rest", len(before), len(whole))
    assert isinstance(found, PackedBodies)
    assert (len(found), list(found), found == tuple(bodies), hash(found)) == (count, bodies, True, hash(tuple(bodies)))
    ends = st.integers(-count - 1, count + 1) | st.none()
    part = slice(data.draw(ends), data.draw(ends), data.draw(st.sampled_from([None, 1, 2, -1])))
    assert list(found[part]) == bodies[part]
    assert [found[place] for place in range(-count, count)] == bodies * 2


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_columns_are_the_same_bytes_of_every_body(count: int) -> None:
    data = packed([struct.pack(">2sH3s", b"ab", number, b"xyz") for number in range(count)])
    found = v2.cut_bodies(data, 0, len(data))
    assert isinstance(found, PackedBodies)
    assert found.columns("2sH3s") == [[b"ab"] * count, list(range(count)), [b"xyz"] * count]
    half = found[count // 2 :]
    assert isinstance(half, PackedBodies)
    assert half.columns("2xH3x") == [list(range(count // 2, count))]


@pytest.mark.parametrize("place", range(4))
def test_one_size_that_differs_in_any_byte_is_seen(place: int) -> None:
    data = bytearray(packed([b"abc"] * 3))
    data[7 + place] ^= 1
    assert not isinstance(_cut_or_none(bytes(data)), PackedBodies)


def _cut_or_none(data: bytes) -> object:
    try:
        return v2.cut_bodies(data, 0, len(data))
    except RemoteProtocolError:
        return None
