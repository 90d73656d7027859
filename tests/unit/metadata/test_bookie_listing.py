"""Listing the bookies while reads of their registrations fail."""

import random

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.memory.store import Fault, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.model import AvailableBookies, BookieId, BookieMode
from tests.support.metadata_contract import service_info
from tests.support.simulated_clock import SimulatedClock

NAMES = [BookieId("bookie-a:3181"), BookieId("bookie-b:3181")]


class Bench:
    """A cluster of two bookies, and a store whose reads of their registrations fail for some 30 attempts."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        shared = MemoryMetadata()
        for name in NAMES:
            bookie = MemoryMetadataStore(shared, self.clock, random.Random(1))
            bookie.registration.register(name, service_info(name), BookieMode.WRITABLE)
        faults = MemoryFaults()
        for _ in range(30):
            faults.force(Fault.FAILED_BEFORE, "read", "/available/bookie")
        settings = MetadataSettings(operation_timeout_s=0.5)
        self.store = MemoryMetadataStore(shared, self.clock, random.Random(2), faults, settings=settings)


def test_a_listing_that_fails_names_the_store_and_not_the_gathering() -> None:
    bench = Bench()
    outcome: list[AvailableBookies | Failure] = []
    listing: Deferred[AvailableBookies] = bench.store.bookies.current()
    listing.addBoth(outcome.append)
    assert bench.clock.run_until(lambda: bool(outcome), seconds=60.0)
    assert isinstance(outcome[0], Failure)
    assert isinstance(outcome[0].value, MetadataUnavailable)


def test_a_watch_goes_on_after_a_listing_that_failed() -> None:
    """The first listing meets an outage; that must not end the watch."""
    bench = Bench()
    told: list[AvailableBookies] = []
    bench.store.bookies.watch(told.append)
    assert bench.clock.run_until(lambda: bool(told), seconds=60.0)
    assert sorted(told[0].writable) == NAMES
