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
from tests.benchmarks.apache.targets import SHORT, Goal
from tests.benchmarks.hubs.plan import (
    ACQUIRED_GOAL,
    GENUINE,
    HUB_CPU_GOAL,
    HUB_MEMORY_GOAL,
    HUB_START_GOAL,
    KEPT_SHARE,
    LATENCY_GOALS,
    MANY_TOPICS,
    MANY_TOPICS_GOAL,
    ONE_TOPIC,
    OURS,
    P50_GOALS,
    RATE_GOALS,
    SIDES,
    Cell,
    cells_of,
)

Result = CellResult[Cell]

PEERS = tuple(side for side in SIDES if side is not OURS)
_EACH = [side.name for side in SIDES]
RATES = ("cell", *_EACH, "quiet")
RATIOS = ("cell", "ours over", "ratio", "target", "verdict", "quiet")
LATENCIES = ("cell", *_EACH)
OWN = ("ours alone", "median", "(least-most)", "target", "verdict", "quiet")
CPU = ("cell", *_EACH, "ours/genuine", "target", "verdict")
SERVERS_CPU = ("cell", *_EACH)
MEMORY = ("after", *_EACH)


def rate_rows(found: Iterable[Result]) -> list[list[str]]:
    """Publishes, deliveries or topics per second."""
    return [
        [result.cell.name, *(number(result.figure(side.name, "per_s")) for side in SIDES), quiet_text(result)]
        for result in found
    ]


def ratio_rows(found: Iterable[Result]) -> list[list[str]]:
    """Ours over each peer: rates, and p50 where there is a goal for it."""
    rows = []
    for result in found:
        for peer in PEERS:
            goal = RATE_GOALS.get(peer, {}).get(result.cell.name)
            rows += _ratio_row(result, "per_s", peer.name, result.cell.name, goal)
        goal = P50_GOALS.get(result.cell.name)
        if goal is not None:
            rows += _ratio_row(result, "p50_ms", GENUINE.name, f"{result.cell.name} p50", goal)
    return rows


def _ratio_row(result: Result, name: str, peer: str, title: str, goal: Goal | None) -> list[list[str]]:
    ratio = result.ratio(name, OURS.name, peer)
    if ratio is None:
        return []
    text = ratio_text(result, name, OURS.name, peer)
    return [[title, peer, text, goal_text(goal), result.verdict(goal, ratio), quiet_text(result)]]


def latency_rows(found: Iterable[Result]) -> list[list[str]]:
    """p50 and p99, in ms: of a publish to its answer, or to the delivery."""
    rows = []
    for result in found:
        pairs = [
            " / ".join(number(_figure(result, side.name, name), 2) for name in ("p50_ms", "p99_ms")) for side in SIDES
        ]
        if any(pair != f"{MISSING} / {MISSING}" for pair in pairs):
            rows.append([result.cell.name, *pairs])
    return rows


def _values(result: Result, side: str, name: str) -> list[float]:
    return [lines[side][name] for lines in result.rounds if lines.get(side, {}).get(name) is not None]


def _figure(result: Result, side: str, name: str) -> float | None:
    """As CellResult.figure, of a figure that not every line has."""
    values = _values(result, side, name)
    return median(values) if values else None


def _own_row(result: Result, title: str, values: Sequence[float], digits: int, goal: Goal) -> list[list[str]]:
    if not values:
        return []
    middle = median(values)
    text = number(middle, digits)
    spread = f"({number(min(values), digits)}-{number(max(values), digits)})"
    verdict = result.verdict(goal, middle)
    return [
        [title, text if result.quiet else f"[{text}]", spread, goal_text(goal), verdict, quiet_text(result)],
    ]


def own_rows(found: Sequence[Result]) -> list[list[str]]:
    """Goals that no peer is needed for."""
    by_name = {result.cell.name: result for result in found}
    rows = []
    for name, goals in LATENCY_GOALS.items():
        if (result := by_name.get(name)) is None:
            continue
        for figure, goal in zip(("p50_ms", "p99_ms"), goals, strict=True):
            kept = _kept(result)
            values = _values(result, OURS.name, figure)
            own = _own_row(result, f"{name} {figure[:3]} ms", values, 2, goal)
            for row in own:
                if not kept and row[4] != MISSING:
                    row[4] = f"{SHORT}: pace not kept"
            rows += own
    if (result := by_name.get("acquire")) is not None:
        rows += _own_row(result, "acquire topics/s", _values(result, OURS.name, "per_s"), 0, ACQUIRED_GOAL)
    many, one = by_name.get(MANY_TOPICS), by_name.get(ONE_TOPIC)
    if many is not None and one is not None:
        rows += _own_row(many, f"{MANY_TOPICS} / {ONE_TOPIC}", kept_shares(many, one), 2, MANY_TOPICS_GOAL)
    if (result := by_name.get(ONE_TOPIC)) is not None:
        rows += _own_row(result, "hub serves after s", _values(result, OURS.name, "hub_start_s"), 2, HUB_START_GOAL)
    return rows


def _kept(result: Result) -> bool:
    """Whether a `paced` cell kept its pace; others have none."""
    rate = _figure(result, OURS.name, "per_s")
    return rate is None or rate >= KEPT_SHARE * result.cell.per_s


def kept_shares(many: Result, one: Result) -> list[float]:
    """Rates of ours in the one cell over those in the other, by repetition."""
    base = {lines[OURS.name]["repetition"]: lines[OURS.name]["per_s"] for lines in one.rounds if OURS.name in lines}
    found = [lines[OURS.name] for lines in many.rounds if OURS.name in lines]
    return [line["per_s"] / base[line["repetition"]] for line in found if base.get(line["repetition"])]


def cpu_rows(found: Iterable[Result]) -> list[list[str]]:
    """us of a message: those servers that clients talk to."""
    rows = []
    for result in found:
        goal = None if result.cell.kind == "acquire" else HUB_CPU_GOAL
        rows.append(
            [
                result.cell.name,
                *(number(result.figure(side.name, "hub_cpu_us"), 1) for side in SIDES),
                ratio_text(result, "hub_cpu_us", OURS.name, GENUINE.name),
                goal_text(goal),
                result.verdict(goal, result.ratio("hub_cpu_us", OURS.name, GENUINE.name)),
            ]
        )
    return rows


def servers_cpu_rows(found: Iterable[Result]) -> list[list[str]]:
    """us of a message: all servers / the client's process that publishes."""
    return [
        [
            result.cell.name,
            *(
                " / ".join(number(result.figure(side.name, name), 1) for name in ("server_cpu_us", "client_cpu_us"))
                for side in SIDES
            ),
        ]
        for result in found
    ]


def memory_rows(found: Iterable[Result]) -> list[list[str]]:
    """MB of the servers that clients talk to."""
    return [
        [result.cell.name, *(number(result.figure(side.name, "hub_memory_mb")) for side in SIDES)] for result in found
    ]


def figure_text(line: Record) -> str:
    """What was measured, while the run goes on."""
    return f"{line['per_s']:,.0f}/s"


def skipped_of(records: Iterable[Record]) -> dict[str, str]:
    """Sides that could not be had when the run was started or resumed last, and why."""
    runs = [record for record in records if record["kind"] == "run"]
    found: dict[str, str] = runs[-1].get("skipped", {}) if runs else {}
    return found


def render(records: Sequence[Record]) -> str:
    """The whole report."""
    skipped = skipped_of(records)
    found = results_of(cells_of(skipped), records)
    lines = heading([record for record in records if record["kind"] == "run"])
    lines += [f"skipped: {side}: {why}" for side, why in skipped.items()]
    for title, header, rows in (
        ("Per second: publishes answered, deliveries (to all readers together), topics with a subscription", RATES,
         rate_rows(found)),
        ("Ours over each peer, within a round", RATIOS, ratio_rows(found)),
        ("Latency, ms, p50 / p99: of a publish to its answer; deliver and paced: to the delivery", LATENCIES,
         latency_rows(found)),
        ("Ours alone", OWN, own_rows(found)),
        ("CPU, us per message: the servers that clients talk to", CPU, cpu_rows(found)),
        ("CPU, us per message: all servers / the client that publishes", SERVERS_CPU, servers_cpu_rows(found)),
        (f"Resident MB of the servers that clients talk to (ours: goal {goal_text(HUB_MEMORY_GOAL)} beyond its cache)",
         MEMORY, memory_rows(found)),
    ):  # fmt: skip
        lines += table(title, header, rows)
    return "\n".join([*lines, *failed_attempts(found)]) + "\n"
