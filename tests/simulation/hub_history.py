"""What every publisher and subscriber was told, and what is stored: the checkers of a simulated run of hubs.

Checked at every event (raises Violation, or is put among the world's errors):
    I-88    an id is acknowledged for one message only, and that is the message that everybody is delivered under it
    I-89    a message has one id for all readers for ever; ids of one connection rise in the order of its publishes;
            what was refused for certain is never seen
    I-91    a topic's list has no gap, only its last ledger is open, ends never change, ids do not begin lower again
    I-92    an acknowledged subscription is stored; no message is passed over that was not consumed
    I-93    a stored position never goes back, nor beyond what the subscriber said that it consumed
    I-94    no ledger is deleted that a subscription needs
    I-95    no more than a window's messages are delivered and not consumed
    I-96    nothing is delivered on a connection that the subscription left
At the end, when faults have stopped:
    I-88    every acknowledged message is in the ledgers, or was consumed by all and trimmed
    I-92    every subscriber was given every message that was acknowledged after it had subscribed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.ledgers.paths import ledger_path
from bookkeeper.model import LedgerId
from hedwig.model import LedgerRange, SubscriberId, Topic
from hedwig.names import Paths
from hedwig.wire import records
from tests.simulation.history import Violation
from tests.simulation.world import World


@dataclass(slots=True)
class TopicHistory:
    """One topic as everybody saw it."""

    topic: Topic
    ids: dict[int, bytes] = field(default_factory=dict)
    """By acknowledgement or delivery."""
    id_of: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Id to the moment at which its publish was begun."""
    refused: set[bytes] = field(default_factory=set)

    @property
    def last(self) -> int:
        """The greatest id that was acknowledged."""
        return max(self.acknowledged, default=0)

    def on_acknowledged(self, local: int, body: bytes, begun: int) -> None:
        """A publisher was told this id."""
        if local in self.acknowledged:
            raise Violation(f"I-88: {self.topic!r}: id {local} was acknowledged twice, at last for {body!r}")
        self.on_seen(local, body, "acknowledged")
        self.acknowledged[local] = begun

    def on_seen(self, local: int, body: bytes, how: str) -> None:
        """Somebody learned that this message has this id."""
        if self.ids.setdefault(local, body) != body:
            raise Violation(f"I-88: {self.topic!r}: id {local} is {self.ids[local]!r}, and was {how} as {body!r}")
        if self.id_of.setdefault(body, local) != local:
            raise Violation(f"I-89: {self.topic!r}: {body!r} has id {self.id_of[body]}, and was {how} as {local}")
        if body in self.refused:
            raise Violation(f"I-89: {self.topic!r}: {body!r} was refused for certain, and was {how} as {local}")

    def on_refused(self, body: bytes) -> None:
        """A publisher was told that this message is not there."""
        self.refused.add(body)
        if body in self.id_of:
            raise Violation(f"I-89: {self.topic!r}: {body!r} has id {self.id_of[body]}, and was refused for certain")


@dataclass(slots=True)
class AttachmentHistory:
    """A subscription on one connection, from the answer to its subscribe to its end."""

    first: int | None = None
    last: int = 0


@dataclass(slots=True)
class SubscriptionHistory:
    """One subscription as its members saw it. A *life* begins when a subscribe is acknowledged, and ends when an
    unsubscribe is sent.

    window: of hubs; 0 none.
    """

    topic: TopicHistory
    subscriber: SubscriberId
    window: int
    alive: bool = False
    begun: int = 0
    """The moment of its life's first acknowledged subscribe."""
    lives: int = 0
    first: int | None = None
    """The lowest id that it was delivered in this life."""
    consumed: int | None = None
    """The greatest id that it said it consumed, in any life."""
    received: set[int] = field(default_factory=set)
    duplicates: int = 0
    deliveries: int = 0

    def on_subscribed(self, moment: int) -> None:
        """A member's subscribe was acknowledged."""
        if not self.alive:
            self.alive, self.begun, self.first = True, moment, None
            self.lives += 1
            self.received.clear()

    def on_unsubscribing(self) -> None:
        """A member sends an unsubscribe: from now on anything may be."""
        self.alive = False

    def on_consumed(self, local: int) -> None:
        """A member says that it consumed all up to this id."""
        self.consumed = max(self.consumed or 0, local)

    @property
    def needed(self) -> int | None:
        """The lowest acknowledged id that was published after the life began."""
        return min((local for local, begun in self.topic.acknowledged.items() if begun > self.begun), default=None)

    def on_delivered(self, local: int, body: bytes, attachment: AttachmentHistory) -> None:
        """A member got a message on its connection."""
        where = f"{self.topic.topic!r}/{self.subscriber!r}"
        self.topic.on_seen(local, body, f"delivered to {self.subscriber!r}")
        consumed = self.consumed or 0
        if attachment.first is None:
            attachment.first = local
            if self.alive:
                self._check_begin(where, local)
        elif local <= attachment.last:
            raise Violation(f"I-89: {where} was given {local} after {attachment.last} on one connection")
        elif local > max(attachment.last, consumed) + 1:
            raise Violation(f"I-92: {where} was given {local} after {attachment.last}, and consumed {consumed}")
        attachment.last = local
        if self.window and local > max(consumed, attachment.first - 1) + self.window:
            raise Violation(f"I-95: {where} was given {local}, consumed {consumed}, with a window of {self.window}")
        self.deliveries += 1
        self.duplicates += local in self.received
        self.received.add(local)
        if self.first is None or local < self.first:
            self.first = local

    def _check_begin(self, where: str, local: int) -> None:
        consumed, needed = self.consumed or 0, self.needed
        if self.first is not None and local > max(self.first - 1, consumed) + 1:
            raise Violation(
                f"I-92: {where} attached anew and was given {local} first; it had begun at {self.first}, and consumed "
                f"{consumed}"
            )
        if self.first is None and needed is not None and local > max(needed - 1, consumed) + 1:
            raise Violation(f"I-92: {where} subscribed before {needed} was published, and was given {local} first")

    def check_complete(self) -> None:
        """It has been given all that was acknowledged after it had subscribed."""
        needed = self.needed
        if not self.alive or needed is None:
            return
        consumed = self.consumed or 0
        missing = [
            local
            for local in self.topic.acknowledged
            if local >= needed and local not in self.received and (self.lives == 1 or local > consumed)
        ]
        if missing:
            raise Violation(f"I-92: {self.topic.topic!r}/{self.subscriber!r} never got {sorted(missing)[:5]}")


class HubWatch:
    """Looks at the records of topics and subscriptions after every change of the metadata."""

    def __init__(self, world: World, paths: Paths) -> None:
        self._world, self._paths = world, paths
        self._topics: dict[Topic, list[SubscriptionHistory]] = {}
        self._seen: dict[str, bytes | None] = {}
        self._lists: dict[Topic, list[LedgerRange]] = {}
        self._known: dict[Topic, dict[int, LedgerRange]] = {}  # ledgers that were listed and are not deleted
        self._positions: dict[tuple[Topic, SubscriberId], int] = {}
        self.trimmed = 0
        self.takeovers = 0
        world.metadata.znodes.on_change.append(self._look)

    def add(self, topic: Topic, subscriptions: list[SubscriptionHistory]) -> None:
        """Watch this topic."""
        self._topics[topic] = subscriptions
        self._lists[topic], self._known[topic] = [], {}

    def position(self, topic: Topic, subscriber: SubscriberId) -> int | None:
        """What is stored."""
        return self._positions.get((topic, subscriber))

    def first_id(self, topic: Topic) -> int:
        """The first id that is listed."""
        ranges = self._lists[topic]
        return (ranges[0].first or 1) if ranges else 1

    def check_stored(self, each: SubscriptionHistory) -> None:
        """An acknowledged subscription is there."""
        if each.alive and self.position(each.topic.topic, each.subscriber) is None:
            raise Violation(f"I-92: {each.topic.topic!r}/{each.subscriber!r} is acknowledged, and not stored")

    def _look(self) -> None:
        try:
            for topic, subscriptions in self._topics.items():
                self._look_at_list(topic)
                for each in subscriptions:
                    self._look_at_position(topic, each)
                self._look_at_ledgers(topic)
        except Violation as violation:
            self._world.errors.append(violation)

    def _changed(self, path: str) -> tuple[bool, bytes | None]:
        data = self._world.metadata.stored(path)
        changed = self._seen.get(path) != data
        self._seen[path] = data
        return changed, data

    def _look_at_list(self, topic: Topic) -> None:
        path = self._paths.ledgers(topic)
        changed, data = self._changed(path)
        if not changed:
            return
        if data is None:
            raise Violation(f"I-91: {path} is gone")
        before, after = self._lists[topic], records.decode_ranges(data, path)
        check_list(path, before, after)
        self._lists[topic] = after
        for each in after:
            known = self._known[topic]
            if each.ledger_id in known or not any(each.ledger_id == old.ledger_id for old in before):
                known[each.ledger_id] = each

    def _look_at_position(self, topic: Topic, each: SubscriptionHistory) -> None:
        path = self._paths.subscription(topic, each.subscriber)
        changed, data = self._changed(path)
        if not changed:
            return
        key = topic, each.subscriber
        if data is None:
            self._positions.pop(key, None)
            if each.alive:
                raise Violation(f"I-92: {path} went, and nobody had unsubscribed")
            return
        local = records.decode_subscription(data, path).consumed.local
        before = self._positions.get(key)
        self._positions[key] = local
        if before is not None and local < before:
            raise Violation(f"I-93: {path} went back from {before} to {local}")
        if before is not None and before < local and local > (each.consumed or 0):
            raise Violation(f"I-93: {path} went on from {before} to {local}, and {each.consumed} was consumed")

    def _look_at_ledgers(self, topic: Topic) -> None:
        known = self._known[topic]
        for ledger_id, each in list(known.items()):
            path = self._world.metadata.root + ledger_path(LayoutKind.HIERARCHICAL, LedgerId(ledger_id))
            if self._world.metadata.exists(path):
                continue
            del known[ledger_id]
            if each.last is None:
                # An empty one that an owner has dropped from the list, or it is a loss that the end will show.
                continue
            self.trimmed += 1
            for subscription in self._topics[topic]:
                stored = self.position(topic, subscription.subscriber)
                if stored is not None and stored < each.last.local:
                    raise Violation(
                        f"I-94: ledger {ledger_id} of {topic!r} with {each.first}..{each.last.local} was deleted, and "
                        f"{subscription.subscriber!r} has consumed {stored}"
                    )


def check_list(path: str, before: list[LedgerRange], after: list[LedgerRange]) -> None:
    """Raise Violation unless a topic's list may go from one to the other."""
    expected: int | None = None
    for position, each in enumerate(after):
        if each.first is None or (expected is not None and each.first != expected):
            raise Violation(f"I-91: {path}: ledger {each.ledger_id} begins at {each.first}, not at {expected}: {after}")
        if each.last is None and position != len(after) - 1:
            raise Violation(f"I-91: {path}: ledger {each.ledger_id} is open, and not the last: {after}")
        if each.last is not None:
            expected = each.last.local + 1
    ends = {each.ledger_id: each for each in after}
    for each in before:
        now = ends.get(each.ledger_id)
        if now is not None and (now.first != each.first or (each.last is not None and now.last != each.last)):
            raise Violation(f"I-91: {path}: {each} became {now}")
    if before and after and (after[0].first or 0) < (before[0].first or 0):
        raise Violation(f"I-91: {path} begins at {after[0].first}, and began at {before[0].first}")
    if before and _end(after) < _end(before):
        raise Violation(f"I-91: {path} ends before {_end(after)}, and had ended before {_end(before)}")


def _end(ranges: list[LedgerRange]) -> int:
    """What is known to have been given out, at least: one more than the last id."""
    if not ranges:
        return 1
    last = ranges[-1]
    return last.last.local + 1 if last.last is not None else last.first or 0


def guarded(world: World, check: Callable[[], object]) -> None:
    """Run a check in the middle of somebody's call; what it finds ends the run."""
    try:
        check()
    except Violation as violation:
        world.errors.append(violation)
