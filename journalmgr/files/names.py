"""Names in a journal's directory. What an edits file's own name says is in journalmgr.edits.file alone. Pure."""

from __future__ import annotations

from journalmgr.edits.file import EditsFileName, is_in_progress_name, parse_name
from journalmgr.model import Segment, TxId

LOCK = "in_use.lock"
CURRENT = "current"
VERSION = "VERSION"
SEEN_TXID = "seen_txid"

_MARK = ".synced"
_TORN = ".torn"


def in_progress_name(first_txid: int) -> str:
    """The file of a segment that is being written."""
    return str(EditsFileName(TxId(first_txid), None))


def finalised_name(first_txid: int, last_txid: int) -> str:
    """The file of a segment whose end is fixed."""
    return str(EditsFileName(TxId(first_txid), TxId(last_txid)))


def mark_name(first_txid: int) -> str:
    """The file that says how far a segment in progress is durable."""
    return in_progress_name(first_txid) + _MARK


def marked_file(name: str) -> str | None:
    """The segment's file that a mark belongs to; None for what is no mark."""
    marked = name.removesuffix(_MARK)
    return marked if marked != name and is_in_progress_name(marked) else None


def torn_name(first_txid: int, attempt: int) -> str:
    """The file that takes what recovery cuts off; attempt counts up where an earlier one exists."""
    return in_progress_name(first_txid) + _TORN + (f".{attempt}" if attempt else "")


def segment_of(name: str, layout_version: int) -> Segment | None:
    """The segment that a file is named for; None for other files. Raises SegmentUnreadable."""
    found = parse_name(name)
    return None if found is None else Segment(found.first_txid, found.last_txid, layout_version, name=name)
