"""A subscription with individual acknowledgement: one connection holds it, or, if it is shared, several.

    WorkQueue: who gets which message --> content --> filter --> one write for each consumer and look
      ^    |                             (recent, or read)
      |    +-- delivered too often --> dead letter, stored --> done
    CONSUME: done, or given back

Made when the first connection attaches. It exists while the hub has the topic, since it contains the state of the
messages, unless other subscriptions need the memory (delivery_budget.py). The state is stored with the subscription
(`SharedSubscription`), `STORE_DELAY_S` after the first change that is not stored, and when the topic is released. After
a hub dies, messages that were acknowledged in the last second, or not acknowledged, are delivered again.
A hub that does not know of it delivers everything above the consumed id.

One timer runs while something is out or delayed, another until what changed is stored, and one between attempts to
store dead letters: a subscription at rest has none. Bounds: those of Acknowledgements and OutstandingBudget, and the
messages of one read. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hedwig.errors import FilterTooCostly, UnexpectedCondition
from hedwig.filters import Filter, not_logged
from hedwig.hub.subscriptions.attachment import (
    DELIVERED_AT_ONCE,
    DELIVERED_BYTES_AT_ONCE,
    DELIVERED_IN_A_TURN,
    Channel,
    read_next,
)
from hedwig.hub.subscriptions.dead_letters import letter_of
from hedwig.hub.topics.read_retry import try_later
from hedwig.model import (
    Event,
    Gone,
    LocalId,
    MessageId,
    Preferences,
    SharedSubscription,
    SubscriberId,
    Subscription,
    Topic,
)
from hedwig.names import shown
from hedwig.protocol.acknowledgements import Acknowledgements, Dead, Redelivery
from hedwig.protocol.options import ATTEMPT, AckOptions, GiveBack, acknowledgement
from hedwig.protocol.subscription import Position
from hedwig.protocol.work_queue import Assignment, WorkQueue
from hedwig.wire.messages import PROPERTIES_MAX
from hedwig.wire.responses import DeliveryEncoder, event_frame
from hedwig.wire.view import MessageView, header_part

if TYPE_CHECKING:
    from hedwig.hub.topics.service import TopicService

log = Logger()

STORE_DELAY_S = 1.0

AT_ONCE_AT_FIRST = 4
"""Messages of the first look: nobody knows yet how large they are."""

BURY_DELAY_MAX_S = 60.0
"""Between attempts to store dead letters, growing."""


class Consumer:
    """The part of one connection; what it holds as its attachment."""

    __slots__ = ("_shared", "channel", "ended", "knows_gone", "reads_gone", "started")

    def __init__(self, shared: SharedAttachment, channel: Channel, *, reads_gone: bool) -> None:
        self._shared, self.channel, self.reads_gone = shared, channel, reads_gone
        self.knows_gone = True  # its answer names all deleted messages that are not reported
        self.started = self.ended = False

    def start(self) -> None:
        """The subscribe was answered: deliver from now on."""
        self.started = True
        self.resume()

    def resume(self) -> None:
        """The connection takes something (again)."""
        if not self.ended:
            self._shared.resume()


class SharedAttachment:
    """See the module. position: of the subscription, which follows what is done. on_changed: something is to be stored
    that is not, called once until `record` was.
    """

    def __init__(
        self,
        service: TopicService,
        subscriber: SubscriberId,
        position: Position,
        options: AckOptions,
        window_size: int,
        wanted: Filter | None,
        snapshot: bytes,
        on_due: Callable[[], object],
    ) -> None:
        self.subscriber = subscriber
        self.ended = False
        self.is_dirty = False
        self._is_storing = False  # `record` was called, and its result is not known
        self._service, self._position, self._on_due = service, position, on_due
        self._encoder = DeliveryEncoder(service.topic, subscriber)
        self._consumers: dict[Channel, Consumer] = {}
        self._loaded: dict[LocalId, bytes] = {}
        self._lost: Gone | None = None
        self._reading, self._failures = False, 0
        self._ahead = service.settings.read_ahead
        self._at_once = AT_ONCE_AT_FIRST
        self._graves: deque[Dead] = deque()
        self._burying = False
        self._bury_failures = 0  # in a row
        self._bury_timer: Any = None
        self._timer: Any = None
        self._timer_s = 0.0
        self._store_timer: Any = None
        self._queue: WorkQueue[Consumer] = WorkQueue(self._restored(snapshot, options), 1)
        self._counted = 0
        self._count()
        self.configure(options, window_size, wanted)

    def _restored(self, snapshot: bytes, options: AckOptions) -> Acknowledgements:
        consumed, gone = self._position.consumed_id.local, self._position.gone
        floor = consumed if gone is None else LocalId(gone.first - 1)
        found = self._decoded(snapshot, floor, options)
        found.pass_over(LocalId(1), floor)  # another kind of hub may have gone on from there
        if gone is not None:
            found.on_deleted(gone.last)
            if gone.last < consumed:
                found.pass_over(LocalId(gone.last + 1), consumed)
        self._position.follow(found.floor, found.gone)
        return found

    def _decoded(self, snapshot: bytes, consumed: LocalId, options: AckOptions) -> Acknowledgements:
        if not snapshot:
            return Acknowledgements(consumed, _redelivery(options))
        where = f"the record of subscriber {self.subscriber!r} of topic {self._service.topic!r}"
        try:
            found = Acknowledgements.decode(snapshot, _redelivery(options), where=where)
        except UnexpectedCondition as error:
            log.error("All above {consumed} is delivered again: {error}", consumed=consumed, error=error)
            return Acknowledgements(consumed, _redelivery(options))
        if found.last_done > self._service.log.durable_id:
            log.error(
                "{where} says that message {last} is done, which is not there yet: all above {consumed} is delivered",
                where=where,
                last=found.last_done,
                consumed=consumed,
            )
            return Acknowledgements(consumed, _redelivery(options))
        return found

    def configure(self, options: AckOptions, window_size: int, wanted: Filter | None) -> None:
        """As the subscription's preferences are now. What is out keeps its deadline."""
        self._options, self._filter = options, wanted
        self._queue.acknowledgements.settings = _redelivery(options)
        self._queue.in_flight_max = min(options.in_flight_max, window_size or options.in_flight_max)

    # --- consumers

    @property
    def is_attached(self) -> bool:
        """Some connection has it."""
        return bool(self._consumers)

    def is_others(self, channel: Channel) -> bool:
        """Another connection has it."""
        return any(each is not channel and not consumer.ended for each, consumer in self._consumers.items())

    @property
    def lost(self) -> Gone | None:
        """Deleted messages that are not reported; for the answer to a consumer that was just added."""
        return self._lost

    def add(self, channel: Channel, *, reads_gone: bool) -> Consumer:
        """A connection takes part, anew if it does already. Raises TopicBusy where too many do."""
        self.remove(channel)
        self._service.settings.outstanding.on_used(self)
        self.look_for_deleted()
        consumer = Consumer(self, channel, reads_gone=reads_gone)
        self._queue.attach(consumer)
        self._consumers[channel] = consumer
        return consumer

    def remove(self, channel: Channel, event: Event | None = None) -> None:
        """It takes part no more; what it had is for others. Harmless for one that does not."""
        if self._removed(channel, event):
            self.resume()

    def _removed(self, channel: Channel, event: Event | None, *, counts: bool = True) -> bool:
        consumer = self._consumers.pop(channel, None)
        if consumer is None:
            return False
        consumer.ended = True
        channel.on_detached(self._service.topic, self.subscriber, consumer)
        if not self.ended and self._queue.detach(consumer, self._service.clock.seconds(), counts=counts):
            self._changed()
        if not self._consumers and not self.ended and self._counted:
            self._service.settings.outstanding.on_idle(self)
        if event is not None:
            channel.write([event_frame(self._service.topic, self.subscriber, event)])
        return True

    def remove_others(self, channel: Channel, event: Event) -> None:
        """This connection wants it for itself."""
        # All go first: what one had would be given to the next, and be an attempt of nobody.
        for each in [each for each in self._consumers if each is not channel]:
            self._removed(each, event)
        self.resume()

    def remove_all(self, event: Event) -> None:
        """Stop delivering to all consumers. Finished messages stay recorded for the next attachment."""
        for channel in list(self._consumers):
            self._removed(channel, event, counts=False)

    def end(self, event: Event | None, without: Channel | None = None) -> None:
        """It is over, here at least; who has it is told, but not this connection."""
        self.ended = True  # from here on nothing is noted: the position may have been moved elsewhere
        for channel in list(self._consumers):
            self._removed(channel, None if channel is without else event)
        for timer in (self._timer, self._store_timer, self._bury_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._store_timer = self._bury_timer = None
        self._graves.clear()
        self._loaded.clear()
        self._service.settings.outstanding.on_used(self)
        self._service.settings.outstanding.count -= self._counted
        self._counted = 0

    def let_go(self) -> None:
        """Drop the state, if it is stored (see Idle). The next attachment continues from the stored state."""
        is_burying = self._graves or self._burying or self._bury_timer is not None
        if not (self.is_dirty or self._is_storing or is_burying):
            self._service.end_attachment(self)

    def _count(self) -> None:
        before, self._counted = self._counted, self._queue.acknowledgements.kept_count
        self._service.settings.outstanding.count += self._counted - before

    # --- delivering

    def resume(self) -> None:
        """Deliver what can be delivered now, to whom it is for."""
        if self.ended or self._reading:
            return
        service, queue = self._service, self._queue
        if queue.advance(service.clock.seconds()):
            self._changed()
        self.look_for_deleted()
        floor, durable = queue.acknowledgements.floor, service.log.durable_id
        if floor + 1 < service.first_kept:
            queue.pass_over(LocalId(floor + 1), LocalId(min(service.first_kept - 1, durable)))
            self._changed()
        looked = 0
        while self._consumers and not self._reading:
            if looked >= DELIVERED_IN_A_TURN or ((looked or self._filter is not None) and not service.turns.has_time()):
                self._reading = True  # let other subscriptions run
                service.turns.later(self._try_again)
                break
            queue.acknowledgements.new_max = service.settings.outstanding.new_max()
            assigned = queue.assign(service.clock.seconds(), durable, _takes, self._at_once)
            if not assigned:
                break
            done, size = self._deliver(assigned)
            if size > DELIVERED_BYTES_AT_ONCE:
                self._at_once = max(1, done * DELIVERED_BYTES_AT_ONCE // size)
            elif done < len(assigned):
                self._at_once = max(1, done)
            elif 2 * size <= DELIVERED_BYTES_AT_ONCE:
                self._at_once = min(DELIVERED_AT_ONCE, 2 * self._at_once)
            looked += done
        if not self._consumers or queue.acknowledgements.take(durable) is None:
            self._loaded.clear()
        self._bury()
        self._watch_time()

    def look_for_deleted(self) -> None:
        """Pass over deleted messages. Consumers that read hw.gone and do not know of some attach again."""
        state, service = self._queue.acknowledgements, self._service
        last = LocalId(service.log.first_id - 1)
        if last > state.floor:
            given_up = min(last, service.first_wanted(self.subscriber) - 1)
            if state.floor < given_up:
                self._queue.pass_over(LocalId(state.floor + 1), LocalId(given_up))
            state.on_deleted(last)
            self._changed()
        lost, before = state.lost, self._lost
        self._lost = lost
        if lost is None or (before is not None and before.first <= lost.first and lost.last <= before.last):
            return
        for consumer in list(self._consumers.values()):
            consumer.knows_gone = False
            if consumer.reads_gone:
                self._removed(consumer.channel, Event.TOPIC_MOVED, counts=False)

    def _deliver(self, assigned: Sequence[Assignment[Consumer]]) -> tuple[int, int]:
        """Deliver or pass over messages. Return their number (all if there is time) and the bytes sent."""
        queue, has_time = self._queue, self._service.turns.has_time
        done = size = 0
        missing: list[LocalId] = []
        out: dict[Consumer, list[bytes]] = {}
        too_costly: FilterTooCostly | None = None
        for consumer, local_id, attempt in assigned:
            message = self._message(local_id)
            if message is None:
                missing.append(local_id)
                queue.take_back(local_id)
                done += 1
                continue
            is_wanted = True
            if self._filter is not None:
                try:
                    is_wanted = self._filter(MessageView(message, PROPERTIES_MAX))
                except FilterTooCostly as error:
                    too_costly = error
                    break
            if is_wanted:
                if attempt > 1:
                    message += header_part({ATTEMPT: b"%d" % attempt})
                size += len(message)
                out.setdefault(consumer, []).append(message)
            else:
                queue.pass_over(local_id, local_id)
            done += 1
            if self._filter is not None and not has_time():
                break
        for consumer, messages in out.items():
            self._service.delivered.add(len(messages))
            consumer.channel.write(self._encoder.parts(messages))
        if len(missing) < len(assigned):
            self._changed()
        for _, local_id, _ in assigned[done:]:
            queue.take_back(local_id)
        if too_costly is not None:
            self._service.suspend(self.subscriber, assigned[done].local_id, too_costly)
        elif missing:
            self._read(min(missing))
        return done, size

    def _message(self, local_id: LocalId) -> bytes | None:
        """As stored, if it is in memory."""
        found = self._service.recent.get(local_id, 1)
        return found[0] if found else self._loaded.get(local_id)

    def _read(self, first: LocalId) -> None:
        self._reading = True
        reading = Deferred.fromCoroutine(self._service.reader.read(first, self._ahead))
        reading.addCallbacks(self._was_read, self._not_read, callbackArgs=(first,), errbackArgs=(first,))
        reading.addErrback(lambda failure: log.failure("Delivery failed", failure=failure))

    def _was_read(self, messages: list[bytes], first: LocalId) -> None:
        if not messages:
            self._not_read("no message was found", first)
            return
        self._reading, self._failures = False, 0
        settings = self._service.settings
        self._ahead = read_next(self._ahead, messages, count_max=settings.read_ahead, size_max=settings.read_size)
        self._loaded = {LocalId(local_id): message for local_id, message in enumerate(messages, first)}
        self.resume()

    def _not_read(self, failure: object, first: LocalId) -> None:
        if self.ended:
            return
        self._failures += 1
        try_later(self._service, self.subscriber, first, self._failures, failure, self._try_again)

    def _try_again(self) -> None:
        self._reading = False
        self.resume()

    def _watch_time(self) -> None:
        """Look again when the next message is due, while there is somebody to deliver it to."""
        due_s = self._queue.acknowledgements.next_deadline_s if self._consumers else None
        if self._timer is not None and (due_s is None or self._timer_s > due_s):
            self._timer.cancel()
            self._timer = None
        if due_s is not None and self._timer is None:
            delay_s = max(0.0, due_s - self._service.clock.seconds())
            self._timer, self._timer_s = self._service.clock.callLater(delay_s, self._on_time), due_s

    def _on_time(self) -> None:
        self._timer = None
        self._in_turn(self.resume)

    # --- what consumers say

    def consume(self, up_to: MessageId, channel: Channel | None) -> None:
        """Something is done, or given back by whoever has it. Raises MalformedRequest."""
        said = acknowledgement(up_to)
        consumer = None if channel is None else self._consumers.get(channel)
        if isinstance(said, GiveBack):
            now_s = self._service.clock.seconds()
            if consumer is None or not self._queue.give_back(consumer, said.local_id, now_s, said.delay_ms / 1000):
                return
        elif not self._queue.acknowledge(said.first, said.last):
            return
        elif consumer is not None and 0 < self._queue.acknowledgements.deleted < said.last:
            self.look_for_deleted()  # a consumer that ended since may have had some of them
            if consumer.knows_gone:
                self._queue.acknowledgements.on_reported()
        self._changed()
        self.resume()

    # --- dead letters

    def _bury(self) -> None:
        """See to what was delivered too often, one after the other."""
        self._graves.extend(self._queue.acknowledgements.take_dead())
        if self._graves and not self._burying and self._bury_timer is None and not self.ended:
            self._burying = True
            burying = Deferred.fromCoroutine(self._bury_all())
            burying.addErrback(lambda failure: log.failure("Publishing dead letters failed", failure=failure))

    async def _bury_all(self) -> None:
        try:
            while self._graves and not self.ended:
                dead = self._graves.popleft()
                if not self._queue.acknowledgements.is_dead(dead.local_id):
                    continue
                try:
                    await self._bury_one(dead)
                except Exception as error:  # noqa: BLE001 - whatever it is, the message is not done, and others wait
                    self._not_buried(dead, error)
                    return
                self._bury_failures = 0
                self._queue.acknowledge(dead.local_id, dead.local_id)
                self._changed()
                if self._graves and not self._service.turns.has_time():
                    await self._next_turn()
        finally:
            self._burying = False
        self.resume()

    def _next_turn(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._service.turns.later(lambda: turn.callback(None))
        return turn

    async def _bury_one(self, dead: Dead) -> None:
        """Fires once it is stored where dead letters are, if that is wanted."""
        service, target = self._service, self._options.dead_letter
        if target is None or service.settings.dead_letters is None:
            kept_back = service.settings.dropped_logged.admit(service.clock.seconds())
            if kept_back is not None:
                log.warn(
                    "Message {local_id} of topic {topic!r} was delivered to {subscriber!r} {attempts} times, never "
                    "acknowledged, and is dropped, as no topic for dead letters is named{others}",
                    local_id=dead.local_id,
                    topic=shown(service.topic),
                    subscriber=shown(self.subscriber),
                    attempts=dead.attempts,
                    others=not_logged(kept_back),
                )
            return
        message = self._message(dead.local_id)
        if message is None:
            found = await service.reader.read(dead.local_id, 1)
            if not found:
                raise UnexpectedCondition(f"message {dead.local_id} of topic {service.topic!r} is not there")
            [message] = found
        await service.settings.dead_letters(Topic(target), letter_of(message, service.topic, self.subscriber, dead))

    def _not_buried(self, dead: Dead, error: Exception) -> None:
        """All wait for the next attempt, which begins with another one: it may be this one alone that is wrong."""
        if self.ended:
            return
        self._bury_failures += 1
        delay_s = min(BURY_DELAY_MAX_S, self._service.settings.retry_delay_s * 2.0 ** min(self._bury_failures - 1, 20))
        log.warn(
            "Message {local_id} of topic {topic!r} is not stored as a dead letter of {subscriber!r}, and is tried "
            "again in {delay_s:g} s, with {others} others: {error!r}",
            local_id=dead.local_id,
            topic=shown(self._service.topic),
            subscriber=shown(self.subscriber),
            delay_s=delay_s,
            others=len(self._graves),
            error=error,
        )
        self._queue.acknowledgements.on_dead_letter_failed(dead.local_id)
        self._bury_timer = self._service.clock.callLater(delay_s, self._bury_again)

    def _bury_again(self) -> None:
        self._bury_timer = None
        self.resume()

    # --- storing

    def _changed(self) -> None:
        if self.ended:
            return
        self._position.follow(self._queue.acknowledgements.floor, self._queue.acknowledgements.gone)
        self._count()
        self.is_dirty = True
        if self._store_timer is None:
            self._store_timer = self._service.clock.callLater(STORE_DELAY_S, self._due)

    def _due(self) -> None:
        self._store_timer = None
        self._in_turn(self._on_due)

    def _in_turn(self, work: Callable[[], object]) -> None:
        # Timers of many subscriptions may be due in one turn, and each may take several ms.
        if self._service.turns.has_time():
            work()
        else:
            self._service.turns.later(work)

    def record(self, preferences: Preferences) -> Subscription:
        """Return what is to be stored now. The caller then calls `on_stored` or `on_not_stored`."""
        self.is_dirty, self._is_storing = False, True
        position = self._position
        acknowledged = self._queue.acknowledgements.encode()
        return SharedSubscription(position.consumed_id, preferences, acknowledged, gone=position.gone)

    def on_stored(self) -> None:
        """Note that the last record is durable."""
        self._is_storing = False

    def on_not_stored(self) -> None:
        """Note that the last record may not be stored; it is stored again later."""
        self._is_storing = False
        self._changed()


def _takes(consumer: Consumer) -> bool:
    if not consumer.started:
        return False
    if not consumer.channel.writable:
        consumer.channel.when_writable(consumer)
        return False
    return True


def _redelivery(options: AckOptions) -> Redelivery:
    return Redelivery(
        timeout_s=options.timeout_ms / 1000,
        attempts_max=options.attempts_max,
        outstanding_max=options.outstanding_max,
    )
