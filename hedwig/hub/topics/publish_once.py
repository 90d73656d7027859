"""Publishing once, in one topic: what a message with a producer's number is, before it goes into the log.

    a connection's publishes -> parts_of -> TopicLog.publish         messages that say nothing of a producer
                                         -> TopicLog.publish_once -> PublishingOnce
                                                judged (protocol/producers.py)
                                                  NEW          -> the log, as many at a time as follow each other
                                                  REPEAT       -> answered with the first id
                                                  UNDER_WAY    -> answered with the first one
                                                  the others   -> refused

Who published what is rebuilt from `topics/<topic>/hw.producers` and the messages behind what that says, when the first
message with a number arrives after the topic was acquired: a topic without producers pays nothing. Publishes wait
meanwhile, all of them, in their order. There is no such znode before the first message with a number, so that what is
stored with one before (by hubs that know nothing of it) is looked for in the last `TAIL_MAX` messages only.

The znode is written before the first message with a number goes into the log, then every `SNAPSHOT_EVERY` messages,
when the topic is released, and before messages are deleted that it does not tell of. Any content is true, whoever wrote
it and when: it says what the topic has up to some message. So a hub that lost the topic can do no harm with it, but for
telling of less than was deleted: a newer one is never replaced by an older one.

A hub that knows nothing of it may have the topic in between. What it stores is read like everything else; repeats that
it stored count as the first one. What it stored and deleted is not known any more.

Bounds: what waits counts as the log's pending bytes; a znode of `SNAPSHOT_SIZE_MAX`. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from hedwig.errors import MalformedRequest, PubSubError, ServiceDown, StaleVersion
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.topics.reads import TopicReader
from hedwig.model import LocalId, MessageId
from hedwig.names import shown
from hedwig.protocol.options import KEEP, KEEP_MS_MAX, PREVIOUS, PRODUCER, SEQUENCE, number_of
from hedwig.protocol.producers import Origin, Producers, Verdict, origin_of
from hedwig.wire.messages import PROPERTIES_MAX, header_at, header_properties
from hedwig.wire.requests import Publishes
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from hedwig.hub.topics.log import TopicLog

log = Logger()

SNAPSHOT_EVERY = 5_000
SNAPSHOT_SIZE_MAX = 256 * 1024
TAIL_MAX = 2_000
READ_AT_ONCE = 2_000
"""Messages; and as many bytes as the reader reads at once."""

ATTEMPTS_MAX = 5

_KEEP = KEEP.encode()
_PROPERTIES = (PRODUCER.encode(), SEQUENCE.encode(), PREVIOUS.encode())

OnAnswer = Callable[[int, int, MessageId | None, PubSubError | None], object]
"""Of messages index .. index + count - 1 of a call: the id of the first, the others' follow; or why there is none."""


# --- what a connection publishes


class Part(NamedTuple):
    """Messages that are stored, or refused, in one way.

    origins: their producers, if they name one. error: why they are refused. keep_ms: retention that the message sets
    for its topic; it is the only message of the part.
    """

    txn_ids: list[int]
    messages: list[bytes]
    plain: bool
    origins: list[Origin] | None = None
    error: PubSubError | None = None
    keep_ms: int | None = None


def parts_of(request: Publishes) -> Iterator[Part]:
    """In their order. Messages that say something of other regions go one by one: it is part of their own ids."""
    if request.usual and not any(b"hw." in message for message in request.messages):
        yield Part(request.txn_ids, request.messages, plain=False)
        return
    part: Part | None = None
    for txn_id, message in zip(request.txn_ids, request.messages, strict=True):
        at = header_at(message)
        try:
            origin, keep_ms = _origin(message, at), _keep_ms(message, at)
        except BookKeeperError as error:
            if part is not None:
                yield part
            refusal = error if isinstance(error, PubSubError) else MalformedRequest(str(error))
            part = None
            yield Part([txn_id], [message], plain=False, error=refusal)
            continue
        alone = at is None or keep_ms is not None
        if part is not None and (alone or (part.origins is None) != (origin is None)):
            yield part
            part = None
        if part is None:
            part = Part([txn_id], [message], False, None if origin is None else [origin], keep_ms=keep_ms)
        else:
            part.txn_ids.append(txn_id)
            part.messages.append(message)
            if part.origins is not None and origin is not None:
                part.origins.append(origin)
        if alone:
            yield part
            part = None
    if part is not None:
        yield part


def _origin(message: bytes, at: int | None) -> Origin | None:
    if at is None:
        return origin_of(header_properties(message, at)) if _names_any(message) else None
    if at == len(message) or not _names_any(message[at:]):
        return None
    return origin_of(header_properties(message, at))


def _names_any(data: bytes) -> bool:
    return any(name in data for name in _PROPERTIES)


def _keep_ms(message: bytes, at: int | None) -> int | None:
    if _KEEP not in (message if at is None else message[at:]):
        return None
    value = header_properties(message, at).get(KEEP)
    return None if value is None else number_of(value, f"the header property {KEEP}", 0, KEEP_MS_MAX)


# --- one topic


@dataclass(slots=True)
class _Waiting:
    """A call that waits until it is known who published what. once: it has numbers."""

    run: Callable[[], None]
    refuse: Callable[[PubSubError], None]
    size: int
    once: bool


class PublishingOnce:
    """See the module. acquired: the last message when this hub took the topic over; none of its own had a number.

    region: producers of others have numbers of their own there, whatever their names.
    """

    def __init__(
        self, topic_log: TopicLog, metadata: HubMetadata, client: LedgerClient, acquired: LocalId, region: bytes
    ) -> None:
        self._region = region
        self._log, self._metadata, self._client, self._acquired = topic_log, metadata, client, acquired
        self._known: Producers[Callable[[MessageId | None, PubSubError | None], object]] | None = None
        self._calls: deque[_Waiting] = deque()
        self._loading = False
        self._storing = False
        self._under_way = 0
        self._stored, self._version = LocalId(0), -1  # of the znode: through; its version once known
        self.waiting_bytes = 0

    @property
    def is_loading(self) -> bool:
        """Whatever is published has to wait."""
        return self._loading

    @property
    def stored(self) -> LocalId:
        """Messages up to this one are not needed to know who published what."""
        return self._stored

    def publish(self, messages: Sequence[bytes], origins: Sequence[Origin], on_answer: OnAnswer) -> None:
        """As TopicLog.publish, which has looked whether there is room. `on_answer` is told of every message once."""
        if self._known is None:
            self.wait(
                sum(map(len, messages)),
                lambda: self.publish(messages, origins, on_answer),
                lambda error: on_answer(0, len(messages), None, error),
                once=True,
            )
            self.load()
            return
        known, start = self._known, -1
        for index, origin in enumerate(origins):
            verdict, local_id = known.judge(origin)
            if verdict is not Verdict.NEW and start >= 0:
                self._store(messages[start:index], origins[start:index], start, on_answer)
                start = -1
                verdict, local_id = known.judge(origin)  # those may have failed at once
            if verdict is Verdict.NEW:
                known.on_begun(origin)
                start = index if start < 0 else start
            elif verdict is Verdict.REPEAT:
                assert local_id is not None
                on_answer(index, 1, MessageId(local_id), None)
            elif verdict is Verdict.UNDER_WAY:
                known.wait(origin, partial(on_answer, index, 1))
            else:
                on_answer(index, 1, None, known.refusal(origin, verdict))
        if start >= 0:
            self._store(messages[start:], origins[start:], start, on_answer)

    def _store(self, messages: Sequence[bytes], origins: Sequence[Origin], start: int, on_answer: OnAnswer) -> None:
        """New ones, which are noted as begun."""
        known = self._known
        assert known is not None

        def done(first: MessageId | None, error: PubSubError | None) -> None:
            self._under_way -= 1
            for index, origin in enumerate(origins):
                if first is None:
                    found, waiters = None, known.on_failed(origin)
                else:
                    found = MessageId(LocalId(first.local + index), first.remote)
                    waiters = known.on_durable(origin, found.local)
                for waiter in waiters:
                    waiter(found, error)
            on_answer(start, len(origins), first, error)

        self._under_way += 1
        self._log.store(messages, done, plain=False)

    # --- waiting

    def wait(
        self, size: int, run: Callable[[], None], refuse: Callable[[PubSubError], object], *, once: bool = False
    ) -> None:
        """Run it behind what waits already; or tell it that there will be nothing."""

        def refused(error: PubSubError) -> None:
            refuse(error)

        self.waiting_bytes += size
        self._calls.append(_Waiting(run, refused, size, once))

    def refuse_all(self, error: PubSubError) -> None:
        """The topic is given up."""
        while self._calls:
            call = self._calls.popleft()
            self.waiting_bytes -= call.size
            _safely(partial(call.refuse, error))

    def _go_on(self, error: PubSubError | None) -> None:
        """What waits runs; of those with numbers only if it is known now who published what."""
        while self._calls and not self._loading:
            call = self._calls.popleft()
            self.waiting_bytes -= call.size
            if call.once and error is not None:
                _safely(partial(call.refuse, error))
            else:
                _safely(call.run)

    # --- knowing

    def load(self) -> None:
        """Find out who published what, unless that is known or under way."""
        if self._known is None and not self._loading:
            self._loading = True
            Deferred.fromCoroutine(self._load()).addBoth(self._loaded)

    def _loaded(self, result: object) -> None:
        self._loading = False
        error: PubSubError | None = None
        found = getattr(result, "value", None)
        if isinstance(found, PubSubError):
            error = found
        elif found is not None:
            if not isinstance(found, BookKeeperError):
                log.error(
                    "Finding out who published what in {topic!r} broke: {why}", topic=shown(self._log.topic), why=result
                )
            error = ServiceDown(f"topic {self._log.topic!r}: who published what cannot be read: {found}")
        if error is not None:
            log.warn("{error}", error=error)
        self._go_on(error)

    async def _load(self) -> None:
        topic_log, where = self._log, self._metadata.paths.producers(self._log.topic)
        data, version = await self._metadata.producers(topic_log.topic)
        known: Producers[Callable[[MessageId | None, PubSubError | None], object]]
        if data is None:
            known = Producers()
            start = max(topic_log.first_id, LocalId(self._acquired - TAIL_MAX + 1))
        else:
            known = Producers.decode(data, where=where)
            start = LocalId(known.through + 1)
            if start < min(topic_log.first_id, self._acquired):
                log.info(
                    "Messages {start} to {end} of topic {topic!r} were deleted by a hub that knows no producers",
                    start=start,
                    end=topic_log.first_id - 1,
                    topic=shown(topic_log.topic),
                )
            start = max(start, topic_log.first_id)
        stored = known.through
        await self._read(known, start)
        self._stored, self._version = stored, -1 if version is None else version
        # What this hub stored itself had no numbers.
        known.on_stored(max(self._acquired, topic_log.durable_id), None)
        self._known = known
        if version is None:
            try:
                await self._write()
            except BaseException:
                self._known = None
                raise

    async def _read(
        self, known: Producers[Callable[[MessageId | None, PubSubError | None], object]], start: int
    ) -> None:
        """Note the messages from `start` to the last one of the owners before."""
        reader = TopicReader(self._client, self._log)
        try:
            while start <= self._acquired:
                stored = await reader.read(LocalId(start), min(READ_AT_ONCE, self._acquired - start + 1))
                if not stored:
                    raise ServiceDown(f"message {start} of topic {self._log.topic!r} cannot be read")
                for local, message in enumerate(stored, start):
                    known.on_stored(LocalId(local), stored_origin(message, self._region))
                start += len(stored)
        finally:
            reader.close()

    # --- remembering

    def on_durable(self, durable: LocalId) -> None:
        """So far the topic is stored."""
        if durable - self._stored >= SNAPSHOT_EVERY and not self._storing and self._known is not None:
            self.store_soon()

    def store_soon(self) -> None:
        """Write what is known, in the background."""
        if self._storing or self._known is None:
            return
        writing = Deferred.fromCoroutine(self.store())
        writing.addErrback(lambda failure: log.failure("Writing the record of producers failed", failure=failure))

    async def store(self) -> None:
        """Write what is known. Never fails: what cannot be written is read from the topic."""
        if self._known is None or self._storing:
            return
        try:
            await self._write()
        except BookKeeperError as error:
            log.warn(
                "Who published what in topic {topic!r} is not stored: {error}",
                topic=shown(self._log.topic),
                error=error,
            )

    async def _write(self) -> None:
        known = self._known
        assert known is not None
        if not self._under_way:
            known.on_stored(self._log.durable_id, None)
        data, through = self._encoded(known), known.through
        if self._version >= 0 and through <= self._stored:
            return
        self._storing = True
        try:
            for _ in range(ATTEMPTS_MAX):
                version = None if self._version < 0 else self._version
                try:
                    self._version = await self._metadata.write_producers(self._log.topic, data, version)
                except StaleVersion:
                    if await self._is_newer(through):
                        return
                    continue
                self._stored = through
                return
            raise StaleVersion(f"{self._metadata.paths.producers(self._log.topic)} changes all the time")
        finally:
            self._storing = False

    def _encoded(self, known: Producers[Callable[[MessageId | None, PubSubError | None], object]]) -> bytes:
        data = known.encode()
        for runs_max in (64, 8, 1):
            if len(data) <= SNAPSHOT_SIZE_MAX:
                break
            data = known.encode(runs_max)
        return data

    async def _is_newer(self, through: LocalId) -> bool:
        """Whether what is there tells of more than that; else its version is known now."""
        data, version = await self._metadata.producers(self._log.topic)
        self._version = -1 if version is None else version
        if data is None:
            return False
        there = Producers[object].decode(data, where=self._metadata.paths.producers(self._log.topic)).through
        self._stored = there
        return there >= through


def stored_origin(message: bytes, region: bytes) -> Origin | None:
    if not _names_any(message):
        return None
    view = MessageView(message, PROPERTIES_MAX)
    try:
        return origin_of(view.properties) if view.region == region else None
    except BookKeeperError:
        return None  # stored by a hub that did not look at it


def _safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - one caller's fault must not keep the others back
        log.failure("A waiting publish failed")
