"""Hadoop's own edit log on local files and on its quorum journal of three JournalNodes, by JournalBench.java.

python -m tests.benchmarks.journals.genuine [--callers N,...] [--seconds S] [--warming S] [files] [quorum]

Prints one line of JSON for each journal and number of callers. Everything listens on 127.0.0.1 and ends with this
process; what is written goes to a temporary directory, which is removed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from tests.benchmarks.journals.clients import Answer, Failed, ask
from tests.support.hadoop.fetched import PACKAGE, Hadoop, find_hadoop
from tests.support.process_output import await_output, tail

JOURNAL_NODES = 3
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 60.0
JOURNALS = ("files", "quorum")

# Tests start faster on one compiler and a simple collector; figures want the machine's usual ones.
JVM_OPTIONS = ("-Xmx1g", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")

_SERVES = re.compile(rb"IPC Server listener on \d+: starting")


class JournalNode:
    """One JournalNode as a process."""

    def __init__(self, hadoop: Hadoop, directory: Path) -> None:
        """Start it; `wait_ready` says when it serves. directory: for what it keeps, and its log."""
        directory.mkdir(parents=True)
        self.port = free_port()
        self._log_path = directory / "journal-node.log"
        settings = {
            "dfs.journalnode.edits.dir": directory / "edits",
            "dfs.journalnode.rpc-address": f"127.0.0.1:{self.port}",
            "dfs.journalnode.http-address": f"127.0.0.1:{free_port()}",
        }
        command = hadoop.command(
            "org.apache.hadoop.hdfs.qjournal.server.JournalNode",
            *(word for key, value in settings.items() for word in ("-D", f"{key}={value}")),
            options=JVM_OPTIONS,
        )
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                start_new_session=True,  # so that Ctrl-C reaches the one that measures
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Raises Failed."""
        why = await_output(self._process, self._log_path, _SERVES, timeout_s=START_TIMEOUT_S)
        if why is not None:
            raise Failed(f"a JournalNode did not start: {why}\n{tail(self._log_path)}")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextmanager
def journal_nodes(hadoop: Hadoop, directory: Path, count: int = JOURNAL_NODES) -> Iterator[Sequence[JournalNode]]:
    """Some JournalNodes, started side by side, killed at the end."""
    nodes: list[JournalNode] = []
    try:
        for number in range(1, count + 1):
            nodes.append(JournalNode(hadoop, directory / f"journal-node-{number}"))  # noqa: PERF401 - killed if the next fails
        for node in nodes:
            node.wait_ready()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def quorum_uri(nodes: Sequence[JournalNode], journal: str) -> str:
    """How Hadoop names a journal on these nodes."""
    return f"qjournal://{';'.join(f'127.0.0.1:{node.port}' for node in nodes)}/{journal}"


def measure(
    hadoop: Hadoop,
    uri: str,
    directory: Path,
    *,
    callers: int,
    warming_s: float,
    seconds: float,
    on_mark: Callable[[str], None] = lambda name: None,
) -> Answer:
    """One measurement in a new process, of a new journal; what JournalBench prints. Raises Failed.

    on_mark: is called at once with "start", behind the warming-up, and "end".
    """
    directory.mkdir(parents=True)
    arguments = (uri, directory / "storage", callers, warming_s, seconds)
    command = hadoop.command(f"{PACKAGE}.JournalBench", *arguments, options=JVM_OPTIONS)
    return ask(command, directory / "bench.log", timeout_s=warming_s + seconds + END_TIMEOUT_S, on_mark=on_mark)


def run(hadoop: Hadoop, directory: Path, options: argparse.Namespace) -> Iterator[Answer]:
    """Every journal with every number of callers."""
    how = {"warming_s": options.warming, "seconds": options.seconds}
    if "files" in options.journals:
        for callers in options.callers:
            place = directory / f"files-{callers}"
            yield measure(hadoop, (place / "edits").as_uri(), place, callers=callers, **how)
    if "quorum" in options.journals:
        with journal_nodes(hadoop, directory) as nodes:
            for callers in options.callers:
                uri = quorum_uri(nodes, f"bench-{callers}")
                yield measure(hadoop, uri, directory / f"quorum-{callers}", callers=callers, **how)


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: something genuine is missing or failed."""
    parser = argparse.ArgumentParser(prog="journals.genuine", description=__doc__.partition("\n")[0])
    parser.add_argument("journals", nargs="*", default=JOURNALS, metavar="files|quorum")
    parser.add_argument("--callers", default=(1, 16, 128), type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--seconds", default=5.0, type=float)
    parser.add_argument("--warming", default=3.0, type=float)
    options = parser.parse_args(arguments)
    if unknown := set(options.journals) - set(JOURNALS):
        parser.error(f"no journal is called {', '.join(sorted(unknown))}")
    try:
        with tempfile.TemporaryDirectory(prefix="journals-") as directory:
            for answer in run(find_hadoop(), Path(directory), options):
                print(json.dumps(answer.told), flush=True)
    except (Failed, pytest.skip.Exception) as error:
        print(f"journals.genuine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
