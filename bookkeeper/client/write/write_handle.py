"""Writing a ledger: append one or many, hear of acknowledgements in order, close.

    append, append_many          Deferreds; wait for room in the window by themselves, in the order of the calls
    append_nowait,               no Deferred and no wait: WindowFull when there is no room; acknowledgement by a
    callback append_batch_nowait          per entry, or per range through `on_acknowledged`

Entries collect until the end of the reactor turn, or until 256 of them or 64 KiB wait, and leave as one batch.
Acknowledged means: Qa bookies have it on disk (with deferred sync: have it, on disk or not), and all entries before it
are acknowledged (I-05, I-06).

Thread: reactor. Bounds: the window (`window_entries_max`, `window_bytes_max`); calls that wait for room,
`window_entries_max` of them and, beyond the first, as many bytes as the window holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.client.write.turn_flush import FLUSH_BYTES, FLUSH_ENTRIES
from bookkeeper.client.write.write_handle_base import BYTES, EntryDone, LedgerWriting, call_guarded, not_bytes
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import EntryId, LedgerId, LedgerMetadata, Versioned

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest

T = TypeVar("T")

OnDone = Callable[[EntryId, BookKeeperError | None], object]


@dataclass(slots=True)
class _Waiting:
    """Payloads of one call that wait for room. `taken` of them have an id, from `first_entry_id` on."""

    payloads: Sequence[bytes]
    size: int
    on_done: Callable[[range, BookKeeperError | None], object]
    taken: int = 0
    first_entry_id: int = -1

    @property
    def entry_ids(self) -> range:
        """Ids of all its payloads, once the first has one."""
        return range(self.first_entry_id, self.first_entry_id + len(self.payloads))

    def tell(self, last_entry_id: int, error: BookKeeperError | None) -> None:
        """All its payloads are acknowledged, or one of them never will be."""
        self.on_done(self.entry_ids, error)


class WriteHandle(LedgerWriting):
    """The writer of one ledger; entry ids are given in order. Made by `LedgerClient.create`."""

    __slots__ = (
        "_done",
        "_full_channels",
        "_marked",
        "_pending",
        "_pending_bytes",
        "_room_bytes",
        "_room_entries",
        "_sent_in",
        "_turn",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
        *,
        deferred_sync: bool = False,
    ) -> None:
        self._pending: list[bytes] = []  # have an id, not sent yet
        self._pending_bytes = 0
        self._marked = False
        self._turn = context.turn
        self._sent_in = -1  # the turn in which a batch left at once
        self._full_channels = context.channels.full
        self._room_entries = self._room_bytes = 0  # may be taken without asking the window again
        self._done: deque[tuple[int, EntryDone]] = deque()  # by entry id, ascending
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        super().__init__(context, ledger_id, metadata, digest, master_key, deferred_sync=deferred_sync)

    @property
    def last_add_pushed(self) -> EntryId:
        """The last entry id given out."""
        return EntryId(self._window.last_pushed + len(self._pending))

    @property
    def _occupied_entries(self) -> int:
        return self._window.occupied_entries + len(self._pending)

    # --- append

    def append(self, payload: bytes) -> Deferred[EntryId]:
        """Add one entry; fires with its id once it is acknowledged.

        Waits for room in the window by itself. Fails with WindowFull when too many calls wait for room already,
        InvalidArgument for an entry that can never fit, LedgerClosed, or why the handle failed.
        """
        acknowledged: Deferred[EntryId] = Deferred()
        size = len(payload)
        try:
            self._check(size)
            if not isinstance(payload, BYTES):
                raise not_bytes(self.ledger_id, [payload])
            if not self._waiting and self._has_room(size):
                entry_id = self._take(payload, size)
                self._done.append((entry_id, lambda entry_id, error: _settle(acknowledged, EntryId(entry_id), error)))
            else:
                self._wait([payload], size, lambda ids, error: _settle(acknowledged, EntryId(ids.start), error))
        except BookKeeperError as error:
            return fail(error)
        return acknowledged

    def append_many(self, payloads: Sequence[bytes]) -> Deferred[range]:
        """Add entries with consecutive ids; fires with the range of ids once all are acknowledged.

        Waits for room by itself; `payloads` may exceed the window by far and must not be changed meanwhile.
        """
        if not payloads:
            return succeed(range(self.last_add_pushed + 1, self.last_add_pushed + 1))
        acknowledged: Deferred[range] = Deferred()
        try:
            if not all(isinstance(payload, BYTES) for payload in payloads):
                raise not_bytes(self.ledger_id, payloads)
            sizes = list(map(len, payloads))
            self._check(max(sizes))
            self._wait(payloads, sum(sizes), lambda ids, error: _settle(acknowledged, ids, error))
        except BookKeeperError as error:
            return fail(error)
        return acknowledged

    def append_nowait(self, payload: bytes, on_done: OnDone | None = None) -> EntryId:
        """Add one entry at once and return its id; `on_done(entry_id, error)` follows, in order of the ids.

        Raises WindowFull when there is no room; nothing was taken. Await `ready()` and try again.
        """
        size = len(payload)
        self._check(size)
        if self._waiting or not self._has_room(size):
            raise self._full()
        entry_id = EntryId(self._take(payload, size))
        if on_done is not None:
            self._done.append((entry_id, on_done))  # type: ignore[arg-type]  # called with the EntryIds given here
        return entry_id

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        """Add entries at once and return their ids; completion only through `on_acknowledged` and `on_failed`.

        Raises WindowFull when not all of them fit, InvalidArgument for one that is too large, and for a single one that
        is no bytes (of several that ends the handle, by `on_failed`); nothing was taken then.
        """
        if not payloads:
            return range(self.last_add_pushed + 1, self.last_add_pushed + 1)
        if len(payloads) == 1:
            [payload] = payloads
            size = len(payload)
            if not self._accepting or size > self._payload_size_max:
                self._check(size)
            if not isinstance(payload, BYTES):
                raise not_bytes(self.ledger_id, payloads)
            if self._waiting or not self._has_room(size):
                raise self._full()
            turn = self._turn
            if self._sent_in == turn.number or self._pending or self._marked:
                first = self._take(payload, size)
                return range(first, first + 1)
            # The first batch of a turn is often its only one, of very many ledgers: it need not wait for more.
            self._sent_in = turn.number
            self._room_entries -= 1
            self._room_bytes -= size
            first = self._window.next_entry_id
            self._send_one(payload)
            return range(first, first + 1)
        sizes = list(map(len, payloads))
        self._check(max(sizes))
        size, count = sum(sizes), len(sizes)
        if self._waiting or not self._all_fit(count, size):
            raise self._full()
        first = self._window.next_entry_id + len(self._pending)
        self._pending += payloads
        self._pending_bytes += size
        self._room_entries = self._room_bytes = 0  # counted again at the next single append
        self._mark()
        return range(first, first + count)

    def flush(self) -> Deferred[EntryId]:
        """Fires once everything appended before this call is acknowledged, with the last such entry: the LAC, unless
        sync is deferred.
        """
        acknowledged: Deferred[EntryId] = Deferred()

        def done(last: int, error: BookKeeperError | None) -> None:
            _settle(acknowledged, self._window.last_acknowledged, error)

        if self._pipeline.failed:
            return fail(self._why_not())
        if self._waiting:
            waiting = self._waiting[-1]
            told = waiting.on_done

            def tell_both(entry_ids: range, error: BookKeeperError | None) -> None:
                call_guarded(told, entry_ids, error)
                done(entry_ids.stop - 1, error)

            waiting.on_done = tell_both
        elif self.last_add_pushed > self._window.last_acknowledged:
            self._done.append((self.last_add_pushed, done))
        else:
            return succeed(self._window.last_acknowledged)
        return acknowledged

    # --- room

    def _ready_now(self) -> bool:
        return not self._waiting and self._has_room(1)

    def _has_room(self, size: int) -> bool:
        """Whether an entry of this size fits. Asks the window now and then, not once per entry: room only grows."""
        if self._room_entries > 0 and size <= self._room_bytes and not self._full_channels:
            return True
        self._room_entries = self._room_bytes = 0
        if not self._connections_have_room():
            return False
        occupied = self._occupied_entries
        entries = self._window_entries_max - occupied
        room_bytes = self._window_bytes_max - self._window.occupied_bytes - self._pending_bytes
        if not occupied:
            room_bytes = max(room_bytes, size)  # an empty window takes any one entry
        if entries <= 0 or size > room_bytes:
            return False
        self._room_entries, self._room_bytes = min(entries, FLUSH_ENTRIES), room_bytes
        return True

    def _all_fit(self, count: int, size: int) -> bool:
        occupied = self._occupied_entries
        entries_fit = occupied + count <= self._window_entries_max
        bytes_fit = self._window.occupied_bytes + self._pending_bytes + size <= self._window_bytes_max
        alone = not occupied and count == 1
        return (alone or (entries_fit and bytes_fit)) and self._connections_have_room()

    def _take(self, payload: bytes, size: int) -> int:
        """Give the payload its id; the caller asked `_has_room`."""
        pending = self._pending
        entry_id = self._window.next_entry_id + len(pending)
        self._room_entries -= 1
        self._room_bytes -= size
        pending.append(payload)
        self._pending_bytes += size
        if not self._marked or len(pending) >= FLUSH_ENTRIES or self._pending_bytes >= FLUSH_BYTES:
            self._mark()
        return entry_id

    def _mark(self) -> None:
        if len(self._pending) >= FLUSH_ENTRIES or self._pending_bytes >= FLUSH_BYTES:
            self._send_pending()
        elif not self._marked:
            self._marked = True
            self._turn.mark_writer(self)

    def end_turn(self) -> None:
        """What was appended in this turn leaves now."""
        self._marked = False
        pending = self._pending
        if len(pending) != 1 or self._pipeline.failed:
            self._send_pending()
            return
        self._pending_bytes = 0
        self._send_one(pending.pop())

    def _send_one(self, payload: bytes) -> None:
        try:
            self._pipeline.send_one(payload)
        except TypeError as error:  # as below
            self._pipeline.fail(not_bytes(self.ledger_id, [payload], error))

    def _send_pending(self) -> None:
        pending, pipeline = self._pending, self._pipeline
        if pending and not pipeline.failed:
            payloads, self._pending = pending, []
            self._pending_bytes = 0
            try:
                pipeline.send(payloads)
            except TypeError as error:  # they have ids, and there is nothing to send under them
                self._pipeline.fail(not_bytes(self.ledger_id, payloads, error))

    def _wait(
        self, payloads: Sequence[bytes], size: int, on_done: Callable[[range, BookKeeperError | None], object]
    ) -> None:
        """Queue a call behind those that wait for room; it goes at once if it can."""
        calls, queued = len(self._waiting), self._waiting_bytes + size
        if calls and (calls >= self._window_entries_max or queued > self._window_bytes_max):
            raise self._full()
        self._waiting.append(_Waiting(payloads, size, on_done))
        self._waiting_bytes = queued
        self._pipeline.room_wanted = True
        if not calls:
            self._use_room()

    def _use_room(self) -> None:
        while self._waiting and self._take_some(self._waiting[0]):
            self._waiting_bytes -= self._waiting.popleft().size
        super()._use_room()
        self._pipeline.room_wanted = bool(self._waiting or self._ready)

    def _take_some(self, waiting: _Waiting) -> bool:
        """Give ids to the next payloads of one call; True when it has them all."""
        payloads = waiting.payloads
        while waiting.taken < len(payloads) and not self._pipeline.failed:
            payload = payloads[waiting.taken]
            size = len(payload)
            if not self._has_room(size):
                return False
            waiting.taken += 1
            entry_id = self._take(payload, size)
            if waiting.first_entry_id < 0:
                waiting.first_entry_id = entry_id
        if self._pipeline.failed:
            return False
        self._done.append((waiting.entry_ids[-1], waiting.tell))
        return True

    # --- acknowledgements

    def _complete(self, entry_ids: range) -> None:
        last, done = entry_ids[-1], self._done
        while done and done[0][0] <= last:
            entry_id, call = done.popleft()
            call_guarded(call, entry_id, None)

    def _has_unfinished(self) -> bool:
        return bool(self._waiting) or super()._has_unfinished()

    def _drop_waiters(self) -> list[tuple[int, EntryDone]]:
        self._pending.clear()
        self._pending_bytes = 0
        dropped = list(self._done)
        self._done.clear()
        dropped += [(-1, waiting.tell) for waiting in self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return dropped


def _settle(deferred: Deferred[T], value: T, error: BookKeeperError | None) -> None:
    if error is None:
        deferred.callback(value)
    else:
        deferred.errback(error)
