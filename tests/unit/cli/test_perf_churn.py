"""Which ledgers of a churning load go, what an entry must hold, and what a collection gave back."""

from __future__ import annotations

import random

import pytest

from bookkeeper.cli.perf.churn_ledgers import (
    ChurnLedger,
    LedgerBook,
    Payloads,
    draw_entries_max,
    stored_size,
    to_delete,
    to_replace,
)
from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.cli.perf.collect_report import returned_after_s
from bookkeeper.cli.perf.worker import Replication


def closed_ledgers(*entries: int) -> list[ChurnLedger]:
    return [ChurnLedger(number, count, count, count, closed=True) for number, count in enumerate(entries)]


def test_entries_of_neighbours_differ_and_an_entry_is_always_the_same() -> None:
    payloads = Payloads(100)
    seen = {payloads.of(ledger_id, entry_id) for ledger_id in range(30) for entry_id in range(30)}
    assert len(seen) == 900
    assert {len(payload) for payload in seen} == {100}
    assert Payloads(100).of(7, 9) == payloads.of(7, 9)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_half_of_what_is_deleted_is_the_oldest_and_the_rest_is_spread(share: float) -> None:
    ledgers = closed_ledgers(*[10] * 200)
    chosen = {ledger.ledger_id for ledger in to_delete(ledgers, share, random.Random(1))}
    assert len(chosen) == round(200 * share)
    oldest = round(100 * share)
    assert set(range(oldest)) <= chosen
    later = [ledger_id for ledger_id in chosen if ledger_id >= oldest]
    assert min(later) < 120 < max(later)
    assert not set(range(oldest, 200)) <= chosen


def test_nothing_is_deleted_of_nothing() -> None:
    assert to_delete([], 0.6, random.Random(1)) == []
    assert to_replace([], 0, random.Random(1)) is None


def test_a_ledger_is_replaced_only_when_more_than_enough_is_there() -> None:
    ledgers = closed_ledgers(50, 60, 70)
    assert to_replace(ledgers, 180, random.Random(1)) is None
    chosen = [to_replace(ledgers, 179, random.Random(seed)) for seed in range(100)]
    assert None not in chosen
    assert chosen.count(ledgers[0]) > 60
    assert ledgers[2] in chosen


def test_sizes_stay_within_their_bounds() -> None:
    rng = random.Random(1)
    drawn = [draw_entries_max(rng, 64, 4096) for _ in range(1000)]
    assert 64 <= min(drawn) < 100
    assert 3000 < max(drawn) <= 4096
    assert draw_entries_max(rng, 1, 1) == 1


def test_a_ledger_that_goes_is_neither_live_nor_read() -> None:
    book = LedgerBook()
    kept, going = closed_ledgers(3, 5)
    for ledger in (kept, going):
        book.add(ledger)
    assert book.live_entries == 8
    going.going = True
    assert (book.live_entries, book.staying(), book.closed(), len(book)) == (3, [kept], [kept], 2)
    book.gone(going)
    assert (len(book), book.deleted_count, book.deleted_entries) == (1, 1, 5)


def test_the_least_space_is_that_of_the_records_alone() -> None:
    # length u32; ledger, entry, LAC, length i64 each; digest
    assert stored_size(1, 1000, "CRC32C") == 4 + 32 + 4 + 1000
    assert stored_size(10, 0, "MAC") == 10 * (4 + 32 + 20)


def test_the_plan_of_a_load_reaches_its_process_whole() -> None:
    plan = ChurnPlan("zk://h/l", Replication(3, 2, 2, "MAC"), 10, 5, rate=7.5, bookies=("a:1", "b:2"))
    assert ChurnPlan.from_json(plan.to_json()) == plan


def test_space_was_returned_when_most_of_it_was_for_the_first_time_after_it_was_full() -> None:
    samples = [(0.0, 90), (1.0, 100), (2.0, 60), (3.0, 19), (4.0, 10)]
    assert returned_after_s(samples, 0.9) == 3.0
    assert returned_after_s(samples, 0.5) == 3.0
    assert returned_after_s(samples, 0.4) == 2.0
    assert returned_after_s([(5.0, 0)], 0.9) == 5.0
