"""Images: back to the equal namespace from chunks of any size, equal bytes for equal namespaces, any damage found."""

import struct
from hashlib import sha256
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidArgument
from journalmgr.edits import ops as o
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
from journalmgr.model import NamespaceInfo
from journalmgr.namenode.errors import ImageCorrupt, ImageError, ImageUnsupported
from journalmgr.namenode.images.format import (
    END,
    HEAD,
    INODES,
    MAGIC,
    PIECE_BYTES_MAX,
    ImageDecoder,
    decode,
    encode,
    fingerprint,
)
from journalmgr.namenode.namespace.apply import apply
from journalmgr.namenode.namespace.tree import (
    Directory,
    File,
    Inode,
    Lease,
    Namespace,
    Quota,
    Symlink,
    subtree,
    usage_of,
)

INFO = NamespaceInfo(-17, "CID-1", "BP-1")

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(0, 1000)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text(st.characters(exclude_characters="/"), min_size=1, max_size=6)  # surrogates that stand alone, too
XATTRS = st.lists(
    st.builds(XAttr, st.integers(0, 4), TEXTS, st.none() | st.binary(max_size=9)),
    max_size=3,
    unique_by=lambda attribute: attribute[:2],
).map(tuple)
ACLS = st.lists(
    st.builds(AclEntry, st.integers(0, 3), st.integers(0, 1), st.integers(0, 7), st.none() | TEXTS), max_size=3
).map(tuple)
PERMISSIONS = st.builds(Permission, TEXTS, TEXTS, st.integers(-32768, 32767))
BLOCKS = st.lists(st.builds(Block, I64, SMALL, I64), max_size=3).map(tuple)
QUOTAS = st.builds(Quota, st.none() | I64, st.none() | I64, st.dictionaries(st.integers(0, 3), I64, max_size=2))


@st.composite
def namespaces(draw: st.DrawFn) -> Namespace:
    namespace = Namespace(draw(TEXTS), draw(TEXTS), 0o700)
    namespace.root.mtime, namespace.root.atime = draw(I64), draw(I64)
    directories = [namespace.root]
    quotas = []
    for inode_id in draw(st.lists(st.integers(16386, 1 << 62), unique=True, max_size=8)):
        parent, name = draw(st.sampled_from(directories)), draw(NAMES)
        if name in parent.children:
            continue
        permission, mtime = draw(PERMISSIONS), draw(I64)
        inode: Inode
        kind = draw(st.sampled_from([Directory, File, Symlink]))
        if kind is Directory:
            inode = Directory(inode_id, name, permission, mtime, storage_policy_id=draw(st.integers(0, 255)))
            directories.append(inode)
            quotas.append((inode, draw(QUOTAS)))
        elif kind is File:
            inode = File(inode_id, name, permission, mtime, replication=draw(st.integers(0, 512)))
            inode.blocks, inode.block_size = draw(BLOCKS), draw(SMALL)
            inode.lease = draw(st.none() | st.builds(Lease, TEXTS, TEXTS))
        else:
            inode = Symlink(inode_id, name, permission, mtime, target=draw(TEXTS))
        inode.atime, inode.xattrs, inode.acl = draw(I64), draw(XATTRS), draw(ACLS)
        namespace.attach(parent, inode)
    for directory, quota in quotas:
        namespace.set_quota(directory, quota)
    namespace.last_txid, namespace.last_block_id, namespace.generation_stamp_v1 = draw(I64), draw(I64), draw(I64)
    namespace.generation_stamp_v2, namespace.rolling_upgrade_start = draw(I64), draw(st.none() | I64)
    namespace.last_inode_id += draw(SMALL)
    namespace.delegation_keys = {
        key.key_id: key for key in draw(st.lists(st.builds(DelegationKey, SMALL, I64, st.none() | st.binary())))
    }
    token = st.builds(TokenIdentifier, st.just(0), TEXTS, TEXTS, TEXTS, I64, I64, SMALL, SMALL)
    namespace.tokens = draw(st.dictionaries(token, I64, max_size=3))
    pool = st.builds(CachePool, TEXTS, st.none() | TEXTS, TEXTS, st.integers(0, 511), st.none() | I64, I64)
    namespace.cache_pools = {item.name: item for item in draw(st.lists(pool, max_size=3))}
    directive = st.builds(CacheDirective, SMALL, TEXTS, st.none() | SMALL, TEXTS, st.none() | I64)
    namespace.cache_directives = {item.id: item for item in draw(st.lists(directive, max_size=3))}
    call = st.tuples(st.binary(min_size=16, max_size=16), st.integers(-2, 1 << 30))
    namespace.retries = draw(st.dictionaries(call, I64, max_size=3))
    return namespace


def image_of(namespace: Namespace) -> bytes:
    return b"".join(encode(namespace, INFO))


def small() -> Namespace:
    """One of each kind of inode, and one of everything else."""
    namespace = Namespace()
    permission = Permission("u", "g", 0o644)
    directory = Directory(16386, "d", permission, 1, acl=(AclEntry(0, 0, 5, "n"),))
    namespace.attach(namespace.root, directory)
    namespace.attach(directory, File(16387, "f", permission, 2, blocks=(Block(1, 2, 3),), lease=Lease("c", "m")))
    namespace.attach(directory, Symlink(16388, "l", permission, 3, xattrs=(XAttr(0, "k", b"v"),), target="/d"))
    namespace.set_quota(directory, Quota(10, None, {1: 5}))
    namespace.delegation_keys[1] = DelegationKey(1, 2, b"key")
    namespace.tokens[TokenIdentifier(0, "o", "r", "", 1, 2, 3, 4)] = 5
    namespace.cache_pools["p"] = CachePool("p", "o", "g", 0o755, 1, 2)
    namespace.cache_directives[1] = CacheDirective(1, "/d", 1, "p", 9)
    namespace.remember(b"c" * 16, 1, 2)
    namespace.last_txid = 12
    return namespace


@given(namespaces(), st.integers(1, 400))
def test_what_is_encoded_comes_back_from_any_chunks(namespace: Namespace, size: int) -> None:
    image = image_of(namespace)
    decoder = ImageDecoder("here")
    for start in range(0, len(image), size):
        decoder.feed(image[start : start + size])
    decoded = decoder.finish()
    again = decoded.namespace
    assert (decoded.layout_version, decoded.namespace_id) == (-63, -17)
    assert (decoded.cluster_id, decoded.block_pool_id) == ("CID-1", "BP-1")
    assert image_of(again) == image
    assert fingerprint(again) == fingerprint(namespace)
    assert list(again.retries) == list(namespace.retries)
    assert again.open_files.keys() == namespace.open_files.keys()
    assert (again.last_inode_id, again.quota_count) == (namespace.last_inode_id, namespace.quota_count)
    for inode in subtree(again.root):
        if isinstance(inode, Directory) and inode.quota is not None:
            assert (inode.quota.used_names, inode.quota.used_space) == usage_of(inode)


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_a_decoder_takes_every_split(size: int) -> None:
    image = image_of(small())
    decoder = ImageDecoder()
    for start in range(0, len(image), size):
        decoder.feed(image[start : start + size])
    assert fingerprint(decoder.finish().namespace) == fingerprint(small())


def test_the_order_of_arrival_leaves_no_trace() -> None:
    one, two = Namespace(), Namespace()
    names = {16386: "b", 16387: "a", 16388: "🜁", 16389: "\uffff"}
    for namespace, order in ((one, list(names)), (two, list(reversed(names)))):
        for inode_id in order:
            namespace.attach(namespace.root, Directory(inode_id, names[inode_id], Permission("", "", 0), 0))
        namespace.root.xattrs = tuple(XAttr(0, str(item % 2), b"") for item in order[:2])
        namespace.tokens = {TokenIdentifier(0, "", "", "", 0, 0, item, 0): 1 for item in order}
    assert image_of(one) == image_of(two)
    # By the bytes of UTF-8, as HDFS does: what is beyond 16 bits comes last.
    assert one.root.sorted_names() == ["a", "b", "\uffff", "🜁"]


@pytest.mark.parametrize("what", ["mtime", "name", "txid", "lease", "retry"])
def test_a_fingerprint_sees_each_difference(what: str) -> None:
    namespace = small()
    file = namespace.find("/d/f")
    assert isinstance(file, File)
    if what == "mtime":
        file.mtime += 1
    elif what == "name":
        assert file.parent is not None
        namespace.move(file, file.parent, "g")
    elif what == "txid":
        namespace.last_txid += 1
    elif what == "lease":
        namespace.rewrite(file, file.blocks, None, file.replication)
    else:
        namespace.remember(b"c" * 16, 2, 3)
    assert fingerprint(namespace) != fingerprint(small())


def test_large_namespaces_come_in_bounded_pieces() -> None:
    """Items are cut wherever a frame is full; one item alone may be larger than a frame."""
    namespace = small()
    huge = File(20_000, "huge", Permission("u", "g", 0), 1, blocks=tuple(Block(i, i, i) for i in range(100_000)))
    namespace.attach(namespace.root, huge)
    pieces = list(encode(namespace, INFO))
    assert max(map(len, pieces)) == PIECE_BYTES_MAX
    assert sum(map(len, pieces)) > 2 * PIECE_BYTES_MAX
    decoded = decode(b"".join(pieces)).namespace.find("/huge")
    assert isinstance(decoded, File)
    assert decoded.blocks == huge.blocks


def test_a_namespace_that_goes_on_while_its_image_is_taken_is_found() -> None:
    namespace = small()
    pieces = encode(namespace, INFO)
    next(pieces)
    next(pieces)
    apply(o.Mkdir(txid=13, path="/new", permission=Permission("", "", 0)), namespace)
    with pytest.raises(InvalidArgument, match="from txid 12 to 13"):
        list(pieces)


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_damaged_byte_is_found_wherever_it_is(mask: int) -> None:
    image = image_of(small())
    for position in range(len(image)):
        damaged = bytearray(image)
        damaged[position] ^= mask
        with pytest.raises(ImageError) as caught:
            decode(bytes(damaged), "name")
        assert caught.value.offset <= position, "the frame of the damage, not a later one"
        assert f"name at offset {caught.value.offset}" in str(caught.value)


def test_a_missing_end_is_found_wherever_it_was_cut() -> None:
    image = image_of(small())
    for size in range(len(image)):
        with pytest.raises(ImageCorrupt, match="END is missing"):
            decode(image[:size])


def test_bytes_behind_the_end_are_found() -> None:
    image = image_of(small())
    with pytest.raises(ImageCorrupt, match="1 bytes behind the end") as caught:
        decode(image + b"\0")
    assert caught.value.offset == len(image)


def test_frames_that_are_missing_twice_or_exchanged_are_found() -> None:
    magic, *frames = encode(small(), INFO)
    for position in range(len(frames) - 1):
        missing = frames[:position] + frames[position + 1 :]
        twice = frames[: position + 1] + frames[position:]
        exchanged = [*frames[:position], frames[position + 1], frames[position], *frames[position + 2 :]]
        for wrong in (missing, twice, exchanged):
            with pytest.raises(ImageCorrupt):
                decode(magic + b"".join(wrong))


def test_a_fault_stays() -> None:
    decoder = ImageDecoder()
    with pytest.raises(ImageUnsupported, match="no image") as first:
        decoder.feed(b"XXXX")
    for again in (lambda: decoder.feed(MAGIC), decoder.finish):
        with pytest.raises(ImageUnsupported) as caught:
            again()
        assert caught.value.__cause__ is first.value


def forged(frames: list[tuple[int, bytes]]) -> bytes:
    """An image whose checksums are right, whatever is in it."""
    image, crc = MAGIC, crc32(MAGIC)
    for kind, payload in [*frames, (END, b"")]:
        if kind == END:
            payload = struct.pack(">Q", len(frames)) + sha256(image).digest()
        frame = struct.pack(">BI", kind, len(payload)) + payload
        crc = crc32(frame, crc)
        image += frame + struct.pack(">I", crc)
    return image


def taken_apart(image: bytes) -> list[tuple[int, bytes]]:
    frames, position = [], len(MAGIC)
    while position < len(image):
        kind, size = struct.unpack_from(">BI", image, position)
        frames.append((kind, image[position + 5 : position + 5 + size]))
        position += 9 + size
    return frames[:-1]


def test_a_later_format_is_refused_as_such() -> None:
    frames = taken_apart(image_of(small()))
    frames[0] = (HEAD, b"\0\2whatever a later release writes")
    with pytest.raises(ImageUnsupported, match="version 2"):
        decode(forged(frames))


def test_what_was_taken_apart_is_whole_again() -> None:
    image = image_of(small())
    assert forged(taken_apart(image)) == image


def items(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def inode(kind: int, inode_id: int, parent: int, name: bytes, rest: bytes) -> bytes:
    texts = b"".join(struct.pack(">I", len(text)) + text for text in (name, b"u", b"g"))
    return struct.pack(">Bqqqqh", kind, inode_id, parent, 0, 0, 0) + texts + rest + bytes(8)


ROOT = inode(1, 16385, 0, b"", bytes(2))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (items(inode(1, 16386, 0, b"", bytes(2))), "not the root"),
        (items(ROOT, inode(1, 16386, 99, b"d", bytes(2))), "no directory before it"),
        (items(ROOT, inode(1, 16385, 16385, b"d", bytes(2))), "there twice"),
        (items(ROOT, inode(1, 16386, 16385, b"", bytes(2))), "no name"),
        (items(ROOT, inode(1, 16386, 16385, b"a/b", bytes(2))), "no name"),
        (items(ROOT, inode(9, 16386, 16385, b"d", b"")), "type 9"),
        (items(ROOT, inode(2, 16386, 16385, b"f", struct.pack(">hqBI", 1, 1, 0, 1 << 31))), "blocks"),
        (items(ROOT, inode(1, 16386, 16385, b"d", b"\0\7")), "where 0 or 1"),
        (items(ROOT, inode(1, 16386, 16385, b"\xff", bytes(2))), "INODES"),
        (items(ROOT + b"x"), "bytes too many"),
        (items(ROOT[:20]), "INODES"),
        (items(ROOT)[:-1], "within an item"),
        (items(ROOT), "HEAD says 4"),
    ],
)
def test_inodes_that_cannot_be_are_refused(payload: bytes, why: str) -> None:
    frames = [(kind, payload if kind == INODES else old) for kind, old in taken_apart(image_of(small()))]
    with pytest.raises(ImageCorrupt, match=why):
        decode(forged(frames))
