"""Looking whether the members of a fragment have their copies: reads from each of them by name, never fencing.

`fragments.entries_to_verify` says which entries; `verdicts` says what the answers mean. A bookie that is not
registered is not asked. At most `entries_max` entries are asked for and not answered, over all checks of a process.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.client.read.lac import LacReading
from bookkeeper.client.read.view import LedgerView
from bookkeeper.errors import BookieUnavailable, ClientClosed
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, LedgerMetadata, Status, Versioned
from bookkeeper.protocol.lac import LacRead
from bookkeeper.replication.copies.flow import CopyFlow
from bookkeeper.replication.copies.fragments import FragmentRange, entries_to_verify, fragments_of
from bookkeeper.replication.copies.gather import DAMAGED
from bookkeeper.replication.copies.verdicts import CopyVerdict, FragmentVerdict, Standing

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.model import EntryId
    from bookkeeper.replication.copies.access import LedgerAccess

CHECK_BYTES_MAX = 2**62
"""Answers to checks are dropped as soon as they are verified: their number is what is bounded."""


LOOK_MAX = 1000
"""Entries asked of one bookie at once."""


class LedgerChecker:
    """Checks fragments of any ledger. entries_max: asked for and not answered, of all checks together."""

    def __init__(self, context: ClientContext, *, entries_max: int, percentage: float = 0) -> None:
        self._context = context
        self._percentage = percentage
        self._flow = CopyFlow(context.clock, entries_max=entries_max, bytes_max=CHECK_BYTES_MAX)

    @property
    def entries_in_flight(self) -> int:
        """Asked for and not answered."""
        return self._flow.entries

    async def check_ledger(self, access: LedgerAccess, metadata: Versioned[LedgerMetadata]) -> list[FragmentVerdict]:
        """Check all fragments; the last of an open ledger up to what its members say is confirmed.

        Raises BookieUnavailable or LedgerError where that cannot be learnt and a member of it is registered; if one is
        not, that is verdict enough.
        """
        await self._context.directory.ready()
        confirmed = -1
        if not metadata.value.is_closed and self._all_registered(metadata.value.last_fragment.ensemble):
            confirmed = await self._last_confirmed(access, metadata)
        return [await self.check(access, fragment) for fragment in fragments_of(metadata.value, confirmed)]

    async def check(self, access: LedgerAccess, fragment: FragmentRange) -> FragmentVerdict:
        """Check all places of one fragment."""
        await self._context.directory.ready()
        looks = [self._look(access, fragment, index) for index in range(len(fragment.ensemble))]
        try:
            verdicts = [look if isinstance(look, CopyVerdict) else await look for look in looks]
        except BaseException:
            for look in looks:
                if not isinstance(look, CopyVerdict):
                    look.addErrback(lambda _: None)  # the first failure tells what there is to tell
            raise
        return FragmentVerdict(fragment, tuple(verdicts))

    async def look_for(
        self, access: LedgerAccess, fragment: FragmentRange, index: int, entry_ids: Sequence[int]
    ) -> CopyVerdict:
        """Look for these entries at one place, LOOK_MAX at a time."""
        verdict = CopyVerdict(index, fragment.ensemble[index], Standing.PRESENT)
        for start in range(0, len(entry_ids), LOOK_MAX):
            verdict = await self._ask(access, index, fragment.ensemble[index], entry_ids[start : start + LOOK_MAX])
            if verdict.standing is not Standing.PRESENT:
                break
        return verdict

    def _look(self, access: LedgerAccess, fragment: FragmentRange, index: int) -> CopyVerdict | Deferred[CopyVerdict]:
        bookie_id = fragment.ensemble[index]
        if not self._context.directory.is_registered(bookie_id):
            return CopyVerdict(index, bookie_id, Standing.GONE)
        entry_ids = entries_to_verify(fragment, index, self._percentage, self._context.rng)
        if not entry_ids:
            return CopyVerdict(index, bookie_id, Standing.PRESENT)
        return Deferred.fromCoroutine(self.look_for(access, fragment, index, entry_ids))

    async def _ask(
        self, access: LedgerAccess, index: int, bookie_id: BookieId, entry_ids: Sequence[int]
    ) -> CopyVerdict:
        await self._flow.enter(len(entry_ids), 0)
        try:
            return await _Look(self._context, access, index, bookie_id).start(entry_ids)
        finally:
            self._flow.leave(len(entry_ids), 0)

    def _all_registered(self, ensemble: Sequence[BookieId]) -> bool:
        return all(map(self._context.directory.is_registered, ensemble))

    async def _last_confirmed(self, access: LedgerAccess, metadata: Versioned[LedgerMetadata]) -> EntryId:
        view = LedgerView(access.ledger_id, metadata)
        core = LacRead(metadata.value, ledger_id=access.ledger_id)
        return await LacReading(self._context, view, access.digest, core, explicit=True).start()


class _Look:
    """Entries of one ledger asked of one bookie. Fires with the verdict, at the first entry that is not delivered."""

    def __init__(self, context: ClientContext, access: LedgerAccess, index: int, bookie_id: BookieId) -> None:
        self._context, self._access, self._index, self._bookie_id = context, access, index, bookie_id
        self._result: Deferred[CopyVerdict] = Deferred(self._cancelled)
        self._left = 0
        self._over = False

    def start(self, entry_ids: Sequence[int]) -> Deferred[CopyVerdict]:
        self._left = len(entry_ids)
        self._context.channel(self._bookie_id).read(self, self._access.ledger_id, entry_ids)
        return self._result

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Entries as the bookie holds them."""
        payloads = self._access.digest.verify(self._access.ledger_id, entry_ids, bodies)
        if None in payloads:
            self._end(Standing.UNREADABLE, entry_ids[payloads.index(None)], DAMAGED)
            return
        self._left -= len(payloads)
        if self._left <= 0:
            self._end(Standing.PRESENT, None, "")

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """A verdict on one entry."""
        self._end(Standing.ABSENT if status in EXPLICIT_NEGATIVES else Standing.UNREADABLE, entry_id, status.value)

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict."""
        if self._context.closed and not self._over:
            self._over = True
            self._result.errback(ClientClosed("the client was closed while copies were being checked"))
            return
        self._end(Standing.SILENT, entry_ids[0], str(error))

    def _end(self, standing: Standing, entry_id: int | None, reason: str) -> None:
        if not self._over:
            self._over = True
            self._result.callback(CopyVerdict(self._index, self._bookie_id, standing, entry_id, reason))

    def _cancelled(self, _: object) -> None:
        self._over = True
