"""May a bookie be tried now? What its last connections told: back-off, and whether it speaks our protocol version.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bookkeeper.errors import AuthenticationRefused, BookieUnavailable, TlsFailed, UnsupportedVersion

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

REFUSAL_S = 60.0
"""How long a connection that ended without any answer is taken for "this protocol version is not spoken here".

Each further refusal doubles it, up to REFUSAL_MAX_S, so that an old bookie is not asked every minute for years."""

REFUSAL_MAX_S = 3600.0


class Reachability:
    """One bookie in one protocol version; a new registration (`epoch`) clears everything.

    delay_min_s..delay_max_s: how long it is left alone after a failure, doubled each time.
    """

    def __init__(
        self, epoch: Callable[[], int | None], clock: Clock, *, delay_min_s: float, delay_max_s: float
    ) -> None:
        self._epoch, self._clock = epoch, clock
        self._delay_min_s, self._delay_max_s = delay_min_s, delay_max_s
        self._retry_at = 0.0
        self._retry_delay_s = delay_min_s
        self._failure: BookieUnavailable | None = None
        self._failure_epoch: int | None = None
        self._answered = False  # ever, in this version
        self._refused = False  # connected, asked, and closed on without one answer
        self._refused_until = 0.0
        self._refusal_s = REFUSAL_S

    @property
    def failure(self) -> BookieUnavailable | None:
        """Why it is not to be tried now; None when it may be."""
        waiting = self._failure is not None and self._clock.seconds() < self._retry_at
        return self._failure if waiting and self._epoch() == self._failure_epoch else None

    @property
    def answered(self) -> bool:
        """Whether the bookie ever answered in this version."""
        return self._answered

    @property
    def refused(self) -> bool:
        """It seems not to speak this protocol version; so for REFUSAL_S, or until it registers anew."""
        return self._refused and self._clock.seconds() < self._refused_until and self._epoch() == self._failure_epoch

    def on_answer(self) -> None:
        """It said something."""
        self._answered = True
        self._refused = False
        self._failure = None
        self._retry_delay_s = self._delay_min_s
        self._refusal_s = REFUSAL_S

    def on_unreachable(self, error: BookieUnavailable) -> None:
        """It could not be connected to, or a connection ended."""
        if isinstance(error, TlsFailed | AuthenticationRefused | UnsupportedVersion):
            # It answers, but what it wants will not change by asking again and again.
            self._refused = isinstance(error, UnsupportedVersion)
            self._retry_delay_s = self._delay_max_s
        self._failure = error
        self._failure_epoch = self._epoch()
        self._retry_at = self._clock.seconds() + self._retry_delay_s
        self._retry_delay_s = min(self._delay_max_s, self._retry_delay_s * 2)

    def on_connection_ended(self) -> None:
        """An open connection ended. `on_unreachable` follows unless the bookie ended an idle connection."""
        self._refused = not self._answered
        if self._epoch() != self._failure_epoch:
            self._refusal_s = REFUSAL_S
        if self._refused:
            self._refused_until = self._clock.seconds() + self._refusal_s
            self._refusal_s = min(REFUSAL_MAX_S, self._refusal_s * 2)
