"""Answers in: what one bookie was asked and has not answered, and who is told.

`BookieChannel` sends; this keeps the books of it and sorts the answers out to whoever asked. Reads beyond READS_MAX
wait here for their turn. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from bookkeeper.errors import (
    AuthenticationRefused,
    BookieUnavailable,
    BookKeeperError,
    ConnectionLost,
    RequestNotSent,
)
from bookkeeper.model import BookieId, Status
from bookkeeper.protocol.connection import (
    AddsInFlight,
    CallsInFlight,
    PendingCall,
    PendingRead,
    PollsInFlight,
    ReadsInFlight,
)
from bookkeeper.wire import messages

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

READS_MAX = 50_000
"""Entries asked for and not answered, per connection."""

READS_WAITING_MAX = 1_000_000
"""Entries that wait until they may be asked for, per connection. Their time to live runs meanwhile."""

CALLS_MAX = 10_000
"""LAC reads and writes and the like not answered, per connection."""

POLLS_MAX = 1_000
"""Long polls not answered, per connection: each holds something at the bookie until it ends."""


class AddOwner(Protocol):
    """Who writes a ledger through a channel."""

    def on_add_ack(self, bookie_id: BookieId, entry_id: int) -> None:
        """The bookie stored this entry."""

    def on_add_acks(self, bookie_id: BookieId, entry_ids: list[int]) -> None:
        """The bookie stored these entries."""

    def on_add_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """The bookie refused an entry."""

    def on_bookie_lost(self, bookie_id: BookieId, error: BookieUnavailable) -> None:
        """The connection ended: nothing is known of any add the bookie has not answered."""


class ReadOwner(Protocol):
    """Who reads entries through a channel."""

    def on_bodies(
        self, bookie_id: BookieId, entry_ids: Sequence[int], bodies: Sequence[bytes], max_lac: int | None
    ) -> None:
        """Entries as the bookie holds them, digests unchecked. max_lac: the bookie's LAC, where v3 tells it."""

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """The bookie's verdict on one entry, not OK."""

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict: no connection, lost, or timed out."""


class Outstanding:
    """Everything asked of one bookie and not answered: adds, reads, calls, long polls.

    adds, owners: the channel's hot path counts what it sends in here itself. hint: what to tell where the bookie serves
    this client nothing at all.
    """

    def __init__(self, bookie_id: BookieId, clock: Clock, *, hint: str = "") -> None:
        self.adds: AddsInFlight[AddOwner] = AddsInFlight()
        self.owners = self.adds.owners
        self._bookie_id, self._clock = bookie_id, clock
        self._hint = hint or "see the bookie's log"
        self._reads: ReadsInFlight[ReadOwner] = ReadsInFlight(entries_max=READS_MAX)
        self._waiting_reads: deque[PendingRead[ReadOwner]] = deque()
        self._waiting_entries = 0
        self._calls = CallsInFlight(calls_max=CALLS_MAX)
        self._polls = PollsInFlight(calls_max=POLLS_MAX)

    @property
    def busy(self) -> bool:
        """Something was asked and not answered, wanted or not."""
        return bool(self._reads.count or self.adds.count or len(self._calls) or self._polls.any)

    # --- asked

    def add_read(self, read: PendingRead[ReadOwner]) -> bool:
        """Note a read; `sendable_reads` says what of it may leave. False, and its owner told, when too many wait."""
        if self._waiting_entries + len(read.entry_ids) > READS_WAITING_MAX:
            error = RequestNotSent(
                f"{READS_WAITING_MAX} reads wait for their turn at bookie {self._bookie_id}: wait for some of them",
                bookie_id=self._bookie_id,
            )
            self._clock.callLater(0, read.owner.on_read_unknown, self._bookie_id, list(read.entry_ids), error)
            return False
        self._waiting_reads.append(read)
        self._waiting_entries += len(read.entry_ids)
        return True

    def submit_read(self, read: PendingRead[ReadOwner]) -> Sequence[int] | None:
        """Note a read and return which of its entries to ask for now; None, and nothing noted, when it must wait."""
        if self._waiting_reads or len(read.entry_ids) > self._reads.room:
            return None
        return self._reads.submit(read)

    def sendable_reads(self) -> Iterator[tuple[PendingRead[ReadOwner], Sequence[int]]]:
        """As many of the waiting entries as there is room for; the rest of a request waits on."""
        while self._waiting_reads and self._reads.room:
            read, room = self._waiting_reads.popleft(), self._reads.room
            if len(read.entry_ids) > room:
                self._waiting_reads.appendleft(replace(read, entry_ids=read.entry_ids[room:]))
                read.entry_ids = read.entry_ids[:room]
            self._waiting_entries -= len(read.entry_ids)
            entry_ids = self._reads.submit(read)
            if entry_ids:
                yield read, entry_ids

    def released_reads(self) -> list[tuple[PendingRead[ReadOwner], int]]:
        """Reads that waited for another one of the same entry, which has been answered: send them now."""
        return self._reads.take_released()

    def add_call(self, request_id: int, call: PendingCall, *, waits: bool) -> bool:
        """Note a request that is answered by its id. False, and its owner told, when too many are outstanding.

        waits: a long poll.
        """
        calls, bound = (self._polls, f"{POLLS_MAX} long polls") if waits else (self._calls, f"{CALLS_MAX} calls")
        if not calls.room:
            error = RequestNotSent(f"{bound} are outstanding at bookie {self._bookie_id}", bookie_id=self._bookie_id)
            self._clock.callLater(0, call.on_unknown, error)
            return False
        calls.submit(request_id, call)
        return True

    # --- answered

    def on_messages(self, received: list[Any], over: Callable[[], bool]) -> BookieUnavailable | None:
        """Tell the answers of one chunk, in order. Returns why the connection must be given up, if it must.

        over: the connection has ended meanwhile; what follows must not answer newer requests.
        """
        for message in received:
            kind = type(message)
            if kind is messages.AddAcks:
                self.adds.on_answered(len(message.entry_ids))
                writer = self.adds.owner_of(message.ledger_id)
                if writer is not None:
                    writer.on_add_acks(self._bookie_id, message.entry_ids)
            elif kind is messages.MixedAddAcks:
                self._on_mixed_acks(message.pairs)
            elif kind is messages.ReadBodies:
                if self._polls.any:
                    self._take_polls(message)
                    if over():
                        return None
                    if not message.entry_ids:
                        continue
                for delivery in self._reads.on_bodies(message.ledger_id, message.entry_ids, message.bodies):
                    delivery.read.owner.on_bodies(self._bookie_id, delivery.entry_ids, delivery.bodies, message.max_lac)
            else:
                error = self._on_single(message)
                if error is not None or over():
                    return error
        return None

    def _on_mixed_acks(self, pairs: list[tuple[int, int]]) -> None:
        """Acknowledgements of several ledgers, few of each; those of one that follow each other are told together."""
        self.adds.on_answered(len(pairs))
        owner_of, bookie_id = self.owners.get, self._bookie_id
        position, count = 0, len(pairs)
        while position < count:
            ledger_id, entry_id = pairs[position]
            first = position
            position += 1
            while position < count and pairs[position][0] == ledger_id:
                position += 1
            writer = owner_of(ledger_id)
            if writer is None:
                continue
            if position == first + 1:
                writer.on_add_ack(bookie_id, entry_id)
            else:
                writer.on_add_acks(bookie_id, [entry_id for _, entry_id in pairs[first:position]])

    def _take_polls(self, batch: messages.ReadBodies) -> None:
        """Answers of long polls that came in a row with answers of reads."""
        request_ids = batch.request_ids or []
        places = [place for place, request_id in enumerate(request_ids) if request_id in self._polls]
        for reply in [batch.take_out(place) for place in reversed(places)]:
            self._on_poll_reply(reply)

    def _on_poll_reply(self, message: Any) -> None:
        poll = self._polls.on_reply(message.request_id)
        if poll is not None:
            poll.on_reply(message)

    def _on_single(self, message: Any) -> BookieUnavailable | None:
        if message.request_id in self._polls:
            self._on_poll_reply(message)
        elif isinstance(message, messages.AddFailed):
            self.adds.on_answered(1)
            writer = self.adds.owner_of(message.ledger_id)
            if writer is not None:
                writer.on_add_status(self._bookie_id, message.entry_id, message.status)
        elif isinstance(message, messages.ReadFailed | messages.LongPollReply):
            # OK without a body answers a long poll; to anything else it is no verdict.
            status = message.status if isinstance(message, messages.ReadFailed) else Status.IO_ERROR
            failed = self._reads.on_failed(message.ledger_id, message.entry_id)
            if failed is not None:
                read, entry_id = failed
                read.owner.on_read_status(self._bookie_id, entry_id, status)
        else:
            call = self._calls.on_reply(message.request_id)
            if call is not None:
                call.on_reply(message)
            elif isinstance(message, messages.GenericFailure):
                # Whose request was refused cannot be told, so none of them has a verdict.
                refused = f"bookie {self._bookie_id} refused a request: {message.status.value}"
                if message.status is Status.UNAUTHORIZED:
                    # Of no ledger: so bookies answer before TLS or authentication.
                    return AuthenticationRefused(f"{refused}: {self._hint}", bookie_id=self._bookie_id)
                return ConnectionLost(refused, bookie_id=self._bookie_id)
        return None

    # --- not answered

    def overdue_reads(self, now: float) -> list[tuple[PendingRead[ReadOwner], list[int]]]:
        """Reads whose time is over, each told once."""
        return self._reads.overdue(now)

    def overdue_calls(self, now: float) -> list[PendingCall]:
        """The same for calls."""
        return self._calls.overdue(now)

    def overdue_polls(self, now: float) -> list[PendingCall]:
        """The same for long polls."""
        return self._polls.overdue(now)

    def drop_stale_waiting(self, now: float, timeout_s: float) -> None:
        """Tell those whose time ended before their reads could be sent."""
        while self._waiting_reads and self._waiting_reads[0].deadline <= now:
            read = self._waiting_reads.popleft()
            self._waiting_entries -= len(read.entry_ids)
            error = RequestNotSent(
                f"reads waited {timeout_s:g} s for their turn at bookie {self._bookie_id}, behind {READS_MAX} others: "
                "read less at once",
                bookie_id=self._bookie_id,
            )
            read.owner.on_read_unknown(self._bookie_id, list(read.entry_ids), error)

    def take_blocked(self) -> bool:
        """True, once, when only a new connection frees the key that a read waits for."""
        blocked, self._reads.blocked = self._reads.blocked, False
        return blocked

    @property
    def next_deadline(self) -> float | None:
        """When something here is overdue; None when nothing is asked."""
        waiting = self._waiting_reads[0].deadline if self._waiting_reads else None
        deadlines = (self._reads.next_deadline, waiting, self._calls.next_deadline, self._polls.next_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_ended(self, error: BookKeeperError) -> None:
        """Tell everyone that nothing is known of what is outstanding."""
        bookie_id = self._bookie_id
        unavailable = (
            error
            if isinstance(error, BookieUnavailable)
            else BookieUnavailable(f"bookie {bookie_id}: {error}", bookie_id=bookie_id)
        )
        reads, writers = self._reads.on_ended(), self.adds.on_ended()
        calls = self._calls.on_ended() + self._polls.on_ended()
        reads += [(read, list(read.entry_ids)) for read in self._waiting_reads]
        self._waiting_reads.clear()
        self._waiting_entries = 0
        for writer in writers:
            writer.on_bookie_lost(bookie_id, unavailable)
        for read, entry_ids in reads:
            read.owner.on_read_unknown(bookie_id, entry_ids, unavailable)
        for call in calls:
            call.on_unknown(unavailable)
