"""One client process of a measurement. Started by `run.py`; reads its task as JSON from the command line.

Protocol with the parent, one JSON document a line: after warming up it prints {"ready": true} and waits for a line on
standard input, so that all workers measure at the same time; at the end it prints its result. {"error": "..."} instead
of either says in words what went wrong.

`outstanding` entries are in flight at all times, over all ledgers together (see `in_flight`); what an acknowledgement
frees is refilled at once. Latency: from the call that appends (or asks) to the acknowledgement (or the verified
payload).
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from bookkeeper.cli.perf.in_flight import RANGE_MAX, LedgerReaders, LedgerWriters
from bookkeeper.cli.perf.measurement import Measurement
from bookkeeper.console.output import expected_text
from bookkeeper.console.supervision import run_coroutine
from bookkeeper.logs import show_metadata_session
from bookkeeper.model import DigestType, LedgerMetadata

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.client.write.write_handle import WriteHandle
    from bookkeeper.config import ClientSettings

CONCURRENT_MAX = 100
"""Ledgers created, opened or closed at once."""

T = TypeVar("T")
U = TypeVar("U")


class Replication(NamedTuple):
    """How a ledger is replicated and checked. digest: a DigestType's name, "unknown" for ledgers older than 4.2."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    digest: str

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Replication:
        """That of a ledger."""
        digest = metadata.digest_type.name if metadata.digest_type is not None else "unknown"
        return cls(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum, digest)


@dataclass(frozen=True, slots=True)
class NewLedgers:
    """What one worker writes. entry_size: payload bytes. warmup_entries: over all its ledgers together."""

    replication: Replication
    entry_size: int
    count: int
    warmup_entries: int


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker does: writes `new` ledgers, or reads those of `ledger_ids`.

    outstanding: entries in flight over all ledgers of the worker together. password: None is the settings'.
    conf, defines: the client settings, as on the command line. verbose: show where an error came from.
    """

    uri: str
    outstanding: int
    seconds: float
    use_v2: bool
    new: NewLedgers | None = None
    ledger_ids: tuple[int, ...] = ()
    password: str | None = None
    conf: str | None = None
    defines: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False

    @property
    def kind(self) -> str:
        """ "write" or "read"."""
        return "read" if self.new is None else "write"

    @property
    def ledger_count(self) -> int:
        """Of one worker."""
        return len(self.ledger_ids) if self.new is None else self.new.count

    def reading(self, ledger_ids: Sequence[int]) -> Task:
        """The same, with each worker reading all of these ledgers."""
        return replace(self, new=None, ledger_ids=tuple(ledger_ids))

    def to_json(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The inverse."""
        values = json.loads(text)
        if (new := values["new"]) is not None:
            values["new"] = NewLedgers(**{**new, "replication": Replication(*new["replication"])})
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


async def _write(client: LedgerClient, job: Task, new: NewLedgers, measurement: Measurement) -> dict[str, Any]:
    replication = new.replication

    def create(_: int) -> Deferred[WriteHandle]:
        return client.create(
            ensemble=replication.ensemble,
            write_quorum=replication.write_quorum,
            ack_quorum=replication.ack_quorum,
            digest=DigestType[replication.digest],
            password=_password(job),
        )

    handles = await _concurrently(create, range(new.count))
    payload = random.Random(1).randbytes(new.entry_size)
    writers = LedgerWriters(handles, payload, job.outstanding, measurement)
    await writers.run(max(new.warmup_entries, new.count))  # none stays empty: an empty one cannot be read
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    await writers.run()
    result = measurement.stop()
    await _concurrently(lambda handle: handle.close(), handles)
    return {**result, **_what_was_used(handles)}


async def _read(client: LedgerClient, job: Task, measurement: Measurement) -> dict[str, Any]:
    # Without recovery: that would fence whoever writes the ledger, and a measurement must not.
    handles = await _concurrently(
        lambda ledger_id: client.open_without_recovery(ledger_id, _password(job)), job.ledger_ids
    )
    await _concurrently(lambda handle: handle.read(0, min(handle.last_add_confirmed, RANGE_MAX - 1)), handles)
    await _say_ready_and_wait()
    measurement.start(lambda: client.transport_writes)
    before = client.entries_in_batches
    await LedgerReaders(handles, job.outstanding, measurement).run()
    batched = client.entries_in_batches - before
    return {**measurement.stop(), **_what_was_used(handles), "batched": batched}


def _password(job: Task) -> bytes | None:
    return None if job.password is None else job.password.encode()


def _what_was_used(handles: Sequence[WriteHandle | ReadHandle]) -> dict[str, Any]:
    return {
        "ledger_ids": [handle.ledger_id for handle in handles],
        "replications": sorted({Replication.of(handle.metadata) for handle in handles}),
    }


def _settings(job: Task) -> ClientSettings:
    from bookkeeper.config import load_client

    conf = Path(job.conf) if job.conf is not None else None
    settings = load_client(conf, {**job.defines, "metadataServiceUri": job.uri}).settings
    payload_size = job.new.entry_size if job.new is not None else 0
    return replace(
        settings,
        use_v2=job.use_v2,
        window_entries_max=max(settings.window_entries_max, job.outstanding),
        connection_entries_max=max(settings.connection_entries_max, job.outstanding),
        window_bytes_max=max(256 << 20, settings.window_bytes_max, job.outstanding * (payload_size + 1024)),
    )


async def _measure(reactor: Any, job: Task) -> dict[str, Any]:
    from bookkeeper.client.client import connect

    client = await connect(job.uri, reactor, _settings(job))
    measurement = Measurement(job.seconds)
    try:
        if job.new is not None:
            return await _write(client, job, job.new, measurement)
        return await _read(client, job, measurement)
    finally:
        await client.close()


async def _run(reactor: Any, job: Task) -> None:
    try:
        result = await _measure(reactor, job)
    except Exception as error:  # noqa: BLE001 - the edge of this process: the parent says it in one line
        if job.verbose:
            traceback.print_exc()
        result = {"error": expected_text(error) or f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)


def main() -> NoReturn:
    """Run the task given as the first argument."""
    job = Task.from_json(sys.argv[1])
    if job.verbose:
        show_metadata_session()
    run_coroutine(lambda reactor: _run(reactor, job))


if __name__ == "__main__":
    main()
