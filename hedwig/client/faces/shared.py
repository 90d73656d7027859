"""What the asyncio and the blocking face have in common: what a program may look at, and its words made values."""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.client.faces.process_objects import OfOneProcess
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.faces.values import Text, as_bytes, properties_of
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.model import Gone, Preferences, SubscriberId, Topic


def publisher_of(
    client: PubSubClient,
    topic: Text,
    message_type: str | None,
    producer: Text | None,
    first: int,
    keep_s: float | None,
) -> Publisher:
    """Of the words that `publisher` takes. Raises InvalidArgument, MalformedRequest."""
    return client.publisher(topic, message_type=message_type, producer=producer, first=first, keep_s=keep_s)


class HubFace(OfOneProcess):
    """An object that publishes or subscribes over connections of this process."""

    __slots__ = ()

    instead = Subscription.instead


class PublisherFace(HubFace):
    """A publisher as a program sees it."""

    __slots__ = ("_publisher",)

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    @property
    def topic(self) -> Topic:
        """Where to."""
        return self._publisher.topic

    @staticmethod
    def _message(body: Text, properties: Mapping[str, Text] | None) -> tuple[bytes, Mapping[str, bytes]]:
        return as_bytes(body, "the body"), properties_of(properties)


class SubscriptionFace(HubFace):
    """A subscription as a program sees it."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    @property
    def topic(self) -> Topic:
        """Of which topic."""
        return self._subscription.topic

    @property
    def subscriber(self) -> SubscriberId:
        """Whose."""
        return self._subscription.subscriber

    @property
    def preferences(self) -> Preferences:
        """As the hub has them."""
        return self._subscription.preferences

    @property
    def gone(self) -> tuple[Gone, ...]:
        """Messages that were deleted before this subscription received them: the newest 100 ranges of ids.

        The subscription was to begin or continue with them, or a hub's limit of age or size deleted them while it was
        attached; the latter is not detected before the first message of an attachment, nor with a filter, a bound or
        individual acknowledgement. If the subscription starts at a time, some or all of them may be older than that
        (`maybe`).
        """
        return self._subscription.gone
