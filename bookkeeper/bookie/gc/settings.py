"""How a bookie collects its garbage. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookkeeper.bookie.gc.candidates import CompactionSettings
from bookkeeper.bookie.gc.compactor import CompactionRate


@dataclass(frozen=True, slots=True)
class GarbageSettings:
    """wait_s: between two rounds. overreplicated_wait_s: between two looks for copies too many; <= 0: never.

    metadata_reads_per_s: of the look for copies too many.
    """

    wait_s: float = 600.0
    overreplicated_wait_s: float = 86_400.0
    metadata_reads_per_s: float = 1000.0
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    rate: CompactionRate = field(default_factory=CompactionRate)
