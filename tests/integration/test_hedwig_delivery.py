"""Replay, work queues and retention at real hubs, through the clients that programs use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kazoo.client import KazooClient

import hedwig
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from hedwig import HedwigClientSettings
from hedwig.client.subscriptions.work_queue import attempt, one_by_one
from hedwig.embedded import LocalHub
from hedwig.protocol.publish_time import time_of
from tests.support.cluster import STEADY, local_cluster
from tests.support.patience import until

pytestmark = pytest.mark.timeout(300)

QUICK = HedwigClientSettings(answer_timeout_s=30.0, heartbeat_s=1.0, retry_timeout_s=90.0)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("delivery")
    with local_cluster(zookeeper.address, "/delivery", 2, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def hubs(cluster: LocalCluster) -> list[LocalHub]:
    given = {
        "zk_prefix": f"{cluster.root}-hubs",
        "zk_timeout": "6000",
        "max_entries_per_ledger": "10",
        "limit_bytes": "20000",
        "messages_consumed_thread_run_interval": "200",
    }
    found = [LocalHub.beside(cluster, number, given) for number in (1, 2)]
    cluster.start_others(found)
    return found


def test_a_subscriber_begins_again_at_a_message_and_at_a_time(hubs: list[LocalHub]) -> None:
    with hedwig.blocking.connect([each.address for each in hubs], QUICK) as client:
        client.subscribe("replayed", "keeps").close()  # what nobody subscribed to is deleted soon
        for number in range(1, 31):
            client.publish("replayed", b"%d" % number)
        with client.subscribe("replayed", "me", start=1) as messages:
            first = [next(messages) for _ in range(30)]
            assert [each.local_id for each in first] == list(range(1, 31))
            messages.seek(12)
            assert [next(messages).local_id for _ in range(3)] == [12, 13, 14]
            published_ms = time_of(first[20].properties)
            assert published_ms is not None
            when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=published_ms)
            messages.seek(when)
            expected = next(each.local_id for each in first if (time_of(each.properties) or 0) >= published_ms)
            assert next(messages).local_id == expected


def test_a_work_queue_survives_the_death_of_its_hub_and_buries_what_nobody_can_do(
    zookeeper: Any, cluster: LocalCluster, hubs: list[LocalHub]
) -> None:
    preferences = one_by_one(shared=True, timeout_s=3, attempts_max=3, dead_letter=b"graves")

    async def main() -> None:
        async with (
            await hedwig.connect([each.address for each in hubs], QUICK) as one,
            await hedwig.connect([each.address for each in hubs], QUICK) as other,
        ):
            grave = await one.subscribe("graves", "digger")
            workers = [await each.subscribe("work", "crew", preferences=preferences) for each in (one, other)]
            ids = await one.publish_many("work", [b"%d" % number for number in range(1, 41)])
            done: set[int] = set()

            async def work(count: int) -> None:
                while len(done) < count:
                    for worker in workers:
                        for message in await worker.receive(5, timeout_s=0.05):
                            if message.body == b"7":
                                continue  # nobody can
                            assert attempt(message) <= 3
                            worker.ack(message)
                            done.add(message.local_id)

            await work(20)
            owner = await asyncio.to_thread(owner_of, zookeeper.address, f"{cluster.root}-hubs", hubs, "work")
            owner.kill()
            await work(39)
            [letter] = await grave.receive(1)
            assert letter.body == b"7"
            assert letter.properties["hw.dead.topic"] == b"work"
            assert letter.properties["hw.dead.id"] == b"%d" % ids[6].local
            assert int(letter.properties["hw.dead.attempts"]) >= 3
            await asyncio.to_thread(owner.start)

    asyncio.run(main())


def owner_of(address: str, prefix: str, hubs: list[LocalHub], topic: str) -> LocalHub:
    """By its record in ZooKeeper."""
    client = KazooClient(address)
    client.start()
    try:
        data, _ = client.get(f"{prefix}/standalone/topics/{topic}/hub")
    finally:
        client.stop()
        client.close()
    [found] = [each for each in hubs if f":{each.port}:".encode() in data]
    return found


def test_a_limit_takes_what_nobody_consumes(hubs: list[LocalHub]) -> None:
    with hedwig.blocking.connect([each.address for each in hubs], QUICK) as client:
        with client.subscribe("limited", "slow"):
            for _ in range(60):
                client.publish("limited", b"x" * 1000)
        with client.subscribe("limited", "slow") as messages:

            def kept() -> list[int]:
                messages.seek(1)
                found = [next(messages).local_id]
                while found[-1] < 60:
                    found.append(next(messages).local_id)
                return found

            def is_limited() -> bool:
                found = kept()
                assert (found[0] - 1) % 10 == 0, "whole ledgers"
                # The limit may delete more messages during this read, which leaves a gap. The next look finds the rest.
                return found[0] > 1 and found == list(range(found[0], 61))

            until(is_limited, "old messages are gone, and the rest is there")
