"""Operations of the edit log as rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journalmgr.contract import Record
from journalmgr.edits.codec import decode, encode_body
from journalmgr.edits.fields import NO_RPC, AclEntry, Permission, XAttr, XAttrs
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import (
    OPS,
    Add,
    AnyOp,
    ConcatDelete,
    EndLogSegment,
    Mkdir,
    Op,
    RawOp,
    Rename,
    SetAcl,
    SetOwner,
    SetPermissions,
    StartLogSegment,
    Symlink,
    Times,
)
from journalmgr.errors import EditsCorrupt, UnknownOp
from journalmgr.model import OPAQUE, TxId
from journalmgr.spark.edit_batches import EDITS_SCHEMA, Place, edits_batch
from journalmgr.spark.edit_columns import COLUMNS, PLACE_COLUMNS, Buckets
from tests.support.edit_ops import LAYOUTS_WITH_LENGTH, LAYOUTS_WITHOUT_LENGTH, operations, sample, samples
from tests.support.edit_rows import operation_of
from tests.support.recorded_edits import ENTRIES


def record_of(op: AnyOp, layout: int) -> Record:
    return Record(TxId(op.txid), int(op.opcode), encode_body(op, layout), 0, 0)


def rows(records: list[Record], layout: int) -> list[dict[str, Any]]:
    """Times as microseconds."""
    buckets, place = Buckets(layout), Place(7, 1, layout)
    for entry_id, record in enumerate(records):
        buckets.add(record)
        place.txids.append(record.txid)
        place.entry_ids.append(entry_id)
    batch = edits_batch(place, list(buckets.buckets()))
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def row_of(op: AnyOp, layout: int = -63) -> dict[str, Any]:
    return rows([record_of(op, layout)], layout)[0]


def filled(row: dict[str, Any]) -> set[str]:
    return {name for name, value in row.items() if value is not None} - {
        *("txid", "op", "opcode", "ledger_id", "entry_id", "segment_first_txid", "layout_version")
    }


@pytest.mark.parametrize("layout", [*LAYOUTS_WITH_LENGTH, *LAYOUTS_WITHOUT_LENGTH])
def test_every_operation_of_every_layout_can_be_made_again_from_its_row(layout: int) -> None:
    ops = samples(layout)
    assert len(ops) == len(OPS)
    records = [record_of(op, layout) for op in ops]
    found = rows(records, layout)
    assert [operation_of(row) for row in found] == [decode(record, layout) for record in records]
    assert [row["entry_id"] for row in found] == list(range(len(ops)))


@given(st.lists(operations(-63), min_size=1, max_size=12))
def test_random_operations_keep_order_and_content(ops: list[Op]) -> None:
    records = [record_of(op, -63) for op in ops]
    found = rows(records, -63)
    assert [row["txid"] for row in found] == [op.txid for op in ops]
    assert [operation_of(row) for row in found] == [decode(record, -63) for record in records]


@given(st.lists(operations(-63), min_size=2, max_size=6))
def test_a_row_does_not_depend_on_its_neighbours(ops: list[Op]) -> None:
    records = [record_of(op, -63) for op in ops]
    together = rows(records, -63)
    alone = [rows([record], -63)[0] | {"entry_id": at} for at, record in enumerate(records)]
    assert together == alone


def test_the_path_is_what_an_operation_is_about_whatever_its_field_is_called() -> None:
    without = {
        *("ALLOCATE_BLOCK_ID", "SET_GENSTAMP_V1", "SET_GENSTAMP_V2", "START_LOG_SEGMENT", "END_LOG_SEGMENT"),
        *("GET_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "CANCEL_DELEGATION_TOKEN", "UPDATE_MASTER_KEY"),
        *("REMOVE_CACHE_DIRECTIVE", "ADD_CACHE_POOL", "MODIFY_CACHE_POOL", "REMOVE_CACHE_POOL"),
        *("ROLLING_UPGRADE_START", "ROLLING_UPGRADE_FINALIZE"),
    }
    assert {opcode.name for opcode, kind in OPS.items() if row_of(sample(kind, -63))["path"] is None} == without
    concat = row_of(ConcatDelete(target="/t", sources=("/a", "/b")))
    assert (concat["path"], concat["target"], concat["sources"]) == ("/t", None, ["/a", "/b"])
    rename = row_of(Rename(src="/a", dst="/b"))
    assert (rename["path"], rename["src"], rename["dst"]) == ("/a", "/a", "/b")
    link = row_of(Symlink(path="/l", target="/t"))
    assert (link["path"], link["target"]) == ("/l", "/t")


def test_a_column_is_null_where_an_operation_or_its_layout_has_no_such_field() -> None:
    assert filled(row_of(StartLogSegment())) == filled(row_of(EndLogSegment())) == set()
    assert filled(row_of(SetPermissions(src="/a", mode=0o600))) == {"path", "mode"}
    made = Mkdir(inode_id=5, path="/a", mtime=1, atime=1, permission=Permission("u", "g", 0o755))
    common = {"path", "mtime", "atime", "owner", "group", "mode"}
    assert filled(row_of(made, -63)) == {*common, "inode_id"}
    assert filled(row_of(made, -40)) == common
    added = row_of(Add(path="/f"))
    assert added["overwrite"] is False
    assert added["blocks"] == []
    assert filled(row_of(Add(path="/f"), -40)).isdisjoint({"overwrite", "inode_id", "storage_policy_id"})


def test_what_has_no_column_is_in_fields_where_it_is_not_the_default() -> None:
    attributes = XAttrs(None, (XAttr(0, "a", b"\x01"),))
    assert row_of(Mkdir(path="/a"))["fields"] is None
    assert row_of(Mkdir(path="/a", xattrs=attributes))["fields"] == (
        '{"xattrs": {"src": null, "attributes": [{"namespace": 0, "name": "a", "value": "01"}]}}'
    )
    acl = sample(SetAcl, -63)
    acl.acl = acl.acl._replace(entries=(AclEntry(1, 0, 7, "staff"),))
    row = row_of(acl)
    assert row["path"] == "/acl"
    assert '"name": "staff"' in row["fields"]


def test_unchanged_is_null_and_so_is_no_call_of_a_client() -> None:
    owner = row_of(SetOwner(src="/a", user="", group="staff"))
    assert (owner["owner"], owner["group"]) == (None, "staff")
    times = row_of(Times(path="/a", mtime=5, atime=-1))
    assert (times["mtime"], times["atime"], times["fields"]) == (5000, None, '{"atime": -1}')
    server = row_of(Rename(src="/a", dst="/b", rpc=NO_RPC))
    assert (server["rpc_client_id"], server["rpc_call_id"]) == (None, None)


@pytest.mark.parametrize("ms", [-(2**63), -62_135_596_800_001, 253_402_300_800_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_null_and_not_lost(ms: int) -> None:
    row = row_of(Times(path="/a", mtime=ms, atime=0))
    assert (row["mtime"], row["atime"]) == (None, 0)
    assert row["fields"] == f'{{"mtime": {ms}}}'


def test_a_path_that_is_not_unicode_is_shown_and_not_lost() -> None:
    op = ConcatDelete(txid=3, target="/\ud800", sources=("/a\udfff", "/b"))
    row = row_of(op)
    assert (row["path"], row["sources"]) == ("/\ufffd", ["/a\ufffd", "/b"])
    assert operation_of(row) == op


def test_transactions_that_are_not_taken_apart_keep_their_bytes() -> None:
    opaque = row_of(RawOp(OpCode.OPAQUE, b"\x00\xff", 9), OPAQUE)
    assert (opaque["txid"], opaque["op"], opaque["body"]) == (9, "OP_OPAQUE", b"\x00\xff")
    erasure = row_of(RawOp(OpCode.ADD_ERASURE_CODING_POLICY, b"abc", 9), -64)
    assert (erasure["op"], erasure["body"]) == ("OP_ADD_ERASURE_CODING_POLICY", b"abc")


def test_a_refused_record_leaves_no_row() -> None:
    buckets = Buckets(-63)
    for opcode, error in ((5, UnknownOp), (120, UnknownOp), (3, EditsCorrupt)):
        with pytest.raises(error):
            buckets.add(Record(TxId(1), opcode, b"\x00", 0, 0))
    assert not list(buckets.buckets())


def test_the_schema_has_each_column_once_with_its_meaning() -> None:
    names = [column.name for column in (*COLUMNS, *PLACE_COLUMNS)]
    assert EDITS_SCHEMA.fieldNames() == names
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in COLUMNS)
    assert [field.name for field in EDITS_SCHEMA.fields if not field.nullable] == [
        *("txid", "op", "opcode", "ledger_id", "entry_id", "segment_first_txid", "layout_version")
    ]


def test_a_recorded_segment_of_a_genuine_name_node_is_read() -> None:
    from journalmgr.spark.edit_entries import EntryDecoder

    decoder = EntryDecoder(-63, "recorded", 1)
    taken = [decoder.take(entry_id, payload) for entry_id, payload in enumerate(ENTRIES)]
    assert all(each.fault is None for each in taken)
    found = rows([record for each in taken for record in each.records], -63)
    assert [(row["op"], row["path"]) for row in found[1:8]] == [
        ("OP_MKDIR", "/a"), ("OP_MKDIR", "/a/b"), ("OP_MKDIR", "/c"), ("OP_ADD", "/a/b/f0"), ("OP_CLOSE", "/a/b/f0"),
        ("OP_SET_PERMISSIONS", "/c"), ("OP_RENAME_OLD", "/a/b/f0"),
    ]  # fmt: skip
    assert found[4]["client_machine"] == "127.0.0.1"
