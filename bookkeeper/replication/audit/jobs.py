"""The auditor's jobs: each looks at all ledgers once and marks those that certainly lack copies.

    BookieAudit       metadata only: ledgers that name a bookie which is not registered
    LedgerAudit       reads from every copy, by way of a `CopyCheck`
    PlacementAudit    metadata only: ledgers in too few racks; they are counted
    ReplicaAudit      asks bookies for lists of what they hold, by way of a `ListEntries`

What holds for all of them (I-18, I-77, I-78):
  * ledgers are listed and looked at as they come, `at_once` at a time; nothing is kept of those that are done;
  * a ledger that is gone by now is passed over; one that cannot be read, or a bookie that gives no answer, is a doubt:
    counted, named, and never marked;
  * a stray znode among the ledgers or marks is passed over, counted and named: it is not a ledger;
  * a listing, or a mark, that fails ends the run with its error; what was marked until then is true;
  * cancelled, they stop at once: what was on its way changes nothing but by compare-and-set.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from bookkeeper.client.parallel import Lanes
from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    MetadataCorrupt,
    MetadataError,
    NoSuchLedger,
    NoSuchLedgerOnBookie,
    NotEnoughBookies,
)
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import AvailableBookies, BookieId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.replication.audit.conclusions import (
    Adherence,
    certain_losses,
    is_overdue,
    lost_members,
    members_of,
    placement_of,
    suspicions,
    unanswered,
)
from bookkeeper.replication.audit.progress import JobProgress
from bookkeeper.replication.audit.replica_counts import Held, Shortage, chunks, count_missing
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.copies.verdicts import FragmentVerdict

if TYPE_CHECKING:
    from bookkeeper.metrics import Gauge, Summary
    from bookkeeper.ports import Clock

log = Logger()

SECOND_LOOK_S = 10.0
"""Before a copy that a bookie lacks of a fragment still written is looked for again."""


class CopyCheck(Protocol):
    """Looks for all copies of a ledger. Never fences. Raises BookKeeperError where it can say nothing."""

    def __call__(
        self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata], /
    ) -> Awaitable[list[FragmentVerdict]]: ...


class ListEntries(Protocol):
    """Asks a bookie what it holds of a ledger: ascending, disjoint. Raises NoSuchLedgerOnBookie, or no verdict."""

    def __call__(self, ledger_id: LedgerId, bookie_id: BookieId, /) -> Awaitable[Sequence[range]]: ...


@dataclass(frozen=True, slots=True)
class Placement:
    """The rule of `PlacementAudit`. racks_min: how many racks a write quorum should span."""

    rack_of: Callable[[BookieId], str]
    racks_min: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditGround:
    """What all jobs stand on.

    gate: fires when work may go on: auto-recovery is not turned off. patience: bookies that are gone and still have
    time to come back. now_ms: since 1970; None: marks note no time. publishing: milliseconds per mark.
    """

    store: MetadataStore
    clock: Clock
    at_once: int
    gate: Callable[[], Deferred[None]]
    patience: Callable[[], Collection[BookieId]]
    wall_ms: Callable[[], int]
    marks_note_time: bool
    publishing: Summary


class AuditJob:
    """One kind of job. `run` may be repeated, not overlapped."""

    def __init__(self, ground: AuditGround, progress: JobProgress) -> None:
        self.ground = ground
        self.progress = progress

    async def run(self) -> None:
        """Look at all ledgers. Raises MetadataError when not all of them could be listed, or one not be marked."""
        failures: list[BaseException] = []
        lanes = Lanes(self.ground.at_once)

        async def look(ledger_id: LedgerId) -> None:
            try:
                await self._look(ledger_id)
            except CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - raised below, where the run ends
                failures.append(error)

        bad_records = BadRecords()
        await self.prepare()
        try:
            async for batch in self.ground.store.ledgers.ids(bad_records):
                for ledger_id in batch:
                    await self.ground.gate()
                    if failures:
                        break
                    await lanes.begin(look(ledger_id))
                if failures:
                    break
            await lanes.drained()
        finally:
            lanes.cancel()
        if failures:
            raise failures[0]
        await self.finish(bad_records)
        self.progress.pass_over(bad_records)

    async def prepare(self) -> None:
        """Before the first ledger."""

    async def finish(self, bad_records: BadRecords) -> None:
        """Finish the run after the last ledger. bad_records: those passed over so far; `finish` may add more."""

    async def look_at(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        """One ledger."""
        raise NotImplementedError

    async def _look(self, ledger_id: LedgerId) -> None:
        try:
            await self.look_at(ledger_id, await self.ground.store.ledgers.read(ledger_id))
        except NoSuchLedger:
            pass  # deleted meanwhile (I-78)
        except MetadataCorrupt as error:
            self.progress.doubt(ledger_id, error)
        self.progress.looked_at += 1
        now_s = self.ground.clock.seconds()
        if self.progress.is_telling(now_s):
            log.info(
                "{job}: {status}", job=self.progress.job.value.capitalize(), status=str(self.progress.status(now_s))
            )

    async def mark(self, ledger_id: LedgerId, missing: Collection[BookieId]) -> None:
        """Publish that these bookies lack copies."""
        ground = self.ground
        began_s = ground.clock.seconds()
        await ground.store.underreplication.mark(
            ledger_id, sorted(missing), now_ms=ground.wall_ms() if ground.marks_note_time else None
        )
        ground.publishing.observe((ground.clock.seconds() - began_s) * 1000)
        self.progress.marked += 1

    async def mark_if_still_there(self, ledger_id: LedgerId, missing: Collection[BookieId]) -> None:
        """Publish what was found in some time: only of a ledger that exists, and bookies that are still its members."""
        if missing:
            members = members_of((await self.ground.store.ledgers.read(ledger_id)).value)
            still = [bookie_id for bookie_id in missing if bookie_id in members]
            if still:
                await self.mark(ledger_id, still)


class BookieAudit(AuditJob):
    """Ledgers on bookies that are not registered, were at no moment since the run began, and have no time left.

    on_registered: tell it the registered bookies whenever they change. overdue: of the marks that there are already.
    """

    def __init__(self, ground: AuditGround, progress: JobProgress, *, grace_s: float, overdue: Gauge) -> None:
        super().__init__(ground, progress)
        self._grace_s = grace_s
        self._overdue = overdue
        self._registered: set[BookieId] = set()

    def on_registered(self, bookies: AvailableBookies) -> None:
        """These are registered now. A run under way takes them for alive until its end."""
        self._registered.update(bookies.writable, bookies.read_only)

    async def prepare(self) -> None:
        """Read who is registered after a sync (I-19). Differs from Apache: with nobody there it raises."""
        await self.ground.store.sync()
        self._registered = set()
        self.on_registered(await self.ground.store.bookies.current())
        if not self._registered:
            # Every ledger would be marked, and nobody is there to copy any: more likely the registrations are gone.
            raise NotEnoughBookies("no bookie at all is registered; no ledger is marked until one is")

    async def look_at(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        """Mark it for its lost bookies."""
        patience = self.ground.patience()
        lost = [bookie_id for bookie_id in lost_members(metadata.value, self._registered) if bookie_id not in patience]
        if lost:
            await self.mark(ledger_id, lost)

    async def finish(self, bad_records: BadRecords) -> None:
        """Count the marks that wait for too long."""
        if self._grace_s <= 0:
            return
        overdue = 0
        underreplication = self.ground.store.underreplication
        async for batch in underreplication.ids(bad_records):
            for ledger_id in batch:
                await self.ground.gate()
                try:
                    mark = await underreplication.read(ledger_id)
                except MetadataCorrupt as error:
                    bad_records.add_unreadable(error)
                    continue
                if mark is not None:
                    overdue += is_overdue(mark.marked_ms, self._grace_s, self.ground.wall_ms())
        self._overdue.set(overdue)


class LedgerAudit(AuditJob):
    """Ledgers whose copies are not where they should be."""

    def __init__(
        self, ground: AuditGround, progress: JobProgress, check: CopyCheck, *, fragments: Summary, bookies: Summary
    ) -> None:
        super().__init__(ground, progress)
        self._check = check
        self._fragments = fragments
        self._bookies = bookies

    async def look_at(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        """Check it; a second time where a bookie may only have been behind."""
        self._fragments.observe(len(metadata.value.fragments))
        self._bookies.observe(len(members_of(metadata.value)))
        try:
            verdicts = await self._check(ledger_id, metadata)
            lost = certain_losses(verdicts, self.ground.patience())
            suspected = suspicions(verdicts)
            if suspected:
                await pause(self.ground.clock, SECOND_LOOK_S)
                again = await self._check(ledger_id, await self.ground.store.ledgers.read(ledger_id))
                lost |= certain_losses(again, self.ground.patience())
                lost |= {bookie_id for bookie_id, _ in suspected & suspicions(again)}
                verdicts = again
        except (MetadataError, ClientClosed):
            raise
        except BookKeeperError as error:
            self.progress.doubt(ledger_id, error)
            return
        silent = unanswered(verdicts)
        if silent:
            self.progress.doubt(ledger_id, f"no answer from {', '.join(silent)}")
        await self.mark_if_still_there(ledger_id, lost)


class PlacementAudit(AuditJob):
    """Ledgers whose bookies stand in too few racks. They are counted: no copy of them is missing.

    Differs from Apache: it can let the worker move such fragments (repairedPlacementPolicyNotAdheringBookieEnabled).
    """

    def __init__(
        self, ground: AuditGround, progress: JobProgress, rule: Placement, *, failing: Gauge, soft: Gauge
    ) -> None:
        super().__init__(ground, progress)
        self._rule = rule
        self._shown = {Adherence.FAILS: failing, Adherence.SOFT: soft}
        self._found = dict.fromkeys(Adherence, 0)
        self._racks_there = 0

    async def prepare(self) -> None:
        """Count the racks of the bookies that are there."""
        bookies = await self.ground.store.bookies.current()
        self._racks_there = len({self._rule.rack_of(each) for each in (*bookies.writable, *bookies.read_only)})
        self._found = dict.fromkeys(Adherence, 0)

    async def look_at(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        """Count it."""
        found = placement_of(metadata.value, self._rule.rack_of, self._rule.racks_min, self._racks_there)
        self._found[found] += 1

    async def finish(self, bad_records: BadRecords) -> None:
        """Show the counts of the whole run."""
        for adherence, gauge in self._shown.items():
            gauge.set(self._found[adherence])


class ReplicaAudit(AuditJob):
    """Ledgers of which bookies, as they say themselves, do not hold what they should.

    Only fragments that take no more entries are looked at. Differs from Apache: what is missing is not only counted,
    the ledger is marked as well.
    """

    def __init__(
        self, ground: AuditGround, progress: JobProgress, list_entries: ListEntries, shown: dict[Shortage, Gauge]
    ) -> None:
        super().__init__(ground, progress)
        self._list_entries = list_entries
        self._shown = shown
        self._found = dict.fromkeys(Shortage, 0)

    async def prepare(self) -> None:
        """Count anew."""
        self._found = dict.fromkeys(Shortage, 0)

    async def look_at(self, ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> None:
        """Ask its bookies, compare, mark."""
        settled = [fragment for fragment in fragments_of(metadata.value) if fragment.agreed and not fragment.empty]
        held: dict[BookieId, Held] = {}
        doubts: list[BookKeeperError] = []
        for bookie_id in sorted({bookie_id for fragment in settled for bookie_id in fragment.ensemble}):
            held[bookie_id] = await self._ask(ledger_id, bookie_id, doubts)
        if doubts:
            self.progress.doubt(ledger_id, doubts[0])
        missing: set[BookieId] = set()
        worst = Shortage.NONE
        for fragment in settled:
            lacking, shortage = await self._compare(fragment, metadata.value.ack_quorum, held)
            missing |= lacking
            worst = max(worst, shortage)
        self._found[worst] += 1
        await self.mark_if_still_there(ledger_id, missing)

    async def _ask(self, ledger_id: LedgerId, bookie_id: BookieId, doubts: list[BookKeeperError]) -> Held:
        try:
            return await self._list_entries(ledger_id, bookie_id)
        except NoSuchLedgerOnBookie:
            return []
        except (MetadataError, ClientClosed):
            raise
        except BookKeeperError as error:
            doubts.append(error)
            return None

    async def _compare(
        self, fragment: FragmentRange, ack_quorum: int, held: dict[BookieId, Held]
    ) -> tuple[set[BookieId], Shortage]:
        by_index = {index: held[bookie_id] for index, bookie_id in enumerate(fragment.ensemble)}
        missing: set[BookieId] = set()
        worst = Shortage.NONE
        pieces = chunks(fragment)
        for first, last in pieces:
            counts, shortage = count_missing(fragment, ack_quorum, by_index, first, last)
            missing.update(fragment.ensemble[index] for index in counts)
            worst = max(worst, shortage)
            if len(pieces) > 1:
                await pause(self.ground.clock, 0.0)  # others have their turn
        return missing, worst

    async def finish(self, bad_records: BadRecords) -> None:
        """Show the counts of the whole run."""
        for shortage, gauge in self._shown.items():
            gauge.set(self._found[shortage])
