"""The operations of the edit log as values, and their bodies as bytes, for every layout we read. Pure.

Each class lists its fields in the order of the wire; a field that came with a later layout says `since`. Decoding an
older layout leaves such a field at its default, and encoding for one leaves it out.

Operations of Hadoop 3 alone, and transactions of our opaque layout, are RawOp: the bytes as they are. `codec` turns
operations into bytes and back.
Source: journal-manager.md 5.3 to 5.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from journalmgr.edits.fields import (
    ACL_BITS,
    ACL_MESSAGE,
    BLOCK_IF_CUT,
    BLOCKS,
    BOOL,
    CACHE_DIRECTIVE,
    CACHE_POOL,
    COMPACT_BLOCKS,
    DELEGATION_KEY,
    I16,
    I32,
    I64,
    LAST_BLOCKS,
    NO_RPC,
    PERMISSION,
    RENAME_OPTIONS,
    RPC,
    STR16,
    STRINGS,
    TOKEN,
    U8,
    XATTRS,
    Acl,
    AclEntry,
    Block,
    CacheDirective,
    CachePool,
    Codec,
    DelegationKey,
    Permission,
    RpcIds,
    TokenIdentifier,
    XAttrs,
)
from journalmgr.edits.opcodes import OpCode

NO_XATTRS = XAttrs(None, ())
NO_PERMISSION = Permission("", "", 0)
NO_DIRECTIVE = CacheDirective(0)
NO_POOL = CachePool("")
NO_TOKEN = TokenIdentifier(0, "", "", "", 0, 0, 0, 0)
NO_KEY = DelegationKey(0, 0, None)
NO_ACL = Acl("", ())

# Layouts that brought fields. -41, -44 and -54 are lines of their own and not read (`frame.RESERVED_LAYOUTS`), so that
# "this layout or a later one" is a plain comparison.
INODE_ID_SINCE = -42
RPC_SINCE = -47
ACL_SINCE = -53
XATTRS_SINCE = -57
OVERWRITE_SINCE = -58
STORAGE_POLICY_SINCE = -60
ERASURE_CODING_SINCE = -64
SNAPSHOT_MTIME_SINCE = -66

ALWAYS = 0
"""`since` of a field that every layout has; layouts are negative."""


class FieldSpec(NamedTuple):
    """One field on the wire; since: the first layout that has it."""

    name: str
    codec: Codec
    since: int = ALWAYS


@dataclass(slots=True, kw_only=True)
class Op:
    """One operation. txid: 0 until it has one. Subclasses have their fields in the order of the wire."""

    opcode: ClassVar[OpCode]
    layout: ClassVar[tuple[FieldSpec, ...]] = ()
    txid: int = 0


@dataclass(slots=True)
class RawOp:
    """A transaction whose body is not taken apart."""

    opcode: int
    body: bytes
    txid: int = 0


AnyOp = Op | RawOp

OPS: dict[OpCode, type[Op]] = {}
"""Every operation that is taken apart."""


def _op(opcode: OpCode, *layout: FieldSpec) -> Callable[[type[Op]], type[Op]]:
    def register(kind: type[Op]) -> type[Op]:
        kind.opcode = opcode
        kind.layout = layout
        OPS[opcode] = kind
        return kind

    return register


@_op(
    OpCode.ADD,
    FieldSpec("inode_id", I64, INODE_ID_SINCE),
    FieldSpec("path", STR16),
    FieldSpec("replication", I16),
    FieldSpec("mtime", I64),
    FieldSpec("atime", I64),
    FieldSpec("block_size", I64),
    FieldSpec("blocks", BLOCKS),
    FieldSpec("permission", PERMISSION),
    FieldSpec("acl", ACL_BITS, ACL_SINCE),
    FieldSpec("xattrs", XATTRS, XATTRS_SINCE),
    FieldSpec("client_name", STR16),
    FieldSpec("client_machine", STR16),
    FieldSpec("overwrite", BOOL, OVERWRITE_SINCE),
    FieldSpec("storage_policy_id", U8, STORAGE_POLICY_SINCE),
    FieldSpec("erasure_coding_policy_id", U8, ERASURE_CODING_SINCE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class Add(Op):
    """A file is created, or opened again for writing. Times in milliseconds, sizes in bytes."""

    inode_id: int = 0
    path: str = ""
    replication: int = 0
    mtime: int = 0
    atime: int = 0
    block_size: int = 0
    blocks: tuple[Block, ...] = ()
    permission: Permission = NO_PERMISSION
    acl: tuple[AclEntry, ...] = ()
    xattrs: XAttrs = NO_XATTRS
    client_name: str = ""
    client_machine: str = ""
    overwrite: bool = False
    storage_policy_id: int = 0
    erasure_coding_policy_id: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.CLOSE,
    FieldSpec("inode_id", I64, INODE_ID_SINCE),
    FieldSpec("path", STR16),
    FieldSpec("replication", I16),
    FieldSpec("mtime", I64),
    FieldSpec("atime", I64),
    FieldSpec("block_size", I64),
    FieldSpec("blocks", BLOCKS),
    FieldSpec("permission", PERMISSION),
)
@dataclass(slots=True)
class Close(Op):
    """A file is complete."""

    inode_id: int = 0
    path: str = ""
    replication: int = 0
    mtime: int = 0
    atime: int = 0
    block_size: int = 0
    blocks: tuple[Block, ...] = ()
    permission: Permission = NO_PERMISSION


@_op(
    OpCode.MKDIR,
    FieldSpec("inode_id", I64, INODE_ID_SINCE),
    FieldSpec("path", STR16),
    FieldSpec("mtime", I64),
    FieldSpec("atime", I64),
    FieldSpec("permission", PERMISSION),
    FieldSpec("acl", ACL_BITS, ACL_SINCE),
    FieldSpec("xattrs", XATTRS, XATTRS_SINCE),
)
@dataclass(slots=True)
class Mkdir(Op):
    """A directory is made. atime: written equal to mtime, and ignored."""

    inode_id: int = 0
    path: str = ""
    mtime: int = 0
    atime: int = 0
    permission: Permission = NO_PERMISSION
    acl: tuple[AclEntry, ...] = ()
    xattrs: XAttrs = NO_XATTRS


@_op(
    OpCode.DELETE,
    FieldSpec("path", STR16),
    FieldSpec("timestamp", I64),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class Delete(Op):
    """A file or directory tree is removed."""

    path: str = ""
    timestamp: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.RENAME_OLD,
    FieldSpec("src", STR16),
    FieldSpec("dst", STR16),
    FieldSpec("timestamp", I64),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class RenameOld(Op):
    """A rename that may put the source into an existing directory."""

    src: str = ""
    dst: str = ""
    timestamp: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.RENAME,
    FieldSpec("src", STR16),
    FieldSpec("dst", STR16),
    FieldSpec("timestamp", I64),
    FieldSpec("options", RENAME_OPTIONS),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class Rename(Op):
    """A rename with options: 0 none, 1 overwrite, 2 to trash."""

    src: str = ""
    dst: str = ""
    timestamp: int = 0
    options: tuple[int, ...] = ()
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.SET_REPLICATION,
    FieldSpec("path", STR16),
    FieldSpec("replication", I16),
)
@dataclass(slots=True)
class SetReplication(Op):
    """Another number of copies of a file's blocks."""

    path: str = ""
    replication: int = 0


@_op(
    OpCode.SET_PERMISSIONS,
    FieldSpec("src", STR16),
    FieldSpec("mode", I16),
)
@dataclass(slots=True)
class SetPermissions(Op):
    """Another mode."""

    src: str = ""
    mode: int = 0


@_op(
    OpCode.SET_OWNER,
    FieldSpec("src", STR16),
    FieldSpec("user", STR16),
    FieldSpec("group", STR16),
)
@dataclass(slots=True)
class SetOwner(Op):
    """Another owner or group; empty: unchanged."""

    src: str = ""
    user: str = ""
    group: str = ""


@_op(
    OpCode.TIMES,
    FieldSpec("path", STR16),
    FieldSpec("mtime", I64),
    FieldSpec("atime", I64),
)
@dataclass(slots=True)
class Times(Op):
    """Other times; -1: unchanged."""

    path: str = ""
    mtime: int = 0
    atime: int = 0


@_op(
    OpCode.ADD_BLOCK,
    FieldSpec("path", STR16),
    FieldSpec("blocks", LAST_BLOCKS),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class AddBlock(Op):
    """A block is added to an open file; with the one before it, whose length is known now."""

    path: str = ""
    blocks: tuple[Block, ...] = ()
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.UPDATE_BLOCKS,
    FieldSpec("path", STR16),
    FieldSpec("blocks", COMPACT_BLOCKS),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class UpdateBlocks(Op):
    """All blocks of an open file."""

    path: str = ""
    blocks: tuple[Block, ...] = ()
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.ALLOCATE_BLOCK_ID,
    FieldSpec("block_id", I64),
)
@dataclass(slots=True)
class AllocateBlockId(Op):
    """A block id is taken."""

    block_id: int = 0


@_op(
    OpCode.SET_GENSTAMP_V1,
    FieldSpec("generation_stamp", I64),
)
@dataclass(slots=True)
class SetGenstampV1(Op):
    """The generation stamp of old blocks."""

    generation_stamp: int = 0


@_op(
    OpCode.SET_GENSTAMP_V2,
    FieldSpec("generation_stamp", I64),
)
@dataclass(slots=True)
class SetGenstampV2(Op):
    """The generation stamp."""

    generation_stamp: int = 0


@_op(
    OpCode.SYMLINK,
    FieldSpec("inode_id", I64, INODE_ID_SINCE),
    FieldSpec("path", STR16),
    FieldSpec("target", STR16),
    FieldSpec("mtime", I64),
    FieldSpec("atime", I64),
    FieldSpec("permission", PERMISSION),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class Symlink(Op):
    """A symbolic link."""

    inode_id: int = 0
    path: str = ""
    target: str = ""
    mtime: int = 0
    atime: int = 0
    permission: Permission = NO_PERMISSION
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.APPEND,
    FieldSpec("path", STR16),
    FieldSpec("client_name", STR16),
    FieldSpec("client_machine", STR16),
    FieldSpec("new_block", BOOL),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class Append(Op):
    """A file is opened to be appended to."""

    path: str = ""
    client_name: str = ""
    client_machine: str = ""
    new_block: bool = False
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.TRUNCATE,
    FieldSpec("src", STR16),
    FieldSpec("client_name", STR16),
    FieldSpec("client_machine", STR16),
    FieldSpec("new_length", I64),
    FieldSpec("timestamp", I64),
    FieldSpec("blocks", BLOCK_IF_CUT),
)
@dataclass(slots=True)
class Truncate(Op):
    """A file is cut. blocks: the last one, if it is cut itself."""

    src: str = ""
    client_name: str = ""
    client_machine: str = ""
    new_length: int = 0
    timestamp: int = 0
    blocks: tuple[Block, ...] = ()


@_op(
    OpCode.CONCAT_DELETE,
    FieldSpec("target", STR16),
    FieldSpec("sources", STRINGS),
    FieldSpec("timestamp", I64),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class ConcatDelete(Op):
    """The blocks of the sources are appended to the target; the sources are removed."""

    target: str = ""
    sources: tuple[str, ...] = ()
    timestamp: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.SET_QUOTA,
    FieldSpec("src", STR16),
    FieldSpec("namespace_quota", I64),
    FieldSpec("space_quota", I64),
)
@dataclass(slots=True)
class SetQuota(Op):
    """Quotas of a directory: names, and bytes of all copies. -1: none."""

    src: str = ""
    namespace_quota: int = 0
    space_quota: int = 0


@_op(
    OpCode.SET_QUOTA_BY_STORAGETYPE,
    FieldSpec("src", STR16),
    FieldSpec("storage_type", I32),
    FieldSpec("space_quota", I64),
)
@dataclass(slots=True)
class SetQuotaByStorageType(Op):
    """Quota of one storage type: 0 RAM_DISK, 1 SSD, 2 DISK, 3 ARCHIVE."""

    src: str = ""
    storage_type: int = 0
    space_quota: int = 0


@_op(
    OpCode.SET_NS_QUOTA,
    FieldSpec("src", STR16),
    FieldSpec("namespace_quota", I64),
)
@dataclass(slots=True)
class SetNsQuota(Op):
    """Obsolete; only read."""

    src: str = ""
    namespace_quota: int = 0


@_op(
    OpCode.CLEAR_NS_QUOTA,
    FieldSpec("src", STR16),
)
@dataclass(slots=True)
class ClearNsQuota(Op):
    """Obsolete; only read."""

    src: str = ""


@_op(
    OpCode.REASSIGN_LEASE,
    FieldSpec("holder", STR16),
    FieldSpec("path", STR16),
    FieldSpec("new_holder", STR16),
)
@dataclass(slots=True)
class ReassignLease(Op):
    """Another client writes the file."""

    holder: str = ""
    path: str = ""
    new_holder: str = ""


@_op(
    OpCode.GET_DELEGATION_TOKEN,
    FieldSpec("token", TOKEN),
    FieldSpec("expiry", I64),
)
@dataclass(slots=True)
class GetDelegationToken(Op):
    """A token is issued."""

    token: TokenIdentifier = NO_TOKEN
    expiry: int = 0


@_op(
    OpCode.RENEW_DELEGATION_TOKEN,
    FieldSpec("token", TOKEN),
    FieldSpec("expiry", I64),
)
@dataclass(slots=True)
class RenewDelegationToken(Op):
    """A token is renewed."""

    token: TokenIdentifier = NO_TOKEN
    expiry: int = 0


@_op(
    OpCode.CANCEL_DELEGATION_TOKEN,
    FieldSpec("token", TOKEN),
)
@dataclass(slots=True)
class CancelDelegationToken(Op):
    """A token is cancelled."""

    token: TokenIdentifier = NO_TOKEN


@_op(
    OpCode.UPDATE_MASTER_KEY,
    FieldSpec("key", DELEGATION_KEY),
)
@dataclass(slots=True)
class UpdateMasterKey(Op):
    """A key that tokens are signed with."""

    key: DelegationKey = NO_KEY


@_op(
    OpCode.CREATE_SNAPSHOT,
    FieldSpec("root", STR16),
    FieldSpec("name", STR16),
    FieldSpec("mtime", I64, SNAPSHOT_MTIME_SINCE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class CreateSnapshot(Op):
    """A snapshot is taken."""

    root: str = ""
    name: str = ""
    mtime: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.DELETE_SNAPSHOT,
    FieldSpec("root", STR16),
    FieldSpec("name", STR16),
    FieldSpec("mtime", I64, SNAPSHOT_MTIME_SINCE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class DeleteSnapshot(Op):
    """A snapshot is removed."""

    root: str = ""
    name: str = ""
    mtime: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.RENAME_SNAPSHOT,
    FieldSpec("root", STR16),
    FieldSpec("old_name", STR16),
    FieldSpec("new_name", STR16),
    FieldSpec("mtime", I64, SNAPSHOT_MTIME_SINCE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class RenameSnapshot(Op):
    """A snapshot gets another name."""

    root: str = ""
    old_name: str = ""
    new_name: str = ""
    mtime: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.ALLOW_SNAPSHOT,
    FieldSpec("root", STR16),
)
@dataclass(slots=True)
class AllowSnapshot(Op):
    """Snapshots of a directory are allowed."""

    root: str = ""


@_op(
    OpCode.DISALLOW_SNAPSHOT,
    FieldSpec("root", STR16),
)
@dataclass(slots=True)
class DisallowSnapshot(Op):
    """They are not any more."""

    root: str = ""


@_op(
    OpCode.ADD_CACHE_DIRECTIVE,
    FieldSpec("directive", CACHE_DIRECTIVE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class AddCacheDirective(Op):
    """A path is to be cached."""

    directive: CacheDirective = NO_DIRECTIVE
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.MODIFY_CACHE_DIRECTIVE,
    FieldSpec("directive", CACHE_DIRECTIVE),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class ModifyCacheDirective(Op):
    """What is not None changes."""

    directive: CacheDirective = NO_DIRECTIVE
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.REMOVE_CACHE_DIRECTIVE,
    FieldSpec("id", I64),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class RemoveCacheDirective(Op):
    """It is not to be cached any more."""

    id: int = 0
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.ADD_CACHE_POOL,
    FieldSpec("pool", CACHE_POOL),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class AddCachePool(Op):
    """A pool of cache directives."""

    pool: CachePool = NO_POOL
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.MODIFY_CACHE_POOL,
    FieldSpec("pool", CACHE_POOL),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class ModifyCachePool(Op):
    """What is not None changes."""

    pool: CachePool = NO_POOL
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.REMOVE_CACHE_POOL,
    FieldSpec("name", STR16),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class RemoveCachePool(Op):
    """The pool and its directives are gone."""

    name: str = ""
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.SET_ACL,
    FieldSpec("acl", ACL_MESSAGE),
)
@dataclass(slots=True)
class SetAcl(Op):
    """The access control list of a path, whole."""

    acl: Acl = NO_ACL


@_op(
    OpCode.SET_XATTR,
    FieldSpec("xattrs", XATTRS),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class SetXAttr(Op):
    """Attributes are set."""

    xattrs: XAttrs = NO_XATTRS
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.REMOVE_XATTR,
    FieldSpec("xattrs", XATTRS),
    FieldSpec("rpc", RPC, RPC_SINCE),
)
@dataclass(slots=True)
class RemoveXAttr(Op):
    """Attributes are removed."""

    xattrs: XAttrs = NO_XATTRS
    rpc: RpcIds = NO_RPC


@_op(
    OpCode.ROLLING_UPGRADE_START,
    FieldSpec("time", I64),
)
@dataclass(slots=True)
class RollingUpgradeStart(Op):
    """A rolling upgrade begins."""

    time: int = 0


@_op(
    OpCode.ROLLING_UPGRADE_FINALIZE,
    FieldSpec("time", I64),
)
@dataclass(slots=True)
class RollingUpgradeFinalize(Op):
    """It is over."""

    time: int = 0


@_op(
    OpCode.SET_STORAGE_POLICY,
    FieldSpec("path", STR16),
    FieldSpec("policy_id", U8),
)
@dataclass(slots=True)
class SetStoragePolicy(Op):
    """Where the blocks of a path should be."""

    path: str = ""
    policy_id: int = 0


@_op(OpCode.START_LOG_SEGMENT)
@dataclass(slots=True)
class StartLogSegment(Op):
    """The first transaction of a segment."""


@_op(OpCode.END_LOG_SEGMENT)
@dataclass(slots=True)
class EndLogSegment(Op):
    """The last transaction of a segment that was ended in order."""
