"""Many entries in one answer: batch reads (v2, 4.17 and later), where every bookie of the ensemble holds every entry.

A `BatchReading` asks one bookie for consecutive entries and goes on from where an answer ended, until all are told to
its owner. Answers are matched by their request id, so they share no key with plain reads (I-29). Whatever a batch
cannot tell (which of the later entries are there, once one is missing) plain reads of the same bookie tell.

A bookie older than the operation closes the connection on it. So that this ends nobody else's requests, the first batch
read of a bookie goes over a connection of its own; meanwhile others read entry by entry. A bookie that closed on
it, or refused it as unknown, is not asked again until it registers anew. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bookkeeper.client.bookies.pending_requests import ReadOwner
from bookkeeper.client.bookies.reachability import REFUSAL_S
from bookkeeper.client.bookies.unsupported import BookiesWithout
from bookkeeper.errors import BookieUnavailable, RequestNotSent, RequestTimedOut
from bookkeeper.model import BookieId, LedgerMetadata, Status
from bookkeeper.wire.messages import BatchReadReply

if TYPE_CHECKING:
    from bookkeeper.client.bookies.connection import BookieChannel
    from bookkeeper.client.context import ClientContext
    from bookkeeper.ports import Clock

BATCH_BYTES = 1024 * 1024
"""What one answer should hold at most; a single larger entry comes all the same. Bounds what waits to be decoded."""

_NOT_UNDERSTOOD = frozenset({Status.BAD_REQUEST, Status.BAD_VERSION})
_OF_THE_FIRST_ENTRY = frozenset({Status.NO_ENTRY, Status.IO_ERROR})
"""What a bookie says when it cannot deliver the first entry of a batch; nothing is said of the others."""


class BatchAbility:
    """Which bookies of this client's cluster take batch reads, as far as was tried. Bounded by their number."""

    def __init__(self, epoch: Callable[[BookieId], int | None], clock: Clock) -> None:
        self.without = BookiesWithout(epoch)
        self._epoch, self._clock = epoch, clock
        self._known: dict[BookieId, int | None] = {}  # epoch under which it answered
        self._trying: set[BookieId] = set()
        self._not_before: dict[BookieId, float] = {}  # a trial came to nothing
        self._turn = 0
        self.entry_count = 0  # entries that came in batches so far, for the figures of `perf`

    def next_turn(self) -> int:
        """Which replica the next range is read from: they take turns."""
        self._turn += 1
        return self._turn

    def knows(self, bookie_id: BookieId) -> bool:
        """It has answered a batch read, and is still the same."""
        return bookie_id in self._known and self._known[bookie_id] == self._epoch(bookie_id)

    def may_try(self, bookie_id: BookieId) -> bool:
        """True, once, for who shall find out; `on_answer`, `on_refusal` or `on_silence` must follow."""
        if (
            bookie_id in self.without
            or bookie_id in self._trying
            or self._clock.seconds() < self._not_before.get(bookie_id, 0.0)
        ):
            return False
        self._trying.add(bookie_id)
        return True

    def on_answer(self, bookie_id: BookieId) -> None:
        """It knows batch reads."""
        self._trying.discard(bookie_id)
        self._known[bookie_id] = self._epoch(bookie_id)

    def on_refusal(self, bookie_id: BookieId) -> None:
        """It does not."""
        self._trying.discard(bookie_id)
        self._known.pop(bookie_id, None)
        self.without.add(bookie_id)

    def on_silence(self, bookie_id: BookieId) -> None:
        """The trial told nothing; not again for a while."""
        self._trying.discard(bookie_id)
        self._not_before[bookie_id] = self._clock.seconds() + REFUSAL_S


class BatchOwner(ReadOwner, Protocol):
    """Who reads entries in batches."""

    @property
    def over(self) -> bool:
        """It wants nothing more."""

    def on_verdict(self, bookie_id: BookieId, entry_ids: list[int], status: Status) -> None:
        """The bookie's verdict, not OK, on several entries."""


def useful(context: ClientContext, metadata: LedgerMetadata, count: int) -> bool:
    """Whether a range of `count` entries should be read in batches: every bookie holds every entry, and none is old."""
    if (
        count <= 1
        or context.v2_encoder is None
        or not context.settings.batch_read
        or metadata.ensemble_size != metadata.write_quorum
    ):
        return False
    without = context.batches.without
    return not without or not any(bookie in without for fragment in metadata.fragments for bookie in fragment.ensemble)


def ask(
    context: ClientContext, owner: BatchOwner, ledger_id: int, bookie_id: BookieId, entry_ids: Sequence[int], size: int
) -> None:
    """Ask a bookie for entries, ascending: in one batch if they follow each other and it can, else one by one.

    size: bytes an answer should hold at most.
    """
    first, last = entry_ids[0], entry_ids[-1]
    consecutive = len(entry_ids) > 1 and last - first == len(entry_ids) - 1
    if consecutive and (context.batches.knows(bookie_id) or context.batches.may_try(bookie_id)):
        BatchReading(context, owner, ledger_id, bookie_id, first, last, size).start()
    else:
        context.channel(bookie_id).read(owner, ledger_id, entry_ids)


class BatchReading:
    """Entries first..last of one bookie, answer by answer."""

    def __init__(
        self,
        context: ClientContext,
        owner: BatchOwner,
        ledger_id: int,
        bookie_id: BookieId,
        first_entry_id: int,
        last_entry_id: int,
        size: int,
    ) -> None:
        self._context, self._owner, self._ledger_id, self._bookie_id = context, owner, ledger_id, bookie_id
        self._next, self._last = first_entry_id, last_entry_id  # not answered yet
        self._size = size
        self._trial = not context.batches.knows(bookie_id)

    def start(self) -> None:
        """Ask for what is left."""
        context, encoder = self._context, self._context.v2_encoder
        assert encoder is not None
        count = self._last + 1 - self._next
        self._channel.call(
            encoder.encode_batch_read(self._ledger_id, self._next, count, self._size),
            context.settings.read_timeout_s,
            self._on_reply,
            self._on_unknown,
        )

    @property
    def _channel(self) -> BookieChannel:
        context = self._context
        return context.trial_channel(self._bookie_id) if self._trial else context.channel(self._bookie_id)

    def _rest(self) -> list[int]:
        return list(range(self._next, self._last + 1))

    def _read_plainly(self, entry_ids: list[int]) -> None:
        if entry_ids and not self._owner.over:
            self._context.channel(self._bookie_id).read(self._owner, self._ledger_id, entry_ids)

    # --- answers

    def _on_reply(self, reply: Any) -> None:
        status = reply.status if isinstance(reply, BatchReadReply) else Status.BAD_REQUEST
        if self._trial:
            self._channel.disconnect()
        if status in _NOT_UNDERSTOOD:
            self._context.batches.on_refusal(self._bookie_id)
            self._read_plainly(self._rest())
            return
        if self._trial:
            self._context.batches.on_answer(self._bookie_id)
            self._trial = False
        if self._owner.over:
            return
        if status is Status.OK:
            self._on_bodies(reply)
        elif status in _OF_THE_FIRST_ENTRY:
            first, rest = self._next, self._rest()[1:]
            self._read_plainly(rest)
            self._owner.on_read_status(self._bookie_id, first, status)
        else:
            self._owner.on_verdict(self._bookie_id, self._rest(), status)

    def _on_bodies(self, reply: BatchReadReply) -> None:
        first = self._next
        bodies = reply.bodies[: self._last + 1 - first]
        asked = reply.first_entry_id == first and reply.ledger_id == self._ledger_id
        if not bodies or not asked:
            self._read_plainly(self._rest())  # it says OK, and delivers nothing that was asked for
            return
        self._next += len(bodies)
        self._context.batches.entry_count += len(bodies)
        self._owner.on_bodies(self._bookie_id, range(first, self._next), bodies, None)
        if self._next <= self._last and not self._owner.over:
            self.start()

    def _on_unknown(self, error: Exception) -> None:
        context, owner, bookie_id = self._context, self._owner, self._bookie_id
        unavailable = error if isinstance(error, BookieUnavailable) else BookieUnavailable(str(error))
        if self._trial:
            if self._channel.refused:
                context.batches.on_refusal(bookie_id)
            else:
                context.batches.on_silence(bookie_id)
        elif isinstance(error, RequestTimedOut):
            self._channel.check_silence(context.settings.read_timeout_s)
        if owner.over:
            return
        if not context.closed and (self._trial or isinstance(error, RequestNotSent)):
            self._read_plainly(self._rest())
        else:
            owner.on_read_unknown(bookie_id, self._rest(), unavailable)
