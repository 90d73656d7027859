"""Rows of segments out of a journal's znodes, and which journal is meant."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.options.tables import read_options
from journalmgr.errors import SegmentUnreadable
from journalmgr.ledger.znodes import Listed
from journalmgr.model import HADOOP_2_7, UNKNOWN_LAYOUT, Segment, TxId
from journalmgr.spark import segment_table
from journalmgr.spark.segment_table import SEGMENTS, SegmentOptions, parse_journals, root_in, segment_rows


def listed(first: int, last: int | None, ledger_id: int, name: str, layout: int = HADOOP_2_7) -> Listed:
    end = None if last is None else TxId(last)
    return Listed(Segment(TxId(first), end, layout, ledger_id, name), f"/j/ledgers/{name}", 0, 1)


def rows(*found: Listed, unreadable: dict[str, SegmentUnreadable] | None = None, current: str | None = None) -> Any:
    names = [column.name for column in SEGMENTS.columns]
    return [dict(zip(names, row, strict=True)) for row in segment_rows("J", found, unreadable or {}, current)]


def test_segments_are_as_they_are_recorded() -> None:
    one, two = rows(
        listed(1, 10, 7, "edits_1_10"), listed(11, None, 8, "inprogress_b"), current="/j/ledgers/inprogress_b"
    )
    assert (one["journal"], one["name"], one["first_txid"], one["last_txid"]) == ("J", "edits_1_10", 1, 10)
    assert (one["transactions"], one["ledger_id"], one["layout_version"]) == (10, 7, HADOOP_2_7)
    assert (one["in_progress"], one["is_current"]) == (False, False)
    assert (two["last_txid"], two["transactions"], two["in_progress"], two["is_current"]) == (None, None, True, True)


def test_a_finalised_segment_hides_what_is_left_of_it_in_progress() -> None:
    found = rows(listed(1, 10, 7, "edits_1_10"), listed(1, None, 7, "inprogress_1"), listed(1, None, 9, "inprogress_x"))
    assert [each["name"] for each in found] == ["edits_1_10", "inprogress_x"]


def test_what_cannot_be_read_is_a_row_with_its_reason() -> None:
    torn = {name: SegmentUnreadable(f"{name} is torn") for name in ("edits_1_2", "inprogress_3", "strange")}
    found = rows(unreadable=torn)
    assert [(each["name"], each["in_progress"], each["first_txid"]) for each in found] == [
        ("edits_1_2", False, None),
        ("inprogress_3", True, None),
        ("strange", None, None),
    ]
    assert found[0]["problem"] == "edits_1_2 is torn"
    [unknown] = rows(listed(1, 2, 3, "edits_1_2", UNKNOWN_LAYOUT))
    assert unknown["layout_version"] is None


def test_journals_are_znodes_or_uris_on_ledgers() -> None:
    assert parse_journals("/a, bookkeeper://zk1;zk2:2181/b/c") == ("/a", "bookkeeper://zk1;zk2:2181/b/c")
    for wrong in ("a", "/", "file:///var/lib/edits", "/a,", "bookkeeper://zk1"):
        with pytest.raises(ValueError, match=r"journal|slash"):
            parse_journals(wrong)


def test_a_journal_in_another_zookeeper_is_refused() -> None:
    servers = ["zk1:2181", "zk2:2181"]
    assert root_in("/a/b", servers) == "/a/b"
    assert root_in("bookkeeper://ZK2;zk9:2181/a/", servers) == "/a"
    with pytest.raises(ConfigurationError, match=r"bookkeeper://zk1:2182/a is in another ZooKeeper .* zk1:2181;zk2"):
        root_in("bookkeeper://zk1:2182/a", servers)


def test_a_journal_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match=r"option journal of format .*: is missing"):
        read_options(SegmentOptions, {"uri": "zk://zk1:2181/ledgers", "table": "segments"}, where="bookkeeper.cluster")


def test_the_module_lists_the_columns_as_they_are() -> None:
    names = ", ".join(column.name for column in SEGMENTS.columns)
    assert f"{SEGMENTS.name} {names}" in " ".join(str(segment_table.__doc__).split())
