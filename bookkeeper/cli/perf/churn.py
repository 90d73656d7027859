"""A load that creates, fills, closes, reads back and deletes ledgers, until it is told to stop. One client.

    writes      churn_writes.py
    checks      ranges of random ledgers are read all the time and compared with what was written
    deletions   a share at once when asked (`delete`), or all the time so that `keep_bytes` stay

An error is: an add that failed, a ledger that could not be created, closed, read or deleted, an entry that is not what
was written. They are counted, and the first few told.

Thread: reactor.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from bookkeeper.cli.perf.churn_ledgers import ChurnLedger, LedgerBook, Payloads, to_delete, to_replace
from bookkeeper.cli.perf.churn_plan import ChurnPlan, Counts
from bookkeeper.cli.perf.churn_writes import ChurnWriter, OpenLedger
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.outcome import pause

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import Entry

CHECKED_ENTRIES = 50
VERIFIED_ENTRIES = 1000
VERIFIED_BYTES = 4 << 20
"""Of one read: of the checks meanwhile, and of the last one of everything."""

CONCURRENT_MAX = 32
"""Ledgers deleted or verified at once."""


class Churn:
    """One load on one client. `start` it, ask it, `stop` it."""

    def __init__(self, client: LedgerClient, reactor: Any, plan: ChurnPlan) -> None:
        self._client, self._reactor, self._plan = client, reactor, plan
        self._payloads = Payloads(plan.entry_size)
        self._rng = random.Random(plan.seed)
        self._book, self._counts = LedgerBook(), Counts()
        self._writer = ChurnWriter(
            client, reactor, plan, self._payloads, self._book, self._counts, self._rng, self._on_full
        )
        self._running = self._replacing = False
        self._tasks: set[Deferred[None]] = set()

    # --- what it is asked ---------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, Any]:
        """Begin."""
        self._running = True
        await self._writer.start()
        if self._plan.checks_per_s:
            self._task(self._check_again_and_again())
        return self.totals()

    def phase(self) -> dict[str, Any]:
        """What was counted since the last call; counting begins anew."""
        counted = {**self._counts.to_json(), **self.totals()}
        self._counts.begin_phase()
        return counted

    async def delete(self, share: float) -> dict[str, Any]:
        """Delete so much of what is closed; returns once the metadata store has none of it."""
        chosen = to_delete(self._book.closed(), share, self._rng)
        entries = sum(ledger.acknowledged for ledger in chosen)
        for ledger in chosen:
            ledger.going = True
        await self._at_once(chosen, self._delete_one)
        return {"chosen_ledgers": len(chosen), "chosen_entries": entries, **self.totals()}

    async def stop(self, *, verify: bool) -> dict[str, Any]:
        """End the load; close every ledger. verify: read whatever must be there, to the last entry."""
        self._running = False
        await self._writer.stop()
        for opened in self._writer.open_ledgers():
            self._on_full(opened)
        while self._tasks:
            await gatherResults(list(self._tasks))
        verified = 0

        async def read_all(ledger: ChurnLedger) -> None:
            nonlocal verified
            count = await self._verify(ledger)
            verified += count

        if verify:
            await self._at_once(self._book.staying(), read_all)
        return {"verified_entries": verified, "ledger_ids": self._ledger_ids(), **self.totals()}

    def _ledger_ids(self) -> list[int]:
        return [ledger.ledger_id for ledger in self._book.staying()]

    def totals(self) -> dict[str, Any]:
        """Since the start."""
        return {
            "live_entries": self._book.live_entries,
            "ledgers": len(self._book),
            "closed_ledgers": len(self._book.closed()),
            "deleted_ledgers": self._book.deleted_count,
            "deleted_entries": self._book.deleted_entries,
            "all_adds": self._counts.all_adds,
            "error_count": self._counts.error_count,
            "errors": self._counts.errors,
        }

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = Deferred.fromCoroutine(work)

        def ended(result: object) -> None:
            self._tasks.discard(task)
            if result is not None:
                self._counts.error("the load itself", result)

        self._tasks.add(task)
        task.addBoth(ended)
        if task.called:
            self._tasks.discard(task)

    async def _at_once(
        self, ledgers: list[ChurnLedger], work: Callable[[ChurnLedger], Coroutine[Any, Any, None]]
    ) -> None:
        places = DeferredSemaphore(CONCURRENT_MAX)

        def begin(ledger: ChurnLedger) -> Deferred[None]:
            return Deferred.fromCoroutine(work(ledger))

        await gatherResults([places.run(begin, ledger) for ledger in ledgers], consumeErrors=True)

    # --- ledgers that are full, and that go ---------------------------------------------------------------------------

    def _on_full(self, opened: OpenLedger) -> None:
        self._task(self._close(opened))

    async def _close(self, opened: OpenLedger) -> None:
        ledger = opened.ledger
        try:
            await opened.handle.close()
        except BookKeeperError as error:
            if not ledger.failed:  # what became of its adds was counted
                self._counts.error(f"ledger {ledger.ledger_id} could not be closed", error)
        ledger.closed = True
        if self._plan.keep_bytes and not self._replacing:
            self._replacing = True
            try:
                await self._delete_what_is_too_much(self._plan.keep_bytes // max(self._plan.entry_size, 1))
            finally:
                self._replacing = False

    async def _delete_what_is_too_much(self, entries_kept: int) -> None:
        while self._running and (ledger := to_replace(self._book.closed(), entries_kept, self._rng)) is not None:
            ledger.going = True
            await self._delete_one(ledger)

    async def _delete_one(self, ledger: ChurnLedger) -> None:
        try:
            await self._client.delete(ledger.ledger_id)
        except BookKeeperError as error:
            self._counts.error(f"ledger {ledger.ledger_id} could not be deleted", error)
        self._book.gone(ledger)
        self._counts.deleted += 1

    # --- reads --------------------------------------------------------------------------------------------------------

    async def _check_again_and_again(self) -> None:
        while self._running:
            await self._check_one()
            await pause(self._reactor, 1 / self._plan.checks_per_s)

    async def _check_one(self) -> None:
        ledgers = [ledger for ledger in self._book.staying() if ledger.acknowledged]
        if not ledgers:
            return
        ledger = self._rng.choice(ledgers)
        first = self._rng.randrange(ledger.acknowledged)
        last = min(first + CHECKED_ENTRIES, ledger.acknowledged) - 1
        try:
            reader = await self._client.open_without_recovery(ledger.ledger_id)
            # Of a ledger that is written, bookies know what is confirmed only from the next add on; we know more.
            found = await reader.read_unconfirmed(first, last)
        except BookKeeperError as error:
            if not ledger.going:
                self._counts.error(f"ledger {ledger.ledger_id} could not be read at {first}..{last}", error)
            return
        self._counts.checks += 1
        self._counts.checked_entries += self._compare(ledger, found, first, last)

    async def _verify(self, ledger: ChurnLedger) -> int:
        """Read the whole of a closed ledger; how many entries were as written."""
        step = max(1, min(VERIFIED_ENTRIES, VERIFIED_BYTES // max(self._plan.entry_size, 1)))
        good = 0
        try:
            reader = await self._client.open_without_recovery(ledger.ledger_id)
            last_entry_id = int(reader.last_add_confirmed)
            # After failed adds it may hold entries of which nobody was told; never less than what was acknowledged.
            if not ledger.acknowledged <= last_entry_id + 1 <= ledger.appended:
                self._counts.error(
                    f"ledger {ledger.ledger_id}", f"ends at {last_entry_id}, {ledger.acknowledged} were acknowledged"
                )
            for first in range(0, min(last_entry_id + 1, ledger.appended), step):
                last = min(first + step - 1, last_entry_id)
                good += self._compare(ledger, await reader.read(first, last), first, last)
        except BookKeeperError as error:
            self._counts.error(f"ledger {ledger.ledger_id} could not be read", error)
        return good

    def _compare(self, ledger: ChurnLedger, found: list[Entry], first: int, last: int) -> int:
        """How many of these are what was written, where all must be."""
        of, ledger_id = self._payloads.of, ledger.ledger_id
        good = sum(entry.payload == of(ledger_id, entry.entry_id) for entry in found)
        if good != last - first + 1 or [entry.entry_id for entry in found] != list(range(first, last + 1)):
            self._counts.error(f"ledger {ledger_id}", f"{good} of the entries {first}..{last} are what was written")
        return good
