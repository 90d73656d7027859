"""Which entries of a ledger are held: write buffers first, then the index, as a read looks.

A flush publishes locations before it drops the snapshot, so an entry that is in no buffer any more is in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import or_

from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.memtable import Memtable
from bookkeeper.errors import StorageError

_RETRIES_MAX = 10


def held_runs(cache: LedgerCache, tables: Sequence[Memtable], ledger_id: int, first: int, stop: int) -> list[range]:
    """The runs of entries held among the ids from `first` to `stop` - 1, ascending. Blocking.

    Raises StorageError where that cannot be told for certain.
    """
    flags = bytearray(stop - first)
    for table in tables:
        entries = table.entries(ledger_id)
        if entries is None:
            continue
        # list() of a dictionary is one step, whoever adds meanwhile.
        for entry_id in list(entries) if len(entries) < len(flags) else range(first, stop):
            if first <= entry_id < stop and entry_id in entries:
                flags[entry_id - first] = 1
    for number in range(first // PAGE_SLOTS, -(-stop // PAGE_SLOTS)):
        entry_ids = range(max(first, number * PAGE_SLOTS), min(stop, (number + 1) * PAGE_SLOTS))
        locations = _page_locations(cache, ledger_id, number, entry_ids)
        place = slice(entry_ids.start - first, entry_ids.stop - first)
        flags[place] = bytes(map(or_, flags[place], map(bool, locations)))
    return runs_of(flags, first)


def _page_locations(cache: LedgerCache, ledger_id: int, number: int, entry_ids: range) -> Sequence[int | None]:
    for _ in range(_RETRIES_MAX):
        state = cache.load(ledger_id)
        if state is None:
            return [0] * len(entry_ids)
        locations = cache.locations(state, entry_ids)
        if None not in locations:
            return locations
        cache.load_page(state, number, wait=True)
    raise StorageError(f"page {number} of ledger {ledger_id} was evicted {_RETRIES_MAX} times while it was read")


def runs_of(flags: bytes | bytearray, first: int) -> list[range]:
    """The runs of 1 in `flags`, counted from `first` on."""
    runs: list[range] = []
    start = flags.find(1)
    while start >= 0:
        end = flags.find(0, start)
        if end < 0:
            end = len(flags)
        runs.append(range(first + start, first + end))
        start = flags.find(1, end)
    return runs
