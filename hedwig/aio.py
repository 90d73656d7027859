"""The asyncio client under its public name: `await hedwig.aio.connect(hubs)`. See `hedwig.client.faces.aio`."""

from hedwig.client.faces.aio import AsyncClient, AsyncPublisher, AsyncSubscription, connect

__all__ = ["AsyncClient", "AsyncPublisher", "AsyncSubscription", "connect"]
