"""How the composed fields of operations are written, those of journalmgr/FORMATS.md 5.4, and what they say. Pure.

Numbers and strings, and what readers and writers promise, are in journalmgr.edits.primitives.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from bookkeeper.errors import InvalidArgument
from bookkeeper.texts import proto_text
from journalmgr.edits.primitives import (
    Codec,
    Read,
    Write,
    pack_fixed,
    read_str16,
    read_text,
    read_vint,
    read_vlong,
    take,
    write_str16,
    write_text,
    write_vint,
    write_vlong,
)
from journalmgr.errors import EditsCorrupt
from journalmgr.proto import edits_pb2

BLOCKS_MAX = 64 * 1024 * 1024
CONCAT_SOURCES_MAX = 1024 * 1024
CLIENT_ID_SIZE = 16


class Block(NamedTuple):
    """A block of a file. size: bytes. generation_stamp: rises with every rewrite."""

    block_id: int
    size: int
    generation_stamp: int


class Permission(NamedTuple):
    """Owner, group and mode (nine bits rwxrwxrwx, and 0o1000 for sticky)."""

    user: str
    group: str
    mode: int


class AclEntry(NamedTuple):
    """One entry of an access control list. type, scope, permission: numbers of journalmgr/FORMATS.md 5.4."""

    type: int
    scope: int
    permission: int
    name: str | None


class XAttr(NamedTuple):
    """An extended attribute. namespace: 0 user, 1 trusted, 2 security, 3 system, 4 raw. value: None is not empty."""

    namespace: int
    name: str
    value: bytes | None


class RpcIds(NamedTuple):
    """Which call of which client it was, for retries. Operations of the server itself have neither."""

    client_id: bytes = b""
    call_id: int = -2


NO_RPC = RpcIds()


class TokenIdentifier(NamedTuple):
    """A delegation token; dates in milliseconds."""

    version: int
    owner: str
    renewer: str
    real_user: str
    issue_date: int
    max_date: int
    sequence_number: int
    master_key_id: int


class DelegationKey(NamedTuple):
    """A key that tokens are signed with. key: None where there is none."""

    key_id: int
    expiry_date: int
    key: bytes | None


class XAttrs(NamedTuple):
    """Attributes and the path they are of (None where the operation names it elsewhere)."""

    src: str | None
    attributes: tuple[XAttr, ...]


class Acl(NamedTuple):
    """A list and the path it is of."""

    src: str
    entries: tuple[AclEntry, ...]


class CacheDirective(NamedTuple):
    """What is to be cached; None: not given. expiry_ms: as stored, absolute."""

    id: int
    path: str | None = None
    replication: int | None = None
    pool: str | None = None
    expiry_ms: int | None = None


class CachePool(NamedTuple):
    """A pool of cache directives; None: not given."""

    name: str
    owner: str | None = None
    group: str | None = None
    mode: int | None = None
    limit: int | None = None
    max_relative_expiry_ms: int | None = None


_U16 = struct.Struct(">H")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_BLOCK = struct.Struct(">qqq")
_CLIENT_AND_CALL_ID = struct.Struct(">16si")
_WITH_CLIENT_ID = CLIENT_ID_SIZE.to_bytes(2, "big")

# Half the time of `RpcIds(...)`, which is a function in Python that calls this.
_new_rpc_ids: Callable[[tuple[bytes, int]], RpcIds] = functools.partial(tuple.__new__, RpcIds)
_new_permission: Callable[[tuple[str, str, int]], Permission] = functools.partial(tuple.__new__, Permission)
_I64_BEYOND = 1 << 63


def read_permission(data: bytes, position: int) -> tuple[Permission, int]:
    """User, group, mode."""
    user, position = read_text(data, position)
    group, position = read_text(data, position)
    return _new_permission((user, group, _I16.unpack_from(data, position)[0])), position + 2


def write_permission(value: Permission) -> bytes:
    """User, group, mode."""
    return write_text(value.user) + write_text(value.group) + pack_fixed(_I16, value.mode, "mode")


PERMISSION = Codec("permission", read=read_permission, write=write_permission)


def read_rpc(data: bytes, position: int) -> tuple[RpcIds, int]:
    """Client id and call id."""
    if data[position : position + 2] == _WITH_CLIENT_ID:
        return _new_rpc_ids(_CLIENT_AND_CALL_ID.unpack_from(data, position + 2)), position + 22
    client_id, position = take(data, position + 2, _U16.unpack_from(data, position)[0])
    if client_id:
        raise EditsCorrupt(f"a client id of {len(client_id)} bytes; it has {CLIENT_ID_SIZE} or none")
    return RpcIds(client_id, _I32.unpack_from(data, position)[0]), position + 4


def write_rpc(value: RpcIds) -> bytes:
    """Client id and call id."""
    if len(value.client_id) not in (0, CLIENT_ID_SIZE):
        raise InvalidArgument(f"a client id of {len(value.client_id)} bytes; it has {CLIENT_ID_SIZE} or none")
    return _U16.pack(len(value.client_id)) + value.client_id + pack_fixed(_I32, value.call_id, "call id")


RPC = Codec("rpc", read=read_rpc, write=write_rpc)


def read_blocks(data: bytes, position: int) -> tuple[tuple[Block, ...], int]:
    """A count and whole blocks."""
    count = _I32.unpack_from(data, position)[0]
    if not 0 <= count <= BLOCKS_MAX:
        raise EditsCorrupt(f"{count} blocks; 0 to {BLOCKS_MAX} are possible")
    if not count:
        return (), position + 4
    raw, position = take(data, position + 4, count * _BLOCK.size)
    blocks = tuple(map(Block._make, _BLOCK.iter_unpack(raw)))
    for block in blocks:
        if block.size < 0:
            raise EditsCorrupt(f"a block of {block.size} bytes")
    return blocks, position


def write_blocks(value: Sequence[Block]) -> bytes:
    """A count and whole blocks."""
    for block in value:
        if block.size < 0:
            raise InvalidArgument(f"a block of {block.size} bytes; nothing could read it")
    return pack_fixed(_I32, len(value), "number of blocks") + b"".join(
        [pack_fixed(_BLOCK, block, "block") for block in value]
    )


BLOCKS = Codec("blocks", read=read_blocks, write=write_blocks)


def read_compact_blocks(data: bytes, position: int) -> tuple[tuple[Block, ...], int]:
    """Blocks whose size and stamp are differences to the block before."""
    count, position = read_vint(data, position)
    if not 0 <= count <= BLOCKS_MAX:
        raise EditsCorrupt(f"{count} blocks; 0 to {BLOCKS_MAX} are possible")
    blocks: list[Block] = []
    size = stamp = 0
    for _ in range(count):
        block_id = _I64.unpack_from(data, position)[0]
        size_delta, position = read_vlong(data, position + 8)
        stamp_delta, position = read_vlong(data, position)
        size += size_delta
        stamp += stamp_delta
        if not (-_I64_BEYOND <= size < _I64_BEYOND and -_I64_BEYOND <= stamp < _I64_BEYOND):
            raise EditsCorrupt(f"a block of size {size} and generation stamp {stamp}: more than 64 bits")
        blocks.append(Block(block_id, size, stamp))
    return tuple(blocks), position


def write_compact_blocks(value: Sequence[Block]) -> bytes:
    """Blocks whose size and stamp are differences to the block before."""
    parts = [write_vlong(len(value))]
    size = stamp = 0
    for block in value:
        parts += [pack_fixed(_I64, block.block_id, "block id"), write_vlong(block.size - size)]
        parts.append(write_vlong(block.generation_stamp - stamp))
        size, stamp = block.size, block.generation_stamp
    return b"".join(parts)


COMPACT_BLOCKS = Codec("compact blocks", read=read_compact_blocks, write=write_compact_blocks)


def _between(fewest: int, most: int) -> Codec:
    """Compact blocks of which there are at least and at most so many."""

    def read(data: bytes, position: int) -> tuple[tuple[Block, ...], int]:
        blocks, position = read_compact_blocks(data, position)
        if not fewest <= len(blocks) <= most:
            raise EditsCorrupt(f"{len(blocks)} blocks; {fewest} or {most} are possible")
        return blocks, position

    def write(value: Sequence[Block]) -> bytes:
        if not fewest <= len(value) <= most:
            raise InvalidArgument(f"{len(value)} blocks; {fewest} or {most} are possible")
        return write_compact_blocks(value)

    return Codec(f"{fewest} or {most} blocks", read=read, write=write)


LAST_BLOCKS = _between(1, 2)
"""The last block of a file, and before it the one that was the last."""

BLOCK_IF_CUT = _between(0, 1)
"""The block that a truncation cuts itself, if it cuts one."""

_ACL_PERMISSION, _ACL_TYPE_SHIFT, _ACL_SCOPE_SHIFT, _ACL_HAS_NAME = 0b111, 3, 5, 1 << 6


def read_acl(data: bytes, position: int) -> tuple[tuple[AclEntry, ...], int]:
    """A count and entries of one byte each, with a name where a bit says so."""
    count = _I32.unpack_from(data, position)[0]
    position += 4
    if count < 0:
        raise EditsCorrupt(f"{count} entries of an access control list")
    if not count:
        return (), position
    if count > len(data) - position:  # at least a byte each; the data may be the beginning of a record
        raise IndexError(f"{count} entries of an access control list in {len(data) - position} bytes")
    entries: list[AclEntry] = []
    for _ in range(count):
        bits, name = data[position], None
        position += 1
        if bits & _ACL_HAS_NAME:
            name, position = read_str16(data, position)
        entries.append(
            AclEntry(bits >> _ACL_TYPE_SHIFT & 3, bits >> _ACL_SCOPE_SHIFT & 1, bits & _ACL_PERMISSION, name)
        )
    return tuple(entries), position


def write_acl(value: Sequence[AclEntry]) -> bytes:
    """A count and entries."""
    parts = [pack_fixed(_I32, len(value), "number of entries")]
    for entry in value:
        if not (0 <= entry.permission <= 7 and 0 <= entry.type <= 3 and 0 <= entry.scope <= 1):
            raise InvalidArgument(f"{entry} is no entry of an access control list")
        bits = entry.permission | entry.type << _ACL_TYPE_SHIFT | entry.scope << _ACL_SCOPE_SHIFT
        if entry.name is None:
            parts.append(bytes([bits]))
        else:
            parts += [bytes([bits | _ACL_HAS_NAME]), write_str16(entry.name)]
    return b"".join(parts)


ACL_BITS = Codec("acl", read=read_acl, write=write_acl)


def _read_delimited(data: bytes, position: int, message: Message) -> int:
    size = shift = 0
    while True:
        byte = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise EditsCorrupt("the length of a message goes on for more than 5 bytes")
    raw, position = take(data, position, size)
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise EditsCorrupt(f"{message.DESCRIPTOR.name} cannot be parsed: {error}") from error
    if not message.IsInitialized():  # the parser does not ask
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]  # not in the stubs
        raise EditsCorrupt(f"{message.DESCRIPTOR.name} cannot be parsed: it lacks {missing}")
    return position


def _write_delimited(message: Message) -> bytes:
    raw = message.SerializeToString()
    size, prefix = len(raw), bytearray()
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + raw


_NOTHING = XAttrs(None, ())


def read_xattrs(data: bytes, position: int) -> tuple[XAttrs, int]:
    """An XAttrEditLogProto."""
    if data[position] == 0:
        return _NOTHING, position + 1
    message = edits_pb2.XAttrEditLogProto()
    position = _read_delimited(data, position, message)
    try:
        attributes = tuple(
            XAttr(int(item.namespace), proto_text(item.name), item.value if item.HasField("value") else None)
            for item in message.xAttrs
        )
        return XAttrs(proto_text(message.src) if message.HasField("src") else None, attributes), position
    except UnicodeError as error:
        raise EditsCorrupt(f"an attribute whose name or path is not UTF-8: {error}") from error


def write_xattrs(value: XAttrs) -> bytes:
    """An XAttrEditLogProto."""
    message = edits_pb2.XAttrEditLogProto()
    try:
        if value.src is not None:
            message.src = value.src
        for attribute in value.attributes:
            item = message.xAttrs.add()
            item.namespace = attribute.namespace  # type: ignore[assignment]  # checked by protobuf
            item.name = attribute.name
            if attribute.value is not None:
                item.value = attribute.value
    except ValueError as error:
        raise InvalidArgument(f"{value} cannot be written: {error}") from error
    return _write_delimited(message)


XATTRS = Codec("xattrs", read=read_xattrs, write=write_xattrs)


def read_acl_message(data: bytes, position: int) -> tuple[Acl, int]:
    """An AclEditLogProto."""
    message = edits_pb2.AclEditLogProto()
    position = _read_delimited(data, position, message)
    try:
        entries = tuple(
            AclEntry(
                int(item.type),
                int(item.scope),
                int(item.permissions),
                proto_text(item.name) if item.HasField("name") else None,
            )
            for item in message.entries
        )
        return Acl(proto_text(message.src), entries), position
    except UnicodeError as error:
        raise EditsCorrupt(f"an access control list whose path or names are not UTF-8: {error}") from error


def write_acl_message(value: Acl) -> bytes:
    """An AclEditLogProto."""
    message = edits_pb2.AclEditLogProto()
    try:
        message.src = value.src
        for entry in value.entries:
            item = message.entries.add()
            item.type, item.scope, item.permissions = entry.type, entry.scope, entry.permission  # type: ignore[assignment]
            if entry.name is not None:
                item.name = entry.name
    except ValueError as error:
        raise InvalidArgument(f"{value} cannot be written: {error}") from error
    return _write_delimited(message)


ACL_MESSAGE = Codec("acl message", read=read_acl_message, write=write_acl_message)


def read_options(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Options of a rename: 0 none, 1 overwrite, 2 to trash."""
    count = _I32.unpack_from(data, position)[0]
    if count < 0:
        raise EditsCorrupt(f"{count} options of a rename")
    raw, position = take(data, position + 4, count)
    return tuple(raw), position


def write_options(value: Sequence[int]) -> bytes:
    """Options of a rename."""
    try:
        return pack_fixed(_I32, len(value), "number of options") + bytes(value)
    except ValueError as error:
        raise InvalidArgument(f"{value}: {error}") from error


RENAME_OPTIONS = Codec("rename options", read=read_options, write=write_options)


def read_strings(data: bytes, position: int) -> tuple[tuple[str, ...], int]:
    """A count and strings."""
    count = _I32.unpack_from(data, position)[0]
    if not 0 <= count <= CONCAT_SOURCES_MAX:
        raise EditsCorrupt(f"{count} sources to concatenate; 0 to {CONCAT_SOURCES_MAX} are possible")
    position += 4
    strings = []
    for _ in range(count):
        string, position = read_str16(data, position)
        strings.append(string)
    return tuple(strings), position


def write_strings(value: Sequence[str]) -> bytes:
    """A count and strings."""
    return pack_fixed(_I32, len(value), "number of strings") + b"".join(map(write_str16, value))


STRINGS = Codec("strings", read=read_strings, write=write_strings)


def read_token(data: bytes, position: int) -> tuple[TokenIdentifier, int]:
    """A delegation token."""
    version = data[position]
    if version != 0:
        raise EditsCorrupt(f"a delegation token of version {version}; only 0 is known")
    owner, position = read_text(data, position + 1)
    renewer, position = read_text(data, position)
    real_user, position = read_text(data, position)
    numbers = []
    for read in (read_vlong, read_vlong, read_vint, read_vint):
        number, position = read(data, position)
        numbers.append(number)
    return TokenIdentifier(version, owner, renewer, real_user, *numbers), position


def write_token(value: TokenIdentifier) -> bytes:
    """A delegation token."""
    if value.version != 0:
        raise InvalidArgument(f"a delegation token of version {value.version}; only 0 is known")
    strings = b"".join(map(write_text, (value.owner, value.renewer, value.real_user)))
    dates = write_vlong(value.issue_date) + write_vlong(value.max_date)
    return (
        bytes([value.version]) + strings + dates + write_vint(value.sequence_number) + write_vint(value.master_key_id)
    )


TOKEN = Codec("token", read=read_token, write=write_token)


def read_delegation_key(data: bytes, position: int) -> tuple[DelegationKey, int]:
    """Key id, expiry, key."""
    key_id, position = read_vint(data, position)
    expiry_date, position = read_vlong(data, position)
    size, position = read_vint(data, position)
    if size < -1:
        raise EditsCorrupt(f"a key of {size} bytes")
    if size < 0:
        return DelegationKey(key_id, expiry_date, None), position
    key, position = take(data, position, size)
    return DelegationKey(key_id, expiry_date, key), position


def write_delegation_key(value: DelegationKey) -> bytes:
    """Key id, expiry, key."""
    key = write_vlong(-1) if value.key is None else write_vlong(len(value.key)) + value.key
    return write_vint(value.key_id) + write_vlong(value.expiry_date) + key


DELEGATION_KEY = Codec("delegation key", read=read_delegation_key, write=write_delegation_key)


def _flagged(data: bytes, position: int, readers: Sequence[Read], what: str) -> tuple[list[Any], int]:
    """Values of which bits say whether they are there; the n-th reader belongs to the n-th bit that is used."""
    flags = _I32.unpack_from(data, position)[0]
    position += 4
    if flags & ~((1 << len(readers)) - 1):
        raise EditsCorrupt(f"unknown flags {flags:#x} of a {what}")
    values: list[Any] = []
    for bit, read in enumerate(readers):
        value = None
        if flags & 1 << bit:
            value, position = read(data, position)
        values.append(value)
    return values, position


def _write_flagged(values: Sequence[Any], writers: Sequence[Write]) -> bytes:
    flags, parts = 0, []
    for bit, (value, write) in enumerate(zip(values, writers, strict=True)):
        if value is not None:
            flags |= 1 << bit
            parts.append(write(value))
    return _I32.pack(flags) + b"".join(parts)


def _reads(layout: struct.Struct) -> Read:
    return lambda data, position: (layout.unpack_from(data, position)[0], position + layout.size)


def _writes(layout: struct.Struct, what: str) -> Write:
    return lambda value: pack_fixed(layout, value, what)


_DIRECTIVE_READS: tuple[Read, ...] = (read_str16, _reads(_I16), read_str16, _reads(_I64))
_DIRECTIVE_WRITES: tuple[Write, ...] = (write_str16, _writes(_I16, "replication"), write_str16, _writes(_I64, "expiry"))
_POOL_READS: tuple[Read, ...] = (read_str16, read_str16, _reads(_I16), _reads(_I64), _reads(_I64))
_POOL_WRITES: tuple[Write, ...] = (
    write_str16,
    write_str16,
    _writes(_I16, "mode"),
    _writes(_I64, "limit"),
    _writes(_I64, "expiry"),
)


def read_cache_directive(data: bytes, position: int) -> tuple[CacheDirective, int]:
    """Id, then what the flags say."""
    directive_id = _I64.unpack_from(data, position)[0]
    values, position = _flagged(data, position + 8, _DIRECTIVE_READS, "cache directive")
    return CacheDirective(directive_id, *values), position


def write_cache_directive(value: CacheDirective) -> bytes:
    """Id, then what the flags say."""
    return pack_fixed(_I64, value.id, "id") + _write_flagged(value[1:], _DIRECTIVE_WRITES)


CACHE_DIRECTIVE = Codec("cache directive", read=read_cache_directive, write=write_cache_directive)


def read_cache_pool(data: bytes, position: int) -> tuple[CachePool, int]:
    """Name, then what the flags say."""
    name, position = read_str16(data, position)
    values, position = _flagged(data, position, _POOL_READS, "cache pool")
    return CachePool(name, *values), position


def write_cache_pool(value: CachePool) -> bytes:
    """Name, then what the flags say."""
    return write_str16(value.name) + _write_flagged(value[1:], _POOL_WRITES)


CACHE_POOL = Codec("cache pool", read=read_cache_pool, write=write_cache_pool)
