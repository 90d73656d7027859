"""Adds that a bookie refused for now, because it has too much to do: offered to it again, later and later.

    refused --------> waits here --delay--> sent again --> stored: acknowledged as ever
                          ^                     |
                          '------- refused -----'

TOO_MANY_REQUESTS says that the entry was not stored and that nothing is wrong with the bookie. To replace it, as
Apache's client does, moves the load to bookies that are about to refuse too, until none is left and the ledger ends.
The entry's own timeout goes on meanwhile: a bookie that refuses for that long is replaced like one that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bookkeeper.model import BookieId

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

DELAY_MIN_S = 0.02
DELAY_MAX_S = 1.0


class RefusedAdds:
    """Of one write handle. Thread: reactor. Bound: the handle's window.

    offer: called with what to send again, for a bookie that may not be a member any more.
    """

    __slots__ = ("_clock", "_delay_s", "_offer", "_timer", "_until_s", "_waiting")

    def __init__(self, clock: Clock, offer: Callable[[BookieId, list[int]], None]) -> None:
        self._clock, self._offer = clock, offer
        self._waiting: dict[BookieId, list[int]] = {}
        self._delay_s = DELAY_MIN_S
        self._until_s = 0.0  # a refusal before this belongs to the same bad time
        self._timer: Timer | None = None

    def add(self, bookie_id: BookieId, entry_id: int) -> None:
        """Offer this entry again after a while."""
        self._waiting.setdefault(bookie_id, []).append(entry_id)
        if self._timer is None:
            now = self._clock.seconds()
            self._delay_s = min(self._delay_s * 2, DELAY_MAX_S) if now < self._until_s else DELAY_MIN_S
            self._until_s = now + self._delay_s + 2 * DELAY_MAX_S
            self._timer = self._clock.callLater(self._delay_s, self._go)

    def holds(self, bookie_id: BookieId) -> bool:
        """Something waits to be offered to this bookie."""
        return bookie_id in self._waiting

    def clear(self) -> None:
        """Nothing is offered any more."""
        self._waiting.clear()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _go(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for bookie_id, entry_ids in waiting.items():
            self._offer(bookie_id, entry_ids)
