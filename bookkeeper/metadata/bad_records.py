"""Stray znodes and unreadable records that a walk finds, as values rather than errors.

A stray znode is not the kind of record that its place is for. A walk yields the readable records to its caller and adds
the others to a `BadRecords`. The caller continues with the readable records; it reports or refuses the ledgers that the
bad records may belong to. A walk without a `BadRecords` raises at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.model import LedgerId

NAMED_MAX = 100
"""Default maximum number of bad records that a walk names; all are counted."""

LEDGER_IDS_MAX = 100_000
"""Maximum number of ledger ids kept, of those that the bad records of a walk may belong to."""

log = Logger()


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A stray znode, or a record that cannot be read."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"

    def json(self) -> dict[str, str]:
        """Return the fields as a JSON object."""
        return {"path": self.path, "problem": self.problem}


class BadRecords:
    """The bad records of one walk, or of several.

    named: the first `named_max` records. ledger_ids: ledgers that the records may belong to, at most LEDGER_IDS_MAX.
    ledger_ids_known: `ledger_ids` is complete.
    """

    def __init__(self, named_max: int = NAMED_MAX) -> None:
        self._named_max = named_max
        self.count = 0
        self.named: list[BadRecord] = []
        self.ledger_ids: set[LedgerId] = set()
        self.ledger_ids_known = True

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, path: str, problem: str, ledger_id: LedgerId | None = None) -> BadRecord:
        """Add a record and return it. ledger_id: the ledger that it may belong to."""
        record = BadRecord(path, problem)
        self.count += 1
        if len(self.named) < self._named_max:
            self.named.append(record)
        if ledger_id is not None and ledger_id not in self.ledger_ids:
            if len(self.ledger_ids) < LEDGER_IDS_MAX:
                self.ledger_ids.add(ledger_id)
            else:
                self.ledger_ids_known = False
        return record

    def add_unreadable(self, error: MetadataCorrupt | str, ledger_id: LedgerId | None = None) -> BadRecord:
        """Add a record that could not be read, and return it. error: its text begins with the path and a colon."""
        path, _, problem = str(error).partition(": ")
        return self.add(path, problem, ledger_id)

    def lines(self) -> list[str]:
        """Return one line for each named record, and one line for all others together."""
        lines = [str(record) for record in self.named]
        if self.count > len(lines):
            lines.append(f"{self.count - len(lines)} more bad records are not named here")
        return lines

    def check(self) -> None:
        """Raise MetadataCorrupt if any record was added."""
        if self.count:
            more = "" if self.count == 1 else f" (and {self.count - 1} more bad records)"
            raise MetadataCorrupt(f"{self.named[0]}{more}; remove the znode, or repair it")


class ReportedRecords:
    """A log of bad records that names each record once for as long as walks find it."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[BadRecord]] = {}  # by walk
        self._unnamed: dict[str, int] = {}

    def report(self, found: BadRecords, follows: str, walk: str = "") -> Sequence[BadRecord]:
        """Log the records of a complete walk that the walks before it did not find; return them.

        follows: the consequence, for the log. walk: the kind of walk, where several kinds find the same records.
        """
        known = frozenset().union(*self._known.values())
        new = [record for record in found.named if record not in known]
        for record in new:
            log.error("{record}; {follows}", record=record, follows=follows)
        unnamed = found.count - len(found.named)
        if unnamed > self._unnamed.get(walk, 0):
            log.error("{count} more bad records are not named; {follows}", count=unnamed, follows=follows)
        self._known[walk], self._unnamed[walk] = frozenset(found.named), unnamed
        return new
