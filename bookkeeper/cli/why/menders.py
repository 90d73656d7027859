"""Who makes copies good again that somebody reported as bad: what follows from what is known, and what helps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId


@dataclass(frozen=True, slots=True)
class Menders:
    """Each may be the error that kept it from being known.

    announced: how many processes say in the metadata store that they audit and repair; None: nobody looked. works: one
    says so over HTTP.
    """

    enabled: bool | BookKeeperError
    auditor: BookieId | BookKeeperError | None
    announced: int | BookKeeperError | None
    works: bool = False

    @property
    def why_nobody(self) -> str:
        """Why nobody makes them good again; "" where somebody may."""
        if self.enabled is False:
            return "auto-recovery is disabled"
        if self.announced == 0 and not self.works:
            only_others = (
                "" if self.auditor is None else ": the auditor is none of ours, and Apache's know no such reports"
            )
            return f"no process with auto-recovery runs that mends reported copies{only_others}"
        return ""

    @property
    def remedy(self) -> str:
        """What to do where nobody does."""
        if self.enabled is False:
            return "bookkeeper shell autorecovery -enable"
        return "run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies"

    def said(self) -> Iterator[str]:
        """Of who queued such copies, a line each: what is in the way, and what to do; what is not known."""
        if nobody := self.why_nobody:
            yield f"nothing by itself: {nobody}"
            yield f"do: {self.remedy}"
            return
        if isinstance(self.enabled, BookKeeperError):
            yield f"whether auto-recovery is on is unknown: {self.enabled}"
        if isinstance(self.announced, BookKeeperError):
            yield f"whether a process with auto-recovery runs is unknown: {self.announced}"
