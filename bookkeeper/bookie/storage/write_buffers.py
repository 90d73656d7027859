"""The write buffers of a bookie: one that takes entries, and full ones that wait for the disk, oldest first.

Threads: the reactor adds and rotates, the storage worker drops what it has written, anybody looks up.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from bookkeeper.bookie.storage.memtable import Memtable

SNAPSHOTS_MAX = 2
"""Full write buffers that wait for the disk. When both exist and the active one is full too, adds are pushed back."""


class WriteBuffers:
    """active: takes entries. snapshots: are being written, in order."""

    def __init__(self) -> None:
        self.active = Memtable()
        self.snapshots: tuple[Memtable, ...] = ()
        self._lock = Lock()

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self.active or any(ledger_id in table for table in self.snapshots)

    def __bool__(self) -> bool:
        return bool(self.active) or bool(self.snapshots)

    def tables(self) -> tuple[Memtable, ...]:
        """The active one, then the snapshots, oldest first: all at one moment."""
        with self._lock:
            return (self.active, *self.snapshots)

    def among(self, ledger_id: int, entry_ids: Iterable[int]) -> set[int]:
        """Those of the entries that are in a buffer. Thread: any."""
        tables = [entries for table in self.tables() if (entries := table.entries(ledger_id)) is not None]
        return {entry_id for entry_id in entry_ids if any(entry_id in entries for entries in tables)}

    @property
    def can_rotate(self) -> bool:
        """True when a snapshot slot is free."""
        return len(self.snapshots) < SNAPSHOTS_MAX

    def rotate(self) -> bool:
        """Make the active one a snapshot. False when it is empty or no slot is free. Thread: reactor."""
        if not self.active or not self.can_rotate:
            return False
        with self._lock:
            self.snapshots = (*self.snapshots, self.active)
            self.active = Memtable()
        return True

    def drop_oldest(self) -> None:
        """It is written, and the index says where. Thread: storage worker."""
        with self._lock:
            self.snapshots = self.snapshots[1:]

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return sum(table.size for table in self.tables())
