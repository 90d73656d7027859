"""What becomes of transactions that cannot be read: the query fails, or a warning goes to standard error.

Planner and tasks run in processes that Spark made, whose standard error it keeps with its own logs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from bookkeeper.spark.said_as import LOSS_BORNE, OF_OPTIONS, Words
from journalmgr.errors import JournalError


@dataclass(frozen=True, slots=True)
class Loss:
    """Whether it fails a query. words: for the error, of who asks."""

    fails: bool
    words: Words = OF_OPTIONS

    def bear(self, error: JournalError) -> None:
        """Raise the error with what may be done about it, or warn and go on."""
        if self.fails:
            remedy = self.words.remedy("With {} it is passed over with a warning", LOSS_BORNE)
            error.args = (f"{error}{remedy}",)
            raise error
        warn(f"{error} (passed over: {self.words.word(LOSS_BORNE)})")


def warn_unconfirmed(reports: Iterable[str]) -> None:
    """Warn of entries of segments in progress that a query leaves out."""
    for report in reports:
        warn(
            f"{report}; their transactions are left out. Run the query again: a live writer confirms them within "
            "its explicitLacInterval"
        )


def warn(text: str) -> None:
    """A line for whoever looks after the query."""
    sys.stderr.write(f"format editlog: {text}\n")
    sys.stderr.flush()
