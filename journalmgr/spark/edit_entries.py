"""Entries of a segment as records, checked on the way. Pure.

An entry holds whole records (journalmgr/FORMATS.md 4.1), so each is decoded by itself, and damage ends with its entry.
Every record's checksum is verified, and its txid is the one before plus one (I-81), over the borders of entries too.

What is wrong is handed out beside what is right, and the caller decides whether that ends the reading. Behind a fault
txids are taken as they come: what is missing was told with it.
"""

from __future__ import annotations

from typing import NamedTuple

from journalmgr.contract import Record
from journalmgr.edits.codec import measure
from journalmgr.edits.frame import Measure, RecordDecoder, has_length
from journalmgr.errors import EditsCorrupt, EditsError, GapInTransactions, JournalError


class Taken(NamedTuple):
    """What an entry holds. Records' offsets are in the entry. fault: what is wrong with the rest of it."""

    records: list[Record]
    fault: JournalError | None


class EntryDecoder:
    """Decodes the entries of one ledger in their order.

    source: the ledger and its segment, for messages. expected_txid: of the first record; None takes any.
    """

    def __init__(self, layout_version: int, source: str, expected_txid: int | None = None) -> None:
        self._layout_version, self._source = layout_version, source
        self._decoder = self._new(expected_txid)

    @property
    def expected_txid(self) -> int | None:
        """Of the record that comes next; None where that is not known."""
        return self._decoder.expected_txid

    def forget(self) -> None:
        """Take whatever txid comes next: an entry between was left out."""
        self._decoder = self._new(None)

    def take(self, entry_id: int, payload: bytes) -> Taken:
        """The records of the next entry."""
        decoder = self._decoder
        decoder.offset = 0
        records: list[Record] = []
        fault: JournalError | None = None
        try:
            records = decoder.feed(payload)
            decoder.finish()
            if decoder.padding:
                raise EditsCorrupt("padding, which no ledger has", offset=decoder.offset, txid=decoder.expected_txid)
        except EditsError as error:
            fault = self._told(entry_id, error)
        except GapInTransactions as error:
            return self._behind_gap(entry_id, payload, records, error)
        if fault is not None:
            self._decoder = self._new(None)
        return Taken(records, fault)

    def _behind_gap(self, entry_id: int, payload: bytes, records: list[Record], error: GapInTransactions) -> Taken:
        """Records before a jump of txids, and those behind it that were not given yet."""
        at = self._decoder.offset
        fault = GapInTransactions(
            f"{self._source}, entry {entry_id} at offset {at}: expected txid {error.expected}, but got txid "
            f"{error.found}",
            expected=error.expected,
            found=error.found,
        )
        decoder = RecordDecoder(self._layout_version, source="", offset=at, consecutive=False, measure=self._measure())
        try:
            behind = decoder.feed(payload[at:])
        except EditsError:
            behind = []
        wanted = error.expected
        for record in behind:
            if record.txid >= wanted:
                records.append(record)
                wanted = record.txid + 1
        self._decoder = self._new(wanted if records else None)
        return Taken(records, fault)

    def _new(self, expected_txid: int | None) -> RecordDecoder:
        return RecordDecoder(self._layout_version, source="", expected_txid=expected_txid, measure=self._measure())

    def _measure(self) -> Measure | None:
        return None if has_length(self._layout_version) else measure(self._layout_version)

    def _told(self, entry_id: int, error: EditsError) -> EditsError:
        txid = self._decoder.expected_txid if error.txid is None else error.txid
        return type(error)(error.why, source=f"{self._source}, entry {entry_id}", offset=error.offset, txid=txid)


def first_txid_of(layout_version: int, payload: bytes) -> int | None:
    """The txid of an entry's first record; None where that is damaged, or there is none."""
    records, _ = EntryDecoder(layout_version, "").take(0, payload)
    return records[0].txid if records else None
