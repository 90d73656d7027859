"""A connection with an answer SUCCESS, and without an end since then, is attached after any sequence of events.

Connections subscribe repeatedly, as clients that lost their hub do: on several connections at a time and with answers
still open, while topics are released, sessions end and connections close. Then the disturbance ends. Each connection
that holds a subscription according to its answers receives the next message. No two connections hold the same
subscription, and a subscription that no connection holds is free (I-96).
"""

from __future__ import annotations

import random

import pytest

from hedwig.model import Preferences, Status, SubscribeMode, SubscriberId
from hedwig.wire.requests import close_subscription_frame, subscribe_frame, unsubscribe_frame
from hedwig.wire.responses import Answer, Told
from tests.simulation.test_hub_connection import TOPIC, Client, Hub
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World

SEEDS = range(30)
STEPS = 60
SUBSCRIBERS = (SubscriberId(b"billing"), SubscriberId(b"shipping"))
PAUSE_MAX_S = 0.03
ACTIONS = ("subscribe",) * 6 + ("close",) * 2 + ("unsubscribe", "drop", "drop", "publish", "give away", "end session")


class Asking(Client):
    """A connection that records its requests, to find from the answers which subscriptions it holds."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._begins: dict[int, SubscriberId] = {}
        self._ends: dict[int, SubscriberId] = {}

    def begin(self, subscriber: SubscriberId, *, force: bool) -> None:
        """Send a subscribe, and do not wait."""
        txn_id = self.next_txn_id()
        self._begins[txn_id] = subscriber
        mode = SubscribeMode.CREATE_OR_ATTACH
        self.connection.dataReceived(
            subscribe_frame(txn_id, TOPIC, subscriber, mode, Preferences(), force=force, should_claim=True)
        )

    def end(self, subscriber: SubscriberId, *, for_good: bool) -> None:
        """Send a close or an unsubscribe, and do not wait."""
        txn_id = self.next_txn_id()
        self._ends[txn_id] = subscriber
        frame = unsubscribe_frame if for_good else close_subscription_frame
        self.connection.dataReceived(frame(txn_id, TOPIC, subscriber, should_claim=True))

    def holds(self) -> set[SubscriberId]:
        """Return the subscriptions that this connection holds according to its answers and events, in their order."""
        held: set[SubscriberId] = set()
        for each in self.heard:
            if isinstance(each, Told):
                held.discard(each.subscriber)
            elif isinstance(each, Answer) and each.status == Status.SUCCESS:
                if each.txn_id in self._begins:
                    held.add(self._begins[each.txn_id])
                elif each.txn_id in self._ends:
                    held.discard(self._ends[each.txn_id])
        return set() if self.connection.closed else held


def end_session(world: World, hub: Hub, learns_after_s: float) -> None:
    """End a hub's session with the metadata. The hub learns of it later, and serves its topics until then."""
    world.metadata.znodes.end_session(hub.client.store.tree.session_id)
    hub.client.process.clock.callLater(learns_after_s, hub.client.store.expire_session, 0.01)


async def disturb(world: World, rng: random.Random, hubs: list[Hub]) -> list[Asking]:
    """Run `STEPS` actions of clients and operators, with pauses. Return the connections."""
    connections = [Asking(hub) for hub in hubs for _ in range(3)]
    for _ in range(STEPS):
        index = rng.randrange(len(connections))
        client, subscriber, hub = connections[index], rng.choice(SUBSCRIBERS), rng.choice(hubs)
        match rng.choice(ACTIONS):
            case "subscribe":
                client.begin(subscriber, force=rng.random() < 0.3)
            case "close":
                client.end(subscriber, for_good=False)
            case "unsubscribe":
                client.end(subscriber, for_good=True)
            case "drop":
                client.abortConnection()
                connections[index] = Asking(rng.choice(hubs))
            case "publish":
                world.spawn(client.publish(b"x"))
            case "give away":
                hub.ownership.release(TOPIC)
            case "end session":
                end_session(world, hub, learns_after_s=rng.uniform(0.0, 2 * PAUSE_MAX_S))
        if rng.random() < 0.7:
            await world.pause(rng.uniform(0.0, PAUSE_MAX_S))
    return connections


async def publish(hubs: list[Hub], body: bytes) -> None:
    """Publish at the hub that accepts the message."""
    while True:
        for hub in hubs:
            [answer] = await Client(hub).publish(body)
            if answer.status == Status.SUCCESS:
                return
        await hubs[0].world.pause(0.5)


async def attach(hubs: list[Hub], subscriber: SubscriberId) -> Status:
    """Subscribe on a new connection at the hub that has the topic."""
    for hub in hubs:
        answer = await Client(hub).subscribe(subscriber)
        if answer.status != Status.NOT_RESPONSIBLE_FOR_TOPIC:
            return answer.status
    raise AssertionError("no hub has the topic")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_connection_that_holds_a_subscription_by_its_answers_is_delivered_to(seed: int) -> None:
    world = started_world(3)

    async def story() -> None:
        hubs = [await Hub(world, 4080).started(), await Hub(world, 4081).started()]
        connections = await disturb(world, random.Random(seed), hubs)
        await world.pause(15.0)
        holders = [(each, subscriber) for each in connections for subscriber in each.holds()]
        assert len({subscriber for _, subscriber in holders}) == len(holders), "two connections hold one subscription"
        await publish(hubs, b"the last")
        await world.pause(5.0)
        for client, subscriber in holders:
            if subscriber in client.holds():
                assert [body for _, body in client.delivered(subscriber)][-1:] == [b"the last"]
        for subscriber in set(SUBSCRIBERS) - {subscriber for _, subscriber in holders}:
            assert await attach(hubs, subscriber) == Status.SUCCESS

    run(world, story(), seconds=120)
