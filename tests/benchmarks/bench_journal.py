"""Entries per second through one journal on a real disk, and through its replay. Prints figures, asserts nothing.

    python -m tests.benchmarks.bench_journal [--seconds 3] [--directory DIR] [--size 128]

The journal runs on its worker thread under a reactor; an appender keeps a number of entries outstanding, in batches as
one received chunk would hold them. Beside it, in the same run: p50 of a bare fdatasync, and the loop without a journal
(join, write, fdatasync), which is the most this disk can do.
"""

from __future__ import annotations

import argparse
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.selectreactor import SelectReactor

from bookkeeper.bookie.journal.format import entry_record
from bookkeeper.bookie.journal.replay import replay
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.filesystem import OpenMode, RealFileSystem
from bookkeeper.metrics import Metrics
from bookkeeper.model import LogMark
from bookkeeper.runtime import ThreadWorker

BATCH = 64
"""Entries per append, about one socket read of small frames."""


class Counter:
    """A visitor that only counts."""

    entry_id_max = sys.maxsize

    def __init__(self) -> None:
        self.count = 0

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        self.count += len(entry_ids)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """Not written here."""

    def fence(self, ledger_id: int) -> None:
        """Not written here."""

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """Not written here."""


def quantile(values: Sequence[float], share: float) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def calibrate(fs: RealFileSystem, directory: str, record: bytes, seconds: float) -> tuple[float, float]:
    """Milliseconds of a bare fdatasync (p50), and entries/s of the loop without a journal, 400 at a time."""
    path = f"{directory}/calibration"
    file = fs.open(path, OpenMode.CREATE_EXCLUSIVE)
    file.preallocate(0, 64 << 20)
    file.sync()
    took: list[float] = []
    count = offset = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds and offset < 60 << 20:
        block = b"".join([record] * 400)
        file.pwrite(block, offset)
        before = time.perf_counter()
        file.sync()
        took.append(time.perf_counter() - before)
        offset += len(block)
        count += 400
    rate = count / (time.perf_counter() - started)
    file.close()
    fs.unlink(path)
    return quantile(took, 0.5) * 1000, rate


class Load:
    """Keeps `outstanding` entries in the journal until the time is over."""

    def __init__(self, reactor: Any, journal: Journal, record: bytes, outstanding: int, seconds: float) -> None:
        self._reactor, self._journal, self._seconds = reactor, journal, seconds
        batch = min(BATCH, outstanding)
        self._batch, self._lanes = batch, max(1, outstanding // batch)
        self._parts = [record[:4], record[4:]] * batch
        self._size = len(record) * batch
        self._started = 0.0
        self._running = 0
        self.count = 0
        self.latencies: list[float] = []

    def begin(self) -> None:
        """Fill the window."""
        self._started = time.perf_counter()
        for _ in range(self._lanes):
            self._running += 1
            self._append()

    def _append(self) -> None:
        sent = time.perf_counter()

        def durable(error: BaseException | None) -> None:
            now = time.perf_counter()
            if error is not None:
                raise error
            self.count += self._batch
            self.latencies.append(now - sent)
            if now - self._started < self._seconds:
                # In a turn of its own, as the next chunk from a socket would be.
                self._reactor.callLater(0, self._append)
                return
            self._running -= 1
            if self._running == 0:
                self._journal.stop().addCallback(lambda _: self._reactor.crash())

        self._journal.append(self._parts, self._size, durable, self._batch)


def measure(directory: str, record: bytes, outstanding: int, seconds: float, settings: JournalSettings) -> LogMark:
    """One line: rate, latency, group sizes."""
    fs, reactor, metrics = RealFileSystem(), SelectReactor(), Metrics()
    fs.make_dirs(directory)
    worker = ThreadWorker(reactor, "journal")
    journal = Journal(fs, directory, worker, reactor, settings, metrics=metrics)
    journal.on_failed = lambda error: reactor.crash()
    load = Load(reactor, journal, record, outstanding, seconds)
    journal.start(LogMark(0, 0)).addCallback(lambda _: load.begin())
    cpu, wall = time.process_time(), time.perf_counter()
    reactor.run(installSignalHandlers=False)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if journal.failure is not None:
        raise journal.failure
    groups = metrics.value("bookie_journal_JOURNAL_SYNC")
    ms = [value * 1000 for value in load.latencies]
    print(
        f"  {outstanding:6d} outstanding: {load.count / wall:10,.0f} entries/s  p50 {quantile(ms, 0.5):7.3f} ms  "
        f"p99 {quantile(ms, 0.99):7.3f} ms  max {max(ms):7.1f} ms  {load.count / groups:7.1f} entries/sync  "
        f"{cpu / load.count * 1e6:6.2f} us CPU/entry"
    )
    return journal.mark()


def measure_replay(directory: str) -> None:
    """One line: how fast what was written is read back."""
    counter = Counter()
    started = time.perf_counter()
    replay(RealFileSystem(), directory, LogMark(0, 0), counter)
    took = time.perf_counter() - started
    rate, each_us = counter.count / took, took / counter.count * 1e6
    print(f"  replay: {counter.count:,} entries, {rate:,.0f} entries/s, {each_us:.2f} us each")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--directory", help="on the disk to measure; default: a temporary directory")
    parser.add_argument("--size", type=int, default=128, help="payload bytes of an entry")
    options = parser.parse_args()
    record = entry_record(struct.pack(">qqqqI", 1, 0, -1, 0, 0) + bytes(options.size))
    with tempfile.TemporaryDirectory(dir=options.directory) as base:
        sync_ms, raw = calibrate(RealFileSystem(), base, record, options.seconds / 2)
        print(
            f"Python {platform.python_version()}, {options.size} B payload, batches of {BATCH}; "
            f"bare fdatasync p50 {sync_ms:.3f} ms, bare loop {raw:,.0f} entries/s"
        )
        for name, settings in (
            ("zeros ahead", JournalSettings()),
            ("growing file", JournalSettings(preallocation_size=0)),
        ):
            print(name)
            for outstanding in (1, 100, 1000, 5000):
                measure(f"{base}/{name.split()[0]}-{outstanding}", record, outstanding, options.seconds, settings)
        measure_replay(f"{base}/zeros-5000")


if __name__ == "__main__":
    main()
