"""What is known to be damaged on this bookie's disks: a bounded record, for reports, repairs and whoever looks.

A damage is certain: stored bytes fail their checksum, or are not where they must be. An error of the disk, or a page
that nobody has a checksum of, is no damage. An entry under a damage is answered "unknown" (I-31), and may be replaced
by a recovery add (I-69 holds wherever the copy here may be good). A damage leaves the record when it was repaired, or
with the process: the scrub and the reads find it again.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from bookkeeper.bookie.integrity.damage.places import DamagedSlots, Key, Keys
from bookkeeper.bookie.integrity.damage.suspect_bytes import BadBytes
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX

DAMAGES_MAX = 10_000
"""Damages of ledgers that are kept; more are counted only. An entry that is not in the record is not replaced, so none
is lost by it."""

NO_LEDGER = -1
"""The ledger of a damage that belongs to none, or to one nobody knows."""

NO_LEDGER_DAMAGES_MAX = 1000
"""Those of no ledger that are kept, beside the others: they never take the place of one that is to be repaired."""


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

    def all(self) -> Iterator[Damage]:
        yield from self.narrow.values()
        yield from self.wide


class DamageRecord:
    """Damages, each once; those of one place whose entries lie on one index page are one. Thread: any.

    Asked about entries, it takes as long as there are entries; changed, as long as there are damages on their index
    pages (at most one for each entry there): the reactor does both.

    on_found: called with each new damage, on the thread that found it; must not block.
    bad_bytes: where reads met damaged bytes of entry logs.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Key, _Place] = {}
        self._keys = Keys()  # of these
        self._entries: dict[int, DamagedSlots] = {}  # of these, by ledger
        self._at_place: dict[tuple[str, int], int] = {}  # path and offset -> ledgers with a damage there
        self._pages = Keys()  # damaged index pages that were not mended yet
        self._unneeded: dict[str, Damage] = {}  # by path of a log
        self._count = self._ownerless_count = self._gone_count = 0
        self.bad_bytes = BadBytes()
        self.on_found: Callable[[Damage], None] | None = None
        self.found_count = 0
        """Damages ever found; those that were not kept included."""
        self.repaired_count = 0
        """Entries that a recovery add has replaced, and pages that were mended."""
        self.omitted_count = 0
        """Damages of ledgers that found no place here."""
        self.forgotten_count = 0
        """Damages and damaged pages of ledgers that were deleted."""

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
                self._pages.add(key)
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
        with self._lock:
            if self._is_known(damage):
                return False
            kept = self._put_if_room(damage)
        if kept and self.on_found is not None:
            self.on_found(damage)
        return True

    def note_unneeded(self, path: str, damage: Damage | None) -> bool:
        """Bytes of a log are damaged, and no entry is known to need them: one damage of NO_LEDGER, for all of the log.

        It counts instead of the one that was noted of this log before; None for none. False when that says the same.
        """
        with self._lock:
            before = self._unneeded.get(path)
            if before == damage:
                return False
            if before is not None:
                self._remove((NO_LEDGER, path, before.offset))
            if (
                damage is not None
                and not self._is_known(damage)
                and self._put_if_room(damage, again=before is not None)
            ):
                self._unneeded[path] = damage
        return damage is not None

    def unneeded(self, path: str) -> Damage | None:
        """What was noted so of this log."""
        with self._lock:
            return self._unneeded.get(path)

    def _is_known(self, damage: Damage) -> bool:
        place = self._found.get((damage.ledger_id, damage.path, damage.offset))
        if place is None:
            return False
        near = place.narrow.get(damage.page) if damage.is_narrow else None
        if near is not None and not damage.bits & ~near.bits:
            return True
        return any(
            other.first_entry_id <= damage.first_entry_id and damage.last_entry_id <= other.last_entry_id
            for other in place.wide
        )

    def _put_if_room(self, damage: Damage, *, again: bool = False) -> bool:
        """False where there is no room for it. What is known of the same place and index page is the same damage.

        again: it is not counted as a new one.
        """
        key = (damage.ledger_id, damage.path, damage.offset)
        place = self._found.get(key)
        if place is None or not damage.is_narrow or damage.page not in place.narrow:
            self.found_count += not again
            if damage.ledger_id == NO_LEDGER:
                if self._ownerless_count >= NO_LEDGER_DAMAGES_MAX:
                    return False
            elif self._count - self._ownerless_count >= DAMAGES_MAX:
                self.omitted_count += 1
                return False
        self._put(key, damage)
        return True

    def all(self) -> list[Damage]:
        """Every damage kept, by ledger and entry."""
        with self._lock:
            found = [damage for place in self._found.values() for damage in place.all()]
        return sorted(found, key=lambda damage: (damage.ledger_id, damage.first_entry_id, damage.path, damage.offset))

    def of_ledger(self, ledger_id: int) -> list[Damage]:
        """The damages of one ledger."""
        with self._lock:
            return [damage for key in self._keys.of_ledger(ledger_id) for damage in self._found[key].all()]

    def in_file(self, path: str) -> list[Damage]:
        """The damages of one file."""
        with self._lock:
            return [damage for key in self._keys.of_path(path) for damage in self._found[key].all()]

    def among(self, ledger_id: int, entry_ids: Iterable[int]) -> frozenset[int]:
        """Those of these entries that a damage is known of."""
        with self._lock:
            entries = self._entries.get(ledger_id)
            if entries is None:
                return frozenset()
            return frozenset(filter(entries.has, entry_ids))

    def replaced(self, ledger_id: int, entry_ids: Iterable[int], *, path: str | None = None) -> None:
        """These entries have been stored anew: what is damaged of them is needed no more.

        path: only the damages of this file; None for all.
        """
        wanted = sorted(set(entry_ids))
        by_page: dict[int, int] = {}
        for entry_id in wanted:
            page, slot = divmod(entry_id, PAGE_SLOTS)
            by_page[page] = by_page.get(page, 0) | 1 << slot
        with self._lock:
            entries = self._entries.get(ledger_id)
            if entries is None:
                return
            for page, bits in by_page.items():
                if not entries.bits(page) & bits:
                    continue
                for key, held in list(entries.on_page[page].items()):
                    if held & bits and path in (None, key[1]):
                        damage = self._found[key].narrow[page]
                        left = [damage.with_bits(held & ~bits)] if held & ~bits else []
                        self._exchange(key, damage, left, repaired=(held & bits).bit_count())
            for key in list(entries.wide):
                if path in (None, key[1]):
                    for damage in self._found[key].wide[:]:
                        inside = wanted[bisect_left(wanted, damage.first_entry_id) :]
                        inside = inside[: bisect_right(inside, damage.last_entry_id)][:_PIECES_MAX]
                        if inside:
                            self._exchange(key, damage, _without(damage, inside), repaired=len(inside))

    def mended(self, path: str, offset: int, size: int = 1) -> None:
        """So many bytes from this place on are right again."""
        with self._lock:
            for key in self._keys.of_path(path):
                if offset <= key[2] < offset + size:
                    self._remove(key)
                    self.repaired_count += 1
            for key in self._pages.of_path(path):
                if offset <= key[2] < offset + size:
                    self._pages.remove(key)

    def file_gone(self, path: str) -> None:
        """The file was deleted as no longer needed."""
        with self._lock:
            for key in self._keys.of_path(path):
                self._remove(key)
            for key in self._pages.of_path(path):
                self._pages.remove(key)

    def ledger_gone(self, ledger_id: int) -> None:
        """The ledger was deleted here."""
        with self._lock:
            for key in self._keys.of_ledger(ledger_id):
                self._remove(key)
                self.forgotten_count += 1
            for key in self._pages.of_ledger(ledger_id):
                self._pages.remove(key)
                self.forgotten_count += 1

    def _remove(self, key: Key) -> None:
        for damage in list(self._found[key].all()):
            self._drop(key, damage)
        self._tidy(key)
        if key[0] == NO_LEDGER and key[1] in self._unneeded and self._unneeded[key[1]].offset == key[2]:
            del self._unneeded[key[1]]

    def _exchange(self, key: Key, old: Damage, new: list[Damage], *, repaired: int) -> None:
        """Have the new damages of a place instead of an old one."""
        self.repaired_count += repaired
        self._drop(key, old)
        for damage in new:
            self._put(key, damage)
        self._tidy(key)

    def _put(self, key: Key, damage: Damage) -> None:
        place = self._found.get(key)
        if place is None:
            place = self._found[key] = _Place()
            self._keys.add(key)
            self._at_place[key[1:]] = self._at_place.get(key[1:], 0) + 1
        entries = self._entries.get(key[0])
        if entries is None:
            entries = self._entries[key[0]] = DamagedSlots()
        if damage.is_narrow:
            near = place.narrow.get(damage.page)
            if near is not None:
                damage = damage.with_bits(near.bits | damage.bits)
                self._counted(near, -1)
            place.narrow[damage.page] = damage
            entries.put(key, damage.page, damage.bits)
        else:
            place.wide.append(damage)
            entries.put_wide(key, [(each.first_entry_id, each.last_entry_id) for each in place.wide])
        self._counted(damage, 1)

    def _drop(self, key: Key, damage: Damage) -> None:
        place, entries = self._found[key], self._entries[key[0]]
        if damage.is_narrow:
            del place.narrow[damage.page]
            entries.put(key, damage.page, 0)
        else:
            place.wide.remove(damage)
            entries.put_wide(key, [(each.first_entry_id, each.last_entry_id) for each in place.wide])
        self._counted(damage, -1)

    def _tidy(self, key: Key) -> None:
        place, entries = self._found[key], self._entries[key[0]]
        if place.narrow or place.wide:
            return
        del self._found[key]
        self._keys.remove(key)
        if not entries:
            del self._entries[key[0]]
        self._at_place[key[1:]] -= 1
        if not self._at_place[key[1:]]:
            del self._at_place[key[1:]]

    def _counted(self, damage: Damage, by: int) -> None:
        self._count += by
        self._ownerless_count += by if damage.ledger_id == NO_LEDGER else 0
        self._gone_count += by if damage.kind is DamageKind.GONE else 0


_PIECES_MAX = 1024
"""Into which one damage is cut at once; what else was replaced of it stays noted."""


def _without(damage: Damage, inside: Sequence[int]) -> list[Damage]:
    """What is left of a damage without these entries of it, ascending."""
    left: list[Damage] = []
    first = damage.first_entry_id
    for entry_id in inside:
        if first < entry_id:
            left.append(_range(damage, first, entry_id - 1))
        first = entry_id + 1
    if first <= damage.last_entry_id:
        left.append(_range(damage, first, damage.last_entry_id))
    return left


def _range(damage: Damage, first: int, last: int) -> Damage:
    return replace(damage, first_entry_id=first, last_entry_id=last, gaps=0)
