"""Publishing the rows of one task: many at a time, each topic's under the task's producer, answered before the end.

    add(rows) ... add(rows)    taken by the hub client; waits where too many are not answered
    finish()                   everything is durable

Whatever became of an earlier attempt of the task: what it published is answered with the first id, and not stored
again; the rest follows, in order. The first failure ends it, and nothing behind that row is published: so the numbers
that a topic has of a producer have no hole, and whoever tries again goes on where this one stopped.

Bounds: those of the client for each topic, and UNANSWERED_MAX messages and UNANSWERED_BYTES_MAX for all.
Thread: reactor, but `publish_noted`, which crosses once for each Arrow batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred, succeed

from bookkeeper.errors import BookKeeperError, again
from hedwig.client.client import Publisher, PubSubClient
from hedwig.model import Topic
from hedwig.protocol.options import NUMBER_MAX
from hedwig.spark.topic_rows import Row

if TYPE_CHECKING:
    from hedwig.client.faces.blocking import BlockingClient
    from hedwig.model import MessageId

UNANSWERED_MAX = 20_000
UNANSWERED_BYTES_MAX = 64 * 1024 * 1024

ROWS_AT_ONCE = 5_000
"""Rows handed over with one crossing of threads."""


def publish_noted(
    client: BlockingClient,
    producer: bytes,
    first: int,
    batches: Iterable[Sequence[Row]],
    *,
    newest_id: int = 0,
    keep_s: float | None = None,
) -> Noted:
    """Publish all; how many there were, and which ids they have, once all are durable. Arguments: see TaskPublishing.

    Raises PubSubError, BookKeeperError.
    """
    publishing = client.run(lambda hubs: succeed(TaskPublishing(hubs, producer, first, newest_id, keep_s)))
    count = 0
    for rows in batches:
        for at in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[at : at + ROWS_AT_ONCE]
            client.run(partial(_add, publishing, some))
            count += len(some)
    client.run(lambda _: Deferred.fromCoroutine(publishing.finish()))
    return Noted(count, *publishing.ids, publishing.repeated)


class Noted(NamedTuple):
    """What was published, and now is durable.

    lowest_id, highest_id: of all; None where none is known. What was published before and forgotten since (or all, by a
    hub older than ids in answers) has no known id: then `lowest_id` is None, too. repeated: of all, those that were in
    their topic before: the hub has answered them with the ids that they have had.
    """

    messages: int
    lowest_id: int | None
    highest_id: int | None
    repeated: int = 0


def _add(publishing: TaskPublishing, rows: Sequence[Row], _: PubSubClient) -> Deferred[None]:
    return Deferred.fromCoroutine(publishing.add(rows))


class TaskPublishing:
    """Of one attempt of one task.

    newest_id: of the topic, where there is one only, before any task began; 0 where that is not known. An answer does
    not say that it is one to a repeat: an id up to that one does. keep_s: retention to set for each topic; None: none.
    """

    def __init__(
        self, client: PubSubClient, producer: bytes, first: int, newest_id: int = 0, keep_s: float | None = None
    ) -> None:
        self._client, self._producer, self._first, self._keep_s = client, producer, first, keep_s
        self._publishers: dict[Topic, Publisher] = {}
        self._unanswered = self._unanswered_bytes = 0
        self._lowest_id, self._highest_id = NUMBER_MAX, 0
        self._newest_id, self.repeated = newest_id, 0
        self._error: BookKeeperError | None = None
        self._waiting: Deferred[None] | None = None
        self._waits_for_all = False

    @property
    def ids(self) -> tuple[int | None, int | None]:
        """The lowest and the highest; see Noted."""
        return (self._lowest_id or None, self._highest_id) if self._highest_id else (None, None)

    async def add(self, rows: Sequence[Row]) -> None:
        """Take rows, in order. Raises what the first failed with."""
        for row in rows:
            publisher = self._publishers.get(row.topic) or self._publisher(row.topic)
            if self._unanswered >= UNANSWERED_MAX or self._unanswered_bytes >= UNANSWERED_BYTES_MAX:
                await self._wait(for_all=False)
            while self._error is None and not publisher.has_room:
                await publisher.room()
            if self._error is not None:
                raise again(self._error)
            size = row.size
            self._unanswered += 1
            self._unanswered_bytes += size
            publisher.submit(
                row.body, partial(self._on_published, size), partial(self._on_failed, size), row.properties
            )

    async def finish(self) -> None:
        """Wait until all are answered. Raises what the first failed with."""
        await self._wait(for_all=True)
        if self._error is not None:
            raise again(self._error)

    def _publisher(self, topic: Topic) -> Publisher:
        found = self._publishers[topic] = self._client.publisher(
            topic, producer=self._producer, first=self._first, replayed=True, keep_s=self._keep_s
        )
        return found

    def _wait(self, *, for_all: bool) -> Deferred[None]:
        """Fires once all are answered, or half of what there is room for; or one failed."""
        waiting = self._waiting = Deferred()
        self._waits_for_all = for_all
        self._look()
        return waiting

    def _look(self) -> None:
        if self._waits_for_all:
            enough = not self._unanswered
        else:
            enough = self._unanswered <= UNANSWERED_MAX // 2 and self._unanswered_bytes <= UNANSWERED_BYTES_MAX // 2
        if self._waiting is not None and (enough or self._error is not None):
            waiting, self._waiting = self._waiting, None
            waiting.callback(None)

    def _on_published(self, size: int, message_id: MessageId) -> None:
        local = message_id.local  # 0: not known, and so is the lowest
        if local < self._lowest_id:
            self._lowest_id = local
        if local > self._highest_id:
            self._highest_id = local
        if 0 < local <= self._newest_id:
            self.repeated += 1
        self._unanswered -= 1
        self._unanswered_bytes -= size
        if self._waiting is not None:
            self._look()

    def _on_failed(self, size: int, error: BookKeeperError) -> None:
        self._unanswered -= 1
        self._unanswered_bytes -= size
        self._error = self._error or error
        self._look()
