"""What one task reads of topics: pickled by the planner, unpickled by the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from bookkeeper.spark.ledgers.plan import Slice, partitions_of
from bookkeeper.spark.options.bounds import Bounds
from hedwig.spark.topic_extents import Planned


@dataclass
class TopicPartition(InputPartition):
    """Slices of ledgers, and which message ids pass. of: ledger id -> its topic, and the message in its entry 0."""

    slices: Sequence[Slice]
    of: Mapping[int, tuple[str, int]]
    offsets: Bounds = field(default_factory=Bounds)


def topic_partitions(
    planned: Iterable[Planned], *, partition_bytes_max: int, partitions_min: int, offsets: Bounds
) -> list[TopicPartition]:
    """Who reads what."""
    planned = list(planned)
    of = {each.part.ledger_id: (each.part.topic, each.part.base) for each in planned}
    found = partitions_of(
        [each.extent for each in planned], partition_bytes_max=partition_bytes_max, partitions_min=partitions_min
    )
    inside = Bounds() if offsets.is_range else offsets
    return [TopicPartition(slices, {each.ledger_id: of[each.ledger_id] for each in slices}, inside) for slices in found]
