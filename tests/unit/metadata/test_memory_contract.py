"""The metadata contract over the memory store: at once; with delays and lag; with connections that break often."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.memory.store import MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.store import MetadataSettings, MetadataStore
from bookkeeper.metadata.tree import NodeKind
from tests.support.metadata_contract import Fact, facts
from tests.support.simulated_clock import SimulatedClock

TIME_LIMIT_S = 3600.0


class MemoryWorld:
    """See World."""

    root = "/ledgers"

    def __init__(self, clock: SimulatedClock, rng: random.Random, faults: MemoryFaults | None) -> None:
        self.clock = clock
        self.faults = faults
        self._rng = rng
        self._shared = MemoryMetadata.empty(self.root, clock=clock)

    async def connect(self, kind: LayoutKind | None = None, settings: MetadataSettings | None = None) -> MetadataStore:
        # Time is free here, and the lossy variant needs some.
        settings = replace(settings or MetadataSettings(), operation_timeout_s=300.0)
        return MemoryMetadataStore(self._shared, self.clock, self._rng, self.faults, settings=settings, layout=kind)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryMetadataStore)
        store.expire_session(0.1)

    async def put(self, path: str, data: bytes) -> None:
        if self._shared.stored(self.root + path) is not None:
            self._shared.damage(self.root + path, data)
            return
        parts = (self.root + path).split("/")[1:]
        for depth in range(1, len(parts) + 1):
            ancestor = "/" + "/".join(parts[:depth])
            if self._shared.stored(ancestor) is None:
                self._shared.znodes.create(
                    ancestor, data if depth == len(parts) else b"", NodeKind.PERSISTENT, session_id=0
                )

    async def get(self, path: str) -> bytes | None:
        return self._shared.stored(self.root + path)


def run(fact: Fact, world: MemoryWorld) -> None:
    """Run the fact and the world's clock until it is over."""
    outcome: list[object] = []
    Deferred.fromCoroutine(fact(world)).addBoth(outcome.append)  # type: ignore[arg-type]
    assert world.clock.run_until(lambda: bool(outcome), seconds=TIME_LIMIT_S), "nothing more happens"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()


def at_once() -> None:
    return None


def slow_and_stale() -> MemoryFaults:
    return MemoryFaults(delay_max_s=0.02, lag_max_s=0.5)


def lossy() -> MemoryFaults:
    return MemoryFaults(
        delay_max_s=0.02,
        lag_max_s=0.2,
        reconnect_max_s=0.1,
        failed_before_probability=0.05,
        reply_lost_probability=0.05,
    )


@pytest.mark.parametrize("faults", [at_once, slow_and_stale, lossy], ids=lambda made: made.__name__)
@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
def test_memory_store(fact: Fact, faults: Callable[[], MemoryFaults | None], rng: random.Random) -> None:
    run(fact, MemoryWorld(SimulatedClock(), rng, faults()))
