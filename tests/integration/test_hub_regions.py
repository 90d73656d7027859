"""Hubs of two regions as processes: over TLS, with names for addresses, and with lists that cannot be meant."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hedwig.admin.blocking
import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from hedwig.config.load import load_hub
from hedwig.embedded import LocalHub
from hedwig.errors import Refused
from hedwig.hub.process import ExitCode
from hedwig.model import Topic
from tests.support.certificates import Authority
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.hub_wire import wait_for_exit
from tests.support.patience import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """One bookie of its own cluster."""
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


def hub_of(cluster: LocalCluster, number: int, region: str, regions: str, **settings: str) -> LocalHub:
    """Not started; its records are not those of other tests."""
    given = {**STEADY_HUB, "zk_prefix": f"{cluster.root}-hubs", "region": region, "regions": regions, **settings}
    return LocalHub.beside(cluster, number, given)


def metric(hub_port: str, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub_port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    [found] = [line.split()[-1] for line in lines if line.startswith(f"{name} ")]
    return float(found)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_regions_talk_to_each_other(cluster: LocalCluster, tmp_path: Path, tls: bool) -> None:
    secured: dict[str, str] = {}
    if tls:
        authority = Authority(tmp_path / "ca", "ca")
        issued = authority.issue("hub")
        secured = {
            "ssl_enabled": "true",
            "cert_path": str(issued.certificate),
            "cert_key_path": str(issued.key),
            "inter_region_ssl_enabled": "true",
            "inter_region_ssl_trust_path": str(authority.certificate),
        }
    ports, tls_ports, http = [free_port(), free_port()], [free_port(), free_port()], str(free_port())
    host = "127.0.0.1" if tls else "localhost"
    hubs = []
    for number, name in enumerate(("east", "west")):
        other = 1 - number
        settings = {**secured, "server_port": str(ports[number])}
        if tls:
            settings["ssl_server_port"] = str(tls_ports[number])
        if not number:
            settings.update(httpServerEnabled="true", httpServerPort=http)
        # Over TLS nobody listens at the plain port that is named: were it used, nothing would arrive.
        listed = f"{host}:1:{tls_ports[other]}" if tls else f"{host}:{ports[other]}"
        hubs.append(hub_of(cluster, number + 1, name, listed, **settings))
    cluster.start_others(hubs)
    with hedwig.blocking.connect(hubs[0].address) as here, hedwig.blocking.connect(hubs[1].address) as there:
        with here.subscribe("news", "me") as mine, there.subscribe("news", "you") as yours:
            here.publish("news", "from east", {"k": "v"})
            there.publish("news", "from west", {"k": "v"})
            for messages in (mine, yours):
                got = sorted((next(messages) for _ in range(2)), key=lambda each: each.body)
                assert [(each.body, each.region) for each in got] == [(b"from east", b"east"), (b"from west", b"west")]
                assert [each.properties["k"] for each in got] == [b"v", b"v"]
        assert metric(http, "hub_REGION_MESSAGES") == 1
        assert metric(http, "hub_REGION_MISSING") == 0
        here.unsubscribe("news", "me")
        there.unsubscribe("news", "you")
    assert [hub.stop() for hub in hubs] == [ExitCode.OK] * 2


def test_each_region_tells_how_far_its_readers_and_the_other_region_are_behind(cluster: LocalCluster) -> None:
    ports = [free_port(), free_port()]
    hubs = []
    for number, name in enumerate(("east", "west")):
        settings = {"server_port": str(ports[number]), "consume_interval": "1"}
        hubs.append(hub_of(cluster, number + 1, name, f"127.0.0.1:{ports[1 - number]}", **settings))
    cluster.start_others(hubs)
    with hedwig.blocking.connect(hubs[0].address) as here, hedwig.blocking.connect(hubs[1].address) as there:
        here.subscribe("news", "idle").close()
        there.subscribe("news", "idle").close()
        with here.subscribe("news", "me") as mine, there.subscribe("news", "me") as yours:
            here.publish_many("news", [b"east"] * 5)
            there.publish_many("news", [b"west"] * 3)
            for messages in (mine, yours):
                assert len([next(messages) for _ in range(8)]) == 8
            for region, other in (("east", "west"), ("west", "east")):
                expected = {b"idle": 8, b"me": 1, b"__" + other.encode(): 0}  # the last is consumed with the next
                # A consumed position is stored a moment later.
                until(
                    partial(_is_behind, cluster, region, expected),
                    f"the subscribers of {region} have the expected backlog",
                )


def _is_behind(cluster: LocalCluster, region: str, expected: dict[bytes, int]) -> bool:
    return backlogs(cluster, region, "news") == expected


def backlogs(cluster: LocalCluster, region: str, topic: str) -> dict[bytes, int | None]:
    words = {"metadataServiceUri": cluster.uri, "zk_prefix": f"{cluster.root}-hubs", "region": region}
    with hedwig.admin.blocking.connect(load_hub(None, words).settings) as access:
        found = access.run(lambda region: region.subscriptions_of(Topic(topic.encode())))
    return {each.subscriber: each.backlog for each in found}


def test_a_region_that_lists_itself_is_told_what_is_wrong(cluster: LocalCluster) -> None:
    port = free_port()
    hub = hub_of(cluster, 1, "east", f"127.0.0.1:{port}:9876", server_port=str(port))
    assert wait_for_exit(hub) == ExitCode.BAD_CONFIGURATION
    assert (
        f"regions: 127.0.0.1:{port}:-1 is this hub itself; list the hubs of other regions" in hub.log_path.read_text()
    )
    other = hub_of(cluster, 2, "east", f"localhost:{port}", server_port=str(port))
    cluster.start_others([other])
    with hedwig.blocking.connect(other.address) as client:
        with pytest.raises(Refused, match="a hub has one of its own region in its `regions`"):
            client.subscribe("news", "me")
        assert client.publish("news", "x").local == 1
