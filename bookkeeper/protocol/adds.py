"""Entries on their way to their write sets: acknowledged in order, once Qa members of the committed ensemble hold them.

The decisions of the add path; where each entry stands is kept in `add_rings`, when it was sent in `add_deadlines`.

A change of the ensemble holds acknowledgements back from `begin_change` to `end_change`; then every entry that was not
acknowledged is judged again under the new ensemble, also those that were complete but queued (I-05).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from bookkeeper.errors import (
    AddFailed,
    BookKeeperError,
    DuplicateEntry,
    InvalidArgument,
    LedgerFencedOff,
    UnauthorizedAccess,
)
from bookkeeper.model import BookieId, EntryId, Status, check_quorum
from bookkeeper.protocol.add_deadlines import ALL_INDEXES, AddDeadlines, indexes_of
from bookkeeper.protocol.add_decisions import ChangeRequest, ChangeResult, Decision, Overdue
from bookkeeper.protocol.add_rings import AddRings

CHANGES_MAX_DEFAULT = 2**31 - 1
"""Ensemble changes that one window makes (maxNumEnsembleChanges)."""


class AddWindow(AddRings):
    """The unacknowledged and unanswered adds of one ledger. Events in, decisions out; owns no connection and no clock.

    Bounds: at most `entries_max` entries and `bytes_max` payload bytes (one entry may exceed it alone) until all Qw
    bookies answered or were given up (I-14). Entry ids are given out by `push`; or the caller chooses them with
    `push_ids` (a window is used in one way only), where gaps are held back and must span less than the ring.

    frozen_lac: the LAC to stamp on every entry, whatever is acknowledged meanwhile: for recovery (I-38), and with
    deferred sync, where `move_lac` brings it on (I-07).
    """

    __slots__ = (
        "_abandoned",
        "_bit_of",
        "_bytes_max",
        "_changes_left",
        "_changing",
        "_deadlines",
        "_delayed",
        "_ensemble",
        "_entries_max",
        "_error",
        "_failed",
        "_frozen_lac",
        "_ledger_id",
        "_outstanding_taken",
    )

    def __init__(
        self,
        *,
        ledger_id: int,
        ensemble: Sequence[BookieId],
        write_quorum: int,
        ack_quorum: int,
        entries_max: int,
        bytes_max: int,
        next_entry_id: int = 0,
        length: int = 0,
        frozen_lac: int | None = None,
        delay_ensemble_change: bool = False,
        response_timeout_s: float | None = None,
        quorum_timeout_s: float | None = None,
        changes_max: int = CHANGES_MAX_DEFAULT,
    ) -> None:
        ensemble_size = len(ensemble)
        check_quorum(ensemble_size, write_quorum, ack_quorum)
        if entries_max < 1 or bytes_max < 1:
            raise InvalidArgument(
                f"a window of {entries_max} entries and {bytes_max} bytes holds nothing; give at least 1"
            )
        super().__init__(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            entries_max=entries_max,
            next_entry_id=next_entry_id,
            length=length,
        )
        self._ledger_id = ledger_id
        self._ensemble = _distinct(ensemble)
        self._bit_of = _bits_of(self._ensemble)
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._frozen_lac = frozen_lac
        self._delayed = delay_ensemble_change
        self._changes_left = changes_max

        self._failed: dict[int, BookieId] = {}  # subset of enumerate(ensemble): to be replaced
        self._abandoned = 0  # bits of the indexes that get nothing any more (I-28a)
        self._changing = False
        self._error: BookKeeperError | None = None  # set once; nothing is acknowledged after that (I-08)
        self._outstanding_taken = False
        self._deadlines = AddDeadlines(response_timeout_s, quorum_timeout_s)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that entries go to now."""
        return self._ensemble

    @property
    def lac(self) -> EntryId:
        """The LAC to stamp on entries sent now (I-07, I-38)."""
        return EntryId(self._head - 1 if self._frozen_lac is None else self._frozen_lac)

    def move_lac(self, lac: EntryId) -> None:
        """Everything up to here is durable: stamp this LAC from now on, it does not follow the acknowledgements."""
        assert self._frozen_lac is not None, "this LAC goes on by itself"
        assert self._frozen_lac <= lac < self._head, "the LAC goes on, up to what is acknowledged (I-07)"
        self._frozen_lac = lac

    @property
    def changing(self) -> bool:
        """True between `begin_change` and its end."""
        return self._changing

    @property
    def failed(self) -> Mapping[int, BookieId]:
        """Indexes whose bookie failed and has not been replaced."""
        return MappingProxyType(self._failed)

    @property
    def oldest_owed(self) -> EntryId:
        """The oldest entry of which a copy is not accounted for; the next entry's id when there is none."""
        return EntryId(self._tail)

    @property
    def has_failed_member(self) -> bool:
        """Whether `failed` names any."""
        return bool(self._failed)

    @property
    def abandoned(self) -> frozenset[int]:
        """Indexes that get nothing any more."""
        return frozenset(indexes_of(self._abandoned))

    @property
    def error(self) -> BookKeeperError | None:
        """Why the window failed for good; None while it works."""
        return self._error

    # --- pushing ----------------------------------------------------------------------------------------------------

    def accepts(self, sizes: Sequence[int]) -> int:
        """How many of the leading entries of these sizes fit now; an empty window always takes one."""
        if self._error is not None:
            return 0
        room_entries = self._entries_max - self._occupied_entries
        room_bytes = self._bytes_max - self._occupied_bytes
        if len(sizes) <= room_entries and sum(sizes) <= room_bytes:
            return len(sizes)
        if not self._occupied_entries and sizes[0] > self._bytes_max:
            return 1
        count = 0
        for size in sizes[:room_entries]:
            room_bytes -= size
            if room_bytes < 0:
                break
            count += 1
        return count

    def push(self, sizes: Sequence[int], now: float) -> EntryId:
        """Take entries of these payload sizes (as many as `accepts` said) and return the id of the first (I-03)."""
        first = self._next
        count = len(sizes)
        assert count <= self.accepts(sizes), "push without asking accepts"
        if not count:
            return EntryId(first)
        self._reserve(first + count)
        residue = first % len(self._ensemble)
        self._put(self._waits, first, self._write_set_bits[residue : residue + count])
        self._put(self._sizes, first, sizes)
        self._next = first + count
        self._count_in(count, sum(sizes))
        self._note_sent(first, first + count - 1, now)
        if self._abandoned:
            self._give_up(range(first, first + count), self._abandoned)
        return EntryId(first)

    def push_one(self, size: int, now: float) -> tuple[int, int, int]:
        """Take one entry (`accepts` said so): `push` for the many ledgers that get their entries one by one.

        Returns its id, the LAC to stamp on it and the ledger's length with it.
        """
        entry_id = self._next
        assert self._error is None, "push into a failed window"
        if entry_id - self._tail >= len(self._waits):
            self._reserve(entry_id + 1)
        slot = entry_id & self._slot_mask
        self._waits[slot] = self._write_set_bits[entry_id % self._ensemble_size]
        self._sizes[slot] = size
        self._next = entry_id + 1
        self._occupied_entries += 1
        self._occupied_bytes += size
        self._pushed_length = length = self._pushed_length + size
        deadlines = self._deadlines
        if deadlines.timed:
            deadlines.on_pushed(entry_id, now, self._tail, self._head)
        if self._abandoned:
            self._give_up((entry_id,), self._abandoned)
        return entry_id, self._head - 1 if self._frozen_lac is None else self._frozen_lac, length

    def accepts_ids(self, entry_ids: Sequence[int], sizes: Sequence[int]) -> int:
        """How many of these leading entries fit now. An id too far above the oldest entry has to wait for the gap."""
        until = self._tail + self._capacity_max
        fitting = 0
        for entry_id in entry_ids:
            if entry_id >= until:
                break
            fitting += 1
        return self.accepts(sizes[:fitting]) if fitting else 0

    def push_ids(self, entry_ids: Sequence[int], sizes: Sequence[int], now: float) -> None:
        """Take entries whose ids the caller chose. Acknowledgements still go by consecutive ids, gaps hold them back.

        Raises DuplicateEntry for an id used before, InvalidArgument for a negative one; nothing is taken then.
        """
        assert len(entry_ids) <= self.accepts_ids(entry_ids, sizes), "push_ids without asking accepts_ids"
        if entry_ids:
            self._reserve(max(entry_ids) + 1)
        waits, mask, ensemble_size = self._waits, self._slot_mask, len(self._ensemble)
        seen: set[int] = set()
        for entry_id in entry_ids:
            if entry_id < 0:
                raise InvalidArgument(f"ledger {self._ledger_id}: entry id {entry_id} is negative; ids start at 0")
            pushed = entry_id < self._next and waits[entry_id & mask] != self._free
            if entry_id < self._head or pushed or entry_id in seen:
                raise DuplicateEntry(
                    f"ledger {self._ledger_id}: entry id {entry_id} was used already; choose one above "
                    f"{self._head - 1} that was not added yet",
                    ledger_id=self._ledger_id,
                    entry_id=entry_id,
                )
            seen.add(entry_id)
        for entry_id, size in zip(entry_ids, sizes, strict=True):
            waits[entry_id & mask] = self._write_set_bits[entry_id % ensemble_size]
            self._sizes[entry_id & mask] = size
            self._note_sent(entry_id, entry_id, now)
        if entry_ids:
            self._next = max(self._next, max(entry_ids) + 1)
        self._count_in(len(entry_ids), sum(sizes))
        if self._abandoned:
            self._give_up(entry_ids, self._abandoned)

    # --- answers ----------------------------------------------------------------------------------------------------

    def on_responses(self, index: int, bookie_id: BookieId, entry_ids: Sequence[int]) -> range:
        """`bookie_id` at ensemble index `index` stored these entries; return what is acknowledged by it, in order.

        Answers of a bookie that is no longer at that index do not count (I-05), nor do repeated ones, nor ids that are
        not in the window any more.
        """
        if self._error is not None or self._ensemble[index] != bookie_id:
            return range(self._head, self._head)
        waits, mask, tail, until = self._waits, self._slot_mask, self._tail, self._next
        bit = 1 << index
        for entry_id in entry_ids:
            if tail <= entry_id < until:
                slot = entry_id & mask
                missing = waits[slot]
                if missing & bit:
                    waits[slot] = missing ^ bit
        return self._advance()

    def on_response(self, bookie_id: BookieId, entry_id: int) -> range | None:
        """`on_responses` for one entry; None when nothing is acknowledged by it."""
        bit = self._bit_of.get(bookie_id, 0)  # 0: no longer in the ensemble (I-05)
        if not self._tail <= entry_id < self._next or self._error is not None:
            return None
        slot = entry_id & self._slot_mask
        missing = self._waits[slot]
        if not missing & bit:
            return None
        self._waits[slot] = missing = missing ^ bit
        head = self._head
        if not missing and entry_id == head == self._tail == self._next - 1 and not self._changing:
            # The only entry of the window, and everybody has answered: the ring is empty again.
            self._waits[slot] = self._free
            if entry_id < self._lost_until:
                self._lost[slot] = 0
            self._tail = self._head = entry_id + 1
            self._occupied_entries = self._occupied_bytes = 0
            self._acknowledged_length = self._pushed_length
            return range(entry_id, entry_id + 1)
        if entry_id != head and entry_id != self._tail:
            return None  # neither end of the window moves
        return self._advance() or None

    def on_failure(
        self, index: int, bookie_id: BookieId, status: Status | None, entry_ids: Sequence[int] | None
    ) -> Decision:
        """`bookie_id` at `index` did not store these entries, or did not say so.

        status: None when the bookie is unavailable or too late. entry_ids: None for everything outstanding there.
        """
        if self._error is not None or self._ensemble[index] != bookie_id:
            return Decision.IGNORED
        if status is Status.FENCED or status is Status.UNAUTHORIZED:
            self._error = self._verdict(bookie_id, status)
            return Decision.FATAL
        bit = 1 << index
        self._give_up(range(self._tail, self._next) if entry_ids is None else entry_ids, bit)
        self._release()
        if self._abandoned & bit:
            return Decision.NOTED
        self._failed[index] = bookie_id
        if self._changing:
            return Decision.MERGED
        if self._delayed and status is not Status.READ_ONLY and self.stuck is None:
            return Decision.NOTED
        if self._out_of_changes(bookie_id):
            return Decision.FATAL
        return Decision.CHANGE

    def fail(self, error: BookKeeperError) -> Sequence[int]:
        """End the window for good (I-08): return the ids that will never be acknowledged; a second call returns none.

        The outcome of those adds is open (I-41). The first error stays in `error`.
        """
        self._error = self._error or error
        if self._outstanding_taken:
            return ()
        self._outstanding_taken = True
        outstanding = range(self._head, self._next)
        gaps = any(self._waits[entry_id & self._slot_mask] == self._free for entry_id in outstanding)
        self._occupied_entries = self._occupied_bytes = 0
        self._deadlines.clear()
        if not gaps:
            return outstanding
        return [entry_id for entry_id in outstanding if self._waits[entry_id & self._slot_mask] != self._free]

    # --- ensemble changes -------------------------------------------------------------------------------------------

    def begin_change(self) -> ChangeRequest:
        """Hold acknowledgements back and say what to replace; the new fragment starts at LAC + 1 (I-09).

        `failed` may grow until the change is committed: re-read it before each compare-and-set.
        """
        assert self._failed, "no ensemble change is due"
        assert not self._changing, "an ensemble change is running already"
        assert self._error is None, "the window has failed"
        self._changing = True
        self._changes_left -= 1
        return ChangeRequest(EntryId(self._head), dict(self._failed), self._ensemble)

    def end_change(self, ensemble: Sequence[BookieId], now: float) -> ChangeResult:
        """The last fragment's ensemble, as committed, is `ensemble`: judge all unacknowledged entries under it (I-05).

        Every index whose bookie differs starts again without answers, whoever replaced it. After an error it does
        nothing but end the change. Where more bookies failed and the limit of changes is reached, `error` is set.
        """
        assert self._changing, "no ensemble change is running"
        assert len(ensemble) == len(self._ensemble), "the ensemble size is fixed (I-01)"
        if self._error is not None:
            return ChangeResult({}, self._resume(), further=False)
        replaced = [index for index, bookie_id in enumerate(ensemble) if bookie_id != self._ensemble[index]]
        replaced_bits = sum(1 << index for index in replaced)
        self._ensemble = _distinct(ensemble)
        self._bit_of = _bits_of(self._ensemble)
        self._failed = {index: old for index, old in self._failed.items() if ensemble[index] == old}
        self._abandoned &= ~replaced_bits
        # What was acknowledged stays in the old fragment: nobody answers for it at a replaced index any more.
        self._give_up(range(self._tail, self._head), replaced_bits)
        resend = self._expect_again(replaced)
        self._deadlines.on_sent_again(self._unacknowledged_runs(), now, replaced_bits)
        acknowledged = self._resume()
        further = bool(self._failed) and not self._out_of_changes(*self._failed.values())
        return ChangeResult(resend, acknowledged, further)

    def abandon(self, indexes: Iterable[int]) -> range:
        """Go on without these indexes (I-28a): they get nothing any more and nothing is expected from them.

        Ends a running change. Returns what is acknowledged by that; if `stuck` is not None now, the entries cannot all
        reach Qa and the caller has to give up.
        """
        bits = 0
        for index in indexes:
            bits |= 1 << index
            self._failed.pop(index, None)
        self._abandoned |= bits
        self._give_up(range(self._tail, self._next), bits)
        return self._resume()

    # --- time -------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `overdue` or `quorum_overdue` should be called next; None while nothing is timed."""
        self._deadlines.forget(self._tail, self._head)
        self._shrink_at_rest()
        return self._deadlines.next

    def overdue(self, now: float) -> list[Overdue]:
        """Who has not answered what within the response timeout; each entry and bookie is reported once."""
        late = self._deadlines.overdue(now, self._tail, self._expected_of)
        self._shrink_at_rest()
        return [Overdue(index, self._ensemble[index], entry_ids) for index, entry_ids in late.items()]

    def quorum_overdue(self, now: float) -> EntryId | None:
        """The entry pushed longest ago that misses the quorum timeout; None if there is none.

        Complete entries behind a gap of `push_ids` wait for their caller and do not count.
        """
        return self._deadlines.quorum_overdue(now, self._head, self._incomplete)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _advance(self) -> range:
        """Move head over complete entries and tail over those that nobody owes an answer for."""
        head = old = self._head
        waits, mask, until, spare = self._waits, self._slot_mask, self._next, self._spare
        if not self._changing:
            if spare:
                while head < until and waits[head & mask].bit_count() <= spare:
                    head += 1
            else:
                while head < until and not waits[head & mask]:
                    head += 1
            if head != old:
                self._acknowledged_length += self._sum_sizes(old, head)
                self._head = head
        if self._tail < head:
            self._release()
        return range(old, head)

    def _resume(self) -> range:
        """End a change; acknowledge what it held back, unless the window failed meanwhile."""
        self._changing = False
        return self._advance() if self._error is None else range(self._head, self._head)

    def _note_sent(self, first: int, last: int, now: float) -> None:
        """Remember the moment for the timeouts; one batch per push."""
        if self._deadlines.timed:
            self._deadlines.forget(self._tail, self._head)
            self._deadlines.on_sent(first, last, now, ALL_INDEXES)

    def _incomplete(self, entry_id: int) -> bool:
        return self._changing or self._waits[entry_id & self._slot_mask].bit_count() > self._spare

    def _out_of_changes(self, *failed: BookieId) -> bool:
        if self._changes_left > 0:
            return False
        self._error = AddFailed(
            f"ledger {self._ledger_id}: bookie {', '.join(failed)} failed and the limit of ensemble changes is "
            "reached; write on in a new ledger",
            ledger_id=self._ledger_id,
        )
        return True

    def _verdict(self, bookie_id: BookieId, status: Status) -> BookKeeperError:
        if status is Status.FENCED:
            return LedgerFencedOff(
                f"bookie {bookie_id} says that ledger {self._ledger_id} was taken over by another client; the outcome "
                "of the pending adds is open, write on in a new ledger",
                ledger_id=self._ledger_id,
            )
        return UnauthorizedAccess(
            f"bookie {bookie_id} refuses the password of ledger {self._ledger_id}, or the connection is not "
            "authenticated; give the writer's password",
            bookie_id=bookie_id,
            ledger_id=self._ledger_id,
        )


def _distinct(ensemble: Sequence[BookieId]) -> tuple[BookieId, ...]:
    assert len(set(ensemble)) == len(ensemble), f"a bookie twice in the ensemble {ensemble} (I-10)"
    return tuple(ensemble)


@lru_cache(maxsize=1024)
def _bits_of(ensemble: tuple[BookieId, ...]) -> dict[BookieId, int]:
    """The bit of each member; one for all windows of an ensemble."""
    return {bookie_id: 1 << index for index, bookie_id in enumerate(ensemble)}
