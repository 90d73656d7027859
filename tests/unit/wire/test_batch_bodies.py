"""Entries cut out of a batch answer: the way for entries of one size gives what the way for any sizes gives."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire import v2

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
    assert v2.cut_bodies(data + b"rest", len(before), len(data)) == tuple(bodies)


@given(st.binary(max_size=40))
def test_both_ways_agree_on_any_bytes(data: bytes) -> None:
    try:
        expected = v2.cut_bodies_of_any_size(data, 0, len(data))
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            v2.cut_bodies(data, 0, len(data))
    else:
        assert v2.cut_bodies(data, 0, len(data)) == expected
