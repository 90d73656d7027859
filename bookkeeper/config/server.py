"""The settings of a bookie. Names and defaults are Apache's (4.18), except where a row says why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.config.http import HTTP, allowed_hosts_key, ledger_content_key, token_file_key
from bookkeeper.config.keys import (
    DAY_S,
    GIB,
    INT32_MAX,
    KIB,
    MIB,
    boolean,
    directories,
    integer,
    key,
    ratio,
    repeated,
    seconds,
    text,
    text_or_none,
)
from bookkeeper.config.scrubbing import ScrubbingSettings
from bookkeeper.config.security import AUTHENTICATION, PASSWORD_FILE, TLS, check_provider, store_fault, text_or_null
from bookkeeper.config.shared import CONNECTIONS, Fault, SwitchedOff
from bookkeeper.system.hosts import check_no_number

ADDRESS = "Address and identity"
JOURNAL = "Journal"
STORAGE = "Ledger storage"
DISKS = "Disk space and read-only mode"

READS_IN_PROGRESS_MAX = 10_000
INDEX_CACHE_PAGES_MIN = 64
JOURNAL_COPIES_MIN = 2  # the group being written and the next one must both hold the largest frame

# Upstream's class is [a-zA-Z0-9:-_.\-]+, in which `:-_` is a range; the id must not collide with the readonly node.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def _check_bookie_id(value: str) -> str:
    if _BOOKIE_ID.fullmatch(value) is None:
        raise ValueError("has characters a bookie id must not have (letters, digits, '.', '-', '_', ':' are fine)")
    if value.lower() == "readonly":
        raise ValueError("is the name of the read-only registration node")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ScrubbingSettings):
    """A bookie's settings. Sizes in bytes, durations in seconds; `load_server` reads and checks them.

    Built directly (tests, simulation) they are not checked: call `faults`. Resolved at construction:
    `index_directories` are the ledger directories if none were named, `index_cache_bytes_max` follows a positive
    pageLimit, and the free-space minima follow the entry log size.
    """

    # --- address and identity
    bookie_id: str | None = key(
        "bookieId",
        text_or_none("id", _check_bookie_id),
        "",
        ADDRESS,
        "Id in ledger metadata. Not set: host:port. Must never change while the bookie holds data.",
    )
    bookie_port: int = key(
        "bookiePort", integer("TCP port", 0, 65535), "3181", ADDRESS, "Port to listen on; 0 needs allowEphemeralPorts."
    )
    allow_ephemeral_ports: bool = key(
        "allowEphemeralPorts", boolean(), "false", ADDRESS, "Allow bookiePort=0: the system chooses a port (tests)."
    )
    listening_interface: str | None = key(
        "listeningInterface",
        text_or_none("interface or address", check_no_number),
        "",
        ADDRESS,
        "Network interface, or its address, to listen on. Not set: all of them.",
    )
    advertised_address: str | None = key(
        "advertisedAddress",
        text_or_none("host", check_no_number),
        "",
        ADDRESS,
        "Host that clients connect to. Not set: the address of the listening interface, or of this host's name "
        "(IPv4 first). If set, no name is looked up.",
    )
    allow_loopback: bool = key(
        "allowLoopback",
        boolean(),
        "false",
        ADDRESS,
        "Allow 127.0.0.1 as the advertised address. On several machines this makes bookies unreachable and alike.",
    )
    use_host_name_as_bookie_id: bool = key(
        "useHostNameAsBookieID", boolean(), "false", ADDRESS, "Advertise this host's full name instead of its address."
    )
    use_short_host_name: bool = key(
        "useShortHostName", boolean(), "false", ADDRESS, "With useHostNameAsBookieID: cut the name at its first dot."
    )

    # --- connections
    tcp_no_delay: bool = key(
        "serverTcpNoDelay", boolean(), "true", CONNECTIONS, "Send small packets at once (Nagle's algorithm off)."
    )
    tcp_keepalive: bool = key(
        "serverSockKeepalive", boolean(), "true", CONNECTIONS, "Let the system probe idle connections."
    )
    connections_max: int = key(
        "maxConnections",
        integer("connections", 16, 1_000_000),
        "10000",
        CONNECTIONS,
        "Maximum number of open connections; fewer if `ulimit -n` is too low. At most half of them may be without "
        "a first request. At the maximum, a new connection replaces a silent one or is refused.",
        ours=True,
    )
    connection_memory_max: int = key(
        "maxConnectionMemoryMb",
        integer("MiB", 16, 65536, scale=MIB),
        "256",
        CONNECTIONS,
        "Memory for incomplete requests of all connections, and the same amount for replies that clients have not "
        "read. Beyond it, connections are closed.",
        ours=True,
    )
    first_request_timeout_s: float = key(
        "firstRequestTimeoutSecs",
        seconds("s", 1, DAY_S),
        "60",
        CONNECTIONS,
        "Time after which a connection without a complete first request is closed.",
        ours=True,
    )
    idle_connection_timeout_s: float = key(
        "idleConnectionTimeoutSecs",
        seconds("s", 1, DAY_S * 365, off=("0",)),
        "1800",
        CONNECTIONS,
        "Time without a request after which a connection that waits for no reply is closed (at most twice this time). "
        "Clients reconnect when they need to. 0: never.",
        ours=True,
    )
    unsent_reply_bytes_low: int = key(
        "serverWriteBufferLowWaterMark",
        integer("bytes", 0, GIB),
        "393216",
        CONNECTIONS,
        "A connection whose requests were held back is read again when its unsent replies fall below this.",
    )
    unsent_reply_bytes_max: int = key(
        "serverWriteBufferHighWaterMark",
        integer("bytes", KIB, GIB),
        "524288",
        CONNECTIONS,
        "No more requests are read from a connection that has this many bytes of unsent replies.",
    )
    reads_in_progress_max: int = key(
        "maxReadsInProgressLimit",
        integer("requests", 0, INT32_MAX),
        "0",
        CONNECTIONS,
        f"Entries being read from the disk at once; more are answered 'too many requests'. 0: {READS_IN_PROGRESS_MAX}.",
        differs="0 there means no limit; here every queue has one.",
    )
    batch_read_bytes_max: int = key(
        "maxBatchReadSize",
        integer("bytes", 0, INT32_MAX),
        "5242880",
        CONNECTIONS,
        "Largest answer to a batch read, its frame included; a larger first entry comes alone. A frame at most.",
    )

    # --- HTTP
    http_server_enabled: bool = key(
        "httpServerEnabled",
        boolean(),
        "false",
        HTTP,
        "Answer operators over HTTP: /heartbeat, /metrics, and Apache's paths below /api/v1 (GET / lists them).",
    )
    http_server_host: str = key(
        "httpServerHost",
        text("address", check_no_number),
        "127.0.0.1",
        HTTP,
        "Address the HTTP server listens on.",
        differs="0.0.0.0 there.",
    )
    http_server_port: int = key(
        "httpServerPort", integer("TCP port", 0, 65535), "8080", HTTP, "Port of the HTTP server; 0: any free one."
    )
    http_server_token_file: str = token_file_key()
    http_server_allowed_hosts: tuple[str, ...] = allowed_hosts_key()
    http_server_ledger_content: bool = ledger_content_key()

    # --- journal
    journal_directories: tuple[Path, ...] = key(
        "journalDirectories",
        directories(may_be_empty=False),
        "/tmp/bk-txn",
        JOURNAL,
        "Where journals are written; one writer for each. A disk of its own is best. Takes precedence over "
        "journalDirectory.",
    )
    journal_file_size_max: int = key(
        "journalMaxSizeMB", integer("MiB", 1, 65536, scale=MIB), "2048", JOURNAL, "Size at which a new file is begun."
    )
    journal_backups_max: int = key(
        "journalMaxBackups", integer("files", 0, 10_000), "5", JOURNAL, "Files kept that are no longer needed."
    )
    journal_preallocate_bytes: int = key(
        "journalPreAllocSizeMB",
        integer("MiB", 1, 4096, scale=MIB),
        "16",
        JOURNAL,
        "Files grow in zero-filled steps of this size, so that a sync need not write the file's length.",
    )
    journal_alignment_bytes: int = key(
        "journalAlignmentSize",
        integer("bytes", 512, MIB, multiple_of=512),
        "512",
        JOURNAL,
        "Each group of records is padded to a multiple of this, so that a torn write cannot damage the group before.",
    )
    journal_queue_bytes_max: int = key(
        "journalMaxMemorySizeMb",
        integer("MiB", 1, 65536, scale=MIB),
        "64",
        JOURNAL,
        "Bytes that may wait for a sync, for each journal; beyond it connections are read no further.",
        differs="5 % of the Java runtime's direct memory there; here a fixed bound.",
    )
    journal_reuse_files: bool = key(
        "journalReuseFiles",
        boolean(),
        "false",
        JOURNAL,
        "Reuse old files instead of deleting them. A reused file is zeroed and synced before its first record.",
    )

    # --- ledger storage
    ledger_directories: tuple[Path, ...] = key(
        "ledgerDirectories", directories(may_be_empty=False), "/tmp/bk-data", STORAGE, "Where entry logs are written."
    )
    index_directories: tuple[Path, ...] = key(
        "indexDirectories",
        directories(may_be_empty=True),
        "",
        STORAGE,
        "Where index files are written. Not set: the ledger directories.",
    )
    private_files: bool = key(
        "privateFiles",
        boolean(),
        "true",
        STORAGE,
        "Create files and directories with access only for the bookie's user (0600, 0700). false: use the umask, as "
        "Apache's bookies do, for tools that read the files as another user. Existing files keep their modes.",
        ours=True,
    )
    allow_storage_expansion: bool = key(
        "allowStorageExpansion",
        boolean(),
        "false",
        STORAGE,
        "Accept ledger and index directories that the cookie does not know yet, if they are empty.",
    )
    entry_log_size_max: int = key(
        "logSizeLimit",
        integer("bytes", MIB, 2**31 - 1),
        "1073741824",
        STORAGE,
        "Size at which a new entry log is begun.",
    )
    flush_interval_s: float = key(
        "flushInterval",
        seconds("ms", 1, DAY_S * 1000),
        "10000",
        STORAGE,
        "Longest time between two checkpoints while there are new entries.",
    )
    memtable_bytes_max: int = key(
        "skipListSizeLimit",
        integer("bytes", 64 * KIB, 64 * GIB),
        "16777216",
        STORAGE,
        "Size of the sorted write buffer; one of these fills while another is written out.",
        differs="a quarter of 67108864, as it counts what Python objects cost and up to three are in memory.",
    )
    index_page_size: int = key(
        "pageSize",
        integer("bytes", 512, MIB, multiple_of=8),
        "8192",
        STORAGE,
        "What one page of pageLimit stands for.",
        differs="the size of index pages in memory and file there; here pages are of 8192 bytes in the file, and in "
        "memory as long as their entries need.",
    )
    page_limit: int = key(
        "pageLimit",
        integer("pages", -1, INT32_MAX),
        "-1",
        STORAGE,
        "Index pages held in memory; if positive it takes precedence over indexCacheBytesMax.",
        differs="-1 there means a third of the Java heap; here it means indexCacheBytesMax.",
    )
    index_cache_bytes_max: int = key(
        "indexCacheBytesMax",
        integer("bytes", 64 * KIB, 64 * GIB),
        "33554432",
        STORAGE,
        "Memory for index pages; dirty ones are written and clean ones dropped beyond it.",
        ours=True,
    )
    open_index_files_max: int = key(
        "openFileLimit",
        integer("files", 16, 1_000_000),
        "1000",
        STORAGE,
        "Index files held open. Must stay below the process limit (ulimit -n) with room for connections.",
        differs="20000 there, which is above the usual limit of a process.",
    )

    # --- disk space and read-only mode
    disk_usage_threshold: float = key(
        "diskUsageThreshold",
        ratio(0.01, 0.99),
        "0.95",
        DISKS,
        "A directory on a disk used beyond this is full, until usage is 0.01 below it. So is one with less than 64 MiB "
        "free, until 80 MiB are, whatever this says: room for journal, marks and fences.",
        differs="0 instead of 0.01 there: a bookie near the threshold turns read-only and back all the time. No such "
        "64 MiB.",
    )
    disk_usage_warn_threshold: float = key(
        "diskUsageWarnThreshold", ratio(0.01, 0.99), "0.90", DISKS, "Beyond this a warning is logged."
    )
    disk_usage_low_water: float = key(
        "diskUsageLwmThreshold",
        ratio(0.01, 0.99, empty=0.0),
        "",
        DISKS,
        "After all directories were full, usage must fall below this before writes are taken again. Not set: "
        "diskUsageThreshold.",
    )
    disk_check_interval_s: float = key(
        "diskCheckInterval", seconds("ms", 10, DAY_S * 1000), "10000", DISKS, "Time between two looks at disk usage."
    )
    read_only_mode_enabled: bool = key(
        "readOnlyModeEnabled", boolean(), "true", DISKS, "Go on serving reads when the disks are full; false: stop."
    )
    read_only_on_any_disk_full: bool = key(
        "readOnlyModeOnAnyDiskFullEnabled",
        boolean(),
        "true",
        DISKS,
        "One full ledger directory is enough for read-only.",
    )
    force_read_only: bool = key("forceReadOnlyBookie", boolean(), "false", DISKS, "Start read-only and stay so.")
    entry_log_free_bytes_min: int = key(
        "minUsableSizeForEntryLogCreation",
        integer("bytes", -1, 2**63 - 1),
        "-1",
        DISKS,
        "Free bytes a full ledger directory needs for a new entry log (replay, recovery). -1: 1.2 x logSizeLimit.",
    )
    high_priority_free_bytes_min: int = key(
        "minUsableSizeForHighPriorityWrites",
        integer("bytes", -1, 2**63 - 1),
        "-1",
        DISKS,
        "Free bytes a read-only bookie needs to take recovery adds. -1: minUsableSizeForEntryLogCreation.",
    )

    # --- encryption and authentication
    tls_required: bool = key(
        "tlsRequired",
        boolean(),
        "true",
        TLS,
        "Refuse requests that do not come over TLS, once it is on. false while clients are being moved to it.",
        ours=True,
        differs="a bookie there that offers TLS serves clear text as well.",
    )
    auth_provider: str = key(
        "bookieAuthProviderFactoryClass",
        text_or_null("password-file, or package.module:factory", check_provider),
        "",
        AUTHENTICATION,
        "Who checks the credentials of clients. Not set: clients need none.",
        differs="a Java class there.",
    )
    auth_password_file: str = key(
        "bookiePasswordFile",
        text_or_null("file"),
        "",
        AUTHENTICATION,
        "Users and their salted passwords, for the provider password-file. `bookkeeper auth line USER` makes a line. "
        "Read again when it changes.",
        ours=True,
    )

    def __post_init__(self) -> None:
        """Fill in what follows from other keys."""
        ScrubbingSettings.__post_init__(self)
        if not self.index_directories:
            object.__setattr__(self, "index_directories", self.ledger_directories)
        if not self.reads_in_progress_max:
            object.__setattr__(self, "reads_in_progress_max", READS_IN_PROGRESS_MAX)
        if self.page_limit > 0:
            object.__setattr__(self, "index_cache_bytes_max", self.page_limit * self.index_page_size)
        if not self.disk_usage_low_water:
            object.__setattr__(self, "disk_usage_low_water", self.disk_usage_threshold)
        if self.entry_log_free_bytes_min < 0:
            object.__setattr__(self, "entry_log_free_bytes_min", self.entry_log_size_max * 6 // 5)
        if self.high_priority_free_bytes_min < 0:
            object.__setattr__(self, "high_priority_free_bytes_min", self.entry_log_free_bytes_min)

    @property
    def directories(self) -> tuple[tuple[str, tuple[Path, ...]], ...]:
        """Pairs of a key that names directories, and its directories."""
        return (
            ("journalDirectories", self.journal_directories),
            ("ledgerDirectories", self.ledger_directories),
            ("indexDirectories", self.index_directories),
        )

    def switched_off(self) -> Iterator[SwitchedOff]:
        """Yield the features that are off; see SharedSettings."""
        yield from ScrubbingSettings.switched_off(self)
        if not self.auth_provider:
            yield (
                ("bookiePasswordFile",),
                f"clients need no password; to ask for one, set bookieAuthProviderFactoryClass={PASSWORD_FILE}",
            )

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong between keys, each of which is right by itself."""
        yield from self.shared_faults()
        if self.bookie_port == 0 and not self.allow_ephemeral_ports:
            yield ("bookiePort",), "bookiePort=0 lets the system choose a port: set allowEphemeralPorts=true or a port"
        if self.connection_memory_max < self.frame_size_max:
            yield (
                ("maxConnectionMemoryMb", "nettyMaxFrameSizeBytes"),
                f"maxConnectionMemoryMb={self.connection_memory_max // MIB} has no room for one request of "
                f"nettyMaxFrameSizeBytes={self.frame_size_max}; raise it",
            )
        if self.unsent_reply_bytes_low > self.unsent_reply_bytes_max:
            yield (
                ("serverWriteBufferLowWaterMark", "serverWriteBufferHighWaterMark"),
                "serverWriteBufferLowWaterMark is above serverWriteBufferHighWaterMark",
            )
        if self.http_server_enabled and self.http_server_port == self.bookie_port != 0:
            yield ("httpServerPort", "bookiePort"), f"httpServerPort and bookiePort are both {self.bookie_port}"
        yield from self._security_faults()
        yield from self._directory_faults()
        yield from self._size_faults()
        yield from self._threshold_faults()
        yield from self.collection_faults()

    def _security_faults(self) -> Iterator[Fault]:
        if self.tls_enabled:
            yield from store_fault(("tlsKeyStoreType", self.tls_key_store_type))
            wanted = [
                ("tlsKeyStore", self.tls_key_store, "the private key"),
                ("tlsCertificatePath", self.tls_certificate, "the certificate that clients are shown"),
            ]
            if self.tls_client_authentication:
                yield from store_fault(("tlsTrustStoreType", self.tls_trust_store_type))
                wanted.append(("tlsTrustStore", self.tls_trust_store, "the authorities of clients' certificates"))
            for name, value, meaning in wanted:
                if not value:
                    yield (
                        (name, "tlsProviderFactoryClass"),
                        f"{name} is not set, but TLS is on: name the PEM file with {meaning}",
                    )
        yield from self.provider_faults(
            "bookieAuthProviderFactoryClass", self.auth_provider, "bookiePasswordFile", self.auth_password_file
        )

    def _directory_faults(self) -> Iterator[Fault]:
        # A journal and a ledger directory may be the same (upstream's local bookies do so); two of a kind may not.
        for name, paths in self.directories:
            doubles = sorted(map(str, repeated(paths)))
            # Directories taken over from ledgerDirectories were reported there.
            if doubles and not (name == "indexDirectories" and paths == self.ledger_directories):
                yield (name,), f"{name} names {', '.join(doubles)} more than once"

    def _size_faults(self) -> Iterator[Fault]:
        if self.journal_preallocate_bytes > self.journal_file_size_max:
            yield (
                ("journalPreAllocSizeMB", "journalMaxSizeMB"),
                "journalPreAllocSizeMB is above journalMaxSizeMB: a file would be larger than its limit from the start",
            )
        # What can never fit must be refused here and not for ever at run time.
        for name, room in (
            ("skipListSizeLimit", self.memtable_bytes_max),
            ("logSizeLimit", self.entry_log_size_max),
        ):
            if self.frame_size_max > room:
                yield (
                    (name, "nettyMaxFrameSizeBytes"),
                    f"{name} ({room} bytes) cannot hold a frame of nettyMaxFrameSizeBytes={self.frame_size_max}",
                )
        if self.frame_size_max * JOURNAL_COPIES_MIN > self.journal_queue_bytes_max:
            yield (
                ("journalMaxMemorySizeMb", "nettyMaxFrameSizeBytes"),
                f"journalMaxMemorySizeMb must hold {JOURNAL_COPIES_MIN} frames of "
                f"nettyMaxFrameSizeBytes={self.frame_size_max}; it is {self.journal_queue_bytes_max} bytes",
            )
        if self.index_cache_bytes_max < INDEX_CACHE_PAGES_MIN * self.index_page_size:
            name = "pageLimit" if self.page_limit > 0 else "indexCacheBytesMax"
            yield (
                (name, "pageSize"),
                f"{name} must hold at least {INDEX_CACHE_PAGES_MIN} pages of pageSize={self.index_page_size} bytes",
            )

    def _threshold_faults(self) -> Iterator[Fault]:
        for name, value in (
            ("diskUsageWarnThreshold", self.disk_usage_warn_threshold),
            ("diskUsageLwmThreshold", self.disk_usage_low_water),
        ):
            if value > self.disk_usage_threshold:
                yield (
                    (name, "diskUsageThreshold"),
                    f"{name}={value:g} is above diskUsageThreshold={self.disk_usage_threshold:g}",
                )
