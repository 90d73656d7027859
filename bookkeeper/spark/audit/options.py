"""The words of an audit. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import GIB, KIB, Kind, integer, key
from bookkeeper.spark.ledgers.options import LedgerChoice, parse_ledgers

WHERE = "bookkeeper.audit"

READING, PLANNING = "What is audited", "Partitions"

_LEDGERS: Kind[LedgerChoice] = Kind("all, or ids and ranges: 3,7,10-20", parse_ledgers)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is audited, and how fast."""

    ledgers: LedgerChoice = key("ledgers", _LEDGERS, "all", READING, "Ledgers; of a range those that there are.")
    bytes_per_s: int = key(
        "bytesPerSecond", integer("bytes", 0, 2**40), "0", READING,
        "Payload that is read of each bookie in a second at most, by all tasks together; 0: no limit.",
    )  # fmt: skip
    partitions_min: int = key(
        "minPartitions", integer("partitions", 1, 100_000), "1", PLANNING, "Audit with at least so many tasks.",
    )  # fmt: skip
    partition_bytes_max: int = key(
        "maxPartitionBytes", integer("bytes", 64 * KIB, 64 * GIB), "268435456", PLANNING,
        "About how much one task reads at most, of all copies.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Nothing can be wrong between these words."""
        return iter(())
