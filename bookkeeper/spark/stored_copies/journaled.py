"""What the journals hold behind their marks: copies that no index names yet, and that the next start would replay.

A replay puts every one of them into the storage again, the last one of an entry at last, whatever the index says: so
the last one is the copy, and one that an index names is none beside it.

`JournaledEntries` is a visitor that keeps ids, 8 bytes an entry; `JournalCheck` one that verifies.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bookkeeper.errors import StorageError
from bookkeeper.model import DigestType
from bookkeeper.spark.stored_copies.kernel import LedgerCheck
from bookkeeper.spark.stored_copies.model import (
    BadCopies,
    LedgerToVerify,
    OtherLedger,
    UnitResult,
    UnknownCopies,
    joined,
)
from bookkeeper.wire.digest import digest_of, master_key

ENTRIES_MAX = 64 * 1024 * 1024
"""Journaled entries behind the marks that a plan keeps in mind: 512 MiB. A checkpoint comes long before."""

UNIT_ENTRIES_MAX = 4 * 1024 * 1024
"""About so many entries in a unit: 96 MiB of columns."""

_BLOCK_BITS = 16

ENTRY_ID_MAX = (1 << 63) - 1


class TooManyJournaled(StorageError):
    """More entries behind the marks than are kept in mind."""


def contains(ascending: Sequence[int], value: int) -> bool:
    """True when the value is there."""
    at = bisect_left(ascending, value)
    return at < len(ascending) and ascending[at] == value


def between(ascending: array[int], first: int, stop: int) -> array[int]:
    """The values from `first` on and below `stop`."""
    return ascending[bisect_left(ascending, first) : bisect_left(ascending, stop)]


@dataclass(slots=True)
class JournaledEntries:
    """Entry ids by ledger: as they come until `settle`, ascending and once each from then on.

    wanted: ledgers whose entries are kept, None for all. ledgers: all of which there is any record. repeated: entries
    that came more than once.
    """

    wanted: Collection[int] | None = None
    entry_id_max: int = ENTRY_ID_MAX
    by_ledger: dict[int, array[int]] = field(default_factory=dict)
    repeated: dict[int, array[int]] = field(default_factory=dict)
    ledgers: set[int] = field(default_factory=set)
    count: int = 0
    count_max: int = ENTRIES_MAX

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """See ReplayVisitor. Raises TooManyJournaled."""
        del bodies
        self.ledgers.add(ledger_id)
        if self.wanted is not None and ledger_id not in self.wanted:
            return
        self.count += len(entry_ids)
        if self.count > self.count_max:
            raise TooManyJournaled(
                f"more than {self.count_max} entries are in the journals behind the last mark. Start the bookie and "
                "stop it when it serves: it writes them to its entry logs, and their copies can be read there"
            )
        self.by_ledger.setdefault(ledger_id, array("q")).extend(entry_ids)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """See ReplayVisitor."""
        del key
        self.ledgers.add(ledger_id)

    def fence(self, ledger_id: int) -> None:
        """See ReplayVisitor."""
        self.ledgers.add(ledger_id)

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """See ReplayVisitor."""
        del packet
        self.ledgers.add(ledger_id)

    def settle(self) -> None:
        """All were visited."""
        for ledger_id, entry_ids in self.by_ledger.items():
            if all(one < following for one, following in pairwise(entry_ids)):
                continue
            ordered = sorted(entry_ids)
            self.by_ledger[ledger_id] = array("q", sorted(set(ordered)))
            again = sorted({one for one, following in pairwise(ordered) if one == following})
            if again:
                self.repeated[ledger_id] = array("q", again)

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """True when the entry has a record. After `settle`."""
        return contains(self.by_ledger.get(ledger_id, ()), entry_id)


def part_of(ledger_id: int, entry_id: int, parts: int) -> int:
    """The unit that an entry belongs to where a journal has several."""
    return (ledger_id + (entry_id >> _BLOCK_BITS)) % parts


class JournalCheck:
    """Verifies what is passed on to it. path: of the journal, for answers.

    asked: what to verify, by ledger id. ledgers: those of the unit, ascending. repeated, superseded: as of
    `JournalUnit`. on_bytes: told bytes of bodies.
    """

    entry_id_max = ENTRY_ID_MAX

    def __init__(
        self,
        path: str,
        asked: Mapping[int, LedgerToVerify],
        *,
        ledgers: Sequence[int],
        part: int,
        parts: int,
        repeated: Mapping[int, Sequence[int]],
        superseded: Mapping[int, Sequence[int]],
        on_bytes: Callable[[int], None],
    ) -> None:
        self._path = path
        self._asked = asked
        self._ledgers = ledgers
        self._part, self._parts = part, parts
        self._repeated, self._superseded = repeated, superseded
        self._on_bytes = on_bytes
        self._checks: dict[int, LedgerCheck] = {}
        self._bad: list[BadCopies] = []
        self._last: dict[int, dict[int, bytes]] = {}  # of entries that come again
        self._keys: dict[int, bytes] = {}
        self._others: dict[int, OtherLedger] = {}

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """See ReplayVisitor."""
        self._on_bytes(sum(map(len, bodies)))
        if not contains(self._ledgers, ledger_id):
            return
        superseded, repeated = self._superseded.get(ledger_id, ()), self._repeated.get(ledger_id, ())
        if superseded or repeated or self._parts > 1:
            kept: list[tuple[int, bytes]] = []
            for entry_id, body in zip(entry_ids, bodies, strict=True):
                if part_of(ledger_id, entry_id, self._parts) != self._part or contains(superseded, entry_id):
                    continue
                if contains(repeated, entry_id):
                    self._last.setdefault(ledger_id, {})[entry_id] = body
                else:
                    kept.append((entry_id, body))
            entry_ids, bodies = [entry_id for entry_id, _ in kept], [body for _, body in kept]
        if entry_ids:
            self._take(ledger_id, entry_ids, bodies)

    def _take(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        asked = self._asked.get(ledger_id)
        if asked is None:
            other = self._others.setdefault(ledger_id, OtherLedger())
            other.entry_count += len(entry_ids)
            other.byte_count += sum(map(len, bodies))
            return
        check = self._checks.get(ledger_id)
        if check is None:
            check = LedgerCheck(ledger_id, digest_of(asked.digest_type, asked.password))
            self._checks[ledger_id] = check
        for at in check.take_bodies(entry_ids, bodies):
            fault, detail = check.why_bad(entry_ids[at], bodies[at])
            one = BadCopies(ledger_id, entry_ids[at], entry_ids[at], fault, self._path, 0, f"in the journal: {detail}")
            self._bad.append(one)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """See ReplayVisitor. The first one stays (I-73)."""
        self._keys.setdefault(ledger_id, key)

    def fence(self, ledger_id: int) -> None:
        """See ReplayVisitor."""

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """See ReplayVisitor."""

    def finish(self, key_of: Callable[[int], bytes]) -> UnitResult:
        """What was found, all having been visited. key_of: the master key in a ledger's index file, empty for none."""
        for ledger_id, last in self._last.items():
            self._take(ledger_id, list(last), list(last.values()))
        self._last.clear()
        result = UnitResult(others=self._others)
        wrong: set[int] = set()
        for ledger_id, check in self._checks.items():
            asked = self._asked[ledger_id]
            key = key_of(ledger_id) or self._keys.get(ledger_id, b"")
            if is_other_password(asked, key):
                wrong.add(ledger_id)
                result.unknown.append(other_password(asked, self._path))
            elif check.good:
                result.good[ledger_id] = check.good
        result.bad = joined(one for one in self._bad if one.ledger_id not in wrong)
        return result


def is_other_password(asked: LedgerToVerify, key: bytes) -> bool:
    """True where a digest cannot be verified, as the bookie knows the ledger under the key of another password."""
    return asked.digest_type is DigestType.MAC and bool(key) and key != master_key(asked.password)


def other_password(asked: LedgerToVerify, path: str) -> UnknownCopies:
    """What is said of such a ledger."""
    why = "the password is not the one that the ledger was written with: its MAC digests cannot be verified"
    return UnknownCopies(asked.ledger_id, 0, None, path, why)


def later_again(journals: Sequence[JournaledEntries], index: int) -> dict[int, array[int]]:
    """Entries of one journal that a later one has, too, by ledger, ascending."""
    found: dict[int, set[int]] = {}
    for later in journals[index + 1 :]:
        for ledger_id in journals[index].by_ledger.keys() & later.by_ledger.keys():
            both = set(journals[index].by_ledger[ledger_id]) & set(later.by_ledger[ledger_id])
            if both:
                found.setdefault(ledger_id, set()).update(both)
    return {ledger_id: array("q", sorted(both)) for ledger_id, both in found.items()}
