"""What a metadata server needs of the journal that keeps its edit log: the contract every implementation fulfils.

    writer's turn                                     reader's turn
    recover_unfinalized()   fences who wrote before   select_input_streams(from)  the segments, in order, to the end
    start_segment(n)   ->   SegmentWriter             tail(from)                  the same, and goes on as they grow
      write, set_ready_to_flush, flush, ...
      close
    finalize_segment(n, last)                         purge_older_than(n)         what a checkpoint covers

States of a segment:

    start_segment --> in progress --finalize_segment--> finalised --purge--> gone
                          |                                 ^
                          +-- its writer died ---- recover_unfinalized
                                                            (or gone, when nothing was written)

Promises (bookkeeper/INVARIANTS.md, Edit journals):
- one effective writer (I-80): once `recover_unfinalized` returned, no earlier writer's `flush` succeeds any more;
- txids are consecutive (I-81); a writer refuses records out of order, a reader stops with an error at a gap;
- what `flush` acknowledged survives any failover; a stream that failed once stays failed (I-82);
- a finalised segment's end is its content's end (I-83); nothing is deleted that a kept txid needs (I-86);
- a journal of another namespace is refused, and format never happens by itself (I-87).

Implementations: `journalmgr.ledger` (ledgers, scheme `bookkeeper`), `journalmgr.files` (edits files, scheme `file`);
others by entry point, see `journalmgr.plugins`. Everything is called on the reactor thread; Deferreds fail with
JournalError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from journalmgr.model import NamespaceInfo, Segment, TxId

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


class Record(NamedTuple):
    """One transaction as it is framed, checksum verified.

    body: what is between txid and checksum. offset: of the record's first byte in its segment (a file's header
    counts). size: bytes of the whole record.
    """

    txid: TxId
    opcode: int
    body: bytes
    offset: int
    size: int


class RecordBatch(NamedTuple):
    """Some consecutive records of one segment; never empty."""

    segment: Segment
    records: list[Record]


class SegmentWriter(Protocol):
    """The stream into one segment. Whoever holds it is the journal's writer until it is closed or replaced."""

    @property
    def first_txid(self) -> TxId:
        """The first txid that the segment takes."""

    @property
    def last_txid(self) -> TxId:
        """The last txid written; first_txid - 1 before the first."""

    @property
    def durable_txid(self) -> TxId:
        """The last txid that a flush acknowledged; first_txid - 1 before the first."""

    @property
    def record_size_max(self) -> int:
        """Bytes of the largest record that it takes."""

    def write(self, records: Sequence[bytes]) -> None:
        """Buffer whole encoded records, the next txids in order. Nothing is durable yet.

        Raises StreamFailed once anything failed, GapInTransactions for a record that is not the next one,
        TransactionTooLarge, JournalClosed. Nothing of the call is taken then.
        """

    def set_ready_to_flush(self) -> None:
        """What was written so far is what the next `flush` makes durable; writing may go on meanwhile."""

    def flush(self) -> Deferred[TxId]:
        """Fires with the last txid made durable, once all up to the last `set_ready_to_flush` is.

        Fails with WriterReplaced where another writer took over, else StreamFailed; the stream is then finished, and
        what became of the transactions since the last success is open.
        """

    def close(self) -> Deferred[None]:
        """Flush what was written and let go of the segment, which stays in progress until it is finalised."""

    def abort(self) -> Deferred[None]:
        """Let go of the segment without flushing; what was durable stays so."""


class SegmentReader(Protocol):
    """The stream out of one segment, from its first record on or from a txid within."""

    @property
    def segment(self) -> Segment:
        """As listed when the stream was selected."""

    def next(self) -> Deferred[RecordBatch | None]:
        """The next records; None at the end of the segment (of one in progress: of what was confirmed at opening).

        Fails with EditsCorrupt, GapInTransactions (also where a finalised segment ends early), SegmentUnreadable,
        JournalUnavailable.
        """

    def close(self) -> Deferred[None]:
        """Let go of it. Harmless when repeated."""


class EditsTail(Protocol):
    """All transactions from a txid on, in order, as they are confirmed, over the boundaries of segments (I-85)."""

    @property
    def next_txid(self) -> TxId:
        """The txid that comes next."""

    def next(self) -> Deferred[RecordBatch]:
        """The next records; waits until there are some. Fails as a reader does, and JournalClosed once stopped."""

    def stop(self) -> Deferred[None]:
        """End; a waiting `next` fails with JournalClosed."""


class JournalManager(Protocol):
    """The edit log of one metadata server."""

    @property
    def description(self) -> str:
        """Its URI, for messages."""

    def has_data(self) -> Deferred[bool]:
        """Whether anything is there that `format` would destroy."""

    def format(self, namespace: NamespaceInfo, *, force: bool = False) -> Deferred[None]:
        """Make an empty journal of this namespace. Fails with HasData where there is one, unless forced (I-87)."""

    def namespace(self) -> Deferred[NamespaceInfo]:
        """What the journal was formatted for. Fails with NotFormatted."""

    def recover_unfinalized(self) -> Deferred[list[Segment]]:
        """Stop whoever writes, and finalise or (if empty) remove what is in progress; what was finalised.

        May be repeated at any time, also after a failure. Fails with NotFormatted, NamespaceMismatch,
        SegmentUnreadable, EditsCorrupt, JournalUnavailable.
        """

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        """Begin to write at a txid. Fails with TxIdSeen, SegmentExists, WriterReplaced, UnsupportedLayout."""

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        """Fix the end of a segment in progress, closing it if this journal still writes it.

        May be repeated with the same txids. Fails with SegmentAbsent, SegmentConflict where its content ends elsewhere
        or it is recorded differently.
        """

    def segments(self) -> Deferred[list[Segment]]:
        """All segments by first txid; a finalised one hides its leftover in-progress twin."""

    def last_txid_seen(self) -> Deferred[TxId]:
        """The greatest txid that a segment had which is not in progress now, whether it is still there or was purged.

        0 where there was none. After `recover_unfinalized` the next segment begins one behind it (I-81). It never
        becomes less, except by `discard_from`.
        """

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        """Readers from the segment that holds `from_txid` to the end of the journal, or to the first gap.

        The first one begins at `from_txid`. Empty when nothing from there on is readable; a gap is for the caller to
        judge, by the txid that he needs.
        """

    def tail(self, from_txid: TxId) -> EditsTail:
        """Follow the journal from a txid on, segments in progress included."""

    def purge_older_than(self, min_txid_to_keep: TxId) -> Deferred[list[Segment]]:
        """Delete finalised segments that end below; what was deleted. Errors of single segments are told at the end."""

    def discard_from(self, first_txid: TxId) -> Deferred[list[Segment]]:
        """Delete all segments from this txid on, which must be the first of one (or behind the last)."""

    def close(self) -> Deferred[None]:
        """Let go of everything. A segment that is being written stays in progress."""


class UpgradableJournal(JournalManager, Protocol):
    """A journal that takes part in an upgrade of its metadata server, and in going back."""

    def pre_upgrade(self) -> Deferred[None]:
        """Remember the present state; nothing may be in progress."""

    def upgrade(self, namespace: NamespaceInfo) -> Deferred[None]:
        """Take on the new layout version and ctime."""

    def finalize_upgrade(self) -> Deferred[None]:
        """Forget the remembered state: there is no way back any more. Harmless when there is none."""

    def can_roll_back(self) -> Deferred[bool]:
        """Whether a state is remembered."""

    def roll_back(self) -> Deferred[None]:
        """Return to the remembered state: segments written since are deleted."""
