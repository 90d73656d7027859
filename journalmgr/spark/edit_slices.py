"""Reading slices of segments in a task: entries -> records, checked -> Arrow batches.

A slice reads exactly its entries, which were confirmed when it was planned, whatever became of the segment since. That
its first transaction follows the one before is checked against the entry before; that nothing is missing at either end
of a part, against what was planned. Transactions outside of low..high are left out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingReadHandle
from bookkeeper.errors import BookKeeperError, EntryCorrupt, EntryMissing, NoSuchLedger
from bookkeeper.spark.ledgers.slices import warn_of_other_rows
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.said_as import OF_OPTIONS, Words
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions, JournalError, SegmentUnreadable, UnknownOp
from journalmgr.ledger.end import describe
from journalmgr.ledger.outcome import translated
from journalmgr.spark.edit_batches import Place, edits_batch, raw_batch
from journalmgr.spark.edit_columns import Buckets
from journalmgr.spark.edit_entries import EntryDecoder
from journalmgr.spark.edit_loss import Loss
from journalmgr.spark.edit_options import EditReadOptions
from journalmgr.spark.edit_plan import EditSlice
from journalmgr.spark.edit_segments import ledger_of

if TYPE_CHECKING:
    from bookkeeper.client.read.entries import Entry
    from journalmgr.contract import Record


def read_slices(
    client: BlockingBookKeeper,
    options: EditReadOptions,
    slices: Iterable[EditSlice],
    txids: Bounds,
    words: Words = OF_OPTIONS,
) -> Iterator[Any]:
    """The transactions of the slices that pass, in order, as record batches.

    words: for errors, of who asks.
    Raises EditsError, GapInTransactions and SegmentUnreadable for what is damaged or gone (a warning where that is to
    be borne), JournalUnavailable where it could not be asked.
    """
    loss = Loss(options.fail_on_data_loss, words)
    for piece in slices:
        yield from _SliceReading(client, options, piece, txids, loss).batches()


class _SliceReading:
    def __init__(
        self, client: BlockingBookKeeper, options: EditReadOptions, piece: EditSlice, txids: Bounds, loss: Loss
    ) -> None:
        self._client, self._options, self._piece = client, options, piece
        self._bear, self._words = loss.bear, loss.words
        self._lacks_rows = False
        self._every = txids.is_range
        self._txids = txids
        self._what = f"journal {options.root}, {describe(piece.segment)}"
        self._decoder = EntryDecoder(piece.segment.layout_version, self._what)
        self._next = piece.low
        """One past the last transaction that was read, `low` at least."""

    def _bear_absent(self, error: JournalError) -> None:
        """Of what is stored and may have been there at an earlier attempt; what is there is always read alike."""
        self._bear(error)
        if not self._lacks_rows:
            self._lacks_rows = True
            warn_of_other_rows(self._words)

    def batches(self) -> Iterator[Any]:
        piece = self._piece
        try:
            with self._client.open_without_recovery(ledger_of(piece.segment)) as handle:
                handle.note_confirmed(piece.last_entry_id)
                self._decoder = EntryDecoder(piece.segment.layout_version, self._what, self._expected(handle))
                for entries in self._entries(handle):
                    with _without_collection():
                        batch = self._batch(entries)
                    if batch is not None:
                        yield batch
        except JournalError:
            raise
        except NoSuchLedger as error:
            lost = SegmentUnreadable(
                f"{self._what}: its ledger was deleted while entries {piece.first_entry_id} to {piece.last_entry_id} "
                f"of it were to be read; transactions from {self._next} on are lost"
            )
            lost.__cause__ = error
            self._bear_absent(lost)
            return
        except BookKeeperError as error:
            raise translated(f"{self._what}: its entries cannot be read", error) from error
        self._check_end()

    def _expected(self, handle: BlockingReadHandle) -> int | None:
        """The txid that the slice begins with, where that is known."""
        piece = self._piece
        if piece.first_entry_id == 0:
            return piece.segment.first_txid
        if piece.begins:
            return None
        before = piece.first_entry_id - 1
        try:
            [entry] = handle.read(before, before)
        except (EntryMissing, EntryCorrupt):
            return None  # whoever reads it says so
        decoder = EntryDecoder(piece.segment.layout_version, self._what)
        decoder.take(before, entry.payload)
        return decoder.expected_txid

    def _entries(self, handle: BlockingReadHandle) -> Iterator[Sequence[Entry]]:
        """All entries; those that no bookie can deliver are lost, or passed over."""
        next_entry_id, last = self._piece.first_entry_id, self._piece.last_entry_id
        while next_entry_id <= last:
            try:
                for batch in handle.batches(next_entry_id, last):
                    next_entry_id = batch[-1].entry_id + 1
                    yield batch
            except (EntryMissing, EntryCorrupt):
                for entry_id in range(next_entry_id, last + 1):
                    next_entry_id = entry_id + 1
                    try:
                        yield handle.read(entry_id, entry_id)
                    except (EntryMissing, EntryCorrupt) as error:
                        self._bear_absent(_unreadable(self._what, entry_id, error))
                        self._decoder.forget()
                        break

    def _batch(self, entries: Sequence[Entry]) -> Any:
        """The rows of some entries; None where none passes."""
        segment = self._piece.segment
        place = Place(ledger_of(segment), segment.first_txid, segment.layout_version)
        add, finish = self._raw_rows(place) if self._options.raw else self._rows(place)
        for entry in entries:
            records, fault = self._decoder.take(entry.entry_id, entry.payload)
            if records:
                wanted = self._wanted(entry.entry_id, records)
                add(entry, wanted)
            if fault is not None and self._next <= self._piece.high:
                self._bear(fault)
        if not place.txids:
            return None
        batch = finish()
        return batch if self._every else batch.filter(pa.array([txid in self._txids for txid in place.txids]))

    def _wanted(self, entry_id: int, records: list[Record]) -> list[Record]:
        """Those of low..high. Checks that the part begins with its first."""
        piece = self._piece
        first, last = records[0].txid, records[-1].txid
        if piece.exact and piece.begins and self._next == piece.low < first:
            self._bear(
                GapInTransactions(
                    f"{self._what}, entry {entry_id}: expected txid {piece.low}, but got txid {first}",
                    expected=piece.low,
                    found=first,
                )
            )
        self._next = max(self._next, last + 1)
        if first >= piece.low and last <= piece.high:
            return records
        return [record for record in records if piece.low <= record.txid <= piece.high]

    def _check_end(self) -> None:
        piece = self._piece
        if piece.exact and piece.ends and self._next <= piece.high:
            self._bear(
                GapInTransactions(
                    f"{self._what} ends before txid {self._next} with its entry {piece.last_entry_id}, and "
                    f"transactions up to {piece.high} were to be read",
                    expected=self._next,
                    found=None,
                )
            )

    # --- rows

    def _raw_rows(self, place: Place) -> tuple[Callable[[Entry, list[Record]], None], Callable[[], Any]]:
        opcodes: list[int] = []
        found: list[bytes] = []

        def add(entry: Entry, records: list[Record]) -> None:
            payload = entry.payload
            place.txids += [record.txid for record in records]
            place.entry_ids += [entry.entry_id] * len(records)
            opcodes.extend([record.opcode for record in records])
            found.extend([payload[record.offset : record.offset + record.size] for record in records])

        return add, lambda: raw_batch(place, opcodes, found)

    def _rows(self, place: Place) -> tuple[Callable[[Entry, list[Record]], None], Callable[[], Any]]:
        buckets = Buckets(place.layout_version)

        def add(entry: Entry, records: list[Record]) -> None:
            txids, entry_ids, take = place.txids, place.entry_ids, buckets.add
            for record in records:
                try:
                    take(record)
                except EditsError as error:
                    self._bear(_undecodable(f"{self._what}, entry {entry.entry_id}", error))
                else:
                    txids.append(record.txid)
                    entry_ids.append(entry.entry_id)

        return add, lambda: edits_batch(place, list(buckets.buckets()))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Values of a batch live until it is done and have no cycles: looking for garbage among them takes a quarter."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unreadable(what: str, entry_id: int, error: BookKeeperError) -> SegmentUnreadable:
    unreadable = SegmentUnreadable(f"{what}, entry {entry_id} cannot be read: {error}")
    unreadable.__cause__ = error
    return unreadable


def _undecodable(source: str, error: EditsError) -> EditsError:
    kind = UnknownOp if isinstance(error, UnknownOp) else EditsCorrupt
    why = f"{error.why}; option decode=raw reads the record as it is"
    return kind(why, source=source, offset=error.offset, txid=error.txid)
