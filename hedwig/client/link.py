"""One connection of a client to a hub: frames out in one write a turn, answers and deliveries in.

    request ---> out list ---one write at the turn's end (or after the linger)---> hub
    hub ---> batches ---> publishes: their topic's lane;  others: whoever asked;  deliveries: their subscription

A connection that waits for answers or carries subscriptions asks for a sign of life after `heartbeat_s` of silence: a
hub that is cut off would be waited for without end, and one that is busy with one topic is no reason to leave it, as
what was sent would be sent again and stored twice. The question is an operation that hubs do not serve, which every
release answers at once without looking at a topic. A hub that is asked and silent for `answer_timeout_s` is taken for
dead: the connection is dropped, and with it everything that is unanswered becomes uncertain.

Thread: reactor. Source: hedwig/PROTOCOL.md 1.6, 1.7, 2.8, 2.9, 2.13, 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.logger import Logger

from bookkeeper.errors import RemoteProtocolError
from hedwig.client.settings import name_of
from hedwig.errors import PubSubError, UncertainState
from hedwig.model import HubAddress, MessageId, SubscriberId, Topic
from hedwig.wire.framing import FRAME_ALLOWANCE, FRAME_SIZE_MAX_CLIENT, FrameDecoder
from hedwig.wire.receiving import DELIVERY_HEAD, Deliveries, Published, Received, ResponseDecoder, TooLarge
from hedwig.wire.requests import PublishEncoder, heartbeat_frame
from hedwig.wire.responses import Answer, Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Transport

log = Logger()

PUBLISHES_MAX = 10_000
"""Publishes of one connection that are not answered; a hub reads no further then either."""

PUBLISH_BYTES_MAX = 32 * 1024 * 1024


class Asked(Protocol):
    """A request that waits for its answer."""

    def on_answer(self, link: HubLink, answer: Answer) -> None:
        """The hub answered."""

    def on_unknown(self, link: HubLink, error: PubSubError) -> None:
        """The connection ended first: what became of the request is open."""


class PublishAsked(Asked, Protocol):
    """A publish that waits for its answer. size: bytes of its message. deadline: by the clock."""

    size: int
    deadline: float

    def on_overdue(self) -> None:
        """Nothing was heard of it until its deadline; what the hub still says of it is passed over."""

    def on_published(self, message_id: MessageId) -> None:
        """It succeeded."""


class Delivered(Protocol):
    """A subscription that a connection carries."""

    def on_too_large(self, link: HubLink, told: TooLarge) -> None:
        """A message came that was not taken."""

    def on_messages(self, link: HubLink, messages: list[Received]) -> None:
        """In their order."""

    def on_event(self, link: HubLink, told: Told) -> None:
        """Something happened to it."""

    def on_link_lost(self, link: HubLink) -> None:
        """The connection is gone."""


class Turns:
    """Work that is put off: lanes send at the end of a turn of the reactor, or after the linger; all else that is
    written in a turn leaves at its end.
    """

    def __init__(self, clock: Clock, linger_s: float) -> None:
        self._clock, self._linger_s = clock, linger_s
        self._lanes: dict[Callable[[], object], None] = {}
        self._links: dict[HubLink, None] = {}
        self._sending = self._pumping = self._writing = False

    def send(self, pump: Callable[[], object]) -> None:
        """Have a lane send."""
        self._lanes[pump] = None
        if not self._sending:
            self._sending = True
            self._clock.callLater(self._linger_s, self._send)

    def write(self, link: HubLink) -> None:
        """Have a connection write."""
        self._links[link] = None
        if not self._writing and not self._pumping:
            self._writing = True
            self._clock.callLater(0, self._write)

    def _send(self) -> None:
        self._pumping = True  # what lanes write leaves with the last of them
        try:
            for pump in list(self._lanes):
                del self._lanes[pump]
                pump()
        finally:
            self._sending = self._pumping = False
            if self._lanes:  # those that came meanwhile, or are behind one that broke
                self.send(next(iter(self._lanes)))
            self._flush()

    def _write(self) -> None:
        self._writing = False
        self._flush()

    def _flush(self) -> None:
        links, self._links = self._links, {}
        for link in links:
            link.flush()


class HubLink:
    """See the module. on_lost: told once, with the link, when it is gone."""

    def __init__(
        self,
        clock: Clock,
        address: HubAddress,
        on_lost: Callable[[HubLink], object],
        *,
        answer_timeout_s: float,
        heartbeat_s: float,
        turns: Turns | None = None,
        frame_size_max: int = FRAME_SIZE_MAX_CLIENT,
    ) -> None:
        self.address, self.name = address, name_of(address)
        self.subscriptions: dict[tuple[Topic, SubscriberId], Delivered] = {}
        self.unanswered_publishes = self.unanswered_bytes = 0
        self.room_wanted: dict[Callable[[], object], None] = {}
        self.lost = False
        self.heard = False
        """It spoke as a hub does."""
        self.foreign: RemoteProtocolError | None = None
        """The first thing that came was nothing that a hub says."""
        self._clock, self._on_lost = clock, on_lost
        self._answer_timeout_s, self._heartbeat_s = answer_timeout_s, heartbeat_s
        self._turns = turns or Turns(clock, 0.0)
        self._frames = FrameDecoder(frame_size_max + FRAME_ALLOWANCE, passed_over=DELIVERY_HEAD)
        self._decoder = ResponseDecoder()
        self._transport: Transport | None = None
        self._pending: dict[int, Asked] = {}
        self._publishes: dict[int, PublishAsked] = {}
        self._next_txn_id = 1
        self._out: list[bytes] = []
        self._heard = clock.seconds()
        self._waiting_since: float | None = None
        self._watching = clock.callLater(self._look_s, self._look)
        self.closed_here = False
        self._closing = False
        self._ending: Any = None
        self._beating = False
        self._paused = 0

    @property
    def _look_s(self) -> float:
        return max(0.05, min(self._answer_timeout_s, self._heartbeat_s) / 2)

    # --- the transport

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up."""
        self._transport = transport
        if self._closing:
            transport.abortConnection()

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone: what is unanswered is unknown."""
        if self._ending is not None and self._ending.active():
            self._ending.cancel()
        self._end()

    def _end(self) -> None:
        if self.lost:
            return
        self.lost = True
        if self._watching.active():
            self._watching.cancel()
        error = self._unknown()
        asked: list[Asked] = [*self._publishes.values(), *self._pending.values()]
        # Emptied, not replaced: a batch of answers may be in the middle of being dealt out.
        self._publishes.clear()
        self._pending.clear()
        self._out.clear()
        subscriptions, self.subscriptions = self.subscriptions, {}
        waiting, self.room_wanted = self.room_wanted, {}
        self._on_lost(self)
        for each in asked:
            each.on_unknown(self, error)
        for subscription in subscriptions.values():
            subscription.on_link_lost(self)
        for tell in waiting:
            tell()

    def _unknown(self) -> UncertainState:
        why = "the connection was closed by this client" if self._closing else "the connection ended"
        return UncertainState(f"hub {self.name}: {why} before the answer came; it may have been done or not")

    def close(self) -> None:
        """Send what is written, then end it. What is unanswered is unknown at once, whatever the hub still says."""
        if self.lost or self._closing:
            return
        self.flush()
        self.closed_here = self._closing = True
        if self._transport is None:
            return  # it is being connected, and is dropped when it is
        self._transport.loseConnection()
        # A hub that reads no more would keep it open for as long as TCP has patience.
        self._ending = self._clock.callLater(self._answer_timeout_s, self._transport.abortConnection)
        self._end()

    def abort(self) -> None:
        """End it at once."""
        self._closing = True
        if not self.lost and self._transport is not None:
            self._transport.abortConnection()

    def pause(self) -> None:
        """Read nothing for now; as often as this was called, `resume` must be."""
        self._paused += 1
        if self._paused == 1 and self._transport is not None and not self.lost:
            self._transport.pauseProducing()

    def resume(self) -> None:
        """Read again."""
        self._paused -= 1
        if self._paused == 0 and self._transport is not None and not self.lost:
            self._heard = self._clock.seconds()
            self._transport.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        self._heard = self._clock.seconds()
        try:
            batches = self._decoder.decode(self._frames.receive(data))
        except RemoteProtocolError as error:
            self._broken(error)
            return
        if batches:
            self.heard = True
        for batch in batches:
            if self.lost:
                return
            match batch:
                case Published():
                    self._on_published(batch)
                case Deliveries():
                    self._on_deliveries(batch)
                case Answer():
                    self._on_answer(batch)
                case TooLarge():
                    whose = self._subscription(batch.topic, batch.subscriber)
                    if whose is not None:
                        whose.on_too_large(self, batch)
                case Told():
                    found = self.subscriptions.get((batch.topic, batch.subscriber))
                    if found is not None:
                        found.on_event(self, batch)
        if self._frames.error is not None:
            self._broken(self._frames.error)

    def _broken(self, error: RemoteProtocolError) -> None:
        log.error("The connection to hub {address} is dropped: {error}", address=self.name, error=error)
        if not self.heard:
            self.foreign = error
        self.abort()

    # --- requests

    def ask(self, make: Callable[[int], bytes], asked: Asked) -> None:
        """Send a request; `make` gets its id."""
        if self.lost:
            asked.on_unknown(self, self._unknown())
            return
        txn_id = self._next_txn_id
        self._next_txn_id += 1
        frame = make(txn_id)  # before it is waited for: it may break
        self._note_waiting()
        self._pending[txn_id] = asked
        self.write(frame)

    def tell(self, make: Callable[[int], bytes]) -> None:
        """Send a request that is not answered."""
        txn_id = self._next_txn_id
        self._next_txn_id += 1
        self.write(make(txn_id))

    @property
    def room(self) -> bool:
        """Another publish may be sent. When there is room again, `room_wanted` is called."""
        return self.unanswered_publishes < PUBLISHES_MAX and self.unanswered_bytes < PUBLISH_BYTES_MAX

    def publish(
        self, encoder: PublishEncoder, messages: Sequence[bytes], asked: Sequence[PublishAsked], *, should_claim: bool
    ) -> None:
        """Send publishes to one topic. asked: one for each message."""
        first = self._next_txn_id
        self._next_txn_id += len(messages)
        self._note_waiting()
        self._publishes.update(zip(range(first, self._next_txn_id), asked, strict=True))
        self.unanswered_publishes += len(messages)
        self.unanswered_bytes += sum(map(len, messages))
        self._out += encoder.frames(first, messages, should_claim=should_claim)
        self._turns.write(self)

    def expire(self) -> None:
        """Give up publishes whose deadline has passed. Those sent first are looked at first, and wait longest."""
        now = self._clock.seconds()
        overdue: list[tuple[int, PublishAsked]] = []
        for txn_id, publish in self._publishes.items():
            if publish.deadline > now:
                break
            overdue.append((txn_id, publish))
        for txn_id, publish in overdue:
            del self._publishes[txn_id]
            self.unanswered_publishes -= 1
            self.unanswered_bytes -= publish.size
        for _, publish in overdue:
            publish.on_overdue()
        if overdue:
            self._answered()  # there is room again, and perhaps nothing is waited for any more

    def write(self, frame: bytes) -> None:
        """Send a frame, with others of this turn."""
        self._out.append(frame)
        self._turns.write(self)

    def flush(self) -> None:
        """Write now what is to be written."""
        out, self._out = self._out, []
        if out and not self.lost and not self._closing and self._transport is not None:
            self._transport.writeSequence(out)

    # --- answers

    def _on_published(self, batch: Published) -> None:
        publishes = self._publishes
        for txn_id, message_id in zip(batch.txn_ids, batch.ids, strict=True):
            publish = publishes.pop(txn_id, None)
            if publish is None:
                self._unasked(txn_id)
                continue
            self.unanswered_publishes -= 1
            self.unanswered_bytes -= publish.size
            publish.on_published(message_id)
        self._answered()

    def _on_answer(self, answer: Answer) -> None:
        publish = self._publishes.pop(answer.txn_id, None)
        asked: Asked | None = publish
        if publish is not None:
            self.unanswered_publishes -= 1
            self.unanswered_bytes -= publish.size
        else:
            asked = self._pending.pop(answer.txn_id, None)
        if asked is None:
            self._unasked(answer.txn_id)
        else:
            asked.on_answer(self, answer)
        self._answered()

    def _answered(self) -> None:
        self._waiting_since = self._heard if self._publishes or self._pending else None
        if self.room_wanted and self.room:
            waiting, self.room_wanted = self.room_wanted, {}
            for tell in waiting:
                tell()

    def _unasked(self, txn_id: int) -> None:
        # A CONSUME is answered only where it fails: its hub has the topic no more, and tells so elsewhere too.
        log.debug("Hub {address} answered {txn_id}, which waits for nothing", address=self.name, txn_id=txn_id)

    def _on_deliveries(self, batch: Deliveries) -> None:
        found = self._subscription(batch.topic, batch.subscriber)
        if found is not None:
            found.on_messages(self, batch.messages)

    def _subscription(self, topic: Topic, subscriber: SubscriberId) -> Delivered | None:
        found = self.subscriptions.get((topic, subscriber))
        if found is None and not topic and len(self.subscriptions) == 1:
            [found] = self.subscriptions.values()  # a hub before 4.2 names neither
        return found

    # --- its life

    def _note_waiting(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = self._clock.seconds()

    def _look(self) -> None:
        self._watching = self._clock.callLater(self._look_s, self._look)
        if self._transport is None or self._paused:
            return
        now = self._clock.seconds()
        if self._waiting_since is not None and now - max(self._waiting_since, self._heard) > self._answer_timeout_s:
            log.warn(
                "Hub {address} has not answered for {seconds} s: the connection is dropped",
                address=self.name,
                seconds=self._answer_timeout_s,
            )
            self.abort()
        elif (self.subscriptions or self._waiting_since is not None) and now - self._heard > self._heartbeat_s:
            self.beat()

    @property
    def was_left_unanswered(self) -> bool:
        """It was asked, and its peer ended it without ever a word."""
        return not self.heard and not self._closing and self._waiting_since is not None

    def beat(self) -> None:
        """Ask for a sign of life."""
        if not self._beating:
            self._beating = True
            self.ask(heartbeat_frame, _Heartbeat())

    def on_heartbeat(self) -> None:
        """The hub lives."""
        self._beating = False


class _Heartbeat:
    """Any answer is a sign of life."""

    def on_answer(self, link: HubLink, answer: Answer) -> None:
        """Heard."""
        link.on_heartbeat()

    def on_unknown(self, link: HubLink, error: PubSubError) -> None:
        """The connection is gone anyway."""
