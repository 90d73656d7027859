"""The genuine client in one Java process, for as many commands as a run has. See tests/interop/java/LedgerTool.java."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bookkeeper.embedded.process import dying_with_parent
from tests.support.apache.fetched import Apache
from tests.support.process_output import tail

ANSWER_TIMEOUT_S = 60
LINE_BYTES_MAX = 1 << 16


class ApacheError(Exception):
    """The genuine client failed; `code` is BKException's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code


class ApacheClient:
    """One Java process of one release's client. A context manager."""

    def __init__(self, apache: Apache, log_path: Path) -> None:
        """Start it. log_path: where its standard error goes."""
        self.release = apache.release
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(apache.command("LedgerTool", classes=apache.tool_classes())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._rest = b""

    def run(self, *words: object) -> list[str]:
        """Give one command; the lines of its answer. Raises ApacheError; fails the test when no answer comes."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while True:
            line = self._line(words)
            if line == "= ok":
                return lines
            if line.startswith("= "):
                code, _, message = line[2:].partition(" ")
                raise ApacheError(int(code), message)
            lines.append(line)

    def spawn(self, *words: object) -> str:
        """Give a command that runs beside those that follow; its number, for `wait`."""
        (number,) = self.run("spawn", *words)
        return number

    def wait(self, number: str) -> list[str]:
        """Wait for a spawned command; its answer, as of `run`."""
        return self.run("wait", number)

    def _line(self, words: tuple[object, ...]) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._process.stdout.fileno(), LINE_BYTES_MAX) if readable else b""
            if not data:
                why = "ended" if readable else f"gave no answer within {ANSWER_TIMEOUT_S} s"
                pytest.fail(f"Apache's client {why} on {words}; its log:\n{tail(self._log_path)}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
