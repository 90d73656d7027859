"""One connection: bytes in and out, and holding back whoever asks for more than is being taken.

    dataReceived -> codec -> inbox -> dispatch -> ... answer -> outbox --(one write per connection and turn)-->
    transport

Bounds of one connection: one received chunk with requests that are not dispatched, one incomplete frame,
`unsent_bytes_max` of answers, and the answers to requests that were dispatched before that limit was reached (adds are
small; at most one slice of reads). REQUESTS_AT_ONCE requests of the chunk are decoded at a time (the inbox). A batch
read takes a whole slice. A waiting long poll takes no slice and delays no other request. Its answer counts as a read.
The answer contains no entry if the slice is used up or if answers wait.

The connection does not read from the transport while requests wait. A client that does not read its answers, or writes
faster than the journal syncs, therefore waits in TCP. `serving.admission` bounds the sums over all connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.bookie.connections.dispatch import Dispatcher
from bookkeeper.bookie.connections.handshake import Entrance
from bookkeeper.ports import Timer, Transport
from bookkeeper.serving.admission import Closing, Place, Why
from bookkeeper.serving.peers import name_of
from bookkeeper.wire.codec import ServerCodec
from bookkeeper.wire.messages import (
    AddBatch,
    BatchRead,
    FenceRead,
    LongPollRead,
    Malformed,
    ReadBatch,
    ReadLac,
    Request,
    WriteLac,
)

if TYPE_CHECKING:
    from bookkeeper.bookie.connections.service import BookieService
    from bookkeeper.tls import TlsCredentials, TlsLayer

log = Logger()

READ_SLICE_MAX = 512
"""Entries of one connection that are looked up at once, fencing reads included; fewer when its entries are large."""

READ_SLICE_FIRST = 16
"""As above while no size is known, for each ledger anew: the first look-up may cost 16 entries of the largest size."""

DISPATCHED_AT_ONCE = 16
"""Requests that are dispatched between two checks of the clock. Adds that arrived together count as one request, and so
do reads of one ledger."""

SLICE_S = 0.005
"""Time in one turn of the reactor for the requests of one connection. It is exceeded by at most DISPATCHED_AT_ONCE
requests."""

REQUEST_COST = 512
"""Bytes of memory, about, that a waiting request takes in addition to its contents."""

_READS = frozenset({ReadBatch, FenceRead, ReadLac, LongPollRead, BatchRead})
"""Requests whose answers hold entries."""


def _entry_count(request: Request) -> int:
    """How many entries a read may ask for; as many as are ever looked up at once for a batch read."""
    if isinstance(request, ReadBatch):
        return len(request.entry_ids)
    return READ_SLICE_MAX if isinstance(request, BatchRead) else 1


class Connection:
    """One client's connection; a Twisted protocol, and the push producer of its own transport."""

    def __init__(self, service: BookieService) -> None:
        self._service = service
        self._bounds = service.bounds
        self._codec = ServerCodec(service.frame_size_max)
        self._dispatcher: Dispatcher | None = Dispatcher(
            service.bookie,
            self._codec,
            service.usage,
            self._send,
            frame_size_max=service.frame_size_max,
            park=self._park,
            unpark=self._unpark,
        )
        self._transport: Transport | None = None
        self._tls: TlsLayer | None = None
        self._entrance: Entrance | None = None  # until the first request passes, if something is asked before it
        self._peer = "?"
        self._place = Place()  # replaced when the connection is admitted
        self._awaited = True  # no request was served yet
        self._inbox: deque[Request] = deque()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._handed_bytes = 0  # given to a transport that has not drained since
        self._blocked = False  # the transport asked us to wait
        self._blocked_since = 0.0
        self._stall_timer: Timer | None = None
        self._flush_due = False
        self._pumping = False
        self._turn_due = False  # the rest of the inbox waits for the next reactor turn
        self._paused = False  # we asked the transport to wait
        self._full = False  # unsent answers reached the bound and did not fall below the low mark yet
        self._finishing = False  # no more is read; close when the last answer is out
        self._stopped = False  # no more is read; the service closes us
        self._closing = False
        self._inbox_bytes = 0
        self._open_requests = 0
        self._parked_polls = 0
        self._open_reads = 0
        self._read_slice = READ_SLICE_FIRST
        self._read_ledger_id = -1

    # --- what the transport calls

    def makeConnection(self, transport: Any) -> None:
        """The connection is up."""
        self._peer = name_of(transport.getPeer())
        service = self._service
        place = None if service.stopping else service.admission.admit(self)
        if place is None:
            reason = "this bookie is stopping" if service.stopping else service.admission.refusal
            service.peers.on_refused(self._peer, reason)
            transport.abortConnection()
            return
        self._place = place
        service.opened(self)
        self._transport = transport
        transport.registerProducer(self, True)
        if service.security is not None and (gate := service.security.gate(self._peer)) is not None:
            self._entrance = Entrance(self, service.security, gate, service.clock, service.meters)

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        if self._transport is None or self._finishing or self._stopped:
            return
        if self._tls is not None:
            data = self._decrypt(self._tls, data)
        self._place.heard = True
        self._decode(data)
        self.pump()

    def _decode(self, data: bytes) -> None:
        """Decode received bytes, about REQUESTS_AT_ONCE requests at a time."""
        received = self._codec.receive(data)
        self._inbox.extend(received)
        self._count_received(len(data), len(received))
        if self._awaited and self._entrance is None and not all(type(each) is Malformed for each in received):
            self._on_first_request()
        error = self._codec.error
        if error is not None:
            self._service.meters.protocol_errors.add()
            self.warn("protocol error", "Closing the connection from {peer}: {error}", error=error)
            error.__traceback__ = None  # it refers back to the codec, and both would wait for a collection
            self._finishing = True

    def connectionLost(self, reason: object) -> None:
        """The connection is gone. What it asked for is still done, and answered to nobody."""
        self._transport = self._tls = None
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            entrance.close()
        dispatcher, self._dispatcher = self._dispatcher, None  # they know each other; nothing is left to a collection
        if dispatcher is not None:
            dispatcher.close()
        self._outbox.clear()
        self._outbox_bytes = self._handed_bytes = 0
        self._service.admission.forget(self._place)
        self._service.forget(self)
        self._empty_inbox()
        if self._stall_timer is not None and self._stall_timer.active():
            self._stall_timer.cancel()
        self._stall_timer = None

    def pauseProducing(self) -> None:
        """The transport's buffer is full: keep answers in the outbox."""
        self._blocked = True
        self._blocked_since = self._service.clock.seconds()
        if self._stall_timer is None:
            self._stall_timer = self._service.clock.callLater(self._bounds.stall_timeout_s, self._check_stall)
        self._service.admission.untaken(self._place, self._outbox_bytes + self._handed_bytes)

    def resumeProducing(self) -> None:
        """The transport's buffer drained."""
        self._blocked = False
        self._handed_bytes = 0
        self._service.admission.untaken(self._place, 0)
        self.flush()
        self.pump()

    def stopProducing(self) -> None:
        """The transport is going away; `connectionLost` follows."""

    # --- requests

    def pump(self) -> None:
        """Dispatch what has arrived, as far as answers and journal keep up."""
        if self._pumping or self._turn_due or self._transport is None or self._service.bookie.failure is not None:
            return
        self._pumping = True
        inbox = self._inbox
        until_s, left = 0.0, DISPATCHED_AT_ONCE
        try:
            if self._entrance is None or self._enter(self._entrance, inbox):
                while inbox and not self._must_wait(inbox[0]):
                    self._dispatch_next(inbox)
                    left -= 1
                    if left:
                        continue
                    left, now_s = DISPATCHED_AT_ONCE, self._service.clock.seconds()
                    until_s = until_s or now_s + SLICE_S
                    if now_s >= until_s and inbox:
                        self._take_another_turn()
                        break
        finally:
            self._pumping = False
        if self._codec.pending and not (inbox or self._turn_due):
            self._take_another_turn()
        if self._outbox and not self._flush_due:
            self._write()
        self._settle()

    def _take_another_turn(self) -> None:
        self._turn_due = True
        self._service.clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        if self._codec.pending and not self._inbox:
            self._decode(b"")
        self.pump()

    # --- before the first request

    def _enter(self, entrance: Entrance, inbox: deque[Request]) -> bool:
        """True once nothing is asked of this connection any more."""
        if not entrance.opens(inbox):
            return False
        self._entrance = None
        self._service.admission.hold_as_stranger(self._place, 0)
        self._on_first_request()
        return True

    def _on_first_request(self) -> None:
        """Note that a request of this connection may be served, or that it has shown its credentials."""
        self._awaited = False
        self._service.admission.served(self._place)

    @property
    def codec(self) -> ServerCodec:
        """See entrance.Entering, as for the rest of this section."""
        return self._codec

    @property
    def has_room(self) -> bool:
        """See above."""
        if self._outbox_bytes + self._handed_bytes > self._bounds.unsent_bytes_max and not self._blocked:
            self._write()
        return not self._blocked

    def say(self, answer: bytes) -> None:
        """See above. It leaves at the end of `pump`."""
        if answer:
            self._outbox.append(answer)
            self._outbox_bytes += len(answer)

    def start_tls(self, credentials: TlsCredentials, answer: bytes) -> None:
        """See above."""
        transport = self._transport
        if transport is None:
            return
        self.say(answer)
        parts, self._outbox, self._outbox_bytes = self._outbox, [], 0
        transport.writeSequence(parts)
        self._codec.start_over()
        self._transport = self._tls = credentials.layer(transport)

    def finish(self) -> None:
        """See above."""
        self._finishing = True
        self._empty_inbox()
        self.pump()

    def _decrypt(self, tls: TlsLayer, data: bytes) -> bytes:
        plain = tls.receive(data)
        if self._entrance is not None and tls.secured and not self._entrance.secured:
            self._entrance.on_secured()
        if tls.error is not None:
            self._service.meters.tls_failures.add()
            self.warn(f"TLS: {tls.error}", "TLS with {peer} failed: {reason}", reason=tls.error)
        if tls.error is not None or tls.ended:
            self._finishing = True
        return plain

    # --- requests

    def _must_wait(self, request: Request) -> bool:
        unsent = self._outbox_bytes + self._handed_bytes
        self._full = unsent > (self._bounds.unsent_bytes_low if self._full else self._bounds.unsent_bytes_max)
        if self._full:
            if not self._blocked:
                self._write()  # the transport takes it all now, or calls resumeProducing later
                return self._blocked
            return True
        kind = type(request)
        if kind in _READS:
            return self._open_reads >= self._read_slice
        if (kind is AddBatch or kind is WriteLac) and self._service.bookie.congested:
            self._service.hold(self)
            return True
        return False

    def _dispatch_next(self, inbox: deque[Request]) -> None:
        assert self._dispatcher is not None
        request = inbox[0]
        if isinstance(request, ReadBatch):
            if request.ledger_id != self._read_ledger_id:
                self._read_ledger_id, self._read_slice = request.ledger_id, READ_SLICE_FIRST
            if len(request.entry_ids) > self._read_slice:
                request = request.take(self._read_slice)
            else:
                inbox.popleft()
            self._open_reads += len(request.entry_ids)
        else:
            inbox.popleft()
            if type(request) in _READS:
                self._open_reads += _entry_count(request)
            if isinstance(request, AddBatch):
                batches = [request]
                while inbox and isinstance(following := inbox[0], AddBatch):
                    batches.append(following)
                    inbox.popleft()
                self._open_requests += len(batches)
                self._dispatcher.dispatch_adds(batches)
                return
            if isinstance(request, Malformed):
                self.warn(
                    "malformed",
                    "Refused a request from {peer}: {operation} of ledger {ledger_id}, entry {entry_id}: {reason}; "
                    "the fault is that client's",
                    operation=request.operation.value,
                    ledger_id=request.ledger_id,
                    entry_id=request.entry_id,
                    reason=request.reason,
                )
        self._open_requests += 1
        self._dispatcher.dispatch(request)

    def _park(self, request: Request) -> None:
        """A long poll waits: it is none of our open requests meanwhile, and the reads behind it go on."""
        self._open_requests -= 1
        self._open_reads -= 1
        self._parked_polls += 1
        if self._inbox or self._finishing:
            self.pump()

    def _unpark(self, request: Request) -> bool:
        """The wait of a long poll is over, its answer follows; False when it must not bring an entry."""
        self._parked_polls -= 1
        self._open_requests += 1
        self._open_reads += 1
        unsent = self._outbox_bytes + self._handed_bytes
        return self._open_reads <= self._read_slice and unsent <= self._bounds.unsent_bytes_max

    def _settle(self) -> None:
        """Pause or resume reading; close when all is answered and nothing more is to come."""
        transport = self._transport
        if transport is None:
            return
        waiting = bool(self._inbox) or self._codec.pending
        if not (waiting or (self._entrance is not None and self._entrance.busy)):
            self._empty_inbox()
        if self._finishing:
            if not waiting and not self._open_requests:
                self.close()
            return
        crowded = self._service.inbox_bytes > 0 and self._service.crowded
        if crowded:
            self._service.wait_for_room(self)
        if waiting or crowded:
            if not self._paused:
                self._paused = True
                self._service.meters.reading_paused.add()
                transport.pauseProducing()
        elif self._paused and not self._stopped:
            self._paused = False
            transport.resumeProducing()

    def _count_received(self, size: int, request_count: int) -> None:
        """Update the sums of waiting and of incomplete bytes after `size` bytes and `request_count` requests."""
        place, partial = self._place, self._codec.buffered
        before = place.partial_bytes
        grown = before + size - partial + REQUEST_COST * request_count
        self._inbox_bytes += grown
        self._service.inbox_bytes += grown
        if partial or before:
            self._service.admission.partial(place, partial)
        if self._entrance is not None:
            self._count_stranger(self._entrance)

    def _count_stranger(self, entrance: Entrance) -> None:
        """Update the sum of received bytes of connections without credentials."""
        size = self._place.partial_bytes + self._inbox_bytes if entrance.waits else 0
        self._service.admission.hold_as_stranger(self._place, size)

    def _empty_inbox(self) -> None:
        self._inbox.clear()
        self._codec.drop_pending()
        size, self._inbox_bytes = self._inbox_bytes, 0
        if self._entrance is not None:
            self._count_stranger(self._entrance)
        self._service.inbox_emptied(size)

    @property
    def busy(self) -> bool:
        """See admission.Bounded."""
        if self._entrance is not None and self._entrance.busy:
            return True
        waiting = self._inbox or self._codec.pending
        return bool(self._open_requests or self._parked_polls or waiting or self._outbox or self._blocked)

    @property
    def untaken_bytes(self) -> int:
        """See admission.Bounded."""
        return self._outbox_bytes + self._handed_bytes

    def give_up(self, closing: Closing) -> None:
        """See admission.Bounded. Requests that precede an incomplete one are still answered."""
        if self._service.peers.on_closing(self._peer, closing):
            self._empty_inbox()
            self.close()
            return
        self._finishing = True
        if closing.why is Why.PARTIAL_BYTES:
            self.pump()
        else:
            self._empty_inbox()
            self.abort()

    # --- answers

    def _send(self, requests: Sequence[Request], parts: Sequence[bytes]) -> None:
        self._open_requests -= len(requests)
        size = sum(map(len, parts))
        request = requests[0]
        if type(request) in _READS:
            count = _entry_count(request)
            self._open_reads -= count
            if not isinstance(request, LongPollRead | BatchRead):  # which tell little of how large single entries are
                self._read_slice = min(max(self._bounds.unsent_bytes_max * count // max(size, 1), 1), READ_SLICE_MAX)
        if self._transport is None:
            return
        self._outbox += parts
        self._outbox_bytes += size
        if self._blocked:
            self._service.admission.untaken(self._place, self._outbox_bytes + self._handed_bytes)
        if not self._flush_due and not self._pumping:  # `pump` writes what was answered at once
            self._flush_due = True
            self._service.flush_later(self)

    def flush(self) -> None:
        """Hand the outbox to the transport, unless it asked us to wait; then go on with what was held back."""
        self._flush_due = False
        self._write()
        if self._inbox or self._finishing:
            self.pump()

    def _write(self) -> None:
        transport = self._transport
        if transport is None or self._blocked or not self._outbox:
            return
        parts, size = self._outbox, self._outbox_bytes
        self._outbox, self._outbox_bytes = [], 0
        self._handed_bytes = size
        self._service.meters.writes.add()
        self._service.meters.write_bytes.add(size)
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writeSequence(parts)
        if not self._blocked:
            self._handed_bytes = 0  # what is left of it is below the transport's own small limit

    def stop_reading(self) -> None:
        """Read nothing more; what has arrived but was not dispatched is dropped."""
        self._stopped = True
        self._empty_inbox()
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pauseProducing()

    def close(self) -> None:
        """Close once everything written has left, or after `stall_timeout_s`."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        self._finishing = True
        if self._outbox:
            parts, self._outbox, self._outbox_bytes = self._outbox, [], 0
            transport.writeSequence(parts)
        transport.unregisterProducer()
        transport.loseConnection()
        self._blocked, self._blocked_since = True, self._service.clock.seconds()
        if self._stall_timer is None:
            self._stall_timer = self._service.clock.callLater(self._bounds.stall_timeout_s, self._check_stall)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._outbox, self._outbox_bytes = [], 0
            self._transport.abortConnection()

    def _check_stall(self) -> None:
        self._stall_timer = None
        if not self._blocked or self._transport is None:
            return
        left = self._blocked_since + self._bounds.stall_timeout_s - self._service.clock.seconds()
        if left > 0:
            self._stall_timer = self._service.clock.callLater(left, self._check_stall)
            return
        self.warn(
            "stalled",
            "Closing the connection from {peer}: it took no answers for {seconds:g} s while {size} bytes waited",
            seconds=self._bounds.stall_timeout_s,
            size=self._outbox_bytes + self._handed_bytes,
        )
        self._transport.abortConnection()

    def warn(self, subject: str, template: str, **fields: object) -> None:
        """Log an event of this peer. Recent similar events from its host are only counted."""
        self._service.peers.warn(self._peer, subject, template, **fields)
