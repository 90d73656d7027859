"""Payloads of a journal's znodes through the text format that Hadoop carries: protobuf-java 2.5, Hadoop's messages."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from journalmgr.errors import SegmentUnreadable
from journalmgr.model import NamespaceInfo, Segment, TxId
from journalmgr.proto import bkjournal_pb2 as pb
from journalmgr.segment import (
    CurrentSegment,
    finalised_name,
    inprogress_name,
    parse_current,
    parse_max_txid,
    parse_segment,
    parse_version,
    print_current,
    print_max_txid,
    print_segment,
    print_version,
)
from tests.support.hadoop import HadoopTool
from tests.support.java_programs import CommandFailed

EXAMPLES = settings(max_examples=150, deadline=None)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
TXIDS = st.integers(1, (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

NAMESPACES = st.builds(
    NamespaceInfo,
    namespace_id=INT32,
    cluster_id=TEXT,
    block_pool_id=TEXT,
    ctime=UINT64,
    layout_version=INT32,
    build_version=TEXT,
    software_version=TEXT,
    capabilities=st.none() | UINT64,
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Of either state, under its name."""
    first, last = draw(TXIDS), draw(st.none() | TXIDS)
    name = inprogress_name(first) if last is None else finalised_name(first, last)
    return Segment(TxId(first), None if last is None else TxId(last), draw(INT32), draw(INT64), name)


def through_hadoop(hadoop: HadoopTool, message: Message, text: bytes) -> bytes:
    """Hadoop reads the text; what it prints of that. message: an empty one of the kind, for comparing what was read."""
    kind = message.DESCRIPTOR.name
    wire = hadoop.merge_text(kind, text)
    message.ParseFromString(wire)
    assert message.SerializeToString(deterministic=True) == wire
    # DEL goes as it is there, and escaped from protobuf-java 3 on, as with us; either reads both.
    return hadoop.print_text(kind, wire).replace(b"\x7f", rb"\177")


@given(segment=segments())
@EXAMPLES
def test_hadoop_reads_and_prints_segments_as_we_do(hadoop: HadoopTool, segment: Segment) -> None:
    message = pb.EditLogLedgerProto()
    text = print_segment(segment)
    assert through_hadoop(hadoop, message, text) == text
    assert (message.dataLayoutVersion, message.ledgerId) == (segment.layout_version, segment.ledger_id)
    assert message.firstTxId == segment.first_txid
    assert (message.lastTxId if message.HasField("lastTxId") else None) == segment.last_txid
    assert parse_segment(text, segment.name) == segment


@given(namespace=NAMESPACES)
@EXAMPLES
def test_hadoop_reads_and_prints_versions_as_we_do(hadoop: HadoopTool, namespace: NamespaceInfo) -> None:
    message = pb.VersionProto()
    text = print_version(namespace)
    assert through_hadoop(hadoop, message, text) == text
    info = message.namespaceInfo
    assert (message.layoutVersion, info.unused, info.HasField("capabilities")) == (
        -1,
        0,
        namespace.capabilities is not None,
    )
    # Hadoop's own int is what Java makes of the unsigned number.
    assert (info.storageInfo.namespceID - namespace.namespace_id) % (1 << 32) == 0
    assert (info.storageInfo.clusterID, info.blockPoolID) == (namespace.cluster_id, namespace.block_pool_id)
    assert parse_version(text, "/version").namespace == namespace


@given(path=TEXT.filter(bool), hostname=TEXT)
@EXAMPLES
def test_hadoop_reads_and_prints_pointers_as_we_do(hadoop: HadoopTool, path: str, hostname: str) -> None:
    message = pb.CurrentInprogressProto()
    text = print_current(CurrentSegment(path, hostname))
    assert through_hadoop(hadoop, message, text) == text
    assert (message.path, message.hostname) == (path, hostname)
    assert parse_current(text, "/CurrentInprogress") == CurrentSegment(path, hostname)


@given(txid=INT64)
@EXAMPLES
def test_hadoop_reads_and_prints_the_greatest_txid_as_we_do(hadoop: HadoopTool, txid: int) -> None:
    text = print_max_txid(txid)
    assert through_hadoop(hadoop, pb.MaxTxIdProto(), text) == text == b"txId: %d\n" % txid
    assert parse_max_txid(text, "/maxtxid") == txid


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "Invalid/Incomplete data in znode"),
        (b"txId: ", None),
        (b"junk", "has no field named"),
        (b"txId: 1 more: 2", "has no field named"),
        (b"txId: 9223372036854775808\n", None),
        (b'txId: "1"\n', None),
        (b"txId: 1 }\n", None),
    ],
)
def test_what_hadoop_refuses_we_refuse(hadoop: HadoopTool, text: bytes, says: str | None) -> None:
    with pytest.raises(CommandFailed, match=says):
        hadoop.merge_text("MaxTxIdProto", text)
    with pytest.raises(SegmentUnreadable, match=says):
        parse_max_txid(text, "/maxtxid")


def test_a_field_told_twice_is_damage_where_hadoop_takes_the_last(hadoop: HadoopTool) -> None:
    """Nobody writes that; which of them holds is not for us to guess."""
    text = b"txId: 1\ntxId: 2\n"
    assert hadoop.merge_text("MaxTxIdProto", text) == pb.MaxTxIdProto(txId=2).SerializeToString()
    with pytest.raises(SegmentUnreadable, match="multiple"):
        parse_max_txid(text, "/maxtxid")


@pytest.mark.parametrize(
    ("text", "txid"),
    [(b"txId:7", 7), (b"txId : 7", 7), (b"  txId: 0x1F # sixteen\n", 31), (b"txId: 017", 15), (b"txId: -1\n\n", -1)],
)
def test_what_hadoop_reads_of_other_forms_we_read(hadoop: HadoopTool, text: bytes, txid: int) -> None:
    """Written by people who repair a journal."""
    assert hadoop.merge_text("MaxTxIdProto", text) == pb.MaxTxIdProto(txId=txid).SerializeToString()
    assert parse_max_txid(text, "/maxtxid") == txid
