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

Consumed is what `consume` says, or with `auto_consume` what was taken before the last call that takes. One request
tells many; what is not told yet is told on close, and again after the subscription moved. Thread: reactor.
Source: hedwig-protocol.md 2.3-2.5, 2.10, 2.13-2.17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, ClientClosed, InvalidArgument
from hedwig.client.asking import Asker
from hedwig.client.hubs import Hubs
from hedwig.client.link import HubLink
from hedwig.errors import TopicBusy
from hedwig.model import Event, HubAddress, LocalId, MessageId, Preferences, Status, SubscribeMode, SubscriberId, Topic
from hedwig.wire.receiving import Received
from hedwig.wire.requests import close_subscription_frame, consume_frame, subscribe_frame
from hedwig.wire.responses import Told

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

BUFFERED_MAX = 10_000
"""Messages that wait to be taken where there is no window; then the connection is not read."""

BUFFERED_BYTES_MAX = 64 * 1024 * 1024

TAKEN_AT_ONCE = 1_000


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
        self.auto_consume = auto_consume
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
        self._last_id = LocalId(0)  # given to the reader, or waiting for it
        self._last_seen: MessageId | None = None  # where some are filtered
        self._last_wanted = LocalId(0)
        self._taken_id: MessageId | None = None
        self._consumed: MessageId | None = None
        self._told_id = LocalId(0)
        self._timer: Any = None
        self._stopped_reading: HubLink | None = None
        self._failure: BookKeeperError | None = None
        self._closed = False

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
                self.topic, frame, self._connect, timeout_s=timeout_s, on_link=self._listen, again_on=busy
            )
        except BaseException:
            self._leave(None)
            raise
        if self._closed:
            self._let_go(link)
            raise ClientClosed("the subscription was closed meanwhile")
        if link.lost:
            self._moved(link)
            return
        self._attached, self._mode, self._force = True, SubscribeMode.ATTACH, False
        self._link, self._asked = link, None
        if answer.preferences is not None:
            self.preferences = answer.preferences
        self._told_id = LocalId(0)
        if self._consumed is not None:
            self._tell()

    async def _connect(self, address: HubAddress) -> HubLink:
        if not self._settings.shared_connections:
            return await self._hubs.dial(address)
        found = self._hubs.link(address, "subscribe")
        return found if isinstance(found, HubLink) else await found

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
        self._attaching = Deferred.fromCoroutine(self.attach(timeout_s=None))
        self._attaching.addBoth(self._was_attached)

    def _was_attached(self, result: Failure | None) -> None:
        self._attaching = None
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, CancelledError):
                assert isinstance(error, Exception)
                self._fail(error if isinstance(error, BookKeeperError) else ClientClosed(str(error)))
        elif self._link is None:
            self._again()

    def _moved(self, link: HubLink) -> None:
        if self._link is link:
            self._link = None
        if self._stopped_reading is link:
            self._stopped_reading = None
        self._hubs.forget(self.topic)
        self._again()

    # --- what the hub says

    def on_messages(self, link: HubLink, messages: list[Received]) -> None:
        """See Delivered."""
        if self._closed or self._failure is not None or (self._link is not None and link is not self._link):
            return
        if messages[0].local_id <= self._last_id:
            messages = [each for each in messages if each.local_id > self._last_id]
            if not messages:
                return
        self._last_id = messages[-1].local_id
        if self._wanted is not None:
            messages = self._filtered(self._wanted, messages)
            if not messages:
                return
        self._ready.extend(messages)
        self._ready_bytes += sum([len(each.body) for each in messages])
        if self._taking is not None and self._ready:
            taking, self._taking = self._taking, None
            taking.callback(self._take(self._taking_max))
        if len(self._ready) > BUFFERED_MAX or self._ready_bytes > BUFFERED_BYTES_MAX:
            self._stopped_reading = link
            link.pause()

    def _filtered(self, wanted: Callable[[Received], bool], messages: list[Received]) -> list[Received]:
        """Those for the reader. The others are consumed with the last one before them."""
        self._last_seen = messages[-1].id
        messages = [each for each in messages if wanted(each)]
        if messages:
            self._last_wanted = messages[-1].local_id
        elif self._last_wanted <= (0 if self._consumed is None else self._consumed.local):
            self._set_consumed(self._last_seen)
        return messages

    def on_event(self, link: HubLink, told: Told) -> None:
        """See Delivered."""
        if link is not self._link:
            return
        link.subscriptions.pop((self.topic, self.subscriber), None)
        if told.event is Event.SUBSCRIPTION_FORCED_CLOSED:
            self._link = None
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

    def receive(self, count_max: int = TAKEN_AT_ONCE) -> Deferred[list[Received]]:
        """The next messages, at least one, as soon as there are any. One call at a time; a cancelled one takes nothing.

        With auto_consume everything taken before is consumed now. Fails with TopicBusy where another client took the
        subscription, NotSubscribed where it was ended, ClientClosed after `close`.
        """
        if count_max < 1:
            return fail(InvalidArgument(f"count_max must be at least 1, not {count_max}"))
        if self._taking is not None:
            return fail(InvalidArgument("another receive of this subscription is under way: wait for it"))
        if self.auto_consume and self._taken_id is not None:
            self._set_consumed(self._taken_id)
        if self._ready:
            return succeed(self._take(count_max))
        if self._failure is not None:
            return fail(self._failure)
        if self._closed:
            return fail(ClientClosed("the subscription is closed"))
        self._taking_max = count_max
        self._taking = Deferred(self._not_taking)
        return self._taking

    def _not_taking(self, taking: Deferred[list[Received]]) -> None:
        if self._taking is taking:
            self._taking = None

    def _take(self, count_max: int) -> list[Received]:
        ready = self._ready
        if len(ready) <= count_max:
            taken = list(ready)
            ready.clear()
            self._ready_bytes = 0
        else:
            taken = [ready.popleft() for _ in range(count_max)]
            self._ready_bytes -= sum([len(each.body) for each in taken])
        self._taken_id = taken[-1].id
        stopped = self._stopped_reading
        if stopped is not None and len(ready) <= BUFFERED_MAX // 2 and self._ready_bytes <= BUFFERED_BYTES_MAX // 2:
            self._stopped_reading = None
            stopped.resume()
        return taken

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            try:
                batch = await self.receive()
            except ClientClosed:
                if self._closed:
                    return
                raise
            for message in batch:
                yield message

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
        settings = self._settings
        window = self.preferences.window_size
        every = settings.consume_every if not window else max(1, min(settings.consume_every, window // 4))
        if message_id.local - max(self._told_id, 0) >= every:
            self._tell()
        elif self._timer is None:
            self._timer = self._clock.callLater(settings.consume_delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._tell()

    def _tell(self) -> None:
        consumed, link = self._consumed, self._link
        if consumed is None or link is None or consumed.local <= self._told_id:
            return
        self._told_id = consumed.local
        link.tell(lambda txn_id: consume_frame(txn_id, self.topic, self.subscriber, consumed))

    # --- the end

    def _fail(self, error: BookKeeperError) -> None:
        if self._failure is not None or self._closed:
            return
        self._failure = error
        self._on_closed(self)
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.errback(error)

    def close(self) -> Deferred[None]:
        """Tell what is consumed and let go; the subscription stays, and what was not consumed comes again."""
        if self._closed:
            return succeed(None)
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attaching is not None:
            self._attaching.cancel()
        taken, consumed = self._taken_id, self._consumed
        if self.auto_consume and taken is not None and (consumed is None or taken.local > consumed.local):
            self._consumed = taken
        self._tell()
        taking, self._taking = self._taking, None
        if self._failure is None:
            self._on_closed(self)
        if taking is not None:
            taking.errback(ClientClosed("the subscription was closed"))
        link, self._link = self._link, None
        stopped, self._stopped_reading = self._stopped_reading, None
        if stopped is not None:
            stopped.resume()
        self._ready.clear()
        if link is None or link.lost:
            return succeed(None)
        return self._let_go(link)

    def _let_go(self, link: HubLink) -> Deferred[None]:
        link.subscriptions.pop((self.topic, self.subscriber), None)
        if not self._settings.shared_connections:
            link.close()
            return succeed(None)
        closing = _Closing()
        link.ask(lambda txn_id: close_subscription_frame(txn_id, self.topic, self.subscriber), closing)
        return closing.done

    def _drop(self, link: HubLink) -> None:
        if not self._settings.shared_connections:
            link.close()


class _Closing:
    """A CLOSESUBSCRIPTION: whatever is answered, it is closed."""

    def __init__(self) -> None:
        self.done: Deferred[None] = Deferred()

    def on_answer(self, link: HubLink, answer: object) -> None:
        """Closed."""
        self.done.callback(None)

    def on_unknown(self, link: HubLink, error: object) -> None:
        """Closed by the connection's end."""
        self.done.callback(None)
