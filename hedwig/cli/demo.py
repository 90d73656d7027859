"""Demo part `hedwig`: this machine's package history published to topics, and the hub killed in the middle.

Three bookies, two hubs, and two subscribers of every topic. A topic is a package; its messages are the releases of the
package (or the other items of the history). When half of the messages are acknowledged and the rest are in flight, the
hub with the most topics gets SIGKILL, and the other hub takes over its topics. The last message of each topic is
published after the kill, so that the other hub always has messages to acknowledge. Both subscribers must receive all
acknowledged messages in order, byte for byte; messages in flight may be stored twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise

import hedwig.blocking
from bookkeeper.cli.demo.history import Stream, machine_history
from bookkeeper.console.output import CommandFailed
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import again
from hedwig.blocking import BlockingClient, BlockingSubscription
from hedwig.embedded import LocalHub
from hedwig.model import MessageId, Topic
from hedwig.perf.drill_check import LOST, ONE_MESSAGE, ORDER, Findings, Noted, check
from hedwig.perf.drill_records import ACKNOWLEDGED, CHANGED, Delivery, Publish
from hedwig.wire.receiving import Received

BOOKIES = 3
HUBS = 2
PACKAGES_MAX = 600
TOPICS = 8
"""The packages with the longest histories."""

MESSAGES_MAX = 400
"""Of each topic, the newest ones."""

SUBSCRIBERS = ("archive", "mirror")
NUMBER = "number"
"""The property that tells which of its topic's messages one is, from 1 on."""

TAKE_TIMEOUT_S = 0.2
FINISH_S = 60.0
OWNERS_INTERVAL_S = 0.1


@dataclass(slots=True)
class Story:
    """What was published and delivered."""

    streams: list[Stream]
    noted: Noted
    acknowledged_s: dict[int, list[float]] = field(default_factory=dict)
    """When, by topic."""
    killed: str = ""
    under_way: int = 0
    """Messages that were not acknowledged then."""
    killed_s: float = 0.0
    killed_topics: frozenset[int] = frozenset()
    seconds: float = 0.0


def run() -> None:
    """Run the part and print its report. Raises CommandFailed when a promise was broken."""
    what, history = machine_history(PACKAGES_MAX)
    longest = sorted(history, key=lambda stream: len(stream.entries), reverse=True)[:TOPICS]
    streams = [Stream(stream.package, stream.entries[-MESSAGES_MAX:]) for stream in longest]
    print(f"Data: {what}: {sum(len(each.entries) for each in streams):,} messages for {len(streams)} topics")
    started = time.perf_counter()
    with LocalCluster(BOOKIES) as cluster:
        hubs = [LocalHub.beside(cluster, number + 1) for number in range(HUBS)]
        cluster.start_others(hubs)
        print(
            f"Cluster: ZooKeeper, {BOOKIES} bookies and {HUBS} hubs, up in {time.perf_counter() - started:.1f} s: "
            + ", ".join(hub.address.rpartition(":")[0] for hub in hubs)
        )
        with hedwig.blocking.connect([hub.address.rpartition(":")[0] for hub in hubs]) as client:
            story = tell(client, hubs, streams)
    report(story, check(story.noted))
    print("Stopped: everything.")


def tell(client: BlockingClient, hubs: list[LocalHub], streams: list[Stream]) -> Story:
    """Publish everything with two subscribers there, and kill the hub that serves the most topics half way."""
    story = Story(streams, Noted(len(streams), len(SUBSCRIBERS)))
    readers = [
        _Reader(story, client.subscribe(stream.package, name, auto_consume=True), topic, number)
        for topic, stream in enumerate(streams)
        for number, name in enumerate(SUBSCRIBERS)
    ]
    started = time.perf_counter()
    halves = [len(stream.entries) // 2 for stream in streams]
    last_ids = _acknowledged(story, _publish(story, client, [(0, half) for half in halves], [0] * len(streams)))
    victim, story.killed_topics = _busiest(hubs, [Topic(stream.package.encode()) for stream in streams])
    ends = [len(stream.entries) for stream in streams]
    rest = [(half, end - 1) for half, end in zip(halves, ends, strict=True)]
    under_way = _publish(story, client, rest, last_ids)
    story.killed, story.killed_s = victim.name, time.monotonic()
    victim.kill()
    story.under_way = sum(not done.done() for *_, done in under_way)
    under_way += _publish(story, client, [(end - 1, end) for end in ends], last_ids)
    last_ids = _acknowledged(story, under_way)
    for reader in readers:
        reader.finish(last_ids[reader.topic])
    story.seconds = time.perf_counter() - started
    return story


Published = tuple[int, int, int, Future[MessageId]]
"""Topic, number, the last id that was acknowledged before, and its own."""


def _publish(
    story: Story, client: BlockingClient, ranges: list[tuple[int, int]], last_ids: list[int]
) -> list[Published]:
    """Hand over these of every topic's messages, in turn; none is waited for."""
    publishers = [client.publisher(stream.package) for stream in story.streams]
    handed: list[Published] = []
    for step in range(max(end - begin for begin, end in ranges)):
        for topic, (begin, end) in enumerate(ranges):
            if begin + step < end:
                body = story.streams[topic].entries[begin + step]
                number = begin + step + 1
                done = publishers[topic].publish_soon(body, {NUMBER: str(number)})
                times = story.acknowledged_s.setdefault(topic, [])
                done.add_done_callback(lambda _, times=times: times.append(time.monotonic()))  # type: ignore[misc]
                handed.append((topic, number, last_ids[topic], done))
    return handed


def _acknowledged(story: Story, handed: list[Published]) -> list[int]:
    """Wait for these; the last id of each topic."""
    last_ids = [0] * len(story.streams)
    for topic, number, floor, done in handed:
        message_id = done.result().local
        story.noted.publishes.append(Publish(topic, number, ACKNOWLEDGED, message_id, floor, 0.0, 0.0))
        last_ids[topic] = max(last_ids[topic], message_id)
    return last_ids


def _busiest(hubs: list[LocalHub], topics: list[Topic]) -> tuple[LocalHub, frozenset[int]]:
    """The hub that serves the most of these, and which."""
    from hedwig.admin.blocking import connect
    from hedwig.config.load import load_hub

    deadline = time.monotonic() + FINISH_S
    with connect(load_hub(None, hubs[0].settings, {}).settings) as access:
        owners = access.run(lambda region: region.owners(topics))
        # A hub that paused may have lost its session and topics. Hubs serve the topics again once subscribers ask.
        while all(owner is None for owner in owners):
            if time.monotonic() > deadline:
                raise CommandFailed(f"no hub has served a topic for {FINISH_S:.0f} s")
            time.sleep(OWNERS_INTERVAL_S)
            owners = access.run(lambda region: region.owners(topics))
    most = Counter(str(owner) for owner in owners if owner is not None).most_common(1)[0][0]
    served = frozenset(number for number, owner in enumerate(owners) if str(owner) == most)
    return next(hub for hub in hubs if hub.address == most), served


class _Reader:
    """One subscriber of one topic, on a thread of its own."""

    def __init__(self, story: Story, subscription: BlockingSubscription, topic: int, number: int) -> None:
        self.topic = topic
        self._story, self._subscription, self._number = story, subscription, number
        self._until: int | None = None
        self._error: BaseException | None = None
        self._last_id = 0
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name=f"reader-{topic}-{number}", daemon=True)
        self._thread.start()

    def finish(self, last_id: int) -> None:
        """Wait until it has everything up to this one, or long enough. Raises what ended it."""
        self._deadline = time.monotonic() + FINISH_S
        self._until = last_id
        self._thread.join()
        if self._error is not None:
            raise again(self._error)

    def _run(self) -> None:
        try:
            with self._subscription as messages:
                while (self._until is None or self._last_id < self._until) and time.monotonic() < self._deadline:
                    for message in messages.receive(timeout_s=TAKE_TIMEOUT_S):
                        self._take(message)
        except BaseException as error:  # noqa: BLE001 - told by `finish`, on the thread that waits
            self._error = error

    def _take(self, message: Received) -> None:
        entries = self._story.streams[self.topic].entries
        number = int(message.properties.get(NUMBER, b"0"))
        same = 1 <= number <= len(entries) and entries[number - 1] == message.body
        found = Delivery(self.topic, self._number, 1, message.local_id, number if same else CHANGED, time.monotonic())
        self._story.noted.deliveries.append(found)
        self._last_id = max(self._last_id, message.local_id)


def report(story: Story, found: Findings) -> None:
    """Print it. Raises CommandFailed when a promise was broken."""
    size = sum(len(entry) for stream in story.streams for entry in stream.entries)
    print(
        f"Published: {found.acknowledged:,} messages, {size / 1e6:.1f} MB in {story.seconds:.1f} s, every "
        "acknowledgement after two fsyncs"
    )
    print(
        f"Killed:  {story.killed} with SIGKILL, {story.under_way:,} messages on their way; {_pause(story):.1f} s later "
        f"the other hub acknowledged the first message of the {len(story.killed_topics)} topics it took over"
    )
    print(
        f"Delivered: {found.delivered:,} messages to {len(SUBSCRIBERS)} subscribers of every topic: lost "
        f"{found.faults[LOST]}, out of order {found.faults[ORDER]}, changed {found.faults[ONE_MESSAGE]}; duplicates "
        f"{found.stored_again} (sent again, as nobody could tell whether the dead hub had stored them)"
    )
    if found.faults:
        raise CommandFailed("\n  ".join(["promises were broken:", *found.examples]))


def _pause(story: Story) -> float:
    """Seconds from the kill until the first of the dead hub's topics went on."""
    resumed = []
    for topic in story.killed_topics:
        pauses = [(after - before, after) for before, after in pairwise(story.acknowledged_s[topic])]
        resumed.append(max((pause for pause in pauses if pause[1] > story.killed_s), default=(0.0, story.killed_s))[1])
    return min(resumed) - story.killed_s
