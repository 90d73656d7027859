"""The bookie itself: what an add, a read, a fence means, and in which order things become durable.

    request -> key, fence and mode are checked -> memory (visible to reads) + journal queue -> sync -> answer
               `------------------ one turn of the reactor (I-25) ------------------'

    requests.intake       what all requests share
    requests.adds         adds, deferred or not
    requests.reads        reads, fences, batch reads
    requests.lac          explicit LACs
    requests.long_poll    reads that wait for a LAC
    requests.ledger       force, list of entries

Invariants:
    no answer to an add, fence or explicit LAC before the sync that covers it (I-47, I-23); an add with DEFERRED_SYNC
    asks for less and is answered once it is written, and a force after the sync of all that was appended before it;
    check and publication happen in one turn; whoever must wait for the disk is decided afresh afterwards (I-25);
    after the first failed write or sync nothing is answered any more, positive or negative, and the process ends
    (I-48); "no such entry" only from the storage's certain knowledge (I-31).

Free of sockets and wire versions: the simulator runs this very class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper.bookie.gc.removal import LedgerRemoval
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.requests.adds import EntryAdds
from bookkeeper.bookie.requests.entry_reads import EntryReads, Results
from bookkeeper.bookie.requests.intake import BookieBounds, Intake
from bookkeeper.bookie.requests.interfaces import EntryJournal, EntryStorage
from bookkeeper.bookie.requests.lac import LacRequests
from bookkeeper.bookie.requests.ledger import LedgerRequests, OnListed
from bookkeeper.bookie.requests.long_poll import LacWatches, LongPolls, PollReply, PollSeat, WatchEnd
from bookkeeper.bookie.requests.reads import ReadRequests
from bookkeeper.clock import wall_ms
from bookkeeper.logs import LogLimit
from bookkeeper.metrics import Metrics
from bookkeeper.model import Status
from bookkeeper.ports import Clock, Worker
from bookkeeper.wire.messages import (
    AddBatch,
    BatchRead,
    FenceRead,
    ForceLedger,
    ListEntries,
    LongPollRead,
    ReadBatch,
    ReadLac,
    WriteLac,
)

__all__ = ["Bookie", "BookieBounds"]


class Bookie:
    """One bookie's decisions. Thread: reactor; cold reads run on `read_worker`.

    journals: a ledger's records go to journal `ledger_id mod len(journals)`.
    exit: called once, with the error, after a failure that the process must not survive (I-48).
    after_add: called after each batch that reached the storage (the checkpointer looks whether a flush is due).
    now_ms: the date, for answers that contain one.

    Every request is answered exactly once through the callable it brings, unless the bookie failed or was stopped
    before it came: then not at all. An answer that needs no disk comes before the call returns.
    """

    def __init__(
        self,
        storage: EntryStorage,
        journals: Sequence[EntryJournal],
        read_worker: Worker,
        mode: ModeSwitch,
        clock: Clock,
        *,
        exit: Callable[[BaseException], None],
        bounds: BookieBounds | None = None,
        after_add: Callable[[], None] | None = None,
        metrics: Metrics | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        bounds = bounds or BookieBounds()
        self.mode = mode
        self._storage = storage
        self._journal_bytes_max = bounds.journal_bytes_max
        self._congested = False
        self._intake = intake = Intake(
            storage, journals, read_worker, mode, clock, exit=self._failed, bounds=bounds, metrics=metrics or Metrics()
        )
        self._exit = exit
        self._watches = watches = LacWatches(clock, watches_max=bounds.long_polls_max, now_ms=now_ms)
        reads = EntryReads(storage, read_worker, intake.lacs, entries_max=bounds.cold_reads_max)
        self._adds = EntryAdds(intake, watches, after_add)
        self._reads = ReadRequests(intake, reads, watches)
        self._lacs = LacRequests(intake, reads, watches)
        self._polls = LongPolls(intake, reads, watches)
        self._ledgers = LedgerRequests(intake)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def on_idle(self) -> Callable[[], None] | None:
        """Called once after `stop`, when the last request in flight is answered."""
        return self._intake.on_idle

    @on_idle.setter
    def on_idle(self, call: Callable[[], None] | None) -> None:
        self._intake.on_idle = call

    @property
    def failure(self) -> BaseException | None:
        """What ended this bookie, if anything did."""
        return self._intake.failure

    @property
    def log_limit(self) -> LogLimit:
        """See Intake."""
        return self._intake.log_limit

    @property
    def in_flight(self) -> int:
        """Requests taken and not answered yet."""
        return self._intake.in_flight

    @property
    def congested(self) -> bool:
        """True while connections should not be read from: the journal or the write buffers are behind.

        Turns true at the journal's bound and false below half of it, so that it does not flutter. Full write buffers
        of a read-only bookie are no congestion: adds are refused at once, and nobody waits for a disk that stays full.
        """
        pending = sum([journal.pending_bytes for journal in self._intake.journals])
        limit = self._journal_bytes_max
        full = self._storage.is_full and not self.mode.read_only
        self._congested = full or pending > (limit // 2 if self._congested else limit)
        return self._congested

    @property
    def waiting_polls(self) -> int:
        """Long polls that wait, or whose wait is over and was not told yet."""
        return self._watches.count

    def fail(self, error: BaseException) -> None:
        """End: nothing is answered from now on, and `exit` is called, once (I-48)."""
        self._intake.fail(error)

    def _failed(self, error: BaseException) -> None:
        """However it came to that: told by the server, or by a journal to whoever waits for a record."""
        self._watches.clear()
        self._exit(error)

    def stop(self) -> None:
        """Take no more requests; those in flight are answered, long polls at once, then `on_idle` is called."""
        self._intake.accepting = False
        self._watches.end_all(WatchEnd.STOPPED)
        self._intake.stop()

    def removal(self, storage_worker: Worker) -> LedgerRemoval:
        """Who deletes ledgers under this bookie. storage_worker: the one that flushes and checkpoints."""
        return LedgerRemoval(self._intake, storage_worker)

    # --- requests -----------------------------------------------------------------------------------------------------

    def add_many(self, batches: Sequence[AddBatch], reply: Callable[[Sequence[AddBatch], Status], None]) -> None:
        """See `EntryAdds.add_many`."""
        self._adds.add_many(batches, reply)

    def add(self, batch: AddBatch, reply: Callable[[Status], None]) -> None:
        """See `EntryAdds.add`."""
        self._adds.add(batch, reply)

    def read(self, batch: ReadBatch, reply: Callable[[Results, int | None], None], *, with_lac: bool) -> None:
        """See `ReadRequests.read`."""
        self._reads.read(batch, reply, with_lac=with_lac)

    def batch_read(
        self, request: BatchRead, reply: Callable[[Status, Sequence[bytes]], None], *, answer_bytes_max: int
    ) -> None:
        """See `ReadRequests.batch_read`."""
        self._reads.batch_read(request, reply, answer_bytes_max=answer_bytes_max)

    def fence_read(self, request: FenceRead, reply: Callable[[bytes | Status], None]) -> None:
        """See `ReadRequests.fence_read`."""
        self._reads.fence_read(request, reply)

    def long_poll(self, request: LongPollRead, reply: PollReply, seat: PollSeat) -> None:
        """See `LongPolls.long_poll`."""
        self._polls.long_poll(request, reply, seat)

    def write_lac(self, request: WriteLac, reply: Callable[[Status], None]) -> None:
        """See `LacRequests.write_lac`."""
        self._lacs.write_lac(request, reply)

    def read_lac(self, request: ReadLac, reply: Callable[[Status, bytes | None, bytes | None], None]) -> None:
        """See `LacRequests.read_lac`."""
        self._lacs.read_lac(request, reply)

    def force(self, request: ForceLedger, reply: Callable[[Status], None]) -> None:
        """See `LedgerRequests.force`."""
        self._ledgers.force(request, reply)

    def list_entries(self, request: ListEntries, reply: OnListed, *, runs_max: int) -> None:
        """See `LedgerRequests.list_entries`."""
        self._ledgers.list_entries(request, reply, runs_max=runs_max)
