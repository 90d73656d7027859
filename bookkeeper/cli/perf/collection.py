"""The bookies of a measurement of space: what they hold, what they wrote, and their garbage collection, from outside.

A bookie of this machine is looked at through /proc and its directories; one that runs elsewhere only over HTTP, and
what only its machine knows is None.

Thread: main; everything here waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.cli.perf.counters import ask_url, bytes_on_disk, process_written_bytes, read_metrics
from bookkeeper.console.output import CommandFailed
from bookkeeper.embedded.cluster import LocalBookie

_COPIED, _REMOVED, _REWRITTEN, _LOGS, _JOURNAL = (
    "bookie_gc_COMPACTED_BYTES",
    "bookie_gc_RECLAIMED_DELETION_SPACE_BYTES",
    "bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES",
    "bookie_gc_COMPACTED_ENTRY_LOGS",
    "bookie_journal_JOURNAL_WRITE_BYTES",
)
_CLOSED_LOGS = "bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES"


@dataclass(frozen=True, slots=True)
class WatchedBookie:
    """http: "http://host:port". pid, ledger_directory, journal_directory: of a bookie on this machine."""

    name: str
    http: str
    pid: int | None = None
    ledger_directory: Path | None = None
    journal_directory: Path | None = None

    @classmethod
    def of(cls, bookie: LocalBookie) -> WatchedBookie:
        """One that was started here, with its HTTP server on."""
        assert bookie.metrics_url is not None
        return cls(
            bookie.name,
            bookie.metrics_url.removesuffix("/metrics"),
            bookie.pid,
            bookie.ledger_directory,
            bookie.journal_directory,
        )

    def force_collection(self) -> None:
        """Order a round with a major compaction."""
        self._ask("/api/v1/bookie/gc", body={"forceMajor": True, "forceMinor": True})

    def is_forced(self) -> bool:
        """Whether an ordered round is not over yet."""
        answer = json.loads(self._ask("/api/v1/bookie/gc"))
        return bool(answer["is_in_force_gc"] == "true")

    def entry_log_bytes(self) -> int:
        """What entry logs take on disk; elsewhere, what the closed ones held at the last round."""
        if self.ledger_directory is not None:
            return bytes_on_disk(self.ledger_directory, ".log") + bytes_on_disk(self.ledger_directory, ".switching")
        return int(self.metrics().get(_CLOSED_LOGS, 0.0))

    def metrics(self) -> dict[str, float]:
        """Sample name -> value. Raises CommandFailed when it does not answer."""
        try:
            return read_metrics(f"{self.http}/metrics")
        except OSError as error:
            raise CommandFailed(f"{self.name} at {self.http} does not tell its metrics: {error}") from error

    def _ask(self, path: str, body: object = None) -> bytes:
        method, data = ("GET", None) if body is None else ("PUT", json.dumps(body).encode())
        try:
            return ask_url(self.http + path, method, data)
        except OSError as error:
            raise CommandFailed(f"{self.name}, {method} {self.http}{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class SpaceCounters:
    """Sums over bookies since each started.

    written_bytes: to files, see `process_written_bytes`; None where a bookie is elsewhere.
    removed_bytes, rewritten_bytes: given back by removing and by rewriting entry logs. copied_bytes: by compaction.
    """

    written_bytes: int | None
    journal_bytes: int
    copied_bytes: int
    removed_bytes: int
    rewritten_bytes: int
    logs_compacted: int

    @property
    def reclaimed_bytes(self) -> int:
        """Given back to disks."""
        return self.removed_bytes + self.rewritten_bytes

    def since(self, before: SpaceCounters) -> SpaceCounters:
        """What happened since `before`."""
        written = None
        if self.written_bytes is not None and before.written_bytes is not None:
            written = self.written_bytes - before.written_bytes
        return SpaceCounters(
            written,
            self.journal_bytes - before.journal_bytes,
            self.copied_bytes - before.copied_bytes,
            self.removed_bytes - before.removed_bytes,
            self.rewritten_bytes - before.rewritten_bytes,
            self.logs_compacted - before.logs_compacted,
        )


def space_counters(bookies: Sequence[WatchedBookie]) -> SpaceCounters:
    """Now."""
    metrics = [bookie.metrics() for bookie in bookies]
    pids = [bookie.pid for bookie in bookies if bookie.pid is not None]
    names = (_JOURNAL, _COPIED, _REMOVED, _REWRITTEN, _LOGS)
    sums = [sum(int(values.get(name, 0.0)) for values in metrics) for name in names]
    written = sum(map(process_written_bytes, pids)) if len(pids) == len(bookies) else None
    return SpaceCounters(written, *sums)


def entry_log_bytes(bookies: Sequence[WatchedBookie]) -> int:
    """Of all of them."""
    return sum(bookie.entry_log_bytes() for bookie in bookies)
