"""Operations as XML: what Hadoop prints of them, and back.

golden/oev-2.7.7.xml is what `hdfs oev -p xml` of Hadoop 2.7.7 printed of a file with OPERATIONS in layout -63.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from journalmgr.edits import ops
from journalmgr.edits.fields import (
    Acl,
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    XAttr,
    XAttrs,
)
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import OPS, AnyOp, Op, RawOp
from journalmgr.edits.xml import XmlDecoder, begin, record, write_xml
from journalmgr.edits.xml_fields import FIELDS
from journalmgr.errors import EditsCorrupt, EditsError, UnsupportedLayout
from journalmgr.model import OPAQUE
from tests.support.edit_ops import operations, samples

GOLDEN = Path(__file__).parent / "golden" / "oev-2.7.7.xml"

STRINGS = [
    *("/a b", "/a  b", " /lead", "/trail ", "   ", "", "/tab\tx", "/line\nx", "/return\rx", "\r\n", "\n", "]]>"),
    *('/<tag>&amp;"quoted"\'', "/\u00e4\u00f7\u00a0\x7f\x85\u2028", "/\U0001f600\U0001fffe\U0010ffff"),
    *("/back\\slash", "/\\0041;", "/\0\x01\x1f", "/\ud800x\udc00\ud800", "/\ud7ff\ue000\ufffd\ufffe\uffff"),
    "/" + " ".join(f"word{number}" for number in range(40)),
]


def operations_of_hadoop(layout_version: int) -> list[Op]:
    """One of each that Hadoop 2.7 writes, and odd ones, as the XML holds them."""
    found = [as_read(op) for op in samples(layout_version) if op.opcode not in (11, 12)]
    found += [ops.AllowSnapshot(root=string) for string in STRINGS]
    found += [
        ops.Add(),
        ops.Close(),
        ops.Mkdir(),
        ops.ConcatDelete(),
        ops.SetOwner(src="/x"),
        ops.Truncate(),
        ops.AddBlock(blocks=(Block(1, 2, 3),)),
        ops.Rename(options=()),
        ops.SetPermissions(src="/x", mode=0o1777),
        ops.SetStoragePolicy(path="/x", policy_id=200),
        ops.UpdateMasterKey(key=DelegationKey(1, 2, None)),
        ops.UpdateMasterKey(key=DelegationKey(1, 2, b"")),
        ops.SetXAttr(xattrs=XAttrs("", (XAttr(1, "n", b""), XAttr(2, "", None)))),
        ops.SetAcl(acl=Acl("", ())),
        ops.SetAcl(acl=Acl("/x", (AclEntry(0, 1, 7, None), AclEntry(2, 0, 1, None)))),
        ops.ModifyCacheDirective(directive=CacheDirective(1)),
        ops.ModifyCachePool(pool=CachePool("x")),
    ]
    for txid, op in enumerate(found, 1):
        op.txid = txid
    return found


def as_read(op: Op) -> Op:
    """An operation without what the XML does not hold."""
    changes: dict[str, Any] = {}
    if isinstance(op, ops.Add):
        changes = {"xattrs": XAttrs(None, ()), "storage_policy_id": 0}
    elif isinstance(op, ops.Mkdir):
        changes = {"atime": op.mtime, "xattrs": XAttrs(None, op.xattrs.attributes)}
    elif isinstance(op, ops.SetPermissions):
        changes = {"mode": op.mode & 0o1777}
    elif isinstance(op, ops.SetXAttr | ops.RemoveXAttr):
        changes = {"xattrs": XAttrs(op.xattrs.src or "", op.xattrs.attributes)}
    elif isinstance(op, ops.SetAcl):
        entries = tuple(entry._replace(name=entry.name or None) for entry in op.acl.entries)
        changes = {"acl": Acl(op.acl.src, entries)}
    read = replace(op, **changes)
    if isinstance(read, ops.Add | ops.Mkdir):
        read.acl = tuple(entry._replace(name=entry.name or None) for entry in read.acl)
    return read


def read_all(data: bytes, *, size: int = 1 << 20) -> tuple[int | None, list[AnyOp]]:
    decoder = XmlDecoder(source="edits.xml")
    found = [op for at in range(0, len(data), size) for op in decoder.feed(data[at : at + size])]
    return decoder.layout_version, found + decoder.finish()


def document(*records: str, layout_version: int = -63) -> bytes:
    return (begin(layout_version) + "".join(records) + "</EDITS>\n").encode()


def data_of(name: str, inner: str) -> str:
    return f"<RECORD><OPCODE>{name}</OPCODE><DATA>{inner}</DATA></RECORD>\n"


def test_it_is_what_hadoop_prints() -> None:
    printed = GOLDEN.read_bytes()
    assert "".join(write_xml(operations_of_hadoop(-63), -63)).encode() == printed
    assert read_all(printed) == (-63, operations_of_hadoop(-63))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_hadoop_printed_is_read_in_chunks_of_any_size(size: int) -> None:
    assert read_all(GOLDEN.read_bytes(), size=size) == (-63, operations_of_hadoop(-63))


def test_it_is_written_a_record_at_a_time() -> None:
    pieces = list(write_xml(operations_of_hadoop(-63), -63))
    assert len(pieces) == 2 + len(operations_of_hadoop(-63))
    assert [piece.startswith("  <RECORD>\n") and piece.endswith("  </RECORD>\n") for piece in pieces[1:-1]]


def test_every_operation_has_its_elements() -> None:
    assert set(FIELDS) == set(OPS)
    lost = {
        OpCode.ADD: {"xattrs", "storage_policy_id"},
        OpCode.MKDIR: {"atime"},
    }
    for opcode, kind in OPS.items():
        names = {field.name for field in FIELDS[opcode]} - {""}
        assert names == {spec.name for spec in kind.layout} - lost.get(opcode, set())


@pytest.mark.parametrize("layout", [-63, -65, -67])
@given(data=st.data())
def test_any_operation_there_and_back(layout: int, data: st.DataObject) -> None:
    op = data.draw(operations(layout))
    printed = "".join(write_xml([op], layout)).encode()
    assert read_all(printed) == (layout, [as_read(op)])


def test_fields_of_hadoop_3_are_printed_in_its_layouts() -> None:
    snapshot = ops.CreateSnapshot(txid=1, root="/r", name="s", mtime=9)
    assert "MTIME" not in record(snapshot, -65)
    assert "<SNAPSHOTNAME>s</SNAPSHOTNAME>\n      <MTIME>9</MTIME>\n      <RPC_CLIENTID>" in record(snapshot, -66)
    add = ops.Add(txid=1, erasure_coding_policy_id=255)
    assert "ERASURE" not in record(add, -63)
    assert "</PERMISSION_STATUS>\n      <ERASURE_CODING_POLICY_ID>-1</" in record(add, -64)


@pytest.mark.parametrize(("opcode", "layout"), [(OpCode.OPAQUE, OPAQUE), (OpCode.ENABLE_ERASURE_CODING_POLICY, -64)])
def test_what_is_not_taken_apart_has_a_body(opcode: OpCode, layout: int) -> None:
    op = RawOp(opcode, b"\0\xff", 4)
    text = record(op, layout)
    assert f"<OPCODE>{opcode.hadoop_name}</OPCODE>\n" in text
    assert "      <TXID>4</TXID>\n      <BODY>00ff</BODY>\n" in text
    assert read_all(document(text, layout_version=layout)) == (layout, [op])
    with pytest.raises(InvalidArgument, match="opcode 99 has no name"):
        record(RawOp(99, b"", 1), layout)


def test_numbers_and_words_may_have_blanks_around_them_and_texts_keep_theirs() -> None:
    inner = "<TXID>\n 3 </TXID><PATH> /x </PATH><REPLICATION> +2\n</REPLICATION>"
    assert read_all(document(data_of("\nOP_SET_REPLICATION ", inner)))[1] == [
        ops.SetReplication(txid=3, path=" /x ", replication=2)
    ]


def test_elements_may_come_in_any_order_and_some_may_be_left_out() -> None:
    inner = "<TIMESTAMP>5</TIMESTAMP><PATH>/x</PATH><TXID>3</TXID>"
    assert read_all(document(data_of("OP_DELETE", inner)))[1] == [ops.Delete(txid=3, path="/x", timestamp=5)]


DELETE = "<TXID>3</TXID><PATH>/x</PATH><TIMESTAMP>5</TIMESTAMP>"
BLOCK = "<BLOCK><BLOCK_ID>1</BLOCK_ID><NUM_BYTES>2</NUM_BYTES><GENSTAMP>3</GENSTAMP></BLOCK>"


@pytest.mark.parametrize(
    ("name", "inner", "why"),
    [
        ("OP_DELETE", "<TXID>3</TXID><PATH>/x</PATH>", "DATA has no TIMESTAMP"),
        ("OP_DELETE", "<PATH>/x</PATH>", "DATA has no TXID"),
        ("OP_DELETE", f"{DELETE}<PATH>/y</PATH>", "a second PATH in DATA"),
        ("OP_DELETE", f"{DELETE}<COLOUR>red</COLOUR>", "COLOUR is unknown in DATA"),
        ("OP_DELETE", f"{DELETE}text", "text between the elements of DATA"),
        ("OP_DELETE", DELETE.replace("5", "5x"), "TIMESTAMP is '5x', no number of 64 bits"),
        ("OP_DELETE", DELETE.replace("5", str(1 << 63)), "TIMESTAMP is '9223372036854775808', no number of 64 bits"),
        ("OP_DELETE", DELETE.replace("5", "\u0665"), "TIMESTAMP is '\u0665', no number"),
        ("OP_DELETE", DELETE.replace("/x", "\\x"), r"a backslash in PATH that is no \\HHHH; of a character"),
        ("OP_DELETE", f"{DELETE}<RPC_CLIENTID>12</RPC_CLIENTID>", "RPC_CLIENTID is '12', no UUID"),
        ("OP_DELETE", f"{DELETE}<RPC_CALLID>{1 << 31}</RPC_CALLID>", "RPC_CALLID is '2147483648', no number of 32"),
        ("OP_WHAT", DELETE, "OPCODE is 'OP_WHAT', no operation"),
        ("DELETE", DELETE, "OPCODE is 'DELETE', no operation"),
        ("OP_DATANODE_ADD", DELETE, "OP_DATANODE_ADD is obsolete"),
        ("OP_OPAQUE", "<TXID>3</TXID><BODY>0g</BODY>", "BODY is '0g', not ... in hexadecimal"),
        (
            "OP_UPDATE_BLOCKS",
            f"<TXID>3</TXID><PATH>/x</PATH>{BLOCK.replace('</BLOCK>', '<X/></BLOCK>')}",
            "X is unknown in BLOCK",
        ),
        (
            "OP_CONCAT_DELETE",
            "<TXID>3</TXID><TRG>/x</TRG><TIMESTAMP>5</TIMESTAMP><SOURCES><SOURCE2>/y</SOURCE2></SOURCES>",
            "SOURCE2 where SOURCE1 should be",
        ),
        (
            "OP_RENAME",
            "<TXID>3</TXID><SRC>/x</SRC><DST>/y</DST><TIMESTAMP>5</TIMESTAMP><OPTIONS>NONE|MAYBE</OPTIONS>",
            r"OPTIONS is 'NONE\|MAYBE'; known are NONE, OVERWRITE, TO_TRASH",
        ),
        (
            "OP_SET_ACL",
            "<TXID>3</TXID><SRC>/x</SRC><ENTRY><SCOPE>ACCESS</SCOPE><TYPE>USER</TYPE><PERM>rwz</PERM></ENTRY>",
            "PERM is 'rwz', not one of ---, --x,",
        ),
        (
            "OP_SET_XATTR",
            "<TXID>3</TXID><SRC>/x</SRC><XATTR><NAMESPACE>USER</NAMESPACE><NAME>n</NAME><VALUE>31</VALUE></XATTR>",
            "VALUE is '31', not 0x... in hexadecimal",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_element(name: str, inner: str, why: str) -> None:
    good = data_of("OP_DELETE", DELETE)
    decoder = XmlDecoder(source="edits.xml")
    assert decoder.feed(document(good, data_of(name, inner))) == [ops.Delete(txid=3, path="/x", timestamp=5)]
    with pytest.raises(EditsCorrupt, match=f"^edits.xml: line 5: {why}"):
        decoder.feed(b"")
    with pytest.raises(EditsCorrupt, match=why):
        decoder.finish()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: no element found"),
        ("<EDITS>", "line 1: no element found"),
        ("<EDITS/>", "line 1: EDITS has no EDITS_VERSION"),
        ("<OTHER/>", "line 1: OTHER where EDITS should be"),
        ("\n<EDITS><RECORD/></EDITS>", "line 2: RECORD where EDITS_VERSION should be"),
        ("<EDITS><EDITS_VERSION>x</EDITS_VERSION></EDITS>", "line 1: EDITS_VERSION is 'x', no number of 32 bits"),
        (begin(-63) + "<OTHER/></EDITS>", "line 4: OTHER where RECORD should be"),
        (begin(-63) + "<RECORD/></EDITS>", "line 4: RECORD has no OPCODE"),
        (begin(-63) + "</EDITS>\n<ERROR>cut</ERROR>", "line 5: junk after document element"),
        (begin(-63) + "</EDIT>", "line 4: mismatched tag"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><EDITS/>', "line 1: a document type; edits have none"),
        ("<EDITS>&a;</EDITS>", "line 1: undefined entity"),
        ('<?xml version="1.0" encoding="WTF-8"?><EDITS/>', "line 1: encoding 'WTF-8', not one of ISO-8859-1, "),
        ('<?xml version="1.0" encoding="utf-7"?><EDITS/>', "line 1: encoding 'utf-7', .*; write the document as UTF-8"),
    ],
)
def test_what_is_no_document_of_edits_is_told(text: str, why: str) -> None:
    decoder = XmlDecoder(source="edits.xml")

    def read() -> None:
        decoder.feed(text.encode())
        decoder.finish()

    with pytest.raises(EditsCorrupt, match=f"^edits.xml: {why}"):
        read()


def test_a_layout_that_cannot_be_read_is_told() -> None:
    with pytest.raises(UnsupportedLayout, match=r"edits.xml: layout version -39 cannot be read"):
        XmlDecoder(source="edits.xml").feed(begin(-39).encode())


def test_a_rename_with_an_option_that_has_no_name_is_refused_with_it() -> None:
    with pytest.raises(InvalidArgument, match="option 64, which has no name in XML; named are 0 to 2: write JSON"):
        record(ops.Rename(txid=1, options=(1, 64)), -63)


def test_a_record_is_bounded() -> None:
    text = record(ops.Delete(txid=1, path="x" * 500), -63)
    decoder = XmlDecoder(source="edits.xml", text_size_max=700)
    assert len(decoder.feed(document(text, text))) == 2
    with pytest.raises(EditsCorrupt, match="line 9: a record of more than 500 characters"):
        XmlDecoder(source="edits.xml", text_size_max=500).feed(document(text))


@given(st.integers(0, 3999), st.integers(0, 255))
def test_a_changed_byte_is_read_or_told(at: int, byte: int) -> None:
    data = bytearray(GOLDEN.read_bytes()[:4000])
    data[at] = byte
    decoder = XmlDecoder(source="edits.xml")

    def read() -> None:
        decoder.feed(bytes(data))
        decoder.finish()

    with pytest.raises(EditsError, match=r"edits\.xml"):  # it is cut short in any case
        read()
