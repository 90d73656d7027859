"""Running a coroutine of Deferreds from the command line, on the global reactor of a process that does nothing else."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from bookkeeper.metadata.store import MetadataStore

T = TypeVar("T")


def run_async(start: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Run `start(reactor)` to its end; return its result or raise its error. Once per process."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    outcome: list[Any] = []

    def finished(result: Any) -> None:
        outcome.append(result)
        reactor.stop()

    def begin() -> None:
        Deferred.fromCoroutine(start(reactor)).addBoth(finished)

    reactor.callWhenRunning(begin)
    reactor.run()
    if not outcome:
        raise KeyboardInterrupt
    result = outcome[0]
    if isinstance(result, Failure):
        result.raiseException()
    value: T = result
    return value


def with_store(uri: str, use: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Connect to the metadata store, run `use(store)`, close the store."""

    async def session(reactor: Any) -> T:
        from bookkeeper.metadata import zookeeper

        store = await zookeeper.connect(
            uri, clock=reactor, call_from_thread=reactor.callFromThread, random=random.Random()
        )
        try:
            return await use(store)
        finally:
            await store.close()

    return run_async(session)
