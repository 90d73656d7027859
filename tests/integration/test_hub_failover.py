"""Hubs and bookies as processes, killed and stopped under load: what the failover drill and the demo promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hedwig.blocking
from bookkeeper.cli.demo.history import Stream
from bookkeeper.console.output import CommandFailed
from bookkeeper.embedded.cluster import LocalCluster
from hedwig.cli import demo
from hedwig.cli.perf import DRILL_SETTINGS
from hedwig.embedded import LocalHub
from hedwig.perf.drill import BOOKIE_KILL, HUB_KILL, HUB_STOP, Plan, run_drill
from hedwig.perf.drill_check import LOST, check
from tests.support.cluster import STEADY, local_cluster

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


def start_hubs(cluster: LocalCluster, count: int, zk_timeout: str = "1000") -> list[LocalHub]:
    settings = {**DRILL_SETTINGS, "zk_prefix": f"{cluster.root}-hubs", "zk_timeout": zk_timeout}
    hubs = [LocalHub.beside(cluster, number + 1, settings) for number in range(count)]
    cluster.start_others(hubs)
    return hubs


def test_nothing_is_lost_or_out_of_order_when_hubs_and_bookies_are_killed_and_stopped(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """I-89 to I-96, with real processes. Every topic publishes, and every subscriber reads, between two blows."""
    hubs = start_hubs(cluster, 3)
    plan = Plan(
        hub_kills=2, hub_stops=1, bookie_kills=1, topics=4, subscribers_each=2, per_s=200, outstanding=20, size=100
    )
    outcome = run_drill(cluster, hubs, plan, tmp_path)
    assert outcome.findings.examples == []
    assert outcome.trouble == []
    assert outcome.kept
    assert sorted(blow.kind for blow in outcome.blows) == sorted([HUB_KILL, HUB_KILL, HUB_STOP, BOOKIE_KILL])
    found = outcome.findings
    assert found.acknowledged > 100
    assert found.delivered >= 2 * found.acknowledged
    assert found.sessions >= plan.topics * plan.subscribers_each
    assert found.positions > 0
    assert outcome.trimmed > 0


def test_the_demo_goes_on_at_another_hub_and_would_notice_a_loss(cluster: LocalCluster) -> None:
    hubs = start_hubs(cluster, 2, "4000")
    streams = [
        Stream(name, [b"%b release %d" % (name.encode(), number) * 20 for number in range(100)])
        for name in ("bash", "coreutils", "zlib")
    ]
    with hedwig.blocking.connect([f"127.0.0.1:{hub.port}" for hub in hubs]) as client:
        story = demo.tell(client, hubs, streams)
    assert [hub.running for hub in hubs].count(False) == 1
    assert story.killed_topics
    for topic in story.killed_topics:
        assert max(story.acknowledged_s[topic]) > story.killed_s, "the other hub took it over"
    found = check(story.noted)
    assert found.examples == []
    assert found.acknowledged == 300
    assert found.delivered == 600 + 2 * found.stored_again
    demo.report(story, found)

    story.noted.deliveries.pop()
    with pytest.raises(CommandFailed, match=f"promises were broken:\n  {LOST}"):
        demo.report(story, check(story.noted))
