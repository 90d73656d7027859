"""A whole cluster in one process from one seed: real bookies and clients on simulated clock, network, disks, metadata.

    World               the clock, the network, the metadata servers, the trace; makes bookies and clients
      SimulatedBookie   real Journal, LedgerStorage, Checkpointer, Bookie, endpoint, registration on a FaultyFileSystem
      SimulatedClient   a real LedgerClient in a process of its own

Everything random comes from generators derived from the seed, so the same seed gives the same trace. Sizes (memtable,
journal files, preallocation) are tiny, so that rolls, flushes and checkpoints happen within a run.
"""

from __future__ import annotations

import errno
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.connections.service import BookieService
from bookkeeper.bookie.gc.candidates import CompactionSettings
from bookkeeper.bookie.gc.collector import GarbageCollector
from bookkeeper.bookie.gc.compactor import CompactionRate
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.bookie.offline.inspection import list_ledger_ids
from bookkeeper.bookie.process import startup
from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.storage.checkpoint import Checkpointer
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError, JournalFull
from bookkeeper.filesystem import DiskUsage
from bookkeeper.metadata.memory.store import INSTANCE_ID, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo, Endpoint
from tests.support.faulty_filesystem import CHANGING, FaultyFileSystem, Op, PowerCut
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess, SimulatedWorker
from tests.support.simulated_network import SimulatedNetwork

BOOKIE_PORT = 3181
JOURNAL_DIRS = ("/journal-1", "/journal-2")
LEDGER_DIRS = ("/ledgers-1", "/ledgers-2")

JOURNAL_SETTINGS = JournalSettings(
    file_size_max=24 * 1024,
    preallocation_size=8 * 1024,
    preparation_slice_size=4 * 1024,
    backups_max=1,
    group_bytes_max=8 * 1024,
    pending_bytes_max=256 * 1024,
    recycle=True,
)
BUSY_SHARE = 0.3
BUSY_PENDING_BYTES_MAX = 3000
"""Of some bookies: what a few adds of a ledger fill, so that they refuse the next (TOO_MANY_REQUESTS)."""

STORAGE_SETTINGS = StorageSettings(
    memtable_bytes_max=6 * 1024,
    index_cache_bytes_max=256 * 1024,
    entry_log_bytes_max=16 * 1024,
    block_bytes=4 * 1024,
    flush_interval_s=1.0,
    journal_bytes_between_checkpoints_max=16 * 1024,
    checkpoint_duty_max=1.0,
)
OFTEN = GarbageSettings(
    wait_s=1.5,
    overreplicated_wait_s=4.0,
    compaction=CompactionSettings(minor_interval_s=2.0, major_interval_s=4.0),
    rate=CompactionRate(entries_per_s=20_000.0),
)
SELDOM = GarbageSettings(wait_s=1e6)
"""As good as never: rounds take steps, and most runs bound those (L-9)."""

CLIENT_SETTINGS = ClientSettings(
    add_timeout_s=1.0,
    read_timeout_s=1.0,
    connect_timeout_s=0.5,
    info_timeout_s=1.0,
    speculative_read_delay_s=0.3,
    explicit_lac_interval_s=0.2,
    quarantine_s=0.5,
    window_entries_max=16,
    recovery_read_batch=4,
)
METADATA_SETTINGS = MetadataSettings(session_timeout_s=1.5, operation_timeout_s=4.0, registration_wait_s=3.0)


WALL_STEPS_S = (-7200.0, -600.0, -30.0, -1.5, 1.5, 30.0, 600.0, 7200.0)
"""As after an NTP step, a resume of a virtual machine, or by an operator."""

WALL_BACK, WALL_FORWARD = "wall clock set back", "wall clock set forward"


class Killed(BaseException):
    """kill -9 in the middle of a file operation. Not an Exception: no error handling of the code under test sees it."""


class World:
    """One simulated cluster.

    use_v2: the protocol version of its clients. garbage: when its bookies collect; as good as never unless told.
    """

    def __init__(self, seed: int, *, use_v2: bool = True, garbage: GarbageSettings = SELDOM) -> None:
        self.seed = seed
        self.garbage = garbage
        self.rng = random.Random(f"world/{seed}")
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock, self.derive("network"))
        self.metadata = MemoryMetadata(clock=self.clock)
        self.metadata_faults = MemoryFaults()
        self.faults: Counter[str] = Counter()
        self.bookies: list[SimulatedBookie] = []
        self.clients: list[SimulatedClient] = []
        self.settings = ClientSettings(
            **{name: getattr(CLIENT_SETTINGS, name) for name in _CHANGED_SETTINGS}, use_v2=use_v2
        )
        self._steps = self.derive("wall steps")  # separate, so that steps do not change what else a seed does
        self._trace = hashlib.sha256()
        self.trace_length = 0
        self.errors: list[BaseException] = []
        """Failures of the machinery itself, which no fault explains; must stay empty."""

    def derive(self, name: str) -> random.Random:
        """A generator of its own for one part, so that parts do not disturb each other's choices."""
        return random.Random(f"{name}/{self.seed}")

    def note(self, event: str) -> None:
        """Add an event to the trace."""
        self.trace_length += 1
        self._trace.update(f"{self.clock.seconds():.9f} {event}\n".encode())

    @property
    def trace_digest(self) -> str:
        """SHA-256 of everything noted, the number of steps included."""
        whole = self._trace.copy()
        whole.update(f"{self.clock.steps}".encode())
        return whole.hexdigest()

    def add_bookie(self) -> SimulatedBookie:
        """One more bookie, running."""
        bookie = SimulatedBookie(self, f"bookie{len(self.bookies) + 1}")
        self.bookies.append(bookie)
        bookie.start()
        return bookie

    def add_client(self) -> SimulatedClient:
        """One more client process."""
        client = SimulatedClient(self, f"client{len(self.clients) + 1}")
        self.clients.append(client)
        return client

    def step_walls_until(self, end_s: float, processes: Callable[[], Sequence[SimulatedProcess]]) -> None:
        """Set the wall clock of a random process forward or back, at random times until `end_s`."""
        if self.clock.seconds() > end_s:
            return
        if alive := [process for process in processes() if process.alive]:
            process, by_s = self._steps.choice(alive), self._steps.choice(WALL_STEPS_S)
            self.note(f"the wall clock of {process.name} steps by {by_s:g} s")
            self.faults[WALL_BACK if by_s < 0 else WALL_FORWARD] += 1
            self._steps.choice((process.step_wall, process.step_wall_within_a_turn))(by_s)
        self.clock.callLater(0.05 + self._steps.random() * 3, self.step_walls_until, end_s, processes)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        """Run a coroutine of the test itself; an error no one expected is kept in `errors`."""

        def failed(failure: Failure) -> None:
            if not isinstance(failure.value, PowerCut | Killed):
                self.errors.append(failure.value)

        return Deferred.fromCoroutine(work).addErrback(failed)

    def pause(self, seconds: float) -> Deferred[None]:
        """Fires after `seconds` of simulated time."""
        done: Deferred[None] = Deferred()
        self.clock.callLater(seconds, done.callback, None)
        return done

    def run_until(self, done: Callable[[], bool], *, seconds: float) -> bool:
        """Step until `done()`, or until `seconds` of simulated time have passed (then False)."""
        limit = self.clock.seconds() + seconds
        finished = False

        def stop() -> None:
            nonlocal finished
            finished = True

        timer = self.clock.callLater(seconds, stop)
        while not done():
            if finished:
                return False
            try:
                self.clock.step()
            except PowerCut:
                self.faults["power cut in mid-operation"] += 1
            except Killed:
                pass  # counted where it struck
            for bookie in self.bookies:
                bookie.notice_power_cut()
        assert self.clock.seconds() <= limit
        if timer.active():
            timer.cancel()
        return True

    def all_faults(self) -> Counter[str]:
        """Every fault that happened, by kind."""
        return self.faults + self.network.faults + self.metadata_faults.counts


_CHANGED_SETTINGS = (
    "add_timeout_s", "read_timeout_s", "connect_timeout_s", "info_timeout_s", "speculative_read_delay_s",
    "explicit_lac_interval_s", "quarantine_s", "window_entries_max", "recovery_read_batch",
)  # fmt: skip


class _BusyJournal(Journal):
    """Counts what it refuses."""

    faults: Counter[str]

    def append(self, *args: Any, **options: Any) -> None:
        """See Journal."""
        try:
            super().append(*args, **options)
        except JournalFull:
            self.faults["too many requests"] += 1
            raise


class SimulatedBookie:
    """One bookie: its disk outlives its processes."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.bookie_id = BookieId(f"{name}:{BOOKIE_PORT}")
        self.fs = FaultyFileSystem()
        self.rng = world.derive(name)
        self.journal_dirs = JOURNAL_DIRS[: 1 if self.rng.random() < 0.7 else 2]
        for directory in (*self.journal_dirs, *LEDGER_DIRS):
            self.fs.make_dirs(current(directory))
        self.process: SimulatedProcess | None = None
        self.bookie: Bookie | None = None
        self.mode = ModeSwitch()
        self.directories = LedgerDirectories(LEDGER_DIRS)
        self.serves = False
        self.collector: GarbageCollector | None = None
        self._storage: LedgerStorage | None = None
        self._starts = 0
        self._disk_delay_max_s = self.rng.choice((0.001, 0.005, 0.03))
        self._journal_settings = JOURNAL_SETTINGS
        if world.derive(f"busy/{name}").random() < BUSY_SHARE:
            self._journal_settings = replace(JOURNAL_SETTINGS, pending_bytes_max=BUSY_PENDING_BYTES_MAX)

    @property
    def running(self) -> bool:
        """True while its process lives (it may still be starting)."""
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start a process on the directories, as a supervisor would after a crash."""
        assert not self.running
        self._starts += 1
        self.serves = False
        machine = 0.0 if self.process is None else self.process.wall_ahead_s
        self.process = SimulatedProcess(f"{self.name}#{self._starts}", self.world.clock)
        self.process.step_wall(machine)
        self.world.note(f"{self.process.name} starts")
        self.world.spawn(self._run(self.process))

    async def _run(self, process: SimulatedProcess) -> None:
        try:
            await self._serve(process)
        except (BookKeeperError, OSError) as error:
            if process.alive and not self.fs.power_is_cut:
                # A bookie that cannot start ends, and its supervisor tries again; with disks intact it must succeed.
                self.world.note(f"{process.name} did not start: {type(error).__name__}")
                self.world.faults["failed start"] += 1
                process.crash()
                self.world.clock.callLater(0.5, self._restart, process)
            del error

    def _restart(self, process: SimulatedProcess) -> None:
        if self.process is process and not self.running:
            self.start()

    async def _serve(self, process: SimulatedProcess) -> None:
        world, fs, clock = self.world, self.fs, process.clock
        store = MemoryMetadataStore(world.metadata, clock, self.rng, world.metadata_faults, settings=METADATA_SETTINGS)
        process.on_crash(store.crash)

        def worker(name: str) -> SimulatedWorker:
            return SimulatedWorker(name, process, self.rng, delay_max_s=self._disk_delay_max_s)

        self.mode = ModeSwitch()
        self.directories = LedgerDirectories(LEDGER_DIRS)
        storage_worker = worker("storage")
        storage = self._storage = LedgerStorage(fs, self.directories, STORAGE_SETTINGS, now_ms=process.wall_ms)
        ends = startup.recover(fs, storage, self.journal_dirs, LEDGER_DIRS)
        journals = []
        for directory, end in zip(self.journal_dirs, ends, strict=True):
            journal = _BusyJournal(
                fs, current(directory), worker("journal"), clock, self._journal_settings, now_ms=process.wall_ms
            )
            journal.faults = world.faults
            journal.on_failed = lambda error: self._fail(process, error)
            await journal.start(end)
            journals.append(journal)
        mark_dirs = [current(directory) for directory in LEDGER_DIRS]
        checkpointer = Checkpointer(
            storage,
            journals,
            partial(startup.persist_marks, fs, mark_dirs),
            storage_worker,
            clock,
            STORAGE_SETTINGS,
            on_failure=lambda error: self._fail(process, error),
            on_disks_full=partial(self.mode.forbid, ReadOnlyReason.NO_ROOM),
            on_room=partial(self.mode.allow, ReadOnlyReason.NO_ROOM),
        )
        bookie = self.bookie = Bookie(
            storage,
            journals,
            worker("read"),
            self.mode,
            clock,
            exit=lambda error: self._fail(process, error),
            after_add=checkpointer.after_add,
            now_ms=process.wall_ms,
        )
        checkpointer.start()
        self.collector = GarbageCollector(
            fs,
            self.directories,
            storage,
            bookie.removal(storage_worker),
            checkpointer,
            store,
            clock,
            worker=worker("garbage"),
            storage_worker=storage_worker,
            settings=world.garbage,
            instance_id=INSTANCE_ID,
            bookie_id=self.bookie_id,
            wall_s=lambda: process.wall_ms() / 1000,
            on_failure=lambda error: self._fail(process, error),
        )
        self.collector.start()
        service = BookieService(bookie, clock, lambda: DiskUsage(total=1 << 40, free=1 << 39))
        host = world.network.host(process, self.name)
        await host.listen(self.name, BOOKIE_PORT, service.accept)
        info = BookieServiceInfo((Endpoint("bookie", self.name, BOOKIE_PORT, "bookie-rpc"),))
        await store.registration.register(self.bookie_id, info, self.mode.mode)
        self.mode.on_change = lambda mode: self._register_anew(process, store, info, mode)
        self.serves = True
        world.note(f"{process.name} serves")

    def _register_anew(
        self, process: SimulatedProcess, store: MemoryMetadataStore, info: BookieServiceInfo, mode: BookieMode
    ) -> None:
        if process.alive:
            store.registration.register(self.bookie_id, info, mode).addErrback(
                lambda failure: self.world.note(f"{process.name} could not register: {failure.type.__name__}")
            )

    def _fail(self, process: SimulatedProcess, error: BaseException) -> None:
        """The bookie met a disk error and ends itself (I-48); its supervisor starts it again, or the whole machine.

        Without a new start of the machine the page cache still shows what never reached the disk.
        """
        if process.alive:
            self.world.note(f"{process.name} failed: {type(error).__name__}")
            self.world.faults["ended by a disk error"] += 1
            process.crash()
            if self.rng.random() < 0.5:
                self.fs.crash(self.rng)
            self.world.clock.callLater(self.rng.random() * 0.5, self._restart, process)

    def notice_power_cut(self) -> None:
        """A planned power cut struck in the middle of a file operation: the machine is off."""
        if self.fs.power_is_cut:
            if self.running:
                assert self.process is not None
                self.world.note(f"{self.process.name} lost power in mid-operation")
                self.process.crash()
            self.fs.crash(self.rng)

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """True when its storage has the entry. It must be serving."""
        assert self._storage is not None
        return isinstance(self._storage.read_cold(ledger_id, [entry_id])[0], bytes)

    # --- faults

    def ledger_ids(self) -> set[int]:
        """The ledgers that its process holds, or its files where none serves."""
        if self.serves and self.running and self._storage is not None:
            return set(self._storage.ledger_ids())
        return set(list_ledger_ids(self.fs, self.directories.index_dirs))

    def cut_power(self) -> None:
        """The machine loses power now: every unsynced byte and name is at risk."""
        if self.running:
            assert self.process is not None
            self.world.note(f"{self.process.name} lost power")
            self.world.faults["power cut"] += 1
            self.process.crash()
            self.fs.crash(self.rng)

    def cut_power_at_operation(self, number: int) -> None:
        """... in the middle of its n-th next change of a file."""
        self.fs.cut_power_at(number)

    def kill(self) -> None:
        """kill -9: what was written stays in the page cache, synced or not."""
        if self.running:
            assert self.process is not None
            self.world.note(f"{self.process.name} killed")
            self.world.faults["bookie killed"] += 1
            self.process.crash()

    def kill_at_operation(self, number: int) -> None:
        """... in the middle of its n-th next change of a file."""
        left = number

        def look(op: Op, path: str) -> None:
            nonlocal left
            left -= op in CHANGING
            if not left:
                self.fs.on_operation = None
                self.kill()
                raise Killed(f"{op.value} {path}")

        self.fs.on_operation = look

    def fail_disk(self, op: Op, number: int) -> None:
        """The n-th next operation of this kind fails with EIO; a failed sync forgets the bytes it was to store."""
        self.fs.fail_nth(op, number, errno.EIO, drop_dirty=self.rng.random() < 0.7)
        self.world.faults["disk error planned"] += 1

    def forget_faults(self) -> None:
        """What was planned and has not happened does not happen."""
        self.fs.forget_faults()
        self.fs.on_operation = None
        self.free_disk()
        self.set_read_only(False)

    def fill_disk(self) -> None:
        """From now on a few bytes fit, and then none."""
        self.world.faults["disk full"] += 1
        self.fs.quota_bytes = self.fs.used_bytes + self.rng.randint(0, 30_000)

    def free_disk(self) -> None:
        """There is room again, and the disk monitor has seen it."""
        self.fs.quota_bytes = None
        self.directories.set_full(())

    def set_read_only(self, read_only: bool) -> None:
        """As the disk monitor does when the disks fill up, and when there is room again."""
        if read_only and self.running:
            self.world.faults["read-only"] += 1
            self.mode.forbid(ReadOnlyReason.DISK_FULL)
        else:
            self.mode.allow(ReadOnlyReason.DISK_FULL)

    def ensure_running(self) -> None:
        """Restart it if it is down."""
        if not self.running:
            self.start()


class SimulatedClient:
    """One client process."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.process = SimulatedProcess(name, world.clock)
        rng = world.derive(name)
        self.store = MemoryMetadataStore(
            world.metadata, self.process.clock, rng, world.metadata_faults, settings=METADATA_SETTINGS
        )
        self.process.on_crash(self.store.crash)
        network = world.network.host(self.process, name)
        self.ledgers = LedgerClient(
            self.store, network, self.process.clock, rng, world.settings, now_ms=self.process.wall_ms
        )

    def crash(self) -> None:
        """kill -9."""
        self.world.note(f"{self.name} killed")
        self.process.crash()
