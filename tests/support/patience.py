"""Waiting for a fact, whatever pauses a process or the machine makes.

Each look asks another process or runs a query, which paces the looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 90.0
"""Only against hangs: below the time that a test has."""


def until(fact: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Return once the fact holds. what: what it is, for the error."""
    deadline_s = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
