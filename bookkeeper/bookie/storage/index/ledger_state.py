"""What memory holds of one ledger: key, fence, explicit LAC, and pages of locations. Pure.

A ledger of five entries costs about 700 bytes: locations are 8 bytes each and grow only as far as they are used.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bookkeeper.bookie.storage.index.format import PAGE_SLOTS

PAGE_OVERHEAD_BYTES = 200
"""A page beside its locations: the object, the array's head, its place in the ledger's dict."""

_PAGE_SHIFT = PAGE_SLOTS.bit_length() - 1
_PAGE_MASK = PAGE_SLOTS - 1


class IndexPage:
    """Locations of up to 1024 entries; those beyond the end of `slots` are 0.

    complete: a 0 means "no entry"; otherwise it means "see the file".
    dirty_low, dirty_high: slots to be written, half open; equal when clean.
    """

    __slots__ = ("complete", "dirty_high", "dirty_low", "slots")

    def __init__(self, slots: array[int], *, complete: bool) -> None:
        self.slots = slots
        self.complete = complete
        self.dirty_low = self.dirty_high = 0

    @property
    def dirty(self) -> bool:
        return self.dirty_low != self.dirty_high

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return PAGE_OVERHEAD_BYTES + 8 * len(self.slots)

    def mark_dirty(self, low: int, high: int) -> None:
        """Slots `low` to `high` - 1 differ from the file."""
        if self.dirty:
            self.dirty_low, self.dirty_high = min(low, self.dirty_low), max(high, self.dirty_high)
        else:
            self.dirty_low, self.dirty_high = low, high

    def merge_file(self, slots: array[int], *, complete: bool = True) -> None:
        """Fill the gaps with what the file has; what is here already is newer.

        The page is complete then, unless what the file says is not to be trusted.
        """
        merged = slots
        mine = self.slots
        if len(merged) < len(mine):
            merged.extend([0] * (len(mine) - len(merged)))
        for index, location in enumerate(mine):
            if location:
                merged[index] = location
        self.slots = merged
        self.complete = complete


class LedgerState:
    """One ledger. Guarded by the cache's lock, except for the reactor's own reads of the first five fields.

    last_entry_id: highest entry held in memory or on disk, -1 for none.
    directory: the index directory with the ledger's file; None before the first checkpoint wrote it.
    slot_count: locations the file has; at or above it only memory knows.
    header_version, header_written: counts changes of key, fence or LAC, and which of them the file has.
    generation: changes whenever what a page says may change.
    used: looked up since an eviction last went by. Any thread; a lost mark costs a reload at worst.
    key_journaled, fence_journaled: this process put the record into the journal (I-23, I-53). Forgetting it costs
        another record.
    """

    __slots__ = (
        "directory",
        "explicit_lac",
        "fence_journaled",
        "fenced",
        "generation",
        "header_version",
        "header_written",
        "key_journaled",
        "last_entry_id",
        "ledger_id",
        "master_key",
        "pages",
        "slot_count",
        "used",
    )

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.master_key: bytes | None = None
        self.fenced = False
        self.explicit_lac: bytes | None = None
        self.last_entry_id = -1
        self.directory: str | None = None
        self.slot_count = 0
        self.header_version = 0
        self.header_written = 0
        self.generation = 0
        self.pages: dict[int, IndexPage] = {}
        self.used = True
        self.key_journaled = False
        self.fence_journaled = False

    @property
    def dirty(self) -> bool:
        """True when the index file lacks something."""
        return self.header_version != self.header_written or any(page.dirty for page in self.pages.values())

    def location(self, entry_id: int) -> int | None:
        """Where the entry is, 0 when there certainly is none, None when the file must be asked."""
        page = self.pages.get(entry_id >> _PAGE_SHIFT)
        if page is None:
            return None if entry_id < self.slot_count else 0
        slot = entry_id & _PAGE_MASK
        location = page.slots[slot] if slot < len(page.slots) else 0
        if location or page.complete or entry_id >= self.slot_count:
            return location
        return None

    def run(self, first_entry_id: int, count: int) -> array[int] | None:
        """Locations of consecutive entries; None unless memory has them all."""
        found = array("q")
        first, end = first_entry_id, first_entry_id + count
        while first < end:
            page = self.pages.get(first >> _PAGE_SHIFT)
            slot = first & _PAGE_MASK
            take = min(end - first, PAGE_SLOTS - slot)
            part = page.slots[slot : slot + take] if page is not None else found[:0]
            if len(part) != take or 0 in part:
                return None
            found += part
            first += take
        return found

    def run_begun(self, first_entry_id: int, count: int) -> array[int]:
        """Locations of consecutive entries, as many of them from the first on as memory has."""
        found = array("q")
        first, end = first_entry_id, first_entry_id + count
        while first < end:
            page = self.pages.get(first >> _PAGE_SHIFT)
            slot = first & _PAGE_MASK
            take = min(end - first, PAGE_SLOTS - slot)
            part = page.slots[slot : slot + take] if page is not None else found[:0]
            if 0 in part:
                part = part[: part.index(0)]
            found += part
            if len(part) != take:
                break
            first += take
        return found

    def put(self, entry_ids: Sequence[int], locations: Sequence[int]) -> tuple[int, int]:
        """Set locations (ids ascending) and mark them dirty; return by how many bytes memory grew, and dirty memory."""
        if len(entry_ids) == 1:
            return self._put_one(entry_ids[0], locations[0])
        grown = dirtied = 0
        start, count = 0, len(entry_ids)
        while start < count:
            number = entry_ids[start] >> _PAGE_SHIFT
            first_id = number << _PAGE_SHIFT
            end = start + 1
            if entry_ids[-1] < first_id + PAGE_SLOTS:
                end = count
            else:
                while end < count and entry_ids[end] < first_id + PAGE_SLOTS:
                    end += 1
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = IndexPage(array("q"), complete=first_id >= self.slot_count)
                grown += page.size
            before, was_dirty = len(page.slots), page.dirty
            _fill(page, first_id, entry_ids[start:end], locations[start:end])
            growth = 8 * (len(page.slots) - before)
            grown += growth
            dirtied += growth if was_dirty else page.size
            start = end
        self.generation += 1
        return grown, dirtied

    def _put_one(self, entry_id: int, location: int) -> tuple[int, int]:
        """As `put`; most entries come alone where very many ledgers are written in turn."""
        number, slot = entry_id >> _PAGE_SHIFT, entry_id & _PAGE_MASK
        page = self.pages.get(number)
        grown = 0
        if page is None:
            page = self.pages[number] = IndexPage(array("q"), complete=entry_id - slot >= self.slot_count)
            grown = PAGE_OVERHEAD_BYTES
        slots = page.slots
        missing = slot + 1 - len(slots)
        if missing == 1:
            slots.append(location)
            grown += 8
        elif missing > 1:
            slots.frombytes(bytes(8 * (missing - 1)))
            slots.append(location)
            grown += 8 * missing
        else:
            slots[slot] = location
        dirtied = grown if page.dirty else page.size
        page.mark_dirty(slot, slot + 1)
        self.generation += 1
        return grown, dirtied


def _fill(page: IndexPage, first_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
    low, high = entry_ids[0] - first_id, entry_ids[-1] - first_id + 1
    slots = page.slots
    if len(slots) < high:
        slots.frombytes(bytes(8 * (high - len(slots))))
    if high - low == len(entry_ids):
        slots[low:high] = array("q", locations)
    else:
        for entry_id, location in zip(entry_ids, locations, strict=True):
            slots[entry_id - first_id] = location
    page.mark_dirty(low, high)
