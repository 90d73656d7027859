"""The asyncio client under its public name: `await hedwig.aio.connect(hubs)`. See `hedwig.client.aio`."""

from hedwig.client.aio import AsyncClient, AsyncPublisher, AsyncSubscription, connect

__all__ = ["AsyncClient", "AsyncPublisher", "AsyncSubscription", "connect"]
