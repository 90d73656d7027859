"""The reason and date that keep a ledger agree with what is deleted at any time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hedwig.admin.topic_retention import TopicRetention
from hedwig.cli.retention_view import kept_document, kept_text, retention_text, settings_text
from hedwig.model import LedgerRange, LocalId, MessageId, SubscriberId
from hedwig.protocol.kept_ledgers import KeptLedger, Reason, kept_ledgers
from hedwig.protocol.retention import LedgerFacts, Retention, trimming

ME, YOU = SubscriberId(b"me"), SubscriberId(b"you")


def ledger(first: int, last: int | None, last_ms: int | None = None, size: int = 10) -> LedgerFacts:
    end = None if last is None else MessageId(LocalId(last))
    return LedgerFacts(LedgerRange(first, LocalId(first), end), size, None, last_ms)


THREE = (ledger(1, 10, 100), ledger(11, 20, 200), ledger(21, None))


def of(*positions: tuple[SubscriberId, int], now_ms: int = 1000, **rules: int) -> list[KeptLedger]:
    consumed = [(name, LocalId(position)) for name, position in positions]
    needed_from = LocalId(min((position for _, position in positions), default=30) + 1)
    return kept_ledgers(THREE, consumed, needed_from, Retention(**rules), now_ms)


def latest(reason: Reason, until_ms: int) -> KeptLedger:
    return KeptLedger(reason, until_ms, at_latest=True)


WRITTEN, NOTHING = KeptLedger(Reason.WRITTEN), KeptLedger(Reason.NOTHING)


@pytest.mark.parametrize(
    ("positions", "rules", "expected"),
    [
        ([], {}, [NOTHING, NOTHING]),
        ([], {"keep_unsubscribed_ms": 5000}, [KeptLedger(Reason.UNSUBSCRIBED, at) for at in (5100, 5200)]),
        ([], {"keep_unsubscribed_ms": 850}, [NOTHING, KeptLedger(Reason.UNSUBSCRIBED, 1050)]),
        ([], {"keep_unsubscribed_ms": 5000, "limit_ms": 2000},
         [KeptLedger(Reason.UNSUBSCRIBED, at) for at in (2100, 2200)]),
        ([], {"keep_named_ms": 5000}, [KeptLedger(Reason.NAMED, 5100), KeptLedger(Reason.NAMED, 5200)]),
        ([(ME, 30)], {"keep_unsubscribed_ms": 5000}, [NOTHING, NOTHING]),
        ([(ME, 15), (YOU, 12)], {}, [NOTHING, KeptLedger(Reason.SUBSCRIPTION, None, YOU, LocalId(12))]),
        ([(ME, 5)], {"limit_ms": 2000},
         [KeptLedger(Reason.SUBSCRIPTION, at, ME, LocalId(5), at_latest=True) for at in (2100, 2200)]),
        ([(ME, 30)], {"keep_ms": 5000}, [KeptLedger(Reason.CONSUMED, 5100), KeptLedger(Reason.CONSUMED, 5200)]),
        ([(ME, 30)], {"keep_bytes": 15}, [NOTHING, KeptLedger(Reason.SIZE)]),
        ([(ME, 30)], {"keep_bytes": 99, "keep_ms": 5000}, [latest(Reason.SIZE, at) for at in (5100, 5200)]),
        ([(ME, 30)], {"keep_bytes": 99, "keep_ms": 5000, "limit_ms": 2000},
         [latest(Reason.SIZE, at) for at in (2100, 2200)]),
        ([], {"keep_bytes": 99, "keep_unsubscribed_ms": 5000}, [KeptLedger(Reason.SIZE)] * 2),
        ([(ME, 30)], {"keep_bytes": 99, "keep_named_ms": 5000}, [KeptLedger(Reason.SIZE)] * 2),
        ([(ME, 30)], {"keep_bytes": 99, "keep_ms": 6000, "keep_named_ms": 5000},
         [latest(Reason.SIZE, at) for at in (6100, 6200)]),
        ([(ME, 30)], {"keep_bytes": 15, "keep_named_ms": 5000},
         [KeptLedger(Reason.NAMED, 5100), KeptLedger(Reason.SIZE)]),
        ([], {"keep_unsubscribed_ms": 5000, "limit_bytes": 99},
         [latest(Reason.UNSUBSCRIBED, at) for at in (5100, 5200)]),
        ([(ME, 30)], {"keep_bytes": 15, "limit_ms": 5000}, [NOTHING, latest(Reason.SIZE, 5200)]),
        ([(ME, 30)], {"keep_bytes": 99, "keep_ms": 850, "keep_named_ms": 901},
         [KeptLedger(Reason.NAMED, 1001), KeptLedger(Reason.NAMED, 1101)]),
    ],
)  # fmt: skip
def test_a_kept_ledger_has_a_reason_and_a_date(
    positions: list[tuple[SubscriberId, int]], rules: dict[str, int], expected: list[KeptLedger]
) -> None:
    assert of(*positions, **rules) == [*expected, WRITTEN]


def test_the_newest_ledger_is_kept_and_an_unknown_date_is_left_out() -> None:
    only = (ledger(1, 10, None), ledger(11, 20, None))
    found = kept_ledgers(only, [], LocalId(21), Retention(keep_unsubscribed_ms=5), 1000)
    assert found == [KeptLedger(Reason.UNSUBSCRIBED), KeptLedger(Reason.NEWEST)]


def test_a_ledger_is_kept_until_its_date_and_no_longer(rng: random.Random) -> None:
    for _ in range(500):
        times = sorted(rng.randrange(1000) for _ in range(4))
        ledgers = [ledger(10 * at + 1, 10 * at + 10, time) for at, time in enumerate(times)] + [ledger(41, None)]
        position = rng.choice([None, rng.randrange(45)])
        consumed = [] if position is None else [(ME, LocalId(position))]
        needed_from = LocalId(41 if position is None else position + 1)
        names = ("keep_ms", "limit_ms", "keep_unsubscribed_ms", "keep_named_ms")
        retention = Retention(**{name: rng.choice([None, rng.randrange(3000)]) for name in names})  # type: ignore[arg-type]
        why = kept_ledgers(ledgers, consumed, needed_from, retention, 1000)
        for at_ms in range(1000, 5000, 37):
            gone = trimming(ledgers, needed_from, retention, at_ms, subscribed=bool(consumed)).count
            expected = next(
                (
                    at
                    for at, each in enumerate(why)
                    if each.reason is not Reason.NOTHING and (each.until_ms is None or each.until_ms >= at_ms)
                ),
                len(why),
            )
            assert gone == expected, (retention, at_ms, why)


def test_a_date_holds_whatever_is_published_until_then(rng: random.Random) -> None:
    said = {True: 0, False: 0}
    for _ in range(500):
        times = sorted(rng.randrange(1000) for _ in range(4))
        ledgers = [ledger(10 * at + 1, 10 * at + 10, time) for at, time in enumerate(times)] + [ledger(41, None)]
        position = rng.choice([None, rng.randrange(45)])
        consumed = [] if position is None else [(ME, LocalId(position))]
        needed_from = LocalId(41 if position is None else position + 1)
        names = ("keep_ms", "limit_ms", "keep_unsubscribed_ms", "keep_named_ms", "keep_bytes", "limit_bytes")
        some = {name: rng.choice([None, rng.randrange(100 if "bytes" in name else 3000)]) for name in names}
        retention = Retention(**some)  # type: ignore[arg-type]
        why = kept_ledgers(ledgers, consumed, needed_from, retention, 1000)
        for growth in (0, 12, 10**6):
            grown = [*ledgers[:-1], ledger(41, None, None, 10 + growth)]
            for at_ms in (*range(1001, 5000, 211), 10**9):
                gone = trimming(grown, needed_from, retention, at_ms, subscribed=bool(consumed)).count
                are_due = True
                for index, each in enumerate(why):
                    is_due = each.until_ms is not None and each.until_ms < at_ms
                    are_due = are_due and (is_due or each.reason is Reason.NOTHING)
                    assert gone > index or not are_due, "not longer"
                    if each.until_ms is not None:
                        assert is_due or each.at_latest or gone <= index, "not shorter"
                        said[each.at_latest] += 1
    assert min(said.values()) > 1000


@pytest.mark.parametrize(
    ("kept", "text", "document"),
    [
        (
            KeptLedger(Reason.UNSUBSCRIBED, 1_700_000_000_000),
            "until 2023-11-14T22:13:20+00:00 (no subscription)",
            {"kept_by": "keep_unsubscribed_ms", "kept_until": "2023-11-14T22:13:20+00:00"},
        ),
        (
            KeptLedger(Reason.SUBSCRIPTION, None, ME, LocalId(7)),
            "subscription me at 7",
            {"kept_by": "subscription", "kept_until": None, "subscriber": "me", "consumed_id": 7},
        ),
        (
            KeptLedger(Reason.SIZE, 1_700_000_000_000, at_latest=True),
            "until 2023-11-14T22:13:20+00:00 at the latest (keep_bytes)",
            {"kept_by": "keep_bytes", "kept_until": "2023-11-14T22:13:20+00:00", "kept_at_latest": True},
        ),
        (KeptLedger(Reason.NAMED, 2**62), "set by a publisher", {"kept_by": "named", "kept_until": None}),
        (NOTHING, "nothing: deleted soon", {"kept_by": "nothing", "kept_until": None}),
    ],
)
def test_a_kept_ledger_as_text_and_json(kept: KeptLedger, text: str, document: dict[str, object]) -> None:
    assert kept_text(kept) == text
    assert kept_document(kept) == document


def test_the_settings_that_dates_follow_from_are_named() -> None:
    assert settings_text(Path("hub.conf")) == "hub.conf"
    assert settings_text(None).startswith("defaults, unless -D")


def test_every_reason_has_a_text() -> None:
    assert all(kept_text(KeptLedger(reason)) for reason in Reason)


@pytest.mark.parametrize(
    ("rules", "named_ms", "subscribed", "text"),
    [
        ({}, None, False, "only the newest ledger"),
        ({"keep_unsubscribed_ms": 604_800_000}, None, False, "7 days without a subscription (keep_unsubscribed_ms)"),
        ({"keep_unsubscribed_ms": 604_800_000}, None, True, "what subscriptions need"),
        ({"limit_ms": 1500}, 0, False, "0 ms (set by a publisher); at most 1500 ms (limit_ms)"),
        ({"keep_bytes": 9, "limit_bytes": 9}, None, False,
         "the newest 9 bytes (keep_bytes); at most 9 bytes (limit_bytes)"),
        ({"keep_ms": 3_600_000}, 90_000, True,
         "what subscriptions need; 90 s (set by a publisher); 1 hour (keep_ms)"),
        ({"keep_ms": 1000, "keep_bytes": 9}, None, True,
         "what subscriptions need; 1 s (keep_ms) of the newest 9 bytes (keep_bytes)"),
    ],
)  # fmt: skip
def test_the_rules_of_a_topic_are_one_line(
    rules: dict[str, int], named_ms: int | None, subscribed: bool, text: str
) -> None:
    assert retention_text(TopicRetention(Retention(**rules).named(named_ms), named_ms), subscribed=subscribed) == text
