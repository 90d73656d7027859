"""Tables of the format bookkeeper.cluster: what is recorded of a region. No hub is asked, nothing is fenced or written.

    topics          topic, owner, ledgers, open_ledger_id, first_id, last_id, messages, ended_bytes, open_bytes,
                    subscriptions, problem
    subscriptions   topic, subscriber, owner, consumed_id, last_id, backlog, window, bound, filter, options, problem
    hubs            hub, host, port, ssl_port, topics, problem

Ids of messages count from 1. Sizes in bytes. Options: region, zk_prefix as hubs have them, `password` (their passwd),
and `topicPrefix`. Attachments are not recorded. A subscription can be attached only while its topic has an owner.

Where the ledger that a hub writes now ends is asked of the bookies, as `hedwig topics --long` does: its last message
may be one that is not acknowledged yet.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.connecting import metadata_settings
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config.keys import integer, key, secret_bytes, text
from bookkeeper.config.shared import check_root
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.spark.cluster.asking import rows_of
from bookkeeper.spark.cluster.table import (
    PLANNING,
    PROBLEM,
    WHAT,
    ClusterOptions,
    ClusterTable,
    Column,
    Of,
    Row,
    told,
)
from bookkeeper.spark.options.bounds import Bounds
from hedwig.admin.region import LedgerPart, Region, Subscribed
from hedwig.config.kinds import region_name
from hedwig.model import HubAddress, Topic
from hedwig.names import Paths, shown

TOPICS_AT_ONCE = 32
"""Topics asked about: each asks for up to twenty records."""


@dataclass(frozen=True, slots=True)
class RegionOptions(ClusterOptions):
    """Which region. Keys and defaults are the hubs'."""

    zk_prefix: str = key(
        "zk_prefix", text("path", check_root), "/hedwig", WHAT, "Above all that hubs keep in ZooKeeper.",
    )  # fmt: skip
    region: str = key("region", region_name(), "standalone", WHAT, "The region.")
    password: bytes = key(
        "passwd", secret_bytes("text"), "sillysecret", WHAT, "Password of the ledgers of topics.", secret=True,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicOptions(RegionOptions):
    """Which topics."""

    topic_prefix: bytes = key(
        "topicPrefix", secret_bytes("text"), "", WHAT, "Only topics whose name begins so.",
    )  # fmt: skip
    topics_max: int = key(
        "maxTopicsPerPartition", integer("topics", 1, 1_000_000), "2000", PLANNING,
        "How many topics one task asks about at most.",
    )  # fmt: skip


def region_of(ledgers: LedgerClient, options: RegionOptions) -> Region:
    """The region, by the session of the ledger client."""
    store = ledgers.store
    assert isinstance(store, ZooKeeperStore)
    paths = Paths(options.zk_prefix, options.region)
    clock = ledgers.context.clock
    named_by = ("option zk_prefix", "option region")
    return Region(store.tree, ledgers, clock, metadata_settings(ledgers.settings), paths, options.password, named_by)


def _topic_shares(client: BlockingBookKeeper, options: TopicOptions, bounds: Bounds) -> Sequence[object]:
    """Names of topics, in pieces. Raises InvalidArgument where there is no such region."""
    del bounds

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Topic]]:
        region = region_of(ledgers, options)
        await region.check()
        async for piece in region.topics(options.topic_prefix):
            yield [each.topic for each in piece]

    names = [topic for piece in client.pieces(start) for topic in piece]
    return [names[first : first + options.topics_max] for first in range(0, len(names), options.topics_max)]


# --- topics


async def _topic(region: Region, topic: Topic) -> Sequence[Row]:
    try:
        seen = await region.metadata.look(topic)
        if not seen.exists:
            return ()  # deleted since it was listed
        owner = None if seen.owner is None else seen.owner.address
        subscribers = len(await region.subscribers(topic))
        return [topic_row(topic, owner, await region.parts(topic), subscribers)]
    except BookKeeperError as error:
        return [(shown(topic), *(None,) * 9, told(error))]


def topic_row(topic: Topic, owner: HubAddress | None, parts: Sequence[LedgerPart], subscribers: int) -> Row:
    """The row of `topics`."""
    problems = [f"ledger {part.ledger_id}: {part.problem}" for part in parts if part.problem is not None]
    ended = [part.size for part in parts if not part.is_open]
    first, last = (parts[0].first, parts[-1].last) if parts else (None, 0)
    messages = 0 if first is None else None if last is None else max(0, last - first + 1)
    return (
        shown(topic),
        None if owner is None else str(owner),
        len(parts),
        next((part.ledger_id for part in parts if part.is_open), None),
        first,
        last,
        messages,
        None if None in ended else sum(size or 0 for size in ended),
        next((part.confirmed_size for part in parts if part.is_open), 0),
        subscribers,
        "; ".join(problems) or None,
    )


def _topic_rows(client: BlockingBookKeeper, options: TopicOptions, share: list[Topic]) -> Iterator[Sequence[Row]]:
    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        await ledgers.store.sync()
        region = region_of(ledgers, options)
        async for piece in rows_of(share, lambda topic: _topic(region, topic), TOPICS_AT_ONCE):
            yield piece

    return client.pieces(start)


TOPICS = ClusterTable(
    "topics",
    "every topic of a region, as it is recorded",
    (
        Column("topic", Of.TEXT, "its name", nullable=False),
        Column("owner", Of.TEXT, "host:port:sslport of the hub that serves it; null while none does"),
        Column("ledgers", Of.INT, "how many hold its messages"),
        Column("open_ledger_id", Of.LONG, "the one that is being written; null where none is"),
        Column("first_id", Of.LONG, "id of the first message that is kept; null where there is no ledger"),
        Column("last_id", Of.LONG, "id of the last message; 0 where there is no ledger"),
        Column("messages", Of.LONG, "how many are kept"),
        Column("ended_bytes", Of.LONG, "bytes of the messages in ledgers that have ended; the open one does not tell"),
        Column(
            "open_bytes", Of.LONG, "likewise in the open one, as far as bookies know to be confirmed; 0 where none is"
        ),
        Column("subscriptions", Of.INT, "how many"),
        PROBLEM,
    ),
    _topic_rows,
    _topic_shares,
    TopicOptions,
)


# --- subscriptions


async def _subscriptions(region: Region, topic: Topic) -> Sequence[Row]:
    try:
        found = await region.subscriptions_of(topic)
        owner = (await region.metadata.look(topic)).owner if found else None
    except BookKeeperError as error:
        return [(shown(topic), *(None,) * 9, told(error))]
    return [subscription_row(each, None if owner is None else owner.address) for each in found]


def subscription_row(each: Subscribed, owner: HubAddress | None) -> Row:
    """The row of `subscriptions`."""
    wishes = each.record.preferences
    return (
        shown(each.topic),
        shown(each.subscriber),
        None if owner is None else str(owner),
        each.record.consumed.local if each.is_readable else None,
        each.last,
        each.backlog,
        wishes.window_size,
        wishes.message_bound,
        wishes.message_filter,
        sorted((name, shown(value)) for name, value in wishes.options.items()) if each.is_readable else None,
        each.problem,
    )


def _subscription_rows(
    client: BlockingBookKeeper, options: TopicOptions, share: list[Topic]
) -> Iterator[Sequence[Row]]:
    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        await ledgers.store.sync()
        region = region_of(ledgers, options)
        async for piece in rows_of(share, lambda topic: _subscriptions(region, topic), TOPICS_AT_ONCE):
            yield piece

    return client.pieces(start)


SUBSCRIPTIONS = ClusterTable(
    "subscriptions",
    "every subscription of a region, with its backlog",
    (
        Column("topic", Of.TEXT, "its topic", nullable=False),
        Column("subscriber", Of.TEXT, "its name; null in a row about a topic whose subscriptions cannot be read"),
        Column("owner", Of.TEXT, "host:port:sslport of the hub that serves the topic; null while none does"),
        Column("consumed_id", Of.LONG, "id of the last message consumed, as stored: now and then (consume_interval)"),
        Column("last_id", Of.LONG, "id of the topic's last message; 0 for none"),
        Column(
            "backlog",
            Of.LONG,
            "messages that wait for it: kept, and not consumed; while a hub serves it, fewer by what is not stored",
        ),
        Column("window", Of.INT, "messages delivered and not consumed at most; 0 no limit; null: not said"),
        Column("bound", Of.INT, "messages that are kept for it at most; 0 none; null: not said"),
        Column("filter", Of.TEXT, "the filter that the hub runs; null: not said"),
        Column("options", Of.TEXT_BY_TEXT, "its options"),
        PROBLEM,
    ),
    _subscription_rows,
    _topic_shares,
    TopicOptions,
)


# --- hubs


def _hub_rows(client: BlockingBookKeeper, options: RegionOptions, share: object) -> Iterator[Sequence[Row]]:
    del share

    async def start(ledgers: LedgerClient) -> AsyncGenerator[list[Row]]:
        region = region_of(ledgers, options)
        await region.check()
        names = await Errand(
            region.metadata.tree, region.clock, metadata_settings(ledgers.settings), "list the hubs"
        ).children(region.paths.hubs)
        told_of = {str(address): (address, count) for address, count in (await region.metadata.hubs()).items()}
        yield [hub_row(name, told_of.get(name)) for name in sorted(names)]

    return client.pieces(start)


def hub_row(name: str, found: tuple[HubAddress, int] | None) -> Row:
    """The row of `hubs`."""
    if found is None:
        return name, None, None, None, None, "its record cannot be read, or it has gone since it was listed"
    address, count = found
    return name, address.host, address.port, address.ssl_port, count, None


HUBS = ClusterTable(
    "hubs",
    "every hub of a region that is registered now",
    (
        Column("hub", Of.TEXT, "host:port:sslport, -1 for none; what `owner` says in other tables", nullable=False),
        Column("host", Of.TEXT, "its host"),
        Column("port", Of.INT, "TCP port for clients"),
        Column("ssl_port", Of.INT, "TCP port for TLS; null where it offers none"),
        Column("topics", Of.LONG, "how many it serves, by its own word"),
        PROBLEM,
    ),
    _hub_rows,
    options=RegionOptions,
)
