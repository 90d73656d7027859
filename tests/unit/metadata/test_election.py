"""Election over a simulated ZooKeeper: who holds the role, and what each candidate is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import AccessDenied, MetadataUnavailable
from bookkeeper.metadata.election import Election, Holder
from bookkeeper.metadata.memory.session import Fault, MemoryFaults, MemorySession, SharedZnodes
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeKind, TreeEvent
from tests.support.simulated_clock import SimulatedClock

PATH = "/journal/ha/lock"
SETTINGS = MetadataSettings(session_timeout_s=1.5, operation_timeout_s=4.0)


class Candidate:
    """One process that stands for the role."""

    def __init__(self, name: str, servers: SharedZnodes, clock: SimulatedClock, faults: MemoryFaults | None) -> None:
        self.session = MemorySession(servers, clock, random.Random(name), faults, SETTINGS)
        self.told: list[str] = []
        self.errors: list[BaseException] = []
        self.election = Election(
            self.session,
            clock,
            SETTINGS,
            PATH,
            name.encode(),
            on_elected=lambda turn: self.told.append("elected"),
            on_lost=lambda: self.told.append("lost"),
            on_failed=self.errors.append,
        )


class Town:
    """Candidates and their servers."""

    def __init__(self, seed: int = 1, faults: MemoryFaults | None = None) -> None:
        self.clock = SimulatedClock()
        self.servers = SharedZnodes(self.clock)
        self.faults = faults
        self.candidates: list[Candidate] = []

    def candidate(self, name: str) -> Candidate:
        candidate = Candidate(name, self.servers, self.clock, self.faults)
        self.candidates.append(candidate)
        candidate.election.join()
        self.run(0.2)
        return candidate

    def run(self, seconds: float) -> None:
        self.clock.run_until(lambda: False, seconds=seconds)

    def elected(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.election.elected]

    def now(self, deferred: Deferred[Any]) -> Any:
        outcome: list[Any] = []
        deferred.addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=60.0)
        if isinstance(outcome[0], Failure):
            raise outcome[0].value
        return outcome[0]


def test_the_first_candidate_is_elected_and_the_others_wait() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    assert town.elected() == [a]
    assert a.told == ["elected"]
    assert b.told == []
    holder = town.now(b.election.holder())
    assert isinstance(holder, Holder)
    assert holder.data == b"a"


def test_who_leaves_hands_the_role_on_at_once() -> None:
    town = Town()
    a, b, c = [town.candidate(name) for name in "abc"]
    town.now(a.election.leave())
    town.run(0.1)
    assert a.told == ["elected", "lost"]
    assert len(town.elected()) == 1
    assert not a.election.elected
    town.now(b.election.leave())
    town.now(c.election.leave())
    assert town.now(a.election.holder()) is None
    a.election.join()
    town.run(0.1)
    assert town.elected() == [a]


def test_turns_are_numbered_upwards() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    first = town.now(a.election.holder()).turn
    town.now(a.election.leave())
    town.run(0.1)
    assert town.now(b.election.holder()).turn > first


def test_a_dead_process_loses_the_role_with_its_session() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    a.session.crash()
    town.run(1.0)
    assert b.told == []
    town.run(1.0)
    assert b.told == ["elected"]


def test_a_session_that_ends_ends_the_turn_before_anybody_else_is_elected() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    order: list[str] = []
    a.election._on_lost = lambda: order.append("a lost")  # noqa: SLF001 - the order over two candidates
    b.election._on_elected = lambda turn: order.append("b elected")  # noqa: SLF001
    a.session.expire_session(reconnect_s=0.5)
    town.run(3.0)
    assert order == ["a lost", "b elected"]
    assert town.elected() == [b]


def test_a_connection_that_comes_back_in_time_keeps_the_turn() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    a.session.cut_connection(0.5)
    town.run(3.0)
    assert a.told == ["elected"]
    assert b.told == []


def test_a_node_that_an_operator_removes_ends_the_turn() -> None:
    town = Town()
    a = town.candidate("a")
    stat = town.now(a.session.stat(PATH))
    town.now(a.session.delete(PATH, stat.version))
    town.run(0.5)
    assert a.told == ["elected", "lost", "elected"]


def test_a_node_of_another_session_of_the_same_process_is_not_ours() -> None:
    town = Town()
    stranger = MemorySession(town.servers, town.clock, random.Random(9), None, SETTINGS)
    town.run(0.1)
    town.now(stranger.create("/journal", b""))
    town.now(stranger.create("/journal/ha", b""))
    town.now(stranger.create(PATH, b"a", NodeKind.EPHEMERAL))
    a = town.candidate("a")
    assert a.told == []
    town.now(stranger.close())
    town.run(0.2)
    assert a.told == ["elected"]


def test_refused_access_ends_the_candidacy_and_is_told() -> None:
    town = Town()
    a = Candidate("a", town.servers, town.clock, None)

    def refuse(*args: object, **named: object) -> Deferred[Any]:
        raise AccessDenied("no")

    a.session.stat = refuse  # type: ignore[method-assign]
    a.election.join()
    town.run(1.0)
    assert [type(error) for error in a.errors] == [AccessDenied]
    assert not a.election.elected


@pytest.mark.parametrize("seed", range(40))
def test_under_all_faults_someone_is_elected_in_the_end_and_turns_alternate(seed: int) -> None:
    """Calls fail, replies get lost, connections and sessions go; then peace: exactly one candidate holds the role."""
    rng = random.Random(seed)
    faults = MemoryFaults(
        lag_max_s=0.1, failed_before_probability=0.1, reply_lost_probability=0.1, session_lost_probability=0.02
    )
    town = Town(seed, faults)
    for name in "abc":
        town.candidate(name)
    for _ in range(15):
        town.run(rng.random())
        victim = rng.choice(town.candidates)
        if rng.random() < 0.5:
            victim.session.cut_connection(rng.random() * 3)
        else:
            victim.session.expire_session()
    faults.failed_before_probability = faults.reply_lost_probability = faults.session_lost_probability = 0.0
    town.run(20.0)
    assert len(town.elected()) == 1
    holder = town.now(town.elected()[0].election.holder())
    assert holder.data.decode() == "abc"[town.candidates.index(town.elected()[0])]
    for candidate in town.candidates:
        assert candidate.told == [("elected", "lost")[number % 2] for number in range(len(candidate.told))]
        assert candidate.election.elected == (candidate.told[-1:] == ["elected"])
        assert not candidate.errors


def test_leaving_again_removes_the_node_that_could_not_be_removed() -> None:
    """Or nobody would be elected for as long as the session lives."""
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    stat = a.session.stat

    def unreachable(*args: object, **named: object) -> Deferred[Any]:
        raise MetadataUnavailable("not now")

    a.session.stat = unreachable  # type: ignore[method-assign]
    with pytest.raises(MetadataUnavailable):
        town.now(a.election.leave())
    a.session.stat = stat  # type: ignore[method-assign]
    town.run(1.0)
    assert town.elected() == []
    town.now(a.election.leave())
    town.run(0.2)
    assert town.elected() == [b]


@pytest.mark.parametrize("event", ["elected", "lost"])
def test_who_leaves_while_it_is_told_of_its_turn_stands_no_more(event: str) -> None:
    town = Town()
    a = Candidate("a", town.servers, town.clock, None)
    left: list[object] = []
    if event == "elected":
        a.election._on_elected = lambda turn: a.election.leave().addBoth(left.append)  # noqa: SLF001 - from within
    else:
        a.election._on_lost = lambda: None if left else a.election.leave().addBoth(left.append)  # noqa: SLF001
    a.election.join()
    town.run(0.5)
    if event == "lost":
        found = town.now(a.session.stat(PATH))
        town.now(a.session.delete(PATH, found.version))
    town.run(5.0)
    assert left[:1] == [None]
    assert a.errors == []
    assert not a.election.elected
    assert town.now(a.session.stat(PATH)) is None
    a.election._on_elected = lambda turn: None  # noqa: SLF001
    a.election._on_lost = lambda: None  # noqa: SLF001
    a.election.join()
    town.run(0.5)
    assert a.election.elected


@pytest.mark.parametrize("seed", range(150))
def test_who_leaves_at_any_time_leaves_no_node_behind(seed: int) -> None:
    """Also while the node is being made, its answer is lost, and the server that is asked lags."""
    rng = random.Random(seed)
    faults = MemoryFaults(lag_max_s=0.3, reconnect_max_s=0.1)
    town = Town(seed, faults)
    a = Candidate("a", town.servers, town.clock, faults)
    faults.force(Fault.REPLY_LOST, "create", "lock")
    a.election.join()
    town.run(rng.random() * 0.4)
    if rng.random() < 0.5:
        a.session.cut_connection(rng.random() * 0.1)
    town.now(a.election.leave())
    town.run(1.0)
    other = MemorySession(town.servers, town.clock, random.Random(9), None, SETTINGS)
    town.run(0.1)
    assert a.session.session_id != 0
    assert town.now(other.stat(PATH)) is None


def test_a_candidate_that_fails_while_it_holds_the_role_gives_it_up_when_it_leaves() -> None:
    town = Town()
    a, b = town.candidate("a"), town.candidate("b")
    stat = a.session.stat

    def refuse(*args: object, **named: object) -> Deferred[Any]:
        a.session.stat = stat  # type: ignore[method-assign]
        raise AccessDenied("no")

    a.session.stat = refuse  # type: ignore[method-assign]
    a.election._on_event(TreeEvent.CHANGED)  # noqa: SLF001 - it looks again
    town.run(0.2)
    assert a.told == ["elected", "lost"]
    assert [type(error) for error in a.errors] == [AccessDenied]
    assert b.told == []
    town.now(a.election.leave())
    town.run(0.2)
    assert b.told == ["elected"]
