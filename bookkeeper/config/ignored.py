"""Upstream keys without a field of their own: those accepted without effect, and those refused unless harmless.

Ignoring is right where the key tunes something that does not exist here, or asks for less safety than we always give;
its reason names the consequence. It is wrong where the key is a promise:

    REFUSED    authorisation, encryption of HTTP, another storage format: going on would expose data or miss entries
    SWITCHES   turns a function on that this release lacks, such as data integrity checks: a bookie that runs without it
               would leave its operator trusting in it. Refused only where a bookie is to run: who reads another
               bookie's configuration, to look into its files or to be its client, does not need the function.

Names and defaults are those of release 4.18.
"""

from __future__ import annotations

from dataclasses import dataclass

RUNTIME = "tunes the Java runtime, its thread pools or Netty"
ROCKSDB = "belongs to DbLedgerStorage (RocksDB), which this bookie does not have"
GROUPING = (
    "Differs from Apache: there is no deliberate wait for a group; whatever arrives during one sync is the next group"
)
ALWAYS_DURABLE = "Differs from Apache: an answer leaves only after its fdatasync, always"
GARBAGE = (
    "Differs from Apache: a ledger is deleted only after the metadata store said so of it, compaction is always "
    "transactional and only waits for room, and maps of entry logs are kept compactly in memory; the rate is "
    "compactionRateByEntries or compactionRateByBytes"
)
SCRUB = "the scrub reads whole pages, not entries; its rate is localScrubRateByBytes"
REPAIR = "how fast marks are taken follows from replicationLedgersMax; each costs the metadata service a few operations"
HTTP = "a detail of the HTTP server's Java implementation"
STATISTICS = "metrics are always kept, in Prometheus' text format"
PLUGGABLE = "names a Java class; the part it replaces is not pluggable here"
BOUNDED = "queues are bounded in bytes here (journalMaxMemorySizeMb, skipListSizeLimit, serverWriteBufferHighWaterMark)"
SINGLE = "one reactor thread does this work"
ENTRY_LOGS = (
    "belongs to entry-log-per-ledger or to write buffers of entry logs; entries are written in sorted runs here"
)
WINDOW = "Differs from Apache: back-pressure comes from windowEntriesMax and windowBytesMax, not from a rate"
INDEX_ON_FULL_DISK = (
    "an index file is created as long as a byte is free, since a fence must be storable on a full disk too"
)
NO_TURN = "the auditor begins with a ledger when another is done; nothing waits for a turn with a timeout"
LATER = "its subject is not in this release"
TLS_ENGINE = "chooses between Java's TLS engines; the OpenSSL of Python is used"

_IGNORED_BY_REASON: dict[str, str] = {
    RUNTIME: """
        allocatorPoolingPolicy allocatorPoolingConcurrency allocatorOutOfMemoryPolicy allocatorLeakDetectionPolicy
        allocatorExitOnOutOfMemory byteBufAllocatorSizeInitial byteBufAllocatorSizeMin byteBufAllocatorSizeMax
        enableBusyWait serverNumIOThreads serverNumAcceptorThreads serverTcpLinger serverTcpKeepIdle serverTcpKeepIntvl
        serverTcpKeepCnt tcpKeepIdle tcpKeepIntvl tcpKeepCnt enableLocalTransport bookieDeathWatchInterval
        nettyUsePooledBuffers numWorkerThreads numIOThreads clientSendBufferSize clientReceiveBufferSize
        clientWriteBufferLowWaterMark clientWriteBufferHighWaterMark clientTcpUserTimeoutMillis
        preserveMdcForTaskExecution enableTaskExecutionStats taskExecutionWarnTimeMicros limitStatsLogging
        pcbcTimeoutTimerTickDurationMs pcbcTimeoutTimerNumTicks timeoutTimerTickDurationMs timeoutTimerNumTicks
        timeoutTaskIntervalMillis timeoutMonitorIntervalSec requestTimerTickDurationMs requestTimerNumTicks
        clientConnectBookieUnavailableLogThrottling numJournalCallbackThreads fileInfoCacheInitialCapacity
        fileInfoMaxIdleTime skipListArenaChunkSize skipListArenaMaxAllocSize enableHealthCheck
        ignoreExtraServerComponentsStartupFailures allowMultipleDirsUnderSameDiskPartition numChannelsPerBookie
        """,
    ROCKSDB: """
        defaultRocksdbConf entryLocationRocksdbConf ledgerMetadataRocksdbConf entryLocationCompactionInterval
        maxOperationNumbersInSingleRocksdbWriteBatch
        """,
    GROUPING: """
        journalAdaptiveGroupWrites journalMaxGroupWaitMSec journalBufferedWritesThreshold
        journalBufferedEntriesThreshold journalFlushWhenQueueEmpty journalWriteBufferSizeKB
        """,
    ALWAYS_DURABLE: "journalSyncData journalWriteData journalPageCacheFlushIntervalMSec",
    GARBAGE: """
        gcOverreplicatedLedgerMaxConcurrentRequests isForceGCAllowWhenNoSpace verifyMetadataOnGC
        gcEntryLogMetadataCacheEnabled gcEntryLogMetadataCachePath useTargetEntryLogSizeForGc forceAllowCompaction
        compactionRate compactionMaxOutstandingRequests useTransactionalCompaction
        """,
    SCRUB: "localScrubRateLimit",
    REPAIR: "zkReplicationTaskRateLimit",
    HTTP: """
        httpServerClass httpServerKeyStorePath httpServerKeyStorePassword httpServerTrustStorePath
        httpServerTrustStorePassword
        """,
    STATISTICS: """
        enableStatistics statsProviderClass sanityCheckMetricsEnabled exposeDefaultJVMMetrics
        """,
    PLUGGABLE: """
        ledgerManagerFactoryClass ledgerManagerType allowShadedLedgerManagerFactoryClass
        shadedLedgerManagerFactoryClassPrefix ledgerManagerFactoryDisableClassCheck registrationManagerClass
        registrationClientClass metastoreImplClass metastoreMaxEntriesPerScan journalChannelProvider
        ledgerIdFormatterClass entryFormatterClass reppDnsResolverClass clientRole
        disableEnsembleChangeFeatureName
        """,
    BOUNDED: """
        journalQueueSize maxPendingReadRequestsPerThread maxPendingAddRequestsPerThread maxAddsInProgressLimit
        closeChannelOnResponseTimeout waitTimeoutOnResponseBackpressureMs readWorkerThreadsThrottlingEnabled
        """,
    SINGLE: "numAddWorkerThreads numReadWorkerThreads numLongPollWorkerThreads numHighPriorityWorkerThreads",
    ENTRY_LOGS: """
        entryLogPerLedgerEnabled numOfMemtableFlushThreads entrylogMapAccessExpiryTimeInSeconds
        maximumNumberOfActiveEntryLogs entryLogPerLedgerCounterLimitsMultFactor entryLogFilePreallocationEnabled
        flushEntrylogBytes readBufferSizeBytes writeBufferSizeBytes sortedLedgerStorageEnabled
        journalRemoveFromPageCache
        """,
    NO_TURN: "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec",
    INDEX_ON_FULL_DISK: "minUsableSizeForIndexFileCreation",
    WINDOW: "throttle waitTimeoutOnBackpressureMs",
    LATER: """
        recoveryBatchReadEnabled
        enableParallelRecoveryRead readReorderThresholdPendingRequests stickyReadSEnabled
        firstSpeculativeReadTimeout bookieHealthCheckEnabled bookieHealthCheckIntervalSeconds
        bookieErrorThresholdPerInterval bookieQuarantineRatio bookieConnectionErrorQuarantineEnabled
        networkTopologyStabilizePeriodSeconds networkTopologyScriptFileName networkTopologyScriptNumberArgs
        useHostnameResolveLocalNodePlacementPolicy bookieAddressResolverEnabled enableBookieAddressTracking
        enableBookieFailureTracking bookieFailureHistoryExpirationMSec ignoreLocalNodeInPlacementPolicy
        minNumZonesPerWriteQuorum desiredNumZonesPerWriteQuorum enforceStrictZoneawarePlacement zkRequestRateLimit
        zkRetryBackoffStartMs zkRetryBackoffMaxMs zkRetryBackoffMaxRetries
        """,
    TLS_ENGINE: "tlsProvider",
}

IGNORED: dict[str, str] = {name: reason for reason, names in _IGNORED_BY_REASON.items() for name in names.split()}
"""Key name -> why it has no effect."""

IGNORED_PREFIXES: dict[str, str] = {
    "dbStorage_": ROCKSDB,
    "codahaleStats": STATISTICS,
    "prometheusStats": STATISTICS,
    "dlog.": "belongs to the stream storage service, which is not part of this project",
    "storage.": "belongs to the stream storage service, which is not part of this project",
    "storageserver.": "belongs to the stream storage service, which is not part of this project",
}
"""Families of upstream keys that are ignored whole."""


_OFF = ("false", "no", "off")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key that would promise what this release does not do."""

    harmless: frozenset[str]
    """Values (lower case) that promise nothing; "" and "null" always are."""
    why: str


def _refusal(why: str, *harmless: str) -> Refusal:
    return Refusal(frozenset({"", "null", *(value.lower() for value in harmless)}), why)


REFUSED: dict[str, Refusal] = {
    "ledgerStorageClass": _refusal(
        "only interleaved and sorted storage are understood; a directory of another storage would look empty and its "
        "acknowledged entries missing",
        "org.apache.bookkeeper.bookie.SortedLedgerStorage",
        "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    ),
    "authorizedRoles": _refusal("authorisation is not in this release; the bookie would be open to all"),
    "permittedStartupUsers": _refusal("users are not checked; run the bookie under the right one by other means"),
    "httpServerTlsEnable": _refusal(
        "there is no TLS for the HTTP server in this release; it would answer in clear text", "false"
    ),
    "disableServerSocketBind": _refusal("a bookie here always listens", "false"),
    "journalFormatVersionToWrite": _refusal(
        "new files always have format 6, without which explicit LACs would be lost; all formats are read", "6"
    ),
    "fileInfoFormatVersionToWrite": _refusal(
        "new files always have format 1, without which explicit LACs would be lost; both formats are read", "1"
    ),
    "skipReplayJournalInvalidRecord": _refusal(
        "a corrupt record is never skipped; it may hide acknowledged entries", "false"
    ),
    "enforceMinNumFaultDomainsForWrite": _refusal(
        "an add is acknowledged by its ack quorum wherever those bookies stand; "
        "enforceMinNumRacksPerWriteQuorum is heeded, when bookies are chosen",
        *_OFF,
    ),
}
"""Key name -> which values are harmless and why the others are refused, in every configuration."""

_NO_MOVING = "ledgers whose bookies stand in too few racks are counted by the auditor, and not moved"
_NO_CHECK = "nothing is looked through before the bookie serves; the scrub does it while it runs (localScrubInterval)"

SWITCHES: dict[str, Refusal] = {
    "repairedPlacementPolicyNotAdheringBookieEnabled": _refusal(_NO_MOVING, *_OFF),
    "dataIntegrityChecking": _refusal("a bookie does not fetch what it lacks from the others", *_OFF),
    "dataIntegrityStampMissingCookies": _refusal("a directory that lost its cookie is never stamped again", *_OFF),
    "localConsistencyCheckOnStartup": _refusal(_NO_CHECK, *_OFF),
    "persistBookieStatusEnabled": _refusal("a bookie that was read-only decides anew when it starts", *_OFF),
    "extraServerComponents": _refusal("names Java classes, which would not run"),
}
"""Key name -> which values leave the absent function off, and why the others are refused where a bookie is to run."""


def ignored_reason(name: str) -> str | None:
    """Return why a key has no effect, or None if it is not one of these."""
    reason = IGNORED.get(name)
    if reason is None:
        reason = next((why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None)
    return reason
