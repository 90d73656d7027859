"""Recovery of a ledger whose writer is gone or must be stopped: mark, fence, find the tail, write it back, close.

    state       waits for                         goes to
    START       start()                           MARKING
    MARKING     the metadata: IN_RECOVERY         FENCING all E bookies of the last fragment as just read (I-21)
                              CLOSED              FINISHED: somebody closed it already
    FENCING     answers that cover the ensemble   READING after the highest LAC told, or the fragment before (I-32)
                coverage impossible               ABORTED (I-28)
    READING     bodies, in order                  READING: write each back to Qa of its write set; the next batch
                an entry that is ABSENT, and all  CLOSING, or MEASURING when nothing was found and the length of the
                  before it written back            ledger up to the LAC is not known
                an entry that is UNKNOWN          ABORTED (I-30)
                a write-back that cannot reach Qa ABORTED (I-37)
    MEASURING   the entry at the LAC, or failure  CLOSING
    CLOSING     the closing compare-and-set       FINISHED with the metadata it left, ours or another recoverer's (I-39)
    any         abort()                           ABORTED: the ledger stays IN_RECOVERY, nothing was committed (I-36)

Answers that come in a later state change nothing. Reads go to the ensemble of the metadata that was marked (I-35);
write-backs go to a working copy of it, whose changes stay here until the closing compare-and-set (I-36).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.errors import BookKeeperError, RecoveryFailed, WrongPassword
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState, Status
from bookkeeper.protocol.add_decisions import Decision
from bookkeeper.protocol.adds import AddWindow
from bookkeeper.protocol.reads import (
    DIGEST_MISMATCH,
    Outcome,
    Prefer,
    RangeRead,
    ReadMode,
    ReadRequest,
    Speculation,
    as_answer,
)
from bookkeeper.protocol.schedule import Coverage, spread

READ_BATCH_DEFAULT = 100
"""Entries read at once. Apache's default is 1; as what follows the first gap is discarded (I-34), more is as safe."""

BYTES_MAX_DEFAULT = 64 * 1024 * 1024
"""Payload bytes on their way back to the bookies."""


class RecoveryState(enum.Enum):
    """Where a recovery is; the module's table says what it waits for."""

    START = enum.auto()
    MARKING = enum.auto()
    FENCING = enum.auto()
    READING = enum.auto()
    MEASURING = enum.auto()
    CLOSING = enum.auto()
    FINISHED = enum.auto()
    ABORTED = enum.auto()


_NEXT_STATES: dict[RecoveryState, frozenset[RecoveryState]] = {
    RecoveryState.START: frozenset({RecoveryState.MARKING, RecoveryState.ABORTED}),
    RecoveryState.MARKING: frozenset({RecoveryState.FENCING, RecoveryState.FINISHED, RecoveryState.ABORTED}),
    RecoveryState.FENCING: frozenset({RecoveryState.READING, RecoveryState.ABORTED}),
    RecoveryState.READING: frozenset({RecoveryState.MEASURING, RecoveryState.CLOSING, RecoveryState.ABORTED}),
    RecoveryState.MEASURING: frozenset({RecoveryState.CLOSING, RecoveryState.ABORTED}),
    RecoveryState.CLOSING: frozenset({RecoveryState.FINISHED, RecoveryState.ABORTED}),
    RecoveryState.FINISHED: frozenset(),
    RecoveryState.ABORTED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Recovered:
    """One entry of the tail. length: its own length field, payload included."""

    entry_id: int
    payload: bytes
    length: int


@dataclass(frozen=True, slots=True)
class MarkInRecovery:
    """Compare-and-set `transitions.start_recovery`, then `on_marked`."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Send each of these bookies a fencing read of the last entry."""

    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Send these reads, all of them fencing (I-29)."""

    requests: list[ReadRequest]


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Send recovery adds: to ensemble index i the entries `targets[i]`, ascending, stamped with `lac` (I-38).

    The length before an entry is its length minus the size of its payload.
    """

    entries: list[Recovered]
    targets: dict[int, Sequence[int]]
    ensemble: tuple[BookieId, ...]
    lac: EntryId


@dataclass(frozen=True, slots=True)
class ReplaceBookies:
    """Find bookies for these indexes, outside `ensemble` (I-10), without touching metadata; then `on_replaced`."""

    failed: dict[int, BookieId]
    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Compare-and-set `transitions.close_by_recovery` with these values, then `on_closed`."""

    last_entry_id: EntryId
    length: int
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The ledger is closed, as `metadata` says."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Aborted:
    """The recovery failed and changed nothing but the state IN_RECOVERY; another attempt may succeed."""

    error: BookKeeperError


Action = MarkInRecovery | Fence | Read | WriteBack | ReplaceBookies | Close | Finished | Aborted


class Recovery:
    """One attempt to recover one ledger. Events in, actions out; owns no connection, no metadata and no clock.

    Bounds: `bytes_max` payload bytes written back and not yet answered, plus one batch read ahead.
    read_batch_max: entries read at once; fewer when entries turn out large.
    """

    def __init__(
        self,
        ledger_id: int,
        *,
        read_batch_max: int = READ_BATCH_DEFAULT,
        bytes_max: int = BYTES_MAX_DEFAULT,
        prefer: Prefer | None = None,
        speculation: Speculation | None = None,
        response_timeout_s: float | None = None,
    ) -> None:
        self._ledger_id = ledger_id
        self._read_batch_max = read_batch_max
        self._bytes_max = bytes_max
        self._prefer = prefer
        self._speculation = speculation
        self._response_timeout_s = response_timeout_s
        self._state = RecoveryState.START

        # From MARKING on:
        self._snapshot: LedgerMetadata | None = None  # as marked; all reads use its ensembles (I-35)
        self._coverage: Coverage | None = None
        self._fence_answers: dict[str, object] = {}
        self._refusals: Coverage | None = None  # failed: bookies that hold another key
        # The answer with the highest LAC: (LAC, id of the entry that carried it, its length field).
        self._told = (-1, -1, 0)

        # From FENCING on:
        self._window: AddWindow | None = None
        self._read: RangeRead[Recovered] | None = None
        self._batch = min(16, read_batch_max)
        # start <= acknowledged + 1 <= pushed + 1 <= next_entry <= end; found = [pushed + 1, next_entry)
        self._next_entry = 0  # the first entry not found yet
        self._end: int | None = None  # the first entry that is ABSENT: the ledger ends before it
        self._found: deque[Recovered] = deque()
        self._written: dict[int, Recovered] = {}  # written back and not acknowledged: may have to be sent again
        self._last_found: Recovered | None = None
        self._replacing: frozenset[int] = frozenset()
        self._fragments: dict[int, tuple[BookieId, ...]] = {}  # private until the close (I-36)

    @property
    def state(self) -> RecoveryState:
        """Where the recovery is."""
        return self._state

    # --- metadata and fencing ---------------------------------------------------------------------------------------

    def start(self) -> list[Action]:
        """Begin."""
        self._to(RecoveryState.MARKING)
        return [MarkInRecovery()]

    def on_marked(self, metadata: LedgerMetadata, now: float) -> list[Action]:
        """The metadata after the compare-and-set: IN_RECOVERY, or CLOSED by somebody else."""
        if self._state is not RecoveryState.MARKING:
            return []
        if metadata.state is LedgerState.CLOSED:
            self._to(RecoveryState.FINISHED)
            return [Finished(metadata)]
        assert metadata.state is LedgerState.IN_RECOVERY, "fencing before the ledger is marked (I-21)"
        self._snapshot = metadata
        self._coverage = Coverage(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._refusals = Coverage(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._to(RecoveryState.FENCING)
        return [Fence(metadata.last_fragment.ensemble)]

    def on_fence_body(self, bookie_id: BookieId, *, entry_id: int, lac: int, length: int, now: float) -> list[Action]:
        """`bookie_id` is fenced and its last entry, digest verified (I-33), carries this LAC and length."""
        if self._state is RecoveryState.FENCING:
            self._told = max(self._told, (lac, entry_id, length))
        return self._fenced(bookie_id, f"LAC {lac}", now)

    def on_fence_negative(self, bookie_id: BookieId, now: float) -> list[Action]:
        """`bookie_id` is fenced and holds no entry of the ledger."""
        return self._fenced(bookie_id, Status.NO_ENTRY.value, now)

    def on_fence_corrupt(self, bookie_id: BookieId, now: float) -> list[Action]:
        """`bookie_id` is fenced; its last entry fails its digest, so no LAC is learnt from it (I-02, I-33)."""
        return self._fenced(bookie_id, DIGEST_MISMATCH, now)

    def on_fence_unknown(self, bookie_id: BookieId, why: object, now: float) -> list[Action]:
        """Note that `bookie_id` gave no answer that says it is fenced.

        A bookie that refuses the key counts as unknown: a stranger may have claimed the id there. If the refusals
        alone make the recovery impossible, the error is WrongPassword.
        """
        if self._state is not RecoveryState.FENCING:
            return []
        snapshot, coverage = self._marked()
        self._fence_answers[bookie_id] = as_answer(why)
        index = snapshot.last_fragment.ensemble.index(bookie_id)
        assert self._refusals is not None, "only after on_marked"
        if why is Status.UNAUTHORIZED:
            self._refusals.failed(index)
        coverage.failed(index)
        if self._refusals.impossible:
            message = f"bookie {bookie_id} refuses to fence ledger {self._ledger_id}: the password is not the writer's"
            return self.abort(WrongPassword(message, ledger_id=self._ledger_id, answers=self._fence_answers))
        if coverage.impossible:
            return self._give_up(
                "too few bookies of its last fragment can be fenced; try again when they are back", self._fence_answers
            )
        return []

    def _fenced(self, bookie_id: BookieId, what: str, now: float) -> list[Action]:
        if self._state is not RecoveryState.FENCING:
            return []
        snapshot, coverage = self._marked()
        self._fence_answers[bookie_id] = what
        coverage.answered(snapshot.last_fragment.ensemble.index(bookie_id))
        if not coverage.covered:
            return []
        last = snapshot.last_fragment
        start = max(self._told[0], last.first_entry_id - 1) + 1
        self._next_entry = start
        self._window = AddWindow(
            ledger_id=self._ledger_id,
            ensemble=last.ensemble,
            write_quorum=snapshot.write_quorum,
            ack_quorum=snapshot.ack_quorum,
            entries_max=4 * self._read_batch_max,
            bytes_max=self._bytes_max,
            next_entry_id=start,
            frozen_lac=start - 1,
            response_timeout_s=self._response_timeout_s,
        )
        self._to(RecoveryState.READING)
        return self._go_on(now)

    # --- reading ----------------------------------------------------------------------------------------------------

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], values: Sequence[Recovered | None], now: float
    ) -> list[Action]:
        """`bookie_id` delivered these entries; None where digest or ids are wrong."""
        if self._read is None:
            return []
        checked = [value if value is None or value.length >= len(value.payload) else None for value in values]
        return self._after_read(self._read.on_bodies(bookie_id, entry_ids, checked), now)

    def on_negative(self, bookie_id: BookieId, entry_ids: Sequence[int], status: Status, now: float) -> list[Action]:
        """`bookie_id` never held these entries, and being fenced it never will."""
        if self._read is None:
            return []
        return self._after_read(self._read.on_negative(bookie_id, entry_ids, status), now)

    def on_unknown(self, bookie_id: BookieId, entry_ids: Sequence[int], why: object, now: float) -> list[Action]:
        """Nothing is known of these entries at `bookie_id`."""
        if self._read is None:
            return []
        return self._after_read(self._read.on_unknown(bookie_id, entry_ids, why), now)

    def _after_read(self, requests: list[ReadRequest], now: float) -> list[Action]:
        actions: list[Action] = [Read(requests)] if requests else []
        read = self._read
        assert read is not None
        if self._state is RecoveryState.MEASURING:
            return actions + (self._measured(read) if read.done else [])
        for entry in read.take():
            assert entry.entry_id == self._next_entry, "the tail is written back in order (I-34)"
            self._next_entry += 1
            self._found.append(entry)
            self._last_found = entry
        outcome = read.outcome(read.taken_until)
        if outcome is Outcome.UNKNOWN:
            error = read.error()
            answers = error.answers if error is not None else {}
            why = f"nobody can tell whether entry {self._next_entry} exists; try again when its bookies are back"
            return self._give_up(why, answers)
        if outcome is Outcome.ABSENT:
            # Whatever lies behind the gap was never acknowledged in order, and is discarded (I-34).
            self._end = self._next_entry
            self._read = None
            return self._go_on(now)
        if read.done:
            self._read = None
        return actions + self._go_on(now)

    def _read_on(self, now: float) -> list[Action]:
        """The next batch, once the one before is found and mostly written back."""
        snapshot, _ = self._marked()
        if self._last_found is not None:
            sizes = [len(entry.payload) for entry in self._written.values()]
            fitting = self._bytes_max // 4 // max(*sizes, len(self._last_found.payload), 1)
            self._batch = max(1, min(2 * self._batch, self._read_batch_max, fitting))
        self._read = RangeRead(
            snapshot,
            self._next_entry,
            self._next_entry + self._batch - 1,
            ledger_id=self._ledger_id,
            mode=ReadMode.RECOVERY,
            prefer=self._prefer,
            speculation=self._speculation,
        )
        return [Read(self._read.start(now))]

    # --- writing back -----------------------------------------------------------------------------------------------

    def on_added(self, index: int, bookie_id: BookieId, entry_ids: Sequence[int], now: float) -> list[Action]:
        """`bookie_id` at ensemble index `index` stored these entries."""
        if self._state is not RecoveryState.READING or self._window is None:
            return []
        self._acknowledged(self._window.on_responses(index, bookie_id, entry_ids))
        return self._go_on(now)

    def on_add_failed(
        self,
        index: int,
        bookie_id: BookieId,
        status: Status | None,
        entry_ids: Sequence[int] | None,
        now: float,
    ) -> list[Action]:
        """`bookie_id` did not store these entries (None: all outstanding there); status None: no answer."""
        if self._state is not RecoveryState.READING or self._window is None:
            return []
        # Enough bookies accepted the key with the fence; on a bookie that refuses it now, a stranger claimed the id.
        failure = None if status is Status.UNAUTHORIZED else status
        decision = self._window.on_failure(index, bookie_id, failure, entry_ids)
        if decision is Decision.FATAL:
            error = self._window.error
            return self._give_up(f"its tail cannot be written back: {error}", {})
        if decision is Decision.CHANGE:
            return self._replace()
        return self._go_on(now)

    def on_replaced(self, replacements: Mapping[int, BookieId], now: float) -> list[Action]:
        """Bookies for some of the indexes asked for; those without one are done without if Qa allows it (I-28a)."""
        window = self._window
        if self._state is not RecoveryState.READING or window is None or not window.changing:
            return []
        actions: list[Action] = []
        without = self._replacing - replacements.keys()
        if replacements:
            ensemble = list(window.ensemble)
            for index, bookie_id in replacements.items():
                assert index in window.failed, f"index {index} did not fail"
                ensemble[index] = bookie_id
            first = window.last_acknowledged + 1
            result = window.end_change(ensemble, now)
            self._fragments[first] = window.ensemble
            if result.resend:
                actions.append(self._write_back(result.resend))
            self._acknowledged(result.acknowledged)
        if without:
            self._acknowledged(window.abandon(without))
        if window.failed and not self._hopeless():
            return actions + self._replace()
        return actions + self._go_on(now)

    def _replace(self) -> list[Action]:
        assert self._window is not None
        change = self._window.begin_change()
        self._replacing = frozenset(change.failed)
        return [ReplaceBookies(change.failed, change.ensemble)]

    def _write_found(self, now: float) -> list[Action]:
        """Write back what was found, as far as the window takes it."""
        window = self._window
        assert window is not None
        sizes = [len(entry.payload) for entry in self._found]
        count = window.accepts(sizes) if sizes else 0
        if not count:
            return []
        entries = [self._found.popleft() for _ in range(count)]
        first = window.push(sizes[:count], now)
        assert first == entries[0].entry_id, "the tail is written back in order (I-34)"
        for entry in entries:
            self._written[entry.entry_id] = entry
        held = spread(first, first + count - 1, len(window.ensemble), self._marked()[0].write_quorum)
        targets = {index: ids for index, ids in enumerate(held) if ids and index not in window.abandoned}
        return [self._write_back(targets)]

    def _write_back(self, targets: Mapping[int, Sequence[int]]) -> WriteBack:
        window = self._window
        assert window is not None
        wanted = sorted({entry_id for entry_ids in targets.values() for entry_id in entry_ids})
        return WriteBack([self._written[entry_id] for entry_id in wanted], dict(targets), window.ensemble, window.lac)

    def _acknowledged(self, entry_ids: range) -> None:
        for entry_id in entry_ids:
            del self._written[entry_id]

    def _hopeless(self) -> bool:
        return self._window is not None and self._window.stuck is not None

    # --- the way on -------------------------------------------------------------------------------------------------

    def _go_on(self, now: float) -> list[Action]:
        """READING: write back, read on, or finish; whatever is possible now."""
        window = self._window
        assert window is not None
        if window.changing:
            return []
        actions = self._write_found(now)
        if self._hopeless():
            return self._give_up(
                f"entry {window.stuck} cannot be written back to {self._marked()[0].ack_quorum} bookies and no "
                "replacement is registered; start another bookie",
                {},
            )
        if self._found or self._read is not None:
            return actions
        if self._end is None:
            if len(self._written) <= self._batch:
                actions += self._read_on(now)
        elif not window.unacknowledged_count:
            actions += self._finish(now)
        return actions

    def _finish(self, now: float) -> list[Action]:
        """Everything found is on Qa bookies (I-37): close, once the length is known."""
        assert self._end is not None
        last = self._end - 1
        _, told_entry, told_length = self._told
        if self._last_found is not None:
            return self._close(self._last_found.length)
        if last == -1:
            return self._close(0)
        if told_entry == last:
            return self._close(told_length)
        # Differs from Apache: the entry that carried the LAC came after it, and its length may count more than the
        # ledger will hold. The entry at the LAC was acknowledged; its own length is the one to close with.
        self._to(RecoveryState.MEASURING)
        self._read = RangeRead(
            self._marked()[0],
            last,
            last,
            ledger_id=self._ledger_id,
            prefer=self._prefer,
            speculation=self._speculation,
        )
        return [Read(self._read.start(now))]

    def _measured(self, read: RangeRead[Recovered]) -> list[Action]:
        """The length, or the best guess: the end is certain, and an unreadable entry must not keep the ledger open."""
        found = read.take()
        return self._close(found[0].length if found else self._told[2])

    def _close(self, length: int) -> list[Action]:
        assert self._end is not None
        self._read = None
        self._to(RecoveryState.CLOSING)
        fragments = tuple(Fragment(EntryId(first), self._fragments[first]) for first in sorted(self._fragments))
        return [Close(EntryId(self._end - 1), length, fragments)]

    def on_closed(self, metadata: LedgerMetadata) -> list[Action]:
        """The metadata after the closing compare-and-set; CLOSED, by us or by another recoverer."""
        if self._state is not RecoveryState.CLOSING:
            return []
        assert metadata.is_closed, "a recovery ends with a closed ledger"
        self._to(RecoveryState.FINISHED)
        return [Finished(metadata)]

    def abort(self, error: BookKeeperError) -> list[Action]:
        """Give up; private ensembles are forgotten (I-36). Nothing happens after the end."""
        if self._state in (RecoveryState.FINISHED, RecoveryState.ABORTED):
            return []
        self._to(RecoveryState.ABORTED)
        self._read = None
        self._found.clear()
        self._written.clear()
        self._fragments.clear()
        if self._window is not None:
            self._window.fail(error)
        return [Aborted(error)]

    # --- time -------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When to call `on_time`; None while nothing is timed."""
        deadlines = []
        if self._read is not None:
            deadlines.append(self._read.next_speculation)
        if self._state is RecoveryState.READING and self._window is not None:
            deadlines.append(self._window.next_deadline())
        return min((moment for moment in deadlines if moment is not None), default=None)

    def on_time(self, now: float) -> list[Action]:
        """Ask further replicas for reads that take long; give up on bookies that are late with adds."""
        actions: list[Action] = []
        if self._read is not None:
            requests = self._read.speculative_due(now)
            if requests:
                actions.append(Read(requests))
        if self._state is RecoveryState.READING and self._window is not None:
            for late in self._window.overdue(now):
                actions += self.on_add_failed(late.index, late.bookie_id, None, late.entry_ids, now)
        return actions

    # --- inside -----------------------------------------------------------------------------------------------------

    def _to(self, state: RecoveryState) -> None:
        assert state in _NEXT_STATES[self._state], f"{self._state.name} -> {state.name}"
        self._state = state

    def _marked(self) -> tuple[LedgerMetadata, Coverage]:
        assert self._snapshot is not None, "only after on_marked"
        assert self._coverage is not None, "only after on_marked"
        return self._snapshot, self._coverage

    def _give_up(self, why: str, answers: Mapping[str, object]) -> list[Action]:
        message = f"ledger {self._ledger_id} stays in recovery: {why}"
        return self.abort(RecoveryFailed(message, ledger_id=self._ledger_id, answers=answers))
