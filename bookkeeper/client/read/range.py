"""Reading a range of entries: drives `protocol.reads.RangeRead` over the channels.

Requests to one bookie leave joined, or ask for many entries in one answer (`batch_read`) where the ledger allows it;
answers are verified per batch. A replica whose answer is bad, missing or late is passed over for the next one; a slow
one gets company after the speculative delay.

Members change under a reader, and the news may be late: an entry that is confirmed and that the bookies asked do not
deliver is looked for again where newer metadata says it is (I-46). Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.client.read import batch as batch_read
from bookkeeper.errors import (
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    EntryUnreadable,
    MetadataError,
    NoSuchLedger,
    RequestNotSent,
)
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, Status
from bookkeeper.protocol.reads import RangeRead, ReadRequest
from bookkeeper.wire.digest import RUN_MIN
from bookkeeper.wire.packed_bodies import PackedBodies

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.read.entries import Shape
    from bookkeeper.client.read.view import LedgerView
    from bookkeeper.ports import Timer
    from bookkeeper.wire.digest import Digest

log = Logger()


LOOKS_MAX = 16
"""Times that one read follows its entries to new members."""


V = TypeVar("V")
T = TypeVar("T")


class RangeReading(Generic[V, T]):
    """One read of entries first..last, both included. `result` fires with them all, or fails with a LedgerError.

    shape: kind of the result. partial: allow a result with fewer entries, from `first` on and at least one. size_max:
    bytes of an answer in a batch read. asked: a bookie that already received the request for a single entry.
    """

    def __init__(
        self,
        context: ClientContext,
        view: LedgerView,
        digest: Digest,
        first_entry_id: int,
        last_entry_id: int,
        *,
        shape: Shape[V, T],
        partial: bool = False,
        size_max: int = batch_read.BATCH_BYTES,
        asked: BookieId | None = None,
    ) -> None:
        self.result: Deferred[T] = Deferred(self._cancelled)
        self._shape = shape
        self._context, self._view, self._digest = context, view, digest
        self._first, self._last = first_entry_id, last_entry_id
        self._timer: Timer | None = None
        self._partial = partial
        self._size_max = min(size_max, context.settings.frame_size_max)
        self.over = False
        self._found: list[V] = []  # values from `first` on, read by earlier attempts
        self._readable: list[V] = []  # those values after the read has failed
        self._looks_left = LOOKS_MAX
        self._asked = asked
        self._core = self._new_core()

    def _new_core(self) -> RangeRead[V]:
        """A read of what is not found yet, where the newest metadata says it is."""
        context, view = self._context, self._view
        self._metadata = view.versioned
        count = self._last + 1 - self._first - len(self._found)
        self._batches = batch_read.useful(context, view.metadata, count)
        return RangeRead(
            view.metadata,
            self._first + len(self._found),
            self._last,
            ledger_id=view.ledger_id,
            prefer=self._order,
            speculation=context.speculation,
            turn=context.batches.next_turn() if self._batches else None,
        )

    def _order(self, replicas: tuple[BookieId, ...]) -> Sequence[BookieId]:
        order, asked = self._context.reading_order(replicas), self._asked
        if asked not in replicas:
            return order
        return [asked, *(bookie_id for bookie_id in order if bookie_id != asked)]

    def start(self, began_s: float | None = None) -> Deferred[T]:
        """Send the first requests. began_s: when it began, if that was earlier: the speculative delay runs since."""
        requests = self._core.start(self._context.clock.seconds() if began_s is None else began_s)
        asked, self._asked = self._asked, None
        self._go_on([request for request in requests if request.bookie_id != asked])
        return self.result

    def take_readable(self) -> T | None:
        """Once, of a read that has failed: the entries before the one that its error names; forgotten then."""
        values, self._readable = self._readable, []
        return self._shape.whole(self._first, values) if values else None

    # --- answers

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Entries as a bookie holds them.

        Differs from Apache: `max_lac` is under no digest, so a reader does not take it for the end of what is confirmed
        (I-42, I-44); who wants to know asks for it (`lac`, `long_poll`).
        """
        if self.over:
            return
        digest, ledger_id, shape = self._digest, self._view.ledger_id, self._shape
        together = len(bodies) >= RUN_MIN or isinstance(bodies, PackedBodies)
        run = digest.verify_run(ledger_id, entry_ids, bodies) if together else None
        if run is not None:
            values = shape.run(entry_ids, run)
            if isinstance(entry_ids, range):
                self._go_on(self._core.on_run(bookie_id, entry_ids, values))
            else:
                self._go_on(self._core.on_bodies(bookie_id, entry_ids, values))
            return
        verify, one = digest.verify_entry, shape.one
        found = [
            None if (good := verify(ledger_id, entry_id, body)) is None else one(entry_id, good[0], good[1])
            for entry_id, body in zip(entry_ids, bodies, strict=True)
        ]
        if None in found:
            damaged = [entry_id for entry_id, value in zip(entry_ids, found, strict=True) if value is None]
            log.warn(
                "bookie {bookie_id} sent damaged copies of entries {damaged} of ledger {ledger_id}",
                bookie_id=bookie_id,
                damaged=damaged[:10],
                ledger_id=ledger_id,
            )
        self._go_on(self._core.on_bodies(bookie_id, entry_ids, found))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """A verdict on one entry."""
        if self.over:
            return
        if status in EXPLICIT_NEGATIVES:
            self._go_on(self._core.on_negative(bookie_id, [entry_id], status))
        else:
            why = self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._view.ledger_id, entry_id=entry_id)
            self._go_on(self._core.on_unknown(bookie_id, [entry_id], why))

    def on_verdict(self, bookie_id: BookieId, entry_ids: list[int], status: Status) -> None:
        """A verdict on several."""
        if self.over:
            return
        if status in EXPLICIT_NEGATIVES:
            self._go_on(self._core.on_negative(bookie_id, entry_ids, status))
        else:
            why = self._context.error_of(
                status, bookie_id=bookie_id, ledger_id=self._view.ledger_id, entry_id=entry_ids[0]
            )
            self._go_on(self._core.on_unknown(bookie_id, entry_ids, why))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict."""
        if self.over:
            return
        if self._context.closed:
            self._fail(ClientClosed(f"the client was closed while ledger {self._view.ledger_id} was being read"))
            return
        if not isinstance(error, RequestNotSent):
            self._context.directory.quarantine(bookie_id)
        self._go_on(self._core.on_unknown(bookie_id, entry_ids, error))

    # --- going on

    def _go_on(self, requests: Sequence[ReadRequest]) -> None:
        for request in requests:
            self._ask(request)
        if self._partial and not self._core.done:
            self._found += self._core.take()
        if self._partial and self._found:
            self._deliver(self._found)
        elif self._core.done:
            self._finish()
        elif self._timer is None:
            due = self._core.next_speculation
            if due is not None:
                delay_s = max(0.0, due - self._context.clock.seconds())
                self._timer = self._context.clock.callLater(delay_s, self._speculate)

    def _ask(self, request: ReadRequest) -> None:
        ledger_id = self._view.ledger_id
        if self._batches:
            batch_read.ask(self._context, self, ledger_id, request.bookie_id, request.entry_ids, self._size_max)
        else:
            self._context.channel(request.bookie_id).read(self, ledger_id, request.entry_ids)

    def _speculate(self) -> None:
        self._timer = None
        self._go_on(self._core.speculative_due(self._context.clock.seconds()))

    def _finish(self) -> None:
        error = self._core.error()
        values = self._found = self._found + self._core.take() if self._found else self._core.take()
        if self._partial and values:
            self._deliver(values)  # later entries may be unreadable: the next read reports that
            return
        if error is not None:
            self._look_again(error)
            return
        if len(values) != self._last - self._first + 1:
            self._fail(
                EntryUnreadable(
                    f"ledger {self._view.ledger_id}: read {len(values)} of entries {self._first}..{self._last}",
                    ledger_id=self._view.ledger_id,
                    entry_id=self._first + len(values),
                )
            )
            return
        self._deliver(values)

    def _deliver(self, values: list[V]) -> None:
        self._end()
        self.result.callback(self._shape.whole(self._first, values))

    def _look_again(self, error: BookKeeperError) -> None:
        """Fail, unless the members may have changed: then read the rest from the new ones."""
        self._stop_timer()
        missing = self._first + len(self._found)
        if missing > self._view.last_add_confirmed or not self._looks_left:
            self._fail(error)
        elif self._moved(missing):
            self._looks_left -= 1
            self._core = self._new_core()
            self._go_on(self._core.start(self._context.clock.seconds()))
        elif self._view.versioned.version > self._metadata.version:
            self._fail(error)
        else:
            self._context.spawn(self._ask_metadata(error), f"reading ledger {self._view.ledger_id}")

    def _moved(self, entry_id: int) -> bool:
        """Whether the newest metadata names other bookies for the entry than those that were asked."""
        return self._view.metadata.fragment_of(entry_id).ensemble != (
            self._metadata.value.fragment_of(entry_id).ensemble
        )

    async def _ask_metadata(self, error: BookKeeperError) -> None:
        """Once per version: what the store says now, after a sync (I-19)."""
        store, view = self._context.store, self._view
        try:
            await store.sync()
            found = await store.ledgers.read(view.ledger_id)
        except NoSuchLedger as gone:
            error = gone
        except MetadataError as unavailable:
            log.debug("no newer metadata of ledger {ledger_id}: {error}", ledger_id=view.ledger_id, error=unavailable)
        except CancelledError:
            error = ClientClosed(f"the client was closed while ledger {view.ledger_id} was being read")
        else:
            view.adopt(found)
        if self.over:
            return
        if self._moved(self._first + len(self._found)):
            self._look_again(error)
        else:
            self._fail(error)

    def _fail(self, error: BookKeeperError) -> None:
        self._readable = self._found
        self._end()
        self.result.errback(explained(error))

    def _end(self) -> None:
        self.over = True
        self._found = []  # the connection keeps this read until its deadline; free the values now
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _cancelled(self, _: object) -> None:
        """The caller lost interest: late answers are dropped."""
        self._end()
