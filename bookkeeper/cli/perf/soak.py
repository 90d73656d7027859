"""Write at a fixed rate for an hour or longer, creating and deleting ledgers all the time, and record what that does.

Every few seconds a line for each process goes into a CSV file: memory, file handles, disk space, adds/s, latencies,
counters of the garbage collection. At the end everything that must be there is read and compared, and it prints how
each figure went after the warm-up: its mean, bounds, and slope per hour. With matplotlib, it draws the file as a PNG.

examples:
  bookkeeper perf soak                                     an hour, 2000 entries/s of 1 KiB, three bookies of its own
  bookkeeper perf soak --minutes 480 --rate 5000 --keep 2048 --directory /srv/x
  bookkeeper perf soak --csv run.csv --png run.png         where to record and draw
  bookkeeper perf soak --plot run.csv                      say and draw again what was recorded
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bookkeeper.cli.localbookie import check_bookie_settings
from bookkeeper.cli.perf.arguments import (
    add_entry_size,
    add_quorums,
    boolean,
    check_entry_size,
    duration,
    minutes,
    replication_of,
)
from bookkeeper.cli.perf.calibrate import calibrate
from bookkeeper.cli.perf.churn_ledgers import stored_size
from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.cli.perf.churn_process import ChurnProcess
from bookkeeper.cli.perf.counters import (
    bytes_on_disk,
    process_cpu_seconds,
    process_memory_bytes,
    process_open_files,
    read_metrics,
)
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.cli.perf.soak_plot import draw
from bookkeeper.cli.perf.soak_record import LOAD, NoSoak, SoakLine, SoakWriter, Trend, read_soak, trends
from bookkeeper.clock import wall_s
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.figures import NO_LIBRARY, can_draw
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    entries,
    note,
    print_table,
    readable_size,
)
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose, at_least
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster

WARM_UP_SHARE, WARM_UP_MAX_S = 0.2, 600.0
"""What is not judged: caches fill, and the first collections come, but never more than ten minutes."""

_METRICS = {
    "gc_ledgers": "bookie_gc_ACTIVE_LEDGER_TOTAL",
    "gc_ledgers_deleted": "bookie_gc_DELETED_LEDGER_TOTAL",
    "gc_bytes_removed": "bookie_gc_RECLAIMED_DELETION_SPACE_BYTES",
    "gc_bytes_rewritten": "bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES",
    "gc_bytes_copied": "bookie_gc_COMPACTED_BYTES",
    "gc_logs_compacted": "bookie_gc_COMPACTED_ENTRY_LOGS",
    "gc_logs_quarantined": "bookie_gc_QUARANTINED_ENTRY_LOGS",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper perf soak`."""
    parser.add_argument("--plot", type=Path, metavar="FILE.csv",
                        help="say and draw what was recorded there; nothing runs")  # fmt: skip
    parser.add_argument("--minutes", type=minutes, default=60.0, metavar="N", help="(default: %(default)g)")
    parser.add_argument("--every", type=duration, default=5.0, metavar="SECONDS",
                        help="between two lines of a process (default: %(default)g)")  # fmt: skip
    parser.add_argument("--csv", type=Path, metavar="FILE",
                        help="where to record (default: soak-<date>-<time>.csv here)")  # fmt: skip
    parser.add_argument("--png", type=Path, metavar="FILE", help="where to draw (default: beside the CSV file)")
    load = parser.add_argument_group("load")
    load.add_argument("--rate", type=at_least(1), default=2000, metavar="N",
                      help="entries a second (default: %(default)s)")  # fmt: skip
    add_entry_size(load, least=1, default=1024)
    load.add_argument("-throttle", "--outstanding", type=at_least(1), default=1000, metavar="N", dest="outstanding",
                      help="most entries in flight (default: %(default)s)")  # fmt: skip
    load.add_argument("-useV2", type=boolean, default=True, metavar="BOOL", help="protocol v2 (default: true)")
    load.add_argument("--keep", type=at_least(1), default=256, metavar="MIB",
                      help="payload of closed ledgers that stays (default: %(default)s)")  # fmt: skip
    load.add_argument("--checks", type=at_least(0), default=20, metavar="N",
                      help="ranges read and compared a second (default: %(default)s)")  # fmt: skip
    add_quorums(load)
    own = parser.add_argument_group("cluster, its own")
    own.add_argument("--bookies", type=at_least(1), default=3, metavar="N", help="(default: %(default)s)")
    own.add_argument("--directory", type=Path, metavar="DIR", help="for the data (default: temporary)")
    own.add_argument("--log-size", type=at_least(8), default=32, metavar="MIB",
                     help="of an entry log (default: %(default)s)")  # fmt: skip
    own.add_argument("--gc-wait", type=at_least(1), default=30, metavar="SECONDS",
                     help="between two collections; compaction every second one (default: %(default)s)")  # fmt: skip
    own.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                     help=f"bookie setting, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    """Soak, or draw again. Raises CommandFailed, SystemExit on a signal: what was recorded by then stays."""
    if args.plot is not None:
        return _tell(_read(args.plot), args.png or args.plot.with_suffix(".png"), args.plot)
    replication = replication_of(args)
    check_entry_size(args.entrysize, replication)
    if replication.ensemble > args.bookies:
        raise CommandFailed(
            f"-ensemble {replication.ensemble}: that many bookies are needed, --bookies is {args.bookies}", EXIT_USAGE
        )
    given = parse_settings(args.settings)
    check_bookie_settings(given)
    path: Path = args.csv or Path(time.strftime("soak-%Y%m%d-%H%M%S.csv", time.localtime(wall_s())))
    plan = ChurnPlan(
        uri="",
        replication=replication,
        entry_size=args.entrysize,
        outstanding=args.outstanding,
        use_v2=args.useV2,
        rate=float(args.rate),
        # The largest is an eighth of what stays, so that there is a choice of what goes.
        entries_smallest=min(64, max(1, (args.keep << 20) // 8 // args.entrysize)),
        entries_largest=max(1, min(args.keep << 20, 64 << 20) // 8 // args.entrysize),
        keep_bytes=args.keep << 20,
        checks_per_s=float(args.checks),
        verbose="verbose" in args,
    )
    with (
        _recording(path) as record,
        LocalCluster(args.bookies, directory=args.directory, settings={**_settings(args), **given}) as cluster,
    ):
        print(calibrate(cluster.directory).text)
        with ChurnProcess(dataclasses.replace(plan, uri=cluster.uri)) as load:
            load.start()
            _record(load, cluster.bookies, record, seconds=args.minutes * 60, every_s=args.every)
            note("reading everything that must be there")
            end = load.stop(verify=True)
    _tell(_read(path), args.png or path.with_suffix(".png"), path)
    print(f"added {entries(end['all_adds'])}, deleted {end['deleted_ledgers']:,} ledgers; verified at the end: "
          f"{entries(end['verified_entries'])}; errors: {end['error_count']}")  # fmt: skip
    for error in end["errors"]:
        print(f"  {error}")
    return EXIT_FAILURE if end["error_count"] else EXIT_OK


def _settings(args: argparse.Namespace) -> dict[str, str]:
    return {
        "httpServerEnabled": "true",
        "httpServerPort": "0",
        "logSizeLimit": str(args.log_size << 20),
        "journalMaxSizeMB": "64",
        "journalMaxBackups": "1",
        "gcWaitTime": str(args.gc_wait * 1000),
        "minorCompactionInterval": str(args.gc_wait * 2),
        "majorCompactionInterval": str(args.gc_wait * 4),
        "isThrottleByBytes": "true",
        "compactionRateByBytes": "10000000",
    }


@contextlib.contextmanager
def _recording(path: Path) -> Iterator[SoakWriter]:
    try:
        file = path.open("x", newline="")
    except FileExistsError:
        raise CommandFailed(f"{path} is there already: --csv names another file", EXIT_USAGE) from None
    with file:
        note(f"recording to {path}")
        yield SoakWriter(file)


def _record(
    load: ChurnProcess, bookies: Sequence[LocalBookie], record: SoakWriter, *, seconds: float, every_s: float
) -> None:
    """Until the time is over."""
    began = time.monotonic()
    progress = Progress("soaking: seconds", round(seconds), lines_every_s=60.0)
    load.phase()
    moment = 0
    while (now_s := time.monotonic() - began) < seconds:
        moment = max(moment + 1, int(now_s / every_s))
        time.sleep(max(0.0, min(moment * every_s, seconds) - now_s))
        at_s = time.monotonic() - began
        counted = load.phase()
        line = _load_line(at_s, load, counted)
        record.add([line, *(_bookie_line(at_s, bookie) for bookie in bookies)])
        progress.update(
            round(at_s),
            besides=f"{line.figures['adds_per_s']:,.0f} adds/s, p99 {line.figures.get('p99_ms', 0.0):.1f} ms, "
            f"{counted['ledgers']:,} ledgers, errors {counted['error_count']}",
        )
    progress.close()


def _of_process(pid: int) -> dict[str, float]:
    return {
        "resident_bytes": process_memory_bytes(pid),
        "open_files": process_open_files(pid),
        "cpu_s": process_cpu_seconds(pid),
    }


def _load_line(at_s: float, load: ChurnProcess, counted: dict[str, Any]) -> SoakLine:
    plan, latencies = load.plan, Latencies.merged([counted["latencies"]])
    live = stored_size(counted["live_entries"], plan.entry_size, plan.replication.digest)
    figures = {
        **_of_process(load.pid),
        "adds_per_s": counted["adds"] / counted["seconds"],
        "checked_entries": counted["checked_entries"],
        "ledgers": counted["ledgers"],
        "live_bytes": live * plan.replication.write_quorum,
        "errors": counted["error_count"],
    }
    if latencies.count:
        figures |= {"p50_ms": latencies.percentile(50.0) * 1e3, "p99_ms": latencies.percentile(99.0) * 1e3}
    return SoakLine(at_s, LOAD, load.pid, figures)


def _bookie_line(at_s: float, bookie: LocalBookie) -> SoakLine:
    if not bookie.running:
        raise CommandFailed(f"{bookie.name} has ended after {at_s:.0f} s; the end is in {bookie.log_path}")
    assert bookie.metrics_url is not None
    try:
        metrics = read_metrics(bookie.metrics_url)
    except OSError as error:
        raise CommandFailed(f"{bookie.name} does not tell its metrics after {at_s:.0f} s: {error}") from error
    figures = {
        **_of_process(bookie.pid),
        "ledger_bytes": bytes_on_disk(bookie.ledger_directory),
        "journal_bytes": bytes_on_disk(bookie.journal_directory),
        **{name: metrics[metric] for name, metric in _METRICS.items() if metric in metrics},
    }
    return SoakLine(at_s, bookie.name, bookie.pid, figures)


# --- the end ----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> list[SoakLine]:
    try:
        with path.open(newline="") as file:
            lines = read_soak(file)
    except NoSoak as error:
        raise CommandFailed(f"{path}: {error}") from error
    if not lines:
        raise CommandFailed(f"{path}: nothing was recorded")
    return lines


def _tell(lines: Sequence[SoakLine], png: Path, csv: Path) -> int:
    """Print how every figure went, and draw it all."""
    took_s = max(line.seconds for line in lines)
    warm_up_s = min(took_s * WARM_UP_SHARE, WARM_UP_MAX_S)
    found = trends(lines, warm_up_s)
    print(f"{took_s / 60:.1f} minutes, the first {warm_up_s / 60:.1f} not judged; recorded in {csv}")
    print_table(["figure", "process", "mean", "least", "most", "slope per hour", "of the mean"], map(_row, found))
    if can_draw():
        png.write_bytes(draw(lines, f"{csv.name}: {took_s / 60:.1f} minutes", warm_up_s))
        print(f"drawn in {png}")
    else:
        print(f"not drawn: {NO_LIBRARY}, then: bookkeeper perf soak --plot {csv}")
    return EXIT_OK


def _row(trend: Trend) -> list[str]:
    share = "-" if trend.share_per_h is None else f"{trend.share_per_h:+.2%}"
    figures = [_readable(trend.figure, value) for value in (trend.mean, trend.least, trend.most)]
    sign = "-" if trend.slope_per_h < 0 else "+"
    return [trend.figure, trend.process, *figures, sign + _readable(trend.figure, abs(trend.slope_per_h)), share]


def _readable(figure: str, value: float) -> str:
    return readable_size(round(value)) if figure.endswith("_bytes") else f"{value:,.2f}"
