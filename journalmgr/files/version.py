"""The files VERSION and seen_txid of a name node's directory. Pure.

    namespaceID=1234567           i32
    clusterID=CID-...
    blockpoolID=BP-...
    cTime=0                       milliseconds
    storageType=NAME_NODE
    layoutVersion=-63             of the directory; each edits file says its own

Source: Hadoop's NNStorage and StorageInfo, which read and write them as Java properties.
"""

from __future__ import annotations

from bookkeeper.config.properties import parse_properties
from journalmgr.errors import JournalError, SegmentUnreadable
from journalmgr.model import NamespaceInfo

SIZE_MAX = 64 * 1024
STORAGE_TYPE = "NAME_NODE"

_SPECIAL = str.maketrans({character: "\\" + character for character in "\\=:#!"})


def encode_version(namespace: NamespaceInfo) -> bytes:
    """The content of VERSION."""
    values = {
        "namespaceID": str(namespace.namespace_id),
        "clusterID": namespace.cluster_id,
        "blockpoolID": namespace.block_pool_id,
        "cTime": str(namespace.ctime),
        "storageType": STORAGE_TYPE,
        "layoutVersion": str(namespace.layout_version),
    }
    return "".join(f"{name}={_escaped(value)}\n" for name, value in values.items()).encode("ascii")


def decode_version(data: bytes, source: str) -> NamespaceInfo:
    """The namespace that a VERSION names. Raises JournalError: a VERSION that cannot be read is not an absent one."""
    found, bad = parse_properties(data.decode("latin-1"))
    if bad:
        raise JournalError(f"{source}, line {bad[0].line}: {bad[0].why}")
    # Java escapes what is beyond the basic plane as two surrogates.
    values = {line.name: line.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for line in found}
    storage_type = values.get("storageType", STORAGE_TYPE)
    if storage_type != STORAGE_TYPE:
        raise JournalError(f"{source} says storageType={storage_type}: this is no directory of a metadata server")
    return NamespaceInfo(
        namespace_id=_number(values, "namespaceID", source),
        cluster_id=values.get("clusterID", ""),
        block_pool_id=values.get("blockpoolID", ""),
        ctime=_number(values, "cTime", source),
        layout_version=_number(values, "layoutVersion", source),
    )


def encode_seen_txid(txid: int) -> bytes:
    """The content of seen_txid."""
    return b"%d\n" % txid


def decode_seen_txid(data: bytes, source: str) -> int:
    """The txid. Raises SegmentUnreadable."""
    try:
        return int(data)
    except ValueError as error:
        raise SegmentUnreadable(f"{source} holds {data[:40]!r} instead of a txid") from error


def _number(values: dict[str, str], name: str, source: str) -> int:
    try:
        return int(values[name])
    except KeyError:
        raise JournalError(f"{source} has no {name}") from None
    except ValueError as error:
        raise JournalError(f"{source}: {name}={values[name]!r} is no number") from error


def _escaped(value: str) -> str:
    escaped = value.translate(_SPECIAL).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return "".join(character if " " <= character <= "~" else _unicode(character) for character in escaped)


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
