"""What `bookkeeper spark space` and `whatif` print for people."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from bookkeeper.cli.spark.space import show_space
from bookkeeper.cli.spark.whatif import show_whatif
from bookkeeper.spark.space.grouping import GroupSums
from bookkeeper.spark.space.report import Space
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.report import Totals, WhatIf

GB = 10**9
NO_MORE = GroupSums(0, 0, 0, 0, 0)


def test_space_tells_unknown_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = Space("owner", *(None,) * 5, unknown_ledgers=1, unknown_bookies=1, unknown_logs=0)  # type: ignore[arg-type]
    group: dict[str, Any] = {"is_readable": True, "open_ledgers": 0, "unknown_ledgers": 0}
    groups = [
        {**group, "group_name": "alice", "ledgers": 2, "entries": 9, "payload_bytes": 3 * GB, "stored_bytes": 6 * GB},
        {**group, "group_name": None, "ledgers": 1, "entries": 0, "payload_bytes": 0, "stored_bytes": 0},
        {**group, "group_name": None, "is_readable": False, "ledgers": 1, "unknown_ledgers": 1}
        | {"entries": None, "payload_bytes": None, "stored_bytes": None},
    ]
    sizes = ("total_bytes", "free_bytes", "log_bytes", "live_bytes", "garbage_bytes", "dead_bytes")
    bookies = [
        {"bookie": "a:3181", "state": "writable", "problem": None, "unknown_logs": 2, **dict.fromkeys(sizes, GB)},
        {"bookie": "b:3181", "state": None, "problem": "gone", "unknown_logs": 0, **dict.fromkeys(sizes)},
    ]
    thresholds = [{"threshold": 0.5, "logs": 4, "reclaimed_bytes": 3 * GB, "copied_bytes": 2 * GB}]
    show_space(argparse.Namespace(by="owner", json=False), found, groups, NO_MORE, bookies, thresholds)
    told = capsys.readouterr()
    assert "more" not in told.err
    lines = [line.split() for line in told.out.splitlines()]
    assert ["alice", "2", "0", "0", "9", "3GB", "6GB"] in lines
    assert ["(none)", "1", "0", "0", "0", "0B", "0B"] in lines
    assert "(metadata cannot be read)" in told.out
    assert ["b:3181", *["unknown"] * 6, "gone"] in lines
    assert "2 logs not looked into" in told.out
    assert ["0.5", "4", "3GB", "2GB"] in lines
    assert "besides, 1GB are in logs without a live ledger" in told.err


def test_groups_that_are_not_printed_are_told_with_their_sums(capsys: pytest.CaptureFixture[str]) -> None:
    found = Space("owner", *(None,) * 5, unknown_ledgers=0, unknown_bookies=0, unknown_logs=0)  # type: ignore[arg-type]
    group = {"is_readable": True, "open_ledgers": 0, "unknown_ledgers": 0, "group_name": "alice", "entries": 9}
    shown = [{**group, "ledgers": 2, "payload_bytes": 3 * GB, "stored_bytes": 6 * GB}]
    more = GroupSums(51, 50, 1302, 8 * GB, 22 * GB).without(shown)
    show_space(argparse.Namespace(by="owner", json=False), found, shown, more, [], [])
    said = capsys.readouterr().err
    assert "50 groups more, with 1,300 ledgers and 16GB with all copies; --groups prints more" in said
    show_space(argparse.Namespace(by="owner", json=True), found, shown, more, [], [])
    told = json.loads(capsys.readouterr().out)
    assert [row["group_name"] for row in told["groups"]] == ["alice"]
    assert told["more_groups"] == {"groups": 50, "ledgers": 1300, "payload_bytes": 5 * GB, "stored_bytes": 16 * GB}


def answer(question: Question, **totals: int) -> WhatIf:
    names = Totals.__dataclass_fields__
    return WhatIf(
        question,
        *(None,) * 3,  # type: ignore[arg-type]
        totals=Totals(**{**dict.fromkeys(names, 0), **totals}),
        all_ledgers=1000,
        unknown_ledgers=0,
        takers=5,
        too_wide={},
        levelling_bytes=7 * GB,
    )


def bookie(name: str, **values: object) -> dict[str, Any]:
    sizes = ("before_bytes", "gone_bytes", "received_bytes", "after_bytes", "given_bytes")
    row = {"bookie": name, "state": "writable", "rack": "/r1", "is_lost": False, "free_bytes": None, "fits": None}
    return {**row, **dict.fromkeys(sizes, 0), **values}


def test_a_loss_is_told_with_the_risk_the_time_and_where_copies_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        Question(lose=("a:1",)),
        affected=300,
        affected_ledgers=3,
        no_copy=100,
        no_copy_ledgers=1,
        unplaced_copies=4,
        read_bytes=3600 * GB,
        written_bytes=3600 * GB,
    )
    bookies = [
        bookie("a:1", is_lost=True, before_bytes=GB, gone_bytes=GB),
        bookie("b:1", received_bytes=2 * GB, after_bytes=2 * GB, free_bytes=GB, fits=False),
        bookie("c:1", received_bytes=2 * GB, after_bytes=2 * GB),
    ]
    names = ("affected", "no_copy", "one_copy", "below_ack_quorum", "unplaced_copies")
    at_risk = [{"ledger_id": 7, **dict.fromkeys(names, 3), "impossible": "too few bookies"}]
    show_whatif(argparse.Namespace(rate=GB), found, bookies, at_risk)
    told = capsys.readouterr()
    assert "3 of 1,000, with 300 entries" in told.out
    assert "3.6TB read, 3.6TB written; 1.00 h at 1GB/s" in told.out
    assert "100 entries of 1 ledger" in told.out
    assert "4 copies" in told.out
    lines = [line.split() for line in told.out.splitlines()]
    assert [line[-1] for line in lines if line[:1] in (["a:1"], ["b:1"], ["c:1"])] == ["-", "NO", "unknown"]
    assert ["7", "3", "3", "3", "3", "3", "too", "few", "bookies"] in lines
    assert "with dice" in told.err


def test_additions_and_quorums_say_what_bookkeeper_does_not_do_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    show_whatif(argparse.Namespace(rate=None), answer(Question(add=2, quorums=Quorums(3, 3, 2))), [], [])
    told = capsys.readouterr()
    assert "moves nothing onto new bookies by itself; for all to hold the same afterwards, about 7GB" in told.err
    assert "quorums of a ledger never change" in told.err
    assert "left with no copy" not in told.out
    show_whatif(argparse.Namespace(rate=None), answer(Question(add=2)), [], [])
    assert "with dice" not in capsys.readouterr().err
