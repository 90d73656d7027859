"""The write buffer: entries that are in the journal but not yet in an entry log. Pure.

A bookie has one that takes entries and up to two snapshots that are being flushed. Reads by another thread are safe
while the owner adds (they are single dict operations); everything else belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bookkeeper.bookie.storage.settings import ENTRY_OVERHEAD_BYTES

LEDGER_OVERHEAD_BYTES = 500
"""What one more ledger in the buffer costs: a dict and its place in another."""


class Memtable:
    """Bodies by ledger and entry. `size` counts bytes with Python's overhead; re-added entries count again."""

    __slots__ = ("_ledgers", "entry_count", "size")

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self.size = 0
        self.entry_count = 0

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._ledgers

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def add(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> int:
        """Store `bodies`, equally many; an entry that is there already is replaced. Return the bytes of the bodies."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            entries = self._ledgers[ledger_id] = {}
            self.size += LEDGER_OVERHEAD_BYTES
        count = len(bodies)
        if count == 1:
            entries[entry_ids[0]] = bodies[0]
            size = len(bodies[0])
        else:
            entries.update(zip(entry_ids, bodies, strict=True))
            size = sum(map(len, bodies))
        self.size += size + ENTRY_OVERHEAD_BYTES * count
        self.entry_count += count
        return size

    def entries(self, ledger_id: int) -> dict[int, bytes] | None:
        """The ledger's entries, not to be changed by the caller."""
        return self._ledgers.get(ledger_id)

    def ledger_ids(self) -> list[int]:
        """The ledgers that have entries here."""
        return list(self._ledgers)

    def runs(self) -> Iterator[tuple[int, Sequence[int], Sequence[bytes]]]:
        """Ledger id, entry ids ascending, their bodies; ledgers ascending."""
        ledgers = self._ledgers
        for ledger_id in sorted(ledgers):
            entries = ledgers[ledger_id]
            if len(entries) == 1:
                yield ledger_id, tuple(entries), tuple(entries.values())
            else:
                entry_ids = sorted(entries)
                yield ledger_id, entry_ids, list(map(entries.__getitem__, entry_ids))
