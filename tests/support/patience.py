"""Waiting for a condition while processes or the machine may pause.

Each check asks another process or runs a query, which limits the rate of checks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 90.0
"""Detects hangs only. Shorter than the timeout of a test."""


def until(fact: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Return once `fact` returns true. what: the condition in words, for the error."""
    deadline_s = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
