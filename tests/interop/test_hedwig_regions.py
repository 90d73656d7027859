"""Two regions that subscribe to each other, one of our hubs and one of a genuine hub (or of ours): what is published in
each arrives in both, in its order.

The genuine hub notes no numbers of other regions (hedwig/PROTOCOL.md 2.12), and so stores again what comes again; ours
does, and does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import gatherResults
from twisted.internet.threads import deferToThread

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.metadata.uri import parse_uri
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.model import HubAddress, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.wire.receiving import Received
from tests.interop.hedwig_cells import HUB_KINDS, HedwigMatrix, named
from tests.support.apache_hedwig import OURS, HubProcess, hub_of
from tests.support.zookeeper_sessions import end_owner_session

TOPIC, SUB = Topic(b"orders"), SubscriberId(b"billing")
COUNT = 200


@pytest.fixture
def hubs_of(cluster: LocalCluster, tmp_path: Path) -> Iterator[_Start]:
    with ExitStack() as stack:
        yield _Start(cluster, tmp_path, stack)


class _Start:
    """Starts a hub of region `ours` and one of region `theirs`, which list each other."""

    def __init__(self, cluster: LocalCluster, directory: Path, stack: ExitStack) -> None:
        self._cluster, self._directory, self._stack = cluster, directory, stack
        self._prefix = f"/regions-{directory.name}"

    def free(self, region: str) -> None:
        """End the session of the killed hub of a region."""
        paths = Paths(self._prefix, region)
        end_owner_session(parse_uri(self._cluster.uri).connect_string, paths.owner(TOPIC), paths.root)

    def __call__(self, kind: str) -> tuple[HubProcess, HubProcess]:
        port, prefix = free_port(), self._prefix
        theirs = hub_of(
            kind,
            self._directory / "theirs",
            self._cluster.uri,
            prefix,
            {
                "region": "theirs",
                "regions": f"127.0.0.1:{port}:1",
                "retry_remote_subscribe_thread_run_interval": "1000",
            },
        )
        settings = {
            "region": "ours",
            "regions": f"127.0.0.1:{theirs.port}",
            "server_port": str(port),
            "retry_remote_subscribe_thread_run_interval": "1000",
        }
        ours = hub_of(OURS, self._directory / "ours", self._cluster.uri, prefix, settings)
        for hub in (theirs, ours):
            self._stack.callback(hub.kill)
            hub.start()
        return ours, theirs


@asynccontextmanager
async def connected(hub: HubProcess) -> AsyncIterator[PubSubClient]:
    settings = PubSubSettings(shared_connections=False, answer_timeout_s=60.0)
    client = PubSubClient(reactor, TwistedNetwork(reactor), [HubAddress("127.0.0.1", hub.port)], settings)
    try:
        yield client
    finally:
        await client.close()


async def received(subscription: Subscription, count: int) -> list[Received]:
    """So many messages."""
    found: list[Received] = []
    while len(found) < count:
        found += await subscription.receive(count - len(found))
    return found


def bodies(region: str, first: int, count: int) -> list[bytes]:
    return [b"%b-%d" % (region.encode(), number) for number in range(first, first + count)]


@pytest.mark.parametrize("kind", HUB_KINDS)
@pytest_twisted.ensureDeferred
async def test_what_is_published_in_each_of_two_regions_arrives_in_both(
    kind: str, hubs_of: _Start, hedwig_matrix: HedwigMatrix
) -> None:
    name = f"our region and one of {named(kind)}"
    hedwig_matrix.begin(name)
    ours, theirs = hubs_of(kind)
    async with connected(ours) as here, connected(theirs) as there:
        mine, other = await here.subscribe(TOPIC, SUB), await there.subscribe(TOPIC, SUB)
        await gatherResults(
            [
                client.publisher(TOPIC).publish_many(bodies(region, 0, COUNT), {"kind": b"order"})
                for region, client in (("ours", here), ("theirs", there))
            ]
        )
        got = [await received(mine, 2 * COUNT), await received(other, 2 * COUNT)]
        for messages in got:
            assert [each.local_id for each in messages] == list(range(1, 2 * COUNT + 1))
            assert all(dict(each.properties)["kind"] == b"order" for each in messages)
            for region in ("ours", "theirs"):
                of = [each.body for each in messages if each.region == region.encode()]
                assert of == bodies(region, 0, COUNT), "each once, in the order of its region"
        there_ids = {each.body: each.local_id for each in got[1]}
        for each in got[0]:
            if each.region == b"theirs":
                assert dict(each.remote) == {b"theirs": there_ids[each.body]}

        # Our hub dies: what is published meanwhile is not lost, and nothing comes to its region twice.
        ours.kill()
        await deferToThread(hubs_of.free, "ours")
        await there.publisher(TOPIC).publish_many(bodies("theirs", COUNT, 50))
        assert [each.body for each in await received(other, 50)] == bodies("theirs", COUNT, 50)
        ours.start()
        await here.publish(TOPIC, b"back")
        after = await received(mine, 51)
        assert [each.body for each in after if each.region == b"theirs"] == bodies("theirs", COUNT, 50)
        there_again = [each.body for each in await received(other, 1)]
        while there_again[-1] != b"back":
            there_again += [each.body for each in await received(other, 1)]
        # What a genuine hub had stored and not consumed is stored again by it, in order, and never more than that.
        repeats = len(there_again) - 1
        assert there_again == [*bodies("ours", COUNT - repeats, repeats), b"back"]
        assert kind != OURS or not repeats

        # The last subscribers of each region end: nothing is subscribed to any more.
        await here.unsubscribe(TOPIC, SUB)
        await there.unsubscribe(TOPIC, SUB)
    hedwig_matrix.passed(name, 4 * COUNT + 102)
