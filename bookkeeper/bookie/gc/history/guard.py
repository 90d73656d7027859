"""Protection from collection for ledgers that a metadata store forgot as it went back in time: rules.py.

    a round:  ledgers here -> look at the store's history -> ledgers of the store -> admit: ledgers to collect
                                    |                                                   |
                              finding on disk                     kept ledgers on disk; counter raised in the store,
                                                                  then on disk with the ledgers that were here

All that a deletion depends on is durable before `admit` returns. On full disks the guard continues in memory, except
for a KEEP: that ends a finding, and a process that reads the old file again would not have the list of kept ledgers.

Thread: reactor. Files are read and written on the collector's worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from twisted.logger import Logger

from bookkeeper.bookie.gc.history import rules
from bookkeeper.bookie.gc.history.file import HistoryFile
from bookkeeper.bookie.gc.history.format import Finding, History
from bookkeeper.bookie.gc.status import GarbageStatus
from bookkeeper.bookie.process.log_throttle import Seldom
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import CorruptRecord, MetadataError, MetadataUnavailable, NoWritableDisk, StorageError
from bookkeeper.metadata.cluster.history_format import (
    RANGES_MAX,
    Decision,
    GeneratedIds,
    Ranges,
    Report,
    Verdict,
    joined_ranges,
    shown_since,
)
from bookkeeper.metadata.store import HistorySight, MetadataStore, StoreState
from bookkeeper.model import BookieId, LedgerMetadata
from bookkeeper.ports import Clock, Worker

log = Logger()

REPEATED_S = 3600.0
"""Least time between two log lines about one finding."""

REMEDY = "run `bookkeeper metadata check`, which shows the ledgers and what can be decided"


Read = Callable[[Sequence[int]], Awaitable[Mapping[int, LedgerMetadata | None]]]
"""Returns the metadata of those ledgers that the store has; None for a record that cannot be read."""


@dataclass(frozen=True, slots=True)
class Look:
    """The store's history as seen early in a round. breaks: of the connection, before the ledgers here were listed."""

    breaks: int
    sight: HistorySight

    @property
    def counter(self) -> int:
        """The bookie's counter in the store; 0 where there is none."""
        return 0 if self.sight.note is None else self.sight.note.counter

    @property
    def raised(self) -> int:
        """The number of the newest raise of the generators; 0 where there was none."""
        return self.sight.raises[-1].number if self.sight.raises else 0

    def shown(self, history: History) -> GeneratedIds:
        """Return the lowest values that the generators showed since the newest raise that the bookie has seen."""
        return shown_since(self.sight.raises, history.raised, self.sight.ids)

    def known(self, history: History) -> GeneratedIds:
        """Return the lowest values that the generators can have shown since the store went back.

        Those in the store's note count too: the store may have given out forgotten ids again before this look.
        """
        shown = self.shown(history)
        return shown if self.sight.note is None else shown.lower(self.sight.note.report.ids)


class HistoryGuard:
    """The history guard of one bookie. See `GarbageCollector` for the arguments; cluster: the instance id.

    on_reconnected: called when a broken connection is back, so that the history is checked.
    """

    def __init__(
        self,
        file: HistoryFile,
        storage: LedgerStorage,
        store: MetadataStore,
        *,
        worker: Worker,
        bookie_id: BookieId,
        cluster: str,
        clock: Clock,
        wall_s: Callable[[], float],
        status: GarbageStatus,
        on_reconnected: Callable[[], None],
    ) -> None:
        self._file = file
        self._storage = storage
        self._store = store
        self._worker = worker
        self._bookie_id = bookie_id
        self._cluster = cluster
        self._clock = clock
        self._wall_s = wall_s
        self._status = status
        self._on_reconnected = on_reconnected
        self._history: History | None = None
        self._unsaved = False
        self._seldom = Seldom(REPEATED_S)
        self._settled: int | None = None  # breaks until the round in which the counter was written last
        self._compared: int | None = None  # breaks until the last look that was completed
        self._refused = 0  # sessions that servers had refused when the counter was written last
        self._uncertain: set[int] = set()  # ledgers that came since a counter, before a connection broke
        self.breaks = 0
        self._watch = store.watch_state(self._on_state)

    def stop(self) -> None:
        """Stop watching the connection."""
        self._watch.cancel()

    def _on_state(self, state: StoreState) -> None:
        if state is not StoreState.CONNECTED:
            self.breaks += 1
        elif self.breaks:
            self._on_reconnected()

    @property
    def is_current(self) -> bool:
        """Whether the store was compared with the bookie's memory since the last connect, or there is a finding."""
        return self._settled == self.breaks or (self._history is not None and self._history.finding is not None)

    def is_named(self, metadata: LedgerMetadata) -> bool:
        """Return whether a fragment of the ledger has this bookie in its ensemble, also under a former id.

        Ledgers have the former id until `updateledgers` is run.
        """
        bookies = {self._bookie_id} if self._history is None else {self._bookie_id, *self._history.bookies}
        return any(not bookies.isdisjoint(fragment.ensemble) for fragment in metadata.fragments)

    def may_move(self, ledger_id: int) -> bool:
        """Return whether a copy here may be collected if the metadata assigns its ledger to other bookies.

        Metadata that went back in time lists the bookies from before this copy was made.
        """
        history = self._history
        if history is None or history.finding is not None or self._compared != self.breaks:
            return False
        return ledger_id not in self._uncertain and not rules.within([ledger_id], history.kept)

    # --- a round ------------------------------------------------------------------------------------------------------

    async def look(self, breaks: int, local: array[int]) -> Look:
        """Compare what the store shows with what this bookie has seen of it, and save a finding.

        breaks: as it was before the ledgers here, `local`, were listed. Raises MetadataError, StorageError, OSError.
        """
        history = await self._load()
        look = Look(breaks, await self._store.history.look(self._bookie_id))
        self.check_unbroken(look)  # else a server behind the one of the sync may have answered (I-19)
        if history.finding is None and rules.went_back(history, look.counter, look.sight.ids):
            before, known = history, look.known(history)
            newer = await on_worker(self._worker, lambda: rules.kept_with((), rules.newer(before, known, local)))
            new = Finding(round(self._wall_s() * 1000), look.counter, look.sight.ids, newer)
            history = await self._keep(replace(history, finding=new, discarded=()))
        elif self._unsaved:
            history = await self._keep(history)
        self._show(history)
        finding = history.finding
        if finding is not None and not rules.came_back(history, finding, look.counter):
            past = rules.past(history.ids, rules.within(local, finding.newer))
            await self._raise_ids(past, history, look, is_evident=not finding.reason)
        return look

    async def _raise_ids(self, past: GeneratedIds, history: History, look: Look, *, is_evident: bool) -> None:
        """Raise the generators, so that no new ledger gets the id of a forgotten one.

        Until that succeeds, a writer that gets such an id takes another one (`client/new_ledger.py`). is_evident: note
        a raise even if there is nothing to raise, so that the other bookies see that the store went back.
        """
        if not look.sight.ids.is_behind(past) and not (is_evident and look.raised <= history.raised):
            return
        try:
            shown = await self._store.history.raise_ids(past)
        except MetadataError as error:
            log.warn("Raising the id generators failed and is tried again: {error}", error=error)
            return
        log.warn(
            "Raised the id generators of {store}, which may have given out ids twice: ids {shown} are used up",
            store=self._store.description,
            shown=_ids_text(shown),
        )

    async def is_doubtful(self, look: Look, local: array[int]) -> bool:
        """Return whether the store's ledgers must be listed before the counter may be written."""
        history = await self._load()
        if history.finding is not None or history.kept or look.sight.decision is not None:
            return True
        if look.breaks == self._settled:
            return False
        if self._is_evident(history, look):
            return True
        shown = look.shown(history)
        return await on_worker(self._worker, lambda: self._any_beyond(rules.newcomers(history, local), shown))

    def _is_evident(self, history: History, look: Look) -> bool:
        """Return whether the store went back since the counter was written, by evidence other than ids."""
        return self._was_seen(history) or look.raised > history.raised

    def _was_seen(self, history: History) -> bool:
        """Return whether this process saw that the store went back; also after a newer copy ended the finding."""
        return history.finding is not None or self._store.sessions_refused > self._refused

    async def admit(
        self,
        look: Look,
        local: array[int],
        absent: array[int] | None,
        read: Read,
    ) -> array[int]:
        """Return the absent ledgers that may be collected, ascending; keep the others, durably.

        local: the ledgers here. absent: the local ledgers that a complete listing lacked; None if `is_doubtful` was
        False and nothing was listed. Raises MetadataError, StorageError, OSError.
        """
        self.check_unbroken(look)
        history = await self._load()
        if absent is None:
            absent = array("q")
        decision = look.sight.decision
        if decision is not None:
            history = await self._decided(history, decision, look, local, absent, read)
        if history.finding is not None and not rules.came_back(history, history.finding, look.counter):
            allowed = rules.within(absent, history.discarded)
            await self._report(history, look, local, absent)
        else:
            history = await self._settle(history, look, local, absent, read)
            allowed = rules.without(absent, history.kept)
        if decision is not None and not self._unsaved:
            await self._store.history.decision_applied(self._bookie_id, decision)
        self._status.kept_count = len(rules.within(local, history.kept))
        self._show(history)
        self._compared = look.breaks
        return allowed

    @property
    def has_discarded(self) -> bool:
        """Whether ledgers are discarded that are not known to be deleted yet."""
        return self._history is not None and bool(self._history.discarded)

    async def on_removed(self, ledger_ids: Sequence[int]) -> None:
        """Forget the decision on ledgers that are deleted: a later ledger may get one of their ids."""
        history = await self._load()
        left = rules.taken_out(history.discarded, rules.ranges_of(sorted(ledger_ids)))
        if left != history.discarded:
            await self._keep(replace(history, discarded=left))

    async def _settle(self, history: History, look: Look, local: array[int], absent: array[int], read: Read) -> History:
        """Keep the ledgers in doubt, then write the counter."""
        refused = self._store.sessions_refused
        kept = rules.ranges_of(rules.within(local, history.kept))
        finding = history.finding
        if finding is not None or look.breaks != self._settled:
            kept = await self._keep_doubtful(history, kept, look, local, absent, read)
        if finding is not None:
            log.info(
                "{store} is again as new as this bookie has seen it (counter {counter}): collection continues",
                store=self._store.description,
                counter=look.counter,
            )
        if finding is not None or kept != history.kept:
            history = await self._keep(replace(history, kept=kept, finding=None, discarded=()))
        self.check_unbroken(look)
        counter = rules.next_counter(history, look.counter)
        ids = history.ids.joined(look.sight.ids)
        report = self._report_of(replace(history, ids=ids), local, absent)
        await self._store.history.write(self._bookie_id, counter, report, look.sight.note)
        self.check_unbroken(look)  # else the write may have been repeated in a store that was restored since
        held = array("q", local)
        history = await self._keep(
            replace(
                history,
                counter=counter,
                ids=ids,
                raised=look.raised,
                held=held,
                discarded=(),
            ),
        )
        # Also if it is unsaved: this process has compared all ledgers that came before the connection broke.
        self._settled, self._refused = look.breaks, refused
        return history

    async def _keep_doubtful(
        self, history: History, kept: Ranges, look: Look, local: array[int], absent: array[int], read: Read
    ) -> Ranges:
        """Return `kept` and the ledgers that the store may have forgotten since the counter was written.

        Raises the generators past these. The store's note of the raise is evidence for a process that does not find
        `kept` on the disk.
        """
        shown = look.shown(history)

        def compare() -> tuple[list[int], list[int], Sequence[int], bool]:
            missing = rules.newcomers(history, absent)
            came = rules.newcomers(history, local) if history.counter else []
            recent = rules.without([each for each in came if each not in history.ids], rules.ranges_of(absent))
            return missing, came, recent, self._any_beyond(missing, shown)

        missing, came, recent, beyond = await on_worker(self._worker, compare)
        self._uncertain.update(came)
        evident = beyond or self._is_evident(history, look)
        lost: list[int] = []
        if evident:
            found = await read(recent)
            self.check_unbroken(look)
            lost = missing + [each for each in recent if self._may_be_another(found, each)]
        past = rules.past(look.sight.ids, (each for each in lost if each not in shown))
        await self._raise_ids(past, history, look, is_evident=self._was_seen(history))
        new = rules.without(sorted(lost), kept)
        kept = await on_worker(self._worker, lambda: rules.kept_with(kept, lost))
        if new:
            log.critical(
                "Kept {count} ledgers from {first} to {last}: they came shortly before the connection to {store} "
                "broke, and it lacks them, assigns them to other bookies, or may have given their ids to others. "
                "Either it was restored from an older copy, or they were deleted or moved since; {remedy}",
                count=len(new),
                first=new[0],
                last=new[-1],
                store=self._store.description,
                remedy=REMEDY,
            )
        return kept

    def _may_be_another(self, found: Mapping[int, LedgerMetadata | None], ledger_id: int) -> bool:
        """Return whether the store's ledger of a recent id may be a later one than the ledger here."""
        metadata = found.get(ledger_id)
        return metadata is None or not self.is_named(metadata) or not metadata.is_closed

    def _any_beyond(self, ledger_ids: Sequence[int], shown: GeneratedIds) -> bool:
        """Return whether one of the ledgers has entries and an id that was not given out. Thread: worker."""
        return any(ledger_id not in shown and self._has_entries(ledger_id) for ledger_id in ledger_ids)

    def _has_entries(self, ledger_id: int) -> bool:
        """Return whether the ledger has entries; True if that is unknown. Thread: worker."""
        try:
            self._storage.load_cold(ledger_id)
            return not self._storage.exists(ledger_id) or self._storage.last_entry_id(ledger_id) is not None
        except StorageError:
            return True

    def check_unbroken(self, look: Look) -> None:
        """Raise MetadataUnavailable if the connection broke since the look."""
        if self.breaks != look.breaks or self._store.state is not StoreState.CONNECTED:
            raise MetadataUnavailable(
                f"the connection to {self._store.description} broke while its ledgers were compared with those here; "
                "the next round compares again"
            )

    # --- decisions ----------------------------------------------------------------------------------------------------

    async def _decided(
        self,
        history: History,
        decision: Decision,
        look: Look,
        local: array[int],
        absent: array[int],
        read: Read,
    ) -> History:
        if decision.verdict is Verdict.DISCARD:
            log.warn("An operator discarded ledgers: {ranges}", ranges=_ranges_text(decision.ledgers))
            kept = rules.taken_out(history.kept, decision.ledgers)
            discarded = joined_ranges((*history.discarded, *decision.ledgers)) if history.finding is not None else ()
            return await self._keep(replace(history, kept=kept, discarded=discarded))
        if history.finding is None:
            return history
        finding_newer = history.finding.newer
        found = await read(await on_worker(self._worker, lambda: rules.without(local, rules.ranges_of(absent))))
        self.check_unbroken(look)

        def choose() -> tuple[int, Ranges]:
            # A ledger that went since the listing counts as absent: it may have had the id of the one here.
            others = (each for each in local if not ((metadata := found.get(each)) and self.is_named(metadata)))
            lacking = rules.without([*others], history.discarded)
            newer = rules.without(rules.within(local, finding_newer), history.discarded)
            return len(lacking), rules.kept_with(history.kept, [*lacking, *newer])

        count, kept = await on_worker(self._worker, choose)
        self.check_unbroken(look)
        log.warn(
            "An operator accepted {store} as it is: {count} ledgers that it does not assign to this bookie are kept "
            "here, collection continues with the others",
            store=self._store.description,
            count=count,
        )
        accepted = rules.accepted(history, look.counter, look.sight.ids, look.raised, kept)
        return await self._keep(accepted, in_memory=False)

    # --- what is remembered -------------------------------------------------------------------------------------------

    async def _load(self) -> History:
        if self._history is not None:
            return self._history
        try:
            history = await on_worker(self._worker, lambda: self._file.read(self._cluster))
            self._history = rules.belonging_to(history, self._bookie_id)
        except CorruptRecord as error:
            # It may have listed ledgers to be kept, so an operator decides. The next save replaces the file.
            found_ms = round(self._wall_s() * 1000)
            finding = Finding(found_ms, 0, GeneratedIds(), (), f"the bookie's own memory of it is lost: {error}")
            self._history = History(self._cluster, (self._bookie_id,), finding=finding)
            self._unsaved = True
        return self._history

    async def _keep(self, history: History, *, in_memory: bool = True) -> History:
        """Save the history; while the disks are full, keep it in memory and save it at the next look.

        Raises NoWritableDisk if `in_memory` is False; the history then stays unchanged.
        """
        before = self._history
        try:
            history = await on_worker(self._worker, lambda: self._file.save(history))
            self._unsaved = False
        except NoWritableDisk as error:
            if not in_memory:
                raise
            assert before is not None
            # After a crash the file counts: the counter must not cover ledgers that the file does not list.
            history = replace(history, counter=before.counter, held=before.held, raised=before.raised)
            self._unsaved = True
            log.warn("The bookie's memory of the metadata store was not saved: {error}", error=error)
        self._history = history
        return history

    async def _report(self, history: History, look: Look, local: array[int], absent: array[int]) -> None:
        """Write a report for operators; the counter stays as the store showed it, which is the evidence."""
        report = self._report_of(history, local, absent)
        await self._store.history.write(self._bookie_id, look.counter, report, look.sight.note)

    def _report_of(self, history: History, local: array[int], absent: array[int]) -> Report:
        shown = absent if history.finding is not None else array("q")
        kept = rules.within(local, history.kept)
        return Report(
            reported_ms=round(self._wall_s() * 1000),
            finding=finding_text(history),
            ids=history.ids,
            held_count=len(local),
            held_newest=local[-1] if local else -1,
            absent_count=len(absent),
            absent=rules.ranges_of(shown)[:RANGES_MAX],
            kept_count=len(kept),
            kept=rules.ranges_of(kept)[:RANGES_MAX],
        )

    def _show(self, history: History) -> None:
        finding = finding_text(history)
        self._status.finding = finding
        if finding and self._seldom.count(finding, self._clock.seconds()):
            log.critical(
                "Metadata store {store}: {finding}. It may have gone back in time: nothing is collected, since what it "
                "lacks may be data; {remedy}",
                store=self._store.description,
                finding=finding,
                remedy=REMEDY,
            )


def finding_text(history: History) -> str:
    """Describe what the store showed and what was seen before; "" without a finding."""
    finding = history.finding
    if finding is None:
        return ""
    parts: list[str] = [finding.reason] if finding.reason else []
    if finding.counter < history.counter:
        parts.append(f"this bookie's counter there is {finding.counter or 'missing'}, and was {history.counter}")
    for name, shown, seen in (
        ("ids", finding.ids.short, history.ids.short),
        ("long ids", finding.ids.long, history.ids.long),
    ):
        if shown < seen:
            parts.append(f"its generator of {name} is at {shown}, and was at {seen}")
    return ", ".join(parts) or "it showed less than this bookie had seen of it under a former id"


def _ids_text(ids: GeneratedIds) -> str:
    text = f"below {ids.short}"
    return f"{text}, and below {ids.long}" if ids.long else text


def _ranges_text(ranges: Ranges) -> str:
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:20])
    return f"{shown}, ..." if len(ranges) > 20 else shown
