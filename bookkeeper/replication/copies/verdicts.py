"""What was found out about the copies at one place of a fragment, and what follows from it. Pure.

    standing      how it was found                                            the copy is made anew
    PRESENT       every entry looked for was delivered with a good digest     no
    ABSENT        the bookie denies one of them                               yes
    UNREADABLE    the bookie answered, and did not deliver: I/O error, damage yes: whatever it has is of no use
    SILENT        registered, and gave no verdict                             not yet: a passing trouble is no loss
    (I-77) GONE          not registered: nothing was asked                           yes

Making a copy anew is always safe, since the metadata names the new one only once it is durable (I-75); so the two that
say nothing about the entry itself (UNREADABLE, GONE) may lead to it. Nothing here ever says that an entry does not
exist.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from bookkeeper.model import BookieId
from bookkeeper.replication.copies.fragments import FragmentRange


class Standing(enum.Enum):
    """Of the copies at one ensemble index, see above."""

    PRESENT = "present"
    ABSENT = "absent"
    UNREADABLE = "cannot be read"
    SILENT = "no verdict"
    GONE = "not registered"


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """One place of one fragment. entry_id: the first entry that was not delivered; None where none was asked for."""

    index: int
    bookie_id: BookieId
    standing: Standing
    entry_id: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        entry = "" if self.entry_id is None else f" entry {self.entry_id}"
        return f"{self.bookie_id}:{entry} {self.standing.value}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class FragmentVerdict:
    """All places of one fragment."""

    fragment: FragmentRange
    copies: tuple[CopyVerdict, ...]

    def lost(self, *, silent_too: bool) -> dict[int, BookieId]:
        """Which copies are to be made anew. silent_too: bookies that give no verdict count: they had their time."""
        bad = {Standing.ABSENT, Standing.UNREADABLE, Standing.GONE} | ({Standing.SILENT} if silent_too else set())
        return {copy.index: copy.bookie_id for copy in self.copies if copy.standing in bad}

    @property
    def good(self) -> bool:
        """Every copy looked for is there."""
        return all(copy.standing is Standing.PRESENT for copy in self.copies)

    def __str__(self) -> str:
        bad = ", ".join(str(copy) for copy in self.copies if copy.standing is not Standing.PRESENT)
        fragment = self.fragment
        entries = f"entries {fragment.first_entry_id}..{fragment.last_entry_id}"
        if fragment.empty:  # of one that may still be written that is what is known, which may be nothing
            entries = f"from entry {fragment.first_entry_id} on" + (", no entries" if fragment.agreed else "")
        return f"{entries}: {bad or 'all there'}"


def bad_ones(verdicts: Iterable[FragmentVerdict]) -> list[FragmentVerdict]:
    """Those with a copy that is not known to be there."""
    return [verdict for verdict in verdicts if not verdict.good]
