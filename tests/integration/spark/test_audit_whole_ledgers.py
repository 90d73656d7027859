"""Findings about ledgers as a whole, of rows that an audit may have; what the metadata say now is given."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.spark.audit import whole_ledgers as module
from bookkeeper.spark.audit.metadata_now import NOW_COLUMNS
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA
from bookkeeper.spark.audit.whole_ledgers import orphan_rows, unknown_rows, whole_ledgers
from bookkeeper.spark.audit.work_directory import PIECE_COLUMNS
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

SOUND, WRONG, GONE, EMPTY, OPEN, DARK, CHANGED = range(1, 8)
LENGTHS = {SOUND: 100, WRONG: 101, GONE: 101, EMPTY: 100, OPEN: None, DARK: 101, CHANGED: 101}
"""As the plan has them. Every ledger has two chunks, of 10 entries and 50 bytes each."""


def chunk(ledger_id: int, number: int, size: int | None = 50) -> tuple[Any, ...]:
    return (ledger_id, "chunk", 10 * number, 10 * number + 9, None, None, None, 10, 20, size)


def lost(ledger_id: int, first: int, last: int) -> tuple[Any, ...]:
    return (ledger_id, "lost", first, last, None, 0, None, last - first + 1, None, None)


def test_lengths_and_ledgers_without_data_are_found_and_those_that_were_deleted_meanwhile_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = spark_session()
    rows = [chunk(ledger_id, number) for ledger_id in (SOUND, WRONG, GONE, OPEN, CHANGED) for number in (0, 1)]
    rows += [chunk(DARK, 0), chunk(DARK, 1, None), lost(DARK, 12, 12)]  # an entry has no good copy: no sum
    rows += [chunk(EMPTY, 0, None), chunk(EMPTY, 1, None), lost(EMPTY, 0, 9), lost(EMPTY, 10, 19)]
    plan = [(0, ledger_id, 0, 1, 19, 200, length, 0) for ledger_id, length in LENGTHS.items()]
    now = [(ledger_id, 19, length) for ledger_id, length in LENGTHS.items() if ledger_id not in (GONE, CHANGED)]
    now.append((CHANGED, 19, 100))
    monkeypatch.setattr(module, "metadata_now", lambda *_: spark.createDataFrame(now, NOW_COLUMNS))
    found = whole_ledgers(
        spark.createDataFrame(rows, AUDIT_SCHEMA), spark.createDataFrame(plan, PIECE_COLUMNS), ClientSettings()
    )
    told = {row.ledger_id: (row.kind, row.last_entry_id, row.good_copies, row.entries) for row in found.collect()}
    assert told == {WRONG: ("length", 19, None, 20), EMPTY: ("no_data", 19, 0, 20)}
    details = {row.ledger_id: row.detail for row in found.collect()}
    assert details[WRONG] == "the metadata say 101 bytes, its entries have 100"

    unknown = unknown_rows(spark.createDataFrame([(9, "nonsense")], "ledger_id LONG, detail STRING"))
    orphans = spark.createDataFrame([("b:1", 7), ("b:2", 7)], "bookie STRING, ledger_id LONG")
    sizes = spark.createDataFrame([("b:2", 7, 3, 30)], "bookie STRING, ledger_id LONG, entries LONG, bytes LONG")
    both = unknown.unionByName(orphan_rows(orphans, sizes)).unionByName(orphan_rows(orphans, None))
    assert sorted((row.kind, row.ledger_id, row.bookie or "", row.entries or 0) for row in both.collect()) == [
        ("orphan", 7, "b:1", 0),
        ("orphan", 7, "b:1", 0),
        ("orphan", 7, "b:2", 0),
        ("orphan", 7, "b:2", 3),
        ("unknown", 9, "", 0),
    ]
