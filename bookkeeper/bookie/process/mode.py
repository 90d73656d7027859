"""Writable or read-only: who asked for it, and what is still allowed. Pure.

A bookie is writable when nobody has a reason against it. Reasons are independent, so that a disk that got room again
does not undo what an operator ordered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from bookkeeper.model import BookieMode


class ReadOnlyReason(enum.Enum):
    """Why a bookie takes no new entries."""

    CONFIGURED = "forced by the configuration"
    OPERATOR = "ordered by the operator"
    DISK_FULL = "ledger directories are full"
    NO_ROOM = "a write to the ledger directories found no space, whatever the disks' usage says (quota, inodes)"


class ModeSwitch:
    """The bookie's mode as the sum of the reasons against writing. Thread: reactor.

    priority_writes_allowed: high-priority and recovery adds still pass while read-only, because the disks keep room for
    them (`minUsableSizeForHighPriorityWrites`). Fences always pass (I-22).
    on_change: called with the new mode, after the change, only when the mode really changed.
    on_reasons: called after a reason came or went, whether or not the mode changed with it.
    """

    def __init__(self, on_change: Callable[[BookieMode], None] | None = None) -> None:
        self.read_only = False
        self.priority_writes_allowed = True
        self.on_change = on_change
        self.on_reasons: Callable[[], None] | None = None
        self._reasons: set[ReadOnlyReason] = set()

    @property
    def mode(self) -> BookieMode:
        """The mode to register under."""
        return BookieMode.READ_ONLY if self.read_only else BookieMode.WRITABLE

    @property
    def reasons(self) -> frozenset[ReadOnlyReason]:
        """What stands against writing now."""
        return frozenset(self._reasons)

    def forbid(self, reason: ReadOnlyReason) -> None:
        """Turn read-only for `reason`; saying it twice changes nothing."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            self._apply()

    def allow(self, reason: ReadOnlyReason) -> None:
        """Take `reason` back; writable again once no other is left."""
        if reason in self._reasons:
            self._reasons.discard(reason)
            self._apply()

    def _apply(self) -> None:
        read_only = bool(self._reasons)
        changed = read_only != self.read_only
        self.read_only = read_only
        if changed and self.on_change is not None:
            self.on_change(self.mode)
        if self.on_reasons is not None:
            self.on_reasons()
