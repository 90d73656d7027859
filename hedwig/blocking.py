"""The blocking client under its public name: `hedwig.blocking.connect(hubs)`. See `hedwig.client.blocking`."""

from hedwig.client.blocking import BlockingClient, BlockingPublisher, BlockingSubscription, connect

__all__ = ["BlockingClient", "BlockingPublisher", "BlockingSubscription", "connect"]
