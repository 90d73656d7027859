"""What a ledger says that it is for, and which ledgers are orphans."""

from __future__ import annotations

import dataclasses

import pytest

from bookkeeper.spark.sink.commit_format import Commit, Head, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.purpose import (
    REMEDIES,
    Fate,
    Purpose,
    Seen,
    fate_of,
    imported_custom,
    is_ours,
    parse_purpose,
)

PURPOSE = Purpose(Owner(Kind.QUERY, "q"), "w", 5, 3, 1, 1000, "/bookkeeper-spark")


EARLIER = {name: value for name, value in PURPOSE.custom().items() if name != "spark.head"} | {"spark.created": b"17"}
"""What an earlier release wrote."""


def test_a_ledger_of_an_earlier_release_names_no_head() -> None:
    assert parse_purpose(EARLIER) == dataclasses.replace(PURPOSE, head_id=None)


def test_an_earlier_release_takes_no_ledger_of_this_one_for_an_orphan() -> None:
    """It looks at the time that tasks noted, and leaves alone what says none."""
    assert "spark.created" not in PURPOSE.custom()


@pytest.mark.parametrize("kind", Kind)
def test_custom_metadata_says_all_of_it(kind: Kind) -> None:
    purpose = Purpose(Owner(kind, "x.1"), "w", 5, 3, 1, 1000, "/c")
    custom = purpose.custom()
    assert (custom["application"], custom[f"spark.{kind.value}"]) == (b"bookkeeper-spark", b"x.1")
    assert is_ours(custom)
    assert parse_purpose(custom) == purpose


def test_a_stranger_is_not_ours_and_one_that_says_too_little_has_no_purpose() -> None:
    assert not is_ours({})
    assert not is_ours({"application": b"else"})
    custom = PURPOSE.custom()
    assert is_ours(custom)
    for name in custom.keys() - {"application"}:
        assert parse_purpose({key: value for key, value in custom.items() if key != name}) is None, name
    for name, value in (("spark.batch", b"x"), ("spark.head", b""), ("spark.query", b"\xff"), ("spark.job", b"j")):
        assert parse_purpose({**custom, name: value}) is None, name


def test_an_imported_ledger_keeps_its_custom_metadata_and_says_what_it_is_for_all_the_same() -> None:
    purpose = Purpose(Owner(Kind.IMPORT, "restore"), "e.w", 0, 2, 0, 1000, "/c")
    custom = imported_custom({"application": b"pulsar", "owner": b"\xff"}, purpose, "e/7")
    assert (custom["application"], custom["owner"], custom["imported-from"]) == (b"pulsar", b"\xff", b"e/7")
    assert is_ours(custom)
    assert parse_purpose(custom) == purpose
    assert imported_custom({}, purpose, "e/7")["application"] == b"bookkeeper-spark"


def test_what_an_exported_ledger_said_of_commits_is_kept_by_other_names_and_not_believed() -> None:
    purpose = Purpose(Owner(Kind.IMPORT, "restore"), "e.w", 0, 2, 0, 2000, "/c")
    for earlier in (PURPOSE.custom(), imported_custom({"a": b"b"}, purpose, "d/5"), EARLIER):
        custom = imported_custom(earlier, purpose, "e/7")
        assert parse_purpose(custom) == purpose
        assert custom["imported-from"] == b"e/7"
        assert "spark.created" not in custom
        for name in earlier.keys() & {"spark.head", "spark.created"}:
            assert custom[f"imported.{name}"] == earlier[name]
        kept = {name.removeprefix("imported."): value for name, value in custom.items() if name in earlier} | {
            name.removeprefix("imported."): value for name, value in custom.items() if name.startswith("imported.")
        }
        assert kept == earlier


NAMING = Commit(5, "w", (WrittenLedger(7, 1, 1, 0, 3, 1),))
NOT_NAMING = Commit(5, "other", (WrittenLedger(8, 1, 1, 0, 3, 1),))


HEAD_ID = 1000
"""What PURPOSE names."""
STORED_MS = 500
YOUNG, OLD = STORED_MS, STORED_MS + 1
"""Marks by which a ledger of that time is young, or old."""


@pytest.mark.parametrize(
    ("head", "head_id", "record", "swept_before_ms", "fate", "earlier_release"),
    [
        # what a record names is committed, whatever else is there
        (Head("this", 5), HEAD_ID, NAMING, YOUNG, Fate.COMMITTED, Fate.COMMITTED),
        (Head("this", 9, ("w",)), HEAD_ID, NAMING, OLD, Fate.COMMITTED, Fate.COMMITTED),
        (Head("this", 9), 2000, NAMING, OLD, Fate.COMMITTED, Fate.COMMITTED),
        (None, None, NAMING, OLD, Fate.COMMITTED, Fate.COMMITTED),
        # but not in another cluster
        (Head("that", 9), HEAD_ID, NAMING, OLD, Fate.OTHER_CLUSTER, Fate.OTHER_CLUSTER),
        (Head("that", 4, ("w",)), HEAD_ID, None, OLD, Fate.OTHER_CLUSTER, Fate.OTHER_CLUSTER),
        # nothing is there, or something else
        (None, None, None, YOUNG, Fate.NO_HEAD, Fate.NO_HEAD),
        (None, None, None, OLD, Fate.NO_HEAD, Fate.NO_HEAD),
        (None, None, NOT_NAMING, OLD, Fate.NO_HEAD, Fate.NO_HEAD),
        (Head("this", 4), 2000, None, OLD, Fate.OTHER_HEAD, Fate.EARLIER),
        (Head("this", 9), 2000, NOT_NAMING, OLD, Fate.OTHER_HEAD, Fate.SUPERSEDED),
        (Head("this", 4, ("w",)), 2000, None, OLD, Fate.OTHER_HEAD, Fate.ABORTED),
        # given up, or another one came first
        (Head("this", 4, ("v", "w")), HEAD_ID, None, YOUNG, Fate.ABORTED, Fate.ABORTED),
        (Head("this", 5, ("w",)), HEAD_ID, NOT_NAMING, YOUNG, Fate.ABORTED, Fate.ABORTED),
        (Head("this", 5), HEAD_ID, NOT_NAMING, YOUNG, Fate.SUPERSEDED, Fate.SUPERSEDED),
        (Head("this", 9), HEAD_ID, NOT_NAMING, YOUNG, Fate.SUPERSEDED, Fate.SUPERSEDED),
        (Head("this", 4), HEAD_ID, NOT_NAMING, YOUNG, Fate.SUPERSEDED, Fate.SUPERSEDED),  # came after the head was read
        # the batch is past, and its record is not there
        (Head("this", 5), HEAD_ID, None, OLD, Fate.NO_RECORD, Fate.NO_RECORD),
        (Head("this", 6), HEAD_ID, None, OLD, Fate.NO_RECORD, Fate.NO_RECORD),
        (Head("this", 9, forgotten=5), HEAD_ID, None, OLD, Fate.NO_RECORD, Fate.NO_RECORD),
        # its batch was forgotten
        (Head("this", 9, forgotten=6), HEAD_ID, None, YOUNG, Fate.FORGOTTEN, Fate.NO_RECORD),
        (Head("this", 9, forgotten=6), HEAD_ID, NAMING, YOUNG, Fate.COMMITTED, Fate.COMMITTED),
        (Head("this", 9, forgotten=6), 2000, None, OLD, Fate.OTHER_HEAD, Fate.NO_RECORD),
        # the batch is still to come
        (Head("this", 4, ("v",)), HEAD_ID, None, YOUNG, Fate.IN_FLIGHT, Fate.IN_FLIGHT),
        (Head("this", 4, ("v",)), HEAD_ID, None, OLD, Fate.TOO_OLD, Fate.EARLIER),
        (Head("this"), HEAD_ID, None, OLD, Fate.TOO_OLD, Fate.EARLIER),
    ],
)
def test_the_fate_of_a_ledger(
    head: Head | None,
    head_id: int | None,
    record: Commit | None,
    swept_before_ms: int,
    fate: Fate,
    earlier_release: Fate,
) -> None:
    seen = Seen("this", swept_before_ms, head, head_id, record)
    assert fate_of(7, STORED_MS, PURPOSE, seen) is fate
    assert fate_of(7, STORED_MS, dataclasses.replace(PURPOSE, head_id=None), seen) is earlier_release


def test_each_fate_is_an_orphan_s_or_unknown_with_a_remedy_or_neither() -> None:
    assert {fate for fate in Fate if fate.is_orphan} == {Fate.SUPERSEDED, Fate.ABORTED, Fate.TOO_OLD, Fate.FORGOTTEN}
    assert {fate for fate in Fate if fate.is_unknown} == {fate for fate in Fate if fate.value.startswith("unknown")}
    assert {fate for fate in Fate if not fate.is_orphan and not fate.is_unknown} == {Fate.COMMITTED, Fate.IN_FLIGHT}
    assert all(REMEDIES.values())
