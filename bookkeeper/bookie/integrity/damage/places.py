"""Finding damages: by ledger, by path, by entry. Pure.

    Keys           (ledger, path, offset) of each place, by ledger and by path
    DamagedSlots   of one ledger: index page -> place -> bits, and the bits of all places together; ranges that span
                   index pages, joined

Whether an entry is damaged is one look-up, however many places the ledger is damaged at: the reactor asks with every
recovery add.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from bookkeeper.bookie.storage.index.format import PAGE_SLOTS

Key = tuple[int, str, int]
"""Ledger, path, offset: where a damage is."""


class Keys:
    """A set of keys."""

    def __init__(self) -> None:
        self._by_ledger: dict[int, set[Key]] = {}
        self._by_path: dict[str, set[Key]] = {}
        self._all: set[Key] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: Key) -> bool:
        return key in self._all

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def add(self, key: Key) -> None:
        """One more."""
        self._all.add(key)
        self._by_ledger.setdefault(key[0], set()).add(key)
        self._by_path.setdefault(key[1], set()).add(key)

    def remove(self, key: Key) -> None:
        """One that is there."""
        ledger_id, path, _ = key
        self._all.remove(key)
        self._by_ledger[ledger_id].remove(key)
        if not self._by_ledger[ledger_id]:
            del self._by_ledger[ledger_id]
        self._by_path[path].remove(key)
        if not self._by_path[path]:
            del self._by_path[path]

    def of_ledger(self, ledger_id: int) -> list[Key]:
        """Those of a ledger, now."""
        return list(self._by_ledger.get(ledger_id, ()))

    def of_path(self, path: str) -> list[Key]:
        """Those of a file, now."""
        return list(self._by_path.get(path, ()))


class DamagedSlots:
    """The damaged entries of one ledger.

    on_page: index page -> place -> the bits that are damaged there. wide: place -> ranges that span index pages, first
    and last entry.
    """

    def __init__(self) -> None:
        self.on_page: dict[int, dict[Key, int]] = {}
        self.wide: dict[Key, list[tuple[int, int]]] = {}
        self._bits: dict[int, int] = {}  # of all places; of pages that were asked for since they changed
        self._joined: tuple[list[int], list[int]] | None = None  # first and last entries of all wide ones

    def __bool__(self) -> bool:
        return bool(self.on_page) or bool(self.wide)

    def put(self, key: Key, page: int, bits: int) -> None:
        """What is damaged of an index page at a place; 0 for nothing any more."""
        self._bits.pop(page, None)
        places = self.on_page.setdefault(page, {})
        if bits:
            places[key] = bits
            return
        del places[key]
        if not places:
            del self.on_page[page]

    def put_wide(self, key: Key, ranges: list[tuple[int, int]]) -> None:
        """The ranges at a place that span index pages; few."""
        self._joined = None
        if ranges:
            self.wide[key] = ranges
        else:
            self.wide.pop(key, None)

    def bits(self, page: int) -> int:
        """The damaged entries of an index page, at whatever places; those of wide ranges not included."""
        bits = self._bits.get(page)
        if bits is None:
            if page not in self.on_page:
                return 0
            bits = 0
            for some in self.on_page[page].values():
                bits |= some
            self._bits[page] = bits
        return bits

    def has(self, entry_id: int) -> bool:
        """True for a damaged one."""
        if self.bits(entry_id // PAGE_SLOTS) >> entry_id % PAGE_SLOTS & 1:
            return True
        if not self.wide:
            return False
        if self._joined is None:
            self._joined = _joined(each for ranges in self.wide.values() for each in ranges)
        firsts, lasts = self._joined
        at = bisect_right(firsts, entry_id) - 1
        return at >= 0 and entry_id <= lasts[at]


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """First and last entries of ranges that have no entry in common, ascending."""
    firsts: list[int] = []
    lasts: list[int] = []
    for first, last in sorted(ranges):
        if lasts and first <= lasts[-1]:
            lasts[-1] = max(lasts[-1], last)
        else:
            firsts.append(first)
            lasts.append(last)
    return firsts, lasts
