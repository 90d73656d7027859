"""The settings of re-replication, part of a bookie's configuration. Names and defaults are Apache's (4.18)."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.config.keys import DAY_S, GIB, INT32_MAX, KIB, boolean, integer, key, seconds
from bookkeeper.config.security import SecuritySettings

AUTO_RECOVERY = "Auto-recovery"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings(SecuritySettings):
    """Whether and how a process makes lost copies anew. Durations in seconds, rates per second; a rate <= 0 is none."""

    auto_recovery_daemon_enabled: bool = key(
        "autoRecoveryDaemonEnabled",
        boolean(),
        "false",
        AUTO_RECOVERY,
        "Run an auditor candidate and a replication worker beside the bookie, in its process. `bookkeeper "
        "autorecovery` runs them alone.",
    )
    open_ledger_grace_s: float = key(
        "openLedgerRereplicationGracePeriod",
        seconds("ms", 0, DAY_S * 1000),
        "30000",
        AUTO_RECOVERY,
        "How long a ledger that is being written, and lost a bookie of its last fragment, is left to its writer. Then "
        "it is recovered, which ends its writer.",
    )
    failed_ledger_grace_s: float = key(
        "lockReleaseOfFailedLedgerGracePeriod",
        seconds("ms", 32, DAY_S * 1000),
        "300000",
        AUTO_RECOVERY,
        "Longest time between two tries of a ledger that cannot be repaired; the first ones come sooner.",
    )
    replication_error_backoff_s: float = key(
        "rwRereplicateBackoffMs",
        seconds("ms", 1, DAY_S * 1000),
        "5000",
        AUTO_RECOVERY,
        "Pause after the metadata service could not be asked for under-replicated ledgers.",
    )
    replication_bytes_per_s: int = key(
        "replicationRateByBytes",
        integer("bytes/s", -1, INT32_MAX),
        "-1",
        AUTO_RECOVERY,
        "Most that is copied per second, in bytes of payload; -1 or 0: no limit.",
    )
    replication_entries_per_s: int = key(
        "replicationRateByEntries",
        integer("entries/s", -1, INT32_MAX),
        "-1",
        AUTO_RECOVERY,
        "Most that is copied per second, in entries; -1 or 0: no limit.",
        ours=True,
    )
    replication_ledgers_max: int = key(
        "replicationLedgersMax",
        integer("ledgers", 1, 10_000),
        "256",
        AUTO_RECOVERY,
        "Ledgers that a worker repairs at once.",
        ours=True,
    )
    replication_batch_entries_max: int = key(
        "rereplicationEntryBatchSize",
        integer("entries", 1, 100_000),
        "500",
        AUTO_RECOVERY,
        "Entries that are read and written together; fewer if they are large.",
        differs="10 there, where one batch must end before the next begins.",
    )
    replication_entries_in_flight_max: int = key(
        "replicationEntriesInFlightMax",
        integer("entries", 1, 10_000_000),
        "20000",
        AUTO_RECOVERY,
        "Entries that a worker has read or is reading, and that are not written yet, of all ledgers together.",
        ours=True,
    )
    replication_bytes_in_flight_max: int = key(
        "replicationBytesInFlightMax",
        integer("bytes", 64 * KIB, 64 * GIB),
        "67108864",
        AUTO_RECOVERY,
        "The same in bytes; a single larger batch goes alone.",
        ours=True,
    )
    replication_checks_in_flight_max: int = key(
        "inFlightReadEntryNumInLedgerChecker",
        integer("entries", -1, 10_000_000),
        "-1",
        AUTO_RECOVERY,
        "Entries that a worker looks for at once when it checks which copies are there; -1: "
        "replicationEntriesInFlightMax.",
    )
