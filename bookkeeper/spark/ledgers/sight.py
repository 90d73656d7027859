"""How far ledgers may be read now, for a stream that asks again and again.

A ledger that is still written is opened once, without fencing, and kept: each look costs a question to its bookies, and
the watch on its metadata tells of its end. What is closed is final, so it is remembered.
What is not asked for any more is forgotten.

Bounds: HANDLES_MAX ledgers kept open, others are opened for each look; SEEN_MAX closed ones remembered.
Thread: any, one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.ledgers.extents import AT_ONCE
from bookkeeper.spark.ledgers.offsets import Seen
from bookkeeper.spark.ledgers.unconfirmed import Unconfirmed

log = Logger()

HANDLES_MAX = 1000
SEEN_MAX = 200_000

GONE = Seen(end=-1, closed=True, mean_size=0.0)
"""Nothing of it can be read any more."""


class LedgerSight:
    """The sight that one stream has of its ledgers."""

    def __init__(self, client: BlockingBookKeeper, *, fail_on_data_loss: bool) -> None:
        self._client, self._fail_on_data_loss = client, fail_on_data_loss
        self._closed: dict[int, Seen] = {}
        self._open: dict[int, ReadHandle] = {}

    def see(self, ledger_ids: Sequence[int], *, may_be_gone: bool = False, is_last: bool = False) -> dict[int, Seen]:
        """How far each may be read.

        is_last: nothing after this will be read, so entries there that may be acknowledged are logged.
        may_be_gone: among them are ledgers that were read to their end perhaps. Else raises NoSuchLedger for one that
        is gone before that, unless that is to be borne; what is gone and not raised is seen as closed and empty.
        BookKeeperError where the metadata store or the bookies cannot be asked.
        """
        wanted = frozenset(ledger_ids)
        self._closed = {each: seen for each, seen in self._closed.items() if each in wanted}
        unknown = [ledger_id for ledger_id in ledger_ids if ledger_id not in self._closed]
        found = self._client.run(
            lambda client: Deferred.fromCoroutine(self._look(client, unknown, may_be_gone=may_be_gone, is_last=is_last))
        )
        return {each: found[each] if each in found else self._closed[each] for each in ledger_ids}

    async def _look(
        self, client: LedgerClient, ledger_ids: Sequence[int], *, may_be_gone: bool, is_last: bool
    ) -> dict[int, Seen]:
        found: dict[int, Seen] = {}
        unconfirmed = Unconfirmed() if is_last else None
        for done in self._open.keys() - frozenset(ledger_ids):
            await self._let_go(done)

        async def look(ledger_id: int) -> None:
            try:
                seen = await self._see_one(client, ledger_id, unconfirmed)
            except NoSuchLedger:
                await self._let_go(ledger_id)
                found[ledger_id] = GONE if may_be_gone else self._gone(ledger_id)
                return
            found[ledger_id] = seen
            if seen.closed and len(self._closed) < SEEN_MAX:
                self._closed[ledger_id] = seen

        await in_parallel((look(ledger_id) for ledger_id in ledger_ids), AT_ONCE)
        if unconfirmed is not None:
            unconfirmed.warn()
        return found

    async def _see_one(self, client: LedgerClient, ledger_id: int, unconfirmed: Unconfirmed | None) -> Seen:
        handle = self._open.get(ledger_id)
        if handle is None:
            metadata = await client.metadata(ledger_id)
            if metadata.last_entry_id is not None and metadata.length is not None:
                return _seen(metadata.last_entry_id, metadata.length, closed=True)
            handle = self._open[ledger_id] = await client.open_as_administrator(ledger_id, recover=False)
        else:
            await handle.read_last_confirmed()
        # Closed meanwhile: then this is its last entry, else the last one that was confirmed at the latest question.
        seen = _seen(handle.last_add_confirmed, handle.length, closed=handle.closed)
        if unconfirmed is not None and not seen.closed:
            unconfirmed.note(await handle.report_unconfirmed(seen.end))
        if seen.closed or len(self._open) > HANDLES_MAX:
            await self._let_go(ledger_id)
        return seen

    async def _let_go(self, ledger_id: int) -> None:
        handle = self._open.pop(ledger_id, None)
        if handle is not None:
            await handle.close()

    def _gone(self, ledger_id: int) -> Seen:
        what = f"ledger {ledger_id} was deleted before the stream had read it to its end"
        if self._fail_on_data_loss:
            raise NoSuchLedger(f"{what}. With option failOnDataLoss=false the stream goes on without it")
        log.warn("{what}; the stream goes on without it (failOnDataLoss=false)", what=what)
        return GONE


def _seen(end: int, length: int, *, closed: bool) -> Seen:
    return Seen(end, closed, length / (end + 1) if end >= 0 else 0.0)
