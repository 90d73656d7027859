"""What became of each ledger, and of which day it is."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.spark.exports.chosen import PLANNED, date_of
from bookkeeper.spark.exports.digests import NOTHING
from bookkeeper.spark.exports.judging import judged
from bookkeeper.spark.exports.manifest import Status

ROW: dict[str, Any] = {
    "ledger_id": 7,
    "status": PLANNED,
    "why": "",
    "date": "2026-11-23",
    "state": "CLOSED",
    "ensemble_size": 3,
    "write_quorum": 2,
    "ack_quorum": 2,
    "digest_type": "CRC32C",
    "created_ms": 5,
    "custom": [("a", b"b")],
    "last_entry_id": 19,
    "expected_bytes": 100,
    "size": 100,
    "entries": 20,
    "bytes": 100,
    "first_entry_id": 0,
    "found_last": 19,
    "digest": "d",
}
NONE = dict.fromkeys(("entries", "bytes", "first_entry_id", "found_last", "digest"))


def test_a_ledger_with_all_its_entries_is_complete() -> None:
    found = judged(ROW)
    assert (found.status, found.why, found.entries, found.size, found.digest) == (Status.COMPLETE, "", 20, 100, "d")
    assert (found.expected_entries, found.expected_bytes, found.custom) == (20, 100, {"a": b"b"})
    assert judged({**ROW, "expected_bytes": None}).status is Status.COMPLETE, "what is confirmed of an open one"
    empty = judged({**ROW, **NONE, "last_entry_id": -1, "expected_bytes": 0})
    assert (empty.status, empty.entries, empty.size, empty.digest) == (Status.COMPLETE, 0, 0, NOTHING)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (NONE, "0 of 20 entries"),
        ({"entries": 19, "found_last": 18}, "19 of 20 entries"),
        ({"entries": 21}, "21 of 20 entries"),
        ({"first_entry_id": 1, "found_last": 20}, "20 of 20 entries, 1 to 20"),
        ({"bytes": 99}, "its entries have 99 bytes of payload, its metadata says 100"),
    ],
)
def test_a_ledger_that_lacks_something_is_not(found: dict[str, Any], why: str) -> None:
    ledger = judged({**ROW, **found})
    assert (ledger.status, ledger.why) == (Status.INCOMPLETE, why)


def test_an_open_ledger_names_what_is_left_out_beside_what_is_wrong() -> None:
    row = {**ROW, "state": "OPEN", "expected_bytes": None, "why": "entry 20 is stored"}
    ledger = judged(row)
    assert (ledger.status, ledger.why) == (Status.COMPLETE, "entry 20 is stored")
    ledger = judged({**row, "entries": 19, "found_last": 18})
    assert (ledger.status, ledger.why) == (Status.INCOMPLETE, "19 of 20 entries; entry 20 is stored")


@pytest.mark.parametrize("status", [Status.OPEN, Status.LOST])
def test_what_was_not_to_be_exported_has_no_entries(status: Status) -> None:
    ledger = judged({**ROW, **NONE, "status": status.value, "why": "so", "last_entry_id": None})
    assert (ledger.status, ledger.why, ledger.entries, ledger.digest) == (status, "so", None, None)


def test_days_are_those_of_utc() -> None:
    assert date_of(1_700_000_000_000) == "2023-11-14"
    assert (date_of(86_399_999), date_of(86_400_000)) == ("1970-01-01", "1970-01-02")
    assert date_of(None) == date_of(10**18) == "unknown"
