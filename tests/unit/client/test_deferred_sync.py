"""Deferred sync: acknowledged is not confirmed, `force` confirms, and every unknown outcome ends at the durable LAC.

Each fake bookie gets a disk with a cache: what a force has not reached is gone when its power fails.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    AddFailed,
    BookKeeperError,
    ClientClosed,
    LedgerClosed,
    LedgerFencedOff,
    NotDurable,
    NotInProtocolVersion,
    ReadBeyondEnd,
)
from bookkeeper.model import LedgerState, Status
from bookkeeper.wire.digest import lac_of
from bookkeeper.wire.messages import AddBatch, BookieInfo, ForceLedger, WriteLac
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster

SHAPE = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2}


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, "use_v2": False, **values})


class Disk:
    """The disk of one bookie. on_force: what to do with a force instead of syncing; None: sync."""

    def __init__(self, cluster: FakeCluster, bookie: FakeBookie) -> None:
        self.cluster, self.bookie = cluster, bookie
        self.synced: dict[int, set[int]] = {}
        self.forces = 0
        self.adds: list[AddBatch] = []
        self.on_force: object = None
        self.on_add: object = None
        bookie.rule = self

    def __call__(self, request: Any) -> object:
        if isinstance(request, AddBatch) and not request.recovery:
            self.adds.append(request)
            return self.on_add
        if isinstance(request, ForceLedger):
            self.forces += 1
            if self.on_force is None:
                self.sync()
            return Status.OK if self.on_force is None else self.on_force
        return None

    def sync(self) -> None:
        for ledger_id, entries in self.bookie.entries.items():
            self.synced[ledger_id] = set(entries)

    def release_force(self) -> None:
        """Answer the forces that were held, after syncing."""
        self.on_force = None
        self.sync()
        held, self.bookie.held = self.bookie.held, []
        for connection, request in held:
            connection.send(connection.codec.reply(request, Status.OK))

    def power_fails(self) -> None:
        """And comes back at once: what was not synced is gone."""
        self.bookie.crash()
        for ledger_id, entries in self.bookie.entries.items():
            kept = self.synced.get(ledger_id, set())
            self.bookie.entries[ledger_id] = {entry_id: body for entry_id, body in entries.items() if entry_id in kept}
        self.bookie.start()


class World:
    """Three bookies with disks, and one ledger with deferred sync."""

    def __init__(self, *, advanced: bool = False, **values: Any) -> None:
        self.cluster = FakeCluster()
        self.disks = [Disk(self.cluster, bookie) for bookie in self.cluster.bookies]
        self.client = self.cluster.client(settings(**values))
        make = self.client.create_advanced if advanced else self.client.create
        self.ledger = self.wait(make(**SHAPE, deferred_sync=True))

    def wait(self, work: Any) -> Any:
        return self.cluster.wait(work)

    def append(self, count: int) -> None:
        """Append and let every copy arrive."""
        self.wait(self.ledger.append_many([b"entry"] * count))
        self.cluster.run(0.1)

    def metadata(self) -> Any:
        return self.wait(self.cluster.client().metadata(self.ledger.id))


def outcome(deferred: Any) -> list[Any]:
    told: list[Any] = []
    deferred.addBoth(lambda result: told.append(getattr(result, "value", result)))
    return told


# --- confirmed and acknowledged


def test_acknowledgements_complete_appends_in_order_and_do_not_move_the_lac() -> None:
    """I-06, I-07."""
    world = World()
    told: list[int] = []
    for payload in (b"0", b"1", b"2"):
        world.ledger.append(payload).addCallback(told.append)
    assert world.wait(world.ledger.flush()) == 2
    assert told == [0, 1, 2]
    assert (world.ledger.last_add_confirmed, world.ledger.length, world.ledger.last_add_pushed) == (-1, 0, 2)
    assert all(request.deferred_sync for disk in world.disks for request in disk.adds)
    with pytest.raises(ReadBeyondEnd):
        world.wait(world.ledger.read(0, 0))


def test_a_force_confirms_what_was_acknowledged_and_the_next_entries_carry_it() -> None:
    world = World()
    world.append(3)
    assert world.wait(world.ledger.force()) == 2
    assert (world.ledger.last_add_confirmed, world.ledger.length) == (2, 15)
    assert [entry.payload for entry in world.wait(world.ledger.read(0, 2))] == [b"entry"] * 3
    world.append(2)
    lacs = [lac_of(body) for disk in world.disks for request in disk.adds for body in request.bodies]
    assert sorted(set(lacs)) == [-1, 2]
    assert world.ledger.last_add_confirmed == 2
    reader = world.wait(world.cluster.client().open_without_recovery(world.ledger.id))
    assert reader.last_add_confirmed == 2


def test_a_force_asks_every_bookie_once_and_no_one_when_there_is_nothing_to_confirm() -> None:
    world = World()
    assert outcome(world.ledger.force()) == [-1]
    world.append(1)
    world.wait(world.ledger.force())
    assert outcome(world.ledger.force()) == [0]
    assert [disk.forces for disk in world.disks] == [1, 1, 1]


def test_forces_that_come_together_share_a_round_and_later_ones_the_next() -> None:
    world = World()
    world.disks[0].on_force = HOLD
    world.append(1)
    together = [outcome(world.ledger.force()) for _ in range(5)]
    world.append(2)
    later = [outcome(world.ledger.force()) for _ in range(5)]
    world.append(1)
    assert [disk.forces for disk in world.disks] == [1, 1, 1]
    assert together + later == [[]] * 10
    world.disks[0].on_force = None
    world.disks[0].release_force()
    world.cluster.run(1.0)
    assert together == [[0]] * 5
    assert later == [[3]] * 5  # the second round took along what was acknowledged when it began
    assert [disk.forces for disk in world.disks] == [2, 2, 2]


def test_a_force_does_not_confirm_adds_that_are_on_their_way() -> None:
    """I-07."""
    world = World()
    world.append(2)
    for disk in world.disks[:2]:
        disk.on_add = HOLD
    adding = world.ledger.append(b"later")
    world.cluster.run(0.1)
    assert world.wait(world.ledger.force()) == 1
    assert not adding.called
    assert world.ledger.last_add_confirmed == 1
    for disk in world.disks[:2]:
        disk.on_add = None
        disk.bookie.release()
    assert world.wait(adding) == 2
    assert world.ledger.last_add_confirmed == 1


def test_a_force_lets_the_lac_be_told_to_readers_while_the_writer_is_quiet() -> None:
    world = World(explicit_lac_interval_s=1.0)
    world.append(2)
    world.cluster.run(5.0)
    assert not any(isinstance(request, WriteLac) for bookie in world.cluster.bookies for request in bookie.requests)
    world.wait(world.ledger.force())
    world.cluster.run(5.0)
    told = [
        int.from_bytes(request.body[8:16])
        for bookie in world.cluster.bookies
        for request in bookie.requests
        if isinstance(request, WriteLac)
    ]
    assert told == [1, 1, 1]


def test_chosen_entry_ids_are_forced_up_to_the_first_gap() -> None:
    world = World(advanced=True)
    world.wait(world.ledger.append(0, b"0"))
    behind = world.ledger.append(2, b"2")
    world.cluster.run(0.1)
    assert world.wait(world.ledger.force()) == 0
    world.wait(world.ledger.append(1, b"1"))
    world.wait(behind)
    assert world.wait(world.ledger.force()) == 2
    assert world.wait(world.ledger.close()).last_entry_id == 2


# --- unknown outcomes


def check_ended(world: World, *, durable: int, lost: range) -> NotDurable:
    """The handle has failed, and the ledger is closed at the durable LAC; `close` names what is not in it."""
    with pytest.raises(NotDurable) as told:
        world.wait(world.ledger.close())
    assert told.value.entry_ids == lost
    assert f"{lost[0]}..{lost[-1]}" in str(told.value)
    assert (world.ledger.closed, world.ledger.last_add_confirmed) == (True, durable)
    metadata = world.metadata()
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, durable, 5 * (durable + 1))
    return told.value


@pytest.mark.parametrize("when", ["before the force", "during the force"])
def test_power_that_fails_before_the_sync_ends_the_handle_at_the_durable_lac(when: str) -> None:
    world = World()
    world.append(2)
    world.wait(world.ledger.force())
    world.append(3)
    forced: list[Any] = []
    if when == "during the force":
        world.disks[0].on_force = SILENCE
        forced = outcome(world.ledger.force())
        world.cluster.run(0.1)
    world.disks[0].power_fails()
    world.cluster.run(1.0)
    if when == "during the force":
        assert isinstance(forced[0], NotDurable)
    assert isinstance(world.ledger.error, NotDurable)
    assert "b1:3181" in str(world.ledger.error)
    with pytest.raises(NotDurable):
        world.wait(world.ledger.append(b"more"))
    with pytest.raises(NotDurable):
        world.wait(world.ledger.force())
    check_ended(world, durable=1, lost=range(2, 5))


def test_a_bookie_that_comes_back_after_everything_was_forced_is_no_harm() -> None:
    world = World()
    world.append(2)
    world.wait(world.ledger.force())
    world.disks[0].power_fails()
    world.cluster.run(1.0)
    world.append(2)
    assert world.wait(world.ledger.force()) == 3
    assert world.wait(world.ledger.close()).last_entry_id == 3


def test_a_connection_is_not_closed_for_idleness_while_it_alone_can_prove_something() -> None:
    world = World(idle_connection_s=10.0)
    world.append(1)
    world.cluster.run(100.0)
    assert world.wait(world.ledger.force()) == 0
    connections = len(world.cluster.network.connections)
    world.cluster.run(100.0)
    assert len(world.cluster.network.connections) < connections
    world.append(1)
    assert world.wait(world.ledger.close()).last_entry_id == 1


def test_a_handle_that_ended_keeps_no_connection_open() -> None:
    world = World(idle_connection_s=10.0)
    world.append(1)
    world.disks[0].on_force = Status.IO_ERROR
    with pytest.raises(NotDurable):
        world.wait(world.ledger.force())
    connections = len(world.cluster.network.connections)
    world.cluster.run(100.0)
    assert len(world.cluster.network.connections) <= connections - len(world.disks)


def test_a_bookie_that_never_answers_a_force_ends_it_by_its_timeout() -> None:
    world = World(add_timeout_s=5.0)
    world.append(1)
    world.disks[2].on_force = SILENCE
    with pytest.raises(NotDurable, match="b3:3181 did not answer a force"):
        world.wait(world.ledger.force())
    check_ended(world, durable=-1, lost=range(1))


@pytest.mark.parametrize("status", [Status.BAD_REQUEST, Status.TOO_MANY_REQUESTS, Status.UNAUTHORIZED])
def test_a_force_that_is_refused_ends_the_handle(status: Status) -> None:
    world = World()
    world.append(2)
    world.disks[1].on_force = status
    first, second = outcome(world.ledger.force()), outcome(world.ledger.force())
    world.cluster.run(1.0)
    for [error] in (first, second):
        assert isinstance(error, NotDurable)
        assert error.code == -12
        assert error.entry_ids == range(2)
        assert status.value in str(error)
    check_ended(world, durable=-1, lost=range(2))


@pytest.mark.parametrize("kind", [BookieInfo, ForceLedger])
def test_an_ok_to_something_else_or_about_another_ledger_proves_nothing(kind: type) -> None:
    """Under the request id of the force, from a bookie that has lost its way."""
    world = World()
    world.append(2)
    world.disks[1].on_force = HOLD
    told = outcome(world.ledger.force())
    world.cluster.run(0.1)
    [(connection, request)] = world.disks[1].bookie.held
    if kind is BookieInfo:
        token = request.token._replace(operation=pb.GET_BOOKIE_INFO)
        other: Any = BookieInfo(free=True, total=True, token=token)
    else:
        other = ForceLedger(world.ledger.id + 1, request.token)
    connection.send(connection.codec.reply(other, Status.OK))
    world.cluster.run(0.1)
    [error] = told
    assert isinstance(error, NotDurable)
    check_ended(world, durable=-1, lost=range(2))


@pytest.mark.parametrize("delayed", [False, True])
def test_a_bookie_that_fails_an_add_is_not_replaced(delayed: bool) -> None:
    """Nor later, where ensemble changes may wait: it can answer no force for what it does not hold."""
    world = World(delay_ensemble_change=delayed)
    world.append(2)
    world.wait(world.ledger.force())
    world.append(1)
    failures: list[BookKeeperError] = []
    world.ledger.on_failed = failures.append
    world.disks[0].on_add = Status.IO_ERROR
    added = outcome(world.ledger.append(b"entry"))
    world.cluster.run(1.0)
    assert isinstance(failures[0], NotDurable)
    assert "b1:3181 failed, and with deferred sync it cannot be replaced" in str(failures[0])
    assert added == [3] or (isinstance(added[0], NotDurable) and str(added[0]) == str(failures[0]))
    assert len(world.metadata().fragments) == 1
    check_ended(world, durable=1, lost=range(2, 3 + (added == [3])))


def test_a_bookie_lost_before_its_entry_was_acknowledged_by_enough_fails_the_add() -> None:
    """Its own copy was acknowledged, the entry was not: nothing that anybody was told of is lost (I-41)."""
    world = World()
    for disk in world.disks[1:]:
        disk.on_add = HOLD
    added = outcome(world.ledger.append(b"entry"))
    world.cluster.run(0.1)
    world.disks[0].power_fails()
    world.cluster.run(1.0)
    assert isinstance(added[0], AddFailed)
    assert "b1:3181 ended before it synced" in str(added[0])
    with pytest.raises(AddFailed):
        world.wait(world.ledger.close())
    assert world.metadata().last_entry_id == -1


def test_a_failure_with_nothing_to_lose_loses_nothing() -> None:
    world = World()
    world.append(1)
    world.wait(world.ledger.force())
    for disk in world.disks:
        disk.on_add = Status.IO_ERROR
    with pytest.raises(AddFailed):
        world.wait(world.ledger.append(b"entry"))
    with pytest.raises(AddFailed):
        world.wait(world.ledger.close())
    assert world.metadata().last_entry_id == 0


def test_a_fenced_writer_leaves_the_outcome_of_unforced_entries_open() -> None:
    """I-08, I-41: here the recovery finds them."""
    world = World()
    world.append(2)
    reader = world.wait(world.cluster.client().open(world.ledger.id))
    assert reader.last_add_confirmed == 1
    with pytest.raises(LedgerFencedOff):
        world.wait(world.ledger.append(b"late"))
    with pytest.raises(LedgerFencedOff):
        world.wait(world.ledger.force())
    with pytest.raises(LedgerFencedOff):
        world.wait(world.ledger.close())


# --- closing


def test_close_forces_first() -> None:
    world = World()
    added = outcome(world.ledger.append_many([b"entry"] * 4))
    metadata = world.wait(world.ledger.close())
    assert added == [range(4)]
    assert (metadata.last_entry_id, metadata.length) == (3, 20)
    assert [disk.forces for disk in world.disks] == [1, 1, 1]
    assert all(world.ledger.id in disk.synced for disk in world.disks)
    with pytest.raises(LedgerClosed):
        world.wait(world.ledger.force())


def test_closing_an_empty_ledger_needs_no_force() -> None:
    world = World()
    assert world.wait(world.ledger.close()).last_entry_id == -1
    assert [disk.forces for disk in world.disks] == [0, 0, 0]


def test_close_that_cannot_force_closes_at_the_durable_lac_and_says_so_every_time() -> None:
    world = World()
    world.append(1)
    world.wait(world.ledger.force())
    world.append(2)
    world.disks[0].on_force = Status.IO_ERROR
    for _ in range(2):
        error = check_ended(world, durable=0, lost=range(1, 3))
    assert isinstance(error.__cause__, NotDurable)
    assert "b1:3181 refused to force" in str(error.__cause__)


def test_close_now_leaves_out_what_was_not_forced_and_tells_who_waits_for_it() -> None:
    world = World()
    world.append(1)
    world.wait(world.ledger.force())
    world.append(2)
    world.disks[0].on_force = SILENCE
    forced = outcome(world.ledger.force())
    metadata = world.wait(world.ledger.close_now())
    assert (metadata.last_entry_id, metadata.length) == (0, 5)
    assert isinstance(forced[0], LedgerClosed)


@pytest.mark.parametrize("how", ["abort", "client"])
def test_a_dropped_handle_tells_who_waits_for_a_force(how: str) -> None:
    """I-41: the ledger stays open, and its recovery decides."""
    world = World()
    world.append(1)
    world.disks[0].on_force = SILENCE
    forced = outcome(world.ledger.force())
    world.cluster.run(0.1)
    if how == "abort":
        world.ledger.abort()
    else:
        world.wait(world.client.close())
    assert isinstance(forced[0], LedgerClosed if how == "abort" else ClientClosed)
    assert world.metadata().state is LedgerState.OPEN


def test_a_late_answer_of_a_handle_that_ended_changes_nothing() -> None:
    world = World()
    world.append(1)
    for disk in world.disks:
        disk.on_force = HOLD
    forced = outcome(world.ledger.force())
    world.cluster.run(0.1)
    world.ledger.abort()
    for disk in world.disks:
        disk.release_force()
    world.cluster.run(1.0)
    assert isinstance(forced[0], LedgerClosed)
    assert world.ledger.last_add_confirmed == -1


# --- without deferred sync, and without v3


def test_a_ledger_without_deferred_sync_is_forced_too_and_outlives_a_refusal() -> None:
    world = World()
    ledger = world.wait(world.client.create(**SHAPE))
    assert outcome(ledger.force()) == [-1]
    world.wait(ledger.append(b"entry"))
    assert ledger.last_add_confirmed == 0
    world.disks[0].on_force = Status.TOO_MANY_REQUESTS
    with pytest.raises(NotDurable, match="stays in the ledger, force again"):
        world.wait(ledger.force())
    world.disks[0].on_force = None
    assert world.wait(ledger.force()) == 0
    assert not any(request.deferred_sync for disk in world.disks for request in disk.adds)
    assert world.wait(ledger.append(b"entry")) == 1
    assert world.wait(ledger.close()).last_entry_id == 1


def test_more_ledgers_than_a_connection_takes_calls_are_forced_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.client.bookies.pending_requests.CALLS_MAX", 2)
    world = World()
    ledgers = [world.wait(world.client.create(**SHAPE, deferred_sync=True)) for _ in range(6)]
    for ledger in ledgers:
        world.wait(ledger.append(b"entry"))
    forced = [ledger.force() for ledger in ledgers]
    assert [world.wait(one) for one in forced] == [0] * 6


@pytest.mark.parametrize("kind", ["create", "create_advanced"])
def test_a_client_set_to_v2_is_told_which_setting_to_change(kind: str) -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(use_v2=True))
    with pytest.raises(NotInProtocolVersion, match="useV2WireProtocol") as refused:
        cluster.wait(getattr(client, kind)(**SHAPE, deferred_sync=True))
    assert refused.value.code == -100
    ledger = cluster.wait(getattr(client, kind)(**SHAPE))
    with pytest.raises(NotInProtocolVersion, match="useV2WireProtocol"):
        cluster.wait(ledger.force())


# --- whatever happens


@pytest.mark.parametrize("seed", range(40))
def test_what_is_confirmed_survives_power_failures_of_every_bookie(seed: int) -> None:
    """Random appends, forces, slow answers, cuts and power failures: the LAC never exceeds what two disks hold, and
    what any force or close reported is read back after the power of all has failed at once.
    """
    chance = random.Random(seed)
    world = World(advanced=False, add_timeout_s=2.0)
    ledger, reported = world.ledger, [-1]

    def report(lac: Any) -> None:
        if isinstance(lac, int):
            reported.append(lac)

    def check() -> None:
        for entry_id in range(ledger.last_add_confirmed + 1):
            copies = sum(entry_id in disk.synced.get(ledger.id, ()) for disk in world.disks)
            assert copies >= 2, f"entry {entry_id} is confirmed and on {copies} disks"

    for _ in range(60):
        event, disk = chance.random(), chance.choice(world.disks)
        if event < 0.4:
            ledger.append_many([b"entry"] * chance.randint(1, 5)).addErrback(lambda failure: None)
        elif event < 0.6:
            ledger.force().addBoth(report)
        elif event < 0.65:
            disk.on_force = HOLD
        elif event < 0.75:
            for held in world.disks:
                held.release_force()
        elif event < 0.77:
            world.cluster.network.cut_some_connection()
        elif event < 0.79:
            disk.power_fails()
        world.cluster.run(chance.random() * 0.01)
        check()
        assert max(reported) <= ledger.last_add_confirmed
    for held in world.disks:
        held.release_force()
    ledger.close().addBoth(lambda result: report(getattr(result, "last_entry_id", None)))
    world.cluster.run(30.0)
    check()
    for disk in world.disks:
        disk.power_fails()
    world.cluster.run(1.0)
    reader = world.wait(world.cluster.client().open(ledger.id))
    assert reader.last_add_confirmed >= max(reported)
    if reader.last_add_confirmed >= 0:
        assert len(world.wait(reader.read(0, reader.last_add_confirmed))) == reader.last_add_confirmed + 1
