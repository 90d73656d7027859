"""The settings of a ledger client. Names and defaults are Apache's (4.18), except where a row says why not."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import (
    DAY_S,
    GIB,
    INT32_MAX,
    KIB,
    Kind,
    boolean,
    choice,
    integer,
    key,
    ratio,
    seconds,
    secret_bytes,
    text,
)
from bookkeeper.config.security import (
    AUTHENTICATION,
    PASSWORD_FILE,
    TLS,
    SecuritySettings,
    check_provider,
    store_fault,
    text_or_null,
)
from bookkeeper.config.shared import CONNECTIONS, Fault, SwitchedOff
from bookkeeper.model import DigestType

WRITING = "Writing"
READING = "Reading"
ENSEMBLES = "Choice of bookies"

METADATA_VERSION_NEWEST = 3


class Placement(enum.Enum):
    """How the bookies of a new ledger are chosen."""

    RANDOM = "random"
    RACK_AWARE = "rack-aware"


_PLACEMENTS = {
    "random": Placement.RANDOM,
    "rack-aware": Placement.RACK_AWARE,
    "org.apache.bookkeeper.client.defaultensembleplacementpolicy": Placement.RANDOM,
    "org.apache.bookkeeper.client.rackawareensembleplacementpolicy": Placement.RACK_AWARE,
}
_DIGESTS = {digest.name.lower(): digest for digest in DigestType}


def _metadata_version() -> Kind[int]:
    def parse(text: str) -> int:
        if text == "-1":
            return METADATA_VERSION_NEWEST
        if text not in {"1", "2", "3"}:
            raise ValueError("unknown version (want 1, 2, 3, or -1 for the newest)")
        return int(text)

    return Kind("1, 2, 3; -1 = newest", parse)


def _seconds_or_read_timeout() -> Kind[float]:
    limited = seconds("s", 0.001, DAY_S)

    def parse(text: str) -> float:
        return limited.parse(text) if text else 0.0

    return Kind(limited.unit, parse)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """A ledger client's settings. Sizes in bytes, durations in seconds; `load_client` reads and checks them.

    Resolved at construction: request timeouts that are not set follow `read_timeout_base_s`, the longest speculative
    delay is at least the first one. Built directly they are not checked: call `faults`.
    """

    # --- connections
    use_v2: bool = key(
        "useV2WireProtocol",
        boolean(),
        "true",
        CONNECTIONS,
        "Adds and reads in the compact binary protocol; what only v3 has goes over a second connection at first need.",
        differs="false there; v2 costs half of v3 and loses nothing here, because both connections are kept.",
    )
    connect_timeout_s: float = key(
        "clientConnectTimeoutMillis", seconds("ms", 1, DAY_S * 1000), "10000", CONNECTIONS, "Time to connect."
    )
    read_timeout_base_s: float = key(
        "readTimeout",
        seconds("s", 0.001, DAY_S),
        "5",
        CONNECTIONS,
        "Timeout of one request to one bookie where addEntryTimeoutSec or readEntryTimeoutSec is not set.",
    )
    info_timeout_s: float = key(
        "getBookieInfoTimeoutSecs", seconds("s", 0.001, DAY_S), "5", CONNECTIONS, "Timeout of a request for free space."
    )
    tcp_no_delay: bool = key(
        "clientTcpNoDelay", boolean(), "true", CONNECTIONS, "Send small packets at once (Nagle's algorithm off)."
    )
    tcp_keepalive: bool = key(
        "clientSockKeepalive", boolean(), "true", CONNECTIONS, "Let the system probe idle connections."
    )
    connection_bytes_max: int = key(
        "connectionBytesMax",
        integer("bytes", 64 * KIB, 64 * GIB),
        "33554432",
        CONNECTIONS,
        "Unanswered adds and expected reads of one connection; beyond it requests wait.",
        ours=True,
    )
    connection_entries_max: int = key(
        "connectionEntriesMax",
        integer("entries", 1, 1_000_000),
        "5000",
        CONNECTIONS,
        "Unanswered adds of one connection; beyond it requests wait. A genuine bookie refuses adds when more than "
        "10000 of all its clients wait (maxPendingAddRequestsPerThread), and the writer then replaces it.",
        ours=True,
    )
    idle_connection_s: float = key(
        "connectionIdleMillis",
        seconds("ms", 1000, DAY_S * 1000),
        "300000",
        CONNECTIONS,
        "A connection without requests for this long is closed.",
        ours=True,
    )
    reconnect_delay_min_s: float = key(
        "reconnectDelayMinMillis",
        seconds("ms", 1, DAY_S * 1000),
        "100",
        CONNECTIONS,
        "First delay before a lost connection is tried again; it doubles each time.",
        ours=True,
    )
    reconnect_delay_max_s: float = key(
        "reconnectDelayMaxMillis",
        seconds("ms", 1, DAY_S * 1000),
        "10000",
        CONNECTIONS,
        "Longest delay before a lost connection is tried again.",
        ours=True,
    )

    # --- writing
    digest_type: DigestType = key(
        "digestType",
        choice(_DIGESTS, "CRC32, MAC, CRC32C, DUMMY"),
        "CRC32C",
        WRITING,
        "Checksum of new ledgers.",
        differs="CRC32 there; CRC32C is computed by the processor and finds more errors.",
    )
    password: bytes = key(
        "passwd", secret_bytes("text"), "", WRITING, "Password of ledgers, where a command names none.", secret=True
    )
    metadata_format_version: int = key(
        "ledgerMetadataVersion",
        _metadata_version(),
        "-1",
        WRITING,
        "Format of the metadata of new ledgers. Clients before 4.9 need 2.",
    )
    store_creation_time: bool = key(
        "storeSystemTimeAsLedgerCreationTime", boolean(), "false", WRITING, "Note the creation time in the metadata."
    )
    window_entries_max: int = key(
        "windowEntriesMax",
        integer("entries", 1, 1_000_000),
        "5000",
        WRITING,
        "Entries of one ledger on their way; beyond it an append waits.",
        ours=True,
    )
    window_bytes_max: int = key(
        "windowBytesMax",
        integer("bytes", 64 * KIB, 64 * GIB),
        "67108864",
        WRITING,
        "Bytes of one ledger on their way; beyond it an append waits.",
        ours=True,
    )
    add_timeout_s: float = key(
        "addEntryTimeoutSec",
        _seconds_or_read_timeout(),
        "",
        WRITING,
        "Timeout of an add to one bookie; else readTimeout.",
    )
    add_quorum_timeout_s: float = key(
        "addEntryQuorumTimeoutSec",
        seconds("s", 0.001, DAY_S, off=("-1", "0")),
        "-1",
        WRITING,
        "Time in which an entry must reach its ack quorum, whatever ensemble changes it takes.",
    )
    explicit_lac_interval_s: float = key(
        "explicitLacInterval",
        seconds("ms", 1, DAY_S * 1000, off=("0",)),
        "1000",
        WRITING,
        "A writer that pauses sends the bookies its last add confirmed within this time, so that readers see the last "
        "entries. If N ledgers (or topics of a hub) pause together while others are written, it takes up to N/800 s.",
        differs="0 (off) there, which hides the newest entry from readers until the next add.",
    )

    # --- reading
    read_timeout_s: float = key(
        "readEntryTimeoutSec",
        _seconds_or_read_timeout(),
        "",
        READING,
        "Timeout of a read from one bookie; else readTimeout.",
    )
    speculative_read_delay_s: float = key(
        "speculativeReadTimeout",
        seconds("ms", 1, DAY_S * 1000, off=("0",)),
        "2000",
        READING,
        "A read unanswered for this long is sent to the next replica too.",
    )
    speculative_read_delay_max_s: float = key(
        "maxSpeculativeReadTimeout",
        seconds("ms", 1, DAY_S * 1000, off=("", "0")),
        "",
        READING,
        "Longest delay between two speculative reads of an entry. Not set: speculativeReadTimeout.",
    )
    speculative_read_backoff: float = key(
        "speculativeReadTimeoutBackoffMultiplier",
        ratio(1.0, 100.0),
        "2.0",
        READING,
        "Each further speculative read of an entry waits longer by this factor.",
    )
    speculative_lac_delay_s: float = key(
        "firstSpeculativeReadLACTimeout",
        seconds("ms", 1, DAY_S * 1000, off=("0",)),
        "1500",
        READING,
        "A wait for the next entry that one bookie has not answered for this long goes to the next one too.",
    )
    speculative_lac_delay_max_s: float = key(
        "maxSpeculativeReadLACTimeout",
        seconds("ms", 1, DAY_S * 1000),
        "5000",
        READING,
        "Longest delay between two of them.",
    )
    speculative_lac_backoff: float = key(
        "speculativeReadLACTimeoutBackoffMultiplier",
        ratio(1.0, 100.0),
        "2.0",
        READING,
        "Each further one waits longer by this factor.",
    )
    reorder_read_sequence: bool = key(
        "reorderReadSequenceEnabled",
        boolean(),
        "false",
        READING,
        "Ask the nearest copy first, of those that are well: on this machine, in its rack, in its region "
        "(networkTopology). Otherwise all bookies share the work.",
        differs="its rack-aware policy orders by health alone, which is always done here.",
    )
    batch_read: bool = key(
        "batchReadEnabled",
        boolean(),
        "true",
        READING,
        "Ranges of ledgers whose every entry is on all bookies (E = Qw) are read many entries at a time (v2, 4.17+).",
    )
    recovery_read_batch: int = key(
        "recoveryReadBatchSize",
        integer("entries", 1, 100_000),
        "64",
        READING,
        "Entries a recovery reads at once.",
        differs="1 there: one round trip for each entry of the tail.",
    )
    enable_digest_autodetection: bool = key(
        "enableDigestTypeAutodetection",
        boolean(),
        "true",
        READING,
        "Trust the digest type in the metadata; false: opening a ledger with another digest type fails.",
    )
    read_ahead_entries_max: int = key(
        "readAheadEntriesMax",
        integer("entries", 1, 1_000_000),
        "1000",
        READING,
        "Entries an iterator reads ahead of its user.",
        ours=True,
    )
    read_ahead_bytes_max: int = key(
        "readAheadBytesMax",
        integer("bytes", 64 * KIB, 64 * GIB),
        "8388608",
        READING,
        "Bytes an iterator reads ahead of its user.",
        ours=True,
    )
    tail_poll_min_s: float = key(
        "tailPollMinMillis",
        seconds("ms", 1, DAY_S * 1000),
        "10",
        READING,
        "A tailing reader asks for new entries again after this; the delay doubles while there are none.",
        ours=True,
    )
    tail_poll_max_s: float = key(
        "tailPollMaxMillis",
        seconds("ms", 1, DAY_S * 1000),
        "1000",
        READING,
        "Longest delay of a tailing reader.",
        ours=True,
    )

    # --- choice of bookies
    placement: Placement = key(
        "ensemblePlacementPolicy",
        choice(
            _PLACEMENTS,
            "rack-aware, random, or Apache's class names RackawareEnsemblePlacementPolicy, "
            "DefaultEnsemblePlacementPolicy in org.apache.bookkeeper.client",
        ),
        "rack-aware",
        ENSEMBLES,
        "How the bookies of a ledger are chosen. Without known racks, rack-aware chooses at random.",
    )
    network_topology_file: str = key(
        "networkTopologyFile",
        text("file"),
        "",
        ENSEMBLES,
        "Racks of bookies, and of machines that read: lines of a host or bookie id and its rack, such as /region/rack.",
        ours=True,
    )
    network_topology: str = key(
        "networkTopology",
        text("host rack, host rack"),
        "",
        ENSEMBLES,
        "The same without a file, with commas between lines: for tasks of Spark, which run where there may be none.",
        ours=True,
    )
    racks_per_write_quorum_min: int = key(
        "minNumRacksPerWriteQuorum", integer("racks", 1, 1000), "2", ENSEMBLES, "Racks a write quorum should span."
    )
    enforce_racks_per_write_quorum: bool = key(
        "enforceMinNumRacksPerWriteQuorum",
        boolean(),
        "false",
        ENSEMBLES,
        "Fail to create a ledger rather than span fewer racks.",
    )
    disk_weights: bool = key(
        "diskWeightBasedPlacementEnabled",
        boolean(),
        "false",
        ENSEMBLES,
        "Ask the bookies for their free disk space, and choose those with more of it more often.",
    )
    info_interval_s: float = key(
        "getBookieInfoIntervalSeconds",
        seconds("s", 1, 365 * DAY_S),
        "86400",
        ENSEMBLES,
        "With diskWeightBasedPlacementEnabled: each bookie is asked this often; a newly registered one at once.",
    )
    info_retry_interval_s: float = key(
        "getBookieInfoRetryIntervalSeconds",
        seconds("s", 1, DAY_S),
        "60",
        ENSEMBLES,
        "A bookie that did not tell its free disk space is asked again after this.",
    )
    disk_weight_multiple_max: int = key(
        "bookieMaxMultipleForWeightBasedPlacement",
        integer("times the median; below 1 without limit", -1, INT32_MAX),
        "3",
        ENSEMBLES,
        "Free disk space counts up to this many times the median of the bookies to choose from.",
    )
    opportunistic_striping: bool = key(
        "opportunisticStriping",
        boolean(),
        "false",
        ENSEMBLES,
        "Where fewer bookies are writable than the ensemble of a new ledger asks for, take those there are, if they "
        "make a write quorum.",
    )
    quarantine_s: float = key(
        "bookieQuarantineTimeSeconds",
        seconds("s", 0, DAY_S),
        "30",
        ENSEMBLES,
        "A bookie that failed is chosen for new ledgers only if there is no other, for this long.",
        differs="1800 there; a restarted bookie is back within a second and need not stay idle for half an hour.",
    )
    delay_ensemble_change: bool = key(
        "delayEnsembleChange",
        boolean(),
        "false",
        ENSEMBLES,
        "Replace a bookie that failed only when entries cannot reach their ack quorum without it, or it is read-only. "
        "Until then they have fewer copies.",
    )
    ensemble_changes_max: int = key(
        "maxNumEnsembleChanges",
        integer("changes", 0, INT32_MAX),
        "2147483647",
        ENSEMBLES,
        "Ensemble changes of one write handle; beyond it the ledger is closed.",
    )

    # --- encryption and authentication
    client_key_store_type: str = key(
        "clientKeyStoreType", text("PEM"), "", TLS, "Type of clientKeyStore. Not set: tlsKeyStoreType."
    )
    client_key_store: str = key(
        "clientKeyStore",
        text_or_null("PEM file"),
        "",
        TLS,
        "Private key of tlsCertificatePath, where tlsClientAuthentication=true. Not set: tlsKeyStore.",
    )
    client_key_store_password_file: str = key(
        "clientKeyStorePasswordPath",
        text_or_null("file"),
        "",
        TLS,
        "File with the password of clientKeyStore. Not set: tlsKeyStorePasswordPath.",
    )
    client_trust_store_type: str = key(
        "clientTrustStoreType", text("PEM"), "", TLS, "Type of clientTrustStore. Not set: tlsTrustStoreType."
    )
    client_trust_store: str = key(
        "clientTrustStore",
        text_or_null("PEM file"),
        "",
        TLS,
        "Authorities that the certificates of bookies are checked against. Not set: tlsTrustStore.",
    )
    client_trust_store_password_file: str = key(
        "clientTrustStorePasswordPath",
        text_or_null("file"),
        "",
        TLS,
        "Without effect: certificates are not encrypted in PEM.",
    )
    tls_hostname_verification: bool = key(
        "tlsHostnameVerificationEnabled",
        boolean(),
        "true",
        TLS,
        "The certificate of a bookie must be for the host or address it is registered with.",
        differs="false there, with which any certificate of the authority passes for any bookie.",
    )
    auth_provider: str = key(
        "clientAuthProviderFactoryClass",
        text_or_null("password-file, or package.module:factory", check_provider),
        "",
        AUTHENTICATION,
        "Who shows credentials to bookies. Not set: none are shown.",
        differs="a Java class there.",
    )
    auth_password_file: str = key(
        "clientPasswordFile",
        text_or_null("file"),
        "",
        AUTHENTICATION,
        "One line user:password, for the provider password-file.",
        ours=True,
    )

    def __post_init__(self) -> None:
        """Fill in what follows from other keys."""
        SecuritySettings.__post_init__(self)
        if not self.add_timeout_s:
            object.__setattr__(self, "add_timeout_s", self.read_timeout_base_s)
        if not self.read_timeout_s:
            object.__setattr__(self, "read_timeout_s", self.read_timeout_base_s)
        if not self.speculative_read_delay_max_s:
            object.__setattr__(self, "speculative_read_delay_max_s", self.speculative_read_delay_s)

    def switched_off(self) -> Iterator[SwitchedOff]:
        """Yield the features that are off; see SharedSettings."""
        yield from SecuritySettings.switched_off(self)
        if not self.auth_provider:
            yield (
                ("clientPasswordFile",),
                f"no password is sent; to send it, set clientAuthProviderFactoryClass={PASSWORD_FILE}",
            )

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong between keys, each of which is right by itself."""
        yield from self.shared_faults()
        yield from self._security_faults()
        if self.network_topology and self.network_topology_file:
            yield (
                ("networkTopology", "networkTopologyFile"),
                "networkTopology and networkTopologyFile say the same thing in two ways: give one of them",
            )
        for low_name, low, high_name, high in (
            (
                "reconnectDelayMinMillis",
                self.reconnect_delay_min_s,
                "reconnectDelayMaxMillis",
                self.reconnect_delay_max_s,
            ),
            ("tailPollMinMillis", self.tail_poll_min_s, "tailPollMaxMillis", self.tail_poll_max_s),
            (
                "speculativeReadTimeout",
                self.speculative_read_delay_s,
                "maxSpeculativeReadTimeout",
                self.speculative_read_delay_max_s,
            ),
            (
                "firstSpeculativeReadLACTimeout",
                self.speculative_lac_delay_s,
                "maxSpeculativeReadLACTimeout",
                self.speculative_lac_delay_max_s,
            ),
        ):
            if low > high:
                yield (low_name, high_name), f"{low_name} is above {high_name}"
        for name, room in (
            ("connectionBytesMax", self.connection_bytes_max),
            ("windowBytesMax", self.window_bytes_max),
            ("readAheadBytesMax", self.read_ahead_bytes_max),
        ):
            if self.frame_size_max > room:
                yield (
                    (name, "nettyMaxFrameSizeBytes"),
                    f"{name} ({room} bytes) cannot hold a frame of nettyMaxFrameSizeBytes={self.frame_size_max}",
                )

    def _security_faults(self) -> Iterator[Fault]:
        if self.tls_enabled:
            trust = self.client_trust_store or self.tls_trust_store
            yield from store_fault(
                ("clientTrustStoreType", self.client_trust_store_type), ("tlsTrustStoreType", self.tls_trust_store_type)
            )
            if not trust:
                yield (
                    ("clientTrustStore", "tlsTrustStore", "tlsProviderFactoryClass"),
                    "neither clientTrustStore nor tlsTrustStore is set, but TLS is on: name the PEM file with the "
                    "authorities of the bookies' certificates",
                )
        if self.tls_enabled and self.tls_client_authentication:
            yield from store_fault(
                ("clientKeyStoreType", self.client_key_store_type), ("tlsKeyStoreType", self.tls_key_store_type)
            )
            for names, value in (
                (("clientKeyStore", "tlsKeyStore"), self.client_key_store or self.tls_key_store),
                (("tlsCertificatePath",), self.tls_certificate),
            ):
                if not value:
                    yield (
                        (*names, "tlsClientAuthentication"),
                        "tlsClientAuthentication=true needs a certificate and its private key: set "
                        + " or ".join(names),
                    )
        yield from self.provider_faults(
            "clientAuthProviderFactoryClass", self.auth_provider, "clientPasswordFile", self.auth_password_file
        )
