"""Operations of the edit log for tests: one of each with no field at its default, and random ones."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from journalmgr.edits.codec import encode_body
from journalmgr.edits.fields import (
    ACL_BITS,
    ACL_MESSAGE,
    BLOCK_IF_CUT,
    BLOCKS,
    CACHE_DIRECTIVE,
    CACHE_POOL,
    COMPACT_BLOCKS,
    DELEGATION_KEY,
    LAST_BLOCKS,
    PERMISSION,
    RENAME_OPTIONS,
    RPC,
    STRINGS,
    TOKEN,
    XATTRS,
    Acl,
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    Permission,
    RpcIds,
    TokenIdentifier,
    XAttr,
    XAttrs,
)
from journalmgr.edits.ops import ALWAYS, OPS, Op
from journalmgr.edits.primitives import BOOL, I16, I32, I64, STR16, TEXT, U8, VLONG

LAYOUTS_WITH_LENGTH = tuple(range(-56, -68, -1))
LAYOUTS_WITHOUT_LENGTH = (-40, -42, -43, -45, -46, -47, -48, -49, -50, -51, -52, -53, -55)

RPC_IDS = RpcIds(bytes.fromhex("cb20a92a2c2f4305a8382a01c6e73e18"), 58)

SAMPLE_OF_CODEC: dict[str, Any] = {
    U8.name: 7,
    BOOL.name: True,
    I16.name: -3,
    I32.name: 2,
    I64.name: -(1 << 40) - 5,
    STR16.name: "/a b/ä\u20ac\U0001f600\\x",
    TEXT.name: "text",
    VLONG.name: 300,
    BLOCKS.name: (Block(1073741825, 512, 1001), Block(-7, 0, 1002)),
    COMPACT_BLOCKS.name: (Block(1073741825, 512, 1001), Block(-7, 0, 1002)),
    LAST_BLOCKS.name: (Block(1073741825, 512, 1001), Block(1073741826, 0, 1002)),
    BLOCK_IF_CUT.name: (Block(1073741825, 512, 1001),),
    PERMISSION.name: Permission("root", "supergroup", 0o1755),
    RPC.name: RPC_IDS,
    ACL_BITS.name: (AclEntry(0, 0, 6, None), AclEntry(1, 1, 7, "staff"), AclEntry(3, 0, 0, None)),
    ACL_MESSAGE.name: Acl("/acl", (AclEntry(0, 0, 6, "user"), AclEntry(2, 1, 3, None))),
    XATTRS.name: XAttrs("/attributes", (XAttr(0, "a1", b"123"), XAttr(4, "a2", None), XAttr(3, "a3", b""))),
    RENAME_OPTIONS.name: (1,),
    STRINGS.name: ("/file_concat_0", "/file_concat_1"),
    TOKEN.name: TokenIdentifier(0, "owner", "renewer", "real", 1421135800328, 1421135800999, 17, 300),
    DELEGATION_KEY.name: DelegationKey(2, 1421826999210, bytes.fromhex("833c25a6fb2b0a6f")),
    CACHE_DIRECTIVE.name: CacheDirective(9, "/path", 2, "pool", 2305844430349507141),
    CACHE_POOL.name: CachePool("pool1", "shv", "users", 0o755, 99, 2305843009213693951),
}


def sample(kind: type[Op], layout_version: int = -67) -> Op:
    """An operation with no field at its default, besides those that the layout does not have."""
    op = kind(txid=41)
    for position, spec in enumerate(kind.layout):
        if spec.since != ALWAYS and layout_version > spec.since:
            continue
        value = SAMPLE_OF_CODEC[spec.codec.name]
        if spec.codec is I64:
            value += position  # so that neighbours cannot be taken for each other
        elif spec.codec is STR16:
            value += str(position)
        setattr(op, spec.name, value)
    return op


def samples(layout_version: int) -> list[Op]:
    """One of each operation."""
    return [sample(kind, layout_version) for kind in OPS.values()]


def record_without_length(op: Op, layout_version: int) -> bytes:
    """As the layouts before -56 were written."""
    head = struct.pack(">Bq", op.opcode, op.txid) + encode_body(op, layout_version)
    return head + struct.pack(">I", crc32(head))


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_i64 = _integers(64)
_text = st.text(max_size=12)  # hypothesis leaves surrogates out
_units = st.text(st.characters(), max_size=12)
_blocks = st.lists(st.builds(Block, _i64, st.integers(0, (1 << 63) - 1), _i64), max_size=3).map(tuple)
# Sizes and stamps go as differences, which have 64 bits themselves.
_near = st.integers(-(1 << 62), (1 << 62) - 1)
_near_block = st.builds(Block, _i64, _near, _near)
_entries = st.lists(
    st.builds(AclEntry, st.integers(0, 3), st.integers(0, 1), st.integers(0, 7), st.none() | _text), max_size=3
).map(tuple)
_attributes = st.lists(st.builds(XAttr, st.integers(0, 4), _text, st.none() | st.binary(max_size=5)), max_size=3).map(
    tuple
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    U8.name: st.integers(0, 255),
    BOOL.name: st.booleans(),
    I16.name: _integers(16),
    I32.name: _integers(32),
    I64.name: _i64,
    STR16.name: _units,
    TEXT.name: _text,
    VLONG.name: _i64,
    BLOCKS.name: _blocks,
    COMPACT_BLOCKS.name: st.lists(_near_block, max_size=3).map(tuple),
    LAST_BLOCKS.name: st.lists(_near_block, min_size=1, max_size=2).map(tuple),
    BLOCK_IF_CUT.name: st.lists(_near_block, max_size=1).map(tuple),
    PERMISSION.name: st.builds(Permission, _text, _text, st.integers(0, 0o1777)),
    RPC.name: st.builds(RpcIds, st.just(b"") | st.binary(min_size=16, max_size=16), _integers(32)),
    ACL_BITS.name: _entries,
    ACL_MESSAGE.name: st.builds(Acl, _text, _entries),
    XATTRS.name: st.builds(XAttrs, st.none() | _text, _attributes),
    RENAME_OPTIONS.name: st.lists(st.integers(0, 2), max_size=3).map(tuple),
    STRINGS.name: st.lists(_units, max_size=3).map(tuple),
    TOKEN.name: st.builds(TokenIdentifier, st.just(0), _text, _text, _text, _i64, _i64, _integers(32), _integers(32)),
    DELEGATION_KEY.name: st.builds(DelegationKey, _integers(32), _i64, st.none() | st.binary(max_size=9)),
    CACHE_DIRECTIVE.name: st.builds(
        CacheDirective, _i64, st.none() | _units, st.none() | _integers(16), st.none() | _units, st.none() | _i64
    ),
    CACHE_POOL.name: st.builds(
        CachePool,
        _units,
        st.none() | _units,
        st.none() | _units,
        st.none() | st.integers(0, 0o1777),
        st.none() | _i64,
        st.none() | _i64,
    ),
}
"""Any value of each kind of field."""


@st.composite
def operations(draw: st.DrawFn, layout_version: int = -63) -> Op:
    """Any operation that the layout has, with any values."""
    kind = draw(st.sampled_from([OPS[opcode] for opcode in sorted(OPS)]))
    op = kind(txid=draw(st.integers(0, (1 << 63) - 1)))
    for spec in kind.layout:
        if spec.since == ALWAYS or layout_version <= spec.since:
            setattr(op, spec.name, draw(VALUES[spec.codec.name]))
    assert {field.name for field in fields(op)} == {"txid", *(spec.name for spec in kind.layout)}
    return op
