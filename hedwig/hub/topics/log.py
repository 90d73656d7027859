"""One topic's messages while this hub owns it: a chain of ledgers, of which only the last is written.

    new --acquire()--> ready --release()--> released
                         |
                         +--any error, any stale version--> lost: everybody who waits hears of it, nothing more is taken

    topics/<topic>/ledgers     [first..last] [first..last] ... [first..        at most one open, and it is the last

Acquisition (I-90): read the list, behind the claim's write; recover the open ledger, which stops the adds of whoever
owned the topic before; write the list by its version, changed or not, which stops that one's changes of it. Only then
anything is served. Where no ledger is open the claim wrote the list itself (HubMetadata.claim). No ledger is made: the
first publish does that, and lists it before a message goes into it.

Publish (I-88, I-89): a message gets its id and goes to the ledger in one step, in the order of the calls, and is
answered once its entry is acknowledged. After one failed add the topic is lost: what was not answered may be there or
not, and nothing is ever sent again under another id.

It gets a time too, that of its batch (hedwig/protocol/publish_time.py), unless the settings say otherwise. The newest
message of the owner before is read for that, beside the making of the first ledger.

Messages with a producer's number are judged before they go in (hedwig/hub/topics/publish_once.py).

A ledger that is long, large or old enough is ended once all of it is acknowledged; the list hears of it with the next
ledger, or at release. A list above ENDS_SHARE keeps its last ledger; above LIST_SHARE no ledger is added to it.
Trimming shortens it. Bound: `pending_bytes_max`. Thread: reactor. Source: hedwig/PROTOCOL.md 2.2, 3.3.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import (
    BookKeeperError,
    InvalidArgument,
    LedgerFencedOff,
    LedgerIdOccupied,
    RemoteProtocolError,
    WindowFull,
)
from bookkeeper.model import DigestType
from hedwig.errors import (
    MalformedRequest,
    NotResponsible,
    PubSubError,
    ServiceDown,
    StaleVersion,
    UncertainState,
    UnexpectedCondition,
)
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.topics.chain import LedgerChain
from hedwig.hub.topics.log_settings import TopicLogSettings
from hedwig.hub.topics.publish_once import SNAPSHOT_EVERY, PublishingOnce
from hedwig.model import FIRST_ID, LedgerRange, LocalId, MessageId, Topic
from hedwig.names import shown
from hedwig.protocol.publish_time import PublishClock
from hedwig.protocol.subscription import REMOTE_SIZE_MAX
from hedwig.wire.framing import FRAME_ALLOWANCE
from hedwig.wire.messages import Stamp, header_at, remote_of

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.write.write_handle import WriteHandle
    from bookkeeper.ports import Clock
    from hedwig.hub.topics.publish_once import OnAnswer
    from hedwig.protocol.producers import Origin

log = Logger()

T = TypeVar("T")

IDLE_ENDS_MAX = 1000
"""Ledgers of a topic from which on none is ended only because nobody publishes."""

IDLE_STEP = 4
"""For every IDLE_STEP ledgers of a topic, the open one may be idle for `idle_max_s` longer.

Otherwise a topic with rare publishes and a retention of a week would have a ledger for each message. With
idle_max_s = 600 it has at most 63: a publish every m * 600 s makes at most 1008 / m ledgers a week, and no further one
is ended once there are IDLE_STEP * m.
"""

ENDS_SHARE = 1 / 2
"""Share of the largest request to ZooKeeper (zkMaxRequestSizeBytes) that the list of a topic's ledgers may use before
ledgers are no longer ended for size, age or entries: some 13 000 ledgers by default."""

LIST_SHARE = 7 / 8
"""Share above which no ledger is added and publishes are refused: some 22 000 ledgers by default.

Only takeovers make a list that long, since each needs a ledger. The remaining eighth is for the ends of ledgers and
for regions, so that a topic can always be acquired, delivered and trimmed."""

CLAIMED_IN_A_ROW_MAX = 3
"""Ledgers in a row with an id that was claimed after `create` found it free; after one more the topic is given up."""

REGIONS_MAX = 100
"""Other regions that the ids of a topic's messages may tell of: each message, and each record, has them all."""

REGION_NAME_MAX = 255
"""Bytes of a region's name in the id of a published message. The ids of all later messages contain it."""

_REGION_SIZE = 32
"""Bytes of a region in an id beside its name, at most."""

_STAMP_SIZE_MAX = 192
"""Bytes added to a message besides region names: tags, sizes, its number, the time, the fields of its first region."""

_LEDGER_METADATA_VERSION = 2
"""Text, which the hubs of 4.2 and 4.3 read."""

_NONE = LocalId(0)

OnDone = Callable[[MessageId | None, PubSubError | None], object]
"""Called once for each publish: with the id of its first message, or with why it is not known to be there."""


class LogState(enum.Enum):
    """What may be done with a topic's log."""

    NEW = "not acquired"
    READY = "owned"
    RELEASING = "being released"
    RELEASED = "released"
    LOST = "lost"


_NOBODYS: deque[Any] = deque(maxlen=0)
"""In place of the deques of a topic that nobody published to: an empty one takes some 700 bytes."""


@dataclass(slots=True, eq=False)
class _Publish:
    """Messages of one call. taken: how many have an id; last: the id of the last of them, once all have one. foreign:
    another region stored them first.
    """

    messages: Sequence[bytes]
    plain: bool
    size: int
    on_done: OnDone
    foreign: bool = False
    taken: int = 0
    first: MessageId | None = None
    last: LocalId = _NONE


class TopicLog:
    """See the module. on_lost: called once when the topic is lost, not by `release`.

    on_durable: told the stored forms of messages, in order and once, when they are acknowledged and their publishers
    have been answered.
    """

    __slots__ = (
        "_acquired",
        "_busy",
        "_claimed_in_a_row",
        "_client",
        "_clock",
        "_durable",
        "_ending",
        "_handle",
        "_held",
        "_idle",
        "_last",
        "_ledger_begun_s",
        "_ledger_bytes",
        "_leftover",
        "_list_size",
        "_looking",
        "_metadata",
        "_missing",
        "_no_producers",
        "_on_durable",
        "_on_lost",
        "_once",
        "_open",
        "_pending_bytes",
        "_published_s",
        "_queue",
        "_ranges",
        "_regions_told",
        "_sent",
        "_settings",
        "_settling",
        "_stamp",
        "_times",
        "_under_way",
        "_version",
        "error",
        "password",
        "state",
        "topic",
    )

    def __init__(
        self,
        metadata: HubMetadata,
        client: LedgerClient,
        clock: Clock,
        topic: Topic,
        stamp: Stamp,
        settings: TopicLogSettings,
        on_lost: Callable[[PubSubError], object],
        on_durable: Callable[[list[bytes]], object] = lambda stored: None,
    ) -> None:
        self.topic = topic
        self._on_durable = on_durable
        self._sent: deque[list[bytes]] = _NOBODYS  # stored forms that are not acknowledged
        self.state = LogState.NEW
        self.error: PubSubError | None = None
        self.password = settings.password
        self._metadata, self._client, self._clock = metadata, client, clock
        self._stamp, self._settings, self._on_lost = stamp, settings, on_lost
        # durable <= last; entries of the ledger being written: ledger_first .. last
        self._ranges: list[LedgerRange] = []  # ended ones
        self._list_size = 0  # bytes of their record, at most
        self._version: int | None = None
        self._last = MessageId(LocalId(0))
        self._durable = LocalId(0)
        self._handle: WriteHandle | None = None
        self._open: LedgerRange | None = None
        self._ledger_bytes, self._ledger_begun_s, self._published_s = 0, 0.0, 0.0
        self._busy = False  # a ledger is being made or ended, or some are deleted: the list may change
        self._held = False  # ... or something is done that holds only for the list as it is
        self._settling: tuple[Deferred[None], ...] = ()
        self._ending = False  # the ledger takes no more
        self._claimed_in_a_row = 0  # ledgers given up because another key claimed their ids
        self._queue: deque[_Publish] = _NOBODYS  # not all of it has ids
        self._under_way: deque[_Publish] = _NOBODYS  # all of it has
        self._pending_bytes = 0
        self._idle: list[Deferred[None]] = []
        self._regions_told: tuple[tuple[bytes, int], ...] = ()  # by publishers, so far
        self._acquired = _NONE  # the last message of the owners before
        self._once: PublishingOnce | None = None  # of a topic with producers that publish by number
        self._no_producers = False  # none did so far
        self._looking = False  # whether one did is being looked for
        self._leftover: LedgerRange | None = None  # an empty ledger, listed until there is another one
        self._missing = _NONE  # messages up to here are listed, and were deleted, or are to be
        self._times: PublishClock | None = None  # of a topic that is published to

    # --- what is known

    @property
    def last_id(self) -> MessageId:
        """The last id given out."""
        return self._last

    @property
    def durable_id(self) -> LocalId:
        """All up to this one are acknowledged."""
        return self._durable

    @property
    def ranges(self) -> list[LedgerRange]:
        """All ledgers, in order."""
        return [*self._ranges, self._open] if self._open is not None else list(self._ranges)

    @property
    def is_timed(self) -> bool:
        """Whether this hub gives the messages their times; else a time in them is what their publishers wrote."""
        return self._stamp.now_ms is not None and not self.topic.startswith(self._settings.untimed)

    @property
    def first_id(self) -> LocalId:
        """Of the oldest message that is there, or will be."""
        oldest = self._ranges[0] if self._ranges else self._open
        if oldest is None:
            return LocalId(self._last.local + 1)
        return LocalId(max(oldest.first or FIRST_ID, self._missing + 1))

    def range_of(self, local: LocalId) -> LedgerRange | None:
        """The ledger that a message is in, if it is there; None behind the last one. Raises UnexpectedCondition."""
        if local < self.first_id:
            raise UnexpectedCondition(
                f"message {local} of topic {self.topic!r} is not kept any more: they begin at {self.first_id}"
            )
        if self._open is not None and local >= (self._open.first or FIRST_ID):
            return self._open
        at = bisect_right(self._ranges, local, key=_first_of) - 1
        found = self._ranges[at] if at >= 0 else None
        return found if found is not None and found.last is not None and local <= found.last.local else None

    @property
    def ledger_bytes(self) -> int:
        """Of the messages in the ledger that is being written."""
        return self._ledger_bytes if self._open is not None else 0

    @property
    def pending_bytes(self) -> int:
        """Of messages that are not answered."""
        return self._pending_bytes

    def _is_list_beyond(self, share: float) -> bool:
        """Return whether the list of ledgers may exceed this share of the largest request to ZooKeeper."""
        return self._list_size > share * self._metadata.request_size_max

    def _set_ranges(self, ranges: list[LedgerRange]) -> None:
        self._ranges, self._list_size = ranges, sum(map(_listed_size, ranges))

    @property
    def _chain(self) -> LedgerChain:
        return LedgerChain(self._client, self.topic, self.password, self._metadata.paths.ledgers(self.topic))

    # --- acquiring

    async def acquire(self) -> None:
        """Take the topic over from whoever had it. Raises PubSubError, BookKeeperError; the log is of no use then."""
        if self.state is not LogState.NEW:
            raise InvalidArgument(f"the log of topic {self.topic!r} is {self.state.value}")
        found = await self._metadata.ranges(self.topic, synced=True)  # the claim was written just now
        try:
            ranges, empty = await self._chain.ended(found.value)
        except UnexpectedCondition as error:
            # Whoever acquired it meanwhile may have deleted an empty ledger that this list names.
            if (await self._metadata.ranges(self.topic)).version != found.version:
                raise StaleVersion(f"another hub acquired topic {self.topic!r} meanwhile") from error
            raise
        # An empty ledger that stands alone is all that says which ids were used.
        kept = ranges or ([empty] if empty is not None and empty.first != FIRST_ID else [])
        if self._metadata.is_listed(self.topic):
            self._version = found.version
        else:
            self._version = await self._metadata.write_ranges(self.topic, kept, found.version)
        self._set_ranges(ranges)
        if ranges:
            last = ranges[-1].last
            assert last is not None
            self._last, self._durable = last, last.local
        elif empty is not None and empty.first is not None:
            self._last = MessageId(LocalId(empty.first - 1))
            self._durable = self._last.local
        self._acquired = self._last.local
        self._no_producers = self._metadata.is_new(self.topic)
        self.state = LogState.READY
        if empty is not None and empty not in kept:
            await self._chain.delete_empty(empty.ledger_id)
        else:
            self._leftover = empty

    # --- publishing

    def publish(self, messages: Sequence[bytes], on_done: OnDone, *, plain: bool) -> None:
        """Store messages, in this order behind all before; not empty. plain: see `hedwig.wire.messages.is_plain`.

        `on_done` runs once; within this call only where that loses the topic. Raises NotResponsible where the topic is
        not owned (any more), ServiceDown where too much waits already, and MalformedRequest for messages that tell of
        too many other regions or do not fit into an entry; nothing was taken then.
        """
        size = sum(map(len, messages))
        self._check_room(size)
        self._check_sizes(messages, size)
        if not plain and self._settings.remote_of_publishers:
            self._check_regions(messages)
        if self._once is not None and self._once.is_loading:
            self._once.wait(
                size, lambda: self.store(messages, on_done, plain=plain), lambda error: on_done(None, error)
            )
            return
        self._enqueue(messages, size, on_done, plain=plain)

    def publish_once(self, messages: Sequence[bytes], origins: Sequence[Origin], on_answer: OnAnswer) -> None:
        """As `publish`, of messages with producers' numbers: each is stored once, and refused where that is not sure.

        `on_answer` is told of every message once; of those that are not new within this call. Raises as `publish`.
        """
        size = sum(map(len, messages))
        self._check_room(size)
        self._check_sizes(messages, size)
        if len(messages) == 1 and header_at(messages[0]) is None and self._settings.remote_of_publishers:
            # A message that names other regions is alone in its batch.
            self._check_regions(messages)
        if self._once is None:
            self._once = PublishingOnce(self, self._metadata, self._client, self._acquired, self._stamp.region)
        if self._once.is_loading:
            self._once.wait(
                size,
                lambda: self._publish_once(messages, origins, on_answer),
                lambda error: on_answer(0, len(messages), None, error),
                once=True,
            )
            return
        self._once.publish(messages, origins, on_answer)

    def _publish_once(self, messages: Sequence[bytes], origins: Sequence[Origin], on_answer: OnAnswer) -> None:
        assert self._once is not None
        self._once.publish(messages, origins, on_answer)

    def store(self, messages: Sequence[bytes], on_done: OnDone, *, plain: bool) -> None:
        """As `publish`, of what was found to have room before; where the topic was lost since, `on_done` says so."""
        if self.state is not LogState.READY:
            on_done(None, self._not_served() if self.error is None else _refusal(self.error))
            return
        self._enqueue(messages, sum(map(len, messages)), on_done, plain=plain)

    def store_foreign(self, messages: Sequence[bytes], on_done: OnDone) -> None:
        """As `publish`, of stored messages of another region. They keep their region, and their numbers are noted."""
        size = sum(map(len, messages))
        self._check_room(size)
        self._check_sizes(messages, size)
        self._enqueue(messages, size, on_done, plain=False, foreign=True)

    def refuses_some(self, messages: Sequence[bytes], size: int) -> bool:
        """Return whether a message is too large to be stored. size: bytes of all messages."""
        if size <= self._settings.stored_size_max - FRAME_ALLOWANCE:
            return False
        return max(map(len, messages)) > self._message_size_max

    @property
    def _message_size_max(self) -> int:
        """Bytes of the largest publish that can be stored, with region, id and time added."""
        known = self._last.merged(self._regions_told).remote
        added = _STAMP_SIZE_MAX + len(self._stamp.region) + sum(len(region) + _REGION_SIZE for region, _ in known)
        return self._settings.stored_size_max - added

    def _check_sizes(self, messages: Sequence[bytes], size: int) -> None:
        """Refuse a message that does not fit into an entry: the ledger would fail, and the hub would lose the topic."""
        if self.refuses_some(messages, size):
            raise MalformedRequest(
                f"topic {self.topic!r}: a message of {max(map(len, messages))} bytes; at most "
                f"{self._message_size_max} can be stored; publish less, or raise nettyMaxFrameSizeBytes of hubs and "
                "bookies"
            )

    def _check_room(self, size: int) -> None:
        if self.state is not LogState.READY:
            raise self._not_served()
        pending = self._pending_bytes if self._once is None else self._pending_bytes + self._once.waiting_bytes
        if pending and pending + size > self._settings.pending_bytes_max:
            raise ServiceDown(
                f"{pending} bytes of topic {self.topic!r} wait to be stored, and at most "
                f"{self._settings.pending_bytes_max} may: try again later"
            )

    def _check_regions(self, messages: Sequence[bytes]) -> None:
        known = self._last.merged(self._regions_told)  # some may wait for a ledger
        for message in messages:
            if header_at(message) is not None:
                continue  # nothing of other regions
            try:
                named = remote_of(message, REGIONS_MAX)
            except RemoteProtocolError as error:
                raise MalformedRequest(f"topic {self.topic!r}: {error}") from error
            longest = max((len(region) for region, _ in named), default=0)
            if longest > REGION_NAME_MAX:
                raise MalformedRequest(
                    f"topic {self.topic!r}: the id of a published message names a region with {longest} bytes; at most "
                    f"{REGION_NAME_MAX} are possible: publish without the message id of another region"
                )
            known = known.merged(named)
            if len(known.remote) > REGIONS_MAX:
                raise MalformedRequest(
                    f"the ids of topic {self.topic!r} would tell of {len(known.remote)} other regions, and at most "
                    f"{REGIONS_MAX} may be: publish without the message id of another region"
                )
            size = sum(len(region) + _REGION_SIZE for region, _ in known.remote)
            if size > REMOTE_SIZE_MAX:
                raise MalformedRequest(
                    f"topic {self.topic!r}: its message ids would have {size} bytes of other regions; at most "
                    f"{REMOTE_SIZE_MAX} are possible: publish without the message id of another region"
                )
        self._regions_told = known.remote

    def _not_served(self) -> NotResponsible:
        return NotResponsible(f"this hub does not serve topic {self.topic!r}: it is {self.state.value}")

    def _enqueue(
        self, messages: Sequence[bytes], size: int, on_done: OnDone, *, plain: bool, foreign: bool = False
    ) -> None:
        self._pending_bytes += size
        queue = self._queue
        if queue is _NOBODYS:
            queue = self._queue = deque()
            self._under_way, self._sent = deque(), deque()
        queue.append(_Publish(messages, plain, size, on_done, foreign))
        ready = len(queue) == 1 and self._handle is not None and not self._busy and not self._ending
        if not ready or not self._take(queue[0]) or queue or self._ending:
            self._pump()

    def _pump(self) -> None:
        """Give ids to what waits, as far as the ledger has room; make one, or end one, if that is due."""
        while self._queue and self.state in (LogState.READY, LogState.RELEASING):
            if self._busy or self._ending:
                break
            if self._handle is None:
                if self._held:
                    break
                self._begin(self._open_ledger())
                break
            if not self._take(self._queue[0]):
                break
        ended = self._handle is None  # or lost
        if self._ending and not ended and not self._busy and not self._held and self._durable == self._last.local:
            self._begin(self._end_ledger())
        if not self._queue and not self._under_way and not self._busy and not self._held:
            if self._handle is None:
                self._queue = self._under_way = self._sent = _NOBODYS
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def _take(self, publish: _Publish) -> bool:
        """Send what fits of the first call that waits; False where nothing more fits now."""
        handle = self._handle
        assert handle is not None
        messages, waits = publish.messages, self._durable < self._last.local
        if len(messages) > 1 or self._settings.entries_max:
            count = min(len(messages) - publish.taken, self._room())
            if waits:
                count = min(count, handle.window_free)
            if count <= 0:
                return False
            messages = messages[publish.taken : publish.taken + count]
        else:
            count = 1  # whether it fits is found out by trying
        stored, last = self._stamped(messages, plain=publish.plain, foreign=publish.foreign)
        try:
            try:
                handle.append_batch_nowait(stored)
            except WindowFull:
                if waits:
                    return False  # acknowledgements make room, and then it is tried again
                # None are to come: it is other ledgers' entries that fill the bookies' connections, or these are more
                # than the window holds. They wait in the handle, which hears of any room.
                handle.append_many(stored).addErrback(_told_otherwise)
        except BookKeeperError as error:
            self._lose(ServiceDown(f"topic {self.topic!r}: {error}"), error)
            return False
        if self.state is LogState.LOST:
            return False  # within the call: whoever published was told
        if publish.first is None:
            publish.first = MessageId(LocalId(self._last.local + 1), last.remote)
        self._last = last
        now = self._published_s = self._clock.seconds()
        self._sent.append(stored)
        publish.taken += count
        self._ledger_bytes += sum(map(len, stored))
        if publish.taken == len(publish.messages):
            publish.last = last.local
            self._queue.popleft()
            self._under_way.append(publish)
        if self._is_due(now) and not self._is_list_beyond(ENDS_SHARE):
            self._ending = True
        return True

    def _room(self) -> int:
        """Entries that the ledger still takes."""
        if not self._settings.entries_max or self._is_list_beyond(ENDS_SHARE):
            return 1 << 30
        assert self._open is not None
        assert self._open.first is not None
        return self._settings.entries_max - (self._last.local + 1 - self._open.first)

    def _is_due(self, now: float) -> bool:
        settings = self._settings
        return (
            0 < settings.bytes_max <= self._ledger_bytes
            or 0 < settings.age_max_s <= now - self._ledger_begun_s
            or (settings.entries_max > 0 and self._room() <= 0)
        )

    def _stamped(self, messages: Sequence[bytes], *, plain: bool, foreign: bool) -> tuple[list[bytes], MessageId]:
        """As they are stored, and the id of the last one."""
        last, stamp, time_ms = self._last, self._stamp, None
        if self._times is not None and stamp.now_ms is not None:
            time_ms = self._times.stamp(stamp.now_ms())
        if plain:
            local, remote = last
            stored = stamp.plain(messages, LocalId(local + 1), time_ms, remote)
            return stored, MessageId(LocalId(local + len(messages)), remote)
        stored = []
        for message in messages:
            if foreign:
                one, last = stamp.foreign(message, last, time_ms)
                stored.append(one)
                continue
            at = header_at(message)
            last = MessageId(LocalId(last.local + 1), last.remote)
            if at is not None:
                stored.append(stamp.headed(message, at, last, time_ms))
                continue
            if self._settings.remote_of_publishers:
                last = last.merged(remote_of(message, REGIONS_MAX))
            stored.append(stamp.any(message, last, time_ms))
        return stored, last

    def _on_acknowledged(self, entry_ids: range) -> None:
        if self._open is None or self.state is LogState.LOST:
            return
        assert self._open.first is not None
        self._claimed_in_a_row = 0
        before, self._durable = self._durable, LocalId(self._open.first + entry_ids.stop - 1)
        stored = self._acknowledged(self._durable - before) if self._durable > before else None
        under_way = self._under_way
        while under_way and under_way[0].last <= self._durable:
            publish = under_way.popleft()
            self._pending_bytes -= publish.size
            _tell(publish, None)
        if self._is_lost():
            return  # whoever was told gave it up
        if stored is not None:
            try:
                self._on_durable(stored)
            except Exception:  # noqa: BLE001 - a subscriber's fault must not keep publishers waiting
                log.failure("Delivering what was published to topic {topic!r} failed", topic=shown(self.topic))
            if self._once is not None:
                self._once.on_durable(self._durable)
            elif not (self._no_producers or self._looking) and self._durable - self._acquired >= SNAPSHOT_EVERY:
                self._begin_looking()
        self._pump()

    def _acknowledged(self, count: int) -> list[bytes]:
        """The next so many of what was sent."""
        if len(self._sent[0]) == count:
            return self._sent.popleft()
        found: list[bytes] = []
        while len(found) < count:
            stored = self._sent.popleft()
            left = count - len(found)
            if len(stored) > left:
                self._sent.appendleft(stored[left:])
                stored = stored[:left]
            found += stored
        return found

    def _on_failed(self, error: BookKeeperError) -> None:
        nothing_acknowledged = self._open is not None and self._durable < (self._open.first or FIRST_ID)
        if (
            isinstance(error, LedgerIdOccupied | LedgerFencedOff)
            and nothing_acknowledged
            and self.state is LogState.READY
            and not (self._busy or self._held)
        ):
            self._begin(self._leave_claimed_ledger(error))
            return
        self._lose(ServiceDown(f"topic {self.topic!r} cannot be written: {error}"), error)

    # --- producers

    def _begin_looking(self) -> None:
        self._looking = True

        async def look() -> None:
            try:
                await self._look_for_producers()
            except BookKeeperError as error:
                log.warn(
                    "Who published what in topic {topic!r} is looked up later: {error}",
                    topic=shown(self.topic),
                    error=error,
                )
            finally:
                self._looking = False

        Deferred.fromCoroutine(look()).addErrback(
            lambda failure: log.failure("Looking for producers failed", failure=failure)
        )

    async def _look_for_producers(self) -> bool:
        """Whether anybody ever published here by number. What is behind the record of that must not grow without end:
        so from now on it is known, and written now and then.
        """
        if self._once is None and (await self._metadata.producers(self.topic)).value is not None:
            if self._once is None:
                self._once = PublishingOnce(self, self._metadata, self._client, self._acquired, self._stamp.region)
            self._once.load()
        self._no_producers = self._once is None
        return self._once is not None

    async def _may_go(self, up_to: LocalId) -> bool:
        """Whether who published the messages up to this one is known without them; else it is written, for the next
        time, or looked up then.
        """
        if self._no_producers and self._once is None:
            return True
        try:
            if self._once is None and not await self._look_for_producers():
                return True
        except BookKeeperError as error:
            log.warn(
                "Ledgers of topic {topic!r} stay until it can be read who published what in them: {error}",
                topic=shown(self.topic),
                error=error,
            )
            return False
        assert self._once is not None
        if self._once.stored >= up_to:
            return True
        self._once.load()
        self._once.store_soon()
        return False

    # --- ledgers

    def end_if_idle(self) -> bool:
        """End the ledger where nothing was published for `idle_max_s`; whether it was so.

        An open ledger costs memory and load at its bookies, and the next hub of the topic must recover it. A topic with
        many ledgers ends one later, or never: each takes a znode, and the list of them is one record. See IDLE_STEP.
        """
        idle_max_s = self._settings.idle_max_s * (1 + len(self._ranges) // IDLE_STEP)
        if (
            not idle_max_s
            or self._handle is None
            or self._ending
            or self.state is not LogState.READY
            or len(self._ranges) >= IDLE_ENDS_MAX
            or self._last.local < (self._open.first or FIRST_ID if self._open is not None else FIRST_ID)
            or self._clock.seconds() - self._published_s < idle_max_s
        ):
            return False
        self._ending = True
        self._pump()
        return True

    def _begin(self, work: object) -> None:
        """Run what makes or ends a ledger; its trouble is the topic's."""
        self._busy = True

        async def run() -> None:
            try:
                await work  # type: ignore[misc]
            except PubSubError as error:
                self._lose(error, error)
            except BookKeeperError as error:
                self._lose(ServiceDown(f"topic {self.topic!r}: {error}"), error)
            finally:
                self._settled()
            self._pump()

        Deferred.fromCoroutine(run()).addErrback(self._broken)

    def _broken(self, failure: object) -> None:
        log.error("The log of topic {topic!r} broke: {failure}", topic=shown(self.topic), failure=failure)
        self._lose(UnexpectedCondition(f"topic {self.topic!r}: {failure}"), None)

    async def _open_ledger(self) -> None:
        settings = self._settings
        if self._is_list_beyond(LIST_SHARE):
            raise ServiceDown(
                f"topic {self.topic!r} has {len(self._ranges)} ledgers; a longer list does not fit into one record of "
                "the metadata store; let its subscribers consume, lower keep_ms, keep_unsubscribed_ms or limit_bytes "
                "of the hubs, or raise jute.maxbuffer of the ZooKeeper servers, then zkMaxRequestSizeBytes of the hubs"
            )
        times: Deferred[PublishClock] | None = None
        if self._times is None and self._stamp.now_ms is not None and self.is_timed:
            times = Deferred.fromCoroutine(self._chain.publish_clock(self._ranges, self._stamp.now_ms))
        async with settings.openings:
            if self._is_lost():
                return  # while it waited for its turn
            handle = await self._client.create(
                ensemble=settings.ensemble,
                write_quorum=settings.write_quorum,
                ack_quorum=settings.ack_quorum,
                digest=DigestType.CRC32,
                password=self.password,
                metadata_version=_LEDGER_METADATA_VERSION,
            )
        opened = LedgerRange(handle.ledger_id, LocalId(self._durable + 1))
        try:
            if times is not None:
                self._times = await times
            if self.state is LogState.LOST:
                raise StaleVersion(f"topic {self.topic!r} was lost meanwhile")
            self._version = await self._metadata.write_ranges(self.topic, [*self._ranges, opened], self._version)
        except StaleVersion:
            handle.abort()
            await self._chain.delete_empty(handle.ledger_id)
            raise
        except BaseException:
            handle.abort()  # it may be listed; whoever acquires the topic finds it empty
            raise
        if self._is_lost():
            handle.abort()
            return
        self._open, self._handle = opened, handle
        self._ledger_bytes, self._ledger_begun_s = 0, self._clock.seconds()
        handle.on_acknowledged = self._on_acknowledged
        handle.on_failed = self._on_failed
        leftover, self._leftover = self._leftover, None
        if leftover is not None:
            Deferred.fromCoroutine(self._chain.delete_empty(leftover.ledger_id))  # nobody names it any more

    async def _leave_claimed_ledger(self, error: BookKeeperError) -> None:
        """Send all messages to a new ledger: another key claimed the id of this one before it acknowledged a message.

        The messages keep their ids. The old ledger is closed empty first, by compare-and-set, which fails if another
        hub recovers it (I-12). So the messages can be read from the new ledger only.
        """
        handle, left = self._handle, self._open
        assert handle is not None
        assert left is not None
        await handle.close_now()
        if self._is_lost():
            return
        if self._claimed_in_a_row == CLAIMED_IN_A_ROW_MAX:
            raise error
        self._claimed_in_a_row += 1
        log.warn(
            "Ledger {ledger_id} of topic {topic!r} was claimed by another key before it stored a message; it was "
            "closed empty, and its messages go to a new ledger: {error}",
            ledger_id=left.ledger_id,
            topic=shown(self.topic),
            error=error,
        )
        self._handle = self._open = None
        self._leftover = left  # deleted once the list names the new ledger
        await self._open_ledger()
        if not self._is_lost():
            self._send_again()

    def _send_again(self) -> None:
        """Append all messages that have an id to the new, empty ledger."""
        messages = [message for stored in self._sent for message in stored]
        self._ledger_bytes = sum(map(len, messages))
        if messages and self._handle is not None:
            self._handle.append_many(messages).addErrback(_told_otherwise)

    def _is_lost(self) -> bool:
        return self.state is LogState.LOST

    async def _end_ledger(self) -> None:
        """All of it is acknowledged."""
        handle, opened = self._handle, self._open
        assert handle is not None
        assert opened is not None
        await handle.close()
        if self._is_lost():
            return
        ended = replace(opened, last=self._last)
        self._ranges.append(ended)
        self._list_size += _listed_size(ended)
        self._handle = self._open = None
        self._ending = False

    def _settled(self) -> None:
        self._busy = self._held = False
        waiting, self._settling = self._settling, ()
        for each in waiting:
            each.callback(None)

    async def while_listed(self, change: Callable[[int], Awaitable[T]]) -> T:
        """Run a change of the topic's other records that is to fail once another hub wrote the list (I-90): it is given
        the list's version, and this hub writes no other meanwhile. Raises NotResponsible.
        """
        while self._busy or self._held:
            waiting: Deferred[None] = Deferred()
            self._settling = (*self._settling, waiting)
            await waiting
        if self.state is not LogState.READY or self._version is None:
            raise self._not_served()
        self._held = True
        try:
            return await change(self._version)
        finally:
            self._settled()
            self._pump()

    # --- trimming

    async def trim(self, up_to: LocalId) -> list[LedgerRange]:
        """Delete ledgers that end there or before; those that went. Nothing while a ledger is made or ended.

        The ledgers first, then the list: what a crash leaves is a record of messages that nobody needs, never a ledger
        that nobody knows. The last record stays, as all that says which ids were used. A ledger that cannot be deleted
        ends it for now. All of these messages count as deleted at once, and stay so if their ledger cannot be deleted:
        a subscriber that attaches during the deletions gets them as one range, as all later ones do.
        """
        if self.state is not LogState.READY or self._busy or self._held:
            return []
        gone: list[LedgerRange] = []
        ended = self._ranges if self._open is not None else self._ranges[:-1]
        going = [each for each in ended if each.last is not None and each.last.local <= up_to]
        if not going:
            return []
        self._busy = True
        try:
            through = LocalId((going[-1].last or self._last).local)
            if await self._may_go(through):
                self._missing = max(self._missing, through)
                for each in going:
                    if self._is_lost() or not await self._chain.deleted(each):
                        break  # what is lost is for its new owner, who may have subscribers that went back
                    gone.append(each)
            if gone and not self._is_lost():
                left = self._ranges[len(gone) :]
                listed = left if self._open is None else [*left, self._open]
                self._version = await self._metadata.write_ranges(self.topic, listed, self._version)
                self._set_ranges(left)
        except PubSubError as error:
            self._lose(error, error)
        except BookKeeperError as error:
            self._lose(ServiceDown(f"topic {self.topic!r}: {error}"), error)
        finally:
            self._settled()
            self._pump()  # what came meanwhile waits for this
        return gone

    async def on_missing(self, ledger: LedgerRange) -> None:
        """A ledger that is listed is not there. Where none before it is, whoever deleted them did not get to the list:
        what was in them counts as deleted. Raises BookKeeperError.
        """
        if ledger.last is None or ledger.last.local <= self._missing:
            return
        for each in self._ranges:
            assert each.first is not None
            assert each.last is not None
            if each.first >= (ledger.first or FIRST_ID):
                break
            if each.last.local > self._missing and await self._chain.is_there(each):
                return
        self._missing = max(self._missing, ledger.last.local)
        log.warn(
            "Topic {topic!r}: messages up to {last} are listed, and were deleted before; who wants them goes on behind",
            topic=shown(self.topic),
            last=ledger.last.local,
        )

    # --- the end

    async def release(self) -> None:
        """Take nothing more, finish what was taken, end the ledger, and say where it ends. Never fails.

        What cannot be done is left to the next owner, who recovers the ledger.
        """
        if self.state is not LogState.READY:
            return
        self.state = LogState.RELEASING
        if self._once is not None:
            self._once.refuse_all(self._not_served())
        if self._queue or self._under_way or self._busy or self._held:
            waiting: Deferred[None] = Deferred()
            self._idle.append(waiting)
            await waiting
        try:
            if self._handle is not None and not self._is_lost():
                if self._durable >= (self._open.first or FIRST_ID if self._open is not None else FIRST_ID):
                    await self._end_ledger()
                    if not self._is_lost():  # else the list would lack this ledger
                        await self._metadata.write_ranges(self.topic, self._ranges, self._version)
                else:
                    self._handle.abort()
        except BookKeeperError as error:
            log.info(
                "Topic {topic!r} is released without its ledger's end: {error}", topic=shown(self.topic), error=error
            )
        if self._once is not None and not self._is_lost():
            await self._once.store()
        if not self._is_lost():
            self.state = LogState.RELEASED

    def abandon(self, error: PubSubError) -> None:
        """Stop at once: this hub may not be the owner any more. `on_lost` is not called."""
        self._lose(error, None, tell=False)

    def _lose(self, error: PubSubError, cause: BookKeeperError | None, *, tell: bool = True) -> None:
        if self.state in (LogState.LOST, LogState.RELEASED):
            return
        if error.__cause__ is None and cause is not error:
            error.__cause__ = cause
        self.state, self.error = LogState.LOST, error
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.abort()
        waiting = [*self._under_way, *self._queue]
        self._under_way.clear()
        self._queue.clear()
        self._sent.clear()
        self._pending_bytes = 0
        refusal = _refusal(error)
        if self._once is not None:
            self._once.refuse_all(refusal)
        for publish in waiting:
            certain = publish.taken == 0
            _tell(publish, refusal if certain else UncertainState(f"{error}; the message may be stored or not"))
        idle, self._idle = self._idle, []
        for deferred in idle:
            deferred.callback(None)
        if tell:
            self._on_lost(error)


def _listed_size(ledger: LedgerRange) -> int:
    """Return the bytes of a ledger in the list, at most."""
    remote = () if ledger.last is None else ledger.last.remote
    return 40 + sum(len(region) + 16 for region, _ in remote)


def _first_of(ledger: LedgerRange) -> LocalId:
    return ledger.first or FIRST_ID


def _refusal(error: PubSubError) -> PubSubError:
    """What is told of messages that were not taken, of a topic that was lost with this error.

    A stale version is how a hub learns that another one owns the topic: clients go there, and do not give up.
    """
    return NotResponsible(str(error)) if isinstance(error, StaleVersion) else error


def _told_otherwise(failure: object) -> None:
    """What becomes of entries is told by the handle's callbacks."""


def _tell(publish: _Publish, error: PubSubError | None) -> None:
    try:
        publish.on_done(None if error is not None else publish.first, error)
    except Exception:  # noqa: BLE001 - one caller's fault must not keep the others' answers back
        log.failure("The answer to a publish failed")
