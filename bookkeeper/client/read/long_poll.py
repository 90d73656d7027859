"""Waiting for the next entry of an open ledger to be confirmed: drives `protocol.long_poll` over v3 channels.

Source: bookkeeper/wire/FORMATS.md 2.5, 3.8.

What may be believed. A long poll's answer tells a LAC (`maxLAC`) that no digest covers, and perhaps the entry after the
one asked about, whose own LAC is of necessity an older one. A flipped bit, a bookie that was fenced (it answers with
the greatest number there is) or one that lost its mind could make a reader take entries for confirmed that may yet
vanish (I-42, I-44). So the answer only means "ask me": the same bookie is asked for its explicit LAC and its last
entry, both of which the writer signed with the ledger's digest, and only a LAC found there counts. An answer
that it cannot prove counts as no news. An entry that came along is used once its digest is right and the proven LAC
covers it. The price is one more round trip to a bookie that is not waiting for anything.

The wait follows the ledger's metadata: it ends when the ledger is closed, and starts anew at the members of a new
fragment (I-46). Nothing here fences (I-43). Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.bookies.access_errors import explained
from bookkeeper.client.read.entries import Entry, entry_of
from bookkeeper.client.read.lac import LacReading
from bookkeeper.errors import BookKeeperError, ClientClosed, NotSupportedByBookie, UnsupportedVersion
from bookkeeper.model import EXPLICIT_NEGATIVES, BookieId, EntryId, Status
from bookkeeper.protocol.lac import ToldLac
from bookkeeper.protocol.long_poll import LongPoll
from bookkeeper.wire.messages import GenericFailure, LongPollReply, ReadFailed

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.read.view import LedgerView
    from bookkeeper.ports import Timer
    from bookkeeper.wire.digest import Digest

log = Logger()

_NOT_UNDERSTOOD = frozenset({Status.BAD_REQUEST, Status.BAD_VERSION})


class ConfirmedAndEntry(NamedTuple):
    """What a wait found: the last add confirmed now, and the entry waited for if it is confirmed."""

    last_add_confirmed: EntryId
    entry: Entry | None


class LongPollReading:
    """One wait for `entry_id`, which is above what is known to be confirmed, of at most `timeout_s`.

    `result` fires with the entry if an answer brought it and its confirmation is proven, else with None; what is
    confirmed is in the view. Fails with EntryMissing where the bookies hold nothing of the ledger yet, EntryUnreadable
    where none of them waits.
    """

    def __init__(
        self,
        context: ClientContext,
        view: LedgerView,
        digest: Digest,
        entry_id: int,
        timeout_s: float,
        *,
        parallel: bool,
    ) -> None:
        self.result: Deferred[Entry | None] = Deferred(self._cancelled)
        self._context, self._view, self._digest = context, view, digest
        self._entry_id, self._parallel = entry_id, parallel
        self._until = context.clock.seconds() + timeout_s
        self._entry: Entry | None = None
        self._timer: Timer | None = None
        self._over = False
        self._core = self._new_core()

    def _new_core(self) -> LongPoll:
        """A wait at the members of the last fragment, beginning with the one that gets the entry first."""
        metadata, context = self._view.metadata, self._context
        self._ensemble = ensemble = metadata.last_fragment.ensemble
        first = self._entry_id % len(ensemble)
        return LongPoll(
            metadata,
            self._entry_id - 1,
            context.reading_order(ensemble[first:] + ensemble[:first]),
            ledger_id=self._view.ledger_id,
            parallel=self._parallel,
            speculation=context.lac_speculation,
        )

    def start(self) -> Deferred[Entry | None]:
        """Ask the first."""
        self._go_on(self._core, self._core.start(self._context.clock.seconds()))
        return self.result

    # --- questions

    def _go_on(self, core: LongPoll, bookies: Sequence[BookieId]) -> None:
        """Ask these; then see whether it is over. Events of an earlier fragment's wait no longer count."""
        if self._over or core is not self._core:
            return
        waiting = list(bookies)
        while waiting:
            bookie_id = waiting.pop(0)
            if bookie_id in self._context.without_long_poll or self._context.v3_channel(bookie_id).refused:
                waiting += core.on_unknown(bookie_id, _no_long_polls(bookie_id))
            else:
                self._ask(core, bookie_id)
        if core.done:
            self._finish()
        elif self._timer is None and core.next_speculation is not None:
            delay_s = max(0.0, core.next_speculation - self._context.clock.seconds())
            self._timer = self._context.clock.callLater(delay_s, self._speculate)

    def _ask(self, core: LongPoll, bookie_id: BookieId) -> None:
        context = self._context
        wait_s = max(0.0, self._until - context.clock.seconds())
        context.v3_channel(bookie_id).call(
            context.v3_encoder.encode_long_poll(self._view.ledger_id, self._entry_id - 1, int(wait_s * 1000)),
            wait_s + context.settings.read_timeout_s,
            partial(self._on_reply, core, bookie_id),
            partial(self._on_unknown, core, bookie_id),
            waits=True,
        )

    def _speculate(self) -> None:
        self._timer = None
        self._go_on(self._core, self._core.speculative_due(self._context.clock.seconds()))

    # --- answers

    def _on_unknown(self, core: LongPoll, bookie_id: BookieId, error: object) -> None:
        if self._over:
            return
        if self._context.closed:
            self.fail(ClientClosed(f"the client was closed while it waited for ledger {self._view.ledger_id}"))
        else:
            if isinstance(error, UnsupportedVersion):
                error = _no_long_polls(bookie_id)  # the ledger may be readable all the same
            self._go_on(core, core.on_unknown(bookie_id, error))

    def _on_reply(self, core: LongPoll, bookie_id: BookieId, reply: Any) -> None:
        if self._over:
            return
        if isinstance(reply, LongPollReply):
            self._on_told(core, bookie_id, reply)
        elif isinstance(reply, ReadFailed | GenericFailure):
            self._go_on(core, self._on_status(core, bookie_id, reply.status))
        else:
            self._go_on(core, core.on_unknown(bookie_id, "an answer of another kind"))

    def _on_status(self, core: LongPoll, bookie_id: BookieId, status: Status) -> list[BookieId]:
        if status in EXPLICIT_NEGATIVES:
            return core.on_missing(bookie_id, status)
        if status in _NOT_UNDERSTOOD:
            self._context.without_long_poll.add(bookie_id)
            return core.on_unknown(bookie_id, _no_long_polls(bookie_id))
        why = self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._view.ledger_id)
        return core.on_unknown(bookie_id, why)

    def _on_told(self, core: LongPoll, bookie_id: BookieId, reply: LongPollReply) -> None:
        if reply.body is not None:
            self._keep(bookie_id, reply.body)
        if reply.body is None and (reply.max_lac is None or reply.max_lac < self._entry_id):
            self._go_on(core, core.on_empty(bookie_id))
            return
        proof = ToldLac(bookie_id, ledger_id=self._view.ledger_id)
        reading = LacReading(self._context, self._view, self._digest, proof, explicit=True)
        reading.start().addCallbacks(
            partial(self._on_proven, core, bookie_id), partial(self._on_unproven, core, bookie_id)
        )

    def _keep(self, bookie_id: BookieId, body: bytes) -> None:
        good = self._digest.verify_entry(self._view.ledger_id, self._entry_id, body)
        if good is None:
            log.warn(
                "bookie {bookie_id} sent a damaged copy of entry {entry_id} of ledger {ledger_id}",
                bookie_id=bookie_id,
                entry_id=self._entry_id,
                ledger_id=self._view.ledger_id,
            )
        else:
            self._entry = entry_of(self._entry_id, good[0], good[1])

    def _on_proven(self, core: LongPoll, bookie_id: BookieId, lac: EntryId) -> None:
        self._view.advance(lac)
        self.on_ledger_news()  # what is proven is so whoever proved it, also a member of an earlier fragment
        self._go_on(core, core.on_news(bookie_id, lac))

    def _on_unproven(self, core: LongPoll, bookie_id: BookieId, failure: Failure) -> None:
        self._on_unknown(core, bookie_id, failure.value)

    # --- the ledger

    def on_ledger_news(self) -> None:
        """The ledger's metadata changed, or its last add confirmed was learnt by another way."""
        if self._over:
            return
        if self._view.closed or self._view.last_add_confirmed >= self._entry_id:
            self._end()
            self.result.callback(self._confirmed_entry())
        elif self._view.metadata.last_fragment.ensemble != self._ensemble:
            self._stop_timer()
            self._core = self._new_core()
            self._go_on(self._core, self._core.start(self._context.clock.seconds()))

    def fail(self, error: BookKeeperError) -> None:
        """The handle can wait no longer."""
        if not self._over:
            self._end()
            self.result.errback(error)

    # --- the end

    def _finish(self) -> None:
        error = self._core.error()
        self._end()
        if error is not None:
            self.result.errback(explained(error))
        else:
            self.result.callback(self._confirmed_entry())

    def _confirmed_entry(self) -> Entry | None:
        return self._entry if self._entry_id <= self._view.last_add_confirmed else None

    def _end(self) -> None:
        self._over = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _cancelled(self, _: object) -> None:
        """The caller lost interest. The bookies answer in their time, and nobody listens."""
        self._end()


def _no_long_polls(bookie_id: BookieId) -> NotSupportedByBookie:
    return NotSupportedByBookie(f"bookie {bookie_id} does not know long polls")
