"""Publishing once on a real cluster: a hub is killed with publishes under way; each is stored once, in its order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import hedwig
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from hedwig import HedwigClientSettings
from hedwig.embedded import LocalHub
from tests.support.cluster import STEADY, local_cluster

pytestmark = pytest.mark.timeout(300)

PATIENT = HedwigClientSettings(answer_timeout_s=30.0, heartbeat_s=1.0, retry_timeout_s=120.0)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("once")
    with local_cluster(zookeeper.address, "/hub-once", 2, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def hubs(cluster: LocalCluster) -> list[LocalHub]:
    given = {"zk_prefix": f"{cluster.root}-hubs", "zk_timeout": "2000"}
    found = [LocalHub.beside(cluster, number, given) for number in (1, 2)]
    cluster.start_others(found[:1])
    return found


def test_a_killed_hub_costs_no_message_and_doubles_none(cluster: LocalCluster, hubs: list[LocalHub]) -> None:
    count = 4_000

    async def main() -> None:
        before_ms = int(time.time() * 1000)
        async with await hedwig.connect([hub.address for hub in hubs], PATIENT) as client:
            async with await client.subscribe("once", "me") as messages:
                publisher = client.publisher("once", producer="counter")
                published = []
                for number in range(count):
                    published.append(await publisher.publish_soon(b"%d" % number))
                    if number == count // 2:
                        await published[0]
                        cluster.start_others(hubs[1:])  # in this thread: it would end with another
                        hubs[0].kill()
                ids = await asyncio.gather(*published)
                assert [each.local for each in ids] == list(range(1, count + 1))
                found: list[int] = []
                times: list[int] = []
                async for message in messages:
                    if message.local_id == len(found) + 1:  # delivered again after the move, else
                        found.append(int(message.body))
                        times.append(int(message.properties["hw.time"]))
                    if len(found) == count:
                        break
        assert found == list(range(count))
        assert times == sorted(times)
        assert before_ms <= times[0] <= times[-1] <= time.time() * 1000

    asyncio.run(main())
    with hedwig.blocking.connect([hub.address for hub in hubs], PATIENT) as client:
        again = client.publisher("once", producer="counter", first=count)
        assert [again.publish(b"x").local for _ in range(2)] == [count, count + 1]
