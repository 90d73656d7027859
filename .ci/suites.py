"""Run test suites, each in a pytest process of its own, and sum up.

    .venv/bin/python .ci/suites.py unit simulation [-- options for pytest]

suites: unit, simulation, integration, spark (the integration tests that need Spark), interop
options of our own, beside pytest's: --seed N|random, --sim-seeds N, --zookeeper HOST:PORT, --apache-home DIR

examples:
    .ci/suites.py interop -- -k test_tls            the tests of one file, or those with that in their names
    .ci/suites.py simulation -- --seed 7 --sim-seeds 1     one simulated cluster again

Two suites run at a time on two or more cores, since most tests wait half of their time. Progress is printed twice a
minute, and the output of a suite when it ends. A suite that runs alone prints as it runs.

All suites run, even after a failure; the exit code is 1 if a suite failed. The last lines name each failed test, with
the end of its output. A suite without tests is reported and does not fail, unless options were given and no suite has a
matching test. Unit tests and simulation run without the reactor plugin, which proves that they need no reactor.

Suites that run at the same time pause each other's processes for seconds. So if at most UNSTEADY_MAX tests failed in a
run of several suites without options, the files of these tests run again, alone and REPEATS times. A test is *unsteady*
if its file passes each time: it is listed with its first failure, and its suite counts as passed. An unsteady test is a
fault to fix, in the test or in the product. Failures of unit tests and simulation are never unsteady: they depend on no
other process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("unit", "simulation", "integration", "spark", "interop")
WITHOUT_REACTOR = frozenset({"unit", "simulation"})
AT_ONCE = 2
SAY_S, LOOK_S = 30.0, 0.5
REPEATS, UNSTEADY_MAX = 2, 3

PART_OF = {"spark": "integration"}
"""A suite that is a directory of another one, which leaves it out."""

TESTS_FAILED = 1
NO_TESTS_COLLECTED = 5
SHOWN_MAX = 20
SHOWN_LINES = 6
PERCENT = re.compile(r"\[ *(\d+%)\]$", re.MULTILINE)


class Failure(NamedTuple):
    """A failed test. test: the argument with which pytest runs it again, or "" if unknown; text: a few lines."""

    test: str
    text: str


class Result(NamedTuple):
    """Result of a suite. outcome: "passed", "failed (code N)", "no tests" or "passed (N unsteady)"."""

    outcome: str
    failures: list[Failure]


class Running:
    """A suite that runs, or one file of it. shown: it prints as it runs; otherwise `said` has its output."""

    def __init__(self, suite: str, options: Sequence[str], *, shown: bool, file: str = "") -> None:
        self.suite = suite
        self._begun = time.monotonic()
        self._scratch = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: Path | None = None if shown else Path(self._scratch.name) / "output"
        directory = directory_of(suite)
        if not any(directory.rglob("test_*.py")):
            return
        without = [f"--ignore={directory_of(part)}" for part, whole in PART_OF.items() if whole == suite]
        # xunit1 names the file of each test.
        report = ["-o", "junit_family=xunit1", f"--junit-xml={self._scratch.name}/report.xml"]
        plugins = ["-p", "no:twisted"] if suite in WITHOUT_REACTOR else []
        what = [file] if file else [str(directory), *without]
        command = [sys.executable, "-m", "pytest", *what, "-q", *plugins, *report, *options]
        with contextlib.ExitStack() as stack:
            output = None if self._said is None else stack.enter_context(self._said.open("wb"))
            # A shell ignores SIGINT for what it runs in the background, and that is inherited: `stop` needs it.
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=output,
                preexec_fn=_hear_interrupts,  # noqa: PLW1509 - no threads
            )

    def has_ended(self, within_s: float) -> bool:
        """Whether it has, or does in so many seconds."""
        try:
            return self._process is None or self._process.wait(within_s) is not None
        except subprocess.TimeoutExpired:
            return False

    @property
    def said(self) -> str:
        """What it has said so far, if that is not shown."""
        return "" if self._said is None or not self._said.exists() else self._said.read_text(errors="replace")

    @property
    def progress(self) -> str:
        """How far it is, as pytest said last."""
        return f"{self.suite} {(PERCENT.findall(self.said) or ['0%'])[-1]}"

    def result(self) -> tuple[Result, float]:
        """Wait for its end; with the seconds since it began."""
        with self._scratch:
            if self._process is None:
                return Result("no tests", []), 0.0
            code = self._process.wait()
            took_s = time.monotonic() - self._begun
            if code in (0, NO_TESTS_COLLECTED):
                return Result("passed" if code == 0 else "no tests", []), took_s
            return Result(f"failed (code {code})", failures_in(Path(self._scratch.name) / "report.xml")), took_s

    def has_passed(self, test: str) -> bool:
        """Return whether the ended run passed this test and did not skip it."""
        report = Path(self._scratch.name) / "report.xml"
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
        return any(_argument(case) == test and not len(case.findall("skipped")) for case in cases)

    def stop(self) -> None:
        """As Ctrl-C does, once: by it pytest ends what its tests have started, and by a second one it would not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        """Until it has ended."""
        if self._process is not None:
            self._process.wait()


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def directory_of(suite: str) -> Path:
    """Where its tests are."""
    return ROOT / "tests" / PART_OF.get(suite, "") / suite


def _lanes(suites: Sequence[str]) -> int:
    return min(AT_ONCE, os.cpu_count() or 1, len(suites))


def run_all(suites: list[str], options: list[str]) -> Iterator[tuple[str, Result, float]]:
    """AT_ONCE of them at a time if each has a core; in the order in which they end."""
    lanes = _lanes(suites)
    left, running = list(suites), list[Running]()
    try:
        while left or running:
            while left and len(running) < lanes:
                print(f"=== {left[0]} ===" if lanes == 1 else f"=== {left[0]} begins ===", flush=True)
                running.append(Running(left.pop(0), options, shown=lanes == 1))
            ended = _first_to_end(running, tell=lanes > 1)
            running.remove(ended)
            if lanes > 1:
                print(f"\n=== {ended.suite} ===\n{ended.said}", flush=True)
            yield ended.suite, *ended.result()
    except Stopped:
        for each in running:
            each.stop()
        raise
    finally:  # a Ctrl-C at the terminal was theirs, too
        for each in running:
            print(f"\n=== {each.suite}, which was interrupted ===\n{each.said}", flush=True)
        for each in running:
            each.wait()


def _first_to_end(running: list[Running], *, tell: bool) -> Running:
    """Wait for one of them. tell: meanwhile, how far they are."""
    told_s = time.monotonic()
    while True:
        for each in running:
            if each.has_ended(LOOK_S):
                return each
        if tell and time.monotonic() - told_s >= SAY_S:
            told_s = time.monotonic()
            print(f"    {', '.join(each.progress for each in running)}", flush=True)


def failures_in(report: Path) -> list[Failure]:
    """Return each failed test of pytest's report, with the end of its output."""
    if not report.exists():
        return [Failure("", "pytest ended without a report")]
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for fault in [*case.findall("failure"), *case.findall("error")]:
            lines = (fault.text or fault.get("message") or "").strip().splitlines()[-SHOWN_LINES:]
            name = f"{case.get('classname')}::{case.get('name')}: {fault.tag} after {case.get('time')} s"
            found.append(Failure(_argument(case), "\n".join([name, *(f"    {line}" for line in lines)])))
    return found


def _argument(case: ElementTree.Element) -> str:
    """Return `file::class::name` of a test of the report, or "" without a file (a module that cannot be imported)."""
    file, path = case.get("file", ""), case.get("classname", "")
    module = file.removesuffix(".py").replace("/", ".")
    if not file or not path.startswith(module):
        return ""
    return "::".join([file, *filter(None, path.removeprefix(module).split(".")), case.get("name", "")])


def passes_again(suite: str, file: str, tests: Sequence[str]) -> bool:
    """Run the file of these tests alone, REPEATS times, and return True; after a failure, print its output."""
    for number in range(1, REPEATS + 1):
        running = Running(suite, [], shown=False, file=file)
        try:
            running.wait()
        except BaseException as stopped:
            if isinstance(stopped, Stopped):
                running.stop()
            running.wait()
            raise
        said, have_passed = running.said, all(map(running.has_passed, tests))
        if running.result()[0].outcome != "passed" or not have_passed:
            print(f"{said}\n{file}: failed alone, in run {number} of {REPEATS}", flush=True)
            return False
    print(f"{file}: passed alone {REPEATS} times", flush=True)
    return True


def separate_unsteady(
    results: Sequence[tuple[str, Result, float]],
) -> tuple[list[tuple[str, Result, float]], list[Failure]]:
    """Return the results without the failures of unsteady tests, and these failures.

    A suite in which only unsteady tests failed counts as passed.
    """
    failures = [failure for _, result, _ in results for failure in result.failures]
    tests = {failure.test for failure in failures}
    if not tests or len(tests) > UNSTEADY_MAX or "" in tests:
        return list(results), []
    print("\n=== failed tests, alone ===", flush=True)
    after, unsteady = list[tuple[str, Result, float]](), list[Failure]()
    for suite, result, took_s in results:
        passed = set[str]()
        if result.outcome == f"failed (code {TESTS_FAILED})" and suite not in WITHOUT_REACTOR:
            files = dict[str, list[str]]()
            for test in sorted({each.test for each in result.failures}):
                files.setdefault(test.partition("::")[0], []).append(test)
            passed = {test for file, failed in files.items() if passes_again(suite, file, failed) for test in failed}
        unsteady += [failure for failure in result.failures if failure.test in passed]
        left = [failure for failure in result.failures if failure.test not in passed]
        outcome = result.outcome if left or not passed else f"passed ({len(passed)} unsteady)"
        after.append((suite, Result(outcome, left), took_s))
    return after, unsteady


class Stopped(SystemExit):
    """By SIGTERM, which only this process has got."""


def _stopped(number: int, frame: object) -> None:
    raise Stopped(128 + number)


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
    signal.signal(signal.SIGTERM, _stopped)
    results = sorted(run_all(names, options), key=lambda each: names.index(each[0]))
    unsteady = list[Failure]()
    if _lanes(names) > 1 and not options:
        results, unsteady = separate_unsteady(results)
    build = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    print(f"\n=== summary ({build}) ===")
    for name, result, took_s in results:
        print(f"{name:<12} {took_s:7.1f} s  {result.outcome}")
    print(f"{'together':<12} {time.monotonic() - begun:7.1f} s")
    failures = [failure for _, result, _ in results for failure in result.failures]
    for failure in failures[:SHOWN_MAX]:
        print(failure.text)
    if len(failures) > SHOWN_MAX:
        print(f"... and {len(failures) - SHOWN_MAX} more")
    if unsteady:
        print("unsteady tests (failed beside another suite, passed alone):")
    for failure in unsteady:
        print(failure.text)
    if options and all(result.outcome == "no tests" for _, result, _ in results):
        print(f"no test fits: {' '.join(options)}", file=sys.stderr)
        return 1
    return int(any(result.outcome.startswith("failed") for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
