"""One range of entries, read from the bookies of their write sets.

For each entry a replica's answer is in one of three classes, never two (I-30):

    present   a body whose digest and ids are right: settles the entry
    absent    an explicit negative: the bookie never held it
    unknown   anything else: a damaged body, a failure, a lost connection, no answer

    mode       asks                                      an entry is ABSENT when                  UNKNOWN when
    ORDINARY   one replica after the other               all asked, Qw - Qa + 1 negatives, no     all asked, neither
                                                         damaged copy
    RECOVERY   one; after its first failure all others   Qw - Qa + 1 negatives, at once           all asked, neither

An ordinary read asks every replica before it gives up, because its entries were acknowledged once; a recovery read must
not wait for a bookie that it can do without.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from bookkeeper.errors import BookKeeperError, EntryCorrupt, EntryMissing, EntryUnreadable, LedgerError
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, LedgerMetadata, Status
from bookkeeper.protocol.schedule import write_set
from bookkeeper.protocol.unreadable import why_unreadable

V = TypeVar("V")

DIGEST_MISMATCH = "digest mismatch"
"""The answer of a replica whose copy is damaged, as it stands in error messages."""

Prefer = Callable[[tuple[BookieId, ...]], Sequence[BookieId]]
"""Reorders a write set: the replica to ask first comes first."""


class Outcome(enum.Enum):
    """What is known of an entry."""

    PENDING = 0
    PRESENT = 1
    ABSENT = 2
    UNKNOWN = 3


class ReadMode(enum.Enum):
    """What the answers are for."""

    ORDINARY = "an entry that was acknowledged"
    RECOVERY = "is there an entry?"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Entries, ascending, to ask of one bookie."""

    bookie_id: BookieId
    entry_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Speculation:
    """When to ask a further replica although the ones asked may still answer.

    First after `first_s` seconds, then again and again, each delay `multiplier` times the one before, at most `max_s`.
    """

    first_s: float = 2.0
    max_s: float = 2.0
    multiplier: float = 2.0


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Entries from `first` on with one ensemble; orders[e % len]: the replicas of entry e in the order to ask them."""

    first: int
    last: int
    orders: tuple[tuple[BookieId, ...], ...]


def as_answer(why: object) -> object:
    """What a bookie said, for `LedgerError.answers`: an error as it is, so that its kind shows, all else as text."""
    if isinstance(why, Status):
        return why.value
    return why if isinstance(why, BookKeeperError) else str(why)


_PENDING, _PRESENT, _ABSENT, _UNKNOWN = (outcome.value for outcome in Outcome)
_PRESENT_BYTE = bytes([_PRESENT])


class RangeRead(Generic[V]):
    """Entries first..last (inclusive) of one ledger. Events in, requests out; owns no connection and no clock.

    Values are whatever the driver makes of a verified body; None says that the body failed its digest (I-44). Memory
    is bounded by the range: to stream a ledger, the driver reads one sub-range after the other. Answers that fail are
    kept, at most Qw per entry, for the error message.

    turn: None, and each entry is asked by its own write set, so that all bookies share the work; else (E = Qw only)
    all by the write set that begins at this place, so that one bookie is asked for consecutive entries.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        first_entry_id: int,
        last_entry_id: int,
        *,
        ledger_id: int,
        mode: ReadMode = ReadMode.ORDINARY,
        prefer: Prefer | None = None,
        speculation: Speculation | None = None,
        turn: int | None = None,
    ) -> None:
        assert turn is None or metadata.ensemble_size == metadata.write_quorum, "one bookie cannot hold every entry"
        assert 0 <= first_entry_id <= last_entry_id, f"a read of entries {first_entry_id} to {last_entry_id}"
        self._ledger_id = ledger_id
        self._first = first_entry_id
        self._count = count = last_entry_id + 1 - first_entry_id
        self._mode = mode
        self._write_quorum = metadata.write_quorum
        self._negatives_needed = metadata.write_quorum - metadata.ack_quorum + 1
        self._stretches = _stretches(metadata, first_entry_id, last_entry_id, prefer, turn)
        self._stretch_starts = [stretch.first for stretch in self._stretches]
        # All by entry id - first. 0 <= taken <= count; entries below taken are PRESENT and their values are gone.
        self._outcomes = bytearray(count)
        self._values: list[V | None] = [None] * count
        self._asked = [0] * count  # how many replicas of the order were asked
        self._open = [0] * count  # bit i: replica i of the order was asked and has not answered
        self._taken = 0
        self._settled = 0
        self._answers: dict[int, dict[BookieId, object]] = {}  # of entries with a failure, until they are present
        self._speculation = speculation
        self._delay_s = speculation.first_s if speculation else 0.0
        self._next_speculation: float | None = None
        self._progressed: set[BookieId] = set()  # delivered something since the last speculation

    # --- events -----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[ReadRequest]:
        """Ask the first replica of every entry."""
        if self._speculation is not None:
            self._next_speculation = now + self._delay_s
        self._asked = [1] * self._count
        self._open = [1] * self._count
        if len(self._stretches) == 1 and len(self._stretches[0].orders) == 1:
            only = self._stretches[0]
            return [ReadRequest(only.orders[0][0], range(only.first, only.last + 1))]
        requests: dict[BookieId, list[int]] = {}
        for stretch in self._stretches:
            orders = len(stretch.orders)
            for entry_id in range(stretch.first, min(stretch.first + orders, stretch.last + 1)):
                held = requests.setdefault(stretch.orders[entry_id % orders][0], [])
                held.extend(range(entry_id, stretch.last + 1, orders))
        return [ReadRequest(bookie_id, sorted(entry_ids)) for bookie_id, entry_ids in requests.items()]

    def on_run(self, bookie_id: BookieId, entry_ids: range, values: Sequence[V]) -> list[ReadRequest]:
        """`bookie_id` delivered these consecutive entries, and all copies are good."""
        self._progressed.add(bookie_id)
        return [] if self._take_whole(entry_ids, values) else self.on_bodies(bookie_id, entry_ids, values)

    def on_bodies(self, bookie_id: BookieId, entry_ids: Sequence[int], values: Sequence[V | None]) -> list[ReadRequest]:
        """`bookie_id` delivered these entries; a value of None is a damaged copy and counts as unknown."""
        self._progressed.add(bookie_id)
        first, count, outcomes, kept = self._first, self._count, self._outcomes, self._values
        settled = 0
        damaged: list[int] = []
        for entry_id, value in zip(entry_ids, values, strict=True):
            place = entry_id - first
            if value is None:
                damaged.append(entry_id)
            elif 0 <= place < count and not outcomes[place]:
                outcomes[place] = _PRESENT
                kept[place] = value
                settled += 1
        self._settled += settled
        if self._answers:
            for entry_id in entry_ids:
                if self.outcome(entry_id) is Outcome.PRESENT:
                    self._answers.pop(entry_id, None)
        return self._fail(bookie_id, damaged, DIGEST_MISMATCH) if damaged else []

    def _take_whole(self, entry_ids: range, values: Sequence[V]) -> bool:
        """Consecutive entries, all good and none of them known yet: taken at once. False, and nothing done, if not."""
        place, size = entry_ids.start - self._first, len(entry_ids)
        end = place + size
        if entry_ids.step != 1 or place < 0 or end > self._count or self._answers:
            return False
        if self._outcomes.count(_PENDING, place, end) != size or len(values) != size:
            return False
        self._outcomes[place:end] = _PRESENT_BYTE * size
        self._values[place:end] = values
        self._settled += size
        return True

    def on_negative(self, bookie_id: BookieId, entry_ids: Iterable[int], status: Status) -> list[ReadRequest]:
        """`bookie_id` says with authority that it never held these entries."""
        assert status in EXPLICIT_NEGATIVES, f"{status} does not say that an entry was never held (I-30)"
        self._progressed.add(bookie_id)
        return self._fail(bookie_id, entry_ids, status)

    def on_unknown(self, bookie_id: BookieId, entry_ids: Iterable[int], why: object) -> list[ReadRequest]:
        """Nothing is known of these entries at `bookie_id`; `why` goes into the error message."""
        assert why not in EXPLICIT_NEGATIVES, f"{why} is an explicit negative"
        return self._fail(bookie_id, entry_ids, why)

    def on_bookie_lost(self, bookie_id: BookieId, why: object) -> list[ReadRequest]:
        """Whatever `bookie_id` has not answered it will not answer."""
        return self.on_unknown(bookie_id, self.outstanding(bookie_id), why)

    def speculative_due(self, now: float) -> list[ReadRequest]:
        """Ask one further replica of every pending entry whose bookies delivered nothing since the last time.

        Differs from Apache: a bookie that delivered something long ago and then hangs is not trusted for ever (L-3).
        """
        if self._speculation is None or self._next_speculation is None or now < self._next_speculation:
            return []
        requests: dict[BookieId, list[int]] = {}
        more = False
        for place in self._pending():
            asked = self._asked[place]
            if asked == self._write_quorum:
                continue
            more = True
            order = self._order(self._first + place)
            if self._progressed.isdisjoint(order[:asked]):
                self._ask(place, order, asked + 1, requests)
        self._progressed.clear()
        self._delay_s = min(self._speculation.max_s, self._delay_s * self._speculation.multiplier)
        self._next_speculation = now + self._delay_s if more else None
        return _requests(requests)

    # --- results ----------------------------------------------------------------------------------------------------

    @property
    def next_speculation(self) -> float | None:
        """When to call `speculative_due`; None when there is nothing to speculate on."""
        return None if self.done else self._next_speculation

    @property
    def done(self) -> bool:
        """True when no entry is pending."""
        return self._settled == self._count

    @property
    def taken_until(self) -> int:
        """The first entry id that `take` has not returned."""
        return self._first + self._taken

    def take(self) -> list[V]:
        """The values that follow those taken before, up to the first entry that is not present."""
        until = self._taken + self._present_run()
        taken = cast("list[V]", self._values[self._taken : until])  # a value of None makes no entry present
        self._values[self._taken : until] = [None] * len(taken)
        self._taken = until
        return taken

    def outcome(self, entry_id: int) -> Outcome:
        """What is known of one entry; PENDING for entries outside the range."""
        place = entry_id - self._first
        return Outcome(self._outcomes[place]) if 0 <= place < self._count else Outcome.PENDING

    def outstanding(self, bookie_id: BookieId) -> list[int]:
        """Pending entries that `bookie_id` was asked for and has not answered."""
        entry_ids = []
        for place in self._pending():
            order = self._order(self._first + place)
            if bookie_id in order and self._open[place] >> order.index(bookie_id) & 1:
                entry_ids.append(self._first + place)
        return entry_ids

    def error(self) -> LedgerError | None:
        """Why the first entry that is not present failed, with all answers; None while it is pending."""
        place = self._taken + self._present_run()
        if place == self._count or self._outcomes[place] == _PENDING:
            return None
        entry_id = self._first + place
        answers = self._answers.get(entry_id, {})
        named: dict[str, object] = {}
        for bookie_id, answer in answers.items():
            named[bookie_id] = as_answer(answer)
        what = f"ledger {self._ledger_id}, entry {entry_id}"
        if self._outcomes[place] == _ABSENT:
            message = f"{what}: enough bookies deny having it; it was never written, or their data is lost"
            return EntryMissing(message, ledger_id=self._ledger_id, entry_id=entry_id, answers=named)
        settled = {DIGEST_MISMATCH, *EXPLICIT_NEGATIVES}
        if DIGEST_MISMATCH in answers.values() and settled.issuperset(answers.values()):
            message = f"{what}: every copy is damaged, or digest type or password are not the writer's"
            return EntryCorrupt(message, ledger_id=self._ledger_id, entry_id=entry_id, answers=named)
        remedy = f"a good copy must come back; `bookkeeper why ledger {self._ledger_id}` says what is known"
        why = why_unreadable(
            named, ledger_id=self._ledger_id, damaged={DIGEST_MISMATCH}, then="try again", remedy=remedy
        )
        return EntryUnreadable(f"{what} {why}", ledger_id=self._ledger_id, entry_id=entry_id, answers=named)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _fail(self, bookie_id: BookieId, entry_ids: Iterable[int], why: object) -> list[ReadRequest]:
        requests: dict[BookieId, list[int]] = {}
        for entry_id in entry_ids:
            place = entry_id - self._first
            if not 0 <= place < self._count or self._outcomes[place] != _PENDING:
                continue
            order = self._order(entry_id)
            bit = 1 << order.index(bookie_id) if bookie_id in order else 0
            if not self._open[place] & bit:
                continue
            self._open[place] ^= bit
            answers = self._answers.setdefault(entry_id, {})
            answers[bookie_id] = why
            self._go_on(place, order, answers, requests)
        return _requests(requests)

    def _go_on(
        self,
        place: int,
        order: tuple[BookieId, ...],
        answers: dict[BookieId, object],
        requests: dict[BookieId, list[int]],
    ) -> None:
        """A replica failed: settle the entry, or ask further replicas."""
        enough = sum(answer in EXPLICIT_NEGATIVES for answer in answers.values()) >= self._negatives_needed
        exhausted = self._asked[place] == self._write_quorum and not self._open[place]
        if self._mode is ReadMode.RECOVERY:
            if enough:
                self._settle(place, _ABSENT)
            elif exhausted:
                self._settle(place, _UNKNOWN)
            else:
                self._ask(place, order, self._write_quorum, requests)
        elif exhausted:
            # A damaged copy is a copy: "never written" would be wrong (I-44).
            denied = enough and DIGEST_MISMATCH not in answers.values()
            self._settle(place, _ABSENT if denied else _UNKNOWN)
        elif not self._open[place]:
            self._ask(place, order, self._asked[place] + 1, requests)

    def _settle(self, place: int, outcome: int) -> None:
        self._outcomes[place] = outcome
        self._settled += 1

    def _ask(self, place: int, order: tuple[BookieId, ...], until: int, requests: dict[BookieId, list[int]]) -> None:
        """Ask the replicas from the first not asked up to number `until`."""
        for position in range(self._asked[place], until):
            self._open[place] |= 1 << position
            requests.setdefault(order[position], []).append(self._first + place)
        self._asked[place] = until

    def _order(self, entry_id: int) -> tuple[BookieId, ...]:
        orders = self._stretches[bisect_right(self._stretch_starts, entry_id) - 1].orders
        return orders[entry_id % len(orders)]

    def _pending(self) -> list[int]:
        return [place for place in range(self._taken, self._count) if self._outcomes[place] == _PENDING]

    def _present_run(self) -> int:
        """How many entries from `taken` on are present without a gap."""
        rest = self._outcomes[self._taken :]
        return len(rest) - len(rest.lstrip(_PRESENT_BYTE))


def _requests(entries_of: dict[BookieId, list[int]]) -> list[ReadRequest]:
    return [ReadRequest(bookie_id, entry_ids) for bookie_id, entry_ids in entries_of.items()]


def _stretches(
    metadata: LedgerMetadata, first: int, last: int, prefer: Prefer | None, turn: int | None
) -> list[_Stretch]:
    """The parts of first..last, one per fragment that has entries of it."""
    starts = [fragment.first_entry_id for fragment in metadata.fragments]
    ends = [*starts[1:], last + 1]
    stretches = []
    for fragment, end in zip(metadata.fragments, ends, strict=True):
        if fragment.first_entry_id > last or end <= first:
            continue
        orders = []
        for start in range(metadata.ensemble_size) if turn is None else (turn % metadata.ensemble_size,):
            indexes = write_set(start, metadata.ensemble_size, metadata.write_quorum)
            replicas = tuple(fragment.ensemble[index] for index in indexes)
            order = tuple(prefer(replicas)) if prefer is not None else replicas
            assert sorted(order) == sorted(replicas), "a preference only reorders the write set"
            orders.append(order)
        stretches.append(_Stretch(max(first, fragment.first_entry_id), min(last, end - 1), tuple(orders)))
    return stretches
