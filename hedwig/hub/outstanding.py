"""A bound on the outstanding messages of all subscriptions of a hub with individual acknowledgement.

At the bound, a subscription with `OUTSTANDING_ALWAYS` outstanding messages or more gets no new messages. It continues
when it has acknowledged some, and never waits for another subscription. Subscriptions without a connection release
their memory first: they can continue from their stored state. Thread: reactor.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

OUTSTANDING_HUB_MAX = 400_000
"""Messages of all subscriptions together: 100 MiB, at 250 bytes for each message."""

OUTSTANDING_ALWAYS = 100
"""Messages that one subscription may have even at the bound: 25 KiB."""


class Idle(Protocol):
    """A subscription without a connection."""

    def let_go(self) -> None:
        """Drop the outstanding messages, unless a change of their state is not stored yet."""


class OutstandingBudget:
    """The bound of one hub. count: outstanding messages, and ranges of acknowledged messages between them."""

    __slots__ = ("_idle", "count", "count_max")

    def __init__(self, count_max: int = OUTSTANDING_HUB_MAX) -> None:
        self.count, self.count_max = 0, count_max
        self._idle: OrderedDict[Idle, None] = OrderedDict()

    def on_idle(self, subscription: Idle) -> None:
        """Note that a subscription has lost its last connection."""
        self._idle[subscription] = None

    def on_used(self, subscription: Idle) -> None:
        """Note that a subscription has a connection, or ended. May be called repeatedly."""
        self._idle.pop(subscription, None)

    def is_full(self) -> bool:
        """Return whether the bound is reached, after subscriptions without a connection have released their memory."""
        if self.count >= self.count_max:
            for each in list(self._idle):
                each.let_go()
                if self.count < self.count_max:
                    break
        return self.count >= self.count_max
