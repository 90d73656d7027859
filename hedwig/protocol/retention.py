"""Which ledgers of a topic may go, by age and size besides consumption. Pure.

    oldest                                                                                 newest
    [ range ][ range ][ range ][ range ][ range                                            being written
     -------- consumed --------          |    what subscribers still need: kept, unless a *limit* says otherwise
              |-- kept for replay, though consumed: *keep*

    keep    consumed messages stay for so long, or so much of them; to be replayed. Nothing said: they go at once
    limit   messages go after so long, or beyond so much, consumed or not; subscribers that are behind lose them

A limit is stronger than keep. Ledgers go whole, oldest first and without a gap; the one that is being written stays.
What is not known of a ledger is never a reason to delete it. Ages are of a ledger's newest message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hedwig.model import LedgerRange, LocalId


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """None: nothing is said. keep_ms, keep_bytes: where both are given, what is within both is kept. limit_ms,
    limit_bytes: what is beyond one of them goes.

    keep_bytes counts ledgers from the newest on, and one that is partly within is kept; so at least that much is there.
    limit_bytes is of all ledgers, and the oldest go until no more is there; but never the one being written.
    """

    keep_ms: int | None = None
    keep_bytes: int | None = None
    limit_ms: int | None = None
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("keep_ms", "keep_bytes", "limit_ms", "limit_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}, and must not be negative")


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What is known of a ledger; None: not known. created_ms: of its metadata. last_ms: of its newest message. gone: it
    is listed, and not there any more.
    """

    range: LedgerRange
    size: int | None = None
    created_ms: int | None = None
    last_ms: int | None = None
    gone: bool = False


_NONE = LocalId(0)


@dataclass(frozen=True, slots=True)
class Trimming:
    """count: so many of the oldest ledgers go. through: the last id in them; 0 for none. lost: of these ids, how many
    somebody still needed.
    """

    count: int = 0
    through: LocalId = _NONE
    lost: int = 0


def trimming(ledgers: Sequence[LedgerFacts], needed_from: LocalId, retention: Retention, now_ms: int) -> Trimming:
    """What goes now. ledgers: all of the topic, in order. needed_from: nobody needs what is below (trim_point + 1)."""
    ages_ms = _ages(ledgers, now_ms)
    newer = _bytes_from(ledgers)
    found = Trimming()
    for index, each in enumerate(ledgers):
        last, first = each.range.last, each.range.first
        if last is None:
            break
        beyond = each.gone or _is_beyond(ages_ms[index], newer[index], retention)
        consumed = last.local < needed_from
        if not beyond and not (consumed and not _is_kept(ages_ms[index], newer[index + 1], retention)):
            break
        lost_from = max(needed_from, first or LocalId(1))
        lost = max(0, last.local - lost_from + 1)
        found = Trimming(index + 1, last.local, found.lost + lost)
    return found


def _ages(ledgers: Sequence[LedgerFacts], now_ms: int) -> list[int | None]:
    """How old each ledger's newest message is, at least: it is not newer than the creation of the next ledger."""
    ages: list[int | None] = []
    for index, each in enumerate(ledgers):
        last_ms = each.last_ms
        if last_ms is None and index + 1 < len(ledgers):
            last_ms = ledgers[index + 1].created_ms
        ages.append(None if last_ms is None else max(0, now_ms - last_ms))
    return ages


def _bytes_from(ledgers: Sequence[LedgerFacts]) -> list[int]:
    """Of each ledger and all newer ones together; 0 for one behind the last. Unknown sizes count nothing."""
    sums = [0]
    for each in reversed(ledgers):
        sums.append(sums[-1] + (each.size or 0))
    return sums[::-1]


def _is_beyond(age_ms: int | None, size_from_here: int, retention: Retention) -> bool:
    too_old = retention.limit_ms is not None and age_ms is not None and age_ms > retention.limit_ms
    too_much = retention.limit_bytes is not None and size_from_here > retention.limit_bytes
    return too_old or too_much


def _is_kept(age_ms: int | None, size_newer: int, retention: Retention) -> bool:
    """Though it is consumed."""
    if retention.keep_ms is None and retention.keep_bytes is None:
        return False
    young = retention.keep_ms is None or age_ms is None or age_ms <= retention.keep_ms
    within = retention.keep_bytes is None or size_newer < retention.keep_bytes
    return young and within
