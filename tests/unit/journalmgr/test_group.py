"""Members of a group whose journal has no election: the journal's lock says whose turn it is."""

from __future__ import annotations

from typing import Any

from journalmgr.contract import RecordBatch
from journalmgr.errors import JournalUnavailable
from journalmgr.group import Member, payloads
from journalmgr.replica import Role
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
