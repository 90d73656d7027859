"""A bound on the outstanding messages of all subscriptions of a hub with individual acknowledgement.

    outstanding of the hub         a subscription gets new messages while it has
    below OUTSTANDING_HUB_MAX / 2  fewer than its own maximum
    below OUTSTANDING_HUB_MAX      fewer than OUTSTANDING_USUAL
    above                          fewer than OUTSTANDING_ALWAYS

A subscription continues when it has acknowledged some, and never waits for another subscription. At half of the bound,
subscriptions without a connection release their memory: they can continue from their stored state. Thread: reactor.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

OUTSTANDING_HUB_MAX = 800_000
"""Messages of all subscriptions together: 200 MiB, at 250 bytes for each message."""

OUTSTANDING_USUAL = 1000
"""Messages of one subscription: the default bound of one connection, so clients acknowledge smaller batches."""

OUTSTANDING_ALWAYS = 100
"""Messages that one subscription may have even above the bound: 25 KiB."""

ASKED_AT_ONCE = 16
"""Subscriptions without a connection that are asked to release their memory between two deliveries."""


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
        """Note that a subscription with outstanding messages has lost its last connection."""
        self._idle[subscription] = None

    def on_used(self, subscription: Idle) -> None:
        """Note that a subscription has a connection, or ended. May be called repeatedly."""
        self._idle.pop(subscription, None)

    def new_max(self) -> int | None:
        """Return the number of outstanding messages at which a subscription gets no new ones; None: its own maximum."""
        if 2 * self.count >= self.count_max:
            for _ in range(min(len(self._idle), ASKED_AT_ONCE)):
                subscription = next(iter(self._idle))
                self._idle.move_to_end(subscription)  # it may refuse
                subscription.let_go()
                if 2 * self.count < self.count_max:
                    break
        if 2 * self.count < self.count_max:
            return None
        return OUTSTANDING_USUAL if self.count < self.count_max else OUTSTANDING_ALWAYS
