"""The benchmark against Apache is interrupted in the middle of a cell: nothing stays behind, and it can be resumed.

ZooKeeper, our bookies and our client are real. In place of Apache's programs a script stands for Java: a bookie that
says it serves, and a client that never answers as long as it is told so. What is measured says nothing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.process_output import await_output, tail

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 120
START_TIMEOUT_S = 120
MARK = "BENCH_APACHE_TEST"

pytestmark = pytest.mark.timeout(600)

STEPS = [
    "starting ZooKeeper",
    "starting our bookies",
    "starting Apache's bookies",
    "starting our client",
    "starting Apache's client",
]
"""What takes long is told as it begins."""

JAVA = """\
#!{python}
import json, os, signal, sys
from pathlib import Path

here = Path({here!r})
if "-version" in sys.argv:
    sys.exit("no Java")
if "BenchDriver" not in sys.argv:
    print("Started component {{component=bookie-server}}", flush=True)
    signal.pause()
for line in sys.stdin:
    if line.startswith("fill") and (here / "hang").exists():
        with (here / "asked").open("a") as asked:
            asked.write(line)
        signal.pause()
    print(json.dumps({{"ledger": 0}}), flush=True)
"""

PROGRAM = """\
import sys
from pathlib import Path
from tests.benchmarks.apache import main, run
from tests.benchmarks.apache.processes import Genuine

here = Path(sys.argv[1])
main.CACHE = here / "cache"
main.IN_MEMORY = frozenset()                                       # a test may write to memory,
main.reserve_bytes = run.reserve_bytes = lambda total: 0           # and to a disk that is rather full
main.code_id = lambda: "the same"                                  # as if nobody edited the programs meanwhile
main.find_genuine = lambda: Genuine(here / "java", here, here)
sys.exit(main.main(["run", "--cells", "start:client", "--reps", "1", "--seconds", "1", "--id", "broken-off"]))
"""


class Benchmark:
    """A directory in which the same command is run again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.cache = directory, directory / "cache"
        self.hang, self.asked, self.output = directory / "hang", directory / "asked", directory / "output"
        self._mark = uuid.uuid4().hex
        java = directory / "java"
        java.write_text(JAVA.format(python=sys.executable, here=str(directory)))
        java.chmod(0o755)
        self.hang.touch()

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The command; its output goes to `output`."""
        self.asked.write_bytes(b"")
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(self.directory)],
                cwd=ROOT, env={**os.environ, MARK: self._mark}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.kill()

    def processes(self) -> list[str]:
        """What runs of it, with all descendants: they inherit its environment."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):  # it has just ended, or is somebody else's
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def data(self) -> list[str]:
        """The directories of data."""
        return [path.name for path in self.cache.iterdir() if path.name.startswith("data-")]


def test_an_interrupted_run_leaves_nothing_behind_and_resumes(tmp_path: Path) -> None:
    bench = Benchmark(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM):
        with bench.running() as process:
            why = await_output(process, bench.asked, re.compile(rb"fill"), timeout_s=START_TIMEOUT_S)
            assert why is None, f"{why}\n{tail(bench.output)}"
            # Itself, ZooKeeper, three bookies and a client of each kind, and the client whose start is measured.
            assert len(bench.processes()) >= 1 + 1 + 2 * (3 + 1) + 1
            assert len(bench.data()) == 1
            process.send_signal(number)
            process.send_signal(number)  # who is impatient must not break the clearing away
            code = process.wait(STOP_TIMEOUT_S)
        told = bench.output.read_text()
        assert code == 130, told
        assert "Traceback" not in told
        assert re.findall(r"^\[ *\d+ s\] (.*)$", told, re.MULTILINE) == STEPS
        assert "1 round is left; go on with: make bench-apache ID=broken-off\n" in told
        assert (bench.processes(), bench.data()) == ([], [])
    bench.hang.unlink()
    with bench.running() as process:
        code = process.wait(START_TIMEOUT_S + STOP_TIMEOUT_S)
    told = bench.output.read_text()
    assert code == 0, told
    assert "[1/1 done" in told
    assert (bench.processes(), bench.data()) == ([], [])
    lines = [json.loads(line) for line in (bench.cache / "broken-off.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines].count("run") == 3
    # Ours was measured before the others hung; an attempt that was interrupted is made again as a whole.
    whole = max(line["attempt"] for line in lines if "attempt" in line)
    assert whole >= 2
    assert sorted(line["side"] for line in lines if line.get("attempt") == whole) == ["apache", "ours"]
