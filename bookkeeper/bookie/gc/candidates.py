"""What may be deleted, and which entry logs are worth rewriting. Pure.

    ledgers here --not listed in the store--> suspects --not listed again, a grace later--> ripe --proof--> deleted
                                                 |  listed again: dropped

Being absent from a listing is no proof (I-64): it only makes a suspect; the proof is a direct, synced read of the very
ledger, which is the collector's. A listing that is empty, or lacks most of what is here, is an alarm.

Entry logs:  no ledger left -> unlink;  live share below the threshold -> rewrite the live entries (compaction).
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from bookkeeper.errors import MetadataCorrupt

SUSPECTS_MAX = 200_000
"""Beyond it the ledgers with the highest ids wait for a later round."""

ALARM_SHARE = 0.5
ALARM_COUNT_MIN = 100
"""An alarm needs so many missing ledgers at least: few may well be all of a small bookie."""


# --- ledgers ----------------------------------------------------------------------------------------------------------

_SORTED_AT_ONCE = 50_000
"""Some 20 ms: a sort keeps all other threads of the interpreter waiting, the reactor's too."""


def ascending(ledger_ids: Iterable[int]) -> array[int]:
    """The ids in order, sorted in pieces."""
    source = iter(ledger_ids)
    pieces: list[array[int]] = []
    while piece := sorted(islice(source, _SORTED_AT_ONCE)):
        pieces.append(array("q", piece))
    return array("q", merge(*pieces))


def absent_from(ledger_ids: Sequence[int], others: Sequence[int]) -> list[int]:
    """Those of the others that are not among the ids; both ascending, and so is what is returned."""
    missing = Missing(others)
    missing.feed(ledger_ids)
    return list(missing.finish())


def ranges_above(ascending: Sequence[int], after: int) -> Iterator[tuple[int, int]]:
    """The ids above `after` as ranges, both ends included, none next to another."""
    at = bisect_right(ascending, after)
    while at < len(ascending):
        first = at
        while at + 1 < len(ascending) and ascending[at + 1] == ascending[at] + 1:
            at += 1
        yield ascending[first], ascending[at]
        at += 1


class Missing:
    """The ledgers that are here and not in a listing; both ascending. The listing comes in batches."""

    def __init__(self, local: Sequence[int]) -> None:
        self._local = local
        self._place = 0
        self._last = -1
        self.listed_count = 0
        self._missing = array("q")

    def feed(self, listed: Sequence[int]) -> None:
        """The next batch. Raises MetadataCorrupt when the listing does not ascend: then it proves nothing."""
        local, place = self._local, self._place
        for ledger_id in listed:
            if ledger_id <= self._last:
                raise MetadataCorrupt(f"the listing of ledgers went back from {self._last} to {ledger_id}")
            self._last = ledger_id
            if place < len(local) and local[place] < ledger_id:
                end = bisect_right(local, ledger_id - 1, place)
                self._missing.extend(local[place:end])
                place = end
            if place < len(local) and local[place] == ledger_id:
                place += 1
        self._place = place
        self.listed_count += len(listed)

    def finish(self) -> array[int]:
        """The listing is complete: everything that was not in it."""
        self._missing.extend(self._local[self._place :])
        self._place = len(self._local)
        return self._missing

    @property
    def alarming(self) -> bool:
        """True when so much is missing that the listing is to be doubted."""
        missing = len(self._missing)
        return missing >= ALARM_COUNT_MIN and missing > ALARM_SHARE * len(self._local)


class Suspects:
    """Ledgers that were missing, and since when."""

    def __init__(self, *, count_max: int = SUSPECTS_MAX) -> None:
        self._count_max = count_max
        self._since_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def observe(self, missing: Iterable[int], now_s: float, *, grace_s: float) -> list[int]:
        """A complete round found these missing; return those missing since `grace_s` or longer, in every round since.

        What is not among them is no suspect any more.
        """
        before, after = self._since_s, dict[int, float]()
        for ledger_id in missing:
            if len(after) >= self._count_max:
                break
            after[ledger_id] = before.get(ledger_id, now_s)
        self._since_s = after
        return [ledger_id for ledger_id, since_s in after.items() if since_s < now_s and now_s - since_s >= grace_s]

    def forget(self, ledger_ids: Iterable[int]) -> None:
        """These are decided: deleted, or found to exist."""
        for ledger_id in ledger_ids:
            self._since_s.pop(ledger_id, None)


# --- entry logs -------------------------------------------------------------------------------------------------------


class LedgerBytes:
    """Bytes of each ledger in one log, 16 bytes of memory a ledger. total: of all records, where some are nobody's."""

    __slots__ = ("_ledger_ids", "_sizes", "total")

    def __init__(self, ledger_bytes: Mapping[int, int], *, total: int | None = None) -> None:
        items = sorted(ledger_bytes.items())
        self._ledger_ids = array("q", [ledger_id for ledger_id, _ in items])
        self._sizes = array("q", [size for _, size in items])
        self.total = sum(self._sizes) if total is None else total

    def __len__(self) -> int:
        return len(self._ledger_ids)

    @property
    def ledger_ids(self) -> Sequence[int]:
        """Ascending."""
        return self._ledger_ids

    def same_as(self, other: LedgerBytes) -> bool:
        """The same ledgers with the same bytes."""
        return self._ledger_ids == other._ledger_ids and self._sizes == other._sizes

    def usage(self, log_id: int, ledgers: Container[int]) -> LogUsage:
        """What of the log belongs to these ledgers."""
        count, size = 0, 0
        for ledger_id, ledger_size in zip(self._ledger_ids, self._sizes, strict=True):
            if ledger_id in ledgers:
                count += 1
                size += ledger_size
        return LogUsage(log_id, self.total, size, count)


@dataclass(frozen=True, slots=True)
class LogUsage:
    """total_bytes, live_bytes: of records, heads included; live: of ledgers that are here."""

    log_id: int
    total_bytes: int
    live_bytes: int
    live_ledger_count: int

    @property
    def share(self) -> float:
        """Live part, 0..1; of a log without records 0."""
        return self.live_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def dead(self) -> bool:
        """No ledger of this log is left."""
        return self.live_ledger_count == 0


class CompactionKind(enum.Enum):
    """Which logs are rewritten, and how often."""

    MINOR = "minor"
    MAJOR = "major"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """threshold: logs whose live share is below it are rewritten. A threshold or interval <= 0 switches the kind off.

    time_max_s: how long one run may take; what is left waits for the next one. <= 0: no bound.
    """

    minor_threshold: float = 0.2
    minor_interval_s: float = 3600.0
    minor_time_max_s: float = -1.0
    major_threshold: float = 0.8
    major_interval_s: float = 86_400.0
    major_time_max_s: float = -1.0

    def threshold(self, kind: CompactionKind) -> float:
        """Of this kind; 0 when it is off."""
        minor = kind is CompactionKind.MINOR
        threshold = self.minor_threshold if minor else self.major_threshold
        interval_s = self.minor_interval_s if minor else self.major_interval_s
        return threshold if threshold > 0 and interval_s > 0 else 0.0

    def time_max_s(self, kind: CompactionKind) -> float:
        """Of this kind; infinite without a bound."""
        limit_s = self.minor_time_max_s if kind is CompactionKind.MINOR else self.major_time_max_s
        return limit_s if limit_s > 0 else float("inf")


class CompactionSchedule:
    """When which kind is due. A major run counts as a minor one, too."""

    def __init__(self, settings: CompactionSettings, now_s: float) -> None:
        self._settings = settings
        self._minor_s = self._major_s = now_s

    def due(self, now_s: float) -> CompactionKind | None:
        """The kind whose interval is over; major before minor."""
        settings = self._settings
        if settings.threshold(CompactionKind.MAJOR) and now_s - self._major_s >= settings.major_interval_s:
            return CompactionKind.MAJOR
        if settings.threshold(CompactionKind.MINOR) and now_s - self._minor_s >= settings.minor_interval_s:
            return CompactionKind.MINOR
        return None

    def done(self, kind: CompactionKind, now_s: float) -> None:
        """A run of this kind ended, whatever it did."""
        self._minor_s = now_s
        if kind is CompactionKind.MAJOR:
            self._major_s = now_s


def worth_compacting(usages: Iterable[LogUsage], threshold: float) -> list[LogUsage]:
    """Logs with a live share below `threshold`, those that give back most for least first. Dead ones are not among
    them: they need no rewriting.
    """
    return sorted(
        (usage for usage in usages if not usage.dead and usage.share < threshold),
        key=lambda usage: (usage.share, usage.log_id),
    )
