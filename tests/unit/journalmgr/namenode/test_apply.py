"""Operations onto a namespace: what each changes, and what is refused without a trace.

Method: build a small tree by operations, apply the one in question, look at what it says it changes. Every refusal
compares fingerprints: nothing may have changed.
"""

from typing import Any

import pytest

from journalmgr.edits import ops as o
from journalmgr.edits.codec import decode
from journalmgr.edits.fields import (
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
from journalmgr.edits.frame import RecordDecoder
from journalmgr.namenode.errors import ReplayError, SnapshotsRefused
from journalmgr.namenode.images.format import fingerprint
from journalmgr.namenode.namespace.apply import UNCHANGED_QUOTA, apply, apply_all
from journalmgr.namenode.namespace.tree import (
    RETRIES_MAX,
    Directory,
    File,
    Inode,
    Lease,
    Namespace,
    Symlink,
    path_of,
    subtree,
    usage_of,
)

ALICE = Permission("alice", "staff", 0o644)
DIRECTORY = Permission("alice", "staff", 0o755)

# journalmgr/FORMATS.md 11.1: a segment of a genuine NameNode 2.7.2.
GENUINE = bytes.fromhex(
    "180000000c00000000000000017043f0b7"
    "030000003f0000000000000002000000000000400200022f61000001a1fc972305000001a1fc97230504726f6f740a737570657267726f7570"
    "01ed000000000015a00ddc"
    "03000000410000000000000003000000000000400300042f612f62000001a1fc97232c000001a1fc97232c04726f6f740a7375706572677"
    "26f757001ed0000000000ed237ed2"
    "030000003f0000000000000004000000000000400400022f63000001a1fc972358000001a1fc97235804726f6f740a737570657267726f7570"
    "01ed0000000000ab920ce7"
    "000000009b0000000000000005000000000000400500072f612f622f66300003000001a1fc972d8c000001a1fc972d8c0000000008000000"
    "0000000004726f6f740a737570657267726f757001a400000000000024444653436c69656e745f4e4f4e4d41505245445543455f2d313732"
    "343431333939305f3100093132372e302e302e3101000010964504e054104ceba88e3ffd47a588e000000002c9347889"
    "090000004d0000000000000006000000000000000000072f612f622f66300003000001a1fc972dbf000001a1fc972d8c0000000008000000"
    "0000000004726f6f740a737570657267726f757001a45994e047"
    "0700000012000000000000000700022f6301c0f30a38f4"
    "0100000039000000000000000800072f612f622f663000042f632f67000001a1fc973f6400105a893967d40e4e9fa90d391c9c831b610000"
    "000371e150a5"
    "170000000c000000000000000959e8adb0"
)
F0_CREATED, F0_CLOSED, RENAMED = 0x1A1FC972D8C, 0x1A1FC972DBF, 0x1A1FC973F64


def run(namespace: Namespace, *operations: o.Op) -> None:
    """Apply operations with the txids that come next."""
    for op in operations:
        op.txid = namespace.last_txid + 1
        apply(op, namespace)


def mkdir(path: str, mtime: int = 10, **fields: Any) -> o.Mkdir:
    return o.Mkdir(path=path, mtime=mtime, atime=mtime, permission=DIRECTORY, **fields)


def add(path: str, mtime: int = 10, **fields: Any) -> o.Add:
    values: dict[str, Any] = {
        "replication": 3,
        "atime": mtime,
        "block_size": 100,
        "permission": ALICE,
        "client_name": "writer",
        "client_machine": "host",
    }
    return o.Add(path=path, mtime=mtime, **(values | fields))


def close(path: str, mtime: int = 11, *blocks: Block) -> o.Close:
    return o.Close(path=path, replication=3, mtime=mtime, atime=5, block_size=100, blocks=blocks, permission=ALICE)


def file_of(namespace: Namespace, path: str) -> File:
    found = namespace.find(path)
    assert isinstance(found, File)
    return found


def directory_of(namespace: Namespace, path: str) -> Directory:
    found = namespace.find(path)
    assert isinstance(found, Directory)
    return found


def inode_of(namespace: Namespace, path: str) -> Inode:
    found = namespace.find(path)
    assert found is not None
    return found


def paths(namespace: Namespace) -> list[str]:
    return [path_of(inode) for inode in subtree(namespace.root)]


def sample() -> Namespace:
    """/a/b/f closed, /a/open being written, /c empty, /link, and a quota on /a."""
    namespace = Namespace()
    run(
        namespace,
        mkdir("/a"),
        mkdir("/a/b"),
        mkdir("/c"),
        add("/a/b/f"),
        close("/a/b/f", 11, Block(1, 60, 1001)),
        add("/a/open"),
        o.Symlink(path="/link", target="/a/b", mtime=10, atime=10, permission=DIRECTORY),
        o.SetQuota(src="/a", namespace_quota=100, space_quota=10_000),
    )
    return namespace


def test_the_genuine_segment_gives_its_tree() -> None:
    namespace = Namespace()
    decoder = RecordDecoder(-63, source="appendix", expected_txid=1)
    apply_all([decode(record, -63) for record in decoder.feed(GENUINE)], namespace)
    decoder.finish()
    assert paths(namespace) == ["/", "/a", "/a/b", "/c", "/c/g"]
    assert [inode_of(namespace, path).id for path in ("/", "/a", "/a/b", "/c", "/c/g")] == [
        *(16385, 16386, 16387, 16388, 16389)
    ]
    moved = file_of(namespace, "/c/g")
    assert (moved.mtime, moved.atime, moved.replication, moved.lease) == (F0_CLOSED, F0_CREATED, 3, None)
    assert moved.permission == Permission("root", "supergroup", 0o644)
    assert inode_of(namespace, "/c").permission.mode == 0o700
    assert inode_of(namespace, "/c").mtime == inode_of(namespace, "/a/b").mtime == RENAMED
    assert (namespace.last_txid, namespace.last_inode_id, namespace.open_files) == (9, 16389, {})
    assert namespace.done(bytes.fromhex("5a893967d40e4e9fa90d391c9c831b61"), 3) == 8


def test_a_new_file_is_open_until_it_is_closed() -> None:
    namespace = Namespace()
    run(namespace, mkdir("/a", 5), add("/a/f", 10))
    file = file_of(namespace, "/a/f")
    assert file.lease == Lease("writer", "host")
    assert namespace.open_files == {file.id: file}
    assert inode_of(namespace, "/a").mtime == 10
    run(namespace, close("/a/f", 12, Block(1, 60, 1001), Block(2, 1, 1001)))
    assert (file.lease, file.length, file.mtime, file.atime, namespace.open_files) == (None, 61, 12, 5, {})
    assert inode_of(namespace, "/a").mtime == 10


def test_an_add_that_overwrites_replaces_the_file() -> None:
    namespace = sample()
    old = file_of(namespace, "/a/open")
    run(namespace, add("/a/open", 20, inode_id=20_000, overwrite=True))
    new = file_of(namespace, "/a/open")
    assert new.id == namespace.last_inode_id == 20_000
    assert old.id not in namespace.inodes
    assert namespace.open_files == {20_000: new}


def test_an_add_of_what_exists_opens_it_again() -> None:
    namespace = sample()
    file = file_of(namespace, "/a/b/f")
    run(namespace, add("/a/b/f", 30, client_name="other", blocks=(Block(1, 60, 1001), Block(2, 0, 1002))))
    assert file_of(namespace, "/a/b/f") is file
    assert (file.lease, len(file.blocks), file.mtime) == (Lease("other", "host"), 2, 30)


def test_append_opens_a_file_again() -> None:
    namespace = sample()
    run(namespace, o.Append(path="/a/b/f", client_name="appender", client_machine="h2"))
    assert file_of(namespace, "/a/b/f").lease == Lease("appender", "h2")
    run(namespace, close("/a/b/f", 40, Block(1, 80, 1005)))
    assert file_of(namespace, "/a/b/f").blocks == (Block(1, 80, 1005),)


def test_blocks_of_an_open_file_come_grow_and_are_given_up() -> None:
    namespace = sample()
    first, second = Block(7, 0, 1001), Block(8, 0, 1002)
    run(
        namespace,
        o.AllocateBlockId(block_id=7),
        o.SetGenstampV1(generation_stamp=999),
        o.SetGenstampV2(generation_stamp=1002),
        o.AddBlock(path="/a/open", blocks=(first,)),
        o.AddBlock(path="/a/open", blocks=(first._replace(size=100), second)),
    )
    file = file_of(namespace, "/a/open")
    assert file.blocks == (Block(7, 100, 1001), second)
    assert (namespace.last_block_id, namespace.generation_stamp_v1, namespace.generation_stamp_v2) == (7, 999, 1002)
    run(namespace, o.UpdateBlocks(path="/a/open", blocks=(Block(7, 100, 1001), Block(8, 5, 1009))))
    assert file.length == 105
    run(namespace, o.UpdateBlocks(path="/a/open", blocks=(Block(7, 100, 1001),)))
    assert file.blocks == (Block(7, 100, 1001),)


def test_truncate_on_a_block_boundary_leaves_the_file_closed() -> None:
    namespace = sample()
    run(
        namespace,
        add("/c/t"),
        close("/c/t", 11, Block(1, 100, 1001), Block(2, 40, 1001)),
        o.Truncate(src="/c/t", client_name="cutter", client_machine="h", new_length=100, timestamp=50),
    )
    file = file_of(namespace, "/c/t")
    assert (file.blocks, file.lease, file.mtime) == ((Block(1, 100, 1001),), None, 50)


def test_truncate_within_a_block_opens_the_file_until_it_is_recovered() -> None:
    namespace = sample()
    cut = (Block(1, 25, 1050),)
    run(namespace, o.Truncate(src="/a/b/f", client_name="cutter", client_machine="h", new_length=25, blocks=cut))
    file = file_of(namespace, "/a/b/f")
    assert (file.length, file.lease) == (25, Lease("cutter", "h"))
    run(namespace, close("/a/b/f", 60, Block(1, 25, 1050)))
    assert (file.blocks, file.lease) == ((Block(1, 25, 1050),), None)


def test_concat_moves_blocks_and_removes_the_sources() -> None:
    namespace = sample()
    run(
        namespace,
        *(add("/c/1"), close("/c/1", 11, Block(10, 100, 1001))),
        *(add("/c/2"), close("/c/2", 11, Block(11, 50, 1001))),
        o.ConcatDelete(target="/c/1", sources=("/c/2",), timestamp=70),
    )
    assert file_of(namespace, "/c/1").blocks == (Block(10, 100, 1001), Block(11, 50, 1001))
    assert namespace.find("/c/2") is None
    assert inode_of(namespace, "/c").mtime == inode_of(namespace, "/c/1").mtime == 70


def test_delete_takes_the_whole_tree_and_its_leases() -> None:
    namespace = sample()
    run(namespace, o.Delete(path="/a", timestamp=90))
    assert paths(namespace) == ["/", "/c", "/link"]
    assert (len(namespace.inodes), namespace.open_files, namespace.quota_count) == (3, {}, 0)
    assert namespace.root.mtime == 90


def test_an_old_rename_moves_into_a_directory_that_exists() -> None:
    namespace = sample()
    run(namespace, o.RenameOld(src="/a/b", dst="/c", timestamp=80))
    assert paths(namespace) == ["/", "/a", "/a/open", "/c", "/c/b", "/c/b/f", "/link"]
    assert inode_of(namespace, "/a").mtime == inode_of(namespace, "/c").mtime == 80


def test_an_old_rename_of_a_file_onto_itself_changes_nothing_but_the_txid() -> None:
    namespace = sample()
    run(namespace, o.RenameOld(src="/a/b/f", dst="/a/b/f", timestamp=80))
    assert inode_of(namespace, "/a/b").mtime == 10


def test_a_rename_keeps_the_lease() -> None:
    namespace = sample()
    run(namespace, o.Rename(src="/a", dst="/c/moved", timestamp=80), close("/c/moved/open"))
    assert not namespace.open_files


def test_a_rename_overwrites_if_it_says_so() -> None:
    namespace = sample()
    moved = file_of(namespace, "/a/b/f")
    run(namespace, o.Rename(src="/a/b/f", dst="/a/open", timestamp=80, options=(1,)))
    assert namespace.find("/a/open") is moved
    assert not namespace.open_files
    run(namespace, o.Rename(src="/a/b", dst="/c", timestamp=81, options=(1,)))
    assert paths(namespace) == ["/", "/a", "/a/open", "/c", "/link"]


def test_attributes_change_one_by_one() -> None:
    namespace = sample()
    run(
        namespace,
        o.SetPermissions(src="/a/b/f", mode=0o600),
        o.SetOwner(src="/a/b/f", user="bob"),
        o.SetOwner(src="/a/b/f", group="ops"),
        o.Times(path="/a/b/f", mtime=-1, atime=77),
        o.SetReplication(path="/a/b/f", replication=5),
        o.SetStoragePolicy(path="/a/b/f", policy_id=12),
        o.SetStoragePolicy(path="/a", policy_id=2),
        o.ReassignLease(holder="writer", path="/a/open", new_holder="HDFS_NameNode"),
    )
    file = file_of(namespace, "/a/b/f")
    assert file.permission == Permission("bob", "ops", 0o600)
    assert (file.mtime, file.atime, file.replication, file.storage_policy_id) == (11, 77, 5, 12)
    assert directory_of(namespace, "/a").storage_policy_id == 2
    assert file_of(namespace, "/a/open").lease == Lease("HDFS_NameNode", "host")
    run(namespace, o.Times(path="/a", mtime=3, atime=-1))
    assert (inode_of(namespace, "/a").mtime, inode_of(namespace, "/a").atime) == (3, 0)


def test_xattrs_are_set_replaced_and_removed() -> None:
    namespace = sample()
    one, two, other = XAttr(0, "k", b"1"), XAttr(0, "k", b"2"), XAttr(1, "k", None)
    run(namespace, o.SetXAttr(xattrs=XAttrs("/a", (one, other))), o.SetXAttr(xattrs=XAttrs("/a", (two,))))
    assert set(inode_of(namespace, "/a").xattrs) == {two, other}
    run(namespace, o.RemoveXAttr(xattrs=XAttrs("/a", (XAttr(1, "k", None),))))
    assert inode_of(namespace, "/a").xattrs == (two,)


def test_an_acl_goes_into_mode_and_list_and_back() -> None:
    namespace = sample()
    entries = (
        AclEntry(0, 0, 7, None),
        AclEntry(0, 0, 5, "bob"),
        AclEntry(1, 0, 4, None),
        AclEntry(2, 0, 6, None),
        AclEntry(3, 0, 1, None),
    )
    run(namespace, o.SetAcl(acl=Acl("/a/b/f", entries)))
    file = file_of(namespace, "/a/b/f")
    assert (file.permission.mode, file.acl) == (0o761, (entries[1], entries[2]))
    run(namespace, o.SetAcl(acl=Acl("/a/b/f", ())))
    assert (file.permission.mode, file.acl) == (0o741, ())


def test_quotas_are_counted_while_the_tree_changes() -> None:
    namespace = sample()
    quota = directory_of(namespace, "/a").quota
    assert quota is not None
    assert (quota.names, quota.space, quota.used_names, quota.used_space) == (100, 10_000, 4, 180)
    run(
        namespace,
        o.AddBlock(path="/a/open", blocks=(Block(5, 0, 1001),)),  # counts as a whole one
        o.SetReplication(path="/a/b/f", replication=2),
        mkdir("/a/new"),
    )
    assert (quota.used_names, quota.used_space) == (5, 300 + 120)
    run(namespace, o.Rename(src="/a/b", dst="/c/b", timestamp=1), o.Delete(path="/a/new", timestamp=1))
    assert (quota.used_names, quota.used_space) == usage_of(directory_of(namespace, "/a")) == (2, 300)


def test_each_kind_of_quota_is_set_left_and_taken_away() -> None:
    namespace = sample()
    run(
        namespace,
        o.SetQuotaByStorageType(src="/a", storage_type=1, space_quota=500),
        o.SetQuota(src="/a", namespace_quota=-1, space_quota=UNCHANGED_QUOTA),
        o.SetNsQuota(src="/c", namespace_quota=9),
    )
    quota = directory_of(namespace, "/a").quota
    assert quota is not None
    assert (quota.names, quota.space, quota.by_type) == (None, 10_000, {1: 500})
    run(
        namespace,
        o.ClearNsQuota(src="/c"),
        o.SetQuotaByStorageType(src="/a", storage_type=1, space_quota=-1),
        o.SetQuota(src="/a", namespace_quota=-1, space_quota=-1),
    )
    assert directory_of(namespace, "/a").quota is directory_of(namespace, "/c").quota is None
    assert namespace.quota_count == 0


def test_tokens_keys_caches_and_upgrades_are_kept() -> None:
    namespace = Namespace()
    token = TokenIdentifier(0, "alice", "yarn", "", 1, 2, 17, 4)
    run(
        namespace,
        o.UpdateMasterKey(key=DelegationKey(4, 9, b"k")),
        o.GetDelegationToken(token=token, expiry=50),
        o.RenewDelegationToken(token=token, expiry=60),
        o.AddCachePool(pool=CachePool("p", "o", "g", 0o755, 10, 20)),
        o.ModifyCachePool(pool=CachePool("p", limit=11)),
        o.AddCacheDirective(directive=CacheDirective(3, "/a", 1, "p", 99)),
        o.ModifyCacheDirective(directive=CacheDirective(3, replication=2)),
        o.RollingUpgradeStart(time=5),
    )
    assert (namespace.tokens, namespace.token_sequence_number) == ({token: 60}, 17)
    assert namespace.delegation_keys == {4: DelegationKey(4, 9, b"k")}
    assert namespace.cache_pools == {"p": CachePool("p", "o", "g", 0o755, 11, 20)}
    assert namespace.cache_directives == {3: CacheDirective(3, "/a", 2, "p", 99)}
    assert (namespace.last_cache_directive_id, namespace.rolling_upgrade_start) == (3, 5)
    run(
        namespace,
        o.CancelDelegationToken(token=token),
        o.RollingUpgradeFinalize(time=6),
        o.AddCacheDirective(directive=CacheDirective(4, "/b", 1, "p", 99)),
        o.RemoveCacheDirective(id=3),
        o.RemoveCachePool(name="p"),
    )
    assert (namespace.tokens, namespace.cache_pools, namespace.cache_directives) == ({}, {}, {})
    assert namespace.rolling_upgrade_start is None


def test_calls_are_remembered_up_to_a_bound() -> None:
    namespace = Namespace()
    client = b"c" * 16
    for call in range(RETRIES_MAX + 2):
        namespace.remember(client, call, call + 1)
    assert namespace.done(client, 0) is namespace.done(client, 1) is None
    assert namespace.done(client, 2) == 3
    assert len(namespace.retries) == RETRIES_MAX
    run(namespace, mkdir("/a"), o.Delete(path="/a", rpc=RpcIds()))
    assert namespace.done(b"", -2) is None


# --- refusals ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[o.Op, str]] = [
    (mkdir("/x/y"), "parent directory does not exist"),
    (mkdir("relative"), "the path is none"),
    (mkdir("/a//b"), "parent directory does not exist"),
    (mkdir("/c/"), "the path is none"),
    (mkdir("/a/b/f/x"), "parent directory does not exist"),
    (mkdir("/a"), "already"),
    (mkdir("/new", inode_id=16386), "inode id 16386 is taken"),
    (add("/link"), "but a symlink"),
    (add("/a"), "but a directory"),
    (add("/a/open", overwrite=True, inode_id=16386), "is taken"),
    (add("/a/b/f", blocks=(Block(9, 1, 1),)), "cannot replace"),
    (close("/a/b/f"), "not under construction"),
    (close("/a/b/none"), "no file"),
    (close("/a"), "but a directory"),
    (o.Append(path="/a/open", client_name="other"), "'writer' writes it"),
    (o.AddBlock(path="/a/open", blocks=(Block(1, 1, 1), Block(2, 0, 1))), "the last block is none"),
    (o.AddBlock(path="/a/open"), "0 blocks"),
    (o.AddBlock(path="/a/b/f", blocks=(Block(2, 0, 1),)), "not under construction"),
    (o.UpdateBlocks(path="/a/b/f", blocks=()), "not under construction"),
    (o.Truncate(src="/a/b/f", new_length=61), "cannot be cut"),
    (o.ConcatDelete(target="/a/b/f", sources=("/a/b/f",)), "named twice"),
    (o.SetReplication(path="/a", replication=1), "no file"),
    (o.ReassignLease(holder="nobody", path="/a/open", new_holder="x"), "'writer' writes it"),
    (o.Symlink(path="/c", target="/", permission=DIRECTORY), "already"),
    (o.Delete(path="/none"), "nothing at this path"),
    (o.Delete(path="/"), "root"),
    (o.RenameOld(src="/none", dst="/c"), "nothing at this path"),
    (o.RenameOld(src="/a", dst="/a/b"), "below it"),
    (o.RenameOld(src="/", dst="/c"), "root"),
    (o.Rename(src="/a/b/f", dst="/a/open"), "already"),
    (o.Rename(src="/a/b/f", dst="/c", options=(1,)), "cannot be replaced"),
    (o.Rename(src="/c", dst="/a", options=(1,)), "not empty"),
    (o.Rename(src="/c", dst="/c", options=(1,)), "already"),
    (o.Rename(src="/c", dst="/none/c"), "parent directory does not exist"),
    (o.SetPermissions(src="/none", mode=0), "nothing at this path"),
    (o.SetOwner(src="/none", user="x"), "nothing at this path"),
    (o.Times(path="/none"), "nothing at this path"),
    (o.SetQuota(src="/a/b/f", namespace_quota=1, space_quota=1), "no directory"),
    (o.SetQuota(src="/a", namespace_quota=-2, space_quota=1), "no quota"),
    (o.SetQuotaByStorageType(src="/none", storage_type=0, space_quota=1), "no directory"),
    (o.SetNsQuota(src="/link", namespace_quota=1), "but a symlink"),
    (o.ClearNsQuota(src="/none"), "no directory"),
    (o.SetStoragePolicy(path="/link", policy_id=2), "symlink"),
    (o.SetAcl(acl=Acl("/none", ())), "nothing at this path"),
    (o.SetAcl(acl=Acl("/link", ())), "symlink"),
    (o.SetXAttr(xattrs=XAttrs("/none", ())), "nothing at this path"),
    (o.RemoveXAttr(xattrs=XAttrs("/a", (XAttr(0, "k", None),))), "not all of"),
    (o.RenewDelegationToken(token=o.NO_TOKEN), "no token"),
    (o.CancelDelegationToken(token=o.NO_TOKEN), "no token"),
    (o.AddCacheDirective(directive=CacheDirective(1, "/a", 1, "none", 0)), "no cache pool"),
    (o.ModifyCacheDirective(directive=CacheDirective(1)), "no cache directive"),
    (o.RemoveCacheDirective(id=1), "no cache directive"),
    (o.ModifyCachePool(pool=CachePool("none")), "no cache pool"),
    (o.RemoveCachePool(name="none"), "no cache pool"),
    (o.RollingUpgradeFinalize(time=1), "no rolling upgrade"),
]


@pytest.mark.parametrize(("op", "why"), REFUSED, ids=[f"{op.opcode.name}-{why}" for op, why in REFUSED])
def test_what_does_not_fit_is_refused_and_leaves_no_trace(op: o.Op, why: str) -> None:
    namespace = sample()
    before = fingerprint(namespace)
    with pytest.raises(ReplayError, match=why) as caught:
        run(namespace, op)
    assert caught.value.txid == op.txid == namespace.last_txid + 1
    assert caught.value.opcode == op.opcode
    assert f"txid {op.txid}, {op.opcode.hadoop_name}" in str(caught.value)
    assert fingerprint(namespace) == before


@pytest.mark.parametrize(
    "op",
    [
        o.CreateSnapshot(root="/a", name="s"),
        o.DeleteSnapshot(root="/a", name="s"),
        o.RenameSnapshot(root="/a", old_name="s", new_name="t"),
        o.AllowSnapshot(root="/a"),
        o.DisallowSnapshot(root="/a"),
    ],
)
def test_snapshots_are_refused_with_a_remedy(op: o.Op) -> None:
    namespace = sample()
    before = fingerprint(namespace)
    with pytest.raises(SnapshotsRefused, match=r"keeps no snapshots.*journalmgr format, journalmgr fs put") as caught:
        run(namespace, op)
    assert (caught.value.txid, caught.value.path) == (9, "/a")
    assert fingerprint(namespace) == before


@pytest.mark.parametrize(("txid", "why"), [(8, "applied before"), (10, "missing")])
def test_a_txid_that_is_not_the_next_is_refused(txid: int, why: str) -> None:
    namespace = sample()
    with pytest.raises(ReplayError, match=why):
        apply(o.StartLogSegment(txid=txid), namespace)
    assert namespace.last_txid == 8


def test_a_transaction_of_another_server_is_refused() -> None:
    with pytest.raises(ReplayError, match="another server"):
        apply(o.RawOp(opcode=112, body=b"x", txid=1), Namespace())


@pytest.mark.parametrize("kind", list(o.OPS.values()), ids=lambda kind: kind.__name__)
def test_every_operation_of_the_codec_is_applied_or_refused_for_its_own_reason(kind: type[o.Op]) -> None:
    """An operation that the codec learns and nobody applies would stop a standby."""
    op = kind(txid=1)
    try:
        apply(op, Namespace())
    except ReplayError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert "no operation on a namespace" not in refusal


def test_symlinks_are_kept_with_their_target() -> None:
    link = sample().find("/link")
    assert isinstance(link, Symlink)
    assert link.target == "/a/b"
