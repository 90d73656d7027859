"""What is asked of topics, what a checkpoint remembers of it, and what is counted of a query."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.errors import ConfigurationError
from hedwig.spark.topics.question import Clock, Emit, Totals, Windows, format_question, nameable, query_of

ASKED = Windows(60, 30, Clock.PUBLISHED, Emit.FINAL)


def test_a_checkpoint_gives_its_query_to_who_asks_the_same() -> None:
    assert query_of(format_question(ASKED, "ab"), ASKED, "/c") == "ab"
    assert query_of(format_question(ASKED, "ab"), Windows(60, 90), "/c") == "ab", "a delay may be changed"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Windows(30, 30), r"length_s 60 \(now 30\)"),
        (Windows(60, 30, Clock.READ), r"clock published \(now read\)"),
        (Windows(60, 30, emit=Emit.CHANGED), r"emit final \(now changed\)"),
    ],
)
def test_a_checkpoint_of_another_question_is_refused_with_the_difference(other: Windows, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"checkpoint /c belongs to another query: {why}"):
        query_of(format_question(ASKED, "ab"), other, "/c")


@pytest.mark.parametrize("text", ["", "v1", "[]", '{"format":2,"id":"ab"}', '{"format":1}'])
def test_what_is_no_question_of_this_release_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use another checkpoint"):
        query_of(text, ASKED, "/c")


@pytest.mark.parametrize("words", [{"length_s": 0}, {"delay_s": -1}, {"length_s": 10**9}])
def test_windows_that_cannot_be_are_refused(words: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"want [01] to"):
        Windows(**words)


def test_names_that_no_list_can_have_are_told_apart() -> None:
    assert nameable(["b", "a/x", "a,b", " c", "d e"]) == (["a/x", "b", "d e"], [" c", "a,b"])


def told(batch: int, rows: int, late: int = 0, *, run: str = "r", at: str = "t") -> dict[str, Any]:
    states = [{"numRowsDroppedByWatermark": late}]
    return {"runId": run, "batchId": batch, "timestamp": at, "numInputRows": rows, "stateOperators": states}


def test_batches_that_are_told_again_count_once() -> None:
    totals = Totals()
    totals.note([])
    totals.note([told(0, 10), told(1, 5, 2)])
    totals.note([told(0, 10), told(1, 5, 2)])
    totals.note([told(1, 5, 2), told(2, 1, 1)])
    assert (totals.messages, totals.late) == (16, 3)


def test_batches_of_another_run_and_of_another_time_count_besides() -> None:
    totals = Totals()
    totals.note([told(3, 10)])
    totals.note([told(3, 4, run="other")])
    totals.note([told(3, 4, run="other"), told(3, 1, run="other", at="later")])
    assert totals.messages == 15
