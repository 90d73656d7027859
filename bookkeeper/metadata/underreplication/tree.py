"""The under-replication tree over a Tree of znodes. The seam is `store.Underreplication`.

Source: bookkeeper/wire/FORMATS.md 4.8.

    underreplication_format, bad_copies_format    pure: names and bytes
    mark_walk.py       listing the marks, hearing of new ones
    mark_directories.py    removing directories without marks
    repair_locks.py    a ledger is being repaired
    bad_copies.py      U/badcopies
    recovery_processes.py  U/workers
    node_watch.py      following U/disable and U/lostBookieRecoveryDelay
    auditor_election.py

Marks, against those who remove them (I-76):

    mark() finds           does                                      because
    nothing                creates it
    other bookies noted    adds the missing, by version              a removal in between fails, or ours does
    all noted, no lock     nothing                                   whoever begins now looks after us
    all noted, locked      writes the same bytes again, by version   the one at work may have looked before us
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import (
    MetadataCorrupt,
    MetadataOutcomeUnknown,
    MetadataUnavailable,
    NotInitialised,
    VersionConflict,
)
from bookkeeper.metadata.directories import Directories
from bookkeeper.metadata.grouped_changes import GroupedChanges
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY
from bookkeeper.metadata.node_watch import NodeWatch
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import (
    Announcement,
    AuditorCandidate,
    MetadataSettings,
    RepairLock,
    Underreplication,
    Watch,
)
from bookkeeper.metadata.tree import Access, Create, NodeAbsent, NodeChanged, NodeExists, NodeNotEmpty, Stat, Tree
from bookkeeper.metadata.underreplication.auditor_election import AuditorElection, auditor_session, elected_auditor
from bookkeeper.metadata.underreplication.damaged_copies import ZnodeBadCopies
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies, BadRange
from bookkeeper.metadata.underreplication.format import (
    CheckKind,
    UnderreplicatedLedger,
    check_layout,
    format_check_time,
    format_delay,
    format_layout,
    format_mark,
    leaf_name,
    ledger_of_leaf,
    mark_path,
    parse_check_time,
    parse_delay,
    parse_mark,
)
from bookkeeper.metadata.underreplication.mark_directories import MarkDirectories
from bookkeeper.metadata.underreplication.mark_walk import WorkWatch, walk_candidates, walk_marks
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess, format_process, node_name
from bookkeeper.metadata.underreplication.recovery_processes import KeptAnnouncement, announced
from bookkeeper.metadata.underreplication.repair_locks import HeldLock, RepairLocks
from bookkeeper.model import BookieId, LedgerId

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.metadata.bad_records import BadRecords
    from bookkeeper.ports import Clock

log = Logger()


class ZnodeUnderreplication:
    """The Underreplication over a Tree."""

    def __init__(self, tree: Tree, root: str, clock: Clock, settings: MetadataSettings) -> None:
        self._tree = tree
        self._root = root
        self._clock = clock
        self._settings = settings
        self._base = f"{root}/underreplication"
        self._marks = f"{self._base}/ledgers"
        self._locks_path = f"{self._base}/locks"
        self._disable_path = f"{self._base}/disable"
        self._delay_path = f"{self._base}/lostBookieRecoveryDelay"
        self._election_path = f"{self._base}/auditorelection"
        self._workers_path = f"{self._base}/workers"
        self._checked = False  # the layout is one that we know
        self._prepared = False
        self._directories = Directories(root)
        self._locks = RepairLocks(tree, clock, settings, self._locks_path, self._marks, self._make_directory)
        self._marked_together = GroupedChanges(tree)
        self._tidying = MarkDirectories(self._marks)
        self._bad_copies_path = f"{self._base}/badcopies"
        self._bad_copies = ZnodeBadCopies(self._bad_copies_path, self._errand, self._make_directory)

    def prepare(self) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._prepare(self._errand("prepare the under-replication tree")))

    # --- marks -----------------------------------------------------------------------------------------------------

    def mark(self, ledger_id: LedgerId, missing: Collection[BookieId], *, now_ms: int | None) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._mark(ledger_id, tuple(dict.fromkeys(missing)), now_ms))

    def read(self, ledger_id: LedgerId, lock: RepairLock | None = None) -> Deferred[UnderreplicatedLedger | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._read(ledger_id, lock))

    def remove(self, seen: UnderreplicatedLedger, lock: RepairLock | None = None) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._remove(seen, lock))

    def finish(self, seen: UnderreplicatedLedger, lock: RepairLock) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._finish(seen, lock))

    async def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """See Underreplication."""
        await self._check_layout(self._walk_errand())
        async for batch in walk_marks(self._walk_errand, self._marks, bad_records):
            yield batch

    async def candidates(self, random: Random, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """See Underreplication."""
        await self._check_layout(self._walk_errand())
        self._tidying.begin_walk()
        walk = walk_candidates(self._walk_errand, self._marks, random, self._tidying.on_listed, bad_records)
        async for batch in walk:
            yield batch
        for directory in self._tidying.long_empty():
            await self._tidying.tidy(self._walk_errand(), directory)

    def watch_work(self, on_work: Callable[[], object]) -> Watch:
        """See Underreplication."""
        return WorkWatch(self._tree, self._clock, self._settings, self._marks, self._bad_copies_path, on_work)

    # --- locks -----------------------------------------------------------------------------------------------------

    def lock(self, ledger_id: LedgerId, host: str, on_lost: Callable[[], object]) -> Deferred[RepairLock | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._lock(ledger_id, host, on_lost))

    def lock_holder(self, ledger_id: LedgerId) -> Deferred[str | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._locks.holder(ledger_id))

    def locked_ms(self, ledger_id: LedgerId) -> Deferred[int | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._locks.taken_ms(ledger_id))

    def lock_session(self, ledger_id: LedgerId) -> Deferred[int | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._locks.session(ledger_id))

    def locked_count(self) -> Deferred[int]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._locked_count())

    # --- who audits and repairs ------------------------------------------------------------------------------------

    def announce(self, process: RecoveryProcess) -> Announcement:
        """See Underreplication."""
        path = f"{self._workers_path}/{node_name(process)}"
        return KeptAnnouncement(
            self._tree,
            self._clock,
            self._settings,
            path,
            format_process(process),
            lambda errand: self._make_directory(errand, self._workers_path),
        )

    def processes(self, bad_records: BadRecords | None = None) -> Deferred[tuple[RecoveryProcess, ...]]:
        """See Underreplication."""
        return Deferred.fromCoroutine(announced(self._errand("list who repairs"), self._workers_path, bad_records))

    # --- switches and times ----------------------------------------------------------------------------------------

    def is_enabled(self) -> Deferred[bool]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._is_enabled())

    def enable(self) -> Deferred[bool]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._enable())

    def disable(self) -> Deferred[bool]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._disable())

    def watch_enabled(self, on_change: Callable[[bool], object]) -> Watch:
        """See Underreplication."""
        told: list[bool] = []

        def tell(found: tuple[bytes, Stat] | None) -> None:
            if told[-1:] != [found is None]:
                told[:] = [found is None]
                on_change(found is None)

        return self._follow(self._disable_path, tell)

    def recovery_delay_s(self) -> Deferred[int | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._recovery_delay_s())

    def initialise_recovery_delay(self, delay_s: int) -> Deferred[bool]:
        """See Underreplication."""
        data = format_delay(delay_s)
        return Deferred.fromCoroutine(self._create_value(self._delay_path, data, Access.OPEN))

    def set_recovery_delay(self, delay_s: int) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._set_value(self._delay_path, format_delay(delay_s), Access.OPEN))

    def watch_recovery_delay(self, on_change: Callable[[int | None], object]) -> Watch:
        """See Underreplication."""

        def tell(found: tuple[bytes, Stat] | None) -> None:
            try:
                delay_s = None if found is None else parse_delay(found[0], self._delay_path)
            except MetadataCorrupt as error:
                log.error("The recovery delay is unreadable; the last one stays: {error}", error=error)
                return
            on_change(delay_s)

        return self._follow(self._delay_path, tell)

    def check_time_ms(self, kind: CheckKind) -> Deferred[int | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._check_time_ms(kind))

    def set_check_time(self, kind: CheckKind, ended_ms: int) -> Deferred[None]:
        """See Underreplication."""
        data = format_check_time(kind, ended_ms)
        return Deferred.fromCoroutine(self._set_value(f"{self._base}/{kind.value}", data, Access.DEFAULT))

    # --- the auditor -----------------------------------------------------------------------------------------------

    def current_auditor(self) -> Deferred[BookieId | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(elected_auditor(self._errand("look who audits"), self._election_path))

    def auditor_session(self) -> Deferred[int | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(auditor_session(self._errand("look who audits"), self._election_path))

    def candidate(
        self,
        bookie_id: BookieId,
        *,
        on_elected: Callable[[], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> AuditorCandidate:
        """See Underreplication."""
        return AuditorElection(
            self._tree,
            self._clock,
            self._settings,
            self._election_path,
            lambda errand: Deferred.fromCoroutine(self._prepare_election(errand)),
            bookie_id,
            on_elected=on_elected,
            on_lost=on_lost,
            on_failed=on_failed,
        )

    # --- bad copies ------------------------------------------------------------------------------------------------

    def report_bad_copies(self, ledger_id: LedgerId, ranges: Collection[BadRange]) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._report_bad_copies(ledger_id, tuple(ranges)))

    def bad_copies(self, ledger_id: LedgerId) -> Deferred[BadCopies | None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._bad_copies.read(ledger_id))

    def remove_bad_copies(self, seen: BadCopies, ranges: Collection[BadRange]) -> Deferred[None]:
        """See Underreplication."""
        return Deferred.fromCoroutine(self._bad_copies.remove(seen, tuple(ranges)))

    async def bad_copy_ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """See Underreplication."""
        await self._check_layout(self._errand("list the bad copies"))
        async for batch in self._bad_copies.ids(bad_records):
            yield batch

    # --- the tree itself

    def forget(self) -> None:
        """The tree was removed, or is about to be: look anew."""
        self._checked = self._prepared = False

    async def _check_layout(self, errand: Errand) -> None:
        """What is read below makes sense. A tree that is not there yet holds nothing."""
        if not self._checked:
            path = f"{self._base}/LAYOUT"
            found = await errand.read_if_present(path)
            if found is not None:
                check_layout(found[0], path)
                self._checked = True

    async def _prepare(self, errand: Errand) -> None:
        if self._prepared:
            return
        try:
            await errand.ensure(self._base)
        except NodeAbsent as error:
            raise NotInitialised(
                f"there is no cluster under {self._root} of {self._tree.description}; {NO_CLUSTER_REMEDY}"
            ) from error
        path = f"{self._base}/LAYOUT"
        await errand.ensure(path, format_layout())
        while not self._checked:
            found = await errand.read_surely(path)
            if found is not None:
                check_layout(found[0], path)
                self._checked = True
            else:
                errand.check_time(f"{path} vanishes as fast as it is made")
                await errand.ensure(path, format_layout())
        await errand.ensure(self._marks)
        await errand.ensure(self._locks_path)
        self._prepared = True

    async def _prepare_election(self, errand: Errand) -> None:
        await self._prepare(errand)
        if await errand.stat(self._election_path) is None:
            await errand.ensure(self._election_path)

    async def _locked_count(self) -> int:
        try:
            names = await self._errand("count the locked ledgers").children(self._locks_path)
        except NodeAbsent:
            return 0
        return sum(ledger_of_leaf(name) is not None for name in names)

    def _make_directory(self, errand: Errand, path: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._directories.make(errand, path))

    # --- one mark

    async def _mark(self, ledger_id: LedgerId, missing: tuple[BookieId, ...], now_ms: int | None) -> None:
        errand = self._errand(f"mark ledger {ledger_id} under-replicated")
        await self._prepare(errand)
        path = self._marks + mark_path(ledger_id)
        new = format_mark(missing, now_ms)
        directory = path.rpartition("/")[0]
        while True:
            try:
                # Usually nobody has marked the ledger yet, so that its own directory is missing, too.
                await errand.transact(
                    [Create(directory), Create(path, new)], _nobody_knows, self._marked_together.transact
                )
                return
            except NodeAbsent:
                await self._directories.make(errand, directory.rpartition("/")[0])
                errand.check_time(f"{directory} cannot be made")
                continue
            except NodeExists:
                pass
            try:
                await errand.create(path, new, _not_ours)
                return
            except NodeAbsent:
                # The directories were tidied away by whoever removed their last mark.
                await self._directories.make(errand, directory)
            except NodeExists:
                if await self._add_to_mark(errand, ledger_id, path, missing, now_ms):
                    return
            errand.check_time(f"{path} keeps changing")

    async def _add_to_mark(
        self, errand: Errand, ledger_id: LedgerId, path: str, missing: tuple[BookieId, ...], now_ms: int | None
    ) -> bool:
        """Add to the mark that a create found; False when it has changed, or is gone, by now.

        What is read is no older than what the create found: a server answers a change, a refused one too, once it has
        caught up with it.
        """
        try:
            data, stat = await errand.read(path)
            noted, noted_ms = parse_mark(data, path)
            added = tuple(bookie_id for bookie_id in missing if bookie_id not in noted)
            if added:
                data = format_mark((*noted, *added), noted_ms if now_ms is None else now_ms)
            elif await errand.stat(f"{self._locks_path}/{leaf_name(ledger_id)}") is None:
                return True
            await errand.write(path, data, stat.version)
        except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown):
            return False  # the next look tells
        return True

    async def _read(self, ledger_id: LedgerId, lock: RepairLock | None) -> UnderreplicatedLedger | None:
        errand = self._errand(f"read the mark of ledger {ledger_id}")
        await self._check_layout(errand)
        path = self._marks + mark_path(ledger_id)
        if isinstance(lock, HeldLock):
            found = await self._locks.read_mark(errand, lock)
        else:
            found = await errand.read_surely(path)
        if found is None:
            if isinstance(lock, HeldLock):
                await self._tidying.remove_if_old(errand, path.rpartition("/")[0], lock.path)
            return None
        missing, marked_ms = parse_mark(found[0], path)
        return UnderreplicatedLedger(ledger_id, missing, marked_ms, found[1].version, found[1].creation_id)

    async def _remove(self, seen: UnderreplicatedLedger, lock: RepairLock | None) -> None:
        errand = self._errand(f"remove the mark of ledger {seen.ledger_id}", one_session=lock is not None)
        path = self._marks + mark_path(seen.ledger_id)
        if lock is not None and not lock.held:
            raise MetadataUnavailable(f"the mark of ledger {seen.ledger_id} stays: the lock on the ledger was lost")
        # Versions begin anew with every node, and the store compares only them: a mark that was removed and made again
        # while we worked is told apart by its creation id. The moment between this look and the removal stays open.
        stat = await errand.stat(path)
        if stat is None:
            await errand.sync()
            stat = await errand.stat(path)
        if stat is None:
            return
        if (stat.creation_id, stat.version) != (seen.creation_id, seen.version):
            raise VersionConflict(f"the mark of ledger {seen.ledger_id} has changed since its repair began ({path})")
        try:
            await errand.delete(path, seen.version, seen.creation_id)
        except NodeAbsent:
            return
        except NodeChanged as error:
            raise VersionConflict(
                f"the mark of ledger {seen.ledger_id} has changed since its repair began: {error}"
            ) from error
        await self._tidying.tidy(errand, path.rpartition("/")[0])

    async def _finish(self, seen: UnderreplicatedLedger, lock: RepairLock) -> None:
        """Usually (the mark is as it was, and alone in its directory) one transaction instead of six steps."""
        path = self._marks + mark_path(seen.ledger_id)
        directory = path.rpartition("/")[0]
        errand = self._errand(f"end the repair of ledger {seen.ledger_id}", one_session=True)
        if lock.held and isinstance(lock, HeldLock):
            ending = lock.ending(seen)
            if ending is None:
                stat = await errand.stat(path)
                if stat is not None and (stat.creation_id, stat.version) == (seen.creation_id, seen.version):
                    ending = lock.ending_unwatched(seen)

            async def is_done() -> bool:
                return await errand.stat(path) is None and await errand.stat(lock.path) is None

            if ending is not None:
                try:
                    await errand.transact(ending.steps, is_done, ending.transact)
                except (NodeAbsent, NodeChanged, NodeNotEmpty):
                    pass  # step by step, then
                else:
                    lock.removed_with_mark()
        if lock.mark_removed:
            if self._tidying.is_due(directory):
                await self._tidying.tidy(errand, directory.rpartition("/")[0])
            return
        await self._remove(seen, lock)
        await lock.release()

    def _walk_errand(self) -> Errand:
        return self._errand("list the under-replicated ledgers")

    async def _lock(self, ledger_id: LedgerId, host: str, on_lost: Callable[[], object]) -> RepairLock | None:
        await self._prepare(self._errand(f"lock ledger {ledger_id}"))
        return await self._locks.take(ledger_id, host, on_lost)

    async def _report_bad_copies(self, ledger_id: LedgerId, ranges: tuple[BadRange, ...]) -> None:
        await self._prepare(self._errand(f"report bad copies of ledger {ledger_id}"))
        await self._bad_copies.report(ledger_id, ranges)

    # --- single values

    async def _is_enabled(self) -> bool:
        errand = self._errand("look whether auto-recovery is on")
        await errand.sync()
        return await errand.stat(self._disable_path) is None

    async def _disable(self) -> bool:
        return await self._create_value(self._disable_path, b"", Access.DEFAULT)

    async def _enable(self) -> bool:
        errand = self._errand("turn auto-recovery on")
        await errand.sync()
        was_off = False
        while (stat := await errand.stat(self._disable_path)) is not None:
            was_off = True
            try:
                await errand.delete(self._disable_path, stat.version, stat.creation_id)
            except (NodeAbsent, NodeChanged):
                errand.check_time(f"{self._disable_path} keeps changing")
        return was_off

    async def _recovery_delay_s(self) -> int | None:
        found = await self._value(self._delay_path)
        return None if found is None else parse_delay(found, self._delay_path)

    async def _check_time_ms(self, kind: CheckKind) -> int | None:
        path = f"{self._base}/{kind.value}"
        found = await self._value(path)
        return None if found is None else parse_check_time(kind, found, path)

    async def _value(self, path: str) -> bytes | None:
        errand = self._errand(f"read {path}")
        await errand.sync()
        found = await errand.read_if_present(path)
        return None if found is None else found[0]

    async def _create_value(self, path: str, data: bytes, access: Access) -> bool:
        errand = self._errand(f"make {path}")
        await self._prepare(errand)
        await errand.sync()
        if await errand.stat(path) is not None:
            return False  # whose it is could not be told after a lost answer
        try:
            await errand.create(path, data, lambda found, stat: found == data and stat.version == 0, access=access)
        except NodeExists:
            return False
        return True

    async def _set_value(self, path: str, data: bytes, access: Access) -> None:
        errand = self._errand(f"write {path}")
        await self._prepare(errand)
        while True:
            try:
                await errand.create(path, data, _not_ours, access=access)
                return
            except NodeExists:
                pass
            try:
                _, stat = await errand.read(path)
                await errand.write(path, data, stat.version)
                return
            except (NodeAbsent, NodeChanged, MetadataOutcomeUnknown):
                errand.check_time(f"{path} keeps changing")

    def _follow(self, path: str, tell: Callable[[tuple[bytes, Stat] | None], object]) -> Watch:
        return NodeWatch(self._tree, self._clock, self._settings, path, tell)

    def _errand(self, purpose: str, *, one_session: bool = False) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose, one_session=one_session)


async def _nobody_knows() -> bool:
    """As `_not_ours`, of a transaction: it is tried again, and finds what there is."""
    return False


def _not_ours(_data: bytes, _stat: Stat) -> bool:
    """After a lost answer nobody can say who made the node; writing to it as to another's does no harm."""
    return False


if TYPE_CHECKING:

    def _is_the_seam(underreplication: ZnodeUnderreplication) -> Underreplication:
        return underreplication
