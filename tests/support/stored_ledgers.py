"""A ledger storage on a faulty disk, beside a journal and a dictionary that know what it should hold.

`StoredLedgers` does what a bookie does around its storage: journal first, mark after a checkpoint, replay at start.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import crc32c

from bookkeeper.bookie.gc.candidates import LedgerBytes
from bookkeeper.bookie.gc.compaction import LogCompaction, switch
from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFileSystem

SMALL = StorageSettings(
    memtable_bytes_max=1 << 20,
    index_cache_bytes_max=1 << 20,
    open_files_max=16,
    entry_log_bytes_max=4096,
    block_bytes=512,
)
"""Small bounds, so that a short test rolls logs, fills blocks and evicts files."""

KEY = b"k" * 20


def entry_body(
    ledger_id: int, entry_id: int, payload: bytes = b"payload", *, lac: int = -1, length: int = 100
) -> bytes:
    """A CRC32C body as a client packages it."""
    head = struct.pack(">qqqq", ledger_id, entry_id, lac, length)
    return head + crc32c.crc32c(payload, crc32c.crc32c(head)).to_bytes(4, "big") + payload


def lac_packet(ledger_id: int, lac: int) -> bytes:
    """An explicit LAC packet without digest."""
    return struct.pack(">qq", ledger_id, lac)


@dataclass
class StoredLedgers:
    """A storage, its twin, and the journal records since the start; `mark` is how many a checkpoint has covered."""

    ledger_dirs: Sequence[str] = ("/a",)
    index_dirs: Sequence[str] = ()
    settings: StorageSettings = SMALL
    fs: FaultyFileSystem = field(default_factory=FaultyFileSystem)
    journal: list[Callable[[LedgerStorage], object]] = field(default_factory=list)
    mark: int = 0
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    lacs: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new process on what is on the disk; nothing is replayed yet."""
        self.directories = LedgerDirectories(self.ledger_dirs, self.index_dirs)
        self.storage = LedgerStorage(self.fs, self.directories, self.settings)
        self.storage.open()

    def replay(self) -> None:
        """What a bookie does before it serves."""
        for record in self.journal[self.mark :]:
            record(self.storage)
        self.checkpoint()
        self.storage.replay_finished()

    def crash(self, rng: random.Random | None = None) -> None:
        """Power cut, and a new process. Replay is the caller's."""
        self.fs.crash(rng)
        self.start()

    def add(self, ledger_id: int, first: int, count: int, *, payload: bytes = b"payload", step: int = 1) -> None:
        """Add entries first, first + step, ..., with a key if the ledger has none."""
        if ledger_id not in self.keys:
            self.key(ledger_id)
        entry_ids = list(range(first, first + count * step, step))
        bodies = [entry_body(ledger_id, entry_id, payload) for entry_id in entry_ids]
        self._record(lambda storage: storage.add(ledger_id, entry_ids, bodies))
        self.entries.update(((ledger_id, entry_id), body) for entry_id, body in zip(entry_ids, bodies, strict=True))

    def key(self, ledger_id: int, key: bytes = KEY) -> None:
        """Give the ledger a key."""
        self._record(lambda storage: storage.set_master_key(ledger_id, key))
        self.keys[ledger_id] = key

    def fence(self, ledger_id: int) -> None:
        """Fence the ledger."""
        self._record(lambda storage: storage.set_fenced(ledger_id))
        self.fenced.add(ledger_id)

    def lac(self, ledger_id: int, lac: int) -> None:
        """Set the explicit LAC."""
        packet = lac_packet(ledger_id, lac)
        self._record(lambda storage: storage.set_explicit_lac(ledger_id, packet))
        self.lacs[ledger_id] = packet

    def _record(self, record: Callable[[LedgerStorage], object]) -> None:
        self.journal.append(record)
        record(self.storage)

    def flush(self) -> None:
        """Memtable to entry log and index cache; nothing is synced."""
        self.storage.rotate()
        self.storage.flush_snapshot()

    def checkpoint(self) -> None:
        """As the checkpointer: mark, rotate, checkpoint, and only then the mark counts."""
        mark = len(self.journal)
        self.storage.rotate()
        self.storage.checkpoint()
        self.mark = mark

    def delete(self, *ledger_ids: int, moved: bool = False) -> list[int]:
        """As the collector, after its proofs; the ledgers that were deleted."""
        doomed = self.storage.doom(ledger_ids)
        for ledger_id in doomed:  # from here on nobody may expect them, and a replay may bring them back
            self.forget(ledger_id)
        self.storage.delete(Deletion(tuple(doomed), moved=moved))
        self.storage.revive(doomed)
        return doomed

    def forget(self, ledger_id: int) -> None:
        """Expect nothing of this ledger any more."""
        self.entries = {key: body for key, body in self.entries.items() if key[0] != ledger_id}
        self.keys.pop(ledger_id, None)
        self.lacs.pop(ledger_id, None)
        self.fenced.discard(ledger_id)

    def compact(self, old_id: int, *, expected: LedgerBytes | None = None) -> int:
        """As the compactor, step by step; the entries copied."""
        logs = self.storage.entry_logs
        path = logs.path_of(old_id)
        assert path is not None
        compaction = LogCompaction(
            self.fs, logs, self.storage.ledger_cache, old_id=old_id, old_path=path, expected=expected
        )
        compaction.begin(self.directories.ledger_dirs[0])
        for _ in compaction.copy():
            pass
        compaction.settle()
        self.finish(compaction.new_id, old_id)
        return compaction.entries

    def finish(self, new_id: int, old_id: int) -> None:
        """Steps 5 and 6 of a compaction."""
        logs = self.storage.entry_logs
        path = logs.path_of(new_id)
        assert path is not None
        for _ in switch(self.fs, self.storage.ledger_cache, new_id=new_id, new_path=path, old_id=old_id):
            pass
        self.checkpoint()
        logs.end_compaction(new_id, old_id)

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        """As a bookie reads: on the reactor, then what is left cold."""
        warm = self.storage.read(ledger_id, entry_ids)
        if None not in warm:
            return [result for result in warm if result is not None]
        cold = self.storage.read_cold(ledger_id, entry_ids)
        assert all(one in (None, other) for one, other in zip(warm, cold, strict=True))
        return cold

    def check(self) -> None:
        """Everything is there, and nothing else; nobody thinks that anything is damaged."""
        assert self.storage.damage.all() == []
        by_ledger: dict[int, list[int]] = {}
        for ledger_id, entry_id in self.entries:
            by_ledger.setdefault(ledger_id, []).append(entry_id)
        for ledger_id, entry_ids in by_ledger.items():
            expected = [self.entries[ledger_id, entry_id] for entry_id in entry_ids]
            assert self.read(ledger_id, entry_ids) == expected, f"ledger {ledger_id}"
            last = max(entry_ids)
            assert self.storage.last_entry_id(ledger_id) == last
            absent = sorted(set(range(last + 3)) - set(entry_ids))
            assert self.read(ledger_id, absent) == [Status.NO_ENTRY] * len(absent)
        ledger_ids = {*by_ledger, *self.keys, *self.fenced, *self.lacs}
        for ledger_id in ledger_ids:
            assert self.storage.exists(ledger_id)
            assert self.storage.master_key(ledger_id) == self.keys.get(ledger_id)
            assert self.storage.is_fenced(ledger_id) == (ledger_id in self.fenced)
            assert self.storage.explicit_lac(ledger_id) == self.lacs.get(ledger_id)
        assert sorted(self.storage.ledger_ids()) == sorted(ledger_ids)
        assert self.read(1 << 60, [0]) == [Status.NO_LEDGER]
