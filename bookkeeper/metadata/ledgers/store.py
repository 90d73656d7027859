"""Ledger metadata in a tree of znodes. The seam is `store.LedgerStore`.

Source: bookkeeper/wire/FORMATS.md 4.4, 5.4 to 5.6.

Each ensemble change adds a fragment to a ledger's metadata: with three bookies 50 to 90 bytes in version 3 and 140 to
175 in version 2. The record must fit into one request to ZooKeeper:

    0                                                UNCLOSED_SHARE       zkMaxRequestSizeBytes
    |-- open: ensemble changes, repair of earlier fragments --|                      |
    |-- recovery: mark, close with the fragments that it adds; repair of closed ones-|

An ensemble change that does not fit fails with MetadataTooLarge, and so does the write handle. Nothing was acknowledged
in the new ensemble (I-09). The handle closes the ledger at the last acknowledged entry; the reserved room is enough for
that. If the writer dies first, recovery closes the ledger. A repair that does not fit copies nothing. The ledger stays
marked; the replication worker logs the reason and retries with growing delays. A recovery that adds too many fragments
fails, and the next recovery begins from the stored record.

Differs from Apache: its client has no such bound."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import (
    LedgerExists,
    MetadataCorrupt,
    MetadataError,
    MetadataOutcomeUnknown,
    MetadataTooLarge,
    MetadataUnavailable,
    NoSuchLedger,
    VersionConflict,
)
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.cluster.layout import Layout, LayoutKind
from bookkeeper.metadata.cluster.stored_layout import StoredLayout
from bookkeeper.metadata.directories import Directories
from bookkeeper.metadata.ledgers.codec import check_representable, format_ledger, parse_ledger
from bookkeeper.metadata.ledgers.id_generator import LedgerIds
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.metadata.ledgers.walk import walk_ledgers
from bookkeeper.metadata.ledgers.watch import LedgerWatch, WatchRefresher
from bookkeeper.metadata.outcome import Errand, Owned
from bookkeeper.metadata.store import LedgerListener, MetadataSettings, RepairLock, Watch
from bookkeeper.metadata.tree import (
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeNotEmpty,
    Stat,
    Tree,
    Write,
    operation_size,
)
from bookkeeper.metadata.underreplication.repair_locks import HeldLock
from bookkeeper.model import LedgerId, LedgerMetadata, LedgerState, Versioned

if TYPE_CHECKING:
    from random import Random

    from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger
    from bookkeeper.ports import Clock

CREATOR_TOKEN_LIMIT = 2**63 - 1
"""Creator tokens are below this."""

UNCLOSED_SHARE = 7 / 8
"""Share of the largest request that metadata may use until the ledger is closed.

By default the remaining eighth is 130 560 bytes. A close uses less than 100 of them. The rest is for the fragments
that a recovery adds."""

_TIDIED = frozenset({LayoutKind.HIERARCHICAL, LayoutKind.LONG_HIERARCHICAL})


class ZnodeLedgers:
    """The LedgerStore over a Tree."""

    def __init__(
        self, tree: Tree, root: str, layout: StoredLayout, clock: Clock, random: Random, settings: MetadataSettings
    ) -> None:
        self._tree = tree
        self._root = root
        self._layout = layout
        self._clock = clock
        self._random = random
        self._settings = settings
        self._directories = Directories(root)
        self._ids = LedgerIds(tree, root, self._directories)
        self._refresher = WatchRefresher(tree, clock, settings)

    def prepare(self) -> Deferred[Layout]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._layout.current(self._errand("read the ledger layout")))

    def new_id(self, ahead: int = 1) -> Deferred[LedgerId]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._new_id(ahead))

    def create(
        self, metadata: LedgerMetadata, ledger_id: LedgerId | None = None, *, generated: bool = False
    ) -> Deferred[tuple[LedgerId, Versioned[LedgerMetadata]]]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._create(metadata, ledger_id, chosen=ledger_id is not None and not generated))

    def read(self, ledger_id: LedgerId) -> Deferred[Versioned[LedgerMetadata]]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._read(ledger_id))

    def write(
        self,
        ledger_id: LedgerId,
        metadata: LedgerMetadata,
        version: int,
        *,
        lock: RepairLock | None = None,
        ends: UnderreplicatedLedger | None = None,
    ) -> Deferred[Versioned[LedgerMetadata]]:
        """See LedgerStore."""
        if isinstance(lock, HeldLock):
            return Deferred.fromCoroutine(self._write_locked(ledger_id, metadata, version, lock, ends))
        # Without a node there is nothing to look at: a lock is advice (I-20), and the version decides.
        return Deferred.fromCoroutine(self._write(ledger_id, metadata, version, is_repair=lock is not None))

    def check_room(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, *, lock: RepairLock | None = None
    ) -> Deferred[None]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._check_room(ledger_id, metadata, is_repair=lock is not None))

    def delete(self, ledger_id: LedgerId, version: int) -> Deferred[None]:
        """See LedgerStore."""
        return Deferred.fromCoroutine(self._delete(ledger_id, version))

    def watch(
        self,
        ledger_id: LedgerId,
        on_change: LedgerListener,
        *,
        after_version: int = -1,
        on_error: Callable[[MetadataError], object] | None = None,
    ) -> Watch:
        """See LedgerStore."""
        return LedgerWatch(self._refresher, self._path_of, ledger_id, on_change, after_version, on_error)

    async def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """See LedgerStore."""

        def new_errand() -> Errand:
            return self._errand("list the ledgers")

        layout = await self._layout.current(new_errand())
        async for batch in walk_ledgers(new_errand, self._root, layout.kind, bad_records):
            yield batch

    def close(self) -> None:
        """Stop refreshing watches."""
        self._refresher.stop()

    # --- one ledger ------------------------------------------------------------------------------------------------

    async def _new_id(self, ahead: int) -> LedgerId:
        errand = self._errand("generate a ledger id")
        return await self._ids.generate(errand, (await self._layout.current(errand)).kind, ahead)

    async def _create(
        self, metadata: LedgerMetadata, ledger_id: LedgerId | None, *, chosen: bool
    ) -> tuple[LedgerId, Versioned[LedgerMetadata]]:
        check_representable(metadata)
        token = self._random.randrange(CREATOR_TOKEN_LIMIT) if metadata.format_version >= 3 else None
        metadata = dataclasses.replace(metadata, creator_token=token)
        data = format_ledger(metadata)
        errand = self._errand("create a ledger" if ledger_id is None else f"create ledger {ledger_id}")
        kind = (await self._layout.current(errand)).kind
        while True:
            new_id = await self._ids.generate(errand, kind) if ledger_id is None else ledger_id
            path = self._root + ledger_path(kind, new_id)
            self._check_size(new_id, metadata, path, data)
            try:
                await self._create_leaf(errand, path, data, _is_ours(path, data, token, chosen=chosen))
            except NodeExists as error:
                if ledger_id is not None:
                    raise LedgerExists(f"ledger {ledger_id} exists already ({path})") from error
                errand.check_time(f"every id that was generated is taken already, at last {new_id}")
                continue
            return new_id, Versioned(_as_stored(metadata, data, path), 0)

    async def _create_leaf(self, errand: Errand, path: str, data: bytes, is_ours: Owned) -> None:
        while True:
            try:
                await errand.create(path, data, is_ours)
                return
            except NodeAbsent:
                # The directories are missing, or were tidied away by somebody who deleted their last ledger.
                errand.check_time(f"the directories of {path} vanish as fast as they are made")
                await self._directories.make(errand, path.rpartition("/")[0])

    async def _read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        errand = self._errand(f"read the metadata of ledger {ledger_id}")
        path = await self._path_of(ledger_id, errand)
        found = await errand.read_surely(path)
        if found is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id} ({path})")
        data, stat = found
        try:
            metadata = parse_ledger(data, path)
        except MetadataCorrupt as error:
            error.version = stat.version
            raise
        return Versioned(dataclasses.replace(metadata, stored_ms=stat.created_ms), stat.version)

    async def _write(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: int, *, is_repair: bool
    ) -> Versioned[LedgerMetadata]:
        check_representable(metadata)
        errand = self._errand(f"write the metadata of ledger {ledger_id}")
        path = await self._path_of(ledger_id, errand)
        data = format_ledger(metadata)
        self._check_size(ledger_id, metadata, path, data, is_repair=is_repair)
        try:
            stat = await errand.write(path, data, version)
        except NodeAbsent as error:
            raise NoSuchLedger(f"there is no ledger {ledger_id} any more ({path})") from error
        except NodeChanged as error:
            raise VersionConflict(f"ledger {ledger_id} is not at version {version}: {error}") from error
        return Versioned(_as_stored(metadata, data, path), stat.version)

    async def _write_locked(
        self,
        ledger_id: LedgerId,
        metadata: LedgerMetadata,
        version: int,
        lock: HeldLock,
        ends: UnderreplicatedLedger | None,
    ) -> Versioned[LedgerMetadata]:
        check_representable(metadata)
        errand = self._errand(f"write the metadata of ledger {ledger_id}", one_session=True)
        path = await self._path_of(ledger_id, errand)
        lock.check()
        data = format_ledger(metadata)
        self._check_size(ledger_id, metadata, path, data, is_repair=True)
        change = Write(path, data, version)
        written = Versioned(_as_stored(metadata, data, path), version + 1)
        ending = None if ends is None else lock.ending(ends)
        if ending is not None:
            try:
                await errand.write_with(change, ending.steps, ending.transact)
            except (NodeAbsent, NodeChanged, NodeNotEmpty):
                pass  # without the end of the repair, then
            else:
                lock.removed_with_mark()
                return written
        try:
            await errand.write_with(change, [lock.still_there()])
        except (NodeAbsent, NodeChanged) as error:
            if await errand.stat(lock.path) is None:
                raise MetadataUnavailable(
                    f"the metadata of ledger {ledger_id} stays as it is: the lock on the ledger was lost ({lock.path})"
                ) from error
            if isinstance(error, NodeAbsent):
                raise NoSuchLedger(f"there is no ledger {ledger_id} any more ({path})") from error
            raise VersionConflict(f"ledger {ledger_id} is not at version {version}: {error}") from error
        return written

    async def _check_room(self, ledger_id: LedgerId, metadata: LedgerMetadata, *, is_repair: bool) -> None:
        path = await self._path_of(ledger_id)
        self._check_size(ledger_id, metadata, path, format_ledger(metadata), is_repair=is_repair)

    def _check_size(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, path: str, data: bytes, *, is_repair: bool = False
    ) -> None:
        """Raise MetadataTooLarge unless the record fits. is_repair: not written by writer or recovery."""
        keeps_room = metadata.state is LedgerState.OPEN or (is_repair and not metadata.is_closed)
        size, limit = operation_size(path, data), self._settings.request_size_max
        if keeps_room:
            limit = int(limit * UNCLOSED_SHARE)
        if size <= limit:
            return
        custom_size = sum(len(key) + len(value) for key, value in metadata.custom.items())
        raise MetadataTooLarge(
            f"ledger {ledger_id}: its metadata at {path} would have {len(metadata.fragments)} fragments and "
            f"{custom_size} bytes of custom metadata, a request of {size} bytes; at most {limit} fit"
            + (" as long as the ledger is not closed" if keeps_room else "")
            + "; close the ledger and continue in a new one, shorten custom metadata, or raise jute.maxbuffer of all "
            "ZooKeeper servers and Apache clients, then zkMaxRequestSizeBytes",
            path=path,
            size=size,
            limit=limit,
        )

    async def _delete(self, ledger_id: LedgerId, version: int) -> None:
        errand = self._errand(f"delete ledger {ledger_id}")
        kind = (await self._layout.current(errand)).kind
        path = self._root + ledger_path(kind, ledger_id)
        try:
            await errand.delete(path, version)
        except NodeAbsent:
            return
        except NodeChanged as error:
            raise VersionConflict(f"ledger {ledger_id} is not at version {version}: {error}") from error
        if kind in _TIDIED:
            await self._tidy(errand, path.rpartition("/")[0])

    async def _tidy(self, errand: Errand, directory: str) -> None:
        """Remove directories that became empty, upwards. Nothing depends on it: the ledger is gone already."""
        while directory != self._root:
            try:
                await errand.delete(directory, 0)
            except MetadataError:
                return  # usually NodeNotEmpty
            directory = directory.rpartition("/")[0]

    async def _path_of(self, ledger_id: LedgerId, errand: Errand | None = None) -> str:
        layout = await self._layout.current(errand or self._errand(f"find ledger {ledger_id}"))
        return self._root + ledger_path(layout.kind, ledger_id)

    def _errand(self, purpose: str, *, one_session: bool = False) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose, one_session=one_session)


def _as_stored(metadata: LedgerMetadata, data: bytes, path: str) -> LedgerMetadata:
    """What a reader will see; version 1 says less than we were given."""
    return parse_ledger(data, path) if metadata.format_version == 1 else metadata


def _is_ours(path: str, data: bytes, token: int | None, *, chosen: bool) -> Owned:
    """How to know our own ledger after a lost answer."""

    def by_token(found: bytes, _stat: Stat) -> bool:
        try:
            return parse_ledger(found, path).creator_token == token
        except MetadataCorrupt:
            return False

    def by_content(found: bytes, stat: Stat) -> bool:
        if found != data or stat.version != 0:
            return False
        if chosen:
            # No token before version 3: another client may have chosen the same id and written the same bytes, and
            # then both would think the ledger theirs.
            raise MetadataOutcomeUnknown(
                f"the answer to creating {path} was lost; it exists with the same content, but this metadata format "
                "cannot tell who created it"
            )
        return True

    return by_content if token is None else by_token
