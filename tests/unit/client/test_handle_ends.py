"""What must not happen around the end of handles and waits: lost callbacks, torn connections, leaks, endless loops."""

from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from bookkeeper.client.recovery import LedgerRecovery
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError, InvalidArgument, LedgerClosed, MetadataUnavailable, ReadBeyondEnd
from bookkeeper.metadata.memory.store import MemoryFaults
from bookkeeper.model import EntryId
from bookkeeper.wire.messages import AddBatch, ReadBatch, ReadLac
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster

ALL = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2}


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def hold_adds(request: Any) -> object:
    return HOLD if isinstance(request, AddBatch) and not request.recovery else None


# --- callbacks


@pytest.mark.parametrize("how", ["close_now", "abort"])
def test_an_entry_that_was_acknowledged_is_never_reported_as_failed(how: str) -> None:
    """I-06. The callback of a range ends the handle before the callbacks of its entries have run."""
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client().create(**ALL))
    told: list[Any] = []
    ledger.on_acknowledged = lambda ids: getattr(ledger, how)()
    for payload in (b"0", b"1"):
        ledger.append_nowait(payload, lambda entry_id, error: told.append((entry_id, error)))
    cluster.run(1.0)
    assert told == [(0, None), (1, None)]


def test_payloads_that_are_no_bytes_end_their_handle_and_no_other() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    bad, good = (cluster.wait(client.create(**ALL)) for _ in range(2))
    failures: list[BookKeeperError] = []
    bad.on_failed = failures.append
    wrong: Any = ["text", "more"]
    bad.append_batch_nowait(wrong)
    added = good.append(b"fine")
    assert cluster.wait(added) == 0
    assert isinstance(failures[0], InvalidArgument)
    assert "str" in str(failures[0])
    with pytest.raises(InvalidArgument):
        cluster.wait(bad.append(b"too late"))


def test_many_payloads_that_are_no_bytes_fail_their_caller() -> None:
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client(settings(window_entries_max=4)).create(**ALL))
    wrong: Any = [b"fine"] * 300 + ["text"] * 300
    with pytest.raises(InvalidArgument):
        cluster.wait(ledger.append_many(wrong))


# --- chosen entry ids


def test_a_callback_that_drops_the_handle_stops_the_waiting_calls() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(window_entries_max=2))
    ledger = cluster.wait(client.create_advanced(**ALL))
    for bookie in cluster.bookies:
        bookie.rule = hold_adds
    adds = [ledger.append(0, b"0")]
    duplicates = [ledger.append(1, b"1"), ledger.append(1, b"again"), ledger.append(2, b"2"), ledger.append(3, b"3")]
    told: list[Any] = []
    for add in [*adds, *duplicates]:
        add.addErrback(lambda failure: (ledger.abort(), told.append(failure.value)))
    cluster.run(0.1)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
        bookie.release()
    cluster.run(1.0)
    assert all(add.called for add in duplicates)
    assert len(told) >= 3


def test_closing_with_a_gap_does_not_wait_for_an_id_that_cannot_come_any_more() -> None:
    """L-2, I-12."""
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client().create_advanced(**ALL))
    before = [ledger.append(0, b"0"), ledger.append(1, b"1")]
    behind = ledger.append(3, b"behind the gap")
    metadata = cluster.wait(ledger.close())
    assert (metadata.last_entry_id, metadata.length) == (1, 2)
    assert [cluster.wait(add) for add in before] == [0, 1]
    with pytest.raises(LedgerClosed):
        cluster.wait(behind)


# --- waiting given up


def test_giving_up_a_question_for_the_lac_leaves_the_connections_alone() -> None:
    cluster = FakeCluster()
    writer = cluster.wait(cluster.client().create(**ALL))
    cluster.wait(writer.append(b"0"))
    cluster.wait(writer.append(b"1"))
    reader = cluster.wait(cluster.client().open_without_recovery(writer.id))
    for bookie in cluster.bookies:
        bookie.rule = lambda request: HOLD if isinstance(request, ReadLac | ReadBatch) else None
    for ask in (reader.read_last_confirmed, reader.try_read_last_confirmed):
        asking = ask()
        cluster.run(0.1)
        asking.cancel()
        with pytest.raises(CancelledError):
            cluster.wait(asking)
        for bookie in cluster.bookies:
            bookie.release()
        cluster.run(0.5)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
    assert cluster.wait(reader.read_last_confirmed()) == 0


def test_giving_up_one_wait_for_room_from_anothers_callback_is_harmless() -> None:
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client(settings(window_entries_max=1)).create(**ALL))
    ledger.append_nowait(b"0")
    first, second = ledger.ready(), ledger.ready()
    cancelled: list[Any] = []
    first.addCallback(lambda _: second.cancel())
    second.addErrback(cancelled.append)
    cluster.run(1.0)
    cluster.wait(first)
    assert cancelled[0].check(CancelledError)


# --- one client, one ledger, several handles


def test_the_end_of_a_writer_does_not_disturb_a_recovery_of_its_ledger_by_the_same_client() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings(add_timeout_s=5.0))
    writer = cluster.wait(client.create(**ALL))
    cluster.wait(writer.append(b"0"))
    bookies = cluster.bookies
    cluster.wait(writer.append(b"1"))
    for bookie in bookies:
        bookie.rule = lambda request: HOLD if isinstance(request, AddBatch) and request.recovery else None
    started = cluster.clock.seconds()
    opening = client.open(writer.id)
    cluster.run(0.3)  # its recovery adds are on their way
    writer.abort()
    for bookie in bookies:
        bookie.release()
    reader = cluster.wait(opening)
    assert reader.last_add_confirmed == 1
    assert cluster.clock.seconds() - started < 2.0


def test_a_finished_recovery_is_forgotten() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    writer_client = cluster.client()
    for _ in range(3):
        writer = cluster.wait(writer_client.create(**ALL))
        cluster.bookies[0].rule = hold_adds
        cluster.wait(writer.append(b"0"))
        writer.abort()
        cluster.bookies[0].rule = lambda request: None
        cluster.wait(client.open(writer.id))
    cluster.run(10.0)  # until the deadlines of its requests have passed
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, LedgerRecovery)]


def test_a_fenced_handle_that_nobody_closes_is_forgotten() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.wait(client.create(**ALL))
    cluster.wait(writer.append(b"0"))
    cluster.wait(cluster.client().open(writer.id))
    writer.append(b"1").addErrback(lambda _: None)
    cluster.run(1.0)
    gone = weakref.ref(writer)
    del writer
    cluster.run(10.0)
    gc.collect()
    assert gone() is None


# --- loops


def test_bookies_that_all_fail_end_the_handle_even_without_a_quarantine() -> None:
    """L-9: five bookies that refuse every add must not take turns for ever."""
    cluster = FakeCluster(5)
    client = cluster.client(settings(quarantine_s=0.0))
    ledger = cluster.wait(client.create(**ALL))
    for bookie in cluster.bookies:
        bookie.crash()
    steps = cluster.clock.steps
    with pytest.raises(BookKeeperError):
        cluster.wait(ledger.append(b"0"))
    assert cluster.clock.steps - steps < 2000


# --- reading


def failed_handle(appends: int) -> tuple[FakeCluster, WriteHandle, list[Deferred[EntryId]]]:
    """Return a failed handle, its cluster, and its pending appends, which failed with it."""
    cluster = FakeCluster()
    ledger = cluster.wait(cluster.client().create(**ALL))
    for bookie in cluster.bookies:
        bookie.rule = hold_adds
    adds = [ledger.append(b"%d" % number) for number in range(appends)]
    cluster.run(0.1)
    ledger.append_batch_nowait(["text", "more"])  # type: ignore[list-item]  # ends the handle
    cluster.run(1.0)
    return cluster, ledger, adds


def test_each_append_to_a_failed_handle_raises_an_exception_of_its_own() -> None:
    cluster, ledger, _ = failed_handle(0)
    caught = []
    for call in [*[lambda: ledger.append(b"x")] * 3, ledger.ready, ledger.force, lambda: ledger.append(b"y")]:
        with pytest.raises(InvalidArgument) as info:
            cluster.wait(call())
        caught.append(info.value)
    appends = [*caught[:3], caught[-1]]
    assert len({len(traceback.extract_tb(each.__traceback__)) for each in appends}) == 1
    assert len({id(each) for each in caught}) == len(caught)
    assert {each.__cause__ for each in caught} == {ledger.error}
    assert ledger.error.__traceback__ is None


def test_appends_that_fail_together_fail_with_exceptions_of_their_own() -> None:
    _, ledger, adds = failed_handle(3)
    errors: list[BaseException] = []
    for add in adds:
        add.addErrback(lambda failure: errors.append(failure.value))
    assert len({id(each) for each in errors}) == 3
    assert {each.__cause__ for each in errors} == {ledger.error}


def test_unconfirmed_reads_end_where_a_closed_ledger_ends() -> None:
    """I-40, I-42: entries beyond the agreed end may be on bookies and are never returned."""
    cluster = FakeCluster()
    client = cluster.client()
    ledger = cluster.wait(client.create(**ALL))
    cluster.wait(ledger.append_many([b"0", b"1"]))
    cluster.run(0.5)
    for bookie in cluster.bookies:  # what a losing recoverer may leave behind
        bookie.entries[ledger.id][2] = bookie.entries[ledger.id][1]
    cluster.wait(ledger.close())
    reader = cluster.wait(client.open(ledger.id))
    assert [entry.payload for entry in cluster.wait(reader.read_unconfirmed(0, 1))] == [b"0", b"1"]
    with pytest.raises(ReadBeyondEnd):
        cluster.wait(reader.read_unconfirmed(0, 2))


def test_a_reader_with_old_metadata_asks_for_newer_before_it_says_missing() -> None:
    """I-46: two members were replaced, the news has not come, and the old ones truthfully say no."""
    cluster = FakeCluster(5)
    client = cluster.client()
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=2, ack_quorum=2))
    cluster.wait(ledger.append(b"0"))
    reading_client: Any = cluster.client()
    reader = cluster.wait(reading_client.open_without_recovery(ledger.id))
    reading_client.store.cut_connection(9.0)  # the news is late
    by_id = {bookie.bookie_id: bookie for bookie in cluster.bookies}
    ensemble = ledger.metadata.last_fragment.ensemble
    for bookie_id in ensemble[1:]:
        bookie = by_id[bookie_id]
        bookie.rule = lambda request: SILENCE if isinstance(request, AddBatch) else None
    cluster.wait(ledger.append_many([b"1", b"2", b"3", b"4"]))
    cluster.wait(ledger.append(b"5"))
    for bookie_id in ensemble[1:]:
        by_id[bookie_id].rule = lambda request: None
    confirmed = cluster.wait(reader.try_read_last_confirmed())
    assert confirmed >= 1
    assert cluster.wait(reader.read(0, confirmed))[1].payload == b"1"


# --- a metadata store that is away


@pytest.mark.parametrize("applied", [False, True])
def test_a_close_that_failed_because_the_metadata_store_was_away_may_be_tried_again(applied: bool) -> None:
    """I-16. The first try may have closed the ledger all the same."""
    cluster = FakeCluster()
    faults = MemoryFaults(delay_max_s=0.0)
    ledger = cluster.wait(cluster.client(faults=faults).create(**ALL))
    cluster.wait(ledger.append(b"0"))
    if applied:
        faults.reply_lost_probability = 1.0
    else:
        faults.failed_before_probability = 1.0
    with pytest.raises(MetadataUnavailable):
        cluster.wait(ledger.close(), seconds=10_000.0)
    with pytest.raises(LedgerClosed):
        cluster.wait(ledger.append(b"too late"))
    faults.reply_lost_probability = faults.failed_before_probability = 0.0
    closed = cluster.wait(ledger.close())
    assert closed.is_closed
    assert (closed.last_entry_id, closed.length) == (0, 1)
    assert cluster.wait(ledger.close()) is closed
    assert cluster.wait(cluster.client().metadata(ledger.id)).last_entry_id == 0
