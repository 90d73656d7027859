"""The words of an import of topics. Pure. Those of an export are words of the format hedwig, `EXPORTED`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import Kind, key, text
from bookkeeper.errors import BookKeeperError
from hedwig.model import SubscriberId
from hedwig.names import subscriber_part
from hedwig.spark.region_options import RegionOptions

IMPORT = "import-topics"
"""Where a word belongs, in messages."""

WHAT = "How topics are published again"

EXPORTED = (
    *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("acknowledgedOffsets", "minPartitions", "maxPartitionBytes"),
)
"""What an export takes of the format's own words; the rest are the region's and the client's."""


def _subscriber(value: str) -> SubscriberId | None:
    if not value:
        return None
    found = SubscriberId(value.encode("utf-8", "surrogatepass"))
    try:
        subscriber_part(found)
    except BookKeeperError as error:
        raise ValueError(str(error)) from error
    return found


_SUBSCRIBER: Kind[SubscriberId | None] = Kind("name", _subscriber)


@dataclass(frozen=True, slots=True)
class TopicImportOptions(RegionOptions):
    """How topics are published again."""

    job: str = key(
        "job", text("a name"), "", WHAT,
        "Name of the import: what was published from the same export under it is not published again.",
    )  # fmt: skip
    prefix: str = key("prefix", text("text"), "", WHAT, "Put before the name of each topic.")
    subscriber: SubscriberId | None = key(
        "subscription", _SUBSCRIBER, "", WHAT,
        "Subscription made in each topic before its first message, and left there: it keeps the messages. Not set: one "
        "keeps them until they are verified.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Nothing can be wrong between these words."""
        return iter(())
