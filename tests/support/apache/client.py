"""The genuine client in one Java process, for as many commands as a run has. See tests/interop/java/LedgerTool.java."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.apache.fetched import Apache
from tests.support.java_programs import CommandFailed, Driver

CODE_NOT_ENOUGH_BOOKIES = -6
PATIENCE_S = 60.0


class ApacheError(CommandFailed):
    """The genuine client failed; `code` is BKException's number."""


class ApacheClient(Driver):
    """One Java process of one release's client. A context manager."""

    failure = ApacheError

    def __init__(self, apache: Apache, log_path: Path) -> None:
        """Start it. log_path: where its standard error goes."""
        self.release = apache.release
        super().__init__(apache.command("LedgerTool", classes=apache.tool_classes()), log_path, "Apache's client")

    def spawn(self, *words: object) -> str:
        """Give a command that runs beside those that follow; its number, for `wait`."""
        (number,) = self.run("spawn", *words)
        return number

    def wait(self, number: str) -> list[str]:
        """Wait for a spawned command; its answer, as of `run`."""
        return self.run("wait", number)

    def when_writable(self, uri: str, version: int, count: int) -> None:
        """Return once this client has seen exactly `count` writable bookies."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._can_choose(uri, version, count) or self._can_choose(uri, version, count + 1):
            assert time.monotonic() < deadline, f"Apache's client has not seen {count} writable bookies"

    def _can_choose(self, uri: str, version: int, count: int) -> bool:
        """Return whether this client has seen enough bookies for a ledger on `count` of them. Sends no request."""
        try:
            self.run("write", uri, version, "CRC32", "-", count, count, count, 0)
        except ApacheError as refused:
            if refused.code != CODE_NOT_ENOUGH_BOOKIES:
                raise
            return False
        return True
