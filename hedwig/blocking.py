"""The blocking client under its public name: `hedwig.blocking.connect(hubs)`. See `hedwig.client.faces.blocking`."""

from hedwig.client.faces.blocking import BlockingClient, BlockingPublisher, BlockingSubscription, connect

__all__ = ["BlockingClient", "BlockingPublisher", "BlockingSubscription", "connect"]
