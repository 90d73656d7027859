"""The client of hubs for plain asyncio programs.

    async with await hedwig.connect("localhost:4080") as client:
        await client.publish("topic", b"body")
        async with await client.subscribe("topic", "me") as messages:
            async for message in messages:
                print(message.id, message.body)

A thin layer over `client.client`: every call makes the core's Deferred and awaits it as a future of the running loop;
its exceptions pass unchanged. Cancelling a call cancels the waiting: a publish that was taken may still happen, and
messages that arrived at that moment are there for the next call. All calls must be made in the event loop and on the
thread of `connect`; others raise WrongLoop. A client that was not closed gives a ResourceWarning; its connections end
when it is collected, or with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.faces.loop_reactor import ClientLoop, resolve
from bookkeeper.errors import ClientClosed
from hedwig.client.client import Publisher, PubSubClient
from hedwig.client.connecting import HubNames, connect_to, shown
from hedwig.client.faces.shared import HubFace, PublisherFace, SubscriptionFace, publisher_of
from hedwig.client.faces.values import Of, Text, bodies_of, properties_of, subscriber_of, topic_of
from hedwig.client.subscriptions.start import Start
from hedwig.client.subscriptions.subscription import TAKEN_AT_ONCE, Subscription
from hedwig.client_config import HedwigClientSettings
from hedwig.model import Gone, MessageId, Preferences, SubscribeMode
from hedwig.wire.receiving import Received

T = TypeVar("T")

__all__ = ["AsyncClient", "AsyncPublisher", "AsyncSubscription", "connect"]


async def _result_of(loop: ClientLoop, start: Callable[[], Deferred[T]], not_wanted: Callable[[T], object]) -> T:
    """Return the result of `start()`. not_wanted: called with a result that arrives after the call was cancelled."""
    loop.check()
    deferred = start()
    future: asyncio.Future[T] = loop.loop.create_future()

    # Not `asFuture`: something may come between the cancelling of a future and the turn that learns of it.
    def arrived(result: T) -> None:
        if future.cancelled():
            not_wanted(result)
        else:
            future.set_result(result)

    def failed(failure: Failure) -> None:
        if not future.cancelled() and failure.value is not None:
            future.set_exception(failure.value)

    deferred.addCallbacks(arrived, failed)
    try:
        return await future
    except asyncio.CancelledError:
        deferred.cancel()
        if future.done() and not future.cancelled() and future.exception() is None:
            not_wanted(future.result())
        raise


async def connect(
    hubs: HubNames = None,
    settings: HedwigClientSettings | None = None,
    *,
    on_waiting: Callable[[str], object] | None = None,
) -> AsyncClient:
    """A client of the hubs at "host:port", or "host:port:sslport"; several with commas, or as a list. One is enough,
    as long as it runs: it names the others.

    settings: the defaults if None; `load_hedwig_client` reads them from a file and the environment, which are not
    looked at here. hubs: those of the settings if None. on_waiting: told for what, where a call waits for more than
    some seconds.
    Fails with ConfigurationError, ConnectFailed.
    """
    loop = ClientLoop()
    try:
        client = await loop.run(
            lambda: Deferred.fromCoroutine(
                connect_to(hubs, loop.reactor, settings, resolve=resolve, on_waiting=on_waiting)
            )
        )
    except BaseException:
        loop.abandon()
        raise
    await loop.owned_by(f"AsyncClient of {shown(hubs)}", partial(_let_go, client))
    return AsyncClient(client, loop)


def _let_go(client: PubSubClient) -> Deferred[None]:
    closing = client.close()
    return closing.addBoth(lambda _: client.abandon())


class AsyncClient(HubFace):
    """One client of one region's hubs, in one asyncio loop."""

    def __init__(self, client: PubSubClient, loop: ClientLoop) -> None:
        self._client, self._loop = client, loop
        self._closed = False

    def publisher(
        self,
        topic: Text,
        *,
        message_type: str | None = None,
        producer: Text | None = None,
        first: int = 1,
        keep_s: float | None = None,
    ) -> AsyncPublisher:
        """Publishes to one topic; cheaper than naming it each time. Raises MalformedRequest for an impossible name.

        producer: each message is stored once, in the order of calls, whatever becomes of hubs and connections; a name
        of its own, or "" for a random one. After a restart a program may go on under its name, with first: the number
        of its next message, which is how many it has published so far plus one, or less (hedwig.client.publish_once).

        keep_s: seconds for which hubs keep all messages of the topic, consumed or not; 0: only while subscriptions need
        them. Durable with the first message that is published here, and valid for the topic until another value is
        set. None: unchanged, at first as the hubs are configured. Limits of the hubs may be shorter; Apache's hubs
        ignore it silently.
        """
        self._loop.check()
        return AsyncPublisher(publisher_of(self._client, topic, message_type, producer, first, keep_s), self._loop)

    async def publish(self, topic: Text, body: Text, properties: Mapping[str, Text] | None = None) -> MessageId:
        """Publish one message; its id, once it is durable. See AsyncPublisher."""
        return await self.publisher(topic).publish(body, properties)

    async def publish_many(
        self, topic: Text, bodies: Sequence[Text], properties: Mapping[str, Text] | None = None
    ) -> list[MessageId]:
        """Publish several, in their order. See AsyncPublisher."""
        return await self.publisher(topic).publish_many(bodies, properties)

    async def publish_soon(
        self, topic: Text, body: Text, properties: Mapping[str, Text] | None = None
    ) -> asyncio.Future[MessageId]:
        """Have one message published, and go on. See AsyncPublisher."""
        return await self.publisher(topic).publish_soon(body, properties)

    async def flush(self) -> None:
        """Wait until everything published before is answered or has failed."""
        await self._loop.run(self._client.flush)

    async def subscribe(
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
    ) -> AsyncSubscription:
        """Make or attach a subscription: it goes on behind what it has consumed, a new one begins with what is
        published from now on.

        preferences: among them the filter that the hub runs (`hedwig.filters.with_expression`). force: take it from a
        client that has it. auto_consume: what was taken counts as consumed when the next is asked for; with False
        `consume` says so. wanted: messages for which it is false are passed over, and consumed, in this process.
        start: begin there instead: a message, its id, or a time (`seek`). on_gone: called with each range of messages
        that were deleted before this subscription received them (`gone`); None: log a warning.
        Fails with AlreadySubscribed, NotSubscribed, TopicBusy, InvalidFilter, MalformedRequest, ServiceDown.
        """
        subscribe = partial(
            self._client.subscribe,
            topic_of(topic),
            subscriber_of(subscriber),
            mode,
            preferences=preferences,
            force=force,
            auto_consume=auto_consume,
            wanted=wanted,
            start=start,
            on_gone=on_gone,
        )
        made = await _result_of(self._loop, subscribe, lambda subscription: subscription.close())
        return AsyncSubscription(made, self._loop)

    async def unsubscribe(self, topic: Text, subscriber: Text) -> None:
        """End a subscription for good: what it has not consumed is not kept for it. Fails with NotSubscribed."""
        await self._loop.run(self._client.unsubscribe, topic_of(topic), subscriber_of(subscriber))

    async def close(self) -> None:
        """Wait for what is published, tell what is consumed, end all connections. Harmless when repeated.

        Cancelled, it ends them at once.
        """
        if self._closed:
            return
        self._loop.check()
        self._closed = True
        try:
            await self._loop.run(self._client.close)
        finally:
            self._client.abandon()
            await self._loop.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncPublisher(PublisherFace):
    """Publishes to one topic, in the order of calls; those of one client share that order."""

    __slots__ = ("_loop",)

    def __init__(self, publisher: Publisher, loop: ClientLoop) -> None:
        super().__init__(publisher)
        self._loop = loop

    async def publish(self, body: Text, properties: Mapping[str, Text] | None = None) -> MessageId:
        """Publish one message; its id, once it is durable. Waits for room before, where too many are unanswered.

        Fails with MalformedRequest for what no hub takes, ServiceDown where none took it in time, UncertainState where
        it may have been stored or not, ClientClosed.
        """
        return await (await self.publish_soon(body, properties))

    async def publish_soon(self, body: Text, properties: Mapping[str, Text] | None = None) -> asyncio.Future[MessageId]:
        """Have one message published once there is room, and go on; the future has its id, or the error of `publish`.

        Cancelled before there is room, nothing is published.
        """
        self._loop.check()
        room, done = self._publisher.publish_soon(*self._message(body, properties))
        if not room.called:
            try:
                await room.asFuture(self._loop.loop)
            except asyncio.CancelledError:
                done.addErrback(lambda _: None)  # nobody asks what became of it
                raise
        return done.asFuture(self._loop.loop)

    async def publish_many(
        self, bodies: Sequence[Text], properties: Mapping[str, Text] | None = None
    ) -> list[MessageId]:
        """Publish several, in their order; their ids once all are durable.

        Fails with the error of the first that failed; others may have been stored.
        """
        return await self._loop.run(self._publisher.publish_many, bodies_of(bodies), properties_of(properties))


class AsyncSubscription(SubscriptionFace):
    """A subscription that this client holds: iterate over it, or `receive` several at a time.

    Each message comes once, in the topic's order, whatever happens to hubs meanwhile; another client, or this one after
    `close`, gets again what was not consumed.
    """

    def __init__(self, subscription: Subscription, loop: ClientLoop) -> None:
        super().__init__(subscription)
        self._loop = loop

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> Received:
        """The next message. With auto_consume the one before is consumed now, and not before."""
        self._loop.check()
        message = self._subscription.next_now()
        if message is None:
            try:
                [message] = await self._take(1, None, counts=False)
            except ClientClosed:
                if self._subscription.closed:
                    raise StopAsyncIteration from None
                raise
            self._subscription.begin(message)
        return message

    async def receive(self, count_max: int = TAKEN_AT_ONCE, timeout_s: float | None = None) -> list[Received]:
        """The next messages: all that are here, at most count_max, as soon as there is one; none after timeout_s.

        With auto_consume they count as consumed with the next call, or `close`.
        Fails with what ended the subscription: TopicBusy where another client took it, NotSubscribed, ClientClosed.
        """
        return await self._take(count_max, timeout_s, counts=True)

    async def _take(self, count_max: int, timeout_s: float | None, *, counts: bool) -> list[Received]:
        subscription = self._subscription
        receive = partial(subscription.receive, count_max, timeout_s, counts=counts)
        return await _result_of(self._loop, receive, subscription.give_back)

    def consume(self, message: Of) -> None:
        """Everything up to this message is done, and is not delivered again; no more than was delivered, whatever its
        id. Told soon, with others. Raises InvalidArgument for what is no message.
        """
        self._loop.check()
        self._subscription.consume(message)

    def ack(self, message: Of) -> None:
        """Acknowledge one message of a subscription with preferences=one_by_one()."""
        self._loop.check()
        self._subscription.ack(message)

    def nack(self, message: Of, delay_s: float = 0.0) -> None:
        """Of the same: this message is not done, and comes again after a while, here or elsewhere."""
        self._loop.check()
        self._subscription.nack(message, delay_s)

    async def seek(self, start: Start) -> None:
        """Begin again with a message, or what was published at a time or later; 1 is the oldest that is kept. Where
        there is no such message yet: with the next one that is published.
        """
        await self._loop.run(self._subscription.seek, start)

    async def close(self) -> None:
        """Tell what is consumed and let go. The subscription stays, and messages are kept for it."""
        await self._loop.run(self._subscription.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.check()
        if error is not None:
            self._subscription.forget_taken()
        await self.close()
