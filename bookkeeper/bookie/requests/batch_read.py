"""Batch reads: consecutive entries of one ledger in one answer, bounded by count and size.

As Apache does: the size counts the whole frame, the first entry comes however large it is, and the first one missing,
unreadable or not fitting ends the batch. Entries of one size that lie one behind the other in an entry log, as most do,
are sent as they lie there, with the ids of each checked and none of them cut out. Others are looked up many at a time;
how many follows the size of those that came before, so that little is read in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookkeeper.bookie.requests.entry_reads import EntryReads, Results
from bookkeeper.bookie.requests.interfaces import EntryStorage
from bookkeeper.bookie.requests.lru_map import RecentMap
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.wire.packed_bodies import BodyPieces

ANSWER_BYTES = 24 + 8 + 4
"""Of the frame beside its entries, which take 4 more each. Source: Apache 4.18 BatchedReadEntryProcessor."""

LOOK_UP_FIRST = 16
"""Entries looked up together while the size of the ledger's entries is not known."""

LOOK_UP_MAX = 128
"""At most so many, whatever the sizes so far: those that follow may be as large as a frame."""

_SIZES_MAX = 1024

OnBatch = Callable[[Status, Sequence[bytes]], None]


class BatchReads:
    """Thread: reactor. bytes_max: of a whole answer, unless its first entry alone is larger."""

    def __init__(self, storage: EntryStorage, reads: EntryReads, *, bytes_max: int) -> None:
        self._storage = storage
        self._reads = reads
        self._bytes_max = bytes_max
        self._sizes: RecentMap[int, int] = RecentMap(_SIZES_MAX)

    def read(self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int, on_batch: OnBatch) -> None:
        """Look up; OK with at least one body, or why there is no first one. The ledger's state must be loaded.

        count_max: <= 0 for any number. size_max: of the answer; too little for two entries means one.
        LAST_ENTRY reads the last one alone.
        """
        if first_entry_id == LAST_ENTRY:
            count = 1
        else:
            last = self._storage.last_entry_id(ledger_id)
            held_max = 1 if last is None else max(1, last - first_entry_id + 1)
            count = min(held_max, count_max) if count_max > 0 else held_max
        size_max = min(size_max, self._bytes_max)
        _Batch(self._storage, self._reads, self._sizes, ledger_id, first_entry_id, count, size_max, on_batch).go()


class _Batch:
    """One batch on its way."""

    def __init__(
        self,
        storage: EntryStorage,
        reads: EntryReads,
        sizes: RecentMap[int, int],
        ledger_id: int,
        first_entry_id: int,
        count: int,
        size_max: int,
        on_batch: OnBatch,
    ) -> None:
        self._storage = storage
        self._reads = reads
        self._sizes = sizes
        self._ledger_id = ledger_id
        self._next_id = first_entry_id
        self._count_left = count
        self._bytes_left = size_max - ANSWER_BYTES
        self._on_batch = on_batch
        self._pieces: list[Sequence[bytes]] = []
        self._looking_up = False
        self._goes_on = False

    def go(self) -> None:
        """Look up one lot of entries after the other; a loop, since those in memory come inside the call."""
        if self._looking_up:
            self._goes_on = True
            return
        self._looking_up = self._goes_on = True
        try:
            while self._goes_on:
                self._goes_on = False
                self._look_up()
        finally:
            self._looking_up = False

    def _take_run(self) -> bool:
        """Take the next entries as they lie in the log. False where that cannot be."""
        if self._count_left < 2 or self._next_id < 0:
            return False
        run = self._storage.read_run(self._ledger_id, self._next_id, self._count_left, self._bytes_left)
        if run is None:
            return False
        self._pieces.append(run)
        self._next_id += len(run)
        self._count_left -= len(run)
        self._bytes_left -= len(run.framed)
        self._sizes.put(self._ledger_id, run.body_size)
        self._go_on_or_answer()
        return True

    def _go_on_or_answer(self) -> None:
        if self._count_left > 0 and self._bytes_left > 0:
            self.go()
        else:
            self._answer()

    def _answer(self) -> None:
        pieces = self._pieces
        self._on_batch(Status.OK, pieces[0] if len(pieces) == 1 else BodyPieces(pieces))

    def _look_up(self) -> None:
        """Look up the next entries, as many as will fit if they are like those before."""
        if self._take_run():
            return
        size = self._sizes.get(self._ledger_id)
        fitting = LOOK_UP_FIRST if size is None else min(max(1, self._bytes_left // (size + 4)), LOOK_UP_MAX)
        if self._bytes_left <= 0:
            fitting = 1
        count = min(fitting, self._count_left)
        entry_ids = [self._next_id] if count == 1 else list(range(self._next_id, self._next_id + count))
        self._reads.read(self._ledger_id, entry_ids, partial(self._on_results, count))

    def _on_results(self, count: int, results: Results) -> None:
        taken, size = self._take_all(results) or self._take(results)
        if taken:
            self._sizes.put(self._ledger_id, max(1, size // taken))
        self._next_id += count
        self._count_left -= count
        if taken == count:
            self._go_on_or_answer()
        elif self._pieces:
            self._answer()
        else:
            status = results[0]
            assert isinstance(status, Status)
            self._on_batch(status, [])

    def _take_all(self, results: Results) -> tuple[int, int] | None:
        """As `_take`, where all are there and fit; None, and nothing done, where not."""
        found = [result for result in results if type(result) is bytes]
        size = sum(map(len, found))
        left = self._bytes_left - size - 4 * len(found)
        if len(found) != len(results) or left < 0:
            return None
        self._bytes_left = left
        self._single_bodies().extend(found)
        return len(found), size

    def _single_bodies(self) -> list[bytes]:
        """Where bodies go that were found one by one."""
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, list):
            return last
        found: list[bytes] = []
        self._pieces.append(found)
        return found

    def _take(self, results: Results) -> tuple[int, int]:
        """Take what is there and fits, up to the first that is not or does not; their number and bytes."""
        found: list[bytes] = []
        for result in results:
            if not isinstance(result, bytes):
                break
            self._bytes_left -= len(result) + 4
            if (found or self._pieces) and self._bytes_left < 0:
                break
            found.append(result)
        if found:
            self._single_bodies().extend(found)
        return len(found), sum(map(len, found))
