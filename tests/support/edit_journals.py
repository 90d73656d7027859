"""A journal on the ledgers of a real cluster, written by our journal manager; blocking, for tests that are.

with EditJournal(zookeeper.address, ledgers_root) as journal:
    journal.finalised(1, records)        a segment, ended
    writer = journal.begun(11, records)  one that is being written
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from kazoo.client import KazooClient
from twisted.internet.defer import Deferred

import bookkeeper.blocking
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.config import ClientSettings
from bookkeeper.model import DigestType, LedgerState
from journalmgr.edits.codec import encode
from journalmgr.edits.fields import Permission
from journalmgr.edits.ops import Mkdir, Op
from journalmgr.ledger import LedgerJournal, LedgerJournalSettings, connect
from journalmgr.model import HADOOP_2_7, NamespaceInfo, Segment, TxId
from journalmgr.segment import finalised_name, print_max_txid, print_segment
from tests.support.cluster import with_long_timeouts

T = TypeVar("T")


class EditJournal:
    """One formatted journal with a namespace of its own. entry_size: bytes that an entry has, about."""

    def __init__(self, zookeeper: str, ledgers_root: str, *, entry_size: int = 500) -> None:
        self.root = f"/edits-{os.getpid()}-{os.urandom(4).hex()}"
        self.uri = f"bookkeeper://{zookeeper}{self.root}"
        self.options = {"journal": self.uri, "zkLedgersRootPath": ledgers_root}
        self.namespace = NamespaceInfo(int.from_bytes(os.urandom(3), "big"), "CID-edits", "BP-edits")
        self.zookeeper, self.ledgers_root = zookeeper, ledgers_root
        self._settings = LedgerJournalSettings(
            available_path=f"{ledgers_root}/available", output_buffer_size=entry_size
        )
        self._crossing = ReactorThread()
        self._opened: list[LedgerJournal] = []
        self.manager = self.open()
        self.call(lambda: self.manager.format(self.namespace))
        self.call(self.manager.recover_unfinalized)

    def call(self, what: Callable[[], Any]) -> Any:
        """Wait for what this begins on the reactor's thread."""
        return self._crossing.run(what)

    def open(self, explicit_lac_interval_s: float = 0.1) -> LedgerJournal:
        """Open the journal as another process. Its explicit LACs are sent within the interval; 0: never."""
        made = self.call(
            lambda: connect(
                [self.zookeeper],
                self.root,
                self._crossing.reactor,
                self.namespace,
                self._settings,
                with_long_timeouts(ClientSettings(explicit_lac_interval_s=explicit_lac_interval_s)),
                ledgers_root=self.ledgers_root,
                hostname="here/127.0.0.1",
            )
        )
        self._opened.append(made)
        return made

    def write(self, writer: Any, records: Sequence[bytes]) -> None:
        """Durable and acknowledged on return."""

        async def written() -> None:
            for record in records:
                writer.write([record])
            writer.set_ready_to_flush()
            await writer.flush()

        self.call(lambda: Deferred.fromCoroutine(written()))

    def begun(self, first: int, records: Sequence[bytes], layout: int = HADOOP_2_7) -> Any:
        """The writer of a segment in progress that holds these records."""
        writer = self.call(lambda: self.manager.start_segment(TxId(first), layout))
        self.write(writer, records)
        return writer

    def end(self, writer: Any) -> None:
        """Finalise what the writer wrote."""
        self.call(writer.close)
        self.call(lambda: self.manager.finalize_segment(writer.first_txid, writer.last_txid))

    def finalised(self, first: int, records: Sequence[bytes], layout: int = HADOOP_2_7) -> None:
        """A finalised segment."""
        self.end(self.begun(first, records, layout))

    def segments(self) -> list[Segment]:
        """As the list has them."""
        return self.call(self.manager.segments)

    def crash(self) -> None:
        """The writing process is gone with its sessions; another takes its place, which has not recovered yet."""
        self.call(self.manager.close)
        self._opened.remove(self.manager)
        self.manager = self.open()

    def planted(
        self, first: int, last: int, entries: Sequence[bytes], *, close: bool = True, layout: int = HADOOP_2_7
    ) -> int:
        """A finalised segment whose ledger has these entries, whatever is in them; its ledger's id."""
        with bookkeeper.blocking.connect(f"zk://{self.zookeeper}{self.ledgers_root}", with_long_timeouts()) as client:
            ledger = client.create(digest=DigestType.MAC, password=b"")
            for entry in entries:
                ledger.append(entry)
            if close:
                ledger.close()
            else:
                ledger.abort()
        segment = Segment(TxId(first), TxId(last), layout, ledger.id)
        path = f"{self.root}/ledgers/{finalised_name(first, last)}"
        with self._znodes() as znodes:
            znodes.create(path, print_segment(segment))
            znodes.ensure_path(f"{self.root}/maxtxid")
            znodes.set(f"{self.root}/maxtxid", print_max_txid(last))
        return ledger.id

    def is_closed(self, ledger_id: int) -> bool:
        """Whether the end of a ledger is fixed."""
        with bookkeeper.blocking.connect(f"zk://{self.zookeeper}{self.ledgers_root}") as client:
            return client.metadata(ledger_id).state is LedgerState.CLOSED

    def delete_ledger(self, segment: Segment) -> None:
        """As an accident would."""
        assert segment.ledger_id is not None
        with bookkeeper.blocking.connect(f"zk://{self.zookeeper}{self.ledgers_root}") as client:
            client.delete(segment.ledger_id)

    def remove_record(self, segment: Segment) -> None:
        """Take a segment out of the list, as an accident would."""
        with self._znodes() as znodes:
            znodes.delete(f"{self.root}/ledgers/{segment.name}")

    @contextmanager
    def _znodes(self) -> Iterator[KazooClient]:
        client = KazooClient(self.zookeeper)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for journal in self._opened:
            self.call(journal.close)
        self._crossing.stop()
        remove_journal(self.zookeeper, self.root)


def remove_journal(zookeeper: str, root: str) -> None:
    """Take a journal's znodes away: who looks for orphans in another cluster here takes its ledgers for those."""
    client = KazooClient(zookeeper)
    client.start()
    try:
        client.delete(root, recursive=True)
    finally:
        client.stop()
        client.close()


def encoded(ops: Iterable[Op], first: int, layout: int = HADOOP_2_7) -> list[bytes]:
    """Records with consecutive txids."""
    records = []
    for txid, op in enumerate(ops, first):
        op.txid = txid
        records.append(encode(op, layout))
    return records


def mkdirs(first: int, last: int) -> list[bytes]:
    """A directory named after each txid first..last."""
    owned = Permission("alice", "staff", 0o755)
    ops = [Mkdir(inode_id=txid, path=f"/d/{txid}", mtime=1_700_000_000_000 + txid, permission=owned)
           for txid in range(first, last + 1)]  # fmt: skip
    return encoded(ops, first)


def with_wrong_checksum(record: bytes) -> bytes:
    """The record with one bit of its body changed."""
    return record[:15] + bytes([record[15] ^ 1]) + record[16:]
