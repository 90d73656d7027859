"""Restoring copies at some places of a fragment: copies first, metadata second (I-75).

    choose a replacement per place --> fit? --> copy --> durable there --> compare-and-set: the fragment names it
         ^                              |        |                             |
         `-- unfit, or failed: another -+--------'      the place has another member by now: nothing to do there

Under the lock of a repair the metadata changes only while that lock is held, in one transaction with the look at it.
What is safe is decided by the compare-and-set alone (I-20, I-75); the transaction adds that a worker whose session
ended, or whose lock was removed, changes nothing after that moment: by then a bookie may collect copies that no
metadata names yet (I-66), and another worker be at the same fragment (I-77). The last change of a repair takes mark and
lock with it. What it cannot add: a lock that was removed by hand and taken by somebody else looks like ours.

If the metadata would be too large with the new members (`metadata.ledgers`), the repair ends before it copies entries.

A fragment without entries, or a place that stores none of them, only needs the metadata to name a bookie that is there.
Where no other bookie is left, the copies that a registered, writable member lacks are written to that member itself.

Differs from Apache: which then leaves the ledger under-replicated until another bookie joins.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.client.metadata_update import update_metadata
from bookkeeper.client.write.ensemble_change import choose_replacements
from bookkeeper.errors import (
    BookKeeperError,
    LedgerIdOccupied,
    MetadataTooLarge,
    NotEnoughBookies,
    ReplicationFailed,
)
from bookkeeper.model import BookieId, EntryId, LedgerMetadata, Versioned
from bookkeeper.protocol.transitions import Change, Replacement, replace_members
from bookkeeper.replication.copies.copy import BATCH_ENTRIES_MAX, LedgerCopying, TargetFailed
from bookkeeper.replication.copies.fragments import CopyPlan, FragmentRange, fragments_of
from bookkeeper.replication.copies.target_check import unfit_targets

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bookkeeper.client.context import ClientContext
    from bookkeeper.metadata.store import RepairLock
    from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger
    from bookkeeper.replication.copies.access import LedgerAccess
    from bookkeeper.replication.copies.flow import CopyFlow
    from bookkeeper.replication.copies.tally import CopyTally

log = Logger()

TARGETS_MAX = 5
"""Bookies that may fail as targets of one fragment before its repair is put off."""


@dataclass(frozen=True, slots=True)
class RepairEnding:
    """That this fragment is the last of a repair. mark: goes with the change, as it was seen.

    whole: whether a ledger with such metadata lacks nothing, as far as is known now.
    """

    mark: UnderreplicatedLedger
    whole: Callable[[LedgerMetadata], bool]


class FragmentRestorer:
    """Restores fragments of any ledger, within the bounds of one `CopyFlow`."""

    def __init__(
        self,
        context: ClientContext,
        flow: CopyFlow,
        tally: CopyTally,
        batch_entries_max: int = BATCH_ENTRIES_MAX,
    ) -> None:
        self._context, self._flow, self._tally = context, flow, tally
        self._batch_entries_max = batch_entries_max

    async def restore(
        self,
        access: LedgerAccess,
        current: Versioned[LedgerMetadata],
        fragment: FragmentRange,
        lost: Mapping[int, BookieId],
        go_on: Callable[[], None] = lambda: None,
        exclude: frozenset[BookieId] = frozenset(),
        lock: RepairLock | None = None,
        ending: RepairEnding | None = None,
    ) -> Versioned[LedgerMetadata]:
        """Give each lost place of an agreed fragment a member with all its copies; return the metadata as it is then.

        lost: by ensemble index, whose copies are gone or of no use. exclude: who gets none. go_on: called before each
        step; what it raises ends the work. lock: under which the metadata is changed, and MetadataUnavailable raised
        where it is lost; `lock.mark_removed` tells whether the change was the `ending` of the repair. Raises
        NotEnoughBookies, ReplicationFailed, the errors of an entry that cannot be read (`copying`), NoSuchLedger,
        MetadataError.
        """
        try:
            return await self._restore(access, current, fragment, lost, go_on, exclude, lock, ending)
        except MetadataTooLarge as error:
            raise ReplicationFailed(str(error), ledger_id=access.ledger_id, entry_id=fragment.first_entry_id) from error

    async def _restore(
        self,
        access: LedgerAccess,
        current: Versioned[LedgerMetadata],
        fragment: FragmentRange,
        lost: Mapping[int, BookieId],
        go_on: Callable[[], None],
        exclude: frozenset[BookieId],
        lock: RepairLock | None,
        ending: RepairEnding | None,
    ) -> Versioned[LedgerMetadata]:
        await self._context.directory.ready()
        failed: dict[BookieId, object] = {}
        left = dict(lost)
        while left:
            go_on()
            targets = self._targets(access, fragment, left, failed, exclude)
            moved = {index: new for index, new in targets.items() if new != left[index]}
            wanted = _replaced(current.value, access, fragment, left, moved)
            if isinstance(wanted, LedgerMetadata):
                await self._context.store.ledgers.check_room(access.ledger_id, wanted, lock=lock)
            plan = CopyPlan(fragment, targets)
            copying = self._copying(access, current.value, frozenset(lost.values()), go_on)
            try:
                unfit = await unfit_targets(self._context, access, current.value, list(moved.values()), copying)
                if unfit:
                    failed.update(unfit)
                    _log_unfit(access, unfit)
                    continue
                await copying.copy(plan)
            except TargetFailed as error:
                failed[error.bookie_id] = error.error
                self._context.directory.quarantine(error.bookie_id)
                if len(failed) >= TARGETS_MAX:
                    raise ReplicationFailed(
                        f"ledger {access.ledger_id}, entry {fragment.first_entry_id}: no bookie took copies",
                        ledger_id=access.ledger_id,
                        entry_id=fragment.first_entry_id,
                        answers={str(bookie): why for bookie, why in failed.items()},
                    ) from error
                continue
            finally:
                copying.close()
            if moved:
                last = ending if moved.keys() == left.keys() else None
                current = await self._commit(access, current, fragment, left, moved, go_on, lock, last)
                self._tally.fragments_moved += 1
                fragment = _same_fragment(current.value, fragment)
            self._tally.copies_rewritten += len(targets) - len(moved)
            left = {
                index: bookie
                for index, bookie in left.items()
                if index not in targets and fragment.ensemble[index] == bookie
            }
        return current

    async def rewrite(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        fragment: FragmentRange,
        index: int,
        ranges: tuple[tuple[int, int], ...] | None,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the copies of one place to its own member anew: all, or those in `ranges`. Raises TargetFailed too."""
        bookie_id = fragment.ensemble[index]
        copying = self._copying(access, metadata, frozenset({bookie_id}), go_on)
        try:
            await copying.copy(CopyPlan(fragment, {index: bookie_id}, ranges))
        finally:
            copying.close()
        self._tally.copies_rewritten += 1

    def _copying(
        self,
        access: LedgerAccess,
        metadata: LedgerMetadata,
        avoid: frozenset[BookieId],
        go_on: Callable[[], None],
    ) -> LedgerCopying:
        return LedgerCopying(
            self._context, self._flow, self._tally, access, metadata, avoid, self._batch_entries_max, go_on
        )

    def _targets(
        self,
        access: LedgerAccess,
        fragment: FragmentRange,
        lost: Mapping[int, BookieId],
        failed: Mapping[BookieId, object],
        exclude: frozenset[BookieId],
    ) -> dict[int, BookieId]:
        """Who gets the copies of each lost place, as far as there is anybody."""
        context = self._context
        avoid = exclude.union(failed, lost.values())
        chosen = choose_replacements(context, fragment.ensemble, fragment.write_quorum, lost, avoid)
        if chosen:
            return chosen
        writable = context.directory.writable
        usable = writable.difference(failed, exclude)
        in_place = {index: bookie for index, bookie in lost.items() if bookie in usable}
        if in_place:
            return in_place
        others = sorted(writable.difference(fragment.ensemble, exclude))
        occupied = sorted(bookie for bookie, why in failed.items() if isinstance(why, LedgerIdOccupied))
        which = f"ledger {access.ledger_id}, fragment at entry {fragment.first_entry_id}"
        own = sorted(bookie for bookie in lost.values() if bookie in failed)
        if own:
            # What kept it from taking its own copies may pass by itself, as while it finds out what it has lost.
            which += (
                f": {', '.join(own)} did not take {'its' if len(own) == 1 else 'their'} copies anew this time, which "
                "is tried again; and for now"
            )
            remedy = "one more bookie would be another way"
        else:
            which, remedy = f"{which}:", "start more bookies"
        if occupied:
            remedy = (
                f"{', '.join(occupied)} {'holds' if len(occupied) == 1 else 'hold'} other entries under this id: "
                f"`bookkeeper shell readledger -b {occupied[0]} -l {access.ledger_id} -m` shows them; {remedy}"
            )
        raise NotEnoughBookies(
            f"{which} no bookie is left to take the "
            f"copies of {', '.join(sorted(lost.values()))}; members: {', '.join(fragment.ensemble)}; other writable "
            f"bookies: {', '.join(others) or 'none'}: {remedy}",
            ledger_id=access.ledger_id,
            entry_id=fragment.first_entry_id,
            answers={str(bookie): why for bookie, why in failed.items()},
        )

    async def _commit(
        self,
        access: LedgerAccess,
        current: Versioned[LedgerMetadata],
        fragment: FragmentRange,
        lost: Mapping[int, BookieId],
        moved: Mapping[int, BookieId],
        go_on: Callable[[], None],
        lock: RepairLock | None,
        ending: RepairEnding | None,
    ) -> Versioned[LedgerMetadata]:
        ledgers = self._context.store.ledgers

        def write(metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
            if lock is None:
                return ledgers.write(access.ledger_id, metadata, version)
            ends = ending.mark if ending is not None and ending.whole(metadata) else None
            return ledgers.write(access.ledger_id, metadata, version, lock=lock, ends=ends)

        def decide(metadata: LedgerMetadata) -> Change:
            # Before each try: once the lock is lost, a bookie may take away a copy that no metadata names (I-66, I-77).
            go_on()
            return _replaced(metadata, access, fragment, lost, moved)

        context = self._context
        return await update_metadata(context.store, context.clock, access.ledger_id, current, decide, write)


def _replaced(
    metadata: LedgerMetadata,
    access: LedgerAccess,
    fragment: FragmentRange,
    lost: Mapping[int, BookieId],
    moved: Mapping[int, BookieId],
) -> Change:
    """Return the metadata with new members of a fragment at some places."""
    return replace_members(
        metadata,
        ledger_id=access.ledger_id,
        first_entry_id=EntryId(fragment.first_entry_id),
        replacements={index: Replacement(lost[index], new) for index, new in moved.items()},
    )


def _log_unfit(access: LedgerAccess, unfit: Mapping[BookieId, BookKeeperError]) -> None:
    for bookie_id, why in unfit.items():
        log.warn(
            "Rejected bookie {bookie_id} for copies of ledger {ledger_id}; trying another bookie: {why}",
            bookie_id=bookie_id,
            ledger_id=access.ledger_id,
            why=why,
        )


def _same_fragment(metadata: LedgerMetadata, fragment: FragmentRange) -> FragmentRange:
    """The fragment with the members it has now; its range is what it was."""
    for found in fragments_of(metadata):
        if found.first_entry_id == fragment.first_entry_id:
            assert found.last_entry_id == fragment.last_entry_id, "the range of an agreed fragment never changes (I-13)"
            return found
    raise AssertionError("replace_members refuses where there is no such fragment")
