"""Reading one entry: the replica to ask first, and nothing else, as long as it delivers.

Most single reads end with the first answer, so only that is here. Whatever else happens (a damaged copy, a verdict, no
answer, or none by the speculative delay) is a `RangeReading`'s, which takes over with what was asked already:

    asked --good body--> delivered
      `--anything else, or late--> RangeReading: the further replicas, newer metadata, the error

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.read.entries import ENTRIES, Entry, entry_of
from bookkeeper.client.read.range import RangeReading

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.client.read.view import LedgerView
    from bookkeeper.errors import BookieUnavailable
    from bookkeeper.model import BookieId, Status
    from bookkeeper.wire.digest import Digest


class EntryReading:
    """One read of one entry. `result` fires with it alone in a list, or fails with a LedgerError."""

    __slots__ = ("_asked", "_context", "_digest", "_entry_id", "_range", "_result", "_view", "began_s", "over")

    def __init__(self, context: ClientContext, view: LedgerView, digest: Digest, entry_id: int) -> None:
        self._context, self._view, self._digest, self._entry_id = context, view, digest, entry_id
        self._range: RangeReading[Entry, list[Entry]] | None = None
        self._result: Deferred[list[Entry]] | None = None
        self.over = False
        """Answered, or somebody else's by now."""

    def start(self) -> Deferred[list[Entry]]:
        """Ask the first replica."""
        result: Deferred[list[Entry]] = Deferred(self._cancelled)
        self._result = result
        context, entry_id = self._context, self._entry_id
        self.began_s = context.clock.seconds()
        self._asked = context.first_replica(self._view.metadata, entry_id)
        late_reads = context.late_reads
        if late_reads is not None:
            late_reads.watch(self)
        context.channel(self._asked).read(self, self._view.ledger_id, (entry_id,))
        return result

    # --- answers

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """The entry as the bookie holds it."""
        if not self.over:
            good = self._digest.verify_entry(self._view.ledger_id, self._entry_id, bodies[0])
            result = self._result
            if good is not None and result is not None:
                self.over, self._result = True, None
                result.callback([entry_of(self._entry_id, good[0], good[1])])
                return
        taker = self._take_over()
        if taker is not None:
            taker.on_bodies(bookie_id, entry_ids, bodies, max_lac)

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """The bookie's verdict."""
        taker = self._take_over()
        if taker is not None:
            taker.on_read_status(bookie_id, entry_id, status)

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict."""
        taker = self._take_over()
        if taker is not None:
            taker.on_read_unknown(bookie_id, entry_ids, error)

    def on_late(self) -> None:
        """The speculative delay has passed."""
        self._take_over()

    # --- when it is not that simple

    def _take_over(self) -> RangeReading[Entry, list[Entry]] | None:
        """Who reads on; None when nobody wants the entry any more."""
        result = self._result
        if self._range is None and result is not None and not self.over:
            self.over = True
            reading = self._range = RangeReading(
                self._context,
                self._view,
                self._digest,
                self._entry_id,
                self._entry_id,
                shape=ENTRIES,
                asked=self._asked,
            )
            reading.result.addBoth(self._pass_on)
            reading.start(began_s=self.began_s)
        return self._range

    def _pass_on(self, outcome: list[Entry] | Failure) -> None:
        result, self._result = self._result, None
        if result is not None:
            result.callback(outcome)

    def _cancelled(self, _: object) -> None:
        """The caller lost interest: late answers are dropped."""
        self.over, self._result = True, None
        if self._range is not None:
            self._range.result.cancel()
