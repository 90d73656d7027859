"""The faces of the hub client on a real cluster: asyncio and blocking, with real hubs that are killed and stopped."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hedwig
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import ClientClosed, ConfigurationError, ConnectFailed, InvalidArgument
from hedwig import HedwigClientSettings
from hedwig.aio import AsyncClient
from hedwig.embedded import LocalHub
from hedwig.errors import InvalidFilter, MalformedRequest, NotSubscribed, TopicBusy
from hedwig.filters import with_expression
from hedwig.model import LocalId, MessageId, SubscribeMode
from tests.support.certificates import Authority
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster

pytestmark = pytest.mark.timeout(240)

QUICK = HedwigClientSettings(answer_timeout_s=30.0, heartbeat_s=1.0, retry_timeout_s=90.0)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("faces")
    with local_cluster(zookeeper.address, "/hub-faces", 2, directory=directory, settings=STEADY) as running:
        yield running


def hub_of(cluster: LocalCluster, number: int, **settings: str) -> LocalHub:
    given = {**STEADY_HUB, "zk_prefix": f"{cluster.root}-hubs", **settings}
    return LocalHub.beside(cluster, number, given)


@pytest.fixture(scope="module")
def hub(cluster: LocalCluster) -> LocalHub:
    hub = hub_of(cluster, 1)
    cluster.start_others([hub])
    return hub


def with_client(hub: LocalHub, scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with await hedwig.connect(hub.address, QUICK) as client:
            await scenario(client)

    asyncio.run(main())


# --- asyncio ---------------------------------------------------------------------------------------------------------


def test_ten_lines_publish_and_subscribe(hub: LocalHub) -> None:
    async def main() -> list[tuple[str, bytes]]:
        got = []
        async with await hedwig.connect(f"localhost:{hub.port}") as client:
            async with await client.subscribe("ten lines", "me") as messages:
                await client.publish("ten lines", b"body")
                await client.publish(b"ten lines", "text", {"color": "red", "raw": b"\x00"})
                async for message in messages:
                    got.append((str(message.id), message.body))
                    if len(got) == 2:
                        assert {"color": b"red", "raw": b"\x00"}.items() <= dict(message.properties).items()
                        break
        return got

    assert asyncio.run(main()) == [("local:1", b"body"), ("local:2", b"text")]


def test_asyncio_publishes_with_back_pressure_and_consumes_what_is_finished(hub: LocalHub) -> None:
    async def scenario(client: AsyncClient) -> None:
        messages = await client.subscribe("many", "me")
        publisher = client.publisher("many")
        futures = [await publisher.publish_soon(b"%d" % number) for number in range(12_000)]
        await client.flush()
        assert [future.result() for future in futures] == [MessageId(LocalId(n)) for n in range(1, 12_001)]
        ids = await client.publish_many("many", [b"a", "b"])
        assert [each.local for each in ids] == [12_001, 12_002]
        async for message in messages:
            assert message.body == b"%d" % (message.local_id - 1)
            if message.local_id == 10_000:
                break
        await messages.close()
        async with await client.subscribe("many", "me", SubscribeMode.ATTACH) as again:
            [first] = await again.receive(1)
            assert first.local_id == 10_000, "the loop was left at it"

        async def breaks() -> None:
            async with await client.subscribe("many", "me") as again:
                assert (await again.receive(5))[0].local_id == 10_001
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await breaks()
        async with await client.subscribe("many", "me", auto_consume=False) as again:
            batch = await again.receive(500)
            assert batch[0].local_id == 10_001, "what raised is not consumed"
            again.consume(batch[-1])
            last = batch[-1].local_id
        async with await client.subscribe("many", "me") as again:
            assert (await again.receive(1))[0].local_id == last + 1

    with_client(hub, scenario)


def test_asyncio_waiting_that_is_cancelled_loses_nothing(hub: LocalHub) -> None:
    async def scenario(client: AsyncClient) -> None:
        messages = await client.subscribe("cancelled", "me")
        assert await messages.receive(timeout_s=0.05) == []
        got: list[int] = []
        published = [await client.publish_soon("cancelled", b"x") for _ in range(200)]
        while len(got) < 200:
            try:
                got += [each.local_id for each in await asyncio.wait_for(messages.receive(3), 0.0005)]
            except TimeoutError:
                continue
        assert got == list(range(1, 201))
        assert len({each.result() for each in published}) == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.01)
        await client.publish("cancelled", b"y")
        assert (await anext(messages)).local_id == 201

    with_client(hub, scenario)


def test_asyncio_says_what_is_wrong(hub: LocalHub) -> None:
    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(MalformedRequest, match="slashes"):
            await client.publish("a//b", b"x")
        with pytest.raises(InvalidArgument, match="the body is 7"):
            await client.publish("wrong", 7)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="property 'n' is 1"):
            await client.publish("wrong", b"x", {"n": 1})  # type: ignore[dict-item]
        with pytest.raises(NotSubscribed):
            await client.subscribe("wrong", "nobody", SubscribeMode.ATTACH)
        with pytest.raises(NotSubscribed):
            await client.unsubscribe("wrong", "nobody")
        held = await client.subscribe("wrong", "one")
        async with await hedwig.connect(hub.address, QUICK) as other:
            with pytest.raises(TopicBusy):
                await other.subscribe("wrong", "one")
            await other.subscribe("wrong", "one", force=True)
            with pytest.raises(TopicBusy, match="another client"):
                await held.receive()
        await client.close()
        with pytest.raises(ClientClosed):
            await client.publish("wrong", b"x")

    with_client(hub, scenario)


def test_filters_of_both_sides(hub: LocalHub) -> None:
    async def scenario(client: AsyncClient) -> None:
        red = await client.subscribe("colors", "red", preferences=with_expression("color = 'red'"))
        even = await client.subscribe("colors", "even", wanted=lambda each: int(each.body) % 2 == 0)
        broken = await client.subscribe("colors", "broken", wanted=lambda each: 1 // (int(each.body) - 3) > -2)
        for number in range(10):
            await client.publish("colors", b"%d" % number, {"color": "red" if number % 3 == 0 else "blue"})
        assert [int((await anext(red)).body) for _ in range(4)] == [0, 3, 6, 9]
        assert [int((await anext(even)).body) for _ in range(5)] == [0, 2, 4, 6, 8]
        assert [int((await anext(broken)).body) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(InvalidFilter, match="ZeroDivisionError"):
            await anext(broken)

    with_client(hub, scenario)


def test_a_hub_that_cannot_be_reached_is_told_at_once() -> None:
    nowhere = f"localhost:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(ConnectFailed, match=r"cannot be reached.*; .*cannot be reached"):
        asyncio.run(hedwig.connect(nowhere))  # type: ignore[arg-type]
    with pytest.raises(ConnectFailed):
        hedwig.blocking.connect(nowhere)
    for wrong in ("", "host:port", "host:70000", "a:1:2:3", []):
        with pytest.raises(ConfigurationError):
            hedwig.blocking.connect(wrong)


# --- blocking --------------------------------------------------------------------------------------------------------


def test_blocking_ten_lines(hub: LocalHub) -> None:
    with hedwig.blocking.connect(hub.address) as client:
        client.publish("blocking", b"before")
        with client.subscribe("blocking", "me") as messages:
            client.publish("blocking", b"body")
            client.publish_many("blocking", [b"%d" % number for number in range(1000)])
            bodies = []
            for message in messages:
                bodies.append(message.body)
                if len(bodies) == 500:
                    break
        assert bodies == [b"body", *(b"%d" % number for number in range(499))]
        with client.subscribe("blocking", "me") as messages:
            assert next(messages).body == b"498", "the loop was left at it"
            assert [each.body for each in messages.receive(2)] == [b"499", b"500"]
            messages.consume(MessageId(LocalId(600)))
            assert messages.receive(1)[0].body == b"501"
        client.unsubscribe("blocking", "me")
        with pytest.raises(NotSubscribed):
            client.subscribe("blocking", "me", SubscribeMode.ATTACH)
    with pytest.raises(ClientClosed):
        client.publish("blocking", b"x")
    client.close()


def test_blocking_publishes_of_many_threads_wait_for_room_and_are_all_answered(hub: LocalHub) -> None:
    with hedwig.blocking.connect(hub.address, HedwigClientSettings(outstanding_max=50)) as client:
        messages = client.subscribe("threads", "me")
        found: list[list[Any]] = [[] for _ in range(4)]

        def publish(index: int) -> None:
            publisher = client.publisher("threads")
            futures = [publisher.publish_soon(b"%d %d" % (index, number)) for number in range(1000)]
            found[index] = [future.result(120).local for future in futures]

        threads = [threading.Thread(target=publish, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        got: dict[int, bytes] = {}
        while len(got) < 4000:
            got.update((each.local_id, each.body) for each in messages.receive(timeout_s=60))
        for thread in threads:
            thread.join()
        for index, ids in enumerate(found):
            assert ids == sorted(ids)
            assert [got[local] for local in ids] == [b"%d %d" % (index, number) for number in range(1000)]
        assert messages.receive(timeout_s=0.01) == []


def test_what_a_blocking_loop_has_finished_is_told_while_its_body_goes_on(hub: LocalHub) -> None:
    settings = HedwigClientSettings(consume_delay_s=0.02)
    with hedwig.blocking.connect(hub.address, settings) as client, hedwig.blocking.connect(hub.address) as other:
        idle = client.subscribe("idle", "me")
        client.subscribe("slow", "me").close()
        client.publish_many("slow", [b"%d" % number for number in range(10)])
        first = b""
        while first != b"4":
            with client.subscribe("slow", "me", force=True) as messages:
                for message in messages:
                    if message.body == b"4":
                        break
                idle.receive(timeout_s=0.1)  # in the middle of the body
                with other.subscribe("slow", "me", force=True, auto_consume=False) as taken:
                    first = taken.receive(1)[0].body
            assert int(first) <= 4, "never more than was finished"


def test_a_blocking_client_that_is_closed_fails_what_waits_elsewhere(hub: LocalHub) -> None:
    client = hedwig.blocking.connect(hub.address)
    messages = client.subscribe("closed", "me")
    ended: list[Any] = []
    waiting = threading.Thread(target=lambda: ended.append(list(messages)))
    waiting.start()
    client.publish("closed", b"x")
    client.close()
    waiting.join(60)
    assert not waiting.is_alive()
    with pytest.raises(ClientClosed):
        client.publish_soon("closed", b"x")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_told_to_connect_again(hub: LocalHub) -> None:
    context = multiprocessing.get_context("fork")
    with hedwig.blocking.connect(hub.address) as client:
        reading, writing = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(client, writing))
        child.start()
        told = reading.recv()
        child.join(30)
        assert len(told) == 2
        assert all("fork" in each for each in told)
        assert client.publish("fork", b"x").local == 1


def _in_child(client: Any, writing: Any) -> None:
    told = []
    for call in (lambda: client.publish("fork", b"x"), lambda: client.publish_soon("fork", b"x")):
        try:
            call()
        except ClientClosed as error:
            told.append(str(error))
    writing.send(told)
    os._exit(0)


# --- hubs that come and go -------------------------------------------------------------------------------------------


def test_a_program_goes_on_when_its_hub_is_killed(cluster: LocalCluster) -> None:
    hubs = [hub_of(cluster, number, zk_prefix=f"{cluster.root}-pair", zk_timeout="2000") for number in (2, 3)]
    cluster.start_others(hubs)
    with hedwig.blocking.connect([hub.address for hub in hubs], QUICK) as client:
        messages = client.subscribe("killed", "me")
        futures = [client.publish_soon("killed", b"%d" % number) for number in range(2000)]
        futures[100].result(120)
        hubs[0].kill()
        first = [future.result(120).local for future in futures]
        hubs[0].start()
        futures = [client.publish_soon("killed", b"%d" % number) for number in range(2000, 3000)]
        hubs[1].stop()
        ids = first + [future.result(120).local for future in futures]
        assert len(set(ids)) == 3000
        got: dict[int, bytes] = {}
        for message in messages:
            assert message.local_id == len(got) + 1, "a gap, or one twice"
            got[message.local_id] = message.body
            if message.local_id == max(ids):
                break
        assert [got[local] for local in ids] == [b"%d" % number for number in range(3000)]
    hubs[0].stop()


def test_tls_needs_to_know_whom_to_trust(cluster: LocalCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ca")
    issued = authority.issue("hub")
    settings = {"ssl_enabled": "true", "cert_path": str(issued.certificate), "cert_key_path": str(issued.key)}
    hub = hub_of(cluster, 4, zk_prefix=f"{cluster.root}-tls", **settings)
    cluster.start_others([hub])
    trusting = HedwigClientSettings(tls=True, ssl_trust_path=str(authority.certificate))
    with hedwig.blocking.connect(hub.address, trusting) as client, client.subscribe("tls", "me") as messages:
        client.publish_many("tls", [b"x" * 50_000 for _ in range(50)])
        assert sum(len(each.body) for _, each in zip(range(50), messages, strict=False)) == 2_500_000
    with hedwig.blocking.connect(hub.address, HedwigClientSettings(tls=True, ssl_trust_all=True)) as client:
        assert client.publish("tls", b"x").local == 51
    other = Authority(tmp_path / "other", "other")
    stranger = HedwigClientSettings(tls=True, ssl_trust_path=str(other.certificate))
    with pytest.raises(ConnectFailed, match="certificate"):
        hedwig.blocking.connect(hub.address, stranger)
    with pytest.raises(ConfigurationError, match="TLS port"):
        hedwig.blocking.connect(f"127.0.0.1:{hub.port}", trusting)
    with pytest.raises(ConfigurationError, match="ssl_trust_path"):
        hedwig.blocking.connect(hub.address, HedwigClientSettings(tls=True, ssl_trust_path=str(tmp_path / "none")))
    with pytest.raises(ConnectFailed, match="TLS"):
        hedwig.blocking.connect(f"127.0.0.1:{hub.port}:{hub.port}", trusting)
    hub.stop()
