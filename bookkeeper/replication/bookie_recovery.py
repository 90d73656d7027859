"""Moving everything that some bookies have to others: `recover` and `decommissionbookie` of the shell, and of HTTP.

    recover         does the copying itself, ledger by ledger, also of bookies that are alive
    decommission    of a bookie that is down: has the auditor look, and waits until no ledger names it any more

A ledger that is being written on one of the bookies is recovered first, which ends its writer, unless open ledgers are
to be skipped. Each ledger is locked while it is worked on, so that nobody repairs it, or drops its copies as too many,
at the same time; one that somebody else has locked is waited for.

Thread: reactor. Bounds: those of `WorkerSettings`; of the ledgers listed, only ids of those that name the bookies are
kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from bookkeeper.client.metadata_update import pause
from bookkeeper.client.parallel import Lanes
from bookkeeper.errors import (
    BookieUnavailable,
    BookKeeperError,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    InvalidArgument,
    LedgerError,
    MetadataCorrupt,
    MetadataError,
    NoSuchLedger,
    NotEnoughBookies,
    ReplicationFailed,
)
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.underreplication.recovery_processes import ask_for_audit
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, LedgerState, Versioned
from bookkeeper.replication.copies.access import access_of
from bookkeeper.replication.copies.flow import CopyFlow
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.copies.move import FragmentRestorer
from bookkeeper.replication.copies.tally import CopyTally
from bookkeeper.replication.repair.settings import WorkerSettings

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock

log = Logger()

LOCK_TRIES = 60
LOCK_PAUSE_S = 1.0
"""How often, and how long apart, a ledger is tried that somebody else has locked."""

TELL_TRIES = 5
"""After so many tries it is looked anew who has it, and why."""

LOOK_PAUSE_S = 5.0
"""Between two looks of a decommission at the ledgers that are left."""

ASKED_MAX = 2
"""Maximum number of requests to one auditor per decommission. An auditor may miss a request when its term begins."""

FAILURES_KEPT = 1000
"""Failures whose reasons are kept; all are counted."""


@dataclass(slots=True)
class RecoveryProgress:
    """How far it is; `on_change` is called after every change, and may read everything here.

    ledgers_seen: looked at so far, in the latest look at all ledgers. ledgers_found: of the first look's, naming one of
    the bookies. ledgers_done, _skipped, _failed: of the found ones. waits_for: in words. failures: ledger -> reason.
    """

    on_change: Callable[[RecoveryProgress], object] = lambda _: None
    ledgers_seen: int = 0
    ledgers_found: int = 0
    ledgers_done: int = 0
    ledgers_skipped: int = 0
    ledgers_failed: int = 0
    listing_ended: bool = False
    began_s: float = 0.0
    now_s: float = 0.0
    waits_for: str = ""
    tally: CopyTally = field(default_factory=CopyTally)
    failures: dict[LedgerId, str] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """Copies made durable so far."""
        return self.tally.entries_written

    @property
    def bytes(self) -> int:
        """Of their payloads."""
        return self.tally.bytes_written

    @property
    def entries_per_s(self) -> float:
        """Since the beginning."""
        return self.entries / max(self.now_s - self.began_s, 1e-9)

    @property
    def bytes_per_s(self) -> float:
        """Likewise."""
        return self.bytes / max(self.now_s - self.began_s, 1e-9)

    @property
    def ledgers_left(self) -> int:
        """Found and neither done, skipped nor failed."""
        return self.ledgers_found - self.ledgers_done - self.ledgers_skipped - self.ledgers_failed


@dataclass(frozen=True, slots=True)
class LedgerOnBookies:
    """A ledger that names one of the bookies: what `recover -query` lists."""

    ledger_id: LedgerId
    metadata: Versioned[LedgerMetadata]
    fragments: tuple[FragmentRange, ...]
    """Those with one of the bookies as a member."""


class BookieRecovery:
    """Recovers bookies through one client.

    host: what its locks say to people. ask: who has a ledger in hand, and what it says, in words.
    """

    def __init__(
        self,
        client: LedgerClient,
        settings: WorkerSettings,
        host: str,
        progress: RecoveryProgress | None = None,
        *,
        ask: Callable[[LedgerId], Awaitable[str]] | None = None,
    ) -> None:
        self._ask = ask if ask is not None else self._holder_in_words
        self._asking = False
        self._reported = ReportedRecords()
        self._client, self._settings, self._host = client, settings, host
        self._context, self._store, self._clock = client.context, client.store, client.context.clock
        self.progress = progress if progress is not None else RecoveryProgress()
        self._flow = CopyFlow(
            self._clock,
            entries_max=settings.entries_in_flight_max,
            bytes_max=settings.bytes_in_flight_max,
            entries_per_s=settings.entries_per_s,
            bytes_per_s=settings.bytes_per_s,
        )
        self._restorer = FragmentRestorer(self._context, self._flow, self.progress.tally, settings.batch_entries_max)

    # --- looking

    async def ledgers_on(
        self, bookies: Collection[BookieId], on_unreadable: Callable[[LedgerId, MetadataCorrupt], object] | None = None
    ) -> AsyncIterator[LedgerOnBookies]:
        """Yield all ledgers that name one of the bookies. Ledgers just deleted are left out; other errors are raised.

        on_unreadable: called for a ledger with unreadable metadata; without it, MetadataCorrupt is raised.
        """
        bad_records = BadRecords()
        wanted = frozenset(bookies)
        found: list[LedgerOnBookies] = []
        lanes = Lanes(self._settings.ledgers_at_once)
        errors: list[BookKeeperError] = []

        async def look(ledger_id: LedgerId) -> None:
            try:
                metadata = await self._store.ledgers.read(ledger_id)
            except NoSuchLedger:
                return
            except BookKeeperError as error:
                if isinstance(error, MetadataCorrupt) and on_unreadable is not None:
                    self._change(ledgers_seen=1)
                    on_unreadable(ledger_id, error)
                else:
                    errors.append(error)
                return
            fragments = tuple(each for each in fragments_of(metadata.value) if each.indexes_of(wanted))
            self._change(ledgers_seen=1)
            if fragments:
                found.append(LedgerOnBookies(ledger_id, metadata, fragments))

        async for batch in self._client.ids(bad_records):
            for ledger_id in batch:
                await lanes.begin(look(ledger_id))
            await lanes.drained()
            if errors:
                raise errors[0]
            found.sort(key=lambda each: each.ledger_id)
            for each in found:
                yield each
            found.clear()
        self._reported.report(bad_records, "it is passed over because it is not a ledger; remove the znode")

    # --- recovering

    async def recover(
        self,
        bookies: Collection[BookieId],
        *,
        ledger_id: LedgerId | None = None,
        skip_open: bool = False,
        skip_unreadable: bool = False,
        dry_run: bool = False,
    ) -> RecoveryProgress:
        """Make every copy that the bookies have anew, on others, and name these in the metadata instead.

        ledger_id: only this one. skip_open: leave ledgers alone whose last fragment is on a bookie and may be written.
        skip_unreadable: a ledger with an entry that has no readable copy counts as skipped. dry_run: count only.
        Failures of single ledgers are in the progress. Raises what keeps it from listing the ledgers: MetadataError.
        """
        wanted = frozenset(bookies)
        if not wanted:
            raise InvalidArgument("no bookie is named to recover")
        progress = self.progress
        progress.began_s = progress.now_s = self._clock.seconds()
        self._wait_for("the list of registered bookies")
        await self._context.directory.ready()
        lanes = Lanes(self._settings.ledgers_at_once)

        def unreadable(each: LedgerId, error: MetadataCorrupt) -> None:
            self._change(ledgers_found=1)
            self._fail(each, f"unknown whether it names one of the bookies: {error}")

        async def one(each: LedgerId) -> None:
            await self._recover_one(each, wanted, skip_open=skip_open, skip_unreadable=skip_unreadable)

        try:
            if ledger_id is not None:
                self._change(ledgers_found=1)
                if not dry_run:
                    await lanes.begin(one(ledger_id))
            else:
                self._wait_for("the list of ledgers")
                async for each in self.ledgers_on(wanted, unreadable):
                    self._change(ledgers_found=1)
                    if not dry_run:
                        await lanes.begin(one(each.ledger_id))
            progress.listing_ended = True
            self._wait_for("copies to be made")
            await lanes.drained()
        except BaseException:
            lanes.cancel()
            raise
        self._wait_for("")
        return progress

    async def _recover_one(
        self, ledger_id: LedgerId, bookies: frozenset[BookieId], *, skip_open: bool, skip_unreadable: bool
    ) -> None:
        try:
            lock = await self._lock(ledger_id, bookies)
            try:
                moved = await self._move(lock, bookies, skip_open=skip_open)
            except GeneratorExit:
                raise  # thrown away with its process, whose session ends
            except BaseException:
                await _unlock(lock)
                raise
            await _unlock(lock)
        except NoSuchLedger:
            self._change(ledgers_done=1)  # deleted: nothing of it is on any bookie (I-78)
        except (EntryMissing, EntryCorrupt, EntryUnreadable) as error:
            if skip_unreadable:
                log.warn("Ledger {ledger_id} is skipped: {error}", ledger_id=ledger_id, error=error)
                self._change(ledgers_skipped=1)
            else:
                self._fail(ledger_id, str(error))
        except (LedgerError, BookieUnavailable, MetadataError) as error:
            self._fail(ledger_id, str(error))
        except CancelledError:
            self._fail(ledger_id, "given up")
        except Exception as error:  # noqa: BLE001 - a mistake with one ledger must not keep the others from being moved
            log.failure("recovering ledger {ledger_id}", ledger_id=ledger_id)
            self._fail(ledger_id, repr(error))
        else:
            self._change(ledgers_done=int(moved), ledgers_skipped=int(not moved))

    async def _move(self, lock: RepairLock, bookies: frozenset[BookieId], *, skip_open: bool) -> bool:
        """False where an open ledger was skipped, at least in part."""
        ledger_id = lock.ledger_id
        go_on = partial(self._go_on, lock)
        current = await self._store.ledgers.read(ledger_id)
        undecided = current.value.state is not LedgerState.CLOSED and any(
            bookie in bookies for bookie in current.value.last_fragment.ensemble
        )
        if undecided and not skip_open:
            handle = await self._client.open_as_administrator(ledger_id, recover=True)
            await handle.close()
            current = await self._store.ledgers.read(ledger_id)
        access = access_of(self._client.settings, ledger_id, current.value)
        for fragment in fragments_of(current.value):
            lost = fragment.indexes_of(bookies)
            if lost and fragment.agreed:
                current = await self._restorer.restore(
                    access, current, fragment, lost, go_on, exclude=bookies, lock=lock
                )
        return not (undecided and skip_open)

    def _go_on(self, lock: RepairLock) -> None:
        """Without the lock a bookie may take away a copy that no metadata names yet (I-66)."""
        self._tell()
        if not lock.held:
            raise ReplicationFailed(
                f"ledger {lock.ledger_id}: the session in which it was locked has ended; recover it once more",
                ledger_id=lock.ledger_id,
            )

    async def _lock(self, ledger_id: LedgerId, bookies: frozenset[BookieId]) -> RepairLock:
        for tried in range(LOCK_TRIES):
            lock = await self._store.underreplication.lock(ledger_id, self._host, lambda: None)
            if lock is not None:
                return lock
            if tried % TELL_TRIES == 0:
                # A worker keeps the lock also while it can only wait; what it waits for would fail here at once.
                await self._check_takers(ledger_id, bookies)
                await self._tell_who_has(ledger_id)
            await pause(self._clock, LOCK_PAUSE_S)
        raise ReplicationFailed(
            f"ledger {ledger_id}: locked by somebody else for {LOCK_TRIES * LOCK_PAUSE_S:g} s: "
            f"{await self._ask(ledger_id)}",
            ledger_id=ledger_id,
        )

    async def _check_takers(self, ledger_id: LedgerId, bookies: frozenset[BookieId]) -> None:
        """Raise NotEnoughBookies where there are fewer bookies to take copies than a fragment has to give away."""
        metadata = await self._store.ledgers.read(ledger_id)
        for fragment in fragments_of(metadata.value):
            lost = set(fragment.indexes_of(bookies).values())
            spare = self._context.directory.writable.difference(fragment.ensemble, bookies)
            if len(spare) < len(lost):
                raise NotEnoughBookies(
                    f"ledger {ledger_id}, fragment at entry {fragment.first_entry_id}: no bookie is left to take the "
                    f"copies of {', '.join(sorted(lost))}; members: {', '.join(fragment.ensemble)}; other writable "
                    f"bookies: {', '.join(sorted(spare)) or 'none'}: start more bookies",
                    ledger_id=ledger_id,
                    entry_id=fragment.first_entry_id,
                )

    async def _tell_who_has(self, ledger_id: LedgerId) -> None:
        """Of many ledgers that wait one is told of; to ask takes as long as a worker needs to answer."""
        if self._asking:
            return
        self._asking = True
        try:
            self._wait_for(f"ledger {ledger_id}, on which somebody else is at work")
            self._wait_for(f"ledger {ledger_id}: {await self._ask(ledger_id)}")
        finally:
            self._asking = False

    # --- decommissioning

    async def decommission(self, bookie_id: BookieId) -> RecoveryProgress:
        """Have the auditor look for lost bookies, and return when no ledger names this one any more.

        The copying is the workers' of the cluster: it waits for them as long as it takes; cancel it to give up. Raises
        InvalidArgument while the bookie is registered, MetadataError.
        """
        progress = self.progress
        progress.began_s = progress.now_s = self._clock.seconds()
        await self._check_down(bookie_id)
        tree = self._store.underreplication
        if not await tree.is_enabled():
            raise InvalidArgument(
                f"{bookie_id} cannot be decommissioned while auto-recovery is disabled: "
                "`bookkeeper shell autorecovery -enable`"
            )
        await ask_for_audit(tree)
        asked, asked_count = await tree.auditor_session(), 1
        self._wait_for("the list of ledgers")
        left = [each.ledger_id async for each in self.ledgers_on({bookie_id})]
        progress.listing_ended = True
        self._change(ledgers_found=len(left))
        while left:
            await self._tell_whom_we_wait_for(left)
            await pause(self._clock, LOOK_PAUSE_S)
            await self._check_down(bookie_id)
            auditor = await tree.auditor_session()
            if auditor != asked:
                asked, asked_count = auditor, 0
            if asked is not None and asked_count < ASKED_MAX and await tree.read(left[0]) is None:
                await ask_for_audit(tree)
                asked_count += 1
            still = [ledger_id for ledger_id in left if await self._names(ledger_id, bookie_id)]
            self._change(ledgers_done=len(left) - len(still))
            left = still
        # A ledger may have been made, or an ensemble changed, with the bookie while the first list was taken.
        progress.ledgers_seen = 0
        self._wait_for("a last look at all ledgers")
        late = [each.ledger_id async for each in self.ledgers_on({bookie_id})]
        if late:
            raise ReplicationFailed(
                f"{len(late)} ledgers name {bookie_id} anew, ledger {late[0]} among them: decommission it again"
            )
        self._wait_for("")
        return progress

    async def _check_down(self, bookie_id: BookieId) -> None:
        bookies = await self._store.bookies.current()
        if bookie_id in bookies.writable or bookie_id in bookies.read_only:
            raise InvalidArgument(f"{bookie_id} is registered: stop it, and keep it stopped, to decommission it")

    async def _tell_whom_we_wait_for(self, left: list[LedgerId]) -> None:
        tree = self._store.underreplication
        if not await tree.is_enabled():
            self._wait_for("auto-recovery to be enabled again")
            return
        auditor: str | None
        try:
            auditor = await tree.current_auditor()
        except MetadataCorrupt as error:
            auditor = f"with an unreadable vote ({error})"
        if auditor is None:
            self._wait_for("an auditor: no process runs auto-recovery")
        elif await tree.read(left[0]) is None:
            self._wait_for(f"the auditor {auditor} to mark {len(left)} ledgers")
        else:
            words = await self._ask(left[0])
            self._wait_for(f"workers to repair {len(left)} ledgers, ledger {left[0]} first: {words}")

    async def _holder_in_words(self, ledger_id: LedgerId) -> str:
        tree = self._store.underreplication
        if await tree.lock_session(ledger_id) is None:
            return "nobody is at work on it"
        try:
            holder = await tree.lock_holder(ledger_id)
        except MetadataCorrupt as error:
            return f"locked by an unknown holder ({error})"
        return f"locked by {holder or 'somebody'}"

    async def _names(self, ledger_id: LedgerId, bookie_id: BookieId) -> bool:
        try:
            metadata = await self._store.ledgers.read(ledger_id)
        except NoSuchLedger:
            return False
        return any(bookie_id in fragment.ensemble for fragment in metadata.value.fragments)

    # --- progress

    def _wait_for(self, what: str) -> None:
        self.progress.waits_for = what
        self._tell()

    def _fail(self, ledger_id: LedgerId, reason: str) -> None:
        if len(self.progress.failures) < FAILURES_KEPT:
            self.progress.failures[ledger_id] = reason
        log.warn("Ledger {ledger_id} was not moved: {reason}", ledger_id=ledger_id, reason=reason)
        self._change(ledgers_failed=1)

    def _change(self, **added: int) -> None:
        for name, amount in added.items():
            setattr(self.progress, name, getattr(self.progress, name) + amount)
        self._tell()

    def _tell(self) -> None:
        self.progress.now_s = self._clock.seconds()
        self.progress.on_change(self.progress)


async def _unlock(lock: RepairLock) -> None:
    try:
        await lock.release()
    except MetadataError as error:
        log.debug("ledger {ledger_id} could not be unlocked: {error}", ledger_id=lock.ledger_id, error=error)
