"""The genuine admin programs: `bookkeeper shell` for as many commands as a test has, and the auto-recovery daemon.

Both are Java processes on the jars of `tests.support.apache`. Neither reads a directory of a bookie: they see
the cluster through ZooKeeper and the bookies' ports only.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest

from bookkeeper.embedded.process import dying_with_parent, free_port
from tests.support.apache import Apache
from tests.support.zookeeper_sessions import end_dead_session

ANSWER_TIMEOUT_S = 100
LOOK_INTERVAL_S = 0.05

_SOURCES = Path(__file__).parent.parent / "interop" / "java" / "admin"
_OUTCOME = re.compile(rb"^= (.*)\n", re.MULTILINE)


class ShellFailed(Exception):
    """A command of the genuine shell ended with an exit code other than 0, or threw; `lines` is what it printed."""

    def __init__(self, words: tuple[object, ...], outcome: str, lines: list[str]) -> None:
        super().__init__(f"{words}: {outcome}; printed {lines}")
        self.outcome, self.lines = outcome, lines


class _JavaProcess:
    """A program on the genuine jars, its output in a file."""

    def __init__(self, command: list[str], directory: Path, name: str, *, stdin: int) -> None:
        self.log_path = directory / f"{name}.log"
        self.output_path = directory / f"{name}.out"
        with self.log_path.open("ab") as log, self.output_path.open("ab") as output:
            self.process = subprocess.Popen(
                dying_with_parent(command), stdin=stdin, stdout=output, stderr=log, cwd=directory
            )

    def await_condition(self, condition: Callable[[], bool], what: str, *, timeout_s: float) -> None:
        """Return once `condition` holds; fails the test when it does not in time, or when the process ends."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            try:
                code = self.process.wait(LOOK_INTERVAL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    self.fail(f"{what}: not within {timeout_s:g} s")
            else:
                self.fail(f"{what}: the program ended with code {code}")

    def fail(self, why: str) -> None:
        """Fail the test with the end of what the program said."""
        said = self.log_path.read_text(errors="replace") + self.output_path.read_text(errors="replace")
        pytest.fail("\n".join([why, *said.splitlines()[-60:]]))

    def close(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Commands(_JavaProcess):
    """A program that answers each line with any number of lines and `= OUTCOME`."""

    def __init__(self, apache: Apache, directory: Path, source: str, name: str, *arguments: object) -> None:
        # A single-file program: `java` compiles it as it starts, so that nothing is kept between runs.
        answers = f"-Dlog4j2.configurationFile={_SOURCES / 'log4j2.xml'}"
        command = apache.command(str(_SOURCES / source), *arguments, options=[answers])
        super().__init__(command, directory, name, stdin=subprocess.PIPE)
        self._read = 0

    def ask(self, line: str) -> tuple[list[str], str]:
        """Give one line; the lines of its answer, and the outcome."""
        stdin: IO[bytes] | None = self.process.stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()
        self.await_condition(lambda: self._outcome() is not None, line, timeout_s=ANSWER_TIMEOUT_S)
        match = self._outcome()
        assert match is not None
        answer = match.string[: match.start()].decode()
        self._read += match.end()
        return [text.rstrip() for text in answer.splitlines()], match[1].decode()

    def _outcome(self) -> re.Match[bytes] | None:
        with self.output_path.open("rb") as output:
            output.seek(self._read)
            return _OUTCOME.search(output.read())


class ApacheShell(_Commands):
    """Commands of the genuine shell in one Java process. See AdminShell.java."""

    def __init__(self, apache: Apache, directory: Path, uri: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(apache, directory, "AdminShell.java", "apache-shell")
        self._directory, self._uri, self._settings = directory, uri, dict(settings or {})

    def run(self, *words: object, bookie_port: int | None = None) -> list[str]:
        """Give one command; the lines it prints. Raises ShellFailed.

        bookie_port: for commands that speak to "the bookie of this machine", the port it has.
        """
        conf = _conf(self._directory / "apache-shell.conf", self._uri, bookie_port, self._settings)
        lines, outcome = self.ask("\t".join([str(conf), *map(str, words)]))
        if outcome != "0":
            raise ShellFailed(words, outcome, lines)
        return lines


class ApacheHttp(_Commands):
    """The genuine services behind the HTTP paths, of a process without a bookie. See AdminHttp.java."""

    def __init__(self, apache: Apache, directory: Path, uri: str) -> None:
        conf = _conf(directory / "apache-http.conf", uri, None, {})
        super().__init__(apache, directory, "AdminHttp.java", "apache-http", conf)

    def answer(self, api: str, method: str = "GET", body: str = "", **parameters: object) -> tuple[int, str]:
        """Status and body of one request; api: the name of an ApiType."""
        words = [api, method, body, *(f"{name}={value}" for name, value in parameters.items())]
        lines, outcome = self.ask("\t".join(words))
        assert outcome.isdigit(), (words, outcome, lines)
        return int(outcome), "\n".join(lines)


class ApacheAutoRecovery(_JavaProcess):
    """The genuine auditor and replication worker (AutoRecoveryMain), set to look often and to wait for little.

    It has a bookie id, `bookie_id`, although no bookie listens on that port. `close` kills the process and ends its
    session.
    """

    def __init__(
        self, apache: Apache, directory: Path, uri: str, name: str, settings: Mapping[str, str] | None = None
    ) -> None:
        often = {
            "auditorPeriodicBookieCheckInterval": "2",
            "auditorPeriodicCheckInterval": "0",
            "lostBookieRecoveryDelay": "0",
            "openLedgerRereplicationGracePeriod": "500",
            "rwRereplicateBackoffMs": "200",
            "lockReleaseOfFailedLedgerGracePeriod": "2000",
            **(settings or {}),
        }
        port = free_port()
        self.bookie_id, self._uri = f"127.0.0.1:{port}", uri
        conf = _conf(directory / f"{name}.conf", uri, port, often)
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        super().__init__(apache.command(main, "--conf", conf), directory, name, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """Kill it and end its session."""
        super().close()
        end_dead_session(self._uri, self.bookie_id)


def attributes(name: str, lines: list[str]) -> list[str]:
    """The values of an attribute in what the shell printed, one for every line that has it."""
    return [match[1] for line in lines for match in [re.search(rf"[{{ ]{name}=(.*?)[,}}]", line)] if match]


def _conf(path: Path, uri: str, bookie_port: int | None, settings: Mapping[str, str]) -> Path:
    pairs = {
        "metadataServiceUri": uri,
        "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1",
        "zkTimeout": "20000",  # a program that pauses for longer loses its session, and exits
        "addEntryTimeoutSec": "60",  # a bookie that pauses is not dead
        "readEntryTimeoutSec": "60",
        **({"bookiePort": str(bookie_port)} if bookie_port else {}),
        **settings,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return path
