"""A producer's flushes, by answers that are given one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError
from hedwig.client.once import Producer
from hedwig.client.settings import PubSubSettings
from hedwig.errors import ServiceDown, StaleVersion
from hedwig.model import LocalId, MessageId, Topic
from hedwig.wire.messages import Message, encode_message

TOPIC = Topic(b"orders")


class Client:
    """What a producer stands on; the test answers."""

    def __init__(self) -> None:
        self.settings = PubSubSettings()
        self.under_way: list[tuple[Callable[[MessageId], object], Callable[[BookKeeperError], object]]] = []

    def check_open(self) -> None:
        """It is."""

    def pass_on(self, topic: Topic, message: bytes, on_published: Any, on_failed: Any) -> None:
        self.under_way.append((on_published, on_failed))


over: list[int] = []


def story(*when: int) -> tuple[Client, list[Deferred[None]]]:
    """Three messages; a flush begins when one of these is told. `over`: those of which it was over at once."""
    over.clear()
    client: Any = Client()
    producer = Producer(client, TOPIC)
    flushes: list[Deferred[None]] = []

    def told(number: int) -> Callable[[object], None]:
        def begin(_: object) -> None:
            if number in when:
                flushes.append(producer.settled())
                over.extend([number] if flushes[-1].called else [])

        return begin

    for number in range(3):
        producer.submit(TOPIC, encode_message(Message(b"x")), told(number), told(number))
    return client, flushes


def test_a_flush_that_begins_when_a_message_is_told_waits_for_all_that_are_not() -> None:
    client, flushes = story(0, 2)
    for number, (published, _) in enumerate(client.under_way):
        assert not any(each.called for each in flushes)
        published(MessageId(LocalId(number + 1)))
    assert len(flushes) == 2
    assert all(each.called for each in flushes)


def test_a_flush_that_begins_when_one_of_a_broken_chain_is_told_waits_for_the_rest_of_it() -> None:
    client, flushes = story(0, 1)
    (_, first), (_, second), (_, third) = client.under_way
    second(StaleVersion("the one before is not there"))
    third(StaleVersion("the one before is not there"))
    first(ServiceDown("no hub"))
    assert len(flushes) == 2
    assert all(each.called for each in flushes)
    assert not over, "the third was not told yet"
