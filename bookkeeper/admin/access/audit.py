"""One log line for each request that may change something: the request, its peer, the role of its token, the result."""

from __future__ import annotations

from string import punctuation
from typing import TYPE_CHECKING
from urllib.parse import quote

from twisted.logger import Logger

from bookkeeper.admin.access.rules import SAFE_METHODS, Verdict
from bookkeeper.logs import LogLimit

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

TARGET_SHOWN_MAX = 1000
"""Bytes of a request's path and query that a log line shows."""


class Audit:
    """The audit log of one server. Thread: reactor.

    Requests that change nothing are logged at debug level, since commands and scrapers send them every few seconds.
    Refusals with the same status and peer are logged once per interval.
    """

    def __init__(self, clock: Clock) -> None:
        self._refusals = LogLimit(clock, on_left_out=_log_left_out)

    def on_answer(
        self, method: bytes, target: bytes, peer: str, verdict: Verdict, status: int, *, is_routine: bool = False
    ) -> None:
        """Log an answer. target: path and query, as sent. is_routine: log at debug level if the request was allowed."""
        name = quote(method, safe=punctuation)
        quiet = name in SAFE_METHODS or is_routine
        if verdict.status:
            quiet = not self._refusals.admits(f"{verdict.status} for {peer}")
        (log.debug if quiet else log.info)(
            "HTTP {method} {target} of {peer}, role {role}: {status}",
            method=name,
            target=shown_target(target),
            peer=peer,
            role=verdict.who,
            status=status,
        )


def shown_target(target: bytes) -> str:
    """Return the path and query of a request as one printable word."""
    return quote(target[:TARGET_SHOWN_MAX], safe=punctuation) + ("..." if len(target) > TARGET_SHOWN_MAX else "")


def _log_left_out(counts: str) -> None:
    log.info("HTTP requests were refused and not logged: {counts}", counts=counts)
