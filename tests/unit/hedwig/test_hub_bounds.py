"""Bounds of a hub's connections, and its log lines about peers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, globalLogPublisher

from bookkeeper.serving.admission import Admission, ConnectionBounds
from bookkeeper.serving.peers import PeerLog
from hedwig.errors import ServiceDown
from hedwig.hub import endpoint
from hedwig.hub.endpoint import BUFFER_SIZE, FRAME_COST, REQUEST_COST, HubConnection
from hedwig.hub.turns import SLICE_S, DeliveryTurns
from hedwig.model import LocalId, MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import framed
from hedwig.wire.requests import Malformed, Subscribe, consume_frame, decode_requests, heartbeat_frame, subscribe_frame

MIB = 1024 * 1024


class Peer:
    """The transport of one connection with a peer that does not read."""

    def __init__(
        self, hub: HubOfNothing, number: int, turns: DeliveryTurns | None = None, *, stuck: bool = False
    ) -> None:
        self.number = number
        self.stuck = stuck  # something was written that the peer never reads
        self.is_open = True
        self.reading = True
        self.unsent_bytes = 0
        self.was_closed = False
        self.connection = HubConnection(
            hub,  # type: ignore[arg-type]
            admission=hub.admission,
            peers=hub.peers,
            turns=turns,
            on_closed=lambda _: setattr(self, "was_closed", True),
        )
        self.connection.makeConnection(self)  # type: ignore[arg-type]

    def getPeer(self) -> str:
        return f"10.0.0.7:{self.number}"

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert producer is self.connection

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.unsent_bytes += sum(map(len, parts))
        if self.unsent_bytes > BUFFER_SIZE:
            self.connection.pauseProducing()  # for every write, as Twisted's transport

    @property
    def held(self) -> int:
        """Bytes that the hub holds for this peer."""
        return self.unsent_bytes if self.is_open else 0

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def loseConnection(self) -> None:
        if not self.stuck:
            self.abortConnection()

    def abortConnection(self) -> None:
        if self.is_open:
            self.is_open = False
            self.connection.connectionLost(None)

    def send(self, data: bytes) -> None:
        if self.is_open and self.reading:
            self.connection.dataReceived(data)


class HubOfNothing:
    """A hub that refuses requests for topics outside `owned`, with a long text."""

    def __init__(self, **bounds: Any) -> None:
        self.clock = Clock()
        self.owned: dict[Topic, Any] = {}
        self.admission = Admission(ConnectionBounds(**bounds), self.clock)
        self.peers = PeerLog(endpoint.log, self.clock)
        self._count = 0

    def service(self, topic: Topic, *, should_claim: bool) -> Any:
        if topic in self.owned:
            return self.owned[topic]
        raise ServiceDown("n" * 1900)

    def connect(self, turns: DeliveryTurns | None = None, *, stuck: bool = False) -> Peer:
        self._count += 1
        return Peer(self, self._count, turns, stuck=stuck)

    def turn(self) -> bool:
        """Run one reactor turn: the calls that are due, but not calls that they schedule. False if none is due."""
        due = [each for each in self.clock.getDelayedCalls() if each.getTime() <= self.clock.seconds()]
        for call in due:
            work, args, named = call.func, call.args, call.kw
            call.cancel()
            work(*args, **named)
        return bool(due)


TOPIC = Topic(b"topic")
AT_ONCE = round(SLICE_S / 0.001) + 1
"""Steps of 1 ms in one turn, at most."""


class Attached:
    """A subscription of a connection."""

    def __init__(self) -> None:
        self.ended = False

    def start(self) -> None:
        """Deliver nothing."""


class OneTopic:
    """A topic. Closing a subscription takes 1 ms, and so does an individual acknowledgement."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.attachments: dict[SubscriberId, Attached] = {}
        self.faulty: set[SubscriberId] = set()
        self.one_by_one = True
        self.consumed: list[int] = []

    def subscribe(self, request: Subscribe, channel: Any, on_attached: Callable[..., object]) -> Deferred[None]:
        attachment = self.attachments[request.subscriber] = Attached()
        on_attached(request.preferences, attachment)
        return succeed(None)

    def close_subscription(self, subscriber: SubscriberId, channel: Any) -> None:
        self.clock.rightNow += 0.001
        del self.attachments[subscriber]
        if subscriber in self.faulty:
            raise ValueError("a fault")

    def consume(self, subscriber: SubscriberId, up_to: MessageId, channel: Any) -> bool:
        self.clock.rightNow += 0.001 if self.one_by_one else 0
        self.consumed.append(up_to.local)
        return self.one_by_one


def subscribe(count: int) -> bytes:
    return b"".join(
        subscribe_frame(
            number, Topic(b"t" * 200), SubscriberId(b"me"), SubscribeMode.ATTACH, Preferences(), should_claim=False
        )
        for number in range(count)
    )


def consumes(count: int) -> bytes:
    return b"".join(consume_frame(each, TOPIC, SubscriberId(b"me"), MessageId(LocalId(each))) for each in range(count))


def test_incomplete_requests_of_all_connections_are_bounded() -> None:
    hub = HubOfNothing(received_bytes_max=4 * MIB)
    partial = struct.pack(">I", 1_250_000) + b"x" * 1_240_000
    peers = [hub.connect() for _ in range(20)]
    for peer in peers:
        peer.send(subscribe(1))
        peer.send(partial)
        assert hub.admission.partial_bytes <= 4 * MIB
    assert [peer.is_open for peer in peers] == [False] * 17 + [True] * 3
    for peer in peers:
        peer.abortConnection()
    assert (len(hub.admission), hub.admission.partial_bytes) == (0, 0)


def test_whole_requests_that_wait_for_their_turn_are_bounded() -> None:
    """Frames of two bytes wait in a list that takes ten times their bytes; a hub once did not count them."""
    hub = HubOfNothing(received_bytes_max=4 * MIB)
    turns = DeliveryTurns(hub.clock)
    turns.later(lambda: None)  # others have this turn
    frame = heartbeat_frame(1)
    small = (frame * 2000, FRAME_COST), (frame * 1024, REQUEST_COST)
    for data, cost in small:
        peer = hub.connect(turns)
        peer.send(data)
        assert hub.admission.partial_bytes >= (data.count(frame) - 64) * (len(frame) - 4 + cost)
        peer.abortConnection()
        assert hub.admission.partial_bytes == 0
    peers = [hub.connect(turns) for _ in range(20)]
    for peer in peers:
        peer.send(frame * 4_000)
        assert hub.admission.partial_bytes <= 4 * MIB
    held = [peer for peer in peers if peer.is_open]
    assert 0 < len(held) < 10
    assert held[-1] is peers[-1]
    while hub.admission.partial_bytes:
        before = hub.admission.partial_bytes
        for _ in range(50):
            hub.clock.advance(0)
        assert hub.admission.partial_bytes < before, "what was served does not count"
    assert all(peer.is_open and peer.reading for peer in held)


def test_a_connection_closed_in_order_ends_even_if_its_peer_reads_nothing() -> None:
    hub = HubOfNothing(first_request_s=60.0, stall_timeout_s=60.0)
    silent, quick = hub.connect(stuck=True), hub.connect(stuck=True)
    hub.clock.advance(60.0)
    assert (silent.is_open, len(hub.admission)) == (True, 2)
    quick.abortConnection()
    hub.clock.advance(60.0)
    assert (silent.is_open, len(hub.admission)) == (False, 0)
    assert not hub.clock.getDelayedCalls()


def test_answers_that_peers_do_not_take_are_bounded_over_all_connections() -> None:
    """Refused requests cost the peer nothing, and each has an answer."""
    hub = HubOfNothing(untaken_bytes_max=4 * MIB)
    modest = hub.connect()
    modest.send(subscribe(10))
    peers = [hub.connect() for _ in range(24)]
    requests = subscribe(200)
    for _ in range(4):
        for peer in peers:
            peer.send(requests)
            hub.clock.advance(0)
            assert sum(each.held for each in peers) <= 4 * MIB + 24 * BUFFER_SIZE
    assert modest.is_open
    assert hub.admission.closed_count > 0


def test_peers_count_for_what_they_have_not_taken() -> None:
    """Each peer read most of its answers and then stopped: its transport stays blocked until no answer is left."""
    hub = HubOfNothing(untaken_bytes_max=256 * MIB)
    peers = [hub.connect() for _ in range(2_000)]
    answer = bytes(300_000)
    for peer in peers:
        peer.connection.write([answer])
        assert not peer.connection.writable
        peer.unsent_bytes = 20_000
    assert all(peer.is_open for peer in peers)
    assert hub.admission.untaken_bytes <= 256 * MIB
    assert hub.admission.closed_count == 0


def test_untaken_answers_stay_bounded_and_the_largest_connection_closes() -> None:
    hub = HubOfNothing(untaken_bytes_max=16 * MIB)
    peers = [hub.connect() for _ in range(20)]
    for peer in peers[:10]:
        peer.connection.write([bytes(300_000)])
    largest = hub.connect()
    largest.connection.write([bytes(9 * MIB)])
    for peer in peers[10:]:
        peer.connection.write([bytes(MIB)])
        assert sum(each.held for each in (*peers, largest)) <= 16 * MIB
    assert [peer.is_open for peer in peers] == [True] * 20
    assert not largest.is_open


def test_a_connection_that_takes_no_answers_is_not_read() -> None:
    hub = HubOfNothing(untaken_bytes_max=1024 * MIB)
    peer = hub.connect()
    requests = subscribe(200)
    for _ in range(100):
        peer.send(requests)
        hub.clock.advance(0)
    assert not peer.reading
    assert peer.held <= endpoint.UNTAKEN_BYTES_MAX + BUFFER_SIZE + 200 * 2100


def test_connections_without_a_request_make_room_for_new_ones() -> None:
    hub = HubOfNothing(connections_max=8)
    strangers = [hub.connect() for _ in range(4)]
    strangers[0].send(struct.pack(">I", 3) + b"\xff\xff")  # an incomplete request
    client = hub.connect()
    client.send(subscribe(1))
    more = [hub.connect() for _ in range(30)]
    assert client.is_open
    assert sum(peer.is_open for peer in (*strangers, *more)) == 4
    assert more[-1].is_open


def test_a_connection_without_a_request_ends_after_its_time() -> None:
    hub = HubOfNothing(first_request_s=60.0)
    stranger, client = hub.connect(), hub.connect()
    client.send(subscribe(1))
    hub.clock.advance(61.0)
    assert (stranger.is_open, client.is_open) == (False, True)


def test_a_valid_request_behind_a_malformed_one_counts() -> None:
    hub = HubOfNothing(first_request_s=60.0)
    stranger, client = hub.connect(), hub.connect()
    malformed = framed(pb.PubSubRequest(protocolVersion=1, type=pb.PUBLISH, txnId=1, topic=b"t").SerializeToString())
    assert [type(each) for each in decode_requests([malformed[4:]])] == [Malformed]
    stranger.send(malformed * 2)
    client.send(malformed + subscribe(1))
    hub.clock.advance(61.0)
    assert (stranger.is_open, client.is_open) == (False, True)


@pytest.mark.parametrize("stop_after", [10_000, 100])
def test_subscriptions_of_a_connection_that_reads_again_resume_in_turns(stop_after: int) -> None:
    """stop_after: the connection is full again after this number of resumed subscriptions."""
    hub = HubOfNothing()
    peer = hub.connect(DeliveryTurns(hub.clock))  # type: ignore[arg-type] # Clock has no types
    resumed: list[int] = []

    class Waiting:
        def __init__(self, number: int) -> None:
            self.number = number

        def resume(self) -> None:
            resumed.append(self.number)
            hub.clock.rightNow += 0.001
            if len(resumed) == stop_after:
                peer.connection.pauseProducing()

    count = 1000
    for number in range(count):
        peer.connection.when_writable(Waiting(number))  # type: ignore[arg-type]
    peer.connection.resumeProducing()
    before, turns = len(resumed), 0
    while hub.turn():
        assert len(resumed) - before <= AT_ONCE
        before = len(resumed)
        turns += 1
    assert resumed == list(range(min(count, stop_after)))
    assert turns > 3
    peer.connection.resumeProducing()
    while hub.turn():
        pass
    assert resumed == list(range(count))


def test_subscriptions_of_a_lost_connection_close_in_turns() -> None:
    hub = HubOfNothing()
    peer = hub.connect(DeliveryTurns(hub.clock))  # type: ignore[arg-type] # Clock has no types
    service = OneTopic(hub.clock)
    hub.owned[TOPIC] = service
    count = 1000
    for number in range(count):
        peer.send(subscribe_frame(number, TOPIC, SubscriberId(b"%d" % number), SubscribeMode.ATTACH, Preferences()))
    assert len(service.attachments) == count
    peer.abortConnection()
    assert all(attachment.ended for attachment in service.attachments.values())  # other connections may attach at once
    before = len(service.attachments)
    assert count - before <= AT_ONCE
    while hub.turn():
        assert before - len(service.attachments) <= AT_ONCE
        before = len(service.attachments)
    assert not service.attachments


def test_a_subscription_that_fails_to_close_leaves_no_other_attached() -> None:
    hub = HubOfNothing()
    peer = hub.connect(DeliveryTurns(hub.clock))  # type: ignore[arg-type] # Clock has no types
    service = hub.owned[TOPIC] = OneTopic(hub.clock)
    service.faulty = {SubscriberId(b"%d" % number) for number in range(0, 20, 2)}
    for number in range(20):
        peer.send(subscribe_frame(number, TOPIC, SubscriberId(b"%d" % number), SubscribeMode.ATTACH, Preferences()))
    with capturedLogs() as events:
        peer.abortConnection()
        assert peer.was_closed, "the hub knows that the connection is gone"
        while hub.turn():
            pass
    assert not service.attachments
    assert len([each for each in events if "Closing the subscription" in each["log_format"]]) == 10


@pytest.mark.parametrize("count", [64, 500])
def test_acknowledgements_of_one_read_are_served_in_turns(count: int) -> None:
    """Each may concern 10,000 messages; a hub once served 64 of them without a check of the clock."""
    hub = HubOfNothing()
    peer = hub.connect(DeliveryTurns(hub.clock))  # type: ignore[arg-type] # Clock has no types
    service = hub.owned[TOPIC] = OneTopic(hub.clock)
    peer.send(
        b"".join(consume_frame(each, TOPIC, SubscriberId(b"me"), MessageId(LocalId(each))) for each in range(count))
    )
    assert 0 < len(service.consumed) <= AT_ONCE
    assert not peer.reading, "until these are served"
    before = len(service.consumed)
    while hub.turn():
        assert len(service.consumed) - before <= AT_ONCE
        before = len(service.consumed)
    assert service.consumed == list(range(count))
    assert peer.reading


def test_consumed_messages_of_one_read_are_noted_without_a_look_at_the_clock() -> None:
    hub = HubOfNothing()
    turns = DeliveryTurns(hub.clock)  # type: ignore[arg-type] # Clock has no types
    turns.later(lambda: None)  # a check of the clock would end the turn
    peer = hub.connect(turns)
    service = hub.owned[TOPIC] = OneTopic(hub.clock)
    service.one_by_one = False
    peer.send(consumes(64))
    assert service.consumed == list(range(64))


@pytest.fixture
def lines() -> Any:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def test_bad_frames_are_logged_with_the_peer_and_not_each_of_them(lines: list[LogEvent]) -> None:
    hub = HubOfNothing()
    for _ in range(1000):
        hub.connect().send(struct.pack(">I", 2**31) + b"x")
    hub.clock.advance(11.0)
    texts = [event["log_format"].format(**event) for event in lines if event["log_namespace"] == "hedwig.hub.endpoint"]
    assert len(texts) == 2
    assert "10.0.0.7:1" in texts[0]
    assert "999 x protocol error (10.0.0.7)" in texts[1]
