"""A replica from loading to active and back, over a scripted journal and a candidate whose turns the test gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import MetadataUnavailable
from journalmgr.contract import RecordBatch
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    EditsCorrupt,
    GapInTransactions,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    WriterReplaced,
)
from journalmgr.model import OPAQUE, Segment, TxId
from journalmgr.replica import Replica, ReplicaSettings, Role
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock


class Ballot:
    """A candidate; `elect` and `lose` are the test's."""

    def __init__(
        self,
        on_elected: Callable[[int], object],
        on_lost: Callable[[], object],
        on_failed: Callable[[BaseException], object],
    ) -> None:
        self.elect, self.fail = on_elected, on_failed
        self._on_lost = on_lost
        self.stands = False
        self.joined = 0

    def join(self) -> None:
        self.joined += not self.stands
        self.stands = True

    def lose(self) -> None:
        self._on_lost()

    def leave(self) -> Deferred[None]:
        self.stands = False
        self._on_lost()
        return succeed(None)


class Sum:
    """The state: all payloads, in order."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.loads = 0
        self.hold: Deferred[None] | None = None

    def load(self) -> Deferred[int]:
        self.payloads.clear()
        self.loads += 1
        return succeed(0)

    def apply(self, batch: RecordBatch) -> Deferred[None] | None:
        self.payloads += [record.body for record in batch.records if record.opcode == OpCode.OPAQUE]
        return self.hold


class Server:
    """One replica and what it is made of."""

    def __init__(self, journal: ScriptedJournal, clock: SimulatedClock, **settings: Any) -> None:
        self.journal, self.clock = journal, clock
        self.machine = Sum()
        self.roles: list[Role] = []
        self.failures: list[BaseException] = []
        self.ballots: list[Ballot] = []

        def stand(*calls: Any) -> Ballot:
            self.ballots.append(Ballot(*calls))
            return self.ballots[-1]

        self.replica = Replica(
            journal,
            self.machine,
            stand,
            clock,
            settings=ReplicaSettings(**settings),
            on_role=self.roles.append,
            on_failed=self.failures.append,
        )
        self.replica.start()

    @property
    def ballot(self) -> Ballot:
        return self.ballots[0]

    def append(self, payload: bytes) -> list[Any]:
        results: list[Any] = []
        self.replica.log.append(payload).addCallbacks(results.append, lambda failure: results.append(failure.type))
        return results


def pair() -> tuple[Server, Server]:
    journal, clock = ScriptedJournal(answers_at_once=True), SimulatedClock()
    return Server(journal, clock), Server(journal, clock)


def test_a_server_loads_stands_and_is_active_once_elected() -> None:
    a, _ = pair()
    assert a.roles == [Role.STANDBY]
    assert a.ballot.stands
    a.ballot.elect(1)
    assert a.roles == [Role.STANDBY, Role.TAKING_OVER, Role.ACTIVE]
    assert a.append(b"one") == [2]


def test_only_the_active_may_log() -> None:
    a, _ = pair()
    with pytest.raises(JournalClosed, match="standby"):
        _ = a.replica.log


def test_a_standby_follows_and_takes_over_with_everything_that_was_acknowledged() -> None:
    """I-85."""
    a, b = pair()
    a.ballot.elect(1)
    for payload in (b"one", b"two"):
        a.append(payload)
    assert b.machine.payloads == [b"one", b"two"]
    b.ballot.elect(2)
    assert b.replica.role is Role.ACTIVE
    assert b.append(b"three") == [5]
    assert a.append(b"late") == [WriterReplaced]
    assert a.replica.role is Role.LOADING
    a.clock.run_until(lambda: a.replica.role is Role.STANDBY, seconds=5)
    assert a.machine.payloads == [b"one", b"two", b"three"]
    assert b.journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]


def test_what_was_not_durable_is_gone_from_a_server_that_lost_its_turn() -> None:
    a, b = pair()
    a.ballot.elect(1)
    a.journal.answers_at_once = False
    lost = a.append(b"never durable")
    a.journal.answers_at_once = True
    b.ballot.elect(2)
    assert lost == [WriterReplaced]
    a.clock.run_until(lambda: a.replica.role is Role.STANDBY, seconds=5)
    assert a.machine.loads == 2
    assert a.machine.payloads == b.machine.payloads == []


def test_a_turn_that_ends_by_the_election_ends_the_log_at_once() -> None:
    a, _ = pair()
    a.ballot.elect(1)
    edit_log = a.replica.log
    a.ballot.lose()
    assert a.replica.role is Role.STANDBY
    with pytest.raises(JournalClosed):
        edit_log.log(OpCode.OPAQUE, b"")
    a.ballot.elect(3)
    assert a.replica.role is Role.ACTIVE


def test_a_turn_that_ends_while_taking_over_leaves_no_writer() -> None:
    a, _ = pair()
    a.journal.answers_at_once = False
    a.ballot.elect(1)
    assert a.replica.role is Role.TAKING_OVER
    a.ballot.lose()
    a.journal.writer.flushes[0].answer()
    assert a.replica.role is Role.STANDBY
    assert a.journal.writer.closed


def test_trouble_with_the_journal_is_tried_again_and_the_role_handed_on_meanwhile() -> None:
    a, _ = pair()
    a.journal.recover_error = JournalUnavailable("no bookies")
    a.ballot.elect(1)
    assert a.replica.role is not Role.ACTIVE
    assert not a.ballot.stands
    assert str(a.replica.error) == "no bookies"
    a.journal.recover_error = None
    a.clock.run_until(lambda: a.ballot.stands, seconds=5)
    a.ballot.elect(2)
    assert a.replica.role is Role.ACTIVE
    assert a.replica.error is None


@pytest.mark.parametrize(
    "error", [GapInTransactions("gap", expected=4, found=9), EditsCorrupt("bad", source="x", offset=3)]
)
def test_what_trying_again_does_not_mend_ends_the_replica_and_is_told(error: Exception) -> None:
    a, b = pair()
    a.ballot.elect(1)
    b.journal.tail_error = error
    b.journal.tell_tails()
    assert b.replica.role is Role.FAILED
    assert b.failures == [error]
    assert not b.ballot.stands
    assert a.replica.role is Role.ACTIVE


def test_a_transaction_that_the_machine_refuses_ends_the_replica_and_is_told_with_its_reason() -> None:
    a, b = pair()

    def refuse(batch: RecordBatch) -> None:
        raise JournalError(f"what is txid {batch.records[0].txid}?")

    b.machine.apply = refuse  # type: ignore[method-assign]
    a.ballot.elect(1)
    assert b.replica.role is Role.FAILED
    assert [str(error) for error in b.failures] == ["what is txid 1?"]
    assert not b.ballot.stands


def test_append_tells_the_machine_once_it_is_durable_and_in_order() -> None:
    a, _ = pair()
    a.ballot.elect(1)
    a.journal.answers_at_once = False
    told: list[list[Any]] = [[], []]
    for number, payload in enumerate((b"one", b"two")):
        a.replica.append(payload).addBoth(told[number].append)
    assert a.machine.payloads == []
    a.journal.writer.flushes[0].answer()
    assert a.machine.payloads == [b"one"]
    a.journal.writer.flushes[0].answer()
    assert a.machine.payloads == [b"one", b"two"]
    assert told == [[2], [3]]


def test_append_on_a_standby_is_refused() -> None:
    a, _ = pair()
    results: list[Any] = []
    a.replica.append(b"x").addBoth(results.append)
    assert isinstance(results[0].value, JournalClosed)


def test_a_machine_that_cannot_apply_what_was_logged_gives_the_log_up() -> None:
    """The state is not what the journal says any more."""
    a, _ = pair()
    a.ballot.elect(1)
    a.machine.apply = lambda batch: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    results: list[Any] = []
    a.replica.append(b"x").addBoth(results.append)
    assert isinstance(results[0].value, ZeroDivisionError)
    assert a.replica.role is not Role.ACTIVE


def test_an_election_that_ends_ends_the_replica() -> None:
    a, _ = pair()
    error = MetadataUnavailable("refused")
    a.ballot.fail(error)
    assert a.failures == [error]
    assert a.replica.role is Role.FAILED


def test_stop_ends_the_segment_in_order_and_hands_the_role_on() -> None:
    a, b = pair()
    a.ballot.elect(1)
    a.append(b"one")
    stopped: list[object] = []
    a.replica.stop().addBoth(stopped.append)
    assert stopped == [None]
    assert a.replica.role is Role.STOPPED
    assert not a.ballot.stands
    assert a.journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]
    b.replica.stop().addBoth(stopped.append)
    assert b.replica.role is Role.STOPPED


def test_stop_during_a_pause_does_not_wait_for_its_end() -> None:
    a, _ = pair()
    a.journal.recover_error = JournalUnavailable("no bookies")
    a.ballot.elect(1)
    stopped: list[object] = []
    a.replica.stop().addBoth(stopped.append)
    assert stopped == [None]


def test_a_machine_that_is_busy_holds_the_standby_back_and_not_for_ever() -> None:
    a, b = pair()
    b.machine.hold = hold = Deferred()
    a.ballot.elect(1)
    a.append(b"one")
    assert b.machine.payloads == []
    assert b.replica.applied_txid == 0
    b.machine.hold = None
    hold.callback(None)
    assert b.replica.applied_txid == 2


def test_age_ends_no_segment_without_an_interval() -> None:
    clock = SimulatedClock()
    a = Server(ScriptedJournal(answers_at_once=True), clock, roll_interval_s=0.0)
    a.ballot.elect(1)
    a.append(b"one")
    clock.run_until(lambda: False, seconds=1_000)
    assert a.journal.finalised == []


def test_the_active_ends_a_segment_that_is_old_or_long() -> None:
    clock = SimulatedClock()
    a = Server(ScriptedJournal(answers_at_once=True), clock, roll_interval_s=10.0, roll_transactions=5)
    a.ballot.elect(1)
    clock.run_until(lambda: False, seconds=11)
    assert a.journal.finalised == []
    a.append(b"one")
    clock.run_until(lambda: False, seconds=11)
    assert a.journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]
    for number in range(6):
        a.append(b"%d" % number)
        a.replica.logged()
    assert len(a.journal.finalised) == 2
