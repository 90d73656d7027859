"""Znodes that are no record of the kind expected where they are, or whose record cannot be read: values, not errors.

A walk gives the records that it can read to its caller and the others to a `BadRecords`. The caller continues with the
rest, and reports or refuses what the bad ones could stand for. A walk without a `BadRecords` raises at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.model import LedgerId

NAMED_MAX = 100
"""Bad records of one walk that are named; all are counted."""

LEDGER_IDS_MAX = 100_000
"""Ledger ids that the bad records of one walk could stand for, and that are kept."""

log = Logger()


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"

    def json(self) -> dict[str, str]:
        """For programs."""
        return {"path": self.path, "problem": self.problem}


class BadRecords:
    """The bad records of one walk, or of several.

    named: the first NAMED_MAX. ledger_ids: ledgers that bad records could stand for; `ledger_ids_known`: these are all.
    """

    def __init__(self) -> None:
        self.count = 0
        self.named: list[BadRecord] = []
        self.ledger_ids: set[LedgerId] = set()
        self.ledger_ids_known = True

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, path: str, problem: str, ledger_id: LedgerId | None = None) -> BadRecord:
        """Note one, and return it. ledger_id: that it could stand for."""
        record = BadRecord(path, problem)
        self.count += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(record)
        if ledger_id is not None and ledger_id not in self.ledger_ids:
            if len(self.ledger_ids) < LEDGER_IDS_MAX:
                self.ledger_ids.add(ledger_id)
            else:
                self.ledger_ids_known = False
        return record

    def add_unreadable(self, error: MetadataCorrupt | str, ledger_id: LedgerId | None = None) -> BadRecord:
        """Note the record that could not be read, and return it. error: its text begins with the path."""
        path, _, problem = str(error).partition(": ")
        return self.add(path, problem, ledger_id)

    def lines(self) -> list[str]:
        """One sentence for each that is named, and one for the others together."""
        lines = [str(record) for record in self.named]
        if self.count > len(lines):
            lines.append(f"{self.count - len(lines)} more bad records are not named here")
        return lines

    def check(self) -> None:
        """Raise MetadataCorrupt if there is any."""
        if self.count:
            more = "" if self.count == 1 else f" (and {self.count - 1} more bad records)"
            raise MetadataCorrupt(f"{self.named[0]}{more}; remove the znode, or repair it")


class ReportedRecords:
    """Logs each bad record once for as long as some walk finds it."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[BadRecord]] = {}  # by walk
        self._unnamed: dict[str, int] = {}

    def report(self, found: BadRecords, follows: str, walk: str = "") -> Sequence[BadRecord]:
        """Log what a whole walk found and no walk before it did; return these.

        follows: what happens, or does not. walk: its name, where several kinds of walks meet the same records.
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
