"""The bytes of journal files (bookkeeper/bookie/FORMATS.md 5.2 to 5.6)."""

import pytest

from bookkeeper.bookie.journal.format import (
    GROUP_RECORD_SIZE,
    decode_group,
    decode_header,
    embedded_bytes,
    encode_group,
    encode_header,
    entry_record,
    explicit_lac_record,
    fence_record,
    file_name,
    group_is_intact,
    group_needle,
    journal_id_of,
    master_key_record,
    padding,
)

KEY = bytes.fromhex("2aa226ba095b6969a64871977693b14671710d76")


def test_master_key_record_is_apaches():
    expected = "000000280000000000003039fffffffffffff000000000142aa226ba095b6969a64871977693b14671710d76"
    assert master_key_record(12345, KEY).hex() == expected


def test_fence_record_is_apaches():
    assert fence_record(12345).hex() == "000000100000000000003039ffffffffffffe000"


def test_explicit_lac_record_holds_ids_length_and_packet():
    assert (
        explicit_lac_record(5, b"abc").hex() == "00000017" + "0000000000000005" + "ffffffffffff8000" + "00000003616263"
    )


def test_header_of_version_6_is_apaches():
    assert encode_header() == bytes.fromhex("424b4c4700000006") + bytes(504)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"", (1, 0)),
        (b"BKL", (1, 0)),
        (b"\0\0\0\x28\0\0\0\0", (1, 0)),
        (b"BKLG\0\0\0\x02", (2, 8)),
        (b"BKLG\0\0\0\x04", (4, 8)),
        (b"BKLG\0\0\0\x05", (5, 512)),
        (b"BKLG\0\0\0\x06", (6, 512)),
    ],
)
def test_header_tells_the_version_and_the_first_record(start, expected):
    assert decode_header(start) == expected


@pytest.mark.parametrize(
    ("position", "size", "end"), [(609, 407, 1024), (1016, 0, 1024), (1017, 511, 1536), (1020, 508, 1536)]
)
def test_padding_is_apaches(position, size, end):
    record = padding(position)
    assert record == bytes.fromhex("ffffff00") + size.to_bytes(4, "big") + bytes(size)
    assert position + len(record) == end


@pytest.mark.parametrize("alignment", [512, 1024, 4096])
def test_padding_ends_at_the_alignment_from_everywhere(alignment):
    for position in range(2 * alignment):
        assert (position + len(padding(position, alignment))) % alignment == 0
        assert len(padding(position, alignment)) < alignment + 8


def test_file_names_are_lower_case_hex():
    assert file_name(0x18BCFE56800) == "18bcfe56800.txn"
    assert journal_id_of("18bcfe56800.txn") == 0x18BCFE56800


@pytest.mark.parametrize(
    "name", ["18BC.txn", "0a.txn", "a.txn.tmp", ".txn", "journal.spare", "lastMark", "g.txn", "8000000000000000.txn"]
)
def test_other_names_are_no_journal_files(name):
    assert journal_id_of(name) is None


def test_group_record_bytes():
    """Drawn by hand: a genuine bookie must see one record of an entry id it does not know, then the records."""
    records = fence_record(9)
    data = encode_group((records,), file_id=0x1234, start=1024, synced=(0x1234, 1024))
    assert (
        data[:60].hex()
        == (
            "00000040"
            "7fffffffffffffff"
            "ffffffffffff0000" + b"PBG1".hex() + "0000000000001234" + "0000000000000400"
            "0000000000001234" + "0000000000000400" + "00000014" + "00000200"
        )[:120]
    )
    assert data[GROUP_RECORD_SIZE : GROUP_RECORD_SIZE + 20] == records
    assert data[GROUP_RECORD_SIZE + 20 :] == padding(1024 + GROUP_RECORD_SIZE + 20)
    assert len(data) == 512


def test_group_record_is_found_again():
    records = entry_record(bytes(40)) * 20
    data = b"x" * 7 + encode_group((records,), file_id=3, start=2048, synced=(2, 512))
    group = decode_group(data, 7, file_id=3, start=2048)
    assert group is not None
    assert (group.records_start, group.records_end, group.end) == (2048 + 68, 2048 + 68 + 880, 2048 + 1024)
    assert (group.synced_file_id, group.synced_offset) == (2, 512)
    assert group_is_intact(group, data, 7)
    assert data.find(group_needle(3)) == 7


@pytest.mark.parametrize(("file_id", "start"), [(4, 2048), (3, 2560), (3, 0)])
def test_group_is_bound_to_its_file_and_place(file_id, start):
    """I-50: stale bytes of a reused file are never taken for new ones."""
    data = encode_group((), file_id=3, start=2048, synced=(0, 0))
    assert decode_group(data, 0, file_id=file_id, start=start) is None


def test_every_flipped_bit_of_a_group_is_seen():
    """I-50. Padding carries nothing and is not covered."""
    good = encode_group([fence_record(1)], file_id=3, start=512, synced=(2, 99))
    covered = GROUP_RECORD_SIZE + 20
    for at in range(covered):
        for bit in range(8):
            data = bytearray(good)
            data[at] ^= 1 << bit
            group = decode_group(bytes(data), 0, file_id=3, start=512)
            assert group is None or not group_is_intact(group, bytes(data), 0)


def test_cut_group_is_not_intact():
    data = encode_group([fence_record(1)], file_id=3, start=512, synced=(0, 0))
    for size in range(GROUP_RECORD_SIZE + 20):
        group = decode_group(data[:size], 0, file_id=3, start=512)
        assert group is None or not group_is_intact(group, data[:size], 0)


def test_embedded_bytes_must_fit():
    payload = master_key_record(1, b"key")[4:]
    assert embedded_bytes(payload) == b"key"
    assert embedded_bytes(payload[:-1]) is None
    assert embedded_bytes(payload + b"x") is None
    assert embedded_bytes(payload[:18]) is None


def test_a_group_is_the_same_however_its_records_are_cut():
    """Small ones are joined first, large ones summed piece by piece."""
    for size in (1000, 300_000):
        records = bytes(range(256)) * (size // 256)
        whole = encode_group((records,), file_id=3, start=512, synced=(2, 99))
        for cut in (1, 7, size // 2):
            parts = [records[at : at + cut] for at in range(0, 20 * cut, cut)] + [records[20 * cut :]]
            assert encode_group(parts, file_id=3, start=512, synced=(2, 99)) == whole
