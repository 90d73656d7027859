"""Reads of one entry: the short way, and every way off it."""

from typing import Any

import pytest

from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.read.speculation import EARLY_S, LateReads
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ClientClosed, EntryCorrupt, EntryMissing, EntryUnreadable
from bookkeeper.model import Status
from bookkeeper.wire.messages import ReadBatch
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster
from tests.support.simulated_clock import SimulatedClock

ENTRY = 3
DELAY_S = 2.0


class Scene:
    """A closed ledger with three copies of each entry, and a reader of it."""

    def __init__(self, **values: Any) -> None:
        self.cluster = FakeCluster()
        writer = self.cluster.client(ClientSettings(explicit_lac_interval_s=0.0))
        ledger = self.cluster.wait(writer.create(ensemble=3, write_quorum=3, ack_quorum=2))
        self.cluster.wait(ledger.append_many([b"entry %d" % number for number in range(6)]))
        self.cluster.run(1.0)
        self.ensemble = self.cluster.wait(ledger.close()).last_fragment.ensemble
        self.ledger_id = ledger.id
        settings = {"explicit_lac_interval_s": 0.0, "speculative_read_delay_s": DELAY_S, **values}
        self.client = self.cluster.client(ClientSettings(**settings))
        self.handle: ReadHandle = self.cluster.wait(self.client.open(ledger.id))
        for bookie in self.cluster.bookies:
            bookie.requests.clear()

    def replica(self, number: int) -> FakeBookie:
        """The replica of ENTRY that is asked as number 0, 1, 2."""
        return self.cluster.by_id(self.ensemble[(ENTRY + number) % 3])

    def rule(self, verdict: object, *numbers: int) -> None:
        for number in numbers:
            self.replica(number).rule = lambda request: verdict if isinstance(request, ReadBatch) else None

    def damage(self, *numbers: int) -> None:
        for number in numbers:
            held = self.replica(number).entries[self.ledger_id]
            held[ENTRY] = held[ENTRY][:-1] + b"?"

    def read(self) -> bytes:
        (entry,) = self.cluster.wait(self.handle.read(ENTRY, ENTRY))
        assert entry.entry_id == ENTRY
        payload: bytes = entry.payload
        return payload

    @property
    def asked(self) -> list[int]:
        """How often each replica was asked for the entry."""
        return [
            sum(isinstance(request, ReadBatch) and ENTRY in request.entry_ids for request in self.replica(n).requests)
            for n in range(3)
        ]


def test_one_replica_is_asked_for_one_entry() -> None:
    scene = Scene()
    assert scene.read() == b"entry 3"
    assert scene.asked == [1, 0, 0]


def test_a_damaged_copy_is_passed_over_and_not_asked_for_again() -> None:
    """I-44."""
    scene = Scene()
    scene.damage(0)
    assert scene.read() == b"entry 3"
    assert scene.asked == [1, 1, 0]


@pytest.mark.parametrize("status", [Status.NO_ENTRY, Status.NO_LEDGER, Status.IO_ERROR, Status.TOO_MANY_REQUESTS])
def test_a_verdict_of_one_replica_sends_the_read_to_the_next(status: Status) -> None:
    scene = Scene()
    scene.rule(status, 0)
    assert scene.read() == b"entry 3"
    assert scene.asked == [1, 1, 0]


def test_a_slow_replica_gets_company_after_the_delay_and_may_still_answer() -> None:
    scene = Scene()
    scene.rule(HOLD, 0, 1)
    scene.rule(Status.NO_ENTRY, 2)
    read = scene.handle.read(ENTRY, ENTRY)
    seen: list[Any] = []
    read.addBoth(seen.append)
    scene.cluster.run(DELAY_S * 0.9)
    assert scene.asked == [1, 0, 0]
    scene.cluster.run(DELAY_S * 0.2)
    assert scene.asked == [1, 1, 0]
    scene.replica(0).release()
    scene.cluster.run(0.1)
    assert [entry.payload for entry in seen[0]] == [b"entry 3"]


def test_a_bookie_that_is_gone_is_not_asked_twice() -> None:
    scene = Scene()
    scene.replica(0).crash()
    assert scene.read() == b"entry 3"
    assert scene.asked[1:] == [1, 0]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda scene: scene.damage(0, 1, 2), EntryCorrupt),
        (lambda scene: scene.rule(Status.NO_ENTRY, 0, 1, 2), EntryMissing),
        (lambda scene: scene.rule(Status.IO_ERROR, 0, 1, 2), EntryUnreadable),
        (lambda scene: scene.rule(SILENCE, 0, 1, 2), EntryUnreadable),
    ],
)
def test_an_entry_that_nobody_delivers_has_the_error_of_a_range(spoil: Any, error: type[Exception]) -> None:
    scene = Scene(read_timeout_s=5.0)
    spoil(scene)
    with pytest.raises(error, match=f"entry {ENTRY}"):
        scene.read()
    assert scene.asked == [1, 1, 1]


def test_two_reads_of_one_entry_are_both_answered() -> None:
    """The second waits for the first (I-29), and each has its own Deferred."""
    scene = Scene()
    reads = [scene.handle.read(ENTRY, ENTRY) for _ in range(2)]
    assert [scene.cluster.wait(read)[0].payload for read in reads] == [b"entry 3"] * 2


def test_a_cancelled_read_asks_nobody_else() -> None:
    scene = Scene()
    scene.rule(HOLD, 0)
    read = scene.handle.read(ENTRY, ENTRY)
    read.addErrback(lambda failure: None)
    scene.cluster.run(0.1)
    read.cancel()
    scene.cluster.run(3 * DELAY_S)
    assert scene.asked == [1, 0, 0]


def test_a_read_whose_client_closes_says_so() -> None:
    scene = Scene()
    scene.rule(HOLD, 0)
    read = scene.handle.read(ENTRY, ENTRY)
    scene.cluster.run(0.1)
    scene.cluster.wait(scene.client.close())
    with pytest.raises(ClientClosed):
        scene.cluster.wait(read)


def test_without_speculation_nobody_is_asked_for_being_slow() -> None:
    scene = Scene(speculative_read_delay_s=0.0, read_timeout_s=60.0)
    scene.rule(HOLD, 0)
    read = scene.handle.read(ENTRY, ENTRY)
    scene.cluster.run(30.0)
    assert scene.asked == [1, 0, 0]
    scene.replica(0).release()
    assert scene.cluster.wait(read)[0].payload == b"entry 3"


class _Read:
    def __init__(self, clock: SimulatedClock, late: list["_Read"]) -> None:
        self.over, self.began_s, self._clock, self._late = False, clock.seconds(), clock, late
        self.told_s = 0.0

    def on_late(self) -> None:
        self.told_s = self._clock.seconds()
        self._late.append(self)


def test_late_reads_are_told_when_their_own_delay_has_passed() -> None:
    clock, late = SimulatedClock(), list["_Read"]()
    watch = LateReads(clock, DELAY_S)
    reads = []
    for number in range(6):
        read = _Read(clock, late)
        reads.append(read)
        watch.watch(read)
        read.over = number in (1, 4)
        clock.run_until(lambda: False, seconds=0.3)
    clock.run_until(lambda: False, seconds=3 * DELAY_S)
    assert late == [reads[number] for number in (0, 2, 3, 5)]
    assert all(read.told_s == pytest.approx(read.began_s + DELAY_S, abs=EARLY_S) for read in late)
