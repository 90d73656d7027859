"""A bookie fails while a ledger is written."""

from math import ceil
from typing import Any

import pytest

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import LedgerClosed, LedgerFencedOff, MetadataTooLarge, NotEnoughBookies
from bookkeeper.metadata.ledgers.store import UNCLOSED_SHARE
from bookkeeper.metadata.memory.store import Fault, MemoryFaults
from bookkeeper.metadata.tree import operation_size
from bookkeeper.model import LedgerId, LedgerState, Status
from bookkeeper.wire.messages import AddBatch
from tests.support.fake_bookie import HOLD, SILENCE, FakeBookie, FakeCluster

QUIET = ClientSettings(explicit_lac_interval_s=0.0)


def member(cluster: FakeCluster, ledger: WriteHandle, index: int) -> FakeBookie:
    return cluster.by_id(ledger.metadata.last_fragment.ensemble[index])


def refuse_adds(status: Status) -> Any:
    return lambda request: status if isinstance(request, AddBatch) else None


def create(cluster: FakeCluster, client: Any) -> WriteHandle:
    ledger: WriteHandle = cluster.wait(client.create(ensemble=3, write_quorum=2, ack_quorum=2))
    return ledger


def holders(cluster: FakeCluster, ledger_id: int, entry_id: int) -> set[str]:
    return {bookie.bookie_id for bookie in cluster.bookies if entry_id in bookie.entries.get(ledger_id, {})}


@pytest.mark.parametrize("how", ["killed", "refuses", "read-only", "silent"])
def test_writing_goes_on_with_a_replacement_and_nothing_acknowledged_is_lost(how: str) -> None:
    """I-05, I-09, I-10."""
    cluster = FakeCluster(5)
    client = cluster.client(QUIET)
    ledger = create(cluster, client)
    cluster.wait(ledger.append_many([b"before"] * 10))
    failed = member(cluster, ledger, 1)
    if how == "killed":
        failed.crash()
    elif how == "silent":
        failed.rule = lambda request: SILENCE
    else:
        failed.rule = refuse_adds(Status.READ_ONLY if how == "read-only" else Status.IO_ERROR)
    cluster.wait(ledger.append_many([b"after"] * 10))
    first, second = ledger.metadata.fragments
    assert (first.first_entry_id, second.first_entry_id) == (0, 10)
    assert failed.bookie_id not in second.ensemble
    assert [b for b in first.ensemble if b != failed.bookie_id] == [second.ensemble[0], second.ensemble[2]]
    metadata = cluster.wait(ledger.close())
    for entry_id in range(20):
        ensemble = metadata.fragment_of(entry_id).ensemble
        named = {ensemble[(entry_id + copy) % 3] for copy in range(2)}
        assert named <= holders(cluster, ledger.ledger_id, entry_id)
    handle = cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    payloads = [entry.payload for entry in cluster.wait(handle.read(0, 19))]
    assert payloads == [b"before"] * 10 + [b"after"] * 10


def test_nothing_is_acknowledged_while_the_change_is_not_committed() -> None:
    """I-09."""
    cluster = FakeCluster(4)
    faults = MemoryFaults(delay_max_s=0.0)
    client = cluster.client(QUIET, faults=faults)
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    committed: list[int] = []
    acknowledged_when: list[int] = []
    ledger.on_acknowledged = lambda entry_ids: acknowledged_when.append(len(ledger.metadata.fragments))
    client.store.ledgers.watch(LedgerId(ledger.ledger_id), lambda metadata: committed.append(1))
    member(cluster, ledger, 0).crash()
    faults.delay_max_s = 5.0
    cluster.wait(ledger.append_many([b"x"] * 30))
    assert acknowledged_when
    assert set(acknowledged_when) == {2}


def test_two_failures_in_one_window_are_both_replaced() -> None:
    """I-05: the interleaving of two changes close together."""
    cluster = FakeCluster(6)
    client = cluster.client(QUIET)
    ledger = create(cluster, client)
    adds = ledger.append_many([b"x"] * 50)
    member(cluster, ledger, 0).crash()
    member(cluster, ledger, 1).crash()
    cluster.wait(adds)
    metadata = cluster.wait(ledger.close())
    dead = {bookie.bookie_id for bookie in cluster.bookies if not bookie.process.alive}
    assert not dead & set(metadata.last_fragment.ensemble)
    assert [len(cluster.wait(cluster.wait(client.open(0)).read(0, 49)))] == [50]


def test_a_failure_without_a_spare_bookie_ends_the_handle_with_a_reason() -> None:
    cluster = FakeCluster(3)
    ledger = create(cluster, cluster.client(QUIET))
    failed = member(cluster, ledger, 2)
    failed.rule = refuse_adds(Status.TOO_MANY_REQUESTS)
    with pytest.raises(
        NotEnoughBookies, match=f"no replacement for {failed.bookie_id} .*outside it: none: .*too many requests"
    ):
        cluster.wait(ledger.append_many([b"x"] * 3))


@pytest.mark.parametrize("spare_before", [False, True])
def test_a_just_registered_bookie_replaces_a_failed_one(spare_before: bool) -> None:
    """Bookies restart one after the other, and the last one has just registered.

    spare_before: the bookie failed this ledger earlier and has registered again; otherwise it is a new bookie.
    """
    cluster = FakeCluster(4)
    client = cluster.client(QUIET)
    if not spare_before:
        cluster.bookies[3].leave()
        cluster.run(1.0)
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    restarted = cluster.bookies[3]
    if spare_before:
        restarted = member(cluster, ledger, 2)
        restarted.crash()
        cluster.wait(ledger.append_many([b"1"] * 3))
        cluster.run(60.0)  # until its registration has ended
    client._context.directory._watch.cancel()  # noqa: SLF001  # shows nothing from here on
    restarted.start()
    cluster.run(1.0)
    failed = member(cluster, ledger, 0)
    failed.crash()
    cluster.wait(ledger.append_many([b"2"] * 3))
    ensemble = ledger.metadata.last_fragment.ensemble
    assert restarted.bookie_id in ensemble
    assert failed.bookie_id not in ensemble


def test_a_change_is_refused_after_one_more_look_at_the_list_of_bookies() -> None:
    cluster = FakeCluster(3)
    client = cluster.client(QUIET)
    ledger = create(cluster, client)
    looks: list[int] = []
    current = client.store.bookies.current

    def counted() -> Any:
        looks.append(1)
        return current()

    client.store.bookies.current = counted
    member(cluster, ledger, 0).crash()
    with pytest.raises(NotEnoughBookies, match="no replacement"):
        cluster.wait(ledger.append_many([b"x"] * 3))
    assert len(looks) == 1


@pytest.mark.parametrize("ack_quorum", [2, 3])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_adds_that_a_busy_bookie_refuses_are_offered_to_it_again(ack_quorum: int, one_by_one: bool) -> None:
    """Nothing is wrong with it; to replace it would move the load to bookies that are about to refuse too."""
    cluster = FakeCluster(3)
    client = cluster.client(QUIET)
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=ack_quorum))
    busy = member(cluster, ledger, 1)
    until = cluster.clock.seconds() + 1.5
    refuse = refuse_adds(Status.TOO_MANY_REQUESTS)
    busy.rule = lambda request: refuse(request) if cluster.clock.seconds() < until else None
    if one_by_one:
        for number in range(30):
            cluster.wait(ledger.append(b"%d" % number))
    else:
        cluster.wait(ledger.append_many([b"%d" % number for number in range(30)]))
    cluster.run(3.0)
    assert len(ledger.metadata.fragments) == 1
    assert busy.payload_count(ledger.ledger_id) == 30
    again = cluster.wait(ledger.append(b"goes on"))
    cluster.run(0.1)
    assert again == 30
    assert busy.payload_count(ledger.ledger_id) == 31
    assert cluster.wait(ledger.close()).last_entry_id == 30


def test_the_last_copy_of_an_acknowledged_entry_is_offered_again_too() -> None:
    """Refused once the others have made the ack quorum: the frame must still be there."""
    cluster = FakeCluster(3)
    ledger = cluster.wait(cluster.client(QUIET).create(ensemble=3, write_quorum=3, ack_quorum=2))
    busy = member(cluster, ledger, 1)
    held: list[Any] = []
    busy.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    cluster.wait(ledger.append_many([b"%d" % number for number in range(30)]))
    held, busy.held = busy.held, []
    for connection, request in held:
        connection.send(connection.codec.reply(request, Status.TOO_MANY_REQUESTS))
    busy.rule = lambda request: None
    cluster.run(1.0)
    assert busy.payload_count(ledger.ledger_id) == 30
    cluster.wait(ledger.append(b"goes on"))
    assert len(ledger.metadata.fragments) == 1


def test_a_bookie_that_stays_busy_for_the_time_of_an_add_is_replaced() -> None:
    cluster = FakeCluster(4)
    ledger = create(cluster, cluster.client(QUIET))
    busy = member(cluster, ledger, 1)
    busy.rule = refuse_adds(Status.TOO_MANY_REQUESTS)
    began = cluster.clock.seconds()
    cluster.wait(ledger.append_many([b"x"] * 30))
    assert QUIET.add_timeout_s <= cluster.clock.seconds() - began < QUIET.add_timeout_s + 2.0
    assert busy.bookie_id not in ledger.metadata.last_fragment.ensemble
    assert sum(isinstance(request, AddBatch) for request in busy.requests) < 300  # later and later
    cluster.wait(ledger.close())


def test_nothing_is_offered_to_a_busy_bookie_once_the_handle_has_ended() -> None:
    cluster = FakeCluster(3)
    ledger = create(cluster, cluster.client(QUIET))
    busy = member(cluster, ledger, 0)
    busy.rule = refuse_adds(Status.TOO_MANY_REQUESTS)
    pending = ledger.append_many([b"x"] * 3)
    cluster.run(0.01)
    ledger.abort()
    with pytest.raises(LedgerClosed):
        cluster.wait(pending)
    busy.requests.clear()
    cluster.run(60.0)
    assert busy.requests == []


def test_a_replacement_that_hangs_is_replaced_too_although_nothing_more_is_appended() -> None:
    """L-2: what is sent again has deadlines of its own, also when the metadata store took its time."""
    cluster = FakeCluster(6)
    client = cluster.client(QUIET, faults=MemoryFaults(delay_max_s=0.02))
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    first = ledger.metadata.last_fragment.ensemble
    outside = [bookie for bookie in cluster.bookies if bookie.bookie_id not in first]
    for bookie in (*outside[:-1], member(cluster, ledger, 0), member(cluster, ledger, 1), member(cluster, ledger, 2)):
        bookie.rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    done = ledger.append(b"1")
    cluster.run(600.0)
    assert done.called  # acknowledged or refused: not waiting for ever
    done.addErrback(lambda _: None)


def test_a_quorum_timeout_does_not_hide_a_response_timeout_after_a_change() -> None:
    cluster = FakeCluster(6)
    settings = ClientSettings(explicit_lac_interval_s=0.0, add_quorum_timeout_s=3000.0)
    client = cluster.client(settings, faults=MemoryFaults(delay_max_s=0.02))
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    member(cluster, ledger, 0).rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    member(cluster, ledger, 1).rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    done = ledger.append_many([b"1"] * 3)
    cluster.run(60.0)
    assert done.called
    hung = member(cluster, ledger, 2)
    hung.rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    done = ledger.append_many([b"2"] * 3)
    cluster.run(60.0)
    assert done.called
    assert hung.bookie_id not in ledger.metadata.last_fragment.ensemble


def test_a_spare_bookie_that_failed_shortly_before_is_named_as_such() -> None:
    cluster = FakeCluster(4)
    ledger = create(cluster, cluster.client(QUIET))
    for bookie in cluster.bookies:
        bookie.rule = refuse_adds(Status.TOO_MANY_REQUESTS)
    with pytest.raises(NotEnoughBookies, match=r"outside it: (\S+) \(of these \1 failed this client shortly before\)"):
        cluster.wait(ledger.append_many([b"x"] * 3))


def test_a_bookie_that_joins_later_is_used() -> None:
    cluster = FakeCluster(3)
    ledger = create(cluster, cluster.client(QUIET))
    cluster.wait(ledger.append(b"x"))
    cluster.bookies.append(FakeBookie(cluster, "b9"))
    cluster.run(1.0)
    member(cluster, ledger, 0).crash()
    cluster.wait(ledger.append_many([b"y"] * 3))
    assert "b9:3181" in ledger.metadata.last_fragment.ensemble


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.FAILED_BEFORE, Fault.SESSION_LOST])
def test_a_lost_reply_of_the_compare_and_set_is_looked_up(fault: Fault) -> None:
    """I-16."""
    cluster = FakeCluster(4)
    faults = MemoryFaults(delay_max_s=0.01)
    client = cluster.client(QUIET, faults=faults)
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    member(cluster, ledger, 0).crash()
    faults.force(fault, "write")
    cluster.wait(ledger.append_many([b"x"] * 5))
    assert len(ledger.metadata.fragments) == 2
    faults.force(fault, "write")
    assert cluster.wait(ledger.close()).last_entry_id == 5


@pytest.mark.parametrize("closed", [False, True], ids=["in recovery", "closed"])
def test_a_writer_that_finds_the_ledger_taken_over_stops(closed: bool) -> None:
    """I-11."""
    cluster = FakeCluster(4)
    client = cluster.client(QUIET)
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    store = cluster.client(QUIET).store
    current = cluster.wait(store.ledgers.read(LedgerId(ledger.ledger_id)))
    taken = current.value.in_recovery()
    if closed:
        taken = taken.closed(current.value.last_fragment.first_entry_id, 1)
    written = cluster.wait(store.ledgers.write(LedgerId(ledger.ledger_id), taken, current.version))
    member(cluster, ledger, 0).crash()
    with pytest.raises(LedgerClosed if closed else LedgerFencedOff):
        cluster.wait(ledger.append_many([b"x"] * 5))
    cluster.run(30.0)
    assert cluster.wait(store.ledgers.read(LedgerId(ledger.ledger_id))) == written


def test_late_answers_of_a_replaced_bookie_do_not_count() -> None:
    """I-05."""
    cluster = FakeCluster(4)
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0, add_timeout_s=1.0))
    ledger = create(cluster, client)
    slow = member(cluster, ledger, 0)
    slow.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    spare = next(b for b in cluster.bookies if b.bookie_id not in ledger.metadata.last_fragment.ensemble)
    spare.rule = lambda request: HOLD if isinstance(request, AddBatch) else None
    acknowledged: list[int] = []
    ledger.append(b"0").addCallback(acknowledged.append)
    cluster.run(1.2)
    assert slow.bookie_id not in ledger.metadata.last_fragment.ensemble
    slow.release()
    cluster.run(0.2)
    assert acknowledged == []
    spare.rule = lambda request: None
    spare.release()
    cluster.run(0.2)
    assert acknowledged == [0]


def test_the_number_of_changes_is_bounded() -> None:
    cluster = FakeCluster(6)
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.0, ensemble_changes_max=1))
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"0"))
    member(cluster, ledger, 0).crash()
    cluster.wait(ledger.append_many([b"1"] * 3))
    member(cluster, ledger, 1).crash()
    with pytest.raises(Exception, match="limit of ensemble changes"):
        cluster.wait(ledger.append_many([b"2"] * 3))
    cluster.run(30.0)
    assert cluster.wait(client.metadata(ledger.ledger_id)).state is LedgerState.CLOSED


def test_a_bookie_that_failed_is_not_taken_back_at_once() -> None:
    """I-10: when everybody fails at the same time the handle ends; it does not go round in circles."""
    cluster = FakeCluster(4)
    ledger = create(cluster, cluster.client(QUIET))
    cluster.wait(ledger.append(b"0"))
    pending = ledger.append_many([b"x"] * 10)
    for bookie in cluster.bookies:
        bookie.rule = refuse_adds(Status.IO_ERROR)
    with pytest.raises(NotEnoughBookies):
        cluster.wait(pending)
    asked = {bookie.bookie_id for bookie in cluster.bookies if any(isinstance(r, AddBatch) for r in bookie.requests)}
    assert len(asked) >= 3
    assert len(ledger.metadata.fragments) <= 3


def limited(entries: int) -> tuple[FakeCluster, Any, WriteHandle]:
    """Return a ledger with acknowledged entries. Its metadata has room for a second fragment only when it is closed."""
    cluster = FakeCluster(5)
    note = {"note": b"x" * 2000}
    cluster.wait(cluster.client(QUIET).create(ensemble=3, write_quorum=2, ack_quorum=2, custom=note))
    path = f"{cluster.metadata.root}/00/0000/L0000"
    open_max = operation_size(path, cluster.metadata.stored(path)) + 8  # a creator token may take one byte more or less
    settings = ClientSettings(explicit_lac_interval_s=0.0, zk_request_size_max=ceil(open_max / UNCLOSED_SHARE))
    client = cluster.client(settings)
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=2, ack_quorum=2, custom=note))
    cluster.wait(ledger.append_many([b"before"] * entries))
    return cluster, client, ledger


def test_metadata_that_cannot_grow_ends_the_handle_and_the_ledger_is_closed() -> None:
    """No acknowledged entry is lost, and the error names the record, its size and the limit."""
    cluster, client, ledger = limited(10)
    member(cluster, ledger, 1).crash()
    words = "would have 2 fragments .* as long as the ledger is not closed"
    with pytest.raises(MetadataTooLarge, match=words) as failure:
        cluster.wait(ledger.append_many([b"after"] * 10))
    assert failure.value.size > failure.value.limit > 2000
    metadata = cluster.wait(client.metadata(ledger.ledger_id))
    assert (metadata.state, metadata.last_entry_id, len(metadata.fragments)) == (LedgerState.CLOSED, 9, 1)
    handle = cluster.wait(cluster.client(QUIET).open(ledger.ledger_id))
    assert [entry.payload for entry in cluster.wait(handle.read(0, 9))] == [b"before"] * 10


def test_a_ledger_whose_metadata_cannot_grow_can_be_recovered() -> None:
    """The remaining eighth has room for the fragments that a recovery adds."""
    cluster, client, ledger = limited(10)
    cluster.wait(ledger.append(b"last"))  # its LAC covers the others, so the recovery begins after them
    member(cluster, ledger, 1).crash()
    ledger.abort()
    handle = cluster.wait(client.open(ledger.ledger_id))
    assert handle.metadata.is_closed
    assert len(handle.metadata.fragments) == 2
    assert [entry.payload for entry in cluster.wait(handle.read(0, 10))] == [*[b"before"] * 10, b"last"]
