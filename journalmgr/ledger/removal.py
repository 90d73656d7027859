"""Deleting segments: the list entry first, the ledger second, and a note that lets another finish (I-86).

    1  ROOT/deleting/<ledger id>    from here on whoever finds the note may have to finish
    2  the segment's znodes         by version: what was changed meanwhile stays
    3  the ledger
    4  the note

A crash leaves: after 1 a note and a listed segment, which is kept until it is deleted again; after 2 a note and an
unlisted ledger, which the next purge deletes; after 3 a note of nothing. Only what a note names is ever swept: a ledger
that merely is in no list may be anybody's.

Differs from Apache: no notes there; a ledger whose deletion failed is never deleted. The notes' znode is not part of
Hadoop's layout; its journal manager does not look at it, and its format removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged
from journalmgr.errors import JournalError, SegmentConflict
from journalmgr.ledger.outcome import told
from journalmgr.segment import is_ledger_id

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from journalmgr.ledger.znodes import JournalZnodes, Listed

log = Logger()


class Removal:
    """Deletes segments of one journal."""

    def __init__(self, znodes: JournalZnodes, client: LedgerClient) -> None:
        self._znodes, self._client = znodes, client

    async def remove(self, ledger_id: int, listed: Sequence[Listed]) -> None:
        """Delete all that the list has of a ledger, then the ledger. Repeating it is safe.

        Raises SegmentConflict where a record was changed meanwhile; the ledger is kept then.
        """
        await self.write_note(ledger_id)
        for each in listed:
            try:
                await self._znodes.remove_segment(each)
            except NodeChanged as error:
                raise SegmentConflict(
                    f"{each.path} changed while it was to be deleted; it is kept: {error}; list the segments again"
                ) from error
        await self.finish(ledger_id)

    async def sweep(self, noted: Sequence[int], listed: Sequence[Listed]) -> None:
        """Finish what a crash interrupted. noted: by `noted_ledgers`; listed: the whole list, read after that."""
        kept = {each.segment.ledger_id for each in listed}
        for ledger_id in noted:
            if ledger_id not in kept:
                log.info("Deleting ledger {ledger_id}, which a crash left over", ledger_id=ledger_id)
                await self.finish(ledger_id)

    async def noted_ledgers(self) -> list[int]:
        """Ledgers that have a note."""
        names = await self._znodes.children(self._znodes.deleting_path) or ()
        return sorted(int(name) for name in names if is_ledger_id(name))

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete a ledger; one that is gone counts as deleted."""
        with told(f"Couldn't delete ledger {ledger_id} from bookkeeper"):
            try:
                await self._client.delete(ledger_id)
            except NoSuchLedger:
                return

    async def finish(self, ledger_id: int) -> None:
        """Delete a ledger that has a note and is not listed, and then the note."""
        await self.delete_ledger(ledger_id)
        await self._znodes.delete_if_present(self._note(ledger_id))

    async def write_note(self, ledger_id: int) -> None:
        """Before the ledger's record goes: whoever finds the note, and no record, deletes the ledger."""
        try:
            await self._znodes.ensure(self._znodes.deleting_path)
            await self._znodes.ensure(self._note(ledger_id))
        except NodeAbsent as error:
            raise JournalError(f"{self._znodes.root} vanished meanwhile: the journal is being formatted") from error

    def _note(self, ledger_id: int) -> str:
        return f"{self._znodes.deleting_path}/{ledger_id}"
