"""Our publish-subscribe client beside Apache's on one topic, at our hub and at genuine ones: each gets what the other
published, and goes on with a subscription where the other left it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import gatherResults

from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.filters import with_expression
from hedwig.model import HubAddress, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.conditions import STEPS_MAX
from tests.interop.hedwig_cells import HUB_KINDS, MULTIPLEXED, ROWS, Cell, HedwigMatrix, Row, named
from tests.support.apache.content import fingerprint, payload
from tests.support.apache_hedwig import CLIENT_VERSIONS, OURS, HedwigClient, HedwigError, HubProcess
from tests.support.apache_hedwig.client import numbered

SIZE_MAX = 500_000
PATIENT = PubSubSettings(answer_timeout_s=60.0)
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
    settings = replace(PATIENT, shared_connections=shared)
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
        # Apache's client stored no window. Our hub applies and returns ours; Apache's hub stores none with ATTACH.
        assert subscription.preferences.window_size == (settings.window if kind == OURS else None)
        assert await received(subscription, 15) == everything[50:]
        tool.run("subscribe", theirs, cell.topic, "mine", "ATTACH")
        tool.run("deliver", theirs, cell.topic, "mine")
        cell.received(theirs, "mine", everything[60:])
        await client.unsubscribe(topic, other)
    finally:
        await client.close()
        cell.close()
    hedwig_matrix.passed(name, cell.compared + 75)


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest_twisted.ensureDeferred
async def test_a_genuine_client_receives_the_suspension_and_all_messages(
    row: Row,
    hedwig_clients: Callable[[str], HedwigClient],
    hedwig_hubs: Callable[[str], HubProcess],
    hedwig_matrix: HedwigMatrix,
) -> None:
    """A filter takes too long for a message (hedwig.hub.subscriptions.attachment). Our client changes the filter."""
    name = f"{row} with a suspended subscription"
    hedwig_matrix.begin(name)
    hub = hedwig_hubs(OURS)
    cell = Cell(row, hedwig_clients(row.version), hub, next(_numbers))
    cell.topic = f"suspended-{cell.topic}"
    tool, theirs = cell.tool, cell.open("a", MANUAL)
    topic, reader = Topic(cell.topic.encode()), SubscriberId(b"reader")
    client = PubSubClient(reactor, TwistedNetwork(reactor), [HubAddress("127.0.0.1", hub.port)], PATIENT)
    red = {"color": b"red"}

    async def filtered(mode: SubscribeMode, expression: str) -> None:
        await (await client.subscribe(topic, reader, mode, preferences=with_expression(expression))).close()

    try:
        await filtered(SubscribeMode.CREATE, "a LIKE '%ab%' OR color = 'red'")
        cell.reads(theirs, "reader", "ATTACH", "once")
        publisher = client.publisher(topic)
        for body, properties in ((b"1", red), (b"2", {}), (b"3", {**red, "a": b"a" * STEPS_MAX}), (b"4", red)):
            await publisher.publish(body, properties)
        assert tool.run("events", theirs, 1) == [f"{cell.topic} reader TOPIC_MOVED"]
        assert tool.run("bodies", theirs, cell.topic, "reader", 1) == ["1 1"]
        assert tool.run("has", theirs, cell.topic, "reader") == ["false"]
        with pytest.raises(HedwigError, match="InvalidMessageFilter"):
            tool.run("subscribe", theirs, cell.topic, "reader", "ATTACH", "once")
        await filtered(SubscribeMode.ATTACH, "color = 'red'")
        again = cell.open("b", MANUAL)
        cell.reads(again, "reader", "ATTACH", "once")
        assert tool.run("bodies", again, cell.topic, "reader", 3) == ["1 1", "3 3", "4 4"]
    finally:
        await client.close()
        cell.close()
    hedwig_matrix.passed(name, 4)
