"""A client process that holds very many subscriptions, for `hedwig perf scale`. See `hedwig.perf.process`.

{"hubs": [...], "prefix": ..., "topics": N}     first line
{"do": "subscribe", "count": n}      -> {"subscribed": n in all, "seconds": s}
{"do": "publish", "topics": [...]}   -> {"delivered": n, "seconds": s}     one message to each of these numbers
{"do": "attached"}                   -> {"attached": n, "seconds": s}      once all are attached (again)
"""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from bookkeeper.errors import again
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.request import pause
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.model import SubscriberId, Topic
from hedwig.perf.process import Line, heard, say, serve
from hedwig.wire.receiving import Received
from hedwig.wire.records import parse_address

ASKED_AT_ONCE = 200
LOOK_S = 0.2
SUBSCRIBER = SubscriberId(b"device")


class _Holder:
    """See the module."""

    def __init__(self, reactor: Any, task: dict[str, Any]) -> None:
        self._reactor = reactor
        settings = PubSubSettings(retry_timeout_s=300.0)
        self._client = PubSubClient(
            reactor, TwistedNetwork(reactor), [parse_address(each) for each in task["hubs"]], settings
        )
        self._topics = [Topic(f"{task['prefix']}-{number}".encode()) for number in range(task["topics"])]
        self._held: list[Subscription] = []
        self._delivered = 0
        self._failed: list[Failure] = []

    async def run(self) -> Line:
        """Do what is told, until this process is killed."""
        while True:
            task = await heard(self._reactor)
            begun = time.monotonic()
            match task["do"]:
                case "subscribe":
                    done: Line = {"subscribed": await self._subscribe(task["count"])}
                case "publish":
                    done = {"delivered": await self._publish(task["topics"])}
                case _:
                    done = {"attached": await self._attached()}
            say({**done, "seconds": time.monotonic() - begun})

    async def _subscribe(self, count: int) -> int:
        waiting = iter(self._topics[len(self._held) : len(self._held) + count])

        async def one_after_the_other() -> None:
            for topic in waiting:
                held = await self._client.subscribe(topic, SUBSCRIBER)
                self._held.append(held)
                Deferred.fromCoroutine(self._read(held)).addErrback(self._failed.append)

        await gatherResults([Deferred.fromCoroutine(one_after_the_other()) for _ in range(ASKED_AT_ONCE)])
        return len(self._held)

    async def _read(self, subscription: Subscription) -> None:
        while True:
            messages: list[Received] = await subscription.receive()
            self._delivered += len(messages)

    async def _publish(self, numbers: list[int]) -> int:
        wanted = self._delivered + len(numbers)
        await gatherResults([self._client.publish(self._topics[number], b"wake up") for number in numbers])
        while self._delivered < wanted:
            self._check()
            await pause(self._reactor, LOOK_S / 10)
        return len(numbers)

    async def _attached(self) -> int:
        while not all(each.attached for each in self._held):
            self._check()
            await pause(self._reactor, LOOK_S)
        return len(self._held)

    def _check(self) -> None:
        if self._failed:
            error = self._failed[0].value
            assert error is not None
            raise again(error)


if __name__ == "__main__":
    serve(lambda reactor, task: _Holder(reactor, task).run())
