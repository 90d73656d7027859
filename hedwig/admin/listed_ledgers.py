"""Which topic a ledger belongs to, for `bookkeeper why ledger`.

A ledger does not say, so the ledger lists of topics are looked through: two reads a topic, of at most TOPICS_MAX topics
of all regions. Where hubs keep their records follows from the environment (HW_zk_prefix), else it is the default.
Thread: reactor.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from bookkeeper.client.connecting import metadata_settings
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.tree import NodeAbsent, Tree
from bookkeeper.model import LedgerId
from hedwig.admin.region import Region, in_order
from hedwig.model import LedgerRange, Topic
from hedwig.names import Paths, shown

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

TOPICS_MAX = 1000
"""Topics that are looked at: about half a second."""

DEFAULT_REGION = "standalone"


async def owner_of(
    client: LedgerClient, tree: Tree, ledger_id: LedgerId, /, *, topics_max: int = TOPICS_MAX
) -> list[str]:
    """Return who lists the ledger, in a sentence; nothing where no topic does.

    Raises ConfigurationError, MetadataUnavailable.
    """
    from hedwig.config.load import load_hub

    prefix = load_hub(None, {}).settings.zk_prefix
    settings = metadata_settings(client.context.settings)
    errand = Errand(tree, client.context.clock, settings, f"look which topic lists ledger {ledger_id}")
    await errand.sync()
    try:
        names = sorted(await errand.children(prefix))
    except NodeAbsent:
        return []
    seen, unreadable = 0, []
    for name in names:
        region = Region(tree, client, client.context.clock, settings, Paths(prefix, name), b"")
        async with contextlib.aclosing(_lists(region)) as lists:
            async for topic, ranges in lists:
                if seen == topics_max:
                    return [
                        f"whether it belongs to a topic is unknown: {topics_max} topics below {prefix} do not list it, "
                        "and there are more"
                    ]
                seen += 1
                if isinstance(ranges, BookKeeperError):
                    unreadable.append(str(ranges))
                elif any(each.ledger_id == ledger_id for each in ranges):
                    return [_sentence(topic, len(ranges), name, prefix)]
    if unreadable:
        return [f"whether it belongs to a topic is unknown: {unreadable[0]}"]
    return []


async def _lists(region: Region) -> AsyncGenerator[tuple[Topic, list[LedgerRange] | BookKeeperError], None]:
    async def one(topic: Topic) -> list[LedgerRange] | BookKeeperError:
        try:
            return (await region.metadata.ranges(topic, synced=True)).value
        except BookKeeperError as error:
            return error

    try:
        async with contextlib.aclosing(region.topics()) as pieces:
            async for piece in pieces:
                async with contextlib.aclosing(in_order([each.topic for each in piece], one)) as found:
                    async for each in found:
                        yield each
    except NodeAbsent:
        return  # of no region


def _sentence(topic: Topic, count: int, region: str, prefix: str) -> str:
    where = "" if region == DEFAULT_REGION else f" --region {shlex.quote(region)}"
    which = "the only ledger" if count == 1 else f"one of {count} ledgers"
    return (
        f"it is {which} of topic {shown(topic)!r} ({prefix}/{region}); until when its messages are kept, and why: "
        f"bookkeeper why topic {shlex.quote(shown(topic))}{where}"
    )
