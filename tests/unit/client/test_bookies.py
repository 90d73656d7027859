"""The directory of bookies: availability, addresses, quarantine."""

import random

import pytest

from bookkeeper.client.bookies import READY_TIMEOUT_S, BookieDirectory
from bookkeeper.errors import ClientClosed, MetadataUnavailable
from bookkeeper.metadata.memory import MemoryMetadataStore
from bookkeeper.model import BookieId
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
