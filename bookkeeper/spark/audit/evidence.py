"""What one bookie has of a chunk: of CHUNK_ENTRIES consecutive entries of one ledger. Pure.

    entry - first of the chunk     0      1      2      3     ...
    verdicts                       good   good   bad    unsaid     one byte each
    crcs, sizes                    of the payload, where the verdict is good; else 0

Several pieces of evidence of one bookie make one: of an entry the best that any of them says counts, in the order
good, bad, missing, unknown. Evidence that is whole leaves nothing unsaid: what it does not name is missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

CHUNK_ENTRIES: Final = 4096

UNSAID, UNKNOWN, MISSING, BAD, GOOD = range(5)
"""Verdicts, the better the greater. UNSAID: nobody asked."""

NOTES_MAX = 16
"""Reasons that are kept of one bookie and chunk."""


def chunk_of(entry_id: int) -> int:
    """The number of the chunk that has an entry."""
    return entry_id // CHUNK_ENTRIES


@dataclass(frozen=True, slots=True)
class Note:
    """Why those of the entries first..last, both included, are not good that are not."""

    first_entry_id: int
    last_entry_id: int
    why: str


@dataclass(slots=True)
class Evidence:
    """What `bookie` has of a chunk."""

    ledger_id: int
    chunk: int
    bookie: str
    verdicts: bytearray = field(default_factory=lambda: bytearray(CHUNK_ENTRIES))
    crcs: array[int] = field(default_factory=lambda: array("I", bytes(4 * CHUNK_ENTRIES)))
    sizes: array[int] = field(default_factory=lambda: array("I", bytes(4 * CHUNK_ENTRIES)))
    notes: list[Note] = field(default_factory=list)

    @property
    def first_entry_id(self) -> int:
        """Of the chunk."""
        return self.chunk * CHUNK_ENTRIES

    def add_good(self, entry_ids: Sequence[int], crcs: Sequence[int], sizes: Sequence[int]) -> None:
        """Copies that are good."""
        first = self.first_entry_id
        count = len(entry_ids)
        at = entry_ids[0] - first if count else 0
        if count and entry_ids[-1] - entry_ids[0] == count - 1 and isinstance(entry_ids, range):
            self.verdicts[at : at + count] = bytes([GOOD]) * count
            self.crcs[at : at + count] = array("I", crcs)
            self.sizes[at : at + count] = array("I", sizes)
            return
        for entry_id, crc, size in zip(entry_ids, crcs, sizes, strict=True):
            at = entry_id - first
            self.verdicts[at], self.crcs[at], self.sizes[at] = GOOD, crc, size

    def add(self, verdict: int, entry_ids: Iterable[int], why: str = "") -> None:
        """Entries of which this is said, where nothing better is known; `why` goes with them as one note."""
        said = [entry_id for entry_id in entry_ids if self.verdicts[entry_id - self.first_entry_id] < verdict]
        for entry_id in said:
            self.verdicts[entry_id - self.first_entry_id] = verdict
        if said and why:
            self._note(Note(said[0], said[-1], why))

    def complete(self) -> None:
        """Nothing else is there: what is unsaid is missing."""
        self.verdicts[:] = self.verdicts.replace(bytes([UNSAID]), bytes([MISSING]))

    def merge(self, other: Evidence) -> None:
        """Take over what another piece of evidence says better."""
        assert (self.ledger_id, self.chunk, self.bookie) == (other.ledger_id, other.chunk, other.bookie)
        if self.verdicts.count(UNSAID) == CHUNK_ENTRIES:
            self.verdicts[:], self.crcs[:], self.sizes[:] = other.verdicts, other.crcs, other.sizes
        else:
            for at, verdict in enumerate(other.verdicts):
                if verdict > self.verdicts[at]:
                    self.verdicts[at], self.crcs[at], self.sizes[at] = verdict, other.crcs[at], other.sizes[at]
        for note in other.notes:
            self._note(note)

    def _note(self, new: Note) -> None:
        """Keep a reason; the same one that follows within the chunk makes its range longer."""
        for at, note in enumerate(self.notes):
            if note.why == new.why:
                first = min(note.first_entry_id, new.first_entry_id)
                self.notes[at] = Note(first, max(note.last_entry_id, new.last_entry_id), new.why)
                return
        if len(self.notes) < NOTES_MAX:
            self.notes.append(new)

    def why(self, entry_id: int) -> str:
        """The reason that was noted of an entry; "" where there is none."""
        return next((note.why for note in self.notes if note.first_entry_id <= entry_id <= note.last_entry_id), "")
