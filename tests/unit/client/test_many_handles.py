"""Very many ledgers written a little each: what is shared must serve all, and keep nobody back."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import AddQuorumTimedOut, InvalidArgument, WindowFull
from bookkeeper.wire.messages import AddBatch, WriteLac
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster

LEDGERS = 150
SHAPE = {"ensemble": 3, "write_quorum": 2, "ack_quorum": 2}


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def hold_adds(request: Any) -> object:
    return HOLD if isinstance(request, AddBatch) else None


def create(cluster: FakeCluster, client: Any, count: int = LEDGERS, **shape: Any) -> list[WriteHandle]:
    return [cluster.wait(client.create(**{**SHAPE, **shape})) for _ in range(count)]


@pytest.mark.parametrize("version", [2, 3])
def test_entries_of_many_ledgers_leave_in_few_writes_and_are_all_acknowledged(version: int) -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(use_v2=version == 2))
    ledgers = create(cluster, client)
    acknowledged: list[tuple[int, int]] = []
    for ledger in ledgers:
        ledger.on_acknowledged = lambda ids, ledger=ledger: acknowledged.extend((ledger.id, i) for i in ids)
    for entry_id in range(3):
        before = client.transport_writes
        assert [ledger.append_batch_nowait([b"x" * entry_id]) for ledger in ledgers] == [
            range(entry_id, entry_id + 1)
        ] * LEDGERS
        cluster.run(1.0)
        assert client.transport_writes - before <= 3
    assert sorted(acknowledged) == [(ledger.id, entry_id) for ledger in ledgers for entry_id in range(3)]
    assert {ledger.length for ledger in ledgers} == {3}
    for bookie in cluster.bookies:
        assert all(len(held) == 2 for held in bookie.entries.values())  # two of three, on each of the three


def test_batches_of_one_turn_keep_their_order_though_the_first_leaves_at_once() -> None:
    """I-06; and those behind it leave together."""
    cluster = FakeCluster()
    client = cluster.client()
    [ledger] = create(cluster, client, 1)
    acknowledged: list[int] = []
    ledger.on_acknowledged = acknowledged.extend
    for turn in range(3):
        before = client.transport_writes
        sizes = [1, 1, 2, 1, 3, 1]
        first = turn * sum(sizes)
        for size in sizes:
            assert ledger.append_batch_nowait([b"%d" % (first + i) for i in range(size)]) == range(first, first + size)
            first += size
        cluster.run(1.0)
        assert client.transport_writes - before <= 3
    assert acknowledged == list(range(27))
    found = cluster.wait(ledger.read(0, 26))
    assert [entry.payload for entry in found] == [b"%d" % entry_id for entry_id in range(27)]
    with pytest.raises(InvalidArgument, match="bytes"):
        ledger.append_batch_nowait(["text"])  # type: ignore[list-item]
    assert ledger.append_batch_nowait([b"x"]) == range(27, 28), "the ledger goes on"


def test_answered_ledgers_wake_the_client_a_few_times_not_once_each() -> None:
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings(add_timeout_s=5.0, idle_connection_s=1000.0)))
    for ledger in ledgers:
        cluster.wait(ledger.append(b"x"))
    before = cluster.clock.steps
    cluster.run(60.0)
    assert cluster.clock.steps - before < LEDGERS / 10


def test_the_one_ledger_that_is_not_answered_times_out_in_its_own_time() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(add_timeout_s=50.0, add_quorum_timeout_s=5.0))
    ledgers = create(cluster, client)
    stuck = ledgers[LEDGERS // 2]
    for bookie in cluster.bookies:
        bookie.rule = lambda request: (
            SILENCE if isinstance(request, AddBatch) and request.ledger_id == stuck.id else None
        )
    adds = [ledger.append(b"x") for ledger in ledgers]
    began = cluster.clock.seconds()
    with pytest.raises(AddQuorumTimedOut):
        cluster.wait(adds[LEDGERS // 2])
    assert cluster.clock.seconds() - began == pytest.approx(5.0, abs=1e-6)
    assert [ledger.last_add_confirmed for ledger in ledgers if ledger is not stuck] == [0] * (LEDGERS - 1)


def test_a_bookie_that_dies_is_replaced_in_every_ledger_and_no_single_entry_is_lost() -> None:
    """I-05: what the dead bookie had not answered goes to its replacement."""
    cluster = FakeCluster(4)
    ledgers = create(cluster, cluster.client(settings(add_timeout_s=5.0)), 30)
    victim = cluster.bookies[0]
    victim.rule = hold_adds
    adds = [ledger.append(b"%d" % ledger.id) for _ in range(3) for ledger in ledgers]
    cluster.run(0.5)
    victim.crash()
    for add in adds:
        cluster.wait(add)
    for ledger in ledgers:
        assert victim.bookie_id not in ledger.metadata.last_fragment.ensemble
        found = cluster.wait(ledger.read(0, 2))
        assert [entry.payload for entry in found] == [b"%d" % ledger.id] * 3


def test_a_full_connection_refuses_single_entries_of_all_ledgers_until_it_is_answered() -> None:
    """I-14."""
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings(connection_bytes_max=100_000)), write_quorum=3, ack_quorum=3)
    for bookie in cluster.bookies:
        bookie.rule = hold_adds
    taken = 0
    for ledger in ledgers * 10:
        if taken % len(ledgers) == 0:
            cluster.run(0.1)
        try:
            ledger.append_nowait(b"x" * 1000)
        except WindowFull:
            break
        taken += 1
    assert 90 < taken <= 90 + LEDGERS
    ready = ledgers[0].ready()
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
        bookie.release()
    cluster.wait(ready)
    assert ledgers[0].append_nowait(b"x") >= 1
    cluster.run(1.0)
    assert sum(ledger.last_add_confirmed + 1 for ledger in ledgers) == taken + 1


def test_many_ledgers_that_go_quiet_together_all_tell_their_lac() -> None:
    """I-07: readers see the last entry of each."""
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings(explicit_lac_interval_s=1.0)))
    for ledger in ledgers:
        ledger.append_batch_nowait([b"x"])
    cluster.run(3.0)
    told = {ledger_id for bookie in cluster.bookies for ledger_id in bookie.explicit_lacs}
    assert told == {ledger.id for ledger in ledgers}


def test_a_ledger_whose_next_entry_carries_the_lac_gets_no_request_for_it() -> None:
    cluster = FakeCluster()
    ledgers = create(cluster, cluster.client(settings(explicit_lac_interval_s=1.0)), 20)
    for _ in range(20):
        for ledger in ledgers:
            ledger.append_batch_nowait([b"x"])
        cluster.run(0.5)
    assert not any(isinstance(request, WriteLac) for bookie in cluster.bookies for request in bookie.requests)


def test_the_timer_of_explicit_lacs_ends_with_the_last_handle() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(explicit_lac_interval_s=1.0, idle_connection_s=1000.0))
    ledgers = create(cluster, client, 10)
    for ledger in ledgers:
        cluster.wait(ledger.append(b"x"))
    for ledger in ledgers:
        cluster.wait(ledger.close())
    cluster.run(client.settings.read_timeout_s)  # the deadlines of the questions of `create`
    before = cluster.clock.steps
    cluster.run(100.0)
    assert cluster.clock.steps - before <= 1
    assert not any(bookie.explicit_lacs for bookie in cluster.bookies)
