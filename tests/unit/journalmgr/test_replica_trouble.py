"""A replica whose journal, election or state is slow or in trouble: it lets go of the role, and says what it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.errors import MetadataUnavailable
from journalmgr.contract import RecordBatch
from journalmgr.edit_log import EditLog
from journalmgr.errors import JournalUnavailable
from journalmgr.model import Segment
from journalmgr.replica import Replica, ReplicaSettings, Role
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock


class Ballot:
    """A candidate. leave_error: what leaving fails with; the turn ends all the same."""

    def __init__(
        self,
        on_elected: Callable[[int], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> None:
        self.elect, self.lose, self.fail = on_elected, on_lost, on_failed
        self.stands = False
        self.leave_error: Exception | None = None
        self.leaving: Deferred[None] | None = None
        self.left = 0

    def join(self) -> None:
        self.stands = True

    def leave(self) -> Deferred[None]:
        self.left += 1
        self.stands = False
        self.lose()
        if self.leaving is not None:
            return self.leaving
        return succeed(None) if self.leave_error is None else fail(self.leave_error)


class Machine:
    """The state. loading, applying: what `load` and `apply` wait for."""

    def __init__(self) -> None:
        self.loading: Deferred[int] | None = None
        self.applying: Deferred[None] | None = None
        self.applied = 0

    def load(self) -> Deferred[int]:
        return succeed(0) if self.loading is None else self.loading

    def apply(self, batch: RecordBatch) -> Deferred[None] | None:
        self.applied += len(batch.records)
        return self.applying


class Server:
    """One replica."""

    def __init__(self, journal: ScriptedJournal, *, loading: Deferred[int] | None = None, **named: Any) -> None:
        self.journal, self.clock = journal, SimulatedClock()
        self.machine = Machine()
        self.machine.loading = loading
        self.roles: list[Role] = []
        self.failures: list[BaseException] = []
        self.ballots: list[Ballot] = []

        def stand(*calls: Any) -> Ballot:
            self.ballots.append(Ballot(*calls))
            return self.ballots[0]

        self.replica = Replica(
            journal,
            self.machine,
            stand,
            self.clock,
            settings=ReplicaSettings(),
            on_role=self.roles.append,
            on_failed=self.failures.append,
            **named,
        )
        self.replica.start()

    @property
    def ballot(self) -> Ballot:
        return self.ballots[0]

    def role(self) -> Role:
        return self.replica.role


def stopped(server: Server) -> list[object]:
    results: list[object] = []
    server.replica.stop().addBoth(results.append)
    return results


def test_a_replica_that_was_stopped_while_it_loaded_does_not_stand() -> None:
    """Or it would hold the role for as long as its session lives, and nobody would serve."""
    loading: Deferred[int] = Deferred()
    server = Server(ScriptedJournal(answers_at_once=True), loading=loading)
    done = stopped(server)
    loading.callback(0)
    assert done == [None]
    assert not server.ballot.stands
    assert server.roles == [Role.STOPPED]


SESSION_CLOSE_S = 2.0
"""Longest time to close the session while ZooKeeper is away."""


@pytest.mark.parametrize("role", [Role.LOADING, Role.STANDBY, Role.TAKING_OVER, Role.ACTIVE])
def test_a_replica_stops_in_time_while_nothing_answers(role: Role) -> None:
    journal = ScriptedJournal(answers_at_once=True)
    server = Server(journal, loading=Deferred() if role is Role.LOADING else None)
    server.ballot.leaving = Deferred()
    if role is Role.STANDBY:
        server.machine.applying = Deferred()
        active = EditLog(journal)
        active.recover()
        active.open(1)
    elif role is Role.TAKING_OVER:
        journal.recover_unfinalized = Deferred  # type: ignore[method-assign]
        server.ballot.elect(1)
    elif role is Role.ACTIVE:
        server.ballot.elect(1)
        journal.finalise_segment_later = Deferred()
        journal.writer.abort = Deferred  # type: ignore[method-assign]
    assert server.role() is role
    done = stopped(server)
    server.clock.run_until(lambda: bool(done), seconds=60)
    assert done == [None]
    assert server.clock.seconds() + SESSION_CLOSE_S <= 10.0
    assert server.role() is Role.STOPPED


def test_a_role_that_cannot_be_handed_on_does_not_end_the_replica() -> None:
    """Servers of the metadata that are away for longer than an operation waits come back."""
    server = Server(ScriptedJournal(answers_at_once=True))
    server.journal.recover_error = JournalUnavailable("no servers")
    server.ballot.leave_error = MetadataUnavailable("no servers")
    server.ballot.elect(1)
    assert server.failures == []
    assert server.role() is Role.LOADING
    server.journal.recover_error = server.ballot.leave_error = None
    server.clock.run_until(lambda: server.ballot.stands, seconds=5)
    server.ballot.elect(2)
    assert server.role() is Role.ACTIVE


def test_whose_turn_is_over_is_not_active_while_it_gives_up_its_segment() -> None:
    """Closing the ledger may take as long as the metadata is away, and others are active meanwhile."""
    server = Server(ScriptedJournal(answers_at_once=True))
    server.ballot.elect(1)
    aborting: Deferred[None] = Deferred()
    server.journal.writer.abort = lambda: aborting  # type: ignore[method-assign]
    server.ballot.lose()
    assert server.role() is Role.LOADING
    aborting.callback(None)
    assert server.role() is Role.STANDBY


def test_every_stop_waits_for_the_end() -> None:
    """Whoever stops it a second time would close the journal under the segment that is being ended."""
    server = Server(ScriptedJournal())
    server.ballot.elect(1)
    server.journal.writer.flushes[0].answer()
    assert server.role() is Role.ACTIVE
    first, second = stopped(server), stopped(server)
    assert (first, second) == ([], [])
    server.journal.writer.flushes[0].answer()
    assert (first, second) == ([None], [None])
    assert server.role() is Role.STOPPED
    assert stopped(server) == [None]


def test_a_turn_that_comes_while_the_state_is_busy_is_told_to_it() -> None:
    """The takeover waits for what is being applied; what that waits for can be given up."""
    told: list[str] = []
    journal = ScriptedJournal(answers_at_once=True)
    server = Server(journal, on_turn=lambda: told.append("turn"))
    applying: Deferred[None] = Deferred()
    server.machine.applying = applying
    active = EditLog(journal)
    active.recover()
    active.open(1)
    assert server.machine.applied == 1
    server.ballot.elect(1)
    assert told == ["turn"]
    assert server.role() is Role.STANDBY
    server.machine.applying = None
    applying.callback(None)
    assert server.role() is Role.ACTIVE


def test_a_replica_that_has_failed_follows_nothing_any_more() -> None:
    journal = ScriptedJournal(answers_at_once=True)
    server = Server(journal)
    server.ballot.fail(MetadataUnavailable("refused"))
    assert server.role() is Role.FAILED
    active = EditLog(journal)
    active.recover()
    active.open(1)
    assert server.machine.applied == 0
    assert stopped(server) == [None]


def test_a_replica_that_failed_while_it_loaded_does_not_stand() -> None:
    server = Server(ScriptedJournal(answers_at_once=True))
    server.ballot.elect(1)
    loading: Deferred[int] = Deferred()
    server.machine.loading = loading
    server.ballot.lose()
    server.ballot.fail(MetadataUnavailable("refused"))
    left = server.ballot.left
    assert server.role() is Role.FAILED
    loading.callback(0)
    assert not server.ballot.stands
    assert server.ballot.left == left


class OvertakenJournal(ScriptedJournal):
    """looks: how often the list is looked at until another server takes over, writes, and ends its segment in order."""

    looks = 0

    def segments(self) -> Deferred[list[Segment]]:
        self.looks -= 1
        if self.looks == 0:
            other = EditLog(self)
            other.recover()
            other.open(1)
            other.close()
        return super().segments()


def test_a_takeover_that_was_overtaken_loads_anew_instead_of_ending_the_replica() -> None:
    """It slept, and the journal has grown behind what it read: nothing is missing there."""
    journal = OvertakenJournal(answers_at_once=True)
    server = Server(journal)
    journal.looks = 2  # it reads the rest, and then looks where the journal ends
    server.ballot.elect(1)
    assert server.failures == []
    assert server.role() is Role.LOADING
    server.clock.run_until(lambda: server.ballot.stands, seconds=5)
    server.ballot.elect(2)
    assert server.role() is Role.ACTIVE
    assert server.replica.applied_txid == 3


def test_who_is_elected_again_and_again_and_cannot_take_over_tries_less_and_less_often() -> None:
    """Each attempt loads the state anew, and takes the turn from servers that may be able to."""
    server = Server(ScriptedJournal(answers_at_once=True))
    server.journal.recover_error = JournalUnavailable("no bookies")
    attempts: list[float] = []
    join = server.ballot.join

    def elected_at_once() -> None:
        join()
        attempts.append(server.clock.seconds())
        server.clock.callLater(0, server.ballot.elect, len(attempts))

    server.ballot.join = elected_at_once  # type: ignore[method-assign]
    server.ballot.elect(100)
    server.clock.run_until(lambda: False, seconds=60)
    pauses = [round(later - sooner, 3) for sooner, later in pairwise(attempts)]
    assert pauses == sorted(pauses)
    assert len(attempts) < 20
    server.journal.recover_error = None
    server.clock.run_until(lambda: server.role() is Role.ACTIVE, seconds=20)
    assert server.role() is Role.ACTIVE
    server.journal.recover_error = JournalUnavailable("no bookies")
    taken = len(attempts)
    server.ballot.lose()
    server.clock.run_until(lambda: len(attempts) > taken + 1, seconds=5)
    assert len(attempts) > taken + 1
