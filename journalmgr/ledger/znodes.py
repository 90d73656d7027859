"""The journal's znodes: the version, the list of segments, the greatest txid, who writes. Everything by version (I-15).

    ROOT, ROOT/ledgers       "0"
    ROOT/version             written last by format: what has it is formatted
    ROOT/maxtxid             compare-and-set; absent is 0. Its version is also the journal's: see below
    ROOT/CurrentInprogress   null data when nobody writes (Java reads b"" as damage); compare-and-set
    ROOT/ledgers/*           one per segment; created and removed, never changed
    ROOT/deleting/*          ours: ledgers whose segments are being deleted (`removal`); Hadoop does not look there
    ROOT/upgrade             ours: the state before an upgrade (`upgrade`)

A name comes back: when an empty segment was removed, the next one has its first txid, and its record is again of
version 0. Whoever slept meanwhile would take it for the old one. So nobody removes a record in progress without the
condition that maxtxid is still as it was when the record was last seen, and everybody who does so gives maxtxid a new
version first. Differs from Apache: its recovery removes whatever has the name.

Every operation is an errand of its own: bounded in time, and sure of its outcome or JournalUnavailable.

Thread: reactor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, DeferredList

from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeNotEmpty,
    Step,
    Tree,
    WatchListener,
)
from journalmgr.errors import JournalError, JournalUnavailable, SegmentUnreadable
from journalmgr.ledger.outcome import told, translated
from journalmgr.model import Segment, TxId
from journalmgr.segment import (
    PLACEHOLDER,
    CurrentSegment,
    VersionRecord,
    parse_current,
    parse_max_txid,
    parse_segment,
    parse_version,
    print_current,
    print_max_txid,
    print_segment,
    segment_named,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bookkeeper.ports import Clock

ATTEMPTS_MAX = 16
"""Compare-and-sets that may lose against other changes before the caller hears of it."""

NO_LIST = "has no list of segments; format it if it is new, or restore ZooKeeper's data if they were lost"
"""The fault of a journal without a list of segments: not formatted yet, or its data was lost."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A segment as its znode records it."""

    segment: Segment
    path: str
    version: int
    creation_id: int


@dataclass(frozen=True, slots=True)
class MaxTxId:
    """The greatest txid, and the version to change it by; None where there is no znode yet."""

    txid: TxId
    version: int | None


class JournalZnodes:
    """What one process sees and does of one journal's znodes."""

    def __init__(self, tree: Tree, clock: Clock, settings: MetadataSettings, root: str) -> None:
        self._tree, self._clock, self._settings = tree, clock, settings
        self._reported = ReportedRecords()
        self.root = root
        self.version_path = f"{root}/version"
        self.list_path = f"{root}/ledgers"
        self.max_path = f"{root}/maxtxid"
        self.current_path = f"{root}/CurrentInprogress"
        self.deleting_path = f"{root}/deleting"
        self.upgrade_path = f"{root}/upgrade"

    @property
    def description(self) -> str:
        """The servers, for messages."""
        return self._tree.description

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self._clock, self._settings, f"journal {self.root}: {purpose}")

    async def sync(self) -> None:
        """Later reads see all that was written before (I-19)."""
        with told(f"journal {self.root}"):
            await self._errand("sync").sync()

    # --- any znode

    async def read(self, path: str) -> tuple[bytes, int] | None:
        """Data and version, or None where there is certainly no znode."""
        with told(f"reading {path}"):
            found = await self._errand(f"read {path}").read_surely(path)
        return None if found is None else (found[0], found[1].version)

    async def exists(self, path: str) -> bool:
        """Whether there is a znode."""
        with told(f"looking for {path}"):
            return await self._errand(f"look for {path}").stat(path) is not None

    async def children(self, path: str, watch: WatchListener | None = None) -> list[str] | None:
        """Names, or None where there is no znode (then no watch is set)."""
        with told(f"listing {path}"):
            try:
                return await self._errand(f"list {path}").children(path, watch)
            except NodeAbsent:
                return None

    def forget(self, path: str, watch: WatchListener) -> None:
        """Do not fire this watch of the children of `path`."""
        self._tree.forget(path, watch)

    async def create(self, path: str, data: bytes | None) -> None:
        """Make a znode. Raises NodeExists, NodeAbsent (no parent)."""
        errand = self._errand(f"create {path}")
        try:
            await errand.create(path, data, lambda found, _stat: found == (data or b""))
        except (NodeExists, NodeAbsent):
            raise
        except BookKeeperError as error:
            raise translated(f"creating {path}", error) from error

    async def ensure(self, path: str, data: bytes | None = b"") -> None:
        """Make a znode unless it is there. Raises NodeAbsent (no parent)."""
        try:
            await self.create(path, data)
        except NodeExists:
            return

    async def ensure_parents(self) -> None:
        """Make what is above the root. Differs from Apache: that fails where the parent of the root is missing."""
        parent = self.root.rpartition("/")[0]
        if parent:
            with told(f"creating {parent}"):
                await self._errand(f"create {parent}").ensure_all(parent)

    async def write(self, path: str, data: bytes | None, version: int) -> int:
        """Replace the data that has `version`; the new one. Raises NodeChanged, NodeAbsent."""
        try:
            return (await self._errand(f"write {path}").write(path, data, version)).version
        except (NodeChanged, NodeAbsent):
            raise
        except BookKeeperError as error:
            raise translated(f"writing {path}", error) from error

    async def delete(self, path: str, version: int, creation_id: int | None = None) -> None:
        """Remove the znode that has `version`. Raises NodeChanged, NodeAbsent, NodeNotEmpty."""
        try:
            await self._errand(f"delete {path}").delete(path, version, creation_id)
        except (NodeChanged, NodeAbsent, NodeNotEmpty):
            raise
        except BookKeeperError as error:
            raise translated(f"deleting {path}", error) from error

    async def transact(self, steps: Sequence[Step], is_done: Callable[[], Awaitable[bool]]) -> None:
        """All steps or none; after a lost answer `is_done` tells which.

        Raises NodeChanged, NodeAbsent (of a step's node, or of a new node's parent), NodeExists.
        """
        paths = ", ".join(step.path for step in steps)
        try:
            await self._errand(f"change {paths}").transact(steps, is_done)
        except (NodeChanged, NodeAbsent, NodeExists):
            raise
        except BookKeeperError as error:
            raise translated(f"changing {paths}", error) from error

    async def delete_if_present(self, path: str) -> None:
        """Remove a znode without children, whatever its version; by its version all the same."""
        for _ in range(ATTEMPTS_MAX):
            found = await self.read(path)
            if found is None:
                return
            try:
                await self.delete(path, found[1])
            except NodeAbsent:
                return
            except NodeChanged:
                continue
            return
        raise self.contended(path)

    async def delete_tree(self, path: str) -> None:
        """Remove a znode and all below it."""
        for _ in range(ATTEMPTS_MAX):
            for name in await self.children(path) or ():
                await self.delete_tree(f"{path}/{name}")
            try:
                await self.delete_if_present(path)
            except NodeNotEmpty:
                continue
            return
        raise self.contended(path)

    # --- the version

    async def read_version(self) -> VersionRecord | None:
        """What the journal is bound to; None where it was never formatted."""
        found = await self.read(self.version_path)
        return None if found is None else parse_version(found[0], self.version_path)

    # --- the list of segments

    def path_of(self, name: str) -> str:
        """Of a segment's znode."""
        return f"{self.list_path}/{name}"

    async def read_segment(self, name: str) -> Listed | None:
        """One record, or None where there is none. Raises SegmentUnreadable."""
        path = self.path_of(name)
        with told(f"reading {path}"):
            found = await self._errand(f"read {path}").read_if_present(path)
        if found is None:
            return None
        data, stat = found
        return Listed(parse_segment(data, path), path, stat.version, stat.creation_id)

    async def segments(self, prefix: str = "", watch: WatchListener | None = None) -> list[Listed] | None:
        """All records whose names begin so, by first txid, in progress behind finalised; None where there is no list.

        Records that vanish during the call are left out, and so are strays: znodes that neither have the name of a
        segment nor hold the record of one. Raises SegmentUnreadable for other records that cannot be parsed.
        """
        listed, unreadable = await self.segments_leniently(prefix, watch) or (None, {})
        for name, error in unreadable.items():
            if segment_named(name) is not None:
                raise error
        return listed

    async def named_segments(self, watch: WatchListener | None = None) -> list[Segment] | None:
        """Return all segments, ordered as by `segments`; None if there is no list.

        A segment with an unreadable record is taken from its name, with UNKNOWN_LAYOUT. Unreadable records and strays
        are logged once while they exist.
        """
        found = await self.segments_leniently(watch=watch)
        if found is None:
            return None
        listed, unreadable = found
        segments = [each.segment for each in listed]
        bad_records = BadRecords()
        for name, error in unreadable.items():
            named = segment_named(name)
            bad_records.add(self.path_of(name), str(error) if named is not None else "is no segment")
            if named is not None:
                segments.append(named)
        self._reported.report(bad_records, "the other segments of the journal are still read")
        return sorted(segments, key=lambda one: (one.first_txid, one.in_progress, one.name))

    async def segments_leniently(
        self, prefix: str = "", watch: WatchListener | None = None
    ) -> tuple[list[Listed], dict[str, SegmentUnreadable]] | None:
        """The same, with what cannot be parsed by name."""
        names = await self.children(self.list_path, watch)
        if names is None:
            return None
        names = sorted(name for name in names if name.startswith(prefix))
        reading = DeferredList([Deferred.fromCoroutine(self._read_or_why_not(name)) for name in names])
        listed: list[Listed] = []
        unreadable: dict[str, SegmentUnreadable] = {}
        for name, (_, found) in zip(names, await reading, strict=True):
            if isinstance(found, Listed):
                listed.append(found)
            elif isinstance(found, SegmentUnreadable):
                unreadable[name] = found
            elif found is not None:
                raise found
        listed.sort(key=lambda each: (each.segment.first_txid, each.segment.in_progress, each.path))
        return listed, unreadable

    async def _read_or_why_not(self, name: str) -> Listed | JournalError | None:
        try:
            return await self.read_segment(name)
        except JournalError as error:
            return error

    async def add_segment(self, segment: Segment, *conditions: Check) -> None:
        """Record a segment under its name, if nothing has changed that the conditions name.

        Raises NodeExists, NodeChanged, NodeAbsent (no list, or nothing where a condition names something).
        """
        record = Create(self.path_of(segment.name), print_segment(segment))
        await self.transact([*conditions, record], lambda: self._is_listed(segment))

    async def _is_listed(self, segment: Segment) -> bool:
        listed = await self.read_segment(segment.name)
        return listed is not None and listed.segment == segment

    async def is_there(self, listed: Listed) -> bool:
        """Whether the record is the very one that was listed, and not another of its name."""
        now = await self.read_segment(listed.segment.name)
        return now is not None and (now.version, now.creation_id) == (listed.version, listed.creation_id)

    async def replace_segment(self, listed: Listed, segment: Segment, seen: MaxTxId) -> None:
        """Record a finalised segment in place of the one in progress, unless the greatest txid changed.

        Raises NodeExists, NodeChanged, NodeAbsent.
        """
        await self.transact(
            [
                self.unchanged(seen),
                Create(self.path_of(segment.name), print_segment(segment)),
                Delete(listed.path, listed.version),
            ],
            lambda: self._is_listed(segment),
        )

    async def drop_segment(self, listed: Listed, seen: MaxTxId) -> None:
        """Remove the record of a segment, unless the greatest txid changed. Raises NodeChanged, NodeAbsent."""

        async def is_done() -> bool:
            return not await self.is_there(listed)

        await self.transact([self.unchanged(seen), Delete(listed.path, listed.version)], is_done)

    def unchanged(self, seen: MaxTxId) -> Check:
        """The greatest txid is still what was seen, which was there."""
        assert seen.version is not None
        return Check(self.max_path, seen.version)

    async def remove_segment(self, listed: Listed) -> bool:
        """Remove a record; False when it was gone. Raises NodeChanged for one that was made anew or changed."""
        try:
            await self.delete(listed.path, listed.version, listed.creation_id)
        except NodeAbsent:
            return False
        return True

    # --- the greatest txid

    async def read_max_txid(self) -> MaxTxId:
        """The greatest txid seen; 0 where there is none yet."""
        found = await self.read(self.max_path)
        if found is None:
            return MaxTxId(TxId(0), None)
        return MaxTxId(parse_max_txid(found[0], self.max_path), found[1])

    async def write_max_txid(self, txid: int, seen: MaxTxId) -> MaxTxId:
        """Replace it, as it was seen; as it is then. Raises NodeChanged when it was changed since."""
        version = 0
        try:
            if seen.version is None:
                await self.create(self.max_path, print_max_txid(txid))
            else:
                version = await self.write(self.max_path, print_max_txid(txid), seen.version)
            return MaxTxId(TxId(txid), version)
        except (NodeExists, NodeAbsent) as error:
            raise NodeChanged(str(error)) from error

    async def raise_max_txid(self, txid: int) -> MaxTxId:
        """Make it at least `txid`; as it is then."""
        for _ in range(ATTEMPTS_MAX):
            seen = await self.read_max_txid()
            if seen.txid >= txid and seen.version is not None:
                return seen
            try:
                return await self.write_max_txid(txid, seen)
            except NodeChanged:
                continue
        raise self.contended(self.max_path)

    async def set_max_txid(self, choose: Callable[[TxId], int]) -> MaxTxId:
        """Make it what `choose` says of what it is, which gives it a new version in any case; as it is then."""
        for _ in range(ATTEMPTS_MAX):
            seen = await self.read_max_txid()
            try:
                return await self.write_max_txid(choose(seen.txid), seen)
            except NodeChanged:
                continue
        raise self.contended(self.max_path)

    # --- who writes

    async def read_current(self) -> tuple[CurrentSegment | None, int]:
        """Which segment is being written, if any, and the version to change that by. Makes the znode if need be."""
        found = await self.read(self.current_path)
        if found is None:
            try:
                await self.ensure(self.current_path, None)
            except NodeAbsent as error:
                raise JournalError(f"{self.root} vanished meanwhile: the journal is being formatted") from error
            found = await self.read(self.current_path)
            if found is None:
                raise self.contended(self.current_path)
        return parse_current(found[0], self.current_path), found[1]

    async def write_current(self, current: CurrentSegment | None, version: int) -> None:
        """Say which segment is being written. Raises NodeChanged, NodeAbsent."""
        await self.write(self.current_path, None if current is None else print_current(current), version)

    async def clear_current(self, path: str) -> None:
        """Nobody writes the segment at `path` any more. Nothing is changed if another one is named."""
        for _ in range(ATTEMPTS_MAX):
            current, version = await self.read_current()
            if current is None or current.path != path:
                return
            try:
                await self.write_current(None, version)
            except NodeChanged:
                continue
            except NodeAbsent as error:
                raise JournalError(f"{self.root} vanished meanwhile: the journal is being formatted") from error
            return
        raise self.contended(self.current_path)

    def contended(self, path: str) -> JournalUnavailable:
        return JournalUnavailable(
            f"{path} was changed by others {ATTEMPTS_MAX} times while it was to be changed here; see who else uses the "
            "journal, and try again"
        )


async def make_root(znodes: JournalZnodes, version: bytes) -> None:
    """An empty journal. Raises NodeExists where another one was made meanwhile, NodeAbsent where it is being removed.

    Differs from Apache: the version comes last, so that a format that was cut short leaves an unformatted journal.
    """
    await znodes.ensure_parents()
    await znodes.ensure(znodes.root, PLACEHOLDER)
    await znodes.ensure(znodes.list_path, PLACEHOLDER)
    await znodes.create(znodes.version_path, version)
