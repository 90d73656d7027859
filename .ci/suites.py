"""Run test suites, each in a pytest process of its own, and sum up.

    .venv/bin/python .ci/suites.py unit simulation [-- options for pytest]

suites: unit, simulation, integration, spark (what of integration needs Spark), interop
options of our own, beside pytest's: --seed N|random, --sim-seeds N, --zookeeper HOST:PORT, --apache-home DIR

examples:
    .ci/suites.py interop -- -k test_tls            the tests of one file, or those with that in their names
    .ci/suites.py simulation -- --seed 7 --sim-seeds 1     one simulated cluster again

Every suite runs, even after one has failed; the exit code is 1 if any failed. The last lines name what failed,
with the end of what each said. A suite without tests is reported as such and does not fail, unless options chose among
the tests and left none at all. Unit tests and simulation run without the reactor plugin, which proves that they need
no reactor. These two, and integration and spark, run at the same time where there are two cores for it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("unit", "simulation", "integration", "spark", "interop")
WITHOUT_REACTOR = frozenset({"unit", "simulation"})
TOGETHER = (WITHOUT_REACTOR, frozenset({"integration", "spark"}))
"""Suites that run at a time, and take about as long: the former wait for nothing, the latter half of their time."""

PART_OF = {"spark": "integration"}
"""A suite that is a directory of another one, which leaves it out."""

NO_TESTS_COLLECTED = 5
SHOWN_MAX = 20
SHOWN_LINES = 6


class Result(NamedTuple):
    """outcome: "passed", "failed (code N)" or "no tests"; failures: a few lines for each test that failed."""

    outcome: str
    failures: list[str]


class Running:
    """A suite that runs. shown: what it says is seen at once; else once it is waited for."""

    def __init__(self, suite: str, options: list[str], *, shown: bool) -> None:
        self.suite = suite
        self._begun = time.monotonic()
        self._scratch = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: Path | None = None if shown else Path(self._scratch.name) / "output"
        directory = directory_of(suite)
        if not any(directory.rglob("test_*.py")):
            return
        plugins = ["-p", "no:twisted"] if suite in WITHOUT_REACTOR else []
        without = [f"--ignore={directory_of(part)}" for part, whole in PART_OF.items() if whole == suite]
        report = f"--junit-xml={self._scratch.name}/report.xml"
        command = [sys.executable, "-m", "pytest", str(directory), "-q", *plugins, *without, report, *options]
        with contextlib.ExitStack() as stack:
            output = None if self._said is None else stack.enter_context(self._said.open("wb"))
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def result(self) -> tuple[Result, float]:
        """Wait for its end; with the seconds since it began."""
        with self._scratch:
            if self._process is None:
                return Result("no tests", []), 0.0
            code = self._process.wait()
            took_s = time.monotonic() - self._begun
            if self._said is not None:
                sys.stdout.buffer.write(self._said.read_bytes())
                sys.stdout.flush()
            if code in (0, NO_TESTS_COLLECTED):
                return Result("passed" if code == 0 else "no tests", []), took_s
            return Result(f"failed (code {code})", failures_in(Path(self._scratch.name) / "report.xml")), took_s


def directory_of(suite: str) -> Path:
    """Where its tests are."""
    return ROOT / "tests" / PART_OF.get(suite, "") / suite


def run_all(suites: list[str], options: list[str]) -> Iterator[tuple[str, Result, float]]:
    """One after the other; but those of TOGETHER at a time if each has a core."""
    left = list(suites)
    while left:
        together = [left.pop(0)]
        while left and any({*together, left[0]} <= some for some in TOGETHER) and len(together) < (os.cpu_count() or 1):
            together.append(left.pop(0))
        print(f"\n=== {together[0]} ===", flush=True)
        running = [Running(suite, options, shown=suite == together[0]) for suite in together]
        for each in running:
            if each is not running[0]:
                print(f"\n=== {each.suite}, which ran meanwhile ===", flush=True)
            yield each.suite, *each.result()


def failures_in(report: Path) -> list[str]:
    """Each test of pytest's report that failed, and the end of what it said."""
    if not report.exists():
        return ["pytest ended without a report"]
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for fault in [*case.findall("failure"), *case.findall("error")]:
            lines = (fault.text or fault.get("message") or "").strip().splitlines()[-SHOWN_LINES:]
            name = f"{case.get('classname')}::{case.get('name')}: {fault.tag} after {case.get('time')} s"
            found.append("\n".join([name, *(f"    {line}" for line in lines)]))
    return found


def main(arguments: list[str]) -> int:
    """Exit code 0 if no suite failed, 1 if one did, 2 for a suite that does not exist or none."""
    names, options = arguments, []
    if "--" in arguments:
        split = arguments.index("--")
        names, options = arguments[:split], arguments[split + 1 :]
    if {"-h", "--help"} & set(names):
        print(__doc__)
        return 0
    if not names:
        print(f"which suite? (known: {', '.join(SUITES)}; --help tells more)", file=sys.stderr)
        return 2
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"unknown suite {', '.join(unknown)} (known: {', '.join(SUITES)}; --help tells more)", file=sys.stderr)
        return 2
    begun = time.monotonic()
    results = list(run_all(names, options))
    build = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    print(f"\n=== summary ({build}) ===")
    for name, result, took_s in results:
        print(f"{name:<12} {took_s:7.1f} s  {result.outcome}")
    print(f"{'together':<12} {time.monotonic() - begun:7.1f} s")
    failures = [failure for _, result, _ in results for failure in result.failures]
    for failure in failures[:SHOWN_MAX]:
        print(failure)
    if len(failures) > SHOWN_MAX:
        print(f"... and {len(failures) - SHOWN_MAX} more")
    if options and all(result.outcome == "no tests" for _, result, _ in results):
        print(f"no test fits: {' '.join(options)}", file=sys.stderr)
        return 1
    return int(any(result.outcome.startswith("failed") for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
