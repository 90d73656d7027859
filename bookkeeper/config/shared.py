"""Settings that bookies and clients have in common: where the metadata is, and the frame limit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bookkeeper.config.keys import DAY_S, INT32_MAX, KIB, boolean, integer, key, seconds, text, text_or_none
from bookkeeper.system.hosts import check_no_number

METADATA = "Metadata service"
CONNECTIONS = "Connections"

LAYOUTS = ("hierarchical", "longhierarchical", "flat", "null", "ms")
ZOOKEEPER_PORT = 2181

# zk+hierarchical://h1:2181;h2:2181/ledgers ; the layout is optional, the port too, a server may be [::1]:2181.
_URI = re.compile(r"(?i:zk)(?:\+([A-Za-z]+))?://([^/]*)(/.*)?")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")

SwitchedOff = tuple[tuple[str, ...], str]
"""Keys without effect while a feature is off, and a text that names the feature and how to turn it on."""

Fault = tuple[tuple[str, ...], str]
"""The keys a fault is about, and what is wrong with them together."""


def check_servers(servers: str) -> str:
    """Return host:port pairs separated by commas as they are, if each is one."""
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or not 0 < int(found[2] or ZOOKEEPER_PORT) < 65536:
            raise ValueError(f"{server.strip()!r} is not host:port")
        check_no_number(found[1])
    return servers


def check_root(path: str) -> str:
    """Return an absolute znode path without a slash at its end."""
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        raise ValueError("not an absolute path such as /ledgers")
    return path


def check_uri(uri: str) -> str:
    """Return a metadata service URI if its form is one Apache accepts (bookkeeper/wire/FORMATS.md 4.3)."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise ValueError("not of the form zk+hierarchical://host:2181;host:2181/ledgers")
    layout, servers, root = found.groups()
    if layout is not None and layout.lower() not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r} (want one of {', '.join(LAYOUTS)})")
    if "," in servers:
        raise ValueError("separate the servers of a URI by ';' (commas belong to zkServers)")
    check_servers(servers.replace(";", ","))
    if root is None:
        raise ValueError("the ledgers root is missing, as in .../ledgers")
    check_root(root)
    return uri


def check_digest_auth(value: str) -> str:
    """Return user:password if both parts are there."""
    user, _, password = value.partition(":")
    if not user or not password:
        raise ValueError("not of the form user:password")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """What ServerSettings and ClientSettings both have."""

    metadata_service_uri: str = key(
        "metadataServiceUri",
        text("URI", check_uri),
        "",
        METADATA,
        "Where the metadata is: zk+<layout>://<servers separated by ;>/<ledgers root>. Not set: made of zkServers and "
        "zkLedgersRootPath, with the layout that is stored there.",
    )
    zk_servers: str = key(
        "zkServers",
        text("host:port, comma-separated", check_servers),
        "localhost:2181",
        METADATA,
        "ZooKeeper servers; used only where metadataServiceUri is not set.",
    )
    zk_ledgers_root_path: str = key(
        "zkLedgersRootPath",
        text("path", check_root),
        "/ledgers",
        METADATA,
        "Root of all metadata; used only where metadataServiceUri is not set.",
    )
    zk_session_timeout_s: float = key(
        "zkTimeout",
        seconds("ms", 500, DAY_S * 1000),
        "10000",
        METADATA,
        "ZooKeeper session timeout: how long after a bookie's death its registration stays.",
    )
    zk_enable_security: bool = key(
        "zkEnableSecurity",
        boolean(),
        "false",
        METADATA,
        "Give what is created in ZooKeeper to its creator alone (otherwise anyone may change it). Needs zkDigestAuth.",
    )
    zk_digest_auth: str | None = key(
        "zkDigestAuth",
        text_or_none("user:password", check_digest_auth),
        "",
        METADATA,
        "Identity shown to ZooKeeper (scheme digest).",
        ours=True,
        secret=True,
    )
    zk_request_size_max: int = key(
        "zkMaxRequestSizeBytes",
        integer("bytes", 256 * KIB, INT32_MAX),
        "1044480",
        METADATA,
        "Largest request to ZooKeeper. A larger request, such as a record that has grown too much, is refused before "
        "it is sent. At most the ZooKeeper servers' jute.maxbuffer less 4095.",
        ours=True,
    )
    frame_size_max: int = key(
        "nettyMaxFrameSizeBytes",
        integer("bytes", KIB, INT32_MAX),
        "5242880",
        CONNECTIONS,
        "Largest frame sent or accepted; a longer one is refused before it is buffered, and the connection closed.",
    )

    def __post_init__(self) -> None:
        """Resolve the metadata service URI, so that every user of the settings sees one form."""
        if not self.metadata_service_uri:
            servers = ";".join(server.strip() for server in self.zk_servers.split(","))
            object.__setattr__(self, "metadata_service_uri", f"zk+null://{servers}{self.zk_ledgers_root_path}")

    def switched_off(self) -> Iterator[SwitchedOff]:
        """Yield the features that are off, with the keys that have no effect without them."""
        yield from ()

    def faults(self) -> Iterator[Fault]:
        """Yield what is wrong between keys, each of which is right by itself."""
        yield from self.shared_faults()

    def shared_faults(self) -> Iterator[Fault]:
        """Those between keys of this table."""
        if self.zk_enable_security and self.zk_digest_auth is None:
            yield (
                ("zkEnableSecurity", "zkDigestAuth"),
                "zkEnableSecurity=true needs an identity to give the nodes to: set zkDigestAuth=user:password",
            )
