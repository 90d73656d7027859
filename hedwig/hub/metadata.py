"""What hubs keep in ZooKeeper: who is there, who serves a topic, its ledgers, its subscriptions.

Every change is a compare-and-set (I-90, I-93), and what only an owner does is done in the session of its record, or not
at all; one whose answer was lost is looked up, and MetadataOutcomeUnknown tells that this failed. Absent, unreadable
(UnexpectedCondition), unreachable (MetadataUnavailable) are three answers. Names were looked at before
(`hedwig.names`). Thread: reactor. Source: hedwig/PROTOCOL.md 3.1, 3.8, 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.logger import Logger

from bookkeeper.errors import MetadataTooLarge
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.outcome import Errand, Owned
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeKind,
    Stat,
    Step,
    Tree,
    Write,
)
from hedwig.errors import StaleVersion, UnexpectedCondition
from hedwig.model import HubAddress, HubInfo, LedgerRange, NamedKeep, SubscriberId, Subscription, Topic
from hedwig.names import Paths
from hedwig.wire import records

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

T = TypeVar("T")

ATTEMPTS_MAX = 10

READ_AT_ONCE = 100
"""Records of subscriptions that are asked for without waiting for the one before."""

RELEASED_AT_ONCE = 200
"""Topics of one transaction; its size stays far below what ZooKeeper takes."""


class Versioned(NamedTuple, Generic[T]):
    """A record and the version to change it by; None where there is no znode yet."""

    value: T
    version: int | None


class Seen(NamedTuple):
    """What was seen of a topic. owner: None where nobody serves it."""

    exists: bool
    owner: HubInfo | None


class HubMetadata:
    """The records of one region. Does not own the tree."""

    def __init__(self, tree: Tree, clock: Clock, settings: MetadataSettings, paths: Paths) -> None:
        self.tree, self.paths = tree, paths
        self._clock, self._settings = clock, settings
        self._reported = ReportedRecords()
        self._new: set[Topic] = set()
        self._claimed: dict[Topic, Versioned[list[LedgerRange]]] = {}  # with their lists, in one transaction

    @property
    def request_size_max(self) -> int:
        """Bytes of the largest request to ZooKeeper."""
        return self._settings.request_size_max

    def _errand(self, purpose: str) -> Errand:
        return Errand(self.tree, self._clock, self._settings, purpose)

    def _owners_errand(self, purpose: str) -> Errand:
        """What only a topic's owner does: with the session that record goes, and another hub may have made everything
        anew, with the same versions, before a change is repeated.
        """
        return Errand(self.tree, self._clock, self._settings, purpose, one_session=True)

    # --- the region

    async def open(self) -> None:
        """Make what is missing; raises UnexpectedCondition where the region's metadata is of another kind."""
        errand = self._errand(f"open {self.paths.root}")
        await errand.ensure_all(self.paths.hubs)
        await errand.ensure_all(self.paths.topics)
        await errand.ensure_all(self.paths.layout.rpartition("/")[0])
        wanted = records.encode_layout()
        try:
            await errand.create(self.paths.layout, wanted, lambda data, _stat: data == wanted)
        except NodeExists:
            found = await errand.read(self.paths.layout)
            manager, version = records.decode_layout(found[0], self.paths.layout)
            if (manager, version) != (records.ZOOKEEPER_MANAGER, records.MANAGER_VERSION):
                raise UnexpectedCondition(
                    f"{self.paths.layout} says that the metadata is kept by {manager}, version {version}; this hub "
                    f"knows {records.ZOOKEEPER_MANAGER}, version {records.MANAGER_VERSION}: use another zk_prefix or "
                    "region"
                ) from None

    # --- hubs

    async def register(self, address: HubAddress, topic_count: int = 0) -> HubInfo:
        """Say that this hub is there, for as long as the session lasts. What an earlier life of it left goes."""
        errand = self._errand(f"register hub {address}")
        path = self.paths.hub(address)
        for _ in range(ATTEMPTS_MAX):
            try:
                await errand.create(path, records.encode_load(topic_count), self._is_mine, kind=NodeKind.EPHEMERAL)
            except NodeExists:
                left = await errand.stat(path)
                if left is not None:
                    log.warn("{path} was there already, of session {owner:x}: it goes", path=path, owner=left.owner)
                    await self._forget(errand, path, left)
                continue
            stat = await errand.stat(path)
            if stat is not None and stat.owner == self.tree.session_id:
                return HubInfo(address, stat.creation_id)
        raise StaleVersion(f"{path} is taken again and again: does another hub have the same address and ports?")

    def _is_mine(self, _data: bytes, stat: Stat) -> bool:
        return stat.owner == self.tree.session_id

    async def _forget(self, errand: Errand, path: str, stat: Stat) -> None:
        try:
            await errand.delete(path, stat.version, stat.creation_id)
        except (NodeAbsent, NodeChanged):
            return

    async def unregister(self, address: HubAddress) -> None:
        """The hub goes; harmless when it is not registered."""
        errand = self._errand(f"unregister hub {address}")
        stat = await errand.stat(self.paths.hub(address))
        if stat is not None and self._is_mine(b"", stat):
            await self._forget(errand, self.paths.hub(address), stat)

    async def set_load(self, address: HubAddress, topic_count: int) -> int:
        """Record how many topics this hub serves; only the hub that is registered under the address may.

        Return the time of the write by the metadata store's clock, in milliseconds since 1970.
        """
        errand = self._errand(f"load of hub {address}")
        path = self.paths.hub(address)
        stat = await errand.stat(path)
        if stat is None or not self._is_mine(b"", stat):
            raise StaleVersion(f"{path} is not this session's any more")
        try:
            return (await errand.write(path, records.encode_load(topic_count), stat.version)).modified_ms
        except (NodeAbsent, NodeChanged) as error:
            raise StaleVersion(str(error)) from error

    async def hubs(self, bad_records: BadRecords | None = None) -> dict[HubAddress, int]:
        """Return the registered hubs, each with the number of topics in its record.

        bad_records: collects registrations that cannot be read; if None, each is logged once while it exists.
        """
        errand = self._errand("list the hubs")
        passed_over = BadRecords() if bad_records is None else bad_records
        found: dict[HubAddress, int] = {}
        for name in await errand.children(self.paths.hubs):
            path = f"{self.paths.hubs}/{name}"
            node = await errand.read_if_present(path)
            if node is None:
                continue
            try:
                found[records.parse_address(name)] = records.decode_load(node[0], path)
            except (ValueError, UnexpectedCondition) as error:
                passed_over.add(path, str(error).removeprefix(f"{path} "))
        if bad_records is None:
            self._reported.report(passed_over, "it is passed over because it is not a hub")
        return found

    # --- owners

    async def look(self, topic: Topic) -> Seen:
        """Whether a topic is there, and who serves it. Raises UnexpectedCondition for an unreadable record."""
        path = self.paths.owner(topic)
        parent, _, name = path.rpartition("/")
        errand = self._errand(f"owner of {path}")
        try:
            names = await errand.children(parent)
        except NodeAbsent:
            return Seen(False, None)
        found = await errand.read_if_present(path) if name in names else None
        return Seen(True, None if found is None else records.decode_hub_info(found[0], path))

    async def owner(self, topic: Topic) -> HubInfo | None:
        """Who serves it, by its record; None where nobody does. Raises UnexpectedCondition for an unreadable record."""
        return (await self.look(topic)).owner

    async def claim(self, topic: Topic, hub: HubInfo, *, exists: bool = True) -> bool:
        """Become the owner, for as long as the session lasts; False where somebody is.

        exists: as `look` saw it. What does not exist is made in one transaction with all its znodes, and `is_new` says
        so. Where no ledger is open the list is written in the transaction too, as it is, which stops the changes of
        whoever had the topic before; `is_listed` says so. Both until `forget_claim`. Raises UnexpectedCondition for
        an unreadable list.
        """
        path = self.paths.owner(topic)
        errand = self._owners_errand(f"claim {path}")
        data = records.encode_hub_info(hub)
        is_ours: Owned = lambda found, stat: found == data and self._is_mine(found, stat)  # noqa: E731
        if not exists and await self._claim_new(errand, topic, data, is_ours):
            return True
        try:
            if exists and await self._claim_with_list(errand, topic, data, is_ours):
                return True
            try:
                await errand.create(path, data, is_ours, kind=NodeKind.EPHEMERAL)
            except NodeAbsent:
                await errand.ensure_all(path.rpartition("/")[0], self.paths.root)
                await errand.create(path, data, is_ours, kind=NodeKind.EPHEMERAL)
        except NodeExists:
            return False
        return True

    async def _claim_new(self, errand: Errand, topic: Topic, data: bytes, is_ours: Owned) -> bool:
        path = self.paths.owner(topic)
        steps = [
            Create(self.paths.topic(topic)),
            Create(path, data, NodeKind.EPHEMERAL),
            Create(self.paths.ledgers(topic), records.encode_ranges([])),
            Create(self.paths.subscribers(topic)),
        ]

        async def is_done() -> bool:
            found = await errand.read_if_present(path)
            return found is not None and is_ours(*found)

        try:
            await errand.transact(steps, is_done)
        except (NodeExists, NodeAbsent):
            return False  # somebody made it meanwhile, or a topic with a slash lacks its parents
        self._new.add(topic)
        self._claimed[topic] = Versioned([], 0)
        return True

    async def _claim_with_list(self, errand: Errand, topic: Topic, data: bytes, is_ours: Owned) -> bool:
        """False where that cannot be done at once: a ledger is to be recovered before the list may be written.

        The list may be an older one, for want of a sync: then it has another version, and the transaction fails.
        """
        owner, path = self.paths.owner(topic), self.paths.ledgers(topic)
        found = await errand.read_if_present(path)
        if found is None:
            return False
        ranges, version = records.decode_ranges(found[0], path), found[1].version
        if any(each.first is None or each.last is None for each in ranges):
            return False
        steps: list[Step] = [Create(owner, data, NodeKind.EPHEMERAL), Write(path, found[0], version)]

        async def is_done() -> bool:
            record, listed = await errand.read_if_present(owner), await errand.read_if_present(path)
            # An earlier claim of this session may have left the record, with another version of the list.
            written = listed is not None and (listed[0], listed[1].version) == (found[0], version + 1)
            return written and record is not None and is_ours(*record)

        try:
            await errand.transact(steps, is_done)
        except (NodeChanged, NodeAbsent):
            return False
        self._claimed[topic] = Versioned(ranges, version + 1)
        return True

    def is_new(self, topic: Topic) -> bool:
        """This hub has just made it: nobody wrote to it, and nobody but the owner may."""
        return topic in self._new

    def is_listed(self, topic: Topic) -> bool:
        """This hub wrote its list when it claimed it: who had it before changes nothing any more."""
        return topic in self._claimed

    def forget_claim(self, topic: Topic) -> None:
        """It was acquired, or given up."""
        self._new.discard(topic)
        self._claimed.pop(topic, None)

    async def release(self, topic: Topic, hub: HubInfo) -> None:
        """Give the topic up; nothing where another hub has it, or nobody."""
        path = self.paths.owner(topic)
        errand = self._owners_errand(f"release {path}")
        found = await errand.read_if_present(path)
        if found is not None and records.decode_hub_info(found[0], path).address == hub.address:
            await self._forget(errand, path, found[1])

    async def release_all(self, topics: Sequence[Topic], hub: HubInfo) -> None:
        """Give up topics that this session claimed, many in one transaction. What fails is done one by one."""
        for first in range(0, len(topics), RELEASED_AT_ONCE):
            some = topics[first : first + RELEASED_AT_ONCE]
            steps = [Delete(self.paths.owner(topic), 0) for topic in some]
            errand = self._owners_errand(f"release {len(some)} topics")

            async def is_done(path: str = steps[0].path, errand: Errand = errand) -> bool:
                return await errand.stat(path) is None

            try:
                await errand.transact(steps, is_done)
            except (NodeAbsent, NodeChanged, MetadataTooLarge):
                for topic in some:
                    await self.release(topic, hub)

    # --- a topic's ledgers

    async def topics(self) -> list[str]:
        """Names of the topics; of those with slashes the first part."""
        return sorted(await self._errand("list the topics").children(self.paths.topics))

    async def ranges(self, topic: Topic, *, synced: bool = False) -> Versioned[list[LedgerRange]]:
        """The topic's ledgers, after a sync: a new owner must see what the one before wrote (I-19).

        synced: a write of this session does as well, and there was one.
        """
        claimed = self._claimed.get(topic)
        if claimed is not None:
            return claimed
        path = self.paths.ledgers(topic)
        errand = self._errand(f"read {path}")
        if not synced:
            await errand.sync()
        found = await errand.read_if_present(path)
        if found is None:
            return Versioned([], None)
        return Versioned(records.decode_ranges(found[0], path), found[1].version)

    async def write_ranges(self, topic: Topic, ranges: Sequence[LedgerRange], version: int | None) -> int:
        """Replace them, as they were read; the new version. Raises StaleVersion where another hub wrote meanwhile."""
        path = self.paths.ledgers(topic)
        return await self._replace(self._owners_errand(f"write {path}"), path, records.encode_ranges(ranges), version)

    async def _replace(self, errand: Errand, path: str, data: bytes, version: int | None) -> int:
        try:
            if version is not None:
                return (await errand.write(path, data, version)).version
            try:
                await errand.create(path, data, lambda found, stat: found == data and stat.version == 0)
            except NodeAbsent:
                await errand.ensure_all(path.rpartition("/")[0], self.paths.root)
                await errand.create(path, data, lambda found, stat: found == data and stat.version == 0)
        except (NodeExists, NodeChanged, NodeAbsent) as error:
            raise StaleVersion(f"{path} was changed by another hub: {error}") from error
        return 0

    # --- its retention

    async def retention(self, topic: Topic) -> Versioned[NamedKeep]:
        """Return the retention that publishers set."""
        path = self.paths.retention(topic)
        found = await self._errand(f"read {path}").read_if_present(path)
        if found is None:
            return Versioned(NamedKeep(), None)
        return Versioned(records.decode_retention(found[0], path), found[1].version)

    async def write_retention(self, topic: Topic, named: NamedKeep, version: int | None, list_version: int) -> int:
        """Write the retention, if record and list of ledgers have these versions; return the new version.

        version: None: create the record. Raises StaleVersion.
        """
        path = self.paths.retention(topic)
        data, errand = records.encode_retention(named), self._owners_errand(f"write {path}")
        written = 0 if version is None else version + 1
        change = Create(path, data) if version is None else Write(path, data, version)

        async def is_done() -> bool:
            found = await errand.read_if_present(path)
            return found is not None and (found[0], found[1].version) == (data, written)

        try:
            await errand.transact([Check(self.paths.ledgers(topic), list_version), change], is_done)
        except (NodeExists, NodeChanged, NodeAbsent) as error:
            raise StaleVersion(f"{path}, or the topic, was changed by another hub: {error}") from error
        return written

    # --- its producers

    async def producers(self, topic: Topic) -> Versioned[bytes | None]:
        """What is remembered of those who publish once, after a sync; None where none ever did."""
        path = self.paths.producers(topic)
        errand = self._errand(f"read {path}")
        await errand.sync()
        found = await errand.read_if_present(path)
        return Versioned(None, None) if found is None else Versioned(found[0], found[1].version)

    async def write_producers(self, topic: Topic, data: bytes, version: int | None) -> int:
        """Replace it as it was read; the new version. Raises StaleVersion."""
        path = self.paths.producers(topic)
        return await self._replace(self._owners_errand(f"write {path}"), path, data, version)

    # --- its subscriptions

    async def subscriptions(
        self,
        topic: Topic,
        *,
        synced: bool = False,
        unreadable: dict[SubscriberId, Versioned[UnexpectedCondition]] | None = None,
    ) -> dict[SubscriberId, Versioned[Subscription]]:
        """All of them, after a sync; synced: a write of this session does as well, and there was one.

        unreadable: collects subscriptions that cannot be read, each with the reason; if None, the first one raises
        UnexpectedCondition.
        """
        if topic in self._new:
            return {}
        parent = self.paths.subscribers(topic)
        errand = self._errand(f"read {parent}")
        if not synced:
            await errand.sync()
        try:
            names = sorted(await errand.children(parent))
        except NodeAbsent:
            return {}
        found: dict[SubscriberId, Versioned[Subscription]] = {}
        for first in range(0, len(names), READ_AT_ONCE):
            some = names[first : first + READ_AT_ONCE]
            paths = [f"{parent}/{name}" for name in some]
            reading = [Deferred.fromCoroutine(errand.read_if_present(path)) for path in paths]
            try:
                nodes = await gatherResults(reading, consumeErrors=True)
            except FirstError as first_error:
                first_error.subFailure.raiseException()
                raise
            for name, path, node in zip(some, paths, nodes, strict=True):
                if node is None:
                    continue
                subscriber = SubscriberId(name.encode())
                try:
                    found[subscriber] = Versioned(records.decode_subscription(node[0], path), node[1].version)
                except UnexpectedCondition as error:
                    if unreadable is None:
                        raise
                    unreadable[subscriber] = Versioned(error, node[1].version)
        return found

    async def subscription(
        self, topic: Topic, subscriber: SubscriberId
    ) -> Versioned[Subscription] | Versioned[UnexpectedCondition] | None:
        """Return one subscription, after a sync, or the reason why it cannot be read; None if it does not exist."""
        path = self.paths.subscription(topic, subscriber)
        errand = self._errand(f"read {path}")
        await errand.sync()
        node = await errand.read_if_present(path)
        if node is None:
            return None
        try:
            return Versioned(records.decode_subscription(node[0], path), node[1].version)
        except UnexpectedCondition as error:
            return Versioned(error, node[1].version)

    async def create_subscription(
        self, topic: Topic, subscriber: SubscriberId, subscription: Subscription, list_version: int
    ) -> int:
        """Make it, while the topic's list of ledgers has this version; its own version. Raises StaleVersion.

        A new owner reads the subscriptions after it has written the list: it knows all that will ever be made by hubs
        before it.
        """
        path = self.paths.subscription(topic, subscriber)
        data = records.encode_subscription(subscription)
        errand = self._owners_errand(f"make {path}")
        steps: list[Step] = [Check(self.paths.ledgers(topic), list_version), Create(path, data)]

        async def is_done() -> bool:
            found = await errand.read_if_present(path)
            return found is not None and found[0] == data and found[1].version == 0

        try:
            try:
                await errand.transact(steps, is_done)
            except NodeAbsent:
                await errand.ensure_all(self.paths.subscribers(topic), self.paths.root)
                await errand.transact(steps, is_done)
        except (NodeExists, NodeChanged, NodeAbsent) as error:
            raise StaleVersion(f"{path}, or the topic, was changed by another hub: {error}") from error
        return 0

    async def write_subscription(
        self, topic: Topic, subscriber: SubscriberId, subscription: Subscription, version: int
    ) -> int:
        """Replace it as it was read; the new version. Raises StaleVersion."""
        path = self.paths.subscription(topic, subscriber)
        data = records.encode_subscription(subscription)
        return await self._replace(self._owners_errand(f"write {path}"), path, data, version)

    async def move_subscription(
        self, topic: Topic, subscriber: SubscriberId, subscription: Subscription, version: int, list_version: int
    ) -> int:
        """Replace it as it was read, while the topic's list has this version; the new version. Raises StaleVersion.

        For positions that do not follow from what was consumed: an owner that is none any more, and has just read
        another one's subscriptions, would move them back.
        """
        path = self.paths.subscription(topic, subscriber)
        data = records.encode_subscription(subscription)
        errand = self._owners_errand(f"move {path}")
        steps: list[Step] = [Check(self.paths.ledgers(topic), list_version), Write(path, data, version)]

        async def is_done() -> bool:
            found = await errand.read_if_present(path)
            return found is not None and found[0] == data and found[1].version == version + 1

        try:
            await errand.transact(steps, is_done)
        except (NodeChanged, NodeAbsent) as error:
            raise StaleVersion(f"{path}, or the topic, was changed by another hub: {error}") from error
        return version + 1

    async def delete_subscription(
        self, topic: Topic, subscriber: SubscriberId, version: int, list_version: int
    ) -> None:
        """It ends, as it was read, while the topic's list has this version. Raises StaleVersion."""
        path = self.paths.subscription(topic, subscriber)
        errand = self._owners_errand(f"delete {path}")
        steps: list[Step] = [Check(self.paths.ledgers(topic), list_version), Delete(path, version)]

        async def is_done() -> bool:
            return await errand.stat(path) is None

        try:
            await errand.transact(steps, is_done)
        except NodeAbsent as error:
            if await errand.stat(path) is not None:
                raise StaleVersion(f"the list of topic {topic!r} is gone") from error
        except NodeChanged as error:
            raise StaleVersion(f"{path}, or the topic, was changed by another hub: {error}") from error
