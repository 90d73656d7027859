"""Ranges, streams, damaged and missing copies, access, tailing."""

from typing import Any

import pytest

from bookkeeper.client.read.read_handle import ReadHandle
from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    EntryCorrupt,
    EntryMissing,
    EntryUnreadable,
    InvalidArgument,
    LedgerClosed,
    NoSuchEntry,
    NoSuchLedger,
    ReadBeyondEnd,
    WrongDigestType,
    WrongPassword,
)
from bookkeeper.model import DigestType, LedgerState, Status
from bookkeeper.wire.messages import ReadBatch, ReadLac
from tests.support.fake_bookie import HOLD, SILENCE, FakeCluster


def settings(**values: Any) -> ClientSettings:
    return ClientSettings(**{"explicit_lac_interval_s": 0.0, **values})


def written(cluster: FakeCluster, count: int, *, close: bool = True, **options: Any) -> WriteHandle:
    client = cluster.client(settings())
    ledger: WriteHandle = cluster.wait(client.create(**{"ensemble": 3, "write_quorum": 2, "ack_quorum": 2, **options}))
    cluster.wait(ledger.append_many([b"entry %d" % number for number in range(count)]))
    if close:
        cluster.wait(ledger.close())
    return ledger


def opened(cluster: FakeCluster, ledger: WriteHandle, **values: Any) -> ReadHandle:
    handle: ReadHandle = cluster.wait(cluster.client(settings(**values)).open(ledger.ledger_id))
    return handle


def on_reads(verdict: object) -> Any:
    return lambda request: verdict if isinstance(request, ReadBatch) else None


def damage(cluster: FakeCluster, ledger_id: int, entry_id: int, *, copies: int) -> None:
    for bookie in cluster.bookies:
        held = bookie.entries.get(ledger_id, {})
        if copies and entry_id in held:
            held[entry_id] = held[entry_id][:-1] + bytes([held[entry_id][-1] ^ 1])
            copies -= 1


def test_a_damaged_copy_is_passed_over_for_a_good_one() -> None:
    """I-44."""
    cluster = FakeCluster()
    ledger = written(cluster, 10)
    for entry_id in range(10):
        damage(cluster, ledger.ledger_id, entry_id, copies=1)
    entries = cluster.wait(opened(cluster, ledger).read(0, 9))
    assert [entry.payload for entry in entries] == [b"entry %d" % number for number in range(10)]


def test_an_entry_whose_copies_are_all_damaged_is_corrupt_not_missing() -> None:
    """I-44."""
    cluster = FakeCluster()
    ledger = written(cluster, 10)
    damage(cluster, ledger.ledger_id, 5, copies=2)
    with pytest.raises(EntryCorrupt, match=r"ledger 0, entry 5.*digest mismatch"):
        cluster.wait(opened(cluster, ledger).read(0, 9))


def test_an_entry_that_enough_bookies_deny_is_missing() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 10)
    for bookie in cluster.bookies:
        bookie.entries[ledger.ledger_id].pop(5, None)
    with pytest.raises(EntryMissing, match="no such entry"):
        cluster.wait(opened(cluster, ledger).read(5, 5))


@pytest.mark.parametrize("how", ["killed", "silent", "refuses"])
def test_one_bad_bookie_never_blocks_a_read(how: str) -> None:
    """L-3."""
    cluster = FakeCluster()
    ledger = written(cluster, 100)
    handle = opened(cluster, ledger)
    if how == "killed":
        cluster.bookies[0].crash()
    else:
        cluster.bookies[0].rule = on_reads(SILENCE if how == "silent" else Status.TOO_MANY_REQUESTS)
    assert len(cluster.wait(handle.read(0, 99))) == 100


def test_a_slow_bookie_gets_company_after_the_speculative_delay() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 1)
    handle = opened(cluster, ledger, speculative_read_delay_s=0.5, speculative_read_delay_max_s=0.5)
    for bookie in cluster.bookies:
        bookie.rule = on_reads(HOLD)
        bookie.requests.clear()
    began = cluster.clock.seconds()
    reading = handle.read(0, 0)
    cluster.run(0.9)
    asked = [b for b in cluster.bookies if any(isinstance(request, ReadBatch) for request in b.requests)]
    assert len(asked) == 2
    asked[1].release()
    assert cluster.wait(reading)[0].payload == b"entry 0"
    assert cluster.clock.seconds() - began < 1.5


def test_an_entry_nobody_can_deliver_is_unreadable_and_the_answers_are_named() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 1)
    handle = opened(cluster, ledger, read_timeout_s=1.0)
    for bookie in cluster.bookies:
        bookie.rule = on_reads(SILENCE)
    with pytest.raises(EntryUnreadable, match=r"entry 0 cannot be read now.*gave no answer in time") as caught:
        cluster.wait(handle.read(0, 0))
    assert caught.value.retriable
    for bookie in cluster.bookies:
        bookie.rule = lambda request: None
    cluster.run(15.0)
    assert cluster.wait(handle.read(0, 0))[0].payload == b"entry 0"


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (3, 2), (-2, -1)])
def test_what_is_no_range_is_refused(first: int, last: int) -> None:
    cluster = FakeCluster()
    handle = opened(cluster, written(cluster, 5))
    for read in (handle.read, handle.read_unconfirmed):
        with pytest.raises(InvalidArgument, match="need 0 <= first <= last"):
            cluster.wait(read(first, last))


def test_ordinary_reads_end_at_the_last_confirmed_entry() -> None:
    """I-42."""
    cluster = FakeCluster()
    ledger = written(cluster, 5, close=False)
    handle = cluster.wait(cluster.client(settings()).open_without_recovery(ledger.ledger_id))
    assert handle.last_add_confirmed < 4
    with pytest.raises(ReadBeyondEnd, match="; read_last_confirmed first"):
        cluster.wait(handle.read(0, 4))
    assert len(cluster.wait(handle.read_unconfirmed(0, 4))) == 5
    with pytest.raises(EntryMissing):
        cluster.wait(handle.read_unconfirmed(5, 5))


def test_opening_without_recovery_does_not_disturb_the_writer() -> None:
    """I-43."""
    cluster = FakeCluster()
    ledger = written(cluster, 5, close=False)
    handle = cluster.wait(cluster.client(settings()).open_without_recovery(ledger.ledger_id))
    cluster.wait(handle.read_last_confirmed())
    cluster.wait(handle.try_read_last_confirmed())
    assert not any(bookie.fenced for bookie in cluster.bookies)
    assert cluster.wait(ledger.append(b"more")) == 5
    assert cluster.wait(cluster.client(settings()).metadata(ledger.ledger_id)).state is LedgerState.OPEN


def test_the_lac_is_covered_by_all_but_too_few_bookies() -> None:
    """I-02."""
    cluster = FakeCluster()
    ledger = written(cluster, 30, close=False)
    cluster.wait(ledger.append(b"carries the LAC"))
    handle = cluster.wait(cluster.client(settings(read_timeout_s=1.0)).open_without_recovery(ledger.ledger_id))
    assert handle.last_add_confirmed == 29
    for bookie in cluster.bookies[:2]:
        bookie.rule = lambda request: SILENCE if isinstance(request, ReadBatch | ReadLac) else None
    with pytest.raises(EntryUnreadable, match="too few bookies of its last fragment"):
        cluster.wait(handle.read_last_confirmed())


def test_a_stream_reads_ahead_within_its_bounds_and_in_order() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 5000)
    handle = opened(cluster, ledger, read_ahead_entries_max=400)

    async def scenario() -> list[int]:
        return [entry.entry_id async for entry in handle.entries()]

    assert cluster.wait(scenario()) == list(range(5000))
    longest = max(len(r.entry_ids) for b in cluster.bookies for r in b.requests if isinstance(r, ReadBatch))
    assert longest <= 400


def test_a_stream_of_large_entries_asks_for_few_at_a_time() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    ledger = cluster.wait(client.create())
    cluster.wait(ledger.append_many([b"x" * 10_000] * 200))
    cluster.wait(ledger.close())
    handle = opened(cluster, ledger, read_ahead_bytes_max=100_000)
    stream = handle.stream()
    assert len(cluster.wait(stream.next())) == 2
    stream.stop()


@pytest.mark.parametrize("entry_id", [20, 25, 0])
def test_a_stream_that_fails_has_given_all_that_comes_before_and_never_skips_an_entry(entry_id: int) -> None:
    """Also what lies before the bad entry in its own batch of ten."""
    cluster = FakeCluster()
    ledger = written(cluster, 100)
    damage(cluster, ledger.ledger_id, entry_id, copies=2)
    stream = opened(cluster, ledger, read_ahead_entries_max=40).stream()
    seen: list[int] = []

    async def read_on() -> None:
        while batch := await stream.next():
            seen.extend(entry.entry_id for entry in batch)

    for _ in range(2):
        with pytest.raises(EntryCorrupt, match=f"entry {entry_id}:"):
            cluster.wait(read_on())
        assert seen == list(range(entry_id))


@pytest.mark.parametrize("recover", [True, False])
def test_the_wrong_password_opens_nothing_and_fences_nobody(recover: bool) -> None:
    """I-26."""
    cluster = FakeCluster()
    ledger = written(cluster, 5, close=False, password=b"right")
    client = cluster.client(settings())
    opening = client.open if recover else client.open_without_recovery
    with pytest.raises(WrongPassword, match="ledger 0: the password is not the one it was created with"):
        cluster.wait(opening(ledger.ledger_id, b"wrong"))
    assert not any(bookie.fenced for bookie in cluster.bookies)
    assert cluster.wait(ledger.append(b"goes on")) == 5
    assert cluster.wait(client.open_as_administrator(ledger.ledger_id, recover=True)).last_add_confirmed == 5


def test_an_unknown_ledger_is_named() -> None:
    cluster = FakeCluster()
    client = cluster.client(settings())
    for call in (client.open, client.open_without_recovery, client.metadata, client.delete):
        with pytest.raises(NoSuchLedger, match="77"):
            cluster.wait(call(77))
        with pytest.raises(InvalidArgument, match="ledger id -1 is negative"):
            cluster.wait(call(-1))


def test_the_digest_type_is_the_ledgers_unless_told_not_to_look() -> None:
    cluster = FakeCluster()
    for digest in DigestType:
        ledger = written(cluster, 3, digest=digest, password=b"secret")
        client = cluster.client(settings())
        handle = cluster.wait(client.open(ledger.ledger_id, b"secret", DigestType.CRC32))
        assert len(cluster.wait(handle.read(0, 2))) == 3
    strict = cluster.client(settings(enable_digest_autodetection=False))
    with pytest.raises(WrongDigestType, match="DUMMY, not CRC32"):
        cluster.wait(strict.open(ledger.ledger_id, b"secret", DigestType.CRC32))


def test_an_empty_ledger_has_no_entries_and_no_last_one() -> None:
    cluster = FakeCluster()
    handle = opened(cluster, written(cluster, 0))
    assert (handle.last_add_confirmed, handle.length, handle.closed) == (-1, 0, True)
    with pytest.raises(NoSuchEntry):
        cluster.wait(handle.read_last())
    assert cluster.wait(handle.stream().next()) == []


def test_a_writer_reads_what_it_wrote() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 5, close=False)
    assert [entry.entry_id for entry in cluster.wait(ledger.read(1, 4))] == [1, 2, 3, 4]
    with pytest.raises(ReadBeyondEnd):
        cluster.wait(ledger.read(0, 5))


def test_a_closed_handle_or_client_reads_nothing() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 5)
    client = cluster.client(settings())
    handle = cluster.wait(client.open(ledger.ledger_id))
    other = cluster.wait(client.open(ledger.ledger_id))
    cluster.wait(handle.close())
    with pytest.raises(LedgerClosed, match="handle of ledger 0 is closed"):
        cluster.wait(handle.read(0, 1))
    for bookie in cluster.bookies:
        bookie.rule = on_reads(SILENCE)
    pending = other.read(0, 1)
    cluster.run(0.1)
    cluster.wait(client.close())
    for read in (pending, other.read(0, 1)):
        with pytest.raises(ClientClosed):
            cluster.wait(read)


def test_deleting_leaves_no_trace_in_the_listing() -> None:
    cluster = FakeCluster()
    for _ in range(3):
        written(cluster, 1)
    client = cluster.client(settings())
    cluster.wait(client.delete(1))

    async def listing() -> list[int]:
        return [ledger_id async for batch in client.ids() for ledger_id in batch]

    assert cluster.wait(listing()) == [0, 2]
    with pytest.raises(NoSuchLedger):
        cluster.wait(client.metadata(1))


# --- tailing


def collect(handle: ReadHandle, seen: list[int]) -> Any:
    async def follow() -> str:
        async for batch in handle.tail():
            seen.extend(entry.entry_id for entry in batch)
        return "end"

    return follow()


def test_a_tail_follows_the_writer_over_a_failed_bookie_until_the_ledger_is_closed() -> None:
    """I-42, I-43, I-46."""
    cluster = FakeCluster(4)
    client = cluster.client(settings(explicit_lac_interval_s=0.2))
    ledger = cluster.wait(client.create())
    handle = cluster.wait(cluster.client(settings()).open_without_recovery(ledger.ledger_id))
    seen: list[int] = []
    outcome: list[Any] = []
    from twisted.internet.defer import Deferred

    Deferred.fromCoroutine(collect(handle, seen)).addBoth(outcome.append)
    cluster.wait(ledger.append_many([b"x"] * 10))
    cluster.run(5.0)
    assert seen == list(range(10))
    cluster.by_id(ledger.metadata.last_fragment.ensemble[0]).crash()
    cluster.wait(ledger.append_many([b"y"] * 10))
    cluster.run(10.0)
    assert seen == list(range(20))
    assert outcome == []
    cluster.wait(ledger.append_many([b"z"] * 5))
    cluster.wait(ledger.close())
    cluster.run(5.0)
    assert seen == list(range(25))
    assert outcome == ["end"]


def test_a_tail_of_a_deleted_ledger_ends_with_an_error() -> None:
    cluster = FakeCluster()
    ledger = written(cluster, 3, close=False)
    handle = cluster.wait(cluster.client(settings()).open_without_recovery(ledger.ledger_id))
    seen: list[int] = []

    async def scenario() -> None:
        await collect(handle, seen)

    from twisted.internet.defer import Deferred

    tailing = Deferred.fromCoroutine(scenario())
    cluster.run(2.0)
    cluster.wait(cluster.client(settings()).delete(ledger.ledger_id))
    with pytest.raises(NoSuchLedger, match="ledger 0 was deleted"):
        cluster.wait(tailing)


def test_a_tail_waits_through_an_outage_and_gives_up_at_its_bound() -> None:
    """L-9."""
    cluster = FakeCluster()
    ledger = written(cluster, 3, close=False)
    handle = cluster.wait(cluster.client(settings(read_timeout_s=0.5)).open_without_recovery(ledger.ledger_id))
    seen: list[int] = []
    from twisted.internet.defer import Deferred

    tailing = Deferred.fromCoroutine(collect(handle, seen))
    cluster.run(2.0)
    for bookie in cluster.bookies:
        bookie.rule = lambda request: SILENCE
    with pytest.raises(BookKeeperError, match="too few bookies"):
        cluster.wait(tailing, seconds=600.0)
