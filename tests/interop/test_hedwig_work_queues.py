"""A subscription that is acknowledged one by one goes to a genuine hub, which knows nothing of it, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import hedwig.blocking
from bookkeeper.embedded.cluster import LocalCluster
from hedwig import HedwigClientSettings
from hedwig.client.subscriptions.work_queue import one_by_one
from hedwig.errors import UnexpectedCondition
from hedwig.model import Preferences
from tests.interop.test_hedwig_hub import HubSet
from tests.support.apache_hedwig import HUB_VERSIONS, OURS

QUICK = HedwigClientSettings(answer_timeout_s=60.0, heartbeat_s=1.0, retry_timeout_s=60.0, consume_every=1)
IN_ORDER = Preferences(options={"hw.ack": b"cumulative", "hw.shared": b"false"})


@pytest.fixture
def hub_set(cluster: LocalCluster, tmp_path: Path) -> Iterator[HubSet]:
    with ExitStack() as running:
        yield HubSet(cluster, tmp_path, running, {"consume_interval": "0"})


@pytest.mark.parametrize("version", HUB_VERSIONS)
def test_a_genuine_hub_goes_on_from_the_position_and_ours_from_there(version: str, hub_set: HubSet) -> None:
    topic, who = "work", "crew"
    ours = hub_set.start(OURS)
    with hedwig.blocking.connect(ours.server, QUICK) as client:
        with client.subscribe(topic, who, preferences=one_by_one()) as work:
            for number in range(1, 11):
                client.publish(topic, b"%d" % number)
            for message in [next(work) for _ in range(10)]:
                if message.local_id in (1, 2, 5, 8):
                    work.ack(message)
        ours.stop()
    hub_set.await_free(topic)
    hub_set.await_stored(topic, who, 2)

    theirs = hub_set.start(version)
    with hedwig.blocking.connect(theirs.server, QUICK) as client:
        with pytest.raises(UnexpectedCondition, match="knows nothing of acknowledging one by one"):
            client.subscribe(topic, who, preferences=one_by_one())
        with client.subscribe(topic, who, preferences=IN_ORDER, auto_consume=False) as messages:
            found = [next(messages) for _ in range(8)]
            assert [each.body for each in found] == [b"%d" % number for number in range(3, 11)]
            messages.consume(found[3])
            hub_set.await_stored(topic, who, 6)
    theirs.stop()
    hub_set.end(theirs)
    hub_set.await_free(topic)

    again = hub_set.start(OURS)
    with (
        hedwig.blocking.connect(again.server, QUICK) as client,
        client.subscribe(topic, who, preferences=one_by_one()) as work,
    ):
        rest = [next(work).local_id]
        while rest[-1] != 10:
            rest.append(next(work).local_id)
        rest += [each.local_id for each in work.receive(10, timeout_s=1.0)]
        assert rest in ([7, 9, 10], [7, 8, 9, 10]), "8 was done, and may come again; nothing else may be missing"
