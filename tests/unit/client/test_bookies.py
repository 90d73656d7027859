"""The directory of bookies: availability, addresses, quarantine."""

import random

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.bookies.directory import READY_TIMEOUT_S, BookieDirectory
from bookkeeper.config import ClientSettings
from bookkeeper.errors import ClientClosed, EntryUnreadable, MetadataUnavailable, NotEnoughBookies
from bookkeeper.metadata.memory.store import MemoryMetadataStore
from bookkeeper.model import AvailableBookies, BookieId
from tests.support.fake_bookie import FakeCluster


def directory_of(cluster: FakeCluster) -> tuple[BookieDirectory, MemoryMetadataStore]:
    store = MemoryMetadataStore(cluster.metadata, cluster.clock, random.Random(7))
    return BookieDirectory(store.bookies, cluster.clock, quarantine_s=30.0), store


def test_registrations_are_followed() -> None:
    cluster = FakeCluster(2)
    directory, _ = directory_of(cluster)
    cluster.wait(directory.ready())
    assert directory.writable == {"b1:3181", "b2:3181"}
    cluster.bookies[0].leave()
    cluster.run(1.0)
    assert directory.writable == {"b2:3181"}
    assert not directory.is_registered(BookieId("b1:3181"))


def test_what_the_watch_has_not_told_yet_is_asked_for_before_a_ledger_is_refused() -> None:
    """A bookie that has just registered is there for whoever knows of it, though no watch has told of it."""
    cluster = FakeCluster(3)
    client = cluster.client()
    cluster.bookies[0].leave()
    cluster.run(1.0)
    directory = client._context.directory  # noqa: SLF001
    cluster.wait(directory.ready())
    cluster.run(1.0)
    assert len(directory.writable) == 2
    directory._watch.cancel()  # noqa: SLF001  # told nothing from here on
    cluster.bookies[0].start()
    cluster.run(1.0)
    assert len(directory.writable) == 2
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=2, ack_quorum=2))
    assert len(set(ledger.metadata.fragments[0].ensemble)) == 3
    cluster.bookies[0].leave()
    cluster.bookies[1].leave()
    cluster.run(1.0)
    with pytest.raises(NotEnoughBookies, match=r"needs 4 bookies and 1 are writable \(b3:3181\)"):
        cluster.wait(client.create(ensemble=4, write_quorum=2, ack_quorum=2))


def test_an_answer_that_the_watch_has_overtaken_is_not_taken() -> None:
    cluster = FakeCluster(2)
    directory, store = directory_of(cluster)
    cluster.wait(directory.ready())
    asked: Deferred[AvailableBookies] = Deferred()
    store.bookies.current = lambda: asked  # type: ignore[method-assign]
    reading = directory.read_again()
    earlier = directory.current
    cluster.bookies[0].leave()
    cluster.run(1.0)
    asked.callback(earlier)
    cluster.wait(reading)
    assert directory.writable == {"b2:3181"}


def test_concurrent_calls_share_a_read_that_begins_after_them() -> None:
    """A call during a read may have been made after a bookie registered: the list of that read may lack the bookie."""
    cluster = FakeCluster(2)
    directory, store = directory_of(cluster)
    cluster.wait(directory.ready())
    reads: list[Deferred[AvailableBookies]] = []

    def current() -> Deferred[AvailableBookies]:
        reads.append(Deferred())
        return reads[-1]

    both = directory.current
    store.bookies.current = current  # type: ignore[method-assign]
    directory._watch.cancel()  # type: ignore[union-attr]  # noqa: SLF001  # shows nothing from here on
    first, *later = [directory.read_again() for _ in range(100)]
    assert len(reads) == 1
    one = AvailableBookies(dict(list(both.writable.items())[:1]), {})
    reads[0].callback(one)
    assert (first.called, any(each.called for each in later), len(reads)) == (True, False, 2)
    assert directory.writable == set(one.writable)
    reads[1].callback(both)
    assert all(each.called for each in later)
    assert directory.writable == set(both.writable)
    failing = directory.read_again()
    reads[2].errback(MetadataUnavailable("no answer"))
    with pytest.raises(MetadataUnavailable):
        cluster.wait(failing)
    again = directory.read_again()
    reads[3].callback(one)
    cluster.wait(again)
    assert directory.writable == set(one.writable)


def test_an_address_is_the_registered_one_else_what_the_id_says() -> None:
    cluster = FakeCluster(1)
    directory, _ = directory_of(cluster)
    cluster.wait(directory.ready())
    assert directory.address_of(BookieId("b1:3181")) == ("b1", 3181)
    assert directory.address_of(BookieId("10.0.0.9:4181")) == ("10.0.0.9", 4181)
    for nowhere in ("a-name", "host:", ":3181", "host:port"):
        assert directory.address_of(BookieId(nowhere)) is None


def test_quarantine_ends_with_its_time_or_a_new_registration() -> None:
    cluster = FakeCluster(2)
    directory, _ = directory_of(cluster)
    cluster.wait(directory.ready())
    for bookie in cluster.bookies:
        directory.quarantine(bookie.bookie_id)
    assert directory.quarantined == {"b1:3181", "b2:3181"}
    cluster.bookies[0].leave()
    cluster.bookies[0].start()
    cluster.run(1.0)
    assert directory.quarantined == {"b2:3181"}
    cluster.run(30.0)
    assert directory.quarantined == frozenset()


def test_waiting_for_the_first_list_is_bounded() -> None:
    """L-9."""
    cluster = FakeCluster(1)
    directory, store = directory_of(cluster)
    store.cut_connection(1000.0)
    began = cluster.clock.seconds()
    with pytest.raises(MetadataUnavailable, match="did not tell the registered bookies"):
        cluster.wait(directory.ready())
    assert cluster.clock.seconds() - began == pytest.approx(READY_TIMEOUT_S)
    waiting = directory.ready()
    directory.close()
    with pytest.raises(ClientClosed):
        cluster.wait(waiting)


def test_a_channel_that_is_asked_for_after_the_client_has_closed_connects_to_nobody() -> None:
    """Whoever goes on to another bookie because the client closes must not open a connection that nobody closes."""
    cluster = FakeCluster(1)
    client = cluster.client()
    context = client._context  # noqa: SLF001
    cluster.wait(context.directory.ready())
    client.close()
    channel = context.v3_channel(cluster.bookies[0].bookie_id)
    told: list[Exception] = []
    channel.call(context.v3_encoder.encode_read_lac(1), 5.0, lambda reply: None, told.append)
    cluster.run(1.0)
    assert len(told) == 1
    assert channel.connect_count == 0
    assert cluster.clock.pending(context.clock._process) == []  # noqa: SLF001


def test_a_bookie_without_v3_is_not_shunned_for_that() -> None:
    """A client set to v2 asks for what only v3 has and goes on without; nothing of it speaks against the bookie."""
    cluster = FakeCluster(3)
    for bookie in cluster.bookies:
        bookie.version_3 = False
    client = cluster.client(ClientSettings(explicit_lac_interval_s=0.1))
    ledger = cluster.wait(client.create(ensemble=3, write_quorum=3, ack_quorum=2))
    cluster.wait(ledger.append_many([b"x"] * 2))
    cluster.run(1.0)
    handle = cluster.wait(client.open_without_recovery(ledger.ledger_id))
    with pytest.raises(EntryUnreadable):
        cluster.wait(handle.read_last_confirmed_and_entry(2, 5.0))
    assert client._context.directory.quarantined == frozenset()  # noqa: SLF001
    cluster.bookies[0].crash()
    cluster.run(0.1)
    assert client._context.directory.quarantined == {"b1:3181"}, "but an end of the connection it speaks does"  # noqa: SLF001
