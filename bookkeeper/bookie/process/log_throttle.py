"""Events of one kind that come by the dozen, for a log that tells each kind seldom, with a count. Pure."""

from __future__ import annotations

from collections.abc import Hashable

KEYS_MAX = 1000
"""Kinds that are remembered; beyond it the one told longest ago is forgotten, and told anew when it comes again."""


class Seldom:
    """When to tell events, and of how many. interval_s: between two lines of one kind."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._told: dict[Hashable, tuple[float, int]] = {}  # kind -> when it was told, and how many came since

    def __len__(self) -> int:
        return len(self._told)

    def count(self, kind: Hashable, now_s: float, amount: int = 1) -> int:
        """So many more came; how many to tell of now: all that were not told of, or 0 to tell nothing."""
        at_s, waiting = self._told.get(kind, (None, 0))
        if at_s is not None and now_s - at_s < self._interval_s:
            self._told[kind] = at_s, waiting + amount
            return 0
        self._told.pop(kind, None)  # the order is that of the telling
        self._told[kind] = now_s, 0
        if len(self._told) > KEYS_MAX:
            del self._told[next(iter(self._told))]
        return waiting + amount
