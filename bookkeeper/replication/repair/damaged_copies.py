"""Writing anew the copies that a live bookie itself found bad.

    noted range --> the bookie is no member there any more        nothing to do: the note goes
         |--> a fragment that may still be written                wait: it is copied once it is agreed (I-74)
         |--> the bookie is not registered                        wait: it comes back, or its fragments are moved
         `--> good copies from the others --> recovery adds to the same bookie --> read back from it, digest checked
                                                        | refused, or bad again
                                                        `--> the fragment gets another member (copies/move.py)

A note covers good copies too; the bookie overwrites only what fails its own check. The ranges go from the note only as
it was seen, and only those that were mended (I-76).

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.errors import (
    BookieUnavailable,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    LedgerError,
    NoSuchLedger,
    PortableError,
    VersionConflict,
)
from bookkeeper.model import LedgerMetadata, Versioned
from bookkeeper.replication.copies.access import LedgerAccess, access_of
from bookkeeper.replication.copies.copy import TargetFailed
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.fragments import FragmentRange, fragments_of
from bookkeeper.replication.copies.move import FragmentRestorer
from bookkeeper.replication.copies.verdicts import Standing
from bookkeeper.replication.repair.ledger_repair import RepairEnd, RepairReport

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock
    from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange

log = Logger()


TROUBLES_TOLD_MAX = 3
"""Ranges of one ledger whose reasons are kept; others are counted."""


class _NotYet(PortableError):
    """A range cannot be mended now."""


class BadCopyRepair:
    """Mends bad copies of any ledger."""

    def __init__(self, client: LedgerClient, checker: LedgerChecker, restorer: FragmentRestorer) -> None:
        self._client, self._context = client, client.context
        self._checker, self._restorer = checker, restorer

    async def mend(self, lock: RepairLock, go_on: Callable[[], None]) -> RepairReport:
        """Mend what is noted of the ledger that is locked. Raises MetadataError, and what `go_on` raises."""
        store, ledger_id = self._context.store, lock.ledger_id
        noted = await store.underreplication.bad_copies(ledger_id)
        if noted is None:
            return RepairReport(RepairEnd.REPAIRED)
        await self._context.directory.ready()
        try:
            current = await store.ledgers.read(ledger_id)
        except NoSuchLedger:
            mended: list[BadRange] = list(noted.ranges)  # said after a sync (I-78)
            troubles: dict[object, str] = {}  # by entry: several bookies report the same one
            unreadable = denied = False
        else:
            access = access_of(self._client.settings, ledger_id, current.value)
            mended, troubles, unreadable, denied = [], {}, False, False
            for bad in noted.ranges:
                go_on()
                try:
                    current = await self._mend(access, current, bad, lock, go_on)
                    mended.append(bad)
                except (EntryMissing, EntryCorrupt, EntryUnreadable) as error:
                    unreadable = True
                    denied = denied or not isinstance(error, EntryUnreadable)
                    troubles[error.entry_id] = str(error)
                except (_NotYet, BookieUnavailable, LedgerError) as error:
                    troubles[str(error)] = str(error)
        if mended:
            go_on()
            try:
                await store.underreplication.remove_bad_copies(noted, mended)
            except VersionConflict as conflict:
                troubles[str(conflict)] = str(conflict)
        if troubles:
            reason = "; ".join(list(troubles.values())[:TROUBLES_TOLD_MAX])
            if len(troubles) > TROUBLES_TOLD_MAX:
                reason += f"; and {len(troubles) - TROUBLES_TOLD_MAX} more such"
            return RepairReport(RepairEnd.FAILED, reason, unreadable=unreadable, denied=denied)
        return RepairReport(RepairEnd.REPAIRED)

    async def _mend(
        self,
        access: LedgerAccess,
        current: Versioned[LedgerMetadata],
        bad: BadRange,
        lock: RepairLock,
        go_on: Callable[[], None],
    ) -> Versioned[LedgerMetadata]:
        for fragment in fragments_of(current.value):
            first = max(bad.first_entry_id, fragment.first_entry_id)
            last = min(bad.last_entry_id, fragment.last_entry_id)
            if bad.bookie_id not in fragment.ensemble:
                continue
            index = fragment.ensemble.index(bad.bookie_id)
            if not fragment.agreed:
                if bad.last_entry_id >= fragment.first_entry_id:
                    raise _NotYet(
                        f"entries from {fragment.first_entry_id} on may still be written; then {bad.bookie_id}'s"
                    )
                continue
            if not fragment.stored_within(index, first, last):
                continue
            if not self._context.directory.is_registered(bad.bookie_id):
                raise _NotYet(f"{bad.bookie_id} is not registered; its copies of {first}..{last} wait")
            current = await self._mend_part(access, current, fragment, index, (first, last), lock, go_on)
        return current

    async def _mend_part(
        self,
        access: LedgerAccess,
        current: Versioned[LedgerMetadata],
        fragment: FragmentRange,
        index: int,
        part: tuple[int, int],
        lock: RepairLock,
        go_on: Callable[[], None],
    ) -> Versioned[LedgerMetadata]:
        """In place; if that does not work, by moving the fragment's copies of this place to another bookie."""
        bookie_id = fragment.ensemble[index]
        why: object
        try:
            await self._restorer.rewrite(access, current.value, fragment, index, (part,), go_on)
        except TargetFailed as error:
            why = error
        else:
            stored: Sequence[int] = fragment.stored_within(index, *part)
            verdict = await self._checker.look_for(access, fragment, index, stored)
            if verdict.standing is Standing.PRESENT:
                log.info(
                    "Ledger {ledger_id}: entries {first}..{last} were written anew on {bookie_id}",
                    ledger_id=access.ledger_id,
                    first=part[0],
                    last=part[1],
                    bookie_id=bookie_id,
                )
                return current
            why = verdict
        log.info(
            "Ledger {ledger_id}: {bookie_id} keeps bad copies of {first}..{last} ({why}); another takes its place",
            ledger_id=access.ledger_id,
            bookie_id=bookie_id,
            first=part[0],
            last=part[1],
            why=why,
        )
        go_on()
        moved = await self._restorer.restore(access, current, fragment, {index: bookie_id}, go_on, lock=lock)
        if moved.version == current.version:
            raise _NotYet(f"{bookie_id} keeps bad copies, and there is no other bookie to take its place")
        return moved
