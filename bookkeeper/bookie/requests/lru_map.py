"""A dictionary that forgets: at most `count_max` keys, the longest unused half goes first. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentMap(Generic[K, V]):
    """Two generations instead of a list of uses: a look-up is one or two dictionary accesses.

    When the young generation holds half of `count_max`, the old one is dropped and the young one becomes old. A key
    used since the last such change is therefore always kept. For caches only: whoever misses must be able to do
    without.
    """

    __slots__ = ("_half", "_old", "_young")

    def __init__(self, count_max: int) -> None:
        if count_max < 2:
            raise ValueError(f"a RecentMap of {count_max} keys: needs at least 2")
        self._half = count_max // 2
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value, or None when it is forgotten or was never there."""
        value = self._young.get(key)
        if value is not None:
            return value
        value = self._old.get(key)
        if value is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value` (not None) under `key`."""
        if key not in self._young and len(self._young) >= self._half:
            self._old = self._young
            self._young = {}
        self._young[key] = value

    def discard(self, key: K) -> None:
        """Forget `key` if it is there."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def __len__(self) -> int:
        """Upper bound of the keys held: one in both generations counts twice."""
        return len(self._young) + len(self._old)
