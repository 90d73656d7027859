"""The two clients, each in a process that lives through the whole run and carries out one command after the other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.embedded.process import dying_with_parent
from tests.benchmarks.apache.processes import Genuine

ANSWER_TIMEOUT_S = 90.0
"""Beyond the time a measurement takes."""


class DriverFailed(Exception):
    """A command failed. `usable`: the process can carry out the next one."""

    def __init__(self, message: str, *, usable: bool) -> None:
        super().__init__(message)
        self.usable = usable


def driver_command(kind: str, genuine: Genuine) -> list[str]:
    """The command line of a driver: "ours" or "apache"."""
    if kind == "ours":
        return [sys.executable, "-m", "tests.benchmarks.apache.our_driver"]
    return genuine.command("BenchDriver")


class Driver:
    """One process. Commands: see java/BenchDriver.java."""

    def __init__(self, kind: str, genuine: Genuine, log_path: Path) -> None:
        self.kind, self._log_path = kind, log_path
        self._rest = b""
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(driver_command(kind, genuine)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches the one that measures
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, *words: object, seconds: float = 0.0, on_mark: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Give a command; its answer. `on_mark` is called at once with "start" and "end". Raises DriverFailed."""
        deadline = time.monotonic() + seconds + ANSWER_TIMEOUT_S
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise DriverFailed(f"the {self.kind} driver has ended; see {self._log_path}", usable=False) from error
        while True:
            answer = self._answer(words, deadline)
            if "mark" in answer:
                if on_mark is not None:
                    on_mark(answer["mark"])
            elif "error" in answer:
                raise DriverFailed(f"{words[0]}: {answer['error']}", usable=True)
            else:
                return answer

    def _answer(self, words: tuple[object, ...], deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self._process.stdout], [], [], left)
            data = os.read(self._process.stdout.fileno(), 1 << 16) if readable else b""
            if not data:
                why = "has ended" if readable else "gave no answer in time"
                raise DriverFailed(f"the {self.kind} driver {why} at {words[0]}; see {self._log_path}", usable=False)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a command it never took
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
