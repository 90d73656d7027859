"""The last add confirmed of a ledger that is still open, as its bookies tell it.

All E bookies of the last fragment are asked. An answer counts when its digest is right; an explicit negative counts too
(that bookie holds nothing, so it knows no LAC); everything else is unknown. Nothing here fences (I-43).
"""

from __future__ import annotations

from bookkeeper.errors import EntryUnreadable, LedgerError
from bookkeeper.model import BookieId, EntryId, LedgerMetadata, Status
from bookkeeper.protocol.reads import as_answer
from bookkeeper.protocol.schedule import Coverage


class LacRead:
    """The highest LAC that any ack quorum can know of: the maximum over a covering set of answers (I-02).

    The caller keeps the maximum of this and what it knew (I-07).
    """

    def __init__(self, metadata: LedgerMetadata, *, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self._bookies = metadata.last_fragment.ensemble
        self._coverage = Coverage(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        # Below the last fragment everything was acknowledged before the fragment could start (I-09).
        self._lac = EntryId(metadata.last_fragment.first_entry_id - 1)
        self._answers: dict[str, object] = {}

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Whom to ask, all at once."""
        return self._bookies

    @property
    def lac(self) -> EntryId:
        """The highest LAC so far; -1 when nothing was confirmed."""
        return self._lac

    @property
    def done(self) -> bool:
        """True when the result, or the error, is final."""
        return self._coverage.covered or self._coverage.impossible

    def on_lac(self, bookie_id: BookieId, lac: int) -> bool:
        """`bookie_id` holds a digest-verified record with this LAC. Returns `done`."""
        self._lac = max(self._lac, EntryId(lac))
        return self._answered(bookie_id, f"LAC {lac}")

    def on_negative(self, bookie_id: BookieId, status: Status) -> bool:
        """`bookie_id` holds nothing of the ledger. Returns `done`."""
        return self._answered(bookie_id, status.value)

    def on_unknown(self, bookie_id: BookieId, why: object) -> bool:
        """`bookie_id` did not say, or what it said is damaged. Returns `done`."""
        self._answers[bookie_id] = as_answer(why)
        self._coverage.failed(self._bookies.index(bookie_id))
        return self.done

    def error(self) -> LedgerError | None:
        """Why there is no result; None while there may be one."""
        if self._coverage.covered or not self.done:
            return None
        return EntryUnreadable(
            f"ledger {self._ledger_id}: too few bookies of its last fragment tell the last add confirmed; try again "
            "when they are back",
            ledger_id=self._ledger_id,
            answers=self._answers,
        )

    def _answered(self, bookie_id: BookieId, what: str) -> bool:
        self._answers[bookie_id] = what
        self._coverage.answered(self._bookies.index(bookie_id))
        return self.done


class TryLacRead(LacRead):
    """Any LAC above the one known, as soon as one bookie tells it; else the maximum once all have spoken."""

    def __init__(self, metadata: LedgerMetadata, known_lac: int, *, ledger_id: int) -> None:
        super().__init__(metadata, ledger_id=ledger_id)
        self._lac = max(self._lac, EntryId(known_lac))
        self._known_lac = self._lac
        self._valid = False

    @property
    def done(self) -> bool:
        """True at the first news, or when no bookie is left to ask."""
        return self._lac > self._known_lac or self._coverage.everyone_spoke

    def error(self) -> LedgerError | None:
        """Why there is no result: not one bookie gave a valid answer."""
        if not self.done or self._valid:
            return None
        return EntryUnreadable(
            f"ledger {self._ledger_id}: no bookie of its last fragment tells the last add confirmed; try again later",
            ledger_id=self._ledger_id,
            answers=self._answers,
        )

    def _answered(self, bookie_id: BookieId, what: str) -> bool:
        self._valid = True
        return super()._answered(bookie_id, what)


class ToldLac:
    """The LAC that one bookie can prove: what it may be believed after it said that there is news."""

    def __init__(self, bookie_id: BookieId, *, ledger_id: int) -> None:
        self._ledger_id, self._bookie_id = ledger_id, bookie_id
        self._lac = EntryId(-1)
        self._why: object = None

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Whom to ask."""
        return (self._bookie_id,)

    @property
    def lac(self) -> EntryId:
        """What it proved; -1 when it holds nothing."""
        return self._lac

    def on_lac(self, bookie_id: BookieId, lac: int) -> bool:
        """A digest-verified record with this LAC. Returns True: one answer is all."""
        self._lac = EntryId(lac)
        return True

    def on_negative(self, bookie_id: BookieId, status: Status) -> bool:
        """It holds nothing of the ledger."""
        return True

    def on_unknown(self, bookie_id: BookieId, why: object) -> bool:
        """It did not say, or what it said is damaged."""
        self._why = why
        return True

    def error(self) -> LedgerError | None:
        """Why there is no result."""
        if self._why is None:
            return None
        return EntryUnreadable(
            f"ledger {self._ledger_id}: the last add confirmed that bookie {self._bookie_id} told of is not proven",
            ledger_id=self._ledger_id,
            answers={self._bookie_id: self._why},
        )
