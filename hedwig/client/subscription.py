"""A subscription that this client holds: messages in order, each once, whatever happens to its hub.

                  subscribe                    SUCCESS                      connection lost, topic moved
    new ------------------------> attaching ------------> attached ----------------------------------+
                                      ^                       |                                       |
                                      +---- again, ATTACH ----|---------------------------------------+
                                                              +-- forced off, unsubscribed elsewhere --> failed

    hub --deliveries--> what was not heard before --> wanted? --> Taking --> the reader
    hub <--CONSUME----- InOrder or OneByOne <---- what is over, `consume`, `ack`

What a hub delivers again after a move (it knows what was consumed, not what was delivered) is passed over here, so a
subscription object hands out each message once. Messages wait here until they are taken: at most `window` of them, as
the hub delivers no more than that beyond what is consumed; a subscription without a window stops its connection from
being read while too many wait, and all that share it.

Consumed is what `consume` says. With `auto_consume` it is also what `receive` gave before the last call of it, or
before `close`; and of an iteration the messages before the current one: that at which a loop is left comes again. One
request tells many; what is not told yet is told on close, and again after the subscription moved.

Where it is to begin instead is said until a hub has granted it, and not again: another client may have had it begin
elsewhere meanwhile, and to a hub each change is a wish.

A hub that ends every connection after the same message is not asked again and again without a pause. Thread: reactor;
`finished` may be set by another.
Source: hedwig-protocol.md 2.3-2.5, 2.10, 2.13-2.17.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, ClientClosed, InvalidArgument
from hedwig.client.asking import Asker, pause
from hedwig.client.consuming import InOrder
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.client.queueing import OneByOne
from hedwig.client.starting import Start, replay_option
from hedwig.client.taking import Taking, stop_timer
from hedwig.client.values import ID_MAX, Of, id_of, number_of, seconds_of
from hedwig.errors import InvalidFilter, MalformedRequest, MessageTooLarge, PubSubError, TopicBusy, UnexpectedCondition
from hedwig.model import Event, HubAddress, MessageId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.protocol.options import REPLAY, TIMEOUT_MS_MAX, ack_options, granted
from hedwig.wire.receiving import Received, TooLarge
from hedwig.wire.requests import close_subscription_frame, consume_frame, subscribe_frame
from hedwig.wire.responses import Answer, Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

TAKEN_AT_ONCE = 1_000

RECEIVE_S_MAX = 365 * 24 * 3600.0
"""Seconds that one `receive` may wait; None waits for ever."""

DELAY_S_MAX = TIMEOUT_MS_MAX / 1000
"""Seconds after which a message comes again at the latest."""


class Subscription:
    """See the module. `receive` and iteration take messages; `consume` says what is done; `close` lets go."""

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
        self.individual = ack_options(preferences) is not None
        """Messages are acknowledged one by one: see hedwig.client.queueing."""
        self.auto_consume = auto_consume
        self._clock, self._hubs, self._settings = clock, hubs, hubs.settings
        self._asker = Asker(clock, hubs)
        self._mode, self._force, self._wanted, self._on_closed = mode, force, wanted, on_closed
        self._wish = preferences.options.get(REPLAY) or None
        self._link: HubLink | None = None
        self._asked: HubLink | None = None
        self._attaching: Deferred[None] | None = None
        self._attached = False
        self._attached_s = 0.0
        self._fruitless = 0
        self._taking = Taking(clock)
        self._done: InOrder | OneByOne = OneByOne() if self.individual else InOrder()
        self._told_at_once = self._batch()
        self._seeking: Deferred[None] | None = None
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
        said: bytes | None = None

        def frame(txn_id: int, claim: bool) -> bytes:
            nonlocal said
            said = self._wish
            return subscribe_frame(
                txn_id,
                self.topic,
                self.subscriber,
                self._mode,
                self._preferences_said(),
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
        except BaseException as error:
            self._leave(None)
            if isinstance(error, TopicBusy) and not self._force and not self._is_shared:
                raise TopicBusy(f"{error}; force=True (`hedwig sub --force`) takes it from there") from error
            raise
        if self._closed:
            self._let_go(link)
            raise ClientClosed("the subscription was closed meanwhile")
        self._attached, self._mode, self._force = True, SubscribeMode.ATTACH, False
        if link.lost:
            self._moved(link)
            return
        self._link, self._asked = link, None
        self._attached_s = self._clock.seconds()
        try:
            self._check(link, answer, said)
            self._told_at_once = self._batch()
        except PubSubError:
            self._link = None
            self._let_go(link)
            raise
        if said != self._wish:  # sought meanwhile, and the hub was not told
            self._link = None
            self._drop(link)
            return
        self._wish = None
        self._done.on_attached()
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.callback(None)
        self._tell()

    @property
    def _is_shared(self) -> bool:
        options = ack_options(self.preferences)
        return options is not None and options.shared

    def _preferences_said(self) -> Preferences:
        options = {name: value for name, value in self.preferences.options.items() if name != REPLAY}
        if self._wish is not None:
            options[REPLAY] = self._wish
        return replace(self.preferences, options=options)

    def _check(self, link: HubLink, answer: Answer, said: bytes | None) -> None:
        """Whether the hub and this client mean the same. said: where it was asked to begin."""
        heeded = False
        if answer.preferences is not None:
            self.preferences, heeded = granted(answer.preferences)
        if not self.individual and ack_options(self.preferences) is not None:
            # What CONSUME means is the subscription's, and was perhaps said by another client.
            raise MalformedRequest(
                f"the messages of subscriber {self.subscriber!r} of topic {self.topic!r} are acknowledged one by one: "
                "subscribe with preferences=one_by_one() (`hedwig sub --one-by-one`), or with the option "
                "hw.ack=cumulative (and hw.shared=false)"
            )
        if not heeded and (self.individual or said is not None):
            raise UnexpectedCondition(
                f"hub {link.name} knows nothing of acknowledging one by one and of beginning again elsewhere: it is "
                "no hub of this project, or an older one. Nothing was consumed there"
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
        if asked is not None and asked is not unless:
            self._drop(asked)

    def _drop(self, link: HubLink) -> None:
        """Nothing of this connection is for this object any more."""
        if link.subscriptions.get((self.topic, self.subscriber)) is self:
            del link.subscriptions[self.topic, self.subscriber]
        if not self._settings.shared_connections:
            link.close()

    def _again(self) -> None:
        """Attach anew, for as long as it takes."""
        if self._closed or self._failure is not None or self._attaching is not None:
            return
        lasted_s = self._clock.seconds() - self._attached_s
        fruitless = self._fruitless = 0 if lasted_s > self._settings.retry_max_s else self._fruitless + 1

        async def again() -> None:
            if fruitless > 1:
                await pause(self._clock, self._hubs.pause_s(fruitless - 1))
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
        if not self._done.keeps_waiting:
            self._taking.let_go()
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
        taking = self._taking
        found = self._done.on_delivered(messages, taking.ready)
        if len(found) < len(messages):
            self._tell()  # it delivers again what is done, as it has not heard of that
        if found and self._wanted is not None:
            found = self._filtered(self._wanted, found)
        if found:
            taking.put(found)
            self._watch_lent()
            if self._stopped_reading is None and taking.is_full:
                self._stopped_reading = link
                link.pause()
        if self._broken is not None:
            self._fail(self._broken)

    def _filtered(self, wanted: Callable[[Received], bool], messages: list[Received]) -> list[Received]:
        """Those for the reader."""
        found: list[Received] = []
        others: list[Received] = []
        for each in messages:
            try:
                (found if wanted(each) else others).append(each)
            except Exception as error:  # noqa: BLE001 - the application's; it may raise anything
                # Nothing is passed over because of it: the reader gets what came before, and is told.
                self._broken = InvalidFilter(
                    f"the filter of subscriber {self.subscriber!r} broke at message {each.local_id}: {error!r}"
                )
                self._broken.__cause__ = error
                break
        self._done.on_filtered(found, others)
        self._tell_soon()
        return found

    def on_too_large(self, link: HubLink, told: TooLarge) -> None:
        """See Delivered. It would come again however often this is attached, so the reader is told."""
        if self._seeking is not None or (self._link is not None and link is not self._link):
            return
        which = "a message" if told.local_id is None else f"message {told.local_id}"
        past = "" if told.local_id is None else f", or begin behind it (start={told.local_id + 1})"
        self._fail(
            MessageTooLarge(
                f"{which} of topic {self.topic.decode(errors='replace')} is too large for this client: its frame has "
                f"{told.size:,} bytes, and max_message_size is {self._settings.frame_size_max:,}. Raise that to "
                f"{told.size} at least{past}. Nothing of it was consumed",
                told.local_id,
            )
        )

    def on_event(self, link: HubLink, told: Told) -> None:
        """See Delivered."""
        if link is not self._link:
            return
        self._drop(link)
        if told.event is Event.SUBSCRIPTION_FORCED_CLOSED:
            self._link = None
            self._fail(
                TopicBusy(f"subscriber {self.subscriber!r} of topic {self.topic!r} was attached by another client")
            )
        else:
            self._moved(link)

    def on_link_lost(self, link: HubLink) -> None:
        """See Delivered."""
        if link is self._link:
            self._moved(link)

    def _read_again(self) -> None:
        stopped, self._stopped_reading = self._stopped_reading, None
        if stopped is not None:
            stopped.resume()

    def _look_for_room(self) -> None:
        if self._stopped_reading is not None and self._taking.has_room:
            self._read_again()

    # --- taking

    @property
    def finished(self) -> Received | None:
        """Of an iteration: the last message whose turn is over. Looked at now and then; any thread may set it."""
        return self._taking.finished

    @finished.setter
    def finished(self, message: Received | None) -> None:
        self._taking.finished = message

    def receive(
        self, count_max: int = TAKEN_AT_ONCE, timeout_s: float | None = None, *, counts: bool = True
    ) -> Deferred[list[Received]]:
        """The next messages: all that are here, at most count_max, as soon as there is one; none after timeout_s.

        counts: False where `finished` says what is consumed of them.
        Fails with ClientClosed after `close`; with what ended the subscription (NotSubscribed, TopicBusy where another
        client took it, InvalidFilter where the filter of this client broke, MessageTooLarge), once everything before is
        taken; with InvalidArgument while another call waits.
        """
        taking = self._taking
        try:
            number_of(count_max, "count_max", 1, ID_MAX)
            if timeout_s is not None:
                seconds_of(timeout_s, "timeout_s", RECEIVE_S_MAX)
        except InvalidArgument as error:
            return fail(error)
        if taking.is_awaited:
            return fail(InvalidArgument("another receive of this subscription is under way: wait for it"))
        taking.ask(counts=counts)
        self._note_over()
        taken = taking.take(count_max)
        if taken:
            self._watch_lent()
            self._look_for_room()
            return succeed(taken)
        if self._failure is not None:
            return fail(self._failure)
        if self._closed:
            return fail(ClientClosed("the subscription is closed"))
        return taking.wait(count_max, timeout_s)

    def give_back(self, messages: list[Received]) -> None:
        """What `receive` gave last was not looked at: it comes first again."""
        if not self._closed:
            self._taking.give_back(messages)

    def forget_taken(self) -> None:
        """What was taken last is not done, though the subscription is closed: it comes again some day."""
        self._taking.forget_taken()

    def next_now(self) -> Received | None:
        """The next message of an iteration, if one is here; the one before is done."""
        taking = self._taking
        message = taking.next_now()
        if message is None:
            return None
        if self.auto_consume:
            if taking.iterated >= self._told_at_once:
                self._note_over()
            elif self._timer is None:
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
        self._taking.begin(message)

    # --- consuming

    def consume(self, message: Of) -> None:
        """Everything up to this message is done, and is not delivered again; no more than was delivered. Told soon,
        with others. Of subscriptions that are acknowledged one by one: this message alone. Raises InvalidArgument.
        """
        self._done.consume(id_of(message, "message"))
        self._tell_soon()

    def ack(self, message: Of) -> None:
        """Of subscriptions that are acknowledged one by one: this message is done, and does not come again."""
        self._done.ack(id_of(message, "message").local)
        self._tell_soon()

    def nack(self, message: Of, delay_s: float = 0.0) -> None:
        """Of the same: this message is not done; it comes again, to this client or another, after a while."""
        seconds_of(delay_s, "delay_s", DELAY_S_MAX)
        said = self._done.nack(id_of(message, "message").local, delay_s)
        if self._link is not None:  # else it comes again anyway
            self._say(self._link, said)

    def _note_over(self) -> None:
        """Messages whose turn is over are consumed, with auto_consume."""
        self._taking.iterated = 0
        if self.auto_consume:
            over = self._taking.over
            if over is not None:
                self._done.consume(over)
                self._tell_soon()

    def _batch(self) -> int:
        """Messages that are told together: not so many that the hub waits for them."""
        options = ack_options(self.preferences) if self.individual else None
        bounds = [self.preferences.window_size or 0, 0 if options is None else options.in_flight_max]
        return max(1, min([self._settings.consume_every, *(each // 4 for each in bounds if each)]))

    def _tell_soon(self) -> None:
        untold = self._done.untold
        if untold >= self._told_at_once:
            self._tell()
        elif untold:
            self._plan_telling()

    def _watch_lent(self) -> None:
        """Another thread says when the turns of what it has are over."""
        if self.auto_consume and self._taking.is_lent:
            self._plan_telling()

    def _plan_telling(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._clock.callLater(self._settings.consume_delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._note_over()
        self._tell()
        self._watch_lent()

    def _tell(self) -> None:
        link = self._link
        if link is not None:
            for said in self._done.to_tell():
                self._say(link, said)

    def _say(self, link: HubLink, said: MessageId) -> None:
        link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, said))

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
            self._wish = replay_option(start)
        except InvalidArgument as error:
            return fail(error)
        # A hub that attaches it just now was not told of it: then it is asked again.
        seeking = self._seeking = Deferred()
        self._taking.begin_anew()
        self._done.begin_anew()
        link, self._link = self._link, None
        if link is not None:
            self._drop(link)
        self._read_again()
        if self._attaching is None:
            self._fruitless = 0
            self._again()
        return seeking

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
        self._tell()
        link, self._link = self._link, None
        if link is not None and not link.lost:
            self._let_go(link)  # the hub does not know of it
        self._taking.end(error)
        self._not_found(error)

    def close(self) -> Deferred[None]:
        """Tell what is consumed and let go; the subscription stays, and what was not consumed comes again."""
        if self._closed:
            return succeed(None)
        self._closed = True
        self._taking.note_taken()
        self._note_over()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attaching is not None:
            self._attaching.cancel()
        self._tell()
        if self._failure is None:
            self._on_closed(self)
        self._taking.end(ClientClosed("the subscription was closed"))
        self._not_found(ClientClosed("the subscription was closed"))
        link, self._link = self._link, None
        self._read_again()
        self._taking.let_go()
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
            closing.done.addBoth(stop_timer, timer)
        return closing.done


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
