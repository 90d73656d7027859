"""Verdicts and tables of the benchmark of hubs, and the counting of its client processes, from values made by hand."""

import re

import pytest

from tests.benchmarks.apache.records import Record
from tests.benchmarks.apache.report import MISSING
from tests.benchmarks.apache.targets import PASS, SHORT
from tests.benchmarks.hubs.loads.load import Meter, body, handed_over
from tests.benchmarks.hubs.plan import MANY_TOPICS, ONE_TOPIC
from tests.benchmarks.hubs.report import figure_text, render

ALL = ("ours", "genuine", "redis", "nats", "kafka")


def line(cell: str, side: str, repetition: int, per_s: float, *, quiet: bool = True, **figures: object) -> Record:
    return {
        "kind": "measured",
        "cell": cell,
        "side": side,
        "repetition": repetition,
        "attempt": 0,
        "quiet": quiet,
        "others": 0.01 if quiet else 0.5,
        "operations": 1000,
        "per_s": per_s,
        "client_cpu_us": 5.0,
        "server_cpu_us": 40.0,
        "hub_cpu_us": 10.0,
        "hub_memory_mb": 64.2,
        "hub_start_s": None,
        **figures,
    }


def measured(cell: str, *rounds: dict[str, float], quiet: bool = True, **figures: object) -> list[Record]:
    """Each round: the rate of each side."""
    return [
        line(cell, side, repetition, per_s, quiet=quiet, **figures)
        for repetition, rates in enumerate(rounds)
        for side, per_s in rates.items()
    ]


def of(*rates: float) -> dict[str, float]:
    return dict(zip(ALL, rates, strict=False))


def rows(records: list[Record], title: str) -> list[list[str]]:
    """Of the table that begins so; columns are two blanks apart."""
    text = render(records)
    [table] = [part for part in text.split("\n\n") if part.strip().startswith(title)]
    return [re.split(r"  +", each) for each in table.strip().splitlines()[2:]]


RATIOS, OWN, RATES = "Ours over each peer", "Ours alone", "Per second"


@pytest.mark.parametrize(("ours", "verdict"), [(3_000, PASS), (2_990, SHORT)])
def test_rates_are_held_against_each_peer(ours: float, verdict: str) -> None:
    found = rows(measured("publish:1x100", of(ours, 1_000, 3_000, 500, 6_000)), RATIOS)
    assert [row[1] for row in found] == ["genuine", "redis", "nats", "kafka"]
    assert found[0][2:] == [f"{ours / 1000:.2f}", ">=3", verdict, "1/1"]
    assert found[3][2:] == ["0.50", MISSING, MISSING, "1/1"]  # a ceiling, no goal


def test_the_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # Ratios to the genuine hub 0.5, 8, 4: their median is 4, although the medians of the two sides give 2.
    records = measured("publish:1x100", of(100, 200, 1, 1, 1), of(400, 50, 1, 1, 1), of(200, 50, 1, 1, 1))
    assert rows(records, RATIOS)[0][2:5] == ["4.00 (0.50-8.00)", ">=3", PASS]


def test_without_a_quiet_round_there_is_no_verdict() -> None:
    found = rows(measured("publish:1x100", of(9, 1, 1, 1, 1), quiet=False), RATIOS)
    assert found[0][2:] == ["[9.00]", ">=3", MISSING, "0/1 NOISY"]


def test_the_latency_of_one_at_a_time_is_no_worse_than_the_genuine_hubs() -> None:
    records = [line("deliver:1x1", side, 0, 10.0, p50_ms=p50, p99_ms=4.0)
               for side, p50 in zip(ALL, (0.7, 0.7, 0.3, 2.0, 3.0), strict=True)]  # fmt: skip
    [row] = [row for row in rows(records, RATIOS) if row[0] == "deliver:1x1 p50"]
    assert row[1:] == ["genuine", "1.00", "<=1", PASS, "1/1"]
    assert [row[1:5] for row in rows(records, OWN)] == [
        ["0.70", "(0.70-0.70)", "<=1", PASS],
        ["4.00", "(4.00-4.00)", "<=4.3", PASS],
    ]


@pytest.mark.parametrize(("per_s", "verdict"), [(11_990, PASS), (11_000, f"{SHORT}: pace not kept")])
def test_latency_at_a_pace_counts_if_the_pace_was_kept(per_s: float, verdict: str) -> None:
    records = [line("paced:12000", side, 0, per_s, p50_ms=5.0, p99_ms=20.0) for side in ("ours", "redis", "kafka")]
    assert [row[4] for row in rows(records, OWN)] == [verdict, verdict]


def test_the_rate_over_many_topics_is_held_against_the_one_of_the_same_repetition() -> None:
    one = measured(ONE_TOPIC, of(1_000, 1, 1, 1, 1), of(2_000, 1, 1, 1, 1), of(100, 1, 1, 1, 1))
    many = measured(MANY_TOPICS, {"ours": 700, "redis": 1}, {"ours": 1_800, "redis": 1}, {"ours": 85, "redis": 1})
    [row] = [row for row in rows(one + many, OWN) if row[0].startswith(MANY_TOPICS)]
    assert row[1:] == ["0.85", "(0.70-0.90)", ">=0.8", PASS, "3/3"]


def test_topics_are_made_at_a_rate_of_their_own_too() -> None:
    records = measured("acquire", of(299, 90, 1_000, 20))
    assert rows(records, OWN) == [["acquire topics/s", "299", "(299-299)", ">=300", SHORT, "1/1"]]
    assert rows(records, RATIOS)[0][2:5] == ["3.32", ">=3", PASS]


def test_a_hub_that_starts_is_told_where_there_is_one() -> None:
    records = measured(ONE_TOPIC, of(9, 1, 1, 1, 1))
    assert OWN not in render(records)
    for each in records:
        each["hub_start_s"] = 0.8 if each["side"] == "ours" else None
    assert rows(records, OWN) == [["hub serves after s", "0.80", "(0.80-0.80)", "<=1", PASS, "1/1"]]


def test_the_cpu_of_hubs_is_compared() -> None:
    records = measured("publish:1x100", of(9, 1, 1, 1, 1))
    records[0]["hub_cpu_us"] = 5.1
    assert rows(records, "CPU, us per message: the servers")[0][1:3] == ["5.1", "10.0"]
    assert rows(records, "CPU, us per message: the servers")[0][-3:] == ["0.51", "<=0.5", SHORT]


def test_what_was_skipped_is_named_and_its_column_empty() -> None:
    run = {"kind": "run", "machine": {"cores": "2"}, "settings": {"ours": "synced by two"},
           "skipped": {"nats": "nats-server: there is no go"}}  # fmt: skip
    records = [run, *measured("drain:1", {"ours": 4.0, "genuine": 2.0, "redis": 8.0, "kafka": 9.0})]
    text = render(records)
    assert "ours: synced by two\nskipped: nats: nats-server: there is no go\n" in text
    assert rows(records, RATES) == [["drain:1", "4", "2", "8", MISSING, "9", "1/1"]]
    assert "Latency" not in text  # a drain has none


def test_a_failed_attempt_is_told() -> None:
    failed = {"kind": "failed", "cell": "acquire", "side": "nats", "repetition": 0, "attempt": 0, "error": "no leader"}
    text = render([failed, *(each | {"attempt": 1} for each in measured("acquire", of(900, 90, 1_000, 20)))])
    assert text.endswith("\nFailed attempts\nacquire: nats: no leader\n")


def test_a_line_says_its_rate() -> None:
    assert figure_text(line("acquire", "ours", 0, 1234.5)) == "1,234/s"


# --- counting


def test_what_completes_between_the_marks_counts() -> None:
    marks: list[str] = []
    meter = Meter(10.0, 12.0, marks.append)
    assert meter.tick(9.9)
    meter.done(9.0, 9.9)
    assert marks == []
    assert meter.tick(10.0)
    meter.done(9.5, 10.0, 3)
    meter.done(11.0, 11.9)
    assert meter.tick(11.9)
    assert not meter.tick(12.0)
    assert not meter.tick(13.0)
    meter.done(11.0, 12.0)
    assert marks == ["start", "end"]
    assert meter.figures()["operations"] == 4
    assert meter.figures()["seconds"] == 2.0
    assert meter.latencies.max_s == pytest.approx(0.9)


def test_a_late_first_look_still_gives_both_marks() -> None:
    marks: list[str] = []
    assert not Meter(1.0, 2.0, marks.append).tick(5.0)
    assert marks == ["start", "end"]


def test_a_message_tells_when_it_was_handed_over() -> None:
    assert handed_over(body(1234.5)) == 1234.5
