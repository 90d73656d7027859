"""Copying a journal into another one, of whatever kind: segment by segment, and to be continued after any failure.

    target ends at n --------> source from n + 1 -----> write, flush, finalise ------> read back and compare
      (what a copy that was      the same segments,       up to the source's last
       cut short left is         beginning within one      finalised segment
       finalised first)          where that was cut

A transaction is copied as it is: opcode, txid, body; the layout version of its segment stays. Before anything is
written, the target's last segment must hold what the source has under the same txids: a target that is no copy of the
source is refused; and all that is to be copied is read once, for what the target cannot take is refused as a whole.
Segments that the source is still writing are left for the next time. Whoever stops a copy in order leaves nothing in
progress: the segment that was being copied is finalised where it got to. Thread: reactor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from journalmgr.contract import JournalManager, Record, SegmentReader, SegmentWriter
from journalmgr.edits.frame import FRAME_SIZE, OP_SIZE_MAX, check_writable, encode_record
from journalmgr.errors import (
    GapInTransactions,
    NotFormatted,
    SegmentConflict,
    TransactionTooLarge,
)
from journalmgr.model import UNKNOWN_LAYOUT, NamespaceInfo, Segment, TxId

FLUSH_SIZE = 4 * 1024 * 1024
"""Bytes of records that are written before they are flushed."""


@dataclass(slots=True)
class Copied:
    """What was done. segments: as the target has them now. left: those that the source still writes.

    stopped: before the end, because somebody wanted that. formatted: the target, which never was.
    """

    segments: list[Segment] = field(default_factory=list)
    transactions: int = 0
    size: int = 0
    left: list[Segment] = field(default_factory=list)
    stopped: bool = False
    formatted: bool = False

    @property
    def first_txid(self) -> TxId | None:
        """The first transaction that was copied."""
        return self.segments[0].first_txid if self.segments else None

    @property
    def last_txid(self) -> TxId | None:
        """The last one."""
        return self.segments[-1].last_txid if self.segments else None


async def unfinished(target: JournalManager) -> list[Segment]:
    """Segments in progress in a target: a copy that was cut short left them, or somebody writes there."""
    return [segment for segment in await target.segments() if segment.in_progress]


async def copy(
    source: JournalManager,
    target: JournalManager,
    *,
    on_checked: Callable[[int], object] = lambda _: None,
    on_progress: Callable[[int], object] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    namespace: NamespaceInfo | None = None,
) -> Copied:
    """Copy what the target does not have yet. Whoever writes the target is stopped: see `unfinished` first.

    namespace: a target that was never formatted is formatted for it, once all that is to be copied was read.
    on_checked, on_progress: called with the transactions looked at, and copied, so far. stop: asked now and then; once
    it is true the copy ends in order, where it is. After a failure what was copied stays, and the next call continues.
    Raises GapInTransactions, SegmentConflict, UnsupportedLayout and TransactionTooLarge (with nothing copied), and as
    either journal fails; damage in the source is found before anything is written.
    """
    try:
        if await unfinished(target):
            await target.recover_unfinalized()
        here = await target.segments()
        formatted = True
    except NotFormatted:
        if namespace is None:
            raise
        here, formatted = [], False
    there = await source.segments()
    finalised = [segment for segment in there if not segment.in_progress]
    copied = Copied(left=[segment for segment in there if segment.in_progress])
    wanted = await _continue_at(source, target, finalised, here)
    rest = [segment for segment in finalised if segment.last_txid is not None and segment.last_txid >= wanted]
    largest = await _largest(source, wanted, on_checked, stop) if rest else (0, wanted)
    if not formatted and namespace is not None:
        await target.format(namespace)
        copied.formatted = True
    if not rest:
        return copied
    copying = _Copying(target, copied, largest, on_progress, stop)
    readers = await source.select_input_streams(wanted)
    try:
        for reader in readers:
            if stop():
                copied.stopped = True
                return copied
            wanted = await copying.copy_segment(reader, wanted)
    finally:
        for reader in readers:
            await reader.close()
    if copied.stopped:
        return copied
    missed = next((segment for segment in rest if segment.first_txid > wanted), None)
    if missed is not None:
        raise _gap(source, wanted, missed.first_txid)
    return copied


async def _continue_at(
    source: JournalManager, target: JournalManager, finalised: Sequence[Segment], here: Sequence[Segment]
) -> TxId:
    """The txid that the target needs next. Raises GapInTransactions, SegmentConflict."""
    if not here:
        return finalised[0].first_txid if finalised else TxId(1)
    last = here[-1]
    assert last.last_txid is not None, "what was in progress is finalised by now"
    wanted = TxId(last.last_txid + 1)
    if not finalised:
        return wanted
    end = finalised[-1].last_txid
    assert end is not None
    if end < last.last_txid:
        raise SegmentConflict(
            f"{target.description} goes on to txid {last.last_txid}, and {source.description} has finalised up to "
            f"{end}: the target is ahead, so it is no copy of the source"
        )
    if finalised[0].first_txid > wanted:
        raise _gap(source, wanted, finalised[0].first_txid)
    first = max(last.first_txid, finalised[0].first_txid)
    if first <= last.last_txid and await _fingerprint(source, first, last.last_txid) != await _fingerprint(
        target, first, last.last_txid
    ):
        raise SegmentConflict(
            f"txids {first}..{last.last_txid} are other transactions in {target.description} than in "
            f"{source.description}: the target is no copy of the source; copy into a journal of its own"
        )
    return wanted


async def _largest(
    source: JournalManager, first: TxId, on_checked: Callable[[int], object], stop: Callable[[], bool]
) -> tuple[int, TxId]:
    """Size and txid of the largest record from a txid on, as it will be framed; of a layout that can be written.

    Raises UnsupportedLayout, and as the source fails: what is damaged is not begun to be copied.
    """
    size, txid, count = 0, first, 0
    readers = await source.select_input_streams(first)
    try:
        for reader in readers:
            if reader.segment.layout_version != UNKNOWN_LAYOUT:  # else the reader tells why it is not known
                check_writable(reader.segment.layout_version)
            while not stop() and (batch := await reader.next()) is not None:
                body, last = max((len(record.body), record.txid) for record in batch.records)
                if FRAME_SIZE + body > size:
                    size, txid = FRAME_SIZE + body, last
                count += len(batch.records)
                on_checked(count)
    finally:
        for reader in readers:
            await reader.close()
    return size, txid


class _Copying:
    """One run. largest: size and txid of the largest record that is to be copied."""

    def __init__(
        self,
        target: JournalManager,
        copied: Copied,
        largest: tuple[int, TxId],
        on_progress: Callable[[int], object],
        stop: Callable[[], bool],
    ) -> None:
        self._target, self._copied, self._on_progress = target, copied, on_progress
        self._largest, self._stop = largest, stop

    async def copy_segment(self, reader: SegmentReader, first: TxId) -> TxId:
        """Copy one from a txid within it on; the txid behind it."""
        writer = await self._target.start_segment(first, reader.segment.layout_version)
        await self._check_size(writer)
        seen = _Fingerprint()
        try:
            last = await self._write_all(reader, writer, seen)
            await writer.close()
        except BaseException:
            await writer.abort()
            raise
        segment = await self._target.finalize_segment(first, last)
        if await _fingerprint(self._target, first, last) != seen.value():
            raise SegmentConflict(
                f"{self._target.description}: segment {segment} was read back, and differs from what was written: do "
                "not use it; `journalmgr verify` tells more"
            )
        self._copied.segments.append(segment)
        return TxId(last + 1)

    async def _check_size(self, writer: SegmentWriter) -> None:
        """Raise TransactionTooLarge, with nothing left in progress: what a target takes only its writer knows."""
        size, txid = self._largest
        if size <= writer.record_size_max:
            return
        await writer.abort()
        await self._target.recover_unfinalized()  # removes what is empty
        raise TransactionTooLarge(
            f"txid {txid} has {size} bytes, and {self._target.description} takes at most {writer.record_size_max} in "
            "one transaction: nothing was copied; copy into a journal of another kind (one in files takes up to "
            f"{OP_SIZE_MAX})"
        )

    async def _write_all(self, reader: SegmentReader, writer: SegmentWriter, seen: _Fingerprint) -> TxId:
        waiting = 0
        while (batch := await reader.next()) is not None:
            records = encoded(batch.records)
            writer.write(records)
            size = sum(map(len, records))
            seen.add(batch.segment.layout_version, records)
            self._copied.transactions += len(records)
            self._copied.size += size
            waiting += size
            if waiting >= FLUSH_SIZE:
                writer.set_ready_to_flush()
                await writer.flush()
                waiting = 0
                self._on_progress(self._copied.transactions)
            if self._stop():
                self._copied.stopped = True
                break
        writer.set_ready_to_flush()
        await writer.flush()
        self._on_progress(self._copied.transactions)
        return writer.last_txid


def encoded(records: Sequence[Record]) -> list[bytes]:
    """Records as bytes, framed anew."""
    return [encode_record(record.opcode, record.txid, record.body) for record in records]


class _Fingerprint:
    """What two equal runs of transactions have in common, wherever they are and however they are cut."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._layout: int | None = None

    def add(self, layout_version: int, records: Sequence[bytes]) -> None:
        """The next records."""
        if layout_version != self._layout:
            self._layout = layout_version
            self._digest.update(b"layout %d;" % layout_version)
        self._digest.update(b"".join(records))

    def value(self) -> bytes:
        """Of all that was added."""
        return self._digest.digest()


async def _fingerprint(journal: JournalManager, first: TxId, last: TxId) -> bytes:
    """Of txids first..last of a journal, both inclusive; of what there is of them."""
    found = _Fingerprint()
    readers = await journal.select_input_streams(first)
    try:
        for reader in readers:
            while reader.segment.first_txid <= last and (batch := await reader.next()) is not None:
                records = [record for record in batch.records if record.txid <= last]
                if records:
                    found.add(batch.segment.layout_version, encoded(records))
                if len(records) < len(batch.records):
                    return found.value()
    finally:
        for reader in readers:
            await reader.close()
    return found.value()


def _gap(source: JournalManager, wanted: int, found: int) -> GapInTransactions:
    return GapInTransactions(
        f"{source.description} has no txid {wanted}, which the copy needs next; what is there goes on at {found}: what "
        "lies between was purged or is lost; copy into an empty journal, or take it from another copy",
        expected=wanted,
        found=found,
    )
