"""Which bookies are too old for an operation, as they told themselves. Thread: reactor."""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.model import BookieId


class BookiesWithout:
    """Bookies that do not know one operation: not asked for it again until they register anew, as a newer one may.

    Bounded by the number of bookies the cluster ever had.
    """

    def __init__(self, epoch: Callable[[BookieId], int | None]) -> None:
        self._epoch = epoch
        self._epochs: dict[BookieId, int | None] = {}  # of the registration under which it did not know

    def add(self, bookie_id: BookieId) -> None:
        """It refused the operation as unknown, or closed the connection on it."""
        self._epochs[bookie_id] = self._epoch(bookie_id)

    def __len__(self) -> int:
        return len(self._epochs)

    def __contains__(self, bookie_id: BookieId) -> bool:
        if bookie_id not in self._epochs:
            return False
        if self._epochs[bookie_id] == self._epoch(bookie_id):
            return True
        del self._epochs[bookie_id]
        return False
