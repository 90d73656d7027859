"""Kafka through confluent-kafka (librdkafka): a topic of one partition with two copies, every message flushed.

python -m tests.benchmarks.hubs.loads.kafka_load SERVERS KIND ...      see load.py

Readers are a thread each in a process of their own and keep their positions themselves.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import (  # type: ignore[import-not-found,import-untyped,unused-ignore]  # of the peers' own environment
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AdminClient,
    NewTopic,
)

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

COPIES = 2
TOPIC_SETTINGS = {"flush.messages": "1", "min.insync.replicas": str(COPIES)}
WAIT_S = 60.0
POLL_S = 0.1
FILL_OUTSTANDING = 1000
READ_COUNT = 1000
PACE_PAUSE_S = 0.0005


def make_topics(servers: str, names: Sequence[str]) -> None:
    """Return once they are made."""
    admin = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(name, num_partitions=1, replication_factor=COPIES, config=TOPIC_SETTINGS) for name in names]
    for future in admin.create_topics(new, request_timeout=WAIT_S).values():
        future.result()


def delete_topics(servers: str, names: Sequence[str]) -> None:
    """Return once they are no topics any more."""
    admin = AdminClient({"bootstrap.servers": servers})  # its answers go with it
    for future in admin.delete_topics(list(names)).values():
        future.result()


class Window:
    """Publishes with so many unanswered at most."""

    def __init__(self, servers: str, outstanding: int, meter: Meter | None = None) -> None:
        settings: dict[str, object] = {"bootstrap.servers": servers, "acks": "all"}
        if outstanding == 1:
            settings["linger.ms"] = 0  # nobody comes to share its batch
        self._producer = Producer(settings)
        self._outstanding, self._meter = outstanding, meter
        self._unanswered = 0
        self._failure: Any = None

    def publish(self, topic: str, at: float) -> None:
        """Waits for room; the answer comes later. Raises LoadFailed for one that failed."""
        while self._unanswered >= self._outstanding:
            self._producer.poll(POLL_S)
        if self._failure is not None:
            raise LoadFailed(f"a publish failed: {self._failure}")
        self._unanswered += 1
        self._producer.produce(topic, body(at), on_delivery=functools.partial(self._answered, at))
        self._producer.poll(0)

    def _answered(self, began: float, error: Any, message: Any) -> None:
        self._unanswered -= 1
        if error is not None:
            self._failure = error
        elif self._meter is not None:
            self._meter.done(began, time.monotonic())

    def empty(self) -> None:
        """All are answered. Raises LoadFailed."""
        if self._producer.flush(WAIT_S) or self._failure is not None:
            raise LoadFailed(f"a publish failed: {self._failure or 'no answer in time'}")


def windowed(servers: str, load: Load, meter: Meter) -> None:
    """Publish until the time is up."""
    window = Window(servers, load.outstanding, meter)
    names, position = load.names, 0
    while meter.tick(now := time.monotonic()):
        window.publish(names[position % len(names)], now)
        position += 1
    window.empty()


def paced(servers: str, load: Load, meter: Meter) -> None:
    """Publish what is due, until the time is up."""
    window = Window(servers, load.outstanding)
    [topic] = load.names
    began, sent = time.monotonic(), 0
    while meter.tick(now := time.monotonic()):
        if sent >= (now - began) * load.per_s:
            time.sleep(PACE_PAUSE_S)
            continue
        window.publish(topic, began + sent / load.per_s)
        sent += 1
    window.empty()


def reader(servers: str, names: Sequence[str]) -> Any:
    """From the start of all these topics."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0) for name in names])
    return consumer


def read(servers: str, load: Load, reading: Reading) -> None:
    """All readers."""
    subscribed = threading.Barrier(load.readers + 1)

    def follow() -> None:
        consumer = reader(servers, load.names)
        subscribed.wait()
        while not reading.over():
            reading.done([each.value() for each in consumer.consume(READ_COUNT, POLL_S) if each.error() is None])

    threads = [threading.Thread(target=follow, daemon=True) for _ in range(load.readers)]
    for thread in threads:
        thread.start()
    subscribed.wait()
    reading.ready()
    for thread in threads:
        thread.join()


def deliver(servers: str, load: Load) -> dict[str, object]:
    """Publisher and readers, who begin before librdkafka has threads here."""

    def delayed(reading: Reading) -> None:
        make_topics(servers, load.names)
        read(servers, load, reading)

    with reading_beside(delayed) as readers:
        meter = readers.begin(load)
        (paced if load.kind == "paced" else windowed)(servers, load, meter)
        figures = readers.figures()
    delete_topics(servers, load.names)
    return figures


def drained(servers: str, names: Sequence[str], messages: int) -> float:
    """Seconds to read so many from the start."""
    began, left = time.monotonic(), messages
    consumer = reader(servers, names)
    while left > 0:
        left -= sum(each.error() is None for each in consumer.consume(READ_COUNT, POLL_S))
        if time.monotonic() - began > DRAIN_TIMEOUT_S:
            raise LoadFailed(f"{left} of {messages} messages were not read within {DRAIN_TIMEOUT_S:g} s")
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def drain(servers: str, load: Load) -> dict[str, object]:
    """Fill, read some to warm up, read all."""
    seconds = 0.0
    for share in (WARMING_SHARE, 1.0):
        names = [f"{name}-{share:g}" for name in load.names]
        messages = int(load.messages * share)
        make_topics(servers, names)
        window = Window(servers, FILL_OUTSTANDING)
        for number in range(messages):
            window.publish(names[number % len(names)], 0.0)
        window.empty()
        if share == 1.0:
            mark("start")
        seconds = drained(servers, names, messages)
        if share == 1.0:
            mark("end")
        delete_topics(servers, names)
    return told(load.messages, seconds)


def measure(servers: str, load: Load) -> dict[str, object]:
    """One measurement."""
    if load.kind in ("deliver", "paced"):
        return deliver(servers, load)
    if load.kind == "drain":
        return drain(servers, load)
    make_topics(servers, load.names)
    meter = meter_of(load)
    windowed(servers, load, meter)
    delete_topics(servers, load.names)
    return meter.figures()


if __name__ == "__main__":
    main(measure, sys.argv[1:])
