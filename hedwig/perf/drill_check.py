"""What a failover drill promised, checked on what its client processes noted. Pure.

    lost          acknowledged, and not delivered to every subscriber of its topic
    order         within one subscription object ids rise one by one; every message's id, also that of a repeat, is
                  greater than all that were acknowledged before it was handed over
    one message   an id has one message, that which was published: for all subscribers, and for who published it
    once          where publishers are to store each message once: no message has two ids, and none overtakes another
    positions     a stored position never goes back, is never beyond what was delivered, and a subscription begins
                  behind it; what was not consumed comes again

Counted, and no fault: deliveries of a message again, to another subscription object; and of other publishers messages
that are stored twice, as a publish was sent again whose outcome was unknown, or that were overtaken by later ones which
were in flight with them.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hedwig.perf.drill_records import ACKNOWLEDGED, CHANGED, REFUSED, Delivery, Publish, Session

EXAMPLES_MAX = 5

Subscriber = tuple[int, int]
"""Topic, and which of its subscribers."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position as it was read from the store, by a read that began and ended at these moments."""

    topic: int
    subscriber: int
    begun_s: float
    ended_s: float
    consumed: int


@dataclass(frozen=True, slots=True)
class Blow:
    """What was done to a server. kind: "hub kill", "hub stop", "bookie kill", "bookie stop". topics: that it served."""

    kind: str
    server: str
    at_s: float
    topics: frozenset[int]


@dataclass(slots=True)
class Noted:
    """Everything that was noted. once: publishers are to store each message once, in order."""

    topics: int
    subscribers_each: int
    once: bool = False
    publishes: list[Publish] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)

    @property
    def subscribers(self) -> list[Subscriber]:
        """All of them."""
        return [(topic, number) for topic in range(self.topics) for number in range(self.subscribers_each)]


@dataclass(slots=True)
class Findings:
    """faults: which promise was broken how often; examples: the first of them, in words."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    delivered: int = 0
    sessions: int = 0
    delivered_again: int = 0
    stored_again: int = 0
    overtaken: int = 0
    positions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, promise: str, what: str) -> None:
        """It was broken."""
        self.faults[promise] += 1
        if self.faults[promise] <= EXAMPLES_MAX:
            self.examples.append(f"{promise}: {what}")


LOST, ORDER, ONE_MESSAGE, POSITION, REFUSED_STORED = "lost", "order", "one message per id", "position", "refused"
ONCE = "once"


def check(noted: Noted) -> Findings:
    """Everything."""
    found = Findings(delivered=len(noted.deliveries), sessions=len(noted.sessions), positions=len(noted.positions))
    by_subscriber: dict[Subscriber, list[Delivery]] = {each: [] for each in noted.subscribers}
    for delivery in noted.deliveries:
        by_subscriber[delivery.topic, delivery.subscriber].append(delivery)
    stored = _messages(noted.publishes, noted.deliveries, found)
    _publishes(noted, stored, found)
    acknowledged: dict[int, list[Publish]] = defaultdict(list)
    for publish in noted.publishes:
        if publish.outcome == ACKNOWLEDGED:
            acknowledged[publish.topic].append(publish)
    for each, got in by_subscriber.items():
        _delivered(each, got, acknowledged[each[0]], found)
    _positions(noted, by_subscriber, found)
    return found


def _messages(
    publishes: Sequence[Publish], deliveries: Sequence[Delivery], found: Findings
) -> dict[tuple[int, int], set[int]]:
    """The ids of each topic's numbers, as delivered or acknowledged."""
    numbers: dict[tuple[int, int], int] = {}
    stored: dict[tuple[int, int], set[int]] = defaultdict(set)

    def note(topic: int, message_id: int, number: int, who: str) -> None:
        if number == CHANGED:
            found.fault(ONE_MESSAGE, f"topic {topic}, id {message_id}: {who} has bytes that nobody published there")
            return
        if numbers.setdefault((topic, message_id), number) != number:
            other = numbers[topic, message_id]
            found.fault(ONE_MESSAGE, f"topic {topic}, id {message_id}: message {number} for {who}, {other} before")
        stored[topic, number].add(message_id)

    for publish in publishes:
        if publish.outcome == ACKNOWLEDGED:
            note(publish.topic, publish.id, publish.number, "its publisher")
    for each in deliveries:
        note(each.topic, each.id, each.number, f"subscriber {each.subscriber}")
    return stored


def _publishes(noted: Noted, stored: dict[tuple[int, int], set[int]], found: Findings) -> None:
    first_ids: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for publish in noted.publishes:
        ids = stored.get((publish.topic, publish.number), set())
        if publish.outcome == ACKNOWLEDGED:
            found.acknowledged += 1
        elif publish.outcome == REFUSED:
            found.refused += 1
            if ids:
                found.fault(REFUSED_STORED, f"topic {publish.topic}, message {publish.number} has ids {sorted(ids)}")
        else:
            found.unknown += 1
        if not ids:
            continue
        found.stored_again += len(ids) - 1
        if noted.once and len(ids) > 1:
            found.fault(ONCE, f"topic {publish.topic}, message {publish.number} has ids {sorted(ids)}")
        first_ids[publish.topic].append((publish.number, min(ids)))
        if min(ids) <= publish.floor:
            found.fault(
                ORDER,
                f"topic {publish.topic}: message {publish.number} was handed over when {publish.floor} was "
                f"acknowledged, and has id {min(ids)}",
            )
    for topic, of in first_ids.items():
        highest = 0
        for number, message_id in sorted(of):
            if message_id < highest:
                found.overtaken += 1
                if noted.once:
                    found.fault(ONCE, f"topic {topic}, message {number} has id {message_id}, one before it {highest}")
            highest = max(highest, message_id)


def _delivered(who: Subscriber, got: Sequence[Delivery], acknowledged: Iterable[Publish], found: Findings) -> None:
    name = f"topic {who[0]}, subscriber {who[1]}"
    ids: set[int] = set()
    last: dict[int, int] = {}
    for each in got:
        if each.id in ids:
            found.delivered_again += 1
        ids.add(each.id)
        before = last.get(each.session)
        if before is not None and each.id != before + 1:
            found.fault(ORDER, f"{name}, object {each.session}: id {each.id} came after {before}")
        last[each.session] = each.id
    for publish in acknowledged:
        if publish.id not in ids:
            found.fault(LOST, f"{name}: message {publish.number}, acknowledged as {publish.id}, was not delivered")


def _positions(noted: Noted, by_subscriber: dict[Subscriber, list[Delivery]], found: Findings) -> None:
    positions: dict[Subscriber, list[Position]] = defaultdict(list)
    for position in noted.positions:
        positions[position.topic, position.subscriber].append(position)
    sessions: dict[Subscriber, list[Session]] = defaultdict(list)
    for session in noted.sessions:
        sessions[session.topic, session.subscriber].append(session)
    for who, got in by_subscriber.items():
        name = f"topic {who[0]}, subscriber {who[1]}"
        first: dict[int, int] = {}
        for each in got:
            first.setdefault(each.session, each.id)
        _stored(name, positions[who], got, found)
        _beginnings(name, sessions[who], first, positions[who], found)


def _stored(name: str, positions: Sequence[Position], got: Sequence[Delivery], found: Findings) -> None:
    """Positions in the order of reads, deliveries in the order of time."""
    delivered = index = highest = 0
    for each in positions:
        while index < len(got) and got[index].at_s <= each.ended_s:
            delivered = max(delivered, got[index].id)
            index += 1
        if each.consumed < highest:
            found.fault(POSITION, f"{name}: went back from {highest} to {each.consumed}")
        if each.consumed > delivered:
            found.fault(POSITION, f"{name}: {each.consumed} is stored, and {delivered} was delivered last")
        highest = max(highest, each.consumed)


def _beginnings(
    name: str, sessions: Sequence[Session], first: dict[int, int], positions: Sequence[Position], found: Findings
) -> None:
    """Every subscription object begins behind what was stored, and with what was not consumed."""
    consumed = 0
    for session in sorted(sessions, key=lambda each: each.number):
        begins = first.get(session.number)
        stored = max((each.consumed for each in positions if each.ended_s < session.begun_s), default=0)
        if begins is not None and begins <= stored:
            found.fault(POSITION, f"{name}, object {session.number}: began with {begins}, and {stored} was stored")
        if begins is not None and begins > consumed + 1:
            found.fault(POSITION, f"{name}, object {session.number}: began with {begins}, and {consumed} was consumed")
        consumed = max(consumed, session.consumed)


# --- pauses


@dataclass(frozen=True, slots=True)
class Pauses:
    """The longest time without an outcome after each blow of a kind, in seconds."""

    kind: str
    publishes: list[float]
    deliveries: list[float]

    def to_json(self) -> dict[str, object]:
        """A row of a table."""
        row: dict[str, object] = {"after": self.kind, "times": len(self.publishes)}
        for name, pauses in (("publish", self.publishes), ("delivery", self.deliveries)):
            row[f"{name}_pause_s_median"] = round(statistics.median(pauses), 2) if pauses else None
            row[f"{name}_pause_s_most"] = round(max(pauses), 2) if pauses else None
        return row


def pauses(noted: Noted, blows: Sequence[Blow]) -> list[Pauses]:
    """For each kind of blow: the longest pause that a topic it served had from then until the next blow, each time."""
    acknowledged: dict[int, list[float]] = defaultdict(list)
    for publish in noted.publishes:
        if publish.outcome == ACKNOWLEDGED:
            acknowledged[publish.topic].append(publish.done_s)
    delivered: dict[Subscriber, list[float]] = defaultdict(list)
    for each in noted.deliveries:
        delivered[each.topic, each.subscriber].append(each.at_s)
    kinds = {blow.kind: Pauses(blow.kind, [], []) for blow in blows}
    for index, blow in enumerate(blows):
        until = blows[index + 1].at_s if index + 1 < len(blows) else float("inf")
        of = kinds[blow.kind]
        of.publishes.append(_longest((acknowledged[topic] for topic in blow.topics), blow.at_s, until))
        streams = (times for (topic, _), times in delivered.items() if topic in blow.topics)
        of.deliveries.append(_longest(streams, blow.at_s, until))
    return list(kinds.values())


def _longest(streams: Iterable[Sequence[float]], begin: float, end: float) -> float:
    """Of the pauses, as far as they are between begin and end."""
    longest = 0.0
    for times in streams:
        for index in range(max(1, bisect_right(times, begin)), len(times)):
            if times[index - 1] >= end:
                break
            longest = max(longest, min(times[index], end) - max(times[index - 1], begin))
    return longest
