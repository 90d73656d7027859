"""Very many topics with a subscription each on one hub: what they cost, and that they survive the hub and ZooKeeper.

    subscribe to all at hub 1      rate, also as a ratio to pipelined creations of znodes just before; memory; CPU idle
    publish to some                delivered
    kill -9 of hub 1               all attached at hub 2: how long, the session's end included
    kill -9 of ZooKeeper, restart  publish to some again: delivered; the hub still owns its topics, or takes them anew

Blocking: for command lines.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from bookkeeper.cli.perf.counters import process_cpu_seconds, process_memory_bytes
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata import zookeeper
from bookkeeper.metadata.store import MetadataSettings
from hedwig.embedded import LocalHub
from hedwig.perf.process import ClientProcess, Line

BOOKIES = 3
ZNODES = 5_000
AWAKENED = 1_000
STEP = 10_000
IDLE_S = 3.0
STEP_TIMEOUT_S = 1800.0
HEAP_MIB_PER_TOPIC = 8 / 1024


@dataclass(frozen=True, slots=True)
class ScaleFigures:
    """rates per second; memory in bytes; seconds_*: of each step. restart_s: of ZooKeeper until messages pass again."""

    topics: int
    znodes_per_s: float
    subscribed_per_s: float
    hub_memory: int
    hub_memory_before: int
    idle_cpu_share: float
    delivered: int
    takeover_s: float
    second_hub_memory: int
    restart_s: float

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "topics": self.topics,
            "znodes_per_s": round(self.znodes_per_s),
            "subscribed_per_s": round(self.subscribed_per_s),
            "subscribed_per_znode": round(self.subscribed_per_s / self.znodes_per_s, 3),
            "hub_memory_mib": round(self.hub_memory / 2**20, 1),
            "bytes_per_topic": round((self.hub_memory - self.hub_memory_before) / self.topics),
            "idle_cpu_percent": round(100 * self.idle_cpu_share, 2),
            "delivered_before_and_after": self.delivered,
            "takeover_s": round(self.takeover_s, 1),
            "taken_over_per_s": round(self.topics / self.takeover_s),
            "second_hub_memory_mib": round(self.second_hub_memory / 2**20, 1),
            "after_zookeeper_restart_s": round(self.restart_s, 1),
        }


def measure_scale(topics: int, tell: Callable[[str], object]) -> ScaleFigures:
    """All of it, on a cluster of its own. tell: what is going on. Raises WorkerFailed, LocalProcessFailed."""
    heap_mib = max(256, int(topics * HEAP_MIB_PER_TOPIC) + 256)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(BOOKIES, zookeeper_heap_mib=heap_mib))
        first, second = (LocalHub.beside(cluster, number) for number in (1, 2))
        cluster.start_others([first])
        server = cluster.zookeeper
        assert server is not None
        znodes_per_s = znode_rate(cluster.uri)
        tell(f"pipelined creations of znodes: {znodes_per_s:,.0f}/s")
        before = process_memory_bytes(first.pid)
        task: Line = {"hubs": (first.address, second.address), "prefix": f"scale-{os.getpid()}", "topics": topics}
        holder = stack.enter_context(ClientProcess("hedwig.perf.holder", "subscriber", task))
        seconds = 0.0
        for done in range(0, topics, STEP):
            seconds += _ask(holder, {"do": "subscribe", "count": min(STEP, topics - done)})["seconds"]
            tell(f"{min(done + STEP, topics):,} subscriptions in {seconds:.1f} s")
        per_s = topics / seconds
        memory = process_memory_bytes(first.pid)
        tell(f"{topics:,} subscriptions, {per_s:,.0f}/s; the hub has {memory / 2**20:,.0f} MiB")
        idle = process_cpu_seconds(first.pid)
        time.sleep(IDLE_S)
        idle = (process_cpu_seconds(first.pid) - idle) / IDLE_S
        some = random.sample(range(topics), min(topics, AWAKENED))
        delivered = _ask(holder, {"do": "publish", "topics": some})["delivered"]
        tell(f"{delivered:,} messages delivered; now kill -9 of the hub")
        cluster.start_others([second])
        begun = time.monotonic()
        first.kill()
        _ask(holder, {"do": "attached"})
        takeover_s = time.monotonic() - begun
        second_memory = process_memory_bytes(second.pid)
        tell(f"all attached at the other hub after {takeover_s:.1f} s; now kill -9 and restart of ZooKeeper")
        begun = time.monotonic()
        server.kill()
        server.start()
        _ask(holder, {"do": "attached"})
        delivered += _ask(holder, {"do": "publish", "topics": some})["delivered"]
        restart_s = time.monotonic() - begun
        tell(f"{delivered:,} messages delivered in all; {restart_s:.1f} s after ZooKeeper's end")
        second.kill()
    return ScaleFigures(
        topics, znodes_per_s, per_s, memory, before, idle, delivered, takeover_s, second_memory, restart_s
    )


def _ask(holder: ClientProcess, what: Line) -> Line:
    holder.tell(what)
    return holder.hear(STEP_TIMEOUT_S)


def znode_rate(uri: str, count: int = ZNODES) -> float:
    """Creations of persistent znodes a second, all sent without waiting for answers; they are removed again."""
    crossing = ReactorThread()
    reactor: Any = crossing.reactor

    async def measured() -> float:
        store = await zookeeper.connect(
            uri,
            clock=reactor,
            call_from_thread=reactor.callFromThread,
            random=random.Random(),
            settings=MetadataSettings(),
        )
        try:
            parent = f"/perf-{os.getpid()}"
            paths = [f"{parent}/node-{number:06d}" for number in range(count)]
            await store.tree.create(parent, b"")
            begun = time.monotonic()
            await gatherResults([store.tree.create(path, b"x" * 64) for path in paths])
            seconds = time.monotonic() - begun
            await gatherResults([store.tree.delete(path, 0) for path in paths])
            await store.tree.delete(parent, 0)
            return count / seconds
        finally:
            await store.close()

    try:
        return crossing.run(lambda: Deferred.fromCoroutine(measured()))
    finally:
        crossing.stop()
