"""What a bookie that started again must hold, compared with what it was asked before. Raises Violation.

An observation is everything the bookie says of the ledgers it was ever asked about. It must agree with the belief, and
what one start has shown, the next one must show again although nothing unsynced survived in between: a replay makes
durable what it brings back, and a torn tail that it cleared does not come back (I-51, I-53). Only after a kill, what
nobody was told of may show up from the cache of an index file, and be gone after a power cut.

What was damaged at rest may be answered as unknown, and is never denied (I-31, I-59).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bookkeeper.errors import StorageError
from bookkeeper.model import Status
from tests.crashpoints.history import Belief, Ledger
from tests.crashpoints.machine import BookieProcess

STRANGER = 1 << 60
"""A ledger that no story has."""


class Violation(AssertionError):
    """The bookie broke a promise."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a bookie shows of one ledger. entries: those it has. unknown: those of which it says that it cannot tell.

    certain: False where that holds for the ledger as a whole.
    """

    entries: dict[int, bytes]
    key: bytes | None
    fenced: bool
    lac: bytes | None
    unknown: frozenset[int] = frozenset()
    certain: bool = True


def observe(bookie: BookieProcess, belief: Belief, doubted: Collection[int] = frozenset()) -> dict[int, Held | None]:
    """Ask about everything; None for a ledger that is certainly not there. Raises Violation for a strange answer.

    doubted: ledgers of whose index the disk may hold less than was vouched for; they may be unknown, as damaged ones.
    """
    observed: dict[int, Held | None] = {}
    storage = bookie.storage
    for ledger_id in (*sorted(belief.ledgers), STRANGER):
        ledger = belief.ledgers.get(ledger_id, Ledger())
        index_damaged = ledger.index_damaged or ledger_id in doubted
        last = max(ledger.entries, default=-1)
        probed = sorted({*ledger.entries, *(entry_id + 1 for entry_id in ledger.entries), 0, last + 1})
        try:
            exists = storage.exists(ledger_id)
        except StorageError as error:
            if not index_damaged:
                raise Violation(f"ledger {ledger_id} cannot be read: {error}") from error
            if set(bookie.read(ledger_id, probed)) != {Status.IO_ERROR}:
                raise Violation(f"ledger {ledger_id} cannot be read, and still answers") from error
            observed[ledger_id] = Held({}, None, fenced=False, lac=None, unknown=frozenset(probed), certain=False)
            continue
        results = dict(zip(probed, bookie.read(ledger_id, probed), strict=True))
        entries = {entry_id: result for entry_id, result in results.items() if isinstance(result, bytes)}
        negative = Status.NO_ENTRY if exists else Status.NO_LEDGER
        unknown = frozenset(
            entry_id
            for entry_id, result in results.items()
            if result is Status.IO_ERROR and (index_damaged or _is_damaged(ledger, entry_id))
        )
        for entry_id, result in results.items():
            if entry_id in unknown:
                continue
            # A deleted ledger's index may come back after its logs are gone for good.
            if isinstance(result, Status) and result is not negative and not ledger.deleted:
                raise Violation(f"ledger {ledger_id}, entry {entry_id}: {result.name} where {negative.name} is due")
        last_held = max([*entries, *unknown], default=None)
        if storage.last_entry_id(ledger_id) != last_held and not ledger.deleted and not index_damaged:
            raise Violation(f"ledger {ledger_id}: last entry {storage.last_entry_id(ledger_id)}, held {last_held}")
        observed[ledger_id] = (
            Held(
                entries,
                storage.master_key(ledger_id),
                storage.is_fenced(ledger_id),
                storage.explicit_lac(ledger_id),
                unknown,
            )
            if exists
            else None
        )
    strange = set(storage.ledger_ids()) - set(belief.ledgers)
    if strange:
        raise Violation(f"ledgers {sorted(strange)} were never asked for")
    return observed


def _is_damaged(ledger: Ledger, entry_id: int) -> bool:
    entry = ledger.entries.get(entry_id)
    return entry is not None and entry.damaged


def check(belief: Belief, observed: dict[int, Held | None]) -> None:
    """What was acknowledged is there, what is there was asked for."""
    for ledger_id, held in observed.items():
        ledger = belief.ledgers.get(ledger_id, Ledger())
        if held is None:
            if ledger.must_have_key and not ledger.deleted:
                raise Violation(f"ledger {ledger_id} was acknowledged and is denied (I-31)")
            continue
        if ledger_id == STRANGER or not ledger.asked:
            raise Violation(f"ledger {ledger_id} is there and nobody made it")
        _check_entries(ledger_id, ledger, held)
        if ledger.deleted or not held.certain:
            continue
        if held.key is None and ledger.must_have_key:
            raise Violation(f"ledger {ledger_id} lost its key (I-53)")
        if held.key is not None and held.key not in ledger.keys:
            raise Violation(f"ledger {ledger_id} has the key {held.key!r}, which nobody gave it (I-73)")
        if ledger.fenced and not held.fenced:
            raise Violation(f"ledger {ledger_id} lost its fence (I-23, I-24)")
        if held.fenced and not ledger.may_be_fenced:
            raise Violation(f"ledger {ledger_id} is fenced and nobody fenced it")
        if ledger.lac is not None and (held.lac is None or held.lac < ledger.lac):
            raise Violation(f"the explicit LAC of ledger {ledger_id} went back to {held.lac!r} (I-07)")
        if held.lac is not None and held.lac not in ledger.lacs:
            raise Violation(f"ledger {ledger_id} has the LAC packet {held.lac!r}, which nobody wrote")


def _check_entries(ledger_id: int, ledger: Ledger, held: Held) -> None:
    for entry_id, body in held.entries.items():
        entry = ledger.entries.get(entry_id)
        if entry is None or body not in entry.possible:
            raise Violation(f"ledger {ledger_id}, entry {entry_id}: {body[:60]!r} was never written")
        if entry.held and entry.forced and body not in entry.agreed:
            raise Violation(f"ledger {ledger_id}, entry {entry_id}: another body than the acknowledged one (I-69)")
    for entry_id, entry in ledger.entries.items():
        if entry.held and not ledger.deleted and entry_id not in held.entries and entry_id not in held.unknown:
            raise Violation(f"ledger {ledger_id}, entry {entry_id}: acknowledged and denied (I-31, I-47)")


def check_unchanged(
    belief: Belief, before: dict[int, Held | None], after: dict[int, Held | None], *, was_killed: bool
) -> None:
    """What was shown `before`, of what `belief` knows, is shown `after` a power cut; newer entries may be there."""
    for ledger_id, held in before.items():
        known = belief.ledgers.get(ledger_id, Ledger())
        if known.deleted or known.elsewhere:
            continue
        difference = _difference(known, held, after[ledger_id], may_vanish=was_killed)
        if difference:
            raise Violation(f"ledger {ledger_id} was changed by a power cut after the restart: {difference}")


def _difference(known: Ledger, before: Held | None, after: Held | None, *, may_vanish: bool) -> str:
    if before is None:
        return "absent before, there after" if after is not None and known.asked else ""
    if not (before.certain and (after is None or after.certain)):
        return ""
    if after is None:
        return "" if may_vanish and not known.must_have_key else "there before, absent after"
    parts = []
    lost, new = before.entries.keys() - after.entries.keys(), after.entries.keys() - before.entries.keys()
    if may_vanish:
        lost = {entry_id for entry_id in lost if known.entries[entry_id].held}
    if lost:
        parts.append(f"entries {sorted(lost)} are gone")
    new -= before.unknown
    if new & known.entries.keys():
        parts.append(f"entries {sorted(new & known.entries.keys())} came")
    if any(after.entries.get(entry_id, body) != body for entry_id, body in before.entries.items()):
        parts.append("other bodies")
    if before.key is not None and before.key != after.key:
        parts.append(f"key {before.key!r} before, {after.key!r} after")
    if before.lac != after.lac or (before.fenced, after.fenced) not in _FENCES[may_vanish]:
        parts.append(f"fence and LAC {before.fenced}, {before.lac!r} before, {after.fenced}, {after.lac!r} after")
    return "; ".join(parts)


_FENCES = {
    False: {(False, False), (True, True)},
    True: {(False, False), (True, True), (True, False)},
}
