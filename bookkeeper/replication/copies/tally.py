"""What was copied so far: figures for metrics, progress displays and reports. Thread: reactor.

Names of metrics are Apache's (4.18, scope replication.replication_worker), so that dashboards go on working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bookkeeper.metrics import Metrics


class CopyTally:
    """Sums since it was made. metrics: where they are shown as well, if anywhere."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.entries_read = self.bytes_read = self.entries_written = self.bytes_written = 0
        self.entries_unreadable = self.fragments_moved = self.copies_rewritten = 0
        self._reads = self._writes = None
        if metrics is not None:
            metrics.counter("replication_replication_worker_NUM_ENTRIES_READ", lambda: self.entries_read)
            metrics.counter("replication_replication_worker_NUM_ENTRIES_WRITTEN", lambda: self.entries_written)
            metrics.counter(
                "replication_replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
                lambda: self.entries_unreadable,
            )
            metrics.counter("replication_replication_worker_FRAGMENTS_MOVED", lambda: self.fragments_moved)
            metrics.counter("replication_replication_worker_COPIES_REWRITTEN", lambda: self.copies_rewritten)
            self._read_sizes = metrics.summary("replication_replication_worker_NUM_BYTES_READ")
            self._write_sizes = metrics.summary("replication_replication_worker_NUM_BYTES_WRITTEN")
            self._reads = metrics.summary("replication_replication_worker_READ_DATA_LATENCY")
            self._writes = metrics.summary("replication_replication_worker_WRITE_DATA_LATENCY")

    def on_read(self, entries: int, size: int, took_s: float) -> None:
        """Good copies of so many entries were read, of so many bytes of payload together."""
        self.entries_read += entries
        self.bytes_read += size
        if self._reads is not None:
            self._reads.observe(took_s * 1000)
            self._read_sizes.observe(size / entries, entries)

    def on_written(self, entries: int, size: int, took_s: float) -> None:
        """So many copies are durable at their targets."""
        self.entries_written += entries
        self.bytes_written += size
        if self._writes is not None and entries:
            self._writes.observe(took_s * 1000)
            self._write_sizes.observe(size / entries, entries)

    def on_unreadable(self) -> None:
        """An entry has no good copy that could be read."""
        self.entries_unreadable += 1
