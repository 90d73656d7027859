"""The cursors of a stream's own subscription: moved, by a hub, to what the query has committed. Never back.

    begin(offset)    of a new query: the subscription is made where it begins, if there is none: from then on the hubs
                     keep what the query has not read
    move(offset)     attach
                       the hub delivers one message: everything before it is consumed already
                       where that is before the position: the subscription begins again there (durable at the hub)
                     let go; where there is no subscription: made, and begins at the position

No message is read through the hub for it but the one that shows where the cursor stands. While that is looked at and
changed the subscription is held, so nobody else moves it meanwhile. One whose messages are acknowledged one by one has
no cursor, and is refused.

Where the hub shows no message within SHOWN_S the cursor stays, which is told in the log: the next commit moves it.
Thread: any, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from twisted.logger import Logger

from bookkeeper.errors import InvalidArgument
from hedwig.client.faces.blocking import BlockingClient, BlockingSubscription
from hedwig.errors import AlreadySubscribed, NotSubscribed
from hedwig.model import Preferences, SubscribeMode
from hedwig.protocol.options import ack_options
from hedwig.spark.hub_client import hub_client_of
from hedwig.spark.topic_extents import Options
from hedwig.spark.topic_options import topic_of

log = Logger()

SHOWN_S = 5.0

ONE = Preferences(window_size=1)
"""Nothing is read here: one message says where the cursor stands."""


class TopicCursors:
    """Of one query, in all its topics."""

    def __init__(self, options: Options) -> None:
        assert options.own.subscriber is not None
        self._options, self._subscriber = options, options.own.subscriber
        self._moved: dict[str, int] = {}  # where this object has put them

    def begin(self, offset: Mapping[str, int]) -> None:
        """Make the subscription where there is none. Raises PubSubError."""
        client = hub_client_of(self._options)
        for topic, position in offset.items():
            with suppress(AlreadySubscribed):
                self._attached(client, topic, SubscribeMode.CREATE, position).close()

    def move(self, offset: Mapping[str, int]) -> None:
        """Everything before the offset is done. Raises PubSubError, InvalidArgument."""
        for topic, position in offset.items():
            if position <= self._moved.get(topic, 0):
                continue
            client = hub_client_of(self._options)
            try:
                held = self._attached(client, topic, SubscribeMode.ATTACH)
            except NotSubscribed:
                self._make(client, topic, position)
                self._moved[topic] = position
                continue
            with held:
                if _move(held, position):
                    self._moved[topic] = position

    def _make(self, client: BlockingClient, topic: str, position: int) -> None:
        """Of a topic that the query reads since it was restarted, or whose subscription somebody has removed.

        It begins at the position, not behind the newest message: what lies between is not read yet.
        """
        log.info(
            "Subscription {subscriber!r} of topic {topic!r} is not there, and is made at {position}",
            subscriber=self._subscriber,
            topic=topic,
            position=position,
        )
        self._attached(client, topic, SubscribeMode.CREATE, position).close()

    def _attached(
        self, client: BlockingClient, topic: str, mode: SubscribeMode, start: int | None = None
    ) -> BlockingSubscription:
        held = client.subscribe(
            topic_of(topic), self._subscriber, mode, preferences=ONE, auto_consume=False, start=start
        )
        if ack_options(held.preferences) is not None:
            held.close()
            word = self._options.words.word("subscription")
            raise InvalidArgument(
                f"{word}: {self._subscriber!r} of topic {topic!r} acknowledges messages one by one and has no cursor "
                "to move; name another one"
            )
        return held


def _move(held: BlockingSubscription, position: int) -> bool:
    """Move the cursor on, if it is before the position; whether that is known."""
    shown = held.receive(1, SHOWN_S)
    if not shown:
        log.warn(
            "Subscription {subscriber!r} of topic {topic!r} is shown no message, and stays where it is for now; "
            "everything before {position} was committed",
            subscriber=held.subscriber,
            topic=held.topic,
            position=position,
        )
        return False
    if shown[0].local_id < position:
        held.seek(position)
    return True
