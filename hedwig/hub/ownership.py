"""Which topics this hub serves, and where the others are. `T` is what serves one topic.

    nobody's --claim asked for, or this hub has the least load--> claiming --record is ours--> acquiring --> owned
                                                                      |                          |             |
    another hub's <--record is there------------------------------- -+      nobody's <--failed--+  <--release-+

The record (an ephemeral znode) says who is *meant* to serve a topic; what makes it safe is the acquisition, which
fences whoever did before (I-90). So a hub whose session ended gives up all its topics at once, and one that does not
know it yet harms nobody. With the next session it registers anew.

Who asks for a topic that nobody has is sent to the hub with the fewest topics, which claims it only when the client
says so (should_claim): so two hubs that see different loads do not send a client to and fro. Requests for one topic
wait for each other; those for topics that are owned do not wait for anything.

Thread: reactor. Source: hedwig/PROTOCOL.md 2.1, 3.1.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, DeferredSemaphore, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.parallel import in_parallel, tell_all
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.store import StoreState
from hedwig.errors import NotResponsible, PubSubError, ServiceDown
from hedwig.hub.metadata import HubMetadata
from hedwig.model import HubAddress, HubInfo, Topic
from hedwig.names import shown, topic_part

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

log = Logger()

T = TypeVar("T")

ATTEMPTS_MAX = 10
RELEASED_OF_SOME = 16
"""Of `release_some`, at the same time: those who stay are not to wait for the metadata."""

ASKED_AT_ONCE = 500
"""Topics that are looked for, or acquired, at the same time. The others wait: each under way takes memory, and a place
among the operations that the metadata store is asked for."""

RELEASES_AT_ONCE = 200
"""Topics whose positions and ledgers are finished at the same time when a hub stops."""

LOAD_PERIOD_S = 1.0
"""At most so often this hub says how many topics it has: not once for each of a hundred thousand."""


class Ownership(Generic[T]):
    """Topics of one hub.

    acquire: makes a topic's service; what it raises is told to whoever asked. release: ends one in order, never fails.
    abandon: drops one at once, because another hub may have it.
    """

    def __init__(
        self,
        metadata: HubMetadata,
        clock: Clock,
        rng: random.Random,
        address: HubAddress,
        *,
        acquire: Callable[[Topic], Awaitable[T]],
        release: Callable[[T], Awaitable[None]],
        abandon: Callable[[T], object],
    ) -> None:
        self.address = address
        self.owned: dict[Topic, T] = {}
        self._metadata, self.clock, self._rng = metadata, clock, rng
        self._acquire, self._release, self._abandon = acquire, release, abandon
        self._info: HubInfo | None = None
        self._turns = DeferredSemaphore(ASKED_AT_ONCE)
        self._asking: dict[Topic, list[tuple[bool, Deferred[T]]]] = {}
        self._releasing: dict[Topic, list[Deferred[None]]] = {}
        self._leaving: dict[Topic, T] = {}  # what is being released
        self._registering = False
        self._load_timer: Timer | None = None
        self._load_lock = DeferredLock()
        self._told_load = 0
        self._loads: dict[HubAddress, int] | None = None
        self._loads_read = 0.0
        self._stopped = False

    # --- life

    async def start(self) -> None:
        """Register this hub."""
        await self._register()
        self._metadata.tree.watch_state(self._on_state)

    async def _register(self) -> None:
        self._registering = True
        try:
            self._info = await self._metadata.register(self.address)
            self._told_load = 0
        finally:
            self._registering = False

    def _on_state(self, state: StoreState) -> None:
        if state is StoreState.LOST:
            self.session_lost()
        elif state is StoreState.CONNECTED and self._info is None and not (self._stopped or self._registering):
            Deferred.fromCoroutine(self._register()).addErrback(self._not_registered)

    def _not_registered(self, failure: Failure) -> None:
        log.error("The hub could not be registered anew, and serves nothing: {error}", error=failure.value)
        self.clock.callLater(LOAD_PERIOD_S, lambda: self._on_state(self._metadata.tree.state))

    def session_lost(self) -> None:
        """The records are gone: nothing is served any more, and nothing finished that others may have by now."""
        self._info = None
        owned, self.owned = self.owned, {}
        if owned:
            log.error("The metadata session ended: {count} topics are given up", count=len(owned))
        for service in [*owned.values(), *self._leaving.values()]:
            self._abandon(service)

    async def stop(self) -> None:
        """Release everything in order; then nothing is acquired any more."""
        self._stopped = True
        for released in [self._under_way(topic) for topic in self._releasing]:
            await released
        if self._load_timer is not None and self._load_timer.active():
            self._load_timer.cancel()
        owned, self.owned = self.owned, {}
        self._leaving.update(owned)
        await in_parallel((self._finish(topic) for topic in owned), RELEASES_AT_ONCE)
        info = self._info
        if info is None:
            return
        try:
            await self._metadata.release_all(list(owned), info)
            await self._metadata.unregister(self.address)
        except BookKeeperError as error:
            log.info("The hub's records end with its session: {error}", error=error)

    def _under_way(self, topic: Topic) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._releasing[topic].append(done)
        return done

    async def _finish(self, topic: Topic) -> None:
        try:
            await self._release(self._leaving[topic])
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - the others must be released all the same
            log.failure("Releasing topic {topic!r} failed", topic=shown(topic))
        finally:
            del self._leaving[topic]

    # --- asking

    def service(self, topic: Topic, *, should_claim: bool) -> T | Deferred[T]:
        """What serves the topic here; at once where this hub owns it.

        Fails with NotResponsible if another hub owns it or should, and while this hub stops; MalformedRequest for an
        impossible name; ServiceDown; and the errors of the acquisition.
        """
        found = self.owned.get(topic)
        if found is not None:
            return found
        waiting: Deferred[T] = Deferred()
        asking = self._asking.get(topic)
        if asking is not None:
            asking.append((should_claim, waiting))
            return waiting
        self._asking[topic] = [(should_claim, waiting)]
        self._turns.run(lambda: Deferred.fromCoroutine(self._ask(topic))).addBoth(self._answer, topic)
        return waiting

    def _answer(self, result: T | Failure, topic: Topic) -> None:
        tell_all([waiting for _, waiting in self._asking.pop(topic)], result)

    async def _ask(self, topic: Topic) -> T:
        topic_part(topic)
        releasing = self._releasing.get(topic)
        if releasing is not None:
            released: Deferred[None] = Deferred()
            releasing.append(released)
            await released
        try:
            for _ in range(ATTEMPTS_MAX):
                if self._stopped:
                    # Not ServiceDown: for any other answer, Apache's clients regard the sender as the topic's hub and
                    # subscribe there again, although it no longer listens.
                    raise NotResponsible("this hub is stopping")
                if self._info is None:
                    raise ServiceDown("this hub has no session with the metadata store: ask another one")
                info = self._info
                seen = await self._metadata.look(topic)
                owner = seen.owner
                if owner is not None:
                    if owner.address != self.address:
                        raise NotResponsible(str(owner.address), owner.address)
                    # Ours, and yet not owned: an earlier life's, or one that could not be released.
                    await self._metadata.release(topic, owner)
                    continue
                if not any(claim for claim, _ in self._asking[topic]):
                    least = await self._least_loaded()
                    if least != self.address:
                        raise NotResponsible(str(least), least)
                if await self._metadata.claim(topic, info, exists=seen.exists):
                    return await self._acquire_claimed(topic, info)
        except PubSubError:
            raise
        except BookKeeperError as error:
            raise ServiceDown(f"topic {topic!r}: {error}") from error
        raise ServiceDown(f"the owner of topic {topic!r} changes all the time: try again later")

    async def _least_loaded(self) -> HubAddress:
        """Of the hubs that are there; by the toss of a coin where several are equal.

        What they say is read once a period; in between those that are sent there are counted.
        """
        now = self.clock.seconds()
        if self._loads is None or now - self._loads_read >= LOAD_PERIOD_S:
            self._loads, self._loads_read = await self._metadata.hubs(), now
        hubs = self._loads
        hubs[self.address] = len(self.owned) + len(self._asking) - 1
        least = min(hubs.values())
        chosen = self._rng.choice(sorted((each for each, load in hubs.items() if load == least), key=str))
        hubs[chosen] += 1
        return chosen

    async def _acquire_claimed(self, topic: Topic, info: HubInfo) -> T:
        try:
            service = await self._acquire(topic)
        except Exception:
            await self._give_back(topic, info)
            raise
        finally:
            self._metadata.forget_claim(topic)
        if self._info is not info or self._stopped:
            self._abandon(service)
            await self._give_back(topic, info)
            if self._stopped:
                raise NotResponsible("this hub is stopping")
            raise ServiceDown(f"topic {topic!r} was acquired by a hub that lost its session")
        self.owned[topic] = service
        self._tell_load()
        return service

    async def _give_back(self, topic: Topic, info: HubInfo) -> None:
        try:
            await self._metadata.release(topic, info)
        except BookKeeperError as error:
            log.warn("Topic {topic!r} stays this hub's by its record: {error}", topic=shown(topic), error=error)

    # --- giving up

    def release(self, topic: Topic) -> Deferred[None]:
        """End the service in order and give the topic back; fires when that is done. Nothing where it is not owned."""
        done: Deferred[None] = Deferred()
        releasing = self._releasing.get(topic)
        if releasing is not None:
            releasing.append(done)
            return done
        service = self.owned.pop(topic, None)
        if service is None:
            done.callback(None)
            return done
        self._releasing[topic], self._leaving[topic] = [done], service
        Deferred.fromCoroutine(self._release_one(topic, service)).addBoth(self._released, topic)
        return done

    async def release_some(self, count: int) -> int:
        """Release so many topics, chosen by chance; how many these were."""
        chosen = self._rng.sample(list(self.owned), min(count, len(self.owned)))
        released = 0
        for first in range(0, len(chosen), RELEASED_OF_SOME):
            some = [topic for topic in chosen[first : first + RELEASED_OF_SOME] if topic in self.owned]
            await gatherResults([self.release(topic) for topic in some])
            released += len(some)
        return released

    async def _release_one(self, topic: Topic, service: T) -> None:
        info = self._info
        await self._release(service)
        if info is not None:
            await self._give_back(topic, info)
        self._tell_load()

    def _released(self, result: object, topic: Topic) -> None:
        if isinstance(result, Failure):
            log.failure("Releasing topic {topic!r} failed", failure=result, topic=shown(topic))
        del self._leaving[topic]
        for done in self._releasing.pop(topic):
            done.callback(None)

    def lost(self, topic: Topic, service: T) -> None:
        """The service found out that it cannot go on: whoever asks next acquires the topic anew."""
        if self.owned.get(topic) is service:
            self.release(topic)

    # --- load

    async def store_ms(self) -> int:
        """Return the metadata store's time, in milliseconds since 1970. Raises BookKeeperError."""
        return await self._set_load(len(self.owned))

    async def _set_load(self, count: int) -> int:
        # One write at a time: the version check of a second one would fail.
        return await self._load_lock.run(lambda: Deferred.fromCoroutine(self._metadata.set_load(self.address, count)))

    def _tell_load(self) -> None:
        if self._load_timer is None and not self._stopped:
            self._load_timer = self.clock.callLater(LOAD_PERIOD_S, self._write_load)

    def _write_load(self) -> None:
        async def write() -> None:
            count = len(self.owned)
            if self._info is not None and count != self._told_load:
                await self._set_load(count)
                self._told_load = count

        def told(_: None) -> None:
            self._load_timer = None
            if self._info is not None and len(self.owned) != self._told_load:
                self._tell_load()

        def not_told(failure: Failure) -> None:
            self._load_timer = None
            log.warn("The hub's load could not be told: {error}", error=failure.value)
            self._tell_load()

        # The timer counts as running until then.
        Deferred.fromCoroutine(write()).addCallbacks(told, not_told)
