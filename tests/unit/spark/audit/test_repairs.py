"""Findings that are queued for auto-recovery: a few at a time, whatever their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bookkeeper.spark.audit.repairs import RANGES_MAX, batches_of


def finding(ledger_id: int, first: int) -> Any:
    return SimpleNamespace(
        ledger_id=ledger_id, first_entry_id=first, last_entry_id=first + 1, bookie="b:1", kind="missing"
    )


def test_a_ledger_with_more_findings_than_are_held_is_queued_in_several_parts() -> None:
    rows = [finding(3, 0), *(finding(7, 10 * number) for number in range(2 * RANGES_MAX))]
    parts = list(batches_of(iter(rows), 5))
    assert [{ledger_id: len(ranges) for ledger_id, ranges in part.items()} for part in parts] == [
        {3: 1, 7: RANGES_MAX - 1},
        {7: RANGES_MAX},
        {7: 1},
    ]
    assert [each.first_entry_id for part in parts for each in part.get(7, ())] == list(range(0, 20 * RANGES_MAX, 10))
    [only] = parts[0][3]
    assert (only.bookie_id, only.last_entry_id, only.reported_ms) == ("b:1", 1, 5)
    assert "found it missing" in only.reason


def test_nothing_to_queue_is_no_part() -> None:
    assert list(batches_of([], 5)) == []
