"""Each kind of field: there and back, its bounds, and what it says of bytes that cannot be."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from journalmgr.edits import fields, primitives
from journalmgr.edits.fields import Acl, AclEntry, Block, DelegationKey, RpcIds, TokenIdentifier, XAttr, XAttrs
from journalmgr.edits.primitives import Codec
from journalmgr.errors import EditsCorrupt
from tests.support.edit_ops import SAMPLE_OF_CODEC, VALUES

COMPOSED = {codec.name: codec for codec in vars(fields).values() if isinstance(codec, Codec) and codec.read is not None}


def there_and_back(codec: Codec, value: Any) -> bytes:
    assert codec.read is not None
    assert codec.write is not None
    data = codec.write(value)
    assert codec.read(data, 0) == (value, len(data))
    assert codec.read(b"xy" + data + b"z", 2) == (value, 2 + len(data))
    return data


@pytest.mark.parametrize("name", sorted(COMPOSED))
@given(data=st.data())
def test_any_value_there_and_back(name: str, data: st.DataObject) -> None:
    there_and_back(COMPOSED[name], data.draw(VALUES[name]))


@pytest.mark.parametrize("name", sorted(COMPOSED))
def test_every_beginning_is_too_short(name: str) -> None:
    codec = COMPOSED[name]
    assert codec.read is not None
    whole = there_and_back(codec, SAMPLE_OF_CODEC[name])
    for size in range(len(whole)):
        with pytest.raises((IndexError, struct.error)):
            codec.read(whole[:size], 0)


@pytest.mark.parametrize("name", sorted(COMPOSED))
@given(st.binary(max_size=60), st.integers(0, 8))
def test_noise_is_a_value_or_an_error_that_callers_know(name: str, noise: bytes, position: int) -> None:
    read = COMPOSED[name].read
    assert read is not None
    try:
        _, end = read(noise, position)
    except (EditsCorrupt, IndexError, struct.error):
        return
    assert position < end <= len(noise)


@pytest.mark.parametrize("name", sorted(COMPOSED))
@given(data=st.data())
def test_a_changed_byte_is_a_value_or_an_error_that_callers_know(name: str, data: st.DataObject) -> None:
    codec = COMPOSED[name]
    assert codec.read is not None
    assert codec.write is not None
    whole = bytearray(codec.write(SAMPLE_OF_CODEC[name]))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, end = codec.read(bytes(whole), 0)
    except (EditsCorrupt, IndexError, struct.error):
        return
    assert end <= len(whole)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (-1, "ff"),
        (-112, "90"),
        (128, "8f80"),
        (-113, "8770"),
        (255, "8fff"),
        (256, "8e0100"),
        (-256, "87ff"),
        (-257, "860100"),
        ((1 << 63) - 1, "887fffffffffffffff"),
        (-(1 << 63), "807fffffffffffffff"),
    ],
)
def test_a_vlong_is_as_short_as_it_can_be(value: int, encoded: str) -> None:
    assert there_and_back(primitives.VLONG, value).hex() == encoded


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_a_vlong_has_64_bits(value: int) -> None:
    with pytest.raises(InvalidArgument, match="does not fit 64 bits"):
        primitives.write_vlong(value)


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_a_vint_has_32_bits(value: int) -> None:
    with pytest.raises(InvalidArgument, match="does not fit 32 bits"):
        primitives.write_vint(value)
    with pytest.raises(EditsCorrupt, match=f"{value} where a number of 32 bits"):
        primitives.read_vint(primitives.write_vlong(value), 0)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("", "0000"),
        ("/a", "00022f61"),
        ("\0", "000100"),
        ("ä", "0002c3a4"),
        ("\u20ac", "0003e282ac"),
        ("\U0001f600", "0006eda0bdedb880"),
        ("\ud800", "0003eda080"),
        ("\udc00\ud800", "0006edb080eda080"),
    ],
)
def test_a_string_of_code_units(value: str, encoded: str) -> None:
    assert there_and_back(primitives.STR16, value).hex() == encoded


def test_four_bytes_of_utf8_are_read_too() -> None:
    assert primitives.read_str16(bytes.fromhex("0004f09f9880"), 0) == ("\U0001f600", 6)


@pytest.mark.parametrize("raw", ["ff", "c3", "c080", "80", "f4908080"])
def test_a_string_that_is_not_utf8(raw: str) -> None:
    data = struct.pack(">H", len(raw) // 2) + bytes.fromhex(raw)
    with pytest.raises(EditsCorrupt, match="a string that is not UTF-8"):
        primitives.read_str16(data, 0)
    with pytest.raises(EditsCorrupt, match="a text that is not UTF-8"):
        primitives.read_text(data[1:], 0)


def test_the_longest_string_and_text() -> None:
    there_and_back(primitives.STR16, "x" * 65535)
    there_and_back(primitives.STR16, "\u20ac" * 21845)
    there_and_back(primitives.TEXT, "x" * (1 << 20))
    for value in ("x" * 65536, "\u20ac" * 21846, "\U0001f600" * 10923):
        with pytest.raises(InvalidArgument, match="at most 65535 fit"):
            primitives.write_str16(value)
    with pytest.raises(InvalidArgument, match="at most 1048576 fit"):
        primitives.write_text("x" * ((1 << 20) + 1))
    with pytest.raises(EditsCorrupt, match="a text of 1048577 bytes"):
        primitives.read_text(primitives.write_vlong((1 << 20) + 1) + bytes(20), 0)
    with pytest.raises(EditsCorrupt, match="a text of -1 bytes"):
        primitives.read_text(b"\xff", 0)


def test_a_text_is_plain_utf8() -> None:
    assert there_and_back(primitives.TEXT, "\U0001f600").hex() == "04f09f9880"
    with pytest.raises(InvalidArgument, match="is not text"):
        primitives.write_text("\ud800")


@pytest.mark.parametrize("size", [1, 15, 17])
def test_a_client_id_has_sixteen_bytes_or_none(size: int) -> None:
    with pytest.raises(EditsCorrupt, match=f"a client id of {size} bytes"):
        fields.read_rpc(struct.pack(">H", size) + bytes(size + 4), 0)
    with pytest.raises(InvalidArgument, match=f"a client id of {size} bytes"):
        fields.write_rpc(RpcIds(bytes(size), 0))


def test_blocks_and_their_bounds() -> None:
    assert there_and_back(fields.BLOCKS, (Block(1, 2, 3),)).hex() == "00000001" + "".join(
        f"{n:016x}" for n in (1, 2, 3)
    )
    compact = there_and_back(fields.COMPACT_BLOCKS, (Block(1, 512, 1001), Block(2, 0, 1002)))
    assert compact.hex() == "02" + f"{1:016x}" + "8e0200" + "8e03e9" + f"{2:016x}" + "86" + "01ff" + "01"
    for count in (-1, fields.BLOCKS_MAX + 1):
        with pytest.raises(EditsCorrupt, match=f"{count} blocks"):
            fields.read_blocks(struct.pack(">i", count), 0)
        with pytest.raises(EditsCorrupt, match=f"{count} blocks"):
            fields.read_compact_blocks(primitives.write_vlong(count), 0)
    with pytest.raises(EditsCorrupt, match="a block of -1 bytes"):
        fields.read_blocks(struct.pack(">iqqq", 1, 1, -1, 1), 0)
    with pytest.raises(InvalidArgument, match="a block of -1 bytes"):
        fields.write_blocks((Block(1, -1, 1),))
    with pytest.raises(InvalidArgument, match="does not fit"):
        fields.write_blocks((Block(1 << 63, 1, 1),))
    most = primitives.write_vlong((1 << 63) - 1)
    twice = bytes([2]) + (bytes(8) + most + b"\0") * 2
    with pytest.raises(EditsCorrupt, match="more than 64 bits"):
        fields.read_compact_blocks(twice, 0)


def test_some_operations_have_so_many_blocks_and_no_others() -> None:
    block = Block(1, 2, 3)
    for codec, wrong in ((fields.LAST_BLOCKS, (0, 3)), (fields.BLOCK_IF_CUT, (2,))):
        assert codec.read is not None
        assert codec.write is not None
        for count in wrong:
            with pytest.raises(InvalidArgument, match=f"{count} blocks; . or . are possible"):
                codec.write((block,) * count)
            with pytest.raises(EditsCorrupt, match=f"{count} blocks; . or . are possible"):
                codec.read(fields.write_compact_blocks((block,) * count), 0)


def test_an_access_control_list_is_a_byte_for_each_entry() -> None:
    entries = (AclEntry(0, 0, 6, None), AclEntry(1, 1, 7, "g"))
    assert there_and_back(fields.ACL_BITS, entries).hex() == "00000002" + "06" + "6f" + "000167"
    with pytest.raises(EditsCorrupt, match="-1 entries"):
        fields.read_acl(struct.pack(">i", -1), 0)
    for wrong in (AclEntry(4, 0, 0, None), AclEntry(0, 2, 0, None), AclEntry(0, 0, 8, None), AclEntry(-1, 0, 0, None)):
        with pytest.raises(InvalidArgument):
            fields.write_acl((wrong,))
        with pytest.raises(InvalidArgument):
            fields.write_acl_message(Acl("/x", (wrong,)))


def test_a_list_without_a_path_cannot_be_parsed() -> None:
    with pytest.raises(EditsCorrupt, match="AclEditLogProto cannot be parsed: it lacks src"):
        fields.read_acl_message(b"\0", 0)


def test_messages_hold_text_and_known_namespaces_only() -> None:
    for value in (
        XAttrs("\ud800", ()),
        XAttrs(None, (XAttr(0, "\ud800", None),)),
        XAttrs(None, (XAttr(5, "name", None),)),
    ):
        with pytest.raises(InvalidArgument):
            fields.write_xattrs(value)
    for acl in (Acl("\ud800", ()), Acl("/x", (AclEntry(0, 0, 0, "\ud800"),))):
        with pytest.raises(InvalidArgument):
            fields.write_acl_message(acl)


def test_the_length_of_a_message_is_bounded() -> None:
    with pytest.raises(EditsCorrupt, match="more than 5 bytes"):
        fields.read_xattrs(b"\xff" * 6 + b"\0", 0)


def test_counts_of_strings_and_options() -> None:
    for count in (-1, fields.CONCAT_SOURCES_MAX + 1):
        with pytest.raises(EditsCorrupt, match=f"{count} sources"):
            fields.read_strings(struct.pack(">i", count), 0)
    with pytest.raises(EditsCorrupt, match="-1 options"):
        fields.read_options(struct.pack(">i", -1), 0)
    with pytest.raises(InvalidArgument):
        fields.write_options((256,))


def test_tokens_and_keys() -> None:
    with pytest.raises(EditsCorrupt, match="a delegation token of version 1"):
        fields.read_token(b"\1" + bytes(9), 0)
    with pytest.raises(InvalidArgument, match="a delegation token of version 1"):
        fields.write_token(TokenIdentifier(1, "", "", "", 0, 0, 0, 0))
    with pytest.raises(InvalidArgument, match="32 bits"):
        fields.write_token(TokenIdentifier(0, "", "", "", 0, 0, 1 << 31, 0))
    assert there_and_back(fields.DELEGATION_KEY, DelegationKey(1, 2, None)).hex() == "0102ff"
    assert there_and_back(fields.DELEGATION_KEY, DelegationKey(1, 2, b"")).hex() == "010200"
    with pytest.raises(EditsCorrupt, match="a key of -2 bytes"):
        fields.read_delegation_key(b"\1\2\xfe", 0)


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(EditsCorrupt, match="unknown flags 0x10 of a cache directive"):
        fields.read_cache_directive(bytes(8) + struct.pack(">i", 16), 0)
    with pytest.raises(EditsCorrupt, match="of a cache pool"):
        fields.read_cache_pool(bytes(2) + struct.pack(">i", 32), 0)
