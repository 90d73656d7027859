"""Which bookies hold an entry, and when enough bookies have answered for a whole ensemble.

Entry e of a fragment is stored at the ensemble indexes (e + i) mod E for i = 0 ... Qw - 1, in that order.

Differs from Apache: 4.18's send path adds in 32 bits, which moves entries at and above 2**31 to other bookies than its
read path asks; here the sum is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bookkeeper.model import check_quorum


def write_set(entry_id: int, ensemble_size: int, write_quorum: int) -> tuple[int, ...]:
    """The ensemble indexes that store `entry_id`, in the order in which readers ask them."""
    return _write_sets(ensemble_size, write_quorum)[entry_id % ensemble_size]


@lru_cache(maxsize=256)
def _write_sets(ensemble_size: int, write_quorum: int) -> tuple[tuple[int, ...], ...]:
    """The write set of entry e at e % E."""
    return tuple(tuple((start + i) % ensemble_size for i in range(write_quorum)) for start in range(ensemble_size))


def holds(index: int, entry_id: int, ensemble_size: int, write_quorum: int) -> bool:
    """True when ensemble index `index` is in the write set of `entry_id`."""
    return (index - entry_id) % ensemble_size < write_quorum


def held_entries(
    index: int, first_entry_id: int, last_entry_id: int, ensemble_size: int, write_quorum: int
) -> Sequence[int]:
    """Entries of first..last (inclusive) that ensemble index `index` stores, ascending."""
    if ensemble_size == write_quorum:
        return range(first_entry_id, last_entry_id + 1)
    # The pattern repeats every E entries, so the result is Qw interleaved progressions: no test per entry.
    starts = [
        entry_id
        for entry_id in range(first_entry_id, min(first_entry_id + ensemble_size, last_entry_id + 1))
        if (index - entry_id) % ensemble_size < write_quorum
    ]
    parts = [range(start, last_entry_id + 1, ensemble_size) for start in starts]
    if len(parts) == 1:
        return parts[0]
    held = [0] * sum(map(len, parts))
    for position, part in enumerate(parts):
        held[position :: len(parts)] = part
    return held


def entries_by_turn(first_entry_id: int, last_entry_id: int, ensemble_size: int) -> list[int]:
    """How many of the entries first..last (inclusive) have each remainder e mod E: those share a write set."""
    rounds, rest = divmod(max(0, last_entry_id + 1 - first_entry_id), ensemble_size)
    counts = [rounds] * ensemble_size
    for entry_id in range(first_entry_id, first_entry_id + rest):
        counts[entry_id % ensemble_size] += 1
    return counts


def spread(first_entry_id: int, last_entry_id: int, ensemble_size: int, write_quorum: int) -> list[Sequence[int]]:
    """For each ensemble index, the entries of first..last (inclusive) that it stores."""
    return [
        held_entries(index, first_entry_id, last_entry_id, ensemble_size, write_quorum)
        for index in range(ensemble_size)
    ]


class Coverage:
    """Have enough bookies of an ensemble answered that no ack quorum can lie wholly among those in doubt? (I-02, I-28)

    Each index is in one of three classes: waiting, answered (OK or an explicit negative), failed (unknown). Covered
    means that in each of the E write sets fewer than Qa members are not answered. A plain count of answers would lie as
    soon as E > Qw: two neighbours in doubt can be a whole ack quorum.
    """

    def __init__(self, ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
        check_quorum(ensemble_size, write_quorum, ack_quorum)
        self._ack_quorum = ack_quorum
        everyone = (1 << ensemble_size) - 1
        self._write_sets = [
            sum(1 << index for index in write_set(start, ensemble_size, write_quorum)) for start in range(ensemble_size)
        ]
        # Bit i: index i. A failed index that answers after all leaves `_failed`; an answer is never taken back.
        self._not_answered = everyone
        self._failed = 0

    def answered(self, index: int) -> None:
        """Index `index` gave an answer that counts: OK, or an explicit negative."""
        self._not_answered &= ~(1 << index)
        self._failed &= ~(1 << index)

    def failed(self, index: int) -> None:
        """Index `index` gave no verdict and will be asked no more. Ignored if it answered before."""
        self._failed |= (1 << index) & self._not_answered

    @property
    def covered(self) -> bool:
        """True when every possible ack quorum contains a bookie that answered. Never becomes false again."""
        return all((members & self._not_answered).bit_count() < self._ack_quorum for members in self._write_sets)

    @property
    def impossible(self) -> bool:
        """True when the failed indexes alone rule coverage out."""
        return any((members & self._failed).bit_count() >= self._ack_quorum for members in self._write_sets)

    @property
    def everyone_spoke(self) -> bool:
        """True when no index is waited for any more."""
        return self._not_answered == self._failed
