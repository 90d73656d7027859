"""A metadata store in memory with records that a test damages, and readers that have read nothing yet."""

from __future__ import annotations

import random
from collections.abc import Awaitable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import MetadataError
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from tests.support.simulated_clock import SimulatedClock


class MetadataScene:
    """maker: the store that writes sound records. shared: plants and damages records."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.maker = MemoryMetadataStore(self.shared, self.clock, random.Random(1))

    def store(self) -> MemoryMetadataStore:
        """Return a store that has read nothing yet."""
        return MemoryMetadataStore(self.shared, self.clock, random.Random(2))

    def now(self, awaited: Awaitable[Any]) -> Any:
        """Return the answer, or a metadata error as a value; wait at most 60 simulated seconds."""

        async def wait() -> Any:
            return await awaited

        found: list[Any] = []
        Deferred.fromCoroutine(wait()).addBoth(found.append)
        self.clock.run_until(lambda: bool(found), seconds=60.0)
        (answer,) = found
        if isinstance(answer, Failure):
            assert isinstance(answer.value, MetadataError), answer
            return answer.value
        return answer
