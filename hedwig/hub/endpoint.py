"""A client's connection to a hub: requests in, answers and deliveries out.

    bytes -> frames -> requests --owner of the topic?--> another hub: redirect
                                                     --> this one:   TopicService
    deliveries of all its subscriptions  -> one write for each look, paused while the client takes nothing

Answers come as the work is done, so they may overtake each other; a subscribe's comes before its first delivery. What
cannot be parsed ends the connection, and nothing else does: an error is answered, with a text that says what to do.
Differs from Apache, which closes the connection after most errors of SUBSCRIBE, and so takes all subscriptions of a
multiplexed client with it.

Bounds: a frame's size; a connection with more than `unanswered_max` requests, or bytes of publishes, is not read until
half of them are answered, nor one that was written much to and takes nothing; `READINGS_MAX` reads of old messages.
If a connection sends more requests at once than fit into a reactor turn (turns.py), they are served in several
turns, and the connection is not read until then. They count as an incomplete request does.
`bookkeeper.serving.admission` bounds the sums over all connections, and the silence of each. A connection with a
subscription is never closed for its silence.
Thread: reactor. Source: hedwig/PROTOCOL.md 1.6, 2.1-2.9, 7.5.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, RemoteProtocolError
from bookkeeper.serving.admission import Admission, BoundNames, Closing, ConnectionBounds, Place
from bookkeeper.serving.peers import PeerLog, name_of
from hedwig.errors import MalformedRequest, NotResponsible, PubSubError, ServiceDown, UnexpectedCondition
from hedwig.hub.meters import HubMeters
from hedwig.hub.ownership import Ownership
from hedwig.hub.subscriptions.attachment import Held
from hedwig.hub.topics.publish_once import parts_of
from hedwig.hub.topics.service import TopicService
from hedwig.hub.turns import DeliveryTurns
from hedwig.model import MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.names import shown
from hedwig.protocol.options import DEAD_TOPIC, asks_end, end_answer
from hedwig.protocol.producers import Origin
from hedwig.wire.framing import FRAME_SIZE_MAX_HUB, FrameDecoder
from hedwig.wire.requests import (
    CloseSubscription,
    Consume,
    Malformed,
    Publishes,
    Request,
    Subscribe,
    Unsubscribe,
    decode_requests,
)
from hedwig.wire.responses import error_frame, published_frames, subscribed_frame, success_frame

if TYPE_CHECKING:
    from bookkeeper.ports import Timer, Transport

log = Logger()

HUB_BOUNDS = ConnectionBounds(
    idle_s=3600.0,
    names=BoundNames(
        connections="max_connections",
        memory="max_connection_memory_mb",
        first_request="first_request_timeout_secs",
        idle="idle_connection_timeout_secs",
    ),
)

BUFFER_SIZE = 256 * 1024
"""Bytes read from a client at once; a larger buffer lets more messages of a topic be stored together. Also the bytes
that may wait to be written before the client counts as blocked."""

UNANSWERED_MAX = 10_000
WRITTEN_AT_ONCE = 64 * 1024
"""Bytes that leave without waiting for the end of the turn."""

UNANSWERED_BYTES_MAX = 16 * 1024 * 1024

UNTAKEN_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that wait for a client that does not read, before the hub stops reading from it: the answers to further
requests would fill the memory. A client that only writes much at once has far fewer bytes of answers."""

READINGS_MAX = 32
"""Subscriptions of one connection that read old messages at the same time."""

TEXT_SIZE_MAX = 2_000
"""Characters of an error that are answered: it may repeat what was asked."""


FRAMES_AT_ONCE = 1024
"""Frames that are decoded together: 5 ms at 5 us each. Publishes of one topic among them are stored together."""

REQUESTS_AT_ONCE = 64
"""Publishes, and CONSUMEs with cumulative acknowledgement, between two checks of the clock: about 2 ms. Publishes to
one topic count as one request. Any other request may take several ms; the clock is checked after it."""

FRAME_COST = 64
"""Bytes of memory that a waiting frame takes, at most, beside its contents."""

REQUEST_COST = 512
"""Bytes of memory that a waiting request takes, about, beside its contents."""


class HubConnection:
    """See StreamProtocol and Channel.

    on_closed: called once, when the connection is gone. admission, peers: shared by all connections of the hub; None if
    this is the only connection. place: set by an outer layer that was already admitted.
    """

    def __init__(
        self,
        ownership: Ownership[TopicService],
        *,
        frame_size_max: int = FRAME_SIZE_MAX_HUB,
        unanswered_max: int = UNANSWERED_MAX,
        on_closed: Callable[[HubConnection], object] = lambda connection: None,
        meters: HubMeters | None = None,
        admission: Admission | None = None,
        peers: PeerLog | None = None,
        turns: DeliveryTurns | None = None,
    ) -> None:
        self.admission = Admission(HUB_BOUNDS, ownership.clock) if admission is None else admission
        self.peers = PeerLog(log, ownership.clock) if peers is None else peers
        self._turns = DeliveryTurns(ownership.clock) if turns is None else turns
        self.place: Place | None = None
        self._awaited = True  # no valid request arrived yet
        self._peer = "?"
        self._meters = meters or HubMeters()
        self._ownership, self._on_closed = ownership, on_closed
        self._decoder = FrameDecoder(frame_size_max, longer=DEAD_TOPIC.encode())
        self._unanswered_max = unanswered_max
        # Requests that arrived and are not served yet; until they are, nothing is read. See _serve_backlog.
        self._frames: deque[bytes] = deque()
        self._requests: deque[Request] = deque()
        self._frames_size = self._requests_size = 0  # their memory; requests: all that were decoded together
        self._was_long = False  # the last request may have taken long
        self._transport: Transport | None = None
        self._attachments: dict[tuple[Topic, SubscriberId], Held] = {}
        self._lost: list[tuple[Topic, SubscriberId]] = []  # subscriptions of a lost connection, not closed yet
        self._out: list[bytes] = []
        self._out_size = 0
        self._collecting = False
        self._unanswered = self._unanswered_bytes = 0
        self._not_read = False
        self._waiting: OrderedDict[Held, None] = OrderedDict()  # until something is taken
        self._readers: OrderedDict[Held, None] = OrderedDict()  # until they may read
        self._readings = 0
        self._resuming = self._resume_is_due = False
        self._farewell: Timer | None = None
        self.writable = False
        self.closed = False

    @property
    def attachment_count(self) -> int:
        """Subscriptions that it holds."""
        return len(self._attachments)

    # --- the transport

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up."""
        self._peer = name_of(transport.getPeer())
        if self.place is None:
            self.place = self.admission.admit(self)
        if self.place is None:
            self.peers.on_refused(self._peer, self.admission.refusal)
            transport.abortConnection()
            return
        self._transport = transport
        self.writable = True
        transport.registerProducer(self, True)

    def pauseProducing(self) -> None:
        """Stop writing until the client reads. The transport calls this for every write while it is blocked."""
        if self.writable:
            self.writable = False
            self._count_untaken()

    def resumeProducing(self) -> None:
        """It takes something again."""
        self.writable = True
        self._count_untaken()
        self._look_whether_to_read()
        self._resume_waiting()

    def stopProducing(self) -> None:
        """The connection ends."""
        self.writable = False

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone: its subscriptions are free."""
        self.closed, self.writable = True, False
        if self._farewell is not None and self._farewell.active():
            self._farewell.cancel()
        if self.place is not None:
            self.admission.forget(self.place)
        self._drop_backlog()
        self._waiting.clear()
        self._readers.clear()
        for attachment in self._attachments.values():
            attachment.ended = True  # another connection may attach from now on
        self._lost = list(self._attachments)
        self._attachments = {}
        self._close_lost()
        self._on_closed(self)

    def _close_lost(self) -> None:
        """Close the subscriptions of this lost connection while this turn has time, and the remaining ones later."""
        while self._lost:
            topic, subscriber = self._lost.pop()
            service = self._ownership.owned.get(topic)
            if service is not None:
                try:
                    service.close_subscription(subscriber, self)
                except Exception:  # noqa: BLE001 - a fault of one subscription must not leave the others attached
                    log.failure(
                        "Closing the subscription of {subscriber!r} to topic {topic!r} failed",
                        subscriber=shown(subscriber),
                        topic=shown(topic),
                    )
            if self._lost and not self._turns.has_time():
                self._turns.later(self._close_lost)
                return

    def close(self) -> None:
        """End it, once what was written has left, or after `stall_timeout_s`."""
        if self._transport is not None and not self.closed:
            self._flush()
            if self._farewell is None:
                self._farewell = self._ownership.clock.callLater(self.admission.bounds.stall_timeout_s, self.abort)
            self._transport.loseConnection()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None and not self.closed:
            self._transport.abortConnection()

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        place = self.place
        if place is None:
            return
        place.heard = True
        frames = self._decoder.receive(data)
        if self._has_backlog:
            self._keep(frames)
            self._count_received(place)
            return
        if self._decoder.buffered or place.partial_bytes:
            self._count_received(place)
        requests = self._decoded(place, frames[:FRAMES_AT_ONCE])
        if requests is None:
            return
        if len(frames) > FRAMES_AT_ONCE or len(requests) > REQUESTS_AT_ONCE:
            self._keep(frames[FRAMES_AT_ONCE:])
            self._requests += requests
            self._requests_size = _size(frames[:FRAMES_AT_ONCE], REQUEST_COST)
            self._serve_backlog()
            return
        for count, request in enumerate(requests, 1):
            self._on_request(request)
            if self._was_long and count < len(requests) and not self._has_time_for_next():
                if not self.closed:
                    self._requests += requests[count:]
                    self._requests_size = _size(frames, REQUEST_COST)
                    self._serve_later(place)
                return
        if self._decoder.error is not None:
            self._broken(self._decoder.error)

    def _decoded(self, place: Place, frames: list[bytes]) -> list[Request] | None:
        """Return the requests in frames. None if one is not a request; the connection then ends."""
        try:
            requests = decode_requests(frames)
        except RemoteProtocolError as error:
            self._broken(error)
            return None
        if self._awaited and not all(type(each) is Malformed for each in requests):
            self._awaited = False
            self.admission.served(place)
        return requests

    # --- more requests than one turn of the reactor has time for

    @property
    def _has_backlog(self) -> bool:
        return bool(self._requests or self._frames)

    def _drop_backlog(self) -> None:
        self._frames.clear()
        self._requests.clear()
        self._frames_size = self._requests_size = 0

    def _keep(self, frames: list[bytes]) -> None:
        self._frames += frames
        self._frames_size += _size(frames, FRAME_COST)

    def _count_received(self, place: Place) -> None:
        """Count the incomplete frame and the requests that wait for their turn."""
        self.admission.partial(place, self._decoder.buffered + self._frames_size + self._requests_size)

    def _serve_backlog(self) -> None:
        """Serve the requests that arrived, in order, as long as this turn has time."""
        place = self.place
        while place is not None and not self.closed:
            for _ in range(REQUESTS_AT_ONCE):
                if not self._requests and self._frames:
                    count = min(FRAMES_AT_ONCE, len(self._frames))
                    frames = [self._frames.popleft() for _ in range(count)]
                    self._frames_size -= _size(frames, FRAME_COST)
                    requests = self._decoded(place, frames)
                    if requests is None:
                        return
                    self._requests += requests
                    self._requests_size = _size(frames, REQUEST_COST)
                if not self._requests:
                    self._requests_size = 0
                    self._count_received(place)
                    self._look_whether_to_read()
                    if self._decoder.error is not None:
                        self._broken(self._decoder.error)
                    return
                self._on_request(self._requests.popleft())
                if self._was_long:
                    break
            if self._has_backlog and not self._has_time_for_next():
                self._serve_later(place)
                return

    def _has_time_for_next(self) -> bool:
        self._was_long = False
        return self._turns.has_time()

    def _serve_later(self, place: Place) -> None:
        self._turns.later(self._serve_backlog)
        self._count_received(place)
        self._look_whether_to_read()

    def _broken(self, error: RemoteProtocolError) -> None:
        assert self._transport is not None
        self._drop_backlog()
        template = "Closing the connection from {peer}: {error}"
        self.peers.warn(self._peer, "protocol error", template, error=error)
        self.writable = False
        self._transport.abortConnection()

    @property
    def busy(self) -> bool:
        """See Bounded."""
        return bool(self._attachments or self._unanswered > 0 or self._has_backlog)

    def give_up(self, closing: Closing) -> None:
        """See Bounded."""
        if self.peers.on_closing(self._peer, closing) and self.writable:
            self.close()
        else:
            self.writable = False
            self._drop_backlog()
            self.abort()

    @property
    def untaken_bytes(self) -> int:
        """See Bounded. 0 unless the transport is blocked."""
        if self.writable or self._transport is None:
            return 0
        return self._transport.unsent_bytes + self._out_size

    def _count_untaken(self) -> None:
        if self.place is not None:
            self.admission.untaken(self.place, self.untaken_bytes)

    def write(self, parts: Sequence[bytes]) -> None:
        """See Channel. What comes first in a turn of the reactor leaves at once; all else together, at its end."""
        if self.closed or self._transport is None:
            return
        if not self._collecting:
            self._collecting = True
            self._ownership.clock.callLater(0, self._end_turn)
            self._transport.writeSequence(parts)
        else:
            self._out += parts
            self._out_size += sum(map(len, parts))
            if self._out_size >= WRITTEN_AT_ONCE:
                self._flush()
        if not self.writable:
            self._count_untaken()
            self._look_whether_to_read()

    def _end_turn(self) -> None:
        self._collecting = False
        self._flush()

    def _flush(self) -> None:
        out, self._out, self._out_size = self._out, [], 0
        if out and not self.closed and self._transport is not None:
            self._transport.writeSequence(out)

    # --- whose turn it is

    def when_writable(self, held: Held) -> None:
        """See Channel."""
        self._waiting[held] = None

    def _resume_waiting(self) -> None:
        """Resume deliveries while this turn has time. A delivery that fills the connection waits behind the others."""
        if self._resume_is_due:
            return
        for number in range(len(self._waiting)):
            if number and not self._turns.has_time():
                self._resume_is_due = True
                self._turns.later(self._resume_more)
                return
            if not self.writable or not self._waiting:
                break
            self._waiting.popitem(last=False)[0].resume()
        self._resume_readers()

    def _resume_more(self) -> None:
        self._resume_is_due = False
        try:
            self._resume_waiting()
        except BaseException:
            self.abort()  # the other deliveries would wait for ever
            raise

    def begin_reading(self, held: Held) -> bool:
        """See Channel."""
        if self._readings >= READINGS_MAX:
            self._readers[held] = None
            return False
        self._readings += 1
        return True

    def end_reading(self) -> None:
        """See Channel."""
        self._readings -= 1
        self._resume_readers()

    def _resume_readers(self) -> None:
        if self._resuming:  # by a read that was done at once
            return
        self._resuming = True
        try:
            while self.writable and self._readers and self._readings < READINGS_MAX:
                self._readers.popitem(last=False)[0].resume()
        finally:
            self._resuming = False

    def on_detached(self, topic: Topic, subscriber: SubscriberId, held: Held) -> None:
        """See Channel."""
        if self._attachments.get((topic, subscriber)) is held:
            del self._attachments[topic, subscriber]
        self._waiting.pop(held, None)
        self._readers.pop(held, None)

    # --- requests

    def _on_request(self, request: Request) -> None:
        if isinstance(request, Publishes):
            self._count(len(request.txn_ids), request.size)
            self._was_long = False
        else:
            self._count(1, 0)
            self._was_long = not isinstance(request, Consume)
        if isinstance(request, Malformed) and not request.of_topic:
            self._refuse(request, MalformedRequest(request.text))
            return
        claim = not isinstance(request, Consume) and request.should_claim
        try:
            service = self._ownership.service(request.topic, should_claim=claim)
        except BookKeeperError as error:
            self._refuse(request, error)
            return
        if isinstance(service, Deferred):
            service.addCallbacks(
                lambda found: self._serve(request, found), lambda failure: self._failed(failure, request)
            )
            service.addErrback(self._fault, request)
        else:
            self._serve(request, service)

    def _serve(self, request: Request, service: TopicService) -> None:
        if self.closed:
            return
        try:
            match request:
                case Publishes():
                    self._publish(request, service)
                case Consume():
                    self._was_long |= service.consume(request.subscriber, request.up_to, self)
                    self._count(-1, 0)
                case Subscribe() if request.mode is SubscribeMode.ATTACH and asks_end(request.preferences):
                    self.write([subscribed_frame(request.txn_id, end_answer(service.acknowledged_id))])
                    self._count(-1, 0)
                case Subscribe():
                    subscribing = service.subscribe(
                        request,
                        self,
                        lambda preferences, attachment: self._subscribed(request, service, preferences, attachment),
                    )
                    self._watch(subscribing, request)
                case Unsubscribe():
                    ending = service.unsubscribe(request.subscriber, self)
                    ending.addCallback(lambda _: self._let_go(request.topic, request.subscriber, request.txn_id))
                    self._watch(ending, request)
                case CloseSubscription():
                    service.close_subscription(request.subscriber, self)
                    self._let_go(request.topic, request.subscriber, request.txn_id)
                case Malformed():
                    raise MalformedRequest(request.text)
        except BookKeeperError as error:
            self._refuse(request, error)
        except Exception:  # noqa: BLE001 - a fault that one request meets is not that of the others of its connection
            self._fault(Failure(), request)  # type: ignore[no-untyped-call] # twisted has few types

    def _watch(self, work: Deferred[Any], request: Request) -> None:
        work.addErrback(self._failed, request)
        work.addErrback(self._fault, request)

    def _failed(self, failure: Failure, request: Request) -> None:
        if isinstance(failure.value, BookKeeperError):
            self._refuse(request, failure.value)
        else:
            self._fault(failure, request)

    def _fault(self, failure: Failure, request: Request) -> None:
        log.failure("Answering a request from {peer} failed", failure=failure, peer=self._peer)
        self._refuse(request, UnexpectedCondition(f"a fault of this hub: {failure.value!r}"))

    def _refuse(self, request: Request, error: BookKeeperError) -> None:
        """Answer every part of the request with the error."""
        if not isinstance(error, PubSubError):
            error = ServiceDown(str(error))
        text = str(error)[:TEXT_SIZE_MAX]
        if isinstance(error, NotResponsible):
            text = "" if error.owner is None else str(error.owner)
        txn_ids = request.txn_ids if isinstance(request, Publishes) else [request.txn_id]
        self._meters.refused(error.status, len(txn_ids))
        self.write([error_frame(txn_id, error.status, text) for txn_id in txn_ids])
        if isinstance(request, Publishes):
            self._count(-len(txn_ids), -request.size)
        else:
            self._count(-1, 0)

    # --- publishes

    def _publish(self, request: Publishes, service: TopicService) -> None:
        if len(request.messages) > 1 and service.log.refuses_some(request.messages, request.size):
            for txn_id, message in zip(request.txn_ids, request.messages, strict=True):
                self._publish(Publishes(request.topic, False, request.plain, [txn_id], [message]), service)
            return
        if request.plain:
            self._publish_some(service, request)
            return
        for part in list(parts_of(request)):
            some = Publishes(request.topic, False, False, part.txn_ids, part.messages)
            if part.error is not None:
                self._refuse(some, part.error)
            elif part.origins is None:
                self._publish_some(service, some, part.keep_ms)
            else:
                self._publish_once(service, some, part.origins, part.keep_ms)

    def _publish_once(
        self, service: TopicService, request: Publishes, origins: list[Origin], keep_ms: int | None
    ) -> None:
        topic, txn_ids, messages = request.topic, request.txn_ids, request.messages

        def answered(index: int, count: int, first: MessageId | None, error: PubSubError | None) -> None:
            some = Publishes(topic, False, False, txn_ids[index : index + count], messages[index : index + count])
            self._answer_stored(service, some, keep_ms, first, error)

        try:
            service.log.publish_once(messages, origins, answered)
        except BookKeeperError as error:
            self._refuse(request, error)

    def _publish_some(self, service: TopicService, request: Publishes, keep_ms: int | None = None) -> None:
        try:
            answer = partial(self._answer_stored, service, request, keep_ms)
            service.log.publish(request.messages, answer, plain=request.plain)
        except BookKeeperError as error:
            self._refuse(request, error)

    def _answer_stored(
        self,
        service: TopicService,
        request: Publishes,
        keep_ms: int | None,
        first: MessageId | None,
        error: PubSubError | None,
    ) -> None:
        """Answer as `_answer` does, once the retention that the message sets is durable too."""
        if keep_ms is None or first is None:
            self._answer(request, first, error)
            return
        named = service.name_retention(keep_ms, first.local)
        named.addCallbacks(lambda _: self._answer(request, first, None), lambda failure: self._failed(failure, request))
        named.addErrback(self._fault, request)

    def _answer(self, request: Publishes, first: MessageId | None, error: PubSubError | None) -> None:
        if error is not None:
            self._refuse(request, error)
            return
        assert first is not None
        count = len(request.txn_ids)
        self._meters.published.add(count)
        self._meters.published_bytes.add(request.size)
        self.write([published_frames(request.txn_ids, first.local, first.remote)])
        self._count(-count, -request.size)

    def _count(self, count: int, size: int) -> None:
        """So many requests more (or less) wait for their answers, and so many bytes of publishes."""
        self._unanswered += count
        self._unanswered_bytes += size
        if self._not_read or self._unanswered > self._unanswered_max or self._unanswered_bytes > UNANSWERED_BYTES_MAX:
            self._look_whether_to_read()

    def _look_whether_to_read(self) -> None:
        if self._transport is None or self.closed:
            return
        if self._not_read:
            if (
                self._unanswered <= self._unanswered_max // 2
                and self._unanswered_bytes <= UNANSWERED_BYTES_MAX // 2
                and self.untaken_bytes <= UNTAKEN_BYTES_MAX
                and not self._has_backlog
            ):
                self._not_read = False
                self._transport.resumeProducing()
        elif (
            self._unanswered > self._unanswered_max
            or self._unanswered_bytes > UNANSWERED_BYTES_MAX
            or self.untaken_bytes > UNTAKEN_BYTES_MAX
            or self._has_backlog
        ):
            self._not_read = True
            self._transport.pauseProducing()

    # --- subscriptions

    def _subscribed(
        self, request: Subscribe, service: TopicService, preferences: Preferences, attachment: Held
    ) -> None:
        if self.closed:
            service.close_subscription(request.subscriber, self)
            return
        self._meters.subscribes.add()
        self._attachments[request.topic, request.subscriber] = attachment
        self.write([subscribed_frame(request.txn_id, preferences)])
        attachment.start()
        self._count(-1, 0)

    def _let_go(self, topic: Topic, subscriber: SubscriberId, txn_id: int) -> None:
        self._attachments.pop((topic, subscriber), None)
        self.write([success_frame(txn_id)])
        self._count(-1, 0)


def _size(frames: Sequence[bytes], cost: int) -> int:
    return sum(map(len, frames)) + cost * len(frames)
