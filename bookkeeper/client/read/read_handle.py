"""Reading a ledger: ranges, streams, the last add confirmed, tailing.

A handle reads up to the last add confirmed it knows (I-42); `read_unconfirmed` is the one way past it. What is
confirmed is learnt from the metadata once the ledger is closed, else from entries read and by asking the bookies; a
watch on the metadata brings ensemble changes and the close (I-46). Nothing here fences (I-43): recovery is another
call, `LedgerClient.open`.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.read.batch import useful
from bookkeeper.client.read.entries import ENTRIES, PAYLOADS, Entry, PayloadBatch
from bookkeeper.client.read.lac import LacReading
from bookkeeper.client.read.long_poll import ConfirmedAndEntry, LongPollReading
from bookkeeper.client.read.range import RangeReading
from bookkeeper.client.read.single import EntryReading
from bookkeeper.client.read.stream import FIRST_BATCH, EntryStream, LedgerTail, PayloadStream
from bookkeeper.client.read.unconfirmed import last_stored, report
from bookkeeper.client.read.view import LedgerView
from bookkeeper.errors import (
    BookKeeperError,
    InvalidArgument,
    LedgerClosed,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    ReadBeyondEnd,
    again,
)
from bookkeeper.model import EntryId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.lac import LacRead, TryLacRead

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.store import Watch
    from bookkeeper.ports import Clock
    from bookkeeper.wire.digest import Digest

__all__ = ["ConfirmedAndEntry", "Entry", "PayloadBatch", "ReadHandle"]

WAIT_MAX_S = 86_400
"""Longest wait for an entry, in seconds."""

BATCH_ENTRIES_MAX = 10_000
"""Entries of one `read_batch`, however small."""

BATCH_COUNT_SLACK = 4
"""How many times as many entries as fit on average one `read_batch` asks for: some are smaller than the mean."""

_ANSWER_BYTES, _ANSWER_ENTRY_BYTES = 36, 4
"""Of the answer to a batch read: once, and for each entry beside its body. Source: Apache BatchedReadEntryProcessor."""

READ_AT_ONCE_MAX = 1000
"""Entries of one `read` or `read_unconfirmed` asked for at once; a longer range is read in parts."""


class ReadHandle(OfOneProcess):
    """One ledger, for reading. Made by `LedgerClient.open` and `open_without_recovery`."""

    def __init__(self, context: ClientContext, view: LedgerView, digest: Digest) -> None:
        self.ledger_id = view.ledger_id
        self._context, self._view, self._digest = context, view, digest
        self._watch: Watch | None = None
        self._deleted: MetadataError | None = None
        self._open = True
        self._news: dict[object, Callable[[], None]] = {}
        self._telling = self._untold = False

    # --- what is known

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata seen."""
        return self._view.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read, as far as is known without asking."""
        return self._view.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; of an open one as far as is known."""
        return self._view.length

    @property
    def closed(self) -> bool:
        """The ledger is closed: its end is final."""
        return self._view.closed

    @property
    def settings(self) -> ClientSettings:
        """The client's."""
        return self._context.settings

    @property
    def clock(self) -> Clock:
        """The client's."""
        return self._context.clock

    @property
    def answer_entry_overhead(self) -> int:
        """Bytes of an entry in the answer to a batch read, beside its payload."""
        return self._digest.overhead + _ANSWER_ENTRY_BYTES

    @property
    def mean_entry_size(self) -> float | None:
        """Payload bytes per entry on average, where known."""
        count = self._view.last_add_confirmed + 1
        return self._view.length / count if count > 0 and self._view.length > 0 else None

    def check_open(self) -> None:
        """Raise when the handle or the client is closed, or the ledger deleted."""
        self._context.check_open()
        if not self._open:
            raise LedgerClosed(f"the handle of ledger {self.ledger_id} is closed", ledger_id=self.ledger_id)
        if self._deleted is not None:
            raise again(self._deleted)

    # --- entries

    def read(self, first_entry_id: int, last_entry_id: int) -> Deferred[list[Entry]]:
        """Entries first..last, both included.

        Fails with InvalidArgument unless 0 <= first <= last, ReadBeyondEnd past the last add confirmed, EntryMissing,
        EntryCorrupt or EntryUnreadable when no replica could deliver one of them.
        """
        try:
            self._check_range(first_entry_id, last_entry_id)
            self._check_confirmed(first_entry_id, last_entry_id)
        except BookKeeperError as error:
            return fail(error)
        if first_entry_id == last_entry_id:
            return EntryReading(self._context, self._view, self._digest, first_entry_id).start()
        if last_entry_id - first_entry_id >= READ_AT_ONCE_MAX:
            return Deferred.fromCoroutine(self._read_long(first_entry_id, last_entry_id))
        return self.start_read(first_entry_id, last_entry_id).result

    def read_unconfirmed(self, first_entry_id: int, last_entry_id: int) -> Deferred[list[Entry]]:
        """The same without regard to what is confirmed: entries beyond may vanish, or not be there (I-42).

        Once the ledger is closed its end is final, and nothing beyond it is read (I-40): ReadBeyondEnd.
        """
        return Deferred.fromCoroutine(self._read_unconfirmed(first_entry_id, last_entry_id))

    async def _read_unconfirmed(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        self._check_range(first_entry_id, last_entry_id)
        entries: list[Entry] = []
        for first in range(first_entry_id, last_entry_id + 1, READ_AT_ONCE_MAX):
            if self.closed:
                self._check_confirmed(first_entry_id, last_entry_id)
            last = min(last_entry_id, first + READ_AT_ONCE_MAX - 1)
            entries += await self.start_read(first, last).result
        if self.closed:
            self._check_confirmed(first_entry_id, last_entry_id)
        return entries

    def read_batch(self, first_entry_id: int, count_max: int = 0, size_max: int = 0) -> Deferred[list[Entry]]:
        """Entries from `first` on, as many as come in one go: at least one, and perhaps fewer than asked for.

        count_max, size_max: bounds of their number and of their bytes; 0 for as many as fit a frame. The bytes are
        those of an answer with all of them, in which an entry takes 36 bytes (its ids, LAC, length and size) and its
        digest besides its payload, and the whole 36 more. The first entry comes whatever its size. Where the protocol
        version, the ledger or its bookies do not allow batch reads the entries are read one by one, within the same
        bounds. Fails as `read` does.
        """
        try:
            self._check_range(first_entry_id, first_entry_id)
            self._check_confirmed(first_entry_id, first_entry_id)
            if count_max < 0 or size_max < 0:
                raise InvalidArgument(
                    f"ledger {self.ledger_id}: count_max {count_max}, size_max {size_max}: 0 stands for no limit"
                )
        except BookKeeperError as error:
            return fail(error)
        frame_size_max = self.settings.frame_size_max
        size_max = size_max if 0 < size_max <= frame_size_max else frame_size_max
        last = min(self.last_add_confirmed, first_entry_id + (count_max or BATCH_ENTRIES_MAX) - 1)
        last = min(last, first_entry_id + BATCH_ENTRIES_MAX - 1)
        for fragment in self.metadata.fragments:
            if fragment.first_entry_id > first_entry_id:  # its bookies are others
                last = min(last, fragment.first_entry_id - 1)
                break
        batches = useful(self._context, self.metadata, last + 1 - first_entry_id)
        mean = self.mean_entry_size
        overhead = self.answer_entry_overhead
        fitting = None if mean is None else max(1, int(size_max / (mean + overhead)))
        if not batches:
            count = FIRST_BATCH if fitting is None else min(READ_AT_ONCE_MAX, fitting)
            last = min(last, first_entry_id + count - 1)
        elif fitting is not None:
            # Should the bookie not take batches now, each of these is read plainly, and most of them for nothing.
            last = min(last, first_entry_id + BATCH_COUNT_SLACK * fitting - 1)
        reading = RangeReading(
            self._context,
            self._view,
            self._digest,
            first_entry_id,
            last,
            shape=ENTRIES,
            partial=batches,
            size_max=size_max,
        )
        return reading.start().addCallback(_within, size_max, overhead)

    def read_last(self) -> Deferred[Entry]:
        """The last entry confirmed. Fails with NoSuchEntry when the ledger is empty."""
        last = self.last_add_confirmed
        if last < 0:
            return fail(NoSuchEntry(f"ledger {self.ledger_id} has no entries", ledger_id=self.ledger_id))
        return self.read(last, last).addCallback(lambda entries: entries[0])

    def start_read(self, first_entry_id: int, last_entry_id: int) -> RangeReading[Entry, list[Entry]]:
        """Ask for a range that was checked; the result is in `.result`."""
        reading = RangeReading(self._context, self._view, self._digest, first_entry_id, last_entry_id, shape=ENTRIES)
        reading.start()
        return reading

    def start_payload_read(
        self, first_entry_id: int, last_entry_id: int, answer_bytes_max: int
    ) -> RangeReading[bytes, PayloadBatch]:
        """Start a read of payloads, without an object for each entry. answer_bytes_max: per answer in a batch read."""
        reading = RangeReading(
            self._context,
            self._view,
            self._digest,
            first_entry_id,
            last_entry_id,
            shape=PAYLOADS,
            size_max=answer_bytes_max,
        )
        reading.start()
        return reading

    def _check_range(self, first_entry_id: int, last_entry_id: int) -> None:
        self.check_open()
        if not 0 <= first_entry_id <= last_entry_id:
            raise InvalidArgument(
                f"ledger {self.ledger_id}: {first_entry_id}..{last_entry_id} is no range of entries; "
                "need 0 <= first <= last"
            )

    def _check_confirmed(self, first_entry_id: int, last_entry_id: int) -> None:
        if last_entry_id > self.last_add_confirmed:
            raise ReadBeyondEnd(
                f"ledger {self.ledger_id}: entries {first_entry_id}..{last_entry_id} reach past the last "
                f"confirmed one, {self.last_add_confirmed}; "
                + ("the ledger is closed" if self.closed else "read_last_confirmed first"),
                ledger_id=self.ledger_id,
                entry_id=last_entry_id,
            )

    async def _read_long(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        entries: list[Entry] = []
        stream = EntryStream(self, first_entry_id, last_entry_id)
        try:
            while batch := await stream.next():
                entries += batch
        finally:
            stream.stop()
        return entries

    # --- streams

    def stream(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> EntryStream:
        """Batches of entries with read-ahead, up to `last_entry_id` or to what is confirmed."""
        self._check_first(first_entry_id)
        return EntryStream(self, first_entry_id, last_entry_id)

    def payload_stream(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> PayloadStream:
        """The same for very many entries: their payloads, in batches as large as they come from the bookies."""
        self._check_first(first_entry_id)
        return PayloadStream(self, first_entry_id, last_entry_id)

    def _check_first(self, first_entry_id: int) -> None:
        self.check_open()
        if first_entry_id < 0:
            raise InvalidArgument(f"ledger {self.ledger_id}: first entry {first_entry_id} is negative; ids start at 0")

    async def batches(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[list[Entry]]:
        """The same as an iterator."""
        async for batch in self.stream(first_entry_id, last_entry_id):
            yield batch

    async def payload_batches(
        self, first_entry_id: int = 0, last_entry_id: int | None = None
    ) -> AsyncIterator[PayloadBatch]:
        """Batches of consecutive payloads: for who reads very many entries. See `payload_stream`."""
        async for batch in self.payload_stream(first_entry_id, last_entry_id):
            yield batch

    async def entries(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[Entry]:
        """Entry by entry, read ahead in batches."""
        async for batch in self.stream(first_entry_id, last_entry_id):
            for entry in batch:
                yield entry

    def follow(self, first_entry_id: int = 0) -> LedgerTail:
        """Batches of entries as they are confirmed, until the ledger is closed and read to its end."""
        self._check_first(first_entry_id)
        return LedgerTail(self, first_entry_id)

    async def tail(self, first_entry_id: int = 0) -> AsyncIterator[list[Entry]]:
        """The same as an iterator."""
        async for batch in self.follow(first_entry_id):
            yield batch

    # --- the last add confirmed

    def read_last_confirmed(self) -> Deferred[EntryId]:
        """Ask all bookies of the last fragment, explicit LACs included; the handle adopts the greatest."""
        return self._read_lac(LacRead(self.metadata, ledger_id=self.ledger_id), explicit=True)

    def read_explicit_last_confirmed(self) -> Deferred[EntryId]:
        """The same; Apache's API has both names."""
        return self.read_last_confirmed()

    def try_read_last_confirmed(self) -> Deferred[EntryId]:
        """Fires with the first LAC that is news, or with the one known when all have answered; last entries only."""
        core = TryLacRead(self.metadata, self.last_add_confirmed, ledger_id=self.ledger_id)
        return self._read_lac(core, explicit=False)

    def last_stored(self) -> Deferred[EntryId]:
        """Find the last entry that bookies hold, confirmed or not; fires with its id, -1 if there is none.

        Entries after the LAC may be acknowledged, and may vanish (I-42). No entry after the one found was acknowledged
        before the call.
        """
        return Deferred.fromCoroutine(last_stored(self))

    def report_unconfirmed(self, end: int | None = None) -> Deferred[str | None]:
        """Describe entries after `end` that are or may be acknowledged; fires with None if there are none.

        A reader that ends before the ledger does must report them. end: the last entry that it reads, -1 for none; by
        default the LAC.
        """
        return Deferred.fromCoroutine(report(self, end))

    def read_last_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> Deferred[ConfirmedAndEntry]:
        """Wait until an entry is confirmed, at most `timeout_s`; fires with the last add confirmed and the entry.

        The entry is None when it was not confirmed in time, when the ledger is closed before it, or when its bookies
        see no reason to wait on (it was fenced). At once when it is known to be confirmed already. Else the bookies of
        the last fragment are asked to answer when there is news (a long poll, v3): one after the other, or all at once
        (`parallel`), which costs more and needs no luck where not every bookie gets every entry. `long_poll` says what
        of their answers counts.

        Fails with InvalidArgument; EntryMissing while its bookies hold nothing of the ledger (they do not wait for
        that); EntryUnreadable when none of them can wait, as bookies without v3.
        """
        return Deferred.fromCoroutine(self._wait_for(entry_id, timeout_s, parallel))

    async def _wait_for(self, entry_id: int, timeout_s: float, parallel: bool) -> ConfirmedAndEntry:
        self._check_range(entry_id, entry_id)
        if not 0 <= timeout_s <= WAIT_MAX_S:
            raise InvalidArgument(f"ledger {self.ledger_id}: timeout_s {timeout_s!r} is not in 0..{WAIT_MAX_S}")
        entry: Entry | None = None
        if not self.closed and entry_id > self.last_add_confirmed:
            entry = await self.wait_for(entry_id, timeout_s, parallel=parallel)
        if entry is None and entry_id <= self.last_add_confirmed:
            entry = (await self.start_read(entry_id, entry_id).result)[0]
        return ConfirmedAndEntry(self.last_add_confirmed, entry)

    async def wait_for(self, entry_id: int, timeout_s: float, *, parallel: bool) -> Entry | None:
        """The same for an entry above what is known to be confirmed, without reading it when no answer brought it."""
        waiting = LongPollReading(self._context, self._view, self._digest, entry_id, timeout_s, parallel=parallel)

        def on_news() -> None:
            try:
                self.check_open()
            except BookKeeperError as error:
                waiting.fail(error)
            else:
                waiting.on_ledger_news()

        before = self.last_add_confirmed
        key = self.on_news(on_news)
        try:
            return await waiting.start()
        finally:
            self.forget_news(key)
            if self.last_add_confirmed > before:
                self._tell_news()

    def _read_lac(self, core: LacRead | TryLacRead, *, explicit: bool) -> Deferred[EntryId]:
        try:
            self.check_open()
        except BookKeeperError as error:
            return fail(error)
        if self.closed:
            return succeed(self.last_add_confirmed)
        before = self.last_add_confirmed
        reading = LacReading(self._context, self._view, self._digest, core, explicit=explicit)
        return reading.start().addCallback(self._learn, before)

    def _learn(self, confirmed: EntryId, before: EntryId) -> EntryId:
        """before: what was known when the bookies were asked; each answer has moved the view on by itself."""
        self._view.advance(confirmed)
        if self.last_add_confirmed > before:
            self._tell_news()
        return self.last_add_confirmed

    def note_confirmed(self, entry_id: int) -> None:
        """Another reader has seen the ledger confirmed up to `entry_id`, and what is confirmed stays so (I-42)."""
        self._learn(EntryId(entry_id), self.last_add_confirmed)

    # --- metadata changes

    def watch_metadata(self) -> None:
        """Follow the ledger's metadata until it is closed or this handle is."""
        if self._watch is None and not self.closed:
            self._watch = self._context.store.ledgers.watch(
                self.ledger_id, self._on_metadata, after_version=self._view.versioned.version
            )
            self._context.on_close(self, self._stop_watch)
            self._watch_no_longer_than_needed()  # it may have told something before it returned

    def _on_metadata(self, metadata: Versioned[LedgerMetadata] | None) -> None:
        if metadata is None:
            self._deleted = NoSuchLedger(f"ledger {self.ledger_id} was deleted")
        elif not self._view.adopt(metadata):
            return
        self._watch_no_longer_than_needed()
        self._tell_news()

    def _watch_no_longer_than_needed(self) -> None:
        if self.closed or self._deleted is not None:
            self._stop_watch()

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
            self._context.forget_close(self)

    def on_news(self, call: Callable[[], None]) -> object:
        """Call at every news of the ledger, and when the client closes, until `forget_news` gets the key returned."""
        key = object()
        self._news[key] = call
        self._context.on_close(key, call)
        return key

    def forget_news(self, key: object) -> None:
        """No longer interested."""
        self._news.pop(key, None)
        self._context.forget_close(key)

    def _tell_news(self) -> None:
        """Whoever hears of it may have news to tell in turn: told after this, not within, however many listen."""
        self._untold = True
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                self._untold = False
                for call in list(self._news.values()):
                    call()
        finally:
            self._telling = False

    # --- the end

    def close(self) -> Deferred[None]:
        """Let go of the ledger; nothing is changed in it."""
        self._open = False
        self._stop_watch()
        self._tell_news()
        return succeed(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _within(entries: list[Entry], size_max: int, overhead: int) -> list[Entry]:
    """As many of the entries as a bookie sends in a batch of `size_max` bytes; the first in any case.

    overhead: bytes of an entry in the answer beside its payload.
    """
    size = _ANSWER_BYTES
    for count, entry in enumerate(entries):
        size += overhead + len(entry.payload)
        if size > size_max and count:
            return entries[:count]
    return entries
