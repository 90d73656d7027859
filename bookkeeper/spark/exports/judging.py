"""What became of each ledger of an export: what is in the files beside what was to be. Thread: a task's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bookkeeper.spark.exports.chosen import PLANNED
from bookkeeper.spark.exports.digests import NOTHING
from bookkeeper.spark.exports.manifest import ExportedLedger, Status, format_ledger
from bookkeeper.spark.exports.stored import rows_of, text_batches


def judged_lines(batches: Iterator[Any]) -> Iterator[Any]:
    """For `map_in_arrow`: the lines of ledgers, from rows of CHOSEN_SCHEMA joined with those of `ledger_digests`.

    The last_entry_id of the latter is found_last.
    """
    return text_batches(format_ledger(judged(row)) for row in rows_of(batches))


def judged(row: Mapping[str, Any]) -> ExportedLedger:
    """What became of one."""
    status, why = row["status"], row["why"]
    entries = size = digest = expected = None
    if status == PLANNED:
        expected = row["last_entry_id"] + 1
        entries, size, digest = row["entries"] or 0, row["bytes"] or 0, row["digest"] or NOTHING
        wrong = _what_is_wrong(row, entries, size, expected)
        status = (Status.INCOMPLETE if wrong else Status.COMPLETE).value
        why = "; ".join(each for each in (wrong, why) if each)
    return ExportedLedger(
        ledger_id=row["ledger_id"],
        status=Status(status),
        why=why,
        date=row["date"],
        state=row["state"],
        ensemble_size=row["ensemble_size"],
        write_quorum=row["write_quorum"],
        ack_quorum=row["ack_quorum"],
        digest_type=row["digest_type"],
        created_ms=row["created_ms"],
        custom=dict(row["custom"] or ()),
        expected_entries=expected,
        expected_bytes=row["expected_bytes"],
        entries=entries,
        size=size,
        digest=digest,
    )


def _what_is_wrong(row: Mapping[str, Any], entries: int, size: int, expected: int) -> str:
    if entries != expected:
        return f"{entries:,} of {expected:,} entries"
    if entries and (row["first_entry_id"], row["found_last"]) != (0, expected - 1):
        return f"{entries:,} of {expected:,} entries, {row['first_entry_id']} to {row['found_last']}"
    if row["expected_bytes"] not in (None, size):
        return f"its entries have {size:,} bytes of payload, its metadata says {row['expected_bytes']:,}"
    return ""
