"""What a query leaves out of ledgers that are not closed, as warnings.

A batch read, and a stream that ends (availableNow), stop at the last entry that is known to be acknowledged. Entries
behind it may be acknowledged too: rows that are missing without an error. Thread: any, one at a time.
"""

from __future__ import annotations

from twisted.logger import Logger

log = Logger()

NAMED_MAX = 5
"""Ledgers, or topics, that are named in one warning."""


class Unconfirmed:
    """The reports of one query."""

    def __init__(self) -> None:
        self._reports: list[str] = []

    def note(self, report: str | None) -> None:
        """Take what `ReadHandle.report_unconfirmed` says of a ledger, or its like of a topic."""
        if report is not None:
            self._reports.append(report)

    def warn(self) -> None:
        """Log what was noted, in one line."""
        if not self._reports:
            return
        named, more = sorted(self._reports)[:NAMED_MAX], len(self._reports) - NAMED_MAX
        log.warn(
            "This query ends before entries that may be acknowledged, and leaves them out: {reports}{more}. Run it "
            "again: a writer that is alive confirms them within its explicitLacInterval",
            reports="; ".join(named),
            more=f"; and {more:,} more like these" if more > 0 else "",
        )
        self._reports.clear()
