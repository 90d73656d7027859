"""Names and payloads of the journal's znodes: vectors of a genuine NameNode, old records, damaged ones."""

import pytest

from journalmgr.errors import SegmentUnreadable
from journalmgr.model import NamespaceInfo, Segment, TxId
from journalmgr.segment import (
    CurrentSegment,
    finalised_name,
    finalised_prefix,
    inprogress_name,
    is_ledger_id,
    parse_current,
    parse_max_txid,
    parse_segment,
    parse_version,
    print_current,
    print_max_txid,
    print_segment,
    print_version,
)

LIST = "/hdfsjournal/ledgers"
FINALISED = b"dataLayoutVersion: -63\nledgerId: 3\nfirstTxId: 1\nlastTxId: 9\n"
IN_PROGRESS = b"dataLayoutVersion: -63\nledgerId: 4\nfirstTxId: 10\n"
CURRENT = b'path: "/hdfsjournal/ledgers/inprogress_a"\nhostname: "vm/127.0.0.1"\n'
VERSION = b"""layoutVersion: -1
namespaceInfo {
  buildVersion: "Unknown"
  unused: 0
  blockPoolID: "BP-1-127.0.0.1-2"
  storageInfo {
    layoutVersion: 4294967233
    namespceID: 1234567
    clusterID: "CID-1"
    cTime: 0
  }
  softwareVersion: "2.7.4"
  capabilities: 1
}
"""
NAMESPACE = NamespaceInfo(1234567, "CID-1", "BP-1-127.0.0.1-2", 0, -63, "Unknown", "2.7.4", 1)


@pytest.mark.parametrize(("first", "name"), [(1, "inprogress_1"), (10, "inprogress_a"), (101, "inprogress_65")])
def test_in_progress_names_are_hexadecimal_without_padding(first: int, name: str) -> None:
    assert inprogress_name(first) == name


def test_finalised_names_are_decimal_with_eighteen_digits() -> None:
    assert finalised_name(1, 100) == "edits_000000000000000001_000000000000000100"
    assert finalised_name(1, 100).startswith(finalised_prefix(1))
    assert finalised_name(2**62, 2**62) == f"edits_{2**62}_{2**62}"


def test_payloads_of_a_genuine_name_node_are_read_and_printed_alike() -> None:
    """journalmgr/FORMATS.md 2.3, 11.2."""
    finalised = Segment(TxId(1), TxId(9), -63, 3, finalised_name(1, 9))
    assert parse_segment(FINALISED, f"{LIST}/{finalised.name}") == finalised
    assert print_segment(finalised) == FINALISED
    in_progress = Segment(TxId(10), None, -63, 4, "inprogress_a")
    assert parse_segment(IN_PROGRESS, f"{LIST}/inprogress_a") == in_progress
    assert print_segment(in_progress) == IN_PROGRESS
    assert parse_max_txid(b"txId: 10\n", "/m") == 10
    assert print_max_txid(10) == b"txId: 10\n"
    current = CurrentSegment(f"{LIST}/inprogress_a", "vm/127.0.0.1")
    assert parse_current(CURRENT, "/c") == current
    assert print_current(current) == CURRENT
    version = parse_version(VERSION, "/v")
    assert version.namespace == NAMESPACE
    assert print_version(NAMESPACE) == VERSION


def test_capabilities_are_left_out_where_the_release_does_not_know_them() -> None:
    older = NamespaceInfo(-5, "CID-1", "BP-1", 7, -60, "b", "2.4.0", None)
    printed = print_version(older)
    assert b"capabilities" not in printed
    assert b"namespceID: 4294967291\n" in printed
    assert parse_version(printed, "/v").namespace == older


def test_a_cleared_pointer_names_nothing() -> None:
    assert parse_current(b"", "/c") is None


def test_a_pointer_without_host_leaves_the_field_out() -> None:
    assert print_current(CurrentSegment("/j/ledgers/inprogress_1", "")) == b'path: "/j/ledgers/inprogress_1"\n'


def test_records_older_than_the_text_format_are_read() -> None:
    assert parse_segment(b"-40;7;101", "/l/inprogress_65") == Segment(TxId(101), None, -40, 7, "inprogress_65")
    assert parse_segment(b"-40;7;101;200", "/l/x") == Segment(TxId(101), TxId(200), -40, 7, "x")
    assert parse_max_txid(b"200", "/m") == 200
    assert parse_version(b"-1", "/v").namespace is None
    assert parse_current(b"-1,nn1/10.0.0.1,/j/ledgers/inprogress_65", "/c") == CurrentSegment(
        "/j/ledgers/inprogress_65", "nn1/10.0.0.1"
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "Invalid/Incomplete data in znode /l/inprogress_1"),
        (b"junk", "has no field named"),
        (b"dataLayoutVersion: -63\nledgerId: 4\n", "Invalid/Incomplete data in znode .*firstTxId"),
        (b"dataLayoutVersion: -63\nledgerId: 4\nfirstTxId: 10\nnews: 1\n", "has no field named"),
        (b"dataLayoutVersion: -63\nledgerId: 99999999999999999999\nfirstTxId: 10\n", "ledgerId|out of range"),
        (b"-40;7", "invalid ledger entry"),
        (b"-40;7;1;2;3", "invalid ledger entry"),
        (b"-40;seven;1", "invalid ledger entry"),
        (b"\xff\xfe", "/l/inprogress_1"),
    ],
)
def test_a_damaged_record_is_told_with_its_path_and_not_taken_for_absent(data: bytes, says: str) -> None:
    with pytest.raises(SegmentUnreadable, match=says):
        parse_segment(data, "/l/inprogress_1")


@pytest.mark.parametrize("parse", [parse_version, parse_max_txid])
def test_other_records_must_not_be_empty(parse: object) -> None:
    with pytest.raises(SegmentUnreadable, match="Invalid/Incomplete data in znode /x"):
        parse(b"", "/x")  # type: ignore[operator]


def test_a_newer_format_of_the_journal_is_refused() -> None:
    with pytest.raises(SegmentUnreadable, match="version -2"):
        parse_version(VERSION.replace(b"layoutVersion: -1", b"layoutVersion: -2"), "/v")


@pytest.mark.parametrize("text", ["", "-1", "1x", "\u00b2", "\u0661", "9" * 20, "1\n"])
def test_only_decimal_numbers_name_ledgers(text: str) -> None:
    assert not is_ledger_id(text)
    assert is_ledger_id("0017")
