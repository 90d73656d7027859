"""A region for commands: its session, on a private reactor in another thread.

with connect(config) as access:
    access.run(lambda region: region.topic(...))
    for piece in access.pieces(lambda region: region.topics()): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.client.reactor_thread import ReactorThread
from hedwig.admin.region import Region
from hedwig.names import Paths

if TYPE_CHECKING:
    from bookkeeper.metadata.zookeeper import ZooKeeperStore
    from hedwig.config.hub import HubConfig

T = TypeVar("T")


class Access:
    """One region. Thread: any but the reactor's."""

    def __init__(self, crossing: ReactorThread, region: Region) -> None:
        self._crossing, self._region = crossing, region

    def run(self, ask: Callable[[Region], Coroutine[Any, Any, T]]) -> T:
        """What it says."""
        return self._crossing.run(lambda: Deferred.fromCoroutine(ask(self._region)))

    def pieces(self, ask: Callable[[Region], AsyncIterator[T]]) -> Iterator[T]:
        """What it yields, as it comes."""
        return self._crossing.pieces(lambda: ask(self._region))


@contextlib.contextmanager
def connect(config: HubConfig) -> Iterator[Access]:
    """The region that hubs with this configuration serve. Raises InvalidArgument where there is none."""
    crossing = ReactorThread()
    stores: list[ZooKeeperStore] = []

    async def keep(store: ZooKeeperStore) -> None:
        stores.append(store)

    try:
        client = crossing.run(
            lambda: Deferred.fromCoroutine(
                connect_to(
                    config.metadata_service_uri, crossing.reactor, config, resolve=crossing.resolve, prepare=keep
                )
            )
        )
        try:
            region = Region(
                stores[0].tree,
                client,
                crossing.reactor,
                metadata_settings(config),
                Paths(config.zk_prefix, config.region),
                config.password,
            )
            access = Access(crossing, region)
            access.run(Region.check)
            yield access
        finally:
            crossing.run(client.close)
    finally:
        crossing.stop()
