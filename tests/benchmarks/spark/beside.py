"""The same entries without Spark: `bookkeeper perf read` and `perf write`, in as many processes as there are tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bookkeeper.console.output import CommandFailed
from tests.benchmarks.spark.ground import TASKS, Cell, Ground, Load

PERF_SECONDS = 6


def _perf(ground: Ground, *words: str) -> Load:
    command = [sys.executable, "-m", "bookkeeper.cli.main", "perf", words[0], "--uri", ground.uri]
    command += ["--clients", str(TASKS), "-time", str(PERF_SECONDS), "--json", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise CommandFailed(f"{' '.join(command[2:])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return Load(rate_of(json.loads(done.stdout)), 1.0)


def rate_of(document: Any) -> float:
    """Entries a second in the JSON of `bookkeeper perf`."""
    return float(document[0]["operations_per_s"])


def _perf_read(ground: Ground, size: int) -> Load:
    return _perf(ground, "read", *(word for each in ground.ledgers[size] for word in ("-ledger", str(each))))


def _perf_write(ground: Ground, size: int) -> Load:
    return _perf(ground, "write", "-entrysize", str(size), "-ensemble", "3", "-quorum", "3", "-ackQuorum", "2")


PERF = (Cell("perf read", _perf_read, timed_whole=False), Cell("perf write", _perf_write, timed_whole=False))
