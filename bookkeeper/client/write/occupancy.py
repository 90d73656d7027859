"""The question to bookies what they hold under a ledger id that a new writer is about to use.

Ledger ids are guessable, and they repeat when metadata is restored from an older copy. So a bookie may hold something
under an id that the metadata store lacks: a stranger claimed the id with a key of its own (by a fence or an explicit
LAC), or an earlier ledger of that id left entries. A writer that does not ask meets a claim as a refused add. It does
not notice entries at all, and readers take them for its own.

The question is a plain read of the last entry (-1). Every release of Apache's bookie answers it, in protocol v2 and v3.
It needs no key, changes nothing, and costs one round trip and no sync:

    answer                    occupancy   what the bookie holds
    NO_LEDGER                 FREE        nothing: the first key that comes is the ledger's (I-26)
    NO_ENTRY                  CLAIMED     a key, a fence or an explicit LAC, or a tombstone; no entry
    an entry                  ENTRIES     entries; `last_entry_id` is the greatest of them
    any other, or none        UNKNOWN     not known: never taken for FREE

Asked before a bookie joins a ledger:

    new_ledger        the whole ensemble, before the metadata is written. CLAIMED, ENTRIES: a generated id is passed
                      over, an id that the caller chose fails with LedgerIdOccupied. UNKNOWN: the bookie is replaced,
                      and its replacement asked
    ensemble_change   the replacements, before the compare-and-set; uses only those that `Finding.admits`
    target_check      bookies that re-replication would copy to (`bookkeeper.replication`)

Recovery, `bookkeeper why` and `ledger close-empty` ask the members of a ledger that refuse its key.

A bookie that this writer has had as a member is not asked: its entries are this writer's. Between the question and the
first add a stranger may still claim the id. Bookies then refuse that add as UNAUTHORIZED, which the writer reports as
LedgerIdOccupied too. Thread: reactor.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import BookieUnavailable, BookKeeperError, LedgerIdOccupied
from bookkeeper.model import ENTRY_HEADER_SIZE, INVALID_ENTRY_ID, LAST_ENTRY, BookieId, EntryId, LedgerId, Status
from bookkeeper.wire.digest import ids_of

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

_REPEATS_MAX = 20
_REPEAT_DELAY_S = 0.1
"""Reads that one question may repeat, and the delay before each, where bookies answer TOO_MANY_REQUESTS."""

_LAST_OF_ALL = EntryId(2**63 - 1)


class Occupancy(enum.Enum):
    """The state of a ledger id on one bookie. The values are for messages."""

    FREE = "nothing"
    CLAIMED = "a key, a fence or a tombstone, and no entry"
    ENTRIES = "entries"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Finding:
    """One bookie's answer.

    last_entry_id: with ENTRIES, the greatest id, by the entry's own header; 2**63 - 1 for an entry without a header.
    body: with ENTRIES, that entry as stored, its digest not checked. why: with UNKNOWN, the error.
    """

    occupancy: Occupancy
    last_entry_id: EntryId = INVALID_ENTRY_ID
    body: bytes = b""
    why: BookKeeperError | None = None

    def __str__(self) -> str:
        match self.occupancy:
            case Occupancy.ENTRIES:
                return f"holds other entries under this id, up to entry {self.last_entry_id}"
            case Occupancy.CLAIMED:
                return "another key claimed this id there, or a ledger of this id was deleted there"
            case Occupancy.UNKNOWN:
                return str(self.why)
        return "holds nothing under this id"

    def admits(self, ledger_id: LedgerId, first_entry_id: EntryId, digest: Digest) -> bool:
        """Return whether a writer may begin a fragment at `first_entry_id` on the bookie.

        Entries below the fragment are never read there. They are accepted if the last one has this ledger's digest:
        auto-recovery may have left copies of this ledger.
        """
        if self.occupancy is Occupancy.FREE:
            return True
        return (
            self.occupancy is Occupancy.ENTRIES
            and self.last_entry_id < first_entry_id
            and digest.verify_last(ledger_id, self.body) is not None
        )


def ask_occupancy(
    context: ClientContext, ledger_id: LedgerId, bookies: Sequence[BookieId]
) -> Deferred[Mapping[BookieId, Finding]]:
    """Ask the bookies, all at once; fires with a finding for each. Never fails.

    Each read ends within the read timeout; reads of busy bookies are repeated (_REPEATS_MAX).
    """
    return _Question(context, ledger_id, bookies).start()


def occupied(ledger_id: LedgerId, findings: Mapping[BookieId, Finding]) -> LedgerIdOccupied | None:
    """Return the error for a new ledger if a bookie holds something under its id, else None."""
    known = {b: found for b, found in findings.items() if found.occupancy in (Occupancy.CLAIMED, Occupancy.ENTRIES)}
    if not known:
        return None
    return LedgerIdOccupied(
        f"ledger {ledger_id}: no ledger of this id exists, but a claim or entries exist under it; choose another id, "
        "or let the client choose one",
        ledger_id=ledger_id,
        answers={bookie_id: str(found) for bookie_id, found in known.items()},
    )


class _Question:
    """One read of the last entry from each of several bookies."""

    def __init__(self, context: ClientContext, ledger_id: LedgerId, bookies: Iterable[BookieId]) -> None:
        self._context, self._ledger_id = context, ledger_id
        self._asked = tuple(dict.fromkeys(bookies))
        self._findings: dict[BookieId, Finding] = {}
        self._repeats = 0
        self._result: Deferred[Mapping[BookieId, Finding]] = Deferred(lambda _: None)

    def start(self) -> Deferred[Mapping[BookieId, Finding]]:
        if not self._asked:
            return succeed({})
        for bookie_id in self._asked:
            self._ask(bookie_id)
        return self._result

    def _ask(self, bookie_id: BookieId) -> None:
        self._context.channel(bookie_id).read(self, self._ledger_id, (LAST_ENTRY,))

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Note the last entry that the bookie holds."""
        body = bytes(bodies[0])
        last = EntryId(ids_of(body)[1]) if len(body) >= ENTRY_HEADER_SIZE else _LAST_OF_ALL
        self._note(bookie_id, Finding(Occupancy.ENTRIES, last_entry_id=last, body=body))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """Note that the bookie holds no entry or refused the read; ask a busy bookie again."""
        if status is Status.NO_LEDGER:
            self._note(bookie_id, Finding(Occupancy.FREE))
        elif status is Status.NO_ENTRY:
            self._note(bookie_id, Finding(Occupancy.CLAIMED))
        elif status is Status.UNAUTHORIZED:
            self._note(bookie_id, Finding(Occupancy.UNKNOWN, why=self._context.unauthorized(bookie_id)))
        elif status is Status.TOO_MANY_REQUESTS and self._repeats < _REPEATS_MAX:
            self._repeats += 1
            self._context.clock.callLater(_REPEAT_DELAY_S, self._ask, bookie_id)
        else:
            error = self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._ledger_id)
            self._note(bookie_id, Finding(Occupancy.UNKNOWN, why=error))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """Note that the bookie could not be asked."""
        self._note(bookie_id, Finding(Occupancy.UNKNOWN, why=error))

    def _note(self, bookie_id: BookieId, finding: Finding) -> None:
        self._findings[bookie_id] = finding
        if len(self._findings) == len(self._asked) and not self._result.called:
            self._result.callback({each: self._findings[each] for each in self._asked})
