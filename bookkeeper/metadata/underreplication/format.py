"""Names and bytes of the under-replication tree. Pure. Source: bookkeeper/wire/FORMATS.md 4.8.

    U = <root>/underreplication
    U/LAYOUT                      type: "BASIC", version: 1
    U/ledgers/h/h/h/h/urL%010d    a mark: the ledger lacks copies. h: its id in four groups of 16 bits, %04x
    U/locks/urL%010d              ephemeral: somebody is at work on the ledger
    U/badcopies/urL%010d          not Apache's: see bad_copies_format
    U/workers/HOST-PID-START      not Apache's: ephemeral; see recovery_process_format
    U/disable                     its presence stops the auditor and all workers
    U/lostBookieRecoveryDelay     decimal seconds
    U/auditorelection             whom the last election chose
    U/auditorelection/V_%010d     ephemeral sequential: the candidates; the lowest is the auditor
    U/checkallledgersctime, U/placementpolicycheckctime, U/replicascheckctime   binary: when a check last ended

Everything else is protobuf text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from bookkeeper.errors import InvalidMetadata, LayoutMismatch, MetadataCorrupt
from bookkeeper.metadata.ledgers.paths import LEDGER_ID_MAX
from bookkeeper.metadata.textproto import parse_text, print_text
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.wire.proto import DataFormats_pb2 as pb

LAYOUT_TYPE = "BASIC"
LAYOUT_VERSION = 1
VOTE_PREFIX = "V_"
DIRECTORY_DEPTH = 4
"""Directories between U/ledgers and a mark."""

DELAY_S_MAX = 2**31 - 1
"""Apache reads the recovery delay as a 32-bit integer."""

_LEAF = re.compile(r"urL(\d{10,19})", re.ASCII)
_DIRECTORY = re.compile(r"[0-9a-f]{4}", re.ASCII)
_VOTE = re.compile(VOTE_PREFIX + r"(-?\d{1,10})", re.ASCII)
_SECONDS = re.compile(r"[+-]?\d{1,10}", re.ASCII)


class CheckKind(enum.Enum):
    """The auditor's periodic checks whose last end is noted. The values are node names."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class UnderreplicatedLedger:
    """A ledger that waits for its repair, as it was when it was read.

    missing: bookies that lack entries of it. marked_ms: when the newest of them was added, in milliseconds since 1970;
    None where that is not noted. version, creation_id: of the znode: what a removal names (I-76).
    """

    ledger_id: LedgerId
    missing: tuple[BookieId, ...]
    marked_ms: int | None
    version: int
    creation_id: int


# --- names ---------------------------------------------------------------------------------------------------------


def leaf_name(ledger_id: int) -> str:
    """`urL0000012345`. Raises InvalidMetadata for an id that no ledger can have."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise InvalidMetadata(f"ledger id {ledger_id} is outside 0..{LEDGER_ID_MAX}")
    return f"urL{ledger_id:010d}"


def mark_path(ledger_id: int) -> str:
    """Below U/ledgers: `/0000/0000/0000/3039/urL0000012345`."""
    name = leaf_name(ledger_id)
    digits = f"{ledger_id:016x}"
    return f"/{digits[:4]}/{digits[4:8]}/{digits[8:12]}/{digits[12:]}/{name}"


def ledger_of_leaf(name: str) -> LedgerId | None:
    """The ledger of a mark or a lock; None for a name that is neither."""
    match = _LEAF.fullmatch(name)
    if match is None or int(match[1]) > LEDGER_ID_MAX or leaf_name(int(match[1])) != name:
        return None
    return LedgerId(int(match[1]))


def ledger_of_directory(path: str) -> LedgerId | None:
    """The ledger whose mark goes into `/0000/0000/0000/3039`, below U/ledgers; None where no ledger's does."""
    ledger_id = int(path.replace("/", ""), 16)
    return LedgerId(ledger_id) if ledger_id <= LEDGER_ID_MAX else None


def is_mark_directory(name: str) -> bool:
    """Whether a name is that of a directory between U/ledgers and the marks."""
    return _DIRECTORY.fullmatch(name) is not None


def vote_number(name: str) -> int | None:
    """The sequence number of a vote; None for a name that is no vote's. Negative after 2**31 votes, as ZooKeeper's."""
    match = _VOTE.fullmatch(name)
    return None if match is None else int(match[1])


# --- bytes ---------------------------------------------------------------------------------------------------------


def format_layout() -> bytes:
    """The bytes of U/LAYOUT."""
    return print_text(pb.LedgerRereplicationLayoutFormat(type=LAYOUT_TYPE, version=LAYOUT_VERSION))


def check_layout(data: bytes, path: str) -> None:
    """Raise LayoutMismatch, or MetadataCorrupt, unless the tree is one that this release knows."""
    layout = parse_text(data, pb.LedgerRereplicationLayoutFormat(), path)
    if (layout.type, layout.version) != (LAYOUT_TYPE, LAYOUT_VERSION):
        raise LayoutMismatch(
            f"{path}: the under-replication tree has layout {layout.type[:100]!r} version {layout.version}; only "
            f"{LAYOUT_TYPE!r} version {LAYOUT_VERSION} is supported"
        )


def format_mark(missing: Iterable[BookieId], marked_ms: int | None) -> bytes:
    """The bytes of a mark."""
    return print_text(pb.UnderreplicatedLedgerFormat(replica=list(missing), ctime=marked_ms))


def parse_mark(data: bytes, path: str) -> tuple[tuple[BookieId, ...], int | None]:
    """Missing bookies and time of a mark. Raises MetadataCorrupt."""
    mark = parse_text(data, pb.UnderreplicatedLedgerFormat(), path)
    return tuple(map(BookieId, mark.replica)), mark.ctime if mark.HasField("ctime") else None


def format_lock(host: str) -> bytes:
    """The bytes of a lock; `host` is for people."""
    return print_text(pb.LockDataFormat(bookieId=host))


def parse_lock(data: bytes, path: str) -> str:
    """Who says to hold a lock; "" where it does not say. Raises MetadataCorrupt."""
    return parse_text(data, pb.LockDataFormat(), path).bookieId


def format_vote(bookie_id: BookieId) -> bytes:
    """The bytes of a candidate's vote, and of U/auditorelection."""
    return print_text(pb.AuditorVoteFormat(bookieId=bookie_id))


def parse_vote(data: bytes, path: str) -> BookieId:
    """The candidate. Raises MetadataCorrupt."""
    vote = parse_text(data, pb.AuditorVoteFormat(), path)
    if not vote.bookieId:
        raise MetadataCorrupt(f"{path}: the vote names no bookie")
    return BookieId(vote.bookieId)


def format_delay(delay_s: int) -> bytes:
    """The bytes of the recovery delay. Raises InvalidMetadata."""
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise InvalidMetadata(f"a recovery delay of {delay_s} s; it must be 0..{DELAY_S_MAX}")
    return str(delay_s).encode("ascii")


def parse_delay(data: bytes, path: str) -> int:
    """Seconds; a negative number, which Apache would store, is no delay at all. Raises MetadataCorrupt."""
    text = data.decode("ascii", "replace")
    if _SECONDS.fullmatch(text) is None or not -DELAY_S_MAX - 1 <= int(text) <= DELAY_S_MAX:
        raise MetadataCorrupt(
            f"{path}: {text[:100]!r} is not a number of seconds; replace it with `bookkeeper shell "
            "lostbookierecoverydelay -set N`"
        )
    return max(0, int(text))


def format_check_time(kind: CheckKind, ended_ms: int) -> bytes:
    """The bytes of a check's time."""
    if kind is CheckKind.ALL_LEDGERS:
        return pb.CheckAllLedgersFormat(checkAllLedgersCTime=ended_ms).SerializeToString()
    if kind is CheckKind.PLACEMENT:
        return pb.PlacementPolicyCheckFormat(placementPolicyCheckCTime=ended_ms).SerializeToString()
    return pb.ReplicasCheckFormat(replicasCheckCTime=ended_ms).SerializeToString()


def parse_check_time(kind: CheckKind, data: bytes, path: str) -> int | None:
    """When the check last ended; None where it does not say. Raises MetadataCorrupt."""
    try:
        if kind is CheckKind.ALL_LEDGERS:
            all_ledgers = pb.CheckAllLedgersFormat.FromString(data)
            return all_ledgers.checkAllLedgersCTime if all_ledgers.HasField("checkAllLedgersCTime") else None
        if kind is CheckKind.PLACEMENT:
            placement = pb.PlacementPolicyCheckFormat.FromString(data)
            return placement.placementPolicyCheckCTime if placement.HasField("placementPolicyCheckCTime") else None
        replicas = pb.ReplicasCheckFormat.FromString(data)
        return replicas.replicasCheckCTime if replicas.HasField("replicasCheckCTime") else None
    except DecodeError as error:
        raise MetadataCorrupt(f"{path}: not the time of a check: {error}") from error
