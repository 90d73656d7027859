"""Ledgers that could not be repaired: how often, why, when to try again. Pure.

    waiting        tried again after a back-off: G/32, G/16, ... G/2, then every G (G:
    lockReleaseOfFailedLedgerGracePeriod) unrepairable   an entry has had no copy that can be read for UNREADABLE_AFTER
    tries, or every member has denied or
                   damaged it DENIED_AFTER times: told once, kept, and tried again at the same slow rate (I-79)

A repair that succeeds ends both. A bookie that comes ends all back-offs (`try_all`): copies may be readable again, or
have somebody to take them. Bound: TROUBLES_MAX ledgers; beyond it the oldest trouble is forgotten, which only
means that its ledger is tried earlier. Source: Apache 4.18 replication/ReplicationWorker.java, getReplicationBackoffMs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bookkeeper.model import LedgerId

TROUBLES_MAX = 100_000
"""Ledgers kept in mind."""

BACKOFF_STEPS = 5
"""Failures after which the back-off grows no more."""

COUNTED_ALWAYS = 2
"""Failures in a row that count however early they came."""

UNREADABLE_AFTER = 5
DENIED_AFTER = 2


class TroubleState(enum.Enum):
    """What is to be expected of the next try."""

    WAITING = "waiting"
    UNREPAIRABLE = "unrepairable"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One ledger's. failures: tries in a row; since_s, next_try_s: by the clock of who keeps it."""

    ledger_id: LedgerId
    reason: str
    state: TroubleState
    failures: int
    unreadable: int
    denied: int
    since_s: float
    next_try_s: float


def backoff_s(failures: int, longest_s: float) -> float:
    """How long to wait after so many failures (>= 1) in a row."""
    if failures > BACKOFF_STEPS:
        return longest_s
    return longest_s / 32 * float(2 ** (failures - 1))


class Troubles:
    """All ledgers in trouble. longest_s: the longest back-off."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._by_ledger: dict[LedgerId, Trouble] = {}  # the longest in trouble first
        self.unrepairable = 0  # how many of them

    def on_failure(
        self, ledger_id: LedgerId, reason: str, now: float, *, unreadable: bool = False, denied: bool = False
    ) -> Trouble:
        """A repair failed. Returns the ledger's trouble as it is now."""
        before = self._by_ledger.get(ledger_id)
        failures = 1 + (before.failures if before else 0)
        trouble = Trouble(
            ledger_id,
            reason,
            TroubleState.WAITING,
            failures,
            unreadable=1 + (before.unreadable if before else 0) if unreadable else 0,
            denied=1 + (before.denied if before else 0) if denied else 0,
            since_s=before.since_s if before else now,
            next_try_s=now + backoff_s(failures, self._longest_s),
        )
        if trouble.unreadable >= UNREADABLE_AFTER or trouble.denied >= DENIED_AFTER:
            trouble = replace(trouble, state=TroubleState.UNREPAIRABLE)
        self._count(before, trouble)
        self._by_ledger[ledger_id] = trouble
        if len(self._by_ledger) > TROUBLES_MAX:
            self.on_success(next(iter(self._by_ledger)))
        return trouble

    def on_success(self, ledger_id: LedgerId) -> Trouble | None:
        """The ledger is repaired or gone. Returns the trouble that it had."""
        before = self._by_ledger.pop(ledger_id, None)
        self._count(before, None)
        return before

    def try_all(self, now: float) -> int:
        """Every back-off is over; returns how many were not.

        A try that comes early takes the place of the one that was waited for: how often they failed grows no faster,
        but for the first COUNTED_ALWAYS.
        """
        waited = 0
        for ledger_id, trouble in self._by_ledger.items():
            if trouble.next_try_s > now:
                waited += 1
                self._by_ledger[ledger_id] = replace(
                    trouble,
                    next_try_s=now,
                    failures=max(trouble.failures - 1, min(trouble.failures, COUNTED_ALWAYS)),
                    unreadable=max(0, trouble.unreadable - 1),
                    denied=max(0, trouble.denied - 1),
                )
        return waited

    def of(self, ledger_id: LedgerId) -> Trouble | None:
        """The ledger's trouble; None if it has none."""
        return self._by_ledger.get(ledger_id)

    def may_try(self, ledger_id: LedgerId, now: float) -> bool:
        """Whether its back-off is over."""
        trouble = self._by_ledger.get(ledger_id)
        return trouble is None or trouble.next_try_s <= now

    def next_try_s(self) -> float | None:
        """When the first back-off ends; None without any."""
        return min((trouble.next_try_s for trouble in self._by_ledger.values()), default=None)

    def __iter__(self) -> Iterator[Trouble]:
        return iter(list(self._by_ledger.values()))

    def __len__(self) -> int:
        return len(self._by_ledger)

    def _count(self, before: Trouble | None, after: Trouble | None) -> None:
        self.unrepairable += _is_unrepairable(after) - _is_unrepairable(before)


def _is_unrepairable(trouble: Trouble | None) -> bool:
    return trouble is not None and trouble.state is TroubleState.UNREPAIRABLE
