"""One client process of a measurement. Started by `command.py`; reads its task as JSON from the command line.

Protocol with the parent, one JSON document a line: after warming up it prints {"ready": true} and waits for a line on
standard input, so that all workers measure at the same time; at the end it prints its result.

Write: every ledger has `outstanding / ledgers` entries in flight at all times; what an acknowledgement frees is
refilled at once, in one call. Read: `outstanding` entries asked for at all times, in ranges of at most RANGE_MAX
consecutive entries. Latency: from the call that appends (or asks) to the acknowledgement (or the verified payload).
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet import task
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.threads import deferToThread

from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.model import DigestType

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.reader import Entry, ReadHandle
    from bookkeeper.client.writer import WriteHandle

RANGE_MAX = 100
SKIPPED_SHARE = 0.25
"""The first quarter of a run is thrown away: connections, caches and the window are still settling."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker does. Sizes in bytes, times in seconds."""

    uri: str
    kind: str
    ensemble: int
    write_quorum: int
    ack_quorum: int
    entry_size: int
    outstanding: int
    ledgers: int
    seconds: float
    warmup_entries: int
    use_v2: bool
    digest: str
    password: str
    ledger_ids: tuple[int, ...] = ()

    def to_json(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The inverse."""
        values = json.loads(text)
        return cls(**{**values, "ledger_ids": tuple(values["ledger_ids"])})


class Measurement:
    """Counts and latencies of the part of the run that is kept."""

    def __init__(self, seconds: float) -> None:
        self.latencies = Latencies()
        self._seconds = seconds
        self.done = 0
        self.started = self.kept_from = self.finish_at = 0.0
        self.kept_done = 0
        self._cpu_from = 0.0
        self._writes_from = 0
        self._count_writes: Callable[[], int] = int
        self._first_kept: float | None = None

    def start(self, count_writes: Callable[[], int]) -> None:
        """The clock runs from now on."""
        now = time.perf_counter()
        self.started, self.kept_from = now, now + self._seconds * SKIPPED_SHARE
        self.finish_at = now + self._seconds
        self._count_writes = count_writes

    def add(self, count: int, began: float, now: float) -> None:
        """`count` operations that began at `began` are complete."""
        self.done += count
        if self._first_kept is not None:
            self.kept_done += count
            self.latencies.add(now - began, count)
        elif now >= self.kept_from:
            # This acknowledgement ends the time before: rates are taken from here on.
            self._first_kept = now
            self._cpu_from, self._writes_from = cpu_seconds(), self._count_writes()

    def stop(self) -> dict[str, Any]:
        """Everything asked for is complete: the figures as plain values for the parent."""
        kept = self._first_kept is not None
        return {
            "operations": self.kept_done,
            "seconds": time.perf_counter() - self._first_kept if self._first_kept is not None else 0.0,
            "cpu_s": cpu_seconds() - self._cpu_from if kept else 0.0,
            "writes": self._count_writes() - self._writes_from if kept else 0,
            "all_operations": self.done,
            "latencies": self.latencies.to_json(),
        }


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class LedgerWriter:
    """Keeps `window` entries in flight on one ledger until the time is up."""

    def __init__(self, handle: WriteHandle, payload: bytes, window: int, measurement: Measurement) -> None:
        self._handle, self._payload, self._window, self._measurement = handle, payload, window, measurement
        self._bursts: deque[tuple[int, float]] = deque()
        self._limit = 0
        self._appended = self._acknowledged = 0
        self.finished: Deferred[None] = Deferred()
        self._stop = False
        handle.on_acknowledged = self._on_acknowledged
        handle.on_failed = self._on_failed

    def run(self, entries: int | None) -> None:
        """Begin; `entries`: stop after so many (warm-up), else when the measurement's time is up."""
        self.finished = Deferred()
        self._stop, self._limit = False, self._appended + entries if entries is not None else 0
        self._append(min(self._window, entries or self._window))

    def _append(self, count: int) -> None:
        self._handle.append_batch_nowait([self._payload] * count)
        self._appended += count
        self._bursts.append((self._appended, time.perf_counter()))

    def _on_acknowledged(self, acknowledged: range) -> None:
        now = time.perf_counter()
        done_until = self._acknowledged + len(acknowledged)
        bursts, measurement = self._bursts, self._measurement
        measuring = not self._limit
        while self._acknowledged < done_until:
            end, began = bursts[0]
            count = min(end, done_until) - self._acknowledged
            self._acknowledged += count
            if measuring:
                measurement.add(count, began, now)
            if self._acknowledged == end:
                bursts.popleft()
        if measuring:
            self._stop = now >= measurement.finish_at
            room = len(acknowledged)
        else:
            room = min(len(acknowledged), self._limit - self._appended)
        if room > 0 and not self._stop:
            self._append(room)
        elif self._acknowledged == self._appended and not self.finished.called:
            self.finished.callback(None)

    def _on_failed(self, error: Exception) -> None:
        if not self.finished.called:
            self.finished.errback(error)


class LedgerReader:
    """Keeps a number of range reads in flight over one closed ledger, from its start again and again."""

    def __init__(self, handle: ReadHandle, outstanding: int, measurement: Measurement) -> None:
        self._handle, self._measurement = handle, measurement
        self._range = min(RANGE_MAX, outstanding)
        self._ranges = max(1, outstanding // self._range)
        self._next = self._running = 0
        self.finished: Deferred[None] = Deferred()

    def run(self) -> None:
        """Begin; ends when the measurement's time is up."""
        for _ in range(self._ranges):
            self._read()

    def _read(self) -> None:
        first = self._next
        last = min(first + self._range - 1, self._handle.last_add_confirmed)
        self._next = last + 1 if last < self._handle.last_add_confirmed else 0
        self._running += 1
        began = time.perf_counter()
        self._handle.read(first, last).addCallbacks(self._on_read, self._on_failed, callbackArgs=(began,))

    def _on_read(self, entries: list[Entry], began: float) -> None:
        now = time.perf_counter()
        self._running -= 1
        self._measurement.add(len(entries), began, now)
        if now < self._measurement.finish_at:
            self._read()
        elif not self._running and not self.finished.called:
            self.finished.callback(None)

    def _on_failed(self, failure: Any) -> None:
        self._running -= 1
        if not self.finished.called:
            self.finished.errback(failure)


def _gathered(deferreds: list[Deferred[None]]) -> Deferred[Any]:
    return DeferredList(deferreds, fireOnOneErrback=True, consumeErrors=True)


async def _say_ready_and_wait() -> None:
    print(json.dumps({"ready": True}), flush=True)
    await deferToThread(sys.stdin.readline)


async def _write(client: LedgerClient, job: Task, measurement: Measurement) -> dict[str, Any]:
    payload = random.Random(1).randbytes(job.entry_size)
    window = max(1, job.outstanding // job.ledgers)
    writers: list[tuple[WriteHandle, LedgerWriter]] = []
    ledger_ids: list[int] = []
    for _ in range(job.ledgers):
        handle = await client.create(
            ensemble=job.ensemble,
            write_quorum=job.write_quorum,
            ack_quorum=job.ack_quorum,
            digest=DigestType[job.digest],
            password=job.password.encode(),
        )
        ledger_ids.append(handle.ledger_id)
        writers.append((handle, LedgerWriter(handle, payload, window, measurement)))
    if job.warmup_entries:
        for _, writer in writers:
            writer.run(max(1, job.warmup_entries // job.ledgers))
        await _gathered([writer.finished for _, writer in writers])
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    for _, writer in writers:
        writer.run(None)
    await _gathered([writer.finished for _, writer in writers])
    result = measurement.stop()
    for handle, _ in writers:
        await handle.close()
    return {**result, "ledger_ids": ledger_ids}


async def _read(client: LedgerClient, job: Task, measurement: Measurement) -> dict[str, Any]:
    handles = [await client.open(ledger_id, password=job.password.encode()) for ledger_id in job.ledger_ids]
    for ledger_id, handle in zip(job.ledger_ids, handles, strict=True):
        if handle.last_add_confirmed < 0:
            raise ValueError(f"ledger {ledger_id} is empty: nothing to read")
        await handle.read(0, min(handle.last_add_confirmed, RANGE_MAX - 1))
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    readers = [LedgerReader(handle, max(1, job.outstanding // len(handles)), measurement) for handle in handles]
    for reader in readers:
        reader.run()
    await _gathered([reader.finished for reader in readers])
    return {**measurement.stop(), "ledger_ids": job.ledger_ids}


async def _run(reactor: Any, job: Task) -> None:
    from bookkeeper.client.client import connect
    from bookkeeper.config import ClientSettings

    settings = ClientSettings(
        metadata_service_uri=job.uri,
        use_v2=job.use_v2,
        window_entries_max=max(10_000, job.outstanding),
        window_bytes_max=max(256 << 20, job.outstanding * (job.entry_size + 1024)),
    )
    client = await connect(job.uri, reactor, settings)
    measurement = Measurement(job.seconds)
    try:
        result = await (_write if job.kind == "write" else _read)(client, job, measurement)
    finally:
        await client.close()
    print(json.dumps(result), flush=True)


def main() -> None:
    """Run the task given as the first argument."""
    job = Task.from_json(sys.argv[1])
    task.react(lambda reactor: Deferred.fromCoroutine(_run(reactor, job)))


if __name__ == "__main__":
    main()
