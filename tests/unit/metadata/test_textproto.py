"""Protobuf text as protobuf-java prints it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.textproto import parse_text, print_text
from bookkeeper.wire.proto.DataFormats_pb2 import LedgerMetadataFormat, UnderreplicatedLedgerFormat


def test_an_underreplicated_ledger_is_printed_as_protobuf_java_does() -> None:
    message = UnderreplicatedLedgerFormat(replica=["10.0.0.1:3181"], ctime=1700000000000)
    assert print_text(message) == b'replica: "10.0.0.1:3181"\nctime: 1700000000000\n'


def test_bytes_and_strings_have_c_escapes() -> None:
    message = UnderreplicatedLedgerFormat(replica=["\a\b\t\n\v\f\r\"'\\ ~\x7f\0ü"])
    assert print_text(message) == rb'replica: "\a\b\t\n\v\f\r\"' + rb"\'\\ ~\177\000\303\274" + b'"\n'


@given(st.binary(max_size=60), st.text(max_size=20))
def test_what_is_printed_is_parsed(password: bytes, replica: str) -> None:
    metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=0, state="OPEN", password=password)
    assert parse_text(print_text(metadata), LedgerMetadataFormat(), "/x") == metadata
    ledger = UnderreplicatedLedgerFormat(replica=[replica])
    assert parse_text(print_text(ledger), UnderreplicatedLedgerFormat(), "/x") == ledger


@pytest.mark.parametrize(
    "text", [b"replica: 1", b'replica: "', b'replica: "\\401"', b"unknown: 1", b"\xff", b"replica {}"]
)
def test_what_is_not_the_message_is_corrupt(text: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/x"):
        parse_text(text, UnderreplicatedLedgerFormat(), "/x")
