"""Individual acknowledgement and shared subscriptions, with hubs and connections that die in the middle.

What holds: every message is delivered until it is acknowledged, or is a dead letter that is stored (at least once, in
no order that is promised once something comes again). An acknowledgement counts for as long as the hub has the topic,
and is durable `STORE_DELAY_S` and one write after it was heard, or when the topic is released: from then on the message
never comes again. What was acknowledged in the last moment before a hub's death does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from hedwig.client.client import PubSubClient
from hedwig.errors import ServiceDown
from hedwig.filters import LOGGED_MAX
from hedwig.hub.subscriptions.dead_letters import DeadLetters, letter_of
from hedwig.hub.subscriptions.delivery_budget import OutstandingBudget
from hedwig.hub.subscriptions.shared_attachment import STORE_DELAY_S, SharedAttachment
from hedwig.hub.turns import SLICE_S
from hedwig.model import (
    Event,
    HubAddress,
    LocalId,
    MessageId,
    Preferences,
    SharedSubscription,
    Status,
    SubscriberId,
    Topic,
)
from hedwig.protocol.acknowledgements import Acknowledgements, Dead, Redelivery
from hedwig.protocol.options import Acknowledge, GiveBack, consumed
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import close_subscription_frame, consume_frame, publish_frame
from hedwig.wire.responses import Delivery
from tests.simulation.test_hedwig_client import QUICK, ListeningHub
from tests.simulation.test_hub_connection import SUB, TOPIC, Client, Hub, bodies, span
from tests.simulation.test_scenarios import run, started_world

GRAVES = Topic(b"graves")
DURABLE_S = STORE_DELAY_S + 0.5

INDIVIDUAL = {"hw.ack": b"individual"}
SHARED = {"hw.shared": b"true"}


class Worker(Client):
    """A consumer."""

    def ack(self, *local_ids: int) -> None:
        for each in local_ids:
            self.say(Acknowledge(LocalId(each), LocalId(each)))

    def ack_range(self, first: int, last: int) -> None:
        self.say(Acknowledge(LocalId(first), LocalId(last)))

    def nack(self, local_id: int, delay_ms: int = 0) -> None:
        self.say(GiveBack(LocalId(local_id), delay_ms))

    def say(self, said: Acknowledge | GiveBack) -> None:
        self.connection.dataReceived(consume_frame(self.next_txn_id(), TOPIC, SUB, consumed(said)))

    def ids(self) -> list[int]:
        return [local_id for local_id, _ in self.delivered()]

    async def ids_until(self, count: int) -> list[int]:
        return [local_id for local_id, _ in await self.until(count)]

    def attempts(self) -> list[tuple[int, int]]:
        """Of each delivery."""
        return [
            (each.message.id.local, int(each.message.properties.get("hw.attempt", b"1")))
            for each in self.heard
            if isinstance(each, Delivery) and each.message.id is not None
        ]

    async def asked(self, **options: bytes) -> None:
        named = {f"hw.{name.replace('__', '.').replace('_', '-')}": value for name, value in options.items()}
        answer = await self.subscribe(options=named)
        assert answer.status is Status.SUCCESS, answer.text


def run_story(story: Callable[[Any], Any], seconds: float = 300) -> None:
    world = started_world(3)
    run(world, story(world), seconds=seconds)


async def stored(hub: Hub) -> Any:
    return (await hub.metadata.subscriptions(TOPIC))[SUB].value


def test_each_message_is_acknowledged_by_itself_and_the_others_come_again() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        worker = Worker(hub)
        answer = await worker.subscribe(options=INDIVIDUAL)
        assert answer.preferences == Preferences(options={**INDIVIDUAL, "hw.granted": b"true"}), (
            "clients can rely on it"
        )
        assert (await stored(hub)).preferences == Preferences(options=INDIVIDUAL)
        await worker.publish(*bodies(1, 10))
        assert await worker.until(10) == span(1, 10)
        worker.ack(2, 5)
        worker.ack_range(7, 9)
        worker.abortConnection()
        again = Worker(hub)
        await again.asked()
        assert await again.ids_until(5) == [1, 3, 4, 6, 10]
        assert again.attempts() == [(1, 2), (3, 1), (4, 1), (6, 1), (10, 1)], "the lowest was worked on"
        again.ack(1)
        assert hub.ownership.owned[TOPIC].needed_from == 1, "not durable yet"
        await world.pause(DURABLE_S)
        assert hub.ownership.owned[TOPIC].needed_from == 3
        assert (await stored(hub)).consumed == MessageId(LocalId(2))

    run_story(story)


def test_a_subscription_whose_memory_others_needed_continues_from_what_is_stored() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world, outstanding=OutstandingBudget(count_max=20)).started()
        worker, other = Worker(hub), Worker(hub)
        await worker.asked(ack=b"individual")
        await worker.publish(*bodies(1, 8))
        await worker.ids_until(8)
        worker.ack(2, 5)
        worker.abortConnection()
        await world.pause(DURABLE_S)
        name = SubscriberId(b"other")
        assert (await other.subscribe(name, options=INDIVIDUAL)).status is Status.SUCCESS
        records = hub.ownership.owned[TOPIC]._records  # noqa: SLF001
        assert records.by_name[SUB].attachment is not None, "until the memory is needed"
        await other.publish(*bodies(9, 10))
        assert await other.until(2, name) == span(9, 10)
        assert records.by_name[SUB].attachment is None
        worker.ack(8)  # from a connection that no longer has the subscription
        again = Worker(hub)
        await again.asked()
        assert await again.ids_until(8) == [1, 3, 4, 6, 7, 8, 9, 10]
        assert again.attempts()[:2] == [(1, 2), (3, 1)]
        again.ack_range(1, 10)
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(10))

    run_story(story)


def test_a_late_acknowledgement_is_not_cumulative_after_the_memory_was_released() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world, outstanding=OutstandingBudget(count_max=10)).started()
        plain, worker, other = Worker(hub), Worker(hub), Worker(hub)
        await plain.asked()
        await plain.publish(*bodies(1, 8))
        await plain.ids_until(8)  # the position knows that these were delivered
        assert (await plain.ask(close_subscription_frame, TOPIC, SUB)).status is Status.SUCCESS
        await worker.asked(ack=b"individual")
        await worker.ids_until(8)
        worker.abortConnection()
        await world.pause(DURABLE_S)
        name = SubscriberId(b"other")
        assert (await other.subscribe(name, options=INDIVIDUAL)).status is Status.SUCCESS
        await other.publish(*bodies(9, 10))
        assert await other.until(2, name) == span(9, 10)
        assert hub.ownership.owned[TOPIC]._records.by_name[SUB].attachment is None  # noqa: SLF001
        other.ack(7)
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(0))
        again = Worker(hub)
        await again.asked()
        assert await again.ids_until(10) == list(range(1, 11))

    run_story(story)


def test_consumers_share_the_messages_and_take_over_what_one_leaves() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        one, other = Worker(hub), Worker(hub)
        await one.asked(shared=b"true")
        await other.asked(shared=b"true")
        await one.publish(*bodies(1, 10))
        assert sorted(await one.ids_until(5) + await other.ids_until(5)) == list(range(1, 11))
        left = other.ids()[1:]
        other.ack(other.ids()[0])
        assert (await other.ask(close_subscription_frame, TOPIC, SUB)).status is Status.SUCCESS
        assert sorted((await one.ids_until(9))[5:]) == left
        for each in one.ids():
            one.ack(each)
        await one.publish(b"11")
        assert (await one.ids_until(10))[9:] == [11]

    run_story(story)


def test_what_was_acknowledged_is_known_after_a_hubs_death_and_attempts_are_counted_on() -> None:
    async def story(world: Any) -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        worker = Worker(a)
        await worker.asked(ack=b"individual")
        await worker.publish(*bodies(1, 6))
        await worker.ids_until(6)
        worker.ack(1, 3, 4)
        await world.pause(DURABLE_S)
        worker.ack(6)
        a.client.crash()
        await world.pause(60)
        moved = Worker(b)
        await moved.asked()
        assert await moved.ids_until(3) == [2, 5, 6], "6 was acknowledged in the last moment"
        assert moved.attempts() == [(2, 2), (5, 2), (6, 2)]

    run_story(story)


def test_a_release_stores_everything_at_once() -> None:
    async def story(world: Any) -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        worker = Worker(a)
        await worker.asked(shared=b"true")
        await worker.publish(*bodies(1, 4))
        await worker.ids_until(4)
        worker.ack(1, 3)
        await a.ownership.release(TOPIC)
        assert worker.events() == [Event.TOPIC_MOVED]
        moved = Worker(b)
        await moved.asked()
        assert await moved.ids_until(2) == [2, 4]

    run_story(story)


def test_what_is_not_acknowledged_in_time_comes_again_and_a_late_acknowledgement_counts() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        worker = Worker(hub)
        await worker.asked(ack=b"individual", ack__timeout=b"2000")
        await worker.publish(*bodies(1, 2))
        await worker.ids_until(2)
        worker.ack(1)
        assert await worker.ids_until(3) == [1, 2, 2]
        assert worker.attempts()[-1] == (2, 2)
        worker.ack(2)
        await world.pause(10)
        assert worker.ids() == [1, 2, 2]

    run_story(story)


def test_a_message_is_given_back_by_who_has_it_and_comes_again_after_its_delay() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        one, other = Worker(hub), Worker(hub)
        await one.asked(shared=b"true")
        await other.asked()
        await one.publish(b"1")
        while not one.ids() and not other.ids():
            await world.pause(0.01)
        holder, idler = (one, other) if one.ids() else (other, one)
        idler.nack(1)
        await world.pause(1)
        assert len(one.ids()) + len(other.ids()) == 1, "it is not his to give back"
        before = world.clock.seconds()
        holder.nack(1, delay_ms=4000)
        while len(one.ids()) + len(other.ids()) < 2:
            await world.pause(0.01)
        assert world.clock.seconds() - before >= 4
        both = consume_frame(99, TOPIC, SUB, MessageId(LocalId(1), ((b"hw.nack", 0), (b"hw.from", 1))))
        holder.connection.dataReceived(both)
        assert (await holder.answer(99)).status is Status.MALFORMED_REQUEST

    run_story(story)


class BuryingHub(ListeningHub):
    """Has a way to topics of other hubs."""

    def __init__(self, world: Any, port: int = 4080, **settings: Any) -> None:
        self.dead_letters = DeadLetters(lambda: self.ownership, self.connect)
        super().__init__(world, port, dead_letters=self.dead_letters.publish, **settings)

    def connect(self, address: HubAddress) -> PubSubClient:
        network = self.world.network.host(self.client.process, "127.0.0.1")
        return PubSubClient(self.client.process.clock, network, [address], QUICK, random.Random(1))


DYING = {"ack": b"individual", "ack__attempts": b"2", "ack__timeout": b"500", "dead_letter": bytes(GRAVES)}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_message_that_is_never_acknowledged_becomes_a_dead_letter(*, elsewhere: bool) -> None:
    async def story(world: Any) -> None:
        hub, second = await BuryingHub(world, 4080).started(), await BuryingHub(world, 4081).started()
        undertaker = Client(second if elsewhere else hub)
        await undertaker.publish(b"first", topic=GRAVES)
        worker = Worker(hub)
        await worker.publish(b"claims the topic")
        await worker.asked(**DYING)
        poison = encode_message(Message(b"poison", {"kind": b"bad", "hw.pid": b"me", "hw.seq": b"1"}, "urgent"))
        await worker.ask(publish_frame, TOPIC, poison, should_claim=True)
        await worker.publish(b"fine")
        await worker.ids_until(2)
        worker.ack(3)
        assert await worker.ids_until(3) == [2, 3, 2]
        grave = (second if elsewhere else hub).ownership.owned[GRAVES]
        while grave.log.durable_id < 2:
            await world.pause(0.1)
        [letter] = await grave.reader.read(LocalId(2), 1)
        found = Delivery(GRAVES, SUB, _decoded(letter)).message
        assert (found.body, found.message_type) == (b"poison", "urgent")
        assert {key: value for key, value in found.properties.items() if key != "hw.time"} == {
            "kind": b"bad",
            "hw.dead.topic": bytes(TOPIC),
            "hw.dead.subscriber": bytes(SUB),
            "hw.dead.id": b"2",
            "hw.dead.attempts": b"2",
        }
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(3))
        assert worker.ids() == [2, 3, 2], "and it never comes again"
        for each in (hub, second):
            each.dead_letters.close()

    run_story(story)


def _decoded(data: bytes) -> Message:
    from hedwig.wire.messages import decode_message

    return decode_message(data)


def test_a_dead_letter_that_cannot_be_stored_is_tried_again() -> None:
    async def story(world: Any) -> None:
        hub = await BuryingHub(world, 4080, retry_delay_s=1.0).started()
        second = await BuryingHub(world, 4081).started()
        await Client(second).publish(b"first", topic=GRAVES)
        worker = Worker(hub)
        await worker.publish(b"claims the topic")
        await worker.asked(**DYING)
        await worker.publish(b"poison")
        second.client.crash()  # its record of the topic stays until its session ends
        assert await worker.ids_until(2) == [2, 2]
        await world.pause(120)
        assert hub.ownership.owned[GRAVES].log.durable_id == 2
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(2))
        hub.dead_letters.close()

    run_story(story)


def test_without_a_topic_for_dead_letters_they_are_dropped() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        worker = Worker(hub)
        await worker.asked(ack=b"individual", ack__attempts=b"1", ack__timeout=b"500")
        await worker.publish(*bodies(1, 2))
        await worker.ids_until(2)
        worker.ack(2)
        await world.pause(0.5 + DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(2))
        refused = await Worker(hub).subscribe(
            options={"hw.dead-letter": b"graves", "hw.ack.attempts": b"2", "hw.ack": b"individual"}, force=True
        )
        assert refused.text == "this hub cannot publish dead letters"

    run_story(story)


def test_many_messages_that_are_dropped_take_several_turns_and_few_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber that acknowledged nothing once made a hub log 50,000 lines in one turn."""
    count = 200
    dropped: Counter[int] = Counter()
    bury = SharedAttachment._bury_one  # noqa: SLF001 - what one message costs

    async def story(world: Any) -> None:
        async def slow(attachment: SharedAttachment, dead: Dead) -> None:
            dropped[world.clock.steps] += 1
            world.clock.spend(0.001)
            await bury(attachment, dead)

        monkeypatch.setattr(SharedAttachment, "_bury_one", slow)
        hub = await Hub(world).started()
        worker = Worker(hub)
        await worker.asked(ack=b"individual", ack__attempts=b"1", ack__timeout=b"500")
        for first in range(1, count, 10):
            await worker.publish(*bodies(first, first + 9))
        await worker.ids_until(count)
        with capturedLogs() as events:
            await world.pause(0.5 + count * 0.001 + DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(count))
        lines = [formatEvent(event) for event in events if "dropped" in event["log_format"]]
        assert len(lines) == LOGGED_MAX
        assert "'billing' 1 times" in lines[0]

    run_story(story)
    assert dropped.total() == count
    assert max(dropped.values()) <= 3 * SLICE_S / 0.001


def test_old_messages_and_filters() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world, cache_size=1, read_ahead=7).started()
        one, other = Worker(hub), Worker(hub)
        preferences = {"message_filter": "even", "options": {**SHARED, "hw.shared.in-flight": b"3"}}
        await one.subscribe(**preferences)
        await other.subscribe(**preferences)
        for number in range(1, 41, 5):
            await one.publish(*bodies(number, number + 4))
        for count in range(3, 11):
            assert len(await one.ids_until(count)) == count
            one.ack(one.ids()[count - 3])
        while len(one.ids()) + len(other.ids()) < 13:
            await world.pause(0.01)
        seen = one.ids() + other.ids()
        assert all(each % 2 == 0 for each in seen)
        assert len(seen) == len(set(seen))
        assert len(other.ids()) == 3, "it has acknowledged nothing"

    run_story(story)


def test_one_connection_holds_what_is_not_shared_and_force_takes_it() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        holder, other = Worker(hub), Worker(hub)
        await holder.asked(ack=b"individual")
        assert (await other.subscribe(options=INDIVIDUAL)).status is Status.TOPIC_BUSY
        await holder.publish(*bodies(1, 3))
        await holder.ids_until(3)
        holder.ack(2)
        assert (await other.subscribe(options=INDIVIDUAL, force=True)).status is Status.SUCCESS
        assert holder.events() == [Event.SUBSCRIPTION_FORCED_CLOSED]
        assert await other.ids_until(2) == [1, 3]
        # What it says of messages that others have now counts all the same.
        holder.ack(3)
        other.ack(1)
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(3))

    run_story(story)


def test_who_is_forced_off_before_looking_at_a_message_uses_up_no_attempt_of_it() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        workers = [Worker(hub) for _ in range(3)]
        for each in workers:
            await each.asked(shared=b"true", ack__attempts=b"3")
        await workers[0].publish(b"1")
        while not any(each.ids() for each in workers):
            await world.pause(0.01)
        last = Worker(hub)
        assert (await last.subscribe(options=SHARED, force=True)).status is Status.SUCCESS
        assert await last.ids_until(1) == [1]
        assert last.attempts() == [(1, 2)]
        assert [each.events() for each in workers] == [[Event.SUBSCRIPTION_FORCED_CLOSED]] * 3

    run_story(story)


def test_dead_letters_that_cannot_be_stored_wait_and_end_with_the_topic() -> None:
    """A lost topic's are its next hub's to bury."""

    async def story(world: Any) -> None:
        asked: list[float] = []

        async def never(topic: Topic, letter: bytes) -> None:
            asked.append(world.clock.seconds())
            raise ServiceDown("no hub of that topic")

        hub = await Hub(world, dead_letters=never, retry_delay_s=1.0).started()
        worker = Worker(hub)
        await worker.asked(**{**DYING, "ack__attempts": b"1"})
        await worker.publish(*bodies(1, 50))
        await worker.ids_until(50)
        await world.pause(30)
        assert len(asked) == 5, "not one each, every second: after 1, 2, 4, 8 and 16 seconds"
        assert (await worker.ask(close_subscription_frame, TOPIC, SUB)).status is Status.SUCCESS
        await hub.ownership.release(TOPIC)
        count = len(asked)
        await world.pause(300)
        assert len(asked) == count

    run_story(story, seconds=600)


def test_a_message_whose_header_cannot_be_read_becomes_a_dead_letter_without_it() -> None:
    stored = encode_message(Message(b"body", {"zz": b"1"}, "type", MessageId(LocalId(7)), b"standalone"))
    letter = _decoded(letter_of(stored.replace(b"zz", b"\xff\xfe"), TOPIC, SUB, Dead(LocalId(7), 3)))
    assert (letter.body, letter.properties["hw.dead.id"]) == (b"body", b"7")


def test_a_dead_letter_is_no_repeat_of_what_its_producer_published() -> None:
    """With a part of the producer's number its topic's hub would refuse it, again and again."""
    numbered = {"hw.pid": b"p", "hw.seq": b"2", "hw.prev": b"1", "mine": b"x"}
    stored = encode_message(Message(b"body", numbered, None, MessageId(LocalId(7)), b"standalone"))
    letter = _decoded(letter_of(stored, TOPIC, SUB, Dead(LocalId(7), 3)))
    assert letter.properties["mine"] == b"x"
    assert not {"hw.pid", "hw.seq", "hw.prev"} & set(letter.properties)


def test_a_subscription_changes_from_one_way_to_the_other_and_back() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        worker = Worker(hub)
        await worker.subscribe()
        await worker.publish(*bodies(1, 6))
        await worker.ids_until(6)
        worker.consume(2)
        await worker.asked(ack=b"individual")
        assert (await worker.ids_until(10))[6:] == [3, 4, 5, 6]
        worker.ack(3, 5)
        await worker.asked(ack=b"cumulative")
        assert (await worker.ids_until(13))[10:] == [4, 5, 6], "all above the first that is not done"
        assert not isinstance(await stored(hub), SharedSubscription)
        worker.consume(5)
        await worker.asked(shared=b"true", ack__timeout=b"700")
        assert (await worker.ids_until(14))[13:] == [6]
        other = Worker(hub)
        await other.asked(ack__timeout=b"900000")
        await world.pause(5)
        later = worker.ids()[14:] + other.ids()
        assert later[:1] == [6], "the old timeout held for what was out"
        assert len(later) == 1, "the new one holds now"

    run_story(story)


def test_who_shares_a_subscription_that_begins_anew_is_told_to_attach_anew() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        one, other = Worker(hub), Worker(hub)
        await one.asked(shared=b"true")
        await other.asked()
        await one.publish(*bodies(1, 4))
        for worker in (one, other):
            for each in await worker.ids_until(2):
                worker.ack(each)
        await one.asked(replay=b"id:3")
        assert (await one.ids_until(4))[2:] == [3, 4]
        assert one.events() == []
        assert other.events() == [Event.TOPIC_MOVED]
        one.ack(4)
        await other.asked()
        await one.publish(b"5")
        await other.ids_until(3)
        await world.pause(DURABLE_S)
        assert (await stored(hub)).consumed == MessageId(LocalId(2))

    run_story(story)


def test_another_kind_of_hub_may_go_on_from_the_position_and_keep_the_old_snapshot() -> None:
    async def story(world: Any) -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        worker = Worker(a)
        await worker.asked(ack=b"individual")
        await worker.publish(*bodies(1, 9))
        await worker.ids_until(9)
        worker.ack(3, 8)
        await a.ownership.release(TOPIC)
        found = (await b.metadata.subscriptions(TOPIC))[SUB]
        record = found.value
        assert isinstance(record, SharedSubscription)
        further = SharedSubscription(MessageId(LocalId(5)), record.preferences, record.acknowledged)
        assert found.version is not None
        await b.metadata.write_subscription(TOPIC, SUB, further, found.version)
        moved = Worker(b)
        await moved.asked()
        assert await moved.ids_until(3) == [6, 7, 9]
        await b.ownership.release(TOPIC)
        found = (await b.metadata.subscriptions(TOPIC))[SUB]
        assert found.version is not None
        broken = SharedSubscription(MessageId(LocalId(5)), record.preferences, b"HA\x01\xff")
        await b.metadata.write_subscription(TOPIC, SUB, broken, found.version)
        last = Worker(a)
        await last.asked()
        assert await last.ids_until(4) == [6, 7, 8, 9], "what cannot be read costs deliveries, and no message"

    run_story(story)


def test_what_is_said_to_be_done_and_is_not_there_yet_is_not_believed() -> None:
    """As where a topic was made anew, and its subscriptions were left."""

    async def story(world: Any) -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        worker = Worker(a)
        await worker.asked(ack=b"individual")
        await worker.publish(*bodies(1, 4))
        await a.ownership.release(TOPIC)
        found = (await b.metadata.subscriptions(TOPIC))[SUB]
        assert found.version is not None
        snapshot = Acknowledgements(LocalId(50), Redelivery()).encode()
        wrong = SharedSubscription(MessageId(LocalId(1)), found.value.preferences, snapshot)
        await b.metadata.write_subscription(TOPIC, SUB, wrong, found.version)
        moved = Worker(b)
        await moved.asked()
        await moved.publish(b"5")
        assert await moved.ids_until(4) == [2, 3, 4, 5]

    run_story(story)


def test_a_subscription_at_rest_has_no_timer() -> None:
    async def story(world: Any) -> None:
        hub = await Hub(world).started()
        worker = Worker(hub)
        await worker.asked(ack=b"individual")
        await worker.publish(*bodies(1, 3))
        await worker.ids_until(3)
        worker.ack_range(1, 3)
        await world.pause(DURABLE_S)
        shared: Any = hub.ownership.owned[TOPIC]._records.by_name[SUB].attachment  # noqa: SLF001
        assert (shared._timer, shared._store_timer, shared.is_dirty) == (None, None, False)  # noqa: SLF001

    run_story(story)


class Campaign:
    """Hubs are killed and released, connections are lost; consumers acknowledge, give back and forget."""

    def __init__(self, world: Any, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.port = 4080
        self.workers: list[Worker] = []
        self.seen: dict[Worker, int] = {}
        self.published = 0
        self.acknowledged: set[int] = set()
        self.durable: set[int] = set()
        self.delivered: set[int] = set()
        self.duplicates = 0

    async def started(self) -> None:
        self.hub = await Hub(self.world, self.port).started()

    async def next_hub(self, *, crash: bool) -> None:
        if crash:
            self.look()
            self.hub.client.crash()
            self.workers.clear()
            await self.world.pause(60)
        else:
            await self.hub.ownership.release(TOPIC)
            self.look()
            self.durable |= self.acknowledged
            self.workers.clear()
        self.acknowledged &= self.durable
        self.port += 1
        self.hub = await Hub(self.world, self.port).started()

    async def attach(self) -> None:
        worker = Worker(self.hub)
        await worker.asked(shared=b"true", ack__timeout=b"3000", shared__in_flight=b"4")
        self.workers.append(worker)

    async def publish(self, count: int) -> None:
        client = Client(self.hub)
        answers = await client.publish(*bodies(self.published + 1, self.published + count))
        assert all(each.status is Status.SUCCESS for each in answers)
        self.published += count

    def look(self) -> None:
        """What came since the last look; nothing that is durably done does."""
        for worker in self.workers:
            ids = worker.ids()
            for each in ids[self.seen.get(worker, 0) :]:
                assert each not in self.durable, f"{each} was acknowledged, durably"
                self.duplicates += each in self.delivered
                self.delivered.add(each)
            self.seen[worker] = len(ids)

    def work(self) -> None:
        for worker in self.workers:
            fresh = worker.ids()[self.seen.get(worker, 0) :]
            self.look()
            for each in fresh:
                match self.rng.randrange(6):
                    case 0:
                        worker.nack(each, self.rng.choice((0, 1500)))
                    case 1:
                        continue
                    case _:
                        worker.ack(each)
                        self.acknowledged.add(each)

    async def settle(self) -> None:
        """Long enough for what is acknowledged to be durable."""
        acknowledged = set(self.acknowledged)
        await self.world.pause(DURABLE_S)
        self.look()
        self.durable |= acknowledged

    async def step(self) -> None:
        match self.rng.randrange(12):
            case 0 if self.published:
                await self.next_hub(crash=True)
            case 1 if self.published:
                await self.next_hub(crash=False)
            case 2 if self.workers:
                worker = self.workers.pop(self.rng.randrange(len(self.workers)))
                self.look_at_last(worker)
                worker.abortConnection()
            case 3 | 4 | 5:
                await self.publish(self.rng.randrange(1, 9))
            case 6:
                await self.settle()
            case _:
                await self.world.pause(self.rng.choice((0.05, 0.5, 2.0)))
                self.work()
        if len(self.workers) < 2:
            await self.attach()

    def look_at_last(self, worker: Worker) -> None:
        self.workers.append(worker)
        self.look()
        self.workers.remove(worker)

    async def finish(self) -> None:
        while self.hub.ownership.owned[TOPIC].needed_from <= self.published:
            for worker in self.workers:
                for each in worker.ids():
                    worker.ack(each)
            self.look()
            await self.world.pause(0.5)
        assert self.delivered == set(range(1, self.published + 1)), "none is lost"


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_that_is_durably_done_comes_again(seed: int) -> None:
    async def story(world: Any) -> None:
        campaign = Campaign(world, random.Random(seed))
        await campaign.started()
        await campaign.attach()
        await campaign.publish(5)
        for _ in range(60):
            await campaign.step()
        await campaign.finish()

    run_story(story, seconds=20_000)
