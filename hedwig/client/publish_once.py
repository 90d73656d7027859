"""Publishing once: each message with its producer's number, so that what became unknown can be published again.

    publish -> numbered -> the topic's lane -> hub: stored, or a repeat of what is stored: the id of the first
                 ^                        \\-> EARLY: the one before is not there
                 |                                |
              held <----- repairing: once nothing is in the lane, EARLY ones go again in their order, then what is held

Of one producer the topic has every acknowledged message once and in the order of calls, whatever became of hubs and
connections. The lane sends again what became unknown; the hub knows it again by its number, and by `hw.prev` takes no
message before the one that was to come before it (hedwig/protocol/producers.py).

A message that fails for good (its time was over, say) takes those behind it that are not answered along: each of them
is told, and what is published after that is stored behind all that was stored before. Of what failed as UncertainState
it is open whether it is stored; it never will be once something published later is acknowledged.

Names: a random one, which ends with the program. Who wants to go on after a restart gives a name, which no other
program may have at the same time, and either the first number or each message's own (header property `hw.seq`): the
last one that it knows to be published plus one, or less; what was published before is answered with its id.

Replayed: whoever has the name publishes the same messages under the same numbers each time, without gaps (a job that is
tried again). Then what a hub has forgotten is stored; and after the first failure nothing more is published, so that
the numbers that are stored have no hole, and the next one can go on behind them.

Bounds: `WINDOW` messages in the lane, fewer than a hub remembers of one producer. Thread: reactor.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import BookKeeperError, again
from hedwig.client.lanes import UNKNOWN_ID
from hedwig.errors import MalformedRequest, ServiceDown, StaleVersion, UncertainState
from hedwig.model import MessageId, Topic
from hedwig.protocol.options import NUMBER_MAX, PREVIOUS, PRODUCER, SEQUENCE, number_of
from hedwig.protocol.producers import NAME_SIZE_MAX, RUNS_MAX, is_forgotten
from hedwig.wire.messages import PROPERTIES_MAX, header_at, header_properties, properties_part, with_properties

if TYPE_CHECKING:
    from hedwig.client.client import PubSubClient

WINDOW = 1_000
assert WINDOW < RUNS_MAX

_NUMBERS_MAX = 3
"""Properties that are added to a message: its producer, its number, and the previous number."""

NUMBERS_SIZE = 160
"""Bytes that name and numbers take, at most."""

OnPublished = Callable[[MessageId], object]
OnFailed = Callable[[BookKeeperError], object]


class _Once:
    """One message. index: of the calls. sent: as it was, with its numbers, once it has some. forgotten: the hub said
    that the one before was not there, and that one was answered.
    """

    __slots__ = ("forgotten", "index", "message", "number", "on_failed", "on_published", "previous", "sent")

    def __init__(self, index: int, message: bytes, on_published: OnPublished, on_failed: OnFailed) -> None:
        self.index = index
        self.message, self.on_published, self.on_failed = message, on_published, on_failed
        self.number = 0
        self.previous: int | None = None
        self.sent = b""
        self.forgotten = False


class _Flush:
    """Waits for the messages below an index; so many of them are unanswered."""

    __slots__ = ("done", "end", "left")

    def __init__(self, end: int, left: int) -> None:
        self.end, self.left = end, left
        self.done: Deferred[None] = Deferred()


class Producer:
    """Of one topic; what a Publisher publishes through, in the place of the client. name: None for a random one.

    first: the number of the first message that has none of its own. replayed: see the module.
    """

    def __init__(
        self, client: PubSubClient, topic: Topic, name: bytes | None = None, first: int = 1, *, replayed: bool = False
    ) -> None:
        if name is not None and not 0 < len(name) <= NAME_SIZE_MAX:
            raise MalformedRequest(f"the producer's name has {len(name)} bytes: want from 1 to {NAME_SIZE_MAX}")
        if not 1 <= first <= NUMBER_MAX:
            raise MalformedRequest(f"the first number is {first}: want from 1 to {NUMBER_MAX}")
        self.name = uuid.uuid4().hex[:16].encode() if name is None else name
        self._client, self._topic = client, topic
        self._last = first - 1  # number given out
        self._in_lane = self._failing = 0
        self._early: list[_Once] = []
        self._held: deque[_Once] = deque()
        self._again: deque[_Once] = deque()  # EARLY ones that go again
        self._answered = 0  # the greatest number that is stored
        self._replayed = replayed
        self._ended: BookKeeperError | None = None  # what the first failure was, of one that is replayed
        self._broken: BookKeeperError | None = None  # what ended the chain; those behind are not sent any more
        self._room: deque[Deferred[None]] = deque()
        self._flushes: list[_Flush] = []
        self._next_index = 0
        self._sending = False

    @property
    def unanswered(self) -> int:
        """Messages that are neither published nor failed."""
        return self._in_lane + len(self._early) + len(self._again) + len(self._held) + self._failing

    # --- in the client's place

    def message(
        self,
        topic: Topic,
        body: bytes,
        properties: Mapping[str, bytes],
        message_type: str | None,
        *,
        extra_size: int = 0,
    ) -> bytes:
        """See PubSubClient; room for the numbers is kept. Raises MalformedRequest."""
        for name in (PRODUCER, PREVIOUS):
            if name in properties:
                raise MalformedRequest(f"the header property {name} is the publisher's own: leave it out")
        if len(properties) > PROPERTIES_MAX - _NUMBERS_MAX:
            raise MalformedRequest(
                f"a message has {len(properties):,} properties; with the numbers of a producer, at most "
                f"{PROPERTIES_MAX - _NUMBERS_MAX:,} are allowed: leave some out, or put them into the body"
            )
        if SEQUENCE in properties:
            number_of(properties[SEQUENCE], f"the header property {SEQUENCE}", 1, NUMBER_MAX)
        return self._client.message(topic, body, properties, message_type, extra_size=NUMBERS_SIZE + extra_size)

    def submit(self, topic: Topic, message: bytes, on_published: OnPublished, on_failed: OnFailed) -> None:
        """See PubSubClient."""
        self._client.check_open()
        self._held.append(_Once(self._next_index, message, on_published, on_failed))
        self._next_index += 1
        self._pump()

    def lane(self, topic: Topic) -> Producer:
        """Whom to ask for room."""
        self._client.lane(topic)
        return self

    @property
    def has_room(self) -> bool:
        """See Lane."""
        return self.unanswered < self._client.settings.outstanding_max and self._client.lane(self._topic).has_room

    def room(self) -> Deferred[None]:
        """See Lane."""
        if self.unanswered < self._client.settings.outstanding_max and not self._room:
            return self._client.lane(self._topic).room()
        waiting: Deferred[None] = Deferred()
        self._room.append(waiting)
        return waiting

    def settled(self) -> Deferred[None]:
        """Fires once everything published before is answered, or has failed."""
        if not self.unanswered:
            return succeed(None)
        self._flushes.append(_Flush(self._next_index, self.unanswered))
        return self._flushes[-1].done

    # --- sending

    def _pump(self) -> None:
        """Send what may be sent: while something is to be repaired, only once nothing is in the lane."""
        if self._sending:
            return
        self._sending = True
        try:
            while self._in_lane < WINDOW:
                if self._early or self._broken is not None:
                    if self._in_lane or not self._repair():
                        break
                elif self._again:
                    self._send(self._again.popleft())
                elif self._held and self._ended is None:
                    self._send_first(self._held.popleft())
                else:
                    break
            if self._ended is not None and self._held:
                held = list(self._held)
                self._held.clear()
                self._fail_all(held, ServiceDown(f"not published, as one before it failed: {self._ended}"))
        finally:
            self._sending = False
        while self._room and self.unanswered < self._client.settings.outstanding_max:
            self._room.popleft().callback(None)

    def _repair(self) -> bool:
        """Nothing is in the lane: decide what becomes of those that came too early. True: go on."""
        early = sorted([*self._early, *self._again], key=lambda each: each.number)
        self._early, broken, self._broken = [], self._broken, None
        self._again.clear()
        if broken is not None:
            self._fail_all(early, ServiceDown(f"not published, as one before it failed: {broken}"))
        elif early[0].forgotten:
            text = f"topic {self._topic!r}: the hub has forgotten producer {self.name!r}; it may be stored or not"
            self._fail_all(early, UncertainState(text))
        else:
            self._again.extend(early)
        return True

    def _send_first(self, each: _Once) -> None:
        numbers: dict[str, bytes] = {PRODUCER: self.name}
        at = header_at(each.message)
        assert at is not None
        own = header_properties(each.message, at).get(SEQUENCE) if SEQUENCE.encode() in each.message[at:] else None
        if own is not None:
            each.number = int(own)
        else:
            each.number = self._last + 1
            numbers[SEQUENCE] = b"%d" % each.number
        if not self._last < each.number <= NUMBER_MAX:
            self._fail(each, MalformedRequest(f"message {each.number} comes behind {self._last}: numbers go up"))
            return
        if self._in_lane:
            each.previous = self._last
            numbers[PREVIOUS] = b"%d" % self._last
        self._last = each.number
        each.sent = with_properties(each.message, at, properties_part(numbers))
        self._send(each)

    def _send(self, each: _Once) -> None:
        self._in_lane += 1
        try:
            self._client.pass_on(
                self._topic,
                each.sent,
                lambda message_id: self._on_published(each, message_id),
                lambda error: self._on_failed(each, error),
            )
        except BookKeeperError as error:
            self._on_failed(each, error)

    def _on_published(self, each: _Once, message_id: MessageId) -> None:
        self._in_lane -= 1
        self._answered = max(self._answered, each.number)
        over = self._count_down(each) if self._flushes else ()  # before it is told: who is told may begin another flush
        each.on_published(message_id)
        for flush in over:
            flush.done.callback(None)
        if self._held or self._early or self._again or self._room or self._broken is not None:
            self._pump()

    def _on_failed(self, each: _Once, error: BookKeeperError) -> None:
        if self._replayed and is_forgotten(error):
            self._on_published(each, UNKNOWN_ID)
            return
        self._in_lane -= 1
        if isinstance(error, StaleVersion):
            # The lane sends nothing again before all answers are in: so this is of no earlier state of the topic.
            each.forgotten = each.previous is not None and each.previous <= self._answered
            self._early.append(each)
        else:
            self._broken = self._broken or error
            if self._replayed:
                self._ended = self._ended or error
            self._fail(each, error)
        self._pump()

    def _fail_all(self, some: list[_Once], error: BookKeeperError) -> None:
        self._failing = len(some)
        for each in some:
            self._failing -= 1
            self._fail(each, again(error))

    def _fail(self, each: _Once, error: BookKeeperError) -> None:
        over = self._count_down(each) if self._flushes else ()
        each.on_failed(error)
        for flush in over:
            flush.done.callback(None)

    def _count_down(self, each: _Once) -> list[_Flush]:
        """One less is waited for; the flushes that wait for nothing more."""
        over = []
        for flush in self._flushes:
            if each.index < flush.end:
                flush.left -= 1
                if not flush.left:
                    over.append(flush)
        if over:
            self._flushes = [flush for flush in self._flushes if flush.left]
        return over
