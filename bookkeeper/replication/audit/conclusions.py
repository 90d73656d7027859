"""What the auditor concludes from what it was told. Pure. Source: Apache 4.18 replication/Auditor.java and its tasks.

Losses, with a recovery delay D (lostBookieRecoveryDelay) and the set of bookies that are gone and not audited yet:

    event                              gone before    then
    a bookie is gone, D = 0            any            audit now
    a bookie is gone, D > 0            none           audit in D seconds
    another one is gone, D > 0         one            audit now: two at once are no restart
    the last of them is back           any            nothing: the audit is called off
    D is set to 0, or to what it was   any            audit now: an operator asks for it so
    an operator asks for an audit      any            audit now
    D is set to something else         one            audit in D seconds from now

Gone is a bookie that the cluster knows (it registered, or has a cookie) and that is registered neither as writable nor
as read-only. Those that were gone before the auditor began count as gone at that moment (I-77). An audit looks at all
ledgers and at all bookies that are not registered, however it came about; so ledgers may also name bookies that nobody
knew, and they are found by it.

A bookie stamps its cookie before it registers for the first time. An auditor that begins in between knows it by its
cookie alone, as it knows one that was lost before: it counts, since what such a bookie holds is not known, and nobody
says of it that it is gone (`unseen`).

Differs from Apache: a new auditor gives the delay to a bookie that is gone when it begins, too. Auditors run beside
bookies: with every restart of that one bookie the next auditor would else publish all its ledgers at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Container, Iterable

from bookkeeper.client.bookies.placement import spans_racks
from bookkeeper.model import BookieId, Fragment, LedgerMetadata
from bookkeeper.replication.copies.verdicts import FragmentVerdict, Standing

Suspicion = tuple[BookieId, int | None]
"""A bookie and the entry that it did not deliver."""

_CERTAIN = frozenset({Standing.ABSENT, Standing.UNREADABLE})


class Loss(enum.Enum):
    """What an event means for the audit of lost bookies."""

    NOTHING = "nothing"
    AUDIT = "audit now"
    DELAYED = "an audit is due later"
    CALLED_OFF = "the audit that was due is not needed"


class LostBookies:
    """Which bookies are gone, and when that is to be audited. See the table above.

    due_s: when the next audit is due, by the clock of the events; None: none is. gone: what it is about. Invariant:
    `due_s` is set exactly while `gone` is not empty, and then len(gone) == 1. audited: what the latest audit that was
    called for is about; empty where nobody went. unseen: those that have a cookie and were never registered yet.
    """

    def __init__(self, known: Iterable[BookieId], delay_s: float) -> None:
        self._expected = set(known)  # and not reported gone yet
        self.unseen = set(known)
        self.delay_s = delay_s
        self.gone: set[BookieId] = set()
        self.audited: frozenset[BookieId] = frozenset()
        self.due_s: float | None = None

    def on_registered(self, now_s: float, registered: Collection[BookieId]) -> Loss:
        """All bookies that are registered now, in either mode."""
        was_due = self.due_s is not None
        self._expected.update(registered)
        self.unseen.difference_update(registered)
        self.gone.difference_update(registered)
        newly = self._expected.difference(registered)
        self._expected.difference_update(newly)
        self.gone.update(newly)
        if not self.gone:
            self.due_s = None
            return Loss.CALLED_OFF if was_due else Loss.NOTHING
        if self.delay_s <= 0 or len(self.gone) > 1:
            return self._audit()
        if newly:
            # Alone, or in place of another one that is back.
            self.due_s = now_s + self.delay_s
            return Loss.DELAYED
        return Loss.NOTHING

    def on_delay(self, now_s: float, delay_s: float) -> Loss:
        """Somebody set the delay."""
        same, self.delay_s = delay_s == self.delay_s, delay_s
        if same or delay_s <= 0:
            return self._audit()
        if self.gone:
            self.due_s = now_s + delay_s
            return Loss.DELAYED
        return Loss.NOTHING

    def on_demand(self) -> Loss:
        """Somebody wants to know."""
        return self._audit()

    def on_time(self, now_s: float) -> Loss:
        """Time has passed."""
        if self.due_s is not None and now_s >= self.due_s:
            return self._audit()
        return Loss.NOTHING

    def words(self, bookies: Collection[BookieId]) -> str:
        """`a, b are gone; c has a cookie, and has not registered since this auditor began`."""
        said = []
        if gone := sorted(set(bookies) - self.unseen):
            said.append(f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone")
        if unseen := sorted(self.unseen.intersection(bookies)):
            have = "has a cookie, and has" if len(unseen) == 1 else "have cookies, and have"
            said.append(f"{', '.join(unseen)} {have} not registered since this auditor began")
        return "; ".join(said)

    def _audit(self) -> Loss:
        self.audited = frozenset(self.gone)
        self.gone.clear()
        self.due_s = None
        return Loss.AUDIT


def lost_members(metadata: LedgerMetadata, registered: Container[BookieId]) -> list[BookieId]:
    """Bookies of any fragment that are not registered, each once, in the order of the fragments."""
    members = dict.fromkeys(bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble)
    return [bookie_id for bookie_id in members if bookie_id not in registered]


def members_of(metadata: LedgerMetadata) -> frozenset[BookieId]:
    """Bookies of any fragment."""
    return frozenset(bookie_id for fragment in metadata.fragments for bookie_id in fragment.ensemble)


# --- the check of all ledgers


def certain_losses(verdicts: Iterable[FragmentVerdict], patient_with: Container[BookieId]) -> set[BookieId]:
    """Bookies that lack copies beyond doubt: in a fragment whose end is agreed, or that are not registered.

    patient_with: bookies that are gone and still have time to come back. One that gave no answer lacks nothing (I-77).
    """
    return {
        copy.bookie_id
        for verdict in verdicts
        for copy in verdict.copies
        if (copy.standing is Standing.GONE and copy.bookie_id not in patient_with)
        or (copy.standing in _CERTAIN and verdict.fragment.agreed)
    }


def suspicions(verdicts: Iterable[FragmentVerdict]) -> set[Suspicion]:
    """Entries not delivered of a fragment that is still written.

    An add is acknowledged by Qa of Qw bookies: one of them may be behind for a moment. Whoever lacks the same entry at
    a second look, some time later, lacks it.
    """
    return {
        (copy.bookie_id, copy.entry_id)
        for verdict in verdicts
        for copy in verdict.copies
        if copy.standing in _CERTAIN and not verdict.fragment.agreed
    }


def unanswered(verdicts: Iterable[FragmentVerdict]) -> list[BookieId]:
    """Registered bookies that gave no verdict on some of their copies."""
    silent = {copy.bookie_id for verdict in verdicts for copy in verdict.copies if copy.standing is Standing.SILENT}
    return sorted(silent)


# --- placement


class Adherence(enum.Enum):
    """Whether the bookies of a ledger stand in enough racks."""

    STRICT = "in as many racks as are asked for"
    SOFT = "in as many racks as there are"
    FAILS = "in too few racks"


def placement_of(
    metadata: LedgerMetadata, rack_of: Callable[[BookieId], str], racks_min: int, racks_there: int
) -> Adherence:
    """The worst of the fragments that take no more entries. racks_there: in which bookies are registered."""
    worst = Adherence.STRICT
    for fragment in settled_fragments(metadata):
        if spans_racks(fragment.ensemble, metadata.write_quorum, rack_of, racks_min):
            continue
        if not spans_racks(fragment.ensemble, metadata.write_quorum, rack_of, min(racks_min, racks_there)):
            return Adherence.FAILS
        worst = Adherence.SOFT
    return worst


def settled_fragments(metadata: LedgerMetadata) -> tuple[Fragment, ...]:
    """Those that take no more entries: all of a closed ledger, else all but the last."""
    return metadata.fragments if metadata.is_closed else metadata.fragments[:-1]


# --- time


def first_wait_s(interval_s: float, last_ended_ms: int | None, now_ms: int) -> float:
    """How long a new auditor waits with a check that runs every `interval_s` and last ended then (None: never).

    A time in the future is a clock that was wrong: the interval begins now.
    """
    if last_ended_ms is None:
        return 0.0
    return max(0.0, interval_s - max(0, now_ms - last_ended_ms) / 1000)


def is_overdue(marked_ms: int | None, grace_s: float, now_ms: int) -> bool:
    """Whether a ledger waits for its repair for longer than the grace; not where it is not known since when."""
    return marked_ms is not None and grace_s > 0 and now_ms - marked_ms > grace_s * 1000
