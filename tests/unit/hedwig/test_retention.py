"""What goes by age and size, and what is kept though it is consumed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hedwig.config.kinds import RETENTION
from hedwig.model import LedgerRange, LocalId, MessageId
from hedwig.protocol.retention import LedgerFacts, Retention, Trimming, age_of, trimming

NOTHING = Trimming()


def ledger(
    first: int, last: int | None, size: int | None = 10, created_ms: int | None = None, last_ms: int | None = None
) -> LedgerFacts:
    end = None if last is None else MessageId(LocalId(last))
    return LedgerFacts(LedgerRange(first, LocalId(first), end), size, created_ms, last_ms)


def of(*ledgers: LedgerFacts, needed: int = 1, now_ms: int = 1000, subscribed: bool = True, **rules: int) -> Trimming:
    return trimming(ledgers, LocalId(needed), Retention(**rules), now_ms, subscribed=subscribed)


FOUR = (
    ledger(1, 10, created_ms=0, last_ms=99),
    ledger(11, 20, created_ms=100, last_ms=199),
    ledger(21, 30, created_ms=200, last_ms=299),
    ledger(31, None, created_ms=300),
)


def test_without_retention_consumption_alone_decides() -> None:
    assert of(*FOUR, needed=1) == NOTHING
    assert of(*FOUR, needed=20) == Trimming(1, LocalId(10))
    assert of(*FOUR, needed=21) == Trimming(2, LocalId(20))
    assert of(*FOUR, needed=99) == Trimming(3, LocalId(30)), "never the one being written"
    assert of() == NOTHING


def test_what_is_consumed_is_kept_for_a_time_or_a_size_to_be_replayed() -> None:
    assert of(*FOUR, needed=99, keep_ms=800) == Trimming(2, LocalId(20))
    assert of(*FOUR, needed=99, keep_ms=801) == Trimming(1, LocalId(10))
    assert of(*FOUR, needed=99, keep_bytes=20) == Trimming(2, LocalId(20))
    assert of(*FOUR, needed=99, keep_bytes=21) == Trimming(1, LocalId(10))
    assert of(*FOUR, needed=99, keep_bytes=0) == Trimming(3, LocalId(30))
    assert of(*FOUR, needed=99, keep_ms=10_000, keep_bytes=20) == Trimming(2, LocalId(20)), "within both"
    assert of(*FOUR, needed=1, keep_ms=0) == NOTHING, "keeping less is no reason to lose what is needed"


@pytest.mark.parametrize(
    ("subscribed", "rules", "gone"),
    [
        # subscription, rules, number of deleted ledgers of FOUR (newest messages at 99, 199, 299; now 1000)
        (False, {}, 3),
        (False, {"keep_unsubscribed_ms": 901}, 0),
        (False, {"keep_unsubscribed_ms": 900}, 1),
        (False, {"keep_unsubscribed_ms": 700}, 3),
        (True, {"keep_unsubscribed_ms": 901}, 3),
        (True, {"keep_unsubscribed_ms": 901, "keep_ms": 801}, 1),
        # each rule keeps what the other does not
        (False, {"keep_unsubscribed_ms": 0, "keep_ms": 801}, 1),
        (False, {"keep_unsubscribed_ms": 801, "keep_ms": 0}, 1),
        (False, {"keep_unsubscribed_ms": 801, "keep_bytes": 0}, 1),
        (False, {"keep_unsubscribed_ms": 701, "keep_bytes": 21}, 1),
        # a limit overrides
        (False, {"keep_unsubscribed_ms": 10**6, "limit_ms": 900}, 1),
        (False, {"keep_unsubscribed_ms": 10**6, "limit_bytes": 20}, 2),
    ],
)
def test_without_a_subscription_messages_are_kept_until_they_are_old(
    subscribed: bool, rules: dict[str, int], gone: int
) -> None:
    expected = Trimming(gone, LocalId(10 * gone))
    assert of(*FOUR, needed=99, subscribed=subscribed, **rules) == expected


@pytest.mark.parametrize("subscribed", [True, False])
@pytest.mark.parametrize(
    ("named_ms", "rules", "gone"),
    [
        (801, {}, 1),
        (801, {"keep_unsubscribed_ms": 10**6}, 1),  # replaces it
        (801, {"keep_ms": 901}, 0),  # does not shorten it
        (901, {"keep_ms": 801, "keep_bytes": 10}, 0),
        (0, {"keep_unsubscribed_ms": 10**6}, 3),
        (10**6, {"limit_ms": 900}, 1),
    ],
)
def test_retention_set_by_a_publisher_applies_with_and_without_subscription(
    subscribed: bool, named_ms: int, rules: dict[str, int], gone: int
) -> None:
    found = trimming(FOUR, LocalId(99), Retention(**rules).named(named_ms), 1000, subscribed=subscribed)
    assert found == Trimming(gone, LocalId(10 * gone))
    assert Retention(**rules).named(None) == Retention(**rules)


@pytest.mark.parametrize(
    ("last_ms", "stored_ms", "following_ms", "now_ms", "age_ms"),
    [
        # message; creation of its ledger and of the next one, by the store's clock; now
        (200_000, 150_000, 300_000, 1_000_000, 800_000),  # all agree
        (200_000, 150_000, None, 1_000_000, 800_000),
        (None, 150_000, 300_000, 1_000_000, 700_000),  # no time in the message
        (None, None, None, 1_000_000, None),
        (90_000, 150_000, 300_000, 1_000_000, 910_000),  # clocks may differ a little
        (89_999, 150_000, 300_000, 1_000_000, 700_000),  # older than its ledger: the publishing hub's clock was behind
        (0, 150_000, None, 1_000_000, None),
        (1_060_000, 150_000, 300_000, 1_000_000, 0),  # a little in the future
        (1_060_001, 150_000, 300_000, 1_000_000, 700_000),  # that clock was ahead
        (10**12, 150_000, None, 1_000_000, None),
        (200_000, 150_000, 300_000, 100_000, 0),  # the present clock is behind: nothing is old
    ],
)
def test_an_implausible_date_is_replaced_by_a_later_one(
    last_ms: int | None, stored_ms: int | None, following_ms: int | None, now_ms: int, age_ms: int | None
) -> None:
    each = replace(ledger(1, 10, last_ms=last_ms), stored_ms=stored_ms)
    following = None if following_ms is None else replace(ledger(11, 20, created_ms=1), stored_ms=following_ms)
    assert age_of(each, following, now_ms) == age_ms


def test_a_limit_takes_what_somebody_still_needs_and_says_how_much() -> None:
    assert of(*FOUR, needed=5, limit_ms=900) == Trimming(1, LocalId(10), lost=6)
    assert of(*FOUR, needed=11, limit_ms=900) == Trimming(1, LocalId(10), lost=0)
    assert of(*FOUR, needed=1, limit_ms=0) == Trimming(3, LocalId(30), lost=30)
    assert of(*FOUR, needed=1, limit_bytes=20) == Trimming(2, LocalId(20), lost=20)
    assert of(*FOUR, needed=1, limit_bytes=40) == NOTHING
    assert of(*FOUR, needed=1, limit_bytes=0) == Trimming(3, LocalId(30), lost=30)
    assert of(*FOUR, needed=99, keep_ms=10_000, limit_bytes=30) == Trimming(1, LocalId(10)), "stronger than keep"


def test_what_is_not_known_is_no_reason_to_delete() -> None:
    unknown = (ledger(1, 10, None), ledger(11, 20, None), ledger(21, None, None))
    assert of(*unknown, needed=1, limit_ms=0, limit_bytes=0) == NOTHING
    assert of(*unknown, needed=99, keep_ms=0) == NOTHING
    by_next = (ledger(1, 10), ledger(11, 20, created_ms=100), ledger(21, None))
    assert of(*by_next, limit_ms=899) == Trimming(1, LocalId(10), lost=10), "it ended before the next one was made"
    assert of(*by_next, limit_ms=900) == NOTHING


def test_an_old_record_without_a_first_id_counts_from_the_first_message() -> None:
    old = LedgerFacts(LedgerRange(1, None, MessageId(LocalId(10))), 10, 0, 5)
    assert of(old, ledger(11, None), needed=4, limit_ms=10) == Trimming(1, LocalId(10), lost=7)


@pytest.mark.parametrize("name", RETENTION)
def test_a_negative_wish_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1"):
        Retention(**{name: -1})


def test_only_a_prefix_goes_and_each_of_it_for_a_reason(rng: random.Random) -> None:
    for _ in range(2000):
        count, now_ms = rng.randint(1, 6), 1000
        times = sorted(rng.randrange(now_ms) for _ in range(count))
        ledgers = [
            ledger(10 * index + 1, 10 * index + 10, rng.randrange(50), last_ms=time) for index, time in enumerate(times)
        ]
        if rng.random() < 0.7:
            ledgers.append(ledger(10 * count + 1, None, rng.randrange(50)))
        maybe = {name: rng.choice([None, rng.randrange(1200)]) for name in ("keep_ms", "limit_ms")}
        maybe |= {name: rng.choice([None, rng.randrange(150)]) for name in ("keep_bytes", "limit_bytes")}
        retention, needed = Retention(**maybe), rng.randrange(1, 10 * count + 12)
        found = trimming(ledgers, LocalId(needed), retention, now_ms)
        sizes = [each.size or 0 for each in ledgers]

        def may_go(
            index: int,
            retention: Retention = retention,
            needed: int = needed,
            sizes: list[int] = sizes,
            times: list[int] = times,
            ledgers: list[LedgerFacts] = ledgers,
        ) -> bool:
            """One rule after the other."""
            end = ledgers[index].range.last
            if end is None:
                return False
            age = 1000 - times[index]
            if retention.limit_ms is not None and age > retention.limit_ms:
                return True
            if retention.limit_bytes is not None and sum(sizes[index:]) > retention.limit_bytes:
                return True
            if end.local >= needed:
                return False
            if retention.keep_ms is None and retention.keep_bytes is None:
                return True
            too_old = retention.keep_ms is not None and age > retention.keep_ms
            return too_old or (retention.keep_bytes is not None and sum(sizes[index + 1 :]) >= retention.keep_bytes)

        expected = next((index for index in range(len(ledgers)) if not may_go(index)), len(ledgers))
        assert found.count == expected
        assert found.through == 10 * expected
        assert found.lost == max(0, 10 * expected - needed + 1)
