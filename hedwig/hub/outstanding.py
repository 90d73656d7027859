"""Outstanding messages of all subscriptions with individual acknowledgement of a hub.

A subscription that would exceed the sum gets no new messages while it has `OUTSTANDING_ALWAYS`: it continues when some
of these are acknowledged, and never waits for another subscription. Subscriptions without a connection let go first:
what is stored of them is enough to continue. Thread: reactor.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

OUTSTANDING_HUB_MAX = 400_000
"""Of all subscriptions together: 100 MiB, at 250 bytes for each message."""

OUTSTANDING_ALWAYS = 100
"""Of one subscription, whatever the others have: 25 KiB."""


class Idle(Protocol):
    """A subscription that no connection has."""

    def let_go(self) -> None:
        """Drop the outstanding messages, unless some change of their state is not stored."""


class OutstandingBudget:
    """See the module. count: outstanding messages, and ranges of acknowledged ones between these."""

    __slots__ = ("_idle", "count", "count_max")

    def __init__(self, count_max: int = OUTSTANDING_HUB_MAX) -> None:
        self.count, self.count_max = 0, count_max
        self._idle: OrderedDict[Idle, None] = OrderedDict()

    def on_idle(self, subscription: Idle) -> None:
        """No connection has it any more."""
        self._idle[subscription] = None

    def on_used(self, subscription: Idle) -> None:
        """A connection has it, or it ended. Harmless when repeated."""
        self._idle.pop(subscription, None)

    def is_full(self) -> bool:
        """Return whether there are too many even after subscriptions without a connection let go."""
        if self.count >= self.count_max:
            for each in list(self._idle):
                each.let_go()
                if self.count < self.count_max:
                    break
        return self.count >= self.count_max
