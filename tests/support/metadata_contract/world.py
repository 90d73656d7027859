"""The world a fact runs in, how facts are declared, and the words they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.store import MetadataSettings, MetadataStore
from bookkeeper.model import (
    BookieId,
    BookieServiceInfo,
    Endpoint,
    EntryId,
    Fragment,
    LedgerId,
    LedgerMetadata,
)
from bookkeeper.ports import Clock

PATIENCE_S = 30.0
"""How long a fact waits for something that must happen."""


class World(Protocol):
    """One implementation with one root of its own, which holds no cluster yet."""

    clock: Clock
    root: str

    async def connect(self, kind: LayoutKind | None = None, settings: MetadataSettings | None = None) -> MetadataStore:
        """Another process's connection; closed when the fact is over."""

    async def expire(self, store: MetadataStore) -> None:
        """Let the server end the store's session."""

    async def put(self, path: str, data: bytes) -> None:
        """Write bytes below the root behind everybody's back; makes the node with its parents, or replaces its data."""

    async def get(self, path: str) -> bytes | None:
        """The bytes below the root."""


Fact = Callable[[World], Awaitable[None]]
_facts: dict[str, Fact] = {}


def facts() -> dict[str, Fact]:
    """All facts by name, once the package has been imported."""
    return dict(_facts)


def fact(function: Fact) -> Fact:
    """Declare a fact; its name is what its test is called."""
    assert function.__name__ not in _facts, f"two facts are called {function.__name__}"
    _facts[function.__name__] = function
    return function


class Heard:
    """A callback that remembers what it was told, and can be waited for."""

    def __init__(self, clock: Clock) -> None:
        self.calls: list[Any] = []
        self._clock = clock
        self._waiting: list[tuple[Callable[[list[Any]], object], Deferred[None]]] = []

    def __call__(self, *args: Any) -> None:
        self.calls.append(args[0] if len(args) == 1 else args)
        for waiting in list(self._waiting):
            if waiting[0](self.calls) and waiting in self._waiting:
                self._waiting.remove(waiting)
                waiting[1].callback(None)

    async def until(self, satisfied: Callable[[list[Any]], object], what: str) -> None:
        """Return when `satisfied(calls)`; AssertionError after PATIENCE_S."""
        if satisfied(self.calls):
            return
        done: Deferred[None] = Deferred()
        waiting = (satisfied, done)
        self._waiting.append(waiting)

        def too_late() -> None:
            self._waiting.remove(waiting)
            done.errback(AssertionError(f"not within {PATIENCE_S:g} s: {what}; heard {self.calls}"))

        timer = self._clock.callLater(PATIENCE_S, too_late)
        await done
        timer.cancel()


async def raises(expected: type[Exception], awaitable: Awaitable[object]) -> Any:
    """The exception, which must be of exactly this class."""
    try:
        result = await awaitable
    except expected as error:
        raised = error
    else:
        raise AssertionError(f"{expected.__name__} was not raised; the result is {result!r}")
    assert type(raised) is expected, repr(raised)
    return raised


def ledger(*, version: int = 3, bookies: str = "abc") -> LedgerMetadata:
    """Metadata of a new ledger."""
    ensemble = tuple(BookieId(f"bookie-{name}:3181") for name in bookies)
    return LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=len(ensemble),
        ack_quorum=len(ensemble),
        fragments=(Fragment(EntryId(0), ensemble),),
        format_version=version,
    )


def service_info(name: str) -> BookieServiceInfo:
    """What a bookie publishes."""
    return BookieServiceInfo((Endpoint("bookie", name, 3181, "bookie-rpc"),))


async def cluster(world: World, kind: LayoutKind | None = None) -> MetadataStore:
    """A new cluster and a connection to it."""
    store = await world.connect(kind)
    await store.admin.initialise()
    return store


async def all_ids(store: MetadataStore) -> list[int]:
    ids: AsyncIterator[list[LedgerId]] = store.ledgers.ids()
    return [ledger_id async for batch in ids for ledger_id in batch]


BOOKIE = BookieId("bookie-a:3181")
