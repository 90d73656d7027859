"""Programs that write endlessly and print a line for each acknowledged batch, while a test steps their clock.

    python -m tests.support.stepped_clients FACE ADDRESS

FACE: ledger-blocking, ledger-asyncio, ledger-twisted, ledger-twisted-asyncio; hub-blocking, hub-asyncio, hub-twisted.
The Twisted faces run on a caller's plain reactor, which follows the wall clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

BATCH = [b"x" * 100] * 1000
"""Large, so that adds are nearly always pending at the moment of a step."""
TOPIC = "stepped"


def report(count: int) -> None:
    """Write a line for the test."""
    sys.stdout.write(f"{count}\n")
    sys.stdout.flush()


def ledger_blocking(uri: str) -> None:
    """The blocking client."""
    from bookkeeper.blocking import connect

    with connect(uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
        count = 0
        while True:
            ledger.append_many(BATCH)
            report(count := count + 1)


def ledger_asyncio(uri: str) -> None:
    """The asyncio client."""
    from bookkeeper import BookKeeper

    async def main() -> None:
        async with (
            await BookKeeper.connect(uri) as client,
            await client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger,
        ):
            count = 0
            while True:
                await ledger.append_many(BATCH)
                report(count := count + 1)

    asyncio.run(main())


def ledger_twisted(uri: str) -> None:
    """The Twisted client on the plain reactor of `task.react`."""
    from bookkeeper.client.client import connect

    async def main(reactor: Any) -> None:
        assert reactor.seconds is time.time
        client = await connect(uri, reactor)
        ledger = await client.create(ensemble=1, write_quorum=1, ack_quorum=1)
        count = 0
        while True:
            await ledger.append_many(BATCH)
            report(count := count + 1)

    _react(main)


def hub_blocking(hubs: str) -> None:
    """The blocking hub client."""
    from hedwig.blocking import connect

    with connect(hubs) as client:
        count = 0
        while True:
            client.publish_many(TOPIC, BATCH)
            report(count := count + 1)


def hub_asyncio(hubs: str) -> None:
    """The asyncio hub client."""
    import hedwig

    async def main() -> None:
        async with await hedwig.connect(hubs) as client:
            count = 0
            while True:
                await client.publish_many(TOPIC, BATCH)
                report(count := count + 1)

    asyncio.run(main())


def hub_twisted(hubs: str) -> None:
    """The Twisted hub client on the plain reactor of `task.react`."""
    from hedwig.client.connecting import connect_to

    async def main(reactor: Any) -> None:
        assert reactor.seconds is time.time
        client = await connect_to(hubs, reactor)
        count = 0
        while True:
            await client.publisher(TOPIC).publish_many(BATCH)
            report(count := count + 1)

    _react(main)


def _react(main: Callable[[Any], Awaitable[None]]) -> None:
    from twisted.internet import task
    from twisted.internet.defer import Deferred

    task.react(lambda reactor: Deferred.fromCoroutine(main(reactor)))  # type: ignore[arg-type]


def _on_asyncio(run: Callable[[str], None], address: str) -> None:
    from twisted.internet import asyncioreactor

    asyncioreactor.install(asyncio.new_event_loop())  # type: ignore[no-untyped-call]
    run(address)


FACES: dict[str, Callable[[str], None]] = {
    "ledger-blocking": ledger_blocking,
    "ledger-asyncio": ledger_asyncio,
    "ledger-twisted": ledger_twisted,
    "ledger-twisted-asyncio": lambda address: _on_asyncio(ledger_twisted, address),
    "hub-blocking": hub_blocking,
    "hub-asyncio": hub_asyncio,
    "hub-twisted": hub_twisted,
}

if __name__ == "__main__":
    FACES[sys.argv[1]](sys.argv[2])
