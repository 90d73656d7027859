"""Verdicts and tables of the benchmark against Hadoop's journals, from records made by hand."""

import re

import pytest

from tests.benchmarks.apache.records import Record
from tests.benchmarks.apache.report import outcome
from tests.benchmarks.apache.targets import PASS, SHORT
from tests.benchmarks.journals.plan import FAILOVER_GOAL, HDFS_GOAL, OPAQUE_GOAL, SYNC_GOALS
from tests.benchmarks.journals.report import figure_text, render


def line(cell: str, side: str, repetition: int, *, quiet: bool = True, **figures: object) -> Record:
    return {
        "kind": "measured",
        "cell": cell,
        "side": side,
        "repetition": repetition,
        "attempt": 0,
        "quiet": quiet,
        "others": 0.01 if quiet else 0.5,
        **figures,
    }


def synced(cell: str, *rounds: tuple[float, float, float, float], quiet: bool = True) -> list[Record]:
    """Each round: ours, our files, quorum, Hadoop's files."""
    return [
        line(
            cell,
            side,
            repetition,
            quiet=quiet,
            operations=1000,
            per_s=per_s,
            p50_ms=1.0 if side == "ours" else 4.0,
            p99_ms=2.0,
            log_flushes=100,
            flushes=200 if side == "ours" else None,
            client_cpu_us=5.0,
            server_cpu_us=10.0,
        )
        for repetition, figures in enumerate(rounds)
        for side, per_s in zip(("ours", "our-files", "quorum", "hadoop-files"), figures, strict=True)
    ]


def replayed(opaque: float, hdfs: float, repetition: int = 0, *, quiet: bool = True) -> Record:
    return line("replay", "ours", repetition, quiet=quiet, opaque_per_s=opaque, hdfs_per_s=hdfs)


def failed_over(beyond_s: float, most_s: float, repetition: int = 0) -> Record:
    return line("failover", "ours", repetition, failover_s=5 + beyond_s, failover_s_most=most_s,
                election_timeout_s=5.0, beyond_timeout_s=beyond_s)  # fmt: skip


def row(records: list[Record], first: str) -> list[str]:
    return next(text for text in render(records).splitlines() if text.startswith(first)).split()


@pytest.mark.parametrize(
    ("callers", "ratio", "verdict"),
    [(1, 2.0, PASS), (1, 1.99, SHORT), (16, 1.2, PASS), (16, 1.19, SHORT), (128, 1.0, PASS), (128, 0.99, SHORT)],
)
def test_rates_are_held_against_the_quorum_journal(callers: int, ratio: float, verdict: str) -> None:
    assert SYNC_GOALS[callers].verdict(ratio) == verdict
    found = row(synced(f"sync:{callers}", (100 * ratio, 1, 100, 1)), f"sync:{callers} ")
    assert found[5:8] == [f"{ratio:.2f}", f">={SYNC_GOALS[callers].target:g}", verdict]


def test_absolute_goals() -> None:
    assert [OPAQUE_GOAL.verdict(each) for each in (200_000, 199_999)] == [PASS, SHORT]
    assert [HDFS_GOAL.verdict(each) for each in (40_000, 39_999)] == [PASS, SHORT]
    assert [FAILOVER_GOAL.verdict(each) for each in (-0.7, 0.4, 0.41)] == [PASS, PASS, SHORT]


def test_the_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # Ratios to the quorum journal 0.5, 4, 2: their median is 2, although the medians of the two sides give 1.
    records = synced("sync:1", (100, 50, 200, 400), (200, 400, 50, 400), (400, 40, 200, 400))
    assert row(records, "sync:1 ")[1:] == [
        "200", "50", "200", "400",
        "2.00", "(0.50-4.00)", ">=2", "pass",
        "0.50", "(0.25-1.00)",
        "0.12", "(0.10-1.00)",
        "3/3",
    ]  # fmt: skip


def test_a_cell_without_a_quiet_round_gets_brackets_and_no_verdict() -> None:
    records = [*synced("sync:1", (400, 1, 100, 1), quiet=False), replayed(500_000, 90_000, quiet=False)]
    text = render(records)
    assert "[4.00]" in text
    assert "[500,000]" in text
    assert text.count("0/1 NOISY") == 3
    assert PASS not in text


def test_flushes_are_of_the_log_and_of_the_disk() -> None:
    text = render(synced("sync:16", (100, 100, 100, 100)))
    of_flushes = text.partition("Operations per flush")[2].splitlines()[2].split()
    assert of_flushes == ["sync:16", "10.0", "10.0", "10.0", "10.0", "5.0", "–", "–", "–"]


def test_local_files_have_no_servers() -> None:
    text = render(synced("sync:16", (100, 100, 100, 100)))
    of_cpu = text.partition("CPU, us per operation")[2].splitlines()[2]
    assert re.split(r" {2,}", of_cpu) == ["sync:16", "5.0 / 10.0", "5.0 / –", "5.0 / 10.0", "5.0 / –"]


def test_latency_is_told_with_ratios() -> None:
    text = render(synced("sync:128", (100, 100, 100, 100)))
    of_latency = text.partition("Latency of an operation")[2].splitlines()[2].split()
    assert of_latency[1:4] == ["1.00", "/", "2.00"]
    assert of_latency[-2:] == ["0.25", "1.00"]


def test_replay_has_two_goals() -> None:
    records = [replayed(210_000, 30_000), replayed(190_000, 50_000, 1), replayed(300_000, 39_000, 2)]
    assert row(records, "opaque")[1:] == ["210,000", "(190,000-300,000)", ">=200000", "pass", "3/3"]
    assert row(records, "of HDFS, applied")[3:] == ["39,000", "(30,000-50,000)", ">=40000", "short", "3/3"]


def test_failover_is_what_comes_on_top_of_the_timeout() -> None:
    records = [failed_over(0.2, 5.9), failed_over(-0.3, 5.2, 1), failed_over(0.3, 5.4, 2)]
    assert row(records, "SIGKILL")[-7:] == ["5.20", "5.90", "5.00", "0.20", "<=0.4", "pass", "3/3"]
    assert row([failed_over(0.5, 5.5)], "SIGKILL")[-2:] == ["short", "1/1"]


def test_failures_are_told_once_and_without_a_figure() -> None:
    failed: list[Record] = [
        {**line("sync:1", "quorum", 0), "kind": "failed", "attempt": attempt, "error": "a JournalNode did not start"}
        for attempt in range(2)
    ]
    text = render(failed)
    assert text.count("sync:1: quorum: a JournalNode did not start") == 1
    assert PASS not in text
    failover: Record = {**failed_over(0, 1), "kind": "failed", "error": "lost"}
    assert "failover: ours: lost" in render([failover])


def test_an_attempt_is_told_in_one_line_while_the_run_goes_on() -> None:
    sync = synced("sync:1", (1234, 2, 3, 4))
    assert outcome(sync, figure_text) == (
        "sync:1 #1: ours 1,234/s, our-files 2/s, quorum 3/s, hadoop-files 4/s; other work up to 1%, quiet"
    )
    assert outcome([replayed(1, 2, quiet=False)], figure_text) == (
        "replay #1: ours 1 opaque/s, 2 of HDFS/s; other work up to 50%, DOES NOT COUNT"
    )
    assert "ours 5.10 s, at most 6.00 s;" in outcome([failed_over(0.1, 6)], figure_text)
