"""Appending, back-pressure, order of acknowledgements, closing."""

from typing import Any

import pytest

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    AddQuorumTimedOut,
    BookKeeperError,
    ClientClosed,
    InvalidArgument,
    LedgerClosed,
    LedgerFencedOff,
    NotEnoughBookies,
    UnauthorizedAccess,
    WindowFull,
)
from bookkeeper.model import LedgerState, Status
from bookkeeper.wire.messages import AddBatch
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def hold_adds(request: Any) -> object:
    return HOLD if isinstance(request, AddBatch) and not request.recovery else None


def failing(status: Status) -> Any:
    return lambda request: status if isinstance(request, AddBatch) else None


def create(cluster: FakeCluster, client: Any, **options: Any) -> WriteHandle:
    handle: WriteHandle = cluster.wait(client.create(**{"ensemble": 3, "write_quorum": 3, "ack_quorum": 2, **options}))
    return handle


def test_acknowledgements_come_in_order_once_each_in_every_form() -> None:
    """I-06."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    told: list[Any] = []
    ranges: list[range] = []
    ledger.on_acknowledged = ranges.append
    ledger.append_nowait(b"0", lambda entry_id, error: told.append((entry_id, error)))
    ledger.append(b"1").addCallback(told.append)
    ledger.append_many([b"2", b"3"]).addCallback(told.append)
    assert ledger.append_batch_nowait([b"4", b"5"]) == range(4, 6)
    assert cluster.wait(ledger.flush()) == 5
    assert told == [(0, None), 1, range(2, 4)]
    assert [entry_id for entry_ids in ranges for entry_id in entry_ids] == list(range(6))


def test_an_add_is_acknowledged_by_its_ack_quorum_not_by_less() -> None:
    """I-05."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    for bookie in cluster.bookies[:2]:
        bookie.rule = hold_adds
    acknowledged: list[int] = []
    ledger.append(b"entry").addCallback(acknowledged.append)
    cluster.run(1.0)
    assert acknowledged == []
    cluster.bookies[0].release()
    cluster.run(1.0)
    assert acknowledged == [0]


def test_a_slow_third_copy_holds_the_window_not_the_acknowledgement() -> None:
    """I-14."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(window_entries_max=10)))
    cluster.bookies[0].rule = hold_adds
    cluster.wait(ledger.append_many([b"x"] * 10))
    with pytest.raises(WindowFull, match="window is full"):
        ledger.append_nowait(b"y")
    assert ledger.window_free == 0
    ready = ledger.ready()
    assert not ready.called
    cluster.bookies[0].rule = lambda request: None
    cluster.bookies[0].release()
    cluster.wait(ready)
    assert ledger.append_nowait(b"y") == 10


def test_calls_wait_for_room_in_their_order() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(window_entries_max=8)))
    first = ledger.append_many([b"a"] * 100)
    second = ledger.append(b"b")
    with pytest.raises(WindowFull):
        ledger.append_nowait(b"c")
    assert cluster.wait(first) == range(100)
    assert cluster.wait(second) == 100


def test_calls_that_wait_for_room_are_bounded() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(window_entries_max=4, window_bytes_max=1000)))
    waiting = [ledger.append(b"x") for _ in range(8)]
    with pytest.raises(WindowFull):
        cluster.wait(ledger.append(b"y"))
    assert [cluster.wait(deferred) for deferred in waiting] == list(range(8))


def test_the_window_bounds_bytes_and_takes_one_entry_of_any_size() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(window_bytes_max=1000)))
    ledger.append_nowait(b"x" * 5000)
    with pytest.raises(WindowFull):
        ledger.append_nowait(b"y")
    cluster.wait(ledger.flush())
    cluster.run(0.1)  # the third copies
    ledger.append_nowait(b"x" * 600)
    with pytest.raises(WindowFull):
        ledger.append_batch_nowait([b"y" * 300, b"y" * 300])
    assert ledger.append_batch_nowait([b"y" * 300]) == range(2, 3)


@pytest.mark.parametrize("bound", [{"connection_bytes_max": 2000}, {"connection_entries_max": 1}])
def test_a_full_connection_stops_handles_until_it_is_answered(bound: dict[str, int]) -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(**bound)))
    cluster.bookies[0].rule = hold_adds
    cluster.wait(ledger.append(b"x" * 3000))
    with pytest.raises(WindowFull, match="connection to bookie"):
        ledger.append_nowait(b"y")
    ready = ledger.ready()
    cluster.run(1.0)
    assert not ready.called
    cluster.bookies[0].rule = lambda request: None
    cluster.bookies[0].release()
    cluster.wait(ready)


def test_one_flush_is_one_write_per_bookie() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"connected"))
    before = client.transport_writes
    cluster.wait(ledger.append_many([b"x" * 20] * 200))
    assert client.transport_writes - before == 3


def test_an_entry_too_large_for_a_frame_is_refused_and_the_ledger_goes_on() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(frame_size_max=1000)))
    with pytest.raises(InvalidArgument, match=r"entry of 2000 bytes is larger than \d+"):
        cluster.wait(ledger.append(b"x" * 2000))
    with pytest.raises(InvalidArgument):
        ledger.append_nowait(b"x" * 2000)
    with pytest.raises(InvalidArgument):
        cluster.wait(ledger.append_many([b"x", b"x" * 2000]))
    assert cluster.wait(ledger.append(b"x" * 800)) == 0


def test_close_waits_for_what_was_appended_and_fixes_the_end() -> None:
    """I-12."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    ledger.append_batch_nowait([b"four"] * 10)
    metadata = cluster.wait(ledger.close())
    assert (metadata.last_entry_id, metadata.length) == (9, 40)
    assert cluster.wait(ledger.close()) == metadata
    with pytest.raises(LedgerClosed, match="is closed"):
        ledger.append_nowait(b"more")
    with pytest.raises(LedgerClosed):
        cluster.wait(ledger.ready())


def test_closing_at_once_fails_what_is_pending() -> None:
    """I-12: the length is taken after the queue is drained."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    cluster.wait(ledger.append(b"kept"))
    for bookie in cluster.bookies:
        bookie.rule = hold_adds
    pending = ledger.append(b"dropped")
    cluster.run(0.5)
    metadata = cluster.wait(ledger.close_now())
    assert (metadata.last_entry_id, metadata.length) == (0, 4)
    with pytest.raises(LedgerClosed, match="closed at entry 0, before this add was acknowledged"):
        cluster.wait(pending)


def test_an_empty_ledger_closes_at_minus_one() -> None:
    cluster = FakeCluster()
    metadata = cluster.wait(create(cluster, cluster.client()).close())
    assert (metadata.last_entry_id, metadata.length) == (-1, 0)


def test_a_fenced_writer_never_succeeds_again_and_leaves_the_metadata_alone() -> None:
    """I-08, I-11."""
    cluster = FakeCluster(4)
    ledger = create(cluster, cluster.client())
    cluster.wait(ledger.append(b"before"))
    before = ledger.metadata
    failed: list[BookKeeperError] = []
    ledger.on_failed = failed.append
    for bookie in cluster.bookies:
        bookie.fenced.add(ledger.ledger_id)
    with pytest.raises(LedgerFencedOff, match="taken over by another client"):
        cluster.wait(ledger.append(b"after"))
    for bookie in cluster.bookies:
        bookie.fenced.clear()
    with pytest.raises(LedgerFencedOff):
        cluster.wait(ledger.append(b"again"))
    assert len(failed) == 1
    assert ledger.error is failed[0]
    cluster.run(10.0)
    assert cluster.wait(cluster.client().metadata(ledger.ledger_id)) == before


def test_closing_after_another_client_recovered_is_an_error() -> None:
    """I-12."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    cluster.wait(ledger.append_many([b"x"] * 5))
    cluster.bookies[0].rule = cluster.bookies[1].rule = hold_adds
    ledger.append_nowait(b"on one bookie only")
    cluster.run(0.5)
    reader = cluster.client()
    end = cluster.wait(reader.open(ledger.ledger_id)).metadata
    with pytest.raises((LedgerClosed, LedgerFencedOff, NotEnoughBookies)):
        cluster.wait(ledger.close())
    assert cluster.wait(reader.metadata(ledger.ledger_id)) == end


def test_closing_a_ledger_that_recovery_closed_at_the_same_end_succeeds() -> None:
    """I-12."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    cluster.wait(ledger.append_many([b"x"] * 5))
    end = cluster.wait(cluster.client().open(ledger.ledger_id)).metadata
    assert cluster.wait(ledger.close()) == end


def test_a_wrong_password_at_the_bookies_ends_the_handle() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    cluster.wait(ledger.append(b"x"))
    for bookie in cluster.bookies:
        bookie.keys[ledger.ledger_id] = b"another key 20 bytes"
    with pytest.raises(UnauthorizedAccess, match="refuses the password"):
        cluster.wait(ledger.append(b"x"))


def test_an_add_without_quorum_in_time_names_what_each_bookie_said() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(add_timeout_s=60.0, add_quorum_timeout_s=3.0))
    ledger = create(cluster, client)
    cluster.bookies[0].rule = cluster.bookies[1].rule = lambda request: SILENCE
    with pytest.raises(AddQuorumTimedOut, match="ledger 0 entry 0: fewer than 2 bookies"):
        cluster.wait(ledger.append(b"x"))


def test_a_handle_that_failed_closes_its_ledger_at_what_was_acknowledged() -> None:
    cluster = FakeCluster(3)
    client = cluster.client()
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"kept"))
    for bookie in cluster.bookies[:2]:
        bookie.rule = failing(Status.IO_ERROR)
    with pytest.raises(NotEnoughBookies, match=r"no replacement for .* I/O error"):
        cluster.wait(ledger.append(b"lost"))
    with pytest.raises(NotEnoughBookies):
        cluster.wait(ledger.close())
    metadata = cluster.wait(client.metadata(ledger.ledger_id))
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 0, 4)


def test_leaving_the_block_with_an_error_closes_and_keeps_that_error() -> None:
    cluster = FakeCluster()
    client = cluster.client()

    async def scenario() -> None:
        async with await client.create() as ledger:
            await ledger.append(b"x")
            raise KeyError("the application's own")

    with pytest.raises(KeyError, match="the application's own"):
        cluster.wait(scenario())
    assert cluster.wait(client.metadata(0)).last_entry_id == 0


def test_an_aborted_handle_leaves_the_ledger_open() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    ledger = create(cluster, client)
    cluster.wait(ledger.append(b"x"))
    ledger.abort()
    assert not cluster.wait(ledger.close()).is_closed
    assert cluster.wait(client.metadata(ledger.ledger_id)).state is LedgerState.OPEN
    assert cluster.wait(client.open(ledger.ledger_id)).last_add_confirmed == 0


def test_a_callback_that_fails_does_not_stop_the_others() -> None:
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client())
    told: list[int] = []

    def broken(entry_id: int, error: object) -> None:
        raise RuntimeError("the application's mistake")

    ledger.append_nowait(b"0", broken)
    ledger.append_nowait(b"1", lambda entry_id, error: told.append(entry_id))
    cluster.wait(ledger.flush())
    assert told == [1]


def test_closing_the_client_fails_pending_adds_and_leaves_the_ledger_open() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    ledger = create(cluster, client)
    for bookie in cluster.bookies:
        bookie.rule = hold_adds
    pending = ledger.append(b"x")
    cluster.run(0.5)
    cluster.wait(client.close())
    with pytest.raises(ClientClosed):
        cluster.wait(pending)
    with pytest.raises(ClientClosed):
        cluster.wait(client.create())
    assert cluster.wait(cluster.client().metadata(ledger.ledger_id)).state is LedgerState.OPEN


def test_the_lac_is_told_once_the_writer_pauses() -> None:
    """I-07: readers of an open ledger see everything acknowledged."""
    cluster = FakeCluster()
    ledger = create(cluster, cluster.client(settings(explicit_lac_interval_s=1.0)))
    cluster.wait(ledger.append_many([b"x"] * 10))
    reader = cluster.client()
    assert cluster.wait(reader.open_without_recovery(ledger.ledger_id)).last_add_confirmed < 9
    cluster.run(3.0)
    assert cluster.wait(reader.open_without_recovery(ledger.ledger_id)).last_add_confirmed == 9


def test_a_bookie_without_v3_gets_no_explicit_lac_and_everything_else_works() -> None:
    cluster = FakeCluster()
    for bookie in cluster.bookies:
        bookie.version_3 = False
    ledger = create(cluster, cluster.client(settings(explicit_lac_interval_s=1.0)))
    cluster.wait(ledger.append_many([b"x"] * 10))
    cluster.run(5.0)
    cluster.wait(ledger.append(b"y"))
    handle = cluster.wait(cluster.client().open_without_recovery(ledger.ledger_id))
    assert handle.last_add_confirmed == 9
    assert cluster.wait(ledger.close()).last_entry_id == 10


@pytest.mark.parametrize(("ensemble", "write_quorum", "ack_quorum"), [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_quorums_that_cannot_work_are_refused_before_anything_happens(
    ensemble: int, write_quorum: int, ack_quorum: int
) -> None:
    """I-01."""
    cluster = FakeCluster()
    client = cluster.client()
    with pytest.raises(InvalidArgument, match="need ensemble >= write quorum >= ack quorum >= 1"):
        cluster.wait(client.create(ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum))
    assert cluster.wait(client.create()).ledger_id == 0


def test_old_metadata_versions_are_written_on_request() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(metadata_format_version=2))
    assert create(cluster, client).metadata.format_version == 2
    oldest = create(cluster, client, metadata_version=1, write_quorum=2, ack_quorum=2)
    assert (oldest.metadata.format_version, oldest.metadata.digest_type) == (1, None)
    with pytest.raises(InvalidArgument, match="metadata version 1 has no ack quorum"):
        create(cluster, client, metadata_version=1)
    cluster.wait(oldest.append(b"x"))
    cluster.wait(oldest.close())
    assert cluster.wait(cluster.wait(client.open(oldest.ledger_id)).read(0, 0))[0].payload == b"x"


def test_two_ledgers_of_one_client_share_connections_and_not_acknowledgements() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    first, second = create(cluster, client), create(cluster, client)
    before = client.transport_writes
    first.append_batch_nowait([b"a"] * 10)
    second.append_batch_nowait([b"b"] * 20)
    assert (cluster.wait(first.flush()), cluster.wait(second.flush())) == (9, 19)
    assert client.transport_writes - before == 3
