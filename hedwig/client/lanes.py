"""Publishes of one client to one topic: in order, many at a time, through redirects and lost hubs.

                     first answer                          a publish failed, or the connection did
    asking (one only) -----------> sending (all) ------------------------------------------------> settling
        ^                                                                                             |
        +------ all unanswered ones are answered or unknown; what can be tried again goes to the front +

A topic whose hub is not known costs one publish to find out, not all of them. While something failed nothing new is
sent until every answer is in, so that what is sent again comes before what was never sent. What was answered meanwhile
keeps its id: after a failure the order of acknowledged messages can differ from the order of calls, and what became
unknown may be stored twice; idempotent publishers have neither.

A lane lives while it has something to do. Thread: reactor. Source: hedwig/PROTOCOL.md 2.2, 2.14, 2.15.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, ClientClosed, ConnectFailed, again
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.client.request import connected, trying_again
from hedwig.client.settings import PubSubSettings, name_of
from hedwig.errors import NoHub, PubSubError, ServiceDown, UncertainState, error_of
from hedwig.model import HubAddress, LocalId, MessageId, Status, Topic
from hedwig.wire.records import parse_address
from hedwig.wire.requests import PublishEncoder
from hedwig.wire.responses import Answer

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

OnPublished = Callable[[MessageId], object]
OnFailed = Callable[[BookKeeperError], object]

REDIRECTS_MAX = 8
"""Redirects that one round follows without waiting."""

SENT_AT_ONCE = 512
"""Publishes handed to a connection in one piece."""


UNKNOWN_ID = MessageId(LocalId(0))
"""Of a message that is stored, and whose hub is older than ids in answers (4.2)."""


class Publish:
    """One publish. message: a Message's bytes. uncertain: it may have been stored."""

    __slots__ = ("deadline", "lane", "message", "number", "on_failed", "on_published_call", "size", "uncertain")

    def __init__(self, lane: Lane, message: bytes, deadline: float, on_published: OnPublished, on_failed: OnFailed):
        self.lane, self.message, self.size, self.deadline = lane, message, len(message), deadline
        self.on_published_call, self.on_failed = on_published, on_failed
        self.number = 0
        self.uncertain = False

    def on_published(self, message_id: MessageId) -> None:
        """See PublishAsked."""
        self.lane.on_published(self, message_id)

    def on_answer(self, link: HubLink, answer: Answer) -> None:
        """The hub refused it; or stored it, and does not say where, as those before 4.2."""
        if answer.status == Status.SUCCESS:
            self.lane.on_published(self, UNKNOWN_ID)
        else:
            self.lane.on_refused(self, link, answer)

    def on_overdue(self) -> None:
        """Its time is over and nothing was heard of it."""
        self.lane.on_overdue(self)

    def on_unknown(self, link: HubLink, error: PubSubError) -> None:
        """Nobody knows what became of it."""
        self.uncertain = True
        self.lane.on_unknown(self, error)


class _Flush:
    """Waits for the publishes below a number; so many of them are unanswered."""

    __slots__ = ("done", "end", "left")

    def __init__(self, end: int, left: int) -> None:
        self.end, self.left = end, left
        self.done: Deferred[None] = Deferred()


class State(enum.Enum):
    """Of a lane; see the module."""

    ASKING = "asking"
    SENDING = "sending"
    SETTLING = "settling"


class Lane:
    """All publishes to one topic. on_idle: told when it has nothing left to do."""

    def __init__(
        self,
        clock: Clock,
        hubs: Hubs,
        topic: Topic,
        settings: PubSubSettings,
        on_idle: Callable[[Lane], object],
    ) -> None:
        self.topic = topic
        self._clock, self._hubs, self._settings, self._on_idle = clock, hubs, settings, on_idle
        self._encoder = PublishEncoder(topic)
        self._state = State.ASKING
        self._link: HubLink | None = None
        self._finding = False
        self._queue: deque[Publish] = deque()
        self._failed: list[Publish] = []
        self._in_flight = 0
        self._next_number = 0
        self._target: HubAddress | None = None
        self._claim = False
        self._redirects = self._failures = 0
        self._retry: Any = None
        self._why = ""
        self._flushes: list[_Flush] = []
        self._closed = False
        self._room: deque[Deferred[None]] = deque()
        self.unanswered = self.unanswered_bytes = 0

    # --- what is published

    @property
    def has_room(self) -> bool:
        """Another publish is within the bounds."""
        settings = self._settings
        return self.unanswered < settings.outstanding_max and self.unanswered_bytes < settings.outstanding_bytes_max

    def room(self) -> Deferred[None]:
        """Fires once there is room."""
        waiting: Deferred[None] = Deferred()
        if self.has_room and not self._room:
            waiting.callback(None)
        else:
            self._room.append(waiting)
        return waiting

    def settled(self) -> Deferred[None]:
        """Fires once everything published before is answered, or has failed; what is published later may be open."""
        flush = _Flush(self._next_number, self.unanswered)
        if self.unanswered:
            self._flushes.append(flush)
        else:
            flush.done.callback(None)
        return flush.done

    def publish(self, message: bytes, deadline: float, on_published: OnPublished, on_failed: OnFailed) -> None:
        """Publish one message; exactly one of the calls follows."""
        publish = Publish(self, message, deadline, on_published, on_failed)
        publish.number = self._next_number
        self._next_number += 1
        self.unanswered += 1
        self.unanswered_bytes += publish.size
        queue = self._queue
        queue.append(publish)
        if len(queue) == 1:
            link = self._link
            if link is None or link.unanswered_publishes or self._settings.linger_s:
                self._hubs.turns.send(self._pump)
            else:
                self._pump()  # nobody is waited for: this one need not wait either
                link.flush()
        elif len(queue) % SENT_AT_ONCE == 0:
            self._pump()

    def _pump(self) -> None:
        """Send what may be sent."""
        if not self._queue or self._state is State.SETTLING or self._retry is not None:
            return
        link = self._link
        if link is None or link.lost:
            self._find()
            return
        queue = self._queue
        while queue and link.room:
            if self._state is State.ASKING:
                if self._in_flight:
                    return
                some = [queue.popleft()]
            elif len(queue) <= SENT_AT_ONCE:
                some = list(queue)
                queue.clear()
            else:
                some = [queue.popleft() for _ in range(SENT_AT_ONCE)]
            self._in_flight += len(some)
            link.publish(self._encoder, [each.message for each in some], some, should_claim=self._claim)
        if queue:
            link.room_wanted[self._pump] = None

    @property
    def answered(self) -> int:
        """How many of all are."""
        return self._next_number - self.unanswered

    @property
    def waits_for(self) -> str:
        """What, at the moment."""
        if self._failures:
            return trying_again(self.topic, self._why)
        return "waiting for a connection to a hub" if self._link is None else connected(self._link)

    # --- where to

    def _find(self) -> None:
        if self._finding:
            return
        address = self._target or self._hubs.route(self.topic) or self._hubs.any_hub()
        try:
            found = self._hubs.link(address, "publish")
        except BookKeeperError as error:
            self._not_found(error)
            return
        if isinstance(found, HubLink):
            self._found(found)
            return
        self._finding = True
        found.addCallbacks(self._found, lambda failure: self._not_found(failure.value))

    def _found(self, link: HubLink) -> None:
        self._finding = False
        self._link, self._state = link, State.ASKING
        if self._hubs.route(self.topic) == link.address and not self._failures:
            self._state = State.SENDING
        self._pump()

    def _not_found(self, error: BaseException | None) -> None:
        self._finding = False
        if isinstance(error, BookKeeperError) and not isinstance(error, (ConnectFailed, PubSubError)):
            self._fail_all(error)
            return
        self._lost_hub(str(error))
        self._settle()

    def _lost_hub(self, why: str) -> None:
        self._why = why
        self._hubs.forget(self.topic)
        self._link, self._target, self._claim, self._redirects = None, None, False, 0
        self._failures += 1

    # --- what became of it

    def on_published(self, publish: Publish, message_id: MessageId) -> None:
        """Acknowledged."""
        self._in_flight -= 1
        asking = self._state is State.ASKING
        if asking:
            self._served()
        self._done(publish)
        publish.on_published_call(message_id)
        if self._state is State.SETTLING:
            self._settle()
        elif self._queue and asking:
            self._hubs.turns.send(self._pump)

    def _served(self) -> None:
        assert self._link is not None
        self._state = State.SENDING
        self._hubs.learn(self.topic, self._link.address)
        self._target, self._claim, self._redirects, self._failures = None, False, 0, 0

    def on_refused(self, publish: Publish, link: HubLink, answer: Answer) -> None:
        """The hub's answer is an error."""
        self._in_flight -= 1
        if answer.status == Status.NOT_RESPONSIBLE_FOR_TOPIC:
            if link is self._link:
                self._redirect(link, answer)
            self._failed.append(publish)
        else:
            error = error_of(Status(answer.status), answer.text)
            if isinstance(error, (ServiceDown, UncertainState)) or answer.status == Status.COMPOSITE:
                # Uncertain is what a hub says whose topic was taken over: as good as a connection that ended.
                # Composite: a genuine one could not acquire it, and stored nothing.
                publish.uncertain = publish.uncertain or isinstance(error, UncertainState)
                if link is self._link:
                    self._lost_hub(f"hub {link.name}: {error}")
                self._failed.append(publish)
            else:
                self._done(publish)
                publish.on_failed(error)
                if self._state is not State.SETTLING:
                    self._pump()
                    return
        self._state = State.SETTLING
        self._settle()

    def _redirect(self, link: HubLink, answer: Answer) -> None:
        self._hubs.forget(self.topic)
        self._link = None
        self._redirects += 1
        try:
            owner = parse_address(answer.text) if answer.text else None
        except ValueError as error:
            self._lost_hub(f"hub {link.name}: {error}")
            return
        if owner is None or owner == link.address or self._redirects > REDIRECTS_MAX:
            named = "no other" if owner is None else name_of(owner)
            self._lost_hub(f"hub {link.name} does not serve the topic, and names {named}")
            return
        self._hubs.met(owner)
        self._target, self._claim = owner, True

    def on_unknown(self, publish: Publish, error: PubSubError) -> None:
        """The connection ended first."""
        self._in_flight -= 1
        if self._link is not None and self._link.lost:
            self._lost_hub(str(error))
        self._failed.append(publish)
        self._state = State.SETTLING
        self._settle()

    def on_overdue(self, publish: Publish) -> None:
        """The hub lives, and says nothing of this publish."""
        self._in_flight -= 1
        self._done(publish)
        text = "the hub has not answered in time; the message may have been stored or not"
        publish.on_failed(UncertainState(f"topic {self.topic!r}: {text}"))
        if self._state is State.SETTLING:
            self._settle()
        elif self._queue:
            self._hubs.turns.send(self._pump)

    def _done(self, publish: Publish) -> None:
        self.unanswered -= 1
        self.unanswered_bytes -= publish.size
        if self._flushes:
            self._count_down(publish)  # before anybody is told, who may begin another one
        while self._room and self.has_room:
            self._room.popleft().callback(None)
        if not self.unanswered and not self._room:
            self._on_idle(self)

    def _count_down(self, publish: Publish) -> None:
        for flush in list(self._flushes):
            if publish.number >= flush.end:
                continue
            flush.left -= 1
            if not flush.left:
                self._flushes.remove(flush)
                # In a turn of its own: this publish is told before.
                self._clock.callLater(0, flush.done.callback, None)

    # --- again

    def _settle(self) -> None:
        """Once every answer is in: what failed goes to the front, and the topic is looked for."""
        if self._in_flight:
            return
        failed, self._failed = self._failed, []
        failed.sort(key=lambda each: each.number)
        self._queue.extendleft(reversed(failed))
        self._state = State.ASKING
        if self._closed:
            self._fail_all()
            return
        no_hub = self._hubs.no_hub() if self._failures else None
        if no_hub is not None:
            self._fail_all(no_hub, certain=self._hubs.are_foreign)
            return
        self.expire()
        if not self._queue or self._retry is not None:
            return
        if self._failures and self._target is None:
            self._retry = self._clock.callLater(self._hubs.pause_s(self._failures), self._try_again)
        else:
            self._find()

    def _try_again(self) -> None:
        self._retry = None
        self._pump()

    def expire(self) -> None:
        """Fail what has waited too long. Called now and then."""
        now = self._clock.seconds()
        kept: deque[Publish] = deque()
        late: list[Publish] = []
        for each in self._queue:
            (late if each.deadline <= now else kept).append(each)
        if not late:
            return
        self._queue = kept
        why = f"; the last failure: {self._why}" if self._why else ""
        for each in late:
            self._done(each)
            if each.uncertain:
                text = "publishing timed out, and an attempt before may have stored the message"
                each.on_failed(UncertainState(f"topic {self.topic!r}: {text}{why}"))
            else:
                each.on_failed(ServiceDown(f"topic {self.topic!r}: no hub took the message in time{why}"))

    def _fail_all(self, error: BookKeeperError | None = None, *, certain: bool = False) -> None:
        """error: None where the client was closed. certain: nothing can have been stored."""
        queue, self._queue = self._queue, deque()
        for each in queue:
            self._done(each)
            if each.uncertain and not certain:
                why = "the client was closed" if error is None else str(error)
                text = f"{why}; an attempt before may have stored the message"
                if isinstance(error, NoHub):
                    text = f"{why}. Should it be one after all, it may have stored the message"
                each.on_failed(UncertainState(f"topic {self.topic!r}: {text}"))
            else:
                closed = ClientClosed("the client was closed before the message was published")
                each.on_failed(closed if error is None else again(error))

    def close(self) -> None:
        """Fail what waits. Connections are closed before: what was sent is unknown by then, and waits here."""
        self._closed = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = None
        waiting, self._room = self._room, deque()
        self._fail_all()
        for each in waiting:
            each.errback(ClientClosed("the client was closed before there was room"))
