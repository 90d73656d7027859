"""Publishing once on the simulated cluster: repeats, takeovers, hubs that know nothing of it, clients that send again.

What is shown: of a producer's messages the topic has each once and in its order, and an acknowledged one is there under
the id that was told, whatever happened to hubs and answers.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest import mock

import pytest

from bookkeeper.client.write.write_handle import WriteHandle
from bookkeeper.errors import ClientClosed, InvalidArgument, MetadataUnavailable
from hedwig.client import publish_once as once
from hedwig.errors import MalformedRequest, PubSubError, ServiceDown
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.topics import log as topic_log
from hedwig.hub.topics import publish_once
from hedwig.hub.topics.log import TopicLog
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.model import LocalId, MessageId, Status, Topic
from hedwig.protocol.producers import Origin, Producers, Verdict, origin_properties
from hedwig.wire.messages import PROPERTIES_MAX, Message, decode_message, encode_message
from hedwig.wire.requests import PublishEncoder, Publishes, decode_requests
from tests.simulation.test_hedwig_client import ListeningHub, a_client, failure_of, outcomes
from tests.simulation.test_hub_connection import TOPIC, Client, Hub
from tests.simulation.test_scenarios import run, started_world
from tests.simulation.world import World

A, B = b"producer-a", b"producer-b"
MALFORMED, STALE = Status.MALFORMED_REQUEST, Status.BAD_VERSION
SMALL = TopicLogSettings(entries_max=4)


def numbered(producer: bytes, sequence: int, previous: int | None = None) -> bytes:
    origin = Origin(producer, sequence, previous)
    return encode_message(Message(b"%b/%d" % (producer, sequence), origin_properties(origin)))


async def published(client: Client, *messages: bytes, topic: Topic = TOPIC) -> list[int | Status]:
    """The id of each, or why there is none."""
    first = client.next_txn_id()
    for _ in messages[1:]:
        client.next_txn_id()
    client.connection.dataReceived(b"".join(PublishEncoder(topic).frames(first, messages, should_claim=True)))
    answers = [await client.answer(first + index) for index in range(len(messages))]
    return [each.published.local if each.published else Status(each.status) for each in answers]


def chain(producer: bytes, first: int, last: int) -> list[bytes]:
    return [numbered(producer, number, number - 1 or None) for number in range(first, last + 1)]


async def bodies(hub: Hub, topic: Topic = TOPIC) -> list[bytes]:
    """All that the topic has, as its owner reads it."""
    service = hub.ownership.owned[topic]
    found: list[bytes] = []
    while len(found) < service.log.durable_id:
        stored = await service.reader.read(LocalId(len(found) + 1), 1000)
        found += [decode_message(each).body for each in stored]
    return found


async def record(metadata: HubMetadata, topic: Topic = TOPIC) -> Producers[Any] | None:
    data = (await metadata.producers(topic)).value
    return None if data is None else Producers.decode(data)


def test_a_repeat_is_answered_with_its_first_id_and_stored_once() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        one, other = Client(hub), Client(hub)
        assert await published(one, *chain(A, 1, 3)) == [1, 2, 3]
        assert await published(other, *chain(A, 2, 4), numbered(B, 7)) == [2, 3, 4, 5]
        # Twice in one write, and around a message without a number.
        plain = encode_message(Message(b"plain"))
        assert await published(one, numbered(A, 5, 4), plain, numbered(A, 5, 4), numbered(A, 6, 5)) == [6, 7, 6, 8]
        assert await bodies(hub) == [
            *(b"producer-a/1", b"producer-a/2", b"producer-a/3", b"producer-a/4", b"producer-b/7"),
            *(b"producer-a/5", b"plain", b"producer-a/6"),
        ]

    run(world, story())


def test_what_cannot_be_taken_in_its_order_is_refused_and_the_connection_stays() -> None:
    world = started_world(3)

    async def story() -> None:
        client = Client(await Hub(world).started())
        assert await published(client, numbered(A, 2, 1), numbered(A, 3, 2)) == [STALE, STALE], "1 is not there"
        assert await published(client, numbered(A, 1), numbered(A, 3, 2)) == [1, STALE]
        assert await published(client, numbered(A, 2, 1), numbered(A, 3, 2)) == [2, 3]
        assert await published(client, numbered(B, 9), numbered(B, 7)) == [4, MALFORMED], "it would be overtaken"
        wrong = encode_message(Message(b"x", {"hw.pid": A}))
        assert await published(client, wrong, numbered(A, 4, 3), wrong) == [MALFORMED, 5, MALFORMED]
        assert not client.aborted
        assert client.connection.attachment_count == 0

    run(world, story())


@pytest.mark.parametrize("ended", ["killed", "released"])
def test_whoever_takes_the_topic_over_knows_what_was_published(ended: str) -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        one = Client(first)
        assert await published(one, *chain(A, 1, 5), encode_message(Message(b"plain")), *chain(B, 1, 2)) == [
            *(1, 2, 3, 4, 5, 6, 7, 8)
        ]
        if ended == "killed":
            first.client.crash()
        else:
            await first.ownership.stop()
        second = await Hub(world, 4081).started()
        while await second.metadata.owner(TOPIC) is not None:
            await world.pause(0.5)
        two = Client(second)
        assert await published(two, encode_message(Message(b"before"))) == [9]
        assert second.ownership.owned[TOPIC].log._once is None, "nobody asked"  # noqa: SLF001
        assert await published(two, *chain(A, 4, 7), *chain(B, 2, 3)) == [4, 5, 10, 11, 8, 12]
        assert len(await bodies(second)) == 12

    run(world, story(), seconds=100)


def test_a_repeat_of_what_fails_within_the_same_call_is_refused_too() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        await published(Client(hub), numbered(A, 1))
        log = hub.ownership.owned[TOPIC].log
        heard: list[tuple[int, int, PubSubError | None]] = []
        origins = [Origin(A, 2), Origin(A, 3), Origin(A, 2), Origin(A, 1)]
        messages = [numbered(A, each.sequence) for each in origins]
        with mock.patch.object(WriteHandle, "append_batch_nowait", side_effect=InvalidArgument("the ledger fails")):
            log.publish_once(messages, origins, lambda index, count, first, error: heard.append((index, count, error)))
        assert [(index, count) for index, count, _ in heard] == [(0, 2), (2, 1), (3, 1)]
        assert [error is None for _, _, error in heard] == [False, False, True]

    run(world, story())


def test_publishes_wait_in_their_order_until_it_is_known_who_published_what() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        await published(Client(first), *chain(A, 1, 3))
        await first.ownership.stop()
        second = await Hub(world, 4081).started()
        one, other = Client(second), Client(second)
        await published(one, encode_message(Message(b"0")))
        frames = PublishEncoder(TOPIC).frames
        sent = [numbered(A, 3, 2), numbered(A, 4, 3)]
        one.connection.dataReceived(b"".join(frames(101, sent)))
        one.connection.dataReceived(b"".join(frames(103, [encode_message(Message(b"plain"))])))
        other.connection.dataReceived(b"".join(frames(105, sent)))
        found = [await one.answer(number) for number in (101, 102, 103)] + [await other.answer(n) for n in (105, 106)]
        assert [each.published and each.published.local for each in found] == [3, 5, 6, 3, 5]

    run(world, story(), seconds=100)


def test_a_hub_that_goes_refuses_what_waits_to_be_judged() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        await published(Client(first), *chain(A, 1, 3))
        await first.ownership.stop()
        second = await Hub(world, 4081).started()
        client = Client(second)
        await published(client, encode_message(Message(b"0")))
        client.connection.dataReceived(b"".join(PublishEncoder(TOPIC).frames(101, [numbered(A, 4, 3)])))
        await second.ownership.release(TOPIC)
        assert (await client.answer(101)).status == Status.NOT_RESPONSIBLE_FOR_TOPIC
        assert await published(client, numbered(A, 4, 3)) == [5]

    run(world, story(), seconds=100)


def test_who_published_what_is_written_now_and_then_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_once, "SNAPSHOT_EVERY", 10)
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        client = Client(first)
        assert await record(first.metadata) is None
        for number in range(1, 26):
            assert await published(client, numbered(A, number, number - 1 or None)) == [number]
        found = await record(first.metadata)
        assert found is not None
        assert 15 <= found.through <= 25
        first.client.crash()
        second = await Hub(world, 4081).started()
        while await second.metadata.owner(TOPIC) is not None:
            await world.pause(0.5)
        assert await published(Client(second), *chain(A, 1, 26)) == list(range(1, 27))

    run(world, story(), seconds=100)


def test_a_hub_that_knows_nothing_of_it_may_have_the_topic_in_between() -> None:
    """It stores repeats, too, and tells nobody; of those the first one counts."""
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        await published(Client(first), *chain(A, 1, 3))
        await first.ownership.stop()
        genuine = await Hub(world, 4081).started()
        client = Client(genuine)
        await published(client, encode_message(Message(b"x")))
        service = genuine.ownership.owned[TOPIC]
        outcome: list[Any] = []
        both = [numbered(A, 3, 2), numbered(A, 4, 3), encode_message(Message(b"y", {"hw.pid": b"half of it"}))]
        service.log.publish(both, lambda first, error: outcome.append(first), plain=False)
        while not outcome:
            await world.pause(0.01)
        await genuine.ownership.stop()
        third = await Hub(world, 4082).started()
        assert await published(Client(third), *chain(A, 2, 5)) == [2, 3, 6, 8]

    run(world, story(), seconds=100)


def test_messages_are_deleted_only_when_it_is_written_who_published_them() -> None:
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080, log=SMALL).started()
        one = Client(first)
        assert await published(one, *chain(A, 1, 9)) == list(range(1, 10))
        await first.ownership.stop()
        second = await Hub(world, 4081, log=SMALL).started()
        two = Client(second)
        await published(two, encode_message(Message(b"plain")))
        log = second.ownership.owned[TOPIC].log
        known = await record(second.metadata)
        assert known is not None
        assert known.through == 9
        await published(two, *chain(A, 10, 30))
        assert await log.trim(LocalId(25)) == [], "not written yet"
        while (found := await record(second.metadata)) is None or found.through < 25:
            await world.pause(0.01)
        assert sum(each.last.local - (each.first or 1) + 1 for each in await log.trim(LocalId(25)) if each.last) >= 20
        second.client.crash()
        third = await Hub(world, 4082).started()
        while await third.metadata.owner(TOPIC) is not None:
            await world.pause(0.5)
        assert await published(Client(third), *chain(A, 20, 31)) == [*range(21, 32), 32]

    run(world, story(), seconds=100)


@pytest.mark.parametrize("failures", [0, 2])
def test_the_record_follows_messages_without_numbers_too(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what has to be read when one with a number comes would have no bound; and what is not known to be recorded
    must not be deleted, only because the look at it failed.
    """
    for module in (publish_once, topic_log):
        monkeypatch.setattr(module, "SNAPSHOT_EVERY", 10)
    world = started_world(3)

    async def story() -> None:
        first = await Hub(world, 4080).started()
        await published(Client(first), *chain(A, 1, 3))
        await first.ownership.stop()
        second = await Hub(world, 4081).started()
        client = Client(second)
        find, left = second.metadata.producers, failures

        async def fails_first(topic: Topic) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise MetadataUnavailable("not now")
            return await find(topic)

        monkeypatch.setattr(second.metadata, "producers", fails_first)
        for number in range(40):
            await published(client, encode_message(Message(b"%d" % number)))
        assert left < 0
        await world.pause(1)
        found = await record(second.metadata)
        assert found is not None
        assert found.through >= 30
        assert await published(client, *chain(A, 3, 4)) == [3, 44]

    run(world, story(), seconds=100)


def test_messages_are_sorted_by_the_way_they_go_and_keep_their_order(rng: random.Random) -> None:
    seen = set()
    for _ in range(200):
        kinds = [rng.choice("pphhhoooorb") for _ in range(rng.randrange(1, 12))]
        messages = []
        for number, kind in enumerate(kinds):
            properties = {"n": b"%d" % number, "about": b"hw.pid of another one"} if kind == "h" else {}
            if kind == "o":
                properties = {**properties, **origin_properties(Origin(A, number + 1))}
            elif kind == "b":
                properties = {"hw.seq": b"1"}
            message_id = MessageId(LocalId(0), ((b"there", 7),)) if kind == "r" else None
            messages.append(encode_message(Message(b"%d" % number, properties, id=message_id)))
        [request] = decode_requests([frame[4:] for frame in PublishEncoder(TOPIC).frames(1, messages)])
        assert isinstance(request, Publishes)
        parts = list(publish_once.parts_of(request))
        assert [each for part in parts for each in part.messages] == messages
        assert [each for part in parts for each in part.txn_ids] == list(range(1, len(messages) + 1))
        for part in parts:
            inside = {kinds[txn_id - 1] for txn_id in part.txn_ids}
            seen.add("".join(sorted(inside)))
            assert (part.error is not None) == (inside == {"b"})
            assert inside != {"r"} or len(part.messages) == 1
            assert inside <= {"p", "h"} or len(inside) == 1
            numbers = [Origin(A, txn_id) for txn_id in part.txn_ids]
            assert part.origins == (numbers if inside == {"o"} else None)
    assert seen == {"p", "h", "hp", "o", "r", "b"}


def test_a_topic_without_producers_reads_and_writes_nothing_for_them() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world, 4080, log=SMALL).started()
        client = Client(hub)
        asked: list[Any] = []
        hub.metadata.producers = asked.append  # type: ignore[assignment,method-assign]
        headed = encode_message(Message(b"x", {"kind": b"letter"}))
        assert await published(client, *[headed] * 20) == list(range(1, 21))
        await world.pause(1)
        assert len(await hub.ownership.owned[TOPIC].log.trim(LocalId(20))) == 4
        assert not asked

    run(world, story())


def test_messages_with_headers_get_their_ids_by_the_batch() -> None:
    world = started_world(3)

    async def story() -> None:
        hub = await Hub(world).started()
        client = Client(hub)
        await published(client, encode_message(Message(b"0")))
        log = hub.ownership.owned[TOPIC].log
        calls: list[int] = []
        take, log_type = type(log)._enqueue, type(log)  # noqa: SLF001

        def counted(self: Any, messages: Any, *args: Any, **named: Any) -> None:
            calls.append(len(messages))
            take(self, messages, *args, **named)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log_type, "_enqueue", counted)
            headed = [encode_message(Message(b"x", {"n": b"%d" % number})) for number in range(50)]
            assert await published(client, *headed, *chain(A, 1, 50)) == list(range(2, 102))
        assert calls == [50, 50]

    run(world, story())


# --- the client


class Hubs:
    """Hubs that come and go at the same addresses."""

    def __init__(self, world: World, count: int = 2, **settings: Any) -> None:
        self.world, self.settings = world, settings
        self.ports = [4080 + number for number in range(count)]
        self.hubs: dict[int, ListeningHub] = {}
        self.connections: list[Any] = []

    async def started(self) -> Hubs:
        for port in self.ports:
            await self.start(port)
        return self

    async def start(self, port: int) -> None:
        self.hubs[port] = await ListeningHub(self.world, port, **self.settings).started()

    @property
    def addresses(self) -> list[Any]:
        return [hub.address for hub in self.hubs.values()]

    def owner(self) -> int | None:
        return next((port for port, hub in self.hubs.items() if TOPIC in hub.ownership.owned), None)

    async def fault(self, rng: random.Random) -> str:
        """Something goes wrong with the owner, or with its connections."""
        port = self.owner()
        if port is None:
            return "nobody"
        hub = self.hubs[port]
        what = rng.choice(["kill", "session", "release", "cut", "cut"])
        if what == "kill":
            hub.client.crash()
            await self.world.pause(rng.random())
            # A process at another address: the one before is known to be dead only when its session ends.
            del self.hubs[port]
            await self.start(max(self.ports) + 1)
            self.ports.append(max(self.ports) + 1)
        elif what == "session":
            hub.client.store.expire_session()
        elif what == "release":
            hub.ownership.release(TOPIC)
        else:
            for connection in hub.connections:
                if not connection.closed and rng.random() < 0.7:
                    connection._transport.abortConnection()  # type: ignore[union-attr]  # noqa: SLF001
        return what


async def all_stored(world: World, hubs: Hubs) -> list[bytes]:
    client = a_client(world, *hubs.addresses, retry_timeout_s=200.0)
    await client.publish(TOPIC, b"the end")
    port = hubs.owner()
    assert port is not None
    found = await bodies(hubs.hubs[port])
    await client.close()
    return found[:-1]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_hubs_each_message_is_stored_once_and_in_its_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: two producers and one that is none publish 400 messages each, many at a time, while the hub that has the
    topic is killed, loses its session, gives the topic away, or loses its connections with answers under way.
    """
    monkeypatch.setattr(publish_once, "SNAPSHOT_EVERY", 50)
    world = started_world(4)
    rng = random.Random(seed)

    async def story() -> None:
        hubs = await Hubs(world, log=TopicLogSettings(pending_bytes_max=1_000)).started()
        client = a_client(world, *hubs.addresses, retry_timeout_s=300.0)
        other = a_client(world, *hubs.addresses, retry_timeout_s=300.0)
        publishers = [client.publisher(TOPIC, producer=A), other.publisher(TOPIC, producer=b"")]
        plain = other.publisher(TOPIC)
        sent: list[list[Any]] = [[], []]
        done: list[Any] = []
        faults = Counter[str]()
        for number in range(400):
            for index, publisher in enumerate(publishers):
                sent[index].append(publisher.publish(b"%d/%d" % (index, number), {"n": b"%d" % number}))
            done.append(plain.publish(b"plain/%d" % number))
            if rng.random() < 0.1:
                await world.pause(rng.random() * 0.05)
            if rng.random() < 0.02:
                faults[await hubs.fault(rng)] += 1
        await client.flush()
        await other.flush()
        stored = await all_stored(world, hubs)
        for index in range(2):
            mine = [each for each in stored if each.startswith(b"%d/" % index)]
            assert mine == [b"%d/%d" % (index, number) for number in range(400)], faults
            for number, deferred in enumerate(sent[index]):
                assert deferred.called, "flush waits for all"
                message_id = await deferred
                assert stored[message_id.local - 1] == b"%d/%d" % (index, number)
        assert len(done) == 400
        assert {b"plain/%d" % number for number in range(400)} <= set(stored)
        await client.close()
        await other.close()

    run(world, story(), seconds=2000)


@pytest.mark.parametrize("seed", range(6))
def test_what_failed_is_never_stored_behind_what_came_later(seed: int) -> None:
    """Method: as above, but publishes give up soon, so that chains break again and again."""
    world = started_world(4)
    rng = random.Random(seed)

    async def story() -> None:
        hubs = await Hubs(world).started()
        client = a_client(world, *hubs.addresses, retry_timeout_s=0.3)
        publisher = client.publisher(TOPIC, producer=b"")
        sent = []
        for number in range(600):
            sent.append(publisher.publish(b"%d" % number))
            if rng.random() < 0.2:
                await world.pause(rng.random() * 0.2)
            if rng.random() < 0.02:
                await hubs.fault(rng)
        found, answered = outcomes(sent)
        await answered
        await client.close()
        stored = await all_stored(world, hubs)
        numbers = [int(each) for each in stored]
        assert numbers == sorted(set(numbers)), "twice, or out of order"
        failed = [each for each in found if not isinstance(each, MessageId)]
        assert all(isinstance(each, PubSubError) for each in failed)
        assert len(failed) < 600
        for number, each in enumerate(found):
            if isinstance(each, MessageId):
                assert stored[each.local - 1] == b"%d" % number

    run(world, story(), seconds=2000)


@pytest.mark.parametrize("seed", range(4))
def test_a_hub_that_has_no_room_for_some_gets_them_and_those_behind_them_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: what is refused is followed by what there is room for again, which would overtake it."""
    early: list[Origin] = []
    refusal = Producers.refusal

    def refused(self: Producers[Any], origin: Origin, verdict: Verdict) -> PubSubError:
        if verdict is Verdict.EARLY:
            early.append(origin)
        return refusal(self, origin, verdict)

    monkeypatch.setattr(Producers, "refusal", refused)
    world = started_world(3)
    rng = random.Random(seed)
    check_room = TopicLog._check_room  # noqa: SLF001

    def check(self: TopicLog, size: int) -> None:
        if rng.random() < 0.05:
            raise ServiceDown("no room for this one")
        check_room(self, size)

    monkeypatch.setattr(TopicLog, "_check_room", check)

    async def story() -> None:
        hubs = await Hubs(world, 1).started()
        client = a_client(world, *hubs.addresses, retry_timeout_s=500.0)
        await client.publish(TOPIC, b"0")
        publisher = client.publisher(TOPIC, producer=A)
        sent = []
        for number in range(500):
            sent.append(publisher.publish(b"%03d" % number))
            await world.pause(rng.random() * 0.001)
        found, answered = outcomes(sent)
        await answered
        assert found == [MessageId(LocalId(number)) for number in range(2, 502)]
        assert (await all_stored(world, hubs))[1:] == [b"%03d" % number for number in range(500)]
        assert len(early) > 5
        await client.close()

    run(world, story(), seconds=2000)


def test_a_program_goes_on_after_a_restart_under_its_name_and_from_a_number_it_knows() -> None:
    world = started_world(3)

    async def story() -> None:
        hubs = await Hubs(world, 1).started()
        first = a_client(world, *hubs.addresses)
        ids = await first.publisher(TOPIC, producer=A).publish_many([b"%d" % number for number in range(1, 11)])
        await first.close()
        second = a_client(world, *hubs.addresses)
        again = await second.publisher(TOPIC, producer=A, first=6).publish_many(
            [b"%d" % number for number in range(6, 13)]
        )
        assert again[:5] == ids[5:]
        assert [each.local for each in again[5:]] == [11, 12]
        own = second.publisher(TOPIC, producer=A)
        assert (await own.publish(b"20", {"hw.seq": b"20"})).local == 13
        assert (await own.publish(b"21")).local == 14
        assert "numbers go up" in await failure_of(own.publish(b"x", {"hw.seq": b"21"}), MalformedRequest)
        assert "a decimal number" in await failure_of(own.publish(b"x", {"hw.seq": b"one"}), MalformedRequest)
        assert "the publisher's own" in await failure_of(own.publish(b"x", {"hw.pid": b"me"}), MalformedRequest)
        late = second.publisher(TOPIC, producer=A, first=15)
        assert "was not published before" in await failure_of(late.publish(b"15"), MalformedRequest)
        with pytest.raises(MalformedRequest, match="65 bytes"):
            second.publisher(TOPIC, producer=b"x" * 65)
        with pytest.raises(MalformedRequest, match="first number is 0"):
            second.publisher(TOPIC, producer=b"x", first=0)

    run(world, story(), seconds=100)


def test_closing_waits_for_what_waits_for_its_turn_and_abandoning_tells_it() -> None:
    world = started_world(3)

    async def story() -> None:
        hubs = await Hubs(world, 1).started()
        client = a_client(world, *hubs.addresses, outstanding_max=2_500)
        publisher = client.publisher(TOPIC, producer=b"")
        found, answered = outcomes([publisher.publish(b"%d" % number) for number in range(3 * once.WINDOW)])
        assert client.lane(TOPIC).unanswered == once.WINDOW
        assert not publisher.has_room
        waiting = publisher.room()
        closing = client.close()
        await failure_of(publisher.publish(b"too late"), ClientClosed)
        await closing
        await answered
        assert found == [MessageId(LocalId(number)) for number in range(1, 3 * once.WINDOW + 1)]
        assert waiting.called
        client = a_client(world, *hubs.addresses)
        publisher = client.publisher(TOPIC, producer=b"")
        found, answered = outcomes([publisher.publish(b"%d" % number) for number in range(3 * once.WINDOW)])
        client.abandon()
        await answered
        assert all(isinstance(each, (ClientClosed, PubSubError)) for each in found)

    run(world, story(), seconds=100)


def test_the_producer_of_a_stored_message_with_very_many_properties_is_not_looked_for() -> None:
    """A hub refuses such a message with a number. A body that names hw.pid does not make a hub read its properties."""

    def found(count: int) -> Origin | None:
        properties = {f"{number}": b"" for number in range(count)}
        message = Message(b"x", {**origin_properties(Origin(A, 1)), **properties}, region=b"here")
        return publish_once.stored_origin(encode_message(message), b"here")

    assert found(PROPERTIES_MAX - 2) == Origin(A, 1)
    assert found(PROPERTIES_MAX - 1) is None
