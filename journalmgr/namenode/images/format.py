"""A namespace as bytes and back: what a checkpoint holds; and its fingerprint. Pure.

    image    "BKNNIMG1" | frame | frame | ...                                 big-endian throughout
    frame    kind u8 | payload size u32 | payload | crc u32                   at most 1 MiB

    kinds, in this order; all but HEAD and END may span several frames, and an empty section has none:
    1 HEAD        version u16, layout i32, txid i64, namespace id i32, seven counts u64, cluster id, block pool id
    2 COUNTERS    one item
    3 INODES      parents first, children by name
    4 KEYS  5 TOKENS  6 POOLS  7 DIRECTIVES   by id, name or value
    8 RETRIES     the oldest first
    9 END         number of frames before it u64, SHA-256 of all bytes before it

    section  items one after the other, each: size u32 | bytes; an item may span frames
    text     size u32 | UTF-8, surrogates that stand alone included

crc: CRC-32 of the frame's bytes before it, seeded with the crc of the frame before (the first with that of the magic
bytes): a frame that is damaged, missing, twice or from elsewhere is found where it is.

Ours alone: HDFS keeps its own kind of image. Equal namespaces give equal bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

from bookkeeper.errors import InvalidArgument, again
from journalmgr.edits.fields import (
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    DelegationKey,
    Permission,
    TokenIdentifier,
    XAttr,
)
from journalmgr.model import HADOOP_2_7, NamespaceInfo
from journalmgr.namenode.errors import ImageCorrupt, ImageUnsupported
from journalmgr.namenode.namespace.tree import (
    ROOT_INODE_ID,
    Directory,
    File,
    Inode,
    Lease,
    Namespace,
    Quota,
    Symlink,
    subtree,
)

MAGIC = b"BKNNIMG1"
VERSION = 1
PIECE_BYTES_MAX = 1024 * 1024
"""Bytes of one frame, and of one piece that `encode` gives."""

HASHED_BYTES = 32 * 1024
"""Bytes that one step of `fingerprint_steps` hashes: about 300 inodes."""

HEAD, COUNTERS, INODES, KEYS, TOKENS, POOLS, DIRECTIVES, RETRIES, END = range(1, 10)
_SECTIONS = (COUNTERS, INODES, KEYS, TOKENS, POOLS, DIRECTIVES, RETRIES)
_NAMES = ("HEAD", "COUNTERS", "INODES", "KEYS", "TOKENS", "POOLS", "DIRECTIVES", "RETRIES", "END")

_FRAME = struct.Struct(">BI")
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">Hiqi7Q")
_END = struct.Struct(">Q32s")
_COUNTERS = struct.Struct(">7q?q")
_INODE = struct.Struct(">Bqqqqh")  # type, id, parent, mtime, atime, mode
_FILE = struct.Struct(">hqBI")  # replication, block size, storage policy, number of blocks
_BLOCK = struct.Struct(">qqq")
_TOKEN = struct.Struct(">Bqqqqq")  # version, issue date, max date, sequence number, key id, expiry
_KEY = struct.Struct(">qq")
_DIRECTIVE = struct.Struct(">q")
_RETRY = struct.Struct(">iq")
_I64 = struct.Struct(">q")
_U8 = struct.Struct(">B")
_TYPE_SPACE = struct.Struct(">iq")

_DIRECTORY_TYPE, _FILE_TYPE, _SYMLINK_TYPE = 1, 2, 3
_PAYLOAD_MAX = PIECE_BYTES_MAX - _FRAME.size - _CRC.size

_Pack = Callable[..., bytes]


class Image(NamedTuple):
    """What an image holds. layout_version: of the journal at that time. The rest: whose namespace it is."""

    namespace: Namespace
    layout_version: int
    namespace_id: int
    cluster_id: str
    block_pool_id: str


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode(namespace: Namespace, info: NamespaceInfo, layout_version: int = HADOOP_2_7) -> Iterator[bytes]:
    """The image in pieces of at most 1 MiB. Raises InvalidArgument if a transaction is applied between two of them."""
    txid = namespace.last_txid
    digest = hashlib.sha256(MAGIC)
    crc = crc32(MAGIC)
    frames = 0
    yield MAGIC
    for kind, payload in _frames(namespace, info, layout_version):
        if namespace.last_txid != txid:
            raise InvalidArgument(
                f"the namespace went on from txid {txid} to {namespace.last_txid} while its image was taken: "
                "hold transactions back until it is"
            )
        frame, crc = _frame(kind, payload, crc)
        digest.update(frame)
        frames += 1
        yield frame
    yield _frame(END, _END.pack(frames, digest.digest()), crc)[0]


def fingerprint_steps(namespace: Namespace) -> Generator[None, None, str | None]:
    """SHA-256 over all that the transactions made, in hex: equal for equal namespaces at the same txid.

    In steps of HASHED_BYTES. None if a transaction is applied between two of them.
    """
    txid = namespace.last_txid
    digest = hashlib.sha256()
    for kind in _SECTIONS:
        buffer = bytearray([kind])
        for item in _items(kind, namespace):
            buffer += _SIZE.pack(len(item))
            buffer += item
            if len(buffer) >= HASHED_BYTES:
                digest.update(buffer)
                buffer.clear()
                yield
                if namespace.last_txid != txid:
                    return None
        digest.update(buffer)
    return digest.hexdigest()


def fingerprint(namespace: Namespace) -> str:
    """The same in one step."""
    steps = fingerprint_steps(namespace)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return str(end.value)


def _frame(kind: int, payload: bytes, crc: int) -> tuple[bytes, int]:
    head = _FRAME.pack(kind, len(payload))
    crc = crc32(payload, crc32(head, crc))
    return b"".join((head, payload, _CRC.pack(crc))), crc


def _frames(namespace: Namespace, info: NamespaceInfo, layout_version: int) -> Iterator[tuple[int, bytes]]:
    counts = _counts(namespace)
    head = _HEAD.pack(VERSION, layout_version, namespace.last_txid, info.namespace_id, *counts)
    yield HEAD, head + _text(info.cluster_id) + _text(info.block_pool_id)
    for kind in _SECTIONS:
        for piece in _pieces(_items(kind, namespace)):
            yield kind, piece


def _counts(namespace: Namespace) -> tuple[int, ...]:
    return (
        1,
        len(namespace.inodes),
        len(namespace.delegation_keys),
        len(namespace.tokens),
        len(namespace.cache_pools),
        len(namespace.cache_directives),
        len(namespace.retries),
    )


def _pieces(items: Iterable[bytes]) -> Iterator[bytes]:
    """The items with their sizes, cut into payloads of frames wherever they are full."""
    buffer = bytearray()
    for item in items:
        buffer += _SIZE.pack(len(item))
        buffer += item
        while len(buffer) >= _PAYLOAD_MAX:
            yield bytes(buffer[:_PAYLOAD_MAX])
            del buffer[:_PAYLOAD_MAX]
    if buffer:
        yield bytes(buffer)


def _items(kind: int, namespace: Namespace) -> Iterator[bytes]:
    if kind == COUNTERS:
        upgrade = namespace.rolling_upgrade_start
        yield _COUNTERS.pack(
            namespace.last_txid,
            namespace.last_inode_id,
            namespace.generation_stamp_v1,
            namespace.generation_stamp_v2,
            namespace.last_block_id,
            namespace.token_sequence_number,
            namespace.last_cache_directive_id,
            upgrade is not None,
            upgrade or 0,
        )
    elif kind == INODES:
        yield from map(_encode_inode, subtree(namespace.root))
    elif kind == KEYS:
        for _, key in sorted(namespace.delegation_keys.items()):
            yield _KEY.pack(key.key_id, key.expiry_date) + _optional(key.key, _bytes)
    elif kind == TOKENS:
        for token, expiry in sorted(namespace.tokens.items()):
            yield _TOKEN.pack(token.version, *token[4:], expiry) + b"".join(map(_text, token[1:4]))
    elif kind == POOLS:
        for _, pool in sorted(namespace.cache_pools.items()):
            yield _text(pool.name) + _optionals(pool[1:], (_text, _text, _I64.pack, _I64.pack, _I64.pack))
    elif kind == DIRECTIVES:
        for _, directive in sorted(namespace.cache_directives.items()):
            values = _optionals(directive[1:], (_text, _I64.pack, _text, _I64.pack))
            yield _DIRECTIVE.pack(directive.id) + values
    else:
        for (client_id, call_id), txid in namespace.retries.items():
            yield _RETRY.pack(call_id, txid) + _bytes(client_id)


def _encode_inode(inode: Inode) -> bytes:
    user, group, mode = inode.permission
    parent = 0 if inode.parent is None else inode.parent.id
    if isinstance(inode, File):
        kind = _FILE_TYPE
        blocks = inode.blocks
        own = _FILE.pack(inode.replication, inode.block_size, inode.storage_policy_id, len(blocks))
        if blocks:
            own += b"".join([_BLOCK.pack(*block) for block in blocks])
        own += b"\0" if inode.lease is None else b"\1" + _text(inode.lease[0]) + _text(inode.lease[1])
    elif isinstance(inode, Directory):
        kind = _DIRECTORY_TYPE
        own = _U8.pack(inode.storage_policy_id) + _optional(inode.quota, _quota)
    else:
        assert isinstance(inode, Symlink)
        kind = _SYMLINK_TYPE
        own = _text(inode.target)
    return b"".join(
        (
            _INODE.pack(kind, inode.id, parent, inode.mtime, inode.atime, mode),
            _text(inode.name),
            _text(user),
            _text(group),
            own,
            _xattrs(inode.xattrs) if inode.xattrs else _NONE,
            _acl(inode.acl) if inode.acl else _NONE,
        )
    )


def _quota(quota: Quota) -> bytes:
    types = sorted(quota.by_type.items())
    limits = _optionals((quota.names, quota.space), (_I64.pack, _I64.pack))
    return limits + _SIZE.pack(len(types)) + b"".join([_TYPE_SPACE.pack(*item) for item in types])


def _xattrs(attributes: Iterable[XAttr]) -> bytes:
    ordered = sorted(attributes, key=lambda attribute: (attribute.namespace, attribute.name))
    parts = [_SIZE.pack(len(ordered))]
    for attribute in ordered:
        parts += [_U8.pack(attribute.namespace), _text(attribute.name), _optional(attribute.value, _bytes)]
    return b"".join(parts)


def _acl(entries: tuple[AclEntry, ...]) -> bytes:
    parts = [_SIZE.pack(len(entries))]
    for entry in entries:
        parts += [bytes((entry.type, entry.scope, entry.permission)), _optional(entry.name, _text)]
    return b"".join(parts)


_NONE = _SIZE.pack(0)


def _bytes(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return _SIZE.pack(len(raw)) + raw


def _optional(value: Any, write: _Pack) -> bytes:
    return b"\0" if value is None else b"\1" + write(value)


def _optionals(values: Iterable[Any], writers: Iterable[_Pack]) -> bytes:
    return b"".join([_optional(value, write) for value, write in zip(values, writers, strict=True)])


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode(data: bytes, source: str = "image") -> Image:
    """A whole image. Raises ImageCorrupt, ImageUnsupported."""
    decoder = ImageDecoder(source)
    decoder.feed(data)
    return decoder.finish()


@dataclass(slots=True)
class _Item:
    """An item being taken apart."""

    data: bytes
    position: int = 0

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def one(self, layout: struct.Struct) -> Any:
        return self.take(layout)[0]

    def bytes(self) -> bytes:
        size = self.one(_SIZE)
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise ValueError(f"a field of {size} bytes where {len(self.data) - start} are left")
        return self.data[start : self.position]

    def text(self) -> str:
        return self.bytes().decode("utf-8", "surrogatepass")

    def integer(self) -> int:
        return int(self.one(_I64))

    def flag(self) -> bool:
        value = self.one(_U8)
        if value > 1:
            raise ValueError(f"{value} where 0 or 1 should be")
        return bool(value)

    def optional(self, read: Callable[[], Any]) -> Any:
        return read() if self.flag() else None

    def skip(self) -> None:
        self.position = len(self.data)

    def end(self) -> None:
        if self.position != len(self.data):
            raise ValueError(f"{len(self.data) - self.position} bytes too many")


class ImageDecoder:
    """Chunks of any size in, the namespace out. A fault ends it: every later call raises the same.

    Nothing of a frame is believed before its checksum is right; `finish` alone says that the image is whole.
    """

    def __init__(self, source: str = "image") -> None:
        self._source = source
        self._buffer = bytearray()
        self._offset = 0  # of the buffer's first byte
        self._fault: ImageCorrupt | ImageUnsupported | None = None
        self._kind = 0  # of the last frame; 0: only, if at all, the magic bytes were read
        self._crc = 0
        self._frames = 0
        self._digest = hashlib.sha256()
        self._partial = bytearray()  # items of a section, not complete yet
        self._counts: dict[int, int] = {}
        self._seen = dict.fromkeys(_SECTIONS, 0)
        self._image: Image | None = None
        self._namespace = Namespace()
        self._quotas: list[tuple[Directory, Quota]] = []
        self._last_inode_id = 0

    def feed(self, data: bytes) -> None:
        """Take some bytes. Raises ImageCorrupt, ImageUnsupported."""
        if self._fault is not None:
            raise again(self._fault)
        self._buffer += data
        try:
            while self._take():
                pass
        except (ImageCorrupt, ImageUnsupported) as error:
            self._fault = error
            raise

    def finish(self) -> Image:
        """No more bytes will come. Raises ImageCorrupt where the end is missing."""
        if self._fault is not None:
            raise again(self._fault)
        if self._kind != END or self._image is None:
            self._fault = self._corrupt(f"the image ends here, {len(self._buffer)} bytes into a frame; END is missing")
            raise again(self._fault)
        for directory, quota in self._quotas:
            self._namespace.set_quota(directory, quota)
        self._quotas.clear()
        self._namespace.last_inode_id = self._last_inode_id
        return self._image

    def _take(self) -> bool:
        buffer = self._buffer
        if self._offset == 0:
            return self._take_magic()
        if self._kind == END:
            if buffer:
                raise self._corrupt(f"{len(buffer)} bytes behind the end")
            return False
        if len(buffer) < _FRAME.size:
            return False
        kind, size = _FRAME.unpack_from(buffer)
        if not (HEAD <= kind <= END and size <= _PAYLOAD_MAX):
            raise self._corrupt(f"a frame of kind {kind} and {size} bytes; there is none of the kind, or of that size")
        whole = _FRAME.size + size + _CRC.size
        if len(buffer) < whole:
            return False
        computed = crc32(memoryview(buffer)[: whole - _CRC.size], self._crc)
        stored = _CRC.unpack_from(buffer, whole - _CRC.size)[0]
        if computed != stored:
            raise self._corrupt(f"frame {_NAMES[kind - 1]}: checksum {computed:#010x} computed, {stored:#010x} read")
        frame = bytes(buffer[:whole])
        payload = frame[_FRAME.size : -_CRC.size]
        self._take_frame(kind, payload)
        self._digest.update(frame)
        self._crc, self._kind = computed, kind
        self._frames += 1
        del buffer[:whole]
        self._offset += whole
        return True

    def _take_magic(self) -> bool:
        start = bytes(self._buffer[: len(MAGIC)])
        if not MAGIC.startswith(start):
            raise ImageUnsupported(
                f"it begins with {start!r}, not {MAGIC!r}: no image of this name node", offset=0, source=self._source
            )
        if len(start) < len(MAGIC):
            return False
        self._crc = crc32(MAGIC)
        self._digest.update(MAGIC)
        del self._buffer[: len(MAGIC)]
        self._offset = len(MAGIC)
        return True

    def _take_frame(self, kind: int, payload: bytes) -> None:
        if kind < self._kind or (kind == HEAD) != (self._kind == 0):
            raise self._corrupt(f"{_NAMES[kind - 1]} comes in the wrong place")
        if kind != self._kind and self._partial:
            raise self._corrupt(f"{_NAMES[kind - 1]} begins within an item of {_NAMES[self._kind - 1]}")
        try:
            if kind == HEAD:
                self._take_head(_Item(payload))
            elif kind == END:
                self._take_end(_Item(payload))
            else:
                self._take_items(kind, payload)
        except (ValueError, IndexError, struct.error, KeyError) as error:
            raise self._corrupt(f"{_NAMES[kind - 1]}: {error}") from error

    def _take_head(self, item: _Item) -> None:
        version = int.from_bytes(item.data[:2], "big")
        if version != VERSION:
            raise ImageUnsupported(
                f"an image of version {version}; only {VERSION} is known: read it with the release that wrote it",
                offset=self._offset,
                source=self._source,
            )
        _, layout_version, self._namespace.last_txid, namespace_id, *counts = item.take(_HEAD)
        self._counts = dict(zip(_SECTIONS, counts, strict=True))
        self._image = Image(self._namespace, layout_version, namespace_id, item.text(), item.text())
        item.end()

    def _take_items(self, kind: int, payload: bytes) -> None:
        data = self._partial
        data += payload
        position = 0
        take = self._TAKE[kind]
        while position + _SIZE.size <= len(data):
            end = position + _SIZE.size + _SIZE.unpack_from(data, position)[0]
            if end > len(data):
                break
            item = _Item(bytes(data[position + _SIZE.size : end]))
            take(self, item)
            item.end()
            self._seen[kind] += 1
            position = end
        del data[:position]

    def _take_end(self, item: _Item) -> None:
        frames, digest = item.take(_END)
        item.end()
        if frames != self._frames or digest != self._digest.digest():
            raise ValueError(f"{self._frames} frames before it, and its SHA-256 is of {frames} others")
        for kind in _SECTIONS:
            if self._seen[kind] != self._counts[kind]:
                raise ValueError(f"{_NAMES[kind - 1]} has {self._seen[kind]} items, HEAD says {self._counts[kind]}")

    # --- items

    def _take_counters(self, item: _Item) -> None:
        namespace = self._namespace
        (
            txid,
            self._last_inode_id,
            namespace.generation_stamp_v1,
            namespace.generation_stamp_v2,
            namespace.last_block_id,
            namespace.token_sequence_number,
            namespace.last_cache_directive_id,
            upgrading,
            start,
        ) = item.take(_COUNTERS)
        if txid != namespace.last_txid:
            raise ValueError(f"txid {txid}, but HEAD says {namespace.last_txid}")
        namespace.rolling_upgrade_start = start if upgrading else None

    def _take_inode(self, item: _Item) -> None:
        kind, inode_id, parent_id, mtime, atime, mode = item.take(_INODE)
        name = item.text()
        permission = Permission(item.text(), item.text(), mode)
        inode: Inode
        if kind == _DIRECTORY_TYPE:
            inode = self._namespace.root if inode_id == ROOT_INODE_ID else Directory(inode_id, name, permission, mtime)
            assert isinstance(inode, Directory)
            inode.storage_policy_id = item.one(_U8)
            quota = item.optional(lambda: _take_quota(item))
            if quota is not None:
                self._quotas.append((inode, quota))
        elif kind == _FILE_TYPE:
            inode = _take_file(item, inode_id, name, permission, mtime)
        elif kind == _SYMLINK_TYPE:
            inode = Symlink(inode_id, name, permission, mtime, target=item.text())
        else:
            raise ValueError(f"inode {inode_id} is of type {kind}, which is none")
        inode.permission, inode.mtime, inode.atime = permission, mtime, atime
        inode.xattrs = tuple(
            XAttr(item.one(_U8), item.text(), item.optional(item.bytes)) for _ in range(item.one(_SIZE))
        )
        inode.acl = tuple(
            AclEntry(item.one(_U8), item.one(_U8), item.one(_U8), item.optional(item.text))
            for _ in range(item.one(_SIZE))
        )
        self._place(inode, parent_id, name)

    def _place(self, inode: Inode, parent_id: int, name: str) -> None:
        if self._seen[INODES] == 0:
            if inode is not self._namespace.root or parent_id or name:
                raise ValueError(f"the first inode is {inode.id} ({name!r}), not the root")
            return
        parent = self._namespace.inodes.get(parent_id)
        if not isinstance(parent, Directory):
            raise ValueError(f"inode {inode.id} ({name!r}) is below {parent_id}, which is no directory before it")
        if inode.id in self._namespace.inodes or name in parent.children or not name or "/" in name:
            raise ValueError(f"inode {inode.id} ({name!r}) is there twice, or has no name that can be")
        self._namespace.attach(parent, inode)

    def _take_key(self, item: _Item) -> None:
        key_id, expiry = item.take(_KEY)
        self._namespace.delegation_keys[key_id] = DelegationKey(key_id, expiry, item.optional(item.bytes))

    def _take_token(self, item: _Item) -> None:
        version, *numbers, expiry = item.take(_TOKEN)
        token = TokenIdentifier(version, item.text(), item.text(), item.text(), *numbers)
        self._namespace.tokens[token] = expiry

    def _take_pool(self, item: _Item) -> None:
        read = (item.text, item.text, item.integer, item.integer, item.integer)
        pool = CachePool(item.text(), *[item.optional(field) for field in read])
        self._namespace.cache_pools[pool.name] = pool

    def _take_directive(self, item: _Item) -> None:
        read = (item.text, item.integer, item.text, item.integer)
        directive = CacheDirective(item.one(_DIRECTIVE), *[item.optional(field) for field in read])
        self._namespace.cache_directives[directive.id] = directive

    def _take_retry(self, item: _Item) -> None:
        call_id, txid = item.take(_RETRY)
        self._namespace.retries[item.bytes(), call_id] = txid

    _TAKE: ClassVar[dict[int, Callable[[ImageDecoder, _Item], None]]] = {
        COUNTERS: _take_counters,
        INODES: _take_inode,
        KEYS: _take_key,
        TOKENS: _take_token,
        POOLS: _take_pool,
        DIRECTIVES: _take_directive,
        RETRIES: _take_retry,
    }

    def _corrupt(self, why: str) -> ImageCorrupt:
        return ImageCorrupt(why, offset=self._offset, source=self._source)


class ImageVerifier(ImageDecoder):
    """The same without the namespace: frames, checksums, counts and the digest; no item is taken apart.

    For whoever wants to know whether an image is still what was written: it needs neither room nor much time.
    """

    _TAKE: ClassVar[dict[int, Callable[[ImageDecoder, _Item], None]]] = dict.fromkeys(
        _SECTIONS, lambda _, item: item.skip()
    )


def _take_file(item: _Item, inode_id: int, name: str, permission: Permission, mtime: int) -> File:
    replication, block_size, policy, count = item.take(_FILE)
    if count * _BLOCK.size > len(item.data) - item.position:
        raise ValueError(f"inode {inode_id} says that it has {count} blocks")
    blocks = tuple(Block(*item.take(_BLOCK)) for _ in range(count))
    lease = item.optional(lambda: Lease(item.text(), item.text()))
    return File(inode_id, name, permission, mtime, 0, None, (), (), replication, block_size, blocks, lease, policy)


def _take_quota(item: _Item) -> Quota:
    names, space = item.optional(item.integer), item.optional(item.integer)
    return Quota(names, space, dict(item.take(_TYPE_SPACE) for _ in range(item.one(_SIZE))))
