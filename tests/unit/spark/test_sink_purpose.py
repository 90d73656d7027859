"""What a ledger says that it is for, and which ledgers are orphans."""

from __future__ import annotations

import pytest

from bookkeeper.spark.sink_commit_format import Commit, Head, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink_purpose import Fate, Purpose, fate_of, imported_custom, is_ours, parse_purpose

PURPOSE = Purpose(Owner(Kind.QUERY, "q"), "w", 5, 3, 1, 1000, "/bookkeeper-spark")


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
    for name in custom.keys() - {"application"}:
        assert parse_purpose({key: value for key, value in custom.items() if key != name}) is None, name
    for name, value in (("spark.batch", b"x"), ("spark.created", b""), ("spark.query", b"\xff"), ("spark.job", b"j")):
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
    for earlier in (PURPOSE.custom(), imported_custom({"a": b"b"}, purpose, "d/5")):
        custom = imported_custom(earlier, purpose, "e/7")
        assert parse_purpose(custom) == purpose
        assert custom["imported-from"] == b"e/7"
        assert custom["imported.spark.created"] == earlier["spark.created"]
        kept = {name.removeprefix("imported."): value for name, value in custom.items() if name in earlier} | {
            name.removeprefix("imported."): value for name, value in custom.items() if name.startswith("imported.")
        }
        assert kept == earlier


NAMING = Commit(5, "w", (WrittenLedger(7, 1, 1, 0, 3, 1),))
NOT_NAMING = Commit(5, "other", (WrittenLedger(8, 1, 1, 0, 3, 1),))


@pytest.mark.parametrize(
    ("head", "record", "swept_before_ms", "fate"),
    [
        (Head("this", 5), NAMING, 0, Fate.COMMITTED),
        (Head("this", 9), NAMING, 9999, Fate.COMMITTED),
        (Head("that", 9), NAMING, 9999, Fate.UNKNOWN),
        (Head("that", 9), None, 9999, Fate.UNKNOWN),
        (Head("this", 5), NOT_NAMING, 0, Fate.SUPERSEDED),
        (Head("this", 6), None, 0, Fate.SUPERSEDED),
        (Head("this", 4, ("w",)), None, 0, Fate.ABORTED),
        (Head("this", 4, ("v",)), None, 1000, Fate.IN_FLIGHT),
        (Head("this", 4), None, 1001, Fate.TOO_OLD),
        (None, None, 1000, Fate.IN_FLIGHT),
        (None, None, 1001, Fate.TOO_OLD),
    ],
)
def test_the_fate_of_a_ledger(head: Head | None, record: Commit | None, swept_before_ms: int, fate: Fate) -> None:
    assert fate_of(7, PURPOSE, head, record, instance="this", swept_before_ms=swept_before_ms) is fate
    assert fate.is_orphan == (fate in (Fate.SUPERSEDED, Fate.ABORTED, Fate.TOO_OLD))
