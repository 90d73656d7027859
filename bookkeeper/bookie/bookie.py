"""The bookie itself: what an add, a read, a fence means, and in which order things become durable.

    request -> key, fence and mode are checked -> memory (visible to reads) + journal queue -> sync -> answer
               `------------------ one turn of the reactor (I-25) ------------------'

Invariants:
    no answer to an add, fence or explicit LAC before the sync that covers it (I-47, I-23);
    check and publication happen in one turn; whoever must wait for the disk is decided afresh afterwards (I-25);
    after the first failed write or sync nothing is answered any more, positive or negative, and the process ends
    (I-48); "no such entry" only from the storage's certain knowledge (I-31).

Free of sockets and wire versions: the simulator runs this very class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.duplicates import sort_out
from bookkeeper.bookie.fencing import FenceState, KeyCheck, LedgerAccess
from bookkeeper.bookie.gates import LedgerGates, Waiting
from bookkeeper.bookie.journal.format import explicit_lac_record, fence_record, master_key_record
from bookkeeper.bookie.known_lac import KnownLacs, lac_of_packet
from bookkeeper.bookie.meters import BookieMeters
from bookkeeper.bookie.mode import ModeSwitch
from bookkeeper.bookie.reads import EntryReads, Results
from bookkeeper.bookie.seams import EntryJournal, EntryStorage
from bookkeeper.bookie.storage.index_format import EXPLICIT_LAC_SIZE_MAX, EXPLICIT_LAC_SIZE_MIN
from bookkeeper.errors import InvalidArgument, JournalFull, StorageError
from bookkeeper.metrics import Metrics
from bookkeeper.model import LAST_ENTRY, Status
from bookkeeper.ports import Clock, Worker
from bookkeeper.wire.messages import AddBatch, FenceRead, ReadBatch, ReadLac, WriteLac

log = Logger()

_LENGTH = struct.Struct(">i")
_JOIN_BODY_SIZE_MAX = 2048
"""Up to this size one joined copy of a batch costs less than handing the journal twice as many parts."""

Refuse = Callable[[Status], None]


@dataclass(frozen=True, slots=True)
class BookieBounds:
    """What a bookie keeps in memory at most.

    journal_bytes_max: appended but unsynced bytes at which `congested` turns true; false again below half of it.
    waiting_requests_max, waiting_bytes_max: requests that wait for a ledger's state to come from the disk.
    cold_reads_max: entries being read from the disk; more are answered TOO_MANY_REQUESTS.
    ledgers_max: ledgers whose LAC is remembered.
    """

    journal_bytes_max: int = 32 * 1024 * 1024
    waiting_requests_max: int = 10_000
    waiting_bytes_max: int = 32 * 1024 * 1024
    cold_reads_max: int = 10_000
    ledgers_max: int = 65_536


class Bookie:
    """One bookie's decisions. Thread: reactor; cold reads run on `read_worker`.

    journals: a ledger's records go to journal `ledger_id mod len(journals)`.
    exit: called once, with the error, after a failure that the process must not survive (I-48).
    after_add: called after each batch that reached the storage (the checkpointer looks whether a flush is due).

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
        bounds: BookieBounds = BookieBounds(),
        after_add: Callable[[], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.mode = mode
        self.on_idle: Callable[[], None] | None = None
        """Called once after `stop`, when the last request in flight is answered."""
        self._storage = storage
        self._journals = tuple(journals)
        self._clock = clock
        self._meters = BookieMeters(metrics or Metrics())
        self._exit = exit
        self._bounds = bounds
        self._after_add = after_add
        self._access = LedgerAccess(storage)
        self._lacs = KnownLacs(ledgers_max=bounds.ledgers_max)
        self._reads = EntryReads(storage, read_worker, self._lacs, entries_max=bounds.cold_reads_max)
        self._gates = LedgerGates(
            read_worker, requests_max=bounds.waiting_requests_max, bytes_max=bounds.waiting_bytes_max
        )
        self._in_flight = 0
        self._congested = False
        self._accepting = True
        self._failure: BaseException | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> BaseException | None:
        """What ended this bookie, if anything did."""
        return self._failure

    @property
    def in_flight(self) -> int:
        """Requests taken and not answered yet."""
        return self._in_flight

    @property
    def congested(self) -> bool:
        """True while connections should not be read from: the journal or the write buffers are behind.

        Turns true at the journal's bound and false below half of it, so that it does not flutter. Full write buffers
        of a read-only bookie are no congestion: adds are refused at once, and nobody waits for a disk that stays full.
        """
        pending = sum([journal.pending_bytes for journal in self._journals])
        limit = self._bounds.journal_bytes_max
        full = self._storage.is_full and not self.mode.read_only
        self._congested = full or pending > (limit // 2 if self._congested else limit)
        return self._congested

    def fail(self, error: BaseException) -> None:
        """End: nothing is answered from now on, and `exit` is called, once (I-48)."""
        if self._failure is not None:
            return
        self._failure = error
        self._accepting = False
        log.critical("The bookie stops answering and exits: {error}", error=error)
        self._exit(error)

    def stop(self) -> None:
        """Take no more requests; those in flight are answered, then `on_idle` is called."""
        self._accepting = False
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self._in_flight == 0 and not self._accepting and self._failure is None and self.on_idle is not None:
            on_idle, self.on_idle = self.on_idle, None
            on_idle()

    def _answer(self, reply: Callable[..., None], *answer: object) -> None:
        if self._failure is None:
            self._in_flight -= 1
            reply(*answer)
            self._tell_idle()

    def _decide(self, run: Callable[[], None], refuse: Refuse) -> None:
        """The edge of a request: whatever goes wrong with it is answered and hurts nobody else."""
        if self._failure is not None:
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

    def _decide_loaded(self, ledger_id: int, size: int, run: Callable[[], None], refuse: Refuse) -> None:
        """Decide now, or behind the ledger's gate when its state must come from the disk first."""
        if not self._gates.is_shut(ledger_id) and self._storage.is_loaded(ledger_id):
            self._decide(run, refuse)
            return
        load = partial(self._storage.load_cold, ledger_id)
        self._gates.queue(ledger_id, load, Waiting(partial(self._decide, run, refuse), refuse, size))

    def _append(
        self,
        ledger_id: int,
        key: bytes,
        records: list[bytes],
        size: int,
        on_durable: Callable[[], None],
        record_count: int = 1,
    ) -> None:
        """Queue framed records, after the key record where this process has not journaled it yet (I-53).

        Raises JournalFull; nothing was queued.
        """
        needs_key = not self._storage.is_key_journaled(ledger_id)
        if needs_key:
            record = master_key_record(ledger_id, key)
            records = [record, *records]
            size += len(record)
            record_count += 1
        journal = self._journals[ledger_id % len(self._journals)]
        journal.append(records, size, partial(self._synced, on_durable), record_count)
        if needs_key:
            self._storage.key_journaled(ledger_id)

    def _may_not_create(self, ledger_id: int) -> bool:
        return not self._storage.takes_ledgers and not self._storage.exists(ledger_id)

    def _synced(self, on_durable: Callable[[], None], error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
        elif self._failure is None:
            on_durable()

    # --- adds ---------------------------------------------------------------------------------------------------------

    def add_many(self, batches: Sequence[AddBatch], reply: Callable[[Sequence[AddBatch], Status], None]) -> None:
        """Store batches of any ledgers, in this order; each as with `add`.

        `reply` is called once for each batch, for many together where they are answered alike by one sync.
        """
        position = 0
        while position < len(batches):
            position = self._add_plain(batches, position, reply)
            if position < len(batches):
                batch = batches[position]
                self.add(batch, partial(reply, (batch,)))
                position += 1

    def _add_plain(
        self, batches: Sequence[AddBatch], start: int, reply: Callable[[Sequence[AddBatch], Status], None]
    ) -> int:
        """Store and journal the batches from `start` on that need no decision, together; return where they end."""
        if not self._accepting or self.mode.read_only or self._storage.is_full:
            return start
        stop = self._storage.add_plain(batches, start, self._gates.shut)
        if stop == start:
            return start
        begun_s = self._clock.seconds()
        group = batches if stop - start == len(batches) else batches[start:stop]
        self._lacs.raise_all(group)
        for journal, share in self._by_journal(group):
            refuse = partial(self._refuse_add, share, partial(reply, share))
            self._in_flight += 1
            self._decide(partial(self._journal_plain, journal, share, begun_s, reply), refuse)
        if self._after_add is not None:
            self._after_add()
        return stop

    def _by_journal(self, batches: Sequence[AddBatch]) -> Iterable[tuple[EntryJournal, Sequence[AddBatch]]]:
        journals = self._journals
        if len(journals) == 1:
            return ((journals[0], batches),)
        shares: dict[int, list[AddBatch]] = {}
        for batch in batches:
            shares.setdefault(batch.ledger_id % len(journals), []).append(batch)
        return [(journals[index], share) for index, share in shares.items()]

    def _journal_plain(
        self,
        journal: EntryJournal,
        batches: Sequence[AddBatch],
        begun_s: float,
        reply: Callable[[Sequence[AddBatch], Status], None],
    ) -> None:
        bodies = batches[0].bodies if len(batches) == 1 else [body for batch in batches for body in batch.bodies]
        records, size = _framed(bodies)
        on_durable = partial(self._add_durable, len(bodies), begun_s, size, partial(reply, batches), False)
        journal.append(records, size, partial(self._synced, on_durable), len(bodies))

    def add(self, batch: AddBatch, reply: Callable[[Status], None]) -> None:
        """Store a batch of one ledger; one answer for all of it, OK only after its sync.

        READ_ONLY, UNAUTHORIZED (wrong key), FENCED, BAD_REQUEST (an id that holds another body: I-69; ids out of
        range), TOO_MANY_REQUESTS (queues full) and IO_ERROR mean that nothing of the batch is acknowledged.
        """
        if not self._accepting:
            return
        self._in_flight += 1
        begun_s = self._clock.seconds()
        refuse = partial(self._refuse_add, (batch,), reply)
        run = partial(self._apply_add, batch, begun_s, reply, refuse, None)
        if not self._gates.is_shut(batch.ledger_id) and self._storage.is_loaded(batch.ledger_id):
            self._decide(run, refuse)
        else:
            self._decide_loaded(batch.ledger_id, sum(map(len, batch.bodies)), run, refuse)

    def _refuse_add(self, batches: Sequence[AddBatch], reply: Callable[[Status], None], status: Status) -> None:
        if status is Status.READ_ONLY or status is Status.TOO_MANY_REQUESTS:
            self._meters.adds_rejected.add(sum([len(batch.entry_ids) for batch in batches]))
        self._answer(reply, status)

    def _apply_add(
        self,
        batch: AddBatch,
        begun_s: float,
        reply: Callable[[Status], None],
        refuse: Refuse,
        stored: Results | None,
    ) -> None:
        """Check, publish and queue, in this turn. stored: what the disk holds under the ids, where it was asked."""
        ledger_id = batch.ledger_id
        status = self._add_verdict(batch)
        if status is not Status.OK:
            refuse(status)
            return
        entry_ids: Sequence[int] = batch.entry_ids
        bodies: Sequence[bytes] = batch.bodies
        unique = len(entry_ids) == 1 or len(set(entry_ids)) == len(entry_ids)
        if not (unique and self._storage.all_new(ledger_id, entry_ids)):
            if stored is None:
                found = self._storage.read(ledger_id, entry_ids)
                if None in found:
                    self._fetch_stored(batch, begun_s, reply, refuse)
                    return
                stored = found  # type: ignore[assignment] # no None is left
            assert stored is not None
            verdict = sort_out(entry_ids, bodies, stored)
            if verdict.differing or verdict.unknown:
                self._refuse_conflict(batch, verdict.differing, refuse)
                return
            entry_ids, bodies = verdict.new_ids, verdict.new_bodies
        if entry_ids:
            self._storage.add(ledger_id, entry_ids, bodies)  # first: what it refuses creates no ledger
        if self._storage.master_key(ledger_id) is None:
            self._storage.set_master_key(ledger_id, batch.master_key)
        self._lacs.raise_to(ledger_id, batch.last_confirmed)
        # Entries that were held already are journaled again: their first record may be unsynced, or was never queued.
        records, size = _framed(batch.bodies)
        on_durable = partial(self._add_durable, len(batch.bodies), begun_s, size, reply, batch.recovery)
        self._append(ledger_id, batch.master_key, records, size, on_durable, len(batch.bodies))
        if self._after_add is not None:
            self._after_add()

    def _add_verdict(self, batch: AddBatch) -> Status:
        mode = self.mode
        if mode.read_only and not ((batch.high_priority or batch.recovery) and mode.priority_writes_allowed):
            return Status.READ_ONLY
        if self._access.check_key(batch.ledger_id, batch.master_key) is KeyCheck.WRONG:
            return Status.UNAUTHORIZED
        if not batch.recovery and self._access.fence_state(batch.ledger_id) is not FenceState.ABSENT:
            return Status.FENCED
        return Status.TOO_MANY_REQUESTS if self._storage.is_full else Status.OK

    def _fetch_stored(self, batch: AddBatch, begun_s: float, reply: Callable[[Status], None], refuse: Refuse) -> None:
        """Some ids may be held already and only the disk knows: ask it, then decide the whole batch afresh (I-25).

        Adds of the ledger queue meanwhile, so what the disk said still holds when the batch is decided.
        """
        size = sum(map(len, batch.bodies))

        def resume(stored: Results) -> None:
            self._decide(partial(self._apply_add, batch, begun_s, reply, refuse, stored), refuse)

        self._gates.fetch(
            batch.ledger_id,
            partial(self._storage.read_cold, batch.ledger_id, batch.entry_ids),
            resume,
            Waiting(lambda: None, refuse, size),
        )

    def _refuse_conflict(self, batch: AddBatch, differing: Sequence[int], refuse: Refuse) -> None:
        """Two bodies for one entry id are split brain: keep the first, say so loudly (I-69)."""
        if differing:
            log.error(
                "Refused an add to ledger {ledger_id}: entries {entry_ids} are held with other contents. "
                "Two writers used the same ledger id; the entries held are kept.",
                ledger_id=batch.ledger_id,
                entry_ids=list(differing)[:10],
            )
        refuse(Status.BAD_REQUEST if differing else Status.IO_ERROR)

    def _add_durable(
        self, count: int, begun_s: float, size: int, reply: Callable[[Status], None], recovery: bool
    ) -> None:
        meters = self._meters
        cell = meters.recovery_adds if recovery else meters.adds
        cell.observe((self._clock.seconds() - begun_s) * 1000, count)
        meters.write_bytes.add(size)
        self._answer(reply, Status.OK)

    # --- fences -------------------------------------------------------------------------------------------------------

    def fence_read(self, request: FenceRead, reply: Callable[[bytes | Status], None]) -> None:
        """Fence the ledger, known or not (I-22), and read one entry as of this very turn.

        The answer, found or not, waits for the sync that contains the fence record (I-23). UNAUTHORIZED without the
        ledger's key, and then it is not fenced (I-26). Works while read-only.
        """
        if not self._accepting:
            return
        self._in_flight += 1
        refuse = partial(self._answer, reply)
        self._decide_loaded(request.ledger_id, 0, partial(self._apply_fence, request, reply), refuse)

    def _apply_fence(self, request: FenceRead, reply: Callable[[bytes | Status], None]) -> None:
        ledger_id, key = request.ledger_id, request.master_key
        if key is None or self._access.check_key(ledger_id, key) is KeyCheck.WRONG:
            self._answer(reply, Status.UNAUTHORIZED)
            return
        if self._access.fence_state(ledger_id) is FenceState.ABSENT:
            if self._may_not_create(ledger_id):
                self._answer(reply, Status.TOO_MANY_REQUESTS)
                return
            record = fence_record(ledger_id)
            self._append(ledger_id, key, [record], len(record), partial(self._access.fence_durable, ledger_id))
            if self._storage.master_key(ledger_id) is None:
                self._storage.set_master_key(ledger_id, key)
            self._access.fence_appended(ledger_id)
            log.info("Fenced ledger {ledger_id}", ledger_id=ledger_id)
        begun_s = self._clock.seconds()

        def answer(result: bytes | Status) -> None:
            self._meters.fences.observe((self._clock.seconds() - begun_s) * 1000)
            self._answer(reply, result)

        def on_results(results: Results) -> None:
            self._access.when_durable(ledger_id, partial(answer, results[0]))

        self._reads.read(ledger_id, [request.entry_id], on_results)

    # --- reads --------------------------------------------------------------------------------------------------------

    def read(self, batch: ReadBatch, reply: Callable[[Results, int | None], None], *, with_lac: bool) -> None:
        """Read entries of one ledger: a body or a status for each, and the known LAC if `with_lac` (None: not known).

        NO_LEDGER and NO_ENTRY are certain; IO_ERROR and TOO_MANY_REQUESTS say nothing about the entry.
        """
        if not self._accepting:
            return
        self._in_flight += 1
        entry_ids = batch.entry_ids
        begun_s = self._clock.seconds()

        def refuse(status: Status) -> None:
            answer([status] * len(entry_ids))

        def answer(results: Results, lac: int | None = None) -> None:
            self._meters.reads.observe((self._clock.seconds() - begun_s) * 1000, len(results))
            if results[0] is Status.TOO_MANY_REQUESTS:
                self._meters.reads_rejected.add(len(results))
            self._answer(reply, results, lac)

        if with_lac:
            run = partial(self._reads.read_with_lac, batch.ledger_id, entry_ids, answer)
            self._decide_loaded(batch.ledger_id, 0, run, refuse)
            return
        run = partial(self._reads.read, batch.ledger_id, entry_ids, answer)
        if entry_ids[0] == LAST_ENTRY:
            self._decide_loaded(batch.ledger_id, 0, run, refuse)
        else:
            self._decide(run, refuse)

    # --- LAC ----------------------------------------------------------------------------------------------------------

    def write_lac(self, request: WriteLac, reply: Callable[[Status], None]) -> None:
        """Store an explicit LAC; OK after its sync. One that is not higher is answered OK and changes nothing (I-07).

        Fenced ledgers still take it, as with Apache. READ_ONLY, UNAUTHORIZED, BAD_REQUEST (packet too short).
        """
        if not self._accepting:
            return
        self._in_flight += 1
        refuse = partial(self._answer, reply)
        self._decide_loaded(request.ledger_id, len(request.body), partial(self._apply_lac, request, reply), refuse)

    def _apply_lac(self, request: WriteLac, reply: Callable[[Status], None]) -> None:
        ledger_id, packet = request.ledger_id, request.body
        if self.mode.read_only:
            self._answer(reply, Status.READ_ONLY)
            return
        if not EXPLICIT_LAC_SIZE_MIN <= len(packet) <= EXPLICIT_LAC_SIZE_MAX or lac_of_packet(packet) < -1:
            self._answer(reply, Status.BAD_REQUEST)
            return
        if self._access.check_key(ledger_id, request.master_key) is KeyCheck.WRONG:
            self._answer(reply, Status.UNAUTHORIZED)
            return
        stored = self._storage.explicit_lac(ledger_id)
        if stored is not None and lac_of_packet(stored) >= lac_of_packet(packet):
            self._answer(reply, Status.OK)
            return
        if self._may_not_create(ledger_id):
            self._answer(reply, Status.TOO_MANY_REQUESTS)
            return
        record = explicit_lac_record(ledger_id, packet)
        on_durable = partial(self._lac_durable, ledger_id, packet, reply)
        self._append(ledger_id, request.master_key, [record], len(record), on_durable)
        if self._storage.master_key(ledger_id) is None:
            self._storage.set_master_key(ledger_id, request.master_key)

    def _lac_durable(self, ledger_id: int, packet: bytes, reply: Callable[[Status], None]) -> None:
        """Only now may readers see it: a LAC that was served must not fall back after a crash (I-07)."""

        def run() -> None:
            self._storage.set_explicit_lac(ledger_id, packet)
            self._lacs.raise_to(ledger_id, lac_of_packet(packet))
            self._answer(reply, Status.OK)

        self._decide(run, partial(self._answer, reply))

    def read_lac(self, request: ReadLac, reply: Callable[[Status, bytes | None, bytes | None], None]) -> None:
        """The explicit LAC packet and the body of the last entry, each None where there is none.

        NO_ENTRY when there is neither, also for an unknown ledger.
        Differs from Apache: an entry that cannot be read is IO_ERROR, never NO_ENTRY (I-31).
        """
        if not self._accepting:
            return
        self._in_flight += 1

        def refuse(status: Status) -> None:
            self._answer(reply, status, None, None)

        def run() -> None:
            explicit = self._storage.explicit_lac(request.ledger_id)
            self._reads.read(request.ledger_id, [LAST_ENTRY], lambda results: found(explicit, results[0]))

        def found(explicit: bytes | None, last: bytes | Status) -> None:
            if isinstance(last, bytes):
                self._answer(reply, Status.OK, explicit, last)
            elif last not in (Status.NO_ENTRY, Status.NO_LEDGER):
                self._answer(reply, last, explicit, None)
            else:
                self._answer(reply, Status.NO_ENTRY if explicit is None else Status.OK, explicit, None)

        self._decide_loaded(request.ledger_id, 0, run, refuse)


def _framed(bodies: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Journal records `[i32 size][body]` of a batch as parts, and their total size."""
    size = len(bodies[0])
    if size <= _JOIN_BODY_SIZE_MAX and len(set(map(len, bodies))) == 1:
        prefix = _LENGTH.pack(size)
        return [prefix, prefix.join(bodies)], (size + 4) * len(bodies)
    parts: list[bytes] = []
    total = 0
    for body in bodies:
        size = len(body)
        total += size + 4
        parts.append(_LENGTH.pack(size))
        parts.append(body)
    return parts, total
