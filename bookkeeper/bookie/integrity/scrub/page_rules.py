"""What a damaged index page has to say, from what it names and from what the entry logs have. Pure.

The logs were searched, and are complete witnesses: all that may have entries of the ledger are here and whole
(page_repair.py). Of each slot, with what the damaged page names:

    names                                              logs have     the slot is
    a place with a record of the entry                 anything      that place: a rewritten copy may be left elsewhere
    nothing, or a place without one                    a record      the last record
    nothing                                            none          empty
    a place without a record, in a log that is here    none          empty: the place is not what was written
    a place that never was: before the first record,   none          empty, likewise
        or of a log id that this bookie has not used
    a place in a log that is gone                      none          not certain: the log was collected, and the place
                                                                     is not what was written; or the log was lost

A checksum decides beyond that: when the page with such slots empty has the very checksum that was noted for what it
should have, that is what was written, bit by bit, and nothing of it is in doubt. Then a slot that was written empty
stays so even if a log has a record, of a ledger that was dropped here once and came back. What was noted outlives that
entries are written onto the damaged page (index_checksums.damaged_value).

"Empty" denies an entry, so a place counts as wrong only for one of these reasons, never because it looks like a flipped
bit (I-31, I-59).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from bookkeeper.bookie.integrity.checksums.index import page_checksum
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS, encode_slots


def settled_page(
    *,
    found: Sequence[int],
    named: Sequence[int],
    now: Sequence[int],
    expected: int | None,
    is_at: Callable[[int, int], bool],
    doubt: Callable[[int, int], str | None],
) -> array[int] | str:
    """The locations of the whole page, or why they are not certain.

    found: of all slots, as the logs have them. named: as the damaged file has them. now: as memory has them, what was
    written since included; both may be shorter. expected: checksum of what the file should have, None where that is not
    known. is_at, doubt (slot, location): is there a record of the entry; why a place without one may be right.
    """
    kept, now, unwitnessed = _whole(named), _whole(now), list[int]()
    for slot, location in enumerate(named):
        if location and location != found[slot] and not is_at(slot, location):
            kept[slot] = found[slot]
            if not found[slot]:
                unwitnessed.append(slot)
    filled = array("q", [old or new for old, new in zip(kept, found, strict=True)])
    slots = next((each for each in (filled, kept) if page_checksum(encode_slots(each)) == expected), None)
    if slots is None:
        slots = filled
        for slot in unwitnessed:
            why = doubt(slot, named[slot]) if now[slot] == named[slot] else None
            if why is not None:
                return why
    for slot, location in enumerate(now):
        newer = location and location != slots[slot] and (slot >= len(named) or location != named[slot])
        if newer and (location == found[slot] or is_at(slot, location)):
            slots[slot] = location
    return slots


def _whole(slots: Sequence[int]) -> array[int]:
    return array("q", [*slots, *bytes(PAGE_SLOTS - len(slots))])
