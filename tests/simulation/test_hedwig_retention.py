"""What a hub keeps though it is consumed, and what it drops though it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import succeed
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from bookkeeper.metrics import Counter
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.service import TopicService
from hedwig.hub.topics.trimming import StoreTime, Trimmer
from hedwig.model import Status, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.retention import Retention, trimming
from hedwig.wire.messages import Message, encode_message
from hedwig.wire.requests import unsubscribe_frame
from hedwig.wire.responses import Answer
from tests.simulation.test_hub_connection import SUB, TOPIC, Client, Hub, bodies, span
from tests.simulation.test_scenarios import run, started_world

LATE = SubscriberId(b"late")


class Story:
    """A topic with ledgers of five messages: 1..5, 6..10, 11..15, 16..20, 21..; message n was published at second n."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.begun_ms = hub, round(1000 * hub.world.clock.seconds())
        self.client = Client(hub)
        self.lost = Counter()

    async def published(self, last: int = 23, *, subscribed: bool = True) -> Story:
        if subscribed:
            await self.client.subscribe()
        for number in range(1, last + 1):
            self.hub.now_ms = self.ms(number)
            await self.client.publish(b"%d" % number)
        if subscribed:
            await self.client.until(last)
        return self

    @property
    def service(self) -> TopicService:
        return self.hub.ownership.owned[TOPIC]

    async def consumed(self, up_to: int) -> None:
        self.client.consume(up_to)
        while self.service.needed_from <= up_to:
            await self.hub.world.pause(0.01)

    async def trim(self, *, now_s: int = 23, store_s: int | None = None, **rules: int) -> int:
        """Trim at these times of the hub's and the store's clock; return how many ledgers are deleted."""
        store_time = None
        if store_s is not None:
            store_time = StoreTime(self.hub.world.clock, lambda: succeed(self.ms(store_s)))
        return await Trimmer(Retention(**rules), lambda: self.ms(now_s), self.lost, store_time).trim(self.service)

    async def unsubscribe(self) -> Answer:
        return await self.client.ask(unsubscribe_frame, TOPIC, SUB)

    def ms(self, second: int) -> int:
        return self.begun_ms + 1000 * second

    @property
    def kept(self) -> range:
        return range(self.service.log.first_id, self.service.log.durable_id + 1)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []

    def take(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(take)
    yield lines
    globalLogPublisher.removeObserver(take)


class TimedHub(Hub):
    """Gives messages the time that its test says, as a hub that stamps them."""

    now_ms = 0
    is_timed = True

    async def acquire(self, topic: Topic) -> TopicService:
        service = await super().acquire(topic)
        publish = service.log.publish

        def timed(messages: Any, on_done: Any, *, plain: bool) -> None:
            assert plain
            headed = [each + encode_message(Message(b"", {"hw.time": b"%d" % self.now_ms}))[2:] for each in messages]
            publish(headed, on_done, plain=False)

        return _With(service, log=_With(service.log, publish=timed, is_timed=self.is_timed))  # type: ignore[return-value]


class _With:
    """Something, with other attributes in place of some of its own."""

    def __init__(self, other: object, **instead: object) -> None:
        self._other = other
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


async def story_of(world: Any, last: int = 23, *, subscribed: bool = True, **settings: Any) -> Story:
    hub = await TimedHub(world, log=TopicLogSettings(entries_max=5), consume_interval=1, **settings).started()
    return await Story(hub).published(last, subscribed=subscribed)


# --- topics without subscription


def test_messages_without_a_subscription_are_kept_until_they_are_old() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world, subscribed=False)
        assert await found.trim(keep_unsubscribed_ms=18_000) == 0, "the newest of the first ledger is 18 s old"
        found.service.look_again_s = 0.0
        assert await found.trim(keep_unsubscribed_ms=17_999) == 1
        assert found.kept == range(6, 24)
        await found.client.subscribe(options={"hw.replay": b"first"})
        assert await found.client.until(18) == span(6, 23), "all of it can be read"
        await found.consumed(15)
        assert await found.trim(keep_unsubscribed_ms=99_999) == 2, "a subscription decides by what it consumed"
        assert (await found.unsubscribe()).status is Status.SUCCESS
        assert await found.trim(keep_unsubscribed_ms=99_999) == 0, "its end makes keep_unsubscribed_ms apply again"
        found.service.look_again_s = 0.0
        assert await found.trim() == 1, "Apache's rule"
        assert found.kept == range(21, 24)
        assert found.lost.value == 0

    run(world, story())


def test_messages_without_a_subscription_keep_their_age_in_a_takeover() -> None:
    """The end of the last subscription is not recorded: the dates of messages decide."""
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world)
        await found.consumed(7)
        assert (await found.unsubscribe()).status is Status.SUCCESS
        found.hub.client.crash()
        await world.pause(60)
        found.hub = await TimedHub(world, 4081).started()
        found.client = Client(found.hub)
        await found.client.publish(b"24")
        assert await found.trim(keep_unsubscribed_ms=20_000, now_s=24) == 0
        found.service.look_again_s = 0.0
        assert await found.trim(keep_unsubscribed_ms=15_000, now_s=26) == 2, "5 and 10 are 21 and 16 s old, 15 is 11"
        assert found.kept == range(11, 25)

    run(world, story(), seconds=300)


@pytest.mark.parametrize(("name", "subscribed"), [("keep_unsubscribed_ms", False), ("limit_ms", True)])
@pytest.mark.parametrize(
    ("now_s", "store_s", "gone"),
    [
        (23, 23, 0),
        (100_000, 100_000, 4),
        (100_000, 23, 0),  # the hub's clock was set forward
        (23, 100_000, 0),  # the store's clock was set forward
        (-100_000, 100_000, 0),  # the hub's clock was set back
        (100_000, -100_000, 0),
        (100, 90, 1),  # the earlier clock decides
    ],
)
def test_ledgers_are_deleted_by_age_only_if_two_clocks_agree(
    name: str, subscribed: bool, now_s: int, store_s: int, gone: int
) -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world, subscribed=subscribed)
        assert await found.trim(**{name: 82_000}, now_s=now_s, store_s=store_s) == gone

    run(world, story())


@pytest.mark.parametrize(("behind_s", "reported"), [(400 * 24 * 3600, 1), (30, 0)])
def test_a_hub_whose_clock_is_behind_reports_why_nothing_is_deleted(
    behind_s: int, reported: int, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hedwig.hub.topics.trimming.COMPARE_S", 300.0)
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world, subscribed=False)
        asked_s: list[float] = []

        async def store_ms() -> int:
            asked_s.append(world.clock.seconds())
            return found.ms(23)

        store_time = StoreTime(world.clock, store_ms)
        trimmer = Trimmer(Retention(keep_unsubscribed_ms=10**6), lambda: found.ms(23 - behind_s), store_time=store_time)
        for _ in range(10):
            found.service.look_again_s = 0.0
            assert await trimmer.trim(found.service) == 0
            await world.pause(50)
        assert asked_s == pytest.approx([asked_s[0], asked_s[0] + 300], abs=10)

    run(world, story(), seconds=1000)
    told = [each for each in logged if "clock" in each]
    assert len(told) == reported
    assert all("differ by -34560000 s; ledgers are deleted by age only" in each for each in told)


@pytest.mark.parametrize("date_s", [-(10**8), 10**9])
def test_messages_with_implausible_times_are_as_old_as_the_next_ledger(date_s: int) -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await TimedHub(world, log=TopicLogSettings(entries_max=5)).started()
        await world.pause(1000)
        found = Story(hub)
        hub.now_ms = max(0, found.ms(date_s))
        for number in range(1, 7):
            await found.client.publish(b"%d" % number)
        made_s = round(world.clock.seconds()) - found.begun_ms // 1000
        for late_s, gone in ((-10, 0), (10, 1)):
            found.service.look_again_s = 0.0
            now_s = made_s + 300 + late_s
            assert await found.trim(keep_unsubscribed_ms=300_000, now_s=now_s, store_s=now_s) == gone

    run(world, story(), seconds=3000)


def test_a_topic_without_a_subscription_is_checked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hedwig.hub.topics.trimming.LOOK_AGAIN_S", 100.0)
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world, subscribed=False)
        service, begun_s, looks = found.service, world.clock.seconds(), []
        trimmer = Trimmer(
            Retention(keep_unsubscribed_ms=300_000),
            lambda: found.ms(23) + round(1000 * (world.clock.seconds() - begun_s)),
        )
        with mock.patch("hedwig.hub.topics.trimming.trimming", side_effect=trimming) as decide:
            while not await trimmer.trim(service):
                await world.pause(10)
                if decide.call_count:
                    looks.append(world.clock.seconds() - begun_s)
                    decide.reset_mock()
        # Message 5 was published at second 5, now is second 23: it is too old 282 s later.
        assert world.clock.seconds() - begun_s == pytest.approx(282, abs=15)
        assert looks == pytest.approx([10, 110, 220], abs=12)

    run(world, story(), seconds=2000)


def test_times_that_publishers_wrote_do_not_count_where_the_hub_gives_none() -> None:
    """Else they shorten the retention, by as long as a ledger is written."""
    world = started_world(3)

    async def story() -> None:
        hub = await TimedHub(world, log=TopicLogSettings(entries_max=5)).started()
        found = Story(hub)
        hub.now_ms, hub.is_timed = found.ms(0), False
        await found.client.publish(b"1")
        await world.pause(3000)
        for number in range(2, 7):
            await found.client.publish(b"%d" % number)
        made_s = round(world.clock.seconds()) - found.begun_ms // 1000
        for late_s, gone in ((-10, 0), (10, 1)):
            found.service.look_again_s = 0.0
            now_s = made_s + 300 + late_s
            assert await found.trim(keep_unsubscribed_ms=300_000, now_s=now_s, store_s=now_s) == gone

    run(world, story(), seconds=5000)


# --- topics with subscriptions


def test_consumed_messages_stay_for_so_long_or_so_much_of_them() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world)
        await found.consumed(20)
        assert await found.trim(keep_ms=60_000) == 0
        assert await found.trim(keep_ms=15_000) == 1, "the newest of the first ledger is 18 s old, of the second 13"
        assert found.service.log.first_id == 6
        size = (await found.service.reader.facts())[-2].size
        assert size is not None
        assert await found.trim(keep_bytes=2 * size) == 1, "at least so much is there"
        assert await found.trim(keep_bytes=1, keep_ms=60_000) == 2, "kept is what is within both"
        assert found.service.log.first_id == 21
        assert found.lost.value == 0
        assert (await found.client.subscribe(options={"hw.replay": b"first"})).status is Status.SUCCESS
        assert (await found.client.until(26))[23:] == span(21, 23)

    run(world, story())


def test_without_a_limit_nothing_goes_that_a_subscriber_needs() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world)
        await found.consumed(9)
        assert await found.trim(keep_ms=1, keep_bytes=1, now_s=99_999) == 1
        assert await found.trim(now_s=99_999) == 0
        assert found.service.log.first_id == 6

    run(world, story())


def test_who_lost_messages_to_a_limit_goes_on_behind_them_and_is_counted() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world, cache_size=1)
        await found.consumed(7)
        reader = Client(found.hub)
        await reader.subscribe(LATE, SubscribeMode.CREATE, options={"hw.replay": b"first"}, window_size=2)
        assert await reader.until(2, LATE) == span(1, 2)
        assert await found.trim(limit_ms=9_000, now_s=24) == 2, "10 is 14 s old, 15 is 9"
        assert found.lost.value == 10
        # It consumes nothing any more of what it holds; what it is given next is what is there.
        reader.consume(2, LATE)
        assert (await reader.until(4, LATE))[2:] == span(11, 12)
        assert await found.trim(limit_ms=9_000, now_s=24) == 0
        assert await found.trim(limit_bytes=1) == 2
        assert found.lost.value == 20
        assert found.service.log.first_id == 21, "the one that is written stays"
        for number in (12, 22):
            reader.consume(number, LATE)
        assert (await reader.until(6, LATE))[4:] == span(21, 22)

    run(world, story(), seconds=120)


def test_where_messages_do_not_say_their_age_it_is_that_of_the_next_ledger() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, log=TopicLogSettings(entries_max=5)).started()
        client = Client(hub)
        await client.subscribe()
        made_ms = []
        for first in (1, 6, 11):
            made_ms.append(int(world.clock.seconds() * 1000))
            await client.publish(*bodies(first, first + 4))
            await world.pause(10)
        service = hub.ownership.owned[TOPIC]
        now_ms = int(world.clock.seconds() * 1000)
        for number, limit_ms, gone in ((1, 5000, 0), (1, -5000, 1), (2, 5000, 0), (2, -5000, 1)):
            trimmer = Trimmer(Retention(limit_ms=now_ms - made_ms[number] + limit_ms), lambda: now_ms)
            assert await trimmer.trim(service) == gone
        assert [each.first for each in service.log.ranges] == [11]

    run(world, story(), seconds=120)


@pytest.mark.parametrize("said", [{"limit_ms": 10**6}, {"limit_bytes": 10**6}, {"keep_ms": 10**6}])
def test_a_ledger_that_is_listed_and_not_there_goes(said: dict[str, int]) -> None:
    """It held up all behind it, and who was to read it."""
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world)
        await found.consumed(2)
        gone = found.service.log.ranges[0]
        await found.hub.client.ledgers.delete(gone.ledger_id)
        await found.hub.ownership.stop()
        hub = await Hub(world, 4081, retry_delay_s=0.1).started()
        other = Client(hub)
        await other.subscribe()
        assert await other.until(18) == span(6, 23)
        assert hub.ownership.owned[TOPIC].log.first_id == 6
        service = hub.ownership.owned[TOPIC]
        assert await Trimmer(Retention(**said), lambda: 23_000).trim(service) == 1
        assert service.log.ranges[0].first == 6

    run(world, story(), seconds=120)


def test_a_takeover_after_a_limit_begins_with_what_is_there() -> None:
    world = started_world(3)

    async def story() -> None:
        found = await story_of(world)
        await found.consumed(3)
        assert await found.trim(limit_bytes=1) == 4
        found.hub.client.crash()
        await world.pause(60)
        hub = await Hub(world, 4081).started()
        other = Client(hub)
        await other.subscribe()
        assert await other.until(3) == span(21, 23)
        assert hub.ownership.owned[TOPIC].log.first_id == 21

    run(world, story(), seconds=300)
