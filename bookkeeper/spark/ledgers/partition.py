"""What one task reads of ledgers: pickled by the planner, unpickled by the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.options.bounds import Bounds


@dataclass
class LedgerPartition(InputPartition):
    """Slices of ledgers, and which of their entries pass."""

    slices: Sequence[Slice]
    entry_ids: Bounds = field(default_factory=Bounds)
