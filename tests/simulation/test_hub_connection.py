"""A hub as its clients see it, on the simulated cluster: their frames in, the genuine hub's answers out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.wire.entry_size import entry_body_size_max, payload_size_max
from hedwig.errors import MalformedRequest
from hedwig.filters import MakeFilter
from hedwig.hub import endpoint
from hedwig.hub.endpoint import HUB_BOUNDS, HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.ownership import Ownership
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.reads import TopicReader
from hedwig.hub.topics.recent import RecentBudget
from hedwig.hub.topics.service import TopicService, TopicSettings
from hedwig.hub.turns import SLICE_S, DeliveryTurns
from hedwig.model import (
    Event,
    HubAddress,
    LocalId,
    MessageId,
    Preferences,
    Status,
    SubscribeMode,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import Paths
from hedwig.protocol.options import KEEP, PRODUCER, SEQUENCE
from hedwig.wire.framing import FrameDecoder
from hedwig.wire.messages import PROPERTIES_MAX, Message, Stamp, encode_message
from hedwig.wire.requests import (
    OPTIONS_MAX,
    REGIONS_MAX,
    PublishEncoder,
    close_subscription_frame,
    consume_frame,
    heartbeat_frame,
    publish_frame,
    subscribe_frame,
    unsubscribe_frame,
)
from hedwig.wire.responses import Answer, Delivery, Response, Told, decode_response
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import METADATA_SETTINGS, World

TOPIC, SUB = Topic(b"orders"), SubscriberId(b"billing")
PLAIN = encode_message(Message(b"plain"))


class Hub:
    """One hub process."""

    filters: Mapping[str, MakeFilter] = MappingProxyType(
        {
            "even": lambda preferences: lambda message: int(message.body) % 2 == 0,
            "tenth": lambda preferences: lambda message: int(message.body) % 10 == 0,
        }
    )

    def __init__(self, world: World, port: int = 4080, *, cache_size: int = 1 << 20, **settings: Any) -> None:
        self.world, self.client = world, world.add_client()
        clock = self.client.process.clock
        self.metadata = HubMetadata(self.client.store.tree, clock, METADATA_SETTINGS, Paths("/hedwig", "standalone"))
        self.budget = RecentBudget(cache_size)
        self.turns = DeliveryTurns(clock)
        self._settings = TopicSettings(**settings)
        self.ownership: Ownership[TopicService] = Ownership(
            self.metadata,
            clock,
            random.Random(port),
            HubAddress("127.0.0.1", port),
            acquire=self.acquire,
            release=lambda service: service.release(),
            abandon=lambda service: service.abandon(),
        )

    async def acquire(self, topic: Topic) -> TopicService:
        service = TopicService(
            self.metadata,
            self.client.ledgers,
            self.client.process.clock,
            topic,
            b"standalone",
            Stamp(b"standalone"),
            self._settings,
            self.budget,
            self.filters,
            lambda lost: self.ownership.lost(topic, lost),
            turns=self.turns,
        )
        await service.acquire()
        return service

    async def started(self) -> Hub:
        await self.metadata.open()
        await self.ownership.start()
        return self


class Client:
    """A client's side of one connection; the transport of the hub's."""

    def __init__(self, hub: Hub) -> None:
        self.world = hub.world
        self.heard: list[Response] = []
        self.aborted = self.read_paused = False
        self.writes = 0
        self.unsent_bytes = 0  # written by the hub while it was asked to wait
        self._decoder = FrameDecoder(1 << 24)
        self._txn_id = 0
        self.connection = HubConnection(hub.ownership, unanswered_max=20, turns=hub.turns)
        self.connection.makeConnection(self)  # type: ignore[arg-type]

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert producer is self.connection

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.writes += 1
        if not self.connection.writable:
            self.unsent_bytes += sum(map(len, parts))
        self.heard += [decode_response(frame) for frame in self._decoder.receive(b"".join(parts))]

    def getPeer(self) -> str:
        return "10.0.0.7:50000"

    def pauseProducing(self) -> None:
        self.read_paused = True

    def resumeProducing(self) -> None:
        self.read_paused = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.connection.connectionLost(None)

    def loseConnection(self) -> None:
        self.abortConnection()

    def next_txn_id(self) -> int:
        self._txn_id += 1
        return self._txn_id

    async def answer(self, txn_id: int) -> Answer:
        while True:
            for each in self.heard:
                if isinstance(each, Answer) and each.txn_id == txn_id:
                    return each
            await self.world.pause(0.01)

    async def ask(self, frame_of: Any, *args: Any, **named: Any) -> Answer:
        txn_id = self.next_txn_id()
        self.connection.dataReceived(frame_of(txn_id, *args, **named))
        return await self.answer(txn_id)

    async def publish(self, *bodies: bytes, topic: Topic = TOPIC) -> list[Answer]:
        first = self._txn_id + 1
        self._txn_id += len(bodies)
        messages = [encode_message(Message(body)) for body in bodies]
        self.connection.dataReceived(b"".join(PublishEncoder(topic).frames(first, messages, should_claim=True)))
        return [await self.answer(first + index) for index in range(len(bodies))]

    async def subscribe(
        self, subscriber: SubscriberId = SUB, mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH, **named: Any
    ) -> Answer:
        preferences = Preferences(**{name: named.pop(name) for name in list(named) if name != "force"})
        return await self.ask(subscribe_frame, TOPIC, subscriber, mode, preferences, should_claim=True, **named)

    def consume(self, local: int, subscriber: SubscriberId = SUB) -> None:
        frame = consume_frame(self.next_txn_id(), TOPIC, subscriber, MessageId(LocalId(local)))
        self.connection.dataReceived(frame)

    def delivered(self, subscriber: SubscriberId = SUB) -> list[tuple[int, bytes]]:
        return [
            (each.message.id.local, each.message.body)
            for each in self.heard
            if isinstance(each, Delivery) and each.subscriber == subscriber and each.message.id is not None
        ]

    async def until(self, count: int, subscriber: SubscriberId = SUB) -> list[tuple[int, bytes]]:
        while len(self.delivered(subscriber)) < count:
            await self.world.pause(0.01)
        return self.delivered(subscriber)

    def events(self) -> list[Event]:
        return [each.event for each in self.heard if isinstance(each, Told)]


def span(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, last + 1)]


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def test_a_subscriber_hears_what_is_published_after_it_subscribed_in_order() -> None:
    """The session of hedwig/PROTOCOL.md 9.5."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        publisher, subscriber = Client(hub), Client(hub)
        (early,) = await publisher.publish(b"1")
        assert early == Answer(1, Status.SUCCESS, "", MessageId(LocalId(1)))
        assert await subscriber.subscribe() == Answer(1, Status.SUCCESS, "", None, Preferences())
        assert [each.published for each in await publisher.publish(*bodies(2, 4))] == [
            MessageId(LocalId(number)) for number in (2, 3, 4)
        ]
        assert await subscriber.until(3) == span(2, 4)
        subscriber.consume(3)
        assert (await subscriber.ask(close_subscription_frame, TOPIC, SUB)).status is Status.SUCCESS
        await publisher.publish(b"5")
        again = Client(hub)
        assert (await again.subscribe(mode=SubscribeMode.ATTACH)).status is Status.SUCCESS
        assert await again.until(2) == span(4, 5), "what was not consumed comes again"
        assert (await publisher.ask(unsubscribe_frame, TOPIC, SUB)).status is Status.SUCCESS
        refused = await publisher.ask(unsubscribe_frame, TOPIC, SUB)
        assert (refused.status, refused.text) == (Status.CLIENT_NOT_SUBSCRIBED, "")

    run(world, story())


def test_answers_to_what_cannot_be_done_leave_the_connection_open() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        one, other = Client(hub), Client(hub)
        missing = await one.subscribe(mode=SubscribeMode.ATTACH)
        assert missing.status is Status.CLIENT_NOT_SUBSCRIBED
        await one.subscribe()
        assert (await one.subscribe(mode=SubscribeMode.CREATE)).status is Status.CLIENT_ALREADY_SUBSCRIBED
        assert (await other.subscribe()).status is Status.TOPIC_BUSY
        bad_filter = await one.subscribe(SubscriberId(b"filtered"), message_filter="no.such.Filter")
        assert bad_filter.status is Status.INVALID_MESSAGE_FILTER
        assert "it has: even" in bad_filter.text
        (bad_name,) = await one.publish(b"x", topic=Topic(b"a//b"))
        assert bad_name.status is Status.MALFORMED_REQUEST
        assert (await one.subscribe(SubscriberId(b"a/b"))).status is Status.MALFORMED_REQUEST
        assert not one.aborted
        one.connection.dataReceived(b"\x00\x00\x00\x02\xff\xff")
        assert one.aborted
        assert (await other.subscribe()).status is Status.SUCCESS, "its subscriptions are free"

    run(world, story())


def test_what_hubs_do_not_serve_is_answered_at_once_without_a_topic() -> None:
    """So clients find out that a hub lives."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        client.connection.dataReceived(heartbeat_frame(7))
        assert client.heard == [Answer(7, Status.MALFORMED_REQUEST, "Request type 4 unknown")]
        await world.pause(1)
        assert (hub.ownership.owned, await hub.metadata.topics()) == ({}, [])

    run(world, story())


def test_text_that_is_not_utf8_is_answered() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.publish(b"1")
        new = SubscribeMode.CREATE
        for number, asked in enumerate((Preferences(options={"zz": b"1"}), Preferences(message_filter="zz")), 100):
            frame = subscribe_frame(number, TOPIC, SUB, new, asked).replace(b"zz", b"\xff\xfe")
            client.connection.dataReceived(frame)
            refused = await client.answer(number)
            assert (refused.status, "not UTF-8" in refused.text) == (Status.MALFORMED_REQUEST, True)
        unusual = encode_message(Message(b"x", {"hw.zz": b"1"}, id=MessageId(LocalId(9))))
        client.connection.dataReceived(publish_frame(200, TOPIC, unusual).replace(b"hw.zz", b"\xff\xfe.zz"))
        await client.answer(200)
        assert (await client.subscribe(mode=SubscribeMode.ATTACH)).status is Status.CLIENT_NOT_SUBSCRIBED
        assert not client.aborted

    run(world, story())


def test_a_fault_that_one_request_meets_is_not_that_of_the_others() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.publish(b"1")
        service = hub.ownership.owned[TOPIC]
        with mock.patch.object(type(service), "consume", side_effect=ZeroDivisionError):
            client.connection.dataReceived(
                consume_frame(50, TOPIC, SUB, MessageId(LocalId(1))) + PublishEncoder(TOPIC).frames(51, [PLAIN])[0]
            )
        broken = await client.answer(50)
        assert (broken.status, broken.text) == (
            Status.UNEXPECTED_CONDITION,
            "a fault of this hub: ZeroDivisionError()",
        )
        assert (await client.answer(51)).status is Status.SUCCESS

    run(world, story())


def test_what_would_not_fit_into_a_record_is_refused() -> None:
    """The servers of the metadata end the session of a hub that sends them a megabyte, and with it all its topics."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        refused = await client.subscribe(options={"color": bytes(70_000)})
        assert (refused.status, "at most 65536 can be stored" in refused.text) == (Status.MALFORMED_REQUEST, True)
        assert (await client.subscribe(mode=SubscribeMode.ATTACH)).status is Status.CLIENT_NOT_SUBSCRIBED
        await client.subscribe(options={"color": bytes(60_000)})
        refused = await client.subscribe(options={"size": bytes(6_000)})
        assert refused.status is Status.MALFORMED_REQUEST, "with what is stored already it is too much"
        assert (await client.subscribe()).status is Status.SUCCESS
        await client.publish(b"1")
        await client.until(1)
        much = MessageId(LocalId(1), tuple((b"region-%d" % number, 1) for number in range(2_000)))
        client.connection.dataReceived(consume_frame(90, TOPIC, SUB, much))
        assert (await client.answer(90)).status is Status.MALFORMED_REQUEST

    run(world, story())


def test_a_request_that_names_very_much_is_refused_unread_and_the_connection_stays() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await Hub(world).started())

        async def published(message: Message) -> tuple[Status, str]:
            answer = await client.ask(publish_frame, TOPIC, encode_message(message), should_claim=True)
            return answer.status, answer.text

        options = {f"k{number}": b"" for number in range(OPTIONS_MAX + 1)}
        refused = await client.subscribe(options=options)
        assert refused.status is Status.MALFORMED_REQUEST
        assert "the subscribe has 2,001 options; at most 2,000 are allowed: leave out" in refused.text
        del options["k0"]
        assert (await client.subscribe(options=options)).status is Status.SUCCESS
        refused = await client.subscribe(options={f"more-{number}": b"" for number in range(OPTIONS_MAX)})
        assert "at most 65536 can be stored" in refused.text, "however many subscribes bring them"

        many = {f"{number}": b"" for number in range(PROPERTIES_MAX)}
        status, text = await published(Message(b"1", {PRODUCER: b"p", SEQUENCE: b"1", **many}))
        assert status is Status.MALFORMED_REQUEST
        assert "the message has 2,002 properties" in text
        assert "at most 2,000 are allowed: leave some out" in text
        status, text = await published(Message(b"1", {KEEP: b"1000", **many}))
        assert (status, "the message has 2,001 properties" in text) == (Status.MALFORMED_REQUEST, True)
        elsewhere = MessageId(LocalId(9), tuple((b"%d" % number, 1) for number in range(REGIONS_MAX)))
        for numbers in ({}, {PRODUCER: b"p", SEQUENCE: b"1"}):
            status, text = await published(Message(b"1", numbers, id=elsewhere))
            assert status is Status.MALFORMED_REQUEST
            assert "1,000 other regions; at most 100 are allowed: publish without" in text
        assert await published(Message(b"1", many | {"more": b""})) == (Status.SUCCESS, "")
        assert await published(Message(b"2", {PRODUCER: b"p", SEQUENCE: b"1"})) == (Status.SUCCESS, "")
        assert [body for _, body in await client.until(2)] == [b"1", b"2"]

        regions = tuple((b"%d" % number, 1) for number in range(REGIONS_MAX + 1))
        client.connection.dataReceived(consume_frame(9_000, TOPIC, SUB, MessageId(LocalId(1), regions)))
        refused = await client.answer(9_000)
        assert refused.status is Status.MALFORMED_REQUEST
        assert "has 1,001 regions; at most 1,000 are allowed: send the id of the message as it" in refused.text

    run(world, story())


def test_only_the_message_that_fits_no_entry_is_refused_and_the_topic_stays() -> None:
    """Such a message once failed the ledger, and so the whole topic."""
    world = started_world(3)

    async def story() -> None:
        stored_size_max = payload_size_max(1 << 20)
        hub = await Hub(world, log=TopicLogSettings(stored_size_max=stored_size_max)).started()
        hub.client.ledgers.context.encoder.body_size_max = entry_body_size_max(1 << 20)
        client = Client(hub)
        service = (await client.publish(b"first")) and hub.ownership.owned[TOPIC]
        most = service.log._message_size_max - 4  # noqa: SLF001 - tag and size of the body
        answers = await client.publish(b"1", bytes(most), bytes(most + 1), b"2")
        assert [each.status for each in answers] == [
            Status.SUCCESS,
            Status.SUCCESS,
            Status.MALFORMED_REQUEST,
            Status.SUCCESS,
        ]
        assert f"at most {most + 4} can be stored; publish less, or raise" in answers[2].text
        alone = await client.publish(bytes(most + 1))
        assert alone[0].status is Status.MALFORMED_REQUEST
        numbered = encode_message(Message(bytes(most), {PRODUCER: b"p", SEQUENCE: b"1"}))
        refused = await client.ask(lambda txn_id: PublishEncoder(TOPIC).frames(txn_id, [numbered])[0])
        assert refused.status is Status.MALFORMED_REQUEST
        assert hub.ownership.owned[TOPIC] is service
        with pytest.raises(MalformedRequest):
            service.store_foreign([encode_message(Message(bytes(most + 1)))], lambda *_: None)
        regions = MessageId(LocalId(1), tuple((b"%0250d" % number, 1) for number in range(80)))
        telling = encode_message(Message(b"x", id=regions))
        refused = await client.ask(lambda txn_id: PublishEncoder(TOPIC).frames(txn_id, [telling])[0])
        assert "bytes of other regions; at most 16384 are possible" in refused.text
        assert (await client.publish(b"3"))[0].status is Status.SUCCESS

    run(world, story())


def test_another_hubs_topic_is_redirected_to() -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        await Client(a).publish(b"1")
        (refused,) = await Client(b).publish(b"2")
        assert (refused.status, refused.text) == (Status.NOT_RESPONSIBLE_FOR_TOPIC, "127.0.0.1:4080:-1")

    run(world, story())


def test_a_forced_attach_takes_the_subscription_and_tells_who_had_it() -> None:
    """I-96."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        old, new = Client(hub), Client(hub)
        await old.subscribe()
        await old.publish(b"1")
        await old.until(1)
        assert (await new.subscribe(force=True)).status is Status.SUCCESS
        assert old.events() == [Event.SUBSCRIPTION_FORCED_CLOSED]
        await new.publish(b"2")
        assert await new.until(2) == span(1, 2)
        assert old.delivered() == span(1, 1)

    run(world, story())


def test_who_has_a_subscription_that_another_connection_ends_hears_of_it() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        holder, other = Client(hub), Client(hub)
        await holder.subscribe()
        assert (await other.ask(unsubscribe_frame, TOPIC, SUB)).status is Status.SUCCESS
        assert holder.events() == [Event.TOPIC_MOVED]
        await holder.subscribe()
        await other.publish(b"1")
        assert await holder.until(1) == span(1, 1)
        assert (await holder.ask(unsubscribe_frame, TOPIC, SUB)).status is Status.SUCCESS
        assert holder.events() == [Event.TOPIC_MOVED], "who asked for it knows"

    run(world, story())


def test_a_connection_forgets_what_it_has_no_more() -> None:
    """It may live for months, and topics come and go."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        holder, other = Client(hub), Client(hub)
        for subscriber in (SUB, SubscriberId(b"second"), SubscriberId(b"third")):
            await holder.subscribe(subscriber)
        await holder.subscribe(SubscriberId(b"shared"), options={"hw.shared": b"true"})
        assert holder.connection.attachment_count == 4
        await other.subscribe(force=True)
        await other.ask(unsubscribe_frame, TOPIC, SubscriberId(b"second"))
        assert holder.connection.attachment_count == 2
        await hub.ownership.release(TOPIC)
        assert (holder.connection.attachment_count, other.connection.attachment_count) == (0, 0)

    run(world, story())


class OneWriteClient(Client):
    """Its connection is full after each write."""

    full_after_writes = False

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        super().writeSequence(parts)
        if self.full_after_writes:
            self.connection.pauseProducing()


def test_subscriptions_of_a_slow_connection_take_turns() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        slow, publisher = OneWriteClient(hub), Client(hub)
        names = [SUB, SubscriberId(b"second"), SubscriberId(b"third")]
        for name in names:
            await slow.subscribe(name)
        slow.full_after_writes = True
        slow.connection.pauseProducing()
        for first in range(1, 500, 20):
            await publisher.publish(*bodies(first, first + 19))
        for _ in names:
            slow.connection.resumeProducing()
            await world.pause(0.01)
        assert all(slow.delivered(name) for name in names)
        while any(len(slow.delivered(name)) < 500 for name in names):
            slow.connection.resumeProducing()
            await world.pause(0.01)
        assert all(slow.delivered(name) == span(1, 500) for name in names)

    run(world, story())


def test_subscriptions_of_a_connection_that_are_all_behind_read_in_turns() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, cache_size=1, read_ahead=7).started()
        behind, publisher = OneWriteClient(hub), Client(hub)
        names = [SubscriberId(b"reader-%d" % number) for number in range(5)]
        for name in names:
            await behind.subscribe(name)
        behind.connection.pauseProducing()
        await publisher.publish(*bodies(1, 50))
        most, reading = 0, 0

        class Counting(TopicReader):
            async def read(self, first: LocalId, count: int) -> list[bytes]:
                nonlocal most, reading
                reading += 1
                most = max(most, reading)
                try:
                    return await super().read(first, count)
                finally:
                    reading -= 1

        service = hub.ownership.owned[TOPIC]
        service.reader = Counting(hub.client.ledgers, service.log)
        behind.full_after_writes = True
        with mock.patch.object(endpoint, "READINGS_MAX", 2):
            while any(len(behind.delivered(name)) < 50 for name in names):
                behind.connection.resumeProducing()
                await world.pause(0.05)
        assert all(behind.delivered(name) == span(1, 50) for name in names)
        assert most == 2

    run(world, story())


def test_a_client_that_asks_and_does_not_listen_is_not_read() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        client.connection.pauseProducing()
        with mock.patch.object(endpoint, "UNTAKEN_BYTES_MAX", 1_000):
            client.connection.dataReceived(b"".join(map(heartbeat_frame, range(1, 10))))
            assert not client.read_paused
            client.connection.dataReceived(b"".join(map(heartbeat_frame, range(10, 100))))
            assert client.read_paused
            client.connection.resumeProducing()
            assert not client.read_paused

    run(world, story())


def test_a_window_and_a_filter_hold_back_what_they_must() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.subscribe(window_size=3)
        await client.subscribe(SubscriberId(b"even"), message_filter="even", window_size=2)
        await client.publish(*bodies(1, 20))
        assert await client.until(3) == span(1, 3)
        assert await client.until(2, SubscriberId(b"even")) == [(2, b"2"), (4, b"4")], "2 and 4 are not consumed"
        client.consume(2)
        assert await client.until(5) == span(1, 5)
        for number in range(2, 21, 2):
            await client.until(number // 2, SubscriberId(b"even"))
            client.consume(number, SubscriberId(b"even"))
        assert client.delivered(SubscriberId(b"even")) == [(number, b"%d" % number) for number in range(2, 21, 2)]

    run(world, story())


def test_a_filter_that_wants_little_does_not_use_the_window_up() -> None:
    """I-95: what nobody was given nobody consumes."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.subscribe(message_filter="tenth", window_size=2)
        await client.publish(*bodies(1, 65))
        for count in range(1, 7):
            client.consume((await client.until(count))[-1][0])
        assert client.delivered() == [(number, b"%d" % number) for number in range(10, 61, 10)]
        await hub.ownership.release(TOPIC)
        assert (await hub.metadata.subscriptions(TOPIC))[SUB].value.consumed.local == 65, "ledgers may go"

    run(world, story())


def test_old_messages_come_from_the_ledgers_and_a_slow_connection_is_left_alone() -> None:
    """I-95: what does not fit in the cache is read again; who takes nothing is sent nothing."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, cache_size=500, read_ahead=7).started()
        first, slow, publisher = Client(hub), Client(hub), Client(hub)
        await first.subscribe()
        await slow.subscribe(SubscriberId(b"slow"))
        slow.connection.pauseProducing()
        for number in range(1, 60, 5):
            await publisher.publish(*bodies(number, number + 4))
        assert await first.until(60) == span(1, 60)
        assert slow.delivered(SubscriberId(b"slow")) == []
        assert hub.budget.size <= 500
        slow.connection.resumeProducing()
        assert await slow.until(60, SubscriberId(b"slow")) == span(1, 60)

    run(world, story())


def test_positions_survive_a_release_and_a_crash_costs_duplicates_only() -> None:
    """I-92, I-93."""
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080, consume_interval=5).started(), await Hub(world, 4081).started()
        client = Client(a)
        await client.subscribe()
        await client.publish(*bodies(1, 12))
        await client.until(12)
        client.consume(3)
        await a.ownership.release(TOPIC)
        assert client.events() == [Event.TOPIC_MOVED]
        moved = Client(b)
        await moved.subscribe()
        assert await moved.until(9) == span(4, 12), "3 was stored though the interval is 5"
        moved.consume(10)
        await world.pause(1)
        b.client.crash()
        await world.pause(60)
        last = Client(a)
        assert (await last.subscribe()).status is Status.SUCCESS
        found = await last.until(3)
        assert found[-1] == (12, b"12")
        assert found == span(found[0][0], 12)
        assert found[0][0] <= 11

    run(world, story(), seconds=300)


def test_a_position_beyond_the_last_message_is_brought_back_and_stored() -> None:
    """Hubs of Apache store what a client says that it consumed, whatever it says (hedwig/PROTOCOL.md 2.5)."""
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        client = Client(a)
        await client.subscribe()
        await client.publish(*bodies(1, 9))
        await a.ownership.release(TOPIC)
        found = (await b.metadata.subscriptions(TOPIC))[SUB]
        assert found.version is not None
        beyond = Subscription(MessageId(LocalId(500)), found.value.preferences)
        await b.metadata.write_subscription(TOPIC, SUB, beyond, found.version)
        moved = Client(b)
        await moved.subscribe()
        assert (await b.metadata.subscriptions(TOPIC))[SUB].value.consumed == MessageId(LocalId(9))
        await moved.publish(*bodies(10, 12))
        assert await moved.until(3) == span(10, 12)

    run(world, story())


BAD_SUBSCRIPTIONS = (b"\xff\xff\xff", b"\x00", b"garbage", b"\x0a\x7f\x01", b"\x0a\x04\x0a\x02\x08\x01" + b"\xff")
"""Random bytes, a truncated record, a record with bytes behind it. Empty ones are valid: old Apache hubs wrote them."""


@pytest.mark.parametrize("data", BAD_SUBSCRIPTIONS)
def test_an_unreadable_subscription_record_affects_only_its_subscriber(data: bytes) -> None:
    world = started_world(3)
    bad, new = SubscriberId(b"bad"), SubscriberId(b"new")

    async def story() -> None:
        settings = TopicLogSettings(entries_max=5)
        a = await Hub(world, 4080, log=settings).started()
        b = await Hub(world, 4081, log=settings, consume_interval=0).started()
        client = Client(a)
        await client.subscribe(message_bound=1)
        await client.subscribe(bad, message_bound=1)
        await client.publish(*bodies(1, 12))
        await a.ownership.release(TOPIC)
        path = b.metadata.paths.subscription(TOPIC, bad)
        whole = world.metadata.stored(path)
        assert whole is not None
        world.metadata.damage(path, data)
        with capturedLogs() as events:
            moved = Client(b)
            assert (await moved.publish(b"13"))[0].status is Status.SUCCESS
            assert (await moved.subscribe(message_bound=1)).status is Status.SUCCESS
            assert (await moved.subscribe(new, message_bound=1)).status is Status.SUCCESS, "new ones are possible"
            refused = await moved.subscribe(bad)
        assert refused.status is Status.UNEXPECTED_CONDITION
        assert path in refused.text
        assert "hedwig unsubscribe orders bad" in refused.text
        errors = [formatEvent(event) for event in events if event["log_level"].name == "error"]
        assert sum(path in line for line in errors) == 1
        service = b.ownership.owned[TOPIC]
        assert (service.unreadable_count, service.is_subscribed, service.has_ordinary) == (1, True, True)
        moved.consume(13)
        await world.pause(1)
        assert await service.trim() == 0, "its position and its bound are unknown"
        world.metadata.damage(path, whole)
        assert (await moved.subscribe(bad)).status is Status.SUCCESS, "restored, it continues at its position"
        while (13, b"13") not in moved.delivered(bad):
            await world.pause(0.01)
        assert service.unreadable_count == 0

    run(world, story())


@pytest.mark.parametrize("how", ["unsubscribed", "removed", "changed and unsubscribed"])
def test_an_unreadable_subscription_can_be_ended_and_made_again(how: str) -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        client = Client(a)
        await client.subscribe()
        await client.publish(*bodies(1, 9))
        await a.ownership.release(TOPIC)
        path = b.metadata.paths.subscription(TOPIC, SUB)
        world.metadata.damage(path, b"\xff\xff")
        moved = Client(b)
        assert (await moved.subscribe()).status is Status.UNEXPECTED_CONDITION
        if how == "removed":
            world.metadata.znodes.delete(path, world.metadata.znodes.leader.nodes[path].version)
        else:
            if how != "unsubscribed":
                world.metadata.damage(path, b"\xff")
            assert (await moved.ask(unsubscribe_frame, TOPIC, SUB)).status is Status.SUCCESS
            assert world.metadata.stored(path) is None
        assert b.ownership.owned[TOPIC].unreadable_count == (how == "removed")
        assert (await moved.subscribe()).status is Status.SUCCESS
        assert b.ownership.owned[TOPIC].unreadable_count == 0
        await moved.publish(*bodies(10, 12))
        assert await moved.until(3) == span(10, 12)

    run(world, story())


def test_every_position_is_stored_where_the_interval_is_nothing() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, consume_interval=0).started()
        client = Client(hub)
        await client.subscribe()
        await client.publish(*bodies(1, 5))
        await client.until(5)
        for number in (2, 3):
            client.consume(number)
            await world.pause(1)
            assert (await hub.metadata.subscriptions(TOPIC))[SUB].value.consumed.local == number
        assert (await client.subscribe(SubscriberId(b"another"))).status is Status.SUCCESS

    run(world, story())


def test_a_hub_that_lost_the_topic_in_the_middle_says_that_it_does_not_know() -> None:
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), Hub(world, 4081)
        client = Client(a)
        await client.subscribe()
        await client.publish(b"1")
        thief = await b.acquire(TOPIC)
        (open_end,) = await client.publish(b"2")
        assert open_end.status is Status.UNCERTAIN_STATE
        assert client.events() == [Event.TOPIC_MOVED]
        assert thief.log.durable_id == 1
        while a.ownership.owned:
            await world.pause(0.01)

    run(world, story())


def test_a_connection_with_too_much_unanswered_is_not_read() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        frames = PublishEncoder(TOPIC).frames(1, [encode_message(Message(b"x"))] * 21, should_claim=True)
        client.connection.dataReceived(b"".join(frames))
        assert client.read_paused
        await client.answer(21)
        assert not client.read_paused

    run(world, story())


def test_what_a_publisher_says_of_other_regions_is_in_its_answer() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await Hub(world).started())
        message = encode_message(Message(b"x", {"k": b"v"}, id=MessageId(LocalId(9), ((b"r1", 7),))))
        answer = await client.ask(publish_frame, TOPIC, message, should_claim=True)
        assert answer.published == MessageId(LocalId(1), ((b"r1", 7),))

    run(world, story())


def test_a_subscription_begins_behind_what_is_durable() -> None:
    """I-92: ids of messages that are never acknowledged are given to others by the next owner."""
    world = started_world(3)

    async def story() -> None:
        a, b = await Hub(world, 4080).started(), await Hub(world, 4081).started()
        publisher, subscriber = Client(a), Client(a)
        await publisher.publish(*bodies(1, 2))
        for bookie in world.bookies:
            world.network.partition(a.client.name, bookie.name)
        frames = PublishEncoder(TOPIC).frames(9, [encode_message(Message(b"never stored"))] * 3, should_claim=True)
        publisher.connection.dataReceived(b"".join(frames))
        assert (await subscriber.subscribe()).status is Status.SUCCESS
        a.client.crash()
        world.network.heal()
        await world.pause(10)
        moved = Client(b)
        await moved.publish(*bodies(3, 5))
        assert (await moved.subscribe(mode=SubscribeMode.ATTACH)).status is Status.SUCCESS
        assert await moved.until(3) == span(3, 5)

    run(world, story())


def test_who_is_told_that_it_is_attached_was_not_told_before_that_it_is_not() -> None:
    """I-96: two connections ask at once; each hears of its success first, and of the loss then."""
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        await Client(hub).ask(subscribe_frame, TOPIC, SUB, SubscribeMode.CREATE, Preferences(), should_claim=True)
        clients = [Client(hub) for _ in range(3)]
        asked = [world.spawn(client.subscribe(force=True)) for client in clients]
        for each in asked:
            await each
        await world.pause(0.01)
        ends = [[type(each) for each in client.heard] for client in clients]
        assert ends == [[Answer, Told], [Answer, Told], [Answer]]

    run(world, story())


def test_a_connection_that_goes_before_its_answer_leaves_the_subscription_free() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        hasty, other = Client(hub), Client(hub)
        hasty.connection.dataReceived(subscribe_frame(1, TOPIC, SUB, SubscribeMode.CREATE, Preferences()))
        hasty.abortConnection()
        await other.publish(b"1")
        assert (await other.subscribe()).status is Status.SUCCESS

    run(world, story())


def test_options_that_no_hub_understands_are_refused_and_change_nothing() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        refused = await client.subscribe(options={"hw.acks": b"individual"})
        assert refused.status is Status.MALFORMED_REQUEST
        assert "there is no option 'hw.acks'; known are: hw.ack, " in refused.text
        assert (await client.subscribe(mode=SubscribeMode.ATTACH)).status is Status.CLIENT_NOT_SUBSCRIBED
        granted = await client.subscribe(options={"MOD": b"3"})
        assert granted.preferences == Preferences(options={"MOD": b"3"})

    run(world, story())


def test_who_does_not_get_a_subscription_changes_nothing_of_it() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        holder, other = Client(hub), Client(hub)
        await holder.subscribe(window_size=7)
        assert (await other.subscribe(window_size=9)).status is Status.TOPIC_BUSY
        again = await holder.subscribe()
        assert again.preferences == Preferences(window_size=7)

    run(world, story())


@pytest.mark.parametrize("individual", [False, True])
def test_the_window_of_a_client_that_names_none_is_for_a_subscription_that_has_none(*, individual: bool) -> None:
    world = started_world(3)
    other = SubscriberId(b"other")
    options = {"hw.ack": b"individual"} if individual else {}

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)

        async def attach(subscriber: SubscriberId, mode: SubscribeMode, window_if_none: int | None) -> int | None:
            answer = await client.ask(
                subscribe_frame,
                TOPIC,
                subscriber,
                mode,
                Preferences(),
                window_if_none=window_if_none,
                should_claim=True,
            )
            assert answer.status is Status.SUCCESS
            assert answer.preferences is not None
            return answer.preferences.window_size

        assert await attach(SUB, SubscribeMode.CREATE, 3) == 3
        for mode in (SubscribeMode.CREATE_OR_ATTACH, SubscribeMode.ATTACH):
            assert await attach(SUB, mode, 9) == 3
        assert await attach(SUB, SubscribeMode.ATTACH, None) == 3, "it was stored"
        await client.subscribe(other, options=options)
        for mode in (SubscribeMode.CREATE_OR_ATTACH, SubscribeMode.ATTACH):
            assert await attach(other, mode, 2) == 2
        await client.publish(*(b"%d" % number for number in range(5)))
        await world.pause(1.0)
        assert len(client.delivered(other)) == 2
        assert await attach(other, SubscribeMode.ATTACH, None) is None, "it was not stored"

    run(world, story())


def test_answers_of_one_turn_leave_in_one_write() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        topics = [Topic(b"topic-%d" % number) for number in range(20)]
        for topic in topics:
            await client.publish(b"first", topic=topic)
        frames = [PublishEncoder(topic).frames(1000 + 10 * number, [PLAIN] * 5) for number, topic in enumerate(topics)]
        writes = client.writes
        client.connection.dataReceived(b"".join(frame for some in frames for frame in some))
        await client.answer(1000 + 10 * len(topics) - 6)
        await world.pause(2)
        assert sum(isinstance(each, Answer) and each.txn_id >= 1000 for each in client.heard) == 100
        assert client.writes - writes < len(topics), "topics that are acknowledged together share a write"

    run(world, story())


def test_a_client_that_subscribes_to_very_much_at_once_is_not_read_until_it_is_answered() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        new = SubscribeMode.CREATE
        frames = [
            subscribe_frame(number, Topic(b"topic-%d" % number), SUB, new, Preferences(), should_claim=True)
            for number in range(1, 31)
        ]
        client.connection.dataReceived(b"".join(frames))
        assert client.read_paused, "more than 20 wait for their answers"
        await client.answer(30)
        await world.pause(5)
        assert not client.read_paused
        assert sum(isinstance(each, Answer) for each in client.heard) == 30

    run(world, story())


def test_whoever_reads_the_log_is_told_why_a_topic_was_given_up() -> None:
    world = started_world(3)

    async def story() -> None:
        hub, other = await Hub(world).started(), Hub(world, 4081)
        client = Client(hub)
        await client.subscribe()
        await client.publish(*bodies(1, 60))
        await client.until(60)
        found = (await other.metadata.subscriptions(TOPIC))[SUB]
        await other.metadata.write_subscription(TOPIC, SUB, found.value, found.version or 0)
        with capturedLogs() as events:
            client.consume(60)
            while not client.events():
                await world.pause(0.01)
            await world.pause(1)
        [told] = [event for event in events if "is stored later" in (event["log_format"] or "")]
        assert "was changed by another hub" in formatEvent(told)

    run(world, story())


def test_a_publisher_is_told_in_words_that_its_message_may_be_stored_or_not() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.publish(b"1")
        txn_id = client.next_txn_id()
        message = encode_message(Message(b"2"))
        client.connection.dataReceived(b"".join(PublishEncoder(TOPIC).frames(txn_id, [message])))
        hub.ownership.session_lost()
        answer = await client.answer(txn_id)
        assert answer.status is Status.UNCERTAIN_STATE
        assert answer.text == "topic b'orders' is not this hub's any more; the message may be stored or not"

    run(world, story())


def test_a_connection_without_a_subscription_ends_after_long_silence_and_one_with_it_does_not() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        publisher, subscriber, former = Client(hub), Client(hub), Client(hub)
        await subscriber.subscribe()
        await publisher.publish(*bodies(1, 1))
        await former.subscribe(SubscriberId(b"former"))
        await former.ask(close_subscription_frame, TOPIC, SubscriberId(b"former"))
        await world.pause(21.0)
        assert [each.aborted for each in (publisher, subscriber, former)] == [True, False, True]
        await Client(hub).publish(*bodies(2, 2))
        assert await subscriber.until(2) == span(1, 2)

    with mock.patch.object(endpoint, "HUB_BOUNDS", replace(HUB_BOUNDS, idle_s=10.0)):
        run(world, story())


def slow_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Make each answer take 0.2 ms of simulated time. Return the number of answers in each reactor turn."""
    turns: Counter[int] = Counter()
    write = HubConnection.write

    def slow(connection: HubConnection, parts: Sequence[bytes]) -> None:
        turns[world.clock.steps] += 1
        world.clock.spend(0.0002)
        write(connection, parts)

    monkeypatch.setattr(HubConnection, "write", slow)
    return turns


def test_a_flood_of_requests_is_served_in_order_and_delays_no_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,000 requests that arrived in one read once took one reactor turn of 0.3 s and more."""
    world = started_world(3)
    turns: list[Counter[int]] = []

    async def story() -> None:
        hub = await Hub(world).started()
        flooding, other = Client(hub), Client(hub)
        await flooding.publish(b"1")
        turns.append(slow_answers(world, monkeypatch))
        publishes = [
            publish_frame(number, TOPIC, encode_message(Message(b"%d" % number))) for number in range(10_000, 10_005)
        ]
        flood = heartbeat_frame(7) * 2_000
        flooding.connection.dataReceived(flood.join(publishes) + flood[:-1])
        assert flooding.read_paused
        began = world.clock.seconds()
        await other.publish(b"other")
        assert world.clock.seconds() - began < 0.4, "the flood alone takes 1.6 s"
        flooding.connection.dataReceived(flood[-1:] + heartbeat_frame(8))
        await flooding.answer(8)
        answers = [each for each in flooding.heard if isinstance(each, Answer)]
        assert [each.txn_id for each in answers if each.txn_id < 9][-1] == 8, "the last one is answered last"
        assert sum(each.txn_id == 7 for each in answers) == 10_000
        stored = [(await flooding.answer(number)).published for number in range(10_000, 10_005)]
        assert stored == sorted(stored, key=lambda each: each.local if each else 0)
        assert not flooding.read_paused

    run(world, story())
    assert max(turns[0].values()) <= 64 + 64 + SLICE_S / 0.0002


def test_an_invalid_frame_after_a_flood_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await Hub(world).started())
        slow_answers(world, monkeypatch)
        client.connection.dataReceived(heartbeat_frame(7) * 1_500 + b"\x7f\x00\x00\x00")
        while not client.aborted:
            await world.pause(0.01)
        assert sum(isinstance(each, Answer) for each in client.heard) > 1_400, "all but those of the last turn"

    run(world, story())


def test_thousands_of_subscribes_at_once_do_not_end_the_topics_subscriptions() -> None:
    """Each change once ran inside the previous one up to the recursion limit; later subscribes got no answer."""
    world = started_world(3)
    count = 3_000

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await client.publish(b"1")
        mode = SubscribeMode.CREATE_OR_ATTACH  # the first one is stored, and the others wait for it
        frames = [subscribe_frame(number, TOPIC, SUB, mode, Preferences()) for number in range(100, 100 + count)]
        client.connection.dataReceived(b"".join(frames))
        await client.answer(99 + count)
        answers = [each for each in client.heard if isinstance(each, Answer) and each.txn_id >= 100]
        assert [each.txn_id for each in answers] == list(range(100, 100 + count))
        assert {each.status for each in answers} == {Status.SUCCESS}
        assert (await Client(hub).subscribe(SubscriberId(b"other"))).status is Status.SUCCESS

    run(world, story())
