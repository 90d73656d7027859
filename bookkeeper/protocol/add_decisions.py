"""What a window of adds tells its driver. Pure values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bookkeeper.model import BookieId, EntryId


class Decision(enum.Enum):
    """What the driver does about a failed answer."""

    IGNORED = "from a bookie no longer at that index, or the window has failed already"
    NOTED = "the bookie may be replaced later (delayEnsembleChange), nothing to do now"
    CHANGE = "begin an ensemble change"
    MERGED = "a change is running; it, or the one after it, takes care of this bookie"
    FATAL = "the window has failed: see `error`, and call `fail`"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A change to make: a fragment from `first_entry_id` on in which the failed indexes hold other bookies."""

    first_entry_id: EntryId
    failed: dict[int, BookieId]
    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The end of a change.

    resend: entry ids, ascending, to send to the new bookie of each replaced index.
    acknowledged: entries that were complete all the time and may be acknowledged now.
    further: other bookies failed meanwhile; begin another change.
    """

    resend: dict[int, list[int]]
    acknowledged: range
    further: bool


@dataclass(frozen=True, slots=True)
class Overdue:
    """Entries that one bookie did not answer in time."""

    index: int
    bookie_id: BookieId
    entry_ids: list[int]
