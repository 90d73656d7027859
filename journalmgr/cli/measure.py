"""What is measured of a journal: synced edits by concurrent callers, and replay. On the session's reactor.

sync      callers append, each one after the other; an append counts when it is durable
replay    a journal of so many transactions is read and applied (or taken apart) from the first on
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.cli.perf.latency import Latencies
from journalmgr.edit_log import EditLog
from journalmgr.edits.codec import decode, encode_body
from journalmgr.edits.fields import Permission
from journalmgr.edits.frame import FRAME_SIZE
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import Add, Close, Mkdir, Op
from journalmgr.model import FIRST_TXID, HADOOP_2_7, OPAQUE
from journalmgr.replaying import replay

if TYPE_CHECKING:
    from journalmgr.contract import JournalManager

WARM_UP_SHARE = 0.25
"""Of a measurement's time; thrown away."""

LOG_BATCH = 1000
"""Transactions that are logged before one flush, where only their number matters."""

OWNER = Permission("hdfs", "supergroup", 0o644)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """callers: concurrent. size: bytes of a record. per_flush: mean number of transactions."""

    callers: int
    size: int
    seconds: float
    edits: int
    flushes: int
    latencies: Latencies

    @property
    def per_s(self) -> float:
        """Synced edits a second."""
        return self.edits / self.seconds

    def to_json(self) -> dict[str, object]:
        """Plain values; latencies in milliseconds."""
        return {
            "callers": self.callers,
            "record_bytes": self.size,
            "seconds": round(self.seconds, 3),
            "edits_per_s": round(self.per_s),
            "p50_ms": round(self.latencies.percentile(50) * 1e3, 3),
            "p99_ms": round(self.latencies.percentile(99) * 1e3, 3),
            "edits_per_flush": round(self.edits / max(1, self.flushes), 1),
        }


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """kind: what the transactions are and what was done with them."""

    kind: str
    transactions: int
    size: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Transactions a second."""
        return self.transactions / self.seconds

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "kind": self.kind,
            "transactions": self.transactions,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
            "transactions_per_s": round(self.per_s),
        }


async def measure_sync(edit_log: EditLog, callers: int, size: int, seconds: float) -> SyncResult:
    """Append records of `size` bytes with `callers` callers for `seconds`; the first quarter is not counted.

    If the journal stalls all the time, the measurement continues until one record is counted.
    """
    payload = bytes(max(0, size - FRAME_SIZE))
    latencies = Latencies()
    begun = time.perf_counter()
    counting_from, until = begun + seconds * WARM_UP_SHARE, begun + seconds
    edits = 0
    flushes_before: int | None = None

    async def call() -> None:
        nonlocal edits, flushes_before
        while (start := time.perf_counter()) < until or not edits:
            await edit_log.append(payload)
            if start >= counting_from:
                if flushes_before is None:
                    flushes_before = edit_log.flushes
                edits += 1
                latencies.add(time.perf_counter() - start)

    await gatherResults([Deferred.fromCoroutine(call()) for _ in range(callers)], consumeErrors=True)
    counted_s = time.perf_counter() - counting_from
    return SyncResult(callers, size, counted_s, edits, edit_log.flushes - (flushes_before or 0) + 1, latencies)


def hdfs_operations(count: int) -> Iterator[Op]:
    """Directories of a hundred files each: MKDIR, then ADD and CLOSE; about so many operations."""
    inode = 16385
    for number in range(max(1, count // 201)):
        inode += 1
        directory = f"/user/hdfs/batch-{number:06d}" if number else "/user"
        if number == 0:
            yield Mkdir(inode_id=inode, path="/user", mtime=1, atime=1, permission=OWNER)
            inode += 1
            yield Mkdir(inode_id=inode, path="/user/hdfs", mtime=1, atime=1, permission=OWNER)
            inode += 1
            directory = "/user/hdfs/batch-000000"
        yield Mkdir(inode_id=inode, path=directory, mtime=1, atime=1, permission=OWNER)
        for file in range(100):
            inode += 1
            path = f"{directory}/part-{file:05d}"
            yield Add(
                inode_id=inode,
                path=path,
                replication=3,
                mtime=1,
                atime=1,
                block_size=134217728,
                permission=OWNER,
                client_name="DFSClient_NONMAPREDUCE_1_1",
                client_machine="127.0.0.1",
                overwrite=True,
            )
            yield Close(path=path, replication=3, mtime=1, atime=1, block_size=134217728, permission=OWNER)


async def fill_opaque(journal: JournalManager, count: int, size: int) -> None:
    """Write a journal of so many opaque transactions; it must be empty."""
    edit_log = EditLog(journal, OPAQUE)
    await edit_log.recover()
    await edit_log.open(FIRST_TXID)
    body = bytes(max(0, size - FRAME_SIZE))
    for _ in range(0, count, LOG_BATCH):
        for _ in range(LOG_BATCH):
            edit_log.log(OpCode.OPAQUE, body)
        await edit_log.sync()
    await edit_log.close()


async def fill_hdfs(journal: JournalManager, count: int) -> None:
    """The same with operations of HDFS."""
    edit_log = EditLog(journal, HADOOP_2_7)
    await edit_log.recover()
    await edit_log.open(FIRST_TXID)
    for number, op in enumerate(hdfs_operations(count)):
        edit_log.log(op.opcode, encode_body(op, HADOOP_2_7))
        if number % LOG_BATCH == LOG_BATCH - 1:
            await edit_log.sync()
    await edit_log.close()


async def measure_replay(journal: JournalManager, kind: str, namespace: Any = None) -> ReplayResult:
    """Read a whole journal. namespace: apply the operations to it; None only frames and checks them."""
    from journalmgr.namenode.namespace.apply import apply

    transactions = size = 0
    begun = time.perf_counter()
    async for batch in replay(journal, FIRST_TXID):
        transactions += len(batch.records)
        last = batch.records[-1]
        size += last.offset + last.size - batch.records[0].offset
        if namespace is not None:
            layout_version = batch.segment.layout_version
            for record in batch.records:
                apply(decode(record, layout_version), namespace)
    return ReplayResult(kind, transactions, size, time.perf_counter() - begun)
