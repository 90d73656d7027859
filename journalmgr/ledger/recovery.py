"""Segments whose writer died: fenced, and finalised or, if nothing is in them, removed (I-80, I-83, I-84).

    for every segment in progress, by first txid:
        recovery open   fences the ledger: its writer acknowledges nothing any more
        empty           maxtxid is lowered to first - 1 if it was first; list entry, then ledger go
        not empty       edits_FIRST_LAST, maxtxid, in-progress entry, pointer: as its writer would have done

Each step is by version and may be repeated, so a crash anywhere leaves something that the next recovery completes, and
two recoveries at a time end alike.

Differs from Apache: by first txid instead of in the order of ZooKeeper's children; a segment that vanishes meanwhile is
skipped instead of ending the recovery; the ledger of an empty segment is deleted, and the pointer to it cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists
from journalmgr.errors import NotFormatted, SegmentConflict
from journalmgr.ledger.end import end_for_good
from journalmgr.model import Segment, TxId
from journalmgr.segment import INPROGRESS_PREFIX, finalised_name

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from journalmgr.ledger.removal import Removal
    from journalmgr.ledger.znodes import JournalZnodes, Listed

log = Logger()


class Recovery:
    """Ends segments of one journal."""

    def __init__(self, znodes: JournalZnodes, client: LedgerClient, removal: Removal, password: bytes) -> None:
        self._znodes, self._client, self._removal, self._password = znodes, client, removal, password

    async def recover_all(self) -> list[Segment]:
        """End every segment in progress; what was finalised."""
        finalised = []
        for listed in await self._znodes.segments(INPROGRESS_PREFIX) or ():
            segment = await self.recover(listed)
            if segment is not None:
                finalised.append(segment)
        return finalised

    async def recover(self, listed: Listed) -> Segment | None:
        """End one segment; None where it was empty and is removed, or was ended by another recovery meanwhile."""
        segment = listed.segment
        end = await end_for_good(self._client, segment, self._password)
        if end is not None:
            log.info("Finalising segment {segment} at txid {end}", segment=segment, end=end)
            return await self.finalise(listed, end)
        log.warn("Segment {segment} is empty and is removed", segment=segment)
        await self._remove_empty(listed)
        return None

    async def _remove_empty(self, listed: Listed) -> None:
        segment = listed.segment
        assert segment.ledger_id is not None
        await self._znodes.lower_max_txid(segment.first_txid - 1, if_at_most=segment.first_txid)
        await self._removal.remove(segment.ledger_id, [listed])
        await self._znodes.clear_current(listed.path)

    async def finalise(self, listed: Listed, last_txid: TxId) -> Segment:
        """Record the end of a segment whose ledger is closed and ends there. Raises SegmentConflict.

        listed: as its in-progress znode has it.
        """
        segment = listed.segment
        finalised = segment.finalised(last_txid, finalised_name(segment.first_txid, last_txid))
        try:
            await self._znodes.add_segment(finalised)
        except NodeAbsent as error:
            raise NotFormatted(f"{self._znodes.list_path} vanished while {segment} was finalised") from error
        except NodeExists as error:
            recorded = await self._znodes.read_segment(finalised.name)
            if recorded is None or recorded.segment != finalised:
                raise SegmentConflict(
                    f"Node {self._znodes.path_of(finalised.name)} already exists but data doesn't match: it records "
                    f"{recorded and recorded.segment} in ledger {recorded and recorded.segment.ledger_id}, and ledger "
                    f"{segment.ledger_id} holds {finalised}; find out which ledger is right before either is removed"
                ) from error
        await self._znodes.raise_max_txid(last_txid)
        try:
            await self._znodes.remove_segment(listed)
        except NodeChanged as error:
            raise SegmentConflict(
                f"Error finalising ledger {segment.ledger_id}: {listed.path} changed meanwhile; recover the journal"
            ) from error
        await self._znodes.clear_current(listed.path)
        return finalised
