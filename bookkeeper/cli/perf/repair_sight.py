"""How far a repair is, by what was seen of it; and what to look at next. Pure.

Two things can be seen of a ledger, and neither of them alone tells all:

    the directory of its mark   cheap: one request lists those of 65,536 ledgers. It comes before the mark and goes
                                with it, or a little later
    its metadata                a request a ledger. Without the victim in it, the ledger is whole, for good

    listed   in metadata   seen before   is
    yes      -             -             marked
    no       -             listed        repaired: its mark has come and gone
    no       whole         -             repaired
    no       -             never         unknown: the auditor has not come to it, or all was too fast for us

So the listing is what is looked at while the repair goes on, and the metadata once it may be over by the listing.
"""

from __future__ import annotations

from collections.abc import Iterable

FIRST_LOOKS_EVERY_S = 0.1
"""Until something is marked: a look is a request or two then, and the start of the repair is told that exactly."""

LOOK_SHARE = 0.02
"""Of one processor, at most, that looks take during the repair, unless one of them takes more than 0.2 s."""

LOOK_PAUSE_MIN_S = 0.5
LOOK_PAUSE_MAX_S = 10.0
"""Which the end may go unnoticed, though not untold."""


class RepairSight:
    """What is known of some damaged ledgers, which do not become whole and damaged again."""

    # whole and listed may overlap: a mark may go later than the repair, and a directory be left behind
    def __init__(self, ledger_ids: Iterable[int]) -> None:
        self._ours = frozenset(ledger_ids)
        self._listed: frozenset[int] = frozenset()  # by the last listing
        self._stands_still = False  # the last two listings are the same
        self._seen: set[int] = set()  # in any listing
        self._whole: set[int] = set()  # by their metadata
        self.healed_ms = 0
        """When the last of those that are whole was written, by the store's clock, in milliseconds since 1970."""

    def on_listing(self, ledger_ids: Iterable[int]) -> None:
        """All marks were listed; those of other ledgers do not matter."""
        listed = self._ours.intersection(ledger_ids)
        self._stands_still = listed == self._listed
        self._listed = listed
        self._seen |= listed

    def on_whole(self, ledger_id: int, written_ms: int) -> None:
        """Its metadata no longer names the victim, and was written then."""
        self._whole.add(ledger_id)
        self.healed_ms = max(self.healed_ms, written_ms)

    @property
    def has_begun(self) -> bool:
        """Something was marked, or is whole already."""
        return bool(self._seen or self._whole)

    @property
    def is_over(self) -> bool:
        """Each of them is whole."""
        return len(self._whole) == len(self._ours)

    @property
    def marked(self) -> int:
        """How many are marked and not known to be whole."""
        return len(self._listed - self._whole)

    @property
    def repaired(self) -> int:
        """How many certainly are."""
        return len((self._seen - self._listed) | self._whole)

    @property
    def unmarked(self) -> int:
        """Of how many nothing was seen yet."""
        return len(self._ours) - len(self._seen | self._whole)

    def to_read(self) -> list[int]:
        """Ledgers whose metadata is worth a look now, up to the first one that still names the victim.

        Before anything is marked it is one, for a repair that comes and goes between two listings. Then none, until
        nothing is listed any more, or the listing stands still: it may be over, or wait, or the auditor is slow; those
        that are least likely whole come first.
        """
        rest = self._ours - self._whole
        if not self.has_begun:
            return sorted(rest)[:1]
        if self._listed and not self._stands_still:
            return []
        return sorted(rest, key=lambda each: (each not in self._listed, each in self._seen, each))

    def pause_s(self, look_s: float) -> float:
        """Until the next look, after one that took so much processor time."""
        if not self.has_begun:
            return FIRST_LOOKS_EVERY_S
        return min(max(look_s / LOOK_SHARE, LOOK_PAUSE_MIN_S), LOOK_PAUSE_MAX_S)
