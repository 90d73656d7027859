"""The transactions of a journal or of a file of edits, in batches, for whoever prints or exports them.

    read_journal   a journal, its segment in progress as far as it is confirmed      ends with an error at damage
    read_file      one file of edits                                                 likewise
    salvage_*      the same, going on behind damage: what was skipped comes between the batches

A batch has its segment's layout version and a name for messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import JournalManager, Record
from journalmgr.edits.file import EditsFileDecoder
from journalmgr.errors import EditsCorrupt, EditsError
from journalmgr.ledger.end import describe
from journalmgr.model import Segment, TxId
from journalmgr.replaying import replay
from journalmgr.salvage import Skipped, salvage

if TYPE_CHECKING:
    from journalmgr.ledger_audit import LedgerAudit

READ_SIZE = 1024 * 1024

_HEADER_SIZE_MAX = 8


class Batch(NamedTuple):
    """Some records; never empty."""

    records: Sequence[Record]
    layout_version: int
    source: str


Found = Batch | Skipped


async def read_journal(journal: JournalManager, first: int | None, last: int | None) -> AsyncIterator[Batch]:
    """Transactions first..last of a journal, both inclusive; None: from its first segment, to its end.

    Raises GapInTransactions, EditsCorrupt, and what the journal fails with.
    """
    if first is None:
        segments = await journal.segments()
        if not segments:
            return
        first = segments[0].first_txid
    async for batch in replay(journal, TxId(first), in_progress_ok=True):
        records = [record for record in batch.records if last is None or record.txid <= last]
        if records:
            yield Batch(records, batch.segment.layout_version, str(batch.segment))
        if len(records) < len(batch.records):
            return


async def end_of(journal: JournalManager) -> TxId:
    """The last txid that a journal has had, of a segment in progress the last one that is confirmed; 0 for none."""
    segments = await journal.segments()
    if not segments or not segments[-1].in_progress:
        return await journal.last_txid_seen()
    end = TxId(segments[-1].first_txid - 1)
    async for batch in replay(journal, segments[-1].first_txid, in_progress_ok=True):
        end = batch.records[-1].txid
    return end


async def where_it_ends(journal: JournalManager, first: int) -> str | None:
    """What to say to somebody who begins at a txid that is behind the end of a journal; None where it is not."""
    readers = await journal.select_input_streams(TxId(first), in_progress_ok=True)
    for reader in readers:
        await reader.close()
    if readers:
        return None
    end = await end_of(journal)
    if first <= end:
        return None
    if not end:
        return "the journal has no transactions yet"
    segments = await journal.segments()
    sure = "" if not segments or not segments[-1].in_progress else ", as far as it is confirmed"
    return f"the journal ends at txid {end}{sure}"


def read_file(path: Path) -> Iterator[Batch]:
    """A file of edits from its beginning to its end or its padding. Raises EditsError, GapInTransactions, OSError."""
    decoder = EditsFileDecoder(source=str(path))
    with path.open("rb") as file:
        while data := file.read(READ_SIZE):
            records = decoder.feed(data)
            if records:
                assert decoder.layout_version is not None
                yield Batch(records, decoder.layout_version, str(path))
    decoder.finish()


def salvage_file(path: Path) -> Iterator[Found]:
    """The same, whatever is wrong behind the header; the file is read into memory.

    Raises EditsError for a header that is none, UnsupportedLayout.
    """
    data = path.read_bytes()
    header = EditsFileDecoder(source=str(path))
    for size in range(_HEADER_SIZE_MAX // 2, _HEADER_SIZE_MAX + 1, _HEADER_SIZE_MAX // 2):
        header.feed(data[size - _HEADER_SIZE_MAX // 2 : size])
        if header.layout_version is not None:
            yield from _batches(data, header.layout_version, str(path), begin=size)
            return
    header.finish()  # raises: it was cut short


def salvage_segment(path: Path, *, in_progress: bool) -> Iterator[Found]:
    """The same of one file of a journal, which has others: one that cannot be begun with is skipped as a whole.

    One in progress may have nothing yet.
    """
    try:
        yield from salvage_file(path)
    except EditsError as error:
        if in_progress and not path.read_bytes().strip(b"\xff\0"):
            return
        yield Skipped(str(path), 0, 0, error)


async def salvage_ledgers(audit: LedgerAudit, segments: Sequence[Segment]) -> AsyncIterator[Found]:
    """All that can be read of segments on ledgers. An entry holds whole records, so damage ends with its entry."""
    for segment in segments:
        try:
            async for blocks in audit.blocks(segment):
                for block in blocks:
                    source = f"{describe(segment)}, entry {block.entry_id}"
                    if block.error is not None:
                        yield _lost(source, 0, block.error)
                        continue
                    for found in _batches(block.payload, segment.layout_version, source):
                        yield found
        except BookKeeperError as error:
            yield _lost(describe(segment), 0, error)


def _lost(source: str, size: int, error: BookKeeperError) -> Skipped:
    return Skipped(source, 0, size, EditsCorrupt(f"cannot be read: {error}", source=source))


def _batches(data: bytes, layout_version: int, source: str, *, begin: int = 0) -> Iterator[Found]:
    for found in salvage(data, layout_version, source=source, begin=begin):
        yield found if isinstance(found, Skipped) else Batch(found, layout_version, source)


class Jumps:
    """What is missing between batches that need not be consecutive: the txids of what was skipped."""

    def __init__(self, expected: int | None) -> None:
        self._expected = expected

    def look(self, records: Sequence[Record]) -> Iterator[str]:
        """Say where txids jump."""
        for record in records:
            if self._expected is not None and record.txid != self._expected:
                if record.txid > self._expected:
                    yield f"txids {self._expected}..{record.txid - 1} are missing"
                else:
                    yield f"txid {record.txid} comes behind txid {self._expected - 1}"
            self._expected = record.txid + 1
