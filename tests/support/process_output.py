"""Waiting for what a process writes into a file, without sleeping.

The pause between two looks is a wait for the process's end, so a process that ends early is noticed at once.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

LOOK_INTERVAL_S = 0.05
LOG_LINES = 40


def await_output(
    process: subprocess.Popen[bytes], path: Path, pattern: re.Pattern[bytes], *, timeout_s: float, start: int = 0
) -> str | None:
    """Return None once the file holds the pattern at or behind offset `start`, else why that will not happen."""
    deadline = time.monotonic() + timeout_s
    while not pattern.search(path.read_bytes()[start:]):
        try:
            code = process.wait(LOOK_INTERVAL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return f"not within {timeout_s:g} s"
        else:
            return f"it ended with code {code}"
    return None


def tail(path: Path) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:])
