"""What `bookkeeper spark topics` prints and draws, and which words it refuses."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bookkeeper.console.output import CommandFailed
from hedwig.cli import spark_topics_words

pytest.importorskip("pyspark")

from hedwig.cli.spark_topics import Seen, run_topics, show_lines, show_tables
from hedwig.cli.spark_topics_plot import LAGS_MAX, TOPICS_MAX, draw_topics

START = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def window(topic: str = "news", minute: int = 0, **more: Any) -> dict[str, Any]:
    start = START + timedelta(minutes=minute)
    return {
        "topic": topic, "clock": "published", "window_start": start, "window_end": start + timedelta(minutes=1),
        "messages": 90, "bytes": 1800, "messages_per_s": 1.5, "bytes_per_s": 30.0, "first_seq": 1, "last_seq": 90,
        **more,
    }  # fmt: skip


def lag(subscriber: str = "me", behind: int | None = 7, problem: str | None = None) -> dict[str, Any]:
    return {
        "topic": "news", "subscriber": subscriber, "at": START, "consumed_seq": 83, "last_seq": 90,
        "messages_behind": behind, "owner": None, "problem": problem,
    }  # fmt: skip


def test_tables_have_rates_and_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    size = {"topic": "news", "messages": None, "bytes": None, "ledgers": 2, "subscriptions": 1, "problem": "gone"}
    show_tables("windows", 3, [window()], 5)
    show_tables("lags", 3, [lag(behind=None, problem="no answer")], 1)
    show_tables("sizes", 3, [size], 1)
    show_tables("lags", 3, [], 0)
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.split("\n") if line]
    assert lines[1] == ["2026-11-23T12:00:00Z", "news", "published", "90", "1.5", "1800", "30", "1", "90"]
    assert lines[3] == ["news", "me", "unknown", "83", "90", "no", "answer"]
    assert lines[5] == ["news", "unknown", "unknown", "2", "1", "gone"]
    assert len(lines) == 6
    assert "batch 3: 4 more windows" in err


def test_lines_are_json_with_times_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    show_lines("windows", 0, [window()], 1)
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["window_start"], found["messages"]) == ("windows", "2026-11-23T12:00:00Z", 90)


def test_a_window_that_is_told_again_is_drawn_once() -> None:
    seen = Seen()
    seen.take("windows", 0, [window(), window(minute=1)], 2)
    seen.take("windows", 1, [window(messages=95)], 1)
    seen.take("lags", 0, [lag(), lag("other")], 2)
    seen.take("lags", 1, [lag(behind=3)], 1)
    assert [row["messages"] for row in seen.windows.values()] == [95, 90]
    assert [row["messages_behind"] for row in seen.lags.values()] == [3]


@pytest.mark.parametrize("count", [0, 1, TOPICS_MAX + LAGS_MAX])
def test_any_number_of_topics_and_lags_is_drawn(count: int) -> None:
    pytest.importorskip("matplotlib")
    windows = [window(f"t{number}", minute) for number in range(count) for minute in (0, 1)]
    lags = [lag(f"s{number}", number or None) for number in range(count)]
    assert draw_topics(windows, lags).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--to-topic", "rates"], "--to-topic needs --checkpoint"),
        (["--to-topic", "rates", "--checkpoint", "c"], "would be one of the topics that are read"),
        (["--to-topic", "rates", "--checkpoint", "c", "--topics", "a,rates"], "is one of the topics that are read"),
        (["--plot", "rates.png"], "give --once"),
        (["--topics", "a,"], "--topics: "),
    ],
)
def test_words_that_cannot_be_meant_are_refused_before_anything_begins(words: list[str], why: str) -> None:
    parser = argparse.ArgumentParser()
    spark_topics_words.add_arguments(parser)
    with pytest.raises(CommandFailed, match=why) as refused:
        run_topics(parser.parse_args(words))
    assert refused.value.exit_code == 2
