"""The bounds of a server's connections, against a simple twin and one at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from twisted.internet.task import Clock

from bookkeeper.serving.admission import Admission, Closing, ConnectionBounds, Place, Why

BOUNDS = ConnectionBounds(
    connections_max=12,
    first_request_s=30.0,
    idle_s=100.0,
    evictable_s=10.0,
    received_bytes_max=8_000,
    untaken_bytes_max=5_000,
)


@dataclass(eq=False)
class Peer:
    """A connection, with the state that the twin tracks."""

    number: int
    busy: bool = False
    closed: Closing | None = None
    place: Place | None = None
    served: bool = False
    since_s: float = 0.0
    heard_s: float = 0.0
    free_s: float = 0.0
    was_busy: bool = False
    partial: int = 0
    partial_at: int = 0
    stranger: int = 0
    untaken: int = 0
    taken: int = 0

    @property
    def untaken_bytes(self) -> int:
        return (self.place.untaken_bytes if self.place else 0) - self.taken

    def give_up(self, closing: Closing) -> None:
        assert self.closed is None
        self.closed = closing


class Scene:
    def __init__(self, bounds: ConnectionBounds = BOUNDS) -> None:
        self.clock = Clock()
        self.admission = Admission(bounds, self.clock)
        self.peers: list[Peer] = []

    def connect(self) -> Peer:
        peer = Peer(len(self.peers))
        self.peers.append(peer)
        peer.place = self.admission.admit(peer)
        return peer

    def client(self) -> Peer:
        """Return a connection that sent a request."""
        peer = self.connect()
        assert peer.place is not None
        self.admission.served(peer.place)
        return peer


def place_of(peer: Peer) -> Place:
    assert peer.place is not None
    return peer.place


def why(peer: Peer) -> Why | None:
    return None if peer.closed is None else peer.closed.why


# --- places


def test_connections_without_a_request_take_half_of_the_places() -> None:
    scene = Scene()
    strangers = [scene.connect() for _ in range(8)]
    assert [why(each) for each in strangers] == [Why.STRANGERS] * 2 + [None] * 6
    assert len(scene.admission) == 6
    assert "maxConnections" in strangers[0].closed.text  # type: ignore[union-attr]


def test_a_full_server_closes_the_longest_silent_idle_connection() -> None:
    scene = Scene()
    clients = [scene.client() for _ in range(12)]
    assert scene.connect().place is None
    assert "maxConnections" in scene.admission.refusal
    scene.clock.advance(10.0)
    clients[0].busy = True
    place_of(clients[1]).heard = True
    assert scene.connect().place is not None
    assert [why(each) for each in clients[:4]] == [None, None, Why.ROOM, None]


def test_a_full_server_of_busy_connections_closes_one_without_a_request_or_the_new_one() -> None:
    scene = Scene()
    clients = [scene.client() for _ in range(11)]
    for each in clients:
        each.busy = True
    stranger = scene.connect()
    scene.clock.advance(20.0)
    newcomer = scene.connect()
    assert (why(stranger), newcomer.place is None) == (Why.ROOM, False)
    scene.admission.served(place_of(newcomer))
    newcomer.busy = True
    assert scene.connect().place is None
    assert scene.admission.closed_count == 2


# --- time


def test_a_first_request_has_a_deadline_that_bytes_do_not_move() -> None:
    scene = Scene()
    peer = scene.connect()
    for _ in range(29):
        place_of(peer).heard = True
        scene.clock.advance(1.0)
    assert why(peer) is None
    scene.clock.advance(1.1)
    assert why(peer) is Why.NO_REQUEST


def test_a_check_of_credentials_doubles_the_deadline_of_the_first_request() -> None:
    scene = Scene()
    checked, stuck = scene.connect(), scene.connect()
    checked.busy = stuck.busy = True
    scene.clock.pump([1.0] * 59)
    assert (why(checked), why(stuck)) == (None, None)
    scene.admission.served(place_of(checked))
    scene.clock.pump([1.0] * 2)
    assert (why(checked), why(stuck)) == (None, Why.NO_REQUEST)
    scene.admission.awaits(place_of(checked))  # another request
    scene.clock.pump([1.0] * 59)
    assert why(checked) is None


def test_a_request_that_has_begun_has_a_deadline_of_its_own() -> None:
    scene = Scene()
    peer = scene.client()
    scene.clock.advance(50.0)
    scene.admission.awaits(place_of(peer))
    scene.clock.advance(29.0)
    assert why(peer) is None
    scene.clock.advance(2.0)
    assert why(peer) is Why.NO_REQUEST


def test_a_silent_connection_goes_between_once_and_twice_its_time() -> None:
    scene = Scene()
    silent, talking, busy = scene.client(), scene.client(), scene.client()
    busy.busy = True
    place_of(silent).heard = True
    for _ in range(101):
        scene.clock.advance(1.0)
        place_of(talking).heard = True
    assert why(silent) is None  # it may have sent data just before the first check
    for _ in range(101):
        scene.clock.advance(1.0)
        place_of(talking).heard = True
    assert [why(each) for each in (silent, talking, busy)] == [Why.IDLE, None, None]


def test_a_busy_connection_does_not_delay_the_deadline_of_the_next() -> None:
    scene = Scene()
    checked, stranger = scene.connect(), scene.connect()
    checked.busy = True
    talking, silent = scene.client(), scene.client()
    scene.clock.advance(30.5)
    assert (why(checked), why(stranger)) == (None, Why.NO_REQUEST)
    place_of(talking).heard = True
    scene.clock.advance(70.0)
    assert (why(talking), why(silent)) == (None, Why.IDLE)


def test_no_timer_is_left_when_all_are_gone() -> None:
    scene = Scene()
    peers = [scene.connect(), scene.client()]
    for each in peers:
        scene.admission.forget(place_of(each))
        scene.admission.forget(place_of(each))
    assert (len(scene.admission), scene.clock.getDelayedCalls()) == (0, [])


@pytest.mark.parametrize("idle_s", [0.0])
def test_a_time_of_zero_is_no_bound(idle_s: float) -> None:
    scene = Scene(ConnectionBounds(idle_s=idle_s, first_request_s=1.0))
    peer = scene.client()
    scene.clock.advance(1e6)
    assert why(peer) is None


# --- bytes


def test_incomplete_requests_are_dropped_until_they_fit() -> None:
    """The new bytes may be many times those of the connections that waited longest."""
    scene = Scene()
    small = [scene.client() for _ in range(5)]
    for each in small:
        scene.admission.partial(place_of(each), 10)
    large = [scene.client() for _ in range(2)]
    scene.admission.partial(place_of(large[0]), 4_000)
    scene.admission.partial(place_of(small[0]), 11)  # its request continues
    scene.admission.partial(place_of(large[1]), 3_989)
    assert [why(each) for each in small] == [None, *[Why.PARTIAL_BYTES] * 4]
    assert (scene.admission.partial_bytes, why(large[0])) == (8_000, None)


def test_the_largest_untaken_answers_go_first() -> None:
    scene = Scene()
    modest, greedy = scene.client(), scene.client()
    scene.admission.untaken(place_of(modest), 900)
    for size in range(0, 4_100, 100):
        scene.admission.untaken(place_of(greedy), size)
    assert (why(modest), why(greedy)) == (None, None)
    scene.admission.untaken(place_of(greedy), 4_200)
    assert (why(modest), why(greedy)) == (None, Why.UNTAKEN_BYTES)
    assert scene.admission.untaken_bytes == 900


def test_a_connection_that_took_some_since_it_was_counted_counts_for_the_rest() -> None:
    scene = Scene()
    taking, greedy = scene.client(), scene.client()
    scene.admission.untaken(place_of(taking), 3_000)
    taking.taken = 2_500
    scene.admission.untaken(place_of(greedy), 2_100)
    assert (why(taking), why(greedy), scene.admission.untaken_bytes) == (None, None, 2_600)
    taking.taken = 0
    scene.admission.untaken(place_of(greedy), 4_600)
    assert (why(taking), why(greedy), scene.admission.untaken_bytes) == (None, Why.UNTAKEN_BYTES, 500)


def test_a_connection_is_given_up_once_however_long_it_takes_to_end() -> None:
    scene = Scene()
    peer, other = scene.client(), scene.client()
    scene.admission.untaken(place_of(peer), 6_000)
    for size in (7_000, 8_000):
        scene.admission.untaken(place_of(peer), size)
        scene.admission.partial(place_of(peer), 2 * size)
        scene.admission.hold_as_stranger(place_of(peer), size)
    assert (why(peer), why(other)) == (Why.UNTAKEN_BYTES, None)
    assert (scene.admission.closed_count, len(scene.admission)) == (1, 2)


def test_connections_without_credentials_have_a_share_of_their_own() -> None:
    scene = Scene()
    modest, greedy = scene.connect(), scene.connect()
    scene.admission.hold_as_stranger(place_of(modest), 100)
    scene.admission.hold_as_stranger(place_of(greedy), 900)
    assert (why(modest), why(greedy)) == (None, None)
    scene.admission.hold_as_stranger(place_of(modest), 101)
    assert (why(modest), why(greedy)) == (None, Why.STRANGER_BYTES)
    assert scene.admission.stranger_bytes == 101


# --- the twin


class Twin:
    """The same rules in the simplest form: each check examines all connections."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.events = 0

    @property
    def open(self) -> list[Peer]:
        return [each for each in self.scene.peers if each.place is not None and each.closed is None]

    def check(self) -> None:
        bounds, admission, now_s = BOUNDS, self.scene.admission, self.scene.clock.seconds()
        peers = self.open
        assert len(admission) == len(peers) <= bounds.connections_max
        awaited = [each for each in peers if not each.served]
        assert admission.awaited_count == len(awaited)
        assert all(each.busy or now_s - max(each.since_s, each.free_s) < bounds.first_request_s for each in awaited)
        assert all(each.busy or now_s - each.heard_s < 2 * bounds.idle_s for each in peers if each.served)
        assert admission.partial_bytes == sum(each.partial for each in peers) <= bounds.received_bytes_max
        assert admission.untaken_bytes == sum(each.untaken for each in peers) <= bounds.untaken_bytes_max
        assert admission.stranger_bytes == sum(each.stranger for each in peers) <= bounds.stranger_bytes_max

    def check_choice(self, before: list[Peer], gone: list[Peer]) -> None:
        """Check that each closed connection was the right one among the open connections."""
        bounds, now_s = BOUNDS, self.scene.clock.seconds()
        for peer in gone:
            others = [each for each in before if each is not peer and each not in gone]
            reason = why(peer)
            if reason is Why.STRANGERS:
                assert not peer.served
                same = [each for each in others if not each.served and not each.was_busy]
                assert peer.was_busy or all(peer.since_s <= each.since_s for each in same)
            elif reason is Why.ROOM:
                assert not peer.served or (not peer.busy and now_s - peer.heard_s >= bounds.evictable_s)
            elif reason is Why.NO_REQUEST:
                assert not peer.served
                assert now_s - peer.since_s >= bounds.first_request_s
            elif reason is Why.IDLE:
                assert peer.served
                assert not peer.busy
                assert now_s - peer.heard_s >= bounds.idle_s
            elif reason is Why.PARTIAL_BYTES:
                assert peer.partial
                assert all(peer.partial_at < each.partial_at for each in others if each.partial)
            elif reason is Why.UNTAKEN_BYTES:
                assert 2 * peer.untaken > max((each.untaken for each in others), default=0)
            else:
                assert reason is Why.STRANGER_BYTES
                assert 2 * peer.stranger > max((each.stranger for each in others), default=0)


EVENTS = {
    "connect": 60,
    "serve": 60,
    "await": 3,
    "hear": 30,
    "busy": 20,
    "partial": 40,
    "untaken": 40,
    "stranger": 30,
    "advance": 8,
    "forget": 6,
}


def test_any_events_keep_all_bounds_and_close_the_right_connection() -> None:
    seen: set[Why] = set()
    for seed in range(20):
        seen |= reasons_of_random_events(seed)
    assert seen == set(Why)


def reasons_of_random_events(seed: int) -> set[Why]:
    random_ = random.Random(seed)
    scene = Scene()
    twin, admission = Twin(scene), scene.admission
    seen: set[Why] = set()
    for number in range(1500):
        before = twin.open
        now_s = scene.clock.seconds()
        [event] = random_.choices(list(EVENTS), list(EVENTS.values()))
        peer = random_.choice(before) if before else None
        if event == "connect" or peer is None:
            new = scene.connect()
            new.since_s = now_s
        elif event == "advance":
            scene.clock.pump([0.5] * random_.choice((1, 4, 50)))
        elif event == "forget":
            admission.forget(place_of(peer))
            peer.place = None
        elif event == "serve":
            if not peer.served:
                peer.served, peer.heard_s = True, now_s
            admission.served(place_of(peer))
        elif event == "await":
            if peer.served:
                peer.served, peer.since_s = False, now_s
            admission.awaits(place_of(peer))
        elif event == "hear":
            place_of(peer).heard = True
            peer.heard_s = now_s
        elif event == "busy":
            peer.busy = not peer.busy
            peer.was_busy = True
            if not peer.busy:
                peer.heard_s = peer.free_s = now_s
            place_of(peer).heard = True
        elif event == "partial":
            peer.partial, peer.partial_at = random_.choice((0, 5, 700, 3_000)), number
            admission.partial(place_of(peer), peer.partial)
        elif event == "untaken":
            peer.untaken = random_.choice((0, 50, 800, 2_000))
            admission.untaken(place_of(peer), peer.untaken)
        else:
            peer.stranger = random_.choice((0, 50, 200, 700))
            admission.hold_as_stranger(place_of(peer), peer.stranger)
        gone = [each for each in scene.peers if each.closed is not None and each.place is not None]
        twin.check_choice([*before, *(each for each in scene.peers if each in gone)], gone)
        for each in gone:
            assert each.closed is not None
            seen.add(each.closed.why)
            admission.forget(place_of(each))
            each.place = None
        twin.check()
    for each in twin.open:
        admission.forget(place_of(each))
    assert (admission.partial_bytes, admission.untaken_bytes, admission.stranger_bytes) == (0, 0, 0)
    assert scene.clock.getDelayedCalls() == []
    return seen
