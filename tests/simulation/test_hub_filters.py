"""Filters at a hub: what its subscribers are spared, and what a wrong one may not do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from hedwig.filters import BUILT_IN, MakeFilter, with_expression
from hedwig.hub.subscriptions.attachment import Attachment
from hedwig.hub.subscriptions.shared_attachment import SharedAttachment
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.service import RESUMED_AT_ONCE, TopicService
from hedwig.hub.turns import SLICE_S
from hedwig.model import NO_OPTIONS, Event, Status, SubscriberId, Topic
from hedwig.protocol.conditions import STEPS_MAX
from hedwig.protocol.options import EXPRESSION
from hedwig.wire.messages import PROPERTIES_MAX, Message, encode_message
from hedwig.wire.requests import PublishEncoder
from tests.simulation.test_hub_connection import SUB, TOPIC, Client, Hub, bodies
from tests.simulation.test_scenarios import run, started_world


def _breaking(message: object) -> bool:
    raise RuntimeError("a filter of somebody else")


FILTERS: dict[str, MakeFilter] = {**BUILT_IN, "breaking": lambda preferences: _breaking}


class FilteringHub(Hub):
    filters: Mapping[str, MakeFilter] = MappingProxyType(FILTERS)


async def publish(client: Client, *messages: Message, topic: Topic = TOPIC) -> None:
    first = client.next_txn_id()
    for _ in messages[1:]:
        client.next_txn_id()
    encoded = [encode_message(message) for message in messages]
    client.connection.dataReceived(b"".join(PublishEncoder(topic).frames(first, encoded, should_claim=True)))
    for index in range(len(messages)):
        assert (await client.answer(first + index)).status is Status.SUCCESS


def test_a_subscriber_gets_what_its_expression_matches_by_either_name() -> None:
    world = started_world(3)
    messages = [
        Message(b"%d" % number, {"color": color} if color else NO_OPTIONS)
        for number, color in enumerate([b"red", b"blue", None, b"red", b"green"], 1)
    ]

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        wanted = with_expression("color = 'red' OR $id = 5")
        for name in BUILT_IN:
            answer = await client.subscribe(
                SubscriberId(name.encode()), message_filter=name, options=dict(wanted.options)
            )
            assert answer.status is Status.SUCCESS
        await publish(client, *messages)
        for name in BUILT_IN:
            assert await client.until(3, SubscriberId(name.encode())) == [(1, b"1"), (4, b"4"), (5, b"5")]

    run(world, story())


def test_a_filter_that_cannot_be_made_is_refused_before_anything_is_stored() -> None:
    """Apache's hubs store it, and every later subscribe fails by it."""
    world = started_world(3)

    async def story() -> None:
        hub = await FilteringHub(world).started()
        client = Client(hub)
        texts = []
        for asked in (
            {"message_filter": "no.such.Filter"},
            {"message_filter": "header-expression"},
            {"message_filter": "header-expression", "options": {EXPRESSION: b"color = "}},
        ):
            refused = await client.subscribe(**asked)
            texts.append(refused.text)
            assert refused.status is Status.INVALID_MESSAGE_FILTER
            assert not await hub.metadata.subscriptions(TOPIC)
        assert "at character 8 (the end)" in texts[-1]
        assert (await client.subscribe()).status is Status.SUCCESS
        before = await hub.metadata.subscriptions(TOPIC)
        assert (await client.subscribe(message_filter="no.such.Filter")).status is Status.INVALID_MESSAGE_FILTER
        assert await hub.metadata.subscriptions(TOPIC) == before
        assert (await client.subscribe()).status is Status.SUCCESS

    run(world, story())


def test_a_filter_that_wants_nothing_keeps_no_ledgers() -> None:
    """Method: nobody consumes anything, as nobody is given anything; then it is looked which ledgers may go."""
    world = started_world(3)

    async def story() -> None:
        hub = await FilteringHub(world, log=TopicLogSettings(entries_max=30)).started()
        client = Client(hub)
        asked = with_expression("color = 'red'")
        await client.subscribe(message_filter=asked.message_filter, options=dict(asked.options))
        for number in range(1, 101, 10):
            await client.publish(*bodies(number, number + 9))
        service = hub.ownership.owned[TOPIC]
        assert await service.trim() == 0
        service.store_due()
        while (await hub.metadata.subscriptions(TOPIC))[SUB].value.consumed.local < 100:
            await world.pause(0.01)
        assert await service.trim() == 3

    run(world, story())


def test_a_filter_that_breaks_does_not_stop_anybody() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        broken = SubscriberId(b"broken")
        await client.subscribe(broken, message_filter="breaking")
        await client.subscribe()
        await client.publish(*bodies(1, 3))
        assert len(await client.until(3, SUB)) == 3
        assert client.delivered(broken) == []
        asked = with_expression("$id > 4")
        again = await client.subscribe(broken, message_filter=asked.message_filter, options=dict(asked.options))
        assert again.status is Status.SUCCESS
        await client.publish(*bodies(4, 5))
        assert await client.until(1, broken) == [(5, b"5")]

    run(world, story())


TOO_COSTLY = {"a": b"a" * STEPS_MAX}


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_subscription_is_suspended_at_a_message_for_which_its_filter_takes_too_long(one_by_one: bool) -> None:
    """The client receives the event, is refused with the same filter, and receives all messages with another one."""
    world = started_world(3)
    costly = dict(with_expression("a LIKE '%ab%' OR color = 'red'").options)
    acks = {"hw.ack": b"individual", "hw.shared": b"true"} if one_by_one else {}

    async def story() -> None:
        hub = await FilteringHub(world).started()
        client, other = Client(hub), Client(hub)
        asked: dict[str, Any] = {"message_filter": "header-expression", "options": {**costly, **acks}}
        assert (await client.subscribe(**asked)).status is Status.SUCCESS
        red = {"color": b"red"}
        await publish(
            other, Message(b"1", red), Message(b"2"), Message(b"3", {**red, **TOO_COSTLY}), Message(b"4", red)
        )
        assert await client.until(1) == [(1, b"1")]
        await publish(other, Message(b"5", red))
        assert client.delivered() == [(1, b"1")]
        assert client.events() == [Event.TOPIC_MOVED]
        if not one_by_one:
            client.consume(1)
        for _ in range(3):
            refused = await client.subscribe(**asked)
            assert refused.status is Status.INVALID_MESSAGE_FILTER
            assert "takes too long for message 3" in refused.text
            assert "(`--from 4`, `start=4`)" in refused.text
            assert "`$size >= 0` takes all messages" in refused.text
        assert client.events() == [Event.TOPIC_MOVED], "nothing was attached again"
        changed = with_expression("$size >= 0")
        answer = await client.subscribe(**{**asked, "options": {**dict(changed.options), **acks}})
        assert answer.status is Status.SUCCESS
        assert (await client.until(4))[-3:] == [(3, b"3"), (4, b"4"), (5, b"5")]
        if not one_by_one:
            client.consume(5)
            assert (await client.subscribe(**asked)).status is Status.SUCCESS, "the message is consumed"

    run(world, story())


def test_a_suspended_subscription_may_begin_behind_the_message_and_keep_its_filter() -> None:
    world = started_world(3)
    costly = dict(with_expression("a LIKE '%ab%' OR color = 'red'").options)

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        asked: dict[str, Any] = {"message_filter": "header-expression", "options": costly}
        await client.subscribe(**asked)
        await publish(client, Message(b"1", TOO_COSTLY), Message(b"2", {"color": b"red"}))
        assert client.events() == [Event.TOPIC_MOVED]
        behind = await client.subscribe(message_filter="header-expression", options={**costly, "hw.replay": b"id:2"})
        assert behind.status is Status.SUCCESS
        assert await client.until(1) == [(2, b"2")]

    run(world, story())


def test_more_properties_than_a_filter_reads_suspend_it_and_not_a_hub_of_another_region() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        elsewhere = SubscriberId(b"__elsewhere")
        await client.subscribe(message_filter="header-expression", options=dict(with_expression("a = 'b'").options))
        await client.subscribe(elsewhere)
        await publish(client, Message(b"1", {f"{number}": b"" for number in range(PROPERTIES_MAX + 1)}))
        assert await client.until(1, elsewhere) == [(1, b"1")]
        assert client.events() == [Event.TOPIC_MOVED]
        refused = await client.subscribe()
        assert f"more than {PROPERTIES_MAX:,} properties" in refused.text

    run(world, story())


def test_a_hostile_filter_delays_no_other_subscription() -> None:
    """60 subscriptions that take 2 ms for each of 60 messages once delayed all others by 7 s.

    Method: simulated time, in which the filter takes 2 ms; apart from the network, everything else takes no time.
    """
    world = started_world(3)
    looked = 0
    others: list[float] = []

    def hostile(message: object) -> bool:
        nonlocal looked
        looked += 1
        world.clock.spend(0.002)
        return False

    class HostileHub(FilteringHub):
        filters: Mapping[str, MakeFilter] = MappingProxyType({**FILTERS, "hostile": lambda preferences: hostile})

    async def answered_in(client: Client, topic: Topic) -> float:
        began = world.clock.seconds()
        await publish(client, Message(b"x"), topic=topic)
        return world.clock.seconds() - began

    async def story() -> None:
        hub = await HostileHub(world).started()
        attacker, other = Client(hub), Client(hub)
        quiet = Topic(b"quiet")
        await publish(other, Message(b"x"), topic=quiet)
        alone = max([await answered_in(other, quiet) for _ in range(5)])
        for number in range(60):
            await attacker.subscribe(SubscriberId(b"%d" % number), message_filter="hostile")
        frames = PublishEncoder(TOPIC).frames(1000, [encode_message(Message(b"x"))] * 20, should_claim=True)
        for _ in range(3):
            attacker.connection.dataReceived(b"".join(frames))
        while looked < 60 * 60:
            others.append(await answered_in(other, quiet))
        assert len(others) > 60, "publishes of others were answered all the time"
        assert max(others) < alone + 10 * (SLICE_S + 0.002)

    run(world, story())


@pytest.mark.parametrize(
    ("kind", "ack", "at_once"),
    [(Attachment, b"cumulative", 2 * RESUMED_AT_ONCE), (SharedAttachment, b"individual", 2 * (SLICE_S / 0.001 + 1))],
)
def test_a_publish_to_many_subscriptions_takes_several_turns(
    kind: type[Attachment | SharedAttachment], ack: bytes, at_once: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started_world(3)
    count = 3 * RESUMED_AT_ONCE
    resumed: Counter[int] = Counter()
    resume = kind.resume

    def slow(attachment: Any) -> None:
        resumed[world.clock.steps] += 1
        world.clock.spend(0.001)
        resume(attachment)

    async def story() -> None:
        client = Client(await Hub(world).started())
        names = [SubscriberId(b"%d" % number) for number in range(count)]
        for name in names:
            await client.subscribe(name, options={"hw.ack": ack})
        monkeypatch.setattr(kind, "resume", slow)
        await client.publish(b"1")
        await client.publish(b"2")
        for name in names:
            assert await client.until(2, name) == [(1, b"1"), (2, b"2")]

    run(world, story())
    assert max(resumed.values()) <= at_once
    assert count < resumed.total() <= 2 * count


def test_publishes_in_each_turn_of_a_delivery_do_not_lengthen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub once added all subscriptions to the list of those to be resumed, for each turn with a publish."""
    world = started_world(3)
    count, published = 4 * RESUMED_AT_ONCE, 24
    lengths: list[int] = []
    resume, resume_others = Attachment.resume, TopicService._resume_others  # noqa: SLF001 - the length of its list

    def slow(attachment: Attachment) -> None:
        world.clock.spend(0.001)
        resume(attachment)

    async def story() -> None:
        client = Client(await Hub(world).started())
        names = [SubscriberId(b"%d" % number) for number in range(count)]
        for name in names:
            await client.subscribe(name)
        monkeypatch.setattr(Attachment, "resume", slow)
        frames = PublishEncoder(TOPIC).frames(5000, [encode_message(Message(b"x"))] * published, should_claim=True)

        def and_publish(service: TopicService) -> None:
            lengths.append(len(service._round))  # noqa: SLF001
            resume_others(service)
            if frames:
                client.connection.dataReceived(frames.pop(0))

        monkeypatch.setattr(TopicService, "_resume_others", and_publish)
        client.connection.dataReceived(frames.pop(0))
        for name in names:
            assert [local for local, _ in await client.until(published, name)] == list(range(1, published + 1))

    run(world, story())
    assert len(lengths) >= published
    assert max(lengths) <= count


@pytest.mark.parametrize("text", ["v LIKE '%_rder%'", "NOT v NOT LIKE '%_rder%'", "$type LIKE '%_rder%'", "n > 1"])
def test_a_long_value_is_delivered_and_never_passed_over(text: str) -> None:
    """LIKE with _ was unknown for a value of more than 16,384 bytes: such messages were not delivered."""
    world = started_world(3)

    async def story() -> None:
        client = Client(await FilteringHub(world).started())
        await client.subscribe(message_filter="header-expression", options=dict(with_expression(text).options))
        for number, size in enumerate((16_384, 16_385, 60_000, 600_000), 1):
            value = b"order".rjust(size, b"q")
            properties = {"n": b"1" * size} if "n >" in text else {"v": value} if "v " in text else {}
            await publish(client, Message(b"%d" % number, properties, value.decode() if "$type" in text else None))
        assert await client.until(3) == [(1, b"1"), (2, b"2"), (3, b"3")]
        assert client.events() == [Event.TOPIC_MOVED], "of the last message it is not known whether it is wanted"

    run(world, story())
