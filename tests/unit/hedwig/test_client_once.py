"""A producer's flushes, by answers that are given one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError
from hedwig.client.publish_once import WINDOW, Producer
from hedwig.client.settings import PubSubSettings
from hedwig.errors import MalformedRequest, ServiceDown, StaleVersion
from hedwig.model import LocalId, MessageId, Topic
from hedwig.protocol.producers import Origin, Producers, is_forgotten
from hedwig.wire.messages import PROPERTIES_MAX, Message, encode_message

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


def replayed(count: int) -> tuple[Client, dict[int, object]]:
    """So many messages of a producer whose numbers others know, too; what each was told."""
    client: Any = Client()
    producer = Producer(client, TOPIC, b"job.3", first=101, replayed=True)
    told: dict[int, object] = {}

    def on(number: int) -> Callable[[object], None]:
        return lambda result: told.update({number: result})

    for number in range(count):
        producer.submit(TOPIC, encode_message(Message(b"x")), on(number), on(number))
    return client, told


def test_what_a_hub_has_forgotten_of_a_replayed_producer_is_stored() -> None:
    known: Producers[object] = Producers(runs_max=1)
    for local_id, number in ((1, 101), (2, 102), (9, 103)):  # messages of others between: the first run is forgotten
        known.on_stored(LocalId(local_id), Origin(b"job.3", number))
    origin = Origin(b"job.3", 101)
    refusal = known.refusal(origin, known.judge(origin).verdict)
    assert is_forgotten(refusal)
    client, told = replayed(3)
    (_, first), (_, second), (third, _) = client.under_way
    first(refusal)
    second(refusal)
    third(MessageId(LocalId(9)))
    assert all(isinstance(each, MessageId) for each in told.values())
    assert len(told) == 3


def test_another_refusal_is_no_sign_that_a_message_is_stored() -> None:
    client, told = replayed(1)
    client.under_way[0][1](MalformedRequest("too large"))
    assert isinstance(told[0], MalformedRequest)


def test_behind_the_first_failure_of_a_replayed_producer_nothing_is_published() -> None:
    """Else a later message would be stored, and the failed one could never be published again under its number."""
    client, told = replayed(WINDOW + 5)
    assert len(client.under_way) == WINDOW
    client.under_way[0][1](ServiceDown("no hub"))
    for _, failed in client.under_way[1:]:
        failed(StaleVersion("the one before is not there"))
    assert len(client.under_way) == WINDOW  # those that waited for room were not sent
    assert len(told) == WINDOW + 5
    assert not any(isinstance(each, MessageId) for each in told.values())


def test_a_message_with_more_properties_than_a_hub_reads_is_refused_here() -> None:
    client: Any = Client()
    producer = Producer(client, TOPIC)
    properties = {f"{number}": b"" for number in range(PROPERTIES_MAX - 2)}
    with pytest.raises(MalformedRequest, match="1,998 properties; with the numbers of a producer, at most 1,997"):
        producer.message(TOPIC, b"x", properties, None)
