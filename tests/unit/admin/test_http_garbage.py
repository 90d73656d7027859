"""bookie/gc*: what is ordered with and without a body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.admin.http.garbage import RANGES_MAX, CollectionState, Garbage, LedgersState, LogsState, LogState
from bookkeeper.admin.http.routing import HttpRequest, Router
from bookkeeper.model import BookieId
from bookkeeper.spark.cluster.entry_logs import log_rows
from bookkeeper.spark.cluster.held_ledgers import ranges_in

TOP = "/api/v1/bookie/gc"
BOTH = {"major": True, "minor": True}


class Collector:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.suspended: list[dict[str, bool]] = []
        self.resumed: list[dict[str, bool]] = []

    def state(self) -> CollectionState:
        return CollectionState(
            force_running=False,
            major_running=False,
            minor_running=False,
            last_major_ms=0,
            last_minor_ms=0,
            major_count=0,
            minor_count=0,
            major_suspended=False,
            minor_suspended=False,
        )

    async def logs(self) -> LogsState:
        return LogsState(
            5000, [LogState(1, 2000, 900, 300, 2, False, ""), LogState(2, 1024, None, None, None, True, "torn")]
        )

    async def ledgers(self, after: int, ranges_max: int) -> LedgersState:
        assert ranges_max == RANGES_MAX
        return LedgersState([(max(1, after + 1), 3), (7, 7)], more=after < 2)

    def force(self, *, major: bool, minor: bool) -> None:
        raise AssertionError

    def suspend(self, *, major: bool = False, minor: bool = False) -> None:
        self.suspended.append({"major": major, "minor": minor})

    def resume(self, *, major: bool = False, minor: bool = False) -> None:
        self.resumed.append({"major": major, "minor": minor})


def put(collector: Collector, path: str, body: Any = None) -> tuple[int, Any]:
    router = Router(Garbage(BookieId("b:1"), collector).routes())
    data = b"" if body is None else json.dumps(body).encode()
    found: list[Any] = []
    answer = router.answer(HttpRequest("PUT", f"{TOP}/{path}", body=data))
    Deferred.fromCoroutine(answer).addBoth(found.append)
    return found[0].status, json.loads(found[0].body)


def test_no_body_means_both_kinds_of_compaction() -> None:
    collector = Collector()
    assert put(collector, "suspend_compaction")[0] == 200
    assert put(collector, "resume_compaction")[0] == 200
    assert (collector.suspended, collector.resumed) == ([BOTH], [BOTH])


def test_a_body_names_the_kinds_and_one_that_names_none_is_told_the_fields() -> None:
    collector = Collector()
    assert put(collector, "suspend_compaction", {"suspendMinor": True})[0] == 200
    assert collector.suspended == [{"major": False, "minor": True}]
    for body in ({}, {"suspendMajor": False}):
        status, said = put(collector, "suspend_compaction", body)
        assert status == 400
        assert '{"suspendMajor": true}, {"suspendMinor": true}, or both; no body means both' in said["error"]
    assert len(collector.suspended) == 1


def test_entry_logs_are_told_and_what_is_not_known_is_null() -> None:
    router = Router(Garbage(BookieId("b:1"), Collector()).routes())
    found: list[Any] = []
    answer = router.answer(HttpRequest("GET", "/api/v1/bookie/entry_logs"))
    Deferred.fromCoroutine(answer).addBoth(found.append)
    told = json.loads(found[0].body)
    one, two = told["entryLogs"]
    assert told["swept"] == 5000
    assert one == {
        "id": 1,
        "size": 2000,
        "recordBytes": 900,
        "liveBytes": 300,
        "liveLedgers": 2,
        "written": False,
        "leftAlone": "",
    }
    assert (two["size"], two["recordBytes"], two["liveBytes"], two["leftAlone"]) == (1024, None, None, "torn")
    rows = log_rows("b:1", told)  # as the table reads it
    assert rows[0] == ("b:1", 1, 2000, 900, 300, 300 / 900, 2, False, 5000, None)
    assert rows[1] == ("b:1", 2, 1024, None, None, None, None, True, None, "torn")


def test_ledgers_are_told_as_ranges_from_where_the_last_answer_ended() -> None:
    router = Router(Garbage(BookieId("b:1"), Collector()).routes())
    found: list[Any] = []
    for query in ({}, {"after": "2"}, {"after": "-2"}):
        answer = router.answer(HttpRequest("GET", "/api/v1/bookie/ledgers", query=query))
        Deferred.fromCoroutine(answer).addBoth(found.append)
    first, second = (json.loads(each.body) for each in found[:2])
    assert first == {"bookie": "b:1", "ledgers": [[1, 3], [7, 7]], "more": True}
    assert ranges_in(first, "b:1", -1) == ([(1, 3), (7, 7)], True)  # as the table reads it
    assert ranges_in(second, "b:1", 2) == ([(3, 3), (7, 7)], False)
    assert found[2].status == 400


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"bookie": "b:2", "ledgers": [], "more": False}, "there is bookie b:2, and not b:1"),
        ({"bookie": "b:1", "ledgers": [[4, 4]], "more": False}, "do not ascend"),
        ({"bookie": "b:1", "ledgers": [[9, 8]], "more": False}, "do not ascend"),
        ({"bookie": "b:1", "ledgers": [[6, 8], [8, 9]], "more": False}, "do not ascend"),
        ({"bookie": "b:1", "ledgers": [[6, "8"]], "more": False}, "do not ascend"),
        ({"bookie": "b:1", "ledgers": [], "more": True}, "tells none"),
        ({"bookie": "b:1", "ledgers": [[1, 2, 3]], "more": False}, "another shape"),
        ([], "another shape"),
    ],
)
def test_an_answer_about_ledgers_that_cannot_be_is_refused(answer: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ranges_in(answer, "b:1", 4)


@pytest.mark.parametrize("path", ["suspend_compaction", "resume_compaction"])
def test_an_unknown_field_is_refused(path: str) -> None:
    assert put(Collector(), path, {"majorCompactionThreshold": 0.5})[0] == 400
