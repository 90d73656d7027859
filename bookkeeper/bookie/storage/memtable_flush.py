"""A memtable snapshot into the entry log: blocks of about 1 MiB, one write each, then the locations into the cache.

Block by block, so that whoever drives it may leave the disk to the journal in between.

Thread: storage worker. Nothing is synced here; the checkpoint does that before it writes the index (I-58).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat

from bookkeeper.bookie.storage.entry_log.format import SIZE
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.memtable import Memtable

_JOIN_BODY_SIZE_MAX = 2048
"""Up to this size one more copy of a run costs less than twice as many parts."""

_RUNS_MAX = 1000
"""Ledgers in one block; bounds what is published at once."""


class MemtableFlush:
    """Writes one snapshot after another."""

    def __init__(self, logs: EntryLogs, cache: LedgerCache, *, block_bytes: int) -> None:
        self._logs = logs
        self._cache = cache
        self._block_bytes = block_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._runs: list[tuple[int, Sequence[int], Sequence[int], int]] = []
        """Ledger id, entry ids, where their records start in the block, bytes with the 4-byte sizes."""
        self._known_size = -1
        self._known_prefix = b""

    def blocks(self, table: Memtable) -> Iterator[None]:
        """Write all of `table`, by ledger and entry, a block at each step; one table at a time.

        Entries of a block are readable from the log, and in the index cache, after its step. On NoWritableDisk the rest
        is still to be written, and writing all again is harmless.
        """
        self._clear()
        for ledger_id, entry_ids, bodies in table.runs():
            if len(bodies) == 1:
                self._take_one(ledger_id, entry_ids, bodies[0])
            else:
                yield from self._take_many(ledger_id, entry_ids, bodies)
            if self._size >= self._block_bytes or len(self._runs) >= _RUNS_MAX:
                self._write_block()
                yield
        self._write_block()

    def _take_one(self, ledger_id: int, entry_ids: Sequence[int], body: bytes) -> None:
        size = len(body)
        if size != self._known_size:
            self._known_size, self._known_prefix = size, SIZE.pack(size)
        self._parts.append(self._known_prefix)
        self._parts.append(body)
        self._runs.append((ledger_id, entry_ids, (self._size + SIZE.size,), size + SIZE.size))
        self._size += size + SIZE.size

    def _take_many(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> Iterator[None]:
        """Take a run, in as many pieces as it has blocks, a step each; the last block is left to be filled."""
        sizes = list(map(len, bodies))
        take = self._take_equal if min(sizes) == max(sizes) else self._take
        # ends[i]: bytes of records 0..i of this run
        ends: Sequence[int]
        if take == self._take_equal:
            step = sizes[0] + SIZE.size
            ends = range(step, step * len(sizes) + 1, step)
        else:
            ends = list(accumulate(size + SIZE.size for size in sizes))
        first, count = 0, len(bodies)
        while first < count:
            before = ends[first - 1] if first else 0
            room = self._block_bytes - self._size
            last = max(bisect_right(ends, before + room, first), first + 1)
            take(ledger_id, entry_ids[first:last], bodies[first:last], sizes[first:last])
            first = last
            if first < count:
                self._write_block()
                yield

    def _take(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes], sizes: list[int]) -> None:
        self._parts.extend(chain.from_iterable(zip(map(SIZE.pack, sizes), bodies, strict=True)))
        total = sum(sizes) + SIZE.size * len(sizes)
        starts = accumulate(sizes[:-1], lambda at, size: at + size + SIZE.size, initial=self._size + SIZE.size)
        self._runs.append((ledger_id, entry_ids, list(starts), total))
        self._size += total

    def _take_equal(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes], sizes: list[int]) -> None:
        """As `_take`, of bodies of one size: a third of the cost."""
        prefix, step = SIZE.pack(sizes[0]), sizes[0] + SIZE.size
        total = step * len(sizes)
        if sizes[0] <= _JOIN_BODY_SIZE_MAX:
            self._parts += (prefix, prefix.join(bodies))
        else:
            self._parts.extend(chain.from_iterable(zip(repeat(prefix), bodies)))
        start = self._size + SIZE.size
        self._runs.append((ledger_id, entry_ids, range(start, start + total, step), total))
        self._size += total

    def _write_block(self) -> None:
        if not self._runs:
            return
        base = self._logs.append(self._parts, self._size, [(run[0], run[3]) for run in self._runs])
        self._cache.publish(
            [(ledger_id, entry_ids, _shifted(starts, base)) for ledger_id, entry_ids, starts, _ in self._runs]
        )
        self._clear()

    def _clear(self) -> None:
        self._parts, self._runs, self._size = [], [], 0


def _shifted(starts: Sequence[int], base: int) -> Sequence[int]:
    if isinstance(starts, range):
        return range(base + starts.start, base + starts.stop, starts.step)
    return [base + start for start in starts]
