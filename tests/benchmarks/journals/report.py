"""Pure: the tables of a run, out of its records. Ratios are taken within a round; medians over quiet rounds.

What only quiet rounds, brackets and verdicts mean is in tests/benchmarks/apache/report.py, whose tables these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from tests.benchmarks.apache.records import Record
from tests.benchmarks.apache.report import (
    MISSING,
    CellResult,
    failed_attempts,
    goal_text,
    heading,
    number,
    quiet_text,
    ratio_text,
    results_of,
    table,
)
from tests.benchmarks.apache.targets import Goal
from tests.benchmarks.journals.plan import (
    DEFAULT_CELLS,
    FAILOVER_GOAL,
    FILES,
    HDFS_GOAL,
    OPAQUE_GOAL,
    OUR_FILES,
    OURS,
    QUORUM,
    SIDES,
    SYNC_GOALS,
    Cell,
)

Result = CellResult[Cell]

NAMES = {OURS: "ours", OUR_FILES: "our files", QUORUM: "quorum", FILES: "Hadoop files"}
_EACH = [NAMES[side] for side in SIDES]
RATES = ("cell", *_EACH, "ours/quorum", "target", "verdict", "ours/Hadoop files", "our/Hadoop files", "quiet")
LATENCIES = ("cell", *_EACH, "p50 ours/quorum", "p99 ours/quorum")
FLUSHES = ("cell", *_EACH, *(f"disk: {name}" for name in _EACH))
CPU = ("cell", *_EACH)
REPLAY = ("transactions", "per s", "(least-most)", "target", "verdict", "quiet")
FAILOVER = ("failover", "median s", "most s", "election timeout s", "beyond it s", "target", "verdict", "quiet")


def rate_rows(found: Iterable[Result]) -> list[list[str]]:
    """Operations/s."""
    rows = []
    for result in found:
        goal = SYNC_GOALS.get(result.cell.callers)
        rows.append(
            [
                result.cell.name,
                *(number(result.figure(side.name, "per_s")) for side in SIDES),
                ratio_text(result, "per_s", OURS.name, QUORUM.name),
                goal_text(goal),
                result.verdict(goal, result.ratio("per_s", OURS.name, QUORUM.name)),
                ratio_text(result, "per_s", OURS.name, FILES.name),
                ratio_text(result, "per_s", OUR_FILES.name, FILES.name),
                quiet_text(result),
            ]
        )
    return rows


def latency_rows(found: Iterable[Result]) -> list[list[str]]:
    """p50 and p99, in ms."""
    return [
        [
            result.cell.name,
            *(" / ".join(number(result.figure(side.name, name), 2) for name in ("p50_ms", "p99_ms")) for side in SIDES),
            *(ratio_text(result, name, OURS.name, QUORUM.name) for name in ("p50_ms", "p99_ms")),
        ]
        for result in found
    ]


def _per(result: Result, side: str, name: str) -> str:
    """Operations per one of these, in the middle round."""
    values = [lines[side]["operations"] / lines[side][name] for lines in result.rounds if lines[side].get(name)]
    return number(median(values), 1) if values else MISSING


def flush_rows(found: Iterable[Result]) -> list[list[str]]:
    """Operations per flush of the edit log, and per flush of the disk."""
    return [
        [result.cell.name, *(_per(result, side.name, name) for name in ("log_flushes", "flushes") for side in SIDES)]
        for result in found
    ]


def cpu_rows(found: Iterable[Result]) -> list[list[str]]:
    """Microseconds of an operation: the client / its servers."""
    return [
        [
            result.cell.name,
            *(
                " / ".join(
                    number(result.figure(side.name, name), 1) if side.servers or name == "client_cpu_us" else MISSING
                    for name in ("client_cpu_us", "server_cpu_us")
                )
                for side in SIDES
            ),
        ]
        for result in found
    ]


def replay_rows(found: Iterable[Result]) -> list[list[str]]:
    """Two figures of each round."""
    return [
        [meaning, *_absolute(result, name, 0), goal_text(goal), _verdict(result, name, goal), quiet_text(result)]
        for result in found
        for name, meaning, goal in (
            ("opaque_per_s", "opaque", OPAQUE_GOAL),
            ("hdfs_per_s", "of HDFS, applied", HDFS_GOAL),
        )
    ]


def failover_rows(found: Iterable[Result]) -> list[list[str]]:
    """Medians over rounds of each round's median; the most of all."""
    rows = []
    for result in found:
        most = [lines[OURS.name]["failover_s_most"] for lines in result.rounds]
        beyond, _ = _absolute(result, "beyond_timeout_s", 2)
        rows.append(
            [
                "SIGKILL to the first edit elsewhere",
                number(result.figure(OURS.name, "failover_s"), 2),
                number(max(most, default=None), 2),
                number(result.figure(OURS.name, "election_timeout_s"), 2),
                beyond,
                goal_text(FAILOVER_GOAL),
                _verdict(result, "beyond_timeout_s", FAILOVER_GOAL),
                quiet_text(result),
            ]
        )
    return rows


def _absolute(result: Result, name: str, digits: int) -> tuple[str, str]:
    """The median, in brackets where no round was quiet; the least and the most."""
    text = number(result.figure(OURS.name, name), digits)
    values = [lines[OURS.name][name] for lines in result.rounds]
    if not values:
        return text, MISSING
    return (
        text if result.quiet else f"[{text}]",
        f"({number(min(values), digits)}-{number(max(values), digits)})",
    )


def _verdict(result: Result, name: str, goal: Goal) -> str:
    return result.verdict(goal, result.figure(OURS.name, name))


def figure_text(line: Record) -> str:
    """What was measured, while the run goes on."""
    if "opaque_per_s" in line:
        return f"{line['opaque_per_s']:,.0f} opaque/s, {line['hdfs_per_s']:,.0f} of HDFS/s"
    if "failover_s" in line:
        return f"{line['failover_s']:.2f} s, at most {line['failover_s_most']:.2f} s"
    return f"{line['per_s']:,.0f}/s"


def render(records: Sequence[Record]) -> str:
    """The whole report."""
    found = results_of(DEFAULT_CELLS, records)
    of_kind = {
        kind: [result for result in found if result.cell.kind == kind] for kind in ("sync", "replay", "failover")
    }
    syncs = of_kind["sync"]
    lines = heading([record for record in records if record["kind"] == "run"])
    for title, header, rows in (
        ("Synced operations per second, by callers", RATES, rate_rows(syncs)),
        ("Latency of an operation, ms: p50 / p99", LATENCIES, latency_rows(syncs)),
        ("Operations per flush: of the edit log, and of the disk by all its processes", FLUSHES, flush_rows(syncs)),
        ("CPU, us per operation: the client / all its servers together", CPU, cpu_rows(syncs)),
        ("Replay of our journal on ledgers", REPLAY, replay_rows(of_kind["replay"])),
        ("Failover of our metadata servers under load", FAILOVER, failover_rows(of_kind["failover"])),
    ):
        lines += table(title, header, rows)
    return "\n".join([*lines, *failed_attempts(found)]) + "\n"
