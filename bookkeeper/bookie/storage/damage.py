"""What is known to be damaged on this bookie's disks: a bounded record, for reports, repairs and whoever looks.

A damage is certain: stored bytes fail their checksum, or are not where they must be. An error of the disk, or a page
that nobody has a checksum of, is no damage. An entry under a damage is answered "unknown" (I-31), and may be replaced
by a recovery add (I-69 holds wherever the copy here may be good). A damage leaves the record when it was repaired, or
with the process: the scrub and the reads find it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX

DAMAGES_MAX = 10_000
"""Damages kept; more are counted only. An entry that is not in the record is not replaced, so none is lost by it."""

NO_LEDGER = -1
"""The ledger of a damage that belongs to none, or to one nobody knows."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what was written.

    ledger_id: NO_LEDGER where it is not known whose they are. first_entry_id, last_entry_id: inclusive; 0 to
    ENTRY_ID_MAX where the whole ledger is concerned. path, offset: where. reason: what is wrong, for people.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    path: str
    offset: int
    reason: str

    @classmethod
    def of_ledger(cls, ledger_id: int, path: str, offset: int, reason: str) -> Damage:
        """All of a ledger's entries, key and fence."""
        return cls(ledger_id, 0, ENTRY_ID_MAX, path, offset, reason)


class DamageRecord:
    """Damages, each once; those of neighbouring entries of one page are one. Thread: any.

    on_found: called with each new damage, on the thread that found it; must not block.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[tuple[int, str, int], list[Damage]] = {}
        self._by_ledger: dict[int, set[tuple[int, str, int]]] = {}
        self._at_place: dict[tuple[str, int], int] = {}  # path and offset -> ledgers with a damage there
        self._pages: dict[tuple[int, str, int], None] = {}  # damaged index pages that were not mended yet
        self._count = 0
        self.on_found: Callable[[Damage], None] | None = None
        self.found_count = 0
        """Damages ever found; those that were not kept included."""
        self.repaired_count = 0
        """Entries that a recovery add has replaced, and pages that were mended."""
        self.omitted_count = 0
        """Damages that found no place here."""

    def __len__(self) -> int:
        return self._count

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

    def add(self, damage: Damage) -> bool:
        """Note a damage; False when it is known."""
        key = (damage.ledger_id, damage.path, damage.offset)
        with self._lock:
            known = self._found.get(key, [])
            for at, other in enumerate(known):
                if other.first_entry_id <= damage.first_entry_id and damage.last_entry_id <= other.last_entry_id:
                    return False
                if (
                    damage.first_entry_id <= other.last_entry_id + 1
                    and other.first_entry_id <= damage.last_entry_id + 1
                ):
                    first = min(damage.first_entry_id, other.first_entry_id)
                    last = max(damage.last_entry_id, other.last_entry_id)
                    known[at] = Damage(*key[:1], first, last, damage.path, damage.offset, damage.reason)
                    break
            else:
                self.found_count += 1
                if self._count >= DAMAGES_MAX:
                    self.omitted_count += 1
                    return True
                if key not in self._found:
                    self._at_place[key[1:]] = self._at_place.get(key[1:], 0) + 1
                self._found.setdefault(key, []).append(damage)
                self._by_ledger.setdefault(damage.ledger_id, set()).add(key)
                self._count += 1
        if self.on_found is not None:
            self.on_found(damage)
        return True

    def all(self) -> list[Damage]:
        """Every damage kept, by ledger and entry."""
        with self._lock:
            found = [damage for damages in self._found.values() for damage in damages]
        return sorted(found, key=lambda damage: (damage.ledger_id, damage.first_entry_id, damage.path, damage.offset))

    def of_ledger(self, ledger_id: int) -> list[Damage]:
        """The damages of one ledger."""
        with self._lock:
            return [damage for key in self._by_ledger.get(ledger_id, ()) for damage in self._found[key]]

    def among(self, ledger_id: int, entry_ids: Iterable[int]) -> frozenset[int]:
        """Those of these entries that a damage is known of."""
        damages = self.of_ledger(ledger_id)
        if not damages:
            return frozenset()
        return frozenset(
            entry_id
            for entry_id in entry_ids
            if any(damage.first_entry_id <= entry_id <= damage.last_entry_id for damage in damages)
        )

    def replaced(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """These entries have been stored anew: what is damaged of them is needed no more."""
        wanted = set(entry_ids)
        with self._lock:
            for key in list(self._by_ledger.get(ledger_id, ())):
                left: list[Damage] = []
                before = self._found[key]
                for damage in before:
                    left += _without(damage, wanted)
                if left != before:
                    self.repaired_count += len(wanted)
                    self._set(key, left)

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
                self._set(key, [])
            self._drop_pages(lambda key: key[0] == ledger_id)

    def _forget(self, chosen: Callable[[tuple[int, str, int]], bool], *, repaired: bool = True) -> None:
        with self._lock:
            for key in [key for key in self._found if chosen(key)]:
                self._set(key, [])
                self.repaired_count += repaired
            self._drop_pages(chosen)

    def _drop_pages(self, chosen: Callable[[tuple[int, str, int]], bool]) -> None:
        for key in [key for key in self._pages if chosen(key)]:
            del self._pages[key]

    def _set(self, key: tuple[int, str, int], damages: list[Damage]) -> None:
        self._count += len(damages) - len(self._found[key])
        if damages:
            self._found[key] = damages
            return
        del self._found[key]
        self._at_place[key[1:]] -= 1
        if not self._at_place[key[1:]]:
            del self._at_place[key[1:]]
        keys = self._by_ledger[key[0]]
        keys.discard(key)
        if not keys:
            del self._by_ledger[key[0]]


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
    return Damage(damage.ledger_id, first, last, damage.path, damage.offset, damage.reason)
