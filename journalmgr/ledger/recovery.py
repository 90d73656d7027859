"""Segments whose writer died: fenced, and finalised or, if nothing is in them, removed (I-80, I-83, I-84).

    for every segment in progress, by first txid:
        recovery open   fences the ledger: its writer acknowledges nothing any more
        empty           maxtxid is lowered to first - 1 if it was first; list entry, then ledger go
        not empty       maxtxid; edits_FIRST_LAST in place of the in-progress entry; pointer: as its writer would do

Each step is by version and may be repeated, so a crash anywhere leaves something that the next recovery completes, and
two recoveries at a time end alike.

Differs from Apache: by first txid instead of in the order of ZooKeeper's children; a segment that vanishes meanwhile is
skipped instead of ending the recovery; the ledger of an empty segment is deleted, and the pointer to it cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists
from journalmgr.errors import SegmentAbsent, SegmentConflict, SegmentUnreadable
from journalmgr.ledger.end import end_for_good
from journalmgr.ledger.znodes import ATTEMPTS_MAX
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
        try:
            end = await end_for_good(self._client, segment, self._password)
            if end is not None:
                log.info("Finalising segment {segment} at txid {end}", segment=segment, end=end)
                return await self.finalise(listed, end)
        except (SegmentAbsent, SegmentUnreadable):
            await self._znodes.sync()
            if await self._znodes.is_there(listed):
                raise
            return None
        log.warn("Segment {segment} is empty and is removed", segment=segment)
        await self._remove_empty(listed)
        return None

    async def _remove_empty(self, listed: Listed) -> None:
        """The record, maxtxid if the segment was the last one, and the ledger, which is closed and empty."""
        segment, znodes = listed.segment, self._znodes
        assert segment.ledger_id is not None
        await self._removal.write_note(segment.ledger_id)
        for _ in range(ATTEMPTS_MAX):
            seen = await znodes.read_max_txid()
            if not await znodes.is_there(listed):
                break
            before = TxId(segment.first_txid - 1)
            # The new version also stops whoever started this very segment, was overtaken by this recovery, and would
            # now note a txid that nobody ever uses: every later start would be refused because of it (I-81).
            wanted = before if seen.version is None or seen.txid == segment.first_txid else seen.txid
            try:
                await znodes.drop_segment(listed, await znodes.write_max_txid(wanted, seen))
            except (NodeChanged, NodeAbsent):
                await znodes.sync()
                continue
            break
        else:
            raise znodes.contended(listed.path)
        await self._removal.finish(segment.ledger_id)
        await znodes.clear_current(listed.path)

    async def finalise(self, listed: Listed, last_txid: TxId) -> Segment:
        """Record the end of a segment whose ledger is closed and ends there. Raises SegmentConflict, SegmentAbsent.

        listed: as its in-progress znode has it.

        Differs from Apache: maxtxid first, then the two records in one transaction. There a crash can leave both, which
        is dealt with here too.
        """
        segment, znodes = listed.segment, self._znodes
        finalised = segment.finalised(last_txid, finalised_name(segment.first_txid, last_txid))
        for _ in range(ATTEMPTS_MAX):
            seen = await znodes.raise_max_txid(last_txid)
            is_there = await znodes.is_there(listed)  # before the other record is looked for: they change together
            recorded = await znodes.read_segment(finalised.name)
            if recorded is not None and recorded.segment != finalised:
                raise SegmentConflict(
                    f"Node {recorded.path} already exists but data doesn't match: it records {recorded.segment} in "
                    f"ledger {recorded.segment.ledger_id}, and ledger {segment.ledger_id} holds {finalised}; find out "
                    "which ledger is right before either is removed"
                )
            if not is_there:
                if recorded is None:
                    raise SegmentAbsent(
                        f"{listed.path} vanished while {segment} was finalised: another server recovered the journal, "
                        "and purged or discarded the segment since"
                    )
                break
            try:
                if recorded is None:
                    await znodes.replace_segment(listed, finalised, seen)
                else:
                    await znodes.drop_segment(listed, seen)
            except (NodeChanged, NodeExists, NodeAbsent):
                await znodes.sync()
                continue
            break
        else:
            raise znodes.contended(listed.path)
        await znodes.clear_current(listed.path)
        return finalised
