"""A bookie's process on a disk in memory: the real classes, put together as `bookkeeper.bookie.server` does, in turns.

Whatever a thread does is a turn: a piece of work of a worker, a timer, or the asking of a request. Turns follow each
other as a generator made from the story's name decides, so every run of a story takes the same operations of the disk
in the same order.

    machine = Machine(layout)          disk, metadata store; outlives processes
    bookie = BookieProcess(machine, history, seed)
    bookie.start()                     locks, cookies, replay, journals; raises what keeps a bookie from starting
    bookie.add(...); bookie.settle()   requests and their answers go to the history
    bookie.stop() | machine.kill()     orderly | the process is gone, the disk's cache stays
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.gc.candidates import CompactionKind, CompactionSettings
from bookkeeper.bookie.gc.collector import GarbageCollector
from bookkeeper.bookie.gc.compactor import CompactionRate
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.identity.identity import directories_of, establish, lock_directories
from bookkeeper.bookie.identity.sessions import SessionFile
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.bookie.process import startup
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.storage.checkpoint import Checkpointer
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import NoWritableDisk, StorageError
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.metadata.memory.store import INSTANCE_ID, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerId, LedgerMetadata, LedgerState, Status
from bookkeeper.wire.messages import AddBatch, FenceRead, ForceLedger, WriteLac
from tests.crashpoints.history import (
    Add,
    Answered,
    Asked,
    Deleted,
    Event,
    Fence,
    Force,
    History,
    Lac,
    Moved,
    Repairing,
    Request,
    Returned,
    body_of,
    key_of,
)
from tests.crashpoints.upkeep import NO_UPKEEP, Upkeep, UpkeepSettings
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess
from tests.support.stored_ledgers import lac_packet

T = TypeVar("T")

TURNS_MAX = 100_000
"""Of one wait; more is a bookie that goes round in circles."""

ID = BookieId("bookie:3181")

METADATA = LedgerMetadata(1, 1, 1, (Fragment(EntryId(0), (ID,)),))

ELSEWHERE = replace(
    METADATA,
    fragments=(Fragment(EntryId(0), (BookieId("other:3181"),)),),
    state=LedgerState.CLOSED,
    last_entry_id=EntryId(5),
    length=6,
)
RETURNED = replace(ELSEWHERE, fragments=METADATA.fragments)

NOW_MS = 1_700_000_000_000

IDS_GIVEN_OUT = 2**30
"""All ids of the stories are below it."""

NOTE = f"/underreplication/history/{ID}"

GARBAGE = GarbageSettings(
    wait_s=1e6,
    overreplicated_wait_s=-1,
    compaction=CompactionSettings(major_threshold=0.9),
    rate=CompactionRate(entries_per_s=0),
)
"""A round only when a story orders one; then everything with a tenth of dead bytes is rewritten."""

JOURNALS = JournalSettings(
    file_size_max=3 * 1024,
    preallocation_size=2048,
    preparation_slice_size=1024,
    backups_max=0,
    group_bytes_max=2048,
    pending_bytes_max=1 << 20,
    recycle=True,
)
STORAGE = StorageSettings(
    memtable_bytes_max=4096,
    index_cache_bytes_max=1 << 20,
    open_files_max=8,
    entry_log_bytes_max=2560,
    block_bytes=512,
    flush_interval_s=1.0,
    journal_bytes_between_checkpoints_max=1 << 20,
    checkpoint_duty_max=1.0,
)
"""Small sizes: a few dozen entries fill journals and logs; a checkpoint writes its index files in several batches."""


@dataclass(frozen=True)
class Layout:
    """How a bookie is configured."""

    journal_dirs: tuple[str, ...] = ("/j1", "/j2")
    ledger_dirs: tuple[str, ...] = ("/l1", "/l2")
    index_dirs: tuple[str, ...] = ()
    journals: JournalSettings = JOURNALS
    storage: StorageSettings = STORAGE
    garbage: GarbageSettings = GARBAGE
    upkeep: UpkeepSettings = NO_UPKEEP

    @property
    def cookie(self) -> Cookie:
        """What identifies the bookie."""
        return Cookie(ID, self.journal_dirs, self.ledger_dirs, INSTANCE_ID, self.index_dirs or self.ledger_dirs)


class Turns:
    """A worker without a thread; somebody else says when its next piece runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy = False
        self._queue: deque[tuple[Callable[[], Any], Callable[[Any], object], Callable[[BaseException], object]]] = (
            deque()
        )

    @property
    def ready(self) -> bool:
        """Something waits, and nothing of this worker is under way."""
        return bool(self._queue) and not self.busy

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], object], on_error: Callable[[BaseException], object]
    ) -> None:
        """See ports.Worker."""
        self._queue.append((work, on_done, on_error))

    def run_one(self) -> None:
        """The oldest piece and its callback."""
        work, on_done, on_error = self._queue.popleft()
        self.busy = True
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - as a real worker does
            self.busy = False
            on_error(error)
        else:
            self.busy = False
            on_done(result)

    def stop(self) -> Deferred[None]:
        """See ports.Worker."""
        return succeed(None)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the metadata store keeps of the bookie: its cookie, and its note on the store's history."""

    cookie: bytes | None
    note: bytes | None


class Machine:
    """What outlives a process: the disk, and what the cluster's metadata says."""

    def __init__(
        self,
        layout: Layout,
        fs: FaultyFileSystem | None = None,
        *,
        stored: Stored | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        self.layout = layout
        self.fs = fs or FaultyFileSystem()
        self.clock = SimulatedClock()
        self.metadata = MemoryMetadata(clock=self.clock)
        self._store = MemoryMetadataStore(self.metadata, self.clock, random.Random(0))
        self._make("/idgen", b"")
        self.metadata.set_sequence(f"{self.metadata.root}/idgen", IDS_GIVEN_OUT)
        if stored is not None and stored.cookie is not None:
            self._store.cookies.write(ID, stored.cookie, None)
        if stored is not None and stored.note is not None:
            for path in ("/underreplication", "/underreplication/history"):
                self._make(path, b"")
            self._make(NOTE, stored.note)
        self._ledgers: set[int] = set()
        self._locks: dict[int, Deferred[Any]] = {}
        for event in events:
            if isinstance(event, Asked):
                self.note_ledger(event.request.ledger_id)
        for event in events:
            self.follow(event)

    def note_ledger(self, ledger_id: int) -> None:
        """The metadata store has the ledger, or had it."""
        if ledger_id not in self._ledgers:
            self._ledgers.add(ledger_id)
            self._store.ledgers.create(METADATA, LedgerId(ledger_id))

    def follow(self, event: Event) -> None:
        """The metadata store changes, or somebody's lock there, if that is what the event is about."""
        ledgers, locks = self._store.ledgers, self._store.underreplication
        if isinstance(event, Deleted):
            ledger_id = LedgerId(event.ledger_id)
            ledgers.read(ledger_id).addCallback(lambda found: ledgers.delete(ledger_id, found.version))
        elif isinstance(event, Moved | Returned):
            ledger_id, metadata = LedgerId(event.ledger_id), ELSEWHERE if isinstance(event, Moved) else RETURNED
            ledgers.read(ledger_id).addCallback(lambda found: ledgers.write(ledger_id, metadata, found.version))
            if isinstance(event, Returned):
                self._locks.pop(event.ledger_id).addCallback(lambda lock: lock.release())
        elif isinstance(event, Repairing):
            self._locks[event.ledger_id] = locks.lock(LedgerId(event.ledger_id), "another", lambda: None)

    @property
    def stored(self) -> Stored:
        """What the metadata store keeps of the bookie now."""
        metadata = self.metadata
        return Stored(metadata.stored(f"{metadata.root}/cookies/{ID}"), metadata.stored(metadata.root + NOTE))

    def _make(self, path: str, data: bytes) -> None:
        self.metadata.znodes.create(self.metadata.root + path, data, NodeKind.PERSISTENT, 0)

    def kill(self) -> None:
        """kill -9: handles and locks are gone; what was written is in the cache."""
        self.fs.end_processes()


@dataclass
class BookieProcess:
    """One process of the bookie. Whatever it is asked, and answers, is in the history.

    failure: what ended it (I-48); from then on it takes no more turns than those that are under way.
    """

    machine: Machine
    history: History
    seed: str
    failure: BaseException | None = None
    workers: list[Turns] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = random.Random(self.seed)
        self._process = SimulatedProcess("bookie", self.machine.clock)
        self.mode = ModeSwitch()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Raises what keeps the bookie from starting: BookKeeperError, OSError."""
        self.wait_for(Deferred.fromCoroutine(self._start()))

    async def _start(self) -> None:
        layout, fs, clock = self.machine.layout, self.machine.fs, self._process.clock
        store = MemoryMetadataStore(self.machine.metadata, clock, self._order)
        self._process.on_crash(store.crash)
        cookie = layout.cookie
        self._locks = lock_directories(fs, directories_of(cookie))
        await establish(fs, store.cookies, cookie, [], expansion_allowed=False, cluster_uri="memory")
        storage_worker, read_worker = self._worker("storage"), self._worker("read")
        self.upkeep = Upkeep(layout.upkeep, fs, clock, self.mode, self._worker, self._fail)
        self.upkeep.keep_status(layout.journal_dirs[0], read_worker, lambda: NOW_MS + round(clock.seconds() * 1000))
        self.directories = LedgerDirectories(layout.ledger_dirs, layout.index_dirs)
        self.storage = LedgerStorage(fs, self.directories, layout.storage, now_ms=lambda: NOW_MS)
        ends = await self._on(
            storage_worker, partial(startup.recover, fs, self.storage, layout.journal_dirs, layout.ledger_dirs)
        )
        self.journals: list[Journal] = []
        for index, (directory, end) in enumerate(zip(layout.journal_dirs, ends, strict=True)):
            journal = Journal(
                fs,
                current(directory),
                self._worker(f"journal-{index}"),
                clock,
                layout.journals,
                index=index,
                now_ms=lambda: int(clock.seconds() * 1000),  # a story's files have the same names each time
            )
            journal.on_failed = self._fail
            self.journals.append(journal)
            await journal.start(end)
        mark_dirs = [current(directory) for directory in layout.ledger_dirs]
        self.checkpointer = Checkpointer(
            self.storage,
            self.journals,
            partial(startup.persist_marks, fs, mark_dirs),
            storage_worker,
            clock,
            layout.storage,
            on_failure=self._fail,
            on_disks_full=self.upkeep.on_no_room,
            on_room=self.upkeep.on_room,
        )
        self.upkeep.watch_disks(self.directories, read_worker)
        if layout.upkeep.disks is not None:
            await self._on(read_worker, lambda: None)  # they were looked at once
        self.bookie = Bookie(
            self.storage,
            self.journals,
            read_worker,
            self.mode,
            clock,
            exit=self._exit,
            after_add=self.checkpointer.after_add,
        )
        self.checkpointer.start()
        self.collector = GarbageCollector(
            fs,
            self.directories,
            self.storage,
            self.bookie.removal(storage_worker),
            self.checkpointer,
            store,
            clock,
            worker=self._worker("garbage"),
            storage_worker=storage_worker,
            settings=layout.garbage,
            instance_id=INSTANCE_ID,
            bookie_id=ID,
            wall_s=lambda: NOW_MS / 1000,
            on_failure=self._fail,
        )
        self.collector.start()
        self.upkeep.scrub(self.storage)
        await SessionFile(fs, current(layout.journal_dirs[0]), read_worker).add(0x15)

    def _worker(self, name: str) -> Turns:
        worker = Turns(name)
        self.workers.append(worker)
        return worker

    def _on(self, worker: Turns, work: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        worker.submit(work, done.callback, done.errback)
        return done

    def stop(self) -> None:
        """In order: answer what is in flight, checkpoint, close the journals. Raises StorageError when it failed."""
        self.wait_for(self.collector.stop())
        self.wait_for(self.upkeep.stop_scrub())
        self.bookie.stop()
        self.settle()
        self.upkeep.stop_watching()
        with contextlib.suppress(NoWritableDisk):  # as the server: the next start replays
            self.wait_for(self.checkpointer.stop())
        for journal in self.journals:
            self.wait_for(journal.stop())
        self.wait_for(self.upkeep.note_end("stopped"))
        self.storage.close()
        for lock in self._locks:
            lock.release()
        self._process.crash()

    def _fail(self, error: BaseException) -> None:
        if getattr(self, "bookie", None) is not None:
            self.bookie.fail(error)
        else:
            self._exit(error)

    def _exit(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.upkeep.note_end("failed", error)

    # --- turns --------------------------------------------------------------------------------------------------------

    def turn(self, *names: str) -> bool:
        """Run one piece of work of any worker that is ready (or of those named so); False when there is none."""
        ready = [worker for worker in self.workers if worker.ready and (not names or worker.name in names)]
        if not ready:
            return False
        self._order.choice(ready).run_one()
        return True

    def wait_for(self, done: Deferred[T]) -> T:
        """Take turns until it fires; its result or error. StorageError when the bookie fails before."""
        outcome: list[Any] = []
        done.addBoth(outcome.append)
        self._run_until(lambda: bool(outcome))
        if not outcome:
            raise StorageError(f"the bookie failed: {self.failure}") from self.failure
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]  # type: ignore[no-any-return]

    def settle(self) -> None:
        """Take turns until everything asked is answered and no worker has anything to do, or the bookie has failed."""
        self._run_until(lambda: not self.bookie.in_flight)
        while self.turn():
            pass

    def pass_time(self, seconds: float) -> None:
        """Let timers run, and what they start."""
        end = self.machine.clock.seconds() + seconds
        self.machine.clock.schedule(seconds, lambda: None, (), {}, None)
        while self.machine.clock.seconds() < end and self.failure is None:
            if not self.turn():
                self.machine.clock.step()
        while self.turn():
            pass

    def _run_until(self, done: Callable[[], bool]) -> None:
        """Or until it has failed; then what is under way still ends, as in the moment before a process exits."""
        for _ in range(TURNS_MAX):
            if done():
                return
            if self.turn():
                continue
            if self.failure is not None:
                return
            if not self.machine.clock.step():
                break
        raise AssertionError("the bookie waits for something that never comes")

    # --- requests -----------------------------------------------------------------------------------------------------

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        *,
        recovery: bool = False,
        deferred: bool = False,
        key: bytes | None = None,
        version: int = 0,
        lac: int = -1,
        bodies: Sequence[bytes] | None = None,
    ) -> Asked:
        """Add entries; `version` tells different bodies of one entry apart, `bodies` replaces them."""
        if bodies is None:
            bodies = [body_of(ledger_id, entry_id, version, lac=lac) for entry_id in entry_ids]
        key = key_of(ledger_id) if key is None else key
        asked = self._ask(Add(ledger_id, key, dict(zip(entry_ids, bodies, strict=True)), deferred))
        batch = AddBatch(ledger_id, key, list(entry_ids), list(bodies), lac, recovery, False, deferred, None)
        self.bookie.add_many([batch], lambda _, status: self._answer(asked, status))
        return asked

    def fence(self, ledger_id: int, *, entry_id: int = -1) -> Asked:
        """A fencing read."""
        asked = self._ask(Fence(ledger_id, key_of(ledger_id)))
        request = FenceRead(ledger_id, entry_id, key_of(ledger_id), False, None)
        self.bookie.fence_read(request, partial(self._answer, asked))
        return asked

    def write_lac(self, ledger_id: int, lac: int) -> Asked:
        """An explicit LAC."""
        packet = lac_packet(ledger_id, lac)
        asked = self._ask(Lac(ledger_id, key_of(ledger_id), packet))
        request = WriteLac(ledger_id, key_of(ledger_id), packet, None)
        self.bookie.write_lac(request, partial(self._answer, asked))
        return asked

    def force(self, ledger_id: int) -> Asked:
        """Everything deferred before must be durable."""
        asked = self._ask(Force(ledger_id))
        self.bookie.force(ForceLedger(ledger_id, None), partial(self._answer, asked))
        return asked

    def _answer(self, asked: Asked, answer: bytes | Status) -> None:
        assert self.failure is None, "a bookie that failed does not answer (I-48)"
        self.history.note(Answered(asked.number, answer))

    def rotate_and_flush(self) -> None:
        """Write the buffer to the entry log; nothing is synced."""
        self.storage.rotate()
        self.storage.flush_snapshot()

    def checkpoint(self, *, ahead: bool = False) -> None:
        """One checkpoint, from its marks to the collection of journals. Raises what made it fail.

        ahead: the storage worker alone takes turns.
        """
        done = self.checkpointer.checkpoint_now()
        while ahead and self.turn("storage"):
            pass
        self.wait_for(done)
        while self.turn():
            pass

    def collect(self) -> None:
        """A round of garbage collection, with compaction. StorageError when the bookie fails."""
        self.wait_for(self.collector.force(CompactionKind.MAJOR))
        while self.turn():
            pass

    def scrub(self) -> None:
        """A whole round. StorageError when the bookie fails."""
        assert self.upkeep.scrubber is not None
        self.wait_for(self.upkeep.scrubber.run_now())
        while self.turn():
            pass

    def delete_ledger(self, ledger_id: int) -> None:
        """Out of the metadata store."""
        self.note(Deleted(ledger_id))

    def note(self, event: Event) -> None:
        """Something happens elsewhere, as in the metadata store."""
        self.history.note(event)
        self.machine.follow(event)

    def _ask(self, request: Request) -> Asked:
        self.machine.note_ledger(request.ledger_id)
        return self.history.ask(request)

    def read(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status]:
        """As a bookie reads: what memory and page cache give at once, then the rest."""
        warm = self.storage.read(ledger_id, entry_ids)
        if None not in warm:
            return [result for result in warm if result is not None]
        return self.storage.read_cold(ledger_id, entry_ids)
