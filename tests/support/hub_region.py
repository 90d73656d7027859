"""One simulated ZooKeeper, and hubs with a session each."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.metadata.memory.session import MemoryFaults, MemorySession, SharedZnodes
from bookkeeper.metadata.store import MetadataSettings
from hedwig.hub.metadata import HubMetadata
from hedwig.names import Paths
from tests.support.simulated_clock import SimulatedClock

SETTINGS = MetadataSettings()


class Region:
    """One ZooKeeper, and hubs with a session each."""

    def __init__(self) -> None:
        self.clock, self.servers = SimulatedClock(), SharedZnodes()
        self.servers.clock = self.clock
        self.faults: list[MemoryFaults] = []
        self.sessions: list[MemorySession] = []

    def hub(self, lag_max_s: float = 0.0, settings: MetadataSettings = SETTINGS) -> HubMetadata:
        self.faults.append(MemoryFaults(lag_max_s=lag_max_s))
        self.sessions.append(
            MemorySession(self.servers, self.clock, random.Random(len(self.sessions)), self.faults[-1], settings)
        )
        metadata = HubMetadata(self.sessions[-1], self.clock, settings, Paths("/hedwig", "standalone"))
        self.now(metadata.open())
        return metadata

    def now(self, work: Coroutine[Any, Any, Any] | Deferred[Any]) -> Any:
        outcome: list[Any] = []
        (work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)).addBoth(outcome.append)
        self.clock.run_until(lambda: bool(outcome), seconds=120)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]
