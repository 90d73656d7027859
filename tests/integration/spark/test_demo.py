"""`bookkeeper demo spark`, as `make demo` runs it at its end."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_the_demo_queries_aggregates_and_has_a_changed_byte_found_and_mended() -> None:
    run = [sys.executable, "-m", "bookkeeper.cli.main", "demo", "spark"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    published = int(re.search(r"([\d,]+) messages of \d topics", said)[1].replace(",", ""))  # type: ignore[index]
    assert published > 100
    assert "CLOSED" in said
    changed = re.search(r"entry (\d+) of ledger (\d+), at \d+ of \S+ of bookie (\S+), with", said)
    assert changed is not None, said
    first, second = re.findall(r"^Audit: .*found: (.*)$", said, re.MULTILINE)
    assert (first, second) == ("1 bad", "nothing")
    finding = re.search(r"bad: ledger (\d+), entries (\d+) to (\d+), bookie (\S+), 1 good copy", said)
    assert finding is not None, said
    assert (finding[1], finding[4]) == (changed[2], changed[3])
    assert int(finding[2]) <= int(changed[1]) <= int(finding[3])
    assert said.rstrip().splitlines()[-2] == "Stopped: everything."
    assert not [line for line in done.stderr.splitlines() if "WARN" in line and "incubator" not in line]
