"""Bytes of entry logs and index files, against Apache's."""

import contextlib
import random

import pytest

from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.errors import CorruptRecord, InvalidArgument, UnknownFormatVersion

APACHE_KEY = bytes.fromhex("2aa226ba095b6969a64871977693b14671710d76")
APACHE_INDEX_HEADER = bytes.fromhex(
    "424b4c4500000001000000142aa226ba095b6969a64871977693b14671710d760000000100000000"
).ljust(1024, b"\0")


def test_an_entry_log_header_before_its_map_is_apaches() -> None:
    assert log_fmt.encode_header(log_fmt.LogHeader()) == bytes.fromhex("424b4c4f00000001") + bytes(1016)


def test_an_entry_log_header_names_its_map() -> None:
    data = log_fmt.encode_header(log_fmt.LogHeader(map_offset=0x12345, ledger_count=3))
    assert data[:20] == bytes.fromhex("424b4c4f00000001000000000001234500000003")
    assert log_fmt.decode_header(data, "x") == log_fmt.LogHeader(1, 0x12345, 3)


def test_an_entry_log_of_version_0_is_read() -> None:
    assert log_fmt.decode_header(b"BKLO" + bytes(1020), "x").map_offset == 0


@pytest.mark.parametrize(
    "data", [b"", b"BKLO", b"BKLE" + bytes(1020), b"BKLO\0\0\0\1" + (5).to_bytes(8, "big") + bytes(9)]
)
def test_a_damaged_entry_log_header_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        log_fmt.decode_header(data, "/x/1.log")


def test_a_newer_entry_log_is_refused_by_name() -> None:
    with pytest.raises(UnknownFormatVersion, match="version 2"):
        log_fmt.decode_header(b"BKLO\0\0\0\2" + bytes(1016), "/x/1.log")


def test_a_ledgers_map_is_apaches() -> None:
    expected = bytes.fromhex("00000034fffffffffffffffffffffffffffffffe00000002")
    expected += bytes.fromhex("00000000000000050000000000000064000000000000303900000000000000c8")
    assert log_fmt.encode_ledgers_map({12345: 200, 5: 100}) == expected


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 25_000])
def test_a_ledgers_map_of_any_size_comes_back(count: int) -> None:
    ledgers = {ledger_id * 7: ledger_id + 20 for ledger_id in range(count)}
    data = log_fmt.encode_ledgers_map(ledgers)
    assert log_fmt.decode_ledgers_map(data, ledger_count=count, offset=0, path="x") == ledgers


def test_a_ledgers_map_that_is_not_what_the_header_says_is_refused() -> None:
    """I-60, T12: "no ledgers" is never concluded from damage."""
    data = log_fmt.encode_ledgers_map({1: 10, 2: 20})
    for count in (1, 3):
        with pytest.raises(CorruptRecord):
            log_fmt.decode_ledgers_map(data, ledger_count=count, offset=0, path="x")
    for offset in range(24):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        with pytest.raises(CorruptRecord):
            log_fmt.decode_ledgers_map(bytes(damaged), ledger_count=2, offset=0, path="x")
    for cut in range(len(data)):
        with pytest.raises(CorruptRecord):
            log_fmt.decode_ledgers_map(data[:cut], ledger_count=2, offset=0, path="x")


def test_names_are_apaches() -> None:
    assert index_fmt.index_name(12345) == "30/39/3039.idx"
    assert index_fmt.index_name(1) == "0/1/1.idx"
    assert index_fmt.index_name(2147483647) == "ff/ff/7fffffff.idx"
    assert index_fmt.parse_index_name("7fffffff.idx") == 2147483647
    assert log_fmt.log_name(26) == "1a.log"
    assert log_fmt.parse_log_name("1a.log") == 26


@pytest.mark.parametrize("name", ["1a.log.compacting", "lastId", "x.log", "100000000.log", "80000000.log", ".log"])
def test_other_names_are_no_entry_logs(name: str) -> None:
    assert log_fmt.parse_log_name(name) is None


@pytest.mark.parametrize("name", ["3039.idx.new", "3039.idx.rloc", "-5.idx", ".idx", "8000000000000000.idx"])
def test_other_names_are_no_index_files(name: str) -> None:
    assert index_fmt.parse_index_name(name) is None


def test_apaches_index_header_is_read() -> None:
    header = index_fmt.decode_header(APACHE_INDEX_HEADER, "x")
    assert (header.master_key, header.fenced, header.explicit_lac) == (APACHE_KEY, True, None)
    assert header.slot_count == 0


def test_our_index_header_begins_as_apaches_and_apache_skips_the_rest() -> None:
    data = index_fmt.encode_header(index_fmt.IndexHeader(APACHE_KEY, fenced=True))
    assert len(data) == 1024
    assert data[:496] == APACHE_INDEX_HEADER[:496]


def test_an_apache_header_of_version_0_has_no_explicit_lac() -> None:
    data = bytes.fromhex("424b4c450000000000000002") + b"kk" + bytes.fromhex("00000000")
    header = index_fmt.decode_header(data.ljust(1024, b"\0"), "x")
    assert (header.master_key, header.version, header.explicit_lac) == (b"kk", 0, None)


@pytest.mark.parametrize("packet", [None, bytes(range(16)), bytes(range(36))])
@pytest.mark.parametrize("fenced", [False, True])
def test_an_index_header_comes_back(packet: bytes | None, fenced: bool) -> None:
    header = index_fmt.IndexHeader(APACHE_KEY, fenced, packet, slot_count=2048)
    assert index_fmt.decode_header(index_fmt.encode_header(header), "x") == header


def test_any_mix_of_old_and_new_sectors_of_an_index_header_is_one_of_both() -> None:
    """The second copy is synced before the first is touched: old+old, old+new, new+new and any tear of one copy."""
    old = index_fmt.IndexHeader(APACHE_KEY, slot_count=1024)
    new = index_fmt.IndexHeader(APACHE_KEY, fenced=True, explicit_lac=bytes(36), slot_count=2048)
    a, b = index_fmt.encode_copy(old), index_fmt.encode_copy(new)
    rng = random.Random(1)
    for _ in range(300):
        torn = bytes(rng.choice(pair) for pair in zip(a, b, strict=True))
        for data in (a + torn, torn + b):
            got = index_fmt.decode_header(data, "x")
            assert (got.fenced, got.explicit_lac, got.slot_count) in {
                (old.fenced, old.explicit_lac, old.slot_count),
                (new.fenced, new.explicit_lac, new.slot_count),
            }
            assert got.whole == (data[:512] == data[512:])


def test_an_index_header_damaged_in_both_copies_is_refused() -> None:
    data = bytearray(index_fmt.encode_header(index_fmt.IndexHeader(APACHE_KEY)))
    for offset in range(0, 512, 3):
        damaged = bytearray(data)
        damaged[offset] ^= 1
        damaged[offset + 512] ^= 1
        with pytest.raises((CorruptRecord, UnknownFormatVersion)):
            index_fmt.decode_header(bytes(damaged), "x")


@pytest.mark.parametrize("data", [b"", bytes(1024), APACHE_INDEX_HEADER[:1000]])
def test_an_empty_or_short_index_header_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        index_fmt.decode_header(data, "x")


def test_what_does_not_fit_into_an_index_header_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        index_fmt.encode_copy(index_fmt.IndexHeader(b"k" * 129))
    with pytest.raises(InvalidArgument):
        index_fmt.encode_copy(index_fmt.IndexHeader(explicit_lac=b"x" * 15))


def test_locations_are_big_endian_and_trailing_zeros_are_dropped() -> None:
    slots = index_fmt.decode_slots(bytes.fromhex("000000010000040400000000000000000000000200000800") + bytes(64))
    assert slots.tolist() == [log_fmt.location(1, 0x404), 0, log_fmt.location(2, 0x800)]
    assert index_fmt.encode_slots(slots)[:8] == bytes.fromhex("0000000100000404")


def test_index_files_are_padded_to_apaches_pages() -> None:
    assert [index_fmt.padded_size(count) for count in (0, 1, 1024, 1025)] == [1024, 9216, 9216, 17408]


def test_a_sealed_header_says_what_the_map_must_be_and_any_flipped_byte_breaks_the_seal() -> None:
    """I-60: a map is believed only when the seal covers it, every byte of it and of the header."""
    ledgers_map = log_fmt.encode_ledgers_map({7: 120, 9: 64})
    header = log_fmt.LogHeader(map_offset=5000, ledger_count=2, seal=log_fmt.Seal.of(ledgers_map))
    data = log_fmt.encode_header(header)
    assert len(data) == log_fmt.HEADER_SIZE
    decoded = log_fmt.decode_header(data, "x")
    assert decoded == header
    assert decoded.seal is not None
    assert decoded.seal.fits(ledgers_map)
    for place in range(len(ledgers_map)):
        flipped = bytearray(ledgers_map)
        flipped[place] ^= 0x10
        assert not decoded.seal.fits(bytes(flipped))
    for place in range(4, log_fmt.SEALED_SIZE):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with contextlib.suppress(CorruptRecord, UnknownFormatVersion):  # told as damage already
            assert log_fmt.decode_header(bytes(flipped), "x").seal is None
