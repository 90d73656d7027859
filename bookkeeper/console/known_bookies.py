"""Whether a cluster knows a bookie at all: a mistyped id must not pass for one that has nothing left.

A bookie is known that is registered or has a cookie. One that is neither may still be named by ledgers, when its cookie
was deleted too early; only when none does either, nobody ever meant it, or it was taken out before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches

from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, LedgerId

READS_MAX = 64
"""Ledgers whose metadata is read at a time."""


async def strangers(store: MetadataStore, bookies: Collection[BookieId]) -> list[BookieId]:
    """Those of `bookies` that are neither registered nor have a cookie. Raises MetadataError."""
    available = await store.bookies.current()
    return [
        each
        for each in bookies
        if each not in available.writable and each not in available.read_only and await store.cookies.read(each) is None
    ]


async def taken_for(store: MetadataStore, stranger: BookieId) -> str:
    """Which bookie was probably meant, or where they are listed."""
    available = await store.bookies.current()
    known = {*available.writable, *available.read_only, *await store.cookies.all()}
    near = get_close_matches(stranger, known, n=1)
    return f"did you mean {near[0]}?" if near else "`bookkeeper shell listbookies -a` lists those with a cookie"


async def nobody_names(store: MetadataStore, bookies: Collection[BookieId]) -> InvalidArgument:
    """The error for strangers that no ledger names."""
    meant = await taken_for(store, next(iter(bookies)))
    return InvalidArgument(
        f"there is no bookie {', '.join(bookies)}: not registered, no cookie, and no ledger names it; {meant} "
        "(one that was taken out before is as unknown)"
    )


async def count_naming(
    store: MetadataStore,
    bookie_id: BookieId,
    *,
    at_most: int,
    on_seen: Callable[[int], object],
    bad_records: BadRecords,
) -> int:
    """Ledgers of which the metadata has a copy on this bookie; `at_most` where there are as many or more.

    on_seen: receives how many ledgers were read. bad_records: receives stray znodes, which are no ledgers. Raises
    MetadataError.
    """
    seen = named = 0

    async def look(ledger_id: LedgerId) -> None:
        nonlocal named
        try:
            metadata = (await store.ledgers.read(ledger_id)).value
        except NoSuchLedger:
            return  # deleted since it was listed
        named += any(bookie_id in fragment.ensemble for fragment in metadata.fragments)

    async for batch in store.ledgers.ids(bad_records):
        for start in range(0, len(batch), READS_MAX):
            piece = batch[start : start + READS_MAX]
            await in_parallel((look(ledger_id) for ledger_id in piece), READS_MAX)
            seen += len(piece)
            on_seen(seen)
            if named >= at_most:
                return at_most
    return named
