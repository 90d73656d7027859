"""Ledger metadata: Apache's bytes, round trips, and damage of every kind (I-01, I-18).

Source: bookkeeper/wire/FORMATS.md 7.1.
"""

import dataclasses
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.ledgers.codec import check_representable, format_ledger, parse_ledger
from bookkeeper.model import BookieId, DigestType, EntryId, Fragment, LedgerMetadata, LedgerState

PATH = "/ledgers/00/0000/L0001"

# Made by Apache's LedgerMetadataSerDe 4.16.7 (bookkeeper/wire/FORMATS.md 5, 7.1).
FIRST = Fragment(EntryId(0), tuple(BookieId(f"10.0.0.{n}:3181") for n in (1, 2, 3)))
SECOND = Fragment(EntryId(100), tuple(BookieId(f"10.0.0.{n}:3181") for n in (1, 4, 3)))
A = LedgerMetadata(
    ensemble_size=3,
    write_quorum=3,
    ack_quorum=2,
    fragments=(FIRST,),
    digest_type=DigestType.CRC32C,
    password=b"\x70\x77\x01\x22\xff",
    custom={"application": b"x"},
    ctime_ms=1700000000000,
    creator_token=42,
)
B = dataclasses.replace(A, fragments=(FIRST, SECOND), state=LedgerState.IN_RECOVERY, custom={}, ctime_ms=None)
C = dataclasses.replace(B, state=LedgerState.CLOSED, last_entry_id=EntryId(149), length=1005)

VERSION_3 = {
    "a": """
426f6f6b69654d65746164617461466f726d617456657273696f6e09330a6a08031003180020ffffffffffffffffff012801
322f0a0d31302e302e302e313a333138310a0d31302e302e302e323a333138310a0d31302e302e302e333a33313831100038
03420570770122ff48025080d095ffbc315a100a0b6170706c69636174696f6e120178602a
""",
    "b": """
426f6f6b69654d65746164617461466f726d617456657273696f6e09330a820108031003180020ffffffffffffffffff0128
02322f0a0d31302e302e302e313a333138310a0d31302e302e302e323a333138310a0d31302e302e302e333a333138311000
322f0a0d31302e302e302e313a333138310a0d31302e302e302e343a333138310a0d31302e302e302e333a33313831106438
03420570770122ff4802602a
""",
    "c": """
426f6f6b69654d65746164617461466f726d617456657273696f6e09330a7b0803100318ed072095012803322f0a0d31302e
302e302e313a333138310a0d31302e302e302e323a333138310a0d31302e302e302e333a333138311000322f0a0d31302e30
2e302e313a333138310a0d31302e302e302e343a333138310a0d31302e302e302e333a3331383110643803420570770122ff
4802602a
""",
}
VERSION_2_A = b"""BookieMetadataFormatVersion\t2
quorumSize: 3
ensembleSize: 3
length: 0
lastEntryId: -1
state: OPEN
segment {
  ensembleMember: "10.0.0.1:3181"
  ensembleMember: "10.0.0.2:3181"
  ensembleMember: "10.0.0.3:3181"
  firstEntryId: 0
}
digestType: CRC32C
password: "pw\\001\\"\\377"
ackQuorumSize: 2
ctime: 1700000000000
customMetadata {
  key: "application"
  value: "x"
}
"""
VERSION_1_B = (
    b"BookieMetadataFormatVersion\t1\n3\n3\n0\n"
    b"0\t10.0.0.1:3181\t10.0.0.2:3181\t10.0.0.3:3181\n"
    b"100\t10.0.0.1:3181\t10.0.0.4:3181\t10.0.0.3:3181\n"
    b"-102\tCLOSED"
)
SHA_1 = {
    (1, "a"): (80, "f309cb8e68e428012fca14e90fc55b5a18397396"),
    (1, "b"): (137, "49e532defe9806661d540b1bb6e5c1c857ecc8da"),
    (1, "c"): (139, "26fa098709a5c19fe94021b8e2010fd3de987a51"),
    (2, "a"): (365, "5b7cb2ad669c578a3b48b49d25359263b3f1ad69"),
    (2, "b"): (432, "d5f819643f736a7ad613e14a08849703be357b40"),
    (2, "c"): (431, "6d49e0e2878c74d874947323086d22917cb2ed64"),
    (3, "a"): (137, "b918e1157b1c9668e2e14a270c42fc9973cfe298"),
    (3, "b"): (162, "fa53beb6bea69b0702b51734d2b3fe3182e0be7e"),
    (3, "c"): (154, "c9747f72a5658b5495d86f6a9efb240b55d91fcc"),
}
STATES = {"a": A, "b": B, "c": C}


def as_version(metadata: LedgerMetadata, version: int) -> LedgerMetadata:
    """What is left of the metadata in an older format."""
    if version == 3:
        return metadata
    metadata = dataclasses.replace(metadata, format_version=version, creator_token=None)
    if version == 2:
        return metadata
    return dataclasses.replace(
        metadata, ack_quorum=metadata.write_quorum, digest_type=None, password=None, custom={}, ctime_ms=None
    )


@pytest.mark.parametrize(("version", "state"), SHA_1)
def test_every_version_and_state_is_apaches_to_the_byte(version: int, state: str) -> None:
    data = format_ledger(dataclasses.replace(STATES[state], format_version=version))
    assert (len(data), hashlib.sha1(data, usedforsecurity=False).hexdigest()) == SHA_1[version, state]
    assert parse_ledger(data, PATH) == as_version(STATES[state], version)


@pytest.mark.parametrize("state", STATES)
def test_version_3_vectors(state: str) -> None:
    data = bytes.fromhex(VERSION_3[state])
    assert format_ledger(STATES[state]) == data
    assert parse_ledger(data, PATH) == STATES[state]


def test_version_2_text_vector() -> None:
    assert format_ledger(dataclasses.replace(A, format_version=2)) == VERSION_2_A


def test_version_1_vector() -> None:
    assert format_ledger(dataclasses.replace(B, format_version=1)) == VERSION_1_B


@pytest.mark.parametrize(
    "text",
    [
        VERSION_2_A.replace(b"\n  ", b" ").replace(b"state: OPEN", b"# a comment\nstate: 1"),
        VERSION_2_A.replace(b"segment {", b"segment: <").replace(b"0\n}\ndigest", b"0\n>\ndigest"),
        VERSION_2_A.replace(b'"10.0.0.1:3181"', b"'10.0.0.1:' \"3181\""),
        VERSION_2_A.rstrip(b"\n"),
    ],
)
def test_any_legal_protobuf_text_is_read(text: bytes) -> None:
    assert parse_ledger(text, PATH) == as_version(A, 2)


def test_version_1_of_the_oldest_writers_has_lf_before_each_line_and_none_at_the_end() -> None:
    text = b"BookieMetadataFormatVersion\t1\n2\n2\n0\n0\ta:1\tb:1"
    assert parse_ledger(text, PATH).fragments == (Fragment(EntryId(0), (BookieId("a:1"), BookieId("b:1"))),)


def test_an_empty_closed_ledger_is_read_in_every_version() -> None:
    closed = A.closed(EntryId(-1), 0)
    for version in (1, 2, 3):
        found = parse_ledger(format_ledger(dataclasses.replace(closed, format_version=version)), PATH)
        assert (found.last_entry_id, found.length) == (-1, 0)


def test_length_and_last_entry_of_a_ledger_that_is_not_closed_are_ignored() -> None:
    text = VERSION_2_A.replace(b"length: 0", b"length: 77").replace(b"lastEntryId: -1", b"lastEntryId: 12")
    assert parse_ledger(text, PATH) == as_version(A, 2)


def test_without_a_password_there_is_no_digest_type_either() -> None:
    """Ledgers older than 4.2: the opener's values count."""
    text = b"\n".join(line for line in VERSION_2_A.split(b"\n") if not line.startswith((b"password", b"digestType")))
    found = parse_ledger(text, PATH)
    assert (found.digest_type, found.password) == (None, None)
    assert format_ledger(found) == text


def test_a_password_without_digest_type_means_crc32_and_a_missing_ack_quorum_the_write_quorum() -> None:
    text = b"\n".join(line for line in VERSION_2_A.split(b"\n") if not line.startswith((b"ackQ", b"digestType")))
    found = parse_ledger(text, PATH)
    assert (found.digest_type, found.ack_quorum) == (DigestType.CRC32, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"ensembleSize: 3", b"ensembleSize: 2"),
        (b"quorumSize: 3\nens", b"quorumSize: 4\nens"),
        (b"ackQuorumSize: 2", b"ackQuorumSize: 4"),
        (b"ackQuorumSize: 2", b"ackQuorumSize: 0"),
        (b"firstEntryId: 0", b"firstEntryId: 1"),
        (b"10.0.0.2", b"10.0.0.1"),
        (b'"10.0.0.2:3181"', b'""'),
        (b"state: OPEN", b"state: CLOSED"),
        (b"quorumSize: 3\n", b"quorumSize: 3\nquorumSize: 3\n"),
        (b"state: OPEN\n", b""),
        (b"state: OPEN", b"state: HALF_OPEN"),
        (b"ctime:", b"birthday:"),
        (b"BookieMetadataFormatVersion\t2", b"BookieMetadataFormatVersion 2"),
        (b"Version\t2", b"Version\t0"),
        (b"Version\t2", b"Version\t-2"),
        (b"Version\t2", b"Version\t99999999999"),
        (b"pw", b"\xff\xfe"),
    ],
)
def test_wrong_metadata_is_refused_and_never_put_right(old: bytes, new: bytes) -> None:
    """I-01: the error names the path. (Closed with last entry -1 and length 0 is the one legal change of state.)"""
    text = VERSION_2_A.replace(old, new)
    assert text != VERSION_2_A
    if new == b"state: CLOSED":
        text = text.replace(b"lastEntryId: -1\n", b"")
    with pytest.raises(MetadataCorrupt, match=PATH):
        parse_ledger(text, PATH)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"BookieMetadataFormatVersion\t",
        b"BookieMetadataFormatVersion\t3",
        b"BookieMetadataFormatVersion\t3\n",
        b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\xff\xff",
        b"BookieMetadataFormatVersion\t3\n\x05abc",
        b"BookieMetadataFormatVersion\t1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\nx\n0\ta:1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n5\tCLOSED\n0\ta:1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n-7\tCLOSED",
        b"BookieMetadataFormatVersion\t1\n1\n1\n-3\n0\ta:1\n5\tCLOSED",
        b"1\n1\n0\n0\ta:1\n",
        format_ledger(A) + b"\0",
        format_ledger(A)[:-1],
    ],
)
def test_garbage_is_corrupt_and_the_error_names_the_path(data: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match=PATH):
        parse_ledger(data, PATH)


@pytest.mark.parametrize("version", [b"4", b"17", b"4294967296"])
def test_a_future_version_is_too_new(version: bytes) -> None:
    with pytest.raises(MetadataTooNew, match=PATH):
        parse_ledger(format_ledger(A).replace(b"Version\t3", b"Version\t" + version), PATH)


@pytest.mark.parametrize(
    "field",
    [
        b"\x68\x01",  # field 13, a varint
        b"\x38\x09",  # digest type 9: must not look like "none given"
        b"\x28\x09",  # state 9
    ],
)
def test_fields_and_values_of_a_later_release_are_too_new(field: bytes) -> None:
    data = format_ledger(dataclasses.replace(A, custom={}, ctime_ms=None))
    header, content = data[:29], data[30:]
    with pytest.raises(MetadataTooNew, match=PATH):
        parse_ledger(header + b"\n" + bytes([len(content) - 0 + len(field) - 1]) + content[1:] + field, PATH)


def test_many_unknown_fields_are_refused_by_their_size() -> None:
    """A search of a large record with such fields took half a second."""
    content = format_ledger(A)[31:] + b"\x68\x01" * 2500
    size = bytes((len(content) & 0x7F | 0x80, len(content) >> 7))
    with pytest.raises(MetadataTooNew, match="5000 bytes of unknown fields"):
        parse_ledger(format_ledger(A)[:30] + size + content, PATH)


def test_version_1_cannot_hold_an_ack_quorum_of_its_own_nor_custom_metadata() -> None:
    version_1 = as_version(A, 1)
    check_representable(version_1)
    with pytest.raises(InvalidMetadata, match="ack quorum"):
        check_representable(dataclasses.replace(version_1, ack_quorum=2))
    with pytest.raises(InvalidMetadata, match="custom"):
        check_representable(dataclasses.replace(version_1, custom={"a": b"b"}))


@pytest.mark.parametrize("bookie_id", ["", "a\tb", "a\nb"])
def test_a_bookie_id_that_would_break_the_text_is_refused(bookie_id: str) -> None:
    metadata = dataclasses.replace(
        A, fragments=(Fragment(EntryId(0), (BookieId("x"), BookieId("y"), BookieId(bookie_id))),)
    )
    with pytest.raises(InvalidMetadata, match="bookie id"):
        check_representable(metadata)


# --- properties -----------------------------------------------------------------------------------------------------

BOOKIE_IDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789.:-_", min_size=1, max_size=12).filter(
    lambda i: i != "CLOSED"
)
INT64 = st.integers(0, 2**63 - 1)


@st.composite
def metadata_of_any_kind(draw: st.DrawFn) -> LedgerMetadata:
    version = draw(st.sampled_from((1, 2, 3)))
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    ack_quorum = write_quorum if version == 1 else draw(st.integers(1, write_quorum))
    ensembles = st.lists(BOOKIE_IDS, min_size=ensemble_size, max_size=ensemble_size, unique=True)
    firsts = [0, *sorted(draw(st.sets(st.integers(1, 2**62), max_size=3)))]
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    has_password = version > 1 and draw(st.booleans())
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        fragments=tuple(Fragment(EntryId(first), tuple(map(BookieId, draw(ensembles)))) for first in firsts),
        state=state,
        last_entry_id=EntryId(draw(st.integers(-1, 2**62))) if closed else None,
        length=draw(INT64) if closed else None,
        digest_type=draw(st.sampled_from(DigestType)) if has_password else None,
        password=draw(st.binary(max_size=40)) if has_password else None,
        custom=draw(st.dictionaries(st.text(max_size=8), st.binary(max_size=20), max_size=3)) if version > 1 else {},
        ctime_ms=draw(st.none() | INT64) if version > 1 else None,
        creator_token=draw(st.none() | INT64) if version == 3 else None,
        format_version=version,
    )


@given(metadata_of_any_kind())
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read(metadata: LedgerMetadata) -> None:
    check_representable(metadata)
    assert parse_ledger(format_ledger(metadata), PATH) == metadata


def read_or_refuse(data: bytes) -> None:
    """Reading either gives legal metadata that survives a rewrite, or one of the two errors that name the path."""
    try:
        metadata = parse_ledger(data, PATH)
    except (MetadataCorrupt, MetadataTooNew) as error:
        assert PATH in str(error)  # noqa: PT017 - both outcomes are fine, each has its own condition
    else:
        assert parse_ledger(format_ledger(metadata), PATH) == metadata


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_truncation_is_read_or_refused(version: int) -> None:
    data = format_ledger(dataclasses.replace(C, format_version=version))
    for size in range(len(data)):
        read_or_refuse(data[:size])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_flipped_bit_is_read_or_refused(version: int) -> None:
    data = format_ledger(dataclasses.replace(A, format_version=version))
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        read_or_refuse(bytes(damaged))


@given(metadata_of_any_kind(), st.data())
@settings(max_examples=200, deadline=None)
def test_damage_anywhere_is_read_or_refused(metadata: LedgerMetadata, data: st.DataObject) -> None:
    damaged = bytearray(format_ledger(metadata))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        damaged = damaged or bytearray(b"\0")
    read_or_refuse(bytes(damaged))


@given(st.sampled_from((b"1", b"2", b"3")), st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_after_the_header_are_read_or_refused(version: bytes, content: bytes) -> None:
    read_or_refuse(b"BookieMetadataFormatVersion\t" + version + b"\n" + content)
