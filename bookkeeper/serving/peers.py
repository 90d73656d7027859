"""Names of peers, and rate-limited log lines about peers. Thread: reactor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.logs import LogLimit
from bookkeeper.serving.admission import Closing, Why

if TYPE_CHECKING:
    from bookkeeper.ports import Clock


def name_of(peer: Any) -> str:
    """Return host:port of a TCP peer."""
    host, port = getattr(peer, "host", None), getattr(peer, "port", None)
    return str(peer) if host is None else f"{host}:{port}"


class PeerLog:
    """Log lines about peers: one per subject, host and interval. Further lines are counted in one later line."""

    def __init__(self, log: Logger, clock: Clock) -> None:
        self._log = log
        self._limit = LogLimit(clock, on_left_out=self._on_left_out)

    def warn(self, peer: str, subject: str, template: str, **fields: object) -> None:
        """Log a warning about a peer (host:port), at most one per subject and host in an interval."""
        if self._limit.admits(f"{subject} ({peer.rpartition(':')[0]})"):
            self._log.warn(template, peer=peer, **fields)

    def on_refused(self, peer: str, reason: str) -> None:
        """Log that a connection was refused."""
        self.warn(peer, "too many connections", "Refused a connection from {peer}: {reason}", reason=reason)

    def on_closing(self, peer: str, closing: Closing) -> bool:
        """Log why a connection is closed; return whether the reason is its silence.

        Silence is logged at debug level, since it is no fault: clients open connections in advance and keep them.
        """
        template = "Closing the connection from {peer}: {reason}"
        if closing.why in (Why.IDLE, Why.NO_REQUEST):
            self._log.debug(template, peer=peer, reason=closing.text)
            return True
        self.warn(peer, closing.why.value, template, reason=closing.text)
        return False

    def _on_left_out(self, subjects: str) -> None:
        self._log.warn("Similar lines not logged in the last seconds: {subjects}", subjects=subjects)
