"""What the garbage collector did, does and will do next: for operators. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from bookkeeper.bookie.gc.candidates import LogUsage
from bookkeeper.metadata.bad_records import BadRecords

QUARANTINED_MAX = 1000
"""Logs that are named; beyond it they are only counted."""


class GarbageStage(enum.Enum):
    """What is under way."""

    IDLE = "waits for the next round"
    CHECKING = "asks the metadata store which ledgers are gone"
    DELETING = "deletes ledgers that are proven to be gone"
    SWEEPING = "looks which entry logs hold nothing any more"
    COMPACTING = "rewrites entry logs"
    OVERREPLICATED = "looks for copies that belong to other bookies"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class KnownLog:
    """One entry log. size: bytes of its file. usage: at the last sweep; None where it was not looked at as it is now.

    is_written: it is the log that is written to. left_alone: why, "" for one that is not.
    """

    log_id: int
    size: int
    usage: LogUsage | None
    is_written: bool
    left_alone: str


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class GarbageStatus:
    """Counts since the start; times in seconds since 1970, 0 for "never".

    swept_s: when it was last looked what is in the entry logs. ledgers_local: at the last round. suspects: missing from
    the last listing, not yet proven to be deleted. bad_records: znodes that the listing skipped.
    bytes_removed, bytes_compacted: given back to the disk, by removing and by rewriting logs.
    live_bytes, total_bytes: of closed entry logs; active_...: of the one being written. From a round's sweep on they
    follow what the round does, and what is written after it is not in them. worth_bytes: the dead ones of those that a
    forced round would give back.
    interrupted: "minor" or "major": a compaction that was suspended on the way and begins anew when it is resumed; ""
    none. on_change: called when the stage, or the log in hand, has changed.
    finding: how the metadata store went back in time, for which nothing is collected; "" if it did not. kept_count:
    ledgers that the store lacks and that are kept until an operator discards them.
    quarantined: logs that are left alone, by path, and why. last_error: of the last round; "" when it went well.
    """

    stage: GarbageStage = GarbageStage.IDLE
    rounds: int = 0
    last_round_s: float = 0.0
    last_round_took_s: float = 0.0
    swept_s: float = 0.0
    next_round_s: float = 0.0
    last_error: str = ""
    last_error_s: float = 0.0
    alarms: int = 0
    ledgers_local: int = 0
    suspects: int = 0
    bad_records: BadRecords = field(default_factory=BadRecords)
    ledgers_deleted: int = 0
    ledgers_moved: int = 0
    logs_removed: int = 0
    logs_compacted: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    bytes_removed: int = 0
    bytes_compacted: int = 0
    live_bytes: int = 0
    total_bytes: int = 0
    active_live_bytes: int = 0
    active_total_bytes: int = 0
    worth_bytes: int = 0
    minor_compactions: int = 0
    major_compactions: int = 0
    last_minor_s: float = 0.0
    last_major_s: float = 0.0
    last_overreplicated_s: float = 0.0
    compacting: str = ""
    minor_suspended: bool = False
    major_suspended: bool = False
    forced: bool = False
    interrupted: str = ""
    finding: str = ""
    kept_count: int = 0
    quarantined: dict[str, str] = field(default_factory=dict)
    on_change: Callable[[], object] = _nothing

    def enter(self, stage: GarbageStage, log_in_hand: str = "") -> None:
        """What is under way from now on. log_in_hand: that is being rewritten."""
        if (stage, log_in_hand) != (self.stage, self.compacting):
            self.stage, self.compacting = stage, log_in_hand
            self.on_change()

    def quarantine(self, path: str, reason: str) -> bool:
        """Note a log that is left alone; False when that was known."""
        known = self.quarantined.get(path) == reason
        if path in self.quarantined or len(self.quarantined) < QUARANTINED_MAX:
            self.quarantined[path] = reason
        return not known

    def note_error(self, error: BaseException, wall_s: float) -> None:
        """What went wrong in the round under way."""
        self.last_error = str(error) or type(error).__name__
        self.last_error_s = wall_s
