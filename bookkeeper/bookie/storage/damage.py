"""What is known to be damaged on this bookie's disks: a bounded record, for reports, repairs and whoever looks.

A damage is certain: stored bytes fail their checksum, or are not where they must be. An error of the disk, or a page
that nobody has a checksum of, is no damage. An entry under a damage is answered "unknown" (I-31), and may be replaced
by a recovery add (I-69 holds wherever the copy here may be good). A damage leaves the record when it was repaired, or
with the process: the scrub and the reads find it again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from threading import Lock

from bookkeeper.bookie.storage.bad_bytes import BadBytes
from bookkeeper.bookie.storage.index_format import PAGE_SLOTS
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX

DAMAGES_MAX = 10_000
"""Damages kept; more are counted only. An entry that is not in the record is not replaced, so none is lost by it."""

NO_LEDGER = -1
"""The ledger of a damage that belongs to none, or to one nobody knows."""


class DamageKind(enum.Enum):
    """CHANGED: bytes that are there are not what was written. GONE: the file, or its end, is not there."""

    CHANGED = enum.auto()
    GONE = enum.auto()


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what was written.

    ledger_id: NO_LEDGER where it is not known whose they are. first_entry_id, last_entry_id: inclusive; 0 to
    ENTRY_ID_MAX where the whole ledger is concerned. path, offset: where. reason: what is wrong, for people.
    gaps: bit n stands for entry first_entry_id + n, which is not concerned; only where all lie on one index page.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    path: str
    offset: int
    reason: str
    kind: DamageKind = DamageKind.CHANGED
    gaps: int = 0

    @classmethod
    def of_ledger(cls, ledger_id: int, path: str, offset: int, reason: str) -> Damage:
        """All of a ledger's entries, key and fence."""
        return cls(ledger_id, 0, ENTRY_ID_MAX, path, offset, reason)

    @classmethod
    def of_entries(
        cls, ledger_id: int, entry_ids: Iterable[int], path: str, offset: int, reason: str, kind: DamageKind
    ) -> Iterator[Damage]:
        """Exactly these entries: one damage for those of one index page."""
        by_page: dict[int, int] = {}
        for entry_id in entry_ids:
            page, slot = divmod(entry_id, PAGE_SLOTS)
            by_page[page] = by_page.get(page, 0) | 1 << slot
        for page, bits in sorted(by_page.items()):
            whole = cls(ledger_id, page * PAGE_SLOTS, page * PAGE_SLOTS, path, offset, reason, kind)
            yield whole.with_bits(bits)

    @property
    def is_narrow(self) -> bool:
        """True when all of its entries lie on one index page."""
        return self.first_entry_id // PAGE_SLOTS == self.last_entry_id // PAGE_SLOTS

    @property
    def page(self) -> int:
        """The index page with the first entry."""
        return self.first_entry_id // PAGE_SLOTS

    @property
    def bits(self) -> int:
        """Of a narrow one: bit n stands for slot n of the index page."""
        count = self.last_entry_id - self.first_entry_id + 1
        return ((1 << count) - 1 & ~self.gaps) << self.first_entry_id % PAGE_SLOTS

    def with_bits(self, bits: int) -> Damage:
        """With these entries of its index page, at least one."""
        low, high = (bits & -bits).bit_length() - 1, bits.bit_length() - 1
        gaps = (1 << high - low + 1) - 1 & ~(bits >> low)
        base = self.page * PAGE_SLOTS
        return replace(self, first_entry_id=base + low, last_entry_id=base + high, gaps=gaps)

    @property
    def entry_count(self) -> int:
        """Entries that are concerned."""
        return self.last_entry_id - self.first_entry_id + 1 - self.gaps.bit_count()

    @property
    def range_count(self) -> int:
        """Ranges of entries without a gap."""
        bits = self.bits if self.gaps else 1
        return (bits & ~(bits << 1)).bit_count()

    def entry_ids(self) -> list[int]:
        """Of a narrow one, ascending."""
        return [
            entry_id
            for entry_id in range(self.first_entry_id, self.last_entry_id + 1)
            if not self.gaps >> entry_id - self.first_entry_id & 1
        ]


@dataclass(slots=True)
class _Place:
    """The damages of one ledger at one place. narrow: by index page. wide: those that span pages; few."""

    narrow: dict[int, Damage] = field(default_factory=dict)
    wide: list[Damage] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.narrow) + len(self.wide)

    def all(self) -> Iterator[Damage]:
        yield from self.narrow.values()
        yield from self.wide

    def has(self, entry_id: int) -> bool:
        near = self.narrow.get(entry_id // PAGE_SLOTS)
        if near is not None and near.bits >> entry_id % PAGE_SLOTS & 1:
            return True
        return any(damage.first_entry_id <= entry_id <= damage.last_entry_id for damage in self.wide)


class DamageRecord:
    """Damages, each once; those of one place whose entries lie on one index page are one. Thread: any.

    on_found: called with each new damage, on the thread that found it; must not block.
    bad_bytes: where reads met damaged bytes of entry logs.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[tuple[int, str, int], _Place] = {}
        self._by_ledger: dict[int, set[tuple[int, str, int]]] = {}
        self._at_place: dict[tuple[str, int], int] = {}  # path and offset -> ledgers with a damage there
        self._pages: dict[tuple[int, str, int], None] = {}  # damaged index pages that were not mended yet
        self._count = self._gone_count = 0
        self.bad_bytes = BadBytes()
        self.on_found: Callable[[Damage], None] | None = None
        self.found_count = 0
        """Damages ever found; those that were not kept included."""
        self.repaired_count = 0
        """Entries that a recovery add has replaced, and pages that were mended."""
        self.omitted_count = 0
        """Damages that found no place here."""

    def __len__(self) -> int:
        return self._count

    @property
    def gone_count(self) -> int:
        """Those of them that are of kind GONE."""
        return self._gone_count

    def add_at_place(self, damage: Damage) -> bool:
        """Note a damage; True when it is the first that is known of its place, by whatever ledger and entry.

        So that a page is told once, not once for each entry in it. Of those that find no place here one is told.
        """
        with self._lock:
            known, omitted = (damage.path, damage.offset) in self._at_place, self.omitted_count
        return self.add(damage) and not known and (omitted == 0 or omitted == self.omitted_count)

    def add_page(self, damage: Damage) -> bool:
        """Note a damaged index page; False when it was noted before, and not mended since.

        What of its entries was stored anew meanwhile is not damaged again by the page being read once more: the cluster
        would write it anew for ever.
        """
        key = (damage.ledger_id, damage.path, damage.offset)
        with self._lock:
            if key in self._pages:
                return False
            if len(self._pages) < DAMAGES_MAX:
                self._pages[key] = None
        return self.add(damage)

    @property
    def has_pages(self) -> bool:
        """True when some index page is damaged, whether its entries were stored anew or not."""
        return bool(self._pages)

    def is_damaged_page(self, ledger_id: int, path: str, offset: int) -> bool:
        """True for an index page that was noted, and not mended since: what it names need not be true."""
        with self._lock:
            return (ledger_id, path, offset) in self._pages

    def add(self, damage: Damage) -> bool:
        """Note a damage; False when it is known."""
        key = (damage.ledger_id, damage.path, damage.offset)
        with self._lock:
            place = self._found.get(key, _Place())
            for other in place.wide:
                if other.first_entry_id <= damage.first_entry_id and damage.last_entry_id <= other.last_entry_id:
                    return False
            near = place.narrow.get(damage.page) if damage.is_narrow else None
            if near is not None:
                bits = near.bits | damage.bits
                if bits == near.bits:
                    return False
                place.narrow[damage.page] = damage.with_bits(bits)
                self._gone_count += (damage.kind is DamageKind.GONE) - (near.kind is DamageKind.GONE)
            else:
                self.found_count += 1
                if self._count >= DAMAGES_MAX:
                    self.omitted_count += 1
                    return True
                if key not in self._found:
                    self._at_place[key[1:]] = self._at_place.get(key[1:], 0) + 1
                    self._found[key] = place
                    self._by_ledger.setdefault(damage.ledger_id, set()).add(key)
                if damage.is_narrow:
                    place.narrow[damage.page] = damage
                else:
                    place.wide.append(damage)
                self._count += 1
                self._gone_count += damage.kind is DamageKind.GONE
        if self.on_found is not None:
            self.on_found(damage)
        return True

    def all(self) -> list[Damage]:
        """Every damage kept, by ledger and entry."""
        with self._lock:
            found = [damage for place in self._found.values() for damage in place.all()]
        return sorted(found, key=lambda damage: (damage.ledger_id, damage.first_entry_id, damage.path, damage.offset))

    def of_ledger(self, ledger_id: int) -> list[Damage]:
        """The damages of one ledger."""
        with self._lock:
            return [damage for key in self._by_ledger.get(ledger_id, ()) for damage in self._found[key].all()]

    def in_file(self, path: str) -> list[Damage]:
        """The damages of one file."""
        with self._lock:
            return [damage for key, place in self._found.items() if key[1] == path for damage in place.all()]

    def among(self, ledger_id: int, entry_ids: Iterable[int]) -> frozenset[int]:
        """Those of these entries that a damage is known of."""
        with self._lock:
            places = [self._found[key] for key in self._by_ledger.get(ledger_id, ())]
            if not places:
                return frozenset()
            return frozenset(entry_id for entry_id in entry_ids if any(place.has(entry_id) for place in places))

    def replaced(self, ledger_id: int, entry_ids: Iterable[int], *, path: str | None = None) -> None:
        """These entries have been stored anew: what is damaged of them is needed no more.

        path: only the damages of this file; None for all.
        """
        wanted = set(entry_ids)
        by_page: dict[int, int] = {}
        for entry_id in wanted:
            page, slot = divmod(entry_id, PAGE_SLOTS)
            by_page[page] = by_page.get(page, 0) | 1 << slot
        with self._lock:
            for key in list(self._by_ledger.get(ledger_id, ())):
                if path is not None and key[1] != path:
                    continue
                place = self._found[key]
                changed = [damage for page in by_page if (damage := place.narrow.get(page)) is not None]
                left = [
                    damage.with_bits(bits) for damage in changed if (bits := damage.bits & ~by_page[damage.page]) != 0
                ]
                for damage in place.wide:
                    pieces = _without(damage, wanted)
                    if pieces != [damage]:
                        changed.append(damage)
                        left += pieces
                if left != changed:
                    self.repaired_count += len(wanted)
                    self._exchange(key, changed, left)

    def mended(self, path: str, offset: int, size: int = 1) -> None:
        """So many bytes from this place on are right again."""
        self._forget(lambda key: key[1] == path and offset <= key[2] < offset + size)

    def file_gone(self, path: str) -> None:
        """The file was deleted as no longer needed."""
        self._forget(lambda key: key[1] == path, repaired=False)

    def ledger_gone(self, ledger_id: int) -> None:
        """The ledger was deleted here."""
        with self._lock:
            for key in list(self._by_ledger.get(ledger_id, ())):
                self._remove(key)
            self._drop_pages(lambda key: key[0] == ledger_id)

    def _forget(self, chosen: Callable[[tuple[int, str, int]], bool], *, repaired: bool = True) -> None:
        with self._lock:
            for key in [key for key in self._found if chosen(key)]:
                self._remove(key)
                self.repaired_count += repaired
            self._drop_pages(chosen)

    def _drop_pages(self, chosen: Callable[[tuple[int, str, int]], bool]) -> None:
        for key in [key for key in self._pages if chosen(key)]:
            del self._pages[key]

    def _remove(self, key: tuple[int, str, int]) -> None:
        self._exchange(key, list(self._found[key].all()), [])

    def _exchange(self, key: tuple[int, str, int], old: list[Damage], new: list[Damage]) -> None:
        """Have the new damages of a place instead of some old ones."""
        place = self._found[key]
        before = len(place)
        for damage in old:
            if damage.is_narrow:
                del place.narrow[damage.page]
            else:
                place.wide.remove(damage)
        for damage in new:
            if damage.is_narrow:
                near = place.narrow.get(damage.page)
                place.narrow[damage.page] = damage if near is None else damage.with_bits(near.bits | damage.bits)
            else:
                place.wide.append(damage)
        self._count += len(place) - before
        self._gone_count += _gone(new) - _gone(old)
        if place:
            return
        del self._found[key]
        self._at_place[key[1:]] -= 1
        if not self._at_place[key[1:]]:
            del self._at_place[key[1:]]
        keys = self._by_ledger[key[0]]
        keys.discard(key)
        if not keys:
            del self._by_ledger[key[0]]


def _gone(damages: list[Damage]) -> int:
    return sum(damage.kind is DamageKind.GONE for damage in damages)


_PIECES_MAX = 1024


def _without(damage: Damage, entry_ids: set[int]) -> list[Damage]:
    """What is left of a damage without these entries."""
    inside = sorted(id_ for id_ in entry_ids if damage.first_entry_id <= id_ <= damage.last_entry_id)
    left: list[Damage] = []
    first = damage.first_entry_id
    for entry_id in inside[:_PIECES_MAX]:
        if first < entry_id:
            left.append(_range(damage, first, entry_id - 1))
        first = entry_id + 1
    if first <= damage.last_entry_id:
        left.append(_range(damage, first, damage.last_entry_id))
    return left


def _range(damage: Damage, first: int, last: int) -> Damage:
    return replace(damage, first_entry_id=first, last_entry_id=last, gaps=0)
