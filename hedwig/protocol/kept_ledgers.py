"""Why ledgers of a topic are kept, and until when, by the rules of `retention.trimming`. Pure.

The result holds for the present settings and subscriptions, and for correct clocks. A ledger is deleted some time after
its date: hubs check periodically, and only the topics that they serve.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hedwig.model import LocalId, SubscriberId
from hedwig.protocol.retention import LedgerFacts, Retention, age_of, bytes_from, trimming


class Reason(enum.Enum):
    """What keeps a ledger. Values: as in JSON documents."""

    WRITTEN = "written"
    NEWEST = "newest"  # it records which ids were used
    SUBSCRIPTION = "subscription"
    UNSUBSCRIBED = "keep_unsubscribed_ms"
    NAMED = "named"
    CONSUMED = "keep_ms"
    SIZE = "keep_bytes"
    OLDER = "older"  # an older ledger is kept; ledgers are deleted oldest first
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class KeptLedger:
    """A ledger with what keeps it.

    until_ms: when it may be deleted, since 1970; None: unknown, or not decided by time alone. subscriber, position: the
    slowest subscription, if reason is SUBSCRIPTION. at_latest: it may be deleted before until_ms, as the topic grows or
    messages are consumed.
    """

    reason: Reason
    until_ms: int | None = None
    subscriber: SubscriberId | None = None
    position: LocalId | None = None
    at_latest: bool = False


def kept_ledgers(
    ledgers: Sequence[LedgerFacts],
    consumed: Sequence[tuple[SubscriberId, LocalId]],
    needed_from: LocalId,
    retention: Retention,
    now_ms: int,
) -> list[KeptLedger]:
    """Return what keeps each ledger.

    ledgers: all of the topic, in order. consumed: the stored positions of its subscriptions. needed_from: the first id
    that a subscription needs.
    """
    subscribed = bool(consumed)
    deleted = trimming(ledgers, needed_from, retention, now_ms, subscribed=subscribed).count
    slowest = min(consumed, key=lambda each: each[1], default=None)
    newer = bytes_from(ledgers)
    found: list[KeptLedger] = []
    for index, each in enumerate(ledgers):
        last = each.range.last
        following = ledgers[index + 1] if index + 1 < len(ledgers) else None
        if last is None:
            found.append(KeptLedger(Reason.WRITTEN))
        elif following is None:
            found.append(KeptLedger(Reason.NEWEST))
        elif index < deleted:
            found.append(KeptLedger(Reason.NOTHING))
        else:
            age_ms = age_of(each, following, now_ms)
            date_ms = None if age_ms is None else now_ms - age_ms
            if last.local >= needed_from and slowest is not None:
                why = KeptLedger(Reason.SUBSCRIPTION, None, *slowest)
            else:
                why = _by_rules(date_ms, newer[index + 1], retention, now_ms, subscribed=subscribed)
            found.append(_limited(why, date_ms, retention))
    return found


def _by_rules(
    date_ms: int | None, size_newer: int, retention: Retention, now_ms: int, *, subscribed: bool
) -> KeptLedger:
    """Return the rule that keeps an unneeded ledger for the longest time. date_ms: of its newest message."""
    rules = [(Reason.NAMED, retention.keep_named_ms)]
    if not subscribed:
        rules.append((Reason.UNSUBSCRIBED, retention.keep_unsubscribed_ms))
    if retention.keep_bytes is None:
        rules.append((Reason.CONSUMED, retention.keep_ms))
    elif size_newer < retention.keep_bytes:  # once it is beyond, it stays beyond
        if retention.keep_ms is None:
            return KeptLedger(Reason.SIZE)
        rules.append((Reason.SIZE, retention.keep_ms))
    dated = [
        KeptLedger(reason, None if date_ms is None else date_ms + ms, at_latest=reason is Reason.SIZE)
        for reason, ms in rules
        if ms is not None
    ]
    best = max(dated, key=lambda each: each.until_ms or 0, default=KeptLedger(Reason.OLDER))
    return KeptLedger(Reason.OLDER) if best.until_ms is not None and best.until_ms < now_ms else best


def _limited(why: KeptLedger, date_ms: int | None, retention: Retention) -> KeptLedger:
    if retention.limit_ms is not None and date_ms is not None:
        limit_ms = date_ms + retention.limit_ms
        if why.until_ms is None:
            why = replace(why, until_ms=limit_ms, at_latest=True)
        else:
            why = replace(why, until_ms=min(why.until_ms, limit_ms))
    return replace(why, at_latest=why.until_ms is not None and (why.at_latest or retention.limit_bytes is not None))
