"""A replica whose checkpoint and journal do not fit: something between them is missing, or the checkpoint is ahead."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred, succeed

from journalmgr.contract import RecordBatch
from journalmgr.edit_log import EditLog
from journalmgr.errors import GapInTransactions
from journalmgr.model import TxId
from journalmgr.replica import Replica, ReplicaSettings, Role
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock


class Ballot:
    """A candidate that the test elects."""

    def __init__(self, *calls: object) -> None:
        self.elect, self.lost, self.failed = calls
        self.stands = False

    def join(self) -> None:
        self.stands = True

    def leave(self) -> Deferred[None]:
        self.stands = False
        self.lost()  # type: ignore[operator]
        return succeed(None)


class Machine:
    """The state: which txids it knows. checkpoints: what `load` gives, one for each call; the last one then."""

    def __init__(self, *checkpoints: int) -> None:
        self.checkpoints = list(checkpoints)
        self.txids: list[int] = []
        self.loads = 0

    def load(self) -> int:
        self.txids.clear()
        self.loads += 1
        return self.checkpoints.pop(0) if len(self.checkpoints) > 1 else self.checkpoints[0]

    def apply(self, batch: RecordBatch) -> None:
        self.txids += [record.txid for record in batch.records]


class Server:
    """One replica."""

    def __init__(self, journal: ScriptedJournal, *checkpoints: int) -> None:
        self.clock = SimulatedClock()
        self.machine = Machine(*checkpoints)
        self.failures: list[BaseException] = []
        self.ballots: list[Ballot] = []

        def stand(*calls: object) -> Ballot:
            self.ballots.append(Ballot(*calls))
            return self.ballots[-1]

        self.replica = Replica(
            journal,
            self.machine,
            stand,
            self.clock,
            settings=ReplicaSettings(confirm_timeout_s=5.0),
            on_failed=self.failures.append,
        )
        self.replica.start()

    @property
    def role(self) -> Role:
        return self.replica.role

    def elect(self) -> None:
        self.ballots[0].elect(1)  # type: ignore[operator]


def with_segments(*lengths: int, closed: bool = True) -> tuple[ScriptedJournal, EditLog]:
    """A journal of segments with so many payloads each; the last one is in progress unless closed."""
    journal = ScriptedJournal(answers_at_once=True)
    log = EditLog(journal)
    log.recover()
    log.open(1)
    for index, length in enumerate(lengths):
        if index:
            log.roll()
        for _ in range(length):
            log.append(b"x")
    if closed:
        log.close()
    return journal, log


def passed(server: Server, seconds: float) -> None:
    """Let so much time pass."""
    over: list[bool] = []
    server.clock.callLater(seconds, over.append, True)
    server.clock.run_until(lambda: bool(over), seconds=seconds + 1)


def test_a_journal_that_was_purged_and_no_checkpoint_end_the_server_instead_of_its_taking_over_for_ever() -> None:
    """I-81."""
    journal, _ = with_segments(3)
    journal.purge_older_than(TxId(6))
    server = Server(journal, 0)
    assert server.role is Role.FAILED
    (error,) = server.failures
    assert isinstance(error, GapInTransactions)
    assert (error.expected, error.found) == (1, None)
    assert server.machine.loads == 2, "a checkpoint might have come meanwhile"
    assert not server.ballots[0].stands


def test_a_standby_whose_next_transaction_was_purged_loads_the_newer_checkpoint() -> None:
    journal, _ = with_segments(1, 1, 1)  # 1..3, 4..6, 7..9
    journal.purge_older_than(TxId(7))
    server = Server(journal, 3, 6)
    assert server.failures == []
    assert server.role is Role.STANDBY
    assert server.machine.txids == [7, 8, 9]
    assert server.machine.loads == 2


def test_it_ends_where_the_checkpoint_is_the_same_again() -> None:
    journal, _ = with_segments(1, 1, 1)
    journal.purge_older_than(TxId(7))
    server = Server(journal, 3, 3)
    assert server.role is Role.FAILED
    assert server.machine.loads == 2
    assert "expected txid 4, and the next one there is 7" in str(server.failures[0])


@pytest.mark.parametrize("lengths", [(), (1, 1)])
def test_a_checkpoint_that_is_ahead_of_all_that_the_journal_has_is_refused(lengths: tuple[int, ...]) -> None:
    """Its transactions would come from two histories."""
    journal = with_segments(*lengths)[0] if lengths else ScriptedJournal(answers_at_once=True)
    server = Server(journal, 500)
    assert server.role is Role.FAILED
    assert "covers txids up to 500, and the journal ends at" in str(server.failures[0])
    assert server.machine.loads == 1


def test_a_checkpoint_that_is_ahead_of_a_segment_in_progress_is_refused_unless_that_shows_it_soon() -> None:
    journal, log = with_segments(1, closed=False)
    server = Server(journal, 500)
    assert server.role is Role.STANDBY
    passed(server, 4)
    assert server.role is Role.STANDBY
    server.clock.run_until(lambda: server.role is Role.FAILED, seconds=5)
    assert "covers txids up to 500, and the journal ends at 0" in str(server.failures[0])
    log.append(b"x")
    assert server.machine.txids == []


def test_what_a_checkpoint_covers_may_show_a_moment_later() -> None:
    """The LAC that another server read was newer than this one's."""
    journal, log = with_segments(1, closed=False)
    server = Server(journal, 3)
    log.append(b"x")
    passed(server, 0.2)
    log.append(b"y")
    assert server.role is Role.STANDBY
    assert server.machine.txids == [4]
    passed(server, 60)
    assert server.failures == []


def test_who_takes_over_with_a_checkpoint_that_is_ahead_ends() -> None:
    journal, _ = with_segments(1, closed=False)
    server = Server(journal, 500)
    server.elect()
    assert server.role is Role.FAILED
    assert "covers txids up to 500, and the journal ends at 2" in str(server.failures[0])
