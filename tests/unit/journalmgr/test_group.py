"""Members of a group whose journal has no election: the journal's lock says whose turn it is."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from journalmgr import group
from journalmgr.contract import RecordBatch
from journalmgr.errors import JournalClosed, JournalUnavailable
from journalmgr.group import Member, payloads
from journalmgr.model import NamespaceInfo
from journalmgr.replica import ReplicaSettings, Role
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock


class Machine:
    """The state: the payloads."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.loads = 0

    def load(self) -> int:
        self.payloads.clear()
        self.loads += 1
        return 0

    def apply(self, batch: RecordBatch) -> None:
        self.payloads += payloads(batch)


class LockedJournal(ScriptedJournal):
    """A journal whose lock another process holds until `freed`."""

    def __init__(self) -> None:
        super().__init__(answers_at_once=True)
        self.recover_error = JournalUnavailable("in use by process 77@elsewhere")
        self.asked = 0

    def recover_unfinalized(self) -> Any:
        self.asked += 1
        return super().recover_unfinalized()


def test_a_second_server_on_a_locked_journal_stands_by_and_takes_over_once_the_lock_is_free() -> None:
    """It neither loads again and again nor says the same again and again."""
    clock, journal, machine = SimulatedClock(), LockedJournal(), Machine()
    member = Member(clock, journal, machine)
    member.start()
    clock.run_until(lambda: journal.asked == 20, seconds=60)
    assert member.role is Role.STANDBY
    assert machine.loads == 1
    journal.recover_error = None
    clock.run_until(lambda: member.role is Role.ACTIVE, seconds=5)
    done: list[int] = []
    member.append(b"x").addCallback(done.append)
    assert done == [2]
    assert machine.payloads == [b"x"]
    assert machine.loads == 1


def test_a_server_that_stands_by_leaves_at_once_and_asks_no_more() -> None:
    clock, journal = SimulatedClock(), LockedJournal()
    member = Member(clock, journal, Machine())
    member.start()
    clock.run_until(lambda: journal.asked == 2, seconds=60)
    left: list[None] = []
    member.leave().addCallback(left.append)
    assert left == [None]
    assert member.role is Role.STOPPED
    over: list[bool] = []
    clock.callLater(10, over.append, True)
    clock.run_until(lambda: bool(over), seconds=20)
    assert journal.asked == 2


def test_the_active_purges_and_no_other() -> None:
    clock, journal = SimulatedClock(), LockedJournal()
    member = Member(clock, journal, Machine())
    member.start()
    outcome: list[Any] = []
    member.purge_older_than(3).addErrback(lambda failure: outcome.append(failure.type))
    member.ready().addErrback(lambda failure: outcome.append(failure.type))
    assert outcome == [JournalClosed, JournalClosed]
    journal.recover_error = None
    clock.run_until(lambda: member.role is Role.ACTIVE, seconds=5)
    member.append(b"x")
    member.replica.log.roll()
    member.ready().addCallback(lambda _: outcome.append("ready"))
    member.purge_older_than(4).addCallback(outcome.append)
    assert outcome[2] == "ready"
    assert [(segment.first_txid, segment.last_txid) for segment in outcome[3]] == [(1, 3)]


class Opened:
    """A journal that `join_group` opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.namespace = NamespaceInfo(7, "CID-mine", "BP-mine")
        self.closed = 0
        self.journal = ScriptedJournal(answers_at_once=True)
        self.journal.close = self._close  # type: ignore[method-assign]
        monkeypatch.setattr(group, "open_own_journal", lambda *_: succeed((self.journal, self.namespace)))

    def _close(self) -> Deferred[None]:
        self.closed += 1
        return succeed(None)


def test_whoever_joins_is_told_whose_journal_it_is_before_the_machine_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, machine, told = Opened(monkeypatch), Machine(), []
    joined: list[Member] = []
    joining = group.join_group(
        SimulatedClock(), "any://", machine, on_opened=lambda namespace: told.append((namespace, machine.loads))
    )
    joining.addCallback(joined.append)
    assert told == [(opened.namespace, 0)]
    assert joined[0].namespace == opened.namespace
    assert machine.loads == 1


def test_what_it_raises_then_is_raised_and_the_journal_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, machine = Opened(monkeypatch), Machine()

    def refuse(namespace: NamespaceInfo) -> None:
        raise ValueError(f"{namespace.cluster_id} is another service's")

    failed: list[BaseException] = []
    joining = group.join_group(SimulatedClock(), "any://", machine, on_opened=refuse)
    joining.addErrback(lambda failure: failed.append(failure.value))
    assert str(failed[0]) == "CID-mine is another service's"
    assert (opened.closed, machine.loads) == (1, 0)


def test_a_server_leaves_though_nobody_answers_and_says_what_it_did_not_wait_for() -> None:
    """ZooKeeper is gone: neither the segment's end nor the role's can be written."""
    clock, journal = SimulatedClock(), ScriptedJournal(answers_at_once=True)
    member = Member(clock, journal, Machine(), settings=ReplicaSettings(leave_timeout_s=2.0))
    member.start()
    assert member.role is Role.ACTIVE
    journal.finalise_segment_later = Deferred()
    left: list[float] = []
    member.leave().addCallback(lambda _: left.append(clock.seconds()))
    assert left == []
    clock.run_until(lambda: bool(left), seconds=10)
    assert left == [2.0]
    assert member.role is Role.STOPPED
