"""Reads of single entries and of batches, with and without a fence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.journal.format import fence_record
from bookkeeper.bookie.requests.batch_read import BatchReads
from bookkeeper.bookie.requests.entry_reads import EntryReads, Results
from bookkeeper.bookie.requests.fence import FenceState, KeyCheck
from bookkeeper.bookie.requests.intake import Intake
from bookkeeper.bookie.requests.long_poll import LacWatches
from bookkeeper.logs import LogLimit
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.wire.messages import BatchRead, FenceRead, ReadBatch

log = Logger()

_FENCES_OF_EMPTY = "fence of a ledger without an entry here"
"""Any peer may fence ids that no ledger has, as fast as it can send: one log line per 10 s for all such fences."""


class ReadRequests:
    """Thread: reactor."""

    def __init__(self, intake: Intake, reads: EntryReads, watches: LacWatches) -> None:
        self._intake = intake
        self._storage = intake.storage
        self._reads = reads
        self._watches = watches
        self._empty_fences = LogLimit(intake.clock, on_left_out=_log_left_out)
        self._batches = BatchReads(intake.storage, reads, bytes_max=intake.bounds.batch_read_bytes_max)

    # --- plain --------------------------------------------------------------------------------------------------------

    def read(self, batch: ReadBatch, reply: Callable[[Results, int | None], None], *, with_lac: bool) -> None:
        """Read entries of one ledger: a body or a status for each, and the known LAC if `with_lac` (None: not known).

        NO_LEDGER and NO_ENTRY are certain; IO_ERROR and TOO_MANY_REQUESTS say nothing about the entry.
        """
        if not self._intake.begin():
            return
        entry_ids = batch.entry_ids
        begun_s = self._intake.clock.seconds()

        def refuse(status: Status) -> None:
            answer([status] * len(entry_ids))

        def answer(results: Results, lac: int | None = None) -> None:
            self._observe(begun_s, len(results), rejected=results[0] is Status.TOO_MANY_REQUESTS)
            self._intake.answer(reply, results, lac)

        if with_lac:
            run = partial(self._reads.read_with_lac, batch.ledger_id, entry_ids, answer)
            self._intake.decide_loaded(batch.ledger_id, 0, run, refuse)
            return
        run = partial(self._reads.read, batch.ledger_id, entry_ids, answer)
        if entry_ids[0] == LAST_ENTRY:
            self._intake.decide_loaded(batch.ledger_id, 0, run, refuse)
        else:
            self._intake.decide(run, refuse)

    def _observe(self, begun_s: float, count: int, *, rejected: bool) -> None:
        meters = self._intake.meters
        meters.reads.observe((self._intake.clock.seconds() - begun_s) * 1000, count)
        if rejected:
            meters.reads_rejected.add(count)

    def batch_read(
        self, request: BatchRead, reply: Callable[[Status, Sequence[bytes]], None], *, answer_bytes_max: int
    ) -> None:
        """Read consecutive entries, after fencing the ledger if asked to; a fence is durable before any answer (I-23).

        OK with at least one body, or why the first one is not there. answer_bytes_max: what the connection's frames
        hold; the request and `batch_read_bytes_max` may ask for less. One entry comes however large it is.
        """
        if not self._intake.begin():
            return
        begun_s = self._intake.clock.seconds()

        def answer(status: Status, bodies: Sequence[bytes]) -> None:
            self._observe(begun_s, max(1, len(bodies)), rejected=status is Status.TOO_MANY_REQUESTS)
            self._intake.answer(reply, status, bodies)

        def refuse(status: Status) -> None:
            answer(status, [])

        def run() -> None:
            ledger_id = request.ledger_id
            on_batch = answer
            if request.fence:
                status = self._fence(ledger_id, request.master_key)
                if status is not Status.OK:
                    refuse(status)
                    return

                def on_batch(status: Status, bodies: Sequence[bytes]) -> None:
                    self._intake.access.when_durable(ledger_id, partial(answer, status, bodies))

            size_max = min(request.size_max, answer_bytes_max)
            self._batches.read(ledger_id, request.first_entry_id, request.count_max, size_max, on_batch)

        self._intake.decide_loaded(request.ledger_id, 0, run, refuse)

    # --- fences -------------------------------------------------------------------------------------------------------

    def fence_read(self, request: FenceRead, reply: Callable[[bytes | Status], None]) -> None:
        """Fence the ledger, known or not (I-22), and read one entry as of this very turn.

        The answer, found or not, waits for the sync that contains the fence record (I-23). UNAUTHORIZED without the
        ledger's key, and then it is not fenced (I-26). Works while read-only.
        """
        if not self._intake.begin():
            return
        refuse = partial(self._intake.answer, reply)
        run = partial(self._apply_fence, request, reply)
        self._intake.decide_loaded(request.ledger_id, 0, run, refuse)

    def _apply_fence(self, request: FenceRead, reply: Callable[[bytes | Status], None]) -> None:
        ledger_id = request.ledger_id
        status = self._fence(ledger_id, request.master_key)
        if status is not Status.OK:
            self._intake.answer(reply, status)
            return
        begun_s = self._intake.clock.seconds()

        def answer(result: bytes | Status) -> None:
            self._intake.meters.fences.observe((self._intake.clock.seconds() - begun_s) * 1000)
            self._intake.answer(reply, result)

        def on_results(results: Results) -> None:
            self._intake.access.when_durable(ledger_id, partial(answer, results[0]))

        self._reads.read(ledger_id, [request.entry_id], on_results)

    def _fence(self, ledger_id: int, key: bytes | None) -> Status:
        """Set the fence unless it is set; OK once it is set in memory and its record queued.

        One that only the index file shows is journaled again: a killed process may have left it in the page cache.
        """
        access = self._intake.access
        check = KeyCheck.WRONG if key is None else access.check_key(ledger_id, key)
        if key is None or check is KeyCheck.WRONG:
            return Status.UNAUTHORIZED
        if check is KeyCheck.GONE:
            return Status.NO_LEDGER
        if check is KeyCheck.MOVED:  # what was here must not be denied (I-31)
            return Status.UNKNOWN_LEDGER_STATE
        state = access.fence_state(ledger_id)
        if state is FenceState.ABSENT or state is FenceState.UNSURE:
            if self._intake.may_not_create(ledger_id):
                return Status.TOO_MANY_REQUESTS
            record = fence_record(ledger_id)
            self._intake.append(ledger_id, key, [record], len(record), partial(access.fence_durable, ledger_id))
            if self._storage.master_key(ledger_id) is None:
                self._storage.set_master_key(ledger_id, key)
            access.fence_appended(ledger_id)
            self._watches.on_fence(ledger_id)
            if state is FenceState.ABSENT and (
                self._storage.last_entry_id(ledger_id) is not None or self._empty_fences.admits(_FENCES_OF_EMPTY)
            ):
                log.info("Fenced ledger {ledger_id}", ledger_id=ledger_id)
        return Status.OK


def _log_left_out(counted: str) -> None:
    log.info("Fences not logged one by one: {counted}. Peers may be claiming ledger ids", counted=counted)
