"""metadataServiceUri in all of Apache's forms. Pure. Source: bookkeeper/wire/FORMATS.md 4.3.

zk+hierarchical://h1:2181;h2:2181/ledgers     the layout is given; `;` separates the servers
zk://h1:2181/chroot/ledgers                   the layout is the cluster's own; a chroot is simply part of the root
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.system.hosts import check_no_number

DEFAULT_PORT = 2181
DEFAULT_ROOT = "/ledgers"

_LAYOUT_NAMES: dict[str, LayoutKind | None] = {
    "flat": LayoutKind.FLAT,
    "hierarchical": LayoutKind.HIERARCHICAL,
    "longhierarchical": LayoutKind.LONG_HIERARCHICAL,
    "null": None,
}
_NAME_OF_LAYOUT = {kind: name for name, kind in _LAYOUT_NAMES.items() if kind is not None}
_FORM = "zk[+flat|+hierarchical|+longhierarchical|+null]://host:port[;host:port...]/root"
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:;,/\[\]]+)(?::(?P<port>\d{1,5}))?", re.ASCII)
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class MetadataUri:
    """Where the metadata of a cluster is.

    servers: host:port each, at least one. root: absolute, without a slash at the end. kind: None: the stored layout.
    """

    servers: tuple[str, ...]
    root: str = DEFAULT_ROOT
    kind: LayoutKind | None = None

    def __str__(self) -> str:
        scheme = "zk" if self.kind is None else f"zk+{_NAME_OF_LAYOUT.get(self.kind, 'null')}"
        return f"{scheme}://{';'.join(self.servers)}{self.root}"

    @property
    def connect_string(self) -> str:
        """The servers as ZooKeeper clients take them."""
        return ",".join(self.servers)


def parse_uri(text: str) -> MetadataUri:
    """Read a metadataServiceUri. Raises ConfigurationError naming the fault and the form."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        raise _fault(text, "there is no '://'")
    store, _, layout_name = scheme.lower().partition("+")
    if store != "zk":
        raise _fault(text, f"metadata store {scheme!r} is not supported, only ZooKeeper ('zk') is")
    if layout_name not in _LAYOUT_NAMES and "+" in scheme:
        raise _fault(text, f"ledger layout {layout_name!r} is not one of {', '.join(_LAYOUT_NAMES)}")
    servers, slash, path = rest.partition("/")
    if "," in servers:
        raise _fault(text, "servers are separated by ';', not ','")
    return MetadataUri(
        tuple(_server(part, text) for part in servers.split(";")),
        _root(slash + path, text),
        _LAYOUT_NAMES.get(layout_name),
    )


def uri_from_servers(servers: str, root: str, kind: LayoutKind | None = None) -> MetadataUri:
    """What the older settings zkServers (comma-separated, with or without a chroot) and zkLedgersRootPath mean."""
    hosts, slash, chroot = servers.partition("/")
    prefix = slash + chroot.rstrip("/") if chroot else ""
    parsed = parse_uri(f"zk://{hosts.replace(',', ';')}{prefix}{root}")
    return MetadataUri(parsed.servers, parsed.root, kind)


def _server(part: str, text: str) -> str:
    found = _SERVER.fullmatch(part.strip())
    if found is None:
        raise _fault(text, f"{part!r} is not host:port")
    port = int(found["port"] or DEFAULT_PORT)
    if not 0 < port <= _PORT_MAX:
        raise _fault(text, f"port {port} of {part!r} is not in 1..{_PORT_MAX}")
    try:
        return f"{check_no_number(found['host'])}:{port}"
    except ValueError as error:
        raise _fault(text, str(error)) from None


def _root(path: str, text: str) -> str:
    if path in ("", "/"):
        raise _fault(text, f"the ledgers root is missing, usually {DEFAULT_ROOT}")
    root = path.rstrip("/")
    if any(name in ("", ".", "..") for name in root.split("/")[1:]):
        raise _fault(text, f"the ledgers root {path!r} is not a ZooKeeper path")
    if any(ord(character) < 0x20 or character in "?#" for character in root):
        raise _fault(text, f"the ledgers root {path!r} holds a character that it must not")
    return root


def _fault(text: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"metadataServiceUri {text!r}: {why}; the form is {_FORM}")
