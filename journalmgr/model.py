"""Values of the edit log: transaction ids, namespaces, segments. Pure.

    txid      1, 2, 3, ...: one per transaction, consecutive over all segments (I-81)
    segment   the transactions first..last of one writer's turn; in progress until it is finalised
    namespace what a journal belongs to; a journal of another one is refused (I-87)

Source: journalmgr/FORMATS.md 2.2, 2.4, 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NewType

TxId = NewType("TxId", int)

INVALID_TXID = TxId(-12345)
"""What Hadoop says where there is no txid."""

FIRST_TXID = TxId(1)
"""The first txid of a journal."""

HADOOP_2_7 = -63
"""Layout version of the edits that Hadoop 2.7 writes: the default for HDFS transactions."""

OPAQUE = 1
"""Layout version of transactions that only their server understands. Hadoop's are negative, so neither is mistaken."""

UNKNOWN_LAYOUT = 0
"""Of a segment that is listed by its name, and whose content does not say its layout: whoever reads it fails."""


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """What a journal is bound to when it is formatted.

    namespace_id, cluster_id, block_pool_id: compared when a writer opens the journal. The rest is kept for the record.
    ctime: milliseconds, changed by upgrades. capabilities: bits that Hadoop 2.7 stores; None leaves the field out, as
    releases before 2.7 do, which cannot read it.
    """

    namespace_id: int
    cluster_id: str
    block_pool_id: str
    ctime: int = 0
    layout_version: int = HADOOP_2_7
    build_version: str = "pybookkeeper"
    software_version: str = "2.7.7"
    capabilities: int | None = 1

    def is_same(self, other: NamespaceInfo) -> bool:
        """Whether both name the same namespace."""
        return (self.namespace_id, self.cluster_id, self.block_pool_id) == (
            other.namespace_id,
            other.cluster_id,
            other.block_pool_id,
        )

    def __str__(self) -> str:
        return (
            f"namespace id {self.namespace_id}, cluster {self.cluster_id or '(none)'}, "
            f"block pool {self.block_pool_id or '(none)'}"
        )


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Transactions first_txid..last_txid of a journal, both inclusive; ordered by first_txid.

    last_txid: None while the segment is in progress: its end is known only to whoever reads or recovers it.
    layout_version: how its records are encoded; UNKNOWN_LAYOUT where that cannot be read. ledger_id: where they are,
    for a journal on ledgers. name: how the journal calls it (a znode or a file), for messages.
    """

    first_txid: TxId
    last_txid: TxId | None
    layout_version: int
    ledger_id: int | None = None
    name: str = ""

    @property
    def in_progress(self) -> bool:
        """Not finalised yet."""
        return self.last_txid is None

    def finalised(self, last_txid: TxId, name: str) -> Segment:
        """The same segment once its end is fixed."""
        return replace(self, last_txid=last_txid, name=name)

    def covers(self, txid: int) -> bool:
        """Whether the transaction is in it; of a segment in progress everything from its first on may be."""
        return self.first_txid <= txid and (self.last_txid is None or txid <= self.last_txid)

    def __str__(self) -> str:
        last = "in progress" if self.last_txid is None else str(self.last_txid)
        return f"{self.first_txid}..{last}" + (f" ({self.name})" if self.name else "")
