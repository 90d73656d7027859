"""The operations of HDFS's edit log, by number and name. Pure. Source: journalmgr/FORMATS.md 5.5."""

from __future__ import annotations

import enum


class OpCode(enum.IntEnum):
    """Numbers on the wire; Hadoop writes the names with OP_ before them."""

    ADD = 0
    RENAME_OLD = 1
    DELETE = 2
    MKDIR = 3
    SET_REPLICATION = 4
    DATANODE_ADD = 5  # obsolete; nothing can decode it
    DATANODE_REMOVE = 6  # the same
    SET_PERMISSIONS = 7
    SET_OWNER = 8
    CLOSE = 9
    SET_GENSTAMP_V1 = 10
    SET_NS_QUOTA = 11  # obsolete; only read
    CLEAR_NS_QUOTA = 12  # the same
    TIMES = 13
    SET_QUOTA = 14
    RENAME = 15
    CONCAT_DELETE = 16
    SYMLINK = 17
    GET_DELEGATION_TOKEN = 18
    RENEW_DELEGATION_TOKEN = 19
    CANCEL_DELEGATION_TOKEN = 20
    UPDATE_MASTER_KEY = 21
    REASSIGN_LEASE = 22
    END_LOG_SEGMENT = 23
    START_LOG_SEGMENT = 24
    UPDATE_BLOCKS = 25
    CREATE_SNAPSHOT = 26
    DELETE_SNAPSHOT = 27
    RENAME_SNAPSHOT = 28
    ALLOW_SNAPSHOT = 29
    DISALLOW_SNAPSHOT = 30
    SET_GENSTAMP_V2 = 31
    ALLOCATE_BLOCK_ID = 32
    ADD_BLOCK = 33
    ADD_CACHE_DIRECTIVE = 34
    REMOVE_CACHE_DIRECTIVE = 35
    ADD_CACHE_POOL = 36
    MODIFY_CACHE_POOL = 37
    REMOVE_CACHE_POOL = 38
    MODIFY_CACHE_DIRECTIVE = 39
    SET_ACL = 40
    ROLLING_UPGRADE_START = 41
    ROLLING_UPGRADE_FINALIZE = 42
    SET_XATTR = 43
    REMOVE_XATTR = 44
    SET_STORAGE_POLICY = 45
    TRUNCATE = 46
    APPEND = 47
    SET_QUOTA_BY_STORAGETYPE = 48
    ADD_ERASURE_CODING_POLICY = 49  # Hadoop 3: framed and shown raw
    ENABLE_ERASURE_CODING_POLICY = 50
    DISABLE_ERASURE_CODING_POLICY = 51
    REMOVE_ERASURE_CODING_POLICY = 52

    OPAQUE = 112  # of our own layout: the bytes of somebody else's transaction

    @property
    def hadoop_name(self) -> str:
        """As Hadoop prints it."""
        return f"OP_{self.name}"


HADOOP_3_ONLY = frozenset(
    {
        OpCode.ADD_ERASURE_CODING_POLICY,
        OpCode.ENABLE_ERASURE_CODING_POLICY,
        OpCode.DISABLE_ERASURE_CODING_POLICY,
        OpCode.REMOVE_ERASURE_CODING_POLICY,
    }
)
"""Their bodies are not taken apart."""

UNDECODABLE = frozenset({OpCode.DATANODE_ADD, OpCode.DATANODE_REMOVE})
"""Have a number and, in every layout we read, no decoder."""
