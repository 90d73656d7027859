"""What every client was told, and the rules it must obey: the checkers of a simulated run.

Checked at every event (raises Violation):
    I-06    acknowledgements come in order, each id once
    I-08    after a recovery open returned, the old writer acknowledges nothing beyond the agreed end
    I-42    a reader returns no entry beyond the agreed end, and only bytes that were appended under that id (I-03)
    I-07    no reader is told a last add confirmed beyond the agreed end
At the end, when faults have stopped:
    I-40    the agreed end is at or beyond every acknowledged entry
    I-45    all readers of a ledger see the same entries, and the metadata names one end for ever
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class LedgerHistory:
    """One ledger as its writer and readers saw it."""

    ledger_id: int
    appended: list[bytes] = field(default_factory=list)
    acknowledged: int = -1
    """Last acknowledged entry id."""
    closed_at: int | None = None
    """The agreed end, once anybody was told."""
    read_to: int = -1
    """The highest entry that any reader was given."""
    confirmed: int = -1
    """The highest last add confirmed that any reader was told."""

    def on_appended(self, payloads: Sequence[bytes]) -> None:
        """The writer handed these over, in order."""
        self.appended += payloads

    def on_acknowledged(self, entry_ids: range) -> None:
        """The writer was told that these are durable."""
        for entry_id in entry_ids:
            if entry_id != self.acknowledged + 1:
                raise Violation(
                    f"I-06: ledger {self.ledger_id}: entry {entry_id} acknowledged after {self.acknowledged}"
                )
            self.acknowledged = entry_id
        if self.closed_at is not None and self.acknowledged > self.closed_at:
            raise Violation(
                f"I-08: ledger {self.ledger_id} was closed at {self.closed_at}, "
                f"and the writer was told that entry {self.acknowledged} is durable"
            )

    def on_closed(self, last_entry_id: int) -> None:
        """Somebody was told that the ledger ends here."""
        if self.closed_at is not None and self.closed_at != last_entry_id:
            raise Violation(f"I-39: ledger {self.ledger_id} ends at {self.closed_at} and at {last_entry_id}")
        self.closed_at = last_entry_id
        self._check_readers()
        if last_entry_id < self.acknowledged:
            raise Violation(
                f"I-40: ledger {self.ledger_id} was closed at {last_entry_id}, "
                f"entry {self.acknowledged} was acknowledged"
            )

    def on_read(self, entry_id: int, payload: bytes) -> None:
        """A reader was given an entry."""
        if entry_id >= len(self.appended) or self.appended[entry_id] != payload:
            raise Violation(f"I-03: ledger {self.ledger_id} entry {entry_id} came back as {payload[:40]!r}")
        self.read_to = max(self.read_to, entry_id)
        self._check_readers()

    def on_confirmed(self, last_add_confirmed: int) -> None:
        """A reader was told how far it may read."""
        self.confirmed = max(self.confirmed, last_add_confirmed)
        self._check_readers()

    def _check_readers(self) -> None:
        if self.closed_at is not None and max(self.read_to, self.confirmed) > self.closed_at:
            raise Violation(
                f"I-42: readers of ledger {self.ledger_id} got to entry {self.read_to} and were told that "
                f"{self.confirmed} is confirmed, and it ends at {self.closed_at}"
            )
