"""Files of edits: names, header, records and padding."""

import pytest

from journalmgr.edits.file import EditsFileDecoder, EditsFileName, encode_header, header_size, padding, parse_name
from journalmgr.edits.frame import encode_record
from journalmgr.edits.ops import Delete
from journalmgr.errors import EditsCorrupt, GapInTransactions, SegmentUnreadable, UnsupportedLayout
from journalmgr.model import OPAQUE, TxId
from tests.support.edit_ops import record_without_length

RECORDS = [encode_record(24, 5, b""), encode_record(3, 6, b"body"), encode_record(23, 7, b"")]
FILE = encode_header(-63) + b"".join(RECORDS)
FINALISED = "edits_0000000000000000005-0000000000000000007"
IN_PROGRESS = "edits_inprogress_0000000000000000005"


def test_names_as_hadoop_writes_them() -> None:
    assert str(EditsFileName(TxId(5), TxId(7))) == FINALISED
    assert str(EditsFileName(TxId(5), None)) == IN_PROGRESS
    assert parse_name(FINALISED) == (5, 7)
    assert parse_name(IN_PROGRESS) == (5, None)
    assert parse_name("edits_1-20") == (1, 20)


@pytest.mark.parametrize(
    "name",
    [
        *("", "edits", "edits_", "edits_1", "edits_1-", "edits_1-2x", "xedits_1-2", "edits_1_2", "edits_inprogress_"),
        *("edits_inprogress_x", f"{IN_PROGRESS}.empty", f"{FINALISED}.trash", "edits.new", "edits_1-2\n"),
        "edits_\u0661-2",
    ],
)
def test_other_names_are_of_no_file_of_edits(name: str) -> None:
    assert parse_name(name) is None


def test_a_name_that_ends_before_it_begins_is_told() -> None:
    with pytest.raises(SegmentUnreadable, match=r"edits_9-8: .*ends at txid 8, before its first, 9"):
        parse_name("edits_9-8")


def test_headers() -> None:
    assert encode_header(-63).hex() == "ffffffc100000000"
    assert encode_header(OPAQUE).hex() == "0000000100000000"
    assert (header_size(-63), header_size(OPAQUE), header_size(-50), header_size(-49)) == (8, 8, 8, 4)
    with pytest.raises(UnsupportedLayout, match="only read"):
        encode_header(-55)


@pytest.mark.parametrize("cut", range(len(FILE) + 1))
@pytest.mark.parametrize("name", [FINALISED, f"/data/current/{IN_PROGRESS}", "anything"])
def test_records_have_their_offset_in_the_file(cut: int, name: str) -> None:
    decoder = EditsFileDecoder(source=name)
    records = decoder.feed(FILE[:cut]) + decoder.feed(FILE[cut:])
    assert [(record.txid, record.offset, record.size) for record in records] == [(5, 8, 17), (6, 25, 21), (7, 46, 17)]
    assert (decoder.layout_version, decoder.offset, decoder.expected_txid) == (-63, len(FILE), 8)
    decoder.finish()


def test_single_bytes_and_padding() -> None:
    decoder = EditsFileDecoder(source=IN_PROGRESS)
    data = FILE + padding(20)
    assert [record.txid for at in range(len(data)) for record in decoder.feed(data[at : at + 1])] == [5, 6, 7]
    assert decoder.padding
    decoder.finish()


@pytest.mark.parametrize("layout", [-40, -49, -50, -55])
def test_old_files_are_read(layout: int) -> None:
    record = record_without_length(Delete(txid=5, path="/x", timestamp=3), layout)
    header = layout.to_bytes(4, "big", signed=True) + bytes(4 if layout <= -50 else 0)
    decoder = EditsFileDecoder(source=IN_PROGRESS)
    (found,) = decoder.feed(header + record)
    assert (found.txid, found.offset, found.size) == (5, len(header), len(record))
    decoder.finish()


@pytest.mark.parametrize("size", range(8))
def test_a_file_without_a_whole_header_has_no_transaction(size: int) -> None:
    decoder = EditsFileDecoder(source=IN_PROGRESS)
    assert decoder.feed(FILE[:size]) == []
    assert (decoder.layout_version, decoder.offset, decoder.padding) == (None, 0, False)
    with pytest.raises(EditsCorrupt, match=f"{IN_PROGRESS} at offset 0: {size} bytes are no header"):
        decoder.finish()


def test_faults_of_the_header_name_the_file_and_stay() -> None:
    for head, error, why in (
        (padding(8), EditsCorrupt, f"{IN_PROGRESS} at offset 0: padding where the header should be"),
        (bytes.fromhex("ffffffc100000001"), EditsCorrupt, f"{IN_PROGRESS} at offset 4: flags 0x1 in the header"),
        (bytes.fromhex("ffffffbc00000000"), UnsupportedLayout, f"{IN_PROGRESS}: layout version -68 cannot be read"),
        (bytes(8), UnsupportedLayout, f"{IN_PROGRESS}: layout version 0 cannot be read"),
    ):
        decoder = EditsFileDecoder(source=IN_PROGRESS)
        with pytest.raises(error, match=why):
            decoder.feed(head)
        with pytest.raises(error, match=why):
            decoder.feed(RECORDS[0])
        with pytest.raises(error, match=why):
            decoder.finish()


def test_the_first_txid_is_the_names() -> None:
    with pytest.raises(GapInTransactions, match="expected txid 4, but got txid 5"):
        EditsFileDecoder(source="edits_inprogress_0000000000000000004").feed(FILE)
    with pytest.raises(GapInTransactions, match="expected txid 3"):
        EditsFileDecoder(source="other", expected_txid=3).feed(FILE)


@pytest.mark.parametrize(("count", "last"), [(0, "it has none"), (1, "its last is 5"), (2, "its last is 6")])
def test_a_finalised_file_that_ends_early_is_told(count: int, last: str) -> None:
    decoder = EditsFileDecoder(source=FINALISED)
    assert len(decoder.feed(FILE[:8] + b"".join(RECORDS[:count]))) == count
    with pytest.raises(EditsCorrupt, match=f"goes on to txid 7, but {last}"):
        decoder.finish()


def test_a_finalised_file_that_goes_on_is_told() -> None:
    decoder = EditsFileDecoder(source=FINALISED)
    decoder.feed(FILE + encode_record(24, 8, b""))
    with pytest.raises(EditsCorrupt, match="goes on to txid 7, but its last is 8"):
        decoder.finish()


def test_a_record_that_is_cut_short_is_told_with_its_offset_in_the_file() -> None:
    decoder = EditsFileDecoder(source=IN_PROGRESS)
    decoder.feed(FILE[:-1])
    with pytest.raises(EditsCorrupt, match=f"{IN_PROGRESS} at offset 46, txid 7: 16 bytes are the beginning"):
        decoder.finish()
