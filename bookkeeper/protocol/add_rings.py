"""Where each entry of a window stands: three rings, indexed by the entry id. Pure bookkeeping, no policy.

No object exists per entry. The state of entry e is slot e mod capacity of three rings: the ensemble indexes whose
positive answer is missing (one bit each, so that a repeated answer counts once), those given up, and the payload size.

        tail            head             next
    ------|###############|****************|------> entry ids
          acknowledged,   not acknowledged
          answers missing

Who may answer, when head may move and what a failure leads to is decided in `adds`; this file knows ensemble indexes,
never bookies.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache

from bookkeeper.model import EntryId
from bookkeeper.protocol.schedule import write_set

CAPACITY_FIRST = 16
"""Slots of the rings of a window that is new, or at rest: most of many open handles are."""


class AddRings:
    """The rings and their three ids, with the counts over them."""

    __slots__ = (
        "_acknowledged_length",
        "_capacity_max",
        "_ensemble_size",
        "_free",
        "_head",
        "_lost",
        "_lost_until",
        "_next",
        "_occupied_bytes",
        "_occupied_entries",
        "_pushed_length",
        "_sizes",
        "_slot_mask",
        "_spare",
        "_tail",
        "_waits",
        "_write_set_bits",
    )

    def __init__(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        entries_max: int,
        next_entry_id: int,
        length: int,
    ) -> None:
        self._ensemble_size = ensemble_size
        self._spare = write_quorum - ack_quorum  # answers an entry may lack and still be complete
        self._capacity_max = 1 << (entries_max - 1).bit_length()
        # A free slot lacks more answers than any entry may, at indexes that do not exist: it is never complete.
        self._free = ((1 << (write_quorum + 1)) - 1) << ensemble_size
        # write_set_bits[e % E : e % E + n]: the write sets of n entries from e on.
        self._write_set_bits = _write_set_bits(ensemble_size, write_quorum, self._capacity_max)
        # The rings start small and grow with the entries in flight: a process may hold thousands of idle handles.
        self._waits: list[int] = []  # bits without a positive answer
        self._lost: list[int] = []  # those of them that are not expected any more
        self._sizes: list[int] = []
        self._make_rings(min(CAPACITY_FIRST, self._capacity_max))

        # 0 <= tail <= head <= next <= tail + capacity_max; head - 1 = last acknowledged, next - 1 = LAP.
        # Slots outside [tail, next) are free; inside, only ids not pushed yet (`push_ids`) are.
        self._tail = self._head = self._next = next_entry_id
        self._lost_until = next_entry_id  # no entry at or above it has a bit in _lost
        # acknowledged_length <= pushed_length; 0 <= occupied_entries <= next - tail
        self._acknowledged_length = self._pushed_length = length
        self._occupied_entries = self._occupied_bytes = 0

    @property
    def last_acknowledged(self) -> EntryId:
        """Everything up to here was acknowledged."""
        return EntryId(self._head - 1)

    @property
    def last_pushed(self) -> EntryId:
        """The highest entry id ever pushed."""
        return EntryId(self._next - 1)

    @property
    def next_entry_id(self) -> int:
        """The id that `push` gives out next."""
        return self._next

    @property
    def acknowledged_length(self) -> int:
        """Payload bytes of the acknowledged entries: the length to close with (I-12)."""
        return self._acknowledged_length

    @property
    def pushed_length(self) -> int:
        """Payload bytes of all entries pushed: the length before the next one."""
        return self._pushed_length

    @property
    def unacknowledged_count(self) -> int:
        """Ids from the first unacknowledged to the last pushed, gaps of `push_ids` included."""
        return self._next - self._head

    @property
    def occupied_entries(self) -> int:
        """Entries that some bookie may still answer, or that are not acknowledged."""
        return self._occupied_entries

    @property
    def occupied_bytes(self) -> int:
        """Their payload bytes."""
        return self._occupied_bytes

    @property
    def stuck(self) -> EntryId | None:
        """The first entry that too many bookies gave up on ever to reach Qa, unless they are replaced."""
        for entry_id in range(self._head, min(self._next, self._lost_until)):
            slot = entry_id & self._slot_mask
            if (self._waits[slot] & self._lost[slot]).bit_count() > self._spare:
                return EntryId(entry_id)
        return None

    @property
    def slot_count(self) -> int:
        """Slots of each of the three rings: 8 bytes each."""
        return len(self._waits)

    def first_gap(self, coming: Container[int] = ()) -> EntryId:
        """The first id neither pushed nor among `coming`: what `push_ids` took behind it is held back for ever."""
        entry_id = self._head
        while entry_id in coming or (entry_id < self._next and self._waits[entry_id & self._slot_mask] != self._free):
            entry_id += 1
        return EntryId(entry_id)

    def expects(self, index: int) -> bool:
        """Whether any answer of this index is waited for; if none is, losing its connection is no failure."""
        bit = 1 << index
        return any(self._expected_of(entry_id) & bit for entry_id in range(self._tail, self._next))

    # --- inside

    def _release(self) -> None:
        """Free the slots of acknowledged entries that all Qw answered or gave up (I-14)."""
        tail = old = self._tail
        waits, lost, mask, head = self._waits, self._lost, self._slot_mask, self._head
        while tail < head:
            missing = waits[tail & mask]
            if missing and missing & ~lost[tail & mask]:
                break
            tail += 1
        if tail == old:
            return
        self._occupied_entries -= tail - old
        self._occupied_bytes -= self._sum_sizes(old, tail)
        self._put(waits, old, [self._free] * (tail - old))
        if old < self._lost_until:
            self._put(lost, old, [0] * (tail - old))
        self._tail = tail

    def _give_up(self, entry_ids: Iterable[int], bits: int) -> None:
        """Expect no answer from the indexes in `bits` for those of the entries that they have not answered."""
        for entry_id in entry_ids:
            if self._tail <= entry_id < self._next:
                slot = entry_id & self._slot_mask
                gone = self._waits[slot] & bits
                if gone:
                    self._lost[slot] |= gone
                    self._lost_until = max(self._lost_until, entry_id + 1)

    def _expect_again(self, replaced: Sequence[int]) -> dict[int, list[int]]:
        """Forget the answers of the replaced indexes for all unacknowledged entries; return what to send where."""
        resend: dict[int, list[int]] = {}
        ensemble_size = self._ensemble_size
        for entry_id in range(self._head, self._next):
            slot = entry_id & self._slot_mask
            if self._waits[slot] == self._free:
                continue
            members = self._write_set_bits[entry_id % ensemble_size]
            for index in replaced:
                if members >> index & 1:
                    self._waits[slot] |= 1 << index
                    self._lost[slot] &= ~(1 << index)
                    resend.setdefault(index, []).append(entry_id)
        return resend

    def _count_in(self, count: int, size: int) -> None:
        self._occupied_entries += count
        self._occupied_bytes += size
        self._pushed_length += size

    def _unacknowledged_runs(self) -> Iterator[tuple[int, int]]:
        """First and last ids of the runs of unacknowledged entries; gaps of `push_ids` lie between them."""
        first: int | None = None
        for entry_id in range(self._head, self._next + 1):
            pushed = entry_id < self._next and self._waits[entry_id & self._slot_mask] != self._free
            if pushed and first is None:
                first = entry_id
            elif not pushed and first is not None:
                yield first, entry_id - 1
                first = None

    def _expected_of(self, entry_id: int) -> int:
        """Bits of the indexes whose answer for the entry is still waited for; those of a gap do not exist."""
        slot = entry_id & self._slot_mask
        return self._waits[slot] & ~self._lost[slot]

    def _make_rings(self, capacity: int) -> None:
        """Empty rings of `capacity` slots, a power of two."""
        self._slot_mask = capacity - 1
        self._waits = [self._free] * capacity
        self._lost = [0] * capacity
        self._sizes = [0] * capacity

    def _shrink_at_rest(self) -> None:
        """Give back the slots of a window that was busy once, and is at rest."""
        if self._tail == self._next and len(self._waits) > CAPACITY_FIRST:
            self._make_rings(min(CAPACITY_FIRST, self._capacity_max))

    def _reserve(self, until: int) -> None:
        """Grow the rings so that the ids from tail up to `until` have slots of their own."""
        span = until - self._tail
        if span <= len(self._waits):
            return
        old, mask = (self._waits, self._lost, self._sizes), self._slot_mask
        slots = [entry_id & mask for entry_id in range(self._tail, self._next)]
        self._make_rings(1 << (span - 1).bit_length())
        for ring, before in zip((self._waits, self._lost, self._sizes), old, strict=True):
            self._put(ring, self._tail, [before[slot] for slot in slots])

    def _put(self, ring: list[int], first: int, values: Sequence[int]) -> None:
        """ring[first ...] = values, around the end of the ring."""
        start = first & self._slot_mask
        end = start + len(values)
        if end <= len(ring):
            ring[start:end] = values
        else:
            cut = len(ring) - start
            ring[start:] = values[:cut]
            ring[: end - len(ring)] = values[cut:]

    def _sum_sizes(self, first: int, until: int) -> int:
        start = first & self._slot_mask
        end = start + until - first
        sizes = self._sizes
        if end <= len(sizes):
            return sum(sizes[start:end])
        return sum(sizes[start:]) + sum(sizes[: end - len(sizes)])


@lru_cache(maxsize=32)
def _write_set_bits(ensemble_size: int, write_quorum: int, capacity: int) -> tuple[int, ...]:
    """The write sets, as bits, of `capacity` entries and more in a row; one for all windows of a shape."""
    one_turn = [
        sum(1 << index for index in write_set(start, ensemble_size, write_quorum)) for start in range(ensemble_size)
    ]
    return tuple(one_turn) * (capacity // ensemble_size + 2)
