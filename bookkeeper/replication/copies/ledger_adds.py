"""Copies of one ledger's entries on their way to bookies, and what these answer.

A bookie's answers to adds name ledger and entry, not who asked; so everything that is written of a ledger at a time
goes through one `LedgerAdds`, on connections that nobody else's adds use (`ClientContext.copy_channel`).

A write is one batch for one bookie. It succeeds when the bookie has acknowledged, and so made durable, every entry of
it; the first refusal, the end of the connection, or silence for the add timeout fails it. Answers that come after that
are for nobody. An acknowledgement can only be for the same bytes that are waited for: an entry id has one payload for
ever (I-03).

Thread: reactor. Bounds: those of who writes (`flow.CopyFlow`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.client.deadline_timer import PatientTimer
from bookkeeper.errors import BookieUnavailable, BookKeeperError, RequestTimedOut, again
from bookkeeper.model import BookieId, LedgerId, Status

if TYPE_CHECKING:
    from bookkeeper.client.bookies.connection import BookieChannel
    from bookkeeper.client.context import ClientContext


class _Write:
    """Entries that one bookie has not acknowledged."""

    __slots__ = ("done", "left", "timer")

    def __init__(self, entry_ids: Sequence[int]) -> None:
        self.left = set(entry_ids)
        self.done: Deferred[None] = Deferred(lambda _: None)
        self.timer: PatientTimer | None = None


class LedgerAdds:
    """What is being written of one ledger. `close` it when nothing is."""

    def __init__(self, context: ClientContext, ledger_id: LedgerId) -> None:
        self._context, self._ledger_id = context, ledger_id
        self._writes: dict[BookieId, list[_Write]] = {}

    def write(
        self, bookie_id: BookieId, entry_ids: Sequence[int], frames: Sequence[bytes], size: int, version: int
    ) -> Deferred[None]:
        """Send adds to a bookie; fires when it has stored them all.

        frames: adds of `ClientContext.copy_encoder`, one per entry; size: their bytes together; version: the encoder's.
        Fails with a BookieError, BookieUnavailable.
        """
        context = self._context
        write = _Write(entry_ids)
        channel = context.copy_channel(bookie_id, version)
        self._writes.setdefault(bookie_id, []).append(write)
        timeout_s = context.settings.add_timeout_s
        if timeout_s > 0:
            write.timer = PatientTimer(context.clock, timeout_s, lambda: self._on_silence(channel, write, timeout_s))
        channel.send_adds(self, self._ledger_id, frames, size)
        return write.done

    def close(self) -> None:
        """Want no more answers."""
        for writes in self._writes.values():
            for write in writes:
                _stop(write)
        self._writes.clear()
        self._context.channels.forget_writer(self._ledger_id, self)

    # --- answers

    def on_add_ack(self, bookie_id: BookieId, entry_id: int) -> None:
        """See AddOwner."""
        self.on_add_acks(bookie_id, [entry_id])

    def on_add_acks(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        """See AddOwner."""
        complete = []
        for write in self._writes.get(bookie_id, ()):
            write.left.difference_update(entry_ids)
            if not write.left:
                complete.append(write)
        for write in complete:
            self._settle(bookie_id, write, None)

    def on_add_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """See AddOwner."""
        error = self._context.error_of(status, bookie_id=bookie_id, ledger_id=self._ledger_id, entry_id=entry_id)
        for write in [write for write in self._writes.get(bookie_id, ()) if entry_id in write.left]:
            self._settle(bookie_id, write, error)

    def on_bookie_lost(self, bookie_id: BookieId, error: BookieUnavailable) -> None:
        """See AddOwner."""
        for write in list(self._writes.get(bookie_id, ())):
            self._settle(bookie_id, write, error)

    def _on_silence(self, channel: BookieChannel, write: _Write, timeout_s: float) -> None:
        bookie_id = channel.bookie_id
        error = RequestTimedOut(
            f"bookie {bookie_id} did not acknowledge entry {min(write.left)} of ledger {self._ledger_id} "
            f"within {timeout_s:g} s",
            bookie_id=bookie_id,
        )
        self._settle(bookie_id, write, error)
        channel.check_silence(timeout_s)

    def _settle(self, bookie_id: BookieId, write: _Write, error: BookKeeperError | None) -> None:
        writes = self._writes.get(bookie_id, [])
        if write not in writes:
            return
        writes.remove(write)
        if not writes:
            del self._writes[bookie_id]
        _stop(write)
        if write.done.called:
            return  # given up by who asked
        if error is None:
            write.done.callback(None)
        else:
            write.done.errback(again(error))


def _stop(write: _Write) -> None:
    if write.timer is not None and write.timer.active():
        write.timer.cancel()
