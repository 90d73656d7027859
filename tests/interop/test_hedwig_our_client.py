"""Our publish-subscribe client beside Apache's on one topic, at our hub and at genuine ones: each gets what the other
published, and goes on with a subscription where the other left it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import gatherResults

from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscription import Subscription
from hedwig.model import HubAddress, SubscribeMode, SubscriberId, Topic
from tests.interop.hedwig_cells import HUB_KINDS, MULTIPLEXED, Cell, HedwigMatrix, Row, named
from tests.support.apache.content import fingerprint, payload
from tests.support.apache_hedwig import CLIENT_VERSIONS, HedwigClient, HubProcess
from tests.support.apache_hedwig.client import numbered

SIZE_MAX = 500_000
MANUAL = {"auto_send_consume_message_enabled": "false"}

_numbers = itertools.count(1)


async def received(subscription: Subscription, count: int) -> list[str]:
    """So many messages of ours, as the genuine client's program prints them."""
    lines: list[str] = []
    while len(lines) < count:
        for each in await subscription.receive():
            properties = each.properties
            number, size = properties["number"].decode(), properties["size"].hex()
            lines.append(f"{each.local_id} {fingerprint(each.body)} {number} {size} {each.message_type}")
    return lines


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize("kind", HUB_KINDS)
@pytest_twisted.ensureDeferred
async def test_our_client_and_a_genuine_one_share_topics_and_subscriptions(
    kind: str,
    version: str,
    shared: bool,
    hedwig_clients: Callable[[str], HedwigClient],
    hedwig_hubs: Callable[[str], HubProcess],
    hedwig_matrix: HedwigMatrix,
) -> None:
    name = f"our client and {version} at {named(kind)}"
    hedwig_matrix.begin(name)
    hub = hedwig_hubs(kind)
    cell = Cell(Row(version, MULTIPLEXED), hedwig_clients(version), hub, next(_numbers))
    cell.topic = f"both-{cell.topic}"
    tool, theirs = cell.tool, cell.open("both", MANUAL)
    topic, mine, other = Topic(cell.topic.encode()), SubscriberId(b"mine"), SubscriberId(b"other")
    everything = numbered(1, range(65), SIZE_MAX)
    settings = PubSubSettings(shared_connections=shared)
    client = PubSubClient(reactor, TwistedNetwork(reactor), [HubAddress("127.0.0.1", hub.port)], settings)
    try:
        subscription = await client.subscribe(topic, mine, SubscribeMode.CREATE)
        tool.run("subscribe", theirs, cell.topic, "other", "CREATE")
        tool.run("deliver", theirs, cell.topic, "other")
        assert cell.ids("publish", theirs, cell.topic, 1, 0, 30, SIZE_MAX) == list(range(1, 31))
        publisher = client.publisher(topic, message_type="numbered")
        publishes = []
        for number in range(30, 60):
            body = payload(1, number, SIZE_MAX)
            properties = {"number": b"%d" % number, "size": len(body).to_bytes(4)}
            publishes.append(publisher.publish(body, properties))
        ids = await gatherResults(publishes)
        assert [each.local for each in ids] == list(range(31, 61))
        assert await received(subscription, 60) == everything[:60]
        cell.received(theirs, "other", everything[:60])

        await subscription.close()
        tool.run("consume", theirs, cell.topic, "other", 50)
        tool.run("close", theirs, cell.topic, "other")
        cell.ids("publish", theirs, cell.topic, 1, 60, 5, SIZE_MAX)
        subscription = await client.subscribe(topic, other, SubscribeMode.ATTACH)
        assert await received(subscription, 15) == everything[50:]
        tool.run("subscribe", theirs, cell.topic, "mine", "ATTACH")
        tool.run("deliver", theirs, cell.topic, "mine")
        cell.received(theirs, "mine", everything[60:])
        await client.unsubscribe(topic, other)
    finally:
        await client.close()
        cell.close()
    hedwig_matrix.passed(name, cell.compared + 75)
