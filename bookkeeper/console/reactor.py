"""Reactors for commands.

reactor_without_pyopenssl()    the process's own, for a server
with_client()                  the Deferred-native client, for work on many ledgers at a time
with_store()                   the metadata store without a client, on a reactor of its own in another thread:
                               commands may be run one after the other in one process, and Ctrl-C interrupts them
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from bookkeeper.clock import make_monotonic

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.metadata.znode_store import ZnodeStore
    from bookkeeper.ports import Clock

T = TypeVar("T")


def with_store(settings: ClientSettings, use: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Connect to the metadata store, run `use(store)`, close the store; the cluster need not exist yet."""
    return with_store_and_clock(settings, lambda store, _: use(store))


def with_store_and_clock(settings: ClientSettings, use: Callable[[ZnodeStore, Clock], Awaitable[T]]) -> T:
    """The same for what takes its time."""
    from twisted.internet.defer import Deferred

    from bookkeeper.client.connecting import metadata_settings
    from bookkeeper.client.faces.reactor_thread import ReactorThread
    from bookkeeper.metadata import zookeeper

    crossing = ReactorThread()

    async def session() -> T:
        store = await zookeeper.connect(
            settings.metadata_service_uri,
            clock=crossing.reactor,
            call_from_thread=crossing.reactor.callFromThread,
            random=random.Random(),
            settings=metadata_settings(settings),
        )
        try:
            return await use(store, crossing.reactor)
        finally:
            await store.close()

    try:
        return crossing.run(lambda: Deferred.fromCoroutine(session()))
    finally:
        crossing.stop()


def with_client(settings: ClientSettings, use: Callable[[LedgerClient], Awaitable[T]]) -> T:
    """Connect a client to the cluster, run `use(client)`, close the client; as `with_store` does."""
    from twisted.internet.defer import Deferred

    from bookkeeper.client.connecting import connect_to
    from bookkeeper.client.faces.reactor_thread import ReactorThread

    crossing = ReactorThread()

    async def session() -> T:
        client = await connect_to(settings.metadata_service_uri, crossing.reactor, settings)
        try:
            return await use(client)
        finally:
            await client.close()

    try:
        return crossing.run(lambda: Deferred.fromCoroutine(session()))
    finally:
        crossing.stop()


def reactor_without_pyopenssl() -> Any:
    """Return the reactor of the process, on monotonic time, imported as if pyOpenSSL were not installed.

    Twisted would load it at once, and it would cost each server 13 MB and 0.1 s. TLS uses Python's own `ssl` here.
    """
    absent = "OpenSSL" not in sys.modules
    if absent:
        sys.modules["OpenSSL"] = None  # type: ignore[assignment] # how Python spells "cannot be imported"
    try:
        from twisted.internet import reactor
    finally:
        if absent:
            del sys.modules["OpenSSL"]
    return make_monotonic(reactor)
