"""Who reads what: a range of transactions -> parts of segments -> ranges of entries -> slices for tasks.

An entry holds whole records, so a task may begin at any entry. Where a range begins or ends inside a segment, the entry
is searched for (`edit_search`); rows outside the range are left out by the task. Thread: any; one crossing.

A query is planned once, and divided by what its ledgers hold. A micro-batch may be planned again when its segment has
grown, was finalised, or got another bookie: only what does not change by that divides it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError, EntryCorrupt, EntryMissing, InvalidArgument, NoSuchLedger
from bookkeeper.spark.ledgers.plan import Extent, Slice, extent_of, partitions_of
from bookkeeper.spark.ledgers.stream_offsets import Division
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.said_as import OF_OPTIONS, Words
from journalmgr.errors import GapInTransactions, JournalError, JournalUnavailable, SegmentUnreadable
from journalmgr.ledger.outcome import told, translated
from journalmgr.model import Segment
from journalmgr.spark.edit_entries import first_txid_of
from journalmgr.spark.edit_loss import Loss, warn_unconfirmed
from journalmgr.spark.edit_options import EARLIEST, LATEST, EditReadOptions
from journalmgr.spark.edit_search import TxidSearch
from journalmgr.spark.edit_segments import JournalSegments, State, ledger_of
from journalmgr.spark.edit_spans import BytesLimit, Part, choose

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.faces.blocking import BlockingBookKeeper
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.model import LedgerMetadata

T = TypeVar("T")

AT_ONCE = 64
"""Ledgers asked about at a time."""

GUESSED_SIZE = 256
"""Bytes of a transaction of a stream, for dividing the work: the mean that is known of a segment is another later."""

EVERY_BOUND: Mapping[str, Bounds] = {"txid": Bounds(), "ledger_id": Bounds(), "entry_id": Bounds()}
"""Columns whose filters are obeyed here."""


@dataclass(frozen=True, slots=True)
class EditSlice:
    """Entries first..last of a segment's ledger, both included, of which a task gives transactions low..high.

    begins, ends: it is the first, the last of its part: nothing of low..high lies outside of the part. exact: that is
    so; not where entries were chosen by their ids.
    """

    segment: Segment
    first_entry_id: int
    last_entry_id: int
    low: int
    high: int
    begins: bool
    ends: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class _Planned:
    part: Part
    extent: Extent
    exact: bool


class _Reach(NamedTuple):
    """A ledger when it was looked at: entries 0..end, of `length` bytes."""

    metadata: LedgerMetadata
    length: int
    end: int


_Sized = Callable[[Part, int, int, _Reach], Extent]
"""Entries first..last of a part, to be divided."""


def plan_query(
    client: BlockingBookKeeper, options: EditReadOptions, bounds: Mapping[str, Bounds], words: Words = OF_OPTIONS
) -> list[tuple[EditSlice, ...]]:
    """What the tasks of a query read. words: for errors, of who asks.

    Raises NotFormatted, GapInTransactions and SegmentUnreadable (a warning where data loss is to be borne),
    InvalidArgument for positions beyond the end, JournalUnavailable.
    """
    return _run(client, lambda journal: _plan_query(journal, options, bounds), options, words)


def plan_range(
    client: BlockingBookKeeper, options: EditReadOptions, start: int, end: int, division: Division
) -> list[tuple[EditSlice, ...]]:
    """What the tasks of a micro-batch read: transactions from `start` on, before `end`, which were confirmed before.

    Always cut alike, whatever became of the segments since: by numbers and sizes that never change.
    Raises as `plan_query`, and JournalError for transactions of a segment in progress, if such are not to be read.
    """
    return _run(client, lambda journal: _plan_range(journal, start, end, division), options)


def look(
    client: BlockingBookKeeper,
    options: EditReadOptions,
    from_txid: int,
    words: Words = OF_OPTIONS,
    *,
    is_last: bool = False,
) -> State:
    """The segments from a txid on, and the end of the journal. words: for errors, of who asks.

    is_last: nothing behind the end will be read; name entries that may be acknowledged there on standard error.
    """
    state = _run(client, lambda journal: journal.look(from_txid, is_last=is_last), options, words)
    warn_unconfirmed(state.unconfirmed)
    return state


def namespace_id(client: BlockingBookKeeper, options: EditReadOptions) -> int:
    """Of the namespace that the journal belongs to."""
    return _run(client, lambda journal: journal.namespace_id(), options)


def end_by_bytes(client: BlockingBookKeeper, options: EditReadOptions, state: State, start: int, bytes_max: int) -> int:
    """One past the last transaction of a micro-batch from `start` on of about so many bytes."""
    return _run(client, lambda journal: _end_by_bytes(journal, state, start, bytes_max), options)


def _run(
    client: BlockingBookKeeper,
    work: Callable[[JournalSegments], Coroutine[Any, Any, T]],
    options: EditReadOptions,
    words: Words = OF_OPTIONS,
) -> T:
    def begin(ledgers: LedgerClient) -> Deferred[T]:
        journal = JournalSegments(
            ledgers,
            options.root,
            in_progress=options.include_in_progress,
            loss=Loss(options.fail_on_data_loss, words),
        )
        return Deferred.fromCoroutine(work(journal))

    return client.run(begin)


async def _plan_query(
    journal: JournalSegments, options: EditReadOptions, bounds: Mapping[str, Bounds]
) -> list[tuple[EditSlice, ...]]:
    least, most = bounds["txid"].range
    start = EARLIEST if options.start is None else options.start
    state = await journal.look(max(start, least, 1), is_last=True)
    beyond = state.last_txid + 1
    end = beyond if options.end is None or options.end == LATEST else options.end
    for word, position in (("startingTxid", start), ("endingTxid", end)):
        if position > beyond:
            raise InvalidArgument(
                f"option {word}: {journal.description} ends at txid {state.last_txid}"
                + (", as far as it is confirmed" if options.include_in_progress else " with its finalised segments")
                + f"; {position} is beyond. Leave it out for the latest"
            )
    if start == LATEST or end == EARLIEST or least > most:
        return []
    if start == EARLIEST and not state.has_earlier:
        start = state.spans[0].first_txid if state.spans else beyond
    if (options.end is None or options.end == LATEST) and beyond <= most:
        warn_unconfirmed(state.unconfirmed)
    low, high = max(start, least, 1), min(end - 1, most)
    return _divided(await _held(journal, state, low, high, bounds, _by_length), options.division)


async def _plan_range(
    journal: JournalSegments, start: int, end: int, division: Division
) -> list[tuple[EditSlice, ...]]:
    state = await journal.look(start)
    if state.last_txid < end - 1 and state.left_out_from is not None:
        raise JournalError(
            f"{journal.description}: transactions {start} to {end - 1} are a micro-batch of the checkpoint, and those "
            f"from {state.left_out_from} on are in a segment in progress, which option includeInProgress=false leaves "
            "out; let this batch be read with includeInProgress=true, or start the query again once the segment is "
            "finalised. Where the journal was formatted anew meanwhile, begin a new query with a new checkpoint"
        )
    if state.last_txid < end - 1:
        raise JournalUnavailable(
            f"{journal.description}: transactions {start} to {end - 1} are to be read, and the bookies that were asked "
            f"know of confirmed ones up to {state.last_txid} only; try again. Where the journal was formatted anew "
            "meanwhile, begin a new query with a new checkpoint"
        )
    return _divided(await _held(journal, state, start, end - 1, EVERY_BOUND, _by_guess), division)


async def _held(
    journal: JournalSegments, state: State, low: int, high: int, bounds: Mapping[str, Bounds], sized: _Sized
) -> list[_Planned]:
    """The parts that hold transactions low..high, in their order; what is missing is told."""
    choice = choose(state.spans, low, high)
    gaps = [(gap.first, gap.last, f"its next segment is {gap.before}") for gap in choice.gaps]
    if choice.beyond is not None:
        gaps.append((choice.beyond, high, "no segment follows"))
    for first, last, why in gaps:
        what = f"{journal.description}: transactions {first} to {last} were purged or are lost: {why}"
        journal.loss.bear(GapInTransactions(what, expected=first, found=None))
    parts = [part for part in choice.parts if ledger_of(part.span.segment) in bounds["ledger_id"]]
    found: dict[int, _Planned] = {}

    async def work(at: int, part: Part) -> None:
        planned = await _planned(journal, part, bounds["entry_id"], sized)
        if planned is not None:
            found[at] = planned

    await in_parallel((work(at, part) for at, part in enumerate(parts)), AT_ONCE)
    return [each for _, each in sorted(found.items())]


def _divided(held: Iterable[_Planned], division: Division) -> list[tuple[EditSlice, ...]]:
    by_ledger = {each.extent.ledger_id: each for each in held}
    partitions = partitions_of(
        [each.extent for each in by_ledger.values()],
        partition_bytes_max=division.partition_bytes_max,
        partitions_min=division.partitions_min,
    )
    return [tuple(_slice(by_ledger[piece.ledger_id], piece) for piece in slices) for slices in partitions]


def _slice(planned: _Planned, piece: Slice) -> EditSlice:
    part, extent = planned.part, planned.extent
    return EditSlice(
        part.span.segment,
        piece.first_entry_id,
        piece.last_entry_id,
        part.low,
        part.high,
        piece.first_entry_id == extent.first_entry_id,
        piece.last_entry_id == extent.last_entry_id,
        planned.exact,
    )


def _by_length(part: Part, first: int, last: int, reach: _Reach) -> Extent:
    """By what the ledger has now, cut where its fragments begin."""
    metadata, length, end = reach
    return extent_of(ledger_of(part.span.segment), metadata, first, last, length=length, end=end)


def _by_guess(part: Part, first: int, last: int, _: _Reach) -> Extent:
    """By the transactions alone, which are the same whenever it is asked."""
    return Extent(ledger_of(part.span.segment), first, last, (part.high - part.low + 1) * GUESSED_SIZE)


async def _planned(journal: JournalSegments, part: Part, entry_ids: Bounds, sized: _Sized) -> _Planned | None:
    segment, span = part.span.segment, part.span
    ledger_id = ledger_of(segment)
    what = journal.describe(segment)
    try:
        metadata = await journal.ledgers.metadata(ledger_id)
    except NoSuchLedger as error:
        _bear_gone(journal, part, error)
        return None
    except BookKeeperError as error:
        raise translated(what, error) from error
    length, end = metadata.length, span.last_entry_id
    if end is None:
        end = metadata.last_entry_id
    first, last = 0, end
    whole = part.low == span.first_txid and part.high == span.last_txid
    if end is None or length is None or not whole:
        handle = await _opened(journal, part)
        if handle is None:
            return None
        try:
            length = handle.length
            if end is None:
                end = await _unclosed_end(journal, handle, part)
            handle.note_confirmed(end)
            first, last = 0, end
            if part.low > span.first_txid:
                first = await _entry_of(handle, segment, part.low, end, to_end=False)
            if part.high < span.last_txid:
                last = await _entry_of(handle, segment, part.high, end, to_end=True)
        finally:
            await handle.close()
    assert last is not None
    if end < 0:
        journal.loss.bear(SegmentUnreadable(f"{what} is empty; {part.low} to {part.high} are lost"))
        return None
    least, most = entry_ids.range
    exact = least <= first and last <= most
    first, last = max(first, least), min(last, most)
    if first > last:
        return None
    return _Planned(part, sized(part, first, last, _Reach(metadata, length, end)), exact)


def _bear_gone(journal: JournalSegments, part: Part, error: BaseException) -> None:
    lost = SegmentUnreadable(
        f"{journal.describe(part.span.segment)}: its ledger is gone; transactions {part.low} to {part.high} are lost"
    )
    lost.__cause__ = error
    journal.loss.bear(lost)


async def _opened(journal: JournalSegments, part: Part) -> ReadHandle | None:
    """The ledger of a part; None where it is gone, and that is to be borne."""
    try:
        return await journal.open(part.span.segment)
    except SegmentUnreadable as error:
        if not isinstance(error.__cause__, NoSuchLedger):
            raise
        _bear_gone(journal, part, error.__cause__)
        return None


async def _unclosed_end(journal: JournalSegments, handle: ReadHandle, part: Part) -> int:
    """The last entry of a finalised segment whose ledger nobody closed; Hadoop finalises although closing failed."""
    segment = part.span.segment
    end = await journal.end_of(handle, segment)
    if end is None or end.txid < part.high:
        known = "nothing is" if end is None else f"transactions up to {end.txid} are"
        journal.loss.bear(
            SegmentUnreadable(
                f"{journal.describe(segment)}: the segment is finalised, but its ledger was never closed, and {known} "
                f"known to be confirmed; `bookkeeper ledger read --recover -c 0 {segment.ledger_id}` closes it"
            )
        )
    return -1 if end is None else end.entry_id


async def _entry_of(handle: ReadHandle, segment: Segment, txid: int, last: int, *, to_end: bool) -> int:
    search = TxidSearch(txid, 0, last, to_end=to_end)
    while (entry_id := search.probe) is not None:
        try:
            with told(f"looking for txid {txid} in segment {segment}"):
                [entry] = await handle.read(entry_id, entry_id)
        except BookKeeperError as error:
            if not isinstance(error.__cause__, EntryMissing | EntryCorrupt):
                raise
            search.on_first_txid(None)
        else:
            search.on_first_txid(first_txid_of(segment.layout_version, entry.payload))
    return search.found


async def _end_by_bytes(journal: JournalSegments, state: State, start: int, bytes_max: int) -> int:
    limit = BytesLimit(start, bytes_max)
    for part in choose(state.spans, start, state.last_txid).parts:
        try:
            handle = await journal.open(part.span.segment)
        except SegmentUnreadable as error:
            if not isinstance(error.__cause__, NoSuchLedger):
                raise
            length = 0  # who plans the micro-batch says that it is gone
        else:
            length = handle.length
            await handle.close()
        limit.on_part(part.low, part.high, length / (part.span.last_txid - part.span.first_txid + 1))
        if limit.is_reached:
            break
    return limit.end
