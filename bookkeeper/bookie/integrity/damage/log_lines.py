"""What is said of damaged and missing entry logs: one line per file now and then, not one per entry or read (I-67).

Where very many files are damaged, as when a disk is lost, FILES_TOLD_MAX are named within TOLD_EVERY_S, others counted.

Thread: any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from twisted.logger import Logger

from bookkeeper.bookie.integrity.damage.record import Damage
from bookkeeper.bookie.process.log_throttle import Seldom

log = Logger()

TOLD_EVERY_S = 60.0
"""Between two lines about one file."""

FILES_TOLD_MAX = 10
"""Lines of one kind within that time."""


class DamageLines:
    """now_s: any clock that only goes on."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = Lock()
        self._seldom = Seldom(TOLD_EVERY_S)
        self._lines: dict[str, _Lines] = {}  # by kind

    def damaged(self, damage: Damage) -> None:
        """A read met these bytes, as the first one."""
        if count := self._count("damaged", damage.path):
            log.error(
                "{path} at {offset}: {problem}; met while reading entry {entry_id} of ledger {ledger_id}{more}. "
                "Entries there are answered as unknown, never as absent. Which they are is looked up now and reported, "
                "and auto-recovery writes them anew from other copies; `bookkeeper why ledger {ledger_id}` says who "
                "has some",
                path=damage.path, offset=damage.offset, problem=damage.reason, entry_id=damage.first_entry_id,
                ledger_id=damage.ledger_id,
                more=f", and {count - 1} more places since the last such line" if count > 1 else "",
            )  # fmt: skip

    def missing(self, path: str, ledger_id: int, entry_id: int) -> None:
        """An entry was to be read in a log that is not there."""
        if count := self._count("missing", path):
            log.error(
                "{path} is missing; the index has entry {entry_id} of ledger {ledger_id} there{more}. Entries that "
                "were there are answered as unknown, never as absent. Which they are is looked up now and reported, "
                "and auto-recovery writes them anew from other copies; `bookkeeper why ledger {ledger_id}` says who "
                "has some. Where the file was moved away: stop the bookie, bring it back, start it",
                path=path, entry_id=entry_id, ledger_id=ledger_id,
                more=f" ({count} such reads since the last such line)" if count > 1 else "",
            )  # fmt: skip

    def unreadable(self, path: str, error: OSError) -> None:
        """The disk refused. That is no damage: it may answer the next time."""
        if count := self._count("unreadable", path):
            log.error(
                "Cannot read entry log {path}: {error}{more}. What is there is answered as unknown until the disk "
                "gives it; see the system's log. A disk that goes on refusing is to be replaced",
                path=path, error=error,
                more=f" ({count} times since the last such line)" if count > 1 else "",
            )  # fmt: skip

    def _count(self, kind: str, path: str) -> int:
        """How many to tell of; 0 to tell nothing."""
        with self._lock:
            now_s = self._now_s()
            lines = self._lines.setdefault(kind, _Lines(now_s))
            if now_s - lines.since_s >= TOLD_EVERY_S:
                if lines.not_told:
                    log.error(
                        "{count} more times in {seconds} seconds an entry log was found to be {kind}, beside those "
                        "that were named; the scrub finds them all",
                        count=lines.not_told, seconds=round(now_s - lines.since_s), kind=kind,
                    )  # fmt: skip
                lines = self._lines[kind] = _Lines(now_s)
            if lines.count >= FILES_TOLD_MAX:
                lines.not_told += 1
                return 0
            count = self._seldom.count((kind, path), now_s)
            lines.count += count > 0
            return count


@dataclass(slots=True)
class _Lines:
    """Lines of one kind since a time; not_told: what came beyond FILES_TOLD_MAX."""

    since_s: float
    count: int = 0
    not_told: int = 0
