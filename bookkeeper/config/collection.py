"""Settings of garbage collection and compaction. Names and defaults are Apache's (4.18)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.auditor import AuditorSettings
from bookkeeper.config.keys import DAY_S, INT32_MAX, boolean, integer, key, ratio, seconds
from bookkeeper.config.shared import Fault

COLLECTION = "Garbage collection and compaction"

_OFF = ("0", "-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSettings(AuditorSettings):
    """When the space of deleted ledgers is given back, and how fast. Durations in seconds; 0.0 is off."""

    gc_wait_s: float = key(
        "gcWaitTime",
        seconds("ms", 1, 365 * DAY_S * 1000),
        "600000",
        COLLECTION,
        "Time between two rounds of garbage collection. A ledger goes when two rounds found it deleted.",
    )
    overreplicated_wait_s: float = key(
        "gcOverreplicatedLedgerWaitTime",
        seconds("ms", 1, 365 * DAY_S * 1000, off=_OFF),
        "86400000",
        COLLECTION,
        "Time between two looks for copies of closed ledgers that belong to other bookies by now.",
    )
    metadata_reads_per_s: int = key(
        "gcMetadataOpRateLimit",
        integer("reads a second", 1, 1_000_000),
        "1000",
        COLLECTION,
        "How fast that look may ask the metadata store.",
    )
    minor_compaction_threshold: float = key(
        "minorCompactionThreshold",
        ratio(-1.0, 1.0),
        "0.2",
        COLLECTION,
        "Minor compaction rewrites entry logs with a smaller live share than this. 0 or less: off.",
    )
    minor_compaction_interval_s: float = key(
        "minorCompactionInterval",
        seconds("s", 1, 365 * DAY_S, off=_OFF),
        "3600",
        COLLECTION,
        "Time between two minor compactions; at least gcWaitTime.",
    )
    minor_compaction_time_max_s: float = key(
        "minorCompactionMaxTimeMillis",
        seconds("ms", 1, 365 * DAY_S * 1000, off=_OFF),
        "-1",
        COLLECTION,
        "How long one minor compaction may take; what is left waits for the next.",
    )
    major_compaction_threshold: float = key(
        "majorCompactionThreshold",
        ratio(-1.0, 1.0),
        "0.8",
        COLLECTION,
        "The same for major compaction, which counts as a minor one, too. 0 or less: off.",
    )
    major_compaction_interval_s: float = key(
        "majorCompactionInterval",
        seconds("s", 1, 365 * DAY_S, off=_OFF),
        "86400",
        COLLECTION,
        "Time between two major compactions; at least gcWaitTime.",
    )
    major_compaction_time_max_s: float = key(
        "majorCompactionMaxTimeMillis",
        seconds("ms", 1, 365 * DAY_S * 1000, off=_OFF),
        "-1",
        COLLECTION,
        "How long one major compaction may take; what is left waits for the next.",
    )
    compaction_throttled_by_bytes: bool = key(
        "isThrottleByBytes",
        boolean(),
        "false",
        COLLECTION,
        "Whether compactionRateByBytes or compactionRateByEntries bounds compaction.",
    )
    compaction_entries_per_s: int = key(
        "compactionRateByEntries",
        integer("entries a second", -1, INT32_MAX),
        "1000",
        COLLECTION,
        "Live entries that compaction copies. 0 or less: as fast as it can.",
    )
    compaction_bytes_per_s: int = key(
        "compactionRateByBytes",
        integer("bytes a second", -1, 2**63 - 1),
        "1000000",
        COLLECTION,
        "Bytes of live entries that compaction copies. 0 or less: as fast as it can.",
    )

    def collection_faults(self) -> Iterator[Fault]:
        """Yield what is wrong between these keys."""
        minor, major = self.minor_compaction_threshold, self.major_compaction_threshold
        minor_on = minor > 0 and self.minor_compaction_interval_s > 0
        major_on = major > 0 and self.major_compaction_interval_s > 0
        for name, on, interval_s in (
            ("minorCompactionInterval", minor_on, self.minor_compaction_interval_s),
            ("majorCompactionInterval", major_on, self.major_compaction_interval_s),
        ):
            if on and interval_s < self.gc_wait_s:
                yield (
                    (name, "gcWaitTime"),
                    f"{name}={interval_s:g} s is shorter than gcWaitTime={self.gc_wait_s * 1000:g} ms, and compaction "
                    "is a part of a round",
                )
        if minor_on and major_on and minor >= major:
            yield (
                ("minorCompactionThreshold", "majorCompactionThreshold"),
                f"minorCompactionThreshold={minor:g} is not below majorCompactionThreshold={major:g}",
            )
        if minor_on and major_on and self.minor_compaction_interval_s > self.major_compaction_interval_s:
            yield (
                ("minorCompactionInterval", "majorCompactionInterval"),
                f"minorCompactionInterval={self.minor_compaction_interval_s:g} s is longer than "
                f"majorCompactionInterval={self.major_compaction_interval_s:g} s",
            )
