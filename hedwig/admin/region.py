"""One region as it is recorded: topics, hubs, ledgers, subscriptions. Reads only.

What a record does not say (how long a ledger is that is still written) is asked of the bookies without fencing, so the
hub that writes it notices nothing. Its last message may be one that is not acknowledged yet.

Lists may be long: they come in pieces of `PIECE`, and `AT_ONCE` records are asked for at a time. Thread: reactor.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, InvalidArgument, NoSuchLedger
from bookkeeper.metadata.outcome import Errand, pause
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeAbsent, Tree
from bookkeeper.model import DigestType
from hedwig.hub.metadata import HubMetadata
from hedwig.model import FIRST_ID, HubAddress, LedgerRange, LocalId, MessageId, SubscriberId, Subscription, Topic
from hedwig.names import OWN_NODES, Paths
from hedwig.protocol.subscription import first_kept, topic_bound
from hedwig.wire import records

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.ports import Clock

A = TypeVar("A")
B = TypeVar("B")

AT_ONCE = 100
PIECE = 500
TRIM_S = 2.0  # a hub that has deleted a ledger writes the topic's list within a few requests to ZooKeeper
LIST_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Found:
    """A topic. has_owner: somebody serves it."""

    topic: Topic
    has_owner: bool


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """A ledger of a topic. first, last: ids of its messages, last < first where it is empty.

    size: bytes of its messages, as far as the ledger says; None for one that is written. confirmed_size: of that one,
    bytes of the messages that bookies know to be confirmed. problem: why `last` is not known, or what is wrong with it.
    created_ms, stored_ms: when it was made, by the clocks of its hub and of the metadata store. is_missing: the problem
    is that the ledger does not exist.
    """

    ledger_id: int
    first: LocalId
    last: LocalId | None
    is_open: bool
    size: int | None = None
    created_ms: int | None = None
    problem: str | None = None
    confirmed_size: int | None = None
    stored_ms: int | None = None
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Subscribed:
    """One subscription. last: the topic's last message; None where it could not be found out, for `problem`.

    is_readable: the record is what a hub wrote; else `record` says nothing, and `problem` why. first: of the oldest
    message that it can still be given; those before were deleted (by a limit of age or size), or bounds give them up.
    """

    topic: Topic
    subscriber: SubscriberId
    record: Subscription
    last: LocalId | None
    problem: str | None = None
    is_readable: bool = True
    first: LocalId = FIRST_ID

    @property
    def backlog(self) -> int | None:
        """Messages that wait for it: not consumed, and kept."""
        if self.last is None or not self.is_readable:
            return None
        return max(0, self.last - max(self.record.consumed.local, self.first - 1))


async def in_order(
    items: Iterable[A], work: Callable[[A], Awaitable[B]], at_once: int = AT_ONCE
) -> AsyncGenerator[tuple[A, B], None]:
    """Each item with what `work` says of it, in the order of the items; so many are worked on at a time."""
    under_way: deque[tuple[A, Deferred[B]]] = deque()

    async def one(item: A) -> B:
        return await work(item)

    try:
        for item in items:
            if len(under_way) >= at_once:
                first, result = under_way[0]
                found = await result
                under_way.popleft()
                yield first, found
            under_way.append((item, Deferred.fromCoroutine(one(item))))
        while under_way:
            first, result = under_way[0]
            found = await result
            under_way.popleft()
            yield first, found
    finally:
        for _, left in under_way:
            left.addErrback(lambda _: None)  # nobody asks for it any more
            left.cancel()


class Region:
    """See the module. Owns nothing. password: of the ledgers of topics.

    named_by: what it is that names the prefix and the region, for errors.
    """

    def __init__(
        self,
        tree: Tree,
        client: LedgerClient,
        clock: Clock,
        settings: MetadataSettings,
        paths: Paths,
        password: bytes,
        named_by: tuple[str, str] = ("-D zk_prefix=PATH", "--region NAME"),
    ) -> None:
        self.client, self.clock, self.paths, self.password = client, clock, paths, password
        self._prefix_word, self._region_word = named_by
        self.metadata = HubMetadata(tree, clock, settings, paths)
        self._tree, self._settings = tree, settings

    def _errand(self, purpose: str) -> Errand:
        return Errand(self._tree, self.clock, self._settings, purpose)

    async def check(self) -> None:
        """Raises InvalidArgument, which names the regions that there are, where this is none."""
        errand = self._errand(f"look for {self.paths.root}")
        await errand.sync()  # once: what was written before the command is seen
        if await errand.stat(self.paths.topics) is not None:
            return
        prefix, _, region = self.paths.root.rpartition("/")
        try:
            others = sorted(await errand.children(prefix))
        except NodeAbsent:
            raise InvalidArgument(
                f"{self._tree.description} has no {prefix}: no hub has served there yet, or its zk_prefix is "
                f"another ({self._prefix_word})"
            ) from None
        raise InvalidArgument(
            f"there is no region {region!r} in {prefix} of {self._tree.description}; those there are: "
            f"{', '.join(others) or 'none'} ({self._region_word})"
        )

    # --- topics

    async def topics(self, prefix: bytes = b"") -> AsyncGenerator[list[Found], None]:
        """All topics whose name begins so, in the order of names; a topic with slashes behind the one above it."""
        piece: list[Found] = []
        async with contextlib.aclosing(self._below(self.paths.topics, b"", prefix)) as found:
            async for each in found:
                piece.append(each)
                if len(piece) >= PIECE:
                    yield piece
                    piece = []
        if piece:
            yield piece

    async def _below(self, path: str, name: bytes, prefix: bytes) -> AsyncGenerator[Found, None]:
        errand = self._errand(f"list {path}")

        async def children(of: str) -> list[str]:
            # Each with a deadline of its own: the list may be long.
            try:
                return await self._errand(f"list {of}").children(of)
            except NodeAbsent:
                return []

        names = sorted(await errand.children(path)) if not name else sorted(await children(path))
        wanted = []
        for each in names:
            whole = name + each.encode()
            longest = min(len(whole), len(prefix))
            if (name and each in OWN_NODES) or whole[:longest] != prefix[:longest]:
                continue
            wanted.append(each)
        async with contextlib.aclosing(in_order(wanted, lambda each: children(f"{path}/{each}"))) as found:
            async for each, below in found:
                whole = name + each.encode()
                # One without children is of a hub that ended between two steps, or of a genuine one: a topic.
                if (not below or OWN_NODES & set(below)) and whole.startswith(prefix):
                    yield Found(Topic(whole), "hub" in below)
                if set(below) - OWN_NODES:
                    async with contextlib.aclosing(self._below(f"{path}/{each}", whole + b"/", prefix)) as more:
                        async for other in more:
                            yield other

    async def owner(self, topic: Topic) -> HubAddress | None:
        """Who serves it. Raises InvalidArgument where there is no such topic."""
        seen = await self.metadata.look(topic)
        if not seen.exists:
            raise InvalidArgument(f"there is no topic {topic.decode(errors='replace')!r} in {self.paths.root}")
        return None if seen.owner is None else seen.owner.address

    async def owners(self, topics: Sequence[Topic]) -> list[HubAddress | None]:
        """Who serves each."""

        async def one(topic: Topic) -> HubAddress | None:
            owner = (await self.metadata.look(topic)).owner
            return None if owner is None else owner.address

        return [owner async for _, owner in in_order(topics, one)]

    # --- ledgers

    async def ranges(self, topic: Topic) -> list[LedgerRange]:
        """Its ledgers, each with the id of its first message. Raises NoSuchLedger, BookKeeperError."""
        path = self.paths.ledgers(topic)
        node = await self._errand(f"read {path}").read_if_present(path)
        found = [] if node is None else records.decode_ranges(node[0], path)
        whole: list[LedgerRange] = []
        for position, each in enumerate(found):
            first = each.first
            if first is None and position:
                previous = whole[-1].last
                first = None if previous is None else LocalId(previous.local + 1)
            if first is None and each.last is not None:
                metadata = await self.client.metadata(each.ledger_id)
                first = LocalId(each.last.local - (metadata.last_entry_id or 0))
            whole.append(replace(each, first=FIRST_ID if first is None else first))
        return whole

    async def open(self, ledger_id: int) -> ReadHandle:
        """A ledger of a topic, whose writer is not disturbed."""
        return await self.client.open_without_recovery(ledger_id, self.password, DigestType.CRC32)

    async def end_of(self, each: LedgerRange) -> LocalId:
        """The id of its last message now; below the first where it is empty."""
        assert each.first is not None
        return each.last.local if each.last is not None else (await self._written(each))[0]

    async def _written(self, each: LedgerRange) -> tuple[LocalId, int]:
        """Of a ledger that is written: the id of its last message, and bytes of those that are confirmed."""
        assert each.first is not None
        handle = await self.open(each.ledger_id)
        try:
            return LocalId(each.first + await handle.last_stored()), handle.length
        finally:
            await handle.close()

    async def last_id(self, topic: Topic) -> LocalId:
        """Of the topic's newest message; 0 where there never was one."""
        ranges = await self.ranges(topic)
        return await self.end_of(ranges[-1]) if ranges else LocalId(0)

    async def parts(self, topic: Topic) -> list[LedgerPart]:
        """Return its ledgers with what their own metadata says, and the problem of each that has one.

        A hub deletes ledgers first and then takes them off the topic's list. A list that names a ledger which does not
        exist is read again for `TRIM_S` seconds before that is a problem.
        """
        ranges = await self.ranges(topic)
        found = await self.parts_of(ranges)
        deadline = self.clock.seconds() + TRIM_S
        while any(each.is_missing for each in found) and self.clock.seconds() < deadline:
            await pause(self.clock, LIST_AGAIN_S)
            newer = await self.ranges(topic)
            if newer != ranges:
                ranges, found = newer, await self.parts_of(newer)
        return found

    async def parts_of(self, ranges: Sequence[LedgerRange]) -> list[LedgerPart]:
        """Return what `parts` returns, for these ledgers only."""

        async def one(each: LedgerRange) -> LedgerPart:
            assert each.first is not None
            last = None if each.last is None else each.last.local
            try:
                metadata = await self.client.metadata(each.ledger_id)
                part = LedgerPart(
                    each.ledger_id,
                    each.first,
                    last,
                    each.last is None,
                    size=metadata.length if metadata.is_closed else None,
                    created_ms=metadata.created_ms,
                    stored_ms=metadata.stored_ms,
                )
                if last is not None:
                    return part
                end, confirmed_size = await self._written(each)
                return replace(part, last=end, confirmed_size=confirmed_size)
            except BookKeeperError as error:
                return LedgerPart(
                    each.ledger_id,
                    each.first,
                    last,
                    each.last is None,
                    problem=str(error),
                    is_missing=isinstance(error, NoSuchLedger),
                )

        return [part async for _, part in in_order(ranges, one, 20)]

    # --- subscriptions

    async def subscribers(self, topic: Topic) -> list[SubscriberId]:
        """Names alone."""
        path = self.paths.subscribers(topic)
        try:
            return [SubscriberId(each.encode()) for each in sorted(await self._errand(f"list {path}").children(path))]
        except NodeAbsent:
            return []

    async def subscriptions_of(self, topic: Topic, *, backlog: bool = True) -> list[Subscribed]:
        """All of one topic. backlog: look for the end of the topic, if there are any."""
        return await self._read(topic, await self.subscribers(topic), backlog=backlog)

    async def _read(self, topic: Topic, names: Iterable[SubscriberId], *, backlog: bool) -> list[Subscribed]:
        """Those of these that there are. What is wrong with one is told in its place."""
        found = await self._records(topic, names)
        if not found or not backlog:
            return found
        try:
            ranges = await self.ranges(topic)
            last = await self.end_of(ranges[-1]) if ranges else LocalId(0)
            first = max((ranges[0].first or FIRST_ID) if ranges else FIRST_ID, await self._bound_from(found, last))
        except BookKeeperError as error:
            return [replace(each, problem=each.problem or str(error)) for each in found]
        return [replace(each, last=last, first=first) for each in found]

    async def _bound_from(self, found: Sequence[Subscribed], last: LocalId) -> LocalId:
        """The first message that a topic's hub gives to these: it keeps so many of the newest, where each subscription
        has a bound.
        """
        if not all(each.is_readable and each.record.preferences.message_bound for each in found):
            return FIRST_ID
        others = await self._records(found[0].topic, await self.subscribers(found[0].topic))
        if not all(each.is_readable for each in others):
            return FIRST_ID  # it may have none
        return first_kept(topic_bound(each.record.preferences for each in others), last)

    async def _records(self, topic: Topic, names: Iterable[SubscriberId]) -> list[Subscribed]:
        async def one(name: SubscriberId) -> Subscribed | None:
            path = self.paths.subscription(topic, name)
            node = await self._errand(f"read {path}").read_if_present(path)
            if node is None:
                return None
            try:
                return Subscribed(topic, name, records.decode_subscription(node[0], path), None)
            except BookKeeperError as error:
                return Subscribed(topic, name, Subscription(MessageId(LocalId(0))), None, str(error), is_readable=False)

        async with contextlib.aclosing(in_order(names, one, 20)) as each_name:
            return [each async for _, each in each_name if each is not None]

    async def subscriptions(
        self, prefix: bytes = b"", subscriber: SubscriberId | None = None, *, backlog: bool = True
    ) -> AsyncGenerator[list[Subscribed], None]:
        """Those of all topics whose name begins so; subscriber: only with this name."""

        async def one(topic: Topic) -> list[Subscribed]:
            if subscriber is None:
                return await self.subscriptions_of(topic, backlog=backlog)
            return await self._read(topic, [subscriber], backlog=backlog)

        async with contextlib.aclosing(self.topics(prefix)) as pieces:
            async for piece in pieces:
                names = [each.topic for each in piece]
                found: list[Subscribed] = []
                async with contextlib.aclosing(in_order(names, one, AT_ONCE // 2)) as each_topic:
                    async for _, some in each_topic:
                        found += some
                yield found
