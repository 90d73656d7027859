"""Everything between the client and one bookie in one protocol version: requests out, and the life of the connection.

Thread: reactor. A `BookieChannel` lives as long as the client; its TCP connection (`BookieLink`) comes and goes. It
connects only when something is sent. After a failure it refuses requests at once until a back-off has passed or the
bookie has registered again, so that a dead bookie delays its callers only once (`reachability`). No back-off follows if
the bookie ends a connection without outstanding requests: bookies close idle connections. `pending_requests` passes
answers to their callers.

When the connection ends, the outcome of everything outstanding is *unknown* (never "no"). It is reported per handle for
adds, and per request for reads. A request without an answer in time is reported as timed out; a connection that was
silent all that time is given up.

Bounds: unanswered adds `connection_bytes_max` and `connection_entries_max` (beyond either the channel is `full`, and
handles stop accepting entries), READS_MAX reads, CALLS_MAX calls, POLLS_MAX long polls; what waits to be sent is part
of these. Reads beyond READS_MAX wait for their turn, READS_WAITING_MAX of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.bookies.link import BookieLink
from bookkeeper.client.bookies.pending_requests import AddOwner, Outstanding, ReadOwner
from bookkeeper.client.bookies.reachability import Reachability
from bookkeeper.client.deadline_timer import PatientTimer
from bookkeeper.client.write.turn_flush import FLUSH_BYTES, FLUSH_ENTRIES, TurnFlush
from bookkeeper.errors import (
    AuthenticationRefused,
    BookieUnavailable,
    BookKeeperError,
    ClientClosed,
    ConnectFailed,
    RequestTimedOut,
    TlsFailed,
    UnsupportedVersion,
)
from bookkeeper.model import BookieId
from bookkeeper.protocol.connection import PendingCall, PendingRead
from bookkeeper.wire.codec import RequestEncoder

if TYPE_CHECKING:
    from bookkeeper.client.bookies.directory import BookieDirectory
    from bookkeeper.client.bookies.tls import ClientSecurity
    from bookkeeper.config import ClientSettings
    from bookkeeper.ports import Clock, Network

log = Logger()

WRITE_SIZE = 256 * 1024
"""Bytes of one write when much waits."""


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
        security: ClientSecurity,
    ) -> None:
        self.bookie_id = bookie_id
        self.encoder = encoder
        self.write_count = 0  # transport writes, for the figures of `perf`
        self.connect_count = 0
        self.quarantines = True  # a connection that fails speaks against the bookie
        self.optional = False  # a bookie that does not speak this protocol version is none the worse for it
        self._directory, self._network, self._clock, self._settings = directory, network, clock, settings
        self._security = security
        self._turn = flush
        self._adds_bytes_max, self._adds_count_max = settings.connection_bytes_max, settings.connection_entries_max
        self._full_channels = full
        self._outstanding = Outstanding(bookie_id, clock, hint=security.hint)
        self._adds = self._outstanding.adds
        self._owners = self._outstanding.owners
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
        self._reach = Reachability(
            partial(directory.epoch, bookie_id),
            clock,
            delay_min_s=settings.reconnect_delay_min_s,
            delay_max_s=settings.reconnect_delay_max_s,
        )
        self._closed = False
        self.last_used_s = clock.seconds()

    # --- requests

    @property
    def full(self) -> bool:
        """So many unanswered adds or bytes that handles should accept nothing new for this bookie."""
        return self._adds.bytes >= self._adds_bytes_max or self._adds.count >= self._adds_count_max

    @property
    def refused(self) -> bool:
        """Whether the bookie seems not to speak this version; for REFUSAL_S to REFUSAL_MAX_S, or until it registers."""
        return self._reach.refused

    @property
    def keeps_out(self) -> TlsFailed | AuthenticationRefused | UnsupportedVersion | None:
        """The last failure, if TLS, credentials or the protocol version keep the client from the bookie; else None."""
        failure = self._reach.failure
        return failure if isinstance(failure, TlsFailed | AuthenticationRefused | UnsupportedVersion) else None

    def on_room(self, call: Callable[[], None]) -> None:
        """Call once when the channel is no longer full."""
        self._room_waiters.append(call)
        if self._full_timer is None and self._settings.add_timeout_s > 0:
            self._watch_full()

    def _watch_full(self) -> None:
        call = partial(self._on_still_full, self._link, self._adds.answered_count)
        self._full_timer = PatientTimer(self._clock, self._settings.add_timeout_s, call)

    def _on_still_full(self, link: BookieLink | None, answered_count: int) -> None:
        """A bookie that answers no add for so long holds up everybody, also those who sent it nothing (L-2).

        One that answers, and is kept full all the same by those who write, does not.
        """
        self._full_timer = None
        if self._link is not None and self._link is link and self.full and self._adds.answered_count == answered_count:
            self._link.abort(self._timed_out())
        elif self._room_waiters:
            self._watch_full()

    def send_adds(self, owner: AddOwner, ledger_id: int, frames: Sequence[bytes], size: int) -> None:
        """Send encoded adds, one frame per entry; `size`: their bytes together."""
        self._turn.add_count += 1
        self._adds.on_sent(ledger_id, owner, count=len(frames), size=size)
        if self.full:
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
            self._turn.add_count += 1
            self._adds.on_sent_mixed(count=len(singles), size=size)
            if self.full:
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
        deadline = self._clock.seconds() + self._settings.read_timeout_s
        read = PendingRead(owner, ledger_id, entry_ids, fence_key, high_priority, deadline)
        sendable = self._outstanding.submit_read(read)
        if sendable:
            self._send_reads(read, sendable)
        elif sendable is None:
            if not self._outstanding.add_read(read):
                return
            self._submit_waiting()
        if self._timer is None or deadline < self._timer_due:
            self._watch_deadline(deadline)

    def _submit_waiting(self) -> None:
        for read, entry_ids in self._outstanding.sendable_reads():
            self._send_reads(read, entry_ids)

    def call(
        self,
        request: tuple[int, bytes],
        timeout_s: float,
        on_reply: Callable[[Any], None],
        on_unknown: Callable[[Exception], None],
        *,
        waits: bool = False,
    ) -> None:
        """Send an encoded request that is answered by its id. One of the callbacks follows, never in this call.

        waits: a long poll, which has a bound of its own; `timeout_s` then includes the wait at the bookie.
        """
        request_id, frame = request
        deadline = self._clock.seconds() + timeout_s
        if self._outstanding.add_call(request_id, PendingCall(on_reply, on_unknown, deadline), waits=waits):
            self._send((frame,), len(frame), 1)
            self._watch_deadline(deadline)

    def _send_reads(self, read: PendingRead[ReadOwner], entry_ids: Sequence[int]) -> None:
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
        """Write everything, or a little more than the transport takes: a paused one would hold a second copy."""
        link = self._link
        if link is None:
            return
        parts, self._out = self._out, []
        if self._out_bytes <= WRITE_SIZE:
            if parts:
                self._write(link, parts)
        else:
            position, count = 0, len(parts)
            while position < count and not link.paused and not link.closing:
                first, size = position, 0
                while position < count and size < WRITE_SIZE:
                    size += len(parts[position])
                    position += 1
                self._write(link, parts[first:position])
            if self._link is link:  # else what is left was told as lost, with the connection
                self._out[:0] = parts[position:]
        self._out_bytes = sum(map(len, self._out))
        self._out_entries = len(self._out)

    def _write(self, link: BookieLink, parts: list[bytes]) -> None:
        self.write_count += 1
        if len(parts) == 1:
            link.transport.write(parts[0])
        else:
            link.transport.writeSequence(parts)

    def _connect(self) -> None:
        if self._closed:
            self._lose(ClientClosed("the client is closed"))
            return
        failure = self._reach.failure
        if failure is not None:
            self._lose(failure)
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
        link = self._link = BookieLink(
            self, self.bookie_id, self.encoder, self._clock, self._settings, self._security, host=address[0]
        )
        self.connect_count += 1
        connecting: Deferred[None] = self._network.connect(*address, link, timeout_s=self._settings.connect_timeout_s)
        self._connecting = connecting
        connecting.addErrback(self._on_connect_failed, link)

    def _on_connect_failed(self, failure: Failure, link: BookieLink) -> None:
        if self._link is link:
            self._link = None
            self._on_unreachable(ConnectFailed(f"bookie {self.bookie_id}: {failure.value}", bookie_id=self.bookie_id))

    def _on_unreachable(self, error: BookieUnavailable) -> None:
        self._reach.on_unreachable(error)
        self._on_failed(error)

    def _on_failed(self, error: BookieUnavailable) -> None:
        if self.quarantines and not (self.optional and self._reach.refused):
            self._directory.quarantine(self.bookie_id)
        self._lose(error)

    def _lose(self, error: BookKeeperError) -> None:
        """Tell everyone that nothing is known of what is outstanding."""
        self._out.clear()
        self._singles.clear()
        self._singles_bytes = 0
        self._out_bytes = self._out_entries = 0
        self._outstanding.on_ended(error)
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
        self._reach.on_answer()
        error = self._outstanding.on_messages(received, lambda: self._link is not link)
        if error is not None:
            link.abort(error)
        if self._link is not link:
            return
        for read, entry_id in self._outstanding.released_reads():
            self._send_reads(read, (entry_id,))
        self._submit_waiting()
        self._wake_room_waiters()

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        """The connection ended or could not be authenticated."""
        if self._link is not link:
            return
        was_idle = self.idle
        self._link = None
        self._reach.on_connection_ended()
        if not (was_idle and link.ended_by_peer and self._reach.answered):
            self._reach.on_unreachable(error)
        self._on_failed(error)

    # --- time

    def _watch_deadline(self, deadline: float) -> None:
        if self._closed or (self._timer is not None and self._timer_due <= deadline):
            return  # what a closed channel is asked fails at the end of the turn
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        self._timer = PatientTimer(self._clock, max(0.0, deadline - self._clock.seconds()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        outstanding = self._outstanding
        for read, entry_ids in outstanding.overdue_reads(now):
            read.owner.on_read_unknown(self.bookie_id, entry_ids, self._timed_out())
            self.check_silence(self._settings.read_timeout_s)
        outstanding.drop_stale_waiting(now, self._settings.read_timeout_s)
        for call in outstanding.overdue_calls(now):
            call.on_unknown(self._timed_out())
        for poll in outstanding.overdue_polls(now):
            poll.on_unknown(self._timed_out())
            self.check_silence(self._settings.read_timeout_s)
        if self._link is not None and outstanding.take_blocked():
            self._link.abort(self._timed_out())
        deadline = outstanding.next_deadline
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
        busy = self._outstanding.busy or self._out or self._singles
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
