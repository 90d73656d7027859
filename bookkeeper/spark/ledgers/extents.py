"""What of each ledger a query is to read, when it is planned: chosen, there, confirmed. Thread: any; one crossing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.model import LedgerMetadata
from bookkeeper.spark.ledgers.offsets import Between
from bookkeeper.spark.ledgers.options import EARLIEST, LATEST, LedgerReadOptions, Positions, unread
from bookkeeper.spark.ledgers.plan import Extent, extent_of
from bookkeeper.spark.ledgers.unconfirmed import Unconfirmed
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.said_as import LOSS_BORNE, OF_OPTIONS, Words
from bookkeeper.spark.sink.commits import commits_at

log = Logger()

AT_ONCE = 64
"""Ledgers asked about at a time."""

GUESSED_SIZE = 256.0
"""Bytes of an entry of an open ledger, for dividing the work of a stream: what is known of it grows with the ledger."""


def leave_out(words: Words) -> str:
    """What a user can do about a ledger that is gone; to follow what is wrong."""
    return words.remedy("With {} it is left out with a warning", LOSS_BORNE)


_LEAVE_OUT = leave_out(OF_OPTIONS)


def plan_extents(
    client: BlockingBookKeeper,
    options: LedgerReadOptions,
    ledger_ids: Bounds,
    entry_ids: Bounds,
    *,
    remedy: str = _LEAVE_OUT,
) -> list[Extent]:
    """The extents of the chosen ledgers that pass the bounds, in their order; those without an entry in them left out.

    remedy: what a user can do about a ledger that is gone, as `leave_out` says it.
    Raises NoSuchLedger for a ledger that was named by itself, also with its position, and is gone, unless data loss is
    to be borne; InvalidArgument for positions of ledgers that are not read.
    """
    return client.run(lambda ledgers: Deferred.fromCoroutine(_extents(ledgers, options, ledger_ids, entry_ids, remedy)))


async def _extents(
    client: LedgerClient, options: LedgerReadOptions, ledger_ids: Bounds, entry_ids: Bounds, remedy: str
) -> list[Extent]:
    chosen = await _chosen(client, options, ledger_ids)
    if options.ledgers is not None:
        named = {each for positions in (options.start, options.end) if positions for each in positions.by_ledger}
        chosen = sorted({*chosen, *(each for each in named if each in ledger_ids)})
    found: dict[int, Extent] = {}
    unconfirmed = Unconfirmed()

    async def look(ledger_id: int) -> None:
        try:
            extent = await _extent(client, options, ledger_id, entry_ids, unconfirmed)
        except NoSuchLedger:
            _gone(options, ledger_id, remedy)
        else:
            if extent is not None:
                found[ledger_id] = extent

    await in_parallel((look(ledger_id) for ledger_id in chosen), AT_ONCE)
    unconfirmed.warn()
    return [found[ledger_id] for ledger_id in chosen if ledger_id in found]


def chosen_ledgers(client: BlockingBookKeeper, options: LedgerReadOptions) -> list[int]:
    """The ids that are chosen now, ascending; those named by themselves, there or not."""
    return client.run(lambda ledgers: Deferred.fromCoroutine(_chosen(ledgers, options, Bounds())))


def extents_between(client: BlockingBookKeeper, options: LedgerReadOptions, wanted: Sequence[Between]) -> list[Extent]:
    """What lies between two positions of a stream, always cut alike: into sizes that never change.

    Raises NoSuchLedger for a ledger that was read to its end and is gone, unless data loss is to be borne.
    """
    found = client.run(lambda ledgers: Deferred.fromCoroutine(_extents_between(ledgers, options, wanted)))
    return [extent for extent in found if extent.last_entry_id >= extent.first_entry_id]


async def _extents_between(client: LedgerClient, options: LedgerReadOptions, wanted: Sequence[Between]) -> list[Extent]:
    found: dict[int, Extent] = {}

    async def look(each: Between) -> None:
        last, mean_size = each.last_entry_id, GUESSED_SIZE
        if last is None:
            last, mean_size = await _end(client, options, each.ledger_id)
        size = int(mean_size * (last - each.first_entry_id + 1))
        found[each.ledger_id] = Extent(each.ledger_id, each.first_entry_id, last, max(0, size))

    await in_parallel((look(each) for each in wanted), AT_ONCE)
    return [found[each.ledger_id] for each in wanted]


async def _end(client: LedgerClient, options: LedgerReadOptions, ledger_id: int) -> tuple[int, float]:
    """The last entry of a closed ledger and the mean size of its entries; -1 for one that is gone."""
    try:
        metadata = await client.metadata(ledger_id)
        if metadata.last_entry_id is None:  # it was closed when the position was taken: an old answer
            await client.context.store.sync()
            metadata = await client.metadata(ledger_id)
    except NoSuchLedger:
        _gone(options, ledger_id, _LEAVE_OUT)
        return -1, 0.0
    if metadata.last_entry_id is None or metadata.length is None:
        raise InvalidArgument(
            f"ledger {ledger_id} is not closed, but the checkpoint says that it was read to its end: "
            "is it of another cluster?"
        )
    return metadata.last_entry_id, metadata.length / max(1, metadata.last_entry_id + 1)


async def _chosen(client: LedgerClient, options: LedgerReadOptions, ledger_ids: Bounds) -> list[int]:
    """Those that were named by themselves, there or not; and of ranges those that are there. Ascending.

    Of a job or query: what it has committed, there or not, in that order.
    """
    if options.committed is not None:
        commits = (await commits_at(client, options.commit_path)).commits(options.committed)
        named = [ledger.ledger_id async for commit in commits for ledger in commit.ledgers]
        for word, positions in (("startingOffsets", options.start), ("endingOffsets", options.end)):
            if unknown := unread(positions, frozenset(named)):
                raise InvalidArgument(
                    f"option {word} names ledgers that are not read, as {options.committed} has not committed them, or "
                    f"they were forgotten: {unknown}"
                )
        return [ledger_id for ledger_id in named if ledger_id in ledger_ids]
    choice = options.ledgers
    assert choice is not None
    # What was made or closed before is seen: a server that lags lacks new ledgers, and calls closed ones open (I-19).
    await client.store.sync()
    chosen = set(choice.single)
    if choice.ranges is None or len(chosen) < len(choice.ranges):
        strays = BadRecords()
        async for batch in client.ids(strays):
            chosen.update(ledger_id for ledger_id in batch if ledger_id in choice)
        ReportedRecords().report(strays, "it is passed over because it is not a ledger")
    return sorted(ledger_id for ledger_id in chosen if ledger_id in ledger_ids)


async def _extent(
    client: LedgerClient, options: LedgerReadOptions, ledger_id: int, entry_ids: Bounds, unconfirmed: Unconfirmed
) -> Extent | None:
    low, high = entry_ids.range
    end, length, metadata, report = await reach_of(client, ledger_id, report=_to_the_end(options, ledger_id))
    first, last = _range(options, ledger_id, end)
    if report is not None and last < high:
        unconfirmed.note(report)
    first, last = max(first, low), min(last, high)
    return extent_of(ledger_id, metadata, first, last, length=length, end=end) if first <= last else None


class Reach(NamedTuple):
    """The readable part of a ledger: its last entry, -1 for none, the payload bytes up to it, and the metadata.

    unconfirmed: the result of `ReadHandle.report_unconfirmed`, if requested and the ledger is not closed.
    """

    end: int
    length: int
    metadata: LedgerMetadata
    unconfirmed: str | None


async def reach_of(client: LedgerClient, ledger_id: int, *, report: bool = False) -> Reach:
    """Return how far a ledger may be read. An open ledger may be read up to the last entry confirmed on its bookies.

    Nothing is fenced. report: also report unconfirmed entries. Raises NoSuchLedger, BookKeeperError.
    """
    metadata = await client.metadata(ledger_id)
    if metadata.last_entry_id is not None and metadata.length is not None:
        return Reach(metadata.last_entry_id, metadata.length, metadata, None)
    async with await client.open_as_administrator(ledger_id, recover=False) as handle:
        await handle.read_last_confirmed()  # opening waits for a covering set only: later answers count by now
        end, length = handle.last_add_confirmed, handle.length
        unconfirmed = await handle.report_unconfirmed(end) if report else None
        return Reach(end, length, handle.metadata, unconfirmed)


def _to_the_end(options: LedgerReadOptions, ledger_id: int) -> bool:
    """Return whether the ledger is read to its end, without a position that ends the read."""
    return options.end is None or options.end.of(ledger_id, LATEST) == LATEST


def _range(options: LedgerReadOptions, ledger_id: int, end: int) -> tuple[int, int]:
    """The entries that were asked for, of those up to `end`."""
    start = position_in(ledger_id, options.start or Positions(EARLIEST, {}), end, "startingOffsets")
    stop = position_in(ledger_id, options.end or Positions(LATEST, {}), end, "endingOffsets")
    return start, stop - 1


def position_in(ledger_id: int, positions: Positions, end: int, word: str) -> int:
    """A position in a ledger that has entries 0..end. Raises InvalidArgument for one beyond."""
    position = positions.of(ledger_id, end + 1)
    if position > end + 1:
        raise InvalidArgument(
            f"option {word}: ledger {ledger_id} has entries 0..{end} so far; {position} is beyond. Use latest (-1)"
        )
    return position


def _gone(options: LedgerReadOptions, ledger_id: int, remedy: str) -> None:
    what = f"ledger {ledger_id} was to be read and is not there: deleted, or never made"
    if options.fail_on_data_loss:
        raise NoSuchLedger(f"{what}{remedy}")
    log.warn("{what}; it is left out (failOnDataLoss=false)", what=what)
