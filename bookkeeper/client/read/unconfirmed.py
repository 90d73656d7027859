"""Entries that bookies hold after the last add confirmed (LAC) that a reader has seen.

While a ledger is open, such entries may be acknowledged and the LAC not sent to the bookies yet. Or their writer died
before the acknowledgement, and a recovery may drop them. They are never read as confirmed (I-42). A reader that ends
before them reports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookkeeper.errors import BookKeeperError, EntryMissing, NoSuchEntry, ReadBeyondEnd
from bookkeeper.model import EntryId

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ReadHandle


async def last_stored(handle: ReadHandle) -> EntryId:
    """Return the id of the last entry that bookies hold, confirmed or not; -1 if there is none.

    No later entry is acknowledged now: too few bookies for its ack quorum can hold it. The search goes by doubling
    steps, then by halves. Raises BookKeeperError.
    """
    last = int(handle.last_add_confirmed)
    if handle.closed:
        return EntryId(last)

    async def is_stored(entry_id: int) -> bool:
        try:
            await handle.read_unconfirmed(entry_id, entry_id)
        except (EntryMissing, NoSuchEntry, ReadBeyondEnd):  # ReadBeyondEnd: the ledger was closed during the search
            return False
        return True

    step = 1
    while await is_stored(last + step):
        last += step
        step *= 2
    missing = last + step
    while missing - last > 1:
        middle = (last + missing) // 2
        if await is_stored(middle):
            last = middle
        else:
            missing = middle
    return EntryId(last)


async def report(handle: ReadHandle, end: int | None = None) -> str | None:
    """Return a sentence on the entries that a reader leaves out if it ends at `end`; None if there are none.

    end: -1 for a reader of no entry; by default the LAC. Entries that were confirmed, or with which the ledger was
    closed, after the reader took its end are left out too.
    """
    last = int(handle.last_add_confirmed) if end is None else end
    try:
        stored = await last_stored(handle)
    except BookKeeperError as error:
        return _text(handle.ledger_id, last, f"whether later ones are acknowledged is unknown ({error})")
    if handle.closed:
        stored = handle.last_add_confirmed
    if stored <= last:
        return None
    later = f"entry {stored} is" if stored == last + 1 else f"entries {last + 1}..{stored} are"
    if handle.closed:
        return f"ledger {handle.ledger_id} was closed while it was read; {later} behind the end that was read"
    return _text(handle.ledger_id, last, f"{later} stored and may be acknowledged too")


def _text(ledger_id: int, last: int, later: str) -> str:
    known = f"entry {last} is the last one known" if last >= 0 else "no entry is known"
    return f"ledger {ledger_id} is not closed, and {known} to be acknowledged; {later}"
