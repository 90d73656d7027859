"""What of each ledger a query is to read, when it is planned: chosen, there, confirmed. Thread: any; one crossing."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.spark.bounds import Bounds
from bookkeeper.spark.ledger_options import LATEST, LedgerReadOptions, Positions
from bookkeeper.spark.planning import Extent, extent_of

log = Logger()

AT_ONCE = 64
"""Ledgers asked about at a time."""


def plan_extents(
    client: BlockingBookKeeper, options: LedgerReadOptions, ledger_ids: Bounds, entry_ids: Bounds
) -> list[Extent]:
    """The extents of the chosen ledgers that pass the bounds, by ledger id; those without an entry in them left out.

    Raises NoSuchLedger for a ledger that was named by itself and is gone, unless data loss is to be borne.
    """
    return client.run(lambda ledgers: Deferred.fromCoroutine(_extents(ledgers, options, ledger_ids, entry_ids)))


async def _extents(
    client: LedgerClient, options: LedgerReadOptions, ledger_ids: Bounds, entry_ids: Bounds
) -> list[Extent]:
    chosen = await _chosen(client, options, ledger_ids)
    found: dict[int, Extent] = {}

    async def look(ledger_id: int) -> None:
        try:
            extent = await _extent(client, options, ledger_id, entry_ids)
        except NoSuchLedger:
            _gone(options, ledger_id)
        else:
            if extent is not None:
                found[ledger_id] = extent

    await in_parallel((look(ledger_id) for ledger_id in chosen), AT_ONCE)
    return [found[ledger_id] for ledger_id in chosen if ledger_id in found]


async def _chosen(client: LedgerClient, options: LedgerReadOptions, ledger_ids: Bounds) -> list[int]:
    """Those that were named by themselves, there or not; and of ranges those that are there. Ascending."""
    choice = options.ledgers
    assert choice is not None
    chosen = set(choice.single)
    if choice.ranges is None or len(chosen) < len(choice.ranges):
        async for batch in client.ids():
            chosen.update(ledger_id for ledger_id in batch if ledger_id in choice)
    return sorted(ledger_id for ledger_id in chosen if ledger_id in ledger_ids)


async def _extent(client: LedgerClient, options: LedgerReadOptions, ledger_id: int, entry_ids: Bounds) -> Extent | None:
    metadata = await client.metadata(ledger_id)
    if metadata.last_entry_id is not None and metadata.length is not None:
        end, length = metadata.last_entry_id, metadata.length
    else:
        open_it = client.open_as_administrator(ledger_id, recover=False)
        async with await open_it as handle:
            end, length, metadata = handle.last_add_confirmed, handle.length, handle.metadata
    first, last = _range(options, ledger_id, end)
    low, high = entry_ids.range
    first, last = max(first, low), min(last, high)
    return extent_of(ledger_id, metadata, first, last, length=length, end=end) if first <= last else None


def _range(options: LedgerReadOptions, ledger_id: int, end: int) -> tuple[int, int]:
    """The entries that were asked for, of those up to `end`. Raises InvalidArgument for positions beyond it."""
    start = (options.start or Positions(0, {})).of(ledger_id, end + 1)
    stop = (options.end or Positions(LATEST, {})).of(ledger_id, end + 1)
    for word, position in (("startingOffsets", start), ("endingOffsets", stop)):
        if position > end + 1:
            raise InvalidArgument(
                f"option {word}: ledger {ledger_id} has entries 0..{end} so far; {position} is beyond. Use latest (-1)"
            )
    return start, stop - 1


def _gone(options: LedgerReadOptions, ledger_id: int) -> None:
    what = f"ledger {ledger_id} was to be read and is not there: deleted, or never made"
    if options.fail_on_data_loss:
        raise NoSuchLedger(f"{what}. With option failOnDataLoss=false it is left out with a warning")
    log.warn("{what}; it is left out (failOnDataLoss=false)", what=what)
