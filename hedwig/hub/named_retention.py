"""The retention of a topic that its publishers set, with the header property hw.keep.

    publish with hw.keep: 604800000 ---> record topics/<topic>/hw.retention ---> answer
    Trimmer: reads the record once, before it deletes anything

The value applies to all messages of the topic, consumed or not, with or without subscription, until a publisher sets
another one. It replaces the hub's keep_unsubscribed_ms and adds to its keep_ms and keep_bytes; limit_ms and limit_bytes
override it. 0 is Apache's rule. The publish is answered once message and record are durable. A publish that repeats the
present value writes no record.

The record is written in one transaction with a check of the topic's list of ledgers, like records of subscriptions
(I-90): a hub that has lost the topic writes nothing. While the record cannot be read, no message is deleted. Apache's
hubs ignore it, and delete what is consumed. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from hedwig.errors import StaleVersion, UncertainState, UnexpectedCondition
from hedwig.hub.metadata import HubMetadata, Versioned
from hedwig.hub.topic_log import LogState, TopicLog

log = Logger()


class NamedRetention:
    """The record of one topic. on_stale: called when another hub has the topic."""

    def __init__(self, metadata: HubMetadata, topic_log: TopicLog, on_stale: Callable[[StaleVersion], object]) -> None:
        self._metadata, self._log, self._on_stale = metadata, topic_log, on_stale
        self._known: Versioned[int | None] | None = None
        self._one_by_one = DeferredLock()

    async def keep_ms(self) -> int | None:
        """Return the retention that publishers set; None: none. Raises BookKeeperError."""
        if self._known is None:
            self._known = await self._metadata.retention(self._log.topic)
        return self._known.value

    def is_settled(self, keep_ms: int | None) -> bool:
        """Whether this was named, as far as is known, and no other number is being stored."""
        return self._known is not None and self._known.value == keep_ms and not self._one_by_one.locked

    def name(self, keep_ms: int) -> Deferred[None]:
        """Set the retention; fires once it is durable.

        Fails with UnexpectedCondition if only the message could be stored, UncertainState if the topic is lost.
        """
        if self._known is not None and self._known.value == keep_ms:
            return succeed(None)
        return self._one_by_one.run(lambda: Deferred.fromCoroutine(self._name(keep_ms)))

    async def _name(self, keep_ms: int) -> None:
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
        self._known = Versioned(keep_ms, version)
        log.info("A publisher set the retention of topic {topic!r} to {keep_ms} ms", topic=topic, keep_ms=keep_ms)
