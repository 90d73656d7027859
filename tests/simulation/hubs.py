"""One run of hubs that take topics from each other while everything breaks, then peace, then the reckoning.

    hubs          processes with a session, topics, a listener; real Ownership, TopicService, HubConnection
    publishers    several messages at a time to a topic, over redirects; what is not known to be there is published
                  again, as another message
    subscribers   one or two members each, who attach, consume now and then, stall, leave, take the subscription from
                  each other, unsubscribe and come back
    faults        hubs killed, stopped in order, put to sleep (others take their topics, then they wake up), cut off
                  from the metadata, the bookies or clients, sessions ended, topics given away, bookies killed, calls
                  of the metadata failed or their answers lost; by aim right behind a change of the metadata

What is held, and what is checked at the end: see `hub_history`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.model import DigestType
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.ownership import Ownership
from hedwig.hub.topics.log import TopicLog
from hedwig.hub.topics.log_settings import PASSWORD, TopicLogSettings
from hedwig.hub.topics.recent import RecentBudget
from hedwig.hub.topics.service import TopicService, TopicSettings
from hedwig.model import Event, HubAddress, LocalId, MessageId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.protocol.publish_time import time_of
from hedwig.wire.framing import FrameDecoder
from hedwig.wire.messages import Message, Stamp, decode_message, encode_message
from hedwig.wire.requests import (
    PublishEncoder,
    close_subscription_frame,
    consume_frame,
    subscribe_frame,
    unsubscribe_frame,
)
from hedwig.wire.responses import Answer, Delivery, Response, Told, decode_response
from tests.simulation.history import Violation
from tests.simulation.hub_history import AttachmentHistory, HubWatch, SubscriptionHistory, TopicHistory
from tests.simulation.world import METADATA_SETTINGS, SimulatedClient, World
from tests.support.simulated_clock import SimulatedProcess

HUBS = 3
BOOKIES = 4
TOPICS = 2
PUBLISHERS = 3
PORT = 4080
FAULT_SECONDS = 8.0
PEACE_SECONDS = 60.0
ANSWER_S = 3.0
PATHS = Paths("/hedwig", "standalone")
PADDING = (0, 0, 20, 400)

FAULTS = (
    *("kill", "kill", "sleep", "sleep", "aim", "aim", "session", "session", "cut", "stop", "give", "give"),
    *("bookie", "bookie", "split", "split", "connection", "slow"),
)
"""What may happen; twice what shall happen twice as often."""

HAS_TIMES = 0.2
"""Share of the seeds in which hubs stamp messages with times."""

REFUSED_FOR_CERTAIN = frozenset({Status.NOT_RESPONSIBLE_FOR_TOPIC, Status.SERVICE_DOWN, Status.BAD_VERSION})


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    seed: int
    steps: int = 0
    trace: str = ""
    acknowledged: int = 0
    deliveries: int = 0
    duplicates: int = 0
    takeovers: int = 0
    trimmed: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violation: BaseException | None = None


class SimulatedHub:
    """One hub's address: a process at a time."""

    def __init__(self, run: HubRun, number: int) -> None:
        self.run, self.name = run, f"hub{number}"
        self.address = HubAddress(self.name, PORT)
        self.starts = 0
        self.client: SimulatedClient | None = None
        self.ownership: Ownership[TopicService] | None = None
        self.serves = False
        self.rng = random.Random(f"{self.name}/{run.seed}")
        self.start()

    @property
    def alive(self) -> bool:
        """Its process lives."""
        return self.client is not None and self.client.process.alive

    @property
    def asleep(self) -> bool:
        """It lives, and does nothing."""
        return self.client is not None and self.client.process.asleep_until > self.run.world.clock.seconds()

    def start(self) -> None:
        """Start a process."""
        self.starts += 1
        self.serves = False
        world = self.run.world
        client = self.client = SimulatedClient(world, f"{self.name}.{self.starts}")
        world.clients.append(client)
        world.note(f"{client.name} starts")
        world.spawn(self._start(client))

    async def _start(self, client: SimulatedClient) -> None:
        world, clock = self.run.world, client.process.clock
        metadata = HubMetadata(client.store.tree, clock, METADATA_SETTINGS, PATHS)
        budget = RecentBudget(self.run.cache_size)
        ownership: Ownership[TopicService] = Ownership(
            metadata,
            clock,
            random.Random(f"{client.name}/{self.run.seed}"),
            self.address,
            acquire=lambda topic: self._acquire(client, metadata, budget, ownership, topic),
            release=lambda service: service.release(),
            abandon=lambda service: service.abandon(),
        )
        try:
            await metadata.open()
            await world.network.host(client.process, self.name).listen(
                self.name, PORT, lambda: HubConnection(ownership, unanswered_max=20)
            )
            await ownership.start()
        except (BookKeeperError, OSError) as error:
            if client.process.alive:
                world.note(f"{client.name} did not start: {type(error).__name__}")
                client.crash()
                world.clock.callLater(0.2, self._restart, client)
            return
        self.ownership, self.serves = ownership, True
        world.note(f"{client.name} serves")
        self._trim_later(client, ownership)

    def _restart(self, client: SimulatedClient) -> None:
        if self.client is client and not self.alive:
            self.start()

    async def _acquire(
        self,
        client: SimulatedClient,
        metadata: HubMetadata,
        budget: RecentBudget,
        ownership: Ownership[TopicService],
        topic: Topic,
    ) -> TopicService:
        service = TopicService(
            metadata,
            client.ledgers,
            client.process.clock,
            topic,
            b"standalone",
            Stamp(b"standalone", client.process.wall_ms if self.run.has_times else None),
            self.run.settings,
            budget,
            {},
            lambda lost: ownership.lost(topic, lost),
        )
        await service.acquire()
        self.run.outcome.takeovers += 1
        self.run.world.note(f"{client.name} acquired {topic!r} behind {service.log.last_id.local}")
        return service

    def _trim_later(self, client: SimulatedClient, ownership: Ownership[TopicService]) -> None:
        async def trim() -> None:
            for service in list(ownership.owned.values()):
                try:
                    await service.trim()
                except BookKeeperError as error:
                    self.run.world.note(f"{client.name} trims later: {type(error).__name__}")
            self._trim_later(client, ownership)

        client.process.clock.callLater(0.1 + self.rng.random(), lambda: self.run.world.spawn(trim()))

    # --- faults

    def kill(self) -> None:
        """kill -9, and a supervisor that starts it again after a while."""
        if self.client is None or not self.alive:
            return
        self.client.crash()
        self.serves = False
        self.run.world.faults["hub killed"] += 1
        self.run.world.clock.callLater(0.05 + self.rng.random() * 3, self._restart, self.client)

    def sleep(self, for_s: float) -> None:
        """SIGSTOP and SIGCONT; the servers of the metadata end its session when it sleeps too long."""
        if self.client is None or not self.alive:
            return
        world, client = self.run.world, self.client
        world.faults["hub asleep"] += 1
        world.note(f"{client.name} sleeps")
        client.process.sleep(for_s)
        timeout_s = METADATA_SETTINGS.session_timeout_s
        if for_s > timeout_s:
            session_id = client.store.tree.session_id
            world.clock.callLater(timeout_s, lambda: world.metadata.znodes.end_session(session_id))
            # It learns of that only a moment after it woke up, and may have done much by then.
            client.process.clock.callLater(for_s + self.rng.random() * 0.1, client.store.expire_session, 0.05)

    def lose_session(self) -> None:
        """The servers end its session, and it learns of that a little later: it goes on meanwhile."""
        if self.client is None or not self.alive:
            return
        world, client = self.run.world, self.client
        world.faults["hub with a stale session"] += 1
        world.note(f"{client.name} has no session")
        world.metadata.znodes.end_session(client.store.tree.session_id)
        client.process.clock.callLater(self.rng.random() * 2.0, client.store.expire_session, 0.05)

    def stop(self) -> None:
        """SIGTERM, and a new start."""
        client, ownership = self.client, self.ownership
        if client is None or ownership is None or not self.alive or not self.serves:
            return
        self.run.world.faults["hub stopped"] += 1

        async def stop() -> None:
            await ownership.stop()
            if client.process.alive:
                client.crash()
                self._restart(client)

        self.serves = False
        self.run.world.spawn(stop())

    def give_away(self) -> None:
        """A topic is to be served by another hub."""
        if self.ownership is not None and self.alive and not self.asleep and self.ownership.owned:
            self.run.world.faults["topic given away"] += 1
            self.ownership.release(self.rng.choice(sorted(self.ownership.owned)))

    def strike_at_metadata_operation(self, count: int, strike: Callable[[], None]) -> None:
        """`strike` as soon as it has sent its n-th next change of the metadata."""
        client, left = self.client, count
        if client is None:
            return

        def look(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                result = call(*arguments, **named)
                left -= 1
                if left == 0 and self.client is client and self.alive and not self.run.peace:
                    self.run.world.faults["hub struck in a change of the metadata"] += 1
                    self.run.world.clock.callLater(self.rng.random() * 0.02, strike)
                return result

            return counted

        tree: Any = client.store.tree
        for name in ("create", "write", "delete", "transact"):
            setattr(tree, name, look(getattr(tree, name)))


class Link:
    """A client's end of one connection."""

    def __init__(self, world: World, on_response: Callable[[Response], object]) -> None:
        self.world = world
        self.transport: Any = None
        self.lost = False
        self._on_response = on_response
        self._decoder = FrameDecoder(1 << 24)
        self._waiting: dict[int, Deferred[Answer | None]] = {}

    def makeConnection(self, transport: Any) -> None:
        self.transport = transport

    def dataReceived(self, data: bytes) -> None:
        for frame in self._decoder.receive(data):
            response = decode_response(frame)
            self._on_response(response)
            if isinstance(response, Answer) and response.txn_id in self._waiting:
                self._waiting.pop(response.txn_id).callback(response)
            if self.lost:
                return

    def connectionLost(self, reason: object) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.callback(None)

    def send(self, frames: bytes) -> None:
        """To the hub, if it is there."""
        if not self.lost:
            self.transport.write(frames)

    def abort(self) -> None:
        """Hang up at once."""
        if not self.lost:
            self.transport.abortConnection()
            self.connectionLost(None)

    def answer(self, txn_id: int) -> Deferred[Answer | None]:
        """The answer; None when the connection went, or nothing was heard for long, and then it goes."""
        waiting: Deferred[Answer | None] = Deferred()
        if self.lost:
            waiting.callback(None)
            return waiting
        self._waiting[txn_id] = waiting
        timer = self.world.clock.callLater(ANSWER_S, self.abort)

        def heard(answer: Answer | None) -> Answer | None:
            if timer.active():
                timer.cancel()
            return answer

        return waiting.addCallback(heard)


class HubUser:
    """What publishers and members have in common: where they think that a topic is."""

    def __init__(self, run: HubRun, name: str) -> None:
        self.run, self.world, self.name = run, run.world, name
        self.rng = random.Random(f"{name}/{run.seed}")
        self.network = run.world.network.host(run.users, name)
        self._owners: dict[Topic, str] = {}
        self._claims: set[Topic] = set()
        self._txn_id = 0

    def next_txn_id(self, count: int = 1) -> int:
        first = self._txn_id + 1
        self._txn_id += count
        return first

    def hub_of(self, topic: Topic) -> str:
        """Where to ask."""
        return self._owners.get(topic) or self.rng.choice(self.run.hubs).name

    def may_claim(self, topic: Topic) -> bool:
        """It was sent there."""
        return topic in self._claims

    def forget(self, topic: Topic) -> None:
        """Ask anybody."""
        self._owners.pop(topic, None)
        self._claims.discard(topic)

    def redirected(self, topic: Topic, answer: Answer) -> None:
        """It is elsewhere, the hub says."""
        self.forget(topic)
        if answer.text:
            self._owners[topic] = answer.text.split(":")[0]
            self._claims.add(topic)

    async def connected(self, hub: str, on_response: Callable[[Response], object]) -> Link | None:
        """A new connection; None where nobody answers."""
        link = Link(self.world, on_response)
        try:
            await self.network.connect(hub, PORT, link, timeout_s=0.5)
        except BookKeeperError:
            return None
        return link

    def fail(self, violation: Violation) -> None:
        """End the run."""
        self.world.errors.append(violation)


class Publisher(HubUser):
    """Publishes until peace, and then what is left."""

    def __init__(self, run: HubRun, number: int) -> None:
        super().__init__(run, f"pub{number}")
        self._links: dict[str, Link] = {}
        self._bodies = 0
        self._pending: dict[Topic, int] = {}
        self.done = False
        run.world.spawn(self._work())

    async def _work(self) -> None:
        while not self.run.peace:
            topic = self.rng.choice(self.run.topics)
            left = self.rng.choice((1, 1, 2, 5, 12))
            while left:
                left -= await self._publish(topic, left)
            await self.world.pause(self.rng.random() * self.rng.choice((0.05, 0.3)))
        for topic in self.run.topics:
            while not await self._publish(topic, 1):
                pass
        self.done = True

    async def _publish(self, topic: Topic, count: int) -> int:
        """Publish so many new messages once; how many were acknowledged."""
        link = await self._link(topic)
        if link is None:
            self.forget(topic)
            await self.world.pause(0.05 + self.rng.random() * 0.2)
            return 0
        first = self.next_txn_id(count)
        bodies = [self._body() for _ in range(count)]
        begun = self.run.moment()
        frames = PublishEncoder(topic).frames(
            first, [encode_message(Message(body)) for body in bodies], should_claim=self.may_claim(topic)
        )
        link.send(b"".join(frames))
        waiting = [
            link.answer(txn_id).addCallback(self._heard, topic, body, begun)
            for txn_id, body in enumerate(bodies, first)
        ]
        answers = [await each for each in waiting]
        ids = [answer.published.local for answer in answers if answer is not None and answer.published is not None]
        if ids != sorted(ids):
            self.fail(Violation(f"I-89: {self.name}'s messages to {topic!r} of one connection got the ids {ids}"))
        if None in answers or not ids:
            await self.world.pause(self.rng.random() * 0.1)
        return len(ids)

    def _body(self) -> bytes:
        self._bodies += 1
        return b"%s/%d/" % (self.name.encode(), self._bodies) + b"." * self.rng.choice(PADDING)

    async def _link(self, topic: Topic) -> Link | None:
        hub = self.hub_of(topic)
        link = self._links.get(hub)
        if link is None or link.lost:
            link = await self.connected(hub, lambda response: None)
            if link is not None:
                self._links[hub] = link
        return link

    def _heard(self, answer: Answer | None, topic: Topic, body: bytes, begun: int) -> Answer | None:
        history = self.run.histories[topic]
        try:
            if answer is None:
                self.forget(topic)
            elif answer.status is Status.SUCCESS:
                assert answer.published is not None
                history.on_acknowledged(answer.published.local, body, begun)
                self.world.note(f"{self.name} {topic!r} {answer.published.local}")
            else:
                if answer.status in REFUSED_FOR_CERTAIN:
                    history.on_refused(body)
                elif answer.status is not Status.UNCERTAIN_STATE:
                    raise Violation(f"a publish was answered {answer}")
                self.redirected(topic, answer)
        except Violation as violation:
            self.fail(violation)
        return answer


class Member(HubUser):
    """One of those who serve a subscription."""

    def __init__(self, run: HubRun, name: str, history: SubscriptionHistory, *, alone: bool) -> None:
        super().__init__(run, name)
        self.history, self.alone = history, alone
        self.topic, self.subscriber = history.topic.topic, history.subscriber
        self._attachment: AttachmentHistory | None = None
        self._subscribing = self._leaving = 0
        self.told = 0
        """What it said on this attachment that it consumed."""
        self._time_ms = 0
        self._link: Link | None = None
        self.done = False
        run.world.spawn(self._work())

    async def _work(self) -> None:
        while True:
            hub = self.hub_of(self.topic)
            link = self._link = await self.connected(hub, self._on_response)
            if link is None:
                self.forget(self.topic)
                await self.world.pause(0.05 + self.rng.random() * 0.2)
                continue
            while not (link.lost or self.done or self._is_superfluous) and await self._subscribe(link):
                await self._stay(link)
            if self.done:
                return  # and stays connected: what it consumed is on its way
            self._attachment = None
            link.abort()
            if self._is_superfluous:
                self.done = True
                return
            await self.world.pause(self.rng.random() * self.rng.choice((0.02, 0.2, 1.0)))

    @property
    def _is_superfluous(self) -> bool:
        """In peace one member does the work."""
        return self.run.peace and self.name.endswith("b")

    @property
    def is_connected(self) -> bool:
        """It holds the subscription."""
        return self._attachment is not None and self._link is not None and not self._link.lost

    async def _subscribe(self, link: Link) -> bool:
        txn_id = self._subscribing = self.next_txn_id()
        force = self.run.peace or self.rng.random() < 0.3
        link.send(
            subscribe_frame(
                txn_id,
                self.topic,
                self.subscriber,
                SubscribeMode.CREATE_OR_ATTACH,
                Preferences(),
                force=force,
                should_claim=self.may_claim(self.topic),
            )
        )
        answer = await link.answer(txn_id)
        if answer is not None and answer.status is Status.SUCCESS:
            return True
        if answer is None:
            self.forget(self.topic)
        elif answer.status is Status.TOPIC_BUSY:
            await self.world.pause(self.rng.random() * 0.5)
        elif answer.status in REFUSED_FOR_CERTAIN or answer.status is Status.UNCERTAIN_STATE:
            self.redirected(self.topic, answer)
        else:
            self.fail(Violation(f"a subscribe was answered {answer}"))
        return False

    async def _stay(self, link: Link) -> None:
        """Until the connection, the subscription or the mood ends."""
        while not self.done:
            await self.world.pause(self.rng.random() * self.rng.choice((0.05, 0.3)))
            attachment = self._attachment
            if attachment is None or link.lost or self._is_superfluous:
                break
            if self.run.peace:
                self._consume(link, attachment.last)
                self.done = self._has_all(attachment)
                continue
            mood = self.rng.random()
            if mood < 0.6:
                self._consume(link, attachment.last - self.rng.choice((0, 0, 1, 3)))
            elif mood < 0.65:
                self._consume(link, attachment.last + 1_000_000, lie=True)
            elif mood < 0.72:
                self.run.world.faults["subscriber stalled"] += 1
                link.transport.pauseProducing()
                await self.world.pause(self.rng.random() * 2)
                link.transport.resumeProducing()
            elif mood < 0.76:
                link.abort()
            elif mood < 0.79:
                await self._ask(link, close_subscription_frame)
                return
            elif mood < 0.82 and self.alone and self.run.may_unsubscribe:
                self.history.on_unsubscribing()
                await self._ask(link, unsubscribe_frame)
                return
        if not self.alone and not self.run.peace:
            await self.world.pause(self.rng.random() * 0.6)  # whoever took it keeps it for a while

    async def _ask(self, link: Link, frame_of: Any) -> None:
        """The subscription leaves this connection; where that is not said, the connection goes."""
        txn_id = self._leaving = self.next_txn_id()
        link.send(frame_of(txn_id, self.topic, self.subscriber, should_claim=self.may_claim(self.topic)))
        answer = await link.answer(txn_id)
        if answer is None or answer.status is not Status.SUCCESS:
            link.abort()

    def _has_all(self, attachment: AttachmentHistory) -> bool:
        reached = max(attachment.last, self.history.consumed or 0)
        return self.run.published and (reached >= self.history.topic.last or self.history.needed is None)

    def _consume(self, link: Link, local: int, *, lie: bool = False) -> None:
        if local < 1:
            return
        if not lie:
            self.history.on_consumed(local)
            self.told = local
        link.send(consume_frame(self.next_txn_id(), self.topic, self.subscriber, MessageId(LocalId(local))))

    def _check_time(self, message: Message) -> None:
        """Check that times of messages never go back, whatever the hubs' clocks show."""
        if not self.run.has_times:
            return
        time_ms = time_of(message.properties)
        if time_ms is None or time_ms < self._time_ms:
            raise Violation(f"{self.name} was given a message of {time_ms} after one of {self._time_ms}")
        self._time_ms = time_ms

    def _on_response(self, response: Response) -> None:
        try:
            if isinstance(response, Delivery):
                assert response.message.id is not None
                if self._attachment is None:
                    raise Violation(
                        f"I-96: {self.name} was given {response.message.id.local} of {self.topic!r} on a connection "
                        "that the subscription had left"
                    )
                self.history.on_delivered(response.message.id.local, response.message.body, self._attachment)
                self._check_time(response.message)
            elif isinstance(response, Told):
                self.run.world.faults[f"told {response.event.name}"] += 1
                self._attachment = None
                if response.event is Event.TOPIC_MOVED:
                    self.forget(self.topic)
            elif response.status is Status.SUCCESS and response.txn_id == self._leaving:
                self._attachment = None
            elif response.status is Status.SUCCESS and response.txn_id == self._subscribing:
                self._attachment, self.told, self._time_ms = AttachmentHistory(), 0, 0
                self.history.on_subscribed(self.run.moment())
                self.run.watch.check_stored(self.history)
        except Violation as violation:
            self.fail(violation)


class HubRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"hubs/{seed}")
        self.world = World(seed, use_v2=self.rng.random() < 0.7)
        self.world.network.send_buffer_high, self.world.network.in_flight_max = 1024, 4096
        if random.Random(f"narrow/{seed}").random() < 0.3:  # topics fill each other's connections to the bookies
            self.world.settings = replace(self.world.settings, connection_entries_max=2)
        self.has_times = random.Random(f"publish times/{seed}").random() < HAS_TIMES
        self.outcome = Outcome(seed)
        self.users = SimulatedProcess("users", self.world.clock)
        self.watch = HubWatch(self.world, PATHS)
        self.topics = [Topic(b"topic%d" % number) for number in range(TOPICS)]
        self.histories = {topic: TopicHistory(topic) for topic in self.topics}
        self.subscriptions: list[SubscriptionHistory] = []
        self.hubs: list[SimulatedHub] = []
        self.publishers: list[Publisher] = []
        self.members: list[Member] = []
        self.peace = self.published = False
        self.may_unsubscribe = self.rng.random() < 0.5
        self.cache_size = self.rng.choice((0, 600, 1 << 20))
        self.settings = TopicSettings(
            log=TopicLogSettings(
                entries_max=self.rng.choice((0, 3, 8)),
                bytes_max=self.rng.choice((0, 0, 1000)),
                age_max_s=self.rng.choice((0.0, 0.0, 0.5)),
            ),
            window_size=self.rng.choice((0, 4, 20)),
            consume_interval=self.rng.choice((1, 3, 10)),
            read_ahead=self.rng.choice((2, 10)),
            retry_delay_s=0.2,
        )
        self._moment = 0

    def moment(self) -> int:
        """A number greater than all before."""
        self._moment += 1
        return self._moment

    def run(self) -> Outcome:
        """Run it all; a violation ends it and is in the outcome."""
        try:
            self._run()
        except Violation as violation:
            self.outcome.violation = violation
        outcome = self.outcome
        outcome.faults = self.world.all_faults()
        outcome.steps, outcome.trace = self.world.clock.steps, self.world.trace_digest
        outcome.acknowledged = sum(len(each.acknowledged) for each in self.histories.values())
        outcome.deliveries = sum(each.deliveries for each in self.subscriptions)
        outcome.duplicates = sum(each.duplicates for each in self.subscriptions)
        outcome.trimmed = self.watch.trimmed
        return outcome

    def _run(self) -> None:
        world = self.world
        for _ in range(BOOKIES):
            world.add_bookie()
        self._until(lambda: all(bookie.serves for bookie in world.bookies), 20.0, "the bookies to start")
        self.hubs = [SimulatedHub(self, number) for number in range(HUBS)]
        self._until(lambda: all(hub.serves for hub in self.hubs), 20.0, "the hubs to start")
        for topic in self.topics:
            self._add_subscriptions(topic)
        self.publishers = [Publisher(self, number) for number in range(PUBLISHERS)]
        self._schedule_faults()
        world.run_until(lambda: bool(world.errors), seconds=FAULT_SECONDS)
        self._check_errors()
        self._make_peace()
        self._until(
            lambda: all(each.done for each in self.publishers), PEACE_SECONDS, "what is pending to be published"
        )
        self.published = True
        self._until(lambda: all(each.done for each in self.members), PEACE_SECONDS, "everything to be delivered (L-7)")
        self._reckon()

    def _add_subscriptions(self, topic: Topic) -> None:
        found = []
        for number, alone in enumerate((True, False)):
            subscriber = SubscriberId(b"sub%d" % number)
            history = SubscriptionHistory(self.histories[topic], subscriber, self.settings.window_size)
            found.append(history)
            for member in "a" if alone else "ab":
                name = f"{topic.decode()}.{subscriber.decode()}.{member}"
                self.members.append(Member(self, name, history, alone=alone))
        self.subscriptions += found
        self.watch.add(topic, found)

    # --- faults

    def _schedule_faults(self) -> None:
        faults = self.world.metadata_faults
        if self.rng.random() < 0.6:
            faults.failed_before_probability = 0.02
            faults.reply_lost_probability = 0.02
        if self.rng.random() < 0.3:
            faults.session_lost_probability = 0.003
        for _ in range(self.rng.randint(3, 14)):
            self.world.clock.callLater(self.rng.random() * FAULT_SECONDS, self._fault)
        self.world.step_walls_until(self.world.clock.seconds() + FAULT_SECONDS, self._processes)

    def _processes(self) -> list[SimulatedProcess]:
        """Hubs, bookies, publishers and subscribers."""
        return [
            *(client.process for client in self.world.clients),
            *(bookie.process for bookie in self.world.bookies if bookie.process is not None),
            self.users,
        ]

    def _fault(self) -> None:
        if self.peace:
            return
        rng, world = self.rng, self.world
        busy = [hub for hub in self.hubs if hub.alive and hub.ownership is not None and hub.ownership.owned]
        hub = rng.choice(busy if busy and rng.random() < 0.8 else self.hubs)
        match rng.choice(FAULTS):
            case "kill":
                hub.kill()
            case "sleep":
                hub.sleep(rng.choice((0.2, 1.0, 2.0, 3.0)))
            case "aim":
                strike = rng.choice((hub.kill, hub.lose_session, lambda: hub.sleep(2.5)))
                hub.strike_at_metadata_operation(rng.randint(1, 12), strike)
                if rng.random() < 0.5:
                    hub.give_away()
            case "session":
                hub.lose_session()
            case "cut" if hub.client is not None and hub.alive:
                world.faults["hub cut off from the metadata"] += 1
                hub.client.store.cut_connection(rng.random() * 3)
            case "stop":
                hub.stop()
            case "give":
                hub.give_away()
            case "bookie":
                bookie = rng.choice(world.bookies)
                if all(other.serves for other in world.bookies):
                    rng.choice((bookie.kill, bookie.cut_power))()
                    world.clock.callLater(rng.random() * 2, bookie.ensure_running)
            case "split":
                self._split(hub)
            case "connection":
                world.network.cut_some_connection()
            case "slow":
                user = rng.choice([*self.publishers, *self.members])
                world.network.make_slow(user.name, hub.name, rng.random())

    def _split(self, hub: SimulatedHub) -> None:
        """From some bookies, or from some users."""
        world, rng = self.world, self.rng
        if hub.client is not None and rng.random() < 0.5:
            for bookie in rng.sample(world.bookies, rng.randint(1, BOOKIES)):
                world.network.partition(hub.client.name, bookie.name)
        else:
            users = [*self.publishers, *self.members]
            for user in rng.sample(users, rng.randint(1, len(users) // 2)):
                world.network.partition(user.name, hub.name)
        world.clock.callLater(rng.random() * 3, world.network.heal)

    def _make_peace(self) -> None:
        self.peace = True
        self.world.note("peace")
        faults = self.world.metadata_faults
        faults.failed_before_probability = faults.reply_lost_probability = faults.session_lost_probability = 0.0
        self.world.network.heal()
        for bookie in self.world.bookies:
            bookie.forget_faults()
            bookie.ensure_running()

    # --- the reckoning

    def _reckon(self) -> None:
        """Hubs stop in order: positions are stored. Then everything is read by one that was never there."""
        world = self.world
        world.run_until(lambda: bool(world.errors), seconds=1.0)
        self._check_errors()
        self._until(lambda: all(hub.serves for hub in self.hubs), PEACE_SECONDS, "the hubs to be there")
        told = [(member.history, member.told) for member in self.members if member.is_connected]
        stopped: list[SimulatedHub] = []

        async def stop(hub: SimulatedHub) -> None:
            assert hub.ownership is not None
            await hub.ownership.stop()
            stopped.append(hub)

        for hub in self.hubs:
            world.spawn(stop(hub))
        self._until(lambda: len(stopped) == len(self.hubs), PEACE_SECONDS, "the hubs to stop (L-8)")
        for each in self.subscriptions:
            each.check_complete()
        for each, consumed in told:
            stored = self.watch.position(each.topic.topic, each.subscriber)
            if each.alive and (stored is None or stored < consumed):
                raise Violation(
                    f"I-93: {each.topic.topic!r}/{each.subscriber!r} consumed {consumed}, every hub was stopped in "
                    f"order, and {stored} is stored"
                )
        done: list[Topic] = []
        for topic in self.topics:
            world.spawn(self._read(topic, done))
        self._until(lambda: len(done) == len(self.topics), PEACE_SECONDS, "the topics to be read")

    async def _read(self, topic: Topic, done: list[Topic]) -> None:
        """All of the topic, through a new owner."""
        client, history = self.world.add_client(), self.histories[topic]
        metadata = HubMetadata(client.store.tree, client.process.clock, METADATA_SETTINGS, PATHS)
        log = TopicLog(
            metadata, client.ledgers, client.process.clock, topic, Stamp(b"standalone"), TopicLogSettings(), print
        )
        await log.acquire()
        found: dict[int, bytes] = {}
        first_id = log.first_id
        for each in log.ranges:
            assert each.first is not None
            assert each.last is not None
            try:
                handle = await client.ledgers.open(each.ledger_id, PASSWORD, DigestType.CRC32)
            except NoSuchLedger:
                # Deleted by one who could not say so any more; whether rightly so was looked at then.
                if first_id != each.first:
                    raise
                first_id = LocalId(each.last.local + 1)
                continue
            expected = int(each.first)
            async for batch in handle.batches():
                for entry in batch:
                    message = decode_message(entry.payload)
                    assert message.id is not None
                    if message.id.local != expected:
                        raise Violation(f"I-89: {topic!r}: {message.id} is where {expected} belongs")
                    history.on_seen(expected, message.body, "stored")
                    found[expected] = message.body
                    expected += 1
            if expected != each.last.local + 1:
                raise Violation(
                    f"I-91: {topic!r}: ledger {each.ledger_id} ends before {expected}, and is listed as {each}"
                )
            await handle.close()
        lost = [local for local in history.acknowledged if local >= first_id and local not in found]
        if lost or log.last_id.local < history.last:
            raise Violation(f"I-88: {topic!r}: {sorted(lost)[:5]} were acknowledged, and are not there: {log.ranges}")
        done.append(topic)

    def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        finished = self.world.run_until(lambda: done() or bool(self.world.errors), seconds=seconds)
        self._check_errors()
        if not finished:
            raise Violation(f"L-1: waited {seconds:g} simulated seconds for {what}")

    def _check_errors(self) -> None:
        for error in self.world.errors:
            if isinstance(error, Violation):
                raise error
            raise Violation(f"an error that no fault explains: {type(error).__name__}: {error}") from error


def run_seed(seed: int) -> Outcome:
    """One run."""
    return HubRun(seed).run()
