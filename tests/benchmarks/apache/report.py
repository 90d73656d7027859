"""Pure: the tables of a run, out of its records. Every ratio is ours/Apache within one round; medians over rounds.

Only quiet rounds count. A cell without any shows its figures in brackets, from rounds that were not quiet, and no
verdict: on a busy machine ratios flatter the one that uses less of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic

from tests.benchmarks.apache import targets
from tests.benchmarks.apache.plan import Cell, default_cells
from tests.benchmarks.apache.records import AnyWorkload, Record, attempts, best_attempt, is_quiet
from tests.benchmarks.apache.targets import Goal

MISSING = "–"


@dataclass(frozen=True, slots=True)
class CellResult(Generic[AnyWorkload]):
    """What is known of a cell. rounds: side name -> its line, for each round that is reported."""

    cell: AnyWorkload
    rounds: tuple[dict[str, Record], ...]
    quiet: bool
    quiet_rounds: int
    all_rounds: int
    failures: tuple[str, ...]

    def figure(self, side: str, name: str) -> float | None:
        """The median of a figure."""
        values = [lines[side][name] for lines in self.rounds if side in lines]
        return median(values) if values else None

    def ratios(self, name: str, over: str, under: str) -> list[float]:
        """Of two sides of the same round, ascending."""
        return sorted(
            lines[over][name] / lines[under][name]
            for lines in self.rounds
            if over in lines and under in lines and lines[under][name]
        )

    def ratio(self, name: str, over: str = "ours", under: str = "apache") -> float | None:
        """The median of `ratios`."""
        ratios = self.ratios(name, over, under)
        return median(ratios) if ratios else None

    def verdict(self, goal: Goal | None, ratio: float | None) -> str:
        """In words, where a quiet round stands behind it."""
        return goal.verdict(ratio) if goal is not None and ratio is not None and self.quiet else MISSING


def results(records: Sequence[Record]) -> list[CellResult[Cell]]:
    """All cells that were measured, in the order of the plan."""
    return results_of(default_cells(), records)


def results_of(cells: Iterable[AnyWorkload], records: Sequence[Record]) -> list[CellResult[AnyWorkload]]:
    """Those of these cells that were measured."""
    known: dict[str, set[int]] = {}
    for record in records:
        if record["kind"] in ("measured", "failed"):
            known.setdefault(record["cell"], set()).add(record["repetition"])
    found = []
    for cell in cells:
        if cell.name not in known:
            continue
        sides = [side.name for side in cell.sides]
        rounds: list[tuple[dict[str, Record], bool]] = []
        failures: list[str] = []
        for repetition in sorted(known[cell.name]):
            lines = best_attempt(records, cell.name, repetition, sides)
            if lines:
                rounds.append(({line["side"]: line for line in lines}, is_quiet(lines)))
            for attempt in attempts(records, cell.name, repetition).values():
                failures += [f"{line['side']}: {line['error']}" for line in attempt if line["kind"] == "failed"]
        quiet = [lines for lines, is_quiet_round in rounds if is_quiet_round]
        found.append(
            CellResult(
                cell=cell,
                rounds=tuple(quiet or [lines for lines, _ in rounds]),
                quiet=bool(quiet),
                quiet_rounds=len(quiet),
                all_rounds=len(known[cell.name]),
                failures=tuple(failures),
            )
        )
    return found


# --- tables


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: the first to the left, the others to the right. Nothing where there are no rows."""
    if not rows:
        return []
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def aligned(line: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        return "  ".join([line[0].ljust(widths[0]), *rest]).rstrip()

    return ["", title, aligned(lines[0]), *map(aligned, lines[1:])]


def number(value: float | None, digits: int = 0) -> str:
    """With separators; MISSING for None."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def ratio_text(result: CellResult[Any], name: str, over: str = "ours", under: str = "apache") -> str:
    """The median, the least and the most; in brackets where no round was quiet."""
    ratios = result.ratios(name, over, under)
    if not ratios:
        return MISSING
    text = f"{median(ratios):.2f}"
    if len(ratios) > 1:
        text += f" ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    return text if result.quiet else f"[{text}]"


def goal_text(goal: Goal | None) -> str:
    """Target and floor."""
    if goal is None:
        return MISSING
    bound = ">=" if goal.higher_is_better else "<="
    return f"{bound}{goal.target:g}" + (f", {goal.floor:g}" if goal.floor is not None else "")


def quiet_text(result: CellResult[Any]) -> str:
    """How many rounds count."""
    return f"{result.quiet_rounds}/{result.all_rounds}" + ("" if result.quiet else " NOISY")


def rate_rows(found: Iterable[CellResult[Cell]]) -> list[list[str]]:
    """adds/s or reads/s."""
    rows = []
    for result in found:
        goal, tuned = targets.rate_goal(result.cell), targets.tuned_goal(result.cell)
        row = [
            result.cell.name,
            number(result.figure("ours", "per_s")),
            number(result.figure("apache", "per_s")),
            ratio_text(result, "per_s"),
            goal_text(goal),
            result.verdict(goal, result.ratio("per_s")),
        ]
        if result.cell.kind == "write":
            row += [
                number(result.figure("tuned", "per_s")),
                ratio_text(result, "per_s", "ours", "tuned"),
                goal_text(tuned),
                result.verdict(tuned, result.ratio("per_s", "ours", "tuned")),
            ]
        rows.append([*row, quiet_text(result)])
    return rows


def latency_rows(found: Iterable[CellResult[Cell]]) -> list[list[str]]:
    """p50 and p99, in ms."""
    rows = []
    for result in found:
        single_read = result.cell.kind == "read" and result.cell.shape == "single"
        name, goal = ("p50_ms", targets.SINGLE_READ_P50) if single_read else ("p99_ms", targets.p99_goal(result.cell))
        rows.append(
            [
                result.cell.name,
                *(
                    " / ".join(number(result.figure(side, name), 2) for name in ("p50_ms", "p99_ms"))
                    for side in ("ours", "apache", "tuned")
                ),
                ratio_text(result, "p50_ms"),
                ratio_text(result, "p99_ms"),
                f"{name[:3]} {goal_text(goal)}",
                result.verdict(goal, result.ratio(name)),
            ]
        )
    return rows


def cpu_rows(found: Iterable[CellResult[Cell]]) -> list[list[str]]:
    """CPU us per operation, and flushes of the disk."""
    rows = []
    for result in found:
        row = [result.cell.name]
        for name, goal in (("client_cpu_us", targets.CLIENT_CPU), ("bookie_cpu_us", targets.BOOKIE_CPU)):
            held = goal if result.cell.kind == "write" else None
            row += [number(result.figure(side, name), 1) for side in ("ours", "apache")]
            row += [ratio_text(result, name), goal_text(held), result.verdict(held, result.ratio(name))]
        for side in ("ours", "apache"):
            per_flush = [
                lines[side]["operations"] / lines[side]["flushes"]
                for lines in result.rounds
                if lines.get(side, {}).get("flushes")
            ]
            row.append(number(median(per_flush), 1) if per_flush and result.cell.kind == "write" else MISSING)
        rows.append(row)
    return rows


def crossed_rows(found: Iterable[CellResult[Cell]]) -> list[list[str]]:
    """Our client on their bookies, theirs on ours; both against Apache's own pair."""
    rows = []
    for result in found:
        goal = targets.APACHE_ON_OURS if result.cell.kind == "write" else None
        for side in ("ours-on-apache", "apache-on-ours"):
            if result.figure(side, "per_s") is None:
                continue
            held = goal if side == "apache-on-ours" else None
            latencies = " / ".join(number(result.figure(side, name), 2) for name in ("p50_ms", "p99_ms"))
            rows.append(
                [
                    f"{result.cell.name} {side}",
                    number(result.figure(side, "per_s")),
                    latencies,
                    number(result.figure(side, "client_cpu_us"), 1),
                    number(result.figure(side, "bookie_cpu_us"), 1),
                    ratio_text(result, "per_s", side),
                    goal_text(held),
                    result.verdict(held, result.ratio("per_s", side)),
                ]
            )
    return rows


def start_rows(found: Iterable[CellResult[Cell]]) -> list[list[str]]:
    """Seconds from the start of a process."""
    meaning = {"bookie": "to its registration", "client": "to its first acknowledged add, ledger closed"}
    return [
        [
            f"{result.cell.name}, {meaning[result.cell.shape]}",
            number(result.figure("ours", "took_s"), 2),
            number(result.figure("apache", "took_s"), 2),
            ratio_text(result, "took_s"),
            goal_text(targets.START),
            result.verdict(targets.START, result.ratio("took_s")),
            quiet_text(result),
        ]
        for result in found
    ]


def memory_rows(records: Iterable[Record]) -> list[list[str]]:
    """Resident MB of every process: idle (medians over stints), and the most that was seen with the entries by then."""
    idle: dict[str, list[int]] = {}
    most: dict[str, tuple[int, int]] = {}
    for record in records:
        for name, size in record.get("resident", {}).items():
            if not size:
                continue
            if record["kind"] == "memory" and record["moment"] == "idle":
                idle.setdefault(name, []).append(size)
            entries = record["entries"].get(name.split()[0], 0) if "bookie" in name else 0
            most[name] = max(most.get(name, (0, 0)), (size, entries))
    return [
        [
            name,
            number(median(idle[name]) / 1e6) if name in idle and "bookie" in name else MISSING,
            number(most[name][0] / 1e6),
            number(most[name][1] / 1e6, 2) if "bookie" in name else MISSING,
        ]
        for name in sorted(most)
    ]


def memory_verdicts(records: Sequence[Record]) -> list[str]:
    """Idle memory against Apache's; memory under load against its bound."""
    idle: dict[str, list[int]] = {"ours": [], "apache": []}
    loaded: list[int] = []
    entries_max = 0
    for record in records:
        for name, size in record.get("resident", {}).items():
            kind = name.split()[0]
            if kind not in idle or "bookie" not in name or not size:
                continue
            if record["kind"] == "memory" and record["moment"] == "idle":
                idle[kind].append(size)
            elif kind == "ours":
                loaded.append(size)
                entries_max = max(entries_max, record["entries"]["ours"])
    lines = []
    if idle["ours"] and idle["apache"]:
        ratio = median(idle["ours"]) / median(idle["apache"])
        goal = targets.IDLE_MEMORY
        lines.append(f"idle bookie, ours/Apache: {ratio:.2f} (target {goal_text(goal)}): {goal.verdict(ratio)}")
    if loaded:
        within = max(loaded) <= targets.LOADED_MEMORY_BYTES
        enough = entries_max >= targets.LOADED_MEMORY_ENTRIES
        worth = (targets.PASS if enough else "not enough entries to tell") if within else targets.SHORT
        lines.append(
            f"our bookies, most resident: {max(loaded) / 1e6:.0f} MB after up to {entries_max / 1e6:.1f} M entries of "
            f"the cluster (target <= {targets.LOADED_MEMORY_BYTES / 1e6:.0f} MB after 10 M): {worth}"
        )
    return lines


def figure_text(line: Record) -> str:
    """What was measured."""
    return f"{line['took_s']:.2f} s" if "took_s" in line else f"{line['per_s']:,.0f}/s"


def outcome(lines: Sequence[Record], figure: Callable[[Record], str] = figure_text) -> str:
    """An attempt in one line."""
    parts = []
    for line in lines:
        if line["kind"] == "failed":
            told: list[str] = line["error"].splitlines()
            parts.append(f"{line['side']} FAILED: {' ... '.join(dict.fromkeys([told[0], told[-1]]))}")
        else:
            parts.append(f"{line['side']} {figure(line)}")
    others = max((line["others"] for line in lines if "others" in line), default=0.0)
    quiet = "quiet" if all(line.get("quiet") for line in lines) else "DOES NOT COUNT"
    name, repetition = lines[0]["cell"], lines[0]["repetition"] + 1
    return f"{name} #{repetition}: {', '.join(parts)}; other work up to {others:.0%}, {quiet}"


_RATES = ("cell", "ours/s", "Apache/s", "ratio", "target, floor", "verdict")
WRITES = (*_RATES, "tuned/s", "ratio", "target", "verdict", "quiet")
READS = (*_RATES, "quiet")
LATENCIES = ("cell", "ours p50/p99", "Apache", "tuned", "p50 ratio", "p99 ratio", "target", "verdict")
_CPU = ("Apache", "ratio", "target", "verdict")
CPU = ("cell", "client ours", *_CPU, "bookies ours", *_CPU, "adds/flush ours", "Apache")
CROSSED = ("cell, pair", "per s", "p50/p99 ms", "client us", "bookies us", "ratio to Apache", "target", "verdict")
STARTS = ("seconds", "ours", "Apache", "ratio", "target", "verdict", "quiet")


def render(records: Sequence[Record]) -> str:
    """The whole report."""
    found = results(records)
    by_kind: dict[str, list[CellResult[Cell]]] = {"write": [], "read": [], "start": []}
    for result in found:
        by_kind[result.cell.kind].append(result)
    loads = by_kind["write"] + by_kind["read"]
    lines = heading([record for record in records if record["kind"] == "run"])
    sections: list[tuple[str, Sequence[str], Callable[[], list[list[str]]]]] = [
        ("Adds per second", WRITES, lambda: rate_rows(by_kind["write"])),
        ("Entries read per second", READS, lambda: rate_rows(by_kind["read"])),
        ("Latency, ms: from sending to the callback; reads: a range", LATENCIES, lambda: latency_rows(loads)),
        ("CPU, us per entry: the client; its three bookies together", CPU, lambda: cpu_rows(loads)),
        ("Crossed pairs; the ratio is to Apache's client on Apache's bookies", CROSSED, lambda: crossed_rows(loads)),
        ("Start", STARTS, lambda: start_rows(by_kind["start"])),
        (
            "Resident memory, MB: idle, and the most seen (with millions of entries acknowledged by the cluster then)",
            ("process", "idle", "most", "M entries"),
            lambda: memory_rows(records),
        ),
    ]
    for title, header, rows in sections:
        lines += table(title, header, rows())
    lines += memory_verdicts(records)
    lines += failed_attempts(found)
    return "\n".join(lines) + "\n"


def failed_attempts(found: Sequence[CellResult[Any]]) -> list[str]:
    """Each failure once; nothing where there is none."""
    failures = [f"{result.cell.name}: {failure}" for result in found for failure in dict.fromkeys(result.failures)]
    return ["", "Failed attempts", *failures] if failures else []


def heading(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Machine and settings. runs: the lines of that kind."""
    lines = []
    for number_, run in enumerate(runs, 1):
        name = f"run {number_} of {len(runs)}: " if len(runs) > 1 else ""
        lines.append(name + "; ".join(f"{key} {value}" for key, value in run["machine"].items()))
    if runs:
        lines += [f"{key}: {value}" for key, value in runs[-1]["settings"].items()]
    return lines
