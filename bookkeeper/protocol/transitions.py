"""The changes a client makes to a ledger's metadata, each a pure function of what was just read and what is wanted.

A compare-and-set loop reads (value, version), calls one of these, writes the result at that version, and on a conflict
reads and calls again (I-15). Nothing the caller remembers is copied over what was read, except its own intent (I-11,
I-39).

    from          start_recovery   change_ensemble    close_by_writer               close_by_recovery
    OPEN          -> IN_RECOVERY   new last fragment  -> CLOSED                     refused
    IN_RECOVERY   no update        refused (fenced)   refused (fenced)              -> CLOSED with the private fragments
    CLOSED        no update        refused (closed)   same end: no update,          no update: adopt it
                                                      other end: refused (closed)

`replace_members` keeps the state: it swaps members of a fragment whose entries were copied, in any state of the
ledger, but never in the last fragment of one that is not CLOSED.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.errors import (
    BookKeeperError,
    InvalidMetadata,
    LedgerClosed,
    LedgerFencedOff,
    RecoveryFailed,
    ReplicationFailed,
    UnclosedFragment,
)
from bookkeeper.model import INVALID_ENTRY_ID, BookieId, EntryId, Fragment, LedgerMetadata, LedgerState


class NoUpdate(enum.Enum):
    """Nothing needs to be written: the current metadata already says what was wanted, or settles the matter."""

    NO_UPDATE = "no update"


NO_UPDATE = NoUpdate.NO_UPDATE


@dataclass(frozen=True, slots=True)
class Refused:
    """The change must not be made, now or later; `error` says why."""

    error: BookKeeperError


@dataclass(frozen=True, slots=True)
class Reselect:
    """Somebody else brought a chosen bookie into the ensemble: choose again, without `taken` (I-10)."""

    taken: frozenset[BookieId]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One ensemble index: the bookie that failed there and the one chosen instead."""

    failed: BookieId
    chosen: BookieId


Change = LedgerMetadata | NoUpdate | Refused


def start_recovery(current: LedgerMetadata) -> LedgerMetadata | NoUpdate:
    """OPEN -> IN_RECOVERY. With no update the caller looks at the state: IN_RECOVERY goes on, CLOSED is done (I-21)."""
    if current.state is LedgerState.OPEN:
        return current.in_recovery()
    return NO_UPDATE


def change_ensemble(
    current: LedgerMetadata,
    *,
    ledger_id: int,
    first_entry_id: EntryId,
    replacements: Mapping[int, Replacement],
) -> Change | Reselect:
    """The writer's new fragment from `first_entry_id` (its LAC + 1) on (I-09).

    Only indexes that still hold their failed bookie are replaced; those that re-replication changed in the meantime are
    left as they are. With no update (all of them changed already, or an earlier attempt of ours did go through) the
    writer adopts the ensemble of `current.last_fragment`.
    """
    refused = _refuse_writer(current, ledger_id, "an ensemble change")
    if refused is not None:
        return refused
    last = current.last_fragment
    if last.first_entry_id > first_entry_id:
        return Refused(
            LedgerFencedOff(
                f"ledger {ledger_id}: the last fragment starts at entry {last.first_entry_id}, above this writer's "
                f"next unacknowledged entry {first_entry_id}: another writer uses the ledger; open a new one",
                ledger_id=ledger_id,
                entry_id=first_entry_id,
            )
        )
    wanted = {index: one.chosen for index, one in replacements.items() if last.ensemble[index] == one.failed}
    if not wanted:
        return NO_UPDATE
    taken = frozenset(wanted.values()) & frozenset(last.ensemble)
    if taken or len(set(wanted.values())) < len(wanted):
        return Reselect(taken)
    ensemble = list(last.ensemble)
    for index, chosen in wanted.items():
        ensemble[index] = chosen
    return current.with_fragment(first_entry_id, ensemble)


def close_by_writer(current: LedgerMetadata, *, ledger_id: int, last_entry_id: EntryId, length: int) -> Change:
    """The writer's close at its LAC and acknowledged length, on the ensembles just read (I-12).

    Differs from Apache: a ledger IN_RECOVERY is not closed over the recoverer's head. Apache's writer does that, and
    the recoverer may already have found entries beyond this writer's LAC.
    """
    if current.is_closed and current.last_entry_id == last_entry_id and current.length == length:
        return NO_UPDATE
    refused = _refuse_writer(current, ledger_id, f"closing at entry {last_entry_id} with length {length}")
    if refused is not None:
        return refused
    return current.closed(last_entry_id, length)


def close_as_empty(current: LedgerMetadata, *, ledger_id: int) -> Change:
    """Close a ledger as empty, for an operator: its bookies refuse its key, so no recovery can find its end.

    Refused if the metadata itself shows acknowledged entries: a closed ledger with entries, or a later fragment.
    """
    if current.is_closed:
        if current.last_entry_id == INVALID_ENTRY_ID:
            return NO_UPDATE
        why = f"it is closed at entry {current.last_entry_id}"
    elif current.last_fragment.first_entry_id > 0:
        why = f"its entries up to {current.last_fragment.first_entry_id - 1} were acknowledged"
    else:
        return current.closed(INVALID_ENTRY_ID, 0)
    return Refused(LedgerClosed(f"ledger {ledger_id} is not empty: {why}; read it instead", ledger_id=ledger_id))


def close_by_recovery(
    current: LedgerMetadata,
    *,
    ledger_id: int,
    last_entry_id: EntryId,
    length: int,
    fragments: Sequence[Fragment],
) -> Change:
    """The recoverer's close: state, end, length and its private fragments in one write (I-36, I-39).

    fragments: ascending; one that starts above `last_entry_id` holds no entry and is left out. With no update another
    recoverer (or the writer) closed the ledger first: its end is the end.
    """
    if current.is_closed:
        return NO_UPDATE
    if current.state is not LedgerState.IN_RECOVERY:
        return Refused(
            RecoveryFailed(
                f"ledger {ledger_id} went back to {current.state.name} during its recovery; recover it again",
                ledger_id=ledger_id,
            )
        )
    changed = current
    try:
        for fragment in fragments:
            if fragment.first_entry_id <= last_entry_id:
                changed = changed.with_fragment(fragment.first_entry_id, fragment.ensemble)
    except InvalidMetadata as error:
        # Keys only grow (I-17): a fragment below the last one means that the metadata is no longer what was recovered.
        return Refused(
            RecoveryFailed(
                f"ledger {ledger_id} changed during its recovery ({error}); recover it again", ledger_id=ledger_id
            )
        )
    return changed.closed(last_entry_id, length)


def replace_members(
    current: LedgerMetadata,
    *,
    ledger_id: int,
    first_entry_id: EntryId,
    replacements: Mapping[int, Replacement],
) -> Change:
    """Re-replication's change: members of the fragment at `first_entry_id` become those that got copies (I-75).

    Only indexes that still have the member that was to go are changed; with no update somebody else did all of it, or
    an earlier attempt of ours went through. Refused where the fragment is gone or may still grow (I-74), and where a
    chosen bookie became a member by another hand meanwhile (I-10): then copies must be made anew, elsewhere.
    """
    position = next((p for p, f in enumerate(current.fragments) if f.first_entry_id == first_entry_id), None)
    where = f"ledger {ledger_id}, fragment at entry {first_entry_id}"
    if position is None:
        message = f"{where}: the ledger has no such fragment any more"
        return Refused(ReplicationFailed(message, ledger_id=ledger_id, entry_id=first_entry_id))
    if position == len(current.fragments) - 1 and not current.is_closed:
        message = f"{where}: it may still be written; no member is replaced before the ledger is closed"
        return Refused(UnclosedFragment(message, ledger_id=ledger_id, entry_id=first_entry_id))
    fragment = current.fragments[position]
    wanted = {index: one.chosen for index, one in replacements.items() if fragment.ensemble[index] == one.failed}
    if not wanted:
        return NO_UPDATE
    taken = sorted(set(wanted.values()) & set(fragment.ensemble))
    if taken:
        message = f"{where}: {', '.join(taken)} became a member by another hand while it got copies to become one"
        return Refused(ReplicationFailed(message, ledger_id=ledger_id, entry_id=first_entry_id))
    ensemble = list(fragment.ensemble)
    for index, chosen in wanted.items():
        ensemble[index] = chosen
    changed = Fragment(fragment.first_entry_id, tuple(ensemble))
    fragments = (*current.fragments[:position], changed, *current.fragments[position + 1 :])
    return dataclasses.replace(current, fragments=fragments)


def _refuse_writer(current: LedgerMetadata, ledger_id: int, what: str) -> Refused | None:
    """A writer stops at the first sight of a state that is not OPEN (I-11)."""
    if current.state is LedgerState.OPEN:
        return None
    if current.state is LedgerState.IN_RECOVERY:
        return Refused(
            LedgerFencedOff(
                f"ledger {ledger_id} is being recovered by another client ({what} refused); what was acknowledged is "
                "kept, write on in a new ledger",
                ledger_id=ledger_id,
            )
        )
    return Refused(
        LedgerClosed(
            f"ledger {ledger_id} was closed by another client at entry {current.last_entry_id} with length "
            f"{current.length} ({what} refused); write on in a new ledger",
            ledger_id=ledger_id,
        )
    )


def rename_member(current: LedgerMetadata, *, ledger_id: int, old: BookieId, new: BookieId) -> Change:
    """One bookie under another id: `old` becomes `new` in every fragment, whatever the state; no copy is made.

    Refused where a fragment names both: they are two bookies then, and one of their copies would be lost (I-10).
    """
    fragments = []
    for fragment in current.fragments:
        if old in fragment.ensemble and new in fragment.ensemble:
            message = (
                f"ledger {ledger_id}, fragment at entry {fragment.first_entry_id}: it names {old} and {new}, which are "
                "two bookies then; neither is renamed"
            )
            return Refused(ReplicationFailed(message, ledger_id=ledger_id, entry_id=fragment.first_entry_id))
        ensemble = tuple(new if member == old else member for member in fragment.ensemble)
        fragments.append(Fragment(fragment.first_entry_id, ensemble))
    if tuple(fragments) == current.fragments:
        return NO_UPDATE
    return dataclasses.replace(current, fragments=tuple(fragments))
