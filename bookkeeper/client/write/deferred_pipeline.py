"""Adds with deferred sync: acknowledged before they are on disk, confirmed (the LAC) only once a force has proved them.

The same pipeline with other rules: the entries ask for deferred sync, the LAC follows `protocol.forces`, and a bookie
that fails ends the handle: what it acknowledged and has not synced cannot be copied to another one. A class of its own,
so that adds of other ledgers pay nothing for it. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bookkeeper.client.write.pipeline import AddPipeline
from bookkeeper.errors import AddFailed, BookieUnavailable, BookKeeperError, NotDurable
from bookkeeper.model import BookieId, EntryId, LedgerId, LedgerMetadata, Versioned
from bookkeeper.protocol.forces import Forces

if TYPE_CHECKING:
    from bookkeeper.client.context import ClientContext
    from bookkeeper.wire.digest import Digest


class DeferredAddPipeline(AddPipeline):
    """The adds of one write handle with deferred sync. forces: what of them is durable; `Forcing` moves it on."""

    __slots__ = ("forces",)

    def __init__(
        self,
        context: ClientContext,
        ledger_id: LedgerId,
        metadata: Versioned[LedgerMetadata],
        digest: Digest,
        master_key: bytes,
        *,
        on_acknowledged: Callable[[range], None],
        on_failed: Callable[[BookKeeperError], None],
        on_room: Callable[[], None],
    ) -> None:
        super().__init__(
            context,
            ledger_id,
            metadata,
            digest,
            master_key,
            on_acknowledged=on_acknowledged,
            on_failed=on_failed,
            on_room=on_room,
            frozen_lac=-1,
            replaces=False,
        )
        self.forces = Forces(metadata.value.ensemble_size)

    @property
    def lac(self) -> EntryId:
        """The last entry known to be durable (I-07)."""
        return self.forces.durable

    @property
    def confirmed_length(self) -> int:
        """Payload bytes up to the LAC."""
        return self.forces.length

    @property
    def unforced(self) -> range:
        """Entries acknowledged and not known to be durable."""
        return range(self.forces.durable + 1, self.window.last_acknowledged + 1)

    def on_durable(self) -> None:
        """A force has moved the durable end: entries carry it from now on, and connections matter less."""
        self.window.move_lac(self.forces.durable)
        for index, channel in enumerate(self._routes.channels):
            if not self.forces.owes(index):
                self._context.channels.let_go(channel, self)

    # --- out

    def send_one(self, payload: bytes) -> None:
        """One payload, as a batch."""
        self.send([payload])

    def _encode(self, entry_ids: Sequence[int], bodies: list[bytes]) -> list[bytes]:
        encode = self._encoder.encode_adds
        return encode(self._ledger_id, self._master_key, entry_ids, bodies, deferred_sync=True)[1]

    # --- answers

    def on_add_ack(self, bookie_id: BookieId, entry_id: int) -> None:
        """The bookie has this entry, perhaps in memory alone."""
        self.on_add_acks(bookie_id, [entry_id])

    def on_add_acks(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        """The bookie has these entries, perhaps in memory alone."""
        index = self._routes.index_of.get(bookie_id)
        if index is None or self._failed:
            return
        channel = self._routes.channels[index]
        if not self.forces.on_acks(index, channel.connect_count, max(entry_ids)):
            self._end(f"the connection to bookie {bookie_id} is not the one on which it acknowledged entries before")
            return
        if self.forces.owes(index):
            self._context.channels.keep(channel, self)  # closed for idleness it could never prove them
        super().on_add_acks(bookie_id, entry_ids)

    def on_bookie_lost(self, bookie_id: BookieId, error: BookieUnavailable) -> None:
        """It may have lost what it acknowledged and did not sync; a later force would not show that."""
        index = self._routes.index_of.get(bookie_id)
        if index is not None and not self._failed and self.forces.owes(index):
            self.answers[bookie_id] = error
            self._end(f"the connection to bookie {bookie_id} ended before it synced what it acknowledged")
            return
        super().on_bookie_lost(bookie_id, error)

    def _give_up(self, bookie_id: BookieId, error: BookKeeperError) -> None:
        if isinstance(error, AddFailed):
            self._end(f"bookie {bookie_id} failed, and with deferred sync it cannot be replaced")
        else:
            self.fail(error)

    # --- the end

    def fail(self, error: BookKeeperError) -> None:
        """End for good; what is acknowledged and not durable stays so."""
        if not self._failed:
            for channel in self._routes.channels:
                self._context.channels.let_go(channel, self)
        super().fail(error)

    def not_durable(self, why: str) -> NotDurable:
        """The error for what was acknowledged (there is some) and can never be proved to be durable."""
        lost = self.unforced
        return NotDurable(
            f"ledger {self._ledger_id}: {why}; entries {lost[0]}..{lost[-1]} were acknowledged but not forced and are "
            "not in the ledger, unless somebody else recovers it first; write on in a new ledger",
            ledger_id=self._ledger_id,
            entry_ids=lost,
            answers=self.answers,
        )

    def _end(self, why: str) -> None:
        if self.unforced:
            self.fail(self.not_durable(why))
        else:
            message = f"ledger {self._ledger_id}: {why}; write on in a new ledger"
            self.fail(AddFailed(message, ledger_id=self._ledger_id, answers=self.answers))
