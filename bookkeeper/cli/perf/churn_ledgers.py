"""Which ledgers a churning load has written, what must be in them, and which of them go. Pure.

    writing -> closed -> going (its deletion was asked for) -> forgotten

Invariants:
    entry `e` of ledger `l` has one payload only, `Payloads.of(l, e)`: a reader compares without having kept it;
    a ledger that is going is not read any more, so every other read that fails is an error;
    what is kept here is bounded by the ledgers that are there, not by those that ever were.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from bookkeeper.model import DigestType
from bookkeeper.wire.digest import digest_of

RECORD_LENGTH_SIZE = 4
"""Before each entry in an entry log."""

_POOL_SIZE = 1 << 20
_LEDGER_STEP, _ENTRY_STEP = 7919, 104_729  # primes: neighbours have other payloads


def stored_size(entries: int, entry_size: int, digest: str) -> int:
    """What one copy of so many entries takes in entry logs, and nothing else. digest: a DigestType's name."""
    return entries * (RECORD_LENGTH_SIZE + digest_of(DigestType[digest], b"").overhead + entry_size)


class Payloads:
    """What every entry holds: slices of one pool of random bytes, chosen by ledger and entry."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = random.Random(20).randbytes(_POOL_SIZE + size)

    def of(self, ledger_id: int, entry_id: int) -> bytes:
        """The payload of an entry."""
        start = (ledger_id * _LEDGER_STEP + entry_id * _ENTRY_STEP) % _POOL_SIZE
        return self._pool[start : start + self.size]


@dataclass(slots=True)
class ChurnLedger:
    """One ledger. entries_max: when it is full. failed: it takes no more adds.

    0 <= acknowledged <= appended <= entries_max
    """

    ledger_id: int
    entries_max: int
    appended: int = 0
    acknowledged: int = 0
    closed: bool = False
    failed: bool = False
    going: bool = False


class LedgerBook:
    """Every ledger that is there, in the order of creation."""

    def __init__(self) -> None:
        self._ledgers: dict[int, ChurnLedger] = {}
        self.deleted_count = self.deleted_entries = 0

    def __len__(self) -> int:
        return len(self._ledgers)

    def add(self, ledger: ChurnLedger) -> None:
        """One that was created."""
        self._ledgers[ledger.ledger_id] = ledger

    def staying(self) -> list[ChurnLedger]:
        """Those that must be readable."""
        return [ledger for ledger in self._ledgers.values() if not ledger.going]

    def closed(self) -> list[ChurnLedger]:
        """Those of them that are complete, the oldest first."""
        return [ledger for ledger in self._ledgers.values() if ledger.closed and not ledger.going]

    @property
    def live_entries(self) -> int:
        """Acknowledged entries of ledgers that stay."""
        return sum(ledger.acknowledged for ledger in self._ledgers.values() if not ledger.going)

    def gone(self, ledger: ChurnLedger) -> None:
        """It was deleted."""
        del self._ledgers[ledger.ledger_id]
        self.deleted_count += 1
        self.deleted_entries += ledger.acknowledged


def draw_entries_max(rng: random.Random, smallest: int, largest: int) -> int:
    """The size of the next ledger, in entries: every order of magnitude is as likely as the next."""
    return max(1, round(math.exp(rng.uniform(math.log(smallest), math.log(largest)))))


def to_delete(closed: Sequence[ChurnLedger], share: float, rng: random.Random) -> list[ChurnLedger]:
    """A share of the entries of `closed` (oldest first), so that both ways to give back space have work.

    Half of it is the oldest ledgers without exception: entry logs of that time hold nothing any more. The other half
    is drawn from the rest: there, entry logs keep a part of what they held, and need compaction.
    """
    total = sum(ledger.acknowledged for ledger in closed)
    chosen: list[ChurnLedger] = []
    taken = 0
    for ledger in closed:
        if taken >= total * share / 2:
            break
        chosen.append(ledger)
        taken += ledger.acknowledged
    rest = list(closed[len(chosen) :])
    rng.shuffle(rest)
    for ledger in rest:
        if taken >= total * share:
            break
        chosen.append(ledger)
        taken += ledger.acknowledged
    return chosen


def to_replace(closed: Sequence[ChurnLedger], entries_kept: int, rng: random.Random) -> ChurnLedger | None:
    """The next to go where at most `entries_kept` are to stay: mostly the oldest, sometimes any. None: all may stay."""
    if not closed or sum(ledger.acknowledged for ledger in closed) <= entries_kept:
        return None
    return closed[0] if rng.random() < 0.75 else rng.choice(closed)
