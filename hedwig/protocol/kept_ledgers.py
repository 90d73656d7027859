"""Why ledgers of a topic are kept, and until when: for those who ask, by the rules of `retention.trimming`. Pure.

Answers hold for the settings and the subscriptions as they are now, and for right clocks. A ledger is deleted some time
after its date: hubs look now and then, and only at topics that they serve.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hedwig.model import LocalId, SubscriberId
from hedwig.protocol.retention import LedgerFacts, Retention, age_of, trimming


class Reason(enum.Enum):
    """What keeps a ledger; the words of JSON documents."""

    WRITTEN = "written"
    NEWEST = "newest"  # all that says which ids were used
    SUBSCRIPTION = "subscription"
    UNSUBSCRIBED = "keep_unsubscribed_ms"
    NAMED = "named"
    CONSUMED = "keep_ms"
    SIZE = "keep_bytes"
    OLDER = "older"  # an older ledger stays, and none is deleted before it
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class KeptLedger:
    """until_ms: when it may be deleted, since 1970; None: not known, or no time alone decides. subscriber, position:
    with SUBSCRIPTION, of the one that is furthest behind.
    """

    reason: Reason
    until_ms: int | None = None
    subscriber: SubscriberId | None = None
    position: LocalId | None = None


def kept_ledgers(
    ledgers: Sequence[LedgerFacts],
    consumed: Sequence[tuple[SubscriberId, LocalId]],
    needed_from: LocalId,
    retention: Retention,
    now_ms: int,
) -> list[KeptLedger]:
    """Return why each ledger is kept.

    ledgers: all of the topic, in order. consumed: the stored positions of its subscriptions. needed_from: no
    subscription needs what is below.
    """
    subscribed = bool(consumed)
    deleted = trimming(ledgers, needed_from, retention, now_ms, subscribed=subscribed).count
    slowest = min(consumed, key=lambda each: each[1], default=None)
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
                why = _by_rules(date_ms, retention, now_ms, subscribed=subscribed)
            found.append(_limited(why, date_ms, retention))
    return found


def _by_rules(date_ms: int | None, retention: Retention, now_ms: int, *, subscribed: bool) -> KeptLedger:
    """What keeps a ledger for the longest time that no subscription needs; date_ms: of its newest message."""
    said = [(Reason.NAMED, retention.keep_named_ms)]
    if not subscribed:
        said.append((Reason.UNSUBSCRIBED, retention.keep_unsubscribed_ms))
    if retention.keep_bytes is None:
        said.append((Reason.CONSUMED, retention.keep_ms))
    rules = [KeptLedger(reason, None if date_ms is None else date_ms + ms) for reason, ms in said if ms is not None]
    best = max(rules, key=lambda each: each.until_ms or 0, default=KeptLedger(Reason.OLDER))
    if best.until_ms is not None and best.until_ms < now_ms:
        best = KeptLedger(Reason.OLDER)
    if retention.keep_bytes is not None and best.reason is Reason.OLDER:
        return KeptLedger(Reason.SIZE)
    return best


def _limited(why: KeptLedger, date_ms: int | None, retention: Retention) -> KeptLedger:
    if retention.limit_ms is None or date_ms is None:
        return why
    limit_ms = date_ms + retention.limit_ms
    return replace(why, until_ms=limit_ms if why.until_ms is None else min(why.until_ms, limit_ms))
