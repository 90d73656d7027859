"""Which places of an entry log are looked for: those in its damaged bytes, and the last one before each run. Pure.

Records do not overlap: of those that begin before a run of damaged bytes only the last one can reach into it.

    location   log id << 32 | offset of the body, 4 behind its record's begin (entry_log/format.py)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from bookkeeper.bookie.storage.entry_log.format import OFFSET_MASK, SIZE

Place = tuple[int, int]
"""(location, entry id)"""


class WantedBytes:
    """Damaged bytes of one log. pieces: each from the first byte to before the second, in any order."""

    def __init__(self, pieces: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in sorted(pieces):
            if self._stops and start <= self._stops[-1]:
                self._stops[-1] = max(stop, self._stops[-1])
            else:
                self._starts.append(start)
                self._stops.append(stop)

    def __len__(self) -> int:
        """Runs, neighbours joined."""
        return len(self._starts)

    def inside(self, places: Iterable[Place], before: dict[int, Place]) -> list[Place]:
        """Those of the places, all in this log, that lie in a run.

        before: by number of the run the last place before it; kept up, one for all places of one ledger.
        """
        starts, stops = self._starts, self._stops
        found: list[Place] = []
        for place in places:
            offset = place[0] & OFFSET_MASK
            begun = bisect_right(starts, offset)
            if begun and offset - SIZE.size < stops[begun - 1]:
                found.append(place)
            elif begun < len(starts):
                last = before.get(begun)
                if last is None or last < place:
                    before[begun] = place
        return found


def batches(places: Iterable[Place], *, bytes_max: int, count_max: int) -> list[list[Place]]:
    """The places ascending, in pieces that begin within so many bytes."""
    pieces: list[list[Place]] = []
    for place in sorted(places):
        if pieces and len(pieces[-1]) < count_max and place[0] - pieces[-1][0][0] <= bytes_max:
            pieces[-1].append(place)
        else:
            pieces.append([place])
    return pieces
