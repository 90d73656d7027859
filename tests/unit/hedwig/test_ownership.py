"""Who serves a topic: claims, redirects, releases, lost sessions; over a simulated ZooKeeper."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.python.failure import Failure

from hedwig.errors import MalformedRequest, NotResponsible, ServiceDown, UnexpectedCondition
from hedwig.hub.ownership import ASKED_AT_ONCE, LOAD_PERIOD_S, RELEASED_OF_SOME, Ownership
from hedwig.model import HubAddress, HubInfo, Topic
from tests.support.hub_region import Region

TOPIC = Topic(b"orders")


class Service:
    """What serves a topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.ended = topic, ""


class Hub:
    """One hub, whose acquisitions the test may hold up or fail."""

    def __init__(self, region: Region, port: int) -> None:
        self.region, self.metadata = region, region.hub()
        self.session = region.sessions[-1]
        self.services: list[Service] = []
        self.hold: Deferred[None] | None = None
        self.hold_release: Deferred[None] | None = None
        self.releasing = self.releasing_max = 0
        self.error: Exception | None = None

        async def acquire(topic: Topic) -> Service:
            if self.hold is not None:
                await self.hold
            if self.error is not None:
                raise self.error
            self.services.append(Service(topic))
            return self.services[-1]

        async def release(service: Service) -> None:
            self.releasing += 1
            self.releasing_max = max(self.releasing_max, self.releasing)
            if self.hold_release is not None:
                await self.hold_release
            self.releasing -= 1
            service.ended = service.ended or "released"

        def abandon(service: Service) -> None:
            service.ended = "abandoned"

        self.ownership: Ownership[Service] = Ownership(
            self.metadata,
            region.clock,
            random.Random(port),
            HubAddress("127.0.0.1", port),
            acquire=acquire,
            release=release,
            abandon=abandon,
        )
        region.now(self.ownership.start())

    def ask(self, topic: Topic = TOPIC, *, claim: bool = True) -> Deferred[Service]:
        found = self.ownership.service(topic, should_claim=claim)
        return found if isinstance(found, Deferred) else succeed(found)

    def get(self, topic: Topic = TOPIC, *, claim: bool = True) -> Service:
        service: Service = self.region.now(self.ask(topic, claim=claim))
        return service


@pytest.fixture
def hubs() -> tuple[Hub, Hub]:
    region = Region()
    return Hub(region, 4080), Hub(region, 4081)


def passed(hub: Hub, seconds: float) -> None:
    over: list[bool] = []
    hub.region.clock.callLater(seconds, over.append, True)
    hub.region.clock.run_until(lambda: bool(over), seconds=seconds + 1)


def test_the_first_that_claims_serves_and_the_others_send_there(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    service = a.get()
    assert a.ownership.service(TOPIC, should_claim=False) is service, "at once"
    with pytest.raises(NotResponsible) as refused:
        b.get()
    assert refused.value.owner == a.ownership.address
    assert str(refused.value) == "127.0.0.1:4080:-1"
    assert len(a.services) == 1


def test_requests_for_one_topic_wait_for_one_acquisition(hubs: tuple[Hub, Hub]) -> None:
    a, _ = hubs
    a.hold = Deferred()
    asked = [a.ask(), a.ask(claim=False), a.ask()]
    passed(a, 1)
    a.hold.callback(None)
    assert {a.region.now(each) for each in asked} == set(a.services)
    assert len(a.services) == 1


def test_the_load_is_told_by_one_write_at_a_time(hubs: tuple[Hub, Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes longer than the period would meet its own successor, and one of them fail."""
    hub = hubs[0]
    writes: list[tuple[int, Deferred[None]]] = []

    async def set_load(address: HubAddress, topic_count: int) -> None:
        done: Deferred[None] = Deferred()
        writes.append((topic_count, done))
        await done

    monkeypatch.setattr(hub.metadata, "set_load", set_load)
    hub.get(Topic(b"first"))
    passed(hub, 2 * LOAD_PERIOD_S)
    hub.get(Topic(b"second"))
    passed(hub, 2 * LOAD_PERIOD_S)
    assert [count for count, _ in writes] == [1]
    writes[0][1].callback(None)
    passed(hub, 2 * LOAD_PERIOD_S)
    assert [count for count, _ in writes] == [1, 2]


def test_who_does_not_claim_is_sent_to_the_hub_with_the_fewest_topics(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    for number in range(3):
        a.get(Topic(b"%d" % number))
    passed(a, 2 * LOAD_PERIOD_S)
    assert a.region.now(a.metadata.hubs())[a.ownership.address] == 3
    with pytest.raises(NotResponsible) as sent:
        a.get(claim=False)
    assert sent.value.owner == b.ownership.address
    assert a.region.now(a.metadata.owner(TOPIC)) is None, "nothing is written for another hub"
    assert b.get(claim=False) is b.services[0], "it has the fewest itself"


def test_a_released_topic_goes_to_who_claims_it_next(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    service = a.get()
    a.region.now(a.ownership.release(TOPIC))
    assert service.ended == "released"
    b.get()
    with pytest.raises(NotResponsible):
        a.get()
    a.region.now(a.ownership.release(TOPIC))


def test_an_acquisition_that_fails_gives_the_topic_back(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    a.error = UnexpectedCondition("the list has a gap")
    with pytest.raises(UnexpectedCondition):
        a.get()
    assert a.region.now(a.metadata.owner(TOPIC)) is None
    b.get()


def test_a_hub_that_lost_its_session_serves_nothing(hubs: tuple[Hub, Hub]) -> None:
    """I-90: another one may have its topics already."""
    a, b = hubs
    service = a.get()
    a.session.expire_session(reconnect_s=1.0)
    a.region.clock.run_until(lambda: service.ended == "abandoned", seconds=60)
    with pytest.raises(ServiceDown):
        a.get()
    assert b.get().topic == TOPIC
    passed(a, 30)
    assert a.region.now(b.metadata.hubs()).keys() == {a.ownership.address, b.ownership.address}
    assert a.get(Topic(b"another")).topic == b"another", "with its next session it serves again"


def test_a_session_that_is_lost_during_an_acquisition_leaves_no_service(hubs: tuple[Hub, Hub]) -> None:
    a, _ = hubs
    a.hold = Deferred()
    asked = a.ask()
    passed(a, 1)
    a.ownership.session_lost()
    a.hold.callback(None)
    with pytest.raises(ServiceDown):
        a.region.now(asked)
    assert [service.ended for service in a.services] == ["abandoned"]
    assert a.ownership.owned == {}


@pytest.mark.parametrize("how", ["release", "stop"])
def test_what_is_being_released_when_the_session_ends_is_given_up_too(hubs: tuple[Hub, Hub], how: str) -> None:
    """It would go on in the next session, when another hub may have changed what it finishes."""
    a, b = hubs
    service = a.get()
    a.hold_release = Deferred()
    ending = a.ownership.release(TOPIC) if how == "release" else Deferred.fromCoroutine(a.ownership.stop())
    passed(a, 1)
    a.session.expire_session(reconnect_s=1.0)
    passed(a, 30)
    assert service.ended == "abandoned"
    other = b.get()
    a.hold_release.callback(None)
    a.region.now(ending)
    record = a.region.now(b.metadata.owner(TOPIC))
    assert record is not None
    assert record.address == b.ownership.address
    assert other.ended == ""


def test_a_hub_registers_once_however_often_it_hears_that_it_is_connected(
    hubs: tuple[Hub, Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time would each take the other's record for one of an earlier life."""
    a, _ = hubs
    register, registering = a.metadata.register, []

    async def counted(address: HubAddress) -> HubInfo:
        registering.append(address)
        return await register(address)

    monkeypatch.setattr(a.metadata, "register", counted)
    a.session.expire_session(reconnect_s=1.0)
    a.region.clock.run_until(lambda: bool(registering), seconds=60)
    a.session.cut_connection(0.5)
    passed(a, 30)
    assert len(registering) == 1
    assert a.get(Topic(b"another")).topic == b"another"


def test_a_hub_that_stopped_tells_no_load(hubs: tuple[Hub, Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = hubs
    a.get()
    passed(a, 3 * LOAD_PERIOD_S)
    a.get(Topic(b"another"))
    a.region.now(a.ownership.stop())
    told: list[int] = []

    async def set_load(address: HubAddress, topic_count: int) -> None:
        told.append(topic_count)

    monkeypatch.setattr(a.metadata, "set_load", set_load)
    passed(a, 3 * LOAD_PERIOD_S)
    assert told == [], "its session may be closed by then"


def test_a_record_of_an_earlier_life_does_not_keep_a_hub_from_its_topic(hubs: tuple[Hub, Hub]) -> None:
    a, _ = hubs
    before = Hub(a.region, 4090)
    before.get()
    after = Hub(a.region, 4090)
    assert after.get() is after.services[0]


def test_names_that_none_can_be_are_refused(hubs: tuple[Hub, Hub]) -> None:
    with pytest.raises(MalformedRequest):
        hubs[0].get(Topic(b""))


def test_stop_releases_everything_and_takes_nothing_more(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    services = [a.get(Topic(b"%d" % number)) for number in range(5)]
    a.region.now(a.ownership.stop())
    assert {service.ended for service in services} == {"released"}
    with pytest.raises(NotResponsible) as refused:
        a.get()
    assert refused.value.owner is None
    assert list(b.region.now(b.metadata.hubs())) == [b.ownership.address]
    b.get(Topic(b"3"))


def test_a_topic_that_was_being_acquired_when_the_hub_stopped_is_for_another(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    a.hold = Deferred()
    asked = a.ask()
    passed(a, 1)
    a.region.now(a.ownership.stop())
    a.hold.callback(None)
    with pytest.raises(NotResponsible) as refused:
        a.region.now(asked)
    assert refused.value.owner is None
    b.get()


def test_a_service_that_cannot_go_on_is_acquired_anew(hubs: tuple[Hub, Hub]) -> None:
    a, _ = hubs
    service = a.get()
    a.ownership.lost(TOPIC, Service(TOPIC))
    assert a.get() is service, "what another service says does not count"
    a.ownership.lost(TOPIC, service)
    assert a.get() is not service


@pytest.mark.parametrize("seed", range(10))
def test_two_hubs_never_both_have_a_topic_for_good(seed: int) -> None:
    """Their records agree once the faults stop."""
    region = Region()
    hubs = [Hub(region, 4080 + number) for number in range(3)]
    rng = random.Random(seed)
    for faults in region.faults:
        faults.failed_before_probability = faults.reply_lost_probability = 0.05
    asked: list[Deferred[Any]] = []
    for _ in range(60):
        hub, topic = rng.choice(hubs), Topic(b"%d" % rng.randrange(4))
        if rng.random() < 0.7:
            found = hub.ask(topic, claim=rng.random() < 0.7)
            found.addErrback(lambda failure: failure.trap(NotResponsible, ServiceDown))
            asked.append(found)
        else:
            hub.ownership.release(topic)
        passed(hub, rng.random())
    for index, _ in enumerate(region.faults):
        region.faults[index].failed_before_probability = region.faults[index].reply_lost_probability = 0.0
    for each in asked:
        assert not isinstance(region.now(each), Failure)
    passed(hubs[0], 60)
    for topic in {topic for hub in hubs for topic in hub.ownership.owned}:
        owners = [hub for hub in hubs if topic in hub.ownership.owned]
        record = region.now(hubs[0].metadata.owner(topic))
        assert [hub.ownership.address for hub in owners] == [record.address]


def test_so_many_topics_are_released_and_the_others_stay(hubs: tuple[Hub, Hub]) -> None:
    a, b = hubs
    topics = [Topic(b"t%d" % number) for number in range(40)]
    for topic in topics:
        a.get(topic)
    a.hold_release = Deferred()
    releasing = Deferred.fromCoroutine(a.ownership.release_some(25))
    passed(a, 1)
    a.hold_release.callback(None)
    released = a.region.now(releasing)
    assert released == 25
    assert a.releasing_max == RELEASED_OF_SOME, "those who stay do not wait for the metadata"
    assert [each.ended for each in a.services].count("released") == 25
    assert len(a.ownership.owned) == 15
    free = next(topic for topic in topics if topic not in a.ownership.owned)
    b.get(free)
    assert a.region.now(Deferred.fromCoroutine(a.ownership.release_some(1000))) == 15
    assert a.ownership.owned == {}


def test_a_client_that_asks_for_very_many_topics_at_once_gets_them_all(hubs: tuple[Hub, Hub]) -> None:
    a, _ = hubs
    asked = [a.ask(Topic(b"%d" % number)) for number in range(3 * ASKED_AT_ONCE)]
    a.region.now(gatherResults(asked))
    assert len(a.ownership.owned) == 3 * ASKED_AT_ONCE
