"""Which ledgers of a topic may be deleted, by age and size besides consumption. Pure.

    oldest                                                                                 newest
    [ range ][ range ][ range ][ range ][ range                                            being written
     -------- consumed --------          |    what subscribers still need: kept, unless a *limit* says otherwise
              |-- kept for replay, though consumed: *keep*

    keep    consumed messages stay for a time, or up to a size, to be replayed; not set: they are deleted at once
    limit   messages are deleted after a time, or beyond a size, consumed or not; subscribers that are behind lose them
    keep_unsubscribed    messages of a topic without any subscription stay for a time, for its first reader
    keep_named           messages stay for a time set by a publisher of the topic; replaces keep_unsubscribed

A limit overrides all other rules. Ledgers are deleted whole, oldest first and without a gap; the one that is being
written stays. An unknown size or age never causes a deletion.

Without a subscription nothing is *needed*, and Apache's hubs delete every ended ledger. The time at which the last
subscription ended is not recorded: only the age of the messages counts, so a hub that restarts or takes a topic over
decides as the hub before it did. Any subscription ends keep_unsubscribed, also one that begins behind all messages.

Ages and clocks

A message carries the time of the hub that stored it. That time may be wrong, and so may the clock of the deciding hub.
A ledger is therefore deleted by age only if it is old enough by the metadata store's clock too:

    now    the earlier of the hub's clock and the store's (hedwig.hub.topics.trimming)
    date   of a ledger's newest message: the time in the message, if it lies between the creation of its ledger by the
           store's clock and now, each with a tolerance of DOUBT_MS; else the creation of the next ledger by the store's
           clock, which is never earlier. Where hubs give messages no times, times that publishers wrote do not count
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from hedwig.model import LedgerRange, LocalId

DOUBT_MS = 60_000
"""Difference between the clocks of two machines that is still normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The rules of a topic. None: the rule does not apply.

    keep_ms, keep_bytes: where both are given, what is within both is kept. limit_ms, limit_bytes: what is beyond one of
    them is deleted. keep_unsubscribed_ms, keep_named_ms: keep messages in addition to keep_ms and keep_bytes.

    keep_bytes counts ledgers from the newest on, and one that is partly within is kept; so at least that much is there.
    limit_bytes is of all ledgers, and the oldest go until no more is there; but never the one being written.
    """

    keep_ms: int | None = None
    keep_bytes: int | None = None
    limit_ms: int | None = None
    limit_bytes: int | None = None
    keep_unsubscribed_ms: int | None = None
    keep_named_ms: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value < 0:
                raise ValueError(f"{each.name} is {value}; it must not be negative")

    def named(self, keep_ms: int | None) -> Retention:
        """Return the rules of a topic for which publishers set keep_ms (0: Apache's rule; None: nothing was set)."""
        return self if keep_ms is None else replace(self, keep_unsubscribed_ms=None, keep_named_ms=keep_ms or None)

    def uses_sizes(self) -> bool:
        """Return whether a rule needs the sizes of ledgers."""
        return self.keep_bytes is not None or self.limit_bytes is not None

    def uses_ages(self, *, subscribed: bool) -> bool:
        """Return whether a rule needs the ages of ledgers."""
        by_time = any(each is not None for each in (self.keep_ms, self.limit_ms, self.keep_named_ms))
        return by_time or (not subscribed and self.keep_unsubscribed_ms is not None)


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Facts about a ledger; None: unknown.

    created_ms: from its metadata. last_ms: the time in its newest message; None too if that has none. gone: it is
    listed but does not exist. stored_ms: creation of its metadata by the metadata store's clock. looked: its newest
    message was read.
    """

    range: LedgerRange
    size: int | None = None
    created_ms: int | None = None
    last_ms: int | None = None
    gone: bool = False
    stored_ms: int | None = None
    looked: bool = False


_NONE = LocalId(0)


@dataclass(frozen=True, slots=True)
class Trimming:
    """count: so many of the oldest ledgers go. through: the last id in them; 0 for none. lost: of these ids, how many
    somebody still needed.
    """

    count: int = 0
    through: LocalId = _NONE
    lost: int = 0


def trimming(
    ledgers: Sequence[LedgerFacts],
    needed_from: LocalId,
    retention: Retention,
    now_ms: int | None,
    *,
    subscribed: bool = True,
) -> Trimming:
    """Return which ledgers to delete now.

    ledgers: all of the topic, in order. needed_from: the first id that a subscription needs (trim_point + 1). now_ms:
    None if unknown; ages are unknown then. subscribed: the topic has a subscription.
    """
    found = Trimming()
    for each in deletions(ledgers, needed_from, retention, now_ms, subscribed=subscribed):
        found = each
    return found


def deletions(
    ledgers: Sequence[LedgerFacts],
    needed_from: LocalId,
    retention: Retention,
    now_ms: int | None,
    *,
    subscribed: bool = True,
) -> Iterator[Trimming]:
    """Yield what `trimming` would return up to each ledger that is deleted, from the oldest on.

    All sizes are read first. The other facts about a ledger, and about the next one, are read when the result that
    includes the ledger is asked for, so that the caller may complete them until then.
    """
    newer = bytes_from(ledgers)
    found = Trimming()
    for index, each in enumerate(ledgers):
        last, first = each.range.last, each.range.first
        if last is None:
            break
        following = ledgers[index + 1] if index + 1 < len(ledgers) else None
        age_ms = age_of(each, following, now_ms)
        beyond = each.gone or _is_beyond(age_ms, newer[index], retention)
        consumed = last.local < needed_from
        if not beyond and not (consumed and not _is_kept(age_ms, newer[index + 1], retention, subscribed=subscribed)):
            break
        lost_from = max(needed_from, first or LocalId(1))
        lost = max(0, last.local - lost_from + 1)
        found = Trimming(index + 1, last.local, found.lost + lost)
        yield found


def has_plausible_time(each: LedgerFacts, now_ms: int) -> bool:
    """Return whether the time in the ledger's newest message is plausible."""
    if each.last_ms is None or each.last_ms > now_ms + DOUBT_MS:
        return False
    return each.stored_ms is None or each.last_ms >= each.stored_ms - DOUBT_MS


def is_made_by(each: LedgerFacts, time_ms: int) -> bool:
    """Return whether a ledger was created at this time or earlier, by the clocks of both its hub and the store.

    Then all messages in the ledgers before it are older.
    """
    return each.created_ms is not None and max(each.created_ms, each.stored_ms or 0) <= time_ms


def age_of(each: LedgerFacts, following: LedgerFacts | None, now_ms: int | None) -> int | None:
    """Return the least age of a ledger's newest message; None: unknown."""
    if now_ms is None:
        return None
    date_ms = each.last_ms if has_plausible_time(each, now_ms) else None
    if date_ms is None and following is not None:
        date_ms = following.created_ms if following.stored_ms is None else following.stored_ms
    return None if date_ms is None else max(0, now_ms - date_ms)


def bytes_from(ledgers: Sequence[LedgerFacts]) -> list[int]:
    """Of each ledger and all newer ones together; 0 for one behind the last. Unknown sizes count nothing."""
    sums = [0]
    for each in reversed(ledgers):
        sums.append(sums[-1] + (each.size or 0))
    return sums[::-1]


def _is_beyond(age_ms: int | None, size_from_here: int, retention: Retention) -> bool:
    too_old = retention.limit_ms is not None and age_ms is not None and age_ms > retention.limit_ms
    too_much = retention.limit_bytes is not None and size_from_here > retention.limit_bytes
    return too_old or too_much


def _is_kept(age_ms: int | None, size_newer: int, retention: Retention, *, subscribed: bool) -> bool:
    """Return whether a rule keeps a ledger that no subscription needs."""
    if _is_within(age_ms, retention.keep_named_ms):
        return True
    if not subscribed and _is_within(age_ms, retention.keep_unsubscribed_ms):
        return True
    if retention.keep_ms is None and retention.keep_bytes is None:
        return False
    young = retention.keep_ms is None or _is_within(age_ms, retention.keep_ms)
    within = retention.keep_bytes is None or size_newer < retention.keep_bytes
    return young and within


def _is_within(age_ms: int | None, keep_ms: int | None) -> bool:
    return keep_ms is not None and (age_ms is None or age_ms <= keep_ms)
