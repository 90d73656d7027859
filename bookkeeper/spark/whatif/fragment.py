"""One fragment, some of whose bookies are lost: what is gone, read and written, and which entries are at risk. Pure.

Entries with the same remainder e mod E share a write set, so a fragment of any length is E cases, each counted once:

    the write set of a case      lost  lost  here        its n entries: 1 copy left, below an ack quorum of 2
                                              '-- read n entries, once, and write them to whoever takes the lost places

As auto-recovery does it: an entry is read once, whatever the number of its lost copies, and only from a bookie that is
registered. Nothing is said of copies that are damaged or missing already: metadata know of neither.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bookkeeper.protocol.schedule import entries_by_turn, write_set


@dataclass(frozen=True, slots=True)
class Stripes:
    """Entries first..last, both included, over an ensemble: first > last for none."""

    first_entry_id: int
    last_entry_id: int
    ensemble_size: int
    write_quorum: int

    @property
    def entry_count(self) -> int:
        """How many entries."""
        return max(0, self.last_entry_id - self.first_entry_id + 1)

    def cases(self) -> list[tuple[int, tuple[int, ...]]]:
        """How many entries each write set has, and its ensemble indexes; none without entries."""
        counts = entries_by_turn(self.first_entry_id, self.last_entry_id, self.ensemble_size)
        return [
            (count, write_set(turn, self.ensemble_size, self.write_quorum))
            for turn, count in enumerate(counts)
            if count
        ]

    def copies(self) -> list[int]:
        """How many entries each ensemble index stores."""
        held = [0] * self.ensemble_size
        for count, members in self.cases():
            for index in members:
                held[index] += count
        return held


@dataclass(slots=True)
class Loss:
    """Entries, but for *_copies. Of those that lose a copy; what keeps all of its copies is at no risk by this.

    no_copy, one_copy, below_ack_quorum: left, before anything is repaired; the last of these holds the first.
    no_readable_copy: what is left is on bookies that are not registered, so nobody knows, and nothing can be copied.
    lost_copies = written_copies + unplaced_copies (nobody takes them) + those of no_copy and no_readable_copy entries.
    read: entries read from each ensemble index; written: entries that whoever takes each index gets.
    """

    affected: int = 0
    no_copy: int = 0
    one_copy: int = 0
    below_ack_quorum: int = 0
    no_readable_copy: int = 0
    lost_copies: int = 0
    written_copies: int = 0
    unplaced_copies: int = 0
    read_entries: int = 0
    read: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)


def loss_of(
    stripes: Stripes,
    ack_quorum: int,
    *,
    lost: Collection[int],
    readable: Collection[int],
    taken: Collection[int],
) -> Loss:
    """What the loss of these ensemble indexes means.

    readable: those that can be asked, none of them lost. taken: the lost ones whose copies somebody takes.
    """
    found = Loss()
    for count, members in stripes.cases():
        gone = [index for index in members if index in lost]
        if not gone:
            continue
        left = len(members) - len(gone)
        found.affected += count
        found.lost_copies += count * len(gone)
        if left < ack_quorum:
            found.below_ack_quorum += count
        if left == 0:
            found.no_copy += count
            continue
        if left == 1:
            found.one_copy += count
        source = next((index for index in members if index in readable), None)
        if source is None:
            found.no_readable_copy += count
            continue
        placed = [index for index in gone if index in taken]
        found.unplaced_copies += count * (len(gone) - len(placed))
        if placed:
            found.read_entries += count
            found.written_copies += count * len(placed)
            found.read[source] = found.read.get(source, 0) + count
            for index in placed:
                found.written[index] = found.written.get(index, 0) + count
    return found


@dataclass(slots=True)
class Rewrite:
    """What writing the fragment anew means: entries, by old (read, gone) and new (written) ensemble index."""

    read_entries: int = 0
    no_readable_copy: int = 0
    read: dict[int, int] = field(default_factory=dict)
    gone: dict[int, int] = field(default_factory=dict)
    written: list[int] = field(default_factory=list)


def rewrite_of(stripes: Stripes, ensemble_size: int, write_quorum: int, *, readable: Collection[int]) -> Rewrite:
    """What other quorums mean: every entry read once and written to its new write set, then deleted where it was.

    Entries of which no copy can be read stay where they are.
    """
    found = Rewrite()
    for count, members in stripes.cases():
        source = next((index for index in members if index in readable), None)
        if source is None:
            found.no_readable_copy += count
            continue
        found.read_entries += count
        found.read[source] = found.read.get(source, 0) + count
        for index in members:
            found.gone[index] = found.gone.get(index, 0) + count
    first = stripes.first_entry_id
    found.written = Stripes(first, first + found.read_entries - 1, ensemble_size, write_quorum).copies()
    return found
