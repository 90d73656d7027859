"""A subscription that this client holds: messages in order, each once, whatever happens to its hub.

                  subscribe                    SUCCESS                      connection lost, topic moved
    new ------------------------> attaching ------------> attached ----------------------------------+
                                      ^                       |                                       |
                                      +---- again, ATTACH ----|---------------------------------------+
                                                              +-- forced off, unsubscribed elsewhere --> failed

What a hub delivers again after that (it knows what was consumed, not what was delivered) is passed over here, so a
subscription object hands out each message once. Messages wait here until they are taken: at most `window` of them, as
the hub delivers no more than that beyond what is consumed; a subscription without a window stops its connection from
being read while too many wait, and all that share it.

Consumed is what `consume` says. With `auto_consume` it is also what `receive` gave before the last call of it, or
before `close`; and of an iteration the messages before the current one: that at which a loop is left comes again. One
request tells many; what is not told yet is told on close, and again after the subscription moved.

A hub that ends every connection after the same message is not asked again and again without a pause. Thread: reactor;
`finished` may be set by another.
Source: hedwig-protocol.md 2.3-2.5, 2.10, 2.13-2.17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, ClientClosed, InvalidArgument
from hedwig.client.asking import Asker, pause
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.client.settings import backoff
from hedwig.client.starting import Start, replay_option
from hedwig.errors import InvalidFilter, MalformedRequest, TopicBusy, UnexpectedCondition
from hedwig.model import Event, HubAddress, LocalId, MessageId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.options import REPLAY, ack_options, granted
from hedwig.wire.receiving import Received
from hedwig.wire.requests import close_subscription_frame, consume_frame, subscribe_frame
from hedwig.wire.responses import Answer, Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

BUFFERED_MAX = 10_000
"""Messages that wait to be taken where there is no window; then the connection is not read."""

BUFFERED_BYTES_MAX = 64 * 1024 * 1024

TAKEN_AT_ONCE = 1_000


class Subscription:
    """See the module. `receive` and iteration take messages; `consume` says what is done; `close` lets go."""

    individual = False
    """Messages are acknowledged one by one: see hedwig.client.queueing."""

    def __init__(
        self,
        clock: Clock,
        hubs: Hubs,
        topic: Topic,
        subscriber: SubscriberId,
        mode: SubscribeMode,
        preferences: Preferences,
        *,
        force: bool,
        auto_consume: bool,
        wanted: Callable[[Received], bool] | None,
        on_closed: Callable[[Subscription], object],
    ) -> None:
        self.topic, self.subscriber, self.preferences = topic, subscriber, preferences
        self.auto_consume = auto_consume
        self.finished: Received | None = None
        """Of an iteration: the last message whose turn is over. Looked at now and then; any thread may set it."""
        self._clock, self._hubs, self._settings = clock, hubs, hubs.settings
        self._asker = Asker(clock, hubs)
        self._mode, self._force, self._wanted, self._on_closed = mode, force, wanted, on_closed
        self._link: HubLink | None = None
        self._asked: HubLink | None = None
        self._attaching: Deferred[None] | None = None
        self._attached = False
        self._ready: deque[Received] = deque()
        self._ready_bytes = 0
        self._taking: Deferred[list[Received]] | None = None
        self._taking_max = 0
        self._taking_counts = True
        self._current: Received | None = None
        self._unnoted = 0
        self._lent_id = LocalId(0)  # given to an iteration of another thread
        self._fruitless = 0
        self._attached_s = 0.0
        self._last_id = LocalId(0)  # given to the reader, or waiting for it
        self._last_seen: MessageId | None = None  # where some are filtered
        self._last_wanted = LocalId(0)
        self._taken_id: MessageId | None = None
        self._consumed: MessageId | None = None
        self._told_id = LocalId(0)
        self._seeking: Deferred[None] | None = None
        self._begin_anew()
        self._timer: Any = None
        self._stopped_reading: HubLink | None = None
        self._failure: BookKeeperError | None = None
        self._broken: InvalidFilter | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """It was let go."""
        return self._closed

    @property
    def attached(self) -> bool:
        """A hub delivers to it now; after the loss of one it is attached anew by itself."""
        return self._link is not None

    # --- attaching

    async def attach(self, *, timeout_s: float | None) -> None:
        """Subscribe. Raises what the hub says, and ServiceDown where none does in time."""

        def frame(txn_id: int, claim: bool) -> bytes:
            return subscribe_frame(
                txn_id,
                self.topic,
                self.subscriber,
                self._mode,
                self.preferences,
                force=self._force,
                should_claim=claim,
            )

        busy = (Status.TOPIC_BUSY,) if self._attached else ()
        try:
            answer, link = await self._asker.ask(
                self.topic,
                frame,
                self._connect,
                timeout_s=timeout_s,
                on_link=self._listen,
                on_late=self._attached_late,
                again_on=busy,
            )
        except BaseException:
            self._leave(None)
            raise
        if self._closed:
            self._let_go(link)
            raise ClientClosed("the subscription was closed meanwhile")
        first = not self._attached
        self._attached, self._mode, self._force = True, SubscribeMode.ATTACH, False
        if link.lost:
            self._moved(link)
            return
        self._link, self._asked = link, None
        self._attached_s = self._clock.seconds()
        wish = self.preferences.options.get(REPLAY)
        heeded = False
        if answer.preferences is not None:
            self.preferences, heeded = granted(answer.preferences)
        self._check_kind(link)
        if not heeded and (self.individual or (wish and (first or self._seeking is not None))):
            self._link = None
            self._let_go(link)
            raise UnexpectedCondition(
                f"hub {link.address} knows nothing of acknowledging one by one and of beginning again elsewhere: it is "
                "no hub of this project, or an older one. Nothing was consumed there"
            )
        if self._seeking is not None and not self._found(wish):
            self._link = None
            self._drop(link)
            return
        self._told_id = LocalId(0)
        self._tell()

    def _check_kind(self, link: HubLink) -> None:
        """What CONSUME means is the subscription's, and was perhaps said by another client."""
        if not self.individual and ack_options(self.preferences) is not None:
            self._link = None
            self._let_go(link)
            raise MalformedRequest(
                f"the messages of subscriber {self.subscriber!r} of topic {self.topic!r} are acknowledged one by one: "
                "subscribe with preferences=one_by_one(), or with the option hw.ack=cumulative (and hw.shared=false)"
            )

    async def _connect(self, address: HubAddress) -> HubLink:
        if not self._settings.shared_connections:
            return await self._hubs.dial(address)
        found = self._hubs.link(address, "subscribe")
        return found if isinstance(found, HubLink) else await found

    def _attached_late(self, link: HubLink, answer: Answer) -> None:
        """The hub attached it when nobody waited for that any more; it would be nobody's while this client lives."""
        if answer.status == Status.SUCCESS and not link.subscriptions.get((self.topic, self.subscriber)):
            self._let_go(link)

    def _listen(self, link: HubLink) -> None:
        # Before the answer: the first messages may come in the same read.
        self._leave(link)
        self._asked = link
        link.subscriptions[self.topic, self.subscriber] = self

    def _leave(self, unless: HubLink | None) -> None:
        """Nothing is expected any more of the hub that was asked last, where the next one is another."""
        asked, self._asked = self._asked, None
        if asked is None or asked is unless:
            return
        if asked.subscriptions.get((self.topic, self.subscriber)) is self:
            del asked.subscriptions[self.topic, self.subscriber]
        if not self._settings.shared_connections:
            asked.close()

    def _again(self) -> None:
        """Attach anew, for as long as it takes."""
        if self._closed or self._failure is not None or self._attaching is not None:
            return
        lasted_s = self._clock.seconds() - self._attached_s
        fruitless = self._fruitless = 0 if lasted_s > self._settings.retry_max_s else self._fruitless + 1

        async def again() -> None:
            if fruitless > 1:
                await pause(self._clock, backoff(self._settings, fruitless - 1))
            await self.attach(timeout_s=None)

        self._attaching = Deferred.fromCoroutine(again())
        self._attaching.addBoth(self._was_attached)

    def _was_attached(self, result: Failure | None) -> None:
        self._attaching = None
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, CancelledError):
                if not isinstance(error, BookKeeperError):
                    log.failure("Attaching a subscription broke", failure=result)
                    error = UnexpectedCondition(f"a fault of this client: {error!r}")
                self._fail(error)
        elif self._link is None and not self._closed:
            self._again()

    def _moved(self, link: HubLink) -> None:
        if self._link is link:
            self._link = None
        self._read_again()
        self._hubs.forget(self.topic)
        self._again()

    # --- what the hub says

    def on_messages(self, link: HubLink, messages: list[Received]) -> None:
        """See Delivered."""
        if self._closed or self._failure is not None or (self._link is not None and link is not self._link):
            return
        if self._seeking is not None:
            return  # of deliveries before
        messages = self._unheard(link, messages)
        if not messages:
            return
        if self._wanted is not None:
            messages = self._filtered(self._wanted, messages)
            if not messages:
                self._check_filter()
                return
        self._ready.extend(messages)
        self._ready_bytes += sum([len(each.body) for each in messages])
        if self._taking is not None and self._ready:
            taking, self._taking = self._taking, None
            taking.callback(self._take(self._taking_max))
        if self._stopped_reading is None and (
            len(self._ready) > BUFFERED_MAX or self._ready_bytes > BUFFERED_BYTES_MAX
        ):
            self._stopped_reading = link
            link.pause()
        if self._wanted is not None:
            self._check_filter()

    def _unheard(self, link: HubLink, messages: list[Received]) -> list[Received]:
        """What was not heard before."""
        if messages[0].local_id <= self._last_id:
            self._tell_again(link, messages[-1].local_id)
            messages = [each for each in messages if each.local_id > self._last_id]
        if messages:
            self._last_id = messages[-1].local_id
        return messages

    def _check_filter(self) -> None:
        if self._broken is not None:
            self._fail(self._broken)

    def _read_again(self) -> None:
        stopped, self._stopped_reading = self._stopped_reading, None
        if stopped is not None:
            stopped.resume()

    def _filtered(self, wanted: Callable[[Received], bool], messages: list[Received]) -> list[Received]:
        """Those for the reader. The others are consumed with the last one before them."""
        found: list[Received] = []
        for each in messages:
            try:
                if wanted(each):
                    found.append(each)
            except Exception as error:  # noqa: BLE001 - the application's; it may raise anything
                # Nothing is passed over because of it: the reader gets what came before, and is told.
                broken = InvalidFilter(
                    f"the filter of subscriber {self.subscriber!r} broke at message {each.local_id}: {error!r}"
                )
                broken.__cause__ = error
                self._broken = broken
                return found
            self._last_seen = each.id
        messages = found
        if messages:
            self._last_wanted = messages[-1].local_id
        elif self._last_seen is not None and self._last_wanted <= (
            0 if self._consumed is None else self._consumed.local
        ):
            self._set_consumed(self._last_seen)
        return messages

    def on_event(self, link: HubLink, told: Told) -> None:
        """See Delivered."""
        if link is not self._link:
            return
        link.subscriptions.pop((self.topic, self.subscriber), None)
        if told.event is Event.SUBSCRIPTION_FORCED_CLOSED:
            self._link = None
            self._drop(link)
            self._fail(
                TopicBusy(f"subscriber {self.subscriber!r} of topic {self.topic!r} was attached by another client")
            )
            return
        self._drop(link)
        self._moved(link)

    def on_link_lost(self, link: HubLink) -> None:
        """See Delivered."""
        if link is self._link:
            self._moved(link)

    # --- taking

    def receive(
        self, count_max: int = TAKEN_AT_ONCE, timeout_s: float | None = None, *, counts: bool = True
    ) -> Deferred[list[Received]]:
        """The next messages: all that are here, at most count_max, as soon as there is one; none after timeout_s.

        counts: False where `finished` says what is consumed of them.
        Fails with ClientClosed after `close`; with what ended the subscription (NotSubscribed, TopicBusy where another
        client took it, InvalidFilter where the filter of this client broke), once everything before is taken; with
        InvalidArgument while another call waits.
        """
        if count_max < 1:
            return fail(InvalidArgument(f"count_max must be at least 1, not {count_max}"))
        if self._taking is not None:
            return fail(InvalidArgument("another receive of this subscription is under way: wait for it"))
        self._note_taken()
        self._taking_counts = counts
        if self._ready:
            return succeed(self._take(count_max))
        if self._failure is not None:
            return fail(self._failure)
        if self._closed:
            return fail(ClientClosed("the subscription is closed"))
        self._taking_max = count_max
        taking = self._taking = Deferred(self._not_taking)
        if timeout_s is not None:
            timer = self._clock.callLater(timeout_s, self._nothing, taking)
            taking.addBoth(_stop, timer)
        return taking

    def _not_taking(self, taking: Deferred[list[Received]]) -> None:
        if self._taking is taking:
            self._taking = None

    def _nothing(self, taking: Deferred[list[Received]]) -> None:
        if self._taking is taking:
            self._taking = None
            taking.callback([])

    def _note_taken(self) -> None:
        """What was given before is done."""
        if self._current is not None:
            self.finished, self._current = self._current, None
        if self.auto_consume:
            self._note_finished()
            if self._taken_id is not None:
                self._set_consumed(self._taken_id)

    def _note_finished(self) -> None:
        finished = self.finished
        self._unnoted = 0
        if finished is not None and self.auto_consume:
            self._set_consumed(finished.id)

    def _take(self, count_max: int) -> list[Received]:
        ready = self._ready
        if len(ready) <= count_max:
            taken = list(ready)
            ready.clear()
            self._ready_bytes = 0
        else:
            taken = [ready.popleft() for _ in range(count_max)]
            self._ready_bytes -= sum([len(each.body) for each in taken])
        if self._taking_counts:
            self._taken_id = taken[-1].id
        elif self.auto_consume:
            self._lent_id = taken[-1].local_id
            self._plan_telling()
        self._look_for_room()
        return taken

    def _look_for_room(self) -> None:
        if (
            self._stopped_reading is not None
            and len(self._ready) <= BUFFERED_MAX // 2
            and self._ready_bytes <= BUFFERED_BYTES_MAX // 2
        ):
            self._read_again()

    def give_back(self, messages: list[Received]) -> None:
        """What `receive` gave last was not looked at: it comes first again."""
        if not self._closed:
            self._taken_id = None
            self._ready.extendleft(reversed(messages))
            self._ready_bytes += sum([len(each.body) for each in messages])

    def forget_taken(self) -> None:
        """What was taken last is not done, though the subscription is closed: it comes again some day."""
        self._taken_id = None

    def next_now(self) -> Received | None:
        """The next message of an iteration, if one is here; the one before is done."""
        self.finished, self._current = self._current or self.finished, None
        if not self._ready:
            return None
        self._current = message = self._ready.popleft()
        self._ready_bytes -= len(message.body)
        self._unnoted += 1
        if self._unnoted >= self._consume_every:
            self._note_finished()
        elif self._timer is None and self.auto_consume:
            self._plan_telling()
        if self._stopped_reading is not None:
            self._look_for_room()
        return message

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Received:
        message = self.next_now()
        if message is None:
            try:
                [message] = await self.receive(1, counts=False)
            except ClientClosed:
                if self._closed:
                    raise StopAsyncIteration from None
                raise
            self.begin(message)
        return message

    def begin(self, message: Received) -> None:
        """This message of an iteration was received, and its turn is now."""
        self._current, self._lent_id = message, LocalId(0)

    # --- consuming

    def consume(self, message: Received | MessageId) -> None:
        """Everything up to this message is done, and is not delivered again. Told soon, with others."""
        self._set_consumed(message.id if isinstance(message, Received) else message)

    def _set_consumed(self, message_id: MessageId) -> None:
        if self._consumed is not None and message_id.local <= self._consumed.local:
            return
        if self._last_seen is not None and message_id.local >= self._last_wanted:
            message_id = max(message_id, self._last_seen)
        self._consumed = message_id
        if message_id.local - self._told_id >= self._consume_every:
            self._tell()
        else:
            self._plan_telling()

    @property
    def _consume_every(self) -> int:
        window, every = self.preferences.window_size, self._settings.consume_every
        return max(1, min(every, window // 4)) if window else every

    def _plan_telling(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._clock.callLater(self._settings.consume_delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._note_finished()
        self._tell()
        if self._lent_id > (0 if self.finished is None else self.finished.local_id):
            self._plan_telling()

    def _tell(self) -> None:
        consumed, link = self._consumed, self._link
        if consumed is None or link is None or consumed.local <= self._told_id:
            return
        self._told_id = consumed.local
        link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, consumed))

    def _tell_again(self, link: HubLink, delivered: LocalId) -> None:
        """A hub delivers again what is consumed: it heard of that before it had delivered it, and passed it over."""
        consumed = self._consumed
        if consumed is None:
            return
        up_to = consumed if consumed.local <= delivered else MessageId(delivered)
        link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, up_to))

    def ack(self, message: Received | MessageId) -> None:
        """Of subscriptions that are acknowledged one by one."""
        raise InvalidArgument("ack: subscribe with preferences=one_by_one(); this subscription is consumed in order")

    def nack(self, message: Received | MessageId, delay_s: float = 0.0) -> None:
        """Of subscriptions that are acknowledged one by one."""
        raise InvalidArgument("nack: subscribe with preferences=one_by_one(); this subscription is consumed in order")

    # --- beginning again

    def seek(self, start: Start) -> Deferred[None]:
        """Begin again with a message, or at a time, back or forth: see hedwig.client.starting.

        Fires once the hub has stored that. What was delivered before and not taken is let go of; what was taken counts
        for nothing any more. Where the message is not kept, it begins with the oldest that is: the first id says so.
        Fails as `receive`, and with InvalidArgument while another seek is under way.
        """
        if self._failure is not None:
            return fail(self._failure)
        if self._closed:
            return fail(ClientClosed("the subscription is closed"))
        if self._seeking is not None:
            return fail(InvalidArgument("another seek of this subscription is under way: wait for it"))
        try:
            option = {REPLAY: replay_option(start)}
        except InvalidArgument as error:
            return fail(error)
        self.preferences = self.preferences.merged(Preferences(options=option))
        # A hub that attaches it just now may not have been told: until the answer says so, it is asked again.
        seeking = self._seeking = Deferred()
        self._begin_anew()
        link, self._link = self._link, None
        if link is not None:
            self._drop(link)
        self._read_again()
        if self._attaching is None:
            self._fruitless = 0
            self._again()
        return seeking

    def _begin_anew(self) -> None:
        """Nothing was heard, taken or consumed yet."""
        self._let_go_of_ready()
        self._current = self.finished = None
        self._last_id = self._last_wanted = self._lent_id = self._told_id = LocalId(0)
        self._last_seen = self._taken_id = self._consumed = None

    def _let_go_of_ready(self) -> None:
        self._ready.clear()
        self._ready_bytes = 0

    def _found(self, wish: bytes | None) -> bool:
        """Whether the hub heard of what is sought; then that is over."""
        if self.preferences.options.get(REPLAY) != wish:
            self.preferences = self.preferences.merged(Preferences(options={REPLAY: wish or b""}))
            return False
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.callback(None)
        return True

    def _not_found(self, error: BookKeeperError) -> None:
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.errback(error)

    # --- the end

    def _fail(self, error: BookKeeperError) -> None:
        if self._failure is not None or self._closed:
            return
        self._failure = error
        self._on_closed(self)
        self._read_again()
        link, self._link = self._link, None
        if link is not None and not link.lost:
            self._let_go(link)  # the hub does not know of it
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.errback(error)
        self._not_found(error)

    def close(self) -> Deferred[None]:
        """Tell what is consumed and let go; the subscription stays, and what was not consumed comes again."""
        if self._closed:
            return succeed(None)
        self._closed = True
        if self.auto_consume:
            self._note_finished()
            if self._taken_id is not None:
                self._set_consumed(self._taken_id)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attaching is not None:
            self._attaching.cancel()
        self._tell()
        taking, self._taking = self._taking, None
        if self._failure is None:
            self._on_closed(self)
        if taking is not None:
            taking.errback(ClientClosed("the subscription was closed"))
        self._not_found(ClientClosed("the subscription was closed"))
        link, self._link = self._link, None
        self._read_again()
        self._ready.clear()
        if link is None or link.lost:
            return succeed(None)
        return self._let_go(link)

    def _let_go(self, link: HubLink) -> Deferred[None]:
        if link.subscriptions.get((self.topic, self.subscriber)) is self:
            del link.subscriptions[self.topic, self.subscriber]
        closing = _Closing(None if self._settings.shared_connections else link)
        # Also where the connection ends next: the hub may notice that later than whoever attaches it now.
        link.ask(lambda txn_id: close_subscription_frame(txn_id, self.topic, self.subscriber), closing)
        if not closing.done.called:
            # Another subscription may keep the connection from being read.
            timer = self._clock.callLater(self._settings.answer_timeout_s, closing.on_unknown, link, None)
            closing.done.addBoth(_stop, timer)
        return closing.done

    def _drop(self, link: HubLink) -> None:
        if not self._settings.shared_connections:
            link.close()


class _Closing:
    """A CLOSESUBSCRIPTION: whatever is answered, it is closed. own: its connection, which ends with it."""

    def __init__(self, own: HubLink | None) -> None:
        self.done: Deferred[None] = Deferred()
        self._own = own

    def on_answer(self, link: HubLink, answer: object) -> None:
        """Closed."""
        self._closed()

    def on_unknown(self, link: HubLink, error: object) -> None:
        """Closed by the connection's end, or given up."""
        self._closed()

    def _closed(self) -> None:
        if self.done.called:
            return
        if self._own is not None:
            self._own.close()
        self.done.callback(None)


def _stop(result: Any, timer: Any) -> Any:
    if timer.active():
        timer.cancel()
    return result
