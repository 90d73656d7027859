"""Settings of the scrub, which reads through what a bookie stores. Names are Apache's (4.18) but for the rate."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.config.collection import CollectionSettings
from bookkeeper.config.keys import DAY_S, integer, key, seconds

SCRUB = "Scrub"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubbingSettings(CollectionSettings):
    """How often everything stored is compared with its checksums, and how fast. Durations in seconds; 0.0 is off."""

    # Differs from Apache: on. Damage that nobody looks for is found when the last good copy is gone (I-67).
    scrub_interval_s: float = key(
        "localScrubInterval",
        seconds("s", 1, 365 * DAY_S, off=("0", "-1")),
        "604800",
        SCRUB,
        "Time between two rounds that read through everything stored. 0: none, which is the default of Apache.",
    )
    # Differs from Apache: bytes, not entries (localScrubRateLimit), because whole pages are read and compared.
    scrub_bytes_per_s: int = key(
        "localScrubRateByBytes",
        integer("bytes a second", 0, 2**63 - 1),
        "16777216",
        SCRUB,
        "How fast such a round reads. 0: as fast as it can. Not in Apache, see localScrubRateLimit.",
    )
