"""Warnings about entries of open ledgers that a query leaves out.

A batch read, and a stream that ends (availableNow), stop at the last entry that is known to be acknowledged. Later
entries may be acknowledged too: their rows are missing without an error. Spark's deprecated trigger `once` does not
announce that a stream ends (prepareForTriggerAvailableNow): nothing is reported then. Thread: any, one at a time.
"""

from __future__ import annotations

from twisted.logger import Logger

log = Logger()

NAMED_MAX = 5
"""Maximum number of ledgers or topics named in one warning."""


class Unconfirmed:
    """The reports of one query, or of another `reader`, about unconfirmed entries."""

    def __init__(self, reader: str = "query") -> None:
        self._reader = reader
        self._reports: list[str] = []

    def note(self, report: str | None) -> None:
        """Add the result of `ReadHandle.report_unconfirmed`, or the like for a topic; None adds nothing."""
        if report is not None:
            self._reports.append(report)

    def warn(self) -> None:
        """Log all reports in one line, and clear them."""
        if not self._reports:
            return
        named, more = sorted(self._reports)[:NAMED_MAX], len(self._reports) - NAMED_MAX
        log.warn(
            "This {reader} left out entries that may be acknowledged: {reports}{more}. Run it again: a live writer "
            "confirms them within its explicitLacInterval",
            reader=self._reader,
            reports="; ".join(named),
            more=f"; and {more:,} more" if more > 0 else "",
        )
        self._reports.clear()
