"""The settings of the auditor, part of a bookie's configuration. Names and defaults are Apache's (4.18)."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.config.keys import DAY_S, INT32_MAX, boolean, integer, key, ratio, seconds
from bookkeeper.config.replication import AUTO_RECOVERY, ReplicationSettings

INTERVAL_S_MAX = 3650 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditorSettings(ReplicationSettings):
    """What the auditor looks at, how often, and how much at once. Durations in seconds; an interval of 0 is never."""

    auditor_bookie_check_interval_s: float = key(
        "auditorPeriodicBookieCheckInterval",
        seconds("s", 0, INTERVAL_S_MAX),
        "86400",
        AUTO_RECOVERY,
        "Time between two looks for ledgers on lost bookies, besides those when a bookie is lost; 0: only those.",
    )
    auditor_ledger_check_interval_s: float = key(
        "auditorPeriodicCheckInterval",
        seconds("s", 0, INTERVAL_S_MAX),
        "604800",
        AUTO_RECOVERY,
        "Time between two checks of all ledgers' copies, each of which reads from every bookie; 0: never.",
    )
    auditor_verification_percentage: float = key(
        "auditorLedgerVerificationPercentage",
        ratio(0, 100),
        "0",
        AUTO_RECOVERY,
        "Share (0..100) of a fragment's entries that check reads, besides the first and the last of each copy.",
    )
    auditor_ledgers_in_flight_max: int = key(
        "auditorMaxNumberOfConcurrentOpenLedgerOperations",
        integer("ledgers", 1, 10_000),
        "500",
        AUTO_RECOVERY,
        "Ledgers that are looked at at once.",
    )
    auditor_placement_check_interval_s: float = key(
        "auditorPeriodicPlacementPolicyCheckInterval",
        seconds("s", 0, INTERVAL_S_MAX),
        "0",
        AUTO_RECOVERY,
        "Time between two looks for ledgers whose bookies stand in too few racks; they are counted. 0: never.",
    )
    auditor_replicas_check_interval_s: float = key(
        "auditorReplicasCheckInterval",
        seconds("s", 0, INTERVAL_S_MAX),
        "0",
        AUTO_RECOVERY,
        "Time between two comparisons of what all ledgers should have with what each bookie says it holds; 0: never.",
    )
    lost_bookie_recovery_delay_s: int = key(
        "lostBookieRecoveryDelay",
        integer("s", 0, INT32_MAX),
        "0",
        AUTO_RECOVERY,
        "How long a single bookie may be gone before its ledgers are under-replicated. Stored in the cluster by the "
        "first auditor; afterwards `bookkeeper shell lostbookierecoverydelay` changes it.",
    )
    store_mark_time: bool = key(
        "storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        boolean(),
        "true",
        AUTO_RECOVERY,
        "Note with an under-replicated ledger when it was found. Apache reads that since 4.8.",
    )
    underreplicated_grace_s: float = key(
        "underreplicatedLedgerRecoveryGracePeriod",
        seconds("s", 0, INTERVAL_S_MAX),
        "0",
        AUTO_RECOVERY,
        "Ledgers that are under-replicated for longer than this are counted as overdue; 0: none are.",
    )
