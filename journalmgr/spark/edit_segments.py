"""What a journal has now: its segments, and how far each can be read. Nothing is fenced, nothing is changed (I-43).

A list of segments is older than what is asked about them: one that was in progress may be finalised, recovered or
purged meanwhile. One that went on is read as far as was confirmed when it was looked at; when one is not in the list
any more, the list is read again.

Records of finalised segments that end before the range asked for are not read: their names say where they end.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from bookkeeper.client.connecting import metadata_settings
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError, EntryCorrupt, EntryMissing, NoSuchLedger
from journalmgr.edits.frame import check_readable
from journalmgr.errors import EditsError, JournalError, JournalUnavailable, NotFormatted, SegmentUnreadable
from journalmgr.ledger.end import LedgerEnd, confirmed_end, describe
from journalmgr.ledger.outcome import translated
from journalmgr.ledger.selection import Selection
from journalmgr.ledger.znodes import JournalZnodes
from journalmgr.model import Segment
from journalmgr.spark.edit_entries import EntryDecoder
from journalmgr.spark.edit_loss import Loss
from journalmgr.spark.edit_spans import Span, finalised_end, without_twins

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.metadata.zookeeper import ZooKeeperStore

LOOKS_MAX = 16
"""Times that the list is read until nothing changes under it."""

AT_ONCE = 64
"""Records that are read at a time."""

STEPS_BACK_MAX = 64
"""Entries at the end of a segment in progress that may be damaged, where that is to be borne."""


@dataclass(frozen=True, slots=True)
class State:
    """spans: by first txid. has_earlier: there are segments before those. last_txid: the last that can be read.

    left_out_from: the first txid of the segment in progress behind all others, where such are not to be read; None:
    there is none, or it is among the spans. unconfirmed: texts that name entries behind the ends of segments in
    progress that may be acknowledged; filled by a last look only.
    """

    spans: Sequence[Span]
    has_earlier: bool
    last_txid: int
    left_out_from: int | None
    unconfirmed: Sequence[str] = ()

    @property
    def may_go_further(self) -> bool:
        """Somebody writes, so there may be more than is seen: less of it is confirmed to some, and it may be left out.

        A position behind `last_txid` is of another journal only where this is not so.
        """
        return self.left_out_from is not None or any(span.segment.in_progress for span in self.spans)


class _Listed(NamedTuple):
    """ends: the last txids of segments that are not among them. left_out_from: as of `State`."""

    segments: list[Segment]
    has_earlier: bool
    ends: list[int]
    left_out_from: int | None


def ledger_of(segment: Segment) -> int:
    """The ledger that a segment of such a journal is in."""
    assert segment.ledger_id is not None
    return segment.ledger_id


class JournalSegments:
    """One journal, looked at. in_progress: with the segment that is being written. loss: of what cannot be read."""

    def __init__(self, ledgers: LedgerClient, root: str, *, in_progress: bool, loss: Loss) -> None:
        self.ledgers, self.root, self.loss = ledgers, root, loss
        self._in_progress = in_progress
        store = cast("ZooKeeperStore", ledgers.context.store)
        self._znodes = JournalZnodes(store.tree, ledgers.context.clock, metadata_settings(ledgers.settings), root)

    @property
    def description(self) -> str:
        """The journal, for messages."""
        return f"journal {self.root} at {self._znodes.description}"

    def describe(self, segment: Segment) -> str:
        """A segment, for messages."""
        return f"journal {self.root}, {describe(segment)}"

    def _absent(self, why: str) -> NotFormatted:
        remedy = self.loss.words.remedy("Is its path right ({})? `journalmgr format` makes a journal", "journal")
        return NotFormatted(f"{self.description}: {why}{remedy}")

    async def namespace_id(self) -> int:
        """Of the namespace that the journal belongs to; 0 for one that is so old that it does not say.

        Raises NotFormatted.
        """
        version = await self._znodes.read_version()
        if version is None:
            raise self._absent("there is no journal")
        return 0 if version.namespace is None else version.namespace.namespace_id

    async def look(self, from_txid: int, *, is_last: bool = False) -> State:
        """The segments that have `from_txid` or later transactions. Raises NotFormatted, JournalError.

        is_last: nothing behind the end will be read; look for entries there that may be acknowledged.
        """
        for _ in range(LOOKS_MAX):
            listed = await self._list(from_txid)
            if listed is None:
                continue
            spans: list[Span] = []
            unconfirmed: list[str] | None = [] if is_last else None
            for segment in listed.segments:
                check_readable(segment.layout_version, self.describe(segment))
                if segment.in_progress:
                    span = await self._span(segment, unconfirmed)
                else:
                    span = Span(segment, cast(int, segment.last_txid))
                if span is None:
                    break
                spans.append(span)
            else:
                ends = [*listed.ends, *(span.last_txid for span in spans)]
                last_txid = max(ends) if ends else await self._last_seen()
                return State(spans, listed.has_earlier, last_txid, listed.left_out_from, unconfirmed or ())
        raise JournalUnavailable(f"{self.description}: its list changed {LOOKS_MAX} times meanwhile; try again")

    async def _list(self, from_txid: int) -> _Listed | None:
        """The segments that are to be looked at; None where one vanished: look again."""
        znodes = self._znodes
        await znodes.sync()
        names = await znodes.children(znodes.list_path)
        if names is None:
            raise self._absent("there is no journal, or no list of segments in it")
        ends = {name: end for name in names if (end := finalised_end(name)) is not None}
        earlier = {name: end for name, end in ends.items() if end < from_txid}
        found: dict[str, Segment] = {}

        async def read(name: str) -> None:
            listed = await znodes.read_segment(name)
            if listed is not None:
                found[name] = listed.segment

        await in_parallel((read(name) for name in names if name not in earlier), AT_ONCE)
        if any(name not in ends and name not in found for name in names):
            return None  # it is finalised now, under a name that was not there yet; or it was empty
        segments, ended = list(found.values()), list(earlier.values())
        left_out_from: int | None = None
        if not self._in_progress:
            begun = [each.first_txid for each in segments if each.in_progress]
            ended += [first - 1 for first in begun]
            # One that does not begin behind all that is finalised is what a crash left behind of a finalised one.
            left_out_from = max((first for first in begun if first > max(ends.values(), default=0)), default=None)
            segments = [each for each in segments if not each.in_progress]
        return _Listed(without_twins(segments), bool(earlier), ended, left_out_from)

    async def _last_seen(self) -> int:
        return await Selection(self._znodes, self.ledgers, b"", self.description).last_txid_seen()

    async def _span(self, segment: Segment, unconfirmed: list[str] | None) -> Span | None:
        """How far a segment in progress is confirmed; None where it is not in the list any more.

        unconfirmed: collects text on entries behind that end that may be acknowledged.
        """
        try:
            handle = await self.open(segment)
        except SegmentUnreadable as error:
            if isinstance(error.__cause__, NoSuchLedger) and await self._znodes.read_segment(segment.name) is None:
                return None
            if not isinstance(error.__cause__, NoSuchLedger):
                raise
            self.loss.bear(error)
            return Span(segment, segment.first_txid - 1)
        try:
            confirmed = handle.last_add_confirmed
            end = await self.end_of(handle, segment)
            if unconfirmed is not None and (report := await handle.report_unconfirmed(confirmed)) is not None:
                unconfirmed.append(f"journal {self.root}, segment {segment}: {report}")
        finally:
            await handle.close()
        return Span(segment, segment.first_txid - 1) if end is None else Span(segment, end.txid, end.entry_id)

    async def open(self, segment: Segment) -> ReadHandle:
        """Its ledger, as it is. Raises SegmentUnreadable, JournalUnavailable, JournalError."""
        try:
            return await self.ledgers.open_without_recovery(ledger_of(segment))
        except BookKeeperError as error:
            raise translated(f"{self.describe(segment)} cannot be opened", error) from error

    async def end_of(self, handle: ReadHandle, segment: Segment) -> LedgerEnd | None:
        """The end of what is confirmed; where damage is to be borne, of what can be read of it."""
        try:
            return await confirmed_end(handle, segment)
        except JournalError as error:
            if not isinstance(error, EditsError) and not isinstance(error.__cause__, EntryMissing | EntryCorrupt):
                raise
            self.loss.bear(error)
        last = handle.last_add_confirmed
        for entry_id in range(last - 1, max(-1, last - 1 - STEPS_BACK_MAX), -1):
            try:
                [entry] = await handle.read(entry_id, entry_id)
            except (EntryMissing, EntryCorrupt):
                continue
            records, fault = EntryDecoder(segment.layout_version, "").take(entry_id, entry.payload)
            if records and fault is None:
                return LedgerEnd(entry_id, records[-1].txid)
        return None
