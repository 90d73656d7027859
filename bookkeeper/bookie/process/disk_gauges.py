"""How full the disks of a bookie's directories are, as gauges: a name for each directory, as Apache has them.

    bookie_ledger_dir_<path>_usage          percent used, as diskUsageThreshold counts: Apache's name and unit
    bookie_index_dir_<path>_usage           the same of index directories, where they are others; Apache's too
    bookie_journal_dir_<path>_usage         the same of journal directories (not in Apache)
    bookie_..._dir_<path>_free_bytes        what an ordinary user may still write (not in Apache)

<path>: as configured, with _ for every character that a metric's name cannot have. Of the last look at the disks;
nothing is shown before the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.filesystem import DiskUsage
from bookkeeper.metrics import Kind, Metrics, MetricSpec

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")


class Measured(Protocol):
    """What is asked of the disk monitor: usages of the last look."""

    usages: dict[str, DiskUsage]
    watched_usages: dict[str, DiskUsage]


def show_disks(
    metrics: Metrics, measured: Measured, directories: LedgerDirectories, journal_dirs: Sequence[str]
) -> None:
    """Declare and show a pair of gauges for every directory."""
    taken: set[str] = set()
    for kind, paths, ours in (
        ("ledger", directories.ledger_dirs, ""),
        ("index", () if directories.index_dirs == directories.ledger_dirs else directories.index_dirs, ""),
        ("journal", journal_dirs, " (not in Apache)"),
    ):
        for path in paths:
            name = _free_name(f"bookie_{kind}_dir_{_NOT_IN_NAMES.sub('_', path)}", taken)
            usage = partial(_usage_of, measured, path)
            metrics.declare(
                MetricSpec(f"{name}_usage", Kind.GAUGE, f"Percent used of the disk of {kind} directory {path}{ours}.")
            )
            metrics.gauge(f"{name}_usage", partial(_shown, usage, lambda found: 100 * found.used_fraction))
            metrics.declare(
                MetricSpec(
                    f"{name}_free_bytes", Kind.GAUGE, f"Bytes free there for an ordinary user: {path} (not in Apache)."
                )
            )
            metrics.gauge(f"{name}_free_bytes", partial(_shown, usage, lambda found: found.free))


def _free_name(name: str, taken: set[str]) -> str:
    """Two paths may differ in such characters only."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _usage_of(measured: Measured, path: str) -> DiskUsage | None:
    found = measured.usages.get(path)
    return measured.watched_usages.get(path) if found is None else found


def _shown(usage: Callable[[], DiskUsage | None], value: Callable[[DiskUsage], float]) -> float:
    found = usage()
    return math.nan if found is None else value(found)
