"""A client process of `hedwig perf`: one role in one measurement.

    stdin   {"hubs": ..., "role": ..., ...}         first line: what to do
    stdout  {"ready": true}                          everything is there that must be before it counts
    stdin   {"start": ..., "end": ...}               moments of the machine's monotonic clock
    stdout  {"count": ..., "seconds": ..., "latencies": {...}}   or {"error": ...}

Roles: publish, paced, read, drain, acquire.
"""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.request import pause
from hedwig.client.settings import PubSubSettings
from hedwig.model import Topic
from hedwig.perf import loads
from hedwig.perf.meter import Meter, bodies, handed_over
from hedwig.perf.process import Line, heard, say, serve
from hedwig.wire.receiving import Received
from hedwig.wire.records import parse_address

WARMED_SHARE = 0.1
"""Of a backlog: another one is drained before."""


class _Worker:
    """One role."""

    def __init__(self, reactor: Any, task: dict[str, Any]) -> None:
        self._reactor, self._task = reactor, task
        settings = PubSubSettings(outstanding_max=max(10_000, 2 * task["outstanding"]))
        hubs = [parse_address(each) for each in task["hubs"]]
        self._client = PubSubClient(reactor, TwistedNetwork(reactor), hubs, settings)
        self._topics = [Topic(f"{task['prefix']}-{number}".encode()) for number in range(task["topics"])]
        self._body = bodies(task["size"])

    async def run(self) -> Line:
        """Do it; the figures."""
        try:
            work = getattr(self, f"_{self._task['role']}")
            figures: Line = await work()
        finally:
            self._client.abandon()
        return figures

    async def _started(self) -> Meter:
        say({"ready": True})
        told = await heard(self._reactor)
        return Meter(told["start"], told["end"])

    async def _publish(self) -> dict[str, object]:
        if len(self._topics) > 1:
            await loads.fill(self._client, self._topics, len(self._topics), self._body(0.0))  # every one has its ledger
        meter = await self._started()
        await loads.Publishing(self._client, self._topics, self._task["outstanding"], self._body, meter).run()
        return meter.to_json()

    async def _paced(self) -> dict[str, object]:
        meter = await self._started()
        await loads.paced(self._client, self._reactor, self._topics[0], self._task["per_s"], self._body, meter)
        return meter.to_json()

    async def _read(self) -> dict[str, object]:
        subscriptions = await loads.subscribed(self._client, self._topics, self._task["subscribers"])
        meter = Meter(float("inf"), float("inf"))
        failed: list[Failure] = []

        def on_messages(messages: list[Received]) -> None:
            now = time.monotonic()
            for message in messages:
                meter.done(handed_over(message.body), now)

        for each in subscriptions:
            Deferred.fromCoroutine(loads.read(each, on_messages)).addErrback(failed.append)
        started = await self._started()
        meter.start, meter.end = started.start, started.end
        await pause(self._reactor, max(0.0, meter.end - time.monotonic()))
        if failed:
            failed[0].raiseException()
        return meter.to_json()

    async def _drain(self) -> dict[str, object]:
        messages = self._task["messages"]
        some = int(messages * WARMED_SHARE)
        seconds = 0.0
        for name, count in (("warm", some), ("all", messages)):
            topics = [Topic(b"%b-%b" % (topic, name.encode())) for topic in self._topics]
            await loads.leave_backlog(self._client, topics, count, self._body(0.0))
            if name == "all":
                await self._started()
            seconds = await loads.drained(self._client, topics, count)
        return {"count": messages, "seconds": seconds, "latencies": None}

    async def _acquire(self) -> dict[str, object]:
        meter = await self._started()
        await loads.acquire(self._client, self._task["prefix"], self._task["outstanding"], meter)
        return meter.to_json()


if __name__ == "__main__":
    serve(lambda reactor, task: _Worker(reactor, task).run())
