"""Repairing one ledger: look at its copies, restore what agreed fragments lack, recover it where that is what it takes.

    look --> every copy is there                                  REPAIRED
      |----> agreed fragments lack copies     restore them        (copies/move.py)
      `----> the last fragment of an open ledger lacks copies     OPEN: its writer may still mend that itself
                 |-- the same copies after the grace period: recovery, which fences the writer and closes the ledger;
                 |   then as above
                 `-- others by then: their grace period begins. A bookie that is always a moment behind a busy writer
                     lacks another entry at every look

Where several fragments lack copies, one that cannot be restored now does not keep the others from it.

Thread: reactor.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.client.read.list_entries import ask_list_of_entries
from bookkeeper.errors import (
    BookieIOError,
    BookieUnavailable,
    BookKeeperError,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    LedgerError,
    NoSuchLedger,
    NoSuchLedgerOnBookie,
    NotSupportedByBookie,
)
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.replication.audit.conclusions import Suspicion
from bookkeeper.replication.copies.access import LedgerAccess, access_of
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.move import FragmentRestorer, RepairEnding
from bookkeeper.replication.copies.verdicts import CopyVerdict, FragmentVerdict, Standing, bad_ones

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock
    from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger

log = Logger()


class RepairEnd(enum.Enum):
    """How a repair ended."""

    REPAIRED = "every copy looked for is there"
    DELETED = "the ledger is gone"
    OPEN = "the last fragment lacks copies, and may still be written"
    FAILED = "copies are missing still"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """How it ended, and why not otherwise.

    unreadable: an entry has no copy that can be read now. denied: and every member said that it has none, or sent a
    damaged one: another try will hardly help (I-79). moved: fragments that got new members. undecided: what the last
    fragment of an open ledger lacks, whatever became of the others.
    """

    end: RepairEnd
    reason: str = ""
    unreadable: bool = False
    denied: bool = False
    moved: int = 0
    undecided: frozenset[Suspicion] = frozenset()


class LedgerRepair:
    """Repairs ledgers of one cluster, any number of them at a time. client: whose connections and settings are used."""

    def __init__(self, client: LedgerClient, checker: LedgerChecker, restorer: FragmentRestorer) -> None:
        self._client, self._context = client, client.context
        self._checker, self._restorer = checker, restorer

    async def repair(
        self,
        lock: RepairLock,
        mark: UnderreplicatedLedger,
        *,
        lost_before: Collection[Suspicion],
        silent_too: bool,
        go_on: Callable[[], None],
    ) -> RepairReport:
        """Repair one ledger under its lock. mark: whom it names is said to lack entries: everything of theirs is looked
        for. Where the repair ends with one change of the metadata, mark and lock go with that (`lock.mark_removed`).

        lost_before: what the last fragment of an open ledger lacked a grace period ago: if it still does, the ledger is
        recovered, and its writer fenced. silent_too: copies of registered bookies that give no verdict are made anew.
        go_on: raises when the work is to end.
        Raises MetadataError, and what `go_on` raises; all other trouble is in the report.
        """
        try:
            return await self._repair(lock, mark, lost_before, silent_too, go_on)
        except NoSuchLedger:
            # The store says so only after a sync: deletion is normal traffic (I-78).
            return RepairReport(RepairEnd.DELETED)

    async def _repair(
        self,
        lock: RepairLock,
        mark: UnderreplicatedLedger,
        lost_before: Collection[Suspicion],
        silent_too: bool,
        go_on: Callable[[], None],
    ) -> RepairReport:
        ledger_id, suspects = mark.ledger_id, mark.missing
        store = self._context.store
        current = await store.ledgers.read(ledger_id)
        access = access_of(self._client.settings, ledger_id, current.value)
        try:
            verdicts = await self._look(access, current, suspects)
        except (BookieUnavailable, LedgerError) as error:
            return RepairReport(RepairEnd.FAILED, str(error))
        if _lost_still(verdicts, lost_before, silent_too=silent_too):
            go_on()
            try:
                await self._recover(ledger_id)
            except (BookieUnavailable, LedgerError) as error:
                return RepairReport(RepairEnd.FAILED, str(error))
            go_on()
            current = await store.ledgers.read(ledger_id)
            verdicts = await self._look(access, current, suspects)
        open_losses = frozenset(
            (copy.bookie_id, copy.entry_id) for copy in _open_losses(verdicts, silent_too=silent_too)
        )
        troubles: list[str] = []
        unreadable = denied = False
        moved = 0
        agreed = [verdict for verdict in bad_ones(verdicts) if verdict.fragment.agreed]
        undecided = [verdict for verdict in bad_ones(verdicts) if not verdict.fragment.agreed]
        ending = RepairEnding(mark, lambda metadata: not self._gone(metadata))
        for left, verdict in zip(range(len(agreed))[::-1], agreed, strict=True):
            lost = verdict.lost(silent_too=silent_too)
            if len(lost) < sum(copy.standing is not Standing.PRESENT for copy in verdict.copies):
                troubles.append(str(verdict))
            if not lost:
                continue
            try:
                last = None if left or undecided or troubles else ending
                current = await self._restorer.restore(
                    access, current, verdict.fragment, lost, go_on, lock=lock, ending=last
                )
                moved += 1
            except (EntryMissing, EntryCorrupt, EntryUnreadable) as error:
                unreadable = True
                denied = denied or not isinstance(error, EntryUnreadable)
                troubles.append(str(error))
            except (BookieUnavailable, LedgerError) as error:
                troubles.append(str(error))
        if troubles:
            reason = "; ".join(troubles)
            return RepairReport(RepairEnd.FAILED, reason, unreadable, denied, moved, open_losses)
        if undecided:
            return RepairReport(RepairEnd.OPEN, "; ".join(map(str, undecided)), moved=moved, undecided=open_losses)
        gone = self._gone(current.value)
        if lock.mark_removed:
            if gone:
                # Lost while the change was on its way: an audit may have looked at the ledger before that, and this
                # member not have been in it then.
                await store.underreplication.mark(ledger_id, gone, now_ms=None)
        elif gone:
            return RepairReport(RepairEnd.FAILED, f"{', '.join(gone)} went meanwhile", moved=moved)
        return RepairReport(RepairEnd.REPAIRED, moved=moved)

    def _gone(self, metadata: LedgerMetadata) -> list[BookieId]:
        """Members that are not registered now."""
        members = {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}
        return sorted(bookie for bookie in members if not self._context.directory.is_registered(bookie))

    async def _recover(self, ledger_id: LedgerId) -> None:
        """Recover the ledger with the digest type and password that its metadata names."""
        log.info("Recovering open ledger {ledger_id}: its last fragment lacks copies", ledger_id=ledger_id)
        handle = await self._client.open_as_administrator(ledger_id, recover=True)
        last = handle.last_add_confirmed
        log.info(
            "Ledger {ledger_id} was recovered: it is closed, {where}",
            ledger_id=ledger_id,
            where=f"its last entry is {last}" if last >= 0 else "and has no entries",
        )
        await handle.close()

    # --- looking

    async def _look(
        self, access: LedgerAccess, current: Versioned[LedgerMetadata], suspects: Collection[BookieId]
    ) -> list[FragmentVerdict]:
        verdicts = await self._checker.check_ledger(access, current)
        members = {bookie for fragment in current.value.fragments for bookie in fragment.ensemble}
        for bookie_id in sorted(members & set(suspects)):
            silent = any(
                copy.bookie_id == bookie_id and copy.standing is Standing.SILENT
                for verdict in verdicts
                for copy in verdict.copies
            )
            if self._context.directory.is_registered(bookie_id) and not silent:
                verdicts = await self._look_closer(access, verdicts, bookie_id)
        return verdicts

    async def _look_closer(
        self, access: LedgerAccess, verdicts: list[FragmentVerdict], bookie_id: BookieId
    ) -> list[FragmentVerdict]:
        """A bookie that was said to lack entries, and is there: what it should have is compared with what it says.

        One that answers that it cannot tell has given no verdict: the repair is not done as long as that is so. One
        that gives no answer at all may be an Apache bookie whose storage leaves the question unanswered.

        Differs from Apache: whose worker samples once more, and takes the mark away if it meets other entries this
        time.
        """
        try:
            held = await ask_list_of_entries(self._context, access.ledger_id, bookie_id)
        except NoSuchLedgerOnBookie:
            held = []
        except NotSupportedByBookie:
            return verdicts
        except BookieIOError as error:
            return [_untold(verdict, bookie_id, error) for verdict in verdicts]
        except (BookieUnavailable, BookKeeperError) as error:
            log.debug("bookie {bookie_id} does not list entries: {error}", bookie_id=bookie_id, error=error)
            return verdicts
        return [_compared(verdict, bookie_id, held) for verdict in verdicts]


def _open_losses(verdicts: Iterable[FragmentVerdict], *, silent_too: bool) -> Iterator[CopyVerdict]:
    """Copies that the last fragment of an open ledger lacks."""
    for verdict in verdicts:
        if not verdict.fragment.agreed:
            lost = verdict.lost(silent_too=silent_too)
            yield from (copy for copy in verdict.copies if copy.index in lost)


def _lost_still(verdicts: Iterable[FragmentVerdict], before: Collection[Suspicion], *, silent_too: bool) -> bool:
    """Whether a bookie that was lost before is so still; one that answers, whether it lacks the very same entry."""
    bookies = {bookie_id for bookie_id, _ in before}
    return any(
        (copy.bookie_id, copy.entry_id) in before if copy.standing is Standing.ABSENT else copy.bookie_id in bookies
        for copy in _open_losses(verdicts, silent_too=silent_too)
    )


def _compared(verdict: FragmentVerdict, bookie_id: BookieId, held: Sequence[range]) -> FragmentVerdict:
    """The verdict, with a place of `bookie_id` marked ABSENT where an entry is missing in what it says it holds."""
    fragment = verdict.fragment
    copies = list(verdict.copies)
    for position, copy in enumerate(copies):
        if copy.bookie_id != bookie_id or copy.standing is not Standing.PRESENT or not fragment.agreed:
            continue
        missing = _first_missing(fragment.stored_by(copy.index), held)
        if missing is not None:
            copies[position] = CopyVerdict(
                copy.index, bookie_id, Standing.ABSENT, missing, "not in its list of entries"
            )
    return FragmentVerdict(fragment, tuple(copies))


def _untold(verdict: FragmentVerdict, bookie_id: BookieId, error: BookieIOError) -> FragmentVerdict:
    """The verdict, with what `bookie_id` should hold left open: it cannot tell which entries it has."""
    if not verdict.fragment.agreed:
        return verdict
    reason = f"it cannot list its entries: {error}"
    copies = tuple(
        CopyVerdict(copy.index, bookie_id, Standing.SILENT, None, reason)
        if copy.bookie_id == bookie_id
        and copy.standing is Standing.PRESENT
        and verdict.fragment.first_stored_by(copy.index) is not None
        else copy
        for copy in verdict.copies
    )
    return FragmentVerdict(verdict.fragment, copies)


def _first_missing(entry_ids: Collection[int], held: Sequence[range]) -> int | None:
    """The first of the ascending `entry_ids` that is in none of the ascending ranges."""
    runs = iter(held)
    run = next(runs, None)
    for entry_id in entry_ids:
        while run is not None and run.stop <= entry_id:
            run = next(runs, None)
        if run is None or entry_id not in run:
            return entry_id
    return None
