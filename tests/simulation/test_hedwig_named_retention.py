"""The retention that publishers set: durable with the first message, for every hub that serves the topic."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from hedwig.client.client import PubSubClient
from hedwig.errors import PubSubError, ServiceDown, UnexpectedCondition
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.topics.log import TopicLog
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.service import TopicService
from hedwig.hub.topics.trimming import StoreTime, Trimmer
from hedwig.model import LocalId, NamedKeep, SubscriberId, Topic
from hedwig.protocol.retention import Retention
from tests.simulation.test_hedwig_client import ListeningHub, a_client, taken
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World

TOPIC, SUB = Topic(b"results"), SubscriberId(b"reader")
HOUR_MS, WEEK_MS = 3_600_000, 7 * 24 * 3_600_000
APACHE, DEFAULT = Retention(), Retention(keep_unsubscribed_ms=WEEK_MS)


class Story:
    """A topic with ledgers of five messages without times: the creation of the next ledger dates them."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def begun(self, port: int = 4080) -> Story:
        settings = TopicLogSettings(entries_max=5)
        self.hub = await ListeningHub(self.world, port, log=settings, consume_interval=1).started()
        self.client: PubSubClient = a_client(self.world, self.hub.address, consume_every=1, consume_delay_s=0.01)
        return self

    async def published(self, count: int, **named: Any) -> None:
        publisher = self.client.publisher(TOPIC, **named)
        for number in range(count):
            await publisher.publish(b"%d" % number, {"kind": b"x"})

    @property
    def service(self) -> TopicService:
        return self.hub.ownership.owned[TOPIC]

    async def trim(self, retention: Retention, *, later_ms: int = 0) -> int:
        """Trim as at `later_ms` from now; return how many ledgers are deleted."""
        now_ms = round(1000 * self.world.clock.seconds()) + later_ms
        self.service.look_again_s = 0.0
        return await Trimmer(retention, lambda: now_ms).trim(self.service)

    async def record(self) -> bytes:
        """Return the first line of the record."""
        path = self.hub.metadata.paths.retention(TOPIC)
        return (await self.hub.metadata.tree.read(path))[0].splitlines(keepends=True)[0]


@pytest.mark.parametrize("producer", [None, b"", b"me"])
def test_retention_set_by_a_publisher_keeps_consumed_messages_on_every_hub(producer: bytes | None) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(12, keep_s=3600, producer=producer)
        assert await found.record() == b"keep_ms: 3600000\n"
        assert await found.trim(APACHE) == 0
        subscription = await found.client.subscribe(TOPIC, SUB, start=1)
        messages = await taken(subscription, 12)
        assert [local_id for local_id, _ in messages] == list(range(1, 13))
        subscription.consume(12)
        while found.service.needed_from < 13:
            await world.pause(0.01)
        assert await found.trim(DEFAULT, later_ms=HOUR_MS - 60_000) == 0, "consumed and kept"
        found.client.abandon()
        found.hub.client.crash()
        await world.pause(60)
        await found.begun(4081)
        await found.published(1)
        assert await found.trim(DEFAULT, later_ms=HOUR_MS - 180_000) == 0
        deleted = 0
        while deleted < 3:  # records of producers are written first
            deleted += await found.trim(DEFAULT, later_ms=HOUR_MS + 60_000)
            await world.pause(1)
        assert found.service.log.first_id == 13, "not longer"
        found.client.abandon()

    run(world, story(), seconds=300)


def test_the_last_retention_applies_and_zero_is_the_rule_of_apache() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(6)
        assert await found.trim(DEFAULT) == 0
        await found.published(1, keep_s=60.5)
        assert await found.record() == b"keep_ms: 60500\n"
        assert await found.trim(DEFAULT, later_ms=50_000) == 0
        await found.published(1, keep_s=0)
        assert await found.trim(DEFAULT) == 1
        found.client.abandon()

    run(world, story())


def test_a_retention_is_sent_with_one_message_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started_world(3)
    written: list[int | None] = []
    write_retention = HubMetadata.write_retention

    def write(metadata: HubMetadata, topic: Topic, named: NamedKeep, *versions: Any) -> Any:
        written.append(named.keep_ms)
        return write_retention(metadata, topic, named, *versions)

    monkeypatch.setattr(HubMetadata, "write_retention", write)

    async def story() -> None:
        found = await Story(world).begun()
        subscription = await found.client.subscribe(TOPIC, SUB)
        publisher = found.client.publisher(TOPIC, keep_s=5)
        await publisher.publish_many([b"1", b"2"])
        for publish in (publisher.publish, lambda body: publisher.publish_soon(body)[1]):
            await publish(b"more")
        await found.published(1, keep_s=5)
        received = []
        while len(received) < 5:
            received += await subscription.receive()
        assert [each.properties.get("hw.keep") for each in received] == [b"5000", None, None, None, b"5000"]
        assert written == [5000]
        found.client.abandon()

    run(world, story())


def test_a_retention_that_cannot_be_stored_fails_the_publish_and_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(1)
        publisher = found.client.publisher(TOPIC, keep_s=5)

        async def fails(*_: object) -> int:
            raise UnexpectedCondition("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(HubMetadata, "write_retention", fails)
            with pytest.raises(
                UnexpectedCondition, match=r"is stored, but its retention of \d+ ms is not: the disk is full"
            ):
                await publisher.publish(b"2")
        await publisher.publish(b"3")
        assert await found.record() == b"keep_ms: 5000\n"
        assert found.service.log.durable_id == 3
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize("state", ["acknowledged", "under way"])
def test_a_number_that_is_named_while_the_trimmer_looks_keeps_the_messages(state: str) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(23)
        service, now_ms = found.service, round(1000 * world.clock.seconds()) + WEEK_MS + HOUR_MS
        asked: Deferred[None] = Deferred()
        store_ms: Deferred[int] = Deferred()

        def ask() -> Deferred[int]:
            asked.callback(None)
            return store_ms

        trimmer = Trimmer(DEFAULT, lambda: now_ms, store_time=StoreTime(world.clock, ask))
        trimming = Deferred.fromCoroutine(trimmer.trim(service))
        await asked
        naming = service.name_retention(30 * 24 * HOUR_MS)
        if state == "acknowledged":
            await naming
        store_ms.callback(now_ms)
        assert await trimming == 0
        await naming
        assert service.log.first_id == 1
        assert await trimmer.trim(service) == 0
        later = Trimmer(DEFAULT, lambda: now_ms + 30 * 24 * HOUR_MS)
        service.look_again_s = 0.0
        assert await later.trim(service) == 4
        found.client.abandon()

    run(world, story())


def test_a_number_that_is_named_while_the_record_is_read_keeps_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(23)
        naming: list[Deferred[None]] = []
        retention = HubMetadata.retention

        async def read(metadata: HubMetadata, topic: Topic) -> Any:
            record = await retention(metadata, topic)
            if not naming:
                naming.append(Deferred())
                naming[0] = found.service.name_retention(HOUR_MS)
            return record

        monkeypatch.setattr(HubMetadata, "retention", read)
        assert await found.trim(APACHE) == 0
        await naming[0]
        assert found.service.log.first_id == 1
        found.client.abandon()

    run(world, story())


def test_numbers_that_change_all_the_time_are_stored_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a transaction, and holds the topic; and what is too old by all of them is deleted nevertheless."""
    world = started_world(3)
    written_s: list[float] = []
    write_retention = HubMetadata.write_retention

    def write(metadata: HubMetadata, topic: Topic, named: NamedKeep, *versions: Any) -> Any:
        written_s.append(world.clock.seconds())
        return write_retention(metadata, topic, named, *versions)

    monkeypatch.setattr(HubMetadata, "write_retention", write)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(12)
        named = [found.service.name_retention(number * HOUR_MS) for number in range(1, 101)]
        await named[0]
        assert await found.record() == b"keep_ms: 3600000\n", "at once"
        assert await found.trim(DEFAULT, later_ms=2 * HOUR_MS) == 0
        assert await found.trim(DEFAULT, later_ms=101 * HOUR_MS) == 2
        for each in named:
            await each
        assert await found.record() == b"keep_ms: 360000000\n", "the last one"
        assert len(written_s) == 2
        assert written_s[1] - written_s[0] >= 0.99
        await world.pause(10)
        began_s = world.clock.seconds()
        await found.service.name_retention(5)
        assert world.clock.seconds() - began_s < 0.5
        found.client.abandon()

    run(world, story(), seconds=120)


def test_an_unreadable_retention_record_keeps_only_messages_of_its_topic() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(6, keep_s=0)
        await found.hub.metadata.tree.write(found.hub.metadata.paths.retention(TOPIC), b"keep_ms: long", 0)
        await found.hub.ownership.release(TOPIC)
        await found.published(1)
        with pytest.raises(UnexpectedCondition, match=r"results/hw.retention cannot be read: want keep_ms: NUMBER"):
            await found.trim(DEFAULT)
        assert found.service.log.first_id == 1
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize("value", [b"", b"-1", b"1.5", b"week", b"9999999999999999999"])
def test_a_malformed_retention_is_refused_with_its_message(value: bytes) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        answers: list[Deferred[Any]] = [
            found.client.publish(TOPIC, body, {"hw.keep": each} if each is not None else {})
            for body, each in ((b"1", None), (b"2", value), (b"3", None))
        ]
        first = await answers[0]
        with pytest.raises(PubSubError, match=r"the header property hw\.keep is"):
            await answers[1]
        assert ((await answers[2]).local, first.local) == (2, 1)
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize("producer", [None, b"", b"me"])
@pytest.mark.parametrize("fails", ["publish", "message"])
def test_the_retention_of_a_message_that_is_not_stored_is_not_applied(
    producer: bytes | None, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(12, keep_s=HOUR_MS)

        def refuse(*_: Any, **__: Any) -> None:
            raise ServiceDown("too much waits already")

        def fail(_: TopicLog, messages: Any, __: int, on_done: Any, **___: Any) -> None:
            on_done(None, ServiceDown("no bookies"))

        with monkeypatch.context() as patch:
            if fails == "publish":
                patch.setattr(TopicLog, "publish", refuse)
                patch.setattr(TopicLog, "publish_once", refuse)
            else:
                patch.setattr(TopicLog, "_enqueue", fail)
            with pytest.raises(PubSubError):
                await found.published(1, keep_s=0, producer=producer)
            await world.pause(5)
        assert await found.record() == b"keep_ms: 3600000000\n"
        assert await found.trim(DEFAULT, later_ms=WEEK_MS + HOUR_MS) == 0
        found.client.abandon()

    run(world, story(), seconds=300)


def test_a_message_that_is_sent_again_overrides_no_later_retention() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        first = await found.client.publisher(TOPIC, producer=b"me", keep_s=0).publish(b"1")
        await found.published(12, keep_s=HOUR_MS)
        for port in (4080, 4081):
            if port == 4081:  # what the first hub knew is recorded
                found.hub.client.crash()
                await world.pause(60)
                await found.begun(port)
            again = found.client.publisher(TOPIC, producer=b"me", first=1, keep_s=0)
            assert await again.publish(b"1") == first
            assert await found.record() == b"keep_ms: 3600000000\n"
            found.client.abandon()

    run(world, story(), seconds=300)


def test_a_message_that_is_sent_again_sets_the_retention_that_its_first_hub_did_not_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(3, keep_s=60)
        writing: list[Deferred[int]] = []

        async def hangs(*_: object) -> int:
            writing.append(Deferred())
            return await writing[-1]

        with monkeypatch.context() as patch:
            patch.setattr(HubMetadata, "write_retention", hangs)
            answers: list[object] = []
            Deferred.fromCoroutine(found.published(1, keep_s=HOUR_MS, producer=b"me")).addBoth(answers.append)
            while not writing:
                await world.pause(0.1)
            assert found.service.log.durable_id == 4
            assert found.service.may_be_named_ms == {60_000, 1000 * HOUR_MS}, "both count until the record is written"
            assert not answers, "no answer before the record is written"
            found.client.abandon()
            found.hub.client.crash()
        await world.pause(60)
        await found.begun(4081)
        again = found.client.publisher(TOPIC, producer=b"me", first=1, keep_s=HOUR_MS)
        assert (await again.publish(b"0")).local == 4
        assert await found.record() == b"keep_ms: 3600000000\n"
        found.client.abandon()

    run(world, story(), seconds=300)


def test_a_fault_while_a_retention_is_stored_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(6)
        with monkeypatch.context() as patch:
            patch.setattr(TopicLog, "while_listed", lambda *_: 1 / 0)
            for _ in range(2):
                with pytest.raises(UnexpectedCondition, match="a fault of this hub: ZeroDivisionError"):
                    await found.published(1, keep_s=5)
        await found.published(1, keep_s=0)
        assert await found.record() == b"keep_ms: 0\n"
        assert await found.trim(DEFAULT) == 1, "no value is left that would keep it"
        found.client.abandon()

    run(world, story())


@pytest.mark.parametrize(
    ("settings", "keep_s"),
    [
        # (seconds, whether a message of this region sets it)
        ([(9, False), (5, False)], 5),  # in their order
        ([(9, True), (5, False)], 9),  # it may have been late
        ([(9, True), (12, False), (10, False)], 12),
        ([(9, False), (5, True)], 5),
        ([(9, True), (12, False), (5, True)], 5),
        ([(0, True), (5, False)], 5),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_value_from_another_region_does_not_shorten_what_this_region_set(
    settings: list[tuple[int, bool]], keep_s: int, together: bool
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(1)
        naming = []
        for number, (seconds, here) in enumerate(settings, 2):
            naming.append(found.service.name_retention(1000 * seconds, LocalId(number) if here else None))
            if not together:
                await naming[-1]
        for each in naming:
            await each
        assert await found.record() == b"keep_ms: %d000\n" % keep_s
        found.client.abandon()

    run(world, story())


def test_a_value_that_could_not_be_stored_overrides_no_later_one_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The later value is the stored one already, and its message must be recorded all the same."""
    world = started_world(3)

    async def story() -> None:
        found = await Story(world).begun()
        await found.published(1, keep_s=3600)

        async def fails(*_: object) -> int:
            raise UnexpectedCondition("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(HubMetadata, "write_retention", fails)
            with pytest.raises(PubSubError):
                await found.published(1, keep_s=0, producer="me")
        await found.published(1, keep_s=3600)
        found.client.abandon()
        found.hub.client.crash()
        await world.pause(60)
        await found.begun(4081)
        await found.published(1, keep_s=0, producer="me")
        assert await found.record() == b"keep_ms: 3600000\n"
        await found.published(1, keep_s=0, producer="another")
        assert await found.record() == b"keep_ms: 0\n"
        found.client.abandon()

    run(world, story(), seconds=200)
