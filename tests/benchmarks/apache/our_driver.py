"""Our client under measurement, in one process for a whole run. It speaks the language of java/BenchDriver.java.

    write  URI VERSION E QW QA SIZE OUTSTANDING SECONDS
    fill   URI VERSION E QW QA SIZE COUNT
    read   URI VERSION LEDGER RANGES PER_RANGE SECONDS
    batch  URI VERSION LEDGER RANGES PER_RANGE SECONDS
    delete URI VERSION LEDGER
    forget URI

Writes use `append_nowait` with a callback per entry, as Apache's client is driven through `asyncAddEntry`: what is
acknowledged is replaced at once, from its callback, by the same payload. Reads use `ReadHandle.read`, a Deferred per
range; batch reads `ReadHandle.read_batch`. Settings are the defaults but for windows that hold what is outstanding.

Thread: reactor; commands are read in a thread of the pool, and none is read while one is carried out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.client.client import LedgerClient, connect
from bookkeeper.client.read.read_handle import Entry, ReadHandle
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import DigestType

PASSWORD = b"bench"
SKIPPED_SHARE = 0.25
WINDOW_ENTRIES = 10_000
WINDOW_BYTES = 256 << 20
"""Apache's client, driven with throttle=0, has no such bound; 5000 entries of 10 KiB must fit."""


def say(answer: dict[str, Any]) -> None:
    """One line to the one who measures."""
    print(json.dumps(answer), flush=True)


class Window(ABC):
    """A fixed number of requests in flight; what completes is replaced at once, from its callback."""

    def __init__(self) -> None:
        self.latencies = array("d")  # of all requests that are complete, in seconds
        self.stopping = False
        self.idle: Deferred[None] = Deferred()

    @abstractmethod
    def begin(self, window: int) -> None:
        """Send the first requests. Once `stopping` is set, the last one to complete fires `idle`."""

    def failed(self, error: Any) -> None:
        """Nothing more is sent. error: an exception or a Failure."""
        self.stopping = True
        if not self.idle.called:
            self.idle.errback(error)

    def ended(self) -> None:
        """Nothing is in flight any more."""
        if not self.idle.called:
            self.idle.callback(None)

    async def measure(self, reactor: Any, window: int, seconds: float, per_request: int) -> dict[str, Any]:
        """The figures of the time after the first quarter."""
        self.begin(window)
        await task.deferLater(reactor, seconds * SKIPPED_SHARE)
        first, started = len(self.latencies), time.perf_counter()
        say({"mark": "start"})
        await task.deferLater(reactor, seconds * (1 - SKIPPED_SHARE))
        end, ended = len(self.latencies), time.perf_counter()
        self.stopping = True
        say({"mark": "end"})
        await self.idle
        histogram = Latencies()
        for latency in self.latencies[first:end]:
            histogram.add(latency)
        return {
            "operations": (end - first) * per_request,
            "seconds": ended - started,
            "all_operations": len(self.latencies) * per_request,
            "latencies": [histogram.to_json()],
        }


class Adds(Window):
    """Adds to one ledger, a callback each."""

    def __init__(self, handle: WriteHandle, payload: bytes) -> None:
        super().__init__()
        self._handle, self._payload = handle, payload

    def begin(self, window: int) -> None:
        """See Window. Closures, so that the driver's share of each add is as small as that of the Java driver."""
        append, payload, clock = self._handle.append_nowait, self._payload, time.perf_counter
        starts: deque[float] = deque()  # acknowledgements come in the order of the entries
        note = self.latencies.append

        def on_done(_entry_id: int, error: BookKeeperError | None) -> None:
            if error is not None:
                self.failed(error)
                return
            now = clock()
            note(now - starts.popleft())
            if not self.stopping:
                send(now)
            elif not starts:
                self.ended()

        def send(now: float) -> None:
            starts.append(now)
            try:
                append(payload, on_done)
            except BookKeeperError as error:  # no room, or the handle failed: the window must have held it
                self.failed(error)

        for _ in range(window):
            send(clock())


class Reads(Window):
    """Ranges of one closed ledger, from its start again and again."""

    def __init__(self, handle: ReadHandle, per_range: int, *, batch: bool) -> None:
        super().__init__()
        self._handle, self._per_range, self._batch = handle, per_range, batch
        self._next = self._running = 0

    def begin(self, window: int) -> None:
        """See Window."""
        for _ in range(window):
            self._send(time.perf_counter())

    def _send(self, now: float) -> None:
        first, size = self._next, self._per_range
        self._next = first + size if first + 2 * size - 1 <= self._handle.last_add_confirmed else 0
        self._running += 1
        if self._batch:
            answer = self._handle.read_batch(first, size)
        else:
            answer = self._handle.read(first, first + size - 1)
        answer.addCallback(self._on_read, now).addErrback(self.failed)

    def _on_read(self, entries: list[Entry], began: float) -> None:
        now = time.perf_counter()
        if len(entries) != self._per_range:
            raise AssertionError(f"{len(entries)} entries instead of {self._per_range}")
        self._running -= 1
        self.latencies.append(now - began)
        if not self.stopping:
            self._send(now)
        elif not self._running:
            self.ended()


class Driver:
    """Carries out one command after the other."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._clients: dict[tuple[str, str], LedgerClient] = {}

    async def serve(self) -> None:
        """Until standard input ends."""
        while line := await deferToThread(sys.stdin.readline):
            try:
                say(await self._run(line.split()))
            except Exception as error:  # noqa: BLE001 - the edge of this process: the one who measures is told
                say({"error": f"{type(error).__name__}: {error}"})
        for client in self._clients.values():
            await client.close()

    async def _run(self, words: list[str]) -> dict[str, Any]:
        command, uri = words[:2]
        if command == "forget":
            for key in [key for key in self._clients if key[0] == uri]:
                await self._clients.pop(key).close()
            return {}
        client = await self._client(uri, words[2])
        if command == "delete":
            await client.delete(int(words[3]))
            return {}
        if command in ("write", "fill"):
            return await self._write(client, command, *map(float, words[3:]))
        if command in ("read", "batch"):
            return await self._read(client, command, *map(float, words[3:]))
        raise ValueError(f"unknown command {command}")

    async def _client(self, uri: str, version: str) -> LedgerClient:
        client = self._clients.get((uri, version))
        if client is None:
            settings = ClientSettings(
                metadata_service_uri=uri,
                use_v2=version == "2",
                window_entries_max=WINDOW_ENTRIES,
                connection_entries_max=WINDOW_ENTRIES,
                window_bytes_max=WINDOW_BYTES,
                connection_bytes_max=WINDOW_BYTES,
            )
            client = self._clients[uri, version] = await connect(uri, self._reactor, settings)
        return client

    async def _write(self, client: LedgerClient, command: str, *numbers: float) -> dict[str, Any]:
        ensemble, write_quorum, ack_quorum, size, count = map(int, numbers[:5])
        handle = await client.create(
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=DigestType.CRC32C,
            password=PASSWORD,
        )
        payload = random.Random(1).randbytes(size)
        result: dict[str, Any] = {}
        if command == "fill":
            await handle.append_many([payload] * count)
        else:
            result = await Adds(handle, payload).measure(self._reactor, count, numbers[5], 1)
        await handle.close()
        return {"ledger": handle.ledger_id, **result}

    async def _read(self, client: LedgerClient, command: str, *numbers: float) -> dict[str, Any]:
        ledger_id, ranges, per_range = map(int, numbers[:3])
        handle = await client.open_without_recovery(ledger_id, PASSWORD)
        try:
            reads = Reads(handle, per_range, batch=command == "batch")
            return await reads.measure(self._reactor, ranges, numbers[3], per_range)
        finally:
            await handle.close()


def main() -> None:
    """Serve the commands on standard input."""
    task.react(lambda reactor: Deferred.fromCoroutine(Driver(reactor).serve()))


if __name__ == "__main__":
    main()
