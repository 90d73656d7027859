"""What becomes of transactions that cannot be read: the query fails, or a warning goes to standard error.

Planner and tasks run in processes that Spark made, whose standard error it keeps with its own logs.
"""

from __future__ import annotations

import sys

from journalmgr.errors import JournalError

REMEDY = "; with option failOnDataLoss=false it is passed over with a warning"


def bear(error: JournalError, *, fail: bool) -> None:
    """Raise the error with what may be done about it, or warn and go on."""
    if fail:
        error.args = (f"{error}{REMEDY}",)
        raise error
    warn(f"{error} (passed over: failOnDataLoss=false)")


def warn(text: str) -> None:
    """A line for whoever looks after the query."""
    sys.stderr.write(f"format editlog: {text}\n")
    sys.stderr.flush()
