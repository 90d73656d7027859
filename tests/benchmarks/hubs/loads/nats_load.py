"""NATS JetStream through nats-py: a stream of three copies whose subjects are the topics.

python -m tests.benchmarks.hubs.loads.nats_load URL KIND ...      see load.py

Publishes are `publish_async`. A subscription is a durable push consumer with one acknowledgement for fifty messages,
as Hedwig's; readers are one process with a loop of its own. Topics share a stream but where topics are made, where
each is a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import nats  # type: ignore[import-not-found,import-untyped,unused-ignore]  # of the peers' own environment
from nats.js.api import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AckPolicy,
    ConsumerConfig,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError  # type: ignore[import-not-found,import-untyped,unused-ignore]

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

COPIES = 3
ACK_EVERY = 50
UNACKED_MAX = 10_000
WAIT_S = 30.0
MADE_AT_ONCE = 10
"""More streams at a time are not made faster, only later."""

TRIES, RETRY_S = 200, 0.05
FILL_OUTSTANDING = 500
PACE_PAUSE_S = 0.0005


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Any, Any]]:
    """The connection, and its streams."""
    connection = await nats.connect(url, allow_reconnect=False)
    try:
        yield connection, connection.jetstream(timeout=WAIT_S, publish_async_max_pending=1 << 20)
    finally:
        with contextlib.suppress(Exception):
            await connection.close()


async def make_stream(streams: Any, name: str, subjects: Sequence[str]) -> None:
    """Of three copies on disk."""
    await streams.add_stream(
        StreamConfig(name=name, subjects=list(subjects), storage=StorageType.FILE, num_replicas=COPIES)
    )


async def subscribe(streams: Any, stream: str, subject: str, durable: str) -> str:
    """A durable subscription; the subject to listen to."""
    inbox = f"deliver.{durable}"
    settings = ConsumerConfig(
        durable_name=durable,
        deliver_subject=inbox,
        filter_subject=subject,
        ack_policy=AckPolicy.ALL,
        max_ack_pending=UNACKED_MAX,
    )
    for _ in range(TRIES):
        try:
            await streams.add_consumer(stream, settings)
        except NotFoundError:  # the server that is asked may not have heard of a stream that was just made
            await asyncio.sleep(RETRY_S)
        else:
            return inbox
    raise LoadFailed(f"no server knows stream {stream} after {TRIES * RETRY_S:g} s")


async def listen(connection: Any, inbox: str, on_message: Callable[[bytes], None]) -> None:
    """Attach to a subscription; what arrives is handed on, and acknowledged now and then."""
    seen = 0

    async def arrived(message: Any) -> None:
        nonlocal seen
        seen += 1
        on_message(message.data)
        if seen % ACK_EVERY == 0:
            await message.ack()

    await connection.subscribe(inbox, cb=arrived, pending_msgs_limit=-1, pending_bytes_limit=-1)


class Window:
    """Publishes with so many unanswered at most."""

    def __init__(self, streams: Any, outstanding: int, meter: Meter | None = None) -> None:
        self._streams, self._meter = streams, meter
        self._free = asyncio.Semaphore(outstanding)
        self._outstanding = outstanding
        self.failure: BaseException | None = None

    async def publish(self, subject: str, at: float) -> None:
        """Waits for room; the answer comes later. Raises LoadFailed for one that failed."""
        await self._free.acquire()
        if self.failure is not None:
            raise LoadFailed(f"a publish failed: {self.failure}")
        future = await self._streams.publish_async(subject, body(at), wait_stall=WAIT_S)
        future.add_done_callback(functools.partial(self._answered, at))

    def _answered(self, began: float, future: asyncio.Future[Any]) -> None:
        self._free.release()
        if future.cancelled():
            return
        if (failure := future.exception()) is not None:
            self.failure = failure
        elif self._meter is not None:
            self._meter.done(began, time.monotonic())

    async def empty(self) -> None:
        """All are answered. Raises LoadFailed."""
        for _ in range(self._outstanding):
            await asyncio.wait_for(self._free.acquire(), WAIT_S)
        if self.failure is not None:
            raise LoadFailed(f"a publish failed: {self.failure}")


async def windowed(streams: Any, load: Load, meter: Meter) -> None:
    """Publish until the time is up."""
    window = Window(streams, load.outstanding, meter)
    names, position = load.names, 0
    while meter.tick(now := time.monotonic()):
        await window.publish(names[position % len(names)], now)
        position += 1
    await window.empty()


async def paced(streams: Any, load: Load, meter: Meter) -> None:
    """Publish what is due, until the time is up."""
    window = Window(streams, load.outstanding)
    [topic] = load.names
    began, sent = time.monotonic(), 0
    while meter.tick(now := time.monotonic()):
        if sent >= (now - began) * load.per_s:
            await asyncio.sleep(PACE_PAUSE_S)
            continue
        await window.publish(topic, began + sent / load.per_s)
        sent += 1
    await window.empty()


async def follow(url: str, load: Load, reading: Reading) -> None:
    """All readers."""
    async with contextlib.AsyncExitStack() as connections:
        for reader in range(load.readers):
            connection, streams = await connections.enter_async_context(connected(url))
            for name in load.names:
                inbox = await subscribe(streams, load.tag, name, f"{name}-sub{reader}")
                await listen(connection, inbox, lambda message: reading.done([message]))
            await connection.flush()
        reading.ready()
        await asyncio.sleep(reading.left_s())


def deliver(url: str, load: Load) -> dict[str, object]:
    """Publisher and readers."""

    async def stream() -> None:
        async with connected(url) as (_, streams):
            await make_stream(streams, load.tag, load.names)

    async def publishing() -> dict[str, object]:
        async with connected(url) as (_, streams):
            meter = await asyncio.to_thread(readers.begin, load)
            await (paced if load.kind == "paced" else windowed)(streams, load, meter)
            figures = await asyncio.to_thread(readers.figures)
            await streams.delete_stream(load.tag)
        return figures

    asyncio.run(stream())
    with reading_beside(lambda reading: asyncio.run(follow(url, load, reading))) as readers:
        return asyncio.run(publishing())


async def drain(url: str, load: Load) -> dict[str, object]:
    """Subscribe, fill, attach and read some to warm up, then all."""
    seconds = 0.0
    for share in (WARMING_SHARE, 1.0):
        tag = f"{load.tag}-{100 * share:.0f}"
        names = [f"{name}-{100 * share:.0f}" for name in load.names]
        messages = int(load.messages * share)
        async with connected(url) as (connection, streams):
            await make_stream(streams, tag, names)
            inboxes = await asyncio.gather(*(subscribe(streams, tag, name, f"{name}-sub") for name in names))
            window = Window(streams, FILL_OUTSTANDING)
            for number in range(messages):
                await window.publish(names[number % len(names)], 0.0)
            await window.empty()
            left, all_here = messages, asyncio.Event()

            def arrived(message: bytes, all_here: asyncio.Event = all_here) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    all_here.set()

            if share == 1.0:
                mark("start")
            began = time.monotonic()
            for inbox in inboxes:
                await listen(connection, inbox, arrived)
            try:
                await asyncio.wait_for(all_here.wait(), DRAIN_TIMEOUT_S)
            except TimeoutError:
                raise LoadFailed(f"{left} of {messages} messages were not read within {DRAIN_TIMEOUT_S:g} s") from None
            seconds = time.monotonic() - began
            if share == 1.0:
                mark("end")
            await streams.delete_stream(tag)
    return told(load.messages, seconds)


async def acquire(url: str, load: Load) -> dict[str, object]:
    """Streams with a durable subscription each."""
    made: list[str] = []
    async with connected(url) as (_, streams):
        meter = meter_of(load)

        async def make() -> None:
            while meter.tick(began := time.monotonic()):
                name = f"{load.tag}-{len(made)}"
                made.append(name)
                await make_stream(streams, name, [name])
                await subscribe(streams, name, name, f"{name}-sub")
                meter.done(began, time.monotonic())

        async with asyncio.TaskGroup() as makers:
            for _ in range(min(load.outstanding, MADE_AT_ONCE)):
                makers.create_task(make())
        await asyncio.gather(*(streams.delete_stream(name) for name in made))
    return meter.figures()


async def publish(url: str, load: Load) -> dict[str, object]:
    """No readers."""
    async with connected(url) as (_, streams):
        await make_stream(streams, load.tag, load.names)
        meter = meter_of(load)
        await windowed(streams, load, meter)
        await streams.delete_stream(load.tag)
    return meter.figures()


def measure(url: str, load: Load) -> dict[str, object]:
    """One measurement."""
    if load.kind in ("deliver", "paced"):
        return deliver(url, load)
    of_kind = {"drain": drain, "acquire": acquire, "publish": publish}
    return asyncio.run(of_kind[load.kind](url, load))


if __name__ == "__main__":
    main(measure, sys.argv[1:])
