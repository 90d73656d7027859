"""Every operation as bytes and back, for every layout; and bytes that a genuine NameNode wrote."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from journalmgr.contract import Record
from journalmgr.edits import ops
from journalmgr.edits.codec import decode, encode, measure
from journalmgr.edits.fields import Permission, RpcIds, XAttrs
from journalmgr.edits.frame import RecordDecoder, encode_record
from journalmgr.edits.opcodes import HADOOP_3_ONLY, UNDECODABLE, OpCode
from journalmgr.edits.ops import OPS, Op, RawOp
from journalmgr.errors import EditsCorrupt, UnknownOp, UnsupportedLayout
from journalmgr.model import OPAQUE
from tests.support.edit_ops import (
    LAYOUTS_WITH_LENGTH,
    LAYOUTS_WITHOUT_LENGTH,
    operations,
    record_without_length,
    sample,
    samples,
)

OBSOLETE = (OpCode.SET_NS_QUOTA, OpCode.CLEAR_NS_QUOTA)

# What a NameNode 2.7.2 wrote into a ledger; journalmgr/FORMATS.md 11.1.
ENTRIES = [
    "180000000c00000000000000017043f0b7",
    "030000003f0000000000000002000000000000400200022f61000001a1fc972305000001a1fc97230504726f6f740a737570657267726f7570"
    "01ed000000000015a00ddc03000000410000000000000003000000000000400300042f612f62000001a1fc97232c000001a1fc97232c04726f"
    "6f740a737570657267726f757001ed0000000000ed237ed2",
    "030000003f0000000000000004000000000000400400022f63000001a1fc972358000001a1fc97235804726f6f740a737570657267726f7570"
    "01ed0000000000ab920ce7",
    "000000009b0000000000000005000000000000400500072f612f622f66300003000001a1fc972d8c000001a1fc972d8c000000000800000000"
    "00000004726f6f740a737570657267726f757001a400000000000024444653436c69656e745f4e4f4e4d41505245445543455f2d3137323434"
    "31333939305f3100093132372e302e302e3101000010964504e054104ceba88e3ffd47a588e000000002c9347889",
    "090000004d0000000000000006000000000000000000072f612f622f66300003000001a1fc972dbf000001a1fc972d8c000000000800000000"
    "00000004726f6f740a737570657267726f757001a45994e047",
    "0700000012000000000000000700022f6301c0f30a38f4",
    "0100000039000000000000000800072f612f622f663000042f632f67000001a1fc973f6400105a893967d40e4e9fa90d391c9c831b61000000"
    "0371e150a5",
    "170000000c000000000000000959e8adb0",
]
ROOT = Permission("root", "supergroup", 0o755)
WRITTEN = [
    ops.StartLogSegment(txid=1),
    ops.Mkdir(txid=2, inode_id=16386, path="/a", mtime=0x1A1FC972305, atime=0x1A1FC972305, permission=ROOT),
    ops.Mkdir(txid=3, inode_id=16387, path="/a/b", mtime=0x1A1FC97232C, atime=0x1A1FC97232C, permission=ROOT),
    ops.Mkdir(txid=4, inode_id=16388, path="/c", mtime=0x1A1FC972358, atime=0x1A1FC972358, permission=ROOT),
    ops.Add(
        txid=5,
        inode_id=16389,
        path="/a/b/f0",
        replication=3,
        mtime=0x1A1FC972D8C,
        atime=0x1A1FC972D8C,
        block_size=134217728,
        permission=Permission("root", "supergroup", 0o644),
        client_name="DFSClient_NONMAPREDUCE_-1724413990_1",
        client_machine="127.0.0.1",
        overwrite=True,
        rpc=RpcIds(bytes.fromhex("964504e054104ceba88e3ffd47a588e0"), 2),
    ),
    ops.Close(
        txid=6,
        path="/a/b/f0",
        replication=3,
        mtime=0x1A1FC972DBF,
        atime=0x1A1FC972D8C,
        block_size=134217728,
        permission=Permission("root", "supergroup", 0o644),
    ),
    ops.SetPermissions(txid=7, src="/c", mode=0o700),
    ops.RenameOld(
        txid=8,
        src="/a/b/f0",
        dst="/c/g",
        timestamp=0x1A1FC973F64,
        rpc=RpcIds(bytes.fromhex("5a893967d40e4e9fa90d391c9c831b61"), 3),
    ),
    ops.EndLogSegment(txid=9),
]


def record_of(data: bytes, layout_version: int) -> Record:
    decoder = RecordDecoder(layout_version, source="test", measure=measure(layout_version))
    (record,) = decoder.feed(data)
    decoder.finish()
    return record


def test_what_a_name_node_wrote_is_decoded_and_written_byte_for_byte() -> None:
    data = bytes.fromhex("".join(ENTRIES))
    decoder = RecordDecoder(-63, source="ledger 3", expected_txid=1)
    decoded = [decode(record, -63) for record in decoder.feed(data)]
    decoder.finish()
    assert decoded == WRITTEN
    assert b"".join(encode(op, -63) for op in WRITTEN) == data


@pytest.mark.parametrize("layout", LAYOUTS_WITH_LENGTH)
@pytest.mark.parametrize("kind", OPS.values(), ids=lambda kind: kind.__name__)
def test_every_operation_there_and_back_in_every_layout_with_a_length(kind: type[Op], layout: int) -> None:
    op = sample(kind, layout)
    if kind.opcode in OBSOLETE:
        with pytest.raises(InvalidArgument, match="is obsolete: write SET_QUOTA"):
            encode(op, layout)
        return
    assert decode(record_of(encode(op, layout), layout), layout) == op


@pytest.mark.parametrize("layout", LAYOUTS_WITHOUT_LENGTH)
def test_every_operation_is_read_in_every_layout_without_a_length(layout: int) -> None:
    for op in samples(layout):
        record = record_of(record_without_length(op, layout), layout)
        assert decode(record, layout) == op
        with pytest.raises(UnsupportedLayout, match="only read"):
            encode(op, layout)


def test_no_field_of_a_sample_is_at_its_default() -> None:
    for op in samples(-67):
        for field in fields(op):
            assert getattr(op, field.name) != field.default, (op, field.name)


@given(st.sampled_from(LAYOUTS_WITH_LENGTH).flatmap(lambda layout: st.tuples(st.just(layout), operations(layout))))
def test_any_operation_there_and_back(drawn: tuple[int, Op]) -> None:
    layout, op = drawn
    if op.opcode not in OBSOLETE:
        assert decode(record_of(encode(op, layout), layout), layout) == op


def test_what_a_layout_lacks_is_at_its_default_and_not_written() -> None:
    add = ops.Add(
        txid=1,
        path="/f",
        inode_id=5,
        xattrs=XAttrs(None, ()),
        overwrite=True,
        storage_policy_id=7,
        erasure_coding_policy_id=3,
        rpc=RpcIds(bytes(16), 4),
    )
    for layout, lost in (
        (-67, {}),
        (-63, {"erasure_coding_policy_id": 0}),
        (-59, {"erasure_coding_policy_id": 0, "storage_policy_id": 0}),
        (-57, {"erasure_coding_policy_id": 0, "storage_policy_id": 0, "overwrite": False}),
    ):
        assert decode(record_of(encode(add, layout), layout), layout) == replace(add, **lost)
    snapshot = ops.RenameSnapshot(txid=2, root="/", old_name="a", new_name="b", mtime=7)
    sizes = {layout: len(encode(snapshot, layout)) for layout in (-63, -65, -66, -67)}
    assert sizes[-66] == sizes[-67] == sizes[-63] + 8 == sizes[-65] + 8
    assert len(encode(add, -64)) == len(encode(add, -63)) + 1


@pytest.mark.parametrize("kind", OPS.values(), ids=lambda kind: kind.__name__)
def test_every_cut_body_is_told(kind: type[Op]) -> None:
    if kind.opcode in OBSOLETE or not kind.layout:
        return
    body = record_of(encode(sample(kind), -67), -67).body
    for size in range(len(body)):
        with pytest.raises(EditsCorrupt, match=f"^s at offset 8, txid 3: .*OP_{kind.opcode.name}"):
            decode(Record(3, kind.opcode, body[:size], 8, 0), -67, "s")  # type: ignore[arg-type]


def test_bytes_behind_the_fields_are_told() -> None:
    with pytest.raises(EditsCorrupt, match="s at offset 0, txid 9: 2 bytes behind the fields of OP_START_LOG_SEGMENT"):
        decode(record_of(encode_record(24, 9, b"xy"), -63), -63, "s")


@pytest.mark.parametrize("opcode", [*UNDECODABLE, *HADOOP_3_ONLY, 53, 111, 112, 127, 128, 254])
def test_an_unknown_operation_is_told(opcode: int) -> None:
    record = record_of(encode_record(opcode, 9, b"xy"), -63)
    if opcode in HADOOP_3_ONLY:
        raw = decode(record, -63)
        assert raw == RawOp(opcode, b"xy", 9)
        assert encode(raw, -63) == encode_record(opcode, 9, b"xy")
        return
    with pytest.raises(UnknownOp, match=f"s at offset 0, txid 9: opcode {opcode} ") as caught:
        decode(record, -63, "s")
    assert (caught.value.offset, caught.value.txid) == (0, 9)
    with pytest.raises(UnknownOp):
        measure(-55)(opcode, bytes(40), 0)


def test_opaque_transactions_and_the_marks_of_their_segments() -> None:
    for op in (RawOp(OpCode.OPAQUE, b"anything", 3), ops.StartLogSegment(txid=4), ops.EndLogSegment(txid=5)):
        assert decode(record_of(encode(op, OPAQUE), OPAQUE), OPAQUE) == op


def test_an_opaque_segment_holds_no_operations_of_hdfs() -> None:
    with pytest.raises(InvalidArgument, match="OP_DELETE"):
        encode(ops.Delete(txid=1, path="/x"), OPAQUE)
    with pytest.raises(UnknownOp, match="OP_DELETE"):
        decode(record_of(encode_record(OpCode.DELETE, 1, bytes(16)), OPAQUE), OPAQUE)
    with pytest.raises(InvalidArgument, match="has no place in layout -63"):
        encode(RawOp(OpCode.OPAQUE, b"", 1), -63)


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"OP_SET_REPLICATION.*replication.*32768"):
        encode(ops.SetReplication(txid=1, path="/x", replication=32768), -63)
    with pytest.raises(InvalidArgument, match="OP_DELETE: path: a string of 65536 bytes"):
        encode(ops.Delete(txid=1, path="x" * 65536), -63)
