"""Znodes that show whether the store went back in time: bookies' counters, id generators, operators' decisions.

The seam is `store.StoreHistory`; the formats are in history_format.py. A bookie's counter is written only by the
process that holds the bookie's directories.

Generators: the next sequential znode gets the number of children ever created in its parent. The parent's stat has that
number, so reading it uses up no id. To raise it, a child with a fixed name is created and removed STEP_MAX times in one
transaction. No client sees the child; to genuine clients the numbers look used by others. The cost is one transaction
per STEP_MAX ids, and none for a generator that is high enough.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import MetadataCorrupt, MetadataTooNew, NotInitialised
from bookkeeper.metadata.cluster.history_format import (
    Decision,
    GeneratedIds,
    Note,
    Raise,
    Report,
    format_decision,
    format_note,
    format_raises,
    parse_decision,
    parse_note,
    parse_raises,
    with_raise,
)
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.cluster.stored_layout import StoredLayout
from bookkeeper.metadata.ledgers.id_generator import newest_high_order
from bookkeeper.metadata.ledgers.paths import NO_CLUSTER_REMEDY, SEQUENTIAL_PREFIX, SHORT_ID_LIMIT
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import HistorySight
from bookkeeper.metadata.tree import Create, Delete, NodeAbsent, NodeChanged, NodeExists
from bookkeeper.model import BookieId

log = Logger()

BOOKIES_MAX = 10_000
"""Maximum number of notes listed."""

STEP_MAX = 500
"""Ids that one transaction passes over: 1000 operations, about 60 KB."""

RAISED_MAX = 1_000_000
"""Maximum number of ids of one generator that one call passes over."""


class ZnodeHistory:
    """The StoreHistory under `root`."""

    def __init__(self, root: str, layout: StoredLayout, new_errand: Callable[[str], Errand]) -> None:
        self._root = root
        self._base = f"{root}/underreplication/history"
        self._layout = layout
        self._new_errand = new_errand
        self._reported = ""  # why the raises could not be read

    def look(self, bookie_id: BookieId) -> Deferred[HistorySight]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._look(bookie_id))

    def write(self, bookie_id: BookieId, counter: int, report: Report, seen: Note | None) -> Deferred[Note]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._write(bookie_id, counter, report, seen))

    def decide(self, bookie_id: BookieId, decision: Decision) -> Deferred[bool]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._decide(bookie_id, decision))

    def decision_applied(self, bookie_id: BookieId, decision: Decision) -> Deferred[None]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._decision_applied(bookie_id, decision))

    def generated_ids(self) -> Deferred[GeneratedIds]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._generated_ids_synced())

    def raise_ids(self, past: GeneratedIds) -> Deferred[GeneratedIds]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._raise_ids(past))

    def bookies(self) -> Deferred[list[BookieId]]:
        """See StoreHistory."""
        return Deferred.fromCoroutine(self._bookies())

    # --- reads --------------------------------------------------------------------------------------------------------

    async def _look(self, bookie_id: BookieId) -> HistorySight:
        errand = self._new_errand(f"read the history of bookie {bookie_id}")
        await errand.sync()
        path = self._path(bookie_id)
        found = await errand.read_if_present(path)
        note: Note | None = None
        decision: Decision | None = None
        if found is not None:
            with _remedy("remove that znode, then run `bookkeeper metadata keep` for the bookie"):
                note = parse_note(found[0], path, found[1].version)
            decided = await errand.read_if_present(f"{path}/decision")
            if decided is not None:
                data, stat = decided
                with _remedy("remove that znode, and decide again"):
                    decision = parse_decision(data, f"{path}/decision", stat.version, stat.creation_id)
        raised = await errand.read_if_present(self._base)
        raises = () if raised is None else self._readable_raises(raised[0])
        return HistorySight(note, await self._generated_ids(errand), decision, raises)

    def _readable_raises(self, data: bytes) -> tuple[Raise, ...]:
        """Return the raises, none if they cannot be read: this record must not stop collection on all bookies.

        Raises MetadataTooNew: a record of a later release is evidence that this release cannot judge.
        """
        try:
            return parse_raises(data, self._base)
        except MetadataTooNew:
            raise
        except MetadataCorrupt as error:
            if str(error) != self._reported:
                self._reported = str(error)
                log.error("{error}; it counts as empty, and is written again when generators are raised", error=error)
            return ()

    async def _generated_ids_synced(self) -> GeneratedIds:
        errand = self._new_errand("read the id generators")
        await errand.sync()
        return await self._generated_ids(errand)

    async def _generated_ids(self, errand: Errand) -> GeneratedIds:
        kind = (await self._layout.current(errand)).kind
        if kind is LayoutKind.FLAT:
            return GeneratedIds(short=await self._made(errand, self._root))
        if kind is LayoutKind.LEGACY_HIERARCHICAL:
            return GeneratedIds(short=await self._made(errand, f"{self._root}/idgen"))
        long_path = f"{self._root}/idgen-long"
        newest: int | None = None
        try:
            newest = newest_high_order(await errand.children(long_path))
        except NodeAbsent:
            if kind is LayoutKind.HIERARCHICAL:
                return GeneratedIds(short=await self._made(errand, f"{self._root}/idgen"))
        # Once the long scheme is in use, no client takes short ids any more.
        short = SHORT_ID_LIMIT if kind is LayoutKind.HIERARCHICAL else 0
        if newest is None:
            return GeneratedIds(short, 0)
        made = await self._made(errand, f"{long_path}/HOB-{newest:010d}")
        return GeneratedIds(short, newest << 32 | made)

    async def _made(self, errand: Errand, path: str) -> int:
        stat = await errand.stat(path)
        return 0 if stat is None else stat.children_made

    async def _bookies(self) -> list[BookieId]:
        errand = self._new_errand("list the bookies' notes on the history")
        await errand.sync()
        try:
            return [BookieId(name) for name in sorted(await errand.children(self._base))[:BOOKIES_MAX]]
        except NodeAbsent:
            return []

    # --- the generators -----------------------------------------------------------------------------------------------

    async def _raise_ids(self, past: GeneratedIds) -> GeneratedIds:
        errand = self._new_errand("read the id generators")
        await errand.sync()
        shown = await self._generated_ids(errand)
        await self._note_raise(errand, shown)
        if not shown.is_behind(past):
            return shown
        kind = (await self._layout.current(errand)).kind
        if kind is LayoutKind.FLAT:
            await self._raise(self._root, past.short)
        elif kind is not LayoutKind.LONG_HIERARCHICAL and shown.short < past.short:
            await self._raise(f"{self._root}/idgen", min(past.short, SHORT_ID_LIMIT))
        if shown.long < past.long:
            directory = f"{self._root}/idgen-long/HOB-{(past.long - 1) >> 32:010d}"
            await self._raise(directory, (past.long - 1 & 0xFFFFFFFF) + 1)
        return await self._generated_ids_synced()

    async def _note_raise(self, errand: Errand, shown: GeneratedIds) -> None:
        """Note the values before a raise: the other bookies compare with them."""
        while True:
            found = await errand.read_if_present(self._base)
            if found is None:
                await errand.ensure_all(self._base, self._root)
                continue
            data, stat = found
            try:
                raises = parse_raises(data, self._base)
            except MetadataTooNew:
                raise
            except MetadataCorrupt:
                raises = ()
            # Each raise is one write, so the version keeps its number above the numbers of a lost record.
            data = format_raises(with_raise(raises, shown, stat.version + 1))
            with suppress(NodeChanged):
                await errand.write(self._base, data, stat.version)
                return
            errand.check_time(f"{self._base} keeps changing")

    async def _raise(self, directory: str, past: int) -> None:
        """Raise the number of children ever created in the directory to `past`, by at most RAISED_MAX."""
        errand = self._new_errand(f"raise the id generator {directory}")
        await errand.ensure_all(directory, self._root)
        child = f"{directory}/{SEQUENTIAL_PREFIX}raised"
        first = made = await self._made(errand, directory)
        while made < past and made - first < RAISED_MAX:
            errand = self._new_errand(f"raise the id generator {directory}")
            count = min(STEP_MAX, past - made)
            wanted = made + count

            async def is_done(wanted: int = wanted, errand: Errand = errand) -> bool:
                return await self._made(errand, directory) >= wanted

            await errand.transact([Create(child), Delete(child, 0)] * count, is_done)
            made = await self._made(errand, directory)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _write(self, bookie_id: BookieId, counter: int, report: Report, seen: Note | None) -> Note:
        errand = self._new_errand(f"write the counter of bookie {bookie_id}")
        path, data = self._path(bookie_id), format_note(counter, report)
        if seen is not None:
            stat = await errand.write(path, data, seen.version)
            return Note(counter, report, stat.version)
        try:
            await errand.create(path, data, lambda found, _stat: found == data)
        except NodeAbsent:
            try:
                await errand.ensure_all(self._base, self._root)
            except NodeAbsent as error:
                raise NotInitialised(f"there is no cluster under {self._root}; {NO_CLUSTER_REMEDY}") from error
            await errand.create(path, data, lambda found, _stat: found == data)
        return Note(counter, report)

    async def _decide(self, bookie_id: BookieId, decision: Decision) -> bool:
        errand = self._new_errand(f"store a decision for bookie {bookie_id}")
        path, data = f"{self._path(bookie_id)}/decision", format_decision(decision)
        while True:
            with suppress(NodeExists):
                await errand.create(path, data, lambda found, _stat: found == data)
                return False
            waiting = await errand.read_if_present(path)
            if waiting is not None:
                with suppress(NodeAbsent, NodeChanged):
                    await errand.write(path, data, waiting[1].version)
                    return True
            errand.check_time(f"{path} keeps changing")

    async def _decision_applied(self, bookie_id: BookieId, decision: Decision) -> None:
        errand = self._new_errand(f"remove the applied decision for bookie {bookie_id}")
        path = f"{self._path(bookie_id)}/decision"
        await errand.sync()
        stat = await errand.stat(path)
        if stat is None or stat.creation_id != decision.creation_id:
            return  # another decision has replaced it, and is applied next
        with suppress(NodeAbsent, NodeChanged):
            await errand.delete(path, decision.version, decision.creation_id)

    def _path(self, bookie_id: BookieId) -> str:
        return f"{self._base}/{bookie_id}"


@contextmanager
def _remedy(remedy: str) -> Iterator[None]:
    """Add a remedy to a MetadataCorrupt of the block."""
    try:
        yield
    except MetadataTooNew:
        raise
    except MetadataCorrupt as error:
        raise MetadataCorrupt(f"{error}; {remedy}") from error
