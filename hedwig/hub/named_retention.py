"""The retention of a topic that its publishers set, with the header property hw.keep.

    publish with hw.keep: 604800000 ---> record topics/<topic>/hw.retention ---> answer
    Trimmer: reads the record once, before it deletes anything

The value applies to all messages of the topic, consumed or not, with or without subscription, until a publisher sets
another one. It replaces the hub's keep_unsubscribed_ms and adds to its keep_ms and keep_bytes; limit_ms and limit_bytes
override it. 0 is Apache's rule. The publish is answered once message and record are durable. A publish that repeats the
present value writes no record. If publishers set different values all the time, the last value of each CHANGE_EVERY_S
is written, and the publishes wait for that.

The record is written in one transaction with a check of the topic's list of ledgers, like records of subscriptions
(I-90): a hub that has lost the topic writes nothing. While the record cannot be read, no message is deleted. Apache's
hubs ignore it, and delete what is consumed. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError, again
from bookkeeper.metadata.outcome import pause
from hedwig.errors import PubSubError, StaleVersion, UncertainState, UnexpectedCondition
from hedwig.hub.metadata import HubMetadata, Versioned
from hedwig.hub.topic_log import LogState, TopicLog

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()


CHANGE_EVERY_S = 1.0
"""Shortest time between two writes of one topic's record: a write holds the topic's list of ledgers."""


class NamedRetention:
    """The record of one topic. on_stale: called when another hub has the topic."""

    def __init__(
        self, metadata: HubMetadata, topic_log: TopicLog, clock: Clock, on_stale: Callable[[StaleVersion], object]
    ) -> None:
        self._metadata, self._log, self._clock, self._on_stale = metadata, topic_log, clock, on_stale
        self._known: Versioned[int | None] | None = None
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self._writing: list[tuple[int, Deferred[None]]] = []
        self._is_at_work = False
        self._written_s = -CHANGE_EVERY_S

    async def keep_ms(self) -> int | None:
        """Return the retention that publishers set; None: none. Raises BookKeeperError."""
        if self._known is None:
            self._known = await self._metadata.retention(self._log.topic)
        return self._known.value

    @property
    def may_count(self) -> set[int | None]:
        """The stored value and those that are being set: one of them applies. Empty: unknown."""
        if self._known is None:
            return set()
        return {self._known.value, *(keep_ms for keep_ms, _ in (*self._writing, *self._waiting))}

    def name(self, keep_ms: int) -> Deferred[None]:
        """Set the retention; fires once it, or a later value, is durable.

        Fails with UnexpectedCondition if only the message could be stored, UncertainState if the topic is lost.
        """
        if self._known is not None and self._known.value == keep_ms and not self._is_at_work:
            return succeed(None)
        named: Deferred[None] = Deferred()
        self._waiting.append((keep_ms, named))
        if not self._is_at_work:
            self._is_at_work = True
            working = Deferred.fromCoroutine(self._work())
            working.addErrback(lambda failure: log.failure("Setting a retention failed", failure=failure))
        return named

    async def _work(self) -> None:
        """Write the last value for all waiting callers, until none waits."""
        try:
            while self._waiting:
                early_s = self._written_s + CHANGE_EVERY_S - self._clock.seconds()
                if early_s > 0:
                    await pause(self._clock, min(early_s, CHANGE_EVERY_S))
                self._writing, self._waiting = self._waiting, []
                error: PubSubError | None = None
                try:
                    await self._store(self._writing[-1][0])
                except PubSubError as failed:
                    error = failed
                done, self._writing = self._writing, []
                for _, named in done:
                    if error is None:
                        named.callback(None)
                    else:
                        named.errback(again(error))
        finally:
            self._is_at_work = False

    async def _store(self, keep_ms: int) -> None:
        topic = self._log.topic
        try:
            if await self.keep_ms() == keep_ms:
                return
            assert self._known is not None
            before = self._known
            version = await self._log.while_listed(
                lambda listed: self._metadata.write_retention(topic, keep_ms, before.version, listed)
            )
        except BookKeeperError as error:
            self._known = None
            if isinstance(error, StaleVersion):
                self._on_stale(error)
            # Another hub may still set it when the message is sent again; this hub would only store the message twice.
            kind = UnexpectedCondition if self._log.state is LogState.READY else UncertainState
            raise kind(
                f"topic {topic!r}: the message is stored, but its retention of {keep_ms} ms is not: {error}"
            ) from error
        self._known, self._written_s = Versioned(keep_ms, version), self._clock.seconds()
        log.info("A publisher set the retention of topic {topic!r} to {keep_ms} ms", topic=topic, keep_ms=keep_ms)
