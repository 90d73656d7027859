"""Tells the cluster which copies here are damaged, so that replication writes them anew (I-67).

The bookie never fetches: it puts ledger, entries and its own name into the queue of bad copies, and takes the repair as
a recovery add. What was reported is reported again while it stays damaged, now and then: whoever took it from the queue
may have given up. What is left of it while the repair goes on is no news. A store that cannot be reached is asked
again; nothing is lost meanwhile but time.

Thread: reactor.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, islice
from operator import itemgetter

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageRecord
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.errors import MetadataError
from bookkeeper.metadata.store import Underreplication
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.model import BookieId, EntryId, LedgerId
from bookkeeper.ports import Clock, Timer

log = Logger()

LOOK_INTERVAL_S = 5.0
AGAIN_S = 3600.0
"""After so long what is still damaged is reported once more."""

IN_FLIGHT_MAX = 16
RANGES_MAX = 256
"""Of one ledger, in one report; of more, one range spans all of them."""

_Key = frozenset[tuple[int, int, int]]
"""What a report was about: first entry, last entry and gaps of each damage."""


class DamageReports:
    """bookie_id: whose copies they are. now_ms: wall-clock time since 1970."""

    def __init__(
        self,
        damage: DamageRecord,
        queue: Underreplication,
        clock: Clock,
        bookie_id: BookieId,
        now_ms: Callable[[], int],
    ) -> None:
        self._damage = damage
        self._queue = queue
        self._clock = clock
        self._bookie_id = bookie_id
        self._now_ms = now_ms
        self._reported: dict[int, tuple[_Key, float]] = {}
        """Ledger -> ranges and when; as many as the damage record has ledgers."""
        self._in_flight: set[int] = set()
        self._timer: Timer | None = None
        self._stopped = False
        self.reports = 0
        """Reports that arrived."""
        self.last_error = ""

    def start(self) -> None:
        """Look now and from then on."""
        self._look()

    def stop(self) -> None:
        """Report no more; answers under way are not waited for."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    @property
    def waiting(self) -> int:
        """Ledgers with a damage that the cluster has not been told of, as far as is known."""
        return len({damage.ledger_id for damage in self._damage.all()} - self._reported.keys() - {NO_LEDGER})

    def _look(self) -> None:
        if self._stopped:
            return
        self._timer = self._clock.callLater(LOOK_INTERVAL_S, self._look)
        if not len(self._damage) and not self._reported:
            return
        by_ledger: dict[int, list[Damage]] = {}
        for damage in self._damage.all():
            if damage.ledger_id != NO_LEDGER:
                by_ledger.setdefault(damage.ledger_id, []).append(damage)
        for ledger_id in self._reported.keys() - by_ledger.keys():
            del self._reported[ledger_id]
        now_s = self._clock.seconds()
        for ledger_id, damages in by_ledger.items():
            if len(self._in_flight) >= IN_FLIGHT_MAX:
                return
            key = frozenset((damage.first_entry_id, damage.last_entry_id, damage.gaps) for damage in damages)
            known = self._reported.get(ledger_id)
            if ledger_id in self._in_flight:
                continue
            if known and now_s - known[1] < AGAIN_S and _is_within(key, known[0]):
                self._reported[ledger_id] = (key, known[1])  # what was repaired is news once it is damaged again
                continue
            self._report(ledger_id, damages, key)

    def _report(self, ledger_id: int, damages: list[Damage], key: _Key) -> None:
        self._in_flight.add(ledger_id)
        told: Deferred[None] = self._queue.report_bad_copies(LedgerId(ledger_id), self._ranges(damages))
        told.addCallbacks(partial(self._told, ledger_id, key, _entries_of(damages)), self._not_told)
        told.addBoth(lambda _: self._in_flight.discard(ledger_id))

    def _ranges(self, damages: list[Damage]) -> list[BadRange]:
        now_ms = self._now_ms()
        ranges = [
            BadRange(
                self._bookie_id,
                EntryId(first),
                EntryId(last),
                f"{damage.path} at {damage.offset}: {damage.reason}",
                now_ms,
            )
            for damage, first, last in islice(_runs(damages), RANGES_MAX + 1)
        ]
        if len(ranges) <= RANGES_MAX:
            return ranges
        lowest = min(each.first_entry_id for each in damages)
        highest = max(each.last_entry_id for each in damages)
        count = f"more than {RANGES_MAX} damaged ranges; one is {ranges[0].reason}"
        return [BadRange(self._bookie_id, EntryId(lowest), EntryId(highest), count, now_ms)]

    def _told(self, ledger_id: int, key: _Key, entries: str, _: object) -> None:
        self.last_error = ""
        self.reports += 1
        self._reported[ledger_id] = (key, self._clock.seconds())
        log.info(
            "Reported damaged entries of ledger {ledger_id}, for repair: {entries}",
            ledger_id=ledger_id,
            entries=entries,
        )

    def _not_told(self, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, MetadataError):
            log.failure("Reporting damaged entries failed", failure=failure)
        elif str(error) != self.last_error:
            log.warn("Damaged entries could not be reported, and will be again: {error}", error=error)
        self.last_error = str(error)


def _runs(damages: list[Damage]) -> Iterator[tuple[Damage, int, int]]:
    """First and last entry, inclusive, of each range without a gap."""
    for damage in damages:
        if not damage.gaps:
            yield damage, damage.first_entry_id, damage.last_entry_id
            continue
        base, bits = damage.page * PAGE_SLOTS, damage.bits
        while bits:
            low = (bits & -bits).bit_length() - 1
            beyond = bits >> low
            count = (~beyond & beyond + 1).bit_length() - 1  # of ones at its low end
            yield damage, base + low, base + low + count - 1
            bits = beyond >> count << low + count


def _is_within(ranges: _Key, known: _Key) -> bool:
    """True when all entries of the ranges are entries of known ones."""
    if ranges <= known:
        return True
    ordered = sorted((first, last) for first, last, gaps in known if not gaps)
    reach = list(accumulate((last for _, last in ordered), max))  # of all ranges that begin so early
    bits_of: dict[int, int] = {}
    for first, last, gaps in known:
        if first // PAGE_SLOTS == last // PAGE_SLOTS:
            bits_of[first // PAGE_SLOTS] = bits_of.get(first // PAGE_SLOTS, 0) | _bits(first, last, gaps)
    for first, last, gaps in ranges:
        at = bisect_right(ordered, first, key=itemgetter(0)) - 1
        if at >= 0 and last <= reach[at]:
            continue
        page = first // PAGE_SLOTS
        if page != last // PAGE_SLOTS or _bits(first, last, gaps) & ~bits_of.get(page, 0):
            return False
    return True


def _bits(first: int, last: int, gaps: int) -> int:
    return ((1 << last - first + 1) - 1 & ~gaps) << first % PAGE_SLOTS


def _entries_of(damages: list[Damage]) -> str:
    """How many entries are concerned, in words."""
    if any(damage.last_entry_id >= ENTRY_ID_MAX for damage in damages):
        return "from some entry on, all of them"
    count = sum(damage.entry_count for damage in damages)
    ranges = sum(damage.range_count for damage in damages)
    return f"{count} in {ranges} {'range' if ranges == 1 else 'ranges'}"
