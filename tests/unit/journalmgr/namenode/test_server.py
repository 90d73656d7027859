"""A name node as it is put together: its journal, disk, worker and network are the test's, all else real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed

from journalmgr.edits.codec import encode
from journalmgr.edits.ops import Mkdir, StartLogSegment
from journalmgr.edits.ops import Op as Edit
from journalmgr.errors import JournalUnavailable, NotSupported
from journalmgr.group import ALONE_PERIOD_S
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.namenode import server
from journalmgr.namenode.images.schedule import CheckpointSettings
from journalmgr.namenode.machine import CheckpointGivenUp, NamespaceMachine
from journalmgr.namenode.server import NameNode, NameNodeSettings
from journalmgr.replica import Role
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.manual_worker import ManualWorker
from tests.support.scripted_journal import ScriptedJournal
from tests.support.simulated_clock import SimulatedClock

INFO = NamespaceInfo(7, "CID-7", "BP-7")
CHECK_PERIOD_S = 10.0


class Port:
    """Nobody calls there."""

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 9870)

    def stopListening(self) -> Deferred[None]:
        return succeed(None)


class Standby:
    """A name node that follows what another one logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = SimulatedClock()
        self.journal = ScriptedJournal(answers_at_once=True)
        self.fs, self.worker = FaultyFileSystem(), ManualWorker("checkpoints")
        self.roles: list[Role] = []
        self.next_txid = 1

        def opened(*_: object) -> Deferred[tuple[ScriptedJournal, NamespaceInfo]]:
            return succeed((self.journal, INFO))

        monkeypatch.setattr(server, "open_own_journal", opened)
        monkeypatch.setattr(server, "RealFileSystem", lambda *, private: self.fs)
        monkeypatch.setattr(server, "ThreadWorker", lambda *_: self.worker)
        monkeypatch.setattr(server, "listen_http", lambda *_: Port())
        self.journal.recover_error = JournalUnavailable("the other server writes")
        self.log(StartLogSegment())
        settings = NameNodeSettings(
            journal="scripted://",
            server_id="b",
            images="/images",
            checkpoints=CheckpointSettings(transactions=2, check_period_s=CHECK_PERIOD_S),
        )
        self.server = NameNode(self.clock, settings, on_role=self.roles.append)
        started: list[Any] = []
        self.server.start().addBoth(started.append)
        assert started == [None]
        self.worker.run_all()
        assert self.roles == [Role.STANDBY]

    def elect(self) -> None:
        """The other one has gone: it is this one's turn."""
        self.journal.recover_error = None
        self.clock.run_until(lambda: self.roles[-1] is not Role.STANDBY, seconds=2 * ALONE_PERIOD_S)

    def log(self, *ops: Edit) -> None:
        """What the other server, which is active, makes durable."""
        if not self.journal.writers:
            self.journal.start_segment(TxId(1), HADOOP_2_7)
        writer = self.journal.writer
        for op in ops:
            op.txid = self.next_txid
            self.next_txid += 1
            writer.write([encode(op, HADOOP_2_7)])
        writer.set_ready_to_flush()
        writer.flush()

    @property
    def machine(self) -> NamespaceMachine:
        assert self.server.service is not None
        return self.server.service.machine

    def names(self) -> list[str]:
        return sorted(self.machine.namespace.root.children)

    def save(self) -> None:
        """A checkpoint is due and begins; its disk does not answer."""
        self.log(Mkdir(path="/a"), Mkdir(path="/b"))
        assert self.clock.run_until(lambda: self.machine.saving, seconds=2 * CHECK_PERIOD_S)
        assert self.worker.waiting


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standby]:
    found = Standby(monkeypatch)
    yield found
    ended: list[Any] = []
    found.server.stop().addBoth(ended.append)
    found.worker.run_all()
    assert ended == [None]
    assert not found.clock.step()


def test_a_takeover_does_not_wait_for_the_checkpoint_under_way(standby: Standby) -> None:
    """Not even for a disk that does not answer; and what waited for the checkpoint is applied before."""
    standby.save()
    standby.log(Mkdir(path="/c"))
    assert standby.names() == ["a", "b"], "transactions wait for the checkpoint"
    standby.elect()
    assert standby.roles == [Role.STANDBY, Role.TAKING_OVER, Role.ACTIVE]
    assert standby.names() == ["a", "b", "c"]
    standby.worker.run_all()
    assert not [name for name in standby.fs.listdir("/images") if name.startswith("image_")]


def test_a_takeover_does_not_wait_for_a_checkpoint_when_nothing_is_to_be_applied(standby: Standby) -> None:
    standby.save()
    standby.elect()
    assert standby.roles[-1] is Role.ACTIVE
    standby.worker.run_all()
    assert not standby.machine.saving
    assert standby.machine.checkpoint_txid == 0


def test_the_end_waits_for_the_checkpoint_under_way_and_gives_it_up(standby: Standby) -> None:
    """Its worker is stopped after it."""
    standby.save()
    ended: list[Any] = []
    standby.server.stop().addBoth(ended.append)
    assert ended == []
    assert standby.roles[-1] is Role.STOPPED, "the role is handed on before"
    standby.worker.run_all()
    assert ended == [None]
    assert standby.fs.listdir("/images") == []


def test_a_checkpoint_that_is_asked_for_makes_old_ones_superfluous(standby: Standby) -> None:
    for number in range(3):
        standby.log(Mkdir(path=f"/{number}"))
        saving = standby.server._save()  # noqa: SLF001 - what HTTP calls
        standby.worker.run_all()
        saved: list[Any] = []
        saving.addBoth(saved.append)
        assert saved[0].txid == number + 2
    assert [name[-1] for name in sorted(standby.fs.listdir("/images"))] == ["3", "4"]


def test_the_active_saves_no_checkpoint(standby: Standby) -> None:
    standby.elect()
    refused: list[Any] = []
    standby.server._save().addErrback(lambda failure: refused.append(failure.type))  # noqa: SLF001 - what HTTP calls
    assert refused == [NotSupported]


def test_a_checkpoint_that_is_asked_for_is_given_up_by_a_turn(standby: Standby) -> None:
    standby.log(Mkdir(path="/a"))
    outcome: list[Any] = []
    standby.server._save().addErrback(lambda failure: outcome.append(failure.type))  # noqa: SLF001 - what HTTP calls
    standby.elect()
    standby.worker.run_all()
    assert outcome == [CheckpointGivenUp]
