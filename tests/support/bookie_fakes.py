"""A storage, a journal and a worker in plain memory that stop at every point where the real ones may wait.

`FakeStorage` keeps dictionaries; ledgers and entries can be made cold. `FakeJournal` queues until `sync` or `fail`.
`ManualWorker` runs nothing until told to. With them a test walks through a bookie's turns one by one.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any

from twisted.internet.task import Clock

from bookkeeper.bookie.bookie import Bookie, BookieBounds
from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.requests.known_lac import lac_of_packet
from bookkeeper.bookie.storage.held import runs_of
from bookkeeper.errors import JournalFull
from bookkeeper.metrics import Metrics
from bookkeeper.model import Status
from bookkeeper.wire.messages import (
    AddBatch,
    BatchRead,
    FenceRead,
    ForceLedger,
    ListEntries,
    LongPollRead,
    ReadBatch,
    ReadLac,
    WriteLac,
)
from bookkeeper.wire.packed_bodies import PackedBodies
from tests.support.simulated_clock import WALL_MS

KEY = b"k" * 20
OTHER_KEY = b"x" * 20
TOKEN = b"\x02\x01\x00\x00"


def body_of(ledger_id: int, entry_id: int, payload: bytes = b"payload", *, lac: int = -1) -> bytes:
    """A stored entry without a digest."""
    return struct.pack(">qqqq", ledger_id, entry_id, lac, len(payload)) + payload


def lac_packet(ledger_id: int, lac: int) -> bytes:
    """An explicit-LAC packet without a digest."""
    return struct.pack(">qq", ledger_id, lac)


class FakeStorage:
    """Ledgers as dictionaries. cold_ledgers: to be loaded first. cold_entries: (ledger, entry) on the disk only."""

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, bytes]] = {}
        self.keys: dict[int, bytes] = {}
        self.journaled_keys: set[int] = set()
        self.journaled_fences: set[int] = set()
        self.fenced: set[int] = set()
        self.lacs: dict[int, bytes] = {}
        self.damaged_entries: set[tuple[int, int]] = set()
        self.cold_ledgers: set[int] = set()
        self.cold_entries: set[tuple[int, int]] = set()
        self.is_full = False
        self.takes_ledgers = True
        self.error: Exception | None = None
        """Raised by the next `add`."""
        self.cold_error: Exception | None = None
        """Raised by cold calls."""
        self.tombstones: dict[int, TombstoneKind] = {}
        self.doomed: set[int] = set()
        self.runs: Callable[[int, int, int, int], PackedBodies | None] = lambda *_: None
        self.written: set[int] = set()
        """Ledgers with something unwritten: they cannot be doomed."""
        self.delete_error: Exception | None = None

    def tombstone(self, ledger_id: int) -> TombstoneKind | None:
        return self.tombstones.get(ledger_id)

    def doom(self, ledger_ids: Iterable[int]) -> list[int]:
        doomed = [ledger_id for ledger_id in ledger_ids if ledger_id not in self.written]
        self.doomed.update(doomed)
        return doomed

    def delete(self, deletion: Deletion) -> None:
        assert self.doomed.issuperset(deletion.ledger_ids)
        if self.delete_error is not None:
            raise self.delete_error
        for ledger_id in deletion.ledger_ids:
            if deletion.moved:
                self.tombstones[ledger_id] = TombstoneKind.MOVED
            elif ledger_id in self.fenced:
                self.tombstones[ledger_id] = TombstoneKind.DELETED
            for table in (self.entries, self.keys, self.lacs):
                table.pop(ledger_id, None)
            self.fenced.discard(ledger_id)
            self.journaled_keys.discard(ledger_id)
            self.journaled_fences.discard(ledger_id)

    def revive(self, ledger_ids: Iterable[int]) -> None:
        self.doomed.difference_update(ledger_ids)

    def is_loaded(self, ledger_id: int) -> bool:
        return ledger_id not in self.cold_ledgers

    def load_cold(self, ledger_id: int) -> None:
        if self.cold_error is not None:
            raise self.cold_error
        self.cold_ledgers.discard(ledger_id)

    def add(self, ledger_id: int, entry_ids: Sequence[int], bodies: Sequence[bytes]) -> None:
        if self.error is not None:
            raise self.error
        self.entries.setdefault(ledger_id, {}).update(zip(entry_ids, bodies, strict=True))
        self.damaged_entries.difference_update((ledger_id, entry_id) for entry_id in entry_ids)

    def add_plain(self, batches: Sequence[AddBatch], start: int, shut: Container[int]) -> int:
        for position in range(start, len(batches)):
            batch = batches[position]
            if (
                self.error is not None
                or batch.recovery
                or batch.deferred_sync
                or batch.ledger_id in shut
                or batch.ledger_id in self.cold_ledgers
                or batch.ledger_id in self.fenced
                or batch.ledger_id not in self.journaled_keys
                or self.keys.get(batch.ledger_id) != batch.master_key
                or sorted(set(batch.entry_ids)) != batch.entry_ids
                or not self.all_new(batch.ledger_id, batch.entry_ids)
            ):
                return position
            self.add(batch.ledger_id, batch.entry_ids, batch.bodies)
        return len(batches)

    def damaged(self, ledger_id: int, entry_ids: Sequence[int]) -> Collection[int]:
        return {entry_id for entry_id in entry_ids if (ledger_id, entry_id) in self.damaged_entries}

    def all_new(self, ledger_id: int, entry_ids: Sequence[int]) -> bool:
        return not self.entries.get(ledger_id) or min(entry_ids) > max(self.entries[ledger_id])

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        cold = [(ledger_id, entry_id) in self.cold_entries for entry_id in entry_ids]
        found = self.read_cold(ledger_id, entry_ids) if not all(cold) else [Status.NO_ENTRY] * len(cold)
        return [None if is_cold else result for is_cold, result in zip(cold, found, strict=True)]

    def read_run(self, ledger_id: int, first_entry_id: int, count_max: int, size_max: int) -> PackedBodies | None:
        """Nothing lies together here, unless a test says so."""
        assert count_max > 1
        return self.runs(ledger_id, first_entry_id, count_max, size_max)

    def read_cold(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        if self.cold_error is not None:
            raise self.cold_error
        absent = Status.NO_ENTRY if self.exists(ledger_id) else Status.NO_LEDGER
        return [
            Status.IO_ERROR
            if (ledger_id, entry_id) in self.damaged_entries
            else self.entries.get(ledger_id, {}).get(entry_id, absent)
            for entry_id in entry_ids
        ]

    def held_cold(self, ledger_id: int, first: int, stop: int) -> list[range]:
        if self.cold_error is not None:
            raise self.cold_error
        held = self.entries.get(ledger_id, {})
        return runs_of(bytes(entry_id in held for entry_id in range(first, stop)), first)

    def exists(self, ledger_id: int) -> bool:
        return ledger_id in self.keys or ledger_id in self.entries

    def last_entry_id(self, ledger_id: int) -> int | None:
        return max(self.entries.get(ledger_id, {}), default=None)

    def master_key(self, ledger_id: int) -> bytes | None:
        return self.keys.get(ledger_id)

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        self.keys[ledger_id] = key

    def is_key_journaled(self, ledger_id: int) -> bool:
        return ledger_id in self.journaled_keys

    def key_journaled(self, ledger_id: int) -> None:
        self.journaled_keys.add(ledger_id)

    def is_fence_journaled(self, ledger_id: int) -> bool:
        return ledger_id in self.journaled_fences

    def fence_journaled(self, ledger_id: int) -> None:
        self.journaled_fences.add(ledger_id)

    def is_fenced(self, ledger_id: int) -> bool:
        return ledger_id in self.fenced

    def set_fenced(self, ledger_id: int) -> bool:
        newly = ledger_id not in self.fenced
        self.fenced.add(ledger_id)
        return newly

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        return self.lacs.get(ledger_id)

    def set_explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        self.lacs[ledger_id] = max(packet, self.lacs.get(ledger_id, packet), key=lac_of_packet)


class FakeJournal:
    """Appended batches wait until `sync`, as if during one long fdatasync. durable: record payloads that are synced."""

    def __init__(self) -> None:
        self.full = False
        self.durable: list[bytes] = []
        self.queued: list[bytes] = []
        self.pending_bytes = 0
        self._waiting: deque[Callable[[BaseException | None], None]] = deque()
        self._deferred: deque[Callable[[BaseException | None], None]] = deque()

    def append(
        self,
        parts: Sequence[bytes],
        size: int,
        on_durable: Callable[[BaseException | None], None],
        record_count: int = 1,
        *,
        deferred: bool = False,
    ) -> None:
        if self.full:
            raise JournalFull("the journal is full")
        data = b"".join(parts)
        assert len(data) == size
        self.queued += split_records(data)
        self.pending_bytes += size
        (self._deferred if deferred else self._waiting).append(on_durable)

    def barrier(self, on_durable: Callable[[BaseException | None], None]) -> None:
        if self.full:
            raise JournalFull("the journal is full")
        if self.queued:
            self._waiting.append(on_durable)
        else:
            on_durable(None)

    def write(self) -> None:
        """Everything queued is in the file, nothing more of it is durable."""
        deferred, self._deferred = self._deferred, deque()
        for on_durable in deferred:
            on_durable(None)

    def sync(self) -> None:
        """One group commit: everything queued is written, then durable, and told so in order."""
        self.write()
        waiting, self._waiting = self._waiting, deque()
        self.durable += self.queued
        self.queued, self.pending_bytes = [], 0
        for on_durable in waiting:
            on_durable(None)

    def fail(self, error: BaseException) -> None:
        """The sync failed; what was queued is lost."""
        waiting, self._waiting = [*self._deferred, *self._waiting], deque()
        self._deferred = deque()
        self.queued = []
        for on_durable in waiting:
            on_durable(error)


def split_records(data: bytes) -> list[bytes]:
    """Payloads of framed journal records."""
    records = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        records.append(data[4 : 4 + size])
        data = data[4 + size :]
    return records


def ids_of(records: list[bytes]) -> list[tuple[int, int]]:
    """Ledger and entry id of each journal record."""
    return [struct.unpack_from(">qq", record) for record in records]


class ManualWorker:
    """A worker whose work waits for `run_next`."""

    name = "manual"

    def __init__(self) -> None:
        self.queue: deque[tuple[Callable[[], Any], Callable[[Any], object], Callable[[BaseException], object]]] = (
            deque()
        )

    def submit(
        self, work: Callable[[], Any], on_done: Callable[[Any], object], on_error: Callable[[BaseException], object]
    ) -> None:
        self.queue.append((work, on_done, on_error))

    def run_work(self) -> Callable[[], object]:
        """Do the next piece of work; its result is told when the returned call is made."""
        work, on_done, on_error = self.queue.popleft()
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - a worker hands every error on
            failure = error
            return lambda: on_error(failure)
        return lambda: on_done(result)

    def run_next(self) -> None:
        """Do the next piece of work and tell its result."""
        self.run_work()()

    def run_all(self) -> None:
        """Until nothing is queued."""
        while self.queue:
            self.run_next()

    def stop(self) -> Any:
        """Not part of these tests."""
        raise AssertionError("no test stops the worker")


class Answers(list[Any]):
    """Collects what a request is answered: one tuple per answer."""

    def __call__(self, *answer: Any) -> None:
        self.append(answer[0] if len(answer) == 1 else answer)


class Seat:
    """What a connection knows of a long poll. room: whether the answer may hold an entry."""

    def __init__(self, *, room: bool = True, taken: bool = False) -> None:
        self.room = room
        self.taken = taken
        self.waiting = False
        self.cancel: Callable[[], None] = lambda: None

    def may_wait(self) -> bool:
        return not self.taken

    def on_wait(self, cancel: Callable[[], None]) -> None:
        self.waiting, self.cancel = True, cancel

    def on_resume(self) -> bool:
        self.waiting = False
        return self.room


class BookieBench:
    """A bookie over the fakes, and its requests in short form. Each returns the list that its answers arrive in."""

    def __init__(self, *, journal_count: int = 1, bounds: BookieBounds | None = None) -> None:
        self.storage = FakeStorage()
        self.journals = [FakeJournal() for _ in range(journal_count)]
        self.journal = self.journals[0]
        self.worker = ManualWorker()
        self.mode = ModeSwitch()
        self.exits: list[BaseException] = []
        self.clock = Clock()
        self.metrics = Metrics()
        self.bookie = Bookie(
            self.storage,
            self.journals,
            self.worker,
            self.mode,
            self.clock,
            exit=self.exits.append,
            bounds=bounds or BookieBounds(),
            metrics=self.metrics,
            now_ms=lambda: WALL_MS + int(self.clock.seconds() * 1000),
        )

    def add(
        self,
        entry_ids: int | Sequence[int],
        *,
        ledger_id: int = 7,
        key: bytes = KEY,
        payload: bytes = b"payload",
        lac: int = -1,
        recovery: bool = False,
        high_priority: bool = False,
        deferred: bool = False,
    ) -> Answers:
        ids = [entry_ids] if isinstance(entry_ids, int) else list(entry_ids)
        bodies = [body_of(ledger_id, entry_id, payload, lac=lac) for entry_id in ids]
        answers = Answers()
        batch = AddBatch(ledger_id, key, ids, bodies, lac, recovery, high_priority, deferred, TOKEN)
        self.bookie.add_many([batch], lambda answered, status: answers(status))
        return answers

    def read(self, *entry_ids: int, ledger_id: int = 7, with_lac: bool = False) -> Answers:
        answers = Answers()
        self.bookie.read(ReadBatch(ledger_id, list(entry_ids), TOKEN), answers, with_lac=with_lac)
        return answers

    def fence(self, entry_id: int = -1, *, ledger_id: int = 7, key: bytes | None = KEY) -> Answers:
        answers = Answers()
        self.bookie.fence_read(FenceRead(ledger_id, entry_id, key, False, TOKEN), answers)
        return answers

    def write_lac(self, lac: int, *, ledger_id: int = 7, key: bytes = KEY, digest: bytes = b"") -> Answers:
        answers = Answers()
        self.bookie.write_lac(WriteLac(ledger_id, key, lac_packet(ledger_id, lac) + digest, TOKEN), answers)
        return answers

    def read_lac(self, *, ledger_id: int = 7) -> Answers:
        answers = Answers()
        self.bookie.read_lac(ReadLac(ledger_id, TOKEN), answers)
        return answers

    def force(self, *, ledger_id: int = 7) -> Answers:
        answers = Answers()
        self.bookie.force(ForceLedger(ledger_id, TOKEN), answers)
        return answers

    def list_entries(self, *, ledger_id: int = 7, runs_max: int = 1000) -> Answers:
        answers = Answers()
        self.bookie.list_entries(ListEntries(ledger_id, TOKEN), answers, runs_max=runs_max)
        return answers

    def batch_read(
        self,
        first_entry_id: int,
        count_max: int = 0,
        size_max: int = 1 << 20,
        *,
        ledger_id: int = 7,
        fence: bool = False,
        key: bytes | None = KEY,
    ) -> Answers:
        answers = Answers()
        request = BatchRead(ledger_id, first_entry_id, 1, count_max, size_max, fence, key, TOKEN)
        self.bookie.batch_read(request, answers, answer_bytes_max=1 << 20)
        return answers

    def long_poll(
        self,
        previous_lac: int,
        timeout_ms: int | None = 1000,
        *,
        entry_id: int = -1,
        ledger_id: int = 7,
        piggyback: bool = True,
        seat: Seat | None = None,
    ) -> Answers:
        answers = Answers()
        request = LongPollRead(ledger_id, entry_id, previous_lac, timeout_ms, piggyback, TOKEN)
        self.bookie.long_poll(request, answers, seat or Seat())
        return answers

    def settle(self) -> None:
        """Run the worker and sync the journals until nothing waits."""
        while self.worker.queue or any(journal.pending_bytes for journal in self.journals):
            self.worker.run_all()
            for journal in self.journals:
                journal.sync()
