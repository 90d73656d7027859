"""Files of edits through our codec and Hadoop's, and the comparison of what both hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from journalmgr.contract import Record
from journalmgr.edits.codec import decode, encode
from journalmgr.edits.file import encode_header
from journalmgr.edits.frame import RecordDecoder
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import AnyOp, Op
from journalmgr.errors import EditsError
from journalmgr.model import HADOOP_2_7, TxId
from tests.support.hadoop.fields import hadoop_fields
from tests.support.hadoop.tool import HadoopTool

HEADER = encode_header(HADOOP_2_7)


class Ours(NamedTuple):
    """What our codec makes of a file. error: where it broke, or None."""

    records: list[Record]
    ops: list[AnyOp]
    error: EditsError | None


def our_reading(data: bytes, source: str = "") -> Ours:
    """The transactions of an edits file, up to its end or to where reading breaks."""
    assert data[: len(HEADER)] == HEADER
    decoder = RecordDecoder(HADOOP_2_7, source=source, offset=len(HEADER))
    records: list[Record] = []
    ops: list[AnyOp] = []
    try:
        records += decoder.feed(data[len(HEADER) :])
        ops += [decode(record, HADOOP_2_7) for record in records]
        decoder.feed(b"")  # raises the fault behind the records delivered
        decoder.finish()
    except EditsError as error:
        return Ours(records, ops, error)
    return Ours(records, ops, None)


def write_edits(path: Path, ops: Sequence[AnyOp], first_txid: int = 1) -> Path:
    """An edits file of ours; the operations get consecutive txids."""
    for txid, op in enumerate(ops, first_txid):
        op.txid = TxId(txid)
    path.write_bytes(HEADER + b"".join(encode(op, HADOOP_2_7) for op in ops))
    return path


def assert_read_alike(hadoop: HadoopTool, path: Path) -> list[AnyOp]:
    """Both read the file to its end and hold the same of every transaction; what both hold, as our operations."""
    data = path.read_bytes()
    theirs, ours = hadoop.read(path), our_reading(data, path.name)
    assert (theirs.error, ours.error) == (None, None)
    assert theirs.layout_version == HADOOP_2_7
    assert len(theirs.ops) == len(ours.ops)
    for told, record, op in zip(theirs.ops, ours.records, ours.ops, strict=True):
        assert isinstance(op, Op)
        assert (told.name, told.txid) == (OpCode(record.opcode).hadoop_name, record.txid)
        assert (told.offset, told.end) == (record.offset, record.offset + record.size)
        ours_held = hadoop_fields(op)
        assert {name: told.fields[name] for name in ours_held} == ours_held, f"{told.name}, txid {told.txid}"
        assert encode(op, HADOOP_2_7) == data[record.offset : record.offset + record.size]
    return ours.ops
