"""Waiting for the last add confirmed of an open ledger to pass an entry: whom to ask, and when the wait is over.

The E bookies of the last fragment are asked to answer once they know a LAC above `previous_lac`, or when their time is
up. Sequential: one after the other, the next one when one has nothing to offer, or after the speculative delay beside
those that still wait. Parallel: all at once.

    news       a bookie proved a LAC above `previous_lac`: over at once
    empty      its time is up; after E - Qa + 1 of these nobody can know of more than they do: over, without news
    missing    it does not hold the ledger (yet): after more than E - Qa of these the wait fails, as it does in Apache
    unknown    no answer, a damaged one, or one that this bookie cannot give

When all have spoken and none of the above decided, it is over: without news if one was empty, else failed. Nothing here
fences (I-43). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.errors import EntryMissing, EntryUnreadable, LedgerError
from bookkeeper.model import BookieId, EntryId, LedgerMetadata, Status
from bookkeeper.protocol.reads import Speculation, as_answer


class LongPoll:
    """One wait. Events in, bookies to ask out; owns no connection and no clock.

    order: the last fragment's ensemble, whom to ask first comes first.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        previous_lac: int,
        order: Sequence[BookieId],
        *,
        ledger_id: int,
        parallel: bool,
        speculation: Speculation | None,
    ) -> None:
        assert sorted(order) == sorted(metadata.last_fragment.ensemble), "a preference only reorders the ensemble"
        self._ledger_id, self._previous_lac = ledger_id, previous_lac
        self._order = tuple(order)
        self._empty_needed = metadata.ensemble_size - metadata.ack_quorum + 1
        self._missing_max = metadata.ensemble_size - metadata.ack_quorum
        self._parallel = parallel
        self._speculation = speculation
        self._delay_s = speculation.first_s if speculation else 0.0
        self._next_speculation: float | None = None
        # spoken <= asked <= len(order); spoken == len(answers)
        self._asked = 0
        self._answers: dict[BookieId, object] = {}
        self._empty = self._missing = 0
        self._lac: EntryId | None = None

    def start(self, now: float) -> list[BookieId]:
        """Whom to ask first."""
        if self._parallel:
            return self._ask(len(self._order))
        self._schedule(now)
        return self._ask(1)

    def on_news(self, bookie_id: BookieId, lac: int) -> list[BookieId]:
        """It proved this LAC, by a record whose digest is right."""
        if lac <= self._previous_lac:
            return self.on_empty(bookie_id)
        self._answers[bookie_id] = f"LAC {lac}"
        self._lac = EntryId(lac)
        return []

    def on_empty(self, bookie_id: BookieId) -> list[BookieId]:
        """It knows of nothing new."""
        self._empty += 1
        return self._spoke(bookie_id, "no news")

    def on_missing(self, bookie_id: BookieId, status: Status) -> list[BookieId]:
        """It says that it holds no such ledger or entry."""
        self._missing += 1
        return self._spoke(bookie_id, status.value)

    def on_unknown(self, bookie_id: BookieId, why: object) -> list[BookieId]:
        """Nothing is known from this one."""
        return self._spoke(bookie_id, why)

    def speculative_due(self, now: float) -> list[BookieId]:
        """One more, beside those that still wait."""
        if self.done or self._next_speculation is None or now < self._next_speculation:
            return []
        self._schedule(now)
        return self._ask(self._asked + 1)

    @property
    def next_speculation(self) -> float | None:
        """When to call `speculative_due`."""
        return None if self.done or self._asked == len(self._order) else self._next_speculation

    @property
    def done(self) -> bool:
        """The wait is over."""
        return (
            self._lac is not None
            or self._empty >= self._empty_needed
            or self._missing > self._missing_max
            or len(self._answers) == len(self._order)
        )

    @property
    def lac(self) -> EntryId | None:
        """The LAC that is news; None without."""
        return self._lac

    def error(self) -> LedgerError | None:
        """Why the wait failed; None when it did not, or is not over."""
        if not self.done or self._lac is not None or self._empty >= self._empty_needed:
            return None
        told: dict[str, object] = {bookie_id: as_answer(answer) for bookie_id, answer in self._answers.items()}
        if self._missing > self._missing_max:
            return EntryMissing(
                f"ledger {self._ledger_id}: its bookies hold nothing of its last fragment, so they cannot tell when "
                "that changes; try again once it has entries",
                ledger_id=self._ledger_id,
                answers=told,
            )
        if self._empty:
            return None
        return EntryUnreadable(
            f"ledger {self._ledger_id}: no bookie of its last fragment waits for the last add confirmed to pass "
            f"{self._previous_lac}; ask with read_last_confirmed, or try again later",
            ledger_id=self._ledger_id,
            answers=told,
        )

    def _spoke(self, bookie_id: BookieId, what: object) -> list[BookieId]:
        self._answers[bookie_id] = what
        if self.done or len(self._answers) < self._asked:
            return []
        return self._ask(self._asked + 1)

    def _ask(self, until: int) -> list[BookieId]:
        asked, self._asked = self._asked, min(until, len(self._order))
        return list(self._order[asked : self._asked])

    def _schedule(self, now: float) -> None:
        speculation = self._speculation
        if speculation is not None:
            self._next_speculation = now + self._delay_s
            self._delay_s = min(speculation.max_s, self._delay_s * speculation.multiplier)
