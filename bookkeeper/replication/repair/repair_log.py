"""When the log is told of repairs that went well: one line for many ledgers. Pure.

    a ledger is repaired --> due QUIET_S after the latest one, and TOLD_EVERY_S after the first that is not told
                                 --> one line: how many ledgers, in which time, how many copies

So a wave of thousands is a line every TOLD_EVERY_S and one at its end, and a single ledger is a line of its own. What
fails is told at once elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.model import LedgerId

TOLD_EVERY_S = 10.0
QUIET_S = 2.0


@dataclass(frozen=True, slots=True)
class Repairs:
    """What is to be told. seconds: from the begin of the first repair to the end of the last. entries, bytes: copied
    since the line before, for other ledgers too."""

    ledgers: int
    first: LedgerId
    seconds: float
    entries: int
    bytes: int

    def __str__(self) -> str:
        which = f"Ledger {self.first} was" if self.ledgers == 1 else f"{self.ledgers} ledgers were"
        besides = "" if self.ledgers == 1 else f", ledger {self.first} first"
        copied = f"{self.entries} entries, {self.bytes} bytes copied"
        return f"{which} repaired within {self.seconds:.1f} s{besides}: {copied}"


class RepairsTold:
    """Counts until it is time to tell. due_s: when that is, by the clock of the events; None: there is nothing."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        self._count = 0
        self._first = LedgerId(0)
        self._began_s = self._until_s = self._last_s = 0.0
        self._copied = (0, 0)  # when the last line was told

    def on_repaired(self, ledger_id: LedgerId, began_s: float, now_s: float) -> None:
        """A repair that began then has ended well."""
        if self.due_s is None:
            self._count, self._first, self._began_s = 0, ledger_id, began_s
            self._until_s = now_s + TOLD_EVERY_S
        self._count += 1
        self._began_s = min(self._began_s, began_s)
        self._last_s = now_s
        self.due_s = min(self._until_s, now_s + QUIET_S)

    def take(self, entries: int, size: int) -> Repairs | None:
        """What is to be told, if there is anything. entries, size: copied so far, in all."""
        if self.due_s is None:
            return None
        self.due_s = None
        before, self._copied = self._copied, (entries, size)
        seconds = self._last_s - self._began_s
        return Repairs(self._count, self._first, seconds, entries - before[0], size - before[1])
