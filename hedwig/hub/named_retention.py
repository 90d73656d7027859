"""The retention of a topic that its publishers set, with the header property hw.keep.

    publish with hw.keep: 604800000 ---> message stored ---> record topics/<topic>/hw.retention ---> answer
    Trimmer: reads the record once, before it deletes anything

The value applies to all messages of the topic, consumed or not, with or without subscription, until a publisher sets
another one. It replaces the hub's keep_unsubscribed_ms and adds to its keep_ms and keep_bytes; limit_ms and limit_bytes
override it. 0 is Apache's rule. The publish is answered once message and record are durable. A publish that repeats the
present value writes no record. If publishers set different values all the time, the last value of each CHANGE_EVERY_S
is written, and the publishes wait for that.

The record names the message that set the value, so that a message that is sent again applies only if no later message
has set a value: its first hub may have ended before it wrote the record. A value from another region may be old when it
arrives. It does not shorten a retention that a message of this region has set.

The record is written in one transaction with a check of the topic's list of ledgers, like records of subscriptions
(I-90): a hub that has lost the topic writes nothing. While the record cannot be read, no message is deleted. Apache's
hubs ignore it, and delete what is consumed. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError, again
from bookkeeper.metadata.outcome import pause
from hedwig.errors import PubSubError, StaleVersion, UncertainState, UnexpectedCondition
from hedwig.hub.metadata import HubMetadata, Versioned
from hedwig.hub.topics.log import LogState, TopicLog
from hedwig.model import LocalId, NamedKeep
from hedwig.names import shown

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
        self._known: Versioned[NamedKeep] | None = None
        self._waiting: list[_Setting] = []
        self._writing: list[_Setting] = []
        self._is_at_work = False
        self._written_s = -CHANGE_EVERY_S
        self._unstored = LocalId(0)  # newest message whose value could not be stored; it may be sent again

    async def keep_ms(self) -> int | None:
        """Return the retention that publishers set; None: none. Raises BookKeeperError."""
        return (await self._record()).value.keep_ms

    async def _record(self) -> Versioned[NamedKeep]:
        if self._known is None:
            self._known = await self._metadata.retention(self._log.topic)
        return self._known

    @property
    def may_count(self) -> set[int | None]:
        """The stored value and those that are being set: one of them applies. Empty: unknown."""
        if self._known is None:
            return set()
        return {self._known.value.keep_ms, *(each.keep_ms for each in (*self._writing, *self._waiting))}

    def name(self, keep_ms: int, set_by: LocalId | None) -> Deferred[None]:
        """Set the retention; fires once it, or that of a later message, is durable.

        set_by: the stored message of this region that sets it; None: it is of another region.

        Fails with UnexpectedCondition if only the message could be stored, UncertainState if the topic is lost.
        """
        setting = _Setting(keep_ms, set_by, Deferred())
        if self._known is not None and not self._is_at_work:
            found = setting.applied_to(self._known.value)
            if found.keep_ms == self._known.value.keep_ms and not self._unstored:
                self._known = self._known._replace(value=found)
                return succeed(None)
        self._waiting.append(setting)
        if not self._is_at_work:
            self._is_at_work = True
            working = Deferred.fromCoroutine(self._work())
            working.addErrback(lambda failure: log.failure("Setting a retention failed", failure=failure))
        return setting.done

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
                    await self._store()
                except PubSubError as failed:
                    error = failed
                except Exception as failed:  # noqa: BLE001 - a fault must not leave publishers without an answer
                    log.failure("Setting the retention of topic {topic!r} failed", topic=shown(self._log.topic))
                    self._known, error = None, UnexpectedCondition(f"a fault of this hub: {failed!r}")
                done, self._writing = self._writing, []
                for each in done:
                    if error is None:
                        each.done.callback(None)
                    else:
                        each.done.errback(again(error))
        finally:
            self._is_at_work = False

    async def _store(self) -> None:
        topic, keep_ms = self._log.topic, self._writing[-1].keep_ms
        try:
            before = await self._record()
            found = before.value
            for each in self._writing:
                found = each.applied_to(found)
            version = before.version
            if found.keep_ms != before.value.keep_ms or (self._unstored and found != before.value):
                version = await self._log.while_listed(
                    lambda listed: self._metadata.write_retention(topic, found, before.version, listed)
                )
                self._written_s = self._clock.seconds()
                log.info(
                    "A publisher set the retention of topic {topic!r} to {keep_ms} ms",
                    topic=shown(topic),
                    keep_ms=found.keep_ms,
                )
        except BookKeeperError as error:
            self._known = None
            self._unstored = max(self._unstored, *(each.set_by or LocalId(0) for each in self._writing))
            if isinstance(error, StaleVersion):
                self._on_stale(error)
            # Another hub may still set it when the message is sent again; this hub would only store the message twice.
            kind = UnexpectedCondition if self._log.state is LogState.READY else UncertainState
            raise kind(
                f"topic {topic!r}: the message is stored, but its retention of {keep_ms} ms is not: {error}"
            ) from error
        self._known = Versioned(found, version)
        if found.set_by >= self._unstored:
            self._unstored = LocalId(0)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A value that waits to be stored. set_by: see NamedRetention.name."""

    keep_ms: int
    set_by: LocalId | None
    done: Deferred[None]

    def applied_to(self, present: NamedKeep) -> NamedKeep:
        """Return the record with this value, unless the present value takes precedence."""
        if self.set_by is not None:
            return NamedKeep(self.keep_ms, self.set_by) if self.set_by > present.set_by else present
        if present.set_by and self.keep_ms < (present.keep_ms or 0):
            return present
        return replace(present, keep_ms=self.keep_ms)
