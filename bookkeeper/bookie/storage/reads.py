"""Where an entry is read: active buffer, snapshots, index, entry log, in this order.

A flush publishes locations before it drops the snapshot, so an entry is always found in one of them. Nothing that goes
wrong here ever means "no such entry" (I-31).

Threads: `read` and `read_run` are the reactor's and never wait for a disk; `read_cold` and `held_cold` are the read
worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.logger import Logger

from bookkeeper.bookie.storage.entry_log.reads import LogReader, Results, stepping
from bookkeeper.bookie.storage.held import held_runs
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.files import DamagedPage
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.index.ledger_state import LedgerState
from bookkeeper.bookie.storage.write_buffers import WriteBuffers
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.wire.packed_bodies import PackedBodies

log = Logger()

RUN_PROBE = 16
"""Entries that must lie one behind the other before it is looked how many more do."""

RUN_BYTES_MAX = 256 * 1024
"""Of one run: what is not in memory as a whole is read in vain."""

_RETRIES_MAX = 10


class StoredReads:
    """certain: False once a write or sync failed; then nothing is denied any more (I-48)."""

    def __init__(
        self,
        cache: LedgerCache,
        buffers: WriteBuffers,
        *,
        warm: LogReader,
        cold: LogReader,
        certain: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._buffers = buffers
        self._warm_reader = warm
        self._cold_reader = cold
        self._certain = certain

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        """One result per id: the body, NO_LEDGER, NO_ENTRY (both certain: I-31) or IO_ERROR. Thread: reactor.

        None where the disk must be waited for: `read_cold` does. LAST_ENTRY means the last one held.
        """
        entries = self._buffers.active.entries(ledger_id)
        if entries is not None:
            bodies: Results = list(map(entries.get, entry_ids))
            if None not in bodies:
                return bodies
        self._cache.trim(self._buffers.__contains__)
        if not self._cache.is_known(ledger_id):
            return [None] * len(entry_ids)
        return self._look_up(ledger_id, entry_ids, wait=False)

    def read_cold(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        """As `read`, with blocking reads; no None, and nothing is raised for damaged files. Thread: read worker."""
        results = self._look_up(ledger_id, entry_ids, wait=True)
        for _ in range(_RETRIES_MAX):
            if None not in results:
                break
            results = self._look_up(ledger_id, entry_ids, wait=True)  # the ledger was evicted meanwhile
        return [Status.IO_ERROR if result is None else result for result in results]

    def read_run(self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int) -> PackedBodies | None:
        """Some consecutive entries of one size, from the first on, as they lie in the entry log. Thread: reactor.

        At least two of at most `count_max`, and of at most `size_max` bytes, 4 for each entry included. None, and
        nothing is said of any entry, where it is not that simple: `read` tells.
        """
        self._cache.trim(self._buffers.__contains__)
        if not self._cache.is_known(ledger_id):
            return None
        if any(table.entries(ledger_id) is not None for table in self._buffers.tables()):
            return None  # what is there is newer
        try:
            state = self._cache.load(ledger_id)
        except StorageError:
            return None
        if state is None:
            return None
        begun = self._cache.run_begun(state, first_entry_id, min(count_max, RUN_PROBE))
        step = begun[1] - begun[0] if len(begun) > 1 else 0
        if not 0 < 2 * step <= size_max or begun != stepping(begun[0], step, len(begun)):
            return None
        count = min(count_max, size_max // step, max(2, RUN_BYTES_MAX // step))
        locations = self._cache.run_begun(state, first_entry_id, count)
        first, count = begun[0], len(locations)
        while count > 1 and locations[:count] != stepping(first, step, count):
            count //= 2  # another size, another log, or an entry that was added again, lies in between
        return self._warm_reader.read_packed(ledger_id, first_entry_id, first, step, count) if count > 1 else None

    def held_cold(self, ledger_id: int, first: int, stop: int) -> list[range]:
        """The runs of entries held among the ids from `first` to `stop` - 1, ascending. Thread: read worker.

        Raises StorageError where that cannot be told for certain (I-31).
        """
        return held_runs(self._cache, self._buffers.tables(), ledger_id, first, stop)

    def _look_up(self, ledger_id: int, entry_ids: Sequence[int], *, wait: bool) -> Results:
        try:
            state = self._cache.load(ledger_id)
        except StorageError as error:
            if not isinstance(error, CorruptRecord):  # a damage was told when it was found, once
                log.error("Cannot read ledger {ledger_id}: {error}", ledger_id=ledger_id, error=error)
            return [Status.IO_ERROR] * len(entry_ids)
        if state is None:
            return [Status.NO_LEDGER if self._certain() else Status.IO_ERROR] * len(entry_ids)
        places: Sequence[int] = ()
        if LAST_ENTRY in entry_ids:
            last = state.last_entry_id
            if last < 0 and len(entry_ids) == 1:
                return [Status.NO_ENTRY if self._certain() else Status.IO_ERROR]
            places = [index for index, entry_id in enumerate(entry_ids) if entry_id == LAST_ENTRY and last >= 0]
            entry_ids = [last if entry_id == LAST_ENTRY else entry_id for entry_id in entry_ids]
        results: Results = [None] * len(entry_ids)
        missing = self._read_memory(ledger_id, entry_ids, results)
        if len(missing) == len(entry_ids) > 1 and (bodies := self._read_run(state, entry_ids, wait=wait)):
            return list(bodies)
        if missing:
            self._read_disk(state, entry_ids, missing, results, wait=wait)
        for index in places:
            if results[index] is Status.NO_ENTRY:  # of a page that was damaged: which one is the last is not known yet
                results[index] = Status.IO_ERROR
        return results

    def _read_memory(self, ledger_id: int, entry_ids: Sequence[int], results: Results) -> Sequence[int]:
        """Fill in what the buffers hold; return the places of the rest."""
        active, *snapshots = self._buffers.tables()
        missing: Sequence[int] = range(len(entry_ids))
        for table in (active, *reversed(snapshots)):
            entries = table.entries(ledger_id)
            if entries is None:
                continue
            for index in missing:
                results[index] = entries.get(entry_ids[index])
            missing = [index for index in missing if results[index] is None]
        return missing

    def _read_run(self, state: LedgerState, entry_ids: Sequence[int], *, wait: bool) -> list[bytes] | None:
        """Bodies of consecutive entries that lie one behind the other; None where it is not that simple."""
        first, count = entry_ids[0], len(entry_ids)
        if entry_ids[-1] - first != count - 1 or list(entry_ids) != list(range(first, first + count)):
            return None
        locations = self._cache.run(state, first, count)
        if locations is None:
            return None
        return (self._cold_reader if wait else self._warm_reader).read_run(state.ledger_id, first, locations)

    def _read_disk(
        self, state: LedgerState, entry_ids: Sequence[int], missing: Sequence[int], results: Results, *, wait: bool
    ) -> None:
        """Fill in `missing` from index and entry log. Without `wait` some may stay None."""
        wanted_ids = [entry_ids[index] for index in missing]
        locations = self._cache.locations(state, wanted_ids)
        unsure = {
            entry_id // PAGE_SLOTS for entry_id, location in zip(wanted_ids, locations, strict=True) if location is None
        }
        failed: set[int] = set()
        for number in sorted(unsure):
            try:
                self._cache.load_page(state, number, wait=wait)
            except StorageError as error:
                if not isinstance(error, DamagedPage):  # likewise
                    log.error("Cannot look up entries of ledger {id}: {error}", id=state.ledger_id, error=error)
                failed.add(number)
            # Looked up page by page: with a small cache the next page may evict this one.
            places = [place for place, entry_id in enumerate(wanted_ids) if entry_id // PAGE_SLOTS == number]
            found = self._cache.locations(state, [wanted_ids[place] for place in places])
            for place, location in zip(places, found, strict=True):
                locations[place] = location
        located: list[tuple[int, int, int]] = []
        for index, entry_id, location in zip(missing, wanted_ids, locations, strict=True):
            if location:
                located.append((location, entry_id, index))
            elif entry_id // PAGE_SLOTS in failed:  # of a damaged page what it does say is used
                results[index] = Status.IO_ERROR
            elif location == 0:
                results[index] = Status.NO_ENTRY if self._certain() else Status.IO_ERROR
        if located:
            reader = self._cold_reader if wait else self._warm_reader
            reader.read(state.ledger_id, located, results)
