"""Which segments there are, and which of them to read for what lies behind a txid. Nothing is fenced (I-43).

Source: journalmgr/FORMATS.md 3.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journalmgr.contract import SegmentReader
from journalmgr.edits.frame import check_readable
from journalmgr.errors import NotFormatted, SegmentUnreadable
from journalmgr.ledger.end import confirmed_end, describe, open_segment
from journalmgr.ledger.reader import LedgerSegmentReader, UnreadableSegment
from journalmgr.ledger.znodes import ATTEMPTS_MAX, NO_LIST
from journalmgr.model import UNKNOWN_LAYOUT, Segment, TxId

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from journalmgr.ledger.znodes import JournalZnodes


class Selection:
    """Reads the list of one journal."""

    def __init__(self, znodes: JournalZnodes, client: LedgerClient, password: bytes, description: str) -> None:
        self._znodes, self._client, self._password = znodes, client, password
        self._description = description

    async def segments(self) -> list[Segment]:
        """All segments; a finalised one hides its leftover in-progress twin.

        A segment with an unreadable record has UNKNOWN_LAYOUT; its readers fail.
        """
        await self._znodes.sync()
        return await self._list()

    async def _list(self) -> list[Segment]:
        segments = await self._znodes.named_segments()
        if segments is None:
            raise NotFormatted(f"{self._description} {NO_LIST}")
        finalised = {(one.first_txid, one.ledger_id) for one in segments if not one.in_progress}
        return [one for one in segments if not one.in_progress or (one.first_txid, one.ledger_id) not in finalised]

    async def last_txid_seen(self) -> TxId:
        """See JournalManager. maxtxid says it, but for a segment in progress, whose first txid may be there already."""
        znodes = self._znodes
        await znodes.sync()
        for _ in range(ATTEMPTS_MAX):
            seen = await znodes.read_max_txid()
            segments = await self._list()
            if await znodes.read_max_txid() == seen:
                break
        else:
            raise znodes.contended(znodes.max_path)
        begun = any(one.in_progress and one.first_txid == seen.txid for one in segments)
        ends = [one.last_txid for one in segments if one.last_txid is not None]
        return max([TxId(seen.txid - 1) if begun else seen.txid, *ends])

    async def select(self, from_txid: TxId, *, in_progress_ok: bool) -> list[SegmentReader]:
        """Readers from the segment that holds `from_txid` to the end, or to the first gap."""
        readers: list[SegmentReader] = []
        wanted = from_txid
        try:
            for segment in await self.segments():
                if segment.last_txid is not None and segment.last_txid < wanted:
                    continue
                if segment.first_txid > wanted or (segment.in_progress and not in_progress_ok):
                    break
                try:
                    reader = await self._open_reader(segment, wanted)
                except SegmentUnreadable as error:
                    if segment.layout_version != UNKNOWN_LAYOUT:
                        raise
                    # Segments before this one are read, then its reader fails.
                    readers.append(UnreadableSegment(segment, error))
                    if segment.last_txid is None:
                        break
                    wanted = TxId(segment.last_txid + 1)
                    continue
                if reader is None:
                    break
                readers.append(reader)
                wanted = TxId(reader.last_txid + 1)
        except BaseException:
            for opened in readers:
                await opened.close()
            raise
        return readers

    async def _open_reader(self, segment: Segment, from_txid: TxId) -> LedgerSegmentReader | None:
        """A reader from a txid on; None where a segment in progress does not hold that yet."""
        if segment.layout_version == UNKNOWN_LAYOUT:
            listed = await self._znodes.read_segment(segment.name)  # raises the reason, unless it was repaired
            if listed is None:
                return None
            segment = listed.segment
        check_readable(segment.layout_version, describe(segment))
        handle = await open_segment(self._client, segment, self._password)
        try:
            if segment.last_txid is not None:
                last = handle.last_add_confirmed
                return LedgerSegmentReader(handle, segment, from_txid, segment.last_txid, last)
            end = await confirmed_end(handle, segment)
            if end is not None and end.txid >= from_txid:
                return LedgerSegmentReader(handle, segment, from_txid, end.txid, end.entry_id)
        except BaseException:
            await handle.close()
            raise
        await handle.close()
        return None
