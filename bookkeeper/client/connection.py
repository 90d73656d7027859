"""Everything between the client and one bookie in one protocol version: requests out, answers routed to who asked.

Thread: reactor. A `BookieChannel` lives as long as the client; its TCP connection (`BookieLink`) comes and goes. It
connects when something is sent, never by itself. After a failure it refuses at once until a back-off has passed or
the bookie has registered anew, so that a dead bookie costs its callers nothing but the first wait.

When the connection ends, everything outstanding is *unknown* (never "no"): adds are told per handle, reads per request.
A request that gets no answer in time is told as timed out; a connection that was silent all that time is given up.

Bounds: unanswered adds `connection_bytes_max` (beyond it the channel is `full`, and handles stop accepting entries),
READS_MAX reads, CALLS_MAX calls; what waits to be sent is part of these. Reads beyond READS_MAX wait for their turn,
READS_WAITING_MAX of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.flushing import FLUSH_BYTES, FLUSH_ENTRIES, TurnFlush
from bookkeeper.client.link import BookieLink
from bookkeeper.client.patience import PatientTimer
from bookkeeper.errors import (
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    RequestNotSent,
    RequestTimedOut,
)
from bookkeeper.model import BookieId, Status
from bookkeeper.protocol.connection import (
    AddsInFlight,
    CallsInFlight,
    PendingCall,
    PendingRead,
    ReadsInFlight,
)
from bookkeeper.wire import messages
from bookkeeper.wire.codec import RequestEncoder

if TYPE_CHECKING:
    from bookkeeper.client.bookies import BookieDirectory
    from bookkeeper.config import ClientSettings
    from bookkeeper.ports import Clock, Network

log = Logger()

READS_MAX = 50_000
"""Entries asked for and not answered, per connection."""

READS_WAITING_MAX = 1_000_000
"""Entries that wait until they may be asked for, per connection. Their time to live runs meanwhile."""

REFUSAL_S = 60.0
"""How long a connection that ended without any answer is taken for "this protocol version is not spoken here"."""

CALLS_MAX = 10_000
"""LAC reads and writes and the like not answered, per connection."""


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

    def on_bodies(self, bookie_id: BookieId, entry_ids: list[int], bodies: list[bytes], max_lac: int | None) -> None:
        """Entries as the bookie holds them, digests unchecked. max_lac: the bookie's LAC, where v3 tells it."""

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        """The bookie's verdict on one entry, not OK."""

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        """No verdict: no connection, lost, or timed out."""


class BookieChannel:
    """One bookie in one protocol version.

    full: noted here by every channel of the client that is full; some in it may not be any more. An empty set spares
    writers of many ledgers to ask each of their channels for each entry.
    """

    def __init__(
        self,
        bookie_id: BookieId,
        encoder: RequestEncoder,
        *,
        directory: BookieDirectory,
        network: Network,
        clock: Clock,
        settings: ClientSettings,
        flush: TurnFlush,
        full: set[BookieChannel],
    ) -> None:
        self.bookie_id = bookie_id
        self.encoder = encoder
        self.write_count = 0  # transport writes, for the figures of `perf`
        self.connect_count = 0
        self._directory, self._network, self._clock, self._settings = directory, network, clock, settings
        self._turn = flush
        self._adds_bytes_max = settings.connection_bytes_max
        self._full_channels = full
        self._reads: ReadsInFlight[ReadOwner] = ReadsInFlight(entries_max=READS_MAX)
        self._waiting_reads: deque[PendingRead[ReadOwner]] = deque()
        self._waiting_entries = 0
        self._adds: AddsInFlight[AddOwner] = AddsInFlight()
        self._owners = self._adds.owners
        self._calls = CallsInFlight(calls_max=CALLS_MAX)
        self._link: BookieLink | None = None
        self._connecting: Deferred[None] | None = None
        self._out: list[bytes] = []
        self._out_bytes = self._out_entries = 0
        self._singles: list[bytes] = []  # adds of this turn, not yet in _out or counted
        self._singles_bytes = 0
        self._marked = False
        self._timer: PatientTimer | None = None
        self._timer_due = 0.0
        self._room_waiters: list[Callable[[], None]] = []
        self._full_timer: PatientTimer | None = None
        self._retry_at = 0.0
        self._retry_delay_s = settings.reconnect_delay_min_s
        self._failure: BookieUnavailable | None = None
        self._failure_epoch: int | None = None
        self._answered = False  # ever, in this version
        self._refused = False  # connected, asked, and closed on without one answer
        self._refused_until = 0.0
        self._closed = False
        self.last_used_s = clock.seconds()

    # --- requests

    @property
    def full(self) -> bool:
        """So many unanswered bytes that handles should accept nothing new for this bookie."""
        return self._adds.bytes >= self._adds_bytes_max

    @property
    def refused(self) -> bool:
        """The bookie seems not to speak this protocol version; so for REFUSAL_S, or until it registers anew."""
        return (
            self._refused
            and self._clock.seconds() < self._refused_until
            and self._directory.epoch(self.bookie_id) == self._failure_epoch
        )

    def on_room(self, call: Callable[[], None]) -> None:
        """Call once when the channel is no longer full."""
        self._room_waiters.append(call)
        if self._full_timer is None and self._settings.add_timeout_s > 0:
            self._watch_full()

    def _watch_full(self) -> None:
        call = partial(self._on_still_full, self._adds.count)
        self._full_timer = PatientTimer(self._clock, self._settings.add_timeout_s, call)

    def _on_still_full(self, unanswered: int) -> None:
        """A bookie that answers no add for so long holds up everybody, also those who sent it nothing (L-2)."""
        self._full_timer = None
        if self._link is not None and self.full and self._adds.count >= unanswered:
            self._link.abort(self._timed_out())
        elif self._room_waiters:
            self._watch_full()

    def send_adds(self, owner: AddOwner, ledger_id: int, frames: Sequence[bytes], size: int) -> None:
        """Send encoded adds, one frame per entry; `size`: their bytes together."""
        adds = self._adds
        adds.on_sent(ledger_id, owner, count=len(frames), size=size)
        if adds.bytes >= self._adds_bytes_max:
            self._full_channels.add(self)
        self._send(frames, size, len(frames))

    def send_add(self, owner: AddOwner, ledger_id: int, frame: bytes) -> None:
        """The same for one small entry; the entries of all ledgers that come this way are counted in together.

        Nothing is taken in meanwhile: handles send at the end of the turn, and large entries by `send_adds`.
        """
        self._owners[ledger_id] = owner
        self._singles.append(frame)
        self._singles_bytes += len(frame)
        if self._singles_bytes >= FLUSH_BYTES or len(self._singles) >= FLUSH_ENTRIES:
            self._send_singles()
        elif not self._marked:
            self._mark()

    def _send_singles(self) -> None:
        singles, size = self._singles, self._singles_bytes
        if singles:
            self._singles, self._singles_bytes = [], 0
            self._adds.on_sent_mixed(count=len(singles), size=size)
            if self._adds.bytes >= self._adds_bytes_max:
                self._full_channels.add(self)
            self._send(singles, size, len(singles))

    def forget_writer(self, ledger_id: int, owner: AddOwner) -> None:
        """The owner is finished."""
        self._adds.forget(ledger_id, owner)

    def read(
        self,
        owner: ReadOwner,
        ledger_id: int,
        entry_ids: Sequence[int],
        *,
        fence_key: bytes | None = None,
        high_priority: bool = False,
    ) -> None:
        """Ask for entries (-1: the last one). With `fence_key` the ledger is fenced first, for every entry."""
        if self._waiting_entries + len(entry_ids) > READS_WAITING_MAX:
            error = RequestNotSent(
                f"{READS_WAITING_MAX} reads wait for their turn at bookie {self.bookie_id}: wait for some of them",
                bookie_id=self.bookie_id,
            )
            self._clock.callLater(0, owner.on_read_unknown, self.bookie_id, list(entry_ids), error)
            return
        deadline = self._clock.seconds() + self._settings.read_timeout_s
        self._waiting_reads.append(PendingRead(owner, ledger_id, entry_ids, fence_key, high_priority, deadline))
        self._waiting_entries += len(entry_ids)
        self._submit_waiting()
        self._watch_deadline(deadline)

    def _submit_waiting(self) -> None:
        """Ask for as many of the waiting entries as there is room for; the rest of a request waits on."""
        while self._waiting_reads and self._reads.room:
            read, room = self._waiting_reads.popleft(), self._reads.room
            if len(read.entry_ids) > room:
                self._waiting_reads.appendleft(replace(read, entry_ids=read.entry_ids[room:]))
                read.entry_ids = read.entry_ids[:room]
            self._waiting_entries -= len(read.entry_ids)
            self._send_reads(read, self._reads.submit(read))

    def call(
        self,
        request: tuple[int, bytes],
        timeout_s: float,
        on_reply: Callable[[Any], None],
        on_unknown: Callable[[Exception], None],
    ) -> None:
        """Send an encoded request that is answered by its id. One of the callbacks follows, never in this call."""
        request_id, frame = request
        if not self._calls.room:
            error = BookieUnavailable(f"{CALLS_MAX} calls are outstanding", bookie_id=self.bookie_id)
            self._clock.callLater(0, on_unknown, error)
            return
        deadline = self._clock.seconds() + timeout_s
        self._calls.submit(request_id, PendingCall(on_reply, on_unknown, deadline))
        self._send((frame,), len(frame), 1)
        self._watch_deadline(deadline)

    def _send_reads(self, read: PendingRead[ReadOwner], entry_ids: Sequence[int]) -> None:
        if not entry_ids:
            return
        if read.fence_key is None:
            _, frames = self.encoder.encode_reads(read.ledger_id, entry_ids, high_priority=read.high_priority)
        else:
            _, frames = self.encoder.encode_fence_reads(
                read.ledger_id, entry_ids, read.fence_key, high_priority=read.high_priority
            )
        self._send((frames,), len(frames), len(entry_ids))

    # --- the way out

    def _send(self, parts: Sequence[bytes], size: int, entries: int) -> None:
        if self._singles:
            self._send_singles()  # they came first
        self._out += parts
        self._out_bytes += size
        self._out_entries += entries
        self.last_used_s = self._clock.seconds()
        if (self._out_bytes >= FLUSH_BYTES or self._out_entries >= FLUSH_ENTRIES) and self._can_write:
            self._write_out()
        elif not self._marked:
            self._mark()

    def _mark(self) -> None:
        self._marked = True
        self._turn.mark_connection(self)

    @property
    def _can_write(self) -> bool:
        link = self._link
        return link is not None and link.handshake.ready and not link.paused

    def end_turn(self) -> None:
        """Write, or connect first, or refuse."""
        self._send_singles()
        self._marked = False
        if self._can_write:
            self._write_out()
        elif self._link is None and self._out:
            self._connect()

    def _write_out(self) -> None:
        if self._out and self._link is not None:
            parts, self._out = self._out, []
            self._out_bytes = self._out_entries = 0
            self.write_count += 1
            self._link.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _connect(self) -> None:
        epoch = self._directory.epoch(self.bookie_id)
        if self._closed:
            self._lose(ClientClosed("the client is closed"))
            return
        if self._failure is not None and self._clock.seconds() < self._retry_at and epoch == self._failure_epoch:
            self._lose(self._failure)
            return
        address = self._directory.address_of(self.bookie_id)
        if address is None:
            self._on_unreachable(
                ConnectFailed(
                    f"bookie {self.bookie_id} is not registered and its id is no host:port; is it running?",
                    bookie_id=self.bookie_id,
                )
            )
            return
        link = self._link = BookieLink(self, self.bookie_id, self.encoder, self._clock, self._settings)
        self.connect_count += 1
        connecting: Deferred[None] = self._network.connect(*address, link, timeout_s=self._settings.connect_timeout_s)
        self._connecting = connecting
        connecting.addErrback(self._on_connect_failed, link)

    def _on_connect_failed(self, failure: Failure, link: BookieLink) -> None:
        if self._link is link:
            self._link = None
            self._on_unreachable(ConnectFailed(f"bookie {self.bookie_id}: {failure.value}", bookie_id=self.bookie_id))

    def _on_unreachable(self, error: BookieUnavailable) -> None:
        self._failure = error
        self._failure_epoch = self._directory.epoch(self.bookie_id)
        self._retry_at = self._clock.seconds() + self._retry_delay_s
        self._retry_delay_s = min(self._settings.reconnect_delay_max_s, self._retry_delay_s * 2)
        self._directory.quarantine(self.bookie_id)
        self._lose(error)

    def _lose(self, error: BookKeeperError) -> None:
        """Tell everyone that nothing is known of what is outstanding."""
        self._out.clear()
        self._singles.clear()
        self._singles_bytes = 0
        self._out_bytes = self._out_entries = 0
        unavailable = (
            error
            if isinstance(error, BookieUnavailable)
            else BookieUnavailable(f"bookie {self.bookie_id}: {error}", bookie_id=self.bookie_id)
        )
        reads, writers, calls = self._reads.on_ended(), self._adds.on_ended(), self._calls.on_ended()
        reads += [(read, list(read.entry_ids)) for read in self._waiting_reads]
        self._waiting_reads.clear()
        self._waiting_entries = 0
        for writer in writers:
            writer.on_bookie_lost(self.bookie_id, unavailable)
        for read, entry_ids in reads:
            read.owner.on_read_unknown(self.bookie_id, entry_ids, unavailable)
        for call in calls:
            call.on_unknown(unavailable)
        self._wake_room_waiters()

    def _wake_room_waiters(self) -> None:
        if not self._full_channels or self.full:
            return
        self._full_channels.discard(self)
        if self._room_waiters:
            waiters, self._room_waiters = self._room_waiters, []
            for call in waiters:
                call()

    # --- the link's events

    def on_ready(self, link: BookieLink) -> None:
        """Requests may leave."""
        if self._link is link:
            self._write_out()

    def on_messages(self, link: BookieLink, received: list[Any]) -> None:
        """Answers of one chunk, in order."""
        self._answered = True
        self._refused = False
        self._failure = None
        self._retry_delay_s = self._settings.reconnect_delay_min_s
        for message in received:
            kind = type(message)
            if kind is messages.AddAcks:
                self._adds.on_answered(len(message.entry_ids))
                writer = self._adds.owner_of(message.ledger_id)
                if writer is not None:
                    writer.on_add_acks(self.bookie_id, message.entry_ids)
            elif kind is messages.MixedAddAcks:
                self._on_mixed_acks(message.pairs)
            elif kind is messages.ReadBodies:
                for delivery in self._reads.on_bodies(message.ledger_id, message.entry_ids, message.bodies):
                    delivery.read.owner.on_bodies(self.bookie_id, delivery.entry_ids, delivery.bodies, message.max_lac)
            else:
                self._on_single(message)
                if self._link is not link:
                    return  # given up on that message; what follows must not answer newer requests
        for read, entry_id in self._reads.take_released():
            self._send_reads(read, (entry_id,))
        self._submit_waiting()
        self._wake_room_waiters()

    def _on_mixed_acks(self, pairs: list[tuple[int, int]]) -> None:
        """Acknowledgements of several ledgers, few of each; those of one that follow each other are told together."""
        self._adds.on_answered(len(pairs))
        owner_of, bookie_id = self._owners.get, self.bookie_id
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

    def _on_single(self, message: Any) -> None:
        if isinstance(message, messages.AddFailed):
            self._adds.on_answered(1)
            writer = self._adds.owner_of(message.ledger_id)
            if writer is not None:
                writer.on_add_status(self.bookie_id, message.entry_id, message.status)
        elif isinstance(message, messages.ReadFailed):
            failed = self._reads.on_failed(message.ledger_id, message.entry_id)
            if failed is not None:
                read, entry_id = failed
                read.owner.on_read_status(self.bookie_id, entry_id, message.status)
        else:
            call = self._calls.on_reply(message.request_id)
            if call is not None:
                call.on_reply(message)
            elif isinstance(message, messages.GenericFailure) and self._link is not None:
                # Whose request was refused cannot be told, so none of them has a verdict.
                self._link.abort(
                    ConnectionLost(
                        f"bookie {self.bookie_id} refused a request: {message.status.value}", bookie_id=self.bookie_id
                    )
                )

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        """The connection ended or could not be authenticated."""
        if self._link is not link:
            return
        self._link = None
        self._refused = not self._answered
        self._refused_until = self._clock.seconds() + REFUSAL_S
        self._on_unreachable(error)

    # --- time

    def _watch_deadline(self, deadline: float) -> None:
        if self._timer is not None and self._timer_due <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        self._timer = PatientTimer(self._clock, max(0.0, deadline - self._clock.seconds()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for read, entry_ids in self._reads.overdue(now):
            read.owner.on_read_unknown(self.bookie_id, entry_ids, self._timed_out())
            self.check_silence(self._settings.read_timeout_s)
        while self._waiting_reads and self._waiting_reads[0].deadline <= now:
            read = self._waiting_reads.popleft()
            self._waiting_entries -= len(read.entry_ids)
            error = RequestNotSent(
                f"reads waited {self._settings.read_timeout_s:g} s for their turn at bookie {self.bookie_id}, behind "
                f"{READS_MAX} others: read less at once",
                bookie_id=self.bookie_id,
            )
            read.owner.on_read_unknown(self.bookie_id, list(read.entry_ids), error)
        for call in self._calls.overdue(now):
            call.on_unknown(self._timed_out())
        if self._reads.blocked and self._link is not None:
            self._reads.blocked = False
            self._link.abort(self._timed_out())
        waiting = self._waiting_reads[0].deadline if self._waiting_reads else None
        for deadline in (self._reads.next_deadline, waiting, self._calls.next_deadline):
            if deadline is not None:
                self._watch_deadline(deadline)

    def _timed_out(self) -> RequestTimedOut:
        return RequestTimedOut(f"bookie {self.bookie_id} gave no answer in time", bookie_id=self.bookie_id)

    def check_silence(self, timeout_s: float) -> None:
        """Something timed out: give the connection up when nothing at all has arrived for most of that time.

        Not all of it: connecting took its share.
        """
        if self._link is not None and self._clock.seconds() - self._link.heard_s >= timeout_s / 2:
            self._link.abort(self._timed_out())

    # --- the end

    @property
    def idle(self) -> bool:
        """Connected, and nothing outstanding."""
        busy = self._reads.count or self._adds.count or len(self._calls) or self._out or self._singles
        return self._link is not None and not busy

    def disconnect(self) -> None:
        """Close the connection; the next request opens a new one."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def close(self) -> None:
        """The client closes: everything outstanding fails, nothing is sent any more."""
        self._closed = True
        for timer in (self._timer, self._full_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = self._full_timer = None
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if self._connecting is not None:
            self._connecting.cancel()  # if it still is
        self._lose(ClientClosed("the client is closed"))
