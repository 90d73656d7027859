"""The client of hubs without Deferreds, coroutines or reactors: for scripts, command lines and threads.

    with hedwig.blocking.connect("localhost:4080") as client:
        client.publish("topic", b"body")
        with client.subscribe("topic", "me") as messages:
            for message in messages:
                print(message.id, message.body)

A daemon thread runs a private reactor. Crossing over to it and back costs about 0.1 ms, so batches are the way:
`publish_many`, `publish_soon` (which does not wait, unless too many are unanswered), and iterating, which takes what is
there with one crossing. Iterating tells nothing itself: it notes the message whose turn is over, which the reactor's
thread looks at every `consume_delay_s`.

Any thread may call, except the client's own, which runs `wanted` and the functions passed to `run`: a call there would
wait for itself, and raises WrongThread. Callbacks of futures, `on_waiting` and `on_gone` run on another thread, and may
call the client. A subscription is for one thread at a time. Ctrl-C interrupts the waiting, and loses nothing. After a
fork the child process has no such thread: its calls raise ClientClosed, as do calls while the interpreter exits. A
client that is dropped without `close`, together with its publishers and subscriptions, gives a ResourceWarning and ends
its connections.

Dropping or closing a generator that is inside a `with` block of a client or a subscription waits for nothing. The
subscription is closed soon afterwards; `close` of its client waits for that, at most 10 s.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import BlockingFace
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.errors import BookKeeperError, ClientClosed, InvalidArgument
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.connecting import HubNames, connect_to, shown
from hedwig.client.faces.shared import HubFace, PublisherFace, SubscriptionFace, publisher_of
from hedwig.client.faces.values import (
    ID_MAX,
    Of,
    Text,
    bodies_of,
    id_of,
    number_of,
    properties_of,
    seconds_of,
    subscriber_of,
    topic_of,
)
from hedwig.client.subscriptions.start import Start, replay_option
from hedwig.client.subscriptions.subscription import DELAY_S_MAX, TAKEN_AT_ONCE, Subscription
from hedwig.client_config import HedwigClientSettings
from hedwig.model import Gone, MessageId, Preferences, SubscribeMode
from hedwig.wire.receiving import Received

T = TypeVar("T")

__all__ = ["BlockingClient", "BlockingPublisher", "BlockingSubscription", "connect"]


def connect(
    hubs: HubNames = None,
    settings: HedwigClientSettings | None = None,
    *,
    on_waiting: Callable[[str], object] | None = None,
) -> BlockingClient:
    """A client of the hubs at "host:port", or "host:port:sslport"; several with commas, or as a list. One is enough,
    as long as it runs: it names the others.

    settings: the defaults if None; `load_hedwig_client` reads them from a file and the environment, which are not
    looked at here. hubs: those of the settings if None. on_waiting: told for what, where a call waits for more than
    some seconds; on a thread where it may call the client.
    Raises ConfigurationError, ConnectFailed.
    """
    crossing = ReactorThread()
    waiting = _on_callback_thread(crossing, on_waiting)
    try:
        client = crossing.run(
            lambda: Deferred.fromCoroutine(
                connect_to(hubs, crossing.reactor, settings, resolve=crossing.resolve, on_waiting=waiting)
            )
        )
    except BaseException:
        crossing.stop()
        raise
    crossing.owned_by(f"BlockingClient of {shown(hubs)}", client.close)
    return BlockingClient(client, crossing)


def _on_callback_thread(
    crossing: ReactorThread, callback: Callable[[T], object] | None
) -> Callable[[T], object] | None:
    """Return a callback for the reactor's thread that runs `callback` on a thread where it may call the client."""
    if callback is None:
        return None
    aside, call = crossing.aside, callback
    return lambda argument: aside(partial(call, argument))


class BlockingClient(BlockingFace, HubFace):
    """One client of one region's hubs. A context manager. Thread: any but the client's own."""

    def __init__(self, client: PubSubClient, crossing: ReactorThread) -> None:
        self._client, self._crossing = client, crossing
        self._soon = _Handover(client, crossing)
        self._closed = False

    def run(self, start: Callable[[PubSubClient], Deferred[T]]) -> T:
        """Run `start(client)` on the client's own thread and wait for its Deferred: for what this face has no call for.

        `start` must not call this face: that raises WrongThread.
        """
        return self._crossing.run(lambda: start(self._client))

    def publisher(
        self,
        topic: Text,
        *,
        message_type: str | None = None,
        producer: Text | None = None,
        first: int = 1,
        keep_s: float | None = None,
    ) -> BlockingPublisher:
        """Publishes to one topic; cheaper than naming it each time. Raises MalformedRequest for an impossible name.

        producer: each message is stored once, in the order of calls, whatever becomes of hubs and connections; a name
        of its own, or "" for a random one. After a restart a program may go on under its name, with first: the number
        of its next message, which is how many it has published so far plus one, or less (hedwig.client.publish_once).

        keep_s: seconds for which hubs keep all messages of the topic, consumed or not; 0: only while subscriptions need
        them. Durable with the first message that is published here, and valid for the topic until another value is
        set. None: unchanged, at first as the hubs are configured. Limits of the hubs may be shorter; Apache's hubs
        ignore it silently.
        """
        publisher = self._crossing.call(
            lambda: publisher_of(self._client, topic, message_type, producer, first, keep_s)
        )
        return BlockingPublisher(publisher, self._crossing, self._soon)

    def publish(self, topic: Text, body: Text, properties: Mapping[str, Text] | None = None) -> MessageId:
        """Publish one message; its id, once it is durable. See BlockingPublisher."""
        return self._of(topic).publish(body, properties)

    def publish_many(
        self, topic: Text, bodies: Sequence[Text], properties: Mapping[str, Text] | None = None
    ) -> list[MessageId]:
        """Publish several, in their order. See BlockingPublisher."""
        return self._of(topic).publish_many(bodies, properties)

    def publish_soon(self, topic: Text, body: Text, properties: Mapping[str, Text] | None = None) -> Future[MessageId]:
        """Have one message published, and go on. See BlockingPublisher."""
        return self._of(topic).publish_soon(body, properties)

    def _of(self, topic: Text) -> BlockingPublisher:
        """Without looking at the name: the publish does."""
        return BlockingPublisher(Publisher(self._client, topic_of(topic)), self._crossing, self._soon)

    def flush(self) -> None:
        """Wait until everything published before is answered or has failed."""
        self._crossing.run(self._client.flush)

    def subscribe(
        self,
        topic: Text,
        subscriber: Text,
        mode: SubscribeMode = SubscribeMode.CREATE_OR_ATTACH,
        *,
        preferences: Preferences | None = None,
        force: bool = False,
        auto_consume: bool | None = None,
        wanted: Callable[[Received], bool] | None = None,
        start: Start | None = None,
        on_gone: Callable[[Gone], object] | None = None,
    ) -> BlockingSubscription:
        """Make or attach a subscription: it goes on behind what it has consumed, a new one begins with what is
        published from now on.

        preferences: among them the filter that the hub runs (`hedwig.filters.with_expression`). force: take it from a
        client that has it. auto_consume: what was taken counts as consumed when the next is asked for; with False
        `consume` says so. wanted: messages for which it is false are passed over, and consumed, in this process; it is
        called on the client's own thread, where a call of the client raises WrongThread. start: begin there instead: a
        message, its id, or a time (`seek`). on_gone: called with each range of messages that were deleted before this
        subscription received them (`gone`), on a thread where it may call the client; None: log a warning.
        Raises AlreadySubscribed, NotSubscribed, TopicBusy, InvalidFilter, MalformedRequest, ServiceDown.
        """
        name, who = topic_of(topic), subscriber_of(subscriber)
        gone = _on_callback_thread(self._crossing, on_gone)
        made: list[Subscription] = []

        def subscribe() -> Deferred[None]:
            subscribing = self._client.subscribe(
                name,
                who,
                mode,
                preferences=preferences,
                force=force,
                auto_consume=auto_consume,
                wanted=wanted,
                start=start,
                on_gone=gone,
            )
            return subscribing.addCallback(made.append)

        try:
            self._crossing.run(subscribe)
        except BookKeeperError:
            raise
        except BaseException:  # an interrupt may come when it was made, and nobody has it
            self._crossing.post(lambda: [each.close() for each in made])
            raise
        return BlockingSubscription(made[0], self._crossing)

    def unsubscribe(self, topic: Text, subscriber: Text) -> None:
        """End a subscription for good: what it has not consumed is not kept for it. Raises NotSubscribed."""
        name, who = topic_of(topic), subscriber_of(subscriber)
        self._crossing.run(lambda: self._client.unsubscribe(name, who))

    def close(self) -> None:
        """Wait for what is published, tell what is consumed, end all connections and the thread.

        Harmless when repeated. Interrupted, it ends them at once.
        """
        if self._closed:
            return
        self._crossing.check()
        self._closed = True
        try:
            self._crossing.close_in_order(self._client.close)
        finally:
            self.end()

    def end(self) -> None:
        """End all connections and the thread at once: what is on its way is not waited for. Harmless when repeated."""
        self._closed = True
        self._crossing.stop()
        self._soon.end()

    def _abandon(self) -> None:
        self._closed = True
        self._crossing.abandon(self._soon.end)


class _Published(Future[MessageId]):
    """The future of a publish. Its callbacks may call the client: they never run on the client's own thread."""

    def __init__(self, handover: _Handover) -> None:
        super().__init__()
        self._handover = handover

    def add_done_callback(self, fn: Callable[[Future[MessageId]], object]) -> None:
        """See Future.add_done_callback."""
        super().add_done_callback(lambda future: self._handover.call_back(fn, future))


class _Handover:
    """Publishes on their way to the reactor's thread: many with one crossing, never more than the settings allow.

    The bounds are those of a topic, for all topics together. Callbacks of futures that have not run yet are bounded
    likewise, except for publishes that a callback makes.
    """

    def __init__(self, client: PubSubClient, crossing: ReactorThread) -> None:
        self._crossing = crossing
        self._count_max = client.settings.outstanding_max
        self._bytes_max = client.settings.outstanding_bytes_max
        self._callbacks: deque[None] = deque()  # not run yet, or running
        self._callbacks_ident = 0
        self._changed = threading.Condition()  # of all below
        self._waiting: list[tuple[Publisher, bytes, Mapping[str, bytes], Future[MessageId]]] = []
        self._unanswered: dict[Future[MessageId], int] = {}
        self._bytes = 0
        self._planned = self._ended = self._callback_waits = False

    def submit(self, publisher: Publisher, body: bytes, properties: Mapping[str, bytes]) -> Future[MessageId]:
        """Wait for room, and hand over."""
        self._crossing.check()
        future = _Published(self)
        with self._changed:
            while not self._ended and (
                len(self._unanswered) >= self._count_max
                or (self._bytes >= self._bytes_max and self._unanswered)
                or (len(self._callbacks) >= self._count_max and threading.get_ident() != self._callbacks_ident)
            ):
                if threading.get_ident() == self._callbacks_ident:
                    self._callback_waits = True
                self._changed.wait()
            if self._ended:
                raise ClientClosed("the client is closed; connect again")
            future.set_running_or_notify_cancel()  # it cannot be cancelled: it may have left already
            self._unanswered[future] = len(body)
            self._bytes += len(body)
            self._waiting.append((publisher, body, properties, future))
            planned, self._planned = self._planned, True
        if not planned:
            self._crossing.post(self._take)
        return future

    def call_back(self, fn: Callable[[Future[MessageId]], object], future: Future[MessageId]) -> None:
        """Call a future's callback: on this thread, or on the thread for callbacks if this is the reactor's."""
        if not self._crossing.is_current:
            fn(future)
            return

        def call() -> None:
            self._callbacks_ident = threading.get_ident()
            try:
                fn(future)
            finally:
                self._callbacks.pop()
                if len(self._callbacks) == self._count_max - 1:
                    with self._changed:
                        self._changed.notify_all()

        self._callbacks.append(None)
        self._crossing.aside(call)

    def _take(self) -> None:
        """Thread: reactor."""
        with self._changed:
            waiting, self._waiting = self._waiting, []
            self._planned = False
        for publisher, body, properties, future in waiting:
            publisher.publish(body, properties).addBoth(self._told, future)

    def _told(self, result: MessageId | Failure, future: Future[MessageId]) -> None:
        with self._changed:
            size = self._unanswered.pop(future, None)
            if size is None:
                return
            self._bytes -= size
            if self._callback_waits:  # the first waiter may also wait for callbacks to end
                self._callback_waits = False
                self._changed.notify_all()
            else:
                self._changed.notify()
        _tell(future, result)

    def end(self) -> None:
        """The thread has ended: what was not told will not be."""
        with self._changed:
            self._ended = True
            unanswered, self._unanswered = self._unanswered, {}
            self._changed.notify_all()
        for future in unanswered:
            future.set_exception(ClientClosed("the client was closed before a hub answered"))


def _tell(future: Future[MessageId], result: Any) -> None:
    if isinstance(result, Failure):
        future.set_exception(result.value)
    else:
        future.set_result(result)


class BlockingPublisher(PublisherFace):
    """Publishes to one topic, in the order of calls; those of one client share that order.

    Thread: any but the client's own.
    """

    def __init__(self, publisher: Publisher, crossing: ReactorThread, soon: _Handover) -> None:
        super().__init__(publisher)
        self._crossing, self._soon = crossing, soon

    def publish(self, body: Text, properties: Mapping[str, Text] | None = None) -> MessageId:
        """Publish one message; its id, once it is durable.

        Raises MalformedRequest for what no hub takes, ServiceDown where none took it in time, UncertainState where it
        may have been stored or not, ClientClosed.
        """
        message = self._message(body, properties)
        return self._crossing.run(lambda: self._publisher.publish(*message))

    def publish_many(self, bodies: Sequence[Text], properties: Mapping[str, Text] | None = None) -> list[MessageId]:
        """Publish several, in their order; their ids once all are durable.

        Raises the error of the first that failed; others may have been stored.
        """
        messages, header = bodies_of(bodies), properties_of(properties)
        return self._crossing.run(lambda: self._publisher.publish_many(messages, header))

    def publish_soon(self, body: Text, properties: Mapping[str, Text] | None = None) -> Future[MessageId]:
        """Have one message published, and go on; the future has its id, or the error of `publish`.

        Waits only while `max_outstanding_publishes` (of all topics) are unanswered, or while as many callbacks of
        futures have not run. Callbacks run one after the other, on a thread where they may call the client. A callback
        must not wait for another thread's `publish_soon`, which may wait for that callback.
        """
        return self._soon.submit(self._publisher, *self._message(body, properties))


class BlockingSubscription(SubscriptionFace):
    """A subscription that this client holds: iterate over it, or `receive` several at a time. For one thread at a time.

    Each message comes once, in the topic's order, whatever happens to hubs meanwhile; another client, or this one after
    `close`, gets again what was not consumed.
    """

    def __init__(self, subscription: Subscription, crossing: ReactorThread) -> None:
        super().__init__(subscription)
        self._crossing = crossing
        self._here: deque[Received] = deque()  # taken over, and not given to anybody yet
        self._current: Received | None = None
        self._given: Received | None = None
        self._closed = False
        window = subscription.preferences.window_size
        # Part of the window: the rest is on its way meanwhile.
        self._batch = min(TAKEN_AT_ONCE, max(1, window // 4)) if window else TAKEN_AT_ONCE
        if subscription.individual:
            self._batch = 1  # what was taken and not looked at would not be for others when its hub is gone

    def __iter__(self) -> BlockingSubscription:
        return self

    def __next__(self) -> Received:
        """The next message. With auto_consume the one before is consumed now, and not before."""
        if self._crossing.is_current:
            self._crossing.check()
        self._note_over()
        if not self._here:
            try:
                self._fetch(self._batch, None)
            except ClientClosed:
                if self._closed or self._subscription.closed:
                    raise StopIteration from None
                raise
        self._current = message = self._here.popleft()
        return message

    def receive(self, count_max: int = TAKEN_AT_ONCE, timeout_s: float | None = None) -> list[Received]:
        """The next messages: all that are here, at most count_max, as soon as there is one; none after timeout_s.

        With auto_consume they count as consumed with the next call, or `close`.
        Raises what ended the subscription: TopicBusy where another client took it, NotSubscribed, ClientClosed.
        """
        self._crossing.check()
        self._note_over()
        here = self._here
        number_of(count_max, "count_max", 1, ID_MAX)
        if not here:
            self._fetch(count_max, timeout_s)
        taken = [here.popleft() for _ in range(min(count_max, len(here)))]
        if taken:
            self._given = taken[-1]
        return taken

    def _note_over(self) -> None:
        """What was given before is over; the reactor's thread looks at it now and then."""
        over = self._current or self._given
        if over is not None:
            self._subscription.finished = over
            self._current = self._given = None

    def _fetch(self, count_max: int, timeout_s: float | None) -> None:
        def fetch() -> Deferred[None]:
            # Kept from the reactor's thread: an interrupt of the waiting loses nothing.
            return self._subscription.receive(count_max, timeout_s, counts=False).addCallback(self._here.extend)

        self._crossing.run(fetch)

    def consume(self, message: Of) -> None:
        """Everything up to this message is done, and is not delivered again; no more than was delivered, whatever its
        id. Told soon, with others; does not wait. Raises InvalidArgument for what is no message.
        """
        message_id = id_of(message, "message")
        self._post(lambda: self._subscription.consume(message_id))

    def ack(self, message: Of) -> None:
        """Acknowledge one message of a subscription with preferences=one_by_one()."""
        self._check_individual("ack")
        message_id = id_of(message, "message")
        self._post(lambda: self._subscription.ack(message_id))

    def nack(self, message: Of, delay_s: float = 0.0) -> None:
        """Of the same: this message is not done, and comes again after a while, here or elsewhere."""
        self._check_individual("nack")
        seconds_of(delay_s, "delay_s", DELAY_S_MAX)
        message_id = id_of(message, "message")
        self._post(lambda: self._subscription.nack(message_id, delay_s))

    def _post(self, call: Callable[[], object]) -> None:
        self._crossing.check_process()
        self._crossing.post(call)

    def _check_individual(self, what: str) -> None:
        if not self._subscription.individual:
            raise InvalidArgument(f"{what}: subscribe with preferences=one_by_one(); this one is consumed in order")

    def seek(self, start: Start) -> None:
        """Begin again with a message, or what was published at a time or later; 1 is the oldest that is kept. Where
        there is no such message yet: with the next one that is published.
        """
        replay_option(start)  # refused here, nothing has changed
        self._current = self._given = None

        def seek() -> Deferred[None]:
            self._here.clear()  # here: an interrupted `receive` may still have filled it before
            return self._subscription.seek(start)

        self._crossing.run(seek)

    def close(self) -> None:
        """Tell what is consumed and let go. The subscription stays, and messages are kept for it."""
        if not self._closed:
            self._crossing.check()
            self._let_go(None)

    def _let_go(self, kind: type[BaseException] | None) -> None:
        """kind: see ReactorThread.leave."""
        self._closed = True
        if self._given is not None:
            self._subscription.finished = self._given
        self._here.clear()
        with suppress(ClientClosed):  # then it was let go with the client
            self._crossing.leave(kind, self._subscription.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._given = None
        if kind is not GeneratorExit:
            self.close()
        elif not self._closed:
            self._let_go(kind)
