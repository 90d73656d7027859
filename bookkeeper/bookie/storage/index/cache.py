"""Ledgers in memory: keys, fences, LACs and locations, all of them bounded unless a checkpoint still has to write them.

    absent     ledgers that certainly have no index file (a few are remembered)
    doomed     being deleted: looked up they are absent, whatever files are still there (I-63)
    loaded     state in memory; evicted once clean, not in the write buffer and not used for a while
    pages      evicted when clean, those of ledgers not used for a while first

"Not used for a while": a look-up only marks the state; whoever evicts goes round, takes marks off and passes by (the
"second chance" of page caches). Keeping exact order would cost a lock and a move at every look-up.

Unknown is never taken for "no": a ledger is absent only after every index directory said so, and whatever was read from
a file while somebody changed the same thing in memory is read again.

Thread: any; one lock, taken per batch, and not at all to look up what is in memory. Only the reactor evicts ledgers
(`trim`, `doom`): a state it looked up stays valid.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from threading import Lock

from bookkeeper.bookie.storage.index.files import DamagedPage, IndexFiles
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.index.ledger_state import IndexPage, LedgerState
from bookkeeper.errors import StorageError

ABSENT_MAX = 10_000
_RELOADS_MAX = 100
_TRIM_BATCH = 256
_PUBLISHED_AT_ONCE = 64
"""Runs recorded under one hold of the lock, about 0.1 ms; the reactor may wait for it."""


class LedgerCache:
    """States and pages of ledgers.

    bytes_max: memory for clean and dirty pages; only clean ones can be evicted, `dirty_bytes` tells how far it is.
    ledgers_max: clean ledgers kept.
    """

    def __init__(self, index_files: IndexFiles, *, bytes_max: int, ledgers_max: int) -> None:
        self.lock = Lock()
        self._index_files = index_files
        self._bytes_max = bytes_max
        self._ledgers_max = ledgers_max
        self._states: OrderedDict[int, LedgerState] = OrderedDict()
        self._absent: set[int] = set()
        self._doomed: set[int] = set()
        self._dirty: dict[int, LedgerState] = {}
        self._to_reload: set[int] = set()  # their highest entry may be lower than the state says
        self._epoch = 0  # changes when a ledger is created or evicted
        self._no_room_below = 0  # an eviction that found nothing is not repeated before as many bytes are there
        self._dirty_bytes = 0
        self.page_bytes = 0
        self.page_loads = 0
        self.page_evictions = 0

    def __len__(self) -> int:
        return len(self._states)

    # --- ledgers ------------------------------------------------------------------------------------------------------

    def get(self, ledger_id: int) -> LedgerState | None:
        """The state if it is in memory."""
        state = self._states.get(ledger_id)
        if state is not None:
            state.used = True
        return state

    def is_known(self, ledger_id: int) -> bool:
        """True when `load` needs no disk."""
        return ledger_id in self._states or ledger_id in self._absent or ledger_id in self._doomed

    def load(self, ledger_id: int) -> LedgerState | None:
        """The state, from the index file if need be (blocking); None when the ledger certainly is not there.

        Raises StorageError when that cannot be told.
        """
        for _ in range(_RELOADS_MAX):
            state = self._states.get(ledger_id)
            if state is not None:
                state.used = True
                return state
            if ledger_id in self._absent or ledger_id in self._doomed:
                return None
            epoch = self._epoch
            try:
                loaded = self._index_files.load(ledger_id)
            except OSError as error:
                raise StorageError(f"cannot read the index file of ledger {ledger_id}: {error}") from error
            with self.lock:
                if epoch != self._epoch or ledger_id in self._states:
                    continue  # created, evicted or loaded by another thread meanwhile: that state counts
                if loaded is None:
                    if len(self._absent) >= ABSENT_MAX:
                        self._absent.clear()
                    self._absent.add(ledger_id)
                    return None
                state = LedgerState(ledger_id)
                state.master_key = loaded.header.master_key or None
                state.fenced = loaded.header.fenced
                state.explicit_lac = loaded.header.explicit_lac
                state.last_entry_id = loaded.last_entry_id
                state.directory = loaded.directory
                state.slot_count = loaded.slot_count
                self._states[ledger_id] = state
                if loaded.last_page is not None and loaded.last_slots is not None:
                    self._add_page(state, loaded.last_page, IndexPage(loaded.last_slots, complete=loaded.certain))
                    self._evict_pages(keep=state, keep_number=loaded.last_page)
                if not loaded.header.whole:
                    self._header_changed(state)
                return state
        raise StorageError(f"ledger {ledger_id} could not be loaded: other ledgers came and went {_RELOADS_MAX} times")

    def create(self, ledger_id: int) -> LedgerState:
        """The state; a new one, to be written at the next checkpoint, for a ledger that certainly is not there."""
        state = self.load(ledger_id)
        if state is not None:
            return state
        with self.lock:
            state = self._states.get(ledger_id)
            if state is None:
                if ledger_id in self._doomed:
                    raise StorageError(f"ledger {ledger_id} is being deleted here; its requests should have waited")
                state = self._states[ledger_id] = LedgerState(ledger_id)
                self._absent.discard(ledger_id)
                self._epoch += 1
                self._header_changed(state)
            return state

    def change_header(self, state: LedgerState, change: Callable[[LedgerState], None]) -> None:
        """Apply a change of key, fence or LAC and have the next checkpoint write it."""
        with self.lock:
            change(state)
            self._header_changed(state)

    def _header_changed(self, state: LedgerState) -> None:
        state.header_version += 1
        self._dirty[state.ledger_id] = state

    def trim(self, in_use: Callable[[int], bool]) -> None:
        """Evict clean ledgers beyond the bound, those not used since the last round first. Thread: reactor.

        in_use: ledgers with entries in a write buffer; they stay, as do dirty ones.
        """
        if self._to_reload:
            self._forget_for_reload(in_use)
        if len(self._states) <= self._ledgers_max:
            return
        with self.lock:
            # Those that stay go to the end, so that each call looks at others.
            for ledger_id in list(islice(self._states, _TRIM_BATCH)):
                state = self._states[ledger_id]
                if state.used or ledger_id in self._dirty or in_use(ledger_id):
                    state.used = False
                    self._states.move_to_end(ledger_id)
                    continue
                self._forget(ledger_id)
                if len(self._states) <= self._ledgers_max:
                    return

    def _forget_for_reload(self, in_use: Callable[[int], bool]) -> None:
        with self.lock:
            for ledger_id in list(self._to_reload):
                if ledger_id not in self._dirty and not in_use(ledger_id):
                    self._to_reload.discard(ledger_id)
                    self._forget(ledger_id)

    def doom(self, ledger_ids: Iterable[int], in_use: Callable[[int], bool]) -> list[int]:
        """Forget these ledgers, whose files are to be deleted; return those for which that may be. Thread: reactor.

        Not those with something that no file has yet, nor those `in_use` (in a write buffer). Until `revive` they are
        absent, and must not be created: their keyed requests wait.
        """
        with self.lock:
            doomed = [
                ledger_id
                for ledger_id in ledger_ids
                if ledger_id not in self._dirty and ledger_id not in self._doomed and not in_use(ledger_id)
            ]
            for ledger_id in doomed:
                self._doomed.add(ledger_id)
                self._forget(ledger_id)
        return doomed

    def revive(self, ledger_ids: Iterable[int]) -> None:
        """Look these up in their files again: those are gone, or their deletion was given up."""
        with self.lock:
            self._doomed.difference_update(ledger_ids)
            self._epoch += 1

    def _forget(self, ledger_id: int) -> None:
        self._epoch += 1
        state = self._states.get(ledger_id)
        if state is not None:
            for number in list(state.pages):
                self._drop_page(state, number)
            del self._states[ledger_id]

    def ledger_ids(self) -> list[int]:
        """Ledgers in memory."""
        with self.lock:
            return list(self._states)

    # --- locations ----------------------------------------------------------------------------------------------------

    def locations(self, state: LedgerState, entry_ids: Sequence[int]) -> list[int | None]:
        """For each id its location, 0 for "no entry", None when `load_page` must come first."""
        with self.lock:
            return list(map(state.location, entry_ids))

    def run(self, state: LedgerState, first_entry_id: int, count: int) -> array[int] | None:
        """Locations of consecutive entries; None unless memory has them all."""
        with self.lock:
            return state.run(first_entry_id, count)

    def run_begun(self, state: LedgerState, first_entry_id: int, count: int) -> array[int]:
        """The same, as many of them from the first on as memory has."""
        with self.lock:
            return state.run_begun(first_entry_id, count)

    def load_page(self, state: LedgerState, number: int, *, wait: bool) -> bool:
        """Complete a page from the file. False when that needs a blocking read and `wait` is False.

        Raises DamagedPage (what the page says is in memory, its zeros are not known to be any), CorruptRecord,
        StorageError.
        """
        for _ in range(_RELOADS_MAX):
            with self.lock:
                page = state.pages.get(number)
                directory, slot_count, generation = state.directory, state.slot_count, state.generation
                if directory is None or number * PAGE_SLOTS >= slot_count or (page is not None and page.complete):
                    return True
            damaged: DamagedPage | None = None
            try:
                slots = self._index_files.read_page(directory, state.ledger_id, number, slot_count, wait=wait)
            except DamagedPage as error:
                slots, damaged = error.slots[:], error
            except OSError as error:
                raise StorageError(f"cannot read the index file of ledger {state.ledger_id}: {error}") from error
            if slots is None:
                return False
            with self.lock:
                if generation != state.generation:
                    continue
                if self._states.get(state.ledger_id) is not state:
                    return True
                page = state.pages.get(number)
                if page is None:
                    self._add_page(state, number, IndexPage(slots, complete=damaged is None))
                else:
                    before = page.size
                    page.merge_file(slots, complete=damaged is None)
                    self.page_bytes += page.size - before
                self.page_loads += 1
                self._evict_pages(keep=state, keep_number=number)
            if damaged is not None:
                raise damaged
            return True
        raise StorageError(f"page {number} of ledger {state.ledger_id} changed {_RELOADS_MAX} times while it was read")

    def publish(self, runs: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> None:
        """Record where entries are: (ledger id, entry ids ascending, locations). Thread: storage worker.

        The ledgers are in a write buffer, hence loaded.
        """
        for start in range(0, len(runs), _PUBLISHED_AT_ONCE):
            with self.lock:
                for ledger_id, entry_ids, locations in runs[start : start + _PUBLISHED_AT_ONCE]:
                    state = self._states[ledger_id]
                    grown, dirtied = state.put(entry_ids, locations)
                    self.page_bytes += grown
                    if entry_ids[-1] > state.last_entry_id:
                        state.last_entry_id = entry_ids[-1]
                    self._dirty[ledger_id] = state
                    self._dirty_bytes += dirtied
        with self.lock:
            self._evict_pages()

    def relocate(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int], *, old_log_id: int) -> int:
        """Give those of the entries (ids ascending) that lie in the old log their new locations; return their number.

        Those that have them already are written once more: an earlier process may have done so, unsynced (I-62).
        A ledger that was deleted has none. Thread: storage worker, as all that changes locations. Raises StorageError.
        """
        for _ in range(_RELOADS_MAX):
            state = self.load(ledger_id)
            if state is None:
                return 0
            with self.lock:
                if self._states.get(ledger_id) is not state:
                    continue  # evicted meanwhile
                now = list(map(state.location, entry_ids))
                if None not in now:
                    return self._relocate(state, entry_ids, locations, now, old_log_id)
            for number in {entry_id // PAGE_SLOTS for entry_id, old in zip(entry_ids, now, strict=True) if old is None}:
                self.load_page(state, number, wait=True)
        raise StorageError(f"ledger {ledger_id} was evicted {_RELOADS_MAX} times while its locations were changed")

    def _relocate(
        self,
        state: LedgerState,
        entry_ids: Sequence[int],
        locations: Sequence[int],
        now: Sequence[int | None],
        old_log_id: int,
    ) -> int:
        places = [
            place
            for place, (old, new) in enumerate(zip(now, locations, strict=True))
            if old and (old >> 32 == old_log_id or old == new)
        ]
        if places:
            grown, dirtied = state.put([entry_ids[place] for place in places], [locations[place] for place in places])
            self.page_bytes += grown
            self._dirty[state.ledger_id] = state
            self._dirty_bytes += dirtied
        return len(places)

    def located(self, ledger_id: int, entry_ids: Sequence[int]) -> list[int]:
        """Where the entries are; 0: not here, as all of a ledger that is not. Blocking. Raises StorageError."""
        for _ in range(_RELOADS_MAX):
            state = self.load(ledger_id)
            if state is None:
                return [0] * len(entry_ids)
            found = self.locations(state, entry_ids)
            known = [location for location in found if location is not None]
            if len(known) == len(found):
                return known
            for number in {
                entry_id // PAGE_SLOTS for entry_id, place in zip(entry_ids, found, strict=True) if place is None
            }:
                self.load_page(state, number, wait=True)
        raise StorageError(f"ledger {ledger_id} was evicted {_RELOADS_MAX} times while it was looked up")

    def surely_located(self, ledger_id: int, entry_ids: Sequence[int]) -> list[int]:
        """As `located`, for who destroys what lies elsewhere: no word of a damaged page counts.

        Raises DamagedPage besides.
        """
        numbers = {entry_id // PAGE_SLOTS for entry_id in entry_ids}
        for _ in range(_RELOADS_MAX):
            state = self.load(ledger_id)
            if state is None:
                return [0] * len(entry_ids)
            for number in numbers:
                self.load_page(state, number, wait=True)
            found = [location for location in self.locations(state, entry_ids) if location is not None]
            if len(found) == len(entry_ids):
                return found
        raise StorageError(f"ledger {ledger_id} was evicted {_RELOADS_MAX} times while it was looked up")

    def mend_page(
        self, ledger_id: int, number: int, settle: Callable[[Sequence[int], Sequence[int]], array[int] | str]
    ) -> str | None:
        """Complete a damaged page: all its slots as `settle` (what the file names, what memory does) says, or why not.

        The next checkpoint writes it. Why it was not done, or None. Thread: storage worker. Raises StorageError.
        """
        for _ in range(_RELOADS_MAX):
            state = self.load(ledger_id)
            if state is None:
                return "the ledger is not here any more"
            named: array[int] | None = None
            try:
                self.load_page(state, number, wait=True)
            except DamagedPage as error:
                named = error.slots
            with self.lock:
                page, generation = state.pages.get(number), state.generation
                if page is None:
                    continue  # evicted meanwhile
                if page.complete:  # it was read before the file was damaged
                    self._mend(state, number, page, page.slots + array("q", bytes(8 * (PAGE_SLOTS - len(page.slots)))))
                    return None
                now = page.slots[:]
            if named is None:
                continue  # the page went and came meanwhile
            slots = settle(named, now)
            if isinstance(slots, str):
                return slots
            with self.lock:
                if generation == state.generation and self._states.get(ledger_id) is state:
                    self._mend(state, number, page, slots)
                    return None
        raise StorageError(f"page {number} of ledger {ledger_id} changed {_RELOADS_MAX} times while it was made anew")

    def _mend(self, state: LedgerState, number: int, page: IndexPage, slots: array[int]) -> None:
        before, was_dirty = page.size, page.dirty
        page.slots, page.complete = slots, True
        page.mark_dirty(0, PAGE_SLOTS)  # zeros, too: the file has something else there
        state.generation += 1
        self.page_bytes += page.size - before
        self._dirty[state.ledger_id] = state
        self._dirty_bytes += page.size - (before if was_dirty else 0)
        last_page, last_slot = divmod(state.last_entry_id, PAGE_SLOTS)
        if last_page == number and not slots[last_slot]:
            self._to_reload.add(state.ledger_id)

    def _add_page(self, state: LedgerState, number: int, page: IndexPage) -> None:
        state.pages[number] = page
        self.page_bytes += page.size

    def _drop_page(self, state: LedgerState, number: int) -> None:
        self.page_bytes -= state.pages.pop(number).size
        state.generation += 1
        self.page_evictions += 1

    def _evict_pages(self, *, keep: LedgerState | None = None, keep_number: int = -1) -> None:
        """Drop clean pages down to nine tenths of the bound; the one just loaded stays, or its reader would not end."""
        if self.page_bytes <= max(self._bytes_max, self._no_room_below):
            return
        target = self._bytes_max * 9 // 10
        for passes_by in (True, False):
            for state in self._states.values():
                if passes_by and state.used:
                    state.used = False
                    continue
                for number in [n for n, page in state.pages.items() if not page.dirty]:
                    if state is keep and number == keep_number:
                        continue
                    self._drop_page(state, number)
                    if self.page_bytes <= target:
                        self._no_room_below = 0
                        return
        # Nearly everything is dirty: a checkpoint is due. Looking again at every batch would cost more than it gives.
        self._no_room_below = self.page_bytes + self._bytes_max // 10

    # --- checkpoint ---------------------------------------------------------------------------------------------------

    @property
    def dirty_ledger_count(self) -> int:
        """Ledgers the next checkpoint has to write."""
        return len(self._dirty)

    @property
    def dirty_bytes(self) -> int:
        """Memory of locations that no file has yet, about."""
        return self._dirty_bytes

    def dirty_ledger_ids(self) -> list[int]:
        """Ledgers the next checkpoint has to write. Thread: any."""
        with self.lock:
            return list(self._dirty)

    def dirty_slots(self, ledger_id: int) -> list[tuple[int, array[int]]]:
        """Locations that no file may have yet: the first entry of each dirty page, and a copy of it. Thread: any."""
        with self.lock:
            state = self._dirty.get(ledger_id)
            if state is None:
                return []
            return [(number * PAGE_SLOTS, page.slots[:]) for number, page in state.pages.items() if page.dirty]

    def take_dirty(self) -> list[LedgerState]:
        """The ledgers a checkpoint has to write. They stay dirty until `written`. Thread: storage worker.

        Locations change only on this thread; headers may change meanwhile, which keeps their ledgers dirty.
        """
        with self.lock:
            self._dirty_bytes = 0
            return list(self._dirty.values())

    def written(self, state: LedgerState, *, directory: str, header_version: int, slot_count: int) -> None:
        """The ledger's index file has all dirty locations and the header of `header_version`.

        It need not be synced yet: from here on pages may be evicted and read again through the page cache.
        """
        with self.lock:
            state.directory = directory
            state.slot_count = max(state.slot_count, slot_count)
            state.header_written = header_version
            for page in state.pages.values():
                page.dirty_low = page.dirty_high = 0
            if not state.dirty:
                self._dirty.pop(state.ledger_id, None)
