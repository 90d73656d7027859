"""The ledgers of a journal, looked at from outside: their state, their content, and those that no segment names.

Whose a ledger is that no list names cannot be told from the ledger: password, digest and quorums are those of a
configuration, not of a journal. Only a note in the journal's own znode does; all else is a possible orphan, unless
somebody says which journals there are.

Nothing is recovered, closed or deleted here: a ledger that is not closed is read as far as its writer confirmed (I-43).
Thread: reactor.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.clock import clock_of
from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.model import DigestType, LedgerState
from journalmgr.contract import SegmentReader
from journalmgr.edits.frame import RecordDecoder
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import EditsError, SegmentUnreadable
from journalmgr.ledger.connecting import told_of
from journalmgr.ledger.end import confirmed_end
from journalmgr.ledger.outcome import told
from journalmgr.ledger.reader import LedgerSegmentReader
from journalmgr.ledger.znodes import JournalZnodes
from journalmgr.model import HADOOP_2_7, Segment, TxId
from journalmgr.other_journals import Search, find_journals
from journalmgr.segment import is_ledger_id
from journalmgr.uri import parse_uri
from journalmgr.verify import Finding, Problem

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.zookeeper import ZooKeeperStore
    from bookkeeper.model import LedgerMetadata
    from journalmgr.config import JournalSettings

SCHEME = "bookkeeper"

LOOKS_AT_ONCE = 16
"""Ledgers that are looked at at the same time."""

ENTRIES_AT_ONCE = 64

_START_WITHOUT_LENGTH_SIZE = 13


@dataclass(frozen=True, slots=True)
class Orphan:
    """A ledger that looks like a segment and is named by none. first_txid: of its first transaction."""

    ledger_id: int
    first_txid: TxId
    closed: bool
    ctime_ms: int | None


@dataclass(frozen=True, slots=True)
class PossibleOrphan:
    """A ledger that may be this journal's, or that of a journal that was not found. text: for whoever looks."""

    orphan: Orphan
    text: str


@dataclass(frozen=True, slots=True)
class Census:
    """All ledgers of a cluster. unread: those of which it could not be told what they are, and why."""

    ledgers: int
    orphans: list[Orphan]
    unread: dict[int, str]


@dataclass(frozen=True, slots=True)
class Block:
    """One entry as it is stored; error: why it cannot be read, payload is empty then."""

    entry_id: int
    payload: bytes
    error: BookKeeperError | None = None


def _ledger_of(segment: Segment) -> int:
    if segment.ledger_id is None:
        raise SegmentUnreadable(
            f"segment {segment}: its record cannot be read, so its ledger is not known; restore the record, or take "
            "the segment from another copy of the journal"
        )
    return segment.ledger_id


class LedgerAudit:
    """Looks at ledgers of one cluster; a SegmentAccess. Owns the client.

    password: of the journal's ledgers. znodes_of: the znodes of the journal at a root; for `neighbourhood` alone.
    """

    def __init__(
        self, client: LedgerClient, password: bytes, znodes_of: Callable[[str], JournalZnodes] | None = None
    ) -> None:
        self._client, self._password, self._znodes_of = client, password, znodes_of

    def close(self) -> Deferred[None]:
        """Let go of the cluster."""
        return self._client.close()

    # --- segments

    async def check(self, segment: Segment) -> list[Finding]:
        """See SegmentAccess."""
        ledger_id = _ledger_of(segment)
        with told(f"ledger {ledger_id}"):
            metadata = await self._client.metadata(ledger_id)
        if segment.in_progress or metadata.state is LedgerState.CLOSED:
            return []
        return [
            Finding(
                Problem.LEDGER_OPEN,
                f"segment {segment} is finalised, but its ledger {segment.ledger_id} is {metadata.state.name}: its "
                "writer was never stopped for good; `bookkeeper ledger read --recover -c 0` with its id closes it",
                segment,
                segment.ledger_id,
            )
        ]

    async def open(self, segment: Segment) -> SegmentReader | None:
        """See SegmentAccess."""
        ledger_id = _ledger_of(segment)
        with told(f"Could not open ledger for {segment}"):
            handle = await self._client.open_without_recovery(ledger_id, self._password)
        try:
            last_txid = segment.last_txid
            if last_txid is None or not handle.closed:
                end = await confirmed_end(handle, segment)
                if end is None:
                    await handle.close()
                    return None
                last_txid = end.txid
            return LedgerSegmentReader(handle, segment, segment.first_txid, last_txid, handle.last_add_confirmed)
        except BaseException:
            await handle.close()
            raise

    async def end_in_progress(self, segment: Segment) -> tuple[int, str | None]:
        """Return the last confirmed txid of a segment in progress, and a report on entries behind it.

        Without a confirmed transaction the txid is the one before the segment. The report names entries that may be
        acknowledged; None if there are none.
        """
        ledger_id = _ledger_of(segment)
        with told(f"Could not open ledger for {segment}"):
            handle = await self._client.open_without_recovery(ledger_id, self._password)
        try:
            confirmed = handle.last_add_confirmed
            end = await confirmed_end(handle, segment)
            report = await handle.report_unconfirmed(confirmed)
            return (segment.first_txid - 1 if end is None else end.txid), report
        finally:
            await handle.close()

    async def blocks(self, segment: Segment) -> AsyncIterator[list[Block]]:
        """All confirmed entries of a segment as they are stored; one that cannot be read does not end it."""
        ledger_id = _ledger_of(segment)
        with told(f"Could not open ledger for {segment}"):
            handle = await self._client.open_without_recovery(ledger_id, self._password)
        try:
            last = handle.last_add_confirmed
            for first in range(0, last + 1, ENTRIES_AT_ONCE):
                beyond = min(last + 1, first + ENTRIES_AT_ONCE)
                try:
                    entries = await handle.read(first, beyond - 1)
                except BookKeeperError:
                    yield [await self._block(handle, entry_id) for entry_id in range(first, beyond)]
                else:
                    yield [Block(entry.entry_id, bytes(entry.payload)) for entry in entries]
        finally:
            await handle.close()

    async def _block(self, handle: Any, entry_id: int) -> Block:
        try:
            [entry] = await handle.read(entry_id, entry_id)
        except BookKeeperError as error:
            return Block(entry_id, b"", error)
        return Block(entry_id, bytes(entry.payload))

    # --- ledgers that no segment names

    async def census(
        self, named: Callable[[], Awaitable[set[int]]], *, on_progress: Callable[[int], object] | None = None
    ) -> Census:
        """Look at all ledgers of the cluster for edit logs that are in no list.

        named: the ledgers that are, read when it is called: before, so that few are looked at, and afterwards, so that
        one that was made meanwhile is none. A ledger that was deleted meanwhile is none either.
        """
        known = await named()
        count = 0
        found: dict[int, Orphan] = {}
        unread: dict[int, str] = {}
        strays = BadRecords()
        async for batch in self._client.ids(strays):
            candidates = [ledger_id for ledger_id in batch if ledger_id not in known]
            for start in range(0, len(candidates), LOOKS_AT_ONCE):
                looking = candidates[start : start + LOOKS_AT_ONCE]
                results = await gatherResults([Deferred.fromCoroutine(self._look(each)) for each in looking])
                for ledger_id, result in zip(looking, results, strict=True):
                    if isinstance(result, Orphan):
                        found[ledger_id] = result
                    elif result is not None:
                        unread[ledger_id] = result
            count += len(batch)
            if on_progress is not None:
                on_progress(count)
        ReportedRecords().report(strays, "it is passed over because it is not a ledger")
        if found:
            known = await named()
        orphans = [orphan for orphan in found.values() if orphan.ledger_id not in known]
        return Census(count, [orphan for orphan in orphans if await self._is_there(orphan.ledger_id)], unread)

    async def neighbourhood(self, root: str, ledgers_root: str) -> Neighbourhood:
        """Other journals in the same ZooKeeper as the one at `root`. ledgers_root: of the bookies' metadata."""
        assert self._znodes_of is not None
        search = await find_journals(self._znodes_of("/").children, root, ledgers_root)
        return Neighbourhood(search, [self._znodes_of(each) for each in search.roots])

    async def unfinished_deletions(self, root: str) -> set[int]:
        """Ledgers that the journal at `root` noted before it took them from its list: they are its own."""
        assert self._znodes_of is not None
        return await _noted(self._znodes_of(root))

    async def _is_there(self, ledger_id: int) -> bool:
        try:
            await self._client.metadata(ledger_id)
        except NoSuchLedger:
            return False
        return True

    async def _look(self, ledger_id: int) -> Orphan | str | None:
        """An orphan; None for what is no edit log or is gone; a text where that cannot be told."""
        try:
            metadata = await self._client.metadata(ledger_id)
            if metadata.digest_type is not DigestType.MAC or metadata.password != self._password:
                return None
            return await self._orphan(ledger_id, metadata)
        except NoSuchLedger:
            return None
        except BookKeeperError as error:
            return str(error)

    async def _orphan(self, ledger_id: int, metadata: LedgerMetadata) -> Orphan | None:
        handle = await self._client.open_without_recovery(ledger_id, self._password)
        try:
            if handle.last_add_confirmed < 0:
                return None
            [entry] = await handle.read(0, 0)
        finally:
            await handle.close()
        first_txid = _start_of_segment(bytes(entry.payload))
        if first_txid is None:
            return None
        return Orphan(ledger_id, first_txid, metadata.state is LedgerState.CLOSED, metadata.ctime_ms)


class Neighbourhood:
    """Other journals, and what is theirs. unreadable: records of segments that do not say which ledger is theirs."""

    def __init__(self, search: Search, journals: Sequence[JournalZnodes]) -> None:
        self.roots, self.complete = search.roots, search.complete
        self.unreadable: list[str] = []
        self._journals = journals

    async def ledgers(self) -> set[int]:
        """Those that the others' lists name now, and those that are being deleted."""
        found: set[int] = set()
        self.unreadable = []
        for znodes in self._journals:
            listed, unreadable = await znodes.segments_leniently() or ([], {})
            found.update(each.segment.ledger_id for each in listed if each.segment.ledger_id is not None)
            self.unreadable += [znodes.path_of(name) for name in unreadable]
            found |= await _noted(znodes)
        return found


async def _noted(znodes: JournalZnodes) -> set[int]:
    names = await znodes.children(znodes.deleting_path) or ()
    return {int(name) for name in names if is_ledger_id(name)}


def judged(
    orphans: Sequence[Orphan], noted: Collection[int], segments: Sequence[Segment], *, all_named: bool
) -> tuple[list[Finding], list[PossibleOrphan]]:
    """What of the orphans is certainly this journal's, and what only may be. Pure.

    noted: ledgers that this journal was about to delete. segments: its own. all_named: somebody said which journals the
    cluster has, so what none of them names is nobody's.
    """
    findings: list[Finding] = []
    possible: list[PossibleOrphan] = []
    for orphan in orphans:
        what = f"ledger {orphan.ledger_id} holds an edit log from txid {orphan.first_txid} on"
        if orphan.ledger_id in noted:
            text = f"{what}: this journal began to delete it; the next purge finishes that, of whatever txid"
            findings.append(Finding(Problem.ORPHAN, text, ledger_id=orphan.ledger_id))
            continue
        gap = _begins_a_gap(orphan.first_txid, segments)
        more = (", where this journal has a gap" if gap else "") + (
            f", and no segment names it; nothing was deleted; `bookkeeper ledger show {orphan.ledger_id}` has more"
        )
        if all_named:
            text = f"{what}{more}: what a crash or a failed deletion left, or a segment whose record was lost"
            findings.append(Finding(Problem.ORPHAN, text, ledger_id=orphan.ledger_id))
        else:
            possible.append(PossibleOrphan(orphan, what + more))
    return findings, possible


def _begins_a_gap(txid: TxId, segments: Sequence[Segment]) -> bool:
    return any(
        before.last_txid is not None and before.last_txid + 1 == txid < after.first_txid
        for before, after in itertools.pairwise(segments)
    )


def _start_of_segment(payload: bytes) -> TxId | None:
    """The txid of the START_LOG_SEGMENT that a segment's first entry begins with, in either frame."""
    if payload[:1] != bytes([OpCode.START_LOG_SEGMENT]):
        return None
    with_length = RecordDecoder(HADOOP_2_7, source="", consecutive=False)
    without = RecordDecoder(-55, source="", consecutive=False, measure=lambda _opcode, _data, position: position)
    for decoder, data in ((with_length, payload), (without, payload[:_START_WITHOUT_LENGTH_SIZE])):
        try:
            records = decoder.feed(data)
        except EditsError:
            continue
        if records:
            return records[0].txid
    return None


def is_on_ledgers(uri: str) -> bool:
    """Whether a journal's segments are ledgers."""
    return parse_uri(uri).scheme == SCHEME


def connect_audit(uri: str, reactor: Any, settings: JournalSettings) -> Deferred[LedgerAudit]:
    """An audit of the cluster that the journal at `uri` is in."""
    return Deferred.fromCoroutine(_connect_audit(uri, reactor, settings))


async def _connect_audit(uri: str, reactor: Any, settings: JournalSettings) -> LedgerAudit:
    parsed = parse_uri(uri)
    uri_of_ledgers = f"zk://{';'.join(parsed.servers)}{settings.ledgers_root}"
    found: list[ZooKeeperStore] = []

    async def remember(store: ZooKeeperStore) -> None:
        found.append(store)

    client_settings = settings.ledger_client()
    with told_of(uri), told(f"Error connecting to the ledgers of {uri}"):
        client = await connect_to(uri_of_ledgers, reactor, client_settings, prepare=remember)
    [store] = found

    def znodes_of(root: str) -> JournalZnodes:
        return JournalZnodes(store.tree, clock_of(reactor), metadata_settings(client_settings), root)

    return LedgerAudit(client, settings.digest_password, znodes_of)
