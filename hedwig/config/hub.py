"""The settings of a hub. Names and defaults are those of Apache's hubs (4.2, 4.3), except where a row says why not.

Apache's hub hands its file on to its ledger client, and so does this one: the table is the ledger client's with the
hub's keys added, and those that mean something else to a hub taken out or named as there.

Source: hedwig/PROTOCOL.md 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bookkeeper.client.read.entries import payload_size_max
from bookkeeper.config.client import ClientSettings
from bookkeeper.config.http import HTTP, allowed_hosts_key, ledger_content_key, token_file_key
from bookkeeper.config.keys import (
    DAY_S,
    GIB,
    INT32_MAX,
    KIB,
    MIB,
    boolean,
    integer,
    key,
    keys_of,
    seconds,
    secret_bytes,
    text,
    text_or_none,
)
from bookkeeper.config.shared import SwitchedOff, check_root, check_servers, check_uri
from bookkeeper.model import DigestType
from bookkeeper.system.hosts import check_no_number
from hedwig.config.kinds import (
    RETENTION,
    check_host,
    hub_addresses,
    name_prefixes,
    or_default,
    or_none,
    region_name,
    retention_numbers,
    tls_versions,
)
from hedwig.model import HubAddress
from hedwig.wire.framing import FRAME_ALLOWANCE

ADDRESS = "Address"
CLIENTS = "Connections of clients"
TLS = "TLS for clients"
METADATA = "Metadata"
REGIONS = "Other regions"
LEDGERS = "Ledgers of topics"
DELIVERY = "Delivery and subscriptions"
MEMORY = "Memory and reading"
STOPPING = "Stopping"
GROUPS = (METADATA, ADDRESS, CLIENTS, TLS, REGIONS, LEDGERS, DELIVERY, MEMORY, HTTP, STOPPING)
"""In the order of the shipped file; the ledger client's come behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig(ClientSettings):
    """A hub's settings, those of its ledger client included. Sizes in bytes, durations in seconds.

    The first fields are of ClientSettings: known by another name to hubs, or fixed for the ledgers of topics.
    """

    # --- metadata
    metadata_service_uri: str = key(
        "metadataServiceUri",
        text("URI", check_uri),
        "",
        METADATA,
        "Where the metadata of the ledgers is, zk+hierarchical://host:2181;host:2181/ledgers; the hubs' own is in the "
        "same ZooKeeper. Set, it counts instead of zk_host and zkLedgersRootPath.",
        ours=True,
    )
    zk_servers: str = key(
        "zk_host",
        text("host:port, comma-separated", check_servers),
        "localhost:2181",
        METADATA,
        "ZooKeeper servers.",
    )
    zk_ledgers_root_path: str = key(
        "zkLedgersRootPath",
        text("path", check_root),
        "/ledgers",
        METADATA,
        "Root of the ledgers' metadata.",
    )
    zk_session_timeout_s: float = key(
        "zk_timeout",
        seconds("ms", 500, DAY_S * 1000),
        "2000",
        METADATA,
        "ZooKeeper session timeout: how long after a hub's death its topics wait for another one.",
    )
    zk_prefix: str = key(
        "zk_prefix", text("path", check_root), "/hedwig", METADATA, "Above all that hubs keep in ZooKeeper."
    )
    region: str = key(
        "region",
        region_name(),
        "standalone",
        METADATA,
        "Name of this region: the part of the path behind zk_prefix, and where a message was published. Hubs of one "
        "region share its topics.",
    )
    digest_type: DigestType = field(default=DigestType.CRC32)
    metadata_format_version: int = field(default=2)

    # --- address
    server_port: int = key(
        "server_port", integer("TCP port", 0, 65535), "4080", ADDRESS, "Port for clients; 0: any free one."
    )
    listening_interface: str | None = key(
        "listeningInterface",
        text_or_none("interface or address", check_no_number),
        "",
        ADDRESS,
        "Network interface, or its address, to listen on. Not set: all of them.",
        ours=True,
    )
    advertised_address: str | None = key(
        "advertisedAddress",
        text_or_none("host", check_host),
        "",
        ADDRESS,
        "Host that clients and other hubs connect to. Not set: the address of the listening interface, or of this "
        "host's name; on a host without IPv4 the name itself.",
        ours=True,
    )
    allow_loopback: bool = key(
        "allowLoopback",
        boolean(),
        "false",
        ADDRESS,
        "Allow 127.0.0.1 as the advertised address, which is of no use to clients elsewhere. Not needed where all "
        "ZooKeeper servers are on this machine too.",
        ours=True,
    )
    message_size_max: int = key(
        "max_message_size",
        integer("bytes", KIB, INT32_MAX),
        "1258291",
        ADDRESS,
        "Largest request, its four bytes of length included; a larger one ends the connection.",
    )

    # --- connections
    connections_max: int = key(
        "max_connections",
        integer("connections", 16, 1_000_000),
        "10000",
        CLIENTS,
        "Maximum number of open connections; fewer if `ulimit -n` is too low. At most half of them may be without "
        "a first request. At the maximum, a new connection replaces a silent one without a subscription or is "
        "refused.",
        ours=True,
    )
    connection_memory_max: int = key(
        "max_connection_memory_mb",
        integer("MiB", 16, 65536, scale=MIB),
        "256",
        CLIENTS,
        "Memory for incomplete requests of all connections, and the same amount for answers and deliveries that "
        "clients have not read. Beyond it, connections are closed.",
        ours=True,
    )
    first_request_timeout_s: float = key(
        "first_request_timeout_secs",
        seconds("s", 1, DAY_S),
        "60",
        CLIENTS,
        "Time after which a connection without a complete first request is closed.",
        ours=True,
    )
    idle_connection_timeout_s: float = key(
        "idle_connection_timeout_secs",
        seconds("s", 1, DAY_S * 365, off=("0",)),
        "3600",
        CLIENTS,
        "Time without a request after which a connection that holds no subscription and waits for no answer is closed "
        "(at most twice this time). Clients reconnect when they need to. 0: never.",
        ours=True,
    )

    # --- TLS for clients
    ssl_enabled: bool = key("ssl_enabled", boolean(), "false", TLS, "Listen on a second port too, with TLS.")
    ssl_server_port: int = key(
        "ssl_server_port", integer("TCP port", 0, 65535), "9876", TLS, "Port for clients with TLS; 0: any free one."
    )
    cert_path: str = key(
        "cert_path",
        text("PKCS12 or PEM file"),
        "",
        TLS,
        "Certificate that clients are shown, those of intermediate authorities, and the private key: a PKCS12 file, or "
        "a PEM file. Once it is changed, connections made later are shown the new one.",
    )
    cert_key_path: str = key(
        "cert_key_path",
        text("PEM file"),
        "",
        TLS,
        "Private key, where cert_path is a PEM file without it.",
        ours=True,
    )
    cert_password: bytes = key(
        "password", secret_bytes("text"), "", TLS, "Password of cert_path, or of cert_key_path.", secret=True
    )
    cert_name: str = key(
        "cert_name",
        text("name"),
        "",
        TLS,
        "Without effect: a resource on the class path of a Java program. Name the file in cert_path.",
    )
    ssl_versions: tuple[str, ...] = key(
        "ssl_versions",
        tls_versions(),
        "TLSv1.2",
        TLS,
        "Versions of TLS that are spoken. Clients of Apache Hedwig on Java 11 and later fail with TLSv1.3; where there "
        "are none, TLSv1.2,TLSv1.3 is fine.",
        ours=True,
    )

    # --- other regions
    regions: tuple[HubAddress, ...] = key(
        "regions",
        hub_addresses(),
        "",
        REGIONS,
        "A hub of each other region, or what stands before its hubs. What is published there to topics that have "
        "subscribers here is stored and delivered here too. Every region needs a name of its own, and to list all "
        "others; one whose records are deleted needs a new name.",
    )
    region_retry_max_s: float = key(
        "retry_remote_subscribe_thread_run_interval",
        seconds("ms", 1, DAY_S * 1000),
        "120000",
        REGIONS,
        "A region that cannot be reached is tried again after a second, then after twice that, and so on up to this.",
        differs="it is tried again only this often there; 0 and less: never.",
    )
    region_tls: bool = key(
        "inter_region_ssl_enabled", boolean(), "false", REGIONS, "Talk TLS to other regions, at the second port."
    )
    region_trust_path: str = key(
        "inter_region_ssl_trust_path",
        text("PEM file"),
        "",
        REGIONS,
        "Certificates of the authorities that signed those of their hubs, or those themselves.",
        ours=True,
    )
    region_verify_hostname: bool = key(
        "inter_region_ssl_verify_hostname",
        boolean(),
        "true",
        REGIONS,
        "Their certificates must be for their addresses.",
        ours=True,
    )
    region_trust_all: bool = key(
        "inter_region_ssl_trust_all",
        boolean(),
        "false",
        REGIONS,
        "Take any certificate, as Apache's hubs do: whoever can stand between reads and changes everything.",
        ours=True,
    )

    # --- ledgers
    ensemble_size: int = key(
        "bk_ensemble_size", integer("bookies", 1, 255), "3", LEDGERS, "Bookies that share a ledger's messages."
    )
    write_quorum_size: int | None = key(
        "bk_write_quorum_size",
        or_none(integer("bookies", 1, 255)),
        "",
        LEDGERS,
        "Copies of each message. Not set: bk_quorum_size.",
    )
    ack_quorum_size: int | None = key(
        "bk_ack_quorum_size",
        or_none(integer("bookies", 1, 255)),
        "",
        LEDGERS,
        "Copies that must be durable before a publish is answered. Not set: that of bk_quorum_size.",
    )
    quorum_size: int = key(
        "bk_quorum_size", integer("bookies", 1, 255), "2", LEDGERS, "Both of them, where they are not set."
    )
    ledger_entries_max: int = key(
        "max_entries_per_ledger",
        integer("messages; 0 = no limit", 0, 2**62),
        "0",
        LEDGERS,
        "A topic goes on in a new ledger after so many messages. Only a whole ledger can be deleted, once all its "
        "messages are consumed.",
    )
    ledger_bytes_max: int = key(
        "max_bytes_per_ledger",
        integer("bytes; 0 = no limit", 0, 2**62),
        "268435456",
        LEDGERS,
        "And after so many bytes.",
        ours=True,
    )
    ledger_age_max_s: float = key(
        "max_ledger_age_secs",
        seconds("s", 1, 365 * 10 * DAY_S, off=("0",)),
        "86400",
        LEDGERS,
        "And with the first message after so long.",
        ours=True,
    )
    ledger_idle_max_s: float = key(
        "max_ledger_idle_secs",
        seconds("s", 1, 365 * 10 * DAY_S, off=("0",)),
        "600",
        LEDGERS,
        "And where nothing was published for so long: an open ledger takes memory, and whoever takes the topic over "
        "has to recover it. Looked at as often as messages_consumed_thread_run_interval says.",
        ours=True,
    )
    pending_bytes_max: int = key(
        "max_pending_bytes_per_topic",
        integer("bytes", MIB, 64 * GIB),
        "67108864",
        LEDGERS,
        "Messages of one topic that are not durable yet; beyond it publishes are refused.",
        ours=True,
    )
    password: bytes = key(
        "passwd",
        secret_bytes("text"),
        "sillysecret",
        LEDGERS,
        "Password of the ledgers of topics. All hubs need the same; Apache's know the default alone.",
        ours=True,
        secret=True,
    )
    publish_time: bool = key(
        "publish_time",
        boolean(),
        "true",
        LEDGERS,
        "Each message gets the header property hw.time, when it was published, in milliseconds since 1970, UTC; never "
        "before the message before it. Takes some 30 bytes.",
        ours=True,
    )
    publish_time_except: tuple[bytes, ...] = key(
        "publish_time_except",
        name_prefixes(),
        "",
        LEDGERS,
        "Messages of topics whose names begin like this do not. Their age is the time since the next ledger was made.",
        ours=True,
    )
    trim_period_s: float = key(
        "messages_consumed_thread_run_interval",
        seconds("ms", 100, DAY_S * 1000),
        "60000",
        LEDGERS,
        "How often it is looked for ledgers whose messages are all consumed.",
    )

    keep_ms: int = key(
        "keep_ms",
        integer("ms; 0 = not", 0, 2**62),
        "0",
        LEDGERS,
        "Messages that all have consumed are kept for so long, to be replayed; and as keep_bytes says, where both are "
        "set. They go with their ledger, which max_bytes_per_ledger, max_entries_per_ledger and max_ledger_age_secs "
        "end; the newest one stays. A ledger is as old as its newest message; where that has no time, as the next "
        "ledger.",
        ours=True,
    )
    keep_bytes: int = key(
        "keep_bytes",
        integer("bytes; 0 = not", 0, 2**62),
        "0",
        LEDGERS,
        "And so much of each topic.",
        ours=True,
    )
    keep_unsubscribed_ms: int = key(
        "keep_unsubscribed_ms",
        integer("ms; 0 = not", 0, 2**62),
        "604800000",
        LEDGERS,
        "Messages of a topic without any subscription are kept for this time, and deleted with their ledger as keep_ms "
        "says. The first subscription, also a temporary one, ends this: messages before its start are deleted, as in "
        "any other topic. A ledger is old enough only if it is so by the clocks of both the hub and ZooKeeper. Disk "
        "space: what is published to such topics in this time, times bk_write_quorum_size. Bookies with full disks "
        "become read-only, and publishes are refused until space is free. To free space, lower this value or set "
        "limit_bytes, here or for some topics in retention_by_topic, and restart the hubs. Or, for one topic: hedwig "
        "sub TOPIC -s NAME -e, and after messages_consumed_thread_run_interval hedwig unsubscribe TOPIC NAME.",
        differs="there they are deleted as soon as their ledger is ended, as with 0 here.",
        ours=True,
    )
    limit_ms: int = key(
        "limit_ms",
        integer("ms; 0 = no limit", 0, 2**62),
        "0",
        LEDGERS,
        "Messages go after so long, consumed or not: subscribers that are behind lose them. A ledger goes "
        "when its newest message is so old; never the newest one.",
        ours=True,
    )
    limit_bytes: int = key(
        "limit_bytes",
        integer("bytes; 0 = no limit", 0, 2**62),
        "0",
        LEDGERS,
        "The oldest ledgers of a topic that has more go, consumed or not; but never the newest one.",
        ours=True,
    )
    retention_by_topic: tuple[tuple[bytes, tuple[tuple[str, int], ...]], ...] = key(
        "retention_by_topic",
        retention_numbers(),
        "",
        LEDGERS,
        "Values of these five keys by the beginning of topics' names; if several beginnings match, only the longest "
        'counts: {"audit.": {"keep_ms": 604800000}, "ticks.": {"limit_bytes": 1073741824}}.',
        ours=True,
    )

    # --- delivery
    window_size: int = key(
        "default_message_window_size",
        integer("messages; 0 = no limit", 0, INT32_MAX),
        "0",
        DELIVERY,
        "Messages that a subscriber is given and has not consumed, where its subscription does not say.",
    )
    consume_interval: int = key(
        "consume_interval",
        integer("messages", 0, INT32_MAX),
        "50",
        DELIVERY,
        "How far a subscriber consumed is stored whenever it is so much further; in any case when its topic is "
        "released. After a hub's death up to so many messages come again.",
    )

    # --- memory and reading
    cache_size: int = key(
        "cache_size",
        or_default(integer("bytes", 0, 1024 * GIB), 256 * MIB),
        "268435456",
        MEMORY,
        "The newest messages of all topics that are kept in memory.",
        differs="the smaller of 2 GiB and half of Java's heap there.",
    )
    readahead_count: int = key(
        "readahead_count",
        integer("messages", 1, 100_000),
        "100",
        MEMORY,
        "Messages that are read from the bookies at once for a subscriber who is behind.",
        differs="10 there.",
    )
    readahead_size: int = key(
        "readahead_size",
        integer("bytes", 1, GIB),
        "4194304",
        MEMORY,
        "And about so many bytes of them.",
    )
    retry_delay_s: float = key(
        "scan_backoff_ms",
        seconds("ms", 1, DAY_S * 1000),
        "1000",
        MEMORY,
        "A read that failed is tried again after this.",
    )

    # --- HTTP
    http_server_enabled: bool = key(
        "httpServerEnabled",
        boolean(),
        "false",
        HTTP,
        "Answer operators over HTTP: /heartbeat, /metrics, /release, ledgers below /api/v1 (GET / lists the paths).",
        ours=True,
    )
    http_server_host: str = key(
        "httpServerHost",
        text("address", check_no_number),
        "127.0.0.1",
        HTTP,
        "Address the HTTP server listens on.",
        ours=True,
    )
    http_server_port: int = key(
        "httpServerPort",
        integer("TCP port", 0, 65535),
        "8080",
        HTTP,
        "Port of the HTTP server; 0: any free one.",
        ours=True,
    )
    http_server_token_file: str = token_file_key()
    http_server_allowed_hosts: tuple[str, ...] = allowed_hosts_key()
    http_server_ledger_content: bool = ledger_content_key()

    # --- stopping
    shutdown_timeout_s: float = key(
        "shutdown_timeout_secs",
        seconds("s", 1, DAY_S),
        "30",
        STOPPING,
        "Time to release all topics after SIGTERM. What is not released by then is taken over as after a crash.",
        ours=True,
    )

    @property
    def write_quorum(self) -> int:
        """Copies of each message."""
        return self.quorum_size if self.write_quorum_size is None else self.write_quorum_size

    @property
    def ack_quorum(self) -> int:
        """Copies before a publish is answered."""
        return self.quorum_size if self.ack_quorum_size is None else self.ack_quorum_size

    def switched_off(self) -> Iterator[SwitchedOff]:
        """Yield the features that are off; see SharedSettings."""
        yield from ClientSettings.switched_off(self)
        if not self.ssl_enabled:
            names = tuple(key.name for key in keys_of(HubConfig).values() if key.group == TLS)
            yield names, "the hub has no port with TLS; for one, set ssl_enabled=true"
        if not self.region_tls:
            names = "inter_region_ssl_trust_path", "inter_region_ssl_verify_hostname", "inter_region_ssl_trust_all"
            yield names, "the hub does not use TLS to other regions; to use it, set inter_region_ssl_enabled=true"

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what is wrong between keys, each of which is right by itself."""
        yield from ClientSettings.faults(self)
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum:
            yield (
                ("bk_ensemble_size", "bk_write_quorum_size", "bk_ack_quorum_size", "bk_quorum_size"),
                f"bk_ensemble_size {self.ensemble_size}, bk_write_quorum_size {self.write_quorum}, bk_ack_quorum_size "
                f"{self.ack_quorum}: need bk_ensemble_size >= bk_write_quorum_size >= bk_ack_quorum_size",
            )
        if self.connection_memory_max < self.message_size_max:
            yield (
                ("max_connection_memory_mb", "max_message_size"),
                f"max_connection_memory_mb={self.connection_memory_max // MIB} has no room for one request of "
                f"max_message_size={self.message_size_max}; raise it",
            )
        # One allowance is for dead letters, which may be longer than a publish, one for what is added to store them.
        storable = payload_size_max(self.frame_size_max) - 2 * FRAME_ALLOWANCE
        if self.message_size_max > storable:
            yield (
                ("max_message_size", "nettyMaxFrameSizeBytes"),
                f"max_message_size {self.message_size_max} is above {storable}, the largest that can be stored with "
                f"nettyMaxFrameSizeBytes {self.frame_size_max}; lower it, or raise nettyMaxFrameSizeBytes here and at "
                "the bookies",
            )
        yield from self._retention_faults((), "", {name: getattr(self, name) for name in RETENTION})
        for beginning, _ in self.retention_by_topic:
            where = f"retention_by_topic, {beginning.decode()!r}: "
            yield from self._retention_faults(("retention_by_topic",), where, self.retention_of(beginning))
        ports = [("server_port", self.server_port)]
        if self.region_tls and self.regions:
            yield from self._region_faults()
        if self.ssl_enabled:
            yield from self._tls_faults()
            ports.append(("ssl_server_port", self.ssl_server_port))
        if self.http_server_enabled:
            ports.append(("httpServerPort", self.http_server_port))
        for position, (name, port) in enumerate(ports):
            for other, taken in ports[:position]:
                if port == taken != 0:
                    yield (name, other), f"{other} and {name} are both {port}"

    def times(self, topic: bytes) -> bool:
        """Whether hubs give messages of a topic their times."""
        return self.publish_time and not topic.startswith(self.publish_time_except)

    def retention_of(self, topic: bytes) -> dict[str, int]:
        """Return the retention settings of a topic, by name."""
        found: dict[str, int] = {name: getattr(self, name) for name in RETENTION}
        for beginning, given in sorted(self.retention_by_topic, key=lambda each: len(each[0])):
            if topic.startswith(beginning):
                found = {**{name: getattr(self, name) for name in RETENTION}, **dict(given)}
        return found

    def _retention_faults(
        self, keys: tuple[str, ...], where: str, found: Mapping[str, int]
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        for unit in ("ms", "bytes"):
            limit, keep = found[f"limit_{unit}"], found[f"keep_{unit}"]
            if 0 < limit < keep:
                yield (
                    keys or (f"limit_{unit}", f"keep_{unit}"),
                    f"{where}limit_{unit} {limit} is below keep_{unit} {keep}, which could not be kept",
                )

    def _region_faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for each in self.regions:
            if each.ssl_port is None:
                yield (
                    ("regions", "inter_region_ssl_enabled"),
                    f"inter_region_ssl_enabled=true, and regions names no TLS port for {each.host}: write "
                    f"{each.host}:{each.port}:SSLPORT",
                )
        if not self.region_trust_path and not self.region_trust_all:
            yield (
                ("inter_region_ssl_enabled", "inter_region_ssl_trust_path"),
                "inter_region_ssl_enabled=true needs to know whom to trust: set inter_region_ssl_trust_path (or "
                "inter_region_ssl_trust_all=true, which leaves it open whom the hub talks to)",
            )

    def _tls_faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if not self.cert_path and self.cert_name:
            yield (
                ("cert_name",),
                f"cert_name={self.cert_name} is a resource on the class path of a Java program: take it out of its jar "
                "and name the file in cert_path",
            )
        elif not self.cert_path:
            yield ("ssl_enabled", "cert_path"), "ssl_enabled=true needs a certificate: set cert_path"
