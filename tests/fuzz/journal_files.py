"""Decoders of data that name nodes store and exchange: edits (binary, XML, JSON), images, directories, HTTP."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256
from zlib import crc32

from journalmgr.edits import json as edits_json
from journalmgr.edits import ops
from journalmgr.edits import xml as edits_xml
from journalmgr.edits.codec import decode, encode
from journalmgr.edits.fields import Block, DelegationKey, Permission, TokenIdentifier, XAttr
from journalmgr.edits.file import EditsFileDecoder, decode_header, encode_header, parse_name
from journalmgr.edits.frame import next_record_offset
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import Op
from journalmgr.errors import JournalError
from journalmgr.files.version import decode_seen_txid, decode_version, encode_seen_txid, encode_version
from journalmgr.namenode.errors import ImageError
from journalmgr.namenode.fs_client import parse_address
from journalmgr.namenode.http import acl, answers
from journalmgr.namenode.http.messages import HttpRequest, Parameters
from journalmgr.namenode.images.checkpoints import txid_of_image
from journalmgr.namenode.images.format import MAGIC
from journalmgr.namenode.images.format import decode as decode_image
from journalmgr.namenode.images.format import encode as encode_image
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.tree import Namespace
from journalmgr.uri import parse_uri
from tests.fuzz.decoder import Decoder, text
from tests.fuzz.znodes import JSON_OPENERS, JSON_TOKENS, NAMESPACE
from tests.support.edit_ops import record_without_length, samples

LAYOUTS = (-60, -63, -66)
_OBSOLETE = (OpCode.SET_NS_QUOTA, OpCode.CLEAR_NS_QUOTA)


def _operations(layout_version: int) -> list[Op]:
    found = [op for op in samples(layout_version) if op.opcode not in _OBSOLETE]
    for txid, op in enumerate(found, 1):
        op.txid = txid
    return found


def _edits() -> Sequence[bytes]:
    """Return edits with few operations per file, so that changes reach each of them; also layouts without lengths."""
    found = []
    for layout in LAYOUTS:
        operations = _operations(layout)
        found += [
            encode_header(layout) + b"".join(encode(op, layout) for op in operations[at : at + 4])
            for at in range(0, len(operations), 4)
        ]
    for layout in (-49, -55):
        header = layout.to_bytes(4, "big", signed=True) + bytes(4 if layout <= -50 else 0)
        found.append(header + record_without_length(ops.Delete(txid=5, path="/x", timestamp=3), layout))
    return found


def _read_edits(data: bytes) -> object:
    """Return the operations. JSON and XML must write them, or refuse them with declared errors."""
    decoder = EditsFileDecoder(source="edits")
    cut = len(data) * 2 // 3
    found = decoder.feed(data[:cut]) + decoder.feed(data[cut:])
    decoder.finish()
    assert decoder.layout_version is not None
    operations = [decode(record, decoder.layout_version, "edits") for record in found]
    for operation in operations:
        edits_json.dumps(operation)
    for operation in operations:
        edits_xml.record(operation, decoder.layout_version).encode()
    return operations


def _sealed_edits(data: bytes) -> bytes:
    """Put right checksums, and consecutive txids, into records that have a length."""
    found, at, txid = bytearray(data), 8, None
    while at + 17 <= len(found):
        size = int.from_bytes(found[at + 1 : at + 5], "big") + 5
        if not 17 <= size <= len(found) - at:
            size = len(found) - at
            found[at + 1 : at + 5] = (size - 5).to_bytes(4, "big")
        txid = int.from_bytes(found[at + 5 : at + 13], "big") if txid is None else txid + 1
        found[at + 5 : at + 13] = (txid % (1 << 63)).to_bytes(8, "big")
        found[at + size - 4 : at + size] = crc32(found[at : at + size - 4]).to_bytes(4, "big")
        at += size
    return bytes(found)


def _xml() -> Sequence[bytes]:
    found = []
    for layout in LAYOUTS:
        operations = _operations(layout)
        found += [
            "".join(edits_xml.write_xml(operations[at : at + 4], layout)).encode()
            for at in range(0, len(operations), 4)
        ]
    return found


def _read_xml(data: bytes) -> object:
    decoder = edits_xml.XmlDecoder(source="edits.xml")
    cut = len(data) * 2 // 3
    operations = decoder.feed(data[:cut]) + decoder.feed(data[cut:])
    operations += decoder.finish()
    for operation in operations:
        encode(operation, decoder.layout_version or -63)
        edits_json.dumps(operation)
    return operations


def _read_json(data: bytes) -> object:
    operation = edits_json.loads(data, "edits.json")
    for layout in (-63, -66):
        encode(operation, layout)
        edits_xml.record(operation, layout).encode()
    return operation


# --- images


def _images() -> Sequence[bytes]:
    namespace = Namespace()
    permission = Permission("ann", "staff", 0o755)
    for operation in (
        ops.Mkdir(txid=1, inode_id=16386, path="/a", mtime=5, permission=permission),
        ops.Add(txid=2, inode_id=16387, path="/a/b", mtime=5, atime=5, block_size=1024, permission=permission),
        ops.Close(txid=3, path="/a/b", mtime=6, blocks=(Block(1, 2, 3),), permission=permission, inode_id=16387),
        ops.SetXAttr(txid=4, xattrs=ops.XAttrs("/a/b", (XAttr(0, "n", b"v"),))),
        ops.Symlink(txid=5, inode_id=16388, path="/l", target="/a", permission=permission),
        ops.UpdateMasterKey(txid=6, key=DelegationKey(1, 2, b"k")),
        ops.GetDelegationToken(txid=7, token=TokenIdentifier(0, "o", "r", "u", 1, 2, 3, 1), expiry=9),
        ops.SetQuota(txid=8, src="/a", namespace_quota=10, space_quota=-1),
        ops.AddCachePool(txid=9, pool=ops.CachePool("p", "o", "g", 0o755, 9, 9)),
    ):
        apply(operation, namespace)
    return [b"".join(encode_image(namespace, NAMESPACE)), b"".join(encode_image(Namespace(), NAMESPACE))]


_FRAME = struct.Struct(">BI")


def _sealed_image(data: bytes) -> bytes:
    """Put right checksums into the frames, and the right digest and count into the last frame."""
    found, at, crc, digest, frames = bytearray(data), len(MAGIC), crc32(MAGIC), sha256(MAGIC), 0
    while at + _FRAME.size + 4 <= len(found):
        _, size = _FRAME.unpack_from(found, at)
        end = at + _FRAME.size + size + 4
        if end > len(found):
            break
        if end == len(found) and size == 40:
            found[at + _FRAME.size : end - 4] = struct.pack(">Q32s", frames, digest.digest())
        crc = crc32(found[at : end - 4], crc)
        found[end - 4 : end] = crc.to_bytes(4, "big")
        digest.update(found[at:end])
        frames += 1
        at = end
    return bytes(found)


def _read_image(data: bytes) -> object:
    decode_image(data)
    return None


# --- directories and HTTP


def _names(data: bytes) -> object:
    name = text(data)
    found = parse_name(name)
    return found, txid_of_image(name)


def _target(data: bytes) -> object:
    target, _, request_id = data.partition(b" ")
    request = HttpRequest("GET", text(target), {"x-request-id": text(request_id)})
    assert isinstance(request.path, str)
    Parameters(request.query).text("op")
    return request.rpc


TABLE = (
    Decoder(
        name="edits",
        covers=(
            "journalmgr.edits.file:EditsFileDecoder.feed",
            "journalmgr.edits.frame:RecordDecoder.feed",
            "journalmgr.edits.codec:decode",
            "journalmgr.edits.xml:record",
        ),
        decode=_read_edits,
        seeds=_edits,
        sealed=_sealed_edits,
        suite_inputs=4_000,
    ),
    Decoder(
        name="edits-header",
        covers=("journalmgr.edits.file:decode_header", "journalmgr.edits.frame:next_record_offset"),
        decode=lambda data: (next_record_offset(data), decode_header(data, "edits")),
        seeds=lambda: _edits()[:3],
        refusals=(JournalError,),
        suite_inputs=4_000,
    ),
    Decoder(
        name="edits-xml",
        covers=("journalmgr.edits.xml:XmlDecoder.feed",),
        decode=_read_xml,
        seeds=_xml,
        tokens=(
            b"<RECORD>",
            b"</RECORD>",
            b"<DATA>",
            b"</DATA>",
            b"<TXID>",
            b"\\0000;",
            b"&#x0;",
            b"&a;",
            b"]]>",
            b'encoding="WTF-8"',
            b"<!DOCTYPE a>",
            b"|",
            b"-",
        ),
        openers=(b"<RECORD>", b"<A>"),
        suite_inputs=4_000,
    ),
    Decoder(
        name="edits-json",
        covers=("journalmgr.edits.json:loads",),
        decode=_read_json,
        seeds=lambda: [edits_json.dumps(op).encode() for op in _operations(-66)],
        tokens=JSON_TOKENS,
        openers=JSON_OPENERS,
    ),
    Decoder(
        name="name-node-image",
        covers=("journalmgr.namenode.images.format:decode",),
        decode=_read_image,
        seeds=_images,
        refusals=(ImageError,),
        sealed=_sealed_image,
        suite_inputs=4_000,
    ),
    Decoder(
        name="name-node-version",
        covers=("journalmgr.files.version:decode_version", "bookkeeper.config.properties:parse_properties"),
        decode=lambda data: decode_version(data, "VERSION"),
        seeds=lambda: [encode_version(NAMESPACE)],
        tokens=(b"=", b":", b"\\", b"\\u", b"\\ud800", b"\n", b"#", b"cTime", b"namespaceID"),
    ),
    Decoder(
        name="name-node-seen-txid",
        covers=("journalmgr.files.version:decode_seen_txid",),
        decode=lambda data: decode_seen_txid(data, "seen_txid"),
        seeds=lambda: [encode_seen_txid(17)],
        result=int,
    ),
    Decoder(
        name="name-node-file-names",
        covers=("journalmgr.edits.file:parse_name", "journalmgr.namenode.images.checkpoints:txid_of_image"),
        decode=_names,
        seeds=lambda: [b"edits_1-20", b"edits_inprogress_7", b"image_0000000000000000017"],
    ),
    Decoder(
        name="webhdfs-target",
        covers=("journalmgr.namenode.http.messages:Parameters.text",),
        decode=_target,
        seeds=lambda: [b"/webhdfs/v1/a%20b?op=CREATE&overwrite=true&user.name=ann cb20a92a2c2f4305a8382a01c6e73e18:58"],
        tokens=(b"%", b"%ff", b"%00", b"&", b"=", b"?", b";", b"op=", b"%25", b"+"),
    ),
    Decoder(
        name="webhdfs-acl",
        covers=("journalmgr.namenode.http.acl:parse",),
        decode=lambda data: acl.parse(text(data)),
        seeds=lambda: [b"user::rwx,user:carla:rw-,group::r-x,mask::rwx,other::---,default:group::r-x"],
        refusals=(ValueError,),
        tokens=(b"default:", b"user:", b":", b",", b"rwx", b"mask"),
    ),
    Decoder(
        name="webhdfs-attribute",
        covers=("journalmgr.namenode.http.answers:decoded",),
        decode=lambda data: answers.decoded(text(data)),
        seeds=lambda: [b'"text"', b"0x00ff", b"0sAAEC", b"plain"],
        refusals=(ValueError,),
        result=bytes,
    ),
    Decoder(
        name="name-node-address",
        covers=("journalmgr.namenode.fs_client:parse_address",),
        decode=lambda data: parse_address(text(data)),
        seeds=lambda: [b"host:8020", b"[::1]:8020"],
        result=tuple[str, int],
    ),
    Decoder(
        name="journal-uri",
        covers=("journalmgr.uri:parse_uri",),
        decode=lambda data: parse_uri(text(data)),
        seeds=lambda: [b"bookkeeper://zk1:2181;zk2:2181/journal%20a", b"file:///var/lib/edits"],
        tokens=(b"%", b"%ff", b"://", b"/", b";", b",", b"?", b"#"),
    ),
)
