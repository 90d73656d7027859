"""One topic's messages from one other region: subscribed to there, stored here in their order, consumed there then.

    Feed --SUBSCRIBE, later UNSUBSCRIBE--> OtherRegion: its hubs' client, how many ask at once, when to try again
      |
      +--messages that are not stored yet--> Sink: the topic that is served here

A feed does one thing at a time, and is told what it is to come to (`receive`, `leave`, `end`): what it waits for is
cancelled then, but for requests that were sent, as an UNSUBSCRIBE must not change places with a SUBSCRIBE. See
`hedwig.hub.regions.sources` for the rest. Thread: reactor.
"""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, RemoteProtocolError, again
from hedwig.client.client import PubSubClient
from hedwig.client.subscriptions.subscription import Subscription
from hedwig.errors import (
    MalformedRequest,
    NotResponsible,
    NotSubscribed,
    PubSubError,
    ServiceDown,
    UnexpectedCondition,
)
from hedwig.model import HubAddress, LocalId, MessageId, Topic
from hedwig.names import shown
from hedwig.protocol.options import KEEP, KEEP_MS_MAX, number_of
from hedwig.wire.receiving import Received

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer
    from hedwig.hub.regions.sources import Regions
    from hedwig.hub.topics.log import OnDone

log = Logger()

T = TypeVar("T")

_KEEP = KEEP.encode()

JOIN_TIMEOUT_S = 15.0
"""A subscribe waits so long for another region, at most: an attempt may be under way, and the next one counts."""

JOINS_AT_ONCE = 200
"""Requests to one region that are under way; those of other topics wait."""

STORED_AT_ONCE = 256
STORED_BYTES_AT_ONCE = 1 << 20
"""Messages, and bytes of them, that wait to be durable: publishers here are not to wait for other regions."""


STORE_FAILURES_MAX = 3
"""So many count for the pause: it is this hub that has no room, which is over sooner than a region's outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """addresses: of a hub of each other region, or of what stands before its hubs. retry_min_s, retry_max_s: between
    attempts at one topic, growing.
    """

    addresses: tuple[HubAddress, ...]
    retry_min_s: float = 1.0
    retry_max_s: float = 120.0


class Sink(Protocol):
    """A topic that is served here."""

    @property
    def topic(self) -> Topic:
        """Its name."""

    @property
    def last_id(self) -> MessageId:
        """Of its last message, durable or not."""

    @property
    def has_ordinary(self) -> bool:
        """Somebody other than hubs subscribed."""

    def store_foreign(self, messages: Sequence[bytes], on_done: OnDone) -> None:
        """Store messages of another region. Raises NotResponsible, ServiceDown where there is no room now."""

    def name_retention(self, keep_ms: int) -> Deferred[None]:
        """Set the retention of the topic. Fails with PubSubError."""


class _Goal(enum.Enum):
    """What a feed is to come to."""

    RECEIVE = "messages are wanted"
    LEAVE = "they are not wanted any more"
    END = "another hub may have the topic: leave everything as it is"


class OtherRegion:
    """One of them, by its address. name: as its first message said. missing: topics that are not subscribed to."""

    def __init__(self, clock: Clock, address: HubAddress, settings: RegionSettings, client: PubSubClient) -> None:
        self.address, self.client = address, client
        self.name: bytes | None = None
        self.attached = self.missing = 0
        self.turns = DeferredSemaphore(JOINS_AT_ONCE)
        self._clock, self._settings = clock, settings
        self._pausing: dict[Deferred[None], Timer] = {}
        self._told: type[BaseException] | None = None
        self._is_down = False
        self._looks = 0

    def __str__(self) -> str:
        name = "" if self.name is None else f" {self.name.decode('utf-8', 'replace')}"
        return f"region{name} at {self.address}"

    def pause(self, failures: int) -> Deferred[None]:
        """Before the next attempt at a topic; may be cancelled."""
        settings = self._settings
        waiting: Deferred[None] = Deferred(self._forget)
        delay_s = min(settings.retry_max_s, settings.retry_min_s * 2.0 ** min(failures - 1, 20))
        self._pausing[waiting] = self._clock.callLater(delay_s, self.resume, waiting)
        return waiting

    def _forget(self, waiting: Deferred[None]) -> None:
        timer = self._pausing.pop(waiting, None)
        if timer is not None and timer.active():
            timer.cancel()

    def resume(self, waiting: Deferred[None]) -> None:
        """Do not pause longer."""
        if waiting in self._pausing:
            self._forget(waiting)
            waiting.callback(None)

    def on_failure(self, topic: Topic, error: BookKeeperError) -> None:
        """An attempt failed. Of many topics' failures one is told."""
        self._is_down = self._is_down or error.retriable
        if self._told is not type(error):
            self._told = type(error)
            log.warn(
                "Topic {topic!r} gets nothing from {region}, and perhaps others neither; it is tried again: {error}",
                topic=shown(topic),
                region=str(self),
                error=error,
            )

    def on_joined(self) -> None:
        """An attempt succeeded: if the region was down, the other topics are tried at once."""
        if self._is_down:
            self._is_down, self._told = False, None
            log.info("The hubs of {region} can be reached again", region=str(self))
            for waiting in list(self._pausing):
                self.resume(waiting)

    def on_look(self, attached: int, missing: int) -> None:
        """How many topics are subscribed to there, and are not though they should be."""
        self._looks = 0 if not missing else self._looks + 1
        if self.missing and not missing:
            log.info("All {count} topics are subscribed to in {region}", count=attached, region=str(self))
        elif self._looks == 2:  # not at a topic that is just being subscribed to
            log.warn(
                "{missing} topics get nothing from {region} now: it cannot be reached, or refuses",
                missing=missing,
                region=str(self),
            )
        self.attached, self.missing = attached, missing


class Feed:
    """One topic's messages from one other region. It runs until it is left, or the topic is not this hub's."""

    __slots__ = (
        "_attempt",
        "_begin",
        "_doing",
        "_failures",
        "_force",
        "_goal",
        "_now",
        "_patient",
        "_pausing",
        "_regions",
        "_sink",
        "_started",
        "_subscription",
        "_waiting",
        "region",
    )

    def __init__(self, regions: Regions, region: OtherRegion, sink: Sink) -> None:
        self.region = region
        self._regions, self._sink = regions, sink
        self._goal = self._doing = _Goal.RECEIVE
        self._failures = 0  # in a row
        self._attempt = 0  # odd while one is under way
        self._force = True  # who acquired the topic last is right; once forced off, wait
        self._begin: LocalId | None = None  # with this number of theirs
        self._started = False
        self._now: Deferred[Any] | None = None
        self._patient = False
        self._pausing: Deferred[None] | None = None
        self._subscription: Subscription | None = None
        self._waiting: dict[Deferred[None], int] = {}  # since which attempt

    @property
    def is_attached(self) -> bool:
        """A hub there delivers."""
        return self._subscription is not None and self._subscription.attached

    @property
    def is_wanted(self) -> bool:
        """It should."""
        return self._goal is _Goal.RECEIVE

    # --- what is wanted

    def start(self) -> None:
        """Harmless when repeated."""
        if not self._started:
            self._started = True
            Deferred.fromCoroutine(self._run()).addErrback(self._broken)

    def receive(self) -> None:
        """Messages are wanted."""
        if self._goal is _Goal.LEAVE:
            self._goal = _Goal.RECEIVE
            self._no_pause()

    def leave(self) -> None:
        """They are not."""
        if self._goal is _Goal.RECEIVE:
            self._goal = _Goal.LEAVE
            self._interrupt()

    def end(self) -> None:
        """The topic is not this hub's any more."""
        if self._goal is not _Goal.END:
            self._goal = _Goal.END
            self._interrupt()
            self._tell(NotResponsible(""))

    def joined(self) -> Deferred[None]:
        """Fires once it is subscribed; fails with PubSubError when the next attempt does, or after JOIN_TIMEOUT_S."""
        waiting: Deferred[None] = Deferred()
        if self._subscription is not None:
            waiting.callback(None)
        else:
            self._waiting[waiting] = self._attempt
            self._no_pause()
        return waiting

    def give_up(self, waiting: Deferred[None]) -> None:
        """It takes too long."""
        if waiting in self._waiting:
            del self._waiting[waiting]
            waiting.errback(ServiceDown(f"{self.region} has not answered within {JOIN_TIMEOUT_S:g} s"))

    def _tell(self, error: PubSubError | None, before: float = math.inf) -> None:
        """Those who wait since an attempt before this one."""
        for each in [each for each, since in self._waiting.items() if since < before]:
            del self._waiting[each]
            if error is None:
                each.callback(None)
            else:
                each.errback(again(error))

    def _no_pause(self) -> None:
        if self._pausing is not None:
            self.region.resume(self._pausing)

    def _interrupt(self) -> None:
        """Something else is wanted."""
        if self._now is not None and self._goal is not self._doing and (self._goal is _Goal.END or not self._patient):
            self._now.cancel()

    async def _until(self, work: Deferred[T], *, patient: bool = False) -> T:
        """Wait, unless something else is wanted meanwhile, or already: then raises CancelledError.

        patient: only the end does that.
        """
        self._now, self._patient = work, patient
        self._interrupt()
        try:
            return await work
        finally:
            self._now = None

    # --- what is done

    async def _run(self) -> None:
        while self._goal is not _Goal.END:
            self._doing = self._goal
            self._attempt += 1
            try:
                if self._doing is _Goal.LEAVE:
                    await self._leave()
                    if self._goal is _Goal.LEAVE:
                        break
                else:
                    await self._receive()
            except CancelledError:
                continue
            except BookKeeperError as error:
                self._on_failure(error)
                # Ended there by a late UNSUBSCRIBE of whoever had the topic before. It is made anew at once, but not
                # again and again, and begins where it was, as far as that is kept there; at Apache's hubs behind what
                # is published meanwhile.
                ended = isinstance(error, NotSubscribed) and self._failures == 1
                if self._goal is self._doing and not self._waiting and not ended:
                    await self._pause()
            finally:
                self._attempt += self._attempt % 2
        self._regions.on_ended(self._sink, self)

    def _broken(self, failure: Failure) -> None:
        log.failure(
            "Receiving topic {topic!r} from {region} failed", failure, topic=shown(self._sink.topic), region=self.region
        )
        self._goal = _Goal.END
        self._tell(UnexpectedCondition(f"a fault of this hub: {failure.value!r}"))
        self._regions.on_ended(self._sink, self)

    def _on_failure(self, error: BookKeeperError) -> None:
        self._failures += 1
        self._regions.meters.region_failures.add()
        self.region.on_failure(self._sink.topic, error)
        text = f"{self.region}: {error}"
        self._tell(ServiceDown(text) if error.retriable else UnexpectedCondition(text), self._attempt)
        self._attempt += 1

    async def _pause(self) -> None:
        pausing = self._pausing = self.region.pause(self._failures)
        try:
            with contextlib.suppress(CancelledError):
                await self._until(pausing)
        finally:
            self._pausing = None

    async def _leave(self) -> None:
        region, sink, name = self.region, self._sink, self._regions.subscriber
        with contextlib.suppress(NotSubscribed):
            await self._until(region.turns.run(region.client.unsubscribe, sink.topic, name), patient=True)
        region.on_joined()

    async def _receive(self) -> None:
        """Subscribe, and store what comes. Ends with a failure, or when it is interrupted."""
        region, sink, name = self.region, self._sink, self._regions.subscriber
        force, begin = self._force, self._begin

        def subscribe() -> Deferred[Subscription]:
            return region.client.subscribe(sink.topic, name, force=force, auto_consume=False, start=begin)

        try:
            subscription = await self._until(region.turns.run(subscribe), patient=True)
        except UnexpectedCondition:  # hubs of Apache cannot begin elsewhere
            self._begin = None
            raise
        self._begin = None
        heard = False
        try:
            self._subscription, self._force = subscription, False
            region.on_joined()
            self._tell(None)
            while True:
                messages = await self._until(subscription.receive(STORED_AT_ONCE))
                heard = True
                for some in _in_parts(messages):
                    await self._store(some)
                    subscription.consume(some[-1])
                    self._failures = 0
        except Exception as error:  # not where it is only forgotten with its hub: nobody is there to be told anything
            self._subscription = None
            subscription.close()
            if heard and isinstance(error, NotSubscribed):
                self._begin = LocalId(self._stored_there + 1)
            raise

    @property
    def _stored_there(self) -> int:
        """The number of the region's last message that is stored here."""
        name = self.region.name
        return 0 if name is None else dict(self._sink.last_id.remote).get(name, 0)

    async def _store(self, messages: list[Received]) -> None:
        failures = 0
        while True:
            new = self._new_ones(messages)
            if not new:
                return
            stored = [each.stored_form() for each in new]
            if any(_KEEP in each for each in stored):
                await self._name_retention(new)
            done: Deferred[None] = Deferred()

            def told(first: MessageId | None, error: PubSubError | None, done: Deferred[None] = done) -> None:
                if error is None:
                    done.callback(None)
                else:
                    done.errback(again(error))  # a topic that was lost stores it

            try:
                self._sink.store_foreign(stored, told)
                await self._until(done)
            except PubSubError:  # there is no room; or the topic is lost, and this is interrupted
                failures = min(failures + 1, STORE_FAILURES_MAX)
                await self._until(self.region.pause(failures))
            else:
                self._regions.meters.region_messages.add(len(new))
                return

    async def _name_retention(self, messages: list[Received]) -> None:
        """Apply the retention that a publisher in the other region set to the topic here.

        The newest valid value is applied. Called before the messages are stored, as stored messages are not read again.
        A failure delays no message.
        """
        for each in reversed(messages):
            try:
                value = each.properties.get(KEEP)
                if value is None:
                    continue
                await self._until(self._sink.name_retention(number_of(value, KEEP, 0, KEEP_MS_MAX)))
                return
            except BookKeeperError as error:
                log.warn(
                    "Message {local_id} of topic {topic!r} in region {region!r} sets a retention that was not applied "
                    "here: {error}",
                    local_id=each.local_id,
                    topic=shown(self._sink.topic),
                    region=each.region,
                    error=error,
                )
                if not isinstance(error, MalformedRequest | RemoteProtocolError):
                    return

    def _new_ones(self, messages: list[Received]) -> list[Received]:
        """Those that are not stored. Raises UnexpectedCondition for a region that is not what it should be."""
        name = self._regions.name_of(self.region, messages[0].region)
        for each in messages:
            if each.region != name:
                self._regions.name_of(self.region, each.region)
        stored = self._stored_there
        if messages[0].local_id > stored:
            return messages
        new = [each for each in messages if each.local_id > stored]
        self._regions.meters.region_repeats.add(len(messages) - len(new))
        return new


def _in_parts(messages: list[Received]) -> list[list[Received]]:
    parts: list[list[Received]] = []
    size = STORED_BYTES_AT_ONCE
    for each in messages:
        if size + len(each.body) > STORED_BYTES_AT_ONCE:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each.body)
    return parts
