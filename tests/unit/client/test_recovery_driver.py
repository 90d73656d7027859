"""Recovering a ledger over fake bookies: the driver's part of I-21..I-40."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ClientClosed, LedgerFencedOff, RecoveryFailed
from bookkeeper.metadata.memory.store import Fault, MemoryFaults
from bookkeeper.model import LedgerId, LedgerState, Status
from bookkeeper.wire.messages import AddBatch, FenceRead, ReadBatch
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster

QUIET = ClientSettings(explicit_lac_interval_s=0.0)
BOTH = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])


def open_ledger(cluster: FakeCluster, count: int, **options: Any) -> WriteHandle:
    """A ledger with `count` acknowledged entries whose writer is still there."""
    client = cluster.client(QUIET)
    ledger: WriteHandle = cluster.wait(client.create(**{"ensemble": 3, "write_quorum": 3, "ack_quorum": 2, **options}))
    if count:
        cluster.wait(ledger.append_many([b"entry %d" % number for number in range(count)]))
    cluster.run(0.1)
    return ledger


def members(cluster: FakeCluster, ledger: WriteHandle) -> list[FakeBookie]:
    return [cluster.by_id(bookie_id) for bookie_id in ledger.metadata.last_fragment.ensemble]


@BOTH
def test_an_entry_that_reached_one_bookie_is_kept_and_written_back(use_v2: bool) -> None:
    """I-30, I-37."""
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 5)
    first, second, third = members(cluster, ledger)

    def hold_adds(request: Any) -> object:
        return HOLD if isinstance(request, AddBatch) and not request.recovery else None

    def hold_adds_and_the_entry(request: Any) -> object:  # with two denials the entry would be left out
        return HOLD if isinstance(request, FenceRead) and request.entry_id == 5 else hold_adds(request)

    second.rule, third.rule = hold_adds_and_the_entry, hold_adds
    ledger.append_nowait(b"unacknowledged")
    cluster.run(0.5)
    reader = cluster.client(ClientSettings(use_v2=use_v2))
    handle = cluster.wait(reader.open(ledger.ledger_id))
    assert handle.last_add_confirmed == 5
    assert cluster.wait(handle.read_last()).payload == b"unacknowledged"
    assert handle.length == sum(len(b"entry %d" % number) for number in range(5)) + len(b"unacknowledged")
    assert sum(5 in bookie.entries[ledger.ledger_id] for bookie in (first, second, third)) == 3
    third.rule = second.rule = lambda request: None
    second.release()
    third.release()
    with pytest.raises(LedgerFencedOff):
        cluster.wait(ledger.append(b"after"))


def test_every_recovery_read_fences() -> None:
    """I-29."""
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 20)
    for bookie in cluster.bookies:
        bookie.requests.clear()
    cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    kinds = {type(request) for bookie in cluster.bookies for request in bookie.requests}
    assert FenceRead in kinds
    assert ReadBatch not in kinds


def test_the_metadata_says_in_recovery_before_anybody_is_fenced() -> None:
    """I-21."""
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 3)
    watcher = cluster.client(QUIET)
    states: list[LedgerState] = []

    def note(request: Any) -> None:
        if isinstance(request, FenceRead):
            states.append(cluster.wait(watcher.metadata(ledger.ledger_id)).state)

    for bookie in cluster.bookies:
        bookie.rule = note
    cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    assert states
    assert set(states) <= {LedgerState.IN_RECOVERY, LedgerState.CLOSED}


def test_one_dead_bookie_without_a_spare_does_not_stop_recovery() -> None:
    """I-28a."""
    cluster = FakeCluster(3)
    ledger = open_ledger(cluster, 10)
    members(cluster, ledger)[0].crash()
    handle = cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    assert handle.last_add_confirmed == 9
    assert len(handle.metadata.fragments) == 1


def test_recovery_without_coverage_aborts_and_a_later_one_succeeds() -> None:
    """I-28, I-37, L-1."""
    cluster = FakeCluster(3)
    ledger = open_ledger(cluster, 10)
    silent = members(cluster, ledger)[:2]
    for bookie in silent:
        bookie.rule = lambda request: SILENCE
    client = cluster.client(QUIET)
    with pytest.raises(RecoveryFailed, match="ledger 0"):
        cluster.wait(client.open(ledger.ledger_id))
    assert cluster.wait(client.metadata(ledger.ledger_id)).state is LedgerState.IN_RECOVERY
    for bookie in silent:
        bookie.rule = lambda request: None
    cluster.run(15.0)
    assert cluster.wait(client.open(ledger.ledger_id)).last_add_confirmed == 9


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.FAILED_BEFORE, Fault.SESSION_LOST])
@pytest.mark.parametrize("which", [1, 2], ids=["marking", "closing"])
def test_a_lost_reply_of_a_compare_and_set_is_looked_up(fault: Fault, which: int) -> None:
    """I-16."""
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 10)
    faults = MemoryFaults(delay_max_s=0.05)
    client = cluster.client(QUIET, faults=faults)
    cluster.run(1.0)
    opening = client.open(ledger.ledger_id)
    if which == 2:
        watcher = cluster.client(QUIET)
        assert cluster.clock.run_until(
            lambda: cluster.wait(watcher.metadata(0)).state is LedgerState.IN_RECOVERY, seconds=5.0
        )
    faults.force(fault, "write")
    handle = cluster.wait(opening)
    assert (handle.last_add_confirmed, handle.closed) == (9, True)


def test_recoverers_at_the_same_time_agree() -> None:
    """I-39, I-40."""
    cluster = FakeCluster(4)
    ledger = open_ledger(cluster, 50)
    third = members(cluster, ledger)[2]
    third.rule = lambda request: HOLD if isinstance(request, AddBatch) and not request.recovery else None
    ledger.append_batch_nowait([b"more"] * 20)
    openings = [cluster.client(QUIET).open(ledger.ledger_id) for _ in range(3)]
    ends = {(handle.last_add_confirmed, handle.length) for handle in (cluster.wait(opening) for opening in openings)}
    assert len(ends) == 1
    assert ends.pop()[0] >= ledger.last_add_confirmed >= 49


def test_two_opens_by_one_client_share_one_recovery() -> None:
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 10)
    for bookie in cluster.bookies:
        bookie.requests.clear()
    client = cluster.client(QUIET)
    first, second = client.open(ledger.ledger_id), client.open(ledger.ledger_id)
    assert cluster.wait(first).metadata == cluster.wait(second).metadata
    fences = [r for b in cluster.bookies for r in b.requests if isinstance(r, FenceRead) and r.entry_id == -1]
    assert len(fences) == 3


@BOTH
def test_a_client_may_recover_the_ledger_it_is_writing(use_v2: bool) -> None:
    """Late answers to the writer must not pass for the recoverer's, nor the other way round."""
    cluster = FakeCluster()
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0, use_v2=use_v2))
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * 20))
    acknowledged: list[range] = []
    ledger.on_acknowledged = acknowledged.append
    third = members(cluster, ledger)[2]
    third.rule = lambda request: HOLD if isinstance(request, AddBatch) and not request.recovery else None
    ledger.append_batch_nowait([b"y"] * 500)
    opening = client.open(ledger.ledger_id)
    cluster.run(0.004)
    third.release()
    handle = cluster.wait(opening)
    with pytest.raises(LedgerFencedOff):
        cluster.wait(ledger.append(b"z"))
    last_acknowledged = max((entry_ids[-1] for entry_ids in acknowledged), default=19)
    assert handle.last_add_confirmed >= last_acknowledged
    assert len(cluster.wait(handle.read(0, handle.last_add_confirmed))) == handle.last_add_confirmed + 1


def test_closing_the_client_ends_its_recovery() -> None:
    """L-2."""
    cluster = FakeCluster()
    ledger = open_ledger(cluster, 10)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: SILENCE
    client = cluster.client(QUIET)
    opening: Deferred[Any] = client.open(ledger.ledger_id)
    cluster.run(1.0)
    cluster.wait(client.close())
    with pytest.raises(ClientClosed):
        cluster.wait(opening)


def test_a_bookie_that_fails_during_the_write_back_is_replaced_in_the_closing_metadata_only() -> None:
    """I-36."""
    cluster = FakeCluster(5)
    ledger = open_ledger(cluster, 30)
    bad = members(cluster, ledger)[1]
    bad.rule = lambda request: Status.IO_ERROR if isinstance(request, AddBatch) else None
    store = cluster.client(QUIET).store
    seen: list[tuple[LedgerState, int]] = []
    store.ledgers.watch(
        LedgerId(ledger.ledger_id),
        lambda metadata: seen.append((metadata.value.state, len(metadata.value.fragments))) if metadata else None,
    )
    handle = cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    assert bad.bookie_id not in handle.metadata.last_fragment.ensemble
    assert (LedgerState.CLOSED, len(handle.metadata.fragments)) == seen[-1]
    assert all(fragments == 1 for state, fragments in seen if state is not LedgerState.CLOSED)
    assert len(cluster.wait(handle.read(0, 29))) == 30
