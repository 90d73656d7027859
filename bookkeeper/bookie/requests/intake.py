"""Requests between their arrival and their answer: counted, decided, put into the journal, answered once.

What every kind of request shares; what each of them means is in the files beside this one. Thread: reactor.

Invariants:
    each request that was begun is answered exactly once, or never if the bookie failed (I-48);
    what must wait for the disk is decided afresh afterwards, in one turn (I-25);
    a key record goes to the journal before, or with, the first other record of its ledger (I-53).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.journal.format import master_key_record
from bookkeeper.bookie.process.metrics import BookieMeters
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.requests.fence import LedgerAccess
from bookkeeper.bookie.requests.interfaces import EntryJournal, EntryStorage
from bookkeeper.bookie.requests.known_lac import KnownLacs
from bookkeeper.bookie.requests.ledger_gates import LedgerGates, Waiting
from bookkeeper.errors import InvalidArgument, JournalFull, StorageError
from bookkeeper.logs import LogLimit
from bookkeeper.metrics import Metrics
from bookkeeper.model import Status
from bookkeeper.ports import Clock, Worker

log = Logger()

Refuse = Callable[[Status], None]


@dataclass(frozen=True, slots=True)
class BookieBounds:
    """What a bookie keeps in memory at most.

    journal_bytes_max: appended but unsynced bytes at which `congested` turns true; false again below half of it.
    waiting_requests_max, waiting_bytes_max: requests that wait for a ledger's state to come from the disk.
    cold_reads_max: entries being read from the disk; more are answered TOO_MANY_REQUESTS.
    ledgers_max: ledgers whose LAC is remembered.
    long_polls_max: long polls that wait, of all connections; more are answered TOO_MANY_REQUESTS.
    batch_read_bytes_max: bytes of the answer to a batch read, frame included, unless its first entry alone is larger.
    """

    journal_bytes_max: int = 32 * 1024 * 1024
    waiting_requests_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    cold_reads_max: int = 10_000
    ledgers_max: int = 65_536
    long_polls_max: int = 20_000
    batch_read_bytes_max: int = 5 * 1024 * 1024


class Intake:
    """What the requests of one bookie share.

    exit: called once, with the error, after a failure that the process must not survive (I-48).
    in_flight: requests begun and not answered yet. accepting: False once stopped or failed. log_limit: for log lines
    that requests cause; a subject names the ledger.
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
        bounds: BookieBounds,
        metrics: Metrics,
    ) -> None:
        self.storage = storage
        self.journals = tuple(journals)
        self.read_worker = read_worker
        self.mode = mode
        self.clock = clock
        self.bounds = bounds
        self.meters = BookieMeters(metrics)
        self.access = LedgerAccess(storage)
        self.lacs = KnownLacs(ledgers_max=bounds.ledgers_max)
        self.gates = LedgerGates(
            read_worker, requests_max=bounds.waiting_requests_max, bytes_max=bounds.waiting_bytes_max
        )
        self.log_limit = LogLimit(clock, on_left_out=_log_left_out)
        self.on_idle: Callable[[], None] | None = None
        self.in_flight = 0
        self.accepting = True
        self.failure: BaseException | None = None
        self._exit = exit

    # --- life ---------------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Count a request; False when none is taken any more, and then it is not to be answered."""
        if not self.accepting:
            return False
        self.in_flight += 1
        return True

    def fail(self, error: BaseException) -> bool:
        """End: nothing is answered from now on, and `exit` is called, once (I-48). False when that was done before."""
        if self.failure is not None:
            return False
        self.failure = error
        self.accepting = False
        self._exit(error)
        return True

    def stop(self) -> None:
        """Take no more requests; `on_idle` is called when those in flight are answered."""
        self.accepting = False
        self.tell_idle()

    def tell_idle(self) -> None:
        """Call `on_idle` once nothing is in flight and nothing more is taken."""
        if self.in_flight == 0 and not self.accepting and self.failure is None and self.on_idle is not None:
            on_idle, self.on_idle = self.on_idle, None
            on_idle()

    def answer(self, reply: Callable[..., None], *answer: object) -> None:
        """End a request that was begun."""
        if self.failure is None:
            self.in_flight -= 1
            reply(*answer)
            self.tell_idle()

    def drop(self) -> None:
        """End a request that was begun and that nobody waits for any more."""
        if self.failure is None:
            self.in_flight -= 1
            self.tell_idle()

    # --- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, run: Callable[[], None], refuse: Refuse) -> None:
        """The edge of a request: whatever goes wrong with it is answered and hurts nobody else."""
        if self.failure is not None:
            return
        try:
            run()
        except JournalFull:
            refuse(Status.TOO_MANY_REQUESTS)
        except InvalidArgument as error:
            log.warn("Refused a request: {error}", error=error)
            refuse(Status.BAD_REQUEST)
        except (StorageError, OSError) as error:
            log.error("A request failed in the storage: {error}", error=error)
            refuse(Status.IO_ERROR)

    def decide_loaded(self, ledger_id: int, size: int, run: Callable[[], None], refuse: Refuse) -> None:
        """Decide now, or behind the ledger's gate when its state must come from the disk first."""
        if not self.gates.is_shut(ledger_id) and self.storage.is_loaded(ledger_id):
            self.decide(run, refuse)
            return
        load = partial(self.storage.load_cold, ledger_id)
        self.gates.queue(ledger_id, load, Waiting(partial(self.decide, run, refuse), refuse, size))

    def may_not_create(self, ledger_id: int) -> bool:
        """True for a new ledger while no more may be created."""
        return not self.storage.takes_ledgers and not self.storage.exists(ledger_id)

    # --- the journal --------------------------------------------------------------------------------------------------

    def journal_of(self, ledger_id: int) -> EntryJournal:
        """Where the ledger's records go."""
        return self.journals[ledger_id % len(self.journals)]

    def append(
        self,
        ledger_id: int,
        key: bytes,
        records: list[bytes],
        size: int,
        on_durable: Callable[[], None],
        record_count: int = 1,
        *,
        deferred: bool = False,
    ) -> None:
        """Queue framed records, after the key record where this process has not journaled it yet (I-53).

        deferred: `on_durable` runs already when the records are written, before their sync.
        Raises JournalFull; nothing was queued.
        """
        needs_key = not self.storage.is_key_journaled(ledger_id)
        if needs_key:
            record = master_key_record(ledger_id, key)
            records = [record, *records]
            size += len(record)
            record_count += 1
        append = self.journal_of(ledger_id).append
        if deferred:
            append(records, size, partial(self.synced, on_durable), record_count, deferred=True)
        else:
            append(records, size, partial(self.synced, on_durable), record_count)
        if needs_key:
            self.storage.key_journaled(ledger_id)

    def synced(self, on_durable: Callable[[], None], error: BaseException | None) -> None:
        """What a journal calls when records are durable, or will never be."""
        if error is not None:
            self.fail(error)
        elif self.failure is None:
            on_durable()


def _log_left_out(counted: str) -> None:
    log.warn("Similar lines about requests that were left out: {counted}", counted=counted)
