"""What was read in place, as rows, beside what it was made of."""

from __future__ import annotations

import random
from array import array

import pytest

from bookkeeper.spark.audit.evidence import (
    BAD,
    CHUNK_ENTRIES,
    GOOD,
    MISSING,
    UNKNOWN,
    UNSAID,
    Evidence,
    chunk_of,
)
from bookkeeper.spark.audit.stored_evidence import (
    CHUNKS_MAX,
    PLAN,
    UNKNOWN_MAX,
    Row,
    StoredBookie,
    UnitDone,
    Unknown,
    copies_rows,
    said_rows,
    stored_bookies,
    take_row,
)
from bookkeeper.spark.stored_copies.model import BadCopies, CopyFault, GoodCopies, UnknownCopies

LEDGER, BOOKIE = 9, "bk1:3181"


def copies_of(entry_ids: list[int]) -> GoodCopies:
    copies = GoodCopies(LEDGER)
    copies.entry_ids = array("q", entry_ids)
    copies.payload_crcs = array("I", [7 * each % 2**32 for each in entry_ids])
    copies.payload_sizes = array("I", [1 + each % 100 for each in entry_ids])
    return copies


def taken(rows: list[Row]) -> dict[int, Evidence]:
    found: dict[int, Evidence] = {}
    for row in rows:
        assert (row["ledger_id"], row["bookie"]) == (LEDGER, BOOKIE)
        chunk = row["chunk"]
        take_row(found.setdefault(chunk, Evidence(LEDGER, chunk, BOOKIE)), row)
    return found


def of(evidence: Evidence, verdict: int) -> list[int]:
    return [evidence.first_entry_id + at for at, each in enumerate(evidence.verdicts) if each == verdict]


@pytest.mark.parametrize(
    "entry_ids",
    [
        [5],
        list(range(3 * CHUNK_ENTRIES + 7)),
        list(range(CHUNK_ENTRIES - 2, 2 * CHUNK_ENTRIES, 3)),
        [0, CHUNK_ENTRIES - 1, CHUNK_ENTRIES, 10 * CHUNK_ENTRIES, 2**40],
        sorted(random.Random(1).sample(range(20_000), 3000)),
        random.Random(2).sample(range(20_000), 3000),
    ],
    ids=["one", "all", "strided", "borders", "some", "not in order"],
)
def test_good_copies_come_back_with_their_checksums_and_sizes_chunk_by_chunk(entry_ids: list[int]) -> None:
    rows = list(copies_rows(BOOKIE, copies_of(entry_ids)))
    assert len(rows) == len({chunk_of(each) for each in entry_ids})
    found = taken(rows)
    assert sorted(entry for each in found.values() for entry in of(each, GOOD)) == sorted(entry_ids)
    for entry_id in entry_ids:
        evidence = found[chunk_of(entry_id)]
        at = entry_id - evidence.first_entry_id
        assert (evidence.crcs[at], evidence.sizes[at]) == (7 * entry_id % 2**32, 1 + entry_id % 100)


def test_copies_that_follow_each_other_in_even_strides_need_no_column_of_positions() -> None:
    (row,) = copies_rows(BOOKIE, copies_of(list(range(1, 4000, 3))))
    assert (row["first"], row["step"], row["positions"]) == (1, 3, None)


def test_what_is_bad_or_unknown_is_said_of_each_chunk_with_its_reason() -> None:
    bad = BadCopies(LEDGER, CHUNK_ENTRIES - 1, CHUNK_ENTRIES + 1, CopyFault.DIGEST, "/l/0.log", 77, "wrong")
    unknown = UnknownCopies(LEDGER, 3, 4, "/i/9.idx", "its page is damaged")
    rows, whole = said_rows(BOOKIE, [bad], [unknown])
    assert not whole
    found = taken(rows)
    assert (of(found[0], BAD), of(found[0], UNKNOWN), of(found[1], BAD)) == (
        [CHUNK_ENTRIES - 1],
        [3, 4],
        [CHUNK_ENTRIES, CHUNK_ENTRIES + 1],
    )
    assert "/l/0.log, 77" in found[1].why(CHUNK_ENTRIES)
    assert "its page is damaged" in found[0].why(3)


def test_what_is_unknown_without_end_belongs_to_the_whole_bookie() -> None:
    long = UnknownCopies(LEDGER, 5, 5 + CHUNKS_MAX * CHUNK_ENTRIES, "/p", "long")
    rows, whole = said_rows(
        BOOKIE, [], [UnknownCopies(None, 0, None, "/p", "journal"), UnknownCopies(3, 7, None, "/p", "index"), long]
    )
    assert not rows
    assert [(each.ledger_id, each.first, each.last) for each in whole] == [
        (None, 0, None),
        (3, 7, None),
        (LEDGER, 5, 5 + CHUNKS_MAX * CHUNK_ENTRIES),
    ]


def test_more_unknown_ranges_than_are_kept_make_everything_unknown() -> None:
    many = [UnknownCopies(each, 0, None, "/p", "gone") for each in range(UNKNOWN_MAX + 1)]
    _, whole = said_rows(BOOKIE, [], many)
    assert [(each.ledger_id, each.first, each.last) for each in whole] == [(None, 0, None)]


def finished(bookie: StoredBookie, good: list[int]) -> Evidence:
    evidence = Evidence(LEDGER, 0, BOOKIE)
    for row in copies_rows(BOOKIE, copies_of(good)):
        take_row(evidence, row)
    bookie.finish(evidence)
    return evidence


def test_only_of_a_bookie_that_was_read_whole_is_missing_what_nothing_is_said_of() -> None:
    whole, part = (finished(StoredBookie(BOOKIE, whole=each), [0, 1]) for each in (True, False))
    assert (of(whole, GOOD), whole.verdicts[2], part.verdicts[2]) == ([0, 1], MISSING, UNSAID)


def test_what_a_bookies_files_cannot_tell_is_unknown_and_not_missing() -> None:
    gaps = {LEDGER: [Unknown(LEDGER, 3, 4, "index")], None: [Unknown(None, 10, None, "journal")]}
    evidence = finished(StoredBookie(BOOKIE, whole=True, unknown=dict(gaps)), [3, 12])
    assert [evidence.verdicts[at] for at in (2, 3, 4, 9, 10, 12, 4000)] == [
        MISSING, GOOD, UNKNOWN, MISSING, UNKNOWN, GOOD, UNKNOWN,
    ]  # fmt: skip
    assert (evidence.why(4), evidence.why(11)) == ("index", "journal")


def units(plan: int, *numbers: int, of: int = 3) -> list[tuple[str, UnitDone]]:
    return [(BOOKIE, UnitDone.parse(UnitDone("/d", plan, each, of).format())) for each in numbers]


def test_a_bookie_is_whole_when_one_plan_and_each_of_its_units_is_there() -> None:
    assert stored_bookies(units(1, PLAN, 0, 1, 2))[BOOKIE].whole
    assert stored_bookies(units(1, 2, 1) + units(1, PLAN, 0, 0))[BOOKIE].whole
    assert not stored_bookies(units(1, 0, 1, 2))[BOOKIE].whole
    assert not stored_bookies(units(1, PLAN, 0, 2))[BOOKIE].whole
    assert not stored_bookies(units(1, PLAN, 0) + units(2, 1, 2))[BOOKIE].whole
    assert stored_bookies(units(1, PLAN, of=0))[BOOKIE].whole
    assert stored_bookies([]) == {}


def test_what_a_unit_could_not_tell_is_kept_with_it() -> None:
    unit = UnitDone("/d", 1, PLAN, 0, (Unknown(None, 0, None, "why"), Unknown(7, 1, 2, "other")))
    assert UnitDone.parse(unit.format()) == unit
    assert set(stored_bookies([(BOOKIE, unit)])[BOOKIE].unknown) == {None, 7}
