"""The genuine client in one Java process, for as many commands as a run has. See tests/interop/java/LedgerTool.java."""

from __future__ import annotations

from pathlib import Path

from tests.support.apache.fetched import Apache
from tests.support.java_programs import CommandFailed, Driver


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
