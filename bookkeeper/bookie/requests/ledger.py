"""Requests about a whole ledger: force it to the disk, list the entries that are held of it.

Force: answered once everything appended before it to the ledger's journal is synced, deferred adds among it. No key, no
fence check, and the ledger need not exist, as with Apache. After a failed write or sync it is not answered (I-48).

List: index and write buffers of the entries up to the last one held when it is asked, looked up in pieces on the read
worker, so that other reads go on between two of them. A listing says "not held" for every gap: what cannot be told for
certain (I-31), or does not fit into the answer, is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.requests.intake import Intake
from bookkeeper.model import Status
from bookkeeper.wire.messages import ForceLedger, ListEntries

log = Logger()

LISTINGS_MAX = 4
"""Ledgers being listed at once; more are answered TOO_MANY_REQUESTS. As many runs as fit a frame take about 25 MB."""

LISTING_S_MAX = 60.0
"""How long one may take; an index of 2**36 places, nearly all of them empty, would take hours."""

LISTED_AT_ONCE = 64 * 1024
"""Entry ids per piece of work: half a megabyte of an index file, a few milliseconds."""

OnListed = Callable[[Status, list[range]], None]


class LedgerRequests:
    """Thread: reactor; listings look up on the read worker."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._listings = 0

    def force(self, request: ForceLedger, reply: Callable[[Status], None]) -> None:
        """OK once what was appended before is synced; TOO_MANY_REQUESTS when the journal's queue is full."""
        if not self._intake.begin():
            return
        begun_s = self._intake.clock.seconds()

        def forced() -> None:
            self._intake.meters.forces.observe((self._intake.clock.seconds() - begun_s) * 1000)
            self._intake.answer(reply, Status.OK)

        barrier = self._intake.journal_of(request.ledger_id).barrier
        done = partial(self._intake.synced, forced)
        self._intake.decide(partial(barrier, done), partial(self._intake.answer, reply))

    def list_entries(self, request: ListEntries, reply: OnListed, *, runs_max: int) -> None:
        """OK with the runs of entries held, ascending; none for a ledger without entries.

        NO_LEDGER; IO_ERROR for a damaged index, for more than `runs_max` runs, after LISTING_S_MAX, and when the bookie
        stops.
        """
        if not self._intake.begin():
            return

        def refuse(status: Status) -> None:
            self._intake.answer(reply, status, [])

        def run() -> None:
            storage, ledger_id = self._intake.storage, request.ledger_id
            if not storage.exists(ledger_id):
                refuse(Status.NO_LEDGER)
                return
            last = storage.last_entry_id(ledger_id)
            if last is None:
                self._intake.answer(reply, Status.OK, [])
            elif self._listings >= LISTINGS_MAX:
                refuse(Status.TOO_MANY_REQUESTS)
            else:
                self._listings += 1
                _Listing(self._intake, ledger_id, last + 1, runs_max, partial(self._listed, reply)).go()

        self._intake.decide_loaded(request.ledger_id, 0, run, refuse)

    def _listed(self, reply: OnListed, status: Status, runs: list[range]) -> None:
        self._listings -= 1
        self._intake.answer(reply, status, runs)


class _Listing:
    """One ledger being listed, piece by piece."""

    def __init__(self, intake: Intake, ledger_id: int, stop: int, runs_max: int, on_listed: OnListed) -> None:
        self._intake = intake
        self._ledger_id = ledger_id
        self._stop = stop
        self._runs_max = runs_max
        self._on_listed = on_listed
        self._runs: list[range] = []
        self._position = 0
        self._deadline = intake.clock.seconds() + LISTING_S_MAX

    def go(self) -> None:
        """Look up the next piece."""
        end = min(self._position + LISTED_AT_ONCE, self._stop)
        work = partial(self._intake.storage.held_cold, self._ledger_id, self._position, end)
        self._position = end
        self._intake.read_worker.submit(work, self._on_held, self._on_error)

    def _on_held(self, runs: list[range]) -> None:
        if self._intake.failure is not None:
            return
        found = self._runs
        if runs and found and found[-1].stop == runs[0].start:
            found[-1] = range(found[-1].start, runs[0].stop)
            runs = runs[1:]
        found += runs
        if len(found) > self._runs_max:
            if self._intake.log_limit.admits(f"no list of the entries of ledger {self._ledger_id}"):
                log.warn(
                    "Cannot list the entries of ledger {ledger_id}: more than {count} runs do not fit into an answer",
                    ledger_id=self._ledger_id,
                    count=self._runs_max,
                )
            self._on_listed(Status.IO_ERROR, [])
        elif self._position >= self._stop:
            self._on_listed(Status.OK, found)
        elif not self._intake.accepting or self._intake.clock.seconds() > self._deadline:
            self._on_listed(Status.IO_ERROR, [])
        else:
            self.go()

    def _on_error(self, error: BaseException) -> None:
        log.error("Cannot list the entries of ledger {ledger_id}: {error}", ledger_id=self._ledger_id, error=error)
        self._on_listed(Status.IO_ERROR, [])
