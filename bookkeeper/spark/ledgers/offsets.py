"""How far a stream over ledgers has come, and how much further one micro-batch takes it. Pure.

    {"done": "1-500,502", "501": 77}     ledgers read to their end; of others the next entry

A ledger that stands nowhere is new: it is read from its first entry. It is done once it is closed and read to its last
entry; until then its number is the next entry. Numbers only grow, and a ledger that is done stays so: from two such
positions follows which entries lie between, whatever happened since (a replayed micro-batch reads the same).

Spark compares positions as text, so the same position is always the same dict in the same order.
Bounds: OPEN_MAX ledgers that are not done, RANGES_MAX ranges of those that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.options.id_ranges import IdRanges
from bookkeeper.spark.options.limits import Limits, within

OPEN_MAX = 20_000
RANGES_MAX = 20_000

SHARED_MAX = 1_000
"""Closed ledgers that share a limit; others come into the same micro-batch only whole, where there is room for them."""

Offset = dict[str, int | str]

_DONE = "done"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a ledger now: entries 0..end may be read. closed: there will be no others."""

    end: int
    closed: bool
    mean_size: float
    """Bytes of an entry, on average; 0.0 where that is not known."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream has come."""

    done: IdRanges = field(default_factory=IdRanges)
    next: Mapping[int, int] = field(default_factory=dict)

    def offset(self) -> Offset:
        """As Spark keeps it. Raises InvalidArgument for one that would be too large."""
        if len(self.next) > OPEN_MAX or len(self.done.ranges) > RANGES_MAX:
            raise InvalidArgument(
                f"the position of this stream would name {len(self.next)} ledgers that are not read to their end and "
                f"{len(self.done.ranges)} ranges of others, more than {OPEN_MAX} and {RANGES_MAX}; "
                "let several streams read some of the ledgers each (option ledgers)"
            )
        return {_DONE: str(self.done), **{str(ledger_id): self.next[ledger_id] for ledger_id in sorted(self.next)}}

    @classmethod
    def of(cls, offset: object) -> Position:
        """Read it back. Raises InvalidArgument for what is no such position, as of another source's checkpoint."""
        try:
            if not isinstance(offset, Mapping) or _DONE not in offset:
                raise TypeError("no JSON object of ours")
            done = IdRanges.parse(str(offset[_DONE]))
            found = {int(name): int(value) for name, value in offset.items() if name != _DONE}
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"the checkpoint holds {offset!r}, which is no position of a stream over ledgers; "
                "it belongs to another query: use another checkpointLocation"
            ) from None  # what did not fit says nothing that the offset does not
        return cls(done, found)

    def of_ledger(self, ledger_id: int) -> int:
        """The next entry of a ledger that is not done."""
        return self.next.get(ledger_id, 0)


def beginning(positions: Mapping[int, int], seen: Mapping[int, Seen]) -> Position:
    """Where a new stream begins, given the first entry it shall read of each ledger that is there."""
    finished = {each for each, now in seen.items() if now.closed and positions[each] > now.end}
    return Position(
        IdRanges.of(finished), {each: positions[each] for each in seen if positions[each] > 0 and each not in finished}
    )


def advance(start: Position, seen: Mapping[int, Seen], limits: Limits) -> Position:
    """How far the next micro-batch goes: to what is seen, within the limits.

    Ledgers share a limit in proportion to what each has left. `seen` has no ledger that is done. However many closed
    ones there are, SHARED_MAX are begun at most before one is done: a position names each that is begun.
    """
    left = {ledger_id: now.end + 1 - start.of_ledger(ledger_id) for ledger_id, now in seen.items()}
    left = {ledger_id: count for ledger_id, count in left.items() if count > 0}
    if limits != Limits():
        left = _with_few_closed(start, seen, left, limits)
    counts = within(left, {ledger_id: seen[ledger_id].mean_size for ledger_id in left}, limits)
    finished, following = [], dict(start.next)
    for ledger_id, now in seen.items():
        position = start.of_ledger(ledger_id) + counts.get(ledger_id, 0)
        if now.closed and position > now.end:
            finished.append(ledger_id)
            following.pop(ledger_id, None)
        elif position or ledger_id in following:
            following[ledger_id] = position
    return Position(start.done | IdRanges.of(finished), following)


def _with_few_closed(
    start: Position, seen: Mapping[int, Seen], left: Mapping[int, int], limits: Limits
) -> dict[int, int]:
    """Those that are written or begun; of the others, by their ids, SHARED_MAX closed ones and what fits besides."""
    waiting = sorted(each for each in left if seen[each].closed and each not in start.next)
    begun = sum(seen[each].closed for each in left) - len(waiting)
    taken = max(0, SHARED_MAX - begun)
    later = frozenset(waiting[taken:])
    chosen = {each: count for each, count in left.items() if each not in later}
    entries, size = sum(chosen.values()), sum(_bytes(seen[each], count) for each, count in chosen.items())
    for each in waiting[taken:]:
        entries, size = entries + left[each], size + _bytes(seen[each], left[each])
        if entries > (limits.entries or entries) or size > (limits.size or size):
            break
        chosen[each] = left[each]
    return chosen


def _bytes(seen: Seen, count: int) -> float:
    return count * max(1.0, seen.mean_size)


@dataclass(frozen=True, slots=True)
class Between:
    """Entries of one ledger between two positions. last: None: to its end, which is final."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int | None


def between(start: Position, end: Position) -> list[Between]:
    """What lies between two positions, by ledger id. Raises InvalidArgument where `end` is before `start`."""
    found = [Between(ledger_id, start.of_ledger(ledger_id), None) for ledger_id in _newly_done(start, end)]
    for ledger_id, position in end.next.items():
        first = start.of_ledger(ledger_id)
        if position < first or ledger_id in start.done:
            raise InvalidArgument(
                f"ledger {ledger_id} was read up to entry {first if ledger_id not in start.done else 'its last'} and "
                f"the next position is {position}: the checkpoint of this query was changed, or is another's"
            )
        if position > first:
            found.append(Between(ledger_id, first, position - 1))
    return sorted(found, key=lambda each: each.ledger_id)


def _newly_done(start: Position, end: Position) -> list[int]:
    """Ids of `end.done` that are not in `start.done`: walks the ranges, not the ids they share."""
    found: list[int] = []
    before = iter(start.done.ranges)
    known = next(before, None)
    for low, high in end.done.ranges:
        at = low
        while at <= high:
            while known is not None and known[1] < at:
                known = next(before, None)
            if known is None or known[0] > high:
                found.extend(range(at, high + 1))
                break
            found.extend(range(at, known[0]))
            at = max(at, known[1] + 1)
    return found
