"""Names and payloads of a journal's znodes, as Hadoop 2's BookKeeper journal manager writes them. Pure.

    ROOT/version                        VersionProto             what the journal is bound to
    ROOT/maxtxid                        MaxTxIdProto             the greatest txid seen
    ROOT/CurrentInprogress              null, or CurrentInprogressProto: which segment is being written, and where
    ROOT/ledgers/inprogress_HEX         EditLogLedgerProto       a segment without its end
    ROOT/ledgers/edits_FIRST_LAST       EditLogLedgerProto       a finalised one; both txids decimal, 18 digits at least

Payloads are protobuf text, as protobuf-java prints it. Written in this form since Hadoop 2.0.3; older payloads are
fields with `;` or `,` between them, which are read here and never written. Hadoop 2.7 itself does not read those.

Source: journalmgr/FORMATS.md 2.1 to 2.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.textproto import parse_text, print_text
from journalmgr.errors import SegmentUnreadable
from journalmgr.model import UNKNOWN_LAYOUT, NamespaceInfo, Segment, TxId
from journalmgr.proto import bkjournal_pb2 as pb

M = TypeVar("M", bound=Message)

FORMAT_VERSION = -1
"""The only version of the znodes' format."""

PLACEHOLDER = b"0"
"""Data of the journal's root and of the list of segments."""

INPROGRESS_PREFIX = "inprogress_"
FINALISED_PREFIX = "edits_"

_TXID_SIZE_MAX = 40
"""Most bytes of a txid that is stored as bare digits."""

_UINT32 = 1 << 32
_INT32_MAX = (1 << 31) - 1


# --- names ----------------------------------------------------------------------------------------------------------


def inprogress_name(first_txid: int) -> str:
    """Child of ROOT/ledgers for a segment in progress."""
    return f"{INPROGRESS_PREFIX}{first_txid:x}"


def finalised_name(first_txid: int, last_txid: int) -> str:
    """Child of ROOT/ledgers for a finalised segment."""
    return f"{finalised_prefix(first_txid)}{last_txid:018d}"


def finalised_prefix(first_txid: int) -> str:
    """What the name of a finalised segment that begins at this txid begins with, wherever it ends."""
    return f"{FINALISED_PREFIX}{first_txid:018d}_"


_FINALISED_NAME = re.compile(r"edits_(\d{18,19})_(\d{18,19})", re.ASCII)
_INPROGRESS_NAME = re.compile(r"inprogress_([0-9a-f]{1,16})", re.ASCII)


def segment_named(name: str) -> Segment | None:
    """Return a segment from the name of its znode, without layout and ledger; None if it is no segment's name."""
    if (found := _FINALISED_NAME.fullmatch(name)) is not None:
        return Segment(TxId(int(found[1])), TxId(int(found[2])), UNKNOWN_LAYOUT, None, name)
    if (found := _INPROGRESS_NAME.fullmatch(name)) is not None:
        return Segment(TxId(int(found[1], 16)), None, UNKNOWN_LAYOUT, None, name)
    return None


_LEDGER_ID = re.compile(r"[0-9]{1,19}")


def is_ledger_id(text: str) -> bool:
    """Return whether a part of a znode's name is the decimal id of a ledger."""
    return _LEDGER_ID.fullmatch(text) is not None


# --- segments -------------------------------------------------------------------------------------------------------


def print_segment(segment: Segment) -> bytes:
    """The payload of a segment's znode."""
    message = pb.EditLogLedgerProto(
        dataLayoutVersion=segment.layout_version, ledgerId=segment.ledger_id, firstTxId=segment.first_txid
    )
    if segment.last_txid is not None:
        message.lastTxId = segment.last_txid
    return print_text(message)


def parse_segment(data: bytes, path: str) -> Segment:
    """A segment's record; in progress if it names no last txid. Raises SegmentUnreadable naming `path`.

    The segment's name is the last part of `path`.
    """
    name = path.rpartition("/")[2]
    if b";" in data and b":" not in data:
        return _parse_legacy_segment(data, path, name)
    message = _parse(data, pb.EditLogLedgerProto(), path)
    last_txid = TxId(message.lastTxId) if message.HasField("lastTxId") else None
    return Segment(TxId(message.firstTxId), last_txid, message.dataLayoutVersion, message.ledgerId, name)


def _parse_legacy_segment(data: bytes, path: str, name: str) -> Segment:
    fields = _numbers(data, ";", path)
    if len(fields) not in (3, 4):
        raise SegmentUnreadable(
            f"{path}: invalid ledger entry, {data!r}: an old record of a segment has three or four fields"
        )
    layout_version, ledger_id, first_txid = fields[:3]
    return Segment(TxId(first_txid), TxId(fields[3]) if len(fields) == 4 else None, layout_version, ledger_id, name)


# --- version and namespace ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """Payload of ROOT/version. namespace: None in a journal that is older than Hadoop 2.0.3."""

    format_version: int
    namespace: NamespaceInfo | None


def print_version(namespace: NamespaceInfo) -> bytes:
    """The payload of ROOT/version."""
    storage = pb.StorageInfoProto(
        layoutVersion=namespace.layout_version % _UINT32,
        namespceID=namespace.namespace_id % _UINT32,
        clusterID=namespace.cluster_id,
        cTime=namespace.ctime,
    )
    info = pb.NamespaceInfoProto(
        buildVersion=namespace.build_version,
        unused=0,
        blockPoolID=namespace.block_pool_id,
        storageInfo=storage,
        softwareVersion=namespace.software_version,
    )
    if namespace.capabilities is not None:
        info.capabilities = namespace.capabilities
    return print_text(pb.VersionProto(layoutVersion=FORMAT_VERSION, namespaceInfo=info))


def parse_version(data: bytes, path: str) -> VersionRecord:
    """What the journal is bound to. Raises SegmentUnreadable naming `path`."""
    if data.strip() == b"%d" % FORMAT_VERSION:
        return VersionRecord(FORMAT_VERSION, None)
    message = _parse(data, pb.VersionProto(), path)
    if message.layoutVersion != FORMAT_VERSION:
        raise SegmentUnreadable(
            f"{path}: the journal's own format has version {message.layoutVersion}; known is {FORMAT_VERSION}: use the "
            "release that wrote it"
        )
    if not message.HasField("namespaceInfo"):
        return VersionRecord(FORMAT_VERSION, None)
    info, storage = message.namespaceInfo, message.namespaceInfo.storageInfo
    return VersionRecord(
        FORMAT_VERSION,
        NamespaceInfo(
            namespace_id=_signed(storage.namespceID),
            cluster_id=storage.clusterID,
            block_pool_id=info.blockPoolID,
            ctime=storage.cTime,
            layout_version=_signed(storage.layoutVersion),
            build_version=info.buildVersion,
            software_version=info.softwareVersion,
            capabilities=info.capabilities if info.HasField("capabilities") else None,
        ),
    )


def _signed(value: int) -> int:
    return value if value <= _INT32_MAX else value - _UINT32


# --- the greatest txid, and who writes ------------------------------------------------------------------------------


def print_max_txid(txid: int) -> bytes:
    """The payload of ROOT/maxtxid."""
    return print_text(pb.MaxTxIdProto(txId=txid))


def parse_max_txid(data: bytes, path: str) -> TxId:
    """The greatest txid seen. Raises SegmentUnreadable naming `path`."""
    if data.strip().isdigit() and len(data) <= _TXID_SIZE_MAX:
        return TxId(int(data))
    return TxId(_parse(data, pb.MaxTxIdProto(), path).txId)


@dataclass(frozen=True, slots=True)
class CurrentSegment:
    """Payload of ROOT/CurrentInprogress. path: the znode of the segment being written. hostname: "name/address"."""

    path: str
    hostname: str


def print_current(current: CurrentSegment) -> bytes:
    """The payload of ROOT/CurrentInprogress while something is written."""
    message = pb.CurrentInprogressProto(path=current.path)
    if current.hostname:
        message.hostname = current.hostname
    return print_text(message)


def parse_current(data: bytes, path: str) -> CurrentSegment | None:
    """Which segment is being written; None for a pointer that was cleared. Raises SegmentUnreadable naming `path`."""
    if not data:
        return None
    if data.startswith(b"-1,") and b":" not in data.partition(b"/")[0]:
        fields = data.decode("utf-8", "replace").split(",", 2)
        if len(fields) == 3:
            return CurrentSegment(fields[2].strip(), fields[1])
    message = _parse(data, pb.CurrentInprogressProto(), path)
    return CurrentSegment(message.path, message.hostname)


# --- text -----------------------------------------------------------------------------------------------------------


def _parse(data: bytes, message: M, path: str) -> M:
    if not data:
        raise SegmentUnreadable(
            f"Invalid/Incomplete data in znode {path}: it is empty, and a {message.DESCRIPTOR.name} was expected; "
            "restore its data, or move the znode away if it is known to be of no use"
        )
    try:
        return parse_text(data, message, path)
    except MetadataCorrupt as error:
        raise SegmentUnreadable(
            f"Invalid/Incomplete data in znode {error}; it holds {data[:80]!r}: restore its data, or move the znode "
            "away if it is known to be of no use"
        ) from error


def _numbers(data: bytes, separator: str, path: str) -> list[int]:
    try:
        return [int(field) for field in data.decode("ascii").strip().split(separator)]
    except ValueError as error:
        raise SegmentUnreadable(f"{path}: invalid ledger entry, {data!r}: {error}") from error
