"""What is asked of `whatif`: bookies or racks lost, bookies added, other quorums. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bookkeeper.errors import ConfigurationError

ADDED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Quorums:
    """Ensemble, write and ack quorum; None: as each ledger has it."""

    ensemble: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None

    def __bool__(self) -> bool:
        return (self.ensemble, self.write_quorum, self.ack_quorum) != (None, None, None)

    def of(self, ensemble: int, write_quorum: int, ack_quorum: int) -> tuple[int, int, int]:
        """Those of a ledger that has these now."""
        return self.ensemble or ensemble, self.write_quorum or write_quorum, self.ack_quorum or ack_quorum


AS_THEY_ARE = Quorums()


@dataclass(frozen=True, slots=True)
class Question:
    """What would be if these were lost, so many joined, or every ledger had these quorums.

    Losses and additions go together, as do additions and quorums.
    """

    lose: tuple[str, ...] = ()
    lose_racks: tuple[str, ...] = ()
    add: int = 0
    quorums: Quorums = AS_THEY_ARE

    def __post_init__(self) -> None:
        """Raises ConfigurationError with every fault."""
        faults = list(self._faults())
        if faults:
            raise ConfigurationError("; ".join(faults))

    @property
    def loses(self) -> bool:
        """Whether anything is lost."""
        return bool(self.lose or self.lose_racks)

    def _faults(self) -> Iterator[str]:
        asked = self.quorums
        if not (self.loses or self.add or asked):
            yield "nothing is asked: say which bookies or racks are lost, how many are added, or which quorums hold"
        if self.loses and asked:
            yield "a loss and other quorums exclude each other: ask one after the other"
        if not 0 <= self.add <= ADDED_MAX:
            yield f"{self.add} bookies cannot be added: 1 to {ADDED_MAX}"
        given = {"ensemble": asked.ensemble, "write quorum": asked.write_quorum, "ack quorum": asked.ack_quorum}
        for name, value in given.items():
            if value is not None and value < 1:
                yield f"{name} {value}: it is 1 at least"
        # From the widest to the narrowest, whichever are given.
        known = [(name, value) for name, value in given.items() if value is not None]
        for (wide, most), (narrow, count) in pairwise(known):
            if count > most:
                yield f"{narrow} {count} is above {wide} {most}: an entry has no more copies than that"
