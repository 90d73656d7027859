"""Run test suites one after the other, each in a pytest process of its own, and sum up.

    .venv/bin/python .ci/suites.py unit simulation [-- options for pytest]

suites: unit, simulation, integration, interop
options of our own, beside pytest's: --seed N|random, --sim-seeds N, --zookeeper HOST:PORT, --apache-home DIR

examples:
    .ci/suites.py interop -- -k test_tls            the tests of one file, or those with that in their names
    .ci/suites.py simulation -- --seed 7 --sim-seeds 1     one simulated cluster again

Every suite runs, even after one has failed; the exit code is 1 if any failed. A suite without tests is reported as such
and does not fail, unless options chose among the tests and left none at all. Unit tests and simulation run without the
reactor plugin, which proves that they need no reactor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("unit", "simulation", "integration", "interop")
WITHOUT_REACTOR = frozenset({"unit", "simulation"})
NO_TESTS_COLLECTED = 5


def run_suite(suite: str, options: list[str]) -> str:
    """Run one suite and return "passed", "failed (code N)" or "no tests"."""
    directory = ROOT / "tests" / suite
    if not any(directory.rglob("test_*.py")):
        return "no tests"
    plugins = ["-p", "no:twisted"] if suite in WITHOUT_REACTOR else []
    command = [sys.executable, "-m", "pytest", str(directory), "-q", *plugins, *options]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == NO_TESTS_COLLECTED:
        return "no tests"
    return "passed" if code == 0 else f"failed (code {code})"


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
    results: list[tuple[str, str, float]] = []
    for name in names:
        print(f"\n=== {name} ===", flush=True)
        begun = time.monotonic()
        results.append((name, run_suite(name, options), time.monotonic() - begun))
    build = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    print(f"\n=== summary ({build}) ===")
    for name, result, took_s in results:
        print(f"{name:<12} {took_s:7.1f} s  {result}")
    if options and all(result == "no tests" for _, result, _ in results):
        print(f"no test fits: {' '.join(options)}", file=sys.stderr)
        return 1
    return int(any(result.startswith("failed") for _, result, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
