"""The words of an import of topics. Pure. Those of an export are words of the format hedwig, `EXPORTED`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import key, text
from hedwig.model import SubscriberId
from hedwig.spark.region_options import RegionOptions
from hedwig.spark.topic_options import SUBSCRIBER

IMPORT = "import-topics"
"""Where a word belongs, in messages."""

WHAT = "How topics are published again"

EXPORTED = (
    *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("acknowledgedOffsets", "minPartitions", "maxPartitionBytes"),
)
"""What an export takes of the format's own words; the rest are the region's and the client's."""


@dataclass(frozen=True, slots=True)
class TopicImportOptions(RegionOptions):
    """How topics are published again."""

    job: str = key(
        "job", text("a name"), "", WHAT,
        "Name of the import: what was published from the same export under it is not published again.",
    )  # fmt: skip
    prefix: str = key("prefix", text("text"), "", WHAT, "Put before the name of each topic.")
    subscriber: SubscriberId | None = key(
        "subscription", SUBSCRIBER, "", WHAT,
        "Subscription made in each topic before its first message, and left there: it keeps the messages. Not set: one "
        "keeps them until they are verified.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Nothing can be wrong between these words."""
        return iter(())
