"""A subscription that this client holds: messages in order, each once, whatever happens to its hub.

    hub --deliveries--> what was not heard before --> wanted? --> Taking --> the reader
    hub <--CONSUME----- InOrder or OneByOne <---- what is over, `consume`, `ack`

What a hub delivers again after a move (it knows what was consumed, not what was delivered) is passed over here, so a
subscription object hands out each message once. Messages wait here until they are taken: at most `window` of them, as
the hub delivers no more than that beyond what is consumed; a subscription without a window stops its connection from
being read while too many wait, and all that share it.

Consumed is what `consume` says. With `auto_consume` it is also what `receive` gave before the last call of it, or
before `close`; and of an iteration the messages before the current one: that at which a loop is left comes again. One
request tells many; what is not told yet is told on close, and again after the subscription moved. Which hub delivers,
and what comes after it is lost: see hedwig.client.subscriptions.session.

Thread: reactor; `finished` may be set by another.
Source: hedwig/PROTOCOL.md 2.4, 2.5, 2.10, 2.17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.errors import BookKeeperError, ClientClosed, InvalidArgument, again
from hedwig.client.faces.values import ID_MAX, Of, id_of, number_of, seconds_of
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.client.subscriptions.cursor import NOTHING, InOrder
from hedwig.client.subscriptions.inbox import Taking
from hedwig.client.subscriptions.session import Attaching
from hedwig.client.subscriptions.start import Start, replay_option
from hedwig.client.subscriptions.work_queue import OneByOne
from hedwig.errors import InvalidFilter, MessageTooLarge
from hedwig.model import Gone, LocalId, MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.names import shown
from hedwig.protocol.options import TIMEOUT_MS_MAX, ack_options
from hedwig.wire.receiving import Received, TooLarge
from hedwig.wire.requests import consume_frame
from hedwig.wire.responses import Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

TAKEN_AT_ONCE = 1_000

GONE_MAX = 100
"""Ranges of deleted messages that a subscription keeps for `gone`."""

RECEIVE_S_MAX = 365 * 24 * 3600.0
"""Seconds that one `receive` may wait; None waits for ever."""

DELAY_S_MAX = TIMEOUT_MS_MAX / 1000
"""Seconds after which a message comes again at the latest."""


class Subscription(OfOneProcess):
    """See the module. `receive` and iteration take messages; `consume` says what is done; `close` lets go."""

    instead = "pass the hubs' addresses and the HedwigClientSettings instead, and connect again where they arrive"

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
        on_gone: Callable[[Gone], object] | None = None,
    ) -> None:
        self.topic, self.subscriber = topic, subscriber
        self._attaching = Attaching(clock, hubs, self, topic, subscriber, mode, preferences, force=force)
        self.individual = self._attaching.individual
        """Messages are acknowledged one by one: see hedwig.client.subscriptions.work_queue."""
        self.auto_consume = auto_consume
        self._clock, self._settings = clock, hubs.settings
        self._wanted, self._on_closed, self._on_gone = wanted, on_closed, on_gone
        self._gone: deque[Gone] = deque(maxlen=GONE_MAX)
        self._gone_up_to = NOTHING  # of what was noted since the last seek
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
    def preferences(self) -> Preferences:
        """Preferences that the caller named; after attaching, those that apply."""
        return self._attaching.preferences

    @property
    def closed(self) -> bool:
        """It was let go."""
        return self._closed

    @property
    def attached(self) -> bool:
        """A hub delivers to it now; after the loss of one it is attached anew by itself."""
        return self._attaching.link is not None

    async def attach(self, *, timeout_s: float | None) -> None:
        """Subscribe. Raises what the hub says, and ServiceDown where none does in time."""
        try:
            await self._attaching.attach(timeout_s=timeout_s)
        except ClientClosed as error:
            if self._failure is None:
                raise
            raise again(self._failure) from error

    # --- where it is attached

    def on_granted(self, gone: Gone | None) -> None:
        """See Attached."""
        self._told_at_once = self._batch()
        if gone is not None:
            self._note_gone(gone)

    def on_attached(self) -> None:
        """See Attached."""
        self._done.on_attached()
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.callback(None)
        self._tell()

    def on_detached(self) -> None:
        """See Attached."""
        if not self._done.keeps_waiting:
            self._taking.let_go()
        self._read_again()

    def on_failed(self, error: BookKeeperError) -> None:
        """See Attached: it is over, and the reader is told once everything before is taken."""
        if self._failure is not None or self._closed:
            return
        self._failure = error
        self._attaching.ask_no_more()
        self._on_closed(self)
        self._read_again()
        self._tell()
        self._attaching.let_go()  # the hub does not know of it
        self._taking.end(again(error))
        self._not_found(again(error))

    def on_event(self, link: HubLink, told: Told) -> None:
        """See Delivered."""
        self._attaching.on_event(link, told)

    def on_link_lost(self, link: HubLink) -> None:
        """See Delivered."""
        self._attaching.on_link_lost(link)

    # --- what is missing

    @property
    def gone(self) -> tuple[Gone, ...]:
        """Messages that were deleted before this subscription received them: the newest GONE_MAX ranges of ids.

        The subscription was to begin or continue with them, or a hub's limit deleted them while it was attached.
        Messages that the subscription's bound gave up are not among them, but with a filter or individual
        acknowledgement some may be messages that it did not want or had acknowledged. If the subscription starts at a
        time, some or all messages may be older than that (`maybe`). Apache's hubs report no new ranges.
        """
        return tuple(self._gone)

    def _note_gone(self, gone: Gone) -> None:
        # The hub names a range until something behind it is consumed, and it may have grown since.
        first = max(gone.first, LocalId(self._done.heard + 1), LocalId(self._gone_up_to + 1))
        gone = gone._replace(first=first)
        if gone.first > gone.last:
            return
        self._gone_up_to = gone.last
        if gone in self._gone:
            return  # before a seek
        self._gone.append(gone)
        if self._on_gone is not None:
            self._on_gone(gone)
        else:
            log.warn(
                "{gone} of topic {topic!r} were deleted before subscriber {subscriber!r} received them{remark}",
                gone=str(gone).capitalize(),
                topic=shown(self.topic),
                subscriber=shown(self.subscriber),
                remark="; some or all of them may be older than the time it begins at" if gone.maybe else "",
            )

    # --- what the hub says

    def on_messages(self, link: HubLink, messages: list[Received]) -> None:
        """See Delivered."""
        attached_to = self._attaching.link
        if self._closed or self._failure is not None or (attached_to is not None and link is not attached_to):
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
            self.on_failed(self._broken)

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
        attached_to = self._attaching.link
        if self._seeking is not None or (attached_to is not None and link is not attached_to):
            return
        which = "a message" if told.local_id is None else f"message {told.local_id}"
        past = "" if told.local_id is None else f", or begin behind it (start={told.local_id + 1})"
        self.on_failed(
            MessageTooLarge(
                f"{which} of topic {self.topic.decode(errors='replace')} is too large for this client: its frame has "
                f"{told.size:,} bytes, and max_message_size is {self._settings.frame_size_max:,}. Raise that to "
                f"{told.size} at least{past}. Nothing of it was consumed",
                told.local_id,
            )
        )

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
            return fail(again(self._failure))
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
        link = self._attaching.link
        if link is not None:  # else it comes again anyway
            self._say(link, said)

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
        link = self._attaching.link
        if link is not None:
            for said in self._done.to_tell():
                self._say(link, said)

    def _say(self, link: HubLink, said: MessageId) -> None:
        link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, said))

    # --- beginning again

    def seek(self, start: Start) -> Deferred[None]:
        """Begin again with a message, or at a time, back or forth: see hedwig.client.subscriptions.start.

        Fires once the hub has stored that. What was delivered before and not taken is let go of; what was taken counts
        for nothing any more. Where the message is not kept, it begins with the oldest that is: the first id says so.
        Fails as `receive`, and with InvalidArgument while another seek is under way.
        """
        if self._failure is not None:
            return fail(again(self._failure))
        if self._closed:
            return fail(ClientClosed("the subscription is closed"))
        if self._seeking is not None:
            return fail(InvalidArgument("another seek of this subscription is under way: wait for it"))
        try:
            wish = replay_option(start)
        except InvalidArgument as error:
            return fail(error)
        seeking = self._seeking = Deferred()
        self._taking.begin_anew()
        self._done.begin_anew()
        self._gone_up_to = NOTHING
        self._attaching.begin_elsewhere(wish)
        return seeking

    def _not_found(self, error: BookKeeperError) -> None:
        seeking, self._seeking = self._seeking, None
        if seeking is not None:
            seeking.errback(error)

    # --- the end

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
        self._attaching.ask_no_more()
        self._tell()
        if self._failure is None:
            self._on_closed(self)
        self._taking.end(ClientClosed("the subscription was closed"))
        self._not_found(ClientClosed("the subscription was closed"))
        self._read_again()
        self._taking.let_go()
        return self._attaching.let_go()
