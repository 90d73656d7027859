"""Our Python client under one measurement: the loads of `hedwig perf`.

python -m tests.benchmarks.hubs.loads.our_load HOST:PORT:SSLPORT KIND ...      see load.py

Readers are one process, which takes with `receive` and consumes by itself. Everything has its defaults but for the
bound on what is outstanding.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.model import Topic
from hedwig.perf import loads
from hedwig.wire.receiving import Received
from hedwig.wire.records import parse_address
from tests.benchmarks.hubs.loads.load import (
    DRAIN_TIMEOUT_S,
    WARMING_SHARE,
    Load,
    LoadFailed,
    Meter,
    Reading,
    body,
    main,
    mark,
    meter_of,
    reading_beside,
    told,
)

OUTSTANDING_MAX = 10_000
T = TypeVar("T")
Work = Callable[[Any, PubSubClient], Awaitable[T]]


def with_client(target: str, work: Work[T]) -> T:
    """Run the reactor until it is done; once in a process, and in none that forks later. Raises LoadFailed."""
    from twisted.internet import reactor as _reactor

    reactor: Any = _reactor
    outcome: list[T | Failure] = []

    async def working() -> T:
        settings = PubSubSettings(outstanding_max=OUTSTANDING_MAX)
        client = PubSubClient(reactor, TwistedNetwork(reactor), [parse_address(target)], settings)
        try:
            return await work(reactor, client)
        finally:
            client.abandon()

    def ended(result: T | Failure) -> None:
        outcome.append(result)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(working()).addBoth(ended))
    reactor.run()
    [result] = outcome
    if isinstance(result, Failure):
        if isinstance(result.value, BookKeeperError):
            raise LoadFailed(f"{type(result.value).__name__}: {result.value}") from result.value
        result.raiseException()
    assert not isinstance(result, Failure)
    return result


def topics_of(load: Load, more: str = "") -> list[Topic]:
    """As the client takes them."""
    return [Topic(f"{name}{more}".encode()) for name in load.names]


async def publish(client: PubSubClient, load: Load, clock: Callable[[], Meter]) -> Meter:
    """Every topic has its ledger before anything counts. clock: begins the warming up."""
    topics = topics_of(load)
    if len(topics) > 1:
        await loads.fill(client, topics, len(topics), body(0.0))
    meter = clock()
    await loads.Publishing(client, topics, load.outstanding, body, meter).run()
    return meter


def deliver(target: str, load: Load) -> dict[str, object]:
    """Publisher and readers."""
    with reading_beside(lambda reading: with_client(target, partial(follow, load, reading))) as readers:

        async def publishing(reactor: Any, client: PubSubClient) -> None:
            if load.kind == "paced":
                [topic] = topics_of(load)
                await loads.paced(client, reactor, topic, load.per_s, body, readers.begin(load))
            else:
                await publish(client, load, lambda: readers.begin(load))

        with_client(target, publishing)
        return readers.figures()


async def follow(load: Load, reading: Reading, reactor: Any, client: PubSubClient) -> None:
    """All readers."""
    failed: list[Failure] = []

    def on_messages(messages: list[Received]) -> None:
        reading.done([message.body for message in messages])

    subscriptions = await loads.subscribed(client, topics_of(load), load.readers)
    for each in subscriptions:
        Deferred.fromCoroutine(loads.read(each, on_messages)).addErrback(failed.append)
    reading.ready()
    await deferLater(reactor, reading.left_s(), lambda: None)
    if failed:
        failed[0].raiseException()
    await gatherResults([each.close() for each in subscriptions])


async def drain(reactor: Any, client: PubSubClient, load: Load) -> dict[str, object]:
    """Subscribe, fill, attach and read some to warm up, then all."""
    seconds = 0.0
    for share in (WARMING_SHARE, 1.0):
        topics, messages = topics_of(load, f"-{share:g}"), int(load.messages * share)
        await loads.leave_backlog(client, topics, messages, body(0.0))
        if share == 1.0:
            mark("start")
        draining = Deferred.fromCoroutine(loads.drained(client, topics, messages))
        seconds = await draining.addTimeout(DRAIN_TIMEOUT_S, reactor)
    mark("end")
    return told(load.messages, seconds)


async def acquire(client: PubSubClient, load: Load) -> dict[str, object]:
    """New topics with a subscription each."""
    meter = meter_of(load)
    await loads.acquire(client, load.tag, load.outstanding, meter)
    return meter.figures()


def measure(target: str, load: Load) -> dict[str, object]:
    """One measurement."""
    if load.kind in ("deliver", "paced"):
        return deliver(target, load)

    async def work(reactor: Any, client: PubSubClient) -> dict[str, object]:
        if load.kind == "drain":
            return await drain(reactor, client, load)
        if load.kind == "acquire":
            return await acquire(client, load)
        return (await publish(client, load, lambda: meter_of(load))).figures()

    return with_client(target, work)


if __name__ == "__main__":
    main(measure, sys.argv[1:])
