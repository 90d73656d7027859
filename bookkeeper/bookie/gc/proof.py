"""Which ledgers of this bookie are deleted, or belong to others: told by proof, and taken away here.

    is this our cluster? (I-65) -> ledgers here -> ledgers of the store -> has the store forgotten some? (history_guard)
    -> suspects -> ripe ones read one by one -> proven: deleted, in batches

Invariants:
    a ledger is deleted only after a synced read of that ledger found it absent from the store, in a session that did
    not change in between; every error means "keep" (I-64), and so does a stray znode with the ledger's id in its path;
    a copy too many is deleted only under the lock of those who make copies (I-66).

Thread: reactor. Listing files runs on the collector's worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import merge

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.gc.candidates import Missing, Suspects, absent_from, ascending
from bookkeeper.bookie.gc.history.guard import HistoryGuard, Look
from bookkeeper.bookie.gc.removal import BATCH_MAX, LedgerRemoval
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.gc.status import GarbageStage, GarbageStatus
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import MetadataCorrupt, MetadataError, MetadataUnavailable, NoSuchLedger, StorageError
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore, StoreState
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata
from bookkeeper.ports import Clock, Worker

log = Logger()

PROOFS_IN_FLIGHT = 64
"""Reads of the metadata store that are awaited at once."""

DELETIONS_MAX = 100_000
ALARMED_DELETIONS_MAX = 1000
"""Ledgers deleted in one round; after an alarm no more than that, each with its proof as ever."""


class DeletedLedgers:
    """See `GarbageCollector` for the arguments.

    worker: lists files. status: what was done is noted there.
    """

    def __init__(
        self,
        storage: LedgerStorage,
        removal: LedgerRemoval,
        store: MetadataStore,
        guard: HistoryGuard,
        clock: Clock,
        *,
        worker: Worker,
        settings: GarbageSettings,
        instance_id: str,
        bookie_id: BookieId,
        wall_s: Callable[[], float],
        status: GarbageStatus,
    ) -> None:
        self._storage = storage
        self._removal = removal
        self._store = store
        self._guard = guard
        self._clock = clock
        self._worker = worker
        self._settings = settings
        self._instance_id = instance_id
        self._bookie_id = bookie_id
        self._wall_s = wall_s
        self._status = status
        self._suspects = Suspects()
        self._comparing = DeferredLock()  # held while the guard's memory changes: from a look until it is admitted
        self._reported = ReportedRecords()
        self._overreplicated_s = clock.seconds()
        self._sessions_lost = 0
        self._watch = store.watch_state(self._on_state)
        self._stopped = False

    def stop(self) -> None:
        """What answers from now on is no proof."""
        self._stopped = True
        self._watch.cancel()
        self._guard.stop()

    def _on_state(self, state: StoreState) -> None:
        if state in (StoreState.LOST, StoreState.CLOSED):
            self._sessions_lost += 1

    # --- deleted ledgers ----------------------------------------------------------------------------------------------

    async def collect(self, *, grace_s: float) -> None:
        self._status.enter(GarbageStage.CHECKING)
        await self._comparing.acquire()
        try:
            look, local = await self._look()
            self._status.ledgers_local = len(local)
            absent, missing = await self._admit(look, local)
        finally:
            self._comparing.release()
        deletions_max = DELETIONS_MAX
        if missing.alarming:
            self._status.alarms += 1
            deletions_max = ALARMED_DELETIONS_MAX
            log.critical(
                "{missing} of the {local} ledgers here are not in the metadata store, which lists {listed}: is that "
                "right? Each is deleted only after a proof of its own, and at most {limit} in a round",
                missing=len(missing.finish()),
                local=len(local),
                listed=missing.listed_count,
                limit=deletions_max,
            )
        ripe = self._suspects.observe(absent, self._clock.seconds(), grace_s=grace_s)
        self._status.suspects = len(self._suspects)
        deleted = 0
        for start in range(0, len(ripe), BATCH_MAX):
            if deleted >= deletions_max:
                break
            gone = await self._prove_gone(ripe[start : start + BATCH_MAX])
            self._status.enter(GarbageStage.DELETING)
            removed: list[int] = await self._removal.remove(gone, moved=False) if gone else []
            self._suspects.forget(removed)
            if removed and self._guard.has_discarded:
                await self._forget_decision(removed)
            deleted += len(removed)
            self._status.ledgers_deleted += len(removed)
            self._status.ledgers_local -= len(removed)
            self._status.suspects = len(self._suspects)
        if deleted:
            log.info("Deleted {count} ledgers that the metadata store has no more", count=deleted)

    async def _forget_decision(self, removed: Sequence[int]) -> None:
        # A check of the history may run: each change of the bookie's memory begins with the result of the one before.
        await self._comparing.acquire()
        try:
            await self._guard.on_removed(removed)
        finally:
            self._comparing.release()

    def _note_bad(self, bad_records: BadRecords) -> None:
        """Report the bad records of a listing. Raises StorageError if they may stand for any ledger.

        A ledger that a bad record may stand for is kept: see metadata/ledgers/walk.py for the reason.
        """
        self._status.bad_records = bad_records
        self._reported.report(
            bad_records, "the garbage collector keeps the ledger with the id in its path, if any; remove that znode"
        )
        if not bad_records.ledger_ids_known:
            raise StorageError(
                f"{self._store.description}: more than {len(bad_records.ledger_ids)} znodes have ledger ids in paths "
                f"where no ledger can be, such as {bad_records.named[0]}: nothing is collected; check the stored LAYOUT"
            )

    async def check_history(self) -> None:
        """Compare the store with what this bookie has seen of it, and note which ledgers are here; delete nothing.

        The store's ledgers are listed only if some of the ledgers here are in doubt.
        """
        await self._comparing.acquire()
        try:
            look, local = await self._look()
            if await self._guard.is_doubtful(look, local):
                await self._admit(look, local)
            else:
                await self._guard.admit(look, local, None, self._read)
        finally:
            self._comparing.release()

    async def _look(self) -> tuple[Look, array[int]]:
        """Look at the store's history; return the look and the ledgers that were listed here before."""
        await self._check_cluster()
        breaks = self._guard.breaks
        local = await on_worker(self._worker, self.local)
        return await self._guard.look(breaks, local), local

    async def _admit(self, look: Look, local: array[int]) -> tuple[array[int], Missing]:
        """List the store's ledgers; return the local ones that may be collected, and the comparison."""
        missing = Missing(local)
        bad_records = BadRecords()
        async for batch in self._store.ledgers.ids(bad_records):
            missing.feed(batch)
            self._guard.check_unbroken(look)  # the look after a break waits for the end of this one
        self._note_bad(bad_records)
        await self._check_cluster()
        allowed = await self._guard.admit(look, local, missing.finish(), self._read)
        self._check_running()
        return array("q", (each for each in allowed if each not in bad_records.ledger_ids)), missing

    async def _check_cluster(self) -> None:
        """I-65: pointed at an empty or foreign root, an honest collector would delete everything."""
        await self._store.sync()
        found = await self._store.admin.instance_id()
        if found != self._instance_id:
            raise StorageError(
                f"{self._store.description} is of cluster {found}, this bookie's directories are of cluster "
                f"{self._instance_id}: nothing is collected. Check metadataServiceUri"
            )

    def local(self) -> array[int]:
        """Ascending; with the ledgers that lost their index file: nobody deleted them, and their entries are in logs.

        Thread: the collector's worker.
        """
        local = ascending(self._storage.ledger_ids())
        for known in self._storage.ledgers_with_checksums():
            lost = absent_from(local, known)
            if lost:
                local = array("q", merge(local, lost))
        return local

    async def _prove_gone(self, ledger_ids: Sequence[int]) -> list[int]:
        """Those of which the store says, to a synced read, that they do not exist."""
        gone: list[int] = []
        for start in range(0, len(ledger_ids), PROOFS_IN_FLIGHT):
            some = ledger_ids[start : start + PROOFS_IN_FLIGHT]
            before = self._sessions_lost
            await self._store.sync()
            answers = await gatherResults([self._is_gone(LedgerId(ledger_id)) for ledger_id in some])
            self._check_running()
            if self._sessions_lost != before or self._store.state is not StoreState.CONNECTED:
                continue  # another server may have answered, behind the one that was synced with (I-19)
            gone += [ledger_id for ledger_id, is_gone in zip(some, answers, strict=True) if is_gone]
        return gone

    def _is_gone(self, ledger_id: LedgerId) -> Deferred[bool]:
        def failed(failure: Failure) -> bool:
            if isinstance(failure.value, NoSuchLedger):
                return True
            log.warn("Cannot tell whether ledger {id} exists: {error}; it stays", id=ledger_id, error=failure.value)
            return False

        return self._store.ledgers.read(ledger_id).addCallbacks(lambda _: False, failed)

    def _check_running(self) -> None:
        """To be called after a wait for answers, to which a stop is one more reason to know nothing."""
        if self._stopped:
            raise CancelledError

    # --- copies too many ----------------------------------------------------------------------------------------------

    async def collect_elsewhere(self, *, forced: bool) -> None:
        wait_s = self._settings.overreplicated_wait_s
        now_s = self._clock.seconds()
        if wait_s <= 0 or (not forced and now_s - self._overreplicated_s < wait_s):
            return
        self._status.enter(GarbageStage.OVERREPLICATED)
        local = await on_worker(self._worker, self.local)
        pause_s = 1.0 / self._settings.metadata_reads_per_s if self._settings.metadata_reads_per_s > 0 else 0.0
        removed = 0
        for start in range(0, len(local), PROOFS_IN_FLIGHT):
            some = local[start : start + PROOFS_IN_FLIGHT]
            await self._store.sync()
            found = await gatherResults([self._is_elsewhere(LedgerId(ledger_id)) for ledger_id in some])
            self._check_running()
            for ledger_id, elsewhere in zip(some, found, strict=True):
                if elsewhere and self._guard.may_move(ledger_id) and await self._remove_elsewhere(ledger_id):
                    removed += 1
            await pause(self._clock, pause_s * len(some))
        self._overreplicated_s = now_s
        self._status.last_overreplicated_s = self._wall_s()
        if removed:
            log.info("Deleted the copies of {count} closed ledgers that belong to other bookies", count=removed)

    async def _read(self, ledger_ids: Sequence[int]) -> dict[int, LedgerMetadata | None]:
        """Return the metadata of those ledgers that the store has; None for a record that cannot be read.

        Raises MetadataUnavailable.
        """
        found: dict[int, LedgerMetadata | None] = {}
        failed: list[MetadataUnavailable | CancelledError] = []

        async def look(ledger_id: LedgerId) -> None:
            try:
                found[ledger_id] = (await self._store.ledgers.read(ledger_id)).value
            except NoSuchLedger:
                pass
            except (MetadataUnavailable, CancelledError) as error:
                failed.append(error)
            except MetadataError as error:
                log.warn("The metadata of ledger {id} cannot be read: {error}", id=ledger_id, error=error)
                found[ledger_id] = None

        for start in range(0, len(ledger_ids), PROOFS_IN_FLIGHT):
            some = ledger_ids[start : start + PROOFS_IN_FLIGHT]
            await gatherResults([Deferred.fromCoroutine(look(LedgerId(ledger_id))) for ledger_id in some])
            if failed:
                raise failed[0]
        return found

    async def _remove_elsewhere(self, ledger: int) -> bool:
        """Under the lock of those who make copies, or one might be taken away that is being made (I-66)."""
        ledger_id = LedgerId(ledger)
        try:
            lock = await self._store.underreplication.lock(ledger_id, self._bookie_id, lambda: None)
        except MetadataCorrupt as error:
            log.error("The copies of ledger {id} stay, as it cannot be locked: {error}", id=ledger_id, error=error)
            return False
        if lock is None:
            return False  # somebody copies it, perhaps to this bookie
        try:
            before = self._sessions_lost
            await self._store.sync()
            elsewhere = await self._is_elsewhere(ledger_id)
            self._check_running()
            if not elsewhere or not lock.held or self._sessions_lost != before or not self._guard.may_move(ledger_id):
                return False
            removed: list[int] = await self._removal.remove([ledger_id], moved=True)
        finally:
            lock.release().addErrback(_lock_lingers, ledger_id)
        self._status.ledgers_moved += len(removed)
        return bool(removed)

    def _is_elsewhere(self, ledger_id: LedgerId) -> Deferred[bool]:
        """Return whether the ledger is closed with no fragment on this bookie; False if that is unknown."""

        def failed(failure: Failure) -> bool:
            if isinstance(failure.value, MetadataError | CancelledError):
                return False
            raise AssertionError("the store failed otherwise than it may") from failure.value

        return self._store.ledgers.read(ledger_id).addCallbacks(
            lambda versioned: versioned.value.is_closed and not self._guard.is_named(versioned.value), failed
        )


def _lock_lingers(failure: Failure, ledger_id: LedgerId) -> None:
    log.info(
        "The lock of ledger {id} could not be given back, it goes with the session: {error}",
        id=ledger_id,
        error=failure.value,
    )
