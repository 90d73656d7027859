"""The operations of the edit log as values, and their bodies as bytes, for every layout we read. Pure.

Each class lists its fields in the order of the wire. A field's annotation says how it is written, and the first layout
that has it where not all have: decoding an older one leaves the default, and encoding for one leaves the field out.

Operations of Hadoop 3 alone, and transactions of our opaque layout, are RawOp: the bytes as they are. `codec` turns
operations into bytes and back.
Source: journalmgr/FORMATS.md 5.3 to 5.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, NamedTuple, TypeVar, dataclass_transform, get_type_hints

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
    NO_RPC,
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
    XAttrs,
)
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.primitives import BOOL, I16, I32, I64, STR16, U8, Codec

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

Bool = Annotated[bool, BOOL]
Byte = Annotated[int, U8]
Int16 = Annotated[int, I16]
Int32 = Annotated[int, I32]
Int64 = Annotated[int, I64]
InodeId = Annotated[int, I64, INODE_ID_SINCE]
SnapshotMtime = Annotated[int, I64, SNAPSHOT_MTIME_SINCE]
Str = Annotated[str, STR16]
Strs = Annotated[tuple[str, ...], STRINGS]
Owned = Annotated[Permission, PERMISSION]
Blocks = Annotated[tuple[Block, ...], BLOCKS]
CompactBlocks = Annotated[tuple[Block, ...], COMPACT_BLOCKS]
LastBlocks = Annotated[tuple[Block, ...], LAST_BLOCKS]
BlockIfCut = Annotated[tuple[Block, ...], BLOCK_IF_CUT]
AclBits = Annotated[tuple[AclEntry, ...], ACL_BITS, ACL_SINCE]
NewXAttrs = Annotated[XAttrs, XATTRS, XATTRS_SINCE]
XAttrsOf = Annotated[XAttrs, XATTRS]
AclOf = Annotated[Acl, ACL_MESSAGE]
Options = Annotated[tuple[int, ...], RENAME_OPTIONS]
Rpc = Annotated[RpcIds, RPC, RPC_SINCE]
Token = Annotated[TokenIdentifier, TOKEN]
Key = Annotated[DelegationKey, DELEGATION_KEY]
Directive = Annotated[CacheDirective, CACHE_DIRECTIVE]
Pool = Annotated[CachePool, CACHE_POOL]

_Kind = TypeVar("_Kind", bound=Op)


@dataclass_transform()
def _op(opcode: OpCode) -> Callable[[type[_Kind]], type[_Kind]]:
    """Make a class the operation of that number: a dataclass whose annotations say how its fields are written."""

    def register(plain: type[_Kind]) -> type[_Kind]:
        kind = dataclass(slots=True)(plain)
        hints = get_type_hints(kind, include_extras=True)
        kind.opcode = opcode
        kind.layout = tuple(
            FieldSpec(field.name, *hints[field.name].__metadata__) for field in fields(kind) if field.name != "txid"
        )
        OPS[opcode] = kind
        return kind

    return register


@_op(OpCode.ADD)
class Add(Op):
    """A file is created, or opened again for writing. Times in milliseconds, sizes in bytes."""

    inode_id: InodeId = 0
    path: Str = ""
    replication: Int16 = 0
    mtime: Int64 = 0
    atime: Int64 = 0
    block_size: Int64 = 0
    blocks: Blocks = ()
    permission: Owned = NO_PERMISSION
    acl: AclBits = ()
    xattrs: NewXAttrs = NO_XATTRS
    client_name: Str = ""
    client_machine: Str = ""
    overwrite: Annotated[bool, BOOL, OVERWRITE_SINCE] = False
    storage_policy_id: Annotated[int, U8, STORAGE_POLICY_SINCE] = 0
    erasure_coding_policy_id: Annotated[int, U8, ERASURE_CODING_SINCE] = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.CLOSE)
class Close(Op):
    """A file is complete."""

    inode_id: InodeId = 0
    path: Str = ""
    replication: Int16 = 0
    mtime: Int64 = 0
    atime: Int64 = 0
    block_size: Int64 = 0
    blocks: Blocks = ()
    permission: Owned = NO_PERMISSION


@_op(OpCode.MKDIR)
class Mkdir(Op):
    """A directory is made. atime: written equal to mtime, and ignored."""

    inode_id: InodeId = 0
    path: Str = ""
    mtime: Int64 = 0
    atime: Int64 = 0
    permission: Owned = NO_PERMISSION
    acl: AclBits = ()
    xattrs: NewXAttrs = NO_XATTRS


@_op(OpCode.DELETE)
class Delete(Op):
    """A file or directory tree is removed."""

    path: Str = ""
    timestamp: Int64 = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.RENAME_OLD)
class RenameOld(Op):
    """A rename that may put the source into an existing directory."""

    src: Str = ""
    dst: Str = ""
    timestamp: Int64 = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.RENAME)
class Rename(Op):
    """A rename with options: 0 none, 1 overwrite, 2 to trash."""

    src: Str = ""
    dst: Str = ""
    timestamp: Int64 = 0
    options: Options = ()
    rpc: Rpc = NO_RPC


@_op(OpCode.SET_REPLICATION)
class SetReplication(Op):
    """Another number of copies of a file's blocks."""

    path: Str = ""
    replication: Int16 = 0


@_op(OpCode.SET_PERMISSIONS)
class SetPermissions(Op):
    """Another mode."""

    src: Str = ""
    mode: Int16 = 0


@_op(OpCode.SET_OWNER)
class SetOwner(Op):
    """Another owner or group; empty: unchanged."""

    src: Str = ""
    user: Str = ""
    group: Str = ""


@_op(OpCode.TIMES)
class Times(Op):
    """Other times; -1: unchanged."""

    path: Str = ""
    mtime: Int64 = 0
    atime: Int64 = 0


@_op(OpCode.ADD_BLOCK)
class AddBlock(Op):
    """A block is added to an open file; with the one before it, whose length is known now."""

    path: Str = ""
    blocks: LastBlocks = ()
    rpc: Rpc = NO_RPC


@_op(OpCode.UPDATE_BLOCKS)
class UpdateBlocks(Op):
    """All blocks of an open file."""

    path: Str = ""
    blocks: CompactBlocks = ()
    rpc: Rpc = NO_RPC


@_op(OpCode.ALLOCATE_BLOCK_ID)
class AllocateBlockId(Op):
    """A block id is taken."""

    block_id: Int64 = 0


@_op(OpCode.SET_GENSTAMP_V1)
class SetGenstampV1(Op):
    """The generation stamp of old blocks."""

    generation_stamp: Int64 = 0


@_op(OpCode.SET_GENSTAMP_V2)
class SetGenstampV2(Op):
    """The generation stamp."""

    generation_stamp: Int64 = 0


@_op(OpCode.SYMLINK)
class Symlink(Op):
    """A symbolic link."""

    inode_id: InodeId = 0
    path: Str = ""
    target: Str = ""
    mtime: Int64 = 0
    atime: Int64 = 0
    permission: Owned = NO_PERMISSION
    rpc: Rpc = NO_RPC


@_op(OpCode.APPEND)
class Append(Op):
    """A file is opened to be appended to."""

    path: Str = ""
    client_name: Str = ""
    client_machine: Str = ""
    new_block: Bool = False
    rpc: Rpc = NO_RPC


@_op(OpCode.TRUNCATE)
class Truncate(Op):
    """A file is cut. blocks: the last one, if it is cut itself."""

    src: Str = ""
    client_name: Str = ""
    client_machine: Str = ""
    new_length: Int64 = 0
    timestamp: Int64 = 0
    blocks: BlockIfCut = ()


@_op(OpCode.CONCAT_DELETE)
class ConcatDelete(Op):
    """The blocks of the sources are appended to the target; the sources are removed."""

    target: Str = ""
    sources: Strs = ()
    timestamp: Int64 = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.SET_QUOTA)
class SetQuota(Op):
    """Quotas of a directory: names, and bytes of all copies. -1: none."""

    src: Str = ""
    namespace_quota: Int64 = 0
    space_quota: Int64 = 0


@_op(OpCode.SET_QUOTA_BY_STORAGETYPE)
class SetQuotaByStorageType(Op):
    """Quota of one storage type: 0 RAM_DISK, 1 SSD, 2 DISK, 3 ARCHIVE."""

    src: Str = ""
    storage_type: Int32 = 0
    space_quota: Int64 = 0


@_op(OpCode.SET_NS_QUOTA)
class SetNsQuota(Op):
    """Obsolete; only read."""

    src: Str = ""
    namespace_quota: Int64 = 0


@_op(OpCode.CLEAR_NS_QUOTA)
class ClearNsQuota(Op):
    """Obsolete; only read."""

    src: Str = ""


@_op(OpCode.REASSIGN_LEASE)
class ReassignLease(Op):
    """Another client writes the file."""

    holder: Str = ""
    path: Str = ""
    new_holder: Str = ""


@_op(OpCode.GET_DELEGATION_TOKEN)
class GetDelegationToken(Op):
    """A token is issued."""

    token: Token = NO_TOKEN
    expiry: Int64 = 0


@_op(OpCode.RENEW_DELEGATION_TOKEN)
class RenewDelegationToken(Op):
    """A token is renewed."""

    token: Token = NO_TOKEN
    expiry: Int64 = 0


@_op(OpCode.CANCEL_DELEGATION_TOKEN)
class CancelDelegationToken(Op):
    """A token is cancelled."""

    token: Token = NO_TOKEN


@_op(OpCode.UPDATE_MASTER_KEY)
class UpdateMasterKey(Op):
    """A key that tokens are signed with."""

    key: Key = NO_KEY


@_op(OpCode.CREATE_SNAPSHOT)
class CreateSnapshot(Op):
    """A snapshot is taken."""

    root: Str = ""
    name: Str = ""
    mtime: SnapshotMtime = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.DELETE_SNAPSHOT)
class DeleteSnapshot(Op):
    """A snapshot is removed."""

    root: Str = ""
    name: Str = ""
    mtime: SnapshotMtime = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.RENAME_SNAPSHOT)
class RenameSnapshot(Op):
    """A snapshot gets another name."""

    root: Str = ""
    old_name: Str = ""
    new_name: Str = ""
    mtime: SnapshotMtime = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.ALLOW_SNAPSHOT)
class AllowSnapshot(Op):
    """Snapshots of a directory are allowed."""

    root: Str = ""


@_op(OpCode.DISALLOW_SNAPSHOT)
class DisallowSnapshot(Op):
    """They are not any more."""

    root: Str = ""


@_op(OpCode.ADD_CACHE_DIRECTIVE)
class AddCacheDirective(Op):
    """A path is to be cached."""

    directive: Directive = NO_DIRECTIVE
    rpc: Rpc = NO_RPC


@_op(OpCode.MODIFY_CACHE_DIRECTIVE)
class ModifyCacheDirective(Op):
    """What is not None changes."""

    directive: Directive = NO_DIRECTIVE
    rpc: Rpc = NO_RPC


@_op(OpCode.REMOVE_CACHE_DIRECTIVE)
class RemoveCacheDirective(Op):
    """It is not to be cached any more."""

    id: Int64 = 0
    rpc: Rpc = NO_RPC


@_op(OpCode.ADD_CACHE_POOL)
class AddCachePool(Op):
    """A pool of cache directives."""

    pool: Pool = NO_POOL
    rpc: Rpc = NO_RPC


@_op(OpCode.MODIFY_CACHE_POOL)
class ModifyCachePool(Op):
    """What is not None changes."""

    pool: Pool = NO_POOL
    rpc: Rpc = NO_RPC


@_op(OpCode.REMOVE_CACHE_POOL)
class RemoveCachePool(Op):
    """The pool and its directives are gone."""

    name: Str = ""
    rpc: Rpc = NO_RPC


@_op(OpCode.SET_ACL)
class SetAcl(Op):
    """The access control list of a path, whole."""

    acl: AclOf = NO_ACL


@_op(OpCode.SET_XATTR)
class SetXAttr(Op):
    """Attributes are set."""

    xattrs: XAttrsOf = NO_XATTRS
    rpc: Rpc = NO_RPC


@_op(OpCode.REMOVE_XATTR)
class RemoveXAttr(Op):
    """Attributes are removed."""

    xattrs: XAttrsOf = NO_XATTRS
    rpc: Rpc = NO_RPC


@_op(OpCode.ROLLING_UPGRADE_START)
class RollingUpgradeStart(Op):
    """A rolling upgrade begins."""

    time: Int64 = 0


@_op(OpCode.ROLLING_UPGRADE_FINALIZE)
class RollingUpgradeFinalize(Op):
    """It is over."""

    time: Int64 = 0


@_op(OpCode.SET_STORAGE_POLICY)
class SetStoragePolicy(Op):
    """Where the blocks of a path should be."""

    path: Str = ""
    policy_id: Byte = 0


@_op(OpCode.START_LOG_SEGMENT)
class StartLogSegment(Op):
    """The first transaction of a segment."""


@_op(OpCode.END_LOG_SEGMENT)
class EndLogSegment(Op):
    """The last transaction of a segment that was ended in order."""
