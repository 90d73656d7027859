"""What a damaged index page has to say (I-31, I-59)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bookkeeper.bookie.integrity.checksums.index import (
    DAMAGED,
    UNKNOWN,
    damaged_value,
    expected_checksum,
    is_damaged,
    page_checksum,
)
from bookkeeper.bookie.integrity.scrub.page_rules import settled_page
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS, encode_slots


def page(*slots: int) -> array[int]:
    return array("q", [*slots, *[0] * (PAGE_SLOTS - len(slots))])


def settled(
    named: Sequence[int],
    found: array[int],
    *,
    now: Sequence[int] | None = None,
    written: array[int] | None = None,
    records: Sequence[tuple[int, int]] = (),
    in_doubt: Sequence[int] = (),
) -> list[int] | str:
    """written: what the noted checksum is of. records: further ones, slot and location. in_doubt: places."""
    result = settled_page(
        found=found,
        named=named,
        now=named if now is None else now,
        expected=None if written is None else page_checksum(encode_slots(written)),
        is_at=lambda slot, location: (slot, location) in records,
        doubt=lambda slot, location: f"slot {slot} is in doubt" if location in in_doubt else None,
    )
    return result if isinstance(result, str) else list(result[:8])


def test_each_row_of_the_table() -> None:
    found = page(11, 12, 0, 0)
    assert settled([99, 12, 0, 0], found) == [11, 12, 0, 0, 0, 0, 0, 0]
    assert settled([10, 0], found, records=[(0, 10)]) == [10, 12, 0, 0, 0, 0, 0, 0]
    assert settled([11, 12, 77], found) == [11, 12, 0, 0, 0, 0, 0, 0]
    assert settled([11, 12, 77], found, in_doubt=[77]) == "slot 2 is in doubt"


def test_the_checksum_of_what_was_written_settles_every_doubt() -> None:
    found = page(11, 12, 0, 0)
    assert settled([11, 12, 77], found, in_doubt=[77], written=page(11, 12)) == [11, 12, 0, 0, 0, 0, 0, 0]
    assert settled([0, 0, 77], found, in_doubt=[77], written=page(11, 12)) == [11, 12, 0, 0, 0, 0, 0, 0]
    assert settled([11, 12, 77], found, in_doubt=[77], written=page(11, 12, 0, 14)) == "slot 2 is in doubt"


def test_a_slot_that_was_written_empty_stays_empty_though_a_log_has_a_record() -> None:
    """Of a ledger that was dropped here once, and came back."""
    assert settled([11, 0, 77], page(11, 12), written=page(11)) == [11, 0, 0, 0, 0, 0, 0, 0]
    assert settled([11, 0, 77], page(11, 12)) == [11, 12, 0, 0, 0, 0, 0, 0]


def test_what_was_written_since_counts_more_than_what_the_file_has() -> None:
    assert settled([11, 77], page(11, 22), now=[11, 22], in_doubt=[77]) == [11, 22, 0, 0, 0, 0, 0, 0]
    found = page(21, 22, 23)
    assert settled([11, 77], found, now=[21, 77, 23], written=page(11, 22)) == [21, 22, 23, 0, 0, 0, 0, 0]
    assert settled([11, 77], page(11), now=[11, 0, 33], written=page(11)) == [11, 0, 0, 0, 0, 0, 0, 0]


def test_the_checksum_of_what_should_be_there_outlives_writing_onto_a_damaged_page() -> None:
    written, damaged = page(11, 12, 0, 14), page(11, 12, 77, 14)
    value = page_checksum(encode_slots(written))
    before, after = encode_slots(damaged), encode_slots(page(11, 12, 77, 14, 15, 16))
    noted = damaged_value(value, before, after)
    assert is_damaged(noted)
    assert expected_checksum(noted) == page_checksum(encode_slots(page(11, 12, 0, 14, 15, 16)))
    again = damaged_value(noted, after, encode_slots(page(21, 12, 77, 14, 15, 16)))
    assert expected_checksum(again) == page_checksum(encode_slots(page(21, 12, 0, 14, 15, 16)))
    for unknown in (UNKNOWN, DAMAGED):
        assert damaged_value(unknown, before, after) == DAMAGED
        assert expected_checksum(unknown) is None
