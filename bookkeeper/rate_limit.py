"""How long to wait so that amounts do not exceed a rate. Pure."""

from __future__ import annotations

BURST_S = 0.5
"""How much of a rate may be used at once after a time of rest."""


class Pace:
    """Amounts per second, over any time longer than BURST_S. rate: 0 for no limit."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._paid_until = float("-inf")  # when all that was taken so far is within the rate

    def delay_s(self, amount: float, now: float) -> float:
        """Take `amount` and return how long to wait before using it."""
        if self.rate <= 0:
            return 0.0
        start = max(self._paid_until, now - BURST_S)
        self._paid_until = start + amount / self.rate
        return max(0.0, self._paid_until - now)
