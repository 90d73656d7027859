"""The journal on ledgers: start, finalise, recover, select, tail, purge, discard, upgrade.

    start     maxtxid < first; nobody writes; new ledger; inprogress_FIRST; maxtxid = first; the pointer, by its version
    finalise  close the ledger, whose end must be the one named; maxtxid; edits_FIRST_LAST for inprogress_FIRST; pointer
    recover   the same for every segment in progress, after fencing its ledger

A crash after any step leaves what the next recovery completes. Two starters: the one whose change of the pointer, or of
maxtxid, comes second is refused; so is one that a recovery overtook. No lock and no session is involved: what stops an
old writer for good is the fence of its ledger (I-08, I-80).

Operations that change the journal run one after the other. The version and the namespace are looked at before the first
of them, and not for reading. Thread: reactor. Source: journalmgr/FORMATS.md 3.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import Check, NodeAbsent, NodeChanged, NodeExists, Tree
from bookkeeper.model import DigestType
from journalmgr.contract import EditsTail, SegmentReader, SegmentWriter, UpgradableJournal
from journalmgr.edits.frame import check_writable
from journalmgr.errors import (
    HasData,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    NamespaceMismatch,
    NotFormatted,
    NotSupported,
    SegmentAbsent,
    SegmentConflict,
    SegmentExists,
    TxIdSeen,
    WriterReplaced,
)
from journalmgr.ledger.end import end_for_good
from journalmgr.ledger.images import delete_image, image_ledgers
from journalmgr.ledger.outcome import told
from journalmgr.ledger.place import check_place
from journalmgr.ledger.recovery import Recovery
from journalmgr.ledger.removal import Removal
from journalmgr.ledger.selection import Selection
from journalmgr.ledger.settings import LedgerJournalSettings, entry_size_max
from journalmgr.ledger.tail import LedgerEditsTail
from journalmgr.ledger.upgrade import Upgrades
from journalmgr.ledger.writer import LedgerSegmentWriter
from journalmgr.ledger.znodes import JournalZnodes, Listed, MaxTxId, make_root
from journalmgr.model import NamespaceInfo, Segment, TxId
from journalmgr.segment import (
    CurrentSegment,
    finalised_name,
    finalised_prefix,
    inprogress_name,
    print_version,
    segment_named,
)

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.write.write_handle import WriteHandle
    from bookkeeper.ports import Clock

log = Logger()

T = TypeVar("T")

_LEDGER_METADATA_VERSION = 2
"""Text, which BookKeeper 4.2.3 reads."""


class LedgerJournal(OfOneProcess):
    """A JournalManager, and an UpgradableJournal, on ledgers.

    client, tree, metadata_settings: what it stands on, for whoever shares its session.
    root: the journal's znode, absolute. namespace: whose journal it must be; None for whoever only reads.
    hostname: "name/address" of this server, for whoever looks who writes. on_close: what `close` closes besides.
    """

    instead = "pass the journal's URI and its options instead, and open the journal where they arrive"

    def __init__(
        self,
        client: LedgerClient,
        tree: Tree,
        clock: Clock,
        metadata_settings: MetadataSettings,
        root: str,
        namespace: NamespaceInfo | None = None,
        settings: LedgerJournalSettings | None = None,
        *,
        hostname: str = "",
        on_close: Callable[[], Deferred[None]] | None = None,
    ) -> None:
        self.settings = settings or LedgerJournalSettings()
        self.client, self.tree, self.metadata_settings = client, tree, metadata_settings
        self._namespace, self._hostname = namespace, hostname
        self._on_close = on_close
        self._znodes = JournalZnodes(tree, clock, metadata_settings, root)
        self._removal = Removal(self._znodes, client)
        self._recovery = Recovery(self._znodes, client, self._removal, self.settings.password)
        self._selection = Selection(self._znodes, client, self.settings.password, self.description)
        self._upgrades = Upgrades(self._znodes, self.description)
        self._lock = DeferredLock()
        self._environment_checked = False
        self._writer: LedgerSegmentWriter | None = None
        self._tails: list[LedgerEditsTail] = []
        self._closed = False

    @property
    def description(self) -> str:
        """Where it is, for messages."""
        return f"journal {self._znodes.root} at {self.tree.description}"

    @property
    def root(self) -> str:
        """Its znode."""
        return self._znodes.root

    # --- one after the other

    def _change(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Run an operation that changes the journal, after those that were called before."""
        return self._lock.run(lambda: Deferred.fromCoroutine(self._guarded(work)))

    def _look(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        return Deferred.fromCoroutine(self._guarded(work))

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._closed:
            raise JournalClosed(f"{self.description} was closed")
        with told(self.description):
            return await work()

    async def _check_environment(self) -> NamespaceInfo:
        """The journal is formatted, and ours; the pointer is there. Once per object (I-87)."""
        if self._namespace is None:
            raise NotSupported(
                f"{self.description} was opened for reading, without a namespace; give one to change the journal"
            )
        if not self._environment_checked:
            stored = await self._stored_namespace()
            if not stored.is_same(self._namespace):
                raise NamespaceMismatch(
                    f"Environment mismatch. Running process: {self._namespace}; {self.description} belongs to "
                    f"{stored}; use another journal for this server"
                )
            await self._znodes.read_current()
            self._environment_checked = True
        await self._znodes.sync()
        return self._namespace

    async def _stored_namespace(self) -> NamespaceInfo:
        version = await self._znodes.read_version()
        if version is None:
            raise NotFormatted(
                f"{self.description}: Environment not initialized. Have you forgotten to format? "
                f"(journalmgr format 'bookkeeper://<ZooKeeper servers>{self._znodes.root}')"
            )
        if version.namespace is None:
            raise NamespaceMismatch(
                f"{self.description} is older than Hadoop 2.0.3 and names no namespace: it can only be read"
            )
        return version.namespace

    # --- the whole journal

    def has_data(self) -> Deferred[bool]:
        """See JournalManager."""
        return self._look(lambda: self._znodes.exists(self._znodes.root))

    def namespace(self) -> Deferred[NamespaceInfo]:
        """See JournalManager."""
        return self._look(self._stored_namespace)

    def format(self, namespace: NamespaceInfo, *, force: bool = False) -> Deferred[None]:
        """See JournalManager. A segment whose record cannot be read goes too; its ledger stays, and is told."""
        return self._change(lambda: self._format(namespace, force=force))

    async def _format(self, namespace: NamespaceInfo, *, force: bool) -> None:
        znodes = self._znodes
        await znodes.sync()
        await check_place(znodes, self.settings.available_path.rpartition("/")[0])
        if await znodes.exists(znodes.root):
            if not force:
                raise HasData(
                    f"{self.description} exists already; format would destroy what is in it: confirm that (force)"
                )
            await self._destroy()
        self._environment_checked = False
        try:
            await make_root(znodes, print_version(namespace))
        except (NodeExists, NodeAbsent) as error:
            raise JournalError(
                f"Error accessing zookeeper to format {self.description}: somebody else formats it too: {error}"
            ) from error

    async def _destroy(self) -> None:
        """Delete all segments, images and znodes. The version first: what is half deleted is not formatted.

        Whoever writes is fenced before (I-80). Differs from Apache, where a writer goes on acknowledging into a ledger
        that no longer exists.
        """
        znodes = self._znodes
        self._forget_writer()
        await znodes.delete_if_present(znodes.version_path)
        noted = await self._removal.noted_ledgers()
        images = await image_ledgers(znodes)
        found = await znodes.segments_leniently()
        listed, unreadable = found if found is not None else ([], {})
        for name, error in unreadable.items():
            log.warn(
                "{path} goes with its journal; its ledger cannot be told, and stays: {error}",
                path=znodes.path_of(name),
                error=error,
            )
        for each in listed:
            if each.segment.in_progress:
                await self._fence(each.segment)
        for ledger_id in dict.fromkeys([each.segment.ledger_id for each in listed] + list(noted)):
            assert ledger_id is not None
            try:
                await self._removal.remove(ledger_id, [one for one in listed if one.segment.ledger_id == ledger_id])
            except JournalError as error:
                raise _alike(error, f"Error cleaning up ledgers during format: {error}") from error
        for ledger_id in images:
            await delete_image(self.client, ledger_id, znodes.root)
        await znodes.delete_tree(znodes.root)

    async def _fence(self, segment: Segment) -> None:
        """Stop the writer of a segment that is about to be deleted; without a ledger there is nothing to write to."""
        assert segment.ledger_id is not None
        with told(f"Error stopping the writer of {segment} during format"):
            try:
                handle = await self.client.open(segment.ledger_id, self.settings.password)
            except NoSuchLedger:
                return
            await handle.close()

    # --- the writer's turn

    def recover_unfinalized(self) -> Deferred[list[Segment]]:
        """See JournalManager. A segment that this very object writes is ended too."""
        return self._change(self._recover)

    async def _recover(self) -> list[Segment]:
        await self._check_environment()
        self._forget_writer()
        return await self._recovery.recover_all()

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        """See JournalManager."""
        return self._change(lambda: self._start(first_txid, layout_version))

    async def _start(self, first_txid: TxId, layout_version: int) -> SegmentWriter:
        check_writable(layout_version)
        await self._check_environment()
        znodes = self._znodes
        seen = await znodes.read_max_txid()
        if first_txid <= seen.txid:
            raise TxIdSeen(
                f"We've already seen {first_txid}. A new stream cannot be created with it: {self.description} has seen "
                f"txids up to {seen.txid}; recover the journal, read it, and start behind its end"
            )
        current, version = await znodes.read_current()
        if current is not None and await znodes.exists(current.path):
            raise SegmentExists(
                f"Inprogress node already exists: {current.path}, written by {current.hostname or 'an unknown host'}; "
                "recover the journal first, which stops that writer"
            )
        self._forget_writer()
        handle = await self._create_ledger(first_txid)
        try:
            segment = Segment(first_txid, None, layout_version, handle.ledger_id, inprogress_name(first_txid))
            await self._list_new(segment, seen, version)
            with told(f"starting segment {segment}"):
                try:
                    await znodes.write_max_txid(first_txid, seen)
                    await znodes.write_current(CurrentSegment(znodes.path_of(segment.name), self._hostname), version)
                except (NodeChanged, NodeAbsent) as error:
                    raise self._replaced(segment, error) from error
        except BaseException:
            handle.abort()
            raise
        self._writer = LedgerSegmentWriter(
            handle,
            segment,
            self.description,
            output_buffer_size=min(self.settings.output_buffer_size, self._entry_size_max),
            entry_size_max=self._entry_size_max,
        )
        return self._writer

    def _replaced(self, segment: Segment, error: Exception) -> WriterReplaced:
        return WriterReplaced(
            f"{self.description}: another server became the writer while segment {segment} was started: {error}; "
            "recover the journal and read it if it is this one's turn"
        )

    @property
    def _entry_size_max(self) -> int:
        return entry_size_max(self.client.settings.frame_size_max)

    async def _create_ledger(self, first_txid: int) -> WriteHandle:
        settings = self.settings
        with told(f"{self.description}: Error creating ledger for segment {first_txid}"):
            return await self.client.create(
                ensemble=settings.ensemble,
                write_quorum=settings.write_quorum,
                ack_quorum=settings.acknowledgements,
                digest=DigestType.MAC,
                password=settings.password,
                metadata_version=_LEDGER_METADATA_VERSION,
            )

    async def _list_new(self, segment: Segment, seen: MaxTxId, current_version: int) -> None:
        """Record a segment in progress; if it is certain that it is not, its ledger goes.

        Only if maxtxid and the pointer are still as they were seen: who slept meanwhile leaves nothing behind.
        """
        assert segment.ledger_id is not None
        conditions = [Check(self._znodes.current_path, current_version)]
        if seen.version is not None:
            conditions.append(self._znodes.unchanged(seen))
        try:
            await self._znodes.add_segment(segment, *conditions)
        except (NodeExists, NodeAbsent, NodeChanged) as error:
            await self._removal.delete_ledger(segment.ledger_id)
            if isinstance(error, NodeChanged):
                raise self._replaced(segment, error) from error
            if isinstance(error, NodeExists):
                raise SegmentExists(
                    f"Error storing ledger metadata: {self._znodes.path_of(segment.name)} exists: another server "
                    "started, or a start was cut short; recover the journal first"
                ) from error
            raise NotFormatted(f"{self.description} has no list of segments: it is being formatted") from error

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        """See JournalManager.

        Differs from Apache: an error while the ledger is closed ends the operation, and the txid named is compared with
        the ledger's end (I-83); there the error is logged and the txid believed. After such an error the next call
        fixes the ledger's end itself, as recovery does.
        """
        return self._change(lambda: self._finalise(first_txid, last_txid))

    async def _finalise(self, first_txid: TxId, last_txid: TxId) -> Segment:
        await self._check_environment()
        znodes = self._znodes
        path = znodes.path_of(inprogress_name(first_txid))
        listed = await znodes.read_segment(inprogress_name(first_txid))
        if listed is None:
            return await self._finalised_already(first_txid, last_txid, path)
        segment = listed.segment
        if segment.first_txid != first_txid or not segment.in_progress:
            raise SegmentConflict(
                f"Transaction id not as expected, {segment} found in {path}, {first_txid} in progress expected"
            )
        for other in await znodes.segments(finalised_prefix(first_txid)) or ():
            if other.segment.last_txid != last_txid:
                raise SegmentConflict(
                    f"segment {segment} cannot be finalised at {last_txid}: {other.path} records another end of it"
                )
        end = await self._end_of(segment)
        if end != last_txid:
            raise SegmentConflict(
                f"segment {segment} cannot be finalised at txid {last_txid}: ledger {segment.ledger_id} "
                + ("holds no transaction" if end is None else f"ends with txid {end}")
                + "; recover the journal to finalise it where it ends"
            )
        return await self._recovery.finalise(listed, last_txid)

    async def _end_of(self, segment: Segment) -> TxId | None:
        """Close the segment's ledger; its last txid."""
        writer = self._writer
        if writer is None:
            return await end_for_good(self.client, segment, self.settings.password)
        if writer.ledger_id != segment.ledger_id:
            raise SegmentConflict(
                f"Active ledger has different ID to inprogress. {writer.ledger_id} found, {segment.ledger_id} "
                f"expected: segment {segment} is another writer's"
            )
        try:
            await writer.close()
        except JournalError:
            self._forget_writer()
            raise
        self._writer = None
        return writer.last_txid if writer.last_txid >= writer.first_txid else None

    async def _finalised_already(self, first_txid: TxId, last_txid: TxId, path: str) -> Segment:
        """The same was done before, perhaps not to the end; or there is no such segment."""
        done = await self._znodes.read_segment(finalised_name(first_txid, last_txid))
        if done is None:
            others = await self._znodes.segments(finalised_prefix(first_txid)) or []
            if others:
                raise SegmentConflict(f"segment {first_txid}..{last_txid} was finalised as {others[0].segment} already")
            raise SegmentAbsent(
                f"Inprogress znode {path} doesn't exist: segment {first_txid} was never started, or found empty "
                "by recovery"
            )
        if done.segment != Segment(
            first_txid, last_txid, done.segment.layout_version, done.segment.ledger_id, done.segment.name
        ):
            raise SegmentConflict(f"{done.path} already exists but data doesn't match: it records {done.segment}")
        if self._writer is not None and self._writer.ledger_id == done.segment.ledger_id:
            self._forget_writer()
        await self._znodes.raise_max_txid(last_txid)
        await self._znodes.clear_current(path)
        return done.segment

    def _forget_writer(self) -> None:
        """Nothing more is written by this object. What it wrote stays as it is; recovery will end it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.drop()

    # --- the reader's turn

    def segments(self) -> Deferred[list[Segment]]:
        """See JournalManager."""
        return self._look(self._selection.segments)

    def last_txid_seen(self) -> Deferred[TxId]:
        """See JournalManager."""
        return self._look(self._selection.last_txid_seen)

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        """See JournalManager.

        Differs from Apache: a segment in progress that holds nothing yet ends the list, and does not make the finalised
        ones unreadable; a reader begins exactly at `from_txid`; and one of a segment in progress knows its last txid.
        """
        return self._look(lambda: self._selection.select(from_txid, in_progress_ok=in_progress_ok))

    def tail(self, from_txid: TxId) -> EditsTail:
        """See JournalManager."""
        if self._closed:
            raise JournalClosed(f"{self.description} was closed")
        tail = LedgerEditsTail(self._znodes, self.client, self.settings.password, from_txid, self._tails.remove)
        self._tails.append(tail)
        return tail

    # --- deleting

    def purge_older_than(self, min_txid_to_keep: TxId) -> Deferred[list[Segment]]:
        """See JournalManager. Finishes what earlier ones left undone."""
        return self._change(lambda: self._purge(min_txid_to_keep))

    async def _purge(self, min_txid_to_keep: TxId) -> list[Segment]:
        await self._check_environment()
        noted = await self._removal.noted_ledgers()
        await self._znodes.sync()
        listed, unreadable = await self._znodes.segments_leniently() or ([], {})
        in_progress = {each.segment.ledger_id for each in listed if each.segment.in_progress}
        # An unreadable record may be the twin of a segment with the same first txid.
        unknown = {one.first_txid for one in map(segment_named, unreadable) if one is not None}
        purged: list[Segment] = []
        errors: list[JournalError] = []
        for each in listed:
            segment = each.segment
            # A leftover twin in progress has to be recovered first, or it would be an entry without its ledger.
            if segment.last_txid is None or segment.last_txid >= min_txid_to_keep or segment.ledger_id in in_progress:
                continue
            if segment.first_txid in unknown:
                continue
            try:
                await self._remove([each])
            except JournalError as error:
                log.warn("Purging {segment} failed: {error}", segment=segment, error=error)
                errors.append(error)
            else:
                purged.append(segment)
        errors += [error for name, error in unreadable.items() if segment_named(name) is not None]
        try:
            if not unknown:  # an unreadable record may still list a noted ledger
                await self._removal.sweep(noted, listed)
        except JournalError as error:
            errors.append(error)
        if errors:
            more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
            raise _alike(
                errors[0],
                f"{self.description}: purged {len(purged)} segments below txid {min_txid_to_keep}; not all: "
                f"{errors[0]}{more}; purge again",
            ) from errors[0]
        return purged

    async def _remove(self, listed: list[Listed]) -> None:
        ledger_id = listed[0].segment.ledger_id
        assert ledger_id is not None
        await self._removal.remove(ledger_id, listed)

    def discard_from(self, first_txid: TxId) -> Deferred[list[Segment]]:
        """See JournalManager. Segments in progress are fenced before; maxtxid becomes the last txid that is left.

        Differs from Apache: its journal manager refuses to discard.
        """
        return self._change(lambda: self._discard(first_txid))

    async def _discard(self, first_txid: TxId) -> list[Segment]:
        await self._check_environment()
        self._forget_writer()
        listed = await self._znodes.segments() or []
        for each in listed:
            segment = each.segment
            if segment.first_txid < first_txid and segment.covers(first_txid):
                raise SegmentConflict(
                    f"{self.description}: txid {first_txid} is within segment {segment}: discard from the first txid "
                    f"of a segment, {segment.first_txid} for instance" + (", or recover first" * segment.in_progress)
                )
        discarded = [each for each in listed if each.segment.first_txid >= first_txid]
        await self._znodes.set_max_txid(lambda txid: txid)  # its new version stops who starts or recovers now
        for each in discarded:
            if each.segment.in_progress:
                await end_for_good(self.client, each.segment, self.settings.password)
        # The last one first: what a crash leaves is a journal without a gap.
        for ledger_id in dict.fromkeys(each.segment.ledger_id for each in reversed(discarded)):
            await self._remove([each for each in discarded if each.segment.ledger_id == ledger_id])
        await self._znodes.set_max_txid(lambda txid: min(txid, first_txid - 1))
        for each in discarded:
            await self._znodes.clear_current(each.path)
        return [each.segment for each in discarded]

    # --- upgrades

    def pre_upgrade(self) -> Deferred[None]:
        """See UpgradableJournal."""
        return self._change(self._pre_upgrade)

    async def _pre_upgrade(self) -> None:
        await self._check_environment()
        for segment in await self._selection.segments():
            if segment.in_progress:
                raise SegmentExists(
                    f"{self.description}: segment {segment} is in progress; finalise or recover it first"
                )
        await self._upgrades.remember(await self._stored_namespace())

    def upgrade(self, namespace: NamespaceInfo) -> Deferred[None]:
        """See UpgradableJournal."""
        return self._change(lambda: self._upgrade(namespace))

    async def _upgrade(self, namespace: NamespaceInfo) -> None:
        await self._check_environment()
        state = await self._upgrades.remembered()
        if not namespace.is_same(state.namespace):
            raise NamespaceMismatch(f"{self.description} belongs to {state.namespace}, not to {namespace}")
        await self._upgrades.write_version(namespace)

    def finalize_upgrade(self) -> Deferred[None]:
        """See UpgradableJournal."""
        return self._change(self._finalize_upgrade)

    async def _finalize_upgrade(self) -> None:
        await self._check_environment()
        await self._upgrades.forget()

    def can_roll_back(self) -> Deferred[bool]:
        """See UpgradableJournal."""
        return self._look(lambda: self._znodes.exists(self._znodes.upgrade_path))

    def roll_back(self) -> Deferred[None]:
        """See UpgradableJournal. May be repeated until it succeeds."""
        return self._change(self._roll_back)

    async def _roll_back(self) -> None:
        await self._check_environment()
        state = await self._upgrades.remembered()
        await self._discard(TxId(state.last_txid + 1))
        await self._upgrades.write_version(state.namespace)
        await self._upgrades.forget()

    # --- the end

    def close(self) -> Deferred[None]:
        """See JournalManager. Harmless when repeated."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for tail in list(self._tails):
            await tail.stop()
        self._forget_writer()
        if self._on_close is not None:
            await self._on_close()


def _alike(error: JournalError, message: str) -> JournalError:
    """An error that is told with others: as retriable as it is."""
    return JournalUnavailable(message) if error.retriable else JournalError(message)


if TYPE_CHECKING:

    def _is_an_upgradable_journal(journal: LedgerJournal) -> UpgradableJournal:
        return journal
