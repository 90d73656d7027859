"""Writing a ledger with entry ids that the caller chooses (Apache's LedgerHandleAdv).

Ids may come in any order; acknowledgements come in the order of the ids, and a gap holds back what lies behind it
(I-03, I-06). The entry that fills the gap next to the last acknowledged one is always taken, so that a window full of
later entries cannot block itself. The length of an entry follows the order of the calls, not of the ids.

Source: bookkeeper/wire/FORMATS.md 3.5. Thread: reactor. Each call is sent as one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.client.write.write_handle_base import BYTES, EntryDone, LedgerWriting, call_guarded, not_bytes
from bookkeeper.errors import BookKeeperError, InvalidArgument
from bookkeeper.model import EntryId, LedgerId, LedgerMetadata, Versioned

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest


class AdvancedWriteHandle(LedgerWriting):
    """The writer of one ledger; the caller chooses entry ids. Made by `LedgerClient.create_advanced`."""

    __slots__ = ("_done", "_waiting")

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
        self._done: dict[int, list[EntryDone]] = {}
        self._waiting: deque[tuple[int, bytes, EntryDone]] = deque()
        super().__init__(context, ledger_id, metadata, digest, master_key, deferred_sync=deferred_sync)

    def append(self, entry_id: int, payload: bytes) -> Deferred[EntryId]:
        """Add one entry under `entry_id`; fires once it and all ids below it are acknowledged.

        Waits for room by itself. Fails with DuplicateEntry for an id used before, InvalidArgument for a negative id
        or an entry that can never fit, WindowFull when too many calls wait for room already.
        """
        acknowledged: Deferred[EntryId] = Deferred()

        def done(acknowledged_id: int, error: BookKeeperError | None) -> None:
            if error is None:
                acknowledged.callback(EntryId(entry_id))
            else:
                acknowledged.errback(error)

        try:
            self._check_entry(entry_id, payload)
            if self._fits(entry_id, len(payload)):
                self._send([entry_id], [payload], done)
            elif len(self._waiting) < self._window_entries_max:
                self._waiting.append((entry_id, payload, done))
                self._pipeline.room_wanted = True
            else:
                raise self._full()
        except BookKeeperError as error:
            return fail(error)
        return acknowledged

    def append_many(self, first_entry_id: int, payloads: Sequence[bytes]) -> Deferred[range]:
        """Add entries under consecutive ids; fires with their range once all, and all ids below, are acknowledged."""
        entry_ids = range(first_entry_id, first_entry_id + len(payloads))
        if not payloads:
            return succeed(entry_ids)
        return Deferred.fromCoroutine(self._append_all(entry_ids, payloads))

    async def _append_all(self, entry_ids: range, payloads: Sequence[bytes]) -> range:
        pending: deque[Deferred[EntryId]] = deque()
        failed: list[BookKeeperError] = []
        for entry_id, payload in zip(entry_ids, payloads, strict=True):
            while pending and len(self._waiting) >= self._window_entries_max:
                await self._outcome(pending.popleft(), failed)
            pending.append(self.append(entry_id, payload))
        for add in pending:
            await self._outcome(add, failed)
        if failed:
            raise failed[0]
        return entry_ids

    @staticmethod
    async def _outcome(add: Deferred[EntryId], failed: list[BookKeeperError]) -> None:
        try:
            await add
        except BookKeeperError as error:
            failed.append(error)

    def append_nowait(
        self, entry_id: int, payload: bytes, on_done: Callable[[EntryId, BookKeeperError | None], object] | None = None
    ) -> None:
        """Add one entry at once; `on_done(entry_id, error)` follows. Raises WindowFull, and as `append`."""
        self._check_entry(entry_id, payload)
        if not self._fits(entry_id, len(payload)):
            raise self._full()
        self._send([entry_id], [payload], on_done)  # type: ignore[arg-type]  # called with the EntryId given here

    def flush(self) -> Deferred[EntryId]:
        """Fires once everything added before this call is acknowledged, with the last such entry: the LAC, unless sync
        is deferred. Not before gaps are filled.
        """
        return self._acknowledged_up_to(None)

    def _acknowledged_up_to(self, last: int | None) -> Deferred[EntryId]:
        acknowledged: Deferred[EntryId] = Deferred()

        def done(_: int, error: BookKeeperError | None) -> None:
            if error is None:
                acknowledged.callback(self._window.last_acknowledged)
            else:
                acknowledged.errback(error)

        if self._pipeline.failed:
            return fail(self._why_not())
        if last is None:
            last = max([self.last_add_pushed, *(entry_id for entry_id, _, _ in self._waiting)])
        if last <= self._window.last_acknowledged:
            return succeed(self._window.last_acknowledged)
        self._done.setdefault(last, []).append(done)
        return acknowledged

    def _drain(self) -> Deferred[EntryId]:
        """Up to the first gap: it will not be filled any more, and what lies behind it fails."""
        gap = self._window.first_gap({entry_id for entry_id, _, _ in self._waiting})
        return self._acknowledged_up_to(gap - 1)

    # --- inside

    def _check_entry(self, entry_id: int, payload: bytes) -> None:
        self._check(len(payload))
        if not isinstance(payload, BYTES):
            raise not_bytes(self.ledger_id, [payload])
        if entry_id < 0:
            raise InvalidArgument(f"ledger {self.ledger_id}: entry id {entry_id} is negative; ids start at 0")
        if entry_id >= 2**63:
            raise InvalidArgument(f"ledger {self.ledger_id}: entry id {entry_id} is above {2**63 - 1}")

    def _fits(self, entry_id: int, size: int) -> bool:
        window = self._window
        if not window.accepts_ids([entry_id], [size]) or not self._connections_have_room():
            return False
        if entry_id <= window.last_acknowledged + 1:
            return True
        # Keep room for the entry that everything else waits for.
        reserve = min(self._payload_size_max, self._window_bytes_max // 2)
        return (
            window.occupied_entries < self._window_entries_max - 1
            and window.occupied_bytes + size <= self._window_bytes_max - reserve
        )

    def _send(self, entry_ids: list[int], payloads: list[bytes], on_done: EntryDone | None) -> None:
        self._pipeline.send_ids(entry_ids, payloads)  # raises DuplicateEntry before anything is taken
        if on_done is not None:
            self._done.setdefault(entry_ids[-1], []).append(on_done)

    def _ready_now(self) -> bool:
        return not self._waiting and self.window_free > 1 and self._connections_have_room()

    def _use_room(self) -> None:
        for _ in range(len(self._waiting)):
            if not self._waiting:
                return  # a callback below ended the handle, and everybody was told
            entry_id, payload, done = self._waiting.popleft()
            if not self._fits(entry_id, len(payload)):
                self._waiting.append((entry_id, payload, done))
                continue
            try:
                self._send([entry_id], [payload], done)
            except BookKeeperError as error:
                call_guarded(done, entry_id, error)
        super()._use_room()
        self._pipeline.room_wanted = bool(self._waiting or self._ready)

    def _complete(self, entry_ids: range) -> None:
        if len(self._done) < len(entry_ids):
            ended = sorted(entry_id for entry_id in self._done if entry_id <= entry_ids[-1])
        else:
            ended = [entry_id for entry_id in entry_ids if entry_id in self._done]
        for entry_id in ended:
            for call in self._done.pop(entry_id):
                call_guarded(call, entry_id, None)

    def _has_unfinished(self) -> bool:
        return bool(self._waiting) or super()._has_unfinished()

    def _drop_waiters(self) -> list[tuple[int, EntryDone]]:
        dropped = [(entry_id, call) for entry_id, calls in sorted(self._done.items()) for call in calls]
        dropped += [(entry_id, done) for entry_id, _, done in self._waiting]
        self._done.clear()
        self._waiting.clear()
        return dropped
