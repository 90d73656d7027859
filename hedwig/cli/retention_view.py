"""The retention of topics as text and JSON, for `describe` and `topics`."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from hedwig.names import shown

if TYPE_CHECKING:
    from pathlib import Path

    from hedwig.admin.topic_retention import TopicRetention
    from hedwig.protocol.kept_ledgers import KeptLedger


def _date(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None  # beyond the year 9999


def kept_document(kept: KeptLedger | None) -> dict[str, object]:
    """Return the JSON fields of a ledger; None: unknown."""
    if kept is None:
        return {"kept_by": None, "kept_until": None}
    found: dict[str, object] = {"kept_by": kept.reason.value, "kept_until": _date(kept.until_ms)}
    if kept.at_latest:
        found["kept_at_latest"] = True
    if kept.subscriber is not None:
        found |= {"subscriber": shown(kept.subscriber), "consumed_id": kept.position}
    return found


def kept_text(kept: KeptLedger) -> str:
    """Return what keeps a ledger, as a cell of a table."""
    from hedwig.protocol.kept_ledgers import Reason

    subscriber = "" if kept.subscriber is None else shown(kept.subscriber)
    words = {
        Reason.WRITTEN: "being written",
        Reason.NEWEST: "newest ledger",
        Reason.SUBSCRIPTION: f"subscription {subscriber} at {kept.position}",
        Reason.UNSUBSCRIBED: "no subscription",
        Reason.NAMED: "set by a publisher",
        Reason.CONSUMED: "keep_ms",
        Reason.SIZE: "keep_bytes",
        Reason.OLDER: "an older ledger is kept",
        Reason.NOTHING: "nothing: deleted soon",
    }[kept.reason]
    until = _date(kept.until_ms)
    latest = " at the latest" if kept.at_latest else ""
    return words if until is None else f"until {until}{latest} ({words})"


def settings_text(conf: Path | None) -> str:
    """Return the source of the settings, as text. conf: the file that the command line names."""
    if conf is not None:
        return str(conf)
    return "defaults, unless -D or the environment sets them; --conf FILE reads those of a hub"


def retention_text(retention: TopicRetention, *, subscribed: bool) -> str:
    """Return the rules of a topic in one line. Times count from publication."""
    if not retention.is_record_readable:
        return "unknown: the topic's retention record cannot be read; until it can, hubs delete no message"
    rules, texts = retention.rules, []
    if subscribed:
        texts.append("what subscriptions need")
    if retention.named_ms is not None:
        texts.append(f"{_duration(retention.named_ms)} (set by a publisher)")
    if not subscribed and rules.keep_unsubscribed_ms is not None:
        texts.append(f"{_duration(rules.keep_unsubscribed_ms)} without a subscription (keep_unsubscribed_ms)")
    if rules.keep_ms is not None and rules.keep_bytes is not None:
        texts.append(f"{_duration(rules.keep_ms)} (keep_ms) of the newest {rules.keep_bytes} bytes (keep_bytes)")
    elif rules.keep_ms is not None:
        texts.append(f"{_duration(rules.keep_ms)} (keep_ms)")
    elif rules.keep_bytes is not None:
        texts.append(f"the newest {rules.keep_bytes} bytes (keep_bytes)")
    if rules.limit_ms is not None:
        texts.append(f"at most {_duration(rules.limit_ms)} (limit_ms)")
    if rules.limit_bytes is not None:
        texts.append(f"at most {rules.limit_bytes} bytes (limit_bytes)")
    return "; ".join(texts) or "only the newest ledger"


def _duration(ms: int) -> str:
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)):
        if ms >= size and ms % size == 0:
            count = ms // size
            return f"{count} {unit.removesuffix('s') if count == 1 and size > 1000 else unit}"
    return f"{ms} ms"
