"""Redis Streams through redis-py: a topic is a stream, a message an XADD, its copies a WAIT.

python -m tests.benchmarks.hubs.loads.redis_load PORT KIND ...      see load.py

`outstanding` messages go in one pipeline with one WAIT 1 behind them. Readers are XREADs of a process of their own, a
thread each, who keep their positions themselves; a "subscription" that Redis keeps is a consumer group.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import redis  # type: ignore[import-not-found,import-untyped,unused-ignore]  # of the peers' own environment

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

FIELD = b"body"
READ_COUNT = 1000
BLOCK_MS = 100
FILL_BATCH = 1000
GROUP = "sub"
PACE_PAUSE_S = 0.0005


def connect(port: str) -> Any:
    """A connection of its own."""
    return redis.Redis(host="127.0.0.1", port=int(port), single_connection_client=True)


def publish(connection: Any, topics: Sequence[str], bodies: Sequence[bytes]) -> None:
    """Body by body to topic by topic; on return the replica has them all. Raises LoadFailed."""
    pipe = connection.pipeline(transaction=False)
    for topic, message in zip(topics, bodies, strict=True):
        pipe.xadd(topic, {FIELD: message})
    pipe.wait(1, 0)
    copies = pipe.execute()[-1]
    if copies < 1:
        raise LoadFailed("WAIT 1 found no replica")


def window(connection: Any, load: Load, meter: Meter) -> None:
    """Publish until the time is up, in batches of `outstanding`."""
    names = load.names
    position = 0
    while meter.tick(time.monotonic()):
        topics = [names[(position + number) % len(names)] for number in range(load.outstanding)]
        position += load.outstanding
        began = time.monotonic()
        publish(connection, topics, [body(began)] * load.outstanding)
        meter.done(began, time.monotonic(), load.outstanding)


def paced(connection: Any, load: Load, meter: Meter) -> None:
    """Publish what is due, until the time is up."""
    began, sent = time.monotonic(), 0
    [topic] = load.names
    while meter.tick(now := time.monotonic()):
        due = int((now - began) * load.per_s) - sent
        if due <= 0:
            time.sleep(PACE_PAUSE_S)
            continue
        bodies = [body(began + number / load.per_s) for number in range(sent, sent + due)]
        publish(connection, [topic] * due, bodies)
        sent += due


def read(port: str, load: Load, reading: Reading) -> None:
    """All readers."""
    threads = []
    subscribed = threading.Barrier(load.readers + 1)

    def follow() -> None:
        connection = connect(port)
        positions: dict[Any, Any] = dict.fromkeys(load.names, b"0")
        subscribed.wait()
        while not reading.over():
            for key, entries in connection.xread(positions, count=READ_COUNT, block=BLOCK_MS):
                positions[key.decode()] = entries[-1][0]
                reading.done([fields[FIELD] for _, fields in entries])

    for _ in range(load.readers):
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        threads.append(thread)
    subscribed.wait()
    reading.ready()
    for thread in threads:
        thread.join()


def deliver(port: str, load: Load) -> dict[str, object]:
    """Publisher and readers."""
    with reading_beside(functools.partial(read, port, load)) as readers:
        connection = connect(port)
        meter = readers.begin(load)
        (paced if load.kind == "paced" else window)(connection, load, meter)
        figures = readers.figures()
    connection.unlink(*load.names)
    return figures


def drained(connection: Any, names: Sequence[str], messages: int) -> float:
    """Seconds to read so many from the start."""
    positions: dict[Any, Any] = dict.fromkeys(names, b"0")
    began, left = time.monotonic(), messages
    while left > 0:
        for key, entries in connection.xread(positions, count=READ_COUNT, block=BLOCK_MS):
            positions[key.decode()] = entries[-1][0]
            left -= len(entries)
        if time.monotonic() - began > DRAIN_TIMEOUT_S:
            raise LoadFailed(f"{left} of {messages} messages were not read within {DRAIN_TIMEOUT_S:g} s")
    return time.monotonic() - began


def drain(connection: Any, load: Load) -> dict[str, object]:
    """Fill, read some to warm up, read all."""
    seconds = 0.0
    for share in (WARMING_SHARE, 1.0):
        names = [f"{name}-{share:g}" for name in load.names]
        messages = int(load.messages * share)
        for first in range(0, messages, FILL_BATCH):
            batch = range(first, min(first + FILL_BATCH, messages))
            publish(connection, [names[number % len(names)] for number in batch], [body(0.0)] * len(batch))
        if share == 1.0:
            mark("start")
        seconds = drained(connection, names, messages)
        connection.unlink(*names)
    mark("end")
    return told(load.messages, seconds)


def acquire(connection: Any, load: Load) -> dict[str, object]:
    """Streams with a consumer group, in batches."""
    meter, made = meter_of(load), 0
    while meter.tick(time.monotonic()):
        names = [f"{load.tag}-{number}" for number in range(made, made + load.outstanding)]
        made += load.outstanding
        began = time.monotonic()
        pipe = connection.pipeline(transaction=False)
        for name in names:
            pipe.xgroup_create(name, GROUP, mkstream=True)
        pipe.wait(1, 0)
        pipe.execute()
        meter.done(began, time.monotonic(), load.outstanding)
    connection.flushdb(asynchronous=True)
    return meter.figures()


def measure(port: str, load: Load) -> dict[str, object]:
    """One measurement."""
    if load.kind in ("deliver", "paced"):
        return deliver(port, load)
    connection = connect(port)
    if load.kind == "drain":
        return drain(connection, load)
    if load.kind == "acquire":
        return acquire(connection, load)
    meter = meter_of(load)
    window(connection, load, meter)
    connection.unlink(*load.names)
    return meter.figures()


if __name__ == "__main__":
    main(measure, sys.argv[1:])
