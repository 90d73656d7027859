"""Adds: who may write, into memory and journal in one turn, answered after the sync.

A batch with DEFERRED_SYNC is answered once its records are written to the journal's file: a killed process loses
nothing of it, a power cut may, until a force or any later sync of that journal. Recovery adds are never answered early:
what recovery wrote decides where a ledger ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.process.log_throttle import Seldom
from bookkeeper.bookie.requests.duplicates import sort_out
from bookkeeper.bookie.requests.entry_reads import Results
from bookkeeper.bookie.requests.fence import FenceState, KeyCheck
from bookkeeper.bookie.requests.intake import Intake, Refuse
from bookkeeper.bookie.requests.interfaces import EntryJournal
from bookkeeper.bookie.requests.ledger_gates import Waiting
from bookkeeper.bookie.requests.long_poll import LacWatches
from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch

log = Logger()

_LENGTH = struct.Struct(">i")
_JOIN_BODY_SIZE_MAX = 2048
"""Up to this size one joined copy of a batch costs less than handing the journal twice as many parts."""

REPAIRS_TOLD_EVERY_S = 60.0
"""Of one ledger: a repair comes in dozens of batches."""


class EntryAdds:
    """Thread: reactor.

    after_add: called after each batch that reached the storage (the checkpointer looks whether a flush is due).
    """

    def __init__(self, intake: Intake, watches: LacWatches, after_add: Callable[[], None] | None) -> None:
        self._intake = intake
        self._watches = watches
        self._watched = watches.ledgers
        self._after_add = after_add
        self._repairs = Seldom(REPAIRS_TOLD_EVERY_S)
        self._storage = intake.storage
        self._mode = intake.mode
        self._meters = intake.meters

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
        if not self._intake.accepting or self._mode.read_only or self._storage.is_full:
            return start
        stop = self._storage.add_plain(batches, start, self._intake.gates.shut)
        if stop == start:
            return start
        begun_s = self._intake.clock.seconds()
        group = batches if stop - start == len(batches) else batches[start:stop]
        self._intake.lacs.raise_all(group)
        for journal, share in self._by_journal(group):
            refuse = partial(self._refuse_add, share, partial(reply, share))
            self._intake.in_flight += 1
            self._intake.decide(partial(self._journal_plain, journal, share, begun_s, reply), refuse)
        if self._watched:
            self._watches.on_adds(group)
        if self._after_add is not None:
            self._after_add()
        return stop

    def _by_journal(self, batches: Sequence[AddBatch]) -> Iterable[tuple[EntryJournal, Sequence[AddBatch]]]:
        journals = self._intake.journals
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
        journal.append(records, size, partial(self._intake.synced, on_durable), len(bodies))

    def add(self, batch: AddBatch, reply: Callable[[Status], None]) -> None:
        """Store a batch of one ledger; one answer for all of it, OK only after its sync, or its write if deferred.

        READ_ONLY, UNAUTHORIZED (wrong key), FENCED, BAD_REQUEST (an id that holds another body: I-69; ids out of
        range), TOO_MANY_REQUESTS (queues full) and IO_ERROR mean that nothing of the batch is acknowledged.
        """
        if not self._intake.accepting:
            return
        self._intake.in_flight += 1
        begun_s = self._intake.clock.seconds()
        refuse = partial(self._refuse_add, (batch,), reply)
        run = partial(self._apply_add, batch, begun_s, reply, refuse, None)
        if not self._intake.gates.is_shut(batch.ledger_id) and self._storage.is_loaded(batch.ledger_id):
            self._intake.decide(run, refuse)
        else:
            self._intake.decide_loaded(batch.ledger_id, sum(map(len, batch.bodies)), run, refuse)

    def _refuse_add(self, batches: Sequence[AddBatch], reply: Callable[[Status], None], status: Status) -> None:
        if status is Status.READ_ONLY or status is Status.TOO_MANY_REQUESTS:
            self._meters.adds_rejected.add(sum([len(batch.entry_ids) for batch in batches]))
        self._intake.answer(reply, status)

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
            replaceable = self._storage.damaged(ledger_id, entry_ids) if batch.recovery else ()
            verdict = sort_out(entry_ids, bodies, stored, replaceable)
            if verdict.differing or verdict.unknown:
                self._refuse_conflict(batch, verdict.differing, refuse)
                return
            entry_ids, bodies = verdict.new_ids, verdict.new_bodies
            if replaceable and (count := self._repairs.count(ledger_id, begun_s, len(replaceable))):
                log.info(
                    "Replacing damaged copies in ledger {ledger_id}: {count} since the last line about it",
                    ledger_id=ledger_id,
                    count=count,
                )
        if entry_ids:
            self._storage.add(ledger_id, entry_ids, bodies)  # first: what it refuses creates no ledger
        if self._storage.master_key(ledger_id) is None:
            self._storage.set_master_key(ledger_id, batch.master_key)
        if self._storage.tombstone(ledger_id) is not None:
            self._storage.set_fenced(ledger_id)  # the copy that was here was of a closed ledger (I-24, I-66)
        self._intake.lacs.raise_to(ledger_id, batch.last_confirmed)
        # Entries that were held already are journaled again: their first record may be unsynced, or was never queued.
        records, size = _framed(batch.bodies)
        on_durable = partial(self._add_durable, len(batch.bodies), begun_s, size, reply, batch.recovery)
        deferred = batch.deferred_sync and not batch.recovery
        self._intake.append(
            ledger_id, batch.master_key, records, size, on_durable, len(batch.bodies), deferred=deferred
        )
        if self._watched:
            self._watches.on_lac(ledger_id, batch.last_confirmed)
        if self._after_add is not None:
            self._after_add()

    def _add_verdict(self, batch: AddBatch) -> Status:
        mode = self._mode
        if mode.read_only and not ((batch.high_priority or batch.recovery) and mode.priority_writes_allowed):
            return Status.READ_ONLY
        key = self._intake.access.check_key(batch.ledger_id, batch.master_key)
        if key is KeyCheck.WRONG:
            return Status.UNAUTHORIZED
        if key is KeyCheck.GONE or (key is KeyCheck.MOVED and not batch.recovery):
            return Status.FENCED
        if not batch.recovery and self._intake.access.fence_state(batch.ledger_id) is not FenceState.ABSENT:
            return Status.FENCED
        return Status.TOO_MANY_REQUESTS if self._storage.is_full else Status.OK

    def _fetch_stored(self, batch: AddBatch, begun_s: float, reply: Callable[[Status], None], refuse: Refuse) -> None:
        """Some ids may be held already and only the disk knows: ask it, then decide the whole batch afresh (I-25).

        Adds of the ledger queue meanwhile, so what the disk said still holds when the batch is decided.
        """
        size = sum(map(len, batch.bodies))

        def resume(stored: Results) -> None:
            self._intake.decide(partial(self._apply_add, batch, begun_s, reply, refuse, stored), refuse)

        self._intake.gates.fetch(
            batch.ledger_id,
            partial(self._storage.read_cold, batch.ledger_id, batch.entry_ids),
            resume,
            Waiting(lambda: None, refuse, size),
        )

    def _refuse_conflict(self, batch: AddBatch, differing: Sequence[int], refuse: Refuse) -> None:
        """Two bodies for one entry id are split brain: keep the first, say so loudly (I-69)."""
        if differing and self._intake.log_limit.admits(f"refused add to ledger {batch.ledger_id}"):
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
        cell.observe((self._intake.clock.seconds() - begun_s) * 1000, count)
        meters.write_bytes.add(size)
        self._intake.answer(reply, Status.OK)


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
