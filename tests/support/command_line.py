"""The console programs in tests: in this process where that shows as much, else as a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bookkeeper.cli.main import main

PROGRAM = (sys.executable, "-m", "bookkeeper.cli.main")
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Piped(io.StringIO):
    """Standard input that is a pipe holding `data`, with a real descriptor."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._reader, writer = os.pipe()
        assert os.write(writer, data) == len(data)  # small enough for the pipe's buffer
        os.close(writer)

    def fileno(self) -> int:
        return self._reader

    def close(self) -> None:
        if not self.closed:
            os.close(self._reader)
        super().close()


class CommandLine:
    """Runs commands of one program, `bookkeeper` unless another one's `main` is given, in this process."""

    def __init__(
        self,
        capture: pytest.CaptureFixture[Any],
        monkeypatch: pytest.MonkeyPatch,
        main: Callable[[Sequence[str]], int] = main,
    ) -> None:
        self._capture, self._monkeypatch, self._main = capture, monkeypatch, main

    def __call__(self, *words: object, stdin: bytes = b"", code: int | None = 0) -> Outcome:
        """Run, and check the exit code unless `code` is None."""
        self._capture.readouterr()
        with Piped(stdin) as piped, self._monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", piped)
            got = self._main([str(word) for word in words])
        out, err = self._capture.readouterr()
        if code is not None:
            assert got == code, f"{words} ended with {got}:\n{err}"
        return Outcome(got, out, err)


def start(*words: object, environment: Mapping[str, str] | None = None, **pipes: Any) -> subprocess.Popen[str]:
    """Run as a process of its own."""
    return subprocess.Popen([*PROGRAM, *map(str, words)], text=True, env={**os.environ, **(environment or {})}, **pipes)
