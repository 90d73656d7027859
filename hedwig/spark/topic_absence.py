"""What is said of a topic that there is not: the nearest of those that there are, and where else it may be.

Bound: NAMES_MAX names of the region are looked at. Thread: reactor.
"""

from __future__ import annotations

from contextlib import aclosing

from bookkeeper.config.table import nearest
from bookkeeper.errors import InvalidArgument
from bookkeeper.spark.said_as import Words
from hedwig.admin.region import Region
from hedwig.spark.topic_options import topic_of

NAMES_MAX = 1_000


async def check_topic(region: Region, topic: str, words: Words) -> None:
    """Raise InvalidArgument, with what may help, where there is no such topic. words: of who asks. BookKeeperError."""
    try:
        await region.owner(topic_of(topic))
    except InvalidArgument as error:
        near = nearest(topic, await _some_names(region))
        remedy = words.remedy("If it is of another region, name that: {}, {}", "region", "zk_prefix")
        raise InvalidArgument(f"{error}{near}{remedy.removeprefix('.') if near else remedy}") from None


async def _some_names(region: Region) -> list[str]:
    names: list[str] = []
    async with aclosing(region.topics()) as pieces:
        async for piece in pieces:
            names += (each.topic.decode(errors="replace") for each in piece)
            if len(names) >= NAMES_MAX:
                break
    return names
