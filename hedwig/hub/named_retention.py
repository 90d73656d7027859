"""For how long messages of a topic are kept, as a publisher named it: the header property hw.keep.

    publish with hw.keep: 604800000 ---> record topics/<topic>/hw.retention ---> answer
    Trimmer, before it deletes anything: the record is read once

What was named counts for all messages of the topic, consumed or not, with or without subscription, until another number
is named. It takes the place of the hub's keep_unsubscribed_ms, and adds to its keep_ms and keep_bytes; limit_ms and
limit_bytes are stronger. 0 is Apache's rule. The publish that names it is answered once both are durable; a message
that repeats what is known writes nothing.

The record is one transaction with a look at the topic's list of ledgers, as those of subscriptions are (I-90): who has
lost the topic to another hub changes nothing. One that cannot be read keeps all messages until it is repaired. Hubs of
Apache know nothing of it, and delete what is consumed. Thread: reactor.
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
    """The record of one topic. on_stale: another hub has the topic."""

    def __init__(self, metadata: HubMetadata, topic_log: TopicLog, on_stale: Callable[[StaleVersion], object]) -> None:
        self._metadata, self._log, self._on_stale = metadata, topic_log, on_stale
        self._known: Versioned[int | None] | None = None
        self._one_by_one = DeferredLock()

    async def keep_ms(self) -> int | None:
        """Return what was named; None where nothing was. Raises BookKeeperError."""
        if self._known is None:
            self._known = await self._metadata.retention(self._log.topic)
        return self._known.value

    def name(self, keep_ms: int) -> Deferred[None]:
        """Fires once it is durable.

        Fails with UnexpectedCondition, as the message that names it is stored nevertheless; with UncertainState where
        the topic is another hub's now.
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
            # Another hub may yet store it, with the message once more; this one would only store more messages.
            kind = UnexpectedCondition if self._log.state is LogState.READY else UncertainState
            raise kind(
                f"the message is stored in topic {topic!r}, and for how long it is kept is not: {error}"
            ) from error
        self._known = Versioned(keep_ms, version)
        log.info(
            "Topic {topic!r}: messages are kept for {keep_ms} ms, as a publisher named it", topic=topic, keep_ms=keep_ms
        )
