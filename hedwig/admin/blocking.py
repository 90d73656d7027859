"""A region for commands: its session, on a private reactor in another thread.

with connect(config) as access:
    access.run(lambda region: region.topic(...))
    for piece in access.pieces(lambda region: region.topics()): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.client.faces.process_objects import BlockingFace
from bookkeeper.client.faces.reactor_thread import ReactorThread
from hedwig.admin.region import Region
from hedwig.names import Paths

if TYPE_CHECKING:
    from bookkeeper.metadata.zookeeper import ZooKeeperStore
    from hedwig.config.hub import HubConfig

T = TypeVar("T")


class Access(BlockingFace):
    """One region. A context manager. Thread: any but the reactor's."""

    def __init__(self, crossing: ReactorThread, region: Region, close: Callable[[], Deferred[None]]) -> None:
        self._crossing, self._region, self._close = crossing, region, close

    def run(self, ask: Callable[[Region], Coroutine[Any, Any, T]]) -> T:
        """What it says."""
        return self._crossing.run(lambda: Deferred.fromCoroutine(ask(self._region)))

    def pieces(self, ask: Callable[[Region], AsyncIterator[T]]) -> Iterator[T]:
        """What it yields, as it comes."""
        return self._crossing.pieces(lambda: ask(self._region))

    def close(self) -> None:
        """End the session and its reactor."""
        try:
            self._crossing.close_in_order(self._close)
        finally:
            self._crossing.stop()

    def _abandon(self) -> None:
        self._crossing.abandon()


def connect(config: HubConfig) -> Access:
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
    except BaseException:
        crossing.stop()
        raise
    crossing.owned_by(f"Access of region {config.region}", client.close)
    region = Region(
        stores[0].tree,
        client,
        crossing.reactor,
        metadata_settings(config),
        Paths(config.zk_prefix, config.region),
        config.password,
    )
    access = Access(crossing, region, client.close)
    try:
        access.run(Region.check)
    except BaseException:
        access.close()
        raise
    return access
