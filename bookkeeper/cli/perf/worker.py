"""One client process of a measurement. Started by `command.py`; reads its task as JSON from the command line.

Protocol with the parent, one JSON document a line: after warming up it prints {"ready": true} and waits for a line on
standard input, so that all workers measure at the same time; at the end it prints its result.

`outstanding` entries are in flight at all times, over all ledgers together (see `in_flight`); what an acknowledgement
frees is refilled at once. Latency: from the call that appends (or asks) to the acknowledgement (or the verified
payload).
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet import task
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from bookkeeper.cli.perf.in_flight import RANGE_MAX, LedgerReaders, LedgerWriters
from bookkeeper.cli.perf.measurement import Measurement
from bookkeeper.model import DigestType

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.writer import WriteHandle

CONCURRENT_MAX = 100
"""Ledgers created, opened or closed at once."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker does. Sizes in bytes, times in seconds. outstanding: over all ledgers of the worker together."""

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

    def reading(self, ledger_ids: Sequence[int]) -> Task:
        """The same, with each worker reading all of these ledgers."""
        return replace(self, kind="read", ledger_ids=tuple(ledger_ids), ledgers=len(ledger_ids))

    def to_json(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The inverse."""
        values = json.loads(text)
        return cls(**{**values, "ledger_ids": tuple(values["ledger_ids"])})


async def _say_ready_and_wait() -> None:
    print(json.dumps({"ready": True}), flush=True)
    await deferToThread(sys.stdin.readline)


async def _concurrently(begin: Callable[[T], Deferred[U]], items: Iterable[T]) -> list[U]:
    """The results of all, in order; a few at a time."""
    results: list[U] = []
    remaining = iter(items)
    while some := list(itertools.islice(remaining, CONCURRENT_MAX)):
        results += await gatherResults([begin(item) for item in some], consumeErrors=True)
    return results


async def _write(client: LedgerClient, job: Task, measurement: Measurement) -> dict[str, Any]:
    def create(_: int) -> Deferred[WriteHandle]:
        return client.create(
            ensemble=job.ensemble,
            write_quorum=job.write_quorum,
            ack_quorum=job.ack_quorum,
            digest=DigestType[job.digest],
            password=job.password.encode(),
        )

    handles = await _concurrently(create, range(job.ledgers))
    payload = random.Random(1).randbytes(job.entry_size)
    writers = LedgerWriters(handles, payload, job.outstanding, measurement)
    await writers.run(max(job.warmup_entries, job.ledgers))  # none stays empty: an empty one cannot be read
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    await writers.run()
    result = measurement.stop()
    await _concurrently(lambda handle: handle.close(), handles)
    return {**result, "ledger_ids": [handle.ledger_id for handle in handles]}


async def _read(client: LedgerClient, job: Task, measurement: Measurement) -> dict[str, Any]:
    password = job.password.encode()
    handles = await _concurrently(lambda ledger_id: client.open(ledger_id, password=password), job.ledger_ids)
    for handle in handles:
        if handle.last_add_confirmed < 0:
            raise ValueError(f"ledger {handle.ledger_id} is empty: nothing to read")
    await _concurrently(lambda handle: handle.read(0, min(handle.last_add_confirmed, RANGE_MAX - 1)), handles)
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    await LedgerReaders(handles, job.outstanding, measurement).run()
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
