"""Where a ledger ends: the last txid in its last entry. An entry holds whole records, so that one is enough.

Source: journalmgr/FORMATS.md 3.7, 4.1. Differs from Apache: records in that entry that are not consecutive are an error
there and then, not ignored (I-81).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from journalmgr.edits.codec import measure
from journalmgr.edits.frame import RecordDecoder, has_length
from journalmgr.errors import EditsCorrupt, SegmentConflict
from journalmgr.ledger.outcome import told
from journalmgr.model import Segment, TxId

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle


def decoder(segment: Segment, source: str, expected_txid: int | None) -> RecordDecoder:
    """For the records of this segment. Raises UnsupportedLayout."""
    layout = segment.layout_version
    return RecordDecoder(
        layout,
        source=source,
        expected_txid=expected_txid,
        measure=None if has_length(layout) else measure(layout),
    )


def describe(segment: Segment) -> str:
    """A segment in messages about its bytes."""
    return f"ledger {segment.ledger_id} of segment {segment}"


class LedgerEnd(NamedTuple):
    """The last entry, and the last txid in it."""

    entry_id: int
    txid: TxId


async def confirmed_end(handle: ReadHandle, segment: Segment) -> LedgerEnd | None:
    """The end of what is confirmed; None where nothing is. Raises EditsCorrupt and what reading fails with.

    Only after a recovery open is None the truth about the ledger (I-84).
    """
    source = describe(segment)
    last = handle.last_add_confirmed
    if last < 0:
        return None
    with told(f"{source}: Error reading entries from bookkeeper"):
        [entry] = await handle.read(last, last)
    source = f"{source}, entry {entry.entry_id}"
    decoding = decoder(segment, source, None)
    records = decoding.feed(entry.payload)
    decoding.finish()
    if not records:
        raise EditsCorrupt(
            "Unrecoverable corruption, please check logs: no transaction in the last entry", source=source
        )
    if records[0].txid < segment.first_txid or (entry.entry_id == 0 and records[0].txid != segment.first_txid):
        raise SegmentConflict(
            f"{source}: Transaction id not as expected, {records[0].txid} found, {segment.first_txid} expected: the "
            "ledger is not this segment's; compare the records in the list with the ledgers"
        )
    return LedgerEnd(last, TxId(records[-1].txid))


async def open_segment(client: LedgerClient, segment: Segment, password: bytes) -> ReadHandle:
    """For reading. A segment in progress is not disturbed (I-43); a finalised one has no writer, and its ledger an end.

    Hadoop finalises a segment also when closing its ledger failed: the end is fixed here then.
    """
    assert segment.ledger_id is not None
    with told(f"Could not open ledger for {segment}"):
        if segment.in_progress:
            return await client.open_without_recovery(segment.ledger_id, password)
        return await client.open(segment.ledger_id, password)


async def end_for_good(client: LedgerClient, segment: Segment, password: bytes) -> TxId | None:
    """Stop whoever writes the segment, fix the end of its ledger, and say what that is (I-80); None: it is empty."""
    assert segment.ledger_id is not None
    with told(f"Exception opening ledger for {segment}"):
        handle = await client.open(segment.ledger_id, password)
    try:
        end = await confirmed_end(handle, segment)
    finally:
        await handle.close()
    return None if end is None else end.txid
