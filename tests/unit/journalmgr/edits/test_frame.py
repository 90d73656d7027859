"""Records out of chunks of any size, and every way in which their bytes can be wrong."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journalmgr.contract import Record
from journalmgr.edits.codec import encode_body, measure
from journalmgr.edits.frame import (
    FRAME_SIZE,
    RESERVED_LAYOUTS,
    RecordDecoder,
    check_readable,
    check_writable,
    encode_record,
    next_record_offset,
    split_record,
    txid_of,
)
from journalmgr.edits.ops import OPS, AclEntry, Mkdir, Permission, SetAcl
from journalmgr.errors import EditsCorrupt, GapInTransactions, JournalError, UnknownOp, UnsupportedLayout
from journalmgr.model import OPAQUE
from tests.support.edit_ops import LAYOUTS_WITH_LENGTH, LAYOUTS_WITHOUT_LENGTH, record_without_length, samples

BODIES = [b"", b"a", b"bc" * 40, b"\xff" * 7, b""]
RECORDS = [encode_record(24, 5 + at, body) for at, body in enumerate(BODIES)]
DATA = b"".join(RECORDS)


def decoder(layout_version: int = -63, **named: object) -> RecordDecoder:
    return RecordDecoder(layout_version, source="segment", **named)  # type: ignore[arg-type]


def records_of(decoder: RecordDecoder, *chunks: bytes) -> list[Record]:
    return [record for chunk in chunks for record in decoder.feed(chunk)]


def fault_of(decoder: RecordDecoder, data: bytes) -> tuple[list[Record], JournalError]:
    """What a decoder delivers before it fails, and how it fails; it goes on failing in the same way."""
    records: list[Record] = []

    def read() -> None:
        records.extend(decoder.feed(data))
        decoder.finish()

    with pytest.raises(JournalError) as first:
        read()
    with pytest.raises(JournalError) as second:
        decoder.finish()
    assert str(first.value) == str(second.value)
    return records, first.value


def expected(offset: int = 0) -> list[Record]:
    found = []
    for at, (body, record) in enumerate(zip(BODIES, RECORDS, strict=True)):
        found.append(Record(5 + at, 24, body, offset, len(record)))  # type: ignore[arg-type]
        offset += len(record)
    return found


def test_a_record_is_opcode_length_txid_body_checksum() -> None:
    assert encode_record(24, 1, b"").hex() == "180000000c00000000000000017043f0b7"
    record = encode_record(3, -2, b"body")
    assert record[:13] == struct.pack(">BIq", 3, 16, -2)
    assert record[17:] == struct.pack(">I", crc32(record[:17]))
    assert txid_of(record) == -2


@pytest.mark.parametrize("layout", [*LAYOUTS_WITH_LENGTH, *LAYOUTS_WITHOUT_LENGTH])
def test_a_whole_record_is_split_as_the_decoder_takes_it(layout: int) -> None:
    for op in samples(layout):
        with_length = layout in LAYOUTS_WITH_LENGTH
        body = encode_body(op, layout)
        data = encode_record(op.opcode, op.txid, body) if with_length else record_without_length(op, layout)
        decoder = RecordDecoder(layout, source="", measure=None if with_length else measure(layout))
        assert decoder.feed(data) == [split_record(data, layout)]


@pytest.mark.parametrize("cut", range(len(DATA) + 1))
def test_records_split_in_two_anywhere(cut: int) -> None:
    feeding = decoder(offset=8, expected_txid=5)
    assert records_of(feeding, DATA[:cut], DATA[cut:]) == expected(8)
    assert (feeding.pending, feeding.offset, feeding.expected_txid) == (0, 8 + len(DATA), 10)
    feeding.finish()


def test_records_in_single_bytes() -> None:
    feeding = decoder()
    assert records_of(feeding, *(DATA[at : at + 1] for at in range(len(DATA)))) == expected()
    feeding.finish()


def test_what_waits_for_its_end_is_counted() -> None:
    feeding = decoder()
    assert feeding.feed(RECORDS[2][:20]) == []
    assert feeding.feed(RECORDS[2][20:-1]) == []
    assert (feeding.pending, feeding.offset) == (len(RECORDS[2]) - 1, 0)
    assert len(feeding.feed(RECORDS[2][-1:] + RECORDS[3])) == 2


@pytest.mark.parametrize("at", range(len(DATA)))
def test_a_flipped_byte_is_found_in_its_record_and_what_is_before_is_delivered(at: int) -> None:
    data = bytearray(DATA)
    data[at] ^= 0x10
    before = [record for record in expected() if record.offset + record.size <= at]
    records, error = fault_of(decoder(), bytes(data))
    assert records == before
    assert isinstance(error, EditsCorrupt)
    begin = sum(record.size for record in before)
    assert error.offset == begin
    assert f"segment at offset {begin}" in str(error)


def test_a_wrong_checksum_names_offset_txid_and_both_checksums() -> None:
    _, error = fault_of(decoder(offset=8), RECORDS[0] + RECORDS[1][:-1] + b"\0")
    stored = int.from_bytes(RECORDS[1][-4:], "big") & ~0xFF
    assert str(error) == (
        "segment at offset 25, txid 6: transaction of opcode 24 is corrupt: calculated checksum "
        f"{crc32(RECORDS[1][:-4]):#010x}, read {stored:#010x}"
    )


@pytest.mark.parametrize("length", [0, 11, 52_428_796, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_an_impossible_length_is_told_at_once(length: int) -> None:
    head = struct.pack(">BI", 3, length)
    for data in (head, head + bytes(30), RECORDS[0] + head):
        records, error = fault_of(decoder(), data)
        assert isinstance(error, EditsCorrupt)
        assert error.offset == len(records) * FRAME_SIZE
        assert f"says that it is {length} long" in str(error)


def test_the_largest_length_that_is_believed_can_be_set() -> None:
    assert len(decoder(op_size_max=18).feed(RECORDS[1])) == 1
    with pytest.raises(EditsCorrupt, match="13 long; possible are 12 to 12"):
        decoder(op_size_max=17).feed(RECORDS[1])


@pytest.mark.parametrize("size", range(1, len(RECORDS[2])))
def test_a_record_that_is_cut_short_is_told_at_the_end(size: int) -> None:
    feeding = decoder()
    assert len(feeding.feed(RECORDS[1] + RECORDS[2][:size])) == 1
    with pytest.raises(EditsCorrupt, match=f"segment at offset 18, txid 7: {size} bytes are the beginning"):
        feeding.finish()


@pytest.mark.parametrize("padding", [b"\xff", b"\xff" * 40, b"\xff\0\0\xff", b"\xff" + bytes(20)])
def test_padding_ends_the_records(padding: bytes) -> None:
    feeding = decoder()
    assert len(feeding.feed(DATA + padding[:1])) == len(RECORDS)
    assert feeding.padding
    assert records_of(feeding, padding[1:]) == []
    assert feeding.offset == len(DATA + padding)
    feeding.finish()


@pytest.mark.parametrize("between", [b"\xff", b"\xff\xff\0"])
@pytest.mark.parametrize("cut", [0, 1])
def test_anything_else_behind_the_terminator_is_corrupt(between: bytes, cut: int) -> None:
    feeding = decoder()
    assert len(feeding.feed(DATA + between + RECORDS[0][:cut])) == len(RECORDS)
    with pytest.raises(EditsCorrupt, match="a byte 0x18 behind the terminator") as caught:
        feeding.feed(RECORDS[0][cut:])
    assert caught.value.offset == len(DATA + between)


def test_zeros_alone_are_no_padding() -> None:
    with pytest.raises(EditsCorrupt, match="says that it is 0 long"):
        decoder().feed(bytes(17))


def test_a_gap_and_an_overlap_are_refused() -> None:
    records, error = fault_of(decoder(), RECORDS[0] + RECORDS[2])
    assert len(records) == 1
    assert isinstance(error, GapInTransactions)
    assert (error.expected, error.found) == (6, 7)
    assert "segment at offset 17: expected txid 6, but got txid 7: there appears to be a gap" in str(error)
    records, error = fault_of(decoder(), RECORDS[1] + RECORDS[1])
    assert isinstance(error, GapInTransactions)
    assert (error.expected, error.found) == (7, 6)
    assert "overlap" in str(error)


def test_the_first_txid_is_checked_where_it_is_known() -> None:
    with pytest.raises(GapInTransactions) as caught:
        decoder(expected_txid=4).feed(DATA)
    assert (caught.value.expected, caught.value.found) == (4, 5)


def test_txids_in_any_order_where_they_need_not_be_consecutive() -> None:
    assert [record.txid for record in decoder(consecutive=False).feed(RECORDS[3] + RECORDS[0])] == [8, 5]


@given(st.binary(max_size=200), st.integers(0, 60))
def test_noise_is_an_error_or_no_record(noise: bytes, cut: int) -> None:
    feeding = decoder()
    try:
        records_of(feeding, noise[:cut], noise[cut:])
        feeding.finish()
    except (EditsCorrupt, GapInTransactions):
        return
    assert noise == b"" or feeding.padding


def test_reading_resumes_at_the_next_whole_record() -> None:
    damaged = bytearray(DATA)
    damaged[20] ^= 1  # in the second record
    third = len(RECORDS[0] + RECORDS[1])
    assert next_record_offset(bytes(damaged), 0) == 0
    assert next_record_offset(bytes(damaged), 17) == third
    assert next_record_offset(bytes(damaged), 18) == third
    assert next_record_offset(b"xyz" + DATA) == 3
    assert next_record_offset(DATA[1:17]) is None
    assert next_record_offset(b"\xff" * 50) is None
    assert next_record_offset(DATA, third, op_size_max=30) == third + len(RECORDS[2])


@pytest.mark.parametrize("layout", LAYOUTS_WITHOUT_LENGTH)
def test_layouts_without_a_length_are_measured(layout: int) -> None:
    ops = samples(layout)
    for txid, op in enumerate(ops, 7):
        op.txid = txid
    encoded = [record_without_length(op, layout) for op in ops]
    data = b"".join(encoded)
    single = RecordDecoder(layout, source="old", offset=8, measure=measure(layout))
    whole = RecordDecoder(layout, source="old", offset=8, measure=measure(layout))
    records = whole.feed(data)
    assert records_of(single, *(data[at : at + 1] for at in range(len(data)))) == records
    assert [(record.opcode, record.txid, record.size) for record in records] == [
        (op.opcode, op.txid, len(one)) for op, one in zip(ops, encoded, strict=True)
    ]
    assert records[1].offset == 8 + records[0].size
    single.finish()
    assert single.feed(b"\xff\0") == []
    assert single.padding


def test_a_list_that_is_not_there_yet_is_awaited_where_bodies_are_measured() -> None:
    entries = tuple(AclEntry(0, 0, 7, None) for _ in range(50))
    data = record_without_length(Mkdir(txid=1, path="/d", permission=Permission("u", "g", 0), acl=entries), -55)
    feeding = RecordDecoder(-55, source="old", measure=measure(-55))
    assert feeding.feed(data[:-30]) == []
    assert len(feeding.feed(data[-30:])) == 1


def test_faults_of_measured_records() -> None:
    good = record_without_length(OPS[24](txid=3), -55)
    bad = record_without_length(SetAcl(txid=4), -55)

    def measured(**named: object) -> RecordDecoder:
        return decoder(-55, measure=measure(-55), **named)

    records, error = fault_of(measured(), good + bad[:-1] + b"\0")
    assert (len(records), error.args[0][:30]) == (1, "segment at offset 13, txid 4: ")
    records, error = fault_of(measured(), good + b"\x63" + bytes(20))
    assert isinstance(error, UnknownOp)
    assert (len(records), error.offset, error.txid) == (1, 13, 0)
    assert isinstance(fault_of(measured(), good + good)[1], GapInTransactions)
    assert "beginning of a record" in str(fault_of(measured(), good[:-1])[1])
    with pytest.raises(EditsCorrupt, match="has more than 20 bytes"):
        measured(op_size_max=20).feed(b"\x02" + bytes(8) + b"\x40\x00" + bytes(30))


def test_layouts_that_can_be_read_and_written() -> None:
    for layout in (*LAYOUTS_WITH_LENGTH, OPAQUE):
        check_readable(layout)
        check_writable(layout)
    for layout in LAYOUTS_WITHOUT_LENGTH:
        check_readable(layout)
        with pytest.raises(UnsupportedLayout, match=f"layout version {layout} is only read"):
            check_writable(layout)
    for layout in (0, 2, -1, -39, -68, *RESERVED_LAYOUTS):
        with pytest.raises(UnsupportedLayout, match=f"here: layout version {layout} cannot be read; known are -40 to"):
            check_readable(layout, "here")
        with pytest.raises(UnsupportedLayout):
            RecordDecoder(layout, source="x")
